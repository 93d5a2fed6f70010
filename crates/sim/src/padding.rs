//! Collects the loads that end in the padding of a region.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::fault::{Fault, FaultKind};

/// The cluster in the grid, the warp in the cluster, and the lane of a load.
pub(crate) type Reader = (u64, usize, usize);

/// For each instruction, collects the first load that ends in the padding of a region
/// (`Region::with_padding`). Loads are ordered by cluster, then by warp, then by lane.
#[derive(Debug, Default)]
pub struct PaddedReads {
    /// The load of each instruction, by index.
    found: Mutex<BTreeMap<u32, (Reader, FaultKind)>>,
    faults: Mutex<Vec<Fault>>,
}

impl PaddedReads {
    /// Records a load, unless an earlier reader has executed the same instruction.
    #[cold]
    pub(crate) fn note(&self, instruction: u32, reader: Reader, kind: FaultKind) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match found.get(&instruction) {
            Some((known, _)) if *known <= reader => {}
            Some(_) | None => {
                found.insert(instruction, (reader, kind));
            }
        }
    }

    /// Resolves each load to its fault, at the end of the launch.
    pub(crate) fn end(&self, fault: impl Fn(u32, Reader, FaultKind) -> Fault) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults
            .extend(found.into_iter().map(|(instruction, (reader, kind))| fault(instruction, reader, kind)));
    }

    /// Returns the faults that the loads would have caused.
    pub fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
