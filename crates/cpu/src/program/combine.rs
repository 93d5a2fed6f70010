//! Defines the combine functions for which reductions and scans have loops.

use tilewright_ir::Dtype;

/// A combine function that is one row of the elementwise table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combine {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The minimum. If one operand is NaN, the result is the other operand.
    Min,
    /// The maximum. If one operand is NaN, the result is the other operand.
    Max,
    /// The minimum. If either operand is NaN, the result is NaN.
    MinNan,
    /// The maximum. If either operand is NaN, the result is NaN.
    MaxNan,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Combine {
    /// Returns whether the loop in `run/kernels/scan.rs` scans this type. Narrow floats need a
    /// rounding after each step, so they run the combine region.
    pub fn can_scan(self, dtype: Dtype) -> bool {
        let is_bitwise = matches!(self, Self::And | Self::Or | Self::Xor);
        match dtype {
            Dtype::F32 | Dtype::F64 => !is_bitwise,
            // tidy: wildcard because the loop scans all integers but booleans, and no narrow floats
            _ => dtype.is_int() && !dtype.is_bool(),
        }
    }
}

/// Returns the number of elements that a level of a tree scan updates: the second block of each
/// pair of blocks of `1 << level` elements.
pub(crate) fn later_elements(n: usize, level: usize) -> usize {
    (0..n).filter(|index| index >> level & 1 == 1).count()
}
