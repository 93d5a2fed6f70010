//! Emits the vector code of a nest.
//!
//! The code computes the uniform values of a phase, then runs the loops of the phase, one for each
//! extent. Loops over the rows contain all phases. An earlier loop over the rows checks all
//! accesses:
//!
//! ```text
//! for row: check the accesses        bail out if a check fails
//! for row: phase 0: uniform values; loop over vectors
//!          phase 1: uniform values; loop over vectors
//! ```
//!
//! To *bail out*, the code returns before its first effect, and the machine runs the steps one by
//! one.
//!
//! The outermost loop runs over programs if the nest has all steps of a program. It runs over
//! iterations if the nest has all steps of the body of a loop. The code returns the number of
//! executed programs or iterations.
//! A *range* is a tile of booleans that is true in one range of each row, such as the mask `offsets
//! < n`. A loop over the elements of a row has up to three parts ([`Part`]):
//! - In the first part, all ranges are true and need no masks. It has a second copy if its stores
//!   may bypass the caches.
//! - In the second part, the ranges become masks.
//! - In the third part, all ranges are false. It exists only if ranges mask all loads, so that
//!   every tile is uniform. It computes one element, and stores or combines it repeatedly.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use tilewright_ir::Op;
use tilewright_native::ir::{Block, Function, IntBinary, IntCompare, Value};
use tilewright_native::{Builder, Loop};

use super::iterations::Iterations;
use super::plan::{Form, Layout, Plan};
use super::vectors::{Vectors, extended};
use crate::program::nest::{Repeated, Word, origin_of};
use crate::program::{Action, Program, Slot, Step};
use crate::tuning::ACCUMULATORS;
use crate::types::{Number, TileType};

mod checks;
mod iterations;
mod loops;
mod reductions;
mod scans;
mod scatter;
mod uniform;

use checks::{Access, Bytes, DistantRow};
use scans::Scan;
use scatter::Scatter;

pub(super) struct Code {
    pub function: Function,
    pub words: Vec<Word>,
    /// The size of the scratch memory in bytes.
    pub scratch: usize,
}

#[derive(Clone, Copy)]
enum Repr {
    /// A uniform integer, boolean or pointer, extended to 64 bits as its type requires.
    Integer(Value),
    /// A vector of equal floats.
    Float(Value),
    /// An index tile: integers or pointers `base + stride * index`.
    Affine { base: Value, stride: Value },
    /// Booleans that are true for the indices in `low..high`.
    Range { low: Value, high: Value },
    /// Elements that loops compute.
    Dense,
}

/// A part of a loop over the elements of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All ranges are true, and stores bypass the caches.
    Streaming,
    Whole,
    /// Ranges are true for some elements, and become masks.
    Masked,
    /// All ranges are false, and all tiles are uniform.
    Uniform,
}

/// The loop over the elements of the tiles of one extent, in one phase.
struct Group {
    phase: usize,
    extent: usize,
    /// The *sinks*: the members that store or reduce.
    sinks: Vec<usize>,
    /// The tiles that the loop writes, to scratch memory or to a tile of the executor.
    written: Vec<Slot>,
    /// The scatter whose addresses the loop checks.
    checked: Option<usize>,
}

/// The state of the code that computes one vector in a loop.
struct Body {
    part: Part,
    /// The index of the first element of the iteration.
    position: Value,
    /// The number of elements of earlier vectors in the iteration.
    offset: usize,
    phase: usize,
    /// The mask of the lanes that have elements, or `None` if all lanes do.
    active: Option<Value>,
    values: FxHashMap<Slot, Value>,
}

