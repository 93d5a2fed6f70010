//! The variables of box coordinates: integers that are known at launch or at run time, and the
//! index along an axis of a tile.

use tilewright_ir::analysis::polynomial::{self, Monomial, Variable};
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

impl Variable for Atom {
    type Coefficient = i64;
    const MAX_DEGREE: usize = usize::MAX;
}

/// A product, its factors in order.
pub type Product = Monomial<Atom>;

/// A sum of products, each with a factor that is not 0.
pub type Polynomial = polynomial::Polynomial<Atom>;
