//! What instructions do to memory, and the walk over structured control flow that follows which accesses may still be under
//! way in other warps.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use crate::language::{Function, GpuOp, Op};

/// Memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Shared memory, named by the value that its `alloc` gives.
    Shared(Value),
    /// Global memory, named by the load or store.
    Global(Inst),
}

/// An effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// All threads store.
    Write(Place),
    /// All threads load.
    Read(Place),
    /// All threads of the block wait for each other.
    Barrier,
}

/// The memory that a buffer or a slot of it is part of.
pub fn root(function: &Function, memory: Value) -> Value {
    let mut root = memory;
    while let Some(inst) = function.defining_inst(root) {
        match &function.insts[inst].op {
            Op::Gpu(GpuOp::Slot {} | GpuOp::Acquire {} | GpuOp::Take {}) => {
                root = function.insts[inst].operands[0];
            }
            // tidy: wildcard because no other op gives a part of memory
            _ => break,
        }
    }
    root
}

/// What an instruction does to memory, in order. Copies and products that are waited for by other means than barriers of the
/// block count as what they are to a barrier: what the threads have begun before it.
pub fn effects(function: &Function, inst: Inst) -> SmallVec<[Effect; 3]> {
    let data = &function.insts[inst];
    let shared = |place: usize| Place::Shared(root(function, data.operands[place]));
    // Of the first operands, those that are in memory.
    let reads = |count: usize| {
        let in_memory = |place: &usize| function.ty(data.operands[*place]).as_memory().is_some();
        (0..count).filter(in_memory).map(|place| Effect::Read(shared(place)))
    };
    let op = match &data.op {
        Op::Tile(ir::Op::Barrier {}) => return smallvec![Effect::Barrier],
        // tidy: wildcard because what writes to memory is an op of the GPU's own by now.
        Op::Tile(_) => return reads(data.operands.len()).collect(),
        Op::Gpu(op) => op,
    };
    match op {
        GpuOp::Load { .. } => smallvec![Effect::Read(Place::Global(inst))],
        GpuOp::Store { .. } => smallvec![Effect::Write(Place::Global(inst))],
        GpuOp::LocalStore {} | GpuOp::CopyAsync { .. } | GpuOp::MbarrierInit { .. } => {
            smallvec![Effect::Write(shared(0))]
        }
        GpuOp::LocalLoad { .. }
        | GpuOp::TensorStore {}
        | GpuOp::MbarrierExpect { .. }
        | GpuOp::MbarrierArrive {}
        | GpuOp::MbarrierArriveCopies {}
        | GpuOp::MbarrierWait {} => smallvec![Effect::Read(shared(0))],
        GpuOp::MmaSync { .. } | GpuOp::FmaDot { .. } | GpuOp::Wgmma { .. } => reads(2).collect(),
        GpuOp::TensorLoad {} => smallvec![Effect::Read(shared(2))],
        GpuOp::ConvertLayout {}
        | GpuOp::Elementwise { .. }
        | GpuOp::Reduce { .. }
        | GpuOp::Alloc { .. }
        | GpuOp::Dealloc {}
        | GpuOp::Slot {}
        | GpuOp::CommitGroup {}
        | GpuOp::WaitGroup { .. }
        | GpuOp::TensorStoreWait { .. }
        | GpuOp::Finish { .. }
        | GpuOp::FenceProxy {}
        | GpuOp::NamedBarrier { .. }
        | GpuOp::WarpRoles { .. }
        | GpuOp::Acquire {}
        | GpuOp::Publish {}
        | GpuOp::Take {}
        | GpuOp::Release {} => smallvec![],
    }
}

/// The accesses that some warps may not have done yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Open {
    /// What is being loaded from.
    pub reads: BTreeSet<Place>,
    /// What is being stored into.
    pub writes: BTreeSet<Place>,
    /// Those of them that may be of an earlier iteration of a loop.
    pub stale: BTreeSet<Place>,
}

impl Open {
    /// All threads have waited for each other.
    pub fn close(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.stale.clear();
    }

    /// Whether all threads have to wait before they do this: an access up to their next wait meets one that may be under way,
    /// and one of the two is a store.
    pub fn needs_barrier(&self, effects: &[Effect], meet: impl Fn(Place, Place) -> bool) -> bool {
        effects.iter().take_while(|effect| **effect != Effect::Barrier).any(|effect| match *effect {
            Effect::Write(place) => self.reads.iter().chain(&self.writes).any(|other| meet(place, *other)),
            Effect::Read(place) => self.writes.iter().any(|other| meet(place, *other)),
            Effect::Barrier => false,
        })
    }

    /// They have done this.
    pub fn carry_out(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Barrier => self.close(),
                Effect::Write(place) => {
                    self.writes.insert(place);
                }
                Effect::Read(place) => {
                    self.reads.insert(place);
                }
            }
        }
    }

    fn join(&mut self, other: &Self) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.stale.extend(&other.stale);
    }

    /// What has been opened since then becomes stale.
    fn age(&mut self, since: &Self) {
        self.stale.extend(self.reads.difference(&since.reads));
        self.stale.extend(self.writes.difference(&since.writes));
    }
}

/// Walks a function in the order of execution, again and again until nothing new is open anywhere: nested loops cost no more
/// than others. What `step` does last for an instruction, it does with all that may be open there.
pub fn walk(function: &Function, step: &mut impl FnMut(Inst, &mut Open)) {
    let mut walk = Walk { function, entries: SecondaryMap::new(), changed: true };
    while std::mem::take(&mut walk.changed) {
        walk.block(function.entry, &mut Open::default(), step);
    }
}

struct Walk<'f> {
    function: &'f Function,
    /// What may be open where an iteration of a loop begins.
    entries: SecondaryMap<Inst, Open>,
    changed: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: Block, open: &mut Open, step: &mut impl FnMut(Inst, &mut Open)) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match (data.op.as_tile(), &data.regions[..]) {
                (Some(ir::Op::For { .. }), &[body]) => {
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(body, open, step);
                    open.age(&before);
                    // It may not have run at all.
                    self.enter(*inst, open);
                }
                (Some(ir::Op::While {}), &[condition, body]) => {
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(condition, open, step);
                    let after = open.clone();
                    self.block(body, open, step);
                    open.age(&before);
                    self.enter(*inst, open);
                    *open = after;
                }
                (Some(ir::Op::If {}), &[then, otherwise]) => {
                    let mut other = open.clone();
                    self.block(then, open, step);
                    self.block(otherwise, &mut other, step);
                    open.join(&other);
                }
                // tidy: wildcard because the other ops are straight code
                _ => step(*inst, open),
            }
        }
    }

    /// An iteration of a loop may begin with this, and with what others begin with.
    fn enter(&mut self, inst: Inst, open: &mut Open) {
        let entry = &mut self.entries[inst];
        open.join(entry);
        if *open != *entry {
            entry.clone_from(open);
            self.changed = true;
        }
    }
}
