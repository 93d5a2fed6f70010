//! The last accesses of each element of global memory, and which of them race.
//!
//! An element has its last write and two of the reads since then, of different agents or lanes as far as there are some. Two
//! accesses race if at least one writes, not both are atomic, and nothing orders them: neither a clock, nor, in one agent,
//! what its [`Rules`] say. A write of what is there already does not race with an earlier write.

use rustc_hash::FxHashMap;

/// How an access reaches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As ordinary loads and stores do.
    Plain,
    /// Atomic for the threads of one block.
    Block,
    /// Atomic for the whole device; also volatile loads.
    Device,
}

/// What the elements of an access have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Who: a program, or a warp of the launch.
    pub agent: u32,
    /// The program that the agent is part of.
    pub program: u32,
    /// The step of the agent between its releases.
    pub step: u32,
    /// How many barriers the program has passed.
    pub phase: u32,
    /// What accesses: a number that the caller gives.
    pub site: u32,
    /// How.
    pub mode: Mode,
    /// Whether it writes.
    pub is_write: bool,
}

/// What orders accesses.
pub trait Rules {
    /// Whether that step of another agent is ordered before what the accessing one does.
    fn knows(&self, agent: u32, step: u32) -> bool;

    /// Whether two accesses of an agent by different lanes, without a barrier between them, are ordered.
    fn are_ordered(&self, first: &Access, second: &Access) -> bool;

    /// Whether a write of a lane leaves what an earlier one of the lane `first` has written.
    fn writes_same(&self, first: &Access, first_lane: u32, lane: u32, address: u64) -> bool;
}

/// An access that the one under way races with.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    /// The earlier access.
    pub first: Access,
    /// Its lane.
    pub first_lane: u32,
    /// The lane of the later one.
    pub lane: u32,
    /// The element.
    pub address: u64,
}

/// An access of a lane: the number of its record (0: none), and the lane.
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

/// The shadow of the memory of a launch.
pub struct Shadow {
    /// The bytes of an element, as a power of two.
    unit: u32,
    pages: FxHashMap<u64, u32>,
    cells: Vec<Box<[Cell]>>,
    /// The page that was accessed last.
    last: (u64, u32),
    /// By number; the first is a placeholder.
    records: Vec<Access>,
    /// The last record of each site.
    recent: FxHashMap<(u32, bool), u32>,
}

impl Shadow {
    /// Of elements of so many bytes, a power of two: the least that anything accesses.
    pub fn new(unit: usize) -> Self {
        let nobody = Access {
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
            records: vec![nobody],
            recent: FxHashMap::default(),
        }
    }

    /// The number of a record, which [`touch`](Self::touch) takes.
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

    /// Notes that a lane accesses so many bytes, and gives the first access that it races with.
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
            // Of two reads that both tell something, that of the same agent goes.
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

/// Whether an access comes after an earlier one.
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

    /// Nothing orders lanes, and every write changes something.
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
    fn a_write_races_with_what_it_does_not_know() {
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
    fn reads_of_others_are_kept() {
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
    fn atomics_race_with_other_accesses_alone() {
        let (mut shadow, nothing) = (Shadow::new(4), Clock::default());
        let atomic = |agent| Access { mode: Mode::Device, ..access(agent, true) };
        assert_eq!(touch(&mut shadow, atomic(0), 0, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, atomic(1), 0, 64, &nothing), None);
        assert_eq!(touch(&mut shadow, Access { mode: Mode::Block, ..atomic(2) }, 0, 64, &nothing), Some(1));
        assert_eq!(touch(&mut shadow, access(3, false), 0, 64, &nothing), Some(2));
    }
}
