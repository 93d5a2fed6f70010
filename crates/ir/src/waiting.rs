//! Decides whether a program may wait for effects of other programs of the grid.
//! Such programs must start in launch order, and no pass may add dependences between them. A
//! program waits in an op that itself waits. It also waits in a loop without a trip count that
//! reads memory of other programs. The column [`Waiting`] of the op tables classifies each op.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dialect::{Dialect, Operation};
use crate::function::{Block, FuncId, Function, Inst, InstData, Module, Value};
use crate::ops::{Effect, Op, OpFamily, Waiting};

/// The likelihood of waiting for other programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// The program ends independently of other programs.
    Never,
    /// A loop without a trip count reads memory by plain loads. But its condition also depends on
    /// values that the loop computes, as in a search. The loop waits for another program only if
    /// the kernel relies on plain loads that observe the stores of other programs.
    Unlikely,
    /// The program has an op or a loop that appears to wait for other programs.
    Likely,
}

/// Returns how likely it is that the kernel of a module waits for other programs.
pub fn may_wait<D: Dialect>(module: &Module<D>) -> Wait {
    Analysis::new(module).callee(module.entry)
}

/// Returns how likely it is that a loop waits for other programs. Either an op in the loop waits,
/// or the loop repeats until another program changes its condition.
pub fn loop_may_wait<D: Dialect>(module: &Module<D>, function: &Function<D>, inst: Inst) -> Wait {
    Analysis::new(module).inst(function, inst)
}

struct Analysis<'a, D: Dialect> {
    module: &'a Module<D>,
    /// The result for each function. It is `Never` during the analysis, because recursion adds
    /// nothing.
    waits: FxHashMap<FuncId, Wait>,
    /// The maximum [`Waiting`] of the ops of each function, and whether it has effects.
    seen: FxHashMap<FuncId, (Waiting, bool)>,
}

impl<'a, D: Dialect> Analysis<'a, D> {
    fn new(module: &'a Module<D>) -> Self {
        Self { module, waits: FxHashMap::default(), seen: FxHashMap::default() }
    }

    /// Returns how likely a function waits for other programs.
    fn callee(&mut self, id: FuncId) -> Wait {
        if let Some(known) = self.waits.get(&id) {
            return *known;
        }
        self.waits.insert(id, Wait::Never);
        let function = &self.module.functions[id];
        let found = self.block(function, function.entry);
        self.waits.insert(id, found);
        found
    }

    /// Returns the maximum [`Waiting`] of a called function, and whether it has effects. Returns
    /// [`Waiting::Never`] and false for other instructions.
    fn called(&mut self, data: &InstData<D>) -> (Waiting, bool) {
        let Some(Op::Call { callee, .. }) = data.op.as_tile() else { return (Waiting::Never, false) };
        if let Some(known) = self.seen.get(callee) {
            return *known;
        }
        self.seen.insert(*callee, (Waiting::Never, false));
        let function = &self.module.functions[*callee];
        let found = self.seen(function, function.entry);
        self.seen.insert(*callee, found);
        found
    }

    fn block(&mut self, function: &Function<D>, block: Block) -> Wait {
        let insts = function.blocks[block].insts.iter();
        insts.map(|inst| self.inst(function, *inst)).max().unwrap_or(Wait::Never)
    }

    fn inst(&mut self, function: &Function<D>, inst: Inst) -> Wait {
        let data = &function.insts[inst];
        let own = match data.op.info().waiting {
            Waiting::Always => Wait::Likely,
            Waiting::Repeats => self.repeats(function, inst),
            Waiting::Never | Waiting::Reads | Waiting::Observes => Wait::Never,
        };
        let called = match data.op.as_tile() {
            Some(Op::Call { callee, .. }) => self.callee(*callee),
            // tidy: wildcard because only a call runs another function
            _ => Wait::Never,
        };
        let inner = data.regions.iter().map(|region| self.block(function, *region)).max();
        own.max(called).max(inner.unwrap_or(Wait::Never))
    }

