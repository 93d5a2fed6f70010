//! The table of ops of the GPU dialect. The rows are ops that tile IR lacks, and ops of tile IR
//! with further attributes, such as an access width. `ir/src/table.rs` names the columns of a row.
//! An [`Op`] is an op of this table, or an op of tile IR on values with layouts.

use tilewright_ir as ir;
use tilewright_ir::{
    ANY_REGIONS, AtomicKind, AttributeText, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision,
    IntList, MemoryScope, MemorySemantics, OpInfo, Operation, ScaledFormat, ScaledFormats, define_ops,
};

use super::attributes::{Deferred, MmaShape, Scope};

define_ops! {
    GpuOp OPS GpuVisitor visit;

    /// Moves each element of a tile to the threads that hold the element in the result's layout.
    ConvertLayout convert_layout (tile) [] {} regions 0 Pure Identity Never None None;
    /// Applies an elementwise function to each element. Registers whose indices differ only in bits
    /// of `equal_registers` hold equal values, which a thread computes once.
    Elementwise elementwise () [] *operands {function: ElementwiseFn, equal_registers: u32} regions 0 Pure Pointwise Never None None;
    /// Multiplies a tile of fp32 by a factor for each element. A warp skips the multiplications if
    /// all of its factors are 1.
    Rescale rescale (tile, factor) [] {} regions 0 Pure Pointwise Never None None;
    /// Reads global memory where the mask holds, or everywhere without a mask. Elsewhere, the
    /// result is `other`, or zero without `other`. Each access of a thread moves `width` elements
    /// along `axis`. Registers whose indices differ only in bits of `equal_registers` hold equal
    /// elements, which a thread loads once.
    Load load (pointer) [mask, other]
        {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool, axis: u32, width: u32, equal_registers: u32}
        regions 0 Read Load Reads ReadsGlobal None;
    /// Writes global memory where the mask holds, or everywhere without a mask. Each access of a
    /// thread moves `width` elements along `axis`. If several threads hold an element, one of them
    /// writes it.
    Store store (pointer, value) [mask]
        {cache: CacheModifier, eviction: EvictionPolicy, axis: u32, width: u32} regions 0 Write Store Never WritesGlobal None;
    /// Executes `atomic_rmw` of tile IR. Each access of a thread moves `width` elements along
    /// `axis`. If several threads hold an element, the first of them executes the operation. With
    /// `everywhere`, the other threads get the result, too.
    ///
    /// The lowering of conversions clears `everywhere`. If the result is used and several lanes or
    /// warps hold an element, this lowering sends the result through shared memory.
    AtomicRmw atomic_rmw (pointer, value) [mask]
        {kind: AtomicKind, sem: MemorySemantics, scope: MemoryScope, axis: u32, width: u32, everywhere: bool}
        regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_cas` of tile IR. For the executing threads and `everywhere`, see
    /// `atomic_rmw`.
    AtomicCas atomic_cas (pointer, expected, value) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_load` of tile IR. For the executing threads and `everywhere`, see
    /// `atomic_rmw`.
    AtomicLoad atomic_load (pointer) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes ReadsGlobal None;
    /// Executes `atomic_store` of tile IR. If several threads hold an element, the first of them
    /// stores it.
    AtomicStore atomic_store (pointer, value) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Never WritesGlobal None;
    /// Executes `atomic_poll` of tile IR in one thread. With `everywhere`, the other threads get
    /// the result, too.
    AtomicPoll atomic_poll (pointer, expected) [timeout]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Always ReadsGlobal None;
    /// Combines the elements of tiles along an axis by an associative region. `scope` is the block,
    /// or each warp by itself. With `redux`, `redux.sync` combines the values of a warp's lanes.
    Reduce reduce () [] *tiles {axis: u32, scope: Scope, redux: bool} regions 1 Pure Reduction Never None None;
    /// Combines each element with those before it along an axis. With `reverse`, combines each
    /// element with those after it. `scope` is the block, or each warp by itself.
    ///
    /// Along the axis, the elements of a warp form runs of consecutive elements (`layout::Parts`).
    /// With the scope `warp`, the op scans each run by itself. It also combines all elements of the
    /// run to one partial result. The results are the scanned tiles, then a tile of partial results
    /// for each operand. The last axis of a tile of partial results is the index of the run.
    Scan scan () [] *tiles {axis: u32, reverse: bool, scope: Scope} regions 1 Pure Scan Never None None;
    /// Computes a scan over the block from scans with the scope `warp`. The operands are the
    /// scanned tiles, then the scans of the partial results. A line is the elements that differ
    /// only in the coordinate along `axis`. A warp that holds elements of a line also holds the
    /// scanned partial results of all runs of this line.
    ScanCarry scan_carry () [] *tiles {axis: u32, reverse: bool} regions 1 Pure Scan Never None None;
    /// Computes acc + a @ b by `mma.sync`. `warps` lists the numbers of warps along M and N. If
    /// `warps` has three numbers, the first is the number of warps along the first axis of the
    /// batch. Each of A and B is in the fragment layout of the instruction, or in shared memory.
    /// With `matrix_a` (`matrix_b`), `ldmatrix` loads A (B).
    MmaSync mma_sync (a, b, acc) []
        {instruction: MmaShape, warps: IntList, precision: InputPrecision, max_imprecise_acc: u32, matrix_a: bool,
         matrix_b: bool} regions 0 Read Dot Never ReadsOperands None;
    /// Computes acc + a @ b element by element, along K in ascending order. A and B are in shared
    /// memory, or in registers of the threads that multiply them.
    FmaDot fma_dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot Never ReadsOperands None;

    /// Allocates memory until its `dealloc`. In shared memory, `offset` is in bytes. In tensor
    /// memory, the lowering adds `offset` to the address of the block's columns. The contents are
    /// undefined. The offset has the alignment that the users of the memory need (table in
    /// `alignment.rs`).
    Alloc alloc () [] {offset: Deferred} regions 0 Write Memory Never None None;
    /// Ends the lifetime of a buffer, a ring, `mbarrier`s or tensor memory. If the memory has
    /// `mbarrier`s, a `barrier` must precede the `dealloc`, so that no other thread still waits for
    /// them. One thread invalidates the `mbarrier`s. Another `barrier` must precede the next use of
    /// the memory.
    Dealloc dealloc (memory) [] {} regions 0 Write Memory Never None None;
    /// Returns slot `index` of a buffer in shared or tensor memory. The index (int32) must be less
    /// than the number of slots.
    Slot slot (buffer, index) [] {} regions 0 Pure Memory Never None None;
    /// Reinterprets memory: returns a buffer of tiles of another type that begins at the same
    /// address.
    View view (buffer) [] {} regions 0 Pure Memory Never None None;
    /// Stores a tile to a buffer of one slot.
    LocalStore local_store (buffer, value) [] {} regions 0 Write Memory Never WritesShared None;
    /// Counts the values of a tile in a 1-D int32 buffer. For each element of the tile for which
    /// the mask holds, the op adds 1 to the buffer element whose index is the tile element's value.
    LocalHistogram local_histogram (buffer, tile) [mask] {} regions 0 Write Memory Never WritesShared None;
    /// Loads a tile from a buffer of one slot; with `matrix`, by `ldmatrix`.
    LocalLoad local_load (buffer) [] {matrix: bool} regions 0 Read Memory Never ReadsShared None;

    /// Starts copying global memory to a buffer of one slot by `cp.async`. Writes zeros where the
    /// mask does not hold. Each copy of a thread moves `width` elements along `axis`. These
    /// elements take 4, 8 or 16 bytes, have one mask value, and are contiguous in both memories.
    /// Copies of 16 bytes bypass L1 unless `cache` is `.ca`. If several threads hold a pointer, one
    /// of them starts the copy. The thread that started a copy may read the data after its
    /// `wait_group`. Other threads may read the data after a barrier that follows the `wait_group`.
    CopyAsync copy_async (buffer, pointer) [mask] {cache: CacheModifier, axis: u32, width: u32} regions 0 Write Memory Reads WritesShared StartsCopy;
    /// Commits a new group in each thread: all copies that the thread has started since its last
    /// group.
    CommitGroup commit_group () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in each thread, for all groups of this thread except the latest `pending` ones.
    WaitGroup wait_group () [] {pending: u32} regions 0 Write Barrier Never None AwaitsCopies;

    /// Initializes the `mbarrier` of `slot`, or of every slot if the operand is absent. Each phase
    /// then needs `arrivals` arrivals. One thread initializes the `mbarrier`. Other threads see the
    /// initialization after a `barrier`. If tensor copies arrive at the `mbarrier`s, a
    /// `fence_proxy` is between the initialization and that `barrier`.
    MbarrierInit mbarrier_init (barriers) [slot] {arrivals: u32} regions 0 Write Barrier Never WritesShared None;
    /// Ends the use of a slot's `mbarrier`, by one thread. The slot may then be initialized again.
    /// No thread may still wait for the `mbarrier`.
    MbarrierInvalidate mbarrier_invalidate (barriers, slot) [] {} regions 0 Write Barrier Never WritesShared None;
    /// Arrives `arrivals` times at a slot's `mbarrier`, by one thread.
    MbarrierArriveTimes mbarrier_arrive_times (barriers, slot) [] {arrivals: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier`, by one thread. Adds `bytes` to the bytes that the phase
    /// waits for.
    MbarrierExpect mbarrier_expect (barriers, slot) [] {bytes: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier`, by one thread of each warp. All lanes of the warp reach the
    /// op before this arrival, so their earlier accesses happen before the arrival.
    MbarrierArrive mbarrier_arrive (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at a slot's `mbarrier` once for each thread (`cp.async.mbarrier.arrive.noinc`). The
    /// arrival of a thread follows the completion of its earlier `cp.async` copies. `mbarrier_init`
    /// counts these arrivals.
    MbarrierArriveCopies mbarrier_arrive_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Keeps the phase of a slot's `mbarrier` open until `cp.async` copies complete
    /// (`cp.async.mbarrier.arrive`). These are all earlier copies of the threads that run the op.
    /// `mbarrier_init` does not count these threads.
    MbarrierTrackCopies mbarrier_track_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Waits in each thread for a phase of a slot's `mbarrier`. `parity` (0 or 1, int32) is the
    /// parity of the phase. The first phase has parity 0. While the first phase is current, the
    /// phase with parity 1 counts as complete.
    MbarrierWait mbarrier_wait (barriers, slot, parity) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Starts a copy of a tensor's box to a buffer of one slot. One thread starts the copy. The
    /// copy signals all bytes of the buffer at the `mbarrier` of `slot` (`complete_tx`).
    ///
    /// The descriptor is the address of a tensor map, in global memory or a parameter. The
    /// coordinates are in the order of the tensor's axes. If the tensor has more axes than the
    /// tile, the tile has the last ones.
    ///
    /// The rows of the buffer are along the contiguous axis of the tensor. The other axes follow in
    /// memory, from the last axis (fastest) to the first (slowest). The buffer may have a swizzle
    /// mode if the row length of the mode divides that of the buffer. If the rows of the buffer are
    /// longer than those of the mode, the buffer is split into boxes with the row length of the
    /// mode. The boxes follow each other in memory, and one copy moves each box. The tensor map has
    /// the extents and the swizzle mode of such a box.
    ///
    /// For a matrix, the coordinate of an axis may be an int32 tile of row indices. Row `i` of the
    /// buffer is then the row of the tensor whose index is element `i` of the tile. If the tensor
    /// has no row with this index, row `i` is zeros. Each lane of the first warp copies four rows.
    /// The box of the tensor map is a part of one row. In the buffer, a row of a box has at least
    /// 32 bytes.
    TensorLoad tensor_load (buffer, descriptor, barriers, slot) [] *coordinates {} regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Starts a copy of a buffer of one slot to a tensor's box. Commits the copy as a group.
    ///
    /// Without row indices, one thread of the block starts all copies to tensors. Buffer,
    /// descriptor and coordinates are as for `tensor_load`. Before the op, threads make their
    /// writes to the buffer visible by `fence_proxy` and a later barrier. With row indices, each
    /// copying lane commits one group. The copy does not write rows outside of the tensor.
    TensorStore tensor_store (buffer, descriptor) [] *coordinates {} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Replaces the elements of a tensor's box with the function `kind` of these elements and those
    /// of a buffer. Otherwise, the op is like `tensor_store`. Each replacement is atomic, and
    /// unordered with other accesses. `is_tensor_reduction` decides which kinds are possible for an
    /// element type.
    TensorReduce tensor_reduce (buffer, descriptor) [] *coordinates {kind: AtomicKind} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Returns the pointers unchanged. States that they point to a box of a tensor at these
    /// coordinates (as for `tensor_load`). A tensor map of the module describes the tensor. For
    /// elements outside of the tensor, loads through these pointers yield zeros, or the program
    /// ignores the results.
    TensorBox tensor_box (pointer, descriptor) [] *coordinates {} regions 0 Pure Identity Never None None;
    /// Makes tensor map `M<map>` from the scalars `parts`, and returns the address of the map. The
    /// map is in global memory of the block. A buffer of 128 bytes is its staging area. Only the
    /// first warp makes the map and copies with it. If the op runs again, the new map replaces the
    /// previous one. Copies with the previous map must then be complete.
    MakeTensorMap make_tensor_map (buffer) [] *parts {map: u32} regions 0 Write Memory Never WritesShared None;
    /// Orders earlier ordinary accesses of each thread to global memory before later tensor copies.
    /// A barrier must be between this op and the copies.
    FenceGlobal fence_global () [] {} regions 0 Write Barrier Never None None;
    /// Waits for groups of tensor stores, in the thread that started them. After the op, at most
    /// `pending` groups still read shared memory. With `complete`, at most `pending` groups still
    /// write tensors. Other threads may rely on this after a later barrier.
    TensorStoreWait tensor_store_wait () [] {pending: u32, complete: bool} regions 0 Write Barrier Never None AwaitsTensorStores;

    /// Starts acc + a @ b by `wgmma`, and commits the dot as a group. `warps` lists the numbers of
    /// warps along M and N.
    ///
    /// A is in registers or in shared memory, and B is in shared memory. Before conversions are
    /// lowered, A and B may be in registers in any layout. The layout of an operand in shared
    /// memory must be one that a matrix descriptor can express. The contiguous axis of such an
    /// operand is K or, for 16-bit elements, M or N. With `transposed_a` (`transposed_b`), A (B) is
    /// the transpose of its buffer.
    ///
    /// Threads make their writes to the operands visible by `fence_proxy` and a later barrier.
    /// Until the dot has finished, no thread may write its operands, also not for the next
    /// iteration. If the accumulator is in flight (`Type::Pending`), the dot continues in the same
    /// registers. Otherwise, the dot starts from a copy of the accumulator. If there is an operand
    /// `after`, a tile of 32-bit elements, the dot starts after this tile is computed.
    ///
    /// Eight-bit floats may have a `max_imprecise_acc`: after this many elements along K, threads
    /// wait and add the partial result to an fp32 accumulator. For operands in shared memory, a
    /// `window` selects the parts that the dot reads, in coordinates after the transpose. The
    /// window lists the first row and column of A, the first row and column of B, and the extent
    /// along K.
    ///
    /// On targets with `tcgen05.mma`, the layout of the accumulator is that of
    /// `TensorMemory::register_layout`, and A is in shared memory. The pass `tensor_dots` replaces
    /// the op by `tcgen05_mma`. With `formats`, A and B have scales, in the layouts of
    /// `ScaledDot::scale_layouts`. Such a dot becomes a `tcgen05_mma_scaled`.
    ///
    /// `further` lists the scales of A and of B, then `after`. Both the scales and `after` are
    /// optional.
    Wgmma wgmma (a, b, acc) [] *further
        {instruction: MmaShape, warps: IntList, max_imprecise_acc: u32, transposed_a: bool, transposed_b: bool,
         window: IntList, formats: Option<ScaledFormats>} regions 0 Write Dot Never ReadsOperands StartsDot;
    /// Returns a tile as an accumulator in flight (`Type::Pending`), without a dot.
    WgmmaInit wgmma_init (acc) [] {} regions 0 Write Barrier Never None None;
    /// Waits for a dot in flight, and returns its accumulator. At most `pending` later groups
    /// remain in flight. If there is an operand `after`, a tile of 32-bit elements, the wait begins
    /// after this tile is computed. Otherwise, the assembler may hoist the wait.
    WgmmaWait wgmma_wait (dot) [after] {pending: Deferred} regions 0 Write Barrier Never None AwaitsDots;
    /// Waits until at most `pending` groups are in flight, and returns `dot`, which may still be in
    /// flight. After the op, threads may write the operands of finished dots.
    WgmmaWaitEarlier wgmma_wait_earlier (dot) [] {pending: u32} regions 0 Write Barrier Never None AwaitsDots;

    /// Allocates the block's columns of tensor memory. The block cannot allocate further columns.
    /// The first warp writes the address of the columns to the buffer. All threads of the block
    /// wait for the address, and read it. The op precedes each `alloc` of tensor memory.
    Tcgen05Alloc tcgen05_alloc (buffer) [] {columns: u32} regions 0 Write Memory Never WritesShared None;
    /// Frees the columns of `tcgen05_alloc`, by the first warp. Before the op, all threads must
    /// have arrived at a barrier, and each `tcgen05_mma` must be complete. In a kernel with dots of
    /// pairs of blocks, a barrier of the cluster precedes the op.
    Tcgen05Dealloc tcgen05_dealloc () [] {columns: u32} regions 0 Write Barrier Never None None;
    /// Loads a tile from tensor memory of one slot, and waits for the load (`tcgen05.ld`,
    /// `tcgen05.wait`). Warp `w` accesses the 32 lanes of tensor memory from `32 * (w % 4)` on. The
    /// tile has a layout that a `tcgen05.ld` produces (`TensorMemoryMove`).
    TmemLoad tmem_load (memory) [] {} regions 0 Read Memory Never None None;
    /// Stores a tile to tensor memory of one slot, and waits for the store (`tcgen05.st`). The tile
    /// has a layout as for `tmem_load`.
    TmemStore tmem_store (memory, value) [] {} regions 0 Write Memory Never None None;
    /// Starts acc + a @ b by `tcgen05.mma`, in one thread. If `use_acc` (int1) is false, the dot is
    /// a @ b. The accumulator is in tensor memory, A is in shared or tensor memory, and B is in
    /// shared memory.
    ///
    /// The layout of an operand in shared memory must be one that a matrix descriptor can express.
    /// With `transposed_a` (`transposed_b`), A (B) is the transpose of its buffer. Before the op,
    /// threads make their writes to the operands visible by `fence_proxy` and a later barrier. A
    /// barrier also orders the threads' accesses to tensor memory before the op. Dots of one thread
    /// execute in order. Other accesses to the accumulator, and writes to operands, must follow a
    /// wait for the `mbarrier` of a `tcgen05_commit`.
    ///
    /// If the accumulator has `cta_group 2`, the two blocks of a pair run the op, and the first
    /// block starts the dot for both. Each block has its rows of A and of the accumulator, and half
    /// of the columns of B. The blocks synchronize between writes to operands and the op.
    Tcgen05Mma tcgen05_mma (a, b, acc, use_acc) [] {transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never ReadsOperands StartsTensorDot;
    /// Starts a dot as `tcgen05_mma` does, by an instruction with scales
    /// (`tcgen05.mma.block_scale`).
    ///
    /// A and B are tiles of bytes, which contain elements of the formats `a_format` and `b_format`.
    /// A byte contains two elements of e2m1, or one element of another format. The scales are in
    /// tensor memory for scales (`TensorMemory::holds_scales`). Each scale applies to `block`
    /// elements along K (`ScaledKind::block`). The scales of A have the shape `[M, K / block]`,
    /// those of B `[N, K / block]`.
    Tcgen05MmaScaled tcgen05_mma_scaled (a, b, acc, a_scale, b_scale, use_acc) []
        {a_format: ScaledFormat, b_format: ScaledFormat, transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never ReadsOperands StartsTensorDot;
    /// Starts a copy of a buffer in shared memory to tensor memory of one slot (`tcgen05.cp`). The
    /// thread that starts each `tcgen05_mma` starts the copy. With `cta_group 2`, the op copies in
    /// both blocks of a pair.
    ///
    /// The layout of the source must be one that a matrix descriptor can express. Threads make
    /// their writes to the source visible as for `tcgen05_mma`. Copies and dots of one thread
    /// execute in order. Other accesses to the tensor memory, and writes to the source, must follow
    /// a wait for the `mbarrier` of a `tcgen05_commit`.
    Tcgen05Copy tcgen05_copy (source, memory) [] {} regions 0 Write Memory Never ReadsOperands StartsTensorDot;
    /// Makes a slot's `mbarrier` get one arrival when all earlier dots and copies of a thread are
    /// complete. This thread is the one that starts each `tcgen05_mma`. With `pair`, the two blocks
    /// of a pair run the op. In each of the two blocks, the `mbarrier` at this address then gets an
    /// arrival.
    Tcgen05Commit tcgen05_commit (barriers, slot) [] {pair: bool} regions 0 Write Barrier Never ReadsShared None;

    /// Requests a cluster of the grid that has not begun (`clusterlaunchcontrol.try_cancel`). One
    /// of the threads that run the op sends the request. If there is such a cluster, the hardware
    /// does not start it. The requesting cluster then runs the programs of the other cluster. The
    /// hardware writes the response to a buffer of 16 bytes, and signals 16 bytes at the `mbarrier`
    /// of `slot` (`complete_tx`). With `multicast`, each block of the requesting cluster gets the
    /// response and the signal, at the same addresses.
    ///
    /// No thread may send another request after a response without a cluster.
    ClcTryCancel clc_try_cancel (buffer, barriers, slot) [] {multicast: bool}
        regions 0 Write Memory Never FillsShared StartsTensorLoad;
    /// Reads the response of a `clc_try_cancel`: an int1 that is true if the response has a
    /// cluster, and the three indices (int32) of the cluster's first block. The index along x is
    /// divided by `blocks`. Without a cluster, the indices are 0.
    ClcLoadResult clc_load_result (buffer) [] {blocks: u32} regions 0 Read Memory Never ReadsShared None;

    /// From this op on, lets the `n` blocks of a cluster fill the buffer together, if the condition
    /// (int1) is true. The condition is equal in all blocks.
    ///
    /// For each tensor load to the buffer, each block copies one part of the tile to all blocks.
    /// The parts are in the order of the blocks' ranks. The copies signal the barriers `full` of
    /// all blocks. A tile of one box is divided along the slowest axis of the buffer. The tensor
    /// map has the box of a part. All blocks run the same loads in order, and synchronize before
    /// the first load and before they end.
    ///
    /// `mbarrier_init` counts the arrivals of one block at the barriers `empty`. The lowering
    /// multiplies this number by `n`. If the condition holds, an arrival at `empty` counts once in
    /// each block. Otherwise, the arrival counts `n` times in its own block.
    MulticastLoads multicast_loads (buffer, full, empty, condition) [] {} regions 0 Write Barrier Never None None;
    /// Starts copies as `tensor_load` does, but to several blocks. The set bits of the mask
    /// `blocks` (int32) are the ranks of these blocks; the mask 0 means only this block. In each of
    /// the blocks, buffer and `mbarrier` have the same addresses. With `at_lead`, the copy signals
    /// the `mbarrier` of the first block of the pair.
    ///
    /// If `offsets` is not 0, the tensor map is for im2col copies (PTX ISA, "Im2col mode"). The
    /// last `offsets` coordinates are then the pixels' offsets along the axes between images and
    /// channels.
    TensorLoadTo tensor_load_to (buffer, descriptor, barriers, slot, blocks) [] *coordinates {offsets: u32, at_lead: bool}
        regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Loads a tile from buffers at one address in several blocks. The result has an additional
    /// first axis. `blocks` is a mask of rank bits. Coordinate `i` along the new axis selects a
    /// block. At the set bits of the mask, the rank of this block has the bits of `i`. The other
    /// bits of the rank are those of the executing block's rank. The lowest bits of the register
    /// index are along the new axis. Barriers of the cluster order the accesses.
    GatherBlocks gather_blocks (buffer) [] {blocks: u32} regions 0 Read Memory Never ReadsShared None;
    /// Arrives `arrivals` times at a slot's `mbarrier` in the block with the rank `block` (int32).
    /// One thread arrives, and adds `bytes` to the bytes that the phase waits for.
    MbarrierArriveAt mbarrier_arrive_at (barriers, slot, block) [] {arrivals: u32, bytes: u32}
        regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the barrier of the cluster, in every thread. Accesses before this op, including
    /// `mbarrier` initialization, happen before accesses after `cluster_wait`.
    ClusterArrive cluster_arrive () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in each thread, until all threads of the cluster have arrived or ended.
    ClusterWait cluster_wait () [] {} regions 0 Write Barrier Never None None;

    /// Orders threads' accesses to shared memory before those of the asynchronous proxy, which
    /// executes tensor copies and asynchronous dots. The threads' accesses are ordinary ones, and
    /// awaited `cp.async` copies. They include the accesses of threads for which this thread has
    /// waited at an `mbarrier` or a barrier. The order holds in this thread, and in other threads
    /// after a barrier. If the op names slots, a later pass places a barrier for these slots before
    /// the fence.
    FenceProxy fence_proxy () [] *slots {} regions 0 Write Barrier Never ReadsOperands None;
    /// Waits at a named barrier (1 to 15) until `threads` threads have arrived. The threads are
    /// whole warps.
    NamedBarrier named_barrier () [] {barrier: u32, threads: u32} regions 0 Write Barrier Never None None;
    /// Runs each region in its own partition of the warps. `warps` lists the numbers of warps of
    /// the partitions, in order.
    ///
    /// `registers` lists the register counts of a thread in the partitions. 0 keeps the count from
    /// before the op. Any other number is the new register count of the partition: a multiple of 8
    /// from 24 to 256. A partition with a new count consists of whole warpgroups, or shares a
    /// warpgroup only with partitions of the same count. Before and after the op, a thread has the
    /// average of the new counts, weighted by the partitions' warps. The average is rounded up to a
    /// multiple of 8.
    ///
    /// A region may use scalars and shared memory from outside, but no tiles. For the ops in a
    /// region, the warps of the partition are all warps. Partitions are not nested, and use
    /// `named_barrier`, not `barrier`. After the regions, all warps wait for each other.
    WarpSpecialize warp_specialize () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Partitions Never None None;

    /// Waits until the next slot of a ring is empty, and returns it (CUTLASS: `producer_acquire`).
    Acquire acquire (ring) [] {} regions 0 Write Barrier Never None None;
    /// Starts a copy of a tensor's box to an empty slot of a ring. One thread starts the copy. The
    /// lowering of rings adds the `mbarrier`.
    TensorFill tensor_fill (slot, descriptor) [] *coordinates {} regions 0 Write Memory Reads None StartsTensorLoad;
    /// Makes a slot full once all stores and copies to it have arrived (CUTLASS:
    /// `producer_commit`).
    Publish publish (slot) [] {} regions 0 Write Barrier Never None None;
    /// Waits for the next full slot of a ring and returns it (CUTLASS: `consumer_wait`). `take`
    /// returns the slots in the order of `acquire`.
    Take take (ring) [] {} regions 0 Write Barrier Never None None;
    /// Makes a slot empty again (CUTLASS: `consumer_release`).
    Release release (slot) [] {} regions 0 Write Barrier Never None None;
}

/// The attributes that the text form omits, each with the value for which it is omitted.
const DEFAULTS: [(&str, &str); 3] = [("equal_registers", "0"), ("window", "[]"), ("formats", "none")];

/// Returns the value of an attribute that the text form omits.
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
    /// Returns the op if it is in this table.
    pub fn as_gpu(&self) -> Option<&GpuOp> {
        match self {
            Self::Tile(_) => None,
            Self::Gpu(op) => Some(op),
        }
    }
}

impl GpuOp {
    /// Returns whether the op reads an operand as the transpose of its buffer.
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
