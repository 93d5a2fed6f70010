//! Simplifies floats by identities that hold for infinities, NaN and signed zeros.
//!
//! The 8-bit formats are excluded, because they saturate.

use tilewright_ir::{ElementwiseFn, Literal, Type, Value};

use super::Canonicalizer;

impl Canonicalizer<'_> {
    pub(super) fn float_binary(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        y: Value,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        if x == y && matches!(function, F::Min | F::Max | F::MinNan | F::MaxNan) {
            return Some(x);
        }
        if let Some(constant) = self.constant(y) {
            return self.float_with_constant(function, x, constant, ty);
        }
        // -0 - y is -y, but 0 - y differs from -y if y is 0.
        if function == F::Sub && self.is_constant(x, is_negative_zero) {
            return Some(self.make_elementwise(F::Neg, &[y], ty));
        }
        self.int_neg(function, x, y, ty)
    }

    fn float_with_constant(
        &mut self,
        function: ElementwiseFn,
        x: Value,
        constant: Literal,
        ty: &Type,
    ) -> Option<Value> {
        use ElementwiseFn as F;
        let value = constant.as_float()?;
        match function {
            // x + 0 differs from x if x is -0.
            F::Add if is_negative_zero(constant) => Some(x),
            F::Sub if constant.bits == 0 => Some(x),
            F::Mul | F::Div | F::DivRn if value == 1.0 => Some(x),
            F::Mul | F::Div | F::DivRn if value == -1.0 => Some(self.make_elementwise(F::Neg, &[x], ty)),
            F::Div | F::DivRn => {
                // The reciprocal of a power of two is exact, so quotient and product round the same
                // number once. The reciprocals of divisors between 2^-14 and 2^14 are subnormal in
                // no format.
                let reciprocal = Literal::float(constant.dtype, 1.0 / value)?;
                let mantissa_is_zero = value.to_bits() << 12 == 0;
                let is_exact =
                    mantissa_is_zero && value.is_normal() && reciprocal.as_float() == Some(1.0 / value);
                if !is_exact || value.abs() > 16384.0 || value.abs() < 1.0 / 16384.0 {
                    return None;
                }
                let reciprocal = self.make_constant(reciprocal, &ty.shape);
                Some(self.make_elementwise(F::Mul, &[x, reciprocal], ty))
            }
            // tidy: wildcard because the others have no neutral element for all floats
            _ => None,
        }
    }
}

fn is_negative_zero(literal: Literal) -> bool {
    literal.as_float().is_some_and(|value| value == 0.0 && value.is_sign_negative())
}
