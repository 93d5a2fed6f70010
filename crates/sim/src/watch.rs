//! Finds races and uninitialized reads in global memory. The launch continues.
//!
//! The agents are the warps and asynchronous operations of all clusters, with the index `cluster *
//! agents_per_cluster + index_in_cluster`. Lanes of a warp count as ordered, unless lanes of one
//! store write different values to one address.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_ptx::isa::Scope;
use tilewright_sanitize::{Access, Mode, Releases, Rules, Shadow};

use crate::fault::Fault;
use crate::memory::{Agent, Global};

mod accesses;

/// The checks and the findings of a watched launch.
#[derive(Debug)]
pub struct Watch {
    races: bool,
    unwritten: bool,
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    memory: Option<WatchedMemory>,
    found: Vec<WatchFinding>,
    /// The index in `found` of each distinct finding. The key is the instruction, the earlier
    /// instruction or `u32::MAX`, and whether both have the same agent.
    known: FxHashMap<(u32, u32, bool), usize>,
    findings: Vec<(Fault, u64)>,
}

struct WatchedMemory {
    shadow: Shadow,
    releases: Releases,
}

impl std::fmt::Debug for WatchedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WatchedMemory")
    }
}

/// A finding with unresolved sites and agents.
#[derive(Clone, Debug)]
pub(crate) struct WatchFinding {
    pub address: u64,
    pub bytes: u32,
    pub is_write: bool,
    /// The index of the instruction in the program.
    pub site: u32,
    pub agent: u32,
    pub lane: Option<u32>,
    /// The earlier access of a race, or `None` for an uninitialized read.
    pub first: Option<Access>,
    pub count: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub address: u64,
    pub bytes: usize,
    pub reads: bool,
    pub writes: bool,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub acquires: bool,
    pub releases: bool,
    /// True for a read-modify-write, which keeps earlier releases at the address in effect.
    pub keeps: bool,
}

/// Returns the mode of an access. Atomics of `.cta` scope are atomic in the block, others on the
/// device.
pub(crate) fn mode(is_atomic: bool, scope: Option<Scope>) -> Mode {
    match (is_atomic, scope) {
        (false, _) => Mode::Plain,
        (true, Some(Scope::Cta)) => Mode::Block,
        (true, _) => Mode::Device,
    }
}

/// The facts that the race rules query: the clock of an agent, and the bytes that it writes.
struct AgentKnowledge<'r, 'a> {
    agent: &'r Agent,
    /// The launch index of the cluster's first agent, and the number of its agents.
    first: u32,
    agents: u32,
    global: &'r Global<'a>,
    hint: usize,
    data: Option<&'r [u8]>,
}

impl Rules for AgentKnowledge<'_, '_> {
    fn knows(&self, agent: u32, step: u32) -> bool {
        match agent.checked_sub(self.first).filter(|&own| own < self.agents) {
            Some(own) => self.agent.clock.knows(own as usize, step),
            None => self.agent.clock.world.knows(agent, step),
        }
    }

    fn are_ordered(&self, first: &Access, _: &Access) -> bool {
        self.agent.unordered_step().is_none() || self.agent.clock.knows(self.agent.index, first.step)
    }

    fn writes_same(&self, _: &Access, _: u32, _: u32, address: u64) -> bool {
        let Some(data) = self.data else { return false };
        let mut old = vec![0; data.len()];
        let mut hint = self.hint;
        self.global.read(&mut hint, address, &mut old).is_ok() && old == data
    }
}

impl Watch {
    /// Creates a watch for races, for reads of uninitialized memory, or for both.
    pub fn new(races: bool, unwritten: bool) -> Self {
        Self { races, unwritten, state: Mutex::default() }
    }

    pub(crate) fn looks_for_races(&self) -> bool {
        self.races
    }

    /// Returns whether the watch looks for reads of uninitialized memory.
    pub(crate) fn looks_for_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Begins a launch whose smallest access has `unit` bytes.
    pub(crate) fn begin(&self, unit: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.memory = Some(WatchedMemory { shadow: Shadow::new(unit), releases: Releases::default() });
    }

    /// Returns each distinct finding as a fault, with the number of its occurrences.
    pub fn into_findings(self) -> Vec<(Fault, u64)> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).findings
    }

    pub(crate) fn end(&self, resolve: impl Fn(&WatchFinding) -> Fault) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::mem::take(&mut state.found);
        state.findings.extend(found.iter().map(|found| (resolve(found), found.count)));
        state.known.clear();
        state.memory = None;
    }
}

impl WatchState {
    fn add(&mut self, found: WatchFinding) {
        let other = found.first.map_or((u32::MAX, false), |first| (first.site, first.agent == found.agent));
        let index = self.found.len();
        let known = *self.known.entry((found.site, other.0, other.1)).or_insert(index);
        match self.found.get_mut(known) {
            Some(known) => known.count += 1,
            None => self.found.push(found),
        }
    }
}
