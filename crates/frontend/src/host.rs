//! Defines the host, which resolves the free names of a kernel.
//!
//! The host of the Python package looks names up in live Python objects.
//! [`SourceHost`](crate::SourceHost) looks them up in the source of a module, without Python.

use std::sync::Arc;

use tilewright_base::{Diagnostic, SourceFile, SourceMap};

#[cfg(feature = "python-syntax")]
use crate::parse::Tree;
use crate::reference::{FunctionRef, MemberFunction, ObjectRef};
use crate::tuple::{Fields, Tuple};
use crate::value::Constant;

/// The meaning of a name or attribute that the host resolves.
#[derive(Clone, PartialEq, Debug)]
pub enum HostValue {
    /// A compile-time value that kernels may use: a `tl.constexpr`, a `tl` dtype, `None`, or an
    /// attribute of a module.
    Constant(Constant),
    /// A tuple or list of host values.
    Tuple(Tuple<HostValue>),
    /// A name of `triton.language`, as the dotted path after `triton.language.`: `load`,
    /// `math.exp`, `extra.libdevice.tanh`; empty for the module itself. The path may name a library
    /// function, whose source is in the kernel language.
    Language(Arc<str>),
    /// A `@jit` function.
    Function(FunctionRef),
    /// A function that the host runs at compile time on compile-time arguments, such as
    /// `math.log2`. For a function decorated with `constexpr_function`, a host may also return a
    /// `Function`. The frontend then evaluates its source.
    ConstexprFunction(ObjectRef),
    /// A global number, string or the like that is not declared `tl.constexpr`.
    PlainGlobal(Constant),
    /// A plain Python function or class, which kernels cannot call.
    Callable(ObjectRef),
    /// Anything else; the compiler may query its attributes.
    Object(ObjectRef),
    /// A run-time value in a call of a compile-time function that [accepts](Host::takes_run_time)
    /// such values. It is an argument, or a part of the result.
    RunTime(Arc<RunTime>),
}

/// A tensor, a pointer or a descriptor in a call of a compile-time function. Its type is known at
/// compile time, but its value is not.
#[derive(Clone, PartialEq, Debug)]
pub struct RunTime {
    /// The id of the value, which is unique in the process.
    pub id: u64,
    /// True if the value is a tensor descriptor.
    pub is_descriptor: bool,
    /// The properties known at compile time, such as `dtype` and `shape`. Empty if the value is a
    /// part of the function's result.
    pub attributes: Vec<(&'static str, HostValue)>,
}

/// The reason why a compile-time function returned no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The text of the exception.
    pub text: String,
    /// True if the function needed the value of an argument that is only known at run time.
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
    /// The text that contains the function. It is the function's own text from the first decorator
    /// on, or a whole module.
    pub file: Arc<SourceFile>,
    /// An offset in `file.text`. The function is the first function with its name at or after this
    /// offset.
    pub offset: u32,
    /// True if the optimizer does not inline calls of the function (`noinline=True`). A back end
    /// may still inline them.
    pub noinline: bool,
}

/// A class whose instances are tuples with named fields.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTuple {
    /// Its name, for messages.
    pub name: String,
    /// The names of the fields.
    pub fields: Fields,
    /// The defaults of the last fields; earlier fields have none.
    pub defaults: Vec<HostValue>,
}

/// A class decorated with `triton.aggregate`. The class has methods, and its instances are values
/// with named parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Its name, for messages.
    pub name: String,
    /// The fields, which are the annotated names of the class and its bases, each with its kind.
    pub fields: Vec<(Arc<str>, FieldKind)>,
    /// The default of each field. A call of the class uses the defaults if the class has no
    /// `__init__` of its own.
    pub defaults: Vec<Option<HostValue>>,
}

/// The values that a field of an aggregate may have, by the annotation of the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// `tl.constexpr`: a value that is and remains known at compile time.
    Constexpr,
    /// `tl.tensor`: a scalar or tile at run time.
    Tensor,
    /// An instance of another aggregate.
    Aggregate(ObjectRef),
    /// Any value.
    Any,
}

/// The meaning of a name in the class of an aggregate.
#[derive(Clone, PartialEq, Debug)]
pub enum Member {
    /// A method, whose first argument is the instance.
    Method(MemberFunction),
    /// A property: reading the attribute calls the function.
    Property(MemberFunction),
    /// A class method, whose first argument is the class.
    ClassMethod(MemberFunction),
    /// A static method or a value.
    Static(HostValue),
}

