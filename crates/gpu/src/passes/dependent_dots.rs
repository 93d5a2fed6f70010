//! Finds dots with an operand that is computed from another dot of the block.

use rustc_hash::FxHashSet;
use tilewright_ir::{Block, Definition, Inst, OpFamily, Operation, Value};

use tilewright_gpu_ir::{Function, GpuOp, Op};

/// Returns the dots of a block, without those of its regions.
pub fn dots_of(function: &Function, block: Block) -> Vec<Inst> {
    let is_dot = |inst: &Inst| function.insts[*inst].op.info().family == OpFamily::Dot;
    function.blocks[block].insts.iter().copied().filter(is_dot).collect()
}

/// Returns whether an operand of a dot is computed from another dot of its block. In the body of a
/// loop, the other dot may be in an earlier iteration.
pub fn depends_on_other_dot(function: &Function, block: Block, dot: Inst, operand: Value) -> bool {
    let mut work = vec![operand];
    let mut seen: FxHashSet<Value> = FxHashSet::default();
    while let Some(value) = work.pop() {
        if !seen.insert(value) {
            continue;
        }
        match function.values[value].definition {
            Definition::Parameter(owner, index) => {
                if owner == block {
                    work.extend(yielded_for(function, block, index as usize));
                }
            }
            Definition::Result(maker, _) if function.blocks[block].insts.contains(&maker) => {
                let data = &function.insts[maker];
                if data.op.info().family == OpFamily::Dot {
                    if maker != dot {
                        return true;
                    }
                    continue;
                }
                work.extend(&data.operands);
                work.extend(stored_to(function, block, maker));
            }
            Definition::Result(..) => {}
        }
    }
    false
}

/// Returns the value that the body of a loop yields for a parameter. Returns `None` for the counter
/// of a `for_loop`.
fn yielded_for(function: &Function, body: Block, index: usize) -> Option<Value> {
    let yielded = function.yielded(body);
    let counters = function.blocks[body].parameters.len().checked_sub(yielded.len())?;
    yielded.get(index.checked_sub(counters)?).copied()
}

/// Returns the values that a block stores to the memory that an instruction allocates.
fn stored_to(function: &Function, block: Block, alloc: Inst) -> Vec<Value> {
    let buffer = function.insts[alloc].results.first();
    let stores = function.blocks[block].insts.iter().map(|inst| &function.insts[*inst]);
    stores
        .filter(|data| matches!(data.op, Op::Gpu(GpuOp::LocalStore {})) && data.operands.first() == buffer)
        .map(|data| data.operands[1])
        .collect()
}
