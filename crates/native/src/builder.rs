//! Builds a [`Function`].
//!
//! The builder appends to a current block, and folds operations on constant integers.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::ir::{
    Address, Binary, Block, BlockData, Compare, Conversion, Function, Inst, IntBinary, IntCompare, Lane,
    MaskBinary, Op, Target, Terminator, Type, Unary, Value,
};

/// A function under construction.
#[derive(Debug)]
pub struct Builder {
    function: Function,
    /// The block to which instructions are appended.
    current: Block,
    /// The integers that are known to be constant.
    constants: FxHashMap<Value, i64>,
    /// The constants of the entry block, which all blocks may use.
    shared: FxHashMap<Constant, Value>,
    /// The origin of the instructions that are appended.
    origin: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Constant {
    Int(i64),
    Vector(Lane, u64),
    Iota(Lane),
    Mask(bool),
    /// The word of 64 bits at this offset from the argument.
    Word(i32),
}

impl Builder {
    /// Begins a function whose vectors have this number of lanes. The current block is its entry.
    pub fn new(lanes: usize) -> Self {
        let entry = BlockData { parameters: vec![Value(0)], ..BlockData::default() };
        let function = Function { lanes, types: vec![Type::Int], blocks: vec![entry] };
        let (constants, shared) = (FxHashMap::default(), FxHashMap::default());
        Self { function, current: Block(0), constants, shared, origin: 0 }
    }

    /// Sets the origin of the next instructions: a number that the caller chooses for their source
    /// position. Returns the previous origin. The first origin is 0, which means no position.
    pub fn set_origin(&mut self, origin: u32) -> u32 {
        std::mem::replace(&mut self.origin, origin)
    }

    /// Returns the parameter of the function.
    pub fn argument(&self) -> Value {
        Value(0)
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.function.lanes
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.function.ty(value)
    }

    /// Returns the lane type of a vector. Panics if the value is not a vector.
    pub fn lane(&self, value: Value) -> Lane {
        match self.ty(value) {
            Type::Vector(lane) => lane,
            other => panic!("{value:?} is of type {other:?}"),
        }
    }

    /// Returns the integer of a constant, or `None` if the value is not a known constant.
    pub fn known(&self, value: Value) -> Option<i64> {
        self.constants.get(&value).copied()
    }

    /// Returns the function. Panics if a block has no terminator.
    pub fn finish(self) -> Function {
        assert!(self.function.blocks.iter().all(|block| block.terminator.is_some()), "each block has an end");
        self.function
    }

    fn value(&mut self, ty: Type) -> Value {
        self.function.types.push(ty);
        Value(self.function.types.len() as u32 - 1)
    }

    fn emit(&mut self, op: Op, operands: &[Value], result: Option<Type>) -> Option<Value> {
        let result = result.map(|ty| self.value(ty));
        let inst = Inst { op, operands: SmallVec::from_slice(operands), result, origin: self.origin };
        let block = &mut self.function.blocks[self.current.0 as usize];
        assert!(block.terminator.is_none(), "the block is complete");
        block.insts.push(inst);
        result
    }

    fn emit_one(&mut self, op: Op, operands: &[Value], result: Type) -> Value {
        self.emit(op, operands, Some(result)).expect("the operation has a result")
    }

    /// Loads the 64-bit word at an offset from the argument. The entry block loads each word once.
    pub fn argument_word(&mut self, offset: i32) -> Value {
        self.shared(Constant::Word(offset))
    }

    fn shared(&mut self, constant: Constant) -> Value {
        if let Some(&value) = self.shared.get(&constant) {
            return value;
        }
        let (op, ty) = match constant {
            Constant::Int(value) => (Op::IntConstant(value), Type::Int),
            Constant::Vector(lane, bits) => (Op::Constant(lane, bits), Type::Vector(lane)),
            Constant::Iota(lane) => (Op::Iota(lane), Type::Vector(lane)),
            Constant::Mask(value) => (Op::MaskConstant(value), Type::Mask),
            Constant::Word(offset) => {
                let address = Address { indexed: false, scale: 1, offset };
                (Op::IntLoad { bytes: 8, address }, Type::Int)
            }
        };
        let result = self.value(ty);
        let is_load = matches!(constant, Constant::Word(_));
        let operands = if is_load { smallvec![self.argument()] } else { smallvec![] };
        let inst = Inst { op, operands, result: Some(result), origin: 0 };
        self.function.blocks[0].insts.insert(0, inst);
        if let Constant::Int(value) = constant {
            self.constants.insert(result, value);
        }
        self.shared.insert(constant, result);
        result
    }

