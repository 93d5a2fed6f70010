//! Tests the GPU path through its public API.
//!
//! The tests check five properties of each program:
//!
//! - It computes the same as its kernel.
//! - Its layouts satisfy the rules of the dialect.
//! - Its barriers suffice.
//! - The attributes of its accesses are true.
//! - The parser reads its printed text.
//!
//! They also compare the programs of the benchmarks' kernels with snapshots.

#[path = "../../../opt/tests/common/mod.rs"]
#[allow(dead_code, reason = "these tests use only a part of the evaluator and the generator")]
mod common;

mod accesses;
mod addresses;
mod allocation;
mod check;
mod dots;
mod erase;
mod hazards;
mod instructions;
mod meaning;
mod memory;
mod pass_texts;
mod rejections;
mod round_trip;
mod snapshots;
mod tiles;
mod unroll_reasons;

use tilewright_gpu::PASSES;
use tilewright_gpu_ir::GpuTarget;
use tilewright_gpu_ir::Module as Program;
use tilewright_ir::{Module, parse, print};

/// The tile IR of the benchmarks' kernels before layout assignment.
///
/// `attention_fp16` scales the scores instead of the queries.
const KERNELS: [(&str, &str); 6] = [
    ("add", include_str!("kernels/add.ir")),
    ("softmax", include_str!("kernels/softmax.ir")),
    ("layer_norm", include_str!("kernels/layer_norm.ir")),
    ("matmul", include_str!("kernels/matmul.ir")),
    ("attention", include_str!("kernels/attention.ir")),
    ("attention_fp16", include_str!("kernels/attention_fp16.ir")),
];

fn module(text: &str) -> Module {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn target(name: &str) -> GpuTarget {
    GpuTarget::named(name).expect("the target is known")
}

/// Assigns layouts to a kernel and runs no pass.
fn assigned(module: &Module, target_name: &str, num_warps: u32) -> Program {
    tilewright_gpu::assign_layouts(module, target(target_name), num_warps)
        .unwrap_or_else(|error| panic!("{error:#?}"))
}

/// Returns the program of a kernel after all passes.
fn compiled(module: &Module, target_name: &str, num_warps: u32) -> Program {
    tilewright_gpu::compile(module, target(target_name), num_warps, 1)
        .unwrap_or_else(|error| panic!("{error:#?}"))
}

/// Returns the program after layout assignment and each pass, if it fits.
fn stages_if_it_fits(module: &Module, target_name: &str, num_warps: u32) -> Option<Vec<Program>> {
    let mut stages = vec![assigned(module, target_name, num_warps)];
    for pass in PASSES {
        let mut next = stages[stages.len() - 1].clone();
        pass.run(&mut next).ok()?;
        tilewright_ir::verify(&next)
            .unwrap_or_else(|error| panic!("after {}: {error}\n{}", pass.name, text(&next)));
        stages.push(next);
    }
    Some(stages)
}

fn stages(module: &Module, target_name: &str, num_warps: u32) -> Vec<Program> {
    stages_if_it_fits(module, target_name, num_warps).expect("it fits into shared memory")
}

fn text(program: &Program) -> String {
    print(program, false)
}
