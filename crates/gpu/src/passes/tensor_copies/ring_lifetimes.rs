//! Chooses the lifetimes of one-slot [rings](crate::passes::rings) in loops.
//!
//! A ring may live as long as the buffer that it replaced. Then an iteration can reuse the memory.
//! Or the ring lives around the outermost loop:
//!
//! ```text
//! for %k … {                                        %r = alloc : ring<1, …>
//!   %r = alloc : ring<1, …>                         for %k … {
//!   %e = acquire %r ; tensor_fill %e … ; publish      %e = acquire %r ; tensor_fill %e … ; publish
//!   %b = take %r ; … ; release %b              ──>    %b = take %r ; … ; release %b
//!   dealloc %r                                      }
//! }                                                 dealloc %r
//! ```
//! Each reuse in an iteration takes a barrier of the block. So a ring lives around the loops if
//! this costs little memory. If the loops prefetch into other rings, or share copies between
//! blocks, a barrier would stall the copies. Then the ring lives around the loops whenever the
//! memory suffices.
//!
//! If a ring has its buffer's lifetime, its fill may move down to the last `dealloc` before the
//! first use. It moves if the ring can then share that memory, and the kernel needs more than
//! `cheap_shared_bytes`. In addition, the target must lack memory, or the passed ops compute too
//! little to hide the copy.

use tilewright_ir as ir;
use tilewright_ir::{OpFamily, Operation, Parents, Value};

use super::{Block, Function, Header, Inst};
use crate::cost_model;
use crate::passes::allocation::least_bytes;
use crate::passes::pipelining::{MemoryOrder, memory_order};
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::{Buffer, GpuOp, Op, Type};

pub(super) fn choose(header: &Header, function: &mut Function, rings: &[(Inst, Inst)]) {
    let parents = Parents::new(function);
    let limit = u64::from(header.target.max_shared_bytes);
    let mut bytes = least_bytes(&header.layouts, function);
    let mut inner = Vec::new();
    for (alloc, end) in rings {
        let loops: Vec<Inst> = parents.enclosing(*alloc).collect();
        let Some(outermost) = loops.last().copied() else { continue };
        let original = function.blocks.clone();
        hoist(function, &parents, (*alloc, *end), outermost);
        let around = least_bytes(&header.layouts, function);
        let runs_ahead = header.cluster > 1 || loops.iter().any(|inst| copies_ahead(function, *inst));
        let most = if runs_ahead { limit } else { bytes.max(header.target.tuning.cheap_shared_bytes) };
        if around <= bytes || around <= most {
            bytes = around;
            continue;
        }
        function.blocks = original;
        inner.push(*alloc);
        let tile = function.ty(function.insts[*alloc].results[0]).as_memory().map(Buffer::tile);
        let subject = || remarks::subject(function, *alloc, tile.as_ref());
        remarks::about("tensor_copies", function, *alloc, subject, || {
            let reason = format!("with memory of its own, the kernel would need {around} bytes, not {bytes}");
            RemarkReason::done("its memory serves other tiles in the same iteration", reason)
        });
    }
    for alloc in inner {
        fill_late(header, function, &parents, alloc);
    }
}

/// Fills a ring after the last `dealloc` before its first use, if this saves memory.
///
/// The conditions are those of the module comment.
fn fill_late(header: &Header, function: &mut Function, parents: &Parents, alloc: Inst) {
    let limit = u64::from(header.target.max_shared_bytes);
    let before = least_bytes(&header.layouts, function);
    let is_much = before > header.target.tuning.cheap_shared_bytes;
    let Some(block) = parents.block(alloc).filter(|_| is_much) else { return };
    let ring = function.insts[alloc].results[0];
    let Some((first, fill)) = fill_of(function, block, ring) else { return };
    let end_of_fill = first + fill;
    let insts = function.blocks[block].insts.clone();
    let is_passed = |inst: &&Inst| {
        let data = &function.insts[**inst];
        let is_take = matches!(data.op, Op::Gpu(GpuOp::Take {})) && data.operands[0] == ring;
        let is_flow =
            matches!(data.op.info().family, OpFamily::Loop | OpFamily::Branch | OpFamily::Partitions);
        !is_take && !is_flow && matches!(memory_order(&data.op), MemoryOrder::None)
    };
    let passed = insts[end_of_fill..].iter().take_while(is_passed);
    let is_end = |inst: &Inst| matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Dealloc {}));
    let Some(last) = passed.copied().collect::<Vec<_>>().iter().rposition(is_end) else { return };
    let passed = &insts[end_of_fill..=end_of_fill + last];
    let computed = passed.iter().filter(|inst| computes(function, **inst)).count();
    if before <= limit && cost_model::hides_copies(computed as u32, header.target.tuning) {
        return;
    }
    function.blocks[block].insts[first..=end_of_fill + last].rotate_left(fill);
    if least_bytes(&header.layouts, function) >= before {
        function.blocks[block].insts = insts;
    }
}

/// Returns the index of a ring's `alloc`, and the instructions up to the next `publish`.
fn fill_of(function: &Function, block: Block, ring: Value) -> Option<(usize, usize)> {
    let insts = &function.blocks[block].insts;
    let first = insts.iter().position(|inst| function.insts[*inst].results.first() == Some(&ring))?;
    let is_end = |inst: &Inst| matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Publish {}));
    Some((first, insts[first..].iter().position(is_end)? + 1))
}

/// Returns whether an instruction computes a tile of floats in threads. Elementwise ops, reductions
/// and synchronous dots do.
fn computes(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    let is_float = |value: &Value| {
        let tile = function.ty(*value).as_registers().filter(|tile| !tile.is_scalar());
        tile.and_then(ir::Type::dtype).is_some_and(ir::Dtype::is_float)
    };
    let is_work = matches!(data.op.info().family, OpFamily::Pointwise | OpFamily::Reduction | OpFamily::Dot);
    is_work && data.results.iter().any(is_float)
}

/// Returns whether a loop fills a ring of several slots, and so may copy ahead.
fn copies_ahead(function: &Function, inst: Inst) -> bool {
    let mut found = false;
    for region in &function.insts[inst].regions {
        function.walk(*region, &mut |inner| {
            let data = &function.insts[inner];
            found |= matches!(data.op, Op::Gpu(GpuOp::Acquire {}))
                && matches!(function.ty(data.operands[0]), Type::Ring(ring) if ring.slots > 1);
        });
    }
    found
}

/// Moves a ring's `alloc` before an entry loop, and its `dealloc` after it.
fn hoist(function: &mut Function, parents: &Parents, (alloc, end): (Inst, Inst), outermost: Inst) {
    for inst in [alloc, end] {
        let block = parents.block(inst).expect("an instruction is in a block");
        function.blocks[block].insts.retain(|other| *other != inst);
    }
    let insts = &mut function.blocks[function.entry].insts;
    let place = insts.iter().position(|inst| *inst == outermost).expect("the outermost loop is in the entry");
    insts.splice(place..=place, [alloc, outermost, end]);
}
