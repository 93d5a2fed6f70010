//! Assigns boxes to tensor maps that the kernel makes, and orders stores before copies.
//!
//! A map has the box and the swizzle of its copies' buffers. Buffers with another box or swizzle
//! get another map. Loaded pointers may point to memory that the kernel stores to. So a fence and a
//! barrier follow each store, and later copies read the stored values. They also follow a store
//! through an argument, if a later copy of the launch's maps reads it.

use std::collections::BTreeSet;

use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, OpFamily, Operation, Parents, Value};

use super::global_memory::GlobalAccesses;
use super::tensor_maps::launch_map_index;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op, TensorMapPlan};

/// Returns a map with the `wanted` plan for the tensor of another map.
///
/// Uses an existing map, or the other map if it has no box and the same order of axes. Otherwise
/// adds a map.
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
    let block = Parents::new(function).block(made)?;
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

/// Removes maps without copies, and the staging buffers of only these maps.
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

/// Puts a fence and a barrier after stores to memory that tensor copies may read.
///
/// The fence makes the stores visible to the asynchronous proxy.
pub(super) fn order_stores(module: &mut Module) {
    let mut accesses = Accesses::default();
    let function = module.kernel();
    accesses.note(&module.header, function, function.entry, &mut Vec::new());
    if accesses.stores.is_empty() || accesses.maps.is_empty() && accesses.copies.is_empty() {
        return;
    }
    let global = GlobalAccesses::new(module);
    let of_kernel = |store: &Access| {
        let data = &function.insts[store.inst];
        // No tensor copy reads a counter that programs share.
        let is_tile = match data.op {
            Op::Gpu(GpuOp::Store { .. }) => true,
            Op::Gpu(GpuOp::AtomicRmw { .. }) => function.ty(data.operands[0]).layout().is_some(),
            // tidy: wildcard because `atomic_cas` and `atomic_store` write only counters
            _ => false,
        };
        is_tile && accesses.maps.iter().any(|map| global.may_share_base(data.operands[0], *map))
    };
    let of_launch = |store: &Access| {
        let pointers = function.insts[store.inst].operands[0];
        let may_read = |(base, copy): &(Value, Access)| {
            copy.may_follow(store) && global.may_derive_from(pointers, *base)
        };
        accesses.copies.iter().any(may_read)
    };
    let is_read = |store: &&Access| of_kernel(store) || of_launch(store);
    let stores: BTreeSet<Inst> = accesses.stores.iter().filter(is_read).map(|store| store.inst).collect();
    let function = &mut module.functions[module.entry];
    let blocks: Vec<Block> = function.blocks.keys().filter(|_| !stores.is_empty()).collect();
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

struct Access {
    inst: Inst,
    index: usize,
    loops: Vec<Inst>,
}

impl Access {
    fn may_follow(&self, other: &Self) -> bool {
        self.index > other.index || self.loops.iter().any(|owner| other.loops.contains(owner))
    }
}

/// The accesses of a kernel, except those in conditions of `while` loops.
#[derive(Default)]
struct Accesses {
    /// Stores and atomic operations.
    stores: Vec<Access>,
    /// The maps that the kernel makes.
    maps: Vec<Value>,
    /// The copies by maps of the launch, with the argument that each reads.
    copies: Vec<(Value, Access)>,
    count: usize,
}

impl Accesses {
    fn note(&mut self, header: &Header, function: &Function, block: Block, loops: &mut Vec<Inst>) {
        for inst in function.blocks[block].insts.iter().copied() {
            let data = &function.insts[inst];
            self.count += 1;
            let access = || Access { inst, index: self.count, loops: loops.clone() };
            match data.op {
                Op::Gpu(
                    GpuOp::Store { .. }
                    | GpuOp::AtomicRmw { .. }
                    | GpuOp::AtomicCas { .. }
                    | GpuOp::AtomicStore { .. },
                ) => self.stores.push(access()),
                Op::Gpu(GpuOp::TensorFill {} | GpuOp::TensorLoad {}) => {
                    if let Some(number) = launch_map_index(header, function, data.operands[1]) {
                        let base = header.tensor_maps[number].base as usize;
                        self.copies.push((function.blocks[function.entry].parameters[base], access()));
                    }
                }
                Op::Gpu(GpuOp::MakeTensorMap { .. }) => self.maps.push(data.results[0]),
                // tidy: wildcard because no other op stores by threads, loads a box or makes a map
                _ => {}
            }
            let is_loop = data.op.info().family == OpFamily::Loop;
            let is_while = matches!(data.op, Op::Tile(ir::Op::While {}));
            loops.extend(is_loop.then_some(inst));
            for region in data.regions.iter().skip(usize::from(is_while)) {
                self.note(header, function, *region, loops);
            }
            loops.truncate(loops.len() - usize::from(is_loop));
        }
    }
}
