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
//! The arguments are those of `kernel[grid](...)` in Python. Slices are tensors. Other arguments
//! are numbers and `bool`s; arguments for `tl.constexpr` parameters may also be strings and dtypes.
//! Positional arguments come first. Then come named arguments, including options such as
//! `num_warps = 8`.
//!
//! Memory is safe. A kernel must not access memory outside of its slices, and must not store to a
//! slice that is not `&mut`. Such a kernel ends with an [`Error`] that names the line, the program
//! and the argument.
//!
//! The examples below launch two kernels of `examples/kernels.py`, a file of this crate.
//! `scale(x_ptr, out_ptr, factor, n, BLOCK)` is the kernel above. `double(x_ptr, n, BLOCK)` doubles
//! `n` elements in place.
//!
//! The lower layers are [`runtime`] (values, options, handles), [`compiler`] (the stages) and
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

/// Identifies the kind of mistake that an error reports. Each code has a page.
///
/// ```
/// use tilewright::{Code, Kind, Module};
///
/// let error = Module::from_source("k.py", "import triton").and_then(|module| module.kernel("k"));
/// let code = error.unwrap_err().code().unwrap();
/// assert_eq!((code, code.name(), code.kind()), (Code::KernelNotFound, "TW0110", Kind::LaunchKey));
/// println!("{}: {}\n{}", code.url(), code.title(), code.page());
/// assert_eq!(Code::parse("tw0110"), Some(code));
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
/// Describes one finding of an [`Error`].
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
/// A host with its own checks can create findings that look like the compiler's findings:
///
/// ```
/// use tilewright::{Code, Color, Diagnostic, SourceFile, SourceMap, Span};
///
/// let mut sources = SourceMap::default();
/// let file = sources.add(SourceFile::new("kernels.py", "BLOCK = 96\nSIZE = BLOCK\n"));
/// let finding = Diagnostic::at(Code::InvalidOption, Span::new(file, 8, 10), "BLOCK is 96")
///     .secondary(Span::new(file, 18, 23), "used here")
///     .note("blocks are powers of two")
///     .hint("use 64 or 128")
///     .as_warning();
/// assert!(finding.render(&sources, Color::Never).contains("warning[TW0108]: BLOCK is 96"));
/// let elsewhere = Diagnostic::new(Code::InvalidOption, "no block fits").primary(Span::new(file, 0, 5), "");
/// assert!(elsewhere.hint.is_none());
/// ```
#[doc(inline)]
pub use tilewright_base::Diagnostic;
/// Groups codes by the class of the Python exception that reports them.
///
/// ```
/// use tilewright::{Code, Kind};
///
/// assert_eq!(Code::OutOfBounds.kind(), Kind::OutOfBounds);
/// ```
#[doc(inline)]
pub use tilewright_base::Kind;
/// Describes a decision of the compiler. [`collect_remarks`] returns remarks.
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
/// Describes the outcome of a pass for the subject of a [`Remark`].
///
/// ```
/// use tilewright::RemarkKind;
///
/// assert_eq!(RemarkKind::Missed.name(), "missed");
/// ```
#[doc(inline)]
pub use tilewright_base::RemarkKind;
/// Contains the name and the text of a file, which messages show.
///
/// ```
/// use tilewright::SourceFile;
///
/// let file = SourceFile::new("kernels.py", "import triton\nimport torch\n");
/// assert_eq!(file.line_column(21), (2, 8));
/// // Functions such as `tl.cdiv` are in files of the library.
/// assert!(!file.is_library());
/// ```
#[doc(inline)]
pub use tilewright_base::SourceFile;
/// Contains the source files of an error or of an IR module. Their [spans](Span) refer to these
/// files.
///
/// ```
/// use tilewright::{SourceFile, SourceMap, Span};
///
/// let mut sources = SourceMap::default();
/// let file = sources.add(SourceFile::new("kernels.py", "import triton\nimport torch\n"));
/// let span = Span::new(file, 21, 26);
/// assert_eq!((sources.text(span), &*sources.position(span)), ("torch", "kernels.py:2:8"));
/// assert_eq!(sources.file(file).name, sources.files().next().unwrap().1.name);
/// let renamed = sources.with_names(|name| format!("src/{name}"));
/// assert_eq!(renamed.position(span), "src/kernels.py:2:8");
/// // The result is the index of the first span that is not in a library file.
/// assert_eq!(sources.users_place(&[span]), Some(0));
/// ```
#[doc(inline)]
pub use tilewright_base::SourceMap;
/// Selects bytes of a file in a [`SourceMap`].
///
/// ```
/// use tilewright::{Error, Module, Span};
///
/// let error = Module::from_source("k.py", "def k(:").unwrap_err();
/// let Error::Diagnostics(failure) = &error else { unreachable!("the source is wrong") };
/// let label = failure.diagnostics[0].primary.as_ref().expect("a syntax error has a position");
/// assert!(failure.sources.position(label.span).starts_with("k.py:1:"));
/// let first = Span::new(label.span.file, 0, 3);
/// assert_eq!(failure.sources.text(first), "def");
/// ```
#[doc(inline)]
pub use tilewright_base::Span;
/// Runs a function. Returns its result, and the decisions that the compiler made during the call.
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
/// Lists the element types of tensors in kernels. A dtype can also be an argument for a
/// `tl.constexpr` parameter.
///
/// ```
/// use tilewright::{Dtype, args};
///
/// assert_eq!(Dtype::parse("bf16"), Some(Dtype::BF16));
/// assert_eq!((Dtype::F8E5.bytes(), Dtype::F8E5.is_float(), Dtype::I64.bits()), (1, true, 64));
/// assert!(Dtype::F8E5.is_fp8() && Dtype::I1.is_bool() && Dtype::I8.is_int() && Dtype::I8.is_signed());
/// assert_eq!((Dtype::U8.int_range(), Dtype::F32.int_range()), (Some((0, 255)), None));
/// assert_eq!(Dtype::ALL.iter().filter(|dtype| dtype.name() == "bf16").count(), 1);
/// assert!(Dtype::names().contains("bf16"));
/// let arguments = args![dtype = Dtype::F16];
/// ```
#[doc(inline)]
pub use tilewright_ir::Dtype;
/// Identifies a device, which runs kernels and stores tensors.
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
/// assert!(Device::simulated_names().contains(&"sim:sm_90".to_owned()));
/// // Each target of a GPU has a simulator, which runs code for this target.
/// assert_eq!(Device::simulating(Device::Sim(80).target()?), Some(Device::Sim(80)));
/// // The simulator uses the memory of the CPU.
/// assert_eq!(Device::Sim(90).memory(), Device::Cpu);
/// // The driver knows only GPUs.
/// assert!(Device::Cpu.gpu().is_err() && Device::Cpu.context().is_err());
/// // Kernels that are made from now on run in the simulator.
/// Device::Sim(80).select()?;
/// assert_eq!(Device::selected()?, Some(Device::Sim(80)));
/// assert_eq!((Device::active()?, Device::current()?), (Device::Sim(80), Device::Sim(80)));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Device;
/// Describes why a kernel was not compiled or did not finish. `Display` and `Debug` print a message
/// with the lines of the kernel.
///
/// ```
/// use tilewright::{Code, Color, Diagnostic, Error, Kind, Module, SourceMap, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// let error = double.launch(1, args![&mut [1.0_f32; 50], 60, BLOCK = 64]).unwrap_err();
/// assert_eq!(error.code(), Some(Code::OutOfBounds));
/// assert!(error.to_string().contains("kernels.py"));
/// assert_eq!((error.kind(), error.diagnostics().len()), (Some(Kind::OutOfBounds), 1));
/// println!("{}", error.render(Color::Always));
/// // A function that launches kernels may have errors of its own.
/// let own = Error::new(Diagnostic::new(Code::InvalidOption, "no block fits"), SourceMap::default());
/// assert_eq!(own.code(), Some(Code::InvalidOption));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Error;
/// Contains the number of programs along each axis of a launch. Launches accept every [`IntoGrid`].
///
/// ```
/// use tilewright::Grid;
///
/// # fn main() -> Result<(), tilewright::Error> {
/// assert_eq!(Grid::new(&[8, 2])?.extents(), [8, 2, 1]);
/// assert!(Grid::from([0, 1, 1]).is_empty());
/// assert!(Grid::new(&[-1]).is_err());
/// assert!(Grid::not_a_grid("a str", "'8'").to_string().contains("'8'"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Grid;
/// Contains compiled code, and launches it. [`Kernel::warmup`] and [`Kernel::compile`] return
/// handles.
///
/// ```
/// use tilewright::{Device, Grid, Module, Stage, args, runtime::Interrupt, runtime::StreamRef};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
/// let gpu = double.on(Device::Sim(90)).warmup(args![&mut [1.0_f32; 64], 64, BLOCK = 64])?;
/// assert_eq!(gpu.device(), Device::Sim(90));
/// assert!(gpu.compiled.asm(Stage::Ptx).is_some_and(|ptx| ptx.contains(".entry double")));
/// println!("{:?}, {:?}", gpu.resources()?, gpu.options());
/// assert!(!gpu.takes_tensor_maps() && !gpu.makes_pointers());
/// // The first launch then need not load the code.
/// gpu.prepare()?;
/// // The simulator loads PTX, a GPU loads a cubin.
/// assert!(gpu.loaded()?.is_some() && gpu.cubin()?.is_none());
///
/// let mut x = vec![1.0_f32; 64];
/// let cpu = double.on(Device::Cpu).warmup(args![&mut x, 64, BLOCK = 64])?;
/// assert_eq!((&*cpu.signature().name, cpu.arguments().len()), ("double", 3));
/// assert_ne!(cpu.code_number(), gpu.code_number());
/// // A launch passes a value for each parameter. `complete` checks the values, because the code is
/// // for these types only, and adds the compile-time values.
/// let values = cpu.complete(&args![&mut x, 64].positional)?;
/// cpu.launch(Grid::from([1, 1, 1]), &values, Interrupt::Never)?;
/// cpu.launch_on(StreamRef::DEFAULT, Grid::from([1, 1, 1]), &values, &[], Interrupt::Never)?;
/// assert_eq!(x, [4.0; 64]);
/// // `bind` assigns the arguments of a call to parameters, here `x_ptr` and `n`.
/// let sources = cpu.bind(1, &["n"])?;
/// assert!(sources[1].is_some() && sources[2].is_none());
/// let values = vec![Some(args![&mut x].positional.remove(0)), Some(args![64].positional.remove(0)), None];
/// assert_eq!(cpu.complete_bound(values)?.len(), 3);
/// # Ok(())
/// # }
/// ```
/// This example checks that accesses are in bounds for every size:
///
/// ```
/// use tilewright::runtime::{BoundsExpression, BoundsStatement};
/// use tilewright::{Device, Module, Options};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let double = Module::from_file("examples/kernels.py")?.kernel("double")?.on(Device::Cpu);
/// let handle = double.compile("*fp32,i32,BLOCK=64", &Options::default())?;
/// // `x_ptr` has `n` elements.
/// let extents = vec![("x_ptr".to_owned(), BoundsExpression::parse("n").unwrap())];
/// let statement = BoundsStatement { extents, ..BoundsStatement::default() };
/// let report = handle.check_bounds(&statement).unwrap();
/// assert_eq!(report.findings.len(), 2);
/// for finding in &report.findings {
///     println!("{}: {:?}", finding.access, finding.verdict);
/// }
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Handle;
/// Contains options of the process, which environment variables also set.
///
/// ```
/// use tilewright::Knobs;
///
/// let knobs = Knobs::from_environment();
/// Knobs { debug: true, num_threads: Some(2), ..knobs }.set();
/// assert!(Knobs::current().debug);
/// ```
#[doc(inline)]
pub use tilewright_runtime::Knobs;
/// Contains the options of a compilation. For a launch, `args!` accepts them as named arguments.
///
/// ```
/// use tilewright::{Code, Device, Knobs, Options, frontend::Constant, runtime::OptionId};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let mut options = Options::default();
/// options.set_named("num_warps", &Constant::Int(8))?;
/// let error = options.set_named("num_warps", &Constant::Int(0)).unwrap_err();
/// assert_eq!(error.code(), Some(Code::InvalidOption));
/// // Options that do not depend on environment variables, with assertions:
/// let mut options = Options::new(&Knobs::default()).with_debug();
/// options.set(OptionId::Maxnreg, &Constant::Int(64))?;
/// assert_eq!(options.get(OptionId::Maxnreg), Constant::Int(64));
/// // A launch warns of options that have no effect.
/// options.set(OptionId::Sched4reg, &Constant::Bool(true))?;
/// assert_eq!(options.without_effect(Device::Sim(90).target()?).len(), 1);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Options;
/// Identifies a stage of a compilation. A program can request the text of a stage.
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
/// assert_eq!(Stage::parse("ptx"), Some(Stage::Ptx));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Stage;
/// Identifies the CPU or GPU that code is compiled for. For example, [`record_lock`] takes targets.
///
/// ```
/// use tilewright::{Device, Target};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// assert_eq!(Target::parse("cpu"), Some(Target::Cpu));
/// assert_eq!(Device::Sim(90).target()?.to_string(), "sm_90a");
/// assert_eq!(Target::for_capability(89).and_then(Target::capability), Some(89));
/// assert!(Target::names().contains(&"sm_90a"));
/// assert_eq!((Target::Cpu.backend(), Target::Cpu.architecture()), ("cpu", std::env::consts::ARCH));
/// println!("this processor has {}", Target::Cpu.features().join(", "));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use tilewright_runtime::Target;
/// Returns the number of threads that a launch on the CPU uses.
///
/// ```
/// assert!(tilewright::num_threads() >= 1);
/// ```
#[doc(inline)]
pub use tilewright_runtime::num_threads;
/// Sets the number of threads that later launches on the CPU use.
///
/// ```
/// tilewright::set_num_threads(2);
/// assert_eq!(tilewright::num_threads(), 2);
/// ```
#[doc(inline)]
pub use tilewright_runtime::set_num_threads;

/// The compilation of a kernel, and its stages as text.
pub use tilewright_compiler as compiler;
/// The frontend. It lowers source to IR. It also defines compile-time values, and hosts, which
/// resolve the names of a kernel's module.
pub use tilewright_frontend as frontend;
/// The tile IR.
pub use tilewright_ir as ir;
/// Values, specialization, handles and launches.
pub use tilewright_runtime as runtime;
