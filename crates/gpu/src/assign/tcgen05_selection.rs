//! Selects the `tcgen05.mma` instruction of a dot, and the tensor memory of its accumulator.

use tilewright_ir::{Dtype, InputPrecision, ScaledFormat, Type};
use tilewright_layout::Mma;

use tilewright_gpu_ir::TensorMemory;
use tilewright_gpu_ir::layout_rules::element_bits;
use tilewright_gpu_ir::scaled_dots::ScaledDot;
use tilewright_gpu_ir::target::{Feature, GpuTarget, WARPGROUP_WARPS};
use tilewright_gpu_ir::tensor_memory::is_tensor_dot;

/// The bits of a row of A along K in an instruction.
const DEPTH_BITS: u32 = 256;
/// The bits of an element of A in a tile of a dot with scales.
const BYTE_BITS: u32 = 8;

/// The number of dots in flight whose scales are in tensor memory.
pub const SCALE_SLOTS: u32 = 2;

/// Returns the dot with scales for operands with these formats. `tiles` are A, B and the
/// accumulator.
///
/// # Errors
/// If no instruction computes the dot; the error is the reason.
pub fn scaled_instruction(
    formats: [ScaledFormat; 2],
    tiles: [&Type; 3],
    scales: [&Type; 2],
    target: GpuTarget,
    num_warps: u32,
) -> Result<ScaledDot, &'static str> {
    if !target.features.has(Feature::Tcgen05) {
        return Err("the target has no tcgen05.mma");
    }
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return Err("groups of 4 warps access tensor memory, so num_warps must be a multiple of 4");
    }
    let dot = ScaledDot::of(formats, tiles, scales)?;
    if dot.accumulator.register_layout(num_warps).is_none() || dot.scale_layouts(num_warps).is_none() {
        return Err("no instruction moves the scales between registers and tensor memory");
    }
    Ok(dot)
}

/// Returns the columns of tensor memory of a dot with scales: those of its accumulator and of its
/// scales.
pub fn scaled_columns(dot: &ScaledDot) -> u32 {
    dot.accumulator.columns() + dot.scales.iter().map(|scales| SCALE_SLOTS * scales.columns()).sum::<u32>()
}

/// Returns the `tcgen05.mma` of a dot with scales. Its K counts the bytes of a row of A.
pub fn scaled_mma(accumulator: &TensorMemory) -> Mma {
    Mma::new(accumulator.block.rows, accumulator.block.columns, DEPTH_BITS / BYTE_BITS, BYTE_BITS)
}

/// Returns the instruction for types of A, B and the accumulator, and the accumulator's tensor
/// memory. `k` is the extent that the dot reduces.
///
/// # Errors
/// If no instruction computes the dot; the error is the reason.
pub fn instruction(
    [a, b, accumulator]: [Dtype; 3],
    precision: InputPrecision,
    k: u32,
    tile: &Type,
    target: GpuTarget,
    num_warps: u32,
) -> Result<(Mma, TensorMemory), &'static str> {
    if !target.features.has(Feature::Tcgen05) {
        return Err("the target has no tcgen05.mma");
    }
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return Err("groups of 4 warps access tensor memory, so num_warps must be a multiple of 4");
    }
    let is_tf32 = a != Dtype::F32 || precision == InputPrecision::Tf32;
    if !is_tf32 || !is_tensor_dot([a, b, accumulator].map(Some)) {
        return Err("tcgen05.mma does not multiply these types");
    }
    let bits = element_bits(&tile.with_dtype(a));
    let depth = DEPTH_BITS / bits;
    let memory = TensorMemory::of_accumulator(tile).filter(|_| k >= depth);
    let memory =
        memory.ok_or("the tile is smaller than a tcgen05.mma: 64 rows, 16 columns, 32 bytes of k")?;
    if memory.register_layout(num_warps).is_none() {
        return Err("no instruction moves the accumulator between registers and tensor memory");
    }
    Ok((Mma::new(memory.block.rows, memory.block.columns, depth, bits), memory))
}
