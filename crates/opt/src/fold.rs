//! Folds ops on constants, with the exact results of the CPU executor.
//!
//! Transcendental functions and the 8-bit formats are not folded, because their results are not
//! exactly specified. Division and square root are correctly rounded, which all targets allow.

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, Element, ElementwiseFamily as Family,
    ElementwiseFn, FloatFn, Literal, Rounding, SelectionFn, WideProductFn,
};

/// Folds an elementwise function of constants.
pub fn elementwise(function: ElementwiseFn, operands: &[Literal]) -> Option<Literal> {
    // Functions of fewer operands ignore the duplicates.
    let [x, y, z] = match *operands {
        [x] => [x, x, x],
        [x, y] => [x, y, y],
        [x, y, z] => [x, y, z],
        _ => return None,
    };
    match function.family() {
        Family::Arithmetic(function) if x.dtype.is_float() => float_arithmetic(function, x, y),
        Family::Arithmetic(function) => int_arithmetic(function, x, y),
        Family::Division(function) => division(function, x, y),
        Family::Bitwise(function) => bitwise(function, x, y),
        Family::WideProduct(function) => wide_product(function, x, y),
        Family::Comparison(function) if x.dtype.is_float() => {
            Some(compare(function, x.as_float()?, y.as_float()?))
        }
        Family::Comparison(function) => Some(compare(function, x.as_int()?, y.as_int()?)),
        Family::Selection(SelectionFn::Select) => Some(if x.bits != 0 { y } else { z }),
        Family::Float(function) => float_function(function, [x, y, z]),
        Family::Math(_) => None,
    }
}

fn int_arithmetic(function: ArithmeticFn, x: Literal, y: Literal) -> Option<Literal> {
    let (a, b) = (x.as_int()?, y.as_int()?);
    let result = match function {
        ArithmeticFn::Add => a + b,
        ArithmeticFn::Sub => a - b,
        // The product of two `uint64` may exceed `i128`. The wrapped product has the same low 64
        // bits.
        ArithmeticFn::Mul => a.wrapping_mul(b),
        ArithmeticFn::Neg => -a,
        ArithmeticFn::Abs => a.abs(),
        ArithmeticFn::Min => a.min(b),
        ArithmeticFn::Max => a.max(b),
    };
    Some(Literal::int(x.dtype, result))
}

fn division(function: DivisionFn, x: Literal, y: Literal) -> Option<Literal> {
    let (a, b) = (x.as_int()?, y.as_int()?);
    let result = match function {
        DivisionFn::IntDiv | DivisionFn::IntRem if b == 0 => -1,
        DivisionFn::IntDiv => a / b,
        DivisionFn::IntRem => a % b,
    };
    Some(Literal::int(x.dtype, result))
}

fn bitwise(function: BitwiseFn, x: Literal, y: Literal) -> Option<Literal> {
    let (a, b) = (x.as_int()?, y.as_int()?);
    let result = match function {
        BitwiseFn::And => a & b,
        BitwiseFn::Or => a | b,
        BitwiseFn::Xor => a ^ b,
        BitwiseFn::Not => !a,
        BitwiseFn::Shl if y.bits < u64::from(x.dtype.bits()) => a << y.bits,
        BitwiseFn::Shl => 0,
        BitwiseFn::Shr => a >> y.bits.min(64),
    };
    Some(Literal::int(x.dtype, result))
}

fn wide_product(function: WideProductFn, x: Literal, y: Literal) -> Option<Literal> {
    let (a, b, bits) = (x.as_int()?, y.as_int()?, x.dtype.bits());
    let result = match function {
        WideProductFn::MulHigh if x.dtype.is_signed() => (a * b) >> bits,
        WideProductFn::MulHigh => (a.cast_unsigned().wrapping_mul(b.cast_unsigned()) >> bits).cast_signed(),
    };
    Some(Literal::int(x.dtype, result))
}

fn compare<T: PartialOrd + Copy>(function: ComparisonFn, x: T, y: T) -> Literal {
    Literal::bool(match function {
        ComparisonFn::Eq => x == y,
        ComparisonFn::Ne => x != y,
        ComparisonFn::Lt => x < y,
        ComparisonFn::Le => x <= y,
        ComparisonFn::Gt => x > y,
        ComparisonFn::Ge => x >= y,
    })
}

