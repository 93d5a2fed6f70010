//! Checks and converts the operands of memory accesses.

use tilewright_base::Code;
use tilewright_ir::{Builder, Dtype, Literal, Shape, Type};

use super::arguments::Arguments;
use super::convert::{broadcast_to, cast, common_shape, describe, literal, tensor, to_bool};
use super::{Caller, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

/// Reports a store through a read-only pointer.
pub(super) fn check_writable<C: Caller + ?Sized>(c: &mut C, pointer: &ValueOf<C>) -> Semantic<()> {
    let Some(name) = c.read_only(pointer) else { return Ok(()) };
    if name.is_empty() {
        return Err(SemanticError::new(Code::InvalidStore, "Cannot store to a constant pointer")
            .argument(0, "this was cast to a pointer whose memory is only read")
            .hint("cast it to a type without `const=True`, or store elsewhere"));
    }
    Err(SemanticError::new(Code::InvalidStore, "Cannot store to a constant pointer")
        .argument(0, format!("this comes from `{name}`, which is declared `tl.const`"))
        .note("a `tl.const` parameter points to memory that is only read")
        .hint(format!("remove the annotation of `{name}`, or store elsewhere")))
}

pub(super) fn pointer<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(ValueOf<C>, Type, Dtype)> {
    let operand = a.at(0)?;
    let mut is_real = false;
    if let Operand::Tensor(value) = operand {
        let ty = c.builder().type_of(value);
        is_real = ty.element.value().is_some_and(Dtype::is_float);
        if let Some(dtype) = ty.element.pointee() {
            return Ok((value.clone(), ty, dtype));
        }
    }
    let found = describe(c, operand);
    let name = a.spec.name;
    let hint = match operand {
        Operand::Constant(Constant::None) => {
            "the argument is None in this launch: guard the access with `if ptr is not None:`".to_string()
        }
        Operand::Tuple(_) => "a list or tuple is no memory: launch with a tensor or an array, such as `torch.tensor([1.0, 2.0])`, or \
             take an item of it, `x[0]`"
            .to_string(),
        Operand::Descriptor(_) => format!("a tensor descriptor has methods: `desc.{name}(offsets, …)`"),
        _ if is_real => {
            format!("a number is not an address: pass the pointer to it, `tl.{name}(x_ptr + offsets, …)`")
        }
        _ => format!("add the offsets to a pointer argument: `tl.{name}(x_ptr + offsets, …)`"),
    };
    Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` takes a pointer or a tile of pointers"))
        .argument(0, format!("this is {found}"))
        .note(format!("found {found}, expected a pointer such as *fp32"))
        .hint(hint))
}

/// Returns the mask in argument `index` and its type, if any: a boolean scalar or tile. A tile for
/// a scalar pointer is an error.
pub(super) fn mask<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    pointer: &Type,
) -> Semantic<Option<(ValueOf<C>, Type)>> {
    let value = match a.at(index)? {
        Operand::Constant(Constant::None) => return Ok(None),
        Operand::Constant(constant @ (Constant::Bool(_) | Constant::Int(_))) => {
            c.builder().constant(Literal::bool(constant.is_true()))?
        }
        other => tensor(c, other, index)?,
    };
    let ty = c.builder().type_of(&value);
    if !ty.is_bool() {
        return Err(SemanticError::new(Code::MaskMismatch, "a mask holds booleans")
            .argument(index, format!("this is {ty}"))
            .note(format!("found {}, expected int1", ty.element))
            .hint("write a comparison, such as `offsets < n`, or `mask != 0`"));
    }
    if pointer.is_scalar() && !ty.is_scalar() {
        return Err(mask_shape(a, index, &pointer.shape, &ty.shape));
    }
    Ok(Some((value, ty)))
}

pub(super) fn mask_shape<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    index: usize,
    pointer: &Shape,
    found: &Shape,
) -> SemanticError {
    let what = a.name(index);
    let error = |message: String| {
        SemanticError::new(Code::MaskMismatch, message).argument(index, format!("this has shape {found}"))
    };
    if pointer.is_empty() {
        return error(format!("the {what} has shape {found} and the pointer is a scalar"))
            .argument(0, "this is a scalar")
            .note(format!("found {found}, expected a scalar"))
            .hint("add a tile of offsets to the pointer: `ptr + tl.arange(0, N)`");
    }
    let error = error(format!("the {what} has shape {found} and the pointers have shape {pointer}"))
        .argument(0, format!("this has shape {pointer}"))
        .note(format!("found {found}, expected {pointer} or what broadcasts to it"));
    error.hint(match (found.len(), pointer.len()) {
        (1, 2) if found.first() == pointer.first() => {
            format!("for a {what} of rows write `{what}[:, None]`")
        }
        _ => format!("make the {what} from the same offsets as the pointers"),
    })
}

/// Returns the mask in argument `index`, if any, broadcast to the pointers.
pub(super) fn fitting_mask<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    pointer: &Type,
) -> Semantic<Option<ValueOf<C>>> {
    let Some((mask, ty)) = mask(c, a, index, pointer)? else { return Ok(None) };
    match common_shape(&pointer.shape, &ty.shape) {
        Ok(shape) if shape == pointer.shape => Ok(Some(broadcast_to(c, mask, &shape)?)),
        _ => Err(mask_shape(a, index, &pointer.shape, &ty.shape)),
    }
}

/// Converts the value in argument `index` to the pointee `dtype`, broadcast to the pointers. A
/// boolean becomes a byte.
pub(super) fn stored<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    pointer: &Type,
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    let value = match a.at(index)? {
        Operand::Constant(constant @ (Constant::Bool(_) | Constant::Int(_) | Constant::Float(_))) => {
            literal(c, constant, dtype)?
        }
        operand @ Operand::Tensor(_) => tensor(c, operand, index)?,
        operand => {
            let found = describe(c, operand);
            return Err(SemanticError::new(Code::InvalidStore, format!("{found} cannot be stored"))
                .argument(index, format!("this is {found}"))
                .note(format!("expected {} or a number", pointer.with_dtype(dtype))));
        }
    };
    let ty = c.builder().type_of(&value);
    if ty.dtype().is_none() && !matches!(dtype, Dtype::I64 | Dtype::U64) {
        return Err(SemanticError::new(Code::InvalidStore, format!("a pointer cannot be stored as {dtype}"))
            .argument(index, format!("this is {ty}"))
            .argument(0, format!("this is {pointer}"))
            .note(format!("found {}, expected a number", ty.element))
            .hint("store what it points to: `tl.load(…)` first"));
    }
    match common_shape(&pointer.shape, &ty.shape) {
        Ok(common) if common == pointer.shape => {}
        _ => return Err(store_shape(index, pointer, &ty)),
    }
    let value = if dtype.is_bool() { to_bool(c, value)? } else { value };
    let value = cast(c, value, if dtype.is_bool() { Dtype::I8 } else { dtype })?;
    broadcast_to(c, value, &pointer.shape)
}

fn store_shape(index: usize, pointer: &Type, value: &Type) -> SemanticError {
    let error = |message: String| {
        SemanticError::new(Code::InvalidStore, message)
            .argument(index, format!("this has shape {}", value.shape))
            .argument(
                0,
                if pointer.is_scalar() {
                    "this is a scalar".into()
                } else {
                    format!("this has shape {}", pointer.shape)
                },
            )
    };
    if pointer.is_scalar() {
        return error(format!("a tile of shape {} cannot be stored through one pointer", value.shape))
            .note(format!("found {value}, expected a scalar, or a tile of pointers of shape {}", value.shape))
            .hint("add offsets to the pointer, such as `ptr + tl.arange(0, N)`, or reduce the tile first");
    }
    error(format!(
        "a tile of shape {} cannot be stored through pointers of shape {}",
        value.shape, pointer.shape
    ))
    .note(format!("found {}, expected {} or what broadcasts to it", value.shape, pointer.shape))
    .hint("pointers and values need one shape: make both from the same offsets")
}
