//! Tensor maps that the kernel makes: what the passes over tensor copies do to them.
//!
//! A map is made with the box and swizzle of the buffers that copies by it fill; where these differ, several are made. What no copy
//! goes by is not made. Pointers that a kernel loads may point to what it stores: so that a copy sees what threads stored before,
//! a fence and a barrier come behind each such store.

use std::collections::BTreeSet;

use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Value};

use super::global_memory::GlobalAccesses;
use crate::language::{Function, GpuOp, Header, Module, Op, TensorMapPlan};

/// The map for boxes of the tensor of another one, which is that itself if nothing else has been said of it.
pub(super) fn map_for(
    header: &mut Header,
    function: &mut Function,
    (map, number): (Value, usize),
    wanted: TensorMapPlan,
    axes: &[usize],
) -> Option<Value> {
    let made = function.defining_inst(map)?;
    let parts = |function: &Function, inst: Inst| function.insts[inst].operands[1..].to_vec();
    let own = parts(function, made);
    let block = block_of(function, made)?;
    let same = function.blocks[block].insts.iter().find(|inst| match function.insts[**inst].op {
        Op::Gpu(GpuOp::MakeTensorMap { map }) => {
            header.made_maps[map as usize] == wanted && parts(function, **inst) == own
        }
        // tidy: wildcard because no other op makes a map
        _ => false,
    });
    if let Some(same) = same {
        return Some(function.insts[*same].results[0]);
    }
    // A transpose has its axes in another order.
    if header.made_maps[number].copied.is_none() && axes.is_sorted() {
        header.made_maps[number] = wanted;
        return Some(map);
    }
    header.made_maps.push(wanted);
    let op = GpuOp::MakeTensorMap { map: header.made_maps.len() as u32 - 1 };
    let (operands, location) = (function.insts[made].operands.clone(), function.insts[made].location);
    let ty = function.ty(map).clone();
    let another = function.create_inst(op.into(), operands, smallvec![], [ty], location);
    let insts = &mut function.blocks[block].insts;
    let place = insts.iter().position(|inst| *inst == made)?;
    insts.insert(place + 1, another);
    Some(function.insts[another].results[0])
}

/// The block that an instruction stands in.
pub(super) fn block_of(function: &Function, inst: Inst) -> Option<Block> {
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        if function.blocks[block].insts.contains(&inst) {
            return Some(block);
        }
        blocks.extend(function.blocks[block].insts.iter().flat_map(|inst| &function.insts[*inst].regions));
    }
    None
}

/// Removes the maps that no copy goes by, and the memory that is then for none.
pub(super) fn remove_unused(header: &mut Header, function: &mut Function) {
    if header.made_maps.is_empty() {
        return;
    }
    let mut used: BTreeSet<Value> = BTreeSet::new();
    function.walk(function.entry, &mut |inst| used.extend(&function.insts[inst].operands));
    let (mut kept, mut filled) = (Vec::new(), BTreeSet::new());
    let mut gone: BTreeSet<Inst> = BTreeSet::new();
    let mut templates = BTreeSet::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Gpu(GpuOp::MakeTensorMap { map }) = data.op {
            templates.insert(data.operands[0]);
            if used.contains(&data.results[0]) {
                kept.push((inst, map));
                filled.insert(data.operands[0]);
            } else {
                gone.insert(inst);
            }
        }
    });
    for template in templates.difference(&filled) {
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if data.results.first() == Some(template) || data.operands.first() == Some(template) {
                gone.insert(inst);
            }
        });
    }
    let maps = kept.iter().map(|(_, map)| header.made_maps[*map as usize].clone()).collect();
    for (number, (inst, _)) in kept.into_iter().enumerate() {
        function.insts[inst].op = GpuOp::MakeTensorMap { map: number as u32 }.into();
    }
    header.made_maps = maps;
    for block in function.blocks.values_mut() {
        block.insts.retain(|inst| !gone.contains(inst));
    }
}

/// Puts a fence and a barrier behind stores that copies by maps of the kernel may read.
pub(super) fn order_stores(module: &mut Module) {
    if module.header.made_maps.is_empty() {
        return;
    }
    let global = GlobalAccesses::new(module);
    let function = module.kernel();
    let (mut stores, mut maps) = (Vec::new(), Vec::new());
    note(function, function.entry, &mut stores, &mut maps);
    stores.retain(|store| {
        let pointers = function.insts[*store].operands[0];
        maps.iter().any(|map| global.may_be_one(pointers, *map))
    });
    let function = &mut module.functions[module.entry];
    let blocks: Vec<Block> = function.blocks.keys().collect();
    for block in blocks {
        let mut insts = Vec::new();
        for inst in std::mem::take(&mut function.blocks[block].insts) {
            insts.push(inst);
            if stores.contains(&inst) {
                let location = function.insts[inst].location;
                for op in [Op::Gpu(GpuOp::FenceGlobal {}), ir::Op::Barrier {}.into()] {
                    insts.push(function.create_inst(op, smallvec![], smallvec![], [], location));
                }
            }
        }
        function.blocks[block].insts = insts;
    }
}

/// The stores and atomic operations of a block and the blocks inside it, but for conditions of loops, and the maps that are made.
fn note(function: &Function, block: Block, stores: &mut Vec<Inst>, maps: &mut Vec<Value>) {
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        match data.op {
            Op::Gpu(GpuOp::Store { .. }) => stores.push(*inst),
            // Of a counter that programs share, nobody copies.
            Op::Gpu(GpuOp::AtomicRmw { .. }) if function.ty(data.operands[0]).layout().is_some() => {
                stores.push(*inst);
            }
            Op::Gpu(GpuOp::MakeTensorMap { .. }) => maps.push(data.results[0]),
            // tidy: wildcard because no other op is asked about
            _ => {}
        }
        let is_while = matches!(data.op, Op::Tile(ir::Op::While {}));
        for region in data.regions.iter().skip(usize::from(is_while)) {
            note(function, *region, stores, maps);
        }
    }
}
