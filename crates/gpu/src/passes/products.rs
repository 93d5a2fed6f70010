//! Asynchronous products of one block run beside each other and beside what the threads compute: one that begins at zero is
//! begun as soon as its operands are there, and all are waited for where their results are needed.
//!
//! ```text
//! %p = wgmma %a, %b, 0 ; %s = wgmma_wait %p ; %e = exp2 %s ; %q = wgmma %c, %d, 0 ; %t = wgmma_wait %q ; %u = mul %e, %t
//! %p = wgmma %a, %b, 0 ; %q = wgmma %c, %d, 0 ; %s = wgmma_wait %p ; %e = exp2 %s ; %t = wgmma_wait %q ; %u = mul %e, %t
//! ```
//! So the tensor cores are busy while the threads compute the exponentials (Shah et al., arXiv 2407.08608). Nothing moves over
//! what writes or orders memory.
//!
//! Slots that several products read are given back together, at the end of the iteration, so that their rings have one barrier
//! ([`super::rings`]); with several warpgroups products are waited for as late. A line of numbers that threads read from a slot is
//! read before the products that stand before its use: shared memory is slow to answer while they read their operands from it.

use tilewright_ir as ir;
use tilewright_ir::{Dtype, Effect, Inst, OpFamily, Operation, Value};

use tilewright_gpu_ir::target::WARPGROUP_WARPS;
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Module, Op, Type};

/// Moves the products of the kernel and the waits for them.
pub fn overlap_products(module: &mut Module) {
    let entry = module.entry;
    // Several warpgroups are kept in step by the barriers of the block, and would all compute at one time; one leaves the tensor
    // cores to other blocks, and an accumulator that is there for longer may cost it those.
    let begins_early = module.header.num_warps > WARPGROUP_WARPS;
    let function = &mut module.functions[entry];
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            blocks.extend(&function.insts[*inst].regions);
        }
        let mut insts = std::mem::take(&mut function.blocks[block].insts);
        // What a wait comes behind was chosen where products run beside another iteration.
        let is_chosen = |inst: &Inst| is_wait(function, *inst) && function.insts[*inst].operands.len() > 1;
        if !insts.iter().any(is_chosen) {
            // One warpgroup has the registers free again early that a product reads.
            if begins_early {
                release_last(function, &mut insts);
            }
            wait_late(function, &mut insts);
            if !begins_early {
                release_last(function, &mut insts);
            }
            if begins_early {
                begin_early(function, &mut insts);
                wait_behind(function, &insts);
            }
            read_lines_early(function, &mut insts);
            for inst in &insts {
                if let Op::Gpu(GpuOp::WgmmaWait { pending }) = &mut function.insts[*inst].op {
                    // What may be under way behind it is counted with the rings.
                    *pending = Deferred(None);
                }
            }
        }
        function.blocks[block].insts = insts;
    }
}

/// Slots that several products of an iteration read are given back at its end, in the order in which they were taken: products
/// are waited for as late as that, and rings that advance together have their barriers in common. Only a ring that iterations go
/// on with: what a block takes of its own rings is given back before they end.
fn release_last(function: &Function, insts: &mut Vec<Inst>) {
    let is_own = |ring: Value| function.defining_inst(ring).is_some_and(|alloc| insts.contains(&alloc));
    let taken = |inst: &Inst| {
        let data = &function.insts[*inst];
        matches!(data.op, Op::Gpu(GpuOp::Take {})) && !is_own(data.operands[0])
    };
    let slots: Vec<Value> =
        insts.iter().copied().filter(taken).map(|inst| function.insts[inst].results[0]).collect();
    let place = |inst: &Inst| {
        let slot = function.insts[*inst].operands.first().filter(|_| is_release(function, *inst))?;
        slots.iter().position(|other| other == slot)
    };
    let first = insts.iter().position(|inst| place(inst).is_some());
    let last_wait = insts.iter().rposition(|inst| is_wait(function, *inst));
    if first.is_none_or(|first| last_wait.is_none_or(|wait| wait < first)) {
        return;
    }
    let mut released: Vec<Inst> = insts.iter().copied().filter(|inst| place(inst).is_some()).collect();
    released.sort_by_key(place);
    insts.retain(|inst| place(inst).is_none());
    let end = insts.len() - 1;
    insts.splice(end..end, released);
}

/// A wait does not come behind the release of a slot: registers that a product reads are free again that early.
fn wait_late(function: &Function, insts: &mut [Inst]) {
    // The last ones first: those before them do not come to stand in their way.
    for place in (0..insts.len()).rev() {
        if is_wait(function, insts[place]) {
            let is_passed =
                |next: &&Inst| !is_release(function, **next) && may_pass(function, insts[place], **next);
            let passed = insts[place + 1..].iter().take_while(is_passed).count();
            insts[place..=place + passed].rotate_left(1);
        }
    }
}

