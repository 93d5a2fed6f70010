//! Whether an index is known not to be negative.
//!
//! What divides a number that is not negative is taken to be the number of tiles along an axis. Arguments of the kernel are
//! taken not to be negative either, which the launch looks at. What a loop carries is not negative if it does not begin so,
//! and if no iteration makes it so:
//!
//! ```text
//! while step < end: first = step % steps ; last = min(steps, first + end - step) ; … ; step += last - first
//! step + steps - first    is steps at least, since a remainder is no more than what was divided
//! step + first + end - step - first    is end
//! ```

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tilewright_ir::analysis::polynomial::Monomial;
use tilewright_ir::analysis::scalar_evolution::{Form, Term};
use tilewright_ir::{Block, Definition, Dtype, ElementwiseFn, Function, Inst, Op, OpFamily, Value};

use super::Search;

/// How far definitions are followed.
const MOST_STEPS: u32 = 24;
/// How many questions a proof may have.
const MOST_QUESTIONS: u32 = 2000;

/// What is taken for granted on the way.
pub struct Proof {
    /// The loops by their regions.
    loops: FxHashMap<Block, Inst>,
    /// What loops carry, in the iteration that is looked at.
    carried: Vec<Value>,
    /// The arguments of the kernel that may not be negative.
    arguments: BTreeSet<u32>,
    questions: u32,
    steps: u32,
}

impl Proof {
    /// Of a kernel.
    pub fn new(function: &Function) -> Self {
        let mut loops = FxHashMap::default();
        function.walk(function.entry, &mut |inst| {
            let data = &function.insts[inst];
            if data.op.family() == OpFamily::Loop {
                loops.extend(data.regions.iter().map(|region| (*region, inst)));
            }
        });
        Self { loops, carried: Vec::new(), arguments: BTreeSet::new(), questions: 0, steps: 0 }
    }

    /// The arguments that it is about.
    pub fn arguments(&self) -> SmallVec<[u32; 2]> {
        self.arguments.iter().copied().collect()
    }
}

