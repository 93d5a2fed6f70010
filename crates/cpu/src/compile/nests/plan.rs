//! Decides which steps a nest executes, and in which order.
//!
//! A nest executes consecutive steps of a block, its *members*. The lanes of its vectors run along
//! one dimension, such as the columns of a matrix. A *row* has the elements along this dimension.
//! The outer loops run over the rows, and the inner loops over the elements of a row.
//!
//! The inner loops have *phases*. A value that needs the result of a reduction is computed in the
//! next phase. A softmax has three:
//!
//! ```text
//! phase 0: m = max(x)
//! phase 1: s = sum(exp(x - m))
//! phase 2: store exp(x - m) / s
//! ```
//!
//! A later phase recomputes a tile if that is cheap. Otherwise, the nest keeps the tile in scratch
//! memory.
//!
//! An *index tile* has integers or pointers in arithmetic progression along a row, such as `p, p +
//! 4, p + 8`. A base and a stride represent each row.
//!
//! The nest checks all accesses before its first effect. The plan therefore ends before a step
//! whose addresses depend on a reduction, or are elements of a tile. One *scatter*, a store to
//! addresses that are elements of a tile, is allowed. The phase before it checks its addresses, and
//! all stores follow this check.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, ElementwiseFamily as Family, ElementwiseFn, Op,
    OpFamily,
};

mod kept;

use super::axes::{Dimension, Dimensions};
use super::refusal::Refusal;
use super::segments::Alignments;
use super::vectors;
use crate::program::{Action, Program, Slot, Step, Strategy, Use};
use crate::tuning::{MAX_NEST_STEPS, SCAN_BLOCK};
use crate::types::TileType;

/// The structure of the elements of each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// All elements of a row are equal.
    Uniform,
    /// An index tile. Its stride, if known, is in elements, or in bytes for pointers.
    Affine(Option<i64>),
    /// Booleans that are true for one range of indices of the row.
    Range,
    /// Elements that the loop of a phase computes or loads.
    Dense,
}

/// The form of a value, and the first phase that can read it. The result of a reduction in phase p
/// can be read in phase p + 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub form: Form,
    pub phase: usize,
    /// True if the value may differ from row to row.
    pub by_row: bool,
}

/// The dimensions over which a nest iterates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Space {
    /// The dimension and the extent of each loop over rows, outermost first.
    pub rows: Vec<(Dimension, usize)>,
    /// The dimension of the lanes. It is `None` without loops over rows: the lanes of a tile are
    /// then along its only axis of more than one element.
    pub lane: Option<Dimension>,
    /// The length of a segment, if each row is one of the [`segments`](super::segments) of the
    /// dimension of the lanes. The last entry of `rows` is then that dimension, with the number of
    /// segments.
    pub segment: Option<usize>,
}

impl Space {
    /// Returns the space without loops over rows.
    pub fn line() -> Self {
        Self { rows: Vec::new(), lane: None, segment: None }
    }

    /// Returns the space of a tile. Its lanes are along the last axis of more than one element.
    /// Returns `None` if there is no such axis, or if two axes have the same dimension.
    pub fn of_tile(program: &Program, dimensions: &Dimensions, slot: Slot) -> Option<Self> {
        let mut rows: Vec<(Dimension, usize)> = Vec::new();
        for (axis, &extent) in program.ty(slot).shape().iter().enumerate().filter(|(_, extent)| **extent > 1)
        {
            let dimension = dimensions.of(slot, axis)?;
            if rows.iter().any(|(other, _)| *other == dimension) {
                return None;
            }
            rows.push((dimension, extent as usize));
        }
        let (lane, _) = rows.pop()?;
        Some(Self { rows, lane: Some(lane), segment: None })
    }
}

/// The step that defines each slot, and facts about slots.
pub(super) struct Definitions<'p> {
    program: &'p Program,
    steps: FxHashMap<Slot, &'p Step>,
    /// The slots that a nest computes but does not write. No other nest can read them.
    pub unset: FxHashSet<Slot>,
    /// The operands of `expand_dims`, which are rows or columns of a larger tile.
    expanded: FxHashSet<Slot>,
    /// The first value and the increment of each loop counter.
    pub counters: FxHashMap<Slot, [Slot; 2]>,
    pub alignments: Alignments,
}

