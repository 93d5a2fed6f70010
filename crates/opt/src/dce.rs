//! Removes instructions, loops, branches and carried values that nothing uses.
//!
//! A carried value that only its own update reads is dead. A `while` stays even if it computes
//! nothing: it may be an intended endless loop.

use tilewright_base::entity::{EntitySet, SecondaryMap, packed_option::PackedOption};
use tilewright_ir::{Block, Definition, Effect, Function, Inst, Op, OpFamily, Value};

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let mut liveness = Liveness {
        function,
        parents: SecondaryMap::new(),
        blocks: SecondaryMap::new(),
        insts: EntitySet::new(),
        values: EntitySet::new(),
        work: Vec::new(),
    };
    liveness.roots(function.entry, None);
    liveness.propagate();
    let Liveness { insts, values, .. } = liveness;
    let mut sweeper = Sweeper { function, insts, values, changed: false };
    sweeper.block(sweeper.function.entry);
    sweeper.changed
}

/// The live instructions and values. All values of one carried value are live, or none.
struct Liveness<'f> {
    function: &'f Function,
    /// The instruction that owns a region.
    parents: SecondaryMap<Block, PackedOption<Inst>>,
    blocks: SecondaryMap<Inst, PackedOption<Block>>,
    insts: EntitySet<Inst>,
    values: EntitySet<Value>,
    work: Vec<Value>,
}

impl Liveness<'_> {
    fn roots(&mut self, block: Block, parent: Option<Inst>) {
        self.parents[block] = parent.into();
        for &inst in &self.function.blocks[block].insts {
            self.blocks[inst] = block.into();
            let data = &self.function.insts[inst];
            for &region in &data.regions {
                self.roots(region, Some(inst));
            }
            let is_root = match &data.op {
                Op::Load { volatile, .. } => *volatile,
                // tidy: wildcard because `is_root` decides for the others
                op => is_root(op),
            };
            if is_root {
                self.mark_inst(inst);
            }
        }
    }

    /// Marks an instruction, the operands that it always needs, and the instructions around it.
    fn mark_inst(&mut self, inst: Inst) {
        let mut next = Some(inst);
        while let Some(inst) = next {
            if !self.insts.insert(inst) {
                return;
            }
            let data = &self.function.insts[inst];
            match data.op.family() {
                // `propagate` marks carried and yielded values if a live value needs them.
                OpFamily::Loop | OpFamily::Branch => {
                    self.work.extend(&data.operands[..data.op.info().operands.len()]);
                    self.mark_terminators(self.function.conditions(inst));
                }
                OpFamily::Terminator if matches!(data.op, Op::Yield {}) => {}
                OpFamily::Reduction | OpFamily::Scan | OpFamily::Pointwise => {
                    self.work.extend(&data.operands);
                    self.mark_terminators(&data.regions);
                }
                // tidy: wildcard because the others need all operands
                _ => self.work.extend(&data.operands),
            }
            next = self.blocks[inst].expand().and_then(|block| self.parents[block].expand());
        }
    }

    fn mark_terminators(&mut self, regions: &[Block]) {
        for &region in regions {
            self.work.extend(self.function.yielded(region));
        }
    }

    fn propagate(&mut self) {
        while let Some(value) = self.work.pop() {
            if !self.values.insert(value) {
                continue;
            }
            let inst = match self.function.values[value].definition {
                Definition::Result(inst, _) => inst,
                Definition::Parameter(block, _) => {
                    let Some(inst) = self.parents[block].expand() else { continue };
                    inst
                }
            };
            self.mark_inst(inst);
            // Marks the sources of a result of a loop or branch.
            if let Some(carried) = self.function.carried_by(inst, value) {
                self.work.extend(carried.initial);
                self.work.extend(carried.parameters);
                self.work.extend(carried.yielded);
                self.work.push(carried.result);
            }
        }
    }
}

/// Returns whether an op must stay even if its results are unused.
fn is_root(op: &Op) -> bool {
    // A loop without a trip count may be an intended endless loop.
    let is_endless = matches!(op, Op::While {});
    let leaves = op.family() == OpFamily::Call || matches!(op, Op::Return {});
    is_endless || leaves || op.info().effect == Effect::Write
}

struct Sweeper<'f> {
    function: &'f mut Function,
    insts: EntitySet<Inst>,
    values: EntitySet<Value>,
    changed: bool,
}

impl Sweeper<'_> {
    fn block(&mut self, block: Block) {
        let mut insts = std::mem::take(&mut self.function.blocks[block].insts);
        let before = insts.len();
        insts.retain(|&inst| self.insts.contains(inst) || self.function.insts[inst].op.is_terminator());
        self.changed |= insts.len() != before;
        for &inst in &insts {
            self.remove_carried(inst);
            for region in self.function.insts[inst].regions.clone() {
                self.block(region);
            }
        }
        self.function.blocks[block].insts = insts;
    }

    /// Removes the dead results of a loop or an `if`, with their operands, parameters and yields.
    fn remove_carried(&mut self, inst: Inst) {
        let values = &self.values;
        if self.function.carried(inst).any(|carried| !values.contains(carried.result)) {
            self.changed = true;
            self.function.retain_carried(inst, |carried| values.contains(carried.result));
        }
    }
}
