//! Lowers loops.
//!
//! A `for` over a run-time range and a `while` carry the names that their bodies assign. Loops over
//! a `static_range` or a tuple are unrolled.

use ruff_python_ast::{Expr, Stmt, StmtFor, StmtWhile};
use smallvec::{SmallVec, smallvec};
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{Block, Builder, Dtype, Element, Literal, Op, Rounding, Type, Value};

use super::lowerer::{Lower, Lowerer, Reported};
use super::scope::{self, Binding, NameState};
use super::template::{self, IrOperand, Template, constant_truth};
use crate::semantic;
use crate::value::{Constant, Operand, Range};

/// The maximum number of unrolled iterations, and of iterations of a `while` in a
/// `constexpr_function`.
const MAX_UNROLLED: i128 = 1 << 16;

const IN_LOOP: &str = "only assigned inside this loop, which may run zero times";

/// A name that a loop carries.
struct Carried<'a> {
    name: &'a str,
    /// The position of the assignment before the loop.
    span: Span,
    template: Template,
    first: Vec<Value>,
}

/// The names that a loop assigns, and their values before the loop.
struct LoopNames<'a> {
    assigned: Vec<&'a str>,
    carried: Vec<Carried<'a>>,
    /// The names without run-time parts, such as `None`. A loop must not change them.
    fixed: Vec<(&'a str, IrOperand, Span)>,
}

