//! Launches kernels, compiled variants, and wrappers that add arguments.
//!
//! ```text
//! object[grid](...) ── builtin ──> launcher ──> jit: kernels               ──> run
//!                                     ^    ──> compiled: compiled variants ──> run
//!                                     └─────── wrapper: autotuners and heuristics add arguments
//! device, grid, sanitize, hooks: the other parts of a launch
//! lock: records and looks up kernels and the choices of tuners
//! driver, tensor_map: launches of device code by its driver handle, as Triton's driver module
//! ```

pub(crate) mod builtin;
pub(crate) mod compiled;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod grid;
pub(crate) mod hooks;
pub(crate) mod jit;
pub(crate) mod launcher;
pub(crate) mod lock;
pub(crate) mod run;
pub(crate) mod sanitize;
pub(crate) mod tensor_map;
pub(crate) mod warm_up;
pub(crate) mod wrapper;
