//! Observers, which record, measure or check the steps of a launch.
//!
//! A machine without observers only checks, at each block, that it has none. A machine with
//! observers calls them in order before each step, and in reverse order after the step. Observers
//! read the values of the machine and cannot change them.

use std::ops::Range;

use crate::program::{Action, Block, BlockId, Nest, Program, Step};
use crate::run::machine::Machine;

/// Creates an observer for each thread of a launch.
pub(crate) trait Observe: Sync {
    /// Creates the observer of one thread.
    fn observer(&self) -> Box<dyn Observer + '_>;

    /// Returns pure steps that the machine executes before a nest, so that observers may read their
    /// results. The nest itself does not set the slots of its members.
    fn before_nest(&self, _nest: &Nest) -> &[Step] {
        &[]
    }
}

/// Observes the programs of one thread. A call of [`Self::after`] follows each call of
/// [`Self::before`], unless the thread panics. The calls for the steps of a region come between the
/// two calls for the step that has the region.
pub(crate) trait Observer {
    /// Called when a program begins. The machine has the coordinates of the program.
    fn begin(&mut self, _machine: &Machine<'_>) {}

    /// Called when the program has ended.
    fn end(&mut self, _has_failed: bool) {}

    /// Called when a block begins. The parameters of the block are already set.
    fn enter(&mut self, _machine: &Machine<'_>, _block: BlockId) {}

    /// Returns whether the machine may execute a fused group as one loop. Otherwise, it executes
    /// the members one by one.
    fn allows_fusion(&self) -> bool {
        true
    }

    /// Returns whether the machine may execute a nest as machine code. Otherwise, it executes the
    /// members one by one.
    fn allows_nests(&self) -> bool {
        false
    }

    /// Called before a unit is executed.
    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>);

    /// Called after the unit has been executed. Its results are set if it succeeded.
    fn after(&mut self, machine: &Machine<'_>, unit: &Unit<'_>, end: End);
}

/// A single step, a nest or a fused group.
pub(crate) struct Unit<'p> {
    /// The block of the step.
    pub id: BlockId,
    pub block: &'p Block,
    /// The index of the step in its block.
    pub index: usize,
    /// The indices of the steps that the unit executes: the single step, or the members of the
    /// group.
    pub members: Range<usize>,
}

impl<'p> Unit<'p> {
    /// Returns the unit that begins at an index of a block.
    pub(crate) fn at(id: BlockId, block: &'p Block, index: usize) -> Self {
        let members = match Program::members(&block.steps[index]) {
            0 => index..index + 1,
            count => index + 1..index + 1 + count,
        };
        Self { id, block, index, members }
    }

    pub(crate) fn step(&self) -> &'p Step {
        &self.block.steps[self.index]
    }

    /// Returns the steps that the unit executes.
    pub(crate) fn steps(&self) -> &'p [Step] {
        &self.block.steps[self.members.clone()]
    }

    /// Returns whether the step runs a block to combine or map elements. The steps of that block
    /// are a part of this step; they are not observed as separate steps.
    pub(crate) fn combines(&self) -> bool {
        matches!(self.step().action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    /// The operands do not allow the nest or the fused loop. Nothing has been executed yet; the
    /// machine next executes the members one by one.
    LeftToMembers,
    Failed,
}
