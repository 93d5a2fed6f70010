//! Opens CUPTI, NVIDIA's profiling library, and reads the times of kernels from it.
//!
//! CUPTI requests buffers from this module, writes records into them and returns them. A launch
//! between [`Cupti::push`] and [`Cupti::pop`] has an external correlation id:
//!
//! ```text
//! external id ──record──> id of the driver's call ──record──> start and end of the kernel
//! ```
//! Kernels without an external id are skipped, because other libraries launch them. The fields that
//! this module reads have had the same offsets since CUDA 9.
#![expect(unsafe_code, reason = "a C library that calls back")]

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Version;
use crate::calls::open_library;

/// `CUptiResult`; 0 is success.
type Code = i32;

/// `CUpti_ActivityKind`.
mod kind {
    pub(super) const KERNEL: u32 = 3;
    pub(super) const DRIVER: u32 = 4;
    pub(super) const CONCURRENT_KERNEL: u32 = 10;
    pub(super) const EXTERNAL_CORRELATION: u32 = 39;
}

/// The kinds of records that CUPTI writes. External ids belong to calls of the driver.
const KINDS: [u32; 3] = [kind::EXTERNAL_CORRELATION, kind::DRIVER, kind::CONCURRENT_KERNEL];

/// The kind of the external correlation ids of this module:
/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`. Torch uses the two other custom kinds.
const OWN: u32 = 5;

const FLUSH_FORCED: u32 = 1;

/// The size of a buffer in 8-byte words. The 512 KiB hold the records of more than 1000 launches.
const BUFFER_WORDS: usize = 64 << 10;

// CUPTI declares the buffer as bytes, but requires an alignment of 8 bytes.
type Requested = extern "system" fn(*mut *mut u64, *mut usize, *mut usize);
type Completed = extern "system" fn(*mut c_void, u32, *mut u64, usize, usize);

/// The offsets of fields in a record, in bytes.
mod offset {
    pub(super) const KIND: usize = 0;
    pub(super) const KERNEL_START: usize = 16;
    pub(super) const KERNEL_END: usize = 24;
    pub(super) const KERNEL_CORRELATION: usize = 92;
    pub(super) const EXTERNAL_KIND: usize = 4;
    pub(super) const EXTERNAL_ID: usize = 8;
    pub(super) const EXTERNAL_CORRELATION: usize = 16;
}

macro_rules! functions {
    ($($name:ident: $field:ident($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "system" fn($($argument),*) -> Code,)*
        }

        impl Functions {
            fn load(opened: &libloading::Library, library: &str) -> Result<Self, String> {
                Ok(Self {
                    $(
                        // SAFETY: CUPTI's header has declared the function with this type since the
                        // first version that has the function.
                        $field: *unsafe { opened.get(concat!(stringify!($name), "\0")) }
                            .map_err(|_| format!("`{library}` has no function `{}`", stringify!($name)))?,
                    )*
                })
            }
        }
    };
}

functions! {
    cuptiActivityRegisterCallbacks: register(Requested, Completed);
    cuptiActivityEnable: enable(u32);
    cuptiActivityDisable: disable(u32);
    cuptiActivityFlushAll: flush(u32);
    cuptiActivityGetNextRecord: next(*mut u8, usize, *mut *mut u8);
    cuptiActivityPushExternalCorrelationId: push(u32, u64);
    cuptiActivityPopExternalCorrelationId: pop(u32, *mut u64);
    cuptiGetTimestamp: timestamp(*mut u64);
    cuptiGetResultString: text(Code, *mut *const c_char);
}

/// The times of a kernel in nanoseconds of CUPTI's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelTime {
    /// The external correlation id of the kernel's launch.
    pub number: u64,
    /// The time at which the kernel began.
    pub start: u64,
    /// The time at which the kernel ended.
    pub end: u64,
}

/// CUPTI in this process. This type has only one value, because CUPTI's callbacks have no argument
/// for data of the caller.
pub struct Cupti {
    functions: Functions,
    library: String,
}

/// The contents of the returned records. The records of one launch may be in several buffers.
#[derive(Default)]
struct CollectedRecords {
    /// The correlation id of each call of the driver, and its external correlation id.
    numbers: Vec<(u32, u64)>,
    /// For each kernel, the correlation id of the call that launched it, its start and its end.
    kernels: Vec<(u32, u64, u64)>,
}

static CUPTI: OnceLock<Result<Cupti, String>> = OnceLock::new();
static RECORDS: Mutex<CollectedRecords> =
    Mutex::new(CollectedRecords { numbers: Vec::new(), kernels: Vec::new() });

fn with_records<T>(work: impl FnOnce(&mut CollectedRecords) -> T) -> T {
    work(&mut RECORDS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Cupti {
    /// Returns the library. The first call opens the library; later calls return the same result.
    /// The error is one line.
    ///
    /// `TILEWRIGHT_CUPTI` is the path of the library or of its folder; `off` or `0` disables CUPTI.
    /// Without this variable, the function searches these folders in order:
    ///
    /// 1. the folder `TRITON_CUPTI_LIB_PATH`
    /// 2. the system's folders
    /// 3. `folders`
    /// 4. the CUDA toolkit
    ///
    /// A library does not work if it has a newer major version than the driver. The function
    /// therefore does not try a library whose name has such a version.
    pub fn get(driver: Version, folders: &[PathBuf]) -> Result<&'static Self, &'static str> {
        let cupti = CUPTI.get_or_init(|| Self::open(&candidates(driver, folders)?));
        cupti.as_ref().map_err(String::as_str)
    }

    /// Opens the first usable candidate, or else returns the error of the first candidate that
    /// could be opened, or else that of the first candidate.
    fn open(candidates: &[PathBuf]) -> Result<Self, String> {
        let (mut refused, mut absent) = (None, None);
        for candidate in candidates {
            match open_library(candidate) {
                Ok(opened) => match Self::register(opened, candidate.display().to_string()) {
                    Ok(cupti) => return Ok(cupti),
                    Err(reason) => drop(refused.get_or_insert(reason)),
                },
                Err(reason) => drop(absent.get_or_insert(reason)),
            }
        }
        Err(refused.or(absent).unwrap_or_else(|| "no library is named".into()))
    }

    fn register(opened: libloading::Library, library: String) -> Result<Self, String> {
        let functions = Functions::load(&opened, &library)?;
        // CUPTI has its own threads and handlers, so the library is never closed.
        std::mem::forget(opened);
        let cupti = Self { functions, library };
        // SAFETY: both functions have the types of CUPTI's header, and live as long as the process.
        let code = unsafe { (cupti.functions.register)(requested, completed) };
        cupti.check("cuptiActivityRegisterCallbacks", code)?;
        Ok(cupti)
    }

    /// Returns the name by which the library was opened.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Starts the recording of kernels. The error is one line.
    pub fn start(&self) -> Result<(), String> {
        for kind in KINDS {
            // SAFETY: the argument is an integer.
            let code = unsafe { (self.functions.enable)(kind) };
            self.check("cuptiActivityEnable", code).inspect_err(|_| self.stop())?;
        }
        Ok(())
    }

    /// Ends the recording of kernels.
    pub fn stop(&self) {
        for kind in KINDS {
            // SAFETY: the argument is an integer. The code is ignored, because disabling a kind
            // that is not enabled is harmless.
            unsafe { (self.functions.disable)(kind) };
        }
    }

    /// Sets the external correlation id of later launches of this thread.
    pub fn push(&self, number: u64) -> Result<(), String> {
        // SAFETY: the arguments are integers.
        self.check("cuptiActivityPushExternalCorrelationId", unsafe { (self.functions.push)(OWN, number) })
    }

    /// Removes the external correlation id that was pushed last on this thread.
    pub fn pop(&self) {
        // SAFETY: CUPTI writes the removed id through the pointer. The error is ignored, because
        // the caller could not handle it.
        unsafe { (self.functions.pop)(OWN, &mut 0) };
    }

    /// Returns the current time in nanoseconds of CUPTI's clock. The times of kernels are from the
    /// same clock.
    pub fn clock(&self) -> Result<u64, String> {
        let mut now = 0;
        // SAFETY: CUPTI writes a number through the pointer.
        self.check("cuptiGetTimestamp", unsafe { (self.functions.timestamp)(&raw mut now) })?;
        Ok(now)
    }

    /// Returns the kernels with an external correlation id that have ended since the last call. The
    /// caller must first synchronize with the devices of these kernels.
    pub fn take(&self) -> Result<Vec<KernelTime>, String> {
        // A plain flush skips buffers that have a record of a running kernel.
        for flag in [0, FLUSH_FORCED] {
            // SAFETY: the argument is an integer. During the call, CUPTI calls `completed` below.
            self.check("cuptiActivityFlushAll", unsafe { (self.functions.flush)(flag) })?;
        }
        let CollectedRecords { mut numbers, kernels } = with_records(std::mem::take);
        numbers.sort_unstable();
        let times = kernels.into_iter().filter_map(|(call, start, end)| {
            let at = numbers.binary_search_by_key(&call, |&(call, _)| call).ok()?;
            // A start of 0 means that the times are unknown.
            (start != 0 && end >= start).then_some(KernelTime { number: numbers[at].1, start, end })
        });
        Ok(times.collect())
    }

    fn check(&self, call: &str, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: CUPTI sets `text`.
        let is_known = unsafe { (self.functions.text)(code, &raw mut text) } == 0 && !text.is_null();
        let name = if is_known {
            // SAFETY: the text belongs to CUPTI, and lives as long as the library.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        } else {
            "unknown".into()
        };
        Err(format!("{call} of `{}` returns {name} ({code})", self.library))
    }
}

impl std::fmt::Debug for Cupti {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cupti({})", self.library)
    }
}

extern "system" fn requested(buffer: *mut *mut u64, size: *mut usize, most: *mut usize) {
    let memory = vec![0_u64; BUFFER_WORDS].into_boxed_slice();
    // SAFETY: CUPTI passes valid pointers for the results, and passes the buffer to `completed`
    // exactly once.
    unsafe {
        buffer.write(Box::into_raw(memory).cast());
        size.write(BUFFER_WORDS * 8);
        most.write(0);
    }
}

/// Reads a buffer that CUPTI returns. The first `valid` bytes of the buffer are records.
extern "system" fn completed(_: *mut c_void, _: u32, buffer: *mut u64, _: usize, valid: usize) {
    // A panic must not unwind into CUPTI, and the functions called here do not panic. The buffer is
    // null or comes from `requested`.
    let Some(Ok(cupti)) = CUPTI.get() else { return };
    if buffer.is_null() {
        return;
    }
    let mut record = ptr::null_mut();
    // SAFETY: CUPTI has passed this buffer. `record` is null or the result of the previous call.
    while valid > 0 && unsafe { (cupti.functions.next)(buffer.cast(), valid, &raw mut record) } == 0 {
        // SAFETY: CUPTI has written a record at this address, which is aligned to 8 bytes.
        unsafe { read(record) };
    }
    // SAFETY: `requested` allocated the buffer with this length, and CUPTI no longer uses it.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(buffer, BUFFER_WORDS)) });
}

/// Adds the contents of a record to `RECORDS`, if the record describes a kernel or an external
/// correlation id of this module. Ignores all other records.
///
/// # Safety
/// A record that CUPTI has written must begin at `record`.
unsafe fn read(record: *const u8) {
    // SAFETY: each offset is within a record of the kind for which it is read.
    let word = |offset: usize| unsafe { record.add(offset).cast::<u32>().read_unaligned() };
    // SAFETY: each offset is within a record of the kind for which it is read.
    let long = |offset: usize| unsafe { record.add(offset).cast::<u64>().read_unaligned() };
    match word(offset::KIND) {
        kind::KERNEL | kind::CONCURRENT_KERNEL => with_records(|records| {
            let call = word(offset::KERNEL_CORRELATION);
            records.kernels.push((call, long(offset::KERNEL_START), long(offset::KERNEL_END)));
        }),
        kind::EXTERNAL_CORRELATION if word(offset::EXTERNAL_KIND) == OWN => with_records(|records| {
            records.numbers.push((word(offset::EXTERNAL_CORRELATION), long(offset::EXTERNAL_ID)));
        }),
        _ => {}
    }
}

/// Returns the files to try, the best file first.
fn candidates(driver: Version, folders: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A toolkit may be newer than the driver by a minor version.
    let names: Vec<String> = (11..=driver.major)
        .rev()
        .map(|major| format!("libcupti.so.{major}"))
        .chain(["libcupti.so".into()])
        .collect();
    let within = |folder: &Path| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    if let Some(named) = variable("TILEWRIGHT_CUPTI") {
        if ["0", "off"].iter().any(|word| named.as_os_str() == *word) {
            return Err("TILEWRIGHT_CUPTI switches CUPTI off".into());
        }
        return Ok(if named.is_dir() { within(&named) } else { vec![named] });
    }
    let mut files: Vec<PathBuf> =
        variable("TRITON_CUPTI_LIB_PATH").map_or(Vec::new(), |folder| within(&folder));
    // A name without a folder also finds a library that the process has loaded, as torch does.
    files.extend(names.iter().take(names.len() - 1).map(PathBuf::from));
    let toolkit =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().find_map(variable).unwrap_or("/usr/local/cuda".into());
    let toolkit = ["extras/CUPTI/lib64", "lib64"].map(|folder| toolkit.join(folder));
    for folder in folders.iter().chain(&toolkit) {
        files.extend(within(folder).into_iter().filter(|file| file.exists()));
    }
    Ok(files)
}
