//! Which memory nobody has written yet: allocations that began without content, as `torch.empty` makes them.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The allocations of this process that began without content.
pub static MEMORY: Mutex<Written> = Mutex::new(Written::new());

/// Allocations that began without content, each with the bytes that were written since then. All other memory counts as
/// written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// By their first address.
    allocations: BTreeMap<u64, Allocation>,
}

#[derive(Clone, Debug)]
struct Allocation {
    len: u64,
    /// A bit for each byte.
    bits: Vec<u64>,
}

impl Written {
    /// Without any allocation.
    pub const fn new() -> Self {
        Self { allocations: BTreeMap::new() }
    }

    /// Whether all memory counts as written.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// An allocation without content.
    pub fn allocated(&mut self, address: u64, len: u64) {
        self.freed(address, len);
        if len != 0 {
            let bits = vec![0; len.div_ceil(64) as usize];
            self.allocations.insert(address, Allocation { len, bits });
        }
    }

    /// Memory that is given back, or that somebody has filled whole.
    pub fn freed(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        let touched = |(&start, allocation): (&u64, &Allocation)| {
            (start < end && address < start + allocation.len).then_some(start)
        };
        let starts: Vec<u64> = self.allocations.range(..end).rev().map_while(touched).collect();
        for start in starts {
            self.allocations.remove(&start);
        }
    }

    /// Bytes that are written.
    pub fn write(&mut self, address: u64, len: u64) {
        self.each(address, len, |bits, first, last| {
            for word in first / 64..=last / 64 {
                bits[word as usize] |= mask(word, first, last);
            }
            true
        });
    }

    /// Whether bytes have been written, all of them.
    pub fn is_written(&mut self, address: u64, len: u64) -> bool {
        self.each(address, len, |bits, first, last| {
            (first / 64..=last / 64).all(|word| {
                let mask = mask(word, first, last);
                bits[word as usize] & mask == mask
            })
        })
    }

    /// Calls a function with the part of the bytes that lies in an allocation: the first and the last byte. Allocations do not
    /// overlap, and an access lies in one.
    fn each(&mut self, address: u64, len: u64, call: impl FnOnce(&mut [u64], u64, u64) -> bool) -> bool {
        let end = address.saturating_add(len);
        let Some((&start, allocation)) = self.allocations.range_mut(..end).next_back() else { return true };
        let (first, last) = (address.max(start), end.min(start + allocation.len));
        if first >= last {
            return true;
        }
        call(&mut allocation.bits, first - start, last - start - 1)
    }
}

/// The bits of a word that stand for bytes from the first to the last one.
fn mask(word: u64, first: u64, last: u64) -> u64 {
    let low = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
    let high = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
    low & high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_one_by_one() {
        let mut memory = Written::new();
        assert!(memory.is_written(1000, 4));
        memory.allocated(1000, 400);
        memory.allocated(2000, 4);
        assert!(!memory.is_written(1000, 4) && !memory.is_written(1396, 4) && memory.is_written(1400, 4));
        memory.write(1060, 140);
        assert!(memory.is_written(1060, 140) && !memory.is_written(1056, 8) && !memory.is_written(1196, 8));
        memory.write(1000, 400);
        assert!(memory.is_written(1000, 400) && !memory.is_written(2000, 1));
        memory.freed(1990, 100);
        assert!(memory.is_written(2000, 1));
        memory.allocated(1200, 8);
        assert!(memory.is_written(1000, 4), "an allocation takes the place of those that it overlaps");
        memory.freed(0, u64::MAX);
        assert!(memory.is_empty());
    }
}
