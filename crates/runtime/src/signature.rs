//! Describes the parameters of a kernel, and binds the arguments of a call to them.

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic, FileId, SourceMap, Span};
use tilewright_compiler::{FunctionSyntax, function_syntax};
use tilewright_frontend::{Constant, FunctionSource, suggest};
use tilewright_ir::{Dtype, Element};

use crate::options::{OPTIONS, OptionId, OptionInfo};
use crate::{Device, Error, Grid, Value};

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The name.
    pub name: Arc<str>,
    /// The annotation after the colon.
    pub annotation: Annotation,
    /// The way in which callers pass the argument.
    pub kind: ParameterKind,
    /// The default of the parameter. `None` if the parameter has no default. A caller that stores
    /// the default elsewhere sets `Value::None` here.
    pub default: Option<Value<'static>>,
    /// True if code may depend on whether the argument is 1 or a multiple of 16. False for a
    /// parameter in `do_not_specialize`.
    pub specialize: bool,
    /// True if code may depend on whether the argument is a multiple of 16. False for a parameter
    /// in `do_not_specialize_on_alignment`.
    pub specialize_alignment: bool,
}

impl Parameter {
    /// Creates a specialized parameter without a default.
    pub fn new(name: impl Into<Arc<str>>, annotation: Annotation) -> Self {
        Self {
            name: name.into(),
            annotation,
            kind: ParameterKind::default(),
            default: None,
            specialize: true,
            specialize_alignment: true,
        }
    }

    /// Creates the parameter `*name`, which receives the remaining positional arguments.
    pub fn variadic(name: impl Into<Arc<str>>, annotation: Annotation) -> Self {
        Self {
            kind: ParameterKind::Variadic,
            default: Some(Value::Tuple(Vec::new().into())),
            ..Self::new(name, annotation)
        }
    }
}

/// The way in which the argument of a parameter is passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ParameterKind {
    /// By position or by name.
    #[default]
    Any,
    /// By position: the parameter is before a `/`.
    PositionalOnly,
    /// By name: the parameter is after a `*`.
    KeywordOnly,
    /// `*xs`: the remaining positional arguments, as one tuple.
    Variadic,
}

/// The annotation of a parameter, which decides how its argument is specialized.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Annotation {
    /// No annotation, or an unknown one: the argument determines the type.
    #[default]
    None,
    /// `tl.constexpr`.
    Constexpr,
    /// `tl.const`: a pointer that is only read.
    Const,
    /// A type: `tl.int64`, `"*fp32"`, `"u32"`.
    Type(Element),
}

impl Annotation {
    /// Parses an annotation: the names of `tl.constexpr` and the dtypes in source, and Triton's
    /// short names (`i64`, `*fp16`, `const *fp32`). Any other text means no annotation.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Some(pointer) = text.strip_prefix("const ") {
            return Self::parse(pointer);
        }
        let name = text.rsplit('.').next().unwrap_or(text);
        match name {
            "constexpr" => Self::Constexpr,
            "const" => Self::Const,
            _ => match text.strip_prefix('*') {
                Some(pointee) => parse_dtype(pointee).map(Element::Pointer),
                None => parse_dtype(name).map(Element::Value),
            }
            .map_or(Self::None, Self::Type),
        }
    }
}

/// Parses a dtype by any name that Triton knows: `fp32`, `float32`, `i32`, `int32`, `u1`, `bool`.
pub fn parse_dtype(name: &str) -> Option<Dtype> {
    let number = |prefix: &str, long: &str| {
        name.strip_prefix(prefix)
            .filter(|bits| bits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|bits| Dtype::parse(&format!("{long}{bits}")))
    };
    Dtype::parse(name).or_else(|| match name {
        "bool" | "i1" | "u1" => Some(Dtype::I1),
        "half" => Some(Dtype::F16),
        "bfloat16" => Some(Dtype::BF16),
        "float" => Some(Dtype::F32),
        "double" => Some(Dtype::F64),
        _ if name.starts_with("float8") => Dtype::parse(&name.replacen("float8", "fp8", 1)),
        _ => number("float", "fp").or_else(|| number("i", "int")).or_else(|| number("u", "uint")),
    })
}

/// The source of a parameter's argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentSource {
    /// The positional argument with this index.
    Positional(usize),
    /// The keyword argument with this index.
    Keyword(usize),
    /// The parameter's default.
    Default,
}

/// The assignment of a call's arguments to parameters and options. It depends only on the number of
/// positional arguments and on the keywords. So a caller may reuse it for calls with the same
/// number and keywords.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The source of each parameter, in order.
    pub parameters: SmallVec<[ArgumentSource; 16]>,
    /// The keyword arguments that are options, by their index. A keyword that also names a
    /// parameter, such as `num_stages`, sets both, unless the option is for the launcher.
    pub options: SmallVec<[(usize, OptionId); 4]>,
}

