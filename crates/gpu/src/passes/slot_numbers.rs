//! Slots of rings by their numbers: a loop that goes around a ring of three slots does three iterations at once, so that each
//! names its slots by constants. What was counted, compared and carried for the slots of each ring is left out; what says in which
//! phase a slot's barrier is stays, once for all rings that change it alike.
//!
//! ```text
//! for %i … by 1 carry %s = 0, %p = 0 {          for %i … by 3 carry %p = 0 {
//!   wait %full, %s, %p ; … slot %ring, %s         wait %full, 0, %p ; … slot %ring, 0
//!   %n = %s + 1 ; %e = %n == 3                    wait %full, 1, %p ; … slot %ring, 1
//!   yield select %e, 0, %n                        wait %full, 2, %p ; … slot %ring, 2
//!         select %e, %p ^ 1, %p                   yield %p ^ 1
//! }                                             }   and the loop as it was, for what is left
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{
    self as ir, Block, Carried, Dtype, ElementwiseFn, Inst, Literal, LoopOptions, OpFamily, Operation, Value,
};

use super::prune::prune;
use crate::language::{Function, GpuOp, Module, Op, Type};
use crate::remarks::{self, Because};
use crate::unrolling::{Plan, replace, unroll_loop};

/// The most instructions of the language that such a loop may have.
const MOST_INSTS: usize = 600;
/// Rings with more slots than this are counted.
const MOST_SLOTS: i64 = 4;

/// Unrolls the loops of a kernel that go around rings.
pub fn number_slots(module: &mut Module) {
    let entry = module.entry;
    let function = &mut module.functions[entry];
    let mut found: Vec<(Block, Inst)> = Vec::new();
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for &inst in &function.blocks[block].insts {
            let data = &function.insts[inst];
            blocks.extend(&data.regions);
            if matches!(&data.op, Op::Tile(ir::Op::For { .. })) {
                found.push((block, inst));
            }
        }
    }
    let mut is_changed = false;
    for (block, inst) in found {
        let Some((plan, counters)) = plan(function, inst) else { continue };
        remarks::about(
            "slot_numbers",
            function,
            inst,
            || "loop".into(),
            || {
                let reason = "each iteration names its slots by constants";
                Because::done(format!("unrolled {} times", plan.factor), reason)
            },
        );
        unroll_loop(function, block, inst, &plan);
        fold(function, block, inst, &counters);
        share_phases(function, block, inst);
        is_changed = true;
    }
    if is_changed {
        prune(function);
    }
}

/// A carried number that goes around the slots of a ring, and where it starts.
struct Counter {
    number: usize,
    start: i64,
}

/// How often a loop is unrolled, and its counters.
fn plan(function: &Function, inst: Inst) -> Option<(Plan, Vec<Counter>)> {
    let data = &function.insts[inst];
    let Op::Tile(ir::Op::For { options }) = &data.op else { return None };
    if options.unroll_factor == 1 {
        return None;
    }
    let dtype = function.ty(data.operands[0]).as_registers()?.dtype().filter(|dtype| *dtype == Dtype::I32)?;
    let mut known = Constants::default();
    let step = known.of(function, data.operands[2]).filter(|step| *step > 0)?;
    let mut count = None;
    let mut counters = Vec::new();
    for (number, carried) in function.carried(inst).enumerate() {
        let Some(slots) = slots_of(function, &carried) else { continue };
        let Some(start) = carried.initial.and_then(|initial| known.of(function, initial)) else { continue };
        if *count.get_or_insert(slots) != slots || slots > MOST_SLOTS || !(0..slots).contains(&start) {
            return None;
        }
        counters.push(Counter { number, start });
    }
    let factor = count?;
    let mut insts = 0;
    let mut is_innermost = true;
    function.walk(data.regions[0], &mut |inner| {
        insts += 1;
        is_innermost &= function.insts[inner].op.info().family != OpFamily::Loop;
    });
    if !is_innermost || insts * factor as usize > MOST_INSTS || i32::try_from(step * factor).is_err() {
        return None;
    }
    let rest = LoopOptions { unroll_factor: 1, ..options.clone() };
    Some((Plan { factor: factor as u32, step, dtype, rest }, counters))
}

