//! The host, which resolves the free names of a kernel. Live Python objects are one host; a
//! module's own source, without Python, is the other ([`SourceHost`](crate::SourceHost)).

use std::sync::Arc;

use tilewright_base::{Diagnostic, SourceFile, SourceMap};

use crate::parse::Tree;
use crate::reference::{FunctionRef, MemberFunction, ObjectRef};
use crate::tuple::{Fields, Tuple};
use crate::value::Constant;

/// The meaning of a name or attribute of the host.
#[derive(Clone, PartialEq, Debug)]
pub enum HostValue {
    /// A compile-time value that kernels may use: a `tl.constexpr`, a `tl` dtype, `None`, or an
    /// attribute of a module.
    Constant(Constant),
    /// A tuple or list of host values.
    Tuple(Tuple<HostValue>),
    /// A name of `triton.language`, by its dotted path below it: `load`, `math.exp`,
    /// `extra.libdevice.tanh`; empty for the module itself. Library functions, which are written in
    /// the kernel language, are among them.
    Language(Arc<str>),
    /// A `@jit` function.
    Function(FunctionRef),
    /// A function that the host runs at compile time on compile-time arguments, such as
    /// `math.log2`. (A function decorated with `constexpr_function` may also be given as a
    /// `Function`: its source is evaluated then.)
    ConstexprFunction(ObjectRef),
    /// A global that is a plain number, string or such, not declared `tl.constexpr`.
    PlainGlobal(Constant),
    /// A plain Python function or class, which kernels cannot call.
    Callable(ObjectRef),
    /// Anything else; the compiler may query its attributes.
    Object(ObjectRef),
    /// A run-time value, as an argument of a compile-time function that
    /// [takes](Host::takes_run_time) run-time values, or in its result.
    RunTime(Arc<RunTime>),
}

/// A tensor, a pointer or a descriptor in a call of a compile-time function: its type is known, but
/// not its value.
#[derive(Clone, PartialEq, Debug)]
pub struct RunTime {
    /// Its index among the call's run-time values.
    pub number: u32,
    /// True if it is a tensor descriptor.
    pub is_descriptor: bool,
    /// Its known properties: `dtype`, `shape` and such. Empty in the result of the function.
    pub attributes: Vec<(&'static str, HostValue)>,
}

/// The reason why a compile-time function returned no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The text of the exception.
    pub text: String,
    /// True if it needed the value of an argument with only a known type.
    pub needs_value: bool,
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        Self { text, needs_value: false }
    }
}

/// The source of a `@jit` function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionSource {
    /// The name, for messages and the IR.
    pub name: String,
    /// The text that holds the function: its own text from the first decorator on, or a whole
    /// module.
    pub file: Arc<SourceFile>,
    /// The byte in `file.text` at or before the `def`, and after the `def` of any other function of
    /// this name.
    pub offset: u32,
    /// True if calls of it stay calls (`noinline=True`): the passes do not inline it, but a back
    /// end may.
    pub noinline: bool,
}

/// A class that makes tuples with named fields.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTuple {
    /// Its name, for messages.
    pub name: String,
    /// The names of the fields.
    pub fields: Fields,
    /// The defaults of the last fields.
    pub defaults: Vec<HostValue>,
}

/// A class decorated with `triton.aggregate`: its instances are values with named parts, and it has
/// methods.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Its name, for messages.
    pub name: String,
    /// The annotated names of the class and its bases, and the kind of each.
    pub fields: Vec<(Arc<str>, FieldKind)>,
    /// The value of each field if the class has no `__init__` of its own and is called without a
    /// value for it.
    pub defaults: Vec<Option<HostValue>>,
}

/// The values that a field of an aggregate may hold, by its annotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// `tl.constexpr`: a value that is known at compile time, and stays so.
    Constexpr,
    /// `tl.tensor`: a scalar or tile at run time.
    Tensor,
    /// An instance of another aggregate.
    Aggregate(ObjectRef),
    /// Any value.
    Any,
}

/// The meaning of a name in an aggregate's class.
#[derive(Clone, PartialEq, Debug)]
pub enum Member {
    /// A method, which takes the instance.
    Method(MemberFunction),
    /// A function that is called without parentheses.
    Property(MemberFunction),
    /// A method that takes the class.
    ClassMethod(MemberFunction),
    /// A function without an instance, or a value.
    Static(HostValue),
}

