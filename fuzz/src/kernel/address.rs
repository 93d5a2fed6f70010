//! Generates pointers and memory accesses. The addresses have all forms that occur in programs, and
//! some unusual forms.
//!
//! A pointer moves at random, even far outside its memory. The known range of the pointer then
//! determines the constant that moves it back.

use smallvec::SmallVec;
use tilewright_ir::{
    AtomicKind, Builder, CacheModifier, Dtype, Element, ElementwiseFn as F, EvictionPolicy, HintKind,
    IntList, MemoryScope, MemorySemantics, Op, Rounding, Shape, Type, Value,
};

use super::fact::{self, Fact, Memory, Range, Spread};
use super::{BYTES, Generator, NUMBERS, VALID};

/// The types of offsets.
const OFFSETS: [Dtype; 12] = [
    Dtype::I32,
    Dtype::I32,
    Dtype::I32,
    Dtype::I32,
    Dtype::I64,
    Dtype::I64,
    Dtype::U32,
    Dtype::U64,
    Dtype::I16,
    Dtype::U16,
    Dtype::I8,
    Dtype::U8,
];

impl Generator {
    /// Adds the slice of each output that belongs to this program to the bases.
    pub(super) fn own_slices(&mut self, outputs: Vec<Value>) {
        let program = self.sure(Op::ProgramId { axis: 0 }, &[]);
        let count = self.sure(Op::NumPrograms { axis: 0 }, &[]);
        let range = Range::new(0, i128::from(self.programs) - 1);
        self.facts[program] = Some(Fact { range: Some(range), ..Fact::exactly(0, Memory::Any) });
        self.facts[count] = Some(Fact::exactly(self.programs.into(), Memory::Any));
        self.pool.extend([program, count]);
        for output in outputs {
            let size = self.ty(output).element.pointee().expect("it is a pointer").bytes();
            let dtype = self.random.pick(&[Dtype::I32, Dtype::I64]);
            let program = self.cast_to(program, dtype);
            let elements = self.constant(dtype, (BYTES / size) as i128);
            let offset = self.elementwise_of(F::Mul, &[program, elements]);
            let slice = self.sure(Op::PtrAdd {}, &[output, offset]);
            self.facts[slice] = Some(Fact::exactly(0, Memory::Output));
            self.bases.push(slice);
        }
    }

    /// Adds a pointer to the first input to the bases. The pointer is an address that the kernel
    /// loads from memory.
    pub(super) fn address_of_first(&mut self, table: Value) {
        let address = self.builder.load(table, None, None, Default::default()).expect(VALID);
        let element = self.ty(self.bases[0]).element;
        let pointer = self.sure(Op::Cast { element, rounding: Rounding::default() }, &[address]);
        self.facts[pointer] = Some(Fact::exactly(0, Memory::Input));
        self.bases.push(pointer);
    }

    fn size(&self, pointer: Value) -> i128 {
        self.ty(pointer).element.pointee().expect("it is a pointer").bytes() as i128
    }

    /// Moves a pointer by a number of elements, such that it points into its memory. Returns `None`
    /// if the pointer's range is larger than the memory.
    fn moved_in_bounds(&mut self, pointer: Value) -> Option<Value> {
        let (size, range) = (self.size(pointer), self.range(pointer)?);
        let room = BYTES as i128 - (range.high - range.low + size);
        if room < 0 {
            return None;
        }
        let is_inside = range.low >= 0 && range.high + size <= BYTES as i128;
        if is_inside && !self.random.chance(4) {
            return Some(pointer);
        }
        // The offset is the smallest in-bounds offset plus a random part of the slack.
        let first = (-range.low).div_euclid(size) + i128::from((-range.low).rem_euclid(size) != 0);
        let number = first + self.random.below((room / size) as usize + 1) as i128;
        self.moved_by(pointer, number).filter(|&moved| {
            let range = self.range(moved).expect("a pointer has a range");
            range.low >= 0 && range.high + size <= BYTES as i128
        })
    }

    /// Moves a pointer by a number of elements. The offset has an integer type that can represent
    /// the number.
    fn moved_by(&mut self, pointer: Value, number: i128) -> Option<Value> {
        let dtype =
            if i32::try_from(number).is_ok() && !self.random.chance(3) { Dtype::I32 } else { Dtype::I64 };
        let offset = self.constant(dtype, i64::try_from(number).ok()?.into());
        let shape = self.ty(pointer).shape;
        let offset = self.splat(offset, &shape);
        self.pure(Op::PtrAdd {}, &[pointer, offset])
    }

