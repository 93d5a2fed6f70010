//! Expresses integers as polynomials of opaque values and of iteration counts of loops.
//!
//! For the elements of a tile, the polynomials also have the index along each axis. The module
//! `addresses` expresses pointers as a base plus such a polynomial.
//!
//! ```text
//! for_loop %low, %high, %step, %start (%i, %x) {    %i = %low + %step * iteration
//!   %y = add %x, %c                                 %x = %start + %c * iteration
//!   %z = sub %y, %i                                 %z = %start + %c * iteration + %c - %low - %step * iteration
//!   yield_values %y
//! }
//! ```
//!
//! The polynomial of a value is its form. A scalar that the analysis does not follow is itself a
//! variable. Such a tile has no form, unless its elements are variables
//! ([`ScalarEvolution::with_elements`]). `Arithmetic` defines in which sense a form equals its
//! value.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::polynomial::{Polynomial, Variable};
use crate::attributes::HintKind;
use crate::constants::constant_int;
use crate::dialect::{Dialect, Operation, Tile};
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, Definition, Function, Inst, InstData, Value};
use crate::ops::{Op, OpFamily, ShapeOp};
use crate::parents::Parents;
use crate::types::{Dtype, Element, Shape, Type};

/// The maximum length of a chain of definitions that the analysis follows.
pub(super) const MAX_DEPTH: u32 = 64;

/// A variable of a form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Term {
    /// The index along an axis of the tile.
    Axis(usize),
    /// The element of a 1-D tile that has no form. The index of the element is the index along this
    /// axis.
    Element(usize, Value),
    /// The number of completed iterations of a counted loop.
    Iteration(Inst),
    /// An opaque scalar.
    Value(Value),
}

impl Term {
    /// Returns the term after a shape op that moves the axes of the tile as `axis` states. Returns
    /// `None` if the axis of the term has no counterpart.
    pub fn with_axis(self, mut axis: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        Some(match self {
            Self::Axis(own) => Self::Axis(axis(own)?),
            Self::Element(own, tile) => Self::Element(axis(own)?, tile),
            Self::Iteration(_) | Self::Value(_) => self,
        })
    }

    /// Returns whether the term differs between elements of a tile.
    pub fn is_of_tile(&self) -> bool {
        matches!(self, Self::Axis(_) | Self::Element(..))
    }
}

impl Variable for Term {
    type Coefficient = i128;
    /// The degree of the offset of a box of a 5-D tensor: four extents, the index of a block and
    /// its size.
    const MAX_DEGREE: usize = 6;
}

/// An integer as a polynomial.
pub type Form = Polynomial<Term>;

/// The sense in which a form equals its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arithmetic {
    /// Modulo 2^w, where w is the width of the type. A narrowing cast keeps the form, and a
    /// widening cast is opaque. Tiles have no forms.
    ModuloType,
    /// Modulo 2^32. Casts between integers of at least 32 bits keep the form.
    ModuloWord,
    /// Exactly. Signed arithmetic of 32 and 64 bits does not overflow, so a widening cast keeps the
    /// form.
    Exact,
}

/// A remainder `index % bound` that a form replaces by `index`. The form is valid only for the
/// elements whose `index` is less than `bound`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrap {
    /// The index.
    pub index: Form,
    /// The divisor of the remainder.
    pub bound: Form,
}

/// An integer, or the distance of a pointer from its base in elements, as a polynomial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntegerForm {
    /// The polynomial.
    pub form: Form,
    /// The remainders that the form replaces by their index; only exact forms do so.
    pub wraps: SmallVec<[Wrap; 1]>,
    /// True if terms may exceed 32 bits. The cause is a 64-bit shift, or a 64-bit product with a
    /// constant factor other than -1, 0 and 1.
    pub is_wide: bool,
}

impl From<Form> for IntegerForm {
    fn from(form: Form) -> Self {
        Self { form, ..Self::default() }
    }
}

impl IntegerForm {
    pub(super) fn combine(&self, other: &Self, form: Form) -> Self {
        let wraps = self.wraps.iter().chain(&other.wraps).cloned().collect();
        Self { form, wraps, is_wide: self.is_wide || other.is_wide }
    }

    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        Some(self.combine(other, self.form.plus(&other.form)?))
    }

    /// Returns the form after a shape op. Along an axis of extent 1, the index is 0.
    pub(super) fn reshaped(&self, op: ShapeOp<'_>, from: &Shape) -> Option<Self> {
        let moved = |form: &Form| {
            let is_single = |term: &Term| matches!(term, Term::Axis(axis) if from[*axis] == 1);
            let is_spread = matches!(op, ShapeOp::Broadcast { .. });
            let kept = form.any(is_single).then(|| form.split(|product| !product.iter().any(is_single)).0);
            kept.as_ref().unwrap_or(form).renamed(|term| match term {
                Term::Element(axis, _) if is_spread && from[axis] == 1 => None,
                _ => term.with_axis(|axis| result_axis(op, from, axis)),
            })
        };
        let mut wraps = SmallVec::new();
        for Wrap { index, bound } in &self.wraps {
            wraps.push(Wrap { index: moved(index)?, bound: moved(bound)? });
        }
        Some(Self { form: moved(&self.form)?, wraps, is_wide: self.is_wide })
    }
}

