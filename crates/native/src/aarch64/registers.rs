//! Lists the registers of AArch64 and their use by calls (AAPCS64).
//!
//! The classes of the allocator are general registers (`Int`) and vector registers (`Float`).

use std::ops::Range;

use regalloc2::{MachineEnv, PReg, PRegSet};

use crate::select::{INTS, VECTORS};

/// The general registers without [`FRAME`] and [`LINK`].
const GENERAL: Range<usize> = 0..29;

/// The registers of the first four arguments. The first is also that of the result.
pub const ARGUMENTS: [usize; 4] = [0, 1, 2, 3];

/// The registers that a linker may overwrite at a call, used for far addresses.
pub const TEMPORARIES: [u32; 2] = [16, 17];

/// The register that platforms may reserve.
const PLATFORM: usize = 18;

/// The general registers that a function saves before it writes them.
pub const SAVED: Range<usize> = 19..29;

/// The vector registers whose low 64 bits a function saves before it writes them.
pub const SAVED_VECTORS: Range<usize> = 8..16;

pub const FRAME: u32 = 29;

pub const LINK: u32 = 30;

/// The stack pointer in addresses, additions and subtractions of a constant.
pub const STACK: u32 = 31;

/// The register that is always 0. It shares its number with the stack pointer; the instruction
/// determines which one it means.
pub const ZERO: u32 = 31;

pub const VECTOR_COUNT: usize = 32;

fn set(registers: impl Iterator<Item = PReg>) -> PRegSet {
    registers.fold(PRegSet::empty(), PRegSet::with)
}

fn ints() -> impl Iterator<Item = usize> {
    GENERAL.filter(|&index| index != PLATFORM && !TEMPORARIES.contains(&(index as u32)))
}

fn general(index: usize) -> PReg {
    PReg::new(index, INTS)
}

fn vector(index: usize) -> PReg {
    PReg::new(index, VECTORS)
}

/// Returns the assignable registers. The allocator prefers those that the function need not save.
pub fn environment() -> MachineEnv {
    let vectors = || 0..VECTOR_COUNT;
    MachineEnv {
        preferred_regs_by_class: [
            set(ints().filter(|index| !SAVED.contains(index)).map(general)),
            set(vectors().filter(|index| !SAVED_VECTORS.contains(index)).map(vector)),
            PRegSet::empty(),
        ],
        non_preferred_regs_by_class: [
            set(SAVED.map(general)),
            set(SAVED_VECTORS.map(vector)),
            PRegSet::empty(),
        ],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

/// Returns the registers that a call overwrites, except that of its result. All vector registers
/// are included, because a callee saves at most their low halves.
pub fn call_clobbers() -> PRegSet {
    let ints = ints().filter(|index| *index != ARGUMENTS[0] && !SAVED.contains(index));
    set(ints.map(general).chain((0..VECTOR_COUNT).map(vector)))
}
