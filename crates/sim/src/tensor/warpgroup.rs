//! Executes `wgmma.mma_async` and its synchronization.
//!
//! The simulator computes a `wgmma` at once, but its registers remain in use until
//! `wgmma.wait_group`. Until then, it is a fault to access an accumulator or to write a fragment of
//! A. It is also a fault if no `wgmma.fence` is between a write to registers of a `wgmma` and the
//! next `wgmma`. A separate agent reads the operands in shared memory, so a write to them without
//! the wait is a race.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::descriptor::{Descriptor, Major};
use super::execute::{read_registers, whole_warp};
use super::register_access::WgmmaRegisterAccess;
use super::wgmma::{Values, WARP_ROWS, WARPS, Wgmma};
use super::{Element, Matrix};
use crate::asynchronous::Channel;
use crate::asynchronous::groups::Groups;
use crate::context::{Context, Execute, Flow};
use crate::events::{Detail, EventKind};
use crate::fault::{FaultKind, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::{Clock, Proxy};
use crate::registers::{Lanes, Slot};

/// A `wgmma.mma_async` in flight.
#[derive(Clone, Debug)]
struct PendingWgmma {
    /// The index of the `wgmma` in its warp, from 1.
    number: u64,
    clock: Clock,
    accumulators: Vec<Slot>,
    /// The fragment of A, if A is in registers.
    fragment: Vec<Slot>,
}

/// The uses of a register by `wgmma`s in flight.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    /// The number of `wgmma`s that read the register as a fragment of A.
    reading: u32,
    /// The number of `wgmma`s that accumulate in the register.
    accumulating: u32,
    /// The number of columns of these accumulators. Only `wgmma`s of one shape may share registers.
    columns: usize,
    /// The last `wgmma` that accumulates in the register.
    last: u64,
}

/// The `wgmma`s of one warp.
#[derive(Default)]
pub(crate) struct PendingWgmmas {
    groups: Groups<PendingWgmma>,
    in_flight: FxHashMap<Slot, Use>,
    /// The copies of accumulators in flight, each with the last `wgmma` that wrote the accumulator.
    copies: FxHashMap<Slot, u64>,
    /// The last `wgmma` that has begun, and the last complete one.
    begun: u64,
    complete: u64,
    /// True if a `wgmma.fence` follows the last write to registers of a `wgmma`.
    is_fenced: bool,
}

