//! Rematerialization: recomputes a tile at a reader if that is cheaper than keeping the tile.
//!
//! A [fused group](crate::compile::fusion) cannot read the result of its own reduction: the steps
//! that need the result are in a later group. If these steps also read the reduced tile, the first
//! group would have to store the tile. The later group would have to load it. The source of the
//! tile in memory is as close in the caches as the tile itself. An addition or a multiplication
//! takes no longer than a store.
//!
//! The pass therefore copies loads of contiguous memory, and cheap functions of the loaded
//! elements, to each reader after the first. It does so only if no step with side effects is
//! between the original steps and the readers. All copies thus compute the same elements.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{Dtype, ElementwiseFn, Op};

use crate::compile::fusion::{elementwise, is_fusible, is_worthwhile};
use crate::program::{Action, Block, Program, Slot, Step, Strategy};
use crate::tuning::{MAX_REMATERIALIZED_READERS, MAX_REMATERIALIZED_STEPS};

/// The maximum number of steps through which the pass follows a pointer to its origin. These steps
/// are additions and the `arange`.
const MAX_DEPTH: usize = 6;

/// The indices of steps in a block, ascending.
type Steps = SmallVec<[usize; MAX_REMATERIALIZED_STEPS]>;

/// Copies cheap steps to the readers of their results, in blocks without nests. The caller has to
/// recompute last uses.
pub(crate) fn rematerialize(program: &mut Program) {
    let uses = program.use_counts();
    let mut blocks = std::mem::take(&mut program.blocks);
    let steps = || blocks.iter().flat_map(|block| &block.steps);
    let pointers: FxHashMap<Slot, Step> = steps()
        .filter(|step| is_pointer_arithmetic(step))
        .map(|step| (step.result(), step.clone()))
        .collect();
    for (id, block) in blocks.iter_mut().enumerate() {
        if id != program.preamble as usize && !block.has_nests() {
            let copies = Candidates::new(program, &pointers, &uses, &block.steps).copies();
            apply(program, block, copies);
        }
    }
    program.blocks = blocks;
}

fn is_pointer_arithmetic(step: &Step) -> bool {
    let add = ElementwiseFn::Add;
    matches!(step.op(), Some(Op::Arange { .. } | Op::PtrAdd {})) || elementwise(step) == Some(add)
}

/// The steps to copy before the step `reader`. The reader reads the result of the last of these
/// steps.
struct Copies {
    reader: usize,
    steps: Steps,
}

/// Inserts copies of steps before their readers.
fn apply(program: &mut Program, block: &mut Block, mut copies: Vec<Copies>) {
    copies.sort_by_key(|copies| copies.reader);
    let mut copies = copies.into_iter().peekable();
    let steps = std::mem::take(&mut block.steps);
    for (index, step) in steps.iter().enumerate() {
        let mut step = step.clone();
        while let Some(Copies { steps: copied, .. }) = copies.next_if(|next| next.reader == index) {
            let mut names: SmallVec<[(Slot, Slot); MAX_REMATERIALIZED_STEPS]> = SmallVec::new();
            let rename = |step: &mut Step, names: &[(Slot, Slot)]| {
                for operand in &mut step.operands {
                    if let Some((_, fresh)) = names.iter().find(|(slot, _)| *slot == operand.slot) {
                        operand.slot = *fresh;
                    }
                }
            };
            for &number in &copied {
                let mut copy = steps[number].clone();
                rename(&mut copy, &names);
                let (slot, fresh) = (copy.results[0], program.slots.len() as Slot);
                program.slots.push(program.slots[slot as usize]);
                copy.results[0] = fresh;
                names.push((slot, fresh));
                block.steps.push(copy);
            }
            // The reader now reads the result of the last copy.
            rename(&mut step, &names[names.len() - 1..]);
        }
        block.steps.push(step);
    }
}

/// The facts about a block from which the pass selects the steps to copy.
struct Candidates<'a> {
    program: &'a Program,
    /// The steps of the whole program that may compute pointers or offsets (`arange` and
    /// additions), by result.
    pointers: &'a FxHashMap<Slot, Step>,
    /// The number of reads of each slot in the whole program.
    uses: &'a [u32],
    steps: &'a [Step],
    /// The number of steps with side effects before each step.
    side_effects: Vec<usize>,
    /// Def-use chains: the defining step of a slot, and the steps that read it.
    definitions: FxHashMap<Slot, usize>,
    readers: FxHashMap<Slot, SmallVec<[usize; 4]>>,
}

