//! Gives each op of a loop its stage and its order.
//!
//! A step is an iteration of the pipelined loop. It runs each stage for another iteration of the
//! original loop. A slot of a ring with `n` slots is filled `n - 1` stages before it is taken.
//! Example with 3 slots, and `Q K` and `P V` of attention as the dots:
//!
//! ```text
//!                   stage 0        stage 1        stage 2                   stage 3
//! no late dots      copy K, V                     take K, V ; Q K ; P V
//! late dots         copy K         copy V         take K ; Q K              take V ; P V
//! ```
//! The last stage takes the slots. With late dots ([`LateDots`](super::loop_plan::LateDots)), the
//! *early stage* before it takes the slots of the other dots. With dots in flight
//! ([`DotsInFlight`](super::loop_plan::DotsInFlight)), the early stage takes all slots. Loads that
//! a copy depends on run one stage before the copy.
//!
//! **The order in a step**: the early dots start, then the late dots of the previous iteration.
//! Copies start, then the threads compute. The ops that compute A of the next late dots are last.
//! They overwrite registers of the running late dots, so they follow the wait for these. One thread
//! starts all copies, after it has waited for all empty slots.

use rustc_hash::FxHashSet;
use tilewright_ir::{Inst, OpFamily, Operation, Stage};

use super::dots;
use super::loop_rewriter::LoopRewriter;
use super::lower_loads::FillOp;
use crate::passes::schedule_instructions::dots_with_dependences;
use tilewright_gpu_ir::target::WARPGROUP_WARPS;
use tilewright_gpu_ir::{GpuOp, Op};

/// The orders of the ops of one step.
pub(super) mod order {
    /// The ops before the first wait for a dot of the step. Dots that depend on no wait of the step
    /// are here, with the ops that they need.
    pub const BEGIN: u32 = 0;
    /// The late dots with the ops that they need. Or the wait for the previous step's dots.
    pub const LATE: u32 = 1;
    /// With late dots and several warpgroups: the first wait, up to the first reduction. With dots
    /// in flight: the releases of slots.
    pub const WAIT: u32 = 2;
    /// The waits for empty slots.
    pub const ACQUIRE: u32 = 3;
    /// The copies, and the ops that they need. The loads that later copies depend on follow, by
    /// level.
    pub const FILL: u32 = 4;
    /// The ops that the threads compute.
    pub const COMPUTE: u32 = FILL + super::super::loop_plan::MAX_LEVELS as u32;
    /// The waits for late dots with their users, or for dots in flight.
    pub const END: u32 = COMPUTE + 1;
    /// The ops that make the operands of late dots.
    pub const OPERAND: u32 = COMPUTE + 2;
}

