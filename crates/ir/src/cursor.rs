//! Inserts instructions into a function at a position, for passes that rewrite functions.
//!
//! ```text
//! let mut cursor = Cursor::before(function, block, inst);      %2 = constant {value = 4:int32}
//! let four = cursor.int(Dtype::I32, 4);                        %3 = add %x, %2
//! let sum = cursor.elementwise(Add, &[x, four], ty);   ──>    %4 = load …   (`inst`)
//! ```
//! A pass that rewrites whole blocks enters each block, takes out its instructions, and inserts
//! again those that it keeps:
//!
//! ```text
//! let outer = cursor.enter(block);
//! for inst in cursor.take_rest() {
//!     cursor.location = cursor.function.insts[inst].location;
//!     // … cursor.emit(…) for new ones, cursor.insert(inst) for those that stay
//! }
//! cursor.go_to(outer);
//! ```

use std::fmt::{self, Debug};

use tilewright_base::entity::packed_option::PackedOption;

use crate::attributes::Literal;
use crate::dialect::{Dialect, Tile};
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, Function, Inst, Location, Value};
use crate::ops::{Op, Regions};
use crate::types::{Dtype, Type};

/// A position between two instructions of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The block.
    pub block: Block,
    /// The number of instructions of the block before the position.
    pub index: usize,
}

/// A position at which instructions are inserted into a function, and their source location.
///
/// Each insertion moves the cursor after the new instruction. So the instructions are in the order
/// of their creation.
pub struct Cursor<'f, D: Dialect = Tile> {
    /// The function. Code that changes the cursor's block directly must move the cursor, too.
    pub function: &'f mut Function<D>,
    /// The source location of new instructions.
    pub location: PackedOption<Location>,
    position: Position,
}

impl<D: Dialect> Debug for Cursor<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<'f, D: Dialect> Cursor<'f, D> {
    /// Returns a cursor at a position. Instructions get no location until one is set.
    pub fn new(function: &'f mut Function<D>, position: Position) -> Self {
        Self { function, location: None.into(), position }
    }

    /// Returns a cursor before the first instruction of a block.
    pub fn at_start(function: &'f mut Function<D>, block: Block) -> Self {
        Self::new(function, Position { block, index: 0 })
    }

    /// Returns a cursor after the last instruction of a block.
    pub fn at_end(function: &'f mut Function<D>, block: Block) -> Self {
        let index = function.blocks[block].insts.len();
        Self::new(function, Position { block, index })
    }

    /// Returns a cursor before an instruction of a block, with the location of that instruction.
    pub fn before(function: &'f mut Function<D>, block: Block, inst: Inst) -> Self {
        let mut cursor = Self::at_start(function, block);
        cursor.go_before(block, inst);
        cursor.use_location_of(inst);
        cursor
    }

    /// Returns a cursor after an instruction of a block, with the location of that instruction.
    pub fn after(function: &'f mut Function<D>, block: Block, inst: Inst) -> Self {
        let mut cursor = Self::before(function, block, inst);
        cursor.position.index += 1;
        cursor
    }

    /// Returns the position at which the next instruction is inserted.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Moves to a position.
    pub fn go_to(&mut self, position: Position) {
        debug_assert!(position.index <= self.function.blocks[position.block].insts.len());
        self.position = position;
    }

    /// Moves before the first instruction of a block; returns the previous position.
    pub fn enter(&mut self, block: Block) -> Position {
        std::mem::replace(&mut self.position, Position { block, index: 0 })
    }

    /// Moves after the last instruction of a block; returns the previous position.
    pub fn enter_end(&mut self, block: Block) -> Position {
        let index = self.function.blocks[block].insts.len();
        std::mem::replace(&mut self.position, Position { block, index })
    }

    /// Moves before an instruction of a block.
    ///
    /// # Panics
    /// If the block does not hold the instruction.
    pub fn go_before(&mut self, block: Block, inst: Inst) {
        let index = self.function.position_in(block, inst).expect("the block holds the instruction");
        self.position = Position { block, index };
    }

    /// Moves after an instruction of a block.
    ///
    /// # Panics
    /// If the block does not hold the instruction.
    pub fn go_after(&mut self, block: Block, inst: Inst) {
        self.go_before(block, inst);
        self.position.index += 1;
    }

