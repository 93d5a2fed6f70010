//! The ops that have no results.

use crate::GpuOp;

/// Returns whether an op has no results.
pub(super) fn gives_nothing(op: &GpuOp) -> bool {
    match op {
        GpuOp::Store { .. }
        | GpuOp::AtomicStore { .. }
        | GpuOp::Dealloc {}
        | GpuOp::LocalStore {}
        | GpuOp::LocalHistogram {}
        | GpuOp::CopyAsync { .. }
        | GpuOp::CommitGroup {}
        | GpuOp::WaitGroup { .. }
        | GpuOp::MbarrierInit { .. }
        | GpuOp::MbarrierInvalidate {}
        | GpuOp::MbarrierExpect { .. }
        | GpuOp::MbarrierArriveTimes { .. }
        | GpuOp::MbarrierArrive {}
        | GpuOp::MbarrierArriveCopies {}
        | GpuOp::MbarrierTrackCopies {}
        | GpuOp::MbarrierWait {}
        | GpuOp::TensorLoad {}
        | GpuOp::TensorFill {}
        | GpuOp::TensorStore {}
        | GpuOp::TensorReduce { .. }
        | GpuOp::TensorStoreWait { .. }
        | GpuOp::FenceProxy {}
        | GpuOp::FenceGlobal {}
        | GpuOp::ClcTryCancel { .. }
        | GpuOp::MulticastLoads {}
        | GpuOp::TensorLoadTo { .. }
        | GpuOp::MbarrierArriveAt { .. }
        | GpuOp::ClusterArrive {}
        | GpuOp::ClusterWait {}
        | GpuOp::NamedBarrier { .. }
        | GpuOp::WarpSpecialize { .. }
        | GpuOp::Tcgen05Alloc { .. }
        | GpuOp::Tcgen05Dealloc { .. }
        | GpuOp::TmemStore {}
        | GpuOp::Tcgen05Mma { .. }
        | GpuOp::Tcgen05MmaScaled { .. }
        | GpuOp::Tcgen05Copy {}
        | GpuOp::Tcgen05Commit { .. }
        | GpuOp::Publish {}
        | GpuOp::Release {} => true,
        GpuOp::ConvertLayout {}
        | GpuOp::TensorBox {}
        | GpuOp::MakeTensorMap { .. }
        | GpuOp::Elementwise { .. }
        | GpuOp::Rescale {}
        | GpuOp::Load { .. }
        | GpuOp::AtomicRmw { .. }
        | GpuOp::AtomicCas { .. }
        | GpuOp::AtomicLoad { .. }
        | GpuOp::AtomicPoll { .. }
        | GpuOp::Reduce { .. }
        | GpuOp::Scan { .. }
        | GpuOp::ScanCarry { .. }
        | GpuOp::MmaSync { .. }
        | GpuOp::FmaDot { .. }
        | GpuOp::Alloc { .. }
        | GpuOp::Slot {}
        | GpuOp::View {}
        | GpuOp::LocalLoad { .. }
        | GpuOp::GatherBlocks { .. }
        | GpuOp::Wgmma { .. }
        | GpuOp::WgmmaInit {}
        | GpuOp::WgmmaWait { .. }
        | GpuOp::WgmmaWaitEarlier { .. }
        | GpuOp::TmemLoad {}
        | GpuOp::ClcLoadResult { .. }
        | GpuOp::Acquire {}
        | GpuOp::Take {} => false,
    }
}
