//! Lowers copies and barriers in clusters of two or more blocks. PTX ISA, "Cluster of Cooperative
//! Thread Arrays". Blocks copy to each other by `.multicast::cluster`, and arrive at each other's
//! barriers.

mod copies;

use rustc_hash::FxHashMap;
use tilewright_gpu_ir::{self as gpu, GpuOp, Op};
use tilewright_gpu_ir::{BoxLayout, Feature};
use tilewright_ir::{Inst, Value};

use super::asynchronous::MBARRIER_BYTES;
use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::tensor_copy::load_of_box;
use super::{LANES, Lowered, Lowering};
use crate::isa::{self, Comparison, Destination, ScalarType, Source, SpecialRegister, StateSpace};

/// The buffers that the blocks of a cluster fill by multicast. A buffer maps to the condition for
/// this.
#[derive(Default)]
pub(super) struct ClusterBuffers {
    buffers: FxHashMap<Value, Value>,
    /// The barriers of empty slots, with the conditions of their buffers.
    empty: FxHashMap<Value, Vec<Value>>,
}

impl ClusterBuffers {
    pub(super) fn of(kernel: &gpu::Function) -> Self {
        let mut cluster_buffers = Self::default();
        kernel.walk(kernel.entry, &mut |inst| {
            let data = &kernel.insts[inst];
            if let Op::Gpu(GpuOp::MulticastLoads {}) = data.op {
                cluster_buffers.buffers.insert(data.operands[0], data.operands[3]);
                cluster_buffers.empty.entry(data.operands[2]).or_default().push(data.operands[3]);
            }
        });
        cluster_buffers
    }

    /// Returns whether threads of all blocks of the cluster arrive at these barriers.
    pub(super) fn are_shared(&self, barriers: Value) -> bool {
        self.empty.contains_key(&barriers)
    }
}

