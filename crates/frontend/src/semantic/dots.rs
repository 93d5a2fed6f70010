//! Defines the rules of the dots of Gluon: `mma.sync`, `wgmma`, and scalar multiply-adds.

use std::sync::Arc;

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{
    Builder, DeviceFn, Dtype, InputPrecision, IntList, Op as IrOp, Shape, StatedLayout, Type,
};

use super::arguments::{Arguments, constant_of};
use super::barriers::predicate;
use super::convert::{cast, describe, tensor};
use super::device_function::{count, device};
use super::gluon::{any_matrix_memory, place};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::shared_memory::SharedForm;
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

/// Returns the layout of operand `index` (0 is left, 1 is right) in registers.
fn operand_layout(index: usize, ty: &Type, accumulator: &Arc<StatedLayout>) -> StatedLayout {
    let k_width = (32 / ty.dtype().map_or(32, Dtype::bits)).max(1);
    StatedLayout::DotOperand { index: index as u32, parent: accumulator.clone(), k_width }
}

/// Returns the number of adjacent elements along K that each thread has of an operand in registers.
///
/// # Errors
/// If the layout is not the operand layout of the accumulator, or if a thread has fewer than 32
/// bits of adjacent elements along K.
fn k_width<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    index: usize,
    ty: &Type,
    accumulator: &Arc<StatedLayout>,
) -> Semantic<u32> {
    let expected = operand_layout(index, ty, accumulator);
    match (ty.layout.as_deref(), &expected) {
        (
            Some(StatedLayout::DotOperand { index: own, parent, k_width }),
            StatedLayout::DotOperand { index, k_width: least, .. },
        ) if own == index && parent == accumulator && k_width >= least => Ok(*k_width),
        _ => Err(misfit(a, index, &format!("the layout {expected}"), ty)),
    }
}

/// Returns an operand of `mma.sync` in the layout of the instruction. A thread can have more
/// adjacent elements along K than a 32-bit register. Both operands then use the same new order
/// along K, and no element moves between threads.
fn in_instruction_order<C: Caller + ?Sized>(
    c: &mut C,
    value: ValueOf<C>,
    (index, k_width): (usize, u32),
    accumulator: &Arc<StatedLayout>,
) -> Semantic<ValueOf<C>> {
    let ty = c.builder().type_of(&value);
    let layout = operand_layout(index, &ty, accumulator);
    let StatedLayout::DotOperand { k_width: own, .. } = layout else { return Ok(value) };
    if k_width == own {
        return Ok(value);
    }
    // Along K, each of four lanes has `k_width / own` words of `own` elements. The instruction
    // reads one word of each lane.
    let axis = ty.rank() - 1 - index;
    let extents = [ty.shape[axis] / (4 * k_width), 4, k_width / own, own];
    let mut split: Shape = ty.shape[..axis].iter().copied().collect();
    split.0.extend(extents);
    split.0.extend(ty.shape[axis + 1..].iter().copied());
    let mut order: IntList = (0..split.len() as i64).collect();
    order.swap(axis + 1, axis + 2);
    let builder = c.builder();
    let parts = builder.reshape(value, split)?;
    let ordered = builder.transpose(parts, order)?;
    let whole = builder.reshape(ordered, ty.shape.clone())?;
    Ok(builder.emit_one(IrOp::SetLayout { layout }, smallvec![whole])?)
}

/// Checks the precision of a dot. On tensor cores, fp32 has the precision tf32. Other operands are
/// exact.
fn check_precision<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
    operand: Option<Dtype>,
) -> Semantic<()> {
    let Some(precision) = a.string(c, index)? else { return Ok(()) };
    if precision == "tf32" || precision == "ieee" && operand != Some(Dtype::F32) {
        return Ok(());
    }
    Err(a
        .unexpected(index, "\"tf32\" or None", &format!("{precision:?}"))
        .hint("for fp32 with all bits, use `gl.dot_fma`"))
}

