//! Checks of the ops on tensor memory.

use tilewright_ir as ir;
use tilewright_ir::Dtype;

use super::{Check, Checker, ensure};
use crate::tensor_memory::{
    MAX_DOT_COLUMNS, MIN_TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_COLUMNS, TensorMemoryMove, is_tensor_dot,
};
use crate::{GpuOp, TensorMemory, Type, element_bits};

/// The extent along K of one instruction, in bits.
const DEPTH_BITS: u32 = 256;

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
            GpuOp::Tcgen05Copy {} => self.copy_to_tensor_memory(),
            GpuOp::Tcgen05Commit {} => self.barriers(0),
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

    fn tensor_dot(&self, op: &GpuOp) -> Check {
        let acc = self.tensor_memory(2)?;
        let is_condition = *self.operand(3) == Type::scalar(ir::Type::scalar(Dtype::I1));
        ensure(is_condition, || format!("use_acc must be a scalar int1, found {}", self.operand(3)))?;
        self.memory(1)?;
        let mut tiles: Vec<ir::Type> = Vec::new();
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
        let [a, b] = &tiles[..] else { return Ok(()) };
        let dtypes = [a.dtype(), b.dtype(), acc.tile().dtype()];
        ensure(is_tensor_dot(dtypes), || format!("tcgen05_mma has no kind for {a}, {b} and {}", acc.tile()))?;
        let fits = [a.rank(), b.rank()] == [2, 2]
            && [a.shape[0], b.shape[1]] == [acc.shape[0], acc.shape[1]]
            && a.shape[1] == b.shape[0];
        ensure(fits, || format!("tcgen05_mma cannot multiply {a} by {b} into {}", acc.tile()))?;
        let depth = DEPTH_BITS / element_bits(a);
        ensure(a.shape[1].is_multiple_of(depth), || {
            format!("tcgen05_mma needs a multiple of {depth} elements along K, found {a}")
        })?;
        let block = acc.block;
        let multiple = if block.rows == 64 { 8 } else { 16 };
        let is_block = block.columns.is_multiple_of(multiple) && block.columns <= MAX_DOT_COLUMNS;
        ensure(is_block && block.stride * element_bits(&acc.tile()) == 32, || {
            format!(
                "tcgen05_mma has no accumulator {acc}: each element needs a cell, and a block at most 256 columns"
            )
        })?;
        match self.operand(0) {
            Type::TensorMemory(left) => {
                self.tensor_memory(0)?;
                let is_left = left.block.rows == block.rows
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
