//! Computes the part of a tile that each block of a cluster holds.

use super::{Bases, Misfit, Sizes, StatedBuffer, StatedLayout};
use crate::f2::Columns;
use crate::map::Layout;
use crate::space::{Hardware, Input, Tile};

/// The parts of a tile that the blocks of a cluster hold. All parts have the same extents.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Division {
    /// The extents of a part.
    pub part: Sizes,
    /// The coordinates that each bit of a block's rank adds to the part's first element. If they
    /// are all 0, blocks that differ in this bit hold the same part.
    pub bases: Bases,
}

impl Division {
    /// Returns the division in which each block holds the whole tile.
    pub fn whole(shape: &[u32], blocks: u32) -> Self {
        let bits = blocks.ilog2() as usize;
        Self { part: Sizes::from_slice(shape), bases: vec![Sizes::from_elem(0, shape.len()); bits] }
    }

    /// Returns a mask of the rank bits that do not change the part.
    pub fn copies(&self) -> u32 {
        let zero = |basis: &Sizes| basis.iter().all(|at| *at == 0);
        (0..).zip(&self.bases).filter(|(_, basis)| zero(basis)).fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// Returns whether each block holds the whole tile.
    pub fn is_whole(&self) -> bool {
        self.copies() + 1 == 1 << self.bases.len()
    }

    /// Returns the division of the tile without an axis.
    #[must_use]
    pub fn without_axis(&self, axis: usize) -> Self {
        let mut found = self.clone();
        found.part.remove(axis);
        for basis in &mut found.bases {
            basis.remove(axis);
        }
        found
    }

    /// Returns whether the blocks hold different parts along an axis.
    pub fn splits(&self, axis: usize) -> bool {
        self.bases.iter().any(|basis| basis[axis] != 0)
    }

    /// Divides a tile into a grid of parts. The bases are coordinates in this grid.
    fn into_grid(shape: &[u32], cga: &Bases) -> Result<Self, Misfit> {
        let mut found = Self { part: Sizes::from_slice(shape), bases: cga.clone() };
        if let Some(basis) = cga.iter().find(|basis| basis.len() != shape.len()) {
            return Err(format!("cga_layout has the basis {basis:?}, but the tile has {} axes", shape.len()));
        }
        for axis in 0..shape.len() {
            let parts = cga.iter().fold(0, |parts, basis| parts | basis[axis]).saturating_add(1);
            if !parts.is_power_of_two() {
                return Err(format!("cga_layout lacks parts along axis {axis}: its bases are {cga:?}"));
            }
            // A tile may be smaller than the grid; several blocks then hold the same part.
            let parts = parts.min(shape[axis]);
            found.part[axis] = shape[axis] / parts;
            for basis in &mut found.bases {
                basis[axis] = (basis[axis] & (parts - 1)) * found.part[axis];
            }
        }
        Ok(found)
    }

    /// Divides a tile into parts. The bases are coordinates in the tile.
    fn by_bases(shape: &[u32], bases: &Bases) -> Result<Self, Misfit> {
        let mut found = Self { part: Sizes::from_slice(shape), bases: bases.clone() };
        if let Some(basis) = bases.iter().find(|basis| basis.len() != shape.len()) {
            return Err(format!("a block has the basis {basis:?}, but the tile has {} axes", shape.len()));
        }
        for axis in 0..shape.len() {
            // A tile may be smaller than that of the bases; several blocks then hold the same part.
            if shape[axis].is_power_of_two() {
                found.bases.iter_mut().for_each(|basis| basis[axis] &= shape[axis] - 1);
            }
            let bits = found.bases.iter().fold(0, |bits, basis| bits | basis[axis]);
            if bits == 0 {
                continue;
            }
            let part = 1 << bits.trailing_zeros();
            if bits.checked_add(part) != Some(shape[axis]) {
                return Err(format!(
                    "the blocks of the cluster hold no contiguous parts along axis {axis}: their bases are {bases:?}"
                ));
            }
            found.part[axis] = part;
        }
        Ok(found)
    }

    /// Returns the layout of the whole tile, given the layout of a part.
    pub(super) fn enclose(&self, part: &Layout, shape: &[u32]) -> Layout {
        let tile = Tile::new(shape);
        let outer = |column: &u32| tile.index(&part.output().coordinates(*column));
        let mut columns = Columns::new();
        let mut bits = [(Input::Register, 0); Input::ALL.len()];
        for (slot, input) in bits.iter_mut().zip(Input::ALL) {
            if input == Input::Block {
                columns.extend(self.bases.iter().map(|basis| tile.index(basis)));
                *slot = (input, self.bases.len() as u32);
            } else {
                columns.extend(part.bases(input).iter().map(outer));
                *slot = (input, part.bits_of(input));
            }
        }
        Layout::new(Hardware::new(&bits), tile, columns)
    }
}

impl StatedLayout {
    /// Returns the `cga_layout` of the layout, or `None` if its class has none.
    pub fn cga(&self) -> Option<&Bases> {
        match self {
            Self::Blocked { cga, .. } | Self::Mma { cga, .. } => Some(cga),
            Self::Slice { .. } | Self::DotOperand { .. } | Self::InFlight { .. } | Self::Linear { .. } => {
                None
            }
        }
    }

