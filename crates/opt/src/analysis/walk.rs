//! Computes the facts ([`AxisInfo`]) about each value: straight-line code in order, and loops to a
//! fixed point.
//!
//! The facts about a carried value begin as those of its initial value, and the yields weaken them.
//! The walk over the whole function repeats until it weakens nothing, so nesting does not multiply
//! the walks. A value that is weakened after `PRECISE_WALKS` walks becomes unknown.

use rustc_hash::FxHashMap;
use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{
    Block, Carried, Dtype, ElementwiseFn, Function, Inst, Op, OpFamily, Value, constant_int,
};

use super::{Assumptions, AxisInfo, Range, power_of_two_in};

/// The number of walks after which a growing range becomes that of its type.
const PRECISE_RANGE_WALKS: u32 = 2;
/// The number of walks after which a weakened value becomes unknown.
const PRECISE_WALKS: u32 = 6;

pub fn analyze(function: &Function, assumptions: Assumptions) -> SecondaryMap<Value, AxisInfo> {
    let mut walk = Walk {
        function,
        assumptions,
        infos: SecondaryMap::with_capacity(function.values.len()),
        scalar_assumptions: FxHashMap::default(),
        walks: 0,
        changed: true,
    };
    walk.collect_scalar_assumptions();
    while std::mem::take(&mut walk.changed) {
        walk.parameters();
        walk.block(function.entry);
        walk.walks += 1;
    }
    walk.infos
}

/// The facts about a scalar from `assume`.
#[derive(Clone, Copy)]
struct ScalarAssumption {
    range: Range,
    divisibility: u64,
}

pub(super) struct Walk<'f> {
    pub(super) function: &'f Function,
    pub(super) assumptions: Assumptions,
    pub(super) infos: SecondaryMap<Value, AxisInfo>,
    scalar_assumptions: FxHashMap<Value, ScalarAssumption>,
    walks: u32,
    changed: bool,
}

