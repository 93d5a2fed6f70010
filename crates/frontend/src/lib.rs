//! Lowers Python source to typed tile IR, as the first stage of a compilation.
//!
//! The crate resolves names, evaluates compile-time expressions and infers types. It contains the
//! standard library in the kernel language (`stdlib/*.py`).
//!
//! [`lower`] lowers a kernel, and [`lower_operation`] one operation of interpret mode. The trait
//! [`Host`] looks up names that the source of a kernel does not define. `parse.rs` parses source,
//! `lower/` lowers syntax trees, and `semantic/` has the rules of the language.

// Without the lowering, most functions of the values are unused.
#![cfg_attr(not(feature = "python-syntax"), allow(dead_code, reason = "the lowering is left out"))]

#[cfg(feature = "python-syntax")]
mod constexpr;
mod descriptor;
#[cfg(feature = "python-syntax")]
mod dump;
#[cfg(feature = "python-syntax")]
mod format;
mod host;
mod launch_response;
#[cfg(feature = "python-syntax")]
mod lower;
#[cfg(feature = "python-syntax")]
mod parse;
mod reference;
mod repr;
#[cfg(feature = "python-syntax")]
pub mod semantic;
mod shared_memory;
#[cfg(feature = "python-syntax")]
mod source_host;
mod suggest;
mod tuple;
mod types;
mod value;

pub use descriptor::{Descriptor, DescriptorForm, DescriptorKind, Padding};
#[cfg(feature = "python-syntax")]
pub use dump::dump_ast;
#[cfg(feature = "python-syntax")]
pub use host::ParsedModule;
pub use host::{
    Aggregate, CallError, FieldKind, FunctionSource, Host, HostValue, Member, NamedTuple, RunTime,
};
pub use launch_response::LaunchResponse;
#[cfg(feature = "python-syntax")]
pub use lower::{
    function::operand_of_argument,
    lower, lower_kernel,
    operation::{LoweredOperation, Operation, lower_operation},
    relocate::{Site, relocate},
    template::{
        from_host as operand_of, hash_with, map as map_operand, name_parts, same as same_operand,
        whole as tuple_operand,
    },
};
pub use reference::{FunctionRef, MemberFunction, ObjectRef};
#[cfg(feature = "python-syntax")]
pub use semantic::{Caller, Semantic, SemanticError};
pub use shared_memory::{SharedForm, SharedMemory};
#[cfg(feature = "python-syntax")]
pub use source_host::SourceHost;
pub use suggest::suggest;
pub use tuple::{Fields, Tuple, accessor};
pub use types::LanguageType;
pub use value::{Constant, Operand, Range};

use tilewright_base::{Diagnostic, SourceMap};
use tilewright_ir::{Dtype, Module};

/// A kernel, and the arguments and options to compile it for.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The kernel.
    pub kernel: FunctionRef,
    /// The arguments, one for each parameter, in order.
    pub arguments: Vec<Argument>,
    /// The options that the frontend reads.
    pub options: Options,
}

/// A lowered kernel, and whether other compilations can share it.
#[derive(Debug)]
pub struct Lowered {
    /// The IR.
    pub module: Module,
    /// True if lowering neither read the number of warps nor printed text. A compilation for
    /// another number of warps can then reuse the module. Lowering that prints must run for each
    /// compilation, so that the user sees the text.
    pub is_shareable: bool,
}

/// The compile-time description of an argument.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A pointer to global memory.
    Pointer {
        /// The type of the elements.
        pointee: Dtype,
        /// A number of bytes that divides the address; 1 if nothing is known.
        divisibility: u32,
        /// True if the kernel must not write through the pointer, as declared by `tl.const`.
        is_const: bool,
    },
    /// A scalar whose value is only known at run time.
    Scalar {
        /// The type of the scalar.
        dtype: Dtype,
        /// An integer that divides the value; 1 if nothing is known.
        divisibility: u32,
    },
    /// A compile-time value.
    Constexpr(HostValue),
    /// A tuple. Its run-time parts become parameters of the compiled kernel, in order.
    Tuple(Tuple<Argument>),
}

/// The options that the frontend reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches")]
pub struct Options {
    /// True if the kernel checks `assert`, `tl.device_assert`, the overflow of integers and
    /// division by zero (`debug=True`, `TRITON_DEBUG=1`).
    pub debug: bool,
    /// True if `debug` adds no checks of integer overflow or of division by zero
    /// (`sanitize_overflow=False`).
    pub ignore_overflow: bool,
    /// True if globals that are not `tl.constexpr` may be read
    /// (`TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1`).
    pub allow_plain_globals: bool,
    /// True if the compilation warns of code that the official Triton refuses
    /// (`TILEWRIGHT_PORTABLE=1`).
    pub portable: bool,
    /// The default of `input_precision` of a dot of fp32 operands.
    pub default_dot_precision: tilewright_ir::InputPrecision,
    /// The default of `max_num_imprecise_acc` of a dot of 8-bit floats.
    pub default_imprecise_acc: Option<u32>,
    /// True if code for a GPU checks the indices of gathers even without `debug`. The runtime sets
    /// this field for the GPU simulator. Without checks, a gather with an index out of bounds reads
    /// an arbitrary element. The CPU's executor always checks indices.
    pub check_indices: bool,
    /// The number of warps of a program; 0 means 4.
    pub num_warps: u32,
    /// The number of blocks of the cluster that runs a program; 0 means 1.
    pub num_ctas: u32,
    /// 10 times the compute capability of the target GPU; 0 for a CPU.
    pub capability: u32,
}

/// The errors of a kernel that does not compile, and the sources that they point into.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The errors, at least one.
    pub diagnostics: Vec<Diagnostic>,
    /// The sources.
    pub sources: SourceMap,
}
