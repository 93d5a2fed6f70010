//! The table of ops that tile IR has not, or has without what the GPU path decides. An [`Op`] is one of these or an op of
//! tile IR on values with layouts.

use tilewright_ir as ir;
use tilewright_ir::{
    AttributeText, CacheModifier, ElementwiseFn, EvictionPolicy, InputPrecision, IntList, OpInfo, Operation,
    define_ops,
};

use super::attributes::{Deferred, MmaShape, Scope};

/// An op that may have any number of regions.
pub const ANY_REGIONS: usize = usize::MAX;

define_ops! {
    GpuOp OPS GpuVisitor visit;

    /// The tile itself, its elements in the threads that the layout of the result says.
    ConvertLayout convert_layout (tile) [] {} regions 0 Pure Identity;
    /// A function of the table of elementwise functions applied at each place. Registers of the result whose numbers differ
    /// in the bits `equal_registers` alone have one value, which is computed once.
    Elementwise elementwise () [] *operands {function: ElementwiseFn, equal_registers: u32} regions 0 Pure Pointwise;
    /// Reads global memory where the mask holds (everywhere without one); elsewhere gives `other`, or zero without one.
    /// Each access of a thread moves `width` elements along the axis.
    Load load (pointer) [mask, other]
        {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool, axis: u32, width: u32} regions 0 Read Load;
    /// Writes global memory where the mask holds. Each access of a thread moves `width` elements along the axis. Of threads
    /// that hold copies, one writes.
    Store store (pointer, value) [mask]
        {cache: CacheModifier, eviction: EvictionPolicy, axis: u32, width: u32} regions 0 Write Store;
    /// The tiles combined along an axis by an associative region, in the whole block or in each warp.
    Reduce reduce () [] *tiles {axis: u32, scope: Scope} regions 1 Pure Reduction;
    /// acc + a @ b by `mma.sync`, by warps so many along M and N. An operand is in registers, in the fragment layout of the
    /// instruction, or in shared memory.
    MmaSync mma_sync (a, b, acc) []
        {instruction: MmaShape, warps: IntList, precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot;
    /// acc + a @ b by multiplications and additions of single elements, along K in ascending order. A and B are in
    /// shared memory, or in the registers of the threads that need them.
    FmaDot fma_dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Read Dot;

    /// Shared memory from here to its `dealloc`, at this offset in bytes. What it holds is not defined.
    Alloc alloc () [] {offset: Deferred} regions 0 Write Memory;
    /// The end of the lifetime of a buffer, a ring or barriers.
    Dealloc dealloc (memory) [] {} regions 0 Write Memory;
    /// One slot of a buffer. The index must be less than the number of slots.
    Slot slot (buffer, index) [] {} regions 0 Pure Memory;
    /// Stores a tile to a buffer of one slot.
    LocalStore local_store (buffer, value) [] {} regions 0 Write Memory;
    /// Loads a tile from a buffer of one slot; with `matrix`, by `ldmatrix`.
    LocalLoad local_load (buffer) [] {matrix: bool} regions 0 Read Memory;

    /// Starts copying global memory to a buffer of one slot by `cp.async`; zeros where the mask does not hold. Each copy of a
    /// thread moves `width` elements along the axis. The thread that copied may read after `wait_group`, others after a
    /// barrier behind that.
    CopyAsync copy_async (buffer, pointer) [mask] {cache: CacheModifier, axis: u32, width: u32} regions 0 Write Memory;
    /// Each thread makes a group of the copies that it has started since the last one.
    CommitGroup commit_group () [] {} regions 0 Write Barrier;
    /// Each thread waits until no more than so many of its latest groups are under way.
    WaitGroup wait_group () [] {pending: u32} regions 0 Write Barrier;

    /// Makes each barrier ready for phases of so many arrivals. Threads see it after a barrier of the block.
    MbarrierInit mbarrier_init (barriers) [] {arrivals: u32} regions 0 Write Barrier;
    /// One thread arrives at a barrier and adds bytes to what its phase waits for.
    MbarrierExpect mbarrier_expect (barriers, slot) [] {bytes: u32} regions 0 Write Barrier;
    /// One thread of each warp arrives at a barrier.
    MbarrierArrive mbarrier_arrive (barriers, slot) [] {} regions 0 Write Barrier;
    /// Each thread arrives at a barrier when the copies that it has started are done (`cp.async.mbarrier.arrive.noinc`).
    MbarrierArriveCopies mbarrier_arrive_copies (barriers, slot) [] {} regions 0 Write Barrier;
    /// Waits until the phase of a barrier with this parity (0 or 1, int32) is over.
    MbarrierWait mbarrier_wait (barriers, slot, parity) [] {} regions 0 Write Barrier;
    /// One thread starts copying the box of a tensor at these coordinates to a buffer of one slot; its bytes arrive at a
    /// barrier. The descriptor is the address of a tensor map.
    TensorLoad tensor_load (buffer, descriptor, barriers, slot) [] *coordinates {} regions 0 Write Memory;
    /// One thread starts copying a buffer of one slot to the box of a tensor at these coordinates, and makes a group of it.
    TensorStore tensor_store (buffer, descriptor) [] *coordinates {} regions 0 Write Memory;
    /// The thread that started them waits until no more than so many groups of tensor stores still read shared memory.
    TensorStoreWait tensor_store_wait () [] {pending: u32} regions 0 Write Barrier;

    /// Starts acc + a @ b by `wgmma`, by warps so many along M and N, and makes a group of it. A is in registers or in shared
    /// memory, B in shared memory; neither may be written before the product is finished.
    Wgmma wgmma (a, b, acc) []
        {instruction: MmaShape, warps: IntList, max_imprecise_acc: u32} regions 0 Write Dot;
    /// The accumulator of a product under way, when no more than so many later groups are.
    Finish finish (product) [] {pending: Deferred} regions 0 Write Barrier;

    /// What this thread did to shared memory by ordinary accesses comes before what the asynchronous proxy (tensor copies,
    /// `wgmma`) does to it afterwards.
    FenceProxy fence_proxy () [] {} regions 0 Write Barrier;
    /// So many threads, those of whole warps, wait for each other at a barrier with this number, from 1 to 15.
    NamedBarrier named_barrier () [] {barrier: u32, threads: u32} regions 0 Write Barrier;
    /// Each region is run by so many warps, one role after the other in the order of their numbers, with so many registers a
    /// thread (0: as many as before). Scalars may be used inside, tiles may not. All warps go on behind it.
    WarpRoles warp_roles () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Roles;

    /// An empty slot of a ring, the next in turn; waits until one is.
    Acquire acquire (ring) [] {} regions 0 Write Barrier;
    /// One thread starts copying the box of a tensor at these coordinates to an empty slot of a ring; the pass that lowers
    /// rings gives it its barrier.
    TensorFill tensor_fill (slot, descriptor) [] *coordinates {} regions 0 Write Memory;
    /// A slot is full when everything is there that was stored or is being copied to it.
    Publish publish (slot) [] {} regions 0 Write Barrier;
    /// The next full slot of a ring, in the order in which they were acquired; waits until it is.
    Take take (ring) [] {} regions 0 Write Barrier;
    /// A slot is empty again.
    Release release (slot) [] {} regions 0 Write Barrier;
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
            Self::Gpu(GpuOp::Elementwise { equal_registers: 0, .. }) => {}
            Self::Gpu(GpuOp::Elementwise { equal_registers, .. }) => {
                attributes.push(("equal_registers", format!("{equal_registers}")));
            }
            Self::Gpu(op) => op.print_attributes(|name, text| attributes.push((name, text.to_owned()))),
        }
        attributes
    }

    fn parse(name: &str, attributes: &AttributeText<'_>) -> Option<Result<Self, &'static str>> {
        if let Some(function) = ElementwiseFn::parse(name) {
            let bits = attributes("equal_registers").map_or(Some(0), |text| text.parse().ok());
            let op = |equal_registers| GpuOp::Elementwise { function, equal_registers }.into();
            return Some(bits.map(op).ok_or("equal_registers"));
        }
        let own = GpuOp::parse_row(name, attributes).map(|op| op.map(Self::Gpu));
        own.or_else(|| ir::Op::parse(name, attributes).map(|op| op.map(Self::Tile)))
    }
}
