//! Defines the executable form of a kernel: blocks of steps over slots.
//!
//! Each SSA value has a slot. At the last use of a slot, the step moves the value out, so that the
//! op may overwrite it in place. The machine clears the `kills` of a step after the step: these
//! slots are dead, but no operand has moved them out.

#![allow(clippy::inline_always, reason = "each execution of a step reads its result slot")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;
use tilewright_base::{SourceMap, Span};
use tilewright_ir::{Dtype, Effect, Op, OpFamily};

use crate::assembly::Assembly;
use crate::types::TileType;

pub(crate) mod combine;
pub(crate) mod describe;
pub(crate) mod fused;
pub(crate) mod nest;
pub(crate) mod product_loop;

pub use combine::Combine;
pub(crate) use fused::FusedGroup;
pub(crate) use nest::{Nest, NestCode, TreeCode};
pub(crate) use product_loop::ProductLoop;

/// The index of a slot in [`Program::slots`].
pub(crate) type Slot = u32;

pub(crate) type BlockId = u32;

pub(crate) type TypeId = u32;

/// A compiled kernel. It is compiled once and launched often, from any thread.
///
/// A launch runs the kernel once for each point of a grid. Each of these runs is a *program of the
/// grid*, or a program for short.
#[derive(Debug)]
pub struct Program {
    pub(crate) name: String,
    /// The parameters of the kernel, in order.
    pub(crate) parameters: Vec<Parameter>,
    /// The distinct types of slots and operands.
    pub(crate) types: Vec<TileType>,
    /// The type of each slot.
    pub(crate) slots: Vec<TypeId>,
    pub(crate) blocks: Vec<Block>,
    /// For each slot: true for a load that may leave its elements in memory, because only a dot
    /// reads them. Empty without this analysis.
    pub(crate) in_place: Vec<bool>,
    /// The parameters whose memory the kernel may change. `None` if they are unknown, or if there
    /// are atomic or volatile accesses.
    pub(crate) written: Option<Vec<usize>>,
    /// The block of the grid-invariant steps. Each thread of a launch runs the block once.
    pub(crate) preamble: BlockId,
    /// The block of the steps that run once for each program of the grid.
    pub(crate) body: BlockId,
    /// The source positions of steps: the innermost span, then the call sites, innermost first.
    pub(crate) sites: Vec<SmallVec<[Span; 2]>>,
    pub(crate) sources: Arc<SourceMap>,
    /// The estimated time of one program of the grid, in nanoseconds.
    pub(crate) estimate: u64,
    /// The mean time of one program in nanoseconds in the last measured launch, or 0.
    pub(crate) measured: AtomicU64,
    /// True if tiles may be symbolic. Some tests set this to false.
    pub(crate) symbolic: bool,
    /// True if a program of the grid is likely to wait for another program.
    pub(crate) waits: bool,
    /// The condition blocks of the `while` loops that are likely to wait for another program.
    pub(crate) waiting_loops: Vec<BlockId>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: Arc<str>,
    pub slot: Slot,
}

/// A list of steps.
#[derive(Clone, Default, Debug)]
pub(crate) struct Block {
    /// The slots of the block's parameters.
    pub parameters: SmallVec<[Slot; 4]>,
    pub steps: Vec<Step>,
    pub yields: SmallVec<[Use; 4]>,
    /// The unused parameters, which the machine clears when the block begins.
    pub kills: SmallVec<[Slot; 2]>,
    /// Present if this block is the body of a loop whose iterations together compute one dot.
    pub product: Option<Box<ProductLoop>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub slot: Slot,
    /// The type of the operand. A use may read the slot of a scalar as a uniform tile.
    pub ty: TypeId,
    /// True if the slot is dead after the step.
    pub last: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub action: Action,
    pub operands: SmallVec<[Use; 4]>,
    pub results: SmallVec<[Slot; 1]>,
    /// The blocks of the regions of the op. A combine region may have several: see
    /// [`Strategy::Tree`].
    pub blocks: SmallVec<[BlockId; 2]>,
    /// The slots that the machine clears after the step.
    pub kills: SmallVec<[Slot; 2]>,
    /// The index of the step's source position in [`Program::sites`].
    pub site: u32,
}

/// An op of the IR, or a specialization by lowering or fusion.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Op(Op),
    /// A `dot`. If `transposed[0]` is true, it swaps the last two axes of A first; `transposed[1]`
    /// is for B.
    Dot {
        transposed: [bool; 2],
        /// The wider float type to which the dot casts each operand.
        casts: [Option<Dtype>; 2],
    },
    Reduce {
        axis: usize,
        strategy: Strategy,
        /// The machine code of a [`Strategy::Tree`].
        code: Option<Arc<TreeCode>>,
    },
    /// A `map`. One execution of the block takes `pack` elements of each tile, or whole tiles with
    /// [`Strategy::Tree`].
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
    /// The sort that replaces consecutive bitonic merges.
    Sort(Sort),
    /// One loop for the *members*: the steps that follow. If it does not support the operands, the
    /// machine executes the members one by one.
    Fused(Box<FusedGroup>),
    /// Machine code for the *members*: the steps that follow. If it does not support the operands,
    /// the machine executes the members one by one.
    Nest(Box<Nest>),
}

/// Sorts blocks of `1 << stages` elements along an axis, in alternating directions. It replaces the
/// merges of a bitonic sort up to this block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sort {
    pub axis: usize,
    pub stages: u32,
    /// True if the first block is in descending order.
    pub descending: bool,
}

