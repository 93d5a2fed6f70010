//! Evaluation of ops on constants, exactly as the CPU executor computes them.
//!
//! What is not exactly specified is left alone: transcendental functions and the 8-bit formats. Division and square root
//! of floats are the correctly rounded ones, which every target's error bound allows.

use tilewright_ir::{Dtype, Element, ElementwiseFn, Literal, Rounding};

/// An elementwise function of constants.
pub fn elementwise(function: ElementwiseFn, operands: &[Literal]) -> Option<Literal> {
    match *operands {
        [x] if x.dtype.is_float() => float_unary(function, x),
        [x] => int_unary(function, x),
        [x, y] if x.dtype.is_float() => float_binary(function, x, y),
        [x, y] => int_binary(function, x, y),
        [condition, x, y] if function == ElementwiseFn::Select => {
            Some(if condition.bits != 0 { x } else { y })
        }
        [x, y, z] if function == ElementwiseFn::Fma => fma([x, y, z]),
        _ => None,
    }
}

fn int_unary(function: ElementwiseFn, x: Literal) -> Option<Literal> {
    use ElementwiseFn as F;
    let value = x.as_int()?;
    let result = match function {
        F::Neg => -value,
        F::Abs => value.abs(),
        F::Not => !value,
        // tidy: wildcard because the others take floats or more operands
        _ => return None,
    };
    Some(Literal::int(x.dtype, result))
}

fn int_binary(function: ElementwiseFn, x: Literal, y: Literal) -> Option<Literal> {
    use ElementwiseFn as F;
    let (dtype, bits) = (x.dtype, x.dtype.bits());
    let (a, b) = (x.as_int()?, y.as_int()?);
    let result = match function {
        F::Add => a + b,
        F::Sub => a - b,
        // The product of two unsigned 64-bit numbers needs 128 bits without a sign; the low bits are the same.
        F::Mul => a.wrapping_mul(b),
        F::IntDiv if b == 0 => -1,
        F::IntDiv => a / b,
        F::IntRem if b == 0 => a,
        F::IntRem => a % b,
        F::Min => a.min(b),
        F::Max => a.max(b),
        F::And => a & b,
        F::Or => a | b,
        F::Xor => a ^ b,
        F::Shl if y.bits < u64::from(bits) => a << y.bits,
        F::Shl => 0,
        F::Shr => a >> y.bits.min(64),
        F::MulHigh if dtype.is_signed() => (a * b) >> bits,
        F::MulHigh => (a.cast_unsigned().wrapping_mul(b.cast_unsigned()) >> bits).cast_signed(),
        F::Eq => return Some(Literal::bool(a == b)),
        F::Ne => return Some(Literal::bool(a != b)),
        F::Lt => return Some(Literal::bool(a < b)),
        F::Le => return Some(Literal::bool(a <= b)),
        F::Gt => return Some(Literal::bool(a > b)),
        F::Ge => return Some(Literal::bool(a >= b)),
        // tidy: wildcard because the others take floats or another number of operands
        _ => return None,
    };
    Some(Literal::int(dtype, result))
}

/// The arithmetic of one native float type.
trait Float: Copy + PartialOrd {
    const NAN: Self;
    fn is_sign_negative(self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($ty:ident $binary:ident) => {
        impl Float for $ty {
            const NAN: Self = $ty::NAN;
            fn is_sign_negative(self) -> bool {
                $ty::is_sign_negative(self)
            }
            fn is_nan(self) -> bool {
                $ty::is_nan(self)
            }
        }

        fn $binary(function: ElementwiseFn, x: $ty, y: $ty) -> Option<$ty> {
            use ElementwiseFn as F;
            Some(match function {
                F::Add => x + y,
                F::Sub => x - y,
                F::Mul => x * y,
                F::Div | F::DivRn => x / y,
                F::FloatRem => x % y,
                F::Min => extreme(x, y, false, false),
                F::Max => extreme(x, y, true, false),
                F::MinNan => extreme(x, y, false, true),
                F::MaxNan => extreme(x, y, true, true),
                // tidy: wildcard because the others take integers, give booleans or take another number of operands
                _ => return None,
            })
        }
    };
}
float!(f32 binary_32);
float!(f64 binary_64);

/// Minimum or maximum of IEEE 754-2019: -0 is below +0; NaN gives the other one, or NaN if `keeps_nan`.
fn extreme<T: Float>(x: T, y: T, largest: bool, keeps_nan: bool) -> T {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => return T::NAN,
        (true, false) => return if keeps_nan { T::NAN } else { y },
        (false, true) => return if keeps_nan { T::NAN } else { x },
        (false, false) => {}
    }
    let x_is_smaller = x < y || (x == y && x.is_sign_negative());
    if x_is_smaller == largest { y } else { x }
}

