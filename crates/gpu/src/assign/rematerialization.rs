//! Finds tiles that each thread can recompute, such as indices and masks.
//!
//! A use computes such a value in its layout, so no conversion is needed. A loop carries a
//! rematerialized tile of pointers once for each layout.
//!
//! In kernels with dots, vectors of integers that are loaded outside of loops are also
//! rematerialized. Example: the indices of gathered rows. Then the tile of pointers that is
//! computed from them needs no fixed layout either.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Value};

use tilewright_gpu_ir::tuning::Tuning;

pub struct Rematerializable {
    /// The estimated number of ops that compute a rematerialized value. An op with several uses
    /// counts once for each use. A tile that a loop carries counts as one op. A scalar counts 0.
    ops: SecondaryMap<Value, Option<u32>>,
}

impl Rematerializable {
    pub fn new(function: &Function, tuning: &Tuning) -> Self {
        let mut has_dots = false;
        function.walk(function.entry, &mut |inst| {
            has_dots |= function.insts[inst].op.family() == OpFamily::Dot;
        });
        let (ops, converted) = (SecondaryMap::new(), EntitySet::new());
        let mut search =
            RematerializationSearch { function, tuning, ops, converted, changed: true, has_dots, loops: 0 };
        while std::mem::take(&mut search.changed) {
            search.block(function.entry);
        }
        Self { ops: search.ops }
    }

    /// Finds the rematerialized values of a function that states its layouts. These are scalars,
    /// and tiles without a stated layout that pure ops compute.
    pub fn stated(function: &Function) -> Self {
        let mut ops = SecondaryMap::new();
        for (value, data) in &function.values {
            let is_computed = function.defining_inst(value).is_some_and(|inst| {
                let op = &function.insts[inst].op;
                let family = op.family();
                matches!(family, OpFamily::Source | OpFamily::Pointwise | OpFamily::Shape) && op.is_pure()
            });
            if data.ty.is_scalar() || (data.ty.layout.is_none() && is_computed) {
                ops[value] = Some(0);
            }
        }
        Self { ops }
    }

    pub fn contains(&self, value: Value) -> bool {
        self.ops[value].is_some()
    }
}

struct RematerializationSearch<'f> {
    function: &'f Function,
    tuning: &'f Tuning,
    ops: SecondaryMap<Value, Option<u32>>,
    /// Results of loops that cannot be rematerialized. The search assumes that results can be
    /// rematerialized until a yielded value cannot.
    converted: EntitySet<Value>,
    changed: bool,
    has_dots: bool,
    loops: u32,
}

impl RematerializationSearch<'_> {
    fn block(&mut self, block: Block) {
        let function = self.function;
        for parameter in &function.blocks[block].parameters {
            if function.ty(*parameter).is_scalar() {
                self.ops[*parameter] = Some(0);
            }
        }
        for inst in &function.blocks[block].insts {
            self.inst(*inst);
        }
    }

    fn inst(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        let ops = match data.op.family() {
            OpFamily::Source => Some(1),
            // The cost of assembly and of `map` is unknown, and an op with effects must run once.
            OpFamily::Pointwise
                if matches!(data.op, Op::InlineAsm { .. } | Op::VolatileAsm { .. } | Op::Map { .. }) =>
            {
                None
            }
            OpFamily::Load if !self.is_load_of_indices(inst) => None,
            OpFamily::Pointwise | OpFamily::Identity | OpFamily::Shape | OpFamily::Load => {
                let mut operands = data.operands.iter().map(|operand| self.ops[*operand]);
                let sum = operands.try_fold(1_u32, |sum, ops| Some(sum.saturating_add(ops?)));
                sum.filter(|ops| *ops <= self.tuning.rematerialized_ops)
            }
            OpFamily::Loop => {
                self.carried(inst);
                return;
            }
            OpFamily::Store
            | OpFamily::Atomic
            | OpFamily::Check
            | OpFamily::Dot
            | OpFamily::Reduction
            | OpFamily::Scan
            | OpFamily::Movement
            | OpFamily::Branch
            | OpFamily::Scalar
            | OpFamily::Promise
            | OpFamily::Barrier
            | OpFamily::Memory
            | OpFamily::Partitions
            | OpFamily::Call
            | OpFamily::Terminator => None,
        };
        for region in &data.regions {
            self.block(*region);
        }
        for result in &data.results {
            self.ops[*result] = if self.function.ty(*result).is_scalar() { Some(0) } else { ops };
        }
    }

    /// Returns whether an instruction loads a vector of indices in a kernel with dots. The elements
    /// must be integers of at least 32 bits. The load must not be volatile or in a loop.
    fn is_load_of_indices(&self, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let ty = self.function.ty(data.results[0]);
        let is_integer = ty.dtype().is_some_and(|dtype| dtype.is_int() && dtype.bits() >= 32);
        let is_plain = matches!(data.op, Op::Load { volatile: false, .. });
        self.has_dots && self.loops == 0 && is_plain && is_integer && ty.rank() == 1
    }

    fn carried(&mut self, inst: Inst) {
        let function = self.function;
        for Carried { initial, parameters, result, .. } in function.carried(inst) {
            let has_cheap_start = initial.is_some_and(|initial| self.ops[initial].is_some());
            let is_cheap = has_cheap_start && !self.converted.contains(result);
            let ops = is_cheap.then_some(u32::from(!function.ty(result).is_scalar()));
            for value in parameters.iter().chain([&result]) {
                self.ops[*value] = ops;
            }
        }
        self.loops += 1;
        for region in &function.insts[inst].regions {
            self.block(*region);
        }
        self.loops -= 1;
        for Carried { yielded, result, .. } in function.carried(inst) {
            if self.ops[result].is_some() && yielded.iter().any(|value| self.ops[*value].is_none()) {
                self.converted.insert(result);
                self.changed = true;
            }
        }
    }
}
