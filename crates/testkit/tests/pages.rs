//! Every page in `docs/diagnostics` shows what tilewright really says, and every kernel in `tests/kernels` does what is
//! written beside it.

use tilewright::ir::OPS;
use tilewright::{Code, Device};
use tilewright_testkit::{Outcome, cases, project_root, run_directory};

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

/// The kernels that the GPU path does not compile yet, and what it says is not available: the list can only become shorter.
const NOT_ON_A_GPU: &[(&str, &str)] = &[];

/// The code in a rendered diagnostic.
fn code(text: &str) -> &str {
    text.split(['[', ']']).nth(1).unwrap_or_default()
}

/// Each kernel does on a simulated GPU what it does on the CPU: the same results, or a diagnostic of the same code.
#[test]
fn kernels_on_simulated_gpus() {
    for device in ["sim:sm_80", "sim:sm_90"].map(|name| Device::parse(name).expect("it is a device")) {
        let mut refused = Vec::new();
        for (page, text) in kernel_pages() {
            for case in cases(&text).expect("the pages are well formed") {
                if case.inputs.is_empty() {
                    continue;
                }
                let name = format!("{page}: {}", case.kernel);
                let on_cpu = case.run().expect("the case is well formed");
                match (case.run_on(device).expect("the case is well formed"), on_cpu) {
                    (Outcome::Diagnostics(text), _) if code(&text) == Code::NotOnThisDevice.name() => {
                        let message = text.split(": ").nth(1).unwrap_or_default();
                        let what = message.split(" is not available").next().unwrap_or_default();
                        refused.push((name, what.to_owned()));
                    }
                    (Outcome::Diagnostics(found), Outcome::Diagnostics(expected)) => {
                        assert_eq!(code(&found), code(&expected), "{device}, {name}: {found}");
                    }
                    // No GPU notices it.
                    (Outcome::Right, Outcome::Diagnostics(text))
                        if code(&text) == Code::DivisionByZero.name() => {}
                    (found, expected) => assert_eq!(found, expected, "{device}, {name}"),
                }
            }
        }
        let expected = NOT_ON_A_GPU.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(refused, expected.collect::<Vec<_>>(), "{device}");
    }
}

/// The pages in `tests/kernels` by their names, sorted.
fn kernel_pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(project_root().join("tests/kernels")).expect("the folder is there");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        Some((path.file_name()?.to_string_lossy().into_owned(), std::fs::read_to_string(path).ok()?))
    };
    let mut pages: Vec<_> = folder.filter_map(read).collect();
    pages.sort();
    pages
}

/// Each op of the table appears in a kernel of `tests/kernels`, and so is run in every way.
#[test]
fn every_op_is_in_a_kernel() {
    // The language cannot say `relayout`: the GPU path puts it between values.
    let mut missing: Vec<&str> = OPS.iter().map(|op| op.name).filter(|&name| name != "relayout").collect();
    for (_, page) in kernel_pages() {
        for case in cases(&page).expect("the pages are well formed") {
            let ops = case.ops().expect("the case is well formed");
            missing.retain(|op| !ops.contains(op));
        }
    }
    assert!(missing.is_empty(), "no kernel in tests/kernels has {}", missing.join(", "));
}
