//! Plans judged from outside: that they compute the same, that layouts fit, that waits are where they have to be, that accesses
//! claim no more than holds, and what they look like for known kernels.

#[path = "../../../opt/tests/common/mod.rs"]
#[allow(dead_code, reason = "the evaluator and the generator have more than is used here")]
mod common;

mod accesses;
mod addresses;
mod check;
mod hazards;
mod meaning;
mod memory;
mod products;
mod refusals;
mod snapshots;
mod tiles;

use tilewright_gpu::{Plan, Target, plan};
use tilewright_ir::{Module, parse};

/// The kernels of the benchmarks, as the passes before leave them; `attention_fp16` scales the scores instead of the queries.
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

fn planned(module: &Module, target: &str, num_warps: u32) -> Plan {
    let target = Target::named(target).expect("it is known");
    plan(module, target, num_warps).unwrap_or_else(|error| panic!("{error:#?}"))
}

/// Whether every extent in a module is a power of two: others are refused.
fn has_powers_of_two(module: &Module) -> bool {
    let mut functions = module.functions.values();
    functions.all(|function| {
        let mut extents = function.values.values().flat_map(|value| value.ty.shape.iter());
        extents.all(|extent| extent.is_power_of_two())
    })
}
