//! Runs a program: each thread has a machine that executes the steps.
//!
//! `machine` executes steps through `ops`, and ops with regions execute their blocks through
//! `machine`. The other modules form layers. The observers ([`trace`], [`profile`], [`sanitize`])
//! implement the trait of `observer`, and the machine does not depend on them.

pub(crate) mod argument;
pub(crate) mod evaluate;
pub(crate) mod fault;
pub(crate) mod grid;
pub(crate) mod interrupt;
pub mod kernels;
pub(crate) mod launch;
pub(crate) mod machine;
pub mod memory;
pub(crate) mod observer;
pub(crate) mod ops;
pub(crate) mod padding;
pub(crate) mod profile;
pub(crate) mod sanitize;
pub(crate) mod scalar;
pub(crate) mod scheduler;
pub(crate) mod symbolic;
pub(crate) mod tile;
pub(crate) mod trace;
pub(crate) mod value;
