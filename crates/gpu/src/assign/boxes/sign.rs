//! Proves that an index is not negative.
//!
//! A divisor is assumed to be positive: it usually is a number of tiles. Kernel arguments are
//! assumed to be nonnegative; the launch checks those that the proof uses. Loop-carried values are
//! proved by induction. Example: the next value of `step` is one of the two polynomials below
//! `while`, which are nonnegative.
//!
//! ```text
//! while step < end: first = step % steps ; last = min(steps, first + end - step) ; … ; step += last - first
//! step + steps - first                    is at least steps, since a remainder is at most the dividend
//! step + first + end - step - first       is end
//! ```

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::analysis::polynomial::Monomial;
use tilewright_ir::analysis::scalar_evolution::{Form, Term};
use tilewright_ir::{Block, Definition, Dtype, ElementwiseFn, Function, Inst, Op, OpFamily, Value};

use super::Search;

/// The maximum nesting of claims. A claim states that a value or a form is nonnegative.
const MAX_DEPTH: u32 = 24;
/// The maximum number of claims of a proof.
const MAX_CLAIMS: u32 = 2000;

/// The assumptions and the progress of a proof.
pub struct Proof {
    /// The loop of each region.
    loops: FxHashMap<Block, Inst>,
    /// The loop-carried values that the induction assumes to be nonnegative.
    carried: Vec<Value>,
    arguments: BTreeSet<u32>,
    claims: u32,
    depth: u32,
}

impl Proof {
    pub fn new(function: &Function) -> Self {
        let mut loops = FxHashMap::default();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if data.op.family() == OpFamily::Loop {
                loops.extend(data.regions.iter().map(|region| (*region, inst)));
            }
        });
        Self { loops, carried: Vec::new(), arguments: BTreeSet::new(), claims: 0, depth: 0 }
    }

    /// Returns the kernel arguments that the proof assumes to be nonnegative.
    pub fn arguments(&self) -> SmallVec<[u32; 2]> {
        self.arguments.iter().copied().collect()
    }

    /// Begins a claim. Returns false if the proof is too deep or too long.
    fn begin(&mut self) -> bool {
        let may_begin = self.depth < MAX_DEPTH && self.claims < MAX_CLAIMS;
        if may_begin {
            self.depth += 1;
            self.claims += 1;
        }
        may_begin
    }
}

