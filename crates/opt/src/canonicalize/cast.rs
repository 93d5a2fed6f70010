//! Folds and merges casts, and moves them before splats and broadcasts.

use tilewright_ir::{Dtype, Element, Op, Rounding, Shape, Type, Value};

use super::{Canonicalizer, fold};

impl Canonicalizer<'_> {
    pub(super) fn cast(
        &mut self,
        value: Value,
        element: Element,
        rounding: Rounding,
        ty: &Type,
    ) -> Option<Value> {
        let from = self.function.ty(value).element;
        // A cast to the same 8-bit format is no identity: it saturates infinities.
        if from == element && !element.value().is_some_and(Dtype::is_fp8) {
            return Some(value);
        }
        if let Some(folded) =
            self.constant(value).and_then(|constant| fold::cast(constant, element, rounding))
        {
            return Some(self.make_constant(folded, &ty.shape));
        }
        if let Some(source) = self.operand_of(value, |op| matches!(op, Op::Cast { .. }))
            && can_skip(self.function.ty(source).element, from, element)
        {
            return Some(self.make_cast(source, element, rounding, ty));
        }
        if ty.is_bool()
            && let Some(value) = self.truth_of_exclusive_or(value, ty)
        {
            return Some(value);
        }
        self.convert_before_splat(Op::Cast { element, rounding }, value, ty)
    }

    pub(super) fn bitcast(&mut self, value: Value, element: Element, ty: &Type) -> Option<Value> {
        if self.function.ty(value).element == element {
            return Some(value);
        }
        if let Some(folded) = self.constant(value).and_then(|constant| fold::bitcast(constant, element)) {
            return Some(self.make_constant(folded, &ty.shape));
        }
        if let Some(source) = self.operand_of(value, |op| matches!(op, Op::Bitcast { .. })) {
            return Some(self.make(Op::Bitcast { element }, &[source], ty));
        }
        self.convert_before_splat(Op::Bitcast { element }, value, ty)
    }

    fn convert_before_splat(&mut self, op: Op, value: Value, ty: &Type) -> Option<Value> {
        if let Some(scalar) = self.operand_of(value, |op| matches!(op, Op::Splat { .. })) {
            let result = self.make(op, &[scalar], &ty.with_shape(Shape::scalar()));
            return Some(self.make_splat(result, &ty.shape));
        }
        self.before_broadcast(&op, &[value], ty)
    }
}

/// Returns whether casts to `middle` and then `target` equal the cast to `target`.
fn can_skip(source: Element, middle: Element, target: Element) -> bool {
    match (source, middle, target) {
        (Element::Value(source), Element::Value(middle), Element::Value(target)) => {
            can_skip_number(source, middle, target)
        }
        // Casts between pointers keep all bits, and only 64-bit integers are cast to pointers.
        (_, Element::Pointer(_), Element::Pointer(_))
        | (Element::Pointer(_), Element::Pointer(_), Element::Value(_)) => true,
        (Element::Value(source), Element::Pointer(_), Element::Value(target)) => {
            source.is_int() && target.is_int()
        }
        (Element::Pointer(_), Element::Value(middle), Element::Pointer(_)) => middle.bits() == 64,
        (Element::Pointer(_), Element::Value(_), Element::Value(_))
        | (Element::Value(_), Element::Value(_), Element::Pointer(_)) => false,
    }
}

fn can_skip_number(source: Dtype, middle: Dtype, target: Dtype) -> bool {
    match (source.int_range(), middle.int_range(), target.int_range()) {
        (Some((low, high)), Some((middle_low, middle_high)), target_range) => {
            // The middle cast is redundant if its type represents every source number, or has all
            // bits that the target keeps.
            let keeps_value = middle_low <= low && high <= middle_high;
            let keeps_bits = target_range.is_some()
                && !target.is_bool()
                && !middle.is_bool()
                && target.bits() <= middle.bits();
            keeps_value || keeps_bits
        }
        (None, None, _) => holds_exactly(middle, source) && !target.is_fp8(),
        _ => false,
    }
}

/// Returns whether `outer` is a wider float that represents every number of `inner`.
fn holds_exactly(outer: Dtype, inner: Dtype) -> bool {
    matches!((inner, outer), (Dtype::F16 | Dtype::BF16, Dtype::F32 | Dtype::F64) | (Dtype::F32, Dtype::F64))
}
