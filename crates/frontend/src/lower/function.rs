//! Lowers functions: loads their source, specializes them, and calls them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ruff_python_ast::{Expr, Parameter as Argument, StmtFunctionDef, UnaryOp};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, FileId, LIBRARY, SourceFile, Span};
use tilewright_ir::{
    Builder, FuncId, Function, IrBuilder, Op, Parameter, ScaledFormat, ScaledFormats, Type, TypeList, Value,
};

use super::callee::{Callee, Loaded, ReadOnly, SpecializationState, SyntaxTree};
use super::exit::{Exit, Returned};
use super::lowerer::{Extent, Frame, Lower, Lowerer, Reported, Session};
use super::scope::{Binding, Scope};
use super::template::{self, IrOperand, Template, from_host};
use crate::constexpr;
use crate::descriptor::Descriptor;
use crate::host::HostValue;
use crate::parse::{bytes, find_lambda, parse};
use crate::semantic::{self, LanguageItem, LibraryFunction, UnaryOperator};
use crate::value::{Constant, Operand};
use crate::{Argument as KernelArgument, Request};

/// The maximum nesting of calls.
const MAX_CALLS: usize = 64;

/// Returns the syntax tree of the library file of a function. Each file is parsed once per process.
pub(crate) fn library_tree(function: LibraryFunction) -> Option<Arc<SyntaxTree>> {
    type Trees = FxHashMap<&'static str, Option<Arc<SyntaxTree>>>;
    static TREES: OnceLock<Mutex<Trees>> = OnceLock::new();
    let mut trees = TREES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let tree = trees.entry(function.file).or_insert_with(|| {
        let module = Arc::new(parse(function.text).ok()?);
        let name = format!("{LIBRARY}{}", function.file);
        Some(Arc::new(SyntaxTree { module, source: Arc::new(SourceFile::new(name, function.text)) }))
    });
    tree.clone()
}

/// Evaluates an expression without variables, such as a default or a constant of a library file.
/// Returns `None` otherwise.
pub(crate) fn literal(expression: &Expr) -> Option<Constant> {
    match expression {
        Expr::NoneLiteral(_) => Some(Constant::None),
        Expr::BooleanLiteral(literal) => Some(Constant::Bool(literal.value)),
        Expr::NumberLiteral(literal) => super::literals::number(&literal.value).ok(),
        Expr::StringLiteral(literal) => Some(Constant::Str(literal.value.to_str().into())),
        Expr::Tuple(tuple) => tuple.elts.iter().map(literal).collect::<Option<_>>().map(Constant::Tuple),
        Expr::UnaryOp(unary) if unary.op == UnaryOp::USub => {
            constexpr::unary(UnaryOperator::Neg, &literal(&unary.operand)?).ok()
        }
        Expr::Call(call) if call.arguments.args.len() == 1 => {
            let callee = call.func.as_attribute_expr().map(|attribute| attribute.attr.as_str());
            (callee == Some("constexpr")).then(|| literal(&call.arguments.args[0]))?
        }
        Expr::Attribute(attribute) => match semantic::language(attribute.attr.as_str()) {
            Some(LanguageItem::Constant(constant)) => Some(constant),
            _ => None,
        },
        _ => None,
    }
}

/// Converts an argument of a kernel to an operand with types in place of values.
pub fn operand_of_argument(argument: &KernelArgument) -> Template {
    of_argument(argument, &mut Vec::new())
}

/// The known properties of a run-time part of an argument.
struct KnownFacts {
    divisibility: u32,
    /// True if the part points to read-only memory.
    is_const: bool,
}

/// Converts an argument of a kernel, and appends the known properties of its run-time parts.
fn of_argument(argument: &KernelArgument, known: &mut Vec<KnownFacts>) -> Template {
    match argument {
        KernelArgument::Pointer { pointee, divisibility, is_const } => {
            known.push(KnownFacts { divisibility: *divisibility, is_const: *is_const });
            Operand::Tensor(Type::pointer(*pointee))
        }
        KernelArgument::Scalar { dtype, divisibility } => {
            known.push(KnownFacts { divisibility: *divisibility, is_const: false });
            Operand::Tensor(Type::scalar(*dtype))
        }
        KernelArgument::Constexpr(value) => from_host(value.clone()),
        KernelArgument::Tuple(items) => {
            let parts = items.map(|item| of_argument(item, known));
            let Some(form) = items.descriptor() else { return template::whole(parts) };
            let last_stride = Operand::Constant(Constant::Int(1));
            let parts = parts.into_iter().chain([last_stride]).collect();
            let descriptor = Descriptor::new(form.clone(), parts).expect("a descriptor has all its parts");
            Operand::Descriptor(Box::new(descriptor))
        }
    }
}

