//! Stores the last accesses to each element of global memory, and detects races.
//!
//! An agent is a program or a warp. The shadow of an element stores its last write and up to two
//! later reads, which differ in agent or lane.
//!
//! Two accesses race if all of these are true:
//!
//! - At least one access is a write.
//! - They are not both atomic at a scope that includes both agents.
//! - They are unordered.
//! - They are not a write and a later plain write of the same value.
//!
//! [`Rules::knows`] orders accesses of different agents. Two accesses of one agent are ordered if
//! they are by the same lane or in different phases, or if [`Rules::are_ordered`] returns true.

use rustc_hash::FxHashMap;

/// The atomicity of an access, and its scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// An ordinary load or store.
    Plain,
    /// Atomic at block scope.
    Block,
    /// Atomic at device scope or a wider scope. Also a volatile access.
    Device,
}

/// The properties that are common to all lanes of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The agent that makes the access: a program, or a warp of the launch.
    pub agent: u32,
    /// The program to which the agent belongs.
    pub program: u32,
    /// The step of the agent. Each release of the agent begins its next step.
    pub step: u32,
    /// The number of times that the program has synchronized its lanes so far. Barriers, and
    /// atomics that acquire or release, synchronize the lanes.
    pub phase: u32,
    /// The instruction that makes the access. The caller chooses the ids of instructions.
    pub site: u32,
    /// The atomicity of the access, and its scope.
    pub mode: Mode,
    /// True for writes.
    pub is_write: bool,
}

/// The rules that order accesses.
pub trait Rules {
    /// Returns whether step `step` of another agent happens before the current access.
    fn knows(&self, agent: u32, step: u32) -> bool;

    /// Returns whether two accesses of one agent, by different lanes in the same phase, are
    /// ordered.
    fn are_ordered(&self, first: &Access, second: &Access) -> bool;

    /// Returns whether the current write stores the same value as the earlier write `first`. The
    /// current write is by `lane`, the earlier one by `first_lane`; both write to `address`.
    fn writes_same(&self, first: &Access, first_lane: u32, lane: u32, address: u64) -> bool;
}

/// An earlier access that races with the current access.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    /// The earlier access.
    pub first: Access,
    /// The lane of the earlier access.
    pub first_lane: u32,
    /// The lane of the current access.
    pub lane: u32,
    /// The address that the current access touches in this lane.
    pub address: u64,
}

/// The access of one lane: its index in [`Shadow::records`] (0 for none), and the lane.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Touch {
    record: u32,
    lane: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Touch,
    reads: [Touch; 2],
}

const PAGE: usize = 1024;

/// The shadow memory of a launch.
pub struct Shadow {
    /// A cell describes 2 to the power of `unit` bytes.
    unit: u32,
    pages: FxHashMap<u64, u32>,
    cells: Vec<Box<[Cell]>>,
    /// The most recently used page. The first item is its number, the second its index in `cells`.
    last: (u64, u32),
    /// The recorded accesses, by the index in a [`Touch`]. The first one is a placeholder.
    records: Vec<Access>,
    /// The index in `records` of the last write (true) and of the last read (false) of each
    /// instruction.
    recent: FxHashMap<(u32, bool), u32>,
}

impl Shadow {
    /// Creates a shadow with a granularity of `unit` bytes, which is a power of two and the size of
    /// the smallest access.
    pub fn new(unit: usize) -> Self {
        let placeholder = Access {
            agent: u32::MAX,
            program: u32::MAX,
            step: 0,
            phase: 0,
            site: u32::MAX,
            mode: Mode::Plain,
            is_write: false,
        };
        Self {
            unit: unit.trailing_zeros(),
            pages: FxHashMap::default(),
            cells: Vec::new(),
            last: (u64::MAX, 0),
            records: vec![placeholder],
            recent: FxHashMap::default(),
        }
    }

    /// Records an access and returns its index, which [`touch`](Self::touch) needs. If the last
    /// access of the same instruction was equal, returns the index of that access.
    pub fn begin(&mut self, access: Access) -> u32 {
        let key = (access.site, access.is_write);
        if let Some(&number) = self.recent.get(&key)
            && self.records[number as usize] == access
        {
            return number;
        }
        let number = self.records.len() as u32;
        self.records.push(access);
        self.recent.insert(key, number);
        number
    }

    /// Records that a lane of an access touches `bytes` bytes at `address`. Returns the first race
    /// that it finds.
    pub fn touch(
        &mut self,
        record: u32,
        lane: u32,
        (address, bytes): (u64, usize),
        rules: &impl Rules,
    ) -> Option<Conflict> {
        let (first, last) = (address >> self.unit, (address + bytes as u64 - 1) >> self.unit);
        let mut conflict = None;
        for unit in first..=last {
            let found = self.touch_unit(record, lane, unit, address, rules);
            conflict = conflict.or(found);
        }
        conflict
    }