/// A kernel's name, its parameters and its source.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The name.
    pub name: Arc<str>,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// The source, for messages.
    pub source: Option<FunctionSource>,
}

impl Signature {
    /// Returns the index of the parameter that receives all remaining positional arguments. Callers
    /// combine these arguments into one tuple before they [`bind`](Self::bind) a call, and pass the
    /// tuple at this index.
    pub fn variadic(&self) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.kind == ParameterKind::Variadic)
    }

    /// Binds a call with `positional` positional arguments and these keywords.
    pub fn bind(&self, positional: usize, keywords: &[&str]) -> Result<Binding, Error> {
        if positional > self.most_positional() {
            return Err(self.too_many(positional));
        }
        let mut bound: SmallVec<[Option<ArgumentSource>; 16]> = (0..self.parameters.len())
            .map(|index| (index < positional).then_some(ArgumentSource::Positional(index)))
            .collect();
        let mut options: SmallVec<[(usize, OptionId); 4]> = SmallVec::new();
        for (number, &keyword) in keywords.iter().enumerate() {
            let is_named = |parameter: &Parameter| *parameter.name == *keyword;
            let takes = |p: &Parameter| {
                is_named(p) && !matches!(p.kind, ParameterKind::PositionalOnly | ParameterKind::Variadic)
            };
            let parameter = self.parameters.iter().position(takes);
            let option = OptionId::parse(keyword);
            match parameter {
                Some(index) if bound[index].is_some() => return Err(self.given_twice(index)),
                Some(index) => bound[index] = Some(ArgumentSource::Keyword(number)),
                None if option.is_some() => {}
                None => {
                    return Err(match self.parameters.iter().position(is_named) {
                        Some(index) => self.given_by_keyword(index),
                        None => self.unknown_keyword(keyword),
                    });
                }
            }
            if let Some(option) = option.filter(|option| parameter.is_none() || !option.is_for_launcher()) {
                if options.iter().any(|&(_, known)| known == option) {
                    return Err(self.option_given_twice(keyword));
                }
                options.push((number, option));
            }
        }
        let has_default = |index: usize| self.parameters[index].default.is_some();
        let mut missing =
            (0..bound.len()).filter(|&index| bound[index].is_none() && !has_default(index)).peekable();
        if missing.peek().is_some() {
            return Err(self.missing(&missing.collect::<Vec<_>>()));
        }
        let parameters = bound.into_iter().map(|source| source.unwrap_or(ArgumentSource::Default)).collect();
        Ok(Binding { parameters, options })
    }

    /// Returns the index of the parameter with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| *parameter.name == *name)
    }

    /// Returns `TW0105`: an argument has a type that kernels do not accept. `found` names the type.
    /// `place` is the path of the value in a tuple argument (`[0].name`), or empty.
    pub fn invalid_argument(&self, index: usize, place: &str, found: &str, hint: &str) -> Error {
        let taken =
            "tensors, ints, floats, bools, None, tuples of these, and anything hashable for a tl.constexpr";
        self.misfit(index, place, found, &format!("a kernel takes {taken}"), hint)
    }

    /// Returns `TW0105`: the parameter does not accept its argument. `note` describes the expected
    /// arguments.
    pub(crate) fn misfit(&self, index: usize, place: &str, found: &str, note: &str, hint: &str) -> Error {
        let name = self.parameter_name(index);
        let message = format!("argument '{name}{place}' of kernel '{}' is {found}", self.name);
        let diagnostic = Diagnostic::new(Code::InvalidArgument, message).note(note).hint(hint);
        self.at(diagnostic, Some(index), "this parameter")
    }

    /// Returns `TW0106`: a tensor is on another device than the launch. Returns `TW0109` instead if
    /// this machine does not have the device of the launch, because no tensor can be moved there.
    /// For `place`, see [`invalid_argument`](Self::invalid_argument).
    pub fn wrong_device(&self, index: usize, place: &str, found: &str, expected: &str) -> Error {
        if let Ok(device @ Device::Cuda(_)) = Device::parse(expected)
            && let Err(unavailable) = device.gpu()
        {
            return unavailable;
        }
        let name = self.parameter_name(index);
        let message = format!("argument '{name}{place}' of kernel '{}' is on device '{found}'", self.name);
        let diagnostic = Diagnostic::new(Code::WrongDevice, message)
            .note(format!("found a tensor on '{found}', expected one on '{expected}', where the kernel runs"))
            .hint(format!("move it with `.to('{expected}')`"));
        self.at(diagnostic, Some(index), "this parameter")
    }

    /// Returns `TW0106`: some parameters get tensors on `cuda`, which the CPU replaces here, and
    /// others get tensors on the CPU.
    pub fn two_devices(&self, on_cuda: &[usize], on_cpu: &[usize]) -> Error {
        let (cuda, cpu) = (self.list(on_cuda), self.list(on_cpu));
        let message =
            format!("kernel '{}' gets tensors on two devices: {cuda} on 'cuda:0', {cpu} on 'cpu'", self.name);
        let diagnostic = Diagnostic::new(Code::WrongDevice, message)
            .note("'cuda' is the CPU here; on a GPU, the kernel could not read what is on 'cpu'")
            .hint("put all tensors of a launch on one device, with `device='cuda'` or `.to('cuda')`");
        self.at(diagnostic, on_cpu.first().copied(), "this one is on 'cpu'")
    }

    /// Returns `TW0104`: the kernel is called like a function.
    pub fn no_grid(&self) -> Error {
        let diagnostic =
            Diagnostic::new(Code::NoGrid, format!("kernel '{}' is called without a grid", self.name))
                .note("a kernel runs once for every program of a grid")
                .hint(format!("write `{}[grid](...)`, with the number of programs as grid", self.name));
        self.at(diagnostic, None, "this is a kernel")
    }

    /// Returns the number of parameters that are not keyword-only.
    pub(crate) fn most_positional(&self) -> usize {
        let is_positional = |kind| kind != ParameterKind::KeywordOnly;
        self.parameters.iter().filter(|parameter| is_positional(parameter.kind)).count()
    }

    /// Returns `TW0107`: a call has more positional arguments than the kernel takes.
    pub(crate) fn too_many(&self, positional: usize) -> Error {
        let (expected, all) = (self.most_positional(), self.parameters.len());
        let how = if expected < all { " by position" } else { "" };
        let message =
            format!("kernel '{}' takes {expected} arguments{how}, and {positional} were given", self.name);
        let mut diagnostic = Diagnostic::new(Code::TooManyArguments, message)
            .note(format!("its parameters are {}", self.list((0..all).collect::<Vec<_>>().as_slice())))
            .hint("options such as num_warps are passed by keyword");
        if expected < all {
            let names = self.list((expected..all).collect::<Vec<_>>().as_slice());
            diagnostic.hint = Some(format!("after the `*`, pass by keyword: {names}"));
        }
        self.at(diagnostic, None, "defined here")
    }

    /// Returns `TW0112`: the grid has no programs.
    pub fn empty_grid(&self, grid: Grid) -> Error {
        let [x, y, z] = grid.extents();
        let message = format!("kernel '{}' is launched with the empty grid ({x}, {y}, {z})", self.name);
        let diagnostic = Diagnostic::new(Code::EmptyGrid, message)
            .note("found 0 programs along an axis, expected at least 1: nothing runs, and outputs stay as they are")
            .hint("`triton.cdiv(n, BLOCK_SIZE)` rounds up, `n // BLOCK_SIZE` does not; skip the launch if inputs may be empty");
        self.at(diagnostic, None, "this kernel does not run")
    }

    /// Returns `TW0113`: the grid is a number.
    pub fn grid_not_a_tuple(&self, grid: Grid) -> Error {
        let [count, ..] = grid.extents();
        let message = format!("kernel '{}' is launched with the int {count} as its grid", self.name);
        let diagnostic = Diagnostic::new(Code::GridNotATuple, message)
            .note("found an int, expected a tuple of 1 to 3 ints, or a function that returns one; Triton takes nothing else")
            .hint(format!("write `{}[({count},)](...)`", self.name));
        self.at(diagnostic, None, format!("it runs {count} programs").as_str())
    }

    /// Returns `TW0115`: an option is set that has no effect on the code. `instead` describes the
    /// behavior, which is the same without the option.
    pub fn option_without_effect(&self, (info, value, instead): &(OptionInfo, Constant, &str)) -> Error {
        let name = info.name;
        let message = format!("the launch option {name}={value} of kernel '{}' has no effect", self.name);
        let diagnostic = Diagnostic::new(Code::OptionWithoutEffect, message)
            .note(format!("{name}: {}; the code does not depend on it", info.about))
            .hint(format!("a launch without it does the same: {instead}"));
        self.at(diagnostic, None, "this kernel")
    }

    /// Returns the error for a caller that has passed `given` values, not one for each parameter.
    pub(crate) fn wrong_number(&self, given: usize) -> Error {
        if given > self.parameters.len() {
            self.too_many(given)
        } else {
            self.missing(&(given..self.parameters.len()).collect::<Vec<_>>())
        }
    }

    pub(crate) fn given_twice(&self, index: usize) -> Error {
        let name = self.parameter_name(index);
        let message = format!("kernel '{}' got two values for argument '{name}'", self.name);
        let diagnostic = Diagnostic::new(Code::TooManyArguments, message)
            .hint(format!("pass '{name}' by position or by keyword, not both"));
        self.at(diagnostic, Some(index), "this parameter")
    }

    fn option_given_twice(&self, name: &str) -> Error {
        let message = format!("kernel '{}' got two values for the launch option '{name}'", self.name);
        let diagnostic = Diagnostic::new(Code::TooManyArguments, message)
            .hint(format!("pass '{name}' once, in the call or in a configuration of the tuner"));
        self.at(diagnostic, None, "this kernel")
    }

    fn given_by_keyword(&self, index: usize) -> Error {
        let name = self.parameter_name(index);
        let message = format!("kernel '{}' takes argument '{name}' by position, not by keyword", self.name);
        let diagnostic = Diagnostic::new(Code::MissingArgument, message);
        if self.parameters[index].kind == ParameterKind::Variadic {
            let hint = "pass its items by position, after the arguments of the parameters before it";
            return self.at(diagnostic.hint(hint), Some(index), "this parameter takes them as a tuple");
        }
        let hint = format!("pass it by position, or move '{name}' after the `/` of the signature");
        self.at(diagnostic.hint(hint), Some(index), "this parameter is before the `/`")
    }

    pub(crate) fn missing(&self, missing: &[usize]) -> Error {
        let plural = if missing.len() == 1 { "" } else { "s" };
        let list = self.list(missing);
        let message = format!("kernel '{}' is launched without argument{plural} {list}", self.name);
        let first = missing.first().copied();
        let is_constexpr =
            first.is_some_and(|index| self.parameters[index].annotation == Annotation::Constexpr);
        let name = first.map_or("", |index| self.parameter_name(index));
        let hint = if is_constexpr {
            format!("a compile-time value is passed by keyword: `{}[grid](..., {name}=1024)`", self.name)
        } else {
            format!("pass it by position or by keyword: `{}[grid](..., {name}=...)`", self.name)
        };
        self.at(
            Diagnostic::new(Code::MissingArgument, message).hint(hint),
            first,
            "no value for this parameter",
        )
    }

    pub(crate) fn unknown_keyword(&self, keyword: &str) -> Error {
        let parameters = self.parameters.iter().map(|parameter| &*parameter.name);
        let options = OPTIONS.iter().map(|info| info.name);
        let message =
            format!("'{keyword}' is neither a parameter of kernel '{}' nor a launch option", self.name);
        let mut diagnostic = Diagnostic::new(Code::UnknownOption, message).note(format!(
            "the parameters are {}",
            self.list((0..self.parameters.len()).collect::<Vec<_>>().as_slice())
        ));
        diagnostic.hint = Some(match suggest(keyword, parameters.chain(options)) {
            Some(similar) => format!("did you mean '{similar}'?"),
            None => {
                "options are num_warps, num_stages, num_ctas, maxnreg, debug and others of Triton's".into()
            }
        });
        self.at(diagnostic, None, "defined here")
    }

    fn parameter_name(&self, index: usize) -> &str {
        self.parameters.get(index).map_or("", |parameter| &parameter.name)
    }

    fn list(&self, indices: &[usize]) -> String {
        let names: Vec<_> =
            indices.iter().map(|&index| format!("'{}'", self.parameter_name(index))).collect();
        names.join(", ")
    }

    /// Creates an error with a finding. If the source is known, it points to a parameter, or by
    /// default to the kernel's name.
    pub(crate) fn at(&self, diagnostic: Diagnostic, parameter: Option<usize>, label: &str) -> Error {
        let mut sources = SourceMap::default();
        let Some((source, syntax)) = self.source.as_ref().and_then(|s| Some((s, function_syntax(s)?))) else {
            return Error::new(diagnostic, sources);
        };
        let file = sources.add(source.file.clone());
        let span = span_of(file, &syntax, parameter.map(|index| self.parameter_name(index)));
        Error::new(diagnostic.primary(span, label), sources)
    }
}

fn span_of(file: FileId, syntax: &FunctionSyntax, parameter: Option<&str>) -> Span {
    let written = parameter.and_then(|name| syntax.parameters.iter().find(|written| written.name == name));
    let (start, end) = written.map_or(syntax.name_range, |written| written.range);
    Span::new(file, start, end)
}