/// A file that has been parsed.
#[cfg(feature = "python-syntax")]
#[derive(Clone)]
pub struct ParsedModule(pub(crate) Arc<Tree>);

/// Resolves names, attributes and defaults that a kernel's source does not contain.
pub trait Host {
    /// Returns the source of a function. An error is a sentence for the user.
    fn source(&mut self, function: FunctionRef) -> Result<FunctionSource, String>;

    /// Returns the syntax tree of a file, if the host has parsed it.
    #[cfg(feature = "python-syntax")]
    fn parsed(&mut self, _file: &Arc<SourceFile>) -> Option<ParsedModule> {
        None
    }

    /// Resolves a free name of a function, first in its closure, then among its globals. The
    /// frontend itself resolves Python's builtins (`len`, `min`). A host should resolve
    /// `triton.cdiv` and `triton.next_power_of_2` to `Language("builtins.triton.cdiv")` and
    /// `Language("builtins.triton.next_power_of_2")`.
    fn name(&mut self, function: FunctionRef, name: &str) -> Option<HostValue>;

    /// Returns the names that are visible in a function. The error about an undefined name suggests
    /// a similar visible name.
    fn names(&mut self, function: FunctionRef) -> Vec<String>;

    /// Returns an attribute of an object.
    fn attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue>;

    /// Returns an attribute that Python defines for a number or string, such as `bit_length` of an
    /// int; a method is a `ConstexprFunction`. A host without Python returns `None`.
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

    /// Returns whether a compile-time function is decorated with `constexpr_function`. Such a
    /// function may receive run-time values and read their types.
    fn takes_run_time(&mut self, _callee: ObjectRef) -> bool {
        false
    }

    /// Returns the fields and defaults of a `NamedTuple` class, which kernels may call; `None` for
    /// other classes.
    fn named_tuple(&mut self, _class: ObjectRef) -> Option<NamedTuple> {
        None
    }

    /// Returns the fields of a class that `triton.aggregate` decorates; `None` for other classes.
    fn aggregate(&mut self, _class: ObjectRef) -> Option<Aggregate> {
        None
    }

    /// Resolves a name in the class of an aggregate. With `after`, searches only the classes after
    /// `after` in the method resolution order. Without `after`, `__init__` is not inherited.
    fn member(&mut self, _class: ObjectRef, _after: Option<ObjectRef>, _name: &str) -> Option<Member> {
        None
    }

    /// Returns whether an object that is neither a function nor a class can be called at compile
    /// time. Such an object is a method of an object, or has `__call__`.
    fn is_callable(&mut self, _object: ObjectRef) -> bool {
        false
    }

    /// Returns whether a value is an instance of a class of the host. For an instance of an
    /// aggregate, `value` is the class of the instance.
    fn is_instance(&mut self, _value: &HostValue, _class: ObjectRef) -> bool {
        false
    }

    /// Applies the Python operator with this name (`getitem`, `add`, `contains`, `len`) to operands
    /// that include an object of the host. The operator `iter` returns the items as a tuple. An
    /// error is the text of the exception. A host without Python returns `None`.
    fn operate(&mut self, _operator: &str, _operands: &[HostValue]) -> Option<Result<HostValue, String>> {
        None
    }

    /// Returns the layout object of Gluon that an expression creates.
    fn layout(&mut self, _text: &str) -> Option<HostValue> {
        None
    }

    /// Returns the reason why a caller must use the result of a function that is marked
    /// `must_use_result`. The reason may be empty. Returns `None` if a statement may discard the
    /// result.
    fn must_use_result(&mut self, _function: FunctionRef) -> Option<String> {
        None
    }

    /// Returns a noun for an object in messages: `function 'helper'`, `module 'math'`.
    fn describe(&mut self, object: ObjectRef) -> String;

    /// Prints text for the user at compile time (`tl.static_print`). `text` includes its newline.
    fn print(&mut self, text: &str);

    /// Warns about code that is legal in a kernel, but seldom intended. A host without Python
    /// writes the warning to standard error.
    fn warn(&mut self, diagnostic: &Diagnostic, sources: &SourceMap) {
        eprintln!("{}", diagnostic.render(sources, tilewright_base::Color::Never));
    }

    /// Returns whether the user has interrupted the compilation (Ctrl-C). Lowering polls this
    /// function regularly. If the function returns true, lowering ends with the diagnostic
    /// `Interrupted`.
    fn interrupted(&mut self) -> bool {
        false
    }
}
