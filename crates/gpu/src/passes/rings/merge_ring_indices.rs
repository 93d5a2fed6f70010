//! Where a ring is empty before a loop or a branch and behind it: the slot that is acquired next is the one that is taken next,
//! and one number is carried for both. So it is of a loop that is flattened with the one in it, whose rings have as many full slots
//! before each iteration as before the first one: the slot that is acquired next is so many behind.

use rustc_hash::FxHashMap;
use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::{GpuOp, Op};

/// The instructions with regions at which rings of their own are empty, before and behind them, and these rings; of flattened
/// loops, how many slots are full there.
pub fn even(analysis: &SlotAnalysis<'_>, roots: &[Value]) -> FxHashMap<Inst, FxHashMap<Value, i64>> {
    let mut found: FxHashMap<Inst, FxHashMap<Value, i64>> = FxHashMap::default();
    for root in roots {
        let mut search = Search { analysis, root: *root, even: Vec::new() };
        if search.block(analysis.block_of(*root), 0).is_some() {
            for (inst, held) in search.even {
                found.entry(inst).or_default().insert(*root, held);
            }
        }
    }
    found
}

struct Search<'a> {
    analysis: &'a SlotAnalysis<'a>,
    root: Value,
    /// With how many slots that are acquired and not taken.
    even: Vec<(Inst, i64)>,
}

impl Search<'_> {
    /// How many slots are acquired and not taken behind a block; none if that depends on the path.
    fn block(&mut self, block: Block, before: i64) -> Option<i64> {
        let function = self.analysis.function;
        let mut held = before;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let is_of_ring = data.operands.first() == Some(&self.root);
            match &data.op {
                Op::Gpu(GpuOp::Acquire {}) if is_of_ring => held += 1,
                Op::Gpu(GpuOp::Take {}) if is_of_ring => held -= 1,
                // tidy: wildcard because no other op advances in a ring
                _ => {}
            }
            let is_condition =
                |number: usize| number == 0 && matches!(data.op.as_tile(), Some(ir::Op::While {}));
            let trips = match data.op.as_tile() {
                Some(ir::Op::For { .. }) => {
                    self.analysis.trips(*inst).and_then(|trips| i64::try_from(trips).ok())
                }
                // tidy: wildcard because only this op says how often it runs
                _ => None,
            };
            let (known, before_regions) = (self.even.len(), held);
            for (number, region) in data.regions.iter().enumerate() {
                let behind = self.block(*region, held)?;
                if let Some(trips) = trips.filter(|_| behind != held) {
                    // In no iteration is it as in another.
                    self.even.truncate(known);
                    held += trips * (behind - held);
                    continue;
                }
                if behind != held || is_condition(number) && self.advances(*region) {
                    return None;
                }
            }
            let is_flat = matches!(data.op.as_tile(), Some(ir::Op::For { options }) if options.flatten);
            let is_full = is_flat && (1..=self.analysis.slots(self.root)).contains(&held);
            if held == before_regions && (held == 0 || is_full) && !data.regions.is_empty() {
                self.even.push((*inst, held));
            }
        }
        Some(held)
    }

    fn advances(&self, block: Block) -> bool {
        let function = self.analysis.function;
        let mut found = false;
        function.walk(block, &mut |inst| {
            let data = &function.insts[inst];
            let is_end = matches!(data.op, Op::Gpu(GpuOp::Acquire {} | GpuOp::Take {}));
            found |= is_end && data.operands.first() == Some(&self.root);
        });
        found
    }
}