    /// Creates a block without parameters.
    pub fn block(&mut self) -> Block {
        self.function.blocks.push(BlockData::default());
        Block(self.function.blocks.len() as u32 - 1)
    }

    /// Adds a parameter to a block.
    pub fn parameter(&mut self, block: Block, ty: Type) -> Value {
        let value = self.value(ty);
        self.function.blocks[block.0 as usize].parameters.push(value);
        value
    }

    /// Makes another block the current block.
    pub fn switch_to(&mut self, block: Block) {
        self.current = block;
    }

    /// Returns the current block.
    pub fn current(&self) -> Block {
        self.current
    }

    fn end(&mut self, terminator: Terminator) {
        let block = &mut self.function.blocks[self.current.0 as usize];
        assert!(block.terminator.is_none(), "the block is complete");
        block.terminator = Some(terminator);
    }

    /// Ends the current block with a jump.
    pub fn jump(&mut self, block: Block, arguments: &[Value]) {
        self.end(Terminator::Jump(target(block, arguments)));
    }

    /// Ends the current block. Continues with the first block if the condition is not 0, otherwise
    /// with the second block.
    pub fn branch(
        &mut self,
        condition: Value,
        (block, arguments): (Block, &[Value]),
        (other, others): (Block, &[Value]),
    ) {
        match self.known(condition) {
            Some(0) => self.jump(other, others),
            Some(_) => self.jump(block, arguments),
            None => self.end(Terminator::Branch(condition, target(block, arguments), target(other, others))),
        }
    }

    /// Ends the function with a result.
    pub fn ret(&mut self, value: Value) {
        self.end(Terminator::Return(value));
    }

    /// Begins `for index in (start..end).step_by(step)` over signed integers. `carried` has the
    /// initial carried values. The caller appends the iteration and calls [`Self::end_loop`].
    pub fn begin_loop(&mut self, [start, end]: [Value; 2], carried: &[Value]) -> Loop {
        let (header, after) = (self.block(), self.block());
        let index = self.parameter(header, Type::Int);
        let last_index = self.parameter(after, Type::Int);
        let (mut values, mut last) = (Vec::new(), Vec::new());
        for &value in carried {
            let ty = self.ty(value);
            values.push(self.parameter(header, ty));
            last.push(self.parameter(after, ty));
        }
        let first: Vec<Value> = std::iter::once(start).chain(carried.iter().copied()).collect();
        let enters = self.int_compare(IntCompare::LtSigned, start, end);
        self.branch(enters, (header, &first), (after, &first));
        self.switch_to(header);
        Loop { header, after, end, index, values, last_index, last }
    }

    /// Ends a loop with a positive step. `next` are the carried values of the next iteration.
    /// Returns the first index that is not below the end, and the last carried values.
    pub fn end_loop(&mut self, repeated: Loop, step: i64, next: &[Value]) -> (Value, Vec<Value>) {
        let Loop { header, after, end, index, values, last_index, last } = repeated;
        assert!(next.len() == values.len(), "an iteration passes on as many values as it received");
        let step = self.int(step);
        let next_index = self.int_binary(IntBinary::Add, index, step);
        let again = self.int_compare(IntCompare::LtSigned, next_index, end);
        let arguments: Vec<Value> = std::iter::once(next_index).chain(next.iter().copied()).collect();
        self.branch(again, (header, &arguments), (after, &arguments));
        self.switch_to(after);
        (last_index, last)
    }

    /// Returns a constant integer.
    pub fn int(&mut self, value: i64) -> Value {
        self.shared(Constant::Int(value))
    }

    /// Computes a function of two integers.
    pub fn int_binary(&mut self, function: IntBinary, x: Value, y: Value) -> Value {
        if let Some(value) = self.folded(function, x, y) {
            return value;
        }
        self.emit_one(Op::IntBinary(function), &[x, y], Type::Int)
    }

