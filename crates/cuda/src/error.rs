//! Defines the error type of this crate.
//!
//! The message about an unusable machine is one line, with the found and the required version. The
//! message about a failed call names the call, its subject and the driver's code.

use std::fmt;

use crate::TensorMapRule;

/// A version of CUDA, such as the newest version that a driver supports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The number before the dot.
    pub major: u32,
    /// The number after the dot.
    pub minor: u32,
}

impl Version {
    /// Converts a version from the driver's encoding, `1000 * major + 10 * minor`.
    pub(crate) fn from_code(code: i32) -> Self {
        let code = code.max(0) as u32;
        Self { major: code / 1000, minor: code % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The compute capability of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Capability {
    /// The generation, such as 9 for Hopper.
    pub major: u32,
    /// The variant within the generation.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} (sm_{}{})", self.major, self.minor, self.major, self.minor)
    }
}

/// A failed call of the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The function of the driver, such as `cuLaunchKernel`.
    pub call: &'static str,
    /// The code (`CUresult`).
    pub code: i32,
    /// The code's name, such as `CUDA_ERROR_INVALID_VALUE`.
    pub name: String,
    /// The driver's description of the code.
    pub text: String,
    /// The subject of the call, such as ``kernel `add` ``. Empty if the call has no subject.
    pub context: String,
}

/// The codes of failures on the device. The context is then unusable.
const ASYNCHRONOUS: [i32; 10] = [700, 702, 710, 714, 715, 716, 717, 718, 719, 214];

impl CallError {
    /// Returns whether the failure happened on the device, in this launch or in an earlier launch.
    /// Such a failure makes the context unusable.
    pub fn is_asynchronous(&self) -> bool {
        ASYNCHRONOUS.contains(&self.code)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.context.is_empty() {
            write!(f, "{}: ", self.context)?;
        }
        write!(f, "{} returns {} ({})", self.call, self.name, self.code)?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        if let Some(advice) = advice(self.code) {
            write!(f, "; {advice}")?;
        }
        if self.is_asynchronous() {
            f.write_str(
                "; this launch or an earlier one failed on the device, and CUDA is unusable in this process",
            )?;
        }
        Ok(())
    }
}

/// An error of the driver or of its use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is no usable driver library: no library exists, it cannot be opened, or it is the stub
    /// library of the CUDA toolkit.
    NoLibrary {
        /// One reason: the dynamic linker's message for the first name that was tried, or a message
        /// that names the stub library.
        reasons: Vec<String>,
    },
    /// The library lacks a function that every supported driver has.
    NotADriver {
        /// The name of the library.
        library: String,
        /// The function that the library lacks.
        missing: &'static str,
    },
    /// There is a driver, but no GPU that it can use.
    NoDevice {
        /// The version that the driver supports.
        driver: Version,
    },
    /// There is a driver, but its initialization fails.
    NotReady {
        /// The version that the driver supports.
        driver: Version,
        /// The call that failed.
        cause: Box<CallError>,
    },
    /// The driver is too old for this crate.
    DriverTooOld {
        /// The version that the driver supports.
        found: Version,
        /// The minimum version.
        needed: Version,
    },
    /// The driver lacks a function that newer drivers have.
    NotInThisDriver {
        /// The function.
        call: &'static str,
        /// The version that the driver supports.
        found: Version,
        /// The first version that has the function.
        needed: Version,
    },
    /// The GPU is older than `sm_75`.
    UnsupportedDevice {
        /// The ordinal of the GPU.
        ordinal: u32,
        /// The product name of the GPU.
        name: String,
        /// The compute capability of the GPU.
        found: Capability,
    },
    /// No GPU has this ordinal.
    NoSuchDevice {
        /// The ordinal.
        ordinal: u32,
        /// The number of GPUs.
        count: u32,
    },
    /// This process was forked from a process that had initialized CUDA.
    Forked,
    /// A call failed.
    Call(Box<CallError>),
    /// The driver's assembler rejects a PTX module.
    Assembler {
        /// The kernel.
        kernel: String,
        /// The assembler's messages.
        log: String,
        /// The call that failed.
        cause: Box<CallError>,
    },
    /// The driver is older than the version of the PTX.
    UnsupportedPtx {
        /// The kernel.
        kernel: String,
        /// The version of the PTX.
        version: String,
        /// The version that the driver supports.
        driver: Version,
    },
    /// The assembler serializes the wgmma instructions, because a thread has too few registers.
    SerializedWgmma {
        /// The kernel.
        kernel: String,
    },
    /// An image is neither a complete cubin, nor a fat binary, nor PTX.
    InvalidImage {
        /// The kernel.
        kernel: String,
        /// The reason why the image cannot be loaded.
        reason: &'static str,
    },
    /// A kernel needs more shared memory than the maximum of a block.
    OutOfSharedMemory {
        /// The kernel.
        kernel: String,
        /// Bytes of dynamic shared memory that the launch requests.
        dynamic: u32,
        /// Bytes of static shared memory that the kernel declares.
        fixed: u32,
        /// The maximum number of bytes of a block on this device.
        limit: u32,
    },
    /// A block has no threads, or more threads than the kernel's registers allow.
    InvalidBlock {
        /// The kernel.
        kernel: String,
        /// Threads along each axis.
        threads: [u32; 3],
        /// The maximum number of threads of a block of this kernel.
        limit: u32,
    },
    /// A grid has more blocks along an axis than the device allows.
    GridTooLarge {
        /// The kernel.
        kernel: String,
        /// The axis: 0, 1 or 2.
        axis: usize,
        /// The number of blocks along the axis.
        extent: u32,
        /// The maximum number of blocks along the axis.
        limit: u32,
    },
    /// The total size of a launch's parameters differs from the size of the kernel's parameters.
    WrongParameters {
        /// The kernel.
        kernel: String,
        /// The number of bytes that the launch passes.
        found: usize,
        /// The number of bytes that the kernel expects.
        expected: usize,
    },
    /// A kernel has no parameter with this index.
    NoSuchParameter {
        /// The kernel.
        kernel: String,
        /// The index.
        index: usize,
        /// The number of parameters of the kernel.
        count: usize,
    },
    /// A copy exceeds its buffer.
    CopyTooLarge {
        /// Bytes to copy.
        bytes: usize,
        /// Bytes of the buffer.
        capacity: usize,
    },
    /// A name or a PTX text contains a NUL byte, which a C string cannot contain.
    InvalidName {
        /// The name or text.
        name: String,
    },
    /// A tensor map breaks a rule of the hardware.
    TensorMap(TensorMapRule),
}

