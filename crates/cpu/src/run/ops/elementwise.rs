//! Applies functions of the elementwise table ([`ElementwiseFn`]) to values of any [`Form`].
//!
//! Uniform and symbolic results need no loop. The loops of [`kernels`](crate::run::kernels) compute
//! dense tiles.
#![allow(clippy::inline_always, reason = "a value that is constructed in place is not moved through memory")]

use tilewright_ir::{Dtype, ElementwiseFn, Signature};

use crate::program::{Step, Use};
use crate::run::kernels::Operand;
use crate::run::kernels::elementwise::apply;
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::{Form, Provenance, Value};
use crate::run::{scalar, symbolic};
use crate::types::{TileType, View};

use super::materialize::{materialize, only_element};

#[inline(always)]
pub(crate) fn elementwise(machine: &mut Machine<'_>, step: &Step, function: ElementwiseFn) {
    if let [x, y] = step.operands[..]
        && let (&Form::Uniform(left), &Form::Uniform(right)) = (machine.form(x), machine.form(y))
    {
        let number = machine.type_of(y).number;
        machine.set_uniform(step.result(), scalar::elementwise(function, number, &[left, right]));
        return;
    }
    if let [x] = step.operands[..]
        && let &Form::Uniform(bits) = machine.form(x)
    {
        let number = machine.type_of(x).number;
        machine.set_uniform(step.result(), scalar::elementwise(function, number, &[bits]));
        return;
    }
    on_tiles(machine, step, function);
}

fn on_tiles(machine: &mut Machine<'_>, step: &Step, function: ElementwiseFn) {
    let result = step.result();
    let to = machine.ty(result);
    let known = match step.operands[..] {
        [x] => without_elements(machine, step, function, &[machine.form(x)]),
        [x, y] => without_elements(machine, step, function, &[machine.form(x), machine.form(y)]),
        [x, y, z] => {
            if function == ElementwiseFn::Select
                && let Form::Uniform(condition) = *machine.form(x)
            {
                let chosen = machine.take(if condition == 0 { z } else { y });
                machine.release(&step.operands);
                machine.set(result, chosen);
                return;
            }
            without_elements(machine, step, function, &[machine.form(x), machine.form(y), machine.form(z)])
        }
        _ => None,
    };
    if let Some(form) = known {
        machine.set(result, form.into());
        return;
    }
    let dtype = machine.type_of(step.operands[step.operands.len() - 1]).dtype();
    let provenance = match (function, &step.operands[..]) {
        (ElementwiseFn::Select, &[_, x, y]) => machine.provenance(x).or(machine.provenance(y)),
        // tidy: wildcard because only `select` returns pointers.
        _ => Provenance::UNKNOWN,
    };
    let first = usize::from(function == ElementwiseFn::Select);
    let mut inputs = [Input::Bits(0), Input::Bits(0), Input::Bits(0)];
    let inputs = &mut inputs[..step.operands.len()];
    for (index, (input, &operand)) in inputs.iter_mut().zip(&step.operands).enumerate() {
        *input = take_input(machine, operand, to, if index < first { Dtype::I1 } else { dtype });
    }
    let tile = dense(function, to, dtype, inputs);
    if to.is_scalar() {
        machine.set(result, Value::uniform(only_element(to.size, tile.bytes())).with_provenance(provenance));
    } else if provenance == Provenance::UNKNOWN {
        machine.set_dense(result, tile);
    } else {
        machine.set(result, Value::dense(tile).with_provenance(provenance));
    }
}

/// An operand of a loop over the elements.
enum Input {
    Tile(Tile),
    /// The bits of a uniform operand.
    Bits(u64),
}

/// Takes an operand for a loop. A symbolic operand is materialized with the type `dtype` and the
/// shape of `to`.
#[inline(always)]
fn take_input(machine: &mut Machine<'_>, operand: Use, to: &TileType, dtype: Dtype) -> Input {
    if let Form::Uniform(bits) = *machine.form(operand) {
        return Input::Bits(bits);
    }
    match machine.take_tile(operand) {
        Some(tile) => Input::Tile(tile),
        None => Input::Tile(materialize(&to.of(dtype), machine.take(operand))),
    }
}

/// Returns the symbolic result, or `None` if an operand has to be materialized.
#[inline(always)]
fn without_elements<const N: usize>(
    machine: &Machine<'_>,
    step: &Step,
    function: ElementwiseFn,
    operands: &[&Form; N],
) -> Option<Form> {
    let number = machine.type_of(step.operands[N - 1]).number;
    let mut bits = [0; N];
    let mut uniform = true;
    for (bits, form) in bits.iter_mut().zip(operands) {
        match form {
            Form::Uniform(known) => *bits = *known,
            Form::Dense(_) => return None,
            _ => uniform = false,
        }
    }
    if uniform {
        return Some(Form::Uniform(scalar::elementwise(function, number, &bits)));
    }
    if number.dtype.is_float() {
        return None;
    }
    // The shape is that of the result, but the element type is that of the operands.
    let ty = View { number, extents: &machine.ty(step.result()).extents };
    symbolic::elementwise(function, ty, operands)
}

fn is_comparison(function: ElementwiseFn) -> bool {
    function.info().signature == Signature::Compare
}

/// Computes the result with a loop. Except in a comparison, it overwrites an operand without
/// another owner.
fn dense(function: ElementwiseFn, to: &TileType, dtype: Dtype, operands: &mut [Input]) -> Tile {
    let first = usize::from(function == ElementwiseFn::Select);
    let mut out = None;
    if !is_comparison(function) {
        for (index, input) in operands.iter_mut().enumerate().skip(first) {
            if let Input::Tile(tile) = input
                && tile.is_unique()
            {
                out = Some((index, std::mem::take(tile)));
                break;
            }
        }
    }
    let (in_place, mut out) = match out {
        Some((index, tile)) => (index, tile),
        None => (usize::MAX, Tile::new(to.bytes())),
    };
    let mut inputs = [Operand::Scalar(0); 3];
    for (index, (input, operand)) in inputs.iter_mut().zip(&*operands).enumerate() {
        *input = match operand {
            _ if index == in_place => Operand::Out,
            Input::Tile(tile) => Operand::Tile(tile.bytes()),
            Input::Bits(bits) => Operand::Scalar(*bits),
        };
    }
    apply(function, dtype, out.bytes_mut(), &inputs[..operands.len()]);
    out
}
