//! Runs kernels of the official Triton, NVRTC and tilewright, with and without planted mistakes.
//!
//! The sources are `corpus/kernels.py` and `corpus/cuda.py`. Matmuls have small integers, so sums
//! are exact in every format. Attention has a tolerance.

mod support;

use half::{bf16, f16};
use support::{Argument, Shape};
use tilewright_sim::{FaultKind, OutOfBoundsFill, Report, Swizzle, TensorDataType, TensorMap};

const FP16: &str = include_str!("corpus/sm80_fp16.ptx");
const TF32: &str = include_str!("corpus/sm80_tf32.ptx");
const INT8: &str = include_str!("corpus/sm80_int8.ptx");
const WGMMA_BF16: &str = include_str!("corpus/sm90_bf16.ptx");
const WGMMA_FP8: &str = include_str!("corpus/sm90_fp8.ptx");
const TMA: &str = include_str!("corpus/sm90_tma.ptx");
const TMA_TRANSPOSED: &str = include_str!("corpus/sm90_tma_transposed.ptx");
const CUDA_PIPELINE: &str = include_str!("corpus/cuda_pipeline.ptx");
const CUDA_WGMMA: &str = include_str!("corpus/cuda_wgmma.ptx");
const SPECIALIZED: &str = include_str!("corpus/sm90_specialized.ptx");
const COPIES_BY_WARPS: &str = include_str!("corpus/sm90_copies_by_warps.ptx");
const TMA_MADE: &str = include_str!("corpus/sm90_tma_made.ptx");
const ATTENTION: &str = include_str!("corpus/sm90_attention.ptx");

/// Launches a kernel with the threads and the shared memory that its text states.
fn launch(ptx: &str, grid: [u32; 3], arguments: Vec<Argument<'_>>) -> Result<Report, FaultKind> {
    let number = |after: &str| -> u32 {
        let (_, rest) = ptx.split_once(after).expect("the text has the number");
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let shape = Shape { grid, threads: number(".reqntid"), cluster: 1, shared_bytes: number("// ") };
    support::launch(ptx, &shape, arguments)
}

/// Rows of A, columns of B, and the reduced dimension.
#[derive(Clone, Copy)]
struct Size {
    m: usize,
    n: usize,
    k: usize,
}

impl Size {
    fn grid(self, block_m: usize, block_n: usize) -> [u32; 3] {
        [self.m.div_ceil(block_m) as u32, self.n.div_ceil(block_n) as u32, 1]
    }
}

/// Returns a row-major matrix of small integers.
fn matrix(rows: usize, columns: usize, seed: usize) -> Vec<i32> {
    (0..rows * columns).map(|index| ((((index + seed) * 2_654_435_761) >> 8) % 7) as i32 - 3).collect()
}

fn encoded<const N: usize>(values: &[i32], encode: impl Fn(i32) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| encode(value)).collect()
}

/// Returns the product of `matrix(m, k, 1)` and `matrix(k, n, 2)`.
fn product(Size { m, n, k }: Size) -> Vec<i32> {
    let (left, right) = (matrix(m, k, 1), matrix(k, n, 2));
    let element = |index: usize| (0..k).map(|at| left[index / n * k + at] * right[at * n + index % n]).sum();
    (0..m * n).map(element).collect()
}

/// Returns the transpose of `matrix(k, n, 2)`.
fn transposed(Size { n, k, .. }: Size) -> Vec<i32> {
    let right = matrix(k, n, 2);
    (0..n * k).map(|index| right[index % k * n + index / k]).collect()
}

/// Multiplies with a kernel that takes pointers, sizes and strides. The result is i32 or f32.
fn multiply<const N: usize>(
    ptx: &str,
    size: Size,
    block: (usize, usize),
    is_integer: bool,
    encode: impl Fn(i32) -> [u8; N],
) -> Result<Vec<i32>, FaultKind> {
    let Size { m, n, k } = size;
    let (left, right) = (encoded(&matrix(m, k, 1), &encode), encoded(&matrix(k, n, 2), &encode));
    let mut output = vec![0xee; m * n * 4];
    let mut arguments = vec![Argument::Input(&left), Argument::Input(&right), Argument::Output(&mut output)];
    arguments.extend([m, n, k, k, n, n].map(|size| Argument::U32(size as u32)));
    launch(ptx, size.grid(block.0, block.1), arguments)?;
    let value = |word: &[u8]| {
        let bits = u32::from_le_bytes(*word.first_chunk().expect("a word has 4 bytes"));
        if is_integer { bits as i32 } else { f32::from_bits(bits) as i32 }
    };
    Ok(output.chunks(4).map(value).collect())
}

