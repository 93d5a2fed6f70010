//! Represents floating-point numbers exactly, and rounds them once, to a format.
//! A finite number is an integer times a power of two. If a result exceeds 128 bits, its lowest bit
//! is a sticky bit. This bit is far below the last place of every format, so the rounding is
//! correct.

/// The rounding of a result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rounding {
    /// To nearest, ties to even.
    NearestEven,
    /// To nearest, ties away from zero.
    NearestAway,
    /// Towards zero.
    Zero,
    /// Towards negative infinity.
    Down,
    /// Towards positive infinity.
    Up,
}

/// The meaning of the largest exponent of a format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Top {
    /// Infinities and NaN, as in IEEE 754.
    Ieee,
    /// Numbers, except that all ones are NaN.
    OneNan,
    Numbers,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the fraction.
    pub fraction_bits: u32,
    /// Zero bits below the fraction in the stored number.
    padding: u32,
    top: Top,
}

impl Format {
    const fn ieee(exponent_bits: u32, fraction_bits: u32) -> Self {
        Self { exponent_bits, fraction_bits, padding: 0, top: Top::Ieee }
    }

    /// IEEE binary16.
    pub const F16: Self = Self::ieee(5, 10);
    /// bfloat16.
    pub const BF16: Self = Self::ieee(8, 7);
    /// IEEE binary32.
    pub const F32: Self = Self::ieee(8, 23);
    /// IEEE binary64.
    pub const F64: Self = Self::ieee(11, 52);
    /// Binary32 with 10 bits of fraction, in 32 bits.
    pub const TF32: Self = Self { padding: 13, ..Self::ieee(8, 10) };
    /// A sign, 5 bits of exponent and 2 of fraction, with infinities.
    pub const E5M2: Self = Self::ieee(5, 2);
    /// A sign, 4 bits of exponent and 3 of fraction, without infinities.
    pub const E4M3: Self = Self { top: Top::OneNan, ..Self::ieee(4, 3) };
    /// A sign, 2 bits of exponent and 3 of fraction, without infinities and NaN.
    pub const E2M3: Self = Self { top: Top::Numbers, ..Self::ieee(2, 3) };
    /// A sign, 3 bits of exponent and 2 of fraction, without infinities and NaN.
    pub const E3M2: Self = Self { top: Top::Numbers, ..Self::ieee(3, 2) };
    /// A sign, 2 bits of exponent and 1 of fraction, without infinities and NaN.
    pub const E2M1: Self = Self { top: Top::Numbers, ..Self::ieee(2, 1) };

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_bit(self) -> u32 {
        self.exponent_bits + self.fraction_bits + self.padding
    }

    /// Returns the bits of the format, with sign and padding.
    #[cfg(test)]
    fn bits(self) -> u32 {
        self.sign_bit() + 1
    }

    /// Returns the NaN that operations produce: all ones without the sign. Formats without NaN use
    /// their largest number.
    pub fn nan(self) -> u64 {
        match self.top {
            Top::Ieee if self.padding == 0 => (1 << self.sign_bit()) - 1,
            // TF32 has the NaN of binary32.
            Top::Ieee => 0x7fff_ffff,
            Top::OneNan | Top::Numbers => (1 << self.sign_bit()) - 1,
        }
    }

    /// Returns positive infinity, if the format has it.
    fn infinity(self) -> Option<u64> {
        (self.top == Top::Ieee)
            .then(|| ((1 << self.exponent_bits) - 1) << (self.fraction_bits + self.padding))
    }

    /// Returns the largest finite number.
    pub fn largest(self) -> u64 {
        let all = (1_u64 << (self.exponent_bits + self.fraction_bits)) - 1;
        let magnitude = match self.top {
            Top::Ieee => all - (1 << self.fraction_bits),
            Top::OneNan => all - 1,
            Top::Numbers => all,
        };
        magnitude << self.padding
    }
}

