//! Defines the rule of `map_elementwise`, which calls a function of scalars for each element.

use smallvec::SmallVec;
use tilewright_base::Code;
use tilewright_ir::{Builder, Shape, Type};

use super::arguments::{Arguments, flatten};
use super::convert::{broadcast_to, common_shape, shape_mismatch, tensor};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

/// The maximum number of elements of each tensor per call.
const MAX_PACK: i128 = 64;

/// `map_elementwise(scalar_fn, *args, pack)`.
pub(super) fn map_elementwise<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let pack = a.int(c, 2)?;
    if !(1..=MAX_PACK).contains(&pack) || pack.count_ones() != 1 {
        return Err(SemanticError::new(Code::InvalidValue, format!("`pack` cannot be {pack}"))
            .argument(2, format!("expected a power of two up to {MAX_PACK}")));
    }
    let pack = pack as usize;
    let (values, shape) = values(c, a)?;
    let Some(first) = values.first() else {
        return Err(SemanticError::new(Code::WrongArguments, "`map_elementwise` takes at least one tensor")
            .hint("give it the tensors after the function: `tl.map_elementwise(function, x, y)`"));
    };
    if c.builder().type_of(first).is_scalar() {
        let repeated = values.iter().flat_map(|value| vec![Operand::Tensor(value.clone()); pack]);
        let result = c.call(a.at(0)?, repeated.collect(), Vec::new())?;
        let items = flatten(&result);
        return if pack == 1 { mapped(c, &result) } else { grouped(c, &items, pack) };
    }
    let mut types: Vec<Type> = Vec::with_capacity(values.len() * pack);
    for value in &values {
        types.extend(vec![c.builder().type_of(value).with_shape(Shape::scalar()); pack]);
    }
    let (region, result) = c.region_and_result(a.at(0)?, &types)?;
    check_results(c, &result, &shape)?;
    if let Some(op) = c.beyond_elements(&region) {
        let message = format!(
            "the function of `map_elementwise` contains the op `{op}`, which does not work on single elements"
        );
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(0, "this function")
            .note("it runs once for each element: it may compute, branch, loop and load, on scalars")
            .hint("return what is to be stored or printed, and do that with the tile that `map_elementwise` gives"));
    }
    let count = flatten(&result).len();
    if count == 0 || count % pack != 0 {
        return Err(SemanticError::new(
            Code::ReturnMismatch,
            format!("the function of `map_elementwise` returns {count} values for {pack} elements"),
        )
        .argument(0, "this function")
        .hint(format!(
            "with `pack={pack}` let it return {pack} values of each result, the first result first"
        )));
    }
    let made = c.builder().map(values, pack as u32, region).map_err(|error| {
        SemanticError::new(
            Code::ReturnMismatch,
            "the results of the function of `map_elementwise` do not fit",
        )
        .argument(0, "this function")
        .note(error.message)
    })?;
    if pack > 1 {
        let items: Vec<Op<C>> = made.into_iter().map(Operand::Tensor).collect();
        return grouped(c, &items, 1);
    }
    let mut made = made.into_iter();
    replaced(&result, &mut || made.next())
}

fn values<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(SmallVec<[ValueOf<C>; 4]>, Shape)> {
    let mut values = Vec::new();
    let mut shape = Shape::scalar();
    for item in flatten(a.at(1)?) {
        let value = tensor(c, &item, 1)?;
        let own = c.builder().type_of(&value).shape;
        shape = common_shape(&shape, &own)
            .map_err(|axis| shape_mismatch("`map_elementwise`", (1, &shape), (1, &own), axis))?;
        values.push(value);
    }
    let mut all = SmallVec::new();
    for value in values {
        all.push(broadcast_to(c, value, &shape)?);
    }
    Ok((all, shape))
}

fn check_results<C: Caller + ?Sized>(c: &mut C, result: &Op<C>, shape: &Shape) -> Semantic<()> {
    for item in flatten(result) {
        let value = tensor(c, &item, 0)?;
        let own = c.builder().type_of(&value).shape;
        if !own.is_empty() {
            let message = format!("the function of `map_elementwise` gives {own} for elements of {shape}");
            return Err(SemanticError::new(Code::IncompatibleShapes, message)
                .argument(0, "this function")
                .hint("let it compute one element from one element of each tensor"));
        }
    }
    Ok(())
}

/// Converts the numbers in a result, and in tuples within it, to tensors.
fn mapped<C: Caller + ?Sized>(c: &mut C, result: &Op<C>) -> Semantic<Op<C>> {
    let items: Option<Tuple<Op<C>>> = match result {
        Operand::Tuple(items) => Some(items.clone()),
        Operand::Constant(Constant::Tuple(items)) => Some(items.map(|item| Operand::Constant(item.clone()))),
        _ => None,
    };
    if let Some(items) = items {
        let all: Semantic<Vec<Op<C>>> = items.iter().map(|item| mapped(c, item)).collect();
        return Ok(Operand::Tuple(items.with_items(all?)));
    }
    Ok(Operand::Tensor(tensor(c, result, 0)?))
}

/// Returns every `pack`-th item: the function was called with `pack` copies of each scalar, and
/// returns `pack` copies of each result.
fn grouped<C: Caller + ?Sized>(c: &mut C, items: &[Op<C>], pack: usize) -> Semantic<Op<C>> {
    let first: Semantic<Vec<Op<C>>> = items.iter().step_by(pack).map(|item| mapped(c, item)).collect();
    let mut first = first?;
    Ok(match first.pop() {
        Some(only) if first.is_empty() => only,
        last => {
            first.extend(last);
            Operand::Tuple(first.into())
        }
    })
}

/// Returns the result, with each scalar replaced by the next tile of `next`.
fn replaced<V: Clone>(result: &Operand<V>, next: &mut impl FnMut() -> Option<V>) -> Semantic<Operand<V>> {
    match result {
        Operand::Tuple(items) => {
            let all: Semantic<Vec<Operand<V>>> = items.iter().map(|item| replaced(item, next)).collect();
            Ok(Operand::Tuple(items.with_items(all?)))
        }
        Operand::Tensor(_) => Ok(Operand::Tensor(next().expect("there are as many results as values"))),
        // tidy: wildcard because a function of elements returns numbers
        _ => Err(SemanticError::new(
            Code::ReturnMismatch,
            "the function of `map_elementwise` returns no numbers",
        )
        .argument(0, "this function")),
    }
}
