//! Tests the output and the exit code of the command.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

const KERNELS: &str = "
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def zero(x_ptr):
    tl.store(x_ptr, 0)
";

/// Writes a file in a temporary folder of this process, and returns its path.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tilewright-cli-{}", std::process::id()));
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("it is in the folder"))
        .expect("the folder for temporary files is writable");
    std::fs::write(&path, content).expect("the folder is writable");
    path
}

fn run(arguments: &[&str]) -> Output {
    run_with(&arguments.iter().map(OsStr::new).collect::<Vec<_>>())
}

fn run_with(arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.env("NO_COLOR", "1").args(arguments).output().expect("the command starts")
}

/// Runs the command. Returns the exit code, and stdout if it is 0, otherwise stderr. A command that
/// fails must write nothing to stdout.
fn outcome(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    let code = output.status.code().expect("it exits");
    let text = if code == 0 {
        output.stdout
    } else {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
        output.stderr
    };
    (code, String::from_utf8(text).expect("the text is UTF-8"))
}

#[test]
fn every_stage_is_printed() {
    let path = file("stages.py", KERNELS.as_bytes());
    let kernel = format!("{}::copy", path.display());
    let compile = ["compile", &kernel, "--signature", "*fp32,*fp32:16,i32,BLOCK=8"];
    for (target, stage, part) in [
        ("cpu", "ast", "StmtFunctionDef"),
        ("cpu", "ir", "kernel func0 @copy("),
        ("cpu", "opt", "kernel func0 @copy("),
        ("cpu", "cpu", "cpu program copy("),
        ("sm_80", "opt", "kernel func0 @copy("),
        ("sm_90", "gpu", "@copy("),
        ("sm_80", "ptx", ".target sm_80\n"),
        ("sm_90", "ptx", ".target sm_90a\n"),
    ] {
        let (code, text) = outcome(&[&compile[..], &["--target", target, "--emit", stage]].concat());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(part), "{target}, {stage}: {text}");
    }
}

/// The reduction of this kernel crosses warps, so its GPU stage has shared memory and barriers.
#[test]
fn the_text_of_the_gpu_stage_is_input_as_well() {
    let source = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef total(x, y, N: tl.constexpr):\n    \
                  tl.store(y, tl.sum(tl.load(x + tl.arange(0, N)), 0))\n";
    let path = file("total.py", source.as_bytes());
    let kernel = format!("{}::total", path.display());
    let compile = ["compile", &kernel, "-s", "*fp32:16,*fp32:16,1024", "--target", "sm_90", "--emit"];
    let [gpu, ptx] = ["gpu", "ptx"].map(|stage| outcome(&[&compile[..], &[stage]].concat()).1);
    let text = file("total.gpu", gpu.as_bytes()).display().to_string();
    assert_eq!(outcome(&["compile", &text, "--emit", "gpu"]), (0, gpu.clone()));
    // The text of the GPU stage has no source locations.
    let code = |ptx: &str| -> Vec<String> {
        let lines =
            ptx.lines().filter(|line| !line.trim_start().starts_with(['/', '.']) || line.contains(".reg"));
        lines.map(str::to_owned).collect()
    };
    let (status, again) = outcome(&["compile", &text, "--emit", "ptx"]);
    assert_eq!((status, code(&again)), (0, code(&ptx)));

    let broken = file("broken.gpu", gpu.replacen("  barrier\n", "  barier\n", 1).as_bytes());
    let (status, message) = outcome(&["compile", &broken.display().to_string(), "--emit", "ptx"]);
    assert_eq!(status, 1);
    assert!(
        message.contains("error[TW0025]: unknown op `barier`") && message.contains("broken.gpu:"),
        "{message}"
    );
    let (status, message) = outcome(&["compile", &text, "--emit", "opt"]);
    assert!(status == 2 && message.contains("a .gpu file has no stage 'opt'"), "{message}");
}

#[test]
fn the_result_goes_to_a_file() {
    let path = file("output.py", KERNELS.as_bytes());
    let target = file("output.ir", b"");
    let kernel = format!("{}::zero", path.display());
    let (code, text) = outcome(&["compile", &kernel, "-s", "*i64", "-o", &target.display().to_string()]);
    assert_eq!((code, text.as_str()), (0, ""));
    let written = std::fs::read_to_string(&target).expect("it is written");
    assert!(written.contains("*int64"), "{written}");
}

