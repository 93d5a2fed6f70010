//! Selects instructions for operations on integers.

use regalloc2::{Operand, PReg, VReg};

use super::{Arg, Condition, Field, Opcode, Selector, o, registers::ARGUMENTS};
use crate::{
    CompileError,
    aarch64::{encode::move_constant, immediates},
    allocate::Flow,
    ir::{Inst, IntBinary, IntCompare, Op, Value},
    select::{INTS, MachineInst},
};

impl Selector<'_> {
    /// Moves a constant to a new register. Does not change the flags.
    pub(super) fn int_constant(&mut self, value: i64) -> VReg {
        let mut register = None;
        for (index, opcode) in move_constant(value as u64) {
            let opcode = opcode.with(index << 21);
            register = Some(match register {
                None => self.compute_int(opcode, &[]),
                Some(register) => self.modify(opcode, register, &[]),
            });
        }
        register.expect("a constant has an instruction")
    }

    /// Adds a constant. Returns the same register if the constant is 0.
    pub(super) fn add_constant(&mut self, x: VReg, value: i64) -> VReg {
        if value == 0 {
            return x;
        }
        if let Some(bits) = immediates::addition(value) {
            return self.compute_int(o::ADD_IMMEDIATE.with(bits), &[x]);
        }
        if let Some(bits) = value.checked_neg().and_then(immediates::addition) {
            return self.compute_int(o::SUB_IMMEDIATE.with(bits), &[x]);
        }
        let value = self.int_constant(value);
        self.compute_int(o::ADD, &[x, value])
    }

    pub(super) fn int_binary(
        &mut self,
        result: Value,
        function: IntBinary,
        x: Value,
        y: Value,
    ) -> Result<(), CompileError> {
        use IntBinary as F;
        let is_commutative = matches!(function, F::Add | F::Mul | F::And | F::Or | F::Xor | F::Min | F::Max);
        let (x, y) = if is_commutative && self.known(x).is_some() { (y, x) } else { (x, y) };
        let register = match function {
            F::Add | F::Sub => {
                let negated = |value: i64| if function == F::Sub { value.checked_neg() } else { Some(value) };
                match self.known_int(y).and_then(negated) {
                    Some(value) => {
                        let x = self.read(x, 0)?;
                        self.add_constant(x, value)
                    }
                    None => self.apply_int(if function == F::Add { o::ADD } else { o::SUB }, x, y)?,
                }
            }
            F::Mul => match self.known_int(y) {
                Some(factor) if factor > 0 && factor.count_ones() == 1 => {
                    let x = self.read(x, 0)?;
                    self.shift_left(x, factor.trailing_zeros())
                }
                _ => self.apply_int(o::MUL, x, y)?,
            },
            F::And => self.bitwise(o::AND, o::AND_IMMEDIATE, x, y)?,
            F::Or => self.bitwise(o::ORR, o::ORR_IMMEDIATE, x, y)?,
            F::Xor => self.bitwise(o::EOR, o::EOR_IMMEDIATE, x, y)?,
            F::Shl | F::Shr | F::Sar => self.int_shift(function, x, y)?,
            F::Min => self.int_extremum(Condition::Less, x, y)?,
            F::Max => self.int_extremum(Condition::Greater, x, y)?,
            F::DivSigned => self.apply_int(o::SDIV, x, y)?,
            F::DivUnsigned => self.apply_int(o::UDIV, x, y)?,
            F::RemSigned => self.remainder(o::SDIV, x, y)?,
            F::RemUnsigned => self.remainder(o::UDIV, x, y)?,
        };
        self.set(result, 0, register);
        Ok(())
    }

    fn apply_int(&mut self, opcode: Opcode, x: Value, y: Value) -> Result<VReg, CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        Ok(self.compute_int(opcode, &[x, y]))
    }

    fn bitwise(
        &mut self,
        opcode: Opcode,
        immediate: Opcode,
        x: Value,
        y: Value,
    ) -> Result<VReg, CompileError> {
        if let Some(bits) = self.known_int(y).and_then(|value| immediates::bitwise(value as u64)) {
            let x = self.read(x, 0)?;
            return Ok(self.compute_int(immediate.with(bits), &[x]));
        }
        self.apply_int(opcode, x, y)
    }

    fn shift_left(&mut self, x: VReg, count: u32) -> VReg {
        let (rotation, last) = ((64 - count) % 64, 63 - count);
        self.compute_int(o::UBFM.with(rotation << 16 | last << 10), &[x])
    }

    fn int_shift(&mut self, function: IntBinary, x: Value, count: Value) -> Result<VReg, CompileError> {
        let (variable, to_right) = match function {
            IntBinary::Shl => (o::LSL, None),
            IntBinary::Shr => (o::LSR, Some(o::UBFM)),
            // tidy: wildcard because the other shift inserts the sign
            _ => (o::ASR, Some(o::SBFM)),
        };
        let Some(constant) = self.known_int(count) else { return self.apply_int(variable, x, count) };
        let x = self.read(x, 0)?;
        let constant = (constant & 63) as u32;
        Ok(match to_right {
            None => self.shift_left(x, constant),
            Some(opcode) => self.compute_int(opcode.with(constant << 16 | 63 << 10), &[x]),
        })
    }

    /// Returns `x` if the comparison of `x` and `y` is true, otherwise `y`.
    fn int_extremum(&mut self, condition: Condition, x: Value, y: Value) -> Result<VReg, CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        self.emit(o::CMP, &[Arg::Use(Field::N, x), Arg::Use(Field::M, y)]);
        Ok(self.choose(condition, x, y))
    }

    fn choose(&mut self, condition: Condition, x: VReg, y: VReg) -> VReg {
        self.compute_int(o::CSEL.with((condition as u32) << 12), &[x, y])
    }

    /// Returns the remainder of a division, `x - x / y * y`.
    fn remainder(&mut self, divide: Opcode, x: Value, y: Value) -> Result<VReg, CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        let quotient = self.compute_int(divide, &[x, y]);
        Ok(self.compute_int(o::MSUB, &[quotient, y, x]))
    }

    /// Compares integers. Returns a condition, before whose use only moves may be emitted.
    fn compare_flags(&mut self, inst: &Inst) -> Result<Condition, CompileError> {
        let Op::IntCompare(function) = inst.op else {
            return Err(CompileError::Unsupported(format!("a comparison by {:?}", inst.op)));
        };
        let condition = match function {
            IntCompare::Eq => Condition::Equal,
            IntCompare::Ne => Condition::NotEqual,
            IntCompare::LtSigned => Condition::Less,
            IntCompare::LeSigned => Condition::LessOrEqual,
            IntCompare::LtUnsigned => Condition::Below,
            IntCompare::LeUnsigned => Condition::BelowOrEqual,
        };
        let (x, y) = (inst.operands[0], inst.operands[1]);
        let is_swapped = self.known(x).is_some() && self.known(y).is_none();
        let (x, y, condition) = if is_swapped { (y, x, condition.swapped()) } else { (x, y, condition) };
        let x = self.read(x, 0)?;
        if let Some(value) = self.known_int(y) {
            if let Some(bits) = immediates::addition(value) {
                self.emit(o::CMP_IMMEDIATE.with(bits), &[Arg::Use(Field::N, x)]);
                return Ok(condition);
            }
            if let Some(bits) = value.checked_neg().and_then(immediates::addition) {
                self.emit(o::CMN_IMMEDIATE.with(bits), &[Arg::Use(Field::N, x)]);
                return Ok(condition);
            }
        }
        let y = self.read(y, 0)?;
        self.emit(o::CMP, &[Arg::Use(Field::N, x), Arg::Use(Field::M, y)]);
        Ok(condition)
    }

    /// Returns the condition that an integer is not 0. Before its use, only moves may be emitted.
    pub(super) fn condition(&mut self, value: Value) -> Result<Condition, CompileError> {
        if self.find_pending(value).is_some_and(|inst| matches!(inst.op, Op::IntCompare(_)))
            && let Some(inst) = self.take_pending(value)
        {
            return self.compare_flags(inst);
        }
        let value = self.read(value, 0)?;
        self.emit(o::CMP_IMMEDIATE, &[Arg::Use(Field::N, value)]);
        Ok(Condition::NotEqual)
    }

    pub(super) fn int_compare(&mut self, result: Value, inst: &Inst) -> Result<(), CompileError> {
        let condition = self.compare_flags(inst)?;
        // The instruction takes the opposite condition.
        let register = self.compute_int(o::CSET.with((condition.negated() as u32) << 12), &[]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn int_select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let (x, y) = (self.read(operands[1], 0)?, self.read(operands[2], 0)?);
        let condition = self.condition(operands[0])?;
        let register = self.choose(condition, x, y);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn int_extend(
        &mut self,
        result: Value,
        bits: u8,
        is_signed: bool,
        x: Value,
    ) -> Result<(), CompileError> {
        if !matches!(bits, 8 | 16 | 32) {
            return Err(CompileError::Unsupported(format!("the extension of {bits} bits")));
        }
        let x = self.read(x, 0)?;
        let opcode = if is_signed { o::SBFM } else { o::UBFM };
        let register = self.compute_int(opcode.with((u32::from(bits) - 1) << 10), &[x]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        result: Option<Value>,
        function: usize,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        if operands.len() > ARGUMENTS.len() {
            return Err(CompileError::Unsupported(format!("a call with {} arguments", operands.len())));
        }
        let mut list = Vec::new();
        for (&operand, &register) in operands.iter().zip(&ARGUMENTS) {
            list.push(Operand::reg_fixed_use(self.read(operand, 0)?, PReg::new(register, INTS)));
        }
        let register = self.int();
        list.push(Operand::reg_fixed_def(register, PReg::new(ARGUMENTS[0], INTS)));
        self.push(MachineInst::Call(function), &list, Flow::Next);
        if let Some(result) = result {
            self.set(result, 0, register);
        }
        Ok(())
    }
}
