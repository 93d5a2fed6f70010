//! Converts a value from one layout to another by the cheapest data movement.

mod shared;
mod shuffle;

use std::fmt;

use smallvec::SmallVec;

pub use shared::{Access, SharedPlan, Start, copy_plan, shared_plan};
pub use shuffle::{Round, Select, ShufflePlan, shuffle_plan};

use crate::map::Layout;

/// The data movement of a layout conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The layouts are the same.
    Nothing,
    /// Registers are renamed within each thread: result register `r` is source register `plan[r]`.
    Registers(SmallVec<[u32; 16]>),
    /// Shuffles move the elements within their warps.
    Shuffle(Box<ShufflePlan>),
    /// The elements move through a buffer in shared memory.
    Shared(Box<SharedPlan>),
}

/// The reason why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvertError {
    /// Elements would have to move between the blocks of a cluster; no plan supports this.
    AcrossBlocks,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AcrossBlocks => {
                f.write_str("a layout conversion between the blocks of a cluster is not supported")
            }
        }
    }
}

impl std::error::Error for ConvertError {}

/// Plans the conversion of a value from one layout to another. `element_bits` is the element width;
/// predicates count as 8 bits. Both layouts hold every element of the tile and have the same
/// numbers of lanes and warps.
///
/// If all elements stay in their warps, the plan uses shuffles unless shared memory costs less. A
/// word takes one shuffle, with selects before and after it in some plans. Through shared memory, a
/// word takes a store, a barrier and a load. `trip_cost` is the cost of shared memory beyond the
/// accesses: two barriers and the latency of a load. Its unit is half the issue time of an
/// instruction.
///
/// # Panics
/// If the layouts are of different tiles, or differ in the number of lanes, warps or blocks. The
/// call also panics if it plans through shared memory and [`shared_plan`] panics.
pub fn convert(from: &Layout, to: &Layout, element_bits: u32, trip_cost: u32) -> Result<Plan, ConvertError> {
    if from == to {
        return Ok(Plan::Nothing);
    }
    if let Some(registers) = to.registers_from(from) {
        return Ok(Plan::Registers(registers));
    }
    if let Some(plan) = shuffle_plan(from, to) {
        let words = (from.unique_registers() + to.unique_registers()) * element_bits / 32;
        if plan.cost(element_bits) <= 2 * words + trip_cost {
            return Ok(Plan::Shuffle(Box::new(plan)));
        }
    }
    shared_plan(from, to, element_bits).map(|plan| Plan::Shared(Box::new(plan)))
}
