//! Computes the memory effects of instructions. A forward walk of structured control flow finds the
//! accesses that may still be in flight in other warps.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{AsyncPhase, Block, Inst, MemoryAccess, MemorySemantics, Operation, Value};

use tilewright_gpu_ir::analysis::slots::{Edge, Slot, SlotAnalysis, SlotIndex};
use tilewright_gpu_ir::{GpuOp, Op, Type};

/// The maximum of the count of dots that started after a given dot.
const MAX_LATER: u32 = 64;

/// Memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLocation {
    /// A slot of a buffer in shared memory, or the whole buffer if the index of the slot is
    /// unknown.
    Shared(Slot),
    /// The global memory that this load or store accesses.
    Global(Inst),
    /// An acquire that one thread executes for all threads of the block. Later accesses of all
    /// threads to global memory must be ordered after it.
    Acquired,
}

/// An effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// All threads store.
    Write(MemoryLocation),
    /// All threads load.
    Read(MemoryLocation),
    /// All threads of the block wait for each other.
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

/// Returns whether two slots of one buffer may be the same. They differ if their indices differ by
/// a nonzero constant.
pub fn may_share_base(a: Slot, b: Slot) -> bool {
    match (a.index, b.index) {
        (SlotIndex::At(a), SlotIndex::At(b)) => a.base != b.base || a.offset == b.offset,
        (SlotIndex::Lost, _) | (_, SlotIndex::Lost) => true,
    }
}

/// Returns the effects of an instruction on memory, in order.
///
/// An asynchronous copy or dot counts as an effect of the op that starts it, although it completes
/// later.
pub fn effects(analysis: &SlotAnalysis<'_>, inst: Inst) -> SmallVec<[Effect; 3]> {
    let function = analysis.function;
    let data = &function.insts[inst];
    let shared = |operand: usize| MemoryLocation::Shared(slot(analysis, data.operands[operand]));
    let memory = match &data.op {
        Op::Tile(ir::Op::Barrier {}) => return smallvec![Effect::Barrier],
        // When the op ends, its partitions have started all effects of their regions, in any order.
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => return effects_inside(analysis, inst),
        // One thread invalidates the `mbarrier`s. No other thread may still wait for them, and
        // later accesses to their memory must follow.
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
        MemoryAccess::FillsShared => smallvec![Effect::Write(shared(0)), Effect::Read(shared(2))],
        MemoryAccess::ReadsOperands => {
            let in_memory = |operand: &usize| function.ty(data.operands[*operand]).as_memory().is_some();
            (0..data.operands.len()).filter(in_memory).map(|operand| Effect::Read(shared(operand))).collect()
        }
    }
}

/// Returns how an atomic operation orders the accesses of the thread block to global memory.
/// Returns `None` for other ops.
///
/// One thread executes the operation for each element. After an acquire, the other threads must
/// wait for this thread. Before a release, this thread must wait for the other threads.
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

/// Returns the memory effects of the regions of an instruction, each on all slots of its buffer.
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

/// Returns the effects of the asynchronous copies for which an instruction waits. Each thread waits
/// only for its own copies. A barrier before the instruction does not complete them, so other
/// threads need a barrier after it.
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

/// The accesses that some warps may not have completed yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Open {
    /// The memory with loads in flight.
    pub reads: BTreeSet<MemoryLocation>,
    /// The memory with stores in flight.
    pub writes: BTreeSet<MemoryLocation>,
    /// The memory whose accesses may be of an earlier iteration of a loop.
    pub stale: BTreeSet<MemoryLocation>,
    /// The memory that unfinished asynchronous dots may read, even after barriers. The number
    /// counts the dots that started after the last dot that reads this memory.
    dots: BTreeMap<MemoryLocation, u32>,
    /// The memory that warps read before they arrived at `mbarrier`s, with these `mbarrier`s.
    ///
    /// A wait for any of these `mbarrier`s completes the reads. The set has only the `mbarrier`s
    /// that are common to all paths, and may be empty.
    released: BTreeMap<MemoryLocation, BTreeSet<Slot>>,
    /// Memory that the asynchronous proxy reads, and that threads wrote since their last proxy
    /// fence without slots. A fence covers only the writes of its own thread. So after the fence,
    /// these writes count as stores in flight again, until a barrier.
    unfenced: BTreeSet<MemoryLocation>,
}

impl Open {
    /// Completes all accesses except those of asynchronous dots: all threads have waited for each
    /// other.
    pub fn close(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.stale.clear();
        self.released.clear();
    }

    /// At an arrival at an `mbarrier`, releases the reads that the arrival covers. At a wait for
    /// the `mbarrier`, completes these reads.
    ///
    /// An arrival at `mbarrier` `i` covers slot `i` of each buffer that has as many slots as there
    /// are `mbarrier`s.
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
                // The arrival also covers reads that earlier arrivals have released to other
                // `mbarrier`s.
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
    /// They need a barrier if one of them conflicts with an access that may be in flight. If the
    /// effects include a barrier, only the effects before it count. `meet` returns whether two
    /// accesses may access the same memory.
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

    /// Returns whether accesses to global memory may be in flight, or another thread's acquire is
    /// open.
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
    /// A dot reads its operands until it is finished, so barriers before its wait do not cover
    /// these reads. A barrier between a store and its fence does not make the store visible to the
    /// asynchronous proxy.
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

    /// Ends all dots of the warp except the last `pending` dots. Other warps may still execute
    /// their dots, so the reads stay in flight until a barrier.
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

    /// Replaces the index of each slot by its index after an edge of control flow.
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

    /// Marks the accesses that are in flight now, but were not in `since`, as stale.
    fn age(&mut self, since: &Self) {
        self.stale.extend(self.reads.difference(&since.reads));
        self.stale.extend(self.writes.difference(&since.writes));
    }
}

/// Walks a function in the order of execution, until the open accesses reach a fixed point.
///
/// Each walk visits the whole function. It does not repeat each loop until the loop's own fixed
/// point, so nested loops do not multiply the visits. `step` may be called several times for an
/// instruction. Its last call gets all accesses that may be open there.
pub fn walk(analysis: &SlotAnalysis<'_>, step: &mut impl FnMut(Inst, &mut Open)) {
    let mut walk = Walk { analysis, entries: SecondaryMap::new(), changed: true };
    while std::mem::take(&mut walk.changed) {
        walk.block(analysis.function.entry, &mut Open::default(), step);
    }
}

struct Walk<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The accesses that may be open where an iteration of a loop begins.
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

    /// Joins the open accesses before an iteration of a loop with those of other iterations.
    fn enter(&mut self, inst: Inst, open: &mut Open) {
        let entry = &mut self.entries[inst];
        open.join(entry);
        if *open != *entry {
            entry.clone_from(open);
            self.changed = true;
        }
    }
}
