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

use cranelift_entity::packed_option::PackedOption;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, BlockData, Definition, Dtype, ElementwiseFn, Function, Inst, Literal, Location, Module, Op,
    OpFamily, Shape, Type, Value,
};
use tilewright_opt::{Options, optimize};

use super::boxes::Affine;
use super::join_sinking;
use super::mma_selection::{self, places};
use crate::cost_model::{DEPTH_SPLIT_REGISTERS, DEPTH_SPLIT_ROWS};
use crate::layout_rules::LANES;
use crate::remarks::{self, Because};
use crate::target::GpuTarget;

/// Lanes of a warp that lie along N.
const GROUPS: u32 = 8;

/// Splits the products of a kernel that are faster so.
pub fn split(module: &mut Module, target: GpuTarget, num_warps: u32) {
    let entry = module.entry;
    let function = &mut module.functions[entry];
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
        let (location, b) = (function.insts[inst].location, function.insts[inst].operands[1]);
        join_sinking::sink(function, block, b);
        Splitting { function, location }.product(block, inst, parts);
        found = true;
    }
    if found {
        // Shapes of shapes.
        optimize(module, &Options::default(), &mut |_, _| {});
    }
}

/// How a product is split.
#[derive(Clone, Copy)]
struct Parts {
    /// Parts of K.
    count: u32,
    /// Columns that lie next to each other come so many after each other.
    groups: u32,
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
        let fits = count > 1 && n >= GROUPS * along_n && m * n / along_n <= DEPTH_SPLIT_REGISTERS * LANES;
        if !fits || m > DEPTH_SPLIT_ROWS || !is_computed(function, block, right) {
            return None;
        }
        let (owner, sum) = carried(function, block, inst, sum)?;
        Some(Self { count, groups: GROUPS * along_n, owner, sum })
    }
}

/// The loop that carries a sum which begins at zero and is used for nothing else.
fn carried(function: &Function, block: Block, product: Inst, sum: Value) -> Option<(Inst, Value)> {
    let Definition::Parameter(home, _) = function.values[sum].definition else { return None };
    let owner = function.insts.keys().find(|other| function.insts[*other].regions.contains(&block));
    let owner = owner.filter(|_| home == block)?;
    let Op::For { .. } = function.insts[owner].op else { return None };
    let carried = function.carried_by(owner, sum)?;
    let result = function.insts[product].results[0];
    let uses = |value: Value| {
        let mut uses = 0;
        function.walk(function.entry, &mut |inst| {
            uses += function.insts[inst].operands.iter().filter(|operand| **operand == value).count();
        });
        uses
    };
    let is_alone = carried.yielded[..] == [result] && uses(sum) == 1 && uses(result) == 1;
    (is_alone && is_zero(function, carried.initial?)).then_some((owner, sum))
}

fn is_zero(function: &Function, value: Value) -> bool {
    function.defining_inst(value).is_some_and(|inst| match &function.insts[inst].op {
        Op::Constant { value } => Some(*value) == Literal::float(Dtype::F32, 0.0),
        Op::Splat { .. } => is_zero(function, function.insts[inst].operands[0]),
        // tidy: wildcard because other sums are computed
        _ => false,
    })
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
    last.is_some() && Affine::new(function).contiguous_axis(pointers) == last
}

struct Splitting<'f> {
    function: &'f mut Function,
    location: PackedOption<Location>,
}