impl<'p> Definitions<'p> {
    pub fn new(program: &'p Program) -> Self {
        let steps = program.blocks.iter().flat_map(|block| &block.steps);
        let expands = |step: &&Step| matches!(step.op(), Some(Op::ExpandDims { .. }));
        let expanded = steps.clone().filter(expands).map(|step| step.operands[0].slot).collect();
        let mut counters = FxHashMap::default();
        for step in steps.clone().filter(|step| matches!(step.op(), Some(Op::For { .. }))) {
            let counter = program.blocks[step.blocks[0] as usize].parameters[0];
            counters.insert(counter, [step.operands[0].slot, step.operands[2].slot]);
        }
        let steps = steps.flat_map(|step| step.results.iter().map(move |&slot| (slot, step))).collect();
        let (unset, alignments) = (FxHashSet::default(), Alignments::default());
        Self { program, steps, unset, expanded, counters, alignments }
    }

    pub fn get(&self, slot: Slot) -> Option<&'p Step> {
        self.steps.get(&slot).copied()
    }

    pub fn constant(&self, slot: Slot) -> Option<u64> {
        match self.get(slot)?.op() {
            Some(Op::Constant { value }) => Some(value.bits),
            // tidy: wildcard because no other op is a constant
            _ => None,
        }
    }

    /// Returns the constant in a slot, if it is a positive integer.
    pub fn positive_constant(&self, slot: Slot) -> Option<u64> {
        let value = self.program.ty(slot).number.extend(self.constant(slot)?);
        (self.is_integer(slot) && value > 0).then_some(value as u64)
    }

    pub fn is_integer(&self, slot: Slot) -> bool {
        let ty = self.program.ty(slot);
        !ty.is_pointer() && ty.dtype().is_int() && !ty.dtype().is_bool()
    }
}

pub(super) struct Plan<'p> {
    program: &'p Program,
    definitions: &'p Definitions<'p>,
    dimensions: &'p Dimensions,
    pub space: Space,
    /// The steps that the nest executes.
    pub members: Vec<&'p Step>,
    pub known: FxHashMap<Slot, Known>,
    /// The *inputs*: the slots that the nest reads from the executor.
    pub inputs: Vec<Slot>,
    /// The *imports*: earlier steps that the nest executes again, instead of reading their results
    /// from memory. The results are index tiles, ranges or uniform.
    pub imports: Vec<&'p Step>,
    /// The phase of each member that accesses memory or reduces, by index.
    pub phases: FxHashMap<usize, usize>,
    defined: FxHashSet<Slot>,
    /// True if a member stores.
    has_store: bool,
    /// The index of the member that is the scatter, if any.
    pub scatter: Option<usize>,
    /// The slots that the current step has added to `known`.
    added: Vec<Slot>,
}

/// The loops that run over the axes of a tile.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The number of elements along the lanes. It is 1 for a tile that is uniform in each row.
    pub extent: usize,
    /// For each axis with a loop over rows: the index in [`Space::rows`], and the stride in
    /// elements.
    pub rows: Vec<(usize, usize)>,
    /// True if the lanes are along the last axis of more than one element.
    pub is_contiguous: bool,
}

impl<'p> Plan<'p> {
    pub fn new(
        program: &'p Program,
        definitions: &'p Definitions<'p>,
        dimensions: &'p Dimensions,
        space: Space,
    ) -> Self {
        Self {
            program,
            definitions,
            dimensions,
            space,
            members: Vec::new(),
            known: FxHashMap::default(),
            inputs: Vec::new(),
            imports: Vec::new(),
            phases: FxHashMap::default(),
            defined: FxHashSet::default(),
            has_store: false,
            scatter: None,
            added: Vec::new(),
        }
    }

