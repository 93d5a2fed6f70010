//! Decodes barriers of the block and of the cluster, and fences.

use std::sync::atomic::{Ordering, fence};

use tilewright_ptx::isa::{self, ScalarType};

use super::{Action, Barrier, BarrierKind, Class, Decoded, Decoder, Gather};
use crate::context::{Context, Flow};

impl Decoder<'_> {
    fn barrier(
        &mut self,
        number: isa::Source,
        threads: Option<isa::Source>,
        aligned: bool,
        kind: BarrierKind,
    ) -> Decoded {
        self.class = Class::Barrier;
        let number = self.source(number, ScalarType::U32)?;
        let threads = threads.map(|threads| self.source(threads, ScalarType::U32)).transpose()?;
        if aligned {
            self.gather = Gather::Warp;
        }
        Ok(Action::Barrier(Barrier { number, threads, aligned, kind }))
    }

    pub(super) fn decode_barrier_sync(&mut self, i: &isa::BarrierSync) -> Decoded {
        self.barrier(i.barrier, i.threads, i.aligned, BarrierKind::Wait)
    }

    pub(super) fn decode_barrier_arrive(&mut self, i: &isa::BarrierArrive) -> Decoded {
        self.barrier(i.barrier, Some(i.threads), i.aligned, BarrierKind::Arrive)
    }

    pub(super) fn decode_barrier_reduce(&mut self, i: &isa::BarrierReduce) -> Decoded {
        let ((predicate, negated), destination) = (self.predicate(i.c), self.register(i.d));
        let operation = i.operation;
        let kind = BarrierKind::Reduce { operation, predicate, negated: negated == 1, destination };
        self.barrier(i.barrier, i.threads, i.aligned, kind)
    }

    pub(super) fn decode_cluster_arrive(&mut self, i: &isa::BarrierClusterArrive) -> Action {
        self.class = Class::Barrier;
        if i.aligned {
            self.gather = Gather::Warp;
        }
        Action::ClusterArrive
    }

    pub(super) fn decode_cluster_wait(&mut self, i: &isa::BarrierClusterWait) -> Action {
        self.class = Class::Barrier;
        if i.aligned {
            self.gather = Gather::Warp;
        }
        Action::ClusterWait
    }

    /// Decodes a fence. The step also fences the host, which orders accesses to global memory.
    pub(super) fn fence_threads(&mut self) -> Action {
        self.class = Class::Fence;
        Action::Execute(Box::new(|context: &mut Context<'_>| {
            fence(Ordering::SeqCst);
            context.agent.fence_threads();
            Ok(Flow::Next)
        }))
    }
}
