//! Rewrites the ops of rings.
//!
//! An `alloc` becomes memory and barriers, and the other ops become waits, arrivals and fences on
//! one slot. Regions that advance a ring carry its next index and phase.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Cursor, Definition, Dtype, Effect, ElementwiseFn, Inst, Operation, Value, ValueData};

use super::counts::InFlightCounts;
use super::facts::{RingFacts, RingSide, Side, is_shared_store};
use super::plan::{RingPlan, RingPlans, Writer};
use tilewright_gpu_ir::{Buffer, Deferred, Function, Gpu, GpuOp, Op, Type};

/// The next slot of the producer or the consumer, as in CUTLASS.
#[derive(Clone, Debug)]
struct PipelineState {
    /// The index of the slot; 0 in a ring of one slot.
    index: Value,
    /// The index of the slot, if it is a constant.
    slot: Option<u32>,
    /// The parity of the phase to wait for, if the side waits for an `mbarrier`.
    phase: Option<Value>,
    /// The number of slots passed so far, if it is a constant.
    passed: Option<u32>,
}

type PipelineStates = BTreeMap<RingSide, PipelineState>;

/// The carried phase of a side whose iterations begin at the same slot.
#[derive(Clone, Copy, Debug)]
enum CarriedPhase {
    /// No phase: each iteration starts in the same phase.
    Same,
    /// The phase itself.
    Own,
    /// The parity of the iteration, shared with other sides. The field is the first phase.
    Parity(bool),
}

/// The values that a region carries for the sides that advance in it.
#[derive(Default)]
struct Carried {
    /// The sides whose index and phase are carried.
    sides: BTreeSet<RingSide>,
    /// The sides that advance by a multiple of their ring's slots in each iteration.
    whole: BTreeMap<RingSide, CarriedPhase>,
    /// The parity of the next iteration, in a body that carries it.
    next_parity: Option<Value>,
}

impl Carried {
    fn has_parity(&self) -> bool {
        self.whole.values().any(|phase| matches!(phase, CarriedPhase::Parity(_)))
    }
}

/// The values that replace the token of an `acquire` or a `take`.
#[derive(Clone, Copy)]
struct HeldSlot {
    root: Value,
    index: Value,
    /// The slot; the whole buffer if it has one slot or is not accessed.
    slot: Value,
}

#[derive(Clone, Copy, Default)]
struct Barriers {
    full: Option<Value>,
    empty: Option<Value>,
}

pub fn rewrite(function: &mut Function, plans: RingPlans, counts: InFlightCounts, facts: RingFacts) {
    let entry = function.entry;
    let mut lowering = RingLowering {
        cursor: Cursor::at_start(function, entry),
        plans,
        counts,
        facts,
        constants: BTreeMap::new(),
        opposite_phases: FxHashMap::default(),
        barriers: FxHashMap::default(),
        held_slots: FxHashMap::default(),
        unfenced: Vec::new(),
    };
    let insts = lowering.cursor.take_rest();
    if !lowering.plans.is_empty() {
        let slots = lowering.plans.values().map(|plan| i64::from(plan.buffer.slots));
        for number in slots.chain([0, 1]).collect::<BTreeSet<i64>>() {
            let value = lowering.cursor.int(Dtype::I32, number);
            lowering.constants.insert(number, value);
        }
        let [zero, one] = [0, 1].map(|number| lowering.constants[&number]);
        lowering.opposite_phases.extend([(zero, one), (one, zero)]);
    }
    lowering.lower_block(insts, &mut PipelineStates::new(), &Carried::default());
}

fn index_type() -> Type {
    Type::scalar(ir::Type::scalar(Dtype::I32))
}

struct RingLowering<'a> {
    cursor: Cursor<'a, Gpu>,
    plans: RingPlans,
    counts: InFlightCounts,
    facts: RingFacts,
    /// The constants at the start of the function.
    constants: BTreeMap<i64, Value>,
    /// The opposite of each phase that is a constant or a carried parity.
    opposite_phases: FxHashMap<Value, Value>,
    barriers: FxHashMap<Value, Barriers>,
    held_slots: FxHashMap<Value, HeldSlot>,
    /// Taken slots of `cp.async` that the asynchronous proxy reads, up to the group's last `take`.
    unfenced: Vec<Value>,
}