/// The forms of the integers of a function at the time of the analysis.
#[derive(Debug)]
pub struct ScalarEvolution<'f, D: Dialect = Tile> {
    /// The function.
    pub function: &'f Function<D>,
    pub(super) parents: Parents,
    arithmetic: Arithmetic,
    known: FxHashMap<Value, Option<IntegerForm>>,
    /// The carried values whose next value is being computed.
    in_progress: FxHashSet<Value>,
    /// True if every scalar pointer may be a base, not only parameters.
    pub(super) has_any_base: bool,
    /// True if the result of a `Described` hint is a base or a variable. The hint states an
    /// alignment that its operand lacks.
    keeps_descriptions: bool,
    /// True if the elements of 1-D tiles without a form are variables.
    has_elements: bool,
}

impl<'f, D: Dialect> ScalarEvolution<'f, D> {
    fn with_arithmetic(function: &'f Function<D>, arithmetic: Arithmetic) -> Self {
        Self {
            function,
            parents: Parents::new(function),
            arithmetic,
            known: FxHashMap::default(),
            in_progress: FxHashSet::default(),
            has_any_base: false,
            keeps_descriptions: false,
            has_elements: false,
        }
    }

    /// Returns an analysis of scalars. A form equals its value modulo 2^w, where w is the width of
    /// the value's type, whether or not arithmetic overflows. A narrowing cast keeps the form, and
    /// the result of a widening cast is opaque.
    pub fn new(function: &'f Function<D>) -> Self {
        Self::with_arithmetic(function, Arithmetic::ModuloType)
    }

    /// Returns an analysis of scalars and tiles. A form equals its value. By the promise of the
    /// language, signed arithmetic of 32 and 64 bits does not overflow.
    pub fn exact(function: &'f Function<D>) -> Self {
        Self::with_arithmetic(function, Arithmetic::Exact)
    }

    /// Returns an analysis of scalars and tiles of at least 32 bits. A form equals its value modulo
    /// 2^32, whether or not arithmetic overflows.
    pub fn modulo_word(function: &'f Function<D>) -> Self {
        Self::with_arithmetic(function, Arithmetic::ModuloWord)
    }

    /// Treats the elements of 1-D tiles without a form, such as the indices of gathered rows, as
    /// variables.
    #[must_use]
    pub fn with_elements(self) -> Self {
        Self { has_elements: true, ..self }
    }

    /// Treats any scalar pointer without an address, such as a loaded pointer, as a base.
    #[must_use]
    pub fn with_any_base(self) -> Self {
        Self { has_any_base: true, ..self }
    }

    /// Treats each result of a `Described` hint as a base or a variable. The hint states an
    /// alignment that the form of its operand does not show.
    #[must_use]
    pub fn keeping_descriptions(self) -> Self {
        Self { keeps_descriptions: true, ..self }
    }

    /// Returns the block of each instruction, and the instruction that owns each block.
    pub fn parents(&self) -> &Parents {
        &self.parents
    }

    /// Returns the form of an integer. A value that has no form gets the form that consists of the
    /// value as a variable.
    pub fn form(&mut self, value: Value) -> Form {
        self.integer(value).map_or_else(|| Form::var(Term::Value(value)), |integer| integer.form)
    }

    /// Returns the form of an integer, or of a tile of integers; `None` if it has no form.
    pub fn integer(&mut self, value: Value) -> Option<IntegerForm> {
        self.integer_within(value, MAX_DEPTH)
    }

    /// Returns the form of an integer, if it has a form that is valid for all elements.
    pub fn form_everywhere(&mut self, value: Value) -> Option<Form> {
        self.integer(value).filter(|integer| integer.wraps.is_empty()).map(|integer| integer.form)
    }

