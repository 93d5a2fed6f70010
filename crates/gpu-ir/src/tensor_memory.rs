//! Tensor memory: its type, the position of each element, and the instructions that move a tile.
//!
//! Tensor memory of a multiprocessor has 128 lanes and 512 columns of 32-bit cells. The layout crate
//! (`stated/tensor_memory.rs`) says which lanes a block has, and which lanes a warp accesses.

use std::fmt;

use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Dtype, Element, Shape};
use tilewright_layout::{Bases, Input, Layout, StatedBuffer, TensorMemoryBlock};

use crate::layout_rules::element_bits;

/// The columns of the tensor memory of a multiprocessor.
pub const TENSOR_MEMORY_COLUMNS: u32 = 512;
/// The fewest columns that an allocation takes.
pub const MIN_TENSOR_MEMORY_COLUMNS: u32 = 32;
/// The bits of a cell.
const CELL_BITS: u32 = 32;
/// The bits of the position within a lane: those of the cell, and those of the column.
const IN_LANE: u32 = CELL_BITS.ilog2() + TENSOR_MEMORY_COLUMNS.ilog2();
/// The most columns of an accumulator of one instruction.
pub const MAX_DOT_COLUMNS: u32 = 256;
/// The most registers of a thread that one instruction moves.
const MAX_REGISTERS: u32 = 128;

/// Tensor memory for tiles: `tensor_memory<2, fp32[128, 64], m128n64, stride 1, cta_group 1>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorMemory {
    /// The number of tiles.
    pub slots: u32,
    /// The type of an element.
    pub element: Element,
    /// The extents of a tile.
    pub shape: Shape,
    /// The extents of a block, and the distance of its columns.
    pub block: TensorMemoryBlock,
    /// The number of blocks of a cluster that compute a tile together.
    pub cta_group: u32,
}

impl TensorMemory {
    /// Returns the tensor memory of one accumulator of dots, whose elements have a cell each.
    /// Returns `None` if the tile is smaller than the accumulator of an instruction.
    pub fn of_accumulator(tile: &ir::Type) -> Option<Self> {
        let &[rows, columns] = &tile.shape[..] else { return None };
        let block = TensorMemoryBlock {
            rows: rows.min(128),
            columns: columns.min(MAX_DOT_COLUMNS),
            stride: CELL_BITS.checked_div(element_bits(tile))?,
        };
        let memory = Self { slots: 1, element: tile.element, shape: tile.shape.clone(), block, cta_group: 1 };
        let is_accumulator = rows >= 64 && columns >= 16 && memory.check().is_ok();
        is_accumulator.then_some(memory)
    }

    /// Returns the tensor memory of one tile of scales of dots. Returns `None` if the tile has too
    /// few rows, or elements of another width.
    pub fn of_scales(tile: &ir::Type) -> Option<Self> {
        let block = layout_of_scales().tensor_memory_of(&tile.shape, element_bits(tile)).ok()?;
        let memory = Self { slots: 1, element: tile.element, shape: tile.shape.clone(), block, cta_group: 1 };
        memory.check().is_ok().then_some(memory)
    }

    /// Returns the layout in which `warps` warps load and store a tile: a lane has a row, or half of
    /// a row. Returns `None` if there is none.
    pub fn register_layout(&self, warps: u32) -> Option<Layout> {
        let TensorMemoryBlock { rows, columns, stride } = self.block;
        let stated = if self.holds_scales() {
            layout_of_scales()
        } else {
            StatedBuffer::TensorMemory {
                block: [rows, columns],
                column_stride: stride,
                two_ctas: false,
                cga: Bases::new(),
            }
        };
        let bits = element_bits(&self.tile());
        stated.register_layout(&self.shape, bits, (warps, "32x32b")).ok()?.linear(&self.shape).ok()
    }

    /// Returns the type of the tiles.
    pub fn tile(&self) -> ir::Type {
        ir::Type::new(self.element, self.shape.clone())
    }

    /// Returns whether dots of pairs of blocks use this memory.
    pub fn is_of_pair(&self) -> bool {
        self.cta_group == 2
    }

