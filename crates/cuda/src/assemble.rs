//! Assembles PTX to a cubin with the assembler (`ptxas`) that is part of the driver.
//! [`crate::Cache`] keeps cubins on disk.

use crate::sys::{UNSUPPORTED_PTX, jit_option};
use crate::{Cache, Context, Error, Key};

/// The options of the assembler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AssembleOptions {
    /// 0 to 4.
    pub optimization_level: u8,
    /// Registers of a thread, at most; what does not fit is spilled.
    pub max_registers: Option<u32>,
    /// Keeps the lines of `.loc` directives for profilers.
    pub line_info: bool,
    /// Keeps everything for debuggers. The code is slow.
    pub debug_info: bool,
    /// Fails if the assembler makes wgmma instructions wait for each other, for lack of registers.
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
    /// Pairs of a `CUjit_option` and its value.
    fn to_pairs(self) -> Vec<(i32, u32)> {
        // A verbose log has no room for warnings.
        let mut pairs = vec![(jit_option::OPTIMIZATION_LEVEL, u32::from(self.optimization_level))];
        pairs.extend(self.max_registers.map(|count| (jit_option::MAX_REGISTERS, count)));
        pairs.extend(self.line_info.then_some((jit_option::LINE_INFO, 1)));
        pairs.extend(self.debug_info.then_some((jit_option::DEBUG_INFO, 1)));
        pairs
    }
}

/// A cubin, and what the assembler said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The cubin, an ELF file.
    pub cubin: Vec<u8>,
    /// Its messages. The registers and memory of a kernel are in [`crate::FunctionAttributes`].
    pub log: String,
}

/// Assembles a PTX module for the device of a context. `kernel` is what errors call it.
///
/// # Errors
/// [`Error::Assembler`] with the assembler's messages if it does not accept the module;
/// [`Error::UnsupportedPtx`] of a driver that is older than the module's version of PTX;
/// [`Error::SerializedWgmma`] if the options ask for it.
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

/// The assembler's message about dots that wait for each other (its warnings C7511, C7512 and
/// others like them).
const SERIALIZED: &str = "wgmma.mma_async instructions are serialized";

/// Assembles as [`assemble`], or returns the cached cubin. An empty entry in the cache says that
/// every cubin of this source has serialized wgmma instructions.
///
/// # Errors
/// As [`assemble`].
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
    let cubin = cache.get_or_build(&key, || match assemble(context, kernel, ptx, options) {
        Ok(assembled) => Ok(assembled.cubin),
        Err(Error::SerializedWgmma { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    })?;
    if cubin.is_empty() { Err(Error::SerializedWgmma { kernel: kernel.to_owned() }) } else { Ok(cubin) }
}
