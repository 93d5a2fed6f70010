//! Collects the constants in memory after the code of a function.

use rustc_hash::FxHashMap;

/// The constants. Sizes are powers of two up to 64 bytes, and offsets are multiples of the size.
#[derive(Default, Debug)]
pub struct Constants {
    constants: Vec<Vec<u8>>,
    indices: FxHashMap<Vec<u8>, usize>,
}

impl Constants {
    /// Returns the index of a constant, which is added if it is new.
    pub fn index(&mut self, bytes: Vec<u8>) -> usize {
        debug_assert!(bytes.len().is_power_of_two() && bytes.len() <= 64, "the size has an alignment");
        if let Some(&index) = self.indices.get(&bytes) {
            return index;
        }
        self.constants.push(bytes.clone());
        self.indices.insert(bytes, self.constants.len() - 1);
        self.constants.len() - 1
    }

    /// Appends the constants to the code, largest first. Returns their offsets.
    pub fn append(&self, code: &mut Vec<u8>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.constants.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(self.constants[index].len()));
        let mut offsets = vec![0; self.constants.len()];
        if let Some(&largest) = order.first() {
            code.resize(code.len().next_multiple_of(self.constants[largest].len()), 0xcc);
        }
        for index in order {
            offsets[index] = code.len();
            code.extend_from_slice(&self.constants[index]);
        }
        offsets
    }
}
