//! Traces of launches: a compact binary record of the events of each program in a grid, and queries
//! over it.
//!
//! An executor writes a trace with [`Recorder`], [`Recording`] and [`Batch`]; the visualizer
//! queries it through [`Trace`] and the JSON of [`report`] and [`overlap`]. This crate does not
//! depend on any executor or IR: a [`Launch`] describes the ops and types.
//!
//! # The format
//!
//! A file consists of the eight bytes `TWTRACE\x02`, then chunks in any order. A chunk is a tag of
//! four letters, the length of the payload in eight bytes (little-endian), and the payload. The
//! file stays readable after a crash, because readers ignore an incomplete last chunk. Readers also
//! skip chunks with unknown tags. In payloads, `n` is an unsigned LEB128 number, `z` a signed
//! LEB128 number in zigzag encoding, `s` a string (its length `n`, then UTF-8), and `list` a length
//! `n`, then the items.
//!
//! | tag | payload |
//! |---|---|
//! | `LNCH` | launch `n`, then [`Launch`] encoded by [`Launch::encode`](model::Launch): kernel, grid, sampling interval, whether interpreted, files, parameters, tensors, constants, ops, IR, warps, stages |
//! | `TENS` | launch `n`, tensor `n`, phase `n` (0 before, 1 after the launch), the bytes of the elements in row-major order |
//! | `PROG` | launch `n`, then programs: number `n`, flags `n` (1 with values, 2 truncated, 4 failed or interrupted at its last event), nanoseconds `n`, length of the events in bytes `n`, events |
//! | `FIND` | launch `n`, the sanitizer's checks `s`, its findings: `list` of [`Finding`] |
//! | `DONE` | launch `n`, nanoseconds `n`, the diagnostic `s` of a failed launch, else the empty string |
//!
//! An event is the index `n` of its op and the values that the op table ([`Launch::ops`]) lists for
//! the op. Each value has one of the forms below. Programs without values record only the pointers
//! and masks of ops that access memory; programs with values record all values, followed by the
//! duration of the op in nanoseconds `n`. The forms:
//!
//! | byte | form | then |
//! |---|---|---|
//! | 0 | not recorded | |
//! | 1 | all elements have these bits | `n` |
//! | 2 | `base + Σ strides[axis] * index[axis]` | base `z`, a stride `z` for each axis |
//! | 3 | booleans that are true inside a box | for each axis `n` from, `n` to (exclusive) |
//! | 4 | the elements | their bytes, row-major |
//! | 5 | pointers | 8 bytes an element |
//! | 6 | pointers | 4 bytes an element, signed |
//! | 7 | booleans | one bit per element, least significant first |
//!
//! Before the form of pointers, an event has an `n`: 0 if the pointers are recorded as addresses;
//! else they are byte offsets from a pointer parameter, and `n` is the index of this parameter plus
//! one. A loop is also an op: its event begins an iteration and records the induction variable, if
//! the loop has one.

mod bytes;
pub mod finding;
mod json;
pub mod model;
pub mod overlap;
mod read;
pub mod report;
mod write;

pub use finding::{Finding, Occurrence};
pub use model::{File, Kind, Launch, Op, Parameter, Role, SourceRange, Tensor, ValueInfo};
pub use read::{Event, Form, Program, ReadError, Trace};
pub use write::{Batch, Limits, Recorder, Recording};