fn float_unary(function: ElementwiseFn, x: Literal) -> Option<Literal> {
    use ElementwiseFn as F;
    let value = x.as_float()?;
    let sign = 1 << (x.dtype.bits() - 1);
    match function {
        F::Neg => Some(Literal { bits: x.bits ^ sign, ..x }),
        F::Abs => Some(Literal { bits: x.bits & !sign, ..x }),
        F::Floor => Literal::float(x.dtype, value.floor()),
        F::Ceil => Literal::float(x.dtype, value.ceil()),
        // The root of a binary32 (or narrower) number, rounded to binary64, has enough bits to be rounded again.
        F::Sqrt | F::SqrtRn => Literal::float(x.dtype, value.sqrt()),
        // tidy: wildcard because the others are not exactly specified or take other operands
        _ => None,
    }
}

fn float_binary(function: ElementwiseFn, x: Literal, y: Literal) -> Option<Literal> {
    use ElementwiseFn as F;
    let (a, b) = (x.as_float()?, y.as_float()?);
    let order = match function {
        F::Eq => a == b,
        F::Ne => a != b,
        F::Lt => a < b,
        F::Le => a <= b,
        F::Gt => a > b,
        F::Ge => a >= b,
        // tidy: wildcard because the others give no boolean
        _ if x.dtype == Dtype::F64 => return Literal::float(Dtype::F64, binary_64(function, a, b)?),
        // tidy: wildcard because the others give no boolean. Narrow formats are computed in binary32, as documented.
        _ => return Literal::float(x.dtype, f64::from(binary_32(function, a as f32, b as f32)?)),
    };
    Some(Literal::bool(order))
}

fn fma(operands: [Literal; 3]) -> Option<Literal> {
    let [Some(x), Some(y), Some(z)] = operands.map(Literal::as_float) else { return None };
    match operands[0].dtype {
        Dtype::F64 => Literal::float(Dtype::F64, x.mul_add(y, z)),
        Dtype::F32 => Literal::float(Dtype::F32, f64::from((x as f32).mul_add(y as f32, z as f32))),
        // Of a narrow format, binary64 holds the product exactly, but the sum may need more.
        _ => None,
    }
}

/// A cast of a constant to another element type.
pub fn cast(value: Literal, element: Element, rounding: Rounding) -> Option<Literal> {
    let to = element.value()?;
    if to.is_bool() {
        let is_zero = if value.dtype.is_float() { value.as_float()? == 0.0 } else { value.bits == 0 };
        return Some(Literal::bool(!is_zero));
    }
    match (value.as_int(), to.int_range()) {
        (Some(integer), Some(_)) => Some(Literal::int(to, integer)),
        (Some(integer), None) => int_to_float(integer, to, rounding),
        (None, Some((low, high))) => {
            // Rust's conversion truncates, saturates, and gives 0 for NaN, which is in every range.
            Some(Literal::int(to, (value.as_float()? as i128).clamp(low, high)))
        }
        (None, None) => {
            let number = value.as_float()?;
            let result = Literal::float(to, number)?;
            let is_exact = result.as_float() == Some(number) || number.is_nan();
            (is_exact || rounding == Rounding::NearestEven).then_some(result)
        }
    }
}

fn int_to_float(value: i128, to: Dtype, rounding: Rounding) -> Option<Literal> {
    let wide = value as f64;
    let result = match to {
        Dtype::F32 => Literal { dtype: to, bits: u64::from((value as f32).to_bits()) },
        // What binary64 does not hold exactly overflows binary16, but binary32's range would round it twice.
        _ if to == Dtype::F64 || wide as i128 == value => Literal::float(to, wide)?,
        _ => return None,
    };
    let is_exact = result.as_float().is_some_and(|number| number.is_finite() && number as i128 == value);
    (is_exact || rounding == Rounding::NearestEven).then_some(result)
}

/// The same bits as another element type.
pub fn bitcast(value: Literal, element: Element) -> Option<Literal> {
    let dtype = element.value()?;
    (dtype.bits() == value.dtype.bits()).then_some(Literal { dtype, bits: value.bits })
}
