//! Dots with scales (`tcgen05.mma` with `.block_scale`): the instruction, and the tensor memory of
//! the accumulator and of the scales.

use tilewright_ir as ir;
use tilewright_ir::{Dtype, ScaledFormat, ScaledKind};
use tilewright_layout::Layout;

use crate::TensorMemory;
use crate::tensor_memory::{MAX_DOT_COLUMNS, TensorMemoryMove};

/// The rows of the accumulator of an instruction.
const ROWS: u32 = 128;
/// The fewest columns of an instruction.
pub const MIN_SCALED_COLUMNS: u32 = 32;

/// A dot whose accumulator and scales are in tensor memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScaledDot {
    /// The instruction.
    pub kind: ScaledKind,
    /// The tensor memory of the accumulator.
    pub accumulator: TensorMemory,
    /// The tensor memory of one slot of the scales of A and of B.
    pub scales: [TensorMemory; 2],
}

impl ScaledDot {
    /// Returns the dot of A and B with these formats and an accumulator. The scales follow.
    ///
    /// # Errors
    /// If no instruction computes the dot; the error is the reason.
    pub fn of(
        formats: [ScaledFormat; 2],
        [a, b, accumulator]: [&ir::Type; 3],
        scales: [&ir::Type; 2],
    ) -> Result<Self, &'static str> {
        let (&[m, a_depth], &[b_depth, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err("tcgen05.mma multiplies single matrices");
        };
        let dtype = |ty: &ir::Type| ty.dtype().ok_or("tcgen05.mma multiplies numbers");
        let kind = ScaledKind::of(formats, [false; 2], [dtype(scales[0])?, dtype(scales[1])?])?;
        if !formats[0].is_held_by(dtype(a)?) || !formats[1].is_held_by(dtype(b)?) {
            return Err("the tiles of A and B do not hold the formats");
        }
        if dtype(accumulator)? != Dtype::F32 || accumulator.shape[..] != [m, n] {
            return Err("the accumulator of a dot with scales is fp32");
        }
        let depth = a_depth.saturating_mul(formats[0].in_byte());
        let is_equal = depth == b_depth.saturating_mul(formats[1].in_byte());
        if !is_equal || depth == 0 || !depth.is_multiple_of(kind.depth()) {
            return Err("K is not a multiple of that of the instruction: 32, or 64 for operands of 4 bits");
        }
        let groups = depth / kind.block();
        if scales[0].shape[..] != [m, groups] || scales[1].shape[..] != [n, groups] {
            return Err(
                "the instruction has a scale for 32 elements, or for 16 of 4 bits with fp8e4nv scales",
            );
        }
        let found = TensorMemory::of_accumulator(accumulator).filter(|memory| {
            let columns = memory.block.columns;
            memory.block.rows == ROWS
                && columns.is_multiple_of(MIN_SCALED_COLUMNS)
                && columns <= MAX_DOT_COLUMNS
        });
        let accumulator = found.ok_or("the tile is smaller than the instruction: 128 rows, 32 columns")?;
        let [a_scales, b_scales] = scales.map(TensorMemory::of_scales);
        let missing = "tensor memory has no layout for the scales";
        Ok(Self { kind, accumulator, scales: [a_scales.ok_or(missing)?, b_scales.ok_or(missing)?] })
    }

    /// Returns the layouts in which `warps` warps store the scales of A and of B. Returns `None` if
    /// no instruction stores them.
    pub fn scale_layouts(&self, warps: u32) -> Option<[Layout; 2]> {
        let layout = |memory: &TensorMemory| {
            let layout = memory.register_layout(warps)?;
            TensorMemoryMove::new(memory, &layout).filter(|moves| !moves.is_repeated)?;
            Some(layout)
        };
        let [a, b] = &self.scales;
        Some([layout(a)?, layout(b)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(formats: [ScaledFormat; 2], tiles: [&str; 5]) -> Result<ScaledDot, &'static str> {
        let [a, b, acc, a_scale, b_scale] =
            tiles.map(|text| ir::Type::parse(text).expect("the types are well-formed"));
        ScaledDot::of(formats, [&a, &b, &acc], [&a_scale, &b_scale])
    }

    /// The extents are those of the tables of the PTX ISA, "Block Scaling for tcgen05.mma".
    #[test]
    fn the_instruction_follows_from_formats_and_scales() {
        use ScaledFormat::{E2m1, E4m3, E5m2};
        let mxfp8 = ["fp8e4nv[128, 128]", "fp8e5[128, 64]", "fp32[128, 64]", "uint8[128, 4]", "uint8[64, 4]"];
        let found = dot([E4m3, E5m2], mxfp8).expect("the instruction exists");
        assert_eq!(found.kind, ScaledKind::Mxf8f6f4);
        assert_eq!(found.scales.each_ref().map(TensorMemory::columns), [4, 2]);
        let mxfp4 = ["uint8[128, 64]", "uint8[64, 64]", "fp32[128, 64]", "uint8[128, 4]", "uint8[64, 4]"];
        assert_eq!(dot([E2m1, E2m1], mxfp4).map(|found| found.kind), Ok(ScaledKind::Mxf4));
        let nvfp4 = ["uint8[128, 64]", "uint8[64, 64]", "fp32[128, 64]", "fp8e4nv[128, 8]", "fp8e4nv[64, 8]"];
        assert_eq!(dot([E2m1, E2m1], nvfp4).map(|found| found.kind), Ok(ScaledKind::Nvf4));
        assert!(dot([E4m3, E2m1], mxfp8).is_err(), "tiles of fp8 do not hold e2m1");
        let narrow = ["uint8[64, 64]", "uint8[64, 64]", "fp32[64, 64]", "uint8[64, 2]", "uint8[64, 2]"];
        assert!(dot([E4m3, E4m3], narrow).is_err(), "64 rows are too few");
        let fine = ["uint8[128, 64]", "uint8[64, 64]", "fp32[128, 64]", "uint8[128, 4]", "uint8[64, 4]"];
        assert!(dot([E4m3, E4m3], fine).is_err(), "16 elements of 8 bits share no scale");
    }

    #[test]
    fn each_scale_is_stored_once() {
        use ScaledFormat::E4m3;
        let tiles = ["uint8[128, 32]", "uint8[32, 32]", "fp32[128, 32]", "uint8[128, 1]", "uint8[32, 1]"];
        let found = dot([E4m3; 2], tiles).expect("the instruction exists");
        assert!(found.scale_layouts(4).is_some());
        assert!(found.scale_layouts(8).is_none(), "two warps would store one column of the scales of B");
    }
}
