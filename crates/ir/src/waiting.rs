//! Decides whether a program may wait for what other programs of the grid do.
//!
//! Programs that wait must begin in the order in which they were launched, and must not depend on each other in further ways.
//! An op waits by itself, or a loop without a count does because it reads memory that others change. The column
//! [`Waiting`] of the op tables says so of each op; every pass asks [`may_wait`].

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dialect::{Dialect, Operation};
use crate::function::{Block, FuncId, Function, Inst, InstData, Module, Value};
use crate::ops::{Effect, Op, OpFamily, Waiting};

/// Whether something waits for other programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// It ends whatever other programs do.
    Never,
    /// A loop without a count reads memory by plain loads, and its condition changes by what the loop computes as well: a search,
    /// for instance. The program waits only if it relies on plain loads that see the stores of others.
    Unlikely,
    /// It waits, as far as the program shows.
    Likely,
}

/// Whether the kernel of a module may wait for other programs.
pub fn may_wait<D: Dialect>(module: &Module<D>) -> Wait {
    Analysis::new(module).callee(module.entry)
}

/// Whether a loop may wait for other programs, in an iteration or by its condition.
pub fn loop_may_wait<D: Dialect>(module: &Module<D>, function: &Function<D>, inst: Inst) -> Wait {
    Analysis::new(module).inst(function, inst)
}

struct Analysis<'a, D: Dialect> {
    module: &'a Module<D>,
    /// Whether a function may wait. While it is under inspection it does not: a recursive call adds nothing.
    waits: FxHashMap<FuncId, Wait>,
    /// The same of what a function sees and whether it has effects.
    seen: FxHashMap<FuncId, (Waiting, bool)>,
}

impl<'a, D: Dialect> Analysis<'a, D> {
    fn new(module: &'a Module<D>) -> Self {
        Self { module, waits: FxHashMap::default(), seen: FxHashMap::default() }
    }

    /// Whether a function may wait.
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

    /// What a call sees, and whether it has effects; nothing, of another instruction.
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

    /// Whether the condition of a loop without a count may wait.
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

    /// How much of what other programs do the instructions of a block see, and whether one has effects.
    fn seen(&mut self, function: &Function<D>, block: Block) -> (Waiting, bool) {
        let mut all = (Waiting::Never, false);
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let of_op = match data.op.info().waiting {
                _ if data.op.is_volatile() => Waiting::Observes,
                // Its regions are inspected below.
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

    /// Whether the condition of a loop depends on nothing that the loop computes, but on what a plain load finds at one address:
    /// such a loop ends at once, or when another program writes there.
    fn spins(&mut self, function: &Function<D>, inst: Inst) -> bool {
        let regions = &function.insts[inst].regions;
        let mut found = Found::default();
        for region in regions {
            found.moving.extend(&function.blocks[*region].parameters);
        }
        let carried: Vec<_> = function.carried(inst).collect();
        // A carried value stays the same if it is yielded as it is, or made of what stays; each pass finds one at least.
        for _ in 0..carried.len() + 2 {
            for region in regions {
                self.settle(function, *region, &mut found);
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

    /// Sorts the results of a block: which depend on what moves, and which on what loads found.
    fn settle(&mut self, function: &Function<D>, block: Block, found: &mut Found) {
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let info = data.op.info();
            let called = self.called(data);
            let is_call = info.family == OpFamily::Call && !called.1;
            // The regions of the others may use values from outside.
            let is_alone = data.regions.is_empty() || data.op.as_tile().is_some_and(Op::has_element_regions);
            let stays = (matches!(info.effect, Effect::Pure | Effect::Read) || is_call)
                && is_alone
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

/// What is known of the values of a loop.
#[derive(Default)]
struct Found {
    /// Those that may change from one iteration to the next by what the loop computes.
    moving: FxHashSet<Value>,
    /// Those that depend on what a load found.
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
