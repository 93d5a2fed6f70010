//! Runs the official Triton's Blackwell kernels in the simulator. The results are compared with
//! torch's (see `official_blackwell.py`). The kernels are matmuls of all types, with and without
//! scale factors, and attention.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_sim::{Fault, FaultKind, Launch, Region, SimTarget, Simulator};
use tilewright_testkit::project_root;

/// Alignment in bytes of memory, as a driver allocates it.
const ALIGNMENT: usize = 256;

/// Bytes aligned to [`ALIGNMENT`].
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    fn new(content: &[u8]) -> Self {
        let mut bytes = vec![0; content.len() + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        bytes[start..start + content.len()].copy_from_slice(content);
        Self { bytes, start, len: content.len() }
    }

    fn all(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Returns the Python of the project's environment, if it has triton and torch.
fn python_with_triton() -> Option<PathBuf> {
    let python = std::env::var_os("TILEWRIGHT_TRITON_PYTHON")
        .map_or_else(|| project_root().join(".venv/bin/python"), PathBuf::from);
    let program = "import torch, triton.backends.compiler";
    let has_both = Command::new(&python).args(["-c", program]).output().ok()?.status.success();
    has_both.then_some(python)
}

/// Compiles the cases with these names, or all. Returns the folder of their files; `None` without
/// triton or torch.
fn generate(test: &str, names: &[&str]) -> Option<PathBuf> {
    let Some(python) = python_with_triton() else {
        tilewright_testkit::say_skipped(test, "there is no triton or no torch (make test installs them)");
        return None;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    // An earlier run's files would run again.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/official_blackwell.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&folder)
        .args(names)
        .env("TRITON_CACHE_DIR", folder.join("cache"))
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder)
}

/// The description of a launch that the script writes.
#[derive(Default)]
struct Description {
    /// The lines with one value.
    values: BTreeMap<String, String>,
    grid: Vec<u32>,
    /// The lines of the arguments, split at spaces.
    arguments: Vec<Vec<String>>,
}

impl Description {
    fn read(path: &Path) -> Self {
        let mut all = Self::default();
        for line in std::fs::read_to_string(path).expect("the script wrote it").lines() {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            match words[0].as_str() {
                "grid" => all.grid = words[1..].iter().map(|word| word.parse().expect("a number")).collect(),
                "input" | "output" | "i32" | "f32" => all.arguments.push(words),
                _ => {
                    all.values.insert(words[0].clone(), words[1].clone());
                }
            }
        }
        all
    }

    fn number(&self, name: &str) -> u32 {
        self.values[name].parse().expect("a number")
    }
}

/// Returns the value of a binary16 number.
fn binary16(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    }
}

/// Decodes an element of an output.
fn element(ty: &str, bytes: &[u8]) -> f64 {
    let half = || u16::from_le_bytes([bytes[0], bytes[1]]);
    let word = || u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    match ty {
        "fp16" => binary16(half()),
        "bf16" => f32::from_bits(u32::from(half()) << 16).into(),
        "fp32" => f32::from_bits(word()).into(),
        "i32" => f64::from(word() as i32),
        _ => panic!("an output of {ty}"),
    }
}

/// Runs a case with the bug `change` in its code.
fn run(folder: &Path, name: &str, change: impl Fn(&str) -> String) -> Result<Vec<f64>, Box<Fault>> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.ptx"))).expect("the script wrote it");
    let description = Description::read(&folder.join(format!("{name}.launch")));
    let mut memories: Vec<(Option<String>, Memory)> = Vec::new();
    for words in &description.arguments {
        let read = |path: &String| Memory::new(&std::fs::read(path).expect("the script wrote it"));
        match words[0].as_str() {
            "input" => memories.push((None, read(&words[1]))),
            "output" => memories.push((Some(words[1].clone()), read(&words[2]))),
            _ => {}
        }
    }
    let blocks: u32 = description.grid.iter().product();
    let mut scratch = Memory::new(&vec![0; (description.number("scratch") * blocks) as usize]);
    let mut next = memories.iter_mut();
    let (mut values, mut regions): (Vec<Vec<u8>>, Vec<Region<'_>>) = (Vec::new(), Vec::new());
    for words in &description.arguments {
        values.push(match words[0].as_str() {
            "i32" => words[1].parse::<i32>().expect("a number").to_le_bytes().to_vec(),
            "f32" => words[1].parse::<f32>().expect("a number").to_le_bytes().to_vec(),
            _ => {
                let region = Region::of(next.next().expect("each has memory").1.all());
                regions.push(region);
                region.address().to_le_bytes().to_vec()
            }
        });
    }
    // The last two parameters are for scratch memory.
    let region = Region::of(scratch.all());
    regions.push(region);
    values.extend([region.address().to_le_bytes().to_vec(), vec![0; 8]]);
    let target = SimTarget::new(&format!("sm_{}", description.number("target"))).expect("a target");
    let module =
        Simulator::new(target).load(&change(&text)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let kernel = module.kernels().next().expect("the module has a kernel").to_owned();
    let layout = module.parameters(&kernel)?;
    assert_eq!(layout.len(), values.len(), "{name}: the parameters");
    let mut parameters = vec![0; layout.last().map_or(0, |last| last.offset + last.bytes)];
    for (value, place) in values.iter().zip(&layout) {
        parameters[place.offset..place.offset + value.len()].copy_from_slice(value);
    }
    let grid = [description.grid[0], description.grid[1], description.grid[2]];
    let threads = [description.number("threads"), 1, 1];
    module.launch(&Launch {
        cluster: [description.number("cluster"), 1, 1],
        dynamic_shared_bytes: description.number("shared"),
        tracks_loads: true,
        ..Launch::new(&kernel, grid, threads, &parameters, &regions)
    })?;
    let (ty, memory) = memories.iter_mut().find(|(ty, _)| ty.is_some()).expect("a kernel has an output");
    let ty = ty.clone().expect("it is an output");
    let width = if ty.ends_with("16") { 2 } else { 4 };
    Ok(memory.all().chunks(width).map(|bytes| element(&ty, bytes)).collect())
}

/// Compares the result of a case with that of torch. Also checks that parser and printer reproduce
/// the code.
fn check(folder: &Path, name: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.ptx"))).expect("the script wrote it");
    common::round_trip(&text, None).map_err(|error| format!("{name}: {error}"))?;
    let result = run(folder, name, str::to_owned).map_err(|fault| format!("{name}: {fault}"))?;
    let description = Description::read(&folder.join(format!("{name}.launch")));
    let tolerance: f64 = description.values["tolerance"].parse().expect("a number");
    let expected = std::fs::read(&description.values["expected"]).expect("the script wrote it");
    let expected: Vec<f64> = expected.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    assert_eq!(result.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    assert!(largest > 0.0, "{name}: the result is not trivial");
    for (index, (found, expected)) in result.iter().zip(&expected).enumerate() {
        if (found - expected).abs() > tolerance * expected.abs().max(largest / 16.0) || found.is_nan() {
            return Err(format!("{name}: element {index} is {found}, expected {expected}"));
        }
    }
    Ok(())
}

#[test]
#[ignore = "the official compiler takes minutes: make nightly"]
fn kernels_of_the_official_compiler_have_the_results_of_torch() {
    let Some(folder) = generate("blackwell_kernels", &[]) else { return };
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let launches = paths.filter(|path| path.extension().is_some_and(|extension| extension == "launch"));
    let mut names: Vec<String> = launches
        .map(|path| path.file_stem().expect("a file has a name").to_str().expect("ASCII").to_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 30, "the script wrote {} cases", names.len());
    let failures: Vec<String> = names.iter().filter_map(|name| check(&folder, name).err()).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), names.len(), failures.join("\n\n"));
}

#[test]
fn bugs_planted_into_the_code_of_the_official_compiler() {
    let Some(folder) = generate("blackwell_bugs", &["fp16", "attention_fp16"]) else { return };
    for name in ["fp16", "attention_fp16"] {
        check(&folder, name).unwrap_or_else(|error| panic!("{error}"));
    }
    let without = |name: &str, instruction: &str| {
        let planted = |text: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(instruction));
            text.replace(line.unwrap_or_else(|| panic!("no {instruction}")), "")
        };
        run(&folder, name, planted).expect_err(instruction).kind
    };
    for (name, instruction) in [("fp16", "tcgen05.wait::ld"), ("attention_fp16", "tcgen05.wait::st")] {
        let found = without(name, instruction);
        assert!(matches!(found, FaultKind::TensorMemoryRace { .. }), "{found}");
    }
    let found = without("fp16", "fence.proxy.async");
    assert!(matches!(found, FaultKind::MissingProxyFence { .. }), "{found}");
}
