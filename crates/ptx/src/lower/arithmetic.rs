//! Lowers the elementwise functions on integers and booleans.

use tilewright_ir::{ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, WideProductFn};

use super::builder::{Builder, Scalar, Width};
use super::integer::{Bitwise, integer};
use crate::isa::{self, Comparison};

/// The register width, the number of bits, and the sign of an integer type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    pub width: Width,
    pub bits: u32,
    pub signed: bool,
}

impl Integer {
    /// Returns the type of an integer of at least 8 bits.
    pub fn of(dtype: Dtype) -> Self {
        let width = if dtype.bits() == 64 { Width::B64 } else { Width::B32 };
        Self { width, bits: dtype.bits(), signed: dtype.is_signed() }
    }
}

/// Returns the PTX comparison for `function`.
pub(super) fn comparison(function: ComparisonFn) -> Comparison {
    match function {
        ComparisonFn::Eq => Comparison::Eq,
        ComparisonFn::Ne => Comparison::Ne,
        ComparisonFn::Lt => Comparison::Lt,
        ComparisonFn::Le => Comparison::Le,
        ComparisonFn::Gt => Comparison::Gt,
        ComparisonFn::Ge => Comparison::Ge,
    }
}

impl Builder {
    pub fn integer_comparison(&mut self, function: ComparisonFn, ty: Integer, x: &[Scalar]) -> Scalar {
        self.compare(ty.width, ty.signed, comparison(function), x[0], x[1])
    }

    pub fn integer_arithmetic(&mut self, function: ArithmeticFn, ty: Integer, x: &[Scalar]) -> Scalar {
        let width = ty.width;
        let result = match function {
            ArithmeticFn::Add => self.add(width, x[0], x[1]),
            ArithmeticFn::Sub => self.sub(width, x[0], x[1]),
            ArithmeticFn::Mul => self.mul(width, x[0], x[1]),
            ArithmeticFn::Neg => self.sub(width, Scalar::constant(0), x[0]),
            ArithmeticFn::Abs if ty.signed => {
                let negated = self.sub(width, Scalar::constant(0), x[0]);
                self.extremum(width, true, true, x[0], negated)
            }
            ArithmeticFn::Abs => x[0],
            ArithmeticFn::Min => self.extremum(width, ty.signed, false, x[0], x[1]),
            ArithmeticFn::Max => self.extremum(width, ty.signed, true, x[0], x[1]),
        };
        self.cut_to_type(ty, result)
    }

    pub fn integer_division(&mut self, function: DivisionFn, ty: Integer, x: &[Scalar]) -> Scalar {
        let result = match function {
            DivisionFn::IntDiv => self.quotient(ty, x[0], x[1]),
            DivisionFn::IntRem => self.remainder(ty, x[0], x[1]),
        };
        self.cut_to_type(ty, result)
    }

    pub fn integer_bitwise(&mut self, function: BitwiseFn, ty: Integer, x: &[Scalar]) -> Scalar {
        let width = ty.width;
        let result = match function {
            BitwiseFn::And => self.bitwise(Bitwise::And, width, x[0], x[1]),
            BitwiseFn::Or => self.bitwise(Bitwise::Or, width, x[0], x[1]),
            BitwiseFn::Xor => self.bitwise(Bitwise::Xor, width, x[0], x[1]),
            BitwiseFn::Not => self.bitwise(Bitwise::Xor, width, x[0], Scalar::constant(width.cut(u64::MAX))),
            BitwiseFn::Shl => self.shift(true, ty, x[0], x[1]),
            BitwiseFn::Shr => self.shift(false, ty, x[0], x[1]),
        };
        self.cut_to_type(ty, result)
    }

    /// Emits the upper half of a product of integers of at least 8 bits.
    pub fn wide_product(&mut self, function: WideProductFn, ty: Integer, x: &[Scalar]) -> Scalar {
        let result = match function {
            WideProductFn::MulHigh if ty.bits < 32 => {
                let product = self.mul(ty.width, x[0], x[1]);
                self.shr(ty.width, ty.signed, product, ty.bits)
            }
            WideProductFn::MulHigh => self.mul_high(ty.width, ty.signed, x[0], x[1]),
        };
        self.cut_to_type(ty, result)
    }

