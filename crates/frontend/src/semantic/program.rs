//! Defines the rules of the grid, hints, assertions, prints, ranges, and compile-time functions.

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::{
    Builder, Dtype, Element, Failure, HintKind, IntList, LoopOptions, Rounding, Shape, Type,
};

use super::arguments::{Arguments, flatten};
use super::convert::{broadcast_to, common_shape, describe, shape_mismatch, tensor, to_bool};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::constexpr;
use crate::repr::type_str;
use crate::tuple::Tuple;
use crate::types::LanguageType;
use crate::value::to_str;
use crate::value::{Constant, Operand, Range};

/// `program_id(axis)`, `num_programs(axis)`.
pub(super) fn grid<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, is_count: bool) -> Semantic<Op<C>> {
    let axis = a.int(c, 0)?;
    let Some(axis) = u8::try_from(axis).ok().filter(|axis| *axis < 3) else {
        return Err(SemanticError::new(Code::InvalidValue, format!("a grid has no axis {axis}"))
            .argument(0, format!("this is {axis}"))
            .note(format!("found {axis}, expected 0, 1 or 2")));
    };
    let builder = c.builder();
    let value = if is_count { builder.num_programs(axis) } else { builder.program_id(axis) };
    Ok(Operand::Tensor(value?))
}

/// `multiple_of(input, values)`, `max_contiguous(input, values)`, `max_constancy(input, values)`.
pub(super) fn hint<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, kind: HintKind) -> Semantic<Op<C>> {
    let operand = a.at(0)?.clone();
    let values = a.ints(c, 1)?;
    if operand.constant().is_some() {
        return Ok(operand);
    }
    let (value, ty) = a.typed(c, 0)?;
    let expected = ty.rank().max(1);
    if values.len() != expected {
        let message = format!("`{}` takes one number for each axis", a.spec.name);
        return Err(SemanticError::new(Code::InvalidValue, message)
            .argument(0, format!("this is {ty}"))
            .argument(1, format!("this has {} numbers", values.len()))
            .note(format!("found {} numbers, expected {expected}", values.len())));
    }
    let mut list = IntList::new();
    for number in values {
        let positive = i64::try_from(number).ok().filter(|number| *number > 0);
        let Some(number) = positive else {
            let message = format!("`{}` takes positive numbers, found {number}", a.spec.name);
            return Err(
                SemanticError::new(Code::InvalidValue, message).argument(1, format!("this holds {number}"))
            );
        };
        list.push(number);
    }
    Ok(Operand::Tensor(c.builder().hint(value, kind, list)?))
}

/// `assume(cond)`.
pub(super) fn assume<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if a.at(0)?.constant().is_none() {
        let condition = a.tensor(c, 0)?;
        let condition = to_bool(c, condition)?;
        c.builder().assume(condition)?;
    }
    Ok(Operand::Constant(Constant::None))
}

/// `debug_barrier()`.
pub(super) fn barrier<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    c.builder().barrier()?;
    Ok(Operand::Constant(Constant::None))
}

/// `device_assert(cond, msg, mask)`: checked if the kernel is compiled with `debug=True`.
pub(super) fn device_assert<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let message = a.string(c, 1)?.unwrap_or_default();
    let mask = if a.is_none(2) { None } else { Some(a.at(2)?.clone()) };
    check(c, a.at(0)?, &message, mask.as_ref())?;
    Ok(Operand::Constant(Constant::None))
}

/// `assert condition, message`: checked if the kernel is compiled with `debug=True`.
pub fn assert_<C: Caller + ?Sized>(c: &mut C, condition: &Op<C>, message: &str) -> Semantic<()> {
    check(c, condition, message, None)
}

fn check<C: Caller + ?Sized>(
    c: &mut C,
    condition: &Op<C>,
    message: &str,
    mask: Option<&Op<C>>,
) -> Semantic<()> {
    if !c.options().debug {
        return Ok(());
    }
    let condition = tensor(c, condition, 0)?;
    let mut condition = to_bool(c, condition)?;
    let mut mask_value = None;
    if let Some(mask) = mask {
        let mask = tensor(c, mask, 2)?;
        let mask = to_bool(c, mask)?;
        let (left, right) = (c.builder().type_of(&condition).shape, c.builder().type_of(&mask).shape);
        let shape = common_shape(&left, &right)
            .map_err(|axis| shape_mismatch("`device_assert`", (0, &left), (2, &right), axis))?;
        condition = broadcast_to(c, condition, &shape)?;
        mask_value = Some(broadcast_to(c, mask, &shape)?);
    }
    Ok(c.builder().assert(condition, mask_value, Failure::Assertion(message.to_string()))?)
}

