//! Multiplies two sign-extended 32-bit numbers by one instruction. One factor may be a 32-bit
//! constant.
//!
//! ```text
//! cvt.s64.s32 %x, %a;
//! cvt.s64.s32 %y, %b;
//! mul.lo.s64  %d, %x, %y;   =>   mul.wide.s32 %d, %a, %b;
//! ```
//! The assembler does not see the extensions, and multiplies all halves. Each number and extension
//! is written once. The lowering writes a number before its extension, so the product reads the
//! same values.

use rustc_hash::FxHashMap;

use super::regions::Writes;
use super::{Line, Listing};
use crate::isa::{Immediate, Instruction, MultiplyMode, RegisterId, ScalarType, Source};

pub(super) fn run(listing: &mut Listing) {
    if !listing.lines.iter().any(is_product) {
        return;
    }
    let writes = Writes::of(listing);
    let extended: FxHashMap<RegisterId, Source> =
        listing.lines.iter().filter_map(|line| extension(line, &writes)).collect();
    if extended.is_empty() {
        return;
    }
    let narrow = |term: Source| match term {
        Source::Register(register) => extended.get(&register).copied(),
        Source::Immediate(Immediate::Integer(number)) => i32::try_from(number).is_ok().then_some(term),
        Source::Immediate(_) | Source::Special(_) | Source::Symbol(..) => None,
    };
    for line in listing.lines.iter_mut().filter(|line| is_product(line)) {
        if let Some(Instruction::Mul(product)) = line.instruction_mut()
            && let (Some(a), Some(b)) = (narrow(product.a), narrow(product.b))
        {
            (product.mode, product.ty) = (Some(MultiplyMode::Wide), ScalarType::S32);
            (product.a, product.b) = (a, b);
        }
    }
}

/// Returns whether a line multiplies 64-bit numbers.
fn is_product(line: &Line) -> bool {
    let Some(Instruction::Mul(product)) = line.instruction().filter(|_| line.is_pure) else { return false };
    product.mode == Some(MultiplyMode::Lo) && matches!(product.ty, ScalarType::S64 | ScalarType::U64)
}

/// Returns the result and the operand of a sign extension, each written once.
fn extension(line: &Line, writes: &Writes) -> Option<(RegisterId, Source)> {
    let Instruction::Cvt(cast) = line.instruction().filter(|_| line.is_pure)? else { return None };
    let Source::Register(source) = cast.a else { return None };
    let extends = (cast.to, cast.from) == (ScalarType::S64, ScalarType::S32);
    (extends && writes.is_once(cast.d) && writes.is_once(source)).then_some((cast.d, cast.a))
}