    /// Extends the low bits of a narrow integer to the whole register.
    fn cut_to_type(&mut self, ty: Integer, result: Scalar) -> Scalar {
        if ty.bits < 32 { self.extend(result, ty.bits, ty.signed) } else { result }
    }

    /// Shifts by an unsigned count. For a count from the register width on, the result is 0, or the
    /// sign in a right shift of a signed integer.
    fn shift(&mut self, left: bool, ty: Integer, x: Scalar, count: Scalar) -> Scalar {
        let most = u64::from(ty.width.bits());
        if let Some(count) = count.as_constant() {
            return match (left, count < most) {
                (true, true) => self.shl(ty.width, x, count as u32),
                (false, true) => self.shr(ty.width, ty.signed, x, count as u32),
                (false, false) if ty.signed => self.shr(ty.width, true, x, most as u32 - 1),
                _ => Scalar::constant(0),
            };
        }
        // The instructions clamp a 32-bit count, so only a 64-bit one needs a clamp.
        let count = if ty.width == Width::B64 {
            let clamped = self.extremum(Width::B64, false, false, count, Scalar::constant(most));
            self.low_word(clamped)
        } else {
            count
        };
        let (a, b) = (self.register(ty.width, x).into(), self.source(Width::B32, count));
        if left {
            self.pure(ty.width, |d| isa::Shl { ty: ty.width.ty(), d, a, b })
        } else {
            self.pure(ty.width, |d| isa::Shr { ty: integer(ty.width, ty.signed), d, a, b })
        }
    }

    /// Returns the low 32 bits of 64.
    pub fn low_word(&mut self, a: Scalar) -> Scalar {
        match a.base {
            None => Scalar::constant(Width::B32.cut(a.offset)),
            Some(base) => {
                let (to, from) = (integer(Width::B32, false), integer(Width::B64, false));
                let low = self.pure(Width::B32, |d| super::integer::convert(to, from, d, base.into()));
                low.plus(Width::B32, a.offset)
            }
        }
    }

