//! The elementwise table: which instructions a function is, by the type of its operands.

use tilewright_gpu::Feature;
use tilewright_ir::{Dtype, Element, ElementwiseFn as F, Inst, Value};

use super::arithmetic::{Integer, comparison};
use super::builder::{Scalar, Width};
use super::float::{Binary, Float};
use super::integer::Bitwise;
use super::{Lowered, Lowering, width_of};
use crate::isa::{self, Comparison, Rounding, ScalarType};

impl Lowering<'_> {
    pub(super) fn lower_elementwise(
        &mut self,
        inst: Inst,
        operands: &[Value],
        (function, equal_registers): (F, u32),
    ) -> Lowered {
        let result = self.kernel.insts[inst].results[0];
        let layout = self.layout_of(result);
        let columns: Vec<_> = operands.iter().map(|&operand| self.get_in(operand, layout)).collect();
        let last = *operands.last().expect("a function has operands");
        let element = self.element(last);
        let equal = equal_registers as usize;
        let mut scalars: Vec<Scalar> = Vec::with_capacity(self.count(result));
        for register in 0..self.count(result) {
            if register & equal != 0 {
                scalars.push(scalars[register & !equal]);
                continue;
            }
            let x: smallvec::SmallVec<[Scalar; 3]> = columns.iter().map(|column| column[register]).collect();
            let scalar = self.apply(function, element, &x);
            scalars.push(
                scalar
                    .ok_or_else(|| self.unsupported(inst, &format!("`{}` of {element}", function.name())))?,
            );
        }
        self.set(result, scalars);
        Ok(())
    }

    /// A function of elements; none if it is not supported.
    pub(super) fn apply(&mut self, function: F, element: Element, x: &[Scalar]) -> Option<Scalar> {
        if function == F::Select {
            return Some(self.builder.select(width_of(element), x[0], x[1], x[2]));
        }
        let Element::Value(dtype) = element else {
            return Some(self.builder.integer(function, Integer::ADDRESS, x));
        };
        if dtype.is_bool() {
            return Some(self.builder.boolean(function, x));
        }
        if dtype.is_int() {
            return Some(self.builder.integer(function, Integer::of(dtype), x));
        }
        self.float(function, dtype, x)
    }

    fn float(&mut self, function: F, dtype: Dtype, x: &[Scalar]) -> Option<Scalar> {
        if matches!(function, F::Neg | F::Abs) && dtype.bits() == 16 {
            let (operation, mask) =
                if function == F::Neg { (Bitwise::Xor, 0x8000) } else { (Bitwise::And, 0x7fff) };
            return Some(self.builder.bitwise(operation, Width::B16, x[0], Scalar::constant(mask)));
        }
        if let Some(float) = self.computed_in(function, dtype) {
            return self.native(function, float, x);
        }
        if function == F::Fma {
            return self.narrow_fma(dtype, x);
        }
        let wide: smallvec::SmallVec<[Scalar; 3]> =
            x.iter().map(|&operand| self.widen(dtype, operand)).collect::<Option<_>>()?;
        let result = self.native(function, Float::F32, &wide)?;
        if comparison(function).is_some() { Some(result) } else { self.narrow(dtype, result, false) }
    }

    /// The type of a number, if the target has instructions for a function of it that round once.
    fn computed_in(&self, function: F, dtype: Dtype) -> Option<Float> {
        let is_sum = matches!(function, F::Add | F::Sub | F::Mul | F::Fma);
        let is_extremum = matches!(function, F::Min | F::Max | F::MinNan | F::MaxNan);
        let is_comparison = comparison(function).is_some();
        let has_bf16 = self.has(Feature::Bf16Arithmetic);
        match dtype {
            Dtype::F16 if is_extremum => has_bf16.then_some(Float::F16),
            Dtype::F16 => (is_sum || is_comparison).then_some(Float::F16),
            Dtype::BF16 if is_sum || is_extremum => has_bf16.then_some(Float::Bf16),
            Dtype::BF16 => (self.has(Feature::Bf16Sums) && is_comparison).then_some(Float::Bf16),
            // tidy: wildcard because the others have instructions for every function, or for none.
            _ => Float::of(dtype),
        }
    }

    /// A function in a type that instructions compute in.
    fn native(&mut self, function: F, float: Float, x: &[Scalar]) -> Option<Scalar> {
        if let Some(comparison) = comparison(function) {
            // Not equal is true where one is NaN.
            let comparison = if comparison == Comparison::Ne { Comparison::Neu } else { comparison };
            return Some(self.builder.float_compare(float, comparison, x[0], x[1]));
        }
        let binary = match function {
            F::Add => Binary::Add,
            F::Sub => Binary::Sub,
            F::Mul => Binary::Mul,
            // tidy: wildcard because the other functions are another function's.
            _ => return self.native_function(function, float, x),
        };
        if float == Float::Bf16 && !self.has(Feature::Bf16Sums) {
            return Some(self.builder.fused(binary, float, x[0], x[1]));
        }
        let rounding = (!self.program.header.contraction).then_some(Rounding::Rn);
        Some(self.builder.float_binary(binary, float, rounding, x[0], x[1]))
    }

    fn native_function(&mut self, function: F, float: Float, x: &[Scalar]) -> Option<Scalar> {
        let builder = &mut self.builder;
        Some(match function {
            F::Fma => builder.fma(float, x[0], x[1], x[2]),
            F::Div => builder.divide(float, false, x[0], x[1]),
            F::DivRn => builder.divide(float, true, x[0], x[1]),
            F::SqrtRn => builder.sqrt_rn(float, x[0]),
            F::Min | F::Max => builder.float_extremum(float, function == F::Max, false, x[0], x[1]),
            F::MinNan | F::MaxNan => self.extremum_nan(float, function == F::MaxNan, x[0], x[1]),
            F::FloatRem => self.float_remainder(float, x[0], x[1]),
            F::Floor => self.integral(float, Rounding::Rmi, x[0]),
            F::Ceil => self.integral(float, Rounding::Rpi, x[0]),
            F::Neg => {
                let a = builder.float_source(float, x[0]);
                builder.pure(float.width(), |d| isa::Neg { ftz: false, ty: float.ty(), d, a })
            }
            F::Abs => {
                let a = builder.float_source(float, x[0]);
                builder.pure(float.width(), |d| isa::Abs { ftz: false, ty: float.ty(), d, a })
            }
            // tidy: wildcard because the rest are functions of analysis, which have files of their own.
            _ => {
                return if float == Float::F64 { self.math64(function, x) } else { self.math32(function, x) };
            }
        })
    }

    /// The smaller or the larger; NaN where one is NaN.
    fn extremum_nan(&mut self, float: Float, largest: bool, a: Scalar, b: Scalar) -> Scalar {
        // The modifier came with the bf16 instructions.
        if float != Float::F64 && self.has(Feature::MmaSyncWide) {
            return self.builder.float_extremum(float, largest, true, a, b);
        }
        let extremum = self.builder.float_extremum(float, largest, false, a, b);
        let is_nan = self.builder.float_compare(float, Comparison::Nan, a, b);
        self.builder.select(float.width(), is_nan, float.constant(f64::NAN), extremum)
    }

    /// The integral number in a direction.
    fn integral(&mut self, float: Float, rounding: Rounding, a: Scalar) -> Scalar {
        let ty = (float.width(), float.ty());
        self.builder.float_convert(ty, ty, Some(rounding), a)
    }

    /// x * y + z in a format without instructions, rounded once: in binary64 the product is exact, and the sum is rounded to
    /// odd, of which rounding again to the format is rounding once.
    fn narrow_fma(&mut self, dtype: Dtype, x: &[Scalar]) -> Option<Scalar> {
        let wide: smallvec::SmallVec<[Scalar; 3]> = x
            .iter()
            .map(|&operand| {
                let single = self.widen(dtype, operand)?;
                Some(self.double(single))
            })
            .collect::<Option<_>>()?;
        let operands = [wide[0], wide[1], wide[2]];
        let [zero, up, down] = [Rounding::Rz, Rounding::Rp, Rounding::Rm]
            .map(|rounding| self.builder.fma_with(Float::F64, rounding, false, operands));
        let sum = self.round_to_odd(Float::F64, zero, up, down);
        self.narrow_double(dtype, sum, false)
    }

    /// What rounding to odd gives, from the roundings towards zero, up and down: where these differ, the last bit is one.
    pub(super) fn round_to_odd(&mut self, float: Float, zero: Scalar, up: Scalar, down: Scalar) -> Scalar {
        let is_inexact = self.builder.float_compare(float, Comparison::Ne, up, down);
        let width = float.width();
        let last = self.builder.select(width, is_inexact, Scalar::constant(1), Scalar::constant(0));
        self.builder.bitwise(Bitwise::Or, width, zero, last)
    }

    /// Binary32 as binary64.
    pub(super) fn double(&mut self, a: Scalar) -> Scalar {
        self.builder.float_convert((Width::B64, ScalarType::F64), (Width::B32, ScalarType::F32), None, a)
    }
}
