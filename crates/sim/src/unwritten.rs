//! Reports reads of uninitialized shared and tensor memory after a cluster ran.

use crate::block::Stopped;
use crate::context::BlockMemory;
use crate::fault::{Cause, FaultKind};

/// Replaces the outcome of a cluster by the fault of an uninitialized read, which may be its cause.
/// The block with the lowest rank counts first. Races and cancellations stay.
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
            // An asynchronous operation has no warp, so the fault names warp 0 and the instruction.
            let warp = if (record.agent as usize) < warps { record.agent as usize } else { 0 };
            Err(Stopped { stop: kind.into(), warp, site: Some(record.instruction) })
        }
    }
}
