//! Checks accesses to memory: races, uninitialized reads, alignment.

use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;
use tilewright_ir::{MemoryScope, MemorySemantics, Op};
use tilewright_sanitize::{Access, Check, Clock, Conflict, MEMORY, Mode, Published, Rules};

use crate::compile::sanitize::{CheckPoint, Plan};
use crate::program::{Step, Use};
use crate::run::argument::Argument;
use crate::run::machine::Machine;
use crate::run::memory::{Region, load_block};
use crate::run::ops::materialize::materialize;
use crate::run::tile::Tile;
use crate::run::value::Form;
use crate::types::TileType;

use super::report::{self, AccessReport, Key};
use super::{Checker, numbers};

struct AccessedElements<'a> {
    ty: &'a TileType,
    addresses: Tile,
    mask: Option<Tile>,
    size: usize,
    regions: SmallVec<[Region<'a>; 1]>,
}

impl<'a> AccessedElements<'a> {
    fn new(machine: &Machine<'a>, pointer: Use, mask: Option<Use>) -> Option<Self> {
        let ty = machine.type_of(pointer);
        let mask = match mask {
            None => None,
            Some(mask) => match machine.form(mask) {
                Form::Uniform(0) => return None,
                Form::Uniform(_) => None,
                Form::Affine(_) | Form::Box(_) | Form::Dense(_) | Form::InPlace(_) => {
                    Some(materialize(machine.type_of(mask), machine.value(mask).clone()))
                }
            },
        };
        let addresses = materialize(ty, machine.value(pointer).clone());
        let region = machine.provenance(pointer).index().map(|index| &machine.arguments[index]);
        let regions = match region {
            Some(Argument::Pointer { region, .. }) => SmallVec::from_slice(&[*region]),
            _ => SmallVec::from_slice(machine.regions),
        };
        Some(Self { ty, addresses, mask, size: ty.pointee, regions })
    }

    /// Returns the accessed lanes and their addresses, except addresses outside of the regions,
    /// which end the launch.
    fn lanes(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let addresses: &[i64] = bytemuck::cast_slice(self.addresses.bytes());
        let mask = self.mask.as_ref().map(Tile::bytes);
        let is_on = move |lane: usize| mask.is_none_or(|mask| mask[lane] != 0);
        addresses.iter().map(|&address| address as u64).enumerate().filter(move |&(lane, address)| {
            is_on(lane) && self.regions.iter().any(|region| region.contains(address, self.size))
        })
    }

    fn content(&self, address: u64) -> Option<[u8; 8]> {
        let region = self.regions.iter().find(|region| region.contains(address, self.size))?;
        let mut bytes = [0; 8];
        load_block(region, self.size, address, &[], &mut bytes[..self.size]).ok()?;
        Some(bytes)
    }
}

/// An access of the running program. [`Rules`] decides whether it races with an earlier access.
struct Lanes<'r, 'a> {
    plan: &'r Plan,
    accessed: &'r AccessedElements<'a>,
    clock: &'r Clock,
    now: Access,
    /// The stored values.
    values: Option<&'r [u8]>,
}

impl Rules for Lanes<'_, '_> {
    fn knows(&self, agent: u32, step: u32) -> bool {
        self.clock.knows(agent, step)
    }

    fn are_ordered(&self, first: &Access, second: &Access) -> bool {
        self.plan.orders(first.site, second.site)
    }

    fn writes_same(&self, first: &Access, first_lane: u32, lane: u32, address: u64) -> bool {
        let Some(values) = self.values else { return false };
        let size = self.accessed.size;
        let value = |lane: u32| values.get(lane as usize * size..(lane as usize + 1) * size);
        let is_same_step = first.site == self.now.site && first.agent == self.now.agent;
        if is_same_step && value(first_lane) == value(lane) {
            return true;
        }
        self.accessed.content(address).is_some_and(|bytes| value(lane) == Some(&bytes[..size]))
    }
}

