//! Defines instructions of x86-64 whose registers are not assigned yet.

use iced_x86::{Code, Instruction, OpKind, Register};
use regalloc2::{Operand, PReg, VReg};
use smallvec::SmallVec;

use super::registers::Size;

/// An instruction of the processor, with placeholders for its registers.
#[derive(Clone, Debug)]
pub struct Plain {
    pub template: Instruction,
    pub patches: SmallVec<[Patch; 4]>,
    /// The index of the constant in memory, if the instruction reads one.
    pub constant: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The operand with this index.
    Operand(u8),
    /// The base of the address.
    Base,
    /// The index of the address.
    Index,
    /// The mask of the lanes.
    Mask,
}

#[derive(Clone, Copy, Debug)]
pub struct Patch {
    pub slot: Slot,
    pub size: Size,
    /// The index of the operand in the list of the allocator.
    pub operand: u8,
}

/// A condition on the flags, with its number in the encoding of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Unsigned less than.
    Below = 2,
    /// Unsigned at least.
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    /// Unsigned at most.
    BelowOrEqual = 6,
    /// Unsigned greater than.
    Above = 7,
    /// Signed less than.
    Less = 12,
    /// Signed at least.
    GreaterOrEqual = 13,
    /// Signed at most.
    LessOrEqual = 14,
    /// Signed greater than.
    Greater = 15,
}

impl Condition {
    #[must_use]
    pub fn negated(self) -> Self {
        use Condition as C;
        match self {
            C::Below => C::AboveOrEqual,
            C::AboveOrEqual => C::Below,
            C::Equal => C::NotEqual,
            C::NotEqual => C::Equal,
            C::BelowOrEqual => C::Above,
            C::Above => C::BelowOrEqual,
            C::Less => C::GreaterOrEqual,
            C::GreaterOrEqual => C::Less,
            C::LessOrEqual => C::Greater,
            C::Greater => C::LessOrEqual,
        }
    }

    #[must_use]
    pub fn swapped(self) -> Self {
        use Condition as C;
        match self {
            C::Below => C::Above,
            C::Above => C::Below,
            C::AboveOrEqual => C::BelowOrEqual,
            C::BelowOrEqual => C::AboveOrEqual,
            C::Less => C::Greater,
            C::Greater => C::Less,
            C::LessOrEqual => C::GreaterOrEqual,
            C::GreaterOrEqual => C::LessOrEqual,
            C::Equal | C::NotEqual => self,
        }
    }

    /// Returns the instruction that sets a byte to 1 or 0 by the condition.
    pub fn set(self) -> Code {
        match self {
            Condition::Below => Code::Setb_rm8,
            Condition::AboveOrEqual => Code::Setae_rm8,
            Condition::Equal => Code::Sete_rm8,
            Condition::NotEqual => Code::Setne_rm8,
            Condition::BelowOrEqual => Code::Setbe_rm8,
            Condition::Above => Code::Seta_rm8,
            Condition::Less => Code::Setl_rm8,
            Condition::GreaterOrEqual => Code::Setge_rm8,
            Condition::LessOrEqual => Code::Setle_rm8,
            Condition::Greater => Code::Setg_rm8,
        }
    }

    /// Returns the conditional move of 64 bits.
    pub fn conditional_move(self) -> Code {
        match self {
            Condition::Below => Code::Cmovb_r64_rm64,
            Condition::AboveOrEqual => Code::Cmovae_r64_rm64,
            Condition::Equal => Code::Cmove_r64_rm64,
            Condition::NotEqual => Code::Cmovne_r64_rm64,
            Condition::BelowOrEqual => Code::Cmovbe_r64_rm64,
            Condition::Above => Code::Cmova_r64_rm64,
            Condition::Less => Code::Cmovl_r64_rm64,
            Condition::GreaterOrEqual => Code::Cmovge_r64_rm64,
            Condition::LessOrEqual => Code::Cmovle_r64_rm64,
            Condition::Greater => Code::Cmovg_r64_rm64,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// A general register.
    Register(VReg),
    /// The scratch area of the frame.
    Scratch,
    /// A constant after the code, by its index.
    Constant(usize),
}

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub base: Base,
    /// The index, its size and its factor.
    pub index: Option<(VReg, Size, u8)>,
    /// The number of bytes to add.
    pub offset: i32,
    /// True if the instruction copies one element of 32 or 64 bits to all lanes.
    pub is_broadcast: bool,
}

impl Memory {
    pub fn at(base: VReg) -> Self {
        Self { base: Base::Register(base), index: None, offset: 0, is_broadcast: false }
    }

    pub fn scratch(offset: i32) -> Self {
        Self { base: Base::Scratch, index: None, offset, is_broadcast: false }
    }

    pub fn constant(index: usize, is_broadcast: bool) -> Self {
        Self { base: Base::Constant(index), index: None, offset: 0, is_broadcast }
    }

