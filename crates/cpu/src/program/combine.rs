//! The combine functions for which reductions and scans have loops, and the levels of a tree scan.

use tilewright_ir::Dtype;

/// A combine function; each is the row of the same name in the elementwise table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combine {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The minimum; ignores NaN.
    Min,
    /// The maximum; ignores NaN.
    Max,
    /// The minimum; NaN if either operand is.
    MinNan,
    /// The maximum; NaN if either operand is.
    MaxNan,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Combine {
    /// Returns whether a loop scans elements of this type. Narrow floats use the region, because
    /// they round after each step.
    pub fn can_scan(self, dtype: Dtype) -> bool {
        let is_bitwise = matches!(self, Self::And | Self::Or | Self::Xor);
        match dtype {
            Dtype::F32 | Dtype::F64 => !is_bitwise,
            // tidy: wildcard because all other types are alike
            _ => dtype.is_int() && !dtype.is_bool(),
        }
    }
}

/// Returns how many elements along an axis are in the later half of their pair of blocks at a level
/// of a tree scan.
pub(crate) fn later_elements(n: usize, level: usize) -> usize {
    (0..n).filter(|index| index >> level & 1 == 1).count()
}
