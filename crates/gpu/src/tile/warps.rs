//! Adds warps to kernels whose dots need more registers.
//!
//! A thread has at most 255 registers, and twice the warps halve the elements of a thread.
//! Registers are estimated from the live tiles of tile IR ([`peak_words`]). The pass doubles the
//! warps in two cases:
//!
//! - Accumulators that are live together, with the tiles computed from them, exceed
//!   `Tuning::accumulator_registers`. A loop with them would spill. Example: two carried
//!   accumulators of 128x128 take 256 registers in four warps.
//! - Threads compute an operand of a dot from another dot. If registers do not hold two iterations,
//!   a second warpgroup can use the tensor cores meanwhile. This needs `wgmma`, 64 rows of each dot
//!   for every warpgroup, and as many blocks in a multiprocessor as before.
//!
//! If a program cannot be divided for a requested cluster, one block runs it. The block has the
//! warps of all blocks if possible.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Block, Function, Inst, Op, OpFamily, ShapeOp, Type, Value};

use super::cluster::{Refusal, WARPGROUP_ROWS, divide};
use crate::assign::mma_selection::{collect_dots, scaled_dot};
use crate::cost_model;
use crate::preparation::Preparation;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{Feature, GpuTarget, REGISTER_FILE, THREAD_REGISTERS, WARPGROUP_WARPS};

/// The size in blocks of the largest cluster that every device with clusters supports.
const MAX_BLOCKS: u32 = 8;
/// The size in blocks of Hopper's largest cluster. A kernel opts in to it.
const MAX_CLUSTER: u32 = 16;

/// Adds warps to a kernel, if its launcher can.
pub fn add_warps(kernel: &mut Preparation<'_>) {
    if kernel.launcher.adds_warps {
        let function = kernel.module.kernel();
        let warps = warps_of_dots(function, kernel.target, kernel.num_warps);
        if can_store_scales(function, warps) {
            kernel.num_warps = warps;
        }
    }
}

/// Returns whether an instruction stores the scales of each dot, by `warps` warps.
fn can_store_scales(kernel: &Function, warps: u32) -> bool {
    let can_store = |inst| scaled_dot(kernel, inst).is_none_or(|dot| dot.scale_layouts(warps).is_some());
    collect_dots(kernel).into_iter().all(|(_, inst)| can_store(inst))
}

fn has_assembly(kernel: &Function) -> bool {
    find(kernel, |op| matches!(op, Op::InlineAsm { .. } | Op::VolatileAsm { .. })).is_some()
}

/// Returns the warps of a kernel: the requested number, or more.
///
/// Inline assembly may depend on the number of threads, so it keeps the requested number.
fn warps_of_dots(kernel: &Function, target: GpuTarget, num_warps: u32) -> u32 {
    let Some(dot) = find(kernel, is_dot).filter(|_| !has_assembly(kernel)) else { return num_warps };
    let [tiles, accumulators] = [Counted::Tiles, Counted::Accumulators]
        .map(|counted| peak_words(kernel, kernel.entry, counted, &mut FxHashSet::default()) as u32);
    let mut warps = num_warps;
    while tiles / (warps * LANES) > target.tuning.accumulator_registers && warps < max_warps() {
        warps *= 2;
    }
    let blocks = |warps: u32| {
        let threads = warps * LANES;
        cost_model::blocks_by_registers(accumulators / threads, threads, target.tuning)
    };
    let reason = if warps > num_warps {
        format!("the tiles of its dots would take {} registers of a thread", tiles / (num_warps * LANES))
    } else if target.features.has(Feature::Wgmma)
        && warps.is_multiple_of(WARPGROUP_WARPS)
        && 2 * warps <= max_warps()
        && blocks(2 * warps) >= blocks(warps)
        && has_waiting_dots(kernel, kernel.entry, (target, warps))
    {
        warps *= 2;
        "dots wait for each other, and registers do not hold two iterations".to_owned()
    } else {
        return num_warps;
    };
    let because = || RemarkReason::done(format!("{warps} warps, not {num_warps}"), reason);
    remarks::about("warps", kernel, dot, || "kernel".into(), because);
    warps
}

