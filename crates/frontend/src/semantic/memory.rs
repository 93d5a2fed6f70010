//! `load` and `store`.

use tilewright_base::Code;
use tilewright_ir::{Builder, CacheModifier, Dtype, Element, EvictionPolicy, Literal, Rounding, Shape, Type};

use super::arguments::Arguments;
use super::convert::{broadcast_to, cast, cast_element, common_shape, describe, literal, tensor, to_bool};
use super::descriptor::{self, DescriptorOf};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::descriptor::DescriptorKind;
use crate::value::{Constant, Operand};

pub(super) const LOAD_CACHE: &[(&str, CacheModifier)] = &[
    ("", CacheModifier::Default),
    (".ca", CacheModifier::All),
    (".cg", CacheModifier::Global),
    (".cs", CacheModifier::Streaming),
    (".cv", CacheModifier::Volatile),
];

pub(super) const STORE_CACHE: &[(&str, CacheModifier)] = &[
    ("", CacheModifier::Default),
    (".wb", CacheModifier::WriteBack),
    (".cg", CacheModifier::Global),
    (".cs", CacheModifier::Streaming),
    (".wt", CacheModifier::WriteThrough),
];

pub(super) const EVICTION: &[(&str, EvictionPolicy)] = &[
    ("", EvictionPolicy::Default),
    ("evict_last", EvictionPolicy::Last),
    ("evict_first", EvictionPolicy::First),
    ("evict_normal", EvictionPolicy::Default),
];

/// `load(pointer, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, volatile)`.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if let Some(block) = block_pointer(a) {
        return load_block(c, a, &block);
    }
    let (pointer, ty, dtype) = pointer(c, a)?;
    no_block_pointers(c, a, &[3, 4])?;
    let cache = a.choice(c, 5, LOAD_CACHE)?;
    let eviction = a.choice(c, 6, EVICTION)?;
    let volatile = a.flag(c, 7)?;
    let mask = mask(c, a, 1, &ty)?;
    if mask.is_none() && !a.is_none(2) {
        return Err(SemanticError::new(Code::MaskMismatch, "`other` is given without a mask")
            .argument(2, "this would never be used")
            .note("`other` is what a load gives where the mask is false")
            .hint("add `mask=`, such as `mask=offsets < n`, or leave `other` out"));
    }
    let shape = match &mask {
        Some((_, mask)) => {
            common_shape(&ty.shape, &mask.shape).map_err(|_| mask_shape(a, 1, &ty.shape, &mask.shape))?
        }
        None => ty.shape.clone(),
    };
    // Booleans are bytes in memory; whatever is not 0 is true.
    let element = if dtype.is_bool() { Dtype::I8 } else { dtype };
    let other = if a.is_none(2) { None } else { Some(other(c, a, &shape, element)?) };
    let pointer = cast_element(c, pointer, Element::Pointer(element), Rounding::default())?;
    let pointer = broadcast_to(c, pointer, &shape)?;
    let mask = match mask {
        Some((mask, _)) => Some(broadcast_to(c, mask, &shape)?),
        None => None,
    };
    let value = c.builder().load(pointer, mask, other, (cache, eviction, volatile))?;
    Ok(Operand::Tensor(cast(c, value, dtype)?))
}

/// `store(pointer, value, mask, boundary_check, cache_modifier, eviction_policy)`.
pub(super) fn store<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if let Some(block) = block_pointer(a) {
        return store_block(c, a, &block);
    }
    let (pointer, ty, dtype) = pointer(c, a)?;
    no_block_pointers(c, a, &[3])?;
    let cache = a.choice(c, 4, STORE_CACHE)?;
    let eviction = a.choice(c, 5, EVICTION)?;
    check_writable(c, &pointer)?;
    let value = stored(c, a, 1, &ty, dtype)?;
    let mask = fitting_mask(c, a, 2, &ty)?;
    let element = if dtype.is_bool() { Dtype::I8 } else { dtype };
    let pointer = cast_element(c, pointer, Element::Pointer(element), Rounding::default())?;
    c.builder().store(pointer, value, mask, (cache, eviction))?;
    Ok(Operand::Constant(Constant::None))
}

/// A store through a pointer that is declared `tl.const` is a mistake.
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

/// The block pointer that is argument 0.
fn block_pointer<C: Caller + ?Sized>(a: &Arguments<'_, C>) -> Option<DescriptorOf<C>> {
    match a.at(0) {
        Ok(Operand::Descriptor(block)) if block.form.kind == DescriptorKind::BlockPointer => {
            Some((**block).clone())
        }
        _ => None,
    }
}

