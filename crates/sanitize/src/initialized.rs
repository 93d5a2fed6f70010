//! Tracks uninitialized memory, such as that of `torch.empty`.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The allocations of this process that had no initial content.
pub static MEMORY: Mutex<InitializedMemory> = Mutex::new(InitializedMemory::new());

/// The allocations without initial content, and the initialized bytes of each allocation. All other
/// memory counts as initialized.
#[derive(Clone, Debug, Default)]
pub struct InitializedMemory {
    /// The allocations, by their start addresses.
    allocations: BTreeMap<u64, Allocation>,
}

#[derive(Clone, Debug)]
struct Allocation {
    len: u64,
    /// One bit for each byte. The bit is set if the byte is initialized.
    bits: Vec<u64>,
}

impl InitializedMemory {
    /// Returns an empty set of allocations.
    pub const fn new() -> Self {
        Self { allocations: BTreeMap::new() }
    }

    /// Returns whether no allocation is registered. All memory then counts as initialized.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// Registers an uninitialized allocation. Removes all allocations that it overlaps.
    pub fn allocated(&mut self, address: u64, len: u64) {
        self.freed(address, len);
        if len != 0 {
            let bits = vec![0; len.div_ceil(64) as usize];
            self.allocations.insert(address, Allocation { len, bits });
        }
    }

    /// Removes every allocation that overlaps a range. Call this function for a range that was
    /// freed, or initialized as a whole.
    pub fn freed(&mut self, address: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = address.saturating_add(len);
        let touched = |(&start, allocation): (&u64, &Allocation)| {
            (start < end && address < start + allocation.len).then_some(start)
        };
        let starts: Vec<u64> = self.allocations.range(..end).rev().map_while(touched).collect();
        for start in starts {
            self.allocations.remove(&start);
        }
    }

    /// Marks the bytes of a range as initialized.
    pub fn write(&mut self, address: u64, len: u64) {
        self.each(address, len, |bits, first, last| {
            for word in first / 64..=last / 64 {
                bits[word as usize] |= mask(word, first, last);
            }
            true
        });
    }

    /// Returns whether all bytes of a range are initialized.
    pub fn is_initialized(&mut self, address: u64, len: u64) -> bool {
        self.each(address, len, |bits, first, last| {
            (first / 64..=last / 64).all(|word| {
                let mask = mask(word, first, last);
                bits[word as usize] & mask == mask
            })
        })
    }

    /// Finds the allocation that contains bytes of a range, and calls a function for these bytes.
    /// The arguments are the bits of the allocation, and the first and the last of the bytes. Both
    /// are relative to the start of the allocation.
    ///
    /// Returns the result of the function, or true if no allocation contains a byte of the range.
    /// One allocation suffices, because allocations do not overlap and an access lies within a
    /// single allocation.
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

/// Returns the bits of the word with index `word` that represent bytes from `first` to `last`,
/// inclusive.
fn mask(word: u64, first: u64, last: u64) -> u64 {
    let low = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
    let high = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
    low & high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_initialized_individually() {
        let mut memory = InitializedMemory::new();
        assert!(memory.is_initialized(1000, 4));
        memory.allocated(1000, 400);
        memory.allocated(2000, 4);
        assert!(
            !memory.is_initialized(1000, 4)
                && !memory.is_initialized(1396, 4)
                && memory.is_initialized(1400, 4)
        );
        memory.write(1060, 140);
        assert!(
            memory.is_initialized(1060, 140)
                && !memory.is_initialized(1056, 8)
                && !memory.is_initialized(1196, 8)
        );
        memory.write(1000, 400);
        assert!(memory.is_initialized(1000, 400) && !memory.is_initialized(2000, 1));
        memory.allocated(2001, 0);
        memory.freed(2001, 0);
        assert!(!memory.is_initialized(2000, 1), "an empty range overlaps no allocation");
        memory.freed(1990, 100);
        assert!(memory.is_initialized(2000, 1));
        memory.allocated(1200, 8);
        assert!(memory.is_initialized(1000, 4), "an allocation replaces those that it overlaps");
        memory.freed(0, u64::MAX);
        assert!(memory.is_empty());
    }
}
