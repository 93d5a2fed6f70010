//! Chooses the implementation of each ring by the writers and readers of its slots.

use std::collections::BTreeMap;

use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{Inst, Operation, Value};

use crate::tile::legality::at;
use tilewright_gpu_ir::analysis::slots::SlotAnalysis;
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::WARPGROUP_WARPS;
use tilewright_gpu_ir::{Buffer, GpuOp, Op, Type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    Stores,
    Copies,
    Tensor,
}

/// The partitions that use a ring; without partitions, all warps use it.
#[derive(Clone, Debug)]
pub struct RingPartitions {
    pub specialize: Inst,
    pub producer: usize,
    pub consumers: Vec<usize>,
    pub producing_warps: u32,
    pub consuming_warps: u32,
}

#[derive(Clone, Debug)]
pub struct RingPlan {
    pub buffer: Buffer,
    pub writer: Writer,
    /// True if the asynchronous proxy reads slots.
    pub is_async_read: bool,
    /// True if tensor copies fill the slots while several warpgroups run `wgmma`.
    ///
    /// The warpgroups are of one block, or of the blocks of a divided program.
    pub is_shared_by_warpgroups: bool,
    pub partitions: Option<RingPartitions>,
    /// True if the `alloc` of the ring is in a region.
    ///
    /// Other buffers may use its memory between two runs of the region.
    pub is_in_region: bool,
    pub num_warps: u32,
}

impl RingPlan {
    /// Returns whether an `mbarrier` signals full slots.
    pub fn has_full(&self) -> bool {
        self.partitions.is_some() || self.writer == Writer::Tensor
    }

    /// Returns whether the barriers are initialized outside of the region that allocates the
    /// memory.
    pub fn has_outer_barriers(&self) -> bool {
        self.is_in_region && self.has_full()
    }

    /// Returns whether an `mbarrier` signals empty slots.
    ///
    /// Unlike a block barrier, it lets one warpgroup run ahead of another.
    pub fn has_empty(&self) -> bool {
        self.partitions.is_some() || self.is_shared_by_warpgroups
    }

    /// Returns the number of arrivals that make a slot empty.
    pub fn empty_arrivals(&self) -> u32 {
        self.partitions.as_ref().map_or(self.num_warps, |partitions| partitions.consuming_warps)
    }

    /// Returns the number of arrivals that make the slots of a group of rings full.
    ///
    /// A tensor copy arrives once for each ring, and a warp once for its stores to each ring. A
    /// `copy_async` thread arrives once for all rings.
    pub fn full_arrivals(&self, rings: u32) -> u32 {
        let warps = self.partitions.as_ref().map_or(0, |partitions| partitions.producing_warps);
        match self.writer {
            Writer::Tensor => rings,
            Writer::Copies => warps * LANES,
            Writer::Stores => warps * rings,
        }
    }
}

pub type RingPlans = BTreeMap<Value, RingPlan>;

#[derive(Default)]
struct RingUses {
    writers: Vec<(Writer, Inst)>,
    is_async_read: bool,
    /// `acquire`, `publish` and the instructions that write.
    producing: Vec<Inst>,
    /// `take`, `release` and the instructions that read.
    consuming: Vec<Inst>,
}

/// Plans every ring of a kernel.
pub fn plan_rings(
    analysis: &SlotAnalysis<'_>,
    (num_warps, blocks): (u32, u32),
) -> Result<RingPlans, Box<Diagnostic>> {
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
        for (operand, value) in data.operands.iter().enumerate() {
            let ty = function.ty(*value);
            if !matches!(ty, Type::Ring(_) | Type::Empty(_) | Type::Full(_)) {
                continue;
            }
            let root = analysis.root(*value).expect("the verifier traces rings");
            record_use(uses.entry(root).or_default(), op, inst, operand);
        }
    });
    let mut plans = RingPlans::new();
    for (root, inst, buffer) in rings {
        let uses = uses.remove(&root).unwrap_or_default();
        let plan = plan_ring(analysis, root, buffer, &uses, (num_warps, blocks)).map_err(|message| {
            let text = format!("cannot lower the ring {}: {message}", analysis.text(root));
            Box::new(at(function, inst, Code::MalformedIr, text))
        })?;
        plans.insert(root, plan);
    }
    // If warpgroups share one ring of tensor copies, they share all such rings. A block barrier
    // would synchronize warpgroups that otherwise run independently.
    if plans.values().any(|plan| plan.is_shared_by_warpgroups) {
        for plan in plans.values_mut() {
            plan.is_shared_by_warpgroups |= plan.writer == Writer::Tensor && !plan.is_in_region;
        }
    }
    Ok(plans)
}

