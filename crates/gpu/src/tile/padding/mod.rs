//! Pads each axis to the next power of two, which layouts need.
//!
//! Elements of the padding are unspecified, so masks exclude them from memory accesses and checks.
//! Reductions and dots along a padded axis ignore the padding. Ops that count elements, such as a
//! reshape, become gathers. Other ops compute on the padding, and the results there are unused.
//!
//! ```text
//! %i = arange 0..100                   %i = arange 0..128 ; %in = %i < 100
//! %x = load %p                   ──>   %x = load %p, %in
//! %s = reduce %x by add                %s = reduce (select %in, %x, -0.0) by add
//! ```
//! The pass also lowers slices: aligned slices to slices of registers, others to gathers.

mod map;
mod movement;
mod reduction;

use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::{
    Block, Cursor, Dtype, ElementwiseFn, Function, Inst, InstData, Literal, Op, OpFamily, Shape, Type, Value,
};

use tilewright_gpu_ir::tuning::Tuning;

/// Pads the tiles of a kernel without calls. Returns whether it changed something.
pub fn pad(function: &mut Function, tuning: &Tuning) -> bool {
    if !is_needed(function) {
        return false;
    }
    let entry = function.entry;
    let mut pad = Pad {
        tuning,
        cursor: Cursor::at_start(function, entry),
        shapes: SecondaryMap::new(),
        zeros: EntitySet::new(),
        flattened: FxHashMap::default(),
    };
    pad.block(entry);
    true
}

fn is_needed(function: &Function) -> bool {
    let mut found = false;
    function.walk(function.entry, &mut |inst| {
        let data = &function.insts[inst];
        found |= matches!(data.op, Op::Slice { .. })
            || data.results.iter().any(|result| !is_padded(&function.ty(*result).shape));
    });
    found
}

/// Returns the index of an op's mask operand; `None` if the op has no mask. Padded operands of ops
/// without a mask are refused ([`super::legality`]).
pub fn mask_place(op: &Op) -> Option<usize> {
    match op {
        Op::Load { .. } | Op::Assert { .. } | Op::AtomicLoad { .. } | Op::Histogram { .. } => Some(1),
        Op::Store { .. } | Op::AtomicRmw { .. } | Op::AtomicStore { .. } => Some(2),
        Op::AtomicCas { .. } => Some(3),
        // tidy: wildcard because no other op has a mask
        _ => None,
    }
}

fn is_padded(shape: &[u32]) -> bool {
    shape.iter().all(|extent| extent.is_power_of_two())
}

/// Rounds each extent up to a power of two.
pub fn padded(shape: &[u32]) -> Shape {
    shape.iter().map(|extent| extent.next_power_of_two()).collect()
}

struct Pad<'f> {
    tuning: &'f Tuning,
    cursor: Cursor<'f>,
    /// The program's shape of each padded value.
    shapes: SecondaryMap<Value, Option<Shape>>,
    /// The padded tiles whose padding is 0.
    zeros: EntitySet<Value>,
    /// Maps each flattened tile to the tile before its reshape, for reshapes that became gathers.
    flattened: FxHashMap<Value, Value>,
}