    /// Returns the number of blocks of the cluster that hold the tile.
    pub fn blocks(&self) -> u32 {
        match self {
            Self::Blocked { cga, .. } | Self::Mma { cga, .. } => 1 << cga.len(),
            Self::Slice { parent, .. }
            | Self::DotOperand { parent, .. }
            | Self::InFlight { accumulator: parent } => parent.blocks(),
            Self::Linear { blocks, .. } => 1 << blocks.len(),
        }
    }

    /// Returns the parts of a tile that the blocks hold.
    ///
    /// # Errors
    /// If the parts are not contiguous boxes of the tile.
    pub fn division(&self, shape: &[u32]) -> Result<Division, Misfit> {
        self.check_rank(shape)?;
        match self {
            Self::Blocked { cga, .. } | Self::Mma { cga, .. } => Division::into_grid(shape, cga),
            Self::Slice { dim, parent } => {
                let axis = (*dim as usize).min(shape.len());
                let mut whole = Sizes::from_slice(shape);
                whole.insert(axis, 1);
                Ok(parent.division(&whole)?.without_axis(axis))
            }
            Self::DotOperand { index, parent, .. } => {
                // Each block has all elements along K.
                let k_axis = shape.len().checked_sub(1 + *index as usize);
                let k_axis = k_axis.ok_or_else(|| format!("a tile {shape:?} is no operand of a dot"))?;
                let mut outer = Sizes::from_slice(shape);
                outer[k_axis] = 1;
                let mut found = parent.division(&outer)?;
                found.part[k_axis] = shape[k_axis];
                Ok(found)
            }
            Self::InFlight { accumulator } => accumulator.division(shape),
            Self::Linear { blocks, .. } => Division::by_bases(shape, blocks),
        }
    }

    /// Returns the layout of the part that a block holds.
    #[must_use]
    pub fn of_block(&self) -> Self {
        let mut found = self.clone();
        match &mut found {
            Self::Blocked { cga, .. } | Self::Mma { cga, .. } => cga.clear(),
            Self::Slice { parent, .. }
            | Self::DotOperand { parent, .. }
            | Self::InFlight { accumulator: parent } => *parent = parent.of_block().into(),
            Self::Linear { blocks, shape, .. } => {
                if let Ok(division) = Division::by_bases(shape, blocks) {
                    *shape = division.part;
                }
                blocks.clear();
            }
        }
        found
    }
}

impl StatedBuffer {
    /// Returns the layout of `mbarrier`s, one for each block or each pair of blocks.
    pub fn of_cluster_mbarriers(blocks: u32, pairs: bool) -> Self {
        let bits = blocks.ilog2();
        let skipped = u32::from(pairs);
        let basis = |bit: u32| bit.checked_sub(skipped).map_or(0, |bit| 1 << bit);
        Self::Swizzled {
            vec: 1,
            per_phase: 1,
            max_phase: 1,
            order: Sizes::from_slice(&[0]),
            cga: (0..bits).map(|bit| Sizes::from_slice(&[basis(bit)])).collect(),
        }
    }

    /// Returns the `cga_layout` of the layout, or `None` if its class has none.
    pub fn cga(&self) -> Option<&Bases> {
        match self {
            Self::Swizzled { cga, .. }
            | Self::Nvmma { cga, .. }
            | Self::TensorMemory { cga, .. }
            | Self::TensorMemoryScales { cga } => Some(cga),
            Self::Linear { .. } | Self::Padded { .. } => None,
        }
    }

    /// Returns the number of blocks of the cluster that hold the buffer.
    pub fn blocks(&self) -> u32 {
        match self {
            Self::Swizzled { cga, .. }
            | Self::Nvmma { cga, .. }
            | Self::TensorMemory { cga, .. }
            | Self::TensorMemoryScales { cga } => 1 << cga.len(),
            Self::Linear { block_bases, .. } => 1 << block_bases.len(),
            Self::Padded { .. } => 1,
        }
    }

