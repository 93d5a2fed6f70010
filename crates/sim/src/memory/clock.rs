//! Vector clocks: which accesses are ordered by barriers and other synchronisation.
//!
//! An agent is whatever accesses memory in an order of its own: a warp, or the asynchronous copies of a block. Each agent
//! counts its own steps between synchronisations; its clock says up to which step it knows each other agent's accesses
//! to be before its own. An access is ordered before another one if the other's agent knows it by then. (Lamport's
//! happened-before with Mattern's vector clocks.)

/// What an agent knows of the others.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Clock {
    /// Per agent, the last of its steps that is ordered before what comes.
    order: Vec<u32>,
    /// Per agent, the last of its steps whose writes a fence has made visible to the asynchronous proxy.
    fenced: Vec<u32>,
    /// Of the agents of other clusters, the same, by their numbers in the launch. Empty unless the launch is watched.
    pub world: tilewright_sanitize::Clock,
}

impl Clock {
    /// A clock of so many agents that knows nothing.
    pub fn new(agents: usize) -> Self {
        Self { order: vec![0; agents], fenced: vec![0; agents], world: tilewright_sanitize::Clock::default() }
    }

    /// Learns what another clock knows: synchronisation with whoever had that clock.
    pub fn join(&mut self, other: &Self) {
        for (mine, theirs) in self.order.iter_mut().zip(&other.order) {
            *mine = (*mine).max(*theirs);
        }
        for (mine, theirs) in self.fenced.iter_mut().zip(&other.fenced) {
            *mine = (*mine).max(*theirs);
        }
        if !other.world.is_empty() {
            self.world.join(&other.world);
        }
    }

    /// What others of the launch learn of it; `first` is the number of the first agent of this cluster.
    pub fn export(&self, first: u32) -> tilewright_sanitize::Clock {
        let mut world = self.world.clone();
        for (number, &step) in (first..).zip(&self.order) {
            world.learn(number, step);
        }
        world
    }

    /// Learns what somebody of the launch knows.
    pub fn import(&mut self, first: u32, world: &tilewright_sanitize::Clock) {
        for (number, step) in (first..).zip(&mut self.order) {
            *step = (*step).max(world.step_of(number));
        }
        self.world.join(world);
    }

    /// The last step of an agent that is known.
    pub fn step_of(&self, agent: usize) -> u32 {
        self.order[agent]
    }

    /// Learns that an agent has done this step.
    pub fn learn(&mut self, agent: usize, step: u32) {
        self.order[agent] = self.order[agent].max(step);
    }

    /// A fence between the generic and the asynchronous proxy: all writes known by now are visible to both.
    pub fn fence_proxies(&mut self) {
        for (fenced, known) in self.fenced.iter_mut().zip(&self.order) {
            *fenced = (*fenced).max(*known);
        }
    }

    /// Whether that step of an agent is ordered before what comes.
    #[inline]
    pub fn knows(&self, agent: usize, step: u32) -> bool {
        self.order[agent] >= step
    }

    /// Whether writes of that step of an agent are visible to the asynchronous proxy.
    #[inline]
    pub fn sees_fenced(&self, agent: usize, step: u32) -> bool {
        self.fenced[agent] >= step
    }
}

/// A warp, or an asynchronous operation, as the race detector sees it.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its number among the agents of its cluster.
    pub index: usize,
    /// What it knows.
    pub clock: Clock,
    /// What it knew at its last fence between threads: what its relaxed writes since then publish.
    fenced: Option<Clock>,
    /// What its relaxed reads have seen published, which its next fence acquires.
    seen: Option<Clock>,
    /// Of an operation that nothing orders with the others of its channel, its step there.
    alone: Option<u32>,
    /// How often a warp has synchronised its lanes; from 1.
    pub lane_phase: u32,
}

impl Agent {
    /// An agent at its first step, among so many.
    pub fn new(index: usize, agents: usize) -> Self {
        let mut agent =
            Self { index, clock: Clock::new(agents), fenced: None, seen: None, alone: None, lane_phase: 1 };
        agent.clock.order[index] = 1;
        agent
    }

    /// The step at which it is.
    #[inline]
    pub fn step(&self) -> u32 {
        self.alone.unwrap_or(self.clock.order[self.index])
    }

    /// Of an operation that may be done before and after others of its channel, its step there.
    pub fn alone(&self) -> Option<u32> {
        self.alone
    }

    /// What somebody learns who synchronises with this point. Later accesses of the agent are not part of it.
    pub fn release(&mut self) -> Clock {
        let clock = self.clock.clone();
        self.clock.order[self.index] += 1;
        clock
    }

    /// Synchronises with a point that somebody released.
    pub fn acquire(&mut self, clock: &Clock) {
        self.clock.join(clock);
    }

    /// A fence between threads: it orders what is before it with relaxed writes after it, and relaxed reads before it with
    /// what is after it.
    pub fn fence_threads(&mut self) {
        if let Some(seen) = self.seen.take() {
            self.acquire(&seen);
        }
        self.fenced = Some(self.release());
    }

    /// What a relaxed write publishes.
    pub fn publishes(&self) -> Option<&Clock> {
        self.fenced.as_ref()
    }

    /// A relaxed read sees what somebody published.
    pub fn observe(&mut self, clock: &Clock) {
        match &mut self.seen {
            Some(seen) => seen.join(clock),
            None => self.seen = Some(clock.clone()),
        }
    }

    /// Makes every write that is ordered before this point visible to the asynchronous proxy; the accesses of the agent
    /// that follow are not.
    pub fn fence_proxies(&mut self) {
        self.clock.fence_proxies();
        self.clock.order[self.index] += 1;
    }

    /// An asynchronous operation that begins here, as step `step` of the agent `index`: it is ordered after what this
    /// agent has done, and nothing that follows is ordered after it until somebody acquires its clock.
    pub fn fork(&mut self, index: usize, step: u32) -> Self {
        let mut clock = self.release();
        clock.order[index] = clock.order[index].max(step);
        Self { index, clock, fenced: None, seen: None, alone: None, lane_phase: 0 }
    }

    /// The same of an operation that nothing orders with others of the agent `index` but what this agent has waited for.
    pub fn fork_alone(&mut self, index: usize, step: u32) -> Self {
        Self { index, clock: self.release(), fenced: None, seen: None, alone: Some(step), lane_phase: 0 }
    }

    /// What somebody learns who waits for the operation that this agent is.
    pub fn completed(mut self) -> Clock {
        let step = self.step();
        self.clock.learn(self.index, step);
        self.clock
    }
}
