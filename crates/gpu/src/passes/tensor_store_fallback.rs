//! Stores by a tensor map of the kernel, or by threads if the map cannot.
//!
//! Only the running kernel knows this, so each store becomes a branch. All threads take the same
//! path:
//!
//! ```text
//!                                          %fits = rows end with a chunk, loads and stores of the loop do not overlap
//! while … {                                while … {
//!   …                                        …
//!   store %p, %x, %mask             ──>      if %fits and the box begins inside { … tensor_store %s, %map, %i, %j }
//! }                                          else { tensor_store_wait ; barrier ; store %p, %x, %mask }
//!                                          } ; tensor_store_wait ; barrier
//! ```
//! A map cannot express a store in three cases:
//!
//! - **Chunks:** a copy writes whole chunks of 16 bytes, and so past a row that ends within a
//!   chunk.
//! - **Start of the tensor:** a copy of a box that begins before the tensor traps.
//! - **Empty tensor:** it has no map.
//!
//! **Order.** Loaded pointers may point to any memory. Some loops access global memory only by maps
//! of the kernel. Before such a loop, the kernel compares the ranges of its loads and stores. If
//! they do not overlap, only the next copy and the end of the loop wait for a copy. In any other
//! loop, the thread waits at once.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::{SmallVec, smallvec};
use tilewright_ir as ir;
use tilewright_ir::{
    Block, BlockData, Cursor, Dtype, Effect, Element, ElementwiseFn, Inst, OpFamily, Operation, Parents,
    Rounding, Value,
};

use super::boxed::transposed;
use tilewright_gpu_ir::{Function, Gpu, GpuOp, Header, LaunchInteger, Op, TensorMapPlan, Type, UNBOUNDED};

/// The bytes of a chunk, the unit in which tensor copies write.
const CHUNK_BYTES: i64 = 16;

/// The scope of the kernel's tensor map around a store.
#[derive(Clone, Debug)]
pub(super) struct Around {
    /// The block where the map is made.
    pub block: Block,
    /// The instruction of this block that contains the store.
    pub inst: Inst,
    /// The instruction that makes the map.
    made: Inst,
    /// The instructions that make the maps of the loads of `inst`. `None` if the loop accesses
    /// global memory otherwise, or an extent of these maps is not bounded.
    loaded: Option<Vec<Inst>>,
}

impl Around {
    pub fn new(function: &Function, (store, mark): (Inst, Inst)) -> Option<Self> {
        let made = function.defining_inst(*function.insts[mark].operands.get(1)?)?;
        let parents = Parents::new(function);
        let block = parents.block(made)?;
        let inst = parents.ancestor_in(block, store)?;
        Some(Self { block, inst, made, loaded: None })
    }

    /// Finds the maps of the loads of the loop. `stores` are the stores that become tensor copies.
    pub fn look_through(&mut self, header: &Header, function: &Function, stores: &[Inst]) {
        let is_loop = function.insts[self.inst].op.info().family == OpFamily::Loop;
        let loaded = is_loop.then(|| loaded_maps(function, self.inst, stores)).flatten();
        let is_bounded = |made: &Inst| plan_of(header, function, *made).is_some_and(is_bounded);
        self.loaded = loaded.filter(|loaded| is_bounded(&self.made) && loaded.iter().all(is_bounded));
    }

    /// Returns whether the rest of the loop may run during the copy.
    pub fn runs_beside(&self) -> bool {
        self.loaded.is_some()
    }
}