fn record_use(uses: &mut RingUses, op: &GpuOp, inst: Inst, operand: usize) {
    let writer = match op {
        GpuOp::LocalStore {} => Some(Writer::Stores),
        GpuOp::CopyAsync { .. } => Some(Writer::Copies),
        GpuOp::TensorFill {} => Some(Writer::Tensor),
        // tidy: wildcard because no other op writes to an acquired slot
        _ => None,
    };
    uses.writers.extend(writer.filter(|_| operand == 0).map(|writer| (writer, inst)));
    uses.is_async_read |=
        matches!(op, GpuOp::Wgmma { .. } | GpuOp::TensorStore {} | GpuOp::TensorReduce { .. });
    match op {
        GpuOp::Dealloc {} => {}
        GpuOp::Acquire {} | GpuOp::Publish {} => uses.producing.push(inst),
        _ if writer.is_some() => uses.producing.push(inst),
        // tidy: wildcard because all others take, read or release a full slot
        _ => uses.consuming.push(inst),
    }
}

fn plan_ring(
    analysis: &SlotAnalysis<'_>,
    root: Value,
    buffer: Buffer,
    uses: &RingUses,
    (num_warps, blocks): (u32, u32),
) -> Result<RingPlan, &'static str> {
    let writer = uses.writers.first().map_or(Writer::Stores, |(writer, _)| *writer);
    if uses.writers.iter().any(|(other, _)| *other != writer) {
        return Err("stores and copies fill its slots, or copies of two kinds");
    }
    if writer == Writer::Tensor {
        check_single_fills(analysis, uses)?;
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
    let partitions = find_partitions(analysis, root, uses, num_warps)?;
    let has_warpgroups = num_warps * blocks > WARPGROUP_WARPS;
    let is_in_region = analysis.block_of(root) != analysis.function.entry;
    // Another buffer may use the memory between two runs of the region. A block barrier ensures
    // that all warpgroups have finished with it.
    let is_shared_by_warpgroups =
        writer == Writer::Tensor && uses.is_async_read && has_warpgroups && !is_in_region;
    let is_async_read = uses.is_async_read;
    if partitions.is_some() && is_in_region {
        return Err(
            "its partitions need an mbarrier, which is initialized once, but its alloc is in a region",
        );
    }
    Ok(RingPlan {
        buffer,
        writer,
        is_async_read,
        is_shared_by_warpgroups,
        partitions,
        is_in_region,
        num_warps,
    })
}

/// Checks that one tensor copy fills each published slot, in the block of the `publish`.
///
/// The `mbarrier` of the slot expects the bytes of one copy.
fn check_single_fills(analysis: &SlotAnalysis<'_>, uses: &RingUses) -> Result<(), &'static str> {
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
        Err("exactly one tensor_fill must fill the slot of each publish, in the same block")
    }
}

fn find_partitions(
    analysis: &SlotAnalysis<'_>,
    root: Value,
    uses: &RingUses,
    num_warps: u32,
) -> Result<Option<RingPartitions>, &'static str> {
    let of = |insts: &[Inst]| -> Vec<Option<(Inst, usize)>> {
        let mut partitions: Vec<_> = insts.iter().map(|inst| analysis.partition(*inst)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    };
    let (producing, consuming) = (of(&uses.producing), of(&uses.consuming));
    if producing.iter().chain(&consuming).all(Option::is_none) {
        return Ok(None);
    }
    let &[Some((inst, producer))] = &producing[..] else {
        return Err("several partitions fill its slots, or all warps and a partition");
    };
    let mut consumers = Vec::new();
    for partition in consuming {
        match partition {
            Some((other, consumer)) if other == inst && consumer != producer => consumers.push(consumer),
            _ => return Err("all warps read its slots, or the partition that fills its slots reads them"),
        }
    }
    if analysis.block_of_inst(inst) != analysis.block_of(root) {
        return Err("its warp_specialize is not in the block of its alloc, so its phases would start again");
    }
    let Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) = &analysis.function.insts[inst].op else {
        return Err("no warp_specialize contains its uses");
    };
    let count = |partition: &usize| u32::try_from(warps[*partition]).unwrap_or(num_warps);
    let consuming_warps = consumers.iter().map(count).sum();
    if consuming_warps == 0 {
        return Err("no partition reads it");
    }
    Ok(Some(RingPartitions {
        specialize: inst,
        producer,
        producing_warps: count(&producer),
        consumers,
        consuming_warps,
    }))
}
