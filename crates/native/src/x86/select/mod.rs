//! Selects instructions of x86-64 for the operations of a function.
//!
//! With AVX-512, a mask has a mask register. With AVX2, it is a vector of 32-bit lanes that are all
//! ones or all zeros.
//!
//! A vector load without a mask, or a comparison of integers, may be *pending* until its only use,
//! in the same block ([`crate::select`]). The instruction of the use may include it.

mod access;
mod convert;
mod integer;
mod mask;
mod vector;

use iced_x86::Code as C;
use regalloc2::{MachineEnv, PRegSet, RegClass, VReg};
use smallvec::SmallVec;

use super::{
    Isa, X86, encode,
    instruction::{Arg, Condition, Masking, Memory, Plain, imm8, plain},
    registers::{self, MASKS, RAX, Size},
    tables,
};
use crate::{
    Code, CompileError,
    allocate::Flow,
    ir::{Inst, Lane, Op, Value},
    select::{self, Assigned, INTS, Machine, MachineInst, VECTORS, lane_parts},
};

type Selector<'a> = select::Selector<'a, X86>;

impl Machine for X86 {
    type Plain = Plain;
    type Condition = Condition;
    type Isa = Isa;

    const ARGUMENT: usize = registers::ARGUMENTS[0];
    const RESULT: usize = RAX;

    fn environment(isa: Isa) -> MachineEnv {
        registers::environment(isa)
    }

    fn call_clobbers(isa: Isa) -> PRegSet {
        registers::call_clobbers(isa)
    }

    fn slots(isa: Isa) -> [usize; 3] {
        registers::slots(isa)
    }

    fn vector_registers(isa: Isa) -> usize {
        registers::vector_count(isa)
    }

    fn mask_class(isa: Isa) -> RegClass {
        if isa == Isa::Avx512 { MASKS } else { VECTORS }
    }

    fn int_constant(selector: &mut Selector<'_>, value: i64) -> VReg {
        selector.int_constant(value)
    }

    fn mask_constant(selector: &mut Selector<'_>, value: bool) -> VReg {
        selector.mask_constant(value)
    }

    fn vector_constant(selector: &mut Selector<'_>, op: Op, part: usize) -> VReg {
        selector.vector_constant(op, part)
    }

    fn condition(selector: &mut Selector<'_>, value: Value) -> Result<Self::Condition, CompileError> {
        selector.condition(value)
    }

    fn may_wait(op: &Op) -> bool {
        matches!(op, Op::Load { masked: false, .. } | Op::LoadSplat { .. } | Op::IntCompare(_))
    }

    fn operation<'a>(selector: &mut Selector<'a>, inst: &'a Inst) -> Result<(), CompileError> {
        selector.operation(inst)
    }

    fn negated(condition: Self::Condition) -> Self::Condition {
        condition.negated()
    }

    fn encode(function: &Assigned<'_, Self>) -> Result<Code, CompileError> {
        encode::encode(function)
    }
}

impl<'a> Selector<'a> {
    fn is_avx512(&self) -> bool {
        self.isa == Isa::Avx512
    }

    /// Returns the part of a register that has the lanes of a type.
    fn size(&self, lane: Lane) -> Size {
        match (self.isa, lane) {
            (Isa::Avx512, Lane::I8) | (Isa::Avx2, Lane::I8 | Lane::I16) => Size::X,
            (Isa::Avx512, Lane::I16) | (Isa::Avx2, _) => Size::Y,
            (Isa::Avx512, _) => Size::Z,
        }
    }

    /// Returns the part of a register that has half the lanes of a type of at most 32 bits.
    fn half_size(&self, lane: Lane) -> Size {
        if self.is_avx512() && lane.bytes() == 4 { Size::Y } else { Size::X }
    }

    /// Returns the part of a vector register with all its bits.
    fn full(&self) -> Size {
        if self.is_avx512() { Size::Z } else { Size::Y }
    }

    /// Returns the first value for AVX-512, and the second value for AVX2.
    fn by_isa<T>(&self, avx512: T, avx2: T) -> T {
        if self.is_avx512() { avx512 } else { avx2 }
    }

    fn emit(&mut self, code: C, args: &[Arg]) {
        self.emit_masked(code, args, Masking::All);
    }

