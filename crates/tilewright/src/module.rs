//! Defines [`Module`], a Python module with kernels, and [`Kernel`], a kernel of a module.

use std::path::Path;
use std::sync::Arc;

use tilewright_base::{Code, Diagnostic, SourceFile};
use tilewright_frontend::Constant;
use tilewright_runtime as runtime;
use tilewright_runtime::{
    ArgumentSource, Check, Checks, Device, Error, Handle, OptionId, Options, Signature, SourceModule, Value,
};

use crate::arguments::to_constant;
use crate::launch::launch;
use crate::lock;
use crate::{Arguments, IntoGrid, Stream};

/// The text of a Python module that defines kernels. The frontend evaluates the module's imports of
/// `triton` or `tilewright`, its constants and its `@jit` functions without Python. If the text
/// comes from a file, the frontend also reads imported modules in the same folder or package.
///
/// ```
/// use tilewright::Module;
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let module = Module::from_file("examples/kernels.py")?;
/// for name in module.kernel_names() {
///     let kernel = module.kernel(name)?;
///     println!("{name} has {} parameters", kernel.signature().parameters.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    source: Arc<SourceModule>,
}

impl Module {
    /// Reads a module from a file.
    ///
    /// ```
    /// use tilewright::{Code, Module};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
    /// assert_eq!(scale.name(), "scale");
    /// let missing = Module::from_file("no/such/file.py").unwrap_err();
    /// assert_eq!(missing.code(), Some(Code::KernelNotFound));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or if it has a syntax error.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { source: Arc::new(SourceModule::from_file(path.as_ref())?) })
    }

    /// Creates a module from a text. Messages show `name` as the name of its file. Imports of other
    /// files are not resolved.
    ///
    /// ```
    /// use tilewright::{Code, Module};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// // A text in the program: `include_str!("kernels.py")` for a file of the crate.
    /// let module = Module::from_source("kernels.py", "
    /// import triton
    ///
    /// @triton.jit
    /// def nothing(x_ptr):
    ///     pass
    /// ")?;
    /// assert_eq!(module.kernel_names(), ["nothing"]);
    ///
    /// let error = Module::from_source("wrong.py", "def f(:").unwrap_err();
    /// assert_eq!(error.code(), Some(Code::SyntaxError));
    /// assert!(error.to_string().contains("wrong.py:1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the text has a syntax error.
    pub fn from_source(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { source: Arc::new(SourceModule::new(SourceFile::new(name, text), None)?) })
    }

    /// Returns the names of the `@jit` functions in the order of the text.
    ///
    /// ```
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let module = tilewright::Module::from_file("examples/kernels.py")?;
    /// assert_eq!(module.kernel_names()[..2], ["scale", "double"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kernel_names(&self) -> Vec<&str> {
        self.source.kernel_names()
    }

    /// Returns the syntax tree of a kernel as text, one line for each node. Does not compile the
    /// kernel.
    ///
    /// ```
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let module = tilewright::Module::from_file("examples/kernels.py")?;
    /// assert!(module.syntax_tree("scale")?.contains("BLOCK"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the module has no `@jit` function with this name.
    pub fn syntax_tree(&self, name: &str) -> Result<String, Error> {
        self.source.syntax_tree(name)
    }

    /// Returns the `@jit` function with this name. Its launches run on the selected device
    /// ([`Device::select`], `TILEWRIGHT_DEVICE`). If no device is selected, each launch runs on the
    /// device of its tensors.
    ///
    /// ```
    /// use tilewright::{Code, Module};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let module = Module::from_file("examples/kernels.py")?;
    /// let scale = module.kernel("scale")?;
    /// assert_eq!(module.kernel("scael").unwrap_err().code(), Some(Code::KernelNotFound));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the module has no `@jit` function with this name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        Ok(Kernel { kernel: self.source.kernel(name)?, module: self.clone() })
    }
}

/// A kernel of a module. The kernel has a cache of compiled variants. A variant is compiled for one
/// combination of argument types, argument properties (such as divisibility by 16), compile-time
/// values, options and device. Clones use the same cache. Several threads may launch a kernel at
/// the same time.
///
/// ```
/// use tilewright::{Device, Module, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
/// assert_eq!(scale.name(), "scale");
/// let x = [1.0_f32, 2.0, 3.0];
/// for device in [Device::Cpu, Device::Sim(90)] {
///     let mut out = [0.0_f32; 3];
///     scale.on(device).launch(1, args![&x, &mut out, 10.0, 3, BLOCK = 16])?;
///     assert_eq!(out, [10.0, 20.0, 30.0]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Kernel {
    kernel: Arc<runtime::Kernel>,
    module: Module,
}

