//! Completes and collects diagnostics.

use ruff_python_ast::Expr;
use ruff_python_ast::visitor::{self, Visitor};
use tilewright_base::{Code, Diagnostic, Label, Span};
use tilewright_ir::RuleError;

use super::function::is_constexpr;
use super::lowerer::{Frame, Lowerer, MAX_FINDINGS, Reported, Session};
use super::scope::NameState;
use crate::parse::with_stack;
use crate::semantic::SemanticError;
use crate::value::Operand;

#[derive(Clone, Copy)]
pub(crate) struct OperationSpan {
    pub whole: Span,
    /// The label of an error about several operands: the operator, or the name of the callee.
    pub focus: Span,
}

impl From<Span> for OperationSpan {
    fn from(whole: Span) -> Self {
        Self { whole, focus: whole }
    }
}

impl Session<'_> {
    /// Reports a diagnostic with the calls that lead to it. Keeps the first [`MAX_FINDINGS`]. Drops
    /// repetitions: the same code and position or, without a position, the same code and message.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        let diagnostic = self.with_calls(diagnostic);
        let place = |diagnostic: &Diagnostic| diagnostic.primary.as_ref().map(|label| label.span);
        let is_known = |known: &Diagnostic| {
            known.code == diagnostic.code
                && place(known) == place(&diagnostic)
                && (known.primary.is_some() || known.message == diagnostic.message)
        };
        if self.diagnostics.len() < MAX_FINDINGS && !self.diagnostics.iter().any(is_known) {
            self.diagnostics.push(diagnostic);
        }
        Reported
    }

    /// Warns about code of the user, once per position. Ignores calls of library functions.
    pub(crate) fn warn(&mut self, diagnostic: Diagnostic) {
        if self.frames.iter().any(|frame| frame.is_library) {
            return;
        }
        let diagnostic = self.with_calls(diagnostic);
        let place = diagnostic.primary.as_ref().map(|label| label.span);
        if !self.warned.contains(&place) {
            self.warned.push(place);
            self.host.warn(&diagnostic, &self.sources);
        }
    }

    /// Adds the calls that lead to a diagnostic, innermost first. A position in the library becomes
    /// the user's call.
    fn with_calls(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        let outermost_library = self.frames.iter().rposition(|frame| !frame.is_library);
        let user_frames = outermost_library.map_or(0, |index| index + 1);
        if let Some(frame) = self.frames.get(user_frames) {
            self.blame_call(&mut diagnostic, frame);
        }
        for frame in self.frames[..user_frames].iter().rev() {
            diagnostic.secondary.push(Label { span: frame.call, text: "called from here".into() });
        }
        diagnostic
    }

    /// Moves a diagnostic from the library to the user's call, unless its primary label is on an
    /// argument of the call. Secondary labels in the user's file stay.
    fn blame_call(&self, diagnostic: &mut Diagnostic, frame: &Frame) {
        let is_inside = |label: &Label| label.span.file != frame.call.file;
        if diagnostic.primary.as_ref().is_some_and(|primary| !is_inside(primary)) {
            return;
        }
        let (inside, outside): (Vec<_>, Vec<_>) =
            std::mem::take(&mut diagnostic.secondary).into_iter().partition(is_inside);
        diagnostic.secondary = outside;
        let primary = diagnostic.primary.take();
        if let Some(primary) = &primary {
            let place = self.sources.position(primary.span);
            let line = line_at(&self.sources.file(primary.span.file).text, primary.span.start);
            diagnostic.notes.push(format!("in {} of the library, at {place}: {line}", frame.name));
        }
        for label in primary.iter().chain(&inside).filter(|label| !label.text.is_empty()) {
            diagnostic.notes.push(format!("{}: {}", self.sources.text(label.span).trim(), label.text));
        }
        diagnostic.primary =
            Some(Label { span: frame.call, text: format!("in this call of {}", frame.name) });
    }
}

