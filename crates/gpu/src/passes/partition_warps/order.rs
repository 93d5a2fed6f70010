//! Where roles meet: what a kernel stores and loads in one order, it does so by different warps.
//!
//! ```text
//! store %p, %x         named_barrier       named_barrier
//! … load %q …    =>    store %p, %x
//!                      named_barrier       named_barrier
//!                                          … load %q …
//! ```
//! Both roles come to the same places. Stores in a row have one pair of barriers, where nothing is loaded between. Where no pointer
//! that the copying role loads from may point to what they store, they have none: as everywhere, pointers of different
//! arguments point to different memory, and pointers that are loaded to any.

use rustc_hash::FxHashSet;
use smallvec::smallvec;
use tilewright_ir::{Block, Effect, Inst, OpFamily, Operation, Value};

use crate::passes::barriers::OF_ALL_ROLES;
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::{Function, GpuOp, Module, Op};

/// Stores in a row, and the barriers before and behind them.
pub struct Stores {
    barriers: [Inst; 2],
    stores: Vec<Inst>,
}

/// Whether an op is a place where the roles meet.
pub fn is_mark(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::NamedBarrier { barrier: OF_ALL_ROLES, .. }))
}

/// Puts barriers of so many warps before and behind all stores of a block and of the regions inside it.
pub fn mark(function: &mut Function, block: Block, warps: u32) -> Vec<Stores> {
    let mut found = Vec::new();
    mark_block(function, block, warps * LANES, &mut found);
    found
}

fn mark_block(function: &mut Function, block: Block, threads: u32, found: &mut Vec<Stores>) {
    let mut insts = Vec::new();
    let mut open: Option<(Inst, Vec<Inst>)> = None;
    for inst in std::mem::take(&mut function.blocks[block].insts) {
        let data = function.insts[inst].clone();
        let info = data.op.info();
        let mut barrier = |function: &mut Function| {
            let op = GpuOp::NamedBarrier { barrier: OF_ALL_ROLES, threads };
            let made = function.create_inst(op.into(), smallvec![], smallvec![], [], data.location);
            insts.push(made);
            made
        };
        if matches!(info.family, OpFamily::Store | OpFamily::Atomic) {
            if open.is_none() {
                open = Some((barrier(function), Vec::new()));
            }
            if let Some((_, stores)) = &mut open {
                stores.push(inst);
            }
        } else if info.effect != Effect::Pure
            && let Some((before, stores)) = open.take()
        {
            found.push(Stores { barriers: [before, barrier(function)], stores });
        }
        insts.push(inst);
        if matches!(info.family, OpFamily::Loop | OpFamily::Branch) {
            for region in data.regions {
                mark_block(function, region, threads, found);
            }
        }
    }
    function.blocks[block].insts = insts;
}

/// Removes the barriers at stores to what the copying role does not load. What atomic operations may touch, other programs may change
/// between the loads of the two roles.
pub fn settle(
    module: &mut Module,
    stores: &[Stores],
    [consumer, producer]: [Block; 2],
) -> Result<(), &'static str> {
    let function = module.kernel();
    let mut loaded: Vec<Value> = Vec::new();
    function.walk(producer, &mut |inst| {
        let data = &function.insts[inst];
        match data.op {
            Op::Gpu(GpuOp::Load { .. }) => loaded.push(data.operands[0]),
            Op::Gpu(GpuOp::CopyAsync { .. }) => loaded.push(data.operands[1]),
            // tidy: wildcard because tensor copies load what nobody stores to
            _ => {}
        }
    });
    let marks = |block: Block| {
        let mut marks = Vec::new();
        function.walk(block, &mut |inst| marks.extend(is_mark(&function.insts[inst].op).then_some(inst)));
        marks
    };
    let global = GlobalAccesses::new(module);
    let is_stored = |inst: &Inst| {
        let pointer = function.insts[*inst].operands[0];
        loaded.iter().any(|loaded| global.may_be_one(*loaded, pointer))
    };
    let is_atomic = |inst: &&Inst| function.insts[**inst].op.info().family == OpFamily::Atomic;
    if stores.iter().flat_map(|group| &group.stores).filter(is_atomic).any(is_stored) {
        return Err("an atomic operation may touch what is copied, or what copies depend on");
    }
    let needless: FxHashSet<Inst> = stores
        .iter()
        .filter(|group| !group.stores.iter().any(is_stored))
        .flat_map(|group| group.barriers)
        .collect();
    // The copy of the code has them in the same order.
    let pairs = marks(consumer).into_iter().zip(marks(producer));
    let gone: FxHashSet<Inst> =
        pairs.filter(|(own, _)| needless.contains(own)).flat_map(|(own, copy)| [own, copy]).collect();
    let function = &mut module.functions[module.entry];
    for block in function.blocks.keys().collect::<Vec<_>>() {
        function.blocks[block].insts.retain(|inst| !gone.contains(inst));
    }
    Ok(())
}
