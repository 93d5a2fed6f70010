//! Rematerialization: which tiles are cheap enough that each thread computes them for itself: indices, masks, pointers.
//!
//! Such a value has no layout of its own. It is materialized in each layout that its uses demand, so that it never needs a
//! conversion. Loops are no limit: a tile of pointers that a loop advances is carried once for each layout.
//!
//! Beside products, so is a line of integers that is loaded outside of loops, such as the rows that a tile gathers: each thread
//! loads what it needs of it, and the tile of pointers that is made of it needs no layout of its own either.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Carried, Function, Inst, Op, OpFamily, Value};

use tilewright_gpu_ir::tuning::Tuning;

/// The values that may be rematerialized.
pub struct Rematerializable {
    /// How many ops make the value; none for what has to be moved. Scalars, which every thread holds, take 0.
    ops: SecondaryMap<Value, Option<u32>>,
}

impl Rematerializable {
    /// Looks through a function.
    pub fn new(function: &Function, tuning: &Tuning) -> Self {
        let mut has_products = false;
        function.walk(function.entry, &mut |inst| {
            has_products |= function.insts[inst].op.family() == OpFamily::Dot;
        });
        let (ops, moved) = (SecondaryMap::new(), EntitySet::new());
        let mut search = Search { function, tuning, ops, moved, changed: true, has_products, loops: 0 };
        while std::mem::take(&mut search.changed) {
            search.block(function.entry);
        }
        Self { ops: search.ops }
    }

    /// Whether a value may be rematerialized.
    pub fn has(&self, value: Value) -> bool {
        self.ops[value].is_some()
    }
}

struct Search<'f> {
    function: &'f Function,
    tuning: &'f Tuning,
    ops: SecondaryMap<Value, Option<u32>>,
    /// Results of loops that turned out to carry what has to be moved. All others are taken to be cheap.
    moved: EntitySet<Value>,
    changed: bool,
    has_products: bool,
    /// How many loops are around.
    loops: u32,
}

impl Search<'_> {
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
            // It may take any time, and what has effects is executed once.
            OpFamily::Pointwise
                if matches!(data.op, Op::InlineAsm { .. } | Op::VolatileAsm { .. } | Op::Map { .. }) =>
            {
                None
            }
            OpFamily::Load if !self.is_line_of_indices(inst) => None,
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

    /// A load of integers along one axis, outside of loops, of a kernel with products.
    fn is_line_of_indices(&self, inst: Inst) -> bool {
        let data = &self.function.insts[inst];
        let ty = self.function.ty(data.results[0]);
        let is_integer = ty.dtype().is_some_and(|dtype| dtype.is_int() && dtype.bits() >= 32);
        let is_plain = matches!(data.op, Op::Load { volatile: false, .. });
        self.has_products && self.loops == 0 && is_plain && is_integer && ty.rank() == 1
    }

    fn carried(&mut self, inst: Inst) {
        let function = self.function;
        for Carried { initial, parameters, result, .. } in function.carried(inst) {
            let begins_cheap = initial.is_some_and(|initial| self.ops[initial].is_some());
            let is_cheap = begins_cheap && !self.moved.contains(result);
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
                self.moved.insert(result);
                self.changed = true;
            }
        }
    }
}