/// Checks a load or a store before it is executed.
pub(super) fn plain(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    let [pointer, rest @ ..] = &step.operands[..] else { return };
    let (value, mask, is_volatile) = match step.op() {
        Some(Op::Store { .. }) => (rest.first(), rest.get(1), false),
        Some(Op::Load { volatile, .. }) => (None, rest.first(), *volatile),
        // tidy: wildcard because only loads and stores are plain accesses
        _ => return,
    };
    let Some(accessed) = AccessedElements::new(machine, *pointer, mask.copied()) else { return };
    let values = value.map(|value| materialize(machine.type_of(*value), machine.value(*value).clone()));
    if let (Some(value), Some(values)) = (value, &values)
        && checker.has(Check::Nan)
    {
        let mask = accessed.mask.as_ref().map(Tile::bytes);
        numbers::stored(checker, machine, (machine.type_of(*value), values.bytes(), mask));
    }
    if checker.has(Check::Alignment) {
        let is_misaligned = |&(_, address): &(usize, u64)| address % accessed.size as u64 != 0;
        if let Some((lane, addresses)) = found(accessed.lanes().filter(is_misaligned)) {
            let (pointer, lane) = (*pointer, accessed.ty.lane(lane));
            let access = AccessReport { machine, checker, point, pointer, lane, addresses: &addresses };
            report::misaligned(&access, addresses[0], value.is_some());
        }
    }
    if checker.has(Check::Init) {
        check_written(checker, machine, &accessed, (point, *pointer), (value.is_none(), value.is_some()));
    }
    if checker.has(Check::Race) {
        let mode = if is_volatile { Mode::Device } else { Mode::Plain };
        let values = values.as_ref().map(Tile::bytes);
        check_races(checker, machine, &accessed, (point, *pointer), (mode, value.is_some()), values);
    }
}

pub(super) fn atomic(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    let [pointer, rest @ ..] = &step.operands[..] else { return };
    // `keeps` is true if earlier releases to the addresses remain in effect.
    let (sem, scope, mask, (reads, writes), keeps) = match step.op() {
        Some(&Op::AtomicRmw { sem, scope, .. }) => (sem, scope, rest.get(1), (true, true), true),
        Some(&Op::AtomicCas { sem, scope }) => (sem, scope, rest.get(2), (true, true), true),
        Some(&Op::AtomicLoad { sem, scope }) => (sem, scope, rest.first(), (true, false), true),
        Some(&Op::AtomicStore { sem, scope }) => (sem, scope, rest.get(1), (false, true), false),
        Some(&Op::AtomicPoll { sem, scope }) => (sem, scope, None, (true, false), true),
        // tidy: wildcard because no other op is atomic
        _ => return,
    };
    let Some(accessed) = AccessedElements::new(machine, *pointer, mask.copied()) else { return };
    if checker.has(Check::Init) {
        check_written(checker, machine, &accessed, (point, *pointer), (reads, writes));
    }
    if !checker.has(Check::Race) {
        return;
    }
    let is_seen_by_others = scope != MemoryScope::Cta;
    if sem.acquires() && reads && is_seen_by_others {
        acquire(checker, &accessed);
    }
    if sem.releases() {
        checker.phase += 1;
    }
    let mode = if is_seen_by_others { Mode::Device } else { Mode::Block };
    check_races(checker, machine, &accessed, (point, *pointer), (mode, writes), None);
    if sem.acquires() {
        checker.phase += 1;
    }
    if writes && is_seen_by_others {
        let is_done = compared(machine, step);
        release(checker, &accessed, (sem, keeps), &is_done);
    }
}

/// Returns whether the operation writes at a lane. A failed comparison writes nothing.
fn compared<'m>(machine: &'m Machine<'_>, step: &Step) -> impl Fn(usize) -> bool + use<'m> {
    let tiles = matches!(step.op(), Some(Op::AtomicCas { .. })).then(|| {
        let (expected, found) = (step.operands[1], step.result());
        let expected = materialize(machine.type_of(expected), machine.value(expected).clone());
        let ty = machine.ty(found);
        (expected, materialize(ty, machine.value_of(found).clone()), ty.size)
    });
    move |lane| {
        tiles.as_ref().is_none_or(|(expected, found, size)| {
            let at = lane * size..(lane + 1) * size;
            expected.bytes()[at.clone()] == found.bytes()[at]
        })
    }
}

