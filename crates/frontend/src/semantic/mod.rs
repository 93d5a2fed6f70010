//! Defines the semantic rules. They check the arguments of each operator and of each function of
//! `triton.language`, and emit its ops.
//!
//! The rules are generic over the [`Builder`], and do not depend on syntax. An error has the index
//! of the wrong argument, and the caller knows the position of the argument in the source.

// A rule that no row of `table` names is dead code, so this lint finds missing rows.
#![deny(dead_code)]

mod access;
mod arguments;
mod atomics;
mod attribute;
mod barriers;
mod cluster_launches;
mod clusters;
mod constants;
mod convert;
mod descriptor;
mod device_function;
mod dispatch;
mod dots;
mod entries;
mod external;
mod gluon;
mod inline_asm;
mod library;
mod machine;
mod map;
mod math;
mod memory;
mod movement;
mod names;
mod operators;
mod parts;
mod program;
mod promote;
mod reduce;
mod scan;
mod shape;
mod shared_access;
mod signature;
mod subscript;
mod table;
mod tensor_copies;
mod tensor_memory;
#[cfg(test)]
mod tests;
mod typing;
mod views;
mod workers;

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::{Builder, RuleError, RuleErrorKind, Type};

use crate::reference::ObjectRef;
use crate::value::{Constant, Operand};

pub use attribute::attribute;
pub use convert::to_tensor;
pub use descriptor::decay_descriptor;
pub use dispatch::call_builtin;
pub use entries::{EntryKind, LanguageEntry, language_entries};
pub use library::{LibraryFunction, combining_signatures, library_file};
pub use names::{BuiltinSpec, LanguageItem, Special, language, language_names};
pub use operators::{binary, boolean, compare, loop_dtype, select, truth, unary};
pub use program::assert_;
pub(crate) use program::{slice_of, slice_parts};
pub use promote::natural_dtype;
pub use signature::{BuiltinParameter, ParameterKind};
pub use subscript::subscript;
pub use typing::{Mode, Overload, PARAMETERS, ParameterType, RESULTS, modes};

/// An error that a rule finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SemanticError {
    /// The code of the diagnostic.
    pub code: Code,
    /// One sentence that states the error.
    pub message: String,
    /// Arguments to point at, by index, each with a text such as `this has shape [64]`.
    pub arguments: Vec<(usize, String)>,
    /// The found and the expected values.
    pub notes: Vec<String>,
    /// The advice.
    pub hint: Option<String>,
    /// True if the error arose in a called function, and has been reported there already.
    pub is_reported: bool,
}

