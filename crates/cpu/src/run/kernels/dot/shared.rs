//! Keeps packed operands B, which the dots of a launch share.
//!
//! Consecutive programs often multiply different rows of A by the same tiles of B. The first dot of
//! a thread that reads such a tile packs it. Later dots find the packed tile by the addresses of
//! its elements. This requires that no program of the launch can write to the memory of B.

use std::ops::Range;

use rustc_hash::FxHashMap;
use tilewright_ir::Dtype;

use super::Matrix;
use crate::run::kernels::buffer::{ALIGNMENT, Buffer};
use crate::run::memory::{MatrixIdentity, MatrixReader};
use crate::tuning::{MAX_SHARED_BYTES, MAX_TESTED_OPERANDS, MIN_PANEL_ROWS, MIN_SHARED_BYTES};

/// The size in bytes of the longest vectors. Packed operands consist of whole vectors.
const MAX_VECTOR_BYTES: usize = 64;

/// The layout of a packed operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PackedForm {
    /// Panels of elements of the accumulator's type.
    Elements(Dtype),
    /// Panels of words for the named instruction set.
    Words(&'static str),
}

/// The properties of an operand that determine its packed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    elements: MatrixIdentity,
    dtype: Dtype,
    form: PackedForm,
}

/// The packed operands of a launch, and facts about operands.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedOperands {
    bytes: Buffer,
    used: usize,
    ranges: FxHashMap<Key, Range<usize>>,
    /// True if a dot has found a packed operand since the memory was last emptied.
    is_useful: bool,
    /// True if the memory is full, and no dot has found a packed operand in it.
    is_off: bool,
    /// True for an operand with a subnormal element, if its memory does not change.
    subnormal: FxHashMap<MatrixIdentity, bool>,
}

impl SharedOperands {
    /// Discards all packed operands, because the memory of the matrices may have changed.
    pub fn clear(&mut self) {
        self.empty();
        self.subnormal.clear();
        self.is_off = false;
    }

    fn empty(&mut self) {
        self.ranges.clear();
        (self.used, self.is_useful) = (0, false);
    }

    /// Returns the key of operand B, or `None` if dots do not share it. A must have enough rows to
    /// repay the memory.
    pub fn key(&self, b: &Matrix<'_>, rows_of_a: usize, form: PackedForm) -> Option<Key> {
        let is_shared = b.is_shared && rows_of_a >= MIN_PANEL_ROWS && !self.is_off;
        is_shared.then(|| Key { elements: b.elements.identity(), dtype: b.dtype, form })
    }

    /// Returns whether an element of an operand is subnormal. Calls `test`, unless an earlier dot
    /// has read the same elements.
    pub fn has_subnormals(&mut self, matrix: &Matrix<'_>, test: impl FnOnce() -> bool) -> bool {
        if !matrix.is_shared {
            return test();
        }
        if self.subnormal.len() >= MAX_TESTED_OPERANDS {
            self.subnormal.clear();
        }
        *self.subnormal.entry(matrix.elements.identity()).or_insert_with(test)
    }

    /// Returns the packed operand with the key if there is one. Otherwise, returns the matrix, with
    /// memory for its panels if there is room.
    pub fn operand<'a>(
        &'a mut self,
        key: Option<Key>,
        matrix: impl FnOnce() -> MatrixReader<'a>,
    ) -> OperandB<'a> {
        let Some(key) = key else { return OperandB::Matrix(matrix()) };
        if let Some(range) = self.ranges.get(&key) {
            self.is_useful = true;
            return OperandB::Packed(&self.bytes.bytes()[range.clone()]);
        }
        let matrix = matrix();
        let columns = matrix.columns().next_multiple_of(MAX_VECTOR_BYTES / matrix.size());
        match self.reserve(key, matrix.rows() * columns * matrix.size()) {
            Some(range) => OperandB::Shared(matrix, &mut self.bytes.bytes_mut()[range]),
            None => OperandB::Matrix(matrix),
        }
    }

    fn reserve(&mut self, key: Key, len: usize) -> Option<Range<usize>> {
        let size = len.next_multiple_of(ALIGNMENT);
        let capacity = self.bytes.bytes().len();
        if size > capacity - self.used {
            if size > MAX_SHARED_BYTES {
                return None;
            }
            if capacity < MAX_SHARED_BYTES {
                let larger = (2 * capacity).clamp(MIN_SHARED_BYTES, MAX_SHARED_BYTES);
                self.bytes.resize(larger.max(size));
            } else if !self.is_useful {
                self.is_off = true;
                return None;
            }
            self.empty();
        }
        let range = self.used..self.used + len;
        self.used += size;
        self.ranges.insert(key, range.clone());
        Some(range)
    }
}

/// Operand B of a dot.
pub(super) enum OperandB<'a> {
    /// A matrix. The dot packs some columns at a time if that repays the copy.
    Matrix(MatrixReader<'a>),
    /// A matrix that the dot packs into this memory, also for later dots.
    Shared(MatrixReader<'a>, &'a mut [u8]),
    /// All panels of columns, packed.
    Packed(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::MIN_SHARED_BYTES;

    /// Returns whether a dot finds a packed copy of the first `count` elements of a tile.
    fn finds(shared: &mut SharedOperands, tile: &[u8], count: usize) -> bool {
        let matrix = Matrix { is_shared: true, ..Matrix::new(Dtype::F32, &tile[..4 * count], 16) };
        let key = shared.key(&matrix, MIN_PANEL_ROWS, PackedForm::Elements(Dtype::F32));
        matches!(shared.operand(key, || matrix.elements), OperandB::Packed(_))
    }

    #[test]
    fn operands_are_found_until_the_memory_is_full_or_the_launch_ends() {
        let tile = vec![0; 2 * MAX_SHARED_BYTES];
        let shared = &mut SharedOperands::default();
        let elements = MIN_SHARED_BYTES / 4;
        assert!(!finds(shared, &tile, elements / 2));
        assert!(finds(shared, &tile, elements / 2));
        assert!(!finds(shared, &tile[64..], elements / 2), "another address");
        assert!(finds(shared, &tile[64..], elements / 2));
        assert!(finds(shared, &tile, elements / 2));
        assert!(!finds(shared, &tile, elements), "another shape, and there is no room");
        assert!(finds(shared, &tile, elements));
        shared.clear();
        assert!(!finds(shared, &tile, elements));
        assert!(!finds(shared, &tile, 2 * MAX_SHARED_BYTES / 4), "it is larger than the memory");
    }

    #[test]
    fn memory_that_is_full_of_unused_operands_is_not_used() {
        let tile = vec![0; 2 * MAX_SHARED_BYTES];
        let shared = &mut SharedOperands::default();
        let elements = MIN_SHARED_BYTES / 4;
        let mut tiles = (0..).step_by(64);
        while !shared.is_off {
            let first = tiles.next().expect("there are more tiles");
            assert!(!finds(shared, &tile[first..], elements));
        }
        assert!(!finds(shared, &tile, elements));
        shared.clear();
        assert!(!finds(shared, &tile, elements));
        assert!(finds(shared, &tile, elements));
    }
}
