//! Reports the accesses of a cluster to the watch of its launch.

use std::sync::{Arc, PoisonError};

use tilewright_sanitize::{Access, Conflict, MEMORY, Mode, Published};

use super::{AgentKnowledge, Order, Touch, Watch, WatchFinding};
use crate::context::{Context, ResolvedAddress};
use crate::memory::{Agent, Clock};

impl Context<'_> {
    /// Reports an access of a lane to the watch, before it writes.
    #[inline]
    pub fn watch(&mut self, place: ResolvedAddress, lane: usize, touch: Touch, data: Option<&[u8]>) {
        if let (Some(watch), ResolvedAddress::Global(_)) = (self.watch, place) {
            self.note(watch, self.agent, Some(lane as u32), touch, data);
        }
    }

    /// Reports an access of an asynchronous operation to the watch.
    #[inline]
    pub fn watch_copy(&mut self, agent: &Agent, touch: Touch, data: Option<&[u8]>) {
        if let Some(watch) = self.watch {
            self.note(watch, agent, None, touch, data);
        }
    }

    /// Reports an atomic access of a lane, and applies its orderings unless its scope is `.cta`. A
    /// read acquires the earlier releases at the address: at once with `acquires`, otherwise at the
    /// next fence. A write publishes the clock of the warp or, without `releases`, that of its last
    /// fence.
    #[inline]
    pub fn watch_atomic(&mut self, place: ResolvedAddress, lane: usize, touch: Touch, order: Order) {
        if let (Some(watch), ResolvedAddress::Global(_)) = (self.watch, place) {
            self.note_atomic(watch, lane, touch, order);
        }
    }

    #[cold]
    fn note(&self, watch: &Watch, agent: &Agent, lane: Option<u32>, touch: Touch, data: Option<&[u8]>) {
        let Touch { address, bytes, .. } = touch;
        if bytes == 0 {
            return;
        }
        let first = self.first_agent();
        let number = first + agent.index as u32;
        let found = |first: Option<Access>| WatchFinding {
            address,
            bytes: bytes as u32,
            is_write: touch.writes,
            site: self.instruction,
            agent: number,
            lane,
            first,
            count: 1,
        };
        let mut state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.unwritten {
            let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            if !memory.is_empty() {
                if touch.reads && !memory.is_initialized(address, bytes as u64) {
                    state.add(WatchFinding { is_write: false, ..found(None) });
                }
                if touch.writes {
                    memory.write(address, bytes as u64);
                }
            }
        }
        if !watch.races {
            return;
        }
        let access = Access {
            agent: number,
            program: (self.cluster * self.blocks.len() as u64 + self.rank as u64) as u32,
            step: agent.step(),
            phase: 0,
            site: self.instruction,
            mode: touch.mode,
            is_write: touch.writes,
        };
        let (agents, global, hint) = (self.agents as u32, self.global, *self.hint);
        let knowledge = AgentKnowledge { agent, first, agents, global, hint, data };
        let Some(memory) = &mut state.memory else { return };
        let record = memory.shadow.begin(access);
        // Unordered operations have no lanes, so their steps distinguish them in the shadow.
        let lane = agent.unordered_step().unwrap_or(0);
        if let Some(Conflict { first, .. }) = memory.shadow.touch(record, lane, (address, bytes), &knowledge)
        {
            state.add(found(Some(first)));
        }
    }

    /// Returns the launch index of the cluster's first agent.
    fn first_agent(&self) -> u32 {
        (self.cluster * self.agents as u64) as u32
    }

    #[cold]
    fn note_atomic(&mut self, watch: &Watch, lane: usize, touch: Touch, order: Order) {
        let is_wide = touch.mode == Mode::Device;
        let (first, address) = (self.first_agent(), touch.address);
        if watch.races && touch.reads && is_wide {
            let state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
            let published = state.memory.as_ref().map_or(&[][..], |memory| memory.releases.get(address));
            for published in published {
                let mut clock = Clock::new(self.agents);
                clock.import(first, &published.clock);
                if order.acquires {
                    self.agent.acquire(&clock);
                } else {
                    self.agent.observe(&clock);
                }
            }
        }
        self.note(watch, self.agent, Some(lane as u32), touch, None);
        if watch.races && touch.writes && is_wide {
            let step = self.agent.step();
            let clock =
                if order.releases { Some(self.agent.release()) } else { self.agent.publishes().cloned() };
            let agent = self.agent.index;
            let published = clock.map(|clock| {
                let step = if order.releases { step } else { clock.step_of(agent) };
                Arc::new(Published { agent: first + agent as u32, step, clock: clock.export(first) })
            });
            let mut state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(memory) = &mut state.memory else { return };
            match &published {
                Some(published) if order.keeps => memory.releases.add(address, published),
                published if !order.keeps => memory.releases.set(address, published.as_ref()),
                _ => {}
            }
        }
    }

    /// Reports a race if lanes of one store write different values to one address.
    pub fn watch_lanes(&mut self, stored: &[(usize, u64, Vec<u8>)]) {
        let Some(watch) = self.watch.filter(|watch| watch.races) else { return };
        for (at, (lane, address, data)) in stored.iter().enumerate() {
            let is_other = |(_, other, old): &&(usize, u64, Vec<u8>)| other == address && old != data;
            if stored[..at].iter().any(|other| is_other(&other)) {
                let number = self.first_agent() + self.agent.index as u32;
                let first = Access {
                    agent: number,
                    program: (self.cluster * self.blocks.len() as u64 + self.rank as u64) as u32,
                    step: self.agent.step(),
                    phase: 0,
                    site: self.instruction,
                    mode: Mode::Plain,
                    is_write: true,
                };
                let mut state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.add(WatchFinding {
                    address: *address,
                    bytes: data.len() as u32,
                    is_write: true,
                    site: self.instruction,
                    agent: number,
                    lane: Some(*lane as u32),
                    first: Some(first),
                    count: 1,
                });
                return;
            }
        }
    }
}
