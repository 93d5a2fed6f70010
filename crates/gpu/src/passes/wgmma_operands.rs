//! Stores `wgmma` operands to shared memory, in layouts that descriptors express.
//!
//! An operand is stored before the first dot that reads it. One store serves all dots that read the
//! operand or its transpose, because a descriptor states the order of axes.
//!
//! Operand A stays in registers if it has the fragment layout of the instruction. If threads'
//! vectors run along another axis than the rows in memory, each thread transposes a block in
//! registers. It then stores 16 bytes at a time, not single elements.

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Inst, OpFamily, Operation, Value};
use tilewright_layout::{Fragment, Input, Layout, Mma, SwizzleMode, blocked, swizzled};

use super::boxed::{contiguous_axis, transposed};
use super::conversions::Pass;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::layout_rules::{LANES, element_bits};
use tilewright_gpu_ir::target::{ACCESS_BYTES, Feature};
use tilewright_gpu_ir::{Function, GpuOp, Header, MmaShape, Op};

/// The minimum bytes of an efficient access to shared memory.
const MIN_ACCESS_BYTES: u32 = 4;
/// The element width for which M or N may be contiguous in shared memory. Other widths need a
/// contiguous K axis.
const TRANSPOSABLE_BITS: u32 = 16;
/// The minimum number of bytes of a row with a swizzle.
const MIN_ROW_BYTES: u32 = 32;
/// The maximum number of bytes of a row with a swizzle.
const MAX_ROW_BYTES: u32 = 128;

/// A value for shared memory, contiguous along `axis` in rows of `row` elements.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Operand {
    value: Value,
    axis: usize,
    row: u32,
}

impl Operand {
    /// Returns the operand before its transposes. Returns `None` unless another dot reads it with
    /// other transposes.
    fn shared(self, function: &Function, all: &[(Inst, usize, Self)]) -> Option<Self> {
        let (value, axes) = transposed(function, self.value)?;
        let root = Self { value, axis: axes[self.axis], row: self.row };
        let is_other =
            |other: &Self| other.value != self.value && other.is_transpose_of(function, &root).is_some();
        all.iter().any(|(_, _, other)| is_other(other)).then_some(root)
    }

    /// Returns true for the transpose of `memory`, and false for the same tile. Returns `None` for
    /// other tiles, and if the contiguous axes of the source differ.
    fn is_transpose_of(&self, function: &Function, memory: &Self) -> Option<bool> {
        let (value, axes) = transposed(function, self.value)?;
        (value == memory.value && axes[self.axis] == memory.axis).then(|| !axes.is_sorted())
    }
}

pub struct Staged {
    /// The operands to store before each instruction.
    before: SecondaryMap<Inst, SmallVec<[Operand; 2]>>,
    /// The stored A and B of each dot, and whether the dot reads the transpose.
    operands: SecondaryMap<Inst, [Option<(Operand, bool)>; 2]>,
    /// The buffers of the operands that are already stored.
    buffers: Vec<(Operand, Value)>,
}

impl Staged {
    pub fn new(header: &Header, function: &Function) -> Self {
        let analysis = SlotAnalysis::new(function, false);
        let mut staged =
            Self { before: SecondaryMap::new(), operands: SecondaryMap::new(), buffers: Vec::new() };
        let mut found: Vec<(Inst, usize, Operand)> = Vec::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let Op::Gpu(GpuOp::Wgmma { instruction, warps, .. }) = &data.op else { return };
            let warps = [warps[0] as u32, warps[1] as u32];
            for place in 0..2 {
                let value = data.operands[place];
                let Some(operand) = operand(header, function, (value, place), *instruction, warps) else {
                    continue;
                };
                found.push((inst, place, operand));
            }
        });
        let shared: Vec<Operand> =
            found.iter().filter_map(|(_, _, operand)| operand.shared(function, &found)).collect();
        let mut seen: Vec<Operand> = Vec::new();
        for (inst, place, own) in found {
            let of_same = |other: &&Operand| own.is_transpose_of(function, other).is_some();
            let operand = shared.iter().filter(of_same).min_by_key(|other| other.row).copied().unwrap_or(own);
            let is_transposed = own.is_transpose_of(function, &operand).unwrap_or(false);
            staged.operands[inst][place] = Some((operand, is_transposed));
            if !seen.contains(&operand) {
                seen.push(operand);
                staged.before[beside(&analysis, operand.value, inst)].push(operand);
            }
        }
        staged
    }

    /// Returns whether dots read transposes of stored operands.
    pub fn has_transposes(&self) -> bool {
        self.operands.values().flatten().flatten().any(|(_, is_transposed)| *is_transposed)
    }
}

