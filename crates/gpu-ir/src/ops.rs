//! The table of ops that tile IR has not, or has without what the GPU path decides. An [`Op`] is one of these or an op of
//! tile IR on values with layouts.

use tilewright_ir as ir;
use tilewright_ir::{
    AtomicKind, AttributeText, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision, IntList,
    MemoryScope, MemorySemantics, OpInfo, Operation, define_ops,
};

use super::attributes::{Deferred, MmaShape, Scope};

/// An op that may have any number of regions.
pub const ANY_REGIONS: usize = usize::MAX;

define_ops! {
    GpuOp OPS GpuVisitor visit;

    /// The tile itself, its elements in the threads that the layout of the result says.
    ConvertLayout convert_layout (tile) [] {} regions 0 Pure Identity Never;
    /// A function of the table of elementwise functions applied at each place. Registers of the result whose numbers differ
    /// in the bits `equal_registers` alone have one value, which is computed once.
    Elementwise elementwise () [] *operands {function: ElementwiseFn, equal_registers: u32} regions 0 Pure Pointwise Never;
    /// The product of a tile of binary32 and a factor for each element, which a warp leaves out if all its factors are 1.
    Rescale rescale (tile, factor) [] {} regions 0 Pure Pointwise Never;
    /// Reads global memory where the mask holds (everywhere without one); elsewhere gives `other`, or zero without one.
    /// Each access of a thread moves `width` elements along the axis. Registers whose numbers differ in the bits
    /// `equal_registers` alone are loaded once, as functions of elements are computed once.
    Load load (pointer) [mask, other]
        {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool, axis: u32, width: u32, equal_registers: u32}
        regions 0 Read Load Reads;
    /// Writes global memory where the mask holds. Each access of a thread moves `width` elements along the axis. Of threads
    /// that hold copies, one writes.
    Store store (pointer, value) [mask]
        {cache: CacheModifier, eviction: EvictionPolicy, axis: u32, width: u32} regions 0 Write Store Never;
    /// As the op of tile IR. Of threads that hold copies of an element, the first does it; the others have the result only if
    /// it is `everywhere`, as it is until conversions are lowered. Each access of a thread moves `width` elements along the axis.
    AtomicRmw atomic_rmw (pointer, value) [mask]
        {kind: AtomicKind, sem: MemorySemantics, scope: MemoryScope, axis: u32, width: u32, everywhere: bool}
        regions 0 Write Atomic Observes;
    /// As the op of tile IR, by the first of the threads that hold copies, as `atomic_rmw`.
    AtomicCas atomic_cas (pointer, expected, value) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes;
    /// As the op of tile IR, by the first of the threads that hold copies, as `atomic_rmw`.
    AtomicLoad atomic_load (pointer) [mask]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Observes;
    /// As the op of tile IR, by the first of the threads that hold copies.
    AtomicStore atomic_store (pointer, value) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Never;
    /// As the op of tile IR, by one thread, as `atomic_rmw`.
    AtomicPoll atomic_poll (pointer, expected) [timeout]
        {sem: MemorySemantics, scope: MemoryScope, everywhere: bool} regions 0 Write Atomic Always;
    /// The tiles combined along an axis by an associative region, in the whole block or in each warp; with `redux`, the lanes of
    /// a warp by `redux.sync`.
    Reduce reduce () [] *tiles {axis: u32, scope: Scope, redux: bool} regions 1 Pure Reduction Never;
    /// Each element combined with all before it along an axis, the last one first with `reverse`, in the whole block or in
    /// parts: the runs of elements that each warp holds. In parts, the results after the tiles are what each part combines
    /// to, its last axis the number of the part.
    Scan scan () [] *tiles {axis: u32, reverse: bool, scope: Scope} regions 1 Pure Scan Never;
    /// The scan of the whole block from scans in parts, the first half of the operands, and the scan of what the parts combine
    /// to, the second half: every warp has it of all parts of its lines.
    ScanCarry scan_carry () [] *tiles {axis: u32, reverse: bool} regions 1 Pure Scan Never;
    /// acc + a @ b by `mma.sync`, by warps so many along M and N, or along the first axis of a batch, M and N. An operand is in registers, in the fragment layout of the
    /// instruction, or in shared memory, from where `ldmatrix` loads it if `matrix_a` or `matrix_b` says so.
    MmaSync mma_sync (a, b, acc) []
        {instruction: MmaShape, warps: IntList, precision: InputPrecision, max_imprecise_acc: u32, matrix_a: bool,
         matrix_b: bool} regions 0 Read Dot Never;
    /// acc + a @ b by multiplications and additions of single elements, along K in ascending order. A and B are in
    /// shared memory, or in the registers of the threads that need them.
    FmaDot fma_dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot Never;

    /// Shared memory from here to its `dealloc`, at this offset in bytes. What it holds is not defined. The offset is a multiple
    /// of what the accesses need: 8 for barriers, 16 for copies of 16 bytes and for `wgmma`, 128 for tensor copies, and eight
    /// lines of the swizzle (256, 512, 1024) for tensor copies and `wgmma` with one.
    Alloc alloc () [] {offset: Deferred} regions 0 Write Memory Never;
    /// The end of the lifetime of a buffer, a ring or barriers. One thread ends the lives of barriers: a barrier of the block
    /// comes before, so that no other thread still waits for them, and another one before the memory is used again.
    Dealloc dealloc (memory) [] {} regions 0 Write Memory Never;
    /// One slot of a buffer, `index` times its bytes behind the beginning. The index (int32) must be less than the number of
    /// slots.
    Slot slot (buffer, index) [] {} regions 0 Pure Memory Never;
    /// Stores a tile to a buffer of one slot.
    LocalStore local_store (buffer, value) [] {} regions 0 Write Memory Never;
    /// Adds 1 to each element of a buffer of int32 of one axis for each element of a tile that is its number, where the mask holds.
    LocalCount local_count (buffer, tile) [mask] {} regions 0 Write Memory Never;
    /// Loads a tile from a buffer of one slot; with `matrix`, by `ldmatrix`.
    LocalLoad local_load (buffer) [] {matrix: bool} regions 0 Read Memory Never;

    /// Starts copying global memory to a buffer of one slot by `cp.async`; zeros where the mask does not hold. Each copy of a
    /// thread moves `width` elements along the axis, 4, 8 or 16 bytes that lie together in the buffer as well; the mask is the
    /// same for them. Copies of 16 bytes go past the first cache unless `cache` says `.ca`. Of threads that hold copies of a
    /// pointer, one copies. The thread that copied may read after `wait_group`, others after a barrier behind that.
    CopyAsync copy_async (buffer, pointer) [mask] {cache: CacheModifier, axis: u32, width: u32} regions 0 Write Memory Reads;
    /// Each thread makes a group of the copies that it has started since the last one.
    CommitGroup commit_group () [] {} regions 0 Write Barrier Never;
    /// Each thread waits until no more than so many of its latest groups are under way.
    WaitGroup wait_group () [] {pending: u32} regions 0 Write Barrier Never;

    /// Makes each barrier ready for phases of so many arrivals. One thread does; the other threads see it after a barrier of the
    /// block. Tensor copies, which arrive by the asynchronous proxy, need a `fence_proxy` between it and that barrier.
    MbarrierInit mbarrier_init (barriers) [] {arrivals: u32} regions 0 Write Barrier Never;
    /// One thread of those that run it, in a role of the role, arrives at a barrier and adds bytes to what its phase waits for.
    MbarrierExpect mbarrier_expect (barriers, slot) [] {bytes: u32} regions 0 Write Barrier Never;
    /// One thread of each warp that runs it arrives at a barrier, when all lanes of the warp have come here: what they did before
    /// comes before.
    MbarrierArrive mbarrier_arrive (barriers, slot) [] {} regions 0 Write Barrier Never;
    /// Each thread that runs it arrives at a barrier when the copies that it has started are done
    /// (`cp.async.mbarrier.arrive.noinc`): the arrivals that the barrier was made for count all these threads.
    MbarrierArriveCopies mbarrier_arrive_copies (barriers, slot) [] {} regions 0 Write Barrier Never;
    /// Each thread that runs it waits until the phase of a barrier with this parity (0 or 1, int32) is over. The first phase has
    /// parity 0; before it, the phase with parity 1 counts as over.
    MbarrierWait mbarrier_wait (barriers, slot, parity) [] {} regions 0 Write Barrier Never;
    /// One thread of those that run it starts copying the box of a tensor at these coordinates to a buffer of one slot; its
    /// bytes, all that the slot has, arrive at a barrier. The descriptor is the address of a tensor map, in global memory or a
    /// parameter. There is a coordinate for each axis of the tensor, in the order of the axes of the tile, behind those of axes
    /// that the tile does not have. The layout of the buffer has rows along one axis, the contiguous one of the tensor, then the
    /// other axes from the last to the first, with a swizzle where rows have its length or a multiple of it; in the latter case
    /// the slot is cut along the rows into boxes of one line of the swizzle each, one behind the other, and each is a copy of
    /// its own. The tensor map has the extents of such a
    /// box, and this swizzle.
    /// Of a matrix, the coordinate of an axis may be a tile of int32, a number for each row: then each row comes from the row of the
    /// tensor with its number, zeros where there is none. The lanes of the first warp start copies of four rows each, the map has the
    /// box of a part of one row, and a row of a box in the buffer has 32 bytes or more.
    TensorLoad tensor_load (buffer, descriptor, barriers, slot) [] *coordinates {} regions 0 Write Memory Reads;
    /// One thread, the one that starts all tensor stores of those that run it, starts copying a buffer of one slot to the box of
    /// a tensor at these coordinates, and makes a group of it. Buffer, descriptor and coordinates are as for `tensor_load`. What
    /// threads wrote to the buffer they make visible by `fence_proxy`, and a barrier comes behind that. With the numbers of rows,
    /// each lane that starts copies makes a group of them, and rows that the tensor does not have are not written.
    TensorStore tensor_store (buffer, descriptor) [] *coordinates {} regions 0 Write Memory Never;
    /// As `tensor_store`, and each element is combined with what is there, atomically and in no order with other accesses. Not
    /// every kind is there for every type.
    TensorReduce tensor_reduce (buffer, descriptor) [] *coordinates {kind: AtomicKind} regions 0 Write Memory Never;
    /// The pointers themselves. They are those of the box that begins at these coordinates, as `tensor_load` counts them, of the
    /// tensor of a tensor map of the module, and a load through them has zeros where the box exceeds the tensor, or elements
    /// that nobody needs.
    TensorBox tensor_box (pointer, descriptor) [] *coordinates {} regions 0 Pure Identity Never;
    /// Makes the tensor map of the module with this number, `M0`, for the block, of these scalars, in its room in global memory;
    /// the result is the address. A map is filled in a buffer of 128 bytes. The first warp makes it, and it alone may copy by it. A
    /// map that is made again takes the place of the one before, which no copy may need any more.
    MakeTensorMap make_tensor_map (buffer) [] *parts {map: u32} regions 0 Write Memory Never;
    /// What each thread did to global memory by ordinary accesses comes before what tensor copies do behind a barrier.
    FenceGlobal fence_global () [] {} regions 0 Write Barrier Never;
    /// The thread that started them waits until no more than so many groups of tensor stores still read shared memory, or, if it is
    /// to be `complete`, have still to write the tensor; others know after a barrier behind that.
    TensorStoreWait tensor_store_wait () [] {pending: u32, complete: bool} regions 0 Write Barrier Never;

    /// Starts acc + a @ b by `wgmma`, by warps so many along M and N, and makes a group of it. A is in registers or in shared
    /// memory, B in shared memory; neither may be written before the product is finished, nor may, in a next iteration, the
    /// code run again that computes an A in registers. Until conversions are lowered, either may be in the registers of any
    /// threads. An operand in shared memory has a layout that a matrix descriptor can
    /// say, with K contiguous, or of 16-bit elements M or N; it is the transpose of what is there with `transposed_a` or `transposed_b`. What threads wrote to operands in shared memory they make visible
    /// by `fence_proxy`, and a barrier comes behind that. With a `pending` accumulator the product follows another one at once,
    /// in the same registers; else it begins with a copy of the accumulator. Sums are as exact as the instruction's; those of 8-bit
    /// floats are added to the accumulator in fp32 whenever `max_imprecise_acc` products are summed up, unless that is 0: then
    /// the threads wait for each such part. With `behind`, a tile of 32-bit elements, it starts when that is computed.
    Wgmma wgmma (a, b, acc) [behind]
        {instruction: MmaShape, warps: IntList, max_imprecise_acc: u32, transposed_a: bool, transposed_b: bool}
        regions 0 Write Dot Never;
    /// The accumulator of a product under way, when no more than so many later groups of products are. With `behind`, a tile of
    /// 32-bit elements, the wait comes when that is computed, and not as early as it can.
    Finish finish (product) [behind] {pending: Deferred} regions 0 Write Barrier Never;
    /// The same product, when no more than so many groups of products are under way: what earlier ones in its registers read may be
    /// written again.
    Settle settle (product) [] {pending: u32} regions 0 Write Barrier Never;

    /// From here on the two blocks of a pair fill the slots of a buffer together where the condition (int1) holds, which is alike
    /// in both: each copies one half of what its tensor loads say, of the first block the first half, to the buffers of both, and
    /// the bytes arrive at the barriers `full` of both. Each arrival at the barriers `empty`, which are initialised for those of
    /// one block, counts twice: in both blocks where the condition of one of the buffers holds, else in its own. Both blocks run
    /// the same loads in the same order, and have met before the first one and meet before they end. A tile that is one box is
    /// cut along its last axis, and the tensor map has the box of a half.
    Share share (buffer, full, empty, condition) [] {} regions 0 Write Barrier Never;
    /// The threads of a pair of blocks arrive: what they did, the making of barriers too, comes before what others do behind
    /// `pair_wait`. Every thread does.
    PairArrive pair_arrive () [] {} regions 0 Write Barrier Never;
    /// Each thread waits until all threads of both blocks of its pair that have not ended have arrived.
    PairWait pair_wait () [] {} regions 0 Write Barrier Never;

    /// What each thread did to shared memory by ordinary accesses, and by `cp.async` that it has waited for, comes before what the
    /// asynchronous proxy (tensor copies, `wgmma`) does to it afterwards: in this thread, and behind a barrier in others. So does what
    /// other threads did and this one has waited for, at an `mbarrier`, or at a barrier: it is put before the fence for the slots that are
    /// named.
    FenceProxy fence_proxy () [] *slots {} regions 0 Write Barrier Never;
    /// So many threads, those of whole warps, wait for each other at a barrier with this number, from 1 to 15.
    NamedBarrier named_barrier () [] {barrier: u32, threads: u32} regions 0 Write Barrier Never;
    /// Each region is run by so many warps, one role after the other in the order of their numbers, with so many registers a
    /// thread (0: as many as before; else 24 to 256 in steps of 8, and the role is whole warpgroups from a multiple of four
    /// warps on). Before and behind, a thread has as many registers as the roles that change them have on the average. Scalars
    /// and shared memory may be used inside, tiles may not. Inside, the warps of the role are all there are: tiles are spread
    /// over them, and what one thread does, one of theirs does. There are no roles in a role and no `barrier` of the block, but
    /// `named_barrier`. All warps wait for each other behind it, and go on.
    WarpRoles warp_roles () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Roles Never;

    /// An empty slot of a ring, the next in turn; waits until one is.
    Acquire acquire (ring) [] {} regions 0 Write Barrier Never;
    /// One thread starts copying the box of a tensor at these coordinates to an empty slot of a ring; the pass that lowers
    /// rings gives it its barrier.
    TensorFill tensor_fill (slot, descriptor) [] *coordinates {} regions 0 Write Memory Reads;
    /// A slot is full when everything is there that was stored or is being copied to it.
    Publish publish (slot) [] {} regions 0 Write Barrier Never;
    /// The next full slot of a ring, in the order in which they were acquired; waits until it is.
    Take take (ring) [] {} regions 0 Write Barrier Never;
    /// A slot is empty again.
    Release release (slot) [] {} regions 0 Write Barrier Never;
}

