//! Reports integers that wrap and become part of an address.

use tilewright_base::Code;
use tilewright_ir::{ArithmeticFn, BitwiseFn, ElementwiseFamily as Family, Op};
use tilewright_sanitize::Check;

use crate::compile::sanitize::CheckPoint;
use crate::program::{Step, Use};
use crate::run::machine::Machine;
use crate::run::ops::materialize::materialize;
use crate::run::symbolic::{as_affine, range};
use crate::run::value::Form;
use crate::types::{Number, TileType};

use super::Checker;
use super::report::{Key, Report};

/// Checks a sum, difference, product, negation or left shift before its step.
pub(super) fn check(checker: &Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    let Some(Op::Elementwise { function }) = step.op() else { return };
    let ty = machine.ty(step.result());
    let compute = |x: i128, y: i128| match function.family() {
        Family::Arithmetic(ArithmeticFn::Add) => Some(x + y),
        Family::Arithmetic(ArithmeticFn::Sub) => Some(x - y),
        Family::Arithmetic(ArithmeticFn::Mul) => x.checked_mul(y),
        Family::Arithmetic(ArithmeticFn::Neg) => Some(-x),
        Family::Bitwise(BitwiseFn::Shl) => (0..64).contains(&y).then(|| x << y),
        // tidy: wildcard because no other function is checked: the result 0 counts as not wrapped
        _ => Some(0),
    };
    let wraps = |x: i128, y: i128| compute(x, y).is_none_or(|exact| !holds(ty.number, exact));
    let operands: Vec<Use> = step.operands.iter().copied().collect();
    // The bounds of affine or uniform operands may prove that no result wraps.
    let corners = |operand: &Use| {
        let operand_ty = machine.type_of(*operand);
        let affine = as_affine(operand_ty.number, machine.form(*operand))?;
        let (low, high) = range(operand_ty.view(), &affine)?;
        // A uint64 above the largest int64 is negative as an `i64`.
        (operand_ty.number.is_signed() || low >= 0).then_some([i128::from(low), i128::from(high)])
    };
    let bounds: Option<Vec<[i128; 2]>> = operands.iter().map(corners).collect();
    if let Some(bounds) = bounds {
        let other = bounds.get(1).copied().unwrap_or([0, 0]);
        let any = bounds[0].iter().any(|&x| other.iter().any(|&y| wraps(x, y)));
        if !any {
            return;
        }
    }
    let elements: Vec<Vec<i128>> = operands.iter().map(|operand| numbers(machine, *operand)).collect();
    let at = |operand: usize, lane: usize| elements.get(operand).map_or(0, |all| all[lane]);
    let Some(lane) = (0..ty.elements()).find(|&lane| wraps(at(0, lane), at(1, lane))) else { return };
    let exact = compute(at(0, lane), at(1, lane));
    let report = Report { machine, checker, number: point.number, lane: ty.lane(lane) };
    let key: Key = (Check::Overflow.name(), point.number, u32::MAX, false);
    report.add(Check::Overflow, key, || describe(&report, ty, exact));
}

fn describe(report: &Report<'_, '_>, ty: &TileType, exact: Option<i128>) -> tilewright_base::Diagnostic {
    let name = ty.dtype().name();
    let label = exact.map_or_else(
        || format!("out of the range of {name}"),
        |exact| format!("{exact} is out of the range of {name}"),
    );
    report
        .located(Code::OffsetOverflow, format!("{name} overflow in the offset of a pointer"), &label)
        .note(format!("{name} wraps at {}", largest(ty.number)))
        .hint("compute it in 64 bits, before it is multiplied: `row.to(tl.int64) * stride`")
}

fn largest(number: Number) -> i128 {
    (1_i128 << (number.bits() - u32::from(number.is_signed()))) - 1
}

fn holds(number: Number, value: i128) -> bool {
    let low = if number.is_signed() { -largest(number) - 1 } else { 0 };
    (low..=largest(number)).contains(&value)
}

/// Returns the elements of an operand.
fn numbers(machine: &Machine<'_>, operand: Use) -> Vec<i128> {
    let ty = machine.type_of(operand);
    let number = ty.number;
    let exact = |bits: u64| {
        if number.is_signed() {
            i128::from(number.sign_extend(bits))
        } else {
            i128::from(number.truncate(bits))
        }
    };
    if let Form::Uniform(bits) = machine.form(operand) {
        return vec![exact(*bits); ty.elements()];
    }
    let tile = materialize(ty, machine.value(operand).clone());
    let element = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..ty.size].copy_from_slice(bytes);
        exact(u64::from_le_bytes(bits))
    };
    tile.bytes().chunks_exact(ty.size).map(element).collect()
}