    /// Gives the next instructions the location of another instruction.
    pub fn use_location_of(&mut self, inst: Inst) {
        self.location = self.function.insts[inst].location;
    }

    /// Returns the instructions of the block before the cursor.
    pub fn preceding(&self) -> &[Inst] {
        &self.function.blocks[self.position.block].insts[..self.position.index]
    }

    /// Removes the instructions after the cursor from the block. The caller inserts again the
    /// instructions that it keeps.
    pub fn take_rest(&mut self) -> Vec<Inst> {
        let Position { block, index } = self.position;
        self.function.blocks[block].insts.split_off(index)
    }

    /// Removes and returns the instruction after the cursor; `None` at the end of the block. The
    /// instruction is dead until it is inserted again.
    pub fn take_next(&mut self) -> Option<Inst> {
        let Position { block, index } = self.position;
        let insts = &mut self.function.blocks[block].insts;
        (index < insts.len()).then(|| insts.remove(index))
    }

    /// Inserts an instruction that no block holds.
    pub fn insert(&mut self, inst: Inst) {
        let Position { block, index } = self.position;
        self.function.blocks[block].insts.insert(index, inst);
        self.position.index += 1;
    }

    /// Inserts instructions that no block holds.
    pub fn insert_all(&mut self, insts: impl IntoIterator<Item = Inst>) {
        insts.into_iter().for_each(|inst| self.insert(inst));
    }

    /// Creates and inserts an instruction without regions.
    pub fn emit(
        &mut self,
        op: impl Into<D::Op>,
        operands: &[Value],
        results: impl IntoIterator<Item = D::Type>,
    ) -> Inst {
        self.emit_with_regions(op, operands, Regions::new(), results)
    }

    /// Creates and inserts an instruction.
    pub fn emit_with_regions(
        &mut self,
        op: impl Into<D::Op>,
        operands: &[Value],
        regions: Regions,
        results: impl IntoIterator<Item = D::Type>,
    ) -> Inst {
        let inst = self.function.create_inst(op.into(), operands.into(), regions, results, self.location);
        self.insert(inst);
        inst
    }

    /// Creates and inserts an instruction, and returns its only result.
    pub fn value(&mut self, op: impl Into<D::Op>, operands: &[Value], ty: D::Type) -> Value {
        let inst = self.emit(op, operands, [ty]);
        self.function.insts[inst].results[0]
    }

    /// Creates and inserts a constant.
    pub fn constant(&mut self, value: Literal) -> Value {
        self.value(Op::Constant { value }, &[], D::scalar(Type::scalar(value.dtype)))
    }

    /// Creates and inserts a constant integer, wrapped to the width of its type.
    pub fn int(&mut self, dtype: Dtype, number: impl Into<i128>) -> Value {
        self.constant(Literal::int(dtype, number.into()))
    }

    /// Creates and inserts an elementwise function of values.
    pub fn elementwise(&mut self, function: ElementwiseFn, operands: &[Value], ty: D::Type) -> Value {
        self.value(D::elementwise(function), operands, ty)
    }

    /// Creates and inserts an elementwise function of scalars.
    pub fn scalar(&mut self, function: ElementwiseFn, operands: &[Value], dtype: Dtype) -> Value {
        self.elementwise(function, operands, D::scalar(Type::scalar(dtype)))
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashMap;
    use tilewright_base::Span;

    use super::*;
    use crate::function::LocationData;
    use crate::{Module, parse, print, verify};

    const KERNEL: &str = "kernel func0 @k(%n: int32) {
  %c = constant {value = 1:int1} : int1
  %a = add %n, %n : int32
  %b = if_else %c () {
    yield_values %a
  } () {
    yield_values %n
  } : int32
  %d = mul %b, %a : int32
  return_values
}
";

    fn kernel() -> Module {
        parse(KERNEL).expect("it is well-formed")
    }

    fn add(cursor: &mut Cursor<'_>, x: Value, y: Value) -> Value {
        cursor.scalar(ElementwiseFn::Add, &[x, y], Dtype::I32)
    }

