//! What choices between layouts, instructions and orders are made by: one place for what is estimated, weighed and measured.
//!
//! **Cost** is that of a warp, in passes of shared memory: one moves a word of each lane. A shuffle costs two, as a word that is
//! stored and loaded does; a sector of global memory takes about as long as a pass. What is inside of a loop counts
//! [`LOOP_WEIGHT`] times as much. Layouts are chosen by it (`assign/selection.rs`).
//!
//! **Registers** of a thread are estimated from the layouts of the tiles that are alive together, and [`OTHER_REGISTERS`] for
//! addresses, counters and masks. Where two products run beside each other, which one waits, and how many warps there are is
//! chosen by it ([`fits`], [`ACCUMULATOR_REGISTERS`]).
//!
//! **Bytes**: below some sizes a mechanism costs more than it saves. Those were measured, and say on what.
//!
//! Nothing weighs the time of tensor cores against that of memory: the blocks of a program, its warps and stages are its own
//! to choose. `docs/explain.md` lists the choices, and what each is made by.

use crate::target::{GpuTarget, REGISTER_FILE, SECTOR_BYTES, THREAD_REGISTERS};

/// The factor by which a loop makes what is inside more important.
pub const LOOP_WEIGHT: u32 = 8;

/// What a trip through shared memory costs besides its accesses: two barriers and the latency of a load, in passes of
/// the memory.
pub const TRIP_COST: u32 = 40;

/// So many instructions of arithmetic take as long as a pass of shared memory or a shuffle.
pub const A_PASS: u32 = 4;

/// So many instructions are a function that hardware has no instruction for.
pub const FUNCTION_COST: u32 = 8;

/// So many elements of a thread are many, if each is accessed for itself.
pub const MANY_ACCESSES: u32 = 16;

/// From so many elements of a thread on, lanes with copies share them when they are stored: of fewer, the selections take more
/// instructions than the stores.
pub const MANY_STORES: u32 = 8;

/// What a sector costs that an access touches in part, in sectors. It is moved again for the rest, through caches that may
/// have lost it, and where it is stored merged in memory: transposed copies of 16x16 and 32x32 tiles that access one of
/// their sides in parts take 1.3 to 3 times as long as with a conversion (H200).
const PART_COST: u32 = 4;

/// The registers that a thread needs besides tiles.
pub const OTHER_REGISTERS: u32 = 40;

/// The registers of a thread that accumulators may take before a program gets more warps; the rest is for addresses and
/// operands.
pub const ACCUMULATOR_REGISTERS: usize = 240;

/// The registers of a thread that the sum of a warp may take which computes a part of K for itself.
pub const DEPTH_SPLIT_REGISTERS: u32 = 128;

/// The most rows of a product whose warps each compute a part of K: of more, warpgroups compute enough with what they load to
/// hide how it is made.
pub const DEPTH_SPLIT_ROWS: u32 = 64;

/// The most elements of an operand that a thread makes of others in an iteration, if warps of their own are to copy for it: in a longer
/// one, what starting copies costs is hidden. On an H200, 16x8192x8192 with weights of 4 bits, 64 a thread, took 24.5 µs without such
/// warps and 22.4 with them, with weights of 8 bits 26.9 and 24.5; with 128 a thread 22.8 and 23.1. Products whose operands come as
/// they are gain nothing (4096^3 in a persistent kernel 182.0 and 182.6), and attention is slower with them by an eighth and more.
pub const SPECIALIZED_ELEMENTS: u32 = 64;

/// An operand of a product that is made outside of the loop that uses it stays in registers if it takes no more than these.
pub const KEPT_OPERAND_REGISTERS: u32 = 32;

/// The most registers of a thread that an operand of a product may take which has no room in shared memory: half of those that there
/// are. The assembler spills what is too much beside it.
pub const MOVED_OPERAND_REGISTERS: u32 = 128;

/// The most registers of a thread for the A operand of a product that is computed as its transpose: what it has beside its part
/// of the sum.
pub const TRANSPOSED_REGISTERS: u32 = 64;

/// Registers of factors from which on a vote and a jump cost less than the products with 1 that they save.
pub const RESCALED_REGISTERS: u32 = 16;

