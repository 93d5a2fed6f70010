//! Selects the instruction of each `dot` and the layouts of its fragments.

use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Dtype, Element, Function, InputPrecision, Inst, Op, OpFamily, Rounding, Type, Value,
};
use tilewright_layout::{Fragment, Input, Layout, Mma, blocked};

use crate::assign::cost::LayoutCosts;
use crate::assign::swap_dot_operands::is_loaded_by_columns;
use crate::assign::{tcgen05_selection, wgmma_selection};
use crate::cost_model;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::{LANES, element_bits, fma_operand_layout};
use tilewright_gpu_ir::scaled_dots::ScaledDot;
use tilewright_gpu_ir::target::{Feature, GpuTarget};
use tilewright_gpu_ir::tensor_memory::TENSOR_MEMORY_COLUMNS;
use tilewright_gpu_ir::{LayoutId, TensorMemory};

/// The instruction that computes a dot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DotInstruction {
    /// `mma.sync`, which rounds fp32 operands to tf32.
    MmaSync {
        mma: Mma,
        /// The warps along the first axis of the batch, along M and along N.
        warps: [u32; 3],
    },
    /// `wgmma`. It reads B from shared memory, and A if A has no layout in registers. It truncates
    /// fp32 operands to tf32.
    Wgmma {
        mma: Mma,
        /// The warps along M and along N.
        warps: [u32; 2],
    },
    /// `tcgen05.mma`. It reads A and B from shared memory, and its accumulator is in tensor memory.
    /// It truncates fp32 operands to tf32.
    Tcgen05 {
        /// The instruction.
        mma: Mma,
    },
    /// FMAs of single elements, in the type of the accumulator.
    Fma,
}

impl DotInstruction {
    /// Returns whether different warps compute different dots of the batch.
    pub fn is_batched_over_warps(self) -> bool {
        matches!(self, Self::MmaSync { warps: [count, ..], .. } if count > 1)
    }
}

#[derive(Clone, Copy)]
pub struct DotPlan {
    pub instruction: DotInstruction,
    /// The layouts of A and B in registers. `None` for an operand that the dot reads from shared
    /// memory.
    pub operands: [Option<LayoutId>; 2],
    /// False for an operand (A or B) that moves from registers to shared memory. Each instruction
    /// of the dot then loads its part. This happens if registers hold the accumulator but not also
    /// the operand. The operand may take at most half of the shared memory.
    pub fits: [bool; 2],
    /// The layout of the accumulator and of the result.
    pub accumulator: LayoutId,
    /// The layouts of the scales of A and B, if the dot has scales.
    pub scales: Option<[LayoutId; 2]>,
}

impl DotPlan {
    /// Returns the layout in which the dot takes an operand from registers. Returns `None` for A or B
    /// in shared memory.
    pub fn operand(&self, index: usize) -> Option<LayoutId> {
        match index {
            0 | 1 => self.operands[index],
            2 => Some(self.accumulator),
            _ => self.scales.map(|scales| scales[index - 3]),
        }
    }
}

pub struct DotPlans {
    plans: SecondaryMap<Inst, Option<DotPlan>>,
}

