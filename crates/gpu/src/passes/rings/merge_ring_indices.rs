//! Finds loops and branches in which producer and consumer share one slot index.
//!
//! If a ring is empty before and after a loop or branch, both sides are at the same slot. A held
//! slot is acquired but not taken. Before each iteration of a fused loop, a ring may have held
//! slots. With `n` held slots, the producer is `n` slots ahead.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{GpuOp, Op};

/// Finds the instructions and rings for which both sides can share the index. Returns the number of
/// held slots for each.
///
/// The number is 0 except at fused loops.
pub fn find_mergeable(
    analysis: &SlotAnalysis<'_>,
    roots: &[Value],
) -> FxHashMap<Inst, FxHashMap<Value, i64>> {
    let mut found: FxHashMap<Inst, FxHashMap<Value, i64>> = FxHashMap::default();
    for root in roots {
        let mut walk = OccupancyWalk { analysis, root: *root, mergeable: Vec::new() };
        if walk.walk_block(analysis.block_of(*root), 0).is_some() {
            for (inst, held) in walk.mergeable {
                found.entry(inst).or_default().insert(*root, held);
            }
        }
    }
    found
}

struct OccupancyWalk<'a> {
    analysis: &'a SlotAnalysis<'a>,
    root: Value,
    /// The instructions and their numbers of held slots.
    mergeable: Vec<(Inst, i64)>,
}

impl OccupancyWalk<'_> {
    /// Returns the held slots after a block; `None` if the number depends on the path.
    fn walk_block(&mut self, block: Block, before: i64) -> Option<i64> {
        let function = self.analysis.function;
        let mut held = before;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let uses_ring = data.operands.first() == Some(&self.root);
            match &data.op {
                Op::Gpu(GpuOp::Acquire {}) if uses_ring => held += 1,
                Op::Gpu(GpuOp::Take {}) if uses_ring => held -= 1,
                // tidy: wildcard because no other op advances a ring
                _ => {}
            }
            let is_condition =
                |index: usize| index == 0 && matches!(data.op.as_tile(), Some(ir::Op::While {}));
            let trips = match data.op.as_tile() {
                Some(ir::Op::For { .. }) => {
                    self.analysis.trips(*inst).and_then(|trips| i64::try_from(trips).ok())
                }
                // tidy: wildcard because only a `for` loop can have a constant trip count
                _ => None,
            };
            let (known, before_regions) = (self.mergeable.len(), held);
            for (index, region) in data.regions.iter().enumerate() {
                let after = self.walk_block(*region, held)?;
                if let Some(trips) = trips.filter(|_| after != held) {
                    // Iterations begin with different numbers of held slots, so instructions in the
                    // loop cannot share the index.
                    self.mergeable.truncate(known);
                    held += trips * (after - held);
                    continue;
                }
                if after != held || is_condition(index) && self.advances(*region) {
                    return None;
                }
            }
            let is_fused = matches!(data.op.as_tile(), Some(ir::Op::For { options }) if options.flatten);
            let holds_slots = is_fused && (1..=self.analysis.slots(self.root)).contains(&held);
            if held == before_regions && (held == 0 || holds_slots) && !data.regions.is_empty() {
                self.mergeable.push((*inst, held));
            }
        }
        Some(held)
    }

    fn advances(&self, block: Block) -> bool {
        let function = self.analysis.function;
        let mut found = false;
        function.walk(block, &mut |inst| {
            let data = &function.insts[inst];
            let advances = matches!(data.op, Op::Gpu(GpuOp::Acquire {} | GpuOp::Take {}));
            found |= advances && data.operands.first() == Some(&self.root);
        });
        found
    }
}
