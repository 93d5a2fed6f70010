//! Emits vector code for the functions, conversions and reductions of the executor.
//!
//! Vectors of narrow floats have integer lanes with the bits of the floats. Vectors of booleans are
//! masks.

use std::cell::RefCell;

use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, ElementwiseFamily as Family, ElementwiseFn,
    FloatFn, Rounding, SelectionFn,
};
use tilewright_native::Builder;
use tilewright_native::ir::{
    Binary, Compare, Conversion, IntBinary, IntCompare, Lane, MaskBinary, Unary, Value,
};

use crate::program::Combine;
use crate::types::{Number, TileType};

use super::lanes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Elements {
    Lanes(Lane),
    Mask,
}

pub(super) fn lane(ty: &TileType) -> Option<Elements> {
    (!ty.is_pointer()).then(|| elements(ty.dtype()))
}

pub(super) fn elements(dtype: Dtype) -> Elements {
    Elements::Lanes(match (dtype, dtype.bytes()) {
        (Dtype::I1, _) => return Elements::Mask,
        (Dtype::F32, _) => Lane::F32,
        (Dtype::F64, _) => Lane::F64,
        (_, 1) => Lane::I8,
        (_, 2) => Lane::I16,
        (_, 4) => Lane::I32,
        // tidy: wildcard because the other types have 64 bits
        _ => Lane::I64,
    })
}

/// Returns whether a float has 16 or 8 bits. Vector code computes it in binary32.
fn is_narrow(dtype: Dtype) -> bool {
    dtype.is_float() && dtype.bytes() <= 2
}

pub(super) fn can_apply(function: ElementwiseFn, dtype: Dtype) -> bool {
    match function.family() {
        Family::Division(_) => dtype.bytes() <= 4 && !dtype.is_bool(),
        Family::WideProduct(_) => dtype.bytes() >= 2,
        Family::Float(FloatFn::FloatRem) => false,
        Family::Arithmetic(_)
        | Family::Comparison(_)
        | Family::Selection(_)
        | Family::Bitwise(_)
        | Family::Float(
            FloatFn::Div
            | FloatFn::DivRn
            | FloatFn::Fma
            | FloatFn::MinNan
            | FloatFn::MaxNan
            | FloatFn::Sqrt
            | FloatFn::SqrtRn
            | FloatFn::Floor
            | FloatFn::Ceil,
        ) => true,
        Family::Math(function) => {
            lanes::has_math(function, if dtype == Dtype::F64 { Lane::F64 } else { Lane::F32 })
        }
    }
}

/// Returns whether a function has code on scalars.
pub(super) fn can_apply_to_scalars(function: ElementwiseFn, dtype: Dtype) -> bool {
    if dtype.is_float() {
        return can_apply(function, dtype);
    }
    match function.family() {
        Family::Division(_) => !dtype.is_bool(),
        Family::WideProduct(_) => dtype.bytes() <= 4,
        Family::Arithmetic(_) | Family::Comparison(_) | Family::Selection(_) | Family::Bitwise(_) => true,
        Family::Float(_) | Family::Math(_) => false,
    }
}

pub(super) fn can_cast(from: Dtype, to: Dtype, rounding: Rounding) -> bool {
    if from == to {
        return true;
    }
    let is_wide = |dtype: Dtype| dtype.bytes() == 8 && !dtype.is_float();
    if from.is_int() && to.is_int() {
        return true;
    }
    if rounding == Rounding::TowardsZero && to.is_float() {
        return false;
    }
    match (from.is_float(), to.is_float()) {
        (false, true) => is_narrow(to) || !is_wide(from),
        (true, false) => !is_wide(to),
        (true, true) | (false, false) => true,
    }
}

pub(super) fn can_reduce(combine: Combine, dtype: Dtype) -> bool {
    let is_bitwise = matches!(combine, Combine::And | Combine::Or | Combine::Xor);
    !(dtype.is_float() && is_bitwise)
}

/// Returns whether a function takes about as long as a load.
pub(super) fn is_cheap(function: ElementwiseFn) -> bool {
    match function.family() {
        Family::Arithmetic(_) | Family::Comparison(_) | Family::Selection(_) | Family::Bitwise(_) => true,
        Family::Float(function) => matches!(function, FloatFn::Fma | FloatFn::Floor | FloatFn::Ceil),
        Family::Division(_) | Family::WideProduct(_) | Family::Math(_) => false,
    }
}