impl DotPlans {
    pub fn new(function: &Function, target: GpuTarget, num_warps: u32, layouts: &mut LayoutCosts) -> Self {
        let found = collect_dots(function);
        let dots: Vec<Inst> = found.iter().map(|(_, inst)| *inst).collect();
        let chained = find_chained_dots(function, &dots);
        let mut plans = SecondaryMap::new();
        // The selection of dots with scales has counted their columns.
        let with_scales = dots.iter().filter_map(|dot| scaled_dot(function, *dot));
        let scaled_columns: u32 = with_scales.map(|dot| tcgen05_selection::scaled_columns(&dot)).sum();
        let mut free_columns = TENSOR_MEMORY_COLUMNS.saturating_sub(scaled_columns);
        for (block, inst) in found {
            let types = DotTypes::of(function, inst);
            let shape = DotShape::of(&types);
            let dot_with_scales = scaled_dot(function, inst);
            let instruction = if let Some(dot) = &dot_with_scales {
                DotInstruction::Tcgen05 { mma: tcgen05_selection::scaled_mma(&dot.accumulator) }
            } else if let Ok((mma, warps)) = types.wgmma(target, num_warps) {
                DotInstruction::Wgmma { mma, warps }
            } else if let Ok((mma, memory)) = types.tcgen05(target, num_warps)
                && memory.columns() <= free_columns
            {
                free_columns -= memory.columns();
                DotInstruction::Tcgen05 { mma }
            } else if let Some(mma) = types.tensor_core(shape, target) {
                let first = &types.operands[0];
                let batch = if first.rank() > 2 { first.shape[0] } else { 1 };
                let warps = split_warps(mma, shape, batch, num_warps, chained.contains(inst));
                DotInstruction::MmaSync { mma, warps }
            } else {
                DotInstruction::Fma
            };
            let subject = || types.subject();
            remarks::about("mma_selection", function, inst, subject, || {
                types.because(instruction, target, num_warps)
            });
            let in_registers = match instruction {
                DotInstruction::Wgmma { .. } => {
                    let is_computed = wgmma_selection::is_computed_in_block(function, inst);
                    [is_computed || is_loaded_by_columns(function, block, inst, target, num_warps), false]
                }
                DotInstruction::Tcgen05 { .. } => [false; 2],
                DotInstruction::MmaSync { .. } | DotInstruction::Fma => [true; 2],
            };
            let (operands, accumulator) = fragments(instruction, &types, num_warps, in_registers);
            let words = |layout: &Layout, operand: usize| {
                (layout.registers() * element_bits(&types.operands[operand])).div_ceil(32)
            };
            let fits_registers = |words| cost_model::fits_registers(words, num_warps * LANES, target.tuning);
            let accumulator_words = words(&accumulator, 2);
            let fits = [0, 1].map(|operand: usize| {
                let Some(layout) = &operands[operand] else { return true };
                let ty = &types.operands[operand];
                let bytes = ty.shape.iter().product::<u32>() * element_bits(ty) / 8;
                // An operand that cannot go to memory stays in registers, even if they spill.
                let can_go_to_memory =
                    fits_registers(accumulator_words) && bytes <= target.max_shared_bytes / 2;
                !can_go_to_memory || fits_registers(words(layout, operand) + accumulator_words)
            });
            let mut add = |layout| layouts.add(layout);
            let operands = operands.map(|layout| layout.map(&mut add));
            let scales = dot_with_scales.map(|dot| {
                let layouts = dot.scale_layouts(num_warps).expect("the selection checks the scales");
                layouts.map(&mut add)
            });
            plans[inst] =
                Some(DotPlan { instruction, operands, fits, accumulator: add(accumulator), scales });
        }
        Self { plans }
    }

    pub fn of(&self, inst: Inst) -> Option<DotPlan> {
        self.plans[inst]
    }
}

/// Returns the instruction of a dot with scales; `None` for other dots.
pub fn scaled_dot(function: &Function, inst: Inst) -> Option<ScaledDot> {
    let data = &function.insts[inst];
    let Op::DotScaled { a_format, b_format } = data.op else { return None };
    let [a, b, acc, a_scale, b_scale] = [0, 1, 2, 3, 4].map(|index: usize| function.ty(data.operands[index]));
    let dot = ScaledDot::of([a_format, b_format], [a, b, acc], [a_scale, b_scale]);
    Some(dot.expect("the selection checks the operands"))
}

/// Converts operands and 16-bit accumulators to types with an instruction.
///
/// A dot with scales has its instruction already.
///
/// If no such type exists, FMAs compute the dot in fp32, or in fp64 for an fp64 accumulator. Dots
/// with integer accumulators do not change.
pub fn convert_operands(function: &mut Function, target: GpuTarget, num_warps: u32) {
    for (block, inst) in collect_dots(function) {
        if let Op::DotScaled { .. } = function.insts[inst].op {
            continue;
        }
        let types = DotTypes::of(function, inst);
        let supported = types.supported(target, num_warps);
        if supported == types.dtypes {
            continue;
        }
        let data = function.insts[inst].clone();
        let mut before: SmallVec<[Inst; 4]> = smallvec![];
        let cast = |function: &mut Function, value: Value, dtype: Dtype| {
            if function.ty(value).dtype() == Some(dtype) {
                return None;
            }
            let op = Op::Cast { element: Element::Value(dtype), rounding: Rounding::default() };
            let ty = function.ty(value).with_dtype(dtype);
            Some(function.create_inst(op, smallvec![value], smallvec![], [ty], data.location))
        };
        let mut operands = data.operands.clone();
        for (operand, dtype) in operands.iter_mut().zip(supported) {
            if let Some(inst) = cast(function, *operand, dtype) {
                *operand = function.insts[inst].results[0];
                before.push(inst);
            }
        }
        let result = data.results[0];
        function.insts[inst].operands = operands;
        let mut new_dot = None;
        if supported[2] != types.dtypes[2] {
            // The instruction becomes a conversion of a new dot, so uses of its result stay valid.
            let ty = function.ty(result).with_dtype(supported[2]);
            let dot = function.create_inst(
                data.op.clone(),
                function.insts[inst].operands.clone(),
                smallvec![],
                [ty],
                data.location,
            );
            let accumulated = function.insts[dot].results[0];
            let element = Element::Value(types.dtypes[2]);
            function.insts[inst].op = Op::Cast { element, rounding: Rounding::default() };
            function.insts[inst].operands = smallvec![accumulated];
            new_dot = Some(dot);
        }
        let insts = &mut function.blocks[block].insts;
        let position = insts.iter().position(|other| *other == inst).expect("the dot is in this block");
        insts.splice(position..position, before.into_iter().chain(new_dot));
    }
}

