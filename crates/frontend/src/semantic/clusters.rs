//! Defines the rules of clusters (Gluon).
//!
//! The blocks of a cluster run a program together, and each block has a part of its tiles.

use smallvec::smallvec;
use tilewright_base::Code;
use tilewright_ir::{Builder, DeviceFn, Dtype, SharedTiles};

use super::arguments::Arguments;
use super::convert::literal;
use super::device_function::{count, device};
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::shared_memory::SharedForm;
use crate::value::{Constant, Operand};

/// `cluster.barrier(relaxed)`, `gl.barrier(cluster=True)`.
pub(super) fn barrier<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    arrive(c, a)?;
    wait(c, a)
}

/// `cluster.arrive(relaxed)`. The memory order is that of a barrier without `relaxed`.
pub(super) fn arrive<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if c.num_ctas() > 1 {
        device(c, DeviceFn::ClusterArrive {}, smallvec![])?;
    } else {
        c.builder().barrier()?;
    }
    Ok(Operand::Constant(Constant::None))
}

/// `cluster.wait()`.
pub(super) fn wait<C: Caller + ?Sized>(c: &mut C, _: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if c.num_ctas() > 1 {
        device(c, DeviceFn::ClusterWait {}, smallvec![])?;
    }
    Ok(Operand::Constant(Constant::None))
}

/// Returns the argument `from_cta`: the bits of the block's rank that an arrival keeps. `None`
/// means the block's own barrier.
pub(super) fn kept_bits<C: Caller + ?Sized>(
    c: &mut C,
    a: &Arguments<'_, C>,
    index: usize,
) -> Semantic<Option<u32>> {
    if a.is_none(index) {
        return Ok(None);
    }
    let (kept, all) = (count(c, a, index)?, c.num_ctas() - 1);
    if kept > all {
        let expected = format!("a mask of the bits of a rank, from 0 to {all}");
        return Err(a.unexpected(index, &expected, &kept.to_string()));
    }
    Ok((kept != all).then_some(kept))
}

/// Returns the mask 0: the layout of the memory determines the blocks of a multicast copy.
pub(super) fn no_blocks<C: Caller + ?Sized>(c: &mut C) -> Semantic<ValueOf<C>> {
    literal(c, &Constant::Int(0), Dtype::I32)
}

/// Returns the bytes of shared memory of each block.
pub(super) fn bytes_of_block(form: &SharedForm) -> Semantic<Constant> {
    let SharedTiles { dtype, shape, layout, .. } = &form.tiles;
    let division = layout.division(shape).map_err(|error| SemanticError::new(Code::LayoutMismatch, error))?;
    let elements: u64 = division.part.iter().map(|extent| u64::from(*extent)).product();
    let bytes = elements * u64::from(form.count.unwrap_or(1)) * u64::from(dtype.bits().max(8)) / 8;
    Ok(Constant::Int(i128::from(bytes)))
}

/// Refuses views of memory of several blocks that may have elements of other blocks.
pub(super) fn check_view(own: &SharedTiles, new: &SharedTiles) -> Semantic<()> {
    let bytes = |tiles: &SharedTiles| {
        let part = tiles.layout.division(&tiles.shape).map(|division| division.part);
        part.map(|part| u64::from(part.iter().product::<u32>()) * u64::from(tiles.dtype.bits().max(8)) / 8)
    };
    let is_one = own.layout.blocks() == 1 && new.layout.blocks() == 1;
    let fits = own.layout.blocks() == new.layout.blocks() && bytes(own).is_ok() && bytes(own) == bytes(new);
    if is_one || fits {
        return Ok(());
    }
    let message = "a view of the memory of several blocks has other parts than the memory";
    Err(SemanticError::new(Code::LayoutMismatch, message)
        .argument(0, format!("this has {}, and the view {}", own.layout, new.layout))
        .hint("allocate memory with the layout of the view"))
}
