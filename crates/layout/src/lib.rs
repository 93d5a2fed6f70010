//! Linear layouts over F2: which thread holds which element of a tile, as algebra.
//!
//! # The idea
//!
//! A tile of a kernel, say 4 × 8 numbers, is spread over the registers of the threads of a block. Sizes are powers of two,
//! so the number of a register, a lane, a warp is a few bits, and so is a coordinate. Every way to spread a tile that GPU
//! code uses is *linear* in those bits over F2, the field of one bit, in which addition is XOR: the element that a place
//! holds is the XOR of what each set bit of the place contributes. A [`Layout`] is such a map, given by its *bases*: the
//! coordinates that each bit of the input contributes.
//!
//! ```
//! use tilewright_layout::{Input, Layout, blocked};
//!
//! // Two elements a thread along the rows, lanes 2 down and 4 across, one warp of 8 lanes.
//! let layout = blocked(&[4, 8], &[1, 2], &[2, 4], &[1, 1], &[1, 0]);
//! assert_eq!(layout.to_string(), "[4,8] register (0,1) (2,0) lane (0,2) (0,4) (1,0)");
//!
//! // Lane 6 = 4 + 2 contributes (1,0) + (0,4); register 1 contributes (0,1).
//! assert_eq!(layout.coordinates(&[(Input::Lane, 6), (Input::Register, 1)])[..], [1, 5]);
//! ```
//!
//! There is no enum of kinds of layouts. A blocked layout ([`blocked`]), the fragments of the tensor cores ([`Mma`]), the
//! operand of a broadcast, the result of a reduction, a buffer in shared memory with its swizzle ([`swizzled`]) are all
//! values of this one type, and questions about them are linear algebra ([`f2`]) on a few dozen machine words:
//!
//! | question | answer |
//! |---|---|
//! | Who holds copies of one element? | the kernel: [`Layout::free_bits`], [`Layout::representatives`] |
//! | How wide may an access be? | which registers contribute 1, 2, 4 … to the offset: [`Layout::vector_along`], [`Layout::vector_in`] |
//! | Where in memory is the element of this thread? | the layout, then the inverse of the buffer's: [`Layout::offsets_in`] |
//! | What do reshape, transpose, slice, broadcast do? | rename coordinates, drop them, set them to 0: [`Layout::reshape`] … |
//! | Is this the pattern of an instruction, repeated? | a quotient: [`Layout::divide_left`]; [`Layout::matrix_access`] |
//! | How does a reduction proceed? | a basis of the kernel without the axis: [`Reduction`], [`Scan`], [`Exchange`] |
//! | How does a value get from one layout to another? | a [`Plan`]: nothing, renaming, shuffles, shared memory: [`convert`] |
//!
//! # A conversion
//!
//! ```
//! use tilewright_layout::{Plan, bank_use, blocked, convert};
//!
//! // Four warps hold a tile of 16-bit numbers by rows and want it by columns.
//! let rows = blocked(&[64, 64], &[1, 8], &[4, 8], &[4, 1], &[1, 0]);
//! let columns = blocked(&[64, 64], &[8, 1], &[8, 4], &[1, 4], &[0, 1]);
//! let Plan::Shared(plan) = convert(&rows, &columns, 16).unwrap() else { panic!() };
//! assert_eq!(plan.bytes, 64 * 64 * 2);
//! assert_eq!(bank_use(&plan.memory, &rows, 16, plan.store.vector.width()).conflicts(), 0);
//! assert_eq!(bank_use(&plan.memory, &columns, 16, plan.load.vector.width()).conflicts(), 0);
//! ```
//!
//! # Conventions
//!
//! A place is the bits of [`Input::Register`], [`Input::Lane`], [`Input::Warp`], [`Input::Block`] in one number, the register
//! lowest; an element is its row-major index in the tile. So a vector of either space is a `u32`, and a layout a list of
//! some 10 to 30 of them, without allocation. The functions panic on what only a bug of the caller can cause, such as layouts
//! of different tiles; each says so.
//!
//! Source: Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", arXiv 2505.23819.

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
mod tensor_core;

pub use banks::{BankUse, bank_use, ldmatrix_bank_use, matrix_bank_use};
pub use blocked::{blocked, coalesced};
pub use convert::{
    Access, ConvertError, Plan, Round, Select, SharedPlan, ShufflePlan, Start, convert, shared_plan,
    shuffle_plan,
};
pub use ldmatrix::MatrixAccess;
pub use map::{Layout, Map, Placement, Transfer};
pub use memory::{SwizzleMode, swizzled};
pub use parse::ParseLayoutError;
pub use parts::{Parts, spread_over_lanes};
pub use query::{AccessRegisters, Vector};
pub use reduce::{Exchange, Reduction, Scan, ScanStep, Step};
pub use space::{Hardware, Input, Space, Tile};
pub use tensor_core::{Fragment, Mma};
