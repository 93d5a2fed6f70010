//! Recomputes a tile at a reader if that is cheaper than keeping the tile.
//!
//! A [fused group](crate::compile::fusion) cannot read the result of its own reduction. Assume that
//! a later group reads this result and the reduced tile `x = load(p) * s`. The first group would
//! store `x` and the later group would load it. Loading from `p` and multiplying again takes no
//! longer.
//!
//! The pass copies contiguous loads, and cheap functions of the loaded elements, to each reader
//! after the first. No step with side effects may be between the original and the readers.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{Dtype, ElementwiseFn, Op};

use crate::compile::fusion::{elementwise, is_fusible, is_worthwhile};
use crate::program::{Action, Block, Program, Slot, Step, Strategy};
use crate::tuning::{MAX_REMATERIALIZED_READERS, MAX_REMATERIALIZED_STEPS};

/// The maximum number of steps from a pointer to its `arange`.
const MAX_DEPTH: usize = 6;

/// The indices of steps in a block, ascending.
type Steps = SmallVec<[usize; MAX_REMATERIALIZED_STEPS]>;

/// Copies cheap steps to the readers of their results. The caller recomputes last uses.
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

/// The steps to copy before `reader`, which reads the result of the last of them.
struct Copies {
    reader: usize,
    steps: Steps,
}

/// Inserts the copies before their readers.
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
            // The reader reads the result of the last copy.
            rename(&mut step, &names[names.len() - 1..]);
        }
        block.steps.push(step);
    }
}

/// Facts about a block.
struct Candidates<'a> {
    program: &'a Program,
    /// The steps that may compute pointers or offsets, by result: `arange` and additions.
    pointers: &'a FxHashMap<Slot, Step>,
    /// The number of reads of each slot in the whole program.
    uses: &'a [u32],
    steps: &'a [Step],
    /// The number of steps with side effects before each step.
    side_effects: Vec<usize>,
    /// The step that defines each slot, and the steps that read it.
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
            // All reads of the slot must be in this block, before the next step with side effects.
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
    /// cheap functions.
    ///
    /// Returns `None` if there are more than `most` steps, or if a side effect is between them. A
    /// fused loop must be able to run the steps. The other operands must not be tiles, except the
    /// condition of a `select`.
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

    /// Returns whether a fused loop can probably perform a load. The load is not volatile, its
    /// result is a large 1-D binary32 tile, and its addresses are an `arange` plus scalars. Its
    /// `other` is a scalar.
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

    /// Returns whether at most `depth` steps compute these pointers or offsets from an `arange` and
    /// scalars.
    fn is_contiguous(&self, slot: Slot, depth: usize) -> bool {
        let Some(step) = self.pointers.get(&slot).filter(|_| depth > 0) else { return false };
        match step.operands[..] {
            [x, y] if self.is_scalar(x.slot) => self.is_contiguous(y.slot, depth - 1),
            [x, y] if self.is_scalar(y.slot) => self.is_contiguous(x.slot, depth - 1),
            _ => matches!(step.op(), Some(Op::Arange { .. })),
        }
    }

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
