//! Emits arithmetic on integers and predicates. Folds constants, and keeps an added constant in the
//! [`Scalar`].

use super::builder::{Builder, Scalar, Width, only, plain_add, sources};
use super::value_ranges::Interval;
use crate::isa::{self, Comparison, MultiplyMode, ScalarType, Source};

/// A bitwise operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bitwise {
    And,
    Or,
    Xor,
}

/// Returns the integer type of a register width: 64 bits for `B64`, else 32.
pub(super) fn integer(width: Width, signed: bool) -> ScalarType {
    match (width, signed) {
        (Width::B64, true) => ScalarType::S64,
        (Width::B64, false) => ScalarType::U64,
        (Width::Pred | Width::B16 | Width::B32, true) => ScalarType::S32,
        (Width::Pred | Width::B16 | Width::B32, false) => ScalarType::U32,
    }
}

/// Translates a comparison of signed integers to that of unsigned integers.
fn unsigned(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Lt => Comparison::Lo,
        Comparison::Le => Comparison::Ls,
        Comparison::Gt => Comparison::Hi,
        Comparison::Ge => Comparison::Hs,
        // tidy: wildcard because the others do not depend on the sign.
        other => other,
    }
}

fn holds(comparison: Comparison, order: std::cmp::Ordering) -> bool {
    match comparison {
        Comparison::Eq => order.is_eq(),
        Comparison::Ne => order.is_ne(),
        Comparison::Lt | Comparison::Lo => order.is_lt(),
        Comparison::Le | Comparison::Ls => order.is_le(),
        Comparison::Gt | Comparison::Hi => order.is_gt(),
        Comparison::Ge | Comparison::Hs => order.is_ge(),
        // tidy: wildcard because the rest are comparisons of floating-point numbers.
        _ => unreachable!("{comparison:?} compares no integers"),
    }
}

impl Builder {
    /// Returns a + b, wrapping.
    pub fn add(&mut self, width: Width, a: Scalar, b: Scalar) -> Scalar {
        let offset = a.offset.wrapping_add(b.offset);
        let sum = match (a.base, b.base) {
            (Some(x), Some(y)) => {
                let (x, y) = (x.min(y), x.max(y));
                let ty = integer(width, true);
                let sum = self.pure(width, |d| plain_add(ty, d, x.into(), y.into()));
                let zeros = self.trailing_zeros(x.into()).min(self.trailing_zeros(y.into()));
                self.note_zeros(sum, zeros);
                let bounds = self.bound(width, x.into()).zip(self.bound(width, y.into()));
                self.note_bound(width, sum, bounds.map(|(x, y)| x + y));
                sum
            }
            (base, None) | (None, base) => Scalar { base, offset: 0 },
        };
        sum.plus(width, offset)
    }

    /// Returns a - b, wrapping.
    pub fn sub(&mut self, width: Width, a: Scalar, b: Scalar) -> Scalar {
        let offset = a.offset.wrapping_sub(b.offset);
        let difference = match (a.base, b.base) {
            (base, None) => Scalar { base, offset: 0 },
            (Some(x), Some(y)) if x == y => Scalar::constant(0),
            (x, Some(y)) => {
                let ty = integer(width, true);
                let a = x.map_or(0.into(), Source::from);
                self.pure(width, |d| isa::Sub {
                    carry_out: false,
                    rounding: None,
                    ftz: false,
                    saturate: false,
                    ty,
                    d,
                    a,
                    b: y.into(),
                })
            }
        };
        difference.plus(width, offset)
    }

    /// Returns a * b, wrapping.
    pub fn mul(&mut self, width: Width, a: Scalar, b: Scalar) -> Scalar {
        let (a, factor) = match (a.as_constant(), b.as_constant()) {
            (_, Some(factor)) => (a, factor),
            (Some(factor), None) => (b, factor),
            (None, None) => {
                let (x, y) = (self.register(width, a), self.register(width, b));
                let (x, y) = (x.min(y), x.max(y));
                return self.pure(width, |d| mul_low(integer(width, true), d, x.into(), y.into()));
            }
        };
        let offset = a.offset.wrapping_mul(factor);
        let zeros = a.base.map_or(0, |base| self.trailing_zeros(base.into())) + factor.trailing_zeros();
        let product = match (a.base, factor) {
            (None, _) | (_, 0) => Scalar::constant(0),
            (Some(base), 1) => base.into(),
            (Some(base), factor) if factor.is_power_of_two() => {
                let count = i64::from(factor.trailing_zeros());
                self.pure(width, |d| isa::Shl { ty: width.ty(), d, a: base.into(), b: count.into() })
            }
            (Some(base), factor) => {
                let factor = width.signed(factor).into();
                self.pure(width, |d| mul_low(integer(width, true), d, base.into(), factor))
            }
        };
        self.note_zeros(product, zeros.min(width.bits() - 1));
        let bound = a.base.and_then(|base| self.bound(width, base.into())?.checked_mul(factor));
        self.note_bound(width, product, bound);
        product.plus(width, offset)
    }