impl Pad<'_> {
    fn block(&mut self, block: Block) {
        for parameter in self.cursor.function.blocks[block].parameters.clone() {
            self.pad_type(parameter);
        }
        let outer = self.cursor.enter(block);
        for inst in self.cursor.take_rest() {
            self.cursor.use_location_of(inst);
            self.inst(inst);
        }
        self.cursor.go_to(outer);
    }

    fn inst(&mut self, inst: Inst) {
        let InstData { op, operands, results, regions, .. } = self.cursor.function.insts[inst].clone();
        for result in &results {
            self.pad_type(*result);
        }
        match op.family() {
            OpFamily::Source => {
                self.source(inst, op);
                self.cursor.insert(inst);
            }
            OpFamily::Shape => match op {
                Op::Reshape { shape } => self.reshape(inst, &shape),
                Op::Slice { starts, steps, shape } => self.slice(inst, &starts, &steps, &shape),
                Op::Broadcast { shape } => {
                    self.cursor.function.insts[inst].op = Op::Broadcast { shape: padded(&shape) };
                    self.cursor.insert(inst);
                }
                // tidy: wildcard because the others rename axes
                _ => {
                    self.keep_zeros(operands[0], results[0]);
                    self.cursor.insert(inst);
                }
            },
            OpFamily::Movement => self.gather(inst),
            OpFamily::Load | OpFamily::Store | OpFamily::Atomic | OpFamily::Check => self.access(inst),
            OpFamily::Reduction => self.reduce(inst),
            OpFamily::Scan => self.scan(inst),
            OpFamily::Dot => self.dot(inst),
            OpFamily::Promise => {
                // A promise about a padded tile would include the padding.
                if operands.iter().all(|operand| self.shapes[*operand].is_none()) {
                    self.cursor.insert(inst);
                }
            }
            OpFamily::Loop | OpFamily::Branch | OpFamily::Partitions => {
                for region in regions {
                    self.block(region);
                }
                self.cursor.insert(inst);
            }
            OpFamily::Pointwise if matches!(op, Op::Map { .. }) => self.map(inst),
            OpFamily::Pointwise | OpFamily::Identity => {
                if matches!(op, Op::Cast { .. } | Op::Bitcast { .. } | Op::Hint { .. }) {
                    self.keep_zeros(operands[0], results[0]);
                }
                self.cursor.insert(inst);
            }
            OpFamily::Scalar
            | OpFamily::Barrier
            | OpFamily::Memory
            | OpFamily::Call
            | OpFamily::Terminator => self.cursor.insert(inst),
        }
    }

    fn source(&mut self, inst: Inst, op: Op) {
        let op = match op {
            Op::Arange { start, end } => {
                let count = i64::from(((end - start) as u32).next_power_of_two());
                if start + count > i64::from(i32::MAX) {
                    return self.wrapping_arange(inst, start, count);
                }
                Op::Arange { start, end: start + count }
            }
            Op::Splat { shape } => Op::Splat { shape: padded(&shape) },
            // tidy: wildcard because no other op makes tiles of scalars
            other => other,
        };
        self.cursor.function.insts[inst].op = op;
    }

    /// Rewrites a range with padding beyond int32 as its start plus a range from 0. The addition
    /// wraps around.
    fn wrapping_arange(&mut self, inst: Inst, start: i64, count: i64) {
        let ty = self.cursor.function.ty(self.cursor.function.insts[inst].results[0]).clone();
        let from_zero = self.cursor.value(Op::Arange { start: 0, end: count }, &[], ty.clone());
        let first = self.cursor.int(Dtype::I32, start);
        let first = self.cursor.value(Op::Splat { shape: ty.shape.clone() }, &[first], ty);
        let data = &mut self.cursor.function.insts[inst];
        data.op = Op::Elementwise { function: ElementwiseFn::Add };
        data.operands = smallvec![from_zero, first];
    }

    fn pad_type(&mut self, value: Value) {
        let shape = self.cursor.function.ty(value).shape.clone();
        if !is_padded(&shape) {
            let ty = self.cursor.function.ty(value).with_shape(padded(&shape));
            self.cursor.function.values[value].ty = ty;
            self.shapes[value] = Some(shape);
        }
    }

    fn shape(&self, value: Value) -> Shape {
        self.shapes[value].clone().unwrap_or_else(|| self.cursor.function.ty(value).shape.clone())
    }

    fn keep_zeros(&mut self, from: Value, to: Value) {
        if self.zeros.contains(from) {
            self.zeros.insert(to);
        }
    }

    /// Masks an access to memory, or a check, to the program's elements.
    fn access(&mut self, inst: Inst) {
        let data = &self.cursor.function.insts[inst];
        if matches!(data.op, Op::Print { .. }) {
            return self.print(inst);
        }
        let Some(place) = mask_place(&data.op) else { return self.cursor.insert(inst) };
        let (first, mask) = (data.operands[0], data.operands.get(place).copied());
        if let Some(shape) = self.shapes[first].clone() {
            let valid = self.valid(&shape);
            match mask {
                Some(mask) => {
                    let both = self.binary(ElementwiseFn::And, mask, valid);
                    self.cursor.function.insts[inst].operands[place] = both;
                }
                None => self.cursor.function.insts[inst].operands.push(valid),
            }
            let data = &self.cursor.function.insts[inst];
            if matches!(data.op, Op::Load { .. }) && data.operands.len() == 2 {
                self.zeros.insert(data.results[0]);
            }
        }
        self.cursor.insert(inst);
    }

    fn print(&mut self, inst: Inst) {
        let value = self.cursor.function.insts[inst].operands.first().copied();
        let shape = value.and_then(|value| self.shapes[value].clone());
        if let (Op::Print { extents, .. }, Some(shape)) = (&mut self.cursor.function.insts[inst].op, shape)
            && extents.is_empty()
        {
            *extents = shape.iter().map(|extent| i64::from(*extent)).collect();
        }
        self.cursor.insert(inst);
    }

    /// Pads the K axis of a dot's operands with zeros.
    fn dot(&mut self, inst: Inst) {
        for place in 0..2 {
            let operand = self.cursor.function.insts[inst].operands[place];
            let shape = self.shape(operand);
            let axis = shape.len() - 1 - place;
            if !shape[axis].is_power_of_two() && !self.zeros.contains(operand) {
                let valid = self.valid_along(&shape, axis);
                let zero = self.zero(operand);
                self.cursor.function.insts[inst].operands[place] = self.select(valid, operand, zero);
            }
        }
        self.cursor.insert(inst);
    }

    fn zero(&mut self, like: Value) -> Value {
        let ty = self.cursor.function.ty(like).clone();
        let scalar = ty.with_shape(Shape::scalar());
        let dtype = ty.dtype().expect("operands of dots are numbers");
        let zero = Literal::float(dtype, 0.0).unwrap_or_else(|| Literal::int(Dtype::I8, 0));
        let zero = if dtype.is_float() { zero } else { Literal::int(dtype, 0) };
        let mut value = self.cursor.constant(zero);
        if zero.dtype != dtype {
            // The 8-bit formats have no literals, but their zeros have no bit set.
            value = self.cursor.value(Op::Bitcast { element: ty.element }, &[value], scalar);
        }
        self.cursor.value(Op::Splat { shape: ty.shape.clone() }, &[value], ty)
    }

    /// Writes the mask of the program's elements in a tile of this shape.
    fn valid(&mut self, shape: &Shape) -> Value {
        let axes: SmallVec<[usize; 4]> =
            (0..shape.len()).filter(|axis| !shape[*axis].is_power_of_two()).collect();
        let mut masks =
            axes.iter().map(|axis| self.valid_along(shape, *axis)).collect::<Vec<_>>().into_iter();
        let first = masks.next().expect("an axis is padded");
        masks.fold(first, |all, mask| self.binary(ElementwiseFn::And, all, mask))
    }

    /// Writes the mask of the program's coordinates along an axis.
    fn valid_along(&mut self, shape: &Shape, axis: usize) -> Value {
        let extent = shape[axis].next_power_of_two();
        let place = self.arange(extent);
        let end = self.splat_int(shape[axis].into(), &Shape::from([extent]));
        let valid = self.binary(ElementwiseFn::Lt, place, end);
        self.along(valid, axis, &padded(shape))
    }

    /// Broadcasts a 1-D tile to `shape` along `axis`.
    fn along(&mut self, line: Value, axis: usize, shape: &Shape) -> Value {
        let mut ones = Shape(SmallVec::from_elem(1, shape.len()));
        ones.0[axis] = shape[axis];
        let ty = self.cursor.function.ty(line).clone();
        let line = self.reshaped(line, &ones);
        if ones == *shape {
            return line;
        }
        self.cursor.value(Op::Broadcast { shape: shape.clone() }, &[line], ty.with_shape(shape.clone()))
    }

    fn reshaped(&mut self, tile: Value, shape: &Shape) -> Value {
        let ty = self.cursor.function.ty(tile).clone();
        if ty.shape == *shape {
            return tile;
        }
        self.cursor.value(Op::Reshape { shape: shape.clone() }, &[tile], ty.with_shape(shape.clone()))
    }

    fn arange(&mut self, extent: u32) -> Value {
        self.cursor.value(Op::Arange { start: 0, end: extent.into() }, &[], Type::tile(Dtype::I32, [extent]))
    }

    fn splat_int(&mut self, value: i64, shape: &Shape) -> Value {
        let scalar = self.cursor.int(Dtype::I32, value);
        let ty = Type::tile(Dtype::I32, shape.clone());
        self.cursor.value(Op::Splat { shape: shape.clone() }, &[scalar], ty)
    }

    fn binary(&mut self, function: ElementwiseFn, x: Value, y: Value) -> Value {
        let operands = [self.cursor.function.ty(x).clone(), self.cursor.function.ty(y).clone()];
        let ty = function.result_type(&operands).expect("the operands are of one type");
        self.cursor.elementwise(function, &[x, y], ty)
    }

    fn select(&mut self, condition: Value, x: Value, y: Value) -> Value {
        let ty = self.cursor.function.ty(x).clone();
        self.cursor.elementwise(ElementwiseFn::Select, &[condition, x, y], ty)
    }
}
