//! Evaluates Python's operators on compile-time values, with Python's semantics.
//!
//! Integers have at most 128 bits.

use std::cmp::Ordering;

use crate::semantic::{BinaryOperator, CompareOperator, UnaryOperator};
use crate::value::Constant;

/// The maximum [`Constant::size`] of a compile-time value: twice the maximum number of iterations
/// of an unrolled range.
const MAX_SIZE: usize = 1 << 17;

/// The number of bytes of a string that add 1 to its size.
const LETTERS: usize = 16;

const TOO_WIDE: &str = "the result needs more than 128 bits";

/// The value of an expression, or the text of the exception that Python raises.
pub type Evaluated = Result<Constant, String>;

/// An operand of arithmetic. A boolean is an integer, as in Python.
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn of(value: &Constant) -> Option<Self> {
        match value {
            Constant::Bool(value) => Some(Number::Int(i128::from(*value))),
            Constant::Int(value) => Some(Number::Int(*value)),
            Constant::Float(value) => Some(Number::Float(*value)),
            _ => None,
        }
    }

    fn as_float(&self) -> f64 {
        match self {
            Number::Int(value) => *value as f64,
            Number::Float(value) => *value,
        }
    }

    /// Compares two numbers by their exact values, or returns `None` for a NaN.
    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(left), Number::Int(right)) => Some(left.cmp(right)),
            (Number::Float(left), Number::Float(right)) => left.partial_cmp(right),
            (Number::Int(int), Number::Float(float)) => order_int_and_float(*int, *float),
            (Number::Float(float), Number::Int(int)) => {
                order_int_and_float(*int, *float).map(Ordering::reverse)
            }
        }
    }
}