    /// Returns an upper bound of a number. Returns `None` if the signed number may be negative.
    pub fn bound(&self, width: Width, a: Scalar) -> Option<u64> {
        let base = a.base.map_or(Some(0), |base| self.bounds.get(&base).copied())?;
        base.checked_add(a.offset).filter(|bound| *bound <= width.cut(u64::MAX) >> 1)
    }

    /// Records a register's upper bound, if it shows that the signed number is not negative.
    pub fn note_bound(&mut self, width: Width, a: Scalar, bound: Option<u64>) {
        if let (Some(register), 0, Some(bound)) = (a.base, a.offset, bound)
            && bound <= width.cut(u64::MAX) >> 1
        {
            self.bounds.insert(register, bound);
        }
    }

    /// Returns the interval of an integer of 32 bits.
    fn interval(&self, a: Scalar) -> Option<Interval> {
        let base = a.base?;
        let known = self.intervals.get(&base).copied();
        let Interval { base, low, high } = known.unwrap_or(Interval { base, low: 0, high: 0 });
        Some(Interval { base, low: low + a.offset, high: high + a.offset })
    }

    /// Records that a register has one of two values.
    fn note_choice(&mut self, result: Scalar, a: Scalar, b: Scalar) {
        if let (Some(register), Some(a), Some(b)) = (result.base, self.interval(a), self.interval(b))
            && let Some(interval) = a.join(b)
        {
            self.intervals.insert(register, interval);
        }
    }

    /// Returns the order of two integers of 32 bits, signed or not, if it is known.
    fn known_order(&self, a: Scalar, b: Scalar) -> Option<std::cmp::Ordering> {
        let (a, b) = (self.interval(a)?, self.interval(b)?);
        a.order(b, self.bound(Width::B32, a.base.into())?)
    }

    /// Returns the number of low bits that are known to be zero.
    pub fn trailing_zeros(&self, a: Scalar) -> u32 {
        let base = a.base.map_or(63, |base| self.zeros.get(&base).copied().unwrap_or(0));
        base.min(a.offset.trailing_zeros())
    }

    fn note_zeros(&mut self, a: Scalar, zeros: u32) {
        if let (Some(register), 1..) = (a.base, zeros) {
            self.zeros.insert(register, zeros);
        }
    }

    /// Returns the upper half of the product.
    pub fn mul_high(&mut self, width: Width, signed: bool, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = (self.register(width, a), self.source(width, b));
        let ty = integer(width, signed);
        self.pure(width, |d| isa::Mul {
            mode: Some(MultiplyMode::Hi),
            rounding: None,
            ftz: false,
            saturate: false,
            ty,
            d,
            a: a.into(),
            b,
        })
    }

    /// Returns the 64-bit product of a 32-bit number and a constant. If `a`'s register plus
    /// constant cannot overflow, both are multiplied separately. `splits` promises this, or a bound
    /// of `a` proves it.
    pub fn mul_wide(&mut self, signed: bool, a: Scalar, factor: u64, splits: bool) -> Scalar {
        let extend = |bits: u64| if signed { Width::B32.signed(bits) as u64 } else { bits };
        let bound = self.bound(Width::B32, a);
        let (base, offset) = if splits || a.base.is_none() || bound.is_some() {
            (a.base, extend(a.offset).wrapping_mul(factor))
        } else {
            (Some(self.register(Width::B32, a)), 0)
        };
        let ty = integer(Width::B32, signed);
        let wide = match base {
            None => Scalar::constant(0),
            Some(base) if factor == 1 => {
                let to = integer(Width::B64, signed);
                self.pure(Width::B64, |d| convert(to, ty, d, base.into()))
            }
            Some(base) => self.pure(Width::B64, |d| isa::Mul {
                mode: Some(MultiplyMode::Wide),
                rounding: None,
                ftz: false,
                saturate: false,
                ty,
                d,
                a: base.into(),
                b: (factor as i64).into(),
            }),
        };
        let bound = base.and_then(|base| self.bound(Width::B32, base.into())?.checked_mul(factor));
        self.note_bound(Width::B64, wide, bound);
        wide.plus(Width::B64, offset)
    }

