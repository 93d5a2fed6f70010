//! Selects instructions of AArch64 for the operations of a function.
//!
//! A vector register has 4 lanes of at most 32 bits, or 2 lanes of 64 bits. Lanes of 8 and 16 bits
//! are in its lowest bits. A mask is a vector of 32-bit lanes that are all ones or all zeros.
//!
//! A comparison of integers with one use, in its own block, is *pending* until that use
//! ([`crate::select`]), whose instruction may read the flags.

mod access;
mod convert;
mod integer;
mod mask;
mod vector;

use regalloc2::{MachineEnv, PRegSet, RegClass, VReg};
use smallvec::SmallVec;

use super::{
    Aarch64, encode,
    instruction::{Arg, Condition, Field, Plain, plain},
    opcodes as o,
    opcodes::Opcode,
    registers::{self, ARGUMENTS, VECTOR_COUNT},
};
use crate::{
    Code, CompileError,
    allocate::Flow,
    ir::{Inst, Op, Value},
    select::{self, Assigned, Machine, MachineInst, VECTORS},
};

type Selector<'a> = select::Selector<'a, Aarch64>;

/// The fields of the operands that an instruction reads, in order.
const OPERANDS: [Field; 3] = [Field::N, Field::M, Field::A];

impl Machine for Aarch64 {
    type Plain = Plain;
    type Condition = Condition;
    type Isa = ();

    const ARGUMENT: usize = ARGUMENTS[0];
    const RESULT: usize = ARGUMENTS[0];

    fn environment((): ()) -> MachineEnv {
        registers::environment()
    }

    fn call_clobbers((): ()) -> PRegSet {
        registers::call_clobbers()
    }

    fn slots((): ()) -> [usize; 3] {
        [1, 2, 2]
    }

    fn vector_registers((): ()) -> usize {
        VECTOR_COUNT
    }

    fn mask_class((): ()) -> RegClass {
        VECTORS
    }

    fn int_constant(selector: &mut Selector<'_>, value: i64) -> VReg {
        selector.int_constant(value)
    }

    fn mask_constant(selector: &mut Selector<'_>, value: bool) -> VReg {
        if value { selector.ones() } else { selector.zeros() }
    }

    fn vector_constant(selector: &mut Selector<'_>, op: Op, part: usize) -> VReg {
        selector.vector_constant(op, part)
    }

    fn condition(selector: &mut Selector<'_>, value: Value) -> Result<Condition, CompileError> {
        selector.condition(value)
    }

    fn may_wait(op: &Op) -> bool {
        matches!(op, Op::IntCompare(_))
    }

    fn operation<'a>(selector: &mut Selector<'a>, inst: &'a Inst) -> Result<(), CompileError> {
        selector.operation(inst)
    }

    fn negated(condition: Condition) -> Condition {
        condition.negated()
    }

    fn encode(function: &Assigned<'_, Self>) -> Result<Code, CompileError> {
        encode::encode(function)
    }
}

impl<'a> Selector<'a> {
    fn emit(&mut self, opcode: Opcode, args: &[Arg]) {
        let (inst, operands) = plain(opcode, args);
        self.push(MachineInst::Plain(inst), &operands, Flow::Next);
    }

    fn emit_to(&mut self, opcode: Opcode, result: Arg, operands: &[VReg]) {
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        args.push(result);
        args.extend(operands.iter().zip(OPERANDS).map(|(&register, field)| Arg::Use(field, register)));
        self.emit(opcode, &args);
    }

    /// Emits an instruction whose result is a new vector register.
    fn compute(&mut self, opcode: Opcode, operands: &[VReg]) -> VReg {
        let def = self.vector();
        self.emit_to(opcode, Arg::Def(Field::D, def), operands);
        def
    }

    /// Emits an instruction whose result is a new general register.
    fn compute_int(&mut self, opcode: Opcode, operands: &[VReg]) -> VReg {
        let def = self.int();
        self.emit_to(opcode, Arg::Def(Field::D, def), operands);
        def
    }

    /// Emits an instruction that overwrites `input`.
    fn modify(&mut self, opcode: Opcode, input: VReg, operands: &[VReg]) -> VReg {
        let def = self.register(input.class());
        self.emit_to(opcode, Arg::Tied { def, input }, operands);
        def
    }

    fn operation(&mut self, inst: &'a Inst) -> Result<(), CompileError> {
        let operands = inst.operands.as_slice();
        let result = || {
            inst.result.ok_or_else(|| CompileError::Unsupported(format!("{:?} without a result", inst.op)))
        };
        match inst.op {
            Op::IntConstant(_) | Op::Constant(..) | Op::Iota(_) | Op::MaskConstant(_) => Ok(()),
            Op::IntBinary(function) => self.int_binary(result()?, function, operands[0], operands[1]),
            Op::IntCompare(_) => self.int_compare(result()?, inst),
            Op::IntSelect => self.int_select(result()?, operands),
            Op::IntExtend { bits, signed } => self.int_extend(result()?, bits, signed, operands[0]),
            Op::IntLoad { bytes, address } => self.int_load(result()?, bytes, address, operands),
            Op::IntStore { bytes, address } => self.int_store(bytes, address, operands),
            Op::Splat(lane) => self.splat(result()?, lane, operands[0]),
            Op::First => self.first(result()?, operands[0]),
            Op::Unary(function) => self.unary(result()?, function, operands[0]),
            Op::Binary(function) => self.binary(result()?, function, operands[0], operands[1]),
            Op::MultiplyAdd => self.multiply_add(result()?, operands),
            Op::Compare(function) => self.compare(result()?, function, operands[0], operands[1]),
            Op::Select => self.select(result()?, operands),
            Op::Convert(conversion, lane) => self.convert(result()?, conversion, lane, operands[0]),
            Op::Rotate(count) => self.rotate(result()?, count, operands[0]),
            Op::Load { lane, address, masked } => self.load(result()?, lane, address, masked, operands),
            // A streaming store becomes an ordinary store: `stnp` stores only pairs of registers.
            Op::Store { address, masked, streaming: _ } => self.store(address, masked, operands),
            Op::Prefetch { address } => self.prefetch(address, operands),
            Op::LoadSplat { lane, address } => self.load_splat(result()?, lane, address, operands),
            Op::Gather(lane) => self.gather(result()?, lane, operands),
            Op::Scatter => self.scatter(operands),
            Op::MaskBinary(function) => self.mask_binary(result()?, function, operands[0], operands[1]),
            Op::MaskNot => self.mask_not(result()?, operands[0]),
            Op::MaskSelect => self.mask_select(result()?, operands),
            Op::FirstLanes => self.first_lanes(result()?, operands[0]),
            Op::MaskOfBits => self.mask_of_bits(result()?, operands[0]),
            Op::MaskBits => self.mask_bits(result()?, operands[0]),
            Op::Call { function } => self.call(inst.result, function, operands),
        }
    }
}
