//! Runs NVIDIA's assembler, `ptxas`, to validate PTX.
//!
//! Its output contains the machine code of the kernels and the resources that they need. `make
//! test` installs it into `.venv`. Without it, the tests that need it are skipped.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{project_root, say_skipped};

/// The start of the line that reports a crash of the assembler. The PTX may be valid.
pub const DIED: &str = "the assembler died";

/// The assembler's memory limit. Some invalid inputs make it allocate 20 GB in a minute.
const MAX_MEMORY_KIB: u32 = 2 << 20;

/// The assembler.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
}

/// The assembler's output for a PTX module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The ELF image.
    pub cubin: Vec<u8>,
    /// The resource usage of each kernel and each function that is not inlined. The assembler
    /// reports it.
    pub usage: Vec<Usage>,
    /// Performance warnings, such as serialized `wgmma` instructions.
    pub losses: Vec<String>,
}

/// The resource usage of a kernel or function.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// The name of the kernel or function.
    pub name: String,
    /// Registers per thread.
    pub registers: u32,
    /// Stack bytes per thread.
    pub stack: u32,
    /// Bytes of register spill stores.
    pub spill_stores: u32,
    /// Bytes of register spill loads.
    pub spill_loads: u32,
    /// Static shared memory per block in bytes.
    pub shared: u32,
    /// Barriers per block.
    pub barriers: u32,
}

impl Ptxas {
    /// Finds the assembler. The first one that exists is returned:
    ///
    /// - The file that `TILEWRIGHT_PTXAS` names.
    /// - The assembler in the project's `.venv`.
    /// - The assembler in `PATH`.
    ///
    /// Panics if `TILEWRIGHT_PTXAS` names no file.
    pub fn find() -> Option<Self> {
        if let Some(path) = std::env::var_os("TILEWRIGHT_PTXAS") {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "TILEWRIGHT_PTXAS names no file: {}", path.display());
            return Some(Self { path });
        }
        let libraries = std::fs::read_dir(project_root().join(".venv/lib")).into_iter().flatten();
        let packages = libraries.filter_map(|entry| Some(entry.ok()?.path().join("site-packages/nvidia")));
        let in_packages = packages
            .flat_map(|nvidia| ["cu13/bin/ptxas", "cuda_nvcc/bin/ptxas"].map(|path| nvidia.join(path)));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|directory| directory.join("ptxas"));
        let found = in_packages.chain(in_path).find(|path| path.is_file())?;
        Some(Self { path: found })
    }

    /// Finds the assembler like [`Self::find`]. If there is no assembler, also reports the test as
    /// skipped.
    pub fn find_or_skip(test: &str) -> Option<Self> {
        let found = Self::find();
        if found.is_none() {
            say_skipped(test, "there is no ptxas (make test installs it; TILEWRIGHT_PTXAS names another)");
        }
        found
    }

    /// Assembles PTX for a target, such as `sm_90a`, with optimizations. An `Err` contains the
    /// assembler's messages.
    pub fn assemble(&self, text: &str, target: &str) -> Result<Assembled, String> {
        self.assemble_with(text, target, &[])
    }

    /// Assembles PTX like [`Self::assemble`], with additional options, such as `-O0` for a fast
    /// assembly.
    pub fn assemble_with(&self, text: &str, target: &str, options: &[&str]) -> Result<Assembled, String> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tilewright-ptxas-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let result = self.run(text, target, options, &directory);
        // Leftover temporary files are harmless.
        let _ = std::fs::remove_dir_all(&directory);
        result
    }

    fn run(&self, text: &str, target: &str, options: &[&str], directory: &Path) -> Result<Assembled, String> {
        let source = directory.join("module.ptx");
        let cubin = directory.join("module.cubin");
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v $0; exec \"$@\"", &MAX_MEMORY_KIB.to_string()]).arg(&self.path);
        command.arg("-v").arg(format!("-arch={target}")).args(options).arg(&source).arg("-o").arg(&cubin);
        let output = command.output().map_err(|error| format!("{}: {error}", self.path.display()))?;
        let mut messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            // An assembler that rejects its input exits with a code and messages about the input.
            let faults = ["Memory allocation failure", "Internal compiler error"];
            if output.status.code().is_none() || faults.iter().any(|fault| messages.contains(fault)) {
                writeln!(messages, "{DIED}: {}", output.status).expect("writing to a string cannot fail");
            }
            return Err(messages);
        }
        let cubin = std::fs::read(&cubin).map_err(|error| error.to_string())?;
        let is_loss = |line: &&str| line.contains("Performance Loss");
        let losses = messages.lines().filter(is_loss).map(str::to_owned).collect();
        Ok(Assembled { cubin, usage: parse_usage(&messages), losses })
    }
}

