//! Generates random operations on integers, vectors and masks.

use tilewright_native::ir::{
    Binary, Compare, Conversion, IntBinary, IntCompare, Lane, MaskBinary, Unary, Value,
};

use super::Generator;

impl Generator {
    pub(super) fn int_step(&mut self) -> Value {
        use IntBinary as F;
        let (x, y) = (self.int(), self.int());
        match self.random.below(12) {
            0 => {
                let z = self.int();
                self.builder.int_select(x, y, z)
            }
            1 | 2 => self.int_compare(),
            3 => {
                let (bits, signed) = (self.random.pick(&[8, 16, 32]), self.random.chance(50));
                self.builder.int_extend(bits, signed, x)
            }
            4 => {
                let condition = self.int_compare();
                self.builder.int_select(condition, x, y)
            }
            5 | 6 => {
                let function = self.random.pick(&[F::Shl, F::Shr, F::Sar]);
                let count = self.int_mod(y, 63);
                self.builder.int_binary(function, x, count)
            }
            7 => {
                // The divisor must be neither 0 nor -1.
                let function =
                    self.random.pick(&[F::DivSigned, F::DivUnsigned, F::RemSigned, F::RemUnsigned]);
                let next = self.add(y, 1);
                let one = self.builder.int(1);
                let is_bad = self.builder.int_compare(IntCompare::LeUnsigned, next, one);
                let other = self.builder.int(7);
                let divisor = self.builder.int_select(is_bad, other, y);
                self.builder.int_binary(function, x, divisor)
            }
            _ => {
                let function =
                    self.random.pick(&[F::Add, F::Sub, F::Mul, F::And, F::Or, F::Xor, F::Min, F::Max]);
                self.builder.int_binary(function, x, y)
            }
        }
    }

    pub(super) fn int_compare(&mut self) -> Value {
        use IntCompare as F;
        let function =
            self.random.pick(&[F::Eq, F::Ne, F::LtSigned, F::LeSigned, F::LtUnsigned, F::LeUnsigned]);
        let (x, y) = (self.int(), self.int());
        self.builder.int_compare(function, x, y)
    }

    pub(super) fn arithmetic(&mut self) -> Value {
        let lane = self.lane();
        let (x, y) = (self.vector(lane), self.vector(lane));
        if lane.is_float() {
            match self.random.below(12) {
                0 | 1 => {
                    let function = self.random.pick(&[Unary::Sqrt, Unary::Floor, Unary::Ceil]);
                    self.builder.unary(function, x)
                }
                2 | 3 => {
                    let z = self.vector(lane);
                    self.builder.multiply_add(x, y, z)
                }
                4 => {
                    let function = self.random.pick(&[Binary::And, Binary::Or, Binary::Xor, Binary::AndNot]);
                    let (x, y) = (self.without_nan(x), self.without_nan(y));
                    self.builder.binary(function, x, y)
                }
                _ => {
                    let function = self.random.pick(&[
                        Binary::Add,
                        Binary::Sub,
                        Binary::Mul,
                        Binary::Div,
                        Binary::Lesser,
                        Binary::Greater,
                    ]);
                    self.builder.binary(function, x, y)
                }
            }
        } else {
            let function = self.random.pick(&[
                Binary::Add,
                Binary::Sub,
                Binary::Mul,
                Binary::Lesser,
                Binary::Greater,
                Binary::LesserUnsigned,
                Binary::GreaterUnsigned,
                Binary::And,
                Binary::Or,
                Binary::Xor,
                Binary::AndNot,
                Binary::Shl,
                Binary::Shr,
                Binary::Sar,
                Binary::MulHighSigned,
                Binary::MulHighUnsigned,
            ]);
            let is_shift = matches!(function, Binary::Shl | Binary::Shr | Binary::Sar);
            let y = match self.random.below(5) {
                0 if is_shift => {
                    let count = self.random.below(8 * lane.bytes() + 2) as u64;
                    self.builder.constant(lane, count)
                }
                1 if is_shift => {
                    let count = self.random.bits(lane);
                    self.builder.constant(lane, count)
                }
                2 if is_shift => {
                    let mask = self.builder.constant(lane, 8 * lane.bytes() as u64 - 1);
                    self.builder.binary(Binary::And, y, mask)
                }
                _ => y,
            };
            self.builder.binary(function, x, y)
        }
    }

    /// Replaces each NaN by a constant.
    pub(super) fn without_nan(&mut self, x: Value) -> Value {
        let constants: [u64; 3] = match self.builder.lane(x) {
            Lane::F32 => [0, 0x7fc0_0000, 0xffc0_0000],
            Lane::F64 => [0, 0x7ff8_0000_0000_0000, 0xfff8_0000_0000_0000],
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => return x,
        };
        let constant = self.random.pick(&constants);
        self.replace_nan(x, constant)
    }

    pub(super) fn replace_nan(&mut self, x: Value, constant: u64) -> Value {
        let lane = self.builder.lane(x);
        let constant = self.builder.constant(lane, constant);
        let is_number = self.builder.compare(Compare::Eq, x, x);
        self.builder.select(is_number, x, constant)
    }

    pub(super) fn compare(&mut self) -> Value {
        use Compare as F;
        let lane = self.lane();
        let functions: &[Compare] = if lane.is_float() {
            &[F::Eq, F::Ne, F::Lt, F::Le]
        } else {
            &[F::Eq, F::Ne, F::Lt, F::Le, F::LtUnsigned, F::LeUnsigned]
        };
        let function = self.random.pick(functions);
        let (x, y) = (self.vector(lane), self.vector(lane));
        self.builder.compare(function, x, y)
    }

