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
//! The examples below launch the kernels of `examples/kernels.py`, a file of this crate:
//! `scale(x_ptr, out_ptr, factor, n, BLOCK)`, as above, and `double(x_ptr, n, BLOCK)`, which
//! doubles `n` elements in place.
//!
//! For the lower layers see [`runtime`] (values, options, handles), [`compiler`] (the stages) and
//! [`ir`].

mod arguments;
mod buffer;
mod bundle;
mod launch;
#[cfg(feature = "python-syntax")]
mod lock;
#[cfg(feature = "python-syntax")]
mod module;
mod stream;
#[cfg(feature = "python-syntax")]
mod tuner;

pub use arguments::{Arguments, Element, IntoArgument, IntoGrid, ReadTensor, WriteTensor};
pub use buffer::{Buffer, BufferSlice, BufferSliceMut};
pub use bundle::{Bundle, EmbeddedBundle, KernelLaunch};
#[cfg(feature = "python-syntax")]
pub use lock::record_lock;
#[cfg(feature = "python-syntax")]
pub use module::{Kernel, Module};
pub use stream::{Event, Stream};
#[cfg(feature = "python-syntax")]
pub use tuner::{Config, Tuner};

pub use half::{bf16, f16};
/// Needs the feature `include-kernels`.
///
/// ```standalone_crate
/// tilewright::include_kernels! {
///     /// The kernels of this program.
///     mod kernels;
///     targets = ["cpu", "sm_90"];
///
///     from "../examples/kernels.py" {
///         /// Multiplies `n` elements by a factor.
///         scale("*kfp32, *fp32, fp32, i32, BLOCK=256", num_warps = 4);
///         scale as scale_bf16("*kbf16, *bf16, fp32, i32, BLOCK=256");
///     }
/// }
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let (x, mut out) = (vec![1.0_f32; 1000], vec![0.0_f32; 1000]);
/// kernels::scale(&x, &mut out, 2.5, 1000).run(4)?;
/// assert_eq!(out, [2.5; 1000]);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "include-kernels")]
#[doc(inline)]
pub use tilewright_macros::include_kernels;

