//! The passes over the language of the GPU path, from text to text; [`PASSES`] is the list.

mod allocation;
mod barriers;
mod conversions;
mod disjoint;
mod exchanges;
mod global_memory;
mod instruction_selection;
mod lane_sums;
mod made_maps;
mod made_stores;
mod memory_effects;
mod pairs;
mod pipelining;
mod products;
mod prune;
mod register_operands;
mod rescaling;
mod rings;
mod scans;
mod slot_numbers;
mod specialization;
mod sums_first;
mod tensor_copies;
mod tensor_stores;
mod wgmma_operands;

pub use allocation::least_shared_bytes;

use tilewright_base::Diagnostic;

use crate::language::Module;

/// A pass.
pub struct Pass {
    /// Its name, in tests and dumps.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut Module) -> Result<(), Box<Diagnostic>>,
}

/// The passes, in order.
pub const PASSES: &[Pass] = &[
    Pass { name: "conversions", run: conversions::lower_conversions },
    Pass { name: "lane_sums", run: lane_sums },
    Pass { name: "specialization", run: specialization },
    Pass { name: "pipelining", run: pipelining::pipeline_loops },
    Pass { name: "products", run: products },
    Pass { name: "tensor_stores", run: tensor_stores },
    Pass { name: "tensor_copies", run: tensor_copies },
    Pass { name: "rings", run: rings::lower_rings },
    Pass { name: "pairs", run: pairs },
    Pass { name: "register_operands", run: register_operands },
    Pass { name: "instruction_selection", run: instruction_selection },
    Pass { name: "sums_first", run: sums_first },
    Pass { name: "rescaling", run: rescaling },
    Pass { name: "allocation", run: allocation::allocate_shared_memory },
    Pass { name: "barriers", run: barriers },
    Pass { name: "slot_numbers", run: slot_numbers },
];

/// The parts of `pipelining`: tests run them one by one.
pub const PARTS: &[Pass] = &[
    Pass { name: "schedule_loops", run: pipelining::schedule_loops },
    Pass { name: "expand_loops", run: pipelining::expand_loops },
];

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn lane_sums(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    lane_sums::keep_sums_in_lanes(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn products(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    products::overlap_products(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn specialization(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    specialization::specialize_warps(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn tensor_stores(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    tensor_stores::use_tensor_stores(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn tensor_copies(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    tensor_copies::use_tensor_copies(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn pairs(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    pairs::share_copies(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn register_operands(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    register_operands::take_from_registers(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn instruction_selection(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    instruction_selection::select_instructions(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn sums_first(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    sums_first::sums_first(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn rescaling(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    rescaling::rescale(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn barriers(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    barriers::insert_barriers(module);
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "other passes may fail")]
fn slot_numbers(module: &mut Module) -> Result<(), Box<Diagnostic>> {
    slot_numbers::number_slots(module);
    Ok(())
}
