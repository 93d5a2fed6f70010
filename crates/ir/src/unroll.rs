//! Unrolls loops. Partial unrolling adds a second loop for the remaining iterations. Full unrolling
//! makes one copy of the body for each iteration.
//!
//! ```text
//! for %i = %low to %high by s carry %x {       for %i = %low to %middle by 2s carry %x {
//!   %y = … %i, %x                                %y = … %i, %x ; %j = %i + s ; %z = … %j, %y
//!   yield %y                            ──>      yield %z
//! }                                            } : %u
//!                                              for %i = %middle to %high by s carry %x = %u { … }
//! ```

use rustc_hash::FxHashMap;
use smallvec::smallvec;

use crate::cursor::Cursor;
use crate::dialect::Dialect;
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, Function, Inst, Value};
use crate::types::Dtype;

/// The parameters of unrolling.
#[derive(Clone, Copy, Debug)]
pub struct Unrolling {
    /// The number of copies of the body in one iteration.
    pub factor: u32,
    /// The step of the loop, a positive constant.
    pub step: i64,
    /// The type of the loop's index.
    pub dtype: Dtype,
    /// The upper bound of the unrolled loop: the lower bound plus a multiple of the step times the
    /// factor.
    pub middle: Value,
}

/// Unrolls a `for_loop` of a block partially. Returns the second loop, which runs the remaining
/// iterations and has the op `remainder`.
///
/// The cursor must be before the loop, and stays there.
pub fn unroll_loop<D: Dialect>(
    cursor: &mut Cursor<'_, D>,
    (block, inst): (Block, Inst),
    unrolling: &Unrolling,
    remainder: D::Op,
) -> Inst {
    let data = cursor.function.insts[inst].clone();
    let step = cursor.int(unrolling.dtype, unrolling.step * i64::from(unrolling.factor));
    let before = cursor.position();
    let body = data.regions[0];
    let rest = cursor.function.clone_region(body);
    let copies: Vec<Block> = (1..unrolling.factor).map(|_| cursor.function.clone_region(body)).collect();
    for (number, copy) in (1..).zip(copies) {
        append(cursor, body, copy, (unrolling.step * number, unrolling.dtype));
    }
    let function = &mut *cursor.function;
    function.insts[inst].operands[1] = unrolling.middle;
    function.insts[inst].operands[2] = step;
    let types: Vec<D::Type> = data.results.iter().map(|result| function.ty(*result).clone()).collect();
    let mut operands = vec![unrolling.middle, data.operands[1], data.operands[2]];
    operands.extend(&data.results);
    cursor.go_after(block, inst);
    let tail = cursor.emit_with_regions(remainder, &operands, smallvec![rest], types);
    cursor.go_to(before);
    let function = &mut *cursor.function;
    let ends = function.insts[tail].results.clone();
    for (result, end) in data.results.iter().zip(&ends) {
        function.copy_name(*result, *end);
    }
    let replaced: FxHashMap<Value, Value> = data.results.iter().copied().zip(ends).collect();
    function.replace_uses(&replaced, |other| other == tail);
    tail
}

/// Replaces a `for_loop` of a block by copies of the loop's body. `counters` has the value of the
/// loop's index for each copy. `dtype` is the type of the index.
///
/// The cursor must be before the loop. It moves after the copies.
pub fn unroll_fully<D: Dialect>(cursor: &mut Cursor<'_, D>, counters: &[i128], dtype: Dtype) {
    let inst = cursor.take_next().expect("the cursor is before a loop");
    let data = cursor.function.insts[inst].clone();
    let body = data.regions[0];
    let mut carried = data.operands[3..].to_vec();
    for (number, &counter) in counters.iter().enumerate() {
        let is_last = number + 1 == counters.len();
        let copy = if is_last { body } else { cursor.function.clone_region(body) };
        let index = cursor.int(dtype, counter);
        let copied = with_parameters(cursor.function, copy, [index].into_iter().chain(carried));
        let (end, insts) = copied.split_last().expect("a body has an end");
        carried = cursor.function.insts[*end].operands.to_vec();
        cursor.insert_all(insts.iter().copied());
    }
    let replaced = data.results.iter().copied().zip(carried).collect();
    cursor.function.replace_uses(&replaced, |_| false);
}

fn with_parameters<D: Dialect>(
    function: &mut Function<D>,
    block: Block,
    values: impl Iterator<Item = Value>,
) -> Vec<Inst> {
    let parameters = std::mem::take(&mut function.blocks[block].parameters);
    let replaced: FxHashMap<Value, Value> = parameters.into_iter().zip(values).collect();
    let mut inside = Vec::new();
    function.walk(block, &mut |inst| inside.push(inst));
    for inst in inside {
        function.insts[inst].replace_operands(&replaced);
    }
    std::mem::take(&mut function.blocks[block].insts)
}

/// Appends `copy`, a copy of the loop body, to `body`. Its index is the loop's index plus `ahead`.
fn append<D: Dialect>(cursor: &mut Cursor<'_, D>, body: Block, copy: Block, (ahead, dtype): (i64, Dtype)) {
    let index = cursor.function.blocks[body].parameters[0];
    let end = cursor.function.blocks[body].insts.pop().expect("a body has an end");
    let before = cursor.enter_end(body);
    let ahead = cursor.int(dtype, ahead);
    let ty = cursor.function.ty(index).clone();
    let next = cursor.elementwise(ElementwiseFn::Add, &[index, ahead], ty);
    let function = &mut *cursor.function;
    let given = function.insts[end].operands.clone();
    let copied = with_parameters(function, copy, [next].into_iter().chain(given));
    cursor.insert_all(copied);
    cursor.go_to(before);
}