/// Tells what kind of mistake an error is about; each code has a page.
///
/// ```
/// use tilewright::{Code, Kind, Module};
///
/// let error = Module::from_source("k.py", "import triton").and_then(|module| module.kernel("k"));
/// let code = error.unwrap_err().code().unwrap();
/// assert_eq!((code, code.name(), code.kind()), (Code::KernelNotFound, "TW0110", Kind::LaunchKey));
/// println!("{}: {}", code.url(), code.title());
/// ```
#[doc(inline)]
pub use tilewright_base::Code;
/// Chooses colors for [`Error::render`].
///
/// ```
/// use std::io::{IsTerminal, stderr};
/// use tilewright::{Color, Module};
///
/// let error = Module::from_source("k.py", "def k(:").unwrap_err();
/// let color = if stderr().is_terminal() { Color::Always } else { Color::Never };
/// eprintln!("{}", error.render(color));
/// ```
#[doc(inline)]
pub use tilewright_base::Color;
/// States one finding of an [`Error`].
///
/// ```
/// use tilewright::Module;
///
/// let error = Module::from_source("k.py", "def k(:").unwrap_err();
/// for finding in error.diagnostics() {
///     println!("{} {}", finding.code.name(), finding.message);
///     assert!(!finding.is_warning && finding.primary.is_some());
/// }
/// ```
#[doc(inline)]
pub use tilewright_base::Diagnostic;
/// Groups codes by the class of the Python exception.
///
/// ```
/// use tilewright::{Code, Kind};
///
/// assert_eq!(Code::OutOfBounds.kind(), Kind::OutOfBounds);
/// ```
#[doc(inline)]
pub use tilewright_base::Kind;
/// States a decision of the compiler, which [`collect_remarks`] returns.
///
/// ```
/// use tilewright::{Device, Module, Options, Remark, RemarkKind, collect_remarks};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?.on(Device::Sim(90));
/// let compile = || scale.compile("*fp32:16,*fp32:16,fp32,i32,BLOCK=1024", &Options::default());
/// let (handle, remarks): (_, Vec<Remark>) = collect_remarks(compile);
/// handle?;
/// for remark in remarks.iter().filter(|remark| remark.kind != RemarkKind::Done) {
///     println!("{}: {}: {} ({})", remark.pass, remark.subject, remark.decision, remark.reason);
/// }
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_base::Remark;
/// Tells whether a pass did its job.
///
/// ```
/// use tilewright::RemarkKind;
///
/// assert_eq!(RemarkKind::Missed.name(), "missed");
/// ```
#[doc(inline)]
pub use tilewright_base::RemarkKind;
/// Holds the name and the text of a file for messages.
///
/// ```
/// use tilewright::SourceFile;
///
/// let file = SourceFile::new("kernels.py", "import triton\nimport torch\n");
/// assert_eq!(file.line_column(21), (2, 8));
/// ```
#[doc(inline)]
pub use tilewright_base::SourceFile;
/// Holds the files that the [spans](Span) of an error or of an IR module point into.
///
/// ```
/// use tilewright::{SourceFile, SourceMap, Span};
///
/// let mut sources = SourceMap::default();
/// let file = sources.add(SourceFile::new("kernels.py", "import triton\nimport torch\n"));
/// let span = Span::new(file, 21, 26);
/// assert_eq!((sources.text(span), &*sources.position(span)), ("torch", "kernels.py:2:8"));
/// ```
#[doc(inline)]
pub use tilewright_base::SourceMap;
/// Selects bytes of a file in a [`SourceMap`].
///
/// ```
/// use tilewright::{Error, Module};
///
/// let error = Module::from_source("k.py", "def k(:").unwrap_err();
/// let Error::Diagnostics(failure) = &error else { unreachable!("the source is wrong") };
/// let label = failure.diagnostics[0].primary.as_ref().expect("a syntax error has a position");
/// assert!(failure.sources.position(label.span).starts_with("k.py:1:"));
/// ```
#[doc(inline)]
pub use tilewright_base::Span;
/// Runs a function, and returns its result with the decisions that the compiler made meanwhile.
///
/// ```
/// use tilewright::{Device, Module, Options, collect_remarks};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?.on(Device::Sim(90));
/// let compile = || double.compile("*fp32:16,i32,BLOCK=1024", &Options::default());
/// let (handle, remarks) = collect_remarks(compile);
/// handle?;
/// assert!(!remarks.is_empty());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_base::collect_remarks;
/// Names the element types of kernels, also as arguments of `tl.constexpr` parameters.
///
/// ```
/// use tilewright::{Dtype, args};
///
/// assert_eq!(Dtype::parse("bf16"), Some(Dtype::BF16));
/// assert_eq!((Dtype::F8E5.bytes(), Dtype::F8E5.is_float(), Dtype::I64.bits()), (1, true, 64));
/// let arguments = args![dtype = Dtype::F16];
/// ```
#[doc(inline)]
pub use tilewright_ir::Dtype;
/// Selects where kernels run and tensors are.
///
/// ```
/// use tilewright::{Code, Device};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// assert_eq!(Device::parse("sim:sm_90")?, Device::Sim(90));
/// assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
/// assert_eq!(Device::parse("tpu").unwrap_err().code(), Some(Code::NoDevice));
/// // The usable GPUs of this machine come after the CPU.
/// assert_eq!(Device::available()[0], Device::Cpu);
/// // Kernels that are made from now on run in the simulator.
/// Device::Sim(80).select()?;
/// assert_eq!(Device::selected()?, Some(Device::Sim(80)));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Device;
/// States why a kernel was not compiled or did not finish. `Display` and `Debug` print a message
/// with the lines of the kernel.
///
/// ```
/// use tilewright::{Code, Module, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// let error = double.launch(1, args![&mut [1.0_f32; 50], 60, BLOCK = 64]).unwrap_err();
/// assert_eq!(error.code(), Some(Code::OutOfBounds));
/// assert!(error.to_string().contains("kernels.py"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Error;
/// States the number of programs along each axis of a launch; launches accept every [`IntoGrid`].
///
/// ```
/// use tilewright::Grid;
///
/// # fn main() -> Result<(), tilewright::Error> {
/// assert_eq!(Grid::new(&[8, 2])?.extents(), [8, 2, 1]);
/// assert!(Grid::from([0, 1, 1]).is_empty());
/// assert!(Grid::new(&[-1]).is_err());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Grid;
/// Gives access to the code that [`Kernel::warmup`] and [`Kernel::compile`] return.
///
/// ```
/// use tilewright::{Device, Module, Stage, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?.on(Device::Sim(90));
/// let handle = double.warmup(args![&mut [1.0_f32; 64], 64, BLOCK = 64])?;
/// assert_eq!(handle.device(), Device::Sim(90));
/// assert!(handle.compiled.asm(Stage::Ptx).is_some_and(|ptx| ptx.contains(".entry double")));
/// println!("{:?}", handle.resources()?);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Handle;
/// Sets options of the process, as environment variables do.
///
/// ```
/// use tilewright::Knobs;
///
/// let knobs = Knobs::clone(&Knobs::current());
/// Knobs { debug: true, num_threads: Some(2), ..knobs }.set();
/// assert!(Knobs::current().debug);
/// ```
#[doc(inline)]
pub use tilewright_runtime::Knobs;
/// Sets options of a compilation; for a launch, `args!` takes them as named arguments.
///
/// ```
/// use tilewright::{Code, Options, frontend::Constant};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut options = Options::default();
/// options.set_named("num_warps", &Constant::Int(8))?;
/// let error = options.set_named("num_warps", &Constant::Int(0)).unwrap_err();
/// assert_eq!(error.code(), Some(Code::InvalidOption));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Options;
/// Names a stage of a compilation, whose text a program can request.
///
/// ```
/// use tilewright::{Device, Module, Options, Stage, Target};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?.on(Device::Cpu);
/// let handle = double.compile("*fp32,i32,BLOCK=64", &Options::default())?;
/// for &stage in Stage::of(Target::Cpu) {
///     println!("{}: {} bytes", stage.name(), handle.compiled.asm(stage).map_or(0, |s| s.len()));
/// }
/// assert!(handle.compiled.asm(Stage::Ptx).is_none());
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Stage;
/// Names what code is compiled for, such as the targets of [`record_lock`].
///
/// ```
/// use tilewright::{Device, Target};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// assert_eq!(Target::parse("cpu"), Some(Target::Cpu));
/// assert_eq!(Device::Sim(90).target()?.to_string(), "sm_90a");
/// assert_eq!(Target::for_capability(89).and_then(Target::capability), Some(89));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Target;
/// Returns the number of threads of launches on the CPU.
///
/// ```
/// assert!(tilewright::num_threads() >= 1);
/// ```
#[doc(inline)]
pub use tilewright_runtime::num_threads;
/// Sets the number of threads of later launches on the CPU.
///
/// ```
/// tilewright::set_num_threads(2);
/// assert_eq!(tilewright::num_threads(), 2);
/// ```
#[doc(inline)]
pub use tilewright_runtime::set_num_threads;

/// The compilation of a kernel, and its stages as text.
pub use tilewright_compiler as compiler;
/// The frontend: lowers source to IR, and defines compile-time values and hosts, which resolve the
/// names of a kernel's module.
pub use tilewright_frontend as frontend;
/// The tile IR.
pub use tilewright_ir as ir;
/// Values, specialization, handles and launches.
pub use tilewright_runtime as runtime;
