//! Observers: they watch the steps of a launch, to record, measure or check them.
//!
//! A machine without observers looks once a block whether it has any. A machine with observers calls them around each step,
//! in order before it and in reverse order after it. They read the values of the machine and cannot change them.

use std::ops::Range;

use crate::program::{Action, Block, BlockId, Step};
use crate::run::machine::Machine;

/// Has a launch observed: each thread of the launch has an observer of its own.
pub(crate) trait Observe: Sync {
    /// An observer for one thread.
    fn observer(&self) -> Box<dyn Observer + '_>;
}

/// Watches the programs that one thread runs. After each call of [`Self::before`] there is one of [`Self::after`], unless
/// the thread panics; the calls for the steps of a region are between those for the step around it.
pub(crate) trait Observer {
    /// The program at the machine's point of the grid begins.
    fn begin(&mut self, _machine: &Machine<'_>) {}

    /// The program has ended.
    fn end(&mut self, _has_failed: bool) {}

    /// A block begins, whose parameters are set.
    fn enter(&mut self, _machine: &Machine<'_>, _block: BlockId) {}

    /// Whether fused groups may be executed as one loop. Otherwise their members are executed one by one.
    fn allows_fusion(&self) -> bool {
        true
    }

    /// A step or a fused group is about to be executed.
    fn before(&mut self, machine: &Machine<'_>, unit: &Unit<'_>);

    /// The step or the group has been executed, and its results are set if it is done.
    fn after(&mut self, machine: &Machine<'_>, unit: &Unit<'_>, end: End);
}

/// A step that is executed by itself, or a fused group.
pub(crate) struct Unit<'p> {
    /// The block that it is in.
    pub id: BlockId,
    pub block: &'p Block,
    /// The place of the step in its block.
    pub place: usize,
    /// The places of the steps that it executes: its own, or those of the members of the group.
    pub members: Range<usize>,
}

impl<'p> Unit<'p> {
    /// The unit that begins at a place of a block.
    pub(crate) fn at(id: BlockId, block: &'p Block, place: usize) -> Self {
        let members = match &block.steps[place].action {
            Action::Fused(group) => place + 1..place + 1 + group.members,
            Action::Op(_)
            | Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Assembly(_) => place..place + 1,
        };
        Self { id, block, place, members }
    }

    /// The step.
    pub(crate) fn step(&self) -> &'p Step {
        &self.block.steps[self.place]
    }

    /// The steps that it executes.
    pub(crate) fn steps(&self) -> &'p [Step] {
        &self.block.steps[self.members.clone()]
    }

    /// Whether it combines elements by a block of its own: the steps of that block are a part of it.
    pub(crate) fn combines(&self) -> bool {
        matches!(self.step().action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. })
    }
}

/// How the execution of a unit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    /// The operands of a fused group do not allow one loop: nothing has happened, and its members follow one by one.
    LeftToMembers,
    Failed,
}
