//! Runs tests. This crate is only used in development.
//!
//! - [`check_snapshot`] compares text with a file.
//! - [`run_text_cases`] compares the textual output of passes with the expected text.
//! - [`run_markdown`] runs the cases in a Markdown page, such as those of `docs/diagnostics` and
//!   `tests/kernels`.
//! - [`Ptxas`] runs NVIDIA's assembler to validate PTX.
//!
//! # A case
//!
//! A case consists of fenced blocks, with any prose in between:
//!
//! ````text
//! ```python kernel=scale signature=*fp32,i32      the program; `signature` if it is only compiled
//! import triton
//! …
//! ```
//!
//! ```inputs                                       if it is run: one argument or option a line
//! x: fp32[4, 8] = i * 8 + j                       a tensor: elements by their indices i, j, k, l
//! out: fp32[32] = 0
//! n: i64 = 32                                     a number of a type
//! BLOCK = 16                                      a number, bool, string, None, dtype or tuple
//! grid = (2, 1)                                   the grid
//! ```
//!
//! ```expect                                       the elements of tensors after the launch
//! out = 2 * x[i // 8, i % 8]                      exact, after rounding to the dtype
//! out ~ sum(k, 8, x[0, k])                        within 1e-5 * max(1, |value|)
//! out ~1e-3 sum(k, 8, x[0, k])                    within 1e-3 * max(1, |value|)
//! ```
//!
//! ```text                                         or the diagnostics, as the terminal shows them
//! error[TW0004]: …
//! ```
//! ````
//! A case with a `signature` is only compiled; any other case is also run. A case with neither
//! `expect` nor `text` must compile, and its run must end without an error. The inputs in the
//! expressions of `expect` have their values from before the launch.
//!
//! Each case runs on the CPU in three modes: with optimized IR, with the IR before optimization,
//! and with every tile stored element by element instead of as a formula. The cases of
//! `tests/kernels` also run on simulated GPUs and on the machine's GPU.
//!
//! `TILEWRIGHT_BLESS=1` updates the snapshots, the expected text of [`run_text_cases`], and the
//! `text` blocks.

mod array;
mod case;
mod expression;
mod markdown;
mod ptxas;
mod snapshot;
mod text_cases;

pub use array::Array;
pub use case::{Case, DeviceMemory, Input, Outcome};
pub use expression::Expression;
pub use markdown::{Fence, cases, fences, project_root, run_directory, run_markdown};
pub use ptxas::{Assembled, DIED, Ptxas, Usage};
pub use snapshot::{check_snapshot, is_blessing};
pub use text_cases::run_text_cases;

/// Reports a skipped test directly to stderr. The test harness shows the output of `eprintln!` only
/// if a test fails.
pub fn say_skipped(test: &str, reason: &str) {
    use std::io::Write;
    // If stderr is unavailable, the report is lost.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: {reason}");
}

/// Runs the examples of `docs/rust.md` as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
