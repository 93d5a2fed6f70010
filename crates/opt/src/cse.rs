//! Replaces a pure instruction by the first equal one in scope.
//! An element region, such as the combine region of a reduction, is a scope of its own. It captures
//! no values, so that back ends can recognize and copy it.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use tilewright_ir::{Block, Function, Inst, Op, Value};

use crate::aliases::Aliases;

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let entry = function.entry;
    let mut pass = Cse {
        function,
        aliases: Aliases::default(),
        known: FxHashMap::default(),
        undo: Vec::new(),
        changed: false,
    };
    pass.block(entry);
    pass.changed
}

struct Cse<'f> {
    function: &'f mut Function,
    aliases: Aliases,
    /// The instructions in scope, by hash. Of equal hashes, the later instruction counts.
    known: FxHashMap<u64, Inst>,
    /// The previous entries of `known`, restored at the end of a scope.
    undo: Vec<(u64, Option<Inst>)>,
    changed: bool,
}

impl Cse<'_> {
    fn block(&mut self, block: Block) {
        let scope = self.undo.len();
        let mut insts = std::mem::take(&mut self.function.blocks[block].insts);
        insts.retain(|&inst| self.keep(inst));
        self.function.blocks[block].insts = insts;
        for (hash, before) in self.undo.drain(scope..).rev() {
            match before {
                Some(inst) => self.known.insert(hash, inst),
                None => self.known.remove(&hash),
            };
        }
    }

    fn keep(&mut self, inst: Inst) -> bool {
        self.aliases.resolve_operands(self.function, inst);
        let regions = self.function.insts[inst].regions.clone();
        let combines = self.function.insts[inst].op.has_element_regions();
        let outer = if combines { std::mem::take(&mut self.known) } else { FxHashMap::default() };
        for region in regions {
            self.block(region);
        }
        if combines {
            self.known = outer;
        }
        if !self.function.insts[inst].op.is_pure() {
            return true;
        }
        let hash = hash(self.function, inst);
        if let Some(&earlier) = self.known.get(&hash)
            && equal(self.function, earlier, inst)
        {
            let results = std::mem::take(&mut self.function.insts[inst].results);
            for (index, old) in results.into_iter().enumerate() {
                let new = self.function.insts[earlier].results[index];
                self.aliases.replace(self.function, old, new);
            }
            self.changed = true;
            return false;
        }
        self.undo.push((hash, self.known.insert(hash, inst)));
        true
    }
}

/// Returns the first two operands, sorted if the op is commutative. A single operand counts twice.
fn ordered(function: &Function, inst: Inst) -> (Value, Value) {
    let data = &function.insts[inst];
    match (&data.op, &data.operands[..]) {
        (Op::Elementwise { function }, &[x, y]) if function.info().commutative => (x.min(y), x.max(y)),
        // tidy: wildcard because the order of all other operands matters
        (_, &[x, y, ..]) => (x, y),
        (_, &[x]) => (x, x),
        (_, &[]) => (Value::from_u32(0), Value::from_u32(0)),
    }
}

fn hash(function: &Function, inst: Inst) -> u64 {
    let data = &function.insts[inst];
    let mut hasher = FxHasher::default();
    data.op.hash(&mut hasher);
    ordered(function, inst).hash(&mut hasher);
    data.operands.get(2..).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

fn equal(function: &Function, x: Inst, y: Inst) -> bool {
    let (a, b) = (&function.insts[x], &function.insts[y]);
    a.op == b.op
        && a.operands.len() == b.operands.len()
        && ordered(function, x) == ordered(function, y)
        && a.operands.get(2..) == b.operands.get(2..)
        && a.regions.len() == b.regions.len()
        && a.regions.iter().zip(&b.regions).all(|(&x, &y)| {
            let mut same = FxHashMap::default();
            equal_blocks(function, x, y, &mut same)
        })
}

/// Returns whether two regions compute the same function. `same` maps the values of `y` to those of
/// `x`.
fn equal_blocks(function: &Function, x: Block, y: Block, same: &mut FxHashMap<Value, Value>) -> bool {
    let (a, b) = (&function.blocks[x], &function.blocks[y]);
    if a.parameters.len() != b.parameters.len() || a.insts.len() != b.insts.len() {
        return false;
    }
    same.extend(b.parameters.iter().copied().zip(a.parameters.iter().copied()));
    a.insts.iter().zip(&b.insts).all(|(&x, &y)| {
        let (a, b) = (&function.insts[x], &function.insts[y]);
        let equal_operands = a.operands.len() == b.operands.len()
            && a.operands.iter().zip(&b.operands).all(|(&x, y)| *same.get(y).unwrap_or(y) == x);
        same.extend(b.results.iter().copied().zip(a.results.iter().copied()));
        // Instructions with nested regions are rare here, and count as different.
        a.op == b.op && equal_operands && a.regions.is_empty() && b.regions.is_empty()
    })
}
