//! Sinks an op on both operands of a `tl.join` below the join. Example: a kernel joins the two
//! 4-bit integers of a byte, and converts them for a dot. If the conversion comes after the join,
//! both integers share a register.
//!
//! ```text
//! %s = select %c, pair (f %x, %z), pair (f %y, %z)    ──>    %s = f (select %c, pair %x, pair %y), pair %z
//! ```
//! A `pair` is a broadcast along a new axis of two elements.

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, ElementwiseFn, Function, Inst, Op, Type, Value};

/// Sinks ops below joins in the computation of a dot's operand.
pub fn sink_joins(function: &mut Function, block: Block, operand: Value) {
    let (mut work, mut seen) = (vec![operand], vec![operand]);
    while let Some(value) = work.pop() {
        let Some(inst) = function.defining_inst(value) else { continue };
        if !function.blocks[block].insts.contains(&inst) {
            continue;
        }
        while let Some(joined) = Joined::of(function, inst) {
            joined.sink(function, block);
        }
        for operand in &function.insts[inst].operands {
            if !seen.contains(operand) {
                seen.push(*operand);
                work.push(*operand);
            }
        }
    }
}

/// A selection, along a new axis, between two tiles of the same op.
struct Joined {
    select: Inst,
    axis: u32,
    /// The instruction that computes the first of the two tiles.
    function: Inst,
    /// The only operand in which the instructions of the two tiles differ.
    operand: usize,
    /// This operand of the first and of the second instruction.
    sides: [Value; 2],
}

impl Joined {
    fn of(function: &Function, select: Inst) -> Option<Self> {
        let data = &function.insts[select];
        let Op::Elementwise { function: ElementwiseFn::Select } = data.op else { return None };
        let [left, right] = [
            broadcast_along_new_axis(function, data.operands[1])?,
            broadcast_along_new_axis(function, data.operands[2])?,
        ];
        let [f, g] = [function.defining_inst(left.0)?, function.defining_inst(right.0)?];
        let (first, second) = (&function.insts[f], &function.insts[g]);
        let is_pointwise = matches!(first.op, Op::Elementwise { .. } | Op::Cast { .. });
        if !is_pointwise || first.op != second.op || left.1 != right.1 {
            return None;
        }
        let pairs = first.operands.iter().zip(&second.operands).enumerate();
        let mut different = pairs.filter(|(_, (x, y))| x != y);
        let (operand, (x, y)) = different.next()?;
        let is_one = different.next().is_none() && function.ty(*x) == function.ty(*y);
        is_one.then_some(Self { select, axis: left.1, function: f, operand, sides: [*x, *y] })
    }

    fn sink(self, function: &mut Function, block: Block) {
        let select = function.insts[self.select].clone();
        let wide = function.ty(select.results[0]).clone();
        let computed = function.insts[self.function].clone();
        let mut out = Vec::new();
        let mut emit = |function: &mut Function, op: Op, operands: SmallVec<[Value; 4]>, ty: Type| {
            let inst = function.create_inst(op, operands, smallvec![], [ty], select.location);
            out.push(inst);
            function.insts[inst].results[0]
        };
        let mut pair = |function: &mut Function, value: Value| {
            let ty = function.ty(value).clone();
            let mut shape = ty.shape.clone();
            shape.0.insert(self.axis as usize, 1);
            let narrow = ty.with_shape(shape);
            let value = emit(function, Op::ExpandDims { axis: self.axis }, smallvec![value], narrow);
            emit(
                function,
                Op::Broadcast { shape: wide.shape.clone() },
                smallvec![value],
                ty.with_shape(wide.shape.clone()),
            )
        };
        let sides = self.sides.map(|side| pair(function, side));
        let mut operands: SmallVec<[Value; 4]> = smallvec![];
        for (index, operand) in computed.operands.iter().enumerate() {
            operands.push(if index == self.operand { sides[0] } else { pair(function, *operand) });
        }
        let chosen = function.ty(sides[0]).clone();
        let op = Op::Elementwise { function: ElementwiseFn::Select };
        operands[self.operand] =
            emit(function, op, smallvec![select.operands[0], sides[0], sides[1]], chosen);
        function.insts[self.select].op = computed.op;
        function.insts[self.select].operands = operands;
        let insts = &mut function.blocks[block].insts;
        let position = insts.iter().position(|other| *other == self.select);
        let position = position.expect("the select is in this block");
        insts.splice(position..position, out);
    }
}

/// Returns the tile that a value broadcasts along a new axis, and the axis.
fn broadcast_along_new_axis(function: &Function, value: Value) -> Option<(Value, u32)> {
    let broadcast = &function.insts[function.defining_inst(value)?];
    let Op::Broadcast { .. } = broadcast.op else { return None };
    let expanded = &function.insts[function.defining_inst(broadcast.operands[0])?];
    let Op::ExpandDims { axis } = expanded.op else { return None };
    let (narrow, wide) = (function.ty(expanded.results[0]), function.ty(value));
    let is_only =
        (0..wide.rank()).all(|other| other == axis as usize || narrow.shape[other] == wide.shape[other]);
    is_only.then_some((expanded.operands[0], axis))
}