fn fp16(value: i32) -> [u8; 2] {
    f16::from_f32(value as f32).to_le_bytes()
}

fn brain(value: i32) -> [u8; 2] {
    bf16::from_f32(value as f32).to_le_bytes()
}

/// Encodes a small integer as e4m3.
fn e4m3(value: i32) -> [u8; 1] {
    let magnitude = [0, 0x38, 0x40, 0x44][value.unsigned_abs() as usize];
    [magnitude | u8::from(value < 0) << 7]
}

#[test]
fn pipelined_products_of_warps() {
    // Sizes that are not multiples of the block.
    let size = Size { m: 80, n: 48, k: 112 };
    assert!(multiply(FP16, size, (64, 64), false, fp16) == Ok(product(size)));
    let size = Size { m: 37, n: 45, k: 70 };
    assert!(multiply(TF32, size, (32, 32), false, |value| (value as f32).to_le_bytes()) == Ok(product(size)));
    let size = Size { m: 80, n: 48, k: 144 };
    assert!(multiply(INT8, size, (64, 32), true, |value| (value as i8).to_le_bytes()) == Ok(product(size)));
}

#[test]
fn pipelined_products_of_a_warpgroup() {
    let size = Size { m: 80, n: 48, k: 112 };
    assert!(multiply(WGMMA_BF16, size, (64, 64), false, brain) == Ok(product(size)));
    let size = Size { m: 80, n: 48, k: 144 };
    assert!(multiply(WGMMA_FP8, size, (64, 32), false, e4m3) == Ok(product(size)));
}

fn tensor_map(bytes: &[u8], rows: usize, columns: usize, (boxes, swizzle): BoxShape) -> [u8; 128] {
    let map = TensorMap {
        data_type: TensorDataType::F16,
        address: bytes.as_ptr() as u64,
        extents: vec![columns as u64, rows as u64],
        strides: vec![columns as u64 * 2],
        box_extents: vec![boxes[1], boxes[0]],
        element_strides: vec![1, 1],
        swizzle,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    };
    map.encode().expect("triton's boxes are possible")
}

/// Rows, columns and swizzle of a box.
type BoxShape = ([u32; 2], Swizzle);

/// Multiplies with a kernel that takes tensor maps.
fn multiply_by_maps(
    ptx: &str,
    size: Size,
    block: (usize, usize),
    is_transposed: bool,
    boxes: [BoxShape; 3],
) -> Result<Vec<i32>, FaultKind> {
    let Size { m, n, k } = size;
    let stored = if is_transposed { transposed(size) } else { matrix(k, n, 2) };
    let (left, right) = (encoded(&matrix(m, k, 1), fp16), encoded(&stored, fp16));
    let mut output = vec![0xee; m * n * 2];
    let shapes = [(m, k), if is_transposed { (n, k) } else { (k, n) }, (m, n)];
    let maps: Vec<_> = [&left, &right, &output]
        .iter()
        .zip(shapes.iter().zip(boxes))
        .map(|(bytes, (&(rows, columns), shape))| tensor_map(bytes, rows, columns, shape))
        .collect();
    let mut arguments = Vec::new();
    for (map, (rows, columns)) in maps.iter().zip(shapes) {
        arguments.push(Argument::Bytes(map));
        arguments.extend([rows, columns].map(|size| Argument::U32(size as u32)));
        arguments.extend([columns, 1].map(|stride| Argument::U64(stride as u64)));
    }
    arguments.push(Argument::U32(k as u32));
    arguments.extend([
        Argument::Memory(&left),
        Argument::Memory(&right),
        Argument::MemoryOutput(&mut output),
    ]);
    launch(ptx, size.grid(block.0, block.1), arguments)?;
    Ok(halves(&output))
}

fn halves(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f32() as i32).collect()
}

const WIDE: BoxShape = ([64, 64], Swizzle::Bytes128);

#[test]
fn products_through_tensor_maps() {
    let size = Size { m: 80, n: 136, k: 200 };
    assert!(multiply_by_maps(TMA, size, (64, 128), false, [WIDE; 3]) == Ok(product(size)));
    let boxes = [([128, 32], Swizzle::Bytes64), ([64, 32], Swizzle::Bytes64), ([128, 64], Swizzle::Bytes128)];
    let size = Size { m: 136, n: 72, k: 104 };
    assert!(multiply_by_maps(TMA_TRANSPOSED, size, (128, 64), true, boxes) == Ok(product(size)));
}

