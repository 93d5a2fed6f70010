//! Allocates columns of tensor memory by liveness: allocations whose lifetimes overlap get disjoint
//! columns. Columns are assigned first fit, the largest allocation first.
//!
//! The block allocates all columns at its start (`tcgen05_alloc`), a power of two, and frees them at
//! its end. With partitions of warps, which run concurrently, no columns are reused.

use std::ops::Range;

use smallvec::smallvec;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Cursor, Dtype, Element, Inst};

use super::allocation::Numbering;
use crate::tile::legality::at;
use tilewright_gpu_ir::layout_rules::rows;
use tilewright_gpu_ir::tensor_memory::{MIN_TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_COLUMNS};
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Module, Op, Padding, Type};

/// An allocation: its instruction, its columns, and its lifetime.
struct Allocation {
    inst: Inst,
    columns: u32,
    life: (u32, u32),
}

/// Gives all tensor memory of a kernel its columns.
///
/// # Errors
/// The kernel needs more columns than there are.
pub fn allocate_tensor_memory(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    let allocations = find(module.kernel());
    let Some(largest) = allocations.first() else { return Ok(()) };
    let (largest, mut total) = ((largest.inst, largest.columns), 0);
    let mut placed: Vec<(Inst, (u32, u32), Range<u32>)> = Vec::new();
    for Allocation { inst, columns, life } in allocations {
        let mut taken: Vec<&Range<u32>> = Vec::new();
        for (_, other, range) in &placed {
            if other.0 <= life.1 && life.0 <= other.1 {
                taken.push(range);
            }
        }
        taken.sort_unstable_by_key(|range| range.start);
        let mut start = 0;
        for range in taken {
            if start + columns <= range.start {
                break;
            }
            start = start.max(range.end);
        }
        total = total.max(start + columns);
        placed.push((inst, life, start..start + columns));
    }
    if total > TENSOR_MEMORY_COLUMNS {
        let message = format!(
            "the kernel needs {total} columns of tensor memory, and a multiprocessor has {TENSOR_MEMORY_COLUMNS}"
        );
        let diagnostic = at(module.kernel(), largest.0, Code::OutOfSharedMemory, message);
        return Err(Box::new(
            diagnostic
                .note(format!("the largest allocation takes {} columns", largest.1))
                .hint("use smaller blocks, fewer accumulators, or elements of 16 bits that are packed"),
        ));
    }
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    for (inst, _, range) in placed {
        function.insts[inst].op = GpuOp::Alloc { offset: Deferred(Some(range.start)) }.into();
    }
    let columns = total.next_power_of_two().max(MIN_TENSOR_MEMORY_COLUMNS);
    let word = Type::Buffer(Buffer {
        slots: 1,
        element: Element::Value(Dtype::I32),
        shape: [1].into_iter().collect(),
        layout: header.layouts.add(rows(&[1])),
        padding: Padding::default(),
    });
    let entry = function.entry;
    let mut cursor = Cursor::at_start(function, entry);
    let made = cursor.emit(GpuOp::Alloc { offset: Deferred(None) }, &[], [word]);
    let word = cursor.function.insts[made].results[0];
    cursor.emit(GpuOp::Tcgen05Alloc { columns }, &[word], []);
    let end = function.terminator(entry).expect("the entry has an end");
    let location = function.insts[end].location;
    let op = GpuOp::Tcgen05Dealloc { columns }.into();
    let free = function.create_inst(op, smallvec![], smallvec![], [], location);
    let insts = &mut function.blocks[entry].insts;
    insts.insert(insts.len() - 1, free);
    Ok(())
}

/// Returns the allocations of tensor memory without columns, the largest first.
fn find(function: &Function) -> Vec<Allocation> {
    let mut numbering = Numbering::new(function);
    numbering.block(function.entry);
    let is_specialized =
        function.insts.values().any(|data| matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. })));
    let mut found = Vec::new();
    for inst in numbering.order.clone() {
        let data = &function.insts[inst];
        let Op::Gpu(GpuOp::Alloc { offset: Deferred(None) }) = data.op else { continue };
        let Some(memory) = function.ty(data.results[0]).as_tensor_memory() else { continue };
        let life = if is_specialized { (0, u32::MAX) } else { numbering.live_range(inst) };
        found.push(Allocation { inst, columns: memory.columns(), life });
    }
    found.sort_by_key(|allocation| std::cmp::Reverse(allocation.columns));
    found
}
