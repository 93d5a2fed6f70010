//! Splits K across warps in dots with few rows and a computed operand B. Example: B has dequantized
//! weights of 8 or 4 bits.
//!
//! Each warp computes its own rows of B in registers, without shared memory. Instructions of one
//! iteration accumulate in different columns, so they do not wait for each other.
//!
//! ```text
//! for %k carry %acc = %zero {                  for %k carry %acc = %zeros {
//!   %d = dot %a, %b, %acc                        %d = dot parts %a, parts %b, %acc
//!   yield %d                          ──>        yield %d
//! } : %c                                       } : %e ; %c = columns (reduce %e)
//! ```
//! `parts` splits K into a new axis, and `columns` permutes the columns of the accumulator. In the
//! dot, consecutive columns of a lane are `groups` apart, 8 times the number of warps along N. So
//! the pass permutes the columns of B in the loop, and those of the accumulator back after the
//! loop. The lane then loads consecutive elements of B as words.
//!
//! A loop with short iterations also gets a partition for its copies (`passes/partition_warps.rs`).
//! For this, the launcher must add warps and make tensor maps.

use rustc_hash::FxHashMap;
use smallvec::smallvec;
use tilewright_ir::analysis::scalar_evolution::ScalarEvolution;
use tilewright_ir::{
    Block, BlockData, Cursor, Definition, Dtype, ElementwiseFn, Function, Inst, Literal, Op, OpFamily,
    Parents, Shape, Type, Uses, Value, constant_of,
};

use super::mma_selection::{self, collect_dots};
use super::sink_joins;
use crate::launcher::Launcher;
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::GpuTarget;

/// The number of lanes of a warp along N.
const GROUPS: u32 = 8;

/// Splits K across warps where this is faster. Returns whether it changed a dot.
pub fn split_k(function: &mut Function, target: GpuTarget, num_warps: u32, launcher: Launcher<'_>) -> bool {
    let mut found = false;
    for (block, inst) in collect_dots(function) {
        let Some(split) = KSplit::of(function, block, inst, target, num_warps) else { continue };
        let reason = "each warp computes only its own part of B, in registers";
        remarks::about(
            "split_k_across_warps",
            function,
            inst,
            || "dot".into(),
            || RemarkReason::done(format!("K split across warps in {} parts", split.parts), reason),
        );
        let b = function.insts[inst].operands[1];
        sink_joins::sink_joins(function, block, b);
        if launcher.adds_warps
            && launcher.makes_tensor_maps
            && split.computed <= target.tuning.specialized_elements
        {
            request_specialization(function, split);
        }
        KSplitting { cursor: Cursor::before(function, block, inst) }.split(inst, split);
        found = true;
    }
    // `optimize` simplifies chains of reshapes and transposes.
    found
}

fn request_specialization(function: &mut Function, split: KSplit) {
    let KSplit { owner, computed, .. } = split;
    let Op::For { options } = &mut function.insts[owner].op else { return };
    if std::mem::replace(&mut options.warp_specialize, true) {
        return;
    }
    let reason = format!(
        "a thread computes {computed} elements of B in an iteration, too few to hide the start of copies"
    );
    let because = || RemarkReason::done("a partition of warps copies", reason);
    remarks::about("split_k_across_warps", function, owner, || "loop".into(), because);
}

#[derive(Clone, Copy)]
struct KSplit {
    /// The number of parts of K.
    parts: u32,
    /// The number of lanes along N in all warps. Neighbors in a row of B become columns whose
    /// indices differ by this number.
    groups: u32,
    computed: u32,
    /// The loop that carries the accumulator.
    owner: Inst,
    /// The parameter of the loop that holds the accumulator.
    accumulator: Value,
}

impl KSplit {
    fn of(function: &Function, block: Block, inst: Inst, target: GpuTarget, num_warps: u32) -> Option<Self> {
        let data = &function.insts[inst];
        let &[left, right, accumulator] = &data.operands[..] else { return None };
        let mma = mma_selection::half_precision_mma_sync(function, inst, target)?;
        let shape = &function.ty(right).shape;
        let (m, n, k) = (function.ty(left).shape[0], shape[1], shape[0]);
        let parts = num_warps.min(k / mma.k);
        let along_n = num_warps / parts.max(1);
        let fits = parts > 1
            && n >= GROUPS * along_n
            && m * n / along_n <= target.tuning.depth_split_registers * LANES;
        if !fits || m > target.tuning.depth_split_rows || !is_computed(function, block, right) {
            return None;
        }
        let owner = accumulating_loop(function, block, inst, accumulator)?;
        let computed = n * k / (num_warps * LANES);
        Some(Self { parts, groups: GROUPS * along_n, computed, owner, accumulator })
    }
}

