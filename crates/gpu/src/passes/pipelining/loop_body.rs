//! Analyzes the body of a loop that may be pipelined.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Uses};

use super::memory_order::{MemoryOrder, memory_order};
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::{Function, Header, Module, Op};

/// The exclusive maximum of a constant step. It prevents overflow in a schedule's constants.
const MAX_STEP: i128 = 1 << 40;

pub(super) struct LoopBody<'a> {
    pub(super) header: &'a Header,
    pub(super) function: &'a Function,
    pub(super) uses: &'a Uses,
    pub(super) global: &'a GlobalAccesses<'a>,
    pub(super) inst: Inst,
    pub(super) block: Block,
    pub(super) indices: FxHashMap<Inst, usize>,
    /// The writes that loads of the same memory may not pass.
    pub(super) writes: Vec<Inst>,
    pub(super) nested_boxes: bool,
}

pub(super) enum Step {
    Constant(i128),
    Unknown,
}

impl<'a> LoopBody<'a> {
    /// Analyzes the body of a loop. Returns `None` if the loop orders accesses to memory.
    pub(super) fn new(
        module: &'a Module,
        inst: Inst,
        uses: &'a Uses,
        global: &'a GlobalAccesses<'a>,
    ) -> Option<Self> {
        let function = module.kernel();
        let block = function.insts[inst].regions[0];
        let insts = &function.blocks[block].insts;
        let indices = insts.iter().enumerate().map(|(index, inst)| (*inst, index)).collect();
        let (mut writes, mut is_ordered) = (Vec::new(), false);
        function.walk(block, &mut |inst| match memory_order(&function.insts[inst].op) {
            MemoryOrder::None => {}
            MemoryOrder::Write => writes.push(inst),
            MemoryOrder::Ordered => is_ordered = true,
        });
        let header = &module.header;
        let body = Self { header, function, uses, global, inst, block, indices, writes, nested_boxes: false };
        (!is_ordered).then_some(body)
    }

    /// Returns the step of the counter. Returns `None` if a later counter cannot be computed ahead.
    pub(super) fn step(&self) -> Option<Step> {
        let [lower, _, step] = [0, 1, 2].map(|index| self.function.insts[self.inst].operands[index]);
        let bits = self.function.ty(lower).as_registers()?.dtype()?.bits();
        match self.function.defining_op(step).and_then(Op::as_tile) {
            Some(ir::Op::Constant { value }) => {
                value.as_int().filter(|step| *step != 0 && step.abs() < MAX_STEP).map(Step::Constant)
            }
            // tidy: wildcard because any other step is a run-time value
            _ => (bits <= 32).then_some(Step::Unknown),
        }
    }

    pub(super) fn index(&self, inst: Inst) -> Option<usize> {
        self.indices.get(&inst).copied()
    }
}
