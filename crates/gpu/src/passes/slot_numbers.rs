//! Slots of rings by their numbers: a loop that goes around rings of three slots goes in rounds of three iterations, each of which
//! names its slots by constants. The loop says so by its option `unroll=3`, and stays what it is; its code
//! (`ptx/src/lower/control.rs`) has the body so many times, and once more for what is left.
//!
//! ```text
//! $loop: wait full[%s], %p ; … slot %s          $round: wait full[0], %p ; … slot 0
//!        %n = %s + 1 ; %e = %n == 3                     wait full[1], %p ; … slot 1
//!        %s = select %e, 0, %n                          wait full[2], %p ; … slot 2 ; %p = %p ^ 1
//!        %p = select %e, %p ^ 1, %p                     go on at $round if three iterations are left
//!        go on at $loop if it was not the last   $loop: as it was, if any are left
//! ```
//!
//! The assembler mixes iterations that stand in a row, and takes more registers for them. So the kernel says how many blocks are to
//! have room on a multiprocessor: as many as without.
//!
//! It is for loops whose threads compute weights between two products, as attention does: those wait for issue slots, which
//! counting takes away.

use tilewright_ir::{self as ir, Definition, Inst, OpFamily, Operation, Value};

use crate::cost_model;
use crate::language::{Function, GpuOp, Header, Module, Op, Type};
use crate::layout_rules::{LANES, element_bits};
use crate::remarks::{self, Because};
use crate::slot_counters::{Known, slot_counters};

/// Says which loops of a kernel have an iteration for each slot in their code.
pub fn number_slots(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let mut loops: Vec<Inst> = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if matches!(function.insts[inst].op, Op::Tile(ir::Op::For { .. })) {
            loops.push(inst);
        }
    });
    let mut known = Known::default();
    for inst in loops {
        let slots = slots(header, function, inst, &mut known);
        if let Op::Tile(ir::Op::For { options }) = &mut function.insts[inst].op {
            match slots {
                Some(Ok(rounds)) => options.unroll_factor = rounds.slots,
                // What the program asks for was done before, or could not be done.
                _ => options.unroll_factor = options.unroll_factor.min(1),
            }
        }
        let Some(slots) = slots else { continue };
        if let Ok(Rounds { tiles, .. }) = slots {
            let threads = header.num_warps * LANES;
            let blocks = cost_model::blocks(tiles, threads, header.shared_bytes, header.target);
            header.min_blocks = if blocks > 1 { blocks } else { 0 };
        }
        let because = || match slots {
            Ok(Rounds { slots, .. }) => {
                let reason = "each of them names its slots by constants";
                Because::done(format!("{slots} iterations stand in its code"), reason)
            }
            Err(reason) => Because::note("its slots are counted", reason),
        };
        remarks::about("slot_numbers", function, inst, || "loop".into(), because);
    }
}

/// A loop that goes in rounds.
#[derive(Clone, Copy)]
struct Rounds {
    /// The iterations of a round.
    slots: u32,
    /// The registers of a thread that the tiles of its products take.
    tiles: u32,
}

/// The rounds of a loop around rings, or why it has none.
fn slots(
    header: &Header,
    function: &Function,
    inst: Inst,
    known: &mut Known,
) -> Option<Result<Rounds, &'static str>> {
    let data = &function.insts[inst];
    let Op::Tile(ir::Op::For { options }) = &data.op else { return None };
    let mut insts = 0;
    let mut products: Vec<Inst> = Vec::new();
    let mut arithmetic = 0;
    let (mut is_innermost, mut has_addresses) = (true, false);
    function.walk(data.regions[0], &mut |inner| {
        insts += 1;
        let family = function.insts[inner].op.info().family;
        is_innermost &= family != OpFamily::Loop;
        if family == OpFamily::Dot {
            products.push(inner);
        }
        arithmetic += u32::from(is_arithmetic(function, inner));
        has_addresses |= matches!(function.insts[inner].op, Op::Gpu(GpuOp::CopyAsync { .. }));
    });
    let counters = slot_counters(function, inst, &mut |value| known.of(function, value))?;
    if options.unroll_factor == 1 {
        return Some(Err("the program asks for one iteration, or there are too few for rounds"));
    }
    if !is_innermost {
        return Some(Err("there is a loop in it"));
    }
    if has_addresses {
        return Some(Err("threads copy in it, and have no registers for more than their addresses"));
    }
    let takes_weights = |product: &Inst| takes_weights(function, inst, *product);
    let is_softmax = products.len() == 2 && products.iter().any(takes_weights);
    if !is_softmax || !cost_model::issue_slots_count(arithmetic, header.target.tuning) {
        return Some(Err("its threads compute no weights between two products"));
    }
    let slots = u32::try_from(counters.slots).ok()?;
    if !cost_model::stand_in_code(slots, insts, header.target.tuning) {
        return Some(Err("the code would be too long"));
    }
    let words = |value: &Value| {
        let ty = function.ty(*value);
        let bits = ty.as_registers().map_or(0, element_bits);
        ty.layout().map_or(0, |layout| header.layouts.get(layout).registers() * bits / 32)
    };
    let of = |product: &Inst| -> u32 { function.insts[*product].operands.iter().map(words).sum() };
    let tiles = products.iter().map(of).sum();
    if !cost_model::rounds_fit(tiles, header.num_warps * LANES, header.target.tuning) {
        return Some(Err("several iterations in a row have no room in registers"));
    }
    Some(Ok(Rounds { slots, tiles }))
}

/// Whether an instruction computes a tile element by element.
fn is_arithmetic(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    matches!(data.op, Op::Gpu(GpuOp::Elementwise { .. })) && function.ty(data.results[0]).layout().is_some()
}

/// Whether a product takes registers that the loop computes.
fn takes_weights(function: &Function, inst: Inst, product: Inst) -> bool {
    let body = function.insts[inst].regions[0];
    let weights = function.insts[product].operands[0];
    let is_inside = match function.values[weights].definition {
        Definition::Parameter(block, _) => block == body,
        Definition::Result(maker, _) => {
            let mut is_inside = false;
            function.walk(body, &mut |inner| is_inside |= inner == maker);
            is_inside
        }
    };
    let is_loaded = matches!(function.defining_op(weights), Some(Op::Gpu(GpuOp::LocalLoad { .. })));
    matches!(function.ty(weights), Type::Registers { .. }) && is_inside && !is_loaded
}
