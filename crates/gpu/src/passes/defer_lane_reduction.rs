//! Defers the reduction across lanes of a sum that a loop carries. In the loop, each lane adds its
//! own elements. One reduction after the loop adds the lanes' sums.
//!
//! ```text
//! for … carry %t {                    for … carry %u {
//!   // across lanes                     // in each thread
//!   %s = reduce %p, add                 %s = reduce (reshape %p), add
//!   %n = add (mul %t, %d), %s     =>    %n = add (mul %u, broadcast %d), %s
//! }                                   } ; %t = reduce %u, add
//! ```
//! No iteration waits for shuffles. Only the order of the additions changes. The factor must be
//! between 0 and 1: 0 times an infinity would be NaN in a lane whose sum is 0. The initial value is
//! divided evenly among the lanes. This is exact, because the number of lanes is a power of two.

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, Definition, Dtype, ElementwiseFn, Inst, Literal, Parents, Uses, Value, ValueData,
};
use tilewright_layout::{Input, Layout};

use crate::idioms::{FactorBound, is_correction_factor};
use crate::remarks::{self, RemarkReason};
use tilewright_gpu_ir::layout_rules::{operand_layout, reduced_layout};
use tilewright_gpu_ir::{Function, GpuOp, Header, Module, Op, Scope, Type};

/// A sum that a loop carries.
struct CarriedSum {
    owner: Inst,
    /// The index of the carried value.
    index: usize,
    /// The reduction of the iteration.
    reduction: Inst,
    /// The multiplication of the previous sum, and its factor; `None` without scaling.
    scaling: Option<(Inst, Value)>,
    /// The addition of the reduction and the previous sum.
    addition: Inst,
    /// The three extents of the split axis: high register bits, lanes, and low register bits.
    runs: [u32; 3],
}

pub fn defer_lane_reduction(module: &mut Module) {
    let Module { header, functions, entry, .. } = module;
    let function = &mut functions[*entry];
    let uses = Uses::new(function);
    let mut loops = Vec::new();
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        if let Op::Tile(ir::Op::For { .. }) = data.op {
            loops.push(inst);
        }
    });
    for owner in loops {
        for index in 0..function.insts[owner].results.len() {
            if let Some(found) = find(header, function, &uses, owner, index) {
                let because = || {
                    let reason =
                        "the loop only adds it up: a reduction after the loop adds the sums of the lanes";
                    RemarkReason::done("not reduced across lanes", reason)
                };
                let subject = || remarks::subject(function, found.reduction, None);
                remarks::about("defer_lane_reduction", function, found.reduction, subject, because);
                SumRewriter { header, function, inst: owner }.rewrite(&found);
            }
        }
    }
}

/// Returns the carried value at an index, if its reduction can be deferred.
fn find(header: &Header, function: &Function, uses: &Uses, owner: Inst, index: usize) -> Option<CarriedSum> {
    let body = function.insts[owner].regions[0];
    let carried = function.blocks[body].parameters[index + 1];
    let is_here = |inst: Inst| function.blocks[body].insts.contains(&inst);
    let used_once = |value: Value| uses.only(value).is_some();
    let made = |value: Value| function.defining_inst(value).filter(|inst| is_here(*inst) && used_once(value));
    let operands = |inst: Option<Inst>, expected: ElementwiseFn| {
        let data = &function.insts[inst?];
        let is_it = matches!(data.op, Op::Gpu(GpuOp::Elementwise { function, .. }) if function == expected);
        is_it.then(|| [data.operands[0], data.operands[1]])
    };
    let addition = made(function.yielded(body)[index])?;
    let parts = operands(Some(addition), ElementwiseFn::Add)?;
    let is_reduction = |value: Value| {
        made(value).filter(|inst| matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Reduce { .. })))
    };
    let (reduction, before) = [[0, 1], [1, 0]]
        .into_iter()
        .find_map(|[one, other]| Some((is_reduction(parts[one])?, parts[other])))?;
    let scaling = if before == carried {
        None
    } else {
        let factors = operands(made(before), ElementwiseFn::Mul)?;
        let factor = *factors.iter().find(|value| **value != carried)?;
        let is_small = is_correction_factor(function, factor, FactorBound::AtMostOne, &mut Vec::new());
        Some((made(before).filter(|_| factors.contains(&carried) && is_small)?, factor))
    };
    let runs = runs(header, function, reduction)?;
    (used_once(carried) && is_sum(function, reduction)).then_some(CarriedSum {
        owner,
        index,
        reduction,
        scaling,
        addition,
        runs,
    })
}