/// Tiles with fewer bytes are not worth that two blocks run in step: on an H200, products of 8200 x 8200 in blocks of 128 x 256 x 64
/// took 0.85 of the time with B, 32 KB, shared, in blocks of 256 x 128 x 64 (16 of 48 KB) as long, and in blocks of 128 x 128 x 64
/// 1.07 times as long.
pub const PAIRED_BYTES: u32 = 32 << 10;

/// The same of the blocks that a program is divided between, which are next to each other in any case.
pub const SHARED_BYTES: u32 = 8 << 10;

/// The most slots of rings for which a loop has an iteration each in its code.
const NUMBERED_SLOTS: u32 = 4;

/// So many instructions on tiles beside the products of a loop, and threads have more to issue than those.
const MANY_TILES: u32 = 4;

/// The most instructions of the language in the code of such a loop.
const NUMBERED_INSTS: u32 = 600;

/// The registers of a thread that several iterations in a row take beyond one: the assembler mixes them. Attention took 20 to 55.
const ROUND_REGISTERS: u32 = 56;

/// What a block takes of the shared memory of a multiprocessor for itself.
const RESERVED_SHARED_BYTES: u32 = 1024;

/// From so many copies by `cp.async` on that a thread starts in an iteration, by addresses that are loaded, warps of their own start them in
/// loops that do not ask for it, up to so many stages. A mixture of experts, with 10 to 24 copies, took 0.97 to 0.99 of the time on an H200
/// with 3 stages (its best blocks 313 and 319 us), but 1.10 and 1.13 to 1.18 times as long with 4 and 5 (299 for 272 us, 295 for 249 to 265).
const OWN_WARPS_COPIES: u32 = 8;
const OWN_WARPS_STAGES: u32 = 3;

/// Whether warps of their own pay for a loop of so many stages in whose iteration a thread starts so many copies: addresses, which
/// stand between the products, are computed elsewhere then. With tensor copies alone they do not: products of 4096 and 8192 squared by
/// persistent programs took 182.6 and 1483 us with them and 182.0 and 1535 without, within the spread of 3 %, and attention 1.13 to 1.26
/// times as long.
pub fn own_warps_pay(copies: u32, stages: u32) -> bool {
    copies >= OWN_WARPS_COPIES && stages <= OWN_WARPS_STAGES
}

/// What accesses of a warp cost that each touch so many runs of bytes.
pub fn access_cost(accesses: u32, runs: u32, run_bytes: u32) -> u32 {
    let sectors = if run_bytes < SECTOR_BYTES { PART_COST * runs } else { runs * run_bytes / SECTOR_BYTES };
    accesses * (1 + sectors)
}

/// Whether tiles of so many registers of a thread can be alive together in a block of so many threads.
pub fn fits(tiles: u32, threads: u32) -> bool {
    tiles + OTHER_REGISTERS <= THREAD_REGISTERS.min(REGISTER_FILE / threads)
}

/// Whether an iteration whose tiles take so many registers of a thread may stand several times in a row in the code.
pub fn rounds_fit(tiles: u32, threads: u32) -> bool {
    fits(tiles + ROUND_REGISTERS, threads)
}

/// The blocks that a multiprocessor of a target has room for, of so many threads with tiles in so many registers of each, and of so
/// many bytes of shared memory.
pub fn blocks(tiles: u32, threads: u32, shared_bytes: u32, target: GpuTarget) -> u32 {
    let by_registers = REGISTER_FILE / (threads * (tiles + OTHER_REGISTERS).next_multiple_of(8));
    let shared = target.max_shared_bytes + RESERVED_SHARED_BYTES;
    by_registers.min(shared / (shared_bytes + RESERVED_SHARED_BYTES))
}

/// Whether so many iterations of so many instructions each may stand in the code of a loop.
pub fn stand_in_code(iterations: u32, insts: u32) -> bool {
    iterations <= NUMBERED_SLOTS && iterations * insts <= NUMBERED_INSTS
}

/// Whether what the threads of a loop compute with tiles, in so many instructions of the language, is what it waits for beside
/// its products.
pub fn issue_slots_count(arithmetic: u32) -> bool {
    arithmetic >= MANY_TILES
}
