//! More warps than were asked for, for two kinds of kernels with products.
//!
//! **Accumulators that registers cannot hold.** A thread has at most 255 registers. A loop that carries more accumulators than that,
//! as two of 128 x 128 in four warps, would spill most of them in each iteration. Twice the warps hold half as much each.
//!
//! **Dots that wait for each other.** A loop that carries two accumulators, each of dots of the results of other dots, waits for
//! one dot after the other. Where registers have room for as many blocks of twice the warps, the other warpgroup computes
//! meanwhile: each has 64 rows instead of twice 64.
//!
//! A program that is asked for as a cluster of blocks and cannot be divided between them is run by one block, with the warps of all.

use rustc_hash::FxHashSet;
use tilewright_ir::{Block, Definition, Function, Inst, Op, OpFamily, Type, Value};

use super::cluster::{Refusal, WARPGROUP_ROWS, divide};
use crate::cost_model;
use crate::preparation::Preparation;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{Feature, GpuTarget, WARPGROUP_WARPS};

/// With more warps than this, a thread of one block may have no more than half of the registers: nothing is gained.
const MAX_WARPS: u32 = 8;
/// The blocks of a cluster that every device has which has clusters.
const MOST_BLOCKS: u32 = 8;

/// Gives a kernel more warps, as above, if its launcher launches them.
pub fn add_warps(kernel: &mut Preparation<'_>) {
    if kernel.launcher.adds_warps {
        kernel.num_warps = warps_of_products(kernel.module.kernel(), kernel.target, kernel.num_warps);
    }
}

/// The warps of a kernel: those asked for, or more. Assembly of the program's own may count its threads.
fn warps_of_products(kernel: &Function, target: GpuTarget, num_warps: u32) -> u32 {
    let has_assembly = find(kernel, |op| matches!(op, Op::InlineAsm { .. })).is_some();
    let Some(product) = find(kernel, is_product).filter(|_| !has_assembly) else { return num_warps };
    let words = words_in(kernel, kernel.entry);
    let registers = |warps: u32| words as u32 / (warps * LANES);
    let most = target.tuning.accumulator_registers;
    let mut warps = num_warps;
    while registers(warps) > most && warps < MAX_WARPS {
        warps *= 2;
    }
    let blocks = |warps: u32| cost_model::blocks_by_registers(registers(warps), warps * LANES, target.tuning);
    let (warps, reason) = if warps > num_warps && registers(warps) <= most {
        (warps, format!("accumulators would take {} registers of a thread", registers(num_warps)))
    } else if target.features.has(Feature::Wgmma)
        && num_warps == WARPGROUP_WARPS
        && blocks(2 * num_warps) >= blocks(num_warps)
        && waits_for_products(kernel, kernel.entry, 2 * WARPGROUP_ROWS)
    {
        (2 * num_warps, "a loop carries two sums of products of products, which wait for each other".into())
    } else {
        return num_warps;
    };
    let because = || Because::done(format!("{warps} warps, not {num_warps}"), reason);
    remarks::about("warps", kernel, product, || "kernel".into(), because);
    warps
}

/// Whether a loop carries two sums or more of products of what other products gave, and all have so many rows.
fn waits_for_products(kernel: &Function, block: Block, rows: u32) -> bool {
    let mut of_products: FxHashSet<Value> = FxHashSet::default();
    let (mut sums, mut can_gather_rows) = (0, true);
    for &inst in &kernel.blocks[block].insts {
        let data = &kernel.insts[inst];
        if data.regions.iter().any(|region| waits_for_products(kernel, *region, rows)) {
            return true;
        }
        let is_of_product = data.operands.iter().any(|operand| of_products.contains(operand));
        if is_product(&data.op) {
            let shape = &kernel.ty(data.results[0]).shape;
            can_gather_rows &= shape.len() == 2 && shape[0] >= rows;
            let is_carried = matches!(kernel.values[data.operands[2]].definition, Definition::Parameter(..));
            sums += u32::from(is_of_product && is_carried);
        }
        if is_product(&data.op) || is_of_product && data.op.family() != OpFamily::Load {
            of_products.extend(&data.results);
        }
    }
    sums >= 2 && can_gather_rows
}

