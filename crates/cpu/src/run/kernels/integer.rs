//! The integer rows of the elementwise table. Everything wraps; nothing panics.
//!
//! What does not depend on signedness is compiled for unsigned types only.

use tilewright_ir::ElementwiseFn as F;

use super::simd::{binary, binary_commutative, binary_long, compare, map3, unary, vectorize};
use super::{Operand, Source, typed, typed_mut};

/// The functions that are the same for both signednesses of one width.
macro_rules! common {
    ($name:ident, $uint:ty) => {
        fn $name(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
            type T = $uint;
            let out = typed_mut::<T>(out);
            let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
            match function {
                F::Add => binary_commutative(out, x, y, T::wrapping_add),
                F::Sub => binary(out, x, y, T::wrapping_sub),
                F::Mul => binary_commutative(out, x, y, T::wrapping_mul),
                F::And => binary_commutative(out, x, y, |x, y| x & y),
                F::Or => binary_commutative(out, x, y, |x, y| x | y),
                F::Xor => binary_commutative(out, x, y, |x, y| x ^ y),
                F::Shl => {
                    binary(out, x, y, |x, y| if y < T::BITS as T { x << (y & (T::BITS as T - 1)) } else { 0 })
                }
                F::Neg => unary(out, x, T::wrapping_neg),
                F::Not => unary(out, x, |x| !x),
                _ => return false,
            }
            true
        }
    };
}
common!(common_8, u8);
common!(common_16, u16);
common!(common_32, u32);
common!(common_64, u64);

/// The functions that depend on signedness. `$quotient` may be anything by zero, but must not panic.
macro_rules! typed_functions {
    ($name:ident, $ty:ty, $wide:ty, |$x:ident, $y:ident| $quotient:expr, $shr:expr) => {
        fn $name(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
            type T = $ty;
            #[inline(always)]
            fn quotient($x: T, $y: T) -> T {
                $quotient
            }
            let out = typed_mut::<T>(out);
            let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
            match function {
                F::Min => binary_commutative(out, x, y, |x, y| if x < y { x } else { y }),
                F::Max => binary_commutative(out, x, y, |x, y| if x > y { x } else { y }),
                F::Shr => binary(out, x, y, $shr),
                F::IntDiv => binary_long(
                    out,
                    x,
                    y,
                    #[inline(always)]
                    |x, y| if y == 0 { !0 } else { quotient(x, y) },
                ),
                F::IntRem => binary_long(
                    out,
                    x,
                    y,
                    #[inline(always)]
                    |x, y| x.wrapping_sub(quotient(x, y).wrapping_mul(y)),
                ),
                F::MulHigh => {
                    binary_commutative(out, x, y, |x, y| ((x as $wide * y as $wide) >> T::BITS) as T);
                }
                F::Abs => unary(out, x, |x| {
                    #[allow(unused_comparisons, reason = "the macro serves unsigned types too")]
                    if x < 0 { (0 as T).wrapping_sub(x) } else { x }
                }),
                _ => return false,
            }
            true
        }
    };
}

/// `x >> y` of a signed type: the sign where y, unsigned, is the width or more.
macro_rules! shr_signed {
    ($ty:ty, $uint:ty) => {
        |x: $ty, y: $ty| {
            let y = y as $uint;
            x >> if y < <$ty>::BITS as $uint { y } else { <$ty>::BITS as $uint - 1 }
        }
    };
}

/// `x >> y` of an unsigned type: 0 where y is the width or more.
macro_rules! shr_unsigned {
    ($ty:ty) => {
        |x: $ty, y: $ty| if y < <$ty>::BITS as $ty { x >> (y & (<$ty>::BITS as $ty - 1)) } else { 0 }
    };
}

// The quotient of integers of half the precision of a float, rounded to that float, is never rounded up to the next
// integer: truncating it is exact. This makes division vector code.
typed_functions!(
    typed_i8,
    i8,
    i16,
    |x, y| truncate_32(f32::from(x) / f32::from(y)) as i8,
    shr_signed!(i8, u8)
);
typed_functions!(typed_u8, u8, u16, |x, y| truncate_32(f32::from(x) / f32::from(y)) as u8, shr_unsigned!(u8));
typed_functions!(
    typed_i16,
    i16,
    i32,
    |x, y| truncate_32(f32::from(x) / f32::from(y)) as i16,
    shr_signed!(i16, u16)
);
typed_functions!(
    typed_u16,
    u16,
    u32,
    |x, y| truncate_32(f32::from(x) / f32::from(y)) as u16,
    shr_unsigned!(u16)
);
typed_functions!(
    typed_i32,
    i32,
    i64,
    |x, y| truncate_64(f64::from(x) / f64::from(y)) as i32,
    shr_signed!(i32, u32)
);
typed_functions!(
    typed_u32,
    u32,
    u64,
    |x, y| truncate_64(f64::from(x) / f64::from(y)) as u32,
    shr_unsigned!(u32)
);
typed_functions!(
    typed_i64,
    i64,
    i128,
    |x, y| if y == 0 { 0 } else { x.wrapping_div(y) },
    shr_signed!(i64, u64)
);
typed_functions!(typed_u64, u64, u128, |x, y| x.checked_div(y).unwrap_or(0), shr_unsigned!(u64));

/// The integer part of a float below 2^22 in magnitude; any integer for others. A conversion with `as` would saturate,
/// which is slow.
#[inline(always)]
fn truncate_32(value: f32) -> u32 {
    const SHIFTER: f32 = 12_582_912.0; // 1.5 * 2^23
    (value.trunc() + SHIFTER).to_bits().wrapping_sub(SHIFTER.to_bits())
}

