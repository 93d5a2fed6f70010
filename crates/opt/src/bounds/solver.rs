//! Whether claims about integers can all hold: by cases, elimination of equal variables, and linear programming over the
//! monomials, with products of claims where monomials are products.
//!
//! "Never" is exact: each case was refuted over the rational numbers, in which a product of two variables is a number of its own
//! (the linear relaxation), after claims that are products of two claims were added: what is not negative times what is not
//! negative is not negative (Sherali and Adams; in general Handelman's theorem). A solution is exact as well: it is integers for
//! which every claim has been evaluated. Between the two there is what has not been decided.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::logic::Formula;
use super::simplex::Simplex;
use super::variables::{Monomial, Poly, Var};

/// What is known of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The claims contradict each other.
    Never,
    /// They hold for these numbers.
    Found(FxHashMap<Var, i128>),
    /// Neither was found.
    Undecided,
}

/// So many cases are looked at, and so many numbers tried.
const MOST_CASES: usize = 600;
const MOST_TRIES: usize = 4000;
/// So many products of claims are added.
const MOST_PRODUCTS: usize = 160;

/// Answers whether the claims can all hold. `order` says which variables get numbers first; `smallest` is tried first of each.
pub fn solve(claims: &[Formula], order: &dyn Fn(Var) -> u32) -> Answer {
    let mut system = System::default();
    for claim in claims {
        system.assume(claim);
    }
    let mut search = Search { claims, order, cases: MOST_CASES, tries: MOST_TRIES, is_open: false };
    match search.cases(system) {
        Some(found) => Answer::Found(found),
        None if search.is_open => Answer::Undecided,
        None => Answer::Never,
    }
}

/// What is assumed at a time.
#[derive(Clone, Default, Debug)]
struct System {
    /// Polynomials that are not negative.
    claims: BTreeSet<Poly>,
    /// Alternatives, of which one each holds.
    choices: Vec<Vec<Formula>>,
    /// Variables that equal polynomials of others, in the order in which they were eliminated.
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

    /// A polynomial without the variables that are eliminated; nothing if it does not fit.
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
        let alone = poly.terms().find_map(|(monomial, factor)| match monomial[..] {
            [var] if factor.abs() == 1 && poly.vars().filter(|other| *other == var).count() == 1 => {
                Some((var, factor))
            }
            _ => None,
        });
        let solved = alone.and_then(|(var, factor)| {
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

    /// The variables that are left.
    fn vars(&self) -> BTreeSet<Var> {
        self.claims.iter().flat_map(Poly::vars).collect()
    }

    /// Whether the claims contradict each other, the choices left aside.
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

    /// Of each variable that is a factor of a product, that it is not negative, or positive, where that follows.
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
                // The opposite: var <= least - 1
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

/// The products of two claims that have the monomials of others.
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
    found.truncate(MOST_PRODUCTS);
    found.into_iter().map(|(_, product)| product).collect()
}

/// What is known of the claims over the rational numbers, each monomial a number of its own.
enum Relaxed {
    /// They contradict each other.
    Never,
    /// The integers below a solution.
    Near(BTreeMap<Monomial, i128>),
    /// The numbers are too large, or there are too many.
    Unknown,
}

impl Relaxed {
    fn is_never(&self) -> bool {
        matches!(self, Relaxed::Never)
    }
}

fn feasible(claims: &BTreeSet<Poly>) -> Relaxed {
    relaxed(claims).unwrap_or(Relaxed::Unknown)
}

fn relaxed(claims: &BTreeSet<Poly>) -> Option<Relaxed> {
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
                return Some(Relaxed::Never);
            }
            continue;
        }
        simplex.add(&factors, claim.constant_term().checked_neg()?)?;
    }
    if !simplex.is_feasible()? {
        return Some(Relaxed::Never);
    }
    let near = |(monomial, place): (&Monomial, usize)| (monomial.clone(), simplex.value(place).floor());
    Some(Relaxed::Near(columns.into_iter().map(near).collect()))
}

struct Search<'a> {
    claims: &'a [Formula],
    order: &'a dyn Fn(Var) -> u32,
    cases: usize,
    tries: usize,
    /// Whether there is a case that was neither refuted nor solved.
    is_open: bool,
}

impl Search<'_> {
    /// Goes through the cases; gives the first solution.
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

    /// Looks for integers, one variable after the other.
    fn numbers(&mut self, system: &System) -> Option<FxHashMap<Var, i128>> {
        if system.is_contradiction || self.tries == 0 {
            return None;
        }
        let Some(var) = system.vars().into_iter().min_by_key(|&var| ((self.order)(var), var)) else {
            return self.complete(system);
        };
        let Relaxed::Near(solution) = feasible(&system.claims) else { return None };
        let near = solution.get(&Monomial::from_slice(&[var])).copied().unwrap_or(0);
        let mut tried = Vec::new();
        // Numbers that a reader takes in at a glance, then those that the linear solution is near to.
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

    /// The numbers of all variables, if every claim holds for them.
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
