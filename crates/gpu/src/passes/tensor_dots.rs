//! Moves the accumulators of asynchronous dots to tensor memory, on targets with `tcgen05.mma`.
//!
//! The earlier passes schedule dots and waits as for `wgmma`. This pass replaces them:
//!
//! ```text
//! %d = wgmma %a, %b, %acc                          tmem_store %m, %acc
//! %e = wgmma_wait %d {pending = 0}          =>     tcgen05_mma %a, %b, %m, %yes
//!                                                  tcgen05_commit %barriers, 0
//!                                                  mbarrier_wait %barriers, 0, 0
//!                                                  %e = tmem_load %m
//! ```
//! An accumulator of zeros is not stored: its dot overwrites the tensor memory. A dot that continues
//! a dot in flight uses the same tensor memory. A `wgmma_init` stores to it.
//!
//! The commit of dot `n` arrives at the `mbarrier` of slot `n % slots`, in phase `n / slots`. So
//! `wgmma_wait {pending = p}` after `n` dots waits for the phase of dot `n - 1 - p`. Loops and
//! branches with dots carry `n`. Before dot `n`, each thread waits for dot `n - slots`, because an
//! `mbarrier` has one phase at a time.
//!
//! A dot with scales becomes a `tcgen05_mma_scaled`. Threads store its scales to slot
//! `n % SCALE_SLOTS` of tensor memory, after a wait for dot `n - SCALE_SLOTS`:
//!
//! ```text
//! %d = wgmma %a, %b, %acc, %a_scale, %b_scale      %s = slot %a_scales, %k ; tmem_store %s, %a_scale
//!                                             =>   %t = slot %b_scales, %k ; tmem_store %t, %b_scale
//!                                                  tcgen05_mma_scaled %a, %b, %m, %s, %t, %yes
//! ```
//!
//! The blocks of a pair compute dots together if [`pairs`] divides the operands. Each dot completes
//! a phase in both blocks. Before the first block starts dot `n`, both blocks arrive at its barrier
//! `ready`. Their threads have then accessed the accumulator and waited for dot `n - slots`:
//!
//! ```text
//! barrier ; mbarrier_arrive_at %ready, %s, %lead ; mbarrier_wait %ready, %s, %p | %odd
//! tcgen05_mma %a, %b, %m, %yes ; tcgen05_commit %barriers, %s {pair}
//! ```

pub mod pairs;

use cranelift_entity::packed_option::ReservedValue;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::smallvec;
use tilewright_ir as ir;
use tilewright_ir::{
    Carried, Cursor, Definition, Dtype, ElementwiseFn, Inst, Operation, ScaledFormats, Value, ValueData,
    constant_of,
};

use self::pairs::{PairPlan, PairValues};
use crate::assign::tcgen05_selection::SCALE_SLOTS;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::target::Feature;
use tilewright_gpu_ir::{Deferred, Function, Gpu, GpuOp, Header, Module, Op, TensorMemory, Type};

