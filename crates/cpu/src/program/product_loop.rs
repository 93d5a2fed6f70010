//! Defines loops over k whose iterations together compute one dot.

use super::Use;

/// The body of a loop over k whose iterations compute one dot: see
/// [`products`](crate::compile::products).
///
/// Each iteration adds the dot of two tiles to the accumulator, and moves their addresses by
/// constants. The fields are indices of steps of the body and of carried values.
#[derive(Clone, Debug)]
pub(crate) struct ProductLoop {
    /// The step of the dot.
    pub dot: usize,
    /// The carried value that is the accumulator of the dot.
    pub accumulator: usize,
    /// Operands A and B.
    pub tiles: [MovedTile; 2],
    /// The steps that compute the masks of the loads: all steps without another role.
    pub masks: Vec<MaskStep>,
}

/// An operand that each iteration loads for the dot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedTile {
    /// The step of the load.
    pub load: usize,
    /// The carried value with the pointers.
    pub pointers: usize,
    /// The number of elements by which each iteration moves the pointers.
    pub offset: Use,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskStep {
    pub step: usize,
    /// True if the result is a linear function of the counter. Otherwise, it is a condition that is
    /// true in consecutive iterations.
    pub is_linear: bool,
}
