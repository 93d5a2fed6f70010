//! Repeated steps: each of the steps that read a tile makes it anew, where that is cheaper than to keep it.
//!
//! Steps before and after a reduction cannot be of one chain (see [`crate::compile::fuse`]), and what both of them read would be
//! written to a tile by the first chain and read from there by the second one. Memory that was read a moment ago is as
//! near as that tile, and a sum or a product takes no longer than a store. So loads of runs of memory are repeated, and
//! cheap functions of them. No effect is between the first one and the last one, so they give the same.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{Dtype, ElementwiseFn};

use crate::compile::fuse::is_worthwhile;
use crate::compile::program::{Action, Block, How, Program, Slot, Step};
use crate::run::kernels::chain::Function;

/// What has more readers is made once.
const MAX_READERS: usize = 6;

/// So many steps at the most are repeated for a reader.
const MAX_STEPS: usize = 3;

/// How many additions a pointer is followed through.
const MAX_DEPTH: usize = 6;

/// The numbers of steps in a block, ascending.
type Steps = SmallVec<[usize; MAX_STEPS]>;

/// Repeats steps. Last uses have to be marked anew afterwards.
pub(crate) fn repeat(program: &mut Program) {
    let mut blocks = std::mem::take(&mut program.blocks);
    let steps = || blocks.iter().flat_map(|block| &block.steps);
    let pointers: FxHashMap<Slot, Step> = steps()
        .filter(|step| is_pointer_arithmetic(&step.action))
        .map(|step| (step.results[0], step.clone()))
        .collect();
    let mut uses = vec![0; program.slots.len()];
    let yields = blocks.iter().flat_map(|block| &block.yields);
    steps()
        .flat_map(|step| &step.operands)
        .chain(yields)
        .for_each(|operand| uses[operand.slot as usize] += 1);
    for (id, block) in blocks.iter_mut().enumerate() {
        if id != program.preamble as usize {
            let repeated = Repeater::new(program, &pointers, &uses, &block.steps).repeated();
            apply(program, block, repeated);
        }
    }
    program.blocks = blocks;
}

fn is_pointer_arithmetic(action: &Action) -> bool {
    matches!(action, Action::Arange(_) | Action::PtrAdd | Action::Elementwise(ElementwiseFn::Add))
}

/// Steps that are repeated for a reader of the last one.
struct Repeated {
    reader: usize,
    steps: Steps,
}

/// Puts copies of steps before their readers.
fn apply(program: &mut Program, block: &mut Block, mut repeated: Vec<Repeated>) {
    repeated.sort_by_key(|repeated| repeated.reader);
    let mut repeated = repeated.into_iter().peekable();
    let steps = std::mem::take(&mut block.steps);
    for (index, step) in steps.iter().enumerate() {
        let mut step = step.clone();
        while let Some(Repeated { steps: copied, .. }) = repeated.next_if(|next| next.reader == index) {
            let mut names: SmallVec<[(Slot, Slot); MAX_STEPS]> = SmallVec::new();
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
            // What the reader takes is the last one.
            rename(&mut step, &names[names.len() - 1..]);
        }
        block.steps.push(step);
    }
}

/// Looks for what to repeat in a block.
struct Repeater<'a> {
    program: &'a Program,
    /// The steps of the whole program that make pointers.
    pointers: &'a FxHashMap<Slot, Step>,
    /// How often the whole program reads each slot.
    uses: &'a [u32],
    steps: &'a [Step],
    /// How many effects there are before each step.
    effects: Vec<usize>,
    /// The step that defines a slot, and those that read it.
    definitions: FxHashMap<Slot, usize>,
    readers: FxHashMap<Slot, SmallVec<[usize; 4]>>,
}

impl<'a> Repeater<'a> {
    fn new(
        program: &'a Program,
        pointers: &'a FxHashMap<Slot, Step>,
        uses: &'a [u32],
        steps: &'a [Step],
    ) -> Self {
        let (mut definitions, mut readers) = (FxHashMap::default(), FxHashMap::default());
        let (mut effects, mut count) = (Vec::with_capacity(steps.len()), 0);
        for (index, step) in steps.iter().enumerate() {
            effects.push(count);
            count += usize::from(!step.action.is_pure() && !matches!(step.action, Action::Load(_)));
            definitions.extend(step.results.iter().map(|&slot| (slot, index)));
            for operand in &step.operands {
                let readers: &mut SmallVec<[usize; 4]> = readers.entry(operand.slot).or_default();
                readers.push(index);
            }
        }
        Self { program, pointers, uses, steps, effects, definitions, readers }
    }