fn acquire(checker: &mut Checker<'_>, accessed: &AccessedElements<'_>) {
    let state = checker.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, address) in accessed.lanes() {
        for published in state.releases.get(address) {
            // A clock with the published step also has all steps that happen before it.
            if published.agent != checker.agent && !checker.clock.knows(published.agent, published.step) {
                checker.clock.join(&published.clock);
            }
        }
    }
}

fn release(
    checker: &mut Checker<'_>,
    accessed: &AccessedElements<'_>,
    (sem, keeps): (MemorySemantics, bool),
    is_done: &dyn Fn(usize) -> bool,
) {
    let published = sem.releases().then(|| {
        let (agent, step) = (checker.agent, checker.step);
        let mut clock = checker.clock.clone();
        clock.learn(agent, step);
        checker.step += 1;
        Arc::new(Published { agent, step, clock })
    });
    let mut state = checker.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, address) in accessed.lanes().filter(|&(lane, _)| is_done(lane)) {
        match &published {
            Some(published) if keeps => state.releases.add(address, published),
            published if !keeps => state.releases.set(address, published.as_ref()),
            _ => {}
        }
    }
}

fn check_written(
    checker: &Checker<'_>,
    machine: &Machine<'_>,
    accessed: &AccessedElements<'_>,
    (point, pointer): (CheckPoint, Use),
    (reads, writes): (bool, bool),
) {
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    if memory.is_empty() {
        return;
    }
    let size = accessed.size as u64;
    let is_unwritten = |&(_, address): &(usize, u64)| !memory.is_initialized(address, size);
    if reads && let Some((lane, addresses)) = found(accessed.lanes().filter(is_unwritten)) {
        let lane = accessed.ty.lane(lane);
        let access = AccessReport { machine, checker, point, pointer, lane, addresses: &addresses };
        report::unwritten(&access, addresses[0]);
    }
    if writes {
        for (_, address) in accessed.lanes() {
            memory.write(address, size);
        }
    }
}

fn check_races(
    checker: &Checker<'_>,
    machine: &Machine<'_>,
    accessed: &AccessedElements<'_>,
    (point, pointer): (CheckPoint, Use),
    (mode, is_write): (Mode, bool),
    values: Option<&[u8]>,
) {
    let plan = checker.shared.plan;
    let now = Access {
        agent: checker.agent,
        program: checker.agent,
        step: checker.step,
        phase: checker.phase,
        site: point.number,
        mode,
        is_write,
    };
    let rules = Lanes { plan, accessed, clock: &checker.clock, now, values };
    let mut conflicts: SmallVec<[(Conflict, Vec<u64>); 2]> = SmallVec::new();
    {
        let mut state = checker.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let record = state.shadow.begin(now);
        for (lane, address) in accessed.lanes() {
            let access = (address, accessed.size);
            let Some(conflict) = state.shadow.touch(record, lane as u32, access, &rules) else {
                continue;
            };
            // Groups the racing lanes by the earlier instruction, and by whether this program
            // executed it.
            let key = |conflict: &Conflict| (conflict.first.site, conflict.first.agent == checker.agent);
            match conflicts.iter_mut().find(|(other, _)| key(other) == key(&conflict)) {
                Some((_, addresses)) => addresses.push(address),
                None => conflicts.push((conflict, vec![address])),
            }
        }
    }
    for (conflict, addresses) in conflicts {
        let lane = accessed.ty.lane(conflict.lane as usize);
        let access = AccessReport { machine, checker, point, pointer, lane, addresses: &addresses };
        report::race(&access, &conflict, now, accessed.ty);
    }
}

/// Returns the first affected lane and all affected addresses, if any.
fn found(mut lanes: impl Iterator<Item = (usize, u64)>) -> Option<(usize, Vec<u64>)> {
    let (lane, address) = lanes.next()?;
    Some((lane, std::iter::once(address).chain(lanes.map(|(_, address)| address)).collect()))
}

/// Returns the key of a finding about one access.
pub(super) fn key(check: Check, point: CheckPoint) -> Key {
    (check.name(), point.number, u32::MAX, false)
}
