//! Measures the compile time of kernels: the fastest of 50 runs for each file.
//!
//! ```text
//! cargo run --release -p tilewright-gpu --example compile_time -- sm_90 4 kernel.ir…
//! ```
//! With `TILEWRIGHT_DUMP=gpu`, also prints each compiled program.

use std::time::Instant;

use tilewright_gpu::compile;
use tilewright_gpu_ir::GpuTarget;

const TIMES: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, num_warps, files @ ..] = &arguments[..] else {
        return Err("compile_time TARGET WARPS FILES".into());
    };
    let (target, num_warps) = (GpuTarget::named(target)?, num_warps.parse()?);
    for file in files {
        let module = tilewright_ir::parse(&std::fs::read_to_string(file)?)?;
        let mut best = f64::INFINITY;
        for _ in 0..TIMES {
            let start = Instant::now();
            let result = compile(&module, target, num_warps, 3);
            best = best.min(start.elapsed().as_secs_f64());
            result.map_err(|diagnostic| diagnostic.render(&module.sources, tilewright_base::Color::Never))?;
        }
        println!("{file}: {:.3} ms", best * 1e3);
        if std::env::var("TILEWRIGHT_DUMP").is_ok_and(|stage| stage == "gpu")
            && let Ok(program) = compile(&module, target, num_warps, 3)
        {
            print!("{}", tilewright_ir::print(&program, false));
        }
    }
    Ok(())
}
