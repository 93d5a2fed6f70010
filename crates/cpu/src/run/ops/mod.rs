//! Executes ops: symbolically if possible, otherwise with the loops of `run/kernels`.
#![allow(clippy::inline_always, reason = "a call for each step costs measurable time")]

use tilewright_ir::Op;

use crate::program::{Action, Step};
use crate::run::fault::Outcome;
use crate::run::machine::Machine;

mod assembly;
mod atomics;
mod cast;
mod compare_exchange;
mod control;
pub(crate) mod dot;
mod elementwise;
pub(crate) mod fused;
mod histogram;
mod map;
pub(crate) mod materialize;
mod memory;
mod movement;
pub(crate) mod nest;
mod print;
mod reduce;
pub(crate) mod scan;
mod shape;

#[inline(always)]
pub(crate) fn execute<'a>(machine: &mut Machine<'a>, step: &'a Step) -> Outcome {
    let op = match &step.action {
        Action::Op(op) => op,
        Action::Dot { transposed, casts } => {
            dot::dot(machine, step, *transposed, *casts);
            return Ok(());
        }
        Action::Reduce { axis, strategy, code } => {
            return reduce::reduce(machine, step, *axis, *strategy, code.as_deref());
        }
        Action::Map { pack, strategy } => return map::map(machine, step, *pack, *strategy),
        Action::Assembly(code) => return assembly::assembly(machine, step, code),
        Action::Scan { axis, reverse, strategy } => {
            return scan::scan(machine, step, (*axis, *reverse), *strategy);
        }
        Action::Sort(sort) => {
            compare_exchange::sort(machine, step, *sort);
            return Ok(());
        }
        Action::Fused(_) | Action::Nest(_) => unreachable!("a block executes a group with its members"),
    };
    match op {
        Op::Constant { value } => machine.set_uniform(step.result(), value.bits),
        Op::ProgramId { axis } => machine.set_uniform(step.result(), machine.id[*axis as usize].into()),
        Op::NumPrograms { axis } => machine.set_uniform(step.result(), machine.grid[*axis as usize].into()),
        Op::Arange { start, .. } => shape::arange(machine, step, *start),
        Op::Splat { .. } => shape::splat(machine, step),
        Op::ExpandDims { axis } => shape::expand_dims(machine, step, *axis),
        Op::Slice { starts, steps, .. } => movement::slice(machine, step, starts, steps),
        Op::Gather { axis } => return movement::gather(machine, step, *axis as usize),
        Op::Broadcast { .. } => shape::broadcast(machine, step),
        Op::Reshape { .. } => shape::reshape(machine, step),
        Op::Transpose { permutation } => shape::transpose(machine, step, permutation),
        Op::Histogram { bins } => histogram::histogram(machine, step, *bins),
        Op::Butterfly { axis, mask } => {
            compare_exchange::butterfly(machine, step, *axis as usize, *mask as usize);
        }
        Op::Bitonic { axis, high, low, block, descending } => {
            compare_exchange::bitonic(machine, step, *axis as usize, ([*high, *low, *block], *descending));
        }
        Op::Elementwise { function } => elementwise::elementwise(machine, step, *function),
        Op::Cast { rounding, .. } => cast::cast(machine, step, *rounding),
        Op::Bitcast { .. } => cast::bitcast(machine, step),
        Op::PtrAdd {} => cast::ptr_add(machine, step),
        Op::Load { .. } => return memory::load(machine, step),
        Op::Store { .. } => return memory::store(machine, step),
        Op::AtomicRmw { kind, .. } => return atomics::read_modify(machine, step, *kind),
        Op::AtomicCas { .. } => return atomics::compare_and_swap(machine, step),
        Op::AtomicLoad { .. } => return atomics::load(machine, step),
        Op::AtomicStore { .. } => return atomics::store(machine, step),
        Op::AtomicPoll { .. } => return atomics::poll(machine, step),
        Op::Assert { failure } => return control::assert(machine, step, failure),
        Op::Print { prefix, digits, extents } => print::print(machine, step, prefix, *digits, extents),
        Op::Machine { quantity } => control::machine(machine, step, *quantity),
        // Only sanitized programs have steps for hints.
        Op::Hint { .. } => {
            let value = machine.take(step.operands[0]);
            machine.set(step.result(), value);
        }
        // A program runs on one thread, and grids run one after another.
        Op::Barrier {} | Op::Dependency { .. } => {}
        Op::For { .. } => return machine.for_loop(step),
        Op::While {} => return machine.while_loop(step),
        Op::If {} => return machine.if_else(step),
        Op::Dot { .. }
        | Op::DotScaled { .. }
        | Op::Reduce { .. }
        | Op::Map { .. }
        | Op::InlineAsm { .. }
        | Op::VolatileAsm { .. }
        | Op::Scan { .. }
        | Op::SetLayout { .. }
        | Op::Device { .. }
        | Op::StartWorkers { .. }
        | Op::Assume {}
        | Op::Call { .. }
        | Op::Yield {}
        | Op::Return {} => unreachable!("lowering leaves no step of `{}`", op.name()),
    }
    Ok(())
}
