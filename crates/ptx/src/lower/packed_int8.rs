//! Converts 8-bit integers in words to floating point, and applies bitwise functions. The words are
//! not unpacked.
//!
//! A conversion instruction has a fraction of the throughput of others. Instead, a byte in the
//! lowest bits of a float with a suitable exponent adds to a constant:
//!
//! ```text
//! binary32   4b 00 00 xx              2^23 + x
//! binary16   64 xx                    1024 + x
//! bfloat16   43 0x (the low 7 bits)   128 + the low 7 bits; the high bit selects 43 00 (128) or
//!                                     43 80 (256), which is then added or subtracted
//! ```
//! A signed number is x - 128, where x has the high bit inverted. All additions are exact. A
//! constant that the program adds next, such as a zero point, joins this addition. If the high bits
//! are 0, as for 4-bit numbers, bfloat16 is as short as the others.
//!
//! Bytes of different words, as in a transposed tile, are not extracted singly. One `prmt` selects
//! two pairs of bytes from two words, and eight `prmt` transpose four words.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{BitwiseFn, Dtype, Element, ElementwiseFamily as Family, ElementwiseFn};

use super::Lowering;
use super::builder::{Builder, Scalar, Width, only};
use super::float::{Binary, Float};
use super::integer::Bitwise;
use super::memory::Words;
use crate::isa::{self, Rounding, ScalarType, Source};

const WORD: Width = Width::B32;
/// The high bit of each byte.
const HIGH_BITS: u64 = 0x8080_8080;

/// The table of `lop3` for (a & b) | c.
const AND_OR: i64 = 0xea;
/// 1 and -1 in bfloat16.
const ONE: u64 = 0x3f80;
const MINUS_ONE: u64 = 0xbf80;

/// Returns a number in both halves of a word.
const fn both(half: u64) -> u64 {
    half << 16 | half
}

impl Lowering<'_> {
    /// Converts 8-bit integers to floats; `None` for the general conversions.
    pub(super) fn convert_bytes(&mut self, from: Element, to: Element, x: &[Scalar]) -> Option<Vec<Scalar>> {
        let (from, to) = (from.value()?, to.value()?);
        let signed = match from {
            Dtype::I8 => true,
            Dtype::U8 => false,
            // tidy: wildcard because the others have more bits, or are not integers
            _ => return None,
        };
        let is_possible = match to {
            Dtype::F32 => true,
            Dtype::F16 => x.len().is_multiple_of(2),
            Dtype::BF16 => x.len().is_multiple_of(2) && self.has(Feature::MmaSyncWide),
            // tidy: wildcard because the general conversion to any other format goes through one of
            // these
            _ => false,
        };
        if !is_possible || x.iter().any(|number| number.base.is_none()) {
            return None;
        }
        let builder = &mut self.builder;
        let mut converted = Vec::with_capacity(x.len());
        for numbers in x.chunks(4) {
            if to == Dtype::F32 {
                converted.extend(builder.bytes_to_singles(signed, numbers));
            } else {
                let format = if to == Dtype::F16 { Half::F16 } else { Half::BF16 };
                let are_small = builder.are_small(numbers);
                if format == Half::BF16
                    && !are_small
                    && let Some(pairs) = builder.bytes_of_two_words(signed, numbers)
                {
                    converted.extend(pairs);
                    continue;
                }
                for pair in builder.bytes_below(format, signed, numbers) {
                    converted.extend(builder.without_offset(format, signed, are_small, pair));
                }
            }
        }
        Some(converted)
    }

    /// Applies a bitwise function to 8-bit integers in words or constants. Returns `None` for other
    /// operands and functions.
    pub(super) fn bitwise_in_words(
        &mut self,
        function: ElementwiseFn,
        element: Element,
        columns: &[impl AsRef<[Scalar]>],
    ) -> Option<Vec<Scalar>> {
        let (Family::Bitwise(function), Some(dtype @ (Dtype::I8 | Dtype::U8))) =
            (function.family(), element.value())
        else {
            return None;
        };
        let words = Words::new(element, 4);
        let count = columns[0].as_ref().len();
        if !count.is_multiple_of(4) {
            return None;
        }
        let is_known = |numbers: &[Scalar]| {
            self.builder.packed.contains_key(numbers) || numbers.iter().all(|number| number.base.is_none())
        };
        if !columns.iter().all(|column| column.as_ref().chunks(4).all(is_known)) {
            return self.bitwise_in_their_words(function, words, dtype == Dtype::I8, columns);
        }
        let mut found: Vec<[Scalar; 2]> = Vec::with_capacity(count / 4);
        for first in (0..count).step_by(4) {
            let mut operands = [Scalar::constant(0); 2];
            for (operand, column) in operands.iter_mut().zip(columns) {
                let numbers = &column.as_ref()[first..first + 4];
                let is_constant = numbers.iter().all(|number| number.as_constant().is_some());
                let known = self.builder.packed.get(numbers).copied();
                *operand = if is_constant { self.builder.pack(words, numbers) } else { known? };
            }
            found.push(operands);
        }
        let results: Vec<Scalar> = found
            .into_iter()
            .map(|[x, y]| self.builder.bitwise_of_bytes(function, dtype == Dtype::I8, x, y))
            .collect::<Option<_>>()?;
        Some(results.into_iter().flat_map(|word| self.builder.unpack(words, word)).collect())
    }
}