/// Returns whether an annotation declares a compile-time value: `tl.constexpr`, `constexpr`,
/// `"tl.constexpr"`.
pub(crate) fn is_constexpr(annotation: Option<&Expr>) -> bool {
    match annotation {
        Some(Expr::Name(name)) => name.id.as_str() == "constexpr",
        Some(Expr::Attribute(attribute)) => attribute.attr.as_str() == "constexpr",
        Some(Expr::StringLiteral(text)) => {
            text.value.to_str().rsplit('.').next().is_some_and(|last| last.trim() == "constexpr")
        }
        Some(Expr::Subscript(subscript)) => is_constexpr(Some(&subscript.value)),
        _ => false,
    }
}

/// Returns whether a function is decorated with `constexpr_function`.
fn keeps_constants(definition: &StmtFunctionDef) -> bool {
    definition.decorator_list.iter().any(|decorator| {
        let expression = match &decorator.expression {
            Expr::Call(call) => &*call.func,
            other => other,
        };
        match expression {
            Expr::Name(name) => name.id.as_str() == "constexpr_function",
            Expr::Attribute(attribute) => attribute.attr.as_str() == "constexpr_function",
            _ => false,
        }
    })
}

/// Returns the parameters of a function in order: positional, `*args`, keyword-only.
pub(crate) fn parameters(definition: &StmtFunctionDef) -> impl Iterator<Item = &Argument> {
    let parameters = &definition.parameters;
    let positional = parameters.posonlyargs.iter().chain(&parameters.args);
    let positional = positional.map(|parameter| &parameter.parameter);
    let keyword_only = parameters.kwonlyargs.iter().map(|parameter| &parameter.parameter);
    positional.chain(parameters.vararg.as_deref()).chain(keyword_only)
}

/// Returns the formats of a dot with scales, if both operands have scales and formats with which an
/// instruction may multiply them. The arguments are those of the library function.
fn scaled_formats(arguments: &[Template]) -> Option<ScaledFormats> {
    let [tiles @ .., a_format, b_format, a_packed, b_packed, _] = arguments else { return None };
    let are_tiles = tiles.iter().all(|tile| matches!(tile, Operand::Tensor(_)));
    let format = |format: &Template, is_packed: &Template| {
        let Operand::Constant(Constant::Str(name)) = format else { return None };
        let is_packed = !matches!(is_packed, Operand::Constant(Constant::Bool(false)));
        ScaledFormat::named(name).filter(|format| is_packed || format.in_byte() == 1)
    };
    let formats = [format(a_format, a_packed)?, format(b_format, b_packed)?];
    are_tiles.then_some(ScaledFormats(formats))
}

