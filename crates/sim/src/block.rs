//! Schedules the warps of a cluster of blocks in turns until all have exited.
//! A cluster runs on one host thread. A warp runs until it waits, or for [`TURN`] steps. If no warp
//! executes a step in a round, the cluster cannot continue. If lanes then wait at an `.aligned`
//! instruction for their own warp, the fault is a divergent barrier. Otherwise, it is a deadlock
//! with the position of each group.
//!
//! A *group* is the lanes of a warp at the same step. A *site* is the index of the PTX instruction
//! of a step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tilewright_ptx::isa::BarrierReduction;

use crate::asynchronous::device_tensor_maps::DeviceTensorMaps;
use crate::barrier::{BLOCK_BARRIERS, BlockBarrier};
use crate::call;
use crate::cluster_launches::ClusterLaunches;
use crate::context::{BlockMemory, Context, Flow};
use crate::counters::StepCounters;
use crate::decode::{Action, Barrier, BarrierKind, Gather, Program, Step};
use crate::events::{Detail, EventKind, EventLog};
use crate::fault::{BarrierWait, Cause, FaultKind, OfLane, Outcome, Stop, WaitingGroup};
use crate::memory::Global;
use crate::registers::{LANES, Lanes, Slot, lanes_of};
use crate::warp::{Group, Warp};
use crate::watch::Watch;

/// The steps of a warp before the next warp runs.
const TURN: u32 = 4096;

/// The state that all clusters of a launch share.
pub(crate) struct Machine<'a> {
    pub program: &'a Program,
    pub global: &'a Global<'a>,
    /// The tensor maps that the kernel has written to global memory.
    pub maps: &'a DeviceTensorMaps,
    /// The clusters of the grid that have not begun.
    pub launches: &'a ClusterLaunches,
    /// Observes accesses to global memory.
    pub watch: Option<&'a Watch>,
    pub parameters: &'a [u8],
    /// See [`Launch::tracks_loads`](crate::Launch::tracks_loads).
    pub tracks_loads: bool,
    /// True when the caller has cancelled the launch.
    pub interrupt: Option<&'a AtomicBool>,
    /// Clusters from this index on have to stop, because another cluster has a fault.
    pub end: &'a AtomicU64,
}

/// The state of a running cluster.
pub(crate) struct Cluster<'a> {
    pub machine: &'a Machine<'a>,
    /// The linear index of the cluster in the grid.
    pub number: u64,
    pub blocks: Vec<BlockMemory>,
    pub barriers: Vec<[BlockBarrier; BLOCK_BARRIERS]>,
    pub meeting: BlockBarrier,
    /// The warps of all blocks, by rank.
    pub warps: Vec<Warp>,
    pub warps_per_block: usize,
    pub agents: usize,
    /// The counters of the host thread.
    pub counters: Vec<StepCounters>,
    pub printed: String,
    /// The events, if the caller requested them.
    pub events: Option<EventLog>,
}

/// A fault, the warp in the cluster, and the site.
pub(crate) struct Stopped {
    pub stop: Box<Stop>,
    pub warp: usize,
    pub site: Option<u32>,
}

