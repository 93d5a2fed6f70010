//! Conversions from and to 8-bit floats. Newer targets convert pairs of e4m3 or e5m2 by one
//! instruction. Other conversions use integer and fp32 instructions.

use smallvec::SmallVec;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{Dtype, Element};

use super::Lowering;
use super::builder::{Scalar, Width};
use super::float::{Float, f32_constant};
use super::integer::Bitwise;
use super::memory::Words;
use crate::isa::{self, Clamp, Comparison, Rounding, ScalarType};

const WORD: Width = Width::B32;
const SIGN: u64 = 0x80;
const INFINITY: u64 = 0x7f80_0000;

/// The parameters of a format.
#[derive(Clone, Copy)]
struct Format {
    /// The number of stored bits of the mantissa.
    mantissa: u32,
    /// The exponent bias.
    bias: i32,
    /// The largest finite number, also the result of overflow.
    largest: u64,
    /// The bits of a positive NaN; `SIGN` if 0x80 is the only NaN. `largest` if the format has no
    /// NaN.
    nan: u64,
    /// Infinity, if the format has it.
    infinity: Option<u64>,
    /// True if -0 exists. If not, its bits are a NaN.
    negative_zero: bool,
}

impl Format {
    fn of(dtype: Dtype) -> Option<Self> {
        let format = |mantissa, bias, largest, nan, infinity| {
            Some(Self { mantissa, bias, largest, nan, infinity, negative_zero: nan != SIGN })
        };
        match dtype {
            Dtype::F8E5 => format(2, 15, 0x7b, 0x7f, Some(0x7c)),
            Dtype::F8E4NV => format(3, 7, 0x7e, 0x7f, None),
            Dtype::F8E4B15 => format(3, 15, 0x7f, 0x7f, None),
            Dtype::F8E4B8 => format(3, 8, 0x7f, SIGN, None),
            Dtype::F8E5B16 => format(2, 16, 0x7f, SIGN, None),
            // tidy: wildcard because the others have 16 bits or more, or are integers.
            _ => None,
        }
    }
}

fn power_of_two(exponent: i32) -> u64 {
    u64::from(((exponent + 127) as u32) << 23)
}

