//! Finds the operands of reductions.

use cranelift_entity::EntitySet;
use tilewright_gpu_ir::{self as gpu, GpuOp, Op};
use tilewright_ir::Value;

/// Returns the tiles that reductions read.
///
/// A product among them is computed by element, because the assembler contracts it with the
/// reduction's addition.
pub(super) fn reduced_tiles(kernel: &gpu::Function) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    kernel.walk(kernel.entry, &mut |inst| {
        let data = &kernel.insts[inst];
        if matches!(data.op, Op::Gpu(GpuOp::Reduce { .. })) {
            found.extend(data.operands.iter().copied());
        }
    });
    found
}
