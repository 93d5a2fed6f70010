//! Interprets kernels: Python runs the body and evaluates each operation at once.
//!
//! ```text
//! launch ──> session: the launch of this thread ──> body of the kernel, in Python
//!              ^                                     │ uses `objects`: tensors, functions, methods
//!              └── tensor: x + y, x[None]; structure; language: tl.load, x.sum
//! session ──> convert: objects to operands ──> runtime::interpret ──> convert: operands to objects
//! ```

mod convert;
mod language;
mod launch;
mod objects;
mod session;
mod structure;
mod tensor;

pub(crate) use convert::{
    interpret_assign, interpret_known, interpret_merged, interpret_passed, interpret_returned,
};
pub(crate) use launch::{body, launch};
pub(crate) use objects::{LanguageCall, Structure, Tensor};
pub(crate) use session::{
    Counter, InterpretHook, interpret_attribute, interpret_boolean, interpret_builtin, interpret_failed,
    interpret_mistake, interpret_not, interpret_operator, interpret_program_is, interpret_range,
    interpret_tensor, interpreted_program, is_running,
};
