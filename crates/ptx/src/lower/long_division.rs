//! Division of 64-bit integers by numbers that are not constants. The assembler calls a function
//! for 64-bit `div` and `rem`, and a kernel with a call waits for each `wgmma` before the next
//! (warning C7509 of `ptxas`). This code has no call, and quotients by one divisor share its
//! reciprocal.
//!
//! For a divisor d > 0, let r' = 2^64 / d and 0 <= r <= r' an integer. Newton's method takes r to
//! `r + floor(r * (2^64 - d * r) / 2^64)`. The result is at most r', and at least
//! `r' - 1 - (r' - r)^2 / r'`. The first r is rounded down, with a relative error up to 2^-19. So r' - r <= 2 after two
//! steps. The high half of n * r is then in (n / d - 3, n / d]. Two corrections make it the
//! quotient.

use super::arithmetic::Integer;
use super::builder::{Builder, Scalar, Width};
use super::float::Float;
use super::integer::{Bitwise, integer};
use crate::isa::{Comparison, Rounding, ScalarType};

const LONG: Width = Width::B64;
const ZERO: Scalar = Scalar::constant(0);

/// A quotient, rounded towards zero, and the remainder.
pub(super) struct Division {
    pub quotient: Scalar,
    pub remainder: Scalar,
}

impl Builder {
    /// Divides integers of 64 bits. The remainder has the sign of x. The smallest number divided by
    /// -1 yields itself. For y = 0, results are unspecified.
    pub(super) fn divide_long(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Division {
        let is_nonnegative = |builder: &Self, a| !ty.signed || builder.bound(LONG, a).is_some();
        let (x_is_size, y_is_size) = (is_nonnegative(self, x), is_nonnegative(self, y));
        let x_size = if x_is_size { x } else { self.magnitude(x) };
        let y_size = if y_is_size { y } else { self.magnitude(y) };
        let Division { mut quotient, mut remainder } = self.divide_unsigned(x_size, y_size);
        if !x_is_size || !y_is_size {
            let signs = match (x_is_size, y_is_size) {
                (true, _) => y,
                (false, true) => x,
                (false, false) => self.bitwise(Bitwise::Xor, LONG, x, y),
            };
            quotient = self.with_sign(signs, quotient);
        }
        if !x_is_size {
            remainder = self.with_sign(x, remainder);
        }
        Division { quotient, remainder }
    }

    fn divide_unsigned(&mut self, x: Scalar, y: Scalar) -> Division {
        let reciprocal = self.long_reciprocal(y);
        self.divide_by_reciprocal(x, y, reciprocal)
    }

    /// Divides unsigned 64-bit integers by the [reciprocal](Self::long_reciprocal) of y.
    pub(super) fn divide_by_reciprocal(&mut self, x: Scalar, y: Scalar, reciprocal: Scalar) -> Division {
        let mut quotient = self.mul_high(LONG, false, x, reciprocal);
        let product = self.mul(LONG, quotient, y);
        let mut remainder = self.sub(LONG, x, product);
        for _ in 0..2 {
            let is_too_small = self.compare(LONG, false, Comparison::Ge, remainder, y);
            let next = self.sub(LONG, remainder, y);
            remainder = self.select(LONG, is_too_small, next, remainder);
            quotient = self.select(LONG, is_too_small, quotient.plus(LONG, 1), quotient);
        }
        Division { quotient, remainder }
    }

    /// Returns an integer from 2^64 / y - 2 to 2^64 / y.
    pub(super) fn long_reciprocal(&mut self, y: Scalar) -> Scalar {
        let (single, long) = ((Width::B32, ScalarType::F32), (LONG, integer(LONG, false)));
        // The relative errors of the conversion and of the hardware's reciprocal are 2^-24 and
        // 2^-23.
        let below_one = f64::from(2.0_f32.powi(64)) * (1.0 - 2.0_f64.powi(-20));
        let rounded = self.float_convert(single, long, Some(Rounding::Rn), y);
        let inverse = self.reciprocal32(rounded);
        let scaled = self.mul_rn(Float::F32, inverse, Float::F32.constant(below_one));
        let mut reciprocal = self.float_convert(long, single, Some(Rounding::Rzi), scaled);
        let negated = self.sub(LONG, ZERO, y);
        for _ in 0..2 {
            let rest = self.mul(LONG, negated, reciprocal);
            let change = self.mul_high(LONG, false, reciprocal, rest);
            reciprocal = self.add(LONG, reciprocal, change);
        }
        reciprocal
    }

    fn magnitude(&mut self, x: Scalar) -> Scalar {
        let negated = self.sub(LONG, ZERO, x);
        self.extremum(LONG, true, true, x, negated)
    }

    /// Negates a number if `sign` is negative.
    fn with_sign(&mut self, sign: Scalar, number: Scalar) -> Scalar {
        let is_negative = self.compare(LONG, true, Comparison::Lt, sign, ZERO);
        let negated = self.sub(LONG, ZERO, number);
        self.select(LONG, is_negative, negated, number)
    }
}