/// Returns operand A (0) or B (1), with its contiguous axis and row length.
///
/// Returns `None` if the dot reads it from registers, or if it is already in memory.
fn operand(
    header: &Header,
    function: &Function,
    (value, place): (Value, usize),
    shape: MmaShape,
    warps: [u32; 2],
) -> Option<Operand> {
    let ty = function.ty(value);
    let tile = ty.as_registers()?;
    let layout = header.layouts.get(ty.layout()?);
    let bits = element_bits(tile);
    let mma = Mma::new(shape.m, shape.n, shape.k, bits);
    let takes_registers = place == 0 && header.target.features.has(Feature::Wgmma);
    if takes_registers && mma.layout(Fragment::A, &tile.shape, warps) == *layout {
        return None;
    }
    let (k_axis, mn_axis) = (1 - place, place);
    // The contiguous axis, in this order of preference: that of a box, that of the threads' widest
    // vectors, that of neighboring lanes.
    let is_mn_contiguous = match contiguous_axis(header, function, value) {
        Some(axis) => axis == mn_axis,
        None => match [mn_axis, k_axis].map(|axis| layout.vector_along(axis).width()) {
            [1, 1] => is_along(layout, mn_axis),
            [mn, k] => mn > k,
        },
    };
    let row = |extent: u32| extent.min(MAX_ROW_BYTES * 8 / bits);
    let mn_row = row([shape.m, shape.n][place]);
    let is_mn_major = bits == TRANSPOSABLE_BITS && is_mn_contiguous && mn_row * bits >= MIN_ROW_BYTES * 8;
    Some(if is_mn_major {
        Operand { value, axis: mn_axis, row: mn_row }
    } else {
        Operand { value, axis: k_axis, row: row(tile.shape[k_axis]) }
    })
}

fn is_along(layout: &Layout, axis: usize) -> bool {
    layout.bases(Input::Lane).first().is_some_and(|first| *first == 1 << layout.output().shift(axis))
}

/// Returns the instruction around `user` in the block that defines `value`.
fn beside(analysis: &SlotAnalysis<'_>, value: Value, user: Inst) -> Inst {
    analysis.ancestor_in(analysis.block_of(value), user).expect("a definition dominates its uses")
}

