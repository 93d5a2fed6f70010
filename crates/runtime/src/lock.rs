//! Records kernels for a lock, and launches kernels from a lock. See the crate `tilewright-lock`.
//!
//! ```text
//! TILEWRIGHT_LOCK_RECORD=folder   each compilation adds its kernel to the folder    record
//! folder ──collect──> tilewright.lock and its artifacts                            record
//! TILEWRIGHT_LOCK=file            a launch restores its kernel from the lock        active
//!                                 a thread restores kernels before their launches   background
//! verify                          compiles each kernel of a lock anew, and compares verify
//! ```
//! With `TILEWRIGHT_LOCK`, the first launch of a variant lowers the source to tile IR. The hash of
//! the IR shows whether the lock has this kernel. A [`Bundle`] needs no source. In both cases, the
//! optimizer, the back ends and the assembler of a GPU do not run. On the CPU, machine code depends
//! on the processor. So the locked IR is compiled to machine code, in the background or by the
//! first launch.

mod active;
mod assemble;
mod background;
mod bundle;
mod describe;
mod grid_expressions;
mod prepare;
mod record;
mod request;
mod stored;
mod verify;

pub use active::{is_locked, locked_choice};
pub use assemble::assemble_missing;
pub use background::{end_preparation, prepare_in_background};
pub use bundle::Bundle;
pub use describe::describe;
pub use grid_expressions::{GridExpressions, GridName};
pub use record::{
    Collected, Recorder, begin_recording, collect, is_recording, is_recording_here, record_choice,
    recorded_launches, resume_recording, suspend_recording,
};
pub use request::{ObjectText, describe_objects_by};
pub use verify::{Mismatch, Verified, verify};

pub(crate) use active::{Found, active, forbid};
pub(crate) use background::prepare_for;
pub(crate) use record::recorder;
pub(crate) use request::Compilation;

pub use tilewright_lock::{Artifacts, Change, Choice, Entry, LockFile, Request, changes, open, pack};
