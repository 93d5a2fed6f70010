//! Computes the integer rows of the elementwise table. All arithmetic wraps.
//!
//! Functions that do not depend on signedness are compiled only for unsigned types.

use tilewright_ir::{ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, WideProductFn};

use super::formats::{quotient_of_doubles, quotient_of_singles};
use super::simd::{binary, binary_commutative, binary_long, compare, map3, unary, vectorize};
use super::{Element, Operand, Source, typed, typed_mut};

/// Operations that depend on the integer type beyond its native operators.
trait Integer: Element {
    /// Returns the quotient. For a zero divisor, the result is unspecified.
    fn quotient(self, divisor: Self) -> Self;
    /// Returns `self >> count` with an unsigned count. A count of at least the width gives 0, or -1
    /// for a negative number.
    fn shift_right(self, count: Self) -> Self;
    /// Returns the upper half of the product.
    fn mul_high(self, factor: Self) -> Self;
    /// Returns the absolute value. The smallest integer is its own absolute value.
    fn absolute(self) -> Self;
}

macro_rules! integer_type {
    ($ty:ty, $wide:ty, |$x:ident, $y:ident| $quotient:expr, $shift_right:expr, $absolute:expr) => {
        impl Integer for $ty {
            #[inline(always)]
            fn quotient(self, divisor: Self) -> Self {
                let ($x, $y) = (self, divisor);
                $quotient
            }
            #[inline(always)]
            fn shift_right(self, count: Self) -> Self {
                $shift_right(self, count)
            }
            #[inline(always)]
            fn mul_high(self, factor: Self) -> Self {
                ((self as $wide * factor as $wide) >> Self::BITS) as Self
            }
            #[inline(always)]
            fn absolute(self) -> Self {
                $absolute(self)
            }
        }
    };
}

/// `x >> y` of a signed type. If y is negative or at least the width, the result is the sign.
macro_rules! shr_signed {
    ($ty:ty, $uint:ty) => {
        |x: $ty, y: $ty| {
            let y = y as $uint;
            x >> if y < <$ty>::BITS as $uint { y } else { <$ty>::BITS as $uint - 1 }
        }
    };
}

/// `x >> y` of an unsigned type: 0 if y is the width or more.
macro_rules! shr_unsigned {
    ($ty:ty) => {
        |x: $ty, y: $ty| if y < <$ty>::BITS as $ty { x >> (y & (<$ty>::BITS as $ty - 1)) } else { 0 }
    };
}

integer_type!(
    i8,
    i16,
    |x, y| quotient_of_singles(f32::from(x), f32::from(y)) as i8,
    shr_signed!(i8, u8),
    i8::wrapping_abs
);
integer_type!(
    u8,
    u16,
    |x, y| quotient_of_singles(f32::from(x), f32::from(y)) as u8,
    shr_unsigned!(u8),
    |x| x
);
integer_type!(
    i16,
    i32,
    |x, y| quotient_of_singles(f32::from(x), f32::from(y)) as i16,
    shr_signed!(i16, u16),
    i16::wrapping_abs
);
integer_type!(
    u16,
    u32,
    |x, y| quotient_of_singles(f32::from(x), f32::from(y)) as u16,
    shr_unsigned!(u16),
    |x| x
);
integer_type!(
    i32,
    i64,
    |x, y| quotient_of_doubles(f64::from(x), f64::from(y)) as i32,
    shr_signed!(i32, u32),
    i32::wrapping_abs
);
integer_type!(
    u32,
    u64,
    |x, y| quotient_of_doubles(f64::from(x), f64::from(y)) as u32,
    shr_unsigned!(u32),
    |x| x
);
integer_type!(
    i64,
    i128,
    |x, y| if y == 0 { 0 } else { x.wrapping_div(y) },
    shr_signed!(i64, u64),
    i64::wrapping_abs
);
integer_type!(u64, u128, |x, y| x.checked_div(y).unwrap_or(0), shr_unsigned!(u64), |x| x);

/// Evaluates an expression with `$ty` as the unsigned integer of `$bytes` bytes.
macro_rules! unsigned {
    ($bytes:expr, $ty:ident => $body:expr) => {
        match $bytes {
            1 => {
                type $ty = u8;
                $body
            }
            2 => {
                type $ty = u16;
                $body
            }
            4 => {
                type $ty = u32;
                $body
            }
            _ => {
                type $ty = u64;
                $body
            }
        }
    };
}

