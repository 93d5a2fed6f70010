//! Lowers `if`, the conditional expression, and early returns.
//!
//! A compile-time condition selects a path. A run-time condition creates two regions, whose results
//! are merged. Statements after an `if` with a `return` become conditional:
//!
//! - If at most one path continues, the rest of the function moves into that path (`tail`).
//! - If several paths continue, each path yields its [`Exit`]: a flag that it has returned, and the
//!   result. The rest is emitted once, guarded by the flag. Copies in each path would double the
//!   code at each `if`.

use ruff_python_ast::{ElifElseClause, Expr, ExprIf, Stmt, StmtReturn};
use smallvec::smallvec;
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{Block, Builder, Dtype, Element, Literal, Op, Rounding, RuleError, Shape, Type, Value};

use super::exit::{Exit, Returned};
use super::lowerer::{Lower, Lowerer, Reported};
use super::scope::{self, Binding, NameState, Scope, open_paths, returns};
use super::template::{self, IrOperand, Template, constant_truth};
use crate::constexpr::identical;
use crate::value::{Constant, Operand};

/// The statements after an `if` that may return, up to the end of the function.
pub(crate) struct Rest<'a, 'r> {
    body: &'a [Stmt],
    next: Option<&'r Rest<'a, 'r>>,
}

impl Rest<'_, '_> {
    fn is_empty(&self) -> bool {
        self.body.is_empty() && self.next.is_none_or(Rest::is_empty)
    }
}

/// The end of one of two paths: its block, the values of names at the end, and its exit.
struct End<'a> {
    block: Block,
    scope: Scope<'a>,
    exit: Exit,
}

/// The values that two paths yield, and the names of the results of the `if`.
#[derive(Default)]
struct Joined<'a> {
    yields: [Vec<Value>; 2],
    names: Vec<(&'a str, Template, Span)>,
}

/// The end of one of two paths: its block, and the value of a name or expression.
struct PathEnd {
    block: Block,
    value: IrOperand,
    span: Span,
}

/// The common type of two merged values, and the parts that each path yields.
struct Merged {
    template: Template,
    parts: [Vec<Value>; 2],
}

/// Returns whether statements end with a `return`.
fn returns_last(body: &[Stmt]) -> bool {
    matches!(body.last(), Some(Stmt::Return(_)))
}

const ONE_BRANCH: &str = "only assigned in this branch";

