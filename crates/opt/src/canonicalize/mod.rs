//! Rewrites each instruction to its simplest form.
//!
//! The pass folds constants, removes identities, applies ops before splats and broadcasts, drops
//! masks that are true, and replaces branches on constants. It is one forward walk. `simplify`
//! returns a value that replaces the result of an instruction, and simplifies the new instructions
//! for it, too. Operands of commutative pure instructions are reordered in place, and masks of
//! accesses are removed in place.

mod butterfly;
mod cast;
mod control;
mod elementwise;
mod float;
mod integer;
mod memory;
mod shape;

use smallvec::SmallVec;
use tilewright_base::entity::packed_option::PackedOption;
use tilewright_ir::{
    Block, Element, ElementwiseFn, Function, Inst, Literal, Location, Op, OpFamily, Regions, Rounding, Shape,
    Type, UseCounts, Value,
};

use crate::aliases::Aliases;
use crate::fold;

/// The maximum depth of nested simplifications. The next run performs deeper ones.
const MAX_DEPTH: u32 = 16;

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let entry = function.entry;
    let uses = UseCounts::new(function);
    let mut pass = Canonicalizer {
        function,
        aliases: Aliases::default(),
        uses,
        out: Vec::new(),
        location: None.into(),
        depth: 0,
        changed: false,
    };
    pass.block(entry);
    pass.changed
}

type Operands = SmallVec<[Value; 4]>;

struct Canonicalizer<'f> {
    function: &'f mut Function,
    aliases: Aliases,
    /// The number of uses of each value before the pass, to decide whether a rewrite saves an op.
    /// It need not be exact.
    uses: UseCounts,
    /// The instructions of the current block so far.
    out: Vec<Inst>,
    /// The location of the current instruction and of its replacements.
    location: PackedOption<Location>,
    depth: u32,
    changed: bool,
}

