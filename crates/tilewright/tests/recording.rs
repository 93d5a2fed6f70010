//! Tests which kernels `record_lock` writes.

use std::collections::BTreeSet;

use tilewright::{Bundle, Device, Module, Target, args, record_lock, runtime::lock};

const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
";

/// Tests that a recording has the kernels that were compiled before it. It also has code for each
/// option of a GPU. The code for the CPU does not depend on these options.
#[test]
fn a_recording_has_every_variant_that_it_launches() {
    let folder = std::env::temp_dir().join(format!("tilewright-recording-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("double.lock");
    let double = Module::from_source("double.py", SOURCE).unwrap().kernel("double").unwrap();
    let double = double.on(Device::Cpu);
    let mut x = [1.0_f32; 60];
    let mut launch = |warps: i32| double.launch(1, args![&mut x, 60, BLOCK = 64, num_warps = warps]);
    launch(4).unwrap();
    launch(2).unwrap();
    let targets = ["cpu", "sm_90"].map(|name| Target::parse(name).unwrap());
    record_lock(&path, &targets, || {
        launch(4)?;
        launch(8)?;
        launch(4)
    })
    .unwrap();
    assert_eq!(x, [32.0; 60]);
    let (file, _) = lock::open(&path).unwrap();
    let of = |target: &str| -> Vec<_> {
        let entries = file.entries.iter().filter(|entry| entry.launches.target == target);
        entries.map(|entry| entry.launches.options.get("num_warps").cloned().unwrap_or_default()).collect()
    };
    assert_eq!(BTreeSet::from_iter(of("sm_90a")), BTreeSet::from(["4".to_owned(), "8".to_owned()]));
    assert_eq!(of("cpu"), [""], "one entry for the CPU");
    let bundle = Bundle::open(&path).unwrap().on(Device::Cpu);
    bundle.launch("double", 1, args![x_ptr = &mut x, n = 60]).unwrap();
    assert_eq!(x, [64.0; 60]);
    std::fs::remove_dir_all(folder).unwrap();
}
