//! Compiles tree reductions to machine code, with one function for all levels.
//!
//! Each level combines neighbors and writes the results to the beginning of the tiles:
//!
//! ```text
//! level 0:  a b c d  →  ab cd
//! level 1:  ab cd    →  abcd
//! ```
//! The extent of the axis is a power of two. The pairs of all rows are therefore consecutive, and a
//! level is one loop.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{Dtype, Op};
use tilewright_native::ir::{Binary, Compare, Conversion, IntBinary, Lane, Value};
use tilewright_native::{Builder, Place, Target};

use super::vectors::{self, Elements, Vectors, elements};
use crate::program::nest::{NestCode, origin_of};
use crate::program::{Action, Block, Program, Slot, Step, Strategy, TreeCode};

/// Compiles each tree reduction whose combine region has vector code.
pub(crate) fn form(program: &mut Program, target: Target) {
    let mut blocks = std::mem::take(&mut program.blocks);
    let mut codes = Vec::new();
    for (id, block) in blocks.iter().enumerate() {
        for (index, step) in block.steps.iter().enumerate() {
            if let Action::Reduce { strategy: Strategy::Tree, axis, .. } = step.action {
                let tree = Tree::new(program, &blocks, step, axis, target);
                codes.extend(tree.map(|tree| (id, index, Arc::new(tree.compile(target)))));
            }
        }
    }
    for (id, index, tree) in codes {
        if let Action::Reduce { code, .. } = &mut blocks[id].steps[index].action {
            *code = Some(tree);
        }
    }
    program.blocks = blocks;
}

/// A reduction whose combine region has vector code.
struct Tree<'p> {
    program: &'p Program,
    /// The combine region for the tiles of level 0.
    region: &'p Block,
    /// The scalars that the region reads from outside.
    captured: SmallVec<[Slot; 4]>,
    dtypes: SmallVec<[Dtype; 4]>,
    /// The number of pairs in level 0, divided by `inner`.
    pairs: usize,
    levels: u32,
    /// The distance between neighbors, in elements.
    inner: usize,
}

impl<'p> Tree<'p> {
    /// Returns the tree of a reduction, if it has vector code and the tiles consist of whole
    /// vectors.
    fn new(
        program: &'p Program,
        blocks: &'p [Block],
        step: &Step,
        axis: usize,
        target: Target,
    ) -> Option<Self> {
        let shape = program.types[step.operands[0].ty as usize].shape();
        let elements = program.types[step.operands[0].ty as usize].elements();
        let n = shape[axis] as usize;
        let inner: usize = shape[axis + 1..].iter().map(|&extent| extent as usize).product();
        let lanes = target.lanes();
        let unit = if inner == 1 { 2 * lanes } else { inner };
        if !n.is_power_of_two() || n == 1 || !elements.is_multiple_of(unit) || !unit.is_multiple_of(lanes) {
            return None;
        }
        let region = &blocks[step.blocks[0] as usize];
        let types = step.operands.iter().map(|operand| &program.types[operand.ty as usize]);
        let dtypes = types.map(|ty| vectors::lane(ty).map(|_| ty.dtype())).collect::<Option<_>>()?;
        let mut tree = Self {
            program,
            region,
            captured: SmallVec::new(),
            dtypes,
            pairs: elements / inner / 2,
            levels: n.ilog2(),
            inner,
        };
        let mut known: Vec<Slot> = region.parameters.to_vec();
        for step in tree.steps() {
            if !tree.can_compute(step) {
                return None;
            }
            known.extend(&step.results);
        }
        let read = tree.steps().flat_map(|step| &step.operands).chain(&region.yields);
        let mut captured: SmallVec<[Slot; 4]> =
            read.map(|operand| operand.slot).filter(|slot| !known.contains(slot)).collect();
        captured.sort_unstable();
        captured.dedup();
        let is_number = |slot: &Slot| vectors::lane(program.ty(*slot)).is_some();
        if !captured.iter().all(is_number) {
            return None;
        }
        tree.captured = captured;
        Some(tree)
    }

    /// Returns the steps of the region. Nests and fused loops are omitted, because their members
    /// follow.
    fn steps(&self) -> impl Iterator<Item = &'p Step> + use<'p> {
        let is_group = |step: &&Step| matches!(step.action, Action::Nest(_) | Action::Fused(_));
        self.region.steps.iter().filter(move |step| !is_group(step))
    }