/// A file that has been parsed.
#[derive(Clone)]
pub struct ParsedModule(pub(crate) Arc<Tree>);

/// Resolves names, attributes and defaults that a kernel's source does not contain.
pub trait Host {
    /// Returns the source of a function; an error is a sentence for the user.
    fn source(&mut self, function: FunctionRef) -> Result<FunctionSource, String>;

    /// Returns the syntax tree of a file, if the host has parsed it.
    fn parsed(&mut self, _file: &Arc<SourceFile>) -> Option<ParsedModule> {
        None
    }

    /// Returns the meaning of a free name in a function: its closure, then its globals. The
    /// frontend knows Python's builtins (`len`, `min`) itself. `triton.cdiv` and
    /// `triton.next_power_of_2` are best returned as `Language("builtins.triton.cdiv")` and
    /// `Language("builtins.triton.next_power_of_2")`.
    fn name(&mut self, function: FunctionRef, name: &str) -> Option<HostValue>;

    /// Returns the names that are visible in a function, for suggestions.
    fn names(&mut self, function: FunctionRef) -> Vec<String>;

    /// Returns an attribute of an object.
    fn attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue>;

    /// Returns an attribute of a number or string in the host's language, such as `bit_length` of
    /// an int; a method is a `ConstexprFunction`. A host without Python knows none.
    fn method(&mut self, _value: &Constant, _name: &str) -> Option<HostValue> {
        None
    }

    /// Returns the default of a parameter of a function, evaluated by the host.
    fn default(&mut self, function: FunctionRef, parameter: &str) -> Option<HostValue>;

    /// Calls a compile-time function.
    fn call(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<HostValue, CallError>;

    /// Returns whether a compile-time function is decorated as one: its arguments may be run-time
    /// values, whose type it queries.
    fn takes_run_time(&mut self, _callee: ObjectRef) -> bool {
        false
    }

    /// Returns the fields of a `NamedTuple` class, which kernels may call, with their defaults.
    fn named_tuple(&mut self, _class: ObjectRef) -> Option<NamedTuple> {
        None
    }

    /// Returns the fields of a class that `triton.aggregate` decorates.
    fn aggregate(&mut self, _class: ObjectRef) -> Option<Aggregate> {
        None
    }

    /// Returns the meaning of a name in an aggregate's class; with `after`, in the classes that
    /// follow `after` in its method resolution order. Without `after`, `__init__` is that of the
    /// class itself: it does not inherit one.
    fn member(&mut self, _class: ObjectRef, _after: Option<ObjectRef>, _name: &str) -> Option<Member> {
        None
    }

    /// Returns whether an object that is neither a function nor a class can be called at compile
    /// time: a method of an object, or an object with `__call__`.
    fn is_callable(&mut self, _object: ObjectRef) -> bool {
        false
    }

    /// Returns whether a value is an instance of a class of the host; an aggregate is given by its
    /// class.
    fn is_instance(&mut self, _value: &HostValue, _class: ObjectRef) -> bool {
        false
    }

    /// Applies Python's operator of this name (`getitem`, `add`, `contains`, `len`, `iter` for the
    /// items as a tuple) to operands with an object of the host; an error is the text of the
    /// exception. A host without Python returns `None`.
    fn operate(&mut self, _operator: &str, _operands: &[HostValue]) -> Option<Result<HostValue, String>> {
        None
    }

    /// Returns a noun for an object, for messages: `function 'helper'`, `module 'math'`.
    fn describe(&mut self, object: ObjectRef) -> String;

    /// Prints text for the user at compile time (`tl.static_print`); it includes its newline.
    fn print(&mut self, text: &str);

    /// Warns about code that is legal in a kernel, but seldom intended. A host without Python
    /// writes it to standard error.
    fn warn(&mut self, diagnostic: &Diagnostic, sources: &SourceMap) {
        eprintln!("{}", diagnostic.render(sources, tilewright_base::Color::Never));
    }

    /// Returns whether the user has interrupted the compilation (Ctrl-C). Lowering polls it
    /// regularly, and then ends with the diagnostic `Interrupted`.
    fn interrupted(&mut self) -> bool {
        false
    }
}
