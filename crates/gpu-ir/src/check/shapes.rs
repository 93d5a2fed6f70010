//! The shapes of instructions for dots.

use tilewright_ir as ir;
use tilewright_layout::Mma;

/// The extent along K of the operands of one `wgmma`, in bits.
const WGMMA_K_BITS: u32 = 256;

/// Returns whether an instruction `mma` exists and is not larger than the dot. It is `wgmma` if
/// `is_async`, else `mma.sync`.
///
/// `warps` are along the batch, M and N.
pub(super) fn is_instruction(mma: Mma, [a, b, _]: &[ir::Type; 3], warps: [u32; 3], is_async: bool) -> bool {
    let rows_and_columns = if is_async {
        let is_width = mma.n.is_power_of_two() && (8..=256).contains(&mma.n);
        let is_depth = mma.k * mma.operand_bits == WGMMA_K_BITS;
        mma.m == 64 && is_width && is_depth && a.rank() == 2 && warps[1].is_multiple_of(4)
    } else {
        matches!(mma.m, 8 | 16) && mma.n == 8
    };
    // Each of four lanes along K holds at least a 32-bit word.
    let least_k = 4 * (32 / mma.operand_bits).max(1);
    let last = a.rank() - 1;
    let extents = [a.shape[last - 1], b.shape[last], a.shape[last]];
    let is_smaller = [mma.m, mma.n, mma.k].iter().zip(extents).all(|(own, extent)| *own <= extent);
    rows_and_columns && mma.k.is_power_of_two() && mma.k >= least_k && is_smaller
}
