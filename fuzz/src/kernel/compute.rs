//! Generates ops on tiles: elementwise functions, casts, shapes, reductions, matrix
//! multiplications, hints.

use smallvec::SmallVec;
use tilewright_ir::{
    Accuracy, Builder, Dtype, Element, ElementwiseFn as F, Failure, HintKind, InputPrecision, IntList, Op,
    Rounding, Shape, Signature, Type, Value,
};

use super::fact::{Fact, Range};
use super::{Generator, MAX_ELEMENTS, VALID};

impl Generator {
    pub(super) fn elementwise_of(&mut self, function: F, operands: &[Value]) -> Value {
        self.sure(Op::Elementwise { function }, operands)
    }

    /// Applies an elementwise function to values in scope. If the kernel must be exact, the
    /// function is exact too.
    pub(super) fn elementwise(&mut self) {
        let is_exact = self.is_exact || self.random.chance(3);
        let fits = |function: &F| is_exact == (function.info().accuracy == Accuracy::Exact);
        let functions: Vec<F> = F::ALL.iter().copied().filter(fits).collect();
        let function = self.random.pick(&functions);
        let info = function.info();
        // Pointers are not compared, because addresses differ between devices. Functions that may
        // return NaN are excluded for a format without NaN, because the conversion of NaN to this
        // format is unspecified.
        let makes_nan = function.info().accuracy != Accuracy::Exact
            || matches!(function, F::DivRn | F::FloatRem | F::SqrtRn);
        let takes = |element: Element| match info.signature {
            Signature::Select => true,
            Signature::Same | Signature::Compare => {
                let dtype = element.value();
                dtype.is_some()
                    && info.domain.contains(element)
                    && !(makes_nan && dtype == Some(Dtype::F8E4B15))
            }
        };
        let Some(x) = self.find(|this, value| takes(this.ty(value).element)) else { return };
        let ty = self.ty(x);
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        if info.signature == Signature::Select {
            operands.push(self.value_of(&ty.with_dtype(Dtype::I1)));
        }
        operands.push(x);
        while operands.len() < info.operands.len() {
            operands.push(self.value_of(&ty));
        }
        if self.random.chance(4) {
            let last = operands.len() - 1;
            operands.swap(last, last.saturating_sub(1).max(usize::from(info.signature == Signature::Select)));
        }
        let result = self.elementwise_of(function, &operands);
        self.pool.push(result);
    }

    pub(super) fn cast_to(&mut self, value: Value, dtype: Dtype) -> Value {
        if self.ty(value).dtype() == Some(dtype) {
            return value;
        }
        let value = if dtype == Dtype::F8E4B15 { self.quiet(value) } else { value };
        let rounding = if self.random.chance(4) { Rounding::TowardsZero } else { Rounding::NearestEven };
        self.sure(Op::Cast { element: Element::Value(dtype), rounding }, &[value])
    }

    pub(super) fn cast(&mut self) {
        let Some(value) = self.find(|this, value| this.ty(value).dtype().is_some()) else { return };
        let from = self.ty(value).dtype().expect("it is a number");
        let dtype = self.random.pick(Dtype::ALL);
        let result = if from.bits() == dtype.bits() && self.random.chance(2) {
            let value = self.quiet(value);
            self.sure(Op::Bitcast { element: Element::Value(dtype) }, &[value])
        } else {
            self.cast_to(value, dtype)
        };
        self.pool.push(result);
    }

    /// Rearranges the elements of a tile of numbers or pointers.
    pub(super) fn shape(&mut self) {
        let value = self.any();
        let ty = self.ty(value);
        let op = match self.random.below(8) {
            0 if ty.rank() < 4 => Op::ExpandDims { axis: self.random.below(ty.rank() + 1) as u32 },
            1 | 2 => {
                let room = MAX_ELEMENTS as usize / ty.shape.elements();
                let most = 1 << self.random.below(room.max(1).ilog2() as usize + 1);
                let mut has_grown = false;
                let shape = ty.shape.iter().map(|&extent| {
                    let is_next = extent == 1 && !std::mem::replace(&mut has_grown, extent == 1);
                    if is_next { most } else { extent }
                });
                Op::Broadcast { shape: shape.collect() }
            }
            3 => Op::Reshape { shape: self.split_shape(ty.shape.elements() as u32) },
            4 if ty.is_scalar() => Op::Splat { shape: self.any_shape() },
            5 | 6 if !ty.is_scalar() => return self.part(value, &ty),
            _ => {
                let mut permutation: IntList = (0..ty.rank() as i64).collect();
                for place in 0..permutation.len() {
                    let other = self.random.below(permutation.len());
                    permutation.swap(place, other);
                }
                Op::Transpose { permutation }
            }
        };
        if let Some(result) = self.pure(op, &[value]).filter(|&result| !self.ty(result).is_scalar()) {
            self.pool.push(result);
        }
    }

