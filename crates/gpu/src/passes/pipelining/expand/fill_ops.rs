//! Finds the ops that fill slots, and the ops that only they need: for example, a copy and its
//! pointer. Of the ops in the stages before the last one, the expander predicates only these.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{Effect, Inst, Operation, Value};

use super::super::is_fill;
use tilewright_gpu_ir::{Function, GpuOp, Op};

/// Maps each such op to the number of stages from its own stage to the last one.
pub(super) fn fill_ops(
    function: &Function,
    inst: Inst,
    step: &[Inst],
    stages: &FxHashMap<Inst, (u32, u32)>,
) -> FxHashMap<Inst, u32> {
    let mut found = FillOps {
        function,
        step,
        users: users(function, inst, step),
        kept: kept(function, inst),
        fills: FxHashMap::default(),
        others: FxHashSet::default(),
    };
    found.classify(stages);
    found.spread();
    found.group();
    found.fills
}

struct FillOps<'a> {
    function: &'a Function,
    step: &'a [Inst],
    users: FxHashMap<Value, Vec<Inst>>,
    /// The values that are used after the loop.
    kept: FxHashSet<Value>,
    fills: FxHashMap<Inst, u32>,
    others: FxHashSet<Inst>,
}

/// Returns the users of each value in a step, in this or the next iteration.
fn users(function: &Function, inst: Inst, step: &[Inst]) -> FxHashMap<Value, Vec<Inst>> {
    let mut users: FxHashMap<Value, Vec<Inst>> = FxHashMap::default();
    for inst in step {
        let mut note = |value: Value| users.entry(value).or_default().push(*inst);
        function.insts[*inst].operands.iter().copied().for_each(&mut note);
        for region in &function.insts[*inst].regions {
            function.walk(*region, &mut |inner| {
                function.insts[inner].operands.iter().copied().for_each(&mut note);
            });
        }
    }
    let body = function.insts[inst].regions[0];
    let parameters = &function.blocks[body].parameters;
    for (index, value) in function.yielded(body).iter().enumerate() {
        let of_next = users.get(&parameters[index + 1]).cloned().unwrap_or_default();
        let own = function.defining_inst(*value);
        users.entry(*value).or_default().extend(of_next.into_iter().filter(|user| Some(*user) != own));
    }
    users
}

fn kept(function: &Function, inst: Inst) -> FxHashSet<Value> {
    let yielded = function.yielded(function.insts[inst].regions[0]);
    let results = &function.insts[inst].results;
    let mut kept = FxHashSet::default();
    function.walk(function.entry, &mut |inst| {
        let indices = function.insts[inst].operands.iter();
        let indices = indices.filter_map(|value| results.iter().position(|own| own == value));
        kept.extend(indices.map(|index| yielded[index]));
    });
    kept
}

impl FillOps<'_> {
    /// Classifies ops that fill slots, ops with other effects, and ops with regions. `spread` and
    /// `group` classify the remaining ops by their uses.
    fn classify(&mut self, stages: &FxHashMap<Inst, (u32, u32)>) {
        for inst in self.step {
            let data = &self.function.insts[*inst];
            match &data.op {
                op if is_fill(op) => {
                    self.fills.insert(*inst, stages[inst].0);
                }
                Op::Gpu(
                    GpuOp::Load { .. }
                    | GpuOp::LocalLoad { .. }
                    | GpuOp::Alloc { .. }
                    | GpuOp::LocalStore {}
                    | GpuOp::Dealloc {},
                ) => {}
                op if op.info().effect == Effect::Pure && data.regions.is_empty() => {}
                // tidy: wildcard because other ops run only in iterations that the loop has
                _ => {
                    self.others.insert(*inst);
                }
            }
        }
    }

    fn is_of_buffer(&self, inst: Inst) -> bool {
        let op = &self.function.insts[inst].op;
        matches!(op, Op::Gpu(GpuOp::LocalStore {} | GpuOp::Dealloc {} | GpuOp::FenceProxy {}))
    }

    fn alloc(&self, inst: Inst) -> Option<Inst> {
        let memory = self.function.insts[inst].operands.first()?;
        self.function.defining_inst(*memory).filter(|alloc| self.step.contains(alloc))
    }

    fn users_of(&self, inst: Inst) -> impl Iterator<Item = Inst> + '_ {
        let results = &self.function.insts[inst].results;
        results.iter().flat_map(|result| self.users.get(result).into_iter().flatten().copied())
    }

    /// Adds to `others` the ops that its ops need. Also adds ops without users, or with users after
    /// the loop.
    fn spread(&mut self) {
        let mut count = usize::MAX;
        while count != self.others.len() {
            count = self.others.len();
            for inst in self.step.iter().rev() {
                if !self.fills.contains_key(inst) && self.is_other(*inst) {
                    self.others.insert(*inst);
                }
            }
        }
    }

    fn is_other(&self, inst: Inst) -> bool {
        if self.is_of_buffer(inst) {
            return self.alloc(inst).is_none_or(|alloc| self.others.contains(&alloc));
        }
        let data = &self.function.insts[inst];
        // The readers of a buffer decide.
        let is_buffer = matches!(data.op, Op::Gpu(GpuOp::Alloc { .. }));
        let mut readers =
            self.users_of(inst).filter(|user| !(is_buffer && self.is_of_buffer(*user))).peekable();
        let is_kept = data.results.iter().any(|result| self.kept.contains(result));
        is_kept || readers.peek().is_none() || readers.any(|user| self.others.contains(&user))
    }

    /// Adds to `fills` the ops that only copies need, each with the number of stages of its copy.
    fn group(&mut self) {
        let mut count = usize::MAX;
        while count != self.fills.len() {
            count = self.fills.len();
            for inst in self.step.iter().rev().filter(|inst| !self.others.contains(*inst)) {
                let group = if self.is_of_buffer(*inst) {
                    self.alloc(*inst).and_then(|alloc| self.fills.get(&alloc).copied())
                } else {
                    self.users_of(*inst).find_map(|user| self.fills.get(&user).copied())
                };
                if let Some(group) = group {
                    self.fills.entry(*inst).or_insert(group);
                }
            }
        }
    }
}
