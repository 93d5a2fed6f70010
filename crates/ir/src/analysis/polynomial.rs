//! Implements polynomials with integer coefficients in several variables.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use smallvec::SmallVec;

/// A type of variables, with the type of the coefficients of their polynomials.
pub trait Variable: Copy + Ord + Hash + Debug {
    /// The type of coefficients. Arithmetic returns `None` if a coefficient overflows.
    type Coefficient: Coefficient;
    /// The maximum degree of a monomial; multiplication returns `None` if a degree exceeds it.
    const MAX_DEGREE: usize;
}

/// The integer coefficient of a monomial.
pub trait Coefficient: Copy + Ord + Hash + Debug + From<i8> {
    /// Returns the sum, if it fits.
    fn checked_add(self, other: Self) -> Option<Self>;
    /// Returns the product, if it fits.
    fn checked_mul(self, other: Self) -> Option<Self>;
}

macro_rules! coefficients {
    ($($ty:ty)*) => { $(impl Coefficient for $ty {
        fn checked_add(self, other: Self) -> Option<Self> {
            <$ty>::checked_add(self, other)
        }
        fn checked_mul(self, other: Self) -> Option<Self> {
            <$ty>::checked_mul(self, other)
        }
    })* };
}

coefficients!(i64 i128);

/// A product of variables, in ascending order; the empty product is 1.
pub type Monomial<V> = SmallVec<[V; 2]>;

/// A sum of monomials, each with a coefficient other than zero.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Polynomial<V: Variable> {
    terms: BTreeMap<Monomial<V>, V::Coefficient>,
}

impl<V: Variable> Default for Polynomial<V> {
    /// Returns zero.
    fn default() -> Self {
        Self { terms: BTreeMap::new() }
    }
}

impl<V: Variable> Polynomial<V> {
    /// Returns a constant polynomial.
    pub fn constant(number: V::Coefficient) -> Self {
        Self::term(Monomial::new(), number)
    }

    /// Returns a single variable as a polynomial.
    pub fn var(variable: V) -> Self {
        Self::term(Monomial::from_slice(&[variable]), 1_i8.into())
    }

    /// Returns `factor` times a monomial, whose variables are in ascending order.
    pub fn term(monomial: Monomial<V>, factor: V::Coefficient) -> Self {
        debug_assert!(monomial.is_sorted());
        let mut sum = Self::default();
        if factor != 0_i8.into() {
            sum.terms.insert(monomial, factor);
        }
        sum
    }

