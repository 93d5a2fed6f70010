//! Defines a target for each format. A target builds an input from bytes, and passes the input
//! through all stages that read it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tilewright_base::Color;
use tilewright_compiler::{
    CodegenOptions, CompileError, Job, Stage, Target, compile_gpu_text, compile_lowered, parse_lowered,
};
use tilewright_frontend::{Failure, FunctionRef, Request};
use tilewright_fuzz::corpus::{changed_file, changed_numbers, changed_text, with_number};
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir::{parse, parse_dialect, print, verify};
use tilewright_ptx::isa;
use tilewright_trace::Trace;

use crate::{corpus, traced};

/// Prints the input if `TILEWRIGHT_SHOW` is set, because a killed process cannot report its input.
fn show(text: &str) {
    if std::env::var_os("TILEWRIGHT_SHOW").is_some() {
        eprintln!("{text}");
    }
}

/// Parses, prints, checks, loads, decodes and launches PTX.
pub fn ptx(bytes: &[u8]) {
    try_ptx(&changed_text(&corpus::get().ptx, bytes));
}

fn try_ptx(text: &str) {
    show(text);
    let Ok(module) = isa::parse(text) else { return };
    let printed = isa::print(&module);
    let again = isa::parse(&printed).expect("printed text parses");
    assert_eq!(isa::print(&again), printed);
    let Some(target) = tilewright_sim::SimTarget::new(&module.target) else { return };
    let Ok(loaded) = tilewright_sim::Simulator::new(target).load(text) else { return };
    for kernel in loaded.kernels() {
        let Ok(parameters) = loaded.parameters(kernel) else { continue };
        launch(text, &loaded, kernel, &parameters);
    }
}

