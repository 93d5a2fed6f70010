//! Compiles and launches Triton kernels from Rust, without Python.
//!
//! ```
//! use tilewright::{Module, args};
//!
//! # fn main() -> Result<(), tilewright::Error> {
//! let module = Module::from_source(
//!     "scale.py",
//!     "
//! import triton
//! import triton.language as tl
//!
//! @triton.jit
//! def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
//!     offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
//!     mask = offsets < n
//!     tl.store(out_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)
//! ",
//! )?;
//! let scale = module.kernel("scale")?;
//!
//! let x: Vec<f32> = (0..1000).map(|i| i as f32).collect();
//! let mut out = vec![0.0_f32; x.len()];
//! let blocks = x.len().div_ceil(256);
//! scale.launch(blocks, args![&x, &mut out, 2.5, x.len(), BLOCK = 256])?;
//! assert_eq!(out[999], 2497.5);
//! # Ok(())
//! # }
//! ```
//! The arguments are those of `kernel[grid](...)` in Python: slices for tensors, numbers, `bool`s,
//! and for `tl.constexpr` parameters also strings and dtypes. Positional arguments come first, then
//! named ones, including options such as `num_warps = 8`. Memory is safe: a kernel that accesses
//! memory outside of its slices, or stores to a slice that is not `&mut`, ends with an [`Error`]
//! that names the line, the program and the argument.
//!
//! For the lower layers see [`runtime`] (values, options, handles), [`compiler`] (the stages) and
//! [`ir`].

mod arguments;
mod buffer;
mod bundle;
mod lock;
mod module;
mod stream;
mod tuner;

pub use arguments::{Arguments, Element, IntoArgument, IntoGrid, ReadTensor, WriteTensor};
pub use buffer::{Buffer, BufferSlice, BufferSliceMut};
pub use bundle::{Bundle, EmbeddedBundle, KernelLaunch};
pub use lock::record_lock;
pub use module::{Kernel, Module};
pub use stream::{Event, Stream};
pub use tuner::{Config, Tuner};

pub use half::{bf16, f16};
#[cfg(feature = "include-kernels")]
pub use tilewright_macros::include_kernels;

pub use tilewright_base::{
    Code, Color, Diagnostic, Kind, Remark, RemarkKind, SourceFile, SourceMap, Span, collect_remarks,
};
pub use tilewright_ir::Dtype;
pub use tilewright_runtime::{
    Device, Error, Grid, Handle, Knobs, Options, Stage, Target, num_threads, set_num_threads,
};

/// The compilation of a kernel, and its stages as text.
pub use tilewright_compiler as compiler;
/// The frontend: lowers source to IR, and defines compile-time values and hosts, which resolve the
/// names of a kernel's module.
pub use tilewright_frontend as frontend;
/// The tile IR.
pub use tilewright_ir as ir;
/// Values, specialization, handles and launches.
pub use tilewright_runtime as runtime;