/// `device_print(prefix, *args, hex)`: one op for each operand.
pub(super) fn device_print<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let prefix = match c.known(a.at(0)?) {
        Some(Constant::Str(prefix)) if !prefix.contains('\0') => prefix,
        _ => {
            let found = describe(c, a.at(0)?);
            return Err(SemanticError::new(Code::InvalidValue, "a kernel prints a text, then values")
                .argument(0, format!("this is {found}"))
                .note(format!("found {found}, expected a string that is known at compile time"))
                .hint("put a string first: `print(\"x\", x)`, `tl.device_print(\"x\", x)`"));
        }
    };
    let mut operands = Vec::new();
    leaves(a.at(1)?, &mut operands);
    let is_hex = a.flag(c, 2)?;
    let prefix = print_prefix(&prefix, operands.is_empty());
    if operands.is_empty() {
        c.builder().print(None, prefix.clone(), 0)?;
    }
    let count = operands.len();
    for (number, operand) in operands.iter().enumerate() {
        let value = tensor(c, operand, 1)?;
        let (value, digits) = printable(c, value, is_hex)?;
        let prefix = if count > 1 { format!("{prefix}(operand {number}) ") } else { prefix.clone() };
        c.builder().print(Some(value), prefix, digits)?;
    }
    Ok(Operand::Constant(Constant::None))
}

/// Collects the values of nested tuples.
fn leaves<V: Clone>(operand: &Operand<V>, found: &mut Vec<Operand<V>>) {
    match operand {
        Operand::Tuple(items) => items.iter().for_each(|item| leaves(item, found)),
        Operand::Constant(Constant::Tuple(items)) => {
            items.iter().for_each(|item| leaves(&Operand::Constant(item.clone()), found));
        }
        other => found.push(other.clone()),
    }
}

/// Returns the text before a printed value, as Triton writes it: ` prefix: `, or ` prefix` without
/// a value.
fn print_prefix(prefix: &str, is_without_value: bool) -> String {
    let mut text = prefix.to_owned();
    if !is_without_value {
        let trimmed = prefix.trim_end();
        text = format!("{}: ", trimmed.strip_suffix(':').unwrap_or(trimmed));
    }
    if (is_without_value || text.len() > 2) && !text.starts_with(' ') {
        text.insert(0, ' ');
    }
    text
}

/// Converts a value to a printable type. Also returns the minimum number of hexadecimal digits: 1
/// for a pointer, and 0 for decimal.
fn printable<C: Caller + ?Sized>(c: &mut C, value: ValueOf<C>, is_hex: bool) -> Semantic<(ValueOf<C>, u32)> {
    let ty = c.builder().type_of(&value);
    let Some(dtype) = ty.dtype() else {
        return Ok((c.builder().cast(value, Element::Value(Dtype::U64), Rounding::default())?, 1));
    };
    let bits = dtype.bits().max(8);
    let unsigned = match bits {
        8 => Dtype::U8,
        16 => Dtype::U16,
        32 => Dtype::U32,
        _ => Dtype::U64,
    };
    let value = match (is_hex, dtype.is_bool()) {
        (true, false) if dtype != unsigned => c.builder().bitcast(value, Element::Value(unsigned))?,
        _ => value,
    };
    let dtype = if is_hex && !dtype.is_bool() { unsigned } else { dtype };
    let printed = match dtype {
        dtype if dtype.is_float() => Dtype::F64,
        Dtype::I64 | Dtype::U64 => dtype,
        dtype if dtype.is_signed() => Dtype::I32,
        _ => Dtype::U32,
    };
    let value = if printed == dtype {
        value
    } else {
        c.builder().cast(value, Element::Value(printed), Rounding::default())?
    };
    Ok((value, if is_hex { bits / 4 } else { 0 }))
}