    /// Returns whether a block of 64 rows has half of its columns in the lanes from 64 on: that of a
    /// pair of blocks of the cluster.
    fn splits_columns(&self) -> bool {
        self.is_of_pair() && self.block.rows == 64
    }

    /// Returns the columns of one block.
    pub fn block_columns(&self) -> u32 {
        let along = if self.splits_columns() { self.block.columns / 2 } else { self.block.columns };
        (along * self.block.stride * element_bits(&self.tile())).div_ceil(CELL_BITS)
    }

    /// Returns the columns of one tile.
    pub fn slot_columns(&self) -> u32 {
        let blocks = self.shape.elements() as u32 / (self.block.rows * self.block.columns);
        blocks * self.block_columns()
    }

    /// Returns the columns of all tiles, saturated.
    pub fn columns(&self) -> u32 {
        self.slots.saturating_mul(self.slot_columns())
    }

    /// Returns the address of the block that contains an element, relative to that of the tile.
    pub fn block_address(&self, row: u32, column: u32) -> u32 {
        let rows = self.shape[0] / self.block.rows;
        (row / self.block.rows + column / self.block.columns * rows) * self.block_columns()
    }

    /// Returns the coordinates of the first element of a column of the tile.
    pub fn element_at(&self, column: u32) -> [u32; 2] {
        let (rows, own) = (self.shape[0] / self.block.rows, self.block_columns());
        let (block, within) = (column / own, column % own);
        let along = within * CELL_BITS / (element_bits(&self.tile()) * self.block.stride);
        [block % rows * self.block.rows, block / rows * self.block.columns + along]
    }

    /// Checks that a tile consists of blocks, and that a block is one of tensor memory.
    ///
    /// # Errors
    /// The rule that the type violates.
    pub fn check(&self) -> Result<(), String> {
        let TensorMemoryBlock { rows, columns, stride } = self.block;
        let bits = element_bits(&self.tile());
        let is_block = matches!(rows, 64 | 128) && columns.is_power_of_two();
        let is_tile = self.shape.len() == 2
            && self.shape.iter().all(|extent| extent.is_power_of_two())
            && self.shape[0].is_multiple_of(rows)
            && self.shape[1].is_multiple_of(columns);
        if is_tile && self.holds_scales() {
            return Ok(());
        }
        if !is_block || !is_tile {
            return Err(format!("{self}: a tile is divided into blocks of 64 or 128 rows"));
        }
        let is_cell = matches!(bits, 8 | 16 | 32) && (stride == 1 || stride * bits == CELL_BITS);
        let along = if self.splits_columns() { columns / 2 } else { columns };
        if !is_cell || along * stride * bits < CELL_BITS {
            return Err(format!("{self}: elements are packed into cells, or each has a cell of its own"));
        }
        if !matches!(self.cta_group, 1 | 2) {
            return Err(format!("{self}: one block or two blocks compute a tile together"));
        }
        Ok(())
    }

    /// Returns whether the tiles are scales of dots. Each quarter of the lanes has a copy of them.
    pub fn holds_scales(&self) -> bool {
        let TensorMemoryBlock { columns, stride, .. } = self.block;
        let is_cell = matches!(columns, 1 | 2 | 4) && columns == self.shape[1].min(4);
        self.block.is_scales() && is_cell && stride == 1 && element_bits(&self.tile()) == 8
    }

