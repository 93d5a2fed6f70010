//! Decides whether formulas over integers can all hold.
//! The solver splits cases, and eliminates variables that equal other expressions. It then solves
//! linear programs in which each monomial is a variable (the linear relaxation). If the relaxation
//! has a solution, it adds products of inequalities, since the product of two non-negative
//! polynomials is non-negative. (Source: Sherali and Adams; in general, Handelman's theorem.)
//!
//! [`Answer::Never`] is exact: in each case, an equation has no integer solution, or the
//! inequalities have no rational solution. [`Answer::Found`] is exact, too: every formula was
//! evaluated for the numbers. Other systems are undecided.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::logic::Formula;
use super::simplex::Simplex;
use super::variables::{Monomial, Poly, Var};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The formulas contradict each other.
    Never,
    /// The formulas hold for these numbers.
    Found(FxHashMap<Var, i128>),
    /// The solver found neither a contradiction nor a solution.
    Undecided,
}

const MAX_CASES: usize = 600;
/// The maximum number of assignments that the search tries, over all cases.
const MAX_TRIES: usize = 4000;
/// The maximum number of products of inequalities that are added to a system.
const MAX_PRODUCTS: usize = 160;

/// Decides whether the formulas can all hold. The solver first chooses numbers for variables of
/// lower `order`.
pub fn solve(claims: &[Formula], order: &dyn Fn(Var) -> u32) -> Answer {
    let mut system = System::default();
    for claim in claims {
        system.assume(claim);
    }
    let mut search = CaseSearch { claims, order, cases: MAX_CASES, tries: MAX_TRIES, is_open: false };
    match search.cases(system) {
        Some(found) => Answer::Found(found),
        None if search.is_open => Answer::Undecided,
        None => Answer::Never,
    }
}

#[derive(Clone, Default, Debug)]
struct System {
    /// Polynomials that are not negative.
    claims: BTreeSet<Poly>,
    /// Disjunctions: at least one formula of each holds.
    choices: Vec<Vec<Formula>>,
    /// Eliminated variables and their polynomials, in order.
    equal: Vec<(Var, Poly)>,
    is_contradiction: bool,
}

impl System {
    fn assume(&mut self, claim: &Formula) {
        match claim {
            Formula::NotNegative(poly) => match self.eliminated(poly) {
                None => {}
                Some(poly) => match poly.as_constant() {
                    Some(number) => self.is_contradiction |= number < 0,
                    None => drop(self.claims.insert(poly.tightened())),
                },
            },
            Formula::Zero(poly) => {
                if let Some(poly) = self.eliminated(poly) {
                    self.assume_zero(&poly);
                }
            }
            Formula::All(parts) => parts.iter().for_each(|part| self.assume(part)),
            Formula::Any(parts) => {
                let mut left: Vec<Formula> = Vec::new();
                for part in parts {
                    let part =
                        self.equal.iter().fold(part.clone(), |part, (var, by)| part.substitute(*var, by));
                    match part.truth() {
                        Some(true) => return,
                        Some(false) => {}
                        None if part == Formula::Unknown => return,
                        None => left.push(part),
                    }
                }
                match &left[..] {
                    [] => self.is_contradiction = true,
                    [only] => self.assume(&only.clone()),
                    _ => self.choices.push(left),
                }
            }
            Formula::Unknown => {}
        }
    }

    /// Substitutes the eliminated variables in a polynomial, unless a coefficient overflows.
    fn eliminated(&self, poly: &Poly) -> Option<Poly> {
        self.equal.iter().try_fold(poly.clone(), |poly, (var, by)| poly.substitute(*var, by))
    }

