//! The launch of a program: machines that execute its steps, the values they hold, the ops, kernels and memory.
//!
//! A machine executes the steps of a block by the ops, and an op with regions executes its blocks by the machine: these two
//! modules use each other. The others form layers. What watches a launch ([`trace`], [`profile`], [`sanitize`]) implements
//! the trait of `observer` and is unknown to the machine.

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
pub(crate) mod symbolic;
pub(crate) mod tile;
pub(crate) mod trace;
pub(crate) mod turns;
pub(crate) mod value;