    pub(super) fn select(&mut self) -> Value {
        let mask = if self.random.chance(50) { self.compare() } else { self.mask() };
        let lane = self.lane();
        let (x, y) = (self.vector(lane), self.vector(lane));
        self.builder.select(mask, x, y)
    }

    pub(super) fn convert(&mut self) -> Value {
        use Conversion as C;
        use Lane::{F32, F64, I8, I16, I32, I64};
        const CONVERSIONS: [(Conversion, Lane, Lane); 33] = [
            (C::SignExtend, I8, I16),
            (C::SignExtend, I8, I32),
            (C::SignExtend, I8, I64),
            (C::SignExtend, I16, I32),
            (C::SignExtend, I16, I64),
            (C::SignExtend, I32, I64),
            (C::ZeroExtend, I8, I16),
            (C::ZeroExtend, I8, I32),
            (C::ZeroExtend, I8, I64),
            (C::ZeroExtend, I16, I32),
            (C::ZeroExtend, I16, I64),
            (C::ZeroExtend, I32, I64),
            (C::Truncate, I64, I32),
            (C::Truncate, I64, I16),
            (C::Truncate, I64, I8),
            (C::Truncate, I32, I16),
            (C::Truncate, I32, I8),
            (C::Truncate, I16, I8),
            (C::SignedToFloat, I32, F32),
            (C::SignedToFloat, I32, F64),
            (C::SignedToFloat, I64, F32),
            (C::SignedToFloat, I64, F64),
            (C::UnsignedToFloat, I32, F32),
            (C::UnsignedToFloat, I32, F64),
            (C::UnsignedToFloat, I64, F32),
            (C::UnsignedToFloat, I64, F64),
            (C::FloatToFloat, F32, F64),
            (C::FloatToFloat, F64, F32),
            (C::HalfToFloat, I16, F32),
            (C::FloatToHalf, F32, I16),
            (C::Bitcast, F32, I32),
            (C::Bitcast, F64, I64),
            (C::Bitcast, I32, F32),
        ];
        match self.random.below(6) {
            0 => {
                let (from, to) = (self.random.pick(&[F32, F64]), self.random.pick(&[I32, I64]));
                let x = self.vector(from);
                let x = self.clamp(x, to);
                self.builder.convert(C::FloatToSigned, to, x)
            }
            1 => {
                let x = self.vector(I64);
                self.builder.convert(C::Bitcast, F64, x)
            }
            _ => {
                let known: Vec<_> =
                    CONVERSIONS.into_iter().filter(|(_, from, _)| self.lanes.contains(from)).collect();
                let all: &[_] = if known.is_empty() { &CONVERSIONS } else { &known };
                let (conversion, from, to) = self.random.pick(all);
                let mut x = self.vector(from);
                if matches!(conversion, C::FloatToHalf | C::Bitcast) {
                    x = self.without_nan(x);
                }
                self.builder.convert(conversion, to, x)
            }
        }
    }

    /// Clamps floats to the range of an integer type.
    pub(super) fn clamp(&mut self, x: Value, to: Lane) -> Value {
        let lane = self.builder.lane(x);
        let [low, high] = conversion_range(lane, to);
        let x = self.replace_nan(x, 0);
        let low = self.builder.constant(lane, low);
        let high = self.builder.constant(lane, high);
        let x = self.builder.binary(Binary::Greater, x, low);
        self.builder.binary(Binary::Lesser, x, high)
    }

    pub(super) fn shuffle(&mut self) -> Value {
        let lane = self.lane();
        match self.random.below(4) {
            0 => {
                let x = self.int();
                self.builder.splat(lane, x)
            }
            1 => {
                let x = self.vector(lane);
                let x = self.without_nan(x);
                self.builder.first(x)
            }
            _ => {
                let count = self.random.below(self.builder.lanes()) as u8;
                let x = self.vector(lane);
                self.builder.rotate(count, x)
            }
        }
    }

    pub(super) fn mask_step(&mut self) -> Value {
        let (x, y) = (self.mask(), self.mask());
        match self.random.below(8) {
            0 => self.builder.mask_not(x),
            1 => {
                let z = self.mask();
                self.builder.mask_select(x, y, z)
            }
            2 => {
                let count = self.int();
                let count = if self.random.chance(70) {
                    let count = self.int_mod(count, 31);
                    self.add(count, -4)
                } else {
                    count
                };
                self.builder.first_lanes(count)
            }
            3 => {
                let bits = self.int();
                self.builder.mask_of_bits(bits)
            }
            4 => self.builder.mask_bits(x),
            _ => {
                let function =
                    self.random.pick(&[MaskBinary::And, MaskBinary::Or, MaskBinary::Xor, MaskBinary::AndNot]);
                self.builder.mask_binary(function, x, y)
            }
        }
    }
}

/// Returns the bits of the lowest and highest float that a conversion to integers accepts.
pub fn conversion_range(from: Lane, to: Lane) -> [u64; 2] {
    match (from, to) {
        (Lane::F32, Lane::I32) => [-2_147_483_648_f32, 2_147_483_520.0].map(|x| x.to_bits().into()),
        (Lane::F32, _) => {
            [-9_223_372_036_854_775_808_f32, 9_223_371_487_098_961_920.0].map(|x| x.to_bits().into())
        }
        (_, Lane::I32) => [-2_147_483_648_f64, 2_147_483_647.0].map(f64::to_bits),
        (_, _) => [-9_223_372_036_854_775_808_f64, 9_223_372_036_854_774_784.0].map(f64::to_bits),
    }
}
