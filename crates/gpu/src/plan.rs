//! What the GPU path decides about a kernel, and all that code generation needs to know of it.

use cranelift_entity::SecondaryMap;
use tilewright_ir::{Inst, Module, Value};
use tilewright_layout::{Layout, MatrixAccess, Mma, SharedPlan, Vector};

use crate::target::Target;

/// A kernel whose values have their places.
///
/// The decisions are side tables of the values and instructions of the kernel; its text is IR like any other. Where a
/// value is wanted in another layout than it has, there is a `relayout` between: to the IR it is the value itself.
///
/// What holds of the layouts, exactly and not up to some equivalence (`L` is the layout of the result):
///
/// | op | layouts of its operands |
/// |---|---|
/// | `elementwise`, `cast`, `bitcast`, `ptr_add` | `L` |
/// | `expand_dims` | `L.remove_axis(axis)`: the same registers |
/// | `reshape` | `L.reshape(shape of the operand)`: the same registers |
/// | `transpose` | `L` with its axes in the order of the operand: the same registers |
/// | `broadcast` | `L.collapse(axis)` for each axis that grows, `.without_duplicate_registers()`: which register of the operand register `r` of the result is, [`Layout::registers_from`] of the collapsed layout says |
/// | `load`, `store`, `assert` | one layout for all operands, and for the result |
/// | `reduce` | one layout for all operands; a result that is a tile has [`tilewright_layout::Reduction::result`] |
/// | `dot` | what [`Product`] says; the accumulator has the layout of the result |
/// | `for_loop`, `while_loop`, `if_else` | what is carried or yielded has one layout all the way |
///
/// No thread holds an element twice: no layout has free bits of the register. A tile of one element is held by every thread
/// (`reshape` makes scalars of such tiles). There is no `call`, `hint` or `assume`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One kernel, without calls.
    pub module: Module,
    /// What it is for.
    pub target: Target,
    /// The warps of a block.
    pub num_warps: u32,
    /// Where the elements of each tile are. Every thread holds the scalars: they have no layout.
    pub layouts: SecondaryMap<Value, Option<Layout>>,
    /// Of the result of an `elementwise`, the bits of the register that do not change the element: it is computed once for all
    /// registers that differ in these bits alone.
    pub equal_registers: SecondaryMap<Value, u32>,
    /// How loads and stores of tiles go to memory. Scalars are loaded by every thread, and stored by one.
    pub accesses: SecondaryMap<Inst, Option<MemoryAccess>>,
    /// How each `dot` is computed.
    pub products: SecondaryMap<Inst, Option<Product>>,
    /// How elements go from thread to thread, for instructions that move some.
    pub exchanges: SecondaryMap<Inst, Option<Exchange>>,
    /// Whether all threads wait for each other before the instruction, because it accesses memory, shared or global, that
    /// others may not be done with. Waits in the middle of an exchange are not listed: they are part of it.
    pub waits_before: SecondaryMap<Inst, bool>,
    /// The bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Whether a product that is added to something may be rounded once instead of twice. So it may, unless this is changed.
    pub contraction: bool,
}

/// An access to global memory by the layout of its pointers.
#[derive(Clone, Debug)]
pub struct MemoryAccess {
    /// The registers of each access. Its width is what contiguity, alignment and the mask allow, 16 bytes at the most.
    pub vector: Vector,
    /// The bits of lane and warp that hold copies, as masks: where one is set, a thread does not store.
    pub copies: [u32; 2],
}

/// How a `dot` is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// By an instruction of the tensor cores. The operands have the layouts [`Mma::layout`] of
    /// [`tilewright_layout::Fragment::A`] and `B`, the accumulator that of `Accumulator`, all with these warps along M and N.
    /// Operands of fp32 are rounded to tf32.
    TensorCore {
        /// The instruction.
        mma: Mma,
        /// The warps along M and N.
        warps: [u32; 2],
    },
    /// By multiplications and additions of single elements, in the type of the accumulator. Each thread holds the rows of A
    /// and the columns of B that its elements of the accumulator need: the layout of A is that of the accumulator without
    /// axis N, and with axis K in the highest bits of the register; that of B likewise. Both are made by a `relayout` with
    /// [`Exchange::Operand`].
    Scalar,
}

/// The way of elements between threads.
#[derive(Clone, Debug)]
pub enum Exchange {
    /// A `relayout` by renaming of registers, by shuffles, or through shared memory at this offset.
    Relayout {
        /// The way.
        plan: tilewright_layout::Plan,
        /// How `ldmatrix` loads the result from the buffer of a plan through shared memory, where it can.
        matrix: Option<Box<MatrixAccess>>,
        /// Where its shared memory begins, in bytes.
        offset: u32,
    },
    /// A reduction. Where warps have parts of one result, they leave them in shared memory: for each operand of the reduction,
    /// one after the other, from an offset that is a multiple of 16 from the first, an array `[parts, elements of the
    /// result]` in row-major order, an element of `int1` taking one byte. `parts` is 2 to the number of steps that reach
    /// other warps.
    Combine {
        /// Where its shared memory begins, in bytes.
        offset: u32,
        /// How much of it there is; 0 where no element goes from warp to warp.
        bytes: u32,
    },
    /// A `relayout` whose result is an operand of products alone, and stays in shared memory at this offset: the `relayout`
    /// stores it, the `dot` loads what it needs when it needs it. The layout of the result says what each thread will load.
    Operand {
        /// The way.
        memory: Box<SharedPlan>,
        /// How `ldmatrix` loads it, where it can.
        matrix: Option<Box<MatrixAccess>>,
        /// Where its shared memory begins, in bytes.
        offset: u32,
    },
}

impl Exchange {
    /// The bytes of shared memory that it takes.
    pub fn shared_bytes(&self) -> u32 {
        match self {
            Self::Relayout { plan: tilewright_layout::Plan::Shared(plan), .. } => plan.bytes,
            Self::Relayout { .. } => 0,
            Self::Combine { bytes, .. } => *bytes,
            Self::Operand { memory, .. } => memory.bytes,
        }
    }

    /// Where its shared memory begins, in bytes.
    pub fn offset(&self) -> u32 {
        let (Self::Relayout { offset, .. } | Self::Combine { offset, .. } | Self::Operand { offset, .. }) =
            self;
        *offset
    }
}
