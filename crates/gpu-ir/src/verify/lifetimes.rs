//! Lifetimes: nothing uses memory, barriers or slots after their `dealloc`. The `dealloc` is in the
//! block of the `alloc`. Without a `dealloc`, memory lives until the end of the kernel. Loops
//! carry, and branches yield, slot indices but no memory.

use cranelift_entity::EntitySet;
use tilewright_ir::{Block, Definition, Inst, Operation, Value};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::SlotAnalysis;
use crate::{GpuOp, Op, Type};

/// Checks the lifetimes of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    for value in function.values.keys() {
        let is_memory = matches!(
            function.ty(value),
            Type::Buffer(_) | Type::Ring(_) | Type::Mbarrier { .. } | Type::TensorMemory(_)
        );
        let is_made = match function.values[value].definition {
            Definition::Parameter(..) => false,
            Definition::Result(inst, _) => {
                matches!(
                    function.insts[inst].op,
                    Op::Gpu(GpuOp::Alloc { .. } | GpuOp::Slot {} | GpuOp::View {})
                )
            }
        };
        if is_memory && !is_made {
            let text = analysis.text(value);
            return Err(format!("{text} is memory that is carried or yielded: carry the index of a slot"));
        }
    }
    Lifetimes { analysis, ended: EntitySet::new() }.block(function.entry)
}

struct Lifetimes<'a> {
    analysis: &'a SlotAnalysis<'a>,
    /// The memory that is deallocated.
    ended: EntitySet<Value>,
}

impl Lifetimes<'_> {
    fn block(&mut self, block: Block) -> Check {
        for inst in &self.analysis.function.blocks[block].insts {
            self.inst(*inst).inspect_err(|_| self.analysis.blame(*inst))?;
            for region in &self.analysis.function.insts[*inst].regions {
                self.block(*region)?;
            }
        }
        Ok(())
    }

    fn inst(&mut self, inst: Inst) -> Check {
        let data = &self.analysis.function.insts[inst];
        let is_end = matches!(data.op, Op::Gpu(GpuOp::Dealloc {}));
        for value in &data.operands {
            let Some(root) = self.analysis.alloc(*value) else { continue };
            let text = self.analysis.text(*value);
            if self.ended.contains(root) {
                return Err(if is_end {
                    format!("{text} is deallocated twice")
                } else {
                    format!("{} uses {text} after the dealloc of its memory", data.op.name())
                });
            }
            if !is_end {
                continue;
            }
            if root != *value {
                return Err(format!("dealloc takes the result of an alloc, but {text} is a slot"));
            }
            if self.analysis.block_of_inst(inst) != self.analysis.block_of(root) {
                return Err(format!("{text} is deallocated in another block than that of its alloc"));
            }
            self.ended.insert(root);
        }
        Ok(())
    }
}
