//! Fused loops: the steps on binary32 tiles that one loop executes, and the functions that such a loop has.

use tilewright_ir::{ArithmeticFn, ElementwiseFamily as Family, ElementwiseFn, FloatFn, MathFn};

use super::{Slot, Use};

/// The elements of a fused loop are a multiple of this.
pub(crate) const BLOCK: usize = 64;

/// Steps on binary32 tiles as one loop: see [`fusion`](crate::compile::fusion). The steps after it are its members, known
/// by their number.
#[derive(Clone, Default, Debug)]
pub(crate) struct FusedGroup {
    /// How many steps it stands for.
    pub members: usize,
    /// The elements of each tile.
    pub elements: usize,
    /// The body of the loop: a pipeline in which each op takes the element that the one before gave.
    pub ops: Vec<FusedOp>,
    /// The slots that [`FusedOp::Write`] writes, by number. The tile of the store comes after them.
    pub outputs: Vec<Slot>,
    /// How the elements are reduced, and the member that does so.
    pub reduction: Option<(Reduction, usize)>,
    /// The member that stores the elements: the last one.
    pub store: Option<usize>,
    /// The tiles that are dead after its members.
    pub frees: Vec<Slot>,
}

/// One op of a fused loop. Kind and operand are one enum, so that the executor branches once for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FusedOp {
    /// A function of the element and that of a slot.
    Slot(Binary, Use),
    /// A function of the element and that which the member with this number loads.
    Load(Binary, usize),
    /// A function of the element and that of a slot with one element for each row of `BLOCK << shift` elements.
    Rows(Binary, Use, usize),
    /// A function of the element and that of an output that an earlier [`FusedOp::Write`] wrote.
    Output(Binary, usize),
    /// A function of the element and itself.
    Itself(Binary),
    /// A function of the element.
    Unary(Unary),
    /// The element where the first operand holds, else that of the second one.
    Select(Use, Use),
    /// The element goes to the output with this number.
    Write(usize),
    /// The element is reduced. A group has one such op at the most.
    Reduce(Reduction),
}

/// How a fused loop computes a function of the elementwise table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Unary(Unary),
    /// The function, and the one with swapped operands.
    Binary(Binary, Binary),
}

/// How the elements are reduced to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Sum,
    /// The largest number by comparison. The loop says whether it is certain to be the maximum.
    Max,
}

/// Functions of the element and an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    /// The operand itself: the beginning of a group.
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
    /// How a function is computed; none if a fused loop does not have it.
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
            // tidy: wildcard because a function that is not here ends the group.
            Family::Float(_) | Family::Math(_)
            // Of integers and booleans, or with booleans among the operands or results.
            | Family::Division(_)
            | Family::Bitwise(_)
            | Family::WideProduct(_)
            | Family::Comparison(_)
            | Family::Selection(_) => return None,
        })
    }
}
