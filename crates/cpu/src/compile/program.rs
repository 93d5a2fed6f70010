//! The executable form of a kernel: blocks of steps over dense slots.
//!
//! Each value of the IR has a slot. An operand says whether it is the last use of its slot: the value is then moved out,
//! so that the op may work in place. What dies without being moved is in the list `kills` of the step.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;
use tilewright_base::{Diagnostic, SourceMap, Span};
use tilewright_ir::{ElementwiseFn, Failure, IntList, Module, Rounding};

use super::{fuse, liveness, lower, repeat};
use crate::run::kernels::chain::{Binary, Total, Unary};
use crate::run::kernels::reduce::Combine;
use crate::run::value::TileType;

/// The number of a slot.
pub(crate) type Slot = u32;

/// The number of a block.
pub(crate) type BlockId = u32;

/// The number of a type.
pub(crate) type TypeId = u32;

/// A kernel that can be launched. It is made once and launched often, from any thread.
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
    /// The steps that give the same for every program of the grid; run once per thread and launch.
    pub(crate) preamble: BlockId,
    /// The steps of one program.
    pub(crate) body: BlockId,
    /// Where each step comes from: the innermost place first, then the calls that led there.
    pub(crate) sites: Vec<SmallVec<[Span; 2]>>,
    pub(crate) sources: Arc<SourceMap>,
    /// A guess of how many nanoseconds one program takes.
    pub(crate) estimate: u64,
    /// How long one program took in earlier launches, in nanoseconds; 0 where not known.
    pub(crate) measured: AtomicU64,
    /// Whether symbolic forms are used; only tests switch them off.
    pub(crate) symbolic: bool,
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
    /// The slots that it is entered with.
    pub parameters: SmallVec<[Slot; 4]>,
    pub steps: Vec<Step>,
    pub yields: SmallVec<[Use; 4]>,
    /// Parameters that nothing reads: cleared on entry.
    pub kills: SmallVec<[Slot; 2]>,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub slot: Slot,
    /// The type of the operand: a slot that holds a scalar is also read as the uniform tile of it.
    pub ty: TypeId,
    /// Nothing reads the slot afterwards.
    pub last: bool,
}

/// One op.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub action: Action,
    pub operands: SmallVec<[Use; 4]>,
    pub results: SmallVec<[Slot; 1]>,
    /// Slots to clear afterwards.
    pub kills: SmallVec<[Slot; 2]>,
    /// Its entry in [`Program::sites`].
    pub site: u32,
}

/// What a step does. Ops without an effect at run time (hints, assumptions, barriers: a program runs on one thread) and
/// calls (inlined) have none.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Constant(u64),
    ProgramId(u8),
    NumPrograms(u8),
    Arange(i64),
    Splat,
    ExpandDims(u32),
    Broadcast,
    Reshape,
    Transpose(IntList),
    Elementwise(ElementwiseFn),
    Cast(Rounding),
    Bitcast,
    PtrAdd,
    /// Whether it is volatile: as many times as it is there, and no more.
    Load(bool),
    Store,
    /// Which of a and b are to be transposed first, in their last two axes.
    Dot([bool; 2]),
    Reduce(Box<Reduce>),
    Assert(Failure),
    For(BlockId),
    /// The condition and the body.
    While(BlockId, BlockId),
    If(BlockId, BlockId),
    /// Does what the steps after it do, if it can; they are then passed over.
    Chain(Box<Chain>),
}

/// Steps on binary32 tiles as one loop: see [`crate::compile::fuse`]. Members are known by their number.
#[derive(Clone, Default, Debug)]
pub(crate) struct Chain {
    /// The number of steps after it that it stands for.
    pub members: usize,
    /// The elements of the tiles.
    pub elements: usize,
    /// The steps of the loop. What one gives, the next one takes.
    pub links: Vec<Link>,
    /// The slots that links write, by number. What is stored is written after them.
    pub written: Vec<Slot>,
    /// The member that combines the elements, and how.
    pub total: Option<(Total, usize)>,
    /// The member that stores the elements. It is the last one.
    pub store: Option<usize>,
    /// The tiles that its members read for the last time.
    pub frees: Vec<Slot>,
}