    fn can_compute(&self, step: &Step) -> bool {
        let ty = |slot: Slot| self.program.ty(slot);
        let slots = step.operands.iter().map(|operand| operand.slot).chain(step.results.iter().copied());
        if !slots.into_iter().all(|slot| vectors::lane(ty(slot)).is_some()) {
            return false;
        }
        let last = step.operands.last().map(|operand| ty(operand.slot).dtype());
        match (step.op(), last) {
            (Some(Op::Constant { .. } | Op::Bitcast { .. }), _) => true,
            (Some(Op::Elementwise { function }), Some(dtype)) => vectors::can_apply(*function, dtype),
            (Some(Op::Cast { rounding, .. }), Some(from)) => {
                vectors::can_cast(from, ty(step.results[0]).dtype(), *rounding)
            }
            // tidy: wildcard because regions with other steps have no vector code
            _ => false,
        }
    }

    /// Compiles the tree. The argument has the addresses of the tiles, then the bits of the
    /// captured scalars.
    fn compile(&self, target: Target) -> TreeCode {
        let cell = RefCell::new(Builder::new(target.lanes()));
        let emitter = Emitter { tree: self, vectors: Vectors(&cell) };
        emitter.levels();
        let function = cell.into_inner().finish();
        TreeCode { code: NestCode::new(function, target), captured: self.captured.clone() }
    }
}

struct Emitter<'a> {
    tree: &'a Tree<'a>,
    vectors: Vectors<'a>,
}