/// Returns whether tensor cores compute a dot of these types; fp32 is tf32 here.
pub fn has_instruction(
    function: &Function,
    inst: Inst,
    dtypes: [Dtype; 3],
    target: GpuTarget,
    num_warps: u32,
) -> bool {
    let types = DotTypes { precision: InputPrecision::Tf32, ..DotTypes::of(function, inst).with(dtypes) };
    types.wgmma(target, num_warps).is_ok() || types.tensor_core(DotShape::of(&types), target).is_some()
}

/// Returns whether `wgmma` can compute a dot and its transpose.
pub fn has_wgmma_in_both_orders(function: &Function, inst: Inst, target: GpuTarget, num_warps: u32) -> bool {
    let types = DotTypes::of(function, inst);
    if types.wgmma(target, num_warps).is_err() {
        return false;
    }
    let (DotShape { m, n, k }, [a, b, accumulator]) = (DotShape::of(&types), types.dtypes);
    wgmma_selection::instruction([b, a, accumulator], types.precision, [n, m, k], target, num_warps).is_ok()
}

/// Returns the `mma.sync` of a dot of fp16 or bf16 that accumulates in fp32.
pub fn half_precision_mma_sync(function: &Function, inst: Inst, target: GpuTarget) -> Option<Mma> {
    let types = DotTypes::of(function, inst);
    let is_half = |dtype: &Dtype| matches!(dtype, Dtype::F16 | Dtype::BF16);
    let has_types = types.dtypes[..2].iter().all(is_half) && types.dtypes[2] == Dtype::F32;
    let is_matrix = types.operands[0].rank() == 2;
    types.tensor_core(DotShape::of(&types), target).filter(|_| has_types && is_matrix)
}

/// Collects all dots, each with its block.
pub fn collect_dots(function: &Function) -> Vec<(Block, Inst)> {
    let mut found = Vec::new();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            blocks.extend(data.regions.iter().copied());
            if data.op.family() == OpFamily::Dot {
                found.push((block, *inst));
            }
        }
    }
    found
}

/// Finds the chained dots. In a chain, an operand of the second dot is computed elementwise from
/// the result of the first. A dot on whose result a chained dot accumulates is also chained.
///
/// With all warps along M, a warp computes its own operands of the next dot.
fn find_chained_dots(function: &Function, dots: &[Inst]) -> EntitySet<Inst> {
    let mut found = EntitySet::new();
    for dot in dots {
        let operand_dots = find_source_dots(function, &function.insts[*dot].operands[..2]);
        if !operand_dots.is_empty() {
            found.insert(*dot);
            found.extend(operand_dots);
        }
    }
    // If a dot accumulates on the result of another, both accumulators should have one layout.
    for dot in dots.iter().rev().filter(|dot| found.contains(**dot)).copied().collect::<Vec<_>>() {
        found.extend(find_source_dots(function, &function.insts[dot].operands[2..]));
    }
    found
}

/// Finds the dots from which threads compute values without other threads' elements.
fn find_source_dots(function: &Function, values: &[Value]) -> Vec<Inst> {
    let mut seen: EntitySet<Value> = EntitySet::new();
    let mut stack: Vec<Value> = values.to_vec();
    let mut found = Vec::new();
    while let Some(value) = stack.pop() {
        let Some(inst) = function.defining_inst(value).filter(|_| seen.insert(value)) else { continue };
        match function.insts[inst].op.family() {
            OpFamily::Dot => found.push(inst),
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Shape => {
                stack.extend(function.insts[inst].operands.iter().copied());
            }
            // tidy: wildcard because other ops move elements to other threads
            _ => {}
        }
    }
    found
}