    /// Returns whether the nest repays its set-up. One of these conditions is true:
    /// - A member that accesses memory or reduces has a dense operand.
    /// - A nest with rows stores a row.
    /// - Two members define dense tiles without index arithmetic. (The executor often finds a
    ///   progression in the result of such arithmetic, and then runs no loop.)
    pub fn is_worthwhile(&self) -> bool {
        let is_dense = |slot: Slot| self.form(slot) == Some(Form::Dense);
        let stores_row = |step: &Step| {
            let is_row = matches!(self.form(step.operands[0].slot), Some(Form::Affine(_)));
            matches!(step.op(), Some(Op::Store { .. })) && is_row && !self.space.rows.is_empty()
        };
        let has_sink = self.members.iter().enumerate().any(|(index, step)| {
            self.phases.contains_key(&index)
                && (stores_row(step) || step.operands.iter().any(|operand| is_dense(operand.slot)))
        });
        let is_computation =
            |step: &Step| step.results.iter().any(|&slot| is_dense(slot)) && !self.is_index_arithmetic(step);
        has_sink || self.members.iter().filter(|step| is_computation(step)).count() > 1
    }

    /// Returns whether a step adds, multiplies or reshapes integers or pointers.
    fn is_index_arithmetic(&self, step: &Step) -> bool {
        let ty = self.program.ty(step.result());
        let is_arithmetic = match step.op() {
            Some(Op::Elementwise { function }) => {
                matches!(function, ElementwiseFn::Add | ElementwiseFn::Sub | ElementwiseFn::Mul)
            }
            Some(op) => {
                matches!(op.family(), OpFamily::Source | OpFamily::Shape) || matches!(op, Op::PtrAdd {})
            }
            None => false,
        };
        is_arithmetic && (ty.is_pointer() || ty.dtype().is_int())
    }

    /// Returns the layout of a tile. Returns `None` if the tile is empty, if an axis is not in the
    /// space, or if two axes have the same dimension.
    pub fn layout(&self, slot: Slot) -> Option<Layout> {
        let shape = self.program.ty(slot).shape();
        let mut layout = Layout { extent: 1, rows: Vec::new(), is_contiguous: true };
        let mut stride = 1;
        if self.dimensions.is_uniform(slot) {
            return Some(layout);
        }
        for (axis, &extent) in shape.iter().enumerate().rev() {
            if extent == 0 {
                return None;
            }
            if extent > 1 {
                let dimension = self.dimensions.of(slot, axis);
                if let Some(segment) = self.space.segment.filter(|_| self.space.lane == dimension) {
                    if layout.extent > 1 {
                        return None;
                    }
                    (layout.extent, layout.is_contiguous) = (segment, stride == 1);
                    layout.rows.push((self.space.rows.len() - 1, stride * segment));
                    stride *= extent as usize;
                    continue;
                }
                let row = self.space.rows.iter().position(|(row, _)| Some(*row) == dimension);
                if let Some(row) = row {
                    // Two axes of one dimension would be the diagonal of the tile.
                    if layout.rows.iter().any(|&(other, _)| other == row) {
                        return None;
                    }
                    layout.rows.push((row, stride));
                } else if layout.extent == 1 && (self.space.lane.is_none() || self.space.lane == dimension) {
                    layout.extent = extent as usize;
                    layout.is_contiguous = stride == 1;
                } else {
                    return None;
                }
            }
            stride *= extent as usize;
        }
        Some(layout)
    }

    /// Returns whether a slot has a scalar, or a tile that is uniform for all inputs.
    pub fn is_scalar(&self, slot: Slot) -> bool {
        self.program.ty(slot).is_scalar() || self.dimensions.is_uniform(slot)
    }

    pub fn constant(&self, slot: Slot) -> Option<u64> {
        self.definitions.constant(slot)
    }

    fn form(&self, slot: Slot) -> Option<Form> {
        self.known.get(&slot).map(|known| known.form)
    }

    pub fn defines(&self, slot: Slot) -> bool {
        self.defined.contains(&slot)
    }

    pub fn phase_count(&self) -> usize {
        let last = self.known.values().map(|known| known.phase);
        last.chain(self.phases.values().copied()).max().map_or(0, |last| last + 1)
    }

