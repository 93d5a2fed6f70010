//! The floating-point remainder, exact as C's `fmod`. Long division of the mantissas computes as
//! many bits as fit into 64 in each step.

use super::Lowering;
use super::builder::{Builder, Scalar, Width};
use super::float::Float;
use super::integer::{Bitwise, integer};
use crate::isa::{self, BranchTarget, Comparison, ScalarType};

const LONG: Width = Width::B64;

/// A number without sign: `mantissa * 2^(exponent - c)`, with a constant c.
struct Parts {
    mantissa: Scalar,
    exponent: Scalar,
}

/// Returns the number of stored bits of the mantissa of a format.
fn mantissa_bits(float: Float) -> u32 {
    if float == Float::F64 { 52 } else { 23 }
}

impl Lowering<'_> {
    /// Returns x - trunc(x / y) * y; NaN for an infinite x and y = 0.
    pub(super) fn float_remainder(&mut self, float: Float, x: Scalar, y: Scalar) -> Scalar {
        let width = float.width();
        let [x_size, y_size] = [x, y].map(|operand| {
            let mask = Scalar::constant(width.cut(u64::MAX) >> 1);
            self.builder.bitwise(Bitwise::And, width, operand, mask)
        });
        let [dividend, divisor] = [x_size, y_size].map(|size| self.parts(float, size));
        let builder = &mut self.builder;
        let (rest, left) = (builder.fresh(LONG), builder.fresh(LONG));
        let reciprocal = builder.long_reciprocal(divisor.mantissa);
        let remainder = |builder: &mut Builder, x| {
            builder.divide_by_reciprocal(x, divisor.mantissa, reciprocal).remainder
        };
        let first = remainder(builder, dividend.mantissa);
        builder.assign(LONG, rest, first);
        let distance = builder.sub(LONG, dividend.exponent, divisor.exponent);
        builder.assign(LONG, left, distance);
        let (head, end) = (builder.label("divide"), builder.label("divided"));
        // The most quotient bits of one step. The rest, which has no more bits than a mantissa, is
        // shifted left by this number and fits into 64 bits.
        let most = Scalar::constant(u64::from(63 - mantissa_bits(float)));
        builder.place(head);
        let is_done = builder.compare(LONG, true, Comparison::Le, left.into(), Scalar::constant(0));
        let guard = builder.predicate(is_done);
        builder.emit_if(Some(guard), isa::Bra { uniform: false, target: BranchTarget(end) });
        let step = builder.extremum(LONG, true, false, left.into(), most);
        let count = builder.low_word(step);
        let b = builder.source(Width::B32, count);
        let shifted = builder.pure(LONG, |d| isa::Shl { ty: ScalarType::B64, d, a: rest.into(), b });
        let next = remainder(builder, shifted);
        let fewer = builder.sub(LONG, left.into(), step);
        builder.assign_all(&[(LONG, rest, next), (LONG, left, fewer)]);
        builder.emit(isa::Bra { uniform: false, target: BranchTarget(head) });
        builder.place(end);
        let exact = self.compose(float, rest.into(), divisor.exponent);
        self.remainder_special(float, x, [x_size, y_size], exact)
    }

    /// Replaces the result for operands that the division does not handle.
    fn remainder_special(&mut self, float: Float, x: Scalar, sizes: [Scalar; 2], exact: Scalar) -> Scalar {
        let width = float.width();
        let builder = &mut self.builder;
        let [x_size, y_size] = sizes;
        let is_smaller = builder.float_compare(float, Comparison::Lt, x_size, y_size);
        let size = builder.select(width, is_smaller, x_size, exact);
        let result = builder.with_sign_of(float, size, x);
        let is_finite = builder.float_compare(float, Comparison::Lt, x_size, float.constant(f64::INFINITY));
        let is_divisor = builder.float_compare(float, Comparison::Gt, y_size, float.constant(0.0));
        let is_number = builder.and(is_finite, is_divisor);
        builder.select(width, is_number, result, float.constant(f64::NAN))
    }

    /// Returns mantissa and exponent of a number without a sign. A subnormal number has the
    /// smallest normal exponent.
    fn parts(&mut self, float: Float, size: Scalar) -> Parts {
        let builder = &mut self.builder;
        let size = if float == Float::F64 { size } else { builder.mul_wide(false, size, 1, false) };
        let bits = mantissa_bits(float);
        let exponent = builder.shr(LONG, false, size, bits);
        let fraction = builder.bitwise(Bitwise::And, LONG, size, Scalar::constant((1 << bits) - 1));
        let is_subnormal = builder.compare(LONG, false, Comparison::Eq, exponent, Scalar::constant(0));
        let with_one = builder.bitwise(Bitwise::Or, LONG, fraction, Scalar::constant(1 << bits));
        let mantissa = builder.select(LONG, is_subnormal, fraction, with_one);
        let exponent = builder.select(LONG, is_subnormal, Scalar::constant(1), exponent);
        Parts { mantissa, exponent }
    }

    /// Returns the number with this mantissa and exponent. The mantissa may have one bit too many.
    /// Two multiplications are exact.
    fn compose(&mut self, float: Float, mantissa: Scalar, exponent: Scalar) -> Scalar {
        let builder = &mut self.builder;
        let bits = mantissa_bits(float);
        let (to, from) = ((float.width(), float.ty()), (LONG, integer(LONG, false)));
        let number = builder.float_convert(to, from, Some(isa::Rounding::Rn), mantissa);
        let unit = float.constant(0.5_f64.powi(bits as i32));
        let scaled = builder.mul_rn(float, number, unit);
        let power = builder.shl(LONG, exponent, bits);
        let power = if float == Float::F64 { power } else { builder.low_word(power) };
        builder.mul_rn(float, scaled, power)
    }
}
