//! Layouts as an algebra: the elementary ones, products and quotients, and what the shape operations of the language do
//! to them.

use smallvec::SmallVec;

use crate::f2::Columns;
use crate::map::Layout;
use crate::space::{Hardware, Input, Space, Tile};

/// Building layouts from smaller ones. All layouts that are combined have the same rank.
impl Layout {
    /// The layout of the tile of one element: no bits anywhere, every size 1.
    pub fn unit(rank: usize) -> Self {
        Self::new(Hardware::default(), Tile::new(&SmallVec::<[u32; 6]>::from_elem(1, rank)), Columns::new())
    }

    /// The input counts along one axis: place `i` holds the element at `i`.
    pub fn identity(rank: usize, axis: usize, input: Input, size: u32) -> Self {
        let mut shape = SmallVec::<[u32; 6]>::from_elem(1, rank);
        shape[axis] = size;
        let bits = size.ilog2();
        Self::new(Hardware::new(&[(input, bits)]), Tile::new(&shape), (0..bits).map(|bit| 1 << bit).collect())
    }

    /// The input changes nothing: all of its `size` places hold the same element.
    pub fn replicated(rank: usize, input: Input, size: u32) -> Self {
        let bits = size.ilog2();
        Self::unit(rank).with_bases(input, &SmallVec::<[u32; 8]>::from_elem(0, bits as usize))
    }

    /// The layout with these bases: for each input, the coordinates of the image of each of its bits.
    pub fn from_bases(shape: &[u32], bases: &[(Input, &[&[u32]])]) -> Self {
        let tile = Tile::new(shape);
        let mut layout = Self::new(Hardware::default(), tile.clone(), Columns::new());
        for (input, images) in bases {
            let columns: Columns = images.iter().map(|coordinates| tile.index(coordinates)).collect();
            layout = layout.with_bases(*input, &columns);
        }
        layout
    }

    /// A buffer in memory without gaps: offset 0 is element 0, and `order` lists the axes from the fastest to the slowest.
    ///
    /// # Panics
    /// If `order` is not a permutation of the axes.
    pub fn strided(shape: &[u32], order: &[usize]) -> Self {
        assert_permutation(order, shape.len());
        order.iter().fold(Self::unit(shape.len()), |layout, axis| {
            layout.product(&Self::identity(shape.len(), *axis, Input::Offset, shape[*axis]))
        })
    }

    /// The direct sum `self × outer`: a tile of tiles. Each input counts through `self` with its low bits and through
    /// `outer` with its high bits, and on each axis a step of `outer` is as long as `self`.
    ///
    /// # Panics
    /// If the ranks differ.
    #[must_use]
    pub fn product(&self, outer: &Self) -> Self {
        let (low, high) = (self.output(), outer.output());
        assert_eq!(low.rank(), high.rank(), "a product of layouts of one rank");
        let tile = Tile::of_logs(low.logs().iter().zip(high.logs()).map(|(a, b)| a + b).collect());
        let mut bits = [(Input::Register, 0); Input::ALL.len()];
        let mut columns = Columns::new();
        for (slot, input) in bits.iter_mut().zip(Input::ALL) {
            *slot = (input, self.bits_of(input) + outer.bits_of(input));
            columns.extend(self.bases(input).iter().map(|column| embed(*column, low, &tile, None)));
            columns.extend(outer.bases(input).iter().map(|column| embed(*column, high, &tile, Some(low))));
        }
        Self::new(Hardware::new(&bits), tile, columns)
    }

    /// The layout `rest` with `self = inner × rest`, if there is one: whether `inner` is the pattern that repeats.
    pub fn divide_left(&self, inner: &Self) -> Option<Self> {
        let rest = self.remainder(inner, |bases, count| &bases[count..], Tile::bits_of)?;
        (inner.product(&rest) == *self).then_some(rest)
    }

