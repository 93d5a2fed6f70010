//! Expresses integer scalars as polynomials of opaque values and of iteration counts of loops.
//!
//! ```text
//! for_loop %low, %high, %step, %start (%i, %x) {    %i = %low + %step * iteration
//!   %y = add %x, %c                                 %x = %start + %c * iteration
//!   %z = sub %y, %i                                 %z = %start + %c * iteration + %c - %low - %step * iteration
//!   yield_values %y
//! }
//! ```
//! A form equals its value modulo 2 to the power of the bits of the value's type, whether or not
//! arithmetic overflows: a narrowing cast keeps the form, a widening one is a value of its own.

use rustc_hash::{FxHashMap, FxHashSet};

use super::polynomial::{Polynomial, Variable};
use crate::constants::constant_int;
use crate::dialect::{Dialect, Operation};
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, Definition, Function, Inst, Value};
use crate::ops::{Op, OpFamily};
use crate::parents::Parents;
use crate::types::Dtype;

/// The most definitions that are followed in sequence.
const MAX_DEPTH: u32 = 64;

/// A variable of a form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Term {
    /// An opaque scalar.
    Value(Value),
    /// The number of completed iterations of a counted loop.
    Iteration(Inst),
}

impl Variable for Term {
    type Coefficient = i128;
    const MAX_DEGREE: usize = 4;
}

/// A scalar as a polynomial.
pub type Form = Polynomial<Term>;

/// The forms of the scalars of a function at the time of the analysis.
#[derive(Debug)]
pub struct ScalarEvolution<'f, D: Dialect> {
    function: &'f Function<D>,
    parents: Parents,
    known: FxHashMap<Value, Form>,
    /// Carried values whose step is being computed.
    in_progress: FxHashSet<Value>,
}

impl<'f, D: Dialect> ScalarEvolution<'f, D> {
    /// Returns an analysis of a function.
    pub fn new(function: &'f Function<D>) -> Self {
        let parents = Parents::new(function);
        Self { function, parents, known: FxHashMap::default(), in_progress: FxHashSet::default() }
    }

    /// Returns the form of a value; a value of another type than an integer scalar is its own form.
    pub fn form(&mut self, value: Value) -> Form {
        self.form_within(value, MAX_DEPTH)
    }

    fn form_within(&mut self, value: Value, depth: u32) -> Form {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        let form = depth.checked_sub(1).and_then(|depth| self.compute(value, depth));
        let form = form.unwrap_or_else(|| Form::var(Term::Value(value)));
        self.known.insert(value, form.clone());
        form
    }

    /// Returns the type of an integer scalar of more than one bit.
    fn dtype(&self, value: Value) -> Option<Dtype> {
        let ty = D::tile_type(self.function.ty(value)).filter(|ty| ty.is_scalar())?;
        ty.dtype().filter(|dtype| dtype.is_int() && !dtype.is_bool())
    }

    fn compute(&mut self, value: Value, depth: u32) -> Option<Form> {
        let dtype = self.dtype(value)?;
        let inst = match self.function.values[value].definition {
            Definition::Result(inst, _) => inst,
            Definition::Parameter(block, _) => return self.region_parameter(value, block, depth),
        };
        if let Some(number) = constant_int(self.function, value) {
            return Some(Form::constant(number));
        }
        let function = self.function;
        let data = &function.insts[inst];
        let operand = |place: usize| data.operands.get(place).copied();
        if let Some(computed) = data.op.as_elementwise() {
            let x = operand(0)?;
            return match computed {
                ElementwiseFn::Add => self.form_within(x, depth).plus(&self.form_within(operand(1)?, depth)),
                ElementwiseFn::Sub => self.form_within(x, depth).minus(&self.form_within(operand(1)?, depth)),
                ElementwiseFn::Mul => self.form_within(x, depth).times(&self.form_within(operand(1)?, depth)),
                ElementwiseFn::Neg => self.form_within(x, depth).scaled(-1),
                ElementwiseFn::Shl => {
                    let by = u32::try_from(constant_int(function, operand(1)?)?).ok();
                    let by = by.filter(|by| *by < dtype.bits())?;
                    self.form_within(x, depth).scaled(1 << by)
                }
                // tidy: wildcard because other functions are no polynomials of their operands
                _ => None,
            };
        }
        let x = operand(0)?;
        let is_narrowing = || self.dtype(x).is_some_and(|from| from.bits() >= dtype.bits());
        match data.op.as_tile() {
            Some(Op::Cast { .. }) if is_narrowing() => Some(self.form_within(x, depth)),
            _ if data.op.info().family == OpFamily::Identity => Some(self.form_within(x, depth)),
            // tidy: wildcard because the results of other ops are opaque
            _ => None,
        }
    }

    /// Returns the form of the index of a counted loop, or of a value that it carries and changes
    /// by the same step each time.
    fn region_parameter(&mut self, value: Value, block: Block, depth: u32) -> Option<Form> {
        let inst = self.parents.owner(block)?;
        let data = &self.function.insts[inst];
        let Some(Op::For { .. }) = data.op.as_tile() else { return None };
        let iteration = Form::var(Term::Iteration(inst));
        let (start, step) = match self.function.carried_by(inst, value) {
            None => (data.operands[0], self.form_within(data.operands[2], depth)),
            Some(carried) => (carried.initial?, self.step(inst, value, *carried.yielded.first()?, depth)?),
        };
        self.form_within(start, depth).plus(&step.times(&iteration)?)
    }

    /// Returns the difference between a carried value in the next iteration and now, if it is the
    /// same in all iterations.
    fn step(&mut self, inst: Inst, value: Value, next: Value, depth: u32) -> Option<Form> {
        if !self.in_progress.insert(value) {
            return None;
        }
        // Forms computed now contain the carried value, which later ones may replace.
        let known = std::mem::take(&mut self.known);
        for value in &self.in_progress {
            self.known.insert(*value, Form::var(Term::Value(*value)));
        }
        let next = self.form_within(next, depth);
        self.known = known;
        self.in_progress.remove(&value);
        let step = next.minus(&Form::var(Term::Value(value)))?;
        (!step.any(|term| self.is_of_loop(*term, inst))).then_some(step)
    }

    /// Returns whether a term changes from one iteration of a loop to the next.
    fn is_of_loop(&self, term: Term, inst: Inst) -> bool {
        match term {
            Term::Iteration(other) => self.parents.is_inside(other, inst),
            Term::Value(value) => match self.function.values[value].definition {
                Definition::Result(other, _) => self.parents.enclosing(other).any(|outer| outer == inst),
                Definition::Parameter(block, _) => {
                    self.parents.owner(block).is_some_and(|owner| self.parents.is_inside(owner, inst))
                }
            },
        }
    }
}