    fn assume_zero(&mut self, poly: &Poly) {
        if let Some(number) = poly.as_constant() {
            self.is_contradiction |= number != 0;
            return;
        }
        if poly.constant_term() % poly.content().max(1) != 0 {
            self.is_contradiction = true;
            return;
        }
        let linear_term = poly.terms().find_map(|(monomial, factor)| match monomial[..] {
            [var] if factor.abs() == 1 && poly.vars().filter(|other| *other == var).count() == 1 => {
                Some((var, factor))
            }
            _ => None,
        });
        let solved = linear_term.and_then(|(var, factor)| {
            let rest = poly.plus_times(&Poly::var(var), -factor)?;
            Some((var, rest.scaled(-factor)?))
        });
        let Some((var, by)) = solved else {
            let negated = poly.scaled(-1);
            self.claims.insert(poly.clone());
            self.claims.extend(negated);
            return;
        };
        self.equal.push((var, by.clone()));
        let claims = std::mem::take(&mut self.claims);
        let (touched, rest): (Vec<_>, _) = claims.into_iter().partition(|claim| claim.has(var));
        self.claims = rest.into_iter().collect();
        for claim in touched {
            self.assume(&Formula::NotNegative(claim));
        }
        for choice in std::mem::take(&mut self.choices) {
            self.assume(&Formula::Any(choice));
        }
    }

    /// Returns the variables of the inequalities, without eliminated ones.
    fn vars(&self) -> BTreeSet<Var> {
        self.claims.iter().flat_map(Poly::vars).collect()
    }

    /// Returns whether the inequalities contradict each other. Ignores the disjunctions.
    fn is_refuted(&self) -> bool {
        if self.is_contradiction {
            return true;
        }
        if feasible(&self.claims).is_never() {
            return true;
        }
        if self.claims.iter().all(|claim| claim.terms().all(|(monomial, _)| monomial.len() < 2)) {
            return false;
        }
        let mut claims = self.claims.clone();
        claims.extend(self.bounds());
        let products = products(&claims);
        claims.extend(products);
        feasible(&claims).is_never()
    }

    /// Returns a lower bound of each factor of a product that the inequalities imply: `var >= 1`,
    /// or else `var >= 0`.
    fn bounds(&self) -> Vec<Poly> {
        let factors: BTreeSet<Var> = self
            .claims
            .iter()
            .flat_map(Poly::terms)
            .filter(|(monomial, _)| monomial.len() > 1)
            .flat_map(|(monomial, _)| monomial.iter().copied())
            .collect();
        let mut bounds = Vec::new();
        for var in factors {
            for least in [1, 0] {
                // The negation of `var >= least`.
                let Some(opposite) = Poly::constant(least - 1).plus_times(&Poly::var(var), -1) else {
                    continue;
                };
                let mut claims = self.claims.clone();
                claims.insert(opposite);
                if feasible(&claims).is_never() {
                    bounds.extend(Poly::var(var).offset(-least));
                    break;
                }
            }
        }
        bounds
    }
}

/// Returns products of two inequalities with a nonlinear monomial that already occurs. Those with
/// the fewest new monomials are first.
fn products(claims: &BTreeSet<Poly>) -> Vec<Poly> {
    let known: BTreeSet<&Monomial> =
        claims.iter().flat_map(Poly::terms).map(|(monomial, _)| monomial).filter(|m| m.len() > 1).collect();
    let mut found: Vec<(usize, Poly)> = Vec::new();
    let all: Vec<&Poly> = claims.iter().collect();
    for (place, x) in all.iter().enumerate() {
        for y in &all[place..] {
            let Some(product) = x.times(y) else { continue };
            let (mut new, mut old) = (0, 0);
            for (monomial, _) in product.terms().filter(|(monomial, _)| monomial.len() > 1) {
                if known.contains(monomial) {
                    old += 1;
                } else {
                    new += 1;
                }
            }
            if old > 0 {
                found.push((new, product));
            }
        }
    }
    found.sort_by_key(|(new, _)| *new);
    found.truncate(MAX_PRODUCTS);
    found.into_iter().map(|(_, product)| product).collect()
}

/// The result over the rational numbers.
enum RelaxationAnswer {
    /// The inequalities contradict each other.
    Never,
    /// The value of each monomial in a solution, rounded down.
    Near(BTreeMap<Monomial, i128>),
    /// A number overflows, or there are too many pivots.
    Unknown,
}

impl RelaxationAnswer {
    fn is_never(&self) -> bool {
        matches!(self, RelaxationAnswer::Never)
    }
}

fn feasible(claims: &BTreeSet<Poly>) -> RelaxationAnswer {
    relaxed(claims).unwrap_or(RelaxationAnswer::Unknown)
}