impl Search<'_> {
    /// Whether a sum is not negative.
    pub(super) fn is_nonnegative(&mut self, number: &Form, proof: &mut Proof) -> bool {
        if proof.steps == MOST_STEPS || proof.questions == MOST_QUESTIONS {
            return false;
        }
        proof.steps += 1;
        proof.questions += 1;
        let found = self.has_no_negative_case(number, proof);
        proof.steps -= 1;
        found
    }

    fn has_no_negative_case(&mut self, number: &Form, proof: &mut Proof) -> bool {
        let put = |search: &mut Self, value: Value, factor: i128, operand: Value| {
            let operand = search.evolution.form_everywhere(operand)?;
            let rest = number.minus(&Form::term(smallvec![Term::Value(value)], factor))?;
            rest.plus_times(&operand, factor)
        };
        // A minimum or maximum is one of the two.
        for (value, factor) in single_values(number) {
            let Some((ElementwiseFn::Min | ElementwiseFn::Max, operands)) = self.elementwise(value) else {
                continue;
            };
            return operands.iter().all(|operand| {
                let case = put(self, value, factor, *operand);
                case.is_some_and(|case| self.is_nonnegative(&case, proof))
            });
        }
        // A remainder is no more than what was divided.
        for (value, factor) in single_values(number) {
            if factor < 0
                && let Some((ElementwiseFn::IntRem, operands)) = self.elementwise(value)
                && let Some(less) = put(self, value, factor, operands[0])
            {
                return self.is_value_nonnegative(operands[0], proof) && self.is_nonnegative(&less, proof);
            }
        }
        // A quotient times its divisor is no more than what was divided.
        for (value, factor) in single_values(number) {
            if factor < 0
                && let Some((ElementwiseFn::IntDiv, operands)) = self.elementwise(value)
                && let Some(divisor) = self.constant(operands[1]).filter(|by| *by > 0 && factor % by == 0)
                && let Some(divided) = self.evolution.form_everywhere(operands[0])
                && let Some(divided) = divided.scaled(factor / divisor)
                && let Some(rest) = number.minus(&Form::term(smallvec![Term::Value(value)], factor))
                && let Some(less) = rest.plus(&divided)
            {
                return self.is_value_nonnegative(operands[0], proof) && self.is_nonnegative(&less, proof);
            }
        }
        number.terms().all(|(product, factor)| {
            factor >= 0
                && product.iter().all(|atom| match atom {
                    Term::Value(value) => self.is_value_nonnegative(*value, proof),
                    Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => true,
                })
        })
    }

    /// A scalar that is one number.
    fn constant(&mut self, value: Value) -> Option<i128> {
        self.evolution.form_everywhere(value)?.as_constant()
    }

    /// The function of elements that makes a value.
    fn elementwise(&self, value: Value) -> Option<(ElementwiseFn, SmallVec<[Value; 4]>)> {
        let function = self.evolution.function;
        let data = &function.insts[function.defining_inst(value)?];
        match data.op {
            Op::Elementwise { function } => Some((function, data.operands.iter().copied().collect())),
            // tidy: wildcard because this is about these functions
            _ => None,
        }
    }

    /// Whether a scalar is not negative, if what it is divided by is not.
    fn is_value_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        if self.infos[value].range.is_nonnegative() || proof.carried.contains(&value) {
            return true;
        }
        if proof.steps == MOST_STEPS || proof.questions == MOST_QUESTIONS {
            return false;
        }
        proof.steps += 1;
        proof.questions += 1;
        let found = self.definition_is_nonnegative(value, proof);
        proof.steps -= 1;
        found
    }

    fn definition_is_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        let function = self.evolution.function;
        let inst = match function.values[value].definition {
            Definition::Result(inst, _) => inst,
            // Nobody looks at what a map of the kernel's own is made of.
            Definition::Parameter(_, number)
                if self.making.is_none() && self.is_known_at_launch(&Term::Value(value)) =>
            {
                proof.arguments.insert(number);
                return true;
            }
            Definition::Parameter(block, _) => return self.is_carried_nonnegative(value, block, proof),
        };
        let data = &function.insts[inst];
        let operand = |place: usize| data.operands[place];
        match &data.op {
            Op::Cast { .. } => {
                function.ty(operand(0)).dtype().is_some_and(Dtype::is_int)
                    && self.is_value_nonnegative(operand(0), proof)
            }
            Op::Hint { .. } => self.is_value_nonnegative(operand(0), proof),
            Op::Elementwise { function } => match function {
                ElementwiseFn::IntDiv | ElementwiseFn::IntRem => self.is_value_nonnegative(operand(0), proof),
                ElementwiseFn::Min => (0..2).all(|place| self.is_value_nonnegative(operand(place), proof)),
                ElementwiseFn::Max => (0..2).any(|place| self.is_value_nonnegative(operand(place), proof)),
                ElementwiseFn::Select => (1..3).all(|place| self.is_value_nonnegative(operand(place), proof)),
                // tidy: wildcard because all others are sums, or their sign is not followed
                _ => self.is_sum_nonnegative(value, proof),
            },
            Op::If { .. } => function.carried_by(inst, value).is_some_and(|carried| {
                carried.yielded.iter().all(|yielded| self.is_value_nonnegative(*yielded, proof))
            }),
            // tidy: wildcard because the sign of what other ops make is not followed
            _ => false,
        }
    }

    fn is_sum_nonnegative(&mut self, value: Value, proof: &mut Proof) -> bool {
        let sum = self.evolution.form_everywhere(value);
        sum.is_some_and(|sum| sum != Form::var(Term::Value(value)) && self.is_nonnegative(&sum, proof))
    }

    /// What a loop carries, by induction over its iterations.
    fn is_carried_nonnegative(&mut self, value: Value, block: Block, proof: &mut Proof) -> bool {
        let function = self.evolution.function;
        let Some(&inst) = proof.loops.get(&block) else { return false };
        let Some(carried) = function.carried_by(inst, value) else {
            // The counter of a loop, or what is made of one.
            return self.is_sum_nonnegative(value, proof);
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

/// The scalars that are terms of their own, with their factors.
fn single_values(number: &Form) -> SmallVec<[(Value, i128); 4]> {
    let single = |(product, factor): (&Monomial<Term>, i128)| match product[..] {
        [Term::Value(value)] => Some((value, factor)),
        // tidy: wildcard because products are taken as they are
        _ => None,
    };
    number.terms().filter_map(single).collect()
}
