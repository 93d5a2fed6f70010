//! Checks that the parser reads each printed program back.
//!
//! The text of a program after each pass parses and prints the same. A second run of the passes
//! changes nothing.

use tilewright_frontend::{Argument, Constant, HostValue, Options, Request, SourceHost};
use tilewright_gpu::run_passes;
use tilewright_gpu_ir::Gpu;
use tilewright_ir::{Dtype, Module, parse_dialect};
use tilewright_testkit::{cases, project_root};

use crate::common::generate::{EVERYTHING, INDICES, program};
use crate::common::seeds;
use crate::{KERNELS, module, stages_if_it_fits, text, tiles};

/// Panics if a text changes. Returns whether the kernel fits into shared memory.
fn round_trip(module: &Module, target: &str, num_warps: u32) -> bool {
    let Some(stages) = stages_if_it_fits(module, target, num_warps) else { return false };
    for stage in &stages {
        let printed = text(stage);
        let read = parse_dialect::<Gpu>(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert!(text(&read) == printed, "it is read as\n{}\nand was\n{printed}", text(&read));
    }
    let last = &stages[stages.len() - 1];
    let mut again = last.clone();
    run_passes(&mut again).unwrap_or_else(|error| panic!("{error:#?}"));
    assert!(text(last) == text(&again), "the passes change\n{}\nto\n{}", text(last), text(&again));
    true
}

#[test]
fn known_kernels() {
    for (_, source) in KERNELS {
        for (target, num_warps) in [("sm_75", 4), ("sm_80", 1), ("sm_90a", 8)] {
            assert!(round_trip(&module(source), target, num_warps));
        }
    }
}

#[test]
fn random_programs() {
    let mut tried = 0;
    for seed in seeds(300) {
        let num_warps = [1, 2, 4, 8][(seed % 4) as usize];
        let target = ["sm_75", "sm_80", "sm_90a"][(seed % 3) as usize];
        let programs = [program(seed, EVERYTHING), program(seed, INDICES), tiles::program(seed)];
        for module in &programs {
            tried += u32::from(round_trip(module, target, num_warps));
        }
    }
    assert!(tried > 300, "{tried} programs");
}

/// The kernels in the pages of `tests/kernels` that compile for a GPU.
#[test]
fn kernels_of_the_pages() {
    let folder = project_root().join("tests/kernels");
    let (mut tried, mut refused) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let page = std::fs::read_to_string(entry.expect("it can be read").path()).expect("a page is text");
        for case in cases(&page).expect("the pages are well-formed") {
            let Some(module) = case.module().expect("the case is well-formed") else { continue };
            if tilewright_gpu::assign_layouts(&module, crate::target("sm_80"), 4).is_err() {
                refused += 1;
                continue;
            }
            tried += 1;
            assert!(round_trip(&module, "sm_80", 4), "{}", case.kernel);
        }
    }
    assert!(tried > 10 && refused < tried / 4, "{tried} kernels, {refused} refused");
}

/// File, kernel and arguments. An argument is a constant or a type, with `:16` if it is a multiple
/// of 16.
const SOURCES: &[(&str, &str, &str)] = &[
    ("examples/01_vector_add.py", "add_kernel", "*fp32:16 *fp32:16 *fp32:16 int32 1024"),
    ("benches/kernels.py", "add_kernel", "*fp32:16 *fp32:16 *fp32:16 int32:16 1024"),
    ("benches/kernels.py", "softmax_kernel", "*fp32:16 *fp32:16 int32 int32 1024"),
    ("benches/kernels.py", "layer_norm_kernel", "*fp32:16 *fp32:16 *fp32:16 *fp32:16 int32 int32 fp32 1024"),
    (
        "benches/kernels.py",
        "matmul_kernel",
        "*fp16:16 *fp16:16 *fp32:16 int32:16 int32:16 int32:16 int32:16 1 int32:16 1 int32:16 1 64 64 32",
    ),
    (
        "benches/kernels.py",
        "matmul_kernel",
        "*fp32:16 *fp32:16 *fp32:16 int32:16 int32:16 int32:16 int32:16 1 int32:16 1 int32:16 1 32 32 16",
    ),
];

fn argument(text: &str) -> Argument {
    let (name, divisibility) = text.split_once(':').unwrap_or((text, "1"));
    let divisibility = divisibility.parse().expect("a divisibility is a number");
    if let Some(pointee) = name.strip_prefix('*').and_then(Dtype::parse) {
        return Argument::Pointer { pointee, divisibility, is_const: false };
    }
    if let Some(dtype) = Dtype::parse(name) {
        return Argument::Scalar { dtype, divisibility };
    }
    let constant = name.parse().expect("a constant is a number");
    Argument::Constexpr(HostValue::Constant(Constant::Int(constant)))
}

#[test]
fn kernels_in_python() {
    for (file, kernel, signature) in SOURCES {
        let source = std::fs::read_to_string(project_root().join(file)).expect("the file is there");
        let mut host = SourceHost::new(*file, &source).unwrap_or_else(|failure| panic!("{failure:?}"));
        let kernel = host.function(kernel).expect("the file has the kernel");
        let arguments = signature.split(' ').map(argument).collect();
        let request = Request { kernel, arguments, options: Options::default() };
        let mut module = tilewright_frontend::lower(&request, &mut host)
            .unwrap_or_else(|failure| panic!("{:#?}", failure.diagnostics));
        tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
        for (target, num_warps) in [("sm_75", 4), ("sm_80", 4), ("sm_90a", 8)] {
            assert!(round_trip(&module, target, num_warps), "{file} {signature}");
        }
    }
}