    /// Adds a step. Leaves the plan unchanged on failure.
    pub fn add(&mut self, step: &'p Step) -> Result<(), Refusal> {
        if self.members.len() >= MAX_NEST_STEPS {
            return Err(Refusal::TooLong);
        }
        let (inputs, imports) = (self.inputs.len(), self.imports.len());
        self.added.clear();
        let known = match self.classify(step) {
            Ok(known) => known,
            Err(refusal) => {
                self.inputs.truncate(inputs);
                self.imports.truncate(imports);
                for slot in &self.added {
                    self.known.remove(slot);
                }
                return Err(refusal);
            }
        };
        let index = self.members.len();
        match step.action {
            Action::Op(Op::Load { .. } | Op::Store { .. }) | Action::Reduce { .. } => {
                self.phases.insert(index, known.phase);
            }
            // tidy: wildcard because no other step accesses memory or reduces
            _ => {}
        }
        if let Some(Op::Store { .. }) = step.op() {
            self.has_store = true;
            if self.form(step.operands[0].slot) == Some(Form::Dense) {
                self.scatter = Some(index);
            }
        }
        let phase = known.phase + usize::from(matches!(step.action, Action::Reduce { .. }));
        for &slot in &step.results {
            self.known.insert(slot, Known { phase, ..known });
            self.defined.insert(slot);
        }
        self.members.push(step);
        self.delay_stores();
        Ok(())
    }

    /// Moves earlier stores to the phase of the scatter, because all stores follow the check of its
    /// addresses.
    fn delay_stores(&mut self) {
        let Some(scatter) = self.scatter else { return };
        let first = self.phases[&scatter];
        for (index, step) in self.members.iter().enumerate() {
            if let Some(Op::Store { .. }) = step.op() {
                let phase = self.phases.entry(index).or_default();
                *phase = first.max(*phase);
            }
        }
    }

    /// Returns whether the nest may have a scatter with these offsets: signed integers of at least
    /// 32 bits, without loops over rows.
    fn may_scatter(&self, offsets: Slot) -> bool {
        let number = self.program.ty(offsets).number;
        number.is_signed() && number.bits() >= 32 && self.space.rows.is_empty()
    }

    /// Returns the pointer and the offsets of the scatter, or `None` for other steps.
    pub fn scattered(&self, step: &Step) -> Option<[Slot; 2]> {
        let pointers = step.operands[0].slot;
        let is_scatter =
            matches!(step.op(), Some(Op::Store { .. })) && self.form(pointers) == Some(Form::Dense);
        let add = self.definitions.get(pointers).filter(|_| is_scatter)?;
        Some([add.operands[0].slot, add.operands[1].slot])
    }

    /// Returns the form and phase of a slot. A slot that no member defines becomes an input or an
    /// import.
    fn known(&mut self, slot: Slot) -> Result<Known, Refusal> {
        if let Some(&known) = self.known.get(&slot) {
            return Ok(known);
        }
        let ty = self.program.ty(slot);
        let layout = self.layout(slot).ok_or(Refusal::Axes)?;
        let known = if self.is_scalar(slot) {
            self.inputs.push(slot);
            Known { form: Form::Uniform, phase: 0, by_row: false }
        } else if let Some(known) = self.import(slot) {
            known
        } else if !ty.is_pointer() && layout.is_contiguous {
            self.inputs.push(slot);
            let form = if layout.extent == 1 { Form::Uniform } else { Form::Dense };
            Known { form, phase: 0, by_row: !layout.rows.is_empty() }
        } else if ty.is_pointer() {
            let is_carried = self.definitions.get(slot).is_none_or(|step| !step.blocks.is_empty());
            return Err(if is_carried { Refusal::CarriedAddresses } else { Refusal::Gather });
        } else {
            return Err(Refusal::TransposedInput);
        };
        self.known.insert(slot, known);
        self.added.push(slot);
        Ok(known)
    }

    /// Imports the step that defines a slot, unless its result is dense or the step cannot be
    /// repeated.
    fn import(&mut self, slot: Slot) -> Option<Known> {
        let step = self.definitions.get(slot)?;
        let is_repeatable = matches!(
            step.op(),
            Some(
                Op::Arange { .. }
                    | Op::Splat { .. }
                    | Op::ExpandDims { .. }
                    | Op::Broadcast { .. }
                    | Op::Reshape { .. }
                    | Op::PtrAdd {}
                    | Op::Cast { .. }
                    | Op::Elementwise { .. }
            )
        );
        let is_unset = |operand: &Use| self.definitions.unset.contains(&operand.slot);
        if !is_repeatable || step.operands.iter().any(is_unset) {
            return None;
        }
        // A dense operand would become an input of the nest.
        for operand in &step.operands {
            if !self.is_scalar(operand.slot) && !self.known.contains_key(&operand.slot) {
                let known = self.import(operand.slot)?;
                self.known.insert(operand.slot, known);
                self.added.push(operand.slot);
            }
        }
        let known = self.classify(step).ok().filter(|known| known.form != Form::Dense && known.phase == 0)?;
        self.imports.push(step);
        Some(known)
    }

