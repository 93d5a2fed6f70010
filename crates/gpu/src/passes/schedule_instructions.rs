//! Orders the ops of each block by a list scheduler.
//!
//! ```text
//! %p = wgmma %a, %b, 0               %p = wgmma %a, %b, 0
//! %s = wgmma_wait %p                 %q = wgmma %c, %d, 0
//! %e = exp2 %s                =>     %s = wgmma_wait %p
//! %q = wgmma %c, %d, 0               %e = exp2 %s
//! %t = wgmma_wait %q                 %t = wgmma_wait %q
//! ```
//! Each op has a [`Priority`]. A wait for a dot issues just before the first op that needs the dot.
//! In a block of several warpgroups, dots issue as soon as their operands are ready. Tensor cores
//! then work while threads compute. Reads of vectors from slots issue early. Releases of slots that
//! were taken together issue at the end of the IR block. All other ops keep their order.
//!
//! Dots and waits may pass each other. They may also pass ops that are pure, read memory or release
//! a slot. A read of a vector may pass dots, waits, fills, releases, and pure ops that compute no
//! tile.
//!
//! **Registers.** A dot may read A from registers, and A is converted from a tile T. If registers
//! do not hold A, T and the accumulator together, the dot issues after the other readers of T.
//! Otherwise, the assembler would interleave them and keep both A and T.
//!
//! The pass runs after loops are pipelined, and orders the ops of one step.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_ir::{self as ir, Dtype, Effect, Inst, OpFamily, Operation, Value};

use super::pipelining::is_fill;
use crate::cost_model;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::{LANES, element_bits};
use tilewright_gpu_ir::target::WARPGROUP_WARPS;
use tilewright_gpu_ir::{Buffer, Deferred, Function, GpuOp, Header, Module, Op, Type};

pub fn schedule_instructions(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    // Barriers synchronize a thread block's warpgroups. Without early dots, all warpgroups would
    // compute at the same time, while the tensor cores idle. In a block of one warpgroup, early
    // dots would keep accumulators in registers for longer. Then a multiprocessor would hold fewer
    // blocks, which keep the tensor cores busy.
    let issues_early = header.num_warps > WARPGROUP_WARPS;
    let mut blocks = vec![function.entry];
    while let Some(block) = blocks.pop() {
        for inst in &function.blocks[block].insts {
            blocks.extend(&function.insts[*inst].regions);
        }
        let insts = std::mem::take(&mut function.blocks[block].insts);
        issue_after_readers(header, function, &insts);
        let insts = Scheduler::new(function, &insts, issues_early).schedule();
        if issues_early {
            wait_after_computation(function, &insts);
        }
        count_later(function, &insts);
        function.blocks[block].insts = insts;
    }
}

/// Returns each dot of `insts` with all ops that it depends on.
pub fn dots_with_dependences(function: &Function, insts: &[Inst]) -> Vec<FxHashSet<Inst>> {
    let scheduler = Scheduler::new(function, insts, true);
    let dots = (0..insts.len()).filter(|index| is_dot(function, insts[*index]));
    dots.map(|dot| scheduler.closure(dot).into_iter().map(|index| insts[index]).collect()).collect()
}

/// The time at which an op issues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Priority {
    /// As soon as its operands are ready.
    Early,
    /// In the order of the text.
    InOrder,
    /// Before the first op that depends on it.
    Late,
    /// At the end of the block.
    Last,
}

struct Scheduler<'a> {
    function: &'a Function,
    insts: &'a [Inst],
    priorities: Vec<Priority>,
    /// The indices of each op's earlier dependences; empty if all ops keep their order.
    needs: Vec<Vec<usize>>,
    issues_early: bool,
    is_issued: Vec<bool>,
    order: Vec<Inst>,
}

