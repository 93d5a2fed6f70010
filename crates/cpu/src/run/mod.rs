//! The launch of a program: machines that execute its steps, the values they hold, the ops, kernels and memory.

pub(crate) mod fault;
pub mod kernels;
pub(crate) mod launch;
pub(crate) mod machine;
pub mod memory;
pub(crate) mod ops;
pub(crate) mod scalar;
pub(crate) mod symbolic;
pub(crate) mod tile;
pub(crate) mod value;
