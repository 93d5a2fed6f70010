//! `wgmma.mma_async` and its synchronisation in executable form.
//!
//! A product is computed when its warp comes to it, but its registers belong to it until a `wgmma.wait_group`: an access
//! in between is a fault, as is a product whose registers were written after the last `wgmma.fence`. Its reads of shared
//! memory are those of an agent of their own, so that whoever overwrites an operand without the wait races.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::descriptor::{Descriptor, Major};
use super::execute::{read_registers, whole_warp};
use super::wgmma::{Values, WARP_ROWS, WARPS, Wgmma};
use super::{Element, Matrix};
use crate::asynchronous::Channel;
use crate::asynchronous::groups::Groups;
use crate::context::{Context, Execute, Flow};
use crate::fault::{FaultKind, Outcome};
use crate::memory::shared::Accessor;
use crate::memory::{Clock, Proxy};
use crate::registers::{Lanes, Slot};

/// A product on its way.
#[derive(Clone, Debug)]
struct Product {
    /// Its number among those of the warp.
    number: u64,
    clock: Clock,
    accumulators: Vec<Slot>,
    /// The fragment of A, if it is in registers.
    fragment: Vec<Slot>,
}

/// How a register takes part in products on their way.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    /// How many read it as their A.
    reading: u32,
    /// How many accumulate in it.
    accumulating: u32,
    /// The columns of those: products of one shape may follow each other in the same accumulators.
    columns: usize,
    /// The number of the last of them.
    last: u64,
}

/// An access of another instruction to a register of products, or to a copy of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProductAccess {
    /// It is read.
    Read(Slot),
    /// It is written; whether products then have to wait for a `wgmma.fence`.
    Write { slot: Slot, unfences: bool },
    /// It is copied to another. Compilers copy accumulators of products on their way, and leave it to `ptxas` to remove the
    /// copies: a copy of one that nobody may read yet is such a one too.
    Copy { from: Slot, to: Slot },
}

/// The products of one warp.
#[derive(Default)]
pub(crate) struct Products {
    groups: Groups<Product>,
    in_flight: FxHashMap<Slot, Use>,
    /// Copies of accumulators on their way: the number of the last product that went into each.
    copies: FxHashMap<Slot, u64>,
    /// How many products have begun, and how many of them are complete.
    begun: u64,
    complete: u64,
    /// Whether a `wgmma.fence` has come since registers of products were written.
    is_fenced: bool,
}

impl Products {
    /// Checks what another instruction does with registers that products of the kernel use.
    ///
    /// # Errors
    /// If a product on its way writes the register, or reads it and the access is a write.
    pub fn check_accesses(&mut self, accesses: &[ProductAccess]) -> Result<(), FaultKind> {
        for &access in accesses {
            match access {
                ProductAccess::Read(slot) => self.check(slot, false)?,
                ProductAccess::Write { slot, unfences } => {
                    self.copies.remove(&slot);
                    self.check(slot, true)?;
                    self.is_fenced &= !unfences;
                }
                ProductAccess::Copy { from, to } => {
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

    /// The number of the last product on its way that goes into a register, or went into it before it was copied.
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
            "a register is {access} that is {role} of a wgmma.mma_async on its way: a wgmma.wait_group is missing"
        )))
    }

    /// Checks that a product may use its registers.
    fn check_product(&self, step: &ProductStep) -> Result<(), FaultKind> {
        let illegal = |text: &str| Err(FaultKind::Illegal(text.into()));
        if !self.is_fenced {
            return illegal(
                "registers of a wgmma.mma_async were written, or none was executed yet, and no wgmma.fence came since",
            );
        }
        for slot in &step.d {
            let usage = self.in_flight.get(slot).copied().unwrap_or_default();
            if usage.reading > 0 || usage.accumulating > 0 && usage.columns != step.wgmma.n {
                return illegal(
                    "an accumulator is a fragment of A, or an accumulator of another shape, of a wgmma.mma_async on its way",
                );
            }
        }
        if step.fragment().iter().any(|&slot| self.check(slot, false).is_err()) {
            return illegal("the fragment of A is an accumulator of a wgmma.mma_async on its way");
        }
        Ok(())
    }

    /// Notes a product that begins; its number is the next one.
    fn begin(&mut self, mut product: Product, columns: usize) {
        self.begun += 1;
        product.number = self.begun;
        for &slot in &product.accumulators {
            let usage = self.in_flight.entry(slot).or_default();
            usage.accumulating += 1;
            (usage.columns, usage.last) = (columns, product.number);
            self.copies.remove(&slot);
        }
        for &slot in &product.fragment {
            self.in_flight.entry(slot).or_default().reading += 1;
        }
        self.groups.begin(u32::MAX, product);
    }

