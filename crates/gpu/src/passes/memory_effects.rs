//! Memory effects of instructions, and a forward dataflow walk over structured control flow that follows which accesses may
//! still be under way in other warps.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{AsyncPhase, Block, Inst, MemoryAccess, MemorySemantics, Operation, Value};

use tilewright_gpu_ir::analysis::slots::{Edge, Slot, SlotAnalysis, SlotIndex};
use tilewright_gpu_ir::{GpuOp, Op};

/// Products beyond this count as this many.
const MOST_LATER: u32 = 64;

/// Memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A slot of shared memory, or all of it where it is not known which.
    Shared(Slot),
    /// Global memory, named by the load or store.
    Global(Inst),
    /// What one thread has acquired for all: who accesses global memory comes after it.
    Acquired,
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

impl Effect {
    /// The same on all slots of its memory.
    fn anywhere(self) -> Self {
        let all = |place| match place {
            Place::Shared(slot) => Place::Shared(Slot { index: SlotIndex::Lost, ..slot }),
            Place::Global(_) | Place::Acquired => place,
        };
        match self {
            Self::Write(place) => Self::Write(all(place)),
            Self::Read(place) => Self::Read(all(place)),
            Self::Barrier => Self::Barrier,
        }
    }
}

fn slot(analysis: &SlotAnalysis<'_>, memory: Value) -> Slot {
    let root = || analysis.root(memory).expect("the verifier traces memory to its alloc");
    analysis.slot(memory).unwrap_or_else(|| Slot { root: root(), index: SlotIndex::Lost })
}

/// Whether two slots of one memory may be one: they are not where their names differ by a constant.
pub fn may_be_one(a: Slot, b: Slot) -> bool {
    match (a.index, b.index) {
        (SlotIndex::At(a), SlotIndex::At(b)) => a.base != b.base || a.offset == b.offset,
        (SlotIndex::Lost, _) | (_, SlotIndex::Lost) => true,
    }
}

/// Returns the effects of an instruction on memory, in order.
///
/// To a barrier, asynchronous copies and dots that other ops wait for are effects of the threads
/// that have started them before it.
pub fn effects(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let data = &function.insts[inst];
    let shared = |operand: usize| Place::Shared(slot(analysis, data.operands[operand]));
    let memory = match &data.op {
        Op::Tile(ir::Op::Barrier {}) => return smallvec![Effect::Barrier],
        // Its partitions have started all of that when it ends, each at its own time.
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => return effects_inside(analysis, inst),
        // tidy: wildcard because ops of the GPU dialect have replaced those that access global
        // memory. The others may have operands in shared memory.
        Op::Tile(_) => MemoryAccess::ReadsOperands,
        Op::Gpu(op) => op.info().memory,
    };
    match memory {
        MemoryAccess::None => smallvec![],
        MemoryAccess::ReadsGlobal => smallvec![Effect::Read(Place::Global(inst))],
        MemoryAccess::WritesGlobal => smallvec![Effect::Write(Place::Global(inst))],
        MemoryAccess::ReadsShared => smallvec![Effect::Read(shared(0))],
        MemoryAccess::WritesShared => smallvec![Effect::Write(shared(0))],
        MemoryAccess::FillsShared => smallvec![Effect::Write(shared(0)), Effect::Read(shared(2))],
        MemoryAccess::ReadsOperands => {
            let in_memory = |operand: &usize| function.ty(data.operands[*operand]).as_memory().is_some();
            (0..data.operands.len()).filter(in_memory).map(|operand| Effect::Read(shared(operand))).collect()
        }
    }
}

/// How an atomic operation orders what all threads of the block do to global memory. Each of its elements is done by one
/// thread, so the others have to wait for it, or it for them.
pub fn ordering(op: &Op) -> Option<MemorySemantics> {
    match op.as_gpu()? {
        GpuOp::AtomicRmw { sem, .. }
        | GpuOp::AtomicCas { sem, .. }
        | GpuOp::AtomicLoad { sem, .. }
        | GpuOp::AtomicStore { sem, .. }
        | GpuOp::AtomicPoll { sem, .. } => Some(*sem),
        // tidy: wildcard because nothing else orders accesses to global memory
        _ => None,
    }
}

/// What the regions of an instruction do to memory.
fn effects_inside(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let mut all = SmallVec::new();
    for region in &function.insts[inst].regions {
        function.walk(*region, &mut |inner| {
            let effects = effects(analysis, inner);
            all.extend(effects.into_iter().filter(|effect| *effect != Effect::Barrier).map(Effect::anywhere));
        });
    }
    all
}

/// Returns the memory that the asynchronous proxy reads somewhere in the function.
pub fn read_asynchronously(analysis: &SlotAnalysis<'_>) -> BTreeSet<Place> {
    let function = analysis.function;
    let mut found = BTreeSet::new();
    function.walk(function.entry, &mut |inst| {
        if function.insts[inst].op.info().phase.starts_proxy_read() {
            let read = |effect: Effect| match effect.anywhere() {
                Effect::Read(place) => Some(place),
                Effect::Write(_) | Effect::Barrier => None,
            };
            found.extend(effects(analysis, inst).into_iter().filter_map(read));
        }
    });
    found
}

