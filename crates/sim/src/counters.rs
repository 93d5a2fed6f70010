//! Counts the executions and accesses of each instruction of the PTX.

/// Counts of one instruction of the PTX, over all warps that executed it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StepCounters {
    /// How often a warp executed the instruction with at least one lane. If the decoder has split
    /// the instruction into several steps, each step counts.
    pub executions: u64,
    /// Active lanes, summed over the executions.
    pub lanes: u64,
    /// Warp-level accesses to global memory.
    pub global_requests: u64,
    /// Touched sectors of 32 bytes. Each allocation counts as if it began at a sector, independent
    /// of its host address.
    pub sectors: u64,
    /// Sectors that the same bytes would fill if they were contiguous.
    pub ideal_sectors: u64,
    /// Shared-memory wavefronts. The hardware serves a set of lanes together. The bank in which
    /// these lanes access the most different words determines the number of wavefronts: one for
    /// each of these words.
    pub wavefronts: u64,
    /// Wavefronts that the same accesses would need without bank conflicts.
    pub ideal_wavefronts: u64,
    /// Bytes that loads, asynchronous copies and matrix instructions read from global and shared
    /// memory.
    pub bytes_read: u64,
    /// Bytes that stores, atomic operations, asynchronous copies and matrix instructions wrote to
    /// global and shared memory.
    pub bytes_written: u64,
    /// The part of `bytes_read` that is in global memory.
    pub global_bytes_read: u64,
    /// The part of `bytes_written` that is in global memory.
    pub global_bytes_written: u64,
    /// Multiplications and additions of the tensor cores.
    pub tensor_operations: u64,
}

impl StepCounters {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.executions += other.executions;
        self.lanes += other.lanes;
        self.global_requests += other.global_requests;
        self.sectors += other.sectors;
        self.ideal_sectors += other.ideal_sectors;
        self.wavefronts += other.wavefronts;
        self.ideal_wavefronts += other.ideal_wavefronts;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.global_bytes_read += other.global_bytes_read;
        self.global_bytes_written += other.global_bytes_written;
        self.tensor_operations += other.tensor_operations;
    }

    /// Counts an access of a warp to global memory. `accesses` has the device address and bytes of
    /// each lane.
    pub fn global(&mut self, accesses: impl Iterator<Item = (u64, u64)>, is_store: bool) {
        let mut spans: smallvec::SmallVec<[(u64, u64); 32]> =
            accesses.map(|(start, len)| (start, start + len)).collect();
        let moved: u64 = spans.iter().map(|(start, stop)| stop - start).sum();
        if is_store {
            self.bytes_written += moved;
            self.global_bytes_written += moved;
        } else {
            self.bytes_read += moved;
            self.global_bytes_read += moved;
        }
        spans.sort_unstable();
        let (mut bytes, mut sectors, mut end, mut next_sector) = (0, 0, 0, 0);
        for (start, stop) in spans {
            bytes += stop.saturating_sub(start.max(end));
            end = end.max(stop);
            let (first, last) = ((start / 32).max(next_sector), (stop - 1) / 32);
            if last >= first {
                sectors += last + 1 - first;
                next_sector = last + 1;
            }
        }
        self.global_requests += 1;
        self.sectors += sectors;
        self.ideal_sectors += bytes.div_ceil(32);
    }

    /// Counts the wavefronts of an access to shared memory of `bytes` bytes per lane. `offsets` has
    /// the offset of each lane. A wavefront serves 128 bytes: all lanes at up to 4 bytes, half of
    /// them at 8, a quarter at 16.
    pub fn shared(&mut self, offsets: &[(usize, u64)], bytes: usize) {
        let lanes_a_pass = if bytes <= 4 { 32 } else { 128 / bytes.min(16) };
        for first in (0..32).step_by(lanes_a_pass) {
            let group = offsets.iter().filter(|(lane, _)| (first..first + lanes_a_pass).contains(lane));
            let words = group.flat_map(|(_, offset)| offset / 4..(offset + bytes as u64).div_ceil(4));
            let mut words: smallvec::SmallVec<[u64; 64]> = words.collect();
            if words.is_empty() {
                continue;
            }
            words.sort_unstable();
            words.dedup();
            let mut banks = [0_u64; 32];
            for word in words {
                banks[(word % 32) as usize] += 1;
            }
            self.wavefronts += banks.into_iter().max().unwrap_or(0);
            self.ideal_wavefronts += 1;
        }
    }
}
