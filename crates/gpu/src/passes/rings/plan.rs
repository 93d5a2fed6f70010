//! What carries out a ring, by who writes and who reads its slots.

use std::collections::BTreeMap;

use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::tile::legality::at;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::WARPGROUP_WARPS;
use tilewright_gpu_ir::{Buffer, GpuOp, Op, Type};

/// What fills the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    Stores,
    Copies,
    Tensor,
}

/// The roles of a ring that is not used by all warps.
#[derive(Clone, Debug)]
pub struct Roles {
    pub inst: Inst,
    pub producer: usize,
    pub consumers: Vec<usize>,
    pub producing_warps: u32,
    pub consuming_warps: u32,
}

/// How a ring is carried out.
#[derive(Clone, Debug)]
pub struct Plan {
    pub buffer: Buffer,
    pub writer: Writer,
    /// The asynchronous proxy reads slots.
    pub is_async_read: bool,
    /// Tensor copies fill slots for several warpgroups that multiply, from these slots or from others: those of a block, or of the blocks
    /// of a divided program, which may fill them together.
    pub is_between_groups: bool,
    pub roles: Option<Roles>,
    /// Its `alloc` is inside of a region: other buffers may have its memory between two runs of that. Its barriers are made once,
    /// before the outermost instruction around it.
    pub is_in_region: bool,
    /// Of the block.
    pub num_warps: u32,
}

impl Plan {
    /// Whether an `mbarrier` says that a slot is full.
    pub fn has_full(&self) -> bool {
        self.roles.is_some() || self.writer == Writer::Tensor
    }

    /// Whether its barriers are made elsewhere than its memory.
    pub fn has_outer_barriers(&self) -> bool {
        self.is_in_region && self.has_full()
    }

    /// Whether an `mbarrier` says that a slot is empty. Between warpgroups that multiply it lets one be ahead of another.
    pub fn has_empty(&self) -> bool {
        self.roles.is_some() || self.is_between_groups
    }

    /// How many arrivals make a slot empty.
    pub fn empty_arrivals(&self) -> u32 {
        self.roles.as_ref().map_or(self.num_warps, |roles| roles.consuming_warps)
    }

    /// How many arrivals make the slots of a team of so many rings full. Of what a thread copies for all of them, it arrives once.
    pub fn full_arrivals(&self, rings: u32) -> u32 {
        let warps = self.roles.as_ref().map_or(0, |roles| roles.producing_warps);
        match self.writer {
            Writer::Tensor => rings,
            Writer::Copies => warps * LANES,
            Writer::Stores => warps * rings,
        }
    }
}

pub type Plans = BTreeMap<Value, Plan>;

/// What the instructions of a ring are.
#[derive(Default)]
struct RingUses {
    writers: Vec<(Writer, Inst)>,
    is_async_read: bool,
    /// Acquires, publishes and what writes.
    producing: Vec<Inst>,
    /// Takes and releases.
    consuming: Vec<Inst>,
}

/// A plan for every ring.
pub fn plans(analysis: &SlotAnalysis<'_>, (num_warps, blocks): (u32, u32)) -> Result<Plans, Box<Diagnostic>> {
    let function = analysis.function;
    let mut uses: BTreeMap<Value, RingUses> = BTreeMap::new();
    let mut rings = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let Op::Gpu(op) = &data.op else { return };
        if let (GpuOp::Alloc { .. }, Some(Type::Ring(buffer))) =
            (op, data.results.first().map(|value| function.ty(*value)))
        {
            rings.push((data.results[0], inst, buffer.clone()));
        }
        for (place, value) in data.operands.iter().enumerate() {
            let ty = function.ty(*value);
            if !matches!(ty, Type::Ring(_) | Type::Empty(_) | Type::Full(_)) {
                continue;
            }
            let root = analysis.root(*value).expect("the verifier traces rings");
            note(uses.entry(root).or_default(), op, inst, place);
        }
    });
    let mut plans = Plans::new();
    for (root, inst, buffer) in rings {
        let uses = uses.remove(&root).unwrap_or_default();
        let plan = plan(analysis, root, buffer, &uses, (num_warps, blocks)).map_err(|message| {
            let text = format!("the ring {} cannot be carried out: {message}", analysis.text(root));
            Box::new(at(function, inst, Code::MalformedIr, text))
        })?;
        plans.insert(root, plan);
    }
    // Where groups multiply out of step, a barrier of the block for what they load to registers would bring them into step.
    if plans.values().any(|plan| plan.is_between_groups) {
        for plan in plans.values_mut() {
            plan.is_between_groups |= plan.writer == Writer::Tensor && !plan.is_in_region;
        }
    }
    Ok(plans)
}