impl<'a> Lowerer<'a, '_, '_> {
    /// Lowers an `if`. Afterwards, [`Lowerer::exit`] states whether the function has returned.
    pub(crate) fn branch(
        &mut self,
        mut test: &'a Expr,
        mut body: &'a [Stmt],
        mut clauses: &'a [ElifElseClause],
    ) -> Lower<()> {
        // Branches that are discarded at compile time add no nesting.
        let condition = loop {
            let condition = self.expression(test)?;
            match constant_truth(&condition) {
                Some(true) => {
                    self.block(body);
                    return Ok(());
                }
                Some(false) => {}
                None => break condition,
            }
            let Some((next, others)) = clauses.split_first() else { return Ok(()) };
            let Some(condition) = &next.test else {
                self.block(&next.body);
                return Ok(());
            };
            (test, body, clauses) = (condition, &next.body, others);
        };
        let span = self.span_of(test);
        let condition = self.truth(&condition, test)?;
        let mut names = scope::assigned(body, &|_| None);
        for clause in clauses {
            let tested = clause.test.iter().flat_map(scope::assigned_in);
            for name in tested.chain(scope::assigned(&clause.body, &|_| None)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let then = self.lower_path(|this| this.block(body));
        let otherwise = self.lower_path(|this| this.otherwise(clauses, span));
        self.at(span);
        self.join(condition, [then, otherwise], &names)
    }

    fn lower_path(&mut self, lower: impl FnOnce(&mut Self)) -> End<'a> {
        let before = self.scope.clone();
        let (block, outer) = self.begin_region([]);
        lower(self);
        self.end_region(outer);
        let scope = std::mem::replace(&mut self.scope, before);
        End { block, scope, exit: std::mem::take(&mut self.exit) }
    }

    /// Lowers the statements after an `if` with a `return`, so that they run only if it has not
    /// returned.
    pub(crate) fn guarded(&mut self, rest: &'a [Stmt], span: Span) -> Lower<()> {
        let exit = std::mem::take(&mut self.exit);
        let (Operand::Tensor(done), Some(result)) = (exit.done, exit.result) else { return Err(Reported) };
        let names = scope::assigned(rest, &|_| None);
        let then = self.lower_path(|this| this.exit = Exit::returned(result));
        let otherwise = self.lower_path(|this| this.block(rest));
        self.at(span);
        self.join(done, [then, otherwise], &names)
    }

    fn otherwise(&mut self, clauses: &'a [ElifElseClause], span: Span) {
        let Some((first, rest)) = clauses.split_first() else { return };
        match &first.test {
            None => self.block(&first.body),
            Some(test) => {
                let result = self.deeper(span, |this| this.branch(test, &first.body, rest));
                if result.is_err() {
                    for clause in clauses {
                        self.poison(&clause.body);
                    }
                }
            }
        }
    }

    /// Joins two branches: each assigned name gets the value of the branch that runs. A name
    /// without a value on one path becomes [`NameState::Lost`]. A branch that has returned
    /// contributes no value.
    fn join(&mut self, condition: Value, mut ends: [End<'a>; 2], names: &[&'a str]) -> Lower<()> {
        let blocks = [ends[0].block, ends[1].block];
        let mut joined = Joined::default();
        for &name in names {
            let bindings = ends.each_mut().map(|end| end.scope.remove(name));
            match ends.each_ref().map(|end| end.exit.is_done() == Some(true)) {
                [true, true] => {}
                [true, false] => self.adopt(name, bindings, 1, blocks, &mut joined)?,
                [false, true] => self.adopt(name, bindings, 0, blocks, &mut joined)?,
                [false, false] => self.join_name(name, bindings, blocks, &mut joined),
            }
        }
        let span = self.span;
        let exit = self.join_exits(ends.map(|end| end.exit), blocks, &mut joined.yields)?;
        let mut results = self.emit_if(condition, blocks, joined.yields, span)?.into_iter();
        for (name, template, span) in joined.names {
            if let Some(value) = template::fill(&template, &mut results) {
                self.bind(name, Binding::value(value, span));
            }
        }
        let mut fill = |template: &Template| template::fill(template, &mut results).ok_or(Reported);
        let done = fill(&exit.0)?;
        let result = match exit.1 {
            Some((template, returned)) => Some(Returned { value: fill(&template)?, ..returned }),
            None => None,
        };
        self.exit = Exit { done, result };
        Ok(())
    }

    /// Merges the values of a name at the ends of two paths.
    fn join_name(
        &mut self,
        name: &'a str,
        bindings: [Option<Binding>; 2],
        blocks: [Block; 2],
        joined: &mut Joined<'a>,
    ) {
        let [left, right] = match bindings {
            [None, None] => return,
            [Some(binding), None] | [None, Some(binding)] => {
                let is_poisoned = matches!(binding.state, NameState::Poisoned);
                let lost = Binding::lost(binding.span, ONE_BRANCH);
                self.scope.insert(name, if is_poisoned { binding } else { lost });
                return;
            }
            [Some(left), Some(right)] => [left, right],
        };
        let (left_span, right_span) = (left.span, right.span);
        let binding = match (left.state, right.state) {
            (NameState::Poisoned, _) | (_, NameState::Poisoned) => Binding::poisoned(left_span),
            (NameState::Lost(why), _) => Binding::lost(left_span, why),
            (_, NameState::Lost(why)) => Binding::lost(right_span, why),
            (NameState::Value(left), NameState::Value(right)) => {
                if template::same(&left, &right, &|left, right| left == right) {
                    Binding::value(left, left_span)
                } else {
                    let paths = [
                        PathEnd { block: blocks[0], value: left, span: left_span },
                        PathEnd { block: blocks[1], value: right, span: right_span },
                    ];
                    match self.merge(paths, &format!("'{name}'"), Code::BranchMismatch) {
                        Ok(Merged { template, parts: [left, right] }) => {
                            joined.yields[0].extend(left);
                            joined.yields[1].extend(right);
                            joined.names.push((name, template, left_span));
                            return;
                        }
                        Err(Reported) => Binding::poisoned(left_span),
                    }
                }
            }
        };
        self.scope.insert(name, binding);
    }

    /// Binds a name to its value on one path, because the other path has returned.
    fn adopt(
        &mut self,
        name: &'a str,
        mut bindings: [Option<Binding>; 2],
        path: usize,
        blocks: [Block; 2],
        joined: &mut Joined<'a>,
    ) -> Lower<()> {
        let Some(binding) = bindings[path].take() else {
            self.scope.remove(name);
            return Ok(());
        };
        let NameState::Value(value) = &binding.state else {
            self.scope.insert(name, binding);
            return Ok(());
        };
        let values = template::values(value);
        let is_unchanged = self.scope.get(name).is_some_and(|before| match &before.state {
            NameState::Value(before) => template::same(before, value, &|left, right| left == right),
            _ => false,
        });
        if values.is_empty() || is_unchanged {
            self.scope.insert(name, binding);
            return Ok(());
        }
        let template = template::of(value, &self.builder.function);
        joined.yields[1 - path].extend(self.placeholders(&template, blocks[1 - path])?);
        joined.yields[path].extend(values);
        joined.names.push((name, template, binding.span));
        Ok(())
    }

    /// Merges the exits of two paths. Returns the templates of the flag and of the result.
    fn join_exits(
        &mut self,
        exits: [Exit; 2],
        blocks: [Block; 2],
        yields: &mut [Vec<Value>; 2],
    ) -> Lower<(Template, Option<(Template, Returned)>)> {
        let done = match exits.each_ref().map(Exit::is_done) {
            [Some(left), Some(right)] if left == right => Operand::Constant(Constant::Bool(left)),
            _ => {
                for ((exit, block), yields) in exits.iter().zip(blocks).zip(yields.iter_mut()) {
                    yields.push(self.flag(&exit.done, block)?);
                }
                Operand::Tensor(Type::scalar(Dtype::I1))
            }
        };
        let (template, returned) = match exits.map(|exit| exit.result) {
            [None, None] => return Ok((done, None)),
            [Some(left), Some(right)] => {
                let returned = left.clone();
                let paths = [
                    PathEnd { block: blocks[0], value: left.value, span: left.span },
                    PathEnd { block: blocks[1], value: right.value, span: right.span },
                ];
                let merged = self.merge(paths, "the result", Code::ReturnMismatch)?;
                for (yields, part) in yields.iter_mut().zip(merged.parts) {
                    yields.extend(part);
                }
                (merged.template, returned)
            }
            [Some(returned), None] => {
                let template = template::of(&returned.value, &self.builder.function);
                yields[0].extend(template::values(&returned.value));
                yields[1].extend(self.placeholders(&template, blocks[1])?);
                (template, returned)
            }
            [None, Some(returned)] => {
                let template = template::of(&returned.value, &self.builder.function);
                yields[0].extend(self.placeholders(&template, blocks[0])?);
                yields[1].extend(template::values(&returned.value));
                (template, returned)
            }
        };
        Ok((done, Some((template, returned))))
    }

    /// Converts a compile-time bool or an int1 to an int1 at the end of a block.
    fn flag(&mut self, value: &IrOperand, block: Block) -> Lower<Value> {
        if let Operand::Tensor(value) = value {
            return Ok(*value);
        }
        let literal = Literal::bool(constant_truth(value) == Some(true));
        let outer = self.builder.switch_to(block);
        let constant = self.builder.constant(literal);
        self.builder.switch_to(outer);
        let span = self.span;
        constant.map_err(|error| self.rule_error(span, error))
    }

    /// Emits a value of each type at the end of a block, for a path on which the value is unused.
    fn placeholders(&mut self, template: &Template, block: Block) -> Lower<Vec<Value>> {
        let outer = self.builder.switch_to(block);
        let values: Result<Vec<Value>, _> =
            template::values(template).iter().map(|ty| self.placeholder(ty)).collect();
        self.builder.switch_to(outer);
        let span = self.span;
        values.map_err(|error| self.rule_error(span, error))
    }

    fn placeholder(&mut self, ty: &Type) -> Result<Value, RuleError> {
        let scalar = match ty.element {
            Element::Value(dtype) => {
                let zero = Literal::float(dtype, 0.0).unwrap_or_else(|| Literal::int(dtype, 0));
                self.builder.constant(zero)?
            }
            // A parameter of the function is better than a null pointer. It is read-only if its
            // memory is.
            Element::Pointer(_) => {
                let function = &self.builder.function;
                let parameters = &function.blocks[function.entry].parameters;
                let pointer = Type::new(ty.element, Shape::scalar());
                let same = parameters.iter().find(|&&parameter| *function.ty(parameter) == pointer);
                if let Some(&parameter) = same {
                    parameter
                } else {
                    let zero = self.builder.constant(Literal::int(Dtype::I64, 0))?;
                    self.builder.cast(zero, ty.element, Rounding::default())?
                }
            }
        };
        if ty.is_scalar() { Ok(scalar) } else { self.builder.splat(scalar, ty.shape.clone()) }
    }

    fn emit_if(
        &mut self,
        condition: Value,
        blocks: [Block; 2],
        yields: [Vec<Value>; 2],
        span: Span,
    ) -> Lower<Vec<Value>> {
        let mut result = Ok(());
        let paths = yields.clone();
        for (block, values) in blocks.into_iter().zip(yields) {
            let outer = self.builder.switch_to(block);
            result = result.and(self.builder.yield_values(values));
            self.builder.switch_to(outer);
        }
        self.at(span);
        let emitted = result
            .and_then(|()| self.builder.emit(Op::If {}, smallvec![condition], blocks.into_iter().collect()));
        let results = emitted.map_err(|error| self.rule_error(span, error))?.to_vec();
        for path in paths {
            self.pass_on_read_only(path.into_iter(), &results);
        }
        Ok(results)
    }

    /// Merges the values of two paths. Compile-time numbers become scalars, except two identical
    /// results of a function. Reports values of different types.
    fn merge(&mut self, paths: [PathEnd; 2], what: &str, code: Code) -> Lower<Merged> {
        let [left, right] = paths;
        if let (Code::ReturnMismatch, Operand::Constant(one), Operand::Constant(other)) =
            (code, &left.value, &right.value)
            && identical(one, other)
        {
            return Ok(Merged { template: Operand::Constant(one.clone()), parts: [Vec::new(), Vec::new()] });
        }
        let mut decayed = |path: &PathEnd| {
            let outer = self.builder.switch_to(path.block);
            let value = self.decay_all(&path.value);
            self.builder.switch_to(outer);
            value
        };
        let (left_value, right_value) = (decayed(&left), decayed(&right));
        let (left_value, right_value) = (left_value?, right_value?);
        let function = &self.builder.function;
        let template = template::of(&left_value, function);
        let other = template::of(&right_value, function);
        if template::same(&template, &other, &|left, right| left == right) {
            let parts = [template::values(&left_value), template::values(&right_value)];
            return Ok(Merged { template, parts });
        }
        let (found, expected) = (template::describe(&other), template::describe(&template));
        let message = match code {
            Code::ReturnMismatch => "the function returns values of different types".to_owned(),
            _ => format!("{what} has different types after the branches"),
        };
        let diagnostic = Diagnostic::new(code, message)
            .primary(right.span, format!("{found} here"))
            .secondary(left.span, format!("{expected} here"))
            .note(format!("found {found}, expected {expected}"))
            .hint(template::how_to_unify(&template, &other));
        Err(self.report(diagnostic))
    }

    pub(crate) fn conditional_value(
        &mut self,
        condition: Value,
        ternary: &'a ExprIf,
        span: Span,
    ) -> Lower<IrOperand> {
        let mut path = |expression: &'a Expr| {
            let before = self.scope.clone();
            let (block, outer) = self.begin_region([]);
            let value = self.expression(expression);
            self.end_region(outer);
            self.scope = before;
            value.map(|value| PathEnd { block, value, span: self.span_of(expression) })
        };
        let (left, right) = (path(&ternary.body), path(&ternary.orelse));
        let (left, right) = (left?, right?);
        if template::same(&left.value, &right.value, &|left, right| left == right)
            && template::values(&left.value).is_empty()
        {
            return Ok(left.value);
        }
        let blocks = [left.block, right.block];
        self.at(span);
        let merged = self.merge([left, right], "the conditional expression", Code::BranchMismatch)?;
        let results = self.emit_if(condition, blocks, merged.parts, span)?;
        template::fill(&merged.template, &mut results.into_iter()).ok_or(Reported)
    }