/// A real number, an infinity, or NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// Zero, with its sign.
    Zero(bool),
    /// `significand * 2^exponent`, with a significand that is not zero.
    Finite {
        /// True if the number is negative.
        negative: bool,
        /// The power of two.
        exponent: i32,
        /// At most 127 bits. The lowest may be a sticky bit.
        significand: u128,
    },
    /// Infinity, with its sign.
    Infinite(bool),
    /// Not a number.
    Nan,
}

/// Shifts to the right. The lowest bit becomes 1 if any dropped bit is 1.
fn shift_sticky(value: u128, by: u32) -> u128 {
    if by >= 128 {
        return u128::from(value != 0);
    }
    (value >> by) | u128::from(value & ((1 << by) - 1) != 0)
}

impl Number {
    /// Decodes the bits of a format.
    #[inline]
    pub fn of(format: Format, bits: u64) -> Self {
        let negative = bits >> format.sign_bit() & 1 == 1;
        let bits = bits >> format.padding;
        let fraction = bits & ((1 << format.fraction_bits) - 1);
        let largest = (1 << format.exponent_bits) - 1;
        let exponent = bits >> format.fraction_bits & largest;
        if exponent == largest {
            match format.top {
                Top::Ieee if fraction == 0 => return Self::Infinite(negative),
                Top::Ieee => return Self::Nan,
                Top::OneNan if fraction + 1 == 1 << format.fraction_bits => return Self::Nan,
                Top::OneNan | Top::Numbers => {}
            }
        }
        let significand = if exponent == 0 { fraction } else { fraction | 1 << format.fraction_bits };
        let exponent = exponent.max(1) as i32 - format.bias() - format.fraction_bits as i32;
        Self::scaled(negative, u128::from(significand), exponent)
    }

    pub fn integer(value: i128) -> Self {
        Self::scaled(value < 0, value.unsigned_abs(), 0)
    }

    fn scaled(negative: bool, significand: u128, exponent: i32) -> Self {
        if significand == 0 { Self::Zero(negative) } else { Self::Finite { negative, exponent, significand } }
    }

    pub fn is_negative(self) -> bool {
        match self {
            Self::Zero(negative) | Self::Infinite(negative) | Self::Finite { negative, .. } => negative,
            Self::Nan => false,
        }
    }

    #[cfg(test)]
    fn negated(self) -> Self {
        match self {
            Self::Zero(negative) => Self::Zero(!negative),
            Self::Infinite(negative) => Self::Infinite(!negative),
            Self::Finite { negative, exponent, significand } => {
                Self::Finite { negative: !negative, exponent, significand }
            }
            Self::Nan => Self::Nan,
        }
    }

