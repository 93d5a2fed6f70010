//! Stated layouts of tensor memory, and the register layouts of its loads and stores.
//!
//! Tensor memory has 128 lanes of 32-bit cells. A tile consists of blocks, whose columns follow
//! each other. The blocks of one column of the tile come first. Row `r` of a block of 128 rows is
//! in lane `r`. Row `r` of a block of 64 rows is in lane `32 * (r / 16) + r % 16`. A warp accesses
//! the 32 lanes that begin at `32 * (warp % 4)`.
//!
//! Of the layout of a pair of blocks (`two_ctas`), each block of the cluster has a part of the rows.
//! If such a part consists of blocks of 64 rows, row `r` of a block is in the lanes `r` and
//! `64 + r`. They have the first and the second half of its columns.
//!
//! Scales of dots have blocks of 32 rows and of the four columns of a cell. Each quarter of the
//! lanes has a copy of them.

use super::{Bases, Misfit, Sizes, StatedBuffer, StatedLayout, check_extents};

/// The extents of a block, and the position of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TensorMemoryBlock {
    /// The number of rows: 64 or 128, or 32 for scales.
    pub rows: u32,
    /// The number of columns.
    pub columns: u32,
    /// The distance of adjacent elements of a row, in elements.
    pub stride: u32,
}

/// The shapes of the instructions that load and store tensor memory.
const VARIANTS: [&str; 5] = ["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"];

/// The warps that together access all lanes.
const WARPS: u32 = 4;
/// The rows of a block that has half of the lanes.
const HALF_ROWS: u32 = 64;
/// The rows of a block of scales, which are the lanes of a quarter.
const SCALE_ROWS: u32 = 32;
/// The scales of a cell.
const SCALES_IN_CELL: u32 = 4;

impl TensorMemoryBlock {
    /// Returns whether the block holds scales. Each quarter of the lanes has a copy of them.
    pub fn is_scales(&self) -> bool {
        self.rows == SCALE_ROWS
    }
}

impl StatedBuffer {
    /// Returns whether this is a layout of tensor memory.
    pub fn is_tensor_memory(&self) -> bool {
        matches!(self, Self::TensorMemory { .. } | Self::TensorMemoryScales { .. })
    }

    /// Returns the blocks of a tile of tensor memory; `None` for shared memory.
    pub fn tensor_memory(&self, shape: &[u32]) -> Option<TensorMemoryBlock> {
        match self {
            Self::TensorMemoryScales { .. } => {
                let columns = shape.last().map_or(1, |columns| (*columns).min(SCALES_IN_CELL));
                Some(TensorMemoryBlock { rows: SCALE_ROWS, columns, stride: 1 })
            }
            Self::TensorMemory { block: [rows, columns], column_stride: stride, .. } => {
                Some(TensorMemoryBlock { rows: *rows, columns: *columns, stride: *stride })
            }
            Self::Swizzled { .. } | Self::Nvmma { .. } | Self::Linear { .. } | Self::Padded { .. } => None,
        }
    }

    /// Returns whether this is the tensor memory of dots that pairs of blocks compute together.
    pub fn is_of_pair(&self) -> bool {
        matches!(self, Self::TensorMemory { two_ctas: true, .. })
    }

    /// Returns whether a block of 64 rows has half of its columns in the lanes from 64 on.
    fn splits_columns(&self) -> bool {
        matches!(self, Self::TensorMemory { block: [HALF_ROWS, _], two_ctas: true, .. })
    }

    /// Checks that the first two blocks of the cluster have different rows.
    fn check_pair(&self) -> Result<(), Misfit> {
        let Self::TensorMemory { cga, two_ctas: true, .. } = self else { return Ok(()) };
        if cga.first().is_some_and(|basis| basis[..] == [1, 0]) {
            return Ok(());
        }
        Err(format!(
            "{self} does not divide the rows between the two blocks of a pair: the first basis of its cga_layout \
             is [1, 0]"
        ))
    }