/// Divides a program for a cluster between its blocks, if it can be: then a block has the warps that were asked for. Else one block
/// does what a cluster is asked for, with the warps of all, as far as each thread of them may have all registers that it can. What
/// a program computes does not depend on it. True if the program is divided.
pub fn divide_for_cluster(preparation: &mut Preparation<'_>) -> bool {
    let Preparation { module, target, num_warps, launcher, .. } = preparation;
    let blocks = launcher.cluster.max(1);
    if blocks == 1 {
        return false;
    }
    let kernel = module.kernel();
    let divided = if !target.features.has(Feature::Tma) {
        Err(Refusal { inst: None, reason: "the target has no clusters" })
    } else if !blocks.is_power_of_two() || blocks > MOST_BLOCKS {
        Err(Refusal { inst: None, reason: "not every device has clusters of so many blocks" })
    } else {
        divide(module, blocks)
    };
    let first = kernel.blocks[kernel.entry].insts[0];
    match divided {
        Ok(divided) => {
            let reason = format!("num_ctas={blocks}: each computes a part of its products");
            remarks::about(
                "cluster",
                kernel,
                first,
                || "kernel".into(),
                || Because::done(format!("divided between {blocks} blocks"), reason),
            );
            *module = divided;
            preparation.cluster = blocks;
            true
        }
        Err(Refusal { inst, reason }) => {
            let has_assembly =
                find(kernel, |op| matches!(op, Op::InlineAsm { .. } | Op::VolatileAsm { .. })).is_some();
            if launcher.adds_warps && !has_assembly {
                *num_warps = (*num_warps).max(num_warps.saturating_mul(blocks).min(MAX_WARPS));
            }
            let subject =
                || inst.map_or_else(|| "kernel".into(), |inst| remarks::subject(kernel, inst, None));
            remarks::about("cluster", kernel, inst.unwrap_or(first), subject, || {
                let decision = format!("{num_warps} warps in one block");
                Because::missed(decision, format!("num_ctas={blocks}: not divided, since {reason}"))
            });
            false
        }
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Dot { .. })
}

/// The first instruction with such an op.
fn find(kernel: &Function, is_it: impl Fn(&Op) -> bool) -> Option<Inst> {
    let mut found = None;
    kernel.walk(kernel.entry, &mut |inst| {
        if found.is_none() && is_it(&kernel.insts[inst].op) {
            found = Some(inst);
        }
    });
    found
}

/// The words of 32 bits of the accumulators that are alive together, at least: those that a loop with products carries, and of
/// the products inside that begin at zero the largest.
fn words_in(kernel: &Function, block: Block) -> usize {
    let of = |inst: &Inst| {
        let data = &kernel.insts[*inst];
        let inner = data.regions.iter().map(|region| words_in(kernel, *region)).max().unwrap_or(0);
        if data.op.family() == OpFamily::Loop && inner > 0 {
            return inner + data.results.iter().map(|result| words(kernel.ty(*result))).sum::<usize>();
        }
        let is_carried = |value: Value| matches!(kernel.values[value].definition, Definition::Parameter(..));
        if is_product(&data.op) {
            // One whose sums a loop carries takes no others.
            let own = words(kernel.ty(data.results[0]));
            return if is_carried(data.operands[2]) { 1 } else { own };
        }
        inner
    };
    kernel.blocks[block].insts.iter().map(of).max().unwrap_or(0)
}

/// Of a tile of numbers with at least two axes.
fn words(ty: &Type) -> usize {
    let is_wide = ty.shape.iter().filter(|extent| **extent > 1).count() > 1;
    ty.dtype().filter(|_| is_wide).map_or(0, |dtype| ty.shape.elements() * dtype.bytes() / 4)
}
