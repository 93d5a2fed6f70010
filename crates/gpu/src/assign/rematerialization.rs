//! Which tiles each thread may compute again instead of getting them from another: index tiles, masks, pointers.
//!
//! Such a value has no layout of its own. It is made in every layout that it is wanted in, so that no conversion is ever
//! needed. That goes through loops: a pointer tile that a loop advances is carried in each layout that it is used in.

use cranelift_entity::{EntitySet, SecondaryMap};
use tilewright_ir::{Block, Function, Inst, Value};

use crate::layout_rules::{Role, role, slots};

/// So many ops on tiles make a value at the most; what takes more (a random number generator, say) is moved.
const MOST_OPS: u32 = 64;

/// The values that may be computed again.
pub struct Rematerializable {
    /// How many ops make the value; none for what has to be moved. Scalars, which every thread holds, take 0.
    ops: SecondaryMap<Value, Option<u32>>,
}

impl Rematerializable {
    /// Looks through a function.
    pub fn new(function: &Function) -> Self {
        let mut search =
            Search { function, ops: SecondaryMap::new(), moved: EntitySet::new(), changed: true };
        while std::mem::take(&mut search.changed) {
            search.block(function.entry);
        }
        Self { ops: search.ops }
    }

    /// Whether a value may be computed again.
    pub fn has(&self, value: Value) -> bool {
        self.ops[value].is_some()
    }
}

struct Search<'f> {
    function: &'f Function,
    ops: SecondaryMap<Value, Option<u32>>,
    /// Results of loops that turned out to carry what has to be moved. All others are taken to be cheap.
    moved: EntitySet<Value>,
    changed: bool,
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
        let ops = match role(&data.op) {
            Role::Source => Some(1),
            Role::Pointwise | Role::Identity | Role::Shape => {
                let mut operands = data.operands.iter().map(|operand| self.ops[*operand]);
                let sum = operands.try_fold(1_u32, |sum, ops| Some(sum.saturating_add(ops?)));
                sum.filter(|ops| *ops <= MOST_OPS)
            }
            Role::Loop => {
                self.carried(inst);
                return;
            }
            Role::Load
            | Role::Sink
            | Role::Dot
            | Role::Reduce
            | Role::Branch
            | Role::Scalar
            | Role::Promise
            | Role::Call => None,
        };
        for region in &data.regions {
            self.block(*region);
        }
        for result in &data.results {
            self.ops[*result] = if self.function.ty(*result).is_scalar() { Some(0) } else { ops };
        }
    }

    fn carried(&mut self, inst: Inst) {
        let function = self.function;
        let slots = slots(function, inst);
        for slot in &slots {
            let is_cheap = self.ops[slot.initial].is_some() && !self.moved.contains(slot.result);
            let ops = is_cheap.then_some(u32::from(!function.ty(slot.result).is_scalar()));
            for value in slot.parameters.iter().chain([&slot.result]) {
                self.ops[*value] = ops;
            }
        }
        for region in &function.insts[inst].regions {
            self.block(*region);
        }
        for slot in &slots {
            if self.ops[slot.result].is_some() && self.ops[slot.yielded].is_none() {
                self.moved.insert(slot.result);
                self.changed = true;
            }
        }
    }
}