/// Compares an integer with a float without rounding, or returns `None` for a NaN.
fn order_int_and_float(int: i128, float: f64) -> Option<Ordering> {
    const END: f64 = -(i128::MIN as f64);
    if float.is_nan() {
        return None;
    }
    if !(-END..END).contains(&float) {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    // The conversion is exact, because the float is an integer in the range of `i128`.
    let floor = float.floor();
    let of_fraction = if floor < float { Ordering::Less } else { Ordering::Equal };
    Some(int.cmp(&(floor as i128)).then(of_fraction))
}

/// Computes `left op right`.
pub fn binary(operator: BinaryOperator, left: &Constant, right: &Constant) -> Evaluated {
    match (left, right) {
        (Constant::Str(first), Constant::Str(second)) if operator == BinaryOperator::Add => {
            return limited(left.size() + right.size(), || Constant::Str(format!("{first}{second}").into()));
        }
        (Constant::Tuple(first), Constant::Tuple(second)) if operator == BinaryOperator::Add => {
            return limited(left.size() + right.size(), || {
                Constant::Tuple(first.iter().chain(second).cloned().collect())
            });
        }
        (sequence @ (Constant::Str(_) | Constant::Tuple(_)), Constant::Int(count))
        | (Constant::Int(count), sequence @ (Constant::Str(_) | Constant::Tuple(_)))
            if operator == BinaryOperator::Mul =>
        {
            return repeat(sequence, *count);
        }
        (Constant::Bool(left), Constant::Bool(right)) => match operator {
            BinaryOperator::And => return Ok(Constant::Bool(left & right)),
            BinaryOperator::Or => return Ok(Constant::Bool(left | right)),
            BinaryOperator::Xor => return Ok(Constant::Bool(left ^ right)),
            _ => {}
        },
        _ => {}
    }
    match (Number::of(left), Number::of(right)) {
        (Some(Number::Int(left)), Some(Number::Int(right))) => int_binary(operator, left, right),
        (Some(one), Some(other)) => float_binary(operator, one.as_float(), other.as_float())
            .unwrap_or_else(|| Err(unsupported(operator, left, right))),
        _ => Err(unsupported(operator, left, right)),
    }
}

fn unsupported(operator: BinaryOperator, left: &Constant, right: &Constant) -> String {
    let symbol = operator.symbol();
    format!("unsupported operand types for {symbol}: '{}' and '{}'", left.type_name(), right.type_name())
}

/// Calls `make`, which returns a value of this `size`, unless the size is too large.
pub fn limited<T>(size: usize, make: impl FnOnce() -> T) -> Result<T, String> {
    if size > MAX_SIZE {
        let (items, letters) = (MAX_SIZE / 2, MAX_SIZE * LETTERS);
        Err(format!(
            "a compile-time value has at most {items} items or {letters} letters, and this one has more"
        ))
    } else {
        Ok(make())
    }
}

fn repeat(sequence: &Constant, count: i128) -> Evaluated {
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let size = match sequence {
        // The size of a string is at least 1, so `size * count` would exceed that of a repeated
        // short string.
        Constant::Str(text) => text.len().saturating_mul(count) / LETTERS,
        // An empty tuple remains empty for every `count`.
        Constant::Tuple(items) if items.is_empty() => 0,
        other => other.size().saturating_mul(count),
    };
    match sequence {
        Constant::Str(text) => limited(size, || Constant::Str(text.repeat(count).into())),
        Constant::Tuple(items) => limited(size, || {
            let count = if items.is_empty() { 0 } else { count };
            Constant::Tuple(std::iter::repeat_n(items, count).flatten().cloned().collect())
        }),
        _ => Err("only strings and tuples can be repeated".into()),
    }
}

fn int_binary(operator: BinaryOperator, left: i128, right: i128) -> Evaluated {
    let is_division =
        matches!(operator, BinaryOperator::Div | BinaryOperator::FloorDiv | BinaryOperator::Mod);
    if is_division && right == 0 {
        return Err("division by zero".into());
    }
    let value = match operator {
        BinaryOperator::Add => left.checked_add(right),
        BinaryOperator::Sub => left.checked_sub(right),
        BinaryOperator::Mul => left.checked_mul(right),
        BinaryOperator::Div => return Ok(Constant::Float(divide_exactly(left, right))),
        BinaryOperator::FloorDiv => left.checked_div_euclid(right).map(|quotient| {
            // Euclidean division rounds up for a negative divisor with a remainder.
            if right < 0 && left.rem_euclid(right) != 0 { quotient - 1 } else { quotient }
        }),
        BinaryOperator::Mod => left
            .checked_rem(right)
            .map(|rest| if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest }),
        BinaryOperator::Pow if right < 0 => {
            if left == 0 {
                return Err("0 cannot be raised to a negative power".into());
            }
            return Ok(Constant::Float((left as f64).powf(right as f64)));
        }
        BinaryOperator::Pow if left.unsigned_abs() <= 1 => {
            left.checked_pow((right % 2) as u32 + u32::from(right > 0) * 2)
        }
        BinaryOperator::Pow => u32::try_from(right).ok().and_then(|power| left.checked_pow(power)),
        BinaryOperator::Shl | BinaryOperator::Shr if right < 0 => return Err("negative shift count".into()),
        BinaryOperator::Shl if left == 0 => Some(0),
        BinaryOperator::Shl => u32::try_from(right)
            .ok()
            .filter(|&count| count < 127)
            .and_then(|count| left.checked_mul(1_i128 << count)),
        BinaryOperator::Shr => Some(left >> right.min(127)),
        BinaryOperator::And => Some(left & right),
        BinaryOperator::Or => Some(left | right),
        BinaryOperator::Xor => Some(left ^ right),
        BinaryOperator::MatMul => {
            return Err(unsupported(operator, &Constant::Int(left), &Constant::Int(right)));
        }
    };
    value.map(Constant::Int).ok_or_else(|| TOO_WIDE.into())
}

