//! Defines the values of a kernel's expressions, at run time or at compile time.

use std::fmt;
use std::sync::Arc;

use tilewright_ir::{Dtype, Type};

use crate::descriptor::Descriptor;
use crate::launch_response::LaunchResponse;
use crate::reference::{FunctionRef, MemberFunction, ObjectRef};
use crate::repr::{float_repr, string_repr, type_name};
use crate::shared_memory::SharedMemory;
use crate::tuple::Tuple;
use crate::types::LanguageType;

/// A value known at compile time, with Python's semantics.
#[derive(Clone, PartialEq, Debug)]
pub enum Constant {
    /// `None`.
    None,
    /// `True` and `False`.
    Bool(bool),
    /// An integer. An operator whose result needs more than 128 bits fails.
    Int(i128),
    /// A float.
    Float(f64),
    /// A string.
    Str(Arc<str>),
    /// A type of the IR: a dtype such as `tl.float32`, a `tl.block_type` (with a shape), or a
    /// `tl.pointer_type` (with a pointer as element).
    Type(Type),
    /// A type that no value of the IR has, such as `tl.void`.
    LanguageType(Arc<LanguageType>),
    /// A tuple or list.
    Tuple(Tuple<Constant>),
    /// An object of the host, such as an instance of a user's class.
    Object(ObjectRef),
}

impl Constant {
    /// Creates a `tl` dtype.
    pub fn dtype(dtype: Dtype) -> Self {
        Self::Type(Type::scalar(dtype))
    }

    /// Returns Python's truth value.
    pub fn is_true(&self) -> bool {
        match self {
            Constant::None => false,
            Constant::Bool(value) => *value,
            Constant::Int(value) => *value != 0,
            Constant::Float(value) => *value != 0.0,
            Constant::Str(value) => !value.is_empty(),
            Constant::Tuple(items) => !items.is_empty(),
            Constant::Type(_) | Constant::LanguageType(_) | Constant::Object(_) => true,
        }
    }

    /// Returns a measure of the memory of the value. Most values have size 1. A string adds 1 for
    /// every 16 bytes. A tuple has 1 plus the sizes of its items.
    pub fn size(&self) -> usize {
        match self {
            Constant::Str(text) => 1 + text.len() / 16,
            Constant::Tuple(items) => items.iter().map(Constant::size).fold(1, usize::saturating_add),
            _ => 1,
        }
    }

    /// Returns the name of the value's Python type, for messages. A list also has the name `tuple`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Constant::None => "None",
            Constant::Bool(_) => "bool",
            Constant::Int(_) => "int",
            Constant::Float(_) => "float",
            Constant::Str(_) => "str",
            Constant::Type(_) => "dtype",
            Constant::LanguageType(_) => "type",
            Constant::Tuple(_) => "tuple",
            Constant::Object(_) => "object",
        }
    }
}

/// Formats the value as Python's `repr` does, with four exceptions:
///
/// - a list has the parentheses of a tuple;
/// - a dtype or another type has its short name (`fp32`);
/// - an object is `<object>`;
/// - a `NamedTuple` has no field names.
impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::None => f.write_str("None"),
            Constant::Bool(true) => f.write_str("True"),
            Constant::Bool(false) => f.write_str("False"),
            Constant::Int(value) => write!(f, "{value}"),
            Constant::Float(value) => f.write_str(&float_repr(*value)),
            Constant::Str(value) => f.write_str(&string_repr(value, false)),
            Constant::Type(ty) => write!(f, "{ty}"),
            Constant::LanguageType(ty) => write!(f, "{ty}"),
            Constant::Object(_) => f.write_str("<object>"),
            Constant::Tuple(items) => {
                f.write_str("(")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str(if items.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

/// Returns Python's `str`, which f-strings, `static_print` and messages use.
pub fn to_str(value: &Constant) -> String {
    match value {
        Constant::Str(text) => text.to_string(),
        Constant::Type(ty) => type_name(ty),
        Constant::LanguageType(ty) => ty.to_string(),
        other => other.to_string(),
    }
}

/// The prefix of the paths of Python's builtins, which share a namespace with `triton.language`.
pub(crate) const BUILTINS: &str = "builtins.";

/// Returns the name that a user writes for an [`Operand::Language`] with this path.
pub(crate) fn language_name(path: &str) -> String {
    match path.strip_prefix(BUILTINS) {
        Some(builtin) => builtin.to_owned(),
        None if path.is_empty() => "tl".to_owned(),
        None => format!("tl.{path}"),
    }
}

/// The value of an expression. `V` is the type of the builder's values.
#[derive(Clone, Debug)]
pub enum Operand<V> {
    /// A scalar or tile at run time.
    Tensor(V),
    /// A value known at compile time.
    Constant(Constant),
    /// A tuple that is not a [`Constant`]: it has at least one run-time part or function.
    Tuple(Tuple<Operand<V>>),
    /// A block pointer or tensor descriptor.
    Descriptor(Box<Descriptor<Operand<V>>>),
    /// Shared memory that the program allocates (Gluon).
    Shared(Box<SharedMemory<Operand<V>>>),
    /// The response to a request for a program (Gluon).
    Launch(Box<LaunchResponse<Operand<V>>>),
    /// A name of `triton.language`, by its dotted path.
    Language(Arc<str>),
    /// A method of a run-time value, such as `x.to`: the value, and the path of the function in
    /// `triton.language` that the method calls.
    Method(Box<Operand<V>>, Arc<str>),
    /// A `@jit` function.
    Function(FunctionRef),
    /// A method of a user's class, bound to the instance or class that is its first argument.
    Bound(Box<Operand<V>>, MemberFunction),
    /// `super()`: an instance, and a class. Names are looked up in the bases of the class.
    Super(Box<Operand<V>>, ObjectRef),
    /// A compile-time function of the host.
    ConstexprFunction(ObjectRef),
    /// Another object of the host.
    Object(ObjectRef),
    /// A plain Python callable, which kernels cannot call.
    Callable(ObjectRef),
    /// The result of `range`, `tl.range` or `tl.static_range`.
    Range(Box<Range<V>>),
}

/// The bounds of a `for`, and the options of its compilation.
#[derive(Clone, Debug)]
pub struct Range<V> {
    /// The first value.
    pub lower: Operand<V>,
    /// The exclusive end.
    pub upper: Operand<V>,
    /// The increment.
    pub step: Operand<V>,
    /// True if the loop is unrolled at compile time (`tl.static_range`).
    pub is_static: bool,
    /// The other arguments of `tl.range`.
    pub options: tilewright_ir::LoopOptions,
}

impl<V> Operand<V> {
    /// Returns the compile-time value; `None` for other operands.
    pub fn constant(&self) -> Option<&Constant> {
        match self {
            Operand::Constant(constant) => Some(constant),
            _ => None,
        }
    }
}

impl<V> Operand<V> {
    /// Returns the size as [`Constant::size`] does. A run-time value has size 1.
    pub fn size(&self) -> usize {
        match self {
            Operand::Constant(constant) => constant.size(),
            Operand::Tuple(items) => items.iter().map(Operand::size).fold(1, usize::saturating_add),
            _ => 1,
        }
    }
}

impl<V> From<Constant> for Operand<V> {
    fn from(constant: Constant) -> Self {
        Operand::Constant(constant)
    }
}