    /// Returns the monomials and their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial<V>, V::Coefficient)> {
        self.terms.iter().map(|(monomial, &factor)| (monomial, factor))
    }

    /// Returns the coefficient of a monomial; 0 if the polynomial does not contain it.
    pub fn coefficient(&self, monomial: &[V]) -> V::Coefficient {
        self.terms.get(monomial).copied().unwrap_or(0_i8.into())
    }

    /// Returns the constant term.
    pub fn constant_term(&self) -> V::Coefficient {
        self.coefficient(&[])
    }

    /// Returns the value if the polynomial is constant.
    pub fn as_constant(&self) -> Option<V::Coefficient> {
        self.terms.keys().all(SmallVec::is_empty).then(|| self.constant_term())
    }

    /// Returns the variable if the polynomial is a single variable.
    pub fn as_variable(&self) -> Option<V> {
        match self.terms().next() {
            Some((monomial, factor)) if self.terms.len() == 1 && factor == 1_i8.into() => {
                match monomial[..] {
                    [variable] => Some(variable),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns whether the polynomial is zero.
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the variables; a variable may occur more than once.
    pub fn vars(&self) -> impl Iterator<Item = V> + '_ {
        self.terms.keys().flatten().copied()
    }

    /// Returns whether a variable of the polynomial satisfies a condition.
    pub fn any(&self, holds: impl FnMut(&V) -> bool) -> bool {
        self.terms.keys().flatten().any(holds)
    }

    /// Returns whether the polynomial contains a variable.
    pub fn has(&self, variable: V) -> bool {
        self.vars().any(|other| other == variable)
    }

    fn add_term(&mut self, monomial: &Monomial<V>, factor: V::Coefficient) -> Option<()> {
        let sum = self.coefficient(monomial).checked_add(factor)?;
        if sum == 0_i8.into() {
            self.terms.remove(monomial);
        } else {
            self.terms.insert(monomial.clone(), sum);
        }
        Some(())
    }

    /// Returns the sum.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        self.plus_times(other, 1_i8.into())
    }

    /// Returns the difference.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus_times(other, (-1_i8).into())
    }

    /// Returns the sum of this polynomial and `factor` times another polynomial.
    pub fn plus_times(&self, other: &Self, factor: V::Coefficient) -> Option<Self> {
        let mut sum = self.clone();
        for (monomial, &own) in &other.terms {
            sum.add_term(monomial, own.checked_mul(factor)?)?;
        }
        Some(sum)
    }

    /// Returns the product.
    pub fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for (x, &a) in &self.terms {
            for (y, &b) in &other.terms {
                if x.len() + y.len() > V::MAX_DEGREE {
                    return None;
                }
                let mut monomial: Monomial<V> = x.iter().chain(y).copied().collect();
                monomial.sort_unstable();
                product.add_term(&monomial, a.checked_mul(b)?)?;
            }
        }
        Some(product)
    }

    /// Returns the product with a number.
    pub fn scaled(&self, factor: V::Coefficient) -> Option<Self> {
        Self::default().plus_times(self, factor)
    }

    /// Returns the sum with a number.
    pub fn offset(&self, number: V::Coefficient) -> Option<Self> {
        self.plus(&Self::constant(number))
    }

    /// Renames each variable; returns `None` if `rename` returns `None` for one of them.
    pub fn renamed(&self, mut rename: impl FnMut(V) -> Option<V>) -> Option<Self> {
        let mut sum = Self::default();
        for (monomial, &factor) in &self.terms {
            let mut renamed: Monomial<V> = monomial.iter().map(|own| rename(*own)).collect::<Option<_>>()?;
            renamed.sort_unstable();
            sum.add_term(&renamed, factor)?;
        }
        Some(sum)
    }

    /// Replaces a variable by a polynomial.
    pub fn substitute(&self, variable: V, by: &Self) -> Option<Self> {
        if !self.has(variable) {
            return Some(self.clone());
        }
        let mut result = Self::default();
        for (monomial, &factor) in &self.terms {
            let mut term = Self::constant(factor);
            for &own in monomial {
                term = if own == variable { term.times(by)? } else { term.times(&Self::var(own))? };
            }
            result = result.plus(&term)?;
        }
        Some(result)
    }

    /// Returns the terms whose monomials satisfy a condition, and the other terms.
    pub fn split(&self, mut holds: impl FnMut(&Monomial<V>) -> bool) -> (Self, Self) {
        let all = self.terms.iter().map(|(monomial, factor)| (monomial.clone(), *factor));
        let (one, other) = all.partition(|(monomial, _): &(Monomial<V>, V::Coefficient)| holds(monomial));
        (Self { terms: one }, Self { terms: other })
    }

    /// Returns the polynomial that is the factor of a variable, and the terms without the variable.
    /// Returns `None` if a monomial contains the variable twice.
    pub fn factor_of(&self, variable: V) -> Option<(Self, Self)> {
        let (with, without) = self.split(|monomial| monomial.contains(&variable));
        let mut factor = Self::default();
        for (monomial, number) in with.terms() {
            let mut rest = monomial.clone();
            rest.remove(rest.iter().position(|other| *other == variable)?);
            if rest.contains(&variable) {
                return None;
            }
            factor.add_term(&rest, number)?;
        }
        Some((factor, without))
    }

    /// Returns the value of the polynomial, if all variables have a value and nothing overflows.
    pub fn evaluate(&self, value: &impl Fn(V) -> Option<V::Coefficient>) -> Option<V::Coefficient> {
        let mut sum = V::Coefficient::from(0_i8);
        for (monomial, &factor) in &self.terms {
            let mut term = factor;
            for &variable in monomial {
                term = term.checked_mul(value(variable)?)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }
}

impl<V: Variable<Coefficient = i128>> Polynomial<V> {
    /// Returns the greatest common divisor of all coefficients except the constant term; 0 if the
    /// polynomial is constant.
    pub fn content(&self) -> i128 {
        let others = self.terms.iter().filter(|(monomial, _)| !monomial.is_empty());
        others.fold(0, |divisor, (_, &factor)| gcd(divisor, factor))
    }

    /// Returns the polynomial `p` for which `p >= 0` is the strongest equivalent of `self >= 0` for
    /// integers. Divides by the content, and rounds the constant term down.
    #[must_use]
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
}

/// Returns the greatest common divisor of the absolute values.
pub fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a.wrapping_rem(b));
    }
    a.saturating_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Variable for char {
        type Coefficient = i64;
        const MAX_DEGREE: usize = 4;
    }

    type Poly = Polynomial<char>;

    /// Returns a polynomial in `x`, `y` and `z` that `number` determines.
    fn some(number: u64) -> Poly {
        let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut sum = Poly::default();
        for monomial in ["", "x", "y", "xy", "xx", "z"] {
            bits = bits.rotate_left(11).wrapping_mul(0xd129_0d3b_5a1b_4b21);
            let term = Poly::term(monomial.chars().collect(), (bits % 7) as i64 - 3);
            sum = sum.plus(&term).expect("it is small");
        }
        sum
    }

    const VALUES: [i64; 3] = [5, -7, 11];

    fn value(poly: &Poly) -> i64 {
        let of = |name: char| Some(VALUES["xyz".find(name)?]);
        poly.evaluate(&of).expect("all variables are known")
    }

    #[test]
    fn arithmetic_is_that_of_values() {
        let mut products = 0;
        for number in 0..400 {
            let (a, b) = (some(number), some(number + 1000));
            assert_eq!(value(&a.plus(&b).expect("small")), value(&a) + value(&b));
            assert_eq!(value(&a.minus(&b).expect("small")), value(&a) - value(&b));
            assert_eq!(value(&a.plus_times(&b, -4).expect("small")), value(&a) - 4 * value(&b));
            assert_eq!(value(&a.scaled(9).expect("small")), value(&a) * 9);
            assert_eq!(value(&a.offset(9).expect("small")), value(&a) + 9);
            assert!(a.minus(&a).expect("small").is_zero());
            let Some(product) = a.times(&b) else { continue };
            products += 1;
            assert_eq!(value(&product), value(&a) * value(&b));
            if let Some((factor, rest)) = product.factor_of('y') {
                assert_eq!(value(&factor) * VALUES[1] + value(&rest), value(&product));
                assert!(!factor.has('y') && !rest.has('y'));
            }
            if let Some(replaced) = a.substitute('z', &b) {
                let of =
                    |name: char| if name == 'z' { Some(value(&b)) } else { Some(VALUES["xyz".find(name)?]) };
                assert_eq!(Some(value(&replaced)), a.evaluate(&of));
            }
            let (linear, others) = a.split(|monomial| monomial.len() < 2);
            assert_eq!(linear.plus(&others).as_ref(), Some(&a));
        }
        assert!(products > 50, "{products}");
    }

    #[test]
    fn products_that_are_too_long_or_too_large_are_none() {
        let x = Poly::var('x');
        let square = x.times(&x).expect("two");
        let fourth = square.times(&square).expect("four");
        assert_eq!(fourth.times(&x), None);
        assert_eq!(fourth.times(&Poly::constant(3)).map(|poly| poly.coefficient(&['x'; 4])), Some(3));
        let large = Poly::constant(i64::MAX);
        assert_eq!(large.offset(1), None);
        assert_eq!(large.scaled(2), None);
    }

    #[test]
    fn what_a_polynomial_is() {
        assert_eq!(Poly::default().as_constant(), Some(0));
        assert_eq!(Poly::constant(-4).as_constant(), Some(-4));
        assert_eq!(Poly::var('x').as_constant(), None);
        assert_eq!(Poly::var('x').as_variable(), Some('x'));
        assert_eq!(Poly::term(Monomial::from_slice(&['x']), 2).as_variable(), None);
        assert_eq!(Poly::constant(1).as_variable(), None);
        let renamed = Poly::var('x')
            .times(&Poly::var('y'))
            .and_then(|xy| xy.renamed(|name| (name != 'z').then_some('z')));
        assert_eq!(renamed, Some(Poly::term(Monomial::from_slice(&['z', 'z']), 1)));
        assert_eq!(Poly::var('z').renamed(|name| (name != 'z').then_some('x')), None);
    }
}