impl Session<'_> {
    pub(crate) fn kernel(&mut self, request: &Request) -> Lower<FuncId> {
        let callee = Callee::User(request.kernel);
        let loaded = self.load(callee, None)?;
        let definition = self.definition(&loaded, None)?;
        let count = parameters(definition).count();
        if count != request.arguments.len() {
            let range = bytes(definition.name.range());
            let span = Span::new(loaded.file, range.start, range.end);
            let message = format!(
                "the kernel takes {count} arguments, its specialization has {}",
                request.arguments.len()
            );
            return Err(self.report(Diagnostic::at(Code::WrongArguments, span, message)));
        }
        let mut known = Vec::new();
        let (mut arguments, mut read_only) = (Vec::<Template>::new(), ReadOnly::new());
        for (argument, parameter) in request.arguments.iter().zip(parameters(definition)) {
            let first = known.len();
            arguments.push(of_argument(argument, &mut known));
            let places = (first..known.len()).filter(|&place| known[place].is_const);
            read_only.extend(places.map(|place| (place, parameter.name.as_str().into())));
        }
        let divisibility: Vec<u32> = known.iter().map(|part| part.divisibility).collect();
        let (id, ..) =
            self.specialize(callee, &loaded, (&arguments, &read_only), &divisibility, true, None)?;
        id.ok_or(Reported)
    }

    /// Reads and parses the source of a function.
    pub(crate) fn load(&mut self, callee: Callee, call: Option<Span>) -> Lower<Arc<Loaded>> {
        if let Some(loaded) = self.loaded.get(&callee) {
            return Ok(loaded.clone());
        }
        let loaded = Arc::new(match callee {
            Callee::Library(function) => self.load_library(function)?,
            Callee::Operation => unreachable!("no operation is called"),
            Callee::User(function) | Callee::Constructor(function, _) => {
                let source = self.host.source(function).map_err(|message| match call {
                    Some(span) => self.report(Diagnostic::at(Code::NotCallable, span, message)),
                    None => self.report(Diagnostic::new(Code::KernelNotFound, message)),
                })?;
                let file = self.sources.add(source.file.clone());
                let tree = self.parse(file, source.file)?;
                Loaded { file, tree, name: source.name, offset: source.offset, noinline: source.noinline }
            }
        });
        self.loaded.insert(callee, loaded.clone());
        Ok(loaded)
    }

    fn load_library(&mut self, function: LibraryFunction) -> Lower<Loaded> {
        let Some(tree) = library_tree(function) else {
            let message = format!("the library file {} is not valid Python", function.file);
            return Err(self.report(Diagnostic::new(Code::SyntaxError, message)));
        };
        let file = self.sources.add(tree.source.clone());
        Ok(Loaded { file, tree, name: function.function.to_owned(), offset: 0, noinline: false })
    }

    fn parse(&mut self, file: FileId, source: Arc<SourceFile>) -> Lower<Arc<SyntaxTree>> {
        if let Some(tree) = self.parsed.get(&file) {
            return Ok(tree.clone());
        }
        let module = match self.host.parsed(&source) {
            Some(parsed) => parsed.0,
            None => Arc::new(parse(&source.text).map_err(|failure| self.report(failure.diagnostic(file)))?),
        };
        let tree = Arc::new(SyntaxTree { module, source });
        self.parsed.insert(file, tree.clone());
        Ok(tree)
    }

    pub(crate) fn definition<'l>(
        &mut self,
        loaded: &'l Loaded,
        call: Option<Span>,
    ) -> Lower<&'l StmtFunctionDef> {
        if let Some(definition) = loaded.definition() {
            return Ok(definition);
        }
        if let Some(lambda) = find_lambda(&loaded.tree.module) {
            let range = bytes(lambda.range());
            let span = Span::new(loaded.file, range.start, range.end);
            let diagnostic = Diagnostic::at(Code::UnsupportedConstruct, span, "a lambda cannot be a kernel");
            return Err(self.report(diagnostic.hint("write it as a `def` with @triton.jit")));
        }
        let message = format!("there is no function '{}' in {}", loaded.name, loaded.tree.source.name);
        Err(self.report(match call {
            Some(span) => Diagnostic::at(Code::NotCallable, span, message),
            None => Diagnostic::new(Code::KernelNotFound, message),
        }))
    }

    /// Lowers a function for these arguments, unless there is a specialization. Returns the IR
    /// function, the result, and the read-only values in the result. A `constexpr_function` has an
    /// IR function only if it is a constructor.
    fn specialize(
        &mut self,
        callee: Callee,
        loaded: &Loaded,
        (arguments, read_only): (&[Template], &ReadOnly),
        divisibility: &[u32],
        is_entry: bool,
        call: Option<Span>,
    ) -> Lower<(Option<FuncId>, Template, ReadOnly)> {
        let passed = std::mem::take(&mut self.passed);
        let definition = self.definition(loaded, call)?;
        let place = match self.specializations.find_or_open((callee, self.worker_warps), arguments, read_only)
        {
            Ok(SpecializationState::Done(id, result, read_only)) => return Ok((id, result, read_only)),
            Ok(SpecializationState::Failed) => return Err(Reported),
            Ok(SpecializationState::Open) => return Err(self.recursion(loaded, call)),
            Err(place) => place,
        };
        if self.frames.len() >= MAX_CALLS {
            self.specializations.close(place, SpecializationState::Failed);
            return Err(self.nested_calls(loaded, call));
        }
        let keeps_constants = !is_entry && keeps_constants(definition);
        // A constructor may compute run-time values, even as a `constexpr_function`.
        let id = (!keeps_constants || callee.constructs().is_some())
            .then(|| self.functions.push(Function::new(loaded.name.as_str())));
        let is_library = matches!(callee, Callee::Library(_));
        if let Some(call) = call {
            self.frames.push(Frame { call, name: loaded.name.clone(), is_library, passed });
        }
        let lowered = self.function(
            callee,
            loaded,
            definition,
            (arguments, read_only),
            divisibility,
            (is_entry, keeps_constants),
        );
        if call.is_some() {
            self.frames.pop();
        }
        let (state, result) = match lowered {
            Ok((mut function, extent, result, read_only)) => {
                if matches!(callee, Callee::Library(function) if function.is_scaled_dot()) {
                    function.scaled_dot = scaled_formats(arguments);
                }
                if let Some(id) = id {
                    self.budget.count_function(id, extent);
                    self.functions[id] = function;
                }
                (
                    SpecializationState::Done(id, result.clone(), read_only.clone()),
                    Ok((id, result, read_only)),
                )
            }
            Err(reported) => (SpecializationState::Failed, Err(reported)),
        };
        self.specializations.close(place, state);
        result
    }

    /// Reports a call with the arguments of an enclosing call.
    fn recursion(&mut self, loaded: &Loaded, call: Option<Span>) -> Reported {
        let message = format!("'{}' calls itself", loaded.name);
        let diagnostic = match call {
            Some(span) => Diagnostic::at(Code::RecursiveCall, span, message),
            None => Diagnostic::new(Code::RecursiveCall, message),
        };
        let note = "calls are compiled into the kernel, and nothing that is known at compile time ends this recursion";
        self.report(diagnostic.note(note).hint("write it as a loop"))
    }

    /// Reports too deeply nested calls, such as a recursion with different compile-time arguments.
    fn nested_calls(&mut self, loaded: &Loaded, call: Option<Span>) -> Reported {
        let is_recursive = self.frames.iter().any(|frame| frame.name == loaded.name);
        let code = if is_recursive { Code::RecursiveCall } else { Code::TooLarge };
        let message = format!("calls nest more than {MAX_CALLS} deep, up to this one of '{}'", loaded.name);
        let diagnostic = match call {
            Some(span) => Diagnostic::at(code, span, message),
            None => Diagnostic::new(code, message),
        };
        self.report(diagnostic.hint(if is_recursive {
            "write the recursion as a loop, or see that its compile-time arguments end it sooner"
        } else {
            "call fewer functions within each other"
        }))
    }

    fn function(
        &mut self,
        callee: Callee,
        loaded: &Loaded,
        definition: &StmtFunctionDef,
        (arguments, read_only): (&[Template], &ReadOnly),
        divisibility: &[u32],
        (is_entry, keeps_constants): (bool, bool),
    ) -> Lower<(Function, Extent, Template, ReadOnly)> {
        let range = bytes(definition.name.range());
        let span = Span::new(loaded.file, range.start, range.end);
        let mut function = Function::new(loaded.name.as_str());
        function.span = Some(span);
        function.noinline = loaded.noinline && !is_entry;
        let mut lowerer = Lowerer {
            session: self,
            builder: IrBuilder::new(function),
            callee,
            file: loaded.file,
            definition,
            scope: Scope::default(),
            span,
            loop_depth: 0,
            discarded_call: None,
            syntax_depth: 0,
            region_depth: 0,
            inlined: Extent::default(),
            exit: Exit::default(),
            keeps_constants,
            read_only: FxHashMap::default(),
        };
        lowerer.check_definition()?;
        lowerer.bind_parameters(arguments, divisibility)?;
        let parameters = lowerer.builder.function.blocks[lowerer.builder.function.entry].parameters.clone();
        for (place, name) in read_only {
            lowerer.read_only.entry(parameters[*place]).or_insert_with(|| Some(name.clone()));
        }
        let returned = lowerer.tail(lowerer.body(), None)?;
        lowerer.at(returned.span);
        if is_entry {
            lowerer.check_kernel_result(&returned)?;
        }
        let result = if is_entry { Operand::Constant(Constant::None) } else { returned.value };
        let values = template::values(&result);
        let returns_read_only = lowerer.read_only_among(&values);
        if let Err(error) = lowerer.builder.return_values(values) {
            return Err(lowerer.rule_error(returned.span, error));
        }
        let template = template::of(&result, &lowerer.builder.function);
        let extent = lowerer.extent();
        Ok((lowerer.builder.function, extent, template, returns_read_only))
    }
}

