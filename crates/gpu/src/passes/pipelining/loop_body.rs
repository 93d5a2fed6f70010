//! The body of a loop that may be pipelined.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Uses};

use super::memory_order::{Order, orders};
use crate::passes::global_memory::GlobalAccesses;
use tilewright_gpu_ir::{Function, Header, Module, Op};

/// Steps beyond this are not of loops that anyone pipelines; with them, no constant overflows.
const WIDEST_STEP: i128 = 1 << 40;

/// The body of a loop.
pub(super) struct Body<'a> {
    pub(super) header: &'a Header,
    pub(super) function: &'a Function,
    pub(super) uses: &'a Uses,
    pub(super) global: &'a GlobalAccesses<'a>,
    pub(super) inst: Inst,
    pub(super) block: Block,
    /// Where each instruction stands.
    pub(super) places: FxHashMap<Inst, usize>,
    /// Accesses that no load may overtake unless they are known to be elsewhere.
    pub(super) writes: Vec<Inst>,
    /// Whether tensor copies may fill rings of a loop inside of another.
    pub(super) nested_boxes: bool,
}

/// What the counter of a loop is moved by.
pub(super) enum Step {
    Constant(i128),
    Unknown,
}

impl<'a> Body<'a> {
    /// None of a loop that orders accesses to memory.
    pub(super) fn new(
        module: &'a Module,
        inst: Inst,
        uses: &'a Uses,
        global: &'a GlobalAccesses<'a>,
    ) -> Option<Self> {
        let function = module.kernel();
        let block = function.insts[inst].regions[0];
        let insts = &function.blocks[block].insts;
        let places = insts.iter().enumerate().map(|(place, inst)| (*inst, place)).collect();
        let (mut writes, mut is_ordered) = (Vec::new(), false);
        function.walk(block, &mut |inst| match orders(&function.insts[inst].op) {
            Order::None => {}
            Order::Own => writes.push(inst),
            Order::All => is_ordered = true,
        });
        let header = &module.header;
        let body = Self { header, function, uses, global, inst, block, places, writes, nested_boxes: false };
        (!is_ordered).then_some(body)
    }

    /// None of a loop whose iterations cannot be counted ahead.
    pub(super) fn step(&self) -> Option<Step> {
        let [lower, _, step] = [0, 1, 2].map(|place| self.function.insts[self.inst].operands[place]);
        let bits = self.function.ty(lower).as_registers()?.dtype()?.bits();
        match self.function.defining_op(step).and_then(Op::as_tile) {
            Some(ir::Op::Constant { value }) => {
                value.as_int().filter(|step| *step != 0 && step.abs() < WIDEST_STEP).map(Step::Constant)
            }
            // tidy: wildcard because any other value is known when the kernel runs
            _ => (bits <= 32).then_some(Step::Unknown),
        }
    }

    pub(super) fn place(&self, inst: Inst) -> Option<usize> {
        self.places.get(&inst).copied()
    }
}
