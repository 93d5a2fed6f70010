//! What a launch is watched for in global memory besides faults: accesses that race, and reads of memory that nobody has
//! written. After such a finding the launch goes on.
//!
//! The agents are those of the race detector of shared memory, warps and asynchronous operations, of all clusters of the launch:
//! the number of a cluster times the agents of one is that of its first. Lanes of a warp count as ordered, but for a store of
//! one instruction to one place.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::Scope;
use tilewright_sanitize::{Access, Conflict, MEMORY, Mode, Published, Releases, Rules, Shadow};

use crate::context::{Context, Place};
use crate::fault::Fault;
use crate::memory::{Agent, Global};

/// What a launch is watched for, and what was found.
#[derive(Debug)]
pub struct Watch {
    races: bool,
    unwritten: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    memory: Option<Memory>,
    found: Vec<Found>,
    /// The place in `found` of each that was found before: the instruction, the other one, whether that is of the same block.
    known: FxHashMap<(u32, u32, bool), usize>,
    findings: Vec<(Fault, u64)>,
}

struct Memory {
    shadow: Shadow,
    releases: Releases,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// A finding, by numbers.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub address: u64,
    pub bytes: u32,
    pub is_write: bool,
    /// The instruction.
    pub site: u32,
    /// The agent, among those of the launch.
    pub agent: u32,
    pub lane: Option<u32>,
    /// The access that it races with; none if it reads what nobody has written.
    pub first: Option<Access>,
    pub count: u64,
}

/// How an instruction accesses global memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub address: u64,
    pub bytes: usize,
    pub reads: bool,
    pub writes: bool,
    pub mode: Mode,
}

/// How an atomic instruction orders others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub acquires: bool,
    pub releases: bool,
    /// Whether what was released there before stays released.
    pub keeps: bool,
}

/// The mode of an atomic access with a scope.
pub(crate) fn mode(is_atomic: bool, scope: Option<Scope>) -> Mode {
    match (is_atomic, scope) {
        (false, _) => Mode::Plain,
        (true, Some(Scope::Cta)) => Mode::Block,
        (true, _) => Mode::Device,
    }
}

/// Who knows what: the clock of an agent, and what is written.
struct Knowledge<'r, 'a> {
    agent: &'r Agent,
    /// The number of the first agent of its cluster, and how many that has.
    first: u32,
    agents: u32,
    global: &'r Global<'a>,
    hint: usize,
    data: Option<&'r [u8]>,
}

impl Rules for Knowledge<'_, '_> {
    fn knows(&self, agent: u32, step: u32) -> bool {
        match agent.checked_sub(self.first).filter(|&own| own < self.agents) {
            Some(own) => self.agent.clock.knows(own as usize, step),
            None => self.agent.clock.world.knows(agent, step),
        }
    }

    fn are_ordered(&self, first: &Access, _: &Access) -> bool {
        self.agent.alone().is_none() || self.agent.clock.knows(self.agent.index, first.step)
    }

    fn writes_same(&self, _: &Access, _: u32, _: u32, address: u64) -> bool {
        let Some(data) = self.data else { return false };
        let mut old = vec![0; data.len()];
        let mut hint = self.hint;
        self.global.read(&mut hint, address, &mut old).is_ok() && old == data
    }
}

impl Watch {
    /// For races, and for reads of memory that nobody has written.
    pub fn new(races: bool, unwritten: bool) -> Self {
        Self { races, unwritten, state: Mutex::default() }
    }

    /// Whether it looks for races.
    pub(crate) fn looks_for_races(&self) -> bool {
        self.races
    }

    /// Whether it looks for reads of what nobody has written.
    pub(crate) fn looks_for_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Begins a launch in which nothing accesses less than so many bytes.
    pub(crate) fn begin(&self, unit: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.memory = Some(Memory { shadow: Shadow::new(unit), releases: Releases::default() });
    }

    /// What was found, each as a fault that has not ended the launch, and how often it was found.
    pub fn into_findings(self) -> Vec<(Fault, u64)> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).findings
    }

    /// Ends a launch: what was found becomes findings.
    pub(crate) fn end(&self, resolve: impl Fn(&Found) -> Fault) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::mem::take(&mut state.found);
        state.findings.extend(found.iter().map(|found| (resolve(found), found.count)));
        state.known.clear();
        state.memory = None;
    }
}

impl State {
    fn add(&mut self, found: Found) {
        let other = found.first.map_or((u32::MAX, false), |first| (first.site, first.agent == found.agent));
        let index = self.found.len();
        let known = *self.known.entry((found.site, other.0, other.1)).or_insert(index);
        match self.found.get_mut(known) {
            Some(known) => known.count += 1,
            None => self.found.push(found),
        }
    }
}

impl Context<'_> {
    /// Watches an access of a lane to global memory, before it writes.
    #[inline]
    pub fn watch(&mut self, place: Place, lane: usize, touch: Touch, data: Option<&[u8]>) {
        if let (Some(watch), Place::Global(_)) = (self.watch, place) {
            self.note(watch, self.agent, Some(lane as u32), touch, data);
        }
    }

    /// Watches an access of an asynchronous operation.
    #[inline]
    pub fn watch_copy(&mut self, agent: &Agent, touch: Touch, data: Option<&[u8]>) {
        if let Some(watch) = self.watch {
            self.note(watch, agent, None, touch, data);
        }
    }

    /// Watches an atomic access, after it has happened.
    #[inline]
    pub fn watch_atomic(&mut self, place: Place, lane: usize, touch: Touch, order: Order) {
        if let (Some(watch), Place::Global(_)) = (self.watch, place) {
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
        let found = |first: Option<Access>| Found {
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
                if touch.reads && !memory.is_written(address, bytes as u64) {
                    state.add(Found { is_write: false, ..found(None) });
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
        let knowledge = Knowledge { agent, first, agents, global, hint, data };
        let Some(memory) = &mut state.memory else { return };
        let record = memory.shadow.begin(access);
        // Operations of a channel that nothing orders are told apart as lanes are.
        let lane = agent.alone().unwrap_or(0);
        if let Some(Conflict { first, .. }) = memory.shadow.touch(record, lane, (address, bytes), &knowledge)
        {
            state.add(found(Some(first)));
        }
    }

    /// The number of the first agent of the cluster among those of the launch.
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
                let mut clock = crate::memory::Clock::new(self.agents);
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

    /// Watches a store of several lanes to one place, which leaves the value of either.
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
                state.add(Found {
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