impl Lowerer<'_, '_, '_> {
    /// Reports the unsupported parts of a function's signature.
    fn check_definition(&mut self) -> Lower<()> {
        let definition = self.definition;
        let name = self.span_of(&definition.name);
        if definition.is_async {
            return Err(self.unsupported(name, "'async def'", "remove 'async'"));
        }
        if let Some(parameter) = &definition.parameters.kwarg {
            let span = self.span_of(&**parameter);
            return Err(self.unsupported(span, "a '**' parameter", "name the parameters"));
        }
        Ok(())
    }

    /// Reports a kernel that returns a value, because a launch has no result.
    fn check_kernel_result(&mut self, returned: &Returned) -> Lower<()> {
        if matches!(returned.value, Operand::Constant(Constant::None)) {
            return Ok(());
        }
        let found = self.describe(&returned.value);
        let diagnostic = Diagnostic::new(Code::ReturnMismatch, "a kernel returns nothing")
            .primary(returned.span, format!("{found} here"))
            .hint("write the value to memory, with tl.store");
        Err(self.report(diagnostic))
    }

    pub(crate) fn bind_parameters(&mut self, arguments: &[Template], divisibility: &[u32]) -> Lower<()> {
        let mut known = divisibility.iter().copied();
        let entry = self.builder.function.entry;
        for (parameter, argument) in parameters(self.definition).zip(arguments) {
            let name = parameter.name.as_str();
            let span = self.span_of(&parameter.name);
            let count = template::values(argument).len();
            let is_kernel = self.session.frames.is_empty();
            if is_kernel && count > 0 && is_constexpr(parameter.annotation.as_deref()) {
                let message =
                    format!("'{name}' is a tl.constexpr, but its argument is known at run time only");
                return Err(self.error(Code::NotConstexpr, span, message));
            }
            let mut parts = Vec::new();
            template::name_parts(argument, name, &mut parts);
            let mut parts = parts.into_iter();
            let function = &mut self.builder.function;
            let value = template::map(argument, &mut |ty| {
                let part = parts.next().unwrap_or_default();
                let divisibility = known.next().unwrap_or(1).max(1);
                // Names in the IR have no brackets.
                let short = part.replace('[', ".").replace(']', "");
                function.parameters.push(Parameter { name: part.into(), divisibility });
                function.add_parameter(entry, ty.clone(), Some(short.into()))
            });
            self.declare_read_only(parameter.annotation.as_deref(), name, &value);
            self.scope.insert(name, Binding { is_parameter: true, ..Binding::value(value, span) });
        }
        Ok(())
    }

    pub(crate) fn call_specialized(
        &mut self,
        callee: Callee,
        loaded: &Loaded,
        arguments: &[IrOperand],
        span: Span,
    ) -> Lower<IrOperand> {
        let templates: Vec<Template> =
            arguments.iter().map(|argument| template::of(argument, &self.builder.function)).collect();
        let depth = self.session.depth;
        let operands: SmallVec<[Value; 4]> = arguments.iter().flat_map(template::values).collect();
        let read_only = self.read_only_among(&operands);
        let result = self.deeper(span, |this| {
            this.session.specialize(callee, loaded, (&templates, &read_only), &[], false, Some(span))
        });
        self.session.depth = depth;
        let (id, result, returns_read_only) = result?;
        let Some(id) = id else {
            return template::fill(&result, &mut std::iter::empty()).ok_or_else(|| {
                self.error(Code::NotConstexpr, span, format!("'{}' gives a run-time value", loaded.name))
            });
        };
        self.count_call(id, &loaded.name, span)?;
        self.at(span);
        let op = Op::Call { callee: id, results: TypeList(template::values(&result)) };
        match self.builder.emit(op, operands, SmallVec::new()) {
            Ok(values) => {
                for (place, name) in returns_read_only {
                    self.read_only.insert(values[place], Some(name));
                }
                template::fill(&result, &mut values.into_iter()).ok_or(Reported)
            }
            Err(error) => Err(self.rule_error(span, error)),
        }
    }

    /// Returns the default of a parameter, if it is a compile-time value.
    pub(crate) fn default(&mut self, callee: Callee, name: &str, expression: &Expr) -> Option<IrOperand> {
        match callee {
            Callee::User(function) | Callee::Constructor(function, _) => {
                match self.session.host.default(function, name) {
                    Some(HostValue::PlainGlobal(constant)) => Some(Operand::Constant(constant)),
                    Some(value) => Some(from_host(value)),
                    None => literal(expression).map(Operand::Constant),
                }
            }
            Callee::Library(_) | Callee::Operation => literal(expression).map(Operand::Constant),
        }
    }
}
