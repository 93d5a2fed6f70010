//! Overlaps: which programs read and write each element of a tensor, and which of them race.
//!
//! Two programs of a launch are not ordered, so two accesses to one element race if they are of different programs, at
//! least one of them writes, and not both are atomic.

use serde::Serialize;

use crate::json::to_text;
use crate::model::{Kind, Tensor};
use crate::read::{Access, Trace};

/// What is known of an element.
#[derive(Clone, Copy, Default, Debug)]
struct Element {
    /// The last program that read it, plus one, and how many did. Programs come in order.
    reader: u64,
    readers: u32,
    writer: u64,
    writers: u32,
    atomic: u64,
    atomics: u32,
    /// The first reader, writer and program with an atomic access, plus one.
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

    /// Whether programs race for it.
    fn is_raced(&self) -> bool {
        // With one program each, the first one is the only one.
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

/// The most elements of a tensor that are looked at one by one.
const MOST_ELEMENTS: u64 = 1 << 22;

/// The most accesses of an element that are listed.
const MOST_LISTED: usize = 256;

/// The answer about a tensor with more elements, or more accesses, than are looked at.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TooLarge {
    too_large: bool,
}

/// For each element, the number of programs that read, write and atomically access it, and the elements that they race for.
#[derive(Serialize)]
struct OverlapPage {
    readers: Vec<u32>,
    writers: Vec<u32>,
    atomics: Vec<u32>,
    races: Vec<usize>,
}

/// The accesses of an element: op, program and lane of the first ones.
#[derive(Serialize)]
struct ElementPage {
    count: u64,
    partial: bool,
    accesses: Vec<[u64; 3]>,
}

impl Trace {
    /// For each element of a tensor, how many programs read it, write it and access it atomically, and whether they race.
    pub fn overlaps(&self, launch: usize, tensor: usize) -> Option<String> {
        let info = self.launches.get(launch)?.launch.tensors.get(tensor)?;
        let too_large = || Some(to_text(&TooLarge { too_large: true }));
        if info.elements() > MOST_ELEMENTS {
            return too_large();
        }
        let mut elements = vec![Element::default(); info.elements() as usize];
        let is_whole = self.each_access(launch, info, &mut |_, kind, program, _, place| {
            elements[place as usize].add(kind, program);
        })?;
        if !is_whole {
            return too_large();
        }
        let races = elements.iter().enumerate().filter(|(_, element)| element.is_raced());
        Some(to_text(&OverlapPage {
            readers: elements.iter().map(|element| element.readers).collect(),
            writers: elements.iter().map(|element| element.writers).collect(),
            atomics: elements.iter().map(|element| element.atomics).collect(),
            races: races.map(|(place, _)| place).collect(),
        }))
    }

    /// Who accesses an element of a tensor: op, program, lane.
    pub fn who(&self, launch: usize, tensor: usize, place: u64) -> Option<String> {
        let info = self.launches.get(launch)?.launch.tensors.get(tensor)?;
        let mut found = Vec::new();
        let mut count = 0;
        let is_whole = self.each_access(launch, info, &mut |op, _, program, lane, at| {
            if at == place {
                count += 1;
                if found.len() < MOST_LISTED {
                    found.push([u64::from(op), program, lane]);
                }
            }
        })?;
        Some(to_text(&ElementPage { count, partial: !is_whole, accesses: found }))
    }

    /// Calls a function with op, kind, program, lane and place of each access to a tensor. False if accesses were left out
    /// because there are too many.
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
                is_whole &= budget.pays(launch, &event, std::slice::from_ref(tensor));
                if !is_whole {
                    return;
                }
                let Some(access) = Access::new(launch, &event) else { return };
                for (lane, &address) in access.addresses.iter().enumerate() {
                    if access.is_active(lane)
                        && let Some(place) = tensor.place(address)
                    {
                        each(event.op, kind, program.number, lane as u64, place);
                    }
                }
            });
        }
        Some(is_whole)
    }
}