struct Emitter<'a> {
    program: &'a Program,
    plan: &'a Plan<'a>,
    /// The results that steps after the nest read.
    outputs: &'a [Slot],
    program_index: Option<Value>,
    parameters: FxHashMap<Slot, Repr>,
    /// The addresses of the tiles that a loop over iterations carries. The word has the address for
    /// the first iteration.
    carried: Vec<(Word, Value)>,
    vectors: Vectors<'a>,
    values: FxHashMap<Slot, Repr>,
    definitions: FxHashMap<Slot, &'a Step>,
    words: Vec<Word>,
    /// The tiles that the nest keeps in scratch memory, and their addresses.
    kept: FxHashMap<Slot, Value>,
    scratch: usize,
    bail: Block,
    /// The index of the current row along each dimension of the rows.
    rows: Vec<Value>,
    /// Vectors of uniform integers, computed before the current loop.
    splats: FxHashMap<Slot, Value>,
    /// The addresses of the executor's tiles, computed before the current loop.
    addresses: FxHashMap<Slot, Value>,
    scans: Vec<Scan>,
    scatter: Option<Scatter>,
    /// The accesses of a nest without rows, and their addresses.
    accesses: Vec<(Access, Bytes)>,
}

/// Sets the origin of new instructions to a step until it is dropped.
struct Origin<'a> {
    builder: &'a RefCell<Builder>,
    outer: u32,
}

impl Drop for Origin<'_> {
    fn drop(&mut self) {
        self.builder.borrow_mut().set_origin(self.outer);
    }
}

/// Emits the code of a nest. `repeated` is the unit that one call executes. `outputs` are the
/// results that later steps read.
pub(super) fn emit(
    program: &Program,
    plan: &Plan<'_>,
    outputs: &[Slot],
    repeated: &Repeated,
    iterations: Option<&Iterations>,
    lanes: usize,
) -> Code {
    let cell = RefCell::new(Builder::new(lanes));
    let bail = cell.borrow_mut().block();
    let members = plan.members.iter().chain(&plan.imports);
    let definitions = members.flat_map(|&step| step.results.iter().map(move |&slot| (slot, step))).collect();
    let mut emitter = Emitter {
        program,
        plan,
        outputs,
        program_index: None,
        parameters: FxHashMap::default(),
        carried: Vec::new(),
        vectors: Vectors(&cell),
        values: FxHashMap::default(),
        definitions,
        words: Vec::new(),
        kept: FxHashMap::default(),
        scratch: 0,
        bail,
        rows: Vec::new(),
        splats: FxHashMap::default(),
        addresses: FxHashMap::default(),
        scans: Vec::new(),
        scatter: None,
        accesses: Vec::new(),
    };
    match (repeated, iterations) {
        (Repeated::Iterations { .. }, Some(iterations)) => emitter.iterations(iterations),
        (Repeated::Programs, _) => emitter.programs(),
        _ => emitter.once(),
    }
    let Emitter { words, scratch, .. } = emitter;
    Code { function: cell.into_inner().finish(), words, scratch }
}

impl<'a> Emitter<'a> {
    fn build<R>(&self, f: impl FnOnce(&mut Builder) -> R) -> R {
        f(&mut self.vectors.0.borrow_mut())
    }

