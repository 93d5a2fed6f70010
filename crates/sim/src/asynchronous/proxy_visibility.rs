//! Tracks the writes to global memory that are invisible to the asynchronous proxy.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent address ranges, from start to exclusive end.
#[derive(Default)]
pub(crate) struct UnfencedWrites(BTreeMap<u64, u64>);

impl UnfencedWrites {
    pub fn write(&mut self, address: u64, bytes: usize) {
        let (mut start, mut end) = (address, address + bytes as u64);
        // Merges the ranges that touch the new one.
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Covers the writes of all threads of the block, for simplicity.
    pub fn fence(&mut self) {
        self.0.clear();
    }

    pub fn first(&self, address: u64, bytes: usize) -> Option<u64> {
        let end = address + bytes as u64;
        let ranges = self.0.range(..end).rev().take_while(|(_, written)| **written > address);
        ranges.last().map(|(start, _)| address.max(*start))
    }
}

#[cfg(test)]
mod tests {
    use super::UnfencedWrites;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut unfenced = UnfencedWrites::default();
        unfenced.write(16, 16);
        unfenced.write(64, 4);
        assert_eq!(unfenced.first(0, 16), None);
        assert_eq!(unfenced.first(0, 17), Some(16));
        assert_eq!(unfenced.first(31, 40), Some(31));
        assert_eq!(unfenced.first(32, 40), Some(64));
        assert_eq!(unfenced.first(68, 100), None);
        unfenced.write(32, 32);
        assert_eq!(unfenced.0.len(), 1);
        unfenced.write(20, 4);
        assert_eq!(unfenced.0.iter().next(), Some((&16, &68)));
        unfenced.fence();
        assert_eq!(unfenced.first(0, 100), None);
    }
}
