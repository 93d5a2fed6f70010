//! Hoists the allocations of [rings](crate::passes::rings) with `mbarrier`s out of loops. So the
//! `mbarrier`s are initialized once. Loops carry the index of the next slot and its phase. At the
//! end of an inner loop that is not fused, all slots are empty.
//!
//! ```text
//! for %tile … {                         %r = alloc : ring<3, …>
//!   %r = alloc : ring<3, …>             for %tile … {
//!   … for %k … { tensor_fill … }   =>     … for %k … { tensor_fill … } …
//!   dealloc %r                          }
//! }                                     dealloc %r
//! ```

use rustc_hash::FxHashMap;
use tilewright_ir::{Block, Inst, Value};

use super::loop_plan::LoopPlan;
use tilewright_gpu_ir::{Function, GpuOp, Op, Type};

/// Hoists the rings of pipelined loops; without `all`, only rings that tensor copies fill.
pub fn hoist_rings(function: &mut Function, plans: &[LoopPlan], all: bool) {
    let entry = function.entry;
    let mut owners: FxHashMap<Block, (Inst, Block)> = FxHashMap::default();
    let mut blocks = vec![entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            for region in &function.insts[*inst].regions {
                owners.insert(*region, (*inst, block));
                blocks.push(*region);
            }
        }
    }
    let block_of_rings = |plan: &LoopPlan| plan.scope_of_rings().1;
    for block in plans.iter().filter(|plan| all || plan.has_boxes()).map(block_of_rings) {
        let mut outermost = None;
        let mut around = block;
        while let Some((owner, outer)) = owners.get(&around) {
            outermost = Some(*owner);
            around = *outer;
        }
        let Some(outermost) = outermost else { continue };
        let rings = rings(function, block, all);
        let mut remove = |is_removed: &dyn Fn(&Function, Inst) -> bool| -> Vec<Inst> {
            let (moved, kept) = std::mem::take(&mut function.blocks[block].insts)
                .into_iter()
                .partition(|inst| is_removed(function, *inst));
            function.blocks[block].insts = kept;
            moved
        };
        let allocs = remove(&|function, inst| {
            function.insts[inst].results.first().is_some_and(|result| rings.contains(result))
        });
        let deallocs = remove(&|function, inst| {
            let data = &function.insts[inst];
            matches!(data.op, Op::Gpu(GpuOp::Dealloc {})) && rings.contains(&data.operands[0])
        });
        let insts = &mut function.blocks[entry].insts;
        let index = insts.iter().position(|inst| *inst == outermost).expect("the loop is in the entry");
        insts.splice(index..=index, allocs.into_iter().chain([outermost]).chain(deallocs));
    }
}

/// Returns the rings of a block; without `all`, only rings that tensor copies fill.
fn rings(function: &Function, block: Block, all: bool) -> Vec<Value> {
    let mut of_slot: FxHashMap<Value, Value> = FxHashMap::default();
    let mut filled = Vec::new();
    function.walk(block, &mut |inst| {
        let data = &function.insts[inst];
        match data.op {
            Op::Gpu(GpuOp::Acquire {}) => {
                of_slot.insert(data.results[0], data.operands[0]);
                filled.extend(all.then_some(data.operands[0]));
            }
            Op::Gpu(GpuOp::TensorFill {}) => filled.extend(of_slot.get(&data.operands[0])),
            // tidy: wildcard because no other op is a tensor copy to a slot
            _ => {}
        }
    });
    let is_allocated_here = |value: &Value| {
        function.blocks[block].insts.iter().any(|inst| function.insts[*inst].results.first() == Some(value))
    };
    filled.retain(|value| matches!(function.ty(*value), Type::Ring(_)) && is_allocated_here(value));
    filled.sort_unstable();
    filled.dedup();
    filled
}
