//! Devices by name, and whether this machine has them.

use std::fmt;

use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::Target;

use crate::Error;

/// A device that kernels run on, or that memory is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its number.
    Cuda(u16),
    /// The simulator of an NVIDIA GPU with this compute capability (`90` for `sm_90`).
    Sim(u16),
}

impl Device {
    /// The device with this name: `cpu`, `cuda`, `cuda:1`, `sim`, `sim:sm_90`. The error says what is wrong with it.
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
            ("sim", Some(architecture)) => architecture
                .strip_prefix("sm_")
                .and_then(|number| number.trim_end_matches('a').parse().ok())
                .map(Device::Sim),
            _ => None,
        };
        parsed.ok_or_else(|| {
            let diagnostic = Diagnostic::new(Code::NoDevice, format!("there is no device called '{name}'"))
                .hint("devices are 'cpu', 'cuda', 'cuda:<number>' and 'sim:sm_<capability>'");
            Error::from(diagnostic)
        })
    }

    /// What code for it is compiled for; an error if this machine or this build does not have the device.
    pub fn target(self) -> Result<Target, Error> {
        match self {
            Device::Cpu => Ok(Target::Cpu),
            Device::Cuda(_) => Err(unavailable(self, "this build of tilewright has no GPU back end yet")),
            Device::Sim(_) => Err(unavailable(self, "this build of tilewright has no GPU simulator yet")),
        }
    }

    /// The devices of this machine.
    pub fn available() -> Vec<Device> {
        vec![Device::Cpu]
    }
}

fn unavailable(device: Device, why: &str) -> Error {
    Diagnostic::new(Code::NoDevice, format!("device '{device}' is not available"))
        .note(why)
        .hint("use device 'cpu'")
        .into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for device in [Device::Cpu, Device::Cuda(3), Device::Sim(90)] {
            assert_eq!(Device::parse(&device.to_string()).ok(), Some(device));
        }
        assert_eq!(Device::parse("cuda").ok(), Some(Device::Cuda(0)));
        assert_eq!(Device::parse("sim:sm_90a").ok(), Some(Device::Sim(90)));
        for name in ["", "tpu", "cuda:x", "cuda:-1", "sim:90", "cuda:99999999"] {
            assert_eq!(Device::parse(name).unwrap_err().code(), Some(Code::NoDevice), "{name}");
        }
    }

    #[test]
    fn devices_that_are_not_there_say_so() {
        assert_eq!(Device::Cuda(0).target().unwrap_err().code(), Some(Code::NoDevice));
        assert!(Device::available().iter().all(|device| device.target().is_ok()));
    }
}