impl Lowering<'_> {
    /// Ends the blocks that have no program. Such a block only completes the last pair in a row of
    /// the grid.
    pub(super) fn end_without_program(&mut self) {
        if !self.program.header.paired {
            return;
        }
        let programs = *self.kernel.blocks[self.kernel.entry].parameters.last().expect("it has one");
        let own = self.special(SpecialRegister::CtaidX);
        // Without pairs, the number is 0, the last index wraps, and no block ends.
        let last = self.scalar(programs).plus(Width::B32, u64::MAX);
        let is_after_last = self.builder.compare(Width::B32, false, Comparison::Gt, own, last);
        let guard = self.builder.predicate(is_after_last);
        self.builder.emit_if(Some(guard), isa::Ret { uniform: false });
    }

    pub(super) fn lower_cluster_arrive(&mut self, inst: Inst) -> Lowered {
        self.require(inst, Feature::Tma)?;
        self.builder.emit(isa::FenceMbarrierInit {});
        self.builder.emit(isa::BarrierClusterArrive { semantics: None, aligned: true });
        Ok(())
    }

    pub(super) fn lower_cluster_wait(&mut self, inst: Inst) -> Lowered {
        self.require(inst, Feature::Tma)?;
        self.builder.emit(isa::BarrierClusterWait { semantics: None, aligned: true });
        Ok(())
    }

    /// Returns the condition under which blocks fill a slot together; `None` for never.
    pub(super) fn shared_condition(&self, slot: Value) -> Option<Scalar> {
        let root = match self.kernel.defining_inst(slot) {
            Some(inst) if matches!(self.kernel.insts[inst].op, Op::Gpu(GpuOp::Slot {})) => {
                self.kernel.insts[inst].operands[0]
            }
            Some(_) | None => slot,
        };
        self.cluster_buffers.buffers.get(&root).map(|condition| self.scalar(*condition))
    }

    /// Returns the number of blocks whose threads arrive at a barrier.
    pub(super) fn arrivals(&self, barriers: Value) -> u32 {
        if self.cluster_buffers.are_shared(barriers) { self.program.header.sharing_blocks() } else { 1 }
    }

    /// Emits one arrival for each block of the cluster, each by a lane. If the blocks fill a buffer
    /// of these barriers, each lane arrives at another block's barrier. Otherwise, all arrive at
    /// their own block's.
    pub(super) fn arrive_in_cluster(&mut self, [barriers, slot]: [Value; 2]) {
        let conditions = self.cluster_buffers.empty[&barriers].clone();
        let any = conditions.iter().fold(Scalar::constant(0), |any, condition| {
            let condition = self.scalar(*condition);
            self.builder.bitwise(Bitwise::Or, Width::Pred, any, condition)
        });
        let (thread, own) = (self.thread(), self.special(SpecialRegister::ClusterCtaRank));
        let lane = self.mask(thread, LANES - 1);
        let rank = self.builder.select(Width::B32, any, lane, own);
        let address = self.indexed(barriers, slot, MBARRIER_BYTES);
        let (address, rank) =
            (self.builder.source(Width::B32, address), self.builder.source(Width::B32, rank));
        let address = self.builder.pure(Width::B32, |d| isa::Mapa {
            space: Some(StateSpace::SharedCluster),
            ty: ScalarType::U32,
            d,
            a: address,
            b: rank,
        });
        let is_first = self.is_first(LANES - self.program.header.sharing_blocks(), 0);
        let guard = self.builder.predicate(is_first);
        let address = self.builder.address(Width::B32, address);
        let arrival = isa::MbarrierArrive {
            expect_tx: false,
            no_complete: false,
            // The default is `.release.cta`, as in CUTLASS's `ClusterBarrier::arrive`. Only reads
            // of the released slot must precede the arrival, which publishes no writes. Threads
            // have waited for the reads of `wgmma`, and a release stays after the thread's own
            // loads. Formally, only cluster scope orders these loads for other blocks. It would add
            // a device-wide fence to every iteration, which halved the speed of dots.
            semantics: None,
            scope: None,
            space: Some(StateSpace::SharedCluster),
            ty: ScalarType::B64,
            d: Destination::Sink,
            address,
            count: None,
        };
        self.builder.emit_if(Some(guard), arrival);
    }

    /// Emits the copies that each block starts. If the condition holds, a block copies a part of
    /// the tile to all blocks. A part is some boxes, or a slice of the only box. Otherwise, the
    /// block copies all boxes to itself.
    pub(super) fn multicast_load(
        &mut self,
        condition: Scalar,
        [buffer, descriptor]: [Value; 2],
        [barriers, slot]: [Value; 2],
        boxes: &BoxLayout,
        coordinates: &[Value],
    ) {
        let blocks = self.program.header.sharing_blocks();
        // A part is a box, or a block's slice of the only box. The values are the axis of the
        // parts, their number, and their distance in elements and in bytes.
        let (along, count, step, bytes) = if boxes.count.is_multiple_of(blocks) {
            (0, boxes.count, boxes.row, boxes.bytes)
        } else {
            let along = boxes.order.len() - 1;
            let extent = self.tile(buffer).shape[boxes.order[along]];
            (along, blocks, extent / blocks, boxes.bytes / blocks)
        };
        let (elected, mbarrier) = (self.elected(), self.mbarrier(barriers, slot));
        let elected = Scalar::from(elected.register).plus(Width::Pred, u64::from(elected.negated));
        let both = self.builder.bitwise(Bitwise::And, Width::Pred, elected, condition);
        let single = condition.plus(Width::Pred, 1);
        let single = self.builder.bitwise(Bitwise::And, Width::Pred, elected, single);
        let (both, single) = (self.builder.predicate(both), self.builder.predicate(single));
        let rank = self.special(SpecialRegister::ClusterCtaRank);
        let own = count / blocks;
        let offset_of_rank = |lowering: &mut Self, each: u32| {
            lowering.builder.mul(Width::B32, rank, Scalar::constant((own * each).into()))
        };
        let (first_byte, first) = (offset_of_rank(self, bytes), offset_of_rank(self, step));
        let mask = Some(Source::from(i64::from((1_u32 << blocks) - 1)));
        for number in 0..own {
            let place = first_byte.plus(Width::B32, (number * bytes).into());
            let skipped = first.plus(Width::B32, (number * step).into());
            let part = self.tensor_part(buffer, boxes, place, (along, skipped), (descriptor, coordinates));
            self.builder.emit_if(Some(both), load_of_box(part, mbarrier, mask));
        }
        let apart = if condition == Scalar::TRUE { 0 } else { count };
        for number in 0..apart {
            let place = Scalar::constant((number * bytes).into());
            let skipped = Scalar::constant((number * step).into());
            let part = self.tensor_part(buffer, boxes, place, (along, skipped), (descriptor, coordinates));
            self.builder.emit_if(Some(single), load_of_box(part, mbarrier, None));
        }
    }
}
