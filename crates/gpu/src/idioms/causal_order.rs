//! Causal order: the longest programs start first.
//!
//! The trip count of causal attention grows with the program id along axis 0. A GPU starts blocks
//! in the order of their ids. So the longest programs would start last, and most multiprocessors
//! would wait for them. If the longest programs start first, all programs end at about the same
//! time (Graham, "Bounds on multiprocessing timing anomalies", 1969). Programs cannot observe the
//! order, unless one waits for another. A kernel with such programs keeps its order.
//!
//! The length of a program is estimated by the trip counts of its loops with dots. The analysis
//! follows sums, products with constants, quotients, minima and maxima to the program id.

use tilewright_ir::{
    Block, Definition, ElementwiseFn, Function, Inst, Module, Op, OpFamily, Value, Wait, constant_int,
    may_wait,
};

use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::ProgramOrder;

/// The maximum number of definitions that the analysis of a loop bound visits.
const MAX_STEPS: u32 = 24;

/// The change of an integer from one program along axis 0 to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slope {
    By(i128),
    Falls,
    Grows,
}

/// Returns the order in which the programs of a kernel should start.
pub fn program_order(module: &Module) -> ProgramOrder {
    if may_wait(module) != Wait::Never {
        return ProgramOrder::AsLaunched;
    }
    let kernel = module.kernel();
    let mut loops = Vec::new();
    collect_dot_loops(kernel, kernel.entry, &mut loops);
    let slopes = loops.iter().map(|inst| trip_count_slope(kernel, *inst));
    let Some(slope) = slopes.reduce(|one, other| sum(one?, other?)).flatten() else {
        return ProgramOrder::AsLaunched;
    };
    let (order, longest) = match slope {
        Slope::By(0) => return ProgramOrder::AsLaunched,
        slope if slope.falls() => (ProgramOrder::AscendingIds, "first"),
        _ => (ProgramOrder::DescendingIds, "last"),
    };
    let because = || {
        let reason = "their loops with dots have the most iterations, and no program waits for another";
        RemarkReason::done(format!("the {longest} programs along axis 0 start first"), reason)
    };
    remarks::about("program_order", kernel, loops[0], || "loop".into(), because);
    order
}

fn collect_dot_loops(kernel: &Function, block: Block, loops: &mut Vec<Inst>) {
    for &inst in &kernel.blocks[block].insts {
        let data = &kernel.insts[inst];
        if matches!(data.op, Op::For { .. }) {
            if has_dot(kernel, data.regions[0]) {
                loops.push(inst);
            }
        } else {
            for region in &data.regions {
                collect_dot_loops(kernel, *region, loops);
            }
        }
    }
}

fn has_dot(kernel: &Function, block: Block) -> bool {
    kernel.blocks[block].insts.iter().any(|inst| {
        let data = &kernel.insts[*inst];
        data.op.family() == OpFamily::Dot || data.regions.iter().any(|region| has_dot(kernel, *region))
    })
}

/// Returns the slope of the distance between a loop's bounds. The trip count has the same
/// direction. Returns `None` if the slope is unknown, or if the step is not a positive constant.
fn trip_count_slope(kernel: &Function, inst: Inst) -> Option<Slope> {
    let [lower, upper, step, ..] = kernel.insts[inst].operands[..] else { return None };
    let step = constant_int(kernel, step).filter(|step| *step > 0)?;
    let mut steps = 0;
    let slope = sum(slope(kernel, upper, &mut steps)?, slope(kernel, lower, &mut steps)?.times(-1)?)?;
    // Trip counts of persistent programs, which process tiles in turn, differ by at most one. This
    // difference does not count.
    Some(if matches!(slope, Slope::By(by) if by.abs() < step) { Slope::By(0) } else { slope })
}

impl Slope {
    fn falls(self) -> bool {
        matches!(self, Slope::Falls | Slope::By(..0))
    }

    fn times(self, factor: i128) -> Option<Self> {
        Some(match (self, factor) {
            (Slope::By(by), _) => Slope::By(by.checked_mul(factor)?),
            (_, 0) => Slope::By(0),
            (slope, _) if slope.falls() == (factor > 0) => Slope::Falls,
            _ => Slope::Grows,
        })
    }
}

fn sum(one: Slope, other: Slope) -> Option<Slope> {
    match (one, other) {
        (Slope::By(one), Slope::By(other)) => Some(Slope::By(one.checked_add(other)?)),
        (Slope::By(0), slope) | (slope, Slope::By(0)) => Some(slope),
        _ => monotonic(one, other),
    }
}

/// Returns the slope of a monotonic function of two integers, such as their minimum.
///
/// Only the direction is exact. For a minimum or a maximum, the caller drops the amount
/// ([`without_amount`]).
fn monotonic(one: Slope, other: Slope) -> Option<Slope> {
    match (one, other) {
        (Slope::By(0), slope) | (slope, Slope::By(0)) => Some(slope),
        _ if one == other => Some(one),
        _ if one.falls() != other.falls() => None,
        _ if one.falls() => Some(Slope::Falls),
        _ => Some(Slope::Grows),
    }
}

/// Returns the slope of a scalar, if it is known.
fn slope(kernel: &Function, value: Value, steps: &mut u32) -> Option<Slope> {
    *steps += 1;
    if *steps > MAX_STEPS {
        return None;
    }
    let inst = match kernel.values[value].definition {
        Definition::Parameter(block, _) => return (block == kernel.entry).then_some(Slope::By(0)),
        Definition::Result(inst, _) => inst,
    };
    let data = &kernel.insts[inst];
    let mut of = |operand: usize| slope(kernel, *data.operands.get(operand)?, steps);
    match &data.op {
        Op::Constant { .. } | Op::NumPrograms { .. } => Some(Slope::By(0)),
        Op::ProgramId { axis: 0 } => Some(Slope::By(1)),
        Op::Cast { .. } => of(0),
        Op::Elementwise { function } => {
            let (one, other) = (of(0)?, of(1)?);
            let factor = |operand: usize| constant_int(kernel, data.operands[operand]);
            match function {
                ElementwiseFn::Add => sum(one, other),
                ElementwiseFn::Sub => sum(one, other.times(-1)?),
                ElementwiseFn::Min | ElementwiseFn::Max => Some(without_amount(monotonic(one, other)?)),
                _ if (one, other) == (Slope::By(0), Slope::By(0)) => Some(Slope::By(0)),
                ElementwiseFn::Mul => match (factor(0), factor(1)) {
                    (_, Some(factor)) => one.times(factor),
                    (Some(factor), _) => other.times(factor),
                    _ => None,
                },
                ElementwiseFn::IntDiv => Some(without_amount(one.times(factor(1)?.signum())?)),
                // tidy: wildcard because no slope is derived for other functions
                _ => None,
            }
        }
        // tidy: wildcard because no slope is derived for other ops
        _ => None,
    }
}

/// Returns the direction of a slope whose amount differs from program to program.
fn without_amount(slope: Slope) -> Slope {
    match slope {
        Slope::By(0) => slope,
        _ if slope.falls() => Slope::Falls,
        _ => Slope::Grows,
    }
}
