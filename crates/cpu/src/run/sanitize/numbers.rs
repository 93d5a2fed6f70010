//! Finds the ops that produce NaN or infinity from finite numbers.
//!
//! The check reports an op only if a store writes the number: masked-off lanes, and values that a
//! `select` discards, are often NaN.

use tilewright_base::Code;
use tilewright_ir::{Dtype, ElementwiseFn, Op};
use tilewright_sanitize::Check;

use crate::compile::sanitize::{CheckKind, CheckPoint};
use crate::program::{Action, Step, Use};
use crate::run::machine::Machine;
use crate::run::value::Form;
use crate::types::TileType;

use super::Checker;
use super::report::{Key, Report};

/// A step that has produced NaN or infinity from finite numbers.
pub(super) struct NonFinite {
    number: u32,
    /// The name of the operation.
    operation: &'static str,
    is_nan: bool,
    ty: TileType,
    /// One bit for each affected lane.
    lanes: Vec<u64>,
}

/// The maximum number of recorded steps of a program.
const MAX_NON_FINITE: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Finite,
    Infinite,
    Nan,
}

fn class(dtype: Dtype, bits: u64) -> Class {
    let (exponent, mantissa) = match dtype {
        Dtype::F16 => (0x7c00, 0x03ff),
        Dtype::BF16 => (0x7f80, 0x007f),
        Dtype::F32 => (0x7f80_0000, 0x007f_ffff),
        Dtype::F64 => (0x7ff0_0000_0000_0000, 0x000f_ffff_ffff_ffff),
        Dtype::F8E5 => (0x7c, 0x03),
        // These types have no infinities. F8E4NV encodes NaN as the largest magnitude, and the
        // others as -0.
        Dtype::F8E4NV => return if bits & 0x7f == 0x7f { Class::Nan } else { Class::Finite },
        Dtype::F8E4B8 | Dtype::F8E5B16 => return if bits == 0x80 { Class::Nan } else { Class::Finite },
        // tidy: wildcard because the other types have neither infinities nor NaNs
        _ => return Class::Finite,
    };
    match (bits & exponent == exponent, bits & mantissa) {
        (false, _) => Class::Finite,
        (true, 0) => Class::Infinite,
        (true, _) => Class::Nan,
    }
}

/// Calls a function with each lane that is not finite, until it returns true. Returns whether it
/// did. A uniform value has only lane 0.
fn any(ty: &TileType, form: &Form, mut call: impl FnMut(usize, Class) -> bool) -> bool {
    let dtype = ty.dtype();
    if !dtype.is_float() {
        return false;
    }
    let mut look = |lane: usize, bits: u64| {
        let class = class(dtype, bits);
        class != Class::Finite && call(lane, class)
    };
    match form {
        Form::Uniform(bits) => look(0, *bits),
        Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => false,
        Form::Dense(tile) => (0..ty.elements()).any(|lane| look(lane, element(tile.bytes(), ty.size, lane))),
    }
}

fn element(bytes: &[u8], size: usize, lane: usize) -> u64 {
    let mut bits = [0; 8];
    bits[..size].copy_from_slice(&bytes[lane * size..(lane + 1) * size]);
    u64::from_le_bytes(bits)
}

/// Returns whether an operand is NaN or infinite at a lane.
fn is_given(machine: &Machine<'_>, operand: Use, lane: usize) -> bool {
    let ty = machine.type_of(operand);
    match machine.form(operand) {
        Form::Uniform(bits) => ty.dtype().is_float() && class(ty.dtype(), *bits) != Class::Finite,
        Form::Affine(_) | Form::Box(_) | Form::InPlace(_) => false,
        Form::Dense(tile) => {
            ty.dtype().is_float()
                && lane < ty.elements()
                && class(ty.dtype(), element(tile.bytes(), ty.size, lane)) != Class::Finite
        }
    }
}

