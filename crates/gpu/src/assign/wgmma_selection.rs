//! Which products warpgroups compute: the instruction by the types of the operands, how warps divide the tile, and where A
//! comes from.

use tilewright_ir::{Dtype, Function, InputPrecision, Inst, OpFamily, Value};
use tilewright_layout::Mma;

use tilewright_gpu_ir::target::{Feature, GpuTarget, WARPGROUP_WARPS};

/// Rows of an instruction, which a warpgroup computes.
const ROWS: u32 = 64;
/// Columns of an instruction.
const LEAST_COLUMNS: u32 = 8;
const MOST_COLUMNS: u32 = 256;
/// Bits of an operand along K.
const DEPTH_BITS: u32 = 256;

/// The instruction for types of A, B and the accumulator, and the warps along M and N; or why there is none.
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
        return Err("wgmma takes four warps together, and num_warps is no multiple of 4");
    }
    let bits = operand_bits(dtypes, precision).ok_or("wgmma does not take these types")?;
    let depth = DEPTH_BITS / bits;
    if m < ROWS || n < LEAST_COLUMNS || k < depth {
        return Err("the tile is smaller than an instruction of wgmma: 64 rows, 8 columns, 32 bytes of k");
    }
    // Along M first: so each warpgroup reads its own part of A, and what a product gives is in the threads that need it as
    // an operand of the next one.
    let groups = num_warps / WARPGROUP_WARPS;
    let along_m = groups.min(m / ROWS);
    let along_n = groups / along_m;
    let columns = n / along_n;
    if columns < LEAST_COLUMNS {
        return Err("a warpgroup would get fewer than 8 columns");
    }
    Ok((Mma::new(ROWS, columns.min(MOST_COLUMNS), depth, bits), [WARPGROUP_WARPS * along_m, along_n]))
}

/// The bits of an operand, if there is an instruction for these types.
fn operand_bits([a, b, sum]: [Dtype; 3], precision: InputPrecision) -> Option<u32> {
    use Dtype as D;
    let is_fp8 = |dtype| matches!(dtype, D::F8E5 | D::F8E4NV);
    match (a, b, sum) {
        (D::F16, D::F16, D::F32 | D::F16) | (D::BF16, D::BF16, D::F32) => Some(16),
        (D::F32, D::F32, D::F32) if precision == InputPrecision::Tf32 => Some(32),
        (D::I8, D::I8, D::I32) | (D::U8, D::U8, D::I32) => Some(8),
        (a, b, D::F32 | D::F16) if is_fp8(a) && is_fp8(b) => Some(8),
        // tidy: wildcard because the others have no instruction
        _ => None,
    }
}

/// Whether A is computed in the block of the product, from a load or from another product: then it stays in registers. What
/// was loaded as it is, and what is used again and again, the product reads from shared memory.
pub fn is_computed_beside(function: &Function, product: Inst) -> bool {
    let mut value = function.insts[product].operands[0];
    loop {
        let Some(inst) = function.defining_inst(value) else { return false };
        let data = &function.insts[inst];
        match data.op.family() {
            OpFamily::Identity | OpFamily::Shape => value = data.operands[0],
            OpFamily::Pointwise | OpFamily::Dot => return is_in_block_of(function, value, product),
            // tidy: wildcard because other ops compute nothing
            _ => return false,
        }
    }
}

/// Whether the block that makes a value is that of an instruction.
fn is_in_block_of(function: &Function, value: Value, inst: Inst) -> bool {
    let Some(made) = function.defining_inst(value) else { return false };
    function.blocks.values().any(|block| block.insts.contains(&made) && block.insts.contains(&inst))
}