/// The extents along M, N and K.
#[derive(Clone, Copy)]
struct DotShape {
    m: u32,
    n: u32,
    k: u32,
}

impl DotShape {
    fn of(types: &DotTypes) -> Self {
        let (a, b) = (&types.operands[0].shape, &types.operands[1].shape);
        let rank = a.len();
        Self { m: a[rank - 2], n: b[rank - 1], k: a[rank - 1] }
    }
}

struct DotTypes {
    operands: [Type; 3],
    dtypes: [Dtype; 3],
    precision: InputPrecision,
}

impl DotTypes {
    fn of(function: &Function, inst: Inst) -> Self {
        let data = &function.insts[inst];
        let operands = [0, 1, 2].map(|operand| function.ty(data.operands[operand]).clone());
        let dtypes = [0, 1, 2].map(|operand: usize| {
            operands[operand].dtype().expect("the verifier checks that operands of dots are no pointers")
        });
        let precision = match data.op {
            Op::Dot { precision, .. } => precision,
            // tidy: wildcard because callers pass only dots
            _ => InputPrecision::default(),
        };
        Self { operands, dtypes, precision }
    }

    /// Returns the types with which the GPU computes the dot.
    fn supported(&self, target: GpuTarget, num_warps: u32) -> [Dtype; 3] {
        let [a, b, accumulator] = self.dtypes;
        let has_instruction = |types: &Self| {
            types.wgmma(target, num_warps).is_ok()
                || types.tcgen05(target, num_warps).is_ok()
                || types.tensor_core(DotShape::of(types), target).is_some()
        };
        if has_instruction(self) || !accumulator.is_float() {
            return self.dtypes;
        }
        // fp16 represents every 8-bit float.
        let wider = |dtype: Dtype| if dtype.is_fp8() { Dtype::F16 } else { dtype };
        let wide = if accumulator == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        for dtypes in [[wider(a), wider(b), accumulator], [wider(a), wider(b), wide]] {
            if has_instruction(&self.with(dtypes)) {
                return dtypes;
            }
        }
        [wide; 3]
    }

    fn with(&self, dtypes: [Dtype; 3]) -> Self {
        let operands = [0, 1, 2].map(|operand: usize| self.operands[operand].with_dtype(dtypes[operand]));
        Self { operands, dtypes, precision: self.precision }
    }

    /// Returns the subject of a remark, such as `dot of fp16[128, 64] x fp16[64, 128] -> fp32`.
    fn subject(&self) -> String {
        let [a, b, _] = &self.operands;
        format!("dot of {a} x {b} -> {}", self.dtypes[2])
    }

    /// Returns a remark with the instruction, and why no better one was selected.
    fn because(&self, instruction: DotInstruction, target: GpuTarget, num_warps: u32) -> RemarkReason {
        let DotShape { m, n, k } = DotShape::of(self);
        let name = |mma: Mma| format!("m{}n{}k{}", mma.m, mma.n, mma.k);
        let of_warps = |warps: &[u32]| match *warps {
            [1, m, n] | [m, n] => format!("{m} warps along M, {n} along N"),
            _ => format!("{} warps along the batch, {} along M, {} along N", warps[0], warps[1], warps[2]),
        };
        let reason_against_wgmma = || self.wgmma(target, num_warps).err().unwrap_or_default();
        match instruction {
            DotInstruction::Wgmma { mma, warps } => {
                let reason = "a warpgroup computes the most at once, from shared memory";
                RemarkReason::done(format!("wgmma {}, {}", name(mma), of_warps(&warps)), reason)
            }
            DotInstruction::Tcgen05 { mma } => {
                let reason = "one thread starts it, and the accumulator takes no registers in loops";
                RemarkReason::done(format!("tcgen05.mma {}, accumulator in tensor memory", name(mma)), reason)
            }
            DotInstruction::MmaSync { mma, warps } => RemarkReason::done(
                format!("mma.sync {}, {}", name(mma), of_warps(&warps)),
                reason_against_wgmma(),
            ),
            DotInstruction::Fma => {
                let decision = "FMAs of single elements, no tensor core";
                let has_large = self.tensor_core(DotShape { m: 64, n: 64, k: 64 }, target).is_some();
                let reason = if has_large {
                    format!("the tile is smaller than an instruction: m = {m}, n = {n}, k = {k}")
                } else if self.precision == InputPrecision::Ieee && self.dtypes[0] == Dtype::F32 {
                    "input_precision is ieee: tensor cores round fp32 to tf32".to_owned()
                } else {
                    let [a, b, accumulator] = self.dtypes;
                    format!("the tensor cores of {} do not compute {a} x {b} -> {accumulator}", target.name)
                };
                RemarkReason::missed(decision, reason)
            }
        }
    }

