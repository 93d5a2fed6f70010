//! Defines the type rules: the result types of each op, or the error in its operands.
#![expect(clippy::trivially_copy_pass_by_ref, reason = "attributes come to every rule by reference")]

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_layout::{Misfit, StatedLayout};

use crate::attributes::{
    AtomicKind, CacheModifier, EvictionPolicy, Failure, GridDependency, HintKind, InputPrecision, IntList,
    Literal, MachineQuantity, MemoryScope, MemorySemantics, Rounding,
};
use crate::device::DeviceFn;
use crate::elementwise::ElementwiseFn;
use crate::function::FuncId;
use crate::inline_asm::AsmTemplate;
use crate::ops::{ANY_REGIONS, DtypeList, LoopOptions, Op, OpFamily, OpInfo, ShapeOp, TypeList};
use crate::rule_input::{RuleError, RuleErrorKind, RuleInput};
use crate::scaled::ScaledFormat;
use crate::types::{Dtype, Element, Shape, Type};

/// The maximum number of elements of a tile.
pub const MAX_TILE_ELEMENTS: usize = 1 << 20;

/// The maximum number of axes of a tile.
pub const MAX_RANK: usize = 20;

type Result<T = Vec<Type>> = std::result::Result<T, RuleError>;

fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(RuleError::new(message, RuleErrorKind::Types))
}

fn one(ty: Type) -> Result {
    check_size(&ty.shape)?;
    Ok(vec![ty])
}

fn check_size(shape: &Shape) -> Result<()> {
    if shape.len() > MAX_RANK {
        return fail(format!("a tile must have at most {MAX_RANK} axes, found {shape}"));
    }
    let elements = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent as usize));
    match elements {
        Some(count) if count <= MAX_TILE_ELEMENTS => Ok(()),
        _ => fail(format!("a tile must have at most {MAX_TILE_ELEMENTS} elements, found {shape}")),
    }
}

fn scalar_int(ty: &Type, what: &str) -> Result<()> {
    match ty.dtype() {
        Some(dtype) if ty.is_scalar() && dtype.is_int() && !dtype.is_bool() => Ok(()),
        _ => fail(format!("{what} must be a scalar integer, found {ty}")),
    }
}

fn same_types(found: &[Type], expected: &[Type], what: &str) -> Result<()> {
    if found == expected { Ok(()) } else { fail(format!("{what}: found {found:?}, expected {expected:?}")) }
}

pub(crate) fn check_arity(info: &OpInfo, input: &RuleInput<'_>) -> Result<()> {
    info.check_operand_count(input.operands.len()).or_else(fail)?;
    if info.regions != ANY_REGIONS && input.regions.len() != info.regions {
        return fail(format!("{} has {} regions, found {}", info.name, info.regions, input.regions.len()));
    }
    Ok(())
}

pub(crate) fn constant(_: &RuleInput<'_>, value: &Literal) -> Result {
    one(Type::scalar(value.dtype))
}

fn grid_axis(axis: u8) -> Result {
    if axis < 3 {
        one(Type::scalar(Dtype::I32))
    } else {
        fail(format!("an axis of a grid must be 0, 1 or 2, found {axis}"))
    }
}

pub(crate) fn program_id(_: &RuleInput<'_>, axis: &u8) -> Result {
    grid_axis(*axis)
}

pub(crate) fn num_programs(_: &RuleInput<'_>, axis: &u8) -> Result {
    grid_axis(*axis)
}

pub(crate) fn arange(_: &RuleInput<'_>, start: &i64, end: &i64) -> Result {
    match u32::try_from(end - start) {
        Ok(extent) if extent > 0 && i32::try_from(*start).is_ok() && i32::try_from(*end).is_ok() => {
            one(Type::tile(Dtype::I32, [extent]))
        }
        _ => fail(format!("arange needs start < end within int32, found {start} and {end}")),
    }
}

pub(crate) fn splat(input: &RuleInput<'_>, shape: &Shape) -> Result {
    let scalar = &input.operands[0];
    if !scalar.is_scalar() {
        return fail(format!("splat takes a scalar, found {scalar}"));
    }
    one(scalar.with_shape(shape.clone()))
}

