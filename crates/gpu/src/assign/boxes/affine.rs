//! Integers and pointers of a kernel as polynomials of scalars and of the indices along the axes of their tile.
//!
//! Signed arithmetic of 32 and 64 bits is exact by the promise of the language; what is not such arithmetic is an atom if it is
//! a scalar, and unknown if it is a tile. What a loop moves by the same number each time is its first value and a multiple of
//! [`Atom::Iteration`].

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::{
    Block, Definition, Dtype, Element, ElementwiseFn, Function, HintKind, Inst, Op, OpFamily, Shape, ShapeOp,
    Value,
};

use super::atoms::{Atom, Polynomial};

/// How far definitions are followed.
const MOST_STEPS: u32 = 64;

/// An index that wraps around: the polynomial is right where it is less than the bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrap {
    /// The index.
    pub index: Polynomial,
    /// What it wraps around at.
    pub bound: Polynomial,
}

/// An integer, or how far a pointer is from a parameter, in elements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The number.
    pub number: Polynomial,
    /// Where it is that number.
    pub wraps: SmallVec<[Wrap; 1]>,
    /// Whether a constant multiplied something in 64 bits: a part of the number may exceed 32 bits.
    pub is_wide: bool,
}

impl Sum {
    fn exact(number: Polynomial) -> Self {
        Self { number, ..Self::default() }
    }

    fn combine(&self, other: &Self, number: Polynomial) -> Self {
        let wraps = self.wraps.iter().chain(&other.wraps).cloned().collect();
        Self { number, wraps, is_wide: self.is_wide || other.is_wide }
    }

    fn with_axes(&self, axis: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let with_axis = |atom: Atom| atom.with_axis(&axis);
        let mut wraps = SmallVec::new();
        for Wrap { index, bound } in &self.wraps {
            wraps.push(Wrap { index: index.renamed(with_axis)?, bound: bound.renamed(with_axis)? });
        }
        Some(Self { number: self.number.renamed(with_axis)?, wraps, is_wide: self.is_wide })
    }
}

/// A tile of pointers, or one: a parameter of the kernel and elements from there.
#[derive(Clone, Debug)]
pub struct Address {
    /// The parameter, or another scalar where any may be the base.
    pub base: Value,
    /// How far it is.
    pub offset: Sum,
}

/// What is known of the numbers of a function.
pub struct Affine<'f> {
    /// The function.
    pub function: &'f Function,
    /// The loops by their bodies.
    loops: FxHashMap<Block, Inst>,
    /// What is defined in the body of a loop.
    inside: FxHashMap<Inst, EntitySet<Value>>,
    /// What was found of a value.
    known: FxHashMap<Value, Option<Sum>>,
    /// Whether any scalar may be a base, and what a descriptor says of a scalar is kept: nothing else says how it is aligned.
    takes_any_base: bool,
    /// Whether the elements of tiles of one axis of which nothing else is known are atoms.
    takes_rows: bool,
}