impl Kernel {
    /// Returns the name and the parameters.
    ///
    /// ```
    /// use tilewright::{Module, runtime::Annotation};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
    /// let parameters = &scale.signature().parameters;
    /// assert_eq!(&*parameters[0].name, "x_ptr");
    /// assert!(matches!(parameters[4].annotation, Annotation::Constexpr));
    /// # Ok(())
    /// # }
    /// ```
    pub fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.signature().name
    }

    /// Returns the same kernel for launches on `device`. The selected device is ignored.
    ///
    /// ```
    /// use tilewright::{Device, Module, Options, Stage};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let scale = Module::from_file("examples/kernels.py")?.kernel("scale")?;
    /// let hopper = scale.on(Device::Sim(90));
    /// let handle = hopper.compile("*fp32,*fp32,fp32,i32,BLOCK=64", &Options::default())?;
    /// assert!(handle.compiled.asm(Stage::Ptx).is_some_and(|ptx| ptx.contains("sm_90a")));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        Self { kernel: Arc::new(self.kernel.on(device)), module: self.module.clone() }
    }

    /// Runs the kernel for every program of a grid. Compiles the kernel first if necessary. On a
    /// GPU, queues the launch on the default stream and returns. On other devices, returns when all
    /// programs have ended.
    ///
    /// With the keyword `warmup = true`, the call only compiles the kernel. With `sanitize = true`,
    /// each finding of the sanitizer is an error. The keyword can also name the checks, as in
    /// `sanitize = "race,init"`. If an option has no effect on the target, the first launch of a
    /// variant prints a warning to stderr.
    ///
    /// ```
    /// use tilewright::{Code, Module, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let module = Module::from_file("examples/kernels.py")?;
    /// let (scale, double) = (module.kernel("scale")?, module.kernel("double")?);
    /// let (x, mut out) = (vec![1.0_f32; 1000], vec![0.0_f32; 1000]);
    /// let grid = x.len().div_ceil(256);
    /// scale.launch(grid, args![&x, &mut out, 2.5, 1000, BLOCK = 256, num_warps = 8])?;
    /// assert_eq!(out, [2.5; 1000]);
    ///
    /// let error = scale.launch(grid, args![&x, &mut out, 2.5, 1001, BLOCK = 256]).unwrap_err();
    /// assert_eq!(error.code(), Some(Code::OutOfBounds));
    ///
    /// // Two programs load and store each element.
    /// let racing = args![&mut out, 1000, BLOCK = 256, sanitize = "race"];
    /// let error = double.launch([grid, 2], racing).unwrap_err();
    /// assert_eq!(error.code(), Some(Code::Race));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the arguments do not match the parameters, if the kernel does not compile, or if the
    /// kernel fails. On the CPU and in the simulator, an access out of bounds and a failed
    /// assertion are failures. If a kernel fails on a GPU, a later call, such as
    /// [`Stream::synchronize`], returns the error.
    pub fn launch(&self, grid: impl IntoGrid, arguments: Arguments<'_>) -> Result<(), Error> {
        self.start(None, grid.into_grid()?, arguments)
    }

    /// Does the same as [`launch`](Self::launch), but on a stream. The stream must belong to the
    /// device of the launch.
    ///
    /// ```
    /// use tilewright::{Device, Module, Stream, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let (stream, mut x) = (Stream::new(Device::Cpu)?, [1_i32; 100]);
    /// for _ in 0..3 {
    ///     double.launch_on(&stream, 1, args![&mut x, 100, BLOCK = 128])?;
    /// }
    /// stream.synchronize()?;
    /// assert_eq!(x, [8; 100]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`launch`](Self::launch). Also if the stream is not on the device of the
    /// tensors.
    pub fn launch_on(
        &self,
        stream: &Stream,
        grid: impl IntoGrid,
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        self.start(Some(stream), grid.into_grid()?, arguments)
    }

    fn start(
        &self,
        stream: Option<&Stream>,
        grid: runtime::Grid,
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        let call = self.bind(arguments)?;
        call.run(&*self.handle(&call.values, &call.options)?, stream, grid)
    }

    /// Compiles the kernel for these arguments, but does not run it. The next launch with arguments
    /// of the same types and properties does not compile the kernel again.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tilewright::{Module, args};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let mut x = [1.0_f32; 100];
    /// let first = double.warmup(args![&mut x, 100, BLOCK = 128])?;
    /// assert!(Arc::ptr_eq(&first, &double.warmup(args![&mut x, 99, BLOCK = 128])?));
    /// // The code also depends on whether `n` is a multiple of 16.
    /// assert!(!Arc::ptr_eq(&first, &double.warmup(args![&mut x, 96, BLOCK = 128])?));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the arguments do not match the parameters, or if the kernel does not compile.
    pub fn warmup(&self, arguments: Arguments<'_>) -> Result<Arc<Handle>, Error> {
        let Call { values, options, .. } = self.bind(arguments)?;
        self.handle(&values, &options)
    }

    /// Compiles the kernel for arguments that a text describes, such as
    /// `*fp32,*fp32:16,i32,BLOCK=1024`. The syntax is that of `tilewright compile --signature`. The
    /// suffix `:16` means that the address or the number is divisible by 16.
    ///
    /// ```
    /// use tilewright::{Device, Module, Options, Stage};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let signature = "*fp16:16,i32,BLOCK=1024";
    /// let cpu = double.on(Device::Cpu).compile(signature, &Options::default())?;
    /// assert!(cpu.compiled.asm(Stage::Opt).is_some_and(|ir| ir.contains("fp16[1024]")));
    /// // Code for a GPU needs no GPU.
    /// let gpu = double.on(Device::Sim(100)).compile(signature, &Options::default())?;
    /// println!("{}", gpu.compiled.asm(Stage::Ptx).unwrap_or_default());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the text does not match the parameters, or if the kernel does not compile.
    pub fn compile(&self, signature: &str, options: &Options) -> Result<Handle, Error> {
        self.compile_for_launches(signature, options, false)
    }

    /// Compiles the kernel as [`compile`](Self::compile) does. With `tensor_maps`, code for a GPU
    /// may take tensor maps after its arguments. Only a [`Handle`] can launch such code, because a
    /// [`Handle`] creates the maps.
    ///
    /// ```
    /// use tilewright::{Device, Module, Options};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let hopper = double.on(Device::Sim(90));
    /// let options = Options::default();
    /// let handle = hopper.compile_for_launches("*fp32:16,i32,BLOCK=64", &options, true)?;
    /// assert!(!handle.takes_tensor_maps(), "the kernel loads no boxes");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`compile`](Self::compile).
    pub fn compile_for_launches(
        &self,
        signature: &str,
        options: &Options,
        tensor_maps: bool,
    ) -> Result<Handle, Error> {
        self.module.source.with_host(|host| {
            let mut layout = |text: &str| host.layout_of_expression(text);
            let arguments = self.signature().parse_arguments_with(signature, &mut layout)?;
            self.kernel.compile_for(arguments, options, tensor_maps, host)
        })
    }

    /// Returns the compiled variant for `values`. `values` has one value for each parameter.
    /// Compiles the variant if necessary.
    ///
    /// ```
    /// use tilewright::{Grid, Module, Options, args, runtime::Interrupt};
    ///
    /// # fn main() -> Result<(), tilewright::Error> {
    /// let double = Module::from_file("examples/kernels.py")?.kernel("double")?;
    /// let mut x = [1.0_f32; 8];
    /// let values = args![&mut x, 8, 16].positional;
    /// let handle = double.handle(&values, &Options::default())?;
    /// handle.launch(Grid::from([1, 1, 1]), &values, Interrupt::Never)?;
    /// assert_eq!(x, [2.0; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the kernel does not compile for these values.
    pub fn handle(&self, values: &[Value<'_>], options: &Options) -> Result<Arc<Handle>, Error> {
        if let Some(handle) = self.kernel.lookup(values, options)? {
            if lock::insert_recorded(&handle) {
                self.module.source.with_host(|host| self.kernel.record(&handle, host))?;
            }
            return Ok(handle);
        }
        let handle = self.module.source.with_host(|host| self.kernel.specialize(values, options, host))?;
        for option in handle.options().without_effect(handle.compiled.metadata.target) {
            eprintln!("{}", self.signature().option_without_effect(&option));
        }
        // The compilation has recorded it.
        lock::insert_recorded(&handle);
        Ok(handle)
    }

    pub(crate) fn bind<'m>(&self, arguments: Arguments<'m>) -> Result<Call<'m>, Error> {
        let Arguments { mut positional, keywords, .. } = arguments;
        if let Some(first) = self.signature().variadic().filter(|first| *first < positional.len()) {
            let rest = positional.split_off(first);
            positional.push(Value::Tuple(rest.into()));
        }
        let names: Vec<&str> = keywords.iter().map(|(name, _)| *name).collect();
        let binding = self.kernel.bind(positional.len(), &names)?;
        let (mut options, mut is_warmup, mut checks) = (Options::default(), false, Checks::NONE);
        for &(index, option) in &binding.options {
            let value = &keywords[index].1;
            match option {
                OptionId::Stream => return Err(refused("stream", "`launch_on` takes the stream")),
                OptionId::Grid => return Err(refused("grid", "the grid is the first argument of `launch`")),
                OptionId::Warmup => is_warmup = to_constant("warmup", value)?.is_true(),
                OptionId::Sanitize => checks = checks_of(&to_constant("sanitize", value)?)?,
                _ => options.set(option, &to_constant(option.info().name, value)?)?,
            }
        }
        let values = binding.parameters.iter().zip(&self.signature().parameters);
        let values = values.map(|(source, parameter)| match *source {
            ArgumentSource::Positional(index) => positional[index].clone(),
            ArgumentSource::Keyword(index) => keywords[index].1.clone(),
            ArgumentSource::Default => parameter.default.clone().unwrap_or(Value::None),
        });
        Ok(Call { values: values.collect(), options, is_warmup, checks })
    }

    pub(crate) fn device_of(&self, arguments: &Arguments<'_>) -> Device {
        let keywords = arguments.keywords.iter().map(|(_, value)| value);
        self.kernel.device_of(arguments.positional.iter().chain(keywords))
    }

    /// Returns a digest of the kernel's syntax tree, for locks.
    pub(crate) fn source_digest(&self) -> String {
        let tree = tilewright_compiler::syntax_tree(self.signature().source.as_ref());
        runtime::lock::Artifacts::hash(tree.as_bytes())
    }
}

