//! Finds the programs that read and write each element of a tensor, and their races.
//!
//! The programs of a launch are unordered. Two accesses to one element race if they come from
//! different programs, at least one is a write, and not both are atomic.

use serde::Serialize;

use crate::json::to_text;
use crate::model::{Kind, Tensor};
use crate::read::{Access, Trace};

/// The programs that have accessed an element, added in ascending order.
#[derive(Clone, Copy, Default, Debug)]
struct Element {
    /// `reader` is the last program that reads the element (its index plus one, or 0). `readers` is
    /// the number of such programs. The next fields are the same for writes and atomic accesses.
    reader: u64,
    readers: u32,
    writer: u64,
    writers: u32,
    atomic: u64,
    atomics: u32,
    /// The first program with each kind of access: reads, writes, atomic accesses. 0 means none.
    first: [u64; 3],
}

impl Element {
    fn add(&mut self, kind: Kind, program: u64) {
        let (last, count, first) = match kind {
            Kind::Load => (&mut self.reader, &mut self.readers, 0),
            Kind::Atomic => (&mut self.atomic, &mut self.atomics, 2),
            _ => (&mut self.writer, &mut self.writers, 1),
        };
        let number = program.saturating_add(1);
        if *last != number {
            *last = number;
            *count += 1;
            if self.first[first] == 0 {
                self.first[first] = number;
            }
        }
    }

    /// Returns whether accesses to the element by different programs race.
    fn is_raced(&self) -> bool {
        // Two kinds of access come from different programs if one kind has several programs, or if
        // their first programs differ.
        let differ = |counts: [u32; 2], firsts: [u64; 2]| {
            counts[0] > 0 && counts[1] > 0 && (counts[0] > 1 || counts[1] > 1 || firsts[0] != firsts[1])
        };
        let [reader, writer, atomic] = self.first;
        self.writers > 1
            || differ([self.readers, self.writers], [reader, writer])
            || differ([self.readers, self.atomics], [reader, atomic])
            || differ([self.writers, self.atomics], [writer, atomic])
    }
}

/// The maximum number of elements of a tensor that [`Trace::overlaps`] analyzes.
const MAX_ELEMENTS: u64 = 1 << 22;

/// The maximum number of accesses to an element that a query lists.
const MAX_LISTED: usize = 256;

/// The response if a tensor has more elements or more accesses than a query analyzes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TooLarge {
    too_large: bool,
}

/// The result of [`Trace::overlaps`]. For each element: the numbers of programs that read, write
/// and atomically access it. `races` has the indices of the elements with races.
#[derive(Serialize)]
struct OverlapPage {
    readers: Vec<u32>,
    writers: Vec<u32>,
    atomics: Vec<u32>,
    races: Vec<usize>,
}

/// The result of [`Trace::element_accesses`]: the number of accesses, and the first [`MAX_LISTED`].
/// `partial` is true if the query skipped accesses.
#[derive(Serialize)]
struct ElementPage {
    count: u64,
    partial: bool,
    accesses: Vec<[u64; 3]>,
}

impl Trace {
    /// Returns the overlaps in a tensor as JSON. For each element, counts the programs that read
    /// it, that write it, and that access it atomically. Also lists the elements with races.
    pub fn overlaps(&self, launch: usize, tensor: usize) -> Option<String> {
        let info = self.launches.get(launch)?.launch.tensors.get(tensor)?;
        let too_large = || Some(to_text(&TooLarge { too_large: true }));
        if info.elements() > MAX_ELEMENTS {
            return too_large();
        }
        let mut elements = vec![Element::default(); info.elements() as usize];
        let is_whole = self.each_access(launch, info, &mut |_, kind, program, _, element| {
            elements[element as usize].add(kind, program);
        })?;
        if !is_whole {
            return too_large();
        }
        let races = elements.iter().enumerate().filter(|(_, element)| element.is_raced());
        Some(to_text(&OverlapPage {
            readers: elements.iter().map(|element| element.readers).collect(),
            writers: elements.iter().map(|element| element.writers).collect(),
            atomics: elements.iter().map(|element| element.atomics).collect(),
            races: races.map(|(element, _)| element).collect(),
        }))
    }

    /// Returns the accesses to an element of a tensor as JSON. Counts all accesses, and lists the
    /// op, the program and the lane of the first ones.
    pub fn element_accesses(&self, launch: usize, tensor: usize, element: u64) -> Option<String> {
        let info = self.launches.get(launch)?.launch.tensors.get(tensor)?;
        let mut found = Vec::new();
        let mut count = 0;
        let is_whole = self.each_access(launch, info, &mut |op, _, program, lane, at| {
            if at == element {
                count += 1;
                if found.len() < MAX_LISTED {
                    found.push([u64::from(op), program, lane]);
                }
            }
        })?;
        Some(to_text(&ElementPage { count, partial: !is_whole, accesses: found }))
    }

    /// Calls a function with op, kind, program, lane and element of each access to a tensor.
    ///
    /// Returns `Some(false)` if the budget of the query was too small, and `None` without the
    /// launch.
    fn each_access(
        &self,
        launch: usize,
        tensor: &Tensor,
        each: &mut dyn FnMut(u32, Kind, u64, u64, u64),
    ) -> Option<bool> {
        let traced = self.launches.get(launch)?;
        let launch = &traced.launch;
        let (mut budget, mut is_whole) = (self.budget(), true);
        for program in &traced.programs {
            self.each_event(traced, program, &mut |event| {
                let kind = launch.ops[event.op as usize].kind;
                if !kind.is_access() {
                    return;
                }
                is_whole &= budget.charge(launch, &event, std::slice::from_ref(tensor));
                if !is_whole {
                    return;
                }
                let Some(access) = Access::new(launch, &event) else { return };
                for (lane, &address) in access.addresses.iter().enumerate() {
                    if access.is_active(lane)
                        && let Some(element) = tensor.element_index(address)
                    {
                        each(event.op, kind, program.number, lane as u64, element);
                    }
                }
            });
        }
        Some(is_whole)
    }
}
