//! Converting a value from one layout to another: what has to move, and the cheapest way to move it.

mod shared;
mod shuffle;

use std::fmt;

use smallvec::SmallVec;

pub use shared::{Access, SharedPlan, Start, shared_plan};
pub use shuffle::{Round, Select, ShufflePlan, shuffle_plan};

use crate::map::Layout;

/// How a value gets from one layout to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The layouts are the same.
    Nothing,
    /// Registers are renamed: register `r` of the result is register `plan[r]` of the source in the same thread.
    Registers(SmallVec<[u32; 16]>),
    /// No element leaves its warp.
    Shuffle(Box<ShufflePlan>),
    /// Through shared memory.
    Shared(Box<SharedPlan>),
}

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvertError {
    /// Elements would have to move between the blocks of a cluster, which no plan here does.
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

/// What a trip through shared memory costs beyond its accesses, in halves of an instruction's issue time: two barriers
/// and the latency of a load, of which other warps hide a part.
const TRIP_COST: u32 = 40;

/// The plan for converting a value of the given element width, in bits, from one layout to another. Both hold every
/// element of the tile and have as many lanes and warps; predicates count as 8 bits.
///
/// A value that stays in its warps is shuffled where that takes fewer instructions than shared memory: a shuffle moves
/// one 32-bit word a lane as an access without conflicts does, but moves it once instead of twice and needs no barrier;
/// selects before and after come on top.
///
/// # Panics
/// If the layouts are not of one tile, or differ in the number of lanes, warps or blocks.
pub fn convert(from: &Layout, to: &Layout, element_bits: u32) -> Result<Plan, ConvertError> {
    if from == to {
        return Ok(Plan::Nothing);
    }
    if let Some(registers) = to.registers_from(from) {
        return Ok(Plan::Registers(registers));
    }
    if let Some(plan) = shuffle_plan(from, to) {
        let words = (from.unique_registers() + to.unique_registers()) * element_bits / 32;
        if plan.cost(element_bits) <= 2 * words + TRIP_COST {
            return Ok(Plan::Shuffle(Box::new(plan)));
        }
    }
    shared_plan(from, to, element_bits).map(|plan| Plan::Shared(Box::new(plan)))
}
