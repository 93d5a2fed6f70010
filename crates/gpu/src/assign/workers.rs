//! Makes partitions of the workers that a program starts (Gluon, `warp_specialize`).
//!
//! In tile IR, `start_workers` starts each worker in separate warps, and the kernel continues. In
//! the GPU dialect, the code of the kernel becomes the first partition of `warp_specialize`. Before
//! this op, all warps allocate the workers' shared memory, initialize its `mbarrier`s, and compute
//! the workers' scalars. All partitions wait for each other at `start_workers` and at
//! `join_workers`.

use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::{SmallVec, smallvec};
use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;
use tilewright_ir::{
    AsyncPhase, Block, BlockData, Effect, Inst, IntList, OpFamily, Operation, Value, Waiting,
};

use crate::passes::partition_barrier;
use crate::tile::legality::at;
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{Feature, GpuTarget, REGISTER_FILE, WARPGROUP_WARPS};
use tilewright_gpu_ir::{Function, GpuOp, MAX_WARPS, Module, Op};

/// The granularity and the limits of a thread's registers for `setmaxnreg`.
const REGISTER_STEP: u32 = 8;
const MIN_REGISTERS: u32 = 24;
const MAX_REGISTERS: u32 = 256;

/// The maximum number of partitions. Each partition has a named barrier (see
/// [`partition_barrier`]), and all partitions have one more.
const MAX_PARTITIONS: usize = tilewright_gpu_ir::MAX_PARTITIONS - 1;

