//! Lowers calls: binds arguments to parameters, and calls each kind of callee.

use std::sync::Arc;

use ruff_python_ast::{Expr, ExprCall, StmtFunctionDef};
use tilewright_base::{Code, Diagnostic, Span};
use tilewright_ir::{Block, Effect, IrBuilder, Op as IrOp, Type, Value};

use super::arguments::{Arguments, Passed};
use super::callee::{Callee, Loaded};
use super::dunder::OPERATORS;
use super::external::EXTERNAL;
use super::function::is_constexpr;
use super::lowerer::{Lower, Lowerer, Reported};
use super::report::OperationSpan;
use super::template::{self, IrOperand, from_host};
use crate::Options;
use crate::host::{HostValue, NamedTuple};
use crate::reference::ObjectRef;
use crate::semantic::{
    self, BuiltinSpec, Caller, LanguageItem, Op, ParameterKind, Semantic, SemanticError, Special,
};
use crate::suggest::suggest;
use crate::tuple::Tuple;
use crate::value::{BUILTINS, Constant, Operand, language_name};

/// A parameter to which an argument is bound.
struct Slot<'p> {
    name: &'p str,
    kind: ParameterKind,
    is_required: bool,
}

impl<'a> Lowerer<'a, '_, '_> {
    pub(crate) fn call_expression(&mut self, call: &'a ExprCall) -> Lower<IrOperand> {
        let span = self.span_of(call);
        let is_discarded = self.discarded_call.take() == Some(span);
        let callee = self.expression(&call.func);
        let takes_table = matches!(&callee, Ok(Operand::Language(path)) if path.ends_with(EXTERNAL));
        let arguments = if takes_table { self.external_arguments(call) } else { self.arguments(call) };
        let (callee, arguments) = (callee?, arguments?);
        if is_discarded {
            self.check_discarded(&callee, call)?;
        }
        self.at(span);
        let named = self.named_extents(&callee, &arguments);
        let result = self.call_operand(&callee, arguments, span, self.span_of(&*call.func))?;
        self.warn_of_portability(&callee, call, named, &result);
        Ok(result)
    }