/// `mma_v2(a, b, acc, input_precision)`.
pub(super) fn mma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let [(left, left_ty), (right, right_ty), (acc, acc_ty)] =
        [a.typed(c, 0)?, a.typed(c, 1)?, a.typed(c, 2)?];
    check_precision(c, a, 3, left_ty.dtype())?;
    let Some(layout) = acc_ty.layout.clone().filter(|layout| version(layout) == Some(2)) else {
        return Err(misfit(a, 2, "a layout NVMMADistributedLayout([2, 0], …)", &acc_ty));
    };
    let widths = [k_width(a, 0, &left_ty, &layout)?, k_width(a, 1, &right_ty, &layout)?];
    check_shapes(c, a, [&left_ty, &right_ty, &acc_ty])?;
    check_extents(a, &layout, [&left_ty, &acc_ty], widths[0])?;
    if widths[0] != widths[1] {
        let (index, ty) = if widths[0] > widths[1] { (0, &left_ty) } else { (1, &right_ty) };
        let other = StatedLayout::DotOperand {
            index: index as u32,
            parent: layout.clone(),
            k_width: widths[1 - index],
        };
        return Err(misfit(a, index, &format!("the layout {other}"), ty)
            .note("both operands have one k_width: the elements of a thread along K"));
    }
    let [left, right] = [(left, left_ty, 0), (right, right_ty, 1)].map(|(value, ty, index)| {
        // fp16 represents every 8-bit float. `tl.dot` also converts to fp16 for tensor cores
        // without instructions for 8-bit floats.
        let is_short = ty.dtype().is_some_and(|dtype| dtype.is_float() && dtype.bits() == 8);
        let value = if is_short { cast(c, value, Dtype::F16)? } else { value };
        in_instruction_order(c, value, (index, widths[index]), &layout)
    });
    let (left, right) = (left?, right?);
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

/// Checks that the tiles of a dot consist of whole tiles of the instruction. A thread has `k_width`
/// adjacent elements of A along K.
fn check_extents<C: Caller + ?Sized>(
    a: &Arguments<'_, C>,
    layout: &StatedLayout,
    [left, acc]: [&Type; 2],
    k_width: u32,
) -> Semantic<()> {
    let StatedLayout::Mma { version, warps_per_cta, .. } = layout else { return Ok(()) };
    let [.., warps_m, warps_n] = warps_per_cta[..] else { return Ok(()) };
    let Some([rows, columns]) = layout.instruction_extents() else { return Ok(()) };
    let bits = left.dtype().map_or(32, Dtype::bits);
    let batches = warps_per_cta.iter().rev().skip(2).product::<u32>();
    let depth = (256 / bits).max(4 * k_width);
    let mut least = vec![batches, rows * warps_m, columns * warps_n, depth];
    let rank = acc.rank();
    // Each block of a cluster computes its part of the accumulator.
    let part = layout.division(&acc.shape).map_or(acc.shape.to_vec(), |division| division.part.to_vec());
    let mut found = part;
    found.push(left.shape[rank - 1]);
    let mut axes = "B, M, N and K";
    if rank == 2 {
        least.remove(0);
        axes = "M, N and K";
    }
    if found.iter().zip(&least).all(|(found, least)| found.is_multiple_of(*least)) {
        return Ok(());
    }
    let message = format!("{axes} of `{}` are {found:?}", a.spec.name);
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

/// Returns the first element of the window of a matrix in shared memory, or `None` for the whole.
fn start_of(form: &SharedForm) -> Option<[u32; 2]> {
    let [rows, columns] = form.window.as_ref()?.start;
    Some(if form.is_transposed { [columns, rows] } else { [rows, columns] })
}

/// Returns an accumulator if the condition is true, otherwise zeros.
fn accumulator_or_zeros<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    (acc, ty): (ValueOf<C>, &Type),
    condition: Option<ValueOf<C>>,
) -> Semantic<ValueOf<C>> {
    let layout = match ty.layout.as_deref() {
        Some(StatedLayout::InFlight { .. }) => {
            return Err(a
                .unexpected(3, "True for an accumulator in flight", "another value")
                .hint("wait for it: `acc = warpgroup_mma_wait(0, deps=[acc])`"));
        }
        Some(layout) => layout.clone(),
        None => return Err(misfit(a, 2, "a layout NVMMADistributedLayout([3, 0], …)", ty)),
    };
    let zero = super::convert::literal(c, &Constant::Int(0), ty.dtype().unwrap_or(Dtype::F32))?;
    let zeros = c.builder().splat(zero, ty.shape.clone())?;
    let zeros = c.builder().emit_one(IrOp::SetLayout { layout }, smallvec![zeros])?;
    let Some(condition) = condition else { return Ok(zeros) };
    let [condition, acc, zeros] = [condition, acc, zeros].map(Operand::Tensor);
    let chosen = super::select(c, &condition, &acc, &zeros)?;
    tensor(c, &chosen, 2)
}