/// The partitions of a kernel, in the order of the warps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionPlan {
    partitions: Vec<Partition>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Partition {
    warps: u32,
    /// The registers of a thread; 0 keeps the number.
    registers: u32,
    contents: Contents,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contents {
    /// The code of the kernel.
    Kernel,
    /// The worker with this index.
    Worker(usize),
    /// No code: these warps complete a warpgroup.
    Padding,
}

impl PartitionPlan {
    /// Plans the partitions for `own` warps of the kernel and these workers.
    ///
    /// Workers are in descending order of their warps, so each begins at a warpgroup or shares one.
    /// If workers request registers, unused warps complete the last warpgroups of the kernel and of
    /// the program. The kernel then gets the registers that the workers leave.
    ///
    /// # Errors
    /// Returns the reason why the workers cannot have these registers.
    fn new(own: u32, warps: &[i64], registers: &[i64]) -> Result<Self, String> {
        let mut order: Vec<usize> = (0..warps.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(warps[*index]));
        let mut partitions = vec![Partition { warps: own, registers: 0, contents: Contents::Kernel }];
        let mut end = own;
        let pad = |partitions: &mut Vec<Partition>, end: &mut u32, alignment: u32| {
            let missing = end.next_multiple_of(alignment) - *end;
            if missing > 0 {
                partitions.push(Partition { warps: missing, registers: 0, contents: Contents::Padding });
                *end += missing;
            }
        };
        let changes_registers = !registers.is_empty();
        if changes_registers {
            pad(&mut partitions, &mut end, WARPGROUP_WARPS);
        }
        for index in order {
            let count = warps[index] as u32;
            pad(&mut partitions, &mut end, count.min(WARPGROUP_WARPS));
            let requested = if changes_registers { registers[index] as u32 } else { 0 };
            let requested = requested.next_multiple_of(REGISTER_STEP);
            let registers = if requested == 0 { 0 } else { requested.clamp(MIN_REGISTERS, MAX_REGISTERS) };
            partitions.push(Partition { warps: count, registers, contents: Contents::Worker(index) });
            end += count;
        }
        if changes_registers {
            pad(&mut partitions, &mut end, WARPGROUP_WARPS);
        }
        let mut plan = Self { partitions };
        if changes_registers {
            plan.share_registers()?;
        }
        Ok(plan)
    }

    /// Gives a warpgroup's partitions equal registers, and the kernel the rest.
    fn share_registers(&mut self) -> Result<(), String> {
        let mut first = 0;
        let mut of_group = vec![0; (self.warps() / WARPGROUP_WARPS) as usize];
        for partition in &self.partitions {
            let groups = first / WARPGROUP_WARPS..(first + partition.warps).div_ceil(WARPGROUP_WARPS);
            for group in groups {
                let registers: &mut u32 = &mut of_group[group as usize];
                *registers = (*registers).max(partition.registers);
            }
            first += partition.warps;
        }
        let own = self.partitions[0].warps.div_ceil(WARPGROUP_WARPS) as usize;
        let each = REGISTER_FILE / (LANES * self.warps());
        let all = each / REGISTER_STEP * REGISTER_STEP * of_group.len() as u32;
        let taken: u32 = of_group[own..].iter().sum();
        let rest = all.saturating_sub(taken) / own as u32 / REGISTER_STEP * REGISTER_STEP;
        let rest = rest.min(MAX_REGISTERS);
        if rest < MIN_REGISTERS {
            return Err(format!(
                "the warpgroups of the workers take {taken} of the {all} registers that each thread of \
                 every warpgroup has in total, so the default partition has fewer than {MIN_REGISTERS}"
            ));
        }
        let mut first = 0;
        for partition in &mut self.partitions {
            let group = (first / WARPGROUP_WARPS) as usize;
            partition.registers = if group < own { rest } else { of_group[group] };
            first += partition.warps;
        }
        Ok(())
    }

    fn warps(&self) -> u32 {
        self.partitions.iter().map(|partition| partition.warps).sum()
    }

    /// Returns the barrier op at which all partitions with code wait for each other.
    pub fn barrier_of_all(&self) -> Op {
        let with_code = self.partitions.iter().filter(|partition| partition.contents != Contents::Padding);
        let warps: u32 = with_code.map(|partition| partition.warps).sum();
        let barrier = partition_barrier(self.partitions.len());
        GpuOp::NamedBarrier { barrier, threads: warps * LANES }.into()
    }
}

#[derive(Default)]
pub struct Workers {
    /// The number of warps of the worker that computes each value; 0 for other values.
    pub warps: SecondaryMap<Value, u32>,
    /// The number of warps of each instruction's worker; 0 for other instructions.
    pub warps_at: SecondaryMap<Inst, u32>,
    /// The partitions; `None` for a kernel without workers.
    pub plan: Option<PartitionPlan>,
}

/// Finds the workers of a kernel.
///
/// # Errors
/// If the kernel starts workers twice, or in a loop or branch, or has too many warps or partitions.
/// The call also fails if the workers cannot have the requested registers.
pub fn find(function: &ir::Function, target: GpuTarget, own: u32) -> Result<Workers, Box<Diagnostic>> {
    let mut starts = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if let ir::Op::StartWorkers { .. } = function.insts[inst].op {
            starts.push(inst);
        }
    });
    let misuse = |inst: Inst, message: &str, hint: &str| {
        Err(Box::new(at(function, inst, Code::PartitionMisuse, message).hint(hint)))
    };
    let Some(first) = starts.first().copied() else { return Ok(Workers::default()) };
    if let Some(second) = starts.get(1) {
        let hint = "give the first one all workers, and let them wait for `mbarrier`s";
        return misuse(*second, "a kernel calls `warp_specialize` twice", hint);
    }
    if function.position_in(function.entry, first).is_none() {
        let hint = "call it before the loop, and put the loop into each partition";
        return misuse(first, "`warp_specialize` is in a loop or a branch", hint);
    }
    let ir::Op::StartWorkers { warps, registers } = &function.insts[first].op else {
        return Ok(Workers::default());
    };
    let without = "leave out `worker_num_regs`, or request fewer registers";
    let changes_registers = [Feature::Wgmma, Feature::Tcgen05].map(|each| target.features.has(each));
    if !registers.is_empty() && changes_registers == [false; 2] {
        return misuse(first, "this GPU does not change the registers of running warps", without);
    }
    let plan = match PartitionPlan::new(own, warps, registers) {
        Ok(plan) => plan,
        Err(reason) => {
            let message = format!("`worker_num_regs` cannot be obeyed: {reason}");
            return misuse(first, &message, without);
        }
    };
    if plan.warps() > MAX_WARPS {
        let message = format!(
            "the partitions need {} warps with those that complete warpgroups, but a program has at most {MAX_WARPS}",
            plan.warps()
        );
        return misuse(first, &message, "use fewer warps, or workers of four warps");
    }
    if plan.partitions.len() > MAX_PARTITIONS {
        let message = format!("{} partitions, but there are at most {MAX_PARTITIONS}", plan.partitions.len());
        return misuse(first, &message, "join workers");
    }
    let mut found = Workers { plan: Some(plan), ..Workers::default() };
    for (region, count) in function.insts[first].regions.iter().zip(warps) {
        found.add_warps(function, *region, *count as u32);
    }
    Ok(found)
}