/// `static_assert(cond, msg)`.
pub(super) fn static_assert<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if a.flag(c, 0)? {
        return Ok(Operand::Constant(Constant::None));
    }
    let text = to_str(&a.constant(c, 1)?);
    let message = if text.is_empty() { "static assertion failed".to_string() } else { text };
    Err(SemanticError::new(Code::StaticAssertFailed, message).argument(0, "this is false"))
}

/// `static_print(*values, sep, end, file, flush)`.
pub(super) fn static_print<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let separator = a.string(c, 1)?.unwrap_or_else(|| " ".into());
    let end = a.string(c, 2)?.unwrap_or_else(|| "\n".into());
    let mut words = Vec::new();
    for item in flatten(a.at(0)?) {
        words.push(match &item {
            Operand::Constant(constant) => to_str(constant),
            other => printed(c, other),
        });
    }
    let text = words.join(&separator) + &end;
    c.print(&text);
    Ok(Operand::Constant(Constant::None))
}

/// Returns the text that `static_print` prints for a run-time value or for an item of a tuple.
fn printed<C: Caller + ?Sized>(c: &mut C, operand: &Op<C>) -> String {
    match operand {
        Operand::Constant(constant) => constant.to_string(),
        Operand::Tensor(value) => type_str(&c.builder().type_of(value), true),
        Operand::Tuple(items) => {
            let words: Vec<String> = items.iter().map(|item| printed(c, item)).collect();
            format!("({}{})", words.join(", "), if words.len() == 1 { "," } else { "" })
        }
        other => describe(c, other),
    }
}

/// `range(arg1, arg2, step, num_stages, loop_unroll_factor, disallow_acc_multi_buffer, flatten,
/// warp_specialize, disable_licm)`, `static_range(arg1, arg2, step)`.
pub(super) fn range<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>, is_static: bool) -> Semantic<Op<C>> {
    let zero = || Operand::Constant(Constant::Int(0));
    let (lower, upper) =
        if a.is_none(1) { (zero(), a.at(0)?.clone()) } else { (a.at(0)?.clone(), a.at(1)?.clone()) };
    let step = if a.is_none(2) { Operand::Constant(Constant::Int(1)) } else { a.at(2)?.clone() };
    let mut options = LoopOptions::default();
    if is_static {
        for index in 0..3 {
            if !a.is_none(index) {
                a.int(c, index)?;
            }
        }
    } else {
        let count = |c: &mut C, index: usize| {
            if a.is_none(index) { Ok(0) } else { a.int(c, index).map(|value| value.clamp(0, 1 << 16) as u32) }
        };
        // The IR limits the stages of a loop.
        options.num_stages = count(c, 3)?.min(LoopOptions::MAX_STAGES);
        options.unroll_factor = count(c, 4)?;
        options.disallow_acc_multi_buffer = a.flag(c, 5)?;
        options.flatten = a.flag(c, 6)?;
        options.warp_specialize = a.flag(c, 7)?;
        options.disable_licm = a.flag(c, 8)?;
    }
    Ok(Operand::Range(Box::new(Range { lower, upper, step, is_static, options })))
}

/// `constexpr(value)`: returns the compile-time value, or a run-time value unchanged.
pub(super) fn constexpr<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    match a.constant(c, 0) {
        Ok(constant) => Ok(Operand::Constant(constant)),
        Err(error) => a.tensor(c, 0).map_err(|_| error).and_then(|_| a.at(0).cloned()),
    }
}

/// Returns its argument: `condition(arg1)`, `_unwrap_if_constexpr(o)`.
pub(super) fn identity<C: Caller + ?Sized>(_: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    a.at(0).cloned()
}

/// `tuple(args, type)`.
pub(super) fn tuple<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let fields = match a.constant(c, 1)? {
        Constant::LanguageType(ty) => match &*ty {
            LanguageType::Tuple(types) => types.fields().cloned(),
            other => return Err(a.unexpected(1, "a type of tuples", &other.to_string())),
        },
        Constant::None => None,
        other => return Err(a.unexpected(1, "a type of tuples", &other.to_string())),
    };
    match a.at(0)? {
        Operand::Constant(Constant::Tuple(items)) => {
            Ok(Constant::Tuple(Tuple::new(items.to_vec(), fields)).into())
        }
        other => Ok(Operand::Tuple(Tuple::new(flatten(other), fields))),
    }
}