/// Inline assembly in executable form.
#[derive(Clone, Debug)]
pub(crate) struct InlineAssembly {
    pub code: Arc<dyn Assembly>,
    /// The number of elements that one execution of the assembly takes from each operand.
    pub pack: u32,
    /// True if the assembly may be dropped when its results are unused.
    pub is_pure: bool,
}

/// The algorithm of a reduction, a scan or a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strategy {
    /// A loop in `run/kernels`, for a function of [`Combine`].
    Kernel(Combine),
    /// Blocks that compute on whole tiles. A reduction has a block per level, and each level halves
    /// the axis. A scan has a block per level. A map has one block.
    Tree,
    /// A block that computes one element at a time, or `pack` elements in a map. A region with
    /// control flow needs it, for example.
    Sequential,
}

impl Block {
    pub(crate) fn has_nests(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Nest(_)))
    }
}

impl Program {
    /// Returns whether the load that sets a slot may leave the elements in memory.
    #[inline]
    pub(crate) fn is_in_place(&self, slot: Slot) -> bool {
        self.in_place.get(slot as usize).is_some_and(|&is_in_place| is_in_place)
    }

    /// Returns the number of operands and yielded values that read each slot.
    pub(crate) fn use_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.slots.len()];
        for block in &self.blocks {
            let operands = block.steps.iter().flat_map(|step| &step.operands);
            operands.chain(&block.yields).for_each(|operand| counts[operand.slot as usize] += 1);
        }
        counts
    }

    /// Returns the number of members of a fused loop or a nest. Returns 0 for any other step.
    pub(crate) fn members(step: &Step) -> usize {
        match &step.action {
            Action::Fused(group) => group.members,
            Action::Nest(nest) => nest.members,
            Action::Op(_)
            | Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Sort(_)
            | Action::Assembly(_) => 0,
        }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compiles all machine code of the program. Otherwise, a launch compiles each function when it
    /// first needs the function.
    pub fn make_machine_code(&self) {
        for step in self.blocks.iter().flat_map(|block| &block.steps) {
            if let Some(code) = step.machine_code() {
                code.executable();
            }
        }
    }

    /// Returns the program with other sources, whose files have the same ids.
    #[must_use]
    pub fn with_sources(self, sources: Arc<SourceMap>) -> Self {
        Self { sources, ..self }
    }

    /// Returns the sources of the spans in diagnostics.
    pub fn sources(&self) -> &Arc<SourceMap> {
        &self.sources
    }

    #[inline]
    pub(crate) fn ty(&self, slot: Slot) -> &TileType {
        &self.types[self.slots[slot as usize] as usize]
    }
}

impl Step {
    /// Returns the slot of the step's first result. Panics if the step has no result.
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
            | Action::Sort(_)
            | Action::Assembly(_)
            | Action::Fused(_)
            | Action::Nest(_) => None,
        }
    }

    /// Returns the machine code that executes the step, if there is any.
    fn machine_code(&self) -> Option<&NestCode> {
        match &self.action {
            Action::Nest(nest) => Some(&nest.code),
            Action::Reduce { code, .. } => code.as_ref().map(|tree| &tree.code),
            Action::Op(_)
            | Action::Dot { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Sort(_)
            | Action::Assembly(_)
            | Action::Fused(_) => None,
        }
    }

    /// Returns whether the step may be dropped if its results are unused.
    pub(crate) fn is_pure(&self) -> bool {
        match &self.action {
            Action::Op(op) => op.is_pure(),
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Sort(_) => true,
            Action::Assembly(assembly) => assembly.is_pure,
            Action::Fused(_) | Action::Nest(_) => false,
        }
    }

    /// Returns the operand that points to the same memory as the result, if the step only moves
    /// pointers.
    pub(crate) fn moved_pointer(&self) -> Option<Slot> {
        let moves = matches!(
            self.op(),
            Some(
                Op::PtrAdd {}
                    | Op::Splat { .. }
                    | Op::ExpandDims { .. }
                    | Op::Broadcast { .. }
                    | Op::Reshape { .. }
            )
        );
        moves.then(|| self.operands[0].slot)
    }

    /// Returns whether the step is a load.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self.action, Action::Op(Op::Load { .. }))
    }

    /// Returns whether the step may change memory or have another observable effect, such as a
    /// failed assertion. This includes groups, nests, branches and loops. No load moves across such
    /// a step.
    pub(crate) fn has_side_effects(&self) -> bool {
        match &self.action {
            Action::Op(op) => !matches!(op.info().effect, Effect::Pure | Effect::Read),
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
            | Action::Map { .. }
            | Action::Sort(_) => false,
            Action::Assembly(assembly) => !assembly.is_pure,
            Action::Fused(_) | Action::Nest(_) => true,
        }
    }

    /// Returns whether the op of the step permits a move to the preamble. The result of such an op
    /// depends only on the op's operands, and is worth keeping. The caller checks that the operands
    /// are the same in each program.
    pub(crate) fn is_grid_invariant(&self) -> bool {
        self.op().is_some_and(|op| match op.family() {
            OpFamily::Scalar => !matches!(op, Op::ProgramId { .. } | Op::Machine { .. }),
            // tidy: wildcard because the other ops access memory or have regions, or their operands
            // (of a histogram, for example) are rarely grid-invariant
            family => matches!(
                family,
                OpFamily::Source | OpFamily::Shape | OpFamily::Movement | OpFamily::Pointwise
            ),
        })
    }

    /// Returns whether one execution of a step with blocks may run several blocks, or the same
    /// block repeatedly.
    pub(crate) fn repeats_blocks(&self) -> bool {
        !matches!(self.action, Action::Op(Op::If { .. }))
    }
}