impl SemanticError {
    /// Returns an error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            arguments: Vec::new(),
            notes: Vec::new(),
            hint: None,
            is_reported: false,
        }
    }

    /// Returns an error that has been reported to the user already. Callers propagate it unchanged.
    pub fn reported(code: Code) -> Self {
        Self { is_reported: true, ..Self::new(code, "reported already") }
    }

    /// Adds an argument to point at.
    #[must_use]
    pub fn argument(mut self, index: usize, text: impl Into<String>) -> Self {
        self.arguments.push((index, text.into()));
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

/// Converts an error that a type rule of the IR found, and that no semantic rule had found before.
impl From<RuleError> for SemanticError {
    fn from(error: RuleError) -> Self {
        let found = match error.kind {
            RuleErrorKind::Types => Self::new(Code::TypeMismatch, error.message),
            RuleErrorKind::Layouts => Self::new(Code::LayoutMismatch, error.message)
                .hint("convert a tile with `gl.convert_layout(x, layout)`"),
        };
        error.notes.into_iter().fold(found, Self::note)
    }
}

/// The result of a rule.
pub type Semantic<T> = Result<T, SemanticError>;

/// The services that a rule uses: the builder, and calls of functions of the kernel language. For
/// example, a reduction calls its combine function.
pub trait Caller {
    /// The builder of the values.
    type Builder: Builder;

    /// Returns the builder.
    fn builder(&mut self) -> &mut Self::Builder;

    /// Creates a region with parameters of `types`. The region calls `function` on the parameters
    /// and yields the result.
    fn region(&mut self, function: &Op<Self>, types: &[Type]) -> Semantic<RegionOf<Self>> {
        Ok(self.region_and_result(function, types)?.0)
    }

    /// Creates a region like [`Self::region`], and also returns the result of the function. The
    /// region yields the values of this result.
    fn region_and_result(
        &mut self,
        function: &Op<Self>,
        types: &[Type],
    ) -> Semantic<(RegionOf<Self>, Op<Self>)>;

    /// Returns the name of an op that writes memory or creates a tile, if the region contains such
    /// an op. Also looks into functions that the region calls. Assertions do not count.
    fn beyond_elements(&mut self, region: &RegionOf<Self>) -> Option<&'static str>;

    /// Calls a library function or a `@jit` function.
    fn call(
        &mut self,
        function: &Op<Self>,
        arguments: Vec<Op<Self>>,
        keywords: Vec<(Arc<str>, Op<Self>)>,
    ) -> Semantic<Op<Self>>;

    /// Creates a region that calls `function` on these arguments, in a partition with this number
    /// of warps. The region yields no values. Also returns the result of the function.
    fn worker(
        &mut self,
        function: &Op<Self>,
        arguments: Vec<Op<Self>>,
        warps: u32,
    ) -> Semantic<(RegionOf<Self>, Op<Self>)>;

    /// Returns whether the code belongs to a worker of `warp_specialize`.
    fn is_in_worker(&self) -> bool {
        false
    }

    /// Returns the options of the compilation.
    fn options(&self) -> &crate::Options;

    /// Returns the number of warps of a program, or of the partition that runs the code. Records
    /// that the code depends on this number. 0 means the default, which is 4.
    fn num_warps(&mut self) -> u32;

    /// Returns the number of blocks of the cluster that runs a program. Records that the code
    /// depends on this number.
    fn num_ctas(&mut self) -> u32;

    /// Returns whether the code belongs to a library function. There, integers may wrap without an
    /// error.
    fn is_in_library(&self) -> bool {
        false
    }

    /// Prints a text for the user while the kernel is compiled.
    fn print(&mut self, text: &str);

    /// Returns the name of the `tl.const` parameter that a pointer derives from. The kernel may
    /// only read the memory of such a parameter. The name is empty if the kernel cast the pointer
    /// to a const type.
    fn read_only(&mut self, _pointer: &ValueOf<Self>) -> Option<Arc<str>> {
        None
    }

    /// Records that `pointer` is the result of a cast to a pointer type. The type may be const.
    fn cast_pointer(&mut self, _pointer: &ValueOf<Self>, _is_const: bool) {}

    /// Returns the expression that creates a layout object of Gluon; `None` for other objects.
    fn layout_text(&mut self, _object: ObjectRef) -> Option<String> {
        None
    }

    /// Returns the layout object of Gluon that an expression creates.
    fn layout_object(&mut self, _text: &str) -> Option<Constant> {
        None
    }

    /// Returns a compile-time value as text, for messages.
    fn show(&mut self, constant: &Constant) -> String {
        constant.to_string()
    }

    /// Returns the compile-time value of an operand, even after a plain assignment (`x = 128`) has
    /// made the operand a run-time scalar. Rules use this function for arguments that must be known
    /// at compile time.
    fn known(&mut self, operand: &Op<Self>) -> Option<Constant> {
        operand.constant().cloned()
    }
}

/// The type of the values of a caller's builder.
pub type ValueOf<C> = <<C as Caller>::Builder as Builder>::Value;

/// The type of the regions of a caller's builder.
pub type RegionOf<C> = <<C as Caller>::Builder as Builder>::Region;

/// The operand that a caller's expressions evaluate to.
pub type Op<C> = Operand<ValueOf<C>>;

macro_rules! operators {
    ($($(#[doc = $doc:literal])* $name:ident { $($variant:ident $symbol:literal,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $(#[doc = concat!("`", $symbol, "`.")] $variant,)*
        }
        impl $name {
            /// Returns the operator as it is written in the source.
            pub fn symbol(self) -> &'static str {
                match self { $($name::$variant => $symbol,)* }
            }
        }
    )*};
}

operators! {
    /// An operator between two values.
    BinaryOperator {
        Add "+", Sub "-", Mul "*", MatMul "@", Div "/", FloorDiv "//", Mod "%", Pow "**", Shl "<<", Shr ">>", And "&",
        Or "|", Xor "^",
    }
    /// An operator before a value.
    UnaryOperator { Plus "+", Neg "-", Invert "~", Not "not", }
    /// A comparison.
    CompareOperator { Eq "==", Ne "!=", Lt "<", Le "<=", Gt ">", Ge ">=", }
    /// `and`, `or`.
    BooleanOperator { And "and", Or "or", }
}

/// One index of a subscript.
#[derive(Clone, Debug)]
pub enum Index<V> {
    /// `None`: a new axis of extent 1.
    NewAxis,
    /// `:`: a whole axis.
    All,
    /// `...`: the axes that no other index selects.
    Ellipsis,
    /// A value.
    Value(Operand<V>),
    /// `start:stop:step`, in which at least one of the three parts is present.
    Slice {
        /// The first index.
        start: Option<Operand<V>>,
        /// The end, exclusive.
        stop: Option<Operand<V>>,
        /// The increment.
        step: Option<Operand<V>>,
    },
}