/// Returns the instructions that make the maps of a loop's loads.
///
/// Returns `None` if the loop accesses global memory otherwise, or makes a map.
fn loaded_maps(function: &Function, inst: Inst, stores: &[Inst]) -> Option<Vec<Inst>> {
    let mut loaded = BTreeSet::new();
    let mut is_known = true;
    for region in &function.insts[inst].regions {
        function.walk(*region, &mut |inner| {
            if stores.contains(&inner) {
                return;
            }
            let data = &function.insts[inner];
            let map = match &data.op {
                Op::Gpu(GpuOp::Load { volatile: false, .. }) => marked_map(function, data.operands[0]),
                Op::Gpu(GpuOp::CopyAsync { .. }) => marked_map(function, data.operands[1]),
                Op::Gpu(GpuOp::TensorFill {} | GpuOp::TensorLoad {}) => Some(data.operands[1]),
                Op::Gpu(op) => {
                    let family = op.info().family;
                    let accesses = matches!(family, OpFamily::Load | OpFamily::Store | OpFamily::Atomic);
                    is_known &= !accesses && !matches!(op, GpuOp::MakeTensorMap { .. });
                    return;
                }
                Op::Tile(op) => {
                    let is_harmless = matches!(op, ir::Op::Barrier {}) || op.info().effect != Effect::Write;
                    is_known &= is_harmless;
                    return;
                }
            };
            let made = map.and_then(|map| function.defining_inst(map));
            match made.filter(|made| matches!(function.insts[*made].op, Op::Gpu(GpuOp::MakeTensorMap { .. })))
            {
                Some(made) => drop(loaded.insert(made)),
                None => is_known = false,
            }
        });
    }
    let parents = Parents::new(function);
    let is_before =
        |made: &Inst| parents.block(*made).is_some_and(|block| parents.ancestor_in(block, inst).is_some());
    (is_known && loaded.iter().all(is_before)).then(|| loaded.into_iter().collect())
}

/// Returns the map of the `tensor_box` that marks pointers. Looks through transposes.
fn marked_map(function: &Function, pointers: Value) -> Option<Value> {
    let (pointers, _) = transposed(function, pointers)?;
    let mark = function.defining_inst(pointers)?;
    matches!(function.insts[mark].op, Op::Gpu(GpuOp::TensorBox {})).then(|| function.insts[mark].operands[1])
}

fn plan_of<'h>(header: &'h Header, function: &Function, made: Inst) -> Option<&'h TensorMapPlan> {
    match function.insts[made].op {
        Op::Gpu(GpuOp::MakeTensorMap { map }) => header.made_maps.get(map as usize),
        // tidy: wildcard because no other op makes a map
        _ => None,
    }
}

fn is_bounded(plan: &TensorMapPlan) -> bool {
    !plan.extents.contains(&LaunchInteger::constant(UNBOUNDED))
}

/// Replaces a store with a branch: a tensor copy, or a store of the threads. The copy needs a map
/// that can express the box, and a box that begins in the tensor.
///
/// Values for only the store are computed in its branch.
pub(super) fn store_where_it_fits(
    header: &Header,
    function: &mut Function,
    (block, store): (Block, Inst),
    around: &Around,
    runs_beside: bool,
    conversion: &[Inst],
    copy: Vec<Inst>,
) {
    let location = function.insts[store].location;
    let mut before = Scalars { cursor: Cursor::before(function, around.block, around.inst) };
    before.cursor.location = location;
    let fits = before.fits(header, around, runs_beside);
    let mark = function.insts[store].operands[0];
    let mark = function.defining_inst(mark).expect("a store to a box has a mark");
    let coordinates: SmallVec<[Value; 5]> = function.insts[mark].operands[2..].iter().copied().collect();
    let mut checks = Scalars { cursor: Cursor::before(function, block, store) };
    let first_check = checks.cursor.position().index;
    let zero = checks.constant(Dtype::I32, 0);
    let mut condition = fits;
    for coordinate in coordinates {
        let own = checks.binary(ElementwiseFn::Ge, coordinate, zero, Dtype::I1);
        condition = Some(checks.both(condition, own));
    }
    let condition = condition.expect("a box has axes");
    let mut threads = Vec::new();
    if runs_beside {
        let wait = GpuOp::TensorStoreWait { pending: 0, complete: true }.into();
        for op in [wait, ir::Op::Barrier {}.into()] {
            threads.push(function.create_inst(op, smallvec![], smallvec![], [], location));
        }
    }
    threads.extend(conversion);
    threads.push(store);
    let mut before = std::mem::take(&mut function.blocks[block].insts);
    let checks_and_store = before.split_off(first_check);
    before.retain(|inst| !conversion.contains(inst));
    let sunk = sink(function, &mut before, &threads);
    function.blocks[block].insts = before.into_iter().chain(checks_and_store).collect();
    let mut region = |insts: Vec<Inst>| {
        let region = function.blocks.push(BlockData::default());
        let mut cursor = Cursor::at_end(function, region);
        cursor.location = location;
        cursor.insert_all(insts);
        cursor.emit(ir::Op::Yield {}, &[], []);
        region
    };
    let regions = smallvec![region(copy), region(sunk.into_iter().chain(threads).collect())];
    let mut cursor = Cursor::before(function, block, store);
    cursor.emit_with_regions(ir::Op::If {}, &[condition], regions, []);
    cursor.take_next();
}

