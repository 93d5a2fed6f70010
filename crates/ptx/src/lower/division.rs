//! Divides integers by constants: multiplies by reciprocals and shifts. The assembler computes the
//! reciprocal at run time, even for a `div` with an immediate, and for 64 bits calls a function
//! (ptxas 13.5, `sm_90`).
//!
//! For an N-bit number x and a divisor d, let m = ceil(2^p / d). For some p, the quotient x / d is
//! the upper part of x * m (Granlund and Montgomery, Division by invariant integers using
//! multiplication, PLDI 1994). Example: N = 8, d = 5, p = 10, m = 205.

use super::arithmetic::Integer;
use super::builder::{Builder, Scalar, Width};
use super::integer::Bitwise;

/// An approximation of 1 / d: `factor` is ceil(2^p / d) < 2^N, and `shift` is p - N.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reciprocal {
    factor: u64,
    shift: u32,
}

impl Reciprocal {
    /// Returns a reciprocal that is exact enough below 2^`magnitude`. Returns `None` if no factor
    /// below 2^`bits` is exact enough; N is `bits`.
    fn of(divisor: u64, bits: u32, magnitude: u32) -> Option<Self> {
        let divisor = u128::from(divisor);
        (bits..2 * bits).find_map(|power| {
            let factor = (1_u128 << power).div_ceil(divisor);
            // The amount by which `factor * divisor` exceeds 2^`power`.
            let excess = factor * divisor - (1 << power);
            let is_exact = excess <= 1 << (power - magnitude);
            (is_exact && factor < 1 << bits).then_some(Self { factor: factor as u64, shift: power - bits })
        })
    }
}

impl Builder {
    /// Returns the quotient by a constant other than 0, 1 and -1, truncated towards zero.
    pub(super) fn quotient_by(&mut self, ty: Integer, x: Scalar, divisor: u64) -> Scalar {
        let Integer { width, signed, .. } = ty;
        if let Some(x) = x.as_constant() {
            return Scalar::constant(divide(width, signed, x, divisor));
        }
        if signed && width.signed(divisor) > 0 && self.bound(width, x).is_some() {
            return self.quotient(Integer { signed: false, ..ty }, x, Scalar::constant(divisor));
        }
        let (x, _) = self.representative(width, signed, x, divisor);
        if !signed {
            return self.unsigned_quotient(width, x, divisor);
        }
        let is_negative = width.signed(divisor) < 0;
        let size = if is_negative { width.cut(divisor.wrapping_neg()) } else { divisor };
        let quotient = self.signed_quotient(width, x, size);
        if is_negative { self.sub(width, Scalar::constant(0), quotient) } else { quotient }
    }

    /// Returns the remainder by a constant other than 0, 1 and -1. It has the sign of x.
    pub(super) fn remainder_by(&mut self, ty: Integer, x: Scalar, divisor: u64) -> Scalar {
        let Integer { width, signed, .. } = ty;
        // The sign of the divisor does not change the remainder.
        let is_negative = signed && width.signed(divisor) < 0;
        let size = if is_negative { width.cut(divisor.wrapping_neg()) } else { divisor };
        if let Some(x) = x.as_constant() {
            let multiple = divide(width, signed, x, size).wrapping_mul(size);
            return Scalar::constant(width.cut(x.wrapping_sub(multiple)));
        }
        if signed && self.bound(width, x).is_some() {
            return self.remainder(Integer { signed: false, ..ty }, x, Scalar::constant(size));
        }
        let (x, more) = self.representative(width, signed, x, size);
        let multiple = if size.is_power_of_two() {
            let biased = if signed { self.biased(width, x, size) } else { x };
            let mask = Scalar::constant(width.cut(size.wrapping_neg()));
            self.bitwise(Bitwise::And, width, biased, mask)
        } else {
            let quotient = self.quotient_by(ty, x, size);
            self.mul(width, quotient, Scalar::constant(size))
        };
        let remainder = self.sub(width, x, multiple);
        remainder.plus(width, more)
    }

