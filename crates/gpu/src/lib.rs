//! From tile IR to a program for the threads of a GPU: which thread holds what, what goes through shared memory, where threads
//! wait.
//!
//! ```text
//! ir::Module (after opt) ── tile ──> ── assign ──> language::Module ── passes ──> ptx::lower
//! ```
//!
//! | folder | what it does |
//! |---|---|
//! | `tile` | prepares tile IR: what is refused, extents that are powers of two, tiles of pointers as a scalar pointer and 32-bit offsets |
//! | `assign` | gives every value a layout, every product its instruction: tile IR becomes the [`language`] |
//! | `language` | values with layouts, shared memory, copies, barriers, warps with roles: a dialect of the IR |
//! | `idioms` | the mechanisms that are for one idiom of kernels |
//! | `passes` | from text to text: conversions of layouts, rings, instructions of warps, allocation, barriers |

mod assign;
mod box_layout;
mod commutation;
mod cost_model;
mod idioms;
pub mod language;
mod launcher;
mod layout_rules;
mod passes;
mod preparation;
mod remarks;
mod target;
mod tile;
mod tuning;
mod warp_instructions;

use tilewright_base::Diagnostic;
use tilewright_ir as ir;

use language::Module;
use preparation::Preparation;

pub use box_layout::BoxLayout;
pub use commutation::commutes;
pub use launcher::Launcher;
pub use layout_rules::{ROWS_OF_COPY, element_bits, fma_operand_layout, row_numbers};
pub use passes::{PARTS, PASSES, Pass, least_shared_bytes};
pub use target::{Feature, Features, GpuTarget, MOST_WARPS, TargetError};
pub use tile::cluster::{Refusal, divide};
pub use tuning::{HOPPER, Tuning};
pub use warp_instructions::{warp_reduction, warps_of_product};

/// A kernel with a layout for every value, before the passes over the language: tile IR that says where its elements are.
///
/// # Errors
/// What the GPU path cannot do. The number of warps is a power of two up to [`MOST_WARPS`].
pub fn assign_layouts(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
) -> Result<Module, Box<Diagnostic>> {
    assign_layouts_for(module, target, num_warps, Launcher::default())
}

/// As [`assign_layouts`], for a launcher.
///
/// # Errors
/// As [`assign_layouts`].
pub fn assign_layouts_for(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    let mut kernel = Preparation { module: module.clone(), target, num_warps, cluster: 1, launcher };
    ir::run_passes(&Preparation::PASSES, &mut kernel, |_, _| ())?;
    let Preparation { module, num_warps, cluster, .. } = kernel;
    let mut program = assign::assign_layouts(&module, target, num_warps, launcher);
    program.header.cluster = cluster;
    if cluster == 1 {
        program.header.order = idioms::program_order(&module);
    }
    Ok(program)
}

/// The program of a kernel for a target and a number of warps, a power of two up to [`MOST_WARPS`]; loops that do not say it
/// themselves get pipelines of so many stages.
///
/// # Errors
/// What the GPU path cannot do, and what does not fit into shared memory.
pub fn compile(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    num_stages: u32,
) -> Result<Module, Box<Diagnostic>> {
    compile_for(module, target, num_warps, num_stages, Launcher::default())
}

/// As [`compile`], for a launcher.
///
/// # Errors
/// As [`compile`].
pub fn compile_for(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    num_stages: u32,
    launcher: Launcher<'_>,
) -> Result<Module, Box<Diagnostic>> {
    let mut program = assign_layouts_for(module, target, num_warps, launcher)?;
    program.header.stages = num_stages;
    verify(&program, "assign");
    run_passes(&mut program)?;
    Ok(program)
}

/// Runs the passes over a program. Where one has done its work already, it changes nothing.
///
/// # Errors
/// What does not fit into shared memory.
pub fn run_passes(program: &mut Module) -> Result<(), Box<Diagnostic>> {
    ir::run_passes(PASSES, program, |name, program| verify(program, name))
}

/// Between passes, where debug assertions are on.
fn verify(module: &Module, pass: &str) {
    if cfg!(debug_assertions)
        && let Err(error) = ir::verify(module)
    {
        panic!("after {pass}: {error}\n{}", ir::print(module, false));
    }
}