    /// Returns the position of an element: its lane, then its bit in the row of the lane.
    ///
    /// The lane of a scale is that in the first quarter.
    fn position(&self, row: u32, column: u32) -> u32 {
        let TensorMemoryBlock { rows, columns, stride } = self.block;
        let (within, along) = (row % rows, column % columns);
        let (lane, along) = if self.splits_columns() {
            let half = columns / 2;
            (within + along / half * rows, along % half)
        } else if rows == 64 {
            (within / 16 * 32 + within % 16, along)
        } else {
            (within, along)
        };
        let bit = self.block_address(row, column) * CELL_BITS + along * stride * element_bits(&self.tile());
        lane << IN_LANE | bit
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(4, ", ");
        let cta_group = parts.next()?.strip_prefix("cta_group ")?.parse().ok()?;
        let stride = parts.next()?.strip_prefix("stride ")?.parse().ok()?;
        let (rows, columns) = parts.next()?.strip_prefix('m')?.split_once('n')?;
        let block = TensorMemoryBlock { rows: rows.parse().ok()?, columns: columns.parse().ok()?, stride };
        let (slots, tile) = parts.next()?.split_once(", ")?;
        let tile = ir::Type::parse(tile)?;
        let slots = slots.parse().ok().filter(|slots| (1..=TENSOR_MEMORY_COLUMNS).contains(slots))?;
        // The checks divide by these numbers.
        let is_positive = block.rows > 0 && block.columns > 0 && !tile.is_scalar();
        let is_small = [block.rows, block.columns, stride].iter().all(|number| *number <= 1 << 12);
        (is_positive && is_small && tile.shape.elements() < 1 << 24).then_some(Self {
            slots,
            element: tile.element,
            shape: tile.shape,
            block,
            cta_group,
        })
    }
}

impl fmt::Display for TensorMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TensorMemoryBlock { rows, columns, stride } = self.block;
        let (slots, tile, group) = (self.slots, self.tile(), self.cta_group);
        write!(f, "tensor_memory<{slots}, {tile}, m{rows}n{columns}, stride {stride}, cta_group {group}>")
    }
}

/// Returns the layout of the tensor memory of scales.
fn layout_of_scales() -> StatedBuffer {
    StatedBuffer::TensorMemoryScales { cga: Bases::new() }
}

/// The part of tensor memory that a warp moves for one repetition of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorMemoryTransfer {
    /// 32 lanes, one column.
    L32x32b,
    /// 16 lanes, one column at each of two addresses, whose distance is the number.
    L16x32bx2(u32),
    /// 16 lanes, two columns.
    L16x64b,
    /// 16 lanes, four columns.
    L16x128b,
    /// 16 lanes, eight columns.
    L16x256b,
}

/// The instructions that move a tile between tensor memory and registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMemoryMove {
    /// The shape of the instructions.
    pub transfer: TensorMemoryTransfer,
    /// The number of elements in a cell.
    pub in_cell: u32,
    /// The instructions.
    pub parts: Vec<TensorMemoryPart>,
    /// The address that each bit of the warp index adds.
    pub warps: SmallVec<[u32; 5]>,
    /// True if several warps move the same cells.
    pub is_repeated: bool,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMemoryPart {
    /// The address, relative to that of the tile.
    pub address: u32,
    /// The registers of the tile, in the order of the instruction, those of a cell next to each other.
    pub registers: Vec<u32>,
}

/// Returns the address of a position at the start of a cell.
fn address(position: u32) -> u32 {
    let column = (position & ((1 << IN_LANE) - 1)) / CELL_BITS;
    position >> IN_LANE << 16 | column
}

const fn lane(index: u32) -> u32 {
    index << IN_LANE
}

const fn cell(index: u32) -> u32 {
    index * CELL_BITS
}