impl Walk<'_> {
    fn parameters(&mut self) {
        let values = &self.function.blocks[self.function.entry].parameters;
        for (&value, parameter) in values.iter().zip(&self.function.parameters) {
            let ty = self.function.ty(value);
            let mut info = AxisInfo::unknown(ty);
            if !ty.dtype().is_some_and(Dtype::is_float) {
                for axis in &mut info.axes {
                    axis.divisibility = power_of_two_in(i128::from(parameter.divisibility.max(1)));
                }
            }
            self.set(value, info);
        }
    }

    fn block(&mut self, block: Block) {
        let function = self.function;
        for &inst in &function.blocks[block].insts {
            let op = &function.insts[inst].op;
            match op.family() {
                OpFamily::Loop if matches!(op, Op::For { .. }) => self.for_loop(inst),
                OpFamily::Loop => self.while_loop(inst),
                OpFamily::Branch => self.if_else(inst),
                // tidy: wildcard because the other ops are straight-line code
                _ => self.straight(inst),
            }
        }
    }

    /// Sets the facts about a value, refined by the assumptions of the program.
    fn set(&mut self, value: Value, info: AxisInfo) {
        let mut info = info.finish(self.function.ty(value));
        if let Some(scalar_assumption) = self.scalar_assumptions.get(&value) {
            info.range = scalar_assumption.range.intersection(info.range);
            for axis in &mut info.axes {
                axis.divisibility = axis.divisibility.max(scalar_assumption.divisibility);
            }
        }
        self.infos[value] = info;
    }

    fn straight(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        match data.results[..] {
            [] => {}
            [result] => {
                let info = self.transfer(inst, function.ty(result));
                self.set(result, info);
            }
            [..] => {
                for &result in &data.results {
                    let info = self.transfer(inst, function.ty(result));
                    self.set(result, info);
                }
            }
        }
        for &region in &data.regions {
            // Nothing is known about the elements that an op passes to its region.
            for &parameter in &function.blocks[region].parameters {
                self.set(parameter, AxisInfo::unknown(function.ty(parameter)));
            }
            self.block(region);
        }
    }

    /// Weakens the facts about a value to those that another value shares.
    fn weaken(&mut self, value: Value, other: Value) {
        let ty = self.function.ty(value);
        let (known, other) = (&self.infos[value], &self.infos[other]);
        if known.axes.is_empty() {
            let first = other.clone();
            self.set(value, first);
            self.changed = true;
            return;
        }
        let mut joined = known.join(other, ty);
        if joined == *known {
            return;
        }
        if joined.range != known.range && self.walks >= PRECISE_RANGE_WALKS {
            joined.range = Range::of(ty);
        }
        if self.walks >= PRECISE_WALKS {
            joined = AxisInfo::unknown(ty);
        }
        let known = known.clone();
        self.set(value, joined);
        self.changed |= self.infos[value] != known;
    }

    fn copy(&mut self, from: Value, to: Value) {
        let info = self.infos[from].clone();
        self.set(to, info);
    }

    /// Joins the facts about initial values into the parameters of the region that runs first.
    fn enter(&mut self, inst: Inst) {
        for Carried { initial, parameters, .. } in self.function.carried(inst) {
            if let (Some(initial), &[first, ..]) = (initial, &parameters[..]) {
                self.weaken(first, initial);
            }
        }
    }

    /// Joins the facts about yields into the parameters of the region that runs first, and copies
    /// these to the results.
    fn repeat(&mut self, inst: Inst) {
        let function = self.function;
        for Carried { parameters, yielded, .. } in function.carried(inst) {
            if let (&[first, ..], &[next]) = (&parameters[..], &yielded[..]) {
                self.weaken(first, next);
            }
        }
        for Carried { parameters, result, .. } in function.carried(inst) {
            if let [first, ..] = parameters[..] {
                self.copy(first, result);
            }
        }
    }

    fn for_loop(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let (&[lower, upper, step, ..], &[body]) = (&data.operands[..], &data.regions[..]) else { return };
        let Some(&index) = function.blocks[body].parameters.first() else { return };
        let info = self.index(index, lower, upper, step);
        self.set(index, info);
        self.enter(inst);
        self.block(body);
        self.repeat(inst);
    }

    /// Returns the facts about a loop index: `lower + i * step`, between the bounds.
    fn index(&self, index: Value, lower: Value, upper: Value, step: Value) -> AxisInfo {
        let [lower, upper, step] = [lower, upper, step].map(|value| &self.infos[value]);
        let (up, down) = (step.range.high > 0, step.range.low < 0);
        let ends = Range {
            low: if down { lower.range.low.min(upper.range.low.saturating_add(1)) } else { lower.range.low },
            high: if up {
                lower.range.high.max(upper.range.high.saturating_sub(1))
            } else {
                lower.range.high
            },
        };
        let mut info = AxisInfo::unknown(self.function.ty(index));
        // An index that counts up stays below the upper bound, and one that counts down above it.
        let ends = match (up, down) {
            (true, false) => Range { high: upper.range.high.saturating_sub(1), ..ends },
            (false, true) => Range { low: upper.range.low.saturating_add(1), ..ends },
            _ => ends,
        };
        // The last index differs from the first by a multiple of the step.
        let ends = match (lower.constant, step.constant) {
            (Some(first), Some(step)) if step > 0 && ends.high > first => {
                Range { high: ends.high - (ends.high - first) % step, ..ends }
            }
            (Some(first), Some(step)) if step < 0 && ends.low < first => {
                Range { low: ends.low + (first - ends.low) % -step, ..ends }
            }
            _ => ends,
        };
        // If the ends cross, the body never runs, and the range is that of the type.
        info.range = ends.intersection(info.range);
        info.axes[0].divisibility = lower.divisibility_everywhere(1).min(step.divisibility_everywhere(1));
        info
    }

    fn while_loop(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let &[condition, body] = &data.regions[..] else { return };
        self.enter(inst);
        self.block(condition);
        for carried in function.carried(inst) {
            if let [first, second] = carried.parameters[..] {
                self.copy(first, second);
            }
        }
        self.block(body);
        self.repeat(inst);
    }

    fn if_else(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let &[then, otherwise] = &data.regions[..] else { return };
        self.block(then);
        self.block(otherwise);
        for Carried { yielded, result, .. } in function.carried(inst) {
            if let [x, y] = yielded[..] {
                let info = self.infos[x].join(&self.infos[y], function.ty(result));
                self.set(result, info);
            }
        }
    }

    /// Collects the `assume`s of the entry block, which every run executes.
    fn collect_scalar_assumptions(&mut self) {
        let function = self.function;
        for &inst in &function.blocks[function.entry].insts {
            let data = &function.insts[inst];
            if let (Op::Assume {}, &[condition]) = (&data.op, &data.operands[..]) {
                self.assume(condition);
            }
        }
    }

    fn assume(&mut self, condition: Value) {
        use ElementwiseFn as F;
        let Some((comparison, x, y)) = self.scalar_function(condition) else { return };
        if comparison == F::And {
            self.assume(x);
            self.assume(y);
            return;
        }
        let (Some(all), Some(bound)) = (self.function.ty(x).dtype(), constant_int(self.function, y)) else {
            return;
        };
        if !all.is_int() {
            return;
        }
        let all = Range::of_dtype(all);
        let range = match comparison {
            F::Lt => Range { high: bound - 1, ..all },
            F::Le => Range { high: bound, ..all },
            F::Gt => Range { low: bound + 1, ..all },
            F::Ge => Range { low: bound, ..all },
            F::Eq if bound == 0 => {
                // x % n == 0, or x & (n - 1) == 0
                let Some((function, inner, divisor)) = self.scalar_function(x) else { return };
                let Some(divisor) = constant_int(self.function, divisor) else { return };
                match function {
                    F::IntRem => self.add_scalar_assumption(inner, all, power_of_two_in(divisor)),
                    F::And => {
                        self.add_scalar_assumption(inner, all, power_of_two_in(divisor.wrapping_add(1)));
                    }
                    // tidy: wildcard because no other function determines a divisor of its operand
                    _ => {}
                }
                return;
            }
            // tidy: wildcard because no other condition bounds a range
            _ => return,
        };
        self.add_scalar_assumption(x, range, 1);
    }

    fn add_scalar_assumption(&mut self, value: Value, range: Range, divisibility: u64) {
        let all = Range::of(self.function.ty(value));
        let scalar_assumption =
            self.scalar_assumptions.entry(value).or_insert(ScalarAssumption { range: all, divisibility: 1 });
        scalar_assumption.range = range.intersection(scalar_assumption.range);
        scalar_assumption.divisibility = scalar_assumption.divisibility.max(divisibility);
    }

    /// Returns the function of two scalars that defines a value, and its operands.
    fn scalar_function(&self, value: Value) -> Option<(ElementwiseFn, Value, Value)> {
        let data = &self.function.insts[self.function.defining_inst(value)?];
        match (&data.op, &data.operands[..]) {
            (Op::Elementwise { function }, &[x, y]) if self.function.ty(x).is_scalar() => {
                Some((*function, x, y))
            }
            // tidy: wildcard because no other op is a function of two scalars
            _ => None,
        }
    }

    /// Returns the facts about an integer extended to 64 bits. Runs that may wrap are shortened to
    /// aligned runs.
    pub(super) fn extended(&self, value: Value) -> AxisInfo {
        let ty = self.function.ty(value);
        let mut info = self.infos[value].clone();
        let all = Range::of(ty);
        let is_signed = ty.dtype().is_some_and(Dtype::is_signed);
        let may_wrap = info.range.low == all.low && info.range.high == all.high;
        if may_wrap && !(is_signed && self.assumptions.no_signed_overflow) {
            info.cut_to_aligned();
        }
        info
    }
}
