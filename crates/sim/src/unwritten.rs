//! Reports the reads of uninitialized shared and tensor memory that were recorded while a cluster
//! ran.

use crate::block::Stopped;
use crate::context::BlockMemory;
use crate::fault::{Cause, FaultKind};

/// Replaces the outcome of a cluster that has read uninitialized shared or tensor memory by a fault
/// for the read. The original fault may be a consequence of the read. If several blocks have such
/// reads, reports the first read of the block with the lowest rank. Races and cancellations are not
/// replaced.
pub(crate) fn prefer_unwritten(
    blocks: &[BlockMemory],
    outcome: Result<(), Stopped>,
    warps: usize,
) -> Result<(), Stopped> {
    if let Err(Stopped { stop, .. }) = &outcome
        && matches!(stop.cause, Cause::Race { .. } | Cause::TensorMemoryRace { .. } | Cause::Cancelled(_))
    {
        return outcome;
    }
    let of_shared = |block: &BlockMemory| {
        block.shared.unwritten().map(|(offset, record)| (FaultKind::Unwritten { offset }, record))
    };
    let of_tensor = |block: &BlockMemory| {
        let found = block.tensor.unwritten();
        found.map(|(lane, column, record)| (FaultKind::UnwrittenTensorMemory { lane, column }, record))
    };
    match blocks.iter().find_map(|block| of_shared(block).or_else(|| of_tensor(block))) {
        None => outcome,
        Some((kind, record)) => {
            // An asynchronous operation has no warp: the fault names warp 0, and the instruction
            // that began the operation.
            let warp = if (record.agent as usize) < warps { record.agent as usize } else { 0 };
            Err(Stopped { stop: kind.into(), warp, site: Some(record.instruction) })
        }
    }
}
