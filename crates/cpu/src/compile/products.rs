//! Finds the loops over k that the machine can execute as one dot.
//!
//! The body of such a loop is, apart from the masks of the loads:
//!
//! ```text
//! a = load pa; b = load pb
//! acc = dot a, b, acc
//! pa = pa + constant; pb = pb + constant
//! ```
//!
//! Masks are conjunctions of comparisons of linear functions of the counter. A mask that is true in
//! two iterations is true in all iterations between them, unless a function wraps. The machine
//! checks at run time that none wraps.

use rustc_hash::FxHashSet;
use tilewright_ir::{ElementwiseFn, Op};

use crate::program::product_loop::{MaskStep, MovedTile, ProductLoop};
use crate::program::{Action, Block, Program, Slot, Step, Use};

/// Marks the bodies of the loops that can be executed as one dot.
pub(crate) fn mark(program: &mut Program) {
    let uses = program.use_counts();
    let steps = program.blocks.iter().flat_map(|block| &block.steps);
    let bodies = steps.filter(|step| matches!(step.op(), Some(Op::For { .. }))).map(|step| step.blocks[0]);
    let found: Vec<_> = bodies.map(|id| (id, product_loop(program, id as usize, &uses))).collect();
    for (id, product) in found {
        program.blocks[id as usize].product = product.map(Box::new);
    }
}

fn product_loop(program: &Program, body: usize, uses: &[u32]) -> Option<ProductLoop> {
    let body = &program.blocks[body];
    let [counter, carried @ ..] = &body.parameters[..] else { return None };
    let dot = body.steps.iter().position(|step| matches!(step.action, Action::Dot { .. }))?;
    let step = &body.steps[dot];
    let carried_index = |slot: Slot| carried.iter().position(|&parameter| parameter == slot);
    let has_uses = |slot: Slot, count: u32| uses[slot as usize] == count;
    let accumulator = carried_index(step.operands[2].slot)?;
    let is_accumulator = body.yields[accumulator].slot == step.result()
        && has_uses(step.result(), 1)
        && has_uses(step.operands[2].slot, 1);
    if !is_accumulator || carried.len() != 3 {
        return None;
    }
    let defined: FxHashSet<Slot> =
        body.parameters.iter().chain(body.steps.iter().flat_map(|step| &step.results)).copied().collect();
    let [a, b] = [0, 1].map(|index| -> Option<(MovedTile, usize)> {
        let slot = step.operands[index].slot;
        let is_operand = |step: &Step| step.is_load() && step.result() == slot && program.is_in_place(slot);
        let load = body.steps.iter().position(is_operand)?;
        let pointer = body.steps[load].operands[0].slot;
        let pointers = carried_index(pointer)?;
        let moved = body.yields[pointers].slot;
        let is_move = |step: &Step| {
            matches!(step.op(), Some(Op::PtrAdd {}))
                && step.result() == moved
                && step.operands[0].slot == pointer
        };
        let add = body.steps.iter().position(is_move)?;
        let offset = body.steps[add].operands[1];
        let is_constant = !defined.contains(&offset.slot);
        let has_no_other_use = has_uses(pointer, 2) && has_uses(moved, 1);
        (is_constant && has_no_other_use).then_some((MovedTile { load, pointers, offset }, add))
    });
    let ((a, moves_a), (b, moves_b)) = (a?, b?);
    let others = [dot, a.load, b.load, moves_a, moves_b];
    let masks = masks(body, &others, *counter, &defined, [a.load, b.load])?;
    Some(ProductLoop { dot, accumulator, tiles: [a, b], masks })
}

/// Returns the steps of a body except `except`, if they compute only masks that are true in
/// consecutive iterations.
fn masks(
    body: &Block,
    except: &[usize],
    counter: Slot,
    defined: &FxHashSet<Slot>,
    loads: [usize; 2],
) -> Option<Vec<MaskStep>> {
    let mut linear = FxHashSet::from_iter([counter]);
    let mut conditions = FxHashSet::default();
    let mut masks = Vec::new();
    let is_constant = |operand: &Use| !defined.contains(&operand.slot);
    for (index, step) in body.steps.iter().enumerate().filter(|(index, _)| !except.contains(index)) {
        let (is_linear, is_condition) = {
            let is_linear = |operand: &Use| linear.contains(&operand.slot);
            let all_linear =
                || step.operands.iter().all(|operand| is_linear(operand) || is_constant(operand));
            let is_condition = |operand: &Use| conditions.contains(&operand.slot) || is_constant(operand);
            match step.op()? {
                Op::Elementwise { function: ElementwiseFn::Add | ElementwiseFn::Sub } => {
                    (all_linear(), false)
                }
                Op::Elementwise { function: ElementwiseFn::Mul } => {
                    (all_linear() && step.operands.iter().any(is_constant), false)
                }
                Op::Splat { .. } | Op::ExpandDims { .. } | Op::Broadcast { .. } => {
                    (is_linear(&step.operands[0]), is_condition(&step.operands[0]))
                }
                Op::Elementwise {
                    function: ElementwiseFn::Lt | ElementwiseFn::Le | ElementwiseFn::Gt | ElementwiseFn::Ge,
                } => (false, all_linear()),
                Op::Elementwise { function: ElementwiseFn::And } => {
                    (false, step.operands.iter().all(is_condition))
                }
                // tidy: wildcard because a mask with another op prevents the single dot
                _ => return None,
            }
        };
        if is_linear {
            linear.insert(step.result());
        } else if is_condition {
            conditions.insert(step.result());
        } else {
            return None;
        }
        masks.push(MaskStep { step: index, is_linear });
    }
    let is_mask = |operand: &Use| conditions.contains(&operand.slot) || is_constant(operand);
    loads.iter().all(|&load| body.steps[load].operands.get(1).is_none_or(is_mask)).then_some(masks)
}
