//! How elements are combined: the functions that reductions and scans have loops for, and the levels of a scan by a tree.

use tilewright_ir::Dtype;

/// How two elements are combined; the rows of the elementwise table of the same names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combine {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// The smaller one; NaN is ignored.
    Min,
    /// The larger one; NaN is ignored.
    Max,
    /// The smaller one; NaN if either is.
    MinNan,
    /// The larger one; NaN if either is.
    MaxNan,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Combine {
    /// Whether there is a loop that scans elements of this type. Narrow floats round after each step, as the region says.
    pub fn can_scan(self, dtype: Dtype) -> bool {
        let is_bitwise = matches!(self, Self::And | Self::Or | Self::Xor);
        match dtype {
            Dtype::F32 | Dtype::F64 => !is_bitwise,
            // tidy: wildcard because all other types are alike
            _ => dtype.is_int() && !dtype.is_bool(),
        }
    }
}

/// How many elements along an axis belong to the later block of their pair, in a level: one such element takes part in it.
pub(crate) fn later_elements(n: usize, level: usize) -> usize {
    (0..n).filter(|place| place >> level & 1 == 1).count()
}
