//! Finds the box coordinates of a loop, and their growth per iteration.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term};
use tilewright_ir::{Block, Definition, Effect, Inst, Operation, Value};

use crate::passes::global_memory::GlobalAccesses;
use crate::passes::pipelining::loop_plan::{Boxes, Growth, LoopPlan, RingLoad};
use crate::passes::pipelining::memory_order::{MemoryOrder, memory_order};
use tilewright_gpu_ir::{Function, Gpu};

/// Returns the scalar ops of a block that compute the values in `work`, in order. Also returns the
/// values from outside of the block that they use. Returns `None` if they depend on other ops of
/// the block, or on values that the loop with `body` carries.
pub(super) fn scalars_of(
    function: &Function,
    insts: &[Inst],
    body: Option<Block>,
    mut work: Vec<Value>,
) -> Option<(Vec<Inst>, Vec<Value>)> {
    let is_scalar = |value: &Value| function.ty(*value).as_registers().is_some_and(|tile| tile.rank() == 0);
    let (mut indices, mut outside) = (BTreeSet::new(), Vec::new());
    while let Some(value) = work.pop() {
        let index = match function.values[value].definition {
            Definition::Parameter(block, index) if Some(block) == body => {
                if index > 0 {
                    return None;
                }
                continue;
            }
            Definition::Parameter(..) => None,
            Definition::Result(inst, _) => insts.iter().position(|other| *other == inst),
        };
        let Some(index) = index else {
            outside.push(value);
            continue;
        };
        let data = &function.insts[insts[index]];
        let is_pure = data.op.info().effect == Effect::Pure && data.regions.is_empty();
        if !is_pure || !data.operands.iter().chain(&data.results).all(is_scalar) {
            return None;
        }
        if indices.insert(index) {
            work.extend(&data.operands);
        }
    }
    Some((indices.into_iter().map(|index| insts[index]).collect(), outside))
}

/// Returns the box coordinates of a loop, and the outside values that they use. Returns `None` if a
/// load is not a box or gathers rows. Also returns `None` if coordinates depend on more than
/// scalars and the counter.
pub(super) fn boxes_of(function: &Function, plan: &LoopPlan) -> Option<(Boxes, Vec<Value>)> {
    let body = function.insts[plan.inst].regions[0];
    let of_load = |load: &RingLoad| {
        let boxed = load.boxed.as_ref().filter(|boxed| boxed.gathered_row_indices(function).is_none())?;
        Some(boxed.coordinates(function, boxed.mark))
    };
    let coordinates: Vec<SmallVec<[Value; 5]>> = plan.loads.iter().map(of_load).collect::<Option<_>>()?;
    let values = coordinates.iter().flatten().copied().collect();
    let (insts, outside) = scalars_of(function, &function.blocks[body].insts, Some(body), values)?;
    Some((Boxes { counter: function.blocks[body].parameters[0], insts, coordinates }, outside))
}

/// Compares two loops with the same step. Returns how the growth of each coordinate of each box
/// relates in the two loops. With `outer`, the loops are one loop in consecutive iterations of
/// `outer`.
pub(super) fn growths(
    function: &Function,
    loops: [(Inst, &Boxes); 2],
    outer: Option<Inst>,
) -> Vec<SmallVec<[Growth; 5]>> {
    let mut evolution = ScalarEvolution::new(function);
    let mut growth = |inst: Inst, value: Value| growth(function, &mut evolution, inst, value);
    let [(inst, own), (other, next)] = loops;
    let pairs = own.coordinates.iter().zip(&next.coordinates);
    pairs
        .map(|(own, next)| {
            let pairs = own.iter().zip(next);
            pairs
                .map(|(own, next)| match (growth(inst, *own), growth(other, *next)) {
                    (Some((own, rest)), Some((next, others))) if own == next => {
                        let changes = |term: &Term| outer.is_some_and(|outer| is_of(function, *term, outer));
                        match own.is_zero() {
                            true if rest == others && !rest.any(changes) => Growth::Same,
                            true => Growth::None,
                            false => Growth::Alike,
                        }
                    }
                    (Some(_) | None, Some(_) | None) => Growth::Unknown,
                })
                .collect()
        })
        .collect()
}

/// Returns the growth of a scalar per iteration, and its first value. Returns `None` if one of them
/// changes in the loop.
fn growth(
    function: &Function,
    evolution: &mut ScalarEvolution<'_, Gpu>,
    inst: Inst,
    value: Value,
) -> Option<(Form, Form)> {
    let (growth, rest) = evolution.form(value).factor_of(Term::Iteration(inst))?;
    let changes = |term: &Term| is_of(function, *term, inst);
    (!growth.any(changes) && !rest.any(changes)).then_some((growth, rest))
}

fn is_of(function: &Function, term: Term, inst: Inst) -> bool {
    let body = function.insts[inst].regions[0];
    match term {
        Term::Iteration(other) => other == inst,
        Term::Axis(_) | Term::Element(..) => false,
        Term::Value(value) => match function.values[value].definition {
            Definition::Result(maker, _) => function.blocks[body].insts.contains(&maker),
            Definition::Parameter(block, _) => block == body,
        },
    }
}

/// Checks that copies may start before an op. The op must neither write their memory nor order
/// accesses.
pub(super) fn may_copy_before(
    function: &Function,
    global: &GlobalAccesses<'_>,
    loads: &[RingLoad],
    inst: Inst,
) -> Result<(), &'static str> {
    match memory_order(&function.insts[inst].op) {
        MemoryOrder::None => Ok(()),
        MemoryOrder::Write if loads.iter().all(|load| !global.may_alias(load.inst, inst)) => Ok(()),
        MemoryOrder::Write => Err("a store or atomic in it may write what its next iteration loads"),
        MemoryOrder::Ordered => Err("it orders accesses to memory"),
    }
}
