//! The elementwise table on integers and booleans.

use tilewright_ir::{Dtype, ElementwiseFn as F};

use super::builder::{Builder, Scalar, Width};
use super::integer::{Bitwise, integer};
use crate::isa::{self, Comparison};

/// An integer type: its register, its bits, its sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    pub width: Width,
    pub bits: u32,
    pub signed: bool,
}

impl Integer {
    /// Of a number of at least 8 bits.
    pub fn of(dtype: Dtype) -> Self {
        let width = if dtype.bits() == 64 { Width::B64 } else { Width::B32 };
        Self { width, bits: dtype.bits(), signed: dtype.is_signed() }
    }

    /// The integers that addresses are.
    pub const ADDRESS: Self = Self { width: Width::B64, bits: 64, signed: false };
}

/// The comparison of a row.
pub(super) fn comparison(function: F) -> Option<Comparison> {
    match function {
        F::Eq => Some(Comparison::Eq),
        F::Ne => Some(Comparison::Ne),
        F::Lt => Some(Comparison::Lt),
        F::Le => Some(Comparison::Le),
        F::Gt => Some(Comparison::Gt),
        F::Ge => Some(Comparison::Ge),
        // tidy: wildcard because the others compare nothing.
        _ => None,
    }
}

impl Builder {
    /// A function of integers of at least 8 bits.
    pub fn integer(&mut self, function: F, ty: Integer, x: &[Scalar]) -> Scalar {
        if let Some(comparison) = comparison(function) {
            return self.compare(ty.width, ty.signed, comparison, x[0], x[1]);
        }
        let result = self.integer_unwrapped(function, ty, x);
        if ty.bits < 32 { self.extend(result, ty.bits, ty.signed) } else { result }
    }

    /// The result before it is cut to a narrow type.
    fn integer_unwrapped(&mut self, function: F, ty: Integer, x: &[Scalar]) -> Scalar {
        let width = ty.width;
        match function {
            F::Add => self.add(width, x[0], x[1]),
            F::Sub => self.sub(width, x[0], x[1]),
            F::Mul => self.mul(width, x[0], x[1]),
            F::Neg => self.sub(width, Scalar::constant(0), x[0]),
            F::Abs if ty.signed => {
                let negated = self.sub(width, Scalar::constant(0), x[0]);
                self.extremum(width, true, true, x[0], negated)
            }
            F::Abs => x[0],
            F::Min => self.extremum(width, ty.signed, false, x[0], x[1]),
            F::Max => self.extremum(width, ty.signed, true, x[0], x[1]),
            F::And => self.bitwise(Bitwise::And, width, x[0], x[1]),
            F::Or => self.bitwise(Bitwise::Or, width, x[0], x[1]),
            F::Xor => self.bitwise(Bitwise::Xor, width, x[0], x[1]),
            F::Not => self.bitwise(Bitwise::Xor, width, x[0], Scalar::constant(width.cut(u64::MAX))),
            F::Shl | F::Shr => self.shift(function == F::Shl, ty, x[0], x[1]),
            F::IntDiv => self.quotient(ty, x[0], x[1]),
            F::IntRem => self.remainder(ty, x[0], x[1]),
            F::MulHigh if ty.bits < 32 => {
                let product = self.mul(width, x[0], x[1]);
                self.shr(width, ty.signed, product, ty.bits)
            }
            F::MulHigh => self.mul_high(width, ty.signed, x[0], x[1]),
            // tidy: wildcard because the table lets the others take no integers.
            _ => unreachable!("{} takes no integers", function.name()),
        }
    }

    /// A shift by an unsigned number of bits; by the width or more, what is left is the sign or 0.
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
        // The instructions clamp a count of 32 bits.
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

    /// The low 32 bits of 64.
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

    /// The quotient, truncated towards zero; by zero all ones, and the smallest number by -1 is itself.
    fn quotient(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Scalar {
        let Integer { width, signed, .. } = ty;
        let ones = Scalar::constant(width.cut(u64::MAX));
        match y.as_constant() {
            Some(0) => return ones,
            Some(1) => return x,
            Some(bits) if signed && bits == ones.offset => return self.sub(width, Scalar::constant(0), x),
            Some(bits) if !signed && bits.is_power_of_two() => {
                return self.shr(width, false, x, bits.trailing_zeros());
            }
            _ => {}
        }
        let (a, b) = (self.register(width, x).into(), self.source(width, y));
        let ty = integer(width, signed);
        let quotient =
            self.pure(width, |d| isa::Div { precision: None, rounding: None, ftz: false, ty, d, a, b });
        if y.as_constant().is_some() {
            return quotient;
        }
        // What the instruction gives for these is not specified.
        let is_zero = self.compare(width, signed, Comparison::Eq, y, Scalar::constant(0));
        let quotient = self.select(width, is_zero, ones, quotient);
        if !signed {
            return quotient;
        }
        let is_minus_one = self.compare(width, signed, Comparison::Eq, y, ones);
        let negated = self.sub(width, Scalar::constant(0), x);
        self.select(width, is_minus_one, negated, quotient)
    }

    /// x less the quotient times y.
    fn remainder(&mut self, ty: Integer, x: Scalar, y: Scalar) -> Scalar {
        let Integer { width, signed, .. } = ty;
        match y.as_constant() {
            Some(bits) if !signed && bits.is_power_of_two() => {
                return self.bitwise(Bitwise::And, width, x, Scalar::constant(bits - 1));
            }
            Some(bits) if bits != 0 && bits != width.cut(u64::MAX) => {
                let (a, b) = (self.register(width, x).into(), self.source(width, y));
                let ty = integer(width, signed);
                return self.pure(width, |d| isa::Rem { ty, d, a, b });
            }
            _ => {}
        }
        let quotient = self.quotient(ty, x, y);
        let product = self.mul(width, quotient, y);
        self.sub(width, x, product)
    }

    /// A function of booleans, which are integers modulo 2.
    pub fn boolean(&mut self, function: F, x: &[Scalar]) -> Scalar {
        let not = |scalar: Scalar| scalar.plus(Width::Pred, 1);
        let mut bitwise = |operation, a, b| self.bitwise(operation, Width::Pred, a, b);
        match function {
            F::Add | F::Sub | F::Xor | F::Ne => bitwise(Bitwise::Xor, x[0], x[1]),
            F::Eq => not(bitwise(Bitwise::Xor, x[0], x[1])),
            F::Mul | F::And | F::Min => bitwise(Bitwise::And, x[0], x[1]),
            F::Or | F::Max => bitwise(Bitwise::Or, x[0], x[1]),
            F::Not => not(x[0]),
            F::Lt => bitwise(Bitwise::And, not(x[0]), x[1]),
            F::Le => bitwise(Bitwise::Or, not(x[0]), x[1]),
            F::Ge | F::IntDiv => bitwise(Bitwise::Or, x[0], not(x[1])),
            F::Gt | F::IntRem | F::Shl | F::Shr => bitwise(Bitwise::And, x[0], not(x[1])),
            F::Neg | F::Abs => x[0],
            // tidy: wildcard because the table lets the others take no booleans.
            _ => unreachable!("{} takes no booleans", function.name()),
        }
    }
}
