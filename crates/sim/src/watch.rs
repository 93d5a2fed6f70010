//! What a launch is watched for in global memory besides faults: accesses that race, and reads of memory that nobody has
//! written. After such a finding the launch goes on.
//!
//! The agents are those of the race detector of shared memory, warps and asynchronous operations, of all clusters of the launch:
//! the number of a cluster times the agents of one is that of its first. Lanes of a warp count as ordered, but for a store of
//! one instruction to one place.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::Scope;
use tilewright_sanitize::{Access, Mode, Releases, Rules, Shadow};

use crate::fault::Fault;
use crate::memory::{Agent, Global};

mod accesses;

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