    fn touch_unit(
        &mut self,
        record: u32,
        lane: u32,
        unit: u64,
        address: u64,
        rules: &impl Rules,
    ) -> Option<Conflict> {
        let page = self.page(unit / PAGE as u64);
        let place = (unit % PAGE as u64) as usize;
        let cell = self.cells[page][place];
        let now = self.records[record as usize];
        let own = Touch { record, lane };
        let race = |touch: Touch| {
            if touch.record == 0 || touch == own {
                return None;
            }
            let first = self.records[touch.record as usize];
            if is_ordered(&first, touch.lane, &now, lane, rules) {
                return None;
            }
            let is_same = first.is_write
                && now.is_write
                && now.mode == Mode::Plain
                && rules.writes_same(&first, touch.lane, lane, address);
            (!is_same).then_some(Conflict { first, first_lane: touch.lane, lane, address })
        };
        let mut conflict = race(cell.write);
        if now.is_write {
            conflict = conflict.or_else(|| race(cell.reads[0])).or_else(|| race(cell.reads[1]));
            self.cells[page][place] = Cell { write: own, reads: [Touch::default(); 2] };
        } else if cell.reads[0] != own {
            let is_kept = |read: Touch| {
                let read_by = &self.records[read.record as usize];
                read.record != 0 && (read_by.agent != now.agent || read.lane != lane)
            };
            // The cell keeps the current read and one of the two old reads. If both may be kept, it
            // prefers one by another agent.
            let [first, second] = cell.reads;
            let is_of_agent = |read: Touch| self.records[read.record as usize].agent == now.agent;
            let takes_second = !is_kept(first) || is_kept(second) && is_of_agent(first);
            let other = if takes_second { second } else { first };
            self.cells[page][place].reads = [own, other];
        }
        conflict
    }

    fn page(&mut self, page: u64) -> usize {
        if self.last.0 != page {
            let next = self.cells.len() as u32;
            let index = *self.pages.entry(page).or_insert(next);
            if index == next {
                self.cells.push(vec![Cell::default(); PAGE].into_boxed_slice());
            }
            self.last = (page, index);
        }
        self.last.1 as usize
    }
}

/// Returns whether the access `now` cannot race with the earlier access `first`. This is true if
/// `first` happens before `now`, or if both are atomic at a scope that includes both agents.
#[inline]
fn is_ordered(first: &Access, first_lane: u32, now: &Access, lane: u32, rules: &impl Rules) -> bool {
    if first.mode != Mode::Plain && now.mode != Mode::Plain {
        let is_wide = first.mode == Mode::Device && now.mode == Mode::Device;
        if is_wide || first.program == now.program {
            return true;
        }
    }
    if first.agent == now.agent {
        return first_lane == lane || first.phase != now.phase || rules.are_ordered(first, now);
    }
    rules.knows(first.agent, first.step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    /// Rules without any order between lanes. Every write changes the value.
    struct Strict<'a>(&'a Clock);

    impl Rules for Strict<'_> {
        fn knows(&self, agent: u32, step: u32) -> bool {
            self.0.knows(agent, step)
        }

        fn are_ordered(&self, _: &Access, _: &Access) -> bool {
            false
        }

        fn writes_same(&self, _: &Access, _: u32, _: u32, _: u64) -> bool {
            false
        }
    }

    fn access(agent: u32, is_write: bool) -> Access {
        Access { agent, program: agent, step: 1, phase: 0, site: agent, mode: Mode::Plain, is_write }
    }

    fn touch(shadow: &mut Shadow, access: Access, lane: u32, address: u64, clock: &Clock) -> Option<u32> {
        let record = shadow.begin(access);
        let conflict = shadow.touch(record, lane, (address, 4), &Strict(clock));
        conflict.map(|conflict| conflict.first.agent)
    }

    #[test]
    fn a_write_races_with_unordered_accesses() {
        let (mut shadow, nothing) = (Shadow::new(4), Clock::default());
        assert_eq!(touch(&mut shadow, access(0, true), 0, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, access(1, false), 0, 68, &nothing), None);
        assert_eq!(touch(&mut shadow, access(1, false), 0, 64, &nothing), Some(0));
        let mut knows = Clock::default();
        knows.learn(0, 1);
        knows.learn(1, 1);
        assert_eq!(touch(&mut shadow, access(2, true), 0, 64, &knows), None);
        assert_eq!(touch(&mut shadow, access(3, true), 0, 64, &knows), Some(2));
    }

    #[test]
    fn reads_of_other_agents_are_kept() {
        let (mut shadow, nothing) = (Shadow::new(4), Clock::default());
        for agent in [0, 1, 1, 1] {
            assert_eq!(touch(&mut shadow, access(agent, false), 0, 64, &nothing), None);
        }
        assert_eq!(touch(&mut shadow, access(1, true), 0, 64, &nothing), Some(0));
    }

    #[test]
    fn lanes_race_without_a_barrier() {
        let (mut shadow, nothing) = (Shadow::new(4), Clock::default());
        assert_eq!(touch(&mut shadow, access(0, false), 1, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, access(0, false), 2, 64, &nothing), None);
        let later = Access { phase: 1, ..access(0, true) };
        assert_eq!(touch(&mut shadow, later, 5, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, Access { phase: 1, ..access(0, false) }, 5, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, Access { phase: 1, ..access(0, false) }, 6, 64, &nothing), Some(0));
    }

    #[test]
    fn atomics_race_only_with_other_accesses() {
        let (mut shadow, nothing) = (Shadow::new(4), Clock::default());
        let atomic = |agent| Access { mode: Mode::Device, ..access(agent, true) };
        assert_eq!(touch(&mut shadow, atomic(0), 0, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, atomic(1), 0, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, Access { mode: Mode::Block, ..atomic(2) }, 0, 64, &nothing), Some(1));
        assert_eq!(touch(&mut shadow, access(3, false), 0, 64, &nothing), Some(2));
    }
}
