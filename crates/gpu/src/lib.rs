//! Compiles tile IR to a program in the GPU dialect.
//!
//! ```text
//! ir::Module (after opt) ── tile, assign ──> gpu_ir::Module ── passes ──> ptx::lower
//! ```
//!
//! | folder | contents |
//! |---|---|
//! | `tile` | passes over tile IR: legality, unrolling, padding, clusters, addresses, warps |
//! | `assign` | layout assignment, dot instructions: tile IR to the [dialect](tilewright_gpu_ir) |
//! | `idioms` | each file optimizes one idiom of kernels, such as online softmax |
//! | `passes` | passes over the dialect: conversions, rings, warp instructions, allocation, barriers |

mod assign;
mod cost_model;
mod idioms;
mod launcher;
mod passes;
mod preparation;
mod remarks;
mod tile;

use tilewright_base::{Code, Diagnostic};
use tilewright_ir as ir;

use preparation::Preparation;
use tilewright_gpu_ir::{GpuTarget, Module};

pub use launcher::Launcher;
pub use passes::{EXPLICIT_PASSES, PARTS, PASSES, Pass, least_shared_bytes};
pub use tile::cluster::{Refusal, divide};

/// Assigns a layout to each value of a kernel. Returns the program before [`PASSES`] run on it.
///
/// `num_warps` is a power of two up to [`MAX_WARPS`](tilewright_gpu_ir::MAX_WARPS).
///
/// # Errors
/// If the kernel has a construct that the GPU path does not support.
pub fn assign_layouts(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
) -> Result<Module, Box<Diagnostic>> {
    assign_layouts_for(module, target, num_warps, 1, Launcher::default())
}

/// Assigns layouts for a launcher other than the default. `num_stages` applies to each loop without
/// its own number of pipeline stages.
///
/// # Errors
/// If the kernel has a construct that the GPU path does not support.
pub fn assign_layouts_for(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    num_stages: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    if module.states_layouts() {
        return explicit_program(module, target, num_warps, launcher);
    }
    let mut kernel = Preparation { module: module.clone(), target, num_warps, cluster: 1, launcher };
    ir::run_passes(&Preparation::PASSES, &mut kernel, |_, _| ())?;
    let Preparation { module, num_warps, cluster, .. } = kernel;
    let mut program = assign::assign_layouts(&module, target, (num_warps, num_stages), launcher);
    program.header.stages = num_stages;
    program.header.cluster = cluster;
    if cluster == 1 {
        program.header.order = idioms::program_order(&module);
    }
    Ok(program)
}

/// Translates a program that states its layouts (Gluon).
fn explicit_program(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    let mut module = module.clone();
    if tile::legality::request_inlining(&mut module) {
        let level = tilewright_opt::Level::Inline;
        let options = tilewright_opt::Options { level, ..Default::default() };
        tilewright_opt::optimize(&mut module, &options, &mut |_, _| {});
    }
    tile::legality::check(&module, num_warps)?;
    let blocks = launcher.cluster.max(1);
    if blocks > 1 {
        tile::warps::check_cluster(target, blocks)?;
        let entry = module.entry;
        tile::stated::divide(&mut module.functions[entry], blocks)?;
    }
    let mut program = assign::translate_stated(&module, target, num_warps, launcher)?;
    program.header.cluster = blocks;
    Ok(program)
}

/// Compiles a kernel for a target, with the default launcher.
///
/// `num_warps` is a power of two up to [`MAX_WARPS`](tilewright_gpu_ir::MAX_WARPS). `num_stages`
/// applies to each loop without its own number of pipeline stages.
///
/// # Errors
/// If the GPU path does not support a construct, or the target has too little shared memory.
pub fn compile(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    num_stages: u32,
) -> Result<Module, Box<Diagnostic>> {
    compile_for(module, target, num_warps, num_stages, Launcher::default())
}

/// Compiles a kernel for a launcher other than the default.
///
/// # Errors
/// If the GPU path does not support a construct, or the target has too little shared memory.
pub fn compile_for(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    num_stages: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    let mut program = assign_layouts_for(module, target, num_warps, num_stages, launcher)?;
    verify(&program, "assign");
    check_explicit(&program)?;
    run_passes(&mut program)?;
    check_explicit(&program)?;
    Ok(program)
}

/// Runs [`PASSES`] over a program. A program that states its layouts (Gluon) gets
/// [`EXPLICIT_PASSES`] instead. Passes that already ran change nothing.
///
/// # Errors
/// If a pass cannot lower an op, a ring or a schedule. The call also fails if the program needs
/// more shared memory than the target has.
pub fn run_passes(program: &mut Module) -> Result<(), Box<Diagnostic>> {
    let passes = if program.header.explicit { EXPLICIT_PASSES } else { PASSES };
    ir::run_passes(passes, program, |name, program| verify(program, name))
}

/// Refuses a Gluon program that uses shared memory or barriers wrongly. In other programs, such an
/// error would be a bug of a pass.
fn check_explicit(program: &Module) -> Result<(), Box<Diagnostic>> {
    if !program.header.explicit {
        return Ok(());
    }
    let Err(error) = ir::verify(program) else { return Ok(()) };
    let kernel = program.kernel();
    tilewright_gpu_ir::find_violation(&program.header, kernel).map_err(|violation| {
        let (code, message) = (Code::SharedMemoryMisuse, violation.message);
        let diagnostic = match violation.inst {
            Some(inst) => tile::legality::at(kernel, inst, code, message),
            None => Diagnostic::new(code, message),
        };
        let diagnostic = diagnostic.note("the compiler adds no waits, fences or phases to a Gluon kernel");
        Box::new(match names_in_gluon(&diagnostic.message) {
            Some(names) => diagnostic.note(names),
            None => diagnostic,
        })
    })?;
    // No rule over several instructions is violated, so a single op is illegal. Example: a dot that
    // no instruction computes.
    Err(Box::new(Diagnostic::new(Code::NotOnThisDevice, error.message)))
}

/// Returns a note with the Gluon names of the ops in a message.
fn names_in_gluon(message: &str) -> Option<String> {
    const NAMES: &[(&str, &str)] = &[
        ("fence_proxy", "fence_async_shared()"),
        ("local_load", "smem.load(…)"),
        ("local_store", "smem.store(…)"),
        ("mbarrier_arrive_times", "mbarrier.arrive(…)"),
        ("mbarrier_expect", "mbarrier.expect(…)"),
        ("mbarrier_init", "mbarrier.init(…)"),
        ("mbarrier_invalidate", "mbarrier.invalidate(…)"),
        ("mbarrier_wait", "mbarrier.wait(…)"),
        ("tensor_load", "tma.async_load(…)"),
        ("tensor_store", "tma.async_store(…)"),
        ("tensor_store_wait", "tma.store_wait(…)"),
        ("wait_group", "async_copy.wait_group(…)"),
        ("wgmma", "warpgroup_mma(…)"),
        ("wgmma_wait", "warpgroup_mma_wait(…)"),
    ];
    let words: Vec<&str> = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let found: Vec<String> = NAMES
        .iter()
        .filter(|(op, _)| words.contains(op))
        .map(|(op, name)| format!("{op} is `{name}`"))
        .collect();
    (!found.is_empty()).then(|| format!("in Gluon, {}", found.join(", ")))
}

/// Verifies a program after a pass, in builds with debug assertions.
fn verify(module: &Module, pass: &str) {
    if cfg!(debug_assertions)
        && !module.header.explicit
        && let Err(error) = ir::verify(module)
    {
        panic!("after {pass}: {error}\n{}", ir::print(module, false));
    }
}
