//! Conversions between element types. The results equal those of the CPU executor. Each is rounded
//! once: a wider intermediate format rounds to odd.

use tilewright_gpu_ir::Feature;
use tilewright_ir::{Dtype, Element, Inst, Rounding, Value};

use super::builder::{Scalar, Width};
use super::float::Float;
use super::integer::{Bitwise, convert, integer};
use super::{Lowered, Lowering, width_of};
use crate::isa::{self, Comparison, ScalarType};

const F32: (Width, ScalarType) = (Width::B32, ScalarType::F32);
const F64: (Width, ScalarType) = (Width::B64, ScalarType::F64);
const F16: (Width, ScalarType) = (Width::B16, ScalarType::F16);
const BF16: (Width, ScalarType) = (Width::B16, ScalarType::Bf16);

impl Lowering<'_> {
    pub(super) fn lower_cast(
        &mut self,
        inst: Inst,
        value: Value,
        element: Element,
        rounding: Rounding,
    ) -> Lowered {
        let result = self.kernel.insts[inst].results[0];
        let from = self.element(value);
        let operands = self.get_in(value, self.layout_of(result));
        let towards_zero = rounding == Rounding::TowardsZero;
        if let Some(scalars) = self.convert_fp8_pairs(from, element, towards_zero, &operands) {
            self.set(result, scalars);
            return Ok(());
        }
        if let Some(scalars) = self.convert_bytes(from, element, &operands) {
            self.set(result, scalars);
            return Ok(());
        }
        let mut scalars = Vec::with_capacity(operands.len());
        let is_halved = from == Element::Value(Dtype::F32)
            && width_of(element) == Width::B16
            && self.has(Feature::MmaSyncWide);
        for &operand in operands.iter() {
            let scalar = self.convert(from, element, towards_zero, operand);
            scalars.push(
                scalar.ok_or_else(|| self.unsupported(inst, &format!("a cast of {from} to {element}")))?,
            );
        }
        if is_halved {
            self.builder.pairs.extend(scalars.as_chunks().0);
        }
        self.set(result, scalars);
        Ok(())
    }

    /// Lowers a reinterpretation of bits.
    pub(super) fn lower_bitcast(&mut self, inst: Inst, value: Value, element: Element) {
        let result = self.kernel.insts[inst].results[0];
        let from = self.element(value);
        let operands = self.get_in(value, self.layout_of(result));
        let scalars: Vec<Scalar> =
            operands.iter().map(|&operand| self.reinterpret(from, element, operand)).collect();
        self.set(result, scalars);
    }

    fn reinterpret(&mut self, from: Element, to: Element, operand: Scalar) -> Scalar {
        let bits = super::memory_bits(to);
        let signed = to.value().is_some_and(Dtype::is_signed);
        match (width_of(from), width_of(to)) {
            (Width::B16, Width::B32) => {
                let wide = self.widen_half(operand);
                self.builder.extend(wide, bits, signed)
            }
            (Width::B32, Width::B16) => self.low_half(operand),
            (Width::B32, Width::B32) if bits < 32 => self.builder.extend(operand, bits, signed),
            _ => operand,
        }
    }

    /// Returns 16 bits extended to 32 by zeros.
    pub(super) fn widen_half(&mut self, operand: Scalar) -> Scalar {
        if operand.base.is_none() {
            return operand;
        }
        let a = self.builder.register(Width::B16, operand).into();
        self.builder.pure(Width::B32, |d| convert(ScalarType::U32, ScalarType::U16, d, a))
    }

    /// Returns the low 16 of 32 bits.
    pub(super) fn low_half(&mut self, operand: Scalar) -> Scalar {
        if let Some(bits) = operand.as_constant() {
            return Scalar::constant(bits & 0xffff);
        }
        let a = self.builder.register(Width::B32, operand).into();
        self.builder.pure(Width::B16, |d| convert(ScalarType::U16, ScalarType::U32, d, a))
    }

    /// Converts a value, or returns `None` if the conversion is not supported.
    pub(super) fn convert(
        &mut self,
        from: Element,
        to: Element,
        towards_zero: bool,
        x: Scalar,
    ) -> Option<Scalar> {
        let (source, target) = match (from, to) {
            (Element::Value(source), Element::Value(target)) => (source, target),
            (Element::Pointer(_), Element::Value(target)) => (Dtype::U64, target),
            _ => return Some(x),
        };
        if source == target {
            return Some(x);
        }
        match (source.is_float(), target.is_float()) {
            (false, false) => Some(self.between_integers(source, target, x)),
            (false, true) => self.integer_to_float(source, target, towards_zero, x),
            (true, false) => self.float_to_integer(source, target, x),
            (true, true) => self.between_floats(source, target, towards_zero, x),
        }
    }

    fn between_integers(&mut self, from: Dtype, to: Dtype, x: Scalar) -> Scalar {
        let (source, target) = (width_of(Element::Value(from)), width_of(Element::Value(to)));
        if to.is_bool() {
            return self.builder.compare(source, true, Comparison::Ne, x, Scalar::constant(0));
        }
        if from.is_bool() {
            return self.builder.select(target, x, Scalar::constant(1), Scalar::constant(0));
        }
        match (source, target) {
            (Width::B32, Width::B64) => self.builder.mul_wide(from.is_signed(), x, 1, false),
            (Width::B64, Width::B64) => x,
            _ => {
                let x = if source == Width::B64 { self.builder.low_word(x) } else { x };
                let fits = to.bits() == 32 || (from.bits() < to.bits() && !from.is_signed());
                if fits { x } else { self.builder.extend(x, to.bits(), to.is_signed()) }
            }
        }
    }

    fn integer_to_float(&mut self, from: Dtype, to: Dtype, towards_zero: bool, x: Scalar) -> Option<Scalar> {
        if from.is_bool() {
            let one = self.narrow_constant(to, 1.0)?;
            return Some(self.builder.select(width_of(Element::Value(to)), x, one, Scalar::constant(0)));
        }
        let width = width_of(Element::Value(from));
        let source = (width, integer(width, from.is_signed()));
        let rounding = if towards_zero { isa::Rounding::Rz } else { isa::Rounding::Rn };
        match to {
            Dtype::F32 => Some(self.builder.float_convert(F32, source, Some(rounding), x)),
            Dtype::F64 => Some(self.builder.float_convert(F64, source, Some(rounding), x)),
            Dtype::F16 if from.bits() > 16 => {
                Some(self.builder.float_convert(F16, source, Some(rounding), x))
            }
            Dtype::BF16 if from.bits() > 16 && self.has(Feature::Bf16Sums) => {
                Some(self.builder.float_convert(BF16, source, Some(rounding), x))
            }
            // Integers of up to 16 bits are exact in fp32; wider ones round to odd.
            _ if from.bits() <= 16 => {
                let wide = self.builder.float_convert(F32, source, Some(isa::Rounding::Rn), x);
                self.narrow(to, wide, towards_zero)
            }
            _ => {
                let wide = self.single_rounded_to_odd(source, x);
                self.narrow(to, wide, towards_zero)
            }
        }
    }

    fn narrow_constant(&mut self, dtype: Dtype, value: f32) -> Option<Scalar> {
        match dtype {
            Dtype::F64 => Some(Float::F64.constant(value.into())),
            Dtype::F32 => Some(Float::F32.constant(value.into())),
            Dtype::F16 => Some(Float::F16.constant(value.into())),
            Dtype::BF16 => Some(Scalar::constant(u64::from(value.to_bits() >> 16))),
            _ => {
                let one = super::float::f32_constant(value);
                self.narrow(dtype, one, false)
            }
        }
    }

    /// Converts an integer or fp64 to fp32, rounded to odd.
    fn single_rounded_to_odd(&mut self, source: (Width, ScalarType), x: Scalar) -> Scalar {
        let [zero, up, down] = [isa::Rounding::Rz, isa::Rounding::Rp, isa::Rounding::Rm]
            .map(|rounding| self.builder.float_convert(F32, source, Some(rounding), x));
        self.round_to_odd(Float::F32, zero, up, down)
    }

    /// Converts a float to an integer, truncated towards zero. NaN yields 0, and a value out of
    /// range the nearest bound. A bool is true if the float is not 0, also for NaN.
    fn float_to_integer(&mut self, from: Dtype, to: Dtype, x: Scalar) -> Option<Scalar> {
        let (x, float) = match from {
            Dtype::F64 => (x, Float::F64),
            _ => (self.widen(from, x)?, Float::F32),
        };
        if to.is_bool() {
            return Some(self.builder.float_compare(float, Comparison::Neu, x, Scalar::constant(0)));
        }
        let width = width_of(Element::Value(to));
        let source = (float.width(), float.ty());
        let wide = (width, integer(width, to.is_signed() || to.bits() < 32));
        let mut result = self.builder.float_convert(wide, source, Some(isa::Rounding::Rzi), x);
        // The instruction saturates. Only fp32 to 32 bits converts NaN to zero.
        if width == Width::B64 || float == Float::F64 {
            let is_nan = self.builder.float_compare(float, Comparison::Nan, x, x);
            result = self.builder.select(width, is_nan, Scalar::constant(0), result);
        }
        if to.bits() < 32 {
            let (low, high) = to.int_range()?;
            let bits = |value: i128| Scalar::constant(Width::B32.cut(value as u64));
            result = self.builder.extremum(Width::B32, true, true, result, bits(low));
            result = self.builder.extremum(Width::B32, true, false, result, bits(high));
        }
        Some(result)
    }

    fn between_floats(&mut self, from: Dtype, to: Dtype, towards_zero: bool, x: Scalar) -> Option<Scalar> {
        if to == Dtype::F8E4B15 && from != Dtype::F32 {
            return self.without_nan(from, x, towards_zero);
        }
        match (from, to) {
            (Dtype::F64, Dtype::F32) => {
                let rounding = if towards_zero { isa::Rounding::Rz } else { isa::Rounding::Rn };
                Some(self.builder.float_convert(F32, F64, Some(rounding), x))
            }
            (Dtype::F64, _) => self.narrow_double(to, x, towards_zero),
            (_, Dtype::F64) => {
                let single = self.widen(from, x)?;
                Some(self.double(single))
            }
            _ => {
                let single = self.widen(from, x)?;
                self.narrow(to, single, towards_zero)
            }
        }
    }

    /// Converts to `fp8e4b15`, which has no NaN. The sign is copied, because conversions lose the
    /// sign of NaN.
    fn without_nan(&mut self, from: Dtype, x: Scalar, towards_zero: bool) -> Option<Scalar> {
        let result = if from == Dtype::F64 {
            self.narrow_double(Dtype::F8E4B15, x, towards_zero)?
        } else {
            let single = self.widen(from, x)?;
            self.narrow(Dtype::F8E4B15, single, towards_zero)?
        };
        let width = width_of(Element::Value(from));
        let sign = match width {
            Width::B16 => self.widen_half(x),
            Width::B64 => {
                let high = self.builder.shr(width, false, x, 32);
                self.builder.low_word(high)
            }
            Width::Pred | Width::B32 => x,
        };
        let top = if width == Width::B64 { 32 } else { from.bits() };
        let sign = self.builder.shr(Width::B32, false, sign, top - 8);
        let sign = self.builder.bitwise(Bitwise::And, Width::B32, sign, Scalar::constant(0x80));
        let magnitude = self.builder.bitwise(Bitwise::And, Width::B32, result, Scalar::constant(0x7f));
        Some(self.builder.bitwise(Bitwise::Or, Width::B32, magnitude, sign))
    }

    /// Converts fp64 to a format of at most 16 bits.
    pub(super) fn narrow_double(&mut self, to: Dtype, x: Scalar, towards_zero: bool) -> Option<Scalar> {
        let wide = self.single_rounded_to_odd(F64, x);
        self.narrow(to, wide, towards_zero)
    }

    /// Converts a format of at most 32 bits to fp32, exactly. Returns `None` if this is not
    /// supported.
    pub(super) fn widen(&mut self, from: Dtype, x: Scalar) -> Option<Scalar> {
        match from {
            Dtype::F32 => Some(x),
            Dtype::F16 => Some(match x.as_constant() {
                Some(bits) => super::float::f32_constant(half::f16::from_bits(bits as u16).to_f32()),
                None => self.builder.float_convert(F32, F16, None, x),
            }),
            Dtype::BF16 => Some(if let Some(bits) = x.as_constant() {
                Scalar::constant(bits << 16)
            } else {
                let zero = self.builder.register(Width::B16, Scalar::constant(0));
                let half = self.builder.register(Width::B16, x);
                let a = super::builder::sources(&[zero, half]);
                self.builder.pure(Width::B32, |d| isa::Mov { ty: ScalarType::B32, d: d.into(), a })
            }),
            _ => self.widen_fp8(from, x),
        }
    }

    /// Converts fp32 to a format of at most 32 bits. Returns `None` if this is not supported.
    pub(super) fn narrow(&mut self, to: Dtype, x: Scalar, towards_zero: bool) -> Option<Scalar> {
        let rounding = if towards_zero { isa::Rounding::Rz } else { isa::Rounding::Rn };
        match to {
            Dtype::F32 => Some(x),
            Dtype::F16 => Some(self.builder.float_convert(F16, F32, Some(rounding), x)),
            Dtype::BF16 if self.has(Feature::MmaSyncWide) => {
                Some(self.builder.float_convert(BF16, F32, Some(rounding), x))
            }
            Dtype::BF16 => Some(self.bf16_by_bits(x, towards_zero)),
            _ => self.narrow_to_fp8(to, x, towards_zero),
        }
    }

    /// Converts to bfloat16 on targets without the instruction. Adds 0x7fff, or 0x8000 if the upper
    /// half is odd, and keeps the upper half. With `towards_zero`, adds nothing. NaN becomes
    /// 0x7fff.
    fn bf16_by_bits(&mut self, x: Scalar, towards_zero: bool) -> Scalar {
        let builder = &mut self.builder;
        let mut bits = x;
        if !towards_zero {
            let last = builder.shr(Width::B32, false, x, 16);
            let last = builder.bitwise(Bitwise::And, Width::B32, last, Scalar::constant(1));
            let half = builder.add(Width::B32, last, Scalar::constant(0x7fff));
            bits = builder.add(Width::B32, x, half);
        }
        let is_nan = builder.float_compare(Float::F32, Comparison::Nan, x, x);
        let bits = builder.select(Width::B32, is_nan, Scalar::constant(0x7fff_0000), bits);
        let high = builder.shr(Width::B32, false, bits, 16);
        self.low_half(high)
    }
}
