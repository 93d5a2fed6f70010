//! Chains: several steps on binary32 tiles as one loop, or else not at all.
//!
//! For each chain of each program this finds out where the operands are, which for a row of some hundred elements takes as
//! long as a part of the loop. So what it puts into lists is made there: it is not returned as an option or an enum, whose
//! parts would be written one by one and read as a whole, for which a processor waits.
#![allow(clippy::inline_always, reason = "see above")]

use smallvec::SmallVec;

use crate::compile::program::{Chain, Link, Slot, Step};
use crate::run::fault::Outcome;
use crate::run::kernels::chain::{self, BLOCK, Binary, Stage, Target};
use crate::run::machine::Machine;
use crate::run::memory::{RunReader, RunWriter};
use crate::run::tile::Tile;
use crate::run::value::{Form, Value};

use super::memory::{direct_load, direct_store, load, store};

/// The bytes of an element.
const SIZE: usize = size_of::<f32>();

/// The tiles that a chain writes.
type Tiles = SmallVec<[Tile; 4]>;

/// Does what the members do. False if it cannot; nothing has happened then.
#[inline(always)]
pub(crate) fn chain<'a>(machine: &mut Machine<'a>, chain: &Chain, members: &'a [Step]) -> Outcome<bool> {
    if execute(machine, chain, members, &[])? {
        return Ok(true);
    }
    with_loads(machine, chain, members)
}

/// A chain some of whose loads cannot be read from where they lie: these are loaded by their steps.
#[cold]
fn with_loads<'a>(machine: &mut Machine<'a>, chain: &Chain, members: &'a [Step]) -> Outcome<bool> {
    if !is_applicable(machine, chain) {
        return Ok(false);
    }
    let mut loaded: SmallVec<[usize; 8]> = SmallVec::new();
    for link in &chain.links {
        if let Link::Load(_, member) = link {
            let step = &members[*member];
            let is_direct = direct_load(machine, step).map_err(|fault| fault.in_step(step))?.is_some();
            if !is_direct {
                load(machine, step).map_err(|fault| fault.in_step(step))?;
                loaded.push(*member);
            }
        }
    }
    let is_done = execute(machine, chain, members, &loaded)?;
    assert!(is_done, "all operands are there");
    Ok(true)
}

/// Whether all operands are dense or uniform, and some are dense, once all loads are done.
fn is_applicable(machine: &Machine<'_>, chain: &Chain) -> bool {
    let mut has_elements = false;
    let all_known = chain.links.iter().all(|link| match link {
        Link::Slot(_, operand) | Link::Rows(_, operand, _) => match machine.form_of(operand.slot) {
            Form::Dense(_) => {
                has_elements = true;
                true
            }
            Form::Uniform(_) => true,
            Form::Affine(_) | Form::Box(_) => false,
        },
        Link::Load(..) => {
            has_elements = true;
            true
        }
        Link::Select(condition, other) => cut_at(machine, chain, [condition.slot, other.slot]).is_some(),
        Link::Written(..) | Link::Itself(_) | Link::Alone(_) | Link::Write(_) | Link::Total(_) => true,
    });
    all_known && has_elements
}

/// The stages of a loop while they are gathered.
struct Stages<'m> {
    list: SmallVec<[Stage<'m>; 12]>,
    has_elements: bool,
    /// From which element on the operands are the same for all elements: a multiple of a block.
    varying: usize,
}

impl<'m> Stages<'m> {
    /// A function of a tile, of which the bytes from `varying` on are copies of one number.
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

    /// A function of the elements of a slot, if they are dense or uniform.
    #[inline(always)]
    fn push_slot(&mut self, function: Binary, form: &'m Form) -> bool {
        match form {
            Form::Uniform(bits) => self.list.push(Stage::number(function, f32::from_bits(*bits as u32))),
            Form::Dense(tile) => self.push_bytes(function, tile.bytes(), tile.varying()),
            Form::Affine(_) | Form::Box(_) => return false,
        }
        true
    }
}

