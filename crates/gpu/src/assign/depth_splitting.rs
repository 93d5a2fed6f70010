//! Products of few rows by what is computed from a load, such as weights of 8 or 4 bits, are computed in parts of K, one a warp.
//!
//! Each warp then computes its own rows of B for itself: none goes through shared memory on its way from the numbers to the
//! instruction, no two warps load the same part of A, and the instructions of an iteration, which sum up in different columns,
//! do not wait for each other.
//!
//! ```text
//! for %k carry %sum = %zero {                  for %k carry %sum = %zeros {
//!   %d = dot %a, %b, %sum                        %d = dot parts %a, parts %b, %sum
//!   yield %d                          ──>        yield %d
//! } : %c                                       } : %e ; %c = columns (reduce %e)
//! ```
//! A lane has one column of eight. Which ones these are is free, as long as the sum is put in order behind the loop: here those
//! that a lane needs of a row of B lie next to each other, so that it loads them as words.
//!
//! Where an iteration is short, warps of their own copy for it (`passes/partition_warps.rs`), though the loop does not ask for them.

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{
    Block, BlockData, Cursor, Definition, Dtype, ElementwiseFn, Function, Inst, Literal, Op, OpFamily,
    Parents, Shape, Type, Uses, Value, constant_of,
};

use super::join_sinking;
use super::mma_selection::{self, places};
use crate::launcher::Launcher;
use crate::remarks::{self, Because};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::GpuTarget;

/// Lanes of a warp that lie along N.
const GROUPS: u32 = 8;

/// Splits the products of a kernel that are faster so; true if there are any.
pub fn split(function: &mut Function, target: GpuTarget, num_warps: u32, launcher: Launcher<'_>) -> bool {
    let mut found = false;
    for (block, inst) in places(function) {
        let Some(parts) = Parts::of(function, block, inst, target, num_warps) else { continue };
        let reason = "each warp computes its part of B for itself, in registers";
        remarks::about(
            "depth_splitting",
            function,
            inst,
            || "dot".into(),
            || Because::done(format!("computed in {} parts of K", parts.count), reason),
        );
        let b = function.insts[inst].operands[1];
        join_sinking::sink(function, block, b);
        if launcher.adds_warps
            && launcher.makes_tensor_maps
            && parts.made <= target.tuning.specialized_elements
        {
            specialize(function, parts);
        }
        Splitting { cursor: Cursor::before(function, block, inst) }.product(inst, parts);
        found = true;
    }
    // `optimize` simplifies shapes of shapes.
    found
}

/// Asks for warps that copy for the loop of a product.
fn specialize(function: &mut Function, parts: Parts) {
    let Parts { owner, made, .. } = parts;
    let Op::For { options } = &mut function.insts[owner].op else { return };
    if std::mem::replace(&mut options.warp_specialize, true) {
        return;
    }
    let reason =
        format!("a thread makes {made} elements of B in an iteration, too few to hide how copies are begun");
    let because = || Because::done("warps of their own for copies", reason);
    remarks::about("depth_splitting", function, owner, || "loop".into(), because);
}

/// How a product is split.
#[derive(Clone, Copy)]
struct Parts {
    /// Parts of K.
    count: u32,
    /// Columns that lie next to each other come so many after each other.
    groups: u32,
    /// Elements of B that a thread makes in an iteration.
    made: u32,
    /// The loop that carries the sum, and the sum in it.
    owner: Inst,
    sum: Value,
}

impl Parts {
    fn of(function: &Function, block: Block, inst: Inst, target: GpuTarget, num_warps: u32) -> Option<Self> {
        let data = &function.insts[inst];
        let &[left, right, sum] = &data.operands[..] else { return None };
        let mma = mma_selection::of_one_warp(function, inst, target)?;
        let shape = &function.ty(right).shape;
        let (m, n, k) = (function.ty(left).shape[0], shape[1], shape[0]);
        let count = num_warps.min(k / mma.k);
        let along_n = num_warps / count.max(1);
        let fits = count > 1
            && n >= GROUPS * along_n
            && m * n / along_n <= target.tuning.depth_split_registers * LANES;
        if !fits || m > target.tuning.depth_split_rows || !is_computed(function, block, right) {
            return None;
        }
        let (owner, sum) = carried(function, block, inst, sum)?;
        let made = n * k / (num_warps * LANES);
        Some(Self { count, groups: GROUPS * along_n, made, owner, sum })
    }
}

/// The loop that carries a sum which begins at zero and is used for nothing else.
fn carried(function: &Function, block: Block, product: Inst, sum: Value) -> Option<(Inst, Value)> {
    let Definition::Parameter(home, _) = function.values[sum].definition else { return None };
    let owner = Parents::new(function).owner(block).filter(|_| home == block)?;
    let Op::For { .. } = function.insts[owner].op else { return None };
    let carried = function.carried_by(owner, sum)?;
    let result = function.insts[product].results[0];
    let uses = Uses::new(function);
    let is_alone = carried.yielded[..] == [result] && uses.only(sum).is_some() && uses.only(result).is_some();
    (is_alone && is_zero(function, carried.initial?)).then_some((owner, sum))
}

fn is_zero(function: &Function, value: Value) -> bool {
    constant_of(function, value).is_some_and(|value| Some(value) == Literal::float(Dtype::F32, 0.0))
}

