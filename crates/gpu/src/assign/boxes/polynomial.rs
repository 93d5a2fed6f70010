//! Integers as sums of products of what is known at launch or at run time, and of the index along an axis of a tile.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};
use tilewright_ir::{Inst, Value};

/// What is not taken apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// The index along an axis of the tile.
    Axis(usize),
    /// The number that a tile of one axis has for the index along an axis of the tile.
    Row(usize, Value),
    /// How often the body of a loop has run before.
    Iteration(Inst),
    /// A scalar.
    Value(Value),
}

impl Atom {
    /// The same where the axes of its tile are others.
    pub fn with_axis(self, mut axis: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        Some(match self {
            Self::Axis(own) => Self::Axis(axis(own)?),
            Self::Row(own, tile) => Self::Row(axis(own)?, tile),
            Self::Iteration(_) | Self::Value(_) => self,
        })
    }
}

/// A product, its factors in order.
pub type Product = SmallVec<[Atom; 3]>;

/// A sum of products, each with a factor that is not 0. Arithmetic gives nothing where a factor overflows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Polynomial(BTreeMap<Product, i64>);

impl Polynomial {
    /// A number.
    pub fn constant(number: i64) -> Self {
        Self::term(smallvec![], number)
    }

    /// What is not taken apart.
    pub fn atom(atom: Atom) -> Self {
        Self::term(smallvec![atom], 1)
    }

    /// A product and a factor.
    pub fn term(product: Product, factor: i64) -> Self {
        let mut sum = Self::default();
        if factor != 0 {
            sum.0.insert(product, factor);
        }
        sum
    }

    /// The products and their factors.
    pub fn terms(&self) -> impl Iterator<Item = (&Product, i64)> {
        self.0.iter().map(|(product, factor)| (product, *factor))
    }

    /// The number that it is.
    pub fn as_constant(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Product::new()).copied(),
            _ => None,
        }
    }

    /// The atom that it is.
    pub fn single(&self) -> Option<Atom> {
        match self.terms().next() {
            Some((product, 1)) if self.0.len() == 1 && product.len() == 1 => Some(product[0]),
            _ => None,
        }
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let mut sum = self.clone();
        for (product, factor) in &other.0 {
            let entry = sum.0.entry(product.clone()).or_insert(0);
            *entry = entry.checked_add(*factor)?;
        }
        sum.0.retain(|_, factor| *factor != 0);
        Some(sum)
    }

    /// This without the other.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.times(&Self::constant(-1))?)
    }

    /// The product of both.
    pub fn times(&self, other: &Self) -> Option<Self> {
        let mut sum = Self::default();
        for (left, factor) in &self.0 {
            for (right, other) in &other.0 {
                let mut product: Product = left.iter().chain(right).copied().collect();
                product.sort_unstable();
                sum = sum.plus(&Self::term(product, factor.checked_mul(*other)?))?;
            }
        }
        Some(sum)
    }

    /// The terms for which this holds, and the others.
    pub fn split(&self, mut holds: impl FnMut(&Product) -> bool) -> (Self, Self) {
        let (one, other) = self
            .0
            .iter()
            .map(|(product, factor)| (product.clone(), *factor))
            .partition(|(product, _): &(Product, i64)| holds(product));
        (Self(one), Self(other))
    }

    /// The same with other numbers for the axes.
    pub fn with_axes(&self, mut axis: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        let mut sum = Self::default();
        for (product, factor) in &self.0 {
            let mut moved = Product::new();
            for atom in product {
                moved.push(atom.with_axis(&mut axis)?);
            }
            moved.sort_unstable();
            sum = sum.plus(&Self::term(moved, *factor))?;
        }
        Some(sum)
    }

    /// Whether an atom is in it for which this holds.
    pub fn any(&self, holds: impl FnMut(&Atom) -> bool) -> bool {
        self.0.keys().flatten().any(holds)
    }

    /// What is multiplied with an atom, which no product has twice; and the rest.
    pub fn factor_of(&self, atom: Atom) -> Option<(Self, Self)> {
        let (with, without) = self.split(|product| product.contains(&atom));
        let mut factor = Self::default();
        for (product, number) in with.terms() {
            let mut rest = product.clone();
            rest.remove(rest.iter().position(|other| *other == atom)?);
            if rest.contains(&atom) {
                return None;
            }
            factor = factor.plus(&Self::term(rest, number))?;
        }
        Some((factor, without))
    }
}
