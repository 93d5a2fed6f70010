//! Launches a handle on each kind of device.

use tilewright_base::SourceMap;
use tilewright_compiler::MachineCode;
use tilewright_cpu::{Interrupt, Launch, PaddedReads, Program};
use tilewright_cuda::{Parameters, StreamRef};

use crate::knobs::Knobs;
use crate::loaded::Loaded;
use crate::profile::{self, Observer};
use crate::specialize::{CpuArguments, cpu_argument};
use crate::{Error, Grid, Handle, Region, Value, gpu, padded, sanitize};

impl Handle {
    /// Runs the kernel for every program of the grid. [`Kernel::lookup`](crate::Kernel::lookup)
    /// must have returned this handle for the arguments. Returns when all programs have ended. On a
    /// GPU, returns as soon as the launch is on the default stream. Does not use Python, so Python
    /// callers release the GIL around this call.
    pub fn launch(&self, grid: Grid, arguments: &[Value<'_>], interrupt: Interrupt<'_>) -> Result<(), Error> {
        self.launch_on(StreamRef::DEFAULT, grid, arguments, &[], interrupt)
    }

    /// Launches as [`launch`](Self::launch) does, on a stream of a GPU; other devices ignore
    /// `stream`. `foreign` is main memory that the kernel may access in addition to the memory of
    /// the arguments, through pointers cast from integers. A GPU can access all of its own memory.
    pub fn launch_on(
        &self,
        stream: StreamRef<'_>,
        grid: Grid,
        arguments: &[Value<'_>],
        foreign: &[Region<'_>],
        interrupt: Interrupt<'_>,
    ) -> Result<(), Error> {
        if !profile::is_active() || grid.is_empty() {
            return self.start(stream, grid, (arguments, foreign), interrupt, None);
        }
        profile::measure(self, stream, (grid.extents(), arguments), |observer| {
            self.start(stream, grid, (arguments, foreign), interrupt, observer)
        })
    }

    fn start(
        &self,
        stream: StreamRef<'_>,
        grid: Grid,
        (arguments, foreign): (&[Value<'_>], &[Region<'_>]),
        interrupt: Interrupt<'_>,
        observer: Option<&Observer>,
    ) -> Result<(), Error> {
        if let MachineCode::Cpu(program) = &*self.compiled.code {
            if !cfg!(feature = "cpu") {
                return Err(self.device().left_out());
            }
            let checks = sanitize::active();
            if !checks.is_empty() {
                sanitize::require_feature()?;
                return self.launch_sanitized(grid, arguments, foreign, interrupt, checks);
            }
            return self.run_program(program, grid, (arguments, foreign), interrupt, observer);
        }
        match self.loaded()? {
            Some(loaded) if !grid.is_empty() => {
                gpu::launch(self, loaded, stream, grid, (arguments, foreign), (interrupt, observer))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Starts the kernel on a GPU for a grid of `programs`, with the arguments in `parameters`.
    pub(crate) fn launch_passed(
        &self,
        stream: StreamRef<'_>,
        programs: [u32; 3],
        parameters: &mut Parameters,
    ) -> Result<(), Error> {
        match self.loaded()? {
            Some(loaded @ Loaded::Cuda { .. }) => {
                gpu::start(self, loaded, stream, programs, parameters, None)
            }
            Some(Loaded::Sim { .. }) | None => unreachable!("`Call::of_handle` refuses other devices"),
        }
    }

    /// Launches as [`launch`](Self::launch) does, but runs `program`, other CPU code of the same
    /// kernel. Tests use this function to run the IR before optimization.
    #[doc(hidden)]
    pub fn launch_program(
        &self,
        program: &Program,
        grid: Grid,
        arguments: &[Value<'_>],
        interrupt: Interrupt<'_>,
    ) -> Result<(), Error> {
        self.run_program(program, grid, (arguments, &[]), interrupt, None)
    }

    fn run_program(
        &self,
        program: &Program,
        grid: Grid,
        (arguments, foreign): (&[Value<'_>], &[Region<'_>]),
        interrupt: Interrupt<'_>,
        observer: Option<&Observer>,
    ) -> Result<(), Error> {
        if grid.is_empty() {
            return Ok(());
        }
        let mut passed = CpuArguments::new();
        self.pass(arguments, &mut |element, value| {
            passed.push(cpu_argument(element, value)?);
            Some(())
        })?;
        let reads = padded::are_padded_reads_allowed().then(PaddedReads::default);
        let launch = Launch {
            grid: grid.extents(),
            arguments: &passed,
            foreign,
            threads: self.cpu_threads(),
            interrupt,
            padded: reads.as_ref(),
            machine_code: !Knobs::current().without_machine_code,
        };
        let outcome = match observer {
            None => program.launch(&launch),
            Some(observer) => observer.run_program(program, &launch),
        };
        if let (Some(reads), Ok(())) = (&reads, &outcome) {
            padded::keep_padded_reads(reads.diagnostics(program, &launch), program.sources());
        }
        outcome.map_err(|diagnostic| Error::new(*diagnostic, SourceMap::clone(program.sources())))
    }
}
