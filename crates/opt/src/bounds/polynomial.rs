//! Polynomials with integer coefficients.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// A variable: an integer that is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Var(pub u32);

/// A product of variables, in order; none of them is 1.
pub type Monomial = SmallVec<[Var; 2]>;

/// More variables than this no product has.
const MOST_FACTORS: usize = 4;

/// A sum of monomials times integers. No coefficient is zero. What would not fit is no polynomial: sums and products may fail.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Poly {
    terms: BTreeMap<Monomial, i128>,
}

impl Poly {
    /// A number.
    pub fn constant(number: i128) -> Self {
        let mut poly = Self::default();
        if number != 0 {
            poly.terms.insert(Monomial::new(), number);
        }
        poly
    }

    /// A variable.
    pub fn var(var: Var) -> Self {
        Self { terms: BTreeMap::from([(Monomial::from_slice(&[var]), 1)]) }
    }

    /// The monomials and their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, i128)> {
        self.terms.iter().map(|(monomial, &factor)| (monomial, factor))
    }

    /// The coefficient of a monomial.
    pub fn coefficient(&self, monomial: &[Var]) -> i128 {
        self.terms.get(monomial).copied().unwrap_or(0)
    }

    /// What is added to the products of variables.
    pub fn constant_term(&self) -> i128 {
        self.coefficient(&[])
    }

    /// The number that it is, if it is one.
    pub fn as_constant(&self) -> Option<i128> {
        self.terms.keys().all(SmallVec::is_empty).then(|| self.constant_term())
    }

    /// The variables; one may come more than once.
    pub fn vars(&self) -> impl Iterator<Item = Var> + '_ {
        self.terms.keys().flatten().copied()
    }

    /// Whether a variable is in it.
    pub fn has(&self, var: Var) -> bool {
        self.vars().any(|other| other == var)
    }

    fn add_term(&mut self, monomial: &Monomial, factor: i128) -> Option<()> {
        let sum = self.coefficient(monomial).checked_add(factor)?;
        if sum == 0 {
            self.terms.remove(monomial);
        } else {
            self.terms.insert(monomial.clone(), sum);
        }
        Some(())
    }

    /// The sum of this and `factor` times another.
    pub fn plus(&self, other: &Self, factor: i128) -> Option<Self> {
        let mut sum = self.clone();
        for (monomial, &own) in &other.terms {
            sum.add_term(monomial, own.checked_mul(factor)?)?;
        }
        Some(sum)
    }

    /// The product.
    pub fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for (x, &a) in &self.terms {
            for (y, &b) in &other.terms {
                let mut monomial: Monomial = x.iter().chain(y).copied().collect();
                if monomial.len() > MOST_FACTORS {
                    return None;
                }
                monomial.sort_unstable();
                product.add_term(&monomial, a.checked_mul(b)?)?;
            }
        }
        Some(product)
    }

    /// It times a number.
    pub fn scaled(&self, factor: i128) -> Option<Self> {
        Self::default().plus(self, factor)
    }

    /// It and a number.
    pub fn offset(&self, number: i128) -> Option<Self> {
        self.plus(&Self::constant(1), number)
    }

    /// It with a polynomial in the place of a variable.
    pub fn substitute(&self, var: Var, by: &Self) -> Option<Self> {
        if !self.has(var) {
            return Some(self.clone());
        }
        let mut result = Self::default();
        for (monomial, &factor) in &self.terms {
            let mut term = Self::constant(factor);
            for &own in monomial {
                term = if own == var { term.times(by)? } else { term.times(&Self::var(own))? };
            }
            result = result.plus(&term, 1)?;
        }
        Some(result)
    }

    /// The largest number that divides all coefficients but the constant term; 0 if there are none.
    pub fn content(&self) -> i128 {
        let others = self.terms.iter().filter(|(monomial, _)| !monomial.is_empty());
        others.fold(0, |divisor, (_, &factor)| gcd(divisor, factor))
    }

    /// The same claim `self >= 0` about integers, as strong as it can be said.
    pub fn tightened(mut self) -> Self {
        let divisor = self.content();
        if divisor > 1 {
            for (monomial, factor) in &mut self.terms {
                *factor = if monomial.is_empty() { factor.div_euclid(divisor) } else { *factor / divisor };
            }
            self.terms.retain(|_, factor| *factor != 0);
        }
        self
    }

    /// Its value, where all variables have one.
    pub fn evaluate(&self, value: &impl Fn(Var) -> Option<i128>) -> Option<i128> {
        let mut sum = 0_i128;
        for (monomial, &factor) in &self.terms {
            let mut term = factor;
            for &var in monomial {
                term = term.checked_mul(value(var)?)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }
}

/// The greatest common divisor of the absolute values.
pub fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a.wrapping_rem(b));
    }
    a.saturating_abs()
}