impl Lowering<'_> {
    /// Applies a bitwise function to extracted bytes, in any order, and one constant. Returns
    /// `None` for unknown words, another second operand, and functions that
    /// [`Builder::bitwise_of_bytes`] excludes.
    fn bitwise_in_their_words(
        &mut self,
        function: BitwiseFn,
        words: Words,
        signed: bool,
        columns: &[impl AsRef<[Scalar]>],
    ) -> Option<Vec<Scalar>> {
        let [x, y] = columns else { return None };
        let (x, constant) = (x.as_ref(), y.as_ref()[0].as_constant()?);
        if y.as_ref().iter().any(|number| number.as_constant() != Some(constant)) {
            return None;
        }
        let places = self.builder.places(x)?;
        let constant = Scalar::constant((constant & 0xff) * 0x0101_0101);
        let mut results: FxHashMap<Scalar, SmallVec<[Scalar; 16]>> = FxHashMap::default();
        let mut found = Vec::with_capacity(x.len());
        for (word, byte) in places {
            let bytes = match results.entry(word) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let result = self.builder.bitwise_of_bytes(function, signed, word, constant)?;
                    entry.insert(self.builder.unpack(words, result))
                }
            };
            found.push(bytes[byte as usize]);
        }
        Some(found)
    }
}

/// A 16-bit floating-point format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    F16,
    BF16,
}

impl Half {
    fn float(self) -> Float {
        match self {
            Self::F16 => Float::F16,
            Self::BF16 => Float::Bf16,
        }
    }

    /// Returns the packing of two elements in a word.
    fn words(self) -> Words {
        let dtype = match self {
            Self::F16 => Dtype::F16,
            Self::BF16 => Dtype::BF16,
        };
        Words::new(Element::Value(dtype), 2)
    }

    /// Returns the number of these bits, if it is an integer up to 2048.
    fn integer(self, bits: u64) -> Option<i32> {
        let value = match self {
            Self::F16 => half::f16::from_bits(bits as u16).to_f32(),
            Self::BF16 => half::bf16::from_bits(bits as u16).to_f32(),
        };
        (value.abs() <= 2048.0 && value.fract() == 0.0).then_some(value as i32)
    }
}

/// The origin of a number from a byte: a half of `pair`, plus `offset`. The sum is exact.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shifted {
    pair: Scalar,
    half: usize,
    offset: i32,
}

impl Builder {
    fn constant_and(&mut self, x: Scalar, mask: u64) -> Scalar {
        self.bitwise(Bitwise::And, WORD, x, Scalar::constant(mask))
    }

    fn constant_xor(&mut self, x: Scalar, bits: u64) -> Scalar {
        self.bitwise(Bitwise::Xor, WORD, x, Scalar::constant(bits))
    }