impl LoopRewriter<'_> {
    /// Schedules the loop; `fills` has the ops that fill its rings.
    pub(super) fn schedule(&mut self, fills: &[FillOp]) {
        let plan = self.plan;
        let latency = self.slots.saturating_sub(1);
        if latency == 0 && fills.iter().all(|fill| fill.level == 0) {
            return;
        }
        if plan.in_flight.is_some() {
            self.wait_for_earlier_dots();
        }
        let ahead = |fill: &FillOp| latency + fill.lead + fill.level;
        let farthest = fills.iter().map(ahead).max().unwrap_or(0);
        let crosses = u32::from(plan.late.is_some() || plan.in_flight.is_some());
        let last = farthest.max(crosses);
        for fill in fills {
            let order = if latency == 0 { fill.level } else { self.order_of_fill(fill) };
            self.function.schedule.insert(fill.inst, Stage { stage: last - ahead(fill), order });
        }
        let filling: FxHashSet<Inst> = fills.iter().map(|fill| fill.inst).collect();
        let mut insts = self.function.blocks[self.body].insts.clone();
        insts.pop();
        insts.retain(|inst| !filling.contains(inst));
        let stages = if plan.late.is_some() {
            self.two_stages(&insts)
        } else if plan.in_flight.is_some() {
            self.in_flight_stages(&insts)
        } else {
            let first = if latency == 0 { 0 } else { self.started(&insts) };
            (0..insts.len())
                .map(|index| (0, if index < first { order::BEGIN } else { order::COMPUTE }))
                .collect()
        };
        for (inst, (ahead, order)) in insts.into_iter().zip(stages) {
            self.function.schedule.insert(inst, Stage { stage: last - ahead, order });
        }
    }

    fn order_of_fill(&self, fill: &FillOp) -> u32 {
        let is_acquire = matches!(self.function.insts[fill.inst].op, Op::Gpu(GpuOp::Acquire {}));
        if is_acquire && self.plan.late.is_some() { order::ACQUIRE } else { order::FILL + fill.level }
    }

    fn is_wait(&self, inst: Inst) -> bool {
        matches!(self.function.insts[inst].op, Op::Gpu(GpuOp::WgmmaWait { .. }))
    }

    /// Returns the number of ops before the copies of a step. They end at the first wait for a dot;
    /// without a wait, they are the takes of slots.
    fn started(&self, insts: &[Inst]) -> usize {
        let is_take = |inst: &&Inst| matches!(self.function.insts[**inst].op, Op::Gpu(GpuOp::Take {}));
        let first_wait = insts.iter().position(|inst| self.is_wait(*inst));
        first_wait.unwrap_or_else(|| insts.iter().take_while(is_take).count())
    }

    /// Returns each op's distance to the last stage, and its order. The loop has late dots.
    fn two_stages(&self, insts: &[Inst]) -> Vec<(u32, u32)> {
        let late = self.plan.late.as_ref().expect("the loop has late dots");
        let early: Vec<Inst> = insts.iter().copied().filter(|inst| !late.late.contains(inst)).collect();
        let wait = early.iter().position(|inst| self.is_wait(*inst)).unwrap_or(early.len());
        // With several warpgroups, ops up to the first reduction run before the copies. A warpgroup
        // may run ahead only until it fills slots, which must be in time for the next iteration.
        let is_reduction = |inst: &Inst| self.function.insts[*inst].op.info().family == OpFamily::Reduction;
        let reduction = early[wait..].iter().position(is_reduction);
        let reduction = reduction.filter(|_| self.num_warps() > WARPGROUP_WARPS);
        let fill = wait + reduction.map_or(0, |index| index + 1);
        let begun: FxHashSet<Inst> = dots_with_dependences(self.function, &early)
            .into_iter()
            .filter(|needed| !needed.iter().any(|inst| self.is_wait(*inst)))
            .flatten()
            .collect();
        let late_insts: Vec<Inst> = insts.iter().copied().filter(|inst| late.late.contains(inst)).collect();
        let of_late_dots: FxHashSet<Inst> =
            dots_with_dependences(self.function, &late_insts).into_iter().flatten().collect();
        let mut early_index = 0;
        let mut stages = Vec::new();
        for inst in insts {
            if late.late.contains(inst) {
                stages.push((0, if of_late_dots.contains(inst) { order::LATE } else { order::END }));
                continue;
            }
            let order = match early_index {
                _ if late.operand_ops.contains(inst) => order::OPERAND,
                _ if early_index < wait || begun.contains(inst) => order::BEGIN,
                _ if early_index < fill => order::WAIT,
                _ => order::COMPUTE,
            };
            stages.push((1, order));
            early_index += 1;
        }
        stages
    }

    /// Returns each op's distance to the last stage and order, for dots in flight.
    fn in_flight_stages(&self, insts: &[Inst]) -> Vec<(u32, u32)> {
        let dots = &self.plan.in_flight.as_ref().expect("the loop has dots in flight").dots;
        let stage = |inst: &Inst| match &self.function.insts[*inst].op {
            Op::Gpu(GpuOp::Take {}) => (1, order::BEGIN),
            Op::Gpu(GpuOp::WgmmaWaitEarlier { .. }) => (1, order::LATE),
            Op::Gpu(GpuOp::Release {}) => (0, order::WAIT),
            Op::Gpu(GpuOp::WgmmaWait { .. }) => (0, order::END),
            _ if dots.contains(inst) => (1, order::BEGIN),
            // tidy: wildcard because other ops only compute
            _ => (1, order::COMPUTE),
        };
        insts.iter().map(stage).collect()
    }

    /// Inserts waits for the previous step's dots after the dots of a step.
    fn wait_for_earlier_dots(&mut self) {
        let in_flight = self.plan.in_flight.as_ref().expect("the loop has dots in flight");
        let last = *in_flight.dots.last().expect("a loop with dots in flight has dots");
        let pending = in_flight.dots.len() as u32;
        for wait in &in_flight.waits {
            let dot = self.function.insts[*wait].operands[0];
            let ty = self.function.ty(dot).clone();
            let dot = self.value(GpuOp::WgmmaWaitEarlier { pending }, &[dot], ty);
            self.function.insts[*wait].operands[0] = dot;
        }
        let earlier_waits = std::mem::take(&mut self.out);
        let insts = &mut self.function.blocks[self.body].insts;
        insts.retain(|inst| !in_flight.waits.contains(inst));
        let index = insts.iter().position(|inst| *inst == last).expect("the dot is in the body") + 1;
        insts.splice(index..index, earlier_waits.into_iter().chain(in_flight.waits.iter().copied()));
        dots::release_after_waits(self.function, self.body);
    }
}