/// Returns the effects that become visible to other threads after an instruction by which each
/// thread waits for its own copies. A barrier before it did not wait for them.
pub fn landed(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let awaited = match function.insts[inst].op.info().phase.awaited() {
        // Every thread waits for the dots of its warpgroup.
        None | Some(AsyncPhase::StartsDot) => return smallvec![],
        Some(awaited) => awaited,
    };
    let mut all = SmallVec::new();
    function.walk(function.entry, &mut |started| {
        if function.insts[started].op.info().phase == awaited {
            all.extend(effects(analysis, started).into_iter().map(Effect::anywhere));
        }
    });
    all
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
    /// What asynchronous products that no thread has finished may read, whatever barriers there were.
    /// So many were begun since.
    products: BTreeMap<Place, u32>,
    /// What warps read before they arrived at barriers: it is done when any of these was waited for. None is left where that
    /// depends on the path.
    handed: BTreeMap<Place, BTreeSet<Slot>>,
    /// What was stored and what is being copied that the asynchronous proxy reads, and that no fence made visible to it.
    unfenced: BTreeSet<Place>,
}

impl Open {
    /// All threads have waited for each other.
    pub fn close(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.stale.clear();
        self.handed.clear();
    }

    /// Each warp arrives at a barrier behind its reads of the slot of the same number, in memory of as many slots; or waits until
    /// all have.
    pub fn hand_over(&mut self, analysis: &SlotAnalysis<'_>, inst: Inst) {
        let Some(barrier) = analysis.barrier(inst) else { return };
        match &analysis.function.insts[inst].op {
            Op::Gpu(GpuOp::MbarrierArrive {}) => {
                let slots = analysis.slots(barrier.root);
                let is_its = |place: &Place| match place {
                    Place::Shared(slot) => {
                        slot.root != barrier.root
                            && slot.index == barrier.index
                            && analysis.slots(slot.root) == slots
                    }
                    Place::Global(_) | Place::Acquired => false,
                };
                // It comes behind what was handed over at another barrier as well.
                for (_, barriers) in self.handed.iter_mut().filter(|(place, _)| is_its(place)) {
                    barriers.insert(barrier);
                }
                let done: Vec<Place> = self.reads.iter().copied().filter(is_its).collect();
                for place in done {
                    self.reads.remove(&place);
                    self.handed.insert(place, BTreeSet::from([barrier]));
                }
            }
            Op::Gpu(GpuOp::MbarrierWait {}) => self.handed.retain(|_, barriers| !barriers.contains(&barrier)),
            // tidy: wildcard because nothing else hands over what it has read
            _ => {}
        }
    }

    /// Whether all threads have to wait before they do this: an access up to their next wait meets one that may be under way,
    /// and one of the two is a store.
    pub fn needs_barrier(&self, effects: &[Effect], meet: impl Fn(Place, Place) -> bool) -> bool {
        effects.iter().take_while(|effect| **effect != Effect::Barrier).any(|effect| match *effect {
            Effect::Write(place) => self
                .reads
                .iter()
                .chain(&self.writes)
                .chain(self.handed.keys())
                .any(|other| meet(place, *other)),
            Effect::Read(place) => self.writes.iter().any(|other| meet(place, *other)),
            Effect::Barrier => false,
        })
    }

