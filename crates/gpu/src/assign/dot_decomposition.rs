//! Decomposes fp32 dots into tensor core dots (`"tf32x3"`, `"bf16x3"`, `"bf16x6"`).
//!
//! The pass replaces each operand with a sum of parts that a tensor core multiplies exactly. For
//! tf32, the parts are the tf32 nearest to the operand, and the tf32 nearest to the remainder. For
//! bf16, there are two or three such parts. Dots of small parts have a separate accumulator,
//! because rounding in a large accumulator would lose them.
//!
//! ```text
//! %d = dot %a, %b, %c {tf32x3}    ──>    %s = dot %a0, %b1, dot(%a1, %b0, 0)
//!                                        %d = dot %a0, %b0, %c + %s
//! ```
//! (Ootomo and Yokota, arXiv 2203.03341; Henry, Tang and Heinecke, arXiv 1904.06376.)
//!
//! The remainder of an infinity is NaN. So the pass replaces infinite and NaN elements of the small
//! parts' accumulator with 0. A finite element that would round up to infinity is truncated.
//!
//! If the target has no instruction for the parts, the dot is not decomposed and becomes FMAs in
//! fp32.

use smallvec::smallvec;
use tilewright_ir::{
    Cursor, Dtype, Element, ElementwiseFn as F, Function, InputPrecision, Inst, Literal, Op, Rounding, Shape,
    Type, Value,
};

use super::mma_selection::{collect_dots, has_instruction};
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::target::GpuTarget;

/// The mask of the bits of fp32 that tf32 keeps.
const TF32_BITS: i64 = -0x2000;
/// Half of the lowest bit that tf32 keeps.
const TF32_HALF: i64 = 0x1000;
/// The bits of the smallest fp32 that rounds up to an infinite tf32.
const TF32_LIMIT: u32 = 0x7f7f_f000;
/// The bits of the smallest fp32 that rounds up to an infinite bf16.
const BF16_LIMIT: u32 = 0x7f7f_8000;

/// Decomposes the dots that request it. Returns whether it changed a dot.
pub fn decompose_dots(function: &mut Function, target: GpuTarget, num_warps: u32) -> bool {
    let mut found = false;
    for (block, inst) in collect_dots(function) {
        let Op::Dot { precision, .. } = function.insts[inst].op else { continue };
        let (part, count) = match precision {
            InputPrecision::Tf32x3 => (Dtype::F32, 2),
            InputPrecision::Bf16x3 => (Dtype::BF16, 2),
            InputPrecision::Bf16x6 => (Dtype::BF16, 3),
            InputPrecision::Tf32 | InputPrecision::Ieee => continue,
        };
        let is_fp32 = |operand: &Value| function.ty(*operand).dtype() == Some(Dtype::F32);
        if !function.insts[inst].operands.iter().all(is_fp32)
            || !has_instruction(function, inst, [part, part, Dtype::F32], target, num_warps)
        {
            continue;
        }
        remarks::about(
            "dot_decomposition",
            function,
            inst,
            || format!("dot, {}", precision.name()),
            || {
                let dots = if count == 2 { 3 } else { 6 };
                let name = if part == Dtype::F32 { "tf32" } else { "bf16" };
                let reason = "each operand is a sum of parts that tensor cores multiply exactly";
                RemarkReason::done(format!("computed by {dots} dots of {name}"), reason)
            },
        );
        DotDecomposition { cursor: Cursor::before(function, block, inst) }.decompose(inst, part, count);
        found = true;
    }
    // `optimize` deduplicates parts and hoists them out of loops.
    found
}

struct DotDecomposition<'f> {
    cursor: Cursor<'f>,
}

