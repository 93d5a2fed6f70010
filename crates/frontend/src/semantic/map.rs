//! `map_elementwise`: a function of scalars on each element.
//!
//! Ops on elements are ops on tiles, so the function is called once, with tiles in the place of scalars. Of what it computes,
//! only branches would tell one from the other: a branch on a tile is refused, as everywhere.

use tilewright_base::Code;
use tilewright_ir::{Builder, Shape};

use super::arguments::{Arguments, flatten};
use super::convert::{broadcast_to, common_shape, shape_mismatch, tensor};
use super::{Caller, Op, Semantic, SemanticError};
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

/// `map_elementwise(scalar_fn, *args, pack)`.
pub(super) fn map_elementwise<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let pack = a.int(c, 2)?;
    if pack != 1 {
        return Err(SemanticError::new(Code::InvalidValue, "`map_elementwise` takes one element at a time")
            .argument(2, format!("this is {pack}"))
            .note("expected a `pack` of 1; how many elements a thread computes at once, the compiler decides")
            .hint("leave `pack` out, and write the function for one element of each tensor"));
    }
    let mut values = Vec::new();
    let mut shape = Shape::scalar();
    for item in flatten(a.at(1)?) {
        let value = tensor(c, &item, 1)?;
        let own = c.builder().type_of(&value).shape;
        shape = common_shape(&shape, &own)
            .map_err(|axis| shape_mismatch("`map_elementwise`", (1, &shape), (1, &own), axis))?;
        values.push(value);
    }
    let mut arguments = Vec::with_capacity(values.len());
    for value in values {
        arguments.push(Operand::Tensor(broadcast_to(c, value, &shape)?));
    }
    let result = c.call(a.at(0)?, arguments, Vec::new())?;
    mapped(c, &result, &shape)
}

/// A result in the shape of the tensors: a number that the function gives is the same for each element.
fn mapped<C: Caller + ?Sized>(c: &mut C, result: &Op<C>, shape: &Shape) -> Semantic<Op<C>> {
    let items: Option<Tuple<Op<C>>> = match result {
        Operand::Tuple(items) => Some(items.clone()),
        Operand::Constant(Constant::Tuple(items)) => Some(items.map(|item| Operand::Constant(item.clone()))),
        _ => None,
    };
    if let Some(items) = items {
        let all: Semantic<Vec<Op<C>>> = items.iter().map(|item| mapped(c, item, shape)).collect();
        return Ok(Operand::Tuple(items.with_items(all?)));
    }
    let value = tensor(c, result, 0)?;
    let own = c.builder().type_of(&value).shape;
    if own != *shape && !own.is_empty() {
        let message = format!("the function of `map_elementwise` gives {own} for elements of {shape}");
        return Err(SemanticError::new(Code::IncompatibleShapes, message)
            .argument(0, "this function")
            .hint("let it compute one element from one element of each tensor"));
    }
    Ok(Operand::Tensor(broadcast_to(c, value, shape)?))
}