impl Assembled {
    /// Returns the resource usage of a kernel.
    pub fn usage(&self, kernel: &str) -> Option<&Usage> {
        self.usage.iter().find(|usage| usage.name == kernel)
    }

    /// Returns the machine code: the name and the content of each `.text` section, sorted by name.
    pub fn code(&self) -> Vec<(String, Vec<u8>)> {
        let mut code = sections(&self.cubin).expect("ptxas writes 64-bit ELF");
        code.retain(|(name, _)| name.starts_with(".text"));
        code.sort();
        code
    }
}

/// Parses these lines of the assembler's messages: `Compiling entry function 'k' …`,
/// `… bytes stack frame, …`, `Used … registers, …`.
fn parse_usage(messages: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    for line in messages.lines() {
        if let Some((_, rest)) = line.split_once("function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Usage { name, ..Usage::default() });
            continue;
        }
        let Some(usage) = all.last_mut() else { continue };
        for part in line.rsplit(" : ").next().unwrap_or_default().split(',') {
            let mut words = part.split_whitespace();
            let Some(first) = words.next() else { continue };
            let first =
                if first.eq_ignore_ascii_case("used") { words.next().unwrap_or_default() } else { first };
            let Ok(number) = first.parse() else { continue };
            match words.collect::<Vec<_>>()[..] {
                ["registers"] => usage.registers = number,
                ["barriers"] => usage.barriers = number,
                ["bytes", "smem"] => usage.shared = number,
                ["bytes", "stack", "frame"] => usage.stack = number,
                ["bytes", "spill", "stores"] => usage.spill_stores = number,
                ["bytes", "spill", "loads"] => usage.spill_loads = number,
                _ => {}
            }
        }
    }
    all
}

/// Returns the names and contents of the sections of a 64-bit little-endian ELF image. Returns
/// `None` for other files.
fn sections(image: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let number = |at: u64, bytes: usize| {
        let at = usize::try_from(at).ok()?;
        let field = image.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte)))
    };
    if image.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let names = number(table + names * size + 0x18, 8)?;
    let mut found = Vec::new();
    for index in 0..count {
        let header = table + index * size;
        let name = image.get(usize::try_from(names + number(header, 4)?).ok()?..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        let start = usize::try_from(number(header + 0x18, 8)?).ok()?;
        let length = usize::try_from(number(header + 0x20, 8)?).ok()?;
        // A section of type 8 (`SHT_NOBITS`) occupies no bytes in the image.
        let content = if number(header + 4, 4)? == 8 { &[][..] } else { image.get(start..start + length)? };
        found.push((String::from_utf8_lossy(name).into_owned(), content.to_vec()));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 p) {
    .shared .align 4 .b8 s[512];
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    st.shared.u32 [s], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [s];
    st.global.u32 [%rd1], %r2;
    ret;
}
";

    #[test]
    fn a_kernel_is_assembled_and_measured() {
        let Some(ptxas) = Ptxas::find_or_skip("a_kernel_is_assembled_and_measured") else { return };
        let assembled = ptxas.assemble(KERNEL, "sm_75").unwrap();
        let usage = assembled.usage("k").unwrap();
        assert_eq!((usage.shared, usage.barriers, usage.spill_stores), (512, 1, 0));
        assert!(usage.registers > 0);
        let code = assembled.code();
        assert_eq!(code.len(), 1);
        assert_eq!(code[0].0, ".text.k");
        assert!(!code[0].1.is_empty() && code[0].1.len().is_multiple_of(16));
        let error = ptxas.assemble(&KERNEL.replace("bar.sync 0", "bar.sink 0"), "sm_75").unwrap_err();
        assert!(error.contains("line 12"), "{error}");
    }

    #[test]
    fn usage_is_read_from_the_report() {
        let report = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 26 registers, used 1 barriers, 1024 bytes smem, 376 bytes cmem[0]
";
        let expected = Usage {
            name: "a".to_owned(),
            registers: 26,
            stack: 16,
            spill_stores: 8,
            spill_loads: 4,
            shared: 1024,
            barriers: 1,
        };
        assert_eq!(parse_usage(report), [expected]);
    }
}