    /// Returns the blocks of a layout of tensor memory for a tile.
    ///
    /// # Errors
    /// If the layout is not for tensor memory, or does not fit the tile.
    pub fn tensor_memory_of(&self, shape: &[u32], element_bits: u32) -> Result<TensorMemoryBlock, Misfit> {
        let Some(block) = self.tensor_memory(shape) else {
            return Err(format!("{self} is no layout of tensor memory"));
        };
        check_extents(shape)?;
        if shape.len() != 2 {
            return Err(format!("{self} is for tiles with two axes, found {shape:?}"));
        }
        self.check_pair()?;
        let part = self.division(shape)?.part;
        let (rows, columns) = (part[0], part[1]);
        if block.is_scales() && matches!(self, Self::TensorMemoryScales { .. }) {
            return match (element_bits, rows) {
                (8, rows) if rows.is_multiple_of(SCALE_ROWS) => Ok(block),
                (8, _) => Err(format!("{self} is for a multiple of {SCALE_ROWS} rows, found {shape:?}")),
                _ => Err(format!("{self} is for scales of 8 bits, found elements of {element_bits} bits")),
            };
        }
        if !matches!(block.rows, 64 | 128) || !block.columns.is_power_of_two() {
            return Err(format!("a block of {self} has 64 or 128 rows, and a power of two of columns"));
        }
        if !rows.is_multiple_of(block.rows) || !columns.is_multiple_of(block.columns) {
            return Err(format!("{self} does not divide a tile {shape:?} into blocks"));
        }
        let (bits, stride) = (element_bits.max(8), block.stride);
        if bits > 32 || stride != 1 && stride * bits != 32 {
            return Err(format!(
                "the col_stride of {self} is 1 or {} for elements of {bits} bits",
                (32 / bits).max(1)
            ));
        }
        let columns = if self.splits_columns() { block.columns / 2 } else { block.columns };
        if columns * stride * bits < 32 {
            return Err(format!("a row of a block of {self} has fewer than 32 bits"));
        }
        Ok(block)
    }

    /// Returns the register layout with which an instruction moves a tile.
    ///
    /// # Errors
    /// If the instruction does not move such a tile.
    pub fn register_layout(
        &self,
        shape: &[u32],
        element_bits: u32,
        (warps, variant): (u32, &str),
    ) -> Result<StatedLayout, Misfit> {
        let block = self.tensor_memory_of(shape, element_bits)?;
        let division = self.division(shape)?;
        let part = &division.part[..];
        if !VARIANTS.contains(&variant) {
            return Err(format!("there is no instruction {variant:?}; expected one of {VARIANTS:?}"));
        }
        if warps < WARPS || !warps.is_power_of_two() {
            return Err(format!("{warps} warps do not access tensor memory: a multiple of four does"));
        }
        if block.is_scales() {
            let bases = scales_register_bases(part, block, (warps, variant))?;
            let shape = Sizes::from_slice(shape);
            return Ok(StatedLayout::Linear { bases, blocks: division.bases, shape });
        }
        let row = |at: u32| Sizes::from_slice(&[at, 0]);
        let column = |at: u32| Sizes::from_slice(&[0, at]);
        // The columns within a cell come first, then the cells.
        let in_cell = (32 / (element_bits.max(8) * block.stride)).max(1);
        let is_split = self.splits_columns();
        let in_lane = if is_split { block.columns / 2 } else { block.columns };
        let mut cells: Vec<u32> =
            powers(in_lane).filter(|at| *at >= in_cell).map(|at| at / in_cell).collect();
        let mut registers: Bases = powers(in_cell).map(column).collect();
        let cell = |at: u32| column(at * in_cell);
        let missing = || format!("{variant} does not move blocks of {self}: they have too few columns");
        let last = cells.last().copied().unwrap_or(0);
        let mut take = |at: u32| -> Result<Sizes, Misfit> {
            let position = cells.iter().position(|cell| *cell == at).ok_or_else(missing)?;
            Ok(cell(cells.remove(position)))
        };
        let half = block.rows == HALF_ROWS && !is_split;
        let high_rows: Vec<Sizes> = if half { vec![] } else { vec![row(16)] };
        let groups = [1, 2, 4].map(row);
        let mut lanes: Bases = Bases::new();
        match variant {
            "16x64b" => {
                lanes.extend([row(8), take(1)?]);
                lanes.extend(groups);
                registers.extend(high_rows);
            }
            "16x128b" => {
                lanes.extend([take(1)?, take(2)?]);
                lanes.extend(groups);
                registers.push(row(8));
                registers.extend(high_rows);
            }
            "16x256b" => {
                let first = take(1)?;
                lanes.extend([take(2)?, take(4)?]);
                lanes.extend(groups);
                registers.extend([first, row(8)]);
                registers.extend(high_rows);
            }
            _ if half => {
                lanes.extend([1, 2, 4, 8].map(row));
                lanes.push(take(last)?);
            }
            "16x32bx2" => return Err(format!("16x32bx2 moves blocks of 64 rows, not those of {self}")),
            _ => lanes.extend([1, 2, 4, 8, 16].map(row)),
        }
        registers.extend(cells.into_iter().map(cell));
        registers.extend(powers(part[0]).filter(|at| *at >= block.rows).map(row));
        registers.extend(powers(part[1]).filter(|at| *at >= block.columns).map(column));
        let mut of_warps: Bases = match (half, is_split) {
            (true, _) => vec![row(16), row(32)],
            (false, true) => vec![row(32), column(in_lane)],
            (false, false) => vec![row(32), row(64)],
        };
        for _ in 0..(warps / WARPS).ilog2() {
            // Further warps move the last columns.
            let is_divisible = registers.last().is_some_and(|basis| basis[1] >= in_cell || basis[0] >= 32);
            let basis = if is_divisible { registers.pop() } else { None };
            of_warps.push(basis.unwrap_or_else(|| row(0)));
        }
        let bases = [registers, lanes, of_warps];
        Ok(StatedLayout::Linear { bases, blocks: division.bases, shape: Sizes::from_slice(shape) })
    }
}

