//! Compiles kernels.
//!
//! [`compile`] lowers the source of a kernel to tile IR and optimizes the IR. For a CPU, it then
//! compiles the IR to a program of the executor. For a GPU, it compiles the IR to the GPU dialect,
//! and then to PTX.
//!
//! ```text
//! Job ──lower──> Module ──optimize──> Module ──cpu──> Program
//!  ast             ir                   opt           cpu, asm
//!                                     Module ──compile──> Module ──lower──> PTX
//!                                                          gpu              ptx
//! ```
//! [`Stage`] lists the representations that can be printed. This crate needs no Python and has no
//! state: the runtime caches compiled kernels.

#[cfg(feature = "python-syntax")]
mod ast;
mod compiled;
mod explain;
#[cfg(feature = "gpu")]
mod gpu_text;
mod inline_asm;
mod occupancy;
#[cfg(feature = "python-syntax")]
mod operation;
mod shared_memory;
mod stage;
mod stored;
mod syntax;
mod target;
mod variants;

#[cfg(feature = "python-syntax")]
pub use ast::functions_of;
pub use syntax::{FunctionSyntax, ParameterSyntax, function_syntax, syntax_tree};
pub use tilewright_gpu_ir::Tuning;
pub use tilewright_gpu_ir::{
    LaunchInteger, LaunchTerm, SwizzleMode, TensorAccess, TensorMapBox, TensorMapPlan,
};
/// The analysis that decides whether accesses are in bounds for every size.
pub use tilewright_opt::bounds;

pub use compiled::{
    CompiledKernel, GpuCode, MachineCode, Metadata, ParameterType, Resources, remove_folders,
};
pub use explain::{SourceText, StageText, layouts_of_ir};
#[cfg(feature = "gpu")]
pub use gpu_text::compile_gpu_text;
pub use occupancy::{Multiprocessor, Occupancy, against_spills};
#[cfg(feature = "python-syntax")]
pub use operation::{CompiledOperation, compile_operation, locate};
pub use shared_memory::BarrierUsers;
pub use stage::{DumpHook, Stage};
pub use stored::{
    PreparedKernel, StoredGpuCode, StoredKernel, compile_lowered, ir_digest, parse_stored, restore,
    restore_variant,
};
pub use target::Target;
pub use variants::{MAX_VARIANTS, TensorMapVariant};

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tilewright_base::{Code, Diagnostic, SourceMap};
use tilewright_frontend::{Failure, FunctionSource, Host, Lowered, Request};
use tilewright_ir as ir;
use tilewright_ir::Module;
use tilewright_opt::Level;

/// The input of a compilation: a kernel, its arguments, the target and the options.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The kernel, the facts about its arguments, and the options that the frontend reads.
    pub request: Request,
    /// The name of each parameter, in order.
    pub parameters: Vec<Arc<str>>,
    /// The target.
    pub target: Target,
    /// The options that only back ends read.
    pub codegen: CodegenOptions,
}

/// The options of a launch that only affect back ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CodegenOptions {
    /// The number of warps that run a program. It has no effect on a CPU.
    pub num_warps: u32,
    /// The depth of software pipelines. It has no effect on a CPU.
    pub num_stages: u32,
    /// The number of thread blocks that run one program. If the compiler cannot divide the program,
    /// one block runs it, with as many warps as the `num_ctas` blocks have together.
    pub num_ctas: u32,
    /// The maximum number of registers of a thread. With `None`, the compiler chooses.
    pub max_registers: Option<u32>,
    /// True if the compiler may fuse a multiplication and an addition, so that the result is
    /// rounded once instead of twice. GPU code fuses them whenever this is true.
    pub contraction: bool,
    /// True if the launcher creates the tensor maps that the code needs ([`GpuCode::tensor_maps`])
    /// and passes them to the kernel.
    pub tensor_maps: bool,
}

impl Default for CodegenOptions {
    fn default() -> Self {
        Self {
            num_warps: 4,
            num_stages: 3,
            num_ctas: 1,
            max_registers: None,
            contraction: true,
            tensor_maps: false,
        }
    }
}

/// The reason why a compilation fails.
#[derive(Clone, Debug)]
pub enum CompileError {
    /// An error of the kernel.
    Kernel(Box<Failure>),
    /// A bug of tilewright: a stage produced invalid IR, or IR text from another process does not
    /// parse.
    Internal(Box<InternalError>),
}

/// An internal error of tilewright.
#[derive(Clone, Debug)]
pub struct InternalError {
    /// The stage whose IR is wrong.
    pub stage: Stage,
    /// The error of the verifier or the parser.
    pub message: String,
    /// The text of the IR.
    pub ir: String,
}

impl fmt::Display for InternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, message, ir } = self;
        write!(
            f,
            "internal error of tilewright at stage '{}': {message}\nplease report this, with the IR:\n{ir}",
            stage.name()
        )
    }
}

