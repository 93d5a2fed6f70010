//! Represents kernels, which are `@jit` functions, and their compiled variants.
//!
//! ```text
//! jit: a kernel ── binding: binds the arguments of a call to parameters
//!               ── compiled: a compiled variant as a Python object
//!               ── host: resolves the free names of a kernel for the compiler
//!                   aggregate: resolves the members of users' classes
//!                   dependencies: the variables of a variant, compared at later launches
//! compile: `triton.compile`, for described types
//! ```

pub(crate) mod aggregate;
pub(crate) mod binding;
pub(crate) mod compile;
pub(crate) mod compiled;
pub(crate) mod dependencies;
pub(crate) mod host;
pub(crate) mod jit;