/// Replaces the asynchronous dots of a kernel by dots of tensor memory.
pub fn use_tensor_memory(module: &mut Module) {
    if !module.header.target.features.has(Feature::Tcgen05) {
        return;
    }
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut dots = Dots::new(function);
    if dots.classes.is_empty() {
        return;
    }
    let pair = plan_pairs(header, function, &mut dots).map(|plan| plan.divide(header, function));
    let mut cursor = Cursor::at_start(function, function.entry);
    let insts = cursor.take_rest();
    let memories: Vec<Option<Value>> = (0..dots.types.len())
        .map(|class| {
            let memory = dots.types[class].clone().filter(|_| dots.class_of(class) == class)?;
            let op = GpuOp::Alloc { offset: Deferred(None) };
            Some(cursor.value(op, &[], Type::TensorMemory(memory)))
        })
        .collect();
    let mut scale_memories = Vec::new();
    for scales in &dots.scales {
        let values = scales.each_ref().map(|memory| {
            let ty = Type::TensorMemory(TensorMemory { slots: SCALE_SLOTS, ..memory.clone() });
            cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], ty)
        });
        scale_memories.push((scales.clone(), values));
    }
    let slots = (dots.pending + 1).next_power_of_two().max(SCALE_SLOTS);
    let barriers = cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], Type::Mbarrier { slots });
    cursor.emit(GpuOp::MbarrierInit { arrivals: 1 }, &[barriers], []);
    let pair = pair.map(|values| {
        let ready = cursor.value(GpuOp::Alloc { offset: Deferred(None) }, &[], Type::Mbarrier { slots });
        cursor.emit(GpuOp::MbarrierInit { arrivals: pairs::PAIR }, &[ready], []);
        Pair { values, ready }
    });
    cursor.emit(GpuOp::FenceProxy {}, &[], []);
    let issued = cursor.int(Dtype::I32, 0);
    let mut lowering = TensorDots {
        cursor,
        dots,
        memories,
        scale_memories,
        barriers,
        slots,
        pair,
        current: FxHashMap::default(),
        loaded: FxHashSet::default(),
    };
    lowering.lower_block(&insts, issued, false);
    let loops: Vec<Inst> = lowering.dots.around.iter().copied().collect();
    for inst in loops {
        let kept: FxHashSet<Value> = function
            .carried(inst)
            .map(|carried| carried.result)
            .filter(|result| !matches!(function.ty(*result), Type::Pending { .. }))
            .collect();
        function.retain_carried(inst, |carried| kept.contains(&carried.result));
    }
    if pair.is_some() {
        pairs::synchronize_at_end(function);
    }
}

/// Decides whether pairs of blocks compute the dots together, and gives them such accumulators.
fn plan_pairs(header: &Header, function: &Function, dots: &mut Dots) -> Option<PairPlan> {
    if !pairs::has_pairs(header) {
        return None;
    }
    let plan = pairs::plan(header, function);
    let refused = plan.as_ref().err().map(|refusal| (refusal.inst, refusal.reason));
    let inst = refused.and_then(|(inst, _)| inst).unwrap_or(dots.first);
    let subject = || remarks::subject(function, inst, None);
    remarks::about("tensor_dots", function, inst, subject, || match refused {
        None => RemarkReason::done(
            "computed by pairs of blocks",
            "the blocks of a pair need the same B, and each copies half of it",
        ),
        Some((_, reason)) => RemarkReason::missed("each block computes its dots itself", reason),
    });
    let plan = plan.ok()?;
    for memory in dots.types.iter_mut().flatten() {
        memory.cta_group = pairs::PAIR;
    }
    Some(plan)
}

/// The asynchronous dots of a function, by the tensor memory of their accumulators.
struct Dots {
    /// The loops and branches around dots.
    around: FxHashSet<Inst>,
    /// The class of each value of type `pending`: all values of a class are in one tensor memory.
    classes: FxHashMap<Value, usize>,
    /// The class that each class was merged into, or the class itself.
    parents: Vec<usize>,
    /// The tensor memory of each class.
    types: Vec<Option<TensorMemory>>,
    /// The tensor memory of the scales of each operand of dots, with one slot.
    scales: Vec<[TensorMemory; 2]>,
    /// The most dots that a wait leaves in flight.
    pending: u32,
    /// The first dot.
    first: Inst,
}

impl Dots {
    fn new(function: &Function) -> Self {
        let mut dots = Self {
            around: FxHashSet::default(),
            classes: FxHashMap::default(),
            parents: Vec::new(),
            types: Vec::new(),
            scales: Vec::new(),
            pending: 0,
            first: Inst::reserved_value(),
        };
        let entry = function.entry;
        dots.block(function, entry);
        dots
    }

