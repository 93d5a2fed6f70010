//! The test runners, for development only.
//!
//! [`check_snapshot`] compares text with a file, [`run_text_cases`] what passes make of text with text. [`run_markdown`] runs the cases in a Markdown page: the pages of
//! `docs/diagnostics` and the tests in `tests/kernels` are written in the same form. [`Ptxas`] is NVIDIA's assembler as a
//! judge of PTX.
//!
//! # A case
//!
//! Fenced blocks, with any prose between them:
//!
//! ````text
//! ```python kernel=scale signature=*fp32,i32      the program; `signature` if it is only compiled
//! import triton
//! …
//! ```
//!
//! ```inputs                                       if it is run: an argument a line, and the grid
//! x: fp32[4, 8] = i * 8 + j                       a tensor: the indices are i, j, k, l
//! out: fp32[32] = 0
//! n: i64 = 32                                     a number of a type
//! BLOCK = 16                                      a number, bool, string, None or dtype; options too
//! grid = (2, 1)
//! ```
//!
//! ```expect                                       what is in a tensor afterwards
//! out = 2 * x[i // 8, i % 8]                      exactly, after rounding to its dtype
//! out ~ sum(k, 32, x[0, k])                       within 1e-5, relative to the larger of 1 and the value; `~1e-3` says else
//! ```
//!
//! ```text                                         or the diagnostics, as the terminal shows them
//! error[TW0004]: …
//! ```
//! ````
//! A case without `expect` and without `text` must compile, and run if it has `inputs`. What is expected is computed
//! from the inputs as they were before the launch. Each case that runs does so before and after optimisation, and
//! without symbolic tiles; the pages of `tests/kernels` run on simulated GPUs, too, and on the GPU of the machine.
//!
//! `TILEWRIGHT_BLESS=1` writes what was found into the snapshots and into the `text` blocks.

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

/// Says that a test is skipped, straight to stderr: the harness shows what `eprintln!` writes only if the test fails.
pub fn say_skipped(test: &str, reason: &str) {
    use std::io::Write;
    // Without a stderr there is no one to tell.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: {reason}");
}
