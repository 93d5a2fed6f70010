//! Reads the kernels of a Python source file without running Python.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tilewright_base::{Code, Diagnostic, SourceFile};
use tilewright_compiler::{FunctionSyntax, functions_of, syntax_tree};
use tilewright_frontend::{Constant, FunctionSource, Host, HostValue, SourceHost, suggest};

use crate::signature::{Annotation, Parameter, ParameterKind, Signature};
use crate::{Device, Error, Kernel, Value};

/// The text of a Python module that defines kernels, and the modules that it imports. Threads may
/// share a module.
pub struct SourceModule {
    file: Arc<SourceFile>,
    functions: Vec<FunctionSyntax>,
    host: Mutex<SourceHost>,
    kernels: Mutex<FxHashMap<String, Arc<Kernel>>>,
}

impl std::fmt::Debug for SourceModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceModule").field("file", &self.file.name).finish_non_exhaustive()
    }
}

impl SourceModule {
    /// Reads a file, and the imported modules in the same folder or package.
    ///
    /// # Errors
    /// If the file cannot be read, or is not valid Python.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let place = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..place].split(|&byte| byte == b'\n').count();
            unreadable(path, &format!("byte {place}, in line {line}, is not UTF-8; save the file as UTF-8"))
        })?;
        Self::new(SourceFile::new(path.display().to_string(), text), Some(path))
    }

    /// Creates a module from a text. With the path of its file, also reads the modules that the
    /// text imports.
    ///
    /// # Errors
    /// If the text is not valid Python.
    pub fn new(file: SourceFile, path: Option<&Path>) -> Result<Self, Error> {
        let file = Arc::new(file);
        let host = SourceHost::from_file(&file, path)?;
        let functions = functions_of(host.syntax(), &file.text);
        Ok(Self { host: Mutex::new(host), functions, file, kernels: Mutex::default() })
    }

    /// Returns the names of the `@jit` functions, in order.
    pub fn kernel_names(&self) -> Vec<&str> {
        self.jit_functions().map(|function| function.name.as_str()).collect()
    }

    /// Returns the paths of the files that the module was read from.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.with_host(|host| host.paths().map(Path::to_owned).collect())
    }

    /// Returns the syntax tree of a kernel as text, one line for each node, without compiling the
    /// kernel.
    ///
    /// # Errors
    /// If the module has no such kernel.
    pub fn syntax_tree(&self, name: &str) -> Result<String, Error> {
        Ok(syntax_tree(self.kernel(name)?.signature().source.as_ref()))
    }

    /// Returns the `@jit` function with this name, with the variants that were compiled so far.
    ///
    /// # Errors
    /// If the module has no such kernel.
    pub fn kernel(&self, name: &str) -> Result<Arc<Kernel>, Error> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(self.make_kernel(name)?);
        kernels.insert(name.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Calls a function with the host that resolves the names of the module. Other threads wait for
    /// the host.
    pub fn with_host<R>(&self, call: impl FnOnce(&mut SourceHost) -> R) -> R {
        call(&mut self.host.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn jit_functions(&self) -> impl Iterator<Item = &FunctionSyntax> {
        self.functions.iter().filter(|function| is_jit(function))
    }

    fn make_kernel(&self, name: &str) -> Result<Kernel, Error> {
        // Of several kernels with this name, the last one counts, as in Python.
        let syntax = self.jit_functions().filter(|function| function.name == name).last();
        let syntax = syntax.ok_or_else(|| self.no_such_kernel(name))?;
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
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
            file: Arc::clone(&self.file),
            offset: syntax.offset,
            noinline: false,
        };
        let signature = Signature { name: name.into(), parameters, source: Some(source) };
        Ok(Kernel::new(signature, function, Device::selected()?))
    }

    fn no_such_kernel(&self, name: &str) -> Error {
        let names = self.kernel_names();
        let file = &self.file.name;
        if names.contains(&name) {
            let message = format!("kernel '{name}' of {file} cannot be compiled without Python");
            return Diagnostic::new(Code::KernelNotFound, message)
                .note("its decorator is neither @triton.jit nor @gluon.jit")
                .hint("run its program with TILEWRIGHT_DUMP=folder, which writes every stage of each kernel")
                .into();
        }
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

fn unreadable(path: &Path, why: &str) -> Error {
    let message = format!("cannot read {}: {why}", path.display());
    Diagnostic::new(Code::KernelNotFound, message).into()
}

/// Returns whether a function has the decorator `jit`, with or without a module and arguments.
/// Other decorators (`autotune`) only affect Python's launcher.
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
