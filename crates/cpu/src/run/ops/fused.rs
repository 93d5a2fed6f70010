//! Executes a fused group: several steps on binary32 tiles as one loop.
//!
//! If the loop does not support an operand, [`execute`] returns false, and the machine executes the
//! steps one by one.
//!
//! Locating the operands takes a notable part of the time of a row of some hundred elements. The
//! code therefore constructs list items in place. A returned enum would be stored in parts and
//! loaded as a whole, which defeats store forwarding.
#![allow(clippy::inline_always, reason = "see above")]

use smallvec::SmallVec;

use crate::program::fused::{BLOCK, Binary, FusedGroup, FusedOp};
use crate::program::{Slot, Step};
use crate::run::fault::Outcome;
use crate::run::kernels::fused::{FusedOutput, Stage, run};
use crate::run::machine::Machine;
use crate::run::memory::{RunReader, RunWriter};
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};

use super::memory::{direct_load, direct_store, load, store};

/// The size of an element in bytes.
const SIZE: usize = size_of::<f32>();

/// The outputs of a group.
type Tiles = SmallVec<[Tile; 4]>;

/// Executes a group in place of its members. Returns false, without an effect, if the loop does not
/// support their operands.
#[inline(always)]
pub(crate) fn execute<'a>(
    machine: &mut Machine<'a>,
    group: &FusedGroup,
    members: &'a [Step],
) -> Outcome<bool> {
    if execute_loop(machine, group, members, &[])? {
        return Ok(true);
    }
    with_loads(machine, group, members)
}

/// Executes the loads that the loop cannot perform, then the loop. Returns false, without an
/// effect, if the loop does not support another operand.
#[cold]
fn with_loads<'a>(machine: &mut Machine<'a>, group: &FusedGroup, members: &'a [Step]) -> Outcome<bool> {
    if !is_applicable(machine, group) {
        return Ok(false);
    }
    let mut loaded: SmallVec<[usize; 8]> = SmallVec::new();
    for op in &group.ops {
        if let FusedOp::Load(_, member) = op {
            let step = &members[*member];
            let is_direct = direct_load(machine, step).map_err(|fault| fault.in_step(step))?.is_some();
            if !is_direct {
                load(machine, step).map_err(|fault| fault.in_step(step))?;
                loaded.push(*member);
            }
        }
    }
    let is_done = execute_loop(machine, group, members, &loaded)?;
    assert!(is_done, "all operands are dense or uniform");
    Ok(true)
}

/// Returns whether the loop supports the operands after all loads: each is dense or uniform, at
/// least one is dense, and each `select` keeps a prefix.
fn is_applicable(machine: &Machine<'_>, group: &FusedGroup) -> bool {
    let mut has_elements = false;
    let all_known = group.ops.iter().all(|op| match op {
        FusedOp::Slot(_, operand) | FusedOp::Rows(_, operand, _) => match machine.form_of(operand.slot) {
            Form::Dense(_) => {
                has_elements = true;
                true
            }
            Form::Uniform(_) => true,
            Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => false,
        },
        FusedOp::Load(..) => {
            has_elements = true;
            true
        }
        FusedOp::Select(condition, other) => cut_at(machine, group, [condition.slot, other.slot]).is_some(),
        FusedOp::Output(..)
        | FusedOp::Itself(_)
        | FusedOp::Unary(_)
        | FusedOp::Write(_)
        | FusedOp::Reduce(_) => true,
    });
    all_known && has_elements
}

/// The stages under construction: one for each op, except a `select` that keeps all elements.
struct Stages<'m> {
    list: SmallVec<[Stage<'m>; 12]>,
    has_elements: bool,
    /// The length of the prefix after which all operands are uniform, in whole blocks.
    varying: usize,
}

impl<'m> Stages<'m> {
    /// Adds a function whose operand is a tile, with a varying prefix of `varying` bytes.
    #[inline(always)]
    fn push_bytes(&mut self, function: Binary, bytes: &'m [u8], varying: usize) {
        let (first, rest) = bytes.split_at(varying);
        let number = if rest.is_empty() { 0.0 } else { RunReader::of(rest).read(0) };
        self.push_run(function, RunReader::of(first), number);
    }

