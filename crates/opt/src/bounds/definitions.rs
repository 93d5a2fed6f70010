//! Defines variables for minima, choices, quotients, and results that may overflow.

use tilewright_ir::Dtype;

use super::forms::{Forms, Kind, Rounding};
use super::logic::Formula;
use super::variables::Poly;

impl Forms<'_> {
    /// Returns a polynomial wrapped to an integer type: a constant that fits, or a variable. The
    /// variable equals the polynomial if that fits the type, and is any number of the type
    /// otherwise.
    pub(super) fn narrowed(&mut self, poly: Poly, dtype: Dtype) -> Poly {
        let Some((low, high)) = dtype.int_range() else { return poly };
        if poly.as_constant().is_some_and(|number| (low..=high).contains(&number)) {
            return poly;
        }
        let fits = Formula::within(&poly, low, high);
        self.define(|own| {
            let same = Formula::All(vec![fits.clone(), Formula::equal(own, &poly)]);
            let other = Formula::All(vec![fits.negated(), Formula::within(own, low, high)]);
            Formula::Any(vec![same, other])
        })
    }

    /// Returns `x` where the condition holds, else `y`.
    pub fn choice(&mut self, condition: &Formula, x: &Poly, y: &Poly) -> Poly {
        match condition.truth() {
            Some(true) => return x.clone(),
            Some(false) => return y.clone(),
            None if x == y => return x.clone(),
            None => {}
        }
        self.define(|own| {
            Formula::Any(vec![
                Formula::All(vec![condition.clone(), Formula::equal(own, x)]),
                Formula::All(vec![condition.negated(), Formula::equal(own, y)]),
            ])
        })
    }

    /// Returns the minimum of `x` and `y` if `sign` is 1, their maximum if it is -1.
    pub fn extreme(&mut self, x: &Poly, y: &Poly, sign: i128) -> Poly {
        let at_most =
            |a: &Poly, b: &Poly| if sign > 0 { Formula::at_most(a, b) } else { Formula::at_most(b, a) };
        match at_most(x, y).truth() {
            Some(true) => return x.clone(),
            Some(false) => return y.clone(),
            None => {}
        }
        self.define(|own| {
            Formula::All(vec![
                at_most(own, x),
                at_most(own, y),
                Formula::Any(vec![Formula::equal(own, x), Formula::equal(own, y)]),
            ])
        })
    }

    /// Returns the quotient, rounded down, and the remainder of the division by a positive number.
    pub fn floored(&mut self, x: &Poly, divisor: i128) -> (Poly, Poly) {
        let divisor = Poly::constant(divisor);
        self.divided(x, &divisor, Rounding::Down, |x, d, q, r| {
            Formula::All(vec![
                divides(x, d, q, r),
                Formula::at_most(&Poly::default(), r),
                Formula::below(r, d),
            ])
        })
    }

    /// Returns the quotient, towards zero, and the remainder. For the divisor zero, both have all
    /// bits set. `is_nonnegative` is true for a dividend that is known not to be negative.
    pub(super) fn truncated(
        &mut self,
        x: &Poly,
        divisor: &Poly,
        dtype: Dtype,
        is_nonnegative: bool,
    ) -> (Poly, Poly) {
        let all_bits = if dtype.is_signed() { -1 } else { dtype.int_range().map_or(-1, |(_, high)| high) };
        let can_be_negative = dtype.is_signed() && !is_nonnegative;
        if let Some(number) = divisor.as_constant().filter(|&number| number > 0) {
            // Non-negative dividends share the variables of the floor division.
            let above = self.floored(x, number);
            if !can_be_negative {
                return above;
            }
            if let Some(negated) = x.scaled(-1) {
                let below = self.floored(&negated, number);
                return self.divided(x, divisor, Rounding::TowardsZero(dtype), |x, _, q, r| {
                    let zero = Poly::default();
                    let minus =
                        |x: &Poly, y: &Poly| x.plus_times(y, 1).map_or(Formula::Unknown, Formula::Zero);
                    let above = [
                        Formula::at_most(&zero, x),
                        Formula::equal(q, &above.0),
                        Formula::equal(r, &above.1),
                    ];
                    let below = [Formula::below(x, &zero), minus(q, &below.0), minus(r, &below.1)];
                    Formula::Any(vec![Formula::All(above.into()), Formula::All(below.into())])
                });
            }
        }
        self.divided(x, divisor, Rounding::TowardsZero(dtype), |x, d, q, r| {
            let zero = Poly::default();
            let mut cases = Vec::new();
            for sign in [1, -1] {
                // The magnitude of a divisor with this sign.
                let Some(size) = d.scaled(sign) else { return Formula::Unknown };
                let Some(negative) = size.scaled(-1) else { return Formula::Unknown };
                let (towards, away) = if sign > 0 { (&zero, q) } else { (q, &zero) };
                let above = vec![
                    Formula::below(&zero, &size),
                    divides(x, d, q, r),
                    Formula::at_most(&zero, x),
                    Formula::at_most(&zero, r),
                    Formula::below(r, &size),
                    Formula::at_most(towards, away),
                ];
                let below = vec![
                    Formula::below(&zero, &size),
                    divides(x, d, q, r),
                    Formula::below(x, &zero),
                    Formula::at_most(r, &zero),
                    Formula::below(&negative, r),
                    Formula::at_most(away, towards),
                ];
                cases.push(Formula::All(above));
                if can_be_negative {
                    cases.push(Formula::All(below));
                }
            }
            let by_zero = [
                Formula::equal(d, &zero),
                Formula::equal(q, &Poly::constant(all_bits)),
                Formula::equal(r, &Poly::constant(all_bits)),
            ];
            cases.push(Formula::All(by_zero.into()));
            cases.retain(|case| case.truth() != Some(false));
            Formula::Any(cases)
        })
    }

    fn divided(
        &mut self,
        x: &Poly,
        divisor: &Poly,
        rounding: Rounding,
        definition: impl FnOnce(&Poly, &Poly, &Poly, &Poly) -> Formula,
    ) -> (Poly, Poly) {
        if divisor.as_constant() == Some(1) {
            return (x.clone(), Poly::default());
        }
        let key = (x.clone(), divisor.clone(), rounding);
        if let Some(known) = self.quotients.get(&key) {
            return known.clone();
        }
        let rest = Poly::var(self.push(Kind::Defined, Formula::TRUE, Vec::new()));
        let quotient = self.define(|quotient| definition(x, divisor, quotient, &rest));
        // A system with the remainder needs the definition, which the quotient has.
        for var in rest.vars() {
            let inputs = quotient.vars().chain(x.vars()).chain(divisor.vars()).collect();
            self.variables[var.0 as usize].inputs = inputs;
        }
        self.quotients.insert(key, (quotient.clone(), rest.clone()));
        (quotient, rest)
    }
}

/// Returns the formula `x = d * q + r`.
fn divides(x: &Poly, d: &Poly, q: &Poly, r: &Poly) -> Formula {
    let sum = d.times(q).and_then(|product| product.plus_times(r, 1));
    sum.map_or(Formula::Unknown, |sum| Formula::equal(&sum, x))
}
