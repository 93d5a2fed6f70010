//! Chains: several steps on binary32 tiles as one loop, or else not at all.

use smallvec::SmallVec;

use crate::fault::Outcome;
use crate::kernels::chain::{self, BLOCK, Feed, Link, Target, Totals};
use crate::machine::Machine;
use crate::memory::{RunReader, RunWriter};
use crate::program::{Action, Chain, ChainLink, ChainOperand, Slot, Step, Use};
use crate::tile::Tile;
use crate::value::{Form, Value};

use super::memory::{DirectLoad, DirectStore, load, store};
use super::reduce::reduce;

/// The bytes of an element.
const SIZE: usize = size_of::<f32>();

/// Does what the members do. False if it cannot; nothing has happened then.
pub(crate) fn chain(machine: &mut Machine<'_>, chain: &Chain, members: &[Step]) -> Outcome<bool> {
    if !is_applicable(machine, chain) {
        return Ok(false);
    }
    // What cannot be read from where it lies is loaded by its step.
    let mut loads: SmallVec<[Option<DirectLoad<'_>>; 8]> = SmallVec::new();
    for link in &chain.links {
        if let ChainLink::Apply(_, ChainOperand::Load(member)) = link {
            let step = &members[*member];
            let direct = DirectLoad::new(machine, step).map_err(|fault| fault.in_step(step))?;
            if direct.is_none() {
                load(machine, step).map_err(|fault| fault.in_step(step))?;
            }
            loads.push(direct);
        }
    }
    let last = members.last().filter(|step| matches!(step.action, Action::Store));
    let mut direct = None;
    if let Some(step) = last {
        direct = DirectStore::new(machine, step).map_err(|fault| fault.in_step(step))?;
        let is_shifted = |store: &DirectStore<'_>| {
            loads.iter().flatten().any(|load| store.run.is_shifted_against(&load.run))
        };
        if direct.as_ref().is_some_and(is_shifted) {
            direct = None;
        }
    }
    let is_stored_by_step = last.is_some() && direct.is_none();
    let done = execute(machine, chain, members, &loads, direct);
    finish(machine, chain, members, done, last.filter(|_| is_stored_by_step))?;
    Ok(true)
}

/// Whether all operands are dense or uniform, and some are dense.
fn is_applicable(machine: &Machine<'_>, chain: &Chain) -> bool {
    let mut has_elements = false;
    for link in &chain.links {
        let known = match link {
            ChainLink::Apply(_, ChainOperand::Slot(operand) | ChainOperand::Rows(operand, _)) => {
                match machine.form(*operand) {
                    Form::Dense(_) => {
                        has_elements = true;
                        true
                    }
                    Form::Uniform(_) => true,
                    Form::Affine(_) | Form::Box(_) => false,
                }
            }
            ChainLink::Apply(_, ChainOperand::Load(_)) => {
                has_elements = true;
                true
            }
            ChainLink::Select(condition, other) => {
                matches!(machine.form(*other), Form::Uniform(_))
                    && match machine.form(*condition) {
                        Form::Uniform(bits) => *bits != 0,
                        Form::Box(mask) => mask.low[0] == 0 && is_row(machine, *condition),
                        Form::Affine(_) | Form::Dense(_) => false,
                    }
            }
            ChainLink::Apply(..) | ChainLink::Write(_) | ChainLink::Total(..) | ChainLink::Store(_) => true,
        };
        if !known {
            return false;
        }
    }
    has_elements
}

fn is_row(machine: &Machine<'_>, operand: Use) -> bool {
    machine.type_of(operand).shape().len() == 1
}

/// What a loop over the elements gave.
struct Done {
    /// The elements of slots, and those that a store takes, which come last.
    tiles: SmallVec<[Tile; 4]>,
    totals: Option<Totals>,
}

