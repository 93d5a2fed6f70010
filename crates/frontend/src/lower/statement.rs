//! Lowers statements other than branches and loops.
//!
//! If a statement has an error, the names that it assigns are *poisoned*: their later uses report
//! no error.

use ruff_python_ast::{Expr, Stmt, StmtAnnAssign, StmtAssert, StmtAugAssign};
use ruff_text_size::Ranged;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::Builder as _;

use super::expression::binary_operator;
use super::function::is_constexpr;
use super::lowerer::{Lower, Lowerer, Reported};
use super::scope::{self, Binding};
use super::template::{self, IrOperand};
use crate::semantic;
use crate::value::{Constant, Operand};

impl<'a> Lowerer<'a, '_, '_> {
    /// Lowers statements until all paths have returned. If only some have, the rest is guarded.
    pub(crate) fn block(&mut self, body: &'a [Stmt]) {
        for (index, statement) in body.iter().enumerate() {
            self.statement(statement);
            match self.exit.is_done() {
                Some(false) => {}
                Some(true) => return,
                None => {
                    let rest = &body[index + 1..];
                    let span = self.span_of(statement);
                    if !rest.is_empty() && self.deeper(span, |this| this.guarded(rest, span)).is_err() {
                        self.poison(rest);
                    }
                    return;
                }
            }
        }
    }

    pub(crate) fn statement(&mut self, statement: &'a Stmt) {
        let span = self.span_of(statement);
        let result = self.deeper(span, |this| {
            this.at(span);
            if this.is_too_large() {
                return Err(this.too_large(span));
            }
            this.execute(statement, span)
        });
        if result.is_err() {
            self.poison(std::slice::from_ref(statement));
        }
    }

    /// Marks the names that statements assign as errors that have been reported.
    pub(crate) fn poison(&mut self, body: &'a [Stmt]) {
        for name in scope::assigned(body, &|_| None) {
            self.scope.insert(name, Binding::poisoned(self.span));
        }
    }

    fn execute(&mut self, statement: &'a Stmt, span: Span) -> Lower<()> {
        match statement {
            Stmt::Assign(assign) => {
                let value = self.expression(&assign.value);
                let at = self.span_of(&*assign.value);
                for target in &assign.targets {
                    let value = match &value {
                        // The annotation of a field determines whether the value remains a
                        // compile-time value.
                        Ok(value) if target.is_attribute_expr() => Ok(value.clone()),
                        Ok(value) => self.decay_all(value),
                        Err(reported) => Err(*reported),
                    };
                    self.assign_target(target, value, at);
                }
                Ok(())
            }
            Stmt::AnnAssign(assign) => {
                self.annotated(assign);
                Ok(())
            }
            Stmt::AugAssign(assign) => self.augmented(assign, span),
            Stmt::Expr(expression) => {
                // A docstring or another literal.
                if expression.value.is_literal_expr() || expression.value.is_ellipsis_literal_expr() {
                    return Ok(());
                }
                if let Some(result) = self.base_constructor(&expression.value) {
                    return result;
                }
                let value = self.discarded(&expression.value)?;
                self.keep_promise(&expression.value, &value);
                Ok(())
            }
            Stmt::If(branch) => self.branch(&branch.test, &branch.body, &branch.elif_else_clauses),
            Stmt::For(each) => self.for_statement(each, span),
            Stmt::While(each) => self.while_statement(each, span),
            Stmt::Pass(_) => Ok(()),
            Stmt::Return(statement) if self.loop_depth == 0 => self.early_return(statement),
            Stmt::Assert(assert) => self.assertion(assert, span),
            Stmt::With(with) => self.with_statement(with, span),
            _ => Err(self.unsupported_statement(statement, span)),
        }
    }

    /// Rebinds the name in `tl.multiple_of(pointers, 16)` to the result of the hint. In Triton, the
    /// statement marks the value itself.
    fn keep_promise(&mut self, expression: &'a Expr, value: &IrOperand) {
        let (Expr::Call(call), Operand::Tensor(promised)) = (expression, value) else { return };
        let Some(Expr::Name(name)) = call.arguments.args.first() else { return };
        let Some(binding) = self.scope.get(name.id.as_str()) else { return };
        let scope::NameState::Value(Operand::Tensor(known)) = binding.state else { return };
        let (function, span) = (&self.builder.function, binding.span);
        let tilewright_ir::Definition::Result(inst, _) = function.values[*promised].definition else {
            return;
        };
        let data = &function.insts[inst];
        if matches!(data.op, tilewright_ir::Op::Hint { .. }) && data.operands[..] == [known] {
            self.bind(name.id.as_str(), Binding::value(value.clone(), span));
        }
    }

