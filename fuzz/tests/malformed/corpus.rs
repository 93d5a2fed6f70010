//! Builds the corpus that the tests mutate: texts in test directories, and the stages of random
//! kernels.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tilewright::Device;
use tilewright::runtime::MachineCode;
use tilewright_compiler::Stage;
use tilewright_fuzz::kernel::kernel;
use tilewright_fuzz::matmul::program;
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir::print;

use crate::support::{self, Memory};

/// Texts that the parsers accept, one list for each format.
#[derive(Default)]
pub struct Corpus {
    pub ptx: Vec<String>,
    pub tile_ir: Vec<String>,
    pub gpu: Vec<String>,
}

/// The directories that contain the texts.
const FOLDERS: [&str; 11] = [
    "crates/cpu/tests/kernels",
    "crates/gpu/tests/language/kernels",
    "crates/gpu/tests/language/snapshots",
    "crates/gpu/tests/rings",
    "crates/ptx/tests/corpus",
    "crates/ptx/tests/lower/golden",
    "crates/sim/tests/corpus",
    "crates/sim/tests/triton",
    "tests/gpu",
    "tests/ir",
    "tests/ptx",
];

/// The text before a case of `tests/ptx`. A case is only a part of a kernel.
const PTX_HEADER: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n\
    .visible .entry k(.param .u64 x, .param .u32 n)\n{\n.reg .pred %p<40>;\n.reg .b16 %rs<40>;\n.reg .b32 %r<40>;\n\
    .reg .b64 %rd<40>, %others<40>;\n";

/// Returns the root of the project. Cargo sets the folder of the package. Without Cargo, tests run
/// in the root.
fn project_root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| ".".into(), |package| PathBuf::from(package).join(".."))
}

/// Returns the corpus. The first call reads it.
pub fn get() -> &'static Corpus {
    static CORPUS: OnceLock<Corpus> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let mut corpus = Corpus::default();
        for folder in FOLDERS {
            for path in files(&project_root().join(folder)) {
                corpus.add_file(&path);
            }
        }
        (0..24).for_each(|seed| corpus.add_kernel(seed));
        (0..12).for_each(|seed| corpus.add_matmul(seed));
        corpus
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

impl Corpus {
    fn add_file(&mut self, path: &Path) {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if !["ptx", "ir", "gpu"].contains(&&*extension) {
            return;
        }
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if !text.contains("// RUN:") {
            return self.add_text(&extension, &text);
        }
        // A case consists of prose, its steps, an input, a line of dashes, and an output.
        for case in text.split("// RUN:").skip(1) {
            let (_, case) = case.split_once('\n').unwrap_or_default();
            let (input, output) = case.split_once("// ----\n").unwrap_or((case, ""));
            let output: String =
                output.split_inclusive('\n').take_while(|line| !line.starts_with("//")).collect();
            for text in [input, &output] {
                if extension == "ptx" {
                    self.add_text(&extension, &format!("{PTX_HEADER}{text}\n}}\n"));
                } else {
                    self.add_text(&extension, text);
                }
            }
        }
    }

    /// Adds a text to a format. The first words of the text determine the format. A text without
    /// these words is omitted, because the output of a case may be a diagnostic.
    fn add_text(&mut self, extension: &str, text: &str) {
        if extension == "ptx" {
            self.ptx.push(text.to_owned());
        } else if text.starts_with("gpu ") {
            self.gpu.push(text.to_owned());
        } else if text.contains("func0 @") {
            self.tile_ir.push(text.to_owned());
        }
    }

    /// Adds the stages of a random kernel. Random kernels contain ops of all kinds.
    fn add_kernel(&mut self, seed: u64) {
        let module = kernel(seed).module;
        self.tile_ir.push(print(&module, seed.is_multiple_of(2)));
        let mut optimized = module;
        tilewright_opt::optimize(&mut optimized, &tilewright_opt::Options::default(), &mut |_, _| {});
        let target = GpuTarget::named(["sm_90a", "sm_80", "sm_75"][seed as usize % 3]).expect("it is one");
        let assigned = tilewright_gpu::assign_layouts(&optimized, target, 4);
        self.gpu.extend(assigned.map(|program| print(&program, false)));
        let Ok(program) = tilewright_gpu::compile(&optimized, target, 4, 3) else { return };
        self.gpu.push(print(&program, false));
        self.ptx.extend(tilewright_ptx::lower(&program).map(|ptx| tilewright_ptx::isa::print(&ptx)));
    }

    /// Adds the stages of a random kernel that multiplies matrices in a loop.
    fn add_matmul(&mut self, seed: u64) {
        let program = program(seed);
        let mut memory = Memory::new(&program);
        let values = memory.values(&program);
        let kernel = support::kernel(&program).on(Device::Sim(90));
        let Ok(handle) = kernel.handle(&values, &support::options(&program)) else { return };
        let compiled = &handle.compiled;
        self.tile_ir.extend(compiled.asm(Stage::Ir));
        self.gpu.extend(compiled.asm(Stage::Gpu));
        if let MachineCode::Gpu(code) = &*compiled.code {
            self.ptx.push(code.ptx.clone());
        }
    }
}
