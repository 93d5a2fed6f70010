//! Lists the reasons why the executor runs a step, and not a nest.

use std::fmt;

use tilewright_ir::{Dtype, ElementwiseFn};

use crate::program::Combine;
use crate::tuning::MAX_NEST_STEPS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The step has regions that branch or repeat.
    ControlFlow,
    /// The step is a dot.
    Dot,
    /// Nests have no code for the op.
    Op,
    /// Vectors have no code for a function of this type.
    Function(ElementwiseFn, Dtype),
    /// Vectors have no code for a conversion.
    Cast(Dtype, Dtype),
    /// Vectors have no code for a combine function of this type.
    Combine(Combine, Dtype),
    /// The combine region is not a function of [`Combine`].
    CombineRegion,
    /// The step loads or stores pointers, or computes pointers other than by adding an offset.
    Pointers,
    TooLong,
    /// No loop runs over an axis, one loop would run over two axes, or the tile is empty.
    Axes,
    /// A tile that the nest reads from the executor is not contiguous along the lanes.
    TransposedInput,
    /// A tile that a later step reads is not contiguous along the lanes.
    TransposedOutput,
    /// The step reduces or scans an axis outside of the lanes, or an axis that is split into
    /// segments.
    InnerAxis,
    /// The step scans from the last element to the first.
    Reverse,
    /// The step reduces or scans an index tile, a range, or a tile of equal elements.
    EqualElements,
    /// The axis of a scan is shorter than [`SCAN_BLOCK`](crate::tuning::SCAN_BLOCK), and its extent
    /// is no power of two.
    ScanLength,
    /// The loops over rows would repeat a step that is the same for all rows.
    SameForRows,
    /// The step is a reshape that does more than add or remove axes of one element.
    Reshape,
    /// Indices, or the bounds of a mask, depend on a reduction.
    LateIndices,
    /// The step divides indices. The executor often finds a progression in the quotients.
    IndexDivision,
    /// Nests have no code for an operand that is an index tile or a range.
    IndexOperand,
    /// The addresses are elements of a tile.
    Gather,
    /// The nest has another store to addresses that are elements of a tile.
    SecondScatter,
    /// The addresses come from a loop or a branch.
    CarriedAddresses,
    /// The addresses of elements of 8 or 16 bits are not contiguous.
    Strided,
    /// The addresses or the mask depend on a reduction or on loaded elements, so the nest cannot
    /// check them before its first effect.
    LateAddresses,
    /// The pointer is not the sum of an argument of the kernel and an offset.
    UnknownPointer,
    /// One element is loaded after a store or a reduction.
    LateElement,
    /// The step stores all elements of a tile to one address.
    OneAddress,
    /// A later step reads the indices or pointers, so the executor computes them before the nest.
    SharedIndices,
    /// A later step reads indices or pointers that the executor cannot compute before the nest.
    LateSharedIndices,
    /// The steps read and write too little to repay a nest.
    TooSmall,
}

impl Refusal {
    /// Returns whether the planner refuses the step because a nest would not execute it faster.
    pub(crate) fn is_choice(self) -> bool {
        matches!(
            self,
            Self::ControlFlow | Self::Dot | Self::IndexDivision | Self::SharedIndices | Self::TooSmall
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ControlFlow => {
                "a nest contains no branch of the kernel, and a loop only if its whole body is one nest"
            }
            Self::Dot => "the executor has machine code of its own for dots",
            Self::Op => "nests have no machine code for this op",
            Self::Function(function, dtype) => {
                return write!(f, "vectors have no `{}` of {}", function.name(), dtype.name());
            }
            Self::Cast(from, to) => {
                return write!(f, "vectors have no conversion from {} to {}", from.name(), to.name());
            }
            Self::Combine(combine, dtype) => {
                return write!(f, "vectors have no reduction by `{combine:?}` of {}", dtype.name());
            }
            Self::CombineRegion => "its combine function is none of those that nests know",
            Self::Pointers => "it computes with pointers as elements",
            Self::TooLong => return write!(f, "the nest before it has {MAX_NEST_STEPS} steps, the maximum"),
            Self::Axes => "the axes of its tiles are not those of the loops of one nest",
            Self::TransposedInput => "it reads a tile whose last axis is not that of the vectors",
            Self::TransposedOutput => "a later step reads a tile whose last axis is not that of the vectors",
            Self::InnerAxis => "it reduces or scans an axis that is not that of the vectors",
            Self::Reverse => "it scans from the last element to the first",
            Self::EqualElements => "it combines the elements of an index tile, or equal elements",
            Self::ScanLength => "its axis is short and no power of two",
            Self::SameForRows => "it is the same for all rows, and a nest would repeat it for each row",
            Self::Reshape => "it changes more than axes of one element",
            Self::LateIndices => "indices or bounds of a mask depend on a reduction",
            Self::IndexDivision => "the executor often finds a progression in quotients of indices",
            Self::IndexOperand => "it takes an index tile or a mask as elements",
            Self::Gather => "its addresses are elements of a tile: a gather or a scatter",
            Self::SecondScatter => {
                "the nest before it scatters elements already, and a nest may do so only once"
            }
            Self::CarriedAddresses => "its addresses are a tile that a loop or a branch carries",
            Self::Strided => "its elements have 8 or 16 bits and are not contiguous along the vectors",
            Self::LateAddresses => {
                "its addresses or its mask depend on a reduction or on loads, and a nest checks all accesses first"
            }
            Self::UnknownPointer => "its pointer is not the sum of an argument of the kernel and an offset",
            Self::LateElement => "it loads one element after a store or a reduction",
            Self::OneAddress => "it stores a tile to one address",
            Self::SharedIndices => "a step outside of the nest reads its indices or pointers",
            Self::LateSharedIndices => "a step outside of the nest reads indices that depend on its results",
            Self::TooSmall => "the steps around it do too little to repay a nest",
        };
        f.write_str(text)
    }
}
