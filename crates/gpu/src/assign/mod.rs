//! Layout assignment: from tile IR to the language of the GPU path, a layout for every value.
//!
//! | file | decides |
//! |---|---|
//! | `product_splitting` | nothing: products of fp32 that ask for it become several of tf32 or bf16 |
//! | `depth_splitting` | which products of few rows are computed in parts of K, one a warp |
//! | `join_sinking` | nothing: what is computed of both halves of a pair is computed of the pair |
//! | `transposed_products` | which products of tf32 are computed as their transposes |
//! | `mma_selection` | the instruction and the layouts of each matrix product |
//! | `wgmma_selection` | which of them warpgroups compute by `wgmma` |
//! | `rematerialization` | which tiles every thread computes for itself: they have any layout that is asked for |
//! | `equivalence` | which other values want one layout |
//! | `boxes` | which loads the tensor memory accelerator may do |
//! | `coalescing` | how wide accesses to global memory may be, and what they cost in a layout |
//! | `selection` | a layout for each class and each access, by the `cost` of accesses and conversions |
//! | `propagation` | which layouts each value is wanted in |
//! | `rewrite` | nothing: it writes the text |

pub mod boxes;
pub mod coalescing;
mod cost;
pub mod depth_splitting;
mod equivalence;
mod join_sinking;
pub mod mma_selection;
pub mod product_splitting;
mod propagation;
mod rematerialization;
mod rewrite;
mod selection;
pub mod transposed_products;
mod wgmma_selection;

use tilewright_ir as ir;
use tilewright_opt::analysis::{Assumptions, analyze, analyze_assuming};

use crate::launcher::Launcher;
use boxes::TensorBoxes;
use cost::LayoutCosts;
use equivalence::Classes;
use mma_selection::Products;
use propagation::{Decided, Demands};
use rematerialization::Rematerializable;
use tilewright_gpu_ir::Module;
use tilewright_gpu_ir::target::GpuTarget;

/// Gives every value of a kernel without calls a layout. Where the launcher makes tensor maps, loads that tensor copies may do say
/// so.
pub fn assign_layouts(
    module: &ir::Module,
    target: GpuTarget,
    num_warps: u32,
    launcher: Launcher<'_>,
) -> Module {
    let function = module.kernel();
    let addresses = analyze_assuming(function, Assumptions::ADDRESSES);
    // Numbers that programs compute with may wrap around, unlike those that they make addresses of.
    let certain = analyze(function);
    let mut costs = LayoutCosts::new(target.tuning);
    let products = Products::new(function, target, num_warps, &mut costs);
    let cheap = Rematerializable::new(function, target.tuning);
    let classes = Classes::new(function, &cheap, &products, (&addresses, target));
    let choice = selection::choose(function, &classes, &mut costs, num_warps);
    let boxes = TensorBoxes::new(module, &addresses, target, launcher);
    let decided = Decided {
        function,
        boxes: &boxes,
        cheap: &cheap,
        classes: &classes,
        products: &products,
        addresses: &addresses,
        certain: &certain,
        target,
        num_warps,
    };
    let demands = Demands::new(&decided, choice, &mut costs);
    rewrite::rewrite(module, &decided, &demands, &mut costs)
}
