//! Records loads that end in the padding of an allocation.
//! The allocator of a GPU rounds sizes up. A load past the end of a tensor, but within this
//! padding, is harmless, and kernels rely on that. Host memory has no padding. A launch may request
//! that such loads read 0 and are recorded: see [`Launch::padded`](crate::Launch::padded).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_base::Diagnostic;

use crate::program::Program;
use crate::run::argument::Argument;
use crate::run::fault::Fault;
use crate::run::grid::coordinates;

/// The loads of a launch that ended in the padding of an allocation. For each site, only the load
/// of the program with the lowest index is kept, so that every run reports the same loads.
#[derive(Debug, Default)]
pub struct PaddedReads {
    /// For each site: the index of the program, and the fault of the load.
    found: Mutex<BTreeMap<u32, (u64, Box<Fault>)>>,
}

impl PaddedReads {
    /// Records a load. For each site, keeps the program with the lowest index.
    pub(crate) fn note(&self, number: u64, fault: Box<Fault>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let known = found.get(&fault.site).map_or(u64::MAX, |(number, _)| *number);
        if number < known {
            found.insert(fault.site, (number, fault));
        }
    }

    /// Returns the diagnostic of each recorded load, as a launch without a recorder reports it.
    pub(crate) fn diagnostics_of(
        &self,
        program: &Program,
        arguments: &[Argument<'_>],
        name: &dyn Fn(usize) -> Arc<str>,
        grid: [u32; 3],
    ) -> Vec<Diagnostic> {
        let diagnostic = |(number, fault): &(u64, Box<Fault>)| {
            fault.diagnostic(program, arguments, name, coordinates(grid, *number))
        };
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.values().map(diagnostic).collect()
    }
}