/// Compiles a kernel. Calls `dump` for each stage that the compilation reaches, even if a later
/// stage fails.
pub fn compile(
    job: &Job,
    host: &mut dyn Host,
    dump: &mut DumpHook<'_>,
) -> Result<CompiledKernel, CompileError> {
    let source = host.source(job.request.kernel).ok();
    dump(Stage::Ast, &|| syntax_tree(source.as_ref()));

    let lowered = lower(job, host)?;
    // Lowering grows the stack itself, so it does not need `with_stack`.
    with_stack(|| finish(job, source, lowered, dump))
}

/// Lowers the source of a kernel to tile IR. This is the first step of [`compile`].
///
/// # Errors
/// Returns the errors of the kernel.
#[cfg(feature = "python-syntax")]
pub fn lower(job: &Job, host: &mut dyn Host) -> Result<Lowered, CompileError> {
    tilewright_frontend::lower_kernel(&job.request, host).map_err(CompileError::Kernel)
}

/// Returns an error, because this build cannot parse Python.
#[cfg(not(feature = "python-syntax"))]
pub fn lower(_: &Job, _: &mut dyn Host) -> Result<Lowered, CompileError> {
    let (diagnostics, sources) = (vec![*without_feature("python-syntax")], SourceMap::default());
    Err(CompileError::Kernel(Box::new(Failure { diagnostics, sources })))
}

/// Parses the IR of a kernel that another process printed at stage `ir`. No [`Host`] is needed,
/// because all names of the source are already resolved in the IR.
///
/// # Errors
/// Returns an error if the text is not a module.
pub fn parse_lowered(text: &str) -> Result<Lowered, CompileError> {
    let module = with_stack(|| tilewright_ir::parse(text)).map_err(|error| {
        let (message, ir) = (format!("{error}, in text from another process"), text.to_owned());
        CompileError::Internal(Box::new(InternalError { stage: Stage::Ir, message, ir }))
    })?;
    Ok(Lowered { module, is_shareable: false })
}

/// Runs the stages after lowering.
fn finish(
    job: &Job,
    source: Option<FunctionSource>,
    Lowered { module: lowered, is_shareable }: Lowered,
    dump: &mut DumpHook<'_>,
) -> Result<CompiledKernel, CompileError> {
    dump(Stage::Ir, &|| tilewright_ir::print(&lowered, false));
    verify(&lowered, Stage::Ir)?;

    let mut optimized = lowered.clone();
    let level = if lowered.states_layouts() { Level::Inline } else { Level::Full };
    let options = tilewright_opt::Options { level, keeps_scaled_dots: job.target.has_scaled_dots() };
    tilewright_opt::optimize(&mut optimized, &options, &mut |_, _| {});
    dump(Stage::Opt, &|| tilewright_ir::print(&optimized, false));
    verify(&optimized, Stage::Opt)?;

    if job.target == Target::Cpu {
        refuse_stated_layouts(&optimized).map_err(|diagnostic| failure(*diagnostic, &optimized))?;
    }
    let code = match job.target {
        Target::Cpu if cfg!(feature = "cpu") => {
            let program = cpu_program(&optimized).map_err(|diagnostic| failure(*diagnostic, &optimized))?;
            dump(Stage::Cpu, &|| program.to_string());
            dump(Stage::Asm, &|| program.machine_listing().to_string());
            MachineCode::Cpu(Box::new(program))
        }
        Target::Cpu => return Err(failure(*without_feature("cpu"), &optimized)),
        Target::Gpu(target) => {
            inline_asm::check(&optimized).map_err(|diagnostic| failure(*diagnostic, &optimized))?;
            MachineCode::Gpu(Box::new(gpu_code(&optimized, target, (job.codegen, &[]), dump)?))
        }
    };

    let mut compiled = CompiledKernel::new(job, source, lowered, optimized, code);
    compiled.is_shareable = is_shareable && job.target == Target::Cpu;
    Ok(compiled)
}

/// Generates the code for a GPU. The accesses in `without` do not use tensor maps.
#[cfg(feature = "gpu")]
fn gpu_code(
    optimized: &Module,
    target: tilewright_gpu_ir::GpuTarget,
    (codegen, without): (CodegenOptions, &[TensorAccess]),
    dump: &mut DumpHook<'_>,
) -> Result<GpuCode, CompileError> {
    let launcher = tilewright_gpu::Launcher {
        makes_tensor_maps: codegen.tensor_maps,
        without,
        adds_warps: codegen.max_registers.is_none(),
        cluster: codegen.num_ctas,
    };
    let refused = |diagnostic: Box<Diagnostic>| failure(*diagnostic, optimized);
    let mut program =
        tilewright_gpu::compile_for(optimized, target, codegen.num_warps, codegen.num_stages, launcher)
            .map_err(refused)?;
    program.header.contraction = codegen.contraction;
    dump(Stage::Gpu, &|| tilewright_ir::print(&program, false));
    verify(&program, Stage::Gpu)?;
    let ptx = compiled::ptx(&program, codegen.max_registers).map_err(refused)?;
    dump(Stage::Ptx, &|| ptx.clone());
    Ok(GpuCode::new(ptx, target, program))
}

