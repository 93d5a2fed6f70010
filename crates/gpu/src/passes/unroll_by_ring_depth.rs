//! Unrolls loops by the depth of their rings, so that slot indices are constants.
//!
//! ```text
//! for %i = %low to %high by s {                for %i = %low to %middle by 3s {
//!   %b = take %r                                 %b = take %r      // slot 0
//!   … %b …                                       … %b …
//! }                                      ──>     %c = take %r      // slot 1
//!                                                …
//!                                              }
//!                                              for %i = %middle to %high by s { … }
//! ```
//! The pass runs before rings are lowered ([`super::rings`]). If an iteration advances each ring by
//! a multiple of its slots, each `take` and `acquire` has a constant slot. The loop then carries
//! only phases. Loop-carried registers are copied once for all copies of the body.
//!
//! Unrolling is faster if threads compute an operand of a dot from another dot, for longer than the
//! dots take.
//!
//! The assembler interleaves the copies of the body, which takes registers, so fewer blocks may
//! fit. With [`Tuning::states_blocks`](tilewright_gpu_ir::Tuning::states_blocks), the pass sets
//! [`Header::min_blocks`] to the blocks that fit with one copy
//! ([`cost_model::blocks_by_registers`]).

use tilewright_ir::{
    self as ir, Block, Cursor, Dtype, Element, ElementwiseFn, Inst, OpFamily, Operation, Parents, Rounding,
    Unrolling, Value, constant_int, unroll_loop,
};

use super::dependent_dots::{depends_on_other_dot, dots_of};
use super::pipelining::constant_iterations;
use crate::cost_model;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::{LANES, element_bits};
use tilewright_gpu_ir::{Function, Gpu, GpuOp, Header, Module, Op, Type};

pub fn unroll_by_ring_depth(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let parents = Parents::new(function);
    let mut loops: Vec<Inst> = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if matches!(function.insts[inst].op, Op::Tile(ir::Op::For { .. })) {
            loops.push(inst);
        }
    });
    for inst in loops {
        let Some(rings) = rings_of(function, &parents, inst) else { continue };
        let plan = plan(header, function, inst, &rings);
        let because = || match &plan {
            Ok(Plan { factor, .. }) => RemarkReason::done(
                format!("unrolled {factor} times"),
                "each copy names its slots by constants",
            ),
            Err(reason) => RemarkReason::note("not unrolled, slot indices are computed at run time", *reason),
        };
        remarks::about("unroll_by_ring_depth", function, inst, || "loop".into(), because);
        let Ok(plan) = plan else { continue };
        let block = parents.block(inst).expect("the loop is in a block");
        unroll(function, block, inst, &plan);
        if !header.target.tuning.states_blocks {
            continue;
        }
        let blocks =
            cost_model::blocks_by_registers(plan.tiles, header.num_warps * LANES, header.target.tuning);
        header.min_blocks = if header.min_blocks == 0 { blocks } else { header.min_blocks.min(blocks) };
    }
}

/// The parameters of an unrolled loop.
struct Plan {
    factor: u32,
    step: i64,
    dtype: Dtype,
    /// The registers of a thread for one copy's operands and accumulators.
    tiles: u32,
}

/// The advance of a ring's producer or consumer.
struct RingStep {
    slots: u32,
    per_iteration: u32,
}

impl RingStep {
    /// Returns the iterations after which an op gets the same slot again.
    fn period(&self) -> u32 {
        let (mut a, mut b) = (self.slots, self.per_iteration);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        self.slots / a
    }
}

/// Returns the advance of the rings' ends in an iteration of a loop. Returns `None` if the first
/// slots are unknown, no ring has several slots, or a nested region advances a ring.
fn rings_of(function: &Function, parents: &Parents, inst: Inst) -> Option<Vec<RingStep>> {
    let body = function.insts[inst].regions[0];
    let mut ends: Vec<(Value, bool, RingStep)> = Vec::new();
    let mut is_nested = false;
    function.walk(body, &mut |inner| {
        let Some((ring, is_take)) = ring_end(function, inner) else { return };
        is_nested |= parents.block(inner) != Some(body);
        let found = ends.iter_mut().find(|(other, end, _)| (*other, *end) == (ring, is_take));
        if let Some((.., step)) = found {
            step.per_iteration += 1;
        } else {
            let slots = slots_of(function, ring);
            ends.push((ring, is_take, RingStep { slots, per_iteration: 1 }));
        }
    });
    let rings: Vec<Value> = ends.iter().map(|(ring, ..)| *ring).collect();
    let is_counted = ends.iter().any(|(.., step)| step.slots > 1);
    (is_counted && !is_nested && begin_at_known_slots(function, parents, inst, &rings))
        .then(|| ends.into_iter().map(|(.., step)| step).collect())
}