    /// Evaluates all arguments of a call, also those after an argument with an error.
    pub(crate) fn arguments(&mut self, call: &'a ExprCall) -> Lower<Arguments<'a>> {
        self.arguments_with(call, Self::expression)
    }

    /// Evaluates all arguments of a call with `evaluate`, and unpacks starred arguments.
    pub(super) fn arguments_with(
        &mut self,
        call: &'a ExprCall,
        evaluate: fn(&mut Self, &'a Expr) -> Lower<IrOperand>,
    ) -> Lower<Arguments<'a>> {
        let mut arguments = Arguments::default();
        let mut failed = None;
        for expression in &call.arguments.args {
            match expression {
                Expr::Starred(starred) => match self.starred(&starred.value) {
                    Ok(items) => {
                        arguments.positional.extend(items.into_iter().map(|item| (item, Some(expression))));
                    }
                    Err(reported) => failed = Some(reported),
                },
                other => match evaluate(self, other) {
                    Ok(value) => arguments.positional.push((value, Some(other))),
                    Err(reported) => failed = Some(reported),
                },
            }
        }
        for keyword in &call.arguments.keywords {
            let span = self.span_of(keyword);
            let Some(name) = &keyword.arg else {
                failed = Some(self.unsupported(span, "'**' in a call", "name the arguments"));
                continue;
            };
            match evaluate(self, &keyword.value) {
                Ok(value) => {
                    let name_span = self.span_of(name);
                    arguments.keywords.push((
                        Arc::from(name.as_str()),
                        (value, Some(&keyword.value)),
                        name_span,
                    ));
                }
                Err(reported) => failed = Some(reported),
            }
        }
        failed.map_or(Ok(arguments), Err)
    }

    pub(crate) fn call_operand(
        &mut self,
        callee: &IrOperand,
        mut arguments: Arguments<'a>,
        span: Span,
        callee_span: Span,
    ) -> Lower<IrOperand> {
        if let Operand::Object(object) | Operand::Callable(object) = callee
            && let Some(class) = self.session.host.named_tuple(*object)
        {
            return self.call_named_tuple(class, arguments, span);
        }
        if let Operand::Object(class) = callee
            && let Some(aggregate) = self.session.host.aggregate(*class)
        {
            return self.construct(*class, &aggregate, arguments, span);
        }
        match callee {
            Operand::Bound(receiver, member) => {
                arguments.positional.insert(0, ((**receiver).clone(), None));
                self.call_member(*member, arguments, span)
            }
            Operand::Language(path) if path.rsplit('.').next() == Some("aggregate_replace") => {
                self.aggregate_replace(&arguments, span)
            }
            Operand::Language(path) => match path.strip_prefix(BUILTINS) {
                Some(name) => self.python_builtin(name, arguments, span, callee_span),
                None => self.call_language(path, arguments, span, callee_span),
            },
            Operand::Method(receiver, path) if path.starts_with(OPERATORS) => {
                self.call_operator_method(receiver, path, arguments, span, callee_span)
            }
            Operand::Method(receiver, path) => {
                arguments.positional.insert(0, ((**receiver).clone(), None));
                self.call_language(path, arguments, span, callee_span)
            }
            Operand::Function(function) => self.call_function(Callee::User(*function), arguments, span),
            Operand::ConstexprFunction(object) => {
                let is_run_time = |(value, _): &Passed<'a>| self.host_value(value).is_none();
                match self.namesake(callee_span) {
                    Some(hint)
                        if arguments.positional.iter().any(is_run_time)
                            && !self.session.host.takes_run_time(*object) =>
                    {
                        let what = self.session.host.describe(*object);
                        let message = format!("{what} is Python's, and only takes compile-time values");
                        Err(self.report(Diagnostic::at(Code::NotCallable, callee_span, message).hint(hint)))
                    }
                    _ => self.call_host(*object, &arguments, span),
                }
            }
            Operand::Callable(object) => {
                let name = self.session.sources.text(callee_span).to_owned();
                // A function of another module is named as the kernel writes it.
                let what = if name.contains('.') {
                    format!("'{name}'")
                } else {
                    self.session.host.describe(*object)
                };
                let message = format!("{what} is plain Python, which a kernel cannot call");
                let diagnostic = Diagnostic::at(Code::NotCallable, callee_span, message);
                let hint = self.namesake(callee_span).unwrap_or_else(|| {
                    "decorate it with @triton.jit; or, if it computes a compile-time value from compile-time \
                     values, with @triton.constexpr_function"
                        .into()
                });
                Err(self.report(diagnostic.hint(hint)))
            }
            // A method of an object, or an object with `__call__`, that is known at compile time.
            Operand::Object(object) | Operand::Constant(Constant::Object(object))
                if arguments.values().all(|value| self.host_value(value).is_some())
                    && self.session.host.is_callable(*object) =>
            {
                self.call_host(*object, &arguments, span)
            }
            other => match self.callable_object(other, span)? {
                Some(method) => self.call_operand(&method, arguments, span, callee_span),
                None => Err(self.not_callable(other, callee_span)),
            },
        }
    }

    /// Binds each field of a class to an argument or its default.
    pub(crate) fn bind_fields(
        &mut self,
        class: &str,
        fields: &[(&Arc<str>, &Option<HostValue>)],
        arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<Vec<IrOperand>> {
        let slots: Vec<Slot<'_>> = fields
            .iter()
            .map(|(name, default)| Slot {
                name,
                kind: ParameterKind::Positional,
                is_required: default.is_none(),
            })
            .collect();
        let bound = self.bind_arguments(class, &slots, arguments, span, None)?;
        let values = bound.into_iter().zip(fields).map(|(passed, &(_, default))| {
            let default = || default.clone().map(from_host);
            passed.map(|(value, _)| value).or_else(default).ok_or(Reported)
        });
        values.collect()
    }

    fn call_named_tuple(
        &mut self,
        class: NamedTuple,
        arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        let NamedTuple { name, fields, defaults } = class;
        let required = fields.len().saturating_sub(defaults.len());
        let defaults: Vec<Option<HostValue>> =
            std::iter::repeat_n(None, required).chain(defaults.into_iter().map(Some)).collect();
        let items =
            self.bind_fields(&name, &fields.iter().zip(&defaults).collect::<Vec<_>>(), arguments, span)?;
        Ok(template::whole(Tuple::new(items, Some(fields))))
    }

    fn not_callable(&mut self, callee: &IrOperand, span: Span) -> Reported {
        let message = format!("{} cannot be called", self.describe(callee));
        let hint = match callee {
            Operand::Constant(Constant::Type(ty)) if ty.is_scalar() => {
                Some(format!("convert to a type with `x.to({})`", self.session.sources.text(span)))
            }
            _ => self.namesake(span),
        };
        self.report(Diagnostic { hint, ..Diagnostic::at(Code::NotCallable, span, message) })
    }

    /// Returns advice on a call of another module's function, such as `math.exp`: the same name in
    /// the language, or a replacement.
    fn namesake(&self, callee: Span) -> Option<String> {
        let (_, name) = self.session.sources.text(callee).rsplit_once('.')?;
        match self.language(name) {
            Some(LanguageItem::Builtin(_) | LanguageItem::Library(_)) => {
                Some(format!("use `tl.{name}`, or decorate the function with @triton.jit if it is yours"))
            }
            Some(LanguageItem::Module | LanguageItem::Constant(_) | LanguageItem::Special(_)) => None,
            None => super::advice::instead(name).map(|instead| {
                format!("functions of other libraries run on the host; a kernel has {instead}")
            }),
        }
    }

    /// Calls a name of `triton.language`.
    pub(crate) fn call_language(
        &mut self,
        path: &str,
        mut arguments: Arguments<'a>,
        span: Span,
        callee_span: Span,
    ) -> Lower<IrOperand> {
        arguments.drop_internal();
        match self.language(path) {
            Some(LanguageItem::Builtin(spec)) => {
                self.call_spec(spec, arguments, OperationSpan { whole: span, focus: callee_span })
            }
            Some(LanguageItem::Library(function)) => {
                self.call_function(Callee::Library(function), arguments, span)
            }
            Some(LanguageItem::Special(Special::Tensor))
                if let [(handle @ Operand::Tensor(_), _), (Operand::Constant(_), _)] =
                    &arguments.positional[..] =>
            {
                Ok(handle.clone())
            }
            Some(LanguageItem::Special(Special::Dtype)) => {
                self.call_language("str_to_ty", arguments, span, callee_span)
            }
            Some(_) => {
                let message = format!("{} cannot be called", language_name(path));
                let diagnostic = Diagnostic::at(Code::NotCallable, callee_span, message);
                Err(self.report(match path {
                    "tensor" => diagnostic.hint("make a tile with `tl.full(shape, value, dtype)`"),
                    _ if semantic::language(path)
                        .is_some_and(|item| matches!(item, LanguageItem::Constant(_))) =>
                    {
                        diagnostic.hint(format!("convert to a type with `x.to(tl.{path})`"))
                    }
                    _ => diagnostic,
                }))
            }
            None if path.is_empty() => {
                let message = "the module of the language cannot be called";
                Err(self.error(Code::NotCallable, callee_span, message))
            }
            // A name of Triton that has no meaning here has its whole path.
            None if path.starts_with("triton.") => {
                let message = format!("{path} is not available in this version of tilewright");
                Err(self.error(Code::Replaced, callee_span, message))
            }
            None => {
                let message = format!("tl.{path} cannot be called");
                Err(self.error(Code::NotCallable, callee_span, message))
            }
        }
    }

    fn call_spec(
        &mut self,
        spec: &'static BuiltinSpec,
        arguments: Arguments<'a>,
        place: OperationSpan,
    ) -> Lower<IrOperand> {
        let span = place.whole;
        let slots: Vec<Slot<'_>> = spec
            .parameters
            .iter()
            .map(|parameter| Slot {
                name: parameter.name,
                kind: parameter.kind,
                is_required: parameter.default.is_none(),
            })
            .collect();
        let bound = self.bind_arguments(spec.name, &slots, arguments, span, None)?;
        let mut values = Vec::with_capacity(bound.len());
        let mut places = Vec::with_capacity(bound.len());
        for (passed, parameter) in bound.into_iter().zip(spec.parameters.iter()) {
            let (value, at) = passed.unwrap_or_else(|| {
                (Operand::Constant(parameter.default.clone().unwrap_or(Constant::None)), None)
            });
            values.push(value);
            places.push(at);
        }
        self.at(span);
        let result = semantic::call_builtin(self, spec, &values);
        result.map_err(|error| self.semantic_error(error, place, &places))
    }

    /// Calls a `@jit` function of the user or the library.
    pub(crate) fn call_function(
        &mut self,
        callee: Callee,
        arguments: Arguments<'a>,
        span: Span,
    ) -> Lower<IrOperand> {
        let loaded = self.session.load(callee, Some(span))?;
        let definition = self.session.definition(&loaded, Some(span))?;
        let bound = {
            let parameters = &definition.parameters;
            let slot = |parameter: &'_ ruff_python_ast::ParameterWithDefault, kind| {
                (parameter.parameter.name.as_str().to_owned(), kind, parameter.default.is_none())
            };
            let positional = parameters.posonlyargs.iter().chain(&parameters.args);
            let mut slots: Vec<(String, ParameterKind, bool)> =
                positional.map(|parameter| slot(parameter, ParameterKind::Positional)).collect();
            if let Some(rest) = &parameters.vararg {
                slots.push((rest.name.as_str().to_owned(), ParameterKind::Variadic, false));
            }
            let keyword_only = parameters.kwonlyargs.iter();
            slots.extend(keyword_only.map(|parameter| slot(parameter, ParameterKind::KeywordOnly)));
            let slots: Vec<Slot<'_>> = slots
                .iter()
                .map(|(name, kind, is_required)| Slot { name, kind: *kind, is_required: *is_required })
                .collect();
            let defined = callee.user().is_some().then(|| {
                let range = crate::parse::bytes(definition.name.range);
                Span::new(loaded.file, range.start, range.end)
            });
            let by_place = |name: &str| {
                parameters.posonlyargs.iter().any(|parameter| parameter.parameter.name.as_str() == name)
            };
            if let Some((keyword, _, at)) = arguments.keywords.iter().find(|(name, ..)| by_place(name)) {
                let message = format!("{} takes '{keyword}' by position, not by keyword", loaded.name);
                return Err(self.wrong_arguments(message, *at, defined, None));
            }
            self.bind_arguments(&loaded.name, &slots, arguments, span, defined)?
        };
        if !matches!(callee, Callee::Library(_)) {
            let values = self.complete(callee, &loaded, definition, bound, span)?;
            return self.call_specialized(callee, &loaded, &values, span);
        }
        let places: Vec<Option<&Expr>> =
            bound.iter().map(|passed| passed.as_ref().and_then(|(_, at)| *at)).collect();
        let values = self.complete(callee, &loaded, definition, bound, span)?;
        self.session.passed = places.iter().map(|at| at.map(|at| self.blamed_span(at))).collect();
        let known = self.session.diagnostics.len();
        let result = self.call_specialized(callee, &loaded, &values, span);
        if result.is_err() {
            self.explain_passed(known, &places);
        }
        result
    }

    /// Adds the defaults of missing arguments. A known argument of a parameter `tl.constexpr`
    /// becomes a compile-time value.
    fn complete(
        &mut self,
        callee: Callee,
        loaded: &Loaded,
        definition: &StmtFunctionDef,
        bound: Vec<Option<Passed<'a>>>,
        span: Span,
    ) -> Lower<Vec<IrOperand>> {
        let defaults =
            |name: &str| definition.parameters.find(name).and_then(|parameter| parameter.default.as_deref());
        let mut values = Vec::with_capacity(bound.len());
        for (parameter, passed) in super::function::parameters(definition).zip(bound) {
            let name = parameter.name.as_str();
            let value = match (passed, defaults(name)) {
                (Some((value, _)), _) => value,
                (None, Some(default)) => {
                    if let Some(value) = self.default(callee, name, default) {
                        value
                    } else {
                        let range = crate::parse::bytes(parameter.name.range);
                        let defined = Span::new(loaded.file, range.start, range.end);
                        let message = format!("the default of '{name}' is not a compile-time value");
                        let diagnostic = Diagnostic::at(Code::NotConstexpr, span, message);
                        return Err(self.report(diagnostic.secondary(defined, "this parameter")));
                    }
                }
                (None, None) => template::tuple(Vec::new()),
            };
            // As in Triton, such a parameter may get a run-time value. An op that needs a
            // compile-time value reports the error.
            let known =
                is_constexpr(parameter.annotation.as_deref()).then(|| self.as_constant(&value)).flatten();
            values.push(known.map_or(value, Operand::Constant));
        }
        Ok(values)
    }

    /// Returns the argument of each parameter, or `None` if the call has none.
    fn bind_arguments(
        &mut self,
        name: &str,
        slots: &[Slot<'_>],
        arguments: Arguments<'a>,
        span: Span,
        defined: Option<Span>,
    ) -> Lower<Vec<Option<Passed<'a>>>> {
        let parameters = || {
            let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
            (!names.is_empty()).then(|| format!("its parameters are {}", names.join(", ")))
        };
        let mut bound: Vec<Option<Passed<'a>>> = slots.iter().map(|_| None).collect();
        let by_place = slots.iter().position(|slot| slot.kind != ParameterKind::Positional);
        let by_place = by_place.unwrap_or(slots.len());
        let mut rest = Vec::new();
        let given = arguments.positional.len();
        for (index, passed) in arguments.positional.into_iter().enumerate() {
            if index < by_place {
                bound[index] = Some(passed);
            } else {
                rest.push(passed);
            }
        }
        if let Some(variadic) = slots.iter().position(|slot| slot.kind == ParameterKind::Variadic) {
            let at = rest.first().and_then(|(_, at)| *at);
            let values = rest.into_iter().map(|(value, _)| value).collect();
            bound[variadic] = Some((template::tuple(values), at));
        } else if let Some((_, at)) = rest.first() {
            let place = at.map_or(span, |at| self.span_of(at));
            let message = format!("{name} takes at most {by_place} positional arguments, found {given}");
            let hint = if defined.is_none() { parameters() } else { None };
            return Err(self.wrong_arguments(message, place, defined, hint));
        }
        for (keyword, passed, at) in arguments.keywords {
            let index = slots.iter().position(|slot| *slot.name == *keyword);
            match index.filter(|&index| slots[index].kind != ParameterKind::Variadic) {
                Some(index) if bound[index].is_some() => {
                    let message = format!("{name} got two values for '{keyword}'");
                    return Err(self.wrong_arguments(message, at, defined, None));
                }
                Some(index) => bound[index] = Some(passed),
                None => {
                    let nearest = suggest(&keyword, slots.iter().map(|slot| slot.name));
                    let gone = super::advice::instead_of_keyword(&keyword).filter(|_| defined.is_none());
                    let hint = gone.map(str::to_owned);
                    let hint = hint.or_else(|| nearest.map(|nearest| format!("did you mean '{nearest}'?")));
                    let hint = hint.or_else(parameters);
                    let message = format!("{name} has no parameter '{keyword}'");
                    return Err(self.wrong_arguments(message, at, defined, hint));
                }
            }
        }
        let missing: Vec<String> = slots
            .iter()
            .zip(&bound)
            .filter(|(slot, passed)| {
                slot.is_required && slot.kind != ParameterKind::Variadic && passed.is_none()
            })
            .map(|(slot, _)| format!("'{}'", slot.name))
            .collect();
        if missing.is_empty() {
            return Ok(bound);
        }
        let plural = if missing.len() == 1 { "argument" } else { "arguments" };
        let message = format!("missing {plural} {} of {name}", missing.join(", "));
        let hint = if defined.is_none() { parameters() } else { None };
        Err(self.wrong_arguments(message, span, defined, hint))
    }

    fn wrong_arguments(
        &mut self,
        message: String,
        span: Span,
        defined: Option<Span>,
        hint: Option<String>,
    ) -> Reported {
        let mut diagnostic = Diagnostic::at(Code::WrongArguments, span, message);
        if let Some(defined) = defined {
            diagnostic = diagnostic.secondary(defined, "defined here");
        }
        diagnostic.hint = hint;
        self.report(diagnostic)
    }
}

impl Caller for Lowerer<'_, '_, '_> {
    type Builder = IrBuilder;