    #[must_use]
    pub fn plus(self, bytes: i32) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A register that the instruction writes.
    Def(VReg, Size),
    /// A register that the instruction reads.
    Use(VReg, Size),
    /// A register that the instruction reads and writes.
    Tied {
        def: VReg,
        /// The value that the register has before the instruction.
        input: VReg,
        size: Size,
    },
    /// The register of the first operand, named again.
    First(Size),
    Memory(Memory),
    /// A constant, with the kind of its encoding.
    Immediate(OpKind, i64),
    /// A fixed register that the instruction reads but does not name.
    FixedUse(VReg, PReg),
    /// A fixed register that the instruction writes but does not name.
    FixedDef(VReg, PReg),
}

pub fn imm8(value: u8) -> Arg {
    Arg::Immediate(OpKind::Immediate8, i64::from(value))
}

/// Returns a 32-bit immediate that the instruction sign-extends.
pub fn imm32(value: i32) -> Arg {
    Arg::Immediate(OpKind::Immediate32to64, i64::from(value))
}

#[derive(Clone, Copy, Debug)]
pub enum Masking {
    /// All lanes.
    All,
    /// Only the lanes of a mask. With zeroing, the other lanes of the result are 0. Otherwise, the
    /// instruction defines them: `vpblendmd`, for example, takes them from its first source.
    By {
        mask: VReg,
        /// True if lanes whose mask is false become 0.
        zeroing: bool,
    },
    /// The lanes of a mask that the instruction overwrites: gathers and scatters.
    Consumed {
        mask: VReg,
        /// The register of the mask after the instruction.
        def: VReg,
    },
}

/// Returns an instruction, and its operands for the allocator.
pub fn plain(code: Code, args: &[Arg], masking: Masking) -> (Plain, SmallVec<[Operand; 6]>) {
    let mut template = Instruction::default();
    template.set_code(code);
    let mut result = Plain { template, patches: SmallVec::new(), constant: None };
    let mut operands: SmallVec<[Operand; 6]> = SmallVec::new();
    let mut slot = 0u8;
    let mut first = 0;
    for arg in args {
        let named = match *arg {
            Arg::Def(register, size) => {
                operands.push(Operand::reg_def(register));
                Some(size)
            }
            Arg::Use(register, size) => {
                operands.push(Operand::reg_use(register));
                Some(size)
            }
            Arg::Tied { def, input, size } => {
                operands.push(Operand::reg_use(input));
                operands.push(Operand::reg_reuse_def(def, operands.len() - 1));
                Some(size)
            }
            Arg::First(size) => {
                let operand = first;
                result.patches.push(Patch { slot: Slot::Operand(slot), size, operand });
                set_register(&mut result.template, slot);
                slot += 1;
                None
            }
            Arg::Memory(memory) => {
                result.set_memory(slot, &memory, &mut operands);
                slot += 1;
                None
            }
            Arg::Immediate(kind, value) => {
                result.template.set_op_kind(u32::from(slot), kind);
                match kind {
                    OpKind::Immediate64 => result.template.set_immediate64(value as u64),
                    OpKind::Immediate32to64 => result.template.set_immediate32to64(value),
                    OpKind::Immediate8to64 => result.template.set_immediate8to64(value),
                    OpKind::Immediate32 => result.template.set_immediate32(value as u32),
                    // tidy: wildcard because the other immediates have 8 bits
                    _ => result.template.set_immediate8(value as u8),
                }
                slot += 1;
                None
            }
            Arg::FixedUse(register, fixed) => {
                operands.push(Operand::reg_fixed_use(register, fixed));
                None
            }
            Arg::FixedDef(register, fixed) => {
                operands.push(Operand::reg_fixed_def(register, fixed));
                None
            }
        };
        if let Some(size) = named {
            let operand = operands.len() as u8 - 1;
            if slot == 0 {
                first = operand;
            }
            result.patches.push(Patch { slot: Slot::Operand(slot), size, operand });
            set_register(&mut result.template, slot);
            slot += 1;
        }
    }
    match masking {
        Masking::All => {}
        Masking::By { mask, zeroing } => {
            operands.push(Operand::reg_use(mask));
            let operand = operands.len() as u8 - 1;
            result.patches.push(Patch { slot: Slot::Mask, size: Size::K, operand });
            result.template.set_zeroing_masking(zeroing);
        }
        Masking::Consumed { mask, def } => {
            operands.push(Operand::reg_use(mask));
            operands.push(Operand::reg_reuse_def(def, operands.len() - 1));
            let operand = operands.len() as u8 - 1;
            result.patches.push(Patch { slot: Slot::Mask, size: Size::K, operand });
        }
    }
    (result, operands)
}

fn set_register(template: &mut Instruction, slot: u8) {
    template.set_op_kind(u32::from(slot), OpKind::Register);
}

impl Plain {
    fn set_memory(&mut self, slot: u8, memory: &Memory, operands: &mut SmallVec<[Operand; 6]>) {
        let template = &mut self.template;
        template.set_op_kind(u32::from(slot), OpKind::Memory);
        template.set_memory_index_scale(1);
        template.set_memory_displacement64(i64::from(memory.offset) as u64);
        template.set_memory_displ_size(u32::from(memory.offset != 0));
        template.set_is_broadcast(memory.is_broadcast);
        match memory.base {
            Base::Register(base) => {
                operands.push(Operand::reg_use(base));
                let operand = operands.len() as u8 - 1;
                self.patches.push(Patch { slot: Slot::Base, size: Size::R64, operand });
            }
            Base::Scratch => template.set_memory_base(Register::RSP),
            Base::Constant(index) => {
                template.set_memory_base(Register::RIP);
                template.set_memory_displ_size(8);
                self.constant = Some(index);
            }
        }
        if let Some((index, size, scale)) = memory.index {
            operands.push(Operand::reg_use(index));
            let operand = operands.len() as u8 - 1;
            self.patches.push(Patch { slot: Slot::Index, size, operand });
            self.template.set_memory_index_scale(u32::from(scale));
        }
    }

    /// Returns the instruction with registers. `register` maps an operand to a register number.
    pub fn assigned(&self, register: impl Fn(usize) -> usize) -> Instruction {
        let mut instruction = self.template;
        for patch in &self.patches {
            let register = patch.size.register(register(patch.operand as usize));
            match patch.slot {
                Slot::Operand(slot) => instruction.set_op_register(u32::from(slot), register),
                Slot::Base => instruction.set_memory_base(register),
                Slot::Index => instruction.set_memory_index(register),
                Slot::Mask => instruction.set_op_mask(register),
            }
        }
        instruction
    }
}