/// Removes from a list the pure instructions that only `users` need. Returns them in order.
fn sink(function: &Function, insts: &mut Vec<Inst>, users: &[Inst]) -> Vec<Inst> {
    let mut needed_by: BTreeSet<Inst> = users.iter().copied().collect();
    let mut readers: BTreeMap<Value, Vec<Inst>> = BTreeMap::new();
    for (inst, data) in &function.insts {
        for operand in &data.operands {
            readers.entry(*operand).or_default().push(inst);
        }
    }
    let mut sunk = Vec::new();
    for inst in insts.iter().rev() {
        let data = &function.insts[*inst];
        let is_needed_there = data.results.iter().all(|result| {
            readers.get(result).is_some_and(|all| all.iter().all(|reader| needed_by.contains(reader)))
        });
        let is_pure = data.op.info().effect == Effect::Pure && data.regions.is_empty();
        if is_pure && !data.results.is_empty() && is_needed_there {
            needed_by.insert(*inst);
            sunk.push(*inst);
        }
    }
    insts.retain(|inst| !sunk.contains(inst));
    sunk.reverse();
    sunk
}

/// Writes scalar instructions, which are the same in all threads.
struct Scalars<'f> {
    cursor: Cursor<'f, Gpu>,
}

impl Scalars<'_> {
    fn constant(&mut self, dtype: Dtype, number: i64) -> Value {
        self.cursor.int(dtype, number)
    }

    fn binary(&mut self, function: ElementwiseFn, a: Value, b: Value, dtype: Dtype) -> Value {
        self.cursor.scalar(function, &[a, b], dtype)
    }

    fn both(&mut self, a: Option<Value>, b: Value) -> Value {
        a.map_or(b, |a| self.binary(ElementwiseFn::And, a, b, Dtype::I1))
    }

    fn wide(&mut self, value: Value) -> Value {
        let known = self.cursor.function.ty(value).as_registers().and_then(ir::Type::dtype);
        if known == Some(Dtype::I64) {
            return value;
        }
        let op = ir::Op::Cast { element: Element::Value(Dtype::I64), rounding: Rounding::default() };
        self.cursor.value(op, &[value], Type::scalar(ir::Type::scalar(Dtype::I64)))
    }

    fn sum(&mut self, a: Value, b: Value) -> Value {
        self.binary(ElementwiseFn::Add, a, b, Dtype::I64)
    }

    fn product(&mut self, a: Value, b: Value) -> Value {
        self.binary(ElementwiseFn::Mul, a, b, Dtype::I64)
    }

    /// Writes a polynomial of a map's operands.
    fn polynomial(&mut self, polynomial: &LaunchInteger, parts: &[Value]) -> Value {
        let mut so_far = None;
        for product in &polynomial.0 {
            let mut term = None;
            for number in &product.arguments {
                let part = self.wide(parts[*number as usize]);
                term = Some(term.map_or(part, |term| self.product(term, part)));
            }
            let term = match term {
                Some(term) if product.factor == 1 => term,
                term => {
                    let factor = self.constant(Dtype::I64, product.factor);
                    term.map_or(factor, |term| self.product(term, factor))
                }
            };
            so_far = Some(so_far.map_or(term, |so_far| self.sum(so_far, term)));
        }
        so_far.unwrap_or_else(|| self.constant(Dtype::I64, 0))
    }

    /// Writes the part of the copy's condition that is the same for all boxes. The tensor is not
    /// empty, and its rows end with a chunk. If `runs_beside`, the tensor does not overlap the
    /// tensors that the loop loads. Returns `None` if this part is always true.
    fn fits(&mut self, header: &Header, around: &Around, runs_beside: bool) -> Option<Value> {
        let plan =
            plan_of(header, self.cursor.function, around.made).expect("the instruction makes a map").clone();
        let parts = self.cursor.function.insts[around.made].operands[1..].to_vec();
        let mut fits = None;
        for extent in &plan.extents {
            if extent.0.iter().any(|product| !product.arguments.is_empty()) {
                let (extent, one) = (self.polynomial(extent, &parts), self.constant(Dtype::I64, 1));
                let is_something = self.binary(ElementwiseFn::Ge, extent, one, Dtype::I1);
                fits = Some(self.both(fits, is_something));
            }
        }
        let elements = CHUNK_BYTES / (plan.element.bytes() as i64).min(CHUNK_BYTES);
        let row = plan.contiguous_axis().map(|axis| &plan.extents[axis]).filter(|_| plan.has_bounded_rows());
        if let Some(row) = row.filter(|row| row.0.iter().any(|product| product.factor % elements != 0)) {
            let (row, rest) = (self.polynomial(row, &parts), self.constant(Dtype::I64, elements - 1));
            let rest = self.binary(ElementwiseFn::And, row, rest, Dtype::I64);
            let zero = self.constant(Dtype::I64, 0);
            let is_whole = self.binary(ElementwiseFn::Eq, rest, zero, Dtype::I1);
            fits = Some(self.both(fits, is_whole));
        }
        let loaded = around.loaded.as_deref().filter(|_| runs_beside).unwrap_or_default();
        let stored = (!loaded.is_empty()).then(|| self.range(&plan, &parts));
        for made in loaded {
            let plan =
                plan_of(header, self.cursor.function, *made).expect("the instruction makes a map").clone();
            let parts = self.cursor.function.insts[*made].operands[1..].to_vec();
            let [start, end] = self.range(&plan, &parts);
            let [from, to] = stored.expect("the range is computed if the loop has loads");
            let is_before = self.binary(ElementwiseFn::Le, end, from, Dtype::I1);
            let is_after = self.binary(ElementwiseFn::Le, to, start, Dtype::I1);
            let are_apart = self.binary(ElementwiseFn::Or, is_before, is_after, Dtype::I1);
            fits = Some(self.both(fits, are_apart));
        }
        fits
    }

    /// Writes the first byte of a tensor and the address after its last byte.
    fn range(&mut self, plan: &TensorMapPlan, parts: &[Value]) -> [Value; 2] {
        let bytes = self.constant(Dtype::I64, plan.element.bytes() as i64);
        let base = self.wide(parts[plan.base as usize]);
        let first = self.polynomial(&plan.offset, parts);
        let distance = self.product(first, bytes);
        let start = self.sum(base, distance);
        let mut last = self.constant(Dtype::I64, 1);
        let less = self.constant(Dtype::I64, -1);
        for (extent, stride) in plan.extents.iter().zip(&plan.strides) {
            let (extent, stride) = (self.polynomial(extent, parts), self.polynomial(stride, parts));
            let steps = self.sum(extent, less);
            let along = self.product(steps, stride);
            last = self.sum(last, along);
        }
        let length = self.product(last, bytes);
        [start, self.sum(start, length)]
    }
}
