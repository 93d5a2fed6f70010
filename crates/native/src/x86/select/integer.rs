//! Selects instructions for operations on integers.

use iced_x86::{Code as C, OpKind};
use regalloc2::{Operand, PReg, VReg};

use super::{
    Arg, Condition, Flow, INTS, MachineInst, Memory, RAX, Selector, Size, imm8,
    registers::{ARGUMENTS, RDX},
};
use crate::{
    CompileError,
    ir::{Inst, IntBinary, IntCompare, Op, Value},
    x86::instruction::{Base, imm32},
};

impl Selector<'_> {
    /// Moves a constant to a new register. Does not change the flags.
    pub(super) fn int_constant(&mut self, value: i64) -> VReg {
        if u32::try_from(value).is_ok() {
            self.compute_int(C::Mov_r32_imm32, Size::R32, &[Arg::Immediate(OpKind::Immediate32, value)])
        } else if let Ok(value) = i32::try_from(value) {
            self.compute_int(C::Mov_rm64_imm32, Size::R64, &[imm32(value)])
        } else {
            self.compute_int(C::Mov_r64_imm64, Size::R64, &[Arg::Immediate(OpKind::Immediate64, value)])
        }
    }

    /// Returns a 32-bit constant if possible, otherwise a register.
    fn int_operand(&mut self, value: Value) -> Result<Arg, CompileError> {
        match self.known_i32(value) {
            Some(value) => Ok(imm32(value)),
            None => Ok(Arg::Use(self.read(value, 0)?, Size::R64)),
        }
    }

    /// Computes an address by `lea`.
    fn lea(&mut self, base: VReg, index: Option<(VReg, u8)>, offset: i32) -> VReg {
        let index = index.map(|(index, scale)| (index, Size::R64, scale));
        let memory = Memory { base: Base::Register(base), index, offset, is_broadcast: false };
        self.compute_int(C::Lea_r64_m, Size::R64, &[Arg::Memory(memory)])
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
                let negated = |value: i32| if function == F::Sub { value.checked_neg() } else { Some(value) };
                match self.known_i32(y).and_then(negated) {
                    Some(offset) => {
                        let x = self.read(x, 0)?;
                        self.lea(x, None, offset)
                    }
                    None if function == F::Add => {
                        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
                        self.lea(x, Some((y, 1)), 0)
                    }
                    None => {
                        let (x, y) = (self.read(x, 0)?, self.int_operand(y)?);
                        self.modify_int_by(C::Sub_r64_rm64, C::Sub_rm64_imm32, x, y)
                    }
                }
            }
            F::Mul => self.int_multiply(x, y)?,
            F::And => self.logical(C::And_r64_rm64, C::And_rm64_imm32, x, y)?,
            F::Or => self.logical(C::Or_r64_rm64, C::Or_rm64_imm32, x, y)?,
            F::Xor => self.logical(C::Xor_r64_rm64, C::Xor_rm64_imm32, x, y)?,
            F::Shl => self.int_shift(C::VEX_Shlx_r64_rm64_r64, C::Shl_rm64_imm8, x, y)?,
            F::Shr => self.int_shift(C::VEX_Shrx_r64_rm64_r64, C::Shr_rm64_imm8, x, y)?,
            F::Sar => self.int_shift(C::VEX_Sarx_r64_rm64_r64, C::Sar_rm64_imm8, x, y)?,
            F::Min => self.int_extremum(Condition::Greater, x, y)?,
            F::Max => self.int_extremum(Condition::Less, x, y)?,
            F::DivSigned | F::RemSigned | F::DivUnsigned | F::RemUnsigned => {
                let is_signed = matches!(function, F::DivSigned | F::RemSigned);
                let [quotient, remainder] = self.divide(is_signed, x, y)?;
                if matches!(function, F::DivSigned | F::DivUnsigned) { quotient } else { remainder }
            }
        };
        self.set(result, 0, register);
        Ok(())
    }

    fn modify_int_by(&mut self, code: C, immediate: C, x: VReg, y: Arg) -> VReg {
        let code = if matches!(y, Arg::Immediate(..)) { immediate } else { code };
        self.modify_int(code, x, &[y])
    }

    fn logical(&mut self, code: C, immediate: C, x: Value, y: Value) -> Result<VReg, CompileError> {
        let (x, y) = (self.read(x, 0)?, self.int_operand(y)?);
        Ok(self.modify_int_by(code, immediate, x, y))
    }

    fn int_multiply(&mut self, x: Value, y: Value) -> Result<VReg, CompileError> {
        let x = self.read(x, 0)?;
        match self.known_i32(y) {
            Some(2) => Ok(self.lea(x, Some((x, 1)), 0)),
            Some(factor @ (3 | 5 | 9)) => Ok(self.lea(x, Some((x, factor as u8 - 1)), 0)),
            Some(factor) if factor > 0 && factor.count_ones() == 1 => {
                Ok(self.modify_int(C::Shl_rm64_imm8, x, &[imm8(factor.trailing_zeros() as u8)]))
            }
            Some(factor) => {
                let args = [Arg::Use(x, Size::R64), imm32(factor)];
                Ok(self.compute_int(C::Imul_r64_rm64_imm32, Size::R64, &args))
            }
            None => {
                let y = self.read(y, 0)?;
                Ok(self.modify_int(C::Imul_r64_rm64, x, &[Arg::Use(y, Size::R64)]))
            }
        }
    }

    fn int_shift(&mut self, code: C, immediate: C, x: Value, count: Value) -> Result<VReg, CompileError> {
        let x = self.read(x, 0)?;
        if let Some(count) = self.known_int(count) {
            return Ok(self.modify_int(immediate, x, &[imm8((count & 63) as u8)]));
        }
        let count = self.read(count, 0)?;
        Ok(self.compute_int(code, Size::R64, &[Arg::Use(x, Size::R64), Arg::Use(count, Size::R64)]))
    }

    /// Returns `y` if the comparison of `x` and `y` is true, otherwise `x`.
    fn int_extremum(&mut self, condition: Condition, x: Value, y: Value) -> Result<VReg, CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        self.emit(C::Cmp_r64_rm64, &[Arg::Use(x, Size::R64), Arg::Use(y, Size::R64)]);
        Ok(self.modify_int(condition.conditional_move(), x, &[Arg::Use(y, Size::R64)]))
    }

    /// Divides `x`, extended to `rdx:rax`, by `y`. Returns the quotient and the remainder.
    fn divide(&mut self, is_signed: bool, x: Value, y: Value) -> Result<[VReg; 2], CompileError> {
        let (x, y) = (self.read(x, 0)?, self.read(y, 0)?);
        let [rax, rdx] = [RAX, RDX].map(|register| PReg::new(register, INTS));
        let (high, code) = if is_signed {
            let high = self.int();
            self.emit(C::Cqo, &[Arg::FixedUse(x, rax), Arg::FixedDef(high, rdx)]);
            (high, C::Idiv_rm64)
        } else {
            (self.int_constant(0), C::Div_rm64)
        };
        let [quotient, remainder] = [self.int(), self.int()];
        self.emit(
            code,
            &[
                Arg::Use(y, Size::R64),
                Arg::FixedUse(x, rax),
                Arg::FixedUse(high, rdx),
                Arg::FixedDef(quotient, rax),
                Arg::FixedDef(remainder, rdx),
            ],
        );
        Ok([quotient, remainder])
    }

    /// Compares integers. Returns a condition, before whose use only moves may be emitted.
    fn compare_flags(&mut self, inst: &Inst) -> Result<Condition, CompileError> {
        let Op::IntCompare(function) = inst.op else {
            return Err(CompileError::Unsupported(format!("flags of {:?}", inst.op)));
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
        let is_swapped = self.known_i32(x).is_some() && self.known(y).is_none();
        let (x, y, condition) = if is_swapped { (y, x, condition.swapped()) } else { (x, y, condition) };
        let (x, y) = (self.read(x, 0)?, self.int_operand(y)?);
        let code = match y {
            Arg::Immediate(_, value) if i8::try_from(value).is_ok() => C::Cmp_rm64_imm8,
            Arg::Immediate(..) => C::Cmp_rm64_imm32,
            // tidy: wildcard because the other operands are registers
            _ => C::Cmp_r64_rm64,
        };
        let y = match y {
            Arg::Immediate(_, value) if code == C::Cmp_rm64_imm8 => {
                Arg::Immediate(OpKind::Immediate8to64, value)
            }
            other => other,
        };
        self.emit(code, &[Arg::Use(x, Size::R64), y]);
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
        self.emit(C::Test_rm64_r64, &[Arg::Use(value, Size::R64), Arg::Use(value, Size::R64)]);
        Ok(Condition::NotEqual)
    }

    pub(super) fn int_compare(&mut self, result: Value, inst: &Inst) -> Result<(), CompileError> {
        let condition = self.compare_flags(inst)?;
        let byte = self.compute_int(condition.set(), Size::R8, &[]);
        let extended = self.compute_int(C::Movzx_r32_rm8, Size::R32, &[Arg::Use(byte, Size::R8)]);
        self.set(result, 0, extended);
        Ok(())
    }

    pub(super) fn int_select(&mut self, result: Value, operands: &[Value]) -> Result<(), CompileError> {
        let (x, y) = (self.read(operands[1], 0)?, self.read(operands[2], 0)?);
        let condition = self.condition(operands[0])?;
        let register = self.modify_int(condition.conditional_move(), y, &[Arg::Use(x, Size::R64)]);
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
        let x = self.read(x, 0)?;
        let (code, to, from) = match (bits, is_signed) {
            (8, false) => (C::Movzx_r32_rm8, Size::R32, Size::R8),
            (16, false) => (C::Movzx_r32_rm16, Size::R32, Size::R16),
            (32, false) => (C::Mov_r32_rm32, Size::R32, Size::R32),
            (8, true) => (C::Movsx_r64_rm8, Size::R64, Size::R8),
            (16, true) => (C::Movsx_r64_rm16, Size::R64, Size::R16),
            (32, true) => (C::Movsxd_r64_rm32, Size::R64, Size::R32),
            // tidy: wildcard because the verifier rejects other widths
            _ => return Err(CompileError::Unsupported(format!("the extension of {bits} bits"))),
        };
        let register = self.compute_int(code, to, &[Arg::Use(x, from)]);
        self.set(result, 0, register);
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        result: Option<Value>,
        function: usize,
        operands: &[Value],
    ) -> Result<(), CompileError> {
        self.force_loads()?;
        if operands.len() > ARGUMENTS.len() {
            return Err(CompileError::Unsupported(format!("a call with {} arguments", operands.len())));
        }
        let mut list = Vec::new();
        for (&operand, &register) in operands.iter().zip(&ARGUMENTS) {
            list.push(Operand::reg_fixed_use(self.read(operand, 0)?, PReg::new(register, INTS)));
        }
        let register = self.int();
        list.push(Operand::reg_fixed_def(register, PReg::new(RAX, INTS)));
        self.push(MachineInst::Call(function), &list, Flow::Next);
        if let Some(result) = result {
            self.set(result, 0, register);
        }
        Ok(())
    }
}
