//! Estimates by which passes choose between layouts, instructions and orders. The weights and
//! thresholds are those of [`Tuning`].
//!
//! **Cost** is that of a warp, in passes of shared memory: one moves a word of each lane. A shuffle
//! costs two, as does a word that is stored and loaded; a sector of global memory takes about as long
//! as a pass. An op in a loop counts [`Tuning::loop_weight`] times. Layouts are chosen by it
//! (`assign/selection.rs`).
//!
//! **Registers** of a thread are estimated from the layouts of the tiles that are live together, and
//! [`Tuning::other_registers`] for addresses, counters and masks. They decide which dots run beside
//! each other, which one waits, and how many warps a program gets ([`fits`]).
//!
//! Nothing weighs the time of tensor cores against that of memory: a program chooses its blocks,
//! warps and stages itself. `docs/explain.md` lists the choices with their criteria.

use tilewright_gpu_ir::layout_rules::LANES;
use tilewright_gpu_ir::target::{GpuTarget, REGISTER_FILE, SECTOR_BYTES, THREAD_REGISTERS};
use tilewright_gpu_ir::tuning::Tuning;

/// What a block takes of the shared memory of a multiprocessor for itself.
const RESERVED_SHARED_BYTES: u32 = 1024;
/// The schedulers of a multiprocessor, each with a quarter of its registers.
const SCHEDULERS: u32 = 4;
/// The registers of a thread are a multiple of this number.
const REGISTER_UNIT: u32 = 8;

/// Whether warps of their own pay for a loop of so many stages in whose iteration a thread starts so many copies: addresses, which
/// stand between the products, are computed elsewhere then. With tensor copies alone they do not: products of 4096 and 8192 squared by
/// persistent programs took 182.6 and 1483 us with them and 182.0 and 1535 without, within the spread of 3 %, and loops of dependent
/// dots 1.13 to 1.26 times as long.
pub fn own_warps_pay(copies: u32, stages: u32, tuning: &Tuning) -> bool {
    copies >= tuning.specialized_copies && stages <= tuning.specialized_stages
}

/// What accesses of a warp cost that each touch so many runs of bytes.
pub fn access_cost(accesses: u32, runs: u32, run_bytes: u32, tuning: &Tuning) -> u32 {
    let sectors = if run_bytes < SECTOR_BYTES {
        tuning.partial_sector_cost * runs
    } else {
        runs * run_bytes / SECTOR_BYTES
    };
    accesses * (1 + sectors)
}

/// Whether tiles of so many registers of a thread can be alive together in a block of so many threads.
pub fn fits(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    tiles + tuning.other_registers <= THREAD_REGISTERS.min(REGISTER_FILE / threads)
}

/// Whether a loop may be unrolled whose dots take `tiles` registers of a thread.
pub fn fits_registers_unrolled(tiles: u32, threads: u32, tuning: &Tuning) -> bool {
    fits(tiles + tuning.unrolled_registers, threads, tuning)
}

/// The blocks of `threads` threads that the registers of a multiprocessor hold, if dots take `tiles`
/// registers of each.
///
/// The registers are in one file for each scheduler, which holds those of whole warps.
pub fn blocks_by_registers(tiles: u32, threads: u32, tuning: &Tuning) -> u32 {
    let registers_of_warp = (tiles + tuning.other_registers).next_multiple_of(REGISTER_UNIT) * LANES;
    let warps = SCHEDULERS * (REGISTER_FILE / SCHEDULERS / registers_of_warp);
    warps / (threads / LANES)
}

/// The blocks that the shared memory of a multiprocessor of a target holds.
pub fn blocks_by_shared_memory(shared_bytes: u32, target: GpuTarget) -> u32 {
    (target.max_shared_bytes + RESERVED_SHARED_BYTES) / (shared_bytes + RESERVED_SHARED_BYTES)
}

/// Whether `copies` copies of a body of `insts` instructions are few enough for the code of a loop.
pub fn should_unroll(copies: u32, insts: u32, tuning: &Tuning) -> bool {
    copies <= tuning.unrolled_iterations && copies * insts <= tuning.unrolled_ops
}

/// Whether the `arithmetic` instructions on tiles of a loop take longer than its dots do.
pub fn is_issue_bound(arithmetic: u32, dots: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.issue_bound_ops_per_dot * dots
}

/// Whether the `arithmetic` instructions on tiles of a loop hide copies that start late.
pub fn hides_copies(arithmetic: u32, tuning: &Tuning) -> bool {
    arithmetic >= tuning.hiding_ops
}