    /// Generates a slice of a tile, or a gather from a tile.
    fn part(&mut self, tile: Value, ty: &Type) {
        let result = if self.random.chance(2) {
            let (mut starts, mut steps) = (IntList::new(), IntList::new());
            let mut shape = Shape::scalar();
            for &extent in ty.shape.iter() {
                let extent = i64::from(extent);
                let step = self.random.pick(&[1, 1, 1, 2, 4, -1, -3]);
                let first = self.random.below(extent as usize) as i64 & self.random.pick(&[0, -1, -1, -8]);
                let room = if step > 0 { (extent - 1 - first) / step } else { first / -step };
                let count = self.random.below(room as usize + 1) as u32 + 1;
                starts.push(first);
                steps.push(step);
                shape
                    .0
                    .push(if self.random.chance(2) { count } else { count.next_power_of_two() / 2 }.max(1));
            }
            self.pure(Op::Slice { starts, steps, shape }, &[tile])
        } else {
            let axis = self.random.below(ty.rank());
            let mut shape = ty.shape.clone();
            let room = MAX_ELEMENTS as usize / shape.without(axis).elements();
            shape.0[axis] = self.random.below(room.clamp(1, 40)) as u32 + 1;
            let index = self.value_of(&Type::tile(Dtype::I32, shape.clone()));
            // The indices are clamped, because an out-of-range index would stop the executor.
            let [first, last] = [0, i128::from(ty.shape[axis]) - 1].map(|bound| {
                let bound = self.constant(Dtype::I32, bound);
                self.splat(bound, &shape)
            });
            let index = self.sure(Op::Elementwise { function: F::Max }, &[index, first]);
            let index = self.sure(Op::Elementwise { function: F::Min }, &[index, last]);
            self.pure(Op::Gather { axis: axis as u32 }, &[tile, index])
        };
        if let Some(result) = result {
            self.pool.push(result);
        }
    }

    /// Returns a random shape with this number of elements.
    fn split_shape(&mut self, elements: u32) -> Shape {
        let mut left = elements;
        let mut shape: Shape = (0..self.random.below(3))
            .map(|_| {
                let divisors: Vec<u32> = (1..=left).filter(|extent| left.is_multiple_of(*extent)).collect();
                let extent = self.random.pick(&divisors);
                left /= extent;
                extent
            })
            .collect();
        shape.0.push(left);
        shape
    }