/// Finds where the operands are. False if some are not where a loop can read them; `loaded` are the members that have
/// been executed.
#[inline(always)]
fn gather<'m>(
    machine: &'m Machine<'_>,
    chain: &Chain,
    members: &[Step],
    loaded: &[usize],
    targets: &[Target<'m>],
    stages: &mut Stages<'m>,
) -> Outcome<bool> {
    for link in &chain.links {
        let is_there = match *link {
            Link::Slot(function, operand) => stages.push_slot(function, machine.form_of(operand.slot)),
            Link::Rows(function, operand, shift) => match machine.form_of(operand.slot) {
                Form::Dense(tile) => {
                    stages.has_elements = true;
                    stages.varying = chain.elements;
                    stages.list.push(Stage::rows(function, RunReader::of(tile.bytes()), shift));
                    true
                }
                form => stages.push_slot(function, form),
            },
            Link::Load(function, member) => {
                let step = &members[member];
                if !loaded.is_empty() && loaded.contains(&member) {
                    stages.has_elements = true;
                    stages.push_slot(function, machine.form_of(step.results[0]))
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
            Link::Written(function, number) => {
                stages.list.push(Stage::tile(function, targets[number].run.reader(), 0.0));
                true
            }
            Link::Select(condition, other) => match cut_at(machine, chain, [condition.slot, other.slot]) {
                Some((end, value)) if end < chain.elements => {
                    stages.varying = stages.varying.max(end.next_multiple_of(BLOCK));
                    stages.list.push(Stage::cut(end, value));
                    true
                }
                cut => cut.is_some(),
            },
            Link::Itself(function) => {
                stages.list.push(Stage::itself(function));
                true
            }
            Link::Alone(function) => {
                stages.list.push(Stage::alone(function));
                true
            }
            Link::Write(target) => {
                stages.list.push(Stage::write(target));
                true
            }
            Link::Total(total) => {
                stages.list.push(Stage::total(total));
                true
            }
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(stages.has_elements)
}

/// The end of a selection of the first elements, and what those behind it are.
#[inline(always)]
fn cut_at(machine: &Machine<'_>, chain: &Chain, [condition, other]: [Slot; 2]) -> Option<(usize, f32)> {
    match (machine.form_of(condition), machine.form_of(other)) {
        (Form::Uniform(bits), _) if *bits != 0 => Some((chain.elements, 0.0)),
        (Form::Box(mask), Form::Uniform(bits))
            if mask.low[0] == 0 && machine.ty(condition).extents.rank == 1 =>
        {
            Some((mask.high[0] as usize, f32::from_bits(*bits as u32)))
        }
        _ => None,
    }
}

/// Runs the loop and gives slots their values. False if some operands are not where a loop can read them; nothing has
/// happened then.
///
/// It is one function: what the loop gave would have to be moved from one to the other.
#[inline(always)]
fn execute<'a>(
    machine: &mut Machine<'a>,
    chain: &Chain,
    members: &'a [Step],
    loaded: &[usize],
) -> Outcome<bool> {
    let bytes = chain.elements * SIZE;
    let mut tiles = Tiles::new();
    for &slot in &chain.written {
        // A tile that its step has loaded is about to be read.
        let is_loaded = loaded.iter().any(|&member| members[member].results[0] == slot);
        tiles.push(if is_loaded { Tile::new(bytes) } else { machine.tile_for(slot, bytes) });
    }
    // What the step has yet to store.
    let mut unstored = Tile::default();
    let mut targets: SmallVec<[Target<'_>; 4]> = SmallVec::new();
    for tile in &mut tiles {
        targets.push(Target { run: RunWriter::of(tile.bytes_mut()), elements: chain.elements });
    }
    let mut stages = Stages { list: SmallVec::new(), has_elements: false, varying: 0 };
    if !gather(machine, chain, members, loaded, &targets, &mut stages)? {
        return Ok(false);
    }
    let (mut elements, mut is_stored) = (chain.elements, true);
    if let Some(member) = chain.store {
        let step = &members[member];
        let stored = direct_store(machine, step).map_err(|fault| fault.in_step(step))?;
        let is_shifted =
            |store: &Target<'_>| stages.list.iter().any(|stage| store.run.is_shifted_against(stage.reads()));
        match stored.filter(|store| !is_shifted(store)) {
            None => {
                (unstored, is_stored) = (Tile::new(bytes), false);
                targets.push(Target { run: RunWriter::of(unstored.bytes_mut()), elements });
            }
            Some(store) => {
                if chain.total.is_none() && chain.written.is_empty() {
                    elements = store.elements.next_multiple_of(BLOCK);
                }
                targets.push(store);
            }
        }
    }
    let total = chain.total.map(|(total, _)| total);
    let varying = stages.varying.min(elements);
    let totals = chain::run(&stages.list, &mut targets, total, elements, varying);
    drop((stages, targets));
    let is_uniform_at_the_end = varying < chain.elements;
    for (&slot, tile) in chain.written.iter().zip(&mut tiles) {
        if is_uniform_at_the_end {
            tile.set_varying(varying * SIZE);
        }
        machine.set_dense(slot, std::mem::take(tile));
    }
    if let (Some((_, member)), Some(totals)) = (chain.total, totals) {
        let step = &members[member];
        if totals.is_certain {
            machine.set_uniform(step.results[0], totals.value.to_bits().into());
        } else if chain.written.contains(&step.operands[0].slot) {
            machine.single(step)?;
        } else {
            one_by_one(machine, members, loaded)?;
            return Ok(true);
        }
    }
    if let (Some(member), false) = (chain.store, is_stored) {
        let step = &members[member];
        unstored.set_varying(varying * SIZE);
        machine.set(step.operands[1].slot, Value::dense(unstored));
        store(machine, step).map_err(|fault| fault.in_step(step))?;
    }
    machine.clear(&chain.frees);
    Ok(true)
}

/// Executes the members that have not been executed, of a chain that stores nothing.
#[cold]
fn one_by_one<'a>(machine: &mut Machine<'a>, members: &'a [Step], loaded: &[usize]) -> Outcome {
    for (member, step) in members.iter().enumerate() {
        if !loaded.contains(&member) {
            machine.single(step)?;
        }
    }
    Ok(())
}