/// The integer part of a float below 2^51 in magnitude; any integer for others.
#[inline(always)]
fn truncate_64(value: f64) -> u64 {
    const SHIFTER: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    (value.trunc() + SHIFTER).to_bits().wrapping_sub(SHIFTER.to_bits())
}

/// Order comparisons of one type.
macro_rules! order {
    ($name:ident, $ty:ty) => {
        fn $name(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
            let (x, y) = (Source::<$ty>::new(x), Source::<$ty>::new(y));
            match function {
                F::Lt => compare(out, x, y, |x, y| x < y),
                F::Gt => compare(out, y, x, |x, y| x < y),
                F::Le => compare(out, x, y, |x, y| x <= y),
                _ => compare(out, y, x, |x, y| x <= y),
            }
        }
    };
}
order!(order_i8, i8);
order!(order_i16, i16);
order!(order_i32, i32);
order!(order_i64, i64);
order!(order_u8, u8);
order!(order_u16, u16);
order!(order_u32, u32);
order!(order_u64, u64);

fn equal<T: super::Element + PartialEq>(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
    match function {
        F::Eq => compare(out, x, y, |x, y| x == y),
        _ => compare(out, x, y, |x, y| x != y),
    }
}

/// A comparison of integers of so many bytes.
pub(super) fn compare_integers(
    function: F,
    bytes: usize,
    signed: bool,
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match (function, bytes, signed) {
        (F::Eq | F::Ne, 1, _) => equal::<u8>(function, out, x, y),
        (F::Eq | F::Ne, 2, _) => equal::<u16>(function, out, x, y),
        (F::Eq | F::Ne, 4, _) => equal::<u32>(function, out, x, y),
        (F::Eq | F::Ne, _, _) => equal::<u64>(function, out, x, y),
        (_, 1, true) => order_i8(function, out, x, y),
        (_, 2, true) => order_i16(function, out, x, y),
        (_, 4, true) => order_i32(function, out, x, y),
        (_, _, true) => order_i64(function, out, x, y),
        (_, 1, false) => order_u8(function, out, x, y),
        (_, 2, false) => order_u16(function, out, x, y),
        (_, 4, false) => order_u32(function, out, x, y),
        (_, _, false) => order_u64(function, out, x, y),
    }
}

/// A function of one or two integers of so many bytes; false where there is no such function of integers.
pub(super) fn apply(
    function: F,
    bytes: usize,
    signed: bool,
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) -> bool {
    let done = match bytes {
        1 => common_8(function, out, x, y),
        2 => common_16(function, out, x, y),
        4 => common_32(function, out, x, y),
        _ => common_64(function, out, x, y),
    };
    done || match (bytes, signed) {
        (1, true) => typed_i8(function, out, x, y),
        (2, true) => typed_i16(function, out, x, y),
        (4, true) => typed_i32(function, out, x, y),
        (_, true) => typed_i64(function, out, x, y),
        (1, false) => typed_u8(function, out, x, y),
        (2, false) => typed_u16(function, out, x, y),
        (4, false) => typed_u32(function, out, x, y),
        (_, false) => typed_u64(function, out, x, y),
    }
}

/// A function of booleans, which are integers modulo 2; false where there is none.
pub(super) fn apply_bool(function: F, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) -> bool {
    match function {
        // The same on bytes that are 0 or 1.
        F::Add | F::Sub => common_8(F::Xor, out, x, y),
        F::Not => common_8(F::Xor, out, x, Operand::Scalar(1)),
        F::Neg | F::Abs => common_8(F::Or, out, x, Operand::Scalar(0)),
        // One bit shifted by one or more leaves the width.
        F::Shl => typed_u8(F::Shr, out, x, y),
        // The quotient by zero has one bit.
        F::IntDiv => typed_u8(function, out, x, y) && common_8(F::And, out, Operand::Out, Operand::Scalar(1)),
        _ => apply(function, 1, false, out, x, y),
    }
}

fn select_width<T: super::Element>(out: &mut [u8], condition: Operand<'_>, x: Operand<'_>, y: Operand<'_>) {
    let out = typed_mut::<T>(out);
    let condition = match condition {
        Operand::Tile(bytes) => Source::Tile(typed(bytes)),
        Operand::Scalar(bits) => Source::Scalar(bits as u8),
        Operand::Out => panic!("the condition of a selection is not its result"),
    };
    let (x, y) = (Source::<T>::new(x), Source::<T>::new(y));
    vectorize(
        #[inline(always)]
        || map3(out, condition, x, y, |c, x, y| if c != 0 { x } else { y }),
    );
}

/// `x` where the condition is not 0, else `y`; elements of so many bytes.
pub(super) fn select(bytes: usize, out: &mut [u8], condition: Operand<'_>, x: Operand<'_>, y: Operand<'_>) {
    match bytes {
        1 => select_width::<u8>(out, condition, x, y),
        2 => select_width::<u16>(out, condition, x, y),
        4 => select_width::<u32>(out, condition, x, y),
        _ => select_width::<u64>(out, condition, x, y),
    }
}

/// The bits of floats under a mask: negation and absolute value.
pub(super) fn sign(function: F, bytes: usize, out: &mut [u8], x: Operand<'_>) {
    let negate = function == F::Neg;
    let sign = 1u64 << (8 * bytes - 1);
    let (function, bits) = if negate { (F::Xor, sign) } else { (F::And, !sign) };
    apply(function, bytes, false, out, x, Operand::Scalar(bits));
}
