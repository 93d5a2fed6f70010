//! The language of the GPU path, between tiles and PTX: tile IR whose values have layouts, with what a GPU has besides:
//! shared memory, asynchronous copies and products, barriers, warps with roles.
//!
//! ```text
//! gpu sm_80, 4 warps, 256 bytes of shared memory, synchronized
//! L0 = [128] register lane (1) (2) (4) (8) (16) warp (32) (64)
//! …
//! %1 = alloc {offset = 0} : buffer<1, fp32[128]@L1>
//! local_store %1, %x
//! barrier
//! %y = local_load %1 {matrix = false} : fp32[128]@L2
//! dealloc %1
//! ```
//! It is a [`Dialect`](ir::Dialect) of the IR: functions, regions, printer, parser and the structural part of the verifier are those of
//! tile IR. A pass is from text to text; PTX follows from the text that the last one leaves.
//!
//! # Layouts
//!
//! What holds of the layouts, exactly and not up to some equivalence (`L` is the layout of the result):
//!
//! | op | layouts of its operands |
//! |---|---|
//! | elementwise functions, `cast`, `bitcast`, `ptr_add` | `L` |
//! | `expand_dims` | `L.remove_axis(axis)`: the same registers |
//! | `reshape` | `L.reshape(shape of the operand)`: the same registers |
//! | `transpose` | `L` with its axes in the order of the operand: the same registers |
//! | `broadcast` | `L.collapse(axis)` for each axis that grows, `.without_duplicate_registers()` |
//! | `load`, `store`, `assert` | one layout for all operands, and for the result |
//! | `reduce` | one layout for all operands; [`Reduction`](tilewright_layout::Reduction) has that of a result that is a tile |
//! | `mma_sync`, `wgmma` | the fragments of the instruction; the accumulator has the layout of the result |
//! | movements: elements from places that values name | `L`, but for the tile that they come from |
//! | `for_loop`, `while_loop`, `if_else` | what is carried or yielded has one layout all the way |
//!
//! No thread holds an element twice: no layout of registers has free bits of the register. Every thread holds the scalars.
//! In a role (`warp_roles`) tiles are spread over the warps of the role, and layouts count these.
//!
//! # Rings
//!
//! Warps hand tiles to each other through rings: `acquire` gives an empty slot, which is stored or copied to, `publish`
//! makes it full, `take` gives the next full one, `release` makes it empty. A slot in hand is used up exactly once on every
//! path, so that a missing wait cannot be written down. Below rings, where waits are written down, the verifier (`verify`) looks
//! for those that are missing, as far as it says there. How a ring is carried out (barriers of the block, groups of copies,
//! `mbarrier`s) is chosen by the pass that lowers rings. (The idea: Tawa's asynchronous references, arXiv 2510.14719.)

pub(crate) mod alignment;
mod attributes;
mod check;
mod dialect;
mod header;
mod layouts;
mod ops;
mod tensor_maps;
mod types;
pub(crate) mod verify;

use tilewright_ir as ir;

pub use attributes::{Deferred, MmaShape, Scope};
pub use header::{Header, ProgramOrder};
pub use layouts::{LayoutId, Layouts};
pub use ops::{ANY_REGIONS, GpuOp, GpuVisitor, OPS, Op, visit};
pub use tensor_maps::{
    LaunchInteger, LaunchProduct, TENSOR_MAP_BYTES, TensorAccess, TensorMapBox, TensorMapPlan, UNBOUNDED,
    is_tensor_reduction,
};
pub use tilewright_layout::SwizzleMode;
pub use types::{Buffer, Type};

/// The language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpu;

/// A function of the language.
pub type Function = ir::Function<Gpu>;
/// A module of the language: one kernel.
pub type Module = ir::Module<Gpu>;
/// An instruction of the language.
pub type InstData = ir::InstData<Gpu>;