    /// Sets the origin of new instructions, until the returned guard is dropped.
    #[must_use]
    fn origin(&self, step: &Step) -> Origin<'a> {
        let builder = self.vectors.0;
        let outer = builder.borrow_mut().set_origin(origin_of(step));
        Origin { builder, outer }
    }

    fn ty(&self, slot: Slot) -> &'a TileType {
        self.program.ty(slot)
    }

    fn int(&self, value: i64) -> Value {
        self.build(|builder| builder.int(value))
    }

    fn binary(&self, function: IntBinary, x: Value, y: Value) -> Value {
        self.build(|builder| builder.int_binary(function, x, y))
    }

    fn add(&self, x: Value, y: Value) -> Value {
        self.binary(IntBinary::Add, x, y)
    }

    fn sub(&self, x: Value, y: Value) -> Value {
        self.binary(IntBinary::Sub, x, y)
    }

    fn mul(&self, x: Value, y: Value) -> Value {
        self.binary(IntBinary::Mul, x, y)
    }

    fn compare(&self, function: IntCompare, x: Value, y: Value) -> Value {
        self.build(|builder| builder.int_compare(function, x, y))
    }

    fn known(&self, x: Value) -> Option<i64> {
        self.build(|builder| builder.known(x))
    }

    fn extended(&self, number: Number, x: Value) -> Value {
        self.build(|builder| extended(builder, number, x))
    }

    fn lanes(&self) -> usize {
        self.build(|builder| builder.lanes())
    }

    fn word(&mut self, word: Word) -> Value {
        let index = self.words.iter().position(|other| *other == word).unwrap_or_else(|| {
            self.words.push(word);
            self.words.len() - 1
        });
        self.build(|builder| builder.argument_word((index * 8) as i32))
    }

    fn programs(&mut self) {
        let (first, count) = (self.word(Word::ProgramId(0)), self.word(Word::Count));
        let end = self.add(first, count);
        let repeated = self.build(|builder| builder.begin_loop([first, end], &[]));
        let index = repeated.index;
        self.program_index = Some(index);
        self.nest();
        self.build(|builder| builder.end_loop(repeated, 1, &[]));
        self.returns(count);
        self.begin_bail();
        let executed = self.sub(index, first);
        self.returns(executed);
    }

    fn once(&mut self) {
        self.nest();
        self.results();
        let (zero, one) = (self.int(0), self.int(1));
        self.returns(one);
        self.begin_bail();
        self.returns(zero);
    }

    fn returns(&self, executed: Value) {
        self.build(|builder| builder.ret(executed));
    }

    fn begin_bail(&self) {
        self.build(|builder| builder.switch_to(self.bail));
    }

    fn nest(&mut self) {
        self.inputs();
        self.place_kept();
        let has_rows = !self.plan.space.rows.is_empty();
        self.uniform_steps(0, false);
        let accesses = self.accesses();
        if has_rows {
            let distant = self.check_rows(&accesses);
            let loops = self.begin_rows(&[]);
            self.row(&distant);
            self.end_rows(loops, &[]);
        } else {
            let bytes: Vec<Bytes> = accesses.iter().map(|access| self.check_access(access)).collect();
            self.check_overlaps(&accesses, &bytes, None);
            self.accesses = accesses.into_iter().zip(bytes).collect();
            self.phases();
        }
    }

    fn row(&mut self, distant: &[DistantRow]) {
        self.row_inputs();
        self.uniform_steps(0, true);
        self.prefetch(distant);
        self.phases();
        self.row_results();
    }

    /// Emits the phases. The caller has emitted the uniform values of phase 0.
    fn phases(&mut self) {
        let has_rows = !self.plan.space.rows.is_empty();
        for phase in 0..self.plan.phase_count() {
            if phase > 0 {
                self.uniform_steps(phase, false);
                if has_rows {
                    self.uniform_steps(phase, true);
                }
            }
            self.scalar_stores(phase);
            for group in self.groups(phase) {
                self.group(&group);
            }
        }
    }

    /// Emits the steps of a phase whose results are not dense. `by_row` selects the steps whose
    /// results differ from row to row, or the other steps.
    fn uniform_steps(&mut self, phase: usize, by_row: bool) {
        let plan = self.plan;
        for step in plan.imports.iter().filter(|_| phase == 0) {
            if plan.known[&step.results[0]].by_row == by_row {
                self.uniform_step(step);
            }
        }
        for (index, step) in plan.members.iter().enumerate() {
            if let Some(Op::Assert { .. }) = step.op() {
                let differs = step.operands.iter().any(|operand| plan.known[&operand.slot].by_row);
                if phase == 0 && differs == by_row {
                    self.check_assertion(step);
                }
            } else if self.phase_of(index) == Some(phase) && plan.known[&step.results[0]].by_row == by_row {
                self.uniform_step(step);
            }
        }
    }

    /// Begins the loops over the rows, with the values that they carry.
    fn begin_rows(&mut self, carried: &[Value]) -> Vec<Loop> {
        let mut loops: Vec<Loop> = Vec::new();
        self.rows.clear();
        for &(_, extent) in &self.plan.space.rows {
            let range = [self.int(0), self.int(extent as i64)];
            let values = loops.last().map_or(carried, |outer| &outer.values).to_vec();
            let repeated = self.build(|builder| builder.begin_loop(range, &values));
            self.rows.push(repeated.index);
            loops.push(repeated);
        }
        loops
    }

    /// Ends the loops over the rows. Returns the carried values after the last row.
    fn end_rows(&mut self, loops: Vec<Loop>, next: &[Value]) -> Vec<Value> {
        let mut values = next.to_vec();
        for repeated in loops.into_iter().rev() {
            (_, values) = self.build(|builder| builder.end_loop(repeated, 1, &values));
        }
        self.rows.clear();
        values
    }

    /// Returns the index of the first element of the current row.
    fn row_offset(&self, layout: &Layout) -> Value {
        let mut offset = self.int(0);
        for &(row, stride) in &layout.rows {
            let stride = self.int(stride as i64);
            let part = self.mul(self.rows[row], stride);
            offset = self.add(offset, part);
        }
        offset
    }

    fn layout(&self, slot: Slot) -> Layout {
        self.plan.layout(slot).expect("the plan has a place for each tile")
    }

    /// Returns the address of the current row of a tile.
    fn row_address(&mut self, word: Word, slot: Slot) -> Value {
        let carried = self.carried.iter().find(|(other, _)| *other == word).map(|&(_, start)| start);
        let start = carried.unwrap_or_else(|| self.word(word));
        let offset = self.row_offset(&self.layout(slot));
        let size = self.int(self.ty(slot).size as i64);
        let bytes = self.mul(offset, size);
        self.add(start, bytes)
    }

    /// Loads one element of each input tile that is uniform in the current row.
    fn row_inputs(&mut self) {
        for &slot in &self.plan.inputs {
            let known = self.plan.known[&slot];
            if !self.plan.is_scalar(slot) && known.form == Form::Uniform && known.by_row {
                self.load_uniform(slot);
            }
        }
    }

    fn load_uniform(&mut self, slot: Slot) {
        let place = self.row_address(Word::Tile(slot), slot);
        let value = self.load_one(self.ty(slot), place);
        self.values.insert(slot, value);
    }

    /// Writes the uniform values of the current row that later steps read.
    fn row_results(&mut self) {
        for &slot in self.outputs {
            let known = self.plan.known[&slot];
            if known.form == Form::Uniform && known.by_row && self.layout(slot).extent == 1 {
                let place = self.row_address(Word::Output(slot), slot);
                let bits = self.bits(slot);
                let size = self.ty(slot).size as u8;
                self.build(|builder| builder.int_store(size, place, 0, bits));
            }
        }
    }

    /// Returns the phase that computes the result of a member. Returns `None` for dense results,
    /// reductions and stores.
    fn phase_of(&self, index: usize) -> Option<usize> {
        let step = self.plan.members[index];
        let &[slot] = &step.results[..] else { return None };
        let known = self.plan.known[&slot];
        let is_reduction = matches!(step.action, Action::Reduce { .. });
        (known.form != Form::Dense && !is_reduction).then_some(known.phase)
    }

    fn inputs(&mut self) {
        for &slot in &self.plan.inputs {
            let (ty, known) = (self.ty(slot), self.plan.known[&slot]);
            if !self.plan.is_scalar(slot) {
                // A tile of one element is the same in all rows.
                if known.form == Form::Uniform && !known.by_row {
                    self.load_uniform(slot);
                }
                continue;
            }
            let value = if let Some(bits) = self.plan.constant(slot) {
                self.uniform_of_bits(ty, bits)
            } else if let Some(&value) = self.parameters.get(&slot) {
                value
            } else {
                self.scalar_input(slot)
            };
            self.values.insert(slot, value);
        }
    }

    /// Reads a scalar that the executor has computed.
    fn scalar_input(&mut self, slot: Slot) -> Repr {
        let ty = self.ty(slot);
        let bits = self.word(Word::Bits(slot));
        if ty.is_pointer() {
            Repr::Integer(bits)
        } else if ty.dtype().is_float() {
            Repr::Float(self.vectors.splat(ty.dtype(), bits))
        } else {
            Repr::Integer(self.extended(ty.number, bits))
        }
    }

    /// Assigns scratch memory to the tiles that later phases read.
    fn place_kept(&mut self) {
        let kept = self.plan.kept();
        let mut slots: Vec<Slot> = kept.into_iter().collect();
        slots.sort_unstable();
        for slot in slots {
            let ty = self.ty(slot);
            let (scratch, place) = (self.word(Word::Scratch), self.int(self.scratch as i64));
            let address = self.add(scratch, place);
            self.kept.insert(slot, address);
            let elements = self.layout(slot).extent.next_multiple_of(ACCUMULATORS);
            self.scratch += (elements * ty.size).next_multiple_of(64);
        }
    }

    /// Returns the representation of a slot. Slots without an entry are dense.
    fn repr(&self, slot: Slot) -> Repr {
        self.values.get(&slot).copied().unwrap_or(Repr::Dense)
    }

    fn integer(&self, slot: Slot) -> Value {
        match self.values[&slot] {
            Repr::Integer(value) => value,
            _ => unreachable!("slot {slot} is a uniform integer"),
        }
    }

    fn affine(&self, slot: Slot) -> (Value, Value) {
        match self.values[&slot] {
            Repr::Affine { base, stride } => (base, stride),
            Repr::Integer(base) => (base, self.int(0)),
            Repr::Float(_) | Repr::Range { .. } | Repr::Dense => unreachable!("slot {slot} holds indices"),
        }
    }

    /// Returns the range of a mask of `extent` elements, or `None` if the mask is dense.
    fn range(&self, slot: Slot, extent: usize) -> Option<(Value, Value)> {
        match self.repr(slot) {
            Repr::Range { low, high } => Some((low, high)),
            Repr::Integer(condition) => {
                let (zero, all) = (self.int(0), self.int(extent as i64));
                Some((zero, self.build(|builder| builder.int_select(condition, all, zero))))
            }
            Repr::Dense => None,
            Repr::Float(_) | Repr::Affine { .. } => unreachable!("slot {slot} holds booleans"),
        }
    }

    fn choose(&self, condition: Value, x: Value, y: Value) -> Value {
        self.build(|builder| builder.int_select(condition, x, y))
    }

    fn results(&mut self) {
        for &slot in self.outputs {
            let known = self.plan.known[&slot];
            if known.form != Form::Uniform || known.by_row {
                continue;
            }
            self.words.push(Word::Result(slot));
            self.write_result(self.words.len() - 1, slot, self.values[&slot]);
        }
    }

    fn write_result(&self, word: usize, slot: Slot, value: Repr) {
        let (ty, bits) = (self.ty(slot), self.bits_of(self.ty(slot), value));
        self.build(|builder| {
            let argument = builder.argument();
            builder.int_store(ty.size as u8, argument, (word * 8) as i32, bits);
        });
    }

    fn groups(&self, phase: usize) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let group = |groups: &mut Vec<Group>, extent: usize| {
            groups.iter().position(|group| group.extent == extent).unwrap_or_else(|| {
                groups.push(Group { phase, extent, sinks: Vec::new(), written: Vec::new(), checked: None });
                groups.len() - 1
            })
        };
        for (index, step) in self.plan.members.iter().enumerate() {
            if self.plan.scatter == Some(index) && self.plan.phases[&index] == phase + 1 {
                let extent = self.layout(step.operands[0].slot).extent;
                let place = group(&mut groups, extent);
                groups[place].checked = Some(index);
            }
            let is_load = matches!(step.op(), Some(Op::Load { .. }));
            if !is_load && self.plan.phases.get(&index) == Some(&phase) {
                let slot = step.operands[0].slot;
                if self.plan.known[&slot].form == Form::Uniform {
                    continue;
                }
                let extent = self.layout(slot).extent;
                let place = group(&mut groups, extent);
                groups[place].sinks.push(index);
            }
            for &slot in &step.results {
                let known = self.plan.known[&slot];
                let is_written = self.kept.contains_key(&slot) || self.outputs.contains(&slot);
                let has_lanes = known.form == Form::Dense || (known.by_row && self.layout(slot).extent > 1);
                if has_lanes && known.phase == phase && is_written {
                    let place = group(&mut groups, self.layout(slot).extent);
                    groups[place].written.push(slot);
                }
            }
        }
        groups
    }
}
