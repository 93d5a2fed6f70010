//! What each op does. An op takes its operands from the machine, looks for a symbolic result, and otherwise writes its
//! operands out and calls a kernel.

pub(crate) mod cast;
pub(crate) mod chain;
pub(crate) mod control;
pub(crate) mod dense;
pub(crate) mod dot;
pub(crate) mod elementwise;
pub(crate) mod memory;
pub(crate) mod reduce;
pub(crate) mod shape;
