//! Defines the format of locks.
//!
//! A lock lists the compiled kernels of a program and the configurations that its tuners chose. Its
//! artifacts are the texts and binaries of the kernels. A process with a lock launches these
//! kernels without optimizing, tuning or assembling them.
//!
//! ```text
//! tilewright.lock         JSON: entries and choices, sorted         LockFile
//! tilewright.artifacts/   one file for each content, named by its   Artifacts
//!   3f0c….ptx             BLAKE3 hash and its kind
//! tilewright.tar          both in one file                          pack, unpack
//! ```
//! The format contains no absolute path, host name or time of day. The same kernels and choices
//! therefore produce the same bytes on every machine, except for the timings of the choices.
//!
//! This crate does not depend on the compiler. The runtime creates the entries, and restores
//! kernels from them.

mod artifacts;
mod choice;
mod difference;
mod entry;
mod file;
mod packed;

pub use artifacts::{ArtifactError, Artifacts};
pub use choice::Choice;
pub use difference::{Change, changes};
pub use entry::{Code, Entry, Launch, Parameter, Request, Source, TensorMap};
pub use file::{Conflict, FORMAT, LockError, LockFile};
pub use packed::{open, pack, unpack};