/// The slots that a carried number goes around: `%n = %x + 1 ; yield select(%n == slots, 0, %n)`.
fn slots_of(function: &Function, carried: &Carried) -> Option<i64> {
    let &[yielded] = &carried.yielded[..] else { return None };
    let [is_end, zero, next] = operands(function, yielded, ElementwiseFn::Select)?;
    let [counted, slots] = operands(function, is_end, ElementwiseFn::Eq)?;
    let [from, one] = operands(function, next, ElementwiseFn::Add)?;
    let is_counter = counted == next
        && carried.parameters[..] == [from]
        && literal(function, one) == Some(1)
        && literal(function, zero) == Some(0);
    literal(function, slots).filter(|slots| is_counter && *slots > 1)
}

fn operands<const N: usize>(function: &Function, value: Value, wanted: ElementwiseFn) -> Option<[Value; N]> {
    let inst = function.defining_inst(value)?;
    match &function.insts[inst].op {
        Op::Gpu(GpuOp::Elementwise { function: found, .. }) if *found == wanted => {
            function.insts[inst].operands[..].try_into().ok()
        }
        // tidy: wildcard because others compute something else
        _ => None,
    }
}

fn literal(function: &Function, value: Value) -> Option<i64> {
    match function.defining_op(value)? {
        Op::Tile(ir::Op::Constant { value }) => i64::try_from(value.as_int()?).ok(),
        // tidy: wildcard because others are computed
        _ => None,
    }
}

/// Numbers that are known.
#[derive(Default)]
struct Constants(FxHashMap<Value, Option<i64>>);

impl Constants {
    fn of(&mut self, function: &Function, value: Value) -> Option<i64> {
        if let Some(known) = self.0.get(&value) {
            return *known;
        }
        let found = self.compute(function, value);
        self.0.insert(value, found);
        found
    }

    fn compute(&mut self, function: &Function, value: Value) -> Option<i64> {
        let inst = function.defining_inst(value)?;
        let data = &function.insts[inst];
        let Op::Gpu(GpuOp::Elementwise { function: computed, .. }) = &data.op else {
            return literal(function, value);
        };
        if function.ty(value).layout().is_some() {
            return None;
        }
        match (computed, &data.operands[..]) {
            (ElementwiseFn::Add, &[a, b]) => Some(self.of(function, a)? + self.of(function, b)?),
            (ElementwiseFn::Xor, &[a, b]) => Some(self.of(function, a)? ^ self.of(function, b)?),
            (ElementwiseFn::Eq, &[a, b]) => Some(i64::from(self.of(function, a)? == self.of(function, b)?)),
            (ElementwiseFn::Select, &[which, a, b]) => {
                let chosen = if self.of(function, which)? == 0 { b } else { a };
                self.of(function, chosen)
            }
            // tidy: wildcard because numbers of slots are not computed by others
            _ => None,
        }
    }
}

/// A number of 32 bits.
fn number(function: &mut Function, value: i64, at: Inst, out: &mut Vec<Inst>) -> Value {
    let op = ir::Op::Constant { value: Literal::int(Dtype::I32, value.into()) };
    emit(function, op, &[], at, out)
}

fn emit(function: &mut Function, op: ir::Op, operands: &[Value], at: Inst, out: &mut Vec<Inst>) -> Value {
    let location = function.insts[at].location;
    let ty = Type::scalar(ir::Type::scalar(Dtype::I32));
    let made = function.create_inst(op.into(), operands.into(), SmallVec::new(), [ty], location);
    out.push(made);
    function.insts[made].results[0]
}

