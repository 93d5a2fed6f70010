//! Computes functions of elements by their definitions.
//!
//! Integers are computed in 128 bits. Floats are computed in binary64 and rounded to their type.

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, ElementwiseFamily as Family, ElementwiseFn,
    FloatFn, MathFn, Rounding, WideProductFn,
};

pub fn integer(dtype: Dtype, bits: u64) -> i128 {
    let (low, _) = dtype.int_range().expect("it is an integer");
    let value = i128::from(bits);
    if low < 0 && value >= 1 << (dtype.bits() - 1) { value - (1 << dtype.bits()) } else { value }
}

/// Returns the bits of an integer modulo the width of a type.
pub fn wrap(dtype: Dtype, value: i128) -> u64 {
    value.rem_euclid(1 << dtype.bits()) as u64
}

/// Returns the bits of the exponent and of the stored mantissa.
fn format(dtype: Dtype) -> (i32, i32) {
    match dtype {
        Dtype::F16 => (5, 10),
        Dtype::BF16 => (8, 7),
        Dtype::F32 => (8, 23),
        Dtype::F64 => (11, 52),
        other => panic!("{other} is not a float of this test"),
    }
}

pub fn float(dtype: Dtype, bits: u64) -> f64 {
    let (exponent_bits, mantissa_bits) = format(dtype);
    let negative = bits >> (exponent_bits + mantissa_bits) & 1 == 1;
    let exponent = (bits >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
    let mantissa = (bits & ((1 << mantissa_bits) - 1)) as f64;
    let offset = (1 << (exponent_bits - 1)) - 1;
    let magnitude = match exponent {
        _ if dtype == Dtype::F64 => return f64::from_bits(bits),
        0 => mantissa * 2_f64.powi(1 - offset - mantissa_bits),
        e if e == (1 << exponent_bits) - 1 => {
            if mantissa == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        e => (mantissa + 2_f64.powi(mantissa_bits)) * 2_f64.powi(e - offset - mantissa_bits),
    };
    if negative { -magnitude } else { magnitude }
}

/// Returns the bits of the nearest number of a float type, ties to even.
pub fn round(dtype: Dtype, value: f64) -> u64 {
    if dtype == Dtype::F64 {
        return value.to_bits();
    }
    let (exponent_bits, mantissa_bits) = format(dtype);
    let offset = (1 << (exponent_bits - 1)) - 1;
    let sign = u64::from(value.is_sign_negative()) << (exponent_bits + mantissa_bits);
    let infinity = ((1_u64 << exponent_bits) - 1) << mantissa_bits;
    if value.is_nan() {
        return infinity | 1 << (mantissa_bits - 1);
    }
    if value == 0.0 || value.is_infinite() {
        return sign | if value == 0.0 { 0 } else { infinity };
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - offset);
    // The magnitude in units of the last place. The product of the two factors may exceed binary64.
    let scale = mantissa_bits - exponent;
    let units =
        (value.abs() * 2_f64.powi(scale / 2) * 2_f64.powi(scale - scale / 2)).round_ties_even() as u64;
    let hidden = 1_u64 << mantissa_bits;
    // A carry out of the mantissa increments the exponent.
    let magnitude =
        if units < hidden { units } else { units - hidden + (((exponent + offset) as u64) << mantissa_bits) };
    sign | magnitude.min(infinity)
}

pub fn int_function(function: ElementwiseFn, dtype: Dtype, operands: &[u64]) -> u64 {
    let x = integer(dtype, operands[0]);
    let y = operands.get(1).map_or(0, |&bits| integer(dtype, bits));
    let count = operands.get(1).copied().unwrap_or(0);
    let width = u64::from(dtype.bits());
    let (low, _) = dtype.int_range().expect("it is an integer");
    let value = match function.family() {
        Family::Arithmetic(function) => match function {
            ArithmeticFn::Add => x + y,
            ArithmeticFn::Sub => x - y,
            ArithmeticFn::Mul => return wrap_product(dtype, x, y),
            ArithmeticFn::Neg => -x,
            ArithmeticFn::Abs => [x, -x][usize::from(x < 0)],
            ArithmeticFn::Min => [y, x][usize::from(x < y)],
            ArithmeticFn::Max => [x, y][usize::from(x < y)],
        },
        Family::Division(function) => match function {
            DivisionFn::IntDiv | DivisionFn::IntRem if y == 0 => return wrap(dtype, (1 << width) - 1),
            DivisionFn::IntDiv => x / y,
            DivisionFn::IntRem => x - x / y * y,
        },
        Family::Bitwise(function) => match function {
            BitwiseFn::And => x & y,
            BitwiseFn::Or => x | y,
            BitwiseFn::Xor => x ^ y,
            BitwiseFn::Not => -1 - x,
            BitwiseFn::Shl if count < width => return wrap_product(dtype, x, 1 << count),
            BitwiseFn::Shl => 0,
            BitwiseFn::Shr if count < width => x.div_euclid(1 << count),
            BitwiseFn::Shr => {
                if low < 0 && x < 0 {
                    -1
                } else {
                    0
                }
            }
        },
        Family::WideProduct(function) => match function {
            WideProductFn::MulHigh if low < 0 => (x * y).div_euclid(1 << width),
            WideProductFn::MulHigh => return ((x as u128 * y as u128) >> width) as u64,
        },
        Family::Comparison(function) => return u64::from(compare(function, x, y)),
        Family::Selection(_) | Family::Float(_) | Family::Math(_) => {
            panic!("{function:?} does not take integers")
        }
    };
    wrap(dtype, value)
}

fn wrap_product(dtype: Dtype, x: i128, y: i128) -> u64 {
    let modulus = 1_i128 << dtype.bits();
    let (x, y) = (x.rem_euclid(modulus) as u128, y.rem_euclid(modulus) as u128);
    (x.wrapping_mul(y) % modulus as u128) as u64
}

pub fn float_function(function: ElementwiseFn, dtype: Dtype, operands: &[u64]) -> u64 {
    let numbers: Vec<f64> = operands.iter().map(|&bits| float(dtype, bits)).collect();
    let (x, y) = (numbers[0], numbers.get(1).copied().unwrap_or(0.0));
    let minimum = |x: f64, y: f64| {
        if x < y || (x == y && x.is_sign_negative()) { x } else { y }
    };
    let number = |x: f64, y: f64, both: &dyn Fn(f64, f64) -> f64| {
        if x.is_nan() {
            y
        } else if y.is_nan() {
            x
        } else {
            both(x, y)
        }
    };
    let keeping = |x: f64, y: f64, both: &dyn Fn(f64, f64) -> f64| {
        if x.is_nan() || y.is_nan() { f64::NAN } else { both(x, y) }
    };
    let maximum = |x: f64, y: f64| -minimum(-x, -y);
    let value = match function.family() {
        Family::Arithmetic(function) => match function {
            ArithmeticFn::Add => x + y,
            ArithmeticFn::Sub => x - y,
            ArithmeticFn::Mul => x * y,
            ArithmeticFn::Neg => -x,
            ArithmeticFn::Abs => x.abs(),
            ArithmeticFn::Min => number(x, y, &minimum),
            ArithmeticFn::Max => number(x, y, &maximum),
        },
        Family::Float(function) => match function {
            FloatFn::Div | FloatFn::DivRn => x / y,
            FloatFn::FloatRem => x % y,
            FloatFn::MinNan => keeping(x, y, &minimum),
            FloatFn::MaxNan => keeping(x, y, &maximum),
            FloatFn::Fma if dtype == Dtype::F32 => f64::from((x as f32).mul_add(y as f32, numbers[2] as f32)),
            FloatFn::Fma => x.mul_add(y, numbers[2]),
            FloatFn::Sqrt | FloatFn::SqrtRn => x.sqrt(),
            FloatFn::Floor => x.floor(),
            FloatFn::Ceil => x.ceil(),
        },
        // Random programs have no transcendental function but `Exp`.
        Family::Math(MathFn::Exp) => x.exp(),
        // tidy: wildcard because the optimizer has no facts about the values of transcendental
        // functions
        Family::Math(_)
        | Family::Division(_)
        | Family::Bitwise(_)
        | Family::WideProduct(_)
        | Family::Comparison(_)
        | Family::Selection(_) => panic!("{function:?} is not of this test"),
    };
    round(dtype, value)
}

pub fn compare<T: PartialOrd + Copy>(function: ComparisonFn, x: T, y: T) -> bool {
    match function {
        ComparisonFn::Eq => x == y,
        ComparisonFn::Ne => x != y,
        ComparisonFn::Lt => x < y,
        ComparisonFn::Le => x <= y,
        ComparisonFn::Gt => x > y,
        ComparisonFn::Ge => x >= y,
    }
}

pub fn cast(from: Dtype, to: Dtype, rounding: Rounding, bits: u64) -> u64 {
    assert_eq!(rounding, Rounding::NearestEven);
    match (from.is_int(), to.int_range()) {
        (true, _) if to.is_bool() => u64::from(bits != 0),
        (false, _) if to.is_bool() => u64::from(float(from, bits) != 0.0),
        (true, Some(_)) => wrap(to, integer(from, bits)),
        (true, None) => int_to_float(integer(from, bits), to),
        (false, Some((low, high))) => {
            let value = float(from, bits);
            if value.is_nan() { 0 } else { wrap(to, (value.trunc() as i128).max(low).min(high)) }
        }
        (false, None) => round(to, float(from, bits)),
    }
}

/// Returns the nearest float, with an even mantissa in a tie.
fn int_to_float(value: i128, to: Dtype) -> u64 {
    let near = round(to, value as f64);
    let candidates = [near.wrapping_sub(1), near, near.wrapping_add(1)];
    let distance = |&bits: &u64| {
        let number = float(to, bits);
        if number.is_finite() {
            (number as i128 - value).unsigned_abs() * 2 + u128::from(bits & 1)
        } else {
            u128::MAX
        }
    };
    if float(to, near).is_infinite() || value == 0 {
        return near;
    }
    candidates
        .into_iter()
        .filter(|bits| bits >> (to.bits() - 1) == near >> (to.bits() - 1))
        .min_by_key(distance)
        .unwrap_or(near)
}

/// Returns whether two elements are equal or both NaN.
pub fn same(dtype: Dtype, x: u64, y: u64) -> bool {
    x == y || (dtype.is_float() && float(dtype, x).is_nan() && float(dtype, y).is_nan())
}
