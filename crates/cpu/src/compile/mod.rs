//! From a module of the IR to a [`Program`](program::Program) that the machine can run.

pub(crate) mod fuse;
pub(crate) mod liveness;
pub(crate) mod lower;
pub(crate) mod program;
pub(crate) mod repeat;
