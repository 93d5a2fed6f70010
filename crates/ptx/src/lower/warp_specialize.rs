//! Warp specialization: branches on the warp id, and registers that move between partitions. PTX
//! ISA, "Miscellaneous Instructions: `setmaxnreg`".
//!
//! By `.maxnreg`, threads start with the average register count of the partitions. Partitions with
//! fewer registers release what the others request. If code follows, every partition returns to the
//! average.

use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::{GpuOp, Op};
use tilewright_ir::{self as ir, Inst};

use super::builder::{Scalar, Width};
use super::control::jump;
use super::{LANES, Lowered, Lowering, Warps};
use crate::isa::{self, Comparison, LabelId, RegisterCountChange, ScalarType};

/// The granularity of register counts.
const STEP: u32 = 8;

/// A partition: its warps, and its number of registers per thread. 0 keeps the number at the start.
#[derive(Clone, Copy)]
struct Partition {
    warps: Warps,
    registers: u32,
}

/// Returns the registers of a thread before and after the partitions. They are the average of the
/// set numbers by warps, rounded up to a multiple of [`STEP`]. Returns `None` if no partition sets
/// a number.
fn common_registers(partitions: &[Partition]) -> Option<u32> {
    let changing = partitions.iter().filter(|partition| partition.registers != 0);
    let (sum, warps) = changing.fold((0, 0), |(sum, warps), partition| {
        (sum + partition.registers * partition.warps.count, warps + partition.warps.count)
    });
    (warps > 0).then(|| sum.div_ceil(warps).next_multiple_of(STEP))
}

/// Joins partitions of one warpgroup, which must have equal registers. An error names the warps of
/// a partition with another number.
fn warpgroups(partitions: &[Partition]) -> Result<Vec<Partition>, Warps> {
    let mut groups: Vec<Partition> = Vec::new();
    for &partition in partitions {
        match groups.last_mut() {
            Some(last) if last.registers != 0 && !last.warps.count.is_multiple_of(4) => {
                if last.registers != partition.registers {
                    return Err(last.warps);
                }
                last.warps.count += partition.warps.count;
            }
            _ => groups.push(partition),
        }
    }
    let is_group = |warps: Warps| warps.first.is_multiple_of(4) && warps.count.is_multiple_of(4);
    match groups.iter().find(|group| group.registers != 0 && !is_group(group.warps)) {
        Some(group) => Err(group.warps),
        None => Ok(groups),
    }
}

impl Lowering<'_> {
    pub(super) fn lower_warp_specialize(&mut self, inst: Inst, warps: &[i64], registers: &[i64]) -> Lowered {
        let mut first = 0;
        let partitions: Vec<Partition> = warps
            .iter()
            .zip(registers)
            .map(|(&count, &registers)| {
                let warps = Warps { first, count: count as u32 };
                first += warps.count;
                Partition { warps, registers: registers as u32 }
            })
            .collect();
        let groups = match warpgroups(&partitions) {
            Ok(groups) => groups,
            Err(Warps { first, count }) => {
                let what = format!("a register count for {count} warps from warp {first} on, no warpgroups,");
                return Err(self.unsupported(inst, &what));
            }
        };
        let common = common_registers(&partitions);
        if common.is_some() {
            if !self.has(Feature::Tcgen05) {
                self.require(inst, Feature::Wgmma)?;
            }
            self.builder.function.directives.max_registers = common;
        }
        // All warps of a warpgroup execute the same `setmaxnreg`.
        let shares_group = groups.len() < partitions.len();
        if let Some(common) = common.filter(|_| shares_group) {
            self.emit_partitions(&groups, |lowering, _, group| {
                lowering.change_registers(common, group.registers);
                Ok(())
            })?;
        }
        self.emit_partitions(&partitions, |lowering, number, partition| {
            if let Some(common) = common.filter(|_| !shares_group) {
                lowering.change_registers(common, partition.registers);
            }
            let region = lowering.kernel.insts[inst].regions[number];
            let around = std::mem::replace(&mut lowering.warps, partition.warps);
            let lowered = lowering.block(region);
            lowering.warps = around;
            lowered
        })?;
        // A group's warps synchronize between two changes of their registers.
        self.wait();
        if let Some(common) = common.filter(|_| self.has_code_after(inst)) {
            self.emit_partitions(&groups, |lowering, _, group| {
                lowering.change_registers(group.registers, common);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Emits the code of each partition, with branches by the warp id.
    fn emit_partitions(
        &mut self,
        partitions: &[Partition],
        mut each: impl FnMut(&mut Self, usize, Partition) -> Lowered,
    ) -> Lowered {
        let end = self.builder.label("together");
        for (number, &partition) in partitions.iter().enumerate() {
            let is_last = number + 1 == partitions.len();
            let next = if is_last { end } else { self.builder.label("partition") };
            if !is_last {
                self.leave_partition(partition, next);
            }
            each(self, number, partition)?;
            if !is_last {
                self.builder.emit(isa::Bra { uniform: true, ..jump(end) });
            }
            self.builder.place(next);
        }
        Ok(())
    }

    /// Emits a jump to `next` for the warps after those of a partition.
    fn leave_partition(&mut self, partition: Partition, next: LabelId) {
        let after = (partition.warps.first + partition.warps.count) * LANES;
        let thread = self.thread();
        let is_after =
            self.builder.compare(Width::B32, false, Comparison::Ge, thread, Scalar::constant(after.into()));
        let guard = self.builder.predicate(is_after);
        self.builder.emit_if(Some(guard), isa::Bra { uniform: true, ..jump(next) });
    }

    fn change_registers(&mut self, from: u32, to: u32) {
        if from == 0 || to == 0 || from == to {
            return;
        }
        let change = if to > from { RegisterCountChange::Increase } else { RegisterCountChange::Decrease };
        self.builder.emit(isa::Setmaxnreg { change, ty: ScalarType::U32, count: i64::from(to).into() });
    }

    /// Returns whether code after `inst` needs registers: any op but `dealloc` and `return`.
    fn has_code_after(&self, inst: Inst) -> bool {
        let holds = |block: &&ir::BlockData| block.insts.contains(&inst);
        let block = self.kernel.blocks.values().find(holds).expect("an instruction is in a block");
        let after = block.insts.iter().skip_while(|other| **other != inst).skip(1);
        after.into_iter().any(|&other| {
            !matches!(self.kernel.insts[other].op, Op::Gpu(GpuOp::Dealloc {}) | Op::Tile(ir::Op::Return {}))
        })
    }
}