/// Returns the loop that carries an accumulator.
///
/// The accumulator must start at zero, only the dot uses it, and only the yield uses the dot's
/// result.
fn accumulating_loop(function: &Function, block: Block, dot: Inst, accumulator: Value) -> Option<Inst> {
    let Definition::Parameter(home, _) = function.values[accumulator].definition else { return None };
    let owner = Parents::new(function).owner(block).filter(|_| home == block)?;
    let Op::For { .. } = function.insts[owner].op else { return None };
    let carried = function.carried_by(owner, accumulator)?;
    let result = function.insts[dot].results[0];
    let uses = Uses::new(function);
    let is_only_use =
        carried.yielded[..] == [result] && uses.only(accumulator).is_some() && uses.only(result).is_some();
    (is_only_use && is_zero(function, carried.initial?)).then_some(owner)
}

fn is_zero(function: &Function, value: Value) -> bool {
    constant_of(function, value).is_some_and(|value| Some(value) == Literal::float(Dtype::F32, 0.0))
}

/// Returns whether an operand is computed elementwise from loads of this block. The largest load
/// must be contiguous along the last axis. It must load integers, or fewer bytes than the operand
/// has.
///
/// Other operands go through shared memory, which costs fewer registers and instructions.
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
                if largest.is_none_or(|(max, _)| bytes > max) {
                    largest = Some((bytes, data.operands[0]));
                }
                continue;
            }
            OpFamily::Pointwise => is_computed = true,
            OpFamily::Shape | OpFamily::Identity | OpFamily::Source => {}
            // tidy: wildcard because other ops move elements to other threads
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
    let is_compressed = |(bytes, pointers): &(usize, Value)| {
        let is_int = function.ty(*pointers).element.pointee().is_some_and(Dtype::is_int);
        is_int || *bytes < ty.shape.elements() * ty.element.bytes()
    };
    let Some((_, pointers)) = largest.filter(is_compressed).filter(|_| is_computed) else { return false };
    let last = function.ty(pointers).rank().checked_sub(1);
    last.is_some() && ScalarEvolution::exact(function).contiguous_axis(pointers) == last
}

struct KSplitting<'f> {
    cursor: Cursor<'f>,
}

impl KSplitting<'_> {
    fn split(&mut self, inst: Inst, split: KSplit) {
        let KSplit { parts, groups, owner, accumulator, .. } = split;
        let [left, right] = [0, 1].map(|operand: usize| self.cursor.function.insts[inst].operands[operand]);
        let result = self.cursor.function.insts[inst].results[0];
        let ty = self.cursor.function.ty(result).clone();
        let (m, n, k) = (ty.shape[0], ty.shape[1], self.cursor.function.ty(right).shape[0]);
        let left = self.reshape(left, &[m, parts, k / parts]);
        let left = self.transpose(left, &[1, 0, 2]);
        let right = self.reshape(right, &[parts, k / parts, groups, n / groups]);
        let right = self.transpose(right, &[0, 1, 3, 2]);
        let right = self.reshape(right, &[parts, k / parts, n]);
        self.cursor.function.insts[inst].operands = smallvec![left, right, accumulator];
        let wide = ty.with_shape(Shape::from([parts, m, n]));
        self.cursor.function.values[result].ty = wide.clone();
        self.cursor.function.values[accumulator].ty = wide.clone();
        self.widen_carried(owner, accumulator, &wide, groups);
    }

    /// Makes a loop carry an accumulator for each part of K. Adds them after the loop.
    fn widen_carried(&mut self, owner: Inst, parameter: Value, wide: &Type, groups: u32) {
        let carried = self.cursor.function.carried_by(owner, parameter);
        let carried = carried.expect("the loop carries the accumulator");
        let block = Parents::new(self.cursor.function).block(owner).expect("a loop is in a block");
        self.cursor.go_before(block, owner);
        let zero = self.cursor.constant(Literal::float(Dtype::F32, 0.0).expect("fp32 has a zero"));
        let zeros = self.cursor.value(Op::Splat { shape: wide.shape.clone() }, &[zero], wide.clone());
        let data = &mut self.cursor.function.insts[owner];
        let index = data.results.iter().position(|result| *result == carried.result);
        let first_carried = data.operands.len() - data.results.len();
        data.operands[first_carried + index.expect("a carried value has a result")] = zeros;
        let result = carried.result;
        self.cursor.function.values[result].ty = wide.clone();
        let (m, n) = (wide.shape[1], wide.shape[2]);
        self.cursor.go_after(block, owner);
        let first = self.cursor.position().index;
        let accumulator = self.add_parts(result, &wide.with_shape(Shape::from([m, n])));
        let columns = self.reshape(accumulator, &[m, n / groups, groups]);
        let columns = self.transpose(columns, &[0, 2, 1]);
        let new = self.reshape(columns, &[m, n]);
        let after = self.cursor.preceding()[first..].to_vec();
        self.cursor.function.copy_name(result, new);
        let replaced = FxHashMap::from_iter([(result, new)]);
        self.cursor.function.replace_uses(&replaced, |other| after.contains(&other));
    }

    fn add_parts(&mut self, parts: Value, ty: &Type) -> Value {
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
