//! What the threads of a block have written to global memory that no `fence.proxy.async` has made visible to the asynchronous
//! proxy: bulk copies of the block must not read it.

use std::collections::BTreeMap;

/// Ranges of addresses that do not touch: by where they begin, where they end.
#[derive(Default)]
pub(crate) struct Unfenced(BTreeMap<u64, u64>);

impl Unfenced {
    /// So many bytes are written.
    pub fn write(&mut self, address: u64, bytes: usize) {
        let (mut start, mut end) = (address, address + bytes as u64);
        // What it touches is one range with it.
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// A fence of one of the threads: that each thread has one behind its writes is not looked at.
    pub fn fence(&mut self) {
        self.0.clear();
    }

    /// The first of some bytes that no fence came behind, if there is one.
    pub fn first(&self, address: u64, bytes: usize) -> Option<u64> {
        let behind = address + bytes as u64;
        let ranges = self.0.range(..behind).rev().take_while(|(_, end)| **end > address);
        ranges.last().map(|(start, _)| address.max(*start))
    }
}

#[cfg(test)]
mod tests {
    use super::Unfenced;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut unfenced = Unfenced::default();
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