    /// Returns the `wgmma` and the warps along M and N. The error is the reason why no instruction
    /// exists.
    fn wgmma(&self, target: GpuTarget, num_warps: u32) -> Result<(Mma, [u32; 2]), &'static str> {
        if self.operands[0].rank() != 2 {
            return Err("wgmma multiplies single matrices, and the operands are batches");
        }
        let DotShape { m, n, k } = DotShape::of(self);
        wgmma_selection::instruction(self.dtypes, self.precision, [m, n, k], target, num_warps)
    }

    /// Returns the `tcgen05.mma` for these types, and the tensor memory of the accumulator. The error
    /// is the reason why no instruction exists.
    fn tcgen05(&self, target: GpuTarget, num_warps: u32) -> Result<(Mma, TensorMemory), &'static str> {
        let DotShape { k, .. } = DotShape::of(self);
        tcgen05_selection::instruction(self.dtypes, self.precision, k, &self.operands[2], target, num_warps)
    }

    /// Returns the `mma.sync` for these types. Returns `None` if the target has none, or if the
    /// tile is smaller than the instruction.
    fn tensor_core(&self, shape: DotShape, target: GpuTarget) -> Option<Mma> {
        use Dtype as D;
        let has = |feature| target.features.has(feature);
        let [a, b, accumulator] = self.dtypes;
        let has_wide = has(Feature::MmaSyncWide);
        let is_fp8 = |dtype| matches!(dtype, D::F8E5 | D::F8E4NV);
        // M, K and the bits of an operand of each instruction; the largest K first.
        let candidates: &[(u32, u32, u32)] = match (a, b, accumulator) {
            (D::F16, D::F16, D::F32 | D::F16) | (D::BF16, D::BF16, D::F32) if has_wide => {
                &[(16, 16, 16), (16, 8, 16)]
            }
            (D::F16, D::F16, D::F32 | D::F16) if has(Feature::MmaSync) => &[(16, 8, 16)],
            (D::F32, D::F32, D::F32) if has_wide && self.precision == InputPrecision::Tf32 => {
                &[(16, 8, 32), (16, 4, 32)]
            }
            (D::I8 | D::U8, D::I8 | D::U8, D::I32) if has_wide => &[(16, 32, 8), (16, 16, 8)],
            (D::I8 | D::U8, D::I8 | D::U8, D::I32) if has(Feature::MmaSync) => &[(8, 16, 8)],
            (a, b, D::F32) if is_fp8(a) && is_fp8(b) && has(Feature::MmaSyncFp8) => &[(16, 32, 8)],
            (D::F64, D::F64, D::F64) if has_wide => &[(8, 4, 64)],
            // Other types have no instruction.
            _ => &[],
        };
        let fits = |(m, k, _): &&(u32, u32, u32)| shape.m >= *m && shape.n >= 8 && shape.k >= *k;
        let (m, k, bits) = *candidates.iter().find(fits)?;
        Some(Mma::new(m, 8, k, bits))
    }
}

/// Returns the warps along the batch, M and N with the fewest loads. Warps compute the same
/// elements only if no division avoids this. The warps of a chained dot are along M first.
fn split_warps(mma: Mma, shape: DotShape, batch: u32, num_warps: u32, is_chained: bool) -> [u32; 3] {
    let (max_m, max_n) = (shape.m / mma.m, shape.n / mma.n);
    if is_chained {
        let m = num_warps.min(max_m);
        return [1, m, num_warps / m];
    }
    let splits = (0..=num_warps.min(batch).ilog2()).flat_map(|bits| {
        let each = num_warps >> bits;
        (0..=each.ilog2()).map(move |bit| [1 << bits, each >> bit, 1 << bit])
    });
    let cost = |[batches, m, n]: &[u32; 3]| {
        let copies = (m / max_m.min(*m)) * (n / max_n.min(*n));
        (copies, batch / batches * (shape.m.div_ceil(*m) + shape.n.div_ceil(*n)))
    };
    splits.min_by_key(cost).expect("there is a warp")
}

