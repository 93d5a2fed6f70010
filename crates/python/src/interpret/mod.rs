//! Interpret mode: Python runs the body of a kernel, and what it meets of the language is evaluated at once.
//!
//! ```text
//! launch ──> session (what runs on this thread)      tensor: the values that the body holds
//!            body of the kernel, in Python  ──>  language: tl.load, x.sum   operators: x + y, x[None]
//!                                                 └──> convert (objects to operands) ──> runtime::interpret ──> convert
//! ```

mod convert;
mod language;
mod launch;
mod session;
mod structure;
mod tensor;

pub(crate) use convert::interpret_assign;
pub(crate) use language::LanguageCall;
pub(crate) use launch::{body, launch};
pub(crate) use session::{
    InterpretHook, interpret_attribute, interpret_boolean, interpret_builtin, interpret_failed,
    interpret_not, interpret_program_is, interpret_range, interpret_tensor, interpreted_program, is_running,
};
pub(crate) use structure::Structure;
pub(crate) use tensor::Tensor;
