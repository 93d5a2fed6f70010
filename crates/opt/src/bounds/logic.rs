//! Defines formulas: comparisons of polynomials with zero, joined by "and" and "or".

use super::variables::{Poly, Var};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Formula {
    /// The polynomial is not negative.
    NotNegative(Poly),
    /// The polynomial is zero.
    Zero(Poly),
    /// The conjunction; empty for true.
    All(Vec<Formula>),
    /// The disjunction; empty for false.
    Any(Vec<Formula>),
    /// An undetermined formula: the analysis does not follow it, so it may be true or false.
    Unknown,
}

impl Formula {
    pub const TRUE: Formula = Formula::All(Vec::new());
    pub const FALSE: Formula = Formula::Any(Vec::new());

    /// Returns the formula `x <= y`.
    pub fn at_most(x: &Poly, y: &Poly) -> Self {
        y.plus_times(x, -1).map_or(Formula::Unknown, |difference| Formula::NotNegative(difference).folded())
    }

    /// Returns the formula `x < y`.
    pub fn below(x: &Poly, y: &Poly) -> Self {
        let difference = y.plus_times(x, -1).and_then(|difference| difference.offset(-1));
        difference.map_or(Formula::Unknown, |difference| Formula::NotNegative(difference).folded())
    }

    /// Returns the formula `x == y`.
    pub fn equal(x: &Poly, y: &Poly) -> Self {
        x.plus_times(y, -1).map_or(Formula::Unknown, |difference| Formula::Zero(difference).folded())
    }

    /// Returns the formula `low <= x && x <= high`.
    pub fn within(x: &Poly, low: i128, high: i128) -> Self {
        Formula::All(vec![Self::at_most(&Poly::constant(low), x), Self::at_most(x, &Poly::constant(high))])
    }

    /// Returns the truth of a formula that no variable affects.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Formula::NotNegative(poly) => poly.as_constant().map(|number| number >= 0),
            Formula::Zero(poly) => poly.as_constant().map(|number| number == 0),
            Formula::All(parts) => {
                let mut truths = parts.iter().map(Formula::truth);
                if truths.clone().any(|truth| truth == Some(false)) {
                    return Some(false);
                }
                truths.all(|truth| truth == Some(true)).then_some(true)
            }
            Formula::Any(parts) => {
                let mut truths = parts.iter().map(Formula::truth);
                if truths.clone().any(|truth| truth == Some(true)) {
                    return Some(true);
                }
                truths.all(|truth| truth == Some(false)).then_some(false)
            }
            Formula::Unknown => None,
        }
    }

    fn folded(self) -> Self {
        match self.truth() {
            Some(true) => Self::TRUE,
            Some(false) => Self::FALSE,
            None => self,
        }
    }

    /// Returns the negation. That of an undetermined formula is undetermined.
    pub fn negated(&self) -> Self {
        match self {
            Formula::NotNegative(poly) => {
                let negated = poly.scaled(-1).and_then(|poly| poly.offset(-1));
                negated.map_or(Formula::Unknown, |poly| Formula::NotNegative(poly).folded())
            }
            Formula::Zero(poly) => {
                let side = |sign| poly.scaled(sign).and_then(|poly| poly.offset(-1));
                match (side(1), side(-1)) {
                    (Some(above), Some(below)) => {
                        Formula::Any(vec![Formula::NotNegative(above), Formula::NotNegative(below)]).folded()
                    }
                    _ => Formula::Unknown,
                }
            }
            Formula::All(parts) => Formula::Any(parts.iter().map(Formula::negated).collect()),
            Formula::Any(parts) => Formula::All(parts.iter().map(Formula::negated).collect()),
            Formula::Unknown => Formula::Unknown,
        }
    }

    /// Calls a function with each polynomial of the formula.
    pub fn visit(&self, each: &mut impl FnMut(&Poly)) {
        match self {
            Formula::NotNegative(poly) | Formula::Zero(poly) => each(poly),
            Formula::All(parts) | Formula::Any(parts) => parts.iter().for_each(|part| part.visit(each)),
            Formula::Unknown => {}
        }
    }

    /// Returns the variables, possibly with duplicates.
    pub fn vars(&self) -> Vec<Var> {
        let mut vars = Vec::new();
        self.visit(&mut |poly| vars.extend(poly.vars()));
        vars
    }

    /// Returns whether a part of the formula is undetermined.
    pub fn has_unknown(&self) -> bool {
        match self {
            Formula::NotNegative(_) | Formula::Zero(_) => false,
            Formula::All(parts) | Formula::Any(parts) => parts.iter().any(Formula::has_unknown),
            Formula::Unknown => true,
        }
    }

    /// Replaces a variable by a polynomial. A comparison that overflows becomes undetermined.
    #[must_use]
    pub fn substitute(&self, var: Var, by: &Poly) -> Self {
        match self {
            Formula::NotNegative(poly) => {
                poly.substitute(var, by).map_or(Formula::Unknown, |poly| Formula::NotNegative(poly).folded())
            }
            Formula::Zero(poly) => {
                poly.substitute(var, by).map_or(Formula::Unknown, |poly| Formula::Zero(poly).folded())
            }
            Formula::All(parts) => Formula::All(parts.iter().map(|part| part.substitute(var, by)).collect()),
            Formula::Any(parts) => Formula::Any(parts.iter().map(|part| part.substitute(var, by)).collect()),
            Formula::Unknown => Formula::Unknown,
        }
    }

    /// Evaluates the formula, or returns `None` if it is undetermined.
    pub fn evaluate(&self, value: &impl Fn(Var) -> Option<i128>) -> Option<bool> {
        match self {
            Formula::NotNegative(poly) => poly.evaluate(value).map(|number| number >= 0),
            Formula::Zero(poly) => poly.evaluate(value).map(|number| number == 0),
            Formula::All(parts) => {
                let truths: Vec<_> = parts.iter().map(|part| part.evaluate(value)).collect();
                if truths.contains(&Some(false)) {
                    return Some(false);
                }
                (!truths.contains(&None)).then_some(true)
            }
            Formula::Any(parts) => {
                let truths: Vec<_> = parts.iter().map(|part| part.evaluate(value)).collect();
                if truths.contains(&Some(true)) {
                    return Some(true);
                }
                (!truths.contains(&None)).then_some(false)
            }
            Formula::Unknown => None,
        }
    }
}
