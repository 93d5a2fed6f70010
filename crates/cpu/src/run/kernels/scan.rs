//! Scan of a tile along one axis with a known combine function, one element after another.

use tilewright_ir::Dtype;

use super::reduce::{Axis, Combine, is_nan};
use super::simd::vectorize;
use super::{Element, math, typed_mut};

macro_rules! floats {
    ($combine:expr, $axis:ident, $tile:ident, $ty:ty) => {{
        let tile = typed_mut::<$ty>($tile);
        match $combine {
            Combine::Sum => run($axis, tile, |x, y| x + y),
            Combine::Product => run($axis, tile, |x, y| x * y),
            Combine::Min if is_plain(tile) => run($axis, tile, |x, y| if y < x { y } else { x }),
            Combine::Max if is_plain(tile) => run($axis, tile, |x, y| if y > x { y } else { x }),
            Combine::MinNan if is_plain(tile) => run($axis, tile, |x, y| if y < x { y } else { x }),
            Combine::MaxNan if is_plain(tile) => run($axis, tile, |x, y| if y > x { y } else { x }),
            Combine::Min => run($axis, tile, math::min),
            Combine::Max => run($axis, tile, math::max),
            Combine::MinNan => run($axis, tile, math::min_nan),
            Combine::MaxNan => run($axis, tile, math::max_nan),
            Combine::And | Combine::Or | Combine::Xor => panic!("floats are not combined bitwise"),
        }
    }};
}

/// Calls [`run`] for integers of one width; only minima and maxima depend on the sign.
macro_rules! integers {
    ($combine:expr, $axis:ident, $tile:ident, $dtype:ident, $uint:ty, $int:ty) => {
        match ($combine, $dtype.is_signed()) {
            (Combine::Min | Combine::MinNan, true) => run::<$int>($axis, typed_mut($tile), Ord::min),
            (Combine::Max | Combine::MaxNan, true) => run::<$int>($axis, typed_mut($tile), Ord::max),
            (combine, _) => {
                let tile = typed_mut::<$uint>($tile);
                match combine {
                    Combine::Sum => run($axis, tile, <$uint>::wrapping_add),
                    Combine::Product => run($axis, tile, <$uint>::wrapping_mul),
                    Combine::Min | Combine::MinNan => run($axis, tile, Ord::min),
                    Combine::Max | Combine::MaxNan => run($axis, tile, Ord::max),
                    Combine::And => run($axis, tile, |x, y| x & y),
                    Combine::Or => run($axis, tile, |x, y| x | y),
                    Combine::Xor => run($axis, tile, |x, y| x ^ y),
                }
            }
        }
    };
}

/// Returns whether comparisons find minima and maxima: no element is NaN, or a zero, which has two
/// signs.
fn is_plain<T: Element + PartialOrd>(tile: &[T]) -> bool {
    let zero = T::default();
    vectorize(
        #[inline(always)]
        || tile.iter().fold(0, |found, &x| found | u32::from(is_nan(x) || x == zero)) == 0,
    )
}

/// Scans a tile in place: element `[o, k, i]` becomes `x[o, 0, i] ∘ … ∘ x[o, k, i]`; with `reverse`,
/// from the last element on.
///
/// Panics if the tile has the wrong length or alignment, or if [`Combine::can_scan`] is false.
pub fn scan(combine: Combine, dtype: Dtype, (axis, reverse): (Axis, bool), tile: &mut [u8]) {
    assert!(combine.can_scan(dtype), "scans of this combine function and type have a loop");
    let axis = (axis, reverse);
    match (dtype, dtype.bytes()) {
        (Dtype::F32, _) => floats!(combine, axis, tile, f32),
        (Dtype::F64, _) => floats!(combine, axis, tile, f64),
        (_, 1) => integers!(combine, axis, tile, dtype, u8, i8),
        (_, 2) => integers!(combine, axis, tile, dtype, u16, i16),
        (_, 4) => integers!(combine, axis, tile, dtype, u32, i32),
        _ => integers!(combine, axis, tile, dtype, u64, i64),
    }
}

/// Scans with an inlined combine function.
fn run<T: Element>((axis, reverse): (Axis, bool), tile: &mut [T], f: impl Fn(T, T) -> T + Copy) {
    let Axis { n, inner, .. } = axis;
    for block in tile.chunks_exact_mut((n * inner).max(1)) {
        match (inner, reverse) {
            (1, false) => line(block.iter_mut(), f),
            (1, true) => line(block.iter_mut().rev(), f),
            (_, false) => rows(block.chunks_exact_mut(inner), f),
            (_, true) => rows(block.chunks_exact_mut(inner).rev(), f),
        }
    }
}

/// Scans consecutive elements. The last result stays in a register: the next one would wait for it
/// to be stored.
fn line<'t, T: Element>(mut elements: impl Iterator<Item = &'t mut T>, f: impl Fn(T, T) -> T) {
    let Some(&mut mut sum) = elements.next() else { return };
    for element in elements {
        sum = f(sum, *element);
        *element = sum;
    }
}

/// Combines each row with the result of the row before it.
fn rows<'t, T: Element>(mut rows: impl Iterator<Item = &'t mut [T]>, f: impl Fn(T, T) -> T) {
    let Some(mut before) = rows.next() else { return };
    for row in rows {
        for (element, &before) in row.iter_mut().zip(&*before) {
            *element = f(before, *element);
        }
        before = row;
    }
}
