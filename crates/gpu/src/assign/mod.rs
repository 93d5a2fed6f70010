//! Layout assignment: rewrites tile IR to the GPU dialect, with layouts. A *stated program* is a
//! Gluon program, which states its layouts.
//!
//! | file | contents |
//! |---|---|
//! | `dot_decomposition` | decomposes fp32 dots into dots of tf32 or bf16, on request |
//! | `split_k_across_warps` | splits K of dots with few rows across warps |
//! | `sink_joins` | sinks an op on both operands of a `tl.join` below the join |
//! | `swap_dot_operands` | computes tf32 dots with row-major B as their transposes |
//! | `mma_selection` | selects the instruction and the layouts of each dot |
//! | `tcgen05_selection` | selects the `tcgen05.mma` instruction of a dot, if there is one |
//! | `wgmma_selection` | selects the `wgmma` instruction of a dot, if there is one |
//! | `rematerialization` | finds the tiles that are recomputed in each layout that a use demands |
//! | `equivalence` | groups values that are not rematerialized into classes with one layout each |
//! | `boxes` | finds the loads and stores that tensor copies may execute |
//! | `coalescing` | computes the width of accesses to global memory, and their cost in a layout |
//! | `copied_loads` | finds the loads that asynchronous copies probably replace |
//! | `selection` | selects layouts of classes and accesses by their cost (`cost`) |
//! | `propagation` | collects the layouts that the users of each value demand |
//! | `accumulators` | finds the accumulators of a stated program that stay in flight |
//! | `chosen_allocations` | joins allocations among which a stated program chooses at run time |
//! | `stated` | takes the layouts that a program states, instead of selecting them |
//! | `workers` | makes partitions of the workers that a stated program starts |
//! | `rewrite` | builds the module in the GPU dialect |

mod accumulators;
pub mod boxes;
mod chosen_allocations;
pub mod coalescing;
mod copied_loads;
mod cost;
pub mod dot_decomposition;
mod equivalence;
pub mod mma_selection;
mod propagation;
mod rematerialization;
mod rewrite;
mod selection;
mod sink_joins;
pub mod split_k_across_warps;
mod stated;
pub mod swap_dot_operands;
pub mod tcgen05_selection;
mod wgmma_selection;
mod workers;

use tilewright_ir as ir;
use tilewright_opt::analysis::{Assumptions, analyze, analyze_assuming};

use crate::launcher::Launcher;
use boxes::TensorBoxes;
use copied_loads::copied_loads;
use cost::LayoutCosts;
use equivalence::Classes;
use mma_selection::DotPlans;
use propagation::{AssignContext, Demands};
use rematerialization::Rematerializable;
use tilewright_gpu_ir::Module;
use tilewright_gpu_ir::target::GpuTarget;

pub use stated::translate as translate_stated;

/// Assigns a layout to every value of a kernel without calls. `num_stages` applies to each loop
/// without its own number of pipeline stages.
pub fn assign_layouts(
    module: &ir::Module,
    target: GpuTarget,
    (num_warps, num_stages): (u32, u32),
    launcher: Launcher<'_>,
) -> Module {
    let function = module.kernel();
    let addresses = analyze_assuming(function, Assumptions::ADDRESSES);
    // `addresses` assumes that integers in addresses do not wrap around; `certain` does not.
    let certain = analyze(function);
    let mut costs = LayoutCosts::new(target.tuning);
    let dots = DotPlans::new(function, target, num_warps, &mut costs);
    let rematerializable = Rematerializable::new(function, target.tuning);
    let boxes = TensorBoxes::new(module, &addresses, target, launcher);
    let copied = copied_loads(function, num_stages, target, &boxes);
    let classes = Classes::new(function, &rematerializable, &dots, &copied, (&addresses, target));
    let choice = selection::select_layouts(function, &classes, &mut costs, num_warps);
    let context = AssignContext {
        function,
        boxes: &boxes,
        rematerializable: &rematerializable,
        classes: &classes,
        dots: &dots,
        addresses: &addresses,
        certain: &certain,
        target,
        num_warps,
        workers: &workers::Workers::default(),
    };
    let demands = Demands::new(&context, choice, &mut costs);
    rewrite::rewrite(module, &context, &demands, &mut costs)
}