    /// Moves a pointer by an offset with a known range. Distinct elements stay distinct.
    fn moved(&mut self, pointer: Value) -> Value {
        let ty = self.ty(pointer);
        let shape = ty.shape.clone();
        let dtype = self.random.pick(&OFFSETS);
        match self.random.below(8) {
            // Converts the pointer to an integer and back.
            0 => {
                let as_number = Element::Value(self.random.pick(&[Dtype::I64, Dtype::U64]));
                let number =
                    self.sure(Op::Cast { element: as_number, rounding: Rounding::default() }, &[pointer]);
                let number_of_bytes = self.random.pick(&[0, 16, -64, 1 << 35]) * self.size(pointer);
                let fact = self.fact(pointer);
                let range = fact.range.map(|range| range.plus(Range::exactly(number_of_bytes)));
                let step = self.constant(as_number.value().expect("it is a number"), number_of_bytes);
                let step = self.splat(step, &shape);
                let sum = self.elementwise_of(F::Add, &[number, step]);
                let cast = Op::Cast { element: ty.element, rounding: Rounding::default() };
                let moved = self.sure(cast, &[sum]);
                self.facts[moved] = Some(Fact { range, ..fact });
                moved
            }
            // Adds a multiple of a tile of offsets, and then subtracts it again. The subtraction
            // may leave one step.
            1 if !ty.is_scalar() => {
                let Some(way) = self.offsets(&shape, dtype, 64) else { return pointer };
                let (times, rest) = (self.random.pick(&[2, 3, -5, 1000]), self.random.below(2) as i128);
                let Some(there) = self.scaled(way, times) else { return pointer };
                let Some(back) = self.scaled(way, rest - times) else { return pointer };
                let far = self.sure(Op::PtrAdd {}, &[pointer, there]);
                let moved = self.sure(Op::PtrAdd {}, &[far, back]);
                let same = if rest == 0 { pointer } else { self.sure(Op::PtrAdd {}, &[pointer, way]) };
                self.facts[moved] = Some(self.fact(same));
                moved
            }
            // Adds a scalar whose exact value the generator knows. The compiler often does not know
            // this value, because it is an argument.
            2 | 3 => {
                let number = self.find(|this, value| {
                    let ty = this.builder.function.ty(value);
                    let is_number =
                        ty.is_scalar() && ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
                    is_number && this.range(value).is_some_and(|range| range.single().is_some())
                });
                let Some(number) = number else { return pointer };
                let number = self.splat(number, &shape);
                self.sure(Op::PtrAdd {}, &[pointer, number])
            }
            4 => {
                let (kind, count) = (HintKind::MultipleOf, shape.len().max(1));
                self.sure(Op::Hint { kind, values: IntList::from_elem(1, count) }, &[pointer])
            }
            _ => {
                let number = self.random.pick(&NUMBERS);
                let number = self.constant(dtype, number);
                let number = self.splat(number, &shape);
                self.sure(Op::PtrAdd {}, &[pointer, number])
            }
        }
    }

    /// Multiplies integers by a factor. Returns `None` if the product overflows.
    fn scaled(&mut self, value: Value, times: i128) -> Option<Value> {
        let ty = self.ty(value);
        let dtype = ty.dtype()?;
        let exact = self.range(value)?.times(Range::exactly(times));
        let factor = self.constant(dtype, times);
        if self.range(factor)?.single()? != times {
            return None;
        }
        let factor = self.splat(factor, &ty.shape);
        let product = self.elementwise_of(F::Mul, &[value, factor]);
        let fact = self.fact(product);
        if times != 0 && fact.range == Some(exact) {
            self.facts[product] = Some(Fact { spread: self.fact(value).spread, ..fact });
        }
        (fact.range == Some(exact)).then_some(product)
    }