    /// Returns a known constant, an operand, or cheaper instructions for a function, if possible.
    #[expect(clippy::match_same_arms, reason = "one arm for each neutral operand")]
    fn folded(&mut self, function: IntBinary, x: Value, y: Value) -> Option<Value> {
        use IntBinary as F;
        let (a, b) = (self.known(x), self.known(y));
        match (function, a, b) {
            (F::Add | F::Or | F::Xor, Some(0), _) => return Some(y),
            (F::Add | F::Sub | F::Or | F::Xor | F::Shl | F::Shr | F::Sar, _, Some(0)) => return Some(x),
            (F::Mul, Some(1), _) => return Some(y),
            (F::Mul | F::DivSigned | F::DivUnsigned, _, Some(1)) => return Some(x),
            (F::Mul, Some(0), _) => return Some(x),
            (F::Mul, _, Some(0)) => return Some(y),
            (F::Min | F::Max, ..) if x == y => return Some(x),
            (F::Sub, ..) if x == y => return Some(self.int(0)),
            (F::DivUnsigned | F::RemUnsigned | F::DivSigned | F::RemSigned, None, Some(divisor))
                if divisor > 1 && divisor & (divisor - 1) == 0 =>
            {
                return Some(self.divided_by_power_of_two(function, x, divisor));
            }
            // tidy: wildcard because the other functions are folded only if both operands are
            // constant
            _ => {}
        }
        let (a, b) = (a?, b?);
        let result = match function {
            F::Add => a.wrapping_add(b),
            F::Sub => a.wrapping_sub(b),
            F::Mul => a.wrapping_mul(b),
            F::And => a & b,
            F::Or => a | b,
            F::Xor => a ^ b,
            F::Shl => a.wrapping_shl(b as u32),
            F::Shr => (a as u64).wrapping_shr(b as u32) as i64,
            F::Sar => a.wrapping_shr(b as u32),
            F::Min => a.min(b),
            F::Max => a.max(b),
            F::DivSigned => a.checked_div(b)?,
            F::DivUnsigned => (a as u64).checked_div(b as u64)? as i64,
            F::RemSigned => a.checked_rem(b)?,
            F::RemUnsigned => (a as u64).checked_rem(b as u64)? as i64,
        };
        Some(self.int(result))
    }

    fn divided_by_power_of_two(&mut self, function: IntBinary, x: Value, divisor: i64) -> Value {
        use IntBinary as F;
        let (shift, mask) = (self.int(divisor.trailing_zeros().into()), self.int(divisor - 1));
        match function {
            F::DivUnsigned => self.int_binary(F::Shr, x, shift),
            F::RemUnsigned => self.int_binary(F::And, x, mask),
            // tidy: wildcard because the only other functions that the caller passes are
            // `DivSigned` and `RemSigned`
            _ => {
                // A shift rounds down, but a division rounds towards zero.
                let most = self.int(63);
                let sign = self.int_binary(F::Sar, x, most);
                let added = self.int_binary(F::And, sign, mask);
                let sum = self.int_binary(F::Add, x, added);
                if function == F::DivSigned {
                    return self.int_binary(F::Sar, sum, shift);
                }
                let rest = self.int_binary(F::And, sum, mask);
                self.int_binary(F::Sub, rest, added)
            }
        }
    }

    /// Compares two integers. The result is 0 or 1.
    pub fn int_compare(&mut self, function: IntCompare, x: Value, y: Value) -> Value {
        if let (Some(x), Some(y)) = (self.known(x), self.known(y)) {
            let holds = match function {
                IntCompare::Eq => x == y,
                IntCompare::Ne => x != y,
                IntCompare::LtSigned => x < y,
                IntCompare::LeSigned => x <= y,
                IntCompare::LtUnsigned => (x as u64) < y as u64,
                IntCompare::LeUnsigned => x as u64 <= y as u64,
            };
            return self.int(i64::from(holds));
        }
        self.emit_one(Op::IntCompare(function), &[x, y], Type::Int)
    }

    /// Returns `x` if the condition is not 0, otherwise `y`.
    pub fn int_select(&mut self, condition: Value, x: Value, y: Value) -> Value {
        match self.known(condition) {
            Some(0) => y,
            Some(_) => x,
            None if x == y => x,
            None => self.emit_one(Op::IntSelect, &[condition, x, y], Type::Int),
        }
    }

    /// Extends the low 8, 16 or 32 bits of an integer to 64 bits.
    pub fn int_extend(&mut self, bits: u8, signed: bool, x: Value) -> Value {
        if let Some(value) = self.known(x) {
            let unused = 64 - u32::from(bits);
            let value =
                if signed { value << unused >> unused } else { ((value as u64) << unused >> unused) as i64 };
            return self.int(value);
        }
        self.emit_one(Op::IntExtend { bits, signed }, &[x], Type::Int)
    }

    /// Loads an integer of `bytes` bytes from `base + offset`, extended with zeros.
    pub fn int_load(&mut self, bytes: u8, base: Value, offset: i32) -> Value {
        let address = Address { indexed: false, scale: 1, offset };
        self.emit_one(Op::IntLoad { bytes, address }, &[base], Type::Int)
    }

    /// Stores the low bytes of an integer to `base + offset`.
    pub fn int_store(&mut self, bytes: u8, base: Value, offset: i32, value: Value) {
        let address = Address { indexed: false, scale: 1, offset };
        self.emit(Op::IntStore { bytes, address }, &[base, value], None);
    }