impl<'a> Scheduler<'a> {
    fn new(function: &'a Function, insts: &'a [Inst], issues_early: bool) -> Self {
        let slots = released_last(function, insts);
        let priorities = insts.iter().map(|inst| match &function.insts[*inst].op {
            Op::Gpu(GpuOp::Wgmma { .. }) if issues_early => Priority::Early,
            // A load from shared memory takes longer while dots read operands from there.
            Op::Gpu(GpuOp::LocalLoad { .. }) if is_vector_read(function, *inst) => Priority::Early,
            Op::Gpu(GpuOp::WgmmaWait { .. }) => Priority::Late,
            Op::Gpu(GpuOp::Release {}) if slots.contains(&function.insts[*inst].operands[0]) => {
                Priority::Last
            }
            // tidy: wildcard because all other ops keep the order of the text
            _ => Priority::InOrder,
        });
        let priorities: Vec<Priority> = priorities.collect();
        let keeps_order = priorities.iter().all(|priority| *priority == Priority::InOrder);
        let needs = if keeps_order { Vec::new() } else { dependences(function, insts) };
        let is_issued = vec![false; insts.len()];
        Self { function, insts, priorities, needs, issues_early, is_issued, order: Vec::new() }
    }

    /// Returns the ops in the order in which they issue.
    fn schedule(mut self) -> Vec<Inst> {
        let Some(end) = self.needs.len().checked_sub(1) else { return self.insts.to_vec() };
        for index in 0..end {
            match self.priorities[index] {
                Priority::Early | Priority::InOrder => self.issue(index),
                // This also frees the registers that the dots read.
                Priority::Last if !self.issues_early => self.issue_needs(index),
                Priority::Late | Priority::Last => {}
            }
            self.issue_ready();
        }
        for index in 0..end {
            if self.priorities[index] == Priority::Late {
                self.issue(index);
            }
        }
        // Slots are released in the order in which they are taken.
        let taken = self.insts.iter().filter_map(|inst| self.function.insts[*inst].results.first().copied());
        let taken: Vec<Value> = taken.collect();
        let mut releases: Vec<usize> =
            (0..end).filter(|index| self.priorities[*index] == Priority::Last).collect();
        releases.sort_by_key(|index| {
            let slot = self.function.insts[self.insts[*index]].operands[0];
            taken.iter().position(|other| *other == slot)
        });
        releases.into_iter().chain([end]).for_each(|index| self.issue(index));
        self.order
    }

    fn issue(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_issued[index], true) {
            self.issue_needs(index);
            self.order.push(self.insts[index]);
        }
    }

    fn issue_needs(&mut self, index: usize) {
        for need in 0..self.needs[index].len() {
            self.issue(self.needs[index][need]);
        }
    }

    /// Returns the indices of an op and of all ops that it depends on.
    fn closure(&self, index: usize) -> FxHashSet<usize> {
        let (mut found, mut work) = (FxHashSet::default(), vec![index]);
        while let Some(index) = work.pop() {
            if found.insert(index) {
                work.extend(&self.needs[index]);
            }
        }
        found
    }

    /// Issues the early ops that are ready, reads before dots.
    fn issue_ready(&mut self) {
        let is_ready = |scheduler: &Self, index: &usize| {
            scheduler.priorities[*index] == Priority::Early
                && !scheduler.is_issued[*index]
                && scheduler.needs[*index].iter().all(|need| scheduler.is_issued[*need])
        };
        let found: Vec<usize> = (0..self.insts.len()).filter(|index| is_ready(self, index)).collect();
        let (dots, reads): (Vec<usize>, Vec<usize>) =
            found.into_iter().partition(|index| is_dot(self.function, self.insts[*index]));
        reads.into_iter().chain(dots).for_each(|index| self.issue(index));
    }
}

