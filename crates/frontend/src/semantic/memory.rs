//! Defines the rules of `load` and `store`.

use tilewright_base::Code;
use tilewright_ir::{Builder, CacheModifier, Dtype, Element, EvictionPolicy, Rounding, Shape};

use super::access::{check_writable, fitting_mask, mask, mask_shape, pointer, stored};
use super::arguments::Arguments;
use super::convert::{broadcast_to, cast, cast_element, common_shape, literal, tensor};
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

/// `load(pointer, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy,
/// volatile)`.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if let Some(block) = block_pointer(a) {
        return load_block(c, a, &block);
    }
    let (pointer, ty, dtype) = pointer(c, a)?;
    no_block_pointers(c, a, &[3, 4])?;
    let cache = cache_modifier(c, a, 5, LOAD_CACHE)?;
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
    // Booleans are bytes in memory, and every byte other than 0 is true.
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
    let cache = cache_modifier(c, a, 4, STORE_CACHE)?;
    let eviction = a.choice(c, 5, EVICTION)?;
    check_writable(c, &pointer)?;
    let value = stored(c, a, 1, &ty, dtype)?;
    let mask = fitting_mask(c, a, 2, &ty)?;
    let element = if dtype.is_bool() { Dtype::I8 } else { dtype };
    let pointer = cast_element(c, pointer, Element::Pointer(element), Rounding::default())?;
    c.builder().store(pointer, value, mask, (cache, eviction))?;
    Ok(Operand::Constant(Constant::None))
}

/// Returns a cache modifier. The dot may be missing, and "none" is the default.
pub(super) fn cache_modifier<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    choices: &[(&'static str, CacheModifier)],
) -> Semantic<CacheModifier> {
    let text = a.string(c, index)?.unwrap_or_default();
    let bare = text.strip_prefix('.').unwrap_or(&text);
    let bare = if bare == "none" { "" } else { bare };
    match choices.iter().find(|(name, _)| name.trim_start_matches('.').eq_ignore_ascii_case(bare)) {
        Some((_, modifier)) => Ok(*modifier),
        None => a.choice(c, index, choices),
    }
}

/// Returns argument 0, if it is a block pointer.
fn block_pointer<C: Caller + ?Sized>(a: &Arguments<'_, C>) -> Option<DescriptorOf<C>> {
    match a.at(0) {
        Ok(Operand::Descriptor(block)) if block.form.kind == DescriptorKind::BlockPointer => {
            Some((**block).clone())
        }
        _ => None,
    }
}

fn load_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    block: &DescriptorOf<C>,
) -> Semantic<Op<C>> {
    no_mask(a, &[1, 2])?;
    let dtype = descriptor::element_type(c, block)?;
    let padding = descriptor::padding_option(c, a, 4, dtype)?;
    let (cache, eviction) = (cache_modifier(c, a, 5, LOAD_CACHE)?, a.choice(c, 6, EVICTION)?);
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

fn store_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    block: &DescriptorOf<C>,
) -> Semantic<Op<C>> {
    no_mask(a, &[2])?;
    let dtype = descriptor::element_type(c, block)?;
    let (cache, eviction) = (cache_modifier(c, a, 4, STORE_CACHE)?, a.choice(c, 5, EVICTION)?);
    let elements = descriptor::block_of_pointer(c, a, block, 3)?;
    check_writable(c, &elements.pointers)?;
    let ty = c.builder().type_of(&elements.pointers);
    let value = stored(c, a, 1, &ty, dtype)?;
    c.builder().store(elements.pointers, value, elements.mask, (cache, eviction))?;
    Ok(Operand::Constant(Constant::None))
}

/// Reports `mask` or `other` in an access through a block pointer, which has boundary checks
/// instead.
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
        return Err(SemanticError::new(Code::MaskMismatch, "`other` must be a number, not a pointer")
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