    #[inline(always)]
    fn push_run(&mut self, function: Binary, run: RunReader<'m>, rest: f32) {
        self.has_elements = true;
        self.varying = self.varying.max((run.len() / SIZE).next_multiple_of(BLOCK));
        self.list.push(Stage::tile(function, run, rest));
    }

    /// Adds a function whose operand is in a slot. Returns false if it is neither dense nor
    /// uniform.
    #[inline(always)]
    fn push_slot(&mut self, function: Binary, form: &'m Form) -> bool {
        match form {
            Form::Uniform(bits) => self.list.push(Stage::number(function, f32::from_bits(*bits as u32))),
            Form::Dense(tile) => self.push_bytes(function, tile.bytes(), tile.varying()),
            Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => return false,
        }
        true
    }
}

/// Adds the stages of the group. Returns false if the loop cannot read an operand, or if no operand
/// is a tile. `loaded` has the loads that were executed before the loop.
#[inline(always)]
fn locate<'m>(
    machine: &'m Machine<'_>,
    group: &FusedGroup,
    members: &[Step],
    loaded: &[usize],
    targets: &[FusedOutput<'m>],
    stages: &mut Stages<'m>,
) -> Outcome<bool> {
    for op in &group.ops {
        let is_located = match *op {
            FusedOp::Slot(function, operand) => stages.push_slot(function, machine.form_of(operand.slot)),
            FusedOp::Rows(function, operand, shift) => match machine.form_of(operand.slot) {
                Form::Dense(tile) => {
                    stages.has_elements = true;
                    stages.varying = group.elements;
                    stages.list.push(Stage::rows(function, RunReader::of(tile.bytes()), shift));
                    true
                }
                form => stages.push_slot(function, form),
            },
            FusedOp::Load(function, member) => {
                let step = &members[member];
                if !loaded.is_empty() && loaded.contains(&member) {
                    stages.has_elements = true;
                    stages.push_slot(function, machine.form_of(step.result()))
                } else {
                    match direct_load(machine, step).map_err(|fault| fault.in_step(step))? {
                        Some((run, rest)) => {
                            stages.push_run(function, run, rest);
                            true
                        }
                        None => false,
                    }
                }
            }
            FusedOp::Output(function, number) => {
                stages.list.push(Stage::tile(function, targets[number].run.reader(), 0.0));
                true
            }
            FusedOp::Select(condition, other) => match cut_at(machine, group, [condition.slot, other.slot]) {
                Some((end, value)) if end < group.elements => {
                    stages.varying = stages.varying.max(end.next_multiple_of(BLOCK));
                    stages.list.push(Stage::cut(end, value));
                    true
                }
                cut => cut.is_some(),
            },
            FusedOp::Itself(function) => {
                stages.list.push(Stage::itself(function));
                true
            }
            FusedOp::Unary(function) => {
                stages.list.push(Stage::unary(function));
                true
            }
            FusedOp::Write(target) => {
                stages.list.push(Stage::write(target));
                true
            }
            FusedOp::Reduce(reduction) => {
                stages.list.push(Stage::reduce(reduction));
                true
            }
        };
        if !is_located {
            return Ok(false);
        }
    }
    Ok(stages.has_elements)
}

/// Returns the length of the prefix that a `select` keeps, and the float that replaces the rest.
/// Returns `None` if the condition keeps no non-empty prefix of a 1-D tile, or if the other operand
/// varies.
#[inline(always)]
fn cut_at(machine: &Machine<'_>, group: &FusedGroup, [condition, other]: [Slot; 2]) -> Option<(usize, f32)> {
    match (machine.form_of(condition), machine.form_of(other)) {
        (Form::Uniform(bits), _) if *bits != 0 => Some((group.elements, 0.0)),
        (Form::Box(mask), Form::Uniform(bits))
            if mask.low[0] == 0 && machine.ty(condition).extents.rank == 1 =>
        {
            Some((mask.high[0] as usize, f32::from_bits(*bits as u32)))
        }
        _ => None,
    }
}

