//! Scans a tile along one axis with a known combine function.
//! Along the last axis, the method of Hillis and Steele scans blocks of `SCAN_BLOCK` elements. The
//! total of the preceding blocks is then combined with each block. Along another axis, rows are
//! combined one after another.

use tilewright_ir::Dtype;

use super::reduce::{Axis, Combine, is_nan};
use super::simd::vectorize;
use super::{Element, math, typed_mut};
use crate::tuning::SCAN_BLOCK;

macro_rules! floats {
    ($combine:expr, $axis:ident, $tile:ident, $ty:ty) => {{
        let tile = typed_mut::<$ty>($tile);
        let (nan, least, most) = (<$ty>::NAN, <$ty>::NEG_INFINITY, <$ty>::INFINITY);
        match $combine {
            Combine::Sum => run($axis, tile, -0.0, |x, y| x + y),
            Combine::Product => run($axis, tile, 1.0, |x, y| x * y),
            Combine::Min | Combine::MinNan if is_plain(tile) => {
                run($axis, tile, most, |x, y| if y < x { y } else { x })
            }
            Combine::Max | Combine::MaxNan if is_plain(tile) => {
                run($axis, tile, least, |x, y| if y > x { y } else { x })
            }
            Combine::Min => run($axis, tile, nan, math::min),
            Combine::Max => run($axis, tile, nan, math::max),
            Combine::MinNan => run($axis, tile, most, math::min_nan),
            Combine::MaxNan => run($axis, tile, least, math::max_nan),
            Combine::And | Combine::Or | Combine::Xor => panic!("floats are not combined bitwise"),
        }
    }};
}

/// Calls [`run`]. Only minima and maxima depend on the sign.
macro_rules! integers {
    ($combine:expr, $axis:ident, $tile:ident, $dtype:ident, $uint:ty, $int:ty) => {
        match ($combine, $dtype.is_signed()) {
            (Combine::Min | Combine::MinNan, true) => run($axis, typed_mut($tile), <$int>::MAX, Ord::min),
            (Combine::Max | Combine::MaxNan, true) => run($axis, typed_mut($tile), <$int>::MIN, Ord::max),
            (combine, _) => {
                let tile = typed_mut::<$uint>($tile);
                match combine {
                    Combine::Sum => run($axis, tile, 0, <$uint>::wrapping_add),
                    Combine::Product => run($axis, tile, 1, <$uint>::wrapping_mul),
                    Combine::Min | Combine::MinNan => run($axis, tile, <$uint>::MAX, Ord::min),
                    Combine::Max | Combine::MaxNan => run($axis, tile, 0, Ord::max),
                    Combine::And => run($axis, tile, <$uint>::MAX, |x, y| x & y),
                    Combine::Or => run($axis, tile, 0, |x, y| x | y),
                    Combine::Xor => run($axis, tile, 0, |x, y| x ^ y),
                }
            }
        }
    };
}

/// Returns whether comparisons find minima and maxima: no element is NaN or a zero.
fn is_plain<T: Element + PartialOrd>(tile: &[T]) -> bool {
    let zero = T::default();
    vectorize(
        #[inline(always)]
        || tile.iter().fold(0, |found, &x| found | u32::from(is_nan(x) || x == zero)) == 0,
    )
}

/// Scans a tile in place: element `[o, k, i]` becomes `x[o, 0, i] ∘ … ∘ x[o, k, i]`. With
/// `reverse`, the scan begins at the last element of the axis.
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

/// Scans with an inlined combine function and its left identity.
fn run<T: Element>((axis, reverse): (Axis, bool), tile: &mut [T], identity: T, f: impl Fn(T, T) -> T + Copy) {
    let Axis { n, inner, .. } = axis;
    for part in tile.chunks_exact_mut((n * inner).max(1)) {
        match (inner, reverse) {
            (1, _) => line(part, reverse, identity, f),
            (_, false) => rows(part.chunks_exact_mut(inner), f),
            (_, true) => rows(part.chunks_exact_mut(inner).rev(), f),
        }
    }
}

fn line<T: Element>(line: &mut [T], reverse: bool, identity: T, f: impl Fn(T, T) -> T + Copy) {
    let mut total = identity;
    vectorize(
        #[inline(always)]
        || {
            if reverse {
                for part in line.rchunks_mut(SCAN_BLOCK) {
                    let mut elements = [identity; SCAN_BLOCK];
                    for (to, from) in elements.iter_mut().zip(part.iter().rev()) {
                        *to = *from;
                    }
                    total = block(&mut elements, total, f);
                    for (to, from) in part.iter_mut().rev().zip(elements) {
                        *to = from;
                    }
                }
                return;
            }
            let (blocks, rest) = line.as_chunks_mut::<SCAN_BLOCK>();
            for elements in blocks {
                total = block(elements, total, f);
            }
            let mut elements = [identity; SCAN_BLOCK];
            elements[..rest.len()].copy_from_slice(rest);
            block(&mut elements, total, f);
            rest.copy_from_slice(&elements[..rest.len()]);
        },
    );
}

/// Scans a block after the total of the preceding blocks. Returns the total including this block.
#[inline(always)]
fn block<T: Element>(elements: &mut [T; SCAN_BLOCK], total: T, f: impl Fn(T, T) -> T) -> T {
    let mut distance = 1;
    while distance < SCAN_BLOCK {
        let before = *elements;
        for index in distance..SCAN_BLOCK {
            elements[index] = f(before[index - distance], before[index]);
        }
        distance *= 2;
    }
    for element in &mut *elements {
        *element = f(total, *element);
    }
    elements[SCAN_BLOCK - 1]
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