impl Workers {
    fn add_warps(&mut self, function: &ir::Function, block: Block, count: u32) {
        for value in &function.blocks[block].parameters {
            self.warps[*value] = count;
        }
        for inst in &function.blocks[block].insts {
            self.warps_at[*inst] = count;
            let data = &function.insts[*inst];
            for value in &data.results {
                self.warps[*value] = count;
            }
            for region in &data.regions {
                self.add_warps(function, *region, count);
            }
        }
    }
}

/// Makes the kernel's code the first partition of a `warp_specialize`, which replaces
/// `start_workers`.
///
/// # Errors
/// If a worker uses a scalar that only the warps of the kernel can compute.
pub fn enclose(program: &mut Module, plan: &PartitionPlan) -> Result<(), Box<Diagnostic>> {
    program.header.num_warps = plan.warps();
    let entry = program.entry;
    let function = &mut program.functions[entry];
    let is_start = |inst: &Inst| matches!(function.insts[*inst].op, Op::Tile(ir::Op::StartWorkers { .. }));
    let start = function.blocks[function.entry].insts.iter().copied().find(is_start);
    let start = start.expect("the kernel with the plan starts workers");
    let mut outside = Outside::new(function, start);
    outside.add_captured(function, start)?;
    let (mut before, kernel) = outside.divide(function, start);
    // All threads of the cluster participate in its barriers, so they are outside of partitions.
    let is_barrier = |inst: &Inst| {
        matches!(function.insts[*inst].op, Op::Gpu(GpuOp::ClusterArrive {} | GpuOp::ClusterWait {}))
    };
    let (of_cluster, kernel): (Vec<Inst>, Vec<Inst>) = kernel.into_iter().partition(is_barrier);
    let is_early = |inst: &Inst| outside.before.contains(inst);
    let (early, late): (Vec<Inst>, Vec<Inst>) = of_cluster.into_iter().partition(is_early);
    before.extend(early);
    let regions = std::mem::take(&mut function.insts[start].regions);
    let location = function.insts[start].location;
    let (mut own, mut last) = (kernel, late);
    last.extend(own.pop());
    let mut blocks: SmallVec<[Block; 2]> = smallvec![];
    for partition in &plan.partitions {
        let block = match partition.contents {
            Contents::Worker(index) => regions[index],
            Contents::Kernel | Contents::Padding => function.blocks.push(BlockData::default()),
        };
        if partition.contents == Contents::Kernel {
            function.blocks[block].insts = std::mem::take(&mut own);
        }
        if !matches!(partition.contents, Contents::Worker(_)) {
            let op = Op::Tile(ir::Op::Yield {});
            let end = function.create_inst(op, smallvec![], smallvec![], [], location);
            function.blocks[block].insts.push(end);
        }
        blocks.push(block);
    }
    for (index, (partition, block)) in plan.partitions.iter().zip(&blocks).enumerate() {
        let barrier = partition_barrier(index);
        let op = GpuOp::NamedBarrier { barrier, threads: partition.warps * LANES };
        let mut barriers = Vec::new();
        function.walk(*block, &mut |inst| {
            if let Op::Tile(ir::Op::Barrier {}) = function.insts[inst].op {
                barriers.push(inst);
            }
        });
        for inst in barriers {
            function.insts[inst].op = op.clone().into();
        }
    }
    let warps: IntList = plan.partitions.iter().map(|partition| i64::from(partition.warps)).collect();
    let registers = plan.partitions.iter().map(|partition| i64::from(partition.registers)).collect();
    function.insts[start].op = GpuOp::WarpSpecialize { warps, registers }.into();
    function.insts[start].regions = blocks;
    let all = before.into_iter().chain([start]).chain(last).collect();
    let entry = function.entry;
    function.blocks[entry].insts = all;
    Ok(())
}

