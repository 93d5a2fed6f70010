//! Serves a layer of a transformer without Python.
//!
//! The layer is RMS norm, QKV projection, rotary embedding, attention with a paged cache, and a
//! gated MLP. The build compiles the kernels of three Python files into this binary.
//!
//! ```text
//! cargo run --release -p tilewright --features include-kernels --example transformer -- --device cuda
//! ```
//! `--output` writes the output of the last token of each sequence as fp32, for a comparison with
//! other implementations. Other implementations can reproduce the inputs, because [`numbers`]
//! computes all inputs.

use std::time::Instant;

use tilewright::{Buffer, Device, Error, KernelLaunch, Stream, f16};

tilewright::include_kernels! {
    mod kernels;
    targets = ["cpu", "sm_80", "sm_90"];

    from "kernels/norm.py" {
        rms_norm("*kfp32:16, *kfp16:16, *fp16:16, i32:16, fp32, BLOCK=256");
    }
    from "kernels/linear.py" {
        linear("*kfp16:16, *kfp16:16, None, *fp16:16, i32, i32:16, i32:16, M=16, N=64, K=64");
        linear as linear_residual(
            "*kfp16:16, *kfp16:16, *kfp32:16, *fp32:16, i32, i32:16, i32:16, M=16, N=64, K=64"
        );
        gated_linear("*kfp16:16, *kfp16:16, *kfp16:16, *fp16:16, i32, i32:16, i32:16, M=16, N=64, K=64");
    }
    from "kernels/attention.py" {
        rotary(
            "*fp16:16, *ki32:16, *ki32:16, *fp16:16, *fp16:16, i32, fp32, HEADS=4, KV_HEADS=2, HEAD=64, PAGE=16"
        );
        paged_attention(
            "*kfp16:16, *ki32:16, *ki32:16, *kfp16:16, *kfp16:16, *fp16:16, i32, fp32, \
             HEADS=4, KV_HEADS=2, HEAD=64, PAGE=16",
            num_warps = 1
        );
    }
}

const SEQUENCES: usize = 4;
const STEPS: usize = 40;
const PAGES: usize = STEPS.div_ceil(PAGE);

// The signatures of the kernels also contain these numbers.
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 64;
const PAGE: usize = 16;

const HIDDEN: usize = HEADS * HEAD;
const QKV: usize = (HEADS + 2 * KV_HEADS) * HEAD;
const INNER: usize = 512;
const EPSILON: f32 = 1e-5;
const LOG2_THETA: f32 = 13.287_712;

/// The weights of a layer. Matrices are row-major and have a column for each output.
struct Weights {
    attention_norm: Buffer<f16>,
    qkv: Buffer<f16>,
    output: Buffer<f16>,
    mlp_norm: Buffer<f16>,
    gate: Buffer<f16>,
    up: Buffer<f16>,
    down: Buffer<f16>,
}

/// The keys and values of all earlier tokens, in pages.
struct Cache {
    keys: Buffer<f16>,
    values: Buffer<f16>,
    /// The pages of each sequence, in order.
    page_table: Buffer<i32>,
    /// The position of the current token of each sequence.
    positions: Buffer<i32>,
}

/// The tensors that the kernels write, except the cache.
struct Activations {
    normalized: Buffer<f16>,
    qkv: Buffer<f16>,
    attention: Buffer<f16>,
    residual: Buffer<f32>,
    inner: Buffer<f16>,
    out: Buffer<f32>,
}

/// Launches the kernels of the layer for one token of each sequence.
fn layer(
    stream: &Stream,
    weights: &Weights,
    cache: &mut Cache,
    x: &Buffer<f32>,
    between: &mut Activations,
) -> Result<(), Error> {
    let Activations { normalized, qkv, attention, residual, inner, out } = between;
    let (rows, hidden) = (SEQUENCES as i32, HIDDEN as i32);
    let pages = PAGES as i32;
    let scale = 1.0 / (HEAD as f32).sqrt();
    let run = |launch: KernelLaunch<'_>, grid: (usize, usize)| launch.run_on(stream, grid);
    let blocks = |columns: usize| (SEQUENCES.div_ceil(16), columns.div_ceil(64));

    let norm = &weights.attention_norm;
    run(kernels::rms_norm(x, norm, &mut *normalized, hidden, EPSILON), (SEQUENCES, 1))?;
    let projection = kernels::linear(&*normalized, &weights.qkv, &mut *qkv, rows, QKV as i32, hidden);
    run(projection, blocks(QKV))?;
    let rotary = kernels::rotary(
        &mut *qkv,
        &cache.positions,
        &cache.page_table,
        &mut cache.keys,
        &mut cache.values,
        pages,
        LOG2_THETA,
    );
    run(rotary, (SEQUENCES, HEADS + 2 * KV_HEADS))?;
    let attend = kernels::paged_attention(
        &*qkv,
        &cache.positions,
        &cache.page_table,
        &cache.keys,
        &cache.values,
        &mut *attention,
        pages,
        scale,
    );
    run(attend, (SEQUENCES, HEADS))?;
    let output =
        kernels::linear_residual(&*attention, &weights.output, x, &mut *residual, rows, hidden, hidden);
    run(output, blocks(HIDDEN))?;

    let norm = &weights.mlp_norm;
    run(kernels::rms_norm(&*residual, norm, &mut *normalized, hidden, EPSILON), (SEQUENCES, 1))?;
    let (gate, up) = (&weights.gate, &weights.up);
    let gated = kernels::gated_linear(&*normalized, gate, up, &mut *inner, rows, INNER as i32, hidden);
    run(gated, blocks(INNER))?;
    let down = kernels::linear_residual(&*inner, &weights.down, &*residual, out, rows, hidden, INNER as i32);
    run(down, blocks(HIDDEN))
}

