//! Tests that the kernels of users' programs lower to valid IR. The programs are in a folder beside
//! the project. Without this folder, the test is skipped.

mod common;

use tilewright_frontend::Options;

fn check(program: &str, kernel: &str, arguments: &str) {
    let Some(folder) = common::user_programs(program) else { return };
    let path = folder.join(program).with_extension("py");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Err(findings) = common::module(&text, kernel, arguments, Options::default()) {
        panic!("{program}::{kernel}\n{findings}");
    }
}

#[test]
fn vector_add() {
    check("000_vector_add", "add_kernel", "*fp32:16, *fp32:16, *fp32:16, int32, 1024");
}

#[test]
fn softmax() {
    check("000_fused_softmax", "softmax_kernel", "*fp32:16, *fp32:16, int32, int32, int32, int32, 1024, 4");
}

#[test]
fn grouped_matmul() {
    let arguments = "*fp16:16, *fp16:16, *fp16:16, int32:16, int32:16, int32:16, int32:16, 1, int32:16, 1, int32:16, \
                     1, 16, 16, 16, 32";
    check("003_grouped_matmul", "grouped_matmul_k", arguments);
}
