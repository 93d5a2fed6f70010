//! Launches a kernel on the CPU and on a simulated GPU, without Python.
//!
//! ```text
//! cargo run -p tilewright --example embed
//! ```

use tilewright::{Device, Error, Module, Options, Stage, args};

const KERNELS: &str = r#"
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * columns + at, e / tl.sum(e, 0), mask=at < columns)
"#;

fn main() -> Result<(), Error> {
    run()
}

/// Runs the example.
pub fn run() -> Result<(), Error> {
    let softmax = Module::from_source("kernels.py", KERNELS)?.kernel("softmax")?;
    let (rows, columns) = (5, 50);
    let x: Vec<f32> = (0..rows * columns).map(|i| (i * 37 % 101) as f32 / 10.0).collect();

    for device in [Device::Cpu, Device::Sim(90)] {
        let mut out = vec![0.0_f32; x.len()];
        // The first launch caches the code for these arguments. The second launch only runs the
        // code.
        let kernel = softmax.on(device);
        for _ in 0..2 {
            kernel.launch(rows, args![&x, &mut out, columns, BLOCK = 64, num_warps = 2])?;
        }
        assert!(largest_difference(&x, &out, columns) < 1e-6);
        println!("{device}: the rows add up to {:?}", out.chunks(columns).map(sum).collect::<Vec<_>>());
    }

    // An error is a value. Its message names the line, the program and the argument.
    let mut short = vec![0.0_f32; 10];
    let error =
        softmax.launch(rows, args![&x, &mut short, columns, BLOCK = 64]).expect_err("it is too short");
    println!("\n{error}\n");

    // The stages are text. Compilation for a GPU needs no GPU.
    let handle = softmax.on(Device::Sim(90)).compile("*fp32,*fp32,i32,BLOCK=64", &Options::default())?;
    let ptx = handle.compiled.asm(Stage::Ptx).expect("it was compiled for a GPU");
    println!("the PTX for sm_90 has {} lines", ptx.lines().count());
    Ok(())
}

fn sum(row: &[f32]) -> f32 {
    (row.iter().sum::<f32>() * 1e4).round() / 1e4
}

fn largest_difference(x: &[f32], out: &[f32], columns: usize) -> f64 {
    let mut largest = 0.0_f64;
    for (x, out) in x.chunks(columns).zip(out.chunks(columns)) {
        let highest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = x.iter().map(|&x| f64::from(x - highest).exp()).collect();
        let total: f64 = powers.iter().sum();
        for (power, &out) in powers.iter().zip(out) {
            largest = largest.max((power / total - f64::from(out)).abs());
        }
    }
    largest
}