/// Puts numbers where the counters of an unrolled loop were.
fn fold(function: &mut Function, block: Block, inst: Inst, counters: &[Counter]) {
    let carried: Vec<Carried> = function.carried(inst).collect();
    let mut before = Vec::new();
    let mut known = Constants::default();
    let mut replaced: FxHashMap<Value, Value> = FxHashMap::default();
    for counter in counters {
        let carried = &carried[counter.number];
        let start = number(function, counter.start, inst, &mut before);
        known.0.insert(start, Some(counter.start));
        replaced.insert(carried.parameters[0], start);
        replaced.insert(carried.result, start);
    }
    let mut inside = Vec::new();
    function.walk(function.insts[inst].regions[0], &mut |inner| inside.push(inner));
    for inner in inside {
        replace(&mut function.insts[inner].operands, &replaced);
        let data = &function.insts[inner];
        let Op::Gpu(GpuOp::Elementwise { function: computed, .. }) = &data.op else { continue };
        let (computed, result) = (*computed, data.results[0]);
        if !matches!(
            computed,
            ElementwiseFn::Add | ElementwiseFn::Xor | ElementwiseFn::Eq | ElementwiseFn::Select
        ) {
            continue;
        }
        if let Some(value) = known.of(function, result) {
            if computed != ElementwiseFn::Eq {
                let made = number(function, value, inst, &mut before);
                known.0.insert(made, Some(value));
                replaced.insert(result, made);
            }
        } else if computed == ElementwiseFn::Select
            && let [which, yes, no] = function.insts[inner].operands[..]
            && function.ty(which).layout().is_none()
            && let Some(which) = known.of(function, which)
        {
            replaced.insert(result, if which == 0 { no } else { yes });
        }
    }
    for (_, data) in &mut function.insts {
        replace(&mut data.operands, &replaced);
    }
    let dead: Vec<Value> = counters.iter().map(|counter| carried[counter.number].result).collect();
    function.retain_carried(inst, |carried| !dead.contains(&carried.result));
    let insts = &mut function.blocks[block].insts;
    let place = insts.iter().position(|other| *other == inst).expect("the loop is in its block");
    insts.splice(place..place, before);
}

/// Carries one number for all phases that each iteration of an unrolled loop changes: they differ by where they start.
fn share_phases(function: &mut Function, block: Block, inst: Inst) {
    let mut known = Constants::default();
    let phases: Vec<(Carried, i64)> = function
        .carried(inst)
        .filter_map(|carried| {
            let start = known.of(function, carried.initial?)?;
            let [from, one] = operands(function, *carried.yielded.first()?, ElementwiseFn::Xor)?;
            let is_phase = carried.parameters[..] == [from] && literal(function, one) == Some(1);
            is_phase.then_some((carried, start))
        })
        .collect();
    let Some(((first, start), others)) = phases.split_first() else { return };
    let body = function.insts[inst].regions[0];
    let (mut inside, mut behind) = (Vec::new(), Vec::new());
    let mut replaced: FxHashMap<Value, Value> = FxHashMap::default();
    for (other, other_start) in others {
        for (of, by, out) in [
            (other.parameters[0], first.parameters[0], &mut inside),
            (other.result, first.result, &mut behind),
        ] {
            let mut value = by;
            if start != other_start {
                let one = number(function, 1, inst, out);
                let op = ir::Op::Elementwise { function: ElementwiseFn::Xor };
                value = emit(function, op, &[by, one], inst, out);
            }
            replaced.insert(of, value);
        }
    }
    for (_, data) in &mut function.insts {
        replace(&mut data.operands, &replaced);
    }
    function.retain_carried(inst, |carried| !replaced.contains_key(&carried.result));
    function.blocks[body].insts.splice(0..0, inside);
    let insts = &mut function.blocks[block].insts;
    let place = insts.iter().position(|other| *other == inst).expect("the loop is in its block");
    insts.splice(place + 1..place + 1, behind);
}
