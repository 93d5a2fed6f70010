//! Emits instructions on floating-point numbers.

use tilewright_ir::Dtype;

use super::builder::{Builder, Scalar, Width, only};
use super::integer::Bitwise;
use super::value_ranges::FloatRange;
use crate::isa::{self, Comparison, DivisionPrecision, Immediate, Rounding, ScalarType, Source};

/// A function of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
}

/// A floating-point type with instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Float {
    F16,
    /// bfloat16, on targets with arithmetic in it.
    Bf16,
    F32,
    F64,
}

impl Float {
    /// Returns the floating-point type of `dtype`, if every target has instructions on it.
    pub fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F16 => Some(Self::F16),
            Dtype::F32 => Some(Self::F32),
            Dtype::F64 => Some(Self::F64),
            // tidy: wildcard because the rest are integers, and formats that are computed in fp32.
            _ => None,
        }
    }

    pub fn ty(self) -> ScalarType {
        match self {
            Self::F16 => ScalarType::F16,
            Self::Bf16 => ScalarType::Bf16,
            Self::F32 => ScalarType::F32,
            Self::F64 => ScalarType::F64,
        }
    }

    pub fn width(self) -> Width {
        match self {
            Self::F16 | Self::Bf16 => Width::B16,
            Self::F32 => Width::B32,
            Self::F64 => Width::B64,
        }
    }

    /// Returns a constant of this value.
    pub fn constant(self, value: f64) -> Scalar {
        Scalar::constant(match self {
            Self::F16 => half::f16::from_f64(value).to_bits().into(),
            Self::Bf16 => half::bf16::from_f64(value).to_bits().into(),
            Self::F32 => (value as f32).to_bits().into(),
            Self::F64 => value.to_bits(),
        })
    }
}

/// Returns an fp32 constant of this value.
pub(super) fn f32_constant(value: f32) -> Scalar {
    Scalar::constant(value.to_bits().into())
}

impl Builder {
    /// Returns the range of an fp32 number. Returns `None` if it may be NaN.
    pub fn float_range(&self, a: Scalar) -> Option<FloatRange> {
        match a.base {
            None => FloatRange::constant(f32::from_bits(a.offset as u32)),
            Some(base) => self.float_ranges.get(&base).copied(),
        }
    }

    /// Records the range of a register.
    pub fn note_float_range(&mut self, a: Scalar, range: Option<FloatRange>) {
        if let (Some(register), Some(range)) = (a.base, range) {
            self.float_ranges.insert(register, range);
        }
    }

    /// Returns the range of a product, if one operand is a constant.
    fn range_of_product(&self, a: Scalar, b: Scalar) -> Option<FloatRange> {
        let (factor, a) = if a.base.is_none() { (a, b) } else { (b, a) };
        self.float_range(a)?.times(f32::from_bits(factor.as_constant()? as u32))
    }

    /// Returns the range of an integer that was converted to fp32.
    fn range_of_conversion(&self, to: ScalarType, from: ScalarType, a: Scalar) -> Option<FloatRange> {
        let (low, high) = match (to, from) {
            (ScalarType::F32, ScalarType::S32) => (-(2.0_f32.powi(31)), 2.0_f32.powi(31)),
            (ScalarType::F32, ScalarType::U32) => (0.0, 2.0_f32.powi(32)),
            // tidy: wildcard because the other conversions have no known range
            _ => return None,
        };
        let bound = self.bound(Width::B32, a).map(|bound| bound as f32);
        let low = if bound.is_some() { 0.0 } else { low };
        Some(FloatRange { low, high: bound.unwrap_or(high), is_normal: true })
    }

    /// Returns a number as an operand.
    pub fn float_source(&mut self, float: Float, scalar: Scalar) -> Source {
        match (scalar.as_constant(), float) {
            (Some(bits), Float::F32) => Source::Immediate(Immediate::F32(bits as u32)),
            (Some(bits), Float::F64) => Source::Immediate(Immediate::F64(bits)),
            _ => self.register(float.width(), scalar).into(),
        }
    }

