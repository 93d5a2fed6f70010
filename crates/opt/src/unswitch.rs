//! Moves branches out of loops for a back end that prefers loops without branches. This is
//! loop unswitching (Allen and Cocke, *A catalogue of optimizing transformations*, 1972).
//!
//! ```text
//! for … {                        if %c {
//!   %x = if %c { A } else { B }    for … { A ; C }
//!   C                      ──>   } else {
//! }                                for … { B ; C }
//!                                }
//! ```

use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, BlockData, Cursor, Dtype, Function, Inst, Module, Op, Value};

use crate::pipeline::{check, run_passes};
use crate::short_loops::collect_loops;

/// Selects the loops that a back end wants unswitched.
#[derive(Clone, Copy, Debug)]
pub struct Unswitching {
    /// The maximum number of ops of a loop. Each condition doubles the number of ops.
    pub ops: usize,
    /// Returns whether a loop that contains the op may be unswitched.
    pub allows: fn(&Op) -> bool,
}

/// The maximum number of repetitions. Each one moves one condition out of each loop.
const MAX_ROUNDS: usize = 3;

/// For each loop of a module's kernel, moves the branches with invariant conditions out of the
/// loop. Then optimizes the kernel again. Returns `None` if there is no such branch.
pub fn unswitch_loops(module: &Module, loops: &Unswitching) -> Option<Module> {
    let mut unswitched: Option<Module> = None;
    for _ in 0..MAX_ROUNDS {
        let function = unswitched.as_ref().unwrap_or(module).kernel();
        let mut found = Vec::new();
        collect_loops(function, function.entry, &mut found);
        found.retain(|&(_, inst)| invariant_condition(function, inst, loops).is_some());
        if found.is_empty() {
            break;
        }
        let changed = unswitched.get_or_insert_with(|| module.clone());
        let (id, function) = changed.functions.iter_mut().next().expect("a module has a kernel");
        for (block, inst) in found.into_iter().rev() {
            if let Some(condition) = invariant_condition(function, inst, loops) {
                unswitch(function, (block, inst), condition);
            }
        }
        check("unswitch_loops", changed);
        run_passes(changed, id, &mut |_, _| {});
    }
    unswitched
}

/// Returns the condition of a branch that the loop does not change.
fn invariant_condition(function: &Function, inst: Inst, loops: &Unswitching) -> Option<Value> {
    let body = function.insts[inst].regions[0];
    let mut inside: FxHashSet<Value> = function.blocks[body].parameters.iter().copied().collect();
    let (mut ops, mut is_allowed) = (0, true);
    function.walk(body, &mut |inner| {
        let data = &function.insts[inner];
        ops += 1;
        is_allowed &= (loops.allows)(&data.op);
        inside.extend(&data.results);
    });
    if !is_allowed || ops > loops.ops {
        return None;
    }
    let branches = function.blocks[body].insts.iter().map(|&inner| &function.insts[inner]);
    let conditions = branches.filter(|data| matches!(data.op, Op::If { .. })).map(|data| data.operands[0]);
    conditions.into_iter().find(|condition| !inside.contains(condition))
}

/// Replaces a loop by a branch with a copy of the loop on each side.
fn unswitch(function: &mut Function, (block, inst): (Block, Inst), condition: Value) {
    let mut cursor = Cursor::before(function, block, inst);
    cursor.use_location_of(inst);
    cursor.take_next();
    let position = cursor.position();
    let data = cursor.function.insts[inst].clone();
    let types: Vec<_> = data.results.iter().map(|&result| cursor.function.ty(result).clone()).collect();
    let bodies = [data.regions[0], cursor.function.clone_region(data.regions[0])];
    let mut sides: SmallVec<[Block; 2]> = SmallVec::new();
    for (body, is_true) in bodies.into_iter().zip([true, false]) {
        let side = cursor.function.blocks.push(BlockData::default());
        cursor.enter_end(side);
        let value = cursor.int(Dtype::I1, i128::from(is_true));
        let insts = cursor.function.blocks[body].insts.clone();
        for inner in insts {
            let inner = &mut cursor.function.insts[inner];
            if matches!(inner.op, Op::If { .. }) && inner.operands[0] == condition {
                inner.operands[0] = value;
            }
        }
        let copy =
            cursor.emit_with_regions(data.op.clone(), &data.operands, smallvec![body], types.iter().cloned());
        let results = cursor.function.insts[copy].results.clone();
        for (from, to) in data.results.iter().zip(&results) {
            cursor.function.copy_name(*from, *to);
        }
        cursor.emit(Op::Yield {}, &results, []);
        sides.push(side);
    }
    cursor.go_to(position);
    let branch = cursor.emit_with_regions(Op::If {}, &[condition], sides.into_iter().collect(), types);
    let results = cursor.function.insts[branch].results.clone();
    for (from, to) in data.results.iter().zip(&results) {
        cursor.function.copy_name(*from, *to);
    }
    let replaced = data.results.iter().copied().zip(results).collect();
    cursor.function.replace_uses(&replaced, |_| false);
}