fn is_sum(function: &Function, reduction: Inst) -> bool {
    let data = &function.insts[reduction];
    let insts = &function.blocks[data.regions[0]].insts;
    let adds = |inst: &Inst| {
        matches!(function.insts[*inst].op, Op::Gpu(GpuOp::Elementwise { function: ElementwiseFn::Add, .. }))
    };
    let tile = function.ty(data.operands[0]).as_registers();
    data.operands.len() == 1
        && tile.is_some_and(|tile| tile.dtype() == Some(Dtype::F32))
        && insts.len() == 2
        && adds(&insts[0])
}

/// Returns the split of a reduction's axis. Lanes hold consecutive bits of the index, and registers
/// hold the others.
fn runs(header: &Header, function: &Function, reduction: Inst) -> Option<[u32; 3]> {
    let data = &function.insts[reduction];
    let Op::Gpu(GpuOp::Reduce { axis, scope: Scope::Block, .. }) = data.op else { return None };
    let ty = function.ty(data.operands[0]);
    function.ty(data.results[0]).layout()?;
    let layout = header.layouts.get(ty.layout()?);
    let axis = axis as usize;
    let along = |input: Input| {
        layout.bases(input).iter().fold(0, |bits, image| bits | layout.output().coordinate(*image, axis))
    };
    let [registers, lanes, warps] = [Input::Register, Input::Lane, Input::Warp].map(along);
    let extent = ty.as_registers()?.shape[axis];
    let low = 1 << lanes.trailing_zeros().min(31);
    let count = (lanes / low).wrapping_add(1);
    let is_run = lanes != 0 && count.is_power_of_two();
    let is_cut = registers & lanes == 0 && registers | lanes == extent - 1 && warps == 0;
    (is_run && is_cut).then(|| [extent / (low * count), count, low])
}

struct SumRewriter<'m> {
    header: &'m mut Header,
    function: &'m mut Function,
    /// The instruction whose location the new instructions get.
    inst: Inst,
}