pub(crate) fn expand_dims(input: &RuleInput<'_>, axis: &u32) -> Result {
    let tile = &input.operands[0];
    if *axis as usize > tile.rank() {
        return fail(format!("axis {axis} is not in {tile}"));
    }
    let mut shape = tile.shape.clone();
    shape.0.insert(*axis as usize, 1);
    one(tile.with_shape(shape))
}

pub(crate) fn broadcast(input: &RuleInput<'_>, shape: &Shape) -> Result {
    let tile = &input.operands[0];
    let fits = tile.rank() == shape.len()
        && tile.shape.iter().zip(shape.iter()).all(|(&from, &to)| from == to || from == 1);
    if !fits {
        return fail(format!("{tile} does not broadcast to {shape}"));
    }
    one(tile.with_shape(shape.clone()))
}

pub(crate) fn reshape(input: &RuleInput<'_>, shape: &Shape) -> Result {
    let tile = &input.operands[0];
    check_size(shape)?;
    if tile.shape.elements() != shape.elements() {
        return fail(format!(
            "{tile} has {} elements, {shape} has {}",
            tile.shape.elements(),
            shape.elements()
        ));
    }
    one(tile.with_shape(shape.clone()))
}

pub(crate) fn transpose(input: &RuleInput<'_>, permutation: &IntList) -> Result {
    let tile = &input.operands[0];
    let mut seen: SmallVec<[bool; 8]> = smallvec::smallvec![false; tile.rank()];
    let mut shape = Shape::scalar();
    for &axis in permutation {
        let slot = usize::try_from(axis).ok().filter(|&axis| axis < tile.rank() && !seen[axis]);
        let Some(axis) = slot else {
            return fail(format!("{permutation:?} is not a permutation of the axes of {tile}"));
        };
        seen[axis] = true;
        shape.0.push(tile.shape[axis]);
    }
    if shape.len() != tile.rank() {
        return fail(format!("{permutation:?} is not a permutation of the axes of {tile}"));
    }
    one(tile.with_shape(shape))
}

pub(crate) fn elementwise(input: &RuleInput<'_>, function: &ElementwiseFn) -> Result {
    let expected = function.info().operands.len();
    if input.operands.len() != expected {
        return fail(format!(
            "{} takes {expected} operands, found {}",
            function.name(),
            input.operands.len()
        ));
    }
    function.result_type(input.operands).map_or_else(fail, one)
}

pub(crate) fn cast(input: &RuleInput<'_>, element: &Element, _rounding: &Rounding) -> Result {
    let from = &input.operands[0];
    let address = |dtype: Option<Dtype>| matches!(dtype, Some(Dtype::I64 | Dtype::U64));
    let allowed = match (from.element, element) {
        (Element::Value(_), Element::Value(_)) | (Element::Pointer(_), Element::Pointer(_)) => true,
        (Element::Value(dtype), Element::Pointer(_)) => address(Some(dtype)),
        (Element::Pointer(_), Element::Value(dtype)) => address(Some(*dtype)) || dtype.is_bool(),
    };
    if allowed {
        one(from.with_element(*element))
    } else {
        fail(format!("{from} cannot be cast to {element}"))
    }
}

pub(crate) fn bitcast(input: &RuleInput<'_>, element: &Element) -> Result {
    let from = &input.operands[0];
    let bits = |element: Element| element.value().map_or(64, Dtype::bits);
    if bits(from.element) != bits(*element) {
        return fail(format!("{from} and {element} differ in width"));
    }
    one(from.with_element(*element))
}

pub(crate) fn inline_asm(
    input: &RuleInput<'_>,
    text: &str,
    constraints: &str,
    dtypes: &DtypeList,
    pack: &u32,
) -> Result {
    let scalar = Shape::scalar();
    let shape = input.operands.first().map_or(&scalar, |ty| &ty.shape);
    if let Some(other) = input.operands.iter().find(|ty| ty.shape != *shape) {
        return fail(format!("inline assembly takes arguments of shape {shape}, found {other}"));
    }
    if !pack.is_power_of_two() {
        return fail(format!("`pack` of inline assembly must be a power of two, found {pack}"));
    }
    let elements: Vec<Element> = input.operands.iter().map(|ty| ty.element).collect();
    let template = AsmTemplate::parse(text, constraints);
    let checked = template.and_then(|template| template.check(&dtypes.0, &elements, *pack));
    checked.or_else(|error| fail(error.to_string()))?;
    check_size(shape)?;
    Ok(dtypes.0.iter().map(|dtype| Type::scalar(*dtype).with_shape(shape.clone())).collect())
}

