//! Implements the `tilewright` command.
//!
//! The binary of `cli` and the Python package (`python -m tilewright`) call [`main`]. The command
//! prints results to stdout and diagnostics to stderr. The exit codes are:
//!
//! - 0: success
//! - 1: an error in the user's program, an error of a file, or a finding of `check`, `lock` or
//!   `cache verify`
//! - 2: an error in the command line, or Python cannot be started
//!
//! The Python package implements some subcommands, such as `run`, `profile` and `bench`. They have
//! the exit code of Python.

mod cache;
mod check;
mod compile;
mod explain;
mod explain_kernel;
mod lock;
mod machine_code;
mod output;
mod run;

use std::ffi::OsString;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use output::Failure;
use tilewright::runtime::Driver;
use tilewright::{Device, Error};

/// The help text about environment variables. `docs/environment.md` has the same list.
const ENVIRONMENT: &str = "\
Environment:
  TILEWRIGHT_AS_TRITON=1    `import triton` imports tilewright, as in `tilewright run`; a list of triton,viz,cuda: only these parts; 0: nothing, except under `tilewright run`
  TILEWRIGHT_DEVICE         where kernels run: cpu, cuda, cuda:1, sim:sm_90; else where their tensors are
  TILEWRIGHT_NUM_THREADS    threads that run programs on the CPU (else OMP_NUM_THREADS, else all)
  TILEWRIGHT_MACHINE_CODE=0 the CPU runs kernels step by step, without machine code
  TILEWRIGHT_DEBUG=1        check assertions in kernels (TRITON_DEBUG)
  TILEWRIGHT_STRICT=1       `tilewright run` refuses loads past the end of a tensor that a GPU would pad
  TILEWRIGHT_PORTABLE=1     warn of tiles that the official Triton refuses, as `tilewright run --portable` does
  TILEWRIGHT_SANITIZE=1     check what kernels do; or some of bounds,race,init,alignment,overflow,nan
  TILEWRIGHT_INTERPRET=1    Python runs kernels (TRITON_INTERPRET)
  TILEWRIGHT_DUMP=ir,opt    write these stages of each kernel to stderr, or with TILEWRIGHT_DUMP_DIR to files; or `all`
  TILEWRIGHT_LOCK=file      launch kernels from this lock, and compile and tune nothing (`tilewright run --locked`)
  TILEWRIGHT_LOCK_POLICY    for a launch that is not in the lock: error, or warn, which compiles it
  TILEWRIGHT_LOCK_RECORD    the folder in which `tilewright lock` records the kernels of a program's processes
  TILEWRIGHT_TUNING=file    tuned kernels take the nearest entry of this tuning file, and measure nothing; file:file: several files
  TILEWRIGHT_TUNING_MAX_DISTANCE  the maximum sum of |log2(a) - log2(b)| between the keys of a launch and an entry; else no limit
  TILEWRIGHT_TUNING_RECORD  the folder in which `tilewright tuning export` records the choices of a program's processes
  TILEWRIGHT_DUMP=folder    write every stage of each kernel to files in this folder
  TILEWRIGHT_CACHE_DIR      the cache of cubins and timings (TRITON_CACHE_DIR, else .triton/cache in TRITON_HOME or HOME)
  TILEWRIGHT_CACHE_LIMIT    maximum MiB of cached cubins; 0 caches none
  TILEWRIGHT_CACHE_SHARED=1 use cached cubins and timings of other users too
  TILEWRIGHT_LIBCUDA        the library of the CUDA driver (TRITON_LIBCUDA_PATH)
  TILEWRIGHT_CUPTI          the library that times kernels on a GPU for `profile` (TRITON_CUPTI_LIB_PATH)
  TILEWRIGHT_PTXAS          NVIDIA's ptxas or its folder, for `explain` and `lock` (TRITON_PTXAS_PATH)
  TILEWRIGHT_VIZ_PORT, TILEWRIGHT_VIZ_WAIT, TILEWRIGHT_PUBLIC_TRITON_VIZ: the visualizer
  TRITON_KERNEL_DUMP=1      write every stage to files in TRITON_DUMP_DIR
  TRITON_PRINT_AUTOTUNING=1, TRITON_CACHE_AUTOTUNING=1, TILEWRIGHT_PRINT_AUTOTUNING_TABLE=1
  TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1, TRITON_F32_DEFAULT, TRITON_DEFAULT_FP_FUSION, TRITON_FORCE_DISABLE_FP_FUSION
