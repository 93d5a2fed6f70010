//! Defines the rule of `inline_asm_elementwise`.

use tilewright_base::Code;
use tilewright_ir::{AsmError, AsmTemplate, Builder, Dtype, DtypeList, Element, Op as IrOp, Shape};

use super::arguments::{Arguments, flatten};
use super::convert::{broadcast_to, check_size, common_shape, shape_mismatch, tensor};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

/// The maximum number of elements of each argument per run.
const MAX_PACK: i128 = 64;

/// `inline_asm_elementwise(asm, constraints, args, dtype, is_pure, pack)`.
pub(super) fn inline_asm<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let text = required(c, a, 0)?;
    let constraints = required(c, a, 1)?;
    let values = arguments(c, a)?;
    let (dtypes, is_tuple) = results(c, a)?;
    let is_pure = a.flag(c, 4)?;
    let pack = pack(c, a)?;
    let elements: Vec<Element> = values.iter().map(|value| c.builder().type_of(value).element).collect();
    let template = AsmTemplate::parse(&text, &constraints);
    template.and_then(|template| template.check(&dtypes, &elements, pack)).map_err(|error| {
        let message = format!("`inline_asm_elementwise`: {error}");
        let error = match error {
            AsmError::Text(_) => SemanticError::new(Code::InvalidValue, message).argument(0, "in this text"),
            AsmError::Constraints(_) => SemanticError::new(Code::InvalidValue, message)
                .argument(1, "these are the constraints")
                .note(format!(
                    "{} and {}",
                    counted(dtypes.len(), "result"),
                    counted(elements.len(), "argument")
                )),
        };
        error.hint("the constraints are those of LLVM: first each output, as `=r`, then each input, as `r`")
    })?;
    let dtypes = DtypeList(dtypes);
    let op = if is_pure {
        IrOp::InlineAsm { text, constraints, dtypes, pack }
    } else {
        IrOp::VolatileAsm { text, constraints, dtypes, pack }
    };
    let results = c.builder().emit(op, values.into(), smallvec::SmallVec::new())?;
    let mut results: Vec<Op<C>> = results.into_iter().map(Operand::Tensor).collect();
    Ok(match results.pop() {
        Some(single) if results.is_empty() && !is_tuple => single,
        last => {
            results.extend(last);
            Operand::Tuple(results.into())
        }
    })
}

fn counted(number: usize, what: &str) -> String {
    super::arguments::count(number, what, &format!("{what}s"))
}

/// Returns a string argument that must not be None.
fn required<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<String> {
    a.string(c, index)?.ok_or_else(|| {
        let message = format!("`{}` of `inline_asm_elementwise` cannot be None", a.name(index));
        SemanticError::new(Code::InvalidValue, message).argument(index, "expected a text")
    })
}

/// Returns the operands, broadcast to their common shape. Each operand keeps its type.
fn arguments<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Vec<ValueOf<C>>> {
    let mut values = Vec::new();
    let mut shape = Shape::scalar();
    for item in flatten(a.at(2)?) {
        let value = tensor(c, &item, 2)?;
        let own = c.builder().type_of(&value).shape;
        shape = common_shape(&shape, &own)
            .map_err(|axis| shape_mismatch("`inline_asm_elementwise`", (2, &shape), (2, &own), axis))?;
        values.push(value);
    }
    check_size(&shape).map_err(|error| error.argument(2, "these"))?;
    values.into_iter().map(|value| broadcast_to(c, value, &shape)).collect()
}

/// Returns the types of the results, and true if they form a tuple.
fn results<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<(Vec<Dtype>, bool)> {
    let items = match a.constant(c, 3) {
        Ok(Constant::Tuple(items)) => items.into_vec(),
        _ => return Ok((vec![a.dtype(c, 3)?], false)),
    };
    let dtype = |item: Constant| match item {
        Constant::Type(ty) if ty.is_scalar() => ty.dtype(),
        _ => None,
    };
    let dtypes: Option<Vec<Dtype>> = items.into_iter().map(dtype).collect();
    let dtypes = dtypes.filter(|dtypes| !dtypes.is_empty()).ok_or_else(|| {
        SemanticError::new(
            Code::InvalidValue,
            "`dtype` of `inline_asm_elementwise` is a type or a tuple of types",
        )
        .argument(3, "this is neither")
        .hint("write a type such as `tl.float32` for each output")
    })?;
    Ok((dtypes, true))
}

fn pack<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<u32> {
    let pack = a.int(c, 5)?;
    match u32::try_from(pack) {
        Ok(count) if pack <= MAX_PACK && count.is_power_of_two() => Ok(count),
        _ => Err(SemanticError::new(Code::InvalidValue, format!("`pack` cannot be {pack}"))
            .argument(5, format!("expected a power of two, {MAX_PACK} at the most"))),
    }
}
