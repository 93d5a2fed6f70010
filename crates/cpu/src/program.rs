//! The executable form of a kernel: blocks of steps over slots.
//!
//! Each SSA value of the kernel has a slot. Each use of a slot says whether it is the last one: the value is then moved
//! out, so that the op may work in place. What dies without being moved is in the list `kills` of the step.

#![allow(clippy::inline_always, reason = "a step asks for its result on every execution")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;
use tilewright_base::{SourceMap, Span};
use tilewright_ir::{Effect, Op, OpFamily};

use crate::assembly::Assembly;
use crate::types::TileType;

pub(crate) mod combine;
pub(crate) mod fused;

pub use combine::Combine;
pub(crate) use fused::FusedGroup;

/// The number of a slot.
pub(crate) type Slot = u32;

/// The number of a block.
pub(crate) type BlockId = u32;

/// The number of a type.
pub(crate) type TypeId = u32;

/// A kernel that can be launched. It is compiled once and launched often, from any thread.
#[derive(Debug)]
pub struct Program {
    pub(crate) name: String,
    /// The slots of the arguments, in order, with their names.
    pub(crate) parameters: Vec<Parameter>,
    /// Every type once.
    pub(crate) types: Vec<TileType>,
    /// The type of each slot.
    pub(crate) slots: Vec<TypeId>,
    pub(crate) blocks: Vec<Block>,
    /// The grid-invariant steps: each thread of a launch runs them once.
    pub(crate) preamble: BlockId,
    /// The steps of one program of the grid.
    pub(crate) body: BlockId,
    /// Where each step comes from: the innermost place first, then the calls that led there.
    pub(crate) sites: Vec<SmallVec<[Span; 2]>>,
    pub(crate) sources: Arc<SourceMap>,
    /// An estimate of how many nanoseconds one program of the grid takes.
    pub(crate) estimate: u64,
    /// How long one program took in earlier launches, in nanoseconds; 0 where not known.
    pub(crate) measured: AtomicU64,
    /// Whether tiles may have symbolic forms; only tests switch them off.
    pub(crate) symbolic: bool,
    /// Whether a program of the grid may wait for what another one does.
    pub(crate) waits: bool,
    /// The condition blocks of loops that wait for what other programs do.
    pub(crate) waiting_loops: Vec<BlockId>,
}

/// A parameter of the kernel.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: Arc<str>,
    pub slot: Slot,
}

/// A list of steps.
#[derive(Clone, Default, Debug)]
pub(crate) struct Block {
    /// The slots of its parameters.
    pub parameters: SmallVec<[Slot; 4]>,
    pub steps: Vec<Step>,
    pub yields: SmallVec<[Use; 4]>,
    /// Dead parameters: cleared on entry.
    pub kills: SmallVec<[Slot; 2]>,
}

/// A use of a slot as an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub slot: Slot,
    /// The type of the operand: the slot of a scalar is also read as the uniform tile of it.
    pub ty: TypeId,
    /// Whether the slot is dead afterwards.
    pub last: bool,
}

/// One operation on slots.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub action: Action,
    pub operands: SmallVec<[Use; 4]>,
    pub results: SmallVec<[Slot; 1]>,
    /// The blocks that the regions of the op became.
    pub blocks: SmallVec<[BlockId; 2]>,
    /// Slots to clear afterwards.
    pub kills: SmallVec<[Slot; 2]>,
    /// Its entry in [`Program::sites`].
    pub site: u32,
}

/// What a step does: an op of the IR's table, or a form of one that lowering or fusion has chosen.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Op(Op),
    /// `dot`; whether the last two axes of a and of b are swapped first.
    Dot {
        transposed: [bool; 2],
    },
    Reduce {
        axis: usize,
        strategy: Strategy,
    },
    /// A function of single elements: its block takes `pack` of each tile, or whole tiles if it has no control flow.
    Map {
        pack: usize,
        strategy: Strategy,
    },
    /// Inline assembly.
    Assembly(InlineAssembly),
    Scan {
        axis: usize,
        reverse: bool,
        strategy: Strategy,
    },
    /// The steps after it as one loop, if their operands allow; these steps are then skipped.
    Fused(Box<FusedGroup>),
}

/// Inline assembly with what runs it.
#[derive(Clone, Debug)]
pub(crate) struct InlineAssembly {
    pub code: Arc<dyn Assembly>,
    /// How many elements a run has.
    pub pack: u32,
    /// Whether it need not run where nobody reads its results.
    pub is_pure: bool,
}

/// How a reduction or a scan is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strategy {
    /// By a loop over the elements, for a combine function that it knows.
    Kernel(Combine),
    /// As a tree over whole tiles: one block for each level, which halves the axis; of a scan, which doubles its blocks.
    Tree,
    /// Element by element, by one block, because the combine region has control flow.
    Sequential,
}

impl Program {
    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source that the spans of diagnostics point into.
    pub fn sources(&self) -> &Arc<SourceMap> {
        &self.sources
    }

    /// The type of a slot.
    #[inline]
    pub(crate) fn ty(&self, slot: Slot) -> &TileType {
        &self.types[self.slots[slot as usize] as usize]
    }
}

impl Step {
    /// The slot of its only result, or of the first one.
    #[inline(always)]
    pub(crate) fn result(&self) -> Slot {
        match self.results[..] {
            [result, ..] => result,
            [] => unreachable!("a step without results has no use of them"),
        }
    }

    /// The op of the IR that it executes as the table has it.
    pub(crate) fn op(&self) -> Option<&Op> {
        match &self.action {
            Action::Op(op) => Some(op),
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Assembly(_)
            | Action::Fused(_) => None,
        }
    }

    /// Whether it is dead if its results are.
    pub(crate) fn is_pure(&self) -> bool {
        match &self.action {
            Action::Op(op) => op.is_pure(),
            Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. } => true,
            Action::Assembly(assembly) => assembly.is_pure,
            Action::Fused(_) => false,
        }
    }

    /// Whether it only reads memory.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.action, Action::Op(Op::Load { .. }))
    }

    /// Whether it may write memory or stop the launch: no load is moved across it.
    pub(crate) fn has_side_effects(&self) -> bool {
        match &self.action {
            Action::Op(op) => !matches!(op.info().effect, Effect::Pure | Effect::Read),
            Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. } => false,
            Action::Assembly(assembly) => !assembly.is_pure,
            Action::Fused(_) => true,
        }
    }

    /// Whether it gives the same for each program of the grid if its operands do, and is worth keeping for a launch.
    pub(crate) fn is_grid_invariant(&self) -> bool {
        self.op().is_some_and(|op| match op.family() {
            OpFamily::Scalar => !matches!(op, Op::ProgramId { .. } | Op::Machine { .. }),
            // tidy: wildcard because other ops have effects, or regions that may
            family => matches!(
                family,
                OpFamily::Source | OpFamily::Shape | OpFamily::Movement | OpFamily::Pointwise
            ),
        })
    }

    /// Whether its blocks may run more than once, or one after the other.
    pub(crate) fn repeats_blocks(&self) -> bool {
        !matches!(self.action, Action::Op(Op::If { .. }))
    }
}
