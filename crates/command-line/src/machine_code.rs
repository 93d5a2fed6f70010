//! Determines the SASS and the occupancy of a kernel, with NVIDIA's tools.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright::compiler::{GpuCode, StageText};

/// The result of `ptxas`.
pub struct MachineCode {
    /// The number of registers of a thread.
    pub registers: u32,
    /// The number of bytes that a thread stores when it spills registers.
    pub spills: u32,
    /// The instructions. `None` if there is no disassembler, or if the disassembler fails.
    pub sass: Option<StageText>,
}

/// Assembles PTX. `source` is the kernel's file in the line information. The error is for the user.
pub fn assemble(code: &GpuCode, source: &str) -> Result<MachineCode, String> {
    let variables = ["TILEWRIGHT_PTXAS", "TRITON_PTXAS_PATH"];
    let ptxas = find("ptxas", &variables, None).ok_or_else(|| {
        let set = variables.iter().find_map(|name| Some((name, std::env::var_os(name)?)));
        match set {
            Some((name, path)) => format!("{name}={} is no ptxas and no folder with it", path.display()),
            None => "there is no ptxas: put it on PATH, or name it with TILEWRIGHT_PTXAS=/path/to/ptxas"
                .to_owned(),
        }
    })?;
    let folder = Folder::new()?;
    let (ptx, cubin) = (folder.0.join("kernel.ptx"), folder.0.join("kernel.cubin"));
    std::fs::write(&ptx, &code.ptx).map_err(|error| format!("cannot write {}: {error}", ptx.display()))?;
    let mut command = Command::new(&ptxas);
    command.args(["-v", "-lineinfo", "-arch", code.target.name, "-o"]).arg(&cubin).arg(&ptx);
    let said = run(command)?;
    let number = |before: &str| {
        let line = said.lines().find(|line| line.contains(before))?;
        let words: Vec<&str> = line.split(before).next()?.split_whitespace().collect();
        words.last()?.parse::<u32>().ok()
    };
    let (registers, spills) =
        (number(" registers").unwrap_or_default(), number(" bytes spill stores").unwrap_or_default());
    Ok(MachineCode { registers, spills, sass: disassemble(&ptxas, &cubin, source) })
}

/// Disassembles a cubin, if there is a disassembler. The result of `cuobjdump` has no source lines.
fn disassemble(ptxas: &Path, cubin: &Path, source: &str) -> Option<StageText> {
    let beside = ptxas.parent();
    let text = if let Some(nvdisasm) = find("nvdisasm", &["TRITON_NVDISASM_PATH"], beside) {
        let mut command = Command::new(nvdisasm);
        command.args(["-g", "-c"]).arg(cubin);
        run_for_output(command).ok()?
    } else {
        let mut command = Command::new(find("cuobjdump", &["TRITON_CUOBJDUMP_PATH"], beside)?);
        command.arg("-sass").arg(cubin);
        run_for_output(command).ok()?
    };
    Some(listing(&text, source))
}

/// Returns the instructions and labels of a listing, each with its line in the file `source`, or 0.
fn listing(text: &str, source: &str) -> StageText {
    let (mut lines, mut origins, mut current) = (Vec::new(), Vec::new(), 0);
    for line in text.lines() {
        let word = line.trim();
        if let Some(place) = word.strip_prefix("//## File \"") {
            let (file, rest) = place.split_once('"').unwrap_or((place, ""));
            let digits: String =
                rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            current = digits.parse().ok().filter(|_| file == source).unwrap_or(0);
        } else if word.starts_with("/*") && word.contains(';') {
            // `cuobjdump` prints the encoding after the instruction.
            let end = word.find(';').map_or(word.len(), |at| at + 1);
            lines.push(word[..end].to_owned());
            origins.push(current);
        } else if word.starts_with(".L_") && word.ends_with(':') {
            lines.push(word.to_owned());
            origins.push(0);
        }
    }
    StageText { name: "sass".into(), title: "SASS".into(), lines, links: origins }
}

/// Finds a tool in the files or folders of the environment variables `variables`, in `beside`, in
/// `PATH`, or in the CUDA toolkit.
fn find(name: &str, variables: &[&str], beside: Option<&Path>) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let named = variables.iter().filter_map(|variable| std::env::var_os(variable).map(PathBuf::from));
    let named = named.map(|path| if path.is_dir() { path.join(&file) } else { path });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path));
    let toolkit = std::env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let toolkits = toolkit.into_iter().chain([PathBuf::from("/usr/local/cuda/bin")]);
    named.chain(folders.chain(toolkits).map(|folder| folder.join(&file))).find(|path| path.is_file())
}

/// Runs `ptxas`. Returns the concatenation of its stderr and stdout.
fn run(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start ptxas: {error}"))?;
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("ptxas refuses the PTX: {}", said.trim())) }
}

fn run_for_output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A temporary folder. Dropping the value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tilewright-explain-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A temporary folder that cannot be removed is not an error.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the maximum number of resident blocks on a multiprocessor, and the resource that limits
/// it. A block has `threads` threads, `registers` registers for each, and `shared` bytes of shared
/// memory.
pub fn occupancy(capability: u32, threads: u32, registers: u32, shared: u32) -> (u32, &'static str) {
    // Threads, blocks, and KiB of shared memory, from the CUDA programming guide.
    let (most_threads, most_blocks, most_shared) = match capability {
        75 => (1024, 16, 64),
        80 => (2048, 32, 164),
        86 => (1536, 16, 100),
        87 => (1536, 16, 164),
        89 | 120.. => (1536, 24, 100),
        _ => (2048, 32, 228),
    };
    let warps = threads.div_ceil(32).max(1);
    // The hardware allocates registers to a warp in units of 256.
    let of_warp = (registers.max(1) * 32).next_multiple_of(256);
    // From compute capability 8.0 on, the system reserves 1 KiB for each block.
    let reserved = if capability >= 80 { 1024 } else { 0 };
    let limits = [
        (most_threads / (32 * warps), "threads"),
        (65_536 / of_warp / warps, "registers"),
        (most_shared * 1024 / (shared + reserved).max(1), "shared memory"),
        (most_blocks, "blocks"),
    ];
    limits.into_iter().min_by_key(|(blocks, _)| *blocks).expect("there are limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_files_are_no_links() {
        let text = "\
add:
.text.add:
\t//## File \"k.py\", line 23
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
\t//## File \"other.py\", line 7 inlined at \"k.py\", line 24
        /*0010*/                   EXIT ;      /* 0x000000000000794d */
                                               /* 0x000fea0003800000 */
";
        let stage = listing(text, "k.py");
        assert_eq!(
            stage.lines,
            [
                "/*0000*/                   LDC R1, c[0x0][0x28] ;",
                ".L_x_0:",
                "/*0010*/                   EXIT ;"
            ]
        );
        assert_eq!(stage.links, [23, 0, 0]);
    }

    #[test]
    fn what_is_scarce_limits_the_blocks() {
        assert_eq!(occupancy(90, 128, 26, 0), (16, "threads"));
        assert_eq!(occupancy(90, 128, 128, 0), (4, "registers"));
        assert_eq!(occupancy(90, 128, 128, 98_304), (2, "shared memory"));
        assert_eq!(occupancy(80, 32, 16, 0), (32, "blocks"));
        assert_eq!(occupancy(75, 1024, 64, 0), (1, "threads"));
    }
}