impl Lowering<'_> {
    /// Returns the PTX type of a pair, if the target can convert pairs.
    fn pair_of(&self, dtype: Dtype) -> Option<ScalarType> {
        if !self.has(Feature::Fp8Conversion) {
            return None;
        }
        match dtype {
            Dtype::F8E4NV => Some(ScalarType::E4m3x2),
            Dtype::F8E5 => Some(ScalarType::E5m2x2),
            // tidy: wildcard because the instructions know no other 8-bit format.
            _ => None,
        }
    }

    /// Converts floats from or to 8 bits in pairs. Returns `None` for equal types, for other types,
    /// and without a correct instruction.
    pub(super) fn convert_fp8_pairs(
        &mut self,
        from: Element,
        to: Element,
        towards_zero: bool,
        x: &[Scalar],
    ) -> Option<Vec<Scalar>> {
        let (from, to) = (from.value()?, to.value()?);
        let (read, written) = (self.pair_of(from), self.pair_of(to).filter(|_| !towards_zero));
        // fp8e4b15 has no NaN and must keep its sign, which these instructions lose.
        let is_by_pairs = (read.is_some() && to.is_float() && to != Dtype::F8E4B15)
            || (written.is_some() && from.is_float() && from != Dtype::F64);
        if from == to || !is_by_pairs {
            return None;
        }
        let (from, x) = match read {
            Some(pair) => (Dtype::F16, self.widen_pairs(from, pair, x)),
            None => (from, x.to_vec()),
        };
        let Some(pair) = written else {
            let (half, to) = (Element::Value(from), Element::Value(to));
            return x.iter().map(|&x| self.convert(half, to, towards_zero, x)).collect();
        };
        if from == Dtype::F16 {
            return Some(self.narrow_pairs(to, (pair, ScalarType::F16x2), &x));
        }
        let singles: Vec<Scalar> = x.iter().map(|&x| self.widen(from, x)).collect::<Option<_>>()?;
        Some(self.narrow_pairs(to, (pair, ScalarType::F32), &singles))
    }

    /// Converts 8-bit numbers to fp16, exactly.
    fn widen_pairs(&mut self, from: Dtype, pair: ScalarType, x: &[Scalar]) -> Vec<Scalar> {
        let two_halves = Words::new(Element::Value(Dtype::F16), 2);
        let mut wide = Vec::with_capacity(x.len());
        for elements in x.chunks(4) {
            // Four elements are converted together only if they are one word. Otherwise, joining
            // pairs takes fewer instructions.
            let pairs: SmallVec<[Scalar; 16]> = if let Some(&word) = self.builder.packed.get(elements) {
                self.builder.unpack(two_halves, word)
            } else {
                let pair = |two: &[Scalar]| {
                    let both = self.builder.pack(Words::new(Element::Value(from), two.len()), two);
                    self.low_half(both)
                };
                elements.chunks(2).map(pair).collect()
            };
            for two in pairs {
                let both = self.builder.float_convert(
                    (Width::B32, ScalarType::F16x2),
                    (Width::B16, pair),
                    Some(Rounding::Rn),
                    two,
                );
                wide.extend(self.builder.unpack(two_halves, both));
            }
        }
        wide.truncate(x.len());
        wide
    }

    /// Converts fp16 or fp32 to 8-bit numbers, rounded to nearest. Overflow yields the largest
    /// finite number.
    fn narrow_pairs(
        &mut self,
        dtype: Dtype,
        (to, from): (ScalarType, ScalarType),
        x: &[Scalar],
    ) -> Vec<Scalar> {
        let two_halves = Words::new(Element::Value(Dtype::F16), 2);
        let mut narrow = Vec::with_capacity(x.len());
        for elements in x.chunks(4) {
            let mut pairs: SmallVec<[Scalar; 2]> = SmallVec::new();
            for two in elements.chunks(2) {
                let [low, high] = [two[0], two.get(1).copied().unwrap_or(Scalar::constant(0))];
                // The first operand of the instruction is the high half.
                let (a, b) = if from == ScalarType::F16x2 {
                    (self.builder.pack(two_halves, &[low, high]), None)
                } else {
                    (high, Some(self.builder.register(Width::B32, low).into()))
                };
                let a = self.builder.register(Width::B32, a).into();
                let (rounding, clamp) = (Some(Rounding::Rn), Some(Clamp::Satfinite));
                let (ftz, saturate, c) = (false, false, None);
                pairs.push(self.builder.pure(Width::B16, |d| isa::Cvt {
                    rounding,
                    ftz,
                    saturate,
                    clamp,
                    to,
                    from,
                    d,
                    a,
                    b,
                    c,
                }));
            }
            let word = match pairs[..] {
                [_, _] => self.builder.pack(two_halves, &pairs),
                _ => self.widen_half(pairs[0]),
            };
            narrow.extend(self.builder.unpack(Words::new(Element::Value(dtype), elements.len()), word));
        }
        narrow
    }

    /// Converts an 8-bit number to fp32, exactly.
    pub(super) fn widen_fp8(&mut self, from: Dtype, x: Scalar) -> Option<Scalar> {
        if let Some(pair) = self.pair_of(from) {
            let half = self.widen_pairs(from, pair, &[x])[0];
            return self.widen(Dtype::F16, half);
        }
        let format = Format::of(from)?;
        let builder = &mut self.builder;
        let nan = f32_constant(f32::NAN);
        let magnitude = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(SIGN - 1));
        let sign = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(SIGN));
        let sign = builder.shl(WORD, sign, 24);
        // The shifted exponent is too small by the difference of the biases. A multiplication
        // corrects it and normalizes subnormal numbers.
        let placed = builder.shl(WORD, magnitude, 23 - format.mantissa);
        let scale = Scalar::constant(power_of_two(127 - format.bias));
        let mut number = builder.mul_rn(Float::F32, placed, scale);
        if format.negative_zero && format.nan != format.largest {
            let largest = Scalar::constant(format.largest);
            let is_special = builder.compare(WORD, false, Comparison::Gt, magnitude, largest);
            let mut special = nan;
            if let Some(infinity) = format.infinity {
                let is_infinite =
                    builder.compare(WORD, false, Comparison::Eq, magnitude, Scalar::constant(infinity));
                special = builder.select(WORD, is_infinite, Scalar::constant(INFINITY), nan);
            }
            number = builder.select(WORD, is_special, special, number);
        }
        let signed = builder.bitwise(Bitwise::Or, WORD, number, sign);
        if format.negative_zero {
            return Some(signed);
        }
        let is_nan = builder.compare(WORD, false, Comparison::Eq, x, Scalar::constant(SIGN));
        Some(builder.select(WORD, is_nan, nan, signed))
    }

    /// Converts fp32 to an 8-bit number, rounded once. Overflow yields the largest finite number.
    pub(super) fn narrow_to_fp8(&mut self, to: Dtype, x: Scalar, towards_zero: bool) -> Option<Scalar> {
        if let Some(pair) = self.pair_of(to).filter(|_| !towards_zero) {
            return self.narrow_pairs(to, (pair, ScalarType::F32), &[x]).pop();
        }
        let format = Format::of(to)?;
        let builder = &mut self.builder;
        let magnitude = builder.bitwise(Bitwise::And, WORD, x, Scalar::constant(0x7fff_ffff));
        let sign = builder.shr(WORD, false, x, 24);
        let sign = builder.bitwise(Bitwise::And, WORD, sign, Scalar::constant(SIGN));
        let shift = 23 - format.mantissa;
        // Normal numbers are rounded as integers; the carry moves into the exponent.
        let mut rounded = magnitude;
        if !towards_zero {
            let last = builder.shr(WORD, false, magnitude, shift);
            let last = builder.bitwise(Bitwise::And, WORD, last, Scalar::constant(1));
            let half = last.plus(WORD, (1 << (shift - 1)) - 1);
            rounded = builder.add(WORD, magnitude, half);
        }
        let rebiased = rounded.plus(WORD, (((127 - format.bias) as u64) << 23).wrapping_neg());
        let normal = builder.shr(WORD, false, rebiased, shift);
        // The sum's last bit is the smallest subnormal.
        let shifter = Scalar::constant(power_of_two(1 - format.bias - format.mantissa as i32 + 23));
        let rounding = if towards_zero { Rounding::Rz } else { Rounding::Rn };
        let sum =
            builder.float_binary(super::float::Binary::Add, Float::F32, Some(rounding), magnitude, shifter);
        let subnormal = builder.sub(WORD, sum, shifter);
        let smallest_normal = Scalar::constant(power_of_two(1 - format.bias));
        let is_subnormal = builder.compare(WORD, false, Comparison::Lt, magnitude, smallest_normal);
        let finite = builder.select(WORD, is_subnormal, subnormal, normal);
        let largest = Scalar::constant(format.largest);
        let is_too_large =
            builder.compare(WORD, false, Comparison::Ge, magnitude, Scalar::constant(INFINITY));
        let finite = builder.extremum(WORD, false, false, finite, largest);
        let number = builder.select(WORD, is_too_large, largest, finite);
        let mut signed = builder.bitwise(Bitwise::Or, WORD, number, sign);
        if !format.negative_zero {
            let is_zero = builder.compare(WORD, false, Comparison::Eq, number, Scalar::constant(0));
            signed = builder.select(WORD, is_zero, Scalar::constant(0), signed);
        }
        let is_nan = builder.compare(WORD, false, Comparison::Gt, magnitude, Scalar::constant(INFINITY));
        let nan = if format.nan == SIGN {
            Scalar::constant(SIGN)
        } else {
            builder.bitwise(Bitwise::Or, WORD, sign, Scalar::constant(format.nan))
        };
        Some(builder.select(WORD, is_nan, nan, signed))
    }
}
