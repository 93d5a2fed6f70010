//! Numbers that a loop carries around the slots of its rings: `%n = %s + 1 ; yield select(%n == slots, 0, %n)`, those that are a
//! counter of the iteration before, and phases, which change where a counter begins again: `yield select(%n == slots, %p ^ 1, %p)`.

use rustc_hash::FxHashMap;
use tilewright_ir::{self as ir, Carried, ElementwiseFn, Inst, Value};

use crate::language::{Function, GpuOp, Op};

/// The counters of the slots of a loop.
pub struct SlotCounters {
    /// How many slots they go around.
    pub slots: i64,
    /// Which of the carried values they are, and where they start.
    pub starts: Vec<(usize, i64)>,
    /// Which are phases, and what they begin with.
    pub phases: Vec<(usize, i64)>,
}

/// The counters of a loop that begin with numbers that are known, if they go around equally many slots; each is where it
/// started after so many iterations.
pub fn slot_counters(
    function: &Function,
    inst: Inst,
    known: &mut dyn FnMut(Value) -> Option<i64>,
) -> Option<SlotCounters> {
    let carried: Vec<Carried> = function.carried(inst).collect();
    let mut found: Option<SlotCounters> = None;
    for (number, own) in carried.iter().enumerate() {
        let Some(slots) = slots_of(function, own) else { continue };
        let start = own.initial.and_then(&mut *known).filter(|start| (0..slots).contains(start))?;
        let found = found.get_or_insert(SlotCounters { slots, starts: Vec::new(), phases: Vec::new() });
        if found.slots != slots {
            return None;
        }
        found.starts.push((number, start));
    }
    let mut found = found?;
    let counters = found.starts.clone();
    for (number, own) in carried.iter().enumerate() {
        let is_before = |(counter, _): &&(usize, i64)| own.yielded[..] == carried[*counter].parameters[..];
        let Some((_, start)) = counters.iter().find(is_before) else { continue };
        let before = (start - 1).rem_euclid(found.slots);
        if own.initial.and_then(&mut *known) == Some(before) {
            found.starts.push((number, before));
        }
    }
    let ends: Vec<Value> =
        counters.iter().filter_map(|(number, _)| end_of(function, &carried[*number])).collect();
    for (number, own) in carried.iter().enumerate() {
        if is_phase(function, own, &ends)
            && let Some(start) = own.initial.and_then(&mut *known).filter(|start| (0..2).contains(start))
        {
            found.phases.push((number, start));
        }
    }
    Some(found)
}

/// What says that a counter begins again.
fn end_of(function: &Function, counter: &Carried) -> Option<Value> {
    operands::<3>(function, *counter.yielded.first()?, ElementwiseFn::Select).map(|[is_end, ..]| is_end)
}

/// Whether a carried number changes between 0 and 1 where a counter begins again, and nowhere else.
fn is_phase(function: &Function, carried: &Carried, ends: &[Value]) -> bool {
    let &[yielded] = &carried.yielded[..] else { return false };
    let Some([is_end, changed, kept]) = operands(function, yielded, ElementwiseFn::Select) else {
        return false;
    };
    let changed = operands(function, changed, ElementwiseFn::Xor);
    let is_own = changed.is_some_and(|[from, one]| from == kept && literal(function, one) == Some(1));
    is_own && carried.parameters[..] == [kept] && ends.contains(&is_end)
}

/// The slots that a carried number goes around.
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

/// What is known of numbers in the text of a program.
#[derive(Default)]
pub struct Known(FxHashMap<Value, Option<i64>>);

impl Known {
    /// A number, if it is computed of constants.
    pub fn of(&mut self, function: &Function, value: Value) -> Option<i64> {
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
            (ElementwiseFn::Add, &[a, b]) => self.of(function, a)?.checked_add(self.of(function, b)?),
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