    /// Waits until at most `keep` groups are on their way: what the complete ones knew.
    fn wait(&mut self, keep: usize) -> Vec<Clock> {
        let complete = self.groups.wait(u32::MAX, keep);
        for product in &complete {
            self.complete = self.complete.max(product.number);
            let accumulators = product.accumulators.iter().map(|slot| (slot, true));
            for (slot, accumulates) in accumulators.chain(product.fragment.iter().map(|slot| (slot, false))) {
                let usage = self.in_flight.get_mut(slot).expect("a product on its way uses its registers");
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
        complete.into_iter().map(|product| product.clock).collect()
    }
}

/// The order in which the warps of a warpgroup come to its instructions: it has to be the same for all.
#[derive(Default)]
pub(crate) struct Convoy {
    /// The instructions that some of the warps have executed and some not.
    ahead: VecDeque<u32>,
    /// How many each warp has executed of those.
    positions: [usize; WARPS],
}

impl Convoy {
    /// A warp executes an instruction: the instruction that another one executed in its place, if that is different.
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

/// Checks that a warp executes an instruction of its warpgroup as a whole, and the same as the other warps.
fn whole_warpgroup(context: &mut Context<'_>, name: &str) -> Outcome {
    whole_warp(context, name)?;
    let (warp, instruction) = (context.warp, context.instruction);
    let illegal = |text: String| Err(FaultKind::Illegal(text).into());
    if (warp / WARPS + 1) * WARPS > context.warps {
        return illegal(format!(
            "{name} is executed by warp {warp} of {}, but a warpgroup is four warps from a multiple of 4 on",
            context.warps
        ));
    }
    let convoy = context.block().asynchronous.convoy(warp / WARPS);
    if convoy.advance(warp % WARPS, instruction).is_err() {
        return illegal(format!(
            "{name} has to be executed by all warps of the warpgroup, but another warp executed another instruction of \
             the family here"
        ));
    }
    Ok(())
}

/// Where A comes from.
pub(crate) enum LeftOperand {
    /// A fragment in registers.
    Fragment(Vec<Slot>),
    /// Shared memory, by a descriptor.
    Memory(Slot, Major),
}

/// `wgmma.mma_async`.
pub(crate) struct ProductStep {
    pub wgmma: Wgmma,
    pub a: LeftOperand,
    pub b: Slot,
    pub b_major: Major,
    pub d: Vec<Slot>,
    /// `scale-d`: whether the product is added to D.
    pub scale_d: Slot,
}

impl ProductStep {
    fn fragment(&self) -> &[Slot] {
        match &self.a {
            LeftOperand::Fragment(slots) => slots,
            LeftOperand::Memory(..) => &[],
        }
    }
}

impl Execute for ProductStep {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.mma_async")?;
        let warp = context.warp;
        context.block().asynchronous.products(warp).check_product(self)?;
        let accumulates = uniform(context, self.scale_d, "scale-d")? & 1 == 1;
        let wgmma = Wgmma { accumulates, ..self.wgmma };
        let agent = context.fork(Channel::Products(warp));
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
        let product = Product {
            number: 0,
            clock: agent.clock,
            accumulators: self.d.clone(),
            fragment: self.fragment().to_vec(),
        };
        context.block().asynchronous.products(warp).begin(product, wgmma.n);
        Ok(Flow::Next)
    }
}

/// The value of a register that has to be the same in all lanes.
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
    let values = if element.is_integer() {
        let matrix: Matrix<i64> =
            descriptor.read(rows, depth, element, major, Element::integer, &mut read)?;
        Values::Integers(matrix)
    } else {
        Values::Floats(descriptor.read(rows, depth, element, major, Element::value, &mut read)?)
    };
    context.counters.bytes_read += bytes_read;
    Ok(values)
}

/// `wgmma.fence`.
pub(crate) struct ProductFence;

impl Execute for ProductFence {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.fence")?;
        let warp = context.warp;
        context.block().asynchronous.products(warp).is_fenced = true;
        Ok(Flow::Next)
    }
}

/// `wgmma.commit_group`.
pub(crate) struct ProductCommit;

impl Execute for ProductCommit {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.commit_group")?;
        let warp = context.warp;
        context.block().asynchronous.products(warp).groups.commit(u32::MAX);
        Ok(Flow::Next)
    }
}

/// `wgmma.wait_group`.
pub(crate) struct ProductWait {
    /// How many groups may stay on their way.
    pub keep: usize,
}

impl Execute for ProductWait {
    fn execute(&self, context: &mut Context<'_>) -> Outcome<Flow> {
        whole_warpgroup(context, "wgmma.wait_group")?;
        let warp = context.warp;
        for clock in context.block().asynchronous.products(warp).wait(self.keep) {
            context.agent.acquire(&clock);
        }
        Ok(Flow::Next)
    }
}