    /// Applies a function of two operands. With `rounding`, the assembler does not contract the
    /// instruction.
    pub fn float_binary(
        &mut self,
        function: Binary,
        float: Float,
        rounding: Option<Rounding>,
        a: Scalar,
        b: Scalar,
    ) -> Scalar {
        let (a, b) = if function != Binary::Sub && (a.base.is_none() || a.base > b.base && b.base.is_some()) {
            (b, a)
        } else {
            (a, b)
        };
        let is_nearest = matches!(rounding, None | Some(Rounding::Rn));
        let is_product = float == Float::F32 && function == Binary::Mul && is_nearest;
        let range = if is_product { self.range_of_product(a, b) } else { None };
        let (a, b) = (self.float_source(float, a), self.float_source(float, b));
        let (ty, ftz, saturate, carry_out) = (float.ty(), false, false, false);
        let result = match function {
            Binary::Add => {
                self.pure(float.width(), |d| isa::Add { carry_out, rounding, ftz, saturate, ty, d, a, b })
            }
            Binary::Sub => {
                self.pure(float.width(), |d| isa::Sub { carry_out, rounding, ftz, saturate, ty, d, a, b })
            }
            Binary::Mul => {
                self.pure(float.width(), |d| isa::Mul { mode: None, rounding, ftz, saturate, ty, d, a, b })
            }
        };
        self.note_float_range(result, range);
        result
    }

    /// Returns a + b, rounded once and never contracted.
    pub fn add_rn(&mut self, float: Float, a: Scalar, b: Scalar) -> Scalar {
        self.float_binary(Binary::Add, float, Some(Rounding::Rn), a, b)
    }

    /// Returns a - b, rounded once and never contracted.
    pub fn sub_rn(&mut self, float: Float, a: Scalar, b: Scalar) -> Scalar {
        self.float_binary(Binary::Sub, float, Some(Rounding::Rn), a, b)
    }

    /// Returns a * b, rounded once and never contracted.
    pub fn mul_rn(&mut self, float: Float, a: Scalar, b: Scalar) -> Scalar {
        self.float_binary(Binary::Mul, float, Some(Rounding::Rn), a, b)
    }

    /// Returns a * b + c, rounded once.
    pub fn fma(&mut self, float: Float, a: Scalar, b: Scalar, c: Scalar) -> Scalar {
        self.fma_with(float, Rounding::Rn, false, [a, b, c])
    }

    /// Returns a * b + c with a rounding, clamped to 0 … 1 if `saturate`.
    pub fn fma_with(
        &mut self,
        float: Float,
        rounding: Rounding,
        saturate: bool,
        [a, b, c]: [Scalar; 3],
    ) -> Scalar {
        let [a, b, c] = [a, b, c].map(|operand| self.float_source(float, operand));
        let (ty, ftz, out_of_bounds, relu) = (float.ty(), false, false, false);
        self.pure(float.width(), |d| isa::Fma {
            rounding,
            ftz,
            saturate,
            out_of_bounds,
            relu,
            ty,
            d,
            a,
            b,
            c,
        })
    }

    /// Applies a function as an `fma`, rounded once. The variants are `a * 1 + b`, `b * -1 + a` and
    /// `a * b + -0`. A zero has the correct sign.
    pub fn fused(&mut self, function: Binary, float: Float, a: Scalar, b: Scalar) -> Scalar {
        match function {
            Binary::Add => self.fma(float, a, float.constant(1.0), b),
            Binary::Sub => self.fma(float, b, float.constant(-1.0), a),
            Binary::Mul => self.fma(float, a, b, float.constant(-0.0)),
        }
    }

    /// Returns the quotient. It is rounded once if `exact` or in fp64, else within 2 ulp.
    pub fn divide(&mut self, float: Float, exact: bool, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = (self.float_source(float, a), self.float_source(float, b));
        let (precision, rounding) = if exact || float == Float::F64 {
            (None, Some(Rounding::Rn))
        } else {
            (Some(DivisionPrecision::Full), None)
        };
        self.pure(float.width(), |d| isa::Div { precision, rounding, ftz: false, ty: float.ty(), d, a, b })
    }