fn begin_early(function: &Function, insts: &mut [Inst]) {
    for place in 0..insts.len() {
        if is_product(function, insts[place])
            && is_constant(function, function.insts[insts[place]].operands[2])
        {
            let begins = |inst: Inst| {
                is_product(function, inst) && is_constant(function, function.insts[inst].operands[2])
            };
            let is_passed = |before: &&Inst| !begins(**before) && may_pass(function, **before, insts[place]);
            let passed = insts[..place].iter().rev().take_while(is_passed).count();
            insts[place - passed..=place].rotate_right(1);
        }
    }
}

/// What threads read of a slot in lines is read before the products that are begun before they need it: with the products at
/// work, shared memory takes long to answer.
fn read_lines_early(function: &Function, insts: &mut [Inst]) {
    for place in 0..insts.len() {
        let data = &function.insts[insts[place]];
        let is_line = |slot: &Buffer| slot.shape.iter().filter(|extent| **extent > 1).count() == 1;
        let is_read = matches!(data.op, Op::Gpu(GpuOp::LocalLoad { matrix: false }))
            && matches!(function.ty(data.operands[0]), Type::Full(slot) if is_line(slot));
        if !is_read {
            continue;
        }
        let is_passed = |before: &&Inst| {
            let other = &function.insts[**before];
            let is_needed = other.results.iter().any(|result| data.operands.contains(result));
            let is_tile = other.results.iter().any(|result| is_computed(function, *result));
            let is_own = is_product(function, **before) || fills(function, **before);
            !is_needed && (is_own || other.op.info().effect == Effect::Pure && !is_tile)
        };
        let passed = insts[..place].iter().rev().take_while(is_passed).count();
        insts[place - passed..=place].rotate_right(1);
    }
}

/// A wait comes behind what the threads compute beside its product: the assembler would move it up to the product otherwise.
fn wait_behind(function: &mut Function, insts: &[Inst]) {
    for (place, wait) in
        insts.iter().enumerate().filter(|(_, inst)| is_wait(function, **inst)).collect::<Vec<_>>()
    {
        let beside = insts[..place].iter().rev().take_while(|inst| !is_product(function, **inst));
        let tiles = beside.flat_map(|inst| &function.insts[*inst].results);
        if let Some(tile) = tiles.copied().find(|value| is_computed(function, *value)) {
            function.insts[*wait].operands.push(tile);
        }
    }
}

/// Whether a value is a tile of fp32 that threads compute.
fn is_computed(function: &Function, value: Value) -> bool {
    let is_pointwise = |op: &Op| op.info().family == OpFamily::Pointwise;
    let tile = function.ty(value).as_registers().filter(|tile| !tile.is_scalar());
    tile.and_then(ir::Type::dtype) == Some(Dtype::F32)
        && function.defining_op(value).is_some_and(is_pointwise)
}

fn is_product(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::Wgmma { .. }))
}

fn is_wait(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::WgmmaWait { .. }))
}

fn is_release(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::Release {}))
}

/// Whether an instruction fills a slot of a ring, which nobody reads who has not taken it.
fn fills(function: &Function, inst: Inst) -> bool {
    matches!(
        function.insts[inst].op,
        Op::Gpu(GpuOp::Acquire {} | GpuOp::TensorFill {} | GpuOp::CopyAsync { .. } | GpuOp::Publish {})
    )
}

/// Whether an accumulator is a tile of one constant.
fn is_constant(function: &Function, acc: Value) -> bool {
    let Some(inst) = function.defining_inst(acc) else { return false };
    match function.insts[inst].op.as_tile() {
        Some(ir::Op::Constant { .. }) => true,
        Some(ir::Op::Splat { .. }) => is_constant(function, function.insts[inst].operands[0]),
        // tidy: wildcard because other accumulators are computed
        _ => false,
    }
}

/// Whether two instructions that follow each other, one of them a product, a wait for one or a release, may change places.
fn may_pass(function: &Function, first: Inst, second: Inst) -> bool {
    let is_used = |value: &Value| function.insts[second].operands.contains(value);
    let may_move = |inst: Inst| {
        let is_own = is_product(function, inst) || is_wait(function, inst) || is_release(function, inst);
        is_own || matches!(function.insts[inst].op.info().effect, Effect::Pure | Effect::Read)
    };
    // A product may read a slot until it is waited for.
    let is_read = is_release(function, second) && reads(function, first, function.insts[second].operands[0]);
    may_move(first) && may_move(second) && !is_read && !function.insts[first].results.iter().any(is_used)
}

/// Whether a product, or what a wait is for, reads a slot.
fn reads(function: &Function, inst: Inst, slot: Value) -> bool {
    let data = &function.insts[inst];
    let before = match &data.op {
        Op::Gpu(GpuOp::WgmmaWait { .. }) => data.operands[0],
        Op::Gpu(GpuOp::Wgmma { .. }) => data.operands[2],
        // tidy: wildcard because no other op waits for a product
        _ => return data.operands.contains(&slot),
    };
    let is_under_way = matches!(function.ty(before), Type::Pending { .. });
    let product = function.defining_inst(before).filter(|_| is_under_way);
    let in_before = match product {
        Some(product) => reads(function, product, slot),
        // Nothing is known of one that a loop carries.
        None => is_under_way,
    };
    in_before || (is_product(function, inst) && data.operands[..2].contains(&slot))
}