    /// Adds the dots of a block. Returns whether there are any.
    fn block(&mut self, function: &Function, block: ir::Block) -> bool {
        let mut has_dots = false;
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            match &data.op {
                Op::Gpu(GpuOp::Wgmma { formats, .. }) => {
                    has_dots = true;
                    if self.first.is_reserved_value() {
                        self.first = inst;
                    }
                    if formats.is_some() {
                        let scales = scale_memory(function, [data.operands[3], data.operands[4]]);
                        if !self.scales.contains(&scales) {
                            self.scales.push(scales);
                        }
                    }
                    self.join(function, data.results[0], data.operands[2]);
                }
                Op::Gpu(GpuOp::WgmmaInit {}) => self.join(function, data.results[0], data.results[0]),
                Op::Gpu(GpuOp::WgmmaWaitEarlier { pending }) => {
                    self.pending = self.pending.max(*pending);
                    self.join(function, data.results[0], data.operands[0]);
                }
                Op::Gpu(GpuOp::WgmmaWait { pending }) => {
                    self.pending = self.pending.max(pending.0.unwrap_or(0));
                }
                // tidy: wildcard because the others only carry accumulators in flight
                _ => {
                    let mut is_around = false;
                    for &region in &data.regions {
                        is_around |= self.block(function, region);
                    }
                    if is_around {
                        has_dots = true;
                        self.around.insert(inst);
                    }
                    for Carried { initial, parameters, yielded, result } in function.carried(inst) {
                        for other in initial.into_iter().chain(parameters).chain(yielded) {
                            self.join(function, result, other);
                        }
                    }
                    let mut carried: Vec<usize> = function
                        .carried(inst)
                        .filter(|carried| self.classes.contains_key(&carried.result))
                        .map(|carried| self.class(carried.result))
                        .collect();
                    carried.sort_unstable();
                    let is_permuted = carried.windows(2).any(|pair| pair[0] == pair[1]);
                    assert!(!is_permuted, "no loop permutes the accumulators of dots in flight");
                }
            }
        }
        has_dots
    }

    /// Gives two values of type `pending` the same class. Leaves other values alone.
    fn join(&mut self, function: &Function, one: Value, other: Value) {
        let [one, other] = [one, other].map(|value| {
            let Type::Pending { tile, .. } = function.ty(value) else { return None };
            Some(*self.classes.entry(value).or_insert_with(|| {
                self.types.push(TensorMemory::of_accumulator(tile));
                self.parents.push(self.parents.len());
                self.parents.len() - 1
            }))
        });
        if let (Some(one), Some(other)) = (one, other) {
            let (one, other) = (self.class_of(one), self.class_of(other));
            self.parents[one] = other;
        }
    }

    /// Returns the class that a class was merged into.
    fn class_of(&self, mut class: usize) -> usize {
        while self.parents[class] != class {
            class = self.parents[class];
        }
        class
    }

    fn class(&self, value: Value) -> usize {
        self.class_of(self.classes[&value])
    }
}

/// Returns the tensor memory of one slot of the scales of A and of B.
fn scale_memory(function: &Function, scales: [Value; 2]) -> [TensorMemory; 2] {
    scales.map(|value| {
        let tile = function.ty(value).as_registers().expect("scales are in registers");
        TensorMemory::of_scales(tile).expect("the verifier checks the scales")
    })
}

/// The pair of blocks that computes the dots.
#[derive(Clone, Copy)]
struct Pair {
    values: PairValues,
    /// The barriers at which both blocks arrive before a dot, one for each slot.
    ready: Value,
}

struct TensorDots<'f> {
    cursor: Cursor<'f, Gpu>,
    dots: Dots,
    /// The tensor memory of each class that was not merged into another.
    memories: Vec<Option<Value>>,
    /// The tensor memory of scales, by the types of one slot of A and of B.
    scale_memories: Vec<([TensorMemory; 2], [Value; 2])>,
    barriers: Value,
    /// The number of `mbarrier`s, a power of two.
    slots: u32,
    /// The pair of blocks that computes the dots; `None` if each block does.
    pair: Option<Pair>,
    /// For each class, the accumulator that its tensor memory contains.
    current: FxHashMap<usize, Value>,
    /// The waits that moved up, before a dot that overwrites their accumulator.
    loaded: FxHashSet<Inst>,
}

