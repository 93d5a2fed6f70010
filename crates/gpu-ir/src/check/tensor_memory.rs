//! Checks of the ops on tensor memory.

use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Dtype, Element, ScaledFormat, ScaledKind};

use super::{Check, Checker, ensure};
use crate::scaled_dots::MIN_SCALED_COLUMNS;
use crate::tensor_memory::{
    MAX_DOT_COLUMNS, MIN_TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_COLUMNS, TensorMemoryMove, is_tensor_dot,
};
use crate::{GpuOp, TensorMemory, Type, element_bits};

/// The extent along K of one instruction, in bits.
const DEPTH_BITS: u32 = 256;
/// The padding of elements of 4 bits: 16 of them are followed by as many bytes.
const FP4_PADDING: [(u32, u32); 1] = [(8, 8)];

impl Checker<'_> {
    pub(super) fn tensor_memory_op(&self, op: &GpuOp) -> Check {
        match op {
            GpuOp::Tcgen05Alloc { columns } => {
                let buffer = self.memory(0)?;
                ensure(buffer.slot_bytes() >= 4, || "tcgen05_alloc needs a buffer of 4 bytes".into())?;
                self.columns(*columns)
            }
            GpuOp::Tcgen05Dealloc { columns } => self.columns(*columns),
            GpuOp::TmemLoad {} => {
                let memory = self.tensor_memory(0)?;
                self.tiles(&[memory.tile()])?;
                self.moves(memory, self.ty(self.inst.results[0]), true)
            }
            GpuOp::TmemStore {} => {
                let memory = self.tensor_memory(0)?;
                let tile = self.registers(1)?;
                ensure(memory.tile() == *tile, || format!("{memory} does not hold {tile}"))?;
                self.moves(memory, self.operand(1), false)
            }
            GpuOp::Tcgen05Mma { .. } => self.tensor_dot(op),
            GpuOp::Tcgen05MmaScaled { a_format, b_format, .. } => self.scaled_dot(op, [*a_format, *b_format]),
            GpuOp::Tcgen05Copy {} => self.copy_to_tensor_memory(),
            GpuOp::Tcgen05Commit { pair } => {
                ensure(!pair || self.header.cluster > 1, || {
                    format!("{} to a pair in a kernel without clusters", self.name())
                })?;
                self.barriers(0)
            }
            // tidy: wildcard because the caller passes only the ops above
            _ => Ok(()),
        }
    }

    fn columns(&self, columns: u32) -> Check {
        let range = MIN_TENSOR_MEMORY_COLUMNS..=TENSOR_MEMORY_COLUMNS;
        ensure(columns.is_power_of_two() && range.contains(&columns), || {
            format!("{} takes a power of two from 32 to 512 columns, not {columns}", self.name())
        })
    }

    fn tensor_memory(&self, index: usize) -> Result<&TensorMemory, String> {
        let ty = self.operand(index);
        let memory = ty.as_tensor_memory().filter(|memory| memory.slots == 1);
        memory.ok_or_else(|| format!("{} takes tensor memory of one slot, found {ty}", self.name()))
    }

    /// Checks that instructions move a tile with its layout; only loads may repeat elements.
    fn moves(&self, memory: &TensorMemory, tile: &Type, may_repeat: bool) -> Check {
        let layout = self.layout(tile).ok_or_else(|| format!("{tile} is not a tile"))?;
        let found = TensorMemoryMove::new(memory, layout).filter(|found| may_repeat || !found.is_repeated);
        ensure(found.is_some(), || format!("no instruction moves {tile} between registers and {memory}"))
    }

    fn copy_to_tensor_memory(&self) -> Check {
        let (source, memory) = (self.memory(0)?, self.tensor_memory(1)?);
        ensure(source.tile() == memory.tile(), || {
            format!("tcgen05_copy cannot copy {} to {memory}: the tiles differ", source.tile())
        })?;
        let has_cells = memory.holds_scales() && memory.block.columns == 4 && memory.slot_columns() >= 4;
        let is_packed = memory.block.rows == 128 && memory.block.stride == 1 && memory.block_columns() >= 8;
        ensure(has_cells || is_packed, || {
            format!(
                "tcgen05_copy writes four columns of scales, or eight columns of a block of 128 rows, not {memory}"
            )
        })
    }

    /// Checks the accumulator of a pair of blocks: an instruction has all columns of B.
    fn pair(&self, acc: &TensorMemory) -> Check {
        if acc.cta_group == 1 {
            return Ok(());
        }
        ensure(self.header.cluster > 1, || {
            format!("{} of a pair in a kernel without clusters", self.name())
        })?;
        ensure(acc.shape[1] == acc.block.columns, || {
            format!("{} of a pair takes an accumulator with one block of columns, found {acc}", self.name())
        })
    }

    fn condition(&self, index: usize) -> Check {
        let is_condition = *self.operand(index) == Type::scalar(ir::Type::scalar(Dtype::I1));
        ensure(is_condition, || format!("use_acc must be a scalar int1, found {}", self.operand(index)))
    }

    /// Returns the types of A and B, each after its transpose.
    fn factors(&self, op: &GpuOp) -> Result<[ir::Type; 2], String> {
        self.memory(1)?;
        let mut tiles: SmallVec<[ir::Type; 2]> = SmallVec::new();
        for index in 0..2 {
            let ty = self.operand(index);
            let is_transposed = op.reads_transpose(index);
            ensure(!is_transposed || ty.as_memory().is_some(), || {
                format!("{ty} is not in shared memory, where its transpose can be read")
            })?;
            let tile = ty.tile().ok_or_else(|| format!("{} takes tiles, found {ty}", self.name()))?;
            let transposed = || tile.with_shape(tile.shape.iter().rev().copied().collect());
            tiles.push(if is_transposed { transposed() } else { tile.clone() });
        }
        let [a, b] = tiles.into_inner().expect("there are two operands");
        ensure([a.rank(), b.rank()] == [2, 2], || format!("{} multiplies matrices", self.name()))?;
        Ok([a, b])
    }

    fn scaled_dot(&self, op: &GpuOp, formats: [ScaledFormat; 2]) -> Check {
        let acc = self.tensor_memory(2)?;
        self.condition(5)?;
        let [a, b] = &self.factors(op)?;
        let scales = [self.tensor_memory(3)?, self.tensor_memory(4)?];
        let is_padded = [0, 1].map(|index| {
            self.operand(index).as_memory().is_some_and(|buffer| buffer.padding.0[..] == FP4_PADDING)
        });
        let has_padding = [0, 1]
            .map(|index| self.operand(index).as_memory().is_some_and(|buffer| !buffer.padding.is_none()));
        ensure(is_padded == has_padding, || "tcgen05_mma_scaled reads no such padding".to_owned())?;
        let dtype = |ty: &ir::Type| ty.dtype().unwrap_or(Dtype::F64);
        let kind = ScaledKind::of(formats, is_padded, scales.map(|scale| dtype(&scale.tile())))
            .map_err(|rule| format!("tcgen05_mma_scaled: {rule}"))?;
        let is_held = formats[0].is_held_by(dtype(a)) && formats[1].is_held_by(dtype(b));
        ensure(is_held && acc.element == Element::Value(Dtype::F32), || {
            format!("tcgen05_mma_scaled has no kind for {a}, {b} and {}", acc.tile())
        })?;
        let depth = a.shape[1] * formats[0].in_byte();
        let fits = [a.shape[0], b.shape[1]] == acc.shape[..] && depth == b.shape[0] * formats[1].in_byte();
        ensure(fits && depth.is_multiple_of(kind.depth()), || {
            format!("tcgen05_mma_scaled cannot multiply {a} by {b} into {}", acc.tile())
        })?;
        for (scale, rows) in scales.iter().zip(acc.shape.iter()) {
            ensure(scale.holds_scales() && scale.shape[..] == [*rows, depth / kind.block()], || {
                format!("tcgen05_mma_scaled needs scales [{rows}, {}], found {scale}", depth / kind.block())
            })?;
        }
        ensure(acc.cta_group == 1, || "tcgen05_mma_scaled of a pair of blocks is not supported".to_owned())?;
        let block = acc.block;
        let is_block = block.rows == 128
            && block.stride == 1
            && block.columns.is_multiple_of(MIN_SCALED_COLUMNS)
            && block.columns <= MAX_DOT_COLUMNS;
        ensure(is_block, || format!("tcgen05_mma_scaled has no accumulator {acc}"))?;
        match self.operand(0).as_tensor_memory() {
            Some(left) => {
                self.tensor_memory(0)?;
                let is_left = left.block.rows == 128
                    && left.block.stride == 1
                    && left.block.columns.is_multiple_of(DEPTH_BITS / 8);
                ensure(is_left, || format!("tcgen05_mma_scaled does not read A from {left} for {acc}"))
            }
            None => self.memory(0).map(drop),
        }
    }

    fn tensor_dot(&self, op: &GpuOp) -> Check {
        let acc = self.tensor_memory(2)?;
        self.condition(3)?;
        let [a, b] = &self.factors(op)?;
        let dtypes = [a.dtype(), b.dtype(), acc.tile().dtype()];
        ensure(is_tensor_dot(dtypes) || is_integer_dot(dtypes), || {
            format!("tcgen05_mma has no kind for {a}, {b} and {}", acc.tile())
        })?;
        // Each block of a pair has a part of the columns of B.
        let columns = b.shape[1] * acc.cta_group;
        let fits = [a.shape[0], columns] == [acc.shape[0], acc.shape[1]] && a.shape[1] == b.shape[0];
        ensure(fits, || format!("tcgen05_mma cannot multiply {a} by {b} into {acc}"))?;
        self.pair(acc)?;
        let depth = DEPTH_BITS / element_bits(a);
        ensure(a.shape[1].is_multiple_of(depth), || {
            format!("tcgen05_mma needs a multiple of {depth} elements along K, found {a}")
        })?;
        let block = acc.block;
        let multiple = match (acc.cta_group, block.rows) {
            (1, 64) => 8,
            (2, 64) => 32,
            _ => 16,
        };
        let is_block = block.columns.is_multiple_of(multiple) && block.columns <= MAX_DOT_COLUMNS;
        ensure(is_block && block.stride * element_bits(&acc.tile()) == 32, || {
            format!(
                "tcgen05_mma has no accumulator {acc}: each element needs a cell, and a block at most 256 columns"
            )
        })?;
        match self.operand(0) {
            Type::TensorMemory(left) => {
                self.tensor_memory(0)?;
                // Of a pair, both halves of the lanes would need a copy of 64 rows.
                let has_rows = left.block.rows == block.rows && left.cta_group == acc.cta_group;
                let is_left = has_rows
                    && (block.rows == 128 || acc.cta_group == 1)
                    && left.block.stride == 1
                    && left.block.columns.is_multiple_of(depth);
                ensure(is_left, || format!("tcgen05_mma does not read A from {left} for {acc}"))
            }
            Type::Registers { .. }
            | Type::Buffer(_)
            | Type::Ring(_)
            | Type::Empty(_)
            | Type::Full(_)
            | Type::Pending { .. }
            | Type::Mbarrier { .. } => self.memory(0).map(drop),
        }
    }
}

/// Returns whether an instruction of some targets has these types of A, B and the accumulator.
fn is_integer_dot(dtypes: [Option<Dtype>; 3]) -> bool {
    let is_byte = |dtype: Option<Dtype>| matches!(dtype, Some(Dtype::I8 | Dtype::U8));
    is_byte(dtypes[0]) && is_byte(dtypes[1]) && dtypes[2] == Some(Dtype::I32)
}
