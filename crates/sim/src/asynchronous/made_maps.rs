//! The tensor maps in global memory that a launch has made itself: whoever copies by one has to see its content through the
//! tensor map proxy, which takes a release of the map by who wrote it, and an acquire of its address behind that, by
//! `fence.proxy.tensormap`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::illegal;
use super::pointer::Pointer;
use crate::context::{Context, Execute, Flow, Place};
use crate::fault::Outcome;
use crate::registers::lanes_of;

/// A step of an agent, by its number in the launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgentStep {
    pub agent: u64,
    pub step: u32,
}

/// What was made at an address.
#[derive(Debug)]
struct Made {
    maker: AgentStep,
    is_released: bool,
    /// Who has acquired it since.
    acquired: Vec<AgentStep>,
}

/// The maps that a launch has made, by their addresses.
#[derive(Default, Debug)]
pub(crate) struct MadeMaps {
    has_any: AtomicBool,
    made: Mutex<FxHashMap<u64, Made>>,
}

impl MadeMaps {
    fn made(&self) -> MutexGuard<'_, FxHashMap<u64, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has written a map, with or without a release.
    pub fn make(&self, address: u64, maker: AgentStep, is_released: bool) {
        self.made().insert(address, Made { maker, is_released, acquired: Vec::new() });
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

    /// Somebody copies by the map at an address.
    ///
    /// # Errors
    /// If the launch has made it, and nobody has acquired it of whom the copying one knows.
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
    /// The warp at its present step.
    pub fn own_step(&self) -> AgentStep {
        let agent = self.cluster * self.agents as u64 + self.agent.index as u64;
        AgentStep { agent, step: self.agent.step() }
    }

    /// Whether that step is ordered before what the warp does now. Of other clusters that is known only if the launch is
    /// watched, and taken to be so if not.
    pub fn is_known(&self, AgentStep { agent, step }: AgentStep) -> bool {
        match agent.checked_sub(self.cluster * self.agents as u64).filter(|&own| own < self.agents as u64) {
            Some(own) => self.agent.clock.knows(own as usize, step),
            None => self.watch.is_none() || self.agent.clock.world.knows(agent as u32, step),
        }
    }
}

/// `fence.proxy.tensormap`: an acquire of the map at an address, or a release of all.
pub(crate) struct MapFence {
    /// What is acquired.
    pub map: Option<Pointer>,
}

impl Execute for MapFence {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        // It orders memory as other fences do, besides.
        context.agent.fence_threads();
        let knows = |maker| context.is_known(maker);
        match self.map {
            None => context.maps.release(knows),
            Some(map) => {
                for lane in lanes_of(context.lanes) {
                    if let Place::Global(address) = map.place(context, lane) {
                        context.maps.acquire(address, context.own_step(), knows);
                    }
                }
            }
        }
        Ok(Flow::Next)
    }
}