    /// Returns a vector whose lanes all have these bits.
    pub fn constant(&mut self, lane: Lane, bits: u64) -> Value {
        self.shared(Constant::Vector(lane, bits))
    }

    /// Returns a vector whose lanes all have the low bits of an integer.
    pub fn splat(&mut self, lane: Lane, x: Value) -> Value {
        if let Some(value) = self.known(x) {
            let unused = 64 - 8 * lane.bytes() as u32;
            return self.constant(lane, (value as u64) << unused >> unused);
        }
        self.emit_one(Op::Splat(lane), &[x], Type::Vector(lane))
    }

    /// Returns the bits of the first lane, extended with zeros.
    pub fn first(&mut self, x: Value) -> Value {
        self.emit_one(Op::First, &[x], Type::Int)
    }

    /// Returns a vector whose lane i is i.
    pub fn iota(&mut self, lane: Lane) -> Value {
        self.shared(Constant::Iota(lane))
    }

    /// Applies a function to each lane.
    pub fn unary(&mut self, function: Unary, x: Value) -> Value {
        let ty = self.ty(x);
        self.emit_one(Op::Unary(function), &[x], ty)
    }

    /// Applies a function to each pair of lanes.
    pub fn binary(&mut self, function: Binary, x: Value, y: Value) -> Value {
        let ty = self.ty(x);
        assert!(ty == self.ty(y), "the operands of {function:?} are of one type");
        self.emit_one(Op::Binary(function), &[x, y], ty)
    }

    /// Computes `x * y + z`, rounded once.
    pub fn multiply_add(&mut self, x: Value, y: Value, z: Value) -> Value {
        let ty = self.ty(x);
        self.emit_one(Op::MultiplyAdd, &[x, y, z], ty)
    }

    /// Compares each pair of lanes.
    pub fn compare(&mut self, function: Compare, x: Value, y: Value) -> Value {
        assert!(self.ty(x) == self.ty(y), "the operands of a comparison are of one type");
        self.emit_one(Op::Compare(function), &[x, y], Type::Mask)
    }

    /// Returns the lanes of `x` where the mask is true, and the lanes of `y` elsewhere.
    pub fn select(&mut self, mask: Value, x: Value, y: Value) -> Value {
        let ty = self.ty(x);
        assert!(ty == self.ty(y), "the operands of a selection are of one type");
        match self.is_constant_mask(mask) {
            Some(true) => x,
            Some(false) => y,
            None => self.emit_one(Op::Select, &[mask, x, y], ty),
        }
    }

    /// Converts each lane.
    pub fn convert(&mut self, conversion: Conversion, lane: Lane, x: Value) -> Value {
        if conversion == Conversion::Bitcast && self.lane(x) == lane {
            return x;
        }
        self.emit_one(Op::Convert(conversion, lane), &[x], Type::Vector(lane))
    }

    /// Rotates the lanes: lane i of the result is lane `(i + count) % lanes`.
    pub fn rotate(&mut self, count: u8, x: Value) -> Value {
        let ty = self.ty(x);
        self.emit_one(Op::Rotate(count), &[x], ty)
    }

    /// Loads consecutive lanes from `base + index * scale + offset`.
    pub fn load(&mut self, lane: Lane, at: Place, mask: Option<Value>) -> Value {
        let (address, mut operands) = at.operands();
        let mask = mask.filter(|&mask| self.is_constant_mask(mask) != Some(true));
        operands.extend(mask);
        self.emit_one(Op::Load { lane, address, masked: mask.is_some() }, &operands, Type::Vector(lane))
    }

    /// Stores consecutive lanes. `streaming` has no effect on a store with a mask, unless all lanes
    /// of the mask are known to be true.
    pub fn store(&mut self, at: Place, value: Value, mask: Option<Value>, streaming: bool) {
        let (address, mut operands) = at.operands();
        operands.push(value);
        let mask = mask.filter(|&mask| self.is_constant_mask(mask) != Some(true));
        operands.extend(mask);
        let streaming = streaming && mask.is_none();
        self.emit(Op::Store { address, masked: mask.is_some(), streaming }, &operands, None);
    }

    /// Moves the cache line of an address into the caches.
    pub fn prefetch(&mut self, at: Place) {
        let (address, operands) = at.operands();
        self.emit(Op::Prefetch { address }, &operands, None);
    }

    /// Loads one element into all lanes.
    pub fn load_splat(&mut self, lane: Lane, at: Place) -> Value {
        let (address, operands) = at.operands();
        self.emit_one(Op::LoadSplat { lane, address }, &operands, Type::Vector(lane))
    }