    /// Returns the 64-bit product of a signed 32-bit number and a power of two. The product
    /// consists of two halves, because the assembler would repeat a multiplication at each use. For
    /// another factor, calls [`Self::mul_wide`] with `splits`. In both cases, `a`'s register plus
    /// constant must not overflow.
    pub fn mul_halves(&mut self, a: Scalar, factor: u64) -> Scalar {
        let Some(base) = a.base.filter(|_| factor.is_power_of_two()) else {
            return self.mul_wide(true, a, factor, true);
        };
        let shift = factor.trailing_zeros();
        let low = self.shl(Width::B32, base.into(), shift);
        let high = self.shr(Width::B32, true, base.into(), (32 - shift).min(31));
        let halves = [low, high].map(|half| self.register(Width::B32, half));
        let wide =
            self.pure(Width::B64, |d| isa::Mov { ty: ScalarType::B64, d: d.into(), a: sources(&halves) });
        let offset = Width::B32.signed(a.offset).wrapping_mul(factor as i64);
        wide.plus(Width::B64, offset as u64)
    }

    /// Shifts left by a constant less than the width.
    pub fn shl(&mut self, width: Width, a: Scalar, count: u32) -> Scalar {
        self.mul(width, a, Scalar::constant(1 << count))
    }

    /// Shifts right by a constant less than the width.
    pub fn shr(&mut self, width: Width, signed: bool, a: Scalar, count: u32) -> Scalar {
        if count == 0 {
            return a;
        }
        if let Some(bits) = a.as_constant() {
            let shifted = if signed { (width.signed(bits) >> count) as u64 } else { bits >> count };
            return Scalar::constant(width.cut(shifted));
        }
        let bound = self.bound(width, a);
        let a = self.register(width, a);
        let ty = integer(width, signed);
        let shifted = self.pure(width, |d| isa::Shr { ty, d, a: a.into(), b: i64::from(count).into() });
        self.note_bound(width, shifted, bound.map(|bound| bound >> count));
        shifted
    }

    /// Applies a bitwise operation, also to predicates.
    pub fn bitwise(&mut self, operation: Bitwise, width: Width, a: Scalar, b: Scalar) -> Scalar {
        let ones = width.cut(u64::MAX);
        let (a, b) = if a.base.is_none() || a.base > b.base && b.base.is_some() { (b, a) } else { (a, b) };
        match (operation, a.as_constant(), b.as_constant()) {
            (Bitwise::And, Some(x), Some(y)) => return Scalar::constant(x & y),
            (Bitwise::Or, Some(x), Some(y)) => return Scalar::constant(x | y),
            (Bitwise::Xor, Some(x), Some(y)) => return Scalar::constant(x ^ y),
            (Bitwise::And, None, Some(0)) => return Scalar::constant(0),
            (Bitwise::Or | Bitwise::Xor, None, Some(0)) => return a,
            (Bitwise::And, None, Some(bits)) if bits == ones => return a,
            (Bitwise::Or, None, Some(bits)) if bits == ones => return Scalar::constant(ones),
            // Negates a predicate.
            (Bitwise::Xor, None, Some(1)) if width == Width::Pred => return a.plus(width, 1),
            (Bitwise::And | Bitwise::Or, None, None) if a == b => return a,
            (Bitwise::Xor, None, None) if a == b => return Scalar::constant(0),
            _ => {}
        }
        let a = Source::from(self.register(width, a));
        let b = self.source(width, b);
        let ty = width.ty();
        match operation {
            Bitwise::And => self.pure(width, |d| isa::And { ty, d, a, b }),
            Bitwise::Or => self.pure(width, |d| isa::Or { ty, d, a, b }),
            Bitwise::Xor => self.pure(width, |d| isa::Xor { ty, d, a, b }),
        }
    }

    /// Returns the conjunction of predicates.
    pub fn and(&mut self, a: Scalar, b: Scalar) -> Scalar {
        self.bitwise(Bitwise::And, Width::Pred, a, b)
    }