    /// Lowers `body` and then `rest`, to the end of the function. Both may contain a `return`.
    pub(crate) fn tail(&mut self, body: &'a [Stmt], rest: Option<&Rest<'a, '_>>) -> Lower<Returned> {
        for (index, statement) in body.iter().enumerate() {
            match statement {
                Stmt::Return(statement) => return self.returned(statement),
                Stmt::If(branch) if returns(std::slice::from_ref(statement)) => {
                    let rest = Rest { body: &body[index + 1..], next: rest };
                    let span = self.span_of(statement);
                    if self.is_too_large() {
                        return Err(self.too_large(span));
                    }
                    let decide = |test: &Expr| self.foreseen(test);
                    if rest.is_empty() || open_paths(std::slice::from_ref(statement), &decide) <= 1 {
                        return self.deeper(span, |this| {
                            this.tail_branch(&branch.test, &branch.body, &branch.elif_else_clauses, &rest)
                        });
                    }
                    return self.tail_after(statement, &rest, span);
                }
                other => self.statement(other),
            }
        }
        if let Some(rest) = rest {
            self.tail(rest.body, rest.next)
        } else {
            let name = self.span_of(&self.definition.name);
            let span = body.last().map_or(name, |last| self.span_of(last));
            let value = self.constructed()?.unwrap_or(Operand::Constant(Constant::None));
            Ok(Returned { value, span, is_explicit: self.callee.constructs().is_some() })
        }
    }