/// Whether an operand is computed, element by element, from loads of this block, of which the largest is contiguous along the
/// last axis, and is of integers or has fewer bytes: of other numbers no more goes through shared memory on its way than is
/// loaded, and the sums of all warps take more registers and instructions than that.
fn is_computed(function: &Function, block: Block, operand: Value) -> bool {
    let (mut work, mut seen) = (vec![operand], vec![operand]);
    let (mut largest, mut is_computed) = (None, false);
    while let Some(value) = work.pop() {
        let Some(inst) = function.defining_inst(value) else { continue };
        let data = &function.insts[inst];
        match data.op.family() {
            _ if function.ty(value).is_scalar() || !function.blocks[block].insts.contains(&inst) => continue,
            OpFamily::Load => {
                let ty = function.ty(value);
                let bytes = ty.shape.elements() * ty.element.bytes();
                if largest.is_none_or(|(most, _)| bytes > most) {
                    largest = Some((bytes, data.operands[0]));
                }
                continue;
            }
            OpFamily::Pointwise => is_computed = true,
            OpFamily::Shape | OpFamily::Identity | OpFamily::Source => {}
            // tidy: wildcard because others change threads
            _ => return false,
        }
        for operand in &data.operands {
            if !seen.contains(operand) {
                seen.push(*operand);
                work.push(*operand);
            }
        }
    }
    let ty = function.ty(operand);
    let are_weights = |(bytes, pointers): &(usize, Value)| {
        let is_int = function.ty(*pointers).element.pointee().is_some_and(Dtype::is_int);
        is_int || *bytes < ty.shape.elements() * ty.element.bytes()
    };
    let Some((_, pointers)) = largest.filter(are_weights).filter(|_| is_computed) else { return false };
    let last = function.ty(pointers).rank().checked_sub(1);
    last.is_some() && ScalarEvolution::exact(function).contiguous_axis(pointers) == last
}

struct Splitting<'f> {
    cursor: Cursor<'f>,
}

impl Splitting<'_> {
    fn product(&mut self, inst: Inst, parts: Parts) {
        let Parts { count, groups, owner, sum, .. } = parts;
        let [left, right] = [0, 1].map(|place: usize| self.cursor.function.insts[inst].operands[place]);
        let result = self.cursor.function.insts[inst].results[0];
        let ty = self.cursor.function.ty(result).clone();
        let (m, n, k) = (ty.shape[0], ty.shape[1], self.cursor.function.ty(right).shape[0]);
        let left = self.reshape(left, &[m, count, k / count]);
        let left = self.transpose(left, &[1, 0, 2]);
        let right = self.reshape(right, &[count, k / count, groups, n / groups]);
        let right = self.transpose(right, &[0, 1, 3, 2]);
        let right = self.reshape(right, &[count, k / count, n]);
        self.cursor.function.insts[inst].operands = smallvec![left, right, sum];
        let wide = ty.with_shape(Shape::from([count, m, n]));
        self.cursor.function.values[result].ty = wide.clone();
        self.cursor.function.values[sum].ty = wide.clone();
        self.sum(owner, sum, &wide, groups);
    }

    /// What a loop begins with, and what comes of it.
    fn sum(&mut self, owner: Inst, parameter: Value, wide: &Type, groups: u32) {
        let carried = self.cursor.function.carried_by(owner, parameter).expect("the loop carries the sum");
        let block = Parents::new(self.cursor.function).block(owner).expect("a loop is in a block");
        self.cursor.go_before(block, owner);
        let zero = self.cursor.constant(Literal::float(Dtype::F32, 0.0).expect("fp32 has a zero"));
        let zeros = self.cursor.value(Op::Splat { shape: wide.shape.clone() }, &[zero], wide.clone());
        let data = &mut self.cursor.function.insts[owner];
        let place = data.results.iter().position(|result| *result == carried.result).expect("it is a result");
        let carried_from = data.operands.len() - data.results.len();
        data.operands[carried_from + place] = zeros;
        let result = carried.result;
        self.cursor.function.values[result].ty = wide.clone();
        let (m, n) = (wide.shape[1], wide.shape[2]);
        self.cursor.go_after(block, owner);
        let first = self.cursor.position().index;
        let sum = self.added_up(result, &wide.with_shape(Shape::from([m, n])));
        let columns = self.reshape(sum, &[m, n / groups, groups]);
        let columns = self.transpose(columns, &[0, 2, 1]);
        let new = self.reshape(columns, &[m, n]);
        let after = self.cursor.preceding()[first..].to_vec();
        self.cursor.function.copy_name(result, new);
        let replaced = FxHashMap::from_iter([(result, new)]);
        self.cursor.function.replace_uses(&replaced, |other| after.contains(&other));
    }

    /// The parts added up.
    fn added_up(&mut self, parts: Value, ty: &Type) -> Value {
        let region = self.cursor.function.blocks.push(BlockData::default());
        let scalar = Type::scalar(Dtype::F32);
        let pair = [(); 2].map(|()| self.cursor.function.add_parameter(region, scalar.clone(), None));
        let outer = self.cursor.enter(region);
        let both = self.cursor.elementwise(ElementwiseFn::Add, &pair, scalar);
        self.cursor.emit(Op::Yield {}, &[both], []);
        self.cursor.go_to(outer);
        let op = Op::Reduce { axis: 0 };
        let inst = self.cursor.emit_with_regions(op, &[parts], smallvec![region], [ty.clone()]);
        self.cursor.function.insts[inst].results[0]
    }

    fn reshape(&mut self, value: Value, shape: &[u32]) -> Value {
        let shape: Shape = shape.iter().copied().collect();
        let ty = self.cursor.function.ty(value).with_shape(shape.clone());
        self.cursor.value(Op::Reshape { shape }, &[value], ty)
    }

    fn transpose(&mut self, value: Value, axes: &[usize]) -> Value {
        let ty = self.cursor.function.ty(value);
        let shape: Shape = axes.iter().map(|axis| ty.shape[*axis]).collect();
        let ty = ty.with_shape(shape);
        let op = Op::Transpose { permutation: axes.iter().map(|axis| *axis as i64).collect() };
        self.cursor.value(op, &[value], ty)
    }
}