/// Returns whether a second warpgroup could use idle tensor cores in a block. Dots depend on other
/// dots, and registers do not hold two iterations. Each dot has enough rows for twice the warps.
fn has_waiting_dots(kernel: &Function, block: Block, (target, warps): (GpuTarget, u32)) -> bool {
    let rows = 2 * warps / WARPGROUP_WARPS * WARPGROUP_ROWS;
    let mut of_dots: FxHashSet<Value> = FxHashSet::default();
    let (mut depends, mut can_gather_rows, mut tiles) = (false, true, 0);
    for &inst in &kernel.blocks[block].insts {
        let data = &kernel.insts[inst];
        if data.regions.iter().any(|region| has_waiting_dots(kernel, *region, (target, warps))) {
            return true;
        }
        let is_of_dot = data.operands.iter().any(|operand| of_dots.contains(operand));
        if is_dot(&data.op) {
            let accumulator = kernel.ty(data.results[0]);
            can_gather_rows &= accumulator.shape.len() == 2 && accumulator.shape[0] >= rows;
            tiles += words(accumulator);
            let late = data.operands[..2].iter().filter(|operand| of_dots.contains(operand));
            let operands: Vec<usize> = late.map(|operand| words(kernel.ty(*operand))).collect();
            depends |= !operands.is_empty();
            tiles += operands.iter().sum::<usize>();
        }
        if is_dot(&data.op) || is_of_dot && data.op.family() != OpFamily::Load {
            of_dots.extend(&data.results);
        }
    }
    let threads = warps * LANES;
    depends && can_gather_rows && !cost_model::fits_registers(tiles as u32 / threads, threads, target.tuning)
}

/// Returns the maximum warps whose threads have all registers that an instruction names.
fn max_warps() -> u32 {
    REGISTER_FILE / ((THREAD_REGISTERS + 1) * LANES)
}

/// Divides a program between the blocks of its cluster. Returns whether it did.
///
/// A block of a divided program has the requested warps. Otherwise, one block runs the program,
/// with the requested warps. If the launcher adds warps and the kernel has no assembly, this block
/// has the warps of all blocks, up to [`max_warps`].
pub fn divide_for_cluster(preparation: &mut Preparation<'_>) -> bool {
    let Preparation { module, target, num_warps, launcher, .. } = preparation;
    let blocks = launcher.cluster.max(1);
    if blocks == 1 {
        return false;
    }
    let kernel = module.kernel();
    let divided = if !target.features.has(Feature::Tma) {
        Err(Refusal { inst: None, reason: "the target has no clusters" })
    } else if !blocks.is_power_of_two() || blocks > MAX_BLOCKS {
        Err(Refusal { inst: None, reason: "not every device has clusters of this size" })
    } else {
        divide(module, blocks)
    };
    let first = kernel.blocks[kernel.entry].insts[0];
    match divided {
        Ok(divided) => {
            let reason = format!("num_ctas={blocks}: each computes a part of its dots");
            remarks::about(
                "cluster",
                kernel,
                first,
                || "kernel".into(),
                || RemarkReason::done(format!("divided between {blocks} blocks"), reason),
            );
            *module = divided;
            preparation.cluster = blocks;
            true
        }
        Err(Refusal { inst, reason }) => {
            if launcher.adds_warps && !has_assembly(kernel) {
                *num_warps = (*num_warps).max(num_warps.saturating_mul(blocks).min(max_warps()));
            }
            let subject =
                || inst.map_or_else(|| "kernel".into(), |inst| remarks::subject(kernel, inst, None));
            remarks::about("cluster", kernel, inst.unwrap_or(first), subject, || {
                let decision = format!("{num_warps} warps in one block");
                RemarkReason::missed(decision, format!("num_ctas={blocks}: not divided, since {reason}"))
            });
            false
        }
    }
}