    /// Lowers an `if` after which several paths continue, and the statements after it once.
    fn tail_after(&mut self, statement: &'a Stmt, rest: &Rest<'a, '_>, span: Span) -> Lower<Returned> {
        let errors = self.session.diagnostics.len();
        self.statement(statement);
        let Exit { done, result } = std::mem::take(&mut self.exit);
        match (done, result) {
            (Operand::Tensor(done), Some(result)) => self.deeper(span, |this| {
                let (then, outer) = this.begin_region([]);
                this.end_region(outer);
                let (otherwise, outer) = this.begin_region([]);
                let right = this.tail(rest.body, rest.next);
                this.end_region(outer);
                this.merge_returned(done, (then, result), (otherwise, right?), span)
            }),
            (done, Some(result)) if constant_truth(&done) == Some(true) => self.before_others(result),
            _ => {
                let returned = self.tail(rest.body, rest.next);
                if self.session.diagnostics.len() > errors { Err(Reported) } else { returned }
            }
        }
    }

    /// Converts the result of a `return` to a run-time value, as Triton does even if it discards
    /// the statements after the `return`.
    fn before_others(&mut self, mut returned: Returned) -> Lower<Returned> {
        self.at(returned.span);
        returned.value = self.decay_all(&returned.value)?;
        Ok(returned)
    }

