//! Opens the driver at its first use, and explains why a machine has none.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::device::{Device, DeviceSlot};
use crate::sys::{self, Functions, NEEDED};
use crate::{Error, Settings, Version};

/// The CUDA driver of this process. It stays loaded until the process ends, because a driver cannot
/// be unloaded.
pub struct Driver {
    functions: Functions,
    library: String,
    version: Version,
    identity: String,
    slots: Box<[DeviceSlot]>,
}

impl Driver {
    /// Returns the driver. The first call opens the library that [`Settings::from_environment`]
    /// names. Later calls return the same result, even if it is an error.
    ///
    /// # Errors
    /// Each error is one line. The cases are:
    ///
    /// - There is no driver library, or the library is not a driver.
    /// - The driver is too old, or its initialization fails.
    /// - There is no GPU.
    pub fn get() -> Result<&'static Self, Error> {
        static DRIVER: OnceLock<Result<&'static Driver, Error>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::open(Settings::from_environment().library.as_deref())).clone()
    }

    /// Opens the library at a path, or the driver library of the system. Only programs with their
    /// own driver, such as tests, need this method. Other programs call [`Driver::get`].
    pub fn open(library: Option<&Path>) -> Result<&'static Self, Error> {
        let (opened, library) = open_library(library)?;
        let functions = Functions::load(&opened, &library)?;
        // The threads and exit handlers of the library need its code, so it is never closed.
        std::mem::forget(opened);
        let identity = String::new();
        let mut driver = Self { functions, library, version: NEEDED, identity, slots: Box::default() };
        driver.version = Version::from_code(driver.driver_version()?);
        if driver.version < NEEDED {
            return Err(Error::DriverTooOld { found: driver.version, needed: NEEDED });
        }
        let count =
            driver.init().and_then(|()| driver.device_count()).map_err(|error| driver.explain_init(error))?;
        if count == 0 {
            return Err(Error::NoDevice { driver: driver.version });
        }
        fork::watch();
        driver.identity = driver.identify();
        driver.slots =
            (0..count).map(|ordinal| DeviceSlot::new(&driver, ordinal)).collect::<Result<_, _>>()?;
        Ok(Box::leak(Box::new(driver)))
    }

    /// Returns the text for [`Self::identity`]. Releases with the same version of CUDA may have
    /// different assemblers. The text therefore contains the name and the size of the library's
    /// file.
    fn identify(&self) -> String {
        let file = crate::calls::file_of(self.functions.cuInit);
        let name = file.as_ref().and_then(|file| file.file_name()).unwrap_or_default();
        let bytes = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
        format!("CUDA {}, {}, {bytes} bytes", self.version, name.to_string_lossy())
    }

    fn explain_init(&self, error: Error) -> Error {
        match &error {
            Error::Call(call) if call.code == sys::NO_DEVICE => Error::NoDevice { driver: self.version },
            Error::Call(call) if call.code == sys::STUB_LIBRARY => {
                let reason = format!(
                    "{} is the stub library of the CUDA toolkit, which is only for linking",
                    self.library
                );
                Error::NoLibrary { reasons: vec![reason] }
            }
            Error::Call(call) => Error::NotReady { driver: self.version, cause: call.clone() },
            _ => error,
        }
    }

    /// Returns the newest version of CUDA that the driver supports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the name by which the library was opened.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Returns a text that identifies this release of the driver. Keys of cached cubins contain the
    /// text.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the number of GPUs.
    pub fn num_devices(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns a GPU by its ordinal, counted from 0. The GPU may be too old;
    /// [`crate::Context::primary`] checks this.
    pub fn device(&'static self, ordinal: u32) -> Result<Device, Error> {
        if ordinal < self.num_devices() {
            return Ok(Device::new(self, ordinal));
        }
        Err(Error::NoSuchDevice { ordinal, count: self.num_devices() })
    }

    /// Returns all GPUs.
    pub fn devices(&'static self) -> impl Iterator<Item = Device> {
        (0..self.num_devices()).map(move |ordinal| Device::new(self, ordinal))
    }

    pub(crate) fn slot(&self, ordinal: u32) -> &DeviceSlot {
        &self.slots[ordinal as usize]
    }

    /// Returns the driver's functions. Returns an error if this process was forked after the driver
    /// was initialized.
    pub(crate) fn functions(&self) -> Result<&Functions, Error> {
        if fork::happened() { Err(Error::Forked) } else { Ok(&self.functions) }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({}, CUDA {})", self.library, self.version)
    }
}

/// The file names of the driver library. The linker may not search the folder of the Windows
/// Subsystem for Linux.
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];

/// Opens the driver library: the library or the folder at `path`, else the library of the system.
fn open_library(path: Option<&Path>) -> Result<(Library, String), Error> {
    let candidates: Vec<PathBuf> = match path {
        Some(path) if path.is_dir() => {
            NAMES[..NAMES.len().min(2)].iter().map(|name| path.join(name)).collect()
        }
        Some(path) => vec![path.to_owned()],
        None => NAMES.iter().map(PathBuf::from).collect(),
    };
    let mut reasons = Vec::new();
    for candidate in &candidates {
        match crate::calls::open_library(candidate) {
            Ok(library) => return Ok((library, candidate.display().to_string())),
            // The first candidate has the usual name, so its error is reported.
            Err(reason) if reasons.is_empty() => reasons.push(reason),
            Err(_) => {}
        }
    }
    Err(Error::NoLibrary { reasons })
}

/// Detects that the process was forked after the driver was initialized. CUDA fails with misleading
/// errors in the child. A handler of `pthread_atfork` sets a flag, so that a launch needs no system
/// call.
mod fork {
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAPPENED: AtomicBool = AtomicBool::new(false);

    pub(super) fn happened() -> bool {
        HAPPENED.load(Ordering::Relaxed)
    }

    #[cfg(unix)]
    pub(super) fn watch() {
        extern "C" fn in_child() {
            HAPPENED.store(true, Ordering::Relaxed);
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| crate::calls::at_fork(in_child));
    }

    #[cfg(not(unix))]
    pub(super) fn watch() {}
}