    /// Returns the form and phase of the results of a step. For a store, returns the form of its
    /// pointers and its phase.
    fn classify(&mut self, step: &'p Step) -> Result<Known, Refusal> {
        refuse_action(step)?;
        let mut by_row = false;
        for &slot in &step.results {
            by_row |= !self.layout(slot).ok_or(Refusal::Axes)?.rows.is_empty();
        }
        let mut operands = Vec::with_capacity(step.operands.len());
        for operand in &step.operands {
            operands.push(self.known(operand.slot)?);
        }
        // A reduction or a scan would have to combine several segments.
        let combines = matches!(step.action, Action::Reduce { .. } | Action::Scan { .. });
        refuse(combines && self.space.segment.is_some(), Refusal::InnerAxis)?;
        let phase = operands.iter().map(|known| known.phase).max().unwrap_or(0);
        by_row |= operands.iter().any(|known| known.by_row);
        let form = match &step.action {
            Action::Reduce { strategy: Strategy::Kernel(combine), axis, .. } => {
                // A splat may share the slot of its scalar, which has no axes.
                refuse(operands[0].form != Form::Dense, Refusal::EqualElements)?;
                let slot = step.operands[0].slot;
                let ty = self.program.ty(slot);
                let extent = |slot: Slot| self.layout(slot).map(|layout| layout.extent).ok_or(Refusal::Axes);
                let along_lanes =
                    extent(slot)? == ty.shape()[*axis] as usize && extent(step.results[0])? == 1;
                refuse(!along_lanes, Refusal::InnerAxis)?;
                refuse(!by_row && !self.space.rows.is_empty(), Refusal::SameForRows)?;
                let can_reduce = vectors::can_reduce(*combine, ty.dtype());
                refuse(!can_reduce, Refusal::Combine(*combine, ty.dtype()))?;
                return Ok(Known { form: Form::Uniform, phase, by_row });
            }
            // A loop scans a row from the first element to the last.
            Action::Scan { strategy: Strategy::Kernel(_), axis, reverse: false } => {
                refuse(operands[0].form != Form::Dense, Refusal::EqualElements)?;
                let slot = step.operands[0].slot;
                let shape = self.program.ty(slot).shape();
                let extent = self.layout(slot).ok_or(Refusal::Axes)?.extent;
                let along_lanes = extent == shape[*axis] as usize && *axis + 1 == shape.len();
                refuse(!along_lanes, Refusal::InnerAxis)?;
                // An iteration scans whole blocks or the whole row.
                let has_blocks = extent >= SCAN_BLOCK || extent.is_power_of_two();
                refuse(!has_blocks, Refusal::ScanLength)?;
                refuse(!by_row && !self.space.rows.is_empty(), Refusal::SameForRows)?;
                Form::Dense
            }
            Action::Op(op) => {
                let has_elements = |(operand, known): (&Use, &Known)| {
                    known.form == Form::Dense && self.program.ty(operand.slot).is_pointer()
                };
                let is_gather = step.operands.iter().zip(&operands).any(has_elements);
                refuse(is_gather && !matches!(op, Op::Store { .. }), Refusal::Gather)?;
                self.form_of_op(op, step, &operands, phase)?
            }
            Action::Dot { .. }
            | Action::Reduce { .. }
            | Action::Map { .. }
            | Action::Assembly(_)
            | Action::Scan { .. }
            | Action::Sort(_)
            | Action::Fused(_)
            | Action::Nest(_) => return Err(Refusal::Op),
        };
        // Only uniform values and dense tiles may depend on a reduction.
        let may_be_late = matches!(form, Form::Uniform | Form::Dense);
        // Loops over rows would repeat a store that is the same in each row.
        let is_store = matches!(step.op(), Some(Op::Store { .. }));
        refuse(!may_be_late && phase > 0, Refusal::LateIndices)?;
        refuse(is_store && !by_row && !self.space.rows.is_empty(), Refusal::SameForRows)?;
        // A scatter runs one phase after the check of its addresses.
        let is_scatter = is_store && operands[0].form == Form::Dense;
        Ok(Known { form, phase: phase + usize::from(is_scatter), by_row })
    }