/// Returns the ring that an op advances, and whether the op takes a slot.
fn ring_end(function: &Function, inst: Inst) -> Option<(Value, bool)> {
    let data = &function.insts[inst];
    match data.op.as_gpu()? {
        GpuOp::Acquire {} => Some((data.operands[0], false)),
        GpuOp::Take {} => Some((data.operands[0], true)),
        // tidy: wildcard because no other op goes to the next slot
        _ => None,
    }
}

fn slots_of(function: &Function, ring: Value) -> u32 {
    match function.ty(ring) {
        Type::Ring(ring) => ring.slots,
        Type::Buffer(_)
        | Type::Registers { .. }
        | Type::Empty(_)
        | Type::Full(_)
        | Type::Pending { .. }
        | Type::Mbarrier { .. }
        | Type::TensorMemory(_) => 1,
    }
}

/// Returns whether each ring's next slot before an instruction is a constant. No loop is around the
/// instruction, and no earlier loop or branch advances these rings.
fn begin_at_known_slots(function: &Function, parents: &Parents, inst: Inst, rings: &[Value]) -> bool {
    let mut around = inst;
    while let Some(block) = parents.block(around) {
        let insts = &function.blocks[block].insts;
        let before = insts.iter().take_while(|other| **other != around);
        let mut is_known = true;
        for region in before.flat_map(|other| &function.insts[*other].regions) {
            function.walk(*region, &mut |inner| {
                is_known &= ring_end(function, inner).is_none_or(|(ring, _)| !rings.contains(&ring));
            });
        }
        let Some(owner) = parents.owner(block) else { return is_known };
        if !is_known || function.insts[owner].op.info().family == OpFamily::Loop {
            return false;
        }
        around = owner;
    }
    false
}

fn plan(header: &Header, function: &Function, inst: Inst, rings: &[RingStep]) -> Result<Plan, &'static str> {
    let data = &function.insts[inst];
    let Op::Tile(ir::Op::For { options }) = &data.op else { return Err("it is not a `for` loop") };
    let mut insts = 0;
    let mut dots: Vec<Inst> = Vec::new();
    let mut arithmetic = 0;
    let (mut is_innermost, mut has_addresses) = (true, false);
    function.walk(data.regions[0], &mut |inner| {
        insts += 1;
        let family = function.insts[inner].op.info().family;
        is_innermost &= family != OpFamily::Loop;
        if family == OpFamily::Dot {
            dots.push(inner);
        }
        arithmetic += u32::from(is_arithmetic(function, inner));
        has_addresses |= matches!(function.insts[inner].op, Op::Gpu(GpuOp::CopyAsync { .. }));
    });
    if options.unroll_factor == 1 {
        return Err("the program requests an unroll factor of 1");
    }
    if !is_innermost {
        return Err("it has a loop inside");
    }
    if has_addresses {
        return Err(
            "it has copies that are not tensor copies: each copy of its body would hold their addresses \
                    in registers",
        );
    }
    if !has_dependent_dots(function, data.regions[0]) {
        return Err("no dot has a first operand that threads compute in registers from another dot");
    }
    if !cost_model::is_issue_bound(arithmetic, dots.len() as u32, header.target.tuning) {
        return Err("its dots take longer than the computation of its threads");
    }
    let factor = rings.iter().map(RingStep::period).max().unwrap_or(1);
    if rings.iter().any(|ring| factor % ring.period() != 0) {
        return Err(
            "its rings return to their first slots after different numbers of iterations, which do not all \
                    divide the largest one",
        );
    }
    if !cost_model::should_unroll(factor, insts, header.target.tuning) {
        return Err("the copies of its body would be too many or too long");
    }
    let dtype = function.ty(data.operands[0]).as_registers().and_then(ir::Type::dtype);
    let Some(dtype) = dtype.filter(|dtype| dtype.bits() >= 32) else {
        return Err("its index has fewer than 32 bits");
    };
    let step = constant_int(function, data.operands[2]).and_then(|step| i64::try_from(step).ok());
    let Some(step) = step.filter(|step| *step > 0) else {
        return Err("its step is not a positive constant");
    };
    if i32::try_from(step).ok().and_then(|step| step.checked_mul(factor as i32)).is_none() {
        return Err("its step times the number of copies exceeds 32 bits");
    }
    if constant_iterations(function, inst).is_some_and(|count| count < 2 * factor) {
        return Err("it has too few iterations");
    }
    let words = |value: &Value| {
        let ty = function.ty(*value);
        let bits = ty.as_registers().map_or(0, element_bits);
        ty.layout().map_or(0, |layout| header.layouts.get(layout).registers() * bits / 32)
    };
    let tiles = dots.iter().flat_map(|dot| &function.insts[*dot].operands[..3]).map(words).sum();
    if !cost_model::fits_registers_unrolled(tiles, header.num_warps * LANES, header.target.tuning) {
        return Err("a thread has too few registers for several copies of its body");
    }
    Ok(Plan { factor, step, dtype, tiles })
}

