//! Swaps the operands of tf32 dots with row-major B. The dot then computes the transpose.
//!
//! `wgmma` reads B from shared memory, where tf32 elements must be contiguous along K. `wgmma` can
//! read A from registers, which threads load in any order:
//!
//! ```text
//! for %k carry %acc = %zero {                  for %k carry %acc = trans %zero {
//!   %d = dot %a, %b, %acc                        %d = dot trans %b, trans %a, %acc
//!   yield %d                          ──>        yield %d
//! } : %c                                       } : %e ; %c = trans %e
//! ```
//! A transpose in registers only renames coordinates. The epilogue moves the result to other
//! threads in any case.

use cranelift_entity::packed_option::PackedOption;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{
    Block, Definition, Function, InputPrecision, Inst, Location, Op, Parents, Shape, Type, Uses, Value,
    constant_of,
};

use super::mma_selection::{self, collect_dots};
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::GpuTarget;

const WORD_BYTES: usize = 4;

/// Swaps the operands of each dot that is faster as its transpose. Returns whether it changed a
/// dot.
pub fn swap_operands(function: &mut Function, target: GpuTarget, num_warps: u32) -> bool {
    let mut found = false;
    for (block, inst) in collect_dots(function) {
        let Some(accumulator) = is_faster_swapped(function, block, inst, target, num_warps) else { continue };
        let reason = "B is row-major in memory: threads load its transpose to registers in that order";
        remarks::about(
            "swap_dot_operands",
            function,
            inst,
            || "dot".into(),
            || RemarkReason::done("computed as its transpose", reason),
        );
        OperandSwap { function, location: None.into() }.swap(block, inst, accumulator);
        found = true;
    }
    // `optimize` simplifies transposes of transposes and of constants.
    found
}

/// Returns whether a dot should read a loaded A from registers.
///
/// This requires a tf32 dot, and a load of A in the dot's block. A must be column-major in global
/// memory, and fit into the registers reserved for it.
pub fn is_loaded_by_columns(
    function: &Function,
    block: Block,
    dot: Inst,
    target: GpuTarget,
    num_warps: u32,
) -> bool {
    let data = &function.insts[dot];
    let Op::Dot { precision: InputPrecision::Tf32, .. } = data.op else { return false };
    loaded_axis(function, block, data.operands[0]) == Some(0)
        && fits_registers(function.ty(data.operands[0]), target, num_warps)
}

/// Returns whether A has 32-bit elements and fits into the registers reserved for it.
fn fits_registers(a: &Type, target: GpuTarget, num_warps: u32) -> bool {
    let words: u32 = a.shape.iter().product();
    a.element.bytes() == WORD_BYTES && words <= target.tuning.transposed_registers * LANES * num_warps
}

/// The source of the accumulator of a dot.
#[derive(Clone, Copy)]
enum AccumulatorSource {
    /// The loop that carries the accumulator, and the loop's parameter for it.
    Carried(Inst, Value),
    Constant,
}

/// Returns the source of the accumulator. Returns `None` if the dot is not faster with swapped
/// operands.
fn is_faster_swapped(
    function: &Function,
    block: Block,
    inst: Inst,
    target: GpuTarget,
    num_warps: u32,
) -> Option<AccumulatorSource> {
    let data = &function.insts[inst];
    let Op::Dot { precision: InputPrecision::Tf32, .. } = data.op else { return None };
    let &[a, b, accumulator] = &data.operands[..] else { return None };
    let is_small = fits_registers(function.ty(b), target, num_warps);
    let both = mma_selection::has_wgmma_in_both_orders(function, inst, target, num_warps);
    let by_rows = [a, b].iter().all(|operand| loaded_axis(function, block, *operand) == Some(1));
    if !is_small || !both || !by_rows {
        return None;
    }
    match function.values[accumulator].definition {
        Definition::Result(..) => {
            constant_of(function, accumulator).is_some().then_some(AccumulatorSource::Constant)
        }
        Definition::Parameter(home, _) => {
            let owner = Parents::new(function).owner(block).filter(|_| home == block)?;
            let Op::For { .. } = function.insts[owner].op else { return None };
            let carried = function.carried_by(owner, accumulator)?;
            let is_next = carried.yielded[..] == [data.results[0]];
            let uses = Uses::new(function);
            let are_used_once =
                [accumulator, data.results[0]].iter().all(|value| uses.only(*value).is_some());
            (is_next && are_used_once).then_some(AccumulatorSource::Carried(owner, accumulator))
        }
    }
}

