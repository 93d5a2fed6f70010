//! The rewriting: memory and barriers where a ring is made, what each op of a ring is below, and which slot is next, carried
//! through the regions in which it advances.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir as ir;
use tilewright_ir::{Cursor, Definition, Dtype, Effect, ElementwiseFn, Inst, Operation, Value, ValueData};

use super::counts::Counts;
use super::merge_ring_indices::even;
use super::plan::{Plan, Plans, Writer};
use super::ring_groups::Teams;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{Buffer, Deferred, Function, Gpu, GpuOp, Op, Type};

/// One end of a ring: which slot is acquired next, and which is taken next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum End {
    Acquire,
    Take,
}

type RingEnd = (Value, End);

/// Where an end is.
#[derive(Clone, Debug)]
struct Position {
    /// The index of the slot; zero of a ring of one.
    index: Value,
    /// The same, where it is a constant.
    slot: Option<u32>,
    /// The parity of the phase that is waited for, where barriers are.
    phase: Option<Value>,
    /// How many slots it has passed, where that is one number.
    passed: Option<u32>,
}

type State = BTreeMap<RingEnd, Position>;

/// What a loop carries of the phase of an end that has the same slot at the beginning of each iteration.
#[derive(Clone, Copy, Debug)]
enum CarriedPhase {
    /// Nothing: each iteration begins in the same phase.
    Same,
    /// The phase.
    Own,
    /// The parity of the iteration, together with other ends; the phase of the first iteration.
    Parity(bool),
}

/// What a region carries of the ends that advance in it.
#[derive(Default)]
struct Carried {
    /// The ends whose index and phase are carried.
    ends: BTreeSet<RingEnd>,
    /// The ends that go around their rings as a whole in each iteration.
    whole: BTreeMap<RingEnd, CarriedPhase>,
    /// The parity of the next iteration, in the body of a loop that carries it.
    next_parity: Option<Value>,
}

impl Carried {
    fn has_parity(&self) -> bool {
        self.whole.values().any(|phase| matches!(phase, CarriedPhase::Parity(_)))
    }
}

/// What is known of the text before it is rewritten.
pub struct Parts {
    /// The ring of each slot in hand.
    roots: FxHashMap<Value, Value>,
    /// The slots in hand that are read or written.
    touched: FxHashSet<Value>,
    /// The ends that advance inside an instruction with regions.
    advances: FxHashMap<Inst, BTreeSet<RingEnd>>,
    /// How many slots an end advances by in an iteration, where all that advance it are in the body of the loop itself.
    steps: FxHashMap<(Inst, RingEnd), Option<u32>>,
    /// The rings of which one end is carried for both, with how many slots one is ahead.
    even: FxHashMap<Inst, Vec<(Value, i64)>>,
    /// The rings that advance together.
    teams: Teams,
    /// The rings in regions whose barriers are made before an instruction of the entry.
    barriers_before: FxHashMap<Inst, Vec<Value>>,
    /// The rings in regions whose memory threads may have stored to before.
    stored: FxHashSet<Value>,
}

