//! Tests the pages in `docs/diagnostics` and the kernels in `tests/kernels`.

use tilewright::ir::OPS;
use tilewright::{Code, Color, Device};
use tilewright_cuda::{Context, DeviceBuffer, Driver};
use tilewright_testkit::{Case, DeviceMemory, Outcome, cases, project_root, run_directory};

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

/// The kernels that do not compile for GPUs yet, each with the unavailable feature. The list may
/// only become shorter.
const NOT_ON_A_GPU: &[(&str, &str)] = &[];

/// Returns the diagnostic code in a rendered diagnostic.
fn code(text: &str) -> &str {
    text.split(['[', ']']).nth(1).unwrap_or_default()
}

/// Expected: every kernel has the same results, or the same diagnostic code, on simulated GPUs as
/// on the CPU.
#[test]
fn kernels_on_simulated_gpus() {
    for device in ["sim:sm_80", "sim:sm_90"].map(|name| Device::parse(name).expect("it is a device")) {
        let mut refused = Vec::new();
        for (name, case) in kernel_cases() {
            let on_cpu = case.run().expect("the case is well formed");
            match (case.run_on(device, None).expect("the case is well formed"), on_cpu) {
                (Outcome::Diagnostics(text), _) if code(&text) == Code::NotOnThisDevice.name() => {
                    let message = text.split(": ").nth(1).unwrap_or_default();
                    let what = message.split(" is not available").next().unwrap_or_default();
                    refused.push((name, what.to_owned()));
                }
                (Outcome::Diagnostics(found), Outcome::Diagnostics(expected)) => {
                    assert_eq!(code(&found), code(&expected), "{device}, {name}: {found}");
                }
                // GPUs do not detect a division by zero.
                (Outcome::Right, Outcome::Diagnostics(text))
                    if code(&text) == Code::DivisionByZero.name() => {}
                (found, expected) => assert_eq!(found, expected, "{device}, {name}"),
            }
        }
        let expected = NOT_ON_A_GPU.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(refused, expected.collect::<Vec<_>>(), "{device}");
    }
}

/// Expected: every kernel with correct results on the CPU also has them on the machine's GPU.
///
/// A fault would make CUDA unusable in the process, so kernels that end in a diagnostic are
/// skipped.
#[test]
fn kernels_on_the_gpu() {
    let device = Device::Cuda(0);
    if let Err(error) = device.target() {
        eprintln!("skipped: {}", error.render(Color::Never));
        return;
    }
    let context = Driver::get().and_then(|driver| Context::current_or_primary(driver.device(0)?));
    let context = context.expect("the GPU is there");
    let (mut right, mut findings) = (0, Vec::new());
    for (name, case) in kernel_cases() {
        if case.run().expect("the case is well formed") != Outcome::Right {
            continue;
        }
        let mut memory = Buffers { context, buffers: Vec::new() };
        match case.run_on(device, Some(&mut memory)) {
            Ok(Outcome::Right) => right += 1,
            Ok(Outcome::Wrong(text) | Outcome::Diagnostics(text)) | Err(text) => {
                findings.push(format!("{name}: {text}"));
            }
        }
    }
    println!("{right} kernels of tests/kernels are right, {} are not", findings.len());
    assert!(right > 0 && findings.is_empty(), "{}", findings.join("\n"));
}

/// The tensors of a case on a GPU.
struct Buffers {
    context: Context,
    buffers: Vec<DeviceBuffer>,
}

impl DeviceMemory for Buffers {
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, String> {
        let buffer = DeviceBuffer::from_bytes(self.context, bytes).map_err(|error| error.to_string())?;
        self.buffers.push(buffer);
        Ok(self.buffers[self.buffers.len() - 1].address())
    }

    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), String> {
        let buffer = self.buffers.iter().find(|buffer| buffer.address() == address);
        buffer.expect("it was uploaded").read(bytes).map_err(|error| error.to_string())
    }
}

/// Returns the cases in `tests/kernels` that have inputs, with their names.
fn kernel_cases() -> Vec<(String, Case)> {
    let cases_of = |(page, text): (String, String)| {
        let cases = cases(&text).expect("the pages are well formed").into_iter();
        cases.map(move |case| (format!("{page}: {}", case.kernel), case))
    };
    kernel_pages().into_iter().flat_map(cases_of).filter(|(_, case)| !case.inputs.is_empty()).collect()
}

/// Returns the names and texts of the pages in `tests/kernels`, sorted by name.
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

/// Expected: each op occurs in a kernel of `tests/kernels`.
#[test]
fn every_op_is_in_a_kernel() {
    // Only programs that state layouts have these ops. `tests/python/gluon` tests them.
    let of_gluon = ["set_layout", "device", "start_workers", "join_workers"];
    // The GPU back end makes this op. `tests/python/codegen/test_blackwell_scaled.py` tests it.
    let of_back_end = ["dot_scaled"];
    let is_of_kernel = |name: &&str| !of_gluon.contains(name) && !of_back_end.contains(name);
    let mut missing: Vec<&str> = OPS.iter().map(|op| op.name).filter(is_of_kernel).collect();
    for (_, page) in kernel_pages() {
        for case in cases(&page).expect("the pages are well formed") {
            let ops = case.ops().expect("the case is well formed");
            missing.retain(|op| !ops.contains(op));
        }
    }
    assert!(missing.is_empty(), "no kernel in tests/kernels has {}", missing.join(", "));
}