    /// Lowers a `return` in an `if` after which several paths continue.
    pub(crate) fn early_return(&mut self, statement: &'a StmtReturn) -> Lower<()> {
        self.exit = Exit::returned(self.returned(statement)?);
        Ok(())
    }

    fn returned(&mut self, statement: &'a StmtReturn) -> Lower<Returned> {
        let span = self.span_of(statement);
        if let Some(value) = self.constructed()? {
            return Ok(Returned { value, span, is_explicit: true });
        }
        let Some(expression) = &statement.value else {
            return Ok(Returned { value: Operand::Constant(Constant::None), span, is_explicit: true });
        };
        let mut value = self.expression(expression)?;
        self.at(span);
        // A compile-time value stays, because a caller may need it as an extent.
        if let Operand::Descriptor(_) = value {
            value = self.decay_all(&value)?;
        }
        if let Operand::Range(_) = value {
            return Err(self.unsupported(span, "a range as the result of a function", ""));
        }
        Ok(Returned { value, span: self.span_of(&**expression), is_explicit: true })
    }

    fn tail_branch(
        &mut self,
        mut test: &'a Expr,
        mut body: &'a [Stmt],
        mut clauses: &'a [ElifElseClause],
        rest: &Rest<'a, '_>,
    ) -> Lower<Returned> {
        let condition = loop {
            let condition = self.expression(test);
            match condition.as_ref().ok().and_then(constant_truth) {
                Some(true) if returns_last(body) && !rest.is_empty() => {
                    let returned = self.tail(body, Some(rest))?;
                    return self.before_others(returned);
                }
                Some(true) => return self.tail(body, Some(rest)),
                Some(false) => {}
                None => break condition,
            }
            match clauses.split_first() {
                Some((ElifElseClause { test: Some(condition), body: next, .. }, others)) => {
                    (test, body, clauses) = (condition, next, others);
                }
                _ => return self.tail_otherwise(clauses, rest),
            }
        };
        let span = self.span_of(test);
        let condition = match condition.and_then(|condition| self.truth(&condition, test)) {
            Ok(condition) => condition,
            Err(reported) => {
                self.poison(body);
                for clause in clauses {
                    self.poison(&clause.body);
                }
                return self.tail(rest.body, rest.next).and(Err(reported));
            }
        };
        let before = self.scope.clone();
        let (then, outer) = self.begin_region([]);
        let left = self.tail(body, Some(rest));
        self.end_region(outer);
        self.scope = before;
        let (otherwise, outer) = self.begin_region([]);
        let right = self.tail_otherwise(clauses, rest);
        self.end_region(outer);
        self.merge_returned(condition, (then, left?), (otherwise, right?), span)
    }

