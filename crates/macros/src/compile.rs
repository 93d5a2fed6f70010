//! Compiles the declared kernels, and packs their code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proc_macro2::{Span, TokenTree};
use tilewright_base::{Code, Diagnostic};
use tilewright_frontend::{Argument, Constant};
use tilewright_runtime::lock::{self, LockFile, Recorder};
use tilewright_runtime::{Consumer, Device, Error, OptionId, Options, SourceModule, Target};

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
        let module = SourceModule::from_file(&path).map_err(|error| {
            let relative = "\nnote: paths are relative to the folder of the Rust file";
            let note = if path.is_file() { "" } else { relative };
            syn::Error::new(file.path.span(), format!("{error}{note}"))
        })?;
        for declaration in &file.kernels {
            let options = options(declaration)?;
            let arguments = recording.add(&module, declaration, &options);
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
        options: &Options,
    ) -> Result<Vec<(Arc<str>, Argument)>, Error> {
        let kernel = module.kernel(&declaration.kernel.to_string())?.on(self.device);
        let arguments = kernel.signature().parse_arguments(&declaration.signature.value())?;
        let recorder = Recorder::new(&self.folder);
        module.with_host(|host| {
            let handle = kernel.compile_for(arguments.clone(), options, true, host)?;
            kernel.record_to(&recorder, &handle, host)
        })?;
        let names = kernel.signature().parameters.iter().map(|parameter| Arc::clone(&parameter.name));
        Ok(names.zip(arguments).collect())
    }

    fn pack(&self) -> Result<Vec<u8>, Error> {
        let path = self.folder.join("kernels.lock");
        let collected = lock::collect(&self.folder, &path)?;
        if let Some(failure) = collected.failures.into_iter().next() {
            return Err(Diagnostic::new(Code::InvalidLock, failure).into());
        }
        let packed = lock::pack(&collected.lock, &LockFile::artifacts(&path));
        packed.map_err(|error| Diagnostic::new(Code::InvalidLock, error.to_string()).into())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The folder may remain among the temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the options of a declaration. Refuses an option that does not change the code, because
/// the Rust program contains only the compiled code, not the options.
fn options(declaration: &Declaration) -> syn::Result<Options> {
    let mut options = Options::default();
    for (index, (name, value)) in declaration.options.iter().enumerate() {
        let refused = |error: &Error| failed(name.span(), error);
        let text = name.to_string();
        if declaration.options[..index].iter().any(|(known, _)| *known == text) {
            return Err(syn::Error::new(name.span(), format!("the option {text} is set twice")));
        }
        options.set_named(&text, &constant(value)).map_err(|error| refused(&error))?;
        let Some(option) = OptionId::parse(&text) else { continue };
        let reason = match option.info().consumer {
            Consumer::Launch | Consumer::CpuLaunch => "a function of `include_kernels!` launches without it",
            Consumer::Warned(instead) if options.get(option).is_true() => instead,
            _ => continue,
        };
        let message = format!("`include_kernels!` does not take the launch option {text}");
        let diagnostic = Diagnostic::new(Code::InvalidOption, message)
            .note(format!("the code does not depend on it, and {reason}"))
            .hint("leave it out, or launch a kernel of `Module::from_file`, which takes every option");
        return Err(refused(&diagnostic.into()));
    }
    Ok(options)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<Options, String> {
        let text = format!("mod kernels; from \"kernels.py\" {{ scale(\"*fp32\", {text}); }}");
        let included: Included = syn::parse_str(&text).expect("the text is a declaration");
        options(&included.files[0].kernels[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_the_code_are_set() {
        let options = set("num_warps = 8, debug = true, maxnreg = None, waves_per_eu = 2").unwrap();
        assert_eq!(options.get(OptionId::NumWarps), Constant::Int(8));
        assert_eq!(options.get(OptionId::Debug), Constant::Bool(true));
    }

    #[test]
    fn options_that_the_binary_cannot_keep_are_refused() {
        for (text, expected) in [
            ("sanitize = true", "TW0108"),
            ("warmup = false", "TW0108"),
            ("grid = 1", "TW0108"),
            ("stream = 0", "TW0108"),
            ("launch_pdl = true", "include_kernels!` does not take the launch option launch_pdl"),
            ("launch_cooperative_grid = true", "launches without it"),
            ("num_cpu_threads = 1", "does not take the launch option num_cpu_threads"),
            ("clc = true", "the GPU schedules programs in the usual way"),
            ("num_warps = 3", "TW0108"),
            ("num_wraps = 4", "did you mean 'num_warps'?"),
            ("num_warps = 4, num_warps = 8", "the option num_warps is set twice"),
        ] {
            let error = set(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        set("clc = false").expect("false requests nothing");
    }
}