impl Parts {
    pub fn new(analysis: &SlotAnalysis<'_>, plans: &Plans, teams: Teams) -> Self {
        let function = analysis.function;
        let mut parts = Self {
            roots: FxHashMap::default(),
            touched: FxHashSet::default(),
            advances: FxHashMap::default(),
            steps: FxHashMap::default(),
            even: FxHashMap::default(),
            teams,
            barriers_before: FxHashMap::default(),
            stored: FxHashSet::default(),
        };
        for (root, _) in plans.iter().filter(|(_, plan)| plan.has_outer_barriers()) {
            let outermost = outermost(analysis, *root);
            if parts.teams.first(*root) == *root {
                parts.barriers_before.entry(outermost).or_default().push(*root);
            }
            parts.stored.extend(stores_up_to(function, outermost).then_some(*root));
        }
        for value in function.values.keys() {
            if matches!(function.ty(value), Type::Empty(_) | Type::Full(_))
                && let Some(root) = analysis.root(value)
            {
                parts.roots.insert(value, root);
            }
        }
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            let end = match &data.op {
                Op::Gpu(GpuOp::Acquire {}) => End::Acquire,
                Op::Gpu(GpuOp::Take {}) => End::Take,
                Op::Gpu(GpuOp::Publish {} | GpuOp::Release {}) | Op::Tile(_) => return,
                // All others read or write the slots that they are given.
                Op::Gpu(_) => {
                    parts.touched.extend(&data.operands);
                    return;
                }
            };
            let root = data.operands[0];
            let mut block = analysis.block_of_inst(inst);
            let is_outside = plans[&root].has_outer_barriers();
            let home = if is_outside { function.entry } else { analysis.block_of(root) };
            let mut is_direct = true;
            while block != home {
                let Some(owner) = analysis.owner(block) else { break };
                // The ends of a ring of roles begin with their role.
                if plans[&root].roles.as_ref().is_some_and(|roles| roles.inst == owner) {
                    break;
                }
                let ring_end = (parts.teams.first(root), end);
                parts.advances.entry(owner).or_default().insert(ring_end);
                let step = parts.steps.entry((owner, ring_end)).or_insert(Some(0));
                *step = step.filter(|_| is_direct).map(|step| step + u32::from(parts.teams.is_last(root)));
                is_direct = false;
                block = analysis.block_of_inst(owner);
            }
        });
        parts.join_ends(analysis, plans);
        parts
    }

    /// Where rings without roles are empty, the end that acquires is where the other one is.
    fn join_ends(&mut self, analysis: &SlotAnalysis<'_>, plans: &Plans) {
        let is_own = |root: &Value, plan: &Plan| plan.roles.is_none() && self.teams.first(*root) == *root;
        let roots: Vec<Value> =
            plans.iter().filter(|(root, plan)| is_own(root, plan)).map(|(root, _)| *root).collect();
        for (inst, rings) in even(analysis, &roots) {
            let Some(ends) = self.advances.get_mut(&inst) else { continue };
            let is_carried =
                |root: &Value| ends.contains(&(*root, End::Take)) && ends.contains(&(*root, End::Acquire));
            let joined: Vec<(Value, i64)> = rings.into_iter().filter(|(root, _)| is_carried(root)).collect();
            ends.retain(|(root, end)| *end == End::Take || !joined.iter().any(|(other, _)| other == root));
            self.even.insert(inst, joined);
        }
    }
}

/// The instruction of the entry that a value is made inside of.
fn outermost(analysis: &SlotAnalysis<'_>, value: Value) -> Inst {
    let owner = analysis.owner(analysis.block_of(value)).expect("the value is made in a region");
    analysis.ancestor_in(analysis.function.entry, owner).expect("the entry is around all regions")
}

/// Whether threads store to shared memory in an instruction of the entry or in one before it.
fn stores_up_to(function: &Function, last: Inst) -> bool {
    let entry = &function.blocks[function.entry].insts;
    let place = entry.iter().position(|inst| *inst == last).expect("it is in the entry");
    let mut found = false;
    for inst in &entry[..=place] {
        found |= stores(&function.insts[*inst].op);
        for region in &function.insts[*inst].regions {
            function.walk(*region, &mut |inner| found |= stores(&function.insts[inner].op));
        }
    }
    found
}

/// Whether threads write to shared memory by ordinary accesses.
fn stores(op: &Op) -> bool {
    matches!(
        op,
        Op::Gpu(
            GpuOp::LocalStore {}
                | GpuOp::LocalHistogram {}
                | GpuOp::CopyAsync { .. }
                | GpuOp::MakeTensorMap { .. }
        )
    )
}

/// What stands for a slot in hand.
#[derive(Clone, Copy)]
struct Hand {
    root: Value,
    index: Value,
    /// The slot of the buffer, where it is read or written.
    slot: Value,
}

/// The barriers of a ring.
#[derive(Clone, Copy, Default)]
struct Barriers {
    full: Option<Value>,
    empty: Option<Value>,
}