impl PendingWgmmas {
    /// Checks the accesses of another instruction to registers of `wgmma`s.
    ///
    /// # Errors
    /// If an access reads or writes an accumulator in flight, reads a copy of one, or writes a
    /// register of A in flight. Copying an accumulator is not an error.
    pub fn check_accesses(&mut self, accesses: &[WgmmaRegisterAccess]) -> Result<(), FaultKind> {
        for &access in accesses {
            match access {
                WgmmaRegisterAccess::Read(slot) => self.check(slot, false)?,
                WgmmaRegisterAccess::Write { slot, unfences } => {
                    self.copies.remove(&slot);
                    self.check(slot, true)?;
                    self.is_fenced &= !unfences;
                }
                WgmmaRegisterAccess::Copy { from, to } => {
                    if let Some(last) = self.pending(from) {
                        self.copies.insert(to, last);
                    } else {
                        self.copies.remove(&to);
                        self.check(to, true)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the last `wgmma` in flight that writes a register. For a copy of an accumulator,
    /// returns the last one that writes the accumulator.
    fn pending(&self, register: Slot) -> Option<u64> {
        let accumulator = self.in_flight.get(&register).filter(|usage| usage.accumulating > 0);
        let last = accumulator.map(|usage| usage.last).or_else(|| self.copies.get(&register).copied());
        last.filter(|last| *last > self.complete)
    }

    fn check(&self, register: Slot, is_write: bool) -> Result<(), FaultKind> {
        let role = if self.pending(register).is_some() {
            "an accumulator"
        } else if is_write && self.in_flight.get(&register).is_some_and(|usage| usage.reading > 0) {
            "a fragment of A"
        } else {
            return Ok(());
        };
        let access = if is_write { "written" } else { "read" };
        Err(FaultKind::Illegal(format!(
            "a register is {access} that is {role} of a wgmma.mma_async in flight: a wgmma.wait_group is missing"
        )))
    }

    /// Checks that a `wgmma` may use its registers.
    fn check_wgmma(&self, step: &WgmmaStep) -> Result<(), FaultKind> {
        let illegal = |text: &str| Err(FaultKind::Illegal(text.into()));
        if !self.is_fenced {
            return illegal(
                "no wgmma.fence follows the last write to registers of a wgmma.mma_async, or precedes the first one",
            );
        }
        for slot in &step.d {
            let usage = self.in_flight.get(slot).copied().unwrap_or_default();
            if usage.reading > 0 || usage.accumulating > 0 && usage.columns != step.wgmma.n {
                return illegal(
                    "an accumulator is a fragment of A, or an accumulator of another shape, of a wgmma.mma_async in flight",
                );
            }
        }
        if step.fragment().iter().any(|&slot| self.check(slot, false).is_err()) {
            return illegal("the fragment of A is an accumulator of a wgmma.mma_async in flight");
        }
        Ok(())
    }

    /// Records a `wgmma` that begins.
    fn begin(&mut self, mut wgmma: PendingWgmma, columns: usize) {
        self.begun += 1;
        wgmma.number = self.begun;
        for &slot in &wgmma.accumulators {
            let usage = self.in_flight.entry(slot).or_default();
            usage.accumulating += 1;
            (usage.columns, usage.last) = (columns, wgmma.number);
            self.copies.remove(&slot);
        }
        for &slot in &wgmma.fragment {
            self.in_flight.entry(slot).or_default().reading += 1;
        }
        self.groups.begin(u32::MAX, wgmma);
    }

    /// Waits until at most `keep` groups are in flight. Returns the clocks of the completed
    /// `wgmma`s.
    fn wait(&mut self, keep: usize) -> Vec<Clock> {
        let complete = self.groups.wait(u32::MAX, keep);
        for wgmma in &complete {
            self.complete = self.complete.max(wgmma.number);
            let accumulators = wgmma.accumulators.iter().map(|slot| (slot, true));
            for (slot, accumulates) in accumulators.chain(wgmma.fragment.iter().map(|slot| (slot, false))) {
                let usage = self.in_flight.get_mut(slot).expect("a wgmma in flight uses its registers");
                if accumulates {
                    usage.accumulating -= 1;
                } else {
                    usage.reading -= 1;
                }
                if usage.accumulating + usage.reading == 0 {
                    self.in_flight.remove(slot);
                }
            }
        }
        complete.into_iter().map(|wgmma| wgmma.clock).collect()
    }
}

/// The order of the `wgmma` instructions, which must be the same for all warps of a warpgroup.
#[derive(Default)]
pub(crate) struct Convoy {
    /// The instructions that some warps, but not all, have executed.
    ahead: VecDeque<u32>,
    /// The number of these instructions that each warp has executed.
    positions: [usize; WARPS],
}

impl Convoy {
    /// Records that a warp executes an instruction. If another warp has executed a different one
    /// here, returns that one.
    fn advance(&mut self, warp: usize, instruction: u32) -> Result<(), u32> {
        let position = &mut self.positions[warp];
        match self.ahead.get(*position) {
            Some(&other) if other != instruction => return Err(other),
            Some(_) => {}
            None => self.ahead.push_back(instruction),
        }
        *position += 1;
        if self.positions.iter().all(|&position| position > 0) {
            self.ahead.pop_front();
            self.positions.iter_mut().for_each(|position| *position -= 1);
        }
        Ok(())
    }
}

/// Checks that all lanes of the warp, and the other warps of the warpgroup, execute the same
/// instruction.
fn whole_warpgroup(context: &mut Context<'_>, name: &str) -> Outcome {
    whole_warp(context, name)?;
    let (warp, instruction) = (context.warp, context.instruction);
    let illegal = |text: String| Err(FaultKind::Illegal(text).into());
    if (warp / WARPS + 1) * WARPS > context.warps {
        return illegal(format!(
            "warp {warp} of {} executes {name}, but its warpgroup is incomplete: a warpgroup is four warps, the first with an index that is a multiple of 4",
            context.warps
        ));
    }
    let convoy = context.block().asynchronous.convoy(warp / WARPS);
    if convoy.advance(warp % WARPS, instruction).is_err() {
        return illegal(format!(
            "{name} has to be executed by all warps of the warpgroup, but another warp executed a different wgmma \
             instruction at this point"
        ));
    }
    Ok(())
}

pub(crate) enum LeftOperand {
    Fragment(Vec<Slot>),
    /// A descriptor of shared memory.
    Memory(Slot, Major),
}

/// `wgmma.mma_async`.
pub(crate) struct WgmmaStep {
    pub wgmma: Wgmma,
    pub a: LeftOperand,
    pub b: Slot,
    pub b_major: Major,
    pub d: Vec<Slot>,
    /// `scale-d`: 1 if the result is added to D, 0 if it replaces D.
    pub scale_d: Slot,
}

impl WgmmaStep {
    fn fragment(&self) -> &[Slot] {
        match &self.a {
            LeftOperand::Fragment(slots) => slots,
            LeftOperand::Memory(..) => &[],
        }
    }
}

impl Execute for WgmmaStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.mma_async")?;
        let warp = context.warp;
        context.block().asynchronous.wgmmas(warp).check_wgmma(self)?;
        let accumulates = uniform(context, self.scale_d, "scale-d")? & 1 == 1;
        let wgmma = Wgmma { accumulates, ..self.wgmma };
        let agent = context.fork(Channel::Wgmma(warp));
        let accessor = Accessor {
            agent: &agent,
            instruction: context.instruction,
            proxy: Proxy::Async,
            is_atomic: false,
        };
        let first = warp % WARPS * WARP_ROWS;
        let a = match &self.a {
            LeftOperand::Fragment(slots) => from_registers(&wgmma, &read_registers(context, slots)),
            LeftOperand::Memory(slot, major) => {
                let descriptor = uniform(context, *slot, "the descriptor of A")?;
                let rows = first..first + WARP_ROWS;
                from_memory(context, &accessor, descriptor, (rows, wgmma.k()), (wgmma.a, *major))?
            }
        };
        let descriptor = uniform(context, self.b, "the descriptor of B")?;
        let b =
            from_memory(context, &accessor, descriptor, (0..wgmma.n, wgmma.k()), (wgmma.b, self.b_major))?;
        let d = wgmma.execute(&a, &b, &read_registers(context, &self.d));
        for (&slot, lanes) in self.d.iter().zip(d) {
            *context.registers.get_mut(slot) = lanes;
        }
        context.counters.tensor_operations += 2 * (WARP_ROWS * wgmma.n * wgmma.k()) as u64;
        let pending = PendingWgmma {
            number: 0,
            clock: agent.clock,
            accumulators: self.d.clone(),
            fragment: self.fragment().to_vec(),
        };
        context.block().asynchronous.wgmmas(warp).begin(pending, wgmma.n);
        context.record(EventKind::Dot, Detail { count: 1, ..Detail::default() });
        Ok(Flow::Next)
    }
}

/// Returns the value of a register, which must be uniform in the warp.
fn uniform(context: &Context<'_>, slot: Slot, what: &str) -> Outcome<u64> {
    let lanes = context.registers.get(slot);
    if lanes.iter().any(|&value| value != lanes[0]) {
        return Err(FaultKind::Illegal(format!(
            "{what} of wgmma.mma_async differs between the lanes of a warp"
        ))
        .into());
    }
    Ok(lanes[0])
}

fn from_registers(wgmma: &Wgmma, registers: &[Lanes]) -> Values {
    let fragment = wgmma.a_fragment();
    if wgmma.a.is_integer() {
        Values::Integers(fragment.gather(registers, Element::integer))
    } else {
        Values::Floats(fragment.gather(registers, Element::value))
    }
}

fn from_memory(
    context: &mut Context<'_>,
    accessor: &Accessor<'_>,
    descriptor: u64,
    (rows, depth): (std::ops::Range<usize>, usize),
    (element, major): (Element, Major),
) -> Outcome<Values> {
    let descriptor = Descriptor::from(descriptor);
    let mut bytes_read = 0;
    let shared = &mut context.blocks[context.rank].shared;
    let mut read = |address: u32| {
        let mut chunk = [0; 16];
        shared.read(accessor, u64::from(address), &mut chunk)?;
        bytes_read += chunk.len() as u64;
        Outcome::Ok(u128::from_le_bytes(chunk))
    };
    let format = (element, (128 / element.bits()) as usize);
    let values = if element.is_integer() {
        let matrix: Matrix<i64> = descriptor.read(rows, depth, format, major, Element::integer, &mut read)?;
        Values::Integers(matrix)
    } else {
        Values::Floats(descriptor.read(rows, depth, format, major, Element::value, &mut read)?)
    };
    context.counters.bytes_read += bytes_read;
    Ok(values)
}

/// `wgmma.fence`.
pub(crate) struct WgmmaFenceStep;

impl Execute for WgmmaFenceStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.fence")?;
        let warp = context.warp;
        context.block().asynchronous.wgmmas(warp).is_fenced = true;
        Ok(Flow::Next)
    }
}

/// `wgmma.commit_group`.
pub(crate) struct WgmmaCommitStep;

impl Execute for WgmmaCommitStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.commit_group")?;
        let warp = context.warp;
        context.block().asynchronous.wgmmas(warp).groups.commit(u32::MAX);
        context.record(EventKind::CommitDots, Detail::default());
        Ok(Flow::Next)
    }
}

/// `wgmma.wait_group`.
pub(crate) struct WgmmaWaitStep {
    /// Maximum groups that may remain in flight.
    pub keep: usize,
}

impl Execute for WgmmaWaitStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.wait_group")?;
        let warp = context.warp;
        for clock in context.block().asynchronous.wgmmas(warp).wait(self.keep) {
            context.agent.acquire(&clock);
        }
        context.record(EventKind::WaitDots, Detail { count: self.keep as u32, ..Detail::default() });
        Ok(Flow::Next)
    }
}
