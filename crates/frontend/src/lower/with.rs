//! Lowers `with` statements of objects whose class has `__enter__` and `__exit__`.

use ruff_python_ast::{Stmt, StmtWith};
use tilewright_base::Span;

use super::arguments::Arguments;
use super::lowerer::{Lower, Lowerer};
use super::template::IrOperand;
use crate::parse::blocks_of;
use crate::value::{Constant, Operand};

impl<'a> Lowerer<'a, '_, '_> {
    /// Calls `__enter__` of each object, executes the body, and calls `__exit__` in reverse order,
    /// with None as arguments: kernels have no exceptions.
    pub(crate) fn with_statement(&mut self, with: &'a StmtWith, span: Span) -> Lower<()> {
        let mut keyword = span;
        keyword.end = keyword.end.min(keyword.start + 4);
        if with.is_async {
            return Err(self.unsupported(keyword, "'async with'", ""));
        }
        if let Some(statement) = first_return(&with.body) {
            let mut at = self.span_of(statement);
            at.end = at.end.min(at.start + 6);
            let hint =
                "assign the result to a name and return it after the block, so that the block has ended";
            return Err(self.unsupported(at, "'return' inside 'with'", hint));
        }
        let mut entered: Vec<(IrOperand, Span)> = Vec::new();
        for item in &with.items {
            let at = self.span_of(&item.context_expr);
            let object = self.expression(&item.context_expr)?;
            let methods =
                (self.member_of(&object, "__enter__", at)?, self.member_of(&object, "__exit__", at)?);
            let (Some(enter), Some(exit)) = methods else {
                let what = self.describe(&object);
                let hint = "`with` takes an object of a `triton.aggregate` with methods `__enter__` and `__exit__`, such as \
                            `pl.scope(\"name\")` of triton.profiler.language";
                return Err(self.unsupported(at, &format!("'with' of {what}"), hint));
            };
            let value = self.call_operand(&enter, Arguments::default(), at, at);
            match &item.optional_vars {
                Some(target) => self.assign_target(target, value, at),
                None => drop(value?),
            }
            entered.push((exit, at));
        }
        self.block(&with.body);
        for (exit, at) in entered.into_iter().rev() {
            let none = || (Operand::Constant(Constant::None), None);
            let positional = vec![none(), none(), none()];
            self.call_operand(&exit, Arguments { positional, keywords: Vec::new() }, at, at)?;
        }
        Ok(())
    }
}

/// Returns the first `return` in statements, at any depth.
fn first_return(body: &[Stmt]) -> Option<&Stmt> {
    body.iter().find_map(|statement| match statement {
        Stmt::Return(_) => Some(statement),
        Stmt::FunctionDef(_) | Stmt::ClassDef(_) => None,
        _ => blocks_of(statement).into_iter().find_map(first_return),
    })
}