    /// Returns the exact product of significands of at most 63 bits.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Self::Nan, _)
            | (_, Self::Nan)
            | (Self::Zero(_), Self::Infinite(_))
            | (Self::Infinite(_), Self::Zero(_)) => Self::Nan,
            (Self::Infinite(_), _) | (_, Self::Infinite(_)) => Self::Infinite(negative),
            (Self::Zero(_), _) | (_, Self::Zero(_)) => Self::Zero(negative),
            (
                Self::Finite { exponent: e, significand: s, .. },
                Self::Finite { exponent: f, significand: t, .. },
            ) => Self::Finite { negative, exponent: e + f, significand: s * t },
        }
    }

    /// Returns the sum. For opposite numbers, it is the zero that the rounding selects.
    #[must_use]
    pub fn plus(self, other: Self, rounding: Rounding) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinite(a), Self::Infinite(b)) if a != b => Self::Nan,
            (Self::Zero(a), Self::Zero(b)) => Self::Zero(if a == b { a } else { rounding == Rounding::Down }),
            (Self::Infinite(_), _) | (_, Self::Zero(_)) => self,
            (_, Self::Infinite(_)) | (Self::Zero(_), _) => other,
            (Self::Finite { negative, .. }, Self::Finite { negative: other_negative, .. }) => {
                // Both numbers get the leading one at bit 125. The smaller one is shifted below the
                // larger one.
                let ((mut e, mut s), (mut f, mut t)) = (self.leading_at(125), other.leading_at(125));
                let mut negative = (negative, other_negative);
                if (e, s) < (f, t) {
                    ((e, s), (f, t)) = ((f, t), (e, s));
                    negative = (negative.1, negative.0);
                }
                t = shift_sticky(t, e.abs_diff(f));
                let sum = if negative.0 == negative.1 { s + t } else { s - t };
                if sum == 0 {
                    Self::Zero(rounding == Rounding::Down)
                } else {
                    Self::scaled(negative.0, sum, e)
                }
            }
        }
    }

    /// Returns the exponent and significand of a finite number with the leading one at `bit`.
    fn leading_at(self, bit: u32) -> (i32, u128) {
        let Self::Finite { exponent, significand, .. } = self else { return (0, 0) };
        let leading = significand.ilog2();
        if leading > bit {
            (exponent + (leading - bit) as i32, shift_sticky(significand, leading - bit))
        } else {
            (exponent - (bit - leading) as i32, significand << (bit - leading))
        }
    }

    /// Returns the quotient, to at least 62 bits and a sticky bit.
    #[must_use]
    pub fn divided_by(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Self::Nan, _)
            | (_, Self::Nan)
            | (Self::Zero(_), Self::Zero(_))
            | (Self::Infinite(_), Self::Infinite(_)) => Self::Nan,
            (Self::Infinite(_), _) | (_, Self::Zero(_)) => Self::Infinite(negative),
            (Self::Zero(_), _) | (_, Self::Infinite(_)) => Self::Zero(negative),
            (Self::Finite { .. }, Self::Finite { .. }) => {
                let ((e, s), (f, t)) = (self.leading_at(126), other.leading_at(63));
                let sticky = u128::from(s % t != 0);
                Self::scaled(negative, (s / t) << 1 | sticky, e - f - 1)
            }
        }
    }

    /// Returns the square root, to at least 62 bits and a sticky bit.
    #[must_use]
    pub fn square_root(self) -> Self {
        match self {
            Self::Zero(_) | Self::Infinite(false) | Self::Nan => self,
            Self::Infinite(true) | Self::Finite { negative: true, .. } => Self::Nan,
            Self::Finite { negative: false, .. } => {
                let (mut exponent, mut significand) = self.leading_at(125);
                if exponent % 2 != 0 {
                    exponent -= 1;
                    significand <<= 1;
                }
                let root = significand.isqrt();
                let sticky = u128::from(root * root != significand);
                Self::scaled(false, root << 1 | sticky, exponent / 2 - 1)
            }
        }
    }

    /// Rounds to an integer and keeps the sign. Infinities and NaN stay.
    #[must_use]
    pub fn to_integral(self, rounding: Rounding) -> Self {
        let Self::Finite { negative, exponent, significand } = self else { return self };
        if exponent >= 0 {
            return self;
        }
        Self::scaled(negative, round_shifted(significand, -exponent as u32, negative, rounding), 0)
    }

    /// Returns zero with the same sign for a subnormal number, before rounding, as on the hardware.
    #[inline]
    #[must_use]
    pub fn flushed(self, format: Format) -> Self {
        match self {
            Self::Finite { negative, exponent, significand }
                if exponent + 127 - (significand.leading_zeros() as i32) < 1 - format.bias() =>
            {
                Self::Zero(negative)
            }
            Self::Finite { .. } | Self::Zero(_) | Self::Infinite(_) | Self::Nan => self,
        }
    }

    /// Rounds to the bits of a format. Overflow becomes infinity, or NaN if the format has no
    /// infinity. It becomes the largest finite number in three cases:
    /// - the rounding is towards zero for this sign;
    /// - `saturate` is true;
    /// - the format has neither infinity nor NaN.
    #[inline]
    pub fn round(self, format: Format, rounding: Rounding, saturate: bool) -> u64 {
        let sign = |negative: bool| u64::from(negative) << format.sign_bit();
        match self {
            Self::Nan => format.nan(),
            Self::Zero(negative) => sign(negative),
            Self::Infinite(negative) => sign(negative) | overflow(format, saturate),
            Self::Finite { negative, exponent, significand } => {
                let leading = exponent + 127 - significand.leading_zeros() as i32;
                let least = 1 - format.bias();
                let mut quantum = leading.max(least) - format.fraction_bits as i32;
                let mut rounded = if quantum >= exponent {
                    round_shifted(significand, (quantum - exponent) as u32, negative, rounding)
                } else {
                    significand << (exponent - quantum)
                } as u64;
                if rounded >> (format.fraction_bits + 1) != 0 {
                    rounded >>= 1;
                    quantum += 1;
                }
                let is_normal = rounded >> format.fraction_bits != 0;
                let field = if is_normal { quantum + format.fraction_bits as i32 + format.bias() } else { 0 };
                let fraction = rounded & ((1 << format.fraction_bits) - 1);
                let magnitude = ((field as u64) << format.fraction_bits | fraction) << format.padding;
                if field >= 1 << format.exponent_bits || magnitude > format.largest() {
                    let inward = match rounding {
                        Rounding::Zero => true,
                        Rounding::Down => !negative,
                        Rounding::Up => negative,
                        Rounding::NearestEven | Rounding::NearestAway => false,
                    };
                    return sign(negative) | overflow(format, saturate || inward);
                }
                sign(negative) | magnitude
            }
        }
    }
}

