//! Fusion: steps on binary32 tiles that follow each other become one loop, in which elements stay in registers.
//!
//! A chain begins with a load or with the first operand of a function and goes on with functions that take what the one
//! before gave, to reductions and to a store. Its steps stay in the program behind it: if the values turn out not to
//! be as the loop needs them (dense or uniform), the steps are executed one after the other. What the loop cannot
//! read or store itself (a strided load, say) it leaves to the step.
//!
//! Steps change places for it, but never a load and a store, nor anything with an effect.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir::{Dtype, ElementwiseFn};

use crate::compile::liveness;
use crate::compile::program::{Action, Block, Chain, How, Link, Program, Slot, Step, Use};
use crate::run::kernels::chain::{BLOCK, Binary, Function, Total, Unary};
use crate::run::kernels::reduce::Combine;

/// A chain has at most so many steps, and looks at most so far for what its operands depend on.
const MAX_MEMBERS: usize = 32;
const MAX_VISITED: usize = 64;

/// Chains do not go beyond so many steps, so that the time to find them grows with the number of steps alone.
const MAX_WINDOW: usize = 256;

/// Tiles of fewer elements are not worth a chain.
const MIN_ELEMENTS: usize = 4 * BLOCK;

/// Tiles of more bytes are let go of as soon as nobody reads them, so that others take their place in the caches.
const MAX_KEPT: usize = 8192;

/// Puts chains before the steps that they stand for. The last uses are marked anew.
pub(crate) fn fuse(program: &mut Program) {
    let mut uses = vec![0; program.slots.len()];
    for block in &program.blocks {
        let operands = block.steps.iter().flat_map(|step| &step.operands);
        for operand in operands.chain(&block.yields) {
            uses[operand.slot as usize] += 1;
        }
    }
    let mut blocks = std::mem::take(&mut program.blocks);
    for (id, block) in blocks.iter_mut().enumerate() {
        if id != program.preamble as usize {
            fuse_block(program, &uses, block);
        }
    }
    program.blocks = blocks;
    liveness::mark(program);
    let kept = kept(program);
    let types = (&program.types, &program.slots);
    for block in &mut program.blocks {
        note_frees(block, |slot| {
            let ty = &types.0[types.1[slot as usize] as usize];
            // Pointers are hardly ever written out.
            let is_light = ty.is_scalar() || ty.is_pointer() && ty.bytes() <= MAX_KEPT;
            !is_light && !kept.contains(&slot)
        });
    }
}

/// Small tiles that chains write: their slots keep them for the next program of the grid.
fn kept(program: &Program) -> FxHashSet<Slot> {
    let chains = program.blocks.iter().flat_map(|block| &block.steps).filter_map(|step| match &step.action {
        Action::Chain(chain) => Some(chain),
        // tidy: wildcard because other steps are no chains.
        _ => None,
    });
    let written = chains.flat_map(|chain| chain.written.iter().copied());
    written.filter(|&slot| program.ty(slot).bytes() <= MAX_KEPT).collect()
}

/// What members read for the last time, the chain lets go of in their place, if it is a tile that is not kept.
fn note_frees(block: &mut Block, is_freed: impl Fn(Slot) -> bool) {
    for index in 0..block.steps.len() {
        let (before, after) = block.steps.split_at_mut(index + 1);
        let Action::Chain(chain) = &mut before[index].action else { continue };
        for member in &after[..chain.members] {
            let last = member.operands.iter().filter(|operand| operand.last).map(|operand| operand.slot);
            chain.frees.extend(last.chain(member.kills.iter().copied()).filter(|&slot| is_freed(slot)));
        }
        chain.frees.sort_unstable();
        chain.frees.dedup();
    }
}

/// Fuses between steps that have an effect. A store may end a chain.
fn fuse_block(program: &Program, uses: &[u32], block: &mut Block) {
    let mut fused = Vec::with_capacity(block.steps.len());
    let mut window = Vec::new();
    for step in block.steps.drain(..) {
        let has_effect = !step.action.is_pure() && !matches!(step.action, Action::Load(_));
        window.push(step);
        if has_effect || window.len() == MAX_WINDOW {
            fuse_window(program, uses, &mut window);
            fused.append(&mut window);
        }
    }
    fuse_window(program, uses, &mut window);
    fused.append(&mut window);
    block.steps = fused;
}

fn fuse_window(program: &Program, uses: &[u32], steps: &mut Vec<Step>) {
    let mut index = 0;
    while index < steps.len() {
        let window = Window::new(program, uses, steps);
        let found = (index..steps.len()).find_map(|head| window.chain_from(head));
        let Some(found) = found else { return };
        index = found.rearrange(steps);
    }
}