    /// Returns the quotient by a shared fp32 divisor, within 2 ulp. The quotients share a
    /// reciprocal, and take two multiplications each. As in `div.full`, both operands are scaled so
    /// that the reciprocal is normal.
    pub fn divide_by_shared(&mut self, a: Scalar, b: Scalar) -> Scalar {
        let constant = |value: f32| Scalar::constant(value.to_bits().into());
        let [most, least] = [253_u64, 1].map(|exponent| Scalar::constant(exponent << 23));
        let size = self.bitwise(Bitwise::And, Width::B32, b, Scalar::constant(0x7fff_ffff));
        let is_large = self.compare(Width::B32, false, Comparison::Gt, size, most);
        let is_small = self.compare(Width::B32, false, Comparison::Lt, size, least);
        let scale = self.select(Width::B32, is_small, constant(16_777_216.0), constant(1.0));
        let scale = self.select(Width::B32, is_large, constant(0.25), scale);
        let divisor = self.mul_rn(Float::F32, b, scale);
        let reciprocal = self.reciprocal32(divisor);
        let a = self.mul_rn(Float::F32, a, scale);
        self.mul_rn(Float::F32, a, reciprocal)
    }

    /// Returns the square root, rounded once.
    pub fn sqrt_rn(&mut self, float: Float, a: Scalar) -> Scalar {
        let (a, rounding) = (self.float_source(float, a), Some(Rounding::Rn));
        self.pure(float.width(), |d| isa::Sqrt { approx: false, rounding, ftz: false, ty: float.ty(), d, a })
    }

    /// Returns the minimum or maximum. If one operand is NaN, the result is the other. With `nan`,
    /// which needs `sm_80`, the result is NaN.
    pub fn float_extremum(&mut self, float: Float, largest: bool, nan: bool, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = if a.base.is_none() || a.base > b.base && b.base.is_some() { (b, a) } else { (a, b) };
        let range = if float == Float::F32 && !nan {
            FloatRange::extremum(largest, self.float_range(a), self.float_range(b))
        } else {
            None
        };
        let (a, b) = (self.float_source(float, a), self.float_source(float, b));
        let (ty, ftz, xorsign_abs, relu, c) = (float.ty(), false, false, false, None);
        let result = if largest {
            self.pure(float.width(), |d| isa::Max { ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
        } else {
            self.pure(float.width(), |d| isa::Min { ftz, nan, xorsign_abs, relu, ty, d, a, b, c })
        };
        self.note_float_range(result, range);
        result
    }

    /// Returns -a.
    pub fn float_negate(&mut self, float: Float, a: Scalar) -> Scalar {
        let range = if float == Float::F32 { self.float_range(a) } else { None };
        let a = self.float_source(float, a);
        let result = self.pure(float.width(), |d| isa::Neg { ftz: false, ty: float.ty(), d, a });
        self.note_float_range(result, range.map(FloatRange::negated));
        result
    }

    /// Compares two numbers. It is false for NaN, except in unordered comparisons.
    pub fn float_compare(&mut self, float: Float, comparison: Comparison, a: Scalar, b: Scalar) -> Scalar {
        let a = Source::from(self.register(float.width(), a));
        let b = self.float_source(float, b);
        self.pure(Width::Pred, |d| isa::Setp {
            comparison,
            combine: None,
            ftz: false,
            ty: float.ty(),
            d: only(d),
            a,
            b,
            c: None,
        })
    }

    /// Converts between types of numbers, or rounds to an integral number.
    pub fn float_convert(
        &mut self,
        to: (Width, ScalarType),
        from: (Width, ScalarType),
        rounding: Option<Rounding>,
        a: Scalar,
    ) -> Scalar {
        let range = self.range_of_conversion(to.1, from.1, a);
        let a = self.register(from.0, a).into();
        let result = self.pure(to.0, |d| isa::Cvt {
            rounding,
            ftz: false,
            saturate: false,
            clamp: None,
            to: to.1,
            from: from.1,
            d,
            a,
            b: None,
            c: None,
        });
        self.note_float_range(result, range);
        result
    }
}
