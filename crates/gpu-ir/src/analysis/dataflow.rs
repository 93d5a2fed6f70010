//! Walks structured control flow forward for a dataflow analysis. States join where paths meet, and
//! loops repeat until a fixpoint. A [`Transfer`] is the transfer function of an instruction.

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation, Value};

use super::slots::{Edge, Facts, SlotAnalysis};
use crate::{GpuOp, Op};

/// The maximum trip count at which the walk follows each iteration. Other loops are repeated until
/// a fixpoint.
const MAX_FOLLOWED_TRIPS: i128 = 8;
/// The maximum number of iterations to a fixpoint. For states of unbounded height, the walk then
/// continues with the last state.
const MAX_FIXPOINT_STEPS: usize = 1000;

/// The result of a check; an error is one sentence.
pub type Check = Result<(), String>;

/// The kind of a point where two paths meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinPoint {
    /// After a branch or partitions.
    Branch,
    /// The start of an iteration, reached from before the loop or from the previous iteration.
    Loop,
}

/// The state and the transfer functions of one analysis.
pub trait Transfer {
    /// The facts at a point of the program.
    type State: Clone + PartialEq;

    /// Applies an instruction to the state. The walk calls this for every instruction except loops,
    /// branches and `warp_specialize`. The region of an op such as `reduce` is skipped, because it
    /// only combines elements.
    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check;

    /// Joins the states of two paths that meet.
    fn join(&self, state: &mut Self::State, other: &Self::State, point: JoinPoint);

    /// Renames the values of a state at an edge into or out of a region.
    fn rename(&self, state: &mut Self::State, edge: &Edge);

    /// Notes that the path enters a branch region: 0 for a true condition, else 1.
    fn enter_region(&self, _state: &mut Self::State, _condition: Value, _region: usize) {}

    /// Joins the states at the ends of the regions of a branch with this condition.
    fn join_regions(&self, state: &mut Self::State, other: &Self::State, _condition: Value) {
        self.join(state, other, JoinPoint::Branch);
    }

    /// Notes the partition that runs the next instructions; `None` for all warps.
    fn enter_partition(&mut self, _partition: Option<(Inst, usize)>) {}
}

/// Runs an analysis over a function.
pub fn walk<R: Transfer>(analysis: &SlotAnalysis<'_>, transfer: &mut R, mut state: R::State) -> Check {
    Walk { analysis, transfer }.block(analysis.function.entry, &mut state)
}

/// Joins facts slot by slot. Keeps facts of only one path. After a branch of an explicit program,
/// keeps facts of both paths.
pub fn join_facts<F: Copy + PartialEq>(
    analysis: &SlotAnalysis<'_>,
    facts: &mut Facts<F>,
    others: &Facts<F>,
    point: JoinPoint,
    join: impl Fn(&mut F, F),
) {
    if analysis.explicit && point == JoinPoint::Branch {
        facts.retain(|slot, fact| others.get(slot) == Some(fact));
        return;
    }
    for (slot, fact) in others {
        match facts.get_mut(slot) {
            Some(known) => join(known, *fact),
            None => {
                facts.insert(*slot, *fact);
            }
        }
    }
}

struct Walk<'a, 'f, R> {
    analysis: &'a SlotAnalysis<'f>,
    transfer: &'a mut R,
}

impl<R: Transfer> Walk<'_, '_, R> {
    fn block(&mut self, block: Block, state: &mut R::State) -> Check {
        let function = self.analysis.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match (&data.op, data.op.as_tile(), &data.regions[..]) {
                (_, Some(ir::Op::For { .. }), &[body]) => self.for_loop(*inst, body, state)?,
                (_, Some(ir::Op::While {}), &[condition, body]) => {
                    self.while_loop(*inst, condition, body, state)?;
                }
                (_, Some(ir::Op::If {}), &[then, otherwise]) => {
                    let mut other = state.clone();
                    let condition = data.operands[0];
                    for (number, (region, state)) in
                        [(then, &mut *state), (otherwise, &mut other)].into_iter().enumerate()
                    {
                        self.transfer.enter_region(state, condition, number);
                        self.block(region, state)?;
                        self.transfer.rename(state, &self.analysis.branch_edge(*inst, region));
                    }
                    self.transfer.join_regions(state, &other, condition);
                }
                (Op::Gpu(GpuOp::WarpSpecialize { .. }), ..) => self.partitions(*inst, state)?,
                // tidy: wildcard because the other ops are straight code
                _ => {
                    let step = self.transfer.step(*inst, state);
                    step.inspect_err(|_| self.analysis.blame(*inst))?;
                }
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, inst: Inst, body: Block, state: &mut R::State) -> Check {
        let [enter, back, leave] = self.analysis.for_edges(inst);
        self.transfer.rename(state, &enter);
        match self.analysis.trips(inst) {
            Some(trips) if trips <= MAX_FOLLOWED_TRIPS => {
                for _ in 0..trips {
                    self.block(body, state)?;
                    self.transfer.rename(state, &back);
                }
            }
            trips => {
                let mut steps = 0..MAX_FIXPOINT_STEPS;
                loop {
                    let mut end = state.clone();
                    self.block(body, &mut end)?;
                    self.transfer.rename(&mut end, &back);
                    let before = state.clone();
                    self.transfer.join(state, &end, JoinPoint::Loop);
                    if *state == before || steps.next().is_none() {
                        if trips.is_some() {
                            // The loop runs at least once.
                            *state = end;
                        }
                        break;
                    }
                }
            }
        }
        self.transfer.rename(state, &leave);
        Ok(())
    }

    fn while_loop(&mut self, inst: Inst, condition: Block, body: Block, state: &mut R::State) -> Check {
        let [enter, onward, back, leave] = self.analysis.while_edges(inst);
        self.transfer.rename(state, &enter);
        let mut steps = 0..MAX_FIXPOINT_STEPS;
        let mut after = loop {
            let mut end = state.clone();
            self.block(condition, &mut end)?;
            let after = end.clone();
            self.transfer.rename(&mut end, &onward);
            self.block(body, &mut end)?;
            self.transfer.rename(&mut end, &back);
            let before = state.clone();
            self.transfer.join(state, &end, JoinPoint::Loop);
            if *state == before || steps.next().is_none() {
                break after;
            }
        };
        self.transfer.rename(&mut after, &leave);
        *state = after;
        Ok(())
    }

    fn partitions(&mut self, inst: Inst, state: &mut R::State) -> Check {
        let function = self.analysis.function;
        let before = state.clone();
        for (partition, region) in function.insts[inst].regions.iter().enumerate() {
            let mut end = before.clone();
            self.transfer.enter_partition(Some((inst, partition)));
            self.block(*region, &mut end)?;
            self.transfer.rename(&mut end, &Edge::leave(Vec::new(), *region));
            if partition == 0 {
                *state = end;
            } else {
                self.transfer.join(state, &end, JoinPoint::Branch);
            }
        }
        self.transfer.enter_partition(None);
        Ok(())
    }
}
