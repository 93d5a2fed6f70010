//! Chains: several steps on binary32 tiles as one loop, or else not at all.
//!
//! For each chain of each program this finds out where the operands are, which for a row of some hundred elements takes as
//! long as a part of the loop. So what it puts into lists is made there: it is not returned as an option or an enum, whose
//! parts would be written one by one and read as a whole, for which a processor waits.
#![allow(clippy::inline_always, reason = "see above")]

use smallvec::SmallVec;

use crate::fault::Outcome;
use crate::kernels::chain::{self, BLOCK, Feed, Target, Totals};
use crate::machine::Machine;
use crate::memory::{RunReader, RunWriter};
use crate::program::{Action, Chain, ChainOperand, Slot, Step};
use crate::tile::Tile;
use crate::value::{Form, Value};

use super::memory::{direct_load, direct_store, load, store};
use super::reduce::reduce;

/// The bytes of an element.
const SIZE: usize = size_of::<f32>();

type Feeds<'m> = SmallVec<[Feed<'m>; 8]>;

/// Does what the members do. False if it cannot; nothing has happened then.
pub(crate) fn chain(machine: &mut Machine<'_>, chain: &Chain, members: &[Step]) -> Outcome<bool> {
    let mut feeds = Feeds::new();
    if gather(machine, chain, members, &[], &mut feeds)? {
        let done = execute(machine, chain, members, &feeds)?;
        drop(feeds);
        finish(machine, chain, members, done)?;
        return Ok(true);
    }
    drop(feeds);
    with_loads(machine, chain, members)
}

/// A chain some of whose loads cannot be read from where they lie: these are loaded by their steps.
#[cold]
fn with_loads(machine: &mut Machine<'_>, chain: &Chain, members: &[Step]) -> Outcome<bool> {
    if !is_applicable(machine, chain) {
        return Ok(false);
    }
    let mut loaded: SmallVec<[usize; 8]> = SmallVec::new();
    for operand in &chain.operands {
        if let ChainOperand::Load(member) = operand {
            let step = &members[*member];
            if !direct_load(machine, step, &mut Feeds::new()).map_err(|fault| fault.in_step(step))? {
                load(machine, step).map_err(|fault| fault.in_step(step))?;
                loaded.push(*member);
            }
        }
    }
    let mut feeds = Feeds::new();
    gather(machine, chain, members, &loaded, &mut feeds)?;
    let done = execute(machine, chain, members, &feeds)?;
    drop(feeds);
    finish(machine, chain, members, done)?;
    Ok(true)
}

/// Whether all operands are dense or uniform, and some are dense, once all loads are done.
fn is_applicable(machine: &Machine<'_>, chain: &Chain) -> bool {
    let mut has_elements = false;
    let all_known = chain.operands.iter().all(|operand| match operand {
        ChainOperand::Slot(operand) | ChainOperand::Rows(operand, _) => match machine.form_of(operand.slot) {
            Form::Dense(_) => {
                has_elements = true;
                true
            }
            Form::Uniform(_) => true,
            Form::Affine(_) | Form::Box(_) => false,
        },
        ChainOperand::Load(_) => {
            has_elements = true;
            true
        }
        ChainOperand::Select(condition, other) => {
            push_cut(machine, chain, [condition.slot, other.slot], &mut Feeds::new())
        }
        ChainOperand::Written(_) => true,
    });
    all_known && has_elements
}