/// Rewrites a function.
pub fn lower(function: &mut Function, plans: Plans, counts: Counts, parts: Parts) {
    let entry = function.entry;
    let mut lower = Lower {
        cursor: Cursor::at_start(function, entry),
        plans,
        counts,
        parts,
        numbers: BTreeMap::new(),
        flipped: FxHashMap::default(),
        barriers: FxHashMap::default(),
        hands: FxHashMap::default(),
        taken: Vec::new(),
    };
    let insts = lower.cursor.take_rest();
    if !lower.plans.is_empty() {
        let slots = lower.plans.values().map(|plan| i64::from(plan.buffer.slots));
        for number in slots.chain([0, 1]).collect::<BTreeSet<i64>>() {
            let value = lower.cursor.int(Dtype::I32, number);
            lower.numbers.insert(number, value);
        }
        let [zero, one] = [0, 1].map(|number| lower.numbers[&number]);
        lower.flipped.extend([(zero, one), (one, zero)]);
    }
    lower.block(insts, &mut State::new(), &Carried::default());
}

fn index_type() -> Type {
    Type::scalar(ir::Type::scalar(Dtype::I32))
}

struct Lower<'a> {
    cursor: Cursor<'a, Gpu>,
    plans: Plans,
    counts: Counts,
    parts: Parts,
    /// Constants that are needed.
    numbers: BTreeMap<i64, Value>,
    /// The other phase of phases that are constants or carried parities.
    flipped: FxHashMap<Value, Value>,
    barriers: FxHashMap<Value, Barriers>,
    hands: FxHashMap<Value, Hand>,
    /// What was taken of a team whose copies products read, until all of the team are.
    taken: Vec<Value>,
}