impl Pass<'_> {
    /// Stores the operands that an instruction or its regions read first. Returns the new buffers.
    pub(super) fn stage_operands(&mut self, inst: Inst, block: Block) -> SmallVec<[Value; 2]> {
        let mut made = smallvec![];
        for operand in std::mem::take(&mut self.staged.before[inst]) {
            self.goes_through_memory(inst);
            let memory = self.operand_memory(operand);
            let value = match self.transposing_layout(operand) {
                Some(layout) => {
                    let layout = self.header.layouts.add(layout);
                    self.converted(operand.value, layout, block)
                }
                None => operand.value,
            };
            let buffer = self.store(value, &memory);
            self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            self.staged.buffers.push((operand, buffer));
            made.push(buffer);
        }
        for (place, operand) in self.staged.operands[inst].into_iter().enumerate() {
            let Some((operand, is_transposed)) = operand else { continue };
            let buffer = self.staged.buffers.iter().find(|(other, _)| *other == operand);
            let (_, buffer) = buffer.expect("an operand is stored before the dot");
            let data = &mut self.cursor.function.insts[inst];
            data.operands[place] = *buffer;
            if let Op::Gpu(GpuOp::Wgmma { transposed_a, transposed_b, .. }) = &mut data.op {
                *[transposed_a, transposed_b][place] = is_transposed;
            }
        }
        made
    }

    /// Returns the layout in which threads transpose an operand. Returns `None` if threads store
    /// whole words without it.
    ///
    /// A thread has 16 bytes along the axis of the memory, and one word along the other axis
    /// (`across` elements). Example: 8 by 2 elements of fp16. Lanes that store together access
    /// different banks, because the swizzle puts consecutive rows in different chunks. Neighboring
    /// lanes along the other axis are `across` rows apart. Along the axis of the memory, `across`
    /// lanes use the other chunks.
    ///
    /// A tensor copy writes a box that is contiguous along the axis, so the box needs no such
    /// layout.
    fn transposing_layout(&self, Operand { value, axis, .. }: Operand) -> Option<Layout> {
        if contiguous_axis(self.header, self.cursor.function, value) == Some(axis) {
            return None;
        }
        let tile = self.cursor.function.ty(value).as_registers()?;
        let (layout, bits, other) = (self.layout(value), element_bits(tile), 1 - axis);
        let bytes = (bits / 8).max(1);
        let along = layout.vector_along(axis).width();
        if along * bytes >= MIN_ACCESS_BYTES.max(2 * bytes) || layout.vector_along(other).width() <= along {
            return None;
        }
        let (extents, warps) = (&tile.shape, self.warps());
        let per_thread = (extents[0] * extents[1] / (LANES * warps)).max(1);
        let across = (MIN_ACCESS_BYTES / bytes).clamp(1, extents[other].min(per_thread));
        let run = (ACCESS_BYTES / bytes).min(extents[axis]).min(per_thread / across).max(1);
        let lanes = across.min(extents[axis] / run);
        let warps_across = warps.min((extents[other] / (across * (LANES / lanes))).max(1));
        let sizes = |along: u32, across: u32| if axis == 0 { [along, across] } else { [across, along] };
        Some(blocked(
            extents,
            &sizes(run, across),
            &sizes(lanes, LANES / lanes),
            &sizes(warps / warps_across, warps_across),
            &[axis, other],
        ))
    }

    fn operand_memory(&self, Operand { value, axis, row }: Operand) -> Layout {
        let tile =
            self.cursor.function.ty(value).as_registers().expect("an operand that is stored is in registers");
        let bits = element_bits(tile);
        let mode = SwizzleMode::widest(row * bits / 8);
        swizzled(&tile.shape, &[axis, 1 - axis], bits, mode)
    }
}

/// Removes each fence that another fence follows before the first is needed.
pub fn without_repeated_fences(function: &Function, insts: Vec<Inst>) -> Vec<Inst> {
    let mut kept: Vec<Inst> = Vec::with_capacity(insts.len());
    let mut fence = None;
    for inst in insts {
        let data = &function.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::FenceProxy {})) {
            if let Some(index) = fence {
                kept.remove(index);
            }
            fence = Some(kept.len());
        } else if needs_fence(data.op.info().family, &data.op) {
            fence = None;
        }
        kept.push(inst);
    }
    kept
}

/// Returns whether an instruction, or other threads after it, may need a fence before it.
fn needs_fence(family: OpFamily, op: &Op) -> bool {
    match family {
        OpFamily::Barrier | OpFamily::Dot | OpFamily::Loop | OpFamily::Branch | OpFamily::Partitions => true,
        OpFamily::Memory => !matches!(op, Op::Gpu(GpuOp::Alloc { .. } | GpuOp::LocalStore {})),
        // tidy: wildcard because the others do nothing to shared memory
        _ => false,
    }
}
