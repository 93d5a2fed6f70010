//! Traces of launches: what each program of a grid did, in a compact binary format, and what can be asked of it.
//!
//! An executor writes ([`Recorder`], [`Recording`], [`Batch`]); the visualiser asks ([`Trace`], and the JSON of
//! [`report`] and [`overlap`]). The module knows no executor and no IR: ops and types are what the launch says they are.
//!
//! # The format
//!
//! A file is the eight bytes `TWTRACE\x02`, then chunks in any order: a tag of four letters, the length of the payload in
//! eight bytes (little-endian), the payload. Each chunk is written at once, so that what a crash leaves can be read; a
//! reader passes over tags that it does not know. In payloads, `n` is an unsigned LEB128 number, `z` the same of a signed
//! one in zigzag form, `s` a text (its length `n`, then UTF-8), and `list` its length `n`, then the items.
//!
//! | tag | payload |
//! |---|---|
//! | `LNCH` | launch `n`, then [`Launch`] as [`Launch::encode`](model::Launch) writes it: kernel, grid, sampling, files, parameters, tensors, constants, ops |
//! | `TENS` | launch `n`, tensor `n`, phase `n` (0 before, 1 after the launch), the bytes of the elements, row after row |
//! | `PROG` | launch `n`, then programs: number `n`, flags `n` (1 with values, 2 cut short, 4 it stopped at its last event), nanoseconds `n`, length of the events in bytes `n`, events |
//! | `FIND` | launch `n`, the checks `s` that a sanitizer made, what it found: `list` of [`Finding`] |
//! | `DONE` | launch `n`, nanoseconds `n`, the diagnostic `s` if it failed, else empty |
//!
//! An event is the number of its op `n` and the values that the op table names for it, each in a form: of a program without
//! values, only those of pointers and masks, for ops that access memory; of one with values, all, and then the nanoseconds
//! `n` that the op took. The forms:
//!
//! | byte | form | then |
//! |---|---|---|
//! | 0 | not recorded | |
//! | 1 | all elements have these bits | `n` |
//! | 2 | `base + Σ strides[axis] * index[axis]` | base `z`, a stride `z` for each axis |
//! | 3 | booleans that are true in a box | for each axis `n` from, `n` to (exclusive) |
//! | 4 | the elements | their bytes, row after row |
//! | 5 | pointers | 8 bytes an element |
//! | 6 | pointers | 4 bytes an element, signed |
//! | 7 | booleans | a bit an element, the first one lowest |
//!
//! Pointers are counted in bytes from a parameter: the form of one is preceded by the number of the parameter plus one, `n`;
//! where that is 0 they are addresses. A loop is an op too: its event begins an iteration, and says its counter.

mod bytes;
pub mod finding;
mod json;
pub mod model;
pub mod overlap;
mod read;
pub mod report;
mod write;

pub use finding::{Finding, Occurrence};
pub use model::{File, Kind, Launch, Op, Parameter, Place, Role, Tensor, ValueInfo};
pub use read::{Event, Form, Program, ReadError, Trace};
pub use write::{Batch, Limits, Recorder, Recording};