/// Returns the slots that an IR block takes together and so releases at its end.
///
/// Their rings share barriers ([`super::rings`]) and are allocated outside of the block. Returns no
/// slots if a dot is between the takes, or if no wait for a dot follows the first release.
fn released_last(function: &Function, insts: &[Inst]) -> Vec<Value> {
    let is_own = |ring: Value| function.defining_inst(ring).is_some_and(|alloc| insts.contains(&alloc));
    let takes = |inst: &Inst| {
        let data = &function.insts[*inst];
        matches!(data.op, Op::Gpu(GpuOp::Take {})) && !is_own(data.operands[0])
    };
    let slots: Vec<Value> =
        insts.iter().filter(|inst| takes(inst)).map(|inst| function.insts[*inst].results[0]).collect();
    let is_released =
        |inst: &Inst| is_release(function, *inst) && slots.contains(&function.insts[*inst].operands[0]);
    let first = insts.iter().position(is_released);
    let last_wait = insts.iter().rposition(|inst| is_wait(function, *inst));
    let dots = insts.iter().skip_while(|inst| !takes(inst)).skip_while(|inst| !is_dot(function, **inst));
    let are_taken_together = !dots.clone().any(takes);
    if first.is_some() && last_wait > first && are_taken_together { slots } else { Vec::new() }
}

/// Returns the earlier ops that each op must follow, as indices.
fn dependences(function: &Function, insts: &[Inst]) -> Vec<Vec<usize>> {
    let mut definitions = FxHashMap::default();
    for (index, inst) in insts.iter().enumerate() {
        definitions.extend(function.insts[*inst].results.iter().map(|result| (*result, index)));
    }
    let orders: Vec<MemoryOrder> = insts.iter().map(|inst| MemoryOrder::of(function, *inst)).collect();
    let needs = insts.iter().enumerate().map(|(index, inst)| {
        let mut values = function.insts[*inst].operands.clone();
        for region in &function.insts[*inst].regions {
            function.walk(*region, &mut |inner| values.extend_from_slice(&function.insts[inner].operands));
        }
        let ordered = (0..index).filter(|before| orders[index].must_follow(orders[*before]));
        let mut needs: Vec<usize> = ordered.collect();
        needs.extend(values.iter().filter_map(|value| definitions.get(value).copied()));
        needs.sort_unstable();
        needs.dedup();
        needs
    });
    needs.collect()
}

/// The properties that decide which ops an op may pass.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of an op")]
struct MemoryOrder {
    /// True for a dot or a wait for dots.
    is_async: bool,
    is_wait: bool,
    is_release: bool,
    is_vector_read: bool,
    /// True if dots and waits may pass the op.
    is_free: bool,
    /// True if reads of vectors may pass the op. Such an op is a dot or a wait, fills or releases a
    /// slot, or is pure and computes no tile.
    is_passed_by_vector_reads: bool,
}

impl MemoryOrder {
    fn of(function: &Function, inst: Inst) -> Self {
        let (is_wait, is_release) = (is_wait(function, inst), is_release(function, inst));
        let is_async = is_wait || is_dot(function, inst);
        let data = &function.insts[inst];
        let effect = data.op.info().effect;
        // A read after the computation of a tile keeps the vector out of registers until then.
        let is_tile = |result: &Value| is_computed(function, *result);
        let is_scalar = effect == Effect::Pure && !data.results.iter().any(is_tile);
        Self {
            is_async,
            is_wait,
            is_release,
            is_vector_read: is_vector_read(function, inst),
            is_free: is_async || is_release || matches!(effect, Effect::Pure | Effect::Read),
            is_passed_by_vector_reads: is_async || is_release || is_fill(&data.op) || is_scalar,
        }
    }

    /// Returns whether the op must follow the earlier op `before`, apart from data dependences.
    fn must_follow(self, before: Self) -> bool {
        if self.is_release {
            return before.is_wait;
        }
        if self.is_vector_read {
            return !before.is_passed_by_vector_reads;
        }
        (before.is_async || self.is_async) && !(before.is_free && self.is_free)
    }
}

fn is_vector_read(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    let is_vector = |slot: &Buffer| slot.shape.iter().filter(|extent| **extent > 1).count() == 1;
    matches!(data.op, Op::Gpu(GpuOp::LocalLoad { matrix: false }))
        && matches!(function.ty(data.operands[0]), Type::Full(slot) if is_vector(slot))
}

