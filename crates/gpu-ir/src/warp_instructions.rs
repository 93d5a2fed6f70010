//! Conditions of `redux.sync` and `ldmatrix`.

use tilewright_ir::{Dtype, ElementwiseFn as F};
use tilewright_layout::{Fragment, Input, Mma, Reduction, f2};

use crate::layout_rules::{LANES, element_bits};
use crate::target::{ACCESS_BYTES, Feature};
use crate::{Function, GpuOp, Header, InstData, MmaShape, Op, Type};

/// The bits of a matrix that a lane gets from `ldmatrix`.
const MATRIX_WORD_BITS: u32 = 32;

/// Returns the function and the element type of a reduction, if `redux.sync` can compute it.
///
/// It combines one register of all lanes of a warp.
pub fn redux_function(header: &Header, function: &Function, data: &InstData) -> Option<(F, Dtype)> {
    let Op::Gpu(GpuOp::Reduce { axis, .. }) = data.op else { return None };
    if !header.target.features.has(Feature::Redux) {
        return None;
    }
    let (name, dtype) = combining(function, data)?;
    let layout = header.layouts.get(function.ty(*data.operands.first()?).layout()?);
    let reduction = Reduction::along(layout, axis as usize);
    let mut masks = f2::Columns::new();
    for step in reduction.steps_of(Input::Lane) {
        if step.register != 0 {
            return None;
        }
        masks.push(step.lane);
    }
    (f2::rank(&masks) == LANES.ilog2() as usize).then_some((name, dtype))
}

/// Returns the function and element type of a region of one integer function of `redux.sync`.
fn combining(function: &Function, reduction: &InstData) -> Option<(F, Dtype)> {
    let region = reduction.regions[0];
    let block = &function.blocks[region];
    let ([x, y], [first, _]) = (&block.parameters[..], &block.insts[..]) else { return None };
    let data = &function.insts[*first];
    let Op::Gpu(GpuOp::Elementwise { function: name, .. }) = data.op else { return None };
    let is_direct = data.results[..] == *function.yielded(region)
        && (data.operands[..] == [*x, *y] || data.operands[..] == [*y, *x]);
    let is_known = matches!(name, F::Add | F::Min | F::Max | F::And | F::Or | F::Xor);
    let dtype = function.ty(*x).as_registers()?.dtype()?;
    let fits = dtype.is_int() && !dtype.is_bool() && dtype.bits() <= 32;
    (is_direct && is_known && fits).then_some((name, dtype))
}

/// Returns a dot's warps along batch, M and N. A list of two omits the batch.
pub fn warps_of_dot(warps: &[i64]) -> Option<[u32; 3]> {
    let count = |warps: i64| u32::try_from(warps).ok().filter(|warps| *warps > 0);
    match *warps {
        [m, n] => Some([1, count(m)?, count(n)?]),
        [batches, m, n] => Some([count(batches)?, count(m)?, count(n)?]),
        _ => None,
    }
}

/// Returns whether `ldmatrix` can load operand A (0) or B (1) of `mma.sync`.
pub fn can_use_ldmatrix(
    header: &Header,
    operand: &Type,
    index: usize,
    shape: MmaShape,
    warps: [u32; 3],
) -> bool {
    let Some(buffer) = operand.as_memory() else { return false };
    if !header.target.features.has(Feature::LdMatrix) {
        return false;
    }
    let bits = element_bits(&buffer.tile());
    let mma = Mma::new(shape.m, shape.n, shape.k, bits);
    let fragment = [Fragment::A, Fragment::B][index];
    let layout = mma.layout(fragment, &buffer.shape, warps);
    layout.matrix_access(header.layouts.get(buffer.layout), bits).is_some()
}

/// Returns whether `ldmatrix` saves enough loads and has no bank conflicts. Returns false for
/// elements of more than 32 bits, pointers and `int1`.
///
/// Example: a tile that threads stored by wide accesses. A thread's elements are far apart, but
/// neighboring lanes load neighboring words.
pub fn prefers_ldmatrix(header: &Header, from: &Type, to: &Type) -> bool {
    let (Some(buffer), Some(layout)) = (from.as_memory(), to.layout()) else { return false };
    let tile = buffer.tile();
    let bits = element_bits(&tile);
    let is_word = bits <= MATRIX_WORD_BITS && !tile.dtype().is_none_or(Dtype::is_bool);
    if !is_word || !buffer.padding.is_none() || !header.target.features.has(Feature::LdMatrix) {
        return false;
    }
    let (layout, memory) = (header.layouts.get(layout), header.layouts.get(buffer.layout));
    let plain = layout.vector_in(memory).at_most(ACCESS_BYTES * 8 / bits).accesses();
    layout.matrix_access(memory, bits).is_some_and(|access| {
        plain >= access.registers.accesses() + header.target.tuning.saved_matrix_loads
            && !access.has_conflicts(bits)
    })
}
