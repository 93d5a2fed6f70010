//! The plans of the benchmarks' kernels, and what the project promises of them. `UPDATE_EXPECT=1 cargo test` rewrites the
//! texts.

use expect_test::expect_file;
use tilewright_gpu::{Plan, dump};
use tilewright_ir::Op;

use crate::{KERNELS, module, planned};

#[test]
fn plans_of_known_kernels() {
    for (name, text) in KERNELS {
        let path = format!("{}/tests/plans/snapshots/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        expect_file![path].assert_eq(&dump(&planned(&module(text), "sm_80", 4)));
    }
}

fn count(plan: &Plan, is: impl Fn(&Op) -> bool) -> usize {
    let mut found = 0;
    let function = plan.module.kernel();
    function.walk(function.entry, &mut |inst| found += usize::from(is(&function.insts[inst].op)));
    found
}

#[test]
fn vector_add_has_two_vectors_of_four_for_each_pointer() {
    let plan = planned(&module(KERNELS[0].1), "sm_90", 4);
    let accesses: Vec<(u32, u32)> = plan
        .module
        .kernel()
        .insts
        .keys()
        .filter_map(|inst| plan.accesses[inst].as_ref())
        .map(|access| (access.vector.accesses(), access.vector.width()))
        .collect();
    assert_eq!(accesses, [(2, 4); 3]);
    assert_eq!(plan.shared_bytes, 0);
}

#[test]
fn kernels_of_one_row_a_program_convert_nothing() {
    for (name, text) in &KERNELS[1..3] {
        for num_warps in [1, 2, 4, 8, 16] {
            let plan = planned(&module(text), "sm_80", num_warps);
            assert_eq!(count(&plan, |op| matches!(op, Op::Relayout {})), 0, "{name}, {num_warps} warps");
        }
    }
}

/// The two operands alone are moved, and the result is stored as the tensor cores leave it.
#[test]
fn matrix_product_moves_its_operands_alone() {
    let plan = planned(&module(KERNELS[3].1), "sm_80", 4);
    assert_eq!(count(&plan, |op| matches!(op, Op::Relayout {})), 2);
    assert_eq!(plan.shared_bytes, 2 * 128 * 64 * 2);
}
