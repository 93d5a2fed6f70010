//! Launches the kernels of a lock, without their source.

use std::path::Path;
use std::sync::Arc;

use tilewright_base::{Code, Diagnostic};
use tilewright_runtime::{self as runtime, Device, Error, Interrupt, Value};

use crate::{Arguments, IntoGrid};

/// The kernels of a lock that `tilewright lock` has written. They are launched without their source
/// and without Python; nothing is compiled but machine code for the CPU.
///
/// ```no_run
/// use tilewright::{Bundle, args};
///
/// # fn main() -> Result<(), tilewright::Error> {
/// let bundle = Bundle::open("serve.lock")?;
/// let x = vec![1.0_f32; 1000];
/// let mut out = vec![0.0_f32; 1000];
/// bundle.launch("scale", 4, args![x_ptr = &x, out_ptr = &mut out, n = x.len(), BLOCK = 256])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bundle {
    bundle: Arc<runtime::lock::Bundle>,
    device: Device,
}

impl Bundle {
    /// Reads a lock. Its artifacts, in the folder `NAME.artifacts` beside `NAME.lock`, are read when
    /// a kernel is first launched. Launches run on the selected device, else on the CPU.
    ///
    /// # Errors
    /// If the lock cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let device = Device::selected()?.unwrap_or(Device::Cpu);
        Ok(Self { bundle: Arc::new(runtime::lock::Bundle::open(path.as_ref())?), device })
    }

    /// Returns the same kernels for launches on `device`.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        Self { bundle: Arc::clone(&self.bundle), device }
    }

    /// Runs a kernel for every program of a grid, and returns when all programs have ended; on a
    /// GPU, as soon as the launch is on the default stream. Every argument is named. A compile-time
    /// argument may be left out if the lock has one value of it only.
    ///
    /// # Errors
    /// If the lock has no kernel for these arguments, or if the kernel fails.
    pub fn launch(&self, kernel: &str, grid: impl IntoGrid, arguments: Arguments<'_>) -> Result<(), Error> {
        let Arguments { positional, keywords } = arguments;
        if !positional.is_empty() {
            let message = format!("the arguments of kernel '{kernel}' are named: `args![x_ptr = &x, n = 5]`");
            return Err(Diagnostic::new(Code::InvalidArgument, message).into());
        }
        let named: Vec<(&str, Value<'_>)> = keywords;
        let (handle, values) = self.bundle.find(kernel, self.device, &named)?;
        handle.launch(grid.into_grid()?, &values, Interrupt::Never)
    }
}
