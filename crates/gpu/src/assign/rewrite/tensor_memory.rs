//! Translates the functions of the op `device` on tensor memory.

use smallvec::{SmallVec, smallvec};
use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{Block, DeviceFn, Element, Inst, SharedTiles, Value};

use super::Rewrite;
use crate::tile::legality::at;
use tilewright_gpu_ir::tensor_memory::TensorMemoryMove;
use tilewright_gpu_ir::{GpuOp, TensorMemory};

/// The most warps that access disjoint lanes of tensor memory.
const DISJOINT_WARPS: u32 = 4;

/// The operand of a dot that names the memory of the accumulator.
const ACCUMULATOR: usize = 4;

/// Returns the type of tensor memory for tiles; `None` for shared memory.
pub(super) fn tensor_memory(tiles: &SharedTiles) -> Option<TensorMemory> {
    Some(TensorMemory {
        slots: tiles.slots,
        element: Element::Value(tiles.dtype),
        shape: tiles.shape.clone(),
        block: tiles.layout.tensor_memory(&tiles.shape)?,
        cta_group: if tiles.layout.is_of_pair() { 2 } else { 1 },
    })
}

/// Checks that an instruction exists for each load and store of tensor memory.
///
/// # Errors
/// If a layout is not that of an instruction.
pub(in crate::assign) fn check_moves(function: &ir::Function) -> Result<(), Box<Diagnostic>> {
    let mut found = Ok(());
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let (tiles, tile) = match &data.op {
            ir::Op::Device { function: DeviceFn::TensorMemoryLoad { tiles, .. } } => (tiles, data.results[0]),
            ir::Op::Device { function: DeviceFn::TensorMemoryStore { tiles } } => (tiles, data.operands[2]),
            // tidy: wildcard because no other op accesses tensor memory by threads
            _ => return,
        };
        let (ty, is_load) = (function.ty(tile), !data.results.is_empty());
        let Some(layout) = &ty.layout else { return };
        let linear = layout.linear(&ty.shape).ok();
        let moves = tensor_memory(tiles).zip(linear).and_then(|(memory, linear)| {
            TensorMemoryMove::new(&memory, &linear).filter(|moves| is_load || !moves.is_repeated)
        });
        if found.is_ok() && moves.is_none() {
            let message = format!("no instruction moves a tile with {layout} to or from {}", tiles.layout);
            let hint = "use the layout that `tmem.get_reg_layout()` returns, and `gl.convert_layout`";
            found = Err(Box::new(at(function, inst, Code::LayoutMismatch, message).hint(hint)));
        }
    });
    found
}

impl Rewrite<'_, '_> {
    pub(super) fn tensor_memory_function(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        let data = &self.context.function.insts[inst];
        match function {
            DeviceFn::TensorMemoryLoad { .. } => {
                self.wait_for_other_warps(inst, block);
                let memory = self.tile_at(inst, block, 0);
                let old = data.results[0];
                let layout = self.layouts_of(old)[0];
                let ty = self.ty(old, layout);
                let value = self.append(inst, block, GpuOp::TmemLoad {}.into(), smallvec![memory], &[ty]);
                self.define(old, layout, value.expect("a load is a value"), block);
            }
            DeviceFn::TensorMemoryStore { .. } => {
                let value = self.tile(inst, 2);
                self.wait_for_other_warps(inst, block);
                let memory = self.tile_at(inst, block, 0);
                self.predicated(inst, block, 3, |rewrite, block| {
                    rewrite.append(inst, block, GpuOp::TmemStore {}.into(), smallvec![memory, value], &[]);
                });
            }
            DeviceFn::TensorDot { transposed_a, transposed_b, .. } => {
                let op = GpuOp::Tcgen05Mma { transposed_a: *transposed_a, transposed_b: *transposed_b };
                self.tensor_dot(inst, block, op, &[0, 2, 4]);
            }
            DeviceFn::TensorDotScaled { a_format, b_format, transposed_a, transposed_b, .. } => {
                let op = GpuOp::Tcgen05MmaScaled {
                    a_format: *a_format,
                    b_format: *b_format,
                    transposed_a: *transposed_a,
                    transposed_b: *transposed_b,
                };
                self.tensor_dot(inst, block, op, &[0, 2, 4, 6, 8]);
            }
            DeviceFn::TensorCopy { .. } => {
                self.keep_allocated(inst, 0);
                let operands = [0, 2].into_iter().map(|index| self.tile_at(inst, block, index)).collect();
                self.wait_for_reads(inst, block);
                self.append(inst, block, GpuOp::Tcgen05Copy {}.into(), operands, &[]);
            }
            DeviceFn::TensorCommit { pair, .. } => {
                let (barriers, slot) = self.place(inst, 0);
                self.predicated(inst, block, 2, |rewrite, block| {
                    let op = GpuOp::Tcgen05Commit { pair: *pair }.into();
                    rewrite.append(inst, block, op, smallvec![barriers, slot], &[]);
                });
            }
            // tidy: wildcard because the caller passes only functions of tensor memory
            other => unreachable!("{} is no function of tensor memory", other.name()),
        }
    }

    /// Appends a dot whose operands are the tiles at these operands of the old instruction, and the
    /// condition after them. The last operand of the old instruction is its predicate.
    fn tensor_dot(&mut self, inst: Inst, block: Block, op: GpuOp, tiles: &[usize]) {
        for index in tiles.iter().filter(|index| **index != ACCUMULATOR) {
            self.keep_allocated(inst, *index);
        }
        let mut operands: SmallVec<[Value; 4]> =
            tiles.iter().map(|index| self.tile_at(inst, block, *index)).collect();
        let condition = 2 * tiles.len();
        operands.push(self.get(self.context.function.insts[inst].operands[condition], None));
        // One thread starts the dot, after the accesses of all threads to tensor memory.
        self.wait_for_reads(inst, block);
        self.predicated(inst, block, condition + 1, |rewrite, block| {
            rewrite.append(inst, block, op.into(), operands, &[]);
        });
    }

    /// Appends a barrier if several warps access the same lanes and accesses are in flight.
    fn wait_for_other_warps(&mut self, inst: Inst, block: Block) {
        let own = self.context.workers.warps_at[inst];
        let warps = if own == 0 { self.context.num_warps } else { own };
        if warps > DISJOINT_WARPS {
            self.wait_for_accesses(inst, block);
        }
    }
}
