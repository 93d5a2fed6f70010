//! Moves pure instructions out of the loops on which their operands do not depend.
//!
//! Loops may disable the motion. Nothing moves out of an `if`, whose region may never run, and
//! loads stay in place.

use tilewright_base::entity::SecondaryMap;
use tilewright_ir::{Block, Function, Inst, Op, OpFamily, Value};

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let entry = function.entry;
    let mut pass = Licm { function, depths: SecondaryMap::new(), scopes: Vec::new(), changed: false };
    pass.block(entry, false);
    pass.changed
}

/// A block around the current instruction.
struct Scope {
    /// The instructions of the block so far.
    insts: Vec<Inst>,
    /// True for a region of a loop from which instructions may move.
    is_open: bool,
}

struct Licm<'f> {
    function: &'f mut Function,
    /// The nesting depth of the definition of a value after the motion, 1 in the entry block.
    depths: SecondaryMap<Value, u32>,
    scopes: Vec<Scope>,
    changed: bool,
}

impl Licm<'_> {
    fn block(&mut self, block: Block, is_open: bool) {
        let insts = std::mem::take(&mut self.function.blocks[block].insts);
        self.scopes.push(Scope { insts: Vec::with_capacity(insts.len()), is_open });
        let depth = self.scopes.len() as u32;
        for &parameter in &self.function.blocks[block].parameters {
            self.depths[parameter] = depth;
        }
        for inst in insts {
            self.inst(inst, depth);
        }
        if let Some(scope) = self.scopes.pop() {
            self.function.blocks[block].insts = scope.insts;
        }
    }

    fn inst(&mut self, inst: Inst, depth: u32) {
        let target = if is_speculatable(self.function, inst) { self.target(inst, depth) } else { depth };
        let op = &self.function.insts[inst].op;
        let is_left_alone = matches!(op, Op::For { options } if options.disable_licm);
        let is_loop = op.family() == OpFamily::Loop && !is_left_alone;
        let data = &self.function.insts[inst];
        if target == depth || data.regions.is_empty() {
            for region in data.regions.clone() {
                self.block(region, is_loop);
            }
        }
        for &result in &self.function.insts[inst].results {
            self.depths[result] = target;
        }
        self.changed |= target != depth;
        if let Some(scope) = self.scopes.get_mut(target as usize - 1) {
            scope.insts.push(inst);
        }
    }

    /// Returns the depth of the outermost block to which an instruction may move.
    fn target(&self, inst: Inst, depth: u32) -> u32 {
        let open = self.scopes.iter().rev().take_while(|scope| scope.is_open).count() as u32;
        // The entry block is never open.
        let outermost = depth.saturating_sub(open).max(1);
        outermost.max(self.needed(inst))
    }

    /// Returns the depth of the innermost block with an operand of the instruction or of its
    /// regions.
    fn needed(&self, inst: Inst) -> u32 {
        let data = &self.function.insts[inst];
        let operands = data.operands.iter().map(|&value| self.depths[value]);
        let mut depth = operands.max().unwrap_or(0);
        for &region in &data.regions {
            // Values of the region itself still have depth 0.
            self.function.walk(region, &mut |inner| {
                let operands = self.function.insts[inner].operands.iter();
                depth = operands.map(|&value| self.depths[value]).max().unwrap_or(0).max(depth);
            });
        }
        depth
    }
}

/// Returns whether an instruction may execute even if the program would not execute it.
fn is_speculatable(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    if !matches!(data.op.family(), OpFamily::Reduction | OpFamily::Scan) {
        return data.op.is_speculatable();
    }
    let mut all = true;
    for &region in &data.regions {
        function.walk(region, &mut |inner| {
            all &= function.insts[inner].op.is_terminator() || is_speculatable(function, inner);
        });
    }
    all
}
