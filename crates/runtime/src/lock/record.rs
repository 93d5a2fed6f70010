//! Records the kernels that a program compiles, and collects them into a lock.
//!
//! A recording is a folder. Each process of the program adds a file for each kernel. The name of
//! the file is the hash of its content, so processes need no mutual exclusion:
//!
//! ```text
//! folder/targets      the targets, one on each line; if empty, the target of each launch
//!        entries/     one JSON file for each compiled kernel
//!        choices/     one JSON file for each choice of a tuner
//!        failures/    one text for each kernel that has no code for a target
//!        artifacts/   the texts and cubins
//! ```

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tilewright_base::{Code, Diagnostic, write_file};
use tilewright_compiler::{
    CompiledKernel, GpuCode, Job, MachineCode, StoredGpuCode, StoredKernel, Target, TensorMapVariant,
    compile_lowered, ir_digest, lower, remove_folders,
};
use tilewright_frontend::Host;
use tilewright_lock::{Artifacts, Choice, Code as StoredCode, Entry, LockError, LockFile, Request, Source};

use super::active::unusable;
use super::request::Compilation;
use crate::loaded::Loaded;
use crate::{Device, Error, Handle, Knobs, Options};

/// The folder that a program is recorded in.
#[derive(Clone, Debug)]
pub struct Recorder {
    folder: PathBuf,
}

thread_local! {
    /// The number of active [`suspend_recording`] calls on this thread.
    static SUSPENDED: Cell<u32> = const { Cell::new(0) };
}

/// Stops recording the kernels that this thread compiles, until [`resume_recording`]. A tuner calls
/// this, because it compiles configurations that it does not choose.
pub fn suspend_recording() {
    SUSPENDED.set(SUSPENDED.get() + 1);
}

/// Ends the effect of one [`suspend_recording`].
pub fn resume_recording() {
    SUSPENDED.set(SUSPENDED.get().saturating_sub(1));
}

/// Returns whether this process records the kernels that it compiles.
pub fn is_recording() -> bool {
    Knobs::current().lock_record.is_some()
}

/// Returns whether this thread records the kernels that it compiles.
pub fn is_recording_here() -> bool {
    SUSPENDED.get() == 0 && is_recording()
}

/// Returns the recorder, if this thread records the kernels that it compiles.
pub(crate) fn recorder(knobs: &Knobs) -> Option<Recorder> {
    let folder = knobs.lock_record.as_ref().filter(|_| SUSPENDED.get() == 0)?;
    Some(Recorder { folder: folder.clone() })
}

