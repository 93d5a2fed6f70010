//! Moves dot operands to registers if shared memory is too small. `mma.sync` can read both operands
//! from registers, `wgmma` only A.
//!
//! ```text
//! %b = alloc ; local_store %b, %x                %b = alloc ; local_store %b, %x ; %r = local_load %b ; dealloc %b
//! for %k … { … mma_sync %b, … }           ──>    for %k … { … mma_sync %r, … }
//! dealloc %b
//! ```
//! Then the buffer only converts the tile, and tiles of the loop can reuse its memory. If one
//! operand is enough, the pass moves the one with the fewest registers. Otherwise, it moves
//! several, the largest first. If the kernel still does not fit, the pass changes nothing.

use smallvec::smallvec;
use tilewright_ir::{Block, Inst, Value};
use tilewright_layout::{Fragment, Layout, Mma};

use super::allocation::least_bytes;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::warp_instructions::warps_of_dot;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op, Type};

/// Moves operands to registers until a kernel fits into shared memory.
pub fn take_from_registers(module: &mut Module) {
    let limit = u64::from(module.header.target.max_shared_bytes);
    let needed = least_bytes(&module.header.layouts, module.kernel());
    if needed <= limit {
        return;
    }
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut found = operands(header, function);
    found.sort_by_key(|operand| operand.registers);
    let mut moved = Vec::new();
    if let Some(one) = found.iter().position(|operand| moved_to_fit(header, function, [operand], limit)) {
        moved.push(found.swap_remove(one));
    } else {
        found.sort_by_key(|operand| std::cmp::Reverse(operand.bytes));
        let several = (2..=found.len()).find(|count| moved_to_fit(header, function, &found[..*count], limit));
        moved.extend(found.drain(..several.unwrap_or(0)));
    }
    for found in moved {
        let (product, place) = found.products[0];
        let tile = function.ty(function.insts[product].operands[place]).tile();
        let subject = || remarks::subject(function, product, tile.as_ref());
        remarks::about("register_operands", function, product, subject, || {
            let operand = ["A", "B"][place];
            let reason =
                format!("{needed} bytes of shared memory would be needed, but the target has {limit}");
            RemarkReason::missed(format!("{operand} is read from {} registers", found.registers), reason)
        });
    }
}

/// Moves operands to registers, and returns whether the kernel then fits.
fn moved_to_fit<'a>(
    header: &mut Header,
    function: &mut Function,
    operands: impl IntoIterator<Item = &'a Operand>,
    limit: u64,
) -> bool {
    let (layouts, original) = (header.layouts.clone(), function.clone());
    for operand in operands {
        operand.move_to_registers(header, function);
    }
    let fits = least_bytes(&header.layouts, function) <= limit;
    if !fits {
        *function = original;
        header.layouts = layouts;
    }
    fits
}

/// A tile in a buffer that only dots read.
struct Operand {
    buffer: Value,
    block: Block,
    dealloc: Inst,
    products: Vec<(Inst, usize)>,
    /// The first instruction of the block that contains such a dot.
    first: Inst,
    /// The layout in registers that the dots read.
    layout: Layout,
    registers: u32,
    bytes: u32,
}

/// Returns the operands that can come from registers.
fn operands(header: &Header, function: &Function) -> Vec<Operand> {
    let mut found = Vec::new();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            blocks.extend(&data.regions);
            if matches!(data.op, Op::Gpu(GpuOp::Alloc { .. })) {
                found.extend(operand(header, function, block, data.results[0]));
            }
        }
    }
    found
}

fn operand(header: &Header, function: &Function, block: Block, buffer: Value) -> Option<Operand> {
    let Type::Buffer(memory) = function.ty(buffer) else { return None };
    let insts = &function.blocks[block].insts;
    let (mut products, mut dealloc, mut is_other, mut first) = (Vec::new(), None, memory.slots != 1, None);
    for (index, outer) in insts.iter().enumerate() {
        let mut see = |inst: Inst| {
            let data = &function.insts[inst];
            for place in (0..data.operands.len()).filter(|place| data.operands[*place] == buffer) {
                match &data.op {
                    Op::Gpu(GpuOp::Dealloc {}) => dealloc = Some(inst),
                    Op::Gpu(GpuOp::LocalStore {} | GpuOp::TensorLoad {} | GpuOp::CopyAsync { .. }) => {
                        is_other |= inst != *outer || first.is_some();
                    }
                    Op::Gpu(GpuOp::MmaSync { .. }) if place < 2 => {
                        first.get_or_insert(index);
                        products.push((inst, place));
                    }
                    Op::Gpu(GpuOp::Wgmma { transposed_a: false, .. })
                        if place == 0 && header.target.features.has(Feature::Wgmma) =>
                    {
                        first.get_or_insert(index);
                        products.push((inst, place));
                    }
                    // tidy: wildcard because any other reader of the buffer needs the memory
                    _ => is_other = true,
                }
            }
        };
        see(*outer);
        for region in &function.insts[*outer].regions {
            function.walk(*region, &mut see);
        }
    }
    let layouts = products.iter().map(|(inst, place)| fragment(function, *inst, *place));
    let layouts: Vec<Layout> = layouts.collect::<Option<_>>()?;
    let layout = layouts.first()?.clone();
    let registers = layout.registers() * element_bits(&memory.tile()) / 32;
    let is_one = layouts.iter().all(|other| *other == layout)
        && registers <= header.target.tuning.moved_operand_registers;
    let is_known = header.layouts.get(memory.layout).output() == layout.output();
    let (dealloc, first) = (dealloc?, insts[first?]);
    let bytes = memory.bytes();
    (is_one && is_known && !is_other).then_some(Operand {
        buffer,
        block,
        dealloc,
        products,
        first,
        layout,
        registers,
        bytes,
    })
}

/// Returns the layout in registers of an operand of a dot.
fn fragment(function: &Function, product: Inst, place: usize) -> Option<Layout> {
    let data = &function.insts[product];
    let Op::Gpu(GpuOp::MmaSync { instruction, warps, .. } | GpuOp::Wgmma { instruction, warps, .. }) =
        &data.op
    else {
        return None;
    };
    let tile = function.ty(data.operands[place]).tile()?;
    let mma = Mma::new(instruction.m, instruction.n, instruction.k, element_bits(&tile));
    Some(mma.layout([Fragment::A, Fragment::B][place], &tile.shape, warps_of_dot(warps)?))
}

impl Operand {
    fn move_to_registers(&self, header: &mut Header, function: &mut Function) {
        let layout = header.layouts.add(self.layout.clone());
        let tile = function.ty(self.buffer).tile().expect("a buffer holds tiles");
        let location = function.insts[self.products[0].0].location;
        let ty = Type::registers(tile, Some(layout));
        let op = GpuOp::LocalLoad { matrix: false }.into();
        let load = function.create_inst(op, smallvec![self.buffer], smallvec![], Some(ty), location);
        let loaded = function.insts[load].results[0];
        for (product, place) in &self.products {
            function.insts[*product].operands[*place] = loaded;
        }
        let insts = &mut function.blocks[self.block].insts;
        insts.retain(|inst| *inst != self.dealloc);
        let place =
            insts.iter().position(|inst| *inst == self.first).expect("the first reader is in the block");
        insts.splice(place..place, [load, self.dealloc]);
    }
}