    fn bytes_to_singles(&mut self, signed: bool, numbers: &[Scalar]) -> Vec<Scalar> {
        const EXPONENT: u64 = 0x4b00_0000;
        let offset = Float::F32.constant(8_388_608.0 + if signed { 128.0 } else { 0.0 });
        let with_exponent: Vec<Scalar> = if let Some(&word) = self.packed.get(numbers) {
            let word = if signed { self.constant_xor(word, HIGH_BITS) } else { word };
            (0..4).map(|byte| self.permute(word, Scalar::constant(EXPONENT), 0x7650 + byte)).collect()
        } else {
            let bits = EXPONENT | if signed { 0x80 } else { 0 };
            if let Some(places) = self.places(numbers) {
                let chosen = places.into_iter().map(|(word, byte)| {
                    let word = if signed { self.constant_xor(word, HIGH_BITS) } else { word };
                    self.permute(word, Scalar::constant(EXPONENT), 0x7650 + byte)
                });
                let chosen: Vec<Scalar> = chosen.collect();
                return chosen.into_iter().map(|number| self.sub_rn(Float::F32, number, offset)).collect();
            }
            let below = |this: &mut Self, number: &Scalar| {
                let byte = this.constant_and(*number, 0xff);
                this.constant_xor(byte, bits)
            };
            numbers.iter().map(|number| below(self, number)).collect()
        };
        with_exponent.into_iter().map(|number| self.sub_rn(Float::F32, number, offset)).collect()
    }

    /// Returns whether the high bits of all bytes are known to be 0.
    fn are_small(&self, numbers: &[Scalar]) -> bool {
        if let Some(word) = self.packed.get(numbers) {
            return self.small_bytes.contains(word);
        }
        self.places(numbers)
            .is_some_and(|places| places.iter().all(|(word, _)| self.small_bytes.contains(word)))
    }

    /// Returns the word and byte index of each number. Returns `None` unless all are known.
    fn places(&self, numbers: &[Scalar]) -> Option<SmallVec<[(Scalar, u32); 4]>> {
        numbers.iter().map(|number| self.bytes.get(number).copied()).collect()
    }

    /// Returns a word with two bytes in one half, and the index of the half. If the bytes have one
    /// index in two words, the other half has their neighbors. One instruction then serves both
    /// pairs.
    fn bytes_in_half(&mut self, (a, i): (Scalar, u32), (b, j): (Scalar, u32)) -> (Scalar, u32) {
        if i == j && a != b {
            return (self.permute(a, b, if i < 2 { 0x5140 } else { 0x7362 }), i % 2);
        }
        (self.permute(a, b, (4 + j) << 4 | i), 0)
    }

    /// Packs two or four extracted bytes into one word. Returns `None` if their words are unknown.
    pub(super) fn pack_bytes(&mut self, elements: &[Scalar]) -> Option<Scalar> {
        let places = self.places(elements)?;
        match places[..] {
            [first, second] => {
                let ((a, i), (b, j)) = (first, second);
                Some(self.permute(a, b, (4 + j) << 4 | i))
            }
            [first, second, third, fourth] => {
                let (low, from) = self.bytes_in_half(first, second);
                let (high, of) = self.bytes_in_half(third, fourth);
                let half = |start: u32| (start + 1) << 4 | start;
                Some(self.permute(low, high, half(4 + 2 * of) << 8 | half(2 * from)))
            }
            // tidy: wildcard because a word has two or four bytes
            _ => None,
        }
    }

    /// Returns words of two numbers. The low byte of a half is a number, the high byte the
    /// exponent. For fp16, a signed number has its high bit inverted.
    fn bytes_below(&mut self, format: Half, signed: bool, numbers: &[Scalar]) -> Vec<Scalar> {
        let exponent = if format == Half::F16 { 0x64 } else { 0x43 };
        let turns = signed && format == Half::F16;
        if let Some(&word) = self.packed.get(numbers) {
            let word = if turns { self.constant_xor(word, HIGH_BITS) } else { word };
            return [0x4140, 0x4342]
                .map(|selector| self.permute(word, Scalar::constant(exponent), selector))
                .to_vec();
        }
        if numbers.len().is_multiple_of(2)
            && let Some(places) = self.places(numbers)
        {
            let pair = |this: &mut Self, two: &[(Scalar, u32)]| {
                let (mut bytes, half) = this.bytes_in_half(two[0], two[1]);
                if turns {
                    bytes = this.constant_xor(bytes, HIGH_BITS);
                }
                this.permute(bytes, Scalar::constant(exponent), if half == 0 { 0x4140 } else { 0x4342 })
            };
            return places.chunks(2).map(|two| pair(self, two)).collect();
        }
        let bits = both(exponent << 8 | if turns { 0x80 } else { 0 });
        let pair = |this: &mut Self, two: &[Scalar]| {
            let halves = this.permute(two[0], two[1], 0x5410);
            let bytes = this.constant_and(halves, both(0xff));
            this.constant_xor(bytes, bits)
        };
        numbers.chunks(2).map(|two| pair(self, two)).collect()
    }

