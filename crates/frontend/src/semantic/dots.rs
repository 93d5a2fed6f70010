//! The rules of the dots of Gluon, whose instruction the program chooses: `mma.sync` or `wgmma`.

use std::sync::Arc;

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{Builder, DeviceFn, Dtype, InputPrecision, Op as IrOp, StatedLayout, Type};

use super::arguments::Arguments;
use super::convert::{describe, tensor};
use super::gluon::{count, device, matrix_memory, place};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::tuple::Tuple;
use crate::value::{Constant, Operand};

fn misfit<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    index: usize,
    expected: &str,
    ty: &Type,
) -> SemanticError {
    let name = a.name(index);
    SemanticError::new(Code::LayoutMismatch, format!("`{name}` of `{}` must have {expected}", a.spec.name))
        .argument(index, format!("this is {ty}"))
        .hint("convert it with `gl.convert_layout(x, layout)`")
}

/// Returns the only result of a function of the GPU.
fn one<C: Caller + ?Sized>(value: Option<ValueOf<C>>) -> Semantic<ValueOf<C>> {
    value.ok_or_else(|| SemanticError::new(Code::TypeMismatch, "the function has no result"))
}

/// Checks that an operand in registers has the layout of operand `index` of a dot with this
/// accumulator: 0 is the left operand, 1 the right one.
fn check_operand<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    index: usize,
    ty: &Type,
    accumulator: &Arc<StatedLayout>,
) -> Semantic<()> {
    let bits = ty.dtype().map_or(32, Dtype::bits);
    let expected =
        StatedLayout::DotOperand { index: index as u32, parent: accumulator.clone(), k_width: 32 / bits };
    if ty.layout.as_deref() == Some(&expected) {
        Ok(())
    } else {
        Err(misfit(a, index, &format!("the layout {expected}"), ty))
    }
}

/// `mma_v2(a, b, acc, input_precision)`.
pub(super) fn mma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let [(left, left_ty), (right, right_ty), (acc, acc_ty)] =
        [a.typed(c, 0)?, a.typed(c, 1)?, a.typed(c, 2)?];
    if let Some(precision) = a.string(c, 3)?.filter(|precision| precision != "tf32") {
        return Err(a.unexpected(3, "\"tf32\" or None", &format!("{precision:?}")));
    }
    let Some(layout) = acc_ty.layout.clone().filter(|layout| version(layout) == Some(2)) else {
        return Err(misfit(a, 2, "a layout NVMMADistributedLayout([2, 0], …)", &acc_ty));
    };
    check_operand(a, 0, &left_ty, &layout)?;
    check_operand(a, 1, &right_ty, &layout)?;
    check_shapes(c, a, [&left_ty, &right_ty, &acc_ty])?;
    check_extents(a, &layout, [&left_ty, &acc_ty])?;
    let found = device(c, DeviceFn::Mma {}, smallvec![left, right, acc])?;
    Ok(Operand::Tensor(one::<C>(found)?))
}

/// `dot_fma(a, b, acc)`.
pub(super) fn dot_fma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let [(left, left_ty), (right, right_ty), (acc, acc_ty)] =
        [a.typed(c, 0)?, a.typed(c, 1)?, a.typed(c, 2)?];
    let Some(layout) =
        acc_ty.layout.clone().filter(|layout| matches!(**layout, StatedLayout::Blocked { .. }))
    else {
        return Err(misfit(a, 2, "a BlockedLayout", &acc_ty));
    };
    for (number, ty) in [&left_ty, &right_ty].into_iter().enumerate() {
        let is_operand = matches!(ty.layout.as_deref(), Some(StatedLayout::DotOperand { index, parent, .. })
            if *index as usize == number && *parent == layout);
        if !is_operand {
            return Err(misfit(
                a,
                number,
                &format!("the layout DotOperandLayout({number}, {layout}, 0)"),
                ty,
            ));
        }
    }
    check_shapes(c, a, [&left_ty, &right_ty, &acc_ty])?;
    let found = device(c, DeviceFn::DotFma {}, smallvec![left, right, acc])?;
    Ok(Operand::Tensor(one::<C>(found)?))
}