impl Search<'_> {
    pub(super) fn is_nonnegative(&mut self, form: &Form, proof: &mut Proof) -> bool {
        if !proof.begin() {
            return false;
        }
        let found = self.has_no_negative_case(form, proof);
        proof.depth -= 1;
        found
    }

    fn has_no_negative_case(&mut self, form: &Form, proof: &mut Proof) -> bool {
        let substituted = |search: &mut Self, value: Value, factor: i128, operand: Value| {
            let operand = search.evolution.form_everywhere(operand)?;
            let rest = form.minus(&Form::term(smallvec![Term::Value(value)], factor))?;
            rest.plus_times(&operand, factor)
        };
        // A minimum or maximum is one of its operands, so check the form for each operand.
        for (value, factor) in single_values(form) {
            let Some((ElementwiseFn::Min | ElementwiseFn::Max, operands)) = self.elementwise(value) else {
                continue;
            };
            return operands.iter().all(|operand| {
                let case = substituted(self, value, factor, *operand);
                case.is_some_and(|case| self.is_nonnegative(&case, proof))
            });
        }
        // A remainder is at most the dividend.
        for (value, factor) in single_values(form) {
            if factor < 0
                && let Some((ElementwiseFn::IntRem, operands)) = self.elementwise(value)
                && let Some(less) = substituted(self, value, factor, operands[0])
            {
                return self.is_value_nonnegative(operands[0], proof) && self.is_nonnegative(&less, proof);
            }
        }
        // A quotient times its divisor is at most the dividend.
        for (value, factor) in single_values(form) {
            if factor < 0
                && let Some((ElementwiseFn::IntDiv, operands)) = self.elementwise(value)
                && let Some(divisor) = self.constant(operands[1]).filter(|by| *by > 0 && factor % by == 0)
                && let Some(dividend) = self.evolution.form_everywhere(operands[0])
                && let Some(rest) = form.minus(&Form::term(smallvec![Term::Value(value)], factor))
                && let Some(less) = rest.plus_times(&dividend, factor / divisor)
            {
                return self.is_value_nonnegative(operands[0], proof) && self.is_nonnegative(&less, proof);
            }
        }
        form.terms().all(|(product, factor)| {
            factor >= 0
                && product.iter().all(|term| match term {
                    Term::Value(value) => self.is_value_nonnegative(*value, proof),
                    Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => true,
                })
        })
    }

    fn constant(&mut self, value: Value) -> Option<i128> {
        self.evolution.form_everywhere(value)?.as_constant()
    }

    fn elementwise(&self, value: Value) -> Option<(ElementwiseFn, SmallVec<[Value; 4]>)> {
        let function = self.evolution.function;
        let data = &function.insts[function.defining_inst(value)?];
        match data.op {
            Op::Elementwise { function } => Some((function, data.operands.iter().copied().collect())),
            // tidy: wildcard because other ops are not elementwise functions
            _ => None,
        }
    }

    /// Returns whether the proof shows that a scalar is nonnegative.
    fn is_value_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        if self.infos[value].range.is_nonnegative() || proof.carried.contains(&value) {
            return true;
        }
        if !proof.begin() {
            return false;
        }
        let found = self.definition_is_nonnegative(value, proof);
        proof.depth -= 1;
        found
    }

    fn definition_is_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        let function = self.evolution.function;
        let inst = match function.values[value].definition {
            Definition::Result(inst, _) => inst,
            // The launch cannot check the inputs of a tensor map that the kernel makes.
            Definition::Parameter(_, index)
                if self.making.is_none() && self.is_known_at_launch(&Term::Value(value)) =>
            {
                proof.arguments.insert(index);
                return true;
            }
            Definition::Parameter(block, _) => return self.is_carried_nonnegative(value, block, proof),
        };
        let data = &function.insts[inst];
        let operand = |index: usize| data.operands[index];
        match &data.op {
            Op::Cast { .. } => {
                function.ty(operand(0)).dtype().is_some_and(Dtype::is_int)
                    && self.is_value_nonnegative(operand(0), proof)
            }
            Op::Hint { .. } => self.is_value_nonnegative(operand(0), proof),
            Op::Elementwise { function } => match function {
                ElementwiseFn::IntDiv | ElementwiseFn::IntRem => self.is_value_nonnegative(operand(0), proof),
                ElementwiseFn::Min => (0..2).all(|index| self.is_value_nonnegative(operand(index), proof)),
                ElementwiseFn::Max => (0..2).any(|index| self.is_value_nonnegative(operand(index), proof)),
                ElementwiseFn::Select => (1..3).all(|index| self.is_value_nonnegative(operand(index), proof)),
                // tidy: wildcard because the sign of any other function is known only from its form
                _ => self.is_form_nonnegative(value, proof),
            },
            Op::If { .. } => function.carried_by(inst, value).is_some_and(|carried| {
                carried.yielded.iter().all(|yielded| self.is_value_nonnegative(*yielded, proof))
            }),
            // tidy: wildcard because the sign of the results of other ops is not followed
            _ => false,
        }
    }

    fn is_form_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        let form = self.evolution.form_everywhere(value);
        form.is_some_and(|form| form != Form::var(Term::Value(value)) && self.is_nonnegative(&form, proof))
    }

    /// Proves by induction that a loop-carried value is nonnegative.
    fn is_carried_nonnegative(&mut self, value: Value, block: Block, proof: &mut Proof) -> bool {
        let function = self.evolution.function;
        let Some(&inst) = proof.loops.get(&block) else { return false };
        let Some(carried) = function.carried_by(inst, value) else {
            // The value is the counter of the loop.
            return self.is_form_nonnegative(value, proof);
        };
        let Some(initial) = carried.initial else { return false };
        if !self.is_value_nonnegative(initial, proof) {
            return false;
        }
        proof.carried.push(value);
        let found = carried.yielded.iter().all(|yielded| self.is_value_nonnegative(*yielded, proof));
        proof.carried.pop();
        found
    }
}

/// Returns the terms that are a scalar times a constant.
fn single_values(form: &Form) -> SmallVec<[(Value, i128); 4]> {
    let single = |(product, factor): (&Monomial<Term>, i128)| match product[..] {
        [Term::Value(value)] => Some((value, factor)),
        // tidy: wildcard because products of several variables are not split
        _ => None,
    };
    form.terms().filter_map(single).collect()
}