    /// Returns a number with the same quotient as x, and the difference of the remainders.
    ///
    /// x is a register plus a constant offset. If 2^n divides the register and the divisor, the low
    /// n bits of x are the offset's. Unsigned quotients do not depend on them, so the returned
    /// number has zeros there. Signed quotients depend on whether these bits are 0, because they
    /// round towards zero. Example: -4 / 4 is -1, but -3 / 4 to -1 / 4 are 0. So bits other than 0
    /// become 1. Elements whose x differ only in these bits share one division.
    pub(super) fn representative(
        &self,
        width: Width,
        signed: bool,
        x: Scalar,
        divisor: u64,
    ) -> (Scalar, u64) {
        let Some(base) = x.base else { return (x, 0) };
        let zeros = self.trailing_zeros(base.into()).min(divisor.trailing_zeros());
        let rest = x.offset & ((1 << zeros) - 1);
        let least = rest.min(signed.into());
        let more = rest - least;
        (x.plus(width, more.wrapping_neg()), more)
    }

    fn signed_quotient(&mut self, width: Width, x: Scalar, divisor: u64) -> Scalar {
        if divisor.is_power_of_two() {
            let biased = self.biased(width, x, divisor);
            return self.shr(width, true, biased, divisor.trailing_zeros());
        }
        let reciprocal = Reciprocal::of(divisor, width.bits(), width.bits() - 1);
        let Reciprocal { factor, shift } = reciprocal.expect("signed numbers have a reciprocal");
        let mut product = self.mul_high(width, true, x, Scalar::constant(factor));
        if width.signed(factor) < 0 {
            // The multiplication reads the factor as a signed number, 2^N too small.
            product = self.add(width, product, x);
        }
        let below = self.shr(width, true, product, shift);
        let sign = self.shr(width, false, below, width.bits() - 1);
        self.add(width, below, sign)
    }

    /// Adds `divisor - 1` to a negative x, so that a right shift rounds towards zero. The divisor
    /// is a power of two.
    fn biased(&mut self, width: Width, x: Scalar, divisor: u64) -> Scalar {
        let sign = self.shr(width, true, x, width.bits() - 1);
        let bias = self.shr(width, false, sign, width.bits() - divisor.trailing_zeros());
        self.add(width, x, bias)
    }

    fn unsigned_quotient(&mut self, width: Width, x: Scalar, divisor: u64) -> Scalar {
        let (bits, zeros) = (width.bits(), divisor.trailing_zeros());
        if let Some(Reciprocal { factor, shift }) = Reciprocal::of(divisor, bits, bits) {
            let product = self.mul_high(width, false, x, Scalar::constant(factor));
            return self.shr(width, false, product, shift);
        }
        if zeros > 0 {
            // The shifted x has fewer bits, so a less exact factor suffices.
            let reciprocal = Reciprocal::of(divisor >> zeros, bits, bits - zeros);
            if let Some(Reciprocal { factor, shift }) = reciprocal {
                let shifted = self.shr(width, false, x, zeros);
                let product = self.mul_high(width, false, shifted, Scalar::constant(factor));
                return self.shr(width, false, product, shift);
            }
        }
        // The factor needs N + 1 bits: it is 2^N + `factor`.
        let size = 64 - (divisor - 1).leading_zeros();
        let above = (1_u128 << size) - u128::from(divisor);
        let factor = ((above << bits) / u128::from(divisor)) as u64 + 1;
        let product = self.mul_high(width, false, x, Scalar::constant(factor));
        let rest = self.sub(width, x, product);
        let half = self.shr(width, false, rest, 1);
        let sum = self.add(width, half, product);
        self.shr(width, false, sum, size - 1)
    }
}

/// Returns the quotient of two constants, truncated towards zero.
fn divide(width: Width, signed: bool, x: u64, divisor: u64) -> u64 {
    if signed { width.cut(width.signed(x).wrapping_div(width.signed(divisor)) as u64) } else { x / divisor }
}