    /// Converts pairs of bytes to bf16. Returns `None` unless the bytes of each pair have one index
    /// in two words. One `prmt` places a pair in the halves, next to its neighbors.
    fn bytes_of_two_words(&mut self, signed: bool, numbers: &[Scalar]) -> Option<Vec<Scalar>> {
        let places = self.places(numbers).filter(|places| places.len().is_multiple_of(2))?;
        if places.chunks(2).any(|two| two[0].1 != two[1].1 || two[0].0 == two[1].0) {
            return None;
        }
        let mut converted = Vec::with_capacity(numbers.len());
        for two in places.chunks(2) {
            let ((a, place), (b, _)) = (two[0], two[1]);
            let words = self.permute(a, b, if place < 2 { 0x5410 } else { 0x7632 });
            let bytes = if place % 2 == 1 { self.shr(WORD, false, words, 8) } else { words };
            let [low, high] = [0x7f, 0x80].map(|mask| self.masked_below(bytes, both(mask), both(0x4300)));
            converted.extend(self.low_and_high(signed, low, high));
        }
        Some(converted)
    }

    /// Returns `x & mask | exponents` by one `lop3`. The assembler would fuse only one of two
    /// constants.
    fn masked_below(&mut self, x: Scalar, mask: u64, exponents: u64) -> Scalar {
        let [a, c] = [x, Scalar::constant(exponents)].map(|operand| self.register(WORD, operand).into());
        let (b, table) = (Source::from(mask as i64), Source::from(AND_OR));
        self.pure(WORD, |d| isa::Lop3 {
            combine: None,
            ty: ScalarType::B32,
            d: only(d),
            a,
            b,
            c,
            table,
            q: None,
        })
    }

    /// Returns the two numbers of a pair in bf16. `low` is 128 plus the low seven bits; `high` is
    /// 128 or 256, by the high bit.
    fn low_and_high(&mut self, signed: bool, low: Scalar, high: Scalar) -> SmallVec<[Scalar; 16]> {
        let numbers = if signed {
            self.scaled_sum_of_pairs(high, MINUS_ONE, low)
        } else {
            // Subtracts 256.
            let low = self.scaled_sum_of_pairs(low, ONE, Scalar::constant(both(0xc380)));
            self.scaled_sum_of_pairs(high, ONE, low)
        };
        self.unpack(Half::BF16.words(), numbers)
    }

    /// Returns a pair's numbers without the exponent's amount.
    fn without_offset(
        &mut self,
        format: Half,
        signed: bool,
        are_small: bool,
        pair: Scalar,
    ) -> SmallVec<[Scalar; 16]> {
        let offset = match (format, signed) {
            (Half::F16, true) => -1152,
            (Half::F16, false) => -1024,
            (Half::BF16, _) if are_small => -128,
            (Half::BF16, signed) => {
                let low = self.constant_and(pair, both(0xff7f));
                let high = self.constant_and(pair, both(0xff80));
                return self.low_and_high(signed, low, high);
            }
        };
        let numbers = self.sum_with(format, pair, offset).expect("the offsets are numbers of the formats");
        for (half, number) in numbers.iter().enumerate() {
            self.shifted.insert(*number, Shifted { pair, half, offset });
        }
        numbers
    }

