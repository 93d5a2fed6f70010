//! The tuning table of the target `cpu`: all thresholds and weights of the CPU executor.
//! The last paragraph of an entry is its evidence: a measurement with its program, processor and
//! date; `Derived:` with the fact; or `Not measured`. `docs/performance/cpu.md` has the
//! measurements.

/// The fewest blocks (of 64 elements each) of a tile whose steps are fused. Smaller tiles do not
/// repay the set-up of a fused loop.
///
/// Not measured.
pub(crate) const MIN_FUSED_BLOCKS: usize = 4;

/// The most bytes of a dead tile that a fused group leaves in its slot for the next program. The
/// group frees larger tiles at once, so that other tiles reuse their cache lines.
///
/// Not measured: a quarter of an L1 cache of 32 KiB.
pub(crate) const MAX_KEPT_BYTES: usize = 8192;

/// The most readers of a rematerialized tile. Each reader except the first recomputes the tile.
///
/// Not measured. Rematerialization itself was measured, for cheap functions of loads against loads
/// only. Layer norm takes 0.96 of the time, and softmax takes the same time
/// (`docs/performance/cpu.md`).
pub(crate) const MAX_REMATERIALIZED_READERS: usize = 6;

/// The most steps that rematerialization copies to a reader.
///
/// Not measured.
pub(crate) const MAX_REMATERIALIZED_STEPS: usize = 3;

/// The most steps of a nest. A longer run of steps becomes several nests, so that the time to
/// compile a nest is bounded.
///
/// Not measured.
pub(crate) const MAX_NEST_STEPS: usize = 400;

/// The most steps of a nest whose loops compute four vectors in an iteration. An iteration of a
/// longer nest computes one vector, or [`SCAN_BLOCK`] elements if the loop has a scan. This limit
/// does not apply to loops with reductions: their iterations have [`ACCUMULATORS`] elements, if a
/// row has enough.
///
/// Not measured.
pub(crate) const MAX_UNROLLED_STEPS: usize = 60;

/// The most iterations of a loop that is unrolled, if the executor compiles machine code for the
/// processor.
///
/// Not measured. Unrolling itself was measured with two reductions of batch norm, EPYC (AVX2),
/// 2026-11-29. A loop of two iterations takes 424 µs, unrolled 76. A loop of four iterations takes
/// 1,250 µs, unrolled 467.
pub const MAX_UNROLLED_ITERATIONS: usize = 8;

/// The most steps of all iterations of a loop that is unrolled. This number of steps fits in one
/// nest (`MAX_NEST_STEPS`).
///
/// Not measured.
pub const MAX_UNROLLED_LOOP_STEPS: usize = 240;

/// The number of vectors that an iteration of a nest computes before it stores any of them. The
/// compiler interleaves the computations of as many vectors as the registers have room for.
///
/// Measured with groups of up to 4 and 8 vectors of softmax of 4,096 columns, EPYC (AVX2),
/// 2026-11-28: 4.8 and 5.3 ms.
pub(crate) const INTERLEAVED_VECTORS: usize = 4;

/// The number of vectors of an iteration in the masked part and in the uniform part of a nest's
/// loop. The number is larger if these vectors have fewer than [`SCAN_BLOCK`] lanes. Both parts
/// usually compute only the last elements of a row.
///
/// Not measured.
pub(crate) const MASKED_VECTORS: usize = 2;

/// The number of steps that the planner of a nest searches for the first tile of at least two axes.
/// The axes of this tile become the dimensions of the nest.
///
/// Not measured.
pub(crate) const MAX_ROW_SEARCH: usize = 64;

/// The fewest elements of a segment. If a kernel divides consecutive indices by a number, a segment
/// is a run of indices with the same quotient.
///
/// Not measured.
pub(crate) const MIN_SEGMENT: usize = 8;

