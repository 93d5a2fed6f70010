//! Converts Python values to arguments and compile-time values, and back.
//!
//! This layer does not depend on kernels.
//!
//! ```text
//! call: the arguments of a call ──> convert: to values of a launch ──> runtime
//!     torch, array, dlpack ──> memory: the memory of tensors and arrays
//!     live: the memory that kernels reach through addresses in memory
//! classify: to compile-time values ──> compiler ──> to_python: back to objects
//!     function, objects: the numbers of `@jit` functions and of other objects
//!     aggregate: instances of users' classes
//! ```

pub(crate) mod aggregate;
pub(crate) mod array;
pub(crate) mod call;
pub(crate) mod classify;
pub(crate) mod convert;
pub(crate) mod dlpack;
pub(crate) mod function;
pub(crate) mod live;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod to_python;
pub(crate) mod torch;
