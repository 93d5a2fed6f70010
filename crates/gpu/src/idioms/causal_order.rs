//! Causal order: the programs that take longest begin first.
//!
//! The loop of causal attention ends at the diagonal, so its trip count grows with the index of the program along the first axis.
//! Blocks begin in the order of their indices: the longest programs are among the last to begin, and most multiprocessors wait for
//! them. Begun in the order of their length they end together (R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969).
//! Programs do not know in which order they begin; programs that may wait for each other keep theirs.
//!
//! The time of a program is estimated by the trip counts of its loops with dots: whether they grow or fall with the index of the
//! program along the first axis, as far as sums, products with constants, quotients, minima and maxima tell.

use tilewright_ir::{
    Block, Definition, ElementwiseFn, Function, Inst, Module, Op, OpFamily, Value, Wait, constant_int,
    may_wait,
};

use crate::remarks::{self, Because};
use tilewright_gpu_ir::ProgramOrder;

/// How far definitions are followed.
const MOST_STEPS: u32 = 24;

/// How a number changes from one program along the first axis to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slope {
    /// By so much.
    By(i128),
    Falls,
    Grows,
}

/// The order in which programs of a kernel are to begin.
pub fn program_order(module: &Module) -> ProgramOrder {
    if may_wait(module) != Wait::Never {
        return ProgramOrder::AsLaunched;
    }
    let kernel = module.kernel();
    let mut loops = Vec::new();
    product_loops(kernel, kernel.entry, &mut loops);
    let slopes = loops.iter().map(|inst| iterations(kernel, *inst));
    let Some(slope) = slopes.reduce(|one, other| sum(one?, other?)).flatten() else {
        return ProgramOrder::AsLaunched;
    };
    let (order, which) = match slope {
        Slope::By(0) => return ProgramOrder::AsLaunched,
        slope if slope.falls() => (ProgramOrder::AscendingIds, "first"),
        _ => (ProgramOrder::DescendingIds, "last"),
    };
    let because = || {
        let reason = "its loops with products have the more iterations, and nothing waits for other programs";
        Because::done(format!("the {which} programs along axis 0 begin first"), reason)
    };
    remarks::about("program_order", kernel, loops[0], || "loop".into(), because);
    order
}

/// The outermost loops with products.
fn product_loops(kernel: &Function, block: Block, loops: &mut Vec<Inst>) {
    for &inst in &kernel.blocks[block].insts {
        let data = &kernel.insts[inst];
        if matches!(data.op, Op::For { .. }) {
            if has_product(kernel, data.regions[0]) {
                loops.push(inst);
            }
        } else {
            for region in &data.regions {
                product_loops(kernel, *region, loops);
            }
        }
    }
}

fn has_product(kernel: &Function, block: Block) -> bool {
    kernel.blocks[block].insts.iter().any(|inst| {
        let data = &kernel.insts[*inst];
        data.op.family() == OpFamily::Dot || data.regions.iter().any(|region| has_product(kernel, *region))
    })
}

/// How the number of iterations of a loop changes.
fn iterations(kernel: &Function, inst: Inst) -> Option<Slope> {
    let [lower, upper, step, ..] = kernel.insts[inst].operands[..] else { return None };
    let step = constant_int(kernel, step).filter(|step| *step > 0)?;
    let mut steps = 0;
    let slope = sum(slope(kernel, upper, &mut steps)?, slope(kernel, lower, &mut steps)?.times(-1)?)?;
    // Persistent programs take turns with tiles: over all of them the numbers differ by one.
    Some(if matches!(slope, Slope::By(by) if by.abs() < step) { Slope::By(0) } else { slope })
}

impl Slope {
    fn falls(self) -> bool {
        matches!(self, Slope::Falls | Slope::By(..0))
    }

    /// That of so many times the number.
    fn times(self, factor: i128) -> Option<Self> {
        Some(match (self, factor) {
            (Slope::By(by), _) => Slope::By(by.checked_mul(factor)?),
            (_, 0) => Slope::By(0),
            (slope, _) if slope.falls() == (factor > 0) => Slope::Falls,
            _ => Slope::Grows,
        })
    }
}

/// That of a sum.
fn sum(one: Slope, other: Slope) -> Option<Slope> {
    match (one, other) {
        (Slope::By(one), Slope::By(other)) => Some(Slope::By(one.checked_add(other)?)),
        (Slope::By(0), slope) | (slope, Slope::By(0)) => Some(slope),
        _ => same(one, other),
    }
}

/// That of one of two numbers, or of what grows and falls with both.
fn same(one: Slope, other: Slope) -> Option<Slope> {
    match (one, other) {
        (Slope::By(0), slope) | (slope, Slope::By(0)) => Some(slope),
        _ if one == other => Some(one),
        _ if one.falls() != other.falls() => None,
        _ if one.falls() => Some(Slope::Falls),
        _ => Some(Slope::Grows),
    }
}

/// How a scalar changes, if that is known.
fn slope(kernel: &Function, value: Value, steps: &mut u32) -> Option<Slope> {
    *steps += 1;
    if *steps > MOST_STEPS {
        return None;
    }
    let inst = match kernel.values[value].definition {
        Definition::Parameter(block, _) => return (block == kernel.entry).then_some(Slope::By(0)),
        Definition::Result(inst, _) => inst,
    };
    let data = &kernel.insts[inst];
    let mut of = |place: usize| slope(kernel, *data.operands.get(place)?, steps);
    match &data.op {
        Op::Constant { .. } | Op::NumPrograms { .. } => Some(Slope::By(0)),
        Op::ProgramId { axis: 0 } => Some(Slope::By(1)),
        Op::Cast { .. } => of(0),
        Op::Elementwise { function } => {
            let (one, other) = (of(0)?, of(1)?);
            let factor = |place: usize| constant_int(kernel, data.operands[place]);
            match function {
                ElementwiseFn::Add => sum(one, other),
                ElementwiseFn::Sub => sum(one, other.times(-1)?),
                ElementwiseFn::Min | ElementwiseFn::Max => Some(rounded(same(one, other)?)),
                _ if (one, other) == (Slope::By(0), Slope::By(0)) => Some(Slope::By(0)),
                ElementwiseFn::Mul => match (factor(0), factor(1)) {
                    (_, Some(factor)) => one.times(factor),
                    (Some(factor), _) => other.times(factor),
                    _ => None,
                },
                ElementwiseFn::IntDiv => Some(rounded(one.times(factor(1)?.signum())?)),
                // tidy: wildcard because others say nothing of how a number changes
                _ => None,
            }
        }
        // tidy: wildcard because others say nothing of how a number changes
        _ => None,
    }
}

/// Where a number changes by more in one step than in another.
fn rounded(slope: Slope) -> Slope {
    match slope {
        Slope::By(0) => slope,
        _ if slope.falls() => Slope::Falls,
        _ => Slope::Grows,
    }
}
