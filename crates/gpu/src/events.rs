//! What instructions do to memory, and the walk over structured control flow that follows which accesses may still be under
//! way in other warps.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Block, Function, Inst, Op};
use tilewright_layout::Plan;

use crate::exchange::Exchanges;
use crate::plan::Exchange;
use crate::rules::{Role, role};

/// Something that all threads do to memory. What they access is named by an instruction: a buffer in shared memory by the one
/// that stores into it, global memory by the load or store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// They store.
    Write(Inst),
    /// They load.
    Read(Inst),
    /// They wait for each other.
    Wait,
}

/// What an instruction does to shared memory, in order.
pub fn events(function: &Function, exchanges: &Exchanges, inst: Inst) -> SmallVec<[Event; 3]> {
    let data = &function.insts[inst];
    match &exchanges[inst] {
        Some(Exchange::Relayout { plan: Plan::Shared(_), .. } | Exchange::Combine { bytes: 1.., .. }) => {
            return smallvec![Event::Write(inst), Event::Wait, Event::Read(inst)];
        }
        Some(Exchange::Operand { .. }) => return smallvec![Event::Write(inst)],
        Some(Exchange::Relayout { .. } | Exchange::Combine { .. }) | None => {}
    }
    match &data.op {
        Op::Barrier {} => smallvec![Event::Wait],
        Op::Dot { .. } => {
            let makers = data.operands.iter().filter_map(|operand| function.defining_inst(*operand));
            let buffers = makers.filter(|maker| matches!(exchanges[*maker], Some(Exchange::Operand { .. })));
            buffers.map(Event::Read).collect()
        }
        // tidy: wildcard because no other op touches shared memory
        _ => smallvec![],
    }
}

/// What a load or store does to global memory.
pub fn global_event(function: &Function, inst: Inst) -> Option<Event> {
    match role(&function.insts[inst].op) {
        Role::Load => Some(Event::Read(inst)),
        Role::Sink if matches!(function.insts[inst].op, Op::Store { .. }) => Some(Event::Write(inst)),
        Role::Pointwise
        | Role::Identity
        | Role::Source
        | Role::Shape
        | Role::Sink
        | Role::Dot
        | Role::Reduce
        | Role::Loop
        | Role::Branch
        | Role::Scalar
        | Role::Promise
        | Role::Call => None,
    }
}

/// The accesses that some warps may not have done yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Open {
    /// What is being loaded from.
    pub reads: BTreeSet<Inst>,
    /// What is being stored into.
    pub writes: BTreeSet<Inst>,
    /// Those of them that may be of an earlier iteration of a loop.
    pub stale: BTreeSet<Inst>,
}

impl Open {
    /// All threads have waited for each other.
    pub fn close(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.stale.clear();
    }

    /// Whether all threads have to wait before they do this: an access up to their next wait meets one that may be under way,
    /// and one of the two is a store.
    pub fn needs_wait(&self, events: &[Event], meet: impl Fn(Inst, Inst) -> bool) -> bool {
        events.iter().take_while(|event| **event != Event::Wait).any(|event| match *event {
            Event::Write(buffer) => self.reads.iter().chain(&self.writes).any(|other| meet(buffer, *other)),
            Event::Read(buffer) => self.writes.iter().any(|other| meet(buffer, *other)),
            Event::Wait => false,
        })
    }

    /// They have done this.
    pub fn carry_out(&mut self, events: &[Event]) {
        for event in events {
            match *event {
                Event::Wait => self.close(),
                Event::Write(buffer) => {
                    self.writes.insert(buffer);
                }
                Event::Read(buffer) => {
                    self.reads.insert(buffer);
                }
            }
        }
    }

    fn join(&mut self, other: &Self) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
        self.stale.extend(&other.stale);
    }

    /// What has been opened since then becomes stale.
    fn age(&mut self, since: &Self) {
        self.stale.extend(self.reads.difference(&since.reads));
        self.stale.extend(self.writes.difference(&since.writes));
    }
}

/// Walks a function in the order of execution, again and again until nothing new is open anywhere: nested loops cost no more
/// than others. What `step` does last for an instruction, it does with all that may be open there.
pub fn walk(function: &Function, step: &mut impl FnMut(Inst, &mut Open)) {
    let mut walk = Walk { function, entries: SecondaryMap::new(), changed: true };
    while std::mem::take(&mut walk.changed) {
        walk.block(function.entry, &mut Open::default(), step);
    }
}

struct Walk<'f> {
    function: &'f Function,
    /// What may be open where an iteration of a loop begins.
    entries: SecondaryMap<Inst, Open>,
    changed: bool,
}

impl Walk<'_> {
    fn block(&mut self, block: Block, open: &mut Open, step: &mut impl FnMut(Inst, &mut Open)) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            match (&data.op, &data.regions[..]) {
                (Op::For { .. }, &[body]) => {
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(body, open, step);
                    open.age(&before);
                    // It may not have run at all.
                    self.enter(*inst, open);
                }
                (Op::While {}, &[condition, body]) => {
                    self.enter(*inst, open);
                    let before = open.clone();
                    self.block(condition, open, step);
                    let after = open.clone();
                    self.block(body, open, step);
                    open.age(&before);
                    self.enter(*inst, open);
                    *open = after;
                }
                (Op::If {}, &[then, otherwise]) => {
                    let mut other = open.clone();
                    self.block(then, open, step);
                    self.block(otherwise, &mut other, step);
                    open.join(&other);
                }
                // tidy: wildcard because the other ops are straight code
                _ => step(*inst, open),
            }
        }
    }

    /// An iteration of a loop may begin with this, and with what others begin with.
    fn enter(&mut self, inst: Inst, open: &mut Open) {
        let entry = &mut self.entries[inst];
        open.join(entry);
        if *open != *entry {
            entry.clone_from(open);
            self.changed = true;
        }
    }
}
