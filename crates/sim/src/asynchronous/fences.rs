//! Executes the fences between proxies, and the fence after the initialization of barriers.

use crate::context::{Context, Execute, Flow};
use crate::fault::Outcome;

/// `fence.proxy.async`: makes accesses of the generic proxy visible to the asynchronous proxy.
pub(crate) struct ProxyFence {
    /// True if the fence includes global memory.
    pub of_global: bool,
}

impl Execute for ProxyFence {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        context.agent.fence_proxies();
        if self.of_global
            && let Some(unfenced) = &mut context.block().asynchronous.unfenced_writes
        {
            unfenced.fence();
        }
        publish(context);
        Ok(Flow::Next)
    }
}

/// `fence.mbarrier_init.release.cluster`: makes the barriers of this warp visible to the
/// asynchronous proxy.
pub(crate) struct BarrierInitFence;

impl Execute for BarrierInitFence {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        publish(context);
        Ok(Flow::Next)
    }
}

fn publish(context: &mut Context<'_>) {
    let maker = (context.rank, context.warp);
    for block in context.blocks.iter_mut() {
        block.asynchronous.publish(maker);
    }
}