/// Returns the float nearest to `left / right`; `right` is not 0.
///
/// As in Python, the operands are not rounded first.
fn divide_exactly(left: i128, right: i128) -> f64 {
    const EXACT: u128 = 1 << f64::MANTISSA_DIGITS;
    /// The number of bits of the quotient, more than those of a float, so that the last bit may
    /// represent the remainder.
    const BITS: i32 = f64::MANTISSA_DIGITS as i32 + 2;
    let (dividend, divisor) = (left.unsigned_abs(), right.unsigned_abs());
    if dividend <= EXACT && divisor <= EXACT {
        return left as f64 / right as f64;
    }
    // The quotient of `dividend << scale` and `divisor` has `BITS` or `BITS + 1` bits.
    let scale = BITS - (divisor.leading_zeros() as i32 - dividend.leading_zeros() as i32);
    let shifted_divisor = divisor << (-scale).max(0);
    let (mut quotient, mut rest) = (dividend / shifted_divisor, dividend % shifted_divisor);
    // One step of long division for each further bit.
    for _ in 0..scale {
        rest <<= 1;
        quotient <<= 1;
        if rest >= divisor {
            rest -= divisor;
            quotient |= 1;
        }
    }
    let nearest = (quotient | u128::from(rest > 0)) as f64 * 2_f64.powi(-scale);
    if (left < 0) == (right < 0) { nearest } else { -nearest }
}

/// Computes `left op right`; `None` if Python does not define the operator for floats.
fn float_binary(operator: BinaryOperator, left: f64, right: f64) -> Option<Evaluated> {
    let is_division =
        matches!(operator, BinaryOperator::Div | BinaryOperator::FloorDiv | BinaryOperator::Mod);
    if is_division && right == 0.0 {
        return Some(Err("division by zero".into()));
    }
    Some(Ok(Constant::Float(match operator {
        BinaryOperator::Add => left + right,
        BinaryOperator::Sub => left - right,
        BinaryOperator::Mul => left * right,
        BinaryOperator::Div => left / right,
        BinaryOperator::FloorDiv => float_divmod(left, right).0,
        BinaryOperator::Mod => float_divmod(left, right).1,
        BinaryOperator::Pow => return Some(float_power(left, right)),
        _ => return None,
    })))
}

/// Computes CPython's `divmod` of floats: the quotient derives from the exact remainder, so that
/// `1.0 // 0.1` is 9.0.
fn float_divmod(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(right);
    } else if (rest < 0.0) != (right < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(left / right), rest);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
}

fn float_power(base: f64, power: f64) -> Evaluated {
    if base == 0.0 && power < 0.0 {
        return Err("0.0 cannot be raised to a negative power".into());
    }
    if base < 0.0 && base.is_finite() && power.is_finite() && power.fract() != 0.0 {
        return Err("a negative number raised to a fraction is complex".into());
    }
    let value = base.powf(power);
    if value.is_infinite() && base.is_finite() && power.is_finite() {
        return Err("the result is too large for a float".into());
    }
    Ok(Constant::Float(value))
}

/// Computes `triton.cdiv`: `(left + right - 1) // right`. For integers with a positive `right`,
/// this is the quotient rounded up.
pub fn ceil_div(left: &Constant, right: &Constant) -> Evaluated {
    let sum = binary(BinaryOperator::Add, left, right)?;
    let sum = binary(BinaryOperator::Sub, &sum, &Constant::Int(1))?;
    binary(BinaryOperator::FloorDiv, &sum, right)
}

/// Returns the smallest power of two that is at least `value`. Returns 0 for an integer below 1, as
/// `triton.next_power_of_2` does.
pub fn next_power_of_two(value: &Constant) -> Evaluated {
    match value {
        Constant::Int(value) if *value < 1 => Ok(Constant::Int(0)),
        Constant::Int(value) => match value.unsigned_abs().checked_next_power_of_two().map(i128::try_from) {
            Some(Ok(power)) => Ok(Constant::Int(power)),
            _ => Err(TOO_WIDE.into()),
        },
        other => Err(format!("next_power_of_2 takes an int, not a value of type '{}'", other.type_name())),
    }
}