    /// The layout `rest` with `self = rest × outer`, if there is one: whether `outer` is what the repetition does.
    pub fn divide_right(&self, outer: &Self) -> Option<Self> {
        let rest = self.remainder(outer, |bases, count| &bases[..bases.len() - count], |_, _| 0)?;
        (rest.product(outer) == *self).then_some(rest)
    }

    /// The only candidate for a quotient: of the bases of each input those that `keep` leaves when as many as the divisor
    /// has are taken away, of each coordinate the bits from `low` on, as many as the divisor leaves.
    fn remainder(
        &self,
        divisor: &Self,
        keep: impl Fn(&[u32], usize) -> &[u32],
        low: impl Fn(&Tile, usize) -> u32,
    ) -> Option<Self> {
        let (tile, part) = (self.output(), divisor.output());
        let fits = tile.rank() == part.rank()
            && tile.logs().iter().zip(part.logs()).all(|(own, other)| other <= own)
            && Input::ALL.into_iter().all(|input| divisor.bits_of(input) <= self.bits_of(input));
        if !fits {
            return None;
        }
        let rest = Tile::of_logs(tile.logs().iter().zip(part.logs()).map(|(a, b)| a - b).collect());
        let project = |column: &u32| {
            (0..tile.rank()).fold(0, |index, axis| {
                let coordinate = u64::from(tile.coordinate(*column, axis) >> low(part, axis));
                let bits = rest.bits_of(axis);
                ((u64::from(index) << bits) | (coordinate & ((1 << bits) - 1))) as u32
            })
        };
        let mut layout = Self::new(Hardware::default(), rest.clone(), Columns::new());
        for input in Input::ALL {
            let kept = keep(self.bases(input), divisor.bases(input).len());
            layout = layout.with_bases(input, &kept.iter().map(project).collect::<Columns>());
        }
        Some(layout)
    }

    /// The layout made to cover exactly `shape`. Where it is too large, the places beyond the end hold the elements again
    /// that they would hold modulo the size; registers that would only do that are dropped. Where it is too small, it is
    /// repeated in further registers, along the axes in `order`, the fastest first.
    ///
    /// # Panics
    /// If `order` is not a permutation of the axes of `shape`.
    #[must_use]
    pub fn cover(&self, shape: &[u32], order: &[usize]) -> Self {
        assert_permutation(order, shape.len());
        let (tile, target) = (self.output(), Tile::new(shape));
        let kept = Tile::of_logs(tile.logs().iter().zip(target.logs()).map(|(a, b)| *a.min(b)).collect());
        let mut layout = Self::new(Hardware::default(), kept.clone(), Columns::new());
        for input in Input::ALL {
            let mut bases: Columns =
                self.bases(input).iter().map(|column| clip(*column, tile, &kept)).collect();
            if input == Input::Register {
                bases.retain(|column| *column != 0);
            }
            layout = layout.with_bases(input, &bases);
        }
        for axis in order {
            let times = target.size(*axis) / kept.size(*axis);
            layout = layout.product(&Self::identity(shape.len(), *axis, Input::Register, times));
        }
        layout
    }
}

/// What the shape operations of the language do to a layout. None of them moves data: a register of the result is a
/// register of the operand, as each operation says.
impl Layout {
    /// The same places hold the elements of another shape with as many elements, in row-major order.
    ///
    /// # Panics
    /// If the number of elements differs.
    #[must_use]
    pub fn reshape(&self, shape: &[u32]) -> Self {
        let tile = Tile::new(shape);
        assert_eq!(tile.bits(), self.output().bits(), "a reshape keeps the number of elements");
        Self::new(*self.input(), tile, self.columns().into())
    }

