//! Walks structured control flow forward for a dataflow analysis: joins states where paths meet, and
//! repeats loops to a fixpoint. A [`Rule`] is the transfer function of an instruction.

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation};

use super::slots::{Edge, Names};
use crate::{GpuOp, Op};

/// A loop of constant bounds with no more iterations than this is followed iteration by iteration.
const MOST_FOLLOWED: i128 = 8;
/// Limits the iterations to a fixpoint, in case a rule has states without a bounded height.
const MOST_ROUNDS: usize = 1000;

/// The result of a check; an error is a sentence.
pub type Check = Result<(), String>;

/// The kind of a point where two paths meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meet {
    /// After a branch or after partitions.
    Branch,
    /// The start of an iteration: from before the loop, and from the iteration before.
    Loop,
}

/// The state and the transfer functions of one analysis.
pub trait Rule {
    /// The facts at a point of the program.
    type State: Clone + PartialEq;

    /// Applies an instruction without regions to the state.
    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check;

    /// Joins the states of two paths that meet.
    fn join(&self, state: &mut Self::State, other: &Self::State, meet: Meet);

    /// Renames the values of a state at an edge into or out of a region.
    fn rename(&self, state: &mut Self::State, edge: &Edge);

    /// Notes that a partition of a `warp_roles`, or again all warps, run the next instructions.
    fn enter_role(&mut self, _role: Option<(Inst, usize)>) {}
}

/// Runs a rule over a function.
pub fn walk<R: Rule>(names: &Names<'_>, rule: &mut R, mut state: R::State) -> Check {
    Walk { names, rule }.block(names.function.entry, &mut state)
}

struct Walk<'a, 'f, R> {
    names: &'a Names<'f>,
    rule: &'a mut R,
}

impl<R: Rule> Walk<'_, '_, R> {
    fn block(&mut self, block: Block, state: &mut R::State) -> Check {
        let function = self.names.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match (&data.op, data.op.as_tile(), &data.regions[..]) {
                (_, Some(ir::Op::For { .. }), &[body]) => self.for_loop(*inst, body, state)?,
                (_, Some(ir::Op::While {}), &[condition, body]) => {
                    self.while_loop(*inst, condition, body, state)?;
                }
                (_, Some(ir::Op::If {}), &[then, otherwise]) => {
                    let mut other = state.clone();
                    for (region, state) in [(then, &mut *state), (otherwise, &mut other)] {
                        self.block(region, state)?;
                        self.rule.rename(state, &self.names.branch_edge(*inst, region));
                    }
                    self.rule.join(state, &other, Meet::Branch);
                }
                (Op::Gpu(GpuOp::WarpRoles { .. }), ..) => self.roles(*inst, state)?,
                // tidy: wildcard because the other ops are straight code
                _ => self.rule.step(*inst, state)?,
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, inst: Inst, body: Block, state: &mut R::State) -> Check {
        let [enter, back, leave] = self.names.for_edges(inst);
        self.rule.rename(state, &enter);
        match self.names.trips(inst) {
            Some(trips) if trips <= MOST_FOLLOWED => {
                for _ in 0..trips {
                    self.block(body, state)?;
                    self.rule.rename(state, &back);
                }
            }
            trips => {
                let mut rounds = 0..MOST_ROUNDS;
                loop {
                    let mut end = state.clone();
                    self.block(body, &mut end)?;
                    self.rule.rename(&mut end, &back);
                    let before = state.clone();
                    self.rule.join(state, &end, Meet::Loop);
                    if *state == before || rounds.next().is_none() {
                        if trips.is_some() {
                            // It runs at least once.
                            *state = end;
                        }
                        break;
                    }
                }
            }
        }
        self.rule.rename(state, &leave);
        Ok(())
    }

    fn while_loop(&mut self, inst: Inst, condition: Block, body: Block, state: &mut R::State) -> Check {
        let [enter, onward, back, leave] = self.names.while_edges(inst);
        self.rule.rename(state, &enter);
        let mut rounds = 0..MOST_ROUNDS;
        let mut after = loop {
            let mut end = state.clone();
            self.block(condition, &mut end)?;
            let after = end.clone();
            self.rule.rename(&mut end, &onward);
            self.block(body, &mut end)?;
            self.rule.rename(&mut end, &back);
            let before = state.clone();
            self.rule.join(state, &end, Meet::Loop);
            if *state == before || rounds.next().is_none() {
                break after;
            }
        };
        self.rule.rename(&mut after, &leave);
        *state = after;
        Ok(())
    }

    fn roles(&mut self, inst: Inst, state: &mut R::State) -> Check {
        let function = self.names.function;
        let before = state.clone();
        for (role, region) in function.insts[inst].regions.iter().enumerate() {
            let mut end = before.clone();
            self.rule.enter_role(Some((inst, role)));
            self.block(*region, &mut end)?;
            self.rule.rename(&mut end, &Edge::leave(Vec::new(), *region));
            if role == 0 {
                *state = end;
            } else {
                self.rule.join(state, &end, Meet::Branch);
            }
        }
        self.rule.enter_role(None);
        Ok(())
    }
}