/// Computes `op value`.
pub fn unary(operator: UnaryOperator, value: &Constant) -> Evaluated {
    if operator == UnaryOperator::Not {
        return Ok(Constant::Bool(!value.is_true()));
    }
    let fail = || Err(format!("bad operand type for unary {}: '{}'", operator.symbol(), value.type_name()));
    match (Number::of(value), operator) {
        (Some(Number::Int(value)), UnaryOperator::Plus) => Ok(Constant::Int(value)),
        (Some(Number::Int(value)), UnaryOperator::Neg) => {
            value.checked_neg().map(Constant::Int).ok_or_else(|| TOO_WIDE.into())
        }
        (Some(Number::Int(value)), UnaryOperator::Invert) => Ok(Constant::Int(!value)),
        (Some(Number::Float(value)), UnaryOperator::Plus) => Ok(Constant::Float(value)),
        (Some(Number::Float(value)), UnaryOperator::Neg) => Ok(Constant::Float(-value)),
        _ => fail(),
    }
}

/// Returns whether `left == right` in Python.
pub fn equal(left: &Constant, right: &Constant) -> bool {
    match (Number::of(left), Number::of(right)) {
        (Some(left), Some(right)) => left.order(&right) == Some(Ordering::Equal),
        _ => match (left, right) {
            (Constant::Tuple(left), Constant::Tuple(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
            }
            _ => left == right,
        },
    }
}

/// Returns whether two values are interchangeable: they have the same Python type and the same
/// value, and floats have the same bits.
pub fn identical(left: &Constant, right: &Constant) -> bool {
    match (left, right) {
        (Constant::Float(left), Constant::Float(right)) => left.to_bits() == right.to_bits(),
        (Constant::Tuple(left), Constant::Tuple(right)) => {
            left.is_alike(right) && left.iter().zip(right).all(|(left, right)| identical(left, right))
        }
        _ => left == right,
    }
}

/// Computes `left op right` for one of the six comparisons.
pub fn compare(operator: CompareOperator, left: &Constant, right: &Constant) -> Evaluated {
    let holds = match operator {
        CompareOperator::Eq => equal(left, right),
        CompareOperator::Ne => !equal(left, right),
        CompareOperator::Lt | CompareOperator::Le | CompareOperator::Gt | CompareOperator::Ge => {
            match (order(left, right), operator) {
                (Order::Undefined, _) => {
                    let (symbol, left, right) = (operator.symbol(), left.type_name(), right.type_name());
                    return Err(format!("'{symbol}' is not supported between '{left}' and '{right}'"));
                }
                (Order::Unordered, _) => false,
                (Order::Is(order), CompareOperator::Lt) => order.is_lt(),
                (Order::Is(order), CompareOperator::Le) => order.is_le(),
                (Order::Is(order), CompareOperator::Gt) => order.is_gt(),
                (Order::Is(order), _) => order.is_ge(),
            }
        }
    };
    Ok(Constant::Bool(holds))
}

/// The result of comparing two values.
enum Order {
    Is(Ordering),
    /// One of the values is a NaN.
    Unordered,
    Undefined,
}

fn order(left: &Constant, right: &Constant) -> Order {
    if let (Some(left), Some(right)) = (Number::of(left), Number::of(right)) {
        return left.order(&right).map_or(Order::Unordered, Order::Is);
    }
    match (left, right) {
        (Constant::Str(left), Constant::Str(right)) => Order::Is(left.cmp(right)),
        (Constant::Tuple(left), Constant::Tuple(right)) => {
            match left.iter().zip(right).find(|(left, right)| !equal(left, right)) {
                Some((left, right)) => order(left, right),
                None => Order::Is(left.len().cmp(&right.len())),
            }
        }
        _ => Order::Undefined,
    }
}

/// Evaluates `item in container`.
pub fn contains(container: &Constant, item: &Constant) -> Result<bool, String> {
    match (container, item) {
        (Constant::Tuple(items), item) => Ok(items.iter().any(|other| equal(other, item))),
        (Constant::Str(text), Constant::Str(part)) => Ok(text.contains(&**part)),
        _ => Err(format!("a value of type '{}' has no items to look for", container.type_name())),
    }
}

/// Evaluates `sequence[index]`.
pub fn subscript(sequence: &Constant, index: &Constant) -> Evaluated {
    let (Constant::Int(_) | Constant::Bool(_)) = index else {
        return Err(format!("an index must be an int, found '{}'", index.type_name()));
    };
    let Some(Number::Int(index)) = Number::of(index) else { return Err("an index must be an int".into()) };
    let place = |length: usize| {
        let from_start = if index < 0 { index + length as i128 } else { index };
        let place = usize::try_from(from_start).ok().filter(|&place| place < length);
        place.ok_or_else(|| format!("index {index} is out of range for {length} items"))
    };
    match sequence {
        Constant::Tuple(items) => Ok(items[place(items.len())?].clone()),
        Constant::LanguageType(ty) if ty.types().is_some() => {
            let types = ty.types().map_or(&[][..], |types| types);
            Ok(types[place(types.len())?].clone())
        }
        Constant::Str(text) => {
            let chars: Vec<char> = text.chars().collect();
            Ok(Constant::Str(chars[place(chars.len())?].to_string().into()))
        }
        other => Err(format!("a value of type '{}' has no items", other.type_name())),
    }
}

/// Returns the indices that `first:end:step` selects from `length` items.
pub fn slice_indices(
    length: usize,
    first: Option<i128>,
    end: Option<i128>,
    step: Option<i128>,
) -> Result<Vec<usize>, String> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err("a slice's step cannot be zero".into());
    }
    let length = length as i128;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |value: i128| {
        let from_start = if value < 0 { value.saturating_add(length) } else { value };
        from_start.clamp(lowest, highest)
    };
    let mut place = first.map_or(if step > 0 { lowest } else { highest }, clamp);
    let end = end.map_or(if step > 0 { highest } else { lowest }, clamp);
    let mut places = Vec::new();
    while (step > 0 && place < end) || (step < 0 && place > end) {
        places.push(place as usize);
        place = place.saturating_add(step);
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use BinaryOperator as B;

    fn int(operator: B, left: i128, right: i128) -> Constant {
        binary(operator, &Constant::Int(left), &Constant::Int(right)).expect("the operation is defined")
    }

    #[test]
    fn division_and_remainder_round_as_in_python() {
        for (left, right, quotient, rest) in
            [(7, 3, 2, 1), (-7, 3, -3, 2), (7, -3, -3, -2), (-7, -3, 2, -1), (6, -3, -2, 0)]
        {
            assert_eq!(int(B::FloorDiv, left, right), Constant::Int(quotient), "{left} // {right}");
            assert_eq!(int(B::Mod, left, right), Constant::Int(rest), "{left} % {right}");
        }
        assert_eq!(int(B::Div, 1, 2), Constant::Float(0.5));
        assert!(binary(B::Mod, &Constant::Int(1), &Constant::Int(0)).is_err());
        let modulo = binary(B::Mod, &Constant::Float(-5.5), &Constant::Int(2));
        assert_eq!(modulo, Ok(Constant::Float(0.5)));
    }

    /// Expected: the results of CPython 3.12. Rounding the operands first gives other results.
    #[test]
    fn integers_are_divided_exactly() {
        let negative_zero = -0.0_f64;
        for (left, right, expected) in [
            (0, i128::MIN, negative_zero),
            (i128::MIN, 1, -1.701_411_834_604_692_3e38),
            (i128::MAX, i128::MIN, -1.0),
            (i128::MIN, 3, -5.671_372_782_015_641e37),
            (9_007_199_254_740_993, 1, 9_007_199_254_740_992.0),
            (1, 9_007_199_254_740_993, 1.110_223_024_625_156_4e-16),
            (9_007_199_254_740_993, 9_007_199_254_740_991, 1.000_000_000_000_000_2),
            (9_007_199_254_740_995, -2, -4_503_599_627_370_498.0),
            (18_446_744_073_709_551_615, 9_223_372_036_854_775_809, 2.0),
            (934_511_512_723_165_091_752_237_711_513, 294_103_021_089_328_543_863, 3_177_497_154.778_712_3),
            (-909_598_345_117_968_695_069_030_114_970, 8_512_494_103_503_071, -106_854_505_161_260.53),
            (-392_847_091_658_861_300, 4_966_143_295_460_976, -79.105_065_699_155_53),
            (-790_864_760_852_496_194, 920_923_280_598_052_604, -0.858_773_773_575_258_4),
            (-52_608_961_427_359_880_005_328_902_071, 812_198_122_170_038_601, -64_773_557_080.874_26),
            (-630_637_562_006_600_192, 315_537_446_096_915_049, -1.998_614_014_936_612),
        ] {
            let Constant::Float(found) = int(B::Div, left, right) else { panic!("{left} / {right}") };
            assert_eq!(found.to_bits(), expected.to_bits(), "{left} / {right}");
        }
    }

    #[test]
    fn float_division_is_that_of_python() {
        let negative_zero = -0.0_f64;
        for (left, right, quotient, rest) in [
            (1.0, 0.1, 9.0, 0.099_999_999_999_999_95),
            (-1.0, 0.1, -10.0, 5.551_115_123_125_783e-17),
            (6.0, -2.0, -3.0, negative_zero),
            (-0.5, 2.0, -1.0, 1.5),
            (negative_zero, 3.0, negative_zero, 0.0),
            (1e300, 1e-300, f64::INFINITY, 4.891_554_850_853_602e-301),
            (5.0, f64::INFINITY, 0.0, 5.0),
            (-5.0, f64::INFINITY, -1.0, f64::INFINITY),
            (0.3, 0.1, 2.0, 0.099_999_999_999_999_98),
        ] {
            let float = |operator| match binary(operator, &Constant::Float(left), &Constant::Float(right)) {
                Ok(Constant::Float(value)) => value.to_bits(),
                other => panic!("{other:?}"),
            };
            assert_eq!(float(B::FloorDiv), f64::to_bits(quotient), "{left} // {right}");
            assert_eq!(float(B::Mod), f64::to_bits(rest), "{left} % {right}");
        }
    }

    #[test]
    fn integers_and_floats_are_compared_exactly() {
        use CompareOperator as C;
        use Ordering::{Equal, Greater, Less};
        let large = 1_i128 << 53;
        for (int, float, expected) in [
            (large + 1, large as f64, Some(Greater)),
            (large, large as f64, Some(Equal)),
            (-large - 1, -(large as f64), Some(Less)),
            (2, 2.5, Some(Less)),
            (3, 2.5, Some(Greater)),
            (-2, -2.5, Some(Greater)),
            (-3, -2.5, Some(Less)),
            (0, -0.0, Some(Equal)),
            (i128::MAX, 2_f64.powi(127), Some(Less)),
            (i128::MIN, -2_f64.powi(127), Some(Equal)),
            (i128::MIN, f64::NEG_INFINITY, Some(Greater)),
            (i128::MAX, f64::INFINITY, Some(Less)),
            (0, f64::NAN, None),
        ] {
            let (left, right) = (Constant::Int(int), Constant::Float(float));
            let holds = |operator, left, right| compare(operator, left, right) == Ok(Constant::Bool(true));
            for (operator, reversed, orders) in [
                (C::Eq, C::Eq, &[Equal][..]),
                (C::Lt, C::Gt, &[Less]),
                (C::Le, C::Ge, &[Less, Equal]),
                (C::Gt, C::Lt, &[Greater]),
                (C::Ge, C::Le, &[Greater, Equal]),
            ] {
                let expected = expected.is_some_and(|order| orders.contains(&order));
                assert_eq!(holds(operator, &left, &right), expected, "{int} {operator:?} {float}");
                assert_eq!(holds(reversed, &right, &left), expected, "{float} {reversed:?} {int}");
            }
        }
    }

    #[test]
    fn large_values_are_errors_and_take_no_memory() {
        let tuple = |items: Vec<Constant>| Constant::Tuple(items.into());
        let many = tuple(vec![Constant::Int(1); 1 << 16]);
        let nested = tuple(vec![many.clone()]);
        let (text, count) = (Constant::Str("x".repeat(1 << 16).into()), Constant::Int(1 << 20));
        for value in [&many, &nested, &text] {
            assert!(binary(B::Mul, value, &count).is_err());
        }
        assert!(binary(B::Add, &tuple(vec![many.clone(), many.clone()]), &nested).is_err());
        assert_eq!(binary(B::Mul, &tuple(Vec::new()), &count), Ok(tuple(Vec::new())));
    }

    #[test]
    fn functions_of_triton() {
        let next = |value| next_power_of_two(&Constant::Int(value));
        for (value, expected) in [(-3, 0), (0, 0), (1, 1), (781, 1024), (1 << 100, 1 << 100)] {
            assert_eq!(next(value), Ok(Constant::Int(expected)), "{value}");
        }
        assert!(next(i128::MAX).is_err() && next_power_of_two(&Constant::Float(1.0)).is_err());
        for (left, right, expected) in [(7, 2, 4), (-7, 2, -3), (7, -2, -2), (6, 3, 2)] {
            let quotient = ceil_div(&Constant::Int(left), &Constant::Int(right));
            assert_eq!(quotient, Ok(Constant::Int(expected)), "{left} by {right}");
        }
    }

    #[test]
    fn powers_shifts_and_overflow() {
        assert_eq!(int(B::Pow, 1, 1 << 40), Constant::Int(1));
        assert_eq!(int(B::Pow, -1, (1 << 40) + 1), Constant::Int(-1));
        assert_eq!(int(B::Pow, 0, 0), Constant::Int(1));
        assert!(binary(B::Pow, &Constant::Float(-8.0), &Constant::Float(0.5)).is_err());
        assert!(binary(B::Pow, &Constant::Float(10.0), &Constant::Float(400.0)).is_err());
        assert_eq!(int(B::Pow, 2, 10), Constant::Int(1024));
        assert_eq!(int(B::Pow, 2, -1), Constant::Float(0.5));
        assert_eq!(int(B::Shl, 1, 40), Constant::Int(1 << 40));
        assert_eq!(int(B::Shr, -8, 1), Constant::Int(-4));
        for (operator, left, right) in
            [(B::Pow, 10, 100), (B::Shl, 1, 200), (B::Mul, i128::MAX, 2), (B::Shl, 1, -1)]
        {
            assert!(binary(operator, &Constant::Int(left), &Constant::Int(right)).is_err());
        }
    }

    #[test]
    fn sequences() {
        let text = |text: &str| Constant::Str(text.into());
        let tuple = Constant::Tuple(vec![Constant::Int(1), Constant::Int(2)].into());
        assert_eq!(binary(B::Add, &text("a"), &text("b")), Ok(text("ab")));
        assert_eq!(binary(B::Mul, &text("a"), &Constant::Int(3)), Ok(text("aaa")));
        assert!(binary(B::Mul, &text("a"), &Constant::Int(1 << 40)).is_err());
        assert_eq!(subscript(&tuple, &Constant::Int(-1)), Ok(Constant::Int(2)));
        assert!(subscript(&tuple, &Constant::Int(2)).is_err());
        assert_eq!(slice_indices(5, None, None, Some(-2)), Ok(vec![4, 2, 0]));
        assert_eq!(slice_indices(5, Some(1), Some(-1), None), Ok(vec![1, 2, 3]));
        assert_eq!(contains(&tuple, &Constant::Float(1.0)), Ok(true));
        assert_eq!(
            compare(CompareOperator::Lt, &tuple, &Constant::Tuple(vec![Constant::Int(3)].into())),
            Ok(Constant::Bool(true))
        );
    }
}
