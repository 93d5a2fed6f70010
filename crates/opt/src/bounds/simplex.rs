//! Decides whether linear inequalities have a common rational solution.
//!
//! The method is the general simplex of Dutertre and de Moura (A Fast Linear-Arithmetic Solver for
//! DPLL(T), CAV 2006). Bland's rule ensures termination, and the arithmetic is exact.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use tilewright_ir::analysis::polynomial::gcd;

/// A rational number: a numerator and a positive denominator without a common divisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rational(i128, i128);

impl Rational {
    pub const ZERO: Rational = Rational(0, 1);

    /// Creates a quotient, unless the denominator is 0 or a number overflows.
    pub fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 1 {
            return Some(Self(numerator, 1));
        }
        let divisor = gcd(numerator, denominator).max(1);
        let sign = denominator.signum();
        let (top, bottom) = (numerator / divisor, denominator / divisor);
        (sign != 0).then_some(())?;
        Some(Self(top.checked_mul(sign)?, bottom.checked_mul(sign)?))
    }

    /// Returns the largest integer that is not greater than the number.
    pub fn floor(self) -> i128 {
        self.0.div_euclid(self.1)
    }

    fn plus(self, other: Self) -> Option<Self> {
        if self.1 == 1 && other.1 == 1 {
            return Some(Self(self.0.checked_add(other.0)?, 1));
        }
        let top = self.0.checked_mul(other.1)?.checked_add(other.0.checked_mul(self.1)?)?;
        Self::new(top, self.1.checked_mul(other.1)?)
    }

    fn times(self, other: Self) -> Option<Self> {
        Self::new(self.0.checked_mul(other.0)?, self.1.checked_mul(other.1)?)
    }

    fn negated(self) -> Option<Self> {
        Some(Self(self.0.checked_neg()?, self.1))
    }

    fn minus(self, other: Self) -> Option<Self> {
        self.plus(other.negated()?)
    }

    fn over(self, other: Self) -> Option<Self> {
        Self::new(self.0.checked_mul(other.1)?, self.1.checked_mul(other.0)?)
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        Some(self.0.checked_mul(other.1)?.cmp(&other.0.checked_mul(self.1)?))
    }

    fn is_below(self, other: Self) -> Option<bool> {
        Some(self.compare(other)? == Ordering::Less)
    }
}

/// The result of comparing the basic variables with their bounds.
enum BoundsState {
    Hold,
    /// The basic variable has to reach the bound `target`.
    Violated {
        basic: usize,
        target: Rational,
        grows: bool,
    },
}

/// The result of the search for a variable that can change a basic variable.
enum EnteringVariable {
    By(usize),
    Impossible,
}

/// The maximum number of pivots.
const MAX_PIVOTS: usize = 400;

/// A system of linear inequalities. The first columns are the variables of the caller. Each
/// inequality with several terms adds a variable that equals its linear combination.
#[derive(Default, Debug)]
pub struct Simplex {
    lower: Vec<Option<Rational>>,
    upper: Vec<Option<Rational>>,
    value: Vec<Rational>,
    /// Each basic variable as a combination of the others.
    rows: BTreeMap<usize, BTreeMap<usize, Rational>>,
}

impl Simplex {
    /// Creates a system over `columns` variables without inequalities.
    pub fn new(columns: usize) -> Self {
        Self {
            lower: vec![None; columns],
            upper: vec![None; columns],
            value: vec![Rational::ZERO; columns],
            rows: BTreeMap::new(),
        }
    }

    /// Adds the inequality that the sum of all `factor * column` is at least `least`, unless a
    /// number overflows.
    pub fn add(&mut self, factors: &[(usize, i128)], least: i128) -> Option<()> {
        if let &[(column, factor)] = factors {
            let bound = Rational::new(least, factor)?;
            let own = if factor > 0 { &mut self.lower[column] } else { &mut self.upper[column] };
            let is_new = match *own {
                None => true,
                Some(old) if factor > 0 => old.is_below(bound)?,
                Some(old) => bound.is_below(old)?,
            };
            if is_new {
                *own = Some(bound);
            }
            return Some(());
        }
        let number = self.value.len();
        self.lower.push(Some(Rational(least, 1)));
        self.upper.push(None);
        self.value.push(Rational::ZERO);
        self.rows
            .insert(number, factors.iter().map(|&(column, factor)| (column, Rational(factor, 1))).collect());
        Some(())
    }

