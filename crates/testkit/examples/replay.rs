//! Compiles a corpus of kernels, or compares the outputs of two such compilations.
//!
//! `cargo xtask replay` runs this program on two commits.
//!
//! ```text
//! replay compile CORPUS OUT       writes OUT/KERNEL.VARIANT.STAGE for each CORPUS/KERNEL.ir
//! replay compare BEFORE AFTER     counts the texts that differ, names three a stage, compares PTX
//! ```
//! A corpus file is tile IR from the frontend. Its first line is a comment with the launch options.
//! Each kernel is compiled for the CPU, and for each GPU of [`VARIANTS`] with its options. If a
//! compilation fails, its output is the error message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_base::{Color, Diagnostic, collect_remarks};
use tilewright_compiler::against_spills;
use tilewright_gpu::Launcher;
use tilewright_gpu_ir::GpuTarget;
use tilewright_gpu_ir::target::REGISTER_FILE;
use tilewright_ir::Module;
use tilewright_testkit::Ptxas;

/// The target GPUs. The bool is true if launches provide tensor maps.
const VARIANTS: [(&str, bool); 4] = [("sm_75", false), ("sm_80", false), ("sm_90a", true), ("sm_100a", true)];

/// The maximum number of differing PTX files that a comparison lists. The totals include all.
const MAX_ROWS: u32 = 60;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match &arguments[..] {
        [verb, corpus, out] if verb.as_os_str() == "compile" => compile_corpus(corpus, out).map(|()| true),
        [verb, before, after] if verb.as_os_str() == "compare" => compare(before, after),
        _ => Err("replay compile CORPUS OUT | replay compare BEFORE AFTER".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Clone, Copy)]
struct LaunchOptions {
    num_warps: u32,
    num_stages: u32,
    num_ctas: u32,
    max_registers: Option<u32>,
    contraction: bool,
}

impl LaunchOptions {
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let entries = line.strip_prefix("// options: ").unwrap_or_default().split(' ');
        let entries: BTreeMap<_, _> = entries.filter_map(|entry| entry.split_once('=')).collect();
        let number =
            |name: &str, default| entries.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        Self {
            num_warps: number("num_warps", 4),
            num_stages: number("num_stages", 3),
            num_ctas: number("num_ctas", 1),
            max_registers: Some(number("max_registers", 0)).filter(|count| *count > 0),
            contraction: number("contraction", 1) == 1,
        }
    }
}

fn compile_corpus(corpus: &Path, out: &Path) -> Result<(), Failure> {
    let mut kernels: Vec<PathBuf> =
        std::fs::read_dir(corpus)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    kernels.retain(|path| path.extension().is_some_and(|extension| extension == "ir"));
    kernels.sort();
    std::fs::create_dir_all(out)?;
    // [`guarded`] converts a panic of the compiler to a text.
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(path) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = compile_kernel(path, out) {
                eprintln!("replay: {}: {error}", path.display());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            let thread = std::thread::Builder::new().stack_size(64 << 20);
            thread.spawn_scoped(scope, work).expect("the system has threads");
        }
    });
    println!("{} kernels", kernels.len());
    Ok(())
}

fn compile_kernel(path: &Path, out: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("the name is not UTF-8")?;
    let options = LaunchOptions::parse(&text);
    let write = |stage: &str, text: &str| std::fs::write(out.join(format!("{name}.{stage}")), text);
    let mut module = match tilewright_ir::parse(&text) {
        Ok(module) => module,
        Err(error) => return Ok(write("cpu.opt", &format!("error: {error}\n"))?),
    };
    let optimized = guarded(|| {
        tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
        Ok(tilewright_ir::print(&module, false))
    });
    write("cpu.opt", &optimized)?;
    let program = guarded(|| {
        let program = tilewright_compiler::cpu_program(&module);
        program.map(|program| program.to_string()).map_err(|refusal| rendered(&refusal, &module))
    });
    write("cpu.cpu", &program)?;
    for (target, tensor_maps) in VARIANTS {
        let target = GpuTarget::named(target)?;
        let mut ptx = String::new();
        let gpu = guarded(|| compile_for_gpu(&module, target, options, tensor_maps, &mut ptx));
        write(&format!("{}.gpu", target.name), &gpu)?;
        write(&format!("{}.ptx", target.name), &ptx)?;
    }
    Ok(())
}

/// Compiles a module for a GPU. Returns the text of the module in the GPU dialect, followed by the
/// remarks of the passes. Writes the PTX to `ptx`.
fn compile_for_gpu(
    module: &Module,
    target: GpuTarget,
    options: LaunchOptions,
    makes_tensor_maps: bool,
    ptx: &mut String,
) -> Result<String, String> {
    let adds_warps = options.max_registers.is_none();
    let launcher = Launcher { makes_tensor_maps, without: &[], adds_warps, cluster: options.num_ctas };
    let (program, remarks) = collect_remarks(|| {
        tilewright_gpu::compile_for(module, target, options.num_warps, options.num_stages, launcher)
    });
    let mut program = program.map_err(|refusal| rendered(&refusal, module))?;
    program.header.contraction = options.contraction;
    let mut lowered = tilewright_ptx::lower(&program).map_err(|refusal| rendered(&refusal, module))?;
    for function in lowered.functions.values_mut() {
        function.directives.max_registers = function.directives.max_registers.or(options.max_registers);
    }
    *ptx = tilewright_ptx::isa::print(&lowered);
    let mut text = tilewright_ir::print(&program, false);
    for remark in remarks {
        let (pass, kind) = (remark.pass, remark.kind.name());
        writeln!(text, "// {pass} {kind}: {}: {}: {}", remark.subject, remark.decision, remark.reason)
            .expect("writing to a string cannot fail");
    }
    Ok(text)
}