    fn unsupported_statement(&mut self, statement: &Stmt, span: Span) -> Reported {
        const OUTSIDE: &str = "move it out of the kernel, to the top of the module";
        let (keyword, construct, hint) = match statement {
            Stmt::Return(_) => (
                6,
                "'return' inside a loop",
                "assign the result to a name and return it after the loop; mask what must not happen any more",
            ),
            Stmt::Break(_) => (
                5,
                "'break'",
                "a loop runs to its end: put the condition for going on into `while`, as in \
                 `while (i < n) & (found == 0):`; or leave out what must not happen any more, with `if` for scalars and \
                 `tl.where` or a mask for tiles",
            ),
            Stmt::Continue(_) => (
                8,
                "'continue'",
                "put the rest of the body under an `if` with the opposite condition; for tiles, mask it or choose with \
                 `tl.where`",
            ),
            Stmt::FunctionDef(function) => {
                let at = self.span_of(&function.name);
                return self.unsupported(at, "a nested function", OUTSIDE);
            }
            Stmt::ClassDef(class) => {
                let at = self.span_of(&class.name);
                return self.unsupported(at, "a class", OUTSIDE);
            }
            Stmt::Import(_) | Stmt::ImportFrom(_) => (6, "an import", OUTSIDE),
            Stmt::Global(_) => (6, "'global'", "pass the value as an argument and return the new one"),
            Stmt::Nonlocal(_) => (8, "'nonlocal'", "pass the value as an argument and return the new one"),
            Stmt::Try(_) => (3, "'try'", "a kernel raises no exceptions: test the condition with `if`"),
            Stmt::Raise(_) => (5, "'raise'", "use tl.static_assert or tl.device_assert"),
            Stmt::Match(_) => (5, "'match'", "use if, elif and else"),
            Stmt::Delete(_) => (3, "'del'", "leave it out: values live as long as they are used"),
            Stmt::TypeAlias(_) => (4, "a type alias", OUTSIDE),
            _ => (0, "this statement", ""),
        };
        let mut at = span;
        if keyword > 0 {
            at.end = at.end.min(at.start + keyword);
        }
        self.unsupported(at, construct, hint)
    }

    /// Lowers `name: annotation = value`.
    fn annotated(&mut self, assign: &'a StmtAnnAssign) {
        let Some(expression) = &assign.value else { return };
        let at = self.span_of(&**expression);
        let value = self.expression(expression);
        if !is_constexpr(Some(&assign.annotation)) {
            let value = value.and_then(|value| self.decay_all(&value));
            self.assign_target(&assign.target, value, at);
            return;
        }
        // As in Triton, the annotation preserves a compile-time value. An op that needs one reports
        // a run-time value.
        let value = value.map(|value| match self.as_constant(&value) {
            Some(constant) if !template::values(&value).is_empty() => Operand::Constant(constant),
            _ => value,
        });
        self.assign_target(&assign.target, value, at);
    }

    /// Lowers `name op= value`.
    fn augmented(&mut self, assign: &'a StmtAugAssign, span: Span) -> Lower<()> {
        let old = match &*assign.target {
            Expr::Name(target) => self.name(target),
            Expr::Attribute(attribute) if self.callee.constructs().is_some() => self.attribute(attribute),
            Expr::Subscript(_) => self.expression(&assign.target),
            other => return Err(self.bad_target(other)),
        };
        let value = self.expression(&assign.value);
        let result = match (old, value) {
            (Ok(old), Ok(value)) => {
                let operator = binary_operator(assign.op);
                self.binary(operator, (&old, Some(&assign.target)), (&value, Some(&assign.value)), span)
                    .and_then(|value| self.decay_all(&value))
            }
            _ => Err(Reported),
        };
        self.assign_target(&assign.target, result, span);
        Ok(())
    }

    /// Binds the names of a target, or poisons them if the evaluation of `value` failed.
    pub(crate) fn assign_target(&mut self, target: &'a Expr, value: Lower<IrOperand>, at: Span) {
        match target {
            Expr::Name(name) => {
                let span = self.span_of(name);
                let binding = match value {
                    Ok(value) => Binding::value(value, span),
                    Err(Reported) => Binding::poisoned(span),
                };
                self.bind(name.id.as_str(), binding);
            }
            Expr::Tuple(tuple) => self.unpack(&tuple.elts, value, at),
            Expr::List(list) => self.unpack(&list.elts, value, at),
            Expr::Attribute(attribute) if self.callee.constructs().is_some() => {
                // The error has been reported, and the field remains unset.
                let _ = value.and_then(|value| self.set_field(attribute, &value, at));
            }
            Expr::Subscript(subscript) if subscript.value.is_name_expr() => {
                let result = value.and_then(|value| self.set_item(subscript, value, at));
                if let (Err(Reported), Expr::Name(name)) = (result, &*subscript.value) {
                    self.bind(name.id.as_str(), Binding::poisoned(at));
                }
            }
            other => {
                self.bad_target(other);
            }
        }
    }

    pub(crate) fn bad_target(&mut self, target: &Expr) -> Reported {
        let span = self.span_of(target);
        match target {
            Expr::Subscript(_) => self.item_of_tile(span),
            Expr::Starred(_) => self.unsupported(span, "'*' in an assignment", "name the items"),
            _ => {
                let hint = "use a name of its own; the copy of an object with other fields is `tl.aggregate_replace(x, field=value)`";
                self.unsupported(span, "an assignment to an attribute", hint)
            }
        }
    }