fn relaxed(claims: &BTreeSet<Poly>) -> Option<RelaxationAnswer> {
    let mut columns: BTreeMap<&Monomial, usize> = BTreeMap::new();
    for (monomial, _) in claims.iter().flat_map(Poly::terms).filter(|(monomial, _)| !monomial.is_empty()) {
        let number = columns.len();
        columns.entry(monomial).or_insert(number);
    }
    let mut simplex = Simplex::new(columns.len());
    for claim in claims {
        let terms = claim.terms().filter(|(monomial, _)| !monomial.is_empty());
        let factors: Vec<(usize, i128)> =
            terms.map(|(monomial, factor)| (columns[monomial], factor)).collect();
        if factors.is_empty() {
            if claim.constant_term() < 0 {
                return Some(RelaxationAnswer::Never);
            }
            continue;
        }
        simplex.add(&factors, claim.constant_term().checked_neg()?)?;
    }
    if !simplex.is_feasible()? {
        return Some(RelaxationAnswer::Never);
    }
    let near = |(monomial, place): (&Monomial, usize)| (monomial.clone(), simplex.value(place).floor());
    Some(RelaxationAnswer::Near(columns.into_iter().map(near).collect()))
}

struct CaseSearch<'a> {
    claims: &'a [Formula],
    order: &'a dyn Fn(Var) -> u32,
    cases: usize,
    tries: usize,
    /// True if a case was neither refuted nor solved.
    is_open: bool,
}

impl CaseSearch<'_> {
    /// Splits the disjunctions into cases, and returns the first solution of a case.
    fn cases(&mut self, mut system: System) -> Option<FxHashMap<Var, i128>> {
        if self.cases == 0 {
            self.is_open = true;
            return None;
        }
        self.cases -= 1;
        if system.is_refuted() {
            return None;
        }
        let Some(choice) = (!system.choices.is_empty()).then(|| system.choices.remove(0)) else {
            let found = self.numbers(&system);
            self.is_open |= found.is_none();
            return found;
        };
        for alternative in choice {
            let mut case = system.clone();
            case.assume(&alternative);
            if let Some(found) = self.cases(case) {
                return Some(found);
            }
        }
        None
    }

    /// Searches for integers, one variable after another.
    fn numbers(&mut self, system: &System) -> Option<FxHashMap<Var, i128>> {
        if system.is_contradiction || self.tries == 0 {
            return None;
        }
        let Some(var) = system.vars().into_iter().min_by_key(|&var| ((self.order)(var), var)) else {
            return self.complete(system);
        };
        let RelaxationAnswer::Near(solution) = feasible(&system.claims) else { return None };
        let near = solution.get(&Monomial::from_slice(&[var])).copied().unwrap_or(0);
        let mut tried = Vec::new();
        // Tries small numbers, which are readable in a report, and those near the linear solution.
        for number in
            [1, 2, 3, 0, near, near.saturating_add(1), near.saturating_sub(1), 7, 16, 17, 33, 64, 100, -1]
        {
            if tried.contains(&number) {
                continue;
            }
            tried.push(number);
            self.tries = self.tries.checked_sub(1)?;
            let mut next = system.clone();
            next.assume(&Formula::equal(&Poly::var(var), &Poly::constant(number)));
            if !next.is_contradiction
                && !feasible(&next.claims).is_never()
                && let Some(found) = self.numbers(&next)
            {
                return Some(found);
            }
        }
        None
    }

    /// Returns the numbers of all variables, if every formula holds.
    fn complete(&self, system: &System) -> Option<FxHashMap<Var, i128>> {
        let mut values: FxHashMap<Var, i128> = FxHashMap::default();
        for (var, by) in system.equal.iter().rev() {
            let number = by.evaluate(&|var| Some(values.get(&var).copied().unwrap_or(0)))?;
            for free in by.vars() {
                values.entry(free).or_insert(0);
            }
            values.insert(*var, number);
        }
        let value = |var: Var| Some(values.get(&var).copied().unwrap_or(0));
        self.claims.iter().all(|claim| claim.evaluate(&value) == Some(true)).then_some(values)
    }
}