fn line_at(text: &str, byte: u32) -> &str {
    let byte = byte as usize;
    let start = text.get(..byte).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("").trim()
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn error(&mut self, code: Code, span: Span, message: impl Into<String>) -> Reported {
        self.report(Diagnostic::at(code, span, message))
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        self.session.report(diagnostic)
    }

    /// Reports a construct of Python that kernels do not support.
    pub(crate) fn unsupported(&mut self, span: Span, construct: &str, hint: &str) -> Reported {
        let diagnostic = Diagnostic::at(Code::UnsupportedConstruct, span, format!("{construct} in a kernel"));
        self.report(if hint.is_empty() { diagnostic } else { diagnostic.hint(hint) })
    }

    pub(crate) fn too_deep(&mut self, span: Span) -> Reported {
        let message = "expressions, statements or calls nest too deep";
        // If a construct is nested too deeply, so are its parts, which are not reported.
        if self.session.diagnostics.last().is_some_and(|last| last.message == message) {
            return Reported;
        }
        let diagnostic = Diagnostic::at(Code::TooLarge, span, message);
        self.report(diagnostic.hint("give parts of it names, or move them into helper functions"))
    }

    pub(crate) fn rule_error(&mut self, span: Span, error: RuleError) -> Reported {
        self.error(Code::TypeMismatch, span, error.message)
    }

    /// Reports an error of a semantic rule. `arguments` are the expressions of the rule's
    /// arguments, if the source has them.
    pub(crate) fn semantic_error(
        &mut self,
        error: SemanticError,
        place: impl Into<OperationSpan>,
        arguments: &[Option<&'a Expr>],
    ) -> Reported {
        if error.is_reported {
            return Reported;
        }
        let place = place.into();
        let at = if error.arguments.len() > 1 { place.focus } else { place.whole };
        let mut diagnostic = Diagnostic::at(error.code, at, String::new());
        diagnostic.notes = error.notes;
        diagnostic.hint = error.hint;
        let blamed: Vec<(Option<&'a Expr>, String)> = error
            .arguments
            .into_iter()
            .map(|(index, text)| (arguments.get(index).copied().flatten(), text))
            .collect();
        let is_only = blamed.len() == 1;
        diagnostic.message = match &blamed[..] {
            [(Some(expression), _)] => self.name_the_call(error.message, expression, place.focus),
            _ => error.message,
        };
        for (expression, text) in &blamed {
            match expression {
                Some(expression) if is_only => {
                    diagnostic = diagnostic.primary(self.blamed_span(expression), text.clone());
                }
                Some(expression) => {
                    diagnostic
                        .secondary
                        .push(Label { span: self.blamed_span(expression), text: text.clone() });
                }
                None if text.is_empty() => {}
                None => diagnostic.notes.push(text.clone()),
            }
        }
        let of_none: Vec<&'a Expr> = blamed
            .iter()
            .filter(|(_, text)| text == "this is None")
            .filter_map(|(expression, _)| *expression)
            .collect();
        diagnostic = self.explain_none(diagnostic, &of_none);
        if error.code == Code::NotConstexpr {
            let expressions: Vec<&Expr> = blamed.iter().filter_map(|(expression, _)| *expression).collect();
            diagnostic = self.explain_run_time(diagnostic, &expressions);
        }
        self.report(diagnostic)
    }

    /// Returns the position to report. For a parameter of a library function, it is the argument of
    /// the user's call.
    pub(crate) fn blamed_span(&self, expression: &Expr) -> Span {
        self.passed_span(expression).unwrap_or_else(|| self.span_of(expression))
    }

    fn passed_span(&self, expression: &Expr) -> Option<Span> {
        let Expr::Name(name) = expression else { return None };
        let passed = &self.session.frames.last()?.passed;
        if passed.is_empty() || !self.scope.get(name.id.as_str())?.is_parameter {
            return None;
        }
        let mut parameters = super::function::parameters(self.definition);
        let index = parameters.position(|parameter| parameter.name.as_str() == name.id.as_str())?;
        passed.get(index).copied().flatten()
    }

    /// Rewords a message about an argument that a library function passes on, to name the function
    /// that the user calls.
    fn name_the_call(&self, message: String, argument: &Expr, callee: Span) -> String {
        if self.passed_span(argument).is_none() {
            return message;
        }
        let frames = &self.session.frames;
        let first = frames.iter().rposition(|frame| !frame.is_library).map_or(0, |index| index + 1);
        let callee = self.session.sources.text(callee);
        let inner = callee.rsplit('.').next().unwrap_or(callee);
        frames.get(first).map_or_else(
            || message.clone(),
            |frame| message.replacen(&format!("`{inner}`"), &format!("`{}`", frame.name), 1),
        )
    }

    /// Labels the cause of a run-time value in errors of a library function about a missing
    /// compile-time value. `known` is the number of earlier diagnostics.
    pub(crate) fn explain_passed(&mut self, known: usize, arguments: &[Option<&Expr>]) {
        for index in known..self.session.diagnostics.len() {
            let found = &self.session.diagnostics[index];
            let Some(place) = found.primary.as_ref().map(|label| label.span) else { continue };
            let argument = arguments.iter().flatten().find(|argument| self.span_of(**argument) == place);
            if let (Code::NotConstexpr, Some(argument)) = (found.code, argument) {
                let found = self.explain_run_time(found.clone(), &[argument]);
                self.session.diagnostics[index] = found;
            }
        }
    }

    /// Labels the parameter or variable that makes an expression a run-time value.
    pub(crate) fn explain_run_time(&self, mut diagnostic: Diagnostic, expressions: &[&Expr]) -> Diagnostic {
        let mut names = Names(Vec::new());
        for expression in expressions {
            with_stack(|| names.visit_expr(expression));
        }
        for name in names.0 {
            let Some(binding) = self.scope.get(name) else { continue };
            let NameState::Value(Operand::Tensor(value)) = binding.state else { continue };
            if self.builder.function.ty(value).element.pointee().is_some() {
                // No constexpr parameter could help a loaded value.
                continue;
            }
            if binding.is_parameter {
                let parameter = super::function::parameters(self.definition)
                    .find(|parameter| parameter.name.as_str() == name);
                if is_constexpr(parameter.and_then(|parameter| parameter.annotation.as_deref())) {
                    return diagnostic
                        .secondary(binding.span, "this parameter gets a run-time value")
                        .hint(format!("pass a compile-time value as '{name}'"));
                }
                diagnostic = diagnostic.secondary(binding.span, "this parameter is a run-time value");
                if self.callee.user().is_some() {
                    diagnostic = diagnostic.hint(format!("annotate it: `{name}: tl.constexpr`"));
                }
                return diagnostic;
            }
            if !diagnostic.secondary.iter().any(|label| label.span == binding.span) {
                diagnostic = diagnostic.secondary(binding.span, format!("{name} is a run-time value"));
            }
        }
        diagnostic
    }
}

impl Lowerer<'_, '_, '_> {
    pub(crate) fn operator_place(
        &self,
        whole: Span,
        (left, right): (Option<&Expr>, Option<&Expr>),
        symbol: &str,
    ) -> OperationSpan {
        let (Some(left), Some(right)) = (left, right) else { return OperationSpan { whole, focus: whole } };
        let (left, right) = (self.span_of(left), self.span_of(right));
        let between = Span { start: left.end, end: right.start, ..whole };
        let text = self.session.sources.text(between);
        let focus = text.find(symbol).map_or(whole, |offset| {
            let start = between.start + offset as u32;
            Span { start, end: start + symbol.len() as u32, ..whole }
        });
        OperationSpan { whole, focus }
    }
}

/// The names that an expression reads.
struct Names<'a>(Vec<&'a str>);

impl<'a> Visitor<'a> for Names<'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if !self.0.contains(&name.id.as_str()) => self.0.push(name.id.as_str()),
            Expr::Name(_) => {}
            _ => visitor::walk_expr(self, expression),
        }
    }
}
