//! Products of tf32 whose B lies by rows are computed as their transposes.
//!
//! `wgmma` reads B from shared memory, and contiguous along K where elements do not have 16 bits. A it takes from registers as
//! well, a word for each element, so that these may lie in any order in the memory that threads load them from:
//!
//! ```text
//! for %k carry %sum = %zero {                  for %k carry %sum = trans %zero {
//!   %d = dot %a, %b, %sum                        %d = dot trans %b, trans %a, %sum
//!   yield %d                          ──>        yield %d
//! } : %c                                       } : %e ; %c = trans %e
//! ```
//! A transpose renames places. What is stored of the result changes threads in any case.

use cranelift_entity::packed_option::PackedOption;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{
    Block, Definition, Function, InputPrecision, Inst, Location, Op, Parents, Shape, Type, Uses, Value,
    constant_of,
};

use super::mma_selection::{self, places};
use crate::remarks::{self, Because};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::GpuTarget;

const WORD_BYTES: usize = 4;

/// Transposes the products of a kernel that are faster so; true if there are any.
pub fn transpose(function: &mut Function, target: GpuTarget, num_warps: u32) -> bool {
    let mut found = false;
    for (block, inst) in places(function) {
        let Some(sum) = is_faster(function, block, inst, target, num_warps) else { continue };
        let reason = "B lies by rows in memory: its transpose goes to registers as it lies";
        remarks::about(
            "transposed_products",
            function,
            inst,
            || "dot".into(),
            || Because::done("computed as its transpose", reason),
        );
        Transposing { function, location: None.into() }.product(block, inst, sum);
        found = true;
    }
    // `optimize` simplifies transposes of transposes and of constants.
    found
}

/// Whether a product reads A from registers, though nothing is computed of it: it has a word for each element, and lies by
/// columns in the memory that its block loads it from.
pub fn is_loaded_by_columns(
    function: &Function,
    block: Block,
    product: Inst,
    target: GpuTarget,
    num_warps: u32,
) -> bool {
    let data = &function.insts[product];
    let Op::Dot { precision: InputPrecision::Tf32, .. } = data.op else { return false };
    loaded_axis(function, block, data.operands[0]) == Some(0)
        && fits(function.ty(data.operands[0]), target, num_warps)
}

fn fits(a: &Type, target: GpuTarget, num_warps: u32) -> bool {
    let words: u32 = a.shape.iter().product();
    a.element.bytes() == WORD_BYTES && words <= target.tuning.transposed_registers * LANES * num_warps
}

/// Where the sum of a product comes from.
#[derive(Clone, Copy)]
enum Sum {
    /// A loop carries it, as this parameter.
    Carried(Inst, Value),
    /// It begins here.
    Constant,
}

fn is_faster(
    function: &Function,
    block: Block,
    inst: Inst,
    target: GpuTarget,
    num_warps: u32,
) -> Option<Sum> {
    let data = &function.insts[inst];
    let Op::Dot { precision: InputPrecision::Tf32, .. } = data.op else { return None };
    let &[a, b, sum] = &data.operands[..] else { return None };
    let is_small = fits(function.ty(b), target, num_warps);
    let both = mma_selection::is_of_warpgroups_either_way(function, inst, target, num_warps);
    let by_rows = [a, b].iter().all(|operand| loaded_axis(function, block, *operand) == Some(1));
    if !is_small || !both || !by_rows {
        return None;
    }
    match function.values[sum].definition {
        Definition::Result(..) => constant_of(function, sum).is_some().then_some(Sum::Constant),
        Definition::Parameter(home, _) => {
            let owner = Parents::new(function).owner(block).filter(|_| home == block)?;
            let Op::For { .. } = function.insts[owner].op else { return None };
            let carried = function.carried_by(owner, sum)?;
            let is_next = carried.yielded[..] == [data.results[0]];
            let uses = Uses::new(function);
            let are_used_once = [sum, data.results[0]].iter().all(|value| uses.only(*value).is_some());
            (is_next && are_used_once).then_some(Sum::Carried(owner, sum))
        }
    }
}

/// The axis along which an operand is contiguous in global memory, if the block of the product loads it.
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
        // tidy: wildcard because what is computed lies in no memory
        _ => None,
    }
}

struct Transposing<'f> {
    function: &'f mut Function,
    location: PackedOption<Location>,
}

impl Transposing<'_> {
    fn product(&mut self, block: Block, inst: Inst, sum: Sum) {
        let data = self.function.insts[inst].clone();
        self.location = data.location;
        let result = data.results[0];
        let ty = transposed(self.function.ty(result));
        let [b, a] = [1, 0].map(|place: usize| self.transpose(data.operands[place]));
        let mut before: SmallVec<[Inst; 3]> = smallvec![b, a];
        let start = match sum {
            Sum::Carried(_, parameter) => parameter,
            Sum::Constant => {
                let start = self.transpose(data.operands[2]);
                before.push(start);
                self.function.insts[start].results[0]
            }
        };
        let [b, a] = [b, a].map(|inst| self.function.insts[inst].results[0]);
        self.function.insts[inst].operands = smallvec![b, a, start];
        self.insert(block, inst, &before, 0);
        match sum {
            Sum::Carried(owner, parameter) => {
                self.function.values[result].ty = ty.clone();
                self.function.values[parameter].ty = ty;
                self.carried(owner, parameter);
            }
            Sum::Constant => self.transpose_result(block, inst, result),
        }
    }

    /// What a loop begins with, and what comes of it.
    fn carried(&mut self, owner: Inst, parameter: Value) {
        let carried = self.function.carried_by(owner, parameter).expect("the loop carries the sum");
        let is_home = |function: &Function, block: &Block| function.blocks[*block].insts.contains(&owner);
        let block = self.function.blocks.keys().find(|block| is_home(self.function, block));
        let block = block.expect("a loop is in a block");
        let initial = carried.initial.expect("a loop begins with a sum");
        let start = self.transpose(initial);
        let started = self.function.insts[start].results[0];
        self.insert(block, owner, &[start], 0);
        let place = self.function.insts[owner].results.iter().position(|result| *result == carried.result);
        let first = self.function.insts[owner].operands.len() - self.function.insts[owner].results.len();
        self.function.insts[owner].operands[first + place.expect("it is a result")] = started;
        self.transpose_result(block, owner, carried.result);
    }

    /// A result becomes its transpose, and who used it uses the transpose of that.
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

    /// Puts instructions before one, or so many places behind that.
    fn insert(&mut self, block: Block, inst: Inst, new: &[Inst], behind: usize) {
        let insts = &mut self.function.blocks[block].insts;
        let place = insts.iter().position(|other| *other == inst).expect("it stands in this block") + behind;
        insts.splice(place..place, new.iter().copied());
    }
}

fn transposed(ty: &Type) -> Type {
    let shape: Shape = ty.shape.iter().rev().copied().collect();
    ty.with_shape(shape)
}
