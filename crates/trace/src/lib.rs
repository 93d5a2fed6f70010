//! Writes, reads and queries traces of launches.
//!
//! A trace is a compact binary record of the events of each program in a grid.
//!
//! An executor writes a trace with [`Recorder`], [`Recording`] and [`Batch`]. The visualizer
//! queries the trace through [`Trace`] and the JSON of [`report`] and [`overlap`]. This crate does
//! not depend on any executor or IR, because a [`Launch`] describes the ops and types.
//!
//! # The format
//!
//! A file consists of the eight bytes `TWTRACE\x02`, then chunks in any order. A chunk is a tag of
//! four letters, the length of the payload in eight bytes (little-endian), and the payload. Readers
//! ignore an incomplete last chunk, so the file stays readable after a crash. Readers also skip
//! chunks with unknown tags.
//!
//! The payloads use these encodings:
//!
//! - `n`: an unsigned LEB128 number.
//! - `z`: a signed LEB128 number in zigzag encoding.
//! - `s`: a string. Its length `n` is followed by its bytes in UTF-8.
//! - `list`: a list. Its length `n` is followed by its items.
//!
//! | tag | payload |
//! |---|---|
//! | `LNCH` | launch `n`, then [`Launch`] encoded by [`Launch::encode`](model::Launch): kernel, grid, sampling interval, whether interpreted, files, parameters, tensors, constants, ops, IR, warps, stages |
//! | `TENS` | launch `n`, tensor `n`, phase `n` (0 before, 1 after the launch), the bytes of the elements in row-major order |
//! | `PROG` | launch `n`, then programs: number `n`, flags `n` (1 with values, 2 truncated, 4 failed or interrupted at its last event), nanoseconds `n`, length of the events in bytes `n`, events |
//! | `FIND` | launch `n`, the sanitizer's checks `s`, its findings: `list` of [`Finding`] |
//! | `SIMU` | launch `n`, of a simulated launch: the device `s`, the warps of a block `n`, and the layouts, shared memory and barriers of the code as JSON `s` |
//! | `DONE` | launch `n`, nanoseconds `n`, the diagnostic `s` of a failed launch, else the empty string |
//!
//! An event consists of the index `n` of its op, and values of the op in the order of the op table
//! ([`Launch::ops`]). In a program without values, an event has only the pointers and masks of an
//! op that accesses memory. In a program with values, an event has all values of its op, followed
//! by the duration `n` in nanoseconds.
//!
//! Each value has one of these forms:
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
//! A number `n` precedes the form of pointers. If it is 0, the pointers are recorded as addresses.
//! Otherwise they are byte offsets from a pointer parameter, and `n` is the index of this parameter
//! plus one.
//!
//! In a simulated launch, an event belongs to one warp. The events of a program are in the order in
//! which the simulator ran its warps. A copy has two events: its start, an access, and the arrival
//! of its bytes at a barrier ([`Kind::Sync`]).
//!
//! A loop is also an op. Each event of a loop begins an iteration, and records the induction
//! variable if the loop has one.

mod bytes;
pub mod finding;
mod json;
pub mod model;
pub mod overlap;
mod read;
pub mod report;
mod write;

pub use finding::{Finding, Occurrence};
pub use model::{File, Kind, Launch, Op, Parameter, Role, Simulation, SourceRange, Tensor, ValueInfo};
pub use read::{Event, Form, Program, ReadError, Trace};
pub use write::{Batch, Limits, Recorder, Recording};