impl Cluster<'_> {
    /// Runs at most `rounds` rounds. Returns whether all warps have exited. Without progress, the
    /// fault is a divergent barrier or a deadlock.
    pub fn run(&mut self, rounds: u64) -> Result<bool, Stopped> {
        for _ in 0..rounds {
            let (mut is_running, mut has_progressed) = (false, false);
            for warp in 0..self.warps.len() {
                if self.warps[warp].groups.is_empty() {
                    continue;
                }
                is_running = true;
                has_progressed |= self.turn(warp)?;
                if self.is_cancelled() {
                    let stop = Cause::Cancelled(self.waiting()).into();
                    return Err(Stopped { stop, warp, site: None });
                }
            }
            if !is_running {
                return Ok(true);
            }
            if !has_progressed {
                return Err(self.deadlock());
            }
        }
        Ok(false)
    }

    fn is_cancelled(&self) -> bool {
        let machine = self.machine;
        self.number >= machine.end.load(Ordering::Relaxed)
            || machine.interrupt.is_some_and(|interrupt| interrupt.load(Ordering::Relaxed))
    }

    /// Returns the position of each group of lanes.
    pub fn waiting(&self) -> Vec<WaitingGroup> {
        let of_warp = |(index, warp): (usize, &Warp)| {
            let site = |step: u32| self.machine.program.steps[step as usize].site;
            let barrier = self.barrier_of(warp);
            let place = |group: &Group| (index, group.lanes, site(group.step), barrier);
            warp.groups.iter().map(place).collect::<Vec<_>>()
        };
        self.warps.iter().enumerate().flat_map(of_warp).collect()
    }

    /// Returns the `mbarrier` for which a warp waits.
    fn barrier_of(&self, warp: &Warp) -> Option<BarrierWait> {
        let ((rank, offset), phase) = self.blocks[warp.rank].asynchronous.waits_for(warp.index)?;
        let (missing, bytes, needed) = self.blocks[rank].asynchronous.missing(offset)?;
        let (block, offset) = (rank as u32, offset as u32);
        Some(BarrierWait { block, offset, phase, arrivals: (missing, needed), bytes })
    }

    /// Returns the fault of a cluster without progress.
    fn deadlock(&self) -> Stopped {
        for (index, warp) in self.warps.iter().enumerate() {
            for group in &warp.groups {
                let step = &self.machine.program.steps[group.step as usize];
                if group.arrived.is_none() && step.gather == Gather::Warp && group.lanes != warp.alive {
                    let kind = FaultKind::DivergentBarrier {
                        present: group.lanes,
                        missing: warp.existing & !group.lanes,
                    };
                    return Stopped { stop: kind.into(), warp: index, site: Some(step.site) };
                }
            }
        }
        let waiting = self.waiting();
        let (warp, _, site, _) = waiting[0];
        Stopped { stop: Cause::Deadlock(waiting).into(), warp, site: Some(site) }
    }

    /// Runs a warp for a turn. Returns whether it executed a step.
    fn turn(&mut self, warp: usize) -> Result<bool, Stopped> {
        for group in &mut self.warps[warp].groups {
            group.is_waiting = false;
        }
        let mut has_progressed = false;
        for _ in 0..TURN {
            let Some(group) = self.warps[warp].next() else { break };
            let here = self.warps[warp].groups[group].step;
            match self.step(warp, group) {
                Ok(progressed) => has_progressed |= progressed,
                Err(stop) => {
                    let site = Some(self.machine.program.steps[here as usize].site);
                    return Err(Stopped { stop, warp, site });
                }
            }
        }
        Ok(has_progressed)
    }

    /// Executes the next step of a group, unless it has to wait. Returns whether a lane has moved
    /// or arrived at a barrier.
    #[inline]
    fn step(&mut self, index: usize, group_index: usize) -> Outcome<bool> {
        let warp = &mut self.warps[index];
        let group = warp.groups[group_index];
        let step = &self.machine.program.steps[group.step as usize];
        let mut lanes = group.lanes;
        watch_guard(warp, step, lanes)?;
        if let Some((predicate, holds)) = step.guard {
            let mask = warp.registers.mask(predicate);
            lanes &= if holds { mask } else { !mask };
            if lanes == 0 {
                warp.send(group_index, group.lanes, group.step + 1);
                return Ok(true);
            }
        }
        let mut absent = 0;
        if step.gather != Gather::Any && group.arrived.is_none() {
            let present = gathered(warp, step, lanes)?;
            if present == 0 {
                warp.hold(group_index, lanes);
                return Ok(lanes != group.lanes);
            }
            // A lane waits while a member of its mask has not arrived.
            absent = lanes & !present;
            lanes = present;
        }
        // The end of a kernel without instructions has no site.
        if let Some(counters) = self.counters.get_mut(step.site as usize)
            && group.arrived.is_none()
        {
            counters.executions += 1;
            counters.lanes += u64::from(lanes.count_ones());
        }
        warp.time += 1;
        if !step.wgmma_registers.is_empty() {
            watch_in_flight(&mut self.blocks[warp.rank], warp, step, self.machine.tracks_loads)?;
        }
        watch_registers(warp, step, lanes)?;
        match &step.action {
            Action::Compute(compute) => compute(&mut warp.registers, lanes),
            Action::Nothing => {}
            Action::Execute(execute) => {
                let (warp, machine) = (&mut self.warps[index], self.machine);
                let mut context = Context {
                    lanes,
                    warp: warp.index,
                    warps: self.warps_per_block,
                    rank: warp.rank,
                    instruction: step.site,
                    registers: &mut warp.registers,
                    global: machine.global,
                    maps: machine.maps,
                    launches: machine.launches,
                    watch: machine.watch,
                    cluster: self.number,
                    hint: &mut warp.hint,
                    blocks: &mut self.blocks,
                    local: &mut warp.local,
                    parameters: machine.parameters,
                    agent: &mut warp.agent,
                    agents: self.agents,
                    time: warp.time,
                    counters: &mut self.counters[step.site as usize],
                    printed: &mut self.printed,
                    polled: &mut warp.polled,
                    events: self.events.as_mut(),
                };
                let flow = execute.execute(&mut context);
                if let Some(events) = &mut self.events {
                    events.end_access(step.site, (warp.rank, warp.index));
                }
                if flow? == Flow::Wait {
                    self.counters[step.site as usize].executions -= 1;
                    self.counters[step.site as usize].lanes -= u64::from(lanes.count_ones());
                    warp.hold(group_index, lanes);
                    return Ok(lanes != group.lanes);
                }
            }
            Action::Branch(target) => {
                let target = *target;
                if lanes == group.lanes {
                    warp.send(group_index, lanes, target);
                } else {
                    warp.groups[group_index].step += 1;
                    warp.send(group_index, lanes, target);
                }
                return Ok(true);
            }
            Action::Choose { index: slot, targets } => {
                return choose(warp, group_index, lanes, *slot, targets);
            }
            Action::Call(call) => return call::call(warp, self.machine.program, group_index, lanes, call),
            Action::Return => return Ok(call::leave(warp, self.machine.program, group_index, lanes)),
            Action::Exit => {
                warp.exit(group_index, lanes);
                self.exit(index, lanes)?;
                return Ok(true);
            }
            Action::Barrier(barrier) => return self.barrier(index, group_index, lanes, barrier),
            Action::ClusterArrive => self.cluster_arrive(index, lanes)?,
            Action::ClusterWait => return self.cluster_wait(index, group_index, lanes),
        }
        self.warps[index].send(group_index, group.lanes & !absent, group.step + 1);
        Ok(true)
    }

    fn warps_of(&self, rank: usize) -> &[Warp] {
        &self.warps[rank * self.warps_per_block..(rank + 1) * self.warps_per_block]
    }

    /// Handles the exit of lanes: their bulk copies must not read shared memory any more. At the
    /// exit of the last warp, no agent may access the shared memory any more.
    fn exit(&mut self, index: usize, lanes: u32) -> Outcome {
        let (rank, warp) = (self.warps[index].rank, self.warps[index].index);
        if self.blocks[rank].asynchronous.reads_in_bulk(warp, lanes) {
            let text = "a thread exits while bulk copies that it has begun may still read shared memory: a \
                        cp.async.bulk.wait_group is missing";
            return Err(FaultKind::Illegal(text.into()).into());
        }
        if self.warps[index].cluster_arrival == Some(self.meeting.generation) {
            self.meeting.leave((lanes & self.warps[index].cluster_arrived).count_ones());
        }
        self.recheck(index);
        if self.warps_of(rank).iter().all(|warp| warp.alive == 0) {
            let mut known = self.warps[index].agent.clock.clone();
            for warp in self.warps_of(rank) {
                known.join(&warp.agent.clock);
            }
            self.blocks[rank].cluster_accesses.end(&known)?;
            self.blocks[rank].tensor.end()?;
        }
        Ok(())
    }

    /// Completes the barriers that waited only for the exited lanes.
    fn recheck(&mut self, index: usize) {
        let rank = self.warps[index].rank;
        let alive = self.warps_of(rank).iter().map(|warp| warp.alive.count_ones()).sum();
        for barrier in &mut self.barriers[rank] {
            barrier.complete(alive);
        }
        let all = self.warps.iter().map(|warp| warp.alive.count_ones()).sum();
        self.meeting.complete(all);
    }

    /// Arrives at a barrier and, unless the instruction only arrives, waits.
    fn barrier(&mut self, index: usize, group_index: usize, lanes: u32, barrier: &Barrier) -> Outcome<bool> {
        let (group, rank) = (self.warps[index].groups[group_index], self.warps[index].rank);
        let (number, generation) = match group.arrived {
            Some(arrived) => arrived,
            None => self.arrive(index, lanes, barrier)?,
        };
        if group.arrived.is_none() {
            self.record_barrier(EventKind::BarrierArrive, index, group_index, (number, generation));
        }
        let state = &self.barriers[rank][number];
        let warp = &mut self.warps[index];
        if matches!(barrier.kind, BarrierKind::Arrive) {
            warp.send(group_index, group.lanes, group.step + 1);
            return Ok(true);
        }
        if state.generation == generation {
            warp.groups[group_index].arrived = Some((number, generation));
            warp.hold(group_index, lanes);
            return Ok(group.arrived.is_none() || lanes != group.lanes);
        }
        warp.agent.acquire(&state.completed);
        if let Some(events) = &mut self.events {
            let detail = barrier_detail(rank, (number, generation));
            let site = self.machine.program.steps[group.step as usize].site;
            events.note(EventKind::BarrierPass, site, (rank, warp.index), detail);
        }
        if let BarrierKind::Reduce { operation, destination, .. } = barrier.kind {
            let (holding, threads) = state.result;
            let value = match operation {
                BarrierReduction::Popc => u64::from(holding),
                BarrierReduction::And => u64::from(holding == threads),
                BarrierReduction::Or => u64::from(holding != 0),
            };
            warp.registers.set(destination, lanes, &[value; LANES]);
        }
        warp.send(group_index, group.lanes, group.step + 1);
        Ok(true)
    }

    fn record_barrier(&mut self, kind: EventKind, index: usize, group: usize, barrier: (usize, u64)) {
        let Some(events) = &mut self.events else { return };
        let warp = &self.warps[index];
        let site = self.machine.program.steps[warp.groups[group].step as usize].site;
        events.note(kind, site, (warp.rank, warp.index), barrier_detail(warp.rank, barrier));
    }

    /// Records the arrival of lanes. Returns the barrier and the generation for whose end they
    /// wait.
    fn arrive(&mut self, index: usize, lanes: u32, barrier: &Barrier) -> Outcome<(usize, u64)> {
        let rank = self.warps[index].rank;
        let alive = self.warps_of(rank).iter().map(|warp| warp.alive.count_ones()).sum();
        let warp = &mut self.warps[index];
        if barrier.aligned && warp.alive != warp.existing {
            let missing = warp.existing & !lanes;
            return Err(FaultKind::DivergentBarrier { present: lanes, missing }.into());
        }
        let number = uniform(warp.registers.get(barrier.number), lanes, "the index of a barrier")? as usize;
        if number >= BLOCK_BARRIERS {
            return Err(FaultKind::Illegal(format!(
                "barrier {number} does not exist: a block has {BLOCK_BARRIERS} barriers"
            ))
            .into());
        }
        let expected = match barrier.threads {
            None => None,
            Some(threads) => {
                Some(uniform(warp.registers.get(threads), lanes, "the thread count of a barrier")? as u32)
            }
        };
        if let Some(expected) = expected
            && (expected == 0 || !expected.is_multiple_of(LANES as u32))
        {
            let text = format!(
                "a barrier of {expected} threads: the thread count has to be a positive multiple of 32"
            );
            return Err(FaultKind::Illegal(text).into());
        }
        let holding = match barrier.kind {
            BarrierKind::Reduce { predicate, negated, .. } => {
                let mask = warp.registers.mask(predicate);
                (lanes & if negated { !mask } else { mask }).count_ones()
            }
            BarrierKind::Arrive | BarrierKind::Wait => 0,
        };
        // An aligned barrier with a thread count counts 32 threads per warp, even for a partial
        // warp.
        let threads = if barrier.aligned && expected.is_some() { LANES as u32 } else { lanes.count_ones() };
        let clock = warp.agent.release();
        warp.agent.lane_phase += 1;
        self.blocks[rank].asynchronous.publish((rank, warp.index));
        let state = &mut self.barriers[rank][number];
        let generation = state.generation;
        state.arrive(threads, expected, holding, &clock)?;
        state.complete(alive);
        Ok((number, generation))
    }

    /// Makes the `mbarrier`s of a warp visible to asynchronous copies.
    fn publish_mbarriers(&mut self, maker: (usize, usize)) {
        for block in &mut self.blocks {
            block.asynchronous.publish(maker);
        }
    }

    fn cluster_arrive(&mut self, index: usize, lanes: u32) -> Outcome {
        let all = self.warps.iter().map(|warp| warp.alive.count_ones()).sum();
        let warp = &mut self.warps[index];
        let (maker, clock) = ((warp.rank, warp.index), warp.agent.release());
        let is_first = warp.cluster_arrival != Some(self.meeting.generation);
        warp.cluster_arrived = if is_first { lanes } else { warp.cluster_arrived | lanes };
        warp.cluster_arrival = Some(self.meeting.generation);
        self.publish_mbarriers(maker);
        self.meeting.arrive(lanes.count_ones(), None, 0, &clock)?;
        self.meeting.complete(all);
        Ok(())
    }

    fn cluster_wait(&mut self, index: usize, group_index: usize, lanes: u32) -> Outcome<bool> {
        let warp = &mut self.warps[index];
        let Some(generation) = warp.cluster_arrival else {
            let text = "`barrier.cluster.wait` needs a `barrier.cluster.arrive` before it";
            return Err(FaultKind::Illegal(text.into()).into());
        };
        let group = warp.groups[group_index];
        if self.meeting.generation == generation {
            warp.hold(group_index, lanes);
            return Ok(lanes != group.lanes);
        }
        warp.agent.acquire(&self.meeting.completed);
        warp.agent.lane_phase += 1;
        warp.send(group_index, group.lanes, group.step + 1);
        Ok(true)
    }
}

