//! The thresholds and weights of the passes for GPUs. Several targets may share a table. No other
//! file of the GPU back end has measured thresholds.
//!
//! The last paragraph of an entry is its evidence (check `evidence`). It is a measurement with
//! kernel, GPU and date, or `Derived:` with a reason, or `Not measured`. `docs/performance/` has
//! the measurements. Facts about hardware are in [`target`](crate::target). The estimates that use
//! this table are in the module `cost_model` of the crate `gpu`.

/// The thresholds and weights of a target.
#[derive(PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The weight of an op in a loop, relative to one outside.
    ///
    /// Not measured: most trip counts are unknown, and the weight assumes 8.
    pub loop_weight: u32,
    /// Cost of a trip through shared memory, without its accesses. A trip has two barriers and the
    /// latency of a load. The unit is a pass, one wavefront of an access to shared memory.
    ///
    /// Not measured: an estimate.
    pub trip_cost: u32,
    /// Cost of a trip through shared memory for the choice between shuffles and shared memory. The
    /// unit is half of the time in which an instruction issues.
    ///
    /// Not measured: an estimate.
    pub conversion_trip_cost: u32,
    /// Arithmetic instructions that take as long as a pass of shared memory or a shuffle.
    ///
    /// Derived: shared memory takes a cycle for a pass, in which each of the four schedulers of a
    /// multiprocessor issues an instruction.
    pub instructions_per_pass: u32,
    /// Instructions that compute a function for which hardware has no instruction.
    ///
    /// Not measured: an estimate for all such functions.
    pub function_cost: u32,
    /// Cost, in sectors, of a sector that an access touches in part. A cache may have evicted the
    /// sector before the rest of it is accessed. Memory has to merge a sector that is stored in
    /// part.
    ///
    /// Copies that transpose tiles of 16x16 and 32x32 touch sectors in part at the loads or at the
    /// stores. A conversion between the two prevents this. Without the conversion, the copies take
    /// 1.3 to 3 times as long as with it (H200, 2026-11-22).
    pub partial_sector_cost: u32,
    /// The fewest elements of a thread for narrow accesses with 64-bit offsets. Lanes of a narrow
    /// access cover one sector along the fastest axis. A thread's further elements along this axis
    /// have constant offsets.
    ///
    /// Not measured: with many elements, separate 64-bit offsets of all rows fill the registers of
    /// a thread.
    pub narrow_access_elements: u32,
    /// The fewest elements of a thread for which lanes with copies divide a store. For fewer, the
    /// `select` instructions outnumber the saved stores.
    ///
    /// Not measured.
    pub shared_store_elements: u32,
    /// The largest ratio of source to result elements of a slice of registers. Both shapes are
    /// padded to powers of two. At a larger ratio, the slice is a gather.
    ///
    /// Not measured: all elements of the source are live at the same time.
    pub padded_slice_copies: u32,
    /// The warps of a multiprocessor that hide the latency of FMA dots' loads from shared memory. If
    /// fewer fit, rings have fewer slots, provided that more blocks fit then.
    ///
    /// fp32 dots of 2048³ with fewer slots (H200, 2026-12-01): by 128x128x32, 377 for 746 us (4 to 8
    /// warps). By 64x256x32, 403 for 799 us. By 32x64x32, 395 for 431 us (6 to 8 warps). From 8 to
    /// 12 warps, 64x64x64 takes 395 for 392 us, and 128x64x32 takes 422 for 389 us.
    pub latency_hiding_warps: u32,
    /// Registers of a thread for addresses, counters and masks, in addition to those of tiles.
    ///
    /// Not measured: an estimate for all kernels.
    pub other_registers: u32,
    /// The most copies of a loop body that is unrolled by its rings' depth.
    ///
    /// Attention with heads of 64 and 4096 rows has rings of 3 slots. With 3 copies, its time falls
    /// from 581 to 551 us (H200, 2026-11-23). More than 3 were not measured.
    pub unrolled_iterations: u32,
    /// The most ops of a loop that is unrolled by its rings' depth. All copies of the loop body
    /// count.
    ///
    /// Not measured: it bounds the code of a loop and the time of its compilation.
    pub unrolled_ops: u32,
    /// The registers that unrolling a loop by its rings' depth adds to a thread. The assembler
    /// interleaves the copies of the body. Two dependent dots take 20 to 55 (H200, 2026-11-23).
    pub unrolled_registers: u32,
    /// True if kernels with loops unrolled by their rings' depth state `.minnctapersm`. This is the
    /// number of blocks that a multiprocessor should hold.
    ///
    /// The assembler then gives a thread at most the registers that leave room for these blocks. Of
    /// 22 attention kernels for `sm_90a`, one has room for one more block because of the statement.
    /// This kernel has no partitions. A kernel with a partition for copies, attention of 64x64, was
    /// measured separately. It takes 133 registers without the statement, which leave room for 2
    /// blocks. With the statement it takes 128 registers, which leave room for 3. For 8192 rows and
    /// heads of 64, it took 2891 us with 3 blocks and at least 3270 us with 2 (H100, 2026-11-28).
    /// For `sm_100a`, 20 of 21 kernels take more registers with the statement than without, and 13
    /// spill (ptxas 12.9, 2026-11-28).
    pub states_blocks: bool,
    /// The fewest tile ops per dot with which threads limit a loop's speed. With fewer, the tensor
    /// cores limit it.
    ///
    /// Derived: a dot of 128x64x64 takes about 245 cycles of an H100. An op on a tile of 128x64
    /// takes 64 cycles of each scheduler. The quotient, 3.8, is rounded down: an exponential takes
    /// four times as long as other ops.
    pub issue_bound_ops_per_dot: u32,
    /// The fewest tile ops, without dots, that hide a late copy.
    ///
    /// Not measured.
    pub hiding_ops: u32,
    /// The most registers for accumulators before a program gets more warps. The rest is for
    /// addresses and operands.
    ///
    /// Derived: a thread has at most 255 registers, and 15 are few for addresses and operands.
    pub accumulator_registers: u32,
    /// The most registers of a thread for the accumulator of a K-split dot.
    ///
    /// Not measured: half of the registers of a thread.
    pub depth_split_registers: u32,
    /// The most rows of a dot whose warps divide K. With more rows, a warpgroup hides the
    /// computation of an operand.
    ///
    /// A decode with weights of 8 bits took 33 us without the division of K and 24.6 us with it.
    /// With 64 rows, it took 34.0 and 33.2 us (H200, 2026-11-23). More rows were not measured.
    pub depth_split_rows: u32,
    /// The layouts of the third selection run replace others if their cost is lower by this part of
    /// it: 8 means an eighth.
    ///
    /// With 1 % less cost, experts with mxfp4 weights and 64 tokens took 271 us, and 261 us before.
    /// With half of the cost, a dot with AWQ weights of 64x4096x4096 took 23.1 us, and 39.8 us
    /// before (H200, 2026-11-30).
    pub other_layouts_gain: u32,
    /// The fewest bytes of a box for which a kernel makes a tensor map. Making a map takes about a
    /// microsecond, in which the program copies nothing.
    ///
    /// Chunk states of Mamba-2, whose loop has 8 iterations, took 152 us with maps of two vectors of
    /// 128 bytes, and 142 us without (H200, 2026-11-30).
    pub device_map_bytes: u32,
    /// The most operand elements that a thread computes per iteration with a copy partition. A copy
    /// partition is warps that make the loop's copies. A longer iteration hides the start of copies
    /// without it.
    ///
    /// The following times are without and with the partition, for 16x8192x8192 (H200, 2026-11-23).
    /// With 64 elements for each thread, they are 24.5 and 22.4 us for 4-bit weights, and 26.9 and
    /// 24.5 us for 8-bit weights. With 128 elements, they are 22.8 and 23.1 us. Dots whose operands
    /// are only loaded gain nothing (4096^3 in a persistent kernel: 182.0 and 182.6 us). Loops of
    /// dependent dots are slower by an eighth and more.
    pub specialized_elements: u32,
    /// The most registers of a thread for an operand computed before the loop.
    ///
    /// Not measured: an eighth of the registers of a thread.
    pub kept_operand_registers: u32,
    /// The most registers for an operand without room in shared memory. The assembler spills the
    /// values for which the operand leaves no registers.
    ///
    /// Not measured: half of the registers of a thread.
    pub moved_operand_registers: u32,
    /// The most registers of a thread for operand A of a transposed dot.
    ///
    /// Not measured: a quarter of the registers of a thread. Only the transposition itself was
    /// measured: tf32 4096^3 with row-major B took 850 us without and 375 to 387 us with it (H200,
    /// 2026-11-23).
    pub transposed_registers: u32,
    /// The fewest registers of an accumulator for which online softmax skips a rescaling by 1. A
    /// vote and a jump then cost less than the multiplications.
    ///
    /// Not measured. In attention with heads of 64, the jump skips 32 of 318 instructions of an
    /// iteration (by counting).
    pub rescaled_registers: u32,
    /// The fewest bytes of a tile that a pair of blocks shares.
    ///
    /// These times of 8200x8200 are relative to the same blocks without sharing (H200, 2026-11-23).
    /// Blocks of 128x256x64, which share B (32 KiB), take 0.85. Blocks of 256x128x64, which share
    /// 16 of 48 KiB, take 1.00. Blocks of 128x128x64 take 1.07.
    pub paired_bytes: u32,
    /// The fewest bytes of a tile that the blocks of one program share. These blocks are
    /// synchronized in any case.
    ///
    /// Not measured.
    pub cluster_bytes: u32,
    /// The most bytes of shared memory that a block uses to save barriers.
    ///
    /// Not measured: the 48 KiB that a block has without requesting more.
    pub cheap_shared_bytes: u64,
    /// The fewest loads that `ldmatrix` must save to be worth the addresses of matrices.
    ///
    /// Not measured: an estimate of the instructions of these addresses.
    pub saved_matrix_loads: u32,
    /// The most tile ops that threads recompute for a value's second layout. A value of more ops,
    /// such as a random number, is converted.
    ///
    /// Not measured.
    pub rematerialized_ops: u32,
    /// A thread's registers at the launch, besides a `wgmma`'s accumulator. The entry applies if
    /// partitions of warps exchange registers.
    ///
    /// Derived: the assembler refuses a `wgmma` that needs more registers than a thread has at the
    /// launch. The `wgmma` needs 26 in addition to the accumulator; the value is a multiple of 8.
    pub beside_accumulator_registers: u32,
    /// Registers of a thread of a partition that starts tensor copies.
    ///
    /// Not measured: a multiple of 8 above 24, the least that `setmaxnreg` accepts.
    pub tensor_copying_registers: u32,
    /// Registers of a thread of a partition that copies by `cp.async`, for its addresses.
    ///
    /// Not measured: a multiple of 8.
    pub copying_registers: u32,
    /// The fewest divisions by each divisor for which a reciprocal is shared. The number is a
    /// thread's average. The assembler does not share reciprocals.
    ///
    /// Not measured.
    pub shared_divisor_elements: usize,
    /// The fewest register steps for which a bitonic merge uses complements. It complements blocks
    /// in descending order, so its steps select no direction.
    ///
    /// Not measured.
    pub complemented_bits: usize,
    /// The fewest successive scan levels that join lanes in ascending order. In each level, a lane
    /// combines with the lane at the level's distance before it (`ptx/src/lower/scan.rs`).
    ///
    /// Not measured: with fewer levels, joining blocks level by level takes about as many
    /// instructions.
    pub ordered_scan_levels: usize,
    /// The fewest ids of a group, if the longest programs start first. Groups divide the ids along
    /// all axes but the first (`ptx/src/lower/program_id_remap.rs`). A smaller grid has smaller
    /// groups.
    ///
    /// Not measured. The order itself was measured. Causal attention with heads of 64 and 4096 rows
    /// took 333 us without the order and 307 us with it (H200, 2026-11-23).
    pub ordered_group: u64,
    /// The most programs of a group, unless `ordered_group` requires more. Within a group, the
    /// longest programs start first.
    ///
    /// Derived: more than a GPU runs at a time. An H200 has 132 multiprocessors, so the limit is
    /// more than three blocks on each.
    pub ordered_group_programs: u64,
    /// Live 32-bit registers above which addresses are recomputed and ops sink.
    ///
    /// Derived: three quarters of the registers of a thread. The rest holds predicates, and values
    /// that the assembler computes early.
    pub crowded_registers: u32,
    /// Live 32-bit registers above which the assembler finds no schedule. It then spills down to 32
    /// registers, unless the PTX states `.minnctapersm 1`.
    ///
    /// Derived: twice the 255 registers of a thread. From 381 registers on, the assembler may fall
    /// back too. But of 288 kernels between 340 and 510, 50 spill more with `.minnctapersm 1` than
    /// without, and 45 spill less (ptxas 13.0, 2026-11-28).
    pub max_live_registers: u32,
    /// The fewest 64-bit sums of addresses that are worth recomputing.
    ///
    /// Derived: 8 sums of 64 bits take a sixteenth of the registers of a thread.
    pub recomputed_sums: usize,
    /// The denominator of the fraction by which sinking must lower the registers alive at once.
    ///
    /// Not measured.
    pub sinking_gain: u32,
    /// The most lines of a listing in which all equal instructions share a register. In a longer
    /// listing with more than `max_live_registers` alive, only near ones do (`near_lines`).
    ///
    /// Not measured.
    pub long_listing_lines: usize,
    /// The most lines between equal instructions that share a register in a long listing.
    ///
    /// Not measured.
    pub near_lines: u32,
    /// A limit of registers for which the assembler makes a poor schedule. Layer norm of 8704
    /// columns takes 62 us with 128 registers and 57 us with 120 (H200, 2026-11-20).
    pub avoided_register_limit: u32,
    /// The most registers of a thread that a limit for one more block removes. The entry is the
    /// denominator of a fraction of the thread's registers.
    ///
    /// Not measured.
    pub max_register_loss: u32,
    /// Spilled registers of a thread that one more block is worth.
    ///
    /// Not measured. One more block without spills was measured. Layer norm of 8704 columns took 91
    /// us with 161 registers and 62 us with 128 (H200, 2026-11-20).
    pub spills_for_one_more_block: u32,
    /// The most excess spills of a limit after which a higher limit is tried.
    ///
    /// Not measured: above this number, the next limit would also spill too much.
    pub spills_for_another_attempt: u32,
    /// The fewest programs, if odd, that run in pairs of blocks. One block then has no program.
    ///
    /// Derived: from 33 programs on, the unused block is at most a 34th of all blocks; see
    /// `paired_bytes` for the gain.
    pub odd_paired_programs: u32,
}

