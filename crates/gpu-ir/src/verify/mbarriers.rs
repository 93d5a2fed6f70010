//! Barriers that copies arrive at: they are made ready before they are used, for the asynchronous proxy behind a fence, something
//! arrives where something waits, no more arrive than fit into a phase, and no thread waits for a phase that cannot end.
//!
//! Of a barrier that one role uses alone, or all warps outside of roles, the phases are counted along the path, slot by slot:
//! the phase under way has the parity of the number of those that ended, and a wait with that parity does not return. In a
//! loop in which a phase ends, the parity has to change; one that is computed is believed. Of a barrier between roles, a
//! role does not wait twice in sequence for one constant parity of one slot.

use std::collections::BTreeMap;

use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::analysis::dataflow::{Check, Meet, Rule, walk};
use crate::analysis::slots::{Edge, Facts, Index, Names, Slot, rename_facts};
use crate::{GpuOp, Header, Op, Type};

/// What is known of a slot; `None` where paths with different numbers of arrivals met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Phase {
    /// Into the phase under way.
    arrived: u32,
    /// The parities that it may have: bit 0 for 0, bit 1 for 1.
    parities: u8,
    /// The phase before it was waited for.
    waited: bool,
    /// The parities that the last wait may have had.
    last: u8,
}

const FIRST: Phase = Phase { arrived: 0, parities: 1, waited: true, last: 0 };

/// Who sees that a barrier is ready: of two paths, what fewer see counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Seen {
    /// The thread that made it so.
    Own,
    /// It and the asynchronous proxy, as far as that thread is concerned.
    OwnFenced,
    /// All threads.
    Threads,
    /// All threads, and the copies that they start.
    Copies,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    phases: Facts<Option<Phase>>,
    /// What is ready, and who sees it.
    ready: BTreeMap<Value, Seen>,
}

impl State {
    /// What is known of a slot, where its phases can be followed.
    fn phase(&mut self, slot: Slot) -> Option<&mut Phase> {
        let lost = Slot { index: Index::Lost, ..slot };
        if self.phases.contains_key(&lost) {
            return None;
        }
        self.phases.entry(slot).or_insert(Some(FIRST)).as_mut()
    }
}

fn join(one: &mut Option<Phase>, other: Option<Phase>, meet: Meet) {
    *one = match (*one, other) {
        (Some(one), Some(other)) if one.arrived == other.arrived => Some(Phase {
            arrived: one.arrived,
            parities: one.parities | other.parities,
            waited: if meet == Meet::Loop { one.waited && other.waited } else { one.waited || other.waited },
            last: if meet == Meet::Loop { one.last | other.last } else { one.last & other.last },
        }),
        _ => None,
    };
}

/// What is arrived at by several roles, or waited for by another one than arrives.
#[derive(Default)]
struct Usage {
    arrivals: u32,
    arrive: bool,
    roles: Vec<Option<(Inst, usize)>>,
}

/// Checks the barriers of a function.
pub fn check(header: &Header, names: &Names<'_>) -> Check {
    let function = names.function;
    let mut usage: BTreeMap<Value, Usage> = BTreeMap::new();
    let mut waits = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let Some(root) =
            data.operands.first().filter(|value| matches!(function.ty(**value), Type::Mbarrier { .. }))
        else {
            return;
        };
        let usage = usage.entry(*root).or_default();
        match data.op {
            Op::Gpu(GpuOp::MbarrierInit { arrivals }) => usage.arrivals = arrivals,
            Op::Gpu(
                GpuOp::MbarrierExpect { .. } | GpuOp::MbarrierArrive {} | GpuOp::MbarrierArriveCopies {},
            ) => {
                usage.arrive = true;
                usage.roles.push(names.role(inst));
            }
            Op::Gpu(GpuOp::MbarrierWait {}) => {
                waits.push(*root);
                usage.roles.push(names.role(inst));
            }
            // tidy: wildcard because other ops neither arrive nor wait
            _ => {}
        }
    });
    if let Some(root) = waits.iter().find(|root| !usage[root].arrive) {
        return Err(format!("mbarrier_wait waits for {}, and nothing arrives there", names.text(*root)));
    }
    walk(
        names,
        &mut Mbarriers { names, warps: header.num_warps, of_block: header.num_warps, usage },
        State::default(),
    )
}

struct Mbarriers<'a> {
    names: &'a Names<'a>,
    /// The warps that run what is being looked at.
    warps: u32,
    of_block: u32,
    usage: BTreeMap<Value, Usage>,
}

