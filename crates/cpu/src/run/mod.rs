//! Runs a program. Each thread has a machine that executes the steps. Ops compute values with
//! kernels, and access memory.
//!
//! The machine executes the steps of a block through `ops`. An op with regions executes its blocks
//! through the machine. `machine` and `ops` therefore use each other. `machine` and `observer` also
//! use each other, because the trait of `observer` names the machine. The other modules form
//! layers. The observers of a launch ([`trace`], [`profile`], [`sanitize`]) implement the trait of
//! `observer`; the machine does not depend on these three modules.

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