impl Tuning {
    /// Returns the table for a compute capability times 10, such as 90 for 9.0.
    pub const fn of(capability: u32) -> &'static Self {
        match capability {
            ..90 => &BEFORE_HOPPER,
            90..100 => &HOPPER,
            100.. => &BLACKWELL,
        }
    }
}

/// From Turing to Ada. These GPUs were not measured: the entries are those of an H200.
pub const BEFORE_HOPPER: Tuning = Tuning {
    loop_weight: 8,
    trip_cost: 40,
    conversion_trip_cost: 40,
    instructions_per_pass: 4,
    function_cost: 8,
    partial_sector_cost: 4,
    narrow_access_elements: 16,
    shared_store_elements: 8,
    padded_slice_copies: 8,
    latency_hiding_warps: 8,
    other_registers: 40,
    unrolled_iterations: 4,
    unrolled_ops: 600,
    unrolled_registers: 56,
    states_blocks: false,
    issue_bound_ops_per_dot: 3,
    hiding_ops: 4,
    accumulator_registers: 240,
    depth_split_registers: 128,
    depth_split_rows: 64,
    other_layouts_gain: 8,
    device_map_bytes: 1024,
    specialized_elements: 64,
    kept_operand_registers: 32,
    moved_operand_registers: 128,
    transposed_registers: 64,
    rescaled_registers: 16,
    paired_bytes: 32 << 10,
    cluster_bytes: 8 << 10,
    cheap_shared_bytes: 48 << 10,
    saved_matrix_loads: 8,
    rematerialized_ops: 64,
    beside_accumulator_registers: 32,
    tensor_copying_registers: 40,
    copying_registers: 88,
    shared_divisor_elements: 4,
    complemented_bits: 2,
    ordered_scan_levels: 3,
    ordered_group: 16,
    ordered_group_programs: 512,
    crowded_registers: 192,
    max_live_registers: 510,
    recomputed_sums: 8,
    sinking_gain: 8,
    long_listing_lines: 2000,
    near_lines: 400,
    avoided_register_limit: 128,
    max_register_loss: 3,
    spills_for_one_more_block: 4,
    spills_for_another_attempt: 32,
    odd_paired_programs: 33,
};

/// Hopper. The measured entries were measured on H100 and H200.
pub const HOPPER: Tuning = Tuning { states_blocks: true, ..BEFORE_HOPPER };

/// Blackwell: the table of Hopper without `states_blocks`; not measured.
pub const BLACKWELL: Tuning = Tuning { states_blocks: false, ..HOPPER };
