//! Loops over k whose iterations together compute one dot of larger matrices.

use super::Use;

/// The body of a loop over k whose iterations together compute one dot: see
/// [`products`](crate::compile::products).
///
/// Each iteration adds the dot of two tiles in memory to an accumulator, and moves the addresses of
/// the tiles by constant distances. The fields refer to steps by their indices in the body. They
/// refer to carried values by their indices among the carried values.
#[derive(Clone, Debug)]
pub(crate) struct ProductLoop {
    /// The step of the dot.
    pub dot: usize,
    /// The carried value that is the accumulator of the dot.
    pub accumulator: usize,
    /// Operands A and B.
    pub tiles: [MovedTile; 2],
    /// The steps that compute the masks of the loads. They are all steps of the body except the
    /// dot, the loads, and the additions that move the pointers.
    pub masks: Vec<MaskStep>,
}

/// An operand that each iteration loads for the dot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedTile {
    /// The step of the load.
    pub load: usize,
    /// The carried value with the pointers.
    pub pointers: usize,
    /// The number of elements by which each iteration moves the pointers. It is the same in all
    /// iterations.
    pub offset: Use,
}

/// A step that computes a part of a mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskStep {
    pub step: usize,
    /// True if the result is a linear function of the counter. Otherwise, the result is a condition
    /// that is true in consecutive iterations.
    pub is_linear: bool,
}
