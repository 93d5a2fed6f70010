//! Stores a compiled kernel as texts, and restores it without compiling.
//!
//! Locks contain these texts.

use std::sync::Arc;

use tilewright_base::{Code, Diagnostic, SourceMap};
use tilewright_frontend::{Failure, FunctionSource, Lowered};
use tilewright_gpu_ir::{Gpu, GpuTarget};
use tilewright_ir::Module;

use crate::{
    CompileError, CompiledKernel, DumpHook, GpuCode, Job, MachineCode, Stage, Target, cpu_program, failure,
    finish, verify, with_stack,
};

/// The texts of a compiled kernel, with the locations of its instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredKernel {
    /// The tile IR before optimization.
    pub ir: String,
    /// The tile IR after optimization.
    pub opt: String,
    /// The code for a GPU. It is `None` for the CPU.
    pub gpu: Option<StoredGpuCode>,
}

/// The stored code for a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredGpuCode {
    /// The program in the GPU dialect.
    pub program: String,
    /// The PTX.
    pub ptx: String,
    /// The cubin, if it was stored.
    pub cubin: Option<Vec<u8>>,
}

impl StoredKernel {
    /// Returns the texts of a compiled kernel, without a cubin.
    pub fn of(kernel: &CompiledKernel) -> Self {
        with_stack(|| Self {
            ir: tilewright_ir::print(&kernel.lowered, true),
            opt: tilewright_ir::print(&kernel.module, true),
            gpu: match &*kernel.code {
                MachineCode::Cpu(_) => None,
                MachineCode::Gpu(code) => Some(StoredGpuCode::of(code)),
            },
        })
    }
}

impl StoredGpuCode {
    /// Returns the texts of code for a GPU, without a cubin.
    pub fn of(code: &GpuCode) -> Self {
        Self { program: tilewright_ir::print(&code.program, true), ptx: code.ptx.clone(), cubin: None }
    }
}

/// Returns a hash of the IR before optimization, without locations. Kernels with equal hashes
/// compute the same results, even if their source files differ.
pub fn ir_digest(lowered: &Module) -> String {
    let text = with_stack(|| tilewright_ir::print(lowered, false));
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Compiles a kernel that [`lower`](crate::lower) has lowered.
///
/// # Errors
/// Returns the errors of the kernel.
pub fn compile_lowered(
    job: &Job,
    source: Option<FunctionSource>,
    lowered: Lowered,
    dump: &mut DumpHook<'_>,
) -> Result<CompiledKernel, CompileError> {
    with_stack(|| finish(job, source, lowered, dump))
}

/// Parses a module from the stored text of a stage. `sources` are the source files of the module in
/// this process.
///
/// # Errors
/// Returns an error if the text is not a module.
pub fn parse_stored(stage: Stage, text: &str, sources: &Arc<SourceMap>) -> Result<Module, CompileError> {
    with_stack(|| {
        let mut module = tilewright_ir::parse(text).map_err(|error| malformed(stage, &error.to_string()))?;
        verify(&module, stage)?;
        locate_in(&mut module.sources, sources);
        Ok(module)
    })
}

/// The code of a stored kernel. A process can prepare this code before it lowers the kernel's
/// source.
#[derive(Debug)]
pub struct PreparedKernel {
    optimized: Module,
    code: MachineCode,
}

impl PreparedKernel {
    /// Parses a stored kernel, and compiles its optimized IR to a program for the CPU if that is
    /// the target.
    ///
    /// # Errors
    /// Returns an error if a text is not a module, if the CPU cannot execute the module, or if
    /// there is no code for the target.
    pub fn new(target: Target, stored: StoredKernel) -> Result<Self, CompileError> {
        with_stack(|| {
            let sources = Arc::default();
            let optimized = parse_stored(Stage::Opt, &stored.opt, &sources)?;
            let code = match (target, stored.gpu) {
                (Target::Cpu, _) => {
                    let program =
                        cpu_program(&optimized).map_err(|diagnostic| failure(*diagnostic, &optimized))?;
                    MachineCode::Cpu(Box::new(program))
                }
                (Target::Gpu(target), Some(stored)) => {
                    MachineCode::Gpu(Box::new(gpu_code(target, stored, &sources)?))
                }
                (Target::Gpu(_), None) => return Err(malformed(Stage::Gpu, "there is no program")),
            };
            Ok(Self { optimized, code })
        })
    }

    /// Generates the machine code of a program for the CPU. Otherwise the first launch generates
    /// it.
    pub fn make_machine_code(&self) {
        if let MachineCode::Cpu(program) = &self.code {
            with_stack(|| program.make_machine_code());
        }
    }
}

/// Restores a compiled kernel without running the passes. `lowered` is the IR to which this process
/// has lowered the kernel's source.
pub fn restore(
    job: &Job,
    source: Option<FunctionSource>,
    lowered: Lowered,
    prepared: PreparedKernel,
) -> CompiledKernel {
    let PreparedKernel { mut optimized, code } = prepared;
    let sources = &lowered.module.sources;
    locate_in(&mut optimized.sources, sources);
    let code = match code {
        MachineCode::Cpu(program) => {
            MachineCode::Cpu(Box::new(program.with_sources(Arc::clone(&optimized.sources))))
        }
        MachineCode::Gpu(mut code) => {
            locate_in(&mut code.program.sources, sources);
            MachineCode::Gpu(code)
        }
    };
    let is_shareable = lowered.is_shareable && job.target == Target::Cpu;
    CompiledKernel { is_shareable, ..CompiledKernel::new(job, source, lowered.module, optimized, code) }
}

/// Restores the GPU code of a variant of a kernel.
///
/// # Errors
/// Returns an error if the text is not a program. Also fails if the kernel is for the CPU.
pub fn restore_variant(kernel: &CompiledKernel, stored: StoredGpuCode) -> Result<GpuCode, CompileError> {
    match kernel.metadata.target {
        Target::Gpu(target) => with_stack(|| gpu_code(target, stored, &kernel.lowered.sources)),
        Target::Cpu => Err(malformed(Stage::Gpu, "the kernel is for the CPU")),
    }
}

fn gpu_code(
    target: GpuTarget,
    stored: StoredGpuCode,
    sources: &Arc<SourceMap>,
) -> Result<GpuCode, CompileError> {
    let StoredGpuCode { program, ptx, cubin } = stored;
    let mut program = tilewright_ir::parse_dialect::<Gpu>(&program)
        .map_err(|error| malformed(Stage::Gpu, &error.to_string()))?;
    // The PTX of the lock runs. The program is only shown, so its ops are not verified here.
    locate_in(&mut program.sources, sources);
    Ok(GpuCode { cubin, ..GpuCode::new(ptx, target, program) })
}

/// Replaces the source files of a stored module by those of this process. The stored text has only
/// the names of files.
///
/// Lowering numbers the files of equal kernels equally. Does nothing if the numbers of files
/// differ.
fn locate_in(stored: &mut Arc<SourceMap>, sources: &Arc<SourceMap>) {
    if stored.files().count() == sources.files().count() {
        *stored = Arc::clone(sources);
    }
}

fn malformed(stage: Stage, message: &str) -> CompileError {
    let message = format!("the stored text of stage '{}' cannot be read: {message}", stage.name());
    let diagnostic = Diagnostic::new(Code::InvalidLock, message)
        .note("this version of tilewright and the one that wrote the lock may differ")
        .hint("write the lock anew with `tilewright lock`");
    let (diagnostics, sources) = (vec![diagnostic], SourceMap::default());
    CompileError::Kernel(Box::new(Failure { diagnostics, sources }))
}
