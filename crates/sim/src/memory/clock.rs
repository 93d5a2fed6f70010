//! Implements vector clocks, which order accesses by synchronization.
//!
//! An agent is a warp, or a channel of asynchronous operations of a block. Its synchronizations
//! divide its accesses into steps. The clock of an agent has the last step of each other agent that
//! happens before its next access:
//!
//! ```text
//! agent 0, step 1: write x; release            agent 1, clock [0, …]
//! agent 0, step 2: write y                     agent 1: acquire → clock [1, …]
//! ```
//!
//! Agent 1 now knows step 1, so its accesses are ordered after the write of x, but not after the
//! write of y. This is Lamport's happened-before with Mattern's vector clocks.

/// The steps of other agents before the next access of the owner, which *knows* them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Clock {
    /// The last known step of each agent.
    order: Vec<u32>,
    /// The last step of each agent whose writes are visible to the asynchronous proxy.
    fenced: Vec<u32>,
    /// The known steps of other clusters, by index in the launch. Empty unless the launch is
    /// watched for races.
    pub world: tilewright_sanitize::Clock,
}

impl Clock {
    /// Creates a clock of `agents` agents that knows no step.
    pub fn new(agents: usize) -> Self {
        Self { order: vec![0; agents], fenced: vec![0; agents], world: tilewright_sanitize::Clock::default() }
    }

    /// Adds the steps that another clock knows.
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

    /// Returns the clock for other clusters. `first` is the launch index of this cluster's first
    /// agent.
    pub fn export(&self, first: u32) -> tilewright_sanitize::Clock {
        let mut world = self.world.clone();
        for (number, &step) in (first..).zip(&self.order) {
            world.learn(number, step);
        }
        world
    }

    /// Adds the steps that a clock of another cluster knows.
    pub fn import(&mut self, first: u32, world: &tilewright_sanitize::Clock) {
        for (number, step) in (first..).zip(&mut self.order) {
            *step = (*step).max(world.step_of(number));
        }
        self.world.join(world);
    }

    /// Returns the last known step of an agent.
    pub fn step_of(&self, agent: usize) -> u32 {
        self.order[agent]
    }

    /// Records a known step of an agent.
    pub fn learn(&mut self, agent: usize, step: u32) {
        self.order[agent] = self.order[agent].max(step);
    }

    /// Makes all known writes visible to the asynchronous proxy.
    pub fn fence_proxies(&mut self) {
        for (fenced, known) in self.fenced.iter_mut().zip(&self.order) {
            *fenced = (*fenced).max(*known);
        }
    }

    /// Returns whether the owner knows a step.
    #[inline]
    pub fn knows(&self, agent: usize, step: u32) -> bool {
        self.order[agent] >= step
    }

    /// Returns whether the writes of a step are visible to the asynchronous proxy.
    #[inline]
    pub fn sees_fenced(&self, agent: usize, step: u32) -> bool {
        self.fenced[agent] >= step
    }
}

/// A warp or an asynchronous operation, as an agent of the race detector.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The index of the agent in its cluster.
    pub index: usize,
    /// The steps that the agent knows.
    pub clock: Clock,
    /// The clock at the last fence between threads, which relaxed writes publish.
    fenced: Option<Clock>,
    /// The clocks that relaxed reads have observed, which the next fence acquires.
    seen: Option<Clock>,
    unordered_step: Option<u32>,
    /// The number of lane synchronizations of a warp, plus 1. It is 0 for an asynchronous
    /// operation.
    pub lane_phase: u32,
}

impl Agent {
    /// Creates an agent at its first step, among `agents` agents.
    pub fn new(index: usize, agents: usize) -> Self {
        let mut agent = Self {
            index,
            clock: Clock::new(agents),
            fenced: None,
            seen: None,
            unordered_step: None,
            lane_phase: 1,
        };
        agent.clock.order[index] = 1;
        agent
    }

    #[inline]
    pub fn step(&self) -> u32 {
        self.unordered_step.unwrap_or(self.clock.order[self.index])
    }

    /// Returns the step of an operation that is unordered in its channel.
    pub fn unordered_step(&self) -> Option<u32> {
        self.unordered_step
    }

    /// Returns the clock for a synchronizing agent, and begins the next step, which it does not
    /// cover.
    pub fn release(&mut self) -> Clock {
        let clock = self.clock.clone();
        self.clock.order[self.index] += 1;
        clock
    }

    /// Acquires a clock that another agent released.
    pub fn acquire(&mut self, clock: &Clock) {
        self.clock.join(clock);
    }

    /// Fences threads: later relaxed writes publish all earlier accesses, and earlier relaxed reads
    /// order all later accesses.
    pub fn fence_threads(&mut self) {
        if let Some(seen) = self.seen.take() {
            self.acquire(&seen);
        }
        self.fenced = Some(self.release());
    }

    /// Returns the clock that a relaxed write publishes, after a fence.
    pub fn publishes(&self) -> Option<&Clock> {
        self.fenced.as_ref()
    }

    /// Records a clock that a relaxed read has observed.
    pub fn observe(&mut self, clock: &Clock) {
        match &mut self.seen {
            Some(seen) => seen.join(clock),
            None => self.seen = Some(clock.clone()),
        }
    }

    /// Makes the known writes visible to the asynchronous proxy.
    pub fn fence_proxies(&mut self) {
        self.clock.fence_proxies();
        self.clock.order[self.index] += 1;
    }

    /// Begins an asynchronous operation of this warp: step `step` of the channel with the agent
    /// `index`. It is ordered after everything that the warp has done. Until an agent acquires its
    /// clock, only later operations of the channel are ordered after it.
    pub fn fork(&mut self, index: usize, step: u32) -> Self {
        let mut clock = self.release();
        clock.order[index] = clock.order[index].max(step);
        Self { index, clock, fenced: None, seen: None, unordered_step: None, lane_phase: 0 }
    }

    /// Begins an operation that is unordered in its channel, and ordered only after those that this
    /// warp has waited for.
    pub fn fork_unordered(&mut self, index: usize, step: u32) -> Self {
        Self {
            index,
            clock: self.release(),
            fenced: None,
            seen: None,
            unordered_step: Some(step),
            lane_phase: 0,
        }
    }

    /// Returns the clock that an agent acquires when it waits for this operation.
    pub fn completed(mut self) -> Clock {
        let step = self.step();
        self.clock.learn(self.index, step);
        self.clock
    }
}