/// A call whose arguments are bound.
pub(crate) struct Call<'m> {
    /// One value for each parameter.
    pub(crate) values: Vec<Value<'m>>,
    pub(crate) options: Options,
    pub(crate) is_warmup: bool,
    pub(crate) checks: Checks,
}

impl Call<'_> {
    /// Launches the code that is compiled for this call, as the options of the call request: with
    /// checks, or not at all.
    pub(crate) fn run(
        &self,
        handle: &Handle,
        stream: Option<&Stream>,
        grid: runtime::Grid,
    ) -> Result<(), Error> {
        if self.is_warmup {
            return Ok(());
        }
        let run = || launch(handle, stream, grid, &self.values);
        if self.checks.is_empty() { run() } else { sanitized(self.checks, handle.device(), run) }
    }
}

/// Runs a launch with checks of the sanitizer. Returns an error if the sanitizer has a finding, or
/// if the launch is on a GPU.
fn sanitized(checks: Checks, device: Device, run: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    if let Device::Cuda(_) = device {
        let message = format!("the launch option sanitize is set, and the launch is on {device}");
        let diagnostic = Diagnostic::new(Code::NotOnThisDevice, message)
            .note("the sanitizer checks launches on the CPU and in the simulator of a GPU");
        return Err(diagnostic.hint("launch the kernel on one of these").into());
    }
    let (result, reports, dropped) = runtime::with_checks(checks, run);
    result?;
    let count = reports.len() as u64 + dropped;
    match reports.into_iter().next() {
        None => Ok(()),
        Some(first) => {
            let diagnostic = Diagnostic::new(first.code, first.message);
            let diagnostic = match count {
                1 => diagnostic.note(first.text),
                _ => diagnostic.note(first.text).note(format!("the launch has {count} findings")),
            };
            Err(diagnostic.into())
        }
    }
}

/// Returns the checks that the option `sanitize` requests.
fn checks_of(value: &Constant) -> Result<Checks, Error> {
    let refused = |found: String| -> Error {
        let names = Check::ALL.map(Check::name).join(", ");
        Diagnostic::new(Code::InvalidOption, "the launch option sanitize names no checks")
            .note(format!("{found}; expected true, or names of checks: {names}"))
            .hint("`sanitize = \"race,init\"`, or `sanitize = true` for every check")
            .into()
    };
    match value {
        Constant::None | Constant::Bool(false) => Ok(Checks::NONE),
        Constant::Bool(true) => Ok(Checks::ALL),
        Constant::Str(names) if names.trim().is_empty() => Ok(Checks::NONE),
        Constant::Str(names) => {
            Checks::parse(names).map_err(|name| refused(format!("found '{name}', which is no check")))
        }
        other => Err(refused(format!("found {other}"))),
    }
}

fn refused(option: &str, hint: &str) -> Error {
    let message = format!("`args!` does not take the launch option {option}");
    Diagnostic::new(Code::InvalidOption, message).hint(hint).into()
}