/// `slice(start, stop, step)`: returns a tuple that a subscript treats as a slice.
pub(super) fn slice<C: Caller + ?Sized>(_: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let parts = [a.at(0)?.clone(), a.at(1)?.clone(), a.at(2)?.clone()];
    Ok(slice_of(parts))
}

/// The names of the parts of a slice.
const SLICE_FIELDS: [&str; 3] = ["start", "stop", "step"];

/// Returns a slice as a tuple with the field names of [`SLICE_FIELDS`].
pub(crate) fn slice_of<V>(parts: [Operand<V>; 3]) -> Operand<V> {
    let fields = Some(SLICE_FIELDS.iter().map(|field| Arc::from(*field)).collect());
    let constants: Option<Vec<Constant>> = parts.iter().map(|part| part.constant().cloned()).collect();
    match constants {
        Some(constants) => Constant::Tuple(Tuple::new(constants, fields)).into(),
        None => Operand::Tuple(Tuple::new(parts.into(), fields)),
    }
}

/// Returns the parts of a slice; `None` for other values.
pub(crate) fn slice_parts<V: Clone>(value: &Operand<V>) -> Option<[Operand<V>; 3]> {
    let items: Tuple<Operand<V>> = match value {
        Operand::Tuple(items) => items.clone(),
        Operand::Constant(Constant::Tuple(items)) => items.map(|item| Operand::Constant(item.clone())),
        // tidy: wildcard because only a tuple has fields
        _ => return None,
    };
    let fields = items.fields()?;
    let is_slice = items.class().is_none() && fields.iter().map(|field| &**field).eq(SLICE_FIELDS);
    is_slice.then(|| items.into_vec().try_into().ok()).flatten()
}

/// `tuple_type(types, fields)`.
pub(super) fn tuple_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let types = match a.constant(c, 0)? {
        Constant::Tuple(types) => types.to_vec(),
        other => return Err(a.unexpected(0, "a tuple of types", &other.to_string())),
    };
    let name = |field: &Constant| match field {
        Constant::Str(name) => Some(name.clone()),
        // tidy: wildcard because a name is a string
        _ => None,
    };
    let fields = match a.constant(c, 1)? {
        Constant::None => None,
        Constant::Tuple(fields) if fields.len() == types.len() => fields.iter().map(name).collect(),
        other => return Err(a.unexpected(1, "a name for each type", &other.to_string())),
    };
    Ok(LanguageType::tuple(types, fields).into_constant().into())
}

/// `constexpr_type(value)`.
pub(super) fn constexpr_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    Ok(LanguageType::Constexpr(a.constant(c, 0)?).into_constant().into())
}

/// `tensor_descriptor_type(block_type, shape_type, strides_type)`.
pub(super) fn tensor_descriptor_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let parts = [a.constant(c, 0)?, a.constant(c, 1)?, a.constant(c, 2)?];
    Ok(LanguageType::Descriptor(Box::new(parts)).into_constant().into())
}

/// `pointer_type(element_ty, address_space, const)`. There is one address space, and `tl.void` is a
/// byte.
pub(super) fn pointer_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let is_void = a.constant(c, 0).is_ok_and(|ty| ty == LanguageType::Void.into_constant());
    let pointee = if is_void { Dtype::I8 } else { a.dtype(c, 0)? };
    Ok(Operand::Constant(if a.flag(c, 2)? {
        LanguageType::ConstPointer(pointee).into_constant()
    } else {
        Constant::Type(Type::pointer(pointee))
    }))
}

/// `block_type(element_ty, shape)`.
pub(super) fn block_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let element = a.element(c, 0)?;
    let shape = a.shape(c, 1)?;
    Ok(Operand::Constant(Constant::Type(Type::new(element, shape))))
}

/// `get_int_dtype(bitwidth, signed)`.
pub(super) fn int_dtype<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let bits = a.int(c, 0)?;
    let signed = a.flag(c, 1)?;
    // A boolean has no sign, so 1 bit fits any `signed`. Sorts request the integer type of their
    // keys, which may be booleans.
    let found = Dtype::ALL.iter().find(|dtype| {
        dtype.is_int() && i128::from(dtype.bits()) == bits && (bits == 1 || dtype.is_signed() == signed)
    });
    match found {
        Some(dtype) => Ok(Operand::Constant(Constant::dtype(*dtype))),
        None => {
            Err(SemanticError::new(Code::InvalidValue, format!("there is no integer type of {bits} bits"))
                .argument(0, format!("this is {bits}"))
                .note("expected 1, 8, 16, 32 or 64"))
        }
    }
}