impl DotDecomposition<'_> {
    fn decompose(&mut self, inst: Inst, part: Dtype, count: usize) {
        let data = self.cursor.function.insts[inst].clone();
        let Op::Dot { max_imprecise_acc, .. } = data.op else { return };
        let op = Op::Dot { precision: InputPrecision::Tf32, max_imprecise_acc };
        let [a, b, accumulator] = data.operands[..] else { return };
        let [a, b] = [a, b].map(|operand| match part {
            Dtype::BF16 => self.bf16_parts(operand, count),
            // tidy: wildcard because parts are bf16 or tf32
            _ => self.tf32_parts(operand),
        });
        let ty = self.cursor.function.ty(accumulator).clone();
        let mut small = self.splat(Literal::float(Dtype::F32, 0.0), &ty);
        // Accumulate the smallest dots first. Their parts have the greatest sum of indices. Dots
        // whose sum is `count` or more are too small to matter.
        for order in (1..count).rev() {
            for index in 0..=order {
                small = self.cursor.value(op.clone(), &[a[order - index], b[index], small], ty.clone());
            }
        }
        let small = self.or_zero(small);
        let accumulator = self.cursor.elementwise(F::Add, &[accumulator, small], ty);
        self.cursor.function.insts[inst].op = op;
        self.cursor.function.insts[inst].operands = smallvec![a[0], b[0], accumulator];
    }

    /// Returns the nearest tf32 of each element, and that of the remainder.
    fn tf32_parts(&mut self, x: Value) -> Vec<Value> {
        let ty = self.cursor.function.ty(x).clone();
        let half = self.splat_int(TF32_HALF, &ty);
        let none = self.splat_int(0, &ty);
        let fits = self.is_below(x, TF32_LIMIT);
        let half_or_none = self.cursor.elementwise(F::Select, &[fits, half, none], ty.with_dtype(Dtype::I32));
        let rounded = self.truncate_to_tf32(x, half_or_none);
        // A NaN whose mantissa is truncated to 0 would be an infinity.
        let is_nan = self.cursor.elementwise(F::Ne, &[x, x], ty.with_dtype(Dtype::I1));
        let nan = self.splat(Literal::float(Dtype::F32, f64::NAN), &ty);
        let large = self.cursor.elementwise(F::Select, &[is_nan, nan, rounded], ty.clone());
        let rest = self.cursor.elementwise(F::Sub, &[x, large], ty);
        let small = self.truncate_to_tf32(rest, half);
        vec![large, small]
    }

    /// Adds `raise` to the bits of an fp32 and truncates the result to tf32.
    fn truncate_to_tf32(&mut self, x: Value, raise: Value) -> Value {
        let ty = self.cursor.function.ty(x).clone();
        let bits_type = ty.with_dtype(Dtype::I32);
        let mask = self.splat_int(TF32_BITS, &ty);
        let bits =
            self.cursor.value(Op::Bitcast { element: Element::Value(Dtype::I32) }, &[x], bits_type.clone());
        let raised = self.cursor.elementwise(F::Add, &[bits, raise], bits_type.clone());
        let kept = self.cursor.elementwise(F::And, &[raised, mask], bits_type);
        self.cursor.value(Op::Bitcast { element: Element::Value(Dtype::F32) }, &[kept], ty)
    }

    /// Returns `count` parts: the nearest bf16 of each element, then of each remainder.
    fn bf16_parts(&mut self, x: Value, count: usize) -> Vec<Value> {
        let ty = self.cursor.function.ty(x).clone();
        let fits = self.is_below(x, BF16_LIMIT);
        let nearest = self.cast(x, Dtype::BF16, Rounding::NearestEven);
        let below = self.cast(x, Dtype::BF16, Rounding::TowardsZero);
        let large = self.cursor.elementwise(F::Select, &[fits, nearest, below], ty.with_dtype(Dtype::BF16));
        let mut parts = vec![large];
        let mut rest = x;
        while parts.len() < count {
            let last = parts[parts.len() - 1];
            let last = self.cast(last, Dtype::F32, Rounding::NearestEven);
            rest = self.cursor.elementwise(F::Sub, &[rest, last], ty.clone());
            parts.push(self.cast(rest, Dtype::BF16, Rounding::NearestEven));
        }
        parts
    }

    /// Returns a mask of the elements with absolute value below a limit; false for NaN.
    fn is_below(&mut self, x: Value, limit: u32) -> Value {
        let ty = self.cursor.function.ty(x).clone();
        let limit = self.splat(Literal::float(Dtype::F32, f64::from(f32::from_bits(limit))), &ty);
        let size = self.cursor.elementwise(F::Abs, &[x], ty.clone());
        self.cursor.elementwise(F::Lt, &[size, limit], ty.with_dtype(Dtype::I1))
    }

    /// Replaces elements that are not finite with 0.
    fn or_zero(&mut self, x: Value) -> Value {
        let ty = self.cursor.function.ty(x).clone();
        let is_finite = self.is_below(x, f32::INFINITY.to_bits());
        let zero = self.splat(Literal::float(Dtype::F32, 0.0), &ty);
        self.cursor.elementwise(F::Select, &[is_finite, x, zero], ty)
    }

    fn cast(&mut self, x: Value, dtype: Dtype, rounding: Rounding) -> Value {
        let ty = self.cursor.function.ty(x).with_dtype(dtype);
        self.cursor.value(Op::Cast { element: Element::Value(dtype), rounding }, &[x], ty)
    }

    fn splat(&mut self, literal: Option<Literal>, like: &Type) -> Value {
        let literal = literal.expect("fp32 has literals");
        let ty = like.with_dtype(literal.dtype);
        let value = self.cursor.constant(literal);
        self.cursor.value(Op::Splat { shape: Shape::clone(&ty.shape) }, &[value], ty)
    }

    fn splat_int(&mut self, value: i64, like: &Type) -> Value {
        self.splat(Some(Literal::int(Dtype::I32, i128::from(value))), like)
    }
}
