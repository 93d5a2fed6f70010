//! Times compilations and warm launches.
//!
//! With a kernel and its signature, times the stages of its compilation. Then times launches of a
//! small kernel: the look-up of its code, no program, and one program.
//!
//! ```text
//! cargo run --release -p tilewright --example timings -- k.py::kernel '*fp16,*fp16,i32,BLOCK=16'
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use tilewright::compiler::{CodegenOptions, Job, compile};
use tilewright::frontend::{Options as LanguageOptions, Request, SourceHost};
use tilewright::runtime::{Interrupt, Options, Value};
use tilewright::{Error, Grid, Module, Stage, Target, args};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(kernel), Some(signature)) = (arguments.next(), arguments.next()) {
        let (path, name) = kernel.rsplit_once("::").unwrap_or((&kernel, "kernel"));
        stages(path, name, &signature)?;
    }
    launches()
}

fn median(mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..101).map(|_| run()).collect();
    times.sort();
    times[50]
}

fn stages(path: &str, name: &str, signature: &str) -> Result<(), Error> {
    let module = Module::from_file(path)?;
    let kernel = module.kernel(name)?;
    let parameters = kernel.signature().parameters.iter().map(|parameter| parameter.name.clone());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let read = median(|| {
        let start = Instant::now();
        black_box(SourceHost::new(path, text.as_str()).is_ok());
        start.elapsed()
    });
    let mut host = SourceHost::new(path, text)?;
    let Some(function) = host.function(name) else { return Ok(()) };
    let job = Job {
        request: Request {
            kernel: function,
            arguments: kernel.signature().parse_arguments(signature)?,
            options: LanguageOptions::default(),
        },
        parameters: parameters.collect(),
        target: Target::Cpu,
        codegen: CodegenOptions::default(),
    };
    println!("compiling {name}, median of 101:");
    println!("  {:<22} {:>8.1} us", "read the module", micros(read));
    let mut until = |stage: Option<Stage>| {
        median(|| {
            let (start, mut end) = (Instant::now(), None);
            let result = compile(&job, &mut host, &mut |reached, _| {
                if Some(reached) == stage {
                    end = Some(start.elapsed());
                }
            });
            let total = start.elapsed();
            black_box(result.is_ok());
            end.unwrap_or(total)
        })
    };
    let mut last = Duration::ZERO;
    for (name, stage) in [
        ("to IR", Some(Stage::Ir)),
        ("optimize", Some(Stage::Opt)),
        ("CPU program", Some(Stage::Cpu)),
        ("total", None),
    ] {
        let time = until(stage);
        let part = if stage.is_some() { time.saturating_sub(last) } else { time };
        println!("  {name:<22} {:>8.1} us", micros(part));
        last = time;
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

const TINY: &str = "
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
";

fn launches() -> Result<(), Error> {
    const RUNS: u32 = 10_000;
    let module = Module::from_source("tiny.py", TINY)?;
    let kernel = module.kernel("add")?;
    let (x, y, mut out) = (vec![1.0_f32; 128], vec![2.0_f32; 128], vec![0.0_f32; 128]);
    let options = Options::default();
    let values: Vec<Value<'_>> = args![&x, &y, &mut out, 100, 128].positional;
    let handle = kernel.handle(&values, &options)?;
    let time = |each: &mut dyn FnMut() -> Result<(), Error>| -> f64 {
        let runs = median(|| {
            let start = Instant::now();
            for _ in 0..RUNS / 100 {
                black_box(each().is_ok());
            }
            start.elapsed()
        });
        runs.as_secs_f64() * 1e9 / f64::from(RUNS / 100)
    };
    println!("a warm launch with 5 arguments:");
    let lookup = time(&mut || kernel.handle(black_box(&values), &options).map(|_| ()));
    println!("  {:<22} {lookup:>8.1} ns", "look up");
    for (name, grid) in [("launch, no program", [0, 1, 1]), ("launch, 1 program", [1, 1, 1])] {
        let launch = time(&mut || handle.launch(Grid::from(grid), black_box(&values), Interrupt::Never));
        println!("  {name:<22} {launch:>8.1} ns");
    }
    Ok(())
}