    /// Returns the parts of a buffer that the blocks hold.
    ///
    /// # Errors
    /// If the parts are not contiguous boxes of the buffer.
    pub fn division(&self, shape: &[u32]) -> Result<Division, Misfit> {
        match self {
            Self::Swizzled { cga, .. }
            | Self::Nvmma { cga, .. }
            | Self::TensorMemory { cga, .. }
            | Self::TensorMemoryScales { cga } => Division::into_grid(shape, cga),
            Self::Linear { block_bases, .. } => Division::by_bases(shape, block_bases),
            Self::Padded { .. } => Ok(Division::whole(shape, 1)),
        }
    }

    /// Returns the layout of the part that a block holds.
    #[must_use]
    pub fn of_block(&self) -> Self {
        let mut found = self.clone();
        match &mut found {
            Self::Swizzled { cga, .. }
            | Self::Nvmma { cga, .. }
            | Self::TensorMemory { cga, .. }
            | Self::TensorMemoryScales { cga } => {
                cga.clear();
            }
            Self::Linear { block_bases, .. } => block_bases.clear(),
            Self::Padded { .. } => {}
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> StatedLayout {
        text.parse().unwrap()
    }

    #[test]
    fn blocks_hold_parts() {
        let split = layout("BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], [[1, 0], [0, 0]])");
        let division = split.division(&[64, 128]).unwrap();
        assert_eq!((&division.part[..], &division.bases[0][..]), (&[32, 128][..], &[32, 0][..]));
        assert_eq!((division.copies(), split.blocks()), (2, 4));
        let linear = split.linear(&[64, 128]).unwrap();
        assert_eq!(linear.bases(Input::Block), &[32 * 128, 0]);
        assert!(linear.is_surjective());
        let slice = layout(&format!("SliceLayout(0, {split})")).division(&[128]).unwrap();
        assert!(slice.is_whole());
        let round = StatedLayout::of_linear(&linear);
        assert_eq!(round.division(&[64, 128]).unwrap(), division);
        assert_eq!(round.linear(&[64, 128]).unwrap(), linear);
        assert_eq!(layout(&round.to_string()), round);
    }

    #[test]
    fn an_operand_has_all_elements_along_k() {
        let text =
            "DotOperandLayout(1, NVMMADistributedLayout([2, 0], [4, 1], [16, 8], [[1, 0], [0, 1]]), 2)";
        let division = layout(text).division(&[32, 64]).unwrap();
        assert_eq!((&division.part[..], division.copies()), (&[32, 32][..], 1));
        assert_eq!(layout(text).to_string(), text);
    }

    #[test]
    fn a_tile_may_be_smaller_than_the_grid() {
        let split = layout("BlockedLayout([1], [32], [4], [0], [[1], [2]])");
        let division = split.division(&[2]).unwrap();
        assert_eq!((&division.part[..], division.copies()), (&[1][..], 2));
        let linear = "DistributedLinearLayout([[0, 1]], [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]], [], [[32, 0]], \
                      [64, 2])";
        let columns = layout(&format!("SliceLayout(0, {linear})"));
        assert!(columns.division(&[2]).unwrap().is_whole());
        assert_eq!(columns.linear(&[2]).unwrap().bases(Input::Block), &[0]);
        let rows = layout(&format!("SliceLayout(1, {linear})")).division(&[64]).unwrap();
        assert_eq!((&rows.part[..], rows.copies()), (&[32][..], 0));
    }

    #[test]
    fn parts_are_contiguous() {
        let text = "DistributedLinearLayout([[2]], [[4], [8], [16], [32], [64]], [], [[1]], [128])";
        assert!(layout(text).linear(&[128]).unwrap_err().contains("no contiguous parts"));
        let gap = layout("BlockedLayout([1], [32], [4], [0], [[2]])");
        assert!(gap.linear(&[64]).unwrap_err().contains("lacks parts along axis 0"));
    }

    #[test]
    fn buffers_are_divided() {
        let buffer: StatedBuffer =
            "NVMMASharedLayout(128, 16, 2, False, False, [[0, 0], [1, 0]])".parse().unwrap();
        let division = buffer.division(&[64, 64]).unwrap();
        assert_eq!((&division.part[..], division.copies()), (&[32, 64][..], 1));
        let linear = buffer.linear(&[64, 64], 16).unwrap();
        assert_eq!(linear.bases(Input::Block), &[0, 32 * 64]);
        let barriers = StatedBuffer::of_cluster_mbarriers(4, true);
        assert_eq!(barriers.to_string(), "SwizzledSharedLayout(1, 1, 1, [0], [[0], [1]])");
        assert_eq!(barriers.division(&[2]).unwrap().copies(), 1);
    }
}