/// The trip count that the cost estimate assumes for a loop.
///
/// Not measured: most trip counts are unknown. The weight of loops in `gpu-ir/src/tuning.rs`
/// assumes the same count.
pub(crate) const ASSUMED_TRIP_COUNT: u64 = 8;

/// The estimated time of the remaining programs of a launch, in nanoseconds, above which the
/// calling thread wakes other threads. A launch that is estimated to take more than twice this time
/// wakes them at once.
///
/// Not measured: an estimate of the time in which threads wake up.
pub(crate) const MIN_PARALLEL_NANOSECONDS: u64 = 20_000;

/// The most programs that a thread takes from the grid at a time.
///
/// Not measured.
pub(crate) const MAX_CHUNK_PROGRAMS: u64 = 1024;

/// The longest estimated time for which machine code executes programs before the launch checks
/// whether it has to stop. A single program may take longer.
///
/// Not measured.
pub(crate) const MAX_NANOSECONDS_BETWEEN_CHECKS: u64 = 1_000_000;

/// The most elements that machine code computes before the launch checks whether it has to stop.
/// The count is the elements of a tile times the iterations of a loop. A single iteration may
/// compute more.
///
/// Derived: at 1 ns an element, [`MAX_NANOSECONDS_BETWEEN_CHECKS`].
pub(crate) const MAX_ELEMENTS_BETWEEN_CHECKS: usize = 1 << 20;

/// The minimum size in bytes of a region to which stores bypass the caches. The launch must also
/// store at least this number of bytes to the region.
///
/// Not measured. The caches of common processors are smaller.
pub(crate) const LARGER_THAN_CACHES: usize = 48 << 20;

/// The length in bytes of a run of contiguous elements after which the hardware prefetcher follows
/// the run. If a run has at least this length, the executor prefetches this number of bytes after
/// the run, for the next program. A nest prefetches at most this many bytes of a row.
///
/// Not measured. Fetching the whole next row gained nothing (`docs/performance/cpu.md`).
pub(crate) const PREFETCHED_BYTES: usize = 512;

/// The prefetch distance of a nest, or of a copy of a block, in rows of a tile. The rows are at
/// equal distances in memory.
///
/// Measured with column sums of bf16, 2026-11-28. EPYC (AVX2): 2.0 ms with this prefetch and 4.9
/// without any. Xeon (AVX-512): 0.89 ms with this prefetch and 1.32 with prefetches of all 32 rows
/// of a tile. Other distances were not measured.
pub(crate) const PREFETCHED_ROWS: usize = 4;

/// The fewest rows of A for which a dot packs B, if the rows of B are contiguous. Packing copies a
/// panel of columns of B to contiguous memory. Fewer rows read the panel too seldom to repay the
/// copy. If the rows of B are not contiguous, the dot always packs B.
///
/// Not measured.
pub(crate) const MIN_PANEL_ROWS: usize = 9;

/// The fewest bytes of B for which a dot packs B, if B is a dense tile with contiguous rows.
/// Smaller tiles stay in the caches, even if their rows share sets of the first-level cache.
///
/// Measured with the dot of binary32, packed against unpacked, EPYC (AVX2), 2026-11-28. 64x64x64
/// (16 KiB): 35.1 against 36.2 GFLOP/s. 64x256x256 (256 KiB): 36.5 against 37.9. 128x1024x256 (1
/// MiB): 34.9 against 27.4.
pub(crate) const MIN_PACKED_BYTES: usize = 512 << 10;

/// The number of steps along k that the innermost loop of a dot unrolls.
///
/// Measured with the dot of binary32, tiles 64x64x64 and 64x64x256, EPYC (AVX2), 2026-11-28. With 4
/// steps and pointers that advance: 36.8 and 38.9 GFLOP/s. With 1 step and indices that are
/// checked: 33.9 and 36.9. Other numbers were not measured.
pub(crate) const UNROLLED_DOT_STEPS: usize = 4;

