//! Unrolls short loops, for a back end that executes straight-line code faster.

use tilewright_ir::{Block, Cursor, Dtype, Function, Inst, Literal, Module, Op, unroll_fully};

use crate::pipeline::{check, run_passes};

/// Selects the loops that a back end wants unrolled. They have constant bounds and few iterations.
#[derive(Clone, Copy, Debug)]
pub struct ShortLoops {
    /// The maximum number of iterations.
    pub iterations: usize,
    /// The maximum number of ops of all iterations.
    pub ops: usize,
    /// Returns whether a loop that contains the op may be unrolled.
    pub allows: fn(&Op) -> bool,
}

/// Unrolls the short loops of a module's kernel, innermost first, and optimizes the kernel again.
/// Returns `None` if the kernel has no short loop.
pub fn unroll_short_loops(module: &Module, loops: &ShortLoops) -> Option<Module> {
    let function = module.kernel();
    let mut found = Vec::new();
    collect_loops(function, function.entry, &mut found);
    let is_short = |(_, inst): &&(Block, Inst)| counters(function, *inst, loops).is_some();
    found.iter().find(is_short)?;
    let mut unrolled = module.clone();
    let (id, function) = unrolled.functions.iter_mut().next().expect("a module has a kernel");
    for (block, inst) in found.into_iter().rev() {
        if let Some((counters, dtype)) = counters(function, inst, loops) {
            unroll_fully(&mut Cursor::before(function, block, inst), &counters, dtype);
        }
    }
    check("unroll_short_loops", &unrolled);
    run_passes(&mut unrolled, id, &mut |_, _| {});
    Some(unrolled)
}

/// Collects the `for` loops of a block and of its regions, outer loops first.
pub(crate) fn collect_loops(function: &Function, block: Block, found: &mut Vec<(Block, Inst)>) {
    for &inst in &function.blocks[block].insts {
        if matches!(function.insts[inst].op, Op::For { .. }) {
            found.push((block, inst));
        }
        for &region in &function.insts[inst].regions {
            collect_loops(function, region, found);
        }
    }
}

fn counters(function: &Function, inst: Inst, loops: &ShortLoops) -> Option<(Vec<i128>, Dtype)> {
    let data = &function.insts[inst];
    let (mut ops, mut is_allowed) = (0, true);
    function.walk(data.regions[0], &mut |inst| {
        ops += 1;
        is_allowed &= (loops.allows)(&function.insts[inst].op);
    });
    let bound = |index: usize| match function.defining_op(data.operands[index])? {
        Op::Constant { value } => Literal::as_int(*value),
        // tidy: wildcard because only a constant has a known value
        _ => None,
    };
    let (lower, upper, step) = (bound(0)?, bound(1)?, bound(2)?);
    let distance = if step > 0 { upper - lower } else { lower - upper };
    if !is_allowed || step == 0 || distance <= 0 {
        return None;
    }
    let trips = usize::try_from((distance - 1) / step.abs() + 1).ok()?;
    if trips > loops.iterations || trips * ops > loops.ops {
        return None;
    }
    let dtype = function.ty(data.operands[0]).dtype()?;
    Some(((0..trips as i128).map(|trip| lower + trip * step).collect(), dtype))
}
