//! Fuses producer-consumer chains of binary32 steps into loops.
//!
//! For example, a fused loop executes these four steps, and keeps each element in a register:
//!
//! ```text
//! s1 = load s0
//! s2 = mul s1, s9
//! s3 = exp s2
//! store s4, s3
//! ```
//!
//! A group begins with a load or a function, and may end with a reduction and a store. The members
//! remain in the program, after the step of the group. The machine runs the members one by one if
//! the loop does not support an operand, such as an index tile. If only a strided load or store
//! prevents the loop, the machine runs this access outside of the loop.
//!
//! Fusion moves no load across a store, and no step across a step with other side effects.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tilewright_ir::{Dtype, ElementwiseFn, Op};

use crate::compile::liveness;
use crate::program::fused::{BLOCK, Binary, Function, FusedGroup, FusedOp, Reduction, Unary};
use crate::program::{Action, Block, Combine, Program, Slot, Step, Strategy, Use};
use crate::tuning::{MAX_KEPT_BYTES, MIN_FUSED_BLOCKS};

const MAX_MEMBERS: usize = 32;

/// The maximum number of steps that [`Window::depends`] visits.
const MAX_VISITED: usize = 64;

/// The maximum number of steps of a window. It makes the time of fusion linear in the number of
/// steps.
const MAX_WINDOW: usize = 256;

/// Inserts fused groups before their members in blocks without nests, and recomputes last uses.
pub(crate) fn fuse(program: &mut Program) {
    let uses = program.use_counts();
    let mut blocks = std::mem::take(&mut program.blocks);
    for (id, block) in blocks.iter_mut().enumerate() {
        if id != program.preamble as usize && !block.has_nests() {
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
            // Tiles of pointers are rarely dense, so there is rarely a buffer to free.
            let is_light = ty.is_scalar() || ty.is_pointer() && ty.bytes() <= MAX_KEPT_BYTES;
            !is_light && !kept.contains(&slot)
        });
    }
}

/// Returns the outputs of groups that are small tiles. They stay in their slots, so that the next
/// program of the grid reuses their memory.
fn kept(program: &Program) -> FxHashSet<Slot> {
    let groups = program.blocks.iter().flat_map(|block| &block.steps).filter_map(|step| match &step.action {
        Action::Fused(group) => Some(group),
        Action::Op(_)
        | Action::Dot { .. }
        | Action::Reduce { .. }
        | Action::Scan { .. }
        | Action::Map { .. }
        | Action::Sort(_)
        | Action::Assembly(_)
        | Action::Nest(_) => None,
    });
    let outputs = groups.flat_map(|group| group.outputs.iter().copied());
    outputs.filter(|&slot| program.ty(slot).bytes() <= MAX_KEPT_BYTES).collect()
}

/// Records the slots that each group frees in place of its members.
fn note_frees(block: &mut Block, is_freed: impl Fn(Slot) -> bool) {
    for index in 0..block.steps.len() {
        let (before, after) = block.steps.split_at_mut(index + 1);
        let Action::Fused(group) = &mut before[index].action else { continue };
        for member in &after[..group.members] {
            let last = member.operands.iter().filter(|operand| operand.last).map(|operand| operand.slot);
            group.frees.extend(last.chain(member.kills.iter().copied()).filter(|&slot| is_freed(slot)));
        }
        group.frees.sort_unstable();
        group.frees.dedup();
    }
}

/// Fuses the steps of a block in windows of at most `MAX_WINDOW` steps. A step with side effects
/// ends its window.
fn fuse_block(program: &Program, uses: &[u32], block: &mut Block) {
    let mut fused = Vec::with_capacity(block.steps.len());
    let mut window = Vec::new();
    for step in block.steps.drain(..) {
        let is_end = step.has_side_effects();
        window.push(step);
        if is_end || window.len() == MAX_WINDOW {
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
        // No load may move across the store of an earlier group, so the window begins after that
        // store.
        let is_barrier = |step: &Step| !matches!(step.action, Action::Fused(_)) && step.has_side_effects();
        let side_effect = steps[..index].iter().rposition(is_barrier);
        let window = Window::new(program, uses, steps, side_effect.map_or(0, |store| store + 1));
        let found = (index..steps.len()).find_map(|head| window.group_from(head));
        let Some(found) = found else { return };
        index = found.rearrange(steps);
    }
}

/// The steps in which fusion searches for a group. Only the last step may have side effects.
struct Window<'a> {
    program: &'a Program,
    /// The number of reads of each slot in the whole program.
    uses: &'a [u32],
    steps: &'a [Step],
    /// The step that defines each slot of the window, and the steps that read it.
    definitions: FxHashMap<Slot, usize>,
    readers: FxHashMap<Slot, SmallVec<[usize; 2]>>,
}

