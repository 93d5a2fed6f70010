//! Records the last accesses to each byte of shared memory, to find races. Each byte has its last
//! write, and the later reads that are unordered with each other. Records and sets of reads are
//! interned: the bytes of an access share them, so most checks only compare an index with that of
//! the previous byte. Two accesses race if they are unordered, at least one is a write, and at most
//! one is atomic. They are unordered if the second agent does not know the step of the first (see
//! [`super::clock`]). A write that does not change the bytes does not race with an earlier write:
//! compilers let several warps store the same value.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::clock::Agent;
use crate::fault::{Cause, Outcome};

/// The proxy of an access. Only a proxy fence orders accesses of different proxies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proxy {
    /// Ordinary loads, stores and atomics.
    Generic,
    /// Bulk copies, tensor copies, and `wgmma` reading its operands.
    Async,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// The index of the agent in the cluster.
    pub agent: u32,
    /// The step of the agent at the access.
    pub step: u32,
    /// The index of the instruction in the program.
    pub instruction: u32,
    /// The proxy of the access.
    pub proxy: Proxy,
    /// True for atomic and volatile accesses, which do not race with each other. A volatile access
    /// orders no other accesses.
    pub is_atomic: bool,
    /// True if the access is a write.
    pub is_write: bool,
}

type ReadSet = SmallVec<[u32; 8]>;

/// The last write of a byte, or 0 if it is uninitialized, and the set of later reads, as indices.
#[derive(Clone, Copy, Default)]
struct Cell {
    write: u32,
    reads: u32,
}

#[derive(Default)]
pub struct Shadow {
    cells: Vec<Cell>,
    records: Vec<Option<Record>>,
    sets: Vec<ReadSet>,
    numbers: FxHashMap<ReadSet, u32>,
    /// The last addition to a set: the read, the set, and the result.
    last_addition: (u32, u32, u32),
    /// The first read of an uninitialized byte. A later write may turn it into a race.
    unwritten: Option<(u32, Record)>,
}

/// The number of records at which [`Shadow::compact`] drops the reads.
const MAX_RECORDS: usize = 1 << 20;

impl Shadow {
    /// Creates the shadow of `bytes` uninitialized bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            cells: vec![Cell::default(); bytes],
            records: vec![None],
            sets: vec![ReadSet::new()],
            numbers: FxHashMap::default(),
            last_addition: (u32::MAX, 0, 0),
            unwritten: None,
        }
    }

    /// Returns the first read of an uninitialized byte. It is valid only after a run without races,
    /// because a write may have raced with it.
    pub fn unwritten(&self) -> Option<(u32, Record)> {
        self.unwritten
    }

    /// Drops the accesses to bytes and marks them as uninitialized.
    pub fn forget(&mut self, bytes: std::ops::Range<usize>) {
        self.cells[bytes].fill(Cell::default());
    }

    /// Interns a record. The lanes of an instruction share it. The lanes of an atomic instruction
    /// alternate between a read and a write, so the last two records are compared.
    fn intern(&mut self, record: Record) -> u32 {
        let last = self.records.len() - 1;
        for number in (last.saturating_sub(1)..=last).rev() {
            if self.records[number] == Some(record) {
                return number as u32;
            }
        }
        if self.records.len() >= MAX_RECORDS {
            self.compact();
        }
        self.records.push(Some(record));
        (self.records.len() - 1) as u32
    }

    fn record(&self, number: u32) -> Record {
        self.records[number as usize].expect("only the placeholder is empty, and no byte refers to it")
    }

    /// Keeps only the records of last writes. Races with the dropped reads are not detected.
    fn compact(&mut self) {
        let old = std::mem::replace(&mut self.records, vec![None]);
        let mut renumbered = FxHashMap::default();
        for cell in &mut self.cells {
            cell.reads = 0;
            if cell.write != 0 {
                cell.write = *renumbered.entry(cell.write).or_insert_with(|| {
                    self.records.push(old[cell.write as usize]);
                    (self.records.len() - 1) as u32
                });
            }
        }
        self.sets.truncate(1);
        self.numbers.clear();
        self.last_addition = (u32::MAX, 0, 0);
    }

    /// Checks and records a read of bytes.
    pub fn read(&mut self, agent: &Agent, record: Record, offset: usize, bytes: usize) -> Outcome {
        let number = self.intern(record);
        let (mut ordered, mut last) = (0, (u32::MAX, 0));
        for byte in offset..offset + bytes {
            let cell = self.cells[byte];
            if cell.write == 0 {
                self.unwritten.get_or_insert((byte as u32, record));
            } else if cell.write != ordered {
                self.check(agent, record, cell.write, byte)?;
                ordered = cell.write;
            }
            if cell.reads != last.0 {
                last = (cell.reads, self.with_read(agent, cell.reads, number));
            }
            self.cells[byte].reads = last.1;
        }
        Ok(())
    }

    /// Checks and records a write. `is_same` returns whether the byte at an offset keeps its value.
    pub fn write(
        &mut self,
        agent: &Agent,
        record: Record,
        offset: usize,
        bytes: usize,
        is_same: impl Fn(usize) -> bool,
    ) -> Outcome {
        let number = self.intern(record);
        let (mut ordered, mut ordered_reads) = (0, 0);
        for byte in offset..offset + bytes {
            let cell = self.cells[byte];
            if cell.write != ordered && cell.write != number && cell.write != 0 {
                if let Err(race) = self.check(agent, record, cell.write, byte) {
                    if !is_same(byte - offset) {
                        return Err(race);
                    }
                } else {
                    ordered = cell.write;
                }
            }
            if cell.reads != ordered_reads {
                for index in 0..self.sets[cell.reads as usize].len() {
                    self.check(agent, record, self.sets[cell.reads as usize][index], byte)?;
                }
                ordered_reads = cell.reads;
            }
            self.cells[byte] = Cell { write: number, reads: 0 };
        }
        Ok(())
    }

    /// Checks that an access is ordered after the record `earlier` and, in the asynchronous proxy,
    /// that a fence makes the earlier write visible.
    fn check(&self, agent: &Agent, now: Record, earlier: u32, byte: usize) -> Outcome {
        let first = self.record(earlier);
        let (who, offset) = (first.agent as usize, byte as u32);
        if who != agent.index && !(now.is_atomic && first.is_atomic) && !agent.clock.knows(who, first.step) {
            return Err(Cause::Race { offset, first, is_write: now.is_write }.into());
        }
        let crosses = now.proxy == Proxy::Async && first.proxy == Proxy::Generic && first.is_write;
        if crosses && !agent.clock.sees_fenced(who, first.step) {
            return Err(Cause::MissingProxyFence { offset, write: first }.into());
        }
        Ok(())
    }

    /// Adds a read to a set. Drops the reads that are ordered before it: a later write that is
    /// ordered after it is also ordered after them.
    fn with_read(&mut self, agent: &Agent, set: u32, number: u32) -> u32 {
        if (self.last_addition.0, self.last_addition.1) == (number, set) {
            return self.last_addition.2;
        }
        let earlier = &self.sets[set as usize];
        if earlier.contains(&number) {
            return set;
        }
        let mut with: ReadSet = earlier
            .iter()
            .copied()
            .filter(|&read| {
                let read = self.record(read);
                read.agent as usize != agent.index && !agent.clock.knows(read.agent as usize, read.step)
            })
            .collect();
        with.push(number);
        let next = self.sets.len() as u32;
        let sets = &mut self.sets;
        let with = *self.numbers.entry(with).or_insert_with_key(|with| {
            sets.push(with.clone());
            next
        });
        self.last_addition = (number, set, with);
        with
    }
}