fn overflow(format: Format, saturate: bool) -> u64 {
    if saturate { format.largest() } else { format.infinity().unwrap_or(format.nan()) }
}

/// Drops the low `by` bits of a magnitude and rounds it.
fn round_shifted(significand: u128, by: u32, negative: bool, rounding: Rounding) -> u128 {
    if by == 0 {
        return significand;
    }
    let (kept, rest, half) = if by >= 128 {
        // The value is less than half of the last place.
        (0, significand.min(1), 2)
    } else {
        (significand >> by, significand & ((1 << by) - 1), 1 << (by - 1))
    };
    let up = match rounding {
        Rounding::NearestEven => rest > half || (rest == half && kept & 1 == 1),
        Rounding::NearestAway => rest >= half,
        Rounding::Zero => false,
        Rounding::Down => negative && rest != 0,
        Rounding::Up => !negative && rest != 0,
    };
    kept + u128::from(up)
}

#[cfg(test)]
mod tests {
    use tilewright_fuzz::random::Random;

    use super::*;

    /// Returns numbers near the edges of a format, and some in between.
    fn samples() -> Vec<f32> {
        let mut random = Random(1);
        let mut random = || f32::from_bits(random.bits() as u32);
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            f32::MIN_POSITIVE,
            1e-45,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        edges.into_iter().chain((0..60).map(|_| random())).collect()
    }

    fn same(ours: u64, host: f32, what: &str) {
        let ours = f32::from_bits(ours as u32);
        assert!(
            ours.to_bits() == host.to_bits() || ours.is_nan() && host.is_nan(),
            "{what}: {ours:e} != {host:e}"
        );
    }

    #[test]
    fn operations_round_to_nearest_as_the_host_does() {
        let number = |x: f32| Number::of(Format::F32, u64::from(x.to_bits()));
        let near = |x: Number| x.round(Format::F32, Rounding::NearestEven, false);
        for a in samples() {
            same(near(number(a).square_root()), a.sqrt(), "sqrt");
            for b in samples() {
                same(
                    near(number(a).plus(number(b), Rounding::NearestEven)),
                    a + b,
                    &format!("{a:e} + {b:e}"),
                );
                same(near(number(a).times(number(b))), a * b, &format!("{a:e} * {b:e}"));
                same(near(number(a).divided_by(number(b))), a / b, &format!("{a:e} / {b:e}"));
                for c in samples() {
                    let sum = number(a).times(number(b)).plus(number(c), Rounding::NearestEven);
                    same(near(sum), a.mul_add(b, c), &format!("{a:e} * {b:e} + {c:e}"));
                }
            }
        }
    }