/// Runs the loop and sets its results. Returns false, without an effect, if [`locate`] fails.
///
/// This function is long because a call would move tiles and targets in memory.
#[inline(always)]
fn execute_loop<'a>(
    machine: &mut Machine<'a>,
    group: &FusedGroup,
    members: &'a [Step],
    loaded: &[usize],
) -> Outcome<bool> {
    let bytes = group.elements * SIZE;
    let mut tiles = Tiles::new();
    for &slot in &group.outputs {
        // A later stage still reads the loaded tile, so the output gets a new tile.
        let is_loaded = loaded.iter().any(|&member| members[member].results[0] == slot);
        tiles.push(if is_loaded { Tile::new(bytes) } else { machine.tile_for(slot, bytes) });
    }
    // The destination if the loop cannot write to the memory of the store. The member `store` then
    // stores it.
    let mut unstored = Tile::default();
    let mut targets: SmallVec<[FusedOutput<'_>; 4]> = SmallVec::new();
    for tile in &mut tiles {
        targets.push(FusedOutput { run: RunWriter::of(tile.bytes_mut()), elements: group.elements });
    }
    let mut stages = Stages { list: SmallVec::new(), has_elements: false, varying: 0 };
    if !locate(machine, group, members, loaded, &targets, &mut stages)? {
        return Ok(false);
    }
    let (mut elements, mut is_stored) = (group.elements, true);
    if let Some(member) = group.store {
        let step = &members[member];
        let stored = direct_store(machine, step).map_err(|fault| fault.in_step(step))?;
        let is_shifted = |store: &FusedOutput<'_>| {
            stages.list.iter().any(|stage| store.run.is_shifted_against(stage.reads()))
        };
        match stored.filter(|store| !is_shifted(store)) {
            None => {
                (unstored, is_stored) = (Tile::new(bytes), false);
                targets.push(FusedOutput { run: RunWriter::of(unstored.bytes_mut()), elements });
            }
            Some(store) => {
                if group.reduction.is_none() && group.outputs.is_empty() {
                    elements = store.elements.next_multiple_of(BLOCK);
                }
                targets.push(store);
            }
        }
    }
    let reduction = group.reduction.map(|(reduction, _)| reduction);
    let varying = stages.varying.min(elements);
    let reduced = run(&stages.list, &mut targets, reduction, elements, varying);
    drop((stages, targets));
    let is_uniform_at_the_end = varying < group.elements;
    for (&slot, tile) in group.outputs.iter().zip(&mut tiles) {
        if is_uniform_at_the_end {
            tile.set_varying(varying * SIZE);
        }
        machine.set_dense(slot, std::mem::take(tile));
    }
    if let (Some((_, member)), Some(reduced)) = (group.reduction, reduced) {
        let step = &members[member];
        if reduced.is_certain {
            machine.set_uniform(step.result(), reduced.value.to_bits().into());
        } else if group.outputs.contains(&step.operands[0].slot) {
            machine.single(step)?;
        } else {
            one_by_one(machine, members, loaded)?;
            return Ok(true);
        }
    }
    if let (Some(member), false) = (group.store, is_stored) {
        let step = &members[member];
        unstored.set_varying(varying * SIZE);
        machine.set(step.operands[1].slot, Value::dense(unstored));
        store(machine, step).map_err(|fault| fault.in_step(step))?;
    }
    machine.clear(&group.frees);
    Ok(true)
}

/// Executes the members one by one, except the loads in `loaded`. The group has no store: it ends
/// in a maximum that the loop could not find.
#[cold]
fn one_by_one<'a>(machine: &mut Machine<'a>, members: &'a [Step], loaded: &[usize]) -> Outcome {
    for (member, step) in members.iter().enumerate() {
        if !loaded.contains(&member) {
            machine.single(step)?;
        }
    }
    Ok(())
}
