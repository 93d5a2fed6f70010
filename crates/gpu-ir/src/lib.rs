//! The GPU dialect: tile IR whose values have layouts. It adds shared memory, asynchronous copies
//! and dots, barriers, and warp specialization.
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
//! As a [`Dialect`](ir::Dialect), it shares functions, regions, printer, parser and a part of the
//! verifier with tile IR. The crate `gpu` translates tile IR to it and transforms the result. The
//! crate `ptx` lowers it to PTX.
//!
//! # Layouts
//!
//! The verifier checks these equalities. `L` is the layout of the result:
//!
//! | op | layouts of its operands |
//! |---|---|
//! | elementwise functions, `cast`, `bitcast`, `ptr_add` | `L` |
//! | `expand_dims` | `L.remove_axis(axis)`: the same registers |
//! | `reshape` | `L.reshape(shape of the operand)`: the same registers |
//! | `transpose` | `L` with its axes in the order of the operand: the same registers |
//! | `broadcast` | `L.collapse(axis)` for each axis that grows, then `.without_duplicate_registers()` |
//! | `load`, `store`, `assert` | one layout for all operands, and for the result |
//! | `reduce` | one layout for all operands; [`Reduction`](tilewright_layout::Reduction) gives `L`, unless the result is a scalar |
//! | `mma_sync`, `wgmma` | the fragments of the instruction; the accumulator has the layout of the result |
//! | movements, such as `gather` | `L`, except for the tile whose elements move |
//! | `for_loop`, `while_loop`, `if_else` | a carried or yielded value has one layout everywhere |
//!
//! A thread holds an element at most once. Every thread holds all scalars. In a partition of
//! `warp_specialize`, tiles and their layouts are over its warps.
//!
//! # Rings
//!
//! Warps pass tiles to each other through rings. `acquire` returns an empty slot, and a store or
//! copy fills the slot. `publish` makes the slot full. `take` returns the next full slot, and
//! `release` makes the slot empty. A slot is a linear value: every path consumes it exactly once,
//! by `publish` or `release`. Only `acquire` and `take` return slots, so a program cannot leave out
//! a wait. After rings are lowered, the verifier reports missing waits. The table in
//! `verify/mod.rs` lists what the verifier proves. The lowering of rings chooses barriers of the
//! block, groups of copies, or `mbarrier`s. The design follows the asynchronous references of Tawa
//! (arXiv 2510.14719).

pub mod alignment;
pub mod analysis;
mod attributes;
pub mod box_layout;
mod check;
pub mod commutation;
mod dialect;
mod header;
pub mod layout_rules;
mod layouts;
mod ops;
pub mod scaled_dots;
pub mod target;
mod tensor_maps;
pub mod tensor_memory;
pub mod tuning;
mod types;
mod verify;
pub mod warp_instructions;

use tilewright_ir as ir;

pub use attributes::{Deferred, MmaShape, Scope};
pub use box_layout::BoxLayout;
pub use commutation::commutes;
pub use header::{Header, ProgramOrder};
pub use layout_rules::{GATHERED_ROWS_PER_COPY, element_bits, fma_operand_layout, gathered_row_indices};
pub use layouts::{LayoutId, Layouts};
pub use ops::{GpuOp, GpuVisitor, OPS, Op, visit};
pub use target::{Feature, Features, GpuTarget, MAX_PARTITIONS, MAX_WARPS, TargetError};
pub use tensor_maps::{
    LaunchInteger, LaunchTerm, TENSOR_MAP_BYTES, TensorAccess, TensorMapBox, TensorMapPlan, UNBOUNDED,
    is_tensor_reduction,
};
pub use tensor_memory::TensorMemory;
pub use tilewright_layout::SwizzleMode;
pub use tuning::{HOPPER, Tuning};
pub use types::{Buffer, Padding, Type};
pub use verify::{Violation, find_violation};
pub use warp_instructions::{redux_function, warps_of_dot};

/// The GPU dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpu;

/// A function in the dialect.
pub type Function = ir::Function<Gpu>;
/// A module in the dialect: one kernel.
pub type Module = ir::Module<Gpu>;
/// An instruction in the dialect.
pub type InstData = ir::InstData<Gpu>;