    /// Verifies a module, and returns the body of its kernel as text.
    fn body(module: &Module) -> Vec<String> {
        verify(module).unwrap_or_else(|error| panic!("{error}\n{}", print(module, false)));
        let text = print(module, false);
        let op = |line: &str| line.trim().split_once("= ").map_or(line.trim(), |(_, op)| op).to_owned();
        text.lines().skip(1).map(op).filter(|line| !line.starts_with('}')).collect()
    }

    #[test]
    fn instructions_are_inserted_before_and_after_others_in_order() {
        let mut module = kernel();
        let function = &mut module.functions[module.entry];
        let entry = function.entry;
        let n = function.blocks[entry].parameters[0];
        let [_, sum, branch, product, _] = function.blocks[entry].insts[..] else { panic!("five") };
        let region = function.insts[branch].regions[1];
        let mut cursor = Cursor::before(function, entry, sum);
        let one = cursor.int(Dtype::I32, 1);
        let first = add(&mut cursor, n, one);
        cursor.go_after(entry, product);
        add(&mut cursor, first, first);
        let outer = cursor.enter(region);
        add(&mut cursor, first, n);
        cursor.go_to(outer);
        add(&mut cursor, n, first);
        assert_eq!(cursor.preceding().len(), 8);
        assert_eq!(
            body(&module),
            [
                "constant {value = 1:int1} : int1",
                "constant {value = 1:int32} : int32",
                "add %n, %0 : int32",
                "add %n, %n : int32",
                "if_else %c () {",
                "yield_values %a",
                "add %1, %n : int32",
                "yield_values %n",
                "mul %b, %a : int32",
                "add %1, %1 : int32",
                "add %n, %1 : int32",
                "return_values",
            ]
        );
    }

    #[test]
    fn a_block_is_rewritten_with_what_is_put_back() {
        let mut module = kernel();
        let function = &mut module.functions[module.entry];
        let entry = function.entry;
        let n = function.blocks[entry].parameters[0];
        let mut cursor = Cursor::at_start(function, entry);
        for inst in cursor.take_rest() {
            let data = cursor.function.insts[inst].clone();
            if data.op == (Op::Elementwise { function: ElementwiseFn::Add }) {
                let two = cursor.int(Dtype::I32, 2);
                let doubled = cursor.scalar(ElementwiseFn::Mul, &[n, two], Dtype::I32);
                let replaced = FxHashMap::from_iter([(data.results[0], doubled)]);
                cursor.function.copy_name(data.results[0], doubled);
                cursor.function.replace_uses(&replaced, |_| false);
            } else {
                cursor.insert(inst);
            }
        }
        let ops: Vec<String> = body(&module);
        assert!(ops.iter().all(|line| !line.starts_with("add")), "{ops:?}");
        assert_eq!(ops.iter().filter(|line| line.contains("%a")).count(), 2, "{ops:?}");
    }

    #[test]
    fn an_instruction_is_taken_out_and_its_result_is_defined_anew() {
        let mut module = kernel();
        let function = &mut module.functions[module.entry];
        let entry = function.entry;
        let n = function.blocks[entry].parameters[0];
        let product = function.blocks[entry].insts[3];
        let result = function.insts[product].results[0];
        let mut cursor = Cursor::before(function, entry, product);
        assert_eq!(cursor.take_next(), Some(product));
        let inst = cursor.emit(
            Op::Elementwise { function: ElementwiseFn::Max },
            &[n, n],
            [Type::scalar(Dtype::I32)],
        );
        cursor.function.redefine(result, inst, 0);
        assert_eq!(cursor.function.defining_inst(result), Some(inst));
        cursor.enter_end(entry);
        assert_eq!(cursor.take_next(), None);
        assert!(body(&module).iter().any(|line| line.starts_with("max")));
    }

    #[test]
    fn new_instructions_have_the_location_of_the_cursor() {
        let mut module = kernel();
        let function = &mut module.functions[module.entry];
        let entry = function.entry;
        let span = Span::new(tilewright_base::FileId::from_u32(0), 3, 5);
        let location = function.locations.push(LocationData { span, caller: None.into() });
        let product = function.blocks[entry].insts[3];
        function.insts[product].location = Some(location).into();
        let mut cursor = Cursor::before(function, entry, product);
        let made = cursor.int(Dtype::I32, 7);
        let inst = cursor.function.defining_inst(made).expect("it is made");
        assert_eq!(cursor.function.insts[inst].location.expand(), Some(location));
    }
}