/// Returns the register, lane and warp bases of scales. Warps that access different quarters of the
/// lanes hold the same scales.
fn scales_register_bases(
    shape: &[u32],
    block: TensorMemoryBlock,
    (warps, variant): (u32, &str),
) -> Result<[Bases; 3], Misfit> {
    if variant != "32x32b" {
        return Err(format!("32x32b is the only instruction that moves scales, not {variant}"));
    }
    let row = |at: u32| Sizes::from_slice(&[at, 0]);
    let column = |at: u32| Sizes::from_slice(&[0, at]);
    let in_cell: Bases = powers(block.columns).map(column).collect();
    let rows = powers(shape[0]).filter(|at| *at >= SCALE_ROWS).map(row);
    let mut cells: Bases =
        rows.chain(powers(shape[1]).filter(|at| *at >= SCALES_IN_CELL).map(column)).collect();
    let lanes = powers(SCALE_ROWS).map(row).collect();
    let mut of_warps: Bases = vec![row(0); WARPS.ilog2() as usize];
    for _ in 0..(warps / WARPS).ilog2() {
        of_warps.push(cells.pop().unwrap_or_else(|| row(0)));
    }
    let registers = in_cell.into_iter().chain(cells).collect();
    Ok([registers, lanes, of_warps])
}