/// Records the lanes in which a step has produced NaN or infinity from finite numbers.
pub(super) fn note(checker: &mut Checker<'_>, machine: &Machine<'_>, step: &Step, point: CheckPoint) {
    let Some(&result) = step.results.iter().find(|&&slot| machine.ty(slot).dtype().is_float()) else {
        return;
    };
    let ty = machine.ty(result);
    let form = machine.form_of(result);
    if !any(ty, form, |_, _| true) {
        return;
    }
    let has_bad = |operand: &Use| any(machine.type_of(*operand), machine.form(*operand), |_, _| true);
    if point.what == CheckKind::Combined && step.operands.iter().any(has_bad) {
        return;
    }
    let is_uniform = matches!(form, Form::Uniform(_));
    let mut lanes = vec![0_u64; ty.elements().div_ceil(64)];
    let (mut is_made, mut is_nan) = (false, false);
    any(ty, form, |lane, class| {
        let is_own = point.what == CheckKind::Combined
            || !step.operands.iter().any(|&operand| is_given(machine, operand, lane));
        if is_own {
            // The first affected lane determines whether the message says NaN or infinity.
            is_nan |= class == Class::Nan && !is_made;
            is_made = true;
            lanes[lane / 64] |= 1 << (lane % 64);
        }
        false
    });
    if !is_made {
        return;
    }
    if is_uniform {
        lanes.fill(u64::MAX);
    }
    let has_room = checker.made.len() < MAX_NON_FINITE;
    match checker.made.iter_mut().find(|made| made.number == point.number) {
        Some(made) => made.lanes.iter_mut().zip(&lanes).for_each(|(old, new)| *old |= new),
        None if has_room => {
            let (number, operation) = (point.number, operation(step));
            checker.made.push(NonFinite { number, operation, is_nan, ty: ty.clone(), lanes });
        }
        None => {}
    }
}

fn operation(step: &Step) -> &'static str {
    match &step.action {
        Action::Op(Op::Elementwise { function: ElementwiseFn::Div }) => "a division",
        Action::Op(Op::Elementwise { function }) => function.name(),
        Action::Op(Op::Cast { .. }) => "a conversion",
        Action::Dot { .. } => "a dot",
        Action::Reduce { .. } => "a reduction",
        Action::Scan { .. } => "a scan",
        Action::Map { .. } => "a function of elements",
        Action::Assembly(_) => "inline assembly",
        // tidy: wildcard because every op has a name
        Action::Op(op) => op.name(),
        Action::Sort(_) | Action::Fused(_) | Action::Nest(_) => "an operation",
    }
}

/// Reports the step that produced the NaN or infinity that a store is about to write.
pub(super) fn stored(
    checker: &mut Checker<'_>,
    machine: &Machine<'_>,
    (ty, values, mask): (&TileType, &[u8], Option<&[u8]>),
) {
    if checker.made.is_empty() || !ty.dtype().is_float() {
        return;
    }
    let elements = ty.elements();
    let is_stored = |lane: usize| {
        mask.is_none_or(|mask| mask[lane] != 0)
            && class(ty.dtype(), element(values, ty.size, lane)) != Class::Finite
    };
    let bad: Vec<usize> = (0..elements).filter(|&lane| is_stored(lane)).collect();
    let Some(&first) = bad.first() else { return };
    let made = std::mem::take(&mut checker.made);
    // The first recorded step that affects a stored lane is the cause. If the tiles differ in size,
    // their lanes do not correspond, and the step counts as the cause.
    let found = made.iter().find_map(|made| {
        let has = |lane: usize| made.lanes.get(lane / 64).is_some_and(|word| word >> (lane % 64) & 1 == 1);
        if made.ty.elements() == elements {
            return bad.iter().copied().find(|&lane| has(lane)).map(|lane| (made, lane));
        }
        let lane = (0..made.ty.elements()).find(|&lane| has(lane)).unwrap_or(first);
        Some((made, lane))
    });
    if let Some((made, lane)) = found {
        let what = if made.is_nan { "NaN" } else { "infinity" };
        let key: Key = (Check::Nan.name(), made.number, u32::MAX, false);
        let report = Report { machine, checker, number: made.number, lane: made.ty.lane(lane) };
        report.add(Check::Nan, key, || {
            let operation = made.operation;
            report
                .located(Code::NotFinite, format!("{what} made by {operation}"), &format!("{what} here"))
                .note("the operands are finite, and the result is stored")
                .hint(if made.is_nan {
                    "keep the operands in the domain of the operation: `tl.where(d == 0, 1, d)` before a division, for example"
                } else {
                    "keep the result in the range of its type: compute in fp32, or subtract the maximum before `exp`"
                })
        });
    }
    checker.made = made;
}
