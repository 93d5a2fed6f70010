//! Defines [`Module`], a Python module whose text has kernels, and [`Kernel`], one of these
//! kernels.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, SourceFile};
use tilewright_compiler::{FunctionSyntax, functions_of, syntax_tree};
use tilewright_frontend::{Constant, FunctionSource, Host, HostValue, SourceHost, suggest};
use tilewright_runtime as runtime;
use tilewright_runtime::{
    Annotation, ArgumentSource, Device, Error, Handle, Interrupt, Options, Parameter, ParameterKind,
    Signature, Value,
};

use crate::arguments::to_constant;
use crate::{Arguments, IntoGrid};

/// The text of a Python module that defines kernels. The module's imports of `triton` or
/// `tilewright`, its constants and its `@jit` functions are evaluated without running Python. If
/// the text was read from a file, imported modules in the same folder or package are read too.
#[derive(Clone, Debug)]
pub struct Module {
    shared: Arc<Shared>,
}

struct Shared {
    file: Arc<SourceFile>,
    functions: Vec<FunctionSyntax>,
    host: Mutex<SourceHost>,
    kernels: Mutex<FxHashMap<String, Arc<runtime::Kernel>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("file", &self.file.name).finish_non_exhaustive()
    }
}

impl Module {
    /// Reads a file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let place = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..place].split(|&byte| byte == b'\n').count();
            unreadable(path, &format!("byte {place}, in line {line}, is not UTF-8; save the file as UTF-8"))
        })?;
        Self::new(SourceFile::new(path.display().to_string(), text), Some(path))
    }

    /// Makes a module from a text. Messages show `name` as its file. Imports of other files are not
    /// resolved.
    pub fn from_source(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Error> {
        Self::new(SourceFile::new(name, text), None)
    }

    fn new(file: SourceFile, path: Option<&Path>) -> Result<Self, Error> {
        let file = Arc::new(file);
        let host = SourceHost::from_file(&file, path)?;
        let functions = functions_of(host.syntax(), &file.text);
        let shared = Shared { host: Mutex::new(host), functions, file, kernels: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the names of the `@jit` functions, in order.
    pub fn kernel_names(&self) -> Vec<&str> {
        self.kernels().map(|function| function.name.as_str()).collect()
    }

    /// Returns the syntax tree of a kernel as text, one line for each node, without compiling the
    /// kernel.
    pub fn syntax_tree(&self, name: &str) -> Result<String, Error> {
        let kernel = self.kernel(name)?;
        Ok(syntax_tree(kernel.signature().source.as_ref()))
    }

    /// Returns the `@jit` function with this name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let mut kernels = self.shared.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = if let Some(kernel) = kernels.get(name) {
            Arc::clone(kernel)
        } else {
            let kernel = Arc::new(self.make_kernel(name)?);
            kernels.insert(name.to_owned(), Arc::clone(&kernel));
            kernel
        };
        Ok(Kernel { kernel, module: self.clone() })
    }

    fn kernels(&self) -> impl Iterator<Item = &FunctionSyntax> {
        self.shared.functions.iter().filter(|function| is_jit(function))
    }

    fn make_kernel(&self, name: &str) -> Result<runtime::Kernel, Error> {
        // If several kernels have this name, the last one counts, as in Python.
        let syntax = self.kernels().filter(|function| function.name == name).last();
        let syntax = syntax.ok_or_else(|| self.no_such_kernel(name))?;
        let mut host = self.shared.host.lock().unwrap_or_else(PoisonError::into_inner);
        let function = host.function(name).ok_or_else(|| self.no_such_kernel(name))?;
        let mut is_by_name = false;
        let parameters = syntax.parameters.iter().map(|written| {
            let annotation = written.annotation.as_deref().map_or(Annotation::None, Annotation::parse);
            if written.is_variadic {
                is_by_name = true;
                return Parameter::variadic(written.name.as_str(), annotation);
            }
            let default = written.default.as_ref().and_then(|_| host.default(function, &written.name));
            let kind = if is_by_name { ParameterKind::KeywordOnly } else { ParameterKind::Any };
            let parameter = Parameter::new(written.name.as_str(), annotation);
            Parameter { kind, default: default.map(to_value), ..parameter }
        });
        let parameters = parameters.collect();
        let source = FunctionSource {
            name: name.to_owned(),
            file: Arc::clone(&self.shared.file),
            offset: syntax.offset,
            noinline: false,
        };
        let signature = Signature { name: name.into(), parameters, source: Some(source) };
        Ok(runtime::Kernel::new(signature, function, Device::selected()?))
    }

    fn no_such_kernel(&self, name: &str) -> Error {
        let names = self.kernel_names();
        let file = &self.shared.file.name;
        let diagnostic = Diagnostic::new(Code::KernelNotFound, format!("{file} has no kernel '{name}'"));
        let diagnostic = if names.is_empty() {
            diagnostic.note("it has no function with the decorator @triton.jit")
        } else {
            diagnostic.note(format!("its kernels are {}", names.join(", ")))
        };
        match suggest(name, names.iter().copied()) {
            Some(similar) => diagnostic.hint(format!("did you mean '{similar}'?")),
            None => diagnostic,
        }
        .into()
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

    /// Returns the same kernel for launches on `device`, whatever device is selected.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        Self { kernel: Arc::new(self.kernel.on(device)), module: self.module.clone() }
    }

    /// Runs the kernel for every program of a grid, and compiles it first if necessary. Returns
    /// when all programs have ended; on a GPU, as soon as the launch is on the default stream.
    pub fn launch(&self, grid: impl IntoGrid, arguments: Arguments<'_>) -> Result<(), Error> {
        let grid = grid.into_grid()?;
        let (values, options) = self.bind(arguments)?;
        self.handle(&values, &options)?.launch(grid, &values, Interrupt::Never)
    }

    /// Compiles the kernel for these arguments, without running it.
    pub fn warmup(&self, arguments: Arguments<'_>) -> Result<Arc<Handle>, Error> {
        let (values, options) = self.bind(arguments)?;
        self.handle(&values, &options)
    }

    /// Compiles the kernel for arguments that a text describes: `*fp32,*fp32:16,i32,BLOCK=1024`.
    /// The syntax is that of `tilewright compile --signature`.
    pub fn compile(&self, signature: &str, options: &Options) -> Result<Handle, Error> {
        self.compile_for_launches(signature, options, false)
    }

    /// As [`compile`](Self::compile). With `tensor_maps`, code for a GPU may take tensor maps after
    /// its arguments; only the launches of a [`Handle`] make them.
    pub fn compile_for_launches(
        &self,
        signature: &str,
        options: &Options,
        tensor_maps: bool,
    ) -> Result<Handle, Error> {
        let arguments = self.signature().parse_arguments(signature)?;
        let mut host = self.module.shared.host.lock().unwrap_or_else(PoisonError::into_inner);
        self.kernel.compile_for(arguments, options, tensor_maps, &mut *host)
    }

    /// Returns the compiled variant for `values`, which has one value for each parameter. Compiles
    /// the variant if necessary.
    pub fn handle(&self, values: &[Value<'_>], options: &Options) -> Result<Arc<Handle>, Error> {
        if let Some(handle) = self.kernel.lookup(values, options)? {
            return Ok(handle);
        }
        let mut host = self.module.shared.host.lock().unwrap_or_else(PoisonError::into_inner);
        self.kernel.specialize(values, options, &mut *host)
    }

    /// Binds the arguments of a call. Returns one value for each parameter, and the options.
    fn bind<'m>(&self, arguments: Arguments<'m>) -> Result<(Vec<Value<'m>>, Options), Error> {
        let Arguments { mut positional, keywords } = arguments;
        if let Some(first) = self.signature().variadic().filter(|first| *first < positional.len()) {
            let rest = positional.split_off(first);
            positional.push(Value::Tuple(rest.into()));
        }
        let names: Vec<&str> = keywords.iter().map(|(name, _)| *name).collect();
        let binding = self.kernel.bind(positional.len(), &names)?;
        let mut options = Options::default();
        for &(index, option) in &binding.options {
            options.set(option, &to_constant(option.info().name, &keywords[index].1)?)?;
        }
        let values =
            binding.parameters.iter().zip(&self.signature().parameters).map(|(source, parameter)| {
                match *source {
                    ArgumentSource::Positional(index) => positional[index].clone(),
                    ArgumentSource::Keyword(index) => keywords[index].1.clone(),
                    ArgumentSource::Default => parameter.default.clone().unwrap_or(Value::None),
                }
            });
        Ok((values.collect(), options))
    }
}

fn unreadable(path: &Path, why: &str) -> Error {
    let message = format!("cannot read {}: {why}", path.display());
    Diagnostic::new(Code::KernelNotFound, message).into()
}

/// Returns whether a function has the decorator `jit`, by any path, with or without arguments.
/// Other decorators (`autotune`, `heuristics`) only matter to Python's launcher.
fn is_jit(function: &FunctionSyntax) -> bool {
    function.decorators.iter().any(|decorator| {
        let callee = decorator.split('(').next().unwrap_or("").trim();
        callee.rsplit('.').next() == Some("jit")
    })
}

/// Converts a default to the argument that a caller would pass.
fn to_value(value: HostValue) -> Value<'static> {
    match value {
        HostValue::Constant(Constant::None) => Value::None,
        HostValue::Constant(Constant::Bool(value)) => Value::Bool(value),
        HostValue::Constant(Constant::Int(value)) => Value::Int(value),
        HostValue::Constant(Constant::Float(value)) => Value::Float(value),
        value => Value::Constant { value, is_explicit: true },
    }
}