/// `next_power_of_2(n)`.
pub(super) fn next_power_of_two<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let value = a.int(c, 0)?;
    let next = constexpr::next_power_of_two(&Constant::Int(value));
    next.map(Operand::Constant).map_err(|message| {
        SemanticError::new(Code::ConstexprError, message).argument(0, format!("this is {value}"))
    })
}

/// `_log2(i)`: returns the binary logarithm, rounded down, or 0 if `i` is not positive.
pub(super) fn log_two<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let value = a.int(c, 0)?;
    Ok(Operand::Constant(Constant::Int(value.checked_ilog2().map_or(0, i128::from))))
}

/// A method of a type, such as `dtype.is_floating()`.
pub(super) fn type_method<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    match a.constant(c, 0)? {
        Constant::Type(ty) => {
            super::attribute::type_method(a.spec.name, &ty).map(Operand::Constant).ok_or_else(|| {
                SemanticError::new(Code::UnknownAttribute, format!("{ty} has no method `{}`", a.spec.name))
            })
        }
        Constant::LanguageType(ty) => {
            let found =
                ty.method(a.spec.name).or_else(|| super::attribute::type_method(a.spec.name, &ty.as_ir()?));
            found.map(Operand::Constant).ok_or_else(|| {
                SemanticError::new(Code::UnknownAttribute, format!("{ty} has no method `{}`", a.spec.name))
            })
        }
        other => Err(SemanticError::new(Code::TypeMismatch, format!("{other} is not a type"))
            .argument(0, format!("this is {other}"))),
    }
}

/// Returns the type with a name: `fp32`, `int32`, `i32`, `*fp32`, `*kfp32`. The `k` has no effect
/// here.
fn type_of_name(name: &str) -> Option<Type> {
    let pointee = name.strip_prefix('*');
    let name = pointee.map_or(name, |pointee| pointee.strip_prefix('k').unwrap_or(pointee));
    let short =
        || name.strip_prefix(['i', 'u']).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()));
    let dtype = Dtype::parse(name).or_else(|| {
        let prefix = if name.starts_with('i') { "int" } else { "uint" };
        Dtype::parse(&format!("{prefix}{}", short()?))
    })?;
    Some(if pointee.is_some() { Type::pointer(dtype) } else { Type::scalar(dtype) })
}

/// `str_to_ty(name, c)`, and `dtype(name)`.
pub(super) fn named_type<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let found = match a.constant(c, 0)? {
        Constant::Str(name) if &*name == "void" => Some(LanguageType::Void.into_constant()),
        Constant::Str(name) => type_of_name(&name).map(|ty| match ty.element.pointee() {
            Some(pointee) if name.starts_with("*k") => LanguageType::ConstPointer(pointee).into_constant(),
            _ => Constant::Type(ty),
        }),
        ty @ (Constant::Type(_) | Constant::LanguageType(_)) => Some(ty),
        _ => None,
    };
    match found {
        Some(ty) => Ok(Operand::Constant(ty)),
        None => Err(SemanticError::new(Code::InvalidValue, "there is no type of this name")
            .argument(0, "expected a name such as 'fp32', 'int32' or '*fp32'")),
    }
}

/// `dtype.is_dtype(type_str)`, called on the class or on a type.
pub(super) fn is_dtype<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let is_name = match a.constant(c, 0)? {
        Constant::Str(name) => &*name == "void" || Dtype::parse(&name).is_some(),
        _ => false,
    };
    Ok(Operand::Constant(Constant::Bool(is_name)))
}

/// `dtype.with_element_ty(element_ty)`.
pub(super) fn with_element<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let element: Element = a.element(c, 1)?;
    let shape = match a.constant(c, 0)? {
        Constant::Type(ty) => ty.shape,
        _ => Shape::scalar(),
    };
    Ok(Operand::Constant(Constant::Type(Type::new(element, shape))))
}
