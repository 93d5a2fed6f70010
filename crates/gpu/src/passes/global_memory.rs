//! Finds global accesses of different threads that must keep their order.
//!
//! Pointers of different arguments are assumed to point to different memory, as in CUDA programs.
//! Two iterations are assumed never to store to one address from different tile positions.

use std::cell::OnceCell;

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Carried, Inst, MemoryAccess, OpFamily, Operation, Value};
use tilewright_layout::Input;

use super::loop_carried_alias::Iterations;
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op};

/// The kernel argument from which a pointer is derived.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Base {
    /// The analysis has not reached the pointer yet.
    #[default]
    Unseen,
    Argument(Value),
    /// Unknown: the pointer may point to any memory.
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

pub struct GlobalAccesses<'a> {
    function: &'a Function,
    header: &'a Header,
    bases: SecondaryMap<Value, Base>,
    /// The values of the entry block, which the kernel computes once.
    outside_loops: EntitySet<Value>,
    iterations: OnceCell<Iterations>,
}

impl<'a> GlobalAccesses<'a> {
    /// Computes the bases of all pointers of a kernel.
    pub fn new(module: &'a Module) -> Self {
        let function = module.kernel();
        let mut analysis = BaseAnalysis { function, bases: SecondaryMap::new(), changed: true };
        for parameter in &function.blocks[function.entry].parameters {
            analysis.bases[*parameter] = Base::Argument(*parameter);
        }
        while std::mem::take(&mut analysis.changed) {
            analysis.block(function.entry);
        }
        let entry = &function.blocks[function.entry];
        let results = entry.insts.iter().flat_map(|inst| &function.insts[*inst].results);
        let mut outside_loops = EntitySet::new();
        outside_loops.extend(entry.parameters.iter().chain(results).copied());
        let (header, iterations) = (&module.header, OnceCell::new());
        Self { function, header, bases: analysis.bases, outside_loops, iterations }
    }

    fn iterations(&self) -> &Iterations {
        self.iterations.get_or_init(|| Iterations::new(self.function))
    }

    /// Returns whether two accesses, of any threads, may touch the same memory.
    pub fn may_alias(&self, a: Inst, b: Inst) -> bool {
        let [a, b] = [a, b].map(|inst| self.bases[self.function.insts[inst].operands[0]]);
        match (a, b) {
            (Base::Argument(one), Base::Argument(other)) => one == other,
            (Base::Any | Base::Unseen, _) | (_, Base::Any | Base::Unseen) => true,
        }
    }

    /// Returns whether pointers may be derived from an argument of the kernel.
    pub fn may_derive_from(&self, pointers: Value, argument: Value) -> bool {
        match self.bases[pointers] {
            Base::Argument(base) => base == argument,
            Base::Any | Base::Unseen => true,
        }
    }

    /// Returns whether two pointers may be derived from the same argument.
    pub fn may_share_base(&self, a: Value, b: Value) -> bool {
        match self.bases[b] {
            Base::Argument(argument) => self.may_derive_from(a, argument),
            Base::Any | Base::Unseen => true,
        }
    }

    /// Returns whether an access needs a barrier after an earlier access by another thread.
    ///
    /// If `is_stale`, the earlier access may be of an earlier iteration, with other pointers.
    pub fn meet(&self, later: Inst, earlier: Inst, is_stale: bool) -> bool {
        let [a, b] = [later, earlier].map(|inst| self.function.insts[inst].operands[0]);
        let are_stores = [later, earlier].map(|inst| is_store(&self.function.insts[inst].op));
        if !self.may_alias(later, earlier) || (later == earlier && are_stores == [true; 2]) {
            return false;
        }
        let are_fixed = !is_stale || [a, b].iter().all(|pointers| self.outside_loops.contains(*pointers));
        if are_fixed && self.iterations().are_apart(self.function, a, b) {
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
                || self.iterations().are_disjoint(self.function, a, [later, earlier]));
        let is_by_same_threads = is_same && (are_stores == [true; 2] || !has_copies);
        !is_by_same_threads
    }
}

/// Returns whether an op writes global memory. Of several threads with an element, only the first
/// one writes it.
fn is_store(op: &Op) -> bool {
    op.info().memory == MemoryAccess::WritesGlobal
}

struct BaseAnalysis<'f> {
    function: &'f Function,
    bases: SecondaryMap<Value, Base>,
    /// True if the base of a parameter changed after its readers were visited.
    changed: bool,
}

impl BaseAnalysis<'_> {
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
                        self.changed |= parameters.iter().any(|value| !self.includes(*value, base));
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

    /// Gives pointer results the base of the pointer operands. A pointer that is cast from an
    /// integer may point to any memory.
    fn straight(&mut self, inst: Inst) {
        let function = self.function;
        let data = &function.insts[inst];
        let is_pointer = |value: &&Value| {
            let tile = function.ty(**value).as_registers();
            tile.is_some_and(|tile| tile.element.pointee().is_some())
        };
        // The other operands of a `tensor_box` are a tensor map and coordinates.
        let marked = if matches!(data.op, Op::Gpu(GpuOp::TensorBox {})) { 1 } else { data.operands.len() };
        let pointers = data.operands[..marked].iter().filter(is_pointer);
        let base = pointers.map(|pointer| self.bases[*pointer]).reduce(Base::join).unwrap_or(Base::Any);
        for result in data.results.iter().filter(is_pointer) {
            self.set(*result, base);
        }
    }

    fn includes(&self, value: Value, base: Base) -> bool {
        self.bases[value].join(base) == self.bases[value]
    }

    fn set(&mut self, value: Value, base: Base) {
        self.bases[value] = self.bases[value].join(base);
    }
}
