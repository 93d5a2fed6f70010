//! Kernels: `@jit` functions that are launched, and their compiled forms. Nothing here launches.
//!
//! ```text
//! jit: a kernel ── binding: arguments of a call to parameters
//!               ── compiled: a compiled form as Python sees it
//!               ── host: answers the compiler's questions about the free names of a kernel
//!                   aggregate: the same about users' classes
//!                   reads: the variables that a form was compiled from, compared at later launches
//! compile: `triton.compile`, without arguments
//! ```

pub(crate) mod aggregate;
pub(crate) mod binding;
pub(crate) mod compile;
pub(crate) mod compiled;
pub(crate) mod dependencies;
pub(crate) mod host;
pub(crate) mod jit;
