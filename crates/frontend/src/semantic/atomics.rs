//! Defines the rules of atomic operations, on pointers and on blocks of descriptors.

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{AtomicKind, Builder, Dtype, Element, MemoryScope, MemorySemantics, Op, Rounding, Type};

use super::access::{check_writable, fitting_mask, pointer, stored};
use super::arguments::Arguments;
use super::convert::{cast_element, literal, tensor};
use super::descriptor::block_at_offsets;
use super::promote::natural_dtype;
use super::{Caller, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

pub(super) const SEMANTICS: &[(&str, MemorySemantics)] = &[
    ("acq_rel", MemorySemantics::AcquireRelease),
    ("acquire", MemorySemantics::Acquire),
    ("release", MemorySemantics::Release),
    ("relaxed", MemorySemantics::Relaxed),
];

/// The memory orders of loads. The first order is the default.
pub(super) const LOAD_SEMANTICS: &[(&str, MemorySemantics)] =
    &[("acquire", MemorySemantics::Acquire), ("relaxed", MemorySemantics::Relaxed)];

pub(super) const STORE_SEMANTICS: &[(&str, MemorySemantics)] =
    &[("release", MemorySemantics::Release), ("relaxed", MemorySemantics::Relaxed)];

pub(super) const SCOPES: &[(&str, MemoryScope)] =
    &[("gpu", MemoryScope::Gpu), ("cta", MemoryScope::Cta), ("sys", MemoryScope::System)];

/// Returns the memory order (argument `index`) and the scope (the next argument).
fn order<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    choices: &[(&'static str, MemorySemantics)],
) -> Semantic<(MemorySemantics, MemoryScope)> {
    let sem = if a.is_none(index) { choices[0].1 } else { a.choice(c, index, choices)? };
    Ok((sem, a.choice(c, index + 1, SCOPES)?))
}

/// `atomic_<kind>(pointer, val, mask, sem, scope)`.
pub(super) fn read_modify_write<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    kind: AtomicKind,
) -> Semantic<super::Op<C>> {
    let (pointer, ty, dtype) = pointer(c, a)?;
    check_kind(a, kind, &ty, dtype)?;
    check_writable(c, &pointer)?;
    let (sem, scope) = order(c, a, 3, SEMANTICS)?;
    let value = stored(c, a, 1, &ty, dtype)?;
    let mask = fitting_mask(c, a, 2, &ty)?;
    let operands = [pointer, value].into_iter().chain(mask).collect();
    Ok(Operand::Tensor(c.builder().emit_one(Op::AtomicRmw { kind, sem, scope }, operands)?))
}

/// `desc.atomic_<kind>(offsets, value)`: updates each element of a block atomically, without a
/// result.
pub(super) fn reduce_into_block<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    kind: AtomicKind,
) -> Semantic<super::Op<C>> {
    let (block, dtype) = block_at_offsets(c, a)?;
    let ty = c.builder().type_of(&block.pointers);
    check_kind(a, kind, &ty, dtype)?;
    check_writable(c, &block.pointers)?;
    let value = stored(c, a, 2, &ty, dtype)?;
    let (sem, scope) = (MemorySemantics::Relaxed, MemoryScope::Gpu);
    let operands = [block.pointers, value].into_iter().chain(block.mask).collect();
    c.builder().emit_one(Op::AtomicRmw { kind, sem, scope }, operands)?;
    Ok(Operand::Constant(Constant::None))
}