impl LoopNames<'_> {
    fn carries(&self, name: &str) -> bool {
        self.carried.iter().any(|carried| carried.name == name)
    }
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn for_statement(&mut self, each: &'a StmtFor, span: Span) -> Lower<()> {
        let keyword = Span { end: span.start + 3, ..span };
        if each.is_async {
            return Err(self.unsupported(keyword, "'async for'", "remove 'async'"));
        }
        if let Some(first) = each.orelse.first() {
            let at = self.start_of(first);
            return Err(self.unsupported(at, "'else' after a loop", "put the statements after the loop"));
        }
        let iterated = self.expression(&each.iter)?;
        match &iterated {
            Operand::Range(range) if !range.is_static && !self.keeps_constants => {
                self.dynamic_for(each, range, span)
            }
            _ => {
                let items = self.unrolled_items(&iterated, &each.iter)?;
                self.unroll(each, items, span)
            }
        }
    }

    pub(crate) fn unrolled_items(
        &mut self,
        iterated: &IrOperand,
        expression: &'a Expr,
    ) -> Lower<Vec<IrOperand>> {
        let span = self.span_of(expression);
        let Operand::Range(range) = iterated else {
            if let Some(items) = template::items(iterated) {
                return Ok(items.into_vec());
            }
            if let Some(result) = self.operate("iter", &[iterated], span) {
                return template::items(&result?).map(crate::Tuple::into_vec).ok_or(Reported);
            }
            let what = self.describe(iterated);
            let message = format!("a loop runs over a range or a tuple, found {what}");
            let diagnostic = Diagnostic::at(Code::TypeMismatch, span, message);
            return Err(self.report(match iterated {
                Operand::Tensor(_) => diagnostic.hint(
                    "count with `for i in range(n)`; the elements of a tile are not taken one by one: work on all of them \
                     at once",
                ),
                _ => diagnostic,
            }));
        };
        let mut bound = |value: &IrOperand, name: &str| match self.as_constant(value) {
            Some(Constant::Int(value)) => Ok(value),
            Some(Constant::Bool(value)) => Ok(i128::from(value)),
            _ => Err(self.not_constant(span, expression, value, &format!("the {name} of an unrolled range"))),
        };
        let lower = bound(&range.lower, "start")?;
        let upper = bound(&range.upper, "end")?;
        let step = bound(&range.step, "step")?;
        if step == 0 {
            return Err(self.error(Code::ConstexprError, span, "the step of a range must not be zero"));
        }
        let distance = if step > 0 { upper.saturating_sub(lower) } else { lower.saturating_sub(upper) };
        let count = distance.max(0).saturating_add(step.saturating_abs() - 1) / step.saturating_abs();
        if count > MAX_UNROLLED {
            let message = format!("a loop of {count} iterations is too long to unroll");
            let diagnostic = Diagnostic::at(Code::TooLarge, span, message)
                .note(format!("expected at most {MAX_UNROLLED} iterations"))
                .hint("use range or tl.range, which make a loop at run time");
            return Err(self.report(diagnostic));
        }
        Ok((0..count).map(|index| Operand::Constant(Constant::Int(lower + index * step))).collect())
    }

    fn unroll(&mut self, each: &'a StmtFor, items: Vec<IrOperand>, span: Span) -> Lower<()> {
        let errors = self.session.diagnostics.len();
        self.loop_depth += 1;
        let mut result = Ok(());
        for item in items {
            self.assign_target(&each.target, Ok(item), span);
            self.block(&each.body);
            if self.session.diagnostics.len() > errors {
                break;
            }
            if self.is_too_large() {
                result = Err(self.too_large(span));
                break;
            }
        }
        self.loop_depth -= 1;
        result
    }

    /// Lowers a loop that runs at run time.
    fn dynamic_for(&mut self, each: &'a StmtFor, range: &Range<Value>, span: Span) -> Lower<()> {
        let Expr::Name(target) = &*each.target else {
            let at = self.span_of(&*each.target);
            return Err(self.error(Code::TypeMismatch, at, "a range gives one number, which takes one name"));
        };
        let (bounds, dtype) = self.bounds(range, each)?;
        let mut names = self.loop_names(&each.body, &[])?;
        let target_name = target.id.as_str();
        self.carry_target(&mut names, target_name, dtype)?;
        let types = std::iter::once(Type::scalar(dtype)).chain(self.carried_types(&names));
        let before = self.scope.clone();
        let (block, outer) = self.begin_region(types);
        let parameters = self.builder.function.blocks[block].parameters.clone();
        let target_span = self.span_of(target);
        if let Some((&index, rest)) = parameters.split_first() {
            self.bind_carried(&names, rest);
            self.bind(target_name, Binding::value(Operand::Tensor(index), target_span));
        }
        self.loop_depth += 1;
        self.block(&each.body);
        self.loop_depth -= 1;
        let closed = self.close(&names, parameters.get(1..).unwrap_or(&[]));
        self.end_region(outer);
        let after = std::mem::replace(&mut self.scope, before);
        closed?;
        // Errors about the loop itself point at its range.
        self.at(self.span_of(&*each.iter));
        let operands = bounds.into_iter().chain(first_values(&names)).collect();
        let op = Op::For { options: range.options.clone() };
        let result = self.finish(op, operands, smallvec![block], &names, &after, span);
        if !names.carries(target_name) {
            let binding = match last_index(range) {
                Some(last) => {
                    let last = self.builder.constant(Literal::int(dtype, last));
                    let last = last.map_err(|error| self.rule_error(span, error))?;
                    Binding::value(Operand::Tensor(last), target_span)
                }
                None => Binding::lost(target_span, "the variable of this loop, which may run zero times"),
            };
            self.scope.insert(target_name, binding);
        }
        result
    }

    /// Carries the loop variable if it is a scalar of type `dtype` before the loop, because it
    /// keeps this value after zero iterations.
    fn carry_target(&mut self, names: &mut LoopNames<'a>, target: &'a str, dtype: Dtype) -> Lower<()> {
        let Some(Binding { state: NameState::Value(value), span, .. }) = self.scope.get(target) else {
            return Ok(());
        };
        if names.carries(target) || template::items(value).is_some() {
            return Ok(());
        }
        let (value, span) = (value.clone(), *span);
        let first = self.decay_all(&value)?;
        if let Operand::Tensor(number) = first
            && *self.builder.function.ty(number) == Type::scalar(dtype)
        {
            let template = template::of(&first, &self.builder.function);
            names.carried.push(Carried { name: target, span, template, first: vec![number] });
        }
        Ok(())
    }

    /// Converts the start, the end and the step of a range to one type, and returns it.
    fn bounds(&mut self, range: &Range<Value>, each: &'a StmtFor) -> Lower<([Value; 3], Dtype)> {
        let span = self.span_of(&*each.iter);
        self.at(span);
        let arguments: Vec<Option<&'a Expr>> = match &*each.iter {
            Expr::Call(call) => match &call.arguments.args[..] {
                [upper] => vec![None, Some(upper), None],
                given => given.iter().map(Some).collect(),
            },
            _ => Vec::new(),
        };
        if matches!(range.step.constant(), Some(Constant::Int(0))) {
            let at = arguments.get(2).copied().flatten().map_or(span, |at| self.span_of(at));
            return Err(self.error(Code::InvalidValue, at, "the step of a range must not be zero"));
        }
        let mut values: [Option<Value>; 3] = [None; 3];
        let mut types = Vec::with_capacity(3);
        for (slot, (index, bound)) in
            values.iter_mut().zip([&range.lower, &range.upper, &range.step].into_iter().enumerate())
        {
            let result = semantic::to_tensor(self, bound);
            let value = result.map_err(|error| {
                let at = arguments.get(index).copied().flatten();
                self.semantic_error(error, at.map_or(span, |at| self.span_of(at)), &[at])
            })?;
            types.push(self.builder.type_of(&value));
            *slot = Some(value);
        }
        let [lower, upper, step] = &types[..] else { return Err(Reported) };
        let dtype = semantic::loop_dtype(lower, upper, step)
            .map_err(|error| self.semantic_error(error, span, &arguments))?;
        let mut cast = |value: Option<Value>| {
            let value = value.ok_or(Reported)?;
            if *self.builder.function.ty(value) == Type::scalar(dtype) {
                return Ok(value);
            }
            // A constant is emitted again in this type, without a cast.
            if let Some(Op::Constant { value: literal }) = self.builder.function.defining_op(value)
                && let Some(number) = literal.as_int()
            {
                let literal = Literal::int(dtype, number);
                return self.builder.constant(literal).map_err(|error| self.rule_error(span, error));
            }
            let cast = self.builder.cast(value, Element::Value(dtype), Rounding::default());
            cast.map_err(|error| self.rule_error(span, error))
        };
        let [lower, upper, step] = values;
        Ok(([cast(lower)?, cast(upper)?, cast(step)?], dtype))
    }

    pub(crate) fn while_statement(&mut self, each: &'a StmtWhile, span: Span) -> Lower<()> {
        if let Some(first) = each.orelse.first() {
            let at = self.start_of(first);
            return Err(self.unsupported(at, "'else' after a loop", "put the statements after the loop"));
        }
        if self.keeps_constants {
            return self.constant_while(each, span);
        }
        let test_span = self.span_of(&*each.test);
        if !scope::assigned_in(&each.test).is_empty() {
            let hint = "assign the name before the loop and at the end of its body";
            return Err(self.unsupported(test_span, "':=' in the condition of a loop", hint));
        }
        let names = self.loop_names(&each.body, &[])?;
        let before = self.scope.clone();
        let types = self.carried_types(&names);
        let (test_block, outer) = self.begin_region(types.clone());
        let parameters = self.builder.function.blocks[test_block].parameters.clone();
        self.bind_carried(&names, &parameters);
        let tested = self.loop_condition(each, test_span);
        self.end_region(outer);
        self.scope.clone_from(&before);
        tested?;
        let (block, outer) = self.begin_region(types.clone());
        let parameters = self.builder.function.blocks[block].parameters.clone();
        self.bind_carried(&names, &parameters);
        self.loop_depth += 1;
        self.block(&each.body);
        self.loop_depth -= 1;
        let closed = self.close(&names, &parameters);
        self.end_region(outer);
        let after = std::mem::replace(&mut self.scope, before);
        closed?;
        self.at(span);
        let operands = first_values(&names).collect();
        self.finish(Op::While {}, operands, smallvec![test_block, block], &names, &after, span)
    }

    /// Lowers the condition of a `while`, and yields it.
    fn loop_condition(&mut self, each: &'a StmtWhile, span: Span) -> Lower<()> {
        let condition = self.expression(&each.test)?;
        if constant_truth(&condition) == Some(true) {
            let hint = "kernels have no 'break': put the condition for going on after 'while'";
            return Err(self.unsupported(span, "a loop without an end", hint));
        }
        let condition = self.truth(&condition, &each.test)?;
        self.builder.yield_values([condition]).map_err(|error| self.rule_error(span, error))
    }

    /// Executes a `while` of a `constexpr_function` at compile time.
    fn constant_while(&mut self, each: &'a StmtWhile, span: Span) -> Lower<()> {
        let errors = self.session.diagnostics.len();
        for _ in 0..MAX_UNROLLED {
            let condition = self.expression(&each.test)?;
            match constant_truth(&condition) {
                Some(true) => {
                    self.loop_depth += 1;
                    self.block(&each.body);
                    self.loop_depth -= 1;
                    if self.session.diagnostics.len() > errors {
                        return Err(Reported);
                    }
                }
                Some(false) => return Ok(()),
                None => {
                    let at = self.span_of(&*each.test);
                    let what = "the condition of a compile-time loop";
                    return Err(self.not_constant(at, &each.test, &condition, what));
                }
            }
        }
        let message = format!("a compile-time loop runs more than {MAX_UNROLLED} times");
        Err(self.error(Code::TooLarge, span, message))
    }

    /// Returns the names that a loop assigns and those in `also`, with their values before the
    /// loop.
    fn loop_names(&mut self, body: &'a [Stmt], also: &[&'a str]) -> Lower<LoopNames<'a>> {
        let mut assigned = self.assigned(body);
        assigned.extend(also);
        let mut names = LoopNames { assigned, carried: Vec::new(), fixed: Vec::new() };
        for &name in &names.assigned {
            let Some(binding) = self.scope.get(name) else { continue };
            let NameState::Value(value) = &binding.state else { continue };
            let (value, span) = (value.clone(), binding.span);
            let first = self.decay_all(&value)?;
            let template = template::of(&first, &self.builder.function);
            let first = template::values(&first);
            if first.is_empty() {
                names.fixed.push((name, value, span));
            } else {
                names.carried.push(Carried { name, span, template, first });
            }
        }
        Ok(names)
    }

    fn carried_types(&self, names: &LoopNames<'a>) -> Vec<Type> {
        first_values(names).map(|value| self.builder.function.ty(value).clone()).collect()
    }

    fn bind_carried(&mut self, names: &LoopNames<'a>, parameters: &[Value]) {
        self.pass_on_read_only(first_values(names), parameters);
        let mut parameters = parameters.iter().copied();
        for carried in &names.carried {
            if let Some(value) = template::fill(&carried.template, &mut parameters) {
                self.bind(carried.name, Binding::value(value, carried.span));
            }
        }
    }

    /// Ends the body of a loop: yields the carried names.
    fn close(&mut self, names: &LoopNames<'a>, parameters: &[Value]) -> Lower<()> {
        let mut parameters = parameters.iter().copied();
        let mut yields = Vec::new();
        let mut failed = None;
        for carried in &names.carried {
            let own: Vec<Value> = parameters.by_ref().take(carried.first.len()).collect();
            match self.last_values(carried) {
                Ok(Some(values)) => yields.extend(values),
                Ok(None) => yields.extend(own),
                Err(reported) => failed = Some(reported),
            }
        }
        for (name, value, span) in &names.fixed {
            let Some(Binding { state: NameState::Value(now), span: at, .. }) = self.scope.get(name) else {
                continue;
            };
            if template::same(value, now, &|left, right| left == right) {
                continue;
            }
            let (at, now) = (*at, now.clone());
            let function = &self.builder.function;
            let (first, last) = (template::of(value, function), template::of(&now, function));
            failed = Some(self.changed(name, (*span, &first), (at, &last)));
        }
        if let Some(reported) = failed {
            Err(reported)
        } else {
            let span = self.span;
            self.builder.yield_values(yields).map_err(|error| self.rule_error(span, error))
        }
    }

    /// Returns the values of a carried name at the end of the body, if it has any.
    fn last_values(&mut self, carried: &Carried<'a>) -> Lower<Option<Vec<Value>>> {
        let Some(binding) = self.scope.get(carried.name) else { return Ok(None) };
        let NameState::Value(value) = &binding.state else { return Ok(None) };
        let (value, span) = (value.clone(), binding.span);
        let value = self.decay_all(&value)?;
        let template = template::of(&value, &self.builder.function);
        if template::same(&template, &carried.template, &|left, right| left == right) {
            return Ok(Some(template::values(&value)));
        }
        Err(self.changed(carried.name, (carried.span, &carried.template), (span, &template)))
    }

    fn changed(&mut self, name: &str, first: (Span, &Template), last: (Span, &Template)) -> Reported {
        let (expected, found) = (template::describe(first.1), template::describe(last.1));
        let message = format!("'{name}' changes its type from one iteration to the next");
        let hint = match (first.1, last.1) {
            (Operand::Tensor(before), Operand::Tensor(after))
                if before.is_scalar() && template::tl_name_of(after).is_some() =>
            {
                let dtype = template::tl_name_of(after).unwrap_or_default();
                let value = if !after.is_scalar() {
                    let extents: Vec<String> = after.shape.iter().map(u32::to_string).collect();
                    let comma = if extents.len() == 1 { "," } else { "" };
                    format!("tl.zeros(({}{comma}), tl.{dtype})", extents.join(", "))
                } else if dtype == "float32" {
                    "0.0".to_owned()
                } else {
                    format!("tl.full((), 0, tl.{dtype})")
                };
                format!("give '{name}' its final type before the loop, as in `{name} = {value}`")
            }
            (Operand::Tensor(before), Operand::Tensor(after)) if before.element != after.element => {
                let how = template::how_to_unify(first.1, last.1);
                format!("give '{name}' its final type before the loop, or {how}")
            }
            (Operand::Tensor(_), Operand::Tensor(_)) => {
                format!("give '{name}' its final shape before the loop, for example with tl.zeros")
            }
            _ => format!("give '{name}' a value of its final type before the loop"),
        };
        let diagnostic = Diagnostic::new(Code::LoopTypeChange, message)
            .primary(last.0, format!("{found} here"))
            .secondary(first.0, format!("{expected} here"))
            .note(format!("found {found} at the end of the loop's body, expected {expected}"))
            .hint(hint);
        self.report(diagnostic)
    }

    /// Emits the loop, and binds the assigned names to their values after it. `after` has the
    /// bindings at the end of the body.
    fn finish(
        &mut self,
        op: Op,
        operands: SmallVec<[Value; 4]>,
        regions: SmallVec<[Block; 2]>,
        names: &LoopNames<'a>,
        after: &scope::Scope<'a>,
        span: Span,
    ) -> Lower<()> {
        let results =
            self.builder.emit(op, operands, regions).map_err(|error| self.rule_error(span, error))?;
        self.pass_on_read_only(first_values(names), &results);
        let mut results = results.into_iter();
        for carried in &names.carried {
            let Some(value) = template::fill(&carried.template, &mut results) else { continue };
            let last = after.get(carried.name);
            let at = last.map_or(carried.span, |binding| binding.span);
            let is_poisoned = last.is_some_and(|binding| matches!(binding.state, NameState::Poisoned));
            let binding = if is_poisoned { Binding::poisoned(at) } else { Binding::value(value, at) };
            self.bind(carried.name, binding);
        }
        for &name in &names.assigned {
            // The name is already bound, or its error was reported.
            if self.scope.get(name).is_some_and(|binding| !matches!(binding.state, NameState::Lost(_))) {
                continue;
            }
            let Some(last) = after.get(name) else { continue };
            let binding = match last.state {
                NameState::Poisoned => last.clone(),
                _ => Binding::lost(last.span, IN_LOOP),
            };
            self.scope.insert(name, binding);
        }
        Ok(())
    }
}

/// Returns the last index of a loop with constant bounds and at least one iteration.
fn last_index(range: &Range<Value>) -> Option<i128> {
    let number = |bound: &IrOperand| match bound.constant() {
        Some(Constant::Int(number)) => Some(*number),
        _ => None,
    };
    let [lower, upper, step] = [number(&range.lower)?, number(&range.upper)?, number(&range.step)?];
    let distance = if step > 0 { upper - lower } else { lower - upper };
    (distance > 0).then(|| lower + (distance - 1) / step.abs() * step)
}

fn first_values<'n>(names: &'n LoopNames<'_>) -> impl Iterator<Item = Value> + 'n {
    names.carried.iter().flat_map(|carried| carried.first.iter().copied())
}
