//! Defines fused loops, which execute several steps on binary32 tiles.

use tilewright_ir::{ArithmeticFn, ElementwiseFamily as Family, ElementwiseFn, FloatFn, MathFn};

use super::{Slot, Use};

/// The number of elements of a fused loop is a multiple of this number.
pub(crate) const BLOCK: usize = 64;

/// Steps on binary32 tiles that one loop executes: see [`fusion`](crate::compile::fusion). The
/// members follow the group in its block.
#[derive(Clone, Default, Debug)]
pub(crate) struct FusedGroup {
    /// The number of members.
    pub members: usize,
    /// The number of elements of each tile.
    pub elements: usize,
    /// The body of the loop. Each op takes the element that the previous op computed.
    pub ops: Vec<FusedOp>,
    /// The slots that [`FusedOp::Write`] writes. The index `outputs.len()` means the memory of the
    /// member `store`.
    pub outputs: Vec<Slot>,
    /// The reduction of the elements, and the index of the member that it replaces.
    pub reduction: Option<(Reduction, usize)>,
    /// The index of the member that stores the elements, which is the last member.
    pub store: Option<usize>,
    /// The slots that the group clears, because their tiles are dead after the last member.
    pub frees: Vec<Slot>,
}

/// An op of a fused loop. The variant has the kind of the operand, so that the executor branches
/// once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FusedOp {
    /// Combines the element with the element of a slot.
    Slot(Binary, Use),
    /// Combines the element with the element that the member with this index loads.
    Load(Binary, usize),
    /// Combines the element with an element per row of a slot. A row has `BLOCK << shift` elements;
    /// `shift` is the last field.
    Rows(Binary, Use, usize),
    /// Combines the element with the element of an earlier [`FusedOp::Write`].
    Output(Binary, usize),
    /// Combines the element with itself.
    Itself(Binary),
    /// Applies a function to the element.
    Unary(Unary),
    /// Keeps the element where the first operand is true. Elsewhere, takes the element of the
    /// second operand.
    Select(Use, Use),
    /// Writes the element to the output of this index.
    Write(usize),
    /// Reduces the elements. A group has at most one such op.
    Reduce(Reduction),
}

/// The ops of a fused loop that implement an elementwise function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(Unary),
    /// The op if the element is the left operand, and the op if it is the right operand.
    Binary(Binary, Binary),
}

/// The reduction of the elements to a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Sum,
    /// The maximum by comparisons. They order neither NaN nor zeros of different signs, so the loop
    /// reports whether the result is certain.
    Max,
}

/// Functions of the element and an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    /// The operand itself; the first op of a group.
    Take,
    Add,
    Sub,
    /// The operand minus the element.
    SubFrom,
    Mul,
    Div,
    /// The operand divided by the element.
    DivInto,
    Min,
    Max,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Sqrt,
    Exp,
    Exp2,
    /// The element times itself.
    Square,
}

impl Function {
    /// Returns the ops that compute a function, if there are any.
    pub(crate) fn of(function: ElementwiseFn) -> Option<Function> {
        Some(match function.family() {
            Family::Arithmetic(ArithmeticFn::Add) => Function::Binary(Binary::Add, Binary::Add),
            Family::Arithmetic(ArithmeticFn::Mul) => Function::Binary(Binary::Mul, Binary::Mul),
            Family::Arithmetic(ArithmeticFn::Min) => Function::Binary(Binary::Min, Binary::Min),
            Family::Arithmetic(ArithmeticFn::Max) => Function::Binary(Binary::Max, Binary::Max),
            Family::Arithmetic(ArithmeticFn::Sub) => Function::Binary(Binary::Sub, Binary::SubFrom),
            Family::Arithmetic(ArithmeticFn::Neg) => Function::Unary(Unary::Neg),
            Family::Arithmetic(ArithmeticFn::Abs) => Function::Unary(Unary::Abs),
            Family::Float(FloatFn::Div | FloatFn::DivRn) => Function::Binary(Binary::Div, Binary::DivInto),
            Family::Float(FloatFn::Sqrt | FloatFn::SqrtRn) => Function::Unary(Unary::Sqrt),
            Family::Math(MathFn::Exp | MathFn::AccurateExp) => Function::Unary(Unary::Exp),
            Family::Math(MathFn::Exp2) => Function::Unary(Unary::Exp2),
            // tidy: wildcard because a function that is not listed ends the group.
            Family::Float(_) | Family::Math(_)
            // Functions of integers and booleans.
            | Family::Division(_)
            | Family::Bitwise(_)
            | Family::WideProduct(_)
            | Family::Comparison(_)
            | Family::Selection(_) => return None,
        })
    }
}