#[test]
fn mistakes_end_in_one_diagnostic() {
    let path = file("mistakes.py", KERNELS.as_bytes());
    let copy = format!("{}::copy", path.display());
    let cases: [(&[&str], i32, &str); 14] = [
        (&["compile", &path.display().to_string()], 1, "error[TW0110]"),
        (&["compile", &format!("{}::cpoy", path.display())], 1, "did you mean 'copy'?"),
        (&["compile", &copy, "-s", "*fp32"], 1, "error[TW0101]"),
        (&["compile", &copy, "-s", "*fp32,*fp32,i32,-12"], 1, "error[TW0006]"),
        (&["compile", &copy, "-s", "*fp32,*fp32,what"], 1, "error[TW0105]"),
        (&["compile", &copy, "-s", "*fp32,*fp32,i32", "--option", "num_warp=4"], 1, "error[TW0102]"),
        (&["compile", &copy, "-s", "*fp32,*fp32,i32", "--option", "nonsense=1"], 1, "num_stages, num_warps"),
        (&["compile", &copy, "-s", "*fp32,*fp32,i32", "--option", "num_warps=0"], 1, "error[TW0108]"),
        (
            &["compile", &copy, "--emit", "sass"],
            2,
            "possible values: ast, ir, opt, cpu, asm, gpu, ptx, json]",
        ),
        (&["compile", &copy, "--emit", "cubin"], 2, "a cubin is assembled by a GPU's driver"),
        (&["compile", &copy, "--target", "sm_90", "--emit", "cubin"], 2, "--emit ptx to ptxas"),
        (
            &["compile", &copy, "--emit", "ptx"],
            2,
            "no stage 'ptx' for cpu; there are ast, ir, opt, cpu, asm; for 'ptx', pass `--target sm_90`\n",
        ),
        (&["compile", &copy, "--target", "sm_70"], 2, "possible values: cpu, sm_75, sm_80"),
        (&["explain", "TW0999"], 2, "there is no code 'TW0999'"),
    ];
    for (arguments, expected, part) in cases {
        let (code, text) = outcome(arguments);
        assert_eq!(code, expected, "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
        assert!(!text.contains('\u{1b}'), "no colors without a terminal");
    }
}

#[test]
fn the_help_and_the_page_list_the_same_variables() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let variables = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| c != '_' && !c.is_ascii_uppercase() && !c.is_ascii_digit());
        let ours = |word: &&str| word.starts_with("TRITON_") || word.starts_with("TILEWRIGHT_");
        words.filter(ours).map(str::to_owned).collect()
    };
    let (code, help) = outcome(&["--help"]);
    assert_eq!(code, 0);
    assert_eq!(variables(&help), variables(&page));
}