impl TensorMemoryMove {
    /// Returns the instructions that move a tile with this layout; `None` if there are none.
    pub fn new(memory: &TensorMemory, layout: &Layout) -> Option<Self> {
        memory.check().ok()?;
        let tile = layout.output();
        let position = |column: u32| {
            let at = tile.coordinates(column);
            memory.position(at[0], at[1])
        };
        let images =
            |input: Input| -> Vec<u32> { layout.bases(input).iter().map(|at| position(*at)).collect() };
        let [registers, lanes, warps] = [Input::Register, Input::Lane, Input::Warp].map(images);
        // Each bit has a position of its own, so positions add up.
        let all = || registers.iter().chain(&lanes).chain(&warps).copied().filter(|image| *image != 0);
        let is_bit = all().all(u32::is_power_of_two);
        let union = all().fold(0, |union, image| union | image);
        if !is_bit || union.count_ones() as usize != all().count() || registers.contains(&0) {
            return None;
        }
        let groups = [lane(1), lane(2), lane(4)];
        let [l0, l1, l2, l3, l4] = lanes[..] else { return None };
        let (transfer, fixed, unit): (_, &[u32], _) = if [l2, l3, l4] == groups {
            match [l0, l1] {
                [first, second] if [first, second] == [lane(8), cell(1)] => {
                    (TensorMemoryTransfer::L16x64b, &[], 2)
                }
                [first, second] if [first, second] == [cell(1), cell(2)] => {
                    (TensorMemoryTransfer::L16x128b, &[lane(8)], 4)
                }
                [first, second] if [first, second] == [cell(2), cell(4)] => {
                    (TensorMemoryTransfer::L16x256b, &[cell(1), lane(8)], 8)
                }
                _ => return None,
            }
        } else if [l0, l1, l2, l3] == [lane(1), lane(2), lane(4), lane(8)] {
            match l4 {
                last if last == lane(16) => (TensorMemoryTransfer::L32x32b, &[], 1),
                last if last >= cell(1) && last < lane(1) => {
                    (TensorMemoryTransfer::L16x32bx2(last / CELL_BITS), &[], 1)
                }
                _ => return None,
            }
        } else {
            return None;
        };
        let quarter_bits = [lane(32), lane(64)];
        let has_copies = memory.holds_scales();
        let quarters = warps.len() >= 2 && warps[..2] == if has_copies { [0; 2] } else { quarter_bits };
        let columns = warps.iter().skip(2).all(|image| *image < lane(1) && image.is_multiple_of(CELL_BITS));
        if !quarters || !columns {
            return None;
        }
        let bit_of = |image: u32| registers.iter().position(|other| *other == image).map(|bit| bit as u32);
        let bits = element_bits(&memory.tile()) * memory.block.stride;
        let in_cell = if has_copies { memory.block.columns } else { CELL_BITS / bits };
        let mut inner: Vec<u32> = Vec::new();
        for step in 0..in_cell.ilog2() {
            inner.push(bit_of(bits << step)?);
        }
        for image in fixed {
            inner.push(bit_of(*image)?);
        }
        let mut count = 1 << fixed.len();
        let mut next = cell(unit);
        while let Some(bit) = bit_of(next).filter(|_| count < MAX_REGISTERS) {
            inner.push(bit);
            count *= 2;
            next *= 2;
        }
        let outer: Vec<u32> = (0..registers.len() as u32).filter(|bit| !inner.contains(bit)).collect();
        let scattered = |number: u32, bits: &[u32]| {
            bits.iter().enumerate().fold(0, |all, (at, bit)| all | (number >> at & 1) << bit)
        };
        let part = |number: u32| {
            let first = scattered(number, &outer);
            let own = (0..registers.len() as u32).filter(|bit| first >> bit & 1 == 1);
            let start = own.fold(0, |sum, bit| sum | registers[bit as usize]);
            let registers = (0..1 << inner.len()).map(|index| first | scattered(index, &inner)).collect();
            TensorMemoryPart { address: address(start), registers }
        };
        let further = &warps[quarter_bits.len()..];
        Some(Self {
            transfer,
            in_cell,
            parts: (0..1 << outer.len()).map(part).collect(),
            warps: quarter_bits.iter().chain(further).map(|image| address(*image)).collect(),
            is_repeated: further.contains(&0),
        })
    }
}

/// Returns whether `tcgen05.mma` has these types of A, B and the accumulator. Here, fp32 operands
/// are tf32.
pub fn is_tensor_dot(dtypes: [Option<Dtype>; 3]) -> bool {
    use Dtype::{BF16, F8E4NV, F8E5, F16, F32};
    let [Some(a), Some(b), Some(acc)] = dtypes else { return false };
    match (a, b) {
        (F16, F16) | (F8E4NV | F8E5, F8E4NV | F8E5) => matches!(acc, F16 | F32),
        (BF16, BF16) | (F32, F32) => acc == F32,
        // tidy: wildcard because the instruction has no others
        _ => false,
    }
}