impl RingLowering<'_> {
    fn scalar(&mut self, function: ElementwiseFn, operands: &[Value]) -> Value {
        let is_comparison = matches!(function, ElementwiseFn::Eq | ElementwiseFn::Ge);
        let dtype = if is_comparison { Dtype::I1 } else { Dtype::I32 };
        self.cursor.scalar(function, operands, dtype)
    }

    /// Rewrites the instructions that were removed from the cursor's block.
    fn lower_block(&mut self, insts: Vec<Inst>, state: &mut PipelineStates, carried: &Carried) {
        let block = self.cursor.position().block;
        for parameter in self.cursor.function.blocks[block].parameters.clone() {
            self.hold_if_token(parameter);
        }
        for inst in insts {
            self.cursor.use_location_of(inst);
            for root in self.facts.barriers_before.remove(&inst).into_iter().flatten() {
                let plan = self.plans[&root].clone();
                self.make_barriers(root, &plan, state);
            }
            self.lower_inst(inst, state, carried);
        }
    }

    /// Makes a slot's index of a value that was its token.
    fn hold_if_token(&mut self, value: Value) {
        if let Some(root) = self.facts.roots.get(&value).copied() {
            self.cursor.function.values[value].ty = index_type();
            self.hold(value, root, value);
        }
    }

    fn hold(&mut self, token: Value, root: Value, index: Value) {
        let buffer = self.plans[&root].buffer.clone();
        let slot = if buffer.slots == 1 || !self.facts.touched.contains(&token) {
            root
        } else {
            let ty = Type::Buffer(Buffer { slots: 1, ..buffer });
            self.cursor.value(GpuOp::Slot {}, &[root, index], ty)
        };
        self.held_slots.insert(token, HeldSlot { root, index, slot });
    }

    fn lower_inst(&mut self, inst: Inst, state: &mut PipelineStates, carried: &Carried) {
        let data = self.cursor.function.insts[inst].clone();
        if !data.regions.is_empty() {
            return self.lower_regions(inst, state);
        }
        let first = data.operands.first().copied();
        let held = first.and_then(|value| self.held_slots.get(&value).copied());
        let plan = first.and_then(|value| self.plans.get(&value).cloned());
        match (&data.op, held, plan) {
            (Op::Gpu(GpuOp::Alloc { .. }), ..) => self.alloc(inst, state),
            (Op::Gpu(GpuOp::Dealloc {}), _, Some(plan)) => self.dealloc(inst, &plan),
            (Op::Gpu(op @ (GpuOp::Acquire {} | GpuOp::Take {})), _, Some(plan)) => {
                let root = data.operands[0];
                let first = self.facts.groups.leader(root);
                let side = if matches!(op, GpuOp::Acquire {}) { Side::Producer } else { Side::Consumer };
                let at = state[&(first, side)].clone();
                // The first ring's state and wait are those of its whole group.
                match side {
                    Side::Producer => self.acquire(inst, root, &plan, &at),
                    Side::Consumer if root == first => self.take(inst, root, &plan, &at),
                    Side::Consumer => {}
                }
                self.hold(data.results[0], root, at.index);
                if matches!(side, Side::Consumer)
                    && plan.is_async_read
                    && plan.writer == Writer::Copies
                    && !plan.has_full()
                {
                    self.unfenced.push(data.results[0]);
                }
                if self.facts.groups.is_last(root) {
                    self.fence_taken();
                    self.advance((first, side), state);
                }
            }
            (Op::Gpu(GpuOp::Publish {}), Some(held), _) => self.publish(held),
            (Op::Gpu(GpuOp::Release {}), Some(held), _) => {
                if let Some(empty) = self.barriers[&held.root].empty
                    && self.facts.groups.is_last_release(inst)
                {
                    self.cursor.emit(GpuOp::MbarrierArrive {}, &[empty, held.index], []);
                }
            }
            (Op::Gpu(GpuOp::TensorFill {}), Some(held), _) => {
                let full = self.barriers[&held.root].full.expect("tensor copies arrive at a barrier");
                let bytes = self.plans[&held.root].buffer.slot_bytes();
                self.cursor.emit(GpuOp::MbarrierExpect { bytes }, &[full, held.index], []);
                let mut operands = vec![held.slot, data.operands[1], full, held.index];
                operands.extend(&data.operands[2..]);
                self.cursor.emit(GpuOp::TensorLoad {}, &operands, []);
            }
            // tidy: wildcard because all others stay and use the slots of their operands
            _ => self.keep(inst, state, carried),
        }
    }

    fn keep(&mut self, inst: Inst, state: &PipelineStates, carried: &Carried) {
        let is_yield = matches!(self.cursor.function.insts[inst].op.as_tile(), Some(ir::Op::Yield {}));
        for position in 0..self.cursor.function.insts[inst].operands.len() {
            if let Some(held) = self.held_slots.get(&self.cursor.function.insts[inst].operands[position]) {
                self.cursor.function.insts[inst].operands[position] =
                    if is_yield { held.index } else { held.slot };
            }
        }
        if is_yield {
            let values = self.carried_values(carried, carried.next_parity, state);
            self.cursor.function.insts[inst].operands.extend(values);
        }
        if let Op::Gpu(GpuOp::WgmmaWait { pending: Deferred(pending @ None) }) =
            &mut self.cursor.function.insts[inst].op
        {
            *pending = Some(self.counts.pending_dots.get(&inst).copied().unwrap_or(0));
        }
        self.cursor.insert(inst);
    }

    fn alloc(&mut self, inst: Inst, state: &mut PipelineStates) {
        self.cursor.insert(inst);
        let root = self.cursor.function.insts[inst].results[0];
        let Some(plan) = self.plans.get(&root).cloned() else { return };
        self.cursor.function.values[root].ty = Type::Buffer(plan.buffer.clone());
        let first = self.facts.groups.leader(root);
        if plan.has_outer_barriers() {
            if first != root {
                self.barriers.insert(root, self.barriers[&first]);
            }
            if self.facts.stored.contains(&root) && !self.is_fenced() {
                // Threads may have written to this memory.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
            return;
        }
        if first != root {
            self.barriers.insert(root, self.barriers[&first]);
            if plan.has_full() && self.writes_between(first) {
                // Threads may have written to this memory in an earlier buffer.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
            return;
        }
        self.make_barriers(root, &plan, state);
    }

    /// Makes a group's barriers, and the initial states if all warps use the rings.
    fn make_barriers(&mut self, root: Value, plan: &RingPlan, state: &mut PipelineStates) {
        let mut barriers = Barriers::default();
        if plan.has_full() {
            let arrivals = plan.full_arrivals(self.facts.groups.size(root));
            barriers.full = Some(self.mbarriers(plan, arrivals));
        }
        if plan.has_empty() {
            barriers.empty = Some(self.mbarriers(plan, plan.empty_arrivals()));
        }
        if plan.has_full() {
            // Tensor copies arrive through the asynchronous proxy.
            self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
        }
        self.barriers.insert(root, barriers);
        if plan.partitions.is_none() {
            for side in [Side::Producer, Side::Consumer] {
                state.insert((root, side), self.initial_state(side, plan));
            }
        }
    }

    /// Returns whether a fence follows all earlier shared stores. Looks back in this block, up to
    /// the last instruction with regions.
    fn is_fenced(&self) -> bool {
        for inst in self.cursor.preceding().iter().rev() {
            let data = &self.cursor.function.insts[*inst];
            if matches!(data.op, Op::Gpu(GpuOp::FenceProxy {})) && data.operands.is_empty() {
                return true;
            }
            if is_shared_store(&data.op) || !data.regions.is_empty() {
                return false;
            }
        }
        false
    }

    /// Returns whether threads may have written shared memory since the block allocated a ring.
    fn writes_between(&self, ring: Value) -> bool {
        let made = self.cursor.function.defining_inst(ring);
        let mut later = self.cursor.preceding().iter().rev().take_while(|inst| Some(**inst) != made);
        later.any(|inst| {
            let data = &self.cursor.function.insts[*inst];
            let is_buffer = |value: &Value| matches!(self.cursor.function.ty(*value), Type::Buffer(_));
            let is_copy = matches!(data.op, Op::Gpu(GpuOp::TensorLoad {} | GpuOp::Alloc { .. }));
            let has_regions = !data.regions.is_empty();
            has_regions
                || data.op.info().effect == Effect::Write && !is_copy && data.operands.iter().any(is_buffer)
        })
    }

    fn mbarriers(&mut self, plan: &RingPlan, arrivals: u32) -> Value {
        let ty = Type::Mbarrier { slots: plan.buffer.slots };
        let barriers = self.cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty);
        self.cursor.emit(GpuOp::MbarrierInit { arrivals }, &[barriers], []);
        barriers
    }

    fn dealloc(&mut self, inst: Inst, plan: &RingPlan) {
        let is_left = self.counts.deallocs_of_full_slots.contains(&inst);
        // A partition's copies, and copies without a wait, may still write the memory, so it is
        // never deallocated.
        if plan.has_full() && (is_left || plan.partitions.is_some()) {
            return;
        }
        if is_left && plan.writer == Writer::Copies {
            self.cursor.emit(GpuOp::WaitGroup { pending: 0 }, &[], []);
        }
        self.cursor.insert(inst);
    }

    /// Returns the first state of a side.
    ///
    /// All slots are empty: the producer waits for the phase before the first one, which counts as
    /// complete.
    fn initial_state(&self, side: Side, plan: &RingPlan) -> PipelineState {
        let phase = match side {
            Side::Producer => plan.has_empty().then(|| self.constants[&1]),
            Side::Consumer => plan.has_full().then(|| self.constants[&0]),
        };
        PipelineState { index: self.constants[&0], slot: Some(0), phase, passed: Some(0) }
    }

    fn acquire(&mut self, inst: Inst, root: Value, plan: &RingPlan, at: &PipelineState) {
        if let (Some(empty), Some(phase)) = (self.barriers[&root].empty, at.phase) {
            // The first use of a slot needs no wait. The first ring of a group has waited for the
            // others.
            let is_new = at.passed.is_some_and(|passed| passed < plan.buffer.slots);
            if is_new || self.facts.groups.leader(root) != root {
                return;
            }
            self.cursor.emit(GpuOp::MbarrierWait {}, &[empty, at.index, phase], []);
        } else if plan.writer == Writer::Tensor && self.counts.acquires_with_barrier.contains(&inst) {
            self.cursor.emit(ir::Op::Barrier {}, &[], []);
        }
    }

    fn take(&mut self, inst: Inst, root: Value, plan: &RingPlan, at: &PipelineState) {
        if let (Some(full), Some(phase)) = (self.barriers[&root].full, at.phase) {
            self.cursor.emit(GpuOp::MbarrierWait {}, &[full, at.index, phase], []);
            if plan.writer == Writer::Copies && plan.is_async_read {
                // The copying threads do not wait. Here all copies are complete, so each reader
                // fences.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
        } else if plan.writer == Writer::Copies {
            let pending = self.counts.pending_groups.get(&inst).copied().unwrap_or(0);
            self.cursor.emit(GpuOp::WaitGroup { pending }, &[], []);
        }
    }

    /// Fences taken slots of `cp.async` in each thread that reads them.
    ///
    /// A later pass places the block barrier before this fence. After the fence, all threads would
    /// wait for the slowest one.
    fn fence_taken(&mut self) {
        let taken = std::mem::take(&mut self.unfenced).into_iter();
        let slots: Vec<Value> = taken
            .filter(|token| self.facts.touched.contains(token))
            .map(|token| self.held_slots[&token].slot)
            .collect();
        if !slots.is_empty() {
            self.cursor.emit(GpuOp::FenceProxy {}, &slots, []);
        }
    }

    fn publish(&mut self, held: HeldSlot) {
        let plan = self.plans[&held.root].clone();
        if plan.writer == Writer::Tensor {
            return;
        }
        let full = self.barriers[&held.root].full;
        if plan.writer == Writer::Copies {
            match full.filter(|_| self.facts.groups.is_last(held.root)) {
                // The arrival follows the copies; no thread waits here.
                Some(full) => {
                    self.cursor.emit(GpuOp::MbarrierArriveCopies {}, &[full, held.index], []);
                }
                None if full.is_none() && self.facts.groups.is_last(held.root) => {
                    self.cursor.emit(GpuOp::CommitGroup {}, &[], []);
                }
                None => {}
            }
            return;
        }
        if plan.is_async_read {
            self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
        }
        if let Some(full) = full {
            self.cursor.emit(GpuOp::MbarrierArrive {}, &[full, held.index], []);
        }
    }

    /// Advances a side to the next slot. The first slot in the next phase follows the last one.
    fn advance(&mut self, side: RingSide, state: &mut PipelineStates) {
        let slots = self.plans[&side.0].buffer.slots;
        let at = state[&side].clone();
        let passed = at.passed.map(|passed| passed + 1);
        if let Some(slot) = at.slot {
            let slot = (slot + 1) % slots;
            let index = if slots == 1 { at.index } else { self.constant(slot.into()) };
            let phase = if slot == 0 { at.phase.map(|phase| self.opposite_phase(phase)) } else { at.phase };
            state.insert(side, PipelineState { index, slot: Some(slot), phase, passed });
            return;
        }
        let [zero, one, count] = [0, 1, i64::from(slots)].map(|number| self.constants[&number]);
        let flipped = at.phase.map(|phase| (phase, self.opposite_phase(phase)));
        let next = self.scalar(ElementwiseFn::Add, &[at.index, one]);
        let is_end = self.scalar(ElementwiseFn::Eq, &[next, count]);
        let index = self.scalar(ElementwiseFn::Select, &[is_end, zero, next]);
        let phase =
            flipped.map(|(phase, flipped)| self.scalar(ElementwiseFn::Select, &[is_end, flipped, phase]));
        state.insert(side, PipelineState { index, slot: None, phase, passed });
    }

    fn constant(&mut self, number: i64) -> Value {
        match self.constants.get(&number) {
            Some(known) => *known,
            None => self.cursor.int(Dtype::I32, number),
        }
    }

    /// Returns the opposite parity of a phase.
    fn opposite_phase(&mut self, phase: Value) -> Value {
        match self.opposite_phases.get(&phase) {
            Some(known) => *known,
            None => self.scalar(ElementwiseFn::Xor, &[phase, self.constants[&1]]),
        }
    }

    fn carried_parts(&self, side: RingSide, state: &PipelineStates) -> SmallVec<[Value; 2]> {
        let at = &state[&side];
        let index = (self.plans[&side.0].buffer.slots > 1).then_some(at.index);
        index.into_iter().chain(at.phase).collect()
    }

    /// Returns the carried values in the order of [`RingLowering::replace_carried`].
    fn carried_values(&self, carried: &Carried, parity: Option<Value>, state: &PipelineStates) -> Vec<Value> {
        let mut values: Vec<Value> =
            carried.sides.iter().flat_map(|side| self.carried_parts(*side, state)).collect();
        let own = carried.whole.iter().filter(|(_, phase)| matches!(phase, CarriedPhase::Own));
        values.extend(own.filter_map(|(side, _)| state[side].phase));
        values.extend(parity.filter(|_| carried.has_parity()));
        values
    }

    /// Chooses the values that a loop carries for its sides.
    ///
    /// If a side starts at a constant slot and advances by a multiple of the slots, each iteration
    /// repeats its slots. Such sides share one parity if their first phases are constant and change
    /// in each iteration. Example: two slots, taken twice in an iteration.
    fn carried(&self, inst: Inst, sides: BTreeSet<RingSide>, state: &PipelineStates) -> Carried {
        let mut carried = Carried { sides, ..Carried::default() };
        if !matches!(self.cursor.function.insts[inst].op.as_tile(), Some(ir::Op::For { .. })) {
            return carried;
        }
        let mut with_parity = Vec::new();
        for side in carried.sides.clone() {
            let slots = self.plans[&side.0].buffer.slots;
            let Some(step) = self.facts.steps.get(&(inst, side)).copied().flatten() else { continue };
            if !step.is_multiple_of(slots) || state[&side].slot.is_none() {
                continue;
            }
            carried.sides.remove(&side);
            let phase = if (step / slots).is_multiple_of(2) || state[&side].phase.is_none() {
                CarriedPhase::Same
            } else {
                let known = [0, 1].map(|number| Some(self.constants[&number]) == state[&side].phase);
                if known.contains(&true) {
                    with_parity.push((side, known[1]));
                }
                CarriedPhase::Own
            };
            carried.whole.insert(side, phase);
        }
        if with_parity.len() > 1 {
            let shared = with_parity.into_iter().map(|(side, first)| (side, CarriedPhase::Parity(first)));
            carried.whole.extend(shared);
        }
        carried
    }

    /// Returns the states with new carried values, and the parity if the loop carries it.
    fn replace_carried(
        &mut self,
        carried: &Carried,
        state: &PipelineStates,
        mut make: impl FnMut(&mut Function) -> Value,
    ) -> (PipelineStates, Option<Value>) {
        let mut inner = state.clone();
        for side in &carried.sides {
            let is_counted = self.plans[&side.0].buffer.slots > 1;
            let at = inner.get_mut(side).expect("a side exists where it advances");
            at.passed = None;
            if is_counted {
                at.slot = None;
                at.index = make(self.cursor.function);
            }
            if at.phase.is_some() {
                at.phase = Some(make(self.cursor.function));
            }
        }
        for (side, phase) in &carried.whole {
            let at = inner.get_mut(side).expect("a side exists where it advances");
            at.passed = None;
            if matches!(phase, CarriedPhase::Own) {
                at.phase = Some(make(self.cursor.function));
            }
        }
        (inner, carried.has_parity().then(|| make(self.cursor.function)))
    }

    /// Sets the phases of the sides that share a parity. Returns the opposite parity.
    fn share_parity(
        &mut self,
        carried: &Carried,
        parity: Option<Value>,
        state: &mut PipelineStates,
    ) -> Option<Value> {
        let parity = parity?;
        let other = self.scalar(ElementwiseFn::Xor, &[parity, self.constants[&1]]);
        self.opposite_phases.extend([(parity, other), (other, parity)]);
        for (side, phase) in &carried.whole {
            if let CarriedPhase::Parity(first) = phase {
                let at = state.get_mut(side).expect("a side exists where it advances");
                at.phase = Some(if *first { other } else { parity });
            }
        }
        Some(other)
    }

    fn lower_regions(&mut self, inst: Inst, state: &mut PipelineStates) {
        let data = self.cursor.function.insts[inst].clone();
        let sides = self.facts.advances.get(&inst).cloned().unwrap_or_default();
        if let Op::Gpu(GpuOp::WarpSpecialize { .. }) = data.op {
            return self.lower_partitions(inst, state);
        }
        let is_loop = matches!(data.op.as_tile(), Some(ir::Op::For { .. } | ir::Op::While {}));
        for position in 0..data.operands.len() {
            if let Some(held) = self.held_slots.get(&data.operands[position]) {
                self.cursor.function.insts[inst].operands[position] = held.index;
            }
        }
        let mut carried = self.carried(inst, sides, state);
        if is_loop {
            let values = self.carried_values(&carried, self.constants.get(&0).copied(), state);
            self.cursor.function.insts[inst].operands.extend(values);
        }
        for (number, region) in data.regions.iter().enumerate() {
            let (mut inner, parity) = if is_loop {
                let add = |function: &mut Function| function.add_parameter(*region, index_type(), None);
                self.replace_carried(&carried, state, add)
            } else {
                (state.clone(), None)
            };
            let outer = self.cursor.enter(*region);
            let insts = self.cursor.take_rest();
            carried.next_parity = self.share_parity(&carried, parity, &mut inner);
            self.merge_sides(inst, &mut inner);
            let is_condition = matches!(data.op.as_tile(), Some(ir::Op::While {})) && number == 0;
            let nothing = Carried::default();
            self.lower_block(insts, &mut inner, if is_condition { &nothing } else { &carried });
            self.cursor.go_to(outer);
        }
        self.cursor.insert(inst);
        let add = |function: &mut Function| {
            let definition = Definition::Result(inst, function.insts[inst].results.len() as u32);
            let value = function.values.push(ValueData { ty: index_type(), definition, name: None });
            function.insts[inst].results.push(value);
            value
        };
        let (after, parity) = self.replace_carried(&carried, state, add);
        *state = after;
        self.share_parity(&carried, parity, state);
        self.merge_sides(inst, state);
        for result in data.results {
            self.hold_if_token(result);
        }
    }

    /// Computes the producer's state from the consumer's.
    ///
    /// The producer is `held` slots ahead; `held` is 0 in an empty ring. At one slot, the two sides
    /// wait for opposite phases.
    fn merge_sides(&mut self, inst: Inst, state: &mut PipelineStates) {
        for (root, held) in self.facts.merged.get(&inst).cloned().into_iter().flatten() {
            let taken = state[&(root, Side::Consumer)].clone();
            let mut phase = state[&(root, Side::Producer)].phase;
            let slots = i64::from(self.plans[&root].buffer.slots);
            if let Some(slot) = taken.slot {
                let slot = i64::from(slot) + held;
                let index = if slots == 1 { taken.index } else { self.constant(slot % slots) };
                if let (Some(phase), Some(full)) = (&mut phase, taken.phase) {
                    *phase = if slot / slots % 2 == 0 { self.opposite_phase(full) } else { full };
                }
                let slot = u32::try_from(slot % slots).ok();
                state.insert((root, Side::Producer), PipelineState { index, slot, phase, passed: None });
                continue;
            }
            let (mut index, mut wrap_operands) = (taken.index, None);
            if held % slots != 0 {
                let held = self.cursor.int(Dtype::I32, held);
                let slots = self.constants[&slots];
                let sum = self.scalar(ElementwiseFn::Add, &[taken.index, held]);
                index = self.scalar(ElementwiseFn::IntRem, &[sum, slots]);
                wrap_operands = Some([sum, slots]);
            }
            if let (Some(phase), Some(full)) = (&mut phase, taken.phase) {
                *phase = full;
                if held < slots {
                    *phase = self.opposite_phase(full);
                }
                if let Some(operands) = wrap_operands {
                    let wraps = self.scalar(ElementwiseFn::Ge, &operands);
                    *phase = self.scalar(ElementwiseFn::Select, &[wraps, full, *phase]);
                }
            }
            state.insert((root, Side::Producer), PipelineState { index, slot: None, phase, passed: None });
        }
    }

    fn lower_partitions(&mut self, inst: Inst, state: &mut PipelineStates) {
        let mut waits = false;
        for (partition, region) in self.cursor.function.insts[inst].regions.clone().into_iter().enumerate() {
            let mut inner = state.clone();
            for (root, plan) in &self.plans {
                let Some(partitions) =
                    plan.partitions.as_ref().filter(|partitions| partitions.specialize == inst)
                else {
                    continue;
                };
                waits = true;
                if partitions.producer == partition {
                    inner.insert((*root, Side::Producer), self.initial_state(Side::Producer, plan));
                }
                if partitions.consumers.contains(&partition) {
                    inner.insert((*root, Side::Consumer), self.initial_state(Side::Consumer, plan));
                }
            }
            let outer = self.cursor.enter(region);
            let insts = self.cursor.take_rest();
            self.lower_block(insts, &mut inner, &Carried::default());
            self.cursor.go_to(outer);
        }
        if waits {
            // This barrier makes the initialized `mbarrier`s visible to all warps.
            self.cursor.emit(ir::Op::Barrier {}, &[], []);
        }
        self.cursor.insert(inst);
    }
}
