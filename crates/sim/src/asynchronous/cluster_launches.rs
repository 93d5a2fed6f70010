//! Cancels clusters that have not begun (`clusterlaunchcontrol`).
//!
//! A running cluster takes over the work of the next cluster of the grid, which then never begins.
//! The ISA does not define the layout of the response.

use super::{Channel, Pointer, barriers, bulk};
use crate::context::{Context, Execute, Flow, ResolvedAddress, aligned};
use crate::fault::{OfLane, Outcome};
use crate::registers::lanes_of;

/// The size of a response in bytes.
const RESPONSE_BYTES: u32 = 16;

/// `clusterlaunchcontrol.try_cancel`.
pub(crate) struct TryCancel {
    pub response: Pointer,
    pub barrier: Pointer,
    /// True if every block of the cluster gets the response.
    pub is_multicast: bool,
}

impl Execute for TryCancel {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        for lane in lanes_of(context.lanes) {
            let (rank, offset) = self.response.shared(context, lane).of_lane(lane)?;
            aligned(ResolvedAddress::Shared { rank, offset }, RESPONSE_BYTES, true).of_lane(lane)?;
            let (_, barrier) = self.barrier.shared(context, lane).of_lane(lane)?;
            let bytes = response(context.launches.cancel()).to_le_bytes();
            let agent = context.fork(Channel::Barrier(barrier));
            let ranks = if self.is_multicast { 0..context.blocks.len() } else { rank..rank + 1 };
            for rank in ranks {
                let place = ResolvedAddress::Shared { rank, offset };
                bulk::write(context, &agent, place, &bytes, None).of_lane(lane)?;
                barriers::complete(context, (rank, barrier), RESPONSE_BYTES, &agent).of_lane(lane)?;
            }
        }
        Ok(Flow::Next)
    }
}

/// Returns the response for a canceled cluster, or for none.
fn response(first_block: Option<[u32; 3]>) -> u128 {
    let Some([x, y, z]) = first_block else { return 0 };
    u128::from(x) | u128::from(y) << 32 | u128::from(z) << 64 | 1 << 96
}

/// Returns 1 if the response says that a cluster was canceled, otherwise 0.
pub(crate) fn is_canceled(response: u128) -> u64 {
    (response >> 96 & 1) as u64
}

pub(crate) fn response_dimension(response: u128, dimension: u32) -> u64 {
    u64::from((response >> (32 * dimension)) as u32)
}