/// Evaluates an expression with `$ty` as the integer of `$bytes` bytes, signed or not.
macro_rules! either {
    ($bytes:expr, $signed:expr, $ty:ident => $body:expr) => {
        match ($bytes, $signed) {
            (1, true) => {
                type $ty = i8;
                $body
            }
            (2, true) => {
                type $ty = i16;
                $body
            }
            (4, true) => {
                type $ty = i32;
                $body
            }
            (_, true) => {
                type $ty = i64;
                $body
            }
            (_, false) => unsigned!($bytes, $ty => $body),
        }
    };
}

fn ordered<T: Element>(out: &mut [u8], x: Operand<'_>, y: Operand<'_>, f: impl Fn(T, T) -> T + Copy) {
    binary(typed_mut(out), Source::new(x), Source::new(y), f);
}

fn commutative<T: Element>(out: &mut [u8], x: Operand<'_>, y: Operand<'_>, f: impl Fn(T, T) -> T + Copy) {
    binary_commutative(typed_mut(out), Source::new(x), Source::new(y), f);
}

fn long<T: Element>(out: &mut [u8], x: Operand<'_>, y: Operand<'_>, f: impl Fn(T, T) -> T + Copy) {
    binary_long(typed_mut(out), Source::new(x), Source::new(y), f);
}

fn single<T: Element>(out: &mut [u8], x: Operand<'_>, f: impl Fn(T) -> T) {
    unary(typed_mut(out), Source::new(x), f);
}

fn truth<T: Element>(out: &mut [u8], x: Operand<'_>, y: Operand<'_>, f: impl Fn(T, T) -> bool) {
    compare(out, Source::new(x), Source::new(y), f);
}

pub(super) fn arithmetic(
    function: ArithmeticFn,
    (bytes, signed): (usize, bool),
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match function {
        ArithmeticFn::Add => unsigned!(bytes, T => commutative(out, x, y, T::wrapping_add)),
        ArithmeticFn::Sub => unsigned!(bytes, T => ordered(out, x, y, T::wrapping_sub)),
        ArithmeticFn::Mul => unsigned!(bytes, T => commutative(out, x, y, T::wrapping_mul)),
        ArithmeticFn::Neg => unsigned!(bytes, T => single(out, x, T::wrapping_neg)),
        ArithmeticFn::Abs => either!(bytes, signed, T => single(out, x, T::absolute)),
        ArithmeticFn::Min => {
            either!(bytes, signed, T => commutative(out, x, y, |x: T, y| if x < y { x } else { y }));
        }
        ArithmeticFn::Max => {
            either!(bytes, signed, T => commutative(out, x, y, |x: T, y| if x > y { x } else { y }));
        }
    }
}

pub(super) fn division(
    function: DivisionFn,
    (bytes, signed): (usize, bool),
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match function {
        DivisionFn::IntDiv => either!(bytes, signed, T => long(
            out,
            x,
            y,
            #[inline(always)]
            |x: T, y| if y == 0 { !0 } else { x.quotient(y) },
        )),
        DivisionFn::IntRem => either!(bytes, signed, T => long(
            out,
            x,
            y,
            #[inline(always)]
            |x: T, y| if y == 0 { !0 } else { x.wrapping_sub(x.quotient(y).wrapping_mul(y)) },
        )),
    }
}

pub(super) fn bitwise(
    function: BitwiseFn,
    (bytes, signed): (usize, bool),
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match function {
        BitwiseFn::And => unsigned!(bytes, T => commutative(out, x, y, |x: T, y| x & y)),
        BitwiseFn::Or => unsigned!(bytes, T => commutative(out, x, y, |x: T, y| x | y)),
        BitwiseFn::Xor => unsigned!(bytes, T => commutative(out, x, y, |x: T, y| x ^ y)),
        BitwiseFn::Not => unsigned!(bytes, T => single(out, x, |x: T| !x)),
        BitwiseFn::Shl => unsigned!(bytes, T => ordered(out, x, y, |x: T, y| {
            if y < T::BITS as T { x << (y & (T::BITS as T - 1)) } else { 0 }
        })),
        BitwiseFn::Shr => either!(bytes, signed, T => ordered(out, x, y, T::shift_right)),
    }
}

