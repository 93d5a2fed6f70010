//! Selects the `wgmma` of a dot, its warps, and the source of A.

use tilewright_ir::{Dtype, Function, InputPrecision, Inst, OpFamily, Value};
use tilewright_layout::Mma;

use tilewright_gpu_ir::target::{Feature, GpuTarget, WARPGROUP_WARPS};

/// The rows of an instruction.
const ROWS: u32 = 64;
/// The minimum number of columns of an instruction.
const MIN_COLUMNS: u32 = 8;
/// The maximum number of columns of an instruction.
const MAX_COLUMNS: u32 = 256;
/// The bits of a row of A along K in one instruction.
const DEPTH_BITS: u32 = 256;

/// Returns the instruction for types of A, B and the accumulator, and its warps.
///
/// # Errors
/// If no instruction computes the dot; the error is the reason.
pub fn instruction(
    dtypes: [Dtype; 3],
    precision: InputPrecision,
    [m, n, k]: [u32; 3],
    target: GpuTarget,
    num_warps: u32,
) -> Result<(Mma, [u32; 2]), &'static str> {
    if !target.features.has(Feature::Wgmma) {
        return Err("the target has no wgmma");
    }
    if !num_warps.is_multiple_of(WARPGROUP_WARPS) {
        return Err("wgmma runs on warpgroups of 4 warps, so num_warps must be a multiple of 4");
    }
    let bits = operand_bits(dtypes, precision).ok_or("wgmma does not multiply these types")?;
    let depth = DEPTH_BITS / bits;
    if m < ROWS || n < MIN_COLUMNS || k < depth {
        return Err("the tile is smaller than a wgmma instruction: 64 rows, 8 columns, 32 bytes of k");
    }
    // Divide M first. Each warpgroup then reads its own part of A. The result of a dot is in the
    // threads that need it as the operand of the next dot.
    let groups = num_warps / WARPGROUP_WARPS;
    let along_m = groups.min(m / ROWS);
    let along_n = groups / along_m;
    let columns = n / along_n;
    if columns < MIN_COLUMNS {
        return Err("a warpgroup would get fewer than 8 columns");
    }
    Ok((Mma::new(ROWS, columns.min(MAX_COLUMNS), depth, bits), [WARPGROUP_WARPS * along_m, along_n]))
}

/// Returns the bits of an operand, or `None` if no instruction has these types.
fn operand_bits([a, b, accumulator]: [Dtype; 3], precision: InputPrecision) -> Option<u32> {
    use Dtype as D;
    let is_fp8 = |dtype| matches!(dtype, D::F8E5 | D::F8E4NV);
    match (a, b, accumulator) {
        (D::F16, D::F16, D::F32 | D::F16) | (D::BF16, D::BF16, D::F32) => Some(16),
        (D::F32, D::F32, D::F32) if precision == InputPrecision::Tf32 => Some(32),
        (D::I8, D::I8, D::I32) | (D::U8, D::U8, D::I32) => Some(8),
        (a, b, D::F32 | D::F16) if is_fp8(a) && is_fp8(b) => Some(8),
        // tidy: wildcard because other types have no instruction
        _ => None,
    }
}

/// Returns whether the block of the dot computes A, which then stays in registers.
///
/// Otherwise, the dot reads A from shared memory.
pub fn is_computed_in_block(function: &Function, dot: Inst) -> bool {
    let mut value = function.insts[dot].operands[0];
    loop {
        let Some(inst) = function.defining_inst(value) else { return false };
        let data = &function.insts[inst];
        match data.op.family() {
            OpFamily::Identity | OpFamily::Shape => value = data.operands[0],
            OpFamily::Pointwise | OpFamily::Dot => return is_in_block_of(function, value, dot),
            // tidy: wildcard because other ops do not compute elements
            _ => return false,
        }
    }
}

fn is_in_block_of(function: &Function, value: Value, inst: Inst) -> bool {
    let Some(definition) = function.defining_inst(value) else { return false };
    function.blocks.values().any(|block| block.insts.contains(&definition) && block.insts.contains(&inst))
}