/// The instructions of the entry block that all warps execute before the partitions.
struct Outside {
    /// The instructions before the start of the workers.
    before: Vec<Inst>,
    found: EntitySet<Inst>,
}

impl Outside {
    fn new(function: &Function, start: Inst) -> Self {
        let insts = &function.blocks[function.entry].insts;
        let before = insts.iter().copied().take_while(|inst| *inst != start).collect();
        Self { before, found: EntitySet::new() }
    }

    fn add_captured(&mut self, function: &Function, start: Inst) -> Result<(), Box<Diagnostic>> {
        let mut uses = Vec::new();
        for region in &function.insts[start].regions {
            function.walk(*region, &mut |inst| {
                uses.extend(function.insts[inst].operands.iter().map(|value| (*value, inst)));
            });
        }
        for (value, user) in uses {
            self.add_value(function, value, user)?;
        }
        // The `mbarrier`s are initialized before the partitions that use them. An instruction such
        // as a loop may initialize several `mbarrier`s, so their other initializations move, too.
        loop {
            let moved = self.before.iter().copied().find(|inst| {
                !self.found.contains(*inst)
                    && self.manages(function, *inst, |op| matches!(op, Op::Gpu(GpuOp::MbarrierInit { .. })))
            });
            let Some(inst) = moved else { break };
            self.add(function, inst, inst)?;
        }
        let is_end = |op: &Op| matches!(op, Op::Gpu(GpuOp::MbarrierInvalidate {}));
        if let Some(inst) = self.before.iter().copied().find(|inst| self.manages(function, *inst, is_end)) {
            let message = "an mbarrier that workers use ends before `warp_specialize`";
            let hint = "let the workers use another mbarrier, which is initialized once";
            return Err(Box::new(at(function, inst, Code::PartitionMisuse, message).hint(hint)));
        }
        Ok(())
    }

    /// Returns whether an instruction satisfies `is_op` and accesses an `mbarrier` that all warps
    /// allocate. Also checks the instructions in its regions.
    fn manages(&self, function: &Function, inst: Inst, is_op: impl Fn(&Op) -> bool) -> bool {
        let mut found = false;
        each_within(function, inst, &mut |inner| {
            let data = &function.insts[inner];
            let root = data.operands.first().and_then(|memory| function.defining_inst(*memory));
            found |= is_op(&data.op) && root.is_some_and(|root| self.found.contains(root));
        });
        found
    }

    fn add_value(&mut self, function: &Function, value: Value, user: Inst) -> Result<(), Box<Diagnostic>> {
        match function.defining_inst(value) {
            Some(inst) if self.before.contains(&inst) => self.add(function, inst, user),
            _ => Ok(()),
        }
    }

    /// Adds an instruction, and the instructions whose results it uses.
    fn add(&mut self, function: &Function, inst: Inst, user: Inst) -> Result<(), Box<Diagnostic>> {
        if !self.found.insert(inst) {
            return Ok(());
        }
        let mut operands = Vec::new();
        let mut is_possible = true;
        let is_first_access = !self.may_change_memory_before(function, inst);
        each_within(function, inst, &mut |inner| {
            let data = &function.insts[inner];
            operands.extend(data.operands.iter().copied());
            let is_tile = |value: &Value| {
                let ty = function.ty(*value);
                ty.as_memory().is_none() && ty.layout().is_some()
            };
            let has_tiles = data.operands.iter().chain(&data.results).any(is_tile);
            let info = data.op.info();
            is_possible &= match info.effect {
                Effect::Pure | Effect::Terminator => !has_tiles,
                Effect::Control => info.family != OpFamily::Partitions,
                Effect::Read => !has_tiles && info.family == OpFamily::Load && is_first_access,
                Effect::Write => matches!(
                    data.op,
                    Op::Gpu(GpuOp::Alloc { .. } | GpuOp::MbarrierInit { .. } | GpuOp::FenceProxy { .. })
                        | Op::Tile(ir::Op::Barrier {} | ir::Op::Machine { .. })
                ),
            };
        });
        if !is_possible {
            let message = "a worker uses a value that the warps of the kernel compute from a tile, \
                           or read after a store or a wait";
            let hint = "pass it through shared memory, or let the worker compute it";
            return Err(Box::new(at(function, user, Code::PartitionMisuse, message).hint(hint)));
        }
        for value in operands {
            self.add_value(function, value, user)?;
        }
        Ok(())
    }

