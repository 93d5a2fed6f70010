//! The executable form of a kernel: blocks of steps over slots.
//!
//! Each SSA value of the kernel has a slot. Each use of a slot records whether it is the last use:
//! the step then moves the value out of the slot, so that the op may work in place. The `kills` of
//! a step are the slots that die without being moved out; the step clears them.

#![allow(clippy::inline_always, reason = "each execution of a step reads its result slot")]

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

/// The index of a slot.
pub(crate) type Slot = u32;

/// The index of a block.
pub(crate) type BlockId = u32;

/// The index of a type.
pub(crate) type TypeId = u32;

/// A compiled kernel. It is compiled once and launched often, from any thread.
#[derive(Debug)]
pub struct Program {
    pub(crate) name: String,
    /// The slots of the arguments, in order, with their names.
    pub(crate) parameters: Vec<Parameter>,
    /// The distinct types.
    pub(crate) types: Vec<TileType>,
    /// The type of each slot.
    pub(crate) slots: Vec<TypeId>,
    pub(crate) blocks: Vec<Block>,
    /// The grid-invariant steps: each thread of a launch runs them once.
    pub(crate) preamble: BlockId,
    /// The steps of one program of the grid.
    pub(crate) body: BlockId,
    /// The origin of each step: the innermost span first, then the call sites.
    pub(crate) sites: Vec<SmallVec<[Span; 2]>>,
    pub(crate) sources: Arc<SourceMap>,
    /// The estimated time of one program of the grid, in nanoseconds.
    pub(crate) estimate: u64,
    /// The measured time of one program in earlier launches, in nanoseconds; 0 before the first.
    pub(crate) measured: AtomicU64,
    /// True if tiles may be symbolic; tests switch this off.
    pub(crate) symbolic: bool,
    /// True if a program of the grid may wait for another one.
    pub(crate) waits: bool,
    /// The condition blocks of `while` loops that may wait for another program.
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
    /// The type of the operand. A use may read the slot of a scalar as a uniform tile.
    pub ty: TypeId,
    /// True if the slot is dead afterwards.
    pub last: bool,
}

/// One operation on slots.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub action: Action,
    pub operands: SmallVec<[Use; 4]>,
    pub results: SmallVec<[Slot; 1]>,
    /// The lowered regions of the op.
    pub blocks: SmallVec<[BlockId; 2]>,
    /// Slots to clear afterwards.
    pub kills: SmallVec<[Slot; 2]>,
    /// The index of its entry in [`Program::sites`].
    pub site: u32,
}

/// The operation of a step: an op of the IR, or a specialization that lowering or fusion has
/// chosen.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Op(Op),
    /// `dot`. If an element of `transposed` is true, the last two axes of `a` or `b` are swapped
    /// first.
    Dot {
        transposed: [bool; 2],
    },
    Reduce {
        axis: usize,
        strategy: Strategy,
    },
    /// A function of single elements. Its block takes `pack` elements of each tile, or whole tiles
    /// with [`Strategy::Tree`].
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
    /// A loop that executes its members, the following steps. If their operands do not allow the
    /// loop, they are executed one by one.
    Fused(Box<FusedGroup>),
}

/// Inline assembly in executable form.
#[derive(Clone, Debug)]
pub(crate) struct InlineAssembly {
    pub code: Arc<dyn Assembly>,
    /// The number of elements of each operand that one run takes.
    pub pack: u32,
    /// True if the assembly may be dropped when its results are unused.
    pub is_pure: bool,
}

/// The algorithm of a reduction, a scan or a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strategy {
    /// A loop over the elements, for a combine function with a kernel.
    Kernel(Combine),
    /// Whole tiles: one block for each level of a reduction, which halves the axis, or of a scan;
    /// one block for a map.
    Tree,
    /// Element by element with one block, for example because the region has control flow.
    Sequential,
}

impl Program {
    /// Returns the number of operands and yielded values that read each slot.
    pub(crate) fn use_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.slots.len()];
        for block in &self.blocks {
            let operands = block.steps.iter().flat_map(|step| &step.operands);
            operands.chain(&block.yields).for_each(|operand| counts[operand.slot as usize] += 1);
        }
        counts
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sources of the spans in diagnostics.
    pub fn sources(&self) -> &Arc<SourceMap> {
        &self.sources
    }

    /// Returns the type of a slot.
    #[inline]
    pub(crate) fn ty(&self, slot: Slot) -> &TileType {
        &self.types[self.slots[slot as usize] as usize]
    }
}

impl Step {
    /// Returns the slot of its only or first result.
    #[inline(always)]
    pub(crate) fn result(&self) -> Slot {
        match self.results[..] {
            [result, ..] => result,
            [] => unreachable!("the step has no result"),
        }
    }

    /// Returns the op of the IR, if the step executes it without specialization.
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

    /// Returns whether the step is dead if its results are unused.
    pub(crate) fn is_pure(&self) -> bool {
        match &self.action {
            Action::Op(op) => op.is_pure(),
            Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. } => true,
            Action::Assembly(assembly) => assembly.is_pure,
            Action::Fused(_) => false,
        }
    }

    /// Returns whether the step is a load.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.action, Action::Op(Op::Load { .. }))
    }

    /// Returns whether the step may write memory or stop the launch. No load moves across such a
    /// step.
    pub(crate) fn has_side_effects(&self) -> bool {
        match &self.action {
            Action::Op(op) => !matches!(op.info().effect, Effect::Pure | Effect::Read),
            Action::Dot { .. } | Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. } => false,
            Action::Assembly(assembly) => !assembly.is_pure,
            Action::Fused(_) => true,
        }
    }

    /// Returns whether the result of the step is the same in each program of the grid if the
    /// operands are, and is worth keeping for a launch.
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

    /// Returns whether the blocks of the step may run more than once, or one after the other.
    pub(crate) fn repeats_blocks(&self) -> bool {
        !matches!(self.action, Action::Op(Op::If { .. }))
    }
}