/// Returns the axis along which a loaded operand is contiguous in global memory. Returns `None` if
/// the dot's block does not load the operand.
fn loaded_axis(function: &Function, block: Block, value: Value) -> Option<usize> {
    let inst = function.defining_inst(value)?;
    let data = &function.insts[inst];
    match &data.op {
        Op::Load { .. } => {
            let is_here = function.blocks[block].insts.contains(&inst);
            if is_here { ScalarEvolution::exact(function).contiguous_axis(data.operands[0]) } else { None }
        }
        Op::Transpose { permutation } => {
            let axis = loaded_axis(function, block, data.operands[0])?;
            permutation.iter().position(|old| *old == axis as i64)
        }
        // tidy: wildcard because a computed operand is not in global memory
        _ => None,
    }
}

struct OperandSwap<'f> {
    function: &'f mut Function,
    location: PackedOption<Location>,
}

impl OperandSwap<'_> {
    fn swap(&mut self, block: Block, inst: Inst, accumulator: AccumulatorSource) {
        let data = self.function.insts[inst].clone();
        self.location = data.location;
        let result = data.results[0];
        let ty = transposed(self.function.ty(result));
        let [b, a] = [1, 0].map(|operand: usize| self.transpose(data.operands[operand]));
        let mut before: SmallVec<[Inst; 3]> = smallvec![b, a];
        let start = match accumulator {
            AccumulatorSource::Carried(_, parameter) => parameter,
            AccumulatorSource::Constant => {
                let start = self.transpose(data.operands[2]);
                before.push(start);
                self.function.insts[start].results[0]
            }
        };
        let [b, a] = [b, a].map(|inst| self.function.insts[inst].results[0]);
        self.function.insts[inst].operands = smallvec![b, a, start];
        self.insert(block, inst, &before, 0);
        match accumulator {
            AccumulatorSource::Carried(owner, parameter) => {
                self.function.values[result].ty = ty.clone();
                self.function.values[parameter].ty = ty;
                self.transpose_carried(owner, parameter);
            }
            AccumulatorSource::Constant => self.transpose_result(block, inst, result),
        }
    }

    fn transpose_carried(&mut self, owner: Inst, parameter: Value) {
        let carried = self.function.carried_by(owner, parameter).expect("the loop carries the accumulator");
        let is_home = |function: &Function, block: &Block| function.blocks[*block].insts.contains(&owner);
        let block = self.function.blocks.keys().find(|block| is_home(self.function, block));
        let block = block.expect("a loop is in a block");
        let initial = carried.initial.expect("a loop has initial values");
        let start = self.transpose(initial);
        let started = self.function.insts[start].results[0];
        self.insert(block, owner, &[start], 0);
        let data = &mut self.function.insts[owner];
        let index = data.results.iter().position(|result| *result == carried.result);
        let first = data.operands.len() - data.results.len();
        data.operands[first + index.expect("a carried value has a result")] = started;
        self.transpose_result(block, owner, carried.result);
    }

    /// Changes a result to its transpose; its users get a `trans` of the new result.
    fn transpose_result(&mut self, block: Block, inst: Inst, result: Value) {
        let ty = self.function.ty(result).clone();
        self.function.values[result].ty = transposed(&ty);
        let back = self.transpose(result);
        let new = self.function.insts[back].results[0];
        let name = self.function.values[result].name.clone();
        self.function.values[new].name = name;
        for (other, data) in &mut self.function.insts {
            if other != back {
                data.operands
                    .iter_mut()
                    .filter(|operand| **operand == result)
                    .for_each(|operand| *operand = new);
            }
        }
        self.insert(block, inst, &[back], 1);
    }

    fn transpose(&mut self, value: Value) -> Inst {
        let ty = transposed(self.function.ty(value));
        let op = Op::Transpose { permutation: [1, 0].into_iter().collect() };
        self.function.create_inst(op, smallvec![value], smallvec![], [ty], self.location)
    }

    /// Inserts instructions `offset` positions after an instruction's position.
    fn insert(&mut self, block: Block, inst: Inst, new: &[Inst], offset: usize) {
        let insts = &mut self.function.blocks[block].insts;
        let position = insts.iter().position(|other| *other == inst);
        let position = position.expect("the instruction is in this block") + offset;
        insts.splice(position..position, new.iter().copied());
    }
}

fn transposed(ty: &Type) -> Type {
    let shape: Shape = ty.shape.iter().rev().copied().collect();
    ty.with_shape(shape)
}
