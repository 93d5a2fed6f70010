//! Evaluates the arguments of `extern_elementwise`, whose dict becomes a tuple of pairs.

use ruff_python_ast::{Expr, ExprCall, ExprDict};

use super::arguments::Arguments;
use super::lowerer::{Lower, Lowerer};
use super::template::{self, IrOperand, from_host};
use crate::host::HostValue;
use crate::value::{Constant, Operand};

/// The only function of the language with a dict as an argument.
pub(super) const EXTERNAL: &str = "extern_elementwise";

/// Internal parameters of the official Triton, which some users' functions pass on.
const INTERNAL: &[&str] = &["_semantic", "_builder", "_generator"];

impl Arguments<'_> {
    /// Drops internal arguments such as `_semantic=_semantic`, which are `None` here.
    pub(super) fn drop_internal(&mut self) {
        let is_none = |value: &IrOperand| matches!(value, Operand::Constant(Constant::None));
        self.keywords.retain(|(name, (value, _), _)| !(INTERNAL.contains(&&**name) && is_none(value)));
    }
}

impl<'a> Lowerer<'a, '_, '_> {
    /// Evaluates the arguments of a call. Dicts become tuples of pairs.
    pub(super) fn external_arguments(&mut self, call: &'a ExprCall) -> Lower<Arguments<'a>> {
        let mut arguments = self.arguments_with(call, |lowerer, expression| match expression {
            Expr::Dict(dict) => lowerer.pairs(dict),
            other => lowerer.expression(other),
        })?;
        let positional = arguments.positional.iter_mut().map(|(value, _)| value);
        for value in positional.chain(arguments.keywords.iter_mut().map(|(_, (value, _), _)| value)) {
            if let Some(pairs) = self.pairs_of_object(value) {
                *value = pairs;
            }
        }
        Ok(arguments)
    }

    /// Converts a dict in the source of the kernel to a tuple of pairs.
    fn pairs(&mut self, dict: &'a ExprDict) -> Lower<IrOperand> {
        let mut pairs = Vec::with_capacity(dict.items.len());
        for item in &dict.items {
            let Some(key) = &item.key else {
                let span = self.span_of(&item.value);
                return Err(self.unsupported(span, "'**' in a dict", "write its items"));
            };
            let pair = vec![self.expression(key)?, self.expression(&item.value)?];
            pairs.push(template::tuple(pair));
        }
        Ok(template::tuple(pairs))
    }

    /// Converts a dict of the host to a tuple of pairs, or returns `None`.
    fn pairs_of_object(&mut self, value: &IrOperand) -> Option<IrOperand> {
        let (Operand::Object(object) | Operand::Constant(Constant::Object(object))) = value else {
            return None;
        };
        let host = &mut self.session.host;
        let object = HostValue::Object(*object);
        let keys = match host.operate("iter", std::slice::from_ref(&object))?.ok()? {
            HostValue::Tuple(keys) => keys.into_vec(),
            HostValue::Constant(Constant::Tuple(keys)) | HostValue::PlainGlobal(Constant::Tuple(keys)) => {
                keys.into_iter().map(HostValue::Constant).collect()
            }
            _ => return None,
        };
        let pair = |key: HostValue| {
            let found = host.operate("getitem", &[object.clone(), key.clone()])?.ok()?;
            let value = match found {
                HostValue::PlainGlobal(constant) => Operand::Constant(constant),
                other => from_host(other),
            };
            Some(template::tuple(vec![from_host(key), value]))
        };
        Some(template::tuple(keys.into_iter().map(pair).collect::<Option<_>>()?))
    }
}