impl<'a> Candidates<'a> {
    fn new(
        program: &'a Program,
        pointers: &'a FxHashMap<Slot, Step>,
        uses: &'a [u32],
        steps: &'a [Step],
    ) -> Self {
        let (mut definitions, mut readers) = (FxHashMap::default(), FxHashMap::default());
        let (mut side_effects, mut count) = (Vec::with_capacity(steps.len()), 0);
        for (index, step) in steps.iter().enumerate() {
            side_effects.push(count);
            count += usize::from(step.has_side_effects());
            definitions.extend(step.results.iter().map(|&slot| (slot, index)));
            for operand in &step.operands {
                let readers: &mut SmallVec<[usize; 4]> = readers.entry(operand.slot).or_default();
                readers.push(index);
            }
        }
        Self { program, pointers, uses, steps, side_effects, definitions, readers }
    }

    fn copies(&self) -> Vec<Copies> {
        let mut copies = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let Some(steps) = self.cheap(index, MAX_REMATERIALIZED_STEPS) else { continue };
            let slot = step.result();
            let Some(readers) = self.readers.get(&slot) else { continue };
            // Checks that all reads of the slot are in this block, before the next step with side
            // effects.
            let is_known = readers.len() == self.uses[slot as usize] as usize
                && readers.iter().all(|&reader| self.side_effects[reader] == self.side_effects[index]);
            let mut readers = readers.clone();
            readers.dedup();
            let fits = readers.len() <= MAX_REMATERIALIZED_READERS
                && readers.iter().all(|&reader| self.is_fusible(reader));
            if is_known && fits {
                let others = readers.iter().skip(1);
                copies.extend(others.map(|&reader| Copies { reader, steps: steps.clone() }));
            }
        }
        copies
    }

    /// Returns the steps that compute the result of a step from memory: a contiguous load, then
    /// cheap functions. The step itself is last.
    ///
    /// Returns `None` if more than `most` steps compute the result, or if a fused loop would not
    /// execute these steps. Also returns `None` if a side effect is between the steps. Also returns
    /// `None` if a function is not cheap, or has another tile as an operand. The condition of a
    /// `select` may be another tile.
    fn cheap(&self, index: usize, most: usize) -> Option<Steps> {
        let step = &self.steps[index];
        if most == 0 {
            return None;
        }
        if self.is_contiguous_load(step) {
            return Some(SmallVec::from_slice(&[index]));
        }
        let &[result] = &step.results[..] else { return None };
        let function = elementwise(step)?;
        let ty = self.program.ty(result);
        if !is_cheap(function) || ty.dtype() != Dtype::F32 || !is_worthwhile(ty.elements()) {
            return None;
        }
        let conditions = usize::from(function == ElementwiseFn::Select);
        let mut tiles = step.operands[conditions..].iter().filter(|operand| !self.is_scalar(operand.slot));
        let (tile, None) = (tiles.next()?, tiles.next()) else { return None };
        let definition = *self.definitions.get(&tile.slot)?;
        if self.side_effects[definition] != self.side_effects[index] {
            return None;
        }
        let mut steps = self.cheap(definition, most - 1)?;
        steps.push(index);
        Some(steps)
    }

    fn is_scalar(&self, slot: Slot) -> bool {
        self.program.ty(slot).is_scalar()
    }

    /// Returns whether a step is a load that a fused loop can probably perform. The load is not
    /// volatile, and its result is a 1-D binary32 tile that is large enough for a fused loop. Its
    /// addresses are an `arange` plus scalars, and its `other`, if any, is a scalar.
    fn is_contiguous_load(&self, step: &Step) -> bool {
        let (Some(Op::Load { volatile: false, .. }), &[result]) = (step.op(), &step.results[..]) else {
            return false;
        };
        let ty = self.program.ty(result);
        ty.dtype() == Dtype::F32
            && !ty.is_pointer()
            && ty.shape().len() == 1
            && is_worthwhile(ty.elements())
            && step.operands.get(2).is_none_or(|other| self.is_scalar(other.slot))
            && self.is_contiguous(step.operands[0].slot, MAX_DEPTH)
    }

    /// Returns whether pointers or offsets are an `arange` plus scalars, computed by at most
    /// `depth` steps.
    fn is_contiguous(&self, slot: Slot, depth: usize) -> bool {
        let Some(step) = self.pointers.get(&slot).filter(|_| depth > 0) else { return false };
        match step.operands[..] {
            [x, y] if self.is_scalar(x.slot) => self.is_contiguous(y.slot, depth - 1),
            [x, y] if self.is_scalar(y.slot) => self.is_contiguous(x.slot, depth - 1),
            _ => matches!(step.op(), Some(Op::Arange { .. })),
        }
    }

    /// Returns whether a step is a reduction or a function that may be a member of a fused group.
    fn is_fusible(&self, index: usize) -> bool {
        let step = &self.steps[index];
        matches!(step.action, Action::Reduce { strategy: Strategy::Kernel(_), .. })
            || elementwise(step).is_some_and(is_fusible)
    }
}

/// Returns whether a function takes about as long as a load or a store.
fn is_cheap(function: ElementwiseFn) -> bool {
    use ElementwiseFn as F;
    matches!(function, F::Add | F::Sub | F::Mul | F::Neg | F::Abs | F::Select)
}