impl Recorder {
    /// Creates a recorder for a folder that [`begin_recording`] has created.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Compiles a kernel for each target of the recording, and adds the results. `job` is a
    /// compilation that succeeded, for a launch on `device`. A target without code for the kernel
    /// is recorded as a failure.
    ///
    /// # Errors
    /// If the folder cannot be written, or if the compilation for the target of `job` fails.
    pub(crate) fn record(
        &self,
        (name, job): (&str, &Job),
        device: Device,
        options: &Options,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        for target in self.targets(job.target) {
            match self.add(name, job, target, (device, options), host) {
                Ok(()) => {}
                Err(error) if target == job.target => return Err(error),
                Err(error) => {
                    let text = format!("kernel '{name}' has no code for {target}: {error}\n");
                    self.write("failures", "txt", text.as_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Returns the targets of the recording; `own` if it lists none.
    fn targets(&self, own: Target) -> Vec<Target> {
        let listed = fs::read_to_string(self.folder.join("targets")).unwrap_or_default();
        let targets: Vec<Target> = listed.lines().filter_map(Target::parse).collect();
        if targets.is_empty() { vec![own] } else { targets }
    }

    fn add(
        &self,
        name: &str,
        job: &Job,
        target: Target,
        (device, options): (Device, &Options),
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        options.check(target)?;
        let mut job = Job { target, ..job.clone() };
        job.request.options = options.language_for(target, false);
        let mut lowered = lower(&job, host)?;
        remove_folders(&mut lowered.module);
        let kernel = compile_lowered(&job, None, lowered, &mut |_, _| {})?;
        let code = match &*kernel.code {
            MachineCode::Gpu(code) => Some(&**code),
            MachineCode::Cpu(_) => None,
        };
        self.store(&Compilation::of(name, &job), (&kernel, code), (device, options))
    }

    /// Adds a variant of a kernel, for the device of its launch.
    ///
    /// # Errors
    /// If the folder cannot be written, or if the variant cannot be compiled.
    pub(crate) fn record_variant(&self, handle: &Handle, variant: &TensorMapVariant) -> Result<(), Error> {
        let kernel = handle.compiled.without_folders();
        let code = kernel.without_tensor_maps(variant)?;
        let compilation = handle.compilation(true, Some(variant));
        self.store(&compilation, (&kernel, code.as_ref()), (handle.device(), handle.options()))
    }

    /// Writes the artifacts and the entry of a kernel. `code` is its code for a GPU.
    fn store(
        &self,
        compilation: &Compilation,
        (kernel, code): (&CompiledKernel, Option<&GpuCode>),
        (device, options): (Device, &Options),
    ) -> Result<(), Error> {
        let artifacts = Artifacts::new(self.folder.join("artifacts"));
        let store = |kind: &str, content: &[u8]| {
            artifacts.store(kind, content).map_err(|error| unwritable(artifacts.folder(), &error))
        };
        let StoredKernel { ir, opt, gpu: _ } = StoredKernel::of(kernel);
        let mut sources = Vec::new();
        for (_, file) in kernel.lowered.sources.files() {
            sources.push(Source {
                name: file.name.clone(),
                text: store("py", file.text.as_bytes())?,
                first_line: file.first_line,
                removed_columns: file.removed_columns,
            });
        }
        let mut stored = StoredCode {
            ir: store("ir", ir.as_bytes())?,
            opt: store("opt", opt.as_bytes())?,
            ..StoredCode::default()
        };
        if let Some(code) = code {
            let StoredGpuCode { program, ptx, cubin: _ } = StoredGpuCode::of(code);
            stored.gpu = Some(store("gpu", program.as_bytes())?);
            stored.ptx = Some(store("ptx", ptx.as_bytes())?);
            let cubin = cubin(&kernel.name, code, device, options)?;
            stored.cubin = cubin.map(|cubin| store("cubin", &cubin)).transpose()?;
        }
        let launches = compilation.request(ir_digest(&kernel.lowered));
        let launch = compilation.launch(kernel, code);
        let entry = Entry { launches, code: stored, sources, launch };
        let text = serde_json::to_string(&entry).expect("every field has a JSON form");
        self.write("entries", "json", text.as_bytes())
    }

    fn write(&self, kind: &str, extension: &str, content: &[u8]) -> Result<(), Error> {
        let folder = self.folder.join(kind);
        let path = folder.join(format!("{}.{extension}", Artifacts::hash(content)));
        let written = fs::create_dir_all(&folder).and_then(|()| write_file(&path, content));
        written.map_err(|error| unwritable(&path, &error))
    }
}

/// Assembles the code for the device of a launch. Returns `None` if the code is for another device.
fn cubin(name: &str, code: &GpuCode, device: Device, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    if !matches!(device, Device::Cuda(_)) || device.target()? != Target::Gpu(code.target) {
        return Ok(None);
    }
    let loaded = Loaded::new(name, code, device, options)?;
    Ok(loaded.cubin().map(<[u8]>::to_vec))
}

/// Adds the choice of a tuner to the recording of this process, for each target of the recording.
/// Does nothing if this process makes no recording.
///
/// # Errors
/// If the folder cannot be written.
pub fn record_choice(choice: &Choice) -> Result<(), Error> {
    let Some(recorder) = recorder(&Knobs::current()) else { return Ok(()) };
    let own = Target::parse(&choice.target);
    for target in recorder.targets(own.unwrap_or(Target::Cpu)) {
        let choice = Choice { target: target.to_string(), ..choice.clone() };
        let text = serde_json::to_string(&choice).expect("every field has a JSON form");
        recorder.write("choices", "json", text.as_bytes())?;
    }
    Ok(())
}

/// Creates the folder of a recording for these targets. Without targets, a kernel is recorded for
/// the device of its launch.
///
/// # Errors
/// If the folder cannot be written.
pub fn begin_recording(folder: &Path, targets: &[Target]) -> Result<(), Error> {
    let text = targets.iter().map(Target::to_string).collect::<Vec<_>>().join("\n");
    let path = folder.join("targets");
    let written = fs::create_dir_all(folder).and_then(|()| write_file(&path, text.as_bytes()));
    written.map_err(|error| unwritable(&path, &error))
}

/// Returns the launches in a recording, sorted.
///
/// # Errors
/// If the recording cannot be read.
pub fn recorded_launches(folder: &Path) -> Result<Vec<Request>, Error> {
    let mut entries: Vec<Entry> = read_all(&folder.join("entries"))?;
    entries.sort();
    Ok(entries.into_iter().map(|entry| entry.launches).collect())
}

/// The contents of a recording.
#[derive(Debug)]
pub struct Collected {
    /// The entries and choices.
    pub lock: LockFile,
    /// The kernels that have no code for a target, as texts.
    pub failures: Vec<String>,
}

/// Writes the recording in `folder` as a lock at `path`, and its artifacts beside the lock. If
/// there are several choices for the same launches, keeps only the fastest.
///
/// # Errors
/// If the recording cannot be read, or the lock cannot be written.
pub fn collect(folder: &Path, path: &Path) -> Result<Collected, Error> {
    let mut lock = LockFile::new(env!("CARGO_PKG_VERSION"));
    lock.entries = read_all(&folder.join("entries"))?;
    lock.choices = read_all(&folder.join("choices"))?;
    lock.keep_fastest_choices();
    let mut failures = Vec::new();
    for file in files(&folder.join("failures"))? {
        failures.push(fs::read_to_string(&file).map_err(|error| LockError::Unreadable(file, error))?);
    }
    let recorded = Artifacts::new(folder.join("artifacts"));
    let artifacts = LockFile::artifacts(path);
    for (kind, hash) in lock.entries.iter().flat_map(Entry::artifacts) {
        let content = recorded.read(hash, kind).map_err(|error| unusable(&error))?;
        artifacts.store(kind, &content).map_err(|error| unwritable(artifacts.folder(), &error))?;
    }
    lock.write(path).map_err(|error| unwritable(path, &error))?;
    Ok(Collected { lock, failures })
}

fn read_all<T: serde::de::DeserializeOwned>(folder: &Path) -> Result<Vec<T>, Error> {
    let mut found = Vec::new();
    for path in files(folder)? {
        let text = fs::read_to_string(&path).map_err(|error| LockError::Unreadable(path.clone(), error))?;
        let parsed = serde_json::from_str(&text);
        found.push(parsed.map_err(|error| LockError::Malformed(path, error.to_string()))?);
    }
    Ok(found)
}

/// Returns the files of a folder, sorted, without temporary files; none if there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |error: io::Error| LockError::Unreadable(folder.to_owned(), error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Diagnostic::new(Code::InvalidLock, format!("{} cannot be written: {error}", path.display())).into()
}
