//! Functions of single elements given as bits, for atomic operations.

use tilewright_ir::{Dtype, ElementwiseFn};

use super::{Operand, elementwise};
use crate::run::memory::AtomicOp;

/// What an atomic operation makes of the bits in memory and the bits of a value. The bits above the width are zero.
pub(crate) fn combine(op: AtomicOp, dtype: Dtype, before: u64, value: u64) -> u64 {
    let function = match op {
        AtomicOp::Exchange => return value,
        AtomicOp::Add => ElementwiseFn::Add,
        AtomicOp::Min => ElementwiseFn::Min,
        AtomicOp::Max => ElementwiseFn::Max,
        AtomicOp::And => ElementwiseFn::And,
        AtomicOp::Or => ElementwiseFn::Or,
        AtomicOp::Xor => ElementwiseFn::Xor,
    };
    let mut word = [0_u64];
    let out = &mut bytemuck::cast_slice_mut(&mut word)[..dtype.bytes()];
    elementwise::apply(function, dtype, out, &[Operand::Scalar(before), Operand::Scalar(value)]);
    word[0]
}