    /// Merges the results of two paths that return.
    fn merge_returned(
        &mut self,
        condition: Value,
        (then, left): (Block, Returned),
        (otherwise, right): (Block, Returned),
        span: Span,
    ) -> Lower<Returned> {
        let (left_span, is_explicit) = (left.span, left.is_explicit);
        if left.is_explicit != right.is_explicit {
            self.check_end(&left, &right)?;
        }
        let paths = [
            PathEnd { block: then, value: left.value, span: left.span },
            PathEnd { block: otherwise, value: right.value, span: right.span },
        ];
        self.at(span);
        let merged = self.merge(paths, "the result", Code::ReturnMismatch)?;
        let results = self.emit_if(condition, [then, otherwise], merged.parts, span)?;
        let value = template::fill(&merged.template, &mut results.into_iter()).ok_or(Reported)?;
        Ok(Returned { value, span: left_span, is_explicit })
    }

    /// Reports a function that returns a value on one path only.
    fn check_end(&mut self, left: &Returned, right: &Returned) -> Lower<()> {
        let (end, value) = if left.is_explicit { (right, left) } else { (left, right) };
        if matches!(value.value, Operand::Constant(Constant::None)) {
            return Ok(());
        }
        let found = self.describe(&value.value);
        let message = "the function returns a value on some paths only";
        let diagnostic = Diagnostic::new(Code::ReturnMismatch, message)
            .primary(end.span, "after this it ends without a value")
            .secondary(value.span, format!("{found} here"))
            .hint("return a value of this type at the end, too");
        Err(self.report(diagnostic))
    }

    fn tail_otherwise(&mut self, clauses: &'a [ElifElseClause], rest: &Rest<'a, '_>) -> Lower<Returned> {
        let Some((first, others)) = clauses.split_first() else {
            return self.tail(rest.body, rest.next);
        };
        match &first.test {
            None => self.tail(&first.body, Some(rest)),
            Some(test) => {
                let span = self.span_of(test);
                self.deeper(span, |this| this.tail_branch(test, &first.body, others, rest))
            }
        }
    }
}
