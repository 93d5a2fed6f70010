//! Lists the registers of x86-64 and their use by calls.
//!
//! The classes of the allocator are general (`Int`), vector (`Float`) and mask registers
//! (`Vector`).

use iced_x86::Register;
use regalloc2::{MachineEnv, PReg, PRegSet, RegClass};

use super::Isa;
use crate::select::{INTS, VECTORS};

pub const RAX: usize = 0;
pub const RDX: usize = 2;
const RCX: usize = 1;
const RBX: usize = 3;
const RSI: usize = 6;
const RDI: usize = 7;

pub const MASKS: RegClass = RegClass::Vector;

/// The registers of the first arguments of a function.
pub const ARGUMENTS: [usize; 4] = if cfg!(windows) { [RCX, RDX, 8, 9] } else { [RDI, RSI, RDX, RCX] };

/// The general registers that a function saves before it writes them, except `rbp`.
pub const SAVED: &[usize] =
    if cfg!(windows) { &[RBX, RSI, RDI, 12, 13, 14, 15] } else { &[RBX, 12, 13, 14, 15] };

/// The vector registers whose low 128 bits a function saves before it writes them.
pub const SAVED_VECTORS: std::ops::Range<usize> = if cfg!(windows) { 6..16 } else { 0..0 };

/// The bytes below the stack arguments that a callee may overwrite.
pub const SHADOW_BYTES: usize = if cfg!(windows) { 32 } else { 0 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The low 8 bits of a general register.
    R8,
    /// The low 16 bits of a general register.
    R16,
    /// The low 32 bits of a general register.
    R32,
    /// A general register.
    R64,
    /// The low 128 bits of a vector register.
    X,
    /// The low 256 bits of a vector register.
    Y,
    /// 512 bits of a vector register.
    Z,
    /// A mask register.
    K,
}

impl Size {
    pub fn register(self, index: usize) -> Register {
        let first = match self {
            // AH, CH, DH and BH are between BL and SPL.
            Size::R8 if index >= 4 => Register::BH + 1u32 - 4,
            Size::R8 => Register::AL,
            Size::R16 => Register::AX,
            Size::R32 => Register::EAX,
            Size::R64 => Register::RAX,
            Size::X => Register::XMM0,
            Size::Y => Register::YMM0,
            Size::Z => Register::ZMM0,
            Size::K => Register::K0,
        };
        first + index as u32
    }
}

fn general(index: usize) -> PReg {
    PReg::new(index, INTS)
}

fn set(registers: impl Iterator<Item = PReg>) -> PRegSet {
    registers.fold(PRegSet::empty(), PRegSet::with)
}

pub fn vector_count(isa: Isa) -> usize {
    if isa == Isa::Avx512 { 32 } else { 16 }
}

fn vectors(isa: Isa) -> impl Iterator<Item = PReg> {
    (0..vector_count(isa)).map(|index| PReg::new(index, VECTORS))
}

fn masks(isa: Isa) -> impl Iterator<Item = PReg> {
    // k0 cannot be the mask of an instruction.
    let count = if isa == Isa::Avx512 { 8 } else { 0 };
    (1..count).map(|index| PReg::new(index, MASKS))
}

fn is_saved(index: usize) -> bool {
    SAVED.contains(&index)
}

/// Returns the assignable registers. The allocator prefers those that the function need not save.
pub fn environment(isa: Isa) -> MachineEnv {
    // rsp and rbp address the frame.
    let ints = || (0..16).filter(|index| !matches!(index, 4 | 5));
    let is_vector_saved = |register: &PReg| SAVED_VECTORS.contains(&register.hw_enc());
    MachineEnv {
        preferred_regs_by_class: [
            set(ints().filter(|&index| !is_saved(index)).map(general)),
            set(vectors(isa).filter(|register| !is_vector_saved(register))),
            set(masks(isa)),
        ],
        non_preferred_regs_by_class: [
            set(ints().filter(|&index| is_saved(index)).map(general)),
            set(vectors(isa).filter(is_vector_saved)),
            PRegSet::empty(),
        ],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

/// Returns the registers that a call overwrites, except that of its result.
pub fn call_clobbers(isa: Isa) -> PRegSet {
    let ints = (1..16).filter(|&index| !matches!(index, 4 | 5) && !is_saved(index)).map(general);
    set(ints.chain(vectors(isa)).chain(masks(isa)))
}

pub fn slots(isa: Isa) -> [usize; 3] {
    match isa {
        Isa::Avx2 => [1, 4, 1],
        Isa::Avx512 => [1, 8, 1],
    }
}
