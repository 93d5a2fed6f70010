//! Translates workers that a program starts (Gluon) to regions of `start_workers`.

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, BlockData, Inst};

use super::Rewrite;
use super::device::reads_shared_memory;
use tilewright_gpu_ir::Op;

impl Rewrite<'_, '_> {
    /// Translates `start_workers`. Each worker begins and ends with the barrier of all partitions.
    pub(super) fn workers(&mut self, inst: Inst, block: Block) {
        let function = self.context.function;
        let data = &function.insts[inst];
        let mut regions: SmallVec<[Block; 2]> = smallvec![];
        for region in &data.regions {
            let new = self.new.blocks.push(BlockData::default());
            self.wait_for_all_partitions(inst, new);
            let mut has_reads = false;
            function.walk(*region, &mut |inner| has_reads |= reads_shared_memory(function, inner));
            self.memory.has_no_reads = !has_reads;
            self.block(*region, new, false);
            self.memory.has_no_reads = false;
            self.wait_for_all_partitions(inst, new);
            self.append(inst, new, Op::Tile(ir::Op::Yield {}), smallvec![], &[]);
            regions.push(new);
        }
        let start = self.new.create_inst(Op::Tile(data.op.clone()), smallvec![], regions, [], data.location);
        self.new.blocks[block].insts.push(start);
        self.wait_for_all_partitions(inst, block);
    }

    pub(super) fn wait_for_all_partitions(&mut self, inst: Inst, block: Block) {
        let plan = self.context.workers.plan.as_ref().expect("a kernel with workers has a plan");
        self.append(inst, block, plan.barrier_of_all(), smallvec![], &[]);
    }
}
