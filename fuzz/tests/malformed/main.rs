//! Tests malformed inputs in every format that tilewright reads: PTX, tile IR, the GPU language,
//! and traces. Every input is either rejected with a message or processed completely. There must be
//! no panic, and the time must be limited.
//!
//! Inputs are texts of tests and stages of random kernels, with a few mutations.
//! `TILEWRIGHT_SEEDS=0..50000` replaces the default seeds. The test then lists the number of
//! failures by location.

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

/// Returns bytes that select a changed number. Consecutive seeds enumerate all changed numbers in a
/// scattered order. The first hundred seeds are therefore spread over all changed numbers.
fn number_bytes(seed: u64) -> Vec<u8> {
    (seed.wrapping_mul(7919) as u32).to_be_bytes().to_vec()
}

#[test]
fn traces() {
    hunt(3000, targets::trace);
}

#[test]
fn corpus_is_accepted() {
    let (mut counts, mut rejected) = ([0; 3], Vec::new());
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
            rejected.extend(result.err().map(|error| format!("{error}\n{text}")));
        }
    }
    assert!(counts.iter().all(|&count| count >= 50), "{counts:?}");
    assert!(rejected.is_empty(), "{} of {counts:?} are rejected:\n{}", rejected.len(), rejected.join("\n\n"));
}
