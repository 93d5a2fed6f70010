//! Defines the spaces of hardware indices ([`Hardware`]) and of elements ([`Tile`]).

use std::fmt;
use std::hash::Hash;

use smallvec::SmallVec;

/// The parts of a hardware index. The order is that of the bits, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// The index of an element among those of one thread. Two 16-bit elements in one machine
    /// register have two indices.
    Register,
    /// The index of the thread in its warp.
    Lane,
    /// The index of the warp in its block.
    Warp,
    /// The index of the thread block in its cluster.
    Block,
    /// An offset into memory, in elements.
    Offset,
}

impl Input {
    /// Every input, in the order of the bits of a hardware index.
    pub const ALL: [Self; 5] = [Self::Register, Self::Lane, Self::Warp, Self::Block, Self::Offset];

    /// Returns the name of the input in the text of a layout.
    pub fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Lane => "lane",
            Self::Warp => "warp",
            Self::Block => "block",
            Self::Offset => "offset",
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A vector space over F2, whose bits are grouped into parts. A vector is one `u32`.
pub trait Space: Clone + Eq + Hash + fmt::Debug {
    /// Returns the dimension.
    fn bits(&self) -> u32;

    /// Splits a vector into coordinates, or into the nonempty parts of a hardware index.
    fn parts(&self, vector: u32) -> SmallVec<[u32; 6]>;
}

/// The space of hardware indices: the number of bits of each [`Input`]. A hardware index
/// concatenates the bits of all inputs, those of the register lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hardware {
    bits: [u8; Input::ALL.len()],
}

impl Hardware {
    /// Creates a space with the listed numbers of bits; other inputs have none.
    ///
    /// # Panics
    /// On more than 32 bits.
    pub fn new(bits: &[(Input, u32)]) -> Self {
        let mut space = Self::default();
        for (input, bits) in bits {
            space.bits[*input as usize] += *bits as u8;
        }
        assert!(space.bits() <= 32, "a place has at most 32 bits");
        space
    }

    /// Returns the number of bits of an input.
    pub fn bits_of(&self, input: Input) -> u32 {
        u32::from(self.bits[input as usize])
    }

    /// Returns the position of the lowest bit of an input in a hardware index.
    pub fn shift(&self, input: Input) -> u32 {
        self.bits[..input as usize].iter().map(|bits| u32::from(*bits)).sum()
    }

    /// Returns the positions of the bits of an input in a hardware index.
    pub fn range(&self, input: Input) -> std::ops::Range<usize> {
        let start = self.shift(input) as usize;
        start..start + self.bits_of(input) as usize
    }

    /// Returns the hardware index with these parts; other parts are 0.
    ///
    /// # Panics
    /// If a part is out of range.
    pub fn place(&self, parts: &[(Input, u32)]) -> u32 {
        parts.iter().fold(0, |place, (input, value)| {
            let bits = self.bits_of(*input);
            assert!(u64::from(*value) < 1 << bits, "{input} {value} is out of range: there are {bits} bits");
            // The shift may be 32 if the input has no bits.
            place | value.checked_shl(self.shift(*input)).unwrap_or_default()
        })
    }

    /// Returns one part of a hardware index.
    pub fn part(&self, place: u32, input: Input) -> u32 {
        let shifted = u64::from(place) >> self.shift(input);
        (shifted & ((1 << self.bits_of(input)) - 1)) as u32
    }
}

impl Space for Hardware {
    fn bits(&self) -> u32 {
        self.bits.iter().map(|bits| u32::from(*bits)).sum()
    }

    fn parts(&self, vector: u32) -> SmallVec<[u32; 6]> {
        let parts = Input::ALL.into_iter().filter(|input| self.bits_of(*input) > 0);
        parts.map(|input| self.part(vector, input)).collect()
    }
}

/// The elements of a tile whose sizes are powers of two. A vector is the row-major index of an
/// element, so a reshape changes no vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The log2 of the size of each axis.
    log_sizes: SmallVec<[u8; 6]>,
}

impl Tile {
    /// Returns the tile with this shape.
    ///
    /// # Panics
    /// If a size is not a power of two, or the tile has more than 2^32 elements.
    pub fn new(shape: &[u32]) -> Self {
        let log = |size: &u32| {
            assert!(size.is_power_of_two(), "the sizes of a tile are powers of two, found {size}");
            size.ilog2() as u8
        };
        Self::of_logs(shape.iter().map(log).collect())
    }

    pub(crate) fn of_logs(log_sizes: SmallVec<[u8; 6]>) -> Self {
        let tile = Self { log_sizes };
        assert!(tile.bits() <= 32, "a tile has at most 2^32 elements");
        tile
    }

    pub(crate) fn logs(&self) -> &[u8] {
        &self.log_sizes
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.log_sizes.len()
    }

    /// Returns the size of an axis.
    pub fn size(&self, axis: usize) -> u32 {
        1 << self.log_sizes[axis]
    }

    /// Returns the sizes of the axes.
    pub fn shape(&self) -> SmallVec<[u32; 6]> {
        (0..self.rank()).map(|axis| self.size(axis)).collect()
    }

    /// Returns the number of bits of an axis: the log2 of its size.
    pub fn bits_of(&self, axis: usize) -> u32 {
        u32::from(self.log_sizes[axis])
    }

    /// Returns the position of the lowest bit of an axis in an element's index.
    pub fn shift(&self, axis: usize) -> u32 {
        self.log_sizes[axis + 1..].iter().map(|log| u32::from(*log)).sum()
    }

    /// Returns the row-major index of the element at these coordinates.
    ///
    /// # Panics
    /// If a coordinate is out of range, or the number of coordinates differs from the rank.
    pub fn index(&self, coordinates: &[u32]) -> u32 {
        assert_eq!(coordinates.len(), self.rank(), "an element needs one coordinate for each axis");
        coordinates.iter().zip(&self.log_sizes).fold(0, |index, (coordinate, log)| {
            assert!(
                u64::from(*coordinate) < 1 << log,
                "coordinate {coordinate} is out of range: size {}",
                1_u64 << log
            );
            ((u64::from(index) << log) as u32) | coordinate
        })
    }

    /// Returns the index bits in which all elements of a slice agree. The slice has the shape
    /// `self` and takes every `steps[axis]`-th element of `whole`. Each bit is a mask; the lowest
    /// bit is first.
    pub(crate) fn fixed_bits(&self, whole: &Self, steps: &[u32]) -> SmallVec<[u32; 8]> {
        let mut fixed = SmallVec::new();
        for axis in (0..whole.rank()).rev() {
            let low = steps[axis].ilog2();
            let kept = low..low + self.bits_of(axis);
            let bits = (0..whole.bits_of(axis)).filter(|bit| !kept.contains(bit));
            fixed.extend(bits.map(|bit| 1 << (whole.shift(axis) + bit)));
        }
        fixed
    }

    /// Returns a coordinate of the element with this row-major index.
    pub fn coordinate(&self, index: u32, axis: usize) -> u32 {
        let shifted = u64::from(index) >> self.shift(axis);
        (shifted & ((1 << self.log_sizes[axis]) - 1)) as u32
    }

    /// Returns the coordinates of the element with this row-major index.
    pub fn coordinates(&self, index: u32) -> SmallVec<[u32; 6]> {
        (0..self.rank()).map(|axis| self.coordinate(index, axis)).collect()
    }
}

impl Space for Tile {
    fn bits(&self) -> u32 {
        self.log_sizes.iter().map(|log| u32::from(*log)).sum()
    }

    fn parts(&self, vector: u32) -> SmallVec<[u32; 6]> {
        self.coordinates(vector)
    }
}
