//! Implements the tensor memory of a block: 128 lanes of 512 columns of 32 bits.
//!
//! A block allocates a power of two of columns, in all lanes. Accesses must be to allocated
//! columns, and are checked for races as in shared memory. Each simulated block has its own tensor
//! memory. On a GPU, the blocks of a multiprocessor share one.

use std::collections::BTreeMap;

use super::shadow::{Record, Shadow};
use super::shared::Accessor;
use crate::fault::{Cause, FaultKind, Outcome};

pub const TENSOR_LANES: usize = 128;
pub const TENSOR_COLUMNS: usize = 512;
/// The minimum number of columns of an allocation, which begins at a multiple of this number.
const GRANULE: usize = 32;

#[derive(Default)]
pub struct TensorMemory {
    /// The cells, lane by lane, or none before the first allocation.
    cells: Vec<u32>,
    shadow: Shadow,
    allocations: BTreeMap<usize, usize>,
    /// The number of columns of the last allocation.
    last_columns: Option<usize>,
    has_relinquished: bool,
}

impl TensorMemory {
    /// Returns the cells, lane by lane, or none before the first allocation.
    pub fn cells(&self) -> &[u32] {
        &self.cells
    }

    /// Allocates columns. Returns the first one, or `None` if too few are free.
    ///
    /// # Errors
    /// If the ISA forbids the allocation.
    pub fn allocate(&mut self, columns: usize) -> Result<Option<usize>, FaultKind> {
        check_size("tcgen05.alloc", columns)?;
        if self.has_relinquished {
            return Err(illegal("tcgen05.alloc after tcgen05.relinquish_alloc_permit of the block".into()));
        }
        if let Some(last) = self.last_columns.filter(|last| *last < columns) {
            return Err(illegal(format!(
                "tcgen05.alloc of {columns} columns after one of {last}: the number must not increase"
            )));
        }
        let is_free = |first: &usize| {
            let mut others = self.allocations.iter();
            others.all(|(start, size)| start + size <= *first || first + columns <= *start)
        };
        let Some(first) = (0..=TENSOR_COLUMNS - columns).step_by(GRANULE).find(is_free) else {
            return Ok(None);
        };
        if self.cells.is_empty() {
            self.cells = vec![0; TENSOR_LANES * TENSOR_COLUMNS];
            self.shadow = Shadow::new(TENSOR_LANES * TENSOR_COLUMNS);
        }
        self.last_columns = Some(columns);
        self.allocations.insert(first, columns);
        Ok(Some(first))
    }

    /// Frees an allocation. All accesses to it must be ordered before this call.
    ///
    /// # Errors
    /// If there is no such allocation, or an agent may still access it.
    pub fn free(&mut self, accessor: &Accessor<'_>, first: u32, columns: usize) -> Outcome {
        check_size("tcgen05.dealloc", columns)?;
        let (lane, column) = split(first);
        if lane != 0 || self.allocations.get(&column) != Some(&columns) {
            let text = format!(
                "tcgen05.dealloc of {columns} columns at {first:#x}: no tcgen05.alloc returned such an allocation"
            );
            return Err(illegal(text).into());
        }
        let record = accessor.record(true);
        for lane in 0..TENSOR_LANES {
            let start = lane * TENSOR_COLUMNS + column;
            in_tensor_memory(self.shadow.write(accessor.agent, record, start, columns, |_| false))?;
            self.shadow.forget(start..start + columns);
        }
        self.allocations.remove(&column);
        Ok(())
    }

    /// Forbids further allocations of the block.
    pub fn relinquish(&mut self) {
        self.has_relinquished = true;
    }

    /// Checks that the block has freed its allocations before it ends.
    ///
    /// # Errors
    /// If an allocation was not freed.
    pub fn end(&self) -> Result<(), FaultKind> {
        let columns: usize = self.allocations.values().sum();
        if columns == 0 {
            return Ok(());
        }
        Err(illegal(format!(
            "the block ends with {columns} columns of tensor memory allocated: a tcgen05.dealloc is missing"
        )))
    }

    /// Returns the lane, the column and the read of the first uninitialized cell that was read.
    /// Valid only after a run without races.
    pub fn unwritten(&self) -> Option<(u32, u32, Record)> {
        self.shadow.unwritten().map(|(cell, record)| {
            let (lane, column) = position(cell);
            (lane, column, record)
        })
    }

    /// Reads adjacent cells of a lane.
    pub fn read(
        &mut self,
        accessor: &Accessor<'_>,
        (lane, column): (usize, usize),
        to: &mut [u32],
    ) -> Outcome {
        let start = self.locate(lane, column, to.len(), "reads")?;
        let record = accessor.record(false);
        in_tensor_memory(self.shadow.read(accessor.agent, record, start, to.len()))?;
        to.copy_from_slice(&self.cells[start..start + to.len()]);
        Ok(())
    }

    /// Writes adjacent cells of a lane.
    pub fn write(
        &mut self,
        accessor: &Accessor<'_>,
        (lane, column): (usize, usize),
        from: &[u32],
    ) -> Outcome {
        let start = self.locate(lane, column, from.len(), "writes")?;
        let cells = &mut self.cells[start..start + from.len()];
        let record = accessor.record(true);
        let is_same = |cell: usize| cells[cell] == from[cell];
        in_tensor_memory(self.shadow.write(accessor.agent, record, start, from.len(), is_same))?;
        cells.copy_from_slice(from);
        Ok(())
    }