    /// Whether accesses to global memory may be under way, or behind what another thread acquired.
    pub fn has_global(&self) -> bool {
        let is_global = |place: &Place| matches!(place, Place::Global(_) | Place::Acquired);
        self.reads.iter().chain(&self.writes).any(is_global)
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

    /// Products begin to read their operands, and have read them when they are finished: a barrier between did not wait for
    /// that. No barrier between a store and its fence lets the asynchronous proxy of other threads see the store either.
    pub fn carry_out_asynchronously(&mut self, op: &Op, effects: &[Effect], read: &BTreeSet<Place>) {
        match op {
            Op::Gpu(GpuOp::Wgmma { .. }) => {
                self.products.values_mut().for_each(|later| *later = (*later + 1).min(MOST_LATER));
                let read = |effect: &Effect| match *effect {
                    Effect::Read(place) => Some((place, 0)),
                    Effect::Write(_) | Effect::Barrier => None,
                };
                self.products.extend(effects.iter().filter_map(read));
            }
            Op::Gpu(GpuOp::WgmmaWait { pending }) => self.end_products(pending.0.unwrap_or(MOST_LATER)),
            Op::Gpu(GpuOp::WgmmaWaitEarlier { pending }) => self.end_products(*pending),
            op if op.info().memory == MemoryAccess::WritesShared => {
                let written =
                    effects.iter().map(|effect| effect.anywhere()).filter_map(|effect| match effect {
                        Effect::Write(place) if read.contains(&place) => Some(place),
                        Effect::Write(_) | Effect::Read(_) | Effect::Barrier => None,
                    });
                self.unfenced.extend(written);
            }
            Op::Gpu(GpuOp::FenceProxy {}) if effects.is_empty() => self.writes.extend(&self.unfenced),
            // tidy: wildcard because nothing else is done by the asynchronous proxy, or for it
            _ => {}
        }
    }

    /// All products have read their operands but those that so many were begun after, less one.
    fn end_products(&mut self, pending: u32) {
        let is_done = |later: u32| later >= pending;
        let done = self.products.iter().filter(|(_, later)| is_done(**later)).map(|(place, _)| *place);
        self.reads.extend(done);
        self.products.retain(|_, later| !is_done(*later));
    }

    fn join(&mut self, other: &Self) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.stale.extend(&other.stale);
        for (place, later) in &other.products {
            let known = self.products.entry(*place).or_insert(*later);
            *known = (*known).min(*later);
        }
        for (place, barriers) in &other.handed {
            let known = self.handed.entry(*place).or_insert_with(|| barriers.clone());
            known.retain(|barrier| barriers.contains(barrier));
        }
        self.unfenced.extend(&other.unfenced);
    }

    /// Slots get their names behind an edge of control flow.
    fn rename(&mut self, analysis: &SlotAnalysis<'_>, edge: &Edge) {
        let rename = |place| match place {
            Place::Shared(slot) => Place::Shared(analysis.rename(slot, edge)),
            Place::Global(_) | Place::Acquired => place,
        };
        for (place, later) in std::mem::take(&mut self.products) {
            let known = self.products.entry(rename(place)).or_insert(later);
            *known = (*known).min(later);
        }
        for places in [&mut self.reads, &mut self.writes, &mut self.stale] {
            *places = std::mem::take(places).into_iter().map(rename).collect();
        }
        for (place, barriers) in std::mem::take(&mut self.handed) {
            let barriers: BTreeSet<Slot> =
                barriers.into_iter().map(|barrier| analysis.rename(barrier, edge)).collect();
            let known = self.handed.entry(rename(place)).or_insert_with(|| barriers.clone());
            known.retain(|barrier| barriers.contains(barrier));
        }
    }

    /// What has been opened since then becomes stale.
    fn age(&mut self, since: &Self) {
        self.stale.extend(self.reads.difference(&since.reads));
        self.stale.extend(self.writes.difference(&since.writes));
    }
}

/// Walks a function in the order of execution, again and again until nothing new is open anywhere: nested loops cost no more
/// than others. What `step` does last for an instruction, it does with all that may be open there.
pub fn walk(analysis: &SlotAnalysis<'_>, step: &mut impl FnMut(Inst, &mut Open)) {
    let mut walk = Walk { analysis, entries: SecondaryMap::new(), changed: true };
    while std::mem::take(&mut walk.changed) {
        walk.block(analysis.function.entry, &mut Open::default(), step);
    }
}

struct Walk<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// What may be open where an iteration of a loop begins.
    entries: SecondaryMap<Inst, Open>,
    changed: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: Block, open: &mut Open, step: &mut impl FnMut(Inst, &mut Open)) {
        let analysis = self.analysis;
        let function = analysis.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match (data.op.as_tile(), &data.regions[..]) {
                (Some(ir::Op::For { .. }), &[body]) => {
                    let [enter, back, leave] = analysis.for_edges(*inst);
                    open.rename(analysis, &enter);
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(body, open, step);
                    open.rename(analysis, &back);
                    open.age(&before);
                    // It may not have run at all.
                    self.enter(*inst, open);
                    open.rename(analysis, &leave);
                }
                (Some(ir::Op::While {}), &[condition, body]) => {
                    let [enter, onward, back, leave] = analysis.while_edges(*inst);
                    open.rename(analysis, &enter);
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(condition, open, step);
                    let after = open.clone();
                    open.rename(analysis, &onward);
                    self.block(body, open, step);
                    open.rename(analysis, &back);
                    open.age(&before);
                    self.enter(*inst, open);
                    *open = after;
                    open.rename(analysis, &leave);
                }
                (Some(ir::Op::If {}), &[then, otherwise]) => {
                    let mut other = open.clone();
                    for (region, open) in [(then, &mut *open), (otherwise, &mut other)] {
                        self.block(region, open, step);
                        open.rename(analysis, &analysis.branch_edge(*inst, region));
                    }
                    open.join(&other);
                }
                (None, regions) if matches!(data.op, Op::Gpu(GpuOp::WarpSpecialize { .. })) => {
                    // What one role does, no other one waits for at its barriers.
                    for region in regions {
                        self.block(*region, &mut Open::default(), step);
                    }
                    step(*inst, open);
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