/// Runs one block of a kernel for at most 100 ms. All pointers point to the same 4 KiB of memory.
fn launch(
    text: &str,
    loaded: &tilewright_sim::LoadedModule,
    kernel: &str,
    parameters: &[tilewright_sim::Parameter],
) {
    let end = parameters.iter().map(|parameter| parameter.offset + parameter.bytes).max().unwrap_or(0);
    if end > 1 << 16 {
        return;
    }
    let mut memory = vec![0_u128; 256];
    let region = tilewright_cpu::memory::Region::of(bytemuck::cast_slice_mut(&mut memory));
    let mut buffer = vec![0_u8; end];
    for parameter in parameters.iter().filter(|parameter| parameter.bytes == 8) {
        buffer[parameter.offset..][..8].copy_from_slice(&region.address().to_le_bytes());
    }
    let (_, rest) = text.split_once(".reqntid").unwrap_or(("", "32"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let threads = digits.parse().unwrap_or(32).min(1024);
    let regions = [region];
    let (interrupt, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut launch = tilewright_sim::Launch::new(kernel, [1; 3], [threads, 1, 1], &buffer, &regions);
    launch.dynamic_shared_bytes = 64 << 10;
    launch.interrupt = Some(&interrupt);
    std::thread::scope(|scope| {
        let timer = scope.spawn(|| {
            for _ in 0..20 {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::park_timeout(Duration::from_millis(5));
            }
            interrupt.store(true, Ordering::Relaxed);
        });
        // The panic is caught, so that the timer also ends if the launch panics.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loaded.launch(&launch)));
        is_done.store(true, Ordering::Relaxed);
        timer.thread().unpark();
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => drop(fault.to_string()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
}

/// Parses and optimizes tile IR, and compiles it for the CPU and for GPUs.
pub fn tile_ir(bytes: &[u8]) {
    try_tile_ir(&changed_text(&corpus::get().tile_ir, bytes));
}

fn try_tile_ir(text: &str) {
    show(text);
    let Ok(module) = parse(text) else { return };
    let printed = print(&module, true);
    let again = parse(&printed).expect("printed text parses");
    assert_eq!(print(&again, true), printed);
    let mut optimized = module.clone();
    tilewright_opt::optimize(&mut optimized, &tilewright_opt::Options::default(), &mut |_, _| {});
    verify(&optimized).expect("optimized IR verifies");
    for module in [&module, &optimized] {
        let _ = tilewright_compiler::cpu_program(module);
        let _ = tilewright_compiler::cpu_program_for_sanitizer(module);
    }
    for target in [Target::Cpu, gpu("sm_80"), gpu("sm_90")] {
        let job = Job {
            request: Request {
                kernel: FunctionRef(0),
                arguments: Vec::new(),
                options: tilewright_frontend::Options::default(),
            },
            parameters: Vec::new(),
            target,
            codegen: CodegenOptions { tensor_maps: target == gpu("sm_90"), ..CodegenOptions::default() },
        };
        let compiled =
            parse_lowered(text).and_then(|lowered| compile_lowered(&job, None, lowered, &mut |_, _| {}));
        match compiled {
            Ok(compiled) => {
                let Some(text) = compiled.asm(Stage::Ptx) else { continue };
                let read = isa::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                isa::check(&read).unwrap_or_else(|misuse| panic!("{misuse}\n{text}"));
            }
            Err(CompileError::Kernel(failure)) => render(&failure),
            Err(CompileError::Internal(error)) => panic!("{error}"),
        }
    }
}

fn gpu(name: &str) -> Target {
    Target::Gpu(GpuTarget::named(name).expect("it is one"))
}

/// Renders diagnostics with their source lines.
fn render(failure: &Failure) {
    for diagnostic in &failure.diagnostics {
        drop(diagnostic.render(&failure.sources, Color::Never));
    }
}

/// Parses the GPU language, and compiles it to PTX.
pub fn gpu_text(bytes: &[u8]) {
    try_gpu_text(&changed_text(&corpus::get().gpu, bytes));
}

fn try_gpu_text(text: &str) {
    show(text);
    if let Ok(module) = parse_dialect::<tilewright_gpu_ir::Gpu>(text) {
        let printed = print(&module, false);
        let again = parse_dialect::<tilewright_gpu_ir::Gpu>(&printed).expect("printed text parses");
        assert_eq!(print(&again, false), printed);
    }
    match compile_gpu_text("k.gpu", text, Stage::Ptx) {
        Ok(_) => {}
        Err(CompileError::Kernel(failure)) => render(&failure),
        Err(CompileError::Internal(error)) => panic!("{error}"),
    }
}

/// Runs the target on the text with the changed number that the bytes select.
fn numbered(texts: &[String], sites: &OnceLock<Vec<(usize, usize, u64)>>, bytes: &[u8], target: fn(&str)) {
    let sites = sites.get_or_init(|| changed_numbers(texts));
    let chosen = bytes.iter().fold(0, |chosen, &byte| chosen << 8 | usize::from(byte));
    if let Some(&(text, site, number)) = sites.get(chosen % sites.len().max(1)) {
        target(&with_number(&texts[text], site, number));
    }
}

/// Tests PTX in which one number is changed.
pub fn ptx_numbers(bytes: &[u8]) {
    static SITES: OnceLock<Vec<(usize, usize, u64)>> = OnceLock::new();
    numbered(&corpus::get().ptx, &SITES, bytes, try_ptx);
}

/// Tests tile IR in which one number is changed.
pub fn tile_ir_numbers(bytes: &[u8]) {
    static SITES: OnceLock<Vec<(usize, usize, u64)>> = OnceLock::new();
    numbered(&corpus::get().tile_ir, &SITES, bytes, try_tile_ir);
}

/// Tests the GPU language in which one number is changed.
pub fn gpu_numbers(bytes: &[u8]) {
    static SITES: OnceLock<Vec<(usize, usize, u64)>> = OnceLock::new();
    numbered(&corpus::get().gpu, &SITES, bytes, try_gpu_text);
}

/// Reads a trace, and runs all queries of the trace.
pub fn trace(bytes: &[u8]) {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    let file = FILE.get_or_init(traced::file);
    let changed = changed_file(file, &bytes[bytes.len().min(2)..]);
    show(&changed.escape_ascii().to_string());
    let Ok(trace) = Trace::new(changed) else { return };
    drop(trace.list());
    for launch in 0..trace.launches.len() {
        drop(trace.launch(launch));
        for tensor in 0..2 {
            drop((trace.overlaps(launch, tensor), trace.element_accesses(launch, tensor, 1)));
            drop((trace.elements(launch, tensor, true), trace.elements(launch, tensor, false)));
        }
        for program in 0..2 {
            drop(trace.events_of(launch, program));
            for event in 0..2 {
                drop((trace.touched(launch, program, event), trace.value(launch, program, event, 0)));
            }
        }
    }
}
