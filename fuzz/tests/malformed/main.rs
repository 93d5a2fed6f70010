//! Malformed inputs of every form that tilewright reads: PTX, tile IR, the GPU language, and traces. Whatever a text or a file
//! says, it is refused with a message, or taken to the end, without a panic and in time.
//!
//! Inputs are texts that people and tests wrote, and those that random kernels become, changed in a few places.
//! `TILEWRIGHT_SEEDS=0..50000` tries these seeds instead of the first few, and lists how many of them fail at which place.

mod corpus;
mod hunt;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod traced;

use hunt::{hunt, hunt_with};

#[test]
fn ptx() {
    hunt(300, targets::ptx);
}

#[test]
fn tile_ir() {
    hunt(300, targets::tile_ir);
}

#[test]
fn gpu_text() {
    hunt(300, targets::gpu_text);
}

#[test]
fn numbers_of_ptx() {
    hunt_with(100, targets::ptx_numbers, number_bytes);
}

#[test]
fn numbers_of_tile_ir() {
    hunt_with(100, targets::tile_ir_numbers, number_bytes);
}

#[test]
fn numbers_of_gpu_text() {
    hunt_with(100, targets::gpu_numbers, number_bytes);
}

/// Seeds in order are all changed numbers in some order; the first hundred are spread over all of them.
fn number_bytes(seed: u64) -> Vec<u8> {
    (seed.wrapping_mul(7919) as u32).to_be_bytes().to_vec()
}

#[test]
fn traces() {
    hunt(3000, targets::trace);
}

#[test]
fn the_corpus_is_accepted() {
    let (mut counts, mut refused) = ([0; 3], Vec::new());
    for (form, texts) in
        [&corpus::get().ptx, &corpus::get().tile_ir, &corpus::get().gpu].into_iter().enumerate()
    {
        for text in texts {
            let result = match form {
                0 => tilewright_ptx::isa::parse(text).map(drop).map_err(|error| error.to_string()),
                1 => tilewright_ir::parse(text).map(drop).map_err(|error| error.to_string()),
                _ => tilewright_ir::parse_dialect::<tilewright_gpu_ir::Gpu>(text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
            };
            counts[form] += 1;
            refused.extend(result.err().map(|error| format!("{error}\n{text}")));
        }
    }
    assert!(counts.iter().all(|&count| count >= 50), "{counts:?}");
    assert!(refused.is_empty(), "{} of {counts:?} are refused:\n{}", refused.len(), refused.join("\n\n"));
}