/// One step of a chain: one enum, so that for each there is one thing to decide when it is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// A function of the element and one of a slot.
    Slot(Binary, Use),
    /// A function of the element and one that the member with this number loads.
    Load(Binary, usize),
    /// A function of the element and one of a slot, which is that of a row of `BLOCK << shift` elements.
    Rows(Binary, Use, usize),
    /// A function of the element and one that an earlier [`Link::Write`] with this number wrote.
    Written(Binary, usize),
    /// A function of the element and itself.
    Itself(Binary),
    /// A function of the element.
    Alone(Unary),
    /// The element where the first operand holds, else the second one.
    Select(Use, Use),
    /// The elements go to the target with this number.
    Write(usize),
    /// The elements are combined. There is one such link at the most.
    Total(Total),
}

/// How a reduction is done.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub axis: usize,
    pub how: How,
}

/// Ways to combine elements.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// By a loop over the elements that knows the function.
    Kernel(Combine),
    /// By the region on whole tiles: one copy of it for each halving of the axis.
    Tiles(Vec<BlockId>),
    /// By the region on single elements, because there is control flow in it.
    Elements(BlockId),
}

impl Action {
    /// Whether it may be dropped if nobody reads its results.
    pub(crate) fn is_pure(&self) -> bool {
        match self {
            Action::Load(_)
            | Action::Store
            | Action::Assert(_)
            | Action::For(_)
            | Action::While(..)
            | Action::If(..)
            | Action::Chain(_) => false,
            Action::Constant(_)
            | Action::ProgramId(_)
            | Action::NumPrograms(_)
            | Action::Arange(_)
            | Action::Splat
            | Action::ExpandDims(_)
            | Action::Broadcast
            | Action::Reshape
            | Action::Transpose(_)
            | Action::Elementwise(_)
            | Action::Cast(_)
            | Action::Bitcast
            | Action::PtrAdd
            | Action::Dot(_)
            | Action::Reduce(_) => true,
        }
    }

    /// Whether it may run once for all programs of the grid if its operands allow.
    pub(crate) fn is_uniform_over_grid(&self) -> bool {
        match self {
            Action::Constant(_)
            | Action::NumPrograms(_)
            | Action::Arange(_)
            | Action::Splat
            | Action::ExpandDims(_)
            | Action::Broadcast
            | Action::Reshape
            | Action::Transpose(_)
            | Action::Cast(_)
            | Action::Bitcast
            | Action::PtrAdd
            | Action::Elementwise(_) => true,
            Action::ProgramId(_)
            | Action::Load(_)
            | Action::Store
            | Action::Dot(_)
            | Action::Reduce(_)
            | Action::Assert(_)
            | Action::For(_)
            | Action::While(..)
            | Action::If(..)
            | Action::Chain(_) => false,
        }
    }

    /// The blocks that it runs.
    pub(crate) fn blocks(&self) -> SmallVec<[BlockId; 2]> {
        match self {
            Action::For(body) => SmallVec::from_slice(&[*body]),
            Action::While(condition, body) => SmallVec::from_slice(&[*condition, *body]),
            Action::If(then, otherwise) => SmallVec::from_slice(&[*then, *otherwise]),
            Action::Reduce(reduce) => match &reduce.how {
                How::Kernel(_) => SmallVec::new(),
                How::Tiles(levels) => SmallVec::from_slice(levels),
                How::Elements(block) => SmallVec::from_slice(&[*block]),
            },
            Action::Constant(_)
            | Action::ProgramId(_)
            | Action::NumPrograms(_)
            | Action::Arange(_)
            | Action::Splat
            | Action::ExpandDims(_)
            | Action::Broadcast
            | Action::Reshape
            | Action::Transpose(_)
            | Action::Elementwise(_)
            | Action::Cast(_)
            | Action::Bitcast
            | Action::PtrAdd
            | Action::Load(_)
            | Action::Store
            | Action::Dot(_)
            | Action::Assert(_)
            | Action::Chain(_) => SmallVec::new(),
        }
    }
}