    fn form_of_op(&self, op: &Op, step: &Step, operands: &[Known], phase: usize) -> Result<Form, Refusal> {
        let all_uniform = operands.iter().all(|known| known.form == Form::Uniform);
        Ok(match op {
            Op::Constant { .. } | Op::ProgramId { .. } | Op::NumPrograms { .. } | Op::Splat { .. } => {
                Form::Uniform
            }
            Op::Arange { .. } => {
                let is_row = self.layout(step.results[0]).ok_or(Refusal::Axes)?.extent == 1;
                if is_row { Form::Uniform } else { Form::Affine(Some(1)) }
            }
            Op::ExpandDims { .. } | Op::Broadcast { .. } | Op::Transpose { .. } => operands[0].form,
            Op::Reshape { .. } => {
                let long = |slot: Slot| {
                    self.program
                        .ty(slot)
                        .shape()
                        .iter()
                        .copied()
                        .filter(|&extent| extent > 1)
                        .collect::<Vec<_>>()
                };
                let form = operands[0].form;
                let is_same = long(step.operands[0].slot) == long(step.results[0]);
                refuse(!is_same && (form != Form::Uniform || operands[0].by_row), Refusal::Reshape)?;
                form
            }
            Op::Elementwise { function } => self.form_of_function(*function, step, operands, phase)?,
            Op::Cast { rounding, .. } => {
                let from = self.program.ty(step.operands[0].slot).dtype();
                let to = self.program.ty(step.results[0]);
                match operands[0].form {
                    Form::Affine(stride) if to.dtype().is_int() && !to.dtype().is_bool() => {
                        Form::Affine(stride)
                    }
                    form => {
                        let can_cast = vectors::can_cast(from, to.dtype(), *rounding);
                        refuse(!can_cast, Refusal::Cast(from, to.dtype()))?;
                        if form == Form::Uniform { Form::Uniform } else { Form::Dense }
                    }
                }
            }
            Op::Bitcast { .. } => match operands[0].form {
                Form::Uniform => Form::Uniform,
                Form::Dense => {
                    let ty = self.program.ty(step.results[0]);
                    vectors::lane(ty).map(|_| Form::Dense).ok_or(Refusal::Pointers)?
                }
                Form::Affine(_) | Form::Range => return Err(Refusal::IndexOperand),
            },
            Op::PtrAdd {} => {
                let size = self.program.ty(step.results[0]).pointee as i64;
                match (operands[0].form, operands[1].form) {
                    (Form::Uniform, Form::Uniform) => {
                        refuse(phase > 0, Refusal::LateAddresses)?;
                        Form::Uniform
                    }
                    (Form::Uniform, Form::Dense) if operands[0].phase == 0 => {
                        refuse(!self.may_scatter(step.operands[1].slot), Refusal::Gather)?;
                        return Ok(Form::Dense);
                    }
                    (pointer, offset) => {
                        let stride = |form: Form| match form {
                            Form::Uniform => Ok(Some(0)),
                            Form::Affine(stride) => Ok(stride),
                            Form::Range | Form::Dense => Err(Refusal::Gather),
                        };
                        let (pointer, offset) = (stride(pointer)?, stride(offset)?);
                        let scaled = offset.and_then(|offset| offset.checked_mul(size));
                        Form::Affine(pointer.zip(scaled).and_then(|(a, b)| a.checked_add(b)))
                    }
                }
            }
            Op::Load { .. } => {
                let ty = self.program.ty(step.results[0]);
                vectors::lane(ty).ok_or(Refusal::Pointers)?;
                self.check_access(step.operands[0], operands[0], ty, operands.get(1))?;
                if let Some(other) = operands.get(2)
                    && matches!(other.form, Form::Affine(_) | Form::Range)
                {
                    return Err(Refusal::IndexOperand);
                }
                if operands[0].form != Form::Uniform {
                    return Ok(Form::Dense);
                }
                // A single element is loaded before phase 0.
                let is_early = all_uniform && phase == 0 && !self.has_store;
                refuse(!is_early, Refusal::LateElement)?;
                Form::Uniform
            }
            Op::Store { .. } => {
                let ty = self.program.ty(step.operands[1].slot);
                vectors::lane(ty).ok_or(Refusal::Pointers)?;
                refuse(matches!(operands[1].form, Form::Affine(_) | Form::Range), Refusal::IndexOperand)?;
                self.check_access(step.operands[0], operands[0], ty, operands.get(2))?;
                let one = operands[0].form == Form::Uniform;
                refuse(one && !all_uniform, Refusal::OneAddress)?;
                if one { Form::Uniform } else { Form::Dense }
            }
            // If the assertion fails, the nest bails out, and the executor reports the failure.
            Op::Assert { .. } if all_uniform && phase == 0 => Form::Uniform,
            // tidy: wildcard because a nest executes no other op
            _ => return Err(Refusal::Op),
        })
    }

