//! Tests launches of a lock's kernels from C and from Rust, without Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright::runtime::lock::{open, pack};
use tilewright::{Bundle, Device, Error, Kernel, Module, Target, args, record_lock};
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

/// The kernel is specialized for addresses that are multiples of 16.
#[repr(align(16))]
struct Aligned([f32; 1000]);

/// Records the launches of the kernel `scale` that `launch` makes, as the lock `NAME.lock` for the
/// CPU and a GPU. Returns its path.
fn lock(
    folder: &Path,
    name: &str,
    source: &str,
    launch: impl FnOnce(&Kernel) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let path = folder.join(name).with_extension("lock");
    let targets: Vec<_> = ["cpu", "sm_90"].into_iter().filter_map(Target::parse).collect();
    std::fs::create_dir_all(folder).expect("the folder can be made");
    record_lock(&path, &targets, || launch(&Module::from_source("scale.py", source)?.kernel("scale")?))?;
    Ok(path)
}

fn compile(name: &str, source: &Path, folder: &Path) -> PathBuf {
    // Cargo builds the C library into the folder of the test's executable.
    let exe = std::env::current_exe().expect("the test has a path");
    let libraries = exe.parent().expect("the test is in a folder");
    let program = folder.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program).arg(source);
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
    command.arg("-L").arg(libraries).arg("-ltilewright_c");
    command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    let compiled = command.output().expect("the C compiler starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Returns the examples in the comments of the header, which are indented by 7 columns.
fn examples() -> Vec<String> {
    let header = include_str!("../include/tilewright.h");
    let (mut examples, mut example, mut is_comment) = (Vec::new(), String::new(), false);
    for line in header.lines() {
        is_comment |= line.starts_with("/*");
        match line.strip_prefix("       ").filter(|_| is_comment) {
            Some(code) => {
                example.push_str(code.trim_end().trim_end_matches("*/"));
                example.push('\n');
            }
            None if !line.is_empty() && !example.is_empty() => {
                examples.push(std::mem::take(&mut example));
            }
            None => {}
        }
        is_comment &= !line.contains("*/");
    }
    examples
}

#[test]
fn the_examples_of_the_header_run() {
    if Command::new("cc").arg("--version").output().is_err() {
        say_skipped("the_examples_of_the_header_run", "there is no C compiler");
        return;
    }
    let folder = std::env::temp_dir().join(format!("tilewright-c-examples-{}", std::process::id()));
    let scale =
        KERNELS.replace("factor, n, BLOCK", "n, BLOCK").replace("mask=mask), factor)", "mask=mask), 2)");
    let lock = lock(&folder, "serve", &scale, |kernel| {
        let (x, mut out) = (Aligned([1.0; 1000]), Aligned([0.0; 1000]));
        kernel.launch(1, args![&x.0, &mut out.0, 1000, BLOCK = 1024])
    });
    let (file, artifacts) = open(&lock.unwrap()).unwrap();
    let bytes: Vec<_> = pack(&file, &artifacts).unwrap().iter().map(u8::to_string).collect();
    let [launch, memory, prepare] = &examples()[..] else { panic!("the header has three examples") };
    let program = format!(
        "#include <stdio.h>\n#include <string.h>\n#include \"tilewright.h\"\n\
         static const unsigned char serve_tar[] = {{{}}};\n\
         static const size_t serve_tar_size = sizeof serve_tar;\n\
         static _Alignas(64) float x[1000], out[1000];\n\
         static int first(uint32_t n)\n{{\n{launch}return 0;\n}}\n\
         static int second(void)\n{{\n{memory}return error != NULL;\n}}\n\
         static int third(void)\n{{\n{prepare}return !is_ready;\n}}\n\
         int main(void)\n{{\nfor (int i = 0; i < 1000; i++)\nx[i] = (float)i;\n\
         return first(1000) || second() || third() || out[999] != 1998.0f;\n}}\n",
        bytes.join(",")
    );
    let source = folder.join("examples.c");
    std::fs::write(&source, program).unwrap();
    let run = Command::new(compile("examples", &source, &folder)).current_dir(&folder).output().unwrap();
    let printed = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && printed.is_empty(), "{}: {printed}", run.status);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kernels_are_launched_from_c_and_rust() {
    let folder = std::env::temp_dir().join(format!("tilewright-c-{}", std::process::id()));
    let lock = lock(&folder, "scale", KERNELS, |kernel| {
        let (x, mut out) = (Aligned([1.0; 1000]), Aligned([0.0; 1000]));
        kernel.launch(4, args![&x.0, &mut out.0, 2.5, 1000, BLOCK = 256])
    });
    let lock = lock.unwrap();
    let (file, artifacts) = open(&lock).unwrap();
    assert_eq!(file.entries.len(), 2);
    let packed = folder.join("scale.tar");
    std::fs::write(&packed, pack(&file, &artifacts).unwrap()).unwrap();
    for device in ["cpu", "sim:sm_90"] {
        let path = if device == "cpu" { &lock } else { &packed };
        let bundle = Bundle::open(path).unwrap().on(Device::parse(device).unwrap());
        let (x, mut out) = (Aligned([3.0; 1000]), Aligned([0.0; 1000]));
        let arguments = args![x_ptr = &x.0, out_ptr = &mut out.0, factor = 2.0, n = 1000];
        bundle.launch("scale", 4, arguments).unwrap();
        assert!(out.0.iter().all(|value| *value == 6.0));
        // The lock contains the source. Expected: a fault names the source line.
        let short = &mut out.0[..16];
        let arguments = args![x_ptr = &x.0, out_ptr = short, factor = 2.0, n = 1000];
        let fault = bundle.launch("scale", 4, arguments).unwrap_err().to_string();
        assert!(fault.contains("scale.py:13:"), "{fault}");
    }
    if Command::new("cc").arg("--version").output().is_err() {
        say_skipped("kernels_are_launched_from_c_and_rust", "there is no C compiler");
        return;
    }
    let program = compile("launch", &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launch.c"), &folder);
    for device in ["cpu", "sim:sm_90"] {
        for words in
            [&[lock.as_os_str()][..], &[packed.as_os_str()], &[packed.as_os_str(), "memory".as_ref()]]
        {
            let mut command = Command::new(&program);
            command.arg(words[0]).arg(device).args(&words[1..]).current_dir(&folder);
            let run = command.output().expect("the C program starts");
            let printed = [run.stdout, run.stderr].concat();
            assert!(run.status.success(), "{words:?} {device}: {}", String::from_utf8_lossy(&printed));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