impl Program {
    /// Lowers the kernel of a module, which the verifier accepts. Calls are inlined.
    ///
    /// Fails if functions call each other recursively, or so deeply that the program becomes too large.
    pub fn new(module: &Module) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, true)?;
        liveness::analyse(&mut program);
        repeat::repeat(&mut program);
        fuse::fuse(&mut program);
        Ok(program)
    }

    /// The same program that writes every tile out, and takes one step at a time. For tests: the results must be the same.
    #[doc(hidden)]
    pub fn without_symbolic_forms(module: &Module) -> Result<Self, Box<Diagnostic>> {
        let mut program = lower::lower(module, false)?;
        liveness::analyse(&mut program);
        Ok(program)
    }

    /// The type of a slot.
    #[inline]
    pub(crate) fn ty(&self, slot: Slot) -> &TileType {
        &self.types[self.slots[slot as usize] as usize]
    }

    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source that the spans of diagnostics point into.
    pub fn sources(&self) -> &Arc<SourceMap> {
        &self.sources
    }

    fn print_block(&self, f: &mut fmt::Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        for step in &block.steps {
            f.write_str(&indent)?;
            for (index, &slot) in step.results.iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                write!(f, "{separator}s{slot}: {}{}", self.ty(slot).element, ShapeText(self, slot))?;
            }
            f.write_str(if step.results.is_empty() { "" } else { " = " })?;
            write!(f, "{}", ActionText(&step.action))?;
            print_uses(f, &step.operands)?;
            if !step.kills.is_empty() {
                let kills: Vec<String> = step.kills.iter().map(|slot| format!("s{slot}")).collect();
                write!(f, "  // frees {}", kills.join(", "))?;
            }
            writeln!(f)?;
            for (number, &inner) in step.action.blocks().iter().enumerate() {
                let inner = &self.blocks[inner as usize];
                let parameters: Vec<String> =
                    inner.parameters.iter().map(|slot| format!("s{slot}")).collect();
                writeln!(f, "{indent}region {number} ({}):", parameters.join(", "))?;
                self.print_block(f, inner, depth + 1)?;
                write!(f, "{indent}  yield")?;
                print_uses(f, &inner.yields)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn print_uses(f: &mut fmt::Formatter<'_>, uses: &[Use]) -> fmt::Result {
    for (index, operand) in uses.iter().enumerate() {
        let separator = if index == 0 { " " } else { ", " };
        let last = if operand.last { "!" } else { "" };
        write!(f, "{separator}s{}{last}", operand.slot)?;
    }
    Ok(())
}

struct ShapeText<'a>(&'a Program, Slot);

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ty = self.0.ty(self.1);
        if ty.is_scalar() { Ok(()) } else { write!(f, "{}", ty.extents.shape) }
    }
}

struct ActionText<'a>(&'a Action);

impl fmt::Display for ActionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Action::Constant(bits) => write!(f, "constant {bits:#x}"),
            Action::ProgramId(axis) => write!(f, "program_id {axis}"),
            Action::NumPrograms(axis) => write!(f, "num_programs {axis}"),
            Action::Arange(start) => write!(f, "arange {start}"),
            Action::Splat => f.write_str("splat"),
            Action::ExpandDims(axis) => write!(f, "expand_dims {axis}"),
            Action::Broadcast => f.write_str("broadcast"),
            Action::Reshape => f.write_str("reshape"),
            Action::Transpose(permutation) => write!(f, "transpose {:?}", permutation.as_slice()),
            Action::Elementwise(function) => f.write_str(function.name()),
            Action::Cast(_) => f.write_str("cast"),
            Action::Bitcast => f.write_str("bitcast"),
            Action::PtrAdd => f.write_str("ptr_add"),
            Action::Load(_) => f.write_str("load"),
            Action::Store => f.write_str("store"),
            Action::Dot([a, b]) => {
                write!(f, "dot{}{}", if *a { " trans_a" } else { "" }, if *b { " trans_b" } else { "" })
            }
            Action::Reduce(reduce) => match &reduce.how {
                How::Kernel(combine) => write!(f, "reduce axis {} by {combine:?}", reduce.axis),
                How::Tiles(levels) => write!(f, "reduce axis {} in {} levels", reduce.axis, levels.len()),
                How::Elements(_) => write!(f, "reduce axis {} by elements", reduce.axis),
            },
            Action::Assert(failure) => write!(f, "assert {failure}"),
            Action::For(_) => f.write_str("for"),
            Action::While(..) => f.write_str("while"),
            Action::If(..) => f.write_str("if"),
            Action::Chain(chain) => write!(f, "chain of the next {} steps", chain.members),
        }
    }
}

/// The text of `tilewright compile --emit cpu`: slots as `s3`, a last use as `s3!`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters.iter().map(|parameter| {
            let element = self.ty(parameter.slot).element;
            format!("s{} {}: {element}", parameter.slot, parameter.name)
        });
        writeln!(f, "cpu program {}({})", self.name, parameters.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "once:")?;
        self.print_block(f, &self.blocks[self.preamble as usize], 1)?;
        writeln!(f, "each program (about {} ns):", self.estimate)?;
        self.print_block(f, &self.blocks[self.body as usize], 1)
    }
}