/// Emits vector code.
#[derive(Clone, Copy)]
pub(super) struct Vectors<'b>(pub &'b RefCell<Builder>);

impl Vectors<'_> {
    fn binary(self, function: Binary, x: Value, y: Value) -> Value {
        self.0.borrow_mut().binary(function, x, y)
    }

    fn compare(self, function: Compare, x: Value, y: Value) -> Value {
        self.0.borrow_mut().compare(function, x, y)
    }

    fn select(self, mask: Value, x: Value, y: Value) -> Value {
        self.0.borrow_mut().select(mask, x, y)
    }

    fn convert(self, conversion: Conversion, lane: Lane, x: Value) -> Value {
        self.0.borrow_mut().convert(conversion, lane, x)
    }

    fn constant(self, lane: Lane, bits: u64) -> Value {
        self.0.borrow_mut().constant(lane, bits)
    }

    fn mask(self, function: MaskBinary, x: Value, y: Value) -> Value {
        self.0.borrow_mut().mask_binary(function, x, y)
    }

    /// Returns a vector whose elements have the bits of a scalar.
    pub fn splat(self, dtype: Dtype, bits: Value) -> Value {
        let mut builder = self.0.borrow_mut();
        match elements(dtype) {
            Elements::Lanes(lane) => builder.splat(lane, bits),
            Elements::Mask => {
                if let Some(bits) = builder.known(bits) {
                    return builder.mask(bits & 1 != 0);
                }
                let (all, none) = (builder.int(-1), builder.int(0));
                let bits = builder.int_select(bits, all, none);
                builder.mask_of_bits(bits)
            }
        }
    }

    pub fn first(self, dtype: Dtype, x: Value) -> Value {
        let mut builder = self.0.borrow_mut();
        match elements(dtype) {
            Elements::Lanes(_) => builder.first(x),
            Elements::Mask => {
                let bits = builder.mask_bits(x);
                let one = builder.int(1);
                builder.int_binary(IntBinary::And, bits, one)
            }
        }
    }

    /// Applies a function. `dtype` is the type of the operands, or of the last two operands of a
    /// selection.
    pub fn apply(self, function: ElementwiseFn, dtype: Dtype, operands: &[Value]) -> Value {
        if let (Family::Selection(SelectionFn::Select), &[condition, x, y]) = (function.family(), operands) {
            return match elements(dtype) {
                Elements::Lanes(_) => self.select(condition, x, y),
                Elements::Mask => self.0.borrow_mut().mask_select(condition, x, y),
            };
        }
        match elements(dtype) {
            Elements::Mask => self.of_masks(function, operands),
            Elements::Lanes(_) if is_narrow(dtype) => self.of_narrow(function, dtype, operands),
            Elements::Lanes(lane) if lane.is_float() => self.of_floats(function, lane, operands),
            Elements::Lanes(lane) => self.of_integers(function, dtype, lane, operands),
        }
    }

    fn of_narrow(self, function: ElementwiseFn, dtype: Dtype, operands: &[Value]) -> Value {
        let sign = if dtype.bytes() == 2 { 0x8000 } else { 0x80 };
        let is_half = matches!(dtype, Dtype::F16 | Dtype::BF16);
        let lane = if dtype.bytes() == 2 { Lane::I16 } else { Lane::I8 };
        match (function.family(), operands) {
            (Family::Arithmetic(ArithmeticFn::Neg), &[x]) if is_half => {
                let sign = self.constant(lane, sign);
                return self.binary(Binary::Xor, x, sign);
            }
            (Family::Arithmetic(ArithmeticFn::Abs), &[x]) if is_half => {
                let magnitude = self.constant(lane, sign - 1);
                return self.binary(Binary::And, x, magnitude);
            }
            // tidy: wildcard because the other functions are computed in binary32
            _ => {}
        }
        let wide: Vec<Value> = operands.iter().map(|&x| self.widen(dtype, x)).collect();
        if let (Family::Float(FloatFn::Fma), &[x, y, z]) = (function.family(), &wide[..]) {
            return self.narrow(dtype, lanes::multiply_add_odd(self.0, [x, y, z]));
        }
        let result = self.of_floats(function, Lane::F32, &wide);
        if matches!(function.family(), Family::Comparison(_)) { result } else { self.narrow(dtype, result) }
    }

    pub fn widen(self, dtype: Dtype, x: Value) -> Value {
        match dtype {
            Dtype::F16 => self.convert(Conversion::HalfToFloat, Lane::F32, x),
            Dtype::BF16 => {
                let bits = self.convert(Conversion::ZeroExtend, Lane::I32, x);
                let sixteen = self.constant(Lane::I32, 16);
                let bits = self.binary(Binary::Shl, bits, sixteen);
                self.convert(Conversion::Bitcast, Lane::F32, bits)
            }
            // tidy: wildcard because the other narrow floats have 8 bits
            _ => {
                let bits = self.convert(Conversion::ZeroExtend, Lane::I32, x);
                lanes::widen(self.0, dtype, bits)
            }
        }
    }

    pub fn narrow(self, dtype: Dtype, x: Value) -> Value {
        match dtype {
            Dtype::F16 => self.convert(Conversion::FloatToHalf, Lane::I16, x),
            Dtype::BF16 => {
                let bits = lanes::round(self.0, dtype, x);
                self.convert(Conversion::Truncate, Lane::I16, bits)
            }
            // tidy: wildcard because the other narrow floats have 8 bits
            _ => {
                let bits = lanes::round(self.0, dtype, x);
                self.convert(Conversion::Truncate, Lane::I8, bits)
            }
        }
    }

    fn of_masks(self, function: ElementwiseFn, operands: &[Value]) -> Value {
        use {ArithmeticFn as A, BitwiseFn as B, ComparisonFn as C};
        let not = |x: Value| self.0.borrow_mut().mask_not(x);
        let [x, y] = [operands[0], operands[operands.len() - 1]];
        match function.family() {
            Family::Arithmetic(A::Add | A::Sub) | Family::Bitwise(B::Xor) | Family::Comparison(C::Ne) => {
                self.mask(MaskBinary::Xor, x, y)
            }
            Family::Arithmetic(A::Mul | A::Min) | Family::Bitwise(B::And) => self.mask(MaskBinary::And, x, y),
            Family::Arithmetic(A::Max) | Family::Bitwise(B::Or) => self.mask(MaskBinary::Or, x, y),
            Family::Arithmetic(A::Neg | A::Abs) => x,
            Family::Bitwise(B::Not) => not(x),
            Family::Comparison(C::Eq) => not(self.mask(MaskBinary::Xor, x, y)),
            Family::Comparison(C::Lt) => self.mask(MaskBinary::AndNot, x, y),
            // A boolean has one bit, and a shift by the width or more gives 0.
            Family::Comparison(C::Gt) | Family::Bitwise(B::Shl | B::Shr) => {
                self.mask(MaskBinary::AndNot, y, x)
            }
            Family::Comparison(C::Le) => self.mask(MaskBinary::Or, not(x), y),
            Family::Comparison(C::Ge) => self.mask(MaskBinary::Or, x, not(y)),
            Family::Division(_)
            | Family::WideProduct(_)
            | Family::Selection(_)
            | Family::Float(_)
            | Family::Math(_) => unreachable!("`can_apply` refuses {function:?} of booleans"),
        }
    }

    fn of_integers(self, function: ElementwiseFn, dtype: Dtype, lane: Lane, operands: &[Value]) -> Value {
        use {ArithmeticFn as A, BitwiseFn as B, ComparisonFn as C};
        let signed = dtype.is_signed();
        let [x, y] = [operands[0], operands[operands.len() - 1]];
        let zero = || self.constant(lane, 0);
        match function.family() {
            Family::Arithmetic(function) => match function {
                A::Add => self.binary(Binary::Add, x, y),
                A::Sub => self.binary(Binary::Sub, x, y),
                A::Mul => self.binary(Binary::Mul, x, y),
                A::Min if signed => self.binary(Binary::Lesser, x, y),
                A::Min => self.binary(Binary::LesserUnsigned, x, y),
                A::Max if signed => self.binary(Binary::Greater, x, y),
                A::Max => self.binary(Binary::GreaterUnsigned, x, y),
                A::Neg => self.binary(Binary::Sub, zero(), x),
                A::Abs if signed => {
                    let negated = self.binary(Binary::Sub, zero(), x);
                    self.binary(Binary::Greater, x, negated)
                }
                A::Abs => x,
            },
            Family::Bitwise(function) => match function {
                B::And => self.binary(Binary::And, x, y),
                B::Or => self.binary(Binary::Or, x, y),
                B::Xor => self.binary(Binary::Xor, x, y),
                B::Not => {
                    let ones = self.constant(lane, u64::MAX >> (64 - 8 * lane.bytes()));
                    self.binary(Binary::Xor, x, ones)
                }
                B::Shl => self.binary(Binary::Shl, x, y),
                B::Shr => self.binary(if signed { Binary::Sar } else { Binary::Shr }, x, y),
            },
            Family::WideProduct(_) => {
                self.binary(if signed { Binary::MulHighSigned } else { Binary::MulHighUnsigned }, x, y)
            }
            Family::Comparison(function) => {
                let (less, at_most) = if signed {
                    (Compare::Lt, Compare::Le)
                } else {
                    (Compare::LtUnsigned, Compare::LeUnsigned)
                };
                match function {
                    C::Eq => self.compare(Compare::Eq, x, y),
                    C::Ne => self.compare(Compare::Ne, x, y),
                    C::Lt => self.compare(less, x, y),
                    C::Le => self.compare(at_most, x, y),
                    C::Gt => self.compare(less, y, x),
                    C::Ge => self.compare(at_most, y, x),
                }
            }
            Family::Division(function) => {
                let quotient = lanes::quotient(self.0, dtype, x, y);
                let result = match function {
                    DivisionFn::IntDiv => quotient,
                    DivisionFn::IntRem => {
                        let product = self.binary(Binary::Mul, quotient, y);
                        self.binary(Binary::Sub, x, product)
                    }
                };
                let is_zero = self.compare(Compare::Eq, y, zero());
                let ones = self.constant(lane, u64::MAX >> (64 - 8 * lane.bytes()));
                self.select(is_zero, ones, result)
            }
            Family::Selection(_) | Family::Float(_) | Family::Math(_) => {
                unreachable!("`can_apply` refuses {function:?} of integers")
            }
        }
    }

    fn of_floats(self, function: ElementwiseFn, lane: Lane, operands: &[Value]) -> Value {
        use {ArithmeticFn as A, ComparisonFn as C, FloatFn as F};
        let [x, y] = [operands[0], operands[operands.len() - 1]];
        let sign = 1_u64 << (8 * lane.bytes() - 1);
        match function.family() {
            Family::Arithmetic(function) => match function {
                A::Add => self.binary(Binary::Add, x, y),
                A::Sub => self.binary(Binary::Sub, x, y),
                A::Mul => self.binary(Binary::Mul, x, y),
                A::Neg => {
                    let sign = self.constant(lane, sign);
                    self.binary(Binary::Xor, x, sign)
                }
                A::Abs => {
                    let magnitude = self.constant(lane, sign - 1);
                    self.binary(Binary::And, x, magnitude)
                }
                A::Min => self.extreme(Extreme { is_min: true, is_nan: false }, lane, x, y),
                A::Max => self.extreme(Extreme { is_min: false, is_nan: false }, lane, x, y),
            },
            Family::Float(function) => match function {
                F::Div | F::DivRn => self.binary(Binary::Div, x, y),
                F::Fma => self.0.borrow_mut().multiply_add(operands[0], operands[1], operands[2]),
                F::MinNan => self.extreme(Extreme { is_min: true, is_nan: true }, lane, x, y),
                F::MaxNan => self.extreme(Extreme { is_min: false, is_nan: true }, lane, x, y),
                F::Sqrt | F::SqrtRn => self.0.borrow_mut().unary(Unary::Sqrt, x),
                F::Floor => self.0.borrow_mut().unary(Unary::Floor, x),
                F::Ceil => self.0.borrow_mut().unary(Unary::Ceil, x),
                F::FloatRem => unreachable!("`can_apply` refuses remainders"),
            },
            Family::Math(function) => lanes::math(self.0, function, lane, x),
            Family::Comparison(function) => match function {
                C::Eq => self.compare(Compare::Eq, x, y),
                C::Ne => self.compare(Compare::Ne, x, y),
                C::Lt => self.compare(Compare::Lt, x, y),
                C::Le => self.compare(Compare::Le, x, y),
                C::Gt => self.compare(Compare::Lt, y, x),
                C::Ge => self.compare(Compare::Le, y, x),
            },
            Family::Division(_) | Family::Bitwise(_) | Family::WideProduct(_) | Family::Selection(_) => {
                unreachable!("`can_apply` refuses {function:?} of floats")
            }
        }
    }

    /// Returns the minimum or maximum, as `kernels/math.rs` defines it.
    fn extreme(self, Extreme { is_min, is_nan }: Extreme, lane: Lane, x: Value, y: Value) -> Value {
        let bits = |x: Value| self.convert(Conversion::Bitcast, lane.integer(), x);
        let compared = self.binary(if is_min { Binary::Lesser } else { Binary::Greater }, x, y);
        let both = self.binary(if is_min { Binary::Or } else { Binary::And }, bits(x), bits(y));
        let both = self.convert(Conversion::Bitcast, lane, both);
        let are_equal = self.compare(Compare::Eq, x, y);
        let ordered = self.select(are_equal, both, compared);
        let (nan, other) = if is_nan { (x, x) } else { (y, x) };
        let is_nan = self.compare(Compare::Ne, nan, nan);
        self.select(is_nan, other, ordered)
    }

    /// Combines two elements of a reduction. Narrow floats are in binary32.
    pub fn combine(self, combine: Combine, dtype: Dtype, x: Value, y: Value) -> Value {
        let function = match combine {
            Combine::Sum => ElementwiseFn::Add,
            Combine::Product => ElementwiseFn::Mul,
            Combine::MinNan if dtype.is_float() => ElementwiseFn::MinNan,
            Combine::MaxNan if dtype.is_float() => ElementwiseFn::MaxNan,
            Combine::Min | Combine::MinNan => ElementwiseFn::Min,
            Combine::Max | Combine::MaxNan => ElementwiseFn::Max,
            Combine::And => ElementwiseFn::And,
            Combine::Or => ElementwiseFn::Or,
            Combine::Xor => ElementwiseFn::Xor,
        };
        self.apply(function, dtype, &[x, y])
    }

    /// Converts elements like `kernels/cast.rs`.
    pub fn cast(self, from: Dtype, to: Dtype, x: Value) -> Value {
        if from == to {
            return x;
        }
        if is_narrow(from) {
            let wide = self.widen(from, x);
            return self.cast(Dtype::F32, to, wide);
        }
        if is_narrow(to) {
            // A number that binary32 does not represent is first rounded to odd, so that the two
            // roundings equal a single one.
            let is_exact = from.bytes() <= 2 || from == Dtype::F32;
            let wide =
                if is_exact { self.cast(from, Dtype::F32, x) } else { lanes::to_single_odd(self.0, from, x) };
            return self.narrow(to, wide);
        }
        match (elements(from), elements(to)) {
            (Elements::Mask, Elements::Mask) => x,
            (Elements::Mask, Elements::Lanes(lane)) => {
                let one = match lane {
                    Lane::F32 => u64::from(1.0_f32.to_bits()),
                    Lane::F64 => 1.0_f64.to_bits(),
                    Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => 1,
                };
                let (one, zero) = (self.constant(lane, one), self.constant(lane, 0));
                self.select(x, one, zero)
            }
            (Elements::Lanes(lane), Elements::Mask) => {
                let zero = self.constant(lane, 0);
                self.compare(Compare::Ne, x, zero)
            }
            (Elements::Lanes(lane), Elements::Lanes(target)) => {
                self.convert_lanes((from, lane), (to, target), x)
            }
        }
    }

    fn convert_lanes(self, (from, lane): (Dtype, Lane), (to, target): (Dtype, Lane), x: Value) -> Value {
        let extend = if from.is_signed() { Conversion::SignExtend } else { Conversion::ZeroExtend };
        match (lane.is_float(), target.is_float()) {
            (true, true) => self.convert(Conversion::FloatToFloat, target, x),
            (false, false) if target.bytes() > lane.bytes() => self.convert(extend, target, x),
            (false, false) if target.bytes() < lane.bytes() => self.convert(Conversion::Truncate, target, x),
            (false, false) => x,
            (false, true) => {
                let (x, signed) = if lane.bytes() < 4 {
                    (self.convert(extend, Lane::I32, x), true)
                } else {
                    (x, from.is_signed())
                };
                let conversion = if signed { Conversion::SignedToFloat } else { Conversion::UnsignedToFloat };
                self.convert(conversion, target, x)
            }
            (true, false) => self.truncated(lane, (to, target), x),
        }
    }

    /// Converts floats to integers of at most 32 bits, towards zero. NaN becomes 0. Numbers out of
    /// range become the nearest bound.
    fn truncated(self, lane: Lane, (to, target): (Dtype, Lane), x: Value) -> Value {
        // The bounds of integers of 8 and 16 bits are exact in binary32. Those of 32 bits need
        // binary64.
        let bits = to.bits();
        let lane = if bits < 32 { lane } else { Lane::F64 };
        let wide =
            if self.0.borrow().lane(x) == lane { x } else { self.convert(Conversion::FloatToFloat, lane, x) };
        let constant = |value: f64| {
            let bits = if lane == Lane::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
            self.constant(lane, bits)
        };
        let half = (1_u64 << (bits - 1)) as f64;
        let (low, high) = if to.is_signed() { (-half, half - 1.0) } else { (0.0, 2.0 * half - 1.0) };
        // The comparisons replace NaN by a bound. Later, 0 replaces the result of NaN.
        let clamped = self.binary(Binary::Greater, wide, constant(low));
        let clamped = self.binary(Binary::Lesser, clamped, constant(high));
        let integer = if bits == 32 && !to.is_signed() {
            // The difference is exact, and has the bits of the result apart from the sign bit.
            let integral = self.0.borrow_mut().unary(Unary::Floor, clamped);
            let difference = self.binary(Binary::Sub, integral, constant(half));
            let signed = self.convert(Conversion::FloatToSigned, Lane::I32, difference);
            self.binary(Binary::Xor, signed, self.constant(Lane::I32, 1 << 31))
        } else {
            self.convert(Conversion::FloatToSigned, Lane::I32, clamped)
        };
        let is_nan = self.compare(Compare::Ne, x, x);
        let integer = self.select(is_nan, self.constant(Lane::I32, 0), integer);
        if target == Lane::I32 { integer } else { self.convert(Conversion::Truncate, target, integer) }
    }

    /// Applies a function to integers that are extended to 64 bits as their type requires.
    /// Comparisons and booleans are 0 or 1.
    pub fn apply_to_integers(self, function: ElementwiseFn, number: Number, operands: &[Value]) -> Value {
        use {ArithmeticFn as A, BitwiseFn as B, ComparisonFn as C, DivisionFn as D, IntBinary as I};
        if let (Family::Selection(_), &[condition, x, y]) = (function.family(), operands) {
            return self.0.borrow_mut().int_select(condition, x, y);
        }
        let [x, y] = [operands[0], operands[operands.len() - 1]];
        if number.is_bool() {
            return self.of_booleans(function, x, y);
        }
        let builder = &mut *self.0.borrow_mut();
        let signed = number.is_signed();
        let width = builder.int(i64::from(number.bits()));
        let (zero, one, ones) = (builder.int(0), builder.int(1), builder.int(-1));
        let less = if signed { IntCompare::LtSigned } else { IntCompare::LtUnsigned };
        let at_most = if signed { IntCompare::LeSigned } else { IntCompare::LeUnsigned };
        let result = match function.family() {
            Family::Arithmetic(function) => match function {
                A::Add => builder.int_binary(I::Add, x, y),
                A::Sub => builder.int_binary(I::Sub, x, y),
                A::Mul => builder.int_binary(I::Mul, x, y),
                A::Neg => builder.int_binary(I::Sub, zero, x),
                A::Abs if signed => {
                    let negated = builder.int_binary(I::Sub, zero, x);
                    builder.int_binary(I::Max, x, negated)
                }
                A::Abs => x,
                A::Min | A::Max => {
                    let is_less = builder.int_compare(less, x, y);
                    let (first, second) = if function == A::Min { (x, y) } else { (y, x) };
                    builder.int_select(is_less, first, second)
                }
            },
            Family::Division(function) => {
                // The division instruction traps for these divisors.
                let is_zero = builder.int_compare(IntCompare::Eq, y, zero);
                let is_minus_one = builder.int_compare(IntCompare::Eq, y, ones);
                let is_special =
                    if signed { builder.int_binary(I::Or, is_zero, is_minus_one) } else { is_zero };
                let divisor = builder.int_select(is_special, one, y);
                let (div, rem) =
                    if signed { (I::DivSigned, I::RemSigned) } else { (I::DivUnsigned, I::RemUnsigned) };
                let result = builder.int_binary(if function == D::IntDiv { div } else { rem }, x, divisor);
                let result = if signed {
                    let negated = builder.int_binary(I::Sub, zero, x);
                    let by_minus_one = if function == D::IntDiv { negated } else { zero };
                    builder.int_select(is_minus_one, by_minus_one, result)
                } else {
                    result
                };
                builder.int_select(is_zero, ones, result)
            }
            Family::Bitwise(function) => match function {
                B::And => builder.int_binary(I::And, x, y),
                B::Or => builder.int_binary(I::Or, x, y),
                B::Xor => builder.int_binary(I::Xor, x, y),
                B::Not => builder.int_binary(I::Xor, x, ones),
                B::Shl | B::Shr => {
                    // A negative count is larger than the width as an unsigned number.
                    let fits = builder.int_compare(IntCompare::LtUnsigned, y, width);
                    let count = builder.int_select(fits, y, zero);
                    match (function, signed) {
                        (B::Shl, _) => {
                            let shifted = builder.int_binary(I::Shl, x, count);
                            builder.int_select(fits, shifted, zero)
                        }
                        (_, false) => {
                            let shifted = builder.int_binary(I::Shr, x, count);
                            builder.int_select(fits, shifted, zero)
                        }
                        (_, true) => {
                            let most = builder.int(63);
                            let count = builder.int_select(fits, y, most);
                            builder.int_binary(I::Sar, x, count)
                        }
                    }
                }
            },
            Family::WideProduct(_) => {
                let product = builder.int_binary(I::Mul, x, y);
                builder.int_binary(if signed { I::Sar } else { I::Shr }, product, width)
            }
            Family::Comparison(function) => {
                return match function {
                    C::Eq => builder.int_compare(IntCompare::Eq, x, y),
                    C::Ne => builder.int_compare(IntCompare::Ne, x, y),
                    C::Lt => builder.int_compare(less, x, y),
                    C::Le => builder.int_compare(at_most, x, y),
                    C::Gt => builder.int_compare(less, y, x),
                    C::Ge => builder.int_compare(at_most, y, x),
                };
            }
            Family::Selection(_) | Family::Float(_) | Family::Math(_) => {
                unreachable!("`can_apply_to_scalars` refuses {function:?} of integers")
            }
        };
        extended(builder, number, result)
    }

    fn of_booleans(self, function: ElementwiseFn, x: Value, y: Value) -> Value {
        use {ArithmeticFn as A, BitwiseFn as B, ComparisonFn as C, IntBinary as I};
        let mut builder = self.0.borrow_mut();
        let one = builder.int(1);
        match function.family() {
            Family::Arithmetic(A::Add | A::Sub) | Family::Bitwise(B::Xor) | Family::Comparison(C::Ne) => {
                builder.int_binary(I::Xor, x, y)
            }
            Family::Arithmetic(A::Mul | A::Min) | Family::Bitwise(B::And) => builder.int_binary(I::And, x, y),
            Family::Arithmetic(A::Max) | Family::Bitwise(B::Or) => builder.int_binary(I::Or, x, y),
            Family::Arithmetic(A::Neg | A::Abs) => x,
            Family::Bitwise(B::Not) => builder.int_binary(I::Xor, x, one),
            Family::Bitwise(B::Shl | B::Shr) => {
                let not = builder.int_binary(I::Xor, y, one);
                builder.int_binary(I::And, x, not)
            }
            Family::Comparison(C::Eq) => builder.int_compare(IntCompare::Eq, x, y),
            Family::Comparison(C::Lt) => builder.int_compare(IntCompare::LtSigned, x, y),
            Family::Comparison(C::Le) => builder.int_compare(IntCompare::LeSigned, x, y),
            Family::Comparison(C::Gt) => builder.int_compare(IntCompare::LtSigned, y, x),
            Family::Comparison(C::Ge) => builder.int_compare(IntCompare::LeSigned, y, x),
            Family::Division(_)
            | Family::WideProduct(_)
            | Family::Selection(_)
            | Family::Float(_)
            | Family::Math(_) => unreachable!("`can_apply_to_scalars` refuses {function:?} of booleans"),
        }
    }
}

/// Extends the low bits of an integer to 64 bits, as its type requires.
pub(super) fn extended(builder: &mut Builder, number: Number, x: Value) -> Value {
    match number.bits() {
        1 => {
            let one = builder.int(1);
            builder.int_binary(IntBinary::And, x, one)
        }
        64 => x,
        bits => builder.int_extend(bits as u8, number.is_signed(), x),
    }
}

#[derive(Clone, Copy)]
struct Extreme {
    is_min: bool,
    /// True if a NaN operand makes the result NaN.
    is_nan: bool,
}

#[cfg(test)]
mod tests;
