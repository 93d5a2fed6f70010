//! Tracks the tensor maps that the launch has written to global memory.
//!
//! Tensor copies read maps through the tensor map proxy. The writer must release such a map by
//! `fence.proxy.tensormap` or `tensormap.cp_fenceproxy`, and the copying thread must acquire it by
//! `fence.proxy.tensormap`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::illegal;
use super::pointer::Pointer;
use crate::context::{Context, Execute, Flow, ResolvedAddress};
use crate::fault::Outcome;
use crate::registers::lanes_of;
use crate::watch::Watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgentStep {
    pub agent: u64,
    pub step: u32,
}

#[derive(Debug)]
struct DeviceTensorMap {
    maker: AgentStep,
    is_released: bool,
    /// The steps at which agents have acquired the map since the last write.
    acquired: Vec<AgentStep>,
}

/// The maps that a launch has written, by address.
#[derive(Default, Debug)]
pub(crate) struct DeviceTensorMaps {
    has_any: AtomicBool,
    made: Mutex<FxHashMap<u64, DeviceTensorMap>>,
}

impl DeviceTensorMaps {
    fn made(&self) -> MutexGuard<'_, FxHashMap<u64, DeviceTensorMap>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an agent has written a map.
    pub fn make(&self, address: u64, maker: AgentStep, is_released: bool) {
        self.made().insert(address, DeviceTensorMap { maker, is_released, acquired: Vec::new() });
        self.has_any.store(true, Ordering::Release);
    }

    fn release(&self, knows: impl Fn(AgentStep) -> bool) {
        for made in self.made().values_mut() {
            made.is_released |= knows(made.maker);
        }
    }

    fn acquire(&self, address: u64, who: AgentStep, knows: impl Fn(AgentStep) -> bool) {
        if let Some(made) = self.made().get_mut(&address)
            && made.is_released
            && knows(made.maker)
        {
            made.acquired.retain(|earlier| earlier.agent != who.agent);
            made.acquired.push(who);
        }
    }

    /// Checks that a copy may use the map at an address.
    ///
    /// # Errors
    /// If the launch has written the map, and no acquire of the map is ordered before the copy.
    pub fn check(&self, address: u64, knows: impl Fn(AgentStep) -> bool) -> Outcome {
        if !self.has_any.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.made().get(&address) {
            Some(made) if !made.acquired.iter().any(|&who| knows(who)) => {
                let missing = if made.is_released { "acquire" } else { "release" };
                illegal(format!(
                    "a tensor copy by the map at {address:#x} in global memory, which the launch has written: \
                     fence.proxy.tensormap::generic.{missing} is missing in between"
                ))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Context<'_> {
    pub fn own_step(&self) -> AgentStep {
        let agent = self.cluster * self.agents as u64 + self.agent.index as u64;
        AgentStep { agent, step: self.agent.step() }
    }

    /// Returns whether a step is ordered before the current step of the warp. Steps of other
    /// clusters count as ordered, unless the launch is watched for races.
    pub fn is_known(&self, AgentStep { agent, step }: AgentStep) -> bool {
        match agent.checked_sub(self.cluster * self.agents as u64).filter(|&own| own < self.agents as u64) {
            Some(own) => self.agent.clock.knows(own as usize, step),
            None => {
                !self.watch.is_some_and(Watch::looks_for_races)
                    || self.agent.clock.world.knows(agent as u32, step)
            }
        }
    }
}

/// `fence.proxy.tensormap`: acquires the map at an address, or releases all maps whose writes are
/// ordered before the fence.
pub(crate) struct MapFence {
    /// The map to acquire; `None` for a release.
    pub map: Option<Pointer>,
}

impl Execute for MapFence {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        // The fence orders memory like other fences.
        context.agent.fence_threads();
        let knows = |maker| context.is_known(maker);
        match self.map {
            None => context.maps.release(knows),
            Some(map) => {
                for lane in lanes_of(context.lanes) {
                    if let ResolvedAddress::Global(address) = map.place(context, lane) {
                        context.maps.acquire(address, context.own_step(), knows);
                    }
                }
            }
        }
        Ok(Flow::Next)
    }
}