    /// Adds an integer to a pair; `None` if it is not exact in the format.
    fn sum_with(&mut self, format: Half, pair: Scalar, offset: i32) -> Option<SmallVec<[Scalar; 16]>> {
        let float = format.float();
        let constant = float.constant(f64::from(offset)).offset;
        let is_exact = match format {
            Half::F16 => offset.abs() <= 2048,
            Half::BF16 => offset.abs() <= 256,
        };
        if !is_exact {
            return None;
        }
        let sums = match format {
            Half::BF16 => self.scaled_sum_of_pairs(pair, ONE, Scalar::constant(both(constant))),
            Half::F16 => {
                // Instructions on pairs take only registers.
                let [a, b] = [pair, Scalar::constant(both(constant))]
                    .map(|operand| self.register(WORD, operand).into());
                self.pure(WORD, |d| isa::Add {
                    carry_out: false,
                    rounding: None,
                    ftz: false,
                    saturate: false,
                    ty: ScalarType::F16x2,
                    d,
                    a,
                    b,
                })
            }
        };
        Some(self.unpack(format.words(), sums))
    }

    /// Adds a constant to a number from a byte. One addition adds it and the conversion's constant.
    /// The conversion is exact, so the rounding does not change. Returns `None` for other operands
    /// and multiplications.
    pub(super) fn sum_of_byte(&mut self, float: Float, function: Binary, x: &[Scalar]) -> Option<Scalar> {
        let format = match float {
            Float::F16 => Half::F16,
            Float::Bf16 => Half::BF16,
            Float::F32 | Float::F64 => return None,
        };
        let (number, constant) = match function {
            Binary::Add if x[0].base.is_none() => (x[1], x[0]),
            Binary::Add | Binary::Sub => (x[0], x[1]),
            Binary::Mul => return None,
        };
        let &Shifted { pair, half, offset } = self.shifted.get(&number)?;
        let constant = format.integer(constant.as_constant()?)?;
        let more = if function == Binary::Sub { -constant } else { constant };
        Some(self.sum_with(format, pair, offset + more)?[half])
    }

    /// Returns a * factor + b of pairs of bf16. Older targets have no plain addition.
    fn scaled_sum_of_pairs(&mut self, a: Scalar, factor: u64, b: Scalar) -> Scalar {
        let [a, factor, c] =
            [a, Scalar::constant(both(factor)), b].map(|operand| self.register(WORD, operand).into());
        self.pure(WORD, |d| isa::Fma {
            rounding: Rounding::Rn,
            ftz: false,
            saturate: false,
            out_of_bounds: false,
            relu: false,
            ty: ScalarType::Bf16x2,
            d,
            a,
            b: factor,
            c,
        })
    }

    /// Applies a bitwise function to the four bytes of words. Returns `None` for signed right
    /// shifts and other counts than one constant below 8, which take less code on bytes.
    fn bitwise_of_bytes(
        &mut self,
        function: BitwiseFn,
        signed: bool,
        x: Scalar,
        y: Scalar,
    ) -> Option<Scalar> {
        let shift = || {
            let counts = y.as_constant()?;
            let count = counts & 0xff;
            (count < 8 && counts == count * 0x0101_0101).then_some(count as u32)
        };
        Some(match function {
            BitwiseFn::And => {
                let both = self.bitwise(Bitwise::And, WORD, x, y);
                let is_small = |of: Scalar| match of.as_constant() {
                    Some(bits) => bits & HIGH_BITS == 0,
                    None => self.small_bytes.contains(&of),
                };
                if is_small(x) || is_small(y) {
                    self.small_bytes.insert(both);
                }
                both
            }
            BitwiseFn::Or => self.bitwise(Bitwise::Or, WORD, x, y),
            BitwiseFn::Xor => self.bitwise(Bitwise::Xor, WORD, x, y),
            BitwiseFn::Not => self.constant_xor(x, u64::from(u32::MAX)),
            BitwiseFn::Shl => {
                let count = shift()?;
                let shifted = self.shl(WORD, x, count);
                self.constant_and(shifted, (0xff << count & 0xff) * 0x0101_0101)
            }
            BitwiseFn::Shr if signed => return None,
            BitwiseFn::Shr => {
                let count = shift()?;
                let shifted = self.shr(WORD, false, x, count);
                let shifted = self.constant_and(shifted, (0xff >> count) * 0x0101_0101);
                if count > 0 {
                    self.small_bytes.insert(shifted);
                }
                shifted
            }
        })
    }
}
