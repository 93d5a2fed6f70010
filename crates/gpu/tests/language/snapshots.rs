//! Compares the programs of the benchmarks' kernels with expected texts.
//!
//! `UPDATE_EXPECT=1 cargo test` rewrites the texts.

use expect_test::expect_file;
use tilewright_gpu_ir::{GpuOp, Op};

use crate::{KERNELS, Program, assigned, compiled, module, text};

#[test]
fn programs_of_known_kernels() {
    for (name, source) in KERNELS {
        let path = format!("{}/tests/language/snapshots/{name}.gpu", env!("CARGO_MANIFEST_DIR"));
        expect_file![path].assert_eq(&text(&compiled(&module(source), "sm_80", 4)));
    }
}

fn count(program: &Program, is: impl Fn(&GpuOp) -> bool) -> usize {
    let mut found = 0;
    let function = program.kernel();
    function.walk(function.entry, &mut |inst| {
        found += usize::from(function.insts[inst].op.as_gpu().is_some_and(&is));
    });
    found
}

fn conversions(program: &Program) -> usize {
    count(program, |op| matches!(op, GpuOp::ConvertLayout {}))
}

#[test]
fn vector_add_has_two_vectors_of_four_for_each_pointer() {
    let program = compiled(&module(KERNELS[0].1), "sm_90", 4);
    let function = program.kernel();
    let access = |op: &Op, pointer| {
        let Op::Gpu(GpuOp::Load { axis, width, .. } | GpuOp::Store { axis, width, .. }) = op else {
            return None;
        };
        let layout = program.header.layouts.get(function.ty(pointer).layout()?);
        Some((layout.vector_along(*axis as usize).at_most(*width).accesses(), *width))
    };
    let accesses: Vec<(u32, u32)> =
        function.insts.values().filter_map(|data| access(&data.op, *data.operands.first()?)).collect();
    assert_eq!(accesses, [(2, 4); 3]);
    assert_eq!(program.header.shared_bytes, 0);
}

#[test]
fn kernels_of_one_row_per_program_convert_nothing() {
    for (name, text) in &KERNELS[1..3] {
        for num_warps in [1, 2, 4, 8, 16] {
            let program = assigned(&module(text), "sm_80", num_warps);
            assert_eq!(conversions(&program), 0, "{name}, {num_warps} warps");
        }
    }
}

/// Only the two operands change layout.
#[test]
fn matmul_converts_only_its_operands() {
    let program = assigned(&module(KERNELS[3].1), "sm_80", 4);
    assert_eq!(conversions(&program), 2);
    let program = compiled(&module(KERNELS[3].1), "sm_80", 4);
    assert_eq!(conversions(&program), 0);
    assert_eq!(count(&program, |op| matches!(op, GpuOp::LocalStore {})), 2);
    assert_eq!(program.header.shared_bytes, 2 * 128 * 64 * 2);
}