    fn builder(&mut self) -> &mut IrBuilder {
        &mut self.builder
    }

    fn region_and_result(&mut self, function: &Op<Self>, types: &[Type]) -> Semantic<(Block, Op<Self>)> {
        let (block, previous) = self.begin_region(types.iter().cloned());
        let parameters = self.builder.function.blocks[block].parameters.clone();
        let arguments = parameters.iter().map(|&value| Operand::Tensor(value)).collect();
        let span = self.span;
        let result = self.call(function, arguments, Vec::new()).and_then(|value| {
            // The region yields run-time values, even if the code around it keeps compile-time
            // values.
            let keeps_constants = std::mem::replace(&mut self.keeps_constants, false);
            let value = self.decay_all(&value);
            self.keeps_constants = keeps_constants;
            let value = value.map_err(|_| SemanticError::reported(Code::ReturnMismatch))?;
            self.at(span);
            self.builder.yield_values(template::values(&value))?;
            Ok(value)
        });
        self.end_region(previous);
        result.map(|value| (block, value))
    }

    fn worker(
        &mut self,
        function: &Op<Self>,
        arguments: Vec<Op<Self>>,
        warps: u32,
    ) -> Semantic<(Block, Op<Self>)> {
        let (block, previous) = self.begin_region([]);
        let outer = std::mem::replace(&mut self.session.worker_warps, warps);
        let result = self.call(function, arguments, Vec::new()).and_then(|value| {
            self.builder.yield_values(Vec::new())?;
            Ok(value)
        });
        self.session.worker_warps = outer;
        self.end_region(previous);
        result.map(|value| (block, value))
    }