    /// Generates a reduction or a scan of one or two tiles along an axis. The result of the combine
    /// region does not depend on the order of the elements.
    pub(super) fn reduce(&mut self) {
        let Some(first) =
            self.find(|this, value| !this.ty(value).is_scalar() && this.ty(value).dtype().is_some())
        else {
            return;
        };
        let shape = self.ty(first).shape;
        let axis = self.random.below(shape.len());
        let extent = i128::from(shape[axis]);
        let mut tiles: SmallVec<[Value; 4]> = SmallVec::from_slice(&[first]);
        if self.random.chance(2) {
            let dtype = self.random.pick(&[Dtype::I32, Dtype::I64, Dtype::U8, Dtype::F32, Dtype::F16]);
            tiles.push(self.value_of(&Type::tile(dtype, shape.clone())));
        }
        if tiles.len() == 2 && self.random.chance(2) {
            // Computes the maximum and its index, as `argmax` does.
            tiles[1] = self.numbers_along(&shape, axis);
            return self.greatest(&tiles, axis);
        }
        let functions: Vec<F> = tiles.iter().map(|&tile| self.combining(tile, extent)).collect();
        let scalars: Vec<Type> =
            tiles.iter().map(|&tile| self.ty(tile).with_shape(Shape::scalar())).collect();
        let parameters: Vec<(Type, Fact)> =
            scalars.iter().chain(&scalars).map(|ty| (ty.clone(), Fact::unknown(ty))).collect();
        let combine = self.region(&parameters, |this, values| {
            let (left, right) = values.split_at(functions.len());
            let pairs = left.iter().zip(right).zip(&functions);
            pairs.map(|((&x, &y), &function)| this.elementwise_of(function, &[x, y])).collect()
        });
        let results = if self.random.chance(3) {
            let reverse = self.random.chance(2);
            self.builder.scan(tiles.clone(), axis as u32, reverse, combine).expect(VALID)
        } else {
            self.builder.reduce(tiles.clone(), axis as u32, combine).expect(VALID)
        };
        for ((result, &tile), function) in results.into_iter().zip(&tiles).zip(functions) {
            let range = self.range(tile).filter(|_| self.ty(tile).dtype().is_some_and(Dtype::is_float));
            if let Some(range) = range {
                let factor = if function == F::Add { Range::exactly(extent) } else { Range::exactly(1) };
                let fact = Fact::unknown(&self.ty(result));
                self.facts[result] = Some(Fact { range: Some(range.times(factor)), ..fact });
            }
            self.pool.push(result);
        }
    }

    /// Generates a map over two integer tiles with several elements per call, with or without
    /// control flow. A result depends only on the elements at its own position, because the
    /// grouping of elements is unspecified.
    pub(super) fn map(&mut self) {
        let is_tile = |this: &Self, value| {
            let ty = this.ty(value);
            !ty.is_scalar() && ty.dtype().is_some_and(|dtype| dtype.is_int() && dtype != Dtype::I1)
        };
        let Some(first) = self.find(is_tile) else { return };
        let ty = self.ty(first);
        let second = self.value_of(&ty);
        let pack = 1 << self.random.below(3);
        let scalar = ty.with_shape(Shape::scalar());
        let parameters = vec![(scalar.clone(), Fact::unknown(&scalar)); 2 * pack as usize];
        let functions = [F::Add, F::Xor, F::Min, F::Max, F::Mul];
        let [function, other] = [(); 2].map(|()| self.random.pick(&functions));
        let branches = self.random.chance(2);
        let combine = self.region(&parameters, |this, values| {
            let (left, right) = values.split_at(pack as usize);
            let one = |this: &mut Self, (&x, &y): (&Value, &Value)| {
                if !branches {
                    return this.elementwise_of(function, &[x, y]);
                }
                let condition = this.elementwise_of(F::Lt, &[x, y]);
                let regions = [function, other]
                    .map(|function| this.region(&[], |this, _| vec![this.elementwise_of(function, &[x, y])]));
                let operands = SmallVec::from_slice(&[condition]);
                let regions = regions.into_iter().collect();
                Builder::emit(&mut this.builder, Op::If {}, operands, regions).expect(VALID)[0]
            };
            left.iter().zip(right).map(|pair| one(this, pair)).collect()
        });
        let results = self.builder.map(SmallVec::from_slice(&[first, second]), pack, combine).expect(VALID);
        for result in results {
            self.facts[result] = Some(Fact::unknown(&self.ty(result)));
            self.pool.push(result);
        }
    }

    /// Generates a histogram, a butterfly exchange or a bitonic stage.
    pub(super) fn lane_op(&mut self) {
        let is_tile = |this: &Self, value| !this.ty(value).is_scalar() && this.ty(value).dtype().is_some();
        let choice = self.random.below(3);
        let is_wide = |this: &Self, value| {
            is_tile(this, value) && matches!(this.ty(value).dtype(), Some(Dtype::I32 | Dtype::I64))
        };
        let found = if choice == 2 { self.find(is_wide) } else { self.find(is_tile) };
        let Some(tile) = found else { return };
        let ty = self.ty(tile);
        let axis = self.random.below(ty.rank());
        let extent = ty.shape[axis];
        let op = match choice {
            0 => Op::Histogram { bins: 1 << self.random.below(6) },
            1 => Op::Butterfly { axis: axis as u32, mask: self.random.below(extent as usize) as u32 },
            _ => {
                let high = self.random.below(extent.max(2).ilog2() as usize) as u32;
                let low = self.random.below(high as usize + 1) as u32;
                let block = high + 1;
                Op::Bitonic { axis: axis as u32, high, low, block, descending: self.random.chance(2) }
            }
        };
        // If the op does not support the element type, nothing is added.
        let results = self.pure(op, &[tile]);
        self.pool.extend(results);
    }