/// `warpgroup_mma(a, b, acc, use_acc, precision, max_num_imprecise_acc, is_async)`.
pub(super) fn wgmma<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    let (mut acc, acc_ty) = a.typed(c, 2)?;
    let use_acc = a.at(3)?.clone();
    let use_acc = match constant_of(c, &use_acc) {
        Some(constant) if constant.is_true() => None,
        Some(_) => Some(None),
        None => Some(Some(predicate(c, a, 3)?)),
    };
    if let Some(condition) = use_acc {
        acc = accumulator_or_zeros(c, a, (acc, &acc_ty), condition)?;
    }
    let max_imprecise_acc = if a.is_none(5) { 0 } else { count(c, a, 5)? };
    let is_async = a.flag(c, 6)?;
    let b = any_matrix_memory(c, a, 1)?;
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
    let (mut transposed_a, mut start_a) = (false, None);
    let left = if let Operand::Shared(_) = a.at(0)? {
        let left = any_matrix_memory(c, a, 0)?;
        operands.extend(place(c, &left)?);
        transposed_a = left.form.is_transposed;
        start_a = start_of(&left.form);
        Type::tile(left.form.tiles.dtype, left.form.shape().into_iter().collect::<Shape>())
    } else {
        let (left, ty) = a.typed(c, 0)?;
        let expected = operand_layout(0, &ty, &landed);
        if ty.layout.as_deref() != Some(&expected) {
            return Err(misfit(a, 0, &format!("the layout {expected}"), &ty));
        }
        operands.push(left);
        ty
    };
    let right = Type::tile(b.form.tiles.dtype, b.form.shape().into_iter().collect::<Shape>());
    check_shapes(c, a, [&left, &right, &acc_ty])?;
    check_extents(a, &landed, [&left, &acc_ty], 1)?;
    check_precision(c, a, 4, left.dtype())?;
    // The first elements of A and of B, and the extent along K.
    let start_b = start_of(&b.form);
    let window = if start_a.is_none() && start_b.is_none() {
        Vec::new()
    } else {
        let starts = [start_a, start_b].into_iter().flat_map(Option::unwrap_or_default);
        starts.chain([left.shape[1]]).collect()
    };
    let function = DeviceFn::Wgmma {
        window,
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
        one @ (Operand::Tensor(_) | Operand::Shared(_)) => vec![one.clone()],
        other => {
            let found = describe(c, &other.clone());
            return Err(a.unexpected(1, "a tuple of accumulators", &found));
        }
    };
    let mut results = Vec::new();
    for dep in deps {
        if let Operand::Shared(memory) = &dep {
            let memory = tensor(c, &memory.memory, 1)?;
            device(c, DeviceFn::KeepAlive {}, smallvec![memory])?;
            results.push(dep);
            continue;
        }
        let value = tensor(c, &dep, 1)?;
        let ty = c.builder().type_of(&value);
        // An earlier wait for other dots may have returned this value. Then its dot may be in
        // flight, although the value has no layout `InFlight`.
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
