//! Accesses to global memory that must not overtake each other: in the program one comes after the other, on the GPU they are
//! made by different threads.
//!
//! Pointers that come from different arguments are taken to point to different memory, as CUDA programs do. A store in a loop
//! is not held back for the same store in the iteration before: programs whose iterations overwrite each other's elements at
//! other places of the tile are not known.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Carried, Inst, MemoryAccess, OpFamily, Operation, Value};
use tilewright_layout::Input;

use super::loop_carried_alias::Iterations;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// What pointers are made of.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Base {
    /// Not known yet.
    #[default]
    Unseen,
    /// A parameter of the kernel.
    Argument(Value),
    /// Anything.
    Any,
}

impl Base {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unseen, one) | (one, Self::Unseen) => one,
            (one, other) if one == other => one,
            _ => Self::Any,
        }
    }
}

/// The accesses of a kernel to global memory.
pub struct GlobalAccesses<'a> {
    function: &'a Function,
    header: &'a Header,
    bases: SecondaryMap<Value, Base>,
    /// What is computed once.
    outside_loops: EntitySet<Value>,
    iterations: Iterations<'a>,
}

impl<'a> GlobalAccesses<'a> {
    /// Looks where the pointers of a kernel come from.
    pub fn new(module: &'a Module) -> Self {
        let function = module.kernel();
        let mut search = Search { function, bases: SecondaryMap::new(), changed: true };
        for parameter in &function.blocks[function.entry].parameters {
            search.bases[*parameter] = Base::Argument(*parameter);
        }
        while std::mem::take(&mut search.changed) {
            search.block(function.entry);
        }
        let entry = &function.blocks[function.entry];
        let results = entry.insts.iter().flat_map(|inst| &function.insts[*inst].results);
        let mut outside_loops = EntitySet::new();
        outside_loops.extend(entry.parameters.iter().chain(results).copied());
        let iterations = Iterations::new(function);
        Self { function, header: &module.header, bases: search.bases, outside_loops, iterations }
    }

    /// Whether two accesses may touch the same memory, whichever threads make them.
    pub fn may_alias(&self, a: Inst, b: Inst) -> bool {
        let [a, b] = [a, b].map(|inst| self.bases[self.function.insts[inst].operands[0]]);
        match (a, b) {
            (Base::Argument(one), Base::Argument(other)) => one == other,
            (Base::Any | Base::Unseen, _) | (_, Base::Any | Base::Unseen) => true,
        }
    }

    /// Whether pointers may point to the memory behind an argument of the kernel.
    pub fn may_be_behind(&self, pointers: Value, argument: Value) -> bool {
        match self.bases[pointers] {
            Base::Argument(base) => base == argument,
            Base::Any | Base::Unseen => true,
        }
    }

    /// Whether two pointers may point to the same memory.
    pub fn may_be_one(&self, a: Value, b: Value) -> bool {
        match self.bases[b] {
            Base::Argument(argument) => self.may_be_behind(a, argument),
            Base::Any | Base::Unseen => true,
        }
    }

    /// Whether an access has to wait for an earlier one. `is_stale` says that the earlier one may be of an earlier iteration,
    /// when its pointers may have had other values.
    pub fn meet(&self, later: Inst, earlier: Inst, is_stale: bool) -> bool {
        let [a, b] = [later, earlier].map(|inst| self.function.insts[inst].operands[0]);
        let are_stores = [later, earlier].map(|inst| is_store(&self.function.insts[inst].op));
        if !self.may_alias(later, earlier) || (later == earlier && are_stores == [true; 2]) {
            return false;
        }
        let are_fixed = !is_stale || [a, b].iter().all(|pointers| self.outside_loops.contains(*pointers));
        if are_fixed && self.iterations.are_apart(a, b) {
            return false;
        }
        let layouts = [a, b].map(|pointer| self.function.ty(pointer).layout());
        if are_stores == [true; 2] && layouts == [None, None] {
            // One thread stores all scalars.
            return false;
        }
        let has_copies = layouts[0].is_none_or(|id| {
            let layout = self.header.layouts.get(id);
            [Input::Lane, Input::Warp].iter().any(|input| layout.free_bits(*input) != 0)
        });
        let is_same = a == b
            && (!is_stale
                || self.outside_loops.contains(a)
                || self.iterations.are_disjoint(a, [later, earlier]));
        let is_by_same_threads = is_same && (are_stores == [true; 2] || !has_copies);
        !is_by_same_threads
    }
}

/// Whether an op writes global memory: of threads that hold copies, the first alone.
fn is_store(op: &Op) -> bool {
    op.info().memory == MemoryAccess::WritesGlobal
}

struct Search<'f> {
    function: &'f Function,
    bases: SecondaryMap<Value, Base>,
    changed: bool,
}

impl Search<'_> {
    fn block(&mut self, block: Block) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            for Carried { initial, parameters, result, .. } in function.carried(*inst) {
                let base = self.joined(initial);
                parameters.iter().chain([&result]).for_each(|value| self.set(*value, base));
            }
            for region in &data.regions {
                self.block(*region);
            }
            match data.op.info().family {
                OpFamily::Loop | OpFamily::Branch => {
                    for Carried { parameters, yielded, result, .. } in function.carried(*inst) {
                        let base = self.joined(yielded);
                        parameters.iter().chain([&result]).for_each(|value| self.set(*value, base));
                    }
                }
                // tidy: wildcard because all other ops are straight code
                _ => self.straight(*inst),
            }
        }
    }

    fn joined(&self, values: impl IntoIterator<Item = Value>) -> Base {
        values.into_iter().fold(Base::Unseen, |base, value| base.join(self.bases[value]))
    }

    /// A pointer is as the pointers that it is made of; one that is made of an integer may be anything.
    fn straight(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let is_pointer = |value: &&Value| {
            let tile = function.ty(**value).as_registers();
            tile.is_some_and(|tile| tile.element.pointee().is_some())
        };
        // Of the operands of a mark, one is a tensor map.
        let marked = if matches!(data.op, Op::Gpu(GpuOp::TensorBox {})) { 1 } else { data.operands.len() };
        let pointers = data.operands[..marked].iter().filter(is_pointer);
        let base = pointers.map(|pointer| self.bases[*pointer]).reduce(Base::join).unwrap_or(Base::Any);
        for result in data.results.iter().filter(is_pointer) {
            self.set(*result, base);
        }
    }

    fn set(&mut self, value: Value, base: Base) {
        let base = self.bases[value].join(base);
        if self.bases[value] != base {
            self.bases[value] = base;
            self.changed = true;
        }
    }
}