impl Rule for Mbarriers<'_> {
    type State = State;

    fn step(&mut self, inst: Inst, state: &mut State) -> Check {
        let data = &self.names.function.insts[inst];
        let Op::Gpu(op) = &data.op else {
            if matches!(data.op, Op::Tile(ir::Op::Barrier {})) {
                for seen in state.ready.values_mut() {
                    *seen = match seen {
                        Seen::Own | Seen::Threads => Seen::Threads,
                        Seen::OwnFenced | Seen::Copies => Seen::Copies,
                    };
                }
            }
            return Ok(());
        };
        if let GpuOp::Alloc { .. } = op {
            state.ready.remove(&data.results[0]);
            return Ok(());
        }
        if let GpuOp::MbarrierInit { .. } = op {
            if state.ready.contains_key(&data.operands[0]) {
                let text = self.names.text(data.operands[0]);
                return Err(format!(
                    "mbarrier_init makes {text} ready, which it is: PTX does not say what that does"
                ));
            }
            state.phases.retain(|slot, _| slot.root != data.operands[0]);
            state.ready.insert(data.operands[0], Seen::Own);
            return Ok(());
        }
        if let GpuOp::FenceProxy {} = op {
            for seen in state.ready.values_mut().filter(|seen| **seen == Seen::Own) {
                *seen = Seen::OwnFenced;
            }
            return Ok(());
        }
        let Some(slot) = self.names.barrier(inst) else { return Ok(()) };
        self.is_ready(inst, slot.root, state)?;
        match op {
            GpuOp::MbarrierExpect { .. } => self.arrive(inst, slot, 1, state),
            GpuOp::MbarrierArrive {} => self.arrive(inst, slot, self.warps, state),
            GpuOp::MbarrierArriveCopies {} => self.arrive(inst, slot, self.warps * 32, state),
            GpuOp::MbarrierWait {} => self.wait(inst, slot, data.operands[2], state),
            // tidy: wildcard because the other op with a barrier is a tensor copy, whose bytes were expected
            _ => Ok(()),
        }
    }

    fn join(&self, state: &mut State, other: &State, meet: Meet) {
        let slots: Vec<Slot> = state.phases.keys().chain(other.phases.keys()).copied().collect();
        for slot in slots {
            let phase = state.phases.entry(slot).or_insert(Some(FIRST));
            join(phase, other.phases.get(&slot).copied().unwrap_or(Some(FIRST)), meet);
        }
        state.ready.retain(|root, _| other.ready.contains_key(root));
        for (root, seen) in &mut state.ready {
            *seen = (*seen).min(other.ready[root]);
        }
    }

    fn rename(&self, state: &mut State, edge: &Edge) {
        rename_facts(self.names, &mut state.phases, edge, |one, other| join(one, other, Meet::Loop));
    }

    fn enter_role(&mut self, role: Option<(Inst, usize)>) {
        self.warps = role.map_or(self.of_block, |(inst, role)| match &self.names.function.insts[inst].op {
            Op::Gpu(GpuOp::WarpRoles { warps, .. }) => warps[role] as u32,
            // tidy: wildcard because no other op has roles
            _ => self.of_block,
        });
    }
}

impl Mbarriers<'_> {
    fn is_ready(&self, inst: Inst, root: Value, state: &State) -> Check {
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(root));
        match state.ready.get(&root) {
            None => Err(format!("{name} uses {text} before mbarrier_init")),
            Some(Seen::Own | Seen::OwnFenced) if self.names.synchronized => {
                Err(format!("{name} uses {text} without a barrier behind mbarrier_init"))
            }
            Some(Seen::Own | Seen::Threads)
                if matches!(self.names.function.insts[inst].op, Op::Gpu(GpuOp::TensorLoad {})) =>
            {
                Err(format!(
                    "{name} arrives at {text} by the asynchronous proxy: a fence_proxy has to stand behind mbarrier_init, \
                     before the barrier"
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether the same warps arrive and wait, so that the path shows the phases.
    fn is_alone(&self, root: Value) -> bool {
        let roles = &self.usage[&root].roles;
        roles.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn arrive(&self, inst: Inst, slot: Slot, count: u32, state: &mut State) -> Check {
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(slot.root));
        let most = self.usage[&slot.root].arrivals;
        let too_many = |found: u32| {
            Err(format!(
                "{name} makes {found} arrivals of a phase of {text}, which mbarrier_init gives {most}"
            ))
        };
        if count > most {
            return too_many(count);
        }
        let is_alone = self.is_alone(slot.root);
        let Some(phase) = state.phase(slot).filter(|_| is_alone) else { return Ok(()) };
        if phase.arrived == 0 && !phase.waited {
            return Err(format!(
                "{name} arrives at {text} when all {most} arrivals of the phase are there: wait for it before"
            ));
        }
        phase.arrived += count;
        if phase.arrived > most {
            return too_many(phase.arrived);
        }
        if phase.arrived == most {
            let parities = (phase.parities & 1) << 1 | phase.parities >> 1;
            *phase = Phase { arrived: 0, parities, waited: false, last: phase.last };
        }
        Ok(())
    }

    fn wait(&self, inst: Inst, slot: Slot, parity: Value, state: &mut State) -> Check {
        let sum = self.names.sum(parity, 2);
        let parity = if sum.base.is_none() { Some(sum.offset as u8) } else { None };
        let (name, text) = (self.names.function.insts[inst].op.name(), self.names.text(slot.root));
        let most = self.usage[&slot.root].arrivals;
        let is_alone = self.is_alone(slot.root);
        let Some(phase) = state.phase(slot) else { return Ok(()) };
        if let Some(parity) = parity {
            let bit = 1 << parity;
            if is_alone && phase.parities & bit != 0 {
                return Err(format!(
                    "{name} waits for a phase of parity {parity} of {text}, which may be the one under way, with {} of {most} \
                     arrivals: nothing ends it",
                    phase.arrived
                ));
            }
            if !is_alone && phase.last & bit != 0 {
                return Err(format!(
                    "{name} waits for parity {parity} of {text} twice in sequence: the parity changes with each phase"
                ));
            }
            phase.last = bit;
        } else {
            phase.last = 0;
        }
        phase.waited = true;
        Ok(())
    }
}
