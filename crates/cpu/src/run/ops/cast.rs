//! Executes `cast`, `bitcast` and `ptr_add`.

use tilewright_ir::{Dtype, ElementwiseFn, Rounding};

use crate::program::Step;
use crate::run::kernels::elementwise::apply;
use crate::run::kernels::{self, Operand};
use crate::run::machine::Machine;
use crate::run::tile::Tile;
use crate::run::value::{Affine, Form, Provenance, Value};
use crate::run::{scalar, symbolic};
use crate::types::TileType;

use super::materialize::{materialize, materialize_unique};
use super::memory::scalar_or_tile;

/// Converts elements. A pointer that becomes an integer loses its provenance.
pub(crate) fn cast(machine: &mut Machine<'_>, step: &Step, rounding: Rounding) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = kept_provenance(from, to, &value);
    let result = if from.dtype() == to.dtype() {
        value
    } else if let Form::Uniform(bits) = value.form {
        Value::uniform(scalar::convert(from.dtype(), to.dtype(), rounding, bits))
    } else if let Some(form) = symbolic::cast(from.view(), to.view(), &value.form) {
        form.into()
    } else {
        converted(from, to, value, rounding)
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

fn kept_provenance(from: &TileType, to: &TileType, value: &Value) -> Provenance {
    if from.is_pointer() && to.is_pointer() { value.provenance } else { Provenance::UNKNOWN }
}

fn converted(from: &TileType, to: &TileType, value: Value, rounding: Rounding) -> Value {
    let tile = materialize(from, value);
    let is_same_bits =
        from.dtype().is_int() && to.dtype().is_int() && from.size == to.size && !to.dtype().is_bool();
    if is_same_bits {
        return Value::dense(tile);
    }
    let mut out = Tile::new(to.bytes());
    kernels::cast::cast(from.dtype(), to.dtype(), rounding, out.bytes_mut(), tile.bytes());
    Value::dense(out)
}

pub(crate) fn bitcast(machine: &mut Machine<'_>, step: &Step) {
    let (from, to) = (machine.type_of(step.operands[0]), machine.ty(step.result()));
    let value = machine.take(step.operands[0]);
    let provenance = kept_provenance(from, to, &value);
    let result = match value.form {
        Form::Affine(_) => match symbolic::cast(from.view(), to.view(), &value.form) {
            Some(form) => form.into(),
            None => Value::dense(materialize(from, value)),
        },
        _ => value,
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

/// Advances pointers by a number of elements, in 64 bits. The offset is extended as its type
/// requires.
pub(crate) fn ptr_add(machine: &mut Machine<'_>, step: &Step) {
    let (ty, offset_ty) = (machine.ty(step.result()), machine.type_of(step.operands[1]));
    let provenance = machine.provenance(step.operands[0]);
    let size = ty.pointee;
    let (pointer, offset) = (machine.form(step.operands[0]), machine.form(step.operands[1]));
    if let (&Form::Uniform(pointer), &Form::Uniform(offset)) = (pointer, offset) {
        let offset = offset_ty.number.extend(offset).wrapping_mul(size as i64);
        machine.set_pointer(step.result(), pointer.wrapping_add_signed(offset), provenance);
        return;
    }
    if let (&Form::Uniform(pointer), Form::Affine(offset)) = (pointer, offset)
        && offset_ty.number.bits() < 64
        && symbolic::range(offset_ty.view(), offset).is_some()
    {
        // No offset wraps, so the pointers are affine.
        let base = pointer.wrapping_add_signed(offset.base.wrapping_mul(size as i64));
        let strides = offset.strides.map(|stride| stride.wrapping_mul(size as i64));
        machine.set_pointers(step.result(), Affine { base: base as i64, strides }, provenance);
        return;
    }
    let result = if let Some(form) = symbolic::ptr_add(ty.view(), pointer, offset_ty.view(), offset, size) {
        form.into()
    } else {
        let (pointer, offset) = (machine.take(step.operands[0]), machine.take(step.operands[1]));
        let tile = moved(ty, pointer, offset_ty, offset, size);
        scalar_or_tile(ty, tile)
    };
    machine.set(step.result(), result.with_provenance(provenance));
}

fn moved(ty: &TileType, pointer: Value, offset_ty: &TileType, offset: Value, size: usize) -> Tile {
    let mut out = if offset_ty.size == 8 {
        materialize_unique(offset_ty, offset)
    } else {
        let offset = materialize(offset_ty, offset);
        let mut out = Tile::new(ty.bytes());
        kernels::cast::cast(
            offset_ty.dtype(),
            Dtype::I64,
            Rounding::default(),
            out.bytes_mut(),
            offset.bytes(),
        );
        out
    };
    let shift = Operand::Scalar(size.trailing_zeros().into());
    let pointer = match pointer.form {
        Form::Uniform(bits) => Value::uniform(bits),
        _ => Value::dense(materialize(ty, pointer)),
    };
    let base = match &pointer.form {
        Form::Dense(tile) => Operand::Tile(tile.bytes()),
        _ => Operand::Scalar(pointer.scalar()),
    };
    let mut update = |function: ElementwiseFn, operand: Operand<'_>| {
        apply(function, Dtype::I64, out.bytes_mut(), &[Operand::Out, operand]);
    };
    if size > 1 {
        update(ElementwiseFn::Shl, shift);
    }
    update(ElementwiseFn::Add, base);
    out
}
