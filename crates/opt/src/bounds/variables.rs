//! Defines the variables of polynomials.

use tilewright_ir::analysis::polynomial::{Monomial as Product, Polynomial, Variable};

/// A variable: an unknown integer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Var(pub u32);

impl Variable for Var {
    type Coefficient = i128;
    const MAX_DEGREE: usize = 4;
}

/// A product of variables, which are sorted.
pub type Monomial = Product<Var>;

/// A sum of monomials with integer coefficients.
pub type Poly = Polynomial<Var>;