    #[test]
    fn binary64_operations_round_as_the_host_does() {
        let number = |x: f64| Number::of(Format::F64, x.to_bits());
        let mut random = Random(7);
        let mut random = || {
            let bits = random.bits();
            // Exponents are close together, so that sums cancel.
            f64::from_bits(bits >> 12 | (1020 + (bits & 7)) << 52)
        };
        for _ in 0..20_000 {
            let (a, b, c) = (random(), random(), -random());
            let sum = number(a).times(number(b)).plus(number(c), Rounding::NearestEven);
            assert_eq!(sum.round(Format::F64, Rounding::NearestEven, false), a.mul_add(b, c).to_bits());
            let quotient = number(a).divided_by(number(c));
            assert_eq!(quotient.round(Format::F64, Rounding::NearestEven, false), (a / c).to_bits());
            let root = number(a).square_root();
            assert_eq!(root.round(Format::F64, Rounding::NearestEven, false), a.sqrt().to_bits());
        }
    }

    #[test]
    fn directed_roundings_enclose_the_exact_result() {
        // The two roundings of 1/3 are neighbors. For -1/3, they swap.
        let third = Number::integer(1).divided_by(Number::integer(3));
        let round = |x: Number, rounding| f32::from_bits(x.round(Format::F32, rounding, false) as u32);
        let (low, high) = (round(third, Rounding::Down), round(third, Rounding::Up));
        assert_eq!(low.to_bits() + 1, high.to_bits());
        assert!(f64::from(low) * 3.0 < 1.0 && f64::from(high) * 3.0 > 1.0);
        assert_eq!(round(third, Rounding::Zero), low);
        assert_eq!(round(third.negated(), Rounding::Down), -high);
        assert_eq!(round(third.negated(), Rounding::Zero), -low);
    }

    #[test]
    fn overflow_depends_on_rounding_and_format() {
        let large = Number::integer(1 << 62).times(Number::integer(1 << 62));
        assert_eq!(large.round(Format::F16, Rounding::NearestEven, false), 0x7c00);
        assert_eq!(large.round(Format::F16, Rounding::Zero, false), 0x7bff);
        assert_eq!(large.negated().round(Format::F16, Rounding::Up, false), 0xfbff);
        assert_eq!(large.round(Format::E4M3, Rounding::NearestEven, true), 0x7e);
        assert_eq!(Number::Nan.round(Format::E4M3, Rounding::NearestEven, true), 0x7f);
        assert_eq!(large.round(Format::E5M2, Rounding::NearestEven, true), 0x7b);
        assert_eq!(large.round(Format::E2M1, Rounding::NearestEven, true), 0x7);
    }

    #[test]
    fn small_formats_round_trip() {
        for format in
            [Format::F16, Format::BF16, Format::E4M3, Format::E5M2, Format::E2M3, Format::E3M2, Format::E2M1]
        {
            for bits in 0..1_u64 << format.bits() {
                let number = Number::of(format, bits);
                if number != Number::Nan {
                    assert_eq!(number.round(format, Rounding::NearestEven, false), bits, "{format:?}");
                }
            }
        }
    }

    #[test]
    fn halves_agree_with_the_crate_half() {
        for a in samples() {
            let number = Number::of(Format::F32, u64::from(a.to_bits()));
            if !a.is_nan() {
                let ours = number.round(Format::F16, Rounding::NearestEven, false);
                assert_eq!(ours, u64::from(half::f16::from_f32(a).to_bits()), "{a:e}");
                let ours = number.round(Format::BF16, Rounding::NearestEven, false);
                assert_eq!(ours, u64::from(half::bf16::from_f32(a).to_bits()), "{a:e}");
            }
        }
    }
}