impl Canonicalizer<'_> {
    fn block(&mut self, block: Block) {
        let insts = std::mem::take(&mut self.function.blocks[block].insts);
        let outer = std::mem::replace(&mut self.out, Vec::with_capacity(insts.len()));
        self.insts(&insts);
        self.function.blocks[block].insts = std::mem::replace(&mut self.out, outer);
    }

    fn insts(&mut self, insts: &[Inst]) {
        for &inst in insts {
            self.aliases.resolve_operands(self.function, inst);
            self.location = self.function.insts[inst].location;
            self.inst(inst);
        }
    }

    fn inst(&mut self, inst: Inst) {
        let op = &self.function.insts[inst].op;
        match op.family() {
            OpFamily::Loop if matches!(op, Op::For { .. }) => self.for_loop(inst),
            OpFamily::Loop => self.while_loop(inst),
            OpFamily::Branch => self.if_else(inst),
            OpFamily::Load => self.load(inst),
            OpFamily::Store => self.store(inst),
            OpFamily::Atomic => self.atomic(inst),
            OpFamily::Check if matches!(op, Op::Assert { .. }) => self.assert(inst),
            OpFamily::Promise => self.assume(inst),
            OpFamily::Reduction | OpFamily::Scan => self.element_regions(inst),
            OpFamily::Pointwise if op.has_element_regions() => self.element_regions(inst),
            OpFamily::Check
            | OpFamily::Barrier
            | OpFamily::Memory
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Terminator => self.out.push(inst),
            OpFamily::Scalar
            | OpFamily::Source
            | OpFamily::Pointwise
            | OpFamily::Identity
            | OpFamily::Shape
            | OpFamily::Movement
            | OpFamily::Dot => self.pure(inst),
        }
    }

    fn element_regions(&mut self, inst: Inst) {
        for region in self.function.insts[inst].regions.clone() {
            self.block(region);
        }
        self.out.push(inst);
    }

    /// Simplifies a pure instruction with one result and no regions.
    fn pure(&mut self, inst: Inst) {
        let Some(result) = self.function.result(inst) else { return self.out.push(inst) };
        // Nothing reads the placeholder while `simplify` borrows the function.
        let op = std::mem::replace(&mut self.function.insts[inst].op, Op::Barrier {});
        let mut operands = std::mem::take(&mut self.function.insts[inst].operands);
        self.changed |= self.order(&op, &mut operands);
        let ty = self.function.ty(result).clone();
        let simpler = self.simplify(&op, &operands, &ty);
        self.function.insts[inst].op = op;
        self.function.insts[inst].operands = operands;
        match simpler {
            Some(value) => self.replace(result, value),
            None => self.out.push(inst),
        }
    }

    /// Replaces a value in all instructions that the walk has not reached.
    fn replace(&mut self, old: Value, new: Value) {
        self.changed = true;
        self.aliases.replace(self.function, old, new);
    }

    /// Moves the constant operand of a commutative function to the right. Returns whether it moved.
    fn order(&self, op: &Op, operands: &mut [Value]) -> bool {
        let Op::Elementwise { function } = op else { return false };
        let swap = function.info().commutative
            && matches!(operands, [x, y] if self.constant(*x).is_some() && self.constant(*y).is_none());
        if swap {
            operands.reverse();
        }
        swap
    }

    /// Returns a simpler value that equals the op applied to the operands, if the pass knows one.
    fn simplify(&mut self, op: &Op, operands: &[Value], ty: &Type) -> Option<Value> {
        match (op, operands) {
            (Op::Elementwise { function }, _) => self.elementwise(*function, operands, ty),
            (Op::Cast { element, rounding }, &[value]) => self.cast(value, *element, *rounding, ty),
            (Op::Bitcast { element }, &[value]) => self.bitcast(value, *element, ty),
            (Op::PtrAdd {}, &[pointer, offset]) => self.ptr_add(pointer, offset, ty),
            (Op::Arange { start, end }, _) => self.arange(*start, *end, ty),
            (Op::Splat { .. }, &[scalar]) => ty.is_scalar().then_some(scalar),
            (Op::ExpandDims { .. }, &[tile]) => self.expand_dims(tile, ty),
            (Op::Broadcast { .. }, &[tile]) => self.broadcast(tile, ty),
            (Op::Reshape { .. }, &[tile]) => self.reshape(tile, ty),
            (Op::Transpose { permutation }, &[tile]) => self.transpose(tile, permutation, ty),
            // tidy: wildcard because the other ops are leaves, opaque, or not pure
            _ => None,
        }
    }

    /// Returns a value that equals the op applied to the operands: a simpler one, or that of a new
    /// instruction.
    fn make(&mut self, op: Op, operands: &[Value], ty: &Type) -> Value {
        let mut operands = Operands::from_slice(operands);
        self.order(&op, &mut operands);
        if self.depth < MAX_DEPTH {
            self.depth += 1;
            let simpler = self.simplify(&op, &operands, ty);
            self.depth -= 1;
            if let Some(value) = simpler {
                return value;
            }
        }
        let inst = self.function.create_inst(op, operands, Regions::new(), [ty.clone()], self.location);
        self.out.push(inst);
        self.function.insts[inst].results[0]
    }

    fn make_elementwise(&mut self, function: ElementwiseFn, operands: &[Value], ty: &Type) -> Value {
        self.make(Op::Elementwise { function }, operands, ty)
    }

    fn make_cast(&mut self, value: Value, element: Element, rounding: Rounding, ty: &Type) -> Value {
        self.make(Op::Cast { element, rounding }, &[value], ty)
    }

    fn make_splat(&mut self, scalar: Value, shape: &Shape) -> Value {
        let ty = self.function.ty(scalar).with_shape(shape.clone());
        self.make(Op::Splat { shape: shape.clone() }, &[scalar], &ty)
    }

    fn make_constant(&mut self, value: Literal, shape: &Shape) -> Value {
        let scalar = self.make(Op::Constant { value }, &[], &Type::scalar(value.dtype));
        self.make_splat(scalar, shape)
    }

    /// Returns the only operand of the op that defines a value, if `is` accepts the op.
    fn operand_of(&self, value: Value, is: impl FnOnce(&Op) -> bool) -> Option<Value> {
        let data = &self.function.insts[self.function.defining_inst(value)?];
        match data.operands[..] {
            [operand] if is(&data.op) => Some(operand),
            _ => None,
        }
    }

    fn operands_of(&self, value: Value, function: ElementwiseFn) -> Option<(Value, Value)> {
        let data = &self.function.insts[self.function.defining_inst(value)?];
        match (&data.op, &data.operands[..]) {
            (Op::Elementwise { function: found }, &[x, y]) if *found == function => Some((x, y)),
            // tidy: wildcard because only one function matches
            _ => None,
        }
    }

    /// Returns the operand of the unary elementwise function that defines a value.
    fn argument_of(&self, value: Value, function: ElementwiseFn) -> Option<Value> {
        self.operand_of(value, |op| matches!(op, Op::Elementwise { function: found } if *found == function))
    }

    /// Returns the scalar of a uniform value.
    fn uniform(&self, value: Value) -> Option<Value> {
        if self.function.ty(value).is_scalar() {
            return Some(value);
        }
        self.operand_of(value, |op| matches!(op, Op::Splat { .. }))
    }

    fn constant(&self, value: Value) -> Option<Literal> {
        match self.function.defining_op(self.uniform(value)?) {
            Some(Op::Constant { value }) => Some(*value),
            // tidy: wildcard because only a constant has a known value
            _ => None,
        }
    }

    fn is_constant(&self, value: Value, is: impl FnOnce(Literal) -> bool) -> bool {
        self.constant(value).is_some_and(is)
    }

    /// Returns whether a value had at most one use before the pass.
    fn is_used_once(&self, value: Value) -> bool {
        self.uses.of(value) <= 1
    }
}