fn check_kind<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    kind: AtomicKind,
    ty: &Type,
    dtype: Dtype,
) -> Semantic<()> {
    check_width(a, ty, dtype)?;
    let is_bitwise = matches!(kind, AtomicKind::And | AtomicKind::Or | AtomicKind::Xor);
    if !is_bitwise || !dtype.is_float() {
        return Ok(());
    }
    let name = a.spec.name;
    Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` does not support {dtype}"))
        .argument(0, format!("this is {ty}"))
        .note(format!("found {dtype}, expected an integer of 16, 32 or 64 bits"))
        .hint("to change the bits of floats, cast the pointer: `ptr.to(tl.pointer_type(tl.int32))`"))
}

/// `atomic_cas(pointer, cmp, val, sem, scope)`: the result is the old value of the memory.
pub(super) fn compare_and_swap<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
) -> Semantic<super::Op<C>> {
    let (pointer, ty, dtype) = pointer(c, a)?;
    check_width(a, &ty, dtype)?;
    check_writable(c, &pointer)?;
    let (sem, scope) = order(c, a, 3, SEMANTICS)?;
    let expected = stored(c, a, 1, &ty, dtype)?;
    let value = stored(c, a, 2, &ty, dtype)?;
    let op = Op::AtomicCas { sem, scope };
    let before = c.builder().emit_one(op, smallvec![pointer, expected, value])?;
    // If pointee and `val` are integers of one width, the old value gets the signedness of `val`.
    let own = match a.at(2)? {
        Operand::Tensor(value) => c.builder().type_of(value).dtype(),
        Operand::Constant(constant) => natural_dtype(constant),
        _ => None,
    };
    match own.filter(|own| own.is_int() && dtype.is_int() && own.bits() == dtype.bits() && *own != dtype) {
        Some(own) => Ok(Operand::Tensor(c.builder().bitcast(before, Element::Value(own))?)),
        None => Ok(Operand::Tensor(before)),
    }
}

/// `atomic_load(pointer, mask, sem, scope)`.
pub(super) fn load<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<super::Op<C>> {
    let (pointer, ty, dtype) = pointer(c, a)?;
    let (sem, scope) = order(c, a, 2, LOAD_SEMANTICS)?;
    let mask = fitting_mask(c, a, 1, &ty)?;
    let pointer = as_bytes(c, pointer, dtype)?;
    let operands = std::iter::once(pointer).chain(mask).collect();
    let value = c.builder().emit_one(Op::AtomicLoad { sem, scope }, operands)?;
    Ok(Operand::Tensor(super::convert::cast(c, value, dtype)?))
}

/// `atomic_store(pointer, val, mask, sem, scope)`.
pub(super) fn store<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<super::Op<C>> {
    let (pointer, ty, dtype) = pointer(c, a)?;
    check_writable(c, &pointer)?;
    let (sem, scope) = order(c, a, 3, STORE_SEMANTICS)?;
    let value = stored(c, a, 1, &ty, dtype)?;
    let mask = fitting_mask(c, a, 2, &ty)?;
    let pointer = as_bytes(c, pointer, dtype)?;
    let operands = [pointer, value].into_iter().chain(mask).collect();
    c.builder().emit(Op::AtomicStore { sem, scope }, operands, smallvec![])?;
    Ok(Operand::Constant(Constant::None))
}

/// `atomic_poll(pointer, expected_value, sem, scope, timeout_ns)`.
pub(super) fn poll<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<super::Op<C>> {
    let (pointer, ty, dtype) = pointer(c, a)?;
    if !ty.is_scalar() || !dtype.is_int() {
        return Err(SemanticError::new(Code::TypeMismatch, "`atomic_poll` waits for one integer")
            .argument(0, format!("this is {ty}"))
            .note(format!("found {ty}, expected a scalar pointer to an integer of 16, 32 or 64 bits")));
    }
    check_width(a, &ty, dtype)?;
    let (sem, scope) = order(c, a, 2, LOAD_SEMANTICS)?;
    let expected = stored(c, a, 1, &ty, dtype)?;
    let timeout = match a.at(4)? {
        Operand::Constant(Constant::None) => None,
        Operand::Constant(constant @ Constant::Int(_)) => Some(literal(c, constant, Dtype::I64)?),
        operand => {
            let value = tensor(c, operand, 4)?;
            let found = c.builder().type_of(&value);
            if !found.is_scalar() || !found.dtype().is_some_and(|dtype| dtype.is_int() && !dtype.is_bool()) {
                return Err(SemanticError::new(
                    Code::TypeMismatch,
                    "`timeout_ns` is a number of nanoseconds",
                )
                .argument(4, format!("this is {found}"))
                .note(format!("found {found}, expected a scalar integer")));
            }
            Some(super::convert::cast(c, value, Dtype::I64)?)
        }
    };
    let operands = [pointer, expected].into_iter().chain(timeout).collect();
    Ok(Operand::Tensor(c.builder().emit_one(Op::AtomicPoll { sem, scope }, operands)?))
}

/// Casts a pointer to booleans to one to int8, because a boolean is a byte in memory.
fn as_bytes<C: Caller + ?Sized>(c: &mut C, pointer: ValueOf<C>, dtype: Dtype) -> Semantic<ValueOf<C>> {
    let element = if dtype.is_bool() { Dtype::I8 } else { dtype };
    cast_element(c, pointer, Element::Pointer(element), Rounding::default())
}

/// Checks that the type of an atomic operation has 16, 32 or 64 bits.
fn check_width<C: Caller + ?Sized>(a: &Arguments<'_, C>, ty: &Type, dtype: Dtype) -> Semantic<()> {
    if (16..=64).contains(&dtype.bits()) {
        return Ok(());
    }
    let name = a.spec.name;
    Err(SemanticError::new(Code::TypeMismatch, format!("`{name}` does not support {dtype}"))
        .argument(0, format!("this is {ty}"))
        .note(format!("found {dtype}, expected a type of 16, 32 or 64 bits"))
        .hint("use a wider type, such as int32, for values that several programs change"))
}