pub(crate) fn volatile_asm(
    input: &RuleInput<'_>,
    text: &str,
    constraints: &str,
    dtypes: &DtypeList,
    pack: &u32,
) -> Result {
    inline_asm(input, text, constraints, dtypes, pack)
}

pub(crate) fn map(input: &RuleInput<'_>, pack: &u32) -> Result {
    let Some(first) = input.operands.first() else { return fail("map takes tiles") };
    if first.is_scalar() || input.operands.iter().any(|tile| tile.shape != first.shape) {
        return fail(format!("map takes tiles of one shape, found {:?}", input.operands));
    }
    if !pack.is_power_of_two() || *pack > MAX_PACK {
        return fail(format!("`pack` of map must be a power of two and at most {MAX_PACK}, found {pack}"));
    }
    let pack = *pack as usize;
    let scalar = |tile: &Type| tile.with_shape(Shape::scalar());
    let parameters: Vec<Type> = input.operands.iter().flat_map(|tile| vec![scalar(tile); pack]).collect();
    same_types(&input.regions[0].parameters, &parameters, "parameters of the function")?;
    let mut results = Vec::new();
    for group in input.regions[0].yields.chunks(pack) {
        if group.len() < pack || group.iter().any(|ty| *ty != group[0] || !ty.is_scalar()) {
            return fail(format!(
                "the function of map must yield {pack} scalars of each result, found {group:?}"
            ));
        }
        results.push(group[0].with_shape(first.shape.clone()));
    }
    Ok(results)
}

pub(crate) fn ptr_add(input: &RuleInput<'_>) -> Result {
    let [pointer, offset] = input.operands else { return fail("ptr_add takes a pointer and an offset") };
    let integer = offset.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool());
    if pointer.element.pointee().is_none() || !integer || pointer.shape != offset.shape {
        return fail(format!(
            "ptr_add takes pointers and integers of one shape, found {pointer} and {offset}"
        ));
    }
    one(pointer.clone())
}

fn check_mask(pointer: &Type, mask: Option<&Type>) -> Result<()> {
    match mask {
        Some(mask) if !mask.is_bool() || mask.shape != pointer.shape => {
            fail(format!("the mask of {pointer} must be {}, found {mask}", pointer.with_dtype(Dtype::I1)))
        }
        _ => Ok(()),
    }
}

pub(crate) fn load(
    input: &RuleInput<'_>,
    _cache: &CacheModifier,
    _eviction: &EvictionPolicy,
    _volatile: &bool,
) -> Result {
    let pointer = &input.operands[0];
    let Some(dtype) = pointer.element.pointee() else {
        return fail(format!("load takes pointers, found {pointer}"));
    };
    check_mask(pointer, input.operands.get(1))?;
    let result = pointer.with_dtype(dtype);
    match input.operands.get(2) {
        Some(other) if *other != result => fail(format!("other must be {result}, found {other}")),
        _ => one(result),
    }
}

pub(crate) fn store(input: &RuleInput<'_>, _cache: &CacheModifier, _eviction: &EvictionPolicy) -> Result {
    let (pointer, value) = (&input.operands[0], &input.operands[1]);
    if pointer.element.pointee() != value.dtype() || value.dtype().is_none() || pointer.shape != value.shape {
        return fail(format!("{value} cannot be stored through {pointer}"));
    }
    check_mask(pointer, input.operands.get(2))?;
    Ok(Vec::new())
}

/// Returns the element type of an atomic operation: 16, 32 or 64 bits.
fn atomic_element(pointer: &Type, values: &[Type]) -> Result<Type> {
    let Some(dtype) = pointer.element.pointee().filter(|dtype| (16..=64).contains(&dtype.bits())) else {
        return fail(format!("an atomic operation takes pointers to 16, 32 or 64 bits, found {pointer}"));
    };
    let element = pointer.with_dtype(dtype);
    match values.iter().find(|value| **value != element) {
        Some(value) => fail(format!("{value} does not have the type that {pointer} points to")),
        None => Ok(element),
    }
}

