//! Defines [`Module`], a Python module with kernels, and [`Kernel`], a kernel of a module.

use std::path::Path;
use std::sync::Arc;

use tilewright_base::{Code, Diagnostic, SourceFile};
use tilewright_frontend::Constant;
use tilewright_runtime as runtime;
use tilewright_runtime::{
    ArgumentSource, Check, Checks, Device, Error, Handle, Interrupt, OptionId, Options, Signature,
    SourceModule, Value,
};

use crate::arguments::to_constant;
use crate::{Arguments, IntoGrid, Stream};

/// The text of a Python module that defines kernels. The module's imports of `triton` or
/// `tilewright`, its constants and its `@jit` functions are evaluated without running Python. If
/// the text was read from a file, imported modules in the same folder or package are read too.
#[derive(Clone, Debug)]
pub struct Module {
    source: Arc<SourceModule>,
}

impl Module {
    /// Reads a file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { source: Arc::new(SourceModule::from_file(path.as_ref())?) })
    }

    /// Makes a module from a text. Messages show `name` as its file. Imports of other files are not
    /// resolved.
    pub fn from_source(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { source: Arc::new(SourceModule::new(SourceFile::new(name, text), None)?) })
    }

    /// Returns the names of the `@jit` functions, in order.
    pub fn kernel_names(&self) -> Vec<&str> {
        self.source.kernel_names()
    }

    /// Returns the syntax tree of a kernel as text, one line for each node, without compiling the
    /// kernel.
    pub fn syntax_tree(&self, name: &str) -> Result<String, Error> {
        self.source.syntax_tree(name)
    }

    /// Returns the `@jit` function with this name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        Ok(Kernel { kernel: self.source.kernel(name)?, module: self.clone() })
    }
}

/// A kernel of a module. Its compiled variants are cached.
#[derive(Clone, Debug)]
pub struct Kernel {
    kernel: Arc<runtime::Kernel>,
    module: Module,
}

impl Kernel {
    /// Returns the name and the parameters.
    pub fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.signature().name
    }

    /// Returns the same kernel for launches on `device`, whatever device is selected.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        Self { kernel: Arc::new(self.kernel.on(device)), module: self.module.clone() }
    }

    /// Runs the kernel for every program of a grid, and compiles it first if necessary. Returns
    /// when all programs have ended; on a GPU, as soon as the launch is on the default stream.
    ///
    /// The keyword `warmup = true` compiles the kernel and does not run it; `sanitize = true`, or
    /// the names of checks such as `sanitize = "race,init"`, makes each finding of the sanitizer an
    /// error.
    pub fn launch(&self, grid: impl IntoGrid, arguments: Arguments<'_>) -> Result<(), Error> {
        self.start(None, grid.into_grid()?, arguments)
    }

    /// As [`launch`](Self::launch), on a stream of the device that the launch runs on.
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
        let Call { values, options, is_warmup, checks } = self.bind(arguments)?;
        let handle = self.handle(&values, &options)?;
        if is_warmup {
            return Ok(());
        }
        let run = || launch(&handle, stream, grid, &values);
        if checks.is_empty() { run() } else { sanitized(checks, handle.device(), run) }
    }

    /// Compiles the kernel for these arguments, without running it.
    pub fn warmup(&self, arguments: Arguments<'_>) -> Result<Arc<Handle>, Error> {
        let Call { values, options, .. } = self.bind(arguments)?;
        self.handle(&values, &options)
    }

    /// Compiles the kernel for arguments that a text describes: `*fp32,*fp32:16,i32,BLOCK=1024`.
    /// The syntax is that of `tilewright compile --signature`.
    pub fn compile(&self, signature: &str, options: &Options) -> Result<Handle, Error> {
        self.compile_for_launches(signature, options, false)
    }

    /// As [`compile`](Self::compile). With `tensor_maps`, code for a GPU may take tensor maps after
    /// its arguments. Only [`Handle`] can launch such code, because it makes the maps.
    pub fn compile_for_launches(
        &self,
        signature: &str,
        options: &Options,
        tensor_maps: bool,
    ) -> Result<Handle, Error> {
        let arguments = self.signature().parse_arguments(signature)?;
        self.module.source.with_host(|host| self.kernel.compile_for(arguments, options, tensor_maps, host))
    }

    /// Returns the compiled variant for `values`, which has one value for each parameter. Compiles
    /// the variant if necessary.
    pub fn handle(&self, values: &[Value<'_>], options: &Options) -> Result<Arc<Handle>, Error> {
        if let Some(handle) = self.kernel.lookup(values, options)? {
            return Ok(handle);
        }
        self.module.source.with_host(|host| self.kernel.specialize(values, options, host))
    }

    /// Binds the arguments of a call.
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

    /// Returns the device that a launch with these arguments runs on.
    pub(crate) fn device_of(&self, arguments: &Arguments<'_>) -> Device {
        let keywords = arguments.keywords.iter().map(|(_, value)| value);
        self.kernel.device_of(arguments.positional.iter().chain(keywords))
    }

    /// Returns a digest of the syntax of the kernel, for locks.
    pub(crate) fn source_digest(&self) -> String {
        let tree = tilewright_compiler::syntax_tree(self.signature().source.as_ref());
        runtime::lock::Artifacts::hash(tree.as_bytes())
    }

    /// Adds a compiled variant to the recording of this process, if there is one.
    pub(crate) fn record(&self, handle: &Handle) -> Result<(), Error> {
        self.module.source.with_host(|host| self.kernel.record(handle, host))
    }
}

/// A call whose arguments are bound.
pub(crate) struct Call<'m> {
    /// One value for each parameter.
    pub(crate) values: Vec<Value<'m>>,
    pub(crate) options: Options,
    is_warmup: bool,
    checks: Checks,
}

/// Launches compiled code on a stream; on the default stream of its device if there is none.
pub(crate) fn launch(
    handle: &Handle,
    stream: Option<&Stream>,
    grid: runtime::Grid,
    values: &[Value<'_>],
) -> Result<(), Error> {
    if !runtime::IS_OPTIMIZED && !matches!(handle.device(), Device::Cuda(_)) {
        warn_of_slow_launches();
    }
    match stream {
        None => handle.launch(grid, values, Interrupt::Never),
        Some(stream) => {
            stream.check(handle.device())?;
            handle.launch_on(stream.handle(), grid, values, &[], Interrupt::Never)
        }
    }
}

/// Prints once in a process that Cargo did not optimize this library.
#[cold]
fn warn_of_slow_launches() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "tilewright: launches on the CPU and in the simulator are many times slower than they could be, because \
             Cargo compiles tilewright without optimization; add these lines to the Cargo.toml of the workspace:\n\
             [profile.dev.package.\"*\"]\nopt-level = 3"
        );
    });
}

/// Runs a launch with these checks of the sanitizer. A finding is an error.
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