/// Returns the powers of two below a limit.
fn powers(limit: u32) -> impl Iterator<Item = u32> {
    (0..limit.ilog2()).map(|bit| 1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(text: &str) -> StatedBuffer {
        text.parse().unwrap()
    }

    #[test]
    fn a_lane_holds_a_row() {
        let memory = buffer("TensorMemoryLayout([128, 64], 1)");
        assert_eq!(memory.to_string(), "TensorMemoryLayout([128, 64], 1)");
        let layout = memory.register_layout(&[128, 64], 32, (4, "32x32b")).unwrap();
        let linear = layout.linear(&[128, 64]).unwrap();
        let at = |parts: &[(crate::Input, u32)]| linear.output().coordinates(linear.at(parts));
        let found = at(&[(crate::Input::Register, 5), (crate::Input::Lane, 3), (crate::Input::Warp, 1)]);
        assert_eq!(found[..], [35, 5]);
        let wide = memory.register_layout(&[128, 64], 32, (8, "32x32b")).unwrap();
        assert_eq!(wide.linear(&[128, 64]).unwrap().registers(), 32);
    }

    #[test]
    fn each_instruction_covers_the_tile_once() {
        for (text, shape, bits) in [
            ("TensorMemoryLayout([128, 64], 1)", [128, 128], 32),
            ("TensorMemoryLayout([64, 64], 1)", [128, 64], 32),
            ("TensorMemoryLayout([128, 32], 1)", [128, 32], 16),
            ("TensorMemoryLayout([64, 32], 2)", [64, 64], 16),
            ("TensorMemoryLayout([64, 64], 1)", [64, 64], 8),
        ] {
            for variant in &VARIANTS[..4] {
                let layout = buffer(text).register_layout(&shape, bits, (4, variant)).unwrap();
                let linear = layout.linear(&shape).unwrap();
                assert!(linear.is_injective() && linear.is_surjective(), "{text} {variant}: {layout}");
            }
        }
    }

    #[test]
    fn a_cell_holds_four_scales_of_a_row() {
        let memory = buffer("TensorMemoryScalesLayout()");
        assert_eq!(memory.to_string(), "TensorMemoryScalesLayout()");
        let layout = memory.register_layout(&[128, 8], 8, (4, "32x32b")).unwrap();
        let linear = layout.linear(&[128, 8]).unwrap();
        assert_eq!((linear.registers(), linear.is_surjective()), (32, true));
        // Register 4 has the next 32 rows, register 16 the next four columns; warps hold copies.
        let at = |parts: &[(crate::Input, u32)]| linear.output().coordinates(linear.at(parts));
        assert_eq!(at(&[(crate::Input::Register, 1), (crate::Input::Lane, 3)])[..], [3, 1]);
        assert_eq!(at(&[(crate::Input::Register, 4), (crate::Input::Lane, 3)])[..], [35, 0]);
        assert_eq!(at(&[(crate::Input::Register, 16), (crate::Input::Warp, 3)])[..], [0, 4]);
        let wide = memory.register_layout(&[128, 8], 8, (8, "32x32b")).unwrap();
        assert_eq!(wide.linear(&[128, 8]).unwrap().registers(), 16);
        for (shape, bits, variant, expected) in [
            ([16, 4], 8, "32x32b", "a multiple of 32 rows"),
            ([32, 4], 16, "32x32b", "scales of 8 bits"),
            ([32, 4], 8, "16x64b", "the only instruction"),
        ] {
            let error = memory.register_layout(&shape, bits, (4, variant)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn other_tiles_are_an_error() {
        let memory = buffer("TensorMemoryLayout([128, 64], 1)");
        assert!(memory.tensor_memory_of(&[64, 64], 32).unwrap_err().contains("does not divide"));
        assert!(memory.tensor_memory_of(&[128, 64], 64).unwrap_err().contains("col_stride"));
        assert!(memory.linear(&[128, 64], 32).unwrap_err().contains("tensor memory"));
        assert!(memory.register_layout(&[128, 64], 32, (2, "32x32b")).unwrap_err().contains("2 warps"));
        assert!(memory.register_layout(&[128, 64], 32, (4, "8x8")).unwrap_err().contains("8x8"));
        let narrow = buffer("TensorMemoryLayout([128, 2], 1)");
        assert!(narrow.register_layout(&[128, 2], 32, (4, "16x256b")).unwrap_err().contains("too few"));
        for text in
            ["TensorMemoryLayout([128, 64], 1, [], True)", "TensorMemoryLayout([128, 64], 1, [[0, 1]], True)"]
        {
            let error = buffer(text).tensor_memory_of(&[256, 64], 32).unwrap_err();
            assert!(error.contains("does not divide the rows"), "{error}");
        }
        let pair = buffer("TensorMemoryLayout([128, 64], 1, [[1, 0]], True)");
        let error = pair.tensor_memory_of(&[128, 64], 32).unwrap_err();
        assert!(error.contains("does not divide a tile"), "{error}");
    }

    #[test]
    fn a_block_of_a_pair_has_half_of_the_rows() {
        use crate::Input::{Block, Lane, Register, Warp};
        let at = |text: &str, shape: [u32; 2], parts: &[(crate::Input, u32)]| {
            let layout = buffer(text).register_layout(&shape, 32, (4, "32x32b")).unwrap();
            let linear = layout.linear(&shape).unwrap();
            assert!(linear.is_injective() && linear.is_surjective(), "{text}: {layout}");
            linear.output().coordinates(linear.at(parts)).to_vec()
        };
        let whole = "TensorMemoryLayout([128, 64], 1, [[1, 0]], True)";
        let place = [(Register, 5), (Lane, 3), (Warp, 2), (Block, 1)];
        assert_eq!(at(whole, [256, 64], &place), [128 + 64 + 3, 5]);
        // The third and the fourth warp have the second half of the columns.
        let half = "TensorMemoryLayout([64, 64], 1, [[1, 0]], True)";
        assert_eq!(at(half, [128, 64], &place), [64 + 3, 32 + 5]);
        let place = [(Register, 5), (Lane, 3), (Warp, 1), (Block, 0)];
        assert_eq!(at(half, [128, 64], &place), [32 + 3, 5]);
    }
}