fn is_arithmetic(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    matches!(data.op, Op::Gpu(GpuOp::Elementwise { .. })) && function.ty(data.results[0]).layout().is_some()
}

/// Returns whether threads compute A of a dot from another dot of the body. A must stay in
/// registers. If A is in shared memory, threads wait for each other after the store. None then
/// begins the next iteration early.
fn has_dependent_dots(function: &Function, body: Block) -> bool {
    dots_of(function, body).into_iter().any(|dot| {
        let operand = function.insts[dot].operands[0];
        let is_read = matches!(function.defining_op(operand), Some(Op::Gpu(GpuOp::LocalLoad { .. })))
            || !matches!(function.ty(operand), Type::Registers { .. });
        !is_read && depends_on_other_dot(function, body, dot, operand)
    })
}

fn unroll(function: &mut Function, block: Block, inst: Inst, plan: &Plan) {
    // Neither loop may be unrolled again.
    let Op::Tile(ir::Op::For { options }) = &mut function.insts[inst].op else { return };
    options.unroll_factor = 1;
    let remainder = function.insts[inst].op.clone();
    let [lower, upper] = [0, 1].map(|bound| function.insts[inst].operands[bound]);
    let mut cursor = Cursor::before(function, block, inst);
    let Plan { factor, step, dtype, .. } = *plan;
    let middle = middle(&mut cursor, [lower, upper], step * i64::from(factor), dtype);
    let unrolling = Unrolling { factor, step, dtype, middle };
    unroll_loop(&mut cursor, (block, inst), &unrolling, remainder);
}

/// Returns the upper bound of the unrolled loop with the step `step`. This is `lower` plus the
/// largest multiple of `step` up to `upper - lower`, or `lower` if the loop has no iteration. The
/// difference may exceed the maximum of `dtype`, so the division is unsigned.
fn middle(cursor: &mut Cursor<'_, Gpu>, [lower, upper]: [Value; 2], step: i64, dtype: Dtype) -> Value {
    let unsigned = if dtype.bits() == 64 { Dtype::U64 } else { Dtype::U32 };
    let cast = |cursor: &mut Cursor<'_, Gpu>, value: Value, dtype: Dtype| {
        if cursor.function.ty(value).as_registers().and_then(ir::Type::dtype) == Some(dtype) {
            return value;
        }
        let op = ir::Op::Cast { element: Element::Value(dtype), rounding: Rounding::NearestEven };
        cursor.value(op, &[value], Type::scalar(ir::Type::scalar(dtype)))
    };
    let has_iterations = cursor.scalar(ElementwiseFn::Lt, &[lower, upper], Dtype::I1);
    let distance = cursor.scalar(ElementwiseFn::Sub, &[upper, lower], dtype);
    let zero = cursor.int(dtype, 0);
    let distance = cursor.scalar(ElementwiseFn::Select, &[has_iterations, distance, zero], dtype);
    let distance = cast(cursor, distance, unsigned);
    let step = cursor.int(unsigned, step);
    let rest = cursor.scalar(ElementwiseFn::IntRem, &[distance, step], unsigned);
    let whole = cursor.scalar(ElementwiseFn::Sub, &[distance, rest], unsigned);
    let whole = cast(cursor, whole, dtype);
    cursor.scalar(ElementwiseFn::Add, &[lower, whole], dtype)
}
