//! Lifetimes: nothing uses a buffer, a ring, barriers or a slot of them behind their `dealloc`, which stands in the block of
//! the `alloc`; without one they are there to the end of the kernel. Memory itself is never carried: what is, is the index
//! of a slot.

use cranelift_entity::EntitySet;
use tilewright_ir::{Block, Definition, Inst, Operation, Value};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::Names;
use crate::{GpuOp, Op, Type};

/// Checks the lifetimes of a function.
pub fn check(names: &Names<'_>) -> Check {
    let function = names.function;
    for value in function.values.keys() {
        let is_memory = matches!(function.ty(value), Type::Buffer(_) | Type::Ring(_) | Type::Mbarrier { .. });
        let is_made = match function.values[value].definition {
            Definition::Parameter(..) => false,
            Definition::Result(inst, _) => {
                matches!(function.insts[inst].op, Op::Gpu(GpuOp::Alloc { .. } | GpuOp::Slot {}))
            }
        };
        if is_memory && !is_made {
            let text = names.text(value);
            return Err(format!("{text} is memory that is carried or yielded: carry the index of a slot"));
        }
    }
    Lifetimes { names, ended: EntitySet::new() }.block(function.entry)
}

struct Lifetimes<'a> {
    names: &'a Names<'a>,
    /// What is deallocated.
    ended: EntitySet<Value>,
}

impl Lifetimes<'_> {
    fn block(&mut self, block: Block) -> Check {
        for inst in &self.names.function.blocks[block].insts {
            self.inst(*inst)?;
            for region in &self.names.function.insts[*inst].regions {
                self.block(*region)?;
            }
        }
        Ok(())
    }

    fn inst(&mut self, inst: Inst) -> Check {
        let data = &self.names.function.insts[inst];
        let is_end = matches!(data.op, Op::Gpu(GpuOp::Dealloc {}));
        for value in &data.operands {
            let Some(root) = self.names.root(*value) else { continue };
            let text = self.names.text(*value);
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
                return Err(format!("dealloc takes what an alloc made, {text} is a slot of it"));
            }
            if self.names.block_of_inst(inst) != self.names.block_of(root) {
                return Err(format!("{text} is deallocated in another block than that of its alloc"));
            }
            self.ended.insert(root);
        }
        Ok(())
    }
}
