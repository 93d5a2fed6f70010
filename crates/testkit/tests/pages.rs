//! Every page in `docs/diagnostics` shows what tilewright really says, and every kernel in `tests/kernels` does what is
//! written beside it.

use tilewright::Code;
use tilewright::ir::OPS;
use tilewright_testkit::{cases, project_root, run_directory};

#[test]
fn diagnostic_pages() {
    run_directory(&project_root().join("docs/diagnostics"));
}

#[test]
fn diagnostic_pages_show_their_own_code() {
    for code in Code::ALL {
        let page = code.page();
        let shown = format!("[{}]", code.name());
        let is_from_python = page.contains("```pycon");
        let is_about_text = *code == Code::MalformedIr || *code == Code::NotOnThisDevice;
        assert!(page.contains(&shown) || is_from_python || is_about_text, "{} shows no example", code.name());
        assert!(page.contains("## Example") && page.contains("## Fix"), "{} lacks a section", code.name());
    }
}

#[test]
fn kernels() {
    run_directory(&project_root().join("tests/kernels"));
}

/// Each op of the table appears in a kernel of `tests/kernels`, and so is run in every way.
#[test]
fn every_op_is_in_a_kernel() {
    // The language cannot say `relayout`: the GPU path puts it between values.
    let mut missing: Vec<&str> = OPS.iter().map(|op| op.name).filter(|&name| name != "relayout").collect();
    let folder = std::fs::read_dir(project_root().join("tests/kernels")).expect("the folder is there");
    for page in folder.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok()) {
        for case in cases(&page).expect("the pages are well formed") {
            let ops = case.ops().expect("the case is well formed");
            missing.retain(|op| !ops.contains(op));
        }
    }
    assert!(missing.is_empty(), "no kernel in tests/kernels has {}", missing.join(", "));
}
