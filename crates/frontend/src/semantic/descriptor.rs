//! Defines the rules of block pointers and tensor descriptors.

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::{
    Builder, CacheModifier, Dtype, Element, ElementwiseFn as F, EvictionPolicy, HintKind, IntList, Literal,
    Rounding, Shape, Type,
};

use super::access::{check_writable, stored};
use super::arguments::{Arguments, count, flatten};
use super::convert::{broadcast_to, cast, cast_element, describe, literal};
use super::parts::bytes_of_part;
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::descriptor::{Descriptor, DescriptorForm, DescriptorKind, Padding};
use crate::types::LanguageType;
use crate::value::{Constant, Operand};

/// A block pointer or descriptor whose parts are operands of a caller.
pub(super) type DescriptorOf<C> = Descriptor<Op<C>>;

/// `make_block_ptr(base, shape, strides, offsets, block_shape, order)`.
pub(super) fn make_block_ptr<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (base, _) = scalar_pointer(c, a)?;
    let block_shape = a.shape(c, 4)?;
    let [shape, strides, offsets] = [integers(c, a, 1)?, integers(c, a, 2)?, integers(c, a, 3)?];
    let rank = block_shape.len();
    if rank == 0 {
        return Err(SemanticError::new(Code::InvalidValue, "a block pointer has at least one axis")
            .argument(4, "this has none")
            .hint("load through the pointer itself: `tl.load(ptr)`"));
    }
    for (index, length) in [(1, shape.len()), (2, strides.len()), (3, offsets.len())] {
        same_rank(a, 4, rank, index, length)?;
    }
    check_order(c, a, rank)?;
    let form = DescriptorForm {
        kind: DescriptorKind::BlockPointer,
        block_shape,
        padding: Padding::Zero,
        layout: None,
        window: None,
    };
    let base = move_pointer(c, base, &offsets, &strides)?;
    Ok(assemble(form, base, [shape, strides, offsets].concat()))
}

/// `advance(base, offsets)`.
pub(super) fn advance<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let pointer = of_kind(c, a, DescriptorKind::BlockPointer)?;
    let by = integers(c, a, 1)?;
    if by.len() != pointer.rank() {
        return Err(SemanticError::new(
            Code::InvalidValue,
            format!(
                "a block pointer with {} is moved by as many offsets",
                count(pointer.rank(), "axis", "axes")
            ),
        )
        .argument(0, format!("this has blocks of shape {}", pointer.form.block_shape))
        .argument(1, format!("{} given", count(by.len(), "offset is", "offsets are")))
        .hint("write an offset for each axis; 0 where it does not move"));
    }
    let base = pointer_of(&pointer)?;
    let base = move_pointer(c, base, &by, pointer.strides())?;
    let mut offsets = Vec::with_capacity(by.len());
    for (offset, by) in pointer.offsets().to_vec().iter().zip(&by) {
        offsets.push(combine(c, F::Add, offset, by)?);
    }
    Ok(Operand::Descriptor(Box::new(pointer.moved(Operand::Tensor(base), offsets))))
}

/// `make_tensor_descriptor(base, shape, strides, block_shape, padding_option)`.
pub(super) fn make_tensor_descriptor<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (base, dtype) = scalar_pointer(c, a)?;
    let block_shape = a.shape(c, 3)?;
    let (shape, mut strides) = (integers(c, a, 1)?, integers(c, a, 2)?);
    let rank = shape.len();
    if !(1..=5).contains(&rank) {
        return Err(SemanticError::new(
            Code::InvalidValue,
            format!("a tensor descriptor has 1 to 5 axes, and `shape` has {rank} (1 <= ndim <= 5)"),
        )
        .argument(1, format!("this has {}", count(rank, "extent", "extents"))));
    }
    same_rank(a, 1, rank, 2, strides.len())?;
    same_rank(a, 1, rank, 3, block_shape.len())?;
    let padding = if a.spec.parameters.len() > 4 {
        a.choice(c, 4, PADDING)?.unwrap_or_default()
    } else {
        Padding::Zero
    };
    check_last_stride(c, strides.last())?;
    if let Some(last) = strides.last_mut() {
        *last = Operand::Constant(Constant::Int(1));
    }
    check_width(&block_shape, dtype, 3)?;
    check_padding(padding, dtype, 4)?;
    let base = describe_alignment(c, base, &mut strides, dtype)?;
    let form =
        DescriptorForm { kind: DescriptorKind::Tensor, block_shape, padding, layout: None, window: None };
    Ok(assemble(form, base, [shape, strides].concat()))
}