    /// Returns whether global memory may change between the entry and an instruction.
    fn may_change_memory_before(&self, function: &Function, inst: Inst) -> bool {
        let mut found = false;
        for other in self.before.iter().take_while(|other| **other != inst) {
            each_within(function, *other, &mut |inner| {
                let op = &function.insts[inner].op;
                let info = op.info();
                found |= matches!(info.family, OpFamily::Store | OpFamily::Atomic)
                    || !matches!(info.waiting, Waiting::Never | Waiting::Reads)
                    || info.phase == AsyncPhase::StartsTensorStore
                    || matches!(op, Op::Tile(ir::Op::Dependency { .. }));
            });
        }
        found
    }

    /// Divides the entry block into instructions of all warps and of the kernel's warps.
    fn divide(&self, function: &mut Function, start: Inst) -> (Vec<Inst>, Vec<Inst>) {
        let insts = function.blocks[function.entry].insts.clone();
        let (mut before, mut kernel) = (Vec::new(), Vec::new());
        let mut has_init = false;
        let mut previous_is_init = false;
        for inst in insts {
            let data = &function.insts[inst];
            // One fence and one barrier follow all initializations, so drop those after each.
            let is_sync = matches!(data.op, Op::Gpu(GpuOp::FenceProxy { .. }) | Op::Tile(ir::Op::Barrier {}));
            if previous_is_init && is_sync {
                continue;
            }
            previous_is_init =
                self.found.contains(inst) && matches!(data.op, Op::Gpu(GpuOp::MbarrierInit { .. }));
            has_init |= previous_is_init;
            // The memory that workers use stays allocated to the end of the kernel.
            let is_end = matches!(data.op, Op::Gpu(GpuOp::Dealloc {}))
                && function.defining_inst(data.operands[0]).is_some_and(|root| self.found.contains(root));
            if is_end || inst == start {
                continue;
            }
            if self.found.contains(inst) { before.push(inst) } else { kernel.push(inst) }
        }
        if has_init {
            let location = function.insts[start].location;
            for op in [GpuOp::FenceProxy {}.into(), Op::Tile(ir::Op::Barrier {})] {
                before.push(function.create_inst(op, smallvec![], smallvec![], [], location));
            }
        }
        (before, kernel)
    }
}

fn each_within(function: &Function, inst: Inst, each: &mut impl FnMut(Inst)) {
    each(inst);
    for region in &function.insts[inst].regions {
        function.walk(*region, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(own: u32, warps: &[i64], registers: &[i64]) -> Vec<(u32, u32)> {
        let plan = PartitionPlan::new(own, warps, registers).unwrap();
        plan.partitions.iter().map(|partition| (partition.warps, partition.registers)).collect()
    }

    #[test]
    fn large_workers_come_first() {
        assert_eq!(plan(4, &[1, 4, 2], &[]), [(4, 0), (4, 0), (2, 0), (1, 0)]);
        assert_eq!(plan(1, &[1, 4], &[]), [(1, 0), (3, 0), (4, 0), (1, 0)]);
    }

    #[test]
    fn a_warpgroup_has_one_number_of_registers() {
        assert_eq!(plan(4, &[1, 1], &[24, 30]), [(4, 256), (1, 32), (1, 32), (2, 32)]);
        assert_eq!(plan(4, &[4, 1], &[240, 24]), [(4, 240), (4, 240), (1, 24), (3, 24)]);
        assert_eq!(plan(8, &[4], &[24]), [(8, 240), (4, 24)]);
        // Unused warps also complete the warpgroup of the kernel.
        assert_eq!(plan(2, &[1], &[24]), [(2, 256), (2, 256), (1, 24), (3, 24)]);
    }

    #[test]
    fn registers_that_workers_cannot_have_are_an_error() {
        let error = PartitionPlan::new(4, &[8, 4], &[256, 256]).unwrap_err();
        assert!(error.contains("take 768 of the 512 registers"), "{error}");
    }
}