    /// Returns whether there is a solution. Returns `None` if a number overflows, or after
    /// [`MAX_PIVOTS`].
    pub fn is_feasible(&mut self) -> Option<bool> {
        for column in 0..self.value.len() {
            if self.rows.contains_key(&column) {
                continue;
            }
            match (self.lower[column], self.upper[column]) {
                (Some(low), Some(high)) if high.is_below(low)? => return Some(false),
                (Some(low), _) => self.value[column] = low,
                (None, Some(high)) => self.value[column] = high,
                (None, None) => {}
            }
        }
        for (&basic, row) in &self.rows {
            let mut sum = Rational::ZERO;
            for (&column, &factor) in row {
                sum = sum.plus(factor.times(self.value[column])?)?;
            }
            self.value[basic] = sum;
        }
        for _ in 0..MAX_PIVOTS {
            let BoundsState::Violated { basic, target, grows } = self.violated()? else { return Some(true) };
            let EnteringVariable::By(column) = self.entering(basic, grows)? else { return Some(false) };
            self.pivot(basic, column, target)?;
        }
        None
    }

    /// Returns the value of a column in the found solution.
    pub fn value(&self, column: usize) -> Rational {
        self.value[column]
    }

    /// Returns the first basic variable outside of its bounds, the violated bound and the
    /// direction. Returns `None` if a number overflows.
    fn violated(&self) -> Option<BoundsState> {
        for &basic in self.rows.keys() {
            let value = self.value[basic];
            if let Some(low) = self.lower[basic]
                && value.is_below(low)?
            {
                return Some(BoundsState::Violated { basic, target: low, grows: true });
            }
            if let Some(high) = self.upper[basic]
                && high.is_below(value)?
            {
                return Some(BoundsState::Violated { basic, target: high, grows: false });
            }
        }
        Some(BoundsState::Hold)
    }

    /// Returns the first variable in the row of a basic variable that can make it grow or, if
    /// `grows` is false, shrink. Returns `None` if a number overflows.
    fn entering(&self, basic: usize, grows: bool) -> Option<EnteringVariable> {
        for (&column, &factor) in &self.rows[&basic] {
            let value = self.value[column];
            let can = match (self.lower[column], self.upper[column]) {
                (_, Some(high)) if (factor.0 > 0) == grows => value.is_below(high)?,
                (Some(low), _) if (factor.0 > 0) != grows => low.is_below(value)?,
                (_, _) => true,
            };
            if can {
                return Some(EnteringVariable::By(column));
            }
        }
        Some(EnteringVariable::Impossible)
    }

    /// Swaps a basic variable with a column, and sets the basic variable to `target`.
    fn pivot(&mut self, basic: usize, column: usize, target: Rational) -> Option<()> {
        let mut row = self.rows.remove(&basic).expect("a basic variable has a row");
        let factor = row.remove(&column).expect("the row has the entering column");
        let change = target.minus(self.value[basic])?.over(factor)?;
        self.value[basic] = target;
        self.value[column] = self.value[column].plus(change)?;
        // column = (basic - rest) / factor
        let mut solved = BTreeMap::from([(basic, Rational(1, 1).over(factor)?)]);
        for (other, own) in row {
            solved.insert(other, own.over(factor)?.negated()?);
        }
        for (&other, row) in &mut self.rows {
            let Some(times) = row.remove(&column) else { continue };
            self.value[other] = self.value[other].plus(times.times(change)?)?;
            for (&place, &own) in &solved {
                let sum = row.get(&place).copied().unwrap_or(Rational::ZERO).plus(own.times(times)?)?;
                if sum == Rational::ZERO {
                    row.remove(&place);
                } else {
                    row.insert(place, sum);
                }
            }
        }
        self.rows.insert(column, solved);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feasible(columns: usize, claims: &[(&[(usize, i128)], i128)]) -> Option<bool> {
        let mut simplex = Simplex::new(columns);
        for (factors, least) in claims {
            simplex.add(factors, *least)?;
        }
        simplex.is_feasible()
    }

    #[test]
    fn small_systems() {
        // x + y >= 3, x <= 1, y <= 1
        assert_eq!(feasible(2, &[(&[(0, 1), (1, 1)], 3), (&[(0, -1)], -1), (&[(1, -1)], -1)]), Some(false));
        assert_eq!(feasible(2, &[(&[(0, 1), (1, 1)], 2), (&[(0, -1)], -1), (&[(1, -1)], -1)]), Some(true));
        // A cycle: x > y > z > x
        let below = |a, b| [(a, 1), (b, -1)];
        assert_eq!(feasible(3, &[(&below(0, 1), 1), (&below(1, 2), 1), (&below(2, 0), 1)]), Some(false));
        assert_eq!(feasible(3, &[(&below(0, 1), 0), (&below(1, 2), 0), (&below(2, 0), 0)]), Some(true));
    }
}
