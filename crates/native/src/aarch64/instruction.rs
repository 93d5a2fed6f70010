//! Defines instructions of AArch64 whose registers are not assigned yet.

use regalloc2::{Operand, VReg};
use smallvec::SmallVec;

use super::opcodes::Opcode;

/// The position of a register in an instruction, by its name in the manual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The result, or the register that a store reads.
    D = 0,
    /// The first operand, or the base of an address.
    N = 5,
    /// The accumulator.
    A = 10,
    /// The second operand, or the index of an address.
    M = 16,
}

#[derive(Clone, Debug)]
pub struct Plain {
    /// The instruction word, with empty register fields.
    pub opcode: Opcode,
    /// The field of each register, and the index of its operand for the allocator.
    pub registers: SmallVec<[(Field, u8); 4]>,
    /// The index of the constant in memory, if the instruction reads one.
    pub constant: Option<usize>,
    /// The processor skips the instruction if this bit of this register is 0. The register is an
    /// index in the operands for the allocator.
    pub guard: Option<(u8, u32)>,
}

/// A condition on the flags, with its number in the encoding of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Equal = 0,
    NotEqual = 1,
    /// Unsigned at least.
    AboveOrEqual = 2,
    /// Unsigned less than.
    Below = 3,
    /// Unsigned greater than.
    Above = 8,
    /// Unsigned at most.
    BelowOrEqual = 9,
    /// Signed at least.
    GreaterOrEqual = 10,
    /// Signed less than.
    Less = 11,
    /// Signed greater than.
    Greater = 12,
    /// Signed at most.
    LessOrEqual = 13,
}

impl Condition {
    #[must_use]
    pub fn negated(self) -> Self {
        use Condition as C;
        match self {
            C::Equal => C::NotEqual,
            C::NotEqual => C::Equal,
            C::AboveOrEqual => C::Below,
            C::Below => C::AboveOrEqual,
            C::Above => C::BelowOrEqual,
            C::BelowOrEqual => C::Above,
            C::GreaterOrEqual => C::Less,
            C::Less => C::GreaterOrEqual,
            C::Greater => C::LessOrEqual,
            C::LessOrEqual => C::Greater,
        }
    }

    #[must_use]
    pub fn swapped(self) -> Self {
        use Condition as C;
        match self {
            C::Equal => C::Equal,
            C::NotEqual => C::NotEqual,
            C::AboveOrEqual => C::BelowOrEqual,
            C::Below => C::Above,
            C::Above => C::Below,
            C::BelowOrEqual => C::AboveOrEqual,
            C::GreaterOrEqual => C::LessOrEqual,
            C::Less => C::Greater,
            C::Greater => C::Less,
            C::LessOrEqual => C::GreaterOrEqual,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A register that the instruction writes.
    Def(Field, VReg),
    /// A register that the instruction reads.
    Use(Field, VReg),
    /// The register of the result. The instruction also reads an input from it.
    Tied {
        def: VReg,
        /// The value of the register before the instruction.
        input: VReg,
    },
    /// A constant in memory, by its index.
    Constant(usize),
    /// The processor skips the instruction if this bit of the register is 0.
    Guard(VReg, u32),
}

/// Returns an instruction, and its operands for the allocator.
pub fn plain(opcode: Opcode, args: &[Arg]) -> (Plain, SmallVec<[Operand; 6]>) {
    let mut result = Plain { opcode, registers: SmallVec::new(), constant: None, guard: None };
    let mut operands: SmallVec<[Operand; 6]> = SmallVec::new();
    for arg in args {
        match *arg {
            Arg::Def(field, register) => {
                result.registers.push((field, operands.len() as u8));
                operands.push(Operand::reg_def(register));
            }
            Arg::Use(field, register) => {
                result.registers.push((field, operands.len() as u8));
                operands.push(Operand::reg_use(register));
            }
            Arg::Tied { def, input } => {
                operands.push(Operand::reg_use(input));
                result.registers.push((Field::D, operands.len() as u8));
                operands.push(Operand::reg_reuse_def(def, operands.len() - 1));
            }
            Arg::Constant(index) => result.constant = Some(index),
            Arg::Guard(register, bit) => {
                result.guard = Some((operands.len() as u8, bit));
                operands.push(Operand::reg_use(register));
            }
        }
    }
    (result, operands)
}
