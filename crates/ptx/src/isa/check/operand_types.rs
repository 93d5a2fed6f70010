//! Decides which registers and constants an operand of a type accepts. Source: PTX ISA, section
//! 9.2, tables 25 and 26, "relaxed type-checking rules".

use crate::isa::operand::Immediate;
use crate::isa::types::ScalarType;

/// The interpretation of a type's bits, on which operands agree.
#[derive(PartialEq, Eq)]
enum Meaning {
    Predicate,
    /// Untyped bits.
    Bits,
    Integer,
    Float,
}

fn meaning(ty: ScalarType) -> Meaning {
    use ScalarType::{Bf16, F16, F32, F64, Pred, S8, S16, S32, S64, U8, U16, U32, U64};
    match ty {
        Pred => Meaning::Predicate,
        U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 => Meaning::Integer,
        F16 | F32 | F64 | Bf16 => Meaning::Float,
        // tidy: wildcard because all others are bits: pairs of elements, and operands of `mma`, are
        // in untyped registers.
        _ => Meaning::Bits,
    }
}

/// Returns whether a type is a signed or unsigned integer; untyped bits are not.
pub(super) fn is_integer(ty: ScalarType) -> bool {
    meaning(ty) == Meaning::Integer
}

/// Returns whether operands of a type are only in untyped registers, such as bf16x2.
fn is_opaque(ty: ScalarType) -> bool {
    meaning(ty) == Meaning::Bits
        && !matches!(
            ty,
            ScalarType::B8 | ScalarType::B16 | ScalarType::B32 | ScalarType::B64 | ScalarType::B128
        )
}

/// Returns whether an operand of the type `ty` accepts a register of the type `register`. If
/// `wider`, the operand may be the low bits of a wider register.
pub(super) fn takes(ty: ScalarType, register: ScalarType, wider: bool) -> bool {
    let fits = register.bits() == ty.bits() || wider && register.bits() > ty.bits();
    let agrees = match (meaning(ty), meaning(register)) {
        (Meaning::Predicate, meaning) | (meaning, Meaning::Predicate) => meaning == Meaning::Predicate,
        (_, Meaning::Bits) => true,
        (Meaning::Bits, _) => !is_opaque(ty),
        (Meaning::Float, Meaning::Float) => ty == register,
        (Meaning::Integer, meaning) | (meaning, Meaning::Integer) => meaning == Meaning::Integer,
    };
    fits && agrees
}

/// Returns whether an operand of the type accepts a constant.
pub(super) fn takes_constant(ty: ScalarType, constant: Immediate) -> bool {
    match constant {
        Immediate::Integer(_) => meaning(ty) != Meaning::Float && !is_opaque(ty),
        Immediate::F32(_) => matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::B32),
        Immediate::F64(_) => matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::B64),
    }
}

/// Returns the integer type of twice as many bits.
pub(super) fn twice(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::U16 => ScalarType::U32,
        ScalarType::S16 => ScalarType::S32,
        ScalarType::S32 => ScalarType::S64,
        // tidy: wildcard because, of the other types, rows double only `.u32`.
        _ => ScalarType::U64,
    }
}