impl SumRewriter<'_> {
    fn create(
        &mut self,
        op: impl Into<Op>,
        operands: &[Value],
        regions: SmallVec<[Block; 2]>,
        ty: Type,
    ) -> Inst {
        let location = self.function.insts[self.inst].location;
        self.function.create_inst(op.into(), operands.iter().copied().collect(), regions, [ty], location)
    }

    fn result(&self, inst: Inst) -> Value {
        self.function.insts[inst].results[0]
    }

    fn tile(&mut self, shape: &[u32], layout: Layout) -> Type {
        let tile = ir::Type::tile(Dtype::F32, shape.iter().copied().collect::<ir::Shape>());
        Type::registers(tile, Some(self.header.layouts.add(layout)))
    }

    fn layout(&self, value: Value) -> Layout {
        let id = self.function.ty(value).layout().expect("the value is a tile");
        self.header.layouts.get(id).clone()
    }

    fn shape(&self, value: Value) -> SmallVec<[u32; 4]> {
        self.function.ty(value).as_registers().expect("the value is a tile").shape.iter().copied().collect()
    }

    /// Rewrites the loop and adds the reduction after it.
    fn rewrite(&mut self, found: &CarriedSum) {
        let Op::Gpu(GpuOp::Reduce { axis, .. }) = self.function.insts[found.reduction].op else {
            unreachable!("`find` returns a reduction")
        };
        let body = self.function.insts[found.owner].regions[0];
        self.inst = found.reduction;
        let parts = self.in_threads(found, axis as usize);
        let own = self.result(*parts.last().expect("there are registers or lanes"));
        let (shape, layout) = (self.shape(own), self.layout(own));
        let ty = self.function.ty(own).clone();
        self.replace(body, found.reduction, &parts);
        let carried = self.function.blocks[body].parameters[found.index + 1];
        self.function.values[carried].ty = ty.clone();
        let mut new = Vec::new();
        let mut before = carried;
        if let Some((scaling, factor)) = found.scaling {
            let factor = self.spread(factor, axis, (&shape, &layout), &mut new);
            let op = GpuOp::Elementwise { function: ElementwiseFn::Mul, equal_registers: 0 };
            new.push(self.create(op, &[carried, factor], smallvec![], ty.clone()));
            before = self.result(*new.last().expect("the scaled sum"));
            self.replace(body, scaling, &[]);
        }
        let op = GpuOp::Elementwise { function: ElementwiseFn::Add, equal_registers: 0 };
        new.push(self.create(op, &[before, own], smallvec![], ty.clone()));
        let sum = self.result(*new.last().expect("the sum"));
        self.replace(body, found.addition, &new);
        let end = self.function.terminator(body).expect("a body yields");
        self.function.insts[end].operands[found.index] = sum;
        self.around(found, axis, (&shape, &layout, ty));
    }

    /// Divides the initial value among the lanes, and reduces after the loop.
    fn around(&mut self, found: &CarriedSum, axis: u32, (shape, layout, ty): (&[u32], &Layout, Type)) {
        let block = self.block_of(found.owner);
        let initial = self.function.insts[found.owner].operands[found.index + 3];
        let whole = self.function.ty(initial).clone();
        let part = Literal::float(Dtype::F32, 1.0 / f64::from(found.runs[1])).expect("fp32 is a float");
        let number = Type::scalar(ir::Type::scalar(Dtype::F32));
        let constant = self.create(ir::Op::Constant { value: part }, &[], smallvec![], number);
        let number = self.result(constant);
        let splat = ir::Op::Splat { shape: whole.as_registers().expect("the value is a tile").shape.clone() };
        let splat = self.create(splat, &[number], smallvec![], whole.clone());
        let part = self.result(splat);
        let op = GpuOp::Elementwise { function: ElementwiseFn::Mul, equal_registers: 0 };
        let product = self.create(op, &[initial, part], smallvec![], whole);
        let mut new = vec![constant, splat, product];
        let shared = self.result(product);
        let first = self.spread(shared, axis, (shape, layout), &mut new);
        self.function.insts[found.owner].operands[found.index + 3] = first;
        new.push(found.owner);
        // The new reduction defines the loop's old result, so its uses stay valid.
        let result = self.function.insts[found.owner].results[found.index];
        let definition = self.function.values[result].definition;
        let own = self.function.values.push(ValueData { ty, definition, name: None });
        self.function.insts[found.owner].results[found.index] = own;
        let region = self.function.insts[found.reduction].regions[0];
        let op = GpuOp::Reduce { axis, scope: Scope::Block, redux: false };
        let total = self.function.ty(result).clone();
        let reduction = self.create(op, &[own], smallvec![region], total);
        self.function.values[result].definition = Definition::Result(reduction, 0);
        self.function.insts[reduction].results = smallvec![result];
        new.push(reduction);
        self.replace(block, found.owner, &new);
    }

    /// Creates the reductions within threads.
    fn in_threads(&mut self, found: &CarriedSum, axis: usize) -> Vec<Inst> {
        let [high, count, low] = found.runs;
        let value = self.function.insts[found.reduction].operands[0];
        let mut shape = self.shape(value);
        let mut layout = self.layout(value);
        shape[axis] = low;
        shape.insert_many(axis, [high, count]);
        layout = layout.reshape(&shape);
        let ty = self.tile(&shape, layout.clone());
        let op = ir::Op::Reshape { shape: shape.iter().copied().collect::<ir::Shape>() };
        let mut new = vec![self.create(op, &[value], smallvec![], ty)];
        for axis in [axis + 2, axis] {
            let value = self.result(*new.last().expect("the list has an instruction"));
            layout = reduced_layout(&layout, axis as u32);
            shape.remove(axis);
            let ty = self.tile(&shape, layout.clone());
            let region = self.function.insts[found.reduction].regions[0];
            let region = self.function.clone_region(region);
            let op = GpuOp::Reduce { axis: axis as u32, scope: Scope::Block, redux: false };
            new.push(self.create(op, &[value], smallvec![region], ty));
        }
        new
    }

    /// Broadcasts a value of each row to the lanes of the row.
    fn spread(
        &mut self,
        value: Value,
        axis: u32,
        (shape, layout): (&[u32], &Layout),
        new: &mut Vec<Inst>,
    ) -> Value {
        let mut one: SmallVec<[u32; 4]> = shape.iter().copied().collect();
        one[axis as usize] = 1;
        let broadcast = ir::Op::Broadcast { shape: shape.iter().copied().collect::<ir::Shape>() };
        let from = ir::Type::tile(Dtype::F32, one.iter().copied().collect::<ir::Shape>());
        let inner = operand_layout(&broadcast, &from, layout).expect("the value is a tile");
        let ty = self.tile(&one, inner);
        new.push(self.create(ir::Op::ExpandDims { axis }, &[value], smallvec![], ty));
        let expanded = self.result(*new.last().expect("the list has an instruction"));
        let ty = self.tile(shape, layout.clone());
        new.push(self.create(broadcast, &[expanded], smallvec![], ty));
        self.result(*new.last().expect("the list has an instruction"))
    }

    fn block_of(&self, inst: Inst) -> Block {
        Parents::new(self.function).block(inst).expect("an instruction is in a block")
    }

    fn replace(&mut self, block: Block, old: Inst, new: &[Inst]) {
        let insts = &mut self.function.blocks[block].insts;
        let index = insts.iter().position(|inst| *inst == old).expect("the instruction is in this block");
        insts.splice(index..=index, new.iter().copied());
    }
}