    /// Axis `i` of the result is axis `permutation[i]` of this layout.
    ///
    /// # Panics
    /// If it is not a permutation of the axes.
    #[must_use]
    pub fn transpose(&self, permutation: &[usize]) -> Self {
        let tile = self.output();
        assert_permutation(permutation, tile.rank());
        let permuted = Tile::of_logs(permutation.iter().map(|axis| tile.logs()[*axis]).collect());
        let column = |column: &u32| {
            let coordinates: SmallVec<[u32; 6]> =
                permutation.iter().map(|axis| tile.coordinate(*column, *axis)).collect();
            permuted.index(&coordinates)
        };
        let columns = self.columns().iter().map(column).collect();
        Self::new(*self.input(), permuted, columns)
    }

    /// The layout without an axis: where the elements of a slice along it, or of a reduction's result, are. Places that
    /// differed in that coordinate alone become replicas.
    #[must_use]
    pub fn remove_axis(&self, axis: usize) -> Self {
        let tile = self.output();
        let mut logs: SmallVec<[u8; 6]> = tile.logs().into();
        logs.remove(axis);
        let (low, size) = (tile.shift(axis), tile.bits_of(axis));
        let column = |column: &u32| {
            let column = u64::from(*column);
            (((column >> (low + size)) << low) | (column & ((1 << low) - 1))) as u32
        };
        Self::new(*self.input(), Tile::of_logs(logs), self.columns().iter().map(column).collect())
    }

    /// The layout with an axis of size 1 more, before axis `axis`.
    #[must_use]
    pub fn insert_axis(&self, axis: usize) -> Self {
        let mut logs: SmallVec<[u8; 6]> = self.output().logs().into();
        logs.insert(axis, 0);
        Self::new(*self.input(), Tile::of_logs(logs), self.columns().into())
    }

    /// The layout of the operand of a broadcast along an axis whose result has this layout: the axis has size 1 and
    /// every register of the result is the same register of the operand.
    #[must_use]
    pub fn collapse(&self, axis: usize) -> Self {
        self.remove_axis(axis).insert_axis(axis)
    }

    /// The layout of the result of a broadcast of an axis of size 1: register `r` of the result is register
    /// `r % (number of registers)` of the operand.
    ///
    /// # Panics
    /// If the size of the axis is not 1.
    #[must_use]
    pub fn broadcast(&self, axis: usize, size: u32) -> Self {
        assert_eq!(self.output().size(axis), 1, "a broadcast extends an axis of size 1");
        self.concatenate(axis, size)
    }

    /// The layout in which lanes that hold copies share what a thread holds along an axis: from the low coordinates on, a bit
    /// of the lane takes the place of one of the register. None if there is nothing to share, or no lane with copies.
    pub fn shared_by_lanes(&self, axis: usize) -> Option<Self> {
        let tile = self.output();
        let mut registers: Columns = self.bases(Input::Register).into();
        let mut lanes: Columns = self.bases(Input::Lane).into();
        let mut along = tile.shift(axis)..tile.shift(axis) + tile.bits_of(axis);
        for lane in lanes.iter_mut().filter(|lane| **lane == 0) {
            let place = along.find_map(|bit| registers.iter().position(|column| *column == 1 << bit));
            let Some(place) = place else { break };
            *lane = registers.remove(place);
        }
        let is_shared = registers.len() < self.bases(Input::Register).len();
        is_shared.then(|| self.with_bases(Input::Register, &registers).with_bases(Input::Lane, &lanes))
    }

    /// The layout of `count` tiles of this layout side by side along an axis: register `r` of tile `i` is register
    /// `i * (number of registers) + r` of the result.
    #[must_use]
    pub fn concatenate(&self, axis: usize, count: u32) -> Self {
        self.product(&Self::identity(self.output().rank(), axis, Input::Register, count))
    }

    /// The layout of two tiles of this layout joined along a new last axis of size 2: register `r` of tile `i` is register
    /// `2 * r + i` of the result.
    #[must_use]
    pub fn join(&self) -> Self {
        let last = self.output().rank();
        Self::identity(last + 1, last, Input::Register, 2).product(&self.insert_axis(last))
    }