/// Returns the layouts of A and B in registers, and of the accumulator.
fn fragments(
    instruction: DotInstruction,
    types: &DotTypes,
    num_warps: u32,
    in_registers: [bool; 2],
) -> ([Option<Layout>; 2], Layout) {
    let shapes = [0, 1, 2].map(|operand: usize| &types.operands[operand].shape[..]);
    match instruction {
        DotInstruction::MmaSync { mma, warps } => in_fragments(mma, &warps, shapes, in_registers),
        DotInstruction::Wgmma { mma, warps } => in_fragments(mma, &warps, shapes, in_registers),
        DotInstruction::Tcgen05 { .. } => {
            let memory = TensorMemory::of_accumulator(&types.operands[2]);
            let layout = memory.and_then(|memory| memory.register_layout(num_warps));
            ([None, None], layout.expect("the selection checks the accumulator"))
        }
        DotInstruction::Fma => {
            let accumulator = scalar_accumulator(shapes[2], num_warps);
            let k = shapes[0][shapes[0].len() - 1];
            ([0, 1].map(|operand| Some(fma_operand_layout(&accumulator, operand, k))), accumulator)
        }
    }
}

fn in_fragments(
    mma: Mma,
    warps: &[u32],
    shapes: [&[u32]; 3],
    in_registers: [bool; 2],
) -> ([Option<Layout>; 2], Layout) {
    let layout = |operand: usize| {
        let kind = [Fragment::A, Fragment::B][operand];
        in_registers[operand].then(|| mma.layout(kind, shapes[operand], warps))
    };
    ([0, 1].map(layout), mma.layout(Fragment::Accumulator, shapes[2], warps))
}

/// Returns the layout of an accumulator of FMAs. A thread has up to 4 by 4 elements, so each
/// operand element that it loads serves several FMAs.
///
/// The lowest bit of the lane is along N, and the next bit along M. So each lane has the A of one of
/// its two neighbors and the B of the other, which [halves the wavefronts of loads][lanes]. CUTLASS
/// arranges the lanes of its SIMT dots in the same way (`RowMajorInterleaved<2>`).
///
/// [lanes]: tilewright_layout::shared_plan
fn scalar_accumulator(shape: &[u32], num_warps: u32) -> Layout {
    let rank = shape.len();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let per_thread = (m * n / (LANES * num_warps)).max(1);
    let side = |limit: u32| limit.min(4);
    let along_n = side(n).min(per_thread);
    let along_m = side(m).min(per_thread / along_n).max(1);
    let lanes_n = (n / along_n).clamp(1, 8);
    let lanes_m = LANES / lanes_n;
    let box_of = |m: u32, n: u32| {
        let mut sizes: SmallVec<[u32; 6]> = SmallVec::from_elem(1, rank);
        (sizes[rank - 2], sizes[rank - 1]) = (m, n);
        sizes
    };
    let left_m = (m / (along_m * lanes_m)).max(1);
    let warps_m = num_warps.min(left_m);
    let order: SmallVec<[usize; 6]> = (0..rank).rev().collect();
    let in_rows = blocked(
        shape,
        &box_of(along_m, along_n),
        &box_of(lanes_m, lanes_n),
        &box_of(warps_m, num_warps / warps_m),
        &order,
    );
    let mut lanes = in_rows.bases(Input::Lane).to_vec();
    lanes[1.min(lanes_n.ilog2() as usize)..=lanes_n.ilog2() as usize].rotate_right(1);
    in_rows.with_bases(Input::Lane, &lanes)
}

#[cfg(test)]
mod tests {
    use tilewright_layout::{bank_use, coalesced, shared_plan};

    use super::*;

    #[test]
    fn lanes_of_fmas_load_in_half_the_wavefronts() {
        for (m, n, warps) in [(16, 32, 1), (32, 32, 4), (64, 64, 4), (32, 128, 2), (128, 128, 8)] {
            let accumulator = scalar_accumulator(&[m, n], warps);
            for (operand, shape) in [[m, 32], [32, n]].into_iter().enumerate() {
                let loaded = fma_operand_layout(&accumulator, operand, 32);
                let stored = coalesced(&shape, &[1, 0], 4, LANES, warps);
                let plan = shared_plan(&stored, &loaded, 32).expect("a block has the tile");
                let used = bank_use(&plan.memory, &loaded, 32, u32::MAX);
                let elements = used.instructions * 4 / warps;
                assert_eq!(
                    (elements, used.wavefronts),
                    (loaded.registers(), 2 * used.instructions),
                    "{loaded}"
                );
            }
        }
    }
}