fn rendered(diagnostic: &Diagnostic, module: &Module) -> String {
    diagnostic.render(&module.sources, Color::Never)
}

/// Returns the output of a stage. If the stage fails or panics, returns the message.
fn guarded(stage: impl FnOnce() -> Result<String, String>) -> String {
    match catch_unwind(AssertUnwindSafe(stage)) {
        Ok(Ok(text)) => text,
        Ok(Err(message)) => format!("error: {message}\n"),
        Err(panic) => {
            let literal = panic.downcast_ref::<&str>().copied();
            let message = panic.downcast_ref::<String>().map(String::as_str).or(literal);
            format!("panic: {}\n", message.unwrap_or_default())
        }
    }
}

/// The number of instructions of a PTX file, its registers, and the bytes of its spills (0 without
/// `ptxas`).
#[derive(Clone, Copy, Default)]
struct Figures {
    registers: u32,
    instructions: u32,
    spills: u32,
}

impl Figures {
    fn of(ptxas: Option<&Ptxas>, text: &str, target: &str) -> Option<Self> {
        let is_instruction = |line: &&str| {
            line.starts_with([' ', '\t'])
                && line.trim_end().ends_with(';')
                && !line.trim_start().starts_with('.')
        };
        let instructions = text.lines().filter(is_instruction).count() as u32;
        let [registers, spills] = match ptxas {
            Some(ptxas) => Self::assemble(ptxas, text, target)?,
            None => [0, 0],
        };
        Some(Self { registers, instructions, spills })
    }

    /// Returns the maximum number of registers of a thread, and the total bytes of spill stores.
    fn assemble(ptxas: &Ptxas, text: &str, target: &str) -> Option<[u32; 2]> {
        let figures = |text: &str| {
            let usage = ptxas.assemble(text, target).ok()?.usage;
            let registers = usage.iter().map(|usage| usage.registers).max().unwrap_or(0);
            Some([registers, usage.iter().map(|usage| usage.spill_stores).sum::<u32>()])
        };
        let first = figures(text)?;
        let (_, threads) = text.split_once(".reqntid ")?;
        let threads: u32 = threads.split([',', '\n']).next()?.trim().parse().ok()?;
        let again = against_spills(text, first[0], first[1], REGISTER_FILE / threads);
        let second = again.and_then(|text| figures(&text)).filter(|second| second[1] < first[1]);
        Some(second.unwrap_or(first))
    }
}

/// Prints the differences between the files of two directories. Returns true if there are no
/// differences.
fn compare(before: &Path, after: &Path) -> Result<bool, Failure> {
    let names = |folder: &Path| -> Result<BTreeSet<String>, std::io::Error> {
        std::fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    let all: BTreeSet<String> = names(before)?.union(&names(after)?).cloned().collect();
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let is_failure = |text: &str| text.starts_with("error:") || text.starts_with("panic:");
    let mut differing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in &all {
        let (old, new) = (read(before, name), read(after, name));
        if old == new {
            continue;
        }
        let (_, stage) = name.split_once('.').unwrap_or_default();
        differing.entry(stage).or_default().push(name);
        match (is_failure(&old), is_failure(&new)) {
            (false, true) => println!("fails now: {name}: {}", new.lines().next().unwrap_or_default()),
            (true, false) => println!("compiles now: {name}"),
            _ => {}
        }
    }
    println!("{} texts of {} differ", differing.values().map(Vec::len).sum::<usize>(), all.len());
    for (stage, names) in &differing {
        println!("  {stage:12} {:6}   {}", names.len(), names[..names.len().min(3)].join(" "));
    }
    compare_figures(before, after, &differing)?;
    Ok(differing.is_empty())
}

/// Prints registers, instructions and spills of the PTX files that differ, the geometric means of
/// the ratios, and the number of files with more spills.
fn compare_figures(
    before: &Path,
    after: &Path,
    differing: &BTreeMap<&str, Vec<&str>>,
) -> Result<(), Failure> {
    let ptxas = Ptxas::find_or_skip("replay");
    let (mut rows, mut registers, mut instructions, mut more_spills) = (0, 0.0, 0.0, 0);
    let ratio = |new: u32, old: u32| (f64::from(new.max(1)) / f64::from(old.max(1))).ln();
    for (stage, names) in differing {
        let Some(target) = stage.strip_suffix(".ptx") else { continue };
        for name in names {
            let figures = |folder: &Path| -> Result<Option<Figures>, Failure> {
                Ok(Figures::of(ptxas.as_ref(), &std::fs::read_to_string(folder.join(name))?, target))
            };
            let (Some(old), Some(new)) = (figures(before)?, figures(after)?) else { continue };
            if old.instructions == 0 || new.instructions == 0 {
                continue;
            }
            rows += 1;
            more_spills += u32::from(new.spills > old.spills);
            registers += ratio(new.registers, old.registers);
            instructions += ratio(new.instructions, old.instructions);
            if rows <= MAX_ROWS {
                println!(
                    "{name:60} registers {:>3} -> {:>3}   instructions {:>5} -> {:>5}   spills {:>4} -> {:>4}",
                    old.registers, new.registers, old.instructions, new.instructions, old.spills, new.spills
                );
            }
        }
    }
    if rows > 0 {
        let mean = |sum: f64| (sum / f64::from(rows)).exp();
        println!(
            "{rows} differing PTX texts: registers x {:.4}, instructions x {:.4} (geometric means), {more_spills} with more spills",
            mean(registers),
            mean(instructions)
        );
    }
    Ok(())
}
