//! Fused loops: the steps on binary32 tiles that one loop executes, and the functions of such a
//! loop.

use tilewright_ir::{ArithmeticFn, ElementwiseFamily as Family, ElementwiseFn, FloatFn, MathFn};

use super::{Slot, Use};

/// The elements of a fused loop are a multiple of this.
pub(crate) const BLOCK: usize = 64;

/// Steps on binary32 tiles as one loop: see [`fusion`](crate::compile::fusion). The steps after it
/// are its members; the group refers to them by index.
#[derive(Clone, Default, Debug)]
pub(crate) struct FusedGroup {
    /// The number of members.
    pub members: usize,
    /// Elements of each tile.
    pub elements: usize,
    /// The body of the loop: a pipeline in which each op takes the element that the previous op
    /// computed.
    pub ops: Vec<FusedOp>,
    /// The slots that [`FusedOp::Write`] writes, by index. The tile of the store comes after them.
    pub outputs: Vec<Slot>,
    /// The reduction of the elements, and the member that performs it.
    pub reduction: Option<(Reduction, usize)>,
    /// The member that stores the elements, which is the last one.
    pub store: Option<usize>,
    /// The tiles that are dead after the members.
    pub frees: Vec<Slot>,
}

/// An op of a fused loop. Kind and operand are one enum, so that the executor branches once for
/// each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FusedOp {
    /// Combines the element with that of a slot.
    Slot(Binary, Use),
    /// Combines the element with one that the member of this index loads.
    Load(Binary, usize),
    /// Combines the element with that of a slot that has one element for each row of `BLOCK <<
    /// shift` elements.
    Rows(Binary, Use, usize),
    /// Combines the element with that of an output of an earlier [`FusedOp::Write`].
    Output(Binary, usize),
    /// Combines the element with itself.
    Itself(Binary),
    /// Applies a function to the element.
    Unary(Unary),
    /// Selects the element where the first operand is true, else that of the second one.
    Select(Use, Use),
    /// Writes the element to the output of this index.
    Write(usize),
    /// Reduces the elements. A group has at most one such op.
    Reduce(Reduction),
}

/// The implementation of an elementwise function in a fused loop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(Unary),
    /// The function, and the one with swapped operands.
    Binary(Binary, Binary),
}

/// The reduction of the elements to a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Sum,
    /// The largest element by comparison. The loop reports whether it is certainly the maximum.
    Max,
}

/// Functions of the element and an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    /// The operand itself, at the beginning of a group.
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

/// Functions of the element.
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
    /// Returns the implementation of a function; `None` if fused loops do not have it.
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
            // Functions of integers and booleans, or with boolean operands or results.
            | Family::Division(_)
            | Family::Bitwise(_)
            | Family::WideProduct(_)
            | Family::Comparison(_)
            | Family::Selection(_) => return None,
        })
    }
}
