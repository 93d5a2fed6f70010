//! Parses the names of devices, finds devices, and selects the device of kernels.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::Target;
use tilewright_cuda as cuda;
use tilewright_frontend::suggest;
use tilewright_sim as sim;

use crate::{Error, Knobs};

/// A device that runs kernels or has memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its ordinal.
    Cuda(u16),
    /// The simulator of an NVIDIA GPU with this compute capability (`90` for `sm_90`). The
    /// simulator uses the memory of the processor.
    Sim(u16),
}

/// The argument of the last call of [`claim_capability`]; 0 if there was none.
static CLAIMED: AtomicU32 = AtomicU32::new(0);

/// Sets the compute capability (times 10) of the GPU that the processor replaces. In kernels that
/// are compiled for the processor from now on, `is_cuda()` and `cuda_capability_geq(...)` return
/// the values for this GPU.
pub fn claim_capability(capability: u32) {
    CLAIMED.store(capability, Ordering::Relaxed);
}

/// Returns the argument of the last call of [`claim_capability`]; 0 if there was none.
pub(crate) fn claimed_capability() -> u32 {
    CLAIMED.load(Ordering::Relaxed)
}

/// Returns the number of multiprocessors of the simulated GPU with this compute capability (times
/// 10). If no simulated GPU has this capability, uses the next lower capability. Returns 1 if there
/// is no lower capability.
pub fn multiprocessors_of(capability: u32) -> u32 {
    let of = |gpu: &sim::GpuModel| {
        let digits = gpu.architecture.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic);
        digits.parse().unwrap_or(u32::MAX)
    };
    let known = || sim::GPUS.iter().filter(|gpu| of(gpu) <= capability);
    let newest = known().map(of).max();
    known().find(|gpu| Some(of(gpu)) == newest).map_or(1, |gpu| gpu.multiprocessors)
}

/// The selection by the last call of [`Device::select`] that succeeded, as a word.
static SELECTED: AtomicU32 = AtomicU32::new(0);

/// The way in which a process selects the device of its kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// By environment variables, or by the tensors of each launch.
    Environment,
    /// By [`Device::select`].
    Device(Device),
}

impl Selection {
    /// Returns the current selection.
    #[inline]
    pub fn current() -> Self {
        let word = SELECTED.load(Ordering::Relaxed);
        let number = word as u16;
        match word >> 16 {
            0 => Self::Environment,
            1 => Self::Device(Device::Cpu),
            2 => Self::Device(Device::Cuda(number)),
            _ => Self::Device(Device::Sim(number)),
        }
    }

    /// Returns the device; `None` if the tensors of each launch select it.
    pub fn device(self) -> Result<Option<Device>, Error> {
        match self {
            Self::Device(device) => Ok(Some(device)),
            Self::Environment => Knobs::current().device.as_deref().map(Device::parse).transpose(),
        }
    }

    fn word(self) -> u32 {
        let (kind, number) = match self {
            Self::Environment => (0, 0),
            Self::Device(Device::Cpu) => (1, 0),
            Self::Device(Device::Cuda(number)) => (2, number),
            Self::Device(Device::Sim(number)) => (3, number),
        };
        kind << 16 | u32::from(number)
    }
}

