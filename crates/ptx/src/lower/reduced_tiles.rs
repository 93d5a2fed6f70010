//! Finds the operands of reductions, among them products that stay scalar.

use cranelift_entity::EntitySet;
use tilewright_gpu_ir::{self as gpu, GpuOp, Op};
use tilewright_ir::Value;

/// Returns the tiles that reductions read.
///
/// Products among them are computed element by element: a reduction adds the elements one by one,
/// and the assembler contracts the product of one element and its addition.
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
