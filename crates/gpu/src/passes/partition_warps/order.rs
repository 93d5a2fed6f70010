//! Synchronizes the partitions at stores to memory that the producer may load.
//!
//! ```text
//! store %p, %x         named_barrier       named_barrier
//! … load %q …    =>    store %p, %x
//!                      named_barrier       named_barrier
//!                                          … load %q …
//! ```
//! On the right are the consumer and the producer. They reach the same barriers in the same order.
//! Stores with only pure ops between them share a pair of barriers. Stores to memory that no
//! pointer of the producer points to need none. Pointers of different arguments are assumed to
//! point to different memory; loaded pointers may point to any.

use rustc_hash::FxHashSet;
use smallvec::smallvec;
use tilewright_ir::{Block, Effect, Inst, OpFamily, Operation, Value};

use crate::passes::barriers::BARRIER_OF_ALL;
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::{Function, GpuOp, Module, Op};

pub struct Stores {
    barriers: [Inst; 2],
    stores: Vec<Inst>,
}

pub fn is_mark(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::NamedBarrier { barrier: BARRIER_OF_ALL, .. }))
}

/// Inserts barriers of `warps` warps around all stores of a block and its regions.
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
            let op = GpuOp::NamedBarrier { barrier: BARRIER_OF_ALL, threads };
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

/// Checks that no atomic op may write memory that the producer loads. Other programs may write such
/// memory between the two partitions' loads.
pub fn check(module: &Module, pointers: &[Value]) -> Result<(), &'static str> {
    let (function, global) = (module.kernel(), GlobalAccesses::new(module));
    let mut is_atomic = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let family = data.op.info().family;
        is_atomic |= family == OpFamily::Atomic
            && pointers.iter().any(|pointer| global.may_share_base(*pointer, data.operands[0]));
    });
    if is_atomic {
        return Err("an atomic operation may write memory that copies read or depend on");
    }
    Ok(())
}

/// Removes the barriers at stores to memory that the producer does not load.
pub fn remove_needless(module: &mut Module, stores: &[Stores], [consumer, producer]: [Block; 2]) {
    let function = module.kernel();
    let mut loaded: Vec<Value> = Vec::new();
    function.walk(producer, &mut |inst| {
        let data = &function.insts[inst];
        match data.op {
            Op::Gpu(GpuOp::Load { .. }) => loaded.push(data.operands[0]),
            Op::Gpu(GpuOp::CopyAsync { .. }) => loaded.push(data.operands[1]),
            // tidy: wildcard because other ops that load are tensor copies, and the kernel does not
            // store to the memory that they load
            _ => {}
        }
    });
    let marks = |block: Block| {
        let mut marks = Vec::new();
        function.walk(block, &mut |inst| marks.extend(is_mark(&function.insts[inst].op).then_some(inst)));
        marks
    };
    let global = GlobalAccesses::new(module);
    let is_loaded = |inst: &Inst| {
        let pointer = function.insts[*inst].operands[0];
        loaded.iter().any(|loaded| global.may_share_base(*loaded, pointer))
    };
    let needless: FxHashSet<Inst> = stores
        .iter()
        .filter(|group| !group.stores.iter().any(is_loaded))
        .flat_map(|group| group.barriers)
        .collect();
    // The producer is a copy of the consumer.
    let pairs = marks(consumer).into_iter().zip(marks(producer));
    let gone: FxHashSet<Inst> =
        pairs.filter(|(own, _)| needless.contains(own)).flat_map(|(own, copy)| [own, copy]).collect();
    let function = &mut module.functions[module.entry];
    for block in function.blocks.keys().collect::<Vec<_>>() {
        function.blocks[block].insts.retain(|inst| !gone.contains(inst));
    }
}
