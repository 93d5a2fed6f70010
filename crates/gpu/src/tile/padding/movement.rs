//! Pads ops that count elements: reshapes, slices and gathers.

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Dtype, ElementwiseFn, Inst, IntList, Op, Shape, Type, Value};

use super::{Pad, padded};
use tilewright_gpu_ir::layout_rules::renames_registers;

impl Pad<'_> {
    /// Pads a reshape. The op stays a reshape if it maps the padded shapes to each other
    /// ([`keeps_padding_behind`]). Otherwise a gather moves the elements.
    pub(super) fn reshape(&mut self, inst: Inst, to: &Shape) {
        let data = &self.cursor.function.insts[inst];
        let (tile, result) = (data.operands[0], data.results[0]);
        let from = self.shape(tile);
        if keeps_padding_behind(&from, to) {
            self.cursor.function.insts[inst].op = Op::Reshape { shape: padded(to) };
            self.keep_zeros(tile, result);
            self.cursor.insert(inst);
            return;
        }
        if to.len() == 1 {
            self.flattened.insert(result, tile);
        }
        let place = self.place_in(&from, to);
        let all = self.cursor.function.ty(tile).shape.elements() as u32;
        let line = self.reshaped(tile, &Shape::from([all]));
        let shape = padded(to);
        let index = self.reshaped(place, &Shape::from([shape.elements() as u32]));
        let taken = self.taken(line, index, 0);
        self.define_as(result, taken, shape);
    }

    /// Computes the row-major index in the padded `from` of each element of `to`. Without padding,
    /// this index is the same in both shapes.
    fn place_in(&mut self, from: &Shape, to: &Shape) -> Value {
        let shape = padded(to);
        let mut number = self.splat_int(0, &shape);
        let mut stride = 1;
        for axis in (0..to.len()).rev() {
            if to[axis] > 1 {
                let coordinate = self.arange(shape[axis]);
                let scaled = self.times(coordinate, stride);
                let scaled = self.along(scaled, axis, &shape);
                number = self.binary(ElementwiseFn::Add, number, scaled);
            }
            stride *= i64::from(to[axis]);
        }
        let mut place = self.splat_int(0, &shape);
        let mut stride = 1;
        for extent in from.iter().rev().copied() {
            let divisor = self.splat_int(extent.into(), &shape);
            let coordinate = self.binary(ElementwiseFn::IntRem, number, divisor);
            number = self.binary(ElementwiseFn::IntDiv, number, divisor);
            let scaled = self.times(coordinate, stride);
            place = self.binary(ElementwiseFn::Add, place, scaled);
            stride *= i64::from(extent.next_power_of_two());
        }
        place
    }

    fn times(&mut self, tile: Value, factor: i64) -> Value {
        let shape = self.cursor.function.ty(tile).shape.clone();
        let factor = self.splat_int(factor, &shape);
        self.binary(ElementwiseFn::Mul, tile, factor)
    }

    fn taken(&mut self, tile: Value, index: Value, axis: u32) -> Value {
        let shape = self.cursor.function.ty(index).shape.clone();
        let ty = self.cursor.function.ty(tile).with_shape(shape);
        self.cursor.value(Op::Gather { axis }, &[tile, index], ty)
    }

    /// Redefines a result as another value, reshaped to `shape`.
    fn define_as(&mut self, result: Value, value: Value, shape: Shape) {
        let ty = self.cursor.function.ty(value).with_shape(shape.clone());
        let inst = self.cursor.emit(Op::Reshape { shape }, &[value], [ty]);
        self.cursor.function.redefine(result, inst, 0);
    }

    /// Lowers a slice. Along an axis where the slice is aligned and drops few elements, it becomes
    /// a slice of registers. Otherwise, it becomes a gather.
    pub(super) fn slice(&mut self, inst: Inst, starts: &IntList, steps: &IntList, shape: &Shape) {
        let data = &self.cursor.function.insts[inst];
        let (mut tile, result) = (data.operands[0], data.results[0]);
        let whole = self.cursor.function.ty(tile).shape.clone();
        let rank = whole.len();
        let (mut first, mut distances): (IntList, IntList) = (smallvec![0; rank], smallvec![1; rank]);
        let mut part = whole.clone();
        let mut gathers: SmallVec<[usize; 4]> = smallvec![];
        let mut copies = 1;
        for axis in 0..rank {
            let (extent, count) = (whole[axis], shape[axis].next_power_of_two());
            let step = if count == 1 { 1 } else { steps[axis] };
            let fits = renames_registers(&[extent], &[starts[axis]], &[step], &[count]);
            if fits && copies * (extent / count) <= self.tuning.padded_slice_copies {
                copies *= extent / count;
                (first[axis], distances[axis], part.0[axis]) = (starts[axis], step, count);
            } else {
                gathers.push(axis);
            }
        }
        if part != whole {
            let ty = self.cursor.function.ty(tile).with_shape(part.clone());
            tile = self.cursor.value(Op::Slice { starts: first, steps: distances, shape: part }, &[tile], ty);
        }
        for axis in gathers {
            let mut taken = self.cursor.function.ty(tile).shape.clone();
            taken.0[axis] = shape[axis].next_power_of_two();
            let place = self.arange(taken[axis]);
            let place = self.times(place, steps[axis]);
            let start = self.splat_int(starts[axis], &Shape::from([taken[axis]]));
            let index = self.binary(ElementwiseFn::Add, place, start);
            let index = self.along(index, axis, &taken);
            tile = self.taken(tile, index, axis as u32);
        }
        self.define_as(result, tile, padded(shape));
    }

    /// Pads a gather, whose index wraps around at the program's extent.
    pub(super) fn gather(&mut self, inst: Inst) {
        let data = &self.cursor.function.insts[inst];
        let Op::Gather { axis } = data.op else { return self.cursor.insert(inst) };
        let (tile, index) = (data.operands[0], data.operands[1]);
        let extent = self.shape(tile)[axis as usize];
        if !extent.is_power_of_two() {
            let shape = self.cursor.function.ty(index).shape.clone();
            let divisor = self.splat_int(extent.into(), &shape);
            let rest = self.binary(ElementwiseFn::IntRem, index, divisor);
            let zero = self.splat_int(0, &shape);
            let is_negative = self.binary(ElementwiseFn::Lt, rest, zero);
            let wrapped = self.binary(ElementwiseFn::Add, rest, divisor);
            self.cursor.function.insts[inst].operands[1] = self.select(is_negative, wrapped, rest);
        }
        self.cursor.insert(inst);
    }
}

/// Returns whether a reshape also maps the padded shapes. The shapes split into groups of axes with
/// equal products, each with padding only on its outermost axis.
fn keeps_padding_behind(from: &[u32], to: &[u32]) -> bool {
    let wide = |shape: &[u32]| -> SmallVec<[u64; 8]> {
        shape.iter().filter(|extent| **extent != 1).map(|extent| u64::from(*extent)).collect()
    };
    let (from, to) = (wide(from), wide(to));
    let (mut i, mut j) = (0, 0);
    while i < from.len() && j < to.len() {
        let (mut left, mut right) = (from[i], to[j]);
        let mut is_aligned = true;
        i += 1;
        j += 1;
        while left != right {
            let next = if left < right { (&mut left, &from, &mut i) } else { (&mut right, &to, &mut j) };
            let (product, axes, place) = next;
            let extent = axes[*place];
            *product *= extent;
            *place += 1;
            is_aligned &= extent.is_power_of_two();
        }
        if !is_aligned {
            return false;
        }
    }
    true
}

pub(super) fn mask_of(ty: &Type) -> Type {
    ty.with_dtype(Dtype::I1)
}
