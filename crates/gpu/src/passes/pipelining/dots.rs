//! Finds dots of a loop that run across its iterations.
//!
//! Dots of one accumulator end in the order in which they start. So dots of the next iteration
//! start before those of this one end. Only the release of a slot waits for the dots that read it.
//!
//! **Late dots.** A dot with an operand that threads compute from another dot starts one stage
//! later. The tensor cores run it while the threads compute the next iteration (Shah et al., arXiv
//! 2407.08608). Example: in attention, the dot `Q K` is early, and `P V` is late.
//!
//! ```text
//! S = Q K(i)                     start S = Q K(i)
//! P = softmax S          =>      start O = O + P V(i - 1)
//! O = O + P V(i)                 wait for S ; softmax S
//!                                wait for O ; P = …
//! ```
//! The late stage has these dots and the ops that depend on them; the early stage has the rest.

use cranelift_entity::EntitySet;
use rustc_hash::FxHashSet;
use tilewright_ir as ir;
use tilewright_ir::{Definition, Effect, ElementwiseFn, Inst, OpFamily, Operation, Value};

use super::loop_body::LoopBody;
use super::loop_plan::{Destination, DotsInFlight, LateDots, Neutral, RingLoad};
use crate::cost_model;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::{Deferred, Function, GpuOp, Op};

/// Removes the waits between dots that add to the same accumulator.
pub(super) fn join_accumulators(function: &mut Function, body: ir::Block) {
    let insts = function.blocks[body].insts.clone();
    for inst in &insts {
        let Some(wait) = wait_for_accumulator(function, &insts, *inst) else { continue };
        let dot = function.insts[wait].operands[0];
        function.insts[*inst].operands[2] = dot;
        function.blocks[body].insts.retain(|other| *other != wait);
    }
}

/// Moves releases of slots after the waits for the dots that read them.
pub(super) fn release_after_waits(function: &mut Function, body: ir::Block) {
    let insts = function.blocks[body].insts.clone();
    let mut moved: Vec<(Inst, Inst)> = Vec::new();
    for (index, inst) in insts.iter().enumerate() {
        if !matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Release {})) {
            continue;
        }
        let slot = function.insts[*inst].operands[0];
        let reads = |dot: &&Inst| {
            let data = &function.insts[**dot];
            matches!(data.op, Op::Gpu(GpuOp::Wgmma { .. })) && data.operands[..2].contains(&slot)
        };
        let waits = insts.iter().filter(reads).filter_map(|dot| wait_of(function, &insts, *dot));
        let last = waits.max_by_key(|wait| insts.iter().position(|other| other == wait));
        moved.extend(last.filter(|wait| insts[index..].contains(wait)).map(|wait| (*inst, wait)));
    }
    let body = &mut function.blocks[body].insts;
    for (release, wait) in moved.into_iter().rev() {
        body.retain(|inst| *inst != release);
        let index = body.iter().position(|inst| *inst == wait).expect("the wait is in the body");
        body.insert(index + 1, release);
    }
}

/// Returns the wait for a dot, or for the last dot of its accumulator.
fn wait_of(function: &Function, insts: &[Inst], dot: Inst) -> Option<Inst> {
    let result = *function.insts[dot].results.first()?;
    let user = insts.iter().copied().find(|inst| function.insts[*inst].operands.contains(&result))?;
    match function.insts[user].op {
        Op::Gpu(GpuOp::WgmmaWait { .. }) => Some(user),
        Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWaitEarlier { .. }) => wait_of(function, insts, user),
        // tidy: wildcard because no other op uses a dot in flight
        _ => None,
    }
}