/// Returns an error, because this build cannot generate code for a GPU.
#[cfg(not(feature = "gpu"))]
fn gpu_code(
    optimized: &Module,
    _: tilewright_gpu_ir::GpuTarget,
    _: (CodegenOptions, &[TensorAccess]),
    _: &mut DumpHook<'_>,
) -> Result<GpuCode, CompileError> {
    Err(failure(*without_feature("gpu"), optimized))
}

/// Returns the error for a stage that this build does not contain.
fn without_feature(feature: &str) -> Box<Diagnostic> {
    let message = format!("this program was built without the feature `{feature}` of tilewright-compiler");
    Box::new(Diagnostic::new(Code::NoDevice, message))
}

/// Returns the implementation of inline assembly on the CPU, if the build contains the simulator.
fn assembler() -> Option<&'static dyn tilewright_cpu::Assembler> {
    if cfg!(feature = "sim") { Some(&inline_asm::SimulatedAssembler) } else { None }
}

/// Compiles a module to a program of the CPU's executor. If the build contains the simulator, the
/// simulator runs the kernel's inline assembly.
///
/// If the executor generates machine code, short loops are unrolled first. The executor can then
/// compile them together with the surrounding steps.
pub fn cpu_program(module: &Module) -> Result<tilewright_cpu::Program, Box<Diagnostic>> {
    if !cfg!(feature = "cpu") {
        return Err(without_feature("cpu"));
    }
    let module = if tilewright_cpu::has_machine_code() { for_nests(module) } else { Cow::Borrowed(module) };
    tilewright_cpu::Program::with_assembler(&module, assembler())
}

/// Unswitches and unrolls short loops, so that their steps can join the executor's loop nests.
fn for_nests(module: &Module) -> Cow<'_, Module> {
    let unswitching = tilewright_opt::Unswitching {
        ops: tilewright_cpu::MAX_UNROLLED_LOOP_STEPS,
        allows: tilewright_cpu::may_be_in_nest,
    };
    let short = tilewright_opt::ShortLoops {
        iterations: tilewright_cpu::MAX_UNROLLED_ITERATIONS,
        ops: tilewright_cpu::MAX_UNROLLED_LOOP_STEPS,
        allows: tilewright_cpu::may_be_in_nest,
    };
    let unswitched =
        tilewright_opt::unswitch_loops(module, &unswitching).map_or(Cow::Borrowed(module), Cow::Owned);
    match tilewright_opt::unroll_short_loops(&unswitched, &short) {
        Some(unrolled) => Cow::Owned(unrolled),
        None => unswitched,
    }
}

/// Compiles a module to a program of the CPU's executor for traced launches.
pub fn cpu_program_for_traces(module: &Module) -> Result<tilewright_cpu::Program, Box<Diagnostic>> {
    tilewright_cpu::Program::for_traces(module, assembler())
}

/// Compiles a module to a program of the CPU's executor for launches with a sanitizer. `module` is
/// the module before optimization, so that the sanitizer checks the accesses of the source.
pub fn cpu_program_for_sanitizer(
    module: &Module,
) -> Result<tilewright_cpu::SanitizedProgram, Box<Diagnostic>> {
    if !cfg!(feature = "cpu") {
        return Err(without_feature("cpu"));
    }
    refuse_stated_layouts(module)?;
    tilewright_cpu::SanitizedProgram::new(module, assembler())
}

/// Returns an error for a program that states layouts.
fn refuse_stated_layouts(module: &Module) -> Result<(), Box<Diagnostic>> {
    if !module.states_layouts() {
        return Ok(());
    }
    let message = "a Gluon kernel is compiled for a GPU, or for the simulator of one";
    let hint = "launch it with a device such as sim:sm_90; on the command line, pass `--target sm_90`";
    Err(Box::new(Diagnostic::new(Code::Replaced, message).hint(hint)))
}

/// Compiles a module to a program of the CPU's executor that keeps every tile dense, with a stored
/// value for each element. The program uses no rematerialization, no fusion and no symbolic forms
/// (affine tiles and box masks). Tests compare its results with those of [`cpu_program`].
#[doc(hidden)]
pub fn cpu_program_without_symbolic_forms(
    module: &Module,
) -> Result<tilewright_cpu::Program, Box<Diagnostic>> {
    tilewright_cpu::Program::without_symbolic_forms(module, assembler())
}

/// Runs a stage on a stack for the deepest nesting that the frontend accepts. The stages recurse.
fn with_stack<T>(stage: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(2 << 20, 8 << 20, stage)
}

fn failure(diagnostic: Diagnostic, module: &Module) -> CompileError {
    let sources = SourceMap::clone(&module.sources);
    CompileError::Kernel(Box::new(Failure { diagnostics: vec![diagnostic], sources }))
}

/// Verifies the IR after a stage. Invalid IR is an internal error, not an error of the user.
fn verify<D: ir::Dialect>(module: &Module<D>, stage: Stage) -> Result<(), CompileError> {
    tilewright_ir::verify(module).map_err(|error| {
        let ir = tilewright_ir::print(module, false);
        CompileError::Internal(Box::new(InternalError { stage, message: error.to_string(), ir }))
    })
}
