//! Tensor maps that the kernel makes: what the passes over tensor copies do to them.
//!
//! A map is made with the box and swizzle of the buffers that copies by it fill; where these differ, several are made. What no copy
//! goes by is not made. Pointers that a kernel loads may point to what it stores: so that a copy sees what threads stored before,
//! a fence and a barrier come behind each such store.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, BlockData, Dtype, Effect, ElementwiseFn, Inst, Literal, Operation, Value};

use super::global_memory::GlobalAccesses;
use crate::language::{Function, GpuOp, Header, Module, Op, TensorMapPlan, Type};

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

fn block_of(function: &Function, inst: Inst) -> Option<Block> {
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

/// The stores of a block and the blocks inside it, but for conditions of loops, and the maps that are made.
fn note(function: &Function, block: Block, stores: &mut Vec<Inst>, maps: &mut Vec<Value>) {
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        match data.op {
            Op::Gpu(GpuOp::Store { .. }) => stores.push(*inst),
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

/// In the place of a store of threads comes a copy of the box, where it does not begin before the start of the tensor; elsewhere
/// threads store as before. What is computed for that alone is computed there.
pub(super) fn store_where_inside(
    function: &mut Function,
    block: Block,
    store: Inst,
    conversion: &[Inst],
    copy: Vec<Inst>,
) {
    let location = function.insts[store].location;
    let mark = function.insts[store].operands[0];
    let mark = function.defining_inst(mark).expect("what is stored to a box is marked");
    let coordinates: SmallVec<[Value; 5]> = function.insts[mark].operands[2..].iter().copied().collect();
    let int1 = Type::scalar(ir::Type::scalar(Dtype::I1));
    let int32 = Type::scalar(ir::Type::scalar(Dtype::I32));
    let mut checks: Vec<Inst> = Vec::new();
    let mut make = |function: &mut Function, op: Op, operands: SmallVec<[Value; 4]>, ty: Type| {
        let inst = function.create_inst(op, operands, smallvec![], [ty], location);
        checks.push(inst);
        function.insts[inst].results[0]
    };
    let zero = ir::Op::Constant { value: Literal::int(Dtype::I32, 0) }.into();
    let zero = make(function, zero, smallvec![], int32);
    let mut is_inside: Option<Value> = None;
    let elementwise = |function| Op::Gpu(GpuOp::Elementwise { function, equal_registers: 0 });
    for coordinate in coordinates {
        let own = make(function, elementwise(ElementwiseFn::Ge), smallvec![coordinate, zero], int1.clone());
        is_inside = Some(match is_inside {
            None => own,
            Some(others) => {
                make(function, elementwise(ElementwiseFn::And), smallvec![others, own], int1.clone())
            }
        });
    }
    let is_inside = is_inside.expect("a box has axes");
    let mut threads = conversion.to_vec();
    threads.push(store);
    let mut insts = std::mem::take(&mut function.blocks[block].insts);
    let place = insts.iter().position(|inst| *inst == store).expect("it stands in this block");
    insts.remove(place);
    insts.retain(|inst| !conversion.contains(inst));
    let place = place - conversion.len();
    let sunk = sink(function, &mut insts, place, &threads);
    let place = place - sunk.len();
    let mut region = |mut insts: Vec<Inst>| {
        let end = function.create_inst(ir::Op::Yield {}.into(), smallvec![], smallvec![], [], location);
        insts.push(end);
        function.blocks.push(BlockData { insts, ..BlockData::default() })
    };
    let regions = smallvec![region(copy), region(sunk.into_iter().chain(threads).collect())];
    let branch = function.create_inst(ir::Op::If {}.into(), smallvec![is_inside], regions, [], location);
    insts.splice(place..place, checks.into_iter().chain([branch]));
    function.blocks[block].insts = insts;
}

/// Takes instructions before a place out of a block that nobody needs but some that are to stand elsewhere: those in order.
fn sink(function: &Function, insts: &mut Vec<Inst>, place: usize, users: &[Inst]) -> Vec<Inst> {
    let mut needed_by: BTreeSet<Inst> = users.iter().copied().collect();
    let mut readers: BTreeMap<Value, Vec<Inst>> = BTreeMap::new();
    for (inst, data) in &function.insts {
        for operand in &data.operands {
            readers.entry(*operand).or_default().push(inst);
        }
    }
    let mut sunk = Vec::new();
    for inst in insts[..place].iter().rev() {
        let data = &function.insts[*inst];
        let is_needed_there = data.results.iter().all(|result| {
            readers.get(result).is_some_and(|all| all.iter().all(|reader| needed_by.contains(reader)))
        });
        let is_pure = data.op.info().effect == Effect::Pure && data.regions.is_empty();
        if is_pure && !data.results.is_empty() && is_needed_there {
            needed_by.insert(*inst);
            sunk.push(*inst);
        }
    }
    insts.retain(|inst| !sunk.contains(inst));
    sunk.reverse();
    sunk
}