/// Returns the wait for the dot whose result is the accumulator of `dot`. Returns `None` if the
/// result has other users, or a dot does not accumulate exactly.
fn wait_for_accumulator(function: &Function, insts: &[Inst], dot: Inst) -> Option<Inst> {
    let exact =
        |inst: Inst| matches!(function.insts[inst].op, Op::Gpu(GpuOp::Wgmma { max_imprecise_acc: 0, .. }));
    let acc = *function.insts[dot].operands.get(2)?;
    let wait = function.defining_inst(acc).filter(|inst| exact(dot) && insts.contains(inst))?;
    let data = &function.insts[wait];
    let is_wait = matches!(data.op, Op::Gpu(GpuOp::WgmmaWait { .. })) && data.operands.len() == 1;
    let before = function.defining_inst(data.operands[0]).filter(|inst| is_wait && exact(*inst))?;
    let mut uses = 0;
    function.walk(function.entry, &mut |inst| {
        uses += function.insts[inst].operands.iter().filter(|operand| **operand == acc).count();
    });
    (uses == 1 && insts.contains(&before)).then_some(wait)
}

/// The multiplication of an accumulator in a late stage.
#[derive(Default)]
struct Scaling {
    insts: Vec<Inst>,
    factor: Option<Value>,
}

impl LoopBody<'_> {
    /// Returns the asynchronous dots of the body, in text order.
    fn wgmmas(&self) -> Vec<Inst> {
        let insts = self.function.blocks[self.block].insts.iter().copied();
        insts.filter(|inst| matches!(self.function.insts[*inst].op, Op::Gpu(GpuOp::Wgmma { .. }))).collect()
    }

    fn only_user(&self, value: Value) -> Option<Inst> {
        self.uses.only(value).map(|only| only.inst)
    }

    /// Returns the loop's dots, if they may run into the next iteration.
    pub(super) fn dots_in_flight(&self, loads: &[RingLoad]) -> Option<DotsInFlight> {
        let function = self.function;
        let insts = &function.blocks[self.block].insts;
        let dots = self.wgmmas();
        let is_other_dot =
            |inst: &Inst| function.insts[*inst].op.info().family == OpFamily::Dot && !dots.contains(inst);
        if dots.is_empty() || insts.iter().any(is_other_dot) {
            return None;
        }
        let slot = |load: &RingLoad| match &load.destination {
            Destination::Buffer { alloc, .. } => Some(function.insts[*alloc].results[0]),
            Destination::Registers => None,
        };
        let slots: Vec<Value> = loads.iter().filter_map(slot).collect();
        let (mut waits, mut all_waits, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        let mut read: FxHashSet<Value> = FxHashSet::default();
        for dot in &dots {
            let data = &function.insts[*dot];
            let Op::Gpu(GpuOp::Wgmma { max_imprecise_acc: 0, .. }) = data.op else { return None };
            let &[a, b, acc] = &data.operands[..] else { return None };
            // Both operands must be slots. The next iteration would overwrite an operand in
            // registers. Other memory may hold infinities, whose products with zeros are NaN.
            if ![a, b].iter().all(|value| slots.contains(value)) {
                return None;
            }
            read.extend([a, b]);
            let is_word = function.ty(acc).as_registers().is_some_and(|tile| element_bits(tile) == 32);
            let is_only_use = is_word && self.only_user(acc) == Some(*dot);
            let follows = wait_for_accumulator(function, insts, *dot).is_some();
            let carried = match function.values[acc].definition {
                Definition::Parameter(block, index) if block == self.block && index > 0 => {
                    Some(index as usize - 1)
                }
                Definition::Parameter(..) | Definition::Result(..) => None,
            };
            if !is_only_use || !(follows || carried.is_some()) {
                return None;
            }
            let wait = self.only_user(data.results[0]).filter(|inst| self.index(*inst).is_some())?;
            let wait_data = &function.insts[wait];
            if !matches!(wait_data.op, Op::Gpu(GpuOp::WgmmaWait { .. })) || wait_data.operands.len() != 1 {
                return None;
            }
            all_waits.push(wait);
            indices.extend(carried);
            let user = self.only_user(wait_data.results[0])?;
            if Some(user) == function.terminator(self.block) {
                waits.push(wait);
            } else if !dots.contains(&user) {
                return None;
            }
        }
        // Each accumulator must be yielded at the index at which it is carried.
        let yielded = function.yielded(self.block);
        let ends_of =
            |index: &usize| waits.iter().any(|inst| function.insts[*inst].results[..] == [yielded[*index]]);
        let is_own =
            waits.len() == indices.len() && indices.iter().all(ends_of) && self.keep_indices(&indices);
        let may_repeat = insts.iter().all(|inst| {
            dots.contains(inst)
                || all_waits.contains(inst)
                || self.is_plain(*inst)
                || is_of_load(loads, *inst)
                || self.is_of_buffer(loads, *inst)
        });
        // The other carried values are for the addresses of copies.
        let results = &function.insts[self.inst].results;
        let is_accumulator =
            (0..results.len()).all(|index| indices.contains(&index) || self.uses.count(results[index]) == 0);
        let is_every_load_read = slots.len() == loads.len() && slots.iter().all(|slot| read.contains(slot));
        (is_own && may_repeat && is_accumulator && is_every_load_read).then_some(DotsInFlight { dots, waits })
    }

    /// Returns whether each carried value is the first accumulator of its next value's dots.
    fn keep_indices(&self, indices: &[usize]) -> bool {
        let function = self.function;
        indices.iter().all(|index| {
            let mut value = function.yielded(self.block)[*index];
            // Go from the last dot back to the first dot.
            while let Some(wait) = function.defining_inst(value).filter(|inst| self.index(*inst).is_some()) {
                let Some(dot) = function.defining_inst(function.insts[wait].operands[0]) else {
                    return false;
                };
                value = function.insts[dot].operands[2];
            }
            value == function.blocks[self.block].parameters[index + 1]
        })
    }

    /// Returns whether an instruction is pure without regions, a proxy fence, or the terminator.
    fn is_plain(&self, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let effect = data.op.info().effect;
        let is_fence = matches!(data.op, Op::Gpu(GpuOp::FenceProxy {}));
        is_fence || (data.regions.is_empty() && matches!(effect, Effect::Pure | Effect::Terminator))
    }

    fn is_of_buffer(&self, loads: &[RingLoad], inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let is_its = |load: &RingLoad| match &load.destination {
            Destination::Buffer { alloc, .. } => self.function.insts[*alloc].results[0] == data.operands[0],
            Destination::Registers => false,
        };
        matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && loads.iter().any(is_its)
    }

    /// Returns the early and late stages of the body, if it has late dots.
    pub(super) fn late_dots(&self, loads: &[RingLoad]) -> Option<LateDots> {
        let function = self.function;
        let insts = &function.blocks[self.block].insts;
        let all = self.wgmmas();
        let dots: Vec<Inst> = all.iter().copied().filter(|dot| self.depends_on_others(*dot, &all)).collect();
        let indices: Vec<usize> = dots
            .iter()
            .map(|dot| loads.iter().position(|load| self.is_read_by_only(load, *dot, &dots)))
            .collect::<Option<_>>()?;
        let (early, mut late) = (all.iter().filter(|dot| !dots.contains(dot)), self.depending(&dots)?);
        let early: Vec<Inst> = early.copied().collect();
        if dots.is_empty() || early.iter().any(|dot| late.contains(dot)) {
            return None;
        }
        let mut needed: FxHashSet<Value> = dots.iter().map(|dot| function.insts[*dot].operands[0]).collect();
        let mut operand_ops = FxHashSet::default();
        for inst in self.exclusive(&late) {
            let data = &function.insts[inst];
            if data.results.iter().any(|value| needed.contains(value)) {
                needed.extend(&data.operands);
                operand_ops.insert(inst);
            } else {
                late.insert(inst);
            }
        }
        for index in &indices {
            let Destination::Buffer { alloc, .. } = &loads[*index].destination else { return None };
            let ends = self.uses.users(function.insts[*alloc].results[0]);
            late.extend(ends.filter(|user| matches!(function.insts[*user].op, Op::Gpu(GpuOp::Dealloc {}))));
            late.insert(*alloc);
        }
        let may_run_apart = insts.iter().all(|inst| self.is_early_or_late(*inst, &late, loads))
            && self.fits(&dots, &early, insts);
        let neutral = self.neutral(&dots, &late, &operand_ops);
        may_run_apart.then_some(LateDots { loads: indices, late, operand_ops, neutral })
    }

    /// Returns whether A of a dot is computed from another dot of the iteration.
    fn depends_on_others(&self, dot: Inst, dots: &[Inst]) -> bool {
        let function = self.function;
        let mut work = vec![function.insts[dot].operands[0]];
        let mut seen = EntitySet::new();
        while let Some(value) = work.pop() {
            let Some(inst) = function.defining_inst(value).filter(|_| seen.insert(value)) else { continue };
            if dots.contains(&inst) {
                return true;
            }
            if self.index(inst).is_none() {
                continue;
            }
            work.extend(&function.insts[inst].operands);
            // A buffer depends on the values that the loop stores to it.
            if matches!(function.insts[inst].op, Op::Gpu(GpuOp::Alloc { .. })) {
                let stores = self.uses.users(value).map(|user| &function.insts[user]);
                let stores = stores.filter(|user| matches!(user.op, Op::Gpu(GpuOp::LocalStore {})));
                work.extend(stores.map(|store| store.operands[1]));
            }
        }
        false
    }

    /// Returns the slot values with which the late stage changes no accumulator. Returns `None`
    /// unless the stage only scales accumulators and adds dots to them.
    fn neutral(
        &self,
        dots: &[Inst],
        late: &FxHashSet<Inst>,
        operand_ops: &FxHashSet<Inst>,
    ) -> Option<Neutral> {
        let function = self.function;
        let is_late = |value: Value| function.defining_inst(value).is_some_and(|inst| late.contains(&inst));
        let mut neutral = Neutral::default();
        let mut known: FxHashSet<Inst> = dots.iter().copied().collect();
        for dot in dots {
            let [mut zeros, acc] = [0, 2].map(|index| function.insts[*dot].operands[index]);
            while let Some(inst) = function.defining_inst(zeros).filter(|inst| operand_ops.contains(inst)) {
                zeros = function.insts[inst].operands[0];
            }
            // A loop carries elements narrower than 32 bits in pairs.
            function.ty(zeros).as_registers().filter(|tile| element_bits(tile) == 32)?;
            if is_late(zeros) {
                return None;
            }
            neutral.zeros.push(zeros);
            let Scaling { insts, factor } = self.scaling(acc, late)?;
            known.extend(insts);
            neutral.ones.extend(factor);
        }
        let is_known = |inst: &Inst| {
            let is_own = matches!(
                function.insts[*inst].op,
                Op::Gpu(GpuOp::WgmmaWait { .. } | GpuOp::Alloc { .. } | GpuOp::Dealloc {})
            );
            is_own || known.contains(inst)
        };
        late.iter().all(is_known).then_some(neutral)
    }

    /// Returns the scaling of an accumulator. The accumulator is a carried value or another late
    /// dot's result, scaled at most once.
    fn scaling(&self, acc: Value, late: &FxHashSet<Inst>) -> Option<Scaling> {
        let function = self.function;
        let is_accumulator = |value: Value| match function.values[value].definition {
            Definition::Parameter(block, _) => block == self.block,
            Definition::Result(inst, _) => {
                late.contains(&inst) && matches!(function.insts[inst].op, Op::Gpu(GpuOp::WgmmaWait { .. }))
            }
        };
        if is_accumulator(acc) {
            return Some(Scaling::default());
        }
        let scaling = function.defining_inst(acc)?;
        let data = &function.insts[scaling];
        let is_product = matches!(data.op, Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Mul, .. }));
        if !is_product || !is_accumulator(data.operands[0]) {
            return None;
        }
        let (mut insts, mut factor) = (vec![scaling], data.operands[1]);
        while let Some(inst) = function.defining_inst(factor).filter(|inst| late.contains(inst)) {
            function.insts[inst].op.as_tile().and_then(ir::Op::as_shape)?;
            insts.push(inst);
            factor = function.insts[inst].operands[0];
        }
        Some(Scaling { insts, factor: Some(factor) })
    }

    /// Returns whether a dot reads a loaded tile as B and has A in registers. Only late dots may
    /// read the tile.
    fn is_read_by_only(&self, load: &RingLoad, dot: Inst, late: &[Inst]) -> bool {
        let function = self.function;
        let Destination::Buffer { alloc, .. } = &load.destination else { return false };
        let memory = function.insts[*alloc].results[0];
        let [a, b] = [0, 1].map(|index| function.insts[dot].operands[index]);
        let is_allowed = |user: Inst| {
            let is_own = matches!(function.insts[user].op, Op::Gpu(GpuOp::LocalStore {} | GpuOp::Dealloc {}));
            is_own || late.contains(&user)
        };
        b == memory && function.ty(a).as_registers().is_some() && self.uses.users(memory).all(is_allowed)
    }

    /// Returns the ops that depend on `dots`, also through carried accumulators. Returns `None` if
    /// an op outside of the body, or in a region, uses their values.
    fn depending(&self, dots: &[Inst]) -> Option<FxHashSet<Inst>> {
        let function = self.function;
        let mut late: FxHashSet<Inst> = dots.iter().copied().collect();
        let mut work: Vec<Value> =
            dots.iter().flat_map(|dot| function.insts[*dot].results.iter().copied()).collect();
        let mut seen = EntitySet::new();
        while let Some(value) = work.pop() {
            if !seen.insert(value) {
                continue;
            }
            for user in self.uses.users(value) {
                self.index(user)?;
                let data = &function.insts[user];
                if data.op.info().effect == Effect::Terminator {
                    let indices = (0..data.operands.len()).filter(|index| data.operands[*index] == value);
                    work.extend(indices.map(|index| function.blocks[self.block].parameters[index + 1]));
                } else {
                    late.insert(user);
                    work.extend(&data.results);
                }
            }
        }
        Some(late)
    }

    /// Returns the casts and shape ops that only the late stage needs, in reverse order.
    fn exclusive(&self, late: &FxHashSet<Inst>) -> Vec<Inst> {
        let function = self.function;
        let mut found: Vec<Inst> = Vec::new();
        for inst in function.blocks[self.block].insts.iter().rev() {
            let data = &function.insts[*inst];
            let op = data.op.as_tile();
            let is_cheap =
                matches!(op, Some(ir::Op::Cast { .. })) || op.is_some_and(|op| op.as_shape().is_some());
            let is_own = |value: &Value| {
                let is_late = |user: Inst| late.contains(&user) || found.contains(&user);
                function.ty(*value).layout().is_some()
                    && self.uses.count(*value) > 0
                    && self.uses.users(*value).all(is_late)
            };
            if is_cheap && !late.contains(inst) && data.results.iter().all(is_own) {
                found.push(*inst);
            }
        }
        found
    }

    /// Returns whether an instruction may run in its stage. The early stage runs once before the
    /// loop, the late stage once after it.
    fn is_early_or_late(&self, inst: Inst, late: &FxHashSet<Inst>, loads: &[RingLoad]) -> bool {
        let function = self.function;
        let data = &function.insts[inst];
        let info = data.op.info();
        let carried = |value: &Value| match function.values[*value].definition {
            Definition::Parameter(block, index) if block == self.block => Some(index),
            Definition::Parameter(..) | Definition::Result(..) => None,
        };
        if info.effect == Effect::Terminator {
            // The early stage is one iteration ahead of the counter and of the late stage's carried
            // values.
            let is_of_late_stage = |index: u32| index == 0 || self.is_yielded_late(index, late);
            return !data.operands.iter().filter_map(carried).any(is_of_late_stage);
        }
        if late.contains(&inst) {
            let is_late = |value: &Value| {
                carried(value).is_none_or(|index| index > 0 && self.is_yielded_late(index, late))
            };
            let is_own = matches!(
                data.op,
                Op::Gpu(
                    GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. } | GpuOp::Alloc { .. } | GpuOp::Dealloc {}
                )
            );
            let is_plain = info.effect == Effect::Pure && data.regions.is_empty();
            return (is_own || is_plain) && data.operands.iter().all(is_late);
        }
        let mut inner = true;
        for region in &data.regions {
            function.walk(*region, &mut |user| {
                let from_body = |value: &Value| match function.values[*value].definition {
                    Definition::Parameter(block, _) => block == self.block,
                    Definition::Result(inst, _) => self.index(inst).is_some(),
                };
                inner &= !function.insts[user].operands.iter().any(from_body);
            });
        }
        let may_repeat = match &data.op {
            Op::Gpu(GpuOp::Load { .. }) => loads.iter().any(|load| load.inst == inst),
            Op::Gpu(
                GpuOp::Wgmma { .. }
                | GpuOp::WgmmaWait { .. }
                | GpuOp::FenceProxy {}
                | GpuOp::Alloc { .. }
                | GpuOp::LocalStore {}
                | GpuOp::LocalLoad { .. }
                | GpuOp::Dealloc {},
            ) => true,
            // tidy: wildcard because pure ops may repeat
            _ => info.effect == Effect::Pure,
        };
        inner && may_repeat && !matches!(info.family, OpFamily::Loop | OpFamily::Branch)
    }

    /// Returns whether the late stage computes the next value of a parameter.
    fn is_yielded_late(&self, index: u32, late: &FxHashSet<Inst>) -> bool {
        let value = self.function.yielded(self.block)[index as usize - 1];
        self.function.defining_inst(value).is_some_and(|inst| late.contains(&inst))
    }

    /// Returns whether registers hold both stages' accumulators and the operands between the
    /// stages.
    fn fits(&self, late: &[Inst], early: &[Inst], insts: &[Inst]) -> bool {
        let function = self.function;
        let threads = self.header.num_warps * 32;
        let words = |dot: &Inst, index: usize| {
            let Some(tile) = function.ty(function.insts[*dot].operands[index]).as_registers() else {
                return 0;
            };
            let bits = tile.dtype().map_or(64, ir::Dtype::bits);
            tile.shape.iter().product::<u32>() * bits / 32 / threads
        };
        let has_own = |dot: &&Inst| wait_for_accumulator(function, insts, **dot).is_none();
        let operands: u32 = late.iter().map(|dot| words(dot, 0)).sum();
        let accumulators = late.iter().chain(early).filter(has_own);
        let tiles = operands + accumulators.map(|dot| words(dot, 2)).sum::<u32>();
        cost_model::fits_registers(tiles, threads, self.header.target.tuning)
    }
}

fn is_of_load(loads: &[RingLoad], inst: Inst) -> bool {
    loads.iter().any(|load| match &load.destination {
        Destination::Buffer { shapes, alloc, store } => {
            [load.inst, *alloc, *store].contains(&inst) || shapes.contains(&inst)
        }
        Destination::Registers => load.inst == inst,
    })
}

/// Clears the number of dots in flight after a wait. The lowering of rings computes it.
pub(super) fn count_later(function: &mut Function, inst: Inst) {
    if let Op::Gpu(GpuOp::WgmmaWait { pending }) = &mut function.insts[inst].op {
        *pending = Deferred(None);
    }
}
