//! Vector clocks: the order of accesses that barriers and other synchronization establish.
//!
//! An agent is a warp, or a channel of asynchronous operations of a block. The accesses of one
//! agent are ordered. Its synchronizations divide them into steps, which the agent counts. The
//! clock of an agent has one step for each other agent. Accesses up to this step happen before the
//! next access of the clock's owner. So an access happens before a later access of another agent if
//! the other agent's clock includes its step. This is Lamport's happened-before with Mattern's
//! vector clocks.

/// The steps of other agents that are ordered before the next access of the owner. The owner
/// *knows* these steps.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Clock {
    /// The last step of each agent that is ordered before later accesses.
    order: Vec<u32>,
    /// The last step of each agent whose writes a fence has made visible to the asynchronous proxy.
    fenced: Vec<u32>,
    /// The known steps of agents in other clusters, by their index in the launch. Empty unless the
    /// launch is watched for races.
    pub world: tilewright_sanitize::Clock,
}

impl Clock {
    /// Creates a clock of `agents` agents that knows no step.
    pub fn new(agents: usize) -> Self {
        Self { order: vec![0; agents], fenced: vec![0; agents], world: tilewright_sanitize::Clock::default() }
    }

    /// Adds the steps that another clock knows. The owner has synchronized with the agent of that
    /// clock.
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

    /// Returns the clock for other clusters. `first` is the index of this cluster's first agent in
    /// the launch.
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

    /// Records that a step of an agent is ordered before later accesses.
    pub fn learn(&mut self, agent: usize, step: u32) {
        self.order[agent] = self.order[agent].max(step);
    }

    /// Fences the generic and the asynchronous proxy: all writes that the clock knows become
    /// visible to the asynchronous proxy.
    pub fn fence_proxies(&mut self) {
        for (fenced, known) in self.fenced.iter_mut().zip(&self.order) {
            *fenced = (*fenced).max(*known);
        }
    }

    /// Returns whether a step of an agent is ordered before later accesses.
    #[inline]
    pub fn knows(&self, agent: usize, step: u32) -> bool {
        self.order[agent] >= step
    }

    /// Returns whether writes of a step of an agent are visible to the asynchronous proxy.
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
    /// The agent's clock at its last fence between threads, which its relaxed writes publish.
    fenced: Option<Clock>,
    /// The clocks that the agent's relaxed reads have observed; its next fence acquires them.
    seen: Option<Clock>,
    /// The step of an operation that is unordered with the other operations of its channel.
    unordered_step: Option<u32>,
    /// How often a warp has synchronized its lanes, plus 1; 0 for an asynchronous operation.
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

    /// Returns the current step.
    #[inline]
    pub fn step(&self) -> u32 {
        self.unordered_step.unwrap_or(self.clock.order[self.index])
    }

    /// Returns the step of an operation that is unordered with the other operations of its channel.
    pub fn unordered_step(&self) -> Option<u32> {
        self.unordered_step
    }

    /// Returns the clock that a synchronizing agent acquires, and begins the next step. So the
    /// clock does not cover later accesses of this agent.
    pub fn release(&mut self) -> Clock {
        let clock = self.clock.clone();
        self.clock.order[self.index] += 1;
        clock
    }

    /// Acquires a clock that another agent released.
    pub fn acquire(&mut self, clock: &Clock) {
        self.clock.join(clock);
    }

    /// Fences threads. Orders all accesses before the fence before later relaxed writes, and
    /// earlier relaxed reads before all accesses after the fence.
    pub fn fence_threads(&mut self) {
        if let Some(seen) = self.seen.take() {
            self.acquire(&seen);
        }
        self.fenced = Some(self.release());
    }

    /// Returns the clock that a relaxed write publishes, if the agent has executed a fence.
    pub fn publishes(&self) -> Option<&Clock> {
        self.fenced.as_ref()
    }

    /// Records a published clock that a relaxed read has observed.
    pub fn observe(&mut self, clock: &Clock) {
        match &mut self.seen {
            Some(seen) => seen.join(clock),
            None => self.seen = Some(clock.clone()),
        }
    }

    /// Makes every write that is ordered before this point visible to the asynchronous proxy, but
    /// not later writes of the agent.
    pub fn fence_proxies(&mut self) {
        self.clock.fence_proxies();
        self.clock.order[self.index] += 1;
    }

    /// Begins an asynchronous operation on behalf of this agent, which is a warp. The channel of
    /// the operation is the agent with the index `index`, and the operation is step `step` of that
    /// agent. The operation is ordered after everything that the warp has done. Until an agent
    /// acquires the operation's clock, only later operations of the channel are ordered after the
    /// operation.
    pub fn fork(&mut self, index: usize, step: u32) -> Self {
        let mut clock = self.release();
        clock.order[index] = clock.order[index].max(step);
        Self { index, clock, fenced: None, seen: None, unordered_step: None, lane_phase: 0 }
    }

    /// Begins an operation as [`Self::fork`] does, but leaves it unordered with the other
    /// operations of its channel. It is only ordered after those that this warp has waited for.
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