/// Steps of which only the last one may have an effect.
struct Window<'a> {
    program: &'a Program,
    /// How often the whole program reads each slot.
    uses: &'a [u32],
    steps: &'a [Step],
    /// The step that defines a slot, and those that read it; for slots that are defined here.
    definitions: FxHashMap<Slot, usize>,
    readers: FxHashMap<Slot, SmallVec<[usize; 2]>>,
}

/// A chain in the making. Members are known by their place in the window.
struct Draft {
    chain: Chain,
    members: SmallVec<[usize; 16]>,
    /// What the last link gave.
    current: Slot,
}

/// A function that goes on with a chain.
#[derive(Clone, Copy)]
enum Next {
    Apply(Binary, Operand),
    Itself(Binary),
    Alone(Unary),
    Select(Use, Use),
}

/// Where a function finds the operand that is not what the last link gave.
#[derive(Clone, Copy)]
enum Operand {
    Slot(Use),
    Load(usize),
    Rows(Use, usize),
    Written(usize),
}

impl Draft {
    fn link(&mut self, next: Next) {
        let link = match next {
            Next::Apply(function, Operand::Slot(operand)) => Link::Slot(function, operand),
            Next::Apply(function, Operand::Load(member)) => Link::Load(function, member),
            Next::Apply(function, Operand::Rows(operand, shift)) => Link::Rows(function, operand, shift),
            Next::Apply(function, Operand::Written(number)) => Link::Written(function, number),
            Next::Itself(Binary::Mul) => Link::Alone(Unary::Square),
            Next::Itself(function) => Link::Itself(function),
            Next::Alone(function) => Link::Alone(function),
            Next::Select(condition, other) => Link::Select(condition, other),
        };
        self.chain.links.push(link);
    }
}

impl<'a> Window<'a> {
    fn new(program: &'a Program, uses: &'a [u32], steps: &'a [Step]) -> Self {
        let mut window =
            Self { program, uses, steps, definitions: FxHashMap::default(), readers: FxHashMap::default() };
        for (index, step) in steps.iter().enumerate() {
            for operand in &step.operands {
                let readers = window.readers.entry(operand.slot).or_default();
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
            }
            window.definitions.extend(step.results.iter().map(|&slot| (slot, index)));
        }
        window
    }

    /// The chain that begins with a step.
    fn chain_from(&self, head: usize) -> Option<Found> {
        let mut draft = self.begin(head)?;
        while draft.members.len() < MAX_MEMBERS && self.go_on(&mut draft) {}
        if draft.members.len() < 2 {
            return None;
        }
        draft.members.sort_unstable();
        Some(Found { site: self.steps[head].site, draft })
    }

    fn begin(&self, head: usize) -> Option<Draft> {
        let step = &self.steps[head];
        let &[result] = &step.results[..] else { return None };
        let ty = self.program.ty(result);
        if ty.is_pointer() || ty.dtype() != Dtype::F32 || !is_worthwhile(ty.elements()) {
            return None;
        }
        let mut draft = Draft {
            chain: Chain { elements: ty.elements(), ..Chain::default() },
            members: SmallVec::from_slice(&[head]),
            current: result,
        };
        if matches!(step.action, Action::Load(_)) {
            // A function that reads it alone begins the chain in its place.
            let readers = self.readers.get(&result).map_or(&[][..], |readers| &readers[..]);
            if self.uses[result as usize] == 1 && readers.iter().any(|&reader| self.is_function(reader)) {
                return None;
            }
            draft.link(Next::Apply(Binary::Take, Operand::Load(head)));
            return Some(draft);
        }
        if !self.is_function(head) {
            return None;
        }
        // The chain begins with an operand, and the step is the first one that goes on.
        draft.members.clear();
        let place = usize::from(matches!(step.action, Action::Elementwise(ElementwiseFn::Select)));
        let first = step.operands[place];
        let (start, member) = self.operand(&draft, first)?;
        draft.members.extend(member);
        draft.link(Next::Apply(Binary::Take, start));
        draft.current = first.slot;
        self.apply(&mut draft, head).then_some(draft)
    }

    /// Whether a step is a function that a link computes.
    fn is_function(&self, step: usize) -> bool {
        match self.steps[step].action {
            Action::Elementwise(ElementwiseFn::Select) => true,
            Action::Elementwise(function) => Function::of(function).is_some(),
            // tidy: wildcard because other steps are not functions.
            _ => false,
        }
    }

