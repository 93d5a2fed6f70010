//! Computes the parts of tiles that the blocks of a cluster have.

use tilewright_ir::{Dtype, StatedBuffer};

use crate::descriptor::DescriptorForm;
use crate::value::Constant;

/// Returns the number of bytes of a descriptor's tile in each block of the cluster.
pub(super) fn bytes_of_part(form: &DescriptorForm, dtype: Dtype) -> Constant {
    let shape = &form.block_shape;
    let layout = form.layout.as_deref().and_then(|layout| layout.parse::<StatedBuffer>().ok());
    let part = layout.and_then(|layout| layout.division(shape).ok());
    let elements = part.map_or(shape.elements() as u64, |division| {
        division.part.iter().map(|extent| u64::from(*extent)).product()
    });
    Constant::Int(i128::from(elements * dtype.bytes() as u64))
}