impl Emitter<'_> {
    fn build<R>(&self, f: impl FnOnce(&mut Builder) -> R) -> R {
        f(&mut self.vectors.0.borrow_mut())
    }

    fn word(&self, index: usize) -> Value {
        self.build(|builder| builder.argument_word((index * 8) as i32))
    }

    fn scaled(&self, x: Value, factor: usize) -> Value {
        self.build(|builder| {
            let factor = builder.int(factor as i64);
            builder.int_binary(IntBinary::Mul, x, factor)
        })
    }

    fn add(&self, x: Value, y: Value) -> Value {
        self.build(|builder| builder.int_binary(IntBinary::Add, x, y))
    }

    /// Emits the loop over the levels, and in it the loop over the pairs.
    fn levels(&self) {
        let tree = self.tree;
        let lanes = self.build(|builder| builder.lanes()) as i64;
        let bases: SmallVec<[Value; 4]> = (0..tree.dtypes.len()).map(|index| self.word(index)).collect();
        let mut outside = FxHashMap::default();
        for (index, &slot) in tree.captured.iter().enumerate() {
            let bits = self.word(bases.len() + index);
            outside.insert(slot, self.vectors.splat(tree.program.ty(slot).dtype(), bits));
        }
        let int = |value: i64| self.build(|builder| builder.int(value));
        let (zero, one) = (int(0), int(1));
        let range = [zero, int(i64::from(tree.levels))];
        let pairs = int(tree.pairs as i64);
        let level = self.build(|builder| builder.begin_loop(range, &[pairs]));
        let pairs = level.values[0];
        let each = self.build(|builder| builder.begin_loop([zero, pairs], &[]));
        if tree.inner == 1 {
            let values = bases.iter().zip(&tree.dtypes);
            let pairs = values.map(|(&base, &dtype)| self.neighbors(dtype, base, each.index));
            let operands: (SmallVec<[Value; 4]>, SmallVec<[Value; 4]>) = pairs.unzip();
            self.combine(&bases, &outside, each.index, operands.into());
            self.build(|builder| builder.end_loop(each, lanes, &[]));
        } else {
            let within = [zero, int(tree.inner as i64)];
            let columns = self.build(|builder| builder.begin_loop(within, &[]));
            let from = self.add(self.scaled(each.index, 2 * tree.inner), columns.index);
            let to = self.add(self.scaled(each.index, tree.inner), columns.index);
            let operands = |side: usize| {
                let values = bases.iter().zip(&tree.dtypes);
                let first = self.add(from, int((side * tree.inner) as i64));
                values.map(|(&base, &dtype)| self.load(dtype, base, first)).collect()
            };
            self.combine(&bases, &outside, to, [operands(0), operands(1)]);
            self.build(|builder| builder.end_loop(columns, lanes, &[]));
            self.build(|builder| builder.end_loop(each, 1, &[]));
        }
        self.build(|builder| {
            let half = builder.int_binary(IntBinary::Shr, pairs, one);
            builder.end_loop(level, 1, &[half]);
            builder.ret(zero);
        });
    }

    fn of_lanes(&self, dtype: Dtype, x: Value) -> Value {
        self.build(|builder| match elements(dtype) {
            Elements::Lanes(lane) if builder.lane(x) != lane => builder.convert(Conversion::Bitcast, lane, x),
            Elements::Lanes(_) => x,
            Elements::Mask => {
                let zero = builder.constant(Lane::I8, 0);
                builder.compare(Compare::Ne, x, zero)
            }
        })
    }

    /// Returns the elements at `2 * index`, `2 * index + 2`, … and those at `2 * index + 1`, `2 *
    /// index + 3`, ….
    fn neighbors(&self, dtype: Dtype, base: Value, index: Value) -> (Value, Value) {
        let (left, right) = match dtype.bytes() {
            1 => self.halves(Lane::I16, Lane::I8, base, index),
            2 => self.halves(Lane::I32, Lane::I16, base, index),
            4 => self.halves(Lane::I64, Lane::I32, base, index),
            // tidy: wildcard because the other types have 64 bits
            bytes => {
                let first = self.add(base, self.scaled(index, 2 * bytes));
                self.build(|builder| {
                    let size = builder.int(bytes as i64);
                    let second = builder.int_binary(IntBinary::Add, first, size);
                    let (iota, stride) = (builder.iota(Lane::I64), builder.constant(Lane::I64, 16));
                    let offsets = builder.binary(Binary::Mul, iota, stride);
                    let all = builder.mask(true);
                    let left = builder.gather(Lane::I64, first, offsets, all);
                    (left, builder.gather(Lane::I64, second, offsets, all))
                })
            }
        };
        (self.of_lanes(dtype, left), self.of_lanes(dtype, right))
    }

    /// Loads pairs as lanes of twice the width, and returns their lower and upper halves.
    fn halves(&self, wide: Lane, lane: Lane, base: Value, index: Value) -> (Value, Value) {
        let place = Place { index: Some((index, wide.bytes() as u8)), ..Place::at(base) };
        self.build(|builder| {
            let pairs = builder.load(wide, place, None);
            let width = builder.constant(wide, 8 * lane.bytes() as u64);
            let upper = builder.binary(Binary::Shr, pairs, width);
            let left = builder.convert(Conversion::Truncate, lane, pairs);
            (left, builder.convert(Conversion::Truncate, lane, upper))
        })
    }

    fn load(&self, dtype: Dtype, base: Value, index: Value) -> Value {
        let place = Place { index: Some((index, dtype.bytes() as u8)), ..Place::at(base) };
        let lane = match elements(dtype) {
            Elements::Lanes(lane) => lane,
            Elements::Mask => Lane::I8,
        };
        let lanes = self.build(|builder| builder.load(lane, place, None));
        self.of_lanes(dtype, lanes)
    }

    fn combine(
        &self,
        bases: &[Value],
        outside: &FxHashMap<Slot, Value>,
        to: Value,
        [left, right]: [SmallVec<[Value; 4]>; 2],
    ) {
        let tree = self.tree;
        let mut values = outside.clone();
        values.extend(tree.region.parameters.iter().copied().zip(left.into_iter().chain(right)));
        for step in tree.steps() {
            let operands: SmallVec<[Value; 4]> =
                step.operands.iter().map(|operand| values[&operand.slot]).collect();
            self.build(|builder| builder.set_origin(origin_of(step)));
            values.insert(step.result(), self.result(step, &operands));
        }
        self.build(|builder| builder.set_origin(0));
        for ((&base, &dtype), yielded) in bases.iter().zip(&tree.dtypes).zip(&tree.region.yields) {
            let value = values[&yielded.slot];
            self.build(|builder| {
                let value = match elements(dtype) {
                    Elements::Lanes(_) => value,
                    Elements::Mask => {
                        let (one, zero) = (builder.constant(Lane::I8, 1), builder.constant(Lane::I8, 0));
                        builder.select(value, one, zero)
                    }
                };
                let place = Place { index: Some((to, dtype.bytes() as u8)), ..Place::at(base) };
                builder.store(place, value, None, false);
            });
        }
    }

    fn result(&self, step: &Step, operands: &[Value]) -> Value {
        let dtype = |slot: Slot| self.tree.program.ty(slot).dtype();
        let to = dtype(step.result());
        let from = |index: usize| dtype(step.operands[index].slot);
        match step.op() {
            Some(Op::Constant { value }) => {
                let bits = self.build(|builder| builder.int(value.bits as i64));
                self.vectors.splat(to, bits)
            }
            Some(Op::Elementwise { function }) => {
                self.vectors.apply(*function, from(operands.len() - 1), operands)
            }
            Some(Op::Cast { .. }) => self.vectors.cast(from(0), to, operands[0]),
            Some(Op::Bitcast { .. }) => match elements(to) {
                Elements::Lanes(lane) => {
                    self.build(|builder| builder.convert(Conversion::Bitcast, lane, operands[0]))
                }
                Elements::Mask => operands[0],
            },
            // tidy: wildcard because `can_compute` refuses the other actions
            _ => unreachable!("the region has a step without vector code"),
        }
    }
}
