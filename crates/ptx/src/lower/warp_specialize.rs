//! Warps with roles: branches on the number of the warp, and registers given from one role to another. PTX ISA,
//! "Miscellaneous Instructions: `setmaxnreg`".
//!
//! The kernel begins with as many registers for each thread as the roles have on the average, which `.maxnreg` asks for: so
//! what one role gives back is what the other takes. Where code follows, every role returns to that number.

use tilewright_gpu_ir::Feature;
use tilewright_gpu_ir::{GpuOp, Op};
use tilewright_ir::{self as ir, Inst};

use super::builder::{Scalar, Width};
use super::control::jump;
use super::{LANES, Lowered, Lowering, Warps};
use crate::isa::{self, Comparison, LabelId, RegisterCountChange, ScalarType};

/// Registers are given away in steps of so many.
const STEP: u32 = 8;

/// A role: its warps, and the registers of a thread, if they change.
#[derive(Clone, Copy)]
struct Role {
    warps: Warps,
    registers: u32,
}

/// The registers of a thread before and behind the roles; none if no role changes them.
fn common_registers(roles: &[Role]) -> Option<u32> {
    let changing = roles.iter().filter(|role| role.registers != 0);
    let (sum, warps) = changing.fold((0, 0), |(sum, warps), role| {
        (sum + role.registers * role.warps.count, warps + role.warps.count)
    });
    (warps > 0).then(|| sum.div_ceil(warps).next_multiple_of(STEP))
}

impl Lowering<'_> {
    pub(super) fn lower_warp_specialize(&mut self, inst: Inst, warps: &[i64], registers: &[i64]) -> Lowered {
        let mut first = 0;
        let roles: Vec<Role> = warps
            .iter()
            .zip(registers)
            .map(|(&count, &registers)| {
                let warps = Warps { first, count: count as u32 };
                first += warps.count;
                Role { warps, registers: registers as u32 }
            })
            .collect();
        let is_group = |warps: Warps| warps.first.is_multiple_of(4) && warps.count.is_multiple_of(4);
        if let Some(Role { warps, .. }) =
            roles.iter().find(|role| role.registers != 0 && !is_group(role.warps))
        {
            let Warps { first, count } = *warps;
            let what = format!("a change of the registers of {count} warps from {first} on, no warpgroups,");
            return Err(self.unsupported(inst, &what));
        }
        let common = common_registers(&roles);
        if common.is_some() {
            self.require(inst, Feature::Wgmma)?;
            self.builder.function.directives.max_registers = common;
        }
        self.in_roles(&roles, |lowering, number, role| {
            if let Some(common) = common {
                lowering.change_registers(common, role.registers);
            }
            let region = lowering.kernel.insts[inst].regions[number];
            let around = std::mem::replace(&mut lowering.warps, role.warps);
            let lowered = lowering.block(region);
            lowering.warps = around;
            lowered
        })?;
        // Also what the warps of a group have to do between two changes of their registers.
        self.wait();
        if let Some(common) = common.filter(|_| self.goes_on_behind(inst)) {
            self.in_roles(&roles, |lowering, _, role| {
                lowering.change_registers(role.registers, common);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Has each role do something.
    fn in_roles(
        &mut self,
        roles: &[Role],
        mut each: impl FnMut(&mut Self, usize, Role) -> Lowered,
    ) -> Lowered {
        let end = self.builder.label("together");
        for (number, &role) in roles.iter().enumerate() {
            let is_last = number + 1 == roles.len();
            let next = if is_last { end } else { self.builder.label("role") };
            if !is_last {
                self.leave_role(role, next);
            }
            each(self, number, role)?;
            if !is_last {
                self.builder.emit(isa::Bra { uniform: true, ..jump(end) });
            }
            self.builder.place(next);
        }
        Ok(())
    }

    /// Has the warps behind those of a role go on elsewhere.
    fn leave_role(&mut self, role: Role, next: LabelId) {
        let behind = (role.warps.first + role.warps.count) * LANES;
        let thread = self.thread();
        let is_behind =
            self.builder.compare(Width::B32, false, Comparison::Ge, thread, Scalar::constant(behind.into()));
        let guard = self.builder.predicate(is_behind);
        self.builder.emit_if(Some(guard), isa::Bra { uniform: true, ..jump(next) });
    }

    fn change_registers(&mut self, from: u32, to: u32) {
        if from == 0 || to == 0 || from == to {
            return;
        }
        let change = if to > from { RegisterCountChange::Increase } else { RegisterCountChange::Decrease };
        self.builder.emit(isa::Setmaxnreg { change, ty: ScalarType::U32, count: i64::from(to).into() });
    }

    /// Whether code follows that may need as many registers as there were before.
    fn goes_on_behind(&self, inst: Inst) -> bool {
        let holds = |block: &&ir::BlockData| block.insts.contains(&inst);
        let block = self.kernel.blocks.values().find(holds).expect("an instruction is in a block");
        let behind = block.insts.iter().skip_while(|other| **other != inst).skip(1);
        behind.into_iter().any(|&other| {
            !matches!(self.kernel.insts[other].op, Op::Gpu(GpuOp::Dealloc {}) | Op::Tile(ir::Op::Return {}))
        })
    }
}
