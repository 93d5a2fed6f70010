//! Defines observers, which record, measure or check the steps of a launch.
//!
//! The machine calls them in order before each step, and in reverse order after it. They cannot
//! change the values of the machine.

use std::ops::Range;

use crate::program::{Action, Block, BlockId, Nest, Program, Step};
use crate::run::machine::Machine;

/// Creates an observer for each thread of a launch.
pub(crate) trait Observe: Sync {
    fn observer(&self) -> Box<dyn Observer + '_>;

    /// Returns pure steps that the machine executes before a nest for the observers. A nest does
    /// not set the slots of its members.
    fn before_nest(&self, _nest: &Nest) -> &[Step] {
        &[]
    }
}

/// Observes the programs of one thread. [`Self::after`] follows each [`Self::before`], unless the
/// thread panics. The calls for the steps of a region are between those of its op.
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
    pub id: BlockId,
    pub block: &'p Block,
    /// The index of the step in its block.
    pub index: usize,
    /// The indices of the executed steps: the single step, or the members.
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

    pub(crate) fn steps(&self) -> &'p [Step] {
        &self.block.steps[self.members.clone()]
    }

    /// Returns whether the step runs a block per element. The steps of the block are not observed.
    pub(crate) fn combines(&self) -> bool {
        matches!(self.step().action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    /// The operands do not allow the nest or the loop. The machine executes the members next.
    LeftToMembers,
    Failed,
}