impl Splitting<'_> {
    fn product(&mut self, block: Block, inst: Inst, parts: Parts) {
        let Parts { count, groups, owner, sum } = parts;
        let [left, right] = [0, 1].map(|place: usize| self.function.insts[inst].operands[place]);
        let result = self.function.insts[inst].results[0];
        let ty = self.function.ty(result).clone();
        let (m, n, k) = (ty.shape[0], ty.shape[1], self.function.ty(right).shape[0]);
        let mut before = Vec::new();
        let left = self.reshape(&mut before, left, &[m, count, k / count]);
        let left = self.transpose(&mut before, left, &[1, 0, 2]);
        let right = self.reshape(&mut before, right, &[count, k / count, groups, n / groups]);
        let right = self.transpose(&mut before, right, &[0, 1, 3, 2]);
        let right = self.reshape(&mut before, right, &[count, k / count, n]);
        self.function.insts[inst].operands = smallvec![left, right, sum];
        self.insert(block, inst, &before, 0);
        let wide = ty.with_shape(Shape::from([count, m, n]));
        self.function.values[result].ty = wide.clone();
        self.function.values[sum].ty = wide.clone();
        self.sum(owner, sum, &wide, groups);
    }

    /// What a loop begins with, and what comes of it.
    fn sum(&mut self, owner: Inst, parameter: Value, wide: &Type, groups: u32) {
        let carried = self.function.carried_by(owner, parameter).expect("the loop carries the sum");
        let is_home = |function: &Function, block: &Block| function.blocks[*block].insts.contains(&owner);
        let block = self.function.blocks.keys().find(|block| is_home(self.function, block));
        let block = block.expect("a loop is in a block");
        let mut before = Vec::new();
        let zero = Literal::float(Dtype::F32, 0.0).expect("fp32 has a zero");
        let zero =
            self.emit(&mut before, Op::Constant { value: zero }, smallvec![], Type::scalar(Dtype::F32));
        let zeros =
            self.emit(&mut before, Op::Splat { shape: wide.shape.clone() }, smallvec![zero], wide.clone());
        self.insert(block, owner, &before, 0);
        let data = &mut self.function.insts[owner];
        let place = data.results.iter().position(|result| *result == carried.result).expect("it is a result");
        let first = data.operands.len() - data.results.len();
        data.operands[first + place] = zeros;
        let result = carried.result;
        self.function.values[result].ty = wide.clone();
        let (m, n) = (wide.shape[1], wide.shape[2]);
        let mut behind = Vec::new();
        let sum = self.added_up(&mut behind, result, &wide.with_shape(Shape::from([m, n])));
        let columns = self.reshape(&mut behind, sum, &[m, n / groups, groups]);
        let columns = self.transpose(&mut behind, columns, &[0, 2, 1]);
        let new = self.reshape(&mut behind, columns, &[m, n]);
        let name = self.function.values[result].name.clone();
        self.function.values[new].name = name;
        for (other, data) in &mut self.function.insts {
            if !behind.contains(&other) {
                data.operands
                    .iter_mut()
                    .filter(|operand| **operand == result)
                    .for_each(|operand| *operand = new);
            }
        }
        self.insert(block, owner, &behind, 1);
    }

    /// The parts added up.
    fn added_up(&mut self, out: &mut Vec<Inst>, parts: Value, ty: &Type) -> Value {
        let region = self.function.blocks.push(BlockData::default());
        let scalar = Type::scalar(Dtype::F32);
        let pair = [(); 2].map(|()| self.function.add_parameter(region, scalar.clone(), None));
        let op = Op::Elementwise { function: ElementwiseFn::Add };
        let add =
            self.function.create_inst(op, smallvec![pair[0], pair[1]], smallvec![], [scalar], self.location);
        let both = self.function.insts[add].results[0];
        let end = self.function.create_inst(Op::Yield {}, smallvec![both], smallvec![], [], self.location);
        self.function.blocks[region].insts = vec![add, end];
        let op = Op::Reduce { axis: 0 };
        let inst =
            self.function.create_inst(op, smallvec![parts], smallvec![region], [ty.clone()], self.location);
        out.push(inst);
        self.function.insts[inst].results[0]
    }

    fn reshape(&mut self, out: &mut Vec<Inst>, value: Value, shape: &[u32]) -> Value {
        let shape: Shape = shape.iter().copied().collect();
        let ty = self.function.ty(value).with_shape(shape.clone());
        self.emit(out, Op::Reshape { shape }, smallvec![value], ty)
    }

    fn transpose(&mut self, out: &mut Vec<Inst>, value: Value, axes: &[usize]) -> Value {
        let ty = self.function.ty(value);
        let shape: Shape = axes.iter().map(|axis| ty.shape[*axis]).collect();
        let ty = ty.with_shape(shape);
        let op = Op::Transpose { permutation: axes.iter().map(|axis| *axis as i64).collect() };
        self.emit(out, op, smallvec![value], ty)
    }

    fn emit(&mut self, out: &mut Vec<Inst>, op: Op, operands: SmallVec<[Value; 4]>, ty: Type) -> Value {
        let inst = self.function.create_inst(op, operands, smallvec![], [ty], self.location);
        out.push(inst);
        self.function.insts[inst].results[0]
    }

    /// Puts instructions before one, or so many places behind that.
    fn insert(&mut self, block: Block, inst: Inst, new: &[Inst], behind: usize) {
        let insts = &mut self.function.blocks[block].insts;
        let place = insts.iter().position(|other| *other == inst).expect("it stands in this block") + behind;
        insts.splice(place..place, new.iter().copied());
    }
}