impl<'f> Affine<'f> {
    /// Of a function.
    pub fn new(function: &'f Function) -> Self {
        let (mut loops, mut inside) = (FxHashMap::default(), FxHashMap::default());
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if let (Op::For { .. }, [body]) = (&data.op, &data.regions[..]) {
                loops.insert(*body, inst);
                let mut values = EntitySet::new();
                values.extend(function.blocks[*body].parameters.iter().copied());
                function.walk(*body, &mut |inner| {
                    values.extend(function.insts[inner].results.iter().copied());
                    for region in &function.insts[inner].regions {
                        values.extend(function.blocks[*region].parameters.iter().copied());
                    }
                });
                inside.insert(inst, values);
            }
        });
        Self {
            function,
            loops,
            inside,
            known: FxHashMap::default(),
            takes_any_base: false,
            takes_rows: false,
        }
    }

    /// The same, where the elements of a tile of one axis may be any numbers, such as those of rows.
    pub fn with_rows(function: &'f Function) -> Self {
        Self { takes_rows: true, ..Self::new(function) }
    }

    /// Whether the elements of a tile are atoms, where nothing else is known of them.
    fn is_rows(&self, value: Value) -> bool {
        let ty = self.function.ty(value);
        self.takes_rows
            && ty.rank() == 1
            && ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool())
    }

    /// The same, where any pointer may be the base of an address that is no parameter, such as one that the kernel loads.
    pub fn with_any_base(function: &'f Function) -> Self {
        Self { takes_any_base: true, ..Self::new(function) }
    }

    fn is_described(&self, op: &Op) -> bool {
        self.takes_any_base && matches!(op, Op::Hint { kind: HintKind::Described, .. })
    }

    /// An integer, or a tile of them.
    pub fn integer(&mut self, value: Value) -> Option<Sum> {
        self.integer_within(value, MOST_STEPS)
    }

    fn integer_within(&mut self, value: Value, steps: u32) -> Option<Sum> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        let ty = self.function.ty(value);
        let dtype = ty.dtype().filter(|dtype| dtype.is_int())?;
        let is_scalar = ty.is_scalar();
        let is_index = matches!(dtype, Dtype::I32 | Dtype::I64);
        let sum = if is_index {
            steps.checked_sub(1).and_then(|steps| self.definition(value, dtype, steps))
        } else {
            None
        };
        let rows = self.is_rows(value);
        let sum = sum.or_else(|| {
            let atom = if rows { Atom::Row(0, value) } else { Atom::Value(value) };
            (is_scalar || rows).then(|| Sum::exact(Polynomial::var(atom)))
        });
        self.known.insert(value, sum.clone());
        sum
    }

    fn definition(&mut self, value: Value, dtype: Dtype, steps: u32) -> Option<Sum> {
        let inst = match self.function.values[value].definition {
            Definition::Result(inst, _) => inst,
            Definition::Parameter(block, _) => return self.carried(value, block, steps),
        };
        let data = &self.function.insts[inst];
        let operand = |place: usize| data.operands[place];
        match &data.op {
            Op::Constant { value } => {
                let number = i64::try_from(value.as_int()?).ok()?;
                Some(Sum::exact(Polynomial::constant(number)))
            }
            Op::Arange { start, .. } => {
                Polynomial::var(Atom::Axis(0)).plus(&Polynomial::constant(*start)).map(Sum::exact)
            }
            op if self.is_described(op) => None,
            Op::Splat { .. } | Op::Hint { .. } => self.integer_within(operand(0), steps),
            Op::Cast { element: Element::Value(_), .. } => {
                let from = self.function.ty(operand(0)).dtype()?;
                let is_wide = matches!(from, Dtype::I32 | Dtype::I64) || self.is_rows(operand(0));
                let is_exact = is_wide && (from.bits() < dtype.bits() || from == dtype);
                if is_exact { self.integer_within(operand(0), steps) } else { None }
            }
            Op::Elementwise { function } => self.arithmetic(*function, inst, dtype, steps),
            op if op.family() == OpFamily::Shape => {
                let inner = self.integer_within(operand(0), steps)?;
                self.reshaped(inst, &inner)
            }
            // tidy: wildcard because what other ops make is no sum of products
            _ => None,
        }
    }

    fn arithmetic(&mut self, function: ElementwiseFn, inst: Inst, dtype: Dtype, steps: u32) -> Option<Sum> {
        let operands = self.function.insts[inst].operands.clone();
        let a = self.integer_within(*operands.first()?, steps)?;
        if function == ElementwiseFn::Neg {
            return Some(Sum { number: a.number.times(&Polynomial::constant(-1))?, ..a });
        }
        let b = self.integer_within(*operands.get(1)?, steps)?;
        // What the program computes of them in 32 bits are numbers of rows again, and distances have 64.
        let is_row = |atom: &Atom| matches!(atom, Atom::Row(..));
        if dtype.bits() == 32 && (a.number.any(is_row) || b.number.any(is_row)) {
            return None;
        }
        match function {
            ElementwiseFn::Add => Some(a.combine(&b, a.number.plus(&b.number)?)),
            ElementwiseFn::Sub => Some(a.combine(&b, a.number.minus(&b.number)?)),
            ElementwiseFn::Mul => {
                let mut product = a.combine(&b, a.number.times(&b.number)?);
                product.is_wide |= dtype.bits() == 64
                    && [&a, &b]
                        .iter()
                        .any(|sum| sum.number.as_constant().is_some_and(|factor| factor.unsigned_abs() > 1));
                Some(product)
            }
            ElementwiseFn::Shl => {
                let by = b.number.as_constant().filter(|by| (0..31).contains(by))?;
                let number = a.number.times(&Polynomial::constant(1 << by))?;
                Some(Sum { is_wide: a.is_wide || dtype.bits() == 64, number, ..a })
            }
            // Where a tile wraps around; of a scalar nothing else is known.
            ElementwiseFn::IntRem if a.number.any(|atom| matches!(atom, Atom::Axis(_))) => {
                let is_uniform = !b.number.any(|atom| matches!(atom, Atom::Axis(_)));
                let wrap = Wrap { index: a.number.clone(), bound: b.number };
                let mut wraps = a.wraps;
                wraps.push(wrap);
                is_uniform.then_some(Sum { wraps, ..a })
            }
            // tidy: wildcard because of no other function the result is a sum of products
            _ => None,
        }
    }

    /// What a shape op does to the axes.
    fn reshaped(&self, inst: Inst, inner: &Sum) -> Option<Sum> {
        let data = &self.function.insts[inst];
        let from = &self.function.ty(data.operands[0]).shape;
        inner.with_axes(|axis| new_axis(data.op.as_shape()?, from, axis))
    }

    /// A parameter of a block: of the kernel, the counter of a loop, or what a loop carries.
    fn carried(&mut self, value: Value, block: Block, steps: u32) -> Option<Sum> {
        let inst = *self.loops.get(&block)?;
        if self.function.blocks[block].parameters[0] == value {
            let operands = self.function.insts[inst].operands.clone();
            let [lower, step] =
                [self.integer_within(operands[0], steps)?, self.integer_within(operands[2], steps)?];
            let distance = step.number.times(&Polynomial::var(Atom::Iteration(inst)))?;
            return Some(lower.combine(&step, lower.number.plus(&distance)?));
        }
        let carried = self.function.carried_by(inst, value)?;
        // Until the step is known, the parameter is an atom of its own; of a tile one that has no axes.
        let known = self.known.clone();
        self.known.insert(value, Some(Sum::exact(Polynomial::var(Atom::Value(value)))));
        let next = self.integer_within(carried.yielded[0], steps);
        self.known = known;
        let initial = self.integer_within(carried.initial?, steps)?;
        self.moved(inst, value, &initial, &next?)
    }

    /// What begins with a value in a loop and moves by the difference of the next value and this one.
    fn moved(&mut self, inst: Inst, value: Value, initial: &Sum, next: &Sum) -> Option<Sum> {
        let step = next.number.minus(&Polynomial::var(Atom::Value(value)))?;
        let inside = &self.inside[&inst];
        let changes = step.any(|atom| match atom {
            Atom::Axis(_) | Atom::Row(..) => true,
            Atom::Iteration(other) => {
                *other == inst
                    || self.function.insts[*other].results.iter().any(|result| inside.contains(*result))
            }
            Atom::Value(value) => inside.contains(*value),
        });
        // What moves in a loop is a tile of numbers again.
        let is_rows = initial.number.any(|atom| matches!(atom, Atom::Row(..)));
        if changes || is_rows || !next.wraps.is_empty() {
            return None;
        }
        let distance = step.times(&Polynomial::var(Atom::Iteration(inst)))?;
        let number = initial.number.plus(&distance)?;
        Some(Sum { number, wraps: initial.wraps.clone(), is_wide: initial.is_wide || next.is_wide })
    }

    /// A pointer or a tile of pointers, made of a parameter.
    pub fn address(&mut self, value: Value) -> Option<Address> {
        self.address_within(value, MOST_STEPS)
    }

    /// The axis along which the elements of a tile of pointers lie beside each other, if it is one.
    pub fn contiguous_axis(&mut self, pointers: Value) -> Option<usize> {
        let shape = self.function.ty(pointers).shape.clone();
        let offset = self.address(pointers)?.offset.number;
        let is_contiguous = |axis: &usize| {
            let stride = offset.factor_of(Atom::Axis(*axis)).and_then(|(stride, _)| stride.as_constant());
            shape[*axis] > 1 && stride == Some(1)
        };
        let mut axes = (0..shape.len()).filter(is_contiguous);
        axes.next().filter(|_| axes.next().is_none())
    }

    fn address_within(&mut self, value: Value, steps: u32) -> Option<Address> {
        let found = self.address_of_definition(value, steps);
        let is_base = self.takes_any_base && self.function.ty(value).is_scalar();
        found.or_else(|| is_base.then(|| Address { base: value, offset: Sum::default() }))
    }

    fn address_of_definition(&mut self, value: Value, steps: u32) -> Option<Address> {
        let steps = steps.checked_sub(1)?;
        let inst = match self.function.values[value].definition {
            Definition::Parameter(block, _) if block == self.function.entry => {
                return Some(Address { base: value, offset: Sum::default() });
            }
            Definition::Parameter(block, _) => return self.carried_address(value, block, steps),
            Definition::Result(inst, _) => inst,
        };
        let data = &self.function.insts[inst];
        let pointer = *data.operands.first()?;
        match &data.op {
            Op::PtrAdd {} => {
                let by = data.operands[1];
                let Address { base, offset } = self.address_within(pointer, steps)?;
                let by = self.integer_within(by, steps)?;
                let number = offset.number.plus(&by.number)?;
                Some(Address { base, offset: offset.combine(&by, number) })
            }
            op if self.is_described(op) => None,
            Op::Splat { .. } | Op::Hint { .. } => self.address_within(pointer, steps),
            op if op.family() == OpFamily::Shape => {
                let Address { base, offset } = self.address_within(pointer, steps)?;
                Some(Address { base, offset: self.reshaped(inst, &offset)? })
            }
            // tidy: wildcard because no other op makes a pointer of a parameter
            _ => None,
        }
    }

    /// A pointer that a loop moves by the same number each time.
    fn carried_address(&mut self, value: Value, block: Block, steps: u32) -> Option<Address> {
        let inst = *self.loops.get(&block)?;
        let carried = self.function.carried_by(inst, value)?;
        let Address { base, offset } = self.address_within(carried.initial?, steps)?;
        let step = self.step_of_pointer(carried.yielded[0], value, steps)?;
        let next = Sum { number: step.number.plus(&Polynomial::var(Atom::Value(value)))?, ..step };
        let offset = self.moved(inst, value, &offset, &next)?;
        Some(Address { base, offset })
    }

    /// How far a pointer is from another one that it is made of.
    fn step_of_pointer(&mut self, next: Value, from: Value, steps: u32) -> Option<Sum> {
        let steps = steps.checked_sub(1)?;
        if next == from {
            return Some(Sum::default());
        }
        let data = &self.function.insts[self.function.defining_inst(next)?];
        let Op::PtrAdd {} = data.op else { return None };
        let (pointer, by) = (data.operands[0], data.operands[1]);
        let so_far = self.step_of_pointer(pointer, from, steps)?;
        let by = self.integer_within(by, steps)?;
        let number = so_far.number.plus(&by.number)?;
        Some(so_far.combine(&by, number))
    }
}

/// The axis of the result of a shape op that an axis of its operand is.
pub fn new_axis(op: ShapeOp<'_>, from: &Shape, axis: usize) -> Option<usize> {
    match op {
        ShapeOp::ExpandDims { axis: new } => Some(if axis >= *new as usize { axis + 1 } else { axis }),
        ShapeOp::Broadcast { .. } => Some(axis),
        ShapeOp::Transpose { permutation } => permutation.iter().position(|old| *old == axis as i64),
        // Extents of 1 come and go.
        ShapeOp::Reshape { shape } => {
            let long = |shape: &Shape| -> Vec<(usize, u32)> {
                shape.iter().copied().enumerate().filter(|(_, extent)| *extent > 1).collect()
            };
            let (old, new) = (long(from), long(shape));
            let is_same = old.iter().map(|(_, extent)| extent).eq(new.iter().map(|(_, extent)| extent));
            let place = old.iter().position(|(number, _)| *number == axis)?;
            is_same.then(|| new[place].0)
        }
        ShapeOp::Slice { .. } => None,
    }
}
