//! Records launches in a trace.
//!
//! The CPU's executor runs a traced launch, so the kernel is compiled for the CPU. A Gluon kernel is
//! compiled for a simulated GPU (`simulated_trace`).

use std::time::Instant;

use serde_json::json;
use tilewright_base::{Color, SourceMap, Span};
use tilewright_compiler::{MachineCode, Stage, Target, cpu_program_for_traces};
use tilewright_cpu::{Argument as CpuArgument, Finding, Interrupt, Launch, Occurrence, Program, Tracing};
use tilewright_frontend::Failure;
use tilewright_sanitize::Checks;
use tilewright_trace as trace;

use crate::sanitize::{self, SourcePlace};

use crate::specialize::{CpuArguments, cpu_argument};
use crate::{Error, Grid, Handle, Region, Value};

/// A request to record a launch: the file, and the facts about the launch that only the caller
/// knows.
#[derive(Clone, Debug)]
pub struct TraceRequest<'a> {
    /// The recorder of the trace file.
    pub recorder: &'a trace::Recorder,
    /// The number that the recorder has given to the launch.
    pub number: u32,
    /// The limits of the record.
    pub limits: trace::Limits,
    /// The tensors that are passed.
    pub tensors: Vec<trace::Tensor>,
    /// The name and the text of each compile-time value.
    pub constants: Vec<(String, String)>,
    /// The checks of this launch, in addition to the checks that every launch has.
    pub checks: Checks,
}

impl Handle {
    /// Launches as [`launch`](Handle::launch) does, and records the launch. The kernel must be
    /// compiled for the CPU or for the simulator.
    #[doc(hidden)]
    pub fn launch_traced(
        &self,
        grid: Grid,
        arguments: &[Value<'_>],
        foreign: &[Region<'_>],
        interrupt: Interrupt<'_>,
        request: TraceRequest<'_>,
    ) -> Result<(), Error> {
        if let MachineCode::Gpu(_) = &*self.compiled.code {
            return self.launch_simulated(grid, (arguments, foreign), interrupt, &request);
        }
        let checks = request.checks.with(sanitize::active());
        let compiled;
        let (program, sanitized) = if checks.is_empty() {
            let module = &self.compiled.module;
            compiled = cpu_program_for_traces(module).map_err(|diagnostic| {
                let sources = SourceMap::clone(&module.sources);
                Error::Diagnostics(Box::new(Failure { diagnostics: vec![*diagnostic], sources }))
            })?;
            (&compiled, None)
        } else {
            let sanitized = self.sanitized_program()?;
            (sanitized.program(), Some(sanitized))
        };
        let mut passed = CpuArguments::new();
        self.pass(arguments, &mut |element, value| {
            passed.push(cpu_argument(element, value)?);
            Some(())
        })?;
        let mut points = program.trace_points();
        let programs: u64 = grid.extents().iter().map(|&extent| u64::from(extent)).product();
        let launch = trace::Launch {
            kernel: self.compiled.name.clone(),
            grid: grid.extents(),
            every: programs.div_ceil(request.limits.programs.max(1)).max(1),
            interpreted: false,
            files: std::mem::take(&mut points.files),
            parameters: parameters(program, &passed),
            tensors: request.tensors,
            constants: request.constants,
            ops: points.ops.clone(),
            ir: self.compiled.asm(Stage::Ir).unwrap_or_default(),
            warps_and_stages: {
                let codegen = self.compiled.metadata.codegen;
                [codegen.num_warps, codegen.num_stages]
            },
        };
        let recording = trace::Recording::begin(request.recorder, request.number, &launch, request.limits);
        let began = Instant::now();
        let (outcome, findings) = if grid.is_empty() {
            (Ok(()), Vec::new())
        } else {
            let tracing = Tracing { points: &points, recording: &recording };
            let launch = Launch {
                grid: grid.extents(),
                arguments: &passed,
                foreign,
                threads: self.cpu_threads(),
                interrupt,
                padded: None,
                machine_code: true,
            };
            match sanitized {
                Some(sanitized) => sanitized.launch_observed(&launch, checks, Some(tracing)),
                None => (program.launch_traced(&launch, tracing), Vec::new()),
            }
        };
        let nanoseconds = began.elapsed().as_nanos() as u64;
        let outcome =
            outcome.map_err(|diagnostic| Error::new(*diagnostic, SourceMap::clone(program.sources())));
        if sanitized.is_some() {
            let found: Vec<_> =
                findings.iter().map(|finding| found(finding, program.sources(), grid.extents())).collect();
            request.recorder.findings(request.number, &checks.to_string(), &found);
        }
        recording.end(nanoseconds, outcome.as_ref().err().map(ToString::to_string).as_deref());
        for finding in findings {
            sanitize::keep(&self.compiled.name, &finding, program.sources());
        }
        outcome
    }
}

pub(crate) fn found(finding: &Finding, sources: &SourceMap, grid: [u32; 3]) -> trace::Finding {
    let Finding { check, diagnostic, lane, other, count, occurrences, .. } = finding;
    let place = |span: Span| {
        let SourcePlace { file, line, column } = sanitize::place_of(sources, span);
        // The source in a trace has no common indentation.
        (file, line, column - sources.file(span.file).removed_columns)
    };
    let number = |[x, y, z]: [u32; 3]| {
        let [width, height, _] = grid.map(u64::from);
        (u64::from(z) * height + u64::from(y)) * width + u64::from(x)
    };
    let occurrence = |occurrence: &Occurrence| trace::Occurrence {
        program: number(occurrence.program),
        element: occurrence.element.clone(),
        other: occurrence.other.map(number),
    };
    trace::Finding {
        check: check.name().into(),
        code: diagnostic.code.name().into(),
        message: diagnostic.message.clone(),
        text: diagnostic.render(sources, Color::Never),
        place: diagnostic.primary.as_ref().map(|label| place(label.span)),
        other: other.as_ref().and_then(|other| other.span).map(place),
        lane: lane.clone(),
        count: *count,
        occurrences: occurrences.iter().map(occurrence).collect(),
    }
}

/// Returns the layouts of a launch's kernel on a GPU of this compute capability (times 10), as JSON
/// for a page. If the kernel cannot be compiled for this GPU, or was interpreted, returns the
/// reason as `{"error": …}`.
pub fn layouts_of_launch(launch: &trace::Launch, capability: u32) -> String {
    let [warps, stages] = launch.warps_and_stages;
    let found = match Target::for_capability(capability) {
        _ if launch.ir.is_empty() => Err("the kernel was interpreted: there is no code for a GPU".into()),
        Some(Target::Gpu(target)) => tilewright_compiler::layouts_of_ir(&launch.ir, target, warps, stages),
        Some(Target::Cpu) | None => Err(format!("compute capability {capability} is not supported")),
    };
    found.unwrap_or_else(|reason| json!({ "error": reason }).to_string())
}

fn parameters(program: &Program, passed: &[CpuArgument<'_>]) -> Vec<trace::Parameter> {
    let described = program.traced_parameters().zip(passed);
    described
        .map(|((name, dtype), argument)| trace::Parameter { name, dtype, bits: bits_of(argument) })
        .collect()
}

/// Returns the bits of an argument: of a pointer, those of its address.
pub(crate) fn bits_of(argument: &CpuArgument<'_>) -> u64 {
    match argument {
        CpuArgument::Pointer { address, .. } => *address,
        CpuArgument::Scalar(bits) => *bits,
    }
}