impl Error {
    /// Sets the subject of a failed call. Does not change other errors, because they already name
    /// their subject.
    pub(crate) fn about(mut self, context: impl FnOnce() -> String) -> Self {
        if let Error::Call(error) = &mut self {
            error.context = context();
        }
        self
    }

    /// Sets a kernel as the subject of a failed call.
    pub(crate) fn about_kernel(self, kernel: &str) -> Self {
        self.about(|| format!("kernel `{kernel}`"))
    }

    /// Returns whether the error means that this machine cannot run kernels on the GPU.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Error::NoLibrary { .. }
                | Error::NotADriver { .. }
                | Error::NoDevice { .. }
                | Error::NotReady { .. }
                | Error::DriverTooOld { .. }
                | Error::UnsupportedDevice { .. }
                | Error::UnsupportedPtx { .. }
        )
    }
}

/// Returns advice on the usual cause of a code that any call may return. Returns `None` without
/// advice.
fn advice(code: i32) -> Option<&'static str> {
    Some(match code {
        2 => "the memory of the GPU is full: `nvidia-smi` lists who uses it",
        46 => "another process has the GPU for itself: `nvidia-smi -q -d COMPUTE` shows its mode",
        221 => {
            "libnvidia-ptxjitcompiler.so.1, a part of the driver, is missing: install it, or map it into the container"
        }
        _ => return None,
    })
}

