//! Defines the rules of scans, exchanges along an axis, and `histogram`.

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{self as ir, Builder, Dtype, Type};

use super::arguments::Arguments;
use super::convert::broadcast_to;
use super::reduce::{Combined, combine_error};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::value::Operand;

/// `associative_scan(input, axis, combine_fn, reverse)`.
pub(super) fn associative_scan<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let combined = Combined::new(c, a)?;
    let axis = a.axis(c, 1, combined.types[0].rank())?;
    let reverse = a.flag(c, 3)?;
    let combine = combined.region(c, a)?;
    let elements = combined.elements();
    let scanned = c.builder().scan(combined.tiles, axis as u32, reverse, combine);
    let scanned = scanned.map_err(|error| combine_error(&error.message, &elements, "scan"))?;
    Ok(Combined::<C>::results(combined.is_tuple, scanned.into_iter().map(Operand::Tensor).collect()))
}

/// `histogram(input, num_bins, mask)`.
pub(super) fn histogram<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tile, ty) = a.typed(c, 0)?;
    if !ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool()) || ty.is_scalar() {
        return Err(SemanticError::new(Code::TypeMismatch, "`histogram` counts a tile of integers")
            .argument(0, format!("this is {ty}"))
            .note(format!("found {ty}, expected integers such as int32"))
            .hint("convert the tile, such as `.to(tl.int32)`"));
    }
    let bins = a.int(c, 1)?;
    let Some(count) =
        u32::try_from(bins).ok().filter(|count| (1..=ir::MAX_TILE_ELEMENTS as u32).contains(count))
    else {
        return Err(SemanticError::new(
            Code::InvalidValue,
            format!("`num_bins` of `histogram` cannot be {bins}"),
        )
        .argument(1, format!("expected a value from 1 to {}", ir::MAX_TILE_ELEMENTS)));
    };
    let mut operands: SmallVec<[ValueOf<C>; 4]> = smallvec![tile];
    if !a.is_none(2) {
        let (mask, found) = a.typed(c, 2)?;
        if found.dtype() != Some(Dtype::I1) {
            return Err(SemanticError::new(Code::TypeMismatch, "the mask of `histogram` must be int1")
                .argument(2, format!("this is {found}"))
                .hint("compare the mask with a number, such as `mask != 0`"));
        }
        operands.push(broadcast_to(c, mask, &ty.shape)?);
    }
    Ok(Operand::Tensor(c.builder().emit_one(ir::Op::Histogram { bins: count }, operands)?))
}

/// Returns the tile in argument 0, its type, and the axis in argument 1.
fn line<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<(ValueOf<C>, Type, u32)> {
    let (tile, ty) = a.typed(c, 0)?;
    let axis = a.axis(c, 1, ty.rank())?;
    Ok((tile, ty, axis as u32))
}

/// `_butterfly(x, axis, mask)`.
pub(super) fn butterfly<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tile, _, axis) = line(c, a)?;
    let mask = u32::try_from(a.int(c, 2)?).unwrap_or(u32::MAX);
    Ok(Operand::Tensor(c.builder().emit_one(ir::Op::Butterfly { axis, mask }, smallvec![tile])?))
}

/// `_bitonic(x, axis, stage, descending)`.
pub(super) fn bitonic<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (tile, _, axis) = line(c, a)?;
    let high = u32::try_from(a.int(c, 2)?).unwrap_or(u32::MAX).min(u32::MAX - 1);
    let descending = a.flag(c, 3)?;
    let op = ir::Op::Bitonic { axis, high, low: 0, block: high + 1, descending };
    Ok(Operand::Tensor(c.builder().emit_one(op, smallvec![tile])?))
}