fn note(uses: &mut RingUses, op: &GpuOp, inst: Inst, place: usize) {
    let writer = match op {
        GpuOp::LocalStore {} => Some(Writer::Stores),
        GpuOp::CopyAsync { .. } => Some(Writer::Copies),
        GpuOp::TensorFill {} => Some(Writer::Tensor),
        // tidy: wildcard because no other op writes to a slot in hand
        _ => None,
    };
    uses.writers.extend(writer.filter(|_| place == 0).map(|writer| (writer, inst)));
    uses.is_async_read |=
        matches!(op, GpuOp::Wgmma { .. } | GpuOp::TensorStore {} | GpuOp::TensorReduce { .. });
    match op {
        GpuOp::Dealloc {} => {}
        GpuOp::Acquire {} | GpuOp::Publish {} => uses.producing.push(inst),
        _ if writer.is_some() => uses.producing.push(inst),
        // tidy: wildcard because all others take a full slot
        _ => uses.consuming.push(inst),
    }
}

fn plan(
    analysis: &SlotAnalysis<'_>,
    root: Value,
    buffer: Buffer,
    uses: &RingUses,
    (num_warps, blocks): (u32, u32),
) -> Result<Plan, &'static str> {
    let writer = uses.writers.first().map_or(Writer::Stores, |(writer, _)| *writer);
    if uses.writers.iter().any(|(other, _)| *other != writer) {
        return Err("its slots are filled by stores and by copies, or by copies of two kinds");
    }
    if writer == Writer::Tensor {
        single_fills(analysis, uses)?;
    }
    let in_condition = |inst: &&Inst| {
        let mut block = analysis.block_of_inst(**inst);
        while let Some(owner) = analysis.owner(block) {
            let data = &analysis.function.insts[owner];
            if matches!(data.op.as_tile(), Some(ir::Op::While {})) && data.regions[0] == block {
                return true;
            }
            block = analysis.block_of_inst(owner);
        }
        false
    };
    if uses.producing.iter().chain(&uses.consuming).any(|inst| in_condition(&inst)) {
        return Err("it is used in the condition of a while_loop");
    }
    let roles = roles(analysis, root, uses, num_warps)?;
    let are_groups = num_warps * blocks > WARPGROUP_WARPS;
    let is_in_region = analysis.block_of(root) != analysis.function.entry;
    // All groups leave such memory before it is filled again: what had it between may have been of all of them.
    let is_between_groups = writer == Writer::Tensor && uses.is_async_read && are_groups && !is_in_region;
    let is_async_read = uses.is_async_read;
    if roles.is_some() && is_in_region {
        return Err("its roles meet at an mbarrier, and its alloc stands in a region: those are made once");
    }
    Ok(Plan { buffer, writer, is_async_read, is_between_groups, roles, is_in_region, num_warps })
}

/// A slot is filled by one tensor copy, next to its `publish`: its barrier expects the bytes once.
fn single_fills(analysis: &SlotAnalysis<'_>, uses: &RingUses) -> Result<(), &'static str> {
    let function = analysis.function;
    let publishes: Vec<Inst> = uses
        .producing
        .iter()
        .copied()
        .filter(|inst| matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Publish {})))
        .collect();
    let fills_once = |publish: &Inst| {
        let token = function.insts[*publish].operands[0];
        let fills = uses.writers.iter().filter(|(_, fill)| function.insts[*fill].operands[0] == token);
        let blocks: Vec<_> = fills.map(|(_, fill)| analysis.block_of_inst(*fill)).collect();
        blocks == [analysis.block_of_inst(*publish)]
    };
    if publishes.len() == uses.writers.len() && publishes.iter().all(fills_once) {
        Ok(())
    } else {
        Err("each publish needs one tensor_fill of its slot in the same block")
    }
}

fn roles(
    analysis: &SlotAnalysis<'_>,
    root: Value,
    uses: &RingUses,
    num_warps: u32,
) -> Result<Option<Roles>, &'static str> {
    let of = |insts: &[Inst]| -> Vec<Option<(Inst, usize)>> {
        let mut roles: Vec<_> = insts.iter().map(|inst| analysis.partition(*inst)).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    };
    let (producing, consuming) = (of(&uses.producing), of(&uses.consuming));
    if producing.iter().chain(&consuming).all(Option::is_none) {
        return Ok(None);
    }
    let &[Some((inst, producer))] = &producing[..] else {
        return Err("its slots are filled by several roles, or by all warps and a role");
    };
    let mut consumers = Vec::new();
    for role in consuming {
        match role {
            Some((other, consumer)) if other == inst && consumer != producer => consumers.push(consumer),
            _ => return Err("its slots are read by all warps, or by the role that fills them"),
        }
    }
    if analysis.block_of_inst(inst) != analysis.block_of(root) {
        return Err("its roles do not stand in the block of its alloc: its phases would begin again");
    }
    let Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) = &analysis.function.insts[inst].op else {
        return Err("its roles are none");
    };
    let count = |role: &usize| u32::try_from(warps[*role]).unwrap_or(num_warps);
    let consuming_warps = consumers.iter().map(count).sum();
    if consuming_warps == 0 {
        return Err("no role reads it");
    }
    Ok(Some(Roles { inst, producer, producing_warps: count(&producer), consumers, consuming_warps }))
}
