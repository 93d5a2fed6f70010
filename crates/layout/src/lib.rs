//! Linear layouts over F2: an algebra of the distribution of a tile's elements over threads.
//!
//! # The idea
//!
//! A tile, for example 4 × 8 numbers, is distributed over the registers of a block's threads. Sizes
//! are powers of two, so coordinates and the indices of registers, lanes and warps are bits. GPU
//! code uses distributions that are *linear* in these bits over F2, the field of one bit. Each set
//! bit of a hardware index contributes coordinates, and their XOR is the element. A [`Layout`] is
//! such a map, represented by its *bases*: the coordinates of each input bit.
//!
//! ```
//! use tilewright_layout::{Input, Layout, blocked};
//!
//! // Each thread holds pairs of adjacent columns; a warp of 8 lanes is 2 lanes high and 4 wide.
//! let layout = blocked(&[4, 8], &[1, 2], &[2, 4], &[1, 1], &[1, 0]);
//! assert_eq!(layout.to_string(), "[4,8] register (0,1) (2,0) lane (0,2) (0,4) (1,0)");
//!
//! // Lane 6 = 4 + 2 contributes (1,0) + (0,4); register 1 contributes (0,1).
//! assert_eq!(layout.coordinates(&[(Input::Lane, 6), (Input::Register, 1)])[..], [1, 5]);
//! ```
//!
//! There is no enum of layout kinds. One type represents blocked layouts ([`blocked`]), tensor core
//! fragments ([`Mma`]) and swizzled buffers ([`swizzled`]). Linear algebra ([`f2`]) answers
//! questions about layouts:
//!
//! | question | answer |
//! |---|---|
//! | Which hardware indices hold copies of one element? | the null space of the layout: [`Layout::free_bits`], [`Layout::representatives`] |
//! | How wide may an access be? | which registers contribute 1, 2, 4 … to the offset: [`Layout::vector_along`], [`Layout::vector_in`] |
//! | At which offset in a buffer is an element? | the layout, then the inverse of the buffer's: [`Layout::offsets_in`] |
//! | How do reshape, transpose, slice, broadcast change a layout? | they rename coordinates, drop them, set them to 0: [`Layout::reshape`] … |
//! | Does a layout repeat the pattern of an instruction? | a quotient: [`Layout::divide_left`]; [`Layout::matrix_access`] |
//! | How does a reduction proceed? | a basis of the null space of the layout without the axis: [`Reduction`], [`Scan`], [`Exchange`] |
//! | How is a value converted to another layout? | a [`Plan`]: nothing, renaming, shuffles, shared memory: [`convert`] |
//!
//! # A conversion
//!
//! ```
//! use tilewright_layout::{Plan, bank_use, blocked, convert};
//!
//! // Four warps hold a tile of 16-bit numbers by rows; convert it to columns.
//! let rows = blocked(&[64, 64], &[1, 8], &[4, 8], &[4, 1], &[1, 0]);
//! let columns = blocked(&[64, 64], &[8, 1], &[8, 4], &[1, 4], &[0, 1]);
//! let Plan::Shared(plan) = convert(&rows, &columns, 16, 40).unwrap() else { panic!() };
//! assert_eq!(plan.bytes, 64 * 64 * 2);
//! assert_eq!(bank_use(&plan.memory, &rows, 16, plan.store.vector.width()).conflicts(), 0);
//! assert_eq!(bank_use(&plan.memory, &columns, 16, plan.load.vector.width()).conflicts(), 0);
//! ```
//!
//! # Conventions
//!
//! A hardware index concatenates the bits of [`Input::Register`], [`Input::Lane`], [`Input::Warp`],
//! [`Input::Block`] and [`Input::Offset`], the register lowest. Function names call a hardware
//! index a *place*. An element is its row-major index in its tile. So a vector of either space is a
//! `u32`. Functions panic on errors that only a bug of the caller can cause, such as layouts of
//! different tiles.
//!
//! Source: Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation
//! Using F2", arXiv 2505.23819.

mod banks;
mod blocked;
mod convert;
mod display;
pub mod f2;
mod layout;
mod ldmatrix;
mod map;
mod memory;
mod parse;
mod parts;
mod query;
mod reduce;
mod space;
mod stated;
mod tensor_core;

pub use banks::{BankUse, bank_use, ldmatrix_bank_use, matrix_bank_use};
pub use blocked::{blocked, coalesced};
pub use convert::{
    Access, ConvertError, Plan, Round, Select, SharedPlan, ShufflePlan, Start, convert, copy_plan,
    shared_plan, shuffle_plan,
};
pub use ldmatrix::MatrixAccess;
pub use map::{Layout, Map, Placement, Transfer};
pub use memory::{SwizzleMode, swizzled};
pub use parse::ParseLayoutError;
pub use parts::{Parts, spread_over_lanes};
pub use query::{AccessRegisters, Vector};
pub use reduce::{Exchange, Reduction, Scan, ScanStep, Step};
pub use space::{Hardware, Input, Space, Tile};
pub use stated::{Bases, Division, Misfit, Sizes, StatedBuffer, StatedLayout, TensorMemoryBlock};
pub use tensor_core::{Fragment, Mma};
