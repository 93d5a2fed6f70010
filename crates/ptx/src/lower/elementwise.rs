//! Lowers elementwise functions. The instructions depend on the function and the operand type.

use rustc_hash::FxHashSet;
use tilewright_gpu_ir::Feature;
use tilewright_ir::{
    ArithmeticFn, ComparisonFn, Dtype, Element, ElementwiseFamily as Family, ElementwiseFn, FloatFn, Inst,
    MathFn, SelectionFn, Value,
};

use super::arithmetic::{Integer, comparison};
use super::builder::{Scalar, Width};
use super::control::jump;
use super::float::{Binary, Float};
use super::integer::Bitwise;
use super::{Lowered, Lowering, width_of};
use crate::isa::{self, Comparison, RegisterId, Rounding, ScalarType};

/// The instructions that a function in a 16-bit float type needs.
#[derive(Clone, Copy)]
enum Needs {
    Sums,
    Extrema,
    Comparisons,
    /// No target has such instructions: the function is computed in fp32.
    Binary32,
}

impl Lowering<'_> {
    pub(super) fn lower_elementwise(
        &mut self,
        inst: Inst,
        operands: &[Value],
        (function, equal_registers): (ElementwiseFn, u32),
    ) -> Lowered {
        let result = self.kernel.insts[inst].results[0];
        let layout = self.layout_of(result);
        let columns: Vec<_> = operands.iter().map(|&operand| self.get_in(operand, layout)).collect();
        let last = *operands.last().expect("a function has operands");
        let element = self.element(last);
        let equal = equal_registers as usize;
        if equal == 0
            && let Some(scalars) = self.bitwise_in_words(function, element, &columns)
        {
            self.set(result, scalars);
            return Ok(());
        }
        if equal & 1 == 0
            && let Some(scalars) = self.in_pairs(result, (function, element), &columns)
        {
            self.set(result, scalars);
            return Ok(());
        }
        let count = self.count(result);
        let shared = self.target().tuning.shared_divisor_elements;
        let shares_divisors = matches!(function, ElementwiseFn::Div)
            && element == Element::Value(Dtype::F32)
            && columns[1].iter().collect::<FxHashSet<_>>().len() * shared <= count;
        let mut scalars: Vec<Scalar> = Vec::with_capacity(count);
        for register in 0..count {
            if register & equal != 0 {
                scalars.push(scalars[register & !equal]);
                continue;
            }
            let x: smallvec::SmallVec<[Scalar; 3]> = columns.iter().map(|column| column[register]).collect();
            if shares_divisors {
                scalars.push(self.builder.divide_by_shared(x[0], x[1]));
                continue;
            }
            let scalar = self.apply(function, element, &x);
            scalars.push(
                scalar
                    .ok_or_else(|| self.unsupported(inst, &format!("`{}` of {element}", function.name())))?,
            );
        }
        self.set(result, scalars);
        Ok(())
    }

    /// Multiplies a tile by factors that are mostly 1. A warp skips it if all factors of its lanes
    /// are 1; the lanes vote, so all take one branch. The result registers first get the tile,
    /// which the multiplication overwrites.
    pub(super) fn lower_rescale(&mut self, inst: Inst, tile: Value, factor: Value) -> Lowered {
        if self.element(tile) != Element::Value(Dtype::F32) {
            return Err(self.unsupported(inst, &format!("`rescale` of {}", self.element(tile))));
        }
        let layout = self.layout_of(self.kernel.insts[inst].results[0]);
        let [tile, factors] = [tile, factor].map(|value| self.get_in(value, layout));
        let one = Float::F32.constant(1.0);
        let mut all = Scalar::constant(1);
        let mut seen: FxHashSet<Scalar> = FxHashSet::default();
        for factor in factors.iter().filter(|factor| seen.insert(**factor)) {
            let is_one = self.builder.float_compare(Float::F32, Comparison::Eq, *factor, one);
            all = self.builder.bitwise(Bitwise::And, Width::Pred, all, is_one);
        }
        let a = self.builder.predicate(all);
        let d = self.builder.fresh(Width::Pred);
        let mask = (-1).into();
        self.builder.emit(isa::Vote { mode: isa::VoteMode::All, ty: ScalarType::Pred, d, a, mask });
        let is_left_out = self.builder.predicate(d.into());
        let results: Vec<RegisterId> = tile.iter().map(|_| self.builder.fresh(Width::B32)).collect();
        for (result, element) in results.iter().zip(tile.iter()) {
            self.builder.assign(Width::B32, *result, *element);
        }
        let end = self.builder.label("rescaled");
        self.builder.emit_if(Some(is_left_out), jump(end));
        let products = self.products(&tile, &factors);
        for (result, product) in results.iter().zip(products) {
            self.builder.assign(Width::B32, *result, product);
        }
        self.builder.place(end);
        self.set_result(inst, results.into_iter().map(Scalar::from).collect::<Vec<_>>());
        Ok(())
    }

    /// Applies a function to elements; `None` if the target lacks the type.
    pub(super) fn apply(
        &mut self,
        function: ElementwiseFn,
        element: Element,
        x: &[Scalar],
    ) -> Option<Scalar> {
        // Addresses are 64-bit numbers.
        let dtype = element.value().unwrap_or(Dtype::U64);
        let (integer, is_bool, is_float) = (Integer::of(dtype), dtype.is_bool(), dtype.is_float());
        let builder = &mut self.builder;
        Some(match function.family() {
            Family::Arithmetic(function) if is_float => return self.float_arithmetic(function, dtype, x),
            Family::Arithmetic(function) if is_bool => builder.boolean_arithmetic(function, x),
            Family::Arithmetic(function) => builder.integer_arithmetic(function, integer, x),
            Family::Division(function) if is_bool => builder.boolean_division(function, x),
            Family::Division(function) => builder.integer_division(function, integer, x),
            Family::Bitwise(function) if is_bool => builder.boolean_bitwise(function, x),
            Family::Bitwise(function) => builder.integer_bitwise(function, integer, x),
            Family::WideProduct(function) => builder.wide_product(function, integer, x),
            Family::Comparison(function) if is_float => return self.float_comparison(function, dtype, x),
            Family::Comparison(function) if is_bool => builder.boolean_comparison(function, x),
            Family::Comparison(function) => builder.integer_comparison(function, integer, x),
            Family::Selection(SelectionFn::Select) => builder.select(width_of(element), x[0], x[1], x[2]),
            Family::Float(function) => return self.float_function(function, dtype, x),
            Family::Math(function) => {
                let result = |this: &mut Self, float, x: &[Scalar]| this.math(function, float, x[0]);
                return self.rounded(Needs::Binary32, dtype, x, result);
            }
        })
    }

    fn float_arithmetic(&mut self, function: ArithmeticFn, dtype: Dtype, x: &[Scalar]) -> Option<Scalar> {
        let is_half = dtype.bits() == 16;
        let needs = match function {
            ArithmeticFn::Neg if is_half => {
                return Some(self.builder.bitwise(Bitwise::Xor, Width::B16, x[0], Scalar::constant(0x8000)));
            }
            ArithmeticFn::Abs if is_half => {
                return Some(self.builder.bitwise(Bitwise::And, Width::B16, x[0], Scalar::constant(0x7fff)));
            }
            ArithmeticFn::Neg | ArithmeticFn::Abs => Needs::Binary32,
            ArithmeticFn::Add | ArithmeticFn::Sub | ArithmeticFn::Mul => Needs::Sums,
            ArithmeticFn::Min | ArithmeticFn::Max => Needs::Extrema,
        };
        self.rounded(needs, dtype, x, |this, float, x| this.native_arithmetic(function, float, x))
    }

    fn float_function(&mut self, function: FloatFn, dtype: Dtype, x: &[Scalar]) -> Option<Scalar> {
        let needs = match function {
            FloatFn::Fma if self.computed_in(Needs::Sums, dtype).is_none() => {
                return self.narrow_fma(dtype, x);
            }
            FloatFn::Fma => Needs::Sums,
            FloatFn::MinNan | FloatFn::MaxNan => Needs::Extrema,
            FloatFn::Div
            | FloatFn::DivRn
            | FloatFn::FloatRem
            | FloatFn::Sqrt
            | FloatFn::SqrtRn
            | FloatFn::Floor
            | FloatFn::Ceil => Needs::Binary32,
        };
        self.rounded(needs, dtype, x, |this, float, x| this.native_function(function, float, x))
    }

    fn float_comparison(&mut self, function: ComparisonFn, dtype: Dtype, x: &[Scalar]) -> Option<Scalar> {
        // `!=` is true for NaN.
        let comparison = match comparison(function) {
            Comparison::Ne => Comparison::Neu,
            comparison => comparison,
        };
        if let Some(float) = self.computed_in(Needs::Comparisons, dtype) {
            return Some(self.builder.float_compare(float, comparison, x[0], x[1]));
        }
        let (x, y) = (self.widen(dtype, x[0])?, self.widen(dtype, x[1])?);
        Some(self.builder.float_compare(Float::F32, comparison, x, y))
    }

    /// Computes a function in `dtype` if the target has the instructions. Otherwise, computes it in
    /// fp32 and rounds again.
    fn rounded(
        &mut self,
        needs: Needs,
        dtype: Dtype,
        x: &[Scalar],
        function: impl FnOnce(&mut Self, Float, &[Scalar]) -> Scalar,
    ) -> Option<Scalar> {
        if let Some(float) = self.computed_in(needs, dtype) {
            return Some(function(self, float, x));
        }
        let wide: smallvec::SmallVec<[Scalar; 3]> =
            x.iter().map(|&operand| self.widen(dtype, operand)).collect::<Option<_>>()?;
        let result = function(self, Float::F32, &wide);
        self.narrow(dtype, result, false)
    }

    /// Returns the type that computes a function of `dtype` without a second rounding. Returns
    /// `None` if the function must be computed in fp32.
    fn computed_in(&self, needs: Needs, dtype: Dtype) -> Option<Float> {
        let has_bf16 = self.has(Feature::Bf16Arithmetic);
        match (dtype, needs) {
            (Dtype::F16 | Dtype::BF16, Needs::Binary32) => None,
            (Dtype::F16, Needs::Extrema) => has_bf16.then_some(Float::F16),
            (Dtype::F16, Needs::Sums | Needs::Comparisons) => Some(Float::F16),
            (Dtype::BF16, Needs::Sums | Needs::Extrema) => has_bf16.then_some(Float::Bf16),
            (Dtype::BF16, Needs::Comparisons) => self.has(Feature::Bf16Sums).then_some(Float::Bf16),
            _ => Float::of(dtype),
        }
    }

    fn native_arithmetic(&mut self, function: ArithmeticFn, float: Float, x: &[Scalar]) -> Scalar {
        let builder = &mut self.builder;
        match function {
            ArithmeticFn::Add => self.sum(Binary::Add, float, x),
            ArithmeticFn::Sub => self.sum(Binary::Sub, float, x),
            ArithmeticFn::Mul => self.sum(Binary::Mul, float, x),
            ArithmeticFn::Min => builder.float_extremum(float, false, false, x[0], x[1]),
            ArithmeticFn::Max => builder.float_extremum(float, true, false, x[0], x[1]),
            ArithmeticFn::Neg => builder.float_negate(float, x[0]),
            ArithmeticFn::Abs => {
                let a = builder.float_source(float, x[0]);
                builder.pure(float.width(), |d| isa::Abs { ftz: false, ty: float.ty(), d, a })
            }
        }
    }

    /// Computes a sum, difference or product, which may be contracted if the program permits it.
    fn sum(&mut self, binary: Binary, float: Float, x: &[Scalar]) -> Scalar {
        if let Some(sum) = self.builder.sum_of_byte(float, binary, x) {
            return sum;
        }
        if float == Float::Bf16 && !self.has(Feature::Bf16Sums) {
            return self.builder.fused(binary, float, x[0], x[1]);
        }
        let rounding = (!self.program.header.contraction).then_some(Rounding::Rn);
        self.builder.float_binary(binary, float, rounding, x[0], x[1])
    }

    /// Computes a float function in a type with instructions.
    fn native_function(&mut self, function: FloatFn, float: Float, x: &[Scalar]) -> Scalar {
        let builder = &mut self.builder;
        match function {
            FloatFn::Fma => builder.fma(float, x[0], x[1], x[2]),
            FloatFn::Div => builder.divide(float, false, x[0], x[1]),
            FloatFn::DivRn => builder.divide(float, true, x[0], x[1]),
            FloatFn::Sqrt if float == Float::F64 => builder.sqrt_rn(float, x[0]),
            FloatFn::Sqrt => builder.sqrt32(x[0]),
            FloatFn::SqrtRn => builder.sqrt_rn(float, x[0]),
            FloatFn::MinNan => self.extremum_nan(float, false, x[0], x[1]),
            FloatFn::MaxNan => self.extremum_nan(float, true, x[0], x[1]),
            FloatFn::FloatRem => self.float_remainder(float, x[0], x[1]),
            FloatFn::Floor => self.integral(float, Rounding::Rmi, x[0]),
            FloatFn::Ceil => self.integral(float, Rounding::Rpi, x[0]),
        }
    }

    /// Computes a transcendental function, in fp32 or fp64.
    fn math(&mut self, function: MathFn, float: Float, x: Scalar) -> Scalar {
        let builder = &mut self.builder;
        match (function, float == Float::F64) {
            (MathFn::Exp, false) => builder.fast_exp32(x),
            (MathFn::AccurateExp, false) => builder.exp32(x),
            (MathFn::Exp | MathFn::AccurateExp, true) => builder.exp64(x),
            (MathFn::Exp2, false) => builder.ex2(x),
            (MathFn::Exp2, true) => builder.exp2_64(x),
            (MathFn::Log, false) => builder.log32(x),
            (MathFn::Log, true) => builder.log64(x),
            (MathFn::Log2, false) => builder.log2_32(x),
            (MathFn::Log2, true) => builder.log2_64(x),
            (MathFn::Sin, false) => self.sine(x, 0),
            (MathFn::Sin, true) => self.sine64(x, 0),
            (MathFn::Cos, false) => self.sine(x, 1),
            (MathFn::Cos, true) => self.sine64(x, 1),
            (MathFn::Rsqrt, false) => builder.rsqrt32(x),
            (MathFn::Rsqrt, true) => {
                let root = builder.sqrt_rn(float, x);
                builder.divide(float, true, float.constant(1.0), root)
            }
            (MathFn::Erf, false) => builder.erf32(x),
            (MathFn::Erf, true) => builder.erf64(x),
            (MathFn::Tanh, false) => builder.tanh32(x),
            (MathFn::Tanh, true) => builder.tanh64(x),
        }
    }

    /// Returns the minimum or maximum; NaN if either operand is NaN.
    fn extremum_nan(&mut self, float: Float, largest: bool, a: Scalar, b: Scalar) -> Scalar {
        // Targets with `MmaSyncWide` have `.NaN`, but not for fp64.
        if float != Float::F64 && self.has(Feature::MmaSyncWide) {
            return self.builder.float_extremum(float, largest, true, a, b);
        }
        let extremum = self.builder.float_extremum(float, largest, false, a, b);
        let is_nan = self.builder.float_compare(float, Comparison::Nan, a, b);
        self.builder.select(float.width(), is_nan, float.constant(f64::NAN), extremum)
    }

    /// Rounds to an integral number in a direction.
    fn integral(&mut self, float: Float, rounding: Rounding, a: Scalar) -> Scalar {
        let ty = (float.width(), float.ty());
        self.builder.float_convert(ty, ty, Some(rounding), a)
    }

    /// Computes x * y + z in a format without instructions, rounded once. The product is exact in
    /// fp64. The sum is rounded to odd, so the second rounding changes nothing.
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

    /// Rounds to odd, given the results towards zero, up and down. If the last two differ, sets the
    /// last bit.
    pub(super) fn round_to_odd(&mut self, float: Float, zero: Scalar, up: Scalar, down: Scalar) -> Scalar {
        let is_inexact = self.builder.float_compare(float, Comparison::Ne, up, down);
        let width = float.width();
        let last = self.builder.select(width, is_inexact, Scalar::constant(1), Scalar::constant(0));
        self.builder.bitwise(Bitwise::Or, width, zero, last)
    }

    /// Converts fp32 to fp64.
    pub(super) fn double(&mut self, a: Scalar) -> Scalar {
        self.builder.float_convert((Width::B64, ScalarType::F64), (Width::B32, ScalarType::F32), None, a)
    }
}
