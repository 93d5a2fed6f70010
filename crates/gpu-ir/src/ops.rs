//! The table of ops of the GPU dialect. Its rows are ops that tile IR lacks, and ops of tile IR
//! with more attributes. An example of such an attribute is the width of an access. An [`Op`] is a
//! row of this table, or an op of tile IR on values with layouts.

use tilewright_ir as ir;
use tilewright_ir::{
    ANY_REGIONS, AtomicKind, AttributeText, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision,
    IntList, MemoryScope, MemorySemantics, OpInfo, Operation, define_ops,
};

use super::attributes::{Deferred, MmaShape, Scope};

define_ops! {
    GpuOp OPS GpuVisitor visit;

    /// Moves the elements of a tile to the threads that hold them in the layout of the result.
    ConvertLayout convert_layout (tile) [] {} regions 0 Pure Identity Never None None;
    /// Applies an elementwise function to each element. Registers of the result hold equal values
    /// if their indices differ only in the set bits of `equal_registers`. The code computes such a
    /// value once.
    Elementwise elementwise () [] *operands {function: ElementwiseFn, equal_registers: u32} regions 0 Pure Pointwise Never None None;
    /// Multiplies a tile of fp32 by a factor for each element. A warp skips the multiplications if
    /// all of its factors are 1.
    Rescale rescale (tile, factor) [] {} regions 0 Pure Pointwise Never None None;
    /// Reads global memory where the mask holds, or everywhere without a mask. Elsewhere, the
    /// result is `other`, or zero without `other`. Each access of a thread moves `width` elements
    /// along `axis`. Registers hold equal values if their indices differ only in the set bits of
    /// `equal_registers`. The code loads such a value once.
    Load load (pointer) [mask, other]
        {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool, axis: u32, width: u32, equal_registers: u32}
        regions 0 Read Load Reads ReadsGlobal None;
    /// Writes global memory where the mask holds. Each access of a thread moves `width` elements
    /// along `axis`. Of the threads that hold copies of an element, one writes it.
    Store store (pointer, value) [mask]
        {cache: CacheModifier, eviction: EvictionPolicy, axis: u32, width: u32} regions 0 Write Store Never WritesGlobal None;
    /// Executes `atomic_rmw` of tile IR. If several threads hold copies of an element, only the
    /// first of them executes the atomic operation. With `everywhere`, which is set until
    /// conversions are lowered, the other threads get the result, too. Each access of a thread
    /// moves `width` elements along `axis`.
    AtomicRmw atomic_rmw (pointer, value) [mask]
        {kind: AtomicKind, sem: MemorySemantics, scope: MemoryScope, axis: u32, width: u32, everywhere: bool}
        regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_cas` of tile IR. The threads that execute the operation, and `everywhere`,
    /// are as for `atomic_rmw`.
    AtomicCas atomic_cas (pointer, expected, value) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes WritesGlobal None;
    /// Executes `atomic_load` of tile IR. The threads that execute the operation, and `everywhere`,
    /// are as for `atomic_rmw`.
    AtomicLoad atomic_load (pointer) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes ReadsGlobal None;
    /// Executes `atomic_store` of tile IR. If several threads hold copies of an element, only the
    /// first of them stores it.
    AtomicStore atomic_store (pointer, value) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Never WritesGlobal None;
    /// Executes `atomic_poll` of tile IR in one thread; `everywhere` gives the result to the other
    /// threads.
    AtomicPoll atomic_poll (pointer, expected) [timeout]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Always ReadsGlobal None;
    /// Combines tiles along an axis by an associative region, in the whole block or in each warp.
    /// With `redux`, `redux.sync` combines the lanes of a warp.
    Reduce reduce () [] *tiles {axis: u32, scope: Scope, redux: bool} regions 1 Pure Reduction Never None None;
    /// Combines each element with all elements before it along an axis, in the whole block or in
    /// each warp. With `reverse`, combines each element with all elements after it. With the scope
    /// `warp`, the results are the scanned tiles, then the partial results. Each run of elements
    /// that a warp holds has one partial result. The last axis of the partial results is the index
    /// of the run.
    Scan scan () [] *tiles {axis: u32, reverse: bool, scope: Scope} regions 1 Pure Scan Never None None;
    /// Computes the scan of the whole block from scans with the scope `warp`. The first half of the
    /// operands are the scanned tiles of these scans. The second half are scans of the partial
    /// results. A line is the elements along the axis whose other coordinates are equal. Each warp
    /// that has elements of a line holds these scans for all runs of the line.
    ScanCarry scan_carry () [] *tiles {axis: u32, reverse: bool} regions 1 Pure Scan Never None None;
    /// Computes acc + a @ b by `mma.sync`. `warps` lists the number of warps along M and along N.
    /// For a batch, the list begins with the number of warps along the first axis of the batch. An
    /// operand is in registers, in the fragment layout of the instruction, or in shared memory.
    /// With `matrix_a` (`matrix_b`), `ldmatrix` loads A (B) from shared memory.
    MmaSync mma_sync (a, b, acc) []
        {instruction: MmaShape, warps: IntList, precision: InputPrecision, max_imprecise_acc: u32, matrix_a: bool,
         matrix_b: bool} regions 0 Read Dot Never ReadsOperands None;
    /// Computes acc + a @ b by multiplications and additions of single elements, along K in
    /// ascending order. A and B are in shared memory, or in the registers of the threads that need
    /// them.
    FmaDot fma_dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot Never ReadsOperands None;

    /// Allocates shared memory at `offset`, in bytes, until its `dealloc`. The contents are
    /// undefined. The offset is a multiple of the alignment that the uses of the memory need (table
    /// in `alignment.rs`).
    Alloc alloc () [] {offset: Deferred} regions 0 Write Memory Never None None;
    /// Ends the lifetime of a buffer, a ring or `mbarrier`s. If the memory has `mbarrier`s, one
    /// thread invalidates all of them. A `barrier` must then precede the `dealloc`, so that no
    /// other thread still waits for them. Another `barrier` must precede the next use of the
    /// memory.
    Dealloc dealloc (memory) [] {} regions 0 Write Memory Never None None;
    /// Returns slot `index` of a buffer. The index (int32) must be less than the number of slots.
    Slot slot (buffer, index) [] {} regions 0 Pure Memory Never None None;
    /// Returns a buffer of other tiles in the memory of a buffer, from its first byte on.
    View view (buffer) [] {} regions 0 Pure Memory Never None None;
    /// Stores a tile to a buffer of one slot.
    LocalStore local_store (buffer, value) [] {} regions 0 Write Memory Never WritesShared None;
    /// Counts the values of a tile in a 1-D int32 buffer. For each element where the mask holds,
    /// adds 1 to the element of the buffer whose index is the value.
    LocalHistogram local_histogram (buffer, tile) [mask] {} regions 0 Write Memory Never WritesShared None;
    /// Loads a tile from a buffer of one slot; with `matrix`, by `ldmatrix`.
    LocalLoad local_load (buffer) [] {matrix: bool} regions 0 Read Memory Never ReadsShared None;

    /// Starts copying global memory to a buffer of one slot by `cp.async`. Writes zeros where the
    /// mask does not hold. Each copy of a thread moves `width` elements along `axis`. These
    /// elements take 4, 8 or 16 bytes, and have one mask value. They are contiguous both in global
    /// memory and in the buffer. Copies of 16 bytes bypass L1 unless `cache` is `.ca`. If several
    /// threads hold copies of a pointer, one of them starts the copy. This thread may read the data
    /// after its `wait_group`. Other threads may read the data after a barrier that follows the
    /// `wait_group`.
    CopyAsync copy_async (buffer, pointer) [mask] {cache: CacheModifier, axis: u32, width: u32} regions 0 Write Memory Reads WritesShared StartsCopy;
    /// Commits, in each thread, all copies since its last group as a new group.
    CommitGroup commit_group () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in each thread, until all groups of the thread except its latest `pending` ones are
    /// complete.
    WaitGroup wait_group () [] {pending: u32} regions 0 Write Barrier Never None AwaitsCopies;

    /// Initializes the `mbarrier` of `slot`, or of every slot if the operand is absent. Each phase
    /// then needs `arrivals` arrivals. One thread executes the initialization; the others see it
    /// after a `barrier`. Tensor copies use the asynchronous proxy. If they arrive at the
    /// `mbarrier`s, a `fence_proxy` must be between the initialization and that `barrier`.
    MbarrierInit mbarrier_init (barriers) [slot] {arrivals: u32} regions 0 Write Barrier Never WritesShared None;
    /// Ends the use of the `mbarrier` of a slot, by one of the threads that run the op. The slot
    /// may then be initialized again. No thread may still wait for the `mbarrier`.
    MbarrierInvalidate mbarrier_invalidate (barriers, slot) [] {} regions 0 Write Barrier Never WritesShared None;
    /// Arrives `arrivals` times at the `mbarrier` of a slot, by one of the threads that run the op.
    MbarrierArriveTimes mbarrier_arrive_times (barriers, slot) [] {arrivals: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the `mbarrier` of a slot, by one of the threads that run the op. Adds `bytes` to
    /// the bytes that the phase waits for.
    MbarrierExpect mbarrier_expect (barriers, slot) [] {bytes: u32} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the `mbarrier` of a slot, by one thread of each warp that runs the op. The thread
    /// arrives after all lanes of the warp have reached the op. So the earlier accesses of all
    /// lanes happen before the arrival.
    MbarrierArrive mbarrier_arrive (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the `mbarrier` of a slot once for each thread that runs the op
    /// (`cp.async.mbarrier.arrive.noinc`). The arrival of a thread follows the completion of its
    /// `cp.async` copies. The `arrivals` of `mbarrier_init` include one arrival for each of these
    /// threads.
    MbarrierArriveCopies mbarrier_arrive_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Keeps the current phase of the `mbarrier` of a slot open until earlier `cp.async` copies are
    /// complete (`cp.async.mbarrier.arrive`). These copies are those of all threads that run the
    /// op. The `arrivals` of `mbarrier_init` do not include these threads.
    MbarrierTrackCopies mbarrier_track_copies (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Waits until a phase of the `mbarrier` of a slot is complete, in each thread that runs the
    /// op. `parity` (0 or 1, int32) is the parity of the phase. The first phase has parity 0. While
    /// the first phase is current, the phase with parity 1 counts as complete.
    MbarrierWait mbarrier_wait (barriers, slot, parity) [] {} regions 0 Write Barrier Never ReadsShared None;
    /// Starts a copy of the box of a tensor at these coordinates to a buffer of one slot. One of
    /// the threads that run the op starts the copy. The copy signals all bytes of the buffer at the
    /// `mbarrier` of `slot` (`complete_tx`).
    ///
    /// The descriptor is the address of a tensor map, in global memory or a parameter. The
    /// coordinates are in the order of the tensor's axes. The axes that the tile lacks precede the
    /// axes of the tile. The rows of the buffer are along the contiguous axis of the tensor. In
    /// memory, this axis precedes the other axes, which are in order from the last to the first.
    /// The buffer may have a swizzle mode if the length of its rows is a multiple of the row length
    /// of the mode. If the rows are longer than that, boxes whose rows have the length of the
    /// swizzle mode divide the slot. The boxes follow each other in memory, and one copy moves each
    /// box. The tensor map has the extents and the swizzle of such a box.
    ///
    /// For a matrix, the coordinate of an axis may be an int32 tile of row indices. Row `i` of the
    /// buffer is then the row of the tensor whose index is element `i` of the tile. If the tensor
    /// has no such row, row `i` is zeros. Each lane of the first warp starts copies of four rows.
    /// The box of the tensor map is a part of one row. In the buffer, a row of a box has at least
    /// 32 bytes.
    TensorLoad tensor_load (buffer, descriptor, barriers, slot) [] *coordinates {} regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Starts a copy of a buffer of one slot to the box of a tensor at these coordinates. Commits
    /// the copy as a group.
    ///
    /// One of the threads that run the op starts the copy, always the same thread. Buffer,
    /// descriptor and coordinates are as for `tensor_load`. Threads make their writes to the buffer
    /// visible by `fence_proxy` and a barrier that follows. With row indices, each lane that starts
    /// copies commits them as one group. Rows outside of the tensor are not written.
    TensorStore tensor_store (buffer, descriptor) [] *coordinates {} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Combines the elements of a buffer with those of a tensor, and is otherwise like
    /// `tensor_store`. Each element is combined atomically, unordered with other accesses.
    /// `is_tensor_reduction` decides which kinds an element type has.
    TensorReduce tensor_reduce (buffer, descriptor) [] *coordinates {kind: AtomicKind} regions 0 Write Memory Never ReadsShared StartsTensorStore;
    /// Returns the pointers unchanged. States that the pointers point to a box of a tensor at these
    /// coordinates (as for `tensor_load`). A tensor map of the module describes the tensor. For
    /// elements outside of the tensor, a load through the pointers yields zeros, or the program
    /// does not use the results.
    TensorBox tensor_box (pointer, descriptor) [] *coordinates {} regions 0 Pure Identity Never None None;
    /// Makes the tensor map `M<map>` of the module from these scalars, and returns the address of
    /// the map. The map is in global memory that belongs to the block. A buffer of 128 bytes is its
    /// staging area. The first warp makes the map, and only that warp may copy with it. If the op
    /// runs again, the new map replaces the previous map. All copies with the previous map must be
    /// complete by then.
    MakeTensorMap make_tensor_map (buffer) [] *parts {map: u32} regions 0 Write Memory Never WritesShared None;
    /// Orders ordinary accesses of each thread to global memory before tensor copies. The copies
    /// must follow a barrier after this op.
    FenceGlobal fence_global () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in the thread that started the tensor stores, for groups of them. At most `pending`
    /// groups then still read shared memory or, with `complete`, still write the tensor. Other
    /// threads may rely on this wait after a barrier that follows it.
    TensorStoreWait tensor_store_wait () [] {pending: u32, complete: bool} regions 0 Write Barrier Never None AwaitsTensorStores;

    /// Starts acc + a @ b by `wgmma`, and commits it as a group. `warps` counts the warps along M
    /// and N.
    ///
    /// A is in registers or in shared memory, and B is in shared memory. The pass that lowers
    /// conversions stores operands to shared memory. Before this pass, A and B may be in registers
    /// in any layout. Until the dot has finished, no thread may write its operands. Until then, the
    /// code that computes an A in registers may not run again for the next iteration. A matrix
    /// descriptor must be able to describe the layout of an operand in shared memory. K is
    /// contiguous or, for 16-bit elements, M or N. With `transposed_a` (`transposed_b`), A (B) is
    /// the transpose of its buffer. Threads make their writes to such operands visible by
    /// `fence_proxy` and a barrier that follows. With a `pending` accumulator, the dot continues
    /// another dot in the same registers. Otherwise, the dot starts from a copy of the accumulator.
    /// The accumulation is as exact as that of the instruction. The exception is 8-bit floats with
    /// a `max_imprecise_acc` other than 0. The threads then wait after every `max_imprecise_acc`
    /// elements along K, and add the partial result to an fp32 accumulator. `after` is a tile of
    /// 32-bit elements; the dot starts after it is computed. A `window` that is not empty states
    /// the parts of operands in shared memory, after the transpose. Its numbers are the first row
    /// and column of A, those of B, and the extent along K.
    ///
    /// On targets with `tcgen05.mma`, the layout of the accumulator is that of
    /// `TensorMemory::register_layout`, and A is in shared memory. The pass `tensor_dots` replaces
    /// the op by `tcgen05_mma`.
    Wgmma wgmma (a, b, acc) [after]
        {instruction: MmaShape, warps: IntList, max_imprecise_acc: u32, transposed_a: bool, transposed_b: bool,
         window: IntList} regions 0 Write Dot Never ReadsOperands StartsDot;
    /// Returns a tile as the accumulator of dots in flight. No dot has started yet.
    WgmmaInit wgmma_init (acc) [] {} regions 0 Write Barrier Never None None;
    /// Waits for a dot in flight, and returns its accumulator. At most `pending` groups that follow
    /// the dot remain in flight. `after` is a tile of 32-bit elements. With it, the op waits after
    /// this tile is computed, and not as early as possible.
    WgmmaWait wgmma_wait (dot) [after] {pending: Deferred} regions 0 Write Barrier Never None AwaitsDots;
    /// Waits until at most `pending` groups of dots are in flight, and returns `dot`, which may
    /// still be in flight. Afterwards, threads may write the operands of the dots that have
    /// finished.
    WgmmaWaitEarlier wgmma_wait_earlier (dot) [] {pending: u32} regions 0 Write Barrier Never None AwaitsDots;

    /// Allocates columns of tensor memory for the block, and ends the right of the block to allocate
    /// more. The first warp executes the allocation, which writes the address to the buffer. All
    /// threads of the block wait for it, and read the address. The op precedes each `alloc` of
    /// tensor memory, whose offset counts columns.
    Tcgen05Alloc tcgen05_alloc (buffer) [] {columns: u32} regions 0 Write Memory Never WritesShared None;
    /// Frees the columns of `tcgen05_alloc`, by the first warp, after all threads of the block have
    /// arrived at the op. Each `tcgen05_mma` must be complete.
    Tcgen05Dealloc tcgen05_dealloc () [] {columns: u32} regions 0 Write Barrier Never None None;
    /// Loads a tile from tensor memory of one slot, and waits for it (`tcgen05.ld`, `tcgen05.wait`).
    /// Warp `w` of the block accesses the lanes from `32 * (w % 4)` on, and the layout has to hold
    /// the elements in the order of an instruction.
    TmemLoad tmem_load (memory) [] {} regions 0 Read Memory Never None None;
    /// Stores a tile to tensor memory of one slot, and waits for the store (`tcgen05.st`). The layout
    /// is as for `tmem_load`.
    TmemStore tmem_store (memory, value) [] {} regions 0 Write Memory Never None None;
    /// Starts acc + a @ b by `tcgen05.mma`, by one of the threads that run the op, or a @ b if the
    /// int1 `use_acc` is false. The accumulator is in tensor memory, A in shared or tensor memory, B
    /// in shared memory.
    ///
    /// An operand in shared memory has a layout that a matrix descriptor can describe. With
    /// `transposed_a` (`transposed_b`), A (B) is the transpose of its buffer. Threads make their
    /// writes to such operands visible by `fence_proxy` and a barrier that follows; a barrier also
    /// orders their accesses to tensor memory before the op. Dots of one thread execute in order.
    /// Other accesses to the accumulator, and writes to the operands, must follow a wait for the
    /// `mbarrier` of a `tcgen05_commit`.
    Tcgen05Mma tcgen05_mma (a, b, acc, use_acc) [] {transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never ReadsOperands StartsTensorDot;
    /// Makes the `mbarrier` of a slot get one arrival when the dots are complete that the thread has
    /// started, the thread that starts each `tcgen05_mma`.
    Tcgen05Commit tcgen05_commit (barriers, slot) [] {} regions 0 Write Barrier Never ReadsShared None;

    /// Lets the `n` blocks of a cluster fill a buffer together from here on, if the condition
    /// (int1) holds. The condition has the same value in all blocks.
    ///
    /// Each block copies one part of each of its tensor loads to the buffers of all blocks. The
    /// parts are in the order of the blocks, and the bytes arrive at the barriers `full` of all
    /// blocks. The `arrivals` of the barriers `empty` are those of one block; the lowering
    /// multiplies them by `n`. An arrival at such a barrier therefore counts `n` times. If the
    /// condition holds, it counts once in each block, else `n` times in the block of the arriving
    /// thread. All blocks run the same loads in the same order, synchronize before the first load,
    /// and synchronize before they end. A tile of one box is divided along the slowest axis of the
    /// buffer. The tensor map has the box of a part.
    MulticastLoads multicast_loads (buffer, full, empty, condition) [] {} regions 0 Write Barrier Never None None;
    /// Starts copies as `tensor_load` does, but to several blocks of the cluster. The buffer and
    /// the `mbarrier` have the same addresses in each of these blocks. The bits of the mask
    /// `blocks` (int32) are the ranks of these blocks. The mask 0 is the executing block only.
    ///
    /// With `offsets` other than 0, the tensor map is for im2col copies (PTX ISA, "Im2col mode").
    /// The last `offsets` coordinates are then the offsets of the copied pixels along the axes
    /// between the images and the channels.
    TensorLoadTo tensor_load_to (buffer, descriptor, barriers, slot, blocks) [] *coordinates {offsets: u32}
        regions 0 Write Memory Reads FillsShared StartsTensorLoad;
    /// Loads a tile from buffers at the same address in several blocks of the cluster. The result
    /// has one more axis, which is its first axis. Element `i` along this axis is in the block
    /// whose rank has the bits of `i` at the bits set in `blocks`. The other bits of the rank are
    /// those of the executing block. The lowest bits of the register index are along the new axis.
    /// Barriers of the cluster order the accesses.
    GatherBlocks gather_blocks (buffer) [] {blocks: u32} regions 0 Read Memory Never ReadsShared None;
    /// Arrives `arrivals` times at the `mbarrier` of a slot in the block with the rank `block`
    /// (int32). One of the threads that run the op arrives, and adds `bytes` to the bytes that the
    /// phase waits for.
    MbarrierArriveAt mbarrier_arrive_at (barriers, slot, block) [] {arrivals: u32, bytes: u32}
        regions 0 Write Barrier Never ReadsShared None;
    /// Arrives at the barrier of the cluster, in every thread. Accesses before this op,
    /// initialization of `mbarrier`s included, happen before accesses after `cluster_wait`.
    ClusterArrive cluster_arrive () [] {} regions 0 Write Barrier Never None None;
    /// Waits, in each thread, until all threads of the cluster that have not ended have arrived.
    ClusterWait cluster_wait () [] {} regions 0 Write Barrier Never None None;

    /// Orders accesses of threads to shared memory before later accesses of the asynchronous proxy
    /// (tensor copies, `wgmma`). The accesses of threads are ordinary ones, and `cp.async` copies
    /// after a wait for them. The order holds in this thread, and in other threads after a barrier.
    /// The earlier accesses include those of other threads for which this thread has waited, at an
    /// `mbarrier` or a barrier. If the op names slots, the pass that inserts barriers places a
    /// barrier for them before the fence.
    FenceProxy fence_proxy () [] *slots {} regions 0 Write Barrier Never ReadsOperands None;
    /// Waits at the named barrier with the id `barrier`, from 1 to 15, until `threads` threads of
    /// whole warps have arrived.
    NamedBarrier named_barrier () [] {barrier: u32, threads: u32} regions 0 Write Barrier Never None None;
    /// Runs each region in its own partition of the warps. `warps` lists the number of warps of
    /// each partition, in the order of the warps.
    ///
    /// `registers` lists, for each partition, the registers of a thread. 0 keeps the number from
    /// before the op. Any other number is a multiple of 8 from 24 to 256, to which the partition
    /// changes its registers. Such a partition consists of whole warpgroups, and begins at a warp
    /// whose index is a multiple of four. As an exception, it may share a warpgroup with partitions
    /// that have the same number of registers. Before and after the op, a thread has the average of
    /// these other numbers, weighted by the warps of the partitions. The average is rounded up to a
    /// multiple of 8. A region may use scalars and shared memory of the enclosing block, but not
    /// its tiles. Inside a partition, its warps count as all warps: tiles are distributed over
    /// them. If an op assigns work to one thread, this is a thread of the partition. Partitions are
    /// not nested, and use `named_barrier`, not `barrier`. Afterwards, all warps wait for each
    /// other.
    WarpSpecialize warp_specialize () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Partitions Never None None;

    /// Waits until the next slot of a ring is empty, and returns it (CUTLASS: `producer_acquire`).
    Acquire acquire (ring) [] {} regions 0 Write Barrier Never None None;
    /// Starts a copy of the box of a tensor at these coordinates to an empty slot of a ring. One
    /// thread starts the copy. The pass that lowers rings adds the `mbarrier`.
    TensorFill tensor_fill (slot, descriptor) [] *coordinates {} regions 0 Write Memory Reads None StartsTensorLoad;
    /// Makes a slot full once all stores and copies to it have arrived (CUTLASS:
    /// `producer_commit`).
    Publish publish (slot) [] {} regions 0 Write Barrier Never None None;
    /// Waits until the next slot of a ring, in the order of `acquire`, is full, and returns it
    /// (CUTLASS: `consumer_wait`).
    Take take (ring) [] {} regions 0 Write Barrier Never None None;
    /// Makes a slot empty again (CUTLASS: `consumer_release`).
    Release release (slot) [] {} regions 0 Write Barrier Never None None;
}

/// The attributes that the text form omits if they have these values.
const DEFAULTS: [(&str, &str); 2] = [("equal_registers", "0"), ("window", "[]")];

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
    /// Returns the op of this table, if it is one.
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
            | Self::Tcgen05Mma { transposed_a, transposed_b } => {
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

    /// Checks that an op with the name of an op of tile IR accesses global memory as that op does.
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

    /// Checks that for each type of asynchronous work, one op of the table starts the work and
    /// another op awaits it. Only tensor loads and dots in tensor memory have no op that
    /// awaits them: an `mbarrier_wait` does.
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

    /// Checks that each replacement of an op of tile IR waits for other programs as that op does.
    #[test]
    fn both_tables_agree_about_waiting() {
        // A plain atomic store signals other programs but observes none. Ops without a counterpart
        // do not involve other programs.
        let loads = ["copy_async", "tensor_load", "tensor_load_to", "tensor_fill"];
        for row in OPS {
            let name = if loads.contains(&row.name) { "load" } else { row.name };
            let tile = tilewright_ir::OPS.iter().find(|tile| tile.name == name);
            let expected = tile.map_or(tilewright_ir::Waiting::Never, |tile| tile.waiting);
            assert_eq!(row.waiting, expected, "{}", row.name);
        }
    }
}