    pub(super) fn integer_within(&mut self, value: Value, depth: u32) -> Option<IntegerForm> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        let computed = depth.checked_sub(1).and_then(|depth| self.compute(value, depth));
        let integer = computed.or_else(|| self.opaque(value));
        self.known.insert(value, integer.clone());
        integer
    }

    fn ty(&self, value: Value) -> Option<&'f Type> {
        D::tile_type(self.function.ty(value))
    }

    /// Returns the form of a value that the analysis does not follow.
    fn opaque(&self, value: Value) -> Option<IntegerForm> {
        let ty = self.ty(value)?;
        if ty.is_scalar() && ty.dtype().is_some_and(Dtype::is_int) {
            return Some(Form::var(Term::Value(value)).into());
        }
        self.is_variable_tile(value).then(|| Form::var(Term::Element(0, value)).into())
    }

    /// Returns whether the elements of a tile without a form are variables.
    fn is_variable_tile(&self, value: Value) -> bool {
        let is_index = |ty: &Type| ty.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
        self.has_elements && self.ty(value).is_some_and(|ty| ty.rank() == 1 && is_index(ty))
    }

    /// Returns the type of an integer whose arithmetic the analysis follows.
    fn dtype(&self, value: Value) -> Option<Dtype> {
        let ty = self.ty(value)?;
        ty.dtype().filter(|dtype| match self.arithmetic {
            Arithmetic::ModuloType => ty.is_scalar() && dtype.is_int() && !dtype.is_bool(),
            Arithmetic::ModuloWord => dtype.is_int() && dtype.bits() >= 32,
            Arithmetic::Exact => matches!(dtype, Dtype::I32 | Dtype::I64),
        })
    }

    fn compute(&mut self, value: Value, depth: u32) -> Option<IntegerForm> {
        let dtype = self.dtype(value)?;
        let function = self.function;
        let inst = match function.values[value].definition {
            Definition::Result(inst, _) => inst,
            Definition::Parameter(block, _) => return self.region_parameter(value, block, depth),
        };
        if let Some(number) = constant_int(function, value) {
            return Some(Form::constant(number).into());
        }
        let data = &function.insts[inst];
        if let Some(computed) = data.op.as_elementwise() {
            return self.elementwise(computed, data, dtype, depth);
        }
        let x = data.operands.first().copied();
        match (data.op.as_tile(), data.op.info().family) {
            (Some(Op::Arange { start, .. }), _) => {
                Form::var(Term::Axis(0)).offset(i128::from(*start)).map(IntegerForm::from)
            }
            (Some(op), _) if self.is_description(op) => None,
            (Some(Op::Splat { .. }), _) | (_, OpFamily::Identity) => self.integer_within(x?, depth),
            (Some(Op::Cast { element: Element::Value(_), .. }), _) if self.keeps_form(x?, dtype) => {
                self.integer_within(x?, depth)
            }
            (Some(op), OpFamily::Shape) => {
                let inner = self.integer_within(x?, depth)?;
                inner.reshaped(op.as_shape()?, &self.ty(x?)?.shape)
            }
            // tidy: wildcard because the results of other ops are opaque
            _ => None,
        }
    }

    pub(super) fn is_description(&self, op: &Op) -> bool {
        self.keeps_descriptions && matches!(op, Op::Hint { kind: HintKind::Described, .. })
    }

    fn keeps_form(&self, from: Value, to: Dtype) -> bool {
        let own = self.dtype(from);
        match self.arithmetic {
            Arithmetic::ModuloType => own.is_some_and(|own| own.bits() >= to.bits()),
            Arithmetic::ModuloWord => own.is_some(),
            Arithmetic::Exact => {
                let own = own.or_else(|| self.ty(from)?.dtype().filter(|_| self.is_variable_tile(from)));
                own.is_some_and(|own| own.bits() < to.bits() || own == to)
            }
        }
    }

    fn elementwise(
        &mut self,
        function: ElementwiseFn,
        data: &InstData<D>,
        dtype: Dtype,
        depth: u32,
    ) -> Option<IntegerForm> {
        use ElementwiseFn as F;
        if !matches!(function, F::Neg | F::Add | F::Sub | F::Mul | F::Shl | F::IntRem) {
            return None;
        }
        let a = self.integer_within(*data.operands.first()?, depth)?;
        if function == F::Neg {
            return Some(IntegerForm { form: a.form.scaled(-1)?, ..a });
        }
        let b = self.integer_within(*data.operands.get(1)?, depth)?;
        // 32-bit arithmetic on variable elements has new variables as its elements. Only 64-bit
        // arithmetic, which computes distances, keeps the variables.
        let is_element = |term: &Term| matches!(term, Term::Element(..));
        if dtype.bits() == 32 && (a.form.any(is_element) || b.form.any(is_element)) {
            return None;
        }
        match function {
            F::Add => a.plus(&b),
            F::Sub => Some(a.combine(&b, a.form.minus(&b.form)?)),
            F::Mul => {
                let is_large = |integer: &IntegerForm| {
                    integer.form.as_constant().is_some_and(|factor| factor.unsigned_abs() > 1)
                };
                let mut product = a.combine(&b, a.form.times(&b.form)?);
                product.is_wide |= dtype.bits() == 64 && (is_large(&a) || is_large(&b));
                Some(product)
            }
            F::Shl => {
                let bits = if self.arithmetic == Arithmetic::Exact { 31 } else { dtype.bits() };
                let by = u32::try_from(b.form.as_constant()?).ok().filter(|by| *by < bits)?;
                let form = a.form.scaled(1 << by)?;
                Some(IntegerForm { is_wide: a.is_wide || dtype.bits() == 64, form, ..a })
            }
            // A user may need only the elements whose index is below the bound, so the remainder of
            // a tile has a form.
            F::IntRem if self.arithmetic == Arithmetic::Exact => {
                let has_axis = |form: &Form| form.any(|term| matches!(term, Term::Axis(_)));
                let mut wraps = a.wraps.clone();
                wraps.push(Wrap { index: a.form.clone(), bound: b.form.clone() });
                (has_axis(&a.form) && !has_axis(&b.form)).then_some(IntegerForm { wraps, ..a })
            }
            // tidy: wildcard because other functions are not polynomials of their operands
            _ => None,
        }
    }

    /// Returns the form of a loop index, or of a carried value that changes by a constant step.
    fn region_parameter(&mut self, value: Value, block: Block, depth: u32) -> Option<IntegerForm> {
        let inst = self.parents.owner(block)?;
        let data = &self.function.insts[inst];
        let Some(Op::For { .. }) = data.op.as_tile() else { return None };
        let Some(carried) = self.function.carried_by(inst, value) else {
            let [lower, step] = [0, 2].map(|index| self.integer_within(data.operands[index], depth));
            let (lower, step) = (lower?, step?);
            let distance = step.form.times(&Form::var(Term::Iteration(inst)))?;
            return Some(lower.combine(&step, lower.form.plus(&distance)?));
        };
        let next = self.next(value, *carried.yielded.first()?, depth)?;
        let initial = self.integer_within(carried.initial?, depth)?;
        self.progression(inst, value, &initial, &next)
    }

    /// Returns the form of `next`, the next value of the carried value `value`, which is a variable
    /// in it.
    fn next(&mut self, value: Value, next: Value, depth: u32) -> Option<IntegerForm> {
        if !self.in_progress.insert(value) {
            return None;
        }
        // These forms contain the carried value as a variable, so they are discarded: it may get a
        // form itself.
        let known = std::mem::take(&mut self.known);
        for value in &self.in_progress {
            self.known.insert(*value, Some(Form::var(Term::Value(*value)).into()));
        }
        let next = self.integer_within(next, depth);
        self.known = known;
        self.in_progress.remove(&value);
        next
    }

    /// Returns the form of a carried value from its initial and its next value, if the step is
    /// constant.
    pub(super) fn progression(
        &self,
        inst: Inst,
        value: Value,
        initial: &IntegerForm,
        next: &IntegerForm,
    ) -> Option<IntegerForm> {
        let step = next.form.minus(&Form::var(Term::Value(value)))?;
        let is_element = |term: &Term| matches!(term, Term::Element(..));
        let changes = |term: &Term| term.is_of_tile() || self.is_of_loop(*term, inst);
        if step.any(changes) || initial.form.any(is_element) || !next.wraps.is_empty() {
            return None;
        }
        let form = initial.form.plus(&step.times(&Form::var(Term::Iteration(inst)))?)?;
        Some(IntegerForm { form, wraps: initial.wraps.clone(), is_wide: initial.is_wide || next.is_wide })
    }

    /// Returns whether a term may change from one iteration to the next.
    fn is_of_loop(&self, term: Term, inst: Inst) -> bool {
        match term {
            Term::Axis(_) | Term::Element(..) => false,
            Term::Iteration(other) => self.parents.is_inside(other, inst),
            Term::Value(value) => self.parents.around_value(self.function, value).any(|owner| owner == inst),
        }
    }
}

/// Maps an axis of a shape op's operand to an axis of its result; `None` if no axis corresponds.
pub fn result_axis(op: ShapeOp<'_>, from: &Shape, axis: usize) -> Option<usize> {
    match op {
        ShapeOp::ExpandDims { axis: new } => Some(if axis >= *new as usize { axis + 1 } else { axis }),
        ShapeOp::Broadcast { .. } => Some(axis),
        ShapeOp::Transpose { permutation } => permutation.iter().position(|old| *old == axis as i64),
        // Only a reshape that adds and removes extents of 1 maps axes to axes.
        ShapeOp::Reshape { shape } => {
            let long = |shape: &Shape| -> SmallVec<[(usize, u32); 4]> {
                shape.iter().copied().enumerate().filter(|(_, extent)| *extent > 1).collect()
            };
            let (old, new) = (long(from), long(shape));
            let is_same = old.iter().map(|(_, extent)| extent).eq(new.iter().map(|(_, extent)| extent));
            let index = old.iter().position(|(own, _)| *own == axis)?;
            is_same.then(|| new[index].0)
        }
        ShapeOp::Slice { .. } => None,
    }
}