pub(crate) fn atomic_rmw(
    input: &RuleInput<'_>,
    kind: &AtomicKind,
    _: &MemorySemantics,
    _: &MemoryScope,
) -> Result {
    let element = atomic_element(&input.operands[0], &input.operands[1..2])?;
    check_mask(&input.operands[0], input.operands.get(2))?;
    let is_bitwise = matches!(kind, AtomicKind::And | AtomicKind::Or | AtomicKind::Xor);
    if is_bitwise && element.dtype().is_some_and(Dtype::is_float) {
        return fail(format!("atomic_rmw {} takes integers, found {element}", kind.name()));
    }
    one(element)
}

pub(crate) fn atomic_cas(input: &RuleInput<'_>, _: &MemorySemantics, _: &MemoryScope) -> Result {
    let element = atomic_element(&input.operands[0], &input.operands[1..3])?;
    check_mask(&input.operands[0], input.operands.get(3))?;
    one(element)
}

pub(crate) fn atomic_load(input: &RuleInput<'_>, sem: &MemorySemantics, _: &MemoryScope) -> Result {
    if sem.releases() {
        return fail("atomic_load cannot have release semantics");
    }
    load(input, &CacheModifier::Default, &EvictionPolicy::Default, &true)
}

pub(crate) fn atomic_store(input: &RuleInput<'_>, sem: &MemorySemantics, _: &MemoryScope) -> Result {
    if sem.acquires() {
        return fail("atomic_store cannot have acquire semantics");
    }
    store(input, &CacheModifier::Default, &EvictionPolicy::Default)
}

pub(crate) fn atomic_poll(input: &RuleInput<'_>, sem: &MemorySemantics, _: &MemoryScope) -> Result {
    let element = atomic_element(&input.operands[0], &input.operands[1..2])?;
    let is_time = |ty: &Type| *ty == Type::scalar(Dtype::I64);
    if !element.is_scalar() || sem.releases() || !input.operands.get(2).is_none_or(is_time) {
        return fail(format!("atomic_poll does not take {:?} and {}", input.operands, sem.name()));
    }
    one(Type::scalar(Dtype::I1))
}

pub(crate) fn dot(input: &RuleInput<'_>, _precision: &InputPrecision, _max_imprecise_acc: &u32) -> Result {
    let [a, b, acc] = input.operands else { return fail("dot takes a, b and acc") };
    let rank = a.rank();
    let fits = (rank == 2 || rank == 3)
        && b.rank() == rank
        && acc.rank() == rank
        && a.shape[rank - 1] == b.shape[rank - 2]
        && acc.shape[rank - 2] == a.shape[rank - 2]
        && acc.shape[rank - 1] == b.shape[rank - 1]
        && (rank == 2 || (a.shape[0] == b.shape[0] && a.shape[0] == acc.shape[0]));
    let (Some(left), Some(right), Some(sum)) = (a.dtype(), b.dtype(), acc.dtype()) else {
        return fail(format!("dot takes numbers, found {a}, {b} and {acc}"));
    };
    let types_fit = match sum {
        Dtype::I32 => left.is_int() && right.is_int() && left.bits() == 8 && right.bits() == 8,
        Dtype::F64 => left == sum && right == sum,
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => {
            let narrow = left.is_float() && right.is_float() && left != Dtype::F64;
            narrow && (left == right || (left.is_fp8() && right.is_fp8()))
        }
        _ => false,
    };
    if fits && types_fit { one(acc.clone()) } else { fail(format!("dot does not take {a}, {b} and {acc}")) }
}

