//! Loop fusion: the last iterations of a loop copy for the next loop. The *successor* is the loop
//! that takes these slots, so the rings are not empty between the two loops.
//! ```text
//! for %i = %a to %b {                                 for %i = %a to %b {
//!   … acquire %r ; fill from %i + 2 if in range         … acquire %r ; fill from %i + 2, of this
//! } ; take, release twice ; dealloc %r          =>        loop or of the next one
//! %s = alloc ; fill %s, %s                            }
//! for %j = %c to %d { … take %s … }                   for %j = %c to %d { … take %r … }
//! ```
//! The successor is the next loop of the block ([`sibling`]), or the same loop in the next outer
//! iteration ([`nested`]). A [`Fusion`](super::loop_plan::Fusion) has the bounds of the successor's
//! counter and the coordinates of its boxes. The expander replaces the coordinates of an iteration
//! out of range with those of the successor (`select_current_or_next_loop`).
//!
//! If a coordinate grows alike in both loops, the successor's coordinate is this loop's plus an
//! invariant distance. Otherwise the body also computes the successor's coordinate.

mod boxes;
mod nested;
mod sibling;
mod successor;

use super::loop_plan::LoopPlan;
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::Module;

/// Fuses loops: sets the `fusion` of their plans.
pub(super) fn fuse_loops(module: &Module, plans: &mut [LoopPlan]) {
    let global = GlobalAccesses::new(module);
    sibling::fuse(module, &global, plans);
    nested::fuse(module, &global, plans);
}