    /// Fails unless the nest can access the elements at these pointers:
    /// - Uniform pointers access one element.
    /// - An index tile accesses contiguous elements, or strided elements of 32 or 64 bits.
    /// - Dense pointers make the access the only scatter. Its elements have 32 or 64 bits.
    ///
    /// The uniform pointers and index tiles, and masks that are not dense, must be known in phase
    /// 0.
    fn check_access(
        &self,
        pointer: Use,
        known: Known,
        ty: &TileType,
        mask: Option<&Known>,
    ) -> Result<(), Refusal> {
        let is_possible = match known.form {
            Form::Uniform => true,
            Form::Affine(stride) => stride == Some(ty.size as i64) || matches!(ty.size, 4 | 8),
            Form::Dense => {
                refuse(self.root(pointer.slot).is_none(), Refusal::UnknownPointer)?;
                refuse(self.scatter.is_some(), Refusal::SecondScatter)?;
                return refuse(!matches!(ty.size, 4 | 8), Refusal::Strided);
            }
            Form::Range => false,
        };
        let is_early =
            known.phase == 0 && mask.is_none_or(|mask| mask.phase == 0 || mask.form == Form::Dense);
        refuse(!is_possible, Refusal::Strided)?;
        refuse(self.root(pointer.slot).is_none(), Refusal::UnknownPointer)?;
        refuse(!is_early, Refusal::LateAddresses)
    }

    pub fn is_contiguous(&self, pointer: Slot) -> bool {
        match self.form(pointer) {
            Some(Form::Affine(stride)) => stride == Some(self.program.ty(pointer).pointee as i64),
            Some(Form::Dense) => false,
            // tidy: wildcard because other accesses have one element
            _ => true,
        }
    }

    pub fn stride(&self, pointer: Slot) -> Option<i64> {
        if let Some(Form::Affine(stride)) = self.form(pointer) { stride } else { None }
    }

    /// Returns the input from which a pointer is derived.
    pub fn root(&self, pointer: Slot) -> Option<Slot> {
        let mut slot = pointer;
        loop {
            if self.inputs.contains(&slot) {
                return self.program.ty(slot).is_pointer().then_some(slot);
            }
            slot = self.definitions.get(slot)?.moved_pointer()?;
        }
    }

    fn form_of_function(
        &self,
        function: ElementwiseFn,
        step: &Step,
        operands: &[Known],
        phase: usize,
    ) -> Result<Form, Refusal> {
        let ty = self.program.ty(step.operands[step.operands.len() - 1].slot);
        refuse(ty.is_pointer(), Refusal::Pointers)?;
        let dtype = ty.dtype();
        let no_function = Refusal::Function(function, dtype);
        let forms: Vec<Form> = operands.iter().map(|known| known.form).collect();
        if forms.iter().all(|&form| form == Form::Uniform) {
            refuse(!vectors::can_apply_to_scalars(function, dtype), no_function)?;
            return Ok(Form::Uniform);
        }
        if let Some(form) = self.form_in_segments(function, step, &forms).filter(|_| phase == 0) {
            return Ok(form);
        }
        // The rows and columns of a larger tile are often in progression at run time. The executor
        // then accesses a box with strides, while a nest would have to gather the elements.
        if let (Family::Division(_), [Form::Affine(_), Form::Uniform]) = (function.family(), &forms[..])
            && self.definitions.expanded.contains(&step.result())
        {
            return Err(Refusal::IndexDivision);
        }
        let symbolic = if phase == 0 { self.symbolic(function, step, dtype, &forms) } else { None };
        symbolic.or_else(|| vectors::can_apply(function, dtype).then_some(Form::Dense)).ok_or(no_function)
    }

