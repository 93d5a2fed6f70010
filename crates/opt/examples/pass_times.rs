//! Measures the pipeline and the analysis on a matmul.
//!
//! Run it with `cargo run --release -p tilewright-opt --example pass_times`.

use std::time::{Duration, Instant};

use tilewright_ir::{Function, Module, parse};
use tilewright_opt::{Level, Options, PASSES, analysis, optimize};

const RUNS: usize = 1_000;

fn main() {
    let text = include_str!("../../../tests/ir/matmul.ir");
    let (input, _) = text.split_once("// ----").expect("the file has a case");
    let module = parse(input).expect("the case is well-formed");
    let optimized = after(&module, Level::Full);
    let inlined = after(&module, Level::Inline);
    println!("{} instructions, {} after", count(inlined.kernel()), count(optimized.kernel()));
    report("optimize", &module, |module| optimize(module, &Options::default(), &mut |_, _| {}));
    report("only inline", &module, |module| {
        optimize(module, &Options { level: Level::Inline, ..Options::default() }, &mut |_, _| {});
    });
    for pass in PASSES {
        let run = |module: &mut Module| {
            let Ok(_) = pass.run(kernel(module));
        };
        report(&format!("{} first", pass.name), &inlined, run);
        report(&format!("{} last", pass.name), &optimized, run);
    }
    report("analyze", &optimized, |module| drop(analysis::analyze(module.kernel())));
}

fn kernel(module: &mut Module) -> &mut Function {
    &mut module.functions[module.entry]
}

fn after(module: &Module, level: Level) -> Module {
    let mut module = module.clone();
    optimize(&mut module, &Options { level, ..Options::default() }, &mut |_, _| {});
    module
}

fn count(function: &Function) -> usize {
    let mut count = 0;
    function.walk(function.entry, &mut |_| count += 1);
    count
}

fn report(what: &str, module: &Module, mut run: impl FnMut(&mut Module)) {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let mut module = module.clone();
            let start = Instant::now();
            run(&mut module);
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("{what:20} {:8.1} µs (median of {RUNS})", times[RUNS / 2].as_secs_f64() * 1e6);
}