    /// Adds the steps that read what the last link gave: reductions, and one that goes on. False at the end.
    fn go_on(&self, draft: &mut Draft) -> bool {
        let current = draft.current;
        let readers = self.readers.get(&current).map_or(&[][..], |readers| &readers[..]);
        let fresh = || readers.iter().copied().filter(|reader| !draft.members.contains(reader));
        let total = fresh().find(|&reader| self.total(draft, reader).is_some());
        let total = total.filter(|_| draft.chain.total.is_none());
        let next = fresh().find(|&reader| self.can_apply(draft, reader));
        let store = fresh().find(|&reader| next.is_none() && self.can_store(draft, reader));
        let occurrences = |reader: usize| {
            self.steps[reader].operands.iter().filter(|operand| operand.slot == current).count() as u32
        };
        let consumed: u32 = [total, next, store].into_iter().flatten().map(occurrences).sum();
        let kind = total.and_then(|reader| self.total(draft, reader));
        // A maximum may have to be found again: from there, or by all steps if nothing else comes of the last link.
        let is_end = next.is_none() && store.is_none();
        if self.uses[current as usize] > consumed || (kind == Some(Total::Max) && !is_end) {
            draft.chain.links.push(Link::Write(draft.chain.written.len()));
            draft.chain.written.push(current);
        }
        if let (Some(reader), Some(kind)) = (total, kind) {
            draft.chain.links.push(Link::Total(kind));
            draft.chain.total = Some((kind, reader));
            draft.members.push(reader);
        }
        if let Some(reader) = store {
            draft.chain.links.push(Link::Write(draft.chain.written.len()));
            draft.chain.store = Some(reader);
            draft.members.push(reader);
        }
        next.is_some_and(|reader| self.apply(draft, reader))
    }

    /// Whether a step reduces what the last link gave to a scalar, and how.
    fn total(&self, draft: &Draft, reader: usize) -> Option<Total> {
        let step = &self.steps[reader];
        let Action::Reduce(reduce) = &step.action else { return None };
        let from = &self.program.types[step.operands[0].ty as usize];
        if from.shape().len() != 1 || from.elements() != draft.chain.elements {
            return None;
        }
        match reduce.how {
            How::Kernel(Combine::Sum) => Some(Total::Sum),
            How::Kernel(Combine::Max | Combine::MaxNan) => Some(Total::Max),
            How::Kernel(
                Combine::Product | Combine::Min | Combine::MinNan | Combine::And | Combine::Or | Combine::Xor,
            )
            | How::Tiles(_)
            | How::Elements(_) => None,
        }
    }

    /// Whether a step stores what the last link gave, and nothing that depends on members is loaded before.
    fn can_store(&self, draft: &Draft, reader: usize) -> bool {
        let step = &self.steps[reader];
        let [pointer, value, mask @ ..] = &step.operands[..] else { return false };
        matches!(step.action, Action::Store)
            && value.slot == draft.current
            && self.program.types[value.ty as usize].elements() == draft.chain.elements
            && !self.depends(draft, pointer.slot)
            && mask.iter().all(|mask| !self.depends(draft, mask.slot))
            && (draft.members.iter().copied().min().unwrap_or(0)..reader).all(|index| {
                let step = &self.steps[index];
                !matches!(step.action, Action::Load(_))
                    || draft.members.contains(&index)
                    || !step.operands.iter().any(|operand| self.depends(draft, operand.slot))
            })
    }

    fn can_apply(&self, draft: &Draft, reader: usize) -> bool {
        self.link(draft, reader).is_some()
    }

    /// Adds the link of a function. False if there is none.
    fn apply(&self, draft: &mut Draft, reader: usize) -> bool {
        let Some((next, member)) = self.link(draft, reader) else { return false };
        draft.members.extend(member);
        draft.link(next);
        draft.members.push(reader);
        draft.current = self.steps[reader].results[0];
        true
    }

    /// The link of a function that takes what the last link gave, and the step that becomes a member with it.
    fn link(&self, draft: &Draft, reader: usize) -> Option<(Next, Option<usize>)> {
        let step = &self.steps[reader];
        let Action::Elementwise(function) = step.action else { return None };
        let ty = self.program.ty(step.results[0]);
        if ty.dtype() != Dtype::F32 || ty.elements() != draft.chain.elements {
            return None;
        }
        let is_current = |operand: &Use| operand.slot == draft.current;
        if function == ElementwiseFn::Select {
            let &[condition, chosen, other] = &step.operands[..] else { return None };
            let others = [condition, other].iter().any(|operand| self.depends(draft, operand.slot));
            let fits = is_current(&chosen) && !is_current(&condition) && !is_current(&other) && !others;
            return fits.then_some((Next::Select(condition, other), None));
        }
        let (function, operand) = match (Function::of(function)?, &step.operands[..]) {
            (Function::Unary(function), [x]) if is_current(x) => return Some((Next::Alone(function), None)),
            (Function::Binary(function, _), [x, y]) if is_current(x) && is_current(y) => {
                return Some((Next::Itself(function), None));
            }
            (Function::Binary(function, _), [x, y]) if is_current(x) => (function, *y),
            (Function::Binary(_, swapped), [x, y]) if is_current(y) => (swapped, *x),
            _ => return None,
        };
        let (operand, member) = self.operand(draft, operand)?;
        Some((Next::Apply(function, operand), member))
    }

