//! Times the executor on the kernels of `tests/kernels`.
//!
//! Run it with `cargo run --release -p tilewright-cpu --example measure`.
//!
//! `measure [threads] [name]` prints the median time of many launches of each kernel.

use std::time::Instant;

use tilewright_cpu::memory::Region;
use tilewright_cpu::{Argument, Interrupt, Launch, Program};
use tilewright_ir::parse;

#[derive(Clone, Copy)]
enum Tensor {
    Floats(usize),
    Halves(usize),
    Brains(usize),
    /// Zeros in memory that is allocated anew for each launch, as the memory of outputs often is.
    Fresh(usize),
}

struct Case {
    name: &'static str,
    text: &'static str,
    grid: [u32; 3],
    tensors: Vec<Tensor>,
    scalars: Vec<u64>,
    /// The number of floating-point operations or bytes of one launch.
    work: f64,
}

impl Tensor {
    fn bytes(self) -> Vec<u8> {
        let number = |i: usize| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5;
        match self {
            Tensor::Floats(count) => {
                let mut bytes = vec![0; count * 4];
                for (i, bytes) in bytes.chunks_exact_mut(4).enumerate() {
                    bytes.copy_from_slice(&number(i).to_le_bytes());
                }
                bytes
            }
            Tensor::Halves(count) => {
                (0..count).flat_map(|i| half::f16::from_f32(number(i)).to_le_bytes()).collect()
            }
            Tensor::Brains(count) => {
                (0..count).flat_map(|i| half::bf16::from_f32(number(i)).to_le_bytes()).collect()
            }
            Tensor::Fresh(count) => vec![0; count * 4],
        }
    }
}

/// Returns memory for a tensor, and the offset of its first byte, which is aligned to 64 bytes.
fn aligned(tensor: Tensor) -> (Vec<u8>, usize) {
    let mut bytes = vec![0; 64];
    bytes.extend(tensor.bytes());
    bytes.shrink_to_fit();
    let start = bytes.as_ptr().align_offset(64);
    bytes.copy_within(64.., start);
    (bytes, start)
}

fn case(
    name: &'static str,
    text: &'static str,
    grid: [u32; 3],
    tensors: Vec<Tensor>,
    scalars: &[u64],
    work: f64,
) -> Case {
    Case { name, text, grid, tensors, scalars: scalars.to_vec(), work }
}

fn cases() -> Vec<Case> {
    use Tensor::{Brains, Floats, Fresh, Halves};
    let add = include_str!("../tests/kernels/add.ir");
    let big = 1 << 24;
    let square = 512 * 512;
    let matmul_32 = include_str!("../tests/kernels/matmul_fp32.ir");
    let matmul_16 = include_str!("../tests/kernels/matmul_fp16.ir");
    let heads = 2 * 512 * 64;
    vec![
        case("add tiny", add, [1, 1, 1], vec![Floats(98), Floats(98), Floats(98)], &[98], 98.0),
        case("add one", add, [1, 1, 1], vec![Floats(1024); 3], &[1024], 12.0 * 1024.0),
        case("add 2^17", add, [128, 1, 1], vec![Floats(1 << 17); 3], &[1 << 17], 12.0 * f64::from(1 << 17)),
        case(
            "add 2^24",
            add,
            [big / 1024, 1, 1],
            vec![Floats(big as usize); 3],
            &[big.into()],
            12.0 * f64::from(big),
        ),
        case(
            "add 2^24 fresh",
            add,
            [big / 1024, 1, 1],
            vec![Floats(big as usize), Floats(big as usize), Fresh(big as usize)],
            &[big.into()],
            12.0 * f64::from(big),
        ),
        case(
            "softmax 1823x781",
            include_str!("../tests/kernels/softmax.ir"),
            [1823, 1, 1],
            vec![Floats(1823 * 781); 2],
            &[781, 781, 781],
            8.0 * 1823.0 * 781.0,
        ),
        case(
            "layer norm 1024x1024",
            include_str!("../tests/kernels/layer_norm.ir"),
            [1024, 1, 1],
            vec![Floats(1 << 20), Floats(1 << 20), Floats(1024), Floats(1024), Floats(1024), Floats(1024)],
            &[1024, 1024, 1e-5_f32.to_bits().into()],
            8.0 * f64::from(1 << 20),
        ),
        case(
            "row norm 1024x1024",
            include_str!("../tests/kernels/layer_norm_row.ir"),
            [1024, 1, 1],
            vec![Floats(1 << 20), Floats(1024), Floats(1024), Floats(1 << 20)],
            &[1024, 1024, 1e-5_f32.to_bits().into()],
            8.0 * f64::from(1 << 20),
        ),
        case(
            "matmul 512 fp32",
            matmul_32,
            [8, 8, 1],
            vec![Floats(square); 3],
            &[512, 512, 512],
            2.0 * 512.0_f64.powi(3),
        ),
        case(
            "matmul 512 fp16",
            matmul_16,
            [8, 8, 1],
            vec![Halves(square), Halves(square), Floats(square)],
            &[512, 512, 512],
            2.0 * 512.0_f64.powi(3),
        ),
        masked("matmul 512 masked fp32", Floats, 512),
        masked("matmul 1024 masked fp32", Floats, 1024),
        masked("matmul 512 masked bf16", Brains, 512),
        masked("matmul 1024 masked bf16", Brains, 1024),
        case(
            "attention 1x2x512x64",
            include_str!("../tests/kernels/attention.ir"),
            [8, 2, 1],
            vec![Floats(heads); 4],
            &[512, 0.18_f32.to_bits().into()],
            4.0 * 2.0 * 512.0 * 512.0 * 64.0,
        ),
    ]
}