/// A native float type.
trait Float: Copy + PartialOrd {
    const NAN: Self;
    fn is_sign_negative(self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($ty:ident) => {
        impl Float for $ty {
            const NAN: Self = $ty::NAN;
            fn is_sign_negative(self) -> bool {
                $ty::is_sign_negative(self)
            }
            fn is_nan(self) -> bool {
                $ty::is_nan(self)
            }
        }
    };
}
float!(f32);
float!(f64);

/// Returns the minimum or, with `largest`, the maximum, as in IEEE 754-2019. -0 is below +0. If one
/// operand is NaN, returns the other, or NaN with `keeps_nan`.
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

/// Computes a function in binary64 for `fp64` and in binary32 otherwise, and rounds to the type.
fn computed(
    x: Literal,
    y: Literal,
    single: impl FnOnce(f32, f32) -> f32,
    double: impl FnOnce(f64, f64) -> f64,
) -> Option<Literal> {
    let (a, b) = (x.as_float()?, y.as_float()?);
    let result = if x.dtype == Dtype::F64 { double(a, b) } else { f64::from(single(a as f32, b as f32)) };
    Literal::float(x.dtype, result)
}

/// Calls [`computed`] with a copy of a closure for each type, because a closure is not generic.
macro_rules! computed {
    ($x:ident, $y:ident, $function:expr) => {
        computed($x, $y, $function, $function)
    };
}

fn float_arithmetic(function: ArithmeticFn, x: Literal, y: Literal) -> Option<Literal> {
    x.as_float()?;
    let sign = 1 << (x.dtype.bits() - 1);
    match function {
        ArithmeticFn::Add => computed!(x, y, |x, y| x + y),
        ArithmeticFn::Sub => computed!(x, y, |x, y| x - y),
        ArithmeticFn::Mul => computed!(x, y, |x, y| x * y),
        ArithmeticFn::Neg => Some(Literal { bits: x.bits ^ sign, ..x }),
        ArithmeticFn::Abs => Some(Literal { bits: x.bits & !sign, ..x }),
        ArithmeticFn::Min => computed!(x, y, |x, y| extreme(x, y, false, false)),
        ArithmeticFn::Max => computed!(x, y, |x, y| extreme(x, y, true, false)),
    }
}

fn float_function(function: FloatFn, [x, y, z]: [Literal; 3]) -> Option<Literal> {
    match function {
        FloatFn::Div | FloatFn::DivRn => computed!(x, y, |x, y| x / y),
        FloatFn::FloatRem => computed!(x, y, |x, y| x % y),
        FloatFn::Fma => fma([x, y, z]),
        FloatFn::MinNan => computed!(x, y, |x, y| extreme(x, y, false, true)),
        FloatFn::MaxNan => computed!(x, y, |x, y| extreme(x, y, true, true)),
        // binary64 has more than twice the precision of binary32, so the second rounding changes
        // nothing.
        FloatFn::Sqrt | FloatFn::SqrtRn => Literal::float(x.dtype, x.as_float()?.sqrt()),
        FloatFn::Floor => Literal::float(x.dtype, x.as_float()?.floor()),
        FloatFn::Ceil => Literal::float(x.dtype, x.as_float()?.ceil()),
    }
}

fn fma(operands: [Literal; 3]) -> Option<Literal> {
    let [Some(x), Some(y), Some(z)] = operands.map(Literal::as_float) else { return None };
    match operands[0].dtype {
        Dtype::F64 => Literal::float(Dtype::F64, x.mul_add(y, z)),
        Dtype::F32 => Literal::float(Dtype::F32, f64::from((x as f32).mul_add(y as f32, z as f32))),
        // binary64 represents the product of narrower types exactly, but the sum might be rounded
        // twice.
        _ => None,
    }
}

/// Folds a cast to another element type.
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
            // Rust's conversion truncates, saturates, and maps NaN to 0.
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
        // An integer that binary64 does not represent overflows binary16, and would be rounded
        // twice to bfloat16.
        _ if to == Dtype::F64 || wide as i128 == value => Literal::float(to, wide)?,
        _ => return None,
    };
    let is_exact = result.as_float().is_some_and(|number| number.is_finite() && number as i128 == value);
    (is_exact || rounding == Rounding::NearestEven).then_some(result)
}

/// Reinterprets the bits of a constant as another element type of the same width.
pub fn bitcast(value: Literal, element: Element) -> Option<Literal> {
    let dtype = element.value()?;
    (dtype.bits() == value.dtype.bits()).then_some(Literal { dtype, bits: value.bits })
}
