//! The passes over the GPU dialect; [`PASSES`] lists them in order.

mod allocation;
mod barriers;
mod boxed;
mod butterfly;
mod cluster_multicast;
mod conversions;
mod defer_lane_reduction;
mod dependent_dots;
mod device_tensor_maps;
mod global_memory;
mod hoist_accumulators;
mod instruction_selection;
mod loop_carried_alias;
mod memory_effects;
mod partition_warps;
mod pipelining;
mod prune;
mod rank_dependence;
mod register_operands;
mod rings;
mod scans;
mod schedule_instructions;
mod tensor_copies;
mod tensor_dots;
mod tensor_maps;
mod tensor_memory;
mod tensor_store_fallback;
mod tensor_stores;
mod unroll_by_ring_depth;
mod wgmma_operands;

pub use allocation::least_shared_bytes;
pub(crate) use barriers::partition_barrier;

use tilewright_base::Diagnostic;
use tilewright_ir as ir;

use crate::idioms;
use tilewright_gpu_ir::Module;

/// A pass over the GPU dialect.
pub type Pass = ir::Pass<Module, Box<Diagnostic>>;

/// The passes, in order.
pub const PASSES: &[Pass] = &[
    Pass::fallible("conversions", conversions::lower_conversions),
    Pass::new("defer_lane_reduction", defer_lane_reduction::defer_lane_reduction),
    Pass::new("partition_warps", partition_warps::partition_warps),
    Pass::fallible("pipelining", pipelining::pipeline_loops),
    Pass::new("schedule_instructions", schedule_instructions::schedule_instructions),
    Pass::new("tensor_stores", tensor_stores::use_tensor_stores),
    Pass::new("tensor_copies", tensor_copies::use_tensor_copies),
    Pass::new("unroll_by_ring_depth", unroll_by_ring_depth::unroll_by_ring_depth),
    Pass::fallible("rings", rings::lower_rings),
    Pass::new("cluster_multicast", cluster_multicast::share_copies),
    Pass::new("register_operands", register_operands::take_from_registers),
    Pass::new("instruction_selection", instruction_selection::select_instructions),
    Pass::new("rescaling", idioms::skip_rescaling),
    Pass::new("hoist_accumulators", hoist_accumulators::hoist_accumulators),
    Pass::new("tensor_dots", tensor_dots::use_tensor_memory),
    Pass::fallible("tensor_memory", tensor_memory::allocate_tensor_memory),
    Pass::fallible("allocation", allocation::allocate_shared_memory),
    Pass::new("barriers", barriers::insert_barriers),
];

/// The passes over a program that states its layouts and copies (Gluon), in order. They still
/// insert barriers of the block.
pub const EXPLICIT_PASSES: &[Pass] = &[
    Pass::fallible("conversions", conversions::lower_conversions),
    Pass::new("instruction_selection", instruction_selection::select_instructions),
    Pass::fallible("tensor_memory", tensor_memory::allocate_tensor_memory),
    Pass::fallible("allocation", allocation::allocate_shared_memory),
    Pass::new("barriers", barriers::insert_barriers),
];

/// The steps of `pipelining`, which tests run one by one.
pub const PARTS: &[Pass] = &[
    Pass::fallible("schedule_loops", pipelining::schedule_loops),
    Pass::fallible("expand_loops", pipelining::expand_loops),
];