struct GroupDraft {
    group: FusedGroup,
    members: SmallVec<[usize; 16]>,
    /// The slot of the result of the last op.
    current: Slot,
}

/// An operand of a function, other than the result of the last op.
#[derive(Clone, Copy)]
enum FusedOperand {
    Slot(Use),
    Load(usize),
    Rows(Use, usize),
    Output(usize),
}

impl FusedOperand {
    fn apply(self, function: Binary) -> FusedOp {
        match self {
            FusedOperand::Slot(operand) => FusedOp::Slot(function, operand),
            FusedOperand::Load(member) => FusedOp::Load(function, member),
            FusedOperand::Rows(operand, shift) => FusedOp::Rows(function, operand, shift),
            FusedOperand::Output(number) => FusedOp::Output(function, number),
        }
    }
}

impl GroupDraft {
    fn write(&mut self) {
        self.group.ops.push(FusedOp::Write(self.group.outputs.len()));
    }
}

impl<'a> Window<'a> {
    fn new(program: &'a Program, uses: &'a [u32], steps: &'a [Step], start: usize) -> Self {
        let mut window =
            Self { program, uses, steps, definitions: FxHashMap::default(), readers: FxHashMap::default() };
        for (index, step) in steps.iter().enumerate().skip(start) {
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

    /// Returns the group that begins with a step, if the group has at least two members.
    fn group_from(&self, head: usize) -> Option<CompleteGroup> {
        let mut draft = self.begin(head)?;
        while draft.members.len() < MAX_MEMBERS && self.extend(&mut draft) {}
        if draft.members.len() < 2 {
            return None;
        }
        draft.members.sort_unstable();
        Some(CompleteGroup { site: self.steps[head].site, draft })
    }

    fn begin(&self, head: usize) -> Option<GroupDraft> {
        let step = &self.steps[head];
        let &[result] = &step.results[..] else { return None };
        let ty = self.program.ty(result);
        if ty.is_pointer() || ty.dtype() != Dtype::F32 || !is_worthwhile(ty.elements()) {
            return None;
        }
        let mut draft = GroupDraft {
            group: FusedGroup { elements: ty.elements(), ..FusedGroup::default() },
            members: SmallVec::from_slice(&[head]),
            current: result,
        };
        if step.is_load() {
            // If a function is the only reader, the group begins with that function instead.
            let readers = self.readers.get(&result).map_or(&[][..], |readers| &readers[..]);
            if self.uses[result as usize] == 1 && readers.iter().any(|&reader| self.is_function(reader)) {
                return None;
            }
            draft.group.ops.push(FusedOperand::Load(head).apply(Binary::Take));
            return Some(draft);
        }
        if !self.is_function(head) {
            return None;
        }
        // The group begins with an operand, and the step is its first function.
        draft.members.clear();
        let place = usize::from(elementwise(step) == Some(ElementwiseFn::Select));
        let first = step.operands[place];
        let (start, member) = self.operand(&draft, first)?;
        draft.members.extend(member);
        draft.group.ops.push(start.apply(Binary::Take));
        draft.current = first.slot;
        self.apply(&mut draft, head).then_some(draft)
    }

    fn is_function(&self, step: usize) -> bool {
        elementwise(&self.steps[step]).is_some_and(is_fusible)
    }

    /// Adds the consumers of the last result: a reduction, and a function or a store. Returns true
    /// if it added a function.
    fn extend(&self, draft: &mut GroupDraft) -> bool {
        let current = draft.current;
        let readers = self.readers.get(&current).map_or(&[][..], |readers| &readers[..]);
        let fresh = || readers.iter().copied().filter(|reader| !draft.members.contains(reader));
        let reduce = fresh().find(|&reader| self.reduction(draft, reader).is_some());
        let reduce = reduce.filter(|_| draft.group.reduction.is_none());
        let next = fresh().find(|&reader| self.can_apply(draft, reader));
        let store = fresh().find(|&reader| next.is_none() && self.can_store(draft, reader));
        let occurrences = |reader: usize| {
            self.steps[reader].operands.iter().filter(|operand| operand.slot == current).count() as u32
        };
        let consumed: u32 = [reduce, next, store].into_iter().flatten().map(occurrences).sum();
        let reduction = reduce.and_then(|reader| self.reduction(draft, reader));
        // The loop may fail to find the maximum: see [`Reduction::Max`]. The machine then
        // recomputes the maximum from an output, or runs all members if the maximum ends the group.
        let is_end = next.is_none() && store.is_none();
        if self.uses[current as usize] > consumed || (reduction == Some(Reduction::Max) && !is_end) {
            draft.write();
            draft.group.outputs.push(current);
        }
        if let (Some(reader), Some(reduction)) = (reduce, reduction) {
            draft.group.ops.push(FusedOp::Reduce(reduction));
            draft.group.reduction = Some((reduction, reader));
            draft.members.push(reader);
        }
        if let Some(reader) = store {
            draft.write();
            draft.group.store = Some(reader);
            draft.members.push(reader);
        }
        next.is_some_and(|reader| self.apply(draft, reader))
    }

    fn reduction(&self, draft: &GroupDraft, reader: usize) -> Option<Reduction> {
        let step = &self.steps[reader];
        let Action::Reduce { strategy, .. } = step.action else { return None };
        let from = &self.program.types[step.operands[0].ty as usize];
        if from.shape().len() != 1 || from.elements() != draft.group.elements {
            return None;
        }
        match strategy {
            Strategy::Kernel(Combine::Sum) => Some(Reduction::Sum),
            Strategy::Kernel(Combine::Max | Combine::MaxNan) => Some(Reduction::Max),
            Strategy::Kernel(
                Combine::Product | Combine::Min | Combine::MinNan | Combine::And | Combine::Or | Combine::Xor,
            )
            | Strategy::Tree
            | Strategy::Sequential => None,
        }
    }

    /// Returns whether the group may end with this store. The pointers and the mask must not depend
    /// on members. `rearrange` would move a load after the store if the load depended on a member.
    fn can_store(&self, draft: &GroupDraft, reader: usize) -> bool {
        let step = &self.steps[reader];
        let [pointer, value, mask @ ..] = &step.operands[..] else { return false };
        matches!(step.op(), Some(Op::Store { .. }))
            && value.slot == draft.current
            && self.program.types[value.ty as usize].elements() == draft.group.elements
            && !self.depends(draft, pointer.slot)
            && mask.iter().all(|mask| !self.depends(draft, mask.slot))
            && (draft.members.iter().copied().min().unwrap_or(0)..reader).all(|index| {
                let step = &self.steps[index];
                !step.is_load()
                    || draft.members.contains(&index)
                    || !step.operands.iter().any(|operand| self.depends(draft, operand.slot))
            })
    }

    fn can_apply(&self, draft: &GroupDraft, reader: usize) -> bool {
        self.function(draft, reader).is_some()
    }

    fn apply(&self, draft: &mut GroupDraft, reader: usize) -> bool {
        let Some((op, member)) = self.function(draft, reader) else { return false };
        draft.members.extend(member);
        draft.group.ops.push(op);
        draft.members.push(reader);
        draft.current = self.steps[reader].results[0];
        true
    }

    /// Returns the op that applies the function of a step to the last result. Also returns the step
    /// of the other operand, if it becomes a member.
    fn function(&self, draft: &GroupDraft, reader: usize) -> Option<(FusedOp, Option<usize>)> {
        let step = &self.steps[reader];
        let function = elementwise(step)?;
        let ty = self.program.ty(step.result());
        if ty.dtype() != Dtype::F32 || ty.elements() != draft.group.elements {
            return None;
        }
        let is_current = |operand: &Use| operand.slot == draft.current;
        if function == ElementwiseFn::Select {
            let &[condition, chosen, other] = &step.operands[..] else { return None };
            let others = [condition, other].iter().any(|operand| self.depends(draft, operand.slot));
            let fits = is_current(&chosen) && !is_current(&condition) && !is_current(&other) && !others;
            return fits.then_some((FusedOp::Select(condition, other), None));
        }
        let (function, operand) = match (Function::of(function)?, &step.operands[..]) {
            (Function::Unary(function), [x]) if is_current(x) => {
                return Some((FusedOp::Unary(function), None));
            }
            (Function::Binary(function, _), [x, y]) if is_current(x) && is_current(y) => {
                let square = FusedOp::Unary(Unary::Square);
                let op = if function == Binary::Mul { square } else { FusedOp::Itself(function) };
                return Some((op, None));
            }
            (Function::Binary(function, _), [x, y]) if is_current(x) => (function, *y),
            (Function::Binary(_, swapped), [x, y]) if is_current(y) => (swapped, *x),
            _ => return None,
        };
        let (operand, member) = self.operand(draft, operand)?;
        Some((operand.apply(function), member))
    }

    /// Returns how the loop reads an operand. Also returns the step of the operand, if it becomes a
    /// member.
    fn operand(&self, draft: &GroupDraft, operand: Use) -> Option<(FusedOperand, Option<usize>)> {
        if let Some(number) = draft.group.outputs.iter().position(|&slot| slot == operand.slot) {
            return Some((FusedOperand::Output(number), None));
        }
        if self.depends(draft, operand.slot) {
            return None;
        }
        let from_slot = Some((FusedOperand::Slot(operand), None));
        let Some(&definition) = self.definitions.get(&operand.slot) else { return from_slot };
        let step = &self.steps[definition];
        let to = self.program.ty(operand.slot);
        if self.uses[operand.slot as usize] != 1 || to.elements() != draft.group.elements {
            return from_slot;
        }
        match step.op() {
            Some(Op::Load { .. }) => Some((FusedOperand::Load(definition), Some(definition))),
            Some(Op::Broadcast { .. }) => {
                let from = self.program.types[step.operands[0].ty as usize].shape();
                let (Some((1, outer)), Some((&extent, all))) = (from.split_last(), to.shape().split_last())
                else {
                    return from_slot;
                };
                let blocks = extent as usize / BLOCK;
                if outer != all || blocks * BLOCK != extent as usize || !blocks.is_power_of_two() {
                    return from_slot;
                }
                let rows = FusedOperand::Rows(step.operands[0], blocks.trailing_zeros() as usize);
                Some((rows, Some(definition)))
            }
            // tidy: wildcard because the loop reads the results of other steps from their slots.
            _ => from_slot,
        }
    }

    /// Returns whether a slot depends on a member, or the search visits more than `MAX_VISITED`
    /// steps.
    fn depends(&self, draft: &GroupDraft, slot: Slot) -> bool {
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

pub(crate) fn elementwise(step: &Step) -> Option<ElementwiseFn> {
    match step.op() {
        Some(Op::Elementwise { function }) => Some(*function),
        // tidy: wildcard because no other op is a row of the elementwise table.
        _ => None,
    }
}

pub(crate) fn is_fusible(function: ElementwiseFn) -> bool {
    function == ElementwiseFn::Select || Function::of(function).is_some()
}

/// Returns whether tiles of this size consist of whole blocks and repay the set-up of the loop.
pub(crate) fn is_worthwhile(elements: usize) -> bool {
    elements >= MIN_FUSED_BLOCKS * BLOCK && elements.is_multiple_of(BLOCK)
}

struct CompleteGroup {
    draft: GroupDraft,
    /// The source position of the first step of the group.
    site: u32,
}

impl CompleteGroup {
    /// Moves the members to the position of the last member, and inserts the step of the group
    /// before them. Steps between members that depend on a member follow the members. Returns the
    /// index of the first step after the members.
    fn rearrange(self, steps: &mut Vec<Step>) -> usize {
        let GroupDraft { mut group, members, .. } = self.draft;
        let number = |place: &mut usize| *place = members.binary_search(place).expect("it is a member");
        for op in &mut group.ops {
            if let FusedOp::Load(_, place) = op {
                number(place);
            }
        }
        group.reduction.iter_mut().for_each(|(_, place)| number(place));
        group.store.iter_mut().for_each(number);
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
        group.members = moved.len();
        steps.push(Step {
            action: Action::Fused(Box::new(group)),
            operands: SmallVec::new(),
            results: SmallVec::new(),
            blocks: SmallVec::new(),
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
