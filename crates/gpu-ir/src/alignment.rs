//! Computes the alignment of each slot of shared memory.
//!
//! | user of the slot | the address is a multiple of |
//! |---|---|
//! | threads | 16 bytes (the widest access of a thread), or the size of the slot if it is smaller |
//! | tensor copies | 128 bytes without a swizzle, else the size of the eight rows after which the swizzle of the box repeats ([`BoxLayout::alignment`]) |
//! | `wgmma`, `tcgen05_mma` | the larger of 16 bytes and the period of the operand's swizzle |
//! | `make_tensor_map` | the size of a tensor map, 128 bytes |
//! | `clc_try_cancel`, `clc_load_result` | the size of the response, 16 bytes |
//! | `mbarrier`s | their size, 8 bytes |
//!
//! The hardware computes the swizzle from address bits. So even a box with fewer than eight rows
//! begins at a multiple of the swizzle's period.

use cranelift_entity::SecondaryMap;
use tilewright_ir::{Inst, Operation, Value};
use tilewright_layout::Layout;

use super::{Function, GpuOp, Layouts, Op, TENSOR_MAP_BYTES, Type};
use crate::analysis::dataflow::Check;
use crate::analysis::slots::{BaseOffset, SlotAnalysis, SlotIndex};
use crate::box_layout::BoxLayout;
use crate::layout_rules::element_bits;
use crate::target::{ACCESS_BYTES, CLC_RESPONSE_BYTES};

/// The size of an `mbarrier`, which is also its alignment, in bytes.
pub const MBARRIER_BYTES: u32 = 8;

/// The alignment of each buffer of a function.
pub struct Alignments {
    /// The alignment of each `alloc`'s slots, and the instruction that needs it. The instruction is
    /// `None` if only threads access the memory.
    needs: SecondaryMap<Inst, (u32, Option<Inst>)>,
}

impl Alignments {
    /// Computes the alignments of all buffers of a function.
    pub fn new(layouts: &Layouts, analysis: &SlotAnalysis<'_>) -> Self {
        let function = analysis.function;
        let mut needs: SecondaryMap<Inst, (u32, Option<Inst>)> = SecondaryMap::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::Alloc { .. })) {
                needs[inst] = (of_threads(function.ty(data.results[0])), None);
            }
            for value in &data.operands {
                let Some(need) = of_operand(layouts, function, inst, *value) else { continue };
                let alloc = analysis.alloc(*value).and_then(|root| function.defining_inst(root));
                if let Some(alloc) = alloc
                    && needs[alloc].0 < need
                {
                    needs[alloc] = (need, Some(inst));
                }
            }
        });
        Self { needs }
    }

    /// Returns the alignment of the slots of an `alloc`.
    pub fn of(&self, alloc: Inst) -> u32 {
        self.needs[alloc].0
    }
}

/// Checks the offset of each buffer, and the distance of its slots, against the alignment.
pub fn check(layouts: &Layouts, analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let needs = Alignments::new(layouts, analysis).needs;
    let mut found = Ok(());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if found.is_err() {
            return;
        }
        for value in &data.operands {
            let Some(need) = of_operand(layouts, function, inst, *value) else { continue };
            let Some(distance) = misaligned_slots(analysis, *value, need) else { continue };
            let text = analysis.root(*value).unwrap_or(*value);
            analysis.blame(inst);
            found = Err(format!(
                "{} needs {} at a multiple of {need} bytes, and its slots are {distance} bytes apart",
                data.op.name(),
                analysis.text(text)
            ));
            return;
        }
        let Op::Gpu(GpuOp::Alloc { offset }) = data.op else { return };
        let (need, by) = needs[inst];
        let Some(offset) = offset.0.filter(|offset| !offset.is_multiple_of(need)) else { return };
        let user = by.map_or("alloc", |by| function.insts[by].op.name());
        analysis.blame(by.unwrap_or(inst));
        found = Err(format!(
            "{user} needs {} at a multiple of {need} bytes, and it is placed at byte {offset}",
            analysis.text(data.results[0])
        ));
    });
    found
}

/// Returns the distance between slots in bytes, if slot `operand` may be misaligned. Its address
/// must be a multiple of `need` bytes.
fn misaligned_slots(analysis: &SlotAnalysis<'_>, operand: Value, need: u32) -> Option<u32> {
    let root = analysis.root(operand)?;
    let (Type::Buffer(buffer) | Type::Ring(buffer)) = analysis.function.ty(root) else { return None };
    let distance = buffer.slot_bytes();
    if buffer.slots == 1 || distance.is_multiple_of(need) {
        return None;
    }
    let index = match analysis.slot(operand)?.index {
        SlotIndex::At(BaseOffset { base: None, offset }) => Some(offset),
        SlotIndex::At(_) | SlotIndex::Lost => None,
    };
    let is_multiple = index.is_some_and(|index| (index * i64::from(distance)) % i64::from(need) == 0);
    (!is_multiple).then_some(distance)
}

/// Returns the alignment that accesses by threads need.
fn of_threads(memory: &Type) -> u32 {
    match memory {
        Type::Buffer(buffer) | Type::Ring(buffer) => buffer.slot_bytes().clamp(1, ACCESS_BYTES),
        Type::Mbarrier { .. } => MBARRIER_BYTES,
        Type::Registers { .. }
        | Type::Empty(_)
        | Type::Full(_)
        | Type::Pending { .. }
        | Type::TensorMemory(_) => 1,
    }
}

/// Returns the alignment that an instruction needs of an operand in shared memory. Returns `None`
/// if threads access the operand, or if a tensor copy cannot move its layout.
fn of_operand(layouts: &Layouts, function: &Function, inst: Inst, operand: Value) -> Option<u32> {
    let Op::Gpu(op) = &function.insts[inst].op else { return None };
    let memory = function.ty(operand).as_memory()?;
    let (layout, bits) = (layouts.get(memory.layout), element_bits(&memory.tile()));
    match op {
        GpuOp::TensorLoad {}
        | GpuOp::TensorLoadTo { .. }
        | GpuOp::TensorFill {}
        | GpuOp::TensorStore {}
        | GpuOp::TensorReduce { .. } => BoxLayout::of(layout, bits).map(|boxes| boxes.alignment),
        GpuOp::Wgmma { .. }
        | GpuOp::Tcgen05Mma { .. }
        | GpuOp::Tcgen05MmaScaled { .. }
        | GpuOp::Tcgen05Copy {} => {
            // The padding of elements of 4 bits doubles the distances.
            let padding = if memory.padding.is_none() { 1 } else { 2 };
            Some((padding * pattern_bytes(layout, bits / 8)).max(ACCESS_BYTES))
        }
        GpuOp::MakeTensorMap { .. } => Some(TENSOR_MAP_BYTES),
        GpuOp::ClcTryCancel { .. } | GpuOp::ClcLoadResult { .. } => Some(CLC_RESPONSE_BYTES),
        // tidy: wildcard because only threads access the memory of other ops
        _ => None,
    }
}

/// Returns the period of a swizzle in bytes, or 1 without a swizzle.
///
/// The swizzle XORs address bits to lower ones. The period is twice the value of the highest of
/// these bits.
fn pattern_bytes(memory: &Layout, element_bytes: u32) -> u32 {
    let Some(offsets) = memory.inverse() else { return 1 };
    let swizzled = offsets.columns().iter().filter(|offset| offset.count_ones() > 1);
    swizzled.map(|offset| (2 * element_bytes) << offset.ilog2()).max().unwrap_or(1)
}