    /// Returns how likely a loop without a trip count repeats until another program changes its
    /// condition.
    fn repeats(&mut self, function: &Function<D>, inst: Inst) -> Wait {
        let regions = &function.insts[inst].regions;
        let reads = regions.iter().map(|region| self.seen(function, *region).0).max();
        match reads.unwrap_or(Waiting::Never) {
            Waiting::Never | Waiting::Repeats => Wait::Never,
            Waiting::Reads if self.spins(function, inst) => Wait::Likely,
            Waiting::Reads => Wait::Unlikely,
            Waiting::Observes | Waiting::Always => Wait::Likely,
        }
    }

    /// Returns the maximum [`Waiting`] of a block, and whether it has effects.
    fn seen(&mut self, function: &Function<D>, block: Block) -> (Waiting, bool) {
        let mut all = (Waiting::Never, false);
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let of_op = match data.op.info().waiting {
                _ if data.op.is_volatile() => Waiting::Observes,
                // The regions of the op are inspected below.
                Waiting::Repeats => Waiting::Never,
                waiting => waiting,
            };
            let of_op = (of_op, data.op.info().effect == Effect::Write);
            let called = self.called(data);
            let inner = data.regions.iter().map(|region| self.seen(function, *region));
            for (waiting, has_effects) in inner.chain([of_op, called]) {
                all = (all.0.max(waiting), all.1 || has_effects);
            }
        }
        all
    }

    /// Returns whether the condition of a loop depends on plain loads and on no value that the loop
    /// changes. The loop then ends at once, or when another program writes to a loaded address.
    fn spins(&mut self, function: &Function<D>, inst: Inst) -> bool {
        let regions = &function.insts[inst].regions;
        let mut found = LoopValues::default();
        for region in regions {
            found.moving.extend(&function.blocks[*region].parameters);
        }
        let carried: Vec<_> = function.carried(inst).collect();
        // A carried value is invariant if it is yielded unchanged, or computed from invariant
        // values. Each repetition finds another invariant value, or ends the search.
        for _ in 0..carried.len() + 2 {
            for region in regions {
                self.classify(function, *region, &mut found);
            }
            for carried in &carried {
                let Some(next) = carried.yielded.first() else { continue };
                if carried.parameters.contains(next) || !found.moving.contains(next) {
                    let is_loaded = found.loaded.contains(next);
                    for parameter in &carried.parameters {
                        found.moving.remove(parameter);
                        if is_loaded {
                            found.loaded.insert(*parameter);
                        }
                    }
                }
            }
        }
        let condition = function.conditions(inst).first();
        let holds = condition.and_then(|region| function.yielded(*region).first());
        holds.is_some_and(|holds| !found.moving.contains(holds) && found.loaded.contains(holds))
    }

    /// Classifies the results of a block: loop-variant values, and values that depend on loads.
    fn classify(&mut self, function: &Function<D>, block: Block, found: &mut LoopValues) {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let info = data.op.info();
            let called = self.called(data);
            let is_call = info.family == OpFamily::Call && !called.1;
            // Element regions use no outer values. Other regions may, and the loop may change them.
            let has_own_values_only =
                data.regions.is_empty() || data.op.as_tile().is_some_and(Op::has_element_regions);
            let stays = (matches!(info.effect, Effect::Pure | Effect::Read) || is_call)
                && has_own_values_only
                && data.operands.iter().all(|operand| !found.moving.contains(operand));
            let reads = info.waiting.max(called.0) != Waiting::Never;
            let is_loaded = reads || data.operands.iter().any(|operand| found.loaded.contains(operand));
            for result in &data.results {
                if !stays {
                    found.moving.insert(*result);
                    continue;
                }
                found.moving.remove(result);
                if is_loaded {
                    found.loaded.insert(*result);
                }
            }
        }
    }
}

#[derive(Default)]
struct LoopValues {
    /// The values that the loop may change.
    moving: FxHashSet<Value>,
    loaded: FxHashSet<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OPS;

    #[test]
    fn each_op_that_is_atomic_reads_or_repeats_says_so() {
        for row in OPS {
            let expected = match row.name {
                "atomic_poll" | "volatile_asm" => Waiting::Always,
                "while_loop" => Waiting::Repeats,
                "load" => Waiting::Reads,
                "inline_asm" | "atomic_rmw" | "atomic_cas" | "atomic_load" => Waiting::Observes,
                _ => Waiting::Never,
            };
            assert_eq!(row.waiting, expected, "{}", row.name);
        }
    }
}