pub(crate) fn dot_scaled(input: &RuleInput<'_>, a_format: &ScaledFormat, b_format: &ScaledFormat) -> Result {
    let [a, b, acc, a_scale, b_scale] = input.operands else {
        return fail("dot_scaled takes a, b, acc and the scales of a and b");
    };
    let is_matrix = |ty: &Type| ty.rank() == 2;
    let is_held = |ty: &Type, format: &ScaledFormat| ty.dtype().is_some_and(|dtype| format.is_held_by(dtype));
    let is_scale = |ty: &Type| matches!(ty.dtype(), Some(Dtype::I8 | Dtype::U8 | Dtype::F8E4NV));
    let fits = input.operands.iter().all(is_matrix)
        && is_held(a, a_format)
        && is_held(b, b_format)
        && acc.dtype() == Some(Dtype::F32)
        && [a_scale, b_scale].into_iter().all(is_scale)
        && a_scale.dtype() == b_scale.dtype();
    let shapes_fit = fits && {
        let depth = u64::from(a.shape[1]) * u64::from(a_format.in_byte());
        depth == u64::from(b.shape[0]) * u64::from(b_format.in_byte())
            && acc.shape[..] == [a.shape[0], b.shape[1]]
            && [a_scale.shape[0], b_scale.shape[0]] == acc.shape[..]
            && a_scale.shape[1] == b_scale.shape[1]
            && a_scale.shape[1] > 0
            && depth.is_multiple_of(u64::from(a_scale.shape[1]))
    };
    if shapes_fit {
        one(acc.clone())
    } else {
        fail(format!("dot_scaled does not take {a}, {b} and {acc} with scales {a_scale} and {b_scale}"))
    }
}

/// The maximum `pack` of `map`.
const MAX_PACK: u32 = 64;

fn combines(name: &str, input: &RuleInput<'_>, axis: u32) -> Result<()> {
    let Some(first) = input.operands.first() else { return fail(format!("{name} takes tiles")) };
    if axis as usize >= first.rank() || input.operands.iter().any(|tile| tile.shape != first.shape) {
        return fail(format!("{name} along axis {axis} does not take {:?}", input.operands));
    }
    let scalars: Vec<Type> = input.operands.iter().map(|tile| tile.with_shape(Shape::scalar())).collect();
    let parameters: Vec<Type> = scalars.iter().chain(&scalars).cloned().collect();
    same_types(&input.regions[0].parameters, &parameters, "parameters of the combine region")?;
    same_types(&input.regions[0].yields, &scalars, "results of the combine region")
}

pub(crate) fn reduce(input: &RuleInput<'_>, axis: &u32) -> Result {
    combines("reduce", input, *axis)?;
    let shape = input.operands[0].shape.without(*axis as usize);
    Ok(input.operands.iter().map(|tile| tile.with_shape(shape.clone())).collect())
}

pub(crate) fn scan(input: &RuleInput<'_>, axis: &u32, _reverse: &bool) -> Result {
    combines("scan", input, *axis)?;
    Ok(input.operands.to_vec())
}

pub(crate) fn histogram(input: &RuleInput<'_>, bins: &u32) -> Result {
    let tile = &input.operands[0];
    if !tile.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool()) || tile.is_scalar() || *bins == 0
    {
        return fail(format!(
            "histogram takes a tile of integers and at least one bin, found {tile} and {bins}"
        ));
    }
    match input.operands.get(1) {
        Some(mask) if !mask.is_bool() || mask.shape != tile.shape => {
            fail(format!("the mask of {tile} must be {}, found {mask}", tile.with_dtype(Dtype::I1)))
        }
        _ => one(Type::tile(Dtype::I32, [*bins])),
    }
}

fn power_of_two_axis(name: &str, tile: &Type, axis: u32) -> Result<u32> {
    match tile.shape.get(axis as usize) {
        Some(extent) if extent.is_power_of_two() => Ok(*extent),
        _ => {
            fail(format!("{name} takes an axis whose extent is a power of two, found axis {axis} of {tile}"))
        }
    }
}

pub(crate) fn butterfly(input: &RuleInput<'_>, axis: &u32, mask: &u32) -> Result {
    let tile = &input.operands[0];
    let extent = power_of_two_axis("butterfly", tile, *axis)?;
    if tile.dtype().is_none() || *mask >= extent {
        return fail(format!("butterfly takes numbers and a mask below {extent}, found {tile} and {mask}"));
    }
    one(tile.clone())
}

