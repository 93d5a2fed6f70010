//! The algebra of layouts: elementary layouts, products, quotients and shape operations.

use smallvec::SmallVec;

use crate::f2::Columns;
use crate::map::Layout;
use crate::space::{Hardware, Input, Space, Tile};

/// Elementary layouts, products and quotients. The operands of a product or a quotient have the
/// same rank.
impl Layout {
    /// Returns the layout of a tile of one element: no bits, every size 1.
    pub fn unit(rank: usize) -> Self {
        Self::new(Hardware::default(), Tile::new(&SmallVec::<[u32; 6]>::from_elem(1, rank)), Columns::new())
    }

    /// Returns the layout in which index `i` of `input` has coordinate `i` along `axis`. `axis` has
    /// `size` elements, and every other axis has one.
    pub fn identity(rank: usize, axis: usize, input: Input, size: u32) -> Self {
        let mut shape = SmallVec::<[u32; 6]>::from_elem(1, rank);
        shape[axis] = size;
        let bits = size.ilog2();
        Self::new(Hardware::new(&[(input, bits)]), Tile::new(&shape), (0..bits).map(|bit| 1 << bit).collect())
    }

    /// Returns a layout of copies: all `size` indices hold the same element.
    pub fn replicated(rank: usize, input: Input, size: u32) -> Self {
        let bits = size.ilog2();
        Self::unit(rank).with_bases(input, &SmallVec::<[u32; 8]>::from_elem(0, bits as usize))
    }

    /// Returns the layout with these bases. For each input, `bases` has the coordinates of each
    /// bit, the lowest bit first.
    pub fn from_bases(shape: &[u32], bases: &[(Input, &[&[u32]])]) -> Self {
        let tile = Tile::new(shape);
        let mut layout = Self::new(Hardware::default(), tile.clone(), Columns::new());
        for (input, images) in bases {
            let columns: Columns = images.iter().map(|coordinates| tile.index(coordinates)).collect();
            layout = layout.with_bases(*input, &columns);
        }
        layout
    }

    /// Returns the layout of a buffer in memory without gaps. Offset 0 is element 0, and `order`
    /// lists the axes from the fastest to the slowest.
    ///
    /// # Panics
    /// If `order` is not a permutation of the axes.
    pub fn strided(shape: &[u32], order: &[usize]) -> Self {
        assert_permutation(order, shape.len());
        order.iter().fold(Self::unit(shape.len()), |layout, axis| {
            layout.product(&Self::identity(shape.len(), *axis, Input::Offset, shape[*axis]))
        })
    }