/// Adds hints that the base and the outer strides are multiples of 16 bytes, as tensor copies
/// require. GPU code relies on them if the base or a stride is loaded, because the launcher does
/// not know its alignment. A sanitizer checks them.
fn describe_alignment<C: Caller + ?Sized>(
    c: &mut C,
    base: ValueOf<C>,
    strides: &mut [Op<C>],
    dtype: Dtype,
) -> Semantic<ValueOf<C>> {
    let list = |numbers: [i64; 2]| numbers.into_iter().collect::<IntList>();
    let base = c.builder().hint(base, HintKind::Described, list([16, 0]))?;
    let multiple = 16 / dtype.bytes() as i64;
    let outer = strides.len() - 1;
    for (part, stride) in (1..).zip(&mut strides[..outer]) {
        let value = match c.known(stride) {
            Some(Constant::Int(number)) if number % i128::from(multiple) == 0 => continue,
            Some(Constant::Int(number)) => literal(c, &Constant::Int(number), Dtype::I64)?,
            _ => match stride {
                Operand::Tensor(value) => value.clone(),
                _ => continue,
            },
        };
        let described = c.builder().hint(value, HintKind::Described, list([multiple, part]))?;
        if let Operand::Tensor(value) = stride {
            *value = described;
        }
    }
    Ok(base)
}

fn assemble<V>(form: DescriptorForm, base: V, integers: Vec<Operand<V>>) -> Operand<V> {
    let parts = std::iter::once(Operand::Tensor(base)).chain(integers).collect();
    let descriptor = Descriptor::new(Arc::new(form), parts).expect("each axis has its parts");
    Operand::Descriptor(Box::new(descriptor))
}

/// The values of `padding_option`.
pub(super) const PADDING: &[(&str, Option<Padding>)] =
    &[("", None), ("zero", Some(Padding::Zero)), ("nan", Some(Padding::Nan))];

fn scalar_pointer<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<(ValueOf<C>, Dtype)> {
    let operand = a.at(0)?;
    if let Operand::Tensor(value) = operand {
        let ty = c.builder().type_of(value);
        if let (true, Some(pointee)) = (ty.is_scalar(), ty.element.pointee()) {
            return Ok((value.clone(), pointee));
        }
    }
    let found = describe(c, operand);
    Err(SemanticError::new(Code::TypeMismatch, format!("`base` of `{}` must be a pointer", a.spec.name))
        .argument(0, format!("this is {found}"))
        .note(format!("found {found}, expected a scalar pointer such as *fp32"))
        .hint(
            "pass the pointer to the tensor's first element; `shape`, `strides` and `offsets` state the rest",
        ))
}

fn of_kind<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    kind: DescriptorKind,
) -> Semantic<DescriptorOf<C>> {
    let operand = a.at(0)?;
    if let Operand::Descriptor(descriptor) = operand
        && descriptor.form.kind == kind
        && descriptor.form.window.is_none()
    {
        return Ok((**descriptor).clone());
    }
    let found = describe(c, operand);
    let (expected, maker) = match kind {
        DescriptorKind::BlockPointer => ("a block pointer", "tl.make_block_ptr"),
        DescriptorKind::Tensor => ("a tensor descriptor", "tl.make_tensor_descriptor"),
    };
    Err(SemanticError::new(Code::TypeMismatch, format!("`{}` takes {expected}", a.spec.name))
        .argument(0, format!("this is {found}"))
        .note(format!("found {found}, expected {expected}"))
        .hint(format!("`{maker}` makes one")))
}

/// Returns the integers of a tuple. Compile-time integers stay, and scalars become int64.
fn integers<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, index: usize) -> Semantic<Vec<Op<C>>> {
    let mut items = flatten(a.at(index)?);
    // A tuple `(offsets,)` is replaced by its item if that is a tuple.
    while let [Operand::Tuple(_) | Operand::Constant(Constant::Tuple(_))] = &items[..] {
        items = flatten(&items[0]);
    }
    let integers = items.iter().map(|item| integer(c, a, index, item));
    integers.collect()
}