/// Checks that the tiles of a dot consist of whole tiles of the instruction for all warps.
fn check_extents<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    layout: &StatedLayout,
    [left, acc]: [&Type; 2],
) -> Semantic<()> {
    let StatedLayout::Mma { version, warps_per_cta, instr_shape, .. } = layout else { return Ok(()) };
    let bits = left.dtype().map_or(32, Dtype::bits);
    let columns = instr_shape.get(1).copied().unwrap_or(1);
    let least = [16 * warps_per_cta[0], columns * warps_per_cta[1], 256 / bits];
    let rank = acc.rank();
    // Each block of a cluster computes its part of the accumulator.
    let part = layout.division(&acc.shape).map_or(acc.shape.to_vec(), |division| division.part.to_vec());
    let found = [part[rank - 2], part[rank - 1], left.shape[rank - 1]];
    if found.iter().zip(least).all(|(found, least)| found.is_multiple_of(least)) {
        return Ok(());
    }
    let message = format!("M, N and K of `{}` are {found:?}", a.spec.name);
    Err(SemanticError::new(Code::InvalidValue, message)
        .note(format!("expected multiples of {least:?}: the instruction of version {version} for all warps"))
        .hint("make the tiles larger, or give the layout fewer warps or another instr_shape"))
}

fn version(layout: &StatedLayout) -> Option<u32> {
    match layout {
        StatedLayout::Mma { version, .. } => Some(*version),
        StatedLayout::InFlight { accumulator } => version(accumulator),
        StatedLayout::Blocked { .. }
        | StatedLayout::Slice { .. }
        | StatedLayout::Linear { .. }
        | StatedLayout::DotOperand { .. } => None,
    }
}

/// Checks the shapes and element types of a dot.
fn check_shapes<C: Caller + ?Sized>(
    _: &mut C,
    a: &Arguments<'_, C>,
    [left, right, acc]: [&Type; 3],
) -> Semantic<()> {
    let plain = |ty: &Type| ty.with_layout(None);
    let operands = [plain(left), plain(right), plain(acc)];
    let op = IrOp::Dot { precision: InputPrecision::default(), max_imprecise_acc: 0 };
    let input = tilewright_ir::RuleInput { operands: &operands, regions: &[] };
    let found = op.result_types(&input).map(|_| ());
    found.map_err(|error| {
        SemanticError::new(Code::TypeMismatch, error.message)
            .argument(0, format!("this is {}", operands[0]))
            .note(format!("`{}` takes [M, K], [K, N] and [M, N]", a.spec.name))
    })
}

/// `warpgroup_mma_init(value)`.
pub(super) fn wgmma_init<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (value, ty) = a.typed(c, 0)?;
    accumulator(c, a, 0, (value, &ty)).map(Operand::Tensor)
}

fn version_of(ty: &Type) -> Option<u32> {
    ty.layout.as_deref().and_then(version)
}

/// Returns an argument as the accumulator of dots in flight.
fn accumulator<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    (value, ty): (ValueOf<C>, &Type),
) -> Semantic<ValueOf<C>> {
    match ty.layout.as_deref() {
        Some(StatedLayout::InFlight { .. }) => Ok(value),
        Some(layout) if version(layout) == Some(3) => {
            let found = device(c, DeviceFn::WgmmaInit {}, smallvec![value])?;
            one::<C>(found)
        }
        _ => Err(misfit(a, index, "a layout NVMMADistributedLayout([3, 0], …)", ty)),
    }
}