/// Returns the facts of an event at a barrier of the block: its index, and its generation as phase.
fn barrier_detail(rank: usize, (number, generation): (usize, u64)) -> Detail {
    Detail { place: Some((rank as u32, number as u32)), phase: generation as i64, ..Detail::default() }
}

/// Checks the accesses to registers of dots and tensor memory loads in flight.
fn watch_in_flight(block: &mut BlockMemory, warp: &Warp, step: &Step, tracks_loads: bool) -> Outcome {
    block.asynchronous.wgmmas(warp.index).check_accesses(&step.wgmma_registers)?;
    if !tracks_loads {
        block.asynchronous.tensor_memory(warp.index).check_accesses(&step.wgmma_registers)?;
    }
    Ok(())
}

/// Checks that the lanes have written the guard, in a watched launch.
#[inline]
fn watch_guard(warp: &Warp, step: &Step, lanes: u32) -> Outcome {
    match &step.watched {
        Some(watched) if warp.registers.keeps_written() => {
            watched.guard.iter().try_for_each(|read| check_written(warp, lanes, read))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that the lanes have written the operands, and marks the results, in a watched launch.
#[inline]
fn watch_registers(warp: &mut Warp, step: &Step, lanes: u32) -> Outcome {
    if let Some(watched) = &step.watched
        && warp.registers.keeps_written()
    {
        watched.reads.iter().try_for_each(|read| check_written(warp, lanes, read))?;
        for &slot in &watched.writes {
            warp.registers.mark_written(slot, lanes);
        }
    }
    Ok(())
}

/// Checks that each lane has written a register before reading it.
fn check_written(warp: &Warp, lanes: u32, (slot, name): &(Slot, Box<str>)) -> Outcome {
    let missing = lanes & !warp.registers.written(*slot);
    if missing == 0 {
        return Ok(());
    }
    let text = format!("reads the uninitialized register {name}");
    Err(FaultKind::Illegal(text).into()).of_lane(missing.trailing_zeros() as usize)
}

/// Returns the lanes that may execute a warp-synchronous step, or 0 if all have to wait.
fn gathered(warp: &Warp, step: &Step, lanes: u32) -> Outcome<u32> {
    match step.gather {
        Gather::Any => Ok(lanes),
        Gather::Warp => Ok(if lanes == warp.alive { lanes } else { 0 }),
        Gather::Members(slot) => {
            let masks = warp.registers.get(slot);
            let mut present = 0;
            for lane in lanes_of(lanes) {
                let members = masks[lane] as u32;
                if members >> lane & 1 == 0 {
                    let text = format!("lane {lane} is not in its own member mask {members:#010x}");
                    return Err(FaultKind::Illegal(text).into()).of_lane(lane);
                }
                if members & warp.alive & !lanes == 0 {
                    present |= 1 << lane;
                }
            }
            Ok(present)
        }
    }
}

/// Returns the value that all lanes share. Different values are a fault.
fn uniform(values: &Lanes, lanes: u32, what: &str) -> Outcome<u64> {
    let first = values[lanes.trailing_zeros() as usize];
    match lanes_of(lanes).find(|lane| values[*lane] != first) {
        None => Ok(first),
        Some(lane) => {
            let text = format!("{what} differs between the lanes of a warp: {first} and {}", values[lane]);
            Err(FaultKind::Unsupported(text).into()).of_lane(lane)
        }
    }
}

/// Executes `brx.idx`: sends each lane to its target.
fn choose(warp: &mut Warp, group_index: usize, lanes: u32, slot: Slot, targets: &[u32]) -> Outcome<bool> {
    let indices = *warp.registers.get(slot);
    let mut chosen = [0; LANES];
    for lane in lanes_of(lanes) {
        let Some(target) = targets.get(indices[lane] as usize) else {
            let text = format!("`brx.idx` has the index {}, but {} targets", indices[lane], targets.len());
            return Err(FaultKind::Illegal(text).into()).of_lane(lane);
        };
        chosen[lane] = *target;
    }
    warp.scatter(group_index, lanes, &chosen);
    Ok(true)
}