    /// Returns the quotient, truncated towards zero. All bits of a division by zero are ones. The
    /// smallest number divided by -1 yields itself.
    pub fn quotient(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Scalar {
        let Integer { width, signed, .. } = ty;
        let ones = Scalar::constant(width.cut(u64::MAX));
        match y.as_constant() {
            Some(0) => return ones,
            Some(1) => return x,
            Some(bits) if signed && bits == ones.offset => return self.sub(width, Scalar::constant(0), x),
            Some(bits) if !signed && bits.is_power_of_two() => {
                let (x, _) = self.representative(width, false, x, bits);
                return self.shr(width, false, x, bits.trailing_zeros());
            }
            Some(bits) => return self.quotient_by(ty, x, bits),
            None => {}
        }
        let quotient = self.quotient_by_other(ty, x, y);
        self.ones_by_zero(width, y, quotient)
    }

    /// Returns the quotient by a divisor that is not a constant. A division by zero is unspecified.
    fn quotient_by_other(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Scalar {
        let Integer { width, signed, .. } = ty;
        if width == Width::B64 {
            return self.divide_long(ty, x, y).quotient;
        }
        let (a, b) = (self.register(width, x).into(), self.source(width, y));
        let ty = integer(width, signed);
        let quotient =
            self.pure(width, |d| isa::Div { precision: None, rounding: None, ftz: false, ty, d, a, b });
        if !signed {
            return quotient;
        }
        // The result for the smallest number and -1, and for a divisor of zero, is unspecified. The
        // select handles -1, and the caller zero.
        let ones = Scalar::constant(width.cut(u64::MAX));
        let is_minus_one = self.compare(width, signed, Comparison::Eq, y, ones);
        let negated = self.sub(width, Scalar::constant(0), x);
        self.select(width, is_minus_one, negated, quotient)
    }

    /// Replaces a quotient or remainder with all ones if the divisor is zero.
    fn ones_by_zero(&mut self, width: Width, y: Scalar, result: Scalar) -> Scalar {
        let ones = Scalar::constant(width.cut(u64::MAX));
        let is_zero = self.compare(width, false, Comparison::Eq, y, Scalar::constant(0));
        self.select(width, is_zero, ones, result)
    }

    /// Returns x - (x / y) * y, or all ones for y = 0. A quotient of the same operands shares its
    /// division.
    pub(super) fn remainder(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Scalar {
        let Integer { width, signed, .. } = ty;
        match y.as_constant() {
            Some(bits) if !signed && bits.is_power_of_two() => {
                let (x, more) = self.representative(width, false, x, bits);
                let rest = self.bitwise(Bitwise::And, width, x, Scalar::constant(bits - 1));
                return rest.plus(width, more);
            }
            Some(bits) if bits > 1 && bits != width.cut(u64::MAX) => return self.remainder_by(ty, x, bits),
            _ => {}
        }
        let constant = y.as_constant();
        if constant == Some(0) {
            return Scalar::constant(width.cut(u64::MAX));
        }
        if constant.is_none() && width == Width::B64 {
            let remainder = self.divide_long(ty, x, y).remainder;
            return self.ones_by_zero(width, y, remainder);
        }
        let quotient =
            if constant.is_some() { self.quotient(ty, x, y) } else { self.quotient_by_other(ty, x, y) };
        let product = self.mul(width, quotient, y);
        let rest = self.sub(width, x, product);
        self.ones_by_zero(width, y, rest)
    }

    /// Emits arithmetic of booleans, which are integers modulo 2.
    pub fn boolean_arithmetic(&mut self, function: ArithmeticFn, x: &[Scalar]) -> Scalar {
        match function {
            ArithmeticFn::Add | ArithmeticFn::Sub => self.bitwise(Bitwise::Xor, Width::Pred, x[0], x[1]),
            ArithmeticFn::Mul | ArithmeticFn::Min => self.bitwise(Bitwise::And, Width::Pred, x[0], x[1]),
            ArithmeticFn::Max => self.bitwise(Bitwise::Or, Width::Pred, x[0], x[1]),
            ArithmeticFn::Neg | ArithmeticFn::Abs => x[0],
        }
    }

    pub fn boolean_division(&mut self, function: DivisionFn, x: &[Scalar]) -> Scalar {
        match function {
            DivisionFn::IntDiv => self.bitwise(Bitwise::Or, Width::Pred, x[0], not(x[1])),
            DivisionFn::IntRem => not(x[1]),
        }
    }

    /// Emits bitwise functions and shifts of booleans.
    pub fn boolean_bitwise(&mut self, function: BitwiseFn, x: &[Scalar]) -> Scalar {
        match function {
            BitwiseFn::And => self.bitwise(Bitwise::And, Width::Pred, x[0], x[1]),
            BitwiseFn::Or => self.bitwise(Bitwise::Or, Width::Pred, x[0], x[1]),
            BitwiseFn::Xor => self.bitwise(Bitwise::Xor, Width::Pred, x[0], x[1]),
            BitwiseFn::Not => not(x[0]),
            BitwiseFn::Shl | BitwiseFn::Shr => self.bitwise(Bitwise::And, Width::Pred, x[0], not(x[1])),
        }
    }

    pub fn boolean_comparison(&mut self, function: ComparisonFn, x: &[Scalar]) -> Scalar {
        match function {
            ComparisonFn::Eq => not(self.bitwise(Bitwise::Xor, Width::Pred, x[0], x[1])),
            ComparisonFn::Ne => self.bitwise(Bitwise::Xor, Width::Pred, x[0], x[1]),
            ComparisonFn::Lt => self.bitwise(Bitwise::And, Width::Pred, not(x[0]), x[1]),
            ComparisonFn::Le => self.bitwise(Bitwise::Or, Width::Pred, not(x[0]), x[1]),
            ComparisonFn::Gt => self.bitwise(Bitwise::And, Width::Pred, x[0], not(x[1])),
            ComparisonFn::Ge => self.bitwise(Bitwise::Or, Width::Pred, x[0], not(x[1])),
        }
    }
}

fn not(scalar: Scalar) -> Scalar {
    scalar.plus(Width::Pred, 1)
}