/// The most bytes of panels of B that a dot packs at a time; a single panel may be larger. The dot
/// multiplies all rows of A by these panels before it packs the next panels. The panels should
/// therefore stay in the second-level cache.
///
/// Derived: half of a second-level cache of 512 KiB.
pub(crate) const MAX_PANEL_BYTES: usize = 256 << 10;

/// The maximum extent along k of a dot that executes consecutive iterations of a loop.
///
/// Measured with matmuls of tiles of 64x64 whose extents along k were 64, 128, 256 and 512, Xeon,
/// 2026-11-29. 1024^3 of binary32 (AVX-512): 18.1, 16.3, 15.8 and 15.7 ms. 512^3 of binary32: 2.17,
/// 2.01, 1.94 and 1.88 ms. 1024^3 of bf16 (AMX): 15.1, 11.5, 9.6 and 9.0 ms.
pub(crate) const MAX_PRODUCT_DEPTH: usize = 512;

/// The fewest bytes of memory for packed operands that the dots of a launch share in each thread.
///
/// Derived: half of a second-level cache of 512 KiB.
pub(crate) const MIN_SHARED_BYTES: usize = 256 << 10;

/// The most bytes of memory for packed operands that the dots of a launch share in each thread. The
/// thread keeps the memory after the launch.
///
/// Not measured. This memory holds 16,384 rows of tiles with 64 columns of binary32.
pub(crate) const MAX_SHARED_BYTES: usize = 4 << 20;

/// The most operands of dots for which a thread remembers whether an element is subnormal.
///
/// Not measured: an entry has 56 bytes.
pub(crate) const MAX_TESTED_OPERANDS: usize = 4096;

/// The most bytes of a row of a block that is copied without a call of `memcpy`.
///
/// Measured with a matmul 1024^3 of binary32, tiles of 64 rows of 256 bytes, EPYC (AVX2),
/// 2026-11-28. The time without calls is 0.93 to 0.98 of the time with calls. The limit itself was
/// not measured.
pub(crate) const MAX_INLINE_ROW: usize = 512;

/// The number of interrupt checks for each read of the clock.
///
/// Not measured.
pub(crate) const CHECKS_PER_CLOCK: u32 = 64;

/// The number of times that a waiting program polls before the thread runs another program.
///
/// Not measured.
pub(crate) const POLLS_PER_TURN: u32 = 32;

/// The number of interleaved accumulators of a reduction, and the number of columns that a
/// reduction over rows reduces at a time. The order in which floats are added depends on this
/// number.
///
/// Derived: accumulators of 32 bits take four of the 32 registers of AVX-512, enough for the
/// latency of an addition (4 cycles).
pub(crate) const ACCUMULATORS: usize = 64;

/// The number of elements that a scan combines before it adds the total of the preceding elements.
/// The order in which floats are added depends on this number.
///
/// Derived: the lanes of 32 bits of a vector of AVX-512.
pub(crate) const SCAN_BLOCK: usize = 16;

/// The most elements that pass through the stages of a fused loop at a time.
///
/// Derived: 128 elements of 32 bits take eight of the 32 registers of AVX-512; with 256, registers
/// spill (`docs/performance/cpu.md`).
pub(crate) const MAX_FUSED_ELEMENTS: usize = 128;

/// The number of small blocks of integers that a sort or a merge processes side by side.
///
/// Measured with `sort` of 256 random int32 in blocks of 8, EPYC (AVX2), 2026-11-28: 0.7 µs. The
/// sort of the standard library, one block at a time, takes 2.5 µs. Other numbers were not
/// measured.
pub(crate) const SORTED_COLUMNS: usize = 16;

/// The most elements of a tile of narrow floats that is converted in a small buffer on the stack.
/// Every buffer has to be zeroed, which takes less time for a small one.
///
/// Not measured.
pub(crate) const SMALL_TILE_ELEMENTS: usize = 16;