impl Lower<'_> {
    fn scalar(&mut self, function: ElementwiseFn, operands: &[Value]) -> Value {
        let is_comparison = matches!(function, ElementwiseFn::Eq | ElementwiseFn::Ge);
        let dtype = if is_comparison { Dtype::I1 } else { Dtype::I32 };
        self.cursor.scalar(function, operands, dtype)
    }

    /// Rewrites the instructions that were taken out of the block of the cursor.
    fn block(&mut self, insts: Vec<Inst>, state: &mut State, carried: &Carried) {
        let block = self.cursor.position().block;
        for parameter in self.cursor.function.blocks[block].parameters.clone() {
            self.hand_if_token(parameter);
        }
        for inst in insts {
            self.cursor.use_location_of(inst);
            for root in self.parts.barriers_before.remove(&inst).into_iter().flatten() {
                let plan = self.plans[&root].clone();
                self.make_barriers(root, &plan, state);
            }
            self.inst(inst, state, carried);
        }
    }

    /// A value that was a slot in hand is the number of the slot.
    fn hand_if_token(&mut self, value: Value) {
        if let Some(root) = self.parts.roots.get(&value).copied() {
            self.cursor.function.values[value].ty = index_type();
            self.hand(value, root, value);
        }
    }

    fn hand(&mut self, token: Value, root: Value, index: Value) {
        let buffer = self.plans[&root].buffer.clone();
        let slot = if buffer.slots == 1 || !self.parts.touched.contains(&token) {
            root
        } else {
            let ty = Type::Buffer(Buffer { slots: 1, ..buffer });
            self.cursor.value(GpuOp::Slot {}, &[root, index], ty)
        };
        self.hands.insert(token, Hand { root, index, slot });
    }

    fn inst(&mut self, inst: Inst, state: &mut State, carried: &Carried) {
        let data = self.cursor.function.insts[inst].clone();
        if !data.regions.is_empty() {
            return self.regions(inst, state);
        }
        let first = data.operands.first().copied();
        let hand = first.and_then(|value| self.hands.get(&value).copied());
        let plan = first.and_then(|value| self.plans.get(&value).cloned());
        match (&data.op, hand, plan) {
            (Op::Gpu(GpuOp::Alloc { .. }), ..) => self.alloc(inst, state),
            (Op::Gpu(GpuOp::Dealloc {}), _, Some(plan)) => self.dealloc(inst, &plan),
            (Op::Gpu(op @ (GpuOp::Acquire {} | GpuOp::Take {})), _, Some(plan)) => {
                let root = data.operands[0];
                let first = self.parts.teams.first(root);
                let end = if matches!(op, GpuOp::Acquire {}) { End::Acquire } else { End::Take };
                let at = state[&(first, end)].clone();
                // The others of a team are where the first one is, which has waited for all.
                match end {
                    End::Acquire => self.acquire(inst, root, &plan, &at),
                    End::Take if root == first => self.take(inst, root, &plan, &at),
                    End::Take => {}
                }
                self.hand(data.results[0], root, at.index);
                if matches!(end, End::Take)
                    && plan.is_async_read
                    && plan.writer == Writer::Copies
                    && !plan.has_full()
                {
                    self.taken.push(data.results[0]);
                }
                if self.parts.teams.is_last(root) {
                    self.fence_taken();
                    self.advance((first, end), state);
                }
            }
            (Op::Gpu(GpuOp::Publish {}), Some(hand), _) => self.publish(hand),
            (Op::Gpu(GpuOp::Release {}), Some(hand), _) => {
                if let Some(empty) = self.barriers[&hand.root].empty
                    && self.parts.teams.is_last_release(inst)
                {
                    self.cursor.emit(GpuOp::MbarrierArrive {}, &[empty, hand.index], []);
                }
            }
            (Op::Gpu(GpuOp::TensorFill {}), Some(hand), _) => {
                let full = self.barriers[&hand.root].full.expect("tensor copies arrive at a barrier");
                let bytes = self.plans[&hand.root].buffer.slot_bytes();
                self.cursor.emit(GpuOp::MbarrierExpect { bytes }, &[full, hand.index], []);
                let mut operands = vec![hand.slot, data.operands[1], full, hand.index];
                operands.extend(&data.operands[2..]);
                self.cursor.emit(GpuOp::TensorLoad {}, &operands, []);
            }
            // tidy: wildcard because all others stay, with the slots that they are given
            _ => self.keep(inst, state, carried),
        }
    }

    fn keep(&mut self, inst: Inst, state: &State, carried: &Carried) {
        let is_yield = matches!(self.cursor.function.insts[inst].op.as_tile(), Some(ir::Op::Yield {}));
        for place in 0..self.cursor.function.insts[inst].operands.len() {
            if let Some(hand) = self.hands.get(&self.cursor.function.insts[inst].operands[place]) {
                self.cursor.function.insts[inst].operands[place] =
                    if is_yield { hand.index } else { hand.slot };
            }
        }
        if is_yield {
            let values = self.carried_values(carried, carried.next_parity, state);
            self.cursor.function.insts[inst].operands.extend(values);
        }
        if let Op::Gpu(GpuOp::WgmmaWait { pending: Deferred(pending @ None) }) =
            &mut self.cursor.function.insts[inst].op
        {
            *pending = Some(self.counts.products.get(&inst).copied().unwrap_or(0));
        }
        self.cursor.insert(inst);
    }

    fn alloc(&mut self, inst: Inst, state: &mut State) {
        self.cursor.insert(inst);
        let root = self.cursor.function.insts[inst].results[0];
        let Some(plan) = self.plans.get(&root).cloned() else { return };
        self.cursor.function.values[root].ty = Type::Buffer(plan.buffer.clone());
        let first = self.parts.teams.first(root);
        if plan.has_outer_barriers() {
            if first != root {
                self.barriers.insert(root, self.barriers[&first]);
            }
            if self.parts.stored.contains(&root) && !self.is_fenced() {
                // The memory may be what threads wrote.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
            return;
        }
        if first != root {
            self.barriers.insert(root, self.barriers[&first]);
            if plan.has_full() && self.writes_between(first) {
                // What this memory was before, threads wrote.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
            return;
        }
        self.make_barriers(root, &plan, state);
    }

    /// Makes the barriers of a team of rings; its ends begin here.
    fn make_barriers(&mut self, root: Value, plan: &Plan, state: &mut State) {
        let mut barriers = Barriers::default();
        if plan.has_full() {
            let arrivals = plan.full_arrivals(self.parts.teams.size(root));
            barriers.full = Some(self.mbarriers(plan, arrivals));
        }
        if plan.has_empty() {
            barriers.empty = Some(self.mbarriers(plan, plan.empty_arrivals()));
        }
        if plan.has_full() {
            // Tensor copies arrive by the asynchronous proxy.
            self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
        }
        self.barriers.insert(root, barriers);
        if plan.roles.is_none() {
            for end in [End::Acquire, End::Take] {
                state.insert((root, end), self.first(end, plan));
            }
        }
    }

    /// Whether each thread has fenced what it wrote before here, in this block.
    fn is_fenced(&self) -> bool {
        for inst in self.cursor.preceding().iter().rev() {
            let data = &self.cursor.function.insts[*inst];
            if matches!(data.op, Op::Gpu(GpuOp::FenceProxy {})) && data.operands.is_empty() {
                return true;
            }
            if stores(&data.op) || !data.regions.is_empty() {
                return false;
            }
        }
        false
    }

    /// Whether threads may have written to shared memory since a ring was made in this block.
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

    fn mbarriers(&mut self, plan: &Plan, arrivals: u32) -> Value {
        let ty = Type::Mbarrier { slots: plan.buffer.slots };
        let barriers = self.cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty);
        self.cursor.emit(GpuOp::MbarrierInit { arrivals }, &[barriers], []);
        barriers
    }

    fn dealloc(&mut self, inst: Inst, plan: &Plan) {
        let is_left = self.counts.left.contains(&inst);
        // Copies of a role, or that nobody waited for, may come later than this.
        if plan.has_full() && (is_left || plan.roles.is_some()) {
            return;
        }
        if is_left && plan.writer == Writer::Copies {
            self.cursor.emit(GpuOp::WaitGroup { pending: 0 }, &[], []);
        }
        self.cursor.insert(inst);
    }

    /// Where an end begins: all slots are empty, as if a phase had ended.
    fn first(&self, end: End, plan: &Plan) -> Position {
        let phase = match end {
            End::Acquire => plan.has_empty().then(|| self.numbers[&1]),
            End::Take => plan.has_full().then(|| self.numbers[&0]),
        };
        Position { index: self.numbers[&0], slot: Some(0), phase, passed: Some(0) }
    }

    fn acquire(&mut self, inst: Inst, root: Value, plan: &Plan, at: &Position) {
        if let (Some(empty), Some(phase)) = (self.barriers[&root].empty, at.phase) {
            // Nobody has had the slots before, or another ring of the team has waited for this one.
            let is_new = at.passed.is_some_and(|passed| passed < plan.buffer.slots);
            if is_new || self.parts.teams.first(root) != root {
                return;
            }
            self.cursor.emit(GpuOp::MbarrierWait {}, &[empty, at.index, phase], []);
        } else if plan.writer == Writer::Tensor && self.counts.barriers.contains(&inst) {
            self.cursor.emit(ir::Op::Barrier {}, &[], []);
        }
    }

    fn take(&mut self, inst: Inst, root: Value, plan: &Plan, at: &Position) {
        if let (Some(full), Some(phase)) = (self.barriers[&root].full, at.phase) {
            self.cursor.emit(GpuOp::MbarrierWait {}, &[full, at.index, phase], []);
            if plan.writer == Writer::Copies && plan.is_async_read {
                // Nobody waits for copies where they are started, so the fence is here: each thread has seen all of them.
                self.cursor.emit(GpuOp::FenceProxy {}, &[], []);
            }
        } else if plan.writer == Writer::Copies {
            let pending = self.counts.groups.get(&inst).copied().unwrap_or(0);
            self.cursor.emit(GpuOp::WaitGroup { pending }, &[], []);
        }
    }

    /// What all threads copied to the slots that were taken, each fences for what it reads. Behind the barrier: a fence takes
    /// as long as what the thread itself does to memory then, and all would wait for the slowest.
    fn fence_taken(&mut self) {
        let taken = std::mem::take(&mut self.taken).into_iter();
        let slots: Vec<Value> = taken
            .filter(|token| self.parts.touched.contains(token))
            .map(|token| self.hands[&token].slot)
            .collect();
        if !slots.is_empty() {
            self.cursor.emit(GpuOp::FenceProxy {}, &slots, []);
        }
    }

    fn publish(&mut self, hand: Hand) {
        let plan = self.plans[&hand.root].clone();
        if plan.writer == Writer::Tensor {
            return;
        }
        let full = self.barriers[&hand.root].full;
        if plan.writer == Writer::Copies {
            match full.filter(|_| self.parts.teams.is_last(hand.root)) {
                // It arrives when the copies are done, and nobody waits for them here.
                Some(full) => {
                    self.cursor.emit(GpuOp::MbarrierArriveCopies {}, &[full, hand.index], []);
                }
                None if full.is_none() && self.parts.teams.is_last(hand.root) => {
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
            self.cursor.emit(GpuOp::MbarrierArrive {}, &[full, hand.index], []);
        }
    }

    /// The next slot, and with the first one again the next phase.
    fn advance(&mut self, end: RingEnd, state: &mut State) {
        let slots = self.plans[&end.0].buffer.slots;
        let at = state[&end].clone();
        let passed = at.passed.map(|passed| passed + 1);
        if let Some(slot) = at.slot {
            let slot = (slot + 1) % slots;
            let index = if slots == 1 { at.index } else { self.number(slot.into()) };
            let phase = if slot == 0 { at.phase.map(|phase| self.flip(phase)) } else { at.phase };
            state.insert(end, Position { index, slot: Some(slot), phase, passed });
            return;
        }
        let [zero, one, count] = [0, 1, i64::from(slots)].map(|number| self.numbers[&number]);
        let flipped = at.phase.map(|phase| (phase, self.flip(phase)));
        let next = self.scalar(ElementwiseFn::Add, &[at.index, one]);
        let is_end = self.scalar(ElementwiseFn::Eq, &[next, count]);
        let index = self.scalar(ElementwiseFn::Select, &[is_end, zero, next]);
        let phase =
            flipped.map(|(phase, flipped)| self.scalar(ElementwiseFn::Select, &[is_end, flipped, phase]));
        state.insert(end, Position { index, slot: None, phase, passed });
    }

    fn number(&mut self, number: i64) -> Value {
        match self.numbers.get(&number) {
            Some(known) => *known,
            None => self.cursor.int(Dtype::I32, number),
        }
    }

    /// The other phase.
    fn flip(&mut self, phase: Value) -> Value {
        match self.flipped.get(&phase) {
            Some(known) => *known,
            None => self.scalar(ElementwiseFn::Xor, &[phase, self.numbers[&1]]),
        }
    }

    /// The values that an end is carried as.
    fn parts_of(&self, end: RingEnd, state: &State) -> SmallVec<[Value; 2]> {
        let at = &state[&end];
        let index = (self.plans[&end.0].buffer.slots > 1).then_some(at.index);
        index.into_iter().chain(at.phase).collect()
    }

    /// The values that are carried, in the order of [`Lower::replace`].
    fn carried_values(&self, carried: &Carried, parity: Option<Value>, state: &State) -> Vec<Value> {
        let mut values: Vec<Value> = carried.ends.iter().flat_map(|end| self.parts_of(*end, state)).collect();
        let own = carried.whole.iter().filter(|(_, phase)| matches!(phase, CarriedPhase::Own));
        values.extend(own.filter_map(|(end, _)| state[end].phase));
        values.extend(parity.filter(|_| carried.has_parity()));
        values
    }

    /// What a loop carries of the ends that advance in it. An end that goes around its ring as a whole in each iteration, from a
    /// slot that is known, has the same slots in all of them; ends whose first phases are known as well have one parity.
    fn carried(&self, inst: Inst, ends: BTreeSet<RingEnd>, state: &State) -> Carried {
        let mut carried = Carried { ends, ..Carried::default() };
        if !matches!(self.cursor.function.insts[inst].op.as_tile(), Some(ir::Op::For { .. })) {
            return carried;
        }
        let mut with_parity = Vec::new();
        for end in carried.ends.clone() {
            let slots = self.plans[&end.0].buffer.slots;
            let Some(step) = self.parts.steps.get(&(inst, end)).copied().flatten() else { continue };
            if !step.is_multiple_of(slots) || state[&end].slot.is_none() {
                continue;
            }
            carried.ends.remove(&end);
            let phase = if (step / slots).is_multiple_of(2) || state[&end].phase.is_none() {
                CarriedPhase::Same
            } else {
                let known = [0, 1].map(|number| Some(self.numbers[&number]) == state[&end].phase);
                if known.contains(&true) {
                    with_parity.push((end, known[1]));
                }
                CarriedPhase::Own
            };
            carried.whole.insert(end, phase);
        }
        if with_parity.len() > 1 {
            let shared = with_parity.into_iter().map(|(end, first)| (end, CarriedPhase::Parity(first)));
            carried.whole.extend(shared);
        }
        carried
    }

    /// The state with other values for what is carried, made one by one; the parity, if one is.
    fn replace(
        &mut self,
        carried: &Carried,
        state: &State,
        mut make: impl FnMut(&mut Function) -> Value,
    ) -> (State, Option<Value>) {
        let mut inner = state.clone();
        for end in &carried.ends {
            let is_counted = self.plans[&end.0].buffer.slots > 1;
            let at = inner.get_mut(end).expect("it is there where it advances");
            at.passed = None;
            if is_counted {
                at.slot = None;
                at.index = make(self.cursor.function);
            }
            if at.phase.is_some() {
                at.phase = Some(make(self.cursor.function));
            }
        }
        for (end, phase) in &carried.whole {
            let at = inner.get_mut(end).expect("it is there where it advances");
            at.passed = None;
            if matches!(phase, CarriedPhase::Own) {
                at.phase = Some(make(self.cursor.function));
            }
        }
        (inner, carried.has_parity().then(|| make(self.cursor.function)))
    }

    /// Gives the ends that share a parity their phases, which are it or the other one; returns the other one.
    fn share_parity(&mut self, carried: &Carried, parity: Option<Value>, state: &mut State) -> Option<Value> {
        let parity = parity?;
        let other = self.scalar(ElementwiseFn::Xor, &[parity, self.numbers[&1]]);
        self.flipped.extend([(parity, other), (other, parity)]);
        for (end, phase) in &carried.whole {
            if let CarriedPhase::Parity(first) = phase {
                let at = state.get_mut(end).expect("it is there where it advances");
                at.phase = Some(if *first { other } else { parity });
            }
        }
        Some(other)
    }

    fn regions(&mut self, inst: Inst, state: &mut State) {
        let data = self.cursor.function.insts[inst].clone();
        let ends = self.parts.advances.get(&inst).cloned().unwrap_or_default();
        if let Op::Gpu(GpuOp::WarpSpecialize { .. }) = data.op {
            return self.roles(inst, state);
        }
        let is_loop = matches!(data.op.as_tile(), Some(ir::Op::For { .. } | ir::Op::While {}));
        for place in 0..data.operands.len() {
            if let Some(hand) = self.hands.get(&data.operands[place]) {
                self.cursor.function.insts[inst].operands[place] = hand.index;
            }
        }
        let mut carried = self.carried(inst, ends, state);
        if is_loop {
            let values = self.carried_values(&carried, self.numbers.get(&0).copied(), state);
            self.cursor.function.insts[inst].operands.extend(values);
        }
        for (number, region) in data.regions.iter().enumerate() {
            let (mut inner, parity) = if is_loop {
                let add = |function: &mut Function| function.add_parameter(*region, index_type(), None);
                self.replace(&carried, state, add)
            } else {
                (state.clone(), None)
            };
            let outer = self.cursor.enter(*region);
            let insts = self.cursor.take_rest();
            carried.next_parity = self.share_parity(&carried, parity, &mut inner);
            self.join_ends(inst, &mut inner);
            let is_condition = matches!(data.op.as_tile(), Some(ir::Op::While {})) && number == 0;
            let nothing = Carried::default();
            self.block(insts, &mut inner, if is_condition { &nothing } else { &carried });
            self.cursor.go_to(outer);
        }
        self.cursor.insert(inst);
        let add = |function: &mut Function| {
            let definition = Definition::Result(inst, function.insts[inst].results.len() as u32);
            let value = function.values.push(ValueData { ty: index_type(), definition, name: None });
            function.insts[inst].results.push(value);
            value
        };
        let (after, parity) = self.replace(&carried, state, add);
        *state = after;
        self.share_parity(&carried, parity, state);
        self.join_ends(inst, state);
        for result in data.results {
            self.hand_if_token(result);
        }
    }

    /// An empty ring is acquired where it is taken, another one `held` slots after that. A slot that is full in the phase of one
    /// parity next was emptied in that of the other.
    fn join_ends(&mut self, inst: Inst, state: &mut State) {
        for (root, held) in self.parts.even.get(&inst).cloned().into_iter().flatten() {
            let taken = state[&(root, End::Take)].clone();
            let mut phase = state[&(root, End::Acquire)].phase;
            let slots = i64::from(self.plans[&root].buffer.slots);
            if let Some(slot) = taken.slot {
                let slot = i64::from(slot) + held;
                let index = if slots == 1 { taken.index } else { self.number(slot % slots) };
                if let (Some(phase), Some(full)) = (&mut phase, taken.phase) {
                    *phase = if slot / slots % 2 == 0 { self.flip(full) } else { full };
                }
                let slot = u32::try_from(slot % slots).ok();
                state.insert((root, End::Acquire), Position { index, slot, phase, passed: None });
                continue;
            }
            let (mut index, mut is_behind) = (taken.index, None);
            if held % slots != 0 {
                let held = self.cursor.int(Dtype::I32, held);
                let slots = self.numbers[&slots];
                let sum = self.scalar(ElementwiseFn::Add, &[taken.index, held]);
                index = self.scalar(ElementwiseFn::IntRem, &[sum, slots]);
                is_behind = Some([sum, slots]);
            }
            if let (Some(phase), Some(full)) = (&mut phase, taken.phase) {
                *phase = full;
                if held < slots {
                    *phase = self.flip(full);
                }
                if let Some(sum) = is_behind {
                    let is_behind = self.scalar(ElementwiseFn::Ge, &sum);
                    *phase = self.scalar(ElementwiseFn::Select, &[is_behind, full, *phase]);
                }
            }
            state.insert((root, End::Acquire), Position { index, slot: None, phase, passed: None });
        }
    }

    fn roles(&mut self, inst: Inst, state: &mut State) {
        let mut waits = false;
        for (role, region) in self.cursor.function.insts[inst].regions.clone().into_iter().enumerate() {
            let mut inner = state.clone();
            for (root, plan) in &self.plans {
                let Some(roles) = plan.roles.as_ref().filter(|roles| roles.inst == inst) else { continue };
                waits = true;
                if roles.producer == role {
                    inner.insert((*root, End::Acquire), self.first(End::Acquire, plan));
                }
                if roles.consumers.contains(&role) {
                    inner.insert((*root, End::Take), self.first(End::Take, plan));
                }
            }
            let outer = self.cursor.enter(region);
            let insts = self.cursor.take_rest();
            self.block(insts, &mut inner, &Carried::default());
            self.cursor.go_to(outer);
        }
        if waits {
            // All see the barriers that were made ready.
            self.cursor.emit(ir::Op::Barrier {}, &[], []);
        }
        self.cursor.insert(inst);
    }
}