    /// Returns the direct sum `self × outer`: a tile of tiles. The low bits of each input are an
    /// index of `self`, the high bits an index of `outer`. Let `n` be the size of `self` along an
    /// axis: adjacent elements of `outer` are `n` apart in the result.
    ///
    /// # Panics
    /// If the ranks differ.
    #[must_use]
    pub fn product(&self, outer: &Self) -> Self {
        let (low, high) = (self.output(), outer.output());
        assert_eq!(low.rank(), high.rank(), "the layouts of a product have to have the same rank");
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

    /// Returns the layout `rest` with `self = inner × rest`, or `None` if it does not exist.
    /// `inner` is the pattern that `self` repeats.
    pub fn divide_left(&self, inner: &Self) -> Option<Self> {
        let rest = self.remainder(inner, |bases, count| &bases[count..], Tile::bits_of)?;
        (inner.product(&rest) == *self).then_some(rest)
    }

    /// Returns the layout `rest` with `self = rest × outer`, or `None` if it does not exist. `rest`
    /// is the pattern that `self` repeats, and `outer` is the layout of the repetitions.
    pub fn divide_right(&self, outer: &Self) -> Option<Self> {
        let rest = self.remainder(outer, |bases, count| &bases[..bases.len() - count], |_, _| 0)?;
        (rest.product(outer) == *self).then_some(rest)
    }

    /// Returns the only candidate for the quotient. The caller checks it by a multiplication.
    /// Returns `None` if the divisor has another rank, a longer axis or more bits of an input.
    /// `keep(bases, count)` drops the `count` bases of the divisor from one end of the bases of an
    /// input. Along each axis, the bits of the quotient are consecutive bits of the coordinate.
    /// `low(tile, axis)` is the position of the lowest of them, where `tile` is the tile of the
    /// divisor.
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

    /// Adapts the layout to cover exactly `shape`. Coordinates along an axis longer than in `shape`
    /// are reduced modulo the size in `shape`. Register bits that then select only copies are
    /// dropped. Along an axis shorter than in `shape`, further registers repeat the layout. `order`
    /// lists the axes of these registers, the fastest first.
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

/// The shape operations of the language. They move no data: a register of the result is a register
/// of an operand in the same thread. Also two changes of the threads that hold elements,
/// `shared_by_lanes` and `with_exchanged_warps`.
impl Layout {
    /// Returns the layout of the same elements in another shape, in row-major order.
    ///
    /// # Panics
    /// If the number of elements differs.
    #[must_use]
    pub fn reshape(&self, shape: &[u32]) -> Self {
        let tile = Tile::new(shape);
        assert_eq!(tile.bits(), self.output().bits(), "a reshape keeps the number of elements");
        Self::new(*self.input(), tile, self.columns().into())
    }

    /// Permutes the axes, so axis `i` of the result is axis `permutation[i]` of this layout.
    ///
    /// # Panics
    /// If `permutation` is not a permutation of the axes.
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

    /// Removes an axis, as a reduction along the axis does. Hardware indices that differ only along
    /// the axis become replicas.
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

    /// Inserts an axis of size 1 before axis `axis`.
    #[must_use]
    pub fn insert_axis(&self, axis: usize) -> Self {
        let mut logs: SmallVec<[u8; 6]> = self.output().logs().into();
        logs.insert(axis, 0);
        Self::new(*self.input(), Tile::of_logs(logs), self.columns().into())
    }

    /// Returns the layout of the operand of a broadcast along `axis`. `self` is the layout of the
    /// result. The operand has size 1 along the axis, and its registers are those of the result.
    #[must_use]
    pub fn collapse(&self, axis: usize) -> Self {
        self.remove_axis(axis).insert_axis(axis)
    }

    /// Returns the layout of the result of a broadcast of an axis of size 1. Register `r` of the
    /// result is register `r % (number of registers)` of the operand.
    ///
    /// # Panics
    /// If the size of the axis is not 1.
    #[must_use]
    pub fn broadcast(&self, axis: usize, size: u32) -> Self {
        assert_eq!(self.output().size(axis), 1, "a broadcast extends an axis of size 1");
        self.concatenate(axis, size)
    }

    /// Distributes a thread's elements along an axis over the lanes that hold copies of them. A
    /// lane bit that selects only copies gets the basis of a register bit, which is removed.
    /// Register bits of lower coordinate bits are removed first. Returns `None` if no lane bit
    /// selects only copies, or no register bit maps to one coordinate bit.
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

    /// Moves the lowest `low` bits of the warp index above the next `high` bits.
    #[must_use]
    pub fn with_exchanged_warps(&self, low: u32, high: u32) -> Self {
        let mut warps: Columns = self.bases(Input::Warp).into();
        warps[..(low + high) as usize].rotate_left(low as usize);
        self.with_bases(Input::Warp, &warps)
    }

    /// Returns the layout of `count` tiles of this layout side by side along an axis. Register `r`
    /// of tile `i` is register `i * (number of registers) + r` of the result.
    #[must_use]
    pub fn concatenate(&self, axis: usize, count: u32) -> Self {
        self.product(&Self::identity(self.output().rank(), axis, Input::Register, count))
    }

    /// Returns the layout of two tiles joined along a new last axis of size 2. Register `r` of tile
    /// `i` is register `2 * r + i` of the result.
    #[must_use]
    pub fn join(&self) -> Self {
        let last = self.output().rank();
        Self::identity(last + 1, last, Input::Register, 2).product(&self.insert_axis(last))
    }

    /// Inverts [`Layout::join`]: returns the layout of the two halves along the last axis. Returns
    /// `None` unless that axis has size 2 and only the lowest register bit selects it.
    pub fn split(&self) -> Option<Self> {
        let last = self.output().rank().checked_sub(1)?;
        let halves = self.divide_left(&Self::identity(last + 1, last, Input::Register, 2))?;
        (halves.output().size(last) == 1).then(|| halves.remove_axis(last))
    }
}

/// Slices with power-of-two extents and steps. A slice has elements that are `step` apart along
/// each axis. Its coordinate is a range of the bits of the whole coordinate. The other bits are
/// called *fixed*: all elements of the slice have the same ones. Example: columns 1, 3, 5, 7 of 8
/// have the step 2; bit 0 is fixed, with the value 1.
impl Layout {
    /// Returns the layout of a slice: this layout without the fixed bits. If a hardware index holds
    /// an element of another slice, it maps to the element of this slice that differs only in the
    /// fixed bits. Register bits that then select only copies are dropped.
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

    /// Returns the layout of a box of a buffer from its shape and first element. The second result
    /// is the index of the box in memory, in units of the box's size. Returns `None` unless the box
    /// is an aligned run of offsets that begins with its first element.
    pub fn contiguous_part(&self, shape: &[u32], first: &[u32]) -> Option<(Self, u32)> {
        let (whole, part) = (self.output(), Tile::new(shape));
        let bits = part.bits();
        let columns = self.columns().get(..bits as usize)?;
        let is_inside =
            |column: &u32| (0..whole.rank()).all(|axis| whole.coordinate(*column, axis) < part.size(axis));
        if !columns.iter().all(is_inside) {
            return None;
        }
        let start = self.inverse()?.apply(whole.index(first));
        let inside = columns.iter().map(|column| part.index(&whole.coordinates(*column))).collect();
        let input = Hardware::new(&[(Input::Offset, bits)]);
        (start.trailing_zeros() >= bits).then(|| (Self::new(input, part, inside), start >> bits))
    }

    /// Returns the layout of a whole tile whose slices have this layout. Each hardware index holds
    /// the same element of the slice as in this layout. Additional high register bits select the
    /// slice.
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

    /// Returns the index of a slice: the additional register bits of [`Layout::unslice`].
    pub fn slice_number(&self, shape: &[u32], steps: &[u32], starts: &[u32]) -> u32 {
        let whole = Tile::new(shape);
        let start = whole.index(starts);
        let fixed = self.output().fixed_bits(&whole, steps);
        fixed.iter().enumerate().map(|(bit, image)| u32::from(start & image != 0) << bit).sum()
    }
}

fn embed(vector: u32, from: &Tile, to: &Tile, inner: Option<&Tile>) -> u32 {
    (0..to.rank()).fold(0, |index, axis| {
        let coordinate =
            u64::from(from.coordinate(vector, axis)) << inner.map_or(0, |tile| tile.bits_of(axis));
        ((u64::from(index) << to.bits_of(axis)) | coordinate) as u32
    })
}

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
