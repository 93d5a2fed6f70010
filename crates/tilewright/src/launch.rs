//! Launches compiled code.

use tilewright_runtime::{Device, Error, Grid, Handle, IS_OPTIMIZED, Interrupt, Value};

use crate::Stream;

/// Launches compiled code on a stream. Without a `stream`, uses the default stream of the device.
pub(crate) fn launch(
    handle: &Handle,
    stream: Option<&Stream>,
    grid: Grid,
    values: &[Value<'_>],
) -> Result<(), Error> {
    if !IS_OPTIMIZED && !matches!(handle.device(), Device::Cuda(_)) {
        warn_of_slow_launches();
    }
    match stream {
        None => handle.launch(grid, values, Interrupt::Never),
        Some(stream) => {
            stream.check(handle.device())?;
            handle.launch_on(stream.handle(), grid, values, &[], Interrupt::Never)
        }
    }
}

/// Prints a warning that Cargo did not optimize this library. Prints the warning once in a process.
#[cold]
fn warn_of_slow_launches() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "tilewright: launches on the CPU and in the simulator are many times slower than they could be, because \
             Cargo compiles tilewright without optimization; add these lines to the Cargo.toml of the workspace:\n\
             [profile.dev.package.\"*\"]\nopt-level = 3"
        );
    });
}