/// Returns reproducible numbers `(k / 1009 - 0.5) * scale`, with integers `k` from 0 to 1008.
fn numbers(count: usize, seed: usize, scale: f32) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    (0..count).map(|i| number(i) * scale).collect()
}

fn halves(device: Device, count: usize, seed: usize, scale: f32) -> Result<Buffer<f16>, Error> {
    let numbers: Vec<f16> = numbers(count, seed, scale).into_iter().map(f16::from_f32).collect();
    Buffer::from_slice(device, &numbers)
}

fn main() -> Result<(), Error> {
    let mut device = Device::Cpu;
    let mut output = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match (name.as_str(), arguments.next()) {
            ("--device", Some(value)) => device = Device::parse(&value)?,
            ("--output", Some(value)) => output = Some(value),
            _ => {
                eprintln!("usage: transformer [--device <device>] [--output <file>]");
                std::process::exit(2);
            }
        }
    }
    let weights = Weights {
        attention_norm: halves(device, HIDDEN, 1, 2.0)?,
        qkv: halves(device, HIDDEN * QKV, 2, 0.2)?,
        output: halves(device, HIDDEN * HIDDEN, 3, 0.2)?,
        mlp_norm: halves(device, HIDDEN, 4, 2.0)?,
        gate: halves(device, HIDDEN * INNER, 5, 0.2)?,
        up: halves(device, HIDDEN * INNER, 6, 0.2)?,
        down: halves(device, INNER * HIDDEN, 7, 0.2)?,
    };
    let entries = SEQUENCES * PAGES * PAGE * KV_HEADS * HEAD;
    // The pages of the sequences alternate, as they do when sequences grow at the same time.
    let page = |i: usize| (i % PAGES * SEQUENCES + i / PAGES) as i32;
    let page_table: Vec<i32> = (0..SEQUENCES * PAGES).map(page).collect();
    let mut cache = Cache {
        keys: Buffer::zeros(device, entries)?,
        values: Buffer::zeros(device, entries)?,
        page_table: Buffer::from_slice(device, &page_table)?,
        positions: Buffer::zeros(device, SEQUENCES)?,
    };
    let mut between = Activations {
        normalized: Buffer::zeros(device, SEQUENCES * HIDDEN)?,
        qkv: Buffer::zeros(device, SEQUENCES * QKV)?,
        attention: Buffer::zeros(device, SEQUENCES * HIDDEN)?,
        residual: Buffer::zeros(device, SEQUENCES * HIDDEN)?,
        inner: Buffer::zeros(device, SEQUENCES * INNER)?,
        out: Buffer::zeros(device, SEQUENCES * HIDDEN)?,
    };
    let stream = Stream::new(device)?;
    let mut x = Buffer::zeros(device, SEQUENCES * HIDDEN)?;
    let start = Instant::now();
    for step in 0..STEPS {
        cache.positions.copy_from_slice(&[step as i32; SEQUENCES])?;
        x.copy_from_slice(&numbers(SEQUENCES * HIDDEN, 100 + step, 4.0))?;
        layer(&stream, &weights, &mut cache, &x, &mut between)?;
    }
    stream.synchronize()?;
    let out = between.out.to_vec()?;
    let time = start.elapsed() / STEPS as u32;
    println!("{device}: {STEPS} tokens of {SEQUENCES} sequences, {time:?} for each step");
    if let Some(path) = output {
        let bytes: Vec<u8> = out.iter().flat_map(|number| number.to_le_bytes()).collect();
        if let Err(error) = std::fs::write(&path, bytes) {
            eprintln!("cannot write {path}: {error}");
            std::process::exit(1);
        }
    }
    Ok(())
}