    /// Returns a combine function for a reduction of a tile. Float addition is only possible if all
    /// sums are exact.
    fn combining(&mut self, tile: Value, extent: i128) -> F {
        let element = self.ty(tile).element;
        let is_exact = !element.value().is_some_and(Dtype::is_float)
            || self.range(tile).is_some_and(|range| {
                range.times(Range::exactly(extent)).is_within(super::fact::limits(element))
            });
        let all = [F::Add, F::Add, F::Min, F::Max, F::And, F::Or, F::Xor, F::Mul, F::MinNan];
        let fits = |function: &F| {
            function.info().domain.contains(element)
                && match function {
                    F::Add => is_exact,
                    F::Mul => !element.value().is_some_and(Dtype::is_float),
                    // tidy: wildcard because the others do not round.
                    _ => true,
                }
        };
        let functions: Vec<F> = all.into_iter().filter(fits).collect();
        self.random.pick(&functions)
    }

    /// Returns a tile whose elements are their indices along an axis.
    fn numbers_along(&mut self, shape: &Shape, axis: usize) -> Value {
        let mut index = self.sure(Op::Arange { start: 0, end: shape[axis].into() }, &[]);
        for other in 0..shape.len() {
            if other != axis {
                index = self.sure(Op::ExpandDims { axis: other as u32 }, &[index]);
            }
        }
        self.sure(Op::Broadcast { shape: shape.clone() }, &[index])
    }

    /// Computes the maximum along an axis, and the smallest index of the maximum.
    fn greatest(&mut self, tiles: &SmallVec<[Value; 4]>, axis: usize) {
        let mut tiles = tiles.clone();
        tiles[0] = self.quiet(tiles[0]);
        let scalars: Vec<Type> =
            tiles.iter().map(|&tile| self.ty(tile).with_shape(Shape::scalar())).collect();
        let parameters: Vec<(Type, Fact)> =
            scalars.iter().chain(&scalars).map(|ty| (ty.clone(), Fact::unknown(ty))).collect();
        let combine = self.region(&parameters, |this, values| {
            let &[x, i, y, j] = values else { unreachable!("two of each") };
            let greater = this.elementwise_of(F::Gt, &[x, y]);
            let equal = this.elementwise_of(F::Eq, &[x, y]);
            let before = this.elementwise_of(F::Lt, &[i, j]);
            let first = this.elementwise_of(F::And, &[equal, before]);
            let is_left = this.elementwise_of(F::Or, &[greater, first]);
            [(x, y), (i, j)].map(|(x, y)| this.elementwise_of(F::Select, &[is_left, x, y])).into()
        });
        let results = self.builder.reduce(tiles, axis as u32, combine).expect(VALID);
        // Zeros of both signs compare equal. The maximum is then the zero at the smallest index.
        self.pool.extend(results);
    }