    pub(crate) fn item_of_tile(&mut self, span: Span) -> Reported {
        let hint = "a tile does not change, and a pointer is not indexed: write to memory with `tl.store(ptr + i, value)`, \
                    or choose with tl.where";
        self.unsupported(span, "an assignment to an element", hint)
    }

    fn unpack(&mut self, targets: &'a [Expr], value: Lower<IrOperand>, at: Span) {
        let items = value.and_then(|value| {
            let Some(items) = template::items(&value) else {
                let what = self.describe(&value);
                let message = format!("{what} cannot be unpacked into {} names", targets.len());
                let diagnostic = Diagnostic::at(Code::TypeMismatch, at, message);
                return Err(self.report(match value {
                    Operand::Tensor(value) if self.builder.type_of(&value).is_scalar() => {
                        diagnostic.hint("it is one number: assign it to one name")
                    }
                    Operand::Tensor(_) => diagnostic.hint(
                        "take parts of a tile by slices, `x[0]` and `x[1]`, or halves along its last axis with `tl.split(x)`",
                    ),
                    _ => diagnostic,
                }));
            };
            if items.len() == targets.len() {
                return Ok(items);
            }
            let message = format!("{} values cannot be unpacked into {} names", items.len(), targets.len());
            let diagnostic = Diagnostic::new(Code::TypeMismatch, message)
                .primary(at, format!("this is a tuple of {}", items.len()));
            Err(self.report(diagnostic))
        });
        match items {
            Ok(items) => {
                for (target, item) in targets.iter().zip(items) {
                    self.assign_target(target, Ok(item), at);
                }
            }
            Err(reported) => {
                for target in targets {
                    self.assign_target(target, Err(reported), at);
                }
            }
        }
    }

    pub(crate) fn bind(&mut self, name: &'a str, binding: Binding) {
        match &binding.state {
            scope::NameState::Value(Operand::Tensor(value)) => self.builder.name(*value, name),
            scope::NameState::Value(Operand::Shared(shared)) => {
                if let Operand::Tensor(memory) = shared.memory {
                    self.builder.name(memory, name);
                }
            }
            _ => {}
        }
        self.scope.insert(name, binding);
    }

    /// Converts a compile-time number to a scalar of its natural type, except in a
    /// `constexpr_function`.
    pub(crate) fn decay(&mut self, value: &IrOperand) -> Lower<IrOperand> {
        match value {
            Operand::Constant(Constant::Bool(_) | Constant::Int(_) | Constant::Float(_))
                if !self.keeps_constants =>
            {
                let span = self.span;
                let result = semantic::to_tensor(self, value);
                result.map(Operand::Tensor).map_err(|error| self.semantic_error(error, span, &[]))
            }
            other => Ok(other.clone()),
        }
    }

    /// Converts a value as a plain assignment does in Triton: numbers, also in tuples, become
    /// scalars of their natural type. [`as_constant`](Self::as_constant) still returns their
    /// values.
    pub(crate) fn decay_all(&mut self, value: &IrOperand) -> Lower<IrOperand> {
        if let Operand::Descriptor(descriptor) = value {
            let span = self.span;
            let decayed = semantic::decay_descriptor(self, descriptor);
            return decayed.map_err(|error| self.semantic_error(error, span, &[]));
        }
        match template::items(value) {
            // Annotations determine whether the fields of an object are compile-time values.
            _ if template::class_of(value).is_some() => Ok(value.clone()),
            Some(all) if !self.keeps_constants => {
                let items: Lower<Vec<_>> = all.iter().map(|item| self.decay_all(item)).collect();
                items.map(|decayed| template::whole(all.with_items(decayed)))
            }
            _ => self.decay(value),
        }
    }

    /// Lowers an `assert`, which the kernel checks with `debug`. A false condition is no error of
    /// the compilation: it may be known only because an argument is 1. A `tl.static_assert` is
    /// always checked.
    fn assertion(&mut self, assert: &'a StmtAssert, span: Span) -> Lower<()> {
        let condition = self.expression(&assert.test)?;
        let message = match &assert.msg {
            Some(expression) => {
                let value = self.expression(expression)?;
                let Some(constant) = self.as_constant(&value) else {
                    let at = self.span_of(&**expression);
                    return Err(self.not_constant(at, expression, &value, "the message of an assertion"));
                };
                crate::value::to_str(&constant)
            }
            None => String::new(),
        };
        self.at(span);
        let result = semantic::assert_(self, &condition, &message);
        result.map_err(|error| self.semantic_error(error, span, &[Some(&assert.test)]))
    }

    /// Returns an empty range at the start of a node, for errors about a missing part.
    pub(crate) fn start_of(&self, node: &impl Ranged) -> Span {
        let span = self.span_of(node);
        Span { end: span.start, ..span }
    }
}