impl TensorDots<'_> {
    /// Rewrites instructions that were removed from the block of the cursor. `issued` is the number
    /// of dots before them; `yields` is true if the block yields that number. Returns the number
    /// after them.
    fn lower_block(&mut self, insts: &[Inst], mut issued: Value, yields: bool) -> Value {
        for (index, &inst) in insts.iter().enumerate() {
            if self.loaded.contains(&inst) {
                continue;
            }
            self.cursor.use_location_of(inst);
            let data = self.cursor.function.insts[inst].clone();
            match &data.op {
                Op::Gpu(op @ GpuOp::Wgmma { .. }) => {
                    self.load_overwritten(data.results[0], &insts[index + 1..], issued);
                    issued = self.start_dot(op, &data.operands, data.results[0], issued);
                }
                Op::Gpu(GpuOp::WgmmaInit {}) => {
                    let memory = self.memory(data.results[0]);
                    self.cursor.emit(GpuOp::TmemStore {}, &[memory, data.operands[0]], []);
                    self.set_current(data.results[0]);
                }
                Op::Gpu(GpuOp::WgmmaWaitEarlier { pending }) => {
                    self.continue_with(data.operands[0], data.results[0]);
                    self.wait(issued, pending + 1);
                }
                Op::Gpu(GpuOp::WgmmaWait { pending }) => {
                    self.wait(issued, pending.0.unwrap_or(0) + 1);
                    self.load(inst);
                }
                Op::Tile(ir::Op::Yield {}) if yields => {
                    for value in &data.operands {
                        self.ensure_current(*value);
                    }
                    self.cursor.function.insts[inst].operands.push(issued);
                    self.cursor.insert(inst);
                }
                _ if self.dots.around.contains(&inst) && !data.regions.is_empty() => {
                    issued = self.lower_regions(inst, issued);
                }
                // tidy: wildcard because the others stay
                _ => self.cursor.insert(inst),
            }
        }
        issued
    }

    /// Rewrites a loop or a branch, which then carries the number of dots. Returns the number after
    /// it.
    fn lower_regions(&mut self, inst: Inst, issued: Value) -> Value {
        let data = self.cursor.function.insts[inst].clone();
        let ty = || Type::scalar(ir::Type::scalar(Dtype::I32));
        let is_loop = data.op.info().family == ir::OpFamily::Loop;
        if is_loop {
            self.cursor.function.insts[inst].operands.push(issued);
        }
        let conditions = self.cursor.function.conditions(inst).len();
        let carried: Vec<Carried> = self.cursor.function.carried(inst).collect();
        for initial in carried.iter().filter_map(|carried| carried.initial) {
            self.ensure_current(initial);
        }
        let before = self.current.clone();
        for (number, region) in data.regions.into_iter().enumerate() {
            let first = if is_loop { self.cursor.function.add_parameter(region, ty(), None) } else { issued };
            self.current.clone_from(&before);
            for carried in &carried {
                if let Some(parameter) = carried.parameters.get(number) {
                    self.set_current(*parameter);
                }
            }
            let outer = self.cursor.enter(region);
            let insts = self.cursor.take_rest();
            self.lower_block(&insts, first, number >= conditions);
            self.cursor.go_to(outer);
        }
        self.cursor.insert(inst);
        for carried in &carried {
            self.set_current(carried.result);
        }
        let function = &mut *self.cursor.function;
        let definition = Definition::Result(inst, function.insts[inst].results.len() as u32);
        let result = function.values.push(ValueData { ty: ty(), definition, name: None });
        function.insts[inst].results.push(result);
        result
    }

    /// Records that tensor memory contains an accumulator. Other values change nothing.
    fn set_current(&mut self, value: Value) {
        if self.dots.classes.contains_key(&value) {
            self.current.insert(self.dots.class(value), value);
        }
    }

    /// Panics if no tensor memory contains an accumulator any more. Other values are allowed.
    fn ensure_current(&self, value: Value) {
        let is_current = !self.dots.classes.contains_key(&value)
            || self.current.get(&self.dots.class(value)) == Some(&value);
        assert!(is_current, "a dot overwrites an accumulator in flight that is read later");
    }

    /// Records that an accumulator becomes another one in the same tensor memory.
    fn continue_with(&mut self, value: Value, next: Value) {
        self.ensure_current(value);
        self.set_current(next);
    }

    fn memory(&self, value: Value) -> Value {
        self.memories[self.dots.class(value)].expect("each class has memory")
    }

    /// Starts a dot, whose result was `result`. Returns the number of dots including this dot.
    fn start_dot(&mut self, dot: &GpuOp, operands: &[Value], result: Value, issued: Value) -> Value {
        let (GpuOp::Wgmma { transposed_a, transposed_b, formats, .. }, &[a, b, acc, ..]) = (dot, operands)
        else {
            unreachable!("the caller passes an asynchronous dot")
        };
        let (transposed_a, transposed_b) = (*transposed_a, *transposed_b);
        let memory = self.memory(result);
        self.continue_with(acc, result);
        self.wait(issued, if formats.is_some() { SCALE_SLOTS } else { self.slots });
        let is_stored = matches!(self.cursor.function.ty(acc), Type::Registers { .. });
        let is_zero = is_stored && constant_of(self.cursor.function, acc).is_some_and(|zero| zero.bits == 0);
        if is_stored && !is_zero {
            self.cursor.emit(GpuOp::TmemStore {}, &[memory, acc], []);
        }
        let scales = formats.map(|_| self.store_scales([operands[3], operands[4]], issued));
        // All threads have accessed the tensor memory, and have waited for the phase of the slot.
        self.cursor.emit(ir::Op::Barrier {}, &[], []);
        self.wait_for_pair(issued);
        let use_acc = self.cursor.int(Dtype::I1, i128::from(!is_zero));
        if let Some((ScaledFormats([a_format, b_format]), [a_scale, b_scale])) = formats.zip(scales) {
            let op = GpuOp::Tcgen05MmaScaled { a_format, b_format, transposed_a, transposed_b };
            self.cursor.emit(op, &[a, b, memory, a_scale, b_scale, use_acc], []);
        } else {
            let op = GpuOp::Tcgen05Mma { transposed_a, transposed_b };
            self.cursor.emit(op, &[a, b, memory, use_acc], []);
        }
        let slot = self.slot(issued, self.slots);
        self.cursor.emit(GpuOp::Tcgen05Commit { pair: self.pair.is_some() }, &[self.barriers, slot], []);
        let one = self.cursor.int(Dtype::I32, 1);
        self.cursor.scalar(ElementwiseFn::Add, &[issued, one], Dtype::I32)
    }

    /// Stores the scales of the dot after `issued` others. Returns their tensor memory.
    fn store_scales(&mut self, scales: [Value; 2], issued: Value) -> [Value; 2] {
        let types = scale_memory(self.cursor.function, scales);
        let found = self.scale_memories.iter().find(|(known, _)| *known == types);
        let memories = found.expect("the scales of each dot have memory").1;
        let slot = self.slot(issued, SCALE_SLOTS);
        let [a, b] = types;
        [(a, memories[0], scales[0]), (b, memories[1], scales[1])].map(|(ty, memory, scale)| {
            let memory = self.cursor.value(GpuOp::Slot {}, &[memory, slot], Type::TensorMemory(ty));
            self.cursor.emit(GpuOp::TmemStore {}, &[memory, scale], []);
            memory
        })
    }

    /// Loads an accumulator that a dot overwrites, although a later wait of the block loads it.
    fn load_overwritten(&mut self, result: Value, rest: &[Inst], issued: Value) {
        let class = self.dots.class(result);
        let function = &*self.cursor.function;
        let overwritten = rest.iter().copied().find(|&inst| {
            let data = &function.insts[inst];
            let is_wait = matches!(data.op, Op::Gpu(GpuOp::WgmmaWait { .. }));
            is_wait
                && self.dots.class(data.operands[0]) == class
                && !self.follows(data.operands[0], result, rest)
        });
        if let Some(inst) = overwritten.filter(|inst| self.loaded.insert(*inst)) {
            self.wait(issued, 1);
            self.load(inst);
        }
    }

    /// Returns whether the accumulator `value` contains the dot with the result `dot`. The block of
    /// the dot has the instructions `rest` after it.
    fn follows(&self, mut value: Value, dot: Value, rest: &[Inst]) -> bool {
        let function = &*self.cursor.function;
        while value != dot {
            let Some(inst) = function.defining_inst(value) else { return false };
            let data = &function.insts[inst];
            let carried = function.carried_by(inst, value);
            let source = match (&data.op, carried) {
                (Op::Gpu(GpuOp::Wgmma { .. }), _) => Some(data.operands[2]),
                (Op::Gpu(GpuOp::WgmmaWaitEarlier { .. }), _) => Some(data.operands[0]),
                // A loop continues the dot that it starts from.
                (_, Some(carried)) => carried.initial,
                (_, None) => None,
            };
            let is_in_flight = |value: &Value| matches!(function.ty(*value), Type::Pending { .. });
            match source.filter(is_in_flight) {
                Some(source) => value = source,
                // Another dot, or a branch, is the first of the accumulator.
                None => return source.is_none() && rest.contains(&inst),
            }
        }
        true
    }

    /// Turns a wait into a load of its accumulator.
    fn load(&mut self, inst: Inst) {
        let accumulator = self.cursor.function.insts[inst].operands[0];
        self.ensure_current(accumulator);
        let memory = self.memory(accumulator);
        let data = &mut self.cursor.function.insts[inst];
        (data.op, data.operands) = (GpuOp::TmemLoad {}.into(), smallvec![memory]);
        self.cursor.insert(inst);
    }

    /// Waits in the first block of a pair until both blocks are ready for the dot after `issued`
    /// others.
    fn wait_for_pair(&mut self, issued: Value) {
        let Some(Pair { values: PairValues { lead, odd }, ready }) = self.pair else { return };
        let (slot, parity) = self.phase(issued);
        self.cursor.emit(GpuOp::MbarrierArriveAt { arrivals: 1, bytes: 0 }, &[ready, slot, lead], []);
        let parity = self.cursor.scalar(ElementwiseFn::Or, &[parity, odd], Dtype::I32);
        self.cursor.emit(GpuOp::MbarrierWait {}, &[ready, slot, parity], []);
    }

    /// Waits for the dot that is `before` dots before the next one.
    fn wait(&mut self, issued: Value, before: u32) {
        let before = self.cursor.int(Dtype::I32, -i128::from(before));
        let dot = self.cursor.scalar(ElementwiseFn::Add, &[issued, before], Dtype::I32);
        let (slot, parity) = self.phase(dot);
        self.cursor.emit(GpuOp::MbarrierWait {}, &[self.barriers, slot, parity], []);
    }

    /// Returns the slot and the parity of the phase of a dot.
    fn phase(&mut self, dot: Value) -> (Value, Value) {
        let slot = self.slot(dot, self.slots);
        let [bits, one] = [self.slots.ilog2(), 1].map(|number| self.cursor.int(Dtype::I32, number));
        let phase = self.cursor.scalar(ElementwiseFn::Shr, &[dot, bits], Dtype::I32);
        (slot, self.cursor.scalar(ElementwiseFn::And, &[phase, one], Dtype::I32))
    }

    /// Returns the slot of a dot, of a number of slots that is a power of two.
    fn slot(&mut self, dot: Value, slots: u32) -> Value {
        let mask = self.cursor.int(Dtype::I32, slots - 1);
        self.cursor.scalar(ElementwiseFn::And, &[dot, mask], Dtype::I32)
    }
}