fn integer<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    item: &Op<C>,
) -> Semantic<Op<C>> {
    match item {
        Operand::Constant(Constant::Int(value)) if i64::try_from(*value).is_ok() => return Ok(item.clone()),
        Operand::Constant(Constant::Bool(value)) => {
            return Ok(Operand::Constant(Constant::Int(i128::from(*value))));
        }
        Operand::Tensor(value) => {
            let ty = c.builder().type_of(value);
            if ty.is_scalar() && ty.dtype().is_some_and(Dtype::is_int) {
                return Ok(Operand::Tensor(cast(c, value.clone(), Dtype::I64)?));
            }
        }
        _ => {}
    }
    let found = match item {
        Operand::Constant(constant) => c.show(constant),
        other => describe(c, other),
    };
    let name = a.name(index);
    Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` of `{}` holds integers", a.spec.name))
        .argument(index, format!("this holds {found}"))
        .note(format!("found {found}, expected scalars of an integer type")))
}

/// Checks that argument `index` has as many items as argument `first`.
fn same_rank<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    first: usize,
    expected: usize,
    index: usize,
    found: usize,
) -> Semantic<()> {
    if found == expected {
        return Ok(());
    }
    let (name, other) = (a.name(index), a.name(first));
    let items = count(found, "item", "items");
    let message = format!("`{name}` of `{}` has {items} and `{other}` has {expected}", a.spec.name);
    Err(SemanticError::new(Code::InvalidValue, message)
        .argument(index, format!("this has {}", count(found, "item", "items")))
        .argument(first, format!("this has {}", count(expected, "item", "items")))
        .note("expected one item for each axis (shape, strides and the block have the same length)"))
}

/// Checks that `order`, from the fastest axis to the slowest, is a permutation. The strides
/// determine the layout, so it has no other effect.
fn check_order<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, rank: usize) -> Semantic<()> {
    let order = a.ints(c, 5)?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank as i128) {
        return Ok(());
    }
    let all: Vec<String> = (0..rank).rev().map(|axis| axis.to_string()).collect();
    Err(SemanticError::new(
        Code::InvalidValue,
        "Expected a permutation of (0, 1, ..., len(order)-1) in order",
    )
    .argument(5, "this is not a permutation")
    .note(format!("found {order:?}, expected each axis from 0 to {} once", rank - 1))
    .hint(format!("for a tensor in rows write `order=({})`", all.join(", "))))
}

fn check_last_stride<C: Caller + ?Sized>(c: &mut C, last: Option<&Op<C>>) -> Semantic<()> {
    let Some(last) = last else { return Ok(()) };
    let known = c.known(last);
    if known == Some(Constant::Int(1)) {
        return Ok(());
    }
    let found = match &known {
        Some(constant) => c.show(constant),
        None => "a value that is known at run time only".into(),
    };
    Err(SemanticError::new(Code::InvalidValue, format!("Tensor descriptor last dim must be 1 but got {found}"))
        .argument(2, format!("the last stride of this is {found}"))
        .note("a block is copied in rows of consecutive elements: the last stride is 1, known at compile time")
        .hint("write the last stride as `1`; for a tensor in columns describe its transpose and `tl.trans` the block"))
}

/// Checks that the rows of a block have at least 16 bytes.
fn check_width(block_shape: &Shape, dtype: Dtype, index: usize) -> Semantic<()> {
    let (columns, bytes) = (block_shape.last().copied().unwrap_or(1), dtype.bytes());
    let width = columns as usize * bytes;
    if width >= 16 {
        return Ok(());
    }
    Err(SemanticError::new(
        Code::InvalidValue,
        format!(
            "Descriptor block shape must have at least 16 bytes in the last dimension, but got {columns} * {bytes} = \
             {width} bytes"
        ),
    )
    .argument(index, format!("the last extent of this is {columns}"))
    .hint(format!("use a block of {} columns or more", 16 / bytes)))
}

fn check_padding(padding: Padding, dtype: Dtype, index: usize) -> Semantic<()> {
    if padding == Padding::Zero || dtype.is_float() {
        return Ok(());
    }
    Err(SemanticError::new(
        Code::InvalidValue,
        format!("Padding option `nan` is not supported for integer blocks, and these hold {dtype}"),
    )
    .argument(index, "integers have no NaN")
    .hint("use \"zero\""))
}

fn pointer_of<V: Clone>(descriptor: &Descriptor<Operand<V>>) -> Semantic<V> {
    match descriptor.base() {
        Operand::Tensor(value) => Ok(value.clone()),
        _ => Err(SemanticError::new(Code::TypeMismatch, "the base is no pointer")),
    }
}

fn int64<C: Caller + ?Sized>(c: &mut C, part: &Op<C>) -> Semantic<ValueOf<C>> {
    match part {
        Operand::Tensor(value) => cast(c, value.clone(), Dtype::I64),
        Operand::Constant(constant) => literal(c, constant, Dtype::I64),
        other => super::convert::tensor(c, other, 0),
    }
}

fn constant_int<V>(part: &Operand<V>) -> Option<i128> {
    match part.constant()? {
        Constant::Int(value) => Some(*value),
        _ => None,
    }
}

/// Computes the sum or product of two integers, at compile time if possible.
fn combine<C: Caller + ?Sized>(c: &mut C, function: F, x: &Op<C>, y: &Op<C>) -> Semantic<Op<C>> {
    match (function, constant_int(x), constant_int(y)) {
        (F::Mul, Some(0), _) | (F::Mul, _, Some(0)) => Ok(Operand::Constant(Constant::Int(0))),
        (F::Mul, Some(1), _) | (F::Add, Some(0), _) => Ok(y.clone()),
        (F::Mul, _, Some(1)) | (F::Add, _, Some(0)) => Ok(x.clone()),
        (F::Add, Some(x), Some(y)) => Ok(Operand::Constant(Constant::Int(i128::from((x + y) as i64)))),
        (F::Mul, Some(x), Some(y)) => {
            Ok(Operand::Constant(Constant::Int(i128::from(x.wrapping_mul(y) as i64))))
        }
        // tidy: wildcard because callers only compute sums and products
        _ => {
            let (x, y) = (int64(c, x)?, int64(c, y)?);
            Ok(Operand::Tensor(c.builder().binary(function, x, y)?))
        }
    }
}

/// Moves a pointer by `by[axis]` elements along each axis.
fn move_pointer<C: Caller + ?Sized>(
    c: &mut C,
    mut pointer: ValueOf<C>,
    by: &[Op<C>],
    strides: &[Op<C>],
) -> Semantic<ValueOf<C>> {
    for (by, stride) in by.iter().zip(strides) {
        let distance = combine(c, F::Mul, by, stride)?;
        if constant_int(&distance) != Some(0) {
            let distance = int64(c, &distance)?;
            pointer = c.builder().ptr_add(pointer, distance)?;
        }
    }
    Ok(pointer)
}

/// Converts a descriptor as an assignment does: integers become int64. The last stride of a tensor
/// descriptor remains the compile-time 1, which another descriptor may need.
pub fn decay_descriptor<C: Caller + ?Sized>(c: &mut C, descriptor: &DescriptorOf<C>) -> Semantic<Op<C>> {
    let is_tensor = descriptor.form.kind == DescriptorKind::Tensor;
    let fixed = is_tensor.then_some(descriptor.parts().len() - 1);
    let mut places = 0..;
    let decayed = descriptor.try_map(|part| match part {
        _ if places.next() == fixed => Ok(part.clone()),
        Operand::Tensor(value) if c.builder().type_of(value).element.pointee().is_some() => Ok(part.clone()),
        integer => int64(c, integer).map(Operand::Tensor),
    })?;
    Ok(Operand::Descriptor(Box::new(decayed)))
}

/// The pointers to the elements of a block, and the mask of those within the tensor.
pub(super) struct Block<V> {
    pub pointers: V,
    /// The mask; `None` if no axis is checked.
    pub mask: Option<V>,
}

/// Broadcasts a 1-D tile to a block. The tile varies along `axis`.
fn along<C: Caller + ?Sized>(
    c: &mut C,
    mut tile: ValueOf<C>,
    axis: usize,
    shape: &Shape,
) -> Semantic<ValueOf<C>> {
    for place in (0..shape.len()).filter(|place| *place != axis) {
        tile = c.builder().expand_dims(tile, place as u32)?;
    }
    broadcast_to(c, tile, shape)
}

/// Returns the pointers to a block, and the mask for the `checked` axes. `pointer` is the first
/// element, at `offsets` in the tensor.
fn elements<C: Caller + ?Sized>(
    c: &mut C,
    descriptor: &DescriptorOf<C>,
    pointer: ValueOf<C>,
    offsets: &[Op<C>],
    checked: &[bool],
) -> Semantic<Block<ValueOf<C>>> {
    let shape = &descriptor.form.block_shape;
    let mut pointers = c.builder().splat(pointer, shape.clone())?;
    let mut mask = None;
    for (axis, &extent) in shape.iter().enumerate() {
        let places = c.builder().arange(0, i64::from(extent))?;
        let wide = cast(c, places.clone(), Dtype::I64)?;
        let stride = int64(c, &descriptor.strides()[axis])?;
        let stride = broadcast_to(c, stride, &Shape::from([extent]))?;
        let distances = c.builder().binary(F::Mul, wide, stride)?;
        let distances = along(c, distances, axis, shape)?;
        pointers = c.builder().ptr_add(pointers, distances)?;
        if checked[axis] {
            let inside = within(c, places, &offsets[axis], &descriptor.shape()[axis], extent)?;
            let inside = along(c, inside, axis, shape)?;
            mask = Some(match mask {
                None => inside,
                Some(mask) => c.builder().binary(F::And, mask, inside)?,
            });
        }
    }
    Ok(Block { pointers, mask })
}

/// Returns a mask over `places`, the indices of a block along one axis: true where `offset` plus
/// the index is below `size`. The bounds are computed once in 64 bits, and the comparisons in 32.
fn within<C: Caller + ?Sized>(
    c: &mut C,
    places: ValueOf<C>,
    offset: &Op<C>,
    size: &Op<C>,
    extent: u32,
) -> Semantic<ValueOf<C>> {
    let (offset, size) = (int64(c, offset)?, int64(c, size)?);
    let zero = c.builder().constant(Literal::int(Dtype::I64, 0))?;
    let before = c.builder().binary(F::Sub, zero, offset.clone())?;
    let after = c.builder().binary(F::Sub, size, offset)?;
    let [first, end] = [clamp(c, before, extent)?, clamp(c, after, extent)?];
    let shape = Shape::from([extent]);
    let (first, end) = (broadcast_to(c, first, &shape)?, broadcast_to(c, end, &shape)?);
    let from = c.builder().binary(F::Ge, places.clone(), first)?;
    let until = c.builder().binary(F::Lt, places, end)?;
    Ok(c.builder().binary(F::And, from, until)?)
}

/// Clamps an int64 to the range from 0 to `most`, as an int32.
fn clamp<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, most: u32) -> Semantic<ValueOf<C>> {
    let zero = c.builder().constant(Literal::int(Dtype::I64, 0))?;
    let most = c.builder().constant(Literal::int(Dtype::I64, i128::from(most)))?;
    let value = c.builder().binary(F::Max, value, zero)?;
    let value = c.builder().binary(F::Min, value, most)?;
    cast(c, value, Dtype::I32)
}

/// Returns the pointers and the mask of an access through a block pointer. `boundary_check` is an
/// argument index.
pub(super) fn block_of_pointer<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    pointer: &DescriptorOf<C>,
    boundary_check: usize,
) -> Semantic<Block<ValueOf<C>>> {
    let mut checked = vec![false; pointer.rank()];
    let named = if a.is_none(boundary_check) { Vec::new() } else { a.ints(c, boundary_check)? };
    for axis in named {
        let axis = a.wrap_axis(boundary_check, axis, pointer.rank())?;
        if std::mem::replace(&mut checked[axis], true) {
            let message = format!("axis {axis} is twice in `boundary_check`");
            return Err(SemanticError::new(Code::InvalidValue, message)
                .argument(boundary_check, "expected different axes"));
        }
    }
    let base = memory_pointer(c, pointer)?;
    elements(c, pointer, base, pointer.offsets(), &checked)
}

/// Returns the base. A pointer to booleans becomes a pointer to bytes.
fn memory_pointer<C: Caller + ?Sized>(c: &mut C, descriptor: &DescriptorOf<C>) -> Semantic<ValueOf<C>> {
    let base = pointer_of(descriptor)?;
    let pointee = element_type(c, descriptor)?;
    let element = if pointee.is_bool() { Dtype::I8 } else { pointee };
    cast_element(c, base, Element::Pointer(element), Rounding::default())
}

pub(super) fn element_type<C: Caller + ?Sized>(c: &mut C, descriptor: &DescriptorOf<C>) -> Semantic<Dtype> {
    let base = pointer_of(descriptor)?;
    let pointee = c.builder().type_of(&base).element.pointee();
    pointee.ok_or_else(|| SemanticError::new(Code::TypeMismatch, "the base is no pointer"))
}

/// Returns the value of a load where the mask is false. `None` means 0.
pub(super) fn padding_value<C: Caller + ?Sized>(
    c: &mut C,
    padding: Padding,
    dtype: Dtype,
    shape: &Shape,
) -> Semantic<Option<ValueOf<C>>> {
    match padding {
        Padding::Zero => Ok(None),
        Padding::Nan => {
            let nan = literal(c, &Constant::Float(f64::NAN), dtype)?;
            broadcast_to(c, nan, shape).map(Some)
        }
    }
}

/// Returns the argument `padding_option` of a load through a block pointer.
pub(super) fn padding_option<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    dtype: Dtype,
) -> Semantic<Padding> {
    let padding = a.choice(c, index, PADDING)?.unwrap_or_default();
    check_padding(padding, dtype, index)?;
    Ok(padding)
}

/// Returns the attribute `name` of a block pointer or descriptor, or `None` for any other name.
pub(super) fn descriptor_attribute<C: Caller + ?Sized>(
    c: &mut C,
    descriptor: &DescriptorOf<C>,
    name: &str,
) -> Semantic<Option<Op<C>>> {
    let dtype = element_type(c, descriptor)?;
    let block_shape = &descriptor.form.block_shape;
    let constant = |constant| Ok(Some(Operand::Constant(constant)));
    match (descriptor.form.kind, name) {
        (DescriptorKind::BlockPointer, "dtype" | "type") => constant(Constant::Type(Type::pointer(dtype))),
        (DescriptorKind::Tensor, "dtype") => constant(Constant::dtype(dtype)),
        (DescriptorKind::Tensor, "base") => Ok(Some(descriptor.base().clone())),
        (DescriptorKind::Tensor, "block_type") => {
            constant(Constant::Type(Type::scalar(dtype).with_shape(block_shape.clone())))
        }
        (DescriptorKind::Tensor, "type") => {
            let block = Constant::Type(Type::scalar(dtype).with_shape(block_shape.clone()));
            let integers = |dtype| {
                LanguageType::tuple(vec![Constant::dtype(dtype); descriptor.rank()], None).into_constant()
            };
            let parts = [block, integers(Dtype::I32), integers(Dtype::I64)];
            constant(LanguageType::Descriptor(Box::new(parts)).into_constant())
        }
        (DescriptorKind::Tensor, "block_shape") => {
            let extents = block_shape.iter().map(|&extent| Constant::Int(i128::from(extent)));
            constant(Constant::Tuple(extents.collect()))
        }
        (DescriptorKind::Tensor, "layout") => match &descriptor.form.layout {
            Some(layout) => Ok(c.layout_object(layout).map(Operand::Constant)),
            None => Ok(None),
        },
        (DescriptorKind::Tensor, "nbytes_per_cta") => constant(bytes_of_part(&descriptor.form, dtype)),
        (DescriptorKind::Tensor, "shape") => items(c, descriptor.shape(), Dtype::I32).map(Some),
        (DescriptorKind::Tensor, "strides") => items(c, descriptor.strides(), Dtype::I64).map(Some),
        _ => Ok(None),
    }
}

/// Returns the names of attributes and methods, for suggestions.
pub(super) fn descriptor_names(kind: DescriptorKind) -> &'static [&'static str] {
    match kind {
        DescriptorKind::BlockPointer => &["dtype", "type", "advance", "store"],
        DescriptorKind::Tensor => {
            const NAMES: &[&str] = &[
                "dtype",
                "type",
                "base",
                "block_type",
                "block_shape",
                "shape",
                "strides",
                "load",
                "store",
                "gather",
                "scatter",
                "atomic_add",
                "atomic_and",
                "atomic_max",
                "atomic_min",
                "atomic_or",
                "atomic_xor",
            ];
            NAMES
        }
    }
}

/// Returns integers as a tuple. Run-time integers are converted to `dtype`.
fn items<C: Caller + ?Sized>(c: &mut C, parts: &[Op<C>], dtype: Dtype) -> Semantic<Op<C>> {
    if let Some(constants) = parts.iter().map(|part| part.constant().cloned()).collect::<Option<Vec<_>>>() {
        return Ok(Operand::Constant(Constant::Tuple(constants.into())));
    }
    let mut items = Vec::with_capacity(parts.len());
    for part in parts {
        items.push(match part {
            Operand::Tensor(value) => Operand::Tensor(cast(c, value.clone(), dtype)?),
            constant => constant.clone(),
        });
    }
    Ok(Operand::Tuple(items.into()))
}

/// `desc.load(offsets)`. `_experimental_descriptor_load` also repeats the block's shape and type.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let descriptor = of_kind(c, a, DescriptorKind::Tensor)?;
    let dtype = element_type(c, &descriptor)?;
    if a.spec.parameters.len() > 2 {
        same_block(c, a, &descriptor, dtype)?;
    }
    let block = block_at(c, a, &descriptor, 1)?;
    read(c, block, &descriptor.form, dtype)
}

/// `desc.store(offsets, value)`, with the indices of the arguments.
pub(super) fn store<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    offsets: usize,
    value: usize,
) -> Semantic<Op<C>> {
    let descriptor = of_kind(c, a, DescriptorKind::Tensor)?;
    let dtype = element_type(c, &descriptor)?;
    let block = block_at(c, a, &descriptor, offsets)?;
    write(c, a, block, value, dtype)
}

/// Returns the pointers, the mask and the type of a block. Argument 0 is the descriptor, and
/// argument 1 the offsets.
pub(super) fn block_at_offsets<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<(Block<ValueOf<C>>, Dtype)> {
    let descriptor = of_kind(c, a, DescriptorKind::Tensor)?;
    let dtype = element_type(c, &descriptor)?;
    Ok((block_at(c, a, &descriptor, 1)?, dtype))
}

/// `desc.gather(x_offsets, y_offset)`.
pub(super) fn gather<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let descriptor = of_kind(c, a, DescriptorKind::Tensor)?;
    let dtype = element_type(c, &descriptor)?;
    let block = rows_at(c, a, &descriptor, 1)?;
    read(c, block, &descriptor.form, dtype)
}

/// `desc.scatter(value, x_offsets, y_offset)`.
pub(super) fn scatter<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let descriptor = of_kind(c, a, DescriptorKind::Tensor)?;
    let dtype = element_type(c, &descriptor)?;
    let block = rows_at(c, a, &descriptor, 2)?;
    write(c, a, block, 1, dtype)
}

fn read<C: Caller + ?Sized>(
    c: &mut C,
    block: Block<ValueOf<C>>,
    form: &DescriptorForm,
    dtype: Dtype,
) -> Semantic<Op<C>> {
    let shape = c.builder().type_of(&block.pointers).shape;
    let other = padding_value(c, form.padding, dtype, &shape)?;
    let options = (CacheModifier::Default, EvictionPolicy::Default, false);
    let value = c.builder().load(block.pointers, block.mask, other, options)?;
    Ok(Operand::Tensor(cast(c, value, dtype)?))
}

fn write<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    block: Block<ValueOf<C>>,
    value: usize,
    dtype: Dtype,
) -> Semantic<Op<C>> {
    check_writable(c, &block.pointers)?;
    let ty = c.builder().type_of(&block.pointers);
    let value = stored(c, a, value, &ty, dtype)?;
    let options = (CacheModifier::Default, EvictionPolicy::Default);
    c.builder().store(block.pointers, value, block.mask, options)?;
    Ok(Operand::Constant(Constant::None))
}

/// Returns the pointers and the mask of the block at the offsets in argument `index`.
fn block_at<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    descriptor: &DescriptorOf<C>,
    index: usize,
) -> Semantic<Block<ValueOf<C>>> {
    let offsets = integers(c, a, index)?;
    let rank = descriptor.rank();
    if offsets.len() != rank {
        let message = format!("expected {rank} offsets, but got {}", offsets.len());
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(index, format!("this has {}", count(offsets.len(), "offset", "offsets")))
            .argument(0, format!("this has blocks of shape {}", descriptor.form.block_shape))
            .hint("write one offset for each axis, in elements"));
    }
    let base = memory_pointer(c, descriptor)?;
    let base = move_pointer(c, base, &offsets, descriptor.strides())?;
    elements(c, descriptor, base, &offsets, &vec![true; rank])
}

/// Returns the pointers and the mask of rows from one column on. Argument `index` has the rows, and
/// the next argument the column.
fn rows_at<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    descriptor: &DescriptorOf<C>,
    index: usize,
) -> Semantic<Block<ValueOf<C>>> {
    let form = &descriptor.form;
    let [1, columns] = form.block_shape[..] else {
        let message = format!("`{}` takes single rows: the descriptor must have blocks [1, N]", a.spec.name);
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(0, format!("this has blocks of shape {}", form.block_shape))
            .hint("make the descriptor with `block_shape=[1, N]`; the offsets say how many rows"));
    };
    let (rows, ty) = a.typed(c, index)?;
    if ty.rank() != 1 || !ty.dtype().is_some_and(Dtype::is_int) {
        let message = format!("`{}` of `{}` must be a 1D tile of integers", a.name(index), a.spec.name);
        return Err(SemanticError::new(Code::TypeMismatch, message)
            .argument(index, format!("this is {ty}"))
            .note(format!("found {ty}, expected a tile of row numbers such as int32[8]")));
    }
    let column = integer(c, a, index + 1, a.at(index + 1)?)?;
    let shape = Shape::from([ty.shape[0], columns]);
    super::convert::check_size(&shape).map_err(|error| error.argument(index, format!("this is {ty}")))?;
    // The columns are addressed and checked as in a block with one row.
    let zero = Operand::Constant(Constant::Int(0));
    let base = memory_pointer(c, descriptor)?;
    let base = move_pointer(c, base, std::slice::from_ref(&column), &descriptor.strides()[1..])?;
    let row = elements(c, descriptor, base, &[zero, column], &[false, true])?;
    let (pointers, mask) = (broadcast_to(c, row.pointers, &shape)?, row.mask);
    let stride = int64(c, &descriptor.strides()[0])?;
    let size = int64(c, &descriptor.shape()[0])?;
    let rows = cast(c, rows, Dtype::I64)?;
    let (stride, size) = (broadcast_to(c, stride, &ty.shape)?, broadcast_to(c, size, &ty.shape)?);
    let zeros = c.builder().constant(Literal::int(Dtype::I64, 0))?;
    let zeros = broadcast_to(c, zeros, &ty.shape)?;
    let from = c.builder().binary(F::Ge, rows.clone(), zeros)?;
    let until = c.builder().binary(F::Lt, rows.clone(), size)?;
    let inside = c.builder().binary(F::And, from, until)?;
    let mut mask_of_all = along(c, inside, 0, &shape)?;
    if let Some(mask) = mask {
        let mask = broadcast_to(c, mask, &shape)?;
        mask_of_all = c.builder().binary(F::And, mask_of_all, mask)?;
    }
    let distances = c.builder().binary(F::Mul, rows, stride)?;
    let distances = along(c, distances, 0, &shape)?;
    let pointers = c.builder().ptr_add(pointers, distances)?;
    Ok(Block { pointers, mask: Some(mask_of_all) })
}

/// Checks the arguments `shape` and `dtype` of `_experimental_descriptor_load` against the
/// descriptor.
fn same_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    descriptor: &DescriptorOf<C>,
    dtype: Dtype,
) -> Semantic<()> {
    let (shape, given) = (a.ints(c, 2)?, a.dtype(c, 3)?);
    let expected = &descriptor.form.block_shape;
    if !shape.iter().copied().eq(expected.iter().map(|&extent| i128::from(extent))) {
        let message = format!("the descriptor has blocks of shape {expected}, and `shape` is {shape:?}");
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(2, format!("this is {shape:?}"))
            .argument(0, format!("this has blocks of shape {expected}")));
    }
    if given != dtype {
        let message = format!("the descriptor is of {dtype}, and `dtype` is {given}");
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(3, format!("this is {given}"))
            .argument(0, format!("this is of {dtype}")));
    }
    Ok(())
}
