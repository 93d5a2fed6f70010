//! The table of ops of the GPU dialect. The rows are ops that tile IR lacks, and ops with more
//! attributes, such as an access width. `ir/src/table.rs` names the columns of a row. An [`Op`] is
//! a row, or an op of tile IR on values with layouts.

use tilewright_ir as ir;
use tilewright_ir::{
    ANY_REGIONS, AtomicKind, AttributeText, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision,
    IntList, MemoryScope, MemorySemantics, OpInfo, Operation, ScaledFormat, ScaledFormats, define_ops,
};

use super::attributes::{Deferred, MmaShape, Scope};

define_ops! {
    GpuOp OPS GpuVisitor visit;

    /// Moves a tile's elements to the threads of the result's layout.
    ConvertLayout convert_layout (tile) [] {} regions 0 Pure Identity Never None None;
    /// Applies an elementwise function to each element. Registers whose indices differ only in bits
    /// of `equal_registers` hold equal values, computed once.
    Elementwise elementwise () [] *operands {function: ElementwiseFn, equal_registers: u32} regions 0 Pure Pointwise Never None None;
    /// Multiplies a tile of fp32 by a factor for each element. A warp skips the multiplications if
    /// all of its factors are 1.
    Rescale rescale (tile, factor) [] {} regions 0 Pure Pointwise Never None None;
    /// Reads global memory where the mask holds, or everywhere without a mask. Elsewhere, the
    /// result is `other`, or zero without `other`. Each access of a thread moves `width` elements
    /// along `axis`. Registers whose indices differ only in bits of `equal_registers` are loaded
    /// once.
    Load load (pointer) [mask, other]
        {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool, axis: u32, width: u32, equal_registers: u32}
        regions 0 Read Load Reads ReadsGlobal None;
    /// Writes global memory where the mask holds. Each access of a thread moves `width` elements
    /// along `axis`. Of the threads with an element, one writes it.
    Store store (pointer, value) [mask]
        {cache: CacheModifier, eviction: EvictionPolicy, axis: u32, width: u32} regions 0 Write Store Never WritesGlobal None;
    /// Executes `atomic_rmw` of tile IR. If several threads hold an element, the first one executes
    /// the operation. With `everywhere`, the others get the result. The lowering of conversions
    /// clears it, and sends the result through shared memory. Each access of a thread moves `width`
    /// elements along `axis`.
    AtomicRmw atomic_rmw (pointer, value) [mask]
        {kind: AtomicKind, sem: MemorySemantics, scope: MemoryScope, axis: u32, width: u32, everywhere: bool}
        regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_cas` of tile IR. Threads and `everywhere` are as for `atomic_rmw`.
    AtomicCas atomic_cas (pointer, expected, value) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_load` of tile IR. Threads and `everywhere` are as for `atomic_rmw`.
    AtomicLoad atomic_load (pointer) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes ReadsGlobal None;
    /// Executes `atomic_store` of tile IR. If several threads hold an element, the first one stores
    /// it.
    AtomicStore atomic_store (pointer, value) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Never WritesGlobal None;
    /// Executes `atomic_poll` of tile IR in one thread. With `everywhere`, the other threads get
    /// the result.
    AtomicPoll atomic_poll (pointer, expected) [timeout]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Always ReadsGlobal None;
    /// Combines tiles along an axis by an associative region, in the block or each warp. With
    /// `redux`, `redux.sync` combines the lanes of a warp.
    Reduce reduce () [] *tiles {axis: u32, scope: Scope, redux: bool} regions 1 Pure Reduction Never None None;
    /// Combines each element with those before it along an axis. The scope is the block or each
    /// warp. With `reverse`, combines it with those after it. With the scope `warp`, the results
    /// are the scanned tiles, then the partial results. The elements of a warp along the axis form
    /// runs of consecutive elements (`layout::Parts`). Each run has one partial result. The last
    /// axis of the partial results is the run's index.
    Scan scan () [] *tiles {axis: u32, reverse: bool, scope: Scope} regions 1 Pure Scan Never None None;
    /// Computes a scan over the block from scans with the scope `warp`. The operands are the
    /// scanned tiles, then the scans of the partial results. A warp that holds elements of a line
    /// along `axis` also holds these scans for all runs of that line.
    ScanCarry scan_carry () [] *tiles {axis: u32, reverse: bool} regions 1 Pure Scan Never None None;
    /// Computes acc + a @ b by `mma.sync`. `warps` has the numbers of warps along M and N. A batch
    /// with several warps along its first axis has their number before these two. An operand is in
    /// its fragment layout, or in shared memory. With `matrix_a` (`matrix_b`), `ldmatrix` loads A
    /// (B).
    MmaSync mma_sync (a, b, acc) []
        {instruction: MmaShape, warps: IntList, precision: InputPrecision, max_imprecise_acc: u32, matrix_a: bool,
         matrix_b: bool} regions 0 Read Dot Never ReadsOperands None;
    /// Computes acc + a @ b by single elements, along K in ascending order. A and B are in shared
    /// memory, or in registers of the threads that multiply them.
    FmaDot fma_dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot Never ReadsOperands None;

    /// Allocates memory until its `dealloc`: shared memory at `offset` in bytes, or tensor memory
    /// at `offset`, which the lowering adds to the address of the block's columns. The contents are
    /// undefined. The offset is aligned as the uses need (table in `alignment.rs`).
    Alloc alloc () [] {offset: Deferred} regions 0 Write Memory Never None None;
    /// Ends the lifetime of a buffer, a ring, `mbarrier`s or tensor memory. If the memory has
    /// `mbarrier`s, a `barrier` must precede the `dealloc`, so that no other thread waits for them.
    /// One thread invalidates them. Another `barrier` must precede the next use of the memory.
    Dealloc dealloc (memory) [] {} regions 0 Write Memory Never None None;
    /// Returns slot `index` of a buffer in shared or tensor memory. The index (int32) must be less
    /// than the number of slots.
    Slot slot (buffer, index) [] {} regions 0 Pure Memory Never None None;
    /// Reinterprets memory: returns a buffer of tiles of another type that begins at the same
    /// address.
    View view (buffer) [] {} regions 0 Pure Memory Never None None;
    /// Stores a tile to a buffer of one slot.
    LocalStore local_store (buffer, value) [] {} regions 0 Write Memory Never WritesShared None;
    /// Counts the values of a tile in a 1-D int32 buffer. Adds 1 to the buffer element whose index
    /// is the value, if the mask holds.
    LocalHistogram local_histogram (buffer, tile) [mask] {} regions 0 Write Memory Never WritesShared None;
    /// Loads a tile from a buffer of one slot; with `matrix`, by `ldmatrix`.
    LocalLoad local_load (buffer) [] {matrix: bool} regions 0 Read Memory Never ReadsShared None;

    /// Starts copying global memory to a buffer of one slot by `cp.async`. Writes zeros where the
    /// mask does not hold. Each copy of a thread moves `width` elements along `axis`. These
    /// elements take 4, 8 or 16 bytes, have one mask value, and are contiguous in both memories.
    /// Copies of 16 bytes bypass L1 unless `cache` is `.ca`. If several threads hold a pointer, one
    /// starts the copy. The thread that started a copy may read the data after its `wait_group`.
    /// Other threads may read the data after a barrier that follows the `wait_group`.
    CopyAsync copy_async (buffer, pointer) [mask] {cache: CacheModifier, axis: u32, width: u32} regions 0 Write Memory Reads WritesShared StartsCopy;
    /// Commits, in each thread, all copies since its last group as a new group.
    CommitGroup commit_group () [] {} regions 0 Write Barrier Never None None;
    /// Waits in each thread for all its groups except the latest `pending`.
    WaitGroup wait_group () [] {pending: u32} regions 0 Write Barrier Never None AwaitsCopies;

    /// Initializes the `mbarrier` of `slot`, or of every slot if the operand is absent. Each phase
    /// then needs `arrivals` arrivals. One thread initializes; the others see it after a `barrier`.
    /// If tensor copies arrive at the `mbarrier`s, a `fence_proxy` is between the initialization
    /// and that `barrier`.
    MbarrierInit mbarrier_init (barriers) [slot] {arrivals: u32} regions 0 Write Barrier Never WritesShared None;
    /// Ends the use of a slot's `mbarrier`, by one thread. The slot may then be initialized again.
    /// No thread may still wait for the `mbarrier`.
    MbarrierInvalidate mbarrier_invalidate (barriers, slot) [] {} regions 0 Write Barrier Never WritesShared None;
    /// Arrives `arrivals` times at a slot's `mbarrier`, by one thread.
    MbarrierArriveTimes mbarrier_arrive_times (barriers, slot) [] {arrivals: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier`, by one thread. Adds `bytes` to the bytes that the phase
    /// waits for.
    MbarrierExpect mbarrier_expect (barriers, slot) [] {bytes: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier`, by one thread of each warp. All lanes have reached the op,
    /// so their earlier accesses happen before the arrival.
    MbarrierArrive mbarrier_arrive (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier` once for each thread (`cp.async.mbarrier.arrive.noinc`). A
    /// thread arrives after its `cp.async` copies. `mbarrier_init` counts these arrivals.
    MbarrierArriveCopies mbarrier_arrive_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Keeps a slot's phase open until `cp.async` copies complete (`cp.async.mbarrier.arrive`).
    /// These are all earlier copies of the threads that run the op. `mbarrier_init` does not count
    /// these threads.
    MbarrierTrackCopies mbarrier_track_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Waits in each thread for a phase of a slot's `mbarrier`. `parity` (0 or 1, int32) is the
    /// parity of the phase. The first phase has parity 0. While the first phase is current, the
    /// phase with parity 1 counts as complete.
    MbarrierWait mbarrier_wait (barriers, slot, parity) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Starts a copy of a tensor's box to a buffer of one slot. One thread starts the copy. The
    /// copy signals all bytes of the buffer at the `mbarrier` of `slot` (`complete_tx`).
    ///
    /// The descriptor is the address of a tensor map, in global memory or a parameter. The
    /// coordinates are in the order of the tensor's axes. Axes that the tile lacks precede its
    /// axes. The rows of the buffer are along the contiguous axis of the tensor. In memory, the
    /// other axes follow, from the last to the first. The buffer may have a swizzle mode if the row
    /// length of the mode divides that of the buffer. A buffer with longer rows is split into boxes
    /// with the row length of the mode. The boxes follow each other in memory, and one copy moves
    /// each box. The tensor map has the extents and the swizzle of such a box.
    ///
    /// For a matrix, the coordinate of an axis may be an int32 tile of row indices. Row `i` of the
    /// buffer is then the row of the tensor whose index is element `i` of the tile. If the tensor
    /// lacks this row, row `i` is zeros. Each lane of the first warp copies four rows. The box of
    /// the tensor map is a part of one row. In the buffer, a row of a box has at least 32 bytes.
    TensorLoad tensor_load (buffer, descriptor, barriers, slot) [] *coordinates {} regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Starts a copy of a buffer of one slot to a tensor's box. Commits the copy as a group.
    ///
    /// Without row indices, one thread of the block starts all copies to tensors. Buffer,
    /// descriptor and coordinates are as for `tensor_load`. Threads make their writes visible by
    /// `fence_proxy` and a later barrier. With row indices, each copying lane commits one group.
    /// Rows outside of the tensor are not written.
    TensorStore tensor_store (buffer, descriptor) [] *coordinates {} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Combines a buffer with a tensor, and is otherwise like `tensor_store`. Each element is
    /// combined atomically, unordered with other accesses. `is_tensor_reduction` decides which
    /// kinds an element type has.
    TensorReduce tensor_reduce (buffer, descriptor) [] *coordinates {kind: AtomicKind} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Returns the pointers unchanged. States that they point to a box of a tensor at these
    /// coordinates (as for `tensor_load`). A tensor map of the module describes the tensor. For
    /// elements outside of the tensor, loads yield zeros, or the program ignores the results.
    TensorBox tensor_box (pointer, descriptor) [] *coordinates {} regions 0 Pure Identity Never None None;
    /// Makes tensor map `M<map>` from these scalars, and returns its address. The map is in global
    /// memory of the block. A buffer of 128 bytes is its staging area. Only the first warp makes
    /// the map and copies with it. If the op runs again, the new map replaces the previous one,
    /// whose copies must be complete.
    MakeTensorMap make_tensor_map (buffer) [] *parts {map: u32} regions 0 Write Memory Never WritesShared None;
    /// Orders ordinary accesses of each thread to global memory before tensor copies. The copies
    /// must follow a barrier after this op.
    FenceGlobal fence_global () [] {} regions 0 Write Barrier Never None None;
    /// Waits for groups of tensor stores, in the thread that started them. At most `pending` groups
    /// then still read shared memory or, with `complete`, still write the tensor. Other threads may
    /// rely on this after a later barrier.
    TensorStoreWait tensor_store_wait () [] {pending: u32, complete: bool} regions 0 Write Barrier Never None AwaitsTensorStores;

    /// Starts acc + a @ b by `wgmma`, and commits it as a group. `warps` counts the warps along M
    /// and N.
    ///
    /// A is in registers or in shared memory, and B is in shared memory. Before conversions are
    /// lowered, A and B may be in registers in any layout. Until the dot has finished, no thread
    /// may write its operands, also not for the next iteration. A matrix descriptor must describe
    /// the layout of an operand in shared memory. K is contiguous or, for 16-bit elements, M or N.
    /// With `transposed_a` (`transposed_b`), A (B) is the transpose of its buffer. Threads make
    /// their writes visible by `fence_proxy` and a later barrier. With an accumulator in flight
    /// (`Type::Pending`), the dot continues in the same registers. Otherwise, the dot starts from a
    /// copy of the accumulator. Eight-bit floats may have a `max_imprecise_acc`: after this many
    /// elements along K, threads wait and add the partial result to an fp32 accumulator. The dot
    /// waits until the operand `after`, a tile of 32-bit elements, has been computed. For operands
    /// in shared memory, a `window` selects the parts that the dot reads, in coordinates after the
    /// transpose. Its numbers are the first row and column of A, those of B, and the extent along
    /// K.
    ///
    /// On targets with `tcgen05.mma`, the layout of the accumulator is that of
    /// `TensorMemory::register_layout`, and A is in shared memory. The pass `tensor_dots` replaces
    /// the op by `tcgen05_mma`. With `formats`, the scales of A and of B follow the accumulator, in
    /// the layouts of `ScaledDot::scale_layouts`. Such a dot becomes a `tcgen05_mma_scaled`.
    ///
    /// The further operands are the scales, then `after`; both are optional.
    Wgmma wgmma (a, b, acc) [] *further
        {instruction: MmaShape, warps: IntList, max_imprecise_acc: u32, transposed_a: bool, transposed_b: bool,
         window: IntList, formats: Option<ScaledFormats>} regions 0 Write Dot Never ReadsOperands StartsDot;
    /// Returns a tile as an accumulator in flight, without a dot.
    WgmmaInit wgmma_init (acc) [] {} regions 0 Write Barrier Never None None;
    /// Waits for a dot in flight, and returns its accumulator. At most `pending` later groups
    /// remain in flight. The op waits after `after`, a tile of 32-bit elements, is computed.
    /// Otherwise, it waits as early as possible.
    WgmmaWait wgmma_wait (dot) [after] {pending: Deferred} regions 0 Write Barrier Never None AwaitsDots;
    /// Waits until at most `pending` groups are in flight, and returns `dot`. `dot` may still be in
    /// flight. Threads may write the operands of finished dots.
    WgmmaWaitEarlier wgmma_wait_earlier (dot) [] {pending: u32} regions 0 Write Barrier Never None AwaitsDots;

    /// Allocates the block's columns of tensor memory. No further allocation is possible. The first
    /// warp writes the address to the buffer. All threads of the block wait for it, and read the
    /// address. The op precedes each `alloc` of tensor memory.
    Tcgen05Alloc tcgen05_alloc (buffer) [] {columns: u32} regions 0 Write Memory Never WritesShared None;
    /// Frees the columns of `tcgen05_alloc`, by the first warp. Before the op, all threads must
    /// have arrived at a barrier, and each `tcgen05_mma` must be complete. In a kernel with dots of
    /// pairs, a barrier of the cluster precedes the op.
    Tcgen05Dealloc tcgen05_dealloc () [] {columns: u32} regions 0 Write Barrier Never None None;
    /// Loads a tile from tensor memory of one slot, and waits for it (`tcgen05.ld`,
    /// `tcgen05.wait`). Warp `w` accesses the 32 lanes from `32 * (w % 4)` on. The tile has a
    /// layout that a `tcgen05.ld` produces (`TensorMemoryMove`).
    TmemLoad tmem_load (memory) [] {} regions 0 Read Memory Never None None;
    /// Stores a tile to tensor memory of one slot, and waits for the store (`tcgen05.st`). The layout
    /// is as for `tmem_load`.
    TmemStore tmem_store (memory, value) [] {} regions 0 Write Memory Never None None;
    /// Starts acc + a @ b by `tcgen05.mma`, in one thread. If `use_acc` (int1) is false, it
    /// computes a @ b. The accumulator is in tensor memory, A in shared or tensor memory, B in
    /// shared memory.
    ///
    /// A matrix descriptor must describe the layout of an operand in shared memory. With
    /// `transposed_a` (`transposed_b`), A (B) is the transpose of its buffer. Threads make their
    /// writes visible by `fence_proxy` and a later barrier. A barrier also orders their accesses to
    /// tensor memory before the op. Dots of one thread execute in order. Other accesses to the
    /// accumulator, and writes to operands, follow a wait for a `tcgen05_commit`'s `mbarrier`.
    ///
    /// If the accumulator has `cta_group 2`, the two blocks of a pair run the op, and the first one
    /// starts the dot for both. Each block has its rows of A and of the accumulator, and half of the
    /// columns of B. The blocks synchronize between writes to operands and the op.
    Tcgen05Mma tcgen05_mma (a, b, acc, use_acc) [] {transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never ReadsOperands StartsTensorDot;
    /// Starts a dot as `tcgen05_mma` does, by an instruction with scales (`tcgen05.mma.block_scale`).
    ///
    /// A and B have bytes, whose elements have the formats; an operand of e2m1 has two elements in a
    /// byte. The scales are in tensor memory for scales: `[M, K / block]` of A, `[N, K / block]` of B.
    Tcgen05MmaScaled tcgen05_mma_scaled (a, b, acc, a_scale, b_scale, use_acc) []
        {a_format: ScaledFormat, b_format: ScaledFormat, transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never ReadsOperands StartsTensorDot;
    /// Starts a copy of a buffer in shared memory to tensor memory of one slot (`tcgen05.cp`), by the
    /// thread that starts each `tcgen05_mma`. With `cta_group 2`, it copies in both blocks of a pair.
    ///
    /// The source is as an operand of `tcgen05_mma`. Copies and dots of one thread execute in order.
    /// Other accesses to the tensor memory, and writes to the source, must follow a wait for the
    /// `mbarrier` of a `tcgen05_commit`.
    Tcgen05Copy tcgen05_copy (source, memory) [] {} regions 0 Write Memory Never ReadsOperands StartsTensorDot;
    /// Makes a slot's `mbarrier` get one arrival when the thread's dots and copies are complete. The
    /// thread is the one that starts each `tcgen05_mma`. With `pair`, the two blocks of a pair run the
    /// op, and the `mbarrier` at this address in each of them gets an arrival.
    Tcgen05Commit tcgen05_commit (barriers, slot) [] {pair: bool} regions 0 Write Barrier Never ReadsShared None;

    /// Requests a cluster of the grid that has not begun, by one of the threads that run the op
    /// (`clusterlaunchcontrol.try_cancel`). If there is one, it does not begin: the requesting block
    /// runs its program. The response is written to a buffer of 16 bytes, and signals 16 bytes at
    /// the `mbarrier` of `slot` (`complete_tx`). With `multicast`, the response and the signal are
    /// for each block of the cluster, at the same addresses.
    ///
    /// No thread may request again after a response that no cluster was left.
    ClcTryCancel clc_try_cancel (buffer, barriers, slot) [] {multicast: bool}
        regions 0 Write Memory Never FillsShared StartsTensorLoad;
    /// Reads the response of a `clc_try_cancel`: an int1 that is true if there was such a cluster,
    /// and the three indices (int32) of its first block. The index along x is divided by `blocks`.
    /// Without a cluster, the indices are 0.
    ClcLoadResult clc_load_result (buffer) [] {blocks: u32} regions 0 Read Memory Never ReadsShared None;

    /// Lets the `n` blocks of a cluster fill a buffer together from here on, if the condition
    /// (int1) is true. The condition is equal in all blocks.
    ///
    /// Each block copies one part of each of its tensor loads to all blocks. The parts are in block
    /// order, and arrive at the barriers `full` of all blocks. `mbarrier_init` counts the arrivals
    /// of one block at `empty`; the lowering multiplies them by `n`. An arrival counts once in each
    /// block if the condition holds, else `n` times in its own block. All blocks run the same loads
    /// in order, and synchronize before the first load and before they end. A tile of one box is
    /// divided along the slowest axis of the buffer. The tensor map has the box of a part.
    MulticastLoads multicast_loads (buffer, full, empty, condition) [] {} regions 0 Write Barrier Never None None;
    /// Starts copies as `tensor_load` does, but to several blocks. Buffer and `mbarrier` have the
    /// same addresses in each of them. Their ranks are the bits of the mask `blocks` (int32). The
    /// mask 0 means only this block. With `at_lead`, the copy signals the `mbarrier` of the first
    /// block of the pair.
    ///
    /// With `offsets` other than 0, the tensor map is for im2col copies (PTX ISA, "Im2col mode").
    /// The last `offsets` coordinates are then the pixels' offsets along the axes between images
    /// and channels.
    TensorLoadTo tensor_load_to (buffer, descriptor, barriers, slot, blocks) [] *coordinates {offsets: u32, at_lead: bool}
        regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Loads a tile from buffers at one address in several blocks. The result has an additional
    /// first axis. `blocks` is a mask of rank bits. Element `i` along the new axis is in the block
    /// whose rank has the bits of `i` at the set bits of the mask. The other bits of that rank are
    /// those of this block's rank. The lowest bits of the register index are along the new axis.
    /// Barriers of the cluster order the accesses.
    GatherBlocks gather_blocks (buffer) [] {blocks: u32} regions 0 Read Memory Never ReadsShared None;
    /// Arrives `arrivals` times at a slot's `mbarrier` in the block `block` (int32). One thread
    /// arrives, and adds `bytes` to the bytes that the phase waits for.
    MbarrierArriveAt mbarrier_arrive_at (barriers, slot, block) [] {arrivals: u32, bytes: u32}
        regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the barrier of the cluster, in every thread. Accesses before this op, also
    /// `mbarrier` initialization, happen before accesses after `cluster_wait`.
    ClusterArrive cluster_arrive () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in each thread, for all threads of the cluster that have not ended.
    ClusterWait cluster_wait () [] {} regions 0 Write Barrier Never None None;

    /// Orders threads' shared memory accesses before those of the asynchronous proxy. The
    /// asynchronous proxy executes tensor copies and `wgmma`. The threads' accesses are ordinary
    /// ones, and awaited `cp.async` copies. They include those of threads for which this thread has
    /// waited at an `mbarrier` or a barrier. The order holds in this thread, and in other threads
    /// after a barrier. If the op names slots, a later pass places a barrier for them before the
    /// fence.
    FenceProxy fence_proxy () [] *slots {} regions 0 Write Barrier Never ReadsOperands None;
    /// Waits at a named barrier (1 to 15) until `threads` threads have arrived. The threads are
    /// whole warps.
    NamedBarrier named_barrier () [] {barrier: u32, threads: u32} regions 0 Write Barrier Never None None;
    /// Runs each region in its own partition of the warps. `warps` lists the warps of each
    /// partition, in order.
    ///
    /// `registers` lists the registers of a thread in each partition. 0 keeps the number from
    /// before the op. Other numbers are multiples of 8 from 24 to 256, to which the partition
    /// changes. Such a partition consists of whole warpgroups, or shares a warpgroup only with
    /// partitions of the same number. Before and after the op, a thread has the average of these
    /// numbers over all their warps. The average is rounded up to a multiple of 8. A region may use
    /// scalars and shared memory from outside, but no tiles. In a partition, its warps count as all
    /// warps. Partitions are not nested, and use `named_barrier`, not `barrier`. Afterwards, all
    /// warps wait for each other.
    WarpSpecialize warp_specialize () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Partitions Never None None;

    /// Waits until the next slot of a ring is empty, and returns it (CUTLASS: `producer_acquire`).
    Acquire acquire (ring) [] {} regions 0 Write Barrier Never None None;
    /// Starts a copy of a tensor's box to an empty slot of a ring. One thread starts the copy. The
    /// lowering of rings adds the `mbarrier`.
    TensorFill tensor_fill (slot, descriptor) [] *coordinates {} regions 0 Write Memory Reads None StartsTensorLoad;
    /// Makes a slot full once all stores and copies to it have arrived (CUTLASS:
    /// `producer_commit`).
    Publish publish (slot) [] {} regions 0 Write Barrier Never None None;
    /// Waits for the next full slot of a ring and returns it (CUTLASS: `consumer_wait`). The order
    /// is that of `acquire`.
    Take take (ring) [] {} regions 0 Write Barrier Never None None;
    /// Makes a slot empty again (CUTLASS: `consumer_release`).
    Release release (slot) [] {} regions 0 Write Barrier Never None None;
}

/// The attribute values that the text omits.
const DEFAULTS: [(&str, &str); 3] = [("equal_registers", "0"), ("window", "[]"), ("formats", "none")];

/// Returns the text of an attribute that the text form omits.
fn default_of(name: &str) -> Option<&'static str> {
    DEFAULTS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// The op of an instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// An op of tile IR, on values with layouts.
    Tile(ir::Op),
    /// An op of this table.
    Gpu(GpuOp),
}

impl From<ir::Op> for Op {
    fn from(op: ir::Op) -> Self {
        Self::Tile(op)
    }
}

impl From<GpuOp> for Op {
    fn from(op: GpuOp) -> Self {
        Self::Gpu(op)
    }
}

impl Op {
    /// Returns the op of this table, if the op is in it.
    pub fn as_gpu(&self) -> Option<&GpuOp> {
        match self {
            Self::Tile(_) => None,
            Self::Gpu(op) => Some(op),
        }
    }
}

impl GpuOp {
    /// Returns whether the op reads the transpose of the buffer of an operand.
    pub fn reads_transpose(&self, operand: usize) -> bool {
        match self {
            Self::Wgmma { transposed_a, transposed_b, .. }
            | Self::Tcgen05Mma { transposed_a, transposed_b }
            | Self::Tcgen05MmaScaled { transposed_a, transposed_b, .. } => {
                [*transposed_a, *transposed_b].get(operand).is_some_and(|is_transposed| *is_transposed)
            }
            // tidy: wildcard because other ops do not transpose
            _ => false,
        }
    }
}

impl Operation for Op {
    fn info(&self) -> &'static OpInfo {
        match self {
            Self::Tile(op) => op.info(),
            Self::Gpu(op) => op.info(),
        }
    }

    fn as_tile(&self) -> Option<&ir::Op> {
        match self {
            Self::Tile(op) => Some(op),
            Self::Gpu(_) => None,
        }
    }

    fn as_elementwise(&self) -> Option<ElementwiseFn> {
        match self {
            Self::Tile(op) => op.as_elementwise(),
            Self::Gpu(GpuOp::Elementwise { function, .. }) => Some(*function),
            Self::Gpu(_) => None,
        }
    }

    fn is_volatile(&self) -> bool {
        match self {
            Self::Tile(op) => op.is_volatile(),
            Self::Gpu(GpuOp::Load { volatile, cache, .. }) => *volatile || *cache == CacheModifier::Volatile,
            Self::Gpu(_) => false,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Tile(op) => op.name(),
            Self::Gpu(GpuOp::Elementwise { function, .. }) => function.name(),
            Self::Gpu(op) => op.info().name,
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = Vec::new();
        match self {
            Self::Tile(op) => return op.attributes(),
            Self::Gpu(GpuOp::Elementwise { equal_registers, .. }) => {
                attributes.push(("equal_registers", format!("{equal_registers}")));
            }
            Self::Gpu(op) => op.print_attributes(|name, text| attributes.push((name, text.to_owned()))),
        }
        attributes.retain(|(name, text)| !DEFAULTS.contains(&(*name, text.as_str())));
        attributes
    }

    fn parse(name: &str, attributes: &AttributeText<'_>) -> Option<Result<Self, &'static str>> {
        let attributes: &AttributeText<'_> = &|name| attributes(name).or_else(|| default_of(name));
        if let Some(function) = ElementwiseFn::parse(name) {
            let bits = attributes("equal_registers").and_then(|text| text.parse().ok());
            let op = |equal_registers| GpuOp::Elementwise { function, equal_registers }.into();
            return Some(bits.map(op).ok_or("equal_registers"));
        }
        let own = GpuOp::parse_row(name, attributes).map(|op| op.map(Self::Gpu));
        own.or_else(|| ir::Op::parse(name, attributes).map(|op| op.map(Self::Tile)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each op that replaces an op of tile IR accesses global memory as that op does.
    #[test]
    fn both_tables_agree_about_global_memory() {
        let mut compared = 0;
        for row in OPS {
            if let Some(tile) = tilewright_ir::OPS.iter().find(|tile| tile.name == row.name) {
                assert_eq!(row.memory, tile.memory, "{}", row.name);
                compared += usize::from(row.memory != tilewright_ir::MemoryAccess::None);
            }
        }
        assert_eq!(compared, 7, "loads, stores and atomics");
    }

    /// Each type of asynchronous work has an op that starts it and an op that awaits it. Exceptions
    /// are tensor loads and dots in tensor memory: an `mbarrier_wait` awaits them.
    #[test]
    fn asynchronous_work_is_awaited() {
        use tilewright_ir::AsyncPhase as Phase;
        for row in OPS {
            let is_awaited = OPS.iter().any(|other| other.phase.awaited() == Some(row.phase));
            let starts = !matches!(row.phase, Phase::None | Phase::StartsTensorLoad | Phase::StartsTensorDot);
            assert_eq!(is_awaited, starts && row.phase.awaited().is_none(), "{}", row.name);
            let has_work =
                row.phase.awaited().is_none_or(|awaited| OPS.iter().any(|other| other.phase == awaited));
            assert!(has_work, "{}", row.name);
        }
    }

    /// Each op that replaces an op of tile IR waits for other programs as that op does.
    #[test]
    fn both_tables_agree_about_waiting() {
        // These ops wait as `load` does.
        let loads = ["copy_async", "tensor_load", "tensor_load_to", "tensor_fill"];
        for row in OPS {
            let name = if loads.contains(&row.name) { "load" } else { row.name };
            let tile = tilewright_ir::OPS.iter().find(|tile| tile.name == name);
            let expected = tile.map_or(tilewright_ir::Waiting::Never, |tile| tile.waiting);
            assert_eq!(row.waiting, expected, "{}", row.name);
        }
    }
}
