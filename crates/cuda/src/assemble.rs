//! Assembles PTX to a cubin with the driver's assembler (`ptxas`).
//!
//! [`crate::Cache`] stores cubins on disk.

use std::fmt;

use crate::sys::{UNSUPPORTED_PTX, jit_option};
use crate::{Cache, Capability, Context, Error, Key, Provenance};

/// The options of the assembler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AssembleOptions {
    /// The optimization level, 0 to 4.
    pub optimization_level: u8,
    /// The maximum number of registers of a thread. If a kernel needs more, the assembler spills
    /// values to memory.
    pub max_registers: Option<u32>,
    /// Keeps the source lines of `.loc` directives, for profilers.
    pub line_info: bool,
    /// Generates full debug information, which makes the code slow.
    pub debug_info: bool,
    /// Makes serialized wgmma instructions an error. The assembler serializes them if there are too
    /// few registers.
    pub asynchronous: bool,
}

impl Default for AssembleOptions {
    fn default() -> Self {
        Self {
            optimization_level: 4,
            max_registers: None,
            line_info: false,
            debug_info: false,
            asynchronous: false,
        }
    }
}

impl AssembleOptions {
    /// Returns the options as pairs of a `CUjit_option` and its value.
    fn to_pairs(self) -> Vec<(i32, u32)> {
        // A verbose log would leave no room for warnings.
        let mut pairs = vec![(jit_option::OPTIMIZATION_LEVEL, u32::from(self.optimization_level))];
        pairs.extend(self.max_registers.map(|count| (jit_option::MAX_REGISTERS, count)));
        pairs.extend(self.line_info.then_some((jit_option::LINE_INFO, 1)));
        pairs.extend(self.debug_info.then_some((jit_option::DEBUG_INFO, 1)));
        pairs
    }
}

impl fmt::Display for AssembleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-O{}", self.optimization_level)?;
        if let Some(count) = self.max_registers {
            write!(f, ", at most {count} registers")?;
        }
        let switches = [
            (self.line_info, "line info"),
            (self.debug_info, "debug info"),
            (self.asynchronous, "asynchronous wgmma"),
        ];
        switches.iter().filter(|(is_on, _)| *is_on).try_for_each(|(_, name)| write!(f, ", {name}"))
    }
}

/// A cubin, and the messages of the assembler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The cubin, an ELF file.
    pub cubin: Vec<u8>,
    /// The messages. The registers and the memory of a kernel are in [`crate::FunctionAttributes`].
    pub log: String,
}

/// Assembles a PTX module for the device of a context. Errors name `kernel` as their subject.
///
/// # Errors
/// - [`Error::Assembler`] with the assembler's messages, if the assembler rejects the module.
/// - [`Error::UnsupportedPtx`] if the driver is older than the module's version of PTX.
/// - [`Error::SerializedWgmma`] if the assembler serializes wgmma instructions and
///   [`AssembleOptions::asynchronous`] is set.
pub fn assemble(
    context: Context,
    kernel: &str,
    ptx: &str,
    options: AssembleOptions,
) -> Result<Assembled, Error> {
    let _entered = context.enter()?;
    let assembled = context
        .driver()
        .assemble(ptx, kernel, &options.to_pairs())
        .map_err(|error| error.about_kernel(kernel))?;
    match assembled.cubin {
        Ok(_) if options.asynchronous && assembled.info_log.contains(SERIALIZED) => {
            Err(Error::SerializedWgmma { kernel: kernel.to_owned() })
        }
        Ok(cubin) => Ok(Assembled { cubin, log: assembled.info_log }),
        Err(Error::Call(cause)) if cause.code == UNSUPPORTED_PTX => {
            let version = ptx.lines().find_map(|line| line.trim_start().strip_prefix(".version"));
            let version = version.unwrap_or_default().trim().to_owned();
            let (kernel, driver) = (kernel.to_owned(), context.driver().version());
            Err(Error::UnsupportedPtx { kernel, version, driver })
        }
        Err(Error::Call(cause)) => {
            Err(Error::Assembler { kernel: kernel.to_owned(), log: assembled.error_log, cause })
        }
        Err(error) => Err(error),
    }
}

/// A text that every warning about serialized wgmma instructions contains, such as C7511.
const SERIALIZED: &str = "wgmma.mma_async instructions are serialized";

/// Returns the cached cubin of a PTX module. If the cubin is not cached, assembles the module as
/// [`assemble`] does and caches the cubin. An empty entry in the cache means that the assembler
/// serializes the wgmma instructions of the module.
///
/// # Errors
/// The errors of [`assemble`].
pub fn assemble_cached(
    cache: &Cache,
    context: Context,
    kernel: &str,
    ptx: &str,
    options: AssembleOptions,
) -> Result<Vec<u8>, Error> {
    let device = context.device();
    let key = Key::of(&[
        ("driver", device.driver().identity().as_bytes()),
        ("device", device.capability().to_string().as_bytes()),
        ("options", format!("{options:?}").as_bytes()),
        ("ptx", ptx.as_bytes()),
    ]);
    let Capability { major, minor } = device.capability();
    let provenance = Provenance {
        kernel: kernel.to_owned(),
        target: format!("sm_{major}{minor}"),
        driver: device.driver().identity().to_owned(),
        options: options.to_string(),
    };
    let cubin = cache.get_or_build(&key, &provenance, || match assemble(context, kernel, ptx, options) {
        Ok(assembled) => Ok(assembled.cubin),
        Err(Error::SerializedWgmma { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    })?;
    if cubin.is_empty() { Err(Error::SerializedWgmma { kernel: kernel.to_owned() }) } else { Ok(cubin) }
}