#[test]
fn of_kernels_with_one_name_the_last_counts() {
    let text = KERNELS.replace(
        "def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr = 16)",
        "def zero(x_ptr, out_ptr, n, BLOCK)",
    );
    let path = file("twice.py", text.as_bytes()).display().to_string();
    let (code, text) = outcome(&["compile", &path, "-s", "*i64"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("@zero(%x_ptr: *int64)"), "{text}");
}

#[test]
fn what_an_imported_file_does_not_have_is_named() {
    file("imported/other.py", b"import triton\n\n@triton.jit\ndef there(x):\n    return x\n");
    let user = b"import triton\nimport triton.language as tl\nfrom other import gone, there\n\n@triton.jit\ndef k(o):\n    \
                 tl.store(o, there(gone(3)))\n";
    let path = file("imported/user.py", user).display().to_string();
    let (code, text) = outcome(&["compile", &path, "-s", "*i64"]);
    assert_eq!(code, 1);
    assert!(text.contains("error[TW0010]: 'gone', which '"), "{text}");
    assert!(text.contains("other.py' does not have when it is imported, cannot be called"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_leaves_nothing() {
    let path = file("unwritten/k.py", KERNELS.as_bytes());
    let folder = path.parent().expect("it is in a folder");
    let kernel = format!("{}::zero", path.display());
    let missing = folder.join("no").join("k.ir");
    for target in ["/dev/full", &missing.display().to_string()] {
        for command in ["compile", "explain"] {
            let (code, text) = outcome(&[command, &kernel, "-s", "*i64", "-o", target]);
            assert_eq!(code, 1);
            assert!(text.starts_with(&format!("error: cannot write {target}: ")), "{text}");
        }
    }
    let output = folder.join("k.ir");
    for _ in 0..2 {
        let (code, _) = outcome(&["compile", &kernel, "-s", "*i64", "-o", &output.display().to_string()]);
        assert_eq!(code, 0);
    }
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| entry.expect("it is read").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["k.ir", "k.py"]);
}

#[cfg(unix)]
#[test]
fn paths_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;

    let folder = file("bytes.py", b"").with_file_name(OsStr::from_bytes(b"folder\xfe"));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    let path = folder.join("k.py");
    std::fs::write(&path, KERNELS).expect("the folder is writable");
    let mut kernel = path.into_os_string();
    let several = run_with(&["compile".as_ref(), &kernel]);
    assert!(String::from_utf8_lossy(&several.stderr).contains("has several kernels"), "{several:?}");
    kernel.push("::zero");
    let output = folder.join(OsStr::from_bytes(b"o\xff"));
    let done = run_with(&["compile".as_ref(), &kernel, "-s=*i64".as_ref(), "-o".as_ref(), output.as_ref()]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(std::fs::read_to_string(output).expect("it is written").contains("*int64"));
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let not_text = file("not_text.py", b"import \xff\xfe");
    let not_python = file("not_python.py", b"def (:\n");
    for (path, part) in [
        (not_text, "byte 7, in line 1, is not UTF-8; save the file as UTF-8"),
        (not_python, "error[TW0002]"),
        ("/no/such.py".into(), "cannot read"),
    ] {
        let (code, text) = outcome(&["compile", &path.display().to_string()]);
        assert_eq!(code, 1);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn run_hands_over_to_python() {
    let output = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .env("PYTHON", "echo")
        .args(["run", "--device", "cpu", "script.py", "--help"])
        .output()
        .expect("the command starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "-m tilewright run --device cpu script.py --help\n");
    let output = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .env("PYTHON", "echo")
        .args(["sim", "report", "--device", "sim:sm_80", "script.py", "1"])
        .output()
        .expect("the command starts");
    let expected = "-m tilewright sim report --device sim:sm_80 script.py 1\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    for words in [&["activate", "--viz"][..], &["deactivate"], &["status"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .env("PYTHON", "echo")
            .args(words)
            .output()
            .expect("the command starts");
        let expected = format!("-m tilewright {}\n", words.join(" "));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .env("PYTHON", "/no/such/python")
        .args(["run", "script.py"])
        .output()
        .expect("the command starts");
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn helpers_are_found_in_the_modules_that_a_kernel_imports() {
    let header = "import triton\nimport triton.language as tl\n";
    let helper =
        |name: &str, add: i32| format!("@triton.jit\ndef {name}(x):\n    return x + LATER + {add}\n\n\n");
    let later = "LATER = tl.constexpr(100)\n";
    file("imports/pkg/__init__.py", b"from .inner import one as renamed\n");
    file("imports/pkg/inner.py", format!("{header}{later}{}", helper("one", 1)).as_bytes());
    file("imports/pkg/deep/__init__.py", b"");
    file(
        "imports/pkg/deep/two.py",
        format!("{header}from ..inner import LATER\n{}", helper("two", 2)).as_bytes(),
    );
    file(
        "imports/beside.py",
        format!(
            "{header}import main\nLATER = tl.constexpr(1000)\n{}{}",
            helper("three", 3),
            helper("four", 4)
        )
        .as_bytes(),
    );
    let main =
        "import beside\nimport pkg.deep.two as two\nfrom pkg import renamed, inner\nfrom beside import *\n
LATER = tl.constexpr(7)

@triton.jit
def kernel(p):
    tl.store(p, renamed(0) + two.two(0) + beside.three(0) + inner.one(0) + four(0) + LATER)
";
    let path = file("imports/main.py", format!("{header}{main}").as_bytes());
    let kernel = format!("{}::kernel", path.display());
    let (code, text) = outcome(&["compile", &kernel, "--signature", "*i32", "--emit", "opt"]);
    assert_eq!(code, 0, "{text}");
    // The terms of the stored sum are 101, 102, 1003, 101, 1004 and 7.
    assert!(text.contains("value = 2318:int32"), "{text}");
}

#[test]
fn what_a_signature_lacks_is_told_in_its_words() {
    let path = file("lacks.py", b"import triton\n@triton.jit\ndef k(x_ptr, n):\n    pass\n");
    let (code, text) = outcome(&["compile", &format!("{}::k", path.display()), "--emit", "ir"]);
    assert_eq!(code, 1);
    assert!(text.contains("'k' is compiled without arguments 'x_ptr', 'n'"), "{text}");
    assert!(text.contains("--signature '*fp32,i32,BLOCK=128'"), "{text}");
}