/// Returns advice on the usual cause of a code that a driver returns during initialization. Returns
/// `None` without advice.
fn advice_at_start(code: i32) -> Option<&'static str> {
    Some(match code {
        802 => "the machine is not ready yet: with NVSwitch, the fabric manager has to run",
        803 => "library and kernel module are of different releases, as after an update: restart the machine",
        804 => {
            "the library is of the CUDA compatibility package, which this GPU does not support: remove it from the path"
        }
        // These codes are `CUDA_ERROR_OPERATING_SYSTEM` and `CUDA_ERROR_UNKNOWN`.
        304 | 999 => {
            "this process may lack access to /dev/nvidia*, or the module nvidia-uvm is not loaded: see whether `nvidia-smi` \
             works"
        }
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoLibrary { reasons } => {
                write!(f, "there is no NVIDIA driver on this machine: {}", reasons.join("; "))
            }
            Error::NotADriver { library, missing } => {
                write!(f, "`{library}` is not a usable CUDA driver: it has no function `{missing}`")
            }
            Error::NoDevice { driver } => write!(
                f,
                "the NVIDIA driver (CUDA {driver}) finds no GPU: there is none, or CUDA_VISIBLE_DEVICES hides it"
            ),
            Error::NotReady { driver, cause } => {
                write!(f, "the NVIDIA driver (CUDA {driver}) does not start: {cause}")?;
                advice_at_start(cause.code).map_or(Ok(()), |advice| write!(f, "; {advice}"))
            }
            Error::DriverTooOld { found, needed } => write!(
                f,
                "the NVIDIA driver is too old: it supports CUDA {found}, and CUDA {needed} is needed; update the driver"
            ),
            Error::NotInThisDriver { call, found, needed } => {
                write!(f, "the NVIDIA driver (CUDA {found}) has no {call}: CUDA {needed} is needed")
            }
            Error::UnsupportedDevice { ordinal, name, found } => write!(
                f,
                "GPU {ordinal} ({name}) has compute capability {found}; 7.5 (sm_75) or newer is needed"
            ),
            Error::NoSuchDevice { ordinal, count } => {
                let noun = if *count == 1 { "GPU" } else { "GPUs" };
                write!(f, "there is no GPU {ordinal}: the driver finds {count} {noun}, counted from 0")
            }
            Error::Forked => f.write_str(
                "CUDA was initialized before this process was forked, and cannot be used in the child: start workers \
                 with the `spawn` method, or use CUDA in the children only",
            ),
            Error::Call(error) => error.fmt(f),
            Error::Assembler { kernel, log, cause } => {
                write!(f, "kernel `{kernel}`: the driver's assembler refuses the PTX: {cause}")?;
                if log.is_empty() { Ok(()) } else { write!(f, "\n{log}") }
            }
            Error::UnsupportedPtx { kernel, version, driver } => write!(
                f,
                "kernel `{kernel}`: the NVIDIA driver is too old: it supports CUDA {driver}, which does not know PTX {version}, \
                 the version that this GPU needs; update the driver"
            ),
            Error::SerializedWgmma { kernel } => write!(
                f,
                "kernel `{kernel}`: the driver's assembler has too few registers for dots in flight"
            ),
            Error::InvalidImage { kernel, reason } => {
                write!(f, "kernel `{kernel}`: the device code cannot be loaded: {reason}")
            }
            Error::TensorMap(rule) => write!(f, "invalid tensor map: {rule}"),
            Error::InvalidName { name } => write!(f, "the name {name:?} has a NUL byte in it"),
            Error::CopyTooLarge { bytes, capacity } => {
                write!(f, "a copy of {bytes} bytes does not fit into a buffer of {capacity} bytes")
            }
            Error::WrongParameters { kernel, found, expected } => write!(
                f,
                "kernel `{kernel}`: the launch gives {found} bytes of parameters, and the kernel takes {expected}"
            ),
            Error::NoSuchParameter { kernel, index, count } => {
                write!(f, "kernel `{kernel}`: there is no parameter {index}: it has {count}, counted from 0")
            }
            Error::OutOfSharedMemory { kernel, dynamic, fixed, limit } => {
                let total = u64::from(*dynamic) + u64::from(*fixed);
                write!(f, "kernel `{kernel}`: out of resource: shared memory, {total} bytes are required")?;
                write!(f, ", the limit of a block is {limit}; reduce block sizes or `num_stages`")
            }
            Error::InvalidBlock { kernel, threads: [x, y, z], limit } => write!(
                f,
                "kernel `{kernel}`: a block of {x} x {y} x {z} threads cannot run: with the registers that the kernel \
                 uses, a block has 1 to {limit} threads"
            ),
            Error::GridTooLarge { kernel, axis, extent, limit } => write!(
                f,
                "kernel `{kernel}`: the grid has {extent} blocks along axis {axis}, and at most {limit} are allowed"
            ),
        }
    }
}

impl std::error::Error for Error {}
