//! Finds the operands of reductions. Products among them are not computed in pairs.

use cranelift_entity::EntitySet;
use tilewright_gpu_ir::{self as gpu, GpuOp, Op};
use tilewright_ir::Value;

/// Returns the tiles that reductions read.
///
/// If such a tile is a product, the lowering computes it element by element, not in pairs. The
/// reduction adds the elements one by one, and the assembler contracts each multiplication with the
/// addition of its result.
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