    /// Compares integers. `comparison` is `Eq`, `Ne`, `Lt`, `Le`, `Gt` or `Ge`.
    pub fn compare(
        &mut self,
        width: Width,
        signed: bool,
        comparison: Comparison,
        a: Scalar,
        b: Scalar,
    ) -> Scalar {
        let order = match (a.as_constant(), b.as_constant()) {
            (Some(x), Some(y)) if signed => Some(width.signed(x).cmp(&width.signed(y))),
            (Some(x), Some(y)) => Some(x.cmp(&y)),
            _ if a == b => Some(std::cmp::Ordering::Equal),
            _ if width == Width::B32 => self.known_order(a, b),
            _ => None,
        };
        if let Some(order) = order {
            return Scalar::constant(u64::from(holds(comparison, order)));
        }
        let (a, b) = (self.register(width, a).into(), self.source(width, b));
        let comparison = if signed { comparison } else { unsigned(comparison) };
        self.set_predicate(comparison, integer(width, signed), a, b)
    }

    /// Emits `setp`.
    pub fn set_predicate(&mut self, comparison: Comparison, ty: ScalarType, a: Source, b: Source) -> Scalar {
        self.pure(Width::Pred, |d| isa::Setp {
            comparison,
            combine: None,
            ftz: false,
            ty,
            d: only(d),
            a,
            b,
            c: None,
        })
    }

    /// Returns a if the condition is true, else b.
    pub fn select(&mut self, width: Width, condition: Scalar, a: Scalar, b: Scalar) -> Scalar {
        match condition.as_constant() {
            Some(0) => return b,
            Some(_) => return a,
            None if a == b => return a,
            None => {}
        }
        if width == Width::Pred {
            let both = self.and(condition, a);
            let neither = self.and(condition.plus(Width::Pred, 1), b);
            return self.bitwise(Bitwise::Or, width, both, neither);
        }
        let (condition, a, b) =
            if condition.offset == 1 { (condition.plus(Width::Pred, 1), b, a) } else { (condition, a, b) };
        let c = self.predicate(condition);
        let operands = (self.source(width, a), self.source(width, b));
        let result = self.pure(width, |d| isa::Selp { ty: width.ty(), d, a: operands.0, b: operands.1, c });
        if width == Width::B32 {
            self.note_choice(result, a, b);
        }
        result
    }

    /// Returns the minimum or maximum of two integers.
    pub fn extremum(&mut self, width: Width, signed: bool, largest: bool, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = if a.base.is_none() { (b, a) } else { (a, b) };
        if a == b {
            return a;
        }
        let (a, b) = (self.register(width, a), self.source(width, b));
        let (a, b) = match b {
            Source::Register(other) => (a.min(other).into(), a.max(other).into()),
            // tidy: wildcard because the other operand is a constant.
            _ => (a.into(), b),
        };
        let ty = integer(width, signed);
        let (ftz, nan, xorsign_abs, relu, c) = (false, false, false, false, None);
        if largest {
            self.pure(width, |d| isa::Max { ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
        } else {
            self.pure(width, |d| isa::Min { ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
        }
    }

    /// Extends the low `bits` bits of a 32-bit register by the sign or by zeros.
    pub fn extend(&mut self, a: Scalar, bits: u32, signed: bool) -> Scalar {
        if let Some(value) = a.as_constant() {
            let unused = 64 - bits;
            let cut =
                if signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused };
            return Scalar::constant(Width::B32.cut(cut));
        }
        if !signed {
            return self.bitwise(Bitwise::And, Width::B32, a, Scalar::constant((1 << bits) - 1));
        }
        let a = self.register(Width::B32, a);
        let from = if bits == 8 { ScalarType::S8 } else { ScalarType::S16 };
        self.pure(Width::B32, |d| convert(ScalarType::S32, from, d, a.into()))
    }
}

fn mul_low(ty: ScalarType, d: isa::RegisterId, a: Source, b: Source) -> isa::Mul {
    isa::Mul { mode: Some(MultiplyMode::Lo), rounding: None, ftz: false, saturate: false, ty, d, a, b }
}

/// Returns a conversion without modifiers.
pub(super) fn convert(to: ScalarType, from: ScalarType, d: isa::RegisterId, a: Source) -> isa::Cvt {
    isa::Cvt { rounding: None, ftz: false, saturate: false, clamp: None, to, from, d, a, b: None, c: None }
}