/// Refuses a cluster that a target cannot launch, for kernels that state clusters (Gluon).
pub fn check_cluster(target: GpuTarget, blocks: u32) -> Result<(), Box<Diagnostic>> {
    let message = if !target.features.has(Feature::Tma) {
        format!("{} has no clusters, but the kernel is for num_ctas={blocks}", target.name)
    } else if !blocks.is_power_of_two() || blocks > MAX_CLUSTER {
        format!("num_ctas is a power of two up to {MAX_CLUSTER}, found {blocks}")
    } else {
        return Ok(());
    };
    Err(Box::new(Diagnostic::new(Code::NotOnThisDevice, message)))
}

fn is_dot(op: &Op) -> bool {
    op.family() == OpFamily::Dot
}

/// Returns the first instruction whose op satisfies the predicate.
fn find(kernel: &Function, is_it: impl Fn(&Op) -> bool) -> Option<Inst> {
    let mut found = None;
    kernel.walk(kernel.entry, &mut |inst| {
        if found.is_none() && is_it(&kernel.insts[inst].op) {
            found = Some(inst);
        }
    });
    found
}

/// The values that an estimate of registers counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Accumulators: results of dots, and the values that loops with dots carry.
    Accumulators,
    /// Accumulators, and the tiles that threads compute from them.
    Tiles,
}

/// Returns the maximum 32-bit words of counted tiles at one point of a block.
fn peak_words(kernel: &Function, block: Block, counted: Counted, of_dots: &mut FxHashSet<Value>) -> usize {
    let insts = &kernel.blocks[block].insts;
    let mut last_uses: FxHashMap<Value, usize> = FxHashMap::default();
    let mut inner_uses: FxHashSet<(usize, Value)> = FxHashSet::default();
    for (index, inst) in insts.iter().enumerate() {
        last_uses.extend(kernel.insts[*inst].operands.iter().map(|value| (*value, index)));
        for region in &kernel.insts[*inst].regions {
            kernel.walk(*region, &mut |inner| {
                let operands = &kernel.insts[inner].operands;
                last_uses.extend(operands.iter().map(|value| (*value, index)));
                inner_uses.extend(operands.iter().map(|value| (index, *value)));
            });
        }
    }
    let words_of = |values: &[Value]| values.iter().map(|value| words(kernel.ty(*value))).sum::<usize>();
    // Dots accumulate in the registers of a loop's carried values.
    let mut carried: FxHashSet<Value> = kernel.blocks[block].parameters.iter().copied().collect();
    carried.retain(|value| of_dots.contains(value));
    let kept = words_of(&carried.iter().copied().collect::<Vec<_>>());
    let (mut live, mut peak): (Vec<Value>, usize) = (Vec::new(), kept);
    for (index, inst) in insts.iter().enumerate() {
        let data = &kernel.insts[*inst];
        let has_dots = data.regions.iter().any(|region| has_dot(kernel, *region));
        if data.op.family() == OpFamily::Loop && has_dots {
            of_dots.extend(data.regions.iter().flat_map(|region| &kernel.blocks[*region].parameters));
            of_dots.extend(&data.results);
        }
        let inner = data.regions.iter().map(|region| peak_words(kernel, *region, counted, of_dots)).max();
        let is_live = |value: &Value| last_uses.get(value).is_some_and(|last| *last > index);
        if let Some(inner) = inner {
            let is_across = |value: &&Value| is_live(value) || inner_uses.contains(&(index, **value));
            let across: Vec<Value> = live.iter().filter(is_across).copied().collect();
            peak = peak.max(kept + words_of(&across) + inner);
        }
        live.retain(is_live);
        let depends = data.operands.iter().any(|operand| of_dots.contains(operand));
        let is_computed = depends && counted == Counted::Tiles && data.op.family() != OpFamily::Load;
        if is_dot(&data.op) && carried.contains(&data.operands[2]) {
            carried.extend(&data.results);
        }
        if is_dot(&data.op) || is_computed {
            of_dots.extend(&data.results);
        }
        let is_broadcast =
            matches!(data.op.as_shape(), Some(ShapeOp::Broadcast { .. } | ShapeOp::ExpandDims { .. }));
        let is_counted = |value: &&Value| {
            !is_broadcast && of_dots.contains(*value) && !carried.contains(*value) && is_live(value)
        };
        live.extend(data.results.iter().filter(is_counted));
        peak = peak.max(kept + words_of(&live));
    }
    peak
}