    /// Loads each lane whose mask is true from `base` plus its offset in bytes.
    pub fn gather(&mut self, lane: Lane, base: Value, offsets: Value, mask: Value) -> Value {
        self.emit_one(Op::Gather(lane), &[base, offsets, mask], Type::Vector(lane))
    }

    /// Stores each lane whose mask is true to `base` plus its offset in bytes.
    pub fn scatter(&mut self, base: Value, offsets: Value, value: Value, mask: Value) {
        self.emit(Op::Scatter, &[base, offsets, value, mask], None);
    }

    /// Returns a mask whose lanes are all true or all false.
    pub fn mask(&mut self, value: bool) -> Value {
        self.shared(Constant::Mask(value))
    }

    /// Returns the value of the lanes of a constant mask.
    fn is_constant_mask(&self, mask: Value) -> Option<bool> {
        let is = |value: bool| self.shared.get(&Constant::Mask(value)) == Some(&mask);
        if is(true) {
            Some(true)
        } else if is(false) {
            Some(false)
        } else {
            None
        }
    }

    /// Combines two masks.
    pub fn mask_binary(&mut self, function: MaskBinary, x: Value, y: Value) -> Value {
        match (function, self.is_constant_mask(x), self.is_constant_mask(y)) {
            (MaskBinary::And, Some(true), _) | (MaskBinary::Or, Some(false), _) => return y,
            (MaskBinary::And, _, Some(true)) | (MaskBinary::Or, _, Some(false)) => return x,
            // tidy: wildcard because the builder does not fold other combinations
            _ => {}
        }
        self.emit_one(Op::MaskBinary(function), &[x, y], Type::Mask)
    }

    /// Returns the complement of a mask.
    pub fn mask_not(&mut self, x: Value) -> Value {
        match self.is_constant_mask(x) {
            Some(value) => self.mask(!value),
            None => self.emit_one(Op::MaskNot, &[x], Type::Mask),
        }
    }

    /// Returns the lanes of `x` where the condition is true, and the lanes of `y` elsewhere.
    pub fn mask_select(&mut self, condition: Value, x: Value, y: Value) -> Value {
        match self.is_constant_mask(condition) {
            Some(true) => x,
            Some(false) => y,
            None => self.emit_one(Op::MaskSelect, &[condition, x, y], Type::Mask),
        }
    }

    /// Returns the mask of the first `count` lanes.
    pub fn first_lanes(&mut self, count: Value) -> Value {
        match self.known(count) {
            Some(count) if count <= 0 => self.mask(false),
            Some(count) if count >= self.lanes() as i64 => self.mask(true),
            // tidy: wildcard because other counts are computed at run time
            _ => self.emit_one(Op::FirstLanes, &[count], Type::Mask),
        }
    }

    /// Returns the mask with the bits of an integer.
    pub fn mask_of_bits(&mut self, bits: Value) -> Value {
        self.emit_one(Op::MaskOfBits, &[bits], Type::Mask)
    }

    /// Returns the bits of a mask.
    pub fn mask_bits(&mut self, mask: Value) -> Value {
        self.emit_one(Op::MaskBits, &[mask], Type::Int)
    }

    /// Calls a function.
    pub fn call(&mut self, function: usize, arguments: &[Value]) -> Value {
        self.emit_one(Op::Call { function }, arguments, Type::Int)
    }
}

/// A loop whose iteration is under construction.
#[derive(Debug)]
pub struct Loop {
    header: Block,
    after: Block,
    end: Value,
    /// The index of the iteration.
    pub index: Value,
    /// The values that the iteration receives.
    pub values: Vec<Value>,
    last_index: Value,
    last: Vec<Value>,
}

/// The address of an access: `base + index * scale + offset`.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The base.
    pub base: Value,
    /// The index and its factor: 1, 2, 4 or 8.
    pub index: Option<(Value, u8)>,
    /// The number of bytes to add.
    pub offset: i32,
}

impl Place {
    /// Returns the address `base`, without index and offset.
    pub fn at(base: Value) -> Self {
        Self { base, index: None, offset: 0 }
    }

    fn operands(self) -> (Address, SmallVec<[Value; 4]>) {
        let scale = self.index.map_or(1, |(_, scale)| scale);
        let address = Address { indexed: self.index.is_some(), scale, offset: self.offset };
        (address, std::iter::once(self.base).chain(self.index.map(|(index, _)| index)).collect())
    }
}

fn target(block: Block, arguments: &[Value]) -> Target {
    Target { block, arguments: arguments.to_vec() }
}