    fn is_in_worker(&self) -> bool {
        self.session.worker_warps != 0
    }

    fn beyond_elements(&mut self, region: &Block) -> Option<&'static str> {
        let functions = &self.session.functions;
        let mut work = vec![(&self.builder.function, *region)];
        let mut found = None;
        while let Some((function, block)) = work.pop() {
            function.walk(block, &mut |inst| {
                let data = &function.insts[inst];
                let op = &data.op;
                if let IrOp::Call { callee, .. } = op {
                    work.push((&functions[*callee], functions[*callee].entry));
                }
                let is_seen = op.info().effect == Effect::Write && !matches!(op, IrOp::Assert { .. });
                if is_seen || data.results.iter().any(|result| !function.ty(*result).is_scalar()) {
                    found.get_or_insert(op.name());
                }
            });
        }
        found
    }

    fn call(
        &mut self,
        function: &Op<Self>,
        arguments: Vec<Op<Self>>,
        keywords: Vec<(Arc<str>, Op<Self>)>,
    ) -> Semantic<Op<Self>> {
        let span = self.span;
        let arguments = Arguments {
            positional: arguments.into_iter().map(|value| (value, None)).collect(),
            keywords: keywords.into_iter().map(|(name, value)| (name, (value, None), span)).collect(),
        };
        let result = self.call_operand(function, arguments, span, span);
        self.at(span);
        result.map_err(|_| SemanticError::reported(Code::NotCallable))
    }

    fn options(&self) -> &Options {
        self.session.options
    }

    fn is_in_library(&self) -> bool {
        self.session.frames.last().is_some_and(|frame| frame.is_library)
    }

    fn layout_text(&mut self, object: ObjectRef) -> Option<String> {
        match self.session.host.attribute(object, "_text")? {
            HostValue::PlainGlobal(Constant::Str(text)) | HostValue::Constant(Constant::Str(text)) => {
                Some(text.to_string())
            }
            _ => None,
        }
    }

    fn layout_object(&mut self, text: &str) -> Option<Constant> {
        match from_host::<Value>(self.session.host.layout(text)?) {
            Operand::Object(object) | Operand::Constant(Constant::Object(object)) => {
                Some(Constant::Object(object))
            }
            _ => None,
        }
    }

    fn num_warps(&mut self) -> u32 {
        self.session.is_shareable = false;
        match self.session.worker_warps {
            0 => self.session.options.num_warps,
            of_worker => of_worker,
        }
    }

    fn num_ctas(&mut self) -> u32 {
        self.session.is_shareable = false;
        self.session.options.num_ctas.max(1)
    }

    fn print(&mut self, text: &str) {
        self.session.is_shareable = false;
        self.session.host.print(text);
    }

    fn show(&mut self, constant: &Constant) -> String {
        match constant {
            Constant::Object(object) => self.session.host.describe(*object),
            other => other.to_string(),
        }
    }

    fn read_only(&mut self, pointer: &Value) -> Option<Arc<str>> {
        self.read_only_root(*pointer)
    }

    fn cast_pointer(&mut self, pointer: &Value, is_const: bool) {
        self.mark_cast(*pointer, is_const);
    }

    fn known(&mut self, operand: &Op<Self>) -> Option<Constant> {
        self.as_constant(operand)
    }
}
