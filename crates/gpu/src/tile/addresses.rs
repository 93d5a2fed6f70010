//! Splits tiles of pointers into a scalar pointer plus tiles of offsets.
//!
//! A tile of pointers takes 64 bits for each element, and moves by 64-bit additions. Most tiles of
//! pointers are one scalar base pointer plus 32-bit offsets. An offset that all elements share
//! moves the base, also in loops. The other offsets are then often invariant. An access multiplies
//! an offset by the element size and adds it in one instruction.
//!
//! ```text
//! p = broadcast(splat x + rows * w) + broadcast(cols)        p = splat x + broadcast(cols) + broadcast(rows * w)
//! for .. (q = p)                                       ──>   for .. (base = x)
//!   load q                                                     load splat base + broadcast(cols) + broadcast(rows * w)
//!   yield q + splat (16 * w)                                   yield base + 16 * w
//! ```
//!
//! The pass introduces no overflow. Offsets are never added to each other: each is extended to 64
//! bits, as in the program. If a loop changes one term of a sum in a product, the pass distributes
//! the product: `(u + v) * s` becomes `u * s + v * s`. 32-bit terms must be nonnegative. Then each
//! new product is at most the whole product, which does not overflow
//! ([`Assumptions::no_signed_overflow`]). 64-bit products may wrap around, as pointers do.
//!
//! A hint on a tile of pointers (`tl.multiple_of`) moves to the access. An addition whose sum only
//! the next iteration uses drops the hint.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Carried, Cursor, Dtype, Element, ElementwiseFn, Function, Inst, InstData, Op, OpFamily, Shape,
    Type, Uses, Value,
};
use tilewright_opt::analysis::{Assumptions, Range, analyze_assuming};

use crate::assign::coalescing::Infos;

/// The maximum length of an examined chain of definitions.
const MAX_DEPTH: u32 = 8;

/// Splits the tiles of pointers of a kernel. Returns false if no tile has to be split.
pub fn split(function: &mut Function) -> bool {
    if !is_worth_it(function) {
        return false;
    }
    let infos =
        analyze_assuming(function, Assumptions { no_signed_overflow: true, ..Assumptions::default() });
    let (entry, uses) = (function.entry, Uses::new(function));
    let mut split = Split {
        cursor: Cursor::at_start(function, entry),
        infos,
        addresses: FxHashMap::default(),
        levels: SecondaryMap::new(),
        level: 0,
        uses,
        steps: FxHashSet::default(),
    };
    split.block(entry, &[]);
    true
}

/// Returns whether a kernel adds offsets in a loop, or to other tiles than splats.
fn is_worth_it(function: &Function) -> bool {
    let mut found = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        let is_in_loop = data.op.family() == OpFamily::Loop
            && data.regions.iter().any(|region| {
                let mut moves = false;
                function.walk(*region, &mut |inner| moves |= moves_tile(function, inner));
                moves
            });
        found |= is_in_loop
            || moves_tile(function, inst)
                && !matches!(function.defining_op(data.operands[0]), Some(Op::Splat { .. }));
    });
    found
}

fn moves_tile(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    matches!(data.op, Op::PtrAdd {}) && !function.ty(data.results[0]).is_scalar()
}

/// A tile of pointers: the base plus each of the offsets.
#[derive(Clone)]
struct Address {
    base: Value,
    ty: Type,
    /// Tiles of integers of the same shape.
    offsets: SmallVec<[Value; 2]>,
    /// The hints on the pointers.
    hints: SmallVec<[Op; 1]>,
}

/// An integer tile as a loop-variant scalar plus tiles.
///
/// The values have different widths, and their sum could overflow, so a `Form` does not suffice.
struct SplitOffset {
    scalar: Value,
    tiles: SmallVec<[Value; 2]>,
    /// True if a product was distributed over the sum.
    is_distributed: bool,
}

struct Split<'f> {
    cursor: Cursor<'f>,
    infos: Infos,
    /// The split tiles of pointers, which no instruction computes now.
    addresses: FxHashMap<Value, Address>,
    levels: SecondaryMap<Value, u32>,
    level: u32,
    uses: Uses,
    /// The `ptr_add`s on pointers with hints that only the next iteration uses.
    steps: FxHashSet<Inst>,
}

