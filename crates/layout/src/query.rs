//! Answers questions of code generators about a layout.
//!
//! Examples: which consecutive elements a thread holds, and which hardware indices hold copies of
//! an element.

use smallvec::SmallVec;

use crate::f2::{self, Columns, Span};
use crate::map::{Layout, Map, Transfer};
use crate::space::{Hardware, Input, Space};

/// The registers of one access, in the order of the elements in memory.
pub type AccessRegisters = SmallVec<[u32; 16]>;

/// The grouping of a thread's registers into aligned vector accesses of `2^k` elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vector {
    /// The register bits that select each bit of the index in a run. If bit `j` of the index of
    /// register `r` is 0, register `r ^ elements[j]` is `2^j` elements later.
    elements: SmallVec<[u32; 4]>,
    /// A basis of the first registers of the accesses. Bit `i` of the index of an access XORs
    /// `firsts[i]` to the index of its first register.
    firsts: Columns,
}

impl Vector {
    pub(crate) fn new(elements: SmallVec<[u32; 4]>, firsts: Columns) -> Self {
        Self { elements, firsts }
    }

    pub(crate) fn into_bases(self) -> (SmallVec<[u32; 4]>, Columns) {
        (self.elements, self.firsts)
    }

    /// Returns the number of elements of an access.
    pub fn width(&self) -> u32 {
        1 << self.elements.len()
    }

    /// Returns the number of accesses of a thread.
    pub fn accesses(&self) -> u32 {
        1 << self.firsts.len()
    }

    /// Returns the registers of access `number`, in the order of their elements in memory.
    pub fn registers(&self, number: u32) -> AccessRegisters {
        let first = f2::multiply(&self.firsts, number);
        (0..self.width()).map(|element| first ^ f2::multiply(&self.elements, element)).collect()
    }

    /// Returns the same registers in accesses of at most `width` elements.
    ///
    /// # Panics
    /// If the width is not a power of two.
    #[must_use]
    pub fn at_most(&self, width: u32) -> Self {
        assert!(width.is_power_of_two(), "the width of a vector is a power of two, found {width}");
        let mut elements = self.elements.clone();
        let kept = elements.len().min(width.ilog2() as usize);
        let mut firsts: Columns = elements.drain(kept..).collect();
        firsts.extend_from_slice(&self.firsts);
        Self { elements, firsts }
    }
}

impl Layout {
    /// Returns the coordinates of the element at a hardware index. [`Map::at`] returns its
    /// row-major index.
    pub fn coordinates(&self, parts: &[(Input, u32)]) -> SmallVec<[u32; 6]> {
        self.output().coordinates(self.at(parts))
    }

    /// Returns the number of elements that a thread holds, including replicas.
    pub fn registers(&self) -> u32 {
        1 << self.bits_of(Input::Register)
    }

    /// Returns a mask of the free bits of an input, which only select replicas. The hardware
    /// indices whose free bits are all 0 hold each element exactly once. So a store needs only the
    /// threads and the registers whose free bits are 0. If several bits select the same replicas,
    /// the highest one is free. Warp bits are above lane bits, and lane bits above register bits.
    pub fn free_bits(&self, input: Input) -> u32 {
        let mut span = Span::new();
        let mut free = 0;
        for (bit, column) in self.columns().iter().enumerate() {
            free |= u32::from(!span.insert(*column)) << bit;
        }
        self.input().part(free, input)
    }

    /// Returns the number of distinct elements that a thread holds.
    pub fn unique_registers(&self) -> u32 {
        1 << f2::rank(self.bases(Input::Register))
    }

    /// Returns the register with the same element and free bits 0, for each register.
    pub fn representatives(&self) -> SmallVec<[u32; 16]> {
        let bases = self.bases(Input::Register);
        let span = Span::of(bases);
        let own: Columns = bases
            .iter()
            .map(|column| span.solve(*column).expect("a vector that was inserted is in the span") as u32)
            .collect();
        (0..self.registers()).map(|register| f2::multiply(&own, register)).collect()
    }

    /// Returns the layout without the register bits that only select replicas.
    #[must_use]
    pub fn without_duplicate_registers(&self) -> Self {
        self.with_bases(Input::Register, &f2::independent(self.bases(Input::Register)))
    }

    /// Returns the widest vectors for an access to memory. The axis is contiguous in memory, and
    /// each row along it is aligned. A vector is the longest aligned run along the axis that each
    /// thread holds.
    pub fn vector_along(&self, axis: usize) -> Vector {
        self.vector(self.output().shift(axis), self.output().bits_of(axis))
    }

    /// Returns the widest vectors for an access to a buffer with the layout `memory`.
    ///
    /// # Panics
    /// If the memory does not hold every element.
    pub fn vector_in(&self, memory: &Self) -> Vector {
        self.offsets_in(memory).vector(0, memory.bits_of(Input::Offset))
    }

    /// Maps each hardware index to the offset of its element in a buffer.
    ///
    /// # Panics
    /// If the memory does not hold every element.
    pub fn offsets_in(&self, memory: &Self) -> Transfer {
        self.relative_to(memory).expect("the buffer holds every element of the tile")
    }

    /// Maps each register to the register of `other` with the same element. Returns `None` if the
    /// layouts differ in the bases of the lanes, the warps or the blocks. Also returns `None` if a
    /// thread of `other` lacks an element.
    pub fn registers_from(&self, other: &Self) -> Option<SmallVec<[u32; 16]>> {
        assert_eq!(self.output(), other.output(), "the layouts have to be of the same tile");
        let threads = [Input::Lane, Input::Warp, Input::Block, Input::Offset];
        if threads.into_iter().any(|input| self.bases(input) != other.bases(input)) {
            return None;
        }
        let span = Span::of(other.bases(Input::Register));
        let columns: Option<Columns> = self
            .bases(Input::Register)
            .iter()
            .map(|column| span.solve(*column).map(|sum| sum as u32))
            .collect();
        let columns = columns?;
        Some((0..self.registers()).map(|register| f2::multiply(&columns, register)).collect())
    }

    /// Returns whether the layouts differ at most in the register indices.
    pub fn is_equal_up_to_registers(&self, other: &Self) -> bool {
        self.registers() == other.registers()
            && self.registers_from(other).is_some()
            && other.registers_from(self).is_some()
    }
}

impl<O: Space> Map<Hardware, O> {
    /// Returns the widest vectors along the bits `low .. low + bits` of the output. The elements of
    /// a vector are registers of one thread. A vector is aligned, because no bit of another input
    /// maps to the bits within it.
    pub(crate) fn vector(&self, low: u32, bits: u32) -> Vector {
        let registers = self.bases(Input::Register);
        let span = Span::of(registers);
        let others = self.columns()[registers.len()..].iter().fold(0, |any, column| any | column);
        let mut elements = SmallVec::<[u32; 4]>::new();
        for bit in low..low + bits {
            let Some(element) = span.solve(1 << bit).filter(|_| others >> bit & 1 == 0) else { break };
            elements.push(element as u32);
        }
        // The first register of an access has index 0 in its run, so XOR away the other bits.
        let run = (1_u64 << elements.len()) - 1;
        let mut chosen =
            Span::of(&elements.iter().map(|element| f2::multiply(registers, *element)).collect::<Columns>());
        let mut firsts = Columns::new();
        for (bit, column) in registers.iter().enumerate() {
            if chosen.insert(*column) {
                let excess = (u64::from(*column) >> low & run) as u32;
                firsts.push(1 << bit ^ f2::multiply(&elements, excess));
            }
        }
        Vector { elements, firsts }
    }
}