    /// Returns a tile of offsets. Its range has at most `most` integers. The offsets may be
    /// distinct or not.
    fn offsets(&mut self, shape: &Shape, dtype: Dtype, most: i128) -> Option<Value> {
        let tile = match self.random.below(6) {
            // The compiler knows only the zero bits of these offsets.
            0 => {
                let any = self.value_of(&Type::tile(dtype, shape.clone()));
                let mask = self.constant(dtype, (1 << most.min(128).ilog2()) - 1);
                let mask = self.splat(mask, shape);
                self.elementwise_of(F::And, &[any, mask])
            }
            // These offsets are a function of the row-major index.
            1 => {
                let numbers = self.numbers(shape, dtype)?;
                let function =
                    self.random.pick(&[F::IntRem, F::IntDiv, F::Xor, F::Shr, F::Min, F::Max, F::Sub]);
                let number = self.random.pick(&[1, 2, 3, 5, 16]);
                let number = self.constant(dtype, number);
                let number = self.splat(number, shape);
                self.elementwise_of(function, &[numbers, number])
            }
            _ => self.strided(shape, dtype)?,
        };
        (self.range(tile)?.count() <= most).then_some(tile)
    }

    /// Returns the row-major index of each element.
    fn numbers(&mut self, shape: &Shape, dtype: Dtype) -> Option<Value> {
        let count = shape.elements() as i64;
        let start = if self.random.chance(3) { self.random.below(40) as i64 - 20 } else { 0 };
        let tile = self.sure(Op::Arange { start, end: start + count }, &[]);
        let tile = self.kept_cast(tile, dtype)?;
        Some(if shape.len() == 1 { tile } else { self.sure(Op::Reshape { shape: shape.clone() }, &[tile]) })
    }

    /// Casts integers to a type. Returns `None` if the cast may change the integers.
    fn kept_cast(&mut self, value: Value, dtype: Dtype) -> Option<Value> {
        let range = self.range(value);
        let cast = self.cast_to(value, dtype);
        (self.range(cast) == range).then_some(cast)
    }

