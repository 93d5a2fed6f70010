//! Asynchronous products of one block run beside each other and beside what the threads compute: each is waited for where its
//! result is needed.
//!
//! ```text
//! %p = wgmma %a, %b, %x ; %s = finish %p ; %q = wgmma %c, %d, %y ; %t = finish %q ; %u = exp2 %t ; yield %s, %u
//! %p = wgmma %a, %b, %x ; %q = wgmma %c, %d, %y ; %t = finish %q ; %u = exp2 %t ; %s = finish %p ; yield %s, %u
//! ```
//! No wait moves over what writes or orders memory. Products do not move: one that begins earlier takes the registers of its
//! accumulator for longer.

use tilewright_ir::{Block, Effect, Inst, Operation, Value};

use crate::language::{Function, GpuOp, Module, Op};

/// Moves the waits for products of the kernel.
pub fn wait_late(module: &mut Module) {
    let entry = module.entry;
    let function = &mut module.functions[entry];
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            blocks.extend(&function.insts[*inst].regions);
        }
        wait_late_in(function, block);
    }
}

fn wait_late_in(function: &mut Function, block: Block) {
    let mut insts = std::mem::take(&mut function.blocks[block].insts);
    // The last ones first: those before them do not come to stand in their way.
    for place in (0..insts.len()).rev() {
        let data = &function.insts[insts[place]];
        // What a wait comes behind was chosen where products run beside another iteration.
        let is_wait = matches!(data.op, Op::Gpu(GpuOp::Finish { .. })) && data.operands.len() == 1;
        if is_wait {
            let is_passed = |next: &&Inst| may_pass(function, insts[place], **next);
            let passed = insts[place + 1..].iter().take_while(is_passed).count();
            insts[place..=place + passed].rotate_left(1);
        }
    }
    function.blocks[block].insts = insts;
}

/// Whether a wait may come after what follows it.
fn may_pass(function: &Function, wait: Inst, next: Inst) -> bool {
    let (wait, next) = (&function.insts[wait], &function.insts[next]);
    let is_used = |value: &Value| next.operands.contains(value);
    let is_of_product = matches!(next.op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::Finish { .. }));
    let is_harmless = matches!(next.op.info().effect, Effect::Pure | Effect::Read);
    !wait.results.iter().any(is_used) && (is_of_product || is_harmless)
}
