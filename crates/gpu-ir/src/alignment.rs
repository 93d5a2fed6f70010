//! The alignment of shared memory: what the address of each slot has to be a multiple of. This is the only place that says so;
//! allocation places buffers by it, and the verifier holds the places against it.
//!
//! | what uses the slot | the address is a multiple of |
//! |---|---|
//! | threads | the widest access of a thread, 16 bytes, or a smaller slot |
//! | tensor copies | 128 bytes, or the eight rows over which the swizzle of the box repeats ([`BoxLayout::alignment`]) |
//! | `wgmma` | 16 bytes, or the bytes over which the swizzle of the operand repeats |
//! | `make_tensor_map` | the size of a tensor map, 128 bytes |
//! | `mbarrier`s | their size, 8 bytes |
//!
//! The hardware swizzles by bits of the address. A slot of a box that has fewer than eight rows is smaller than the pattern, and has
//! to begin where the pattern does nevertheless.

use cranelift_entity::SecondaryMap;
use tilewright_ir::{Inst, Operation, Value};
use tilewright_layout::Layout;

use super::{Function, GpuOp, Layouts, Op, TENSOR_MAP_BYTES, Type};
use crate::analysis::dataflow::Check;
use crate::analysis::slots::Names;
use crate::box_layout::BoxLayout;
use crate::layout_rules::element_bits;
use crate::target::ACCESS_BYTES;

/// The bytes of an `mbarrier`, and their alignment.
pub const MBARRIER_BYTES: u32 = 8;

/// The alignments that a function needs.
pub struct Alignments {
    /// By the `alloc`: the alignment of each slot, and the instruction that needs it, if it is a certain one.
    needs: SecondaryMap<Inst, (u32, Option<Inst>)>,
}

impl Alignments {
    /// Of all memory that a function allocates.
    pub fn new(layouts: &Layouts, names: &Names<'_>) -> Self {
        let function = names.function;
        let mut needs: SecondaryMap<Inst, (u32, Option<Inst>)> = SecondaryMap::new();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if matches!(data.op, Op::Gpu(GpuOp::Alloc { .. })) {
                needs[inst] = (of_threads(function.ty(data.results[0])), None);
            }
            for value in &data.operands {
                let Some(need) = of_operand(layouts, function, inst, *value) else { continue };
                let alloc = names.root(*value).and_then(|root| function.defining_inst(root));
                if let Some(alloc) = alloc
                    && needs[alloc].0 < need
                {
                    needs[alloc] = (need, Some(inst));
                }
            }
        });
        Self { needs }
    }

    /// What the addresses of the slots that an `alloc` makes have to be a multiple of.
    pub fn of(&self, alloc: Inst) -> u32 {
        self.needs[alloc].0
    }
}

/// Checks that slots are aligned as their uses need it: where memory is placed, and between the slots of a buffer.
pub fn check(layouts: &Layouts, names: &Names<'_>) -> Check {
    let function = names.function;
    let needs = Alignments::new(layouts, names).needs;
    let mut found = Ok(());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let Op::Gpu(GpuOp::Alloc { offset }) = data.op else { return };
        let (need, by) = needs[inst];
        let memory = data.results[0];
        let apart = match function.ty(memory) {
            Type::Buffer(buffer) | Type::Ring(buffer) if buffer.slots > 1 => buffer.slot_bytes(),
            _ => 0,
        };
        let wrong = match offset.0.filter(|offset| !offset.is_multiple_of(need)) {
            Some(offset) => format!("it is placed at byte {offset}"),
            None if !apart.is_multiple_of(need) => format!("its slots are {apart} bytes apart"),
            None => return,
        };
        let who = by.map_or("alloc", |by| function.insts[by].op.name());
        found = Err(format!("{who} needs {} at a multiple of {need} bytes, and {wrong}", names.text(memory)));
    });
    found
}

/// What the accesses of threads need of memory.
fn of_threads(memory: &Type) -> u32 {
    match memory {
        Type::Buffer(buffer) | Type::Ring(buffer) => buffer.slot_bytes().clamp(1, ACCESS_BYTES),
        Type::Mbarrier { .. } => MBARRIER_BYTES,
        Type::Registers { .. } | Type::Empty(_) | Type::Full(_) | Type::Pending { .. } => 1,
    }
}

/// What an instruction needs of the slot that one of its operands is, if that is more than its threads do.
fn of_operand(layouts: &Layouts, function: &Function, inst: Inst, operand: Value) -> Option<u32> {
    let Op::Gpu(op) = &function.insts[inst].op else { return None };
    let memory = function.ty(operand).as_memory()?;
    let (layout, bits) = (layouts.get(memory.layout), element_bits(&memory.tile()));
    match op {
        GpuOp::TensorLoad {} | GpuOp::TensorFill {} | GpuOp::TensorStore {} | GpuOp::TensorReduce { .. } => {
            BoxLayout::of(layout, bits).map(|boxes| boxes.alignment)
        }
        GpuOp::Wgmma { .. } => Some(pattern_bytes(layout, bits / 8).max(ACCESS_BYTES)),
        GpuOp::MakeTensorMap { .. } => Some(TENSOR_MAP_BYTES),
        // tidy: wildcard because threads alone touch the memory of all others
        _ => None,
    }
}

/// The bytes over which the swizzle of a matrix repeats, which has all lines of the pattern: the most significant bit of an address
/// that changes less significant ones is the last of them. 1 where no bit does.
fn pattern_bytes(memory: &Layout, element_bytes: u32) -> u32 {
    let Some(places) = memory.inverse() else { return 1 };
    let swizzled = places.columns().iter().filter(|place| place.count_ones() > 1);
    swizzled.map(|place| (2 * element_bytes) << place.ilog2()).max().unwrap_or(1)
}
