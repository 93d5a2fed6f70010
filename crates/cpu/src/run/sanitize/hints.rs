//! Checks hints (`tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`) and descriptors.

use tilewright_base::Code;
use tilewright_ir::{HintKind, Op};
use tilewright_sanitize::Check;

use crate::compile::sanitize::CheckPoint;
use crate::program::Step;
use crate::run::machine::Machine;
use crate::run::ops::materialize::materialize;
use crate::types::TileType;

use super::Checker;
use super::report::{Key, Report};

/// Checks a hint before its step.
pub(super) fn check(checker: &Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    let Some(Op::Hint { kind, values }) = step.op() else { return };
    let ty = machine.type_of(step.operands[0]);
    if *kind == HintKind::Described {
        described(checker, machine, step, (point, values));
        return;
    }
    // For pointers, multiples are in bytes and contiguous runs in elements.
    if !ty.number.dtype.is_int() {
        return;
    }
    let tile = materialize(ty, machine.value(step.operands[0]).clone());
    let element = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..ty.size].copy_from_slice(bytes);
        ty.number.extend(u64::from_le_bytes(bits))
    };
    let elements: Vec<i64> = tile.bytes().chunks_exact(ty.size).map(element).collect();
    let unit = ty.pointee as i64;
    let Some((lane, value, axis)) = broken(ty, *kind, values, &elements, unit) else { return };
    let hinted = values.get(axis).copied().unwrap_or(1);
    let report = Report { machine, checker, number: point.number, lane: ty.lane(lane) };
    let key: Key = (Check::Alignment.name(), point.number, u32::MAX, false);
    report.add(Check::Alignment, key, || {
        let what = match kind {
            HintKind::MultipleOf => format!("a multiple of {hinted}"),
            HintKind::MaxContiguous => format!("contiguous in runs of {hinted}"),
            HintKind::MaxConstancy => format!("equal in runs of {hinted}"),
            HintKind::Described => unreachable!("descriptors are checked above"),
        };
        report
            .located(
                Code::Misaligned,
                format!("`tl.{}` hint is wrong: the value is not {what}", kind.name()),
                &format!("{value} is not {what}"),
            )
            .note("a GPU relies on the hint to combine elements into accesses of up to 16 bytes")
            .hint("give a hint that holds for every value of this line, or none")
    });
}

/// Checks a field of a tensor descriptor: the base and the strides must be multiples of 16 bytes.
fn described(
    checker: &Checker<'_>,
    machine: &Machine<'_>,
    step: &Step,
    (point, values): (CheckPoint, &[i64]),
) {
    let ty = machine.type_of(step.operands[0]);
    let (&[multiple, part], true) = (values, ty.is_scalar()) else { return };
    let tile = materialize(ty, machine.value(step.operands[0]).clone());
    let mut bits = [0; 8];
    bits[..ty.size].copy_from_slice(&tile.bytes()[..ty.size]);
    let value = if part == 0 { i64::from_le_bytes(bits) } else { ty.number.extend(u64::from_le_bytes(bits)) };
    let rest = value.rem_euclid(multiple);
    if rest == 0 {
        return;
    }
    let report = Report { machine, checker, number: point.number, lane: ty.lane(0) };
    let key: Key = (Check::Alignment.name(), point.number, u32::MAX, false);
    report.add(Check::Alignment, key, || {
        let (message, label) = if part == 0 {
            let label = format!("it begins at {value:#x}, {rest} bytes after a multiple of 16");
            ("the base of a tensor descriptor is not aligned to 16 bytes".to_owned(), label)
        } else {
            let bytes = value.saturating_mul(16 / multiple);
            let message = format!("stride {} of a tensor descriptor is not a multiple of 16 bytes", part - 1);
            (message, format!("it is {value} elements, {bytes} bytes"))
        };
        report
            .located(Code::Misaligned, message, &label)
            .note("the tensor copies of a GPU (TMA) do not accept such a tensor")
            .hint("align the base and the rows to 16 bytes, or load through pointers")
    });
}

/// Returns the first lane whose value contradicts a hint, with the value and the axis.
fn broken(
    ty: &TileType,
    kind: HintKind,
    values: &[i64],
    elements: &[i64],
    unit: i64,
) -> Option<(usize, i64, usize)> {
    if ty.is_scalar() {
        let hinted = values.first().copied().unwrap_or(1);
        let value = *elements.first()?;
        return (kind == HintKind::MultipleOf && hinted > 1 && value % hinted != 0).then_some((0, value, 0));
    }
    for (axis, (&hinted, &extent)) in values.iter().zip(ty.shape()).enumerate() {
        if hinted <= 1 {
            continue;
        }
        let stride: usize = ty.shape()[axis + 1..].iter().map(|&extent| extent as usize).product();
        let run = hinted.min(i64::from(extent));
        for (lane, &value) in elements.iter().enumerate() {
            let index = (lane / stride % extent as usize) as i64;
            let before = (index > 0).then(|| elements[lane - stride]);
            let follows = before.is_some_and(|before| value == before.wrapping_add(unit));
            let holds = match kind {
                // In a contiguous run, only the first element must be a multiple.
                HintKind::MultipleOf => follows || value % hinted == 0,
                HintKind::MaxContiguous => index % run == 0 || follows,
                HintKind::MaxConstancy => index % run == 0 || before == Some(value),
                HintKind::Described => true,
            };
            if !holds {
                return Some((lane, value, axis));
            }
        }
    }
    None
}