Other variables of Triton have no effect; a program that sets one of them gets a warning.";

/// The version, and the commit if the build has set `TILEWRIGHT_COMMIT`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TILEWRIGHT_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
        _ => version.to_owned(),
    }
});

/// Compiles and explains Triton kernels.
#[derive(Parser)]
#[command(name = "tilewright", version = VERSION.as_str(), arg_required_else_help = true, after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compile(compile::Arguments),
    Check(check::Arguments),
    Explain(explain::Arguments),
    /// List the devices of this machine
    Devices,
    Run(run::Arguments),
    /// Run a Triton program, and report the time of its kernels: a table, JSON, a flame graph, a
    /// trace
    Profile(run::Arguments),
    /// Write the lock of a program: its compiled kernels and tuned choices; or verify, compare and
    /// merge locks
    Lock(run::Arguments),
    /// Write the choices of a program's autotuners to a tuning file; or import, merge and list such
    /// files
    Tuning(run::Arguments),
    /// Compare two versions of a kernel or of a function
    Bench(run::Arguments),
    /// Make `import triton` import tilewright in a Python environment
    Activate(run::Arguments),
    /// Undo `activate`
    Deactivate(run::Arguments),
    /// Print what `import triton` imports in a Python environment
    Status(run::Arguments),
    #[command(subcommand)]
    Cache(cache::Command),
    #[command(subcommand)]
    Sim(run::Simulation),
}

/// Runs a command line. The first word of the command line is the name of the program. Returns the
/// exit code.
pub fn main<I>(arguments: I) -> u8
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // clap also returns the help and the version as errors. A closed stdout is not an
            // error.
            let _ = error.print();
            let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if is_answer { 0 } else { output::USAGE };
        }
    };
    let result = match parsed.command {
        Command::Compile(arguments) => compile::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Devices => devices(),
        Command::Run(arguments) => run::run(&arguments),
        Command::Profile(arguments) => run::python(&["profile"], &arguments),
        Command::Lock(arguments) => lock::run(&arguments),
        Command::Tuning(arguments) => run::python(&["tuning"], &arguments),
        Command::Bench(arguments) => run::python(&["bench"], &arguments),
        Command::Activate(arguments) => run::python(&["activate"], &arguments),
        Command::Deactivate(arguments) => run::python(&["deactivate"], &arguments),
        Command::Status(arguments) => run::python(&["status"], &arguments),
        Command::Cache(command) => cache::run(&command),
        Command::Sim(simulation) => run::simulate(&simulation),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

fn devices() -> Result<(), Failure> {
    let mut lines = Vec::new();
    for device in Device::available() {
        let target = device.target()?;
        let about = match device {
            Device::Cpu => format!("{} threads, {}", tilewright::num_threads(), target.features().join(" ")),
            _ => device.gpu()?.properties().map(|properties| properties.name.clone()).map_err(Error::from)?,
        };
        lines.push(format!("{device}: {}, {about}\n", target.architecture()));
    }
    if let Err(error) = Driver::get() {
        lines.push(format!("no NVIDIA GPU: {error}\n"));
    }
    lines.push(format!("the simulator of a GPU: {}\n", Device::simulated_names().join(", ")));
    output::print(&lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn exit_codes() {
        assert_eq!(main(["tilewright", "--version"]), 0);
        assert_eq!(main(["tilewright", "explain", "TW0001"]), 0);
        assert_eq!(main(["tilewright", "explain", "tw0201"]), 0);
        assert_eq!(main(["tilewright", "explain", "TW9999"]), 2);
        assert_eq!(main(["tilewright", "nonsense"]), 2);
        assert_eq!(main(["tilewright", "compile", "no-such-file.py"]), 1);
        assert_eq!(main(["tilewright", "devices"]), 0);
    }
}