/// `warpgroup_mma(a, b, acc, use_acc, precision, max_num_imprecise_acc, is_async)`.
pub(super) fn wgmma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (mut acc, acc_ty) = a.typed(c, 2)?;
    if !a.flag(c, 3)? {
        let zero = super::convert::literal(c, &Constant::Int(0), acc_ty.dtype().unwrap_or(Dtype::F32))?;
        let zeros = c.builder().splat(zero, acc_ty.shape.clone())?;
        let layout = match acc_ty.layout.as_deref() {
            Some(StatedLayout::InFlight { .. }) => {
                return Err(a.unexpected(3, "True for an accumulator in flight", "False"));
            }
            Some(layout) => layout.clone(),
            None => return Err(misfit(a, 2, "a layout NVMMADistributedLayout([3, 0], …)", &acc_ty)),
        };
        acc = c.builder().emit_one(IrOp::SetLayout { layout }, smallvec![zeros])?;
    }
    let max_imprecise_acc = if a.is_none(5) { 0 } else { count(c, a, 5)? };
    let is_async = a.flag(c, 6)?;
    let b = matrix_memory(c, a, 1)?;
    if version_of(&acc_ty) != Some(3) {
        return Err(misfit(a, 2, "a layout NVMMADistributedLayout([3, 0], …)", &acc_ty));
    }
    let landed = match acc_ty.layout.as_deref() {
        Some(StatedLayout::InFlight { accumulator }) => accumulator.clone(),
        Some(layout) => Arc::new(layout.clone()),
        None => return Err(misfit(a, 2, "a layout NVMMADistributedLayout([3, 0], …)", &acc_ty)),
    };
    let mut operands = smallvec![acc];
    operands.extend(place(c, &b)?);
    let mut transposed_a = false;
    let left = if let Operand::Shared(_) = a.at(0)? {
        let left = matrix_memory(c, a, 0)?;
        operands.extend(place(c, &left)?);
        transposed_a = left.form.is_transposed;
        Type::tile(left.form.tiles.dtype, left.form.shape().into_iter().collect::<tilewright_ir::Shape>())
    } else {
        let (left, ty) = a.typed(c, 0)?;
        check_operand(a, 0, &ty, &landed)?;
        operands.push(left);
        ty
    };
    let right = Type::tile(b.form.tiles.dtype, b.form.shape().into_iter().collect::<tilewright_ir::Shape>());
    check_shapes(c, a, [&left, &right, &acc_ty])?;
    check_extents(a, &landed, [&left, &acc_ty])?;
    let function = DeviceFn::Wgmma {
        b: b.form.tiles.clone(),
        transposed_b: b.form.is_transposed,
        transposed_a,
        max_imprecise_acc,
    };
    let mut found = device(c, function, operands)?;
    if !is_async {
        let started = one::<C>(found)?;
        found = device(c, DeviceFn::WgmmaWait { pending: 0 }, smallvec![started])?;
    }
    Ok(Operand::Tensor(one::<C>(found)?))
}

/// `warpgroup_mma_wait(num_outstanding, deps)`.
pub(super) fn wgmma_wait<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let pending = count(c, a, 0)?;
    let deps: Vec<Op<C>> = match a.at(1)? {
        Operand::Tuple(items) => items.iter().cloned().collect(),
        one @ Operand::Tensor(_) => vec![one.clone()],
        other => {
            let found = describe(c, &other.clone());
            return Err(a.unexpected(1, "a tuple of accumulators", &found));
        }
    };
    let mut results = Vec::new();
    for dep in deps {
        let value = tensor(c, &dep, 1)?;
        let ty = c.builder().type_of(&value);
        // A tile may still be in flight: another wait may have left its dot pending.
        results.push(if version_of(&ty) == Some(3) {
            Operand::Tensor(one::<C>(device(c, DeviceFn::WgmmaWait { pending }, smallvec![value])?)?)
        } else {
            dep
        });
    }
    Ok(match results.len() {
        1 => results.swap_remove(0),
        _ => Operand::Tuple(Tuple::new(results, None)),
    })
}