fn multiply_by_made_maps(ptx: &str) -> Result<(), FaultKind> {
    let size = Size { m: 80, n: 48, k: 144 };
    let (left, right) = (encoded(&matrix(size.m, size.k, 1), fp16), encoded(&transposed(size), fp16));
    let mut output = vec![0xee; size.m * size.n * 2];
    let grid = size.grid(64, 32);
    // Each block makes three maps in scratch memory.
    let mut scratch = vec![0_u8; 3 * 128 * (grid[0] * grid[1]) as usize + 128];
    let start = scratch.as_ptr().align_offset(128);
    let mut arguments = vec![Argument::Input(&left), Argument::Input(&right), Argument::Output(&mut output)];
    arguments.extend([size.m, size.n, size.k].map(|size| Argument::U32(size as u32)));
    arguments.push(Argument::Output(&mut scratch[start..]));
    launch(ptx, grid, arguments)?;
    assert!(halves(&output) == product(size));
    Ok(())
}

#[test]
fn products_through_tensor_maps_that_the_kernel_makes() {
    multiply_by_made_maps(TMA_MADE).expect("the kernel is right");
    // Mistakes: all acquires are missing, or that of one map.
    let acquire = "fence.proxy.tensormap::generic.acquire";
    for part in [acquire.to_owned(), format!("{acquire}.gpu [ %rd16")] {
        let found = multiply_by_made_maps(&planted(TMA_MADE, &part, "")).expect_err("a mistake is planted");
        let FaultKind::Illegal(text) = found else { panic!("{found:?}") };
        assert!(text.contains("fence.proxy.tensormap::generic.acquire is missing"), "{text}");
    }
}

#[test]
fn products_of_specialized_warps() {
    let size = Size { m: 72, n: 72, k: 264 };
    assert!(multiply_by_maps(SPECIALIZED, size, (64, 64), false, [WIDE; 3]) == Ok(product(size)));
    // Without arrivals, the producer waits forever.
    let text = planted(SPECIALIZED, "mbarrier.arrive.shared", "");
    let fault = multiply_by_maps(&text, size, (64, 64), false, [WIDE; 3]).expect_err("a mistake is planted");
    assert!(matches!(fault, FaultKind::Deadlock { .. }));
}

/// Some warps copy by `cp.async` and arrive. Others fence the data and multiply.
#[test]
fn wgmma_on_copies_by_other_warps() {
    let size = Size { m: 80, n: 48, k: 160 };
    let run = |ptx: &str| multiply(ptx, size, (64, 64), false, fp16);
    assert!(run(COPIES_BY_WARPS) == Ok(product(size)));
    let fault = |part: &str, replacement: &str| {
        run(&planted(COPIES_BY_WARPS, part, replacement)).expect_err("a mistake is planted")
    };
    assert!(matches!(fault("fence.proxy.async", ""), FaultKind::MissingProxyFence { .. }));
    assert!(matches!(fault("cp.async.mbarrier.arrive", ""), FaultKind::Deadlock { .. }));
    assert!(matches!(fault("mbarrier.arrive.shared", ""), FaultKind::Deadlock { .. }));
    // The barrier expects too many threads, then too few.
    let counted = |count: &str| run(&COPIES_BY_WARPS.replace("], 128;", &format!("], {count};")));
    assert!(matches!(counted("160"), Err(FaultKind::Deadlock { .. })));
    assert!(matches!(
        counted("96"),
        Err(FaultKind::Race { .. } | FaultKind::Unwritten { .. } | FaultKind::Illegal(_))
    ));
    // The arrival does not wait for the copies.
    let early = COPIES_BY_WARPS
        .replace("cp.async.mbarrier.arrive.noinc.shared::cta.b64 ", "mbarrier.arrive.shared::cta.b64 _, ");
    let early = run(&early).expect_err("a mistake is planted");
    assert!(matches!(early, FaultKind::Race { .. } | FaultKind::Unwritten { .. }));
}