pub(crate) fn bitonic(
    input: &RuleInput<'_>,
    axis: &u32,
    high: &u32,
    low: &u32,
    block: &u32,
    _descending: &bool,
) -> Result {
    let tile = &input.operands[0];
    let extent = power_of_two_axis("bitonic", tile, *axis)?;
    let is_wide = tile.dtype().is_some_and(|dtype| dtype.is_int() && dtype.bits() >= 32);
    if !is_wide || low > high || *high >= extent.ilog2() || block <= high || *block > extent.ilog2() {
        return fail(format!(
            "bitonic takes integers of 32 or 64 bits, and bit numbers of the coordinate with \
             low <= high < block <= {}, found {tile}, and low = {low}, high = {high}, block = {block}",
            extent.ilog2()
        ));
    }
    one(tile.clone())
}

pub(crate) fn slice(input: &RuleInput<'_>, starts: &IntList, steps: &IntList, shape: &Shape) -> Result {
    let tile = &input.operands[0];
    let rank = tile.rank();
    let fits = rank > 0
        && [starts.len(), steps.len(), shape.len()] == [rank; 3]
        && (0..rank).all(|axis| {
            let inside = 0..i64::from(tile.shape[axis]);
            let count = i64::from(shape[axis]);
            let last = steps[axis].checked_mul(count - 1).and_then(|way| way.checked_add(starts[axis]));
            count > 0 && inside.contains(&starts[axis]) && last.is_some_and(|last| inside.contains(&last))
        });
    if !fits {
        return fail(format!("{tile} has no slice {shape} that starts at {starts:?} with steps {steps:?}"));
    }
    one(tile.with_shape(shape.clone()))
}

pub(crate) fn gather(input: &RuleInput<'_>, axis: &u32) -> Result {
    let [tile, index] = input.operands else { return fail("gather takes a tile and an index") };
    let place = *axis as usize;
    let fits = place < tile.rank()
        && tile.rank() == index.rank()
        && index.dtype() == Some(Dtype::I32)
        && tile.shape.without(place) == index.shape.without(place);
    if !fits {
        return fail(format!("gather along axis {axis} does not take {tile} and {index}"));
    }
    one(tile.with_shape(index.shape.clone()))
}

pub(crate) fn set_layout(input: &RuleInput<'_>, layout: &StatedLayout) -> Result {
    let tile = &input.operands[0];
    if tile.is_scalar() {
        return fail(format!("set_layout takes a tile, found {tile}"));
    }
    layout.linear(&tile.shape).map_err(layout_error)?;
    one(tile.with_layout(Some(Arc::new(layout.clone()))))
}

pub(crate) fn device(input: &RuleInput<'_>, function: &DeviceFn) -> Result {
    crate::device::result_types(input, function)
}

pub(crate) fn hint(input: &RuleInput<'_>, _kind: &HintKind, _values: &IntList) -> Result {
    one(input.operands[0].clone())
}

pub(crate) fn assume(input: &RuleInput<'_>) -> Result {
    let condition = &input.operands[0];
    if condition.is_bool() { Ok(Vec::new()) } else { fail(format!("assume takes int1, found {condition}")) }
}

#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(crate) fn barrier(_: &RuleInput<'_>) -> Result {
    Ok(Vec::new())
}

pub(crate) fn assert(input: &RuleInput<'_>, _failure: &Failure) -> Result {
    if input.operands.iter().any(|ty| !ty.is_bool() || ty.shape != input.operands[0].shape) {
        return fail(format!("assert takes int1 of one shape, found {:?}", input.operands));
    }
    Ok(Vec::new())
}

pub(crate) fn print(input: &RuleInput<'_>, _prefix: &str, _digits: &u32, extents: &IntList) -> Result {
    let Some(ty) = input.operands.first() else { return Ok(Vec::new()) };
    let fits = extents.len() == ty.rank()
        && extents.iter().zip(ty.shape.iter()).all(|(some, all)| (1..=i64::from(*all)).contains(some));
    if !extents.is_empty() && !fits {
        return fail(format!("the extents of print of {ty} must be within its shape, found {extents:?}"));
    }
    match ty.element {
        Element::Value(Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64 | Dtype::F64) => Ok(Vec::new()),
        Element::Value(_) | Element::Pointer(_) => {
            fail(format!("print takes 32- and 64-bit integers and fp64, found {ty}"))
        }
    }
}