    /// Generates a multiplication of matrices of small integers. The matrices may have a batch
    /// axis.
    pub(super) fn dot(&mut self) {
        let inputs = [
            Dtype::F16,
            Dtype::BF16,
            Dtype::F32,
            Dtype::F64,
            Dtype::I8,
            Dtype::U8,
            Dtype::F8E5,
            Dtype::F8E4NV,
        ];
        let dtype = self.random.pick(&inputs);
        let sum = match dtype {
            Dtype::I8 | Dtype::U8 => Dtype::I32,
            Dtype::F64 => Dtype::F64,
            // tidy: wildcard because the other formats accumulate in these.
            _ => self.random.pick(&[Dtype::F32, Dtype::F32, Dtype::F16]),
        };
        let [rows, columns, inner] = [(); 3].map(|()| 16_u32 >> self.random.below(3) << self.random.below(3));
        let batch: Shape = if self.random.chance(4) { [2].into() } else { Shape::scalar() };
        let mut operand = |height: u32, width: u32| {
            let shape: Shape = batch.iter().copied().chain([height, width]).collect();
            let ty = Type::tile(dtype, shape);
            self.small(&ty)
        };
        let (a, b) = (operand(rows, inner), operand(inner, columns));
        let shape: Shape = batch.iter().copied().chain([rows, columns]).collect();
        let acc = if self.random.chance(2) {
            let zero = self.constant(sum, 0);
            self.splat(zero, &shape)
        } else {
            self.small(&Type::tile(sum, shape))
        };
        self.dot_of([a, b, acc]);
    }

    /// Multiplies matrices if all sums are exact. Otherwise, returns `None`.
    pub(super) fn dot_of(&mut self, [a, b, acc]: [Value; 3]) -> Option<Value> {
        let ty = self.ty(acc);
        let k = i128::from(*self.ty(a).shape.last()?);
        let is_int = ty.dtype().is_some_and(Dtype::is_int);
        let range = self.range(a).zip(self.range(b)).zip(self.range(acc));
        let range =
            range.map(|((a, b), acc)| a.times(b).times(Range::exactly(k)).hull(Range::exactly(0)).plus(acc));
        let is_exact = range.is_some_and(|range| range.is_within(super::fact::limits(ty.element)));
        if !is_int && !is_exact {
            return None;
        }
        let precision = self.random.pick(InputPrecision::ALL);
        let result = self.builder.dot(a, b, acc, precision, 0).ok()?;
        if is_exact {
            self.facts[result] = Some(Fact { range, ..Fact::unknown(&ty) });
        }
        self.pool.push(result);
        Some(result)
    }

    /// Returns a tile of small integers, which can be an operand of an exact multiplication.
    pub(super) fn small(&mut self, ty: &Type) -> Value {
        let dtype = ty.dtype().expect("it is a number");
        let found = self.find(|this, value| {
            this.builder.function.ty(value) == ty
                && this.range(value).is_some_and(|range| range.is_within(Range::new(-8, 8)))
        });
        if let Some(found) = found.filter(|_| !self.random.chance(4)) {
            return found;
        }
        let any = self.value_of(&Type::tile(Dtype::I32, ty.shape.clone()));
        let number = |this: &mut Self, number: i128| {
            let number = this.constant(Dtype::I32, number);
            this.splat(number, &ty.shape)
        };
        let (mask, middle) = (number(self, 3), number(self, i128::from(dtype.is_float()) * 2));
        let bits = self.elementwise_of(F::And, &[any, mask]);
        let numbers = self.elementwise_of(F::Sub, &[bits, middle]);
        self.cast_to(numbers, dtype)
    }

    /// Generates a barrier, or a hint, an assumption or an assertion that is true for a value.
    pub(super) fn hint(&mut self) {
        let Some(value) = self.find(|this, value| this.ty(value).dtype().is_some_and(Dtype::is_int)) else {
            return;
        };
        let (ty, range) = (self.ty(value), self.range(value).expect("integers have a range"));
        let dtype = ty.dtype().expect("it is a number");
        match self.random.below(4) {
            0 => self.builder.barrier().expect(VALID),
            1 if !dtype.is_bool() => {
                let most = range
                    .single()
                    .map_or(1, |number| if number == 0 { 16 } else { 1 << number.trailing_zeros().min(4) });
                let values = IntList::from_elem(most, ty.rank().max(1));
                let hinted = self.sure(Op::Hint { kind: HintKind::MultipleOf, values }, &[value]);
                self.pool.push(hinted);
            }
            which => {
                let most = self.constant(dtype, range.high);
                let most = self.splat(most, &ty.shape);
                let holds = self.elementwise_of(F::Le, &[value, most]);
                let failure = Failure::Assertion("it holds".into());
                let made = if which == 2 {
                    self.builder.assume(holds)
                } else {
                    self.builder.assert(holds, None, failure)
                };
                made.expect(VALID);
            }
        }
    }
}