/// Runs the loop.
fn execute(
    machine: &Machine<'_>,
    chain: &Chain,
    members: &[Step],
    loads: &[Option<DirectLoad<'_>>],
    direct: Option<DirectStore<'_>>,
) -> Done {
    let bytes = chain.elements * SIZE;
    let mut slots: SmallVec<[Slot; 4]> = SmallVec::new();
    let mut loads = loads.iter();
    let mut has_store = false;
    let mut reads_all = false;
    let mut links: SmallVec<[Link<'_>; 12]> = SmallVec::new();
    for link in &chain.links {
        links.push(match link {
            ChainLink::Apply(function, operand) => {
                let feed = match operand {
                    ChainOperand::Slot(operand) => slot_feed(machine, operand.slot),
                    ChainOperand::Load(member) => match loads.next().and_then(Option::as_ref) {
                        Some(load) if load.run.len() < bytes => Feed::Prefix(load.run, load.other),
                        Some(load) => Feed::Tile(load.run),
                        None => slot_feed(machine, members[*member].results[0]),
                    },
                    ChainOperand::Rows(operand, blocks) => match slot_feed(machine, operand.slot) {
                        Feed::Tile(run) => Feed::Rows(run, *blocks),
                        other => other,
                    },
                    ChainOperand::Itself => Feed::Itself,
                    ChainOperand::Written(slot) => Feed::Target(
                        slots.iter().position(|known| known == slot).expect("an earlier link writes it"),
                    ),
                };
                Link::Apply(*function, feed)
            }
            ChainLink::Select(condition, other) => match (machine.form(*condition), machine.form(*other)) {
                (Form::Box(mask), Form::Uniform(bits)) => {
                    Link::Cut(mask.high[0] as usize, f32::from_bits(*bits as u32))
                }
                _ => continue,
            },
            ChainLink::Write(slot) => {
                slots.push(*slot);
                reads_all = true;
                Link::Write(slots.len() - 1)
            }
            ChainLink::Total(total, _) => {
                reads_all = true;
                Link::Total(*total)
            }
            ChainLink::Store(_) => {
                has_store = true;
                Link::Write(slots.len())
            }
        });
    }
    let mut elements = chain.elements;
    let mut tiles: SmallVec<[Tile; 4]> = slots.iter().map(|_| Tile::new(bytes)).collect();
    if has_store && direct.is_none() {
        tiles.push(Tile::new(bytes));
    }
    let mut targets: SmallVec<[Target<'_>; 4]> = tiles
        .iter_mut()
        .map(|tile| Target { run: RunWriter::of(tile.bytes_mut()), elements: chain.elements })
        .collect();
    if let Some(direct) = direct {
        if !reads_all {
            elements = direct.elements.next_multiple_of(BLOCK);
        }
        targets.push(Target { run: direct.run, elements: direct.elements });
    }
    let totals = chain::run(&links, &mut targets, elements);
    drop(targets);
    Done { tiles, totals }
}

fn slot_feed<'m>(machine: &'m Machine<'_>, slot: Slot) -> Feed<'m> {
    match machine.form_of(slot) {
        Form::Uniform(bits) => Feed::Scalar(f32::from_bits(*bits as u32)),
        Form::Dense(tile) => Feed::Tile(RunReader::of(tile.bytes())),
        Form::Affine(_) | Form::Box(_) => unreachable!("floats have neither form"),
    }
}

/// Gives slots their values, and lets the step store that has to.
fn finish(
    machine: &mut Machine<'_>,
    chain: &Chain,
    members: &[Step],
    done: Done,
    store_step: Option<&Step>,
) -> Outcome {
    let mut tiles = done.tiles.into_iter();
    let mut uncertain = None;
    for link in &chain.links {
        match link {
            ChainLink::Write(slot) => {
                machine.set_dense(*slot, tiles.next().expect("each slot has a tile"));
            }
            ChainLink::Total(_, member) => match done.totals {
                Some(totals) if totals.is_certain => {
                    machine.set_uniform(members[*member].results[0], totals.value.to_bits().into());
                }
                _ => uncertain = Some(&members[*member]),
            },
            ChainLink::Apply(..) | ChainLink::Select(..) | ChainLink::Store(_) => {}
        }
    }
    if let Some(step) = uncertain
        && let Action::Reduce(how) = &step.action
    {
        reduce(machine, step, how).map_err(|fault| fault.in_step(step))?;
    }
    if let Some(step) = store_step {
        machine.set(step.operands[1].slot, Value::dense(tiles.next().expect("the store has a tile")));
        store(machine, step).map_err(|fault| fault.in_step(step))?;
    }
    machine.clear(&chain.frees);
    Ok(())
}