    /// The inverse of [`Layout::join`]: the layout of the halves along the last axis, if that axis has size 2 and is in
    /// the lowest bit of the register and nowhere else.
    pub fn split(&self) -> Option<Self> {
        let last = self.output().rank().checked_sub(1)?;
        let halves = self.divide_left(&Self::identity(last + 1, last, Input::Register, 2))?;
        (halves.output().size(last) == 1).then(|| halves.remove_axis(last))
    }
}

/// Slices of power-of-two parts: of each axis, elements that are `step` apart, so that the coordinates of the part are some
/// of the bits of those of the whole, and the other bits are fixed.
impl Layout {
    /// The layout of a slice: the places of the whole without the fixed bits. A place of another slice holds what is in the
    /// place of this one that differs in those bits alone; registers that would only do that are dropped.
    #[must_use]
    pub fn slice(&self, shape: &[u32], steps: &[u32]) -> Self {
        let (whole, part) = (self.output(), Tile::new(shape));
        let project = |column: &u32| {
            let coordinates: SmallVec<[u32; 6]> = (0..whole.rank())
                .map(|axis| (whole.coordinate(*column, axis) >> steps[axis].ilog2()) & (part.size(axis) - 1))
                .collect();
            part.index(&coordinates)
        };
        let columns = self.columns().iter().map(project).collect();
        Self::new(*self.input(), part, columns).without_duplicate_registers()
    }

    /// The layout of a whole of which a slice has this layout: the same places, and the fixed bits in registers behind
    /// them.
    #[must_use]
    pub fn unslice(&self, shape: &[u32], steps: &[u32]) -> Self {
        let (whole, part) = (Tile::new(shape), self.output());
        let embed = |column: &u32| {
            let coordinates: SmallVec<[u32; 6]> =
                (0..part.rank()).map(|axis| part.coordinate(*column, axis) << steps[axis].ilog2()).collect();
            whole.index(&coordinates)
        };
        let mut layout = Self::new(Hardware::default(), whole.clone(), Columns::new());
        for input in Input::ALL {
            let mut bases: Columns = self.bases(input).iter().map(embed).collect();
            if input == Input::Register {
                bases.extend(part.fixed_bits(&whole, steps));
            }
            layout = layout.with_bases(input, &bases);
        }
        layout
    }

    /// Behind the registers of a slice with this layout, in those of [`Layout::unslice`]: the number of the copy that holds
    /// the slice which begins at these coordinates.
    pub fn slice_number(&self, shape: &[u32], steps: &[u32], starts: &[u32]) -> u32 {
        let whole = Tile::new(shape);
        let start = whole.index(starts);
        let fixed = self.output().fixed_bits(&whole, steps);
        fixed.iter().enumerate().map(|(bit, image)| u32::from(start & image != 0) << bit).sum()
    }
}

/// The vector of `from` as one of the larger tile `to`, on each axis behind the bits of `behind`.
fn embed(vector: u32, from: &Tile, to: &Tile, behind: Option<&Tile>) -> u32 {
    (0..to.rank()).fold(0, |index, axis| {
        let coordinate =
            u64::from(from.coordinate(vector, axis)) << behind.map_or(0, |tile| tile.bits_of(axis));
        ((u64::from(index) << to.bits_of(axis)) | coordinate) as u32
    })
}

/// The vector of `from` with each coordinate modulo the size in the smaller tile `to`.
fn clip(vector: u32, from: &Tile, to: &Tile) -> u32 {
    (0..to.rank()).fold(0, |index, axis| {
        let coordinate = u64::from(from.coordinate(vector, axis)) & ((1 << to.bits_of(axis)) - 1);
        ((u64::from(index) << to.bits_of(axis)) | coordinate) as u32
    })
}

pub(crate) fn assert_permutation(order: &[usize], rank: usize) {
    let seen = order.iter().fold(0_u64, |seen, axis| seen | 1 << axis);
    assert!(order.len() == rank && seen == (1 << rank) - 1, "{order:?} is not a permutation of {rank} axes");
}