impl Split<'_> {
    /// Rewrites a block. For a tile of pointers with an index in `moved`, the block yields the
    /// base.
    fn block(&mut self, block: Block, moved: &[usize]) {
        for &parameter in &self.cursor.function.blocks[block].parameters {
            self.levels[parameter] = self.level;
        }
        let outer = self.cursor.enter(block);
        for inst in self.cursor.take_rest() {
            self.cursor.use_location_of(inst);
            let is_terminator = self.cursor.function.insts[inst].op.is_terminator();
            self.inst(inst, if is_terminator { moved } else { &[] });
        }
        self.cursor.go_to(outer);
    }

    fn inst(&mut self, inst: Inst, moved: &[usize]) {
        if let Some((result, address)) = self.address(inst) {
            self.addresses.insert(result, address);
            return;
        }
        if self.cursor.function.insts[inst].op.family() == OpFamily::Loop {
            return self.repeat(inst);
        }
        for &index in moved {
            let yielded = self.cursor.function.insts[inst].operands[index];
            self.cursor.function.insts[inst].operands[index] = self.addresses[&yielded].base;
        }
        self.join_operands(inst, moved);
        for region in self.cursor.function.insts[inst].regions.clone() {
            self.block(region, &[]);
        }
        self.push(inst);
    }

    fn push(&mut self, inst: Inst) {
        for &result in &self.cursor.function.insts[inst].results {
            self.levels[result] = self.level;
        }
        self.cursor.insert(inst);
    }

    /// Returns the result and the address of an instruction whose tile of pointers is split.
    fn address(&mut self, inst: Inst) -> Option<(Value, Address)> {
        let InstData { op, operands, .. } = self.cursor.function.insts[inst].clone();
        let result = self.cursor.function.result(inst)?;
        let ty = self.cursor.function.ty(result).clone();
        if ty.is_scalar() || ty.element.pointee().is_none() {
            return None;
        }
        let address = match op {
            Op::Splat { .. } => Address { base: operands[0], ty, offsets: smallvec![], hints: smallvec![] },
            Op::PtrAdd {} => {
                let mut pointers = self.addresses.get(&operands[0])?.clone();
                if self.steps.contains(&inst) {
                    pointers.hints.clear();
                }
                if !pointers.hints.is_empty() {
                    return None;
                }
                self.moved(pointers, operands[1])
            }
            Op::Hint { .. } => {
                let mut pointers = self.addresses.get(&operands[0])?.clone();
                pointers.hints.push(op);
                pointers
            }
            Op::ExpandDims { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. } => {
                let Address { base, mut offsets, hints, .. } = self.addresses.get(&operands[0])?.clone();
                if !hints.is_empty() {
                    return None;
                }
                for offset in &mut offsets {
                    *offset = self.reshaped(&op, *offset, &ty.shape);
                }
                Address { base, ty, offsets, hints }
            }
            // tidy: wildcard because pointers of other ops are not split
            _ => return None,
        };
        Some((result, address))
    }

    fn moved(&mut self, pointers: Address, offset: Value) -> Address {
        let Address { mut base, ty, mut offsets, hints } = pointers;
        if let Some(scalar) = self.scalar_of(offset) {
            base = self.move_base(base, scalar);
        } else if let Some(sum) = self.sum(offset, MAX_DEPTH).filter(|sum| sum.is_distributed) {
            base = self.move_base(base, sum.scalar);
            offsets.extend(sum.tiles);
        } else {
            offsets.push(offset);
        }
        Address { base, ty, offsets, hints }
    }

    fn move_base(&mut self, base: Value, offset: Value) -> Value {
        let ty = self.cursor.function.ty(base).clone();
        self.value(Op::PtrAdd {}, &[base, offset], ty)
    }

    fn reshaped(&mut self, op: &Op, tile: Value, shape: &Shape) -> Value {
        let ty = self.cursor.function.ty(tile).with_shape(shape.clone());
        self.value(op.clone(), &[tile], ty)
    }

    /// Returns the result of a new instruction. Its level is the highest one of its operands.
    fn value(&mut self, op: Op, operands: &[Value], ty: Type) -> Value {
        let level = operands.iter().map(|&operand| self.levels[operand]).max().unwrap_or(0);
        let result = self.cursor.value(op, operands, ty);
        self.levels[result] = level;
        result
    }

    /// Returns the scalar that equals every element of a tile.
    fn scalar_of(&self, tile: Value) -> Option<Value> {
        let data = &self.cursor.function.insts[self.cursor.function.defining_inst(tile)?];
        match &data.op {
            Op::Splat { .. } => Some(data.operands[0]),
            Op::ExpandDims { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. } => self.scalar_of(data.operands[0]),
            // tidy: wildcard because the optimizer leaves uniform tiles in no other form
            _ => None,
        }
    }

    /// Splits an integer tile into a scalar that a loop changes, plus tiles. The loop does not
    /// change the first tile.
    fn sum(&mut self, tile: Value, steps: u32) -> Option<SplitOffset> {
        let steps = steps.checked_sub(1)?;
        let inst = self.cursor.function.defining_inst(tile)?;
        let InstData { op, operands, .. } = self.cursor.function.insts[inst].clone();
        let ty = self.cursor.function.ty(tile).clone();
        // Narrower integers are not indices: they may wrap around.
        let dtype =
            ty.dtype().filter(|dtype| *dtype == Dtype::I32 || dtype.bits() == 64 && dtype.is_int())?;
        match op {
            Op::Elementwise { function: ElementwiseFn::Add } => {
                let orders = [[operands[0], operands[1]], [operands[1], operands[0]]];
                let leaf = orders.into_iter().find_map(|[one, other]| self.leaf(one, other, dtype.bits()));
                leaf.or_else(|| {
                    let (mut sum, other) = orders
                        .into_iter()
                        .find_map(|[one, other]| self.sum(one, steps).map(|sum| (sum, other)))?;
                    sum.tiles.push(other);
                    Some(sum)
                })
            }
            Op::Elementwise { function: ElementwiseFn::Mul } => {
                let orders = [[operands[0], operands[1]], [operands[1], operands[0]]];
                orders.into_iter().find_map(|[one, factor]| {
                    let scalar = self.scalar_of(factor)?;
                    let sum = self.sum(one, steps)?;
                    let [tile] = sum.tiles[..] else { return None };
                    if self.levels[scalar] >= self.levels[sum.scalar] {
                        return None;
                    }
                    let scalar_ty = ty.with_shape(Shape::scalar());
                    let product = self.value(op.clone(), &[sum.scalar, scalar], scalar_ty);
                    let tile = self.value(op.clone(), &[tile, factor], ty.clone());
                    Some(SplitOffset { scalar: product, tiles: smallvec![tile], is_distributed: true })
                })
            }
            Op::ExpandDims { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. } => {
                let mut sum = self.sum(operands[0], steps)?;
                for tile in &mut sum.tiles {
                    *tile = self.reshaped(&op, *tile, &ty.shape);
                }
                Some(sum)
            }
            Op::Cast { element: Element::Value(Dtype::I64 | Dtype::U64), .. } => {
                let mut sum = self.sum(operands[0], steps)?;
                sum.scalar = self.value(op.clone(), &[sum.scalar], ty.with_shape(Shape::scalar()));
                for tile in &mut sum.tiles {
                    *tile = self.value(op.clone(), &[*tile], ty.clone());
                }
                Some(sum)
            }
            // tidy: wildcard because other functions do not distribute over sums
            _ => None,
        }
    }

    /// Splits `uniform + tile` if a loop changes only `uniform`. Both have 64 bits or are
    /// nonnegative.
    fn leaf(&self, uniform: Value, tile: Value, bits: u32) -> Option<SplitOffset> {
        let scalar = self.scalar_of(uniform)?;
        let [a, b]: [Range; 2] = [scalar, tile].map(|value| self.infos[value].range);
        let is_exact = bits == 64 || a.is_nonnegative() && b.is_nonnegative();
        (is_exact && self.levels[scalar] > self.levels[tile]).then(|| SplitOffset {
            scalar,
            tiles: smallvec![tile],
            is_distributed: false,
        })
    }

    /// Rewrites a loop. If the loop moves a carried tile of pointers by one offset, the new loop
    /// carries only the base.
    fn repeat(&mut self, inst: Inst) {
        let bounds = if matches!(self.cursor.function.insts[inst].op, Op::For { .. }) { 3 } else { 0 };
        let mut moved = Vec::new();
        let carried: Vec<Carried> = self.cursor.function.carried(inst).collect();
        for (index, Carried { initial, parameters, yielded, result }) in carried.into_iter().enumerate() {
            let initial = initial.expect("a loop begins with what it carries");
            let Some(address) = self.addresses.get(&initial).cloned() else { continue };
            // The initial pointers' hints may not hold in the next iteration.
            if !address.hints.is_empty() || !self.is_moved_alike(yielded[0], &parameters) {
                continue;
            }
            self.cursor.function.insts[inst].operands[bounds + index] = address.base;
            for &value in parameters.iter().chain([&result]) {
                self.cursor.function.values[value].ty = address.ty.with_shape(Shape::scalar());
                self.addresses.insert(value, Address { base: value, ..address.clone() });
            }
            moved.push(index);
        }
        let operands: Vec<usize> = moved.iter().map(|index| bounds + index).collect();
        self.join_operands(inst, &operands);
        self.level += 1;
        let regions = self.cursor.function.insts[inst].regions.clone();
        for (index, &region) in regions.iter().enumerate() {
            let is_body = index + 1 == regions.len();
            self.block(region, if is_body { &moved } else { &[] });
        }
        self.level -= 1;
        self.push(inst);
    }

    /// Returns whether a tile is a parameter, or a parameter plus a uniform offset.
    fn is_moved_alike(&mut self, tile: Value, parameters: &[Value]) -> bool {
        if parameters.contains(&tile) {
            return true;
        }
        let Some(inst) = self.cursor.function.defining_inst(tile) else { return false };
        let data = &self.cursor.function.insts[inst];
        match data.op.family() {
            OpFamily::Pointwise => {
                let (from, is_move) = (data.operands[0], matches!(data.op, Op::PtrAdd {}));
                if !is_move || self.scalar_of(data.operands[1]).is_none() {
                    return false;
                }
                match self.cursor.function.defining_op(from) {
                    Some(Op::Hint { .. }) if self.uses.count(tile) > 1 => return false,
                    Some(Op::Hint { .. }) => self.steps.insert(inst),
                    // tidy: wildcard because only hints make promises
                    _ => true,
                };
                self.is_moved_alike(from, parameters)
            }
            OpFamily::Identity => self.is_moved_alike(data.operands[0], parameters),
            OpFamily::Loop => {
                let Some(inner) = self.cursor.function.carried_by(inst, tile) else { return false };
                let is_hint =
                    |value| matches!(self.cursor.function.defining_op(value), Some(Op::Hint { .. }));
                let initial = inner.initial.filter(|initial| !is_hint(*initial));
                self.is_moved_alike(inner.yielded[0], &inner.parameters)
                    && initial.is_some_and(|initial| self.is_moved_alike(initial, parameters))
            }
            // tidy: wildcard because pointers of other ops have no base in common
            _ => false,
        }
    }

    /// Adds bases and offsets of an instruction's pointer operands, except those in `moved`.
    fn join_operands(&mut self, inst: Inst, moved: &[usize]) {
        for index in 0..self.cursor.function.insts[inst].operands.len() {
            let operand = self.cursor.function.insts[inst].operands[index];
            if !moved.contains(&index)
                && let Some(address) = self.addresses.get(&operand).cloned()
            {
                let pointers = self.join(address);
                let name = self.cursor.function.values[operand].name.clone();
                self.cursor.function.values[pointers].name = name;
                self.cursor.function.insts[inst].operands[index] = pointers;
            }
        }
    }

    /// Returns the pointers of an address. Offsets with few distinct values come first, because
    /// many elements then share the sum.
    fn join(&mut self, address: Address) -> Value {
        let Address { base, ty, mut offsets, hints } = address;
        offsets.sort_by_cached_key(|offset| self.runs(*offset));
        let mut pointers = self.value(Op::Splat { shape: ty.shape.clone() }, &[base], ty.clone());
        for offset in offsets {
            pointers = self.value(Op::PtrAdd {}, &[pointers, offset], ty.clone());
        }
        for hint in hints {
            pointers = self.value(hint, &[pointers], ty.clone());
        }
        pointers
    }

    /// Returns the number of runs of consecutive or equal integers in a tile. Returns 0 if elements
    /// differ by constants, which memory instructions add.
    fn runs(&self, tile: Value) -> u32 {
        if self.has_constant_steps(tile, MAX_DEPTH) {
            return 0;
        }
        let info = &self.infos[tile];
        if info.axes.is_empty()
            && let Some(inst) = self.cursor.function.defining_inst(tile)
        {
            // The pass reshaped the first operand, or multiplied it by a scalar.
            return self.runs(self.cursor.function.insts[inst].operands[0]);
        }
        let run = |axis| info.contiguity(axis).max(info.constancy(axis));
        let shape = &self.cursor.function.ty(tile).shape;
        shape.iter().enumerate().map(|(axis, extent)| extent / run(axis)).product()
    }

    fn has_constant_steps(&self, tile: Value, steps: u32) -> bool {
        let Some((inst, steps)) = self.cursor.function.defining_inst(tile).zip(steps.checked_sub(1)) else {
            return false;
        };
        let data = &self.cursor.function.insts[inst];
        let operands = &data.operands;
        match &data.op {
            Op::Splat { .. } | Op::Arange { .. } => true,
            Op::ExpandDims { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Cast { .. }
            | Op::Elementwise { function: ElementwiseFn::Add } => {
                operands.iter().all(|operand| self.has_constant_steps(*operand, steps))
            }
            Op::Elementwise { function: ElementwiseFn::Mul } => {
                [[0, 1], [1, 0]].iter().any(|&[one, other]| {
                    self.infos[operands[other]].constant.is_some()
                        && self.has_constant_steps(operands[one], steps)
                })
            }
            // tidy: wildcard because the steps of other ops are not constants
            _ => false,
        }
    }
}