/// Replaces each line with `part`. Fails if there is none.
fn planted(ptx: &str, part: &str, replacement: &str) -> String {
    assert!(ptx.contains(part), "{part}");
    let line = |line: &str| if line.contains(part) { replacement.to_owned() } else { line.to_owned() };
    ptx.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn missing_waits_and_fences_are_found() {
    let size = Size { m: 64, n: 64, k: 128 };
    let warps = |ptx: &str| multiply(ptx, size, (64, 64), false, fp16).expect_err("a mistake is planted");
    let group = |ptx: &str| multiply(ptx, size, (64, 64), false, brain).expect_err("a mistake is planted");
    let maps = |ptx: &str| {
        multiply_by_maps(ptx, size, (64, 128), false, [WIDE; 3]).expect_err("a mistake is planted")
    };
    assert!(matches!(warps(&planted(FP16, "cp.async.wait_group", "")), FaultKind::Race { .. }));
    assert!(matches!(warps(&planted(FP16, "cp.async.commit_group", "")), FaultKind::Race { .. }));
    assert!(matches!(
        warps(&planted(FP16, "bar.sync", "")),
        FaultKind::Race { .. } | FaultKind::Unwritten { .. }
    ));
    assert!(matches!(group(&planted(WGMMA_BF16, "cp.async.wait_group", "")), FaultKind::Race { .. }));
    assert!(matches!(
        group(&planted(WGMMA_BF16, "fence.proxy.async", "")),
        FaultKind::MissingProxyFence { .. }
    ));
    assert!(matches!(
        group(&planted(WGMMA_BF16, "wgmma.wait_group", "")),
        FaultKind::Race { .. } | FaultKind::Illegal(_)
    ));
    assert!(matches!(group(&planted(WGMMA_BF16, "wgmma.fence", "")), FaultKind::Illegal(_)));
    let unchecked = planted(TMA, "@!complete bra.uni waitLoop", "");
    assert!(matches!(maps(&unchecked), FaultKind::Race { .. } | FaultKind::Unwritten { .. }));
    assert!(matches!(maps(&planted(TMA, "fence.proxy.async", "")), FaultKind::MissingProxyFence { .. }));
    assert!(matches!(maps(&planted(TMA, "mbarrier.arrive.expect_tx", "")), FaultKind::Deadlock { .. }));
}

#[test]
fn kernels_of_cuda() {
    let shape = |shared_bytes| Shape { grid: [1; 3], threads: 128, cluster: 1, shared_bytes };
    let blocks = 5;
    let values = matrix(blocks * 128, 4, 1);
    let input = encoded(&values, |value| (value as f32).to_le_bytes());
    let mut output = vec![0xee; 128 * 16];
    let arguments =
        vec![Argument::Input(&input), Argument::Output(&mut output), Argument::U32(blocks as u32)];
    support::launch(CUDA_PIPELINE, &shape(0), arguments).expect("the kernel is right");
    for (index, word) in output.as_chunks().0.iter().enumerate() {
        let (thread, element) = (index / 4, index % 4);
        let sum: i32 = (0..blocks).map(|block| values[(block * 128 + (thread ^ 5)) * 4 + element]).sum();
        assert_eq!(f32::from_le_bytes(*word), sum as f32);
    }
    let steps = 3;
    let size = Size { m: 64, n: 64, k: 64 * steps };
    let (left, right) = (encoded(&matrix(64, size.k, 1), fp16), encoded(&transposed(size), fp16));
    let mut output = vec![0xee; 64 * 64 * 4];
    let mut arguments = vec![Argument::Input(&left), Argument::Input(&right), Argument::Output(&mut output)];
    arguments.push(Argument::U32(steps as u32));
    support::launch(CUDA_WGMMA, &shape(32768), arguments).expect("the kernel is right");
    let found: Vec<i32> = output.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word) as i32).collect();
    assert!(found == product(size));
}

#[test]
fn attention_with_a_fragment_as_left_operand() {
    let (length, depth) = (128, 64);
    let values = |seed: usize| -> Vec<f64> {
        matrix(length, depth, seed).into_iter().map(|value| f64::from(value) / 4.0).collect()
    };
    let (q, k, v) = (values(1), values(2), values(3));
    let half = |values: &[f64]| -> Vec<u8> {
        values.iter().flat_map(|&value| f16::from_f64(value).to_le_bytes()).collect()
    };
    let scale = 0.125_f64;
    let inputs = [half(&q), half(&k), half(&v)];
    let mut output = vec![0; length * depth * 2];
    let arguments = vec![
        Argument::Input(&inputs[0]),
        Argument::Input(&inputs[1]),
        Argument::Input(&inputs[2]),
        Argument::Output(&mut output),
        Argument::U32(length as u32),
        Argument::U32((scale as f32).to_bits()),
    ];
    launch(ATTENTION, [length as u32 / 64, 1, 1], arguments).unwrap();
    for row in 0..length {
        let score = |column: usize| -> f64 {
            (0..depth).map(|at| q[row * depth + at] * k[column * depth + at]).sum::<f64>() * scale
        };
        let weights: Vec<f64> = (0..length).map(|column| score(column).exp()).collect();
        let total: f64 = weights.iter().sum();
        for at in 0..depth {
            let sum: f64 =
                weights.iter().enumerate().map(|(column, weight)| weight * v[column * depth + at]).sum();
            let place = (row * depth + at) * 2;
            let found = f16::from_le_bytes([output[place], output[place + 1]]).to_f64();
            assert!((found - sum / total).abs() < 4e-3, "at {row}, {at}: {found}, expected {}", sum / total);
        }
    }
}
