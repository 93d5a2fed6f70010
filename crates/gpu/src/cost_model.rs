//! Estimates costs and registers, by which passes choose. The weights and thresholds are in
//! [`Tuning`].
//!
//! The unit of **cost** is a wavefront of shared memory, which moves one word of each lane.
//! Examples: a shuffle costs 2, a store to shared memory with its load 2, and a sector of global
//! memory about 1. An op in a loop counts [`Tuning::loop_weight`] times. `assign/selection.rs`
//! chooses layouts by this cost.
//!
//! The **registers** of a thread are those of the tiles that are live together, plus
//! [`Tuning::other_registers`]. [`fits_registers`] decides which operands of dots stay in
//! registers, which dots overlap iterations, and how many warps a program gets.
//!
//! No estimate compares the time of tensor cores with that of memory. The kernel and its launch
//! options choose tile sizes, warps and stages. Passes may add warps, and remove stages that exceed
//! shared memory. `docs/explain.md` lists the choices with their criteria.

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

/// Returns whether each of `threads` threads can hold `tiles` registers.
pub fn fits_registers(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    tiles + tuning.other_registers <= THREAD_REGISTERS.min(REGISTER_FILE / threads)
}

/// Returns whether an unrolled loop with dots of `tiles` registers fits.
pub fn fits_registers_unrolled(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    fits_registers(tiles + tuning.unrolled_registers, threads, tuning)
}

/// Returns how many blocks of `threads` threads fit into the registers of a multiprocessor. Tiles
/// take `tiles` registers of each thread.
///
/// Each scheduler has a register file, which holds the registers of whole warps.
pub fn blocks_by_registers(tiles: u32, threads: u32, tuning: &Tuning) -> u32 {
    let registers_of_warp = (tiles + tuning.other_registers).next_multiple_of(REGISTER_UNIT) * LANES;
    let warps = SCHEDULERS * (REGISTER_FILE / SCHEDULERS / registers_of_warp);
    warps / (threads / LANES)
}

/// Returns how many blocks of `shared_bytes` fit into the shared memory of a multiprocessor.
pub fn blocks_by_shared_memory(shared_bytes: u32, target: GpuTarget) -> u32 {
    (target.max_shared_bytes + RESERVED_SHARED_BYTES) / (shared_bytes + RESERVED_SHARED_BYTES)
}

/// Returns whether to unroll a body of `insts` instructions to `copies` copies.
pub fn should_unroll(copies: u32, insts: u32, tuning: &Tuning) -> bool {
    copies <= tuning.unrolled_iterations && copies * insts <= tuning.unrolled_ops
}

/// Returns whether issuing `arithmetic` tile ops takes longer than running `dots` dots.
pub fn is_issue_bound(arithmetic: u32, dots: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.issue_bound_ops_per_dot * dots
}

/// Returns whether `arithmetic` tile ops hide the latency of a copy.
pub fn hides_copies(arithmetic: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.hiding_ops
}
