//! Instructions of AArch64 whose registers are not assigned yet.

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

/// An instruction of the processor.
#[derive(Clone, Debug)]
pub struct Plain {
    /// The instruction word, whose register fields are 0.
    pub opcode: Opcode,
    /// For each register of the instruction: its field, and the index of its operand in the
    /// allocator's list.
    pub registers: SmallVec<[(Field, u8); 4]>,
    /// The index of the constant in memory that the instruction reads, if any.
    pub constant: Option<usize>,
    /// The index of a register in the allocator's list, and a bit of that register. The processor
    /// skips the instruction if the bit is 0. It is `None` if the processor always executes the
    /// instruction.
    pub guard: Option<(u8, u32)>,
}

/// A condition on the flags, with its number in the encoding of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Equal.
    Equal = 0,
    /// Not equal.
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
    /// Returns the opposite condition.
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

    /// Returns the condition for operands in the opposite order.
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

/// An operand of an instruction.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A register that the instruction writes.
    Def(Field, VReg),
    /// A register that the instruction reads.
    Use(Field, VReg),
    /// The register of the result. The instruction also reads an input from it.
    Tied {
        /// The result.
        def: VReg,
        /// The value that the register has before the instruction.
        input: VReg,
    },
    /// A constant in memory, by its index.
    Constant(usize),
    /// A general register and a bit of it. The processor skips the instruction if the bit is 0.
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