pub(super) fn wide_product(
    function: WideProductFn,
    (bytes, signed): (usize, bool),
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match function {
        WideProductFn::MulHigh => either!(bytes, signed, T => commutative(out, x, y, T::mul_high)),
    }
}

pub(super) fn compare_integers(
    function: ComparisonFn,
    (bytes, signed): (usize, bool),
    out: &mut [u8],
    x: Operand<'_>,
    y: Operand<'_>,
) {
    match function {
        ComparisonFn::Eq => unsigned!(bytes, T => truth(out, x, y, |x: T, y| x == y)),
        ComparisonFn::Ne => unsigned!(bytes, T => truth(out, x, y, |x: T, y| x != y)),
        ComparisonFn::Lt => either!(bytes, signed, T => truth(out, x, y, |x: T, y| x < y)),
        ComparisonFn::Gt => either!(bytes, signed, T => truth(out, y, x, |x: T, y| x < y)),
        ComparisonFn::Le => either!(bytes, signed, T => truth(out, x, y, |x: T, y| x <= y)),
        ComparisonFn::Ge => either!(bytes, signed, T => truth(out, y, x, |x: T, y| x <= y)),
    }
}

/// The storage of booleans: bytes that are 0 or 1.
const BOOLEAN: (usize, bool) = (1, false);

/// Applies an arithmetic function to booleans, which are integers modulo 2.
pub(super) fn arithmetic_of_booleans(function: ArithmeticFn, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    match function {
        ArithmeticFn::Add | ArithmeticFn::Sub => bitwise(BitwiseFn::Xor, BOOLEAN, out, x, y),
        ArithmeticFn::Neg | ArithmeticFn::Abs => {
            bitwise(BitwiseFn::Or, BOOLEAN, out, x, Operand::Scalar(0));
        }
        ArithmeticFn::Mul | ArithmeticFn::Min | ArithmeticFn::Max => {
            arithmetic(function, BOOLEAN, out, x, y);
        }
    }
}

pub(super) fn division_of_booleans(function: DivisionFn, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    division(function, BOOLEAN, out, x, y);
    // A division by zero sets all bits of the byte, but a boolean has only the lowest bit.
    bitwise(BitwiseFn::And, BOOLEAN, out, Operand::Out, Operand::Scalar(1));
}

pub(super) fn bitwise_of_booleans(function: BitwiseFn, out: &mut [u8], x: Operand<'_>, y: Operand<'_>) {
    match function {
        BitwiseFn::And | BitwiseFn::Or | BitwiseFn::Xor | BitwiseFn::Shr => {
            bitwise(function, BOOLEAN, out, x, y);
        }
        BitwiseFn::Not => bitwise(BitwiseFn::Xor, BOOLEAN, out, x, Operand::Scalar(1)),
        // A shift by one or more shifts the only bit out.
        BitwiseFn::Shl => bitwise(BitwiseFn::Shr, BOOLEAN, out, x, y),
    }
}

fn select_width<T: Element>(out: &mut [u8], condition: Operand<'_>, x: Operand<'_>, y: Operand<'_>) {
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

/// Selects `x` where the condition is not 0, otherwise `y`. The elements have `bytes` bytes.
pub(super) fn select(bytes: usize, out: &mut [u8], condition: Operand<'_>, x: Operand<'_>, y: Operand<'_>) {
    match bytes {
        1 => select_width::<u8>(out, condition, x, y),
        2 => select_width::<u16>(out, condition, x, y),
        4 => select_width::<u32>(out, condition, x, y),
        _ => select_width::<u64>(out, condition, x, y),
    }
}

fn sign_of(bytes: usize) -> u64 {
    1 << (8 * bytes - 1)
}

/// Negates floats of `bytes` bytes by flipping the sign.
pub(super) fn negate_float(bytes: usize, out: &mut [u8], x: Operand<'_>) {
    bitwise(BitwiseFn::Xor, (bytes, false), out, x, Operand::Scalar(sign_of(bytes)));
}

/// Computes the absolute values of floats of `bytes` bytes by clearing the sign.
pub(super) fn absolute_float(bytes: usize, out: &mut [u8], x: Operand<'_>) {
    bitwise(BitwiseFn::And, (bytes, false), out, x, Operand::Scalar(!sign_of(bytes)));
}
