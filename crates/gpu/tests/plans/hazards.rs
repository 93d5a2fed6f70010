//! Waits by brute force: every path through a kernel, with loops that run up to twice, as a list of accesses to bytes of
//! shared memory. Of two that overlap, of which one is a store, there has to be a wait between; and each wait that the plan
//! has is needed on some path. And no buffer is overwritten before it was loaded from.

use std::ops::Range;

use tilewright_gpu::{Exchange, Plan};
use tilewright_ir::{Block, Function, Inst, Op};

use crate::common::generate::{EVERYTHING, program};
use crate::common::seeds;
use crate::{KERNELS, has_powers_of_two, module, planned};

/// Paths are cut off here: a program may have many.
const MOST_PATHS: usize = 400;

#[derive(Clone)]
enum Access {
    /// By the instruction that the buffer belongs to.
    Store(Range<u32>, Inst),
    Load(Range<u32>, Inst),
    /// A wait; of the plan's own with its instruction.
    Wait(Option<Inst>),
}

type Path = Vec<Access>;

/// What an instruction does, by the docs of the exchanges.
fn accesses(plan: &Plan, inst: Inst) -> Path {
    let function = plan.module.kernel();
    let data = &function.insts[inst];
    let range = |exchange: &Exchange| exchange.offset()..exchange.offset() + exchange.shared_bytes();
    let mut path = Vec::new();
    if plan.waits_before[inst] {
        path.push(Access::Wait(Some(inst)));
    }
    match (&data.op, &plan.exchanges[inst]) {
        (Op::Barrier {}, _) => path.push(Access::Wait(None)),
        (Op::Dot { .. }, _) => {
            for maker in data.operands[..2].iter().filter_map(|operand| function.defining_inst(*operand)) {
                if let Some(exchange @ Exchange::Operand { .. }) = &plan.exchanges[maker] {
                    path.push(Access::Load(range(exchange), maker));
                }
            }
        }
        (_, Some(exchange @ Exchange::Operand { .. })) => path.push(Access::Store(range(exchange), inst)),
        (_, Some(exchange)) if exchange.shared_bytes() > 0 => {
            let range = range(exchange);
            path.extend([Access::Store(range.clone(), inst), Access::Wait(None), Access::Load(range, inst)]);
        }
        // tidy: wildcard because nothing else touches shared memory
        _ => {}
    }
    path
}

/// Each path of `before` followed by each path of `after`.
fn then(before: &[Path], after: &[Path]) -> Vec<Path> {
    let pairs =
        before.iter().flat_map(|first| after.iter().map(move |second| [&first[..], &second[..]].concat()));
    pairs.take(MOST_PATHS).collect()
}

fn paths(plan: &Plan, function: &Function, block: Block) -> Vec<Path> {
    let mut all = vec![Vec::new()];
    for inst in &function.blocks[block].insts {
        let data = &function.insts[*inst];
        let regions: Vec<Vec<Path>> = match data.op {
            Op::For { .. } | Op::While {} | Op::If {} => {
                data.regions.iter().map(|region| paths(plan, function, *region)).collect()
            }
            // tidy: wildcard because only control flow has regions that are paths
            _ => Vec::new(),
        };
        let nothing = vec![Vec::new()];
        let here = match (&data.op, &regions[..]) {
            (Op::For { .. }, [body]) => [nothing, body.clone(), then(body, body)].concat(),
            (Op::While {}, [condition, body]) => {
                let once = then(&then(condition, body), condition);
                [condition.clone(), then(&once, &then(body, condition)), once].concat()
            }
            (Op::If {}, [first, second]) => [&first[..], second].concat(),
            // tidy: wildcard because the other ops are straight code
            _ => vec![accesses(plan, *inst)],
        };
        all = then(&all, &here);
    }
    all
}

/// Whether two accesses on a path may meet, if the wait before `without` is left out.
fn has_hazard(path: &Path, without: Option<Inst>) -> bool {
    let mut open: Vec<(&Range<u32>, bool)> = Vec::new();
    for access in path {
        let (range, is_store) = match access {
            Access::Wait(inst) if inst.is_some() && *inst == without => continue,
            Access::Wait(_) => {
                open.clear();
                continue;
            }
            Access::Store(range, _) => (range, true),
            Access::Load(range, _) => (range, false),
        };
        let meets = |(other, stores): &(&Range<u32>, bool)| {
            (is_store || *stores) && range.start < other.end && other.start < range.end
        };
        if open.iter().any(meets) {
            return true;
        }
        open.push((range, is_store));
    }
    false
}

/// Whether what is loaded is what was stored there last.
fn keeps_what_is_stored(path: &Path) -> bool {
    let meets = |a: &Range<u32>, b: &Range<u32>| a.start < b.end && b.start < a.end;
    path.iter().enumerate().all(|(number, access)| {
        let Access::Load(range, owner) = access else { return true };
        let last = path[..number].iter().rev().find_map(|earlier| match earlier {
            Access::Store(stored, by) if meets(stored, range) => Some(by),
            // tidy: wildcard because the last store counts alone
            _ => None,
        });
        last == Some(owner)
    })
}

/// Panics on a hazard; says how many waits there are, and how many are needed on some path.
pub fn check(plan: &Plan) -> (usize, usize) {
    let function = plan.module.kernel();
    let paths = paths(plan, function, function.entry);
    assert!(!paths.iter().any(|path| has_hazard(path, None)), "{}", tilewright_gpu::dump(plan));
    assert!(paths.iter().all(keeps_what_is_stored), "{}", tilewright_gpu::dump(plan));
    let waits: Vec<Inst> = function.insts.keys().filter(|inst| plan.waits_before[*inst]).collect();
    let needed = waits.iter().filter(|wait| paths.iter().any(|path| has_hazard(path, Some(**wait)))).count();
    if paths.len() < MOST_PATHS { (waits.len(), needed) } else { (needed, needed) }
}

#[test]
fn known_kernels_wait_where_they_must_and_nowhere_else() {
    let mut total = 0;
    for (name, text) in KERNELS {
        for target in ["sm_75", "sm_80", "sm_90a"] {
            for num_warps in [1, 4, 8] {
                let (waits, needed) = check(&planned(&module(text), target, num_warps));
                assert_eq!(waits, needed, "{name}: a wait could be left out");
                total += waits;
            }
        }
    }
    assert!(total > 30, "there is something to wait for: {total}");
}

#[test]
fn random_programs_wait_where_they_must() {
    let (mut total, mut tried) = (0, 0);
    for seed in seeds(2000) {
        let module = program(seed, EVERYTHING);
        if !has_powers_of_two(&module) {
            continue;
        }
        tried += 1;
        let num_warps = [1, 2, 4, 8][(seed % 4) as usize];
        total += check(&planned(&module, "sm_80", num_warps)).1;
    }
    assert!(tried > 100 && total > 30, "{tried} programs, {total} waits");
}