    /// Returns the index of a cell, if all columns of an access are allocated.
    fn locate(&self, lane: usize, column: usize, columns: usize, does: &str) -> Outcome<usize> {
        // Columns beyond the last one are never allocated.
        let end = column.min(TENSOR_COLUMNS) + columns;
        let mut at = column.min(TENSOR_COLUMNS);
        while at < end {
            let before = self.allocations.range(..=at).next_back();
            let Some((start, size)) = before.filter(|(start, size)| at < *start + *size) else {
                let text = format!("{does} column {at} of tensor memory, which the block has not allocated");
                return Err(illegal(text).into());
            };
            at = start + size;
        }
        if lane >= TENSOR_LANES {
            let text = format!("{does} lane {lane} of tensor memory, which has {TENSOR_LANES} lanes");
            return Err(illegal(text).into());
        }
        Ok(lane * TENSOR_COLUMNS + column)
    }
}

/// Splits an address into the lane and the column.
pub fn split(address: u32) -> (usize, usize) {
    ((address >> 16) as usize, (address & 0xffff) as usize)
}

fn position(cell: u32) -> (u32, u32) {
    (cell / TENSOR_COLUMNS as u32, cell % TENSOR_COLUMNS as u32)
}

fn check_size(instruction: &str, columns: usize) -> Result<(), FaultKind> {
    if columns.is_power_of_two() && (GRANULE..=TENSOR_COLUMNS).contains(&columns) {
        return Ok(());
    }
    Err(illegal(format!(
        "{instruction} of {columns} columns: the number has to be a power of two from {GRANULE} to {TENSOR_COLUMNS}"
    )))
}

fn illegal(text: String) -> FaultKind {
    FaultKind::Illegal(text)
}

/// Converts a race in the shadow to a race in tensor memory.
fn in_tensor_memory(outcome: Outcome) -> Outcome {
    outcome.map_err(|mut stop| {
        if let Cause::Race { offset, first, is_write } = stop.cause {
            let (lane, column) = position(offset);
            stop.cause = Cause::TensorMemoryRace { lane, column, first, is_write };
        }
        stop
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Agent;

    #[test]
    fn columns_are_allocated_by_powers_of_two() {
        let agent = Agent::new(0, 1);
        let accessor = Accessor::generic(&agent, 0, false);
        let mut memory = TensorMemory::default();
        for columns in [0, 16, 48, 1024] {
            assert!(memory.allocate(columns).is_err(), "{columns}");
        }
        assert_eq!(memory.allocate(256), Ok(Some(0)));
        assert_eq!(memory.allocate(128), Ok(Some(256)));
        assert!(memory.allocate(256).is_err(), "the number of columns increases");
        assert_eq!(memory.allocate(128), Ok(Some(384)));
        assert_eq!(memory.allocate(32), Ok(None), "no column is free");
        memory.free(&accessor, 256, 128).unwrap();
        assert_eq!(memory.allocate(32), Ok(Some(256)));
        assert!(memory.free(&accessor, 256, 64).is_err() && memory.free(&accessor, 288, 32).is_err());
        assert!(memory.end().is_err());
        for (first, columns) in [(0, 256), (256, 32), (384, 128)] {
            memory.free(&accessor, first, columns).unwrap();
        }
        assert!(memory.end().is_ok());
        memory.relinquish();
        assert!(memory.allocate(32).is_err());
    }

    #[test]
    fn accesses_are_to_allocated_columns() {
        let agent = Agent::new(0, 1);
        let accessor = Accessor::generic(&agent, 0, false);
        let mut memory = TensorMemory::default();
        assert!(memory.write(&accessor, (0, 0), &[1]).is_err());
        memory.allocate(64).unwrap();
        memory.allocate(32).unwrap();
        memory.write(&accessor, (127, 60), &[1, 2, 3, 4, 5, 6]).unwrap();
        let mut cells = [0; 4];
        memory.read(&accessor, (127, 62), &mut cells).unwrap();
        assert_eq!(cells, [3, 4, 5, 6]);
        assert!(memory.write(&accessor, (0, 95), &[1, 2]).is_err());
        assert!(memory.write(&accessor, (128, 0), &[1]).is_err());
        assert!(memory.write(&accessor, (0, usize::MAX), &[1]).is_err());
        assert_eq!(memory.unwritten().map(|(lane, column, _)| (lane, column)), None);
        memory.read(&accessor, (3, 0), &mut cells).unwrap();
        assert_eq!(memory.unwritten().map(|(lane, column, _)| (lane, column)), Some((3, 0)));
    }

    #[test]
    fn unordered_accesses_race() {
        let (first, second) = (Agent::new(0, 2), Agent::new(1, 2));
        let mut memory = TensorMemory::default();
        memory.allocate(32).unwrap();
        memory.write(&Accessor::generic(&first, 0, false), (5, 7), &[1]).unwrap();
        let race = memory.read(&Accessor::generic(&second, 1, false), (5, 7), &mut [0]).unwrap_err();
        assert!(matches!(race.cause, Cause::TensorMemoryRace { lane: 5, column: 7, is_write: false, .. }));
        assert!(memory.free(&Accessor::generic(&second, 1, false), 0, 32).is_err());
    }
}