impl Device {
    /// Parses the name of a device: `cpu`, `cuda`, `cuda:1`, `sim`, `sim:sm_90`. The error for an
    /// unknown name lists the valid names.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let (kind, rest) = match name.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (name, None),
        };
        let parsed = match (kind, rest) {
            ("cpu", None | Some("0")) => Some(Device::Cpu),
            ("cuda" | "gpu", None) => Some(Device::Cuda(0)),
            ("cuda" | "gpu", Some(index)) => index.parse().ok().map(Device::Cuda),
            ("sim", None) => Some(Device::Sim(80)),
            ("sim", Some(architecture)) => Target::parse(architecture).and_then(Device::simulating),
            _ => None,
        };
        let device = parsed.ok_or_else(|| {
            let simulated = Self::simulated_names();
            let known = ["cpu", "cuda"].into_iter().chain(simulated.iter().map(String::as_str));
            let listed: Vec<_> = simulated.iter().map(|name| format!("'{name}'")).collect();
            let listed = format!("devices are 'cpu', 'cuda', 'cuda:<number>' and {}", listed.join(", "));
            let hint = match suggest(name, known) {
                Some(similar) => format!("did you mean '{similar}'? {listed}"),
                None => listed,
            };
            let message = format!("there is no device called '{name}'");
            Error::from(Diagnostic::new(Code::NoDevice, message).hint(hint))
        })?;
        device.check_included()
    }

    /// Returns the device. Fails if this build does not have the code for it.
    fn check_included(self) -> Result<Self, Error> {
        let is_included = match self {
            Device::Cpu => cfg!(feature = "cpu"),
            Device::Cuda(_) => cfg!(feature = "cuda"),
            Device::Sim(_) => cfg!(feature = "sim"),
        };
        if is_included { Ok(self) } else { Err(self.left_out()) }
    }

    /// Returns the error for a device whose feature of the crate `tilewright` is off.
    #[cold]
    pub(crate) fn left_out(self) -> Error {
        let feature = match self {
            Device::Cpu => "cpu",
            Device::Cuda(_) => "cuda",
            Device::Sim(_) => "sim",
        };
        Diagnostic::new(Code::NoDevice, format!("device '{self}' is not available"))
            .note(format!("this program was built without the feature `{feature}` of tilewright"))
            .hint(format!("add `\"{feature}\"` to the features of tilewright in Cargo.toml"))
            .into()
    }

    /// Returns the name of each simulated GPU, oldest first, such as `sim:sm_80`.
    pub fn simulated_names() -> Vec<String> {
        let mut targets: Vec<_> = Target::names().into_iter().filter(|name| *name != "cpu").collect();
        targets.sort_by_key(|name| (Target::parse(name).and_then(Target::capability), name.len()));
        targets.into_iter().map(|name| format!("sim:{name}")).collect()
    }

    /// Returns the simulator for a target; `None` for the processor.
    pub fn simulating(target: Target) -> Option<Self> {
        target.capability().map(|capability| Device::Sim(capability as u16))
    }

    /// Returns the target that code for the device is compiled for. Fails if this machine does not
    /// have the device, or if the compiler does not support it. Also fails if its feature is off in
    /// this build.
    pub fn target(self) -> Result<Target, Error> {
        match self.check_included()? {
            Device::Cpu => Ok(Target::Cpu),
            Device::Sim(capability) => Target::for_capability(capability.into())
                .ok_or_else(|| self.unavailable(&format!("there is no simulator of sm_{capability}"))),
            Device::Cuda(_) => {
                let gpu = self.gpu()?;
                gpu.check_supported().map_err(|error| self.unavailable(&error.to_string()))?;
                let cuda::Capability { major, minor } = gpu.capability();
                Target::for_capability(10 * major + minor)
                    .ok_or_else(|| self.unavailable("the compiler does not support its compute capability"))
            }
        }
    }

    /// Returns the driver's device. Fails if this device is not a GPU, or if the driver does not
    /// find it.
    pub fn gpu(self) -> Result<cuda::Device, Error> {
        let Device::Cuda(number) = self.check_included()? else {
            return Err(self.unavailable("it is not a GPU"));
        };
        let found = cuda::Driver::get().and_then(|driver| driver.device(number.into()));
        found.map_err(|error| self.unavailable(&error.to_string()))
    }

    /// Returns the context in which code for this GPU is loaded. This is the thread's current
    /// context if it belongs to this GPU, else the GPU's primary context.
    pub fn context(self) -> Result<cuda::Context, Error> {
        let gpu = self.gpu()?;
        Ok(match cuda::Context::current(gpu.driver())? {
            Some(context) if context.device() == gpu => context,
            Some(_) => cuda::Context::primary(gpu)?,
            None => cuda::Context::current_or_primary(gpu)?,
        })
    }

    /// Returns the device whose memory the kernels on this device use: the processor for the
    /// simulator.
    #[must_use]
    pub fn memory(self) -> Self {
        match self {
            Device::Cpu | Device::Sim(_) => Device::Cpu,
            Device::Cuda(_) => self,
        }
    }

    /// Returns the processor and the usable GPUs of this machine.
    pub fn available() -> Vec<Device> {
        let driver = if cfg!(feature = "cuda") { cuda::Driver::get().ok() } else { None };
        let gpus =
            driver.into_iter().flat_map(cuda::Driver::devices).map(|gpu| Device::Cuda(gpu.ordinal() as u16));
        std::iter::once(Device::Cpu).chain(gpus).filter(|device| device.target().is_ok()).collect()
    }

    /// Selects the device of each [`Kernel`](crate::Kernel) that is created from now on, and of all
    /// later launches from Python. Fails if [`target`](Self::target) fails.
    pub fn select(self) -> Result<(), Error> {
        self.target()?;
        SELECTED.store(Selection::Device(self).word(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the selected device, else the device that the environment names
    /// ([`Knobs::device`]). Does not check that this device exists, because a process that only
    /// compiles must not open the driver. `None` means that kernels run on the device of their
    /// tensors.
    pub fn selected() -> Result<Option<Self>, Error> {
        Selection::current().device()
    }

    /// Returns the device of `triton.runtime.driver.active`: the selected device, else the first
    /// GPU if it is usable, else the processor.
    pub fn active() -> Result<Self, Error> {
        let usable = || Device::Cuda(0).target().map_or(Device::Cpu, |_| Device::Cuda(0));
        Ok(Self::selected()?.unwrap_or_else(usable))
    }

    /// Returns the active device. If it is a GPU and this thread has a current context, returns the
    /// GPU of the context instead.
    pub fn current() -> Result<Self, Error> {
        let device = Self::active()?;
        let Device::Cuda(_) = device else { return Ok(device) };
        let context = cuda::Driver::get().and_then(cuda::Context::current).ok().flatten();
        Ok(context.map_or(device, |context| Device::Cuda(context.device().ordinal() as u16)))
    }

    fn unavailable(self, why: &str) -> Error {
        Diagnostic::new(Code::NoDevice, format!("device '{self}' is not available"))
            .note(why)
            .hint("use device 'cpu', or a simulated GPU such as 'sim:sm_90'")
            .into()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            Device::Sim(capability) => write!(f, "sim:sm_{capability}"),
        }
    }
}

/// Parses the name of a device as [`Device::parse`] does. [`Display`](fmt::Display) writes such a
/// name, and the variable `TILEWRIGHT_DEVICE` takes one.
impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::parse(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for device in [Device::Cpu, Device::Cuda(3), Device::Sim(90)] {
            assert_eq!(Device::parse(&device.to_string()).ok(), Some(device));
            assert_eq!(device.to_string().parse::<Device>().ok(), Some(device));
        }
        assert_eq!("tpu".parse::<Device>().unwrap_err().code(), Some(Code::NoDevice));
        assert_eq!(Device::parse("cuda").ok(), Some(Device::Cuda(0)));
        assert_eq!(Device::parse("sim:sm_90a").ok(), Some(Device::Sim(90)));
        for name in ["", "tpu", "cuda:x", "cuda:-1", "sim:90", "sim:sm_70", "sim:cpu", "cuda:99999999"] {
            assert_eq!(Device::parse(name).unwrap_err().code(), Some(Code::NoDevice), "{name}");
        }
    }

    #[test]
    fn devices_that_are_not_there_say_so() {
        // No machine has this many GPUs.
        assert_eq!(Device::Cuda(u16::MAX).target().unwrap_err().code(), Some(Code::NoDevice));
        assert_eq!(Device::Sim(70).target().unwrap_err().code(), Some(Code::NoDevice));
        assert_eq!(Device::Sim(90).target().unwrap().architecture(), "sm_90a");
        assert!(Device::available().iter().all(|device| device.target().is_ok()));
    }
}