fn masked(name: &'static str, tensor: fn(usize) -> Tensor, size: u32) -> Case {
    let text = match tensor(0) {
        Tensor::Brains(_) => include_str!("../tests/kernels/matmul_masked_bf16.ir"),
        _ => include_str!("../tests/kernels/matmul_masked_fp32.ir"),
    };
    let square = size as usize * size as usize;
    let tensors = vec![tensor(square), tensor(square), Tensor::Floats(square)];
    case(name, text, [size / 64, size / 64, 1], tensors, &[u64::from(size); 6], 2.0 * f64::from(size).powi(3))
}

/// Returns the processor time of this thread in nanoseconds, if the system reports it.
fn cpu_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let only = args.next().unwrap_or_default();
    for case in cases().into_iter().filter(|case| case.name.contains(&only)) {
        let module = parse(case.text).expect("the kernel is well-formed");
        let start = Instant::now();
        let program = Program::new(&module).expect("it can be lowered");
        let lowering = start.elapsed();
        let mut arguments = Vec::new();
        let mut tensors: Vec<(Vec<u8>, usize)> = case.tensors.iter().map(|tensor| aligned(*tensor)).collect();
        for (tensor, start) in &mut tensors {
            let region = Region::of(&mut tensor[*start..]);
            arguments.push(Argument::Pointer { address: region.address(), region });
        }
        arguments.extend(case.scalars.iter().map(|&bits| Argument::Scalar(bits)));
        let once = || {
            let mut arguments = arguments.clone();
            let start = Instant::now();
            let mut fresh: Vec<(usize, Vec<u8>)> = Vec::new();
            for (index, tensor) in case.tensors.iter().enumerate() {
                if let Tensor::Fresh(count) = tensor {
                    fresh.push((index, vec![0; count * 4 + 64]));
                }
            }
            for (index, bytes) in &mut fresh {
                let start = bytes.as_ptr().align_offset(64);
                let region = Region::of(&mut bytes[start..]);
                arguments[*index] = Argument::Pointer { address: region.address(), region };
            }
            let launch = Launch {
                grid: case.grid,
                arguments: &arguments,
                foreign: &[],
                threads,
                interrupt: Interrupt::Never,
                padded: None,
                machine_code: true,
            };
            program.launch(&launch).expect("the kernel runs");
            start.elapsed().as_nanos() as f64
        };
        let first = (0..5).map(|_| once()).fold(f64::INFINITY, f64::min);
        let runs = (5e8 / first).clamp(7.0, 500_000.0) as usize;
        let begin = cpu_time();
        let mut times: Vec<f64> = (0..runs).map(|_| once()).collect();
        let cpu = (cpu_time() - begin) / runs as f64;
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{:22} lower {:7.1} us   median {:11.2} us   best {:11.2} us   cpu {:11.2} us   {:8.2} G/s",
            case.name,
            lowering.as_nanos() as f64 / 1e3,
            median / 1e3,
            times[0] / 1e3,
            cpu / 1e3,
            case.work / median
        );
    }
}
