//! Computes the memory effects of instructions, and the accesses in flight in other warps.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{AsyncPhase, Block, Inst, MemoryAccess, MemorySemantics, Operation, Value};

use tilewright_gpu_ir::analysis::slots::{Edge, Slot, SlotAnalysis, SlotIndex};
use tilewright_gpu_ir::{GpuOp, Op, Type};

/// The limit of the count of later dots.
const MAX_LATER: u32 = 64;

/// Memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLocation {
    /// A slot of a buffer, or the whole buffer if the index is unknown.
    Shared(Slot),
    /// The global memory that this load or store accesses.
    Global(Inst),
    /// An acquire that one thread executes for the block. Later global accesses of all threads must
    /// follow it.
    Acquired,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Write(MemoryLocation),
    Read(MemoryLocation),
    Barrier,
}

impl Effect {
    /// Returns the same effect on all slots of its buffer.
    fn anywhere(self) -> Self {
        let all = |place| match place {
            MemoryLocation::Shared(slot) => MemoryLocation::Shared(Slot { index: SlotIndex::Lost, ..slot }),
            MemoryLocation::Global(_) | MemoryLocation::Acquired => place,
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

/// Returns whether two slots of one buffer may be equal. They are not if their indices differ by a
/// nonzero constant.
pub fn may_share_base(a: Slot, b: Slot) -> bool {
    match (a.index, b.index) {
        (SlotIndex::At(a), SlotIndex::At(b)) => a.base != b.base || a.offset == b.offset,
        (SlotIndex::Lost, _) | (_, SlotIndex::Lost) => true,
    }
}

/// Returns the effects of an instruction on memory, in order.
///
/// An asynchronous copy or dot is an effect of the op that starts it.
pub fn effects(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let data = &function.insts[inst];
    let shared = |operand: usize| MemoryLocation::Shared(slot(analysis, data.operands[operand]));
    let memory = match &data.op {
        Op::Tile(ir::Op::Barrier {}) => return smallvec![Effect::Barrier],
        // The partitions start the effects of their regions in any order.
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => return effects_inside(analysis, inst),
        // One thread invalidates the `mbarrier`s. No other thread may still wait for them, and
        // later accesses to the memory must follow.
        Op::Gpu(GpuOp::Dealloc {}) if matches!(function.ty(data.operands[0]), Type::Mbarrier { .. }) => {
            return smallvec![Effect::Write(shared(0))];
        }
        // tidy: wildcard because ops of the GPU dialect have replaced those that access global
        // memory. The others may have operands in shared memory.
        Op::Tile(_) => MemoryAccess::ReadsOperands,
        Op::Gpu(op) => op.info().memory,
    };
    match memory {
        MemoryAccess::None => smallvec![],
        MemoryAccess::ReadsGlobal => smallvec![Effect::Read(MemoryLocation::Global(inst))],
        MemoryAccess::WritesGlobal => smallvec![Effect::Write(MemoryLocation::Global(inst))],
        MemoryAccess::ReadsShared => smallvec![Effect::Read(shared(0))],
        MemoryAccess::WritesShared => smallvec![Effect::Write(shared(0))],
        MemoryAccess::FillsShared => {
            let is_barriers = |value: &Value| matches!(function.ty(*value), Type::Mbarrier { .. });
            let barriers = data.operands.iter().position(is_barriers);
            let barriers = barriers.expect("the verifier checks that an operand is `mbarrier`s");
            smallvec![Effect::Write(shared(0)), Effect::Read(shared(barriers))]
        }
        MemoryAccess::ReadsOperands => {
            let in_memory = |operand: &usize| function.ty(data.operands[*operand]).as_memory().is_some();
            (0..data.operands.len()).filter(in_memory).map(|operand| Effect::Read(shared(operand))).collect()
        }
    }
}

/// Returns how an atomic operation orders the block's global accesses; `None` for other ops.
///
/// One thread executes the operation for each element. Other threads wait for it after an acquire,
/// and it waits for them before a release.
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

/// Returns the memory effects of regions, each on all slots of its buffer.
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

/// Returns the memory that the asynchronous proxy reads in the function.
pub fn read_asynchronously(analysis: &SlotAnalysis<'_>) -> BTreeSet<MemoryLocation> {
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

/// Returns the effects of the copies for which an instruction waits. Each thread waits only for its
/// own copies, so other threads need a barrier after the instruction.
pub fn landed(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let awaited = match function.insts[inst].op.info().phase.awaited() {
        // A thread waits for the dots of its whole warpgroup.
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

/// The accesses that some warps may not have completed yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Open {
    /// The memory with loads in flight.
    pub reads: BTreeSet<MemoryLocation>,
    /// The memory with stores in flight.
    pub writes: BTreeSet<MemoryLocation>,
    /// The memory whose accesses may be of an earlier iteration.
    pub stale: BTreeSet<MemoryLocation>,
    /// The memory that unfinished asynchronous dots may read, even after barriers. The number
    /// counts the dots that started after the last reader of this memory.
    dots: BTreeMap<MemoryLocation, u32>,
    /// The memory that warps read before they arrived at `mbarrier`s.
    ///
    /// A wait for one of these `mbarrier`s completes the reads. The set has the `mbarrier`s of all
    /// paths, and may be empty.
    released: BTreeMap<MemoryLocation, BTreeSet<Slot>>,
    /// Memory that threads wrote and have not fenced, and that the asynchronous proxy reads. A
    /// fence covers only its own thread's writes, so they are in flight again until a barrier.
    unfenced: BTreeSet<MemoryLocation>,
}

impl Open {
    /// Completes all accesses except those of asynchronous dots.
    pub fn close(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.stale.clear();
        self.released.clear();
    }

    /// Releases the reads that an arrival covers; completes them at a wait.
    ///
    /// An arrival at `mbarrier` `i` covers slot `i` of each buffer with as many slots as there are
    /// `mbarrier`s.
    pub fn release_effects(&mut self, analysis: &SlotAnalysis<'_>, inst: Inst) {
        let Some(barrier) = analysis.barrier(inst) else { return };
        match &analysis.function.insts[inst].op {
            Op::Gpu(GpuOp::MbarrierArrive {}) => {
                let slots = analysis.slots(barrier.root);
                let is_its = |place: &MemoryLocation| match place {
                    MemoryLocation::Shared(slot) => {
                        slot.root != barrier.root
                            && slot.index == barrier.index
                            && analysis.slots(slot.root) == slots
                    }
                    MemoryLocation::Global(_) | MemoryLocation::Acquired => false,
                };
                // The arrival also covers reads that were released to other `mbarrier`s.
                for (_, barriers) in self.released.iter_mut().filter(|(place, _)| is_its(place)) {
                    barriers.insert(barrier);
                }
                let done: Vec<MemoryLocation> = self.reads.iter().copied().filter(is_its).collect();
                for place in done {
                    self.reads.remove(&place);
                    self.released.insert(place, BTreeSet::from([barrier]));
                }
            }
            Op::Gpu(GpuOp::MbarrierWait {}) => {
                self.released.retain(|_, barriers| !barriers.contains(&barrier));
            }
            // tidy: wildcard because nothing else releases reads
            _ => {}
        }
    }

    /// Returns whether effects need a barrier before them.
    ///
    /// They need one if an effect conflicts with an access in flight. Only effects before a barrier
    /// of the instruction count. `meet` returns whether two accesses may access the same memory.
    pub fn needs_barrier(
        &self,
        effects: &[Effect],
        meet: impl Fn(MemoryLocation, MemoryLocation) -> bool,
    ) -> bool {
        effects.iter().take_while(|effect| **effect != Effect::Barrier).any(|effect| match *effect {
            Effect::Write(place) => self
                .reads
                .iter()
                .chain(&self.writes)
                .chain(self.released.keys())
                .any(|other| meet(place, *other)),
            Effect::Read(place) => self.writes.iter().any(|other| meet(place, *other)),
            Effect::Barrier => false,
        })
    }

    /// Returns whether global accesses are in flight, or another thread's acquire is open.
    pub fn has_global(&self) -> bool {
        let is_global =
            |place: &MemoryLocation| matches!(place, MemoryLocation::Global(_) | MemoryLocation::Acquired);
        self.reads.iter().chain(&self.writes).any(is_global)
    }

    /// Adds the effects of an instruction.
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

    /// Adds the effects of asynchronous dots, of their waits and of fences. `read` is the result of
    /// [`read_asynchronously`].
    ///
    /// A dot reads its operands until it ends, so barriers before its wait do not cover the reads.
    /// A barrier between a store and its fence does not make the store visible.
    pub fn carry_out_asynchronously(&mut self, op: &Op, effects: &[Effect], read: &BTreeSet<MemoryLocation>) {
        match op {
            Op::Gpu(GpuOp::Wgmma { .. }) => {
                self.dots.values_mut().for_each(|later| *later = (*later + 1).min(MAX_LATER));
                let read = |effect: &Effect| match *effect {
                    Effect::Read(place) => Some((place, 0)),
                    Effect::Write(_) | Effect::Barrier => None,
                };
                self.dots.extend(effects.iter().filter_map(read));
            }
            Op::Gpu(GpuOp::WgmmaWait { pending }) => self.end_dots(pending.0.unwrap_or(MAX_LATER)),
            Op::Gpu(GpuOp::WgmmaWaitEarlier { pending }) => self.end_dots(*pending),
            op if op.info().memory == MemoryAccess::WritesShared => {
                let written =
                    effects.iter().map(|effect| effect.anywhere()).filter_map(|effect| match effect {
                        Effect::Write(place) if read.contains(&place) => Some(place),
                        Effect::Write(_) | Effect::Read(_) | Effect::Barrier => None,
                    });
                self.unfenced.extend(written);
            }
            Op::Gpu(GpuOp::FenceProxy {}) if effects.is_empty() => {
                self.writes.append(&mut self.unfenced);
            }
            // tidy: wildcard because nothing else is done by the asynchronous proxy, or for it
            _ => {}
        }
    }

    /// Ends the warp's dots except the last `pending` ones. Other warps' reads stay in flight until
    /// a barrier.
    fn end_dots(&mut self, pending: u32) {
        let is_done = |later: u32| later >= pending;
        let done = self.dots.iter().filter(|(_, later)| is_done(**later)).map(|(place, _)| *place);
        self.reads.extend(done);
        self.dots.retain(|_, later| !is_done(*later));
    }

    fn join(&mut self, other: &Self) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.stale.extend(&other.stale);
        for (place, later) in &other.dots {
            let known = self.dots.entry(*place).or_insert(*later);
            *known = (*known).min(*later);
        }
        for (place, barriers) in &other.released {
            let known = self.released.entry(*place).or_insert_with(|| barriers.clone());
            known.retain(|barrier| barriers.contains(barrier));
        }
        self.unfenced.extend(&other.unfenced);
    }

    /// Replaces the index of each slot by its index after an edge.
    fn rename(&mut self, analysis: &SlotAnalysis<'_>, edge: &Edge) {
        let rename = |place| match place {
            MemoryLocation::Shared(slot) => MemoryLocation::Shared(analysis.rename(slot, edge)),
            MemoryLocation::Global(_) | MemoryLocation::Acquired => place,
        };
        for (place, later) in std::mem::take(&mut self.dots) {
            let known = self.dots.entry(rename(place)).or_insert(later);
            *known = (*known).min(later);
        }
        for places in [&mut self.reads, &mut self.writes, &mut self.stale] {
            *places = std::mem::take(places).into_iter().map(rename).collect();
        }
        for (place, barriers) in std::mem::take(&mut self.released) {
            let barriers: BTreeSet<Slot> =
                barriers.into_iter().map(|barrier| analysis.rename(barrier, edge)).collect();
            let known = self.released.entry(rename(place)).or_insert_with(|| barriers.clone());
            known.retain(|barrier| barriers.contains(barrier));
        }
    }

    /// Marks accesses that are in flight now, but not in `since`, as stale.
    fn age(&mut self, since: &Self) {
        self.stale.extend(self.reads.difference(&since.reads));
        self.stale.extend(self.writes.difference(&since.writes));
    }
}

/// Walks a function until the open accesses reach a fixed point.
///
/// Each walk visits the whole function, so nested loops do not multiply the visits. `step` may see
/// an instruction several times; its last call gets all open accesses.
pub fn walk(analysis: &SlotAnalysis<'_>, step: &mut impl FnMut(Inst, &mut Open)) {
    let mut walk = Walk { analysis, entries: SecondaryMap::new(), changed: true };
    while std::mem::take(&mut walk.changed) {
        walk.block(analysis.function.entry, &mut Open::default(), step);
    }
}

struct Walk<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The accesses that may be open at the start of an iteration.
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
                    // The loop may have had no iteration.
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
                    // The barriers of a partition do not wait for other partitions.
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

    /// Joins the open accesses with those of other iterations.
    fn enter(&mut self, inst: Inst, open: &mut Open) {
        let entry = &mut self.entries[inst];
        open.join(entry);
        if *open != *entry {
            entry.clone_from(open);
            self.changed = true;
        }
    }
}