    fn repeated(&self) -> Vec<Repeated> {
        let mut repeated = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let Some(steps) = self.cheap(index, MAX_STEPS) else { continue };
            let slot = step.results[0];
            let Some(readers) = self.readers.get(&slot) else { continue };
            // All uses are reads of steps before the next effect.
            let is_known = readers.len() == self.uses[slot as usize] as usize
                && readers.iter().all(|&reader| self.effects[reader] == self.effects[index]);
            let mut readers = readers.clone();
            readers.dedup();
            let fits =
                readers.len() <= MAX_READERS && readers.iter().all(|&reader| self.is_in_chains(reader));
            if is_known && fits {
                let others = readers.iter().skip(1);
                repeated.extend(others.map(|&reader| Repeated { reader, steps: steps.clone() }));
            }
        }
        repeated
    }

    /// The steps that give what a step gives, that one among them: a load, and cheap functions of it. None if there are
    /// others or more than `most`.
    fn cheap(&self, index: usize, most: usize) -> Option<Steps> {
        let step = &self.steps[index];
        if most == 0 {
            return None;
        }
        if self.is_load_of_run(step) {
            return Some(SmallVec::from_slice(&[index]));
        }
        let &[result] = &step.results[..] else { return None };
        let Action::Elementwise(function) = step.action else { return None };
        let ty = self.program.ty(result);
        if !is_cheap(function) || ty.dtype() != Dtype::F32 || !is_worthwhile(ty.elements()) {
            return None;
        }
        let conditions = usize::from(function == ElementwiseFn::Select);
        let mut tiles = step.operands[conditions..].iter().filter(|operand| !self.is_scalar(operand.slot));
        let (tile, None) = (tiles.next()?, tiles.next()) else { return None };
        let definition = *self.definitions.get(&tile.slot)?;
        if self.effects[definition] != self.effects[index] {
            return None;
        }
        let mut steps = self.cheap(definition, most - 1)?;
        steps.push(index);
        Some(steps)
    }

    fn is_scalar(&self, slot: Slot) -> bool {
        self.program.ty(slot).is_scalar()
    }

    /// Whether a step loads binary32 elements that are likely to be a run of memory.
    fn is_load_of_run(&self, step: &Step) -> bool {
        let (Action::Load(false), &[result]) = (&step.action, &step.results[..]) else { return false };
        let ty = self.program.ty(result);
        ty.dtype() == Dtype::F32
            && !ty.is_pointer()
            && ty.shape().len() == 1
            && is_worthwhile(ty.elements())
            && step.operands.get(2).is_none_or(|other| self.is_scalar(other.slot))
            && self.is_run(step.operands[0].slot, MAX_DEPTH)
    }

    /// Whether elements are those of a range, moved by the same number.
    fn is_run(&self, slot: Slot, depth: usize) -> bool {
        let Some(step) = self.pointers.get(&slot).filter(|_| depth > 0) else { return false };
        match step.operands[..] {
            [x, y] if self.is_scalar(x.slot) => self.is_run(y.slot, depth - 1),
            [x, y] if self.is_scalar(y.slot) => self.is_run(x.slot, depth - 1),
            _ => matches!(step.action, Action::Arange(_)),
        }
    }

    /// Whether a step may be a member of a chain.
    fn is_in_chains(&self, index: usize) -> bool {
        match &self.steps[index].action {
            Action::Elementwise(ElementwiseFn::Select) => true,
            Action::Elementwise(function) => Function::of(*function).is_some(),
            Action::Reduce(reduce) => matches!(reduce.how, How::Kernel(_)),
            // tidy: wildcard because other steps are not of chains.
            _ => false,
        }
    }
}

/// Whether a function takes about as long as a load or a store.
fn is_cheap(function: ElementwiseFn) -> bool {
    use ElementwiseFn as F;
    matches!(function, F::Add | F::Sub | F::Mul | F::Neg | F::Abs | F::Select)
}
