//! Defines nests: consecutive steps that one function of machine code executes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tilewright_native::ir::Function;
use tilewright_native::{CompileError, Executable, ListedInstruction, Target};

use super::{Action, BlockId, Program, Slot, Step};

/// A nest of loops. Its *members* are the steps that follow it: see
/// [`nests`](crate::compile::nests).
///
/// The function may decline an execution. It then returns without an effect, and the machine
/// executes the members one by one.
#[derive(Clone, Debug)]
pub(crate) struct Nest {
    /// The index of the nest in its program.
    pub index: usize,
    /// The unit that one call of the function repeats.
    pub repeated: Repeated,
    /// The number of members.
    pub members: usize,
    /// The words of the argument of the function.
    pub words: Vec<Word>,
    /// The indices of the words that differ between the programs of a launch.
    pub varying: Vec<usize>,
    /// The size of the scratch memory in bytes.
    pub scratch: usize,
    /// The slots that the nest clears, because their tiles are dead after the last member.
    pub frees: Vec<Slot>,
    /// The results of the *imports*: earlier steps that the nest executes again.
    pub imports: Vec<Slot>,
    pub code: Arc<NestCode>,
}

/// The unit that one call of a nest's function repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Repeated {
    /// The members, once.
    Once,
    /// Consecutive programs along x: the members are all steps of a program.
    Programs,
    /// Consecutive iterations of a loop: the members are all steps of its body.
    Iterations {
        /// The slots of each carried tile: the parameter of the body, and the slot that the body
        /// yields. Iterations write to them in turns.
        tiles: Vec<[Slot; 2]>,
        /// The maximum number of iterations in one call.
        most: u32,
    },
}

/// A word of the argument of a nest's function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// The bits of a scalar.
    Bits(Slot),
    /// The address of the elements of a dense tile.
    Tile(Slot),
    /// The address of the memory region that a pointer may access.
    RegionStart(Slot),
    /// The number of bytes of this region.
    RegionLength(Slot),
    /// The number of bytes of this region. For a read-only region, it is 0.
    WritableLength(Slot),
    /// 1 if stores to the region of a pointer should bypass the caches, otherwise 0. The second
    /// field is the number of bytes that each program stores there.
    Streams(Slot, usize),
    /// The index of the program along an axis of the grid.
    ProgramId(usize),
    /// The number of programs or iterations that the function executes.
    Count,
    /// The number of programs along an axis of the grid.
    ProgramCount(usize),
    /// The address of scratch memory.
    Scratch,
    /// The address of the elements of a tile that the nest writes.
    Output(Slot),
    /// The bits of a scalar that the nest writes. The word is zero before the call.
    Result(Slot),
}

impl Word {
    /// Returns whether the word is the same for all programs of a launch. `is_invariant` tells this
    /// of a slot.
    pub(crate) fn is_invariant(self, is_invariant: impl Fn(Slot) -> bool) -> bool {
        match self {
            Word::Bits(slot)
            | Word::Tile(slot)
            | Word::RegionStart(slot)
            | Word::RegionLength(slot)
            | Word::WritableLength(slot)
            | Word::Streams(slot, _) => is_invariant(slot),
            Word::ProgramCount(_) | Word::Scratch => true,
            Word::ProgramId(_) | Word::Count | Word::Output(_) | Word::Result(_) => false,
        }
    }
}

/// The code of a nest, compiled when a launch first executes the nest.
#[derive(Debug)]
pub(crate) struct NestCode {
    function: Function,
    target: Target,
    executable: OnceLock<Option<Executable>>,
    /// True if an execution was declined, or if there was no machine code.
    has_declined: AtomicBool,
}

impl NestCode {
    pub(crate) fn new(function: Function, target: Target) -> Self {
        Self { function, target, executable: OnceLock::new(), has_declined: AtomicBool::new(false) }
    }

    /// Returns the machine code, or `None` if it cannot be compiled or be made executable.
    pub(crate) fn executable(&self) -> Option<&Executable> {
        let compiled = || {
            let code = tilewright_native::compile(&self.function, &self.target).ok()?;
            Executable::new(&code).ok()
        };
        self.executable.get_or_init(compiled).as_ref()
    }

    /// Compiles the function again and lists its instructions, with the [origin](origin_of) of
    /// each.
    pub(crate) fn list(&self) -> Result<Vec<ListedInstruction>, CompileError> {
        let code = tilewright_native::compile_with_origins(&self.function, &self.target)?;
        Ok(tilewright_native::listing(&code, &self.target))
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    pub(crate) fn note_decline(&self) {
        self.has_declined.store(true, Ordering::Relaxed);
    }
}

/// Returns the origin of the instructions that compute a step: the index in [`Program::sites`] of
/// the step's source position, plus 1.
pub(crate) fn origin_of(step: &Step) -> u32 {
    step.site + 1
}

/// Machine code of a tree reduction.
///
/// The argument has the addresses of the tiles, then the bits of the captured scalars. The code
/// overwrites the tiles, and leaves the result at their beginning.
#[derive(Debug)]
pub(crate) struct TreeCode {
    pub code: NestCode,
    /// The scalars that the combine region reads from outside.
    pub captured: SmallVec<[Slot; 4]>,
}

/// Counts of the nests of a program.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NestCounts {
    /// All nests.
    pub formed: usize,
    /// The nests that execute iterations of a loop.
    pub iterated: usize,
    /// The nests whose machine code a launch has compiled.
    pub called: usize,
    /// The nests that a launch has executed without machine code: the code has declined an
    /// execution, or cannot be compiled.
    pub declined: usize,
}

impl Program {
    /// Returns the nest that executes all steps of the program, if any.
    pub(crate) fn whole_nest(&self) -> Option<&Nest> {
        match &self.blocks[self.body as usize].steps.first()?.action {
            Action::Nest(nest) if nest.repeated == Repeated::Programs => Some(nest),
            // tidy: wildcard because only a nest can execute all steps of a program
            _ => None,
        }
    }

    /// Returns the nest that executes iterations of the loop with this body, and the maximum number
    /// per call.
    pub(crate) fn iterated_nest(&self, body: BlockId) -> Option<(&Nest, u32)> {
        match &self.blocks[body as usize].steps.first()?.action {
            Action::Nest(nest) => match nest.repeated {
                Repeated::Iterations { most, .. } => Some((nest, most)),
                Repeated::Once | Repeated::Programs => None,
            },
            // tidy: wildcard because only a nest can execute all steps of a body
            _ => None,
        }
    }

    /// Counts the nests of the program, for tests.
    #[doc(hidden)]
    pub fn nest_counts(&self) -> NestCounts {
        let mut counts = NestCounts::default();
        for step in self.blocks.iter().flat_map(|block| &block.steps) {
            if let Action::Nest(nest) = &step.action {
                counts.formed += 1;
                counts.iterated += usize::from(matches!(nest.repeated, Repeated::Iterations { .. }));
                counts.called += usize::from(nest.code.executable.get().is_some_and(Option::is_some));
                counts.declined += usize::from(nest.code.has_declined.load(Ordering::Relaxed));
            }
        }
        counts
    }
}