    /// Returns the sum over the axes of stride times index. The strides are random, or make all
    /// elements distinct.
    fn strided(&mut self, shape: &Shape, dtype: Dtype) -> Option<Value> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        for place in 0..order.len() {
            let other = self.random.below(order.len());
            order.swap(place, other);
        }
        let is_distinct = !self.random.chance(4);
        let (mut sum, mut stride) = (None, self.random.pick(&[1, 1, 1, 2, 3]));
        for axis in order {
            let extent = shape[axis];
            let index = self.sure(Op::Arange { start: 0, end: extent.into() }, &[]);
            let index = self.kept_cast(index, dtype)?;
            let sign = if dtype.is_int() && dtype.is_signed() && self.random.chance(4) { -1 } else { 1 };
            let factor = if is_distinct { stride * sign } else { self.random.pick(&[0, 1, 2, 7, 16]) };
            stride *= i128::from(extent) + self.random.pick(&[0, 0, 0, 1, 4]);
            let mut term = if factor == 1 { index } else { self.scaled(index, factor)? };
            if self.random.chance(3) {
                // This term is an offset that the next term cancels.
                let number = self.random.pick(&NUMBERS[..12]);
                term = self.plus(term, number)?;
                term = self.plus(term, -number)?;
            }
            for other in 0..shape.len() {
                if other != axis {
                    term = self.sure(Op::ExpandDims { axis: other as u32 }, &[term]);
                }
            }
            sum = Some(match sum {
                None => term,
                Some(sum) => self.broadcast_sum(sum, term)?,
            });
        }
        let sum = self.sure(Op::Broadcast { shape: shape.clone() }, &[sum?]);
        if is_distinct && self.range(sum)?.count() < i128::from(u32::MAX) {
            let fact = self.fact(sum);
            self.facts[sum] = Some(Fact { spread: Spread::Distinct, ..fact });
        }
        Some(sum)
    }

    /// Adds a number to integers. Returns `None` if the sum overflows. Unsigned integers may wrap
    /// around, because the opposite number wraps them back.
    fn plus(&mut self, value: Value, number: i128) -> Option<Value> {
        let ty = self.ty(value);
        let (range, number) = (self.range(value)?, self.constant(ty.dtype()?, number));
        let number = self.splat(number, &ty.shape);
        let sum = self.elementwise_of(F::Add, &[value, number]);
        let is_kept = self.range(sum)?.count() == range.count() && range != fact::limits(ty.element);
        is_kept.then_some(sum)
    }

    /// Returns the sum of two tiles after broadcasting them along axes of extent 1.
    fn broadcast_sum(&mut self, x: Value, y: Value) -> Option<Value> {
        let shape: Shape =
            self.ty(x).shape.iter().zip(self.ty(y).shape.iter()).map(|(&x, &y)| x.max(y)).collect();
        let [x, y] = [x, y].map(|tile| self.sure(Op::Broadcast { shape: shape.clone() }, &[tile]));
        let exact = self.range(x)?.plus(self.range(y)?);
        let sum = self.elementwise_of(F::Add, &[x, y]);
        (self.range(sum)? == exact).then_some(sum)
    }

    /// Returns a pointer of a type: a base pointer, splatted to the shape of the type.
    pub(super) fn fresh_pointer(&mut self, ty: &Type) -> Value {
        let base = self.bases.iter().copied().find(|&base| self.ty(base).element == ty.element);
        let base = base.expect("there are pointers of no other types");
        self.splat(base, &ty.shape)
    }

    /// Returns an in-bounds pointer or tile of pointers. For a store, it points to distinct
    /// elements of the program's own slice.
    fn place(&mut self, for_store: bool) -> Option<Value> {
        let holds = |this: &Self, value: Value| {
            let (ty, fact) = (this.builder.function.ty(value), this.fact(value));
            let is_apart = ty.is_scalar() || fact.spread == Spread::Distinct;
            ty.element.pointee().is_some() && (!for_store || fact.memory == Memory::Output && is_apart)
        };
        let bases: Vec<Value> = self.bases.iter().copied().filter(|&base| holds(self, base)).collect();
        let old = self.find(holds).filter(|_| !self.random.chance(2));
        let mut pointer = old.unwrap_or_else(|| self.random.pick(&bases));
        if self.random.chance(8) && self.ty(pointer).element != Element::Pointer(Dtype::I1) {
            // Casts to a smaller element type, because such a cast keeps the alignment. Booleans
            // and bytes are not interchangeable.
            let size = self.size(pointer) as usize;
            let is_smaller = |dtype: &Dtype| dtype.bytes() <= size && !dtype.is_bool();
            let smaller: Vec<Dtype> = Dtype::ALL.iter().copied().filter(is_smaller).collect();
            let element = Element::Pointer(self.random.pick(&smaller));
            pointer = self.sure(Op::Cast { element, rounding: Rounding::default() }, &[pointer]);
        }
        for _ in 0..self.random.below(3) {
            pointer = self.moved(pointer);
        }
        if self.ty(pointer).is_scalar() && !self.random.chance(6) {
            let shape = self.any_shape();
            let most = BYTES as i128 / self.size(pointer);
            let dtype = self.random.pick(&OFFSETS);
            let offsets =
                if for_store { self.strided(&shape, dtype) } else { self.offsets(&shape, dtype, most) }?;
            pointer = self.splat(pointer, &shape);
            pointer = self.sure(Op::PtrAdd {}, &[pointer, offsets]);
        }
        for _ in 0..self.random.below(3) {
            pointer = self.moved(pointer);
        }
        let pointer = self.moved_in_bounds(pointer)?;
        let is_apart = self.ty(pointer).is_scalar() || self.fact(pointer).spread == Spread::Distinct;
        (!for_store || is_apart).then_some(pointer)
    }

    /// Adds an in-bounds pointer to the pool.
    pub(super) fn pointer(&mut self) {
        let for_store = self.random.chance(2);
        if let Some(pointer) = self.place(for_store) {
            self.pool.push(pointer);
        }
    }

    fn mask(&mut self, shape: &Shape) -> Value {
        if self.random.chance(3) {
            return self.value_of(&Type::tile(Dtype::I1, shape.clone()));
        }
        let dtype = self.random.pick(&[Dtype::I32, Dtype::I32, Dtype::I64]);
        let numbers = self.numbers(shape, dtype).expect("these hold all numbers");
        let bound = self.random.below(shape.elements() + 2) as i128;
        let bound = self.constant(dtype, bound);
        let bound = self.splat(bound, shape);
        let function = self.random.pick(&[F::Lt, F::Le, F::Gt, F::Ge, F::Ne]);
        self.elementwise_of(function, &[numbers, bound])
    }

    /// Returns pointers that are partly out of bounds, and the mask of the pointers in bounds.
    fn checked(&mut self) -> Option<(Value, Value)> {
        let base = self.random.below(4);
        let base = self.moved_in_bounds(self.bases[base])?;
        let room = (BYTES as i128 - self.range(base)?.high) / self.size(base);
        let shape = self.any_shape();
        let dtype = self.random.pick(&[Dtype::I32, Dtype::I32, Dtype::I64, Dtype::U32]);
        let any = self.value_of(&Type::tile(dtype, shape.clone()));
        let bits = self.random.bits() >> 33 >> self.random.below(31);
        let bits = self.constant(dtype, bits.into());
        let bits = self.splat(bits, &shape);
        let mut index = self.elementwise_of(F::And, &[any, bits]);
        if dtype.is_signed() {
            let down = self.random.below(300) as i128;
            index = self.plus(index, -down)?;
        }
        let zero = self.constant(dtype, 0);
        let zero = self.splat(zero, &shape);
        let bound = room - self.random.below(4) as i128;
        let bound = self.constant(dtype, bound);
        let bound = self.splat(bound, &shape);
        let [below, above] =
            [(F::Lt, bound), (F::Ge, zero)].map(|(f, y)| self.elementwise_of(f, &[index, y]));
        let mask = self.elementwise_of(F::And, &[below, above]);
        let pointer = self.splat(base, &shape);
        Some((self.sure(Op::PtrAdd {}, &[pointer, index]), mask))
    }

    pub(super) fn load(&mut self) {
        let found = if self.random.chance(5) {
            self.checked().map(|(pointer, mask)| (pointer, Some(mask)))
        } else {
            self.place(false).map(|pointer| {
                let shape = self.ty(pointer).shape;
                self.pool.push(pointer);
                (pointer, (!self.random.chance(3)).then(|| self.mask(&shape)))
            })
        };
        let Some((pointer, mask)) = found else { return };
        let ty = self.ty(pointer);
        let dtype = ty.element.pointee().expect("it is a pointer");
        let has_other = mask.is_some() && self.random.chance(2);
        let other = has_other.then(|| self.value_of(&ty.with_dtype(dtype)));
        let cache = self.random.pick(CacheModifier::ALL);
        let how = (cache, self.random.pick(EvictionPolicy::ALL), self.random.chance(8));
        let tile = self.builder.load(pointer, mask, other, how).expect(VALID);
        if dtype.is_float() && dtype != Dtype::F8E4B15 && self.fact(pointer).memory == Memory::Input {
            let loaded = Fact { range: Some(Range::new(-7, 7)), ..Fact::unknown(&self.ty(tile)) };
            self.facts[tile] = Some(other.map_or(loaded, |other| loaded.or(self.fact(other))));
        }
        self.pool.push(tile);
    }

    pub(super) fn store(&mut self) {
        let Some(pointer) = self.place(true) else { return };
        let ty = self.ty(pointer);
        let dtype = ty.element.pointee().expect("it is a pointer");
        let mask = self.random.chance(2).then(|| self.mask(&ty.shape));
        let value = self.value_of(&ty.with_dtype(dtype));
        let value = self.quiet(value);
        self.emit_store(pointer, value, mask);
        self.pool.push(pointer);
    }

    /// Generates an atomic operation on memory that no other program writes. Float additions are
    /// excluded, because targets treat subnormal numbers differently.
    pub(super) fn atomic(&mut self) {
        let base = self.random.pick(&self.bases.clone());
        let shape = if self.random.chance(3) { Shape::scalar() } else { self.any_shape() };
        let dtype = self.ty(base).element.pointee().expect("it is a pointer");
        let is_own = self.fact(base).memory == Memory::Output && self.ty(base).is_scalar();
        if !is_own || shape.elements() * dtype.bytes() > BYTES {
            return;
        }
        let mut pointer = base;
        if !shape.is_empty() {
            let numbers = self.sure(Op::Arange { start: 0, end: shape.elements() as i64 }, &[]);
            let numbers = self.sure(Op::Reshape { shape: shape.clone() }, &[numbers]);
            let base = self.splat(base, &shape);
            pointer = self.sure(Op::PtrAdd {}, &[base, numbers]);
        }
        let value = self.value_of(&Type::tile(dtype, shape.clone()));
        let value = self.quiet(value);
        let mask = (!shape.is_empty() && self.random.chance(2)).then(|| self.mask(&shape));
        let (sem, scope) = (self.random.pick(MemorySemantics::ALL), self.random.pick(MemoryScope::ALL));
        let reads = if sem.acquires() { MemorySemantics::Acquire } else { MemorySemantics::Relaxed };
        let writes = if sem.releases() { MemorySemantics::Release } else { MemorySemantics::Relaxed };
        let is_wide = (16..=64).contains(&dtype.bits());
        let mut operands: SmallVec<[Value; 4]> = SmallVec::from_slice(&[pointer, value]);
        let op = match self.random.below(5) {
            0 if is_wide => Op::AtomicCas { sem, scope },
            1 if is_wide && dtype.is_int() && shape.is_empty() => {
                operands.push(self.constant(Dtype::I64, 0));
                Op::AtomicPoll { sem: reads, scope }
            }
            2 => Op::AtomicLoad { sem: reads, scope },
            3 => Op::AtomicStore { sem: writes, scope },
            _ if is_wide => {
                let kinds: &[AtomicKind] = if dtype.is_int() {
                    AtomicKind::ALL
                } else {
                    &[AtomicKind::Max, AtomicKind::Min, AtomicKind::Exchange]
                };
                Op::AtomicRmw { kind: self.random.pick(kinds), sem, scope }
            }
            _ => Op::AtomicLoad { sem: reads, scope },
        };
        match op {
            Op::AtomicCas { .. } => {
                let expected = self.value_of(&self.ty(value));
                operands.insert(1, self.quiet(expected));
                operands.extend(mask);
            }
            Op::AtomicPoll { .. } => {}
            Op::AtomicLoad { .. } => {
                operands.pop();
                operands.extend(mask);
            }
            // tidy: wildcard because it is one of two others, which take a value and a mask.
            _ => operands.extend(mask),
        }
        let results = self.builder.emit(op, operands, SmallVec::new()).expect(VALID);
        self.pool.extend(results);
    }

    fn emit_store(&mut self, pointer: Value, value: Value, mask: Option<Value>) {
        let how = (self.random.pick(CacheModifier::ALL), self.random.pick(EvictionPolicy::ALL));
        self.builder.store(pointer, value, mask, how).expect(VALID);
    }

    /// Replaces NaNs by 0, because the bits of a NaN are unspecified.
    pub(super) fn quiet(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        if !ty.dtype().is_some_and(Dtype::is_float) || self.range(value).is_some() {
            return value;
        }
        let zero = self.constant(ty.dtype().expect("it is a number"), 0);
        let zero = self.splat(zero, &ty.shape);
        let is_number = self.elementwise_of(F::Eq, &[value, value]);
        self.elementwise_of(F::Select, &[is_number, value, zero])
    }

    /// Stores the last computed values. Each value has its own location in memory.
    pub(super) fn results(&mut self) {
        let written: Vec<Value> =
            self.bases.iter().copied().filter(|&base| self.fact(base).memory == Memory::Output).collect();
        let mut free: SmallVec<[usize; 4]> = SmallVec::from_elem(0, written.len());
        let numbers: Vec<Value> =
            self.pool.iter().copied().filter(|&value| self.ty(value).dtype().is_some()).collect();
        for &value in numbers.iter().rev().take(8) {
            let number = self.random.below(written.len());
            let base = written[number];
            let dtype = self.ty(base).element.pointee().expect("it is a pointer");
            let value = self.quiet(value);
            let from = self.ty(value).dtype().expect("it is a number");
            let value = if from.bits() == dtype.bits() && from.is_float() != dtype.is_float() {
                self.sure(Op::Bitcast { element: Element::Value(dtype) }, &[value])
            } else {
                self.cast_to(value, dtype)
            };
            let value = self.quiet(value);
            let shape = self.ty(value).shape;
            let start = free[number];
            if (start + shape.elements()) * dtype.bytes() > BYTES {
                continue;
            }
            free[number] += shape.elements();
            let pointer = if shape.is_empty() {
                self.moved_by(base, start as i128).expect(VALID)
            } else {
                let end = (start + shape.elements()) as i64;
                let offsets = self.sure(Op::Arange { start: start as i64, end }, &[]);
                let offsets = self.sure(Op::Reshape { shape: shape.clone() }, &[offsets]);
                let base = self.splat(base, &shape);
                self.sure(Op::PtrAdd {}, &[base, offsets])
            };
            self.emit_store(pointer, value, None);
        }
    }
}
