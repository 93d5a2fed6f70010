//! Dead code: what nobody sees is removed. Instructions without effect whose results are not used; loops and `if`s
//! with nothing left in them; results, carried values and parameters that nothing but themselves depends on.
//!
//! A `while` stays even if it computes nothing: it may be there to never end.

use smallvec::SmallVec;
use tilewright_base::entity::{EntitySet, SecondaryMap, packed_option::PackedOption};
use tilewright_ir::{Block, Definition, Effect, Function, Inst, Op, Value};

/// Runs the pass; whether it changed anything.
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

/// What is live. A value that is carried around a loop is its operand, its parameters, what is yielded for it, and its
/// result: all of them are live or none.
struct Liveness<'f> {
    function: &'f Function,
    /// The instruction that a block is a region of.
    parents: SecondaryMap<Block, PackedOption<Inst>>,
    /// The block that an instruction stands in.
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
                Op::While {} | Op::Call { .. } | Op::Return {} => true,
                // tidy: wildcard because the effect of the others decides
                op => op.info().effect == Effect::Write,
            };
            if is_root {
                self.mark_inst(inst);
            }
        }
    }

    /// Marks an instruction, what it needs to run at all, and the instructions that it is inside of.
    fn mark_inst(&mut self, inst: Inst) {
        let mut next = Some(inst);
        while let Some(inst) = next {
            if !self.insts.insert(inst) {
                return;
            }
            let data = &self.function.insts[inst];
            match &data.op {
                Op::For { .. } => self.work.extend(data.operands.iter().take(3)),
                Op::While {} => self.mark_terminator(data.regions.first()),
                // What a region of a loop or an `if` yields is live where it is needed.
                Op::Yield {} => {}
                Op::Reduce { .. } => {
                    self.work.extend(&data.operands);
                    self.mark_terminator(data.regions.first());
                }
                // tidy: wildcard because all operands of the others are needed, as is the condition of an `if`
                _ => self.work.extend(&data.operands),
            }
            next = self.blocks[inst].expand().and_then(|block| self.parents[block].expand());
        }
    }

    /// Marks all that a region yields.
    fn mark_terminator(&mut self, region: Option<&Block>) {
        if let Some(&region) = region {
            self.work.extend(self.function.yielded(region));
        }
    }

    fn propagate(&mut self) {
        while let Some(value) = self.work.pop() {
            if !self.values.insert(value) {
                continue;
            }
            match self.function.values[value].definition {
                Definition::Result(inst, index) => {
                    self.mark_inst(inst);
                    self.mark_carried(inst, index as usize);
                }
                Definition::Parameter(block, index) => {
                    let Some(inst) = self.parents[block].expand() else { continue };
                    self.mark_inst(inst);
                    match (&self.function.insts[inst].op, index as usize) {
                        (Op::For { .. }, 0) => {}
                        (Op::For { .. }, index) => self.mark_carried(inst, index - 1),
                        (Op::While {}, index) => self.mark_carried(inst, index),
                        // tidy: wildcard because no other op carries values around
                        _ => {}
                    }
                }
            }
        }
    }

    /// Marks everything that a result of a loop or an `if` is made of.
    fn mark_carried(&mut self, inst: Inst, index: usize) {
        let data = &self.function.insts[inst];
        let (skipped_operands, skipped_parameters) = match &data.op {
            Op::For { .. } => (3, 1),
            Op::While {} => (0, 0),
            Op::If {} => (1, 0),
            // tidy: wildcard because the results of other ops are made of their operands, which are live
            _ => return,
        };
        self.work.extend(data.results.get(index));
        self.work.extend(data.operands.get(skipped_operands + index));
        for (number, &region) in data.regions.iter().enumerate() {
            self.work.extend(self.function.blocks[region].parameters.get(skipped_parameters + index));
            let yields_condition = matches!(data.op, Op::While {}) && number == 0;
            if !yields_condition {
                self.work.extend(self.function.yielded(region).get(index));
            }
        }
    }
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
            if matches!(self.function.insts[inst].op, Op::For { .. } | Op::While {} | Op::If {}) {
                self.remove_carried(inst);
            }
            for region in self.function.insts[inst].regions.clone() {
                self.block(region);
            }
        }
        self.function.blocks[block].insts = insts;
    }

    /// Removes the dead results of a loop or an `if` with what they are made of.
    fn remove_carried(&mut self, inst: Inst) {
        let data = &self.function.insts[inst];
        let keep: SmallVec<[bool; 8]> =
            data.results.iter().map(|&value| self.values.contains(value)).collect();
        if keep.iter().all(|&keep| keep) {
            return;
        }
        self.changed = true;
        let (is_while, skipped_operands, skipped_parameters) = match &data.op {
            Op::For { .. } => (false, 3, 1),
            Op::While {} => (true, 0, 0),
            // tidy: wildcard because the caller passes loops and ifs
            _ => (false, 1, 0),
        };
        let regions = data.regions.clone();
        let function = &mut *self.function;
        retain(&mut function.insts[inst].operands, skipped_operands, &keep);
        retain(&mut function.insts[inst].results, 0, &keep);
        for (index, &result) in function.insts[inst].results.iter().enumerate() {
            function.values[result].definition = Definition::Result(inst, index as u32);
        }
        for (number, &region) in regions.iter().enumerate() {
            retain(&mut function.blocks[region].parameters, skipped_parameters, &keep);
            for (index, &parameter) in function.blocks[region].parameters.iter().enumerate() {
                function.values[parameter].definition = Definition::Parameter(region, index as u32);
            }
            if !(is_while && number == 0)
                && let Some(terminator) = function.terminator(region)
            {
                retain(&mut function.insts[terminator].operands, 0, &keep);
            }
        }
    }
}

/// Keeps the first `skipped` items, and those of the others that `keep` says.
fn retain<const N: usize>(items: &mut SmallVec<[Value; N]>, skipped: usize, keep: &[bool])
where
    [Value; N]: smallvec::Array<Item = Value>,
{
    let mut index = 0;
    items.retain(|_| {
        let kept = index < skipped || keep.get(index - skipped).copied().unwrap_or(true);
        index += 1;
        kept
    });
}
