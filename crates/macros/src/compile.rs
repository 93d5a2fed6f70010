//! Compiles the declared kernels, and packs their code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proc_macro2::{Span, TokenTree};
use tilewright_frontend::{Argument, Constant};
use tilewright_runtime::lock::{self, LockFile, Recorder};
use tilewright_runtime::{Device, Error, Options, SourceModule, Target};

use crate::declaration::{Declaration, Included};

pub(crate) struct Compiled {
    /// The packed lock.
    pub(crate) bundle: Vec<u8>,
    /// For each declaration, the names of the kernel's parameters and their declared arguments.
    pub(crate) kernels: Vec<Vec<(Arc<str>, Argument)>>,
    /// The Python files of the kernels, and the files that they import.
    pub(crate) files: Vec<PathBuf>,
}

/// Compiles the kernels for each target. `folder` is the folder of the file that invokes the macro.
pub(crate) fn compile(included: &Included, folder: Option<&Path>) -> syn::Result<Compiled> {
    let recording = Recording::begin(included)?;
    let (mut kernels, mut files) = (Vec::new(), Vec::new());
    for file in &included.files {
        let path = folder.map_or_else(|| file.path.value().into(), |folder| folder.join(file.path.value()));
        let path = std::path::absolute(&path).unwrap_or(path);
        let module = SourceModule::from_file(&path).map_err(|error| failed(file.path.span(), &error))?;
        for declaration in &file.kernels {
            let arguments = recording.add(&module, declaration);
            kernels.push(arguments.map_err(|error| failed(declaration.signature.span(), &error))?);
        }
        files.extend(module.paths());
    }
    files.sort();
    files.dedup();
    let bundle = recording.pack().map_err(|error| failed(Span::call_site(), &error))?;
    Ok(Compiled { bundle, kernels, files })
}

/// A recording of a lock. Its folder is deleted when the recording is dropped.
struct Recording {
    folder: PathBuf,
    /// The device for which each kernel is compiled first: the CPU, or the simulator of the first
    /// target. The recorder then compiles for each target.
    device: Device,
}

impl Recording {
    fn begin(included: &Included) -> syn::Result<Self> {
        let mut targets = Vec::new();
        for name in &included.targets {
            let target = Target::parse(&name.value()).ok_or_else(|| {
                let known = Target::names().join(", ");
                syn::Error::new(name.span(), format!("no target '{}': expected one of {known}", name.value()))
            })?;
            targets.push(target);
        }
        let Some(first) = targets.first() else {
            return Err(syn::Error::new(included.name.span(), "`targets` is empty"));
        };
        let device = Device::simulating(*first).unwrap_or(Device::Cpu);
        let number = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let number = number.map_or(0, |time| time.as_nanos());
        let name = format!("tilewright-kernels-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        lock::begin_recording(&folder, &targets).map_err(|error| failed(Span::call_site(), &error))?;
        Ok(Self { folder, device })
    }

    /// Compiles and records a kernel. Returns its parameters and arguments.
    fn add(
        &self,
        module: &SourceModule,
        declaration: &Declaration,
    ) -> Result<Vec<(Arc<str>, Argument)>, Error> {
        let mut options = Options::default();
        for (name, value) in &declaration.options {
            options.set_named(&name.to_string(), &constant(value))?;
        }
        let kernel = module.kernel(&declaration.kernel.to_string())?.on(self.device);
        let arguments = kernel.signature().parse_arguments(&declaration.signature.value())?;
        let recorder = Recorder::new(&self.folder);
        module.with_host(|host| {
            let handle = kernel.compile_for(arguments.clone(), &options, true, host)?;
            kernel.record_to(&recorder, &handle, host)
        })?;
        let names = kernel.signature().parameters.iter().map(|parameter| Arc::clone(&parameter.name));
        Ok(names.zip(arguments).collect())
    }

    fn pack(&self) -> Result<Vec<u8>, Error> {
        let path = self.folder.join("kernels.lock");
        let collected = lock::collect(&self.folder, &path)?;
        if let Some(failure) = collected.failures.into_iter().next() {
            return Err(tilewright_base::Diagnostic::new(tilewright_base::Code::InvalidLock, failure).into());
        }
        let packed = lock::pack(&collected.lock, &LockFile::artifacts(&path));
        packed.map_err(|error| {
            tilewright_base::Diagnostic::new(tilewright_base::Code::InvalidLock, error.to_string()).into()
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The folder may remain among the temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the value of an option: `true`, `false`, `None` or an integer. Any other token becomes a
/// string, which most options refuse.
fn constant(value: &TokenTree) -> Constant {
    let text = value.to_string();
    match text.as_str() {
        "true" => Constant::Bool(true),
        "false" => Constant::Bool(false),
        "None" => Constant::None,
        _ => match text.parse() {
            Ok(number) => Constant::Int(number),
            Err(_) => Constant::Str(text.trim_matches('"').into()),
        },
    }
}

fn failed(span: Span, error: &Error) -> syn::Error {
    syn::Error::new(span, error.to_string())
}