    fn emit_masked(&mut self, code: C, args: &[Arg], masking: Masking) {
        debug_assert!(code != C::INVALID, "the ISA has the instruction");
        let (inst, operands) = plain(code, args, masking);
        self.push(MachineInst::Plain(inst), &operands, Flow::Next);
    }

    /// Emits an instruction whose result is a new vector register.
    fn compute(&mut self, code: C, size: Size, rest: &[Arg]) -> VReg {
        let def = self.vector();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Def(def, size));
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Emits an instruction whose result is a new general register.
    fn compute_int(&mut self, code: C, size: Size, rest: &[Arg]) -> VReg {
        let def = self.int();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Def(def, size));
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Emits an instruction that overwrites a general register.
    fn modify_int(&mut self, code: C, input: VReg, rest: &[Arg]) -> VReg {
        let def = self.int();
        let mut args: SmallVec<[Arg; 5]> = SmallVec::new();
        args.push(Arg::Tied { def, input, size: Size::R64 });
        args.extend_from_slice(rest);
        self.emit(code, &args);
        def
    }

    /// Returns the value of a constant integer of 32 bits.
    fn known_i32(&self, value: Value) -> Option<i32> {
        self.known_int(value).and_then(|value| i32::try_from(value).ok())
    }

    /// Emits the pending loads, because the next instruction may write their memory.
    fn force_loads(&mut self) -> Result<(), CompileError> {
        let loads: Vec<Value> = self
            .pending
            .iter()
            .filter(|(_, inst)| matches!(inst.op, Op::Load { .. } | Op::LoadSplat { .. }))
            .map(|&(value, _)| value)
            .collect();
        loads.into_iter().try_for_each(|value| self.force(value))
    }

    /// Returns a part of a vector, in a register or memory. `broadcast` is the size in bytes of the
    /// element that the instruction can copy to all lanes, if any.
    fn operand(&mut self, value: Value, part: usize, broadcast: Option<usize>) -> Result<Arg, CompileError> {
        let lane = self.lane(value)?;
        let size = self.size(lane);
        if let Some(register) = self.hoisted(value, part) {
            return Ok(Arg::Use(register, size));
        }
        if let Some(op) = self.known(value) {
            return Ok(Arg::Memory(self.constant_memory(op, part, size, broadcast)));
        }
        if let Some(inst) = self.find_pending(value)
            && let Some(memory) = self.pending_memory(inst, part, broadcast)?
        {
            if part + 1 == self.parts(value) {
                self.take_pending(value);
            }
            return Ok(Arg::Memory(memory));
        }
        Ok(Arg::Use(self.read(value, part)?, size))
    }

    /// Returns whether [`Self::operand`] returns a memory operand.
    fn can_be_memory(&self, value: Value, broadcast: Option<usize>) -> bool {
        if self.known(value).is_some() {
            return self.hoisted(value, 0).is_none();
        }
        let Some(inst) = self.find_pending(value) else { return false };
        match inst.op {
            Op::Load { lane, .. } => self.fills_register(lane),
            Op::LoadSplat { lane, .. } => broadcast == Some(lane.bytes()),
            // tidy: wildcard because other instructions load no vector
            _ => false,
        }
    }

    /// Returns whether the lanes have at least 128 bits, the fewest that a memory operand reads.
    fn fills_register(&self, lane: Lane) -> bool {
        self.is_avx512() || lane != Lane::I8
    }

    fn pending_memory(
        &mut self,
        inst: &Inst,
        part: usize,
        broadcast: Option<usize>,
    ) -> Result<Option<Memory>, CompileError> {
        match inst.op {
            Op::Load { lane, address, .. } if self.fills_register(lane) => {
                let memory = self.memory(address, &inst.operands)?;
                Ok(Some(memory.plus((part * self.register_bytes(lane)) as i32)))
            }
            Op::LoadSplat { lane, address } if broadcast == Some(lane.bytes()) => {
                Ok(Some(Memory { is_broadcast: true, ..self.memory(address, &inst.operands)? }))
            }
            // tidy: wildcard because other instructions load no vector
            _ => Ok(None),
        }
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
            Op::Store { address, masked, streaming } => self.store(address, masked, streaming, operands),
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