fn has_dot(kernel: &Function, block: Block) -> bool {
    let mut found = false;
    kernel.walk(block, &mut |inst| found |= is_dot(&kernel.insts[inst].op));
    found
}

/// Returns the 32-bit words of a numeric tile. Returns 0 for other types, and if fewer than two
/// axes are longer than 1.
fn words(ty: &Type) -> usize {
    let is_wide = ty.shape.iter().filter(|extent| **extent > 1).count() > 1;
    ty.dtype().filter(|_| is_wide).map_or(0, |dtype| ty.shape.elements() * dtype.bytes() / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warps of a kernel with 128 carried registers in four warps. The loop computes an
    /// operand of `columns` columns from `dots` dots.
    fn warps_of(columns: u32, dots: u32) -> u32 {
        let second = if dots == 1 {
            "%q = mul %p, %p".to_owned()
        } else {
            format!(
                "%t = dot %a, %b, %zero {{precision = \"ieee\", max_imprecise_acc = 0}} : fp32[128, {columns}]
                 %q = mul %p, %t"
            )
        };
        let text = format!(
            "kernel func0 @k(%x: fp16, %n: int32) {{
               %0 = constant {{value = 0.0:fp32}} : fp32
               %acc = splat %0 {{shape = [128, 128]}} : fp32[128, 128]
               %zero = splat %0 {{shape = [128, {columns}]}} : fp32[128, {columns}]
               %a = splat %x {{shape = [128, 32]}} : fp16[128, 32]
               %b = splat %x {{shape = [32, {columns}]}} : fp16[32, {columns}]
               %v = splat %x {{shape = [{columns}, 128]}} : fp16[{columns}, 128]
               %1 = constant {{value = 0:int32}} : int32
               %2 = constant {{value = 1:int32}} : int32
               %r = for_loop %1, %n, %2, %acc {{options = \"stages=0 unroll=0\"}} (%i: int32, %c: fp32[128, 128]) {{
                 %s = dot %a, %b, %zero {{precision = \"ieee\", max_imprecise_acc = 0}} : fp32[128, {columns}]
                 %p = exp2 %s : fp32[128, {columns}]
                 {second} : fp32[128, {columns}]
                 %h = cast %q {{element = fp16, rounding = \"rtne\"}} : fp16[128, {columns}]
                 %d = dot %h, %v, %c {{precision = \"ieee\", max_imprecise_acc = 0}} : fp32[128, 128]
                 yield_values %d
               }} : fp32[128, 128]
               return_values
             }}"
        );
        let module = tilewright_ir::parse(&text).expect("the text is tile IR");
        let target = GpuTarget::named("sm_80").expect("sm_80 is a target");
        warps_of_dots(module.kernel(), target, 4)
    }

    #[test]
    fn tiles_that_are_live_together_decide_the_warps() {
        // 128 carried registers, and 64 of the operand.
        assert_eq!(warps_of(64, 1), 4);
        // 128 carried registers, and 128 of the operand.
        assert_eq!(warps_of(128, 1), 8);
        // 128 carried registers, and 64 for each of two tiles.
        assert_eq!(warps_of(64, 2), 8);
    }
}