/// Finds where the operands are. False if some are not where a loop can read them; `loaded` are the members that have
/// been executed.
#[inline(always)]
fn gather<'m>(
    machine: &'m Machine<'_>,
    chain: &Chain,
    members: &[Step],
    loaded: &[usize],
    feeds: &mut Feeds<'m>,
) -> Outcome<bool> {
    let mut has_elements = false;
    for operand in &chain.operands {
        let is_there = match operand {
            ChainOperand::Slot(operand) => push_slot(machine, operand.slot, feeds, &mut has_elements),
            ChainOperand::Rows(operand, blocks) => match machine.form_of(operand.slot) {
                Form::Dense(tile) => {
                    has_elements = true;
                    feeds.push(Feed::Rows(RunReader::of(tile.bytes()), *blocks));
                    true
                }
                Form::Uniform(_) | Form::Affine(_) | Form::Box(_) => {
                    push_slot(machine, operand.slot, feeds, &mut has_elements)
                }
            },
            ChainOperand::Load(member) => {
                has_elements = true;
                let step = &members[*member];
                if !loaded.is_empty() && loaded.contains(member) {
                    push_slot(machine, step.results[0], feeds, &mut has_elements)
                } else {
                    direct_load(machine, step, feeds).map_err(|fault| fault.in_step(step))?
                }
            }
            ChainOperand::Written(number) => {
                feeds.push(Feed::Target(*number));
                true
            }
            ChainOperand::Select(condition, other) => {
                push_cut(machine, chain, [condition.slot, other.slot], feeds)
            }
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(has_elements)
}

/// The elements of a slot, if they are dense or uniform.
#[inline(always)]
fn push_slot<'m>(
    machine: &'m Machine<'_>,
    slot: Slot,
    feeds: &mut Feeds<'m>,
    has_elements: &mut bool,
) -> bool {
    match machine.form_of(slot) {
        Form::Uniform(bits) => feeds.push(Feed::Scalar(f32::from_bits(*bits as u32))),
        Form::Dense(tile) => {
            *has_elements = true;
            let (bytes, varying) = (tile.bytes(), tile.varying());
            if varying < bytes.len() {
                let (first, rest) = bytes.split_at(varying);
                feeds.push(Feed::Prefix(RunReader::of(first), RunReader::of(rest).read(0)));
            } else {
                feeds.push(Feed::Tile(RunReader::of(bytes)));
            }
        }
        Form::Affine(_) | Form::Box(_) => return false,
    }
    true
}

/// A selection of the first elements, or of all.
#[inline(always)]
fn push_cut(
    machine: &Machine<'_>,
    chain: &Chain,
    [condition, other]: [Slot; 2],
    feeds: &mut Feeds<'_>,
) -> bool {
    match (machine.form_of(condition), machine.form_of(other)) {
        (Form::Uniform(bits), _) if *bits != 0 => feeds.push(Feed::Cut(chain.elements, 0.0)),
        (Form::Box(mask), Form::Uniform(bits))
            if mask.low[0] == 0 && machine.ty(condition).extents.rank == 1 =>
        {
            feeds.push(Feed::Cut(mask.high[0] as usize, f32::from_bits(*bits as u32)));
        }
        _ => return false,
    }
    true
}

/// What a loop over the elements gave.
struct Done {
    /// The elements of slots, and those that a store takes, which come last.
    tiles: SmallVec<[Tile; 4]>,
    totals: Option<Totals>,
    /// Whether the step has yet to store.
    is_to_be_stored: bool,
}

/// Runs the loop.
#[inline(always)]
fn execute(machine: &Machine<'_>, chain: &Chain, members: &[Step], feeds: &Feeds<'_>) -> Outcome<Done> {
    let bytes = chain.elements * SIZE;
    let mut tiles: SmallVec<[Tile; 4]> = SmallVec::new();
    chain.written.iter().for_each(|_| tiles.push(Tile::new(bytes)));
    let mut elements = chain.elements;
    let mut stored = None;
    if let Some(member) = chain.store {
        let step = &members[member];
        stored = direct_store(machine, step).map_err(|fault| fault.in_step(step))?;
        let is_shifted = |store: &Target<'_>| {
            feeds.iter().any(|feed| match feed {
                Feed::Tile(run) | Feed::Prefix(run, _) => store.run.is_shifted_against(run),
                Feed::Scalar(_) | Feed::Rows(..) | Feed::Target(_) | Feed::Cut(..) => false,
            })
        };
        match stored.as_ref().filter(|&store| !is_shifted(store)) {
            None => {
                stored = None;
                tiles.push(Tile::new(bytes));
            }
            Some(store) if chain.total.is_none() && chain.written.is_empty() => {
                elements = store.elements.next_multiple_of(BLOCK);
            }
            Some(_) => {}
        }
    }
    let is_to_be_stored = chain.store.is_some() && stored.is_none();
    let mut targets: SmallVec<[Target<'_>; 4]> = SmallVec::new();
    for tile in &mut tiles {
        targets.push(Target { run: RunWriter::of(tile.bytes_mut()), elements: chain.elements });
    }
    if let Some(stored) = stored {
        targets.push(stored);
    }
    let total = chain.total.map(|(total, _)| total);
    let varying = varying(feeds, elements);
    let is_cut = feeds.iter().any(|feed| matches!(feed, Feed::Cut(end, _) if *end < chain.elements));
    let links = if is_cut { &chain.links } else { &chain.uncut_links };
    let totals = chain::run(links, feeds, &mut targets, total, elements, varying);
    drop(targets);
    if varying < chain.elements {
        tiles.iter_mut().for_each(|tile| tile.set_varying(varying * SIZE));
    }
    Ok(Done { tiles, totals, is_to_be_stored })
}

/// From which element on the operands are the same for all elements: a multiple of a block.
fn varying(feeds: &Feeds<'_>, elements: usize) -> usize {
    let of = |feed: &Feed<'_>| match feed {
        Feed::Prefix(run, _) => (run.len() / SIZE).next_multiple_of(BLOCK),
        Feed::Cut(end, _) if *end < elements => end.next_multiple_of(BLOCK),
        Feed::Tile(_) | Feed::Rows(..) => elements,
        Feed::Scalar(_) | Feed::Target(_) | Feed::Cut(..) => 0,
    };
    feeds.iter().map(of).max().unwrap_or(elements).min(elements)
}

/// Gives slots their values, and lets the step store that has to.
#[inline(always)]
fn finish(machine: &mut Machine<'_>, chain: &Chain, members: &[Step], done: Done) -> Outcome {
    let mut tiles = done.tiles.into_iter();
    for (&slot, tile) in chain.written.iter().zip(&mut tiles) {
        machine.set_dense(slot, tile);
    }
    if let (Some((_, member)), Some(totals)) = (chain.total, done.totals) {
        let step = &members[member];
        if totals.is_certain {
            machine.set_uniform(step.results[0], totals.value.to_bits().into());
        } else if let Action::Reduce(how) = &step.action {
            reduce(machine, step, how).map_err(|fault| fault.in_step(step))?;
        }
    }
    if let Some(member) = chain.store.filter(|_| done.is_to_be_stored) {
        let step = &members[member];
        machine.set(step.operands[1].slot, Value::dense(tiles.next().expect("the store has a tile")));
        store(machine, step).map_err(|fault| fault.in_step(step))?;
    }
    machine.clear(&chain.frees);
    Ok(())
}