    /// Where a link finds an operand that is not what the last one gave, and the step that becomes a member with it.
    fn operand(&self, draft: &Draft, operand: Use) -> Option<(Operand, Option<usize>)> {
        if let Some(number) = draft.chain.written.iter().position(|&slot| slot == operand.slot) {
            return Some((Operand::Written(number), None));
        }
        if self.depends(draft, operand.slot) {
            return None;
        }
        let from_slot = Some((Operand::Slot(operand), None));
        let Some(&definition) = self.definitions.get(&operand.slot) else { return from_slot };
        let step = &self.steps[definition];
        let to = self.program.ty(operand.slot);
        if self.uses[operand.slot as usize] != 1 || to.elements() != draft.chain.elements {
            return from_slot;
        }
        match step.action {
            Action::Load(_) => Some((Operand::Load(definition), Some(definition))),
            Action::Broadcast => {
                let from = self.program.types[step.operands[0].ty as usize].shape();
                let (Some((1, outer)), Some((&extent, all))) = (from.split_last(), to.shape().split_last())
                else {
                    return from_slot;
                };
                let blocks = extent as usize / BLOCK;
                if outer != all || blocks * BLOCK != extent as usize || !blocks.is_power_of_two() {
                    return from_slot;
                }
                let rows = Operand::Rows(step.operands[0], blocks.trailing_zeros() as usize);
                Some((rows, Some(definition)))
            }
            // tidy: wildcard because the value of any other step is read from its slot.
            _ => from_slot,
        }
    }

    /// Whether a slot depends on a member. True as well if that takes long to find out.
    fn depends(&self, draft: &Draft, slot: Slot) -> bool {
        let mut open: SmallVec<[Slot; 16]> = SmallVec::from_slice(&[slot]);
        let mut visited = 0;
        while let Some(slot) = open.pop() {
            let Some(definition) = self.definitions.get(&slot) else { continue };
            visited += 1;
            if visited > MAX_VISITED || draft.members.contains(definition) {
                return true;
            }
            open.extend(self.steps[*definition].operands.iter().map(|operand| operand.slot));
        }
        false
    }
}

/// Whether tiles of so many elements are worth a chain.
pub(crate) fn is_worthwhile(elements: usize) -> bool {
    elements >= MIN_ELEMENTS && elements.is_multiple_of(BLOCK)
}

/// A chain that was found.
struct Found {
    draft: Draft,
    /// The site of its first step.
    site: u32,
}

impl Found {
    /// Moves the members to the place of the last one, and the chain before them. What depends on members comes after
    /// them. Gives where to go on.
    fn rearrange(self, steps: &mut Vec<Step>) -> usize {
        let Draft { mut chain, members, .. } = self.draft;
        let number = |place: &mut usize| *place = members.binary_search(place).expect("it is a member");
        for link in &mut chain.links {
            if let Link::Load(_, place) = link {
                number(place);
            }
        }
        chain.total.iter_mut().for_each(|(_, place)| number(place));
        chain.store.iter_mut().for_each(number);
        let (first, last) = (members[0], members[members.len() - 1]);
        let rest = steps.split_off(last + 1);
        let range: Vec<Step> = steps.drain(first..).collect();
        let mut made: SmallVec<[Slot; 16]> = SmallVec::new();
        let (mut moved, mut after) = (Vec::new(), Vec::new());
        for (offset, step) in range.into_iter().enumerate() {
            let is_member = members.binary_search(&(first + offset)).is_ok();
            if is_member || step.operands.iter().any(|operand| made.contains(&operand.slot)) {
                made.extend(step.results.iter().copied());
                (if is_member { &mut moved } else { &mut after }).push(step);
            } else {
                steps.push(step);
            }
        }
        chain.members = moved.len();
        let action = Action::Chain(Box::new(chain));
        steps.push(Step {
            action,
            operands: SmallVec::new(),
            results: SmallVec::new(),
            kills: SmallVec::new(),
            site: self.site,
        });
        steps.append(&mut moved);
        let next = steps.len();
        steps.append(&mut after);
        steps.extend(rest);
        next
    }
}
