//! Estimates costs and registers. Passes choose by these estimates between layouts, instructions
//! and orders of instructions. The weights and thresholds are in [`Tuning`].
//!
//! The unit of **cost** is a wavefront of shared memory: it moves a word of each lane of a warp. A
//! shuffle costs two wavefronts. A word that is stored to shared memory and loaded again costs two,
//! too. A sector of global memory takes about as long as one wavefront. An op in a loop counts
//! [`Tuning::loop_weight`] times. `assign/selection.rs` chooses layouts by this cost.
//!
//! The **registers** of a thread are estimated from the layouts of the tiles that are live
//! together, plus [`Tuning::other_registers`] for addresses, counters and masks. The estimate
//! ([`fits_registers`]) decides which operands of dots stay in registers, which dots overlap the
//! next iteration, and how many warps a program gets.
//!
//! No estimate compares the time of tensor cores with that of memory. The kernel and its launch
//! options choose the tile sizes and request the numbers of warps and stages. Passes may add warps,
//! and remove stages that do not fit into shared memory. `docs/explain.md` lists the choices with
//! their criteria.

use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{GpuTarget, REGISTER_FILE, SECTOR_BYTES, THREAD_REGISTERS};
use tilewright_gpu_ir::tuning::Tuning;

/// The bytes of shared memory that the driver reserves on a multiprocessor for each block.
const RESERVED_SHARED_BYTES: u32 = 1024;
/// The number of warp schedulers of a multiprocessor. Each has a quarter of the registers.
const SCHEDULERS: u32 = 4;
/// The hardware allocates the registers of a thread in multiples of this number.
const REGISTER_UNIT: u32 = 8;

/// Returns the cost of `accesses` accesses of a warp. Each access touches `runs` contiguous runs of
/// `run_bytes` bytes.
pub fn access_cost(accesses: u32, runs: u32, run_bytes: u32, tuning: &Tuning) -> u32 {
    let sectors = if run_bytes < SECTOR_BYTES {
        tuning.partial_sector_cost * runs
    } else {
        runs * run_bytes / SECTOR_BYTES
    };
    accesses * (1 + sectors)
}

/// Returns whether a thread can hold tiles of `tiles` registers at once, if its block has `threads`
/// threads.
pub fn fits_registers(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    tiles + tuning.other_registers <= THREAD_REGISTERS.min(REGISTER_FILE / threads)
}

/// Returns whether an unrolled loop fits into the registers of a thread, if its dots take `tiles`
/// registers.
pub fn fits_registers_unrolled(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    fits_registers(tiles + tuning.unrolled_registers, threads, tuning)
}

/// Returns how many blocks of `threads` threads fit into the registers of a multiprocessor. Tiles
/// take `tiles` registers of each thread.
///
/// Each scheduler has its own register file, which holds the registers of whole warps.
pub fn blocks_by_registers(tiles: u32, threads: u32, tuning: &Tuning) -> u32 {
    let registers_of_warp = (tiles + tuning.other_registers).next_multiple_of(REGISTER_UNIT) * LANES;
    let warps = SCHEDULERS * (REGISTER_FILE / SCHEDULERS / registers_of_warp);
    warps / (threads / LANES)
}

/// Returns how many blocks of `shared_bytes` fit into the shared memory of a multiprocessor.
pub fn blocks_by_shared_memory(shared_bytes: u32, target: GpuTarget) -> u32 {
    (target.max_shared_bytes + RESERVED_SHARED_BYTES) / (shared_bytes + RESERVED_SHARED_BYTES)
}

/// Returns whether a loop is small enough to unroll to `copies` copies of a body of `insts`
/// instructions.
pub fn should_unroll(copies: u32, insts: u32, tuning: &Tuning) -> bool {
    copies <= tuning.unrolled_iterations && copies * insts <= tuning.unrolled_ops
}

/// Returns whether a loop takes longer to issue `arithmetic` ops on tiles than to run `dots` dots.
pub fn is_issue_bound(arithmetic: u32, dots: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.issue_bound_ops_per_dot * dots
}

/// Returns whether `arithmetic` ops on tiles take long enough to hide the latency of a copy.
pub fn hides_copies(arithmetic: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.hiding_ops
}
