//! Tests that a C program launches the kernels of a lock on the CPU and in the simulator, without
//! Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright::runtime::lock::{begin_recording, collect, open, pack};
use tilewright::{Bundle, Device, Error, Knobs, Module, Target, args};
use tilewright_testkit::say_skipped;

const KERNELS: &str = "
import triton
import triton.language as tl

@triton.jit
def twice(x, factor):
    return x * factor

@triton.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, twice(tl.load(x_ptr + offsets, mask=mask), factor), mask=mask)
";

/// Memory that is aligned to 16 bytes, so that the kernel is specialized for aligned addresses.
#[repr(align(16))]
struct Aligned([f32; 1000]);

/// Writes the lock of the kernel for the CPU and a GPU, and returns its path.
fn lock(folder: &Path) -> Result<PathBuf, Error> {
    let recording = folder.join("recording");
    let targets: Vec<_> = ["cpu", "sm_90"].into_iter().filter_map(Target::parse).collect();
    begin_recording(&recording, &targets)?;
    Knobs { lock_record: Some(recording.clone()), ..Knobs::default() }.set();
    let scale = Module::from_source("scale.py", KERNELS)?.kernel("scale")?;
    let (x, mut out) = (Aligned([1.0; 1000]), Aligned([0.0; 1000]));
    scale.launch(4, args![&x.0, &mut out.0, 2.5, 1000, BLOCK = 256])?;
    Knobs::default().set();
    let path = folder.join("scale.lock");
    let collected = collect(&recording, &path)?;
    assert_eq!((collected.lock.entries.len(), collected.failures.len()), (2, 0));
    Ok(path)
}

#[test]
fn kernels_are_launched_from_c_and_rust() {
    let folder = std::env::temp_dir().join(format!("tilewright-c-{}", std::process::id()));
    let lock = lock(&folder).unwrap();
    let (file, artifacts) = open(&lock).unwrap();
    let packed = folder.join("scale.tar");
    std::fs::write(&packed, pack(&file, &artifacts).unwrap()).unwrap();
    for device in ["cpu", "sim:sm_90"] {
        let path = if device == "cpu" { &lock } else { &packed };
        let bundle = Bundle::open(path).unwrap().on(Device::parse(device).unwrap());
        let (x, mut out) = (Aligned([3.0; 1000]), Aligned([0.0; 1000]));
        let arguments = args![x_ptr = &x.0, out_ptr = &mut out.0, factor = 2.0, n = 1000];
        bundle.launch("scale", 4, arguments).unwrap();
        assert!(out.0.iter().all(|value| *value == 6.0));
        // A fault names the source line, because the lock contains the source.
        let short = &mut out.0[..16];
        let arguments = args![x_ptr = &x.0, out_ptr = short, factor = 2.0, n = 1000];
        let fault = bundle.launch("scale", 4, arguments).unwrap_err().to_string();
        assert!(fault.contains("scale.py:13:"), "{fault}");
    }
    if Command::new("cc").arg("--version").output().is_err() {
        say_skipped("kernels_are_launched_from_c_and_rust", "there is no C compiler");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo has built the C library into the folder of the test's executable.
    let exe = std::env::current_exe().unwrap();
    let libraries = exe.parent().unwrap();
    let program = folder.join("launch");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program);
    command.arg(here.join("tests/launch.c")).arg("-I").arg(here.join("include"));
    command.arg("-L").arg(libraries).arg("-ltilewright_c");
    command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    for device in ["cpu", "sim:sm_90"] {
        for words in
            [&[lock.as_os_str()][..], &[packed.as_os_str()], &[packed.as_os_str(), "memory".as_ref()]]
        {
            let mut command = Command::new(&program);
            command.arg(words[0]).arg(device).args(&words[1..]).current_dir(&folder);
            let run = command.output().unwrap();
            let printed = [run.stdout, run.stderr].concat();
            assert!(run.status.success(), "{words:?} {device}: {}", String::from_utf8_lossy(&printed));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