pub(crate) fn machine(_: &RuleInput<'_>, quantity: &MachineQuantity) -> Result {
    one(Type::scalar(match quantity {
        MachineQuantity::GlobalTimer => Dtype::I64,
        MachineQuantity::Multiprocessor => Dtype::I32,
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(crate) fn dependency(_: &RuleInput<'_>, _action: &GridDependency) -> Result {
    Ok(Vec::new())
}

#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(crate) fn call(_: &RuleInput<'_>, _callee: &FuncId, results: &TypeList) -> Result {
    Ok(results.0.clone())
}

pub(crate) fn for_loop(input: &RuleInput<'_>, _options: &LoopOptions) -> Result {
    let [lower, upper, step, carried @ ..] = input.operands else { return fail("for_loop takes bounds") };
    scalar_int(lower, "the lower bound")?;
    same_types(&[upper.clone(), step.clone()], &[lower.clone(), lower.clone()], "bounds of the loop")?;
    let mut parameters = vec![lower.clone()];
    parameters.extend_from_slice(carried);
    same_types(&input.regions[0].parameters, &parameters, "parameters of the loop body")?;
    same_types(&input.regions[0].yields, carried, "values that the loop body yields")?;
    Ok(carried.to_vec())
}

pub(crate) fn while_loop(input: &RuleInput<'_>) -> Result {
    let [condition, body] = input.regions else { return fail("while_loop has two regions") };
    same_types(&condition.parameters, input.operands, "parameters of the loop condition")?;
    same_types(&condition.yields, &[Type::scalar(Dtype::I1)], "result of the loop condition")?;
    same_types(&body.parameters, input.operands, "parameters of the loop body")?;
    same_types(&body.yields, input.operands, "values that the loop body yields")?;
    Ok(input.operands.to_vec())
}

pub(crate) fn if_else(input: &RuleInput<'_>) -> Result {
    let [then, otherwise] = input.regions else { return fail("if_else has two regions") };
    same_types(input.operands, &[Type::scalar(Dtype::I1)], "condition")?;
    same_types(&then.parameters, &[], "parameters of the first region")?;
    same_types(&otherwise.parameters, &[], "parameters of the second region")?;
    same_types(&otherwise.yields, &then.yields, "values that the second region yields")?;
    Ok(then.yields.clone())
}

pub(crate) fn start_workers(input: &RuleInput<'_>, warps: &IntList, registers: &IntList) -> Result {
    let workers = input.regions.len();
    if warps.len() != workers || !(registers.is_empty() || registers.len() == workers) {
        return fail(format!("start_workers has {workers} regions, {} counts of warps", warps.len()));
    }
    for region in input.regions {
        same_types(&region.parameters, &[], "parameters of a worker")?;
        same_types(&region.yields, &[], "values that a worker yields")?;
    }
    Ok(Vec::new())
}

#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(crate) fn yield_values(_: &RuleInput<'_>) -> Result {
    Ok(Vec::new())
}

#[expect(clippy::unnecessary_wraps, reason = "every rule has one signature")]
pub(crate) fn return_values(_: &RuleInput<'_>) -> Result {
    Ok(Vec::new())
}

/// The layout of a type, if the program states it.
type Stated = Option<Arc<StatedLayout>>;

/// Returns whether all tile operands of an op of a family must have one layout.
pub(crate) fn is_elementwise(family: OpFamily) -> bool {
    match family {
        OpFamily::Pointwise
        | OpFamily::Load
        | OpFamily::Store
        | OpFamily::Atomic
        | OpFamily::Check
        | OpFamily::Scan
        | OpFamily::Reduction => true,
        OpFamily::Scalar
        | OpFamily::Source
        | OpFamily::Identity
        | OpFamily::Shape
        | OpFamily::Movement
        | OpFamily::Dot
        | OpFamily::Promise
        | OpFamily::Barrier
        | OpFamily::Memory
        | OpFamily::Call
        | OpFamily::Loop
        | OpFamily::Branch
        | OpFamily::Partitions
        | OpFamily::Terminator => false,
    }
}

pub(crate) fn check_layouts(op: &Op, operands: &[Type]) -> Result<()> {
    let mut tiles = operands.iter().filter(|ty| !ty.is_scalar());
    let Some(first) = tiles.next() else { return Ok(()) };
    match tiles.find(|ty| ty.layout != first.layout) {
        Some(other) if is_elementwise(op.family()) => {
            let name = |ty: &Type| ty.layout.as_ref().map_or("no layout".into(), ToString::to_string);
            let message = format!(
                "the operands of {} must have one layout, found {} and {}",
                op.name(),
                name(first),
                name(other)
            );
            Err(RuleError {
                notes: [first, other].into_iter().filter_map(drawing).collect(),
                ..layout_error(message)
            })
        }
        _ => Ok(()),
    }
}

pub(crate) fn complete_layouts(op: &Op, operands: &[Type], results: &mut [Type]) -> Result<()> {
    let Some(first) = operands.iter().find(|ty| !ty.is_scalar()) else { return Ok(()) };
    let Some(layout) = &first.layout else { return Ok(()) };
    let found: Stated = match op {
        Op::Reduce { axis } => Some(Arc::new(StatedLayout::Slice { dim: *axis, parent: layout.clone() })),
        Op::Histogram { .. } => None,
        Op::Gather { .. } => operands.get(1).and_then(|index| index.layout.clone()),
        Op::SetLayout { .. } | Op::Device { .. } | Op::Dot { .. } | Op::DotScaled { .. } => return Ok(()),
        // tidy: wildcard because the other ops keep the layout or change the shape
        _ => match op.as_shape() {
            Some(shape_op) => Some(Arc::new(shaped(shape_op, first, layout).map_err(layout_error)?)),
            None if is_elementwise(op.family()) => Some(layout.clone()),
            None => return Ok(()),
        },
    };
    for result in results.iter_mut().filter(|ty| !ty.is_scalar()) {
        *result = result.with_layout(found.clone());
    }
    Ok(())
}

/// Returns the layout of the result of an op of the family `Shape`.
fn shaped(
    op: ShapeOp<'_>,
    operand: &Type,
    layout: &Arc<StatedLayout>,
) -> std::result::Result<StatedLayout, Misfit> {
    let linear = || layout.linear(&operand.shape);
    match op {
        ShapeOp::ExpandDims { axis } => match &**layout {
            StatedLayout::Slice { dim, parent } if dim == axis => Ok((**parent).clone()),
            other => Err(format!(
                "a new axis {axis} needs a tile whose layout is a SliceLayout({axis}, …), found {other}"
            )),
        },
        ShapeOp::Broadcast { .. } => Ok((**layout).clone()),
        ShapeOp::Slice { shape, steps, .. } => {
            let steps: Vec<u32> = steps.iter().map(|step| (*step).unsigned_abs() as u32).collect();
            Ok(StatedLayout::of_linear(&linear()?.slice(shape, &steps)))
        }
        ShapeOp::Reshape { shape } if *shape == operand.shape => Ok((**layout).clone()),
        ShapeOp::Reshape { shape } => Ok(StatedLayout::of_linear(&linear()?.reshape(shape))),
        ShapeOp::Transpose { permutation } => {
            let axes: Vec<usize> = permutation.iter().map(|axis| *axis as usize).collect();
            match layout.transposed(&axes) {
                Some(transposed) => Ok(transposed),
                None => Ok(StatedLayout::of_linear(&linear()?.transpose(&axes))),
            }
        }
    }
}

/// Returns a drawing of the first elements of a tile, each with its warp, lane and register.
fn drawing(ty: &Type) -> Option<String> {
    const ROWS: usize = 4;
    const COLUMNS: usize = 72;
    let layout = ty.layout.as_ref()?;
    let table = layout.linear(&ty.shape).ok()?.table();
    let rows = table.lines().take(ROWS).map(|row| {
        let shown: String = row.chars().take(COLUMNS).collect();
        if shown.len() < row.len() { format!("{shown}…") } else { shown }
    });
    let rows: Vec<String> = rows.collect();
    Some(format!(
        "the first elements of {layout}, each with its warp, lane and register:\n{}",
        rows.join("\n")
    ))
}

fn layout_error(message: String) -> RuleError {
    RuleError::new(message, RuleErrorKind::Layouts)
}