    /// Returns the form of a quotient, remainder or comparison of indices in a row that is a
    /// segment.
    fn form_in_segments(&self, function: ElementwiseFn, step: &Step, forms: &[Form]) -> Option<Form> {
        let segment = self.space.segment? as u64;
        let [Form::Affine(Some(1)), Form::Uniform] = *forms else { return None };
        let (index, other) = (step.operands[0].slot, step.operands[1].slot);
        let is_aligned = self.definitions.index_alignment(index)? >= segment
            && self.definitions.positive_constant(other)?.is_multiple_of(segment);
        let form = match function.family() {
            Family::Division(DivisionFn::IntDiv)
            | Family::Comparison(ComparisonFn::Lt | ComparisonFn::Ge) => Form::Uniform,
            Family::Division(DivisionFn::IntRem) => Form::Affine(Some(1)),
            // tidy: wildcard because the results of other functions differ within a segment
            _ => return None,
        };
        is_aligned.then_some(form)
    }

    /// Returns the form of a result that is an index tile or a range.
    fn symbolic(&self, function: ElementwiseFn, step: &Step, dtype: Dtype, forms: &[Form]) -> Option<Form> {
        let stride = |form: Form| match form {
            Form::Uniform => Some(Some(0)),
            Form::Affine(stride) => Some(stride),
            Form::Range | Form::Dense => None,
        };
        let constant = |index: usize| {
            let bits = self.constant(step.operands[index].slot)?;
            Some(self.program.ty(step.operands[index].slot).number.extend(bits))
        };
        if dtype.is_bool() {
            let is_range = |form: &Form| matches!(form, Form::Range | Form::Uniform);
            let is_and = function.family() == Family::Bitwise(BitwiseFn::And);
            return (is_and && forms.iter().all(is_range)).then_some(Form::Range);
        }
        if !dtype.is_int() {
            return None;
        }
        let (x, y) = match *forms {
            [x] => (stride(x)?, None),
            [x, y] => (stride(x)?, Some(stride(y)?)),
            _ => return None,
        };
        let zip = |f: fn(i64, i64) -> Option<i64>| Some(x.zip(y?).and_then(|(x, y)| f(x, y)));
        let scaled =
            |stride: Option<i64>, by: Option<i64>| stride.zip(by).and_then(|(x, y)| x.checked_mul(y));
        let affine = match (function.family(), forms) {
            (Family::Arithmetic(ArithmeticFn::Add), _) => zip(i64::checked_add)?,
            (Family::Arithmetic(ArithmeticFn::Sub), _) => zip(i64::checked_sub)?,
            (Family::Arithmetic(ArithmeticFn::Mul), [_, Form::Uniform]) => scaled(x, constant(1)),
            (Family::Arithmetic(ArithmeticFn::Mul), [Form::Uniform, _]) => scaled(y?, constant(0)),
            (Family::Comparison(function), _) => {
                let difference = zip(i64::checked_sub)??;
                let is_range = matches!(difference, 1 | -1) && function != ComparisonFn::Ne;
                return is_range.then_some(Form::Range);
            }
            // tidy: wildcard because the other functions of indices are computed element by element
            _ => return None,
        };
        Some(Form::Affine(affine))
    }
}

fn refuse(condition: bool, reason: Refusal) -> Result<(), Refusal> {
    if condition { Err(reason) } else { Ok(()) }
}

/// Fails if no nest can execute the action, whatever the operands are.
fn refuse_action(step: &Step) -> Result<(), Refusal> {
    match &step.action {
        Action::Op(Op::If { .. } | Op::For { .. } | Op::While { .. }) => Err(Refusal::ControlFlow),
        Action::Dot { .. } => Err(Refusal::Dot),
        Action::Reduce { strategy, .. } | Action::Scan { strategy, .. }
            if !matches!(strategy, Strategy::Kernel(_)) =>
        {
            Err(Refusal::CombineRegion)
        }
        Action::Scan { reverse: true, .. } => Err(Refusal::Reverse),
        // tidy: wildcard because the other actions are refused only for certain operands
        _ => Ok(()),
    }
}