/// What an instruction does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// As tile IR says, on values with layouts.
    Tile(ir::Op),
    /// What this table says.
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
    /// The op of this table, if it is one.
    pub fn as_gpu(&self) -> Option<&GpuOp> {
        match self {
            Self::Tile(_) => None,
            Self::Gpu(op) => Some(op),
        }
    }
}

impl GpuOp {
    /// Whether it reads the transpose of what is in an operand.
    pub fn reads_transpose(&self, operand: usize) -> bool {
        match self {
            Self::Wgmma { transposed_a, transposed_b, .. } => {
                [*transposed_a, *transposed_b].get(operand).is_some_and(|is_transposed| *is_transposed)
            }
            // tidy: wildcard because others read what is there
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
        attributes.retain(|(name, text)| *name != "equal_registers" || text != "0");
        attributes
    }

    fn parse(name: &str, attributes: &AttributeText<'_>) -> Option<Result<Self, &'static str>> {
        let attributes: &AttributeText<'_> =
            &|name| attributes(name).or((name == "equal_registers").then_some("0"));
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

    /// An op of this dialect that takes over from an op of the tile IR waits for other programs as that one does.
    #[test]
    fn both_tables_agree_about_waiting() {
        // A plain atomic store tells other programs and learns nothing; ops without a counterpart say nothing of others.
        let counterparts = [("copy_async", "load"), ("tensor_load", "load"), ("tensor_fill", "load")];
        for row in OPS {
            let name =
                counterparts.iter().find(|(own, _)| *own == row.name).map_or(row.name, |(_, tile)| tile);
            let tile = tilewright_ir::OPS.iter().find(|tile| tile.name == name);
            let expected = tile.map_or(tilewright_ir::Waiting::Never, |tile| tile.waiting);
            assert_eq!(row.waiting, expected, "{}", row.name);
        }
    }
}