fn is_dot(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::Wgmma { .. }))
}

fn is_wait(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::WgmmaWait { .. }))
}

fn is_release(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Gpu(GpuOp::Release {}))
}

/// Adds to each wait the last tile that threads compute after the previous dot. Otherwise, the
/// assembler would move the wait up to the dot. Waits without such a tile, or with an operand from
/// the loop's schedule, do not change.
fn wait_after_computation(function: &mut Function, insts: &[Inst]) {
    for (index, wait) in insts.iter().enumerate() {
        if !is_wait(function, *wait) || function.insts[*wait].operands.len() > 1 {
            continue;
        }
        let beside = insts[..index].iter().rev().take_while(|inst| !is_dot(function, **inst));
        let mut tiles = beside.flat_map(|inst| &function.insts[*inst].results).copied();
        if let Some(tile) = tiles.find(|value| is_computed(function, *value)) {
            function.insts[*wait].operands.push(tile);
        }
    }
}

fn is_computed(function: &Function, value: Value) -> bool {
    let is_pointwise = |op: &Op| op.info().family == OpFamily::Pointwise;
    let tile = function.ty(value).as_registers().filter(|tile| !tile.is_scalar());
    tile.and_then(ir::Type::dtype) == Some(Dtype::F32)
        && function.defining_op(value).is_some_and(is_pointwise)
}

/// Clears the counts of dots in flight. The lowering of rings computes them for the new order.
fn count_later(function: &mut Function, insts: &[Inst]) {
    for inst in insts {
        if let Op::Gpu(GpuOp::WgmmaWait { pending }) = &mut function.insts[*inst].op {
            *pending = Deferred(None);
        }
    }
}

/// If registers are scarce, lets dots issue after the other readers of A's source tile.
fn issue_after_readers(header: &Header, function: &mut Function, insts: &[Inst]) {
    for (index, dot) in insts.iter().enumerate() {
        let Some(reader) = reader_before(header, function, &insts[..index], *dot) else { continue };
        function.insts[*dot].operands.push(reader);
        let subject = || remarks::subject(function, *dot, None);
        remarks::about("schedule_instructions", function, *dot, subject, || {
            let reason = "registers do not hold the tile, A and the accumulator";
            RemarkReason::done(
                "the dot issues after the other readers of the tile that A is converted from",
                reason,
            )
        });
    }
}

/// Returns the last result before a dot that reads A's source tile. Returns `None` if the dot need
/// not issue after it.
fn reader_before(header: &Header, function: &Function, before: &[Inst], dot: Inst) -> Option<Value> {
    let data = &function.insts[dot];
    let (Op::Gpu(GpuOp::Wgmma { .. }), &[a, _, accumulator]) = (&data.op, &data.operands[..]) else {
        return None;
    };
    let conversion = function.defining_inst(a).filter(|inst| before.contains(inst))?;
    let Op::Tile(ir::Op::Cast { .. }) = function.insts[conversion].op else { return None };
    let tile = function.insts[conversion].operands[0];
    let words = |value: Value| {
        let ty = function.ty(value);
        let bits = ty.as_registers().map(element_bits)?;
        Some(header.layouts.get(ty.layout()?).registers() * bits / 32)
    };
    let tiles = words(tile)? + words(a)? + words(accumulator)?;
    if cost_model::fits_registers(tiles, header.num_warps * LANES, header.target.tuning) {
        return None;
    }
    let is_reader = |inst: &&Inst| {
        let data = &function.insts[**inst];
        let renames = data.op.info().family == OpFamily::Shape;
        **inst != conversion && !renames && data.operands.contains(&tile)
    };
    let results = before.iter().rev().filter(is_reader).flat_map(|inst| &function.insts[*inst].results);
    results.copied().find(|result| function.ty(*result).as_registers().map(element_bits) == Some(32))
}
