//! Translates the functions with which the blocks of a cluster cooperate (Gluon).

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{Block, DeviceFn, Inst, Value};

use super::Rewrite;
use tilewright_gpu_ir::{GpuOp, Op, Type};

impl Rewrite<'_, '_> {
    pub(super) fn cluster_function(&mut self, inst: Inst, block: Block, function: &DeviceFn) {
        match function {
            DeviceFn::MulticastLoad { at_lead, .. } => {
                let op = GpuOp::TensorLoadTo { offsets: 0, at_lead: *at_lead };
                self.tensor_load_to(inst, block, function, op);
            }
            DeviceFn::WindowLoad { window, .. } => {
                let op = GpuOp::TensorLoadTo { offsets: window.lower.len() as u32, at_lead: false };
                self.tensor_load_to(inst, block, function, op);
            }
            DeviceFn::RemoteArrive { arrivals, bytes, .. } => {
                let (barriers, slot) = self.place(inst, 0);
                self.keep_allocated(inst, 0);
                let rank = self.get(self.context.function.insts[inst].operands[3], None);
                let op = GpuOp::MbarrierArriveAt { arrivals: *arrivals, bytes: *bytes };
                // One thread arrives, after all threads have reached this point.
                self.append(inst, block, Op::Tile(ir::Op::Barrier {}), smallvec![], &[]);
                self.predicated(inst, block, 2, |rewrite, block| {
                    rewrite.append(inst, block, op.into(), smallvec![barriers, slot, rank], &[]);
                });
            }
            DeviceFn::GatherBlocks { blocks, .. } => {
                let buffer = self.tile_at(inst, block, 0);
                let old = self.context.function.insts[inst].results[0];
                let layout = self.layouts_of(old)[0];
                let ty = self.ty(old, layout);
                let op = GpuOp::GatherBlocks { blocks: *blocks }.into();
                let value = self.append(inst, block, op, smallvec![buffer], &[ty]);
                self.define(old, layout, value.expect("a load is a value"), block);
            }
            DeviceFn::ClcTryCancel { multicast, .. } => {
                let (barriers, slot) = self.place(inst, 2);
                self.keep_allocated(inst, 0);
                let buffer = self.tile_at(inst, block, 0);
                let op = GpuOp::ClcTryCancel { multicast: *multicast };
                // Threads have read the last response, which the asynchronous proxy overwrites. In a
                // cluster, a fence precedes the barrier of the cluster.
                if !*multicast {
                    self.append(inst, block, GpuOp::FenceProxy {}.into(), smallvec![], &[]);
                }
                self.wait_for_reads(inst, block);
                self.predicated(inst, block, 4, |rewrite, block| {
                    rewrite.append(inst, block, op.into(), smallvec![buffer, barriers, slot], &[]);
                });
            }
            DeviceFn::ClcLoadResult { blocks, .. } => {
                let buffer = self.tile_at(inst, block, 0);
                let old = &self.context.function.insts[inst];
                let types: SmallVec<[Type; 4]> = old
                    .results
                    .iter()
                    .map(|result| Type::registers(self.context.function.ty(*result).clone(), None))
                    .collect();
                let op = GpuOp::ClcLoadResult { blocks: *blocks }.into();
                let made = self.new.create_inst(op, smallvec![buffer], smallvec![], types, old.location);
                self.new.blocks[block].insts.push(made);
                for (index, old) in old.results.iter().enumerate() {
                    let value = self.new.insts[made].results[index];
                    self.define(*old, None, value, block);
                }
            }
            DeviceFn::ClusterArrive {} => {
                self.append(inst, block, GpuOp::ClusterArrive {}.into(), smallvec![], &[]);
            }
            DeviceFn::ClusterWait {} => {
                self.append(inst, block, GpuOp::ClusterWait {}.into(), smallvec![], &[]);
            }
            // tidy: wildcard because `tile/stated` has replaced `arrive_from`, and the caller
            // passes no other function
            other => unreachable!("{} is no function of one block of a cluster", other.name()),
        }
    }

    /// Appends a tensor load to the blocks in a mask.
    fn tensor_load_to(&mut self, inst: Inst, block: Block, function: &DeviceFn, op: GpuOp) {
        let mask = self.get(self.context.function.insts[inst].operands[5], None);
        let (barriers, barrier) = self.place(inst, 2);
        self.keep_allocated(inst, 0);
        self.keep_allocated(inst, 2);
        let buffer = self.tile_at(inst, block, 0);
        let tensor = self.tensor(inst, function);
        let mut operands: SmallVec<[Value; 4]> = smallvec![buffer, tensor[0], barriers, barrier, mask];
        operands.extend(tensor[1..].iter().copied());
        self.wait_for_reads(inst, block);
        self.predicated(inst, block, 4, |rewrite, block| {
            rewrite.append(inst, block, op.into(), operands, &[]);
        });
    }
}