/// A load through a block pointer.
fn load_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    block: &DescriptorOf<C>,
) -> Semantic<Op<C>> {
    no_mask(a, &[1, 2])?;
    let dtype = descriptor::element_type(c, block)?;
    let padding = descriptor::padding_option(c, a, 4, dtype)?;
    let (cache, eviction) = (a.choice(c, 5, LOAD_CACHE)?, a.choice(c, 6, EVICTION)?);
    let volatile = a.flag(c, 7)?;
    let elements = descriptor::block_of_pointer(c, a, block, 3)?;
    let shape = &block.form.block_shape;
    let other = match elements.mask {
        Some(_) => descriptor::padding_value(c, padding, dtype, shape)?,
        None => None,
    };
    let value = c.builder().load(elements.pointers, elements.mask, other, (cache, eviction, volatile))?;
    Ok(Operand::Tensor(cast(c, value, dtype)?))
}

/// A store through a block pointer.
fn store_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    block: &DescriptorOf<C>,
) -> Semantic<Op<C>> {
    no_mask(a, &[2])?;
    let dtype = descriptor::element_type(c, block)?;
    let (cache, eviction) = (a.choice(c, 4, STORE_CACHE)?, a.choice(c, 5, EVICTION)?);
    let elements = descriptor::block_of_pointer(c, a, block, 3)?;
    check_writable(c, &elements.pointers)?;
    let ty = c.builder().type_of(&elements.pointers);
    let value = stored(c, a, 1, &ty, dtype)?;
    c.builder().store(elements.pointers, value, elements.mask, (cache, eviction))?;
    Ok(Operand::Constant(Constant::None))
}

/// Block pointers have checks, and no masks.
fn no_mask<C: Caller + ?Sized>(a: &Arguments<'_, C>, indices: &[usize]) -> Semantic<()> {
    let Some(&index) = indices.iter().find(|&&index| !a.is_none(index)) else { return Ok(()) };
    let what = if a.spec.name == "load" { "loading" } else { "storing" };
    let message = format!(
        "`mask` and `other` arguments cannot be specified for {what} block pointers: `{}`",
        a.name(index)
    );
    Err(SemanticError::new(Code::MaskMismatch, message)
        .argument(index, "this belongs to tiles of pointers")
        .hint("name the axes that may exceed the tensor: `boundary_check=(0, 1)`"))
}

/// The pointer that is argument 0.
pub(super) fn pointer<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(ValueOf<C>, Type, Dtype)> {
    let operand = a.at(0)?;
    if let Operand::Tensor(value) = operand {
        let ty = c.builder().type_of(value);
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
        _ => format!("add the offsets to a pointer argument: `tl.{name}(x_ptr + offsets, …)`"),
    };
    Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` takes a pointer or a tile of pointers"))
        .argument(0, format!("this is {found}"))
        .note(format!("found {found}, expected a pointer such as *fp32"))
        .hint(hint))
}

fn no_block_pointers<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, indices: &[usize]) -> Semantic<()> {
    for &index in indices {
        if a.constant(c, index)?.is_true() {
            let what = if a.spec.name == "load" {
                "`padding_option` or `boundary_check`"
            } else {
                "`boundary_check`"
            };
            let verb = if a.spec.name == "load" { "loading" } else { "storing" };
            let message = format!(
                "{what} argument is not supported for {verb} a tensor of pointers or {verb} a scalar"
            );
            return Err(SemanticError::new(Code::InvalidValue, message)
                .argument(index, "this belongs to block pointers")
                .note("a pointer does not know where its tensor ends")
                .hint(
                    "use `mask=`, or a block pointer (`tl.make_block_ptr`), which knows the tensor's shape",
                ));
        }
    }
    Ok(())
}

/// The mask, a boolean scalar or tile.
fn mask<C: Caller + ?Sized>(
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

fn mask_shape<C: Caller + ?Sized>(
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

fn other<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    shape: &Shape,
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    let value = match a.at(2)? {
        Operand::Constant(constant @ (Constant::Bool(_) | Constant::Int(_) | Constant::Float(_))) => {
            literal(c, constant, dtype)?
        }
        operand => tensor(c, operand, 2)?,
    };
    let ty = c.builder().type_of(&value);
    if ty.dtype().is_none() {
        return Err(SemanticError::new(Code::MaskMismatch, "`other` is a number, not a pointer")
            .argument(2, format!("this is {ty}"))
            .note(format!("found {}, expected {dtype}", ty.element)));
    }
    match common_shape(shape, &ty.shape) {
        Ok(common) if common == *shape => {}
        _ => return Err(mask_shape(a, 2, shape, &ty.shape)),
    }
    let value = cast(c, value, dtype)?;
    broadcast_to(c, value, shape)
}

/// The mask of what has the shape of the pointers.
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

/// The value to store, which is the argument with a number, in the type and shape of the memory.
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
