//! Runs kernels of the official Triton (`triton/generate.py`), with and without planted bugs.

mod common;

use common::{Argument, Random, fault, launch_with, load, memory, value};
use tilewright_sim::{Fault, FaultKind, Report};

/// Launches a file with 128 threads per block. The last two parameters are unused scratch memory.
/// `change` plants a bug.
fn run(
    file: &str,
    grid: [u32; 3],
    mut arguments: Vec<Argument<'_>>,
    change: impl Fn(&str) -> String,
) -> Result<Report, Box<Fault>> {
    let path = format!("{}/tests/triton/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the file is part of the project");
    let shared = text.lines().next().and_then(|line| line.strip_prefix("// shared "));
    let shared = shared.expect("the first line says it").parse().expect("a number");
    arguments.extend([value(0_u64), value(0_u64)]);
    let device = if file.contains("sm_90") { "sm_90" } else { "sm_80" };
    let module = load(device, &change(&text));
    launch_with(&module, grid, [128, 1, 1], arguments, |launch| launch.dynamic_shared_bytes = shared)
}

fn unchanged(text: &str) -> String {
    text.to_owned()
}

/// Numbers aligned to 256 bytes, as by a driver.
struct Numbers {
    room: Vec<f32>,
    start: usize,
    count: usize,
}

impl Numbers {
    fn new(count: usize, mut element: impl FnMut() -> f32) -> Self {
        let mut room = vec![0.0_f32; count + 64];
        let start = room.as_ptr().align_offset(256);
        room[start..start + count].fill_with(&mut element);
        Self { room, start, count }
    }

    fn all(&mut self) -> &mut [f32] {
        &mut self.room[self.start..self.start + self.count]
    }
}

fn close(actual: &[f32], expected: impl Iterator<Item = f64>, tolerance: f64) {
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1e-3), "{index}: {actual} is not {expected}");
    }
}

#[test]
fn vectors_are_added() {
    const N: usize = 4992;
    let mut random = Random(1);
    let mut x = Numbers::new(N, || random.between(-1.0, 1.0) as f32);
    let mut y = Numbers::new(N, || random.between(-1.0, 1.0) as f32);
    let mut out = Numbers::new(N, || 0.0);
    let arguments = vec![memory(x.all()), memory(y.all()), memory(out.all()), value(N as u32)];
    let report =
        run("add_sm_80.ptx", [5, 1, 1], arguments, unchanged).unwrap_or_else(|fault| panic!("{fault}"));
    for i in 0..N {
        assert_eq!(out.all()[i], x.all()[i] + y.all()[i]);
    }
    assert_eq!((report.excess_sectors(), report.bank_conflicts(), report.barriers()), (0, 0, 0));
    assert_eq!(report.total().sectors, 3 * (N as u64 * 4 / 32), "two loads and a store of all elements");
}

fn softmax(file: &str, n: usize, change: impl Fn(&str) -> String) -> Result<Report, Box<Fault>> {
    let rows = 8;
    let mut random = Random(2);
    let mut x = Numbers::new(rows * n, || random.between(-4.0, 4.0) as f32);
    let mut out = Numbers::new(rows * n, || 0.0);
    let arguments = vec![memory(out.all()), memory(x.all()), value(n as u32)];
    let report = run(file, [rows as u32, 1, 1], arguments, change)?;
    for (x, out) in x.all().chunks(n).zip(out.all().chunks(n)) {
        let sum: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
        close(out, x.iter().map(|x| f64::from(*x).exp() / sum), 1e-5);
    }
    Ok(report)
}

#[test]
fn rows_become_softmax() {
    for file in ["softmax_sm_80.ptx", "softmax_sm_90.ptx"] {
        for n in [1024, 781, 1] {
            let report = softmax(file, n, unchanged).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(report.bank_conflicts(), 0);
            let lines = report.by_line();
            assert!(
                lines.keys().flatten().all(|(file, _)| file == "generate.py" || file == "standard.py"),
                "every line has a source"
            );
        }
    }
}

#[test]
fn rows_are_normalized() {
    let (rows, n) = (5, 781);
    for file in ["layer_norm_sm_80.ptx", "layer_norm_sm_90.ptx"] {
        let mut random = Random(3);
        let mut x = Numbers::new(rows * n, || random.between(-2.0, 3.0) as f32);
        let mut w = Numbers::new(n, || random.between(0.5, 1.5) as f32);
        let mut b = Numbers::new(n, || random.between(-1.0, 1.0) as f32);
        let mut out = Numbers::new(rows * n, || 0.0);
        let arguments = [&mut out, &mut x, &mut w, &mut b].map(|numbers| memory(numbers.all()));
        let arguments: Vec<_> = arguments.into_iter().chain([value(n as u32), value(1e-5_f32)]).collect();
        run(file, [rows as u32, 1, 1], arguments, unchanged).unwrap_or_else(|fault| panic!("{fault}"));
        for (x, out) in x.all().chunks(n).zip(out.all().chunks(n)) {
            let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
            let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let line = x.iter().zip(w.all().to_vec()).zip(b.all().to_vec());
            close(
                out,
                line.map(|((x, w), b)| (f64::from(*x) - mean) * scale * f64::from(w) + f64::from(b)),
                1e-3,
            );
        }
    }
}

#[test]
fn matrices_are_multiplied_without_tensor_cores() {
    let (rows, columns, depth) = (64, 96, 64);
    let mut random = Random(4);
    let mut a = Numbers::new(rows * depth, || random.between(-1.0, 1.0) as f32);
    let mut b = Numbers::new(depth * columns, || random.between(-1.0, 1.0) as f32);
    let mut c = Numbers::new(rows * columns, || 0.0);
    let arguments = [&mut a, &mut b, &mut c].map(|numbers| memory(numbers.all()));
    let arguments: Vec<_> =
        arguments.into_iter().chain([value(columns as u32), value(depth as u32)]).collect();
    let report =
        run("matmul_ieee_sm_80.ptx", [rows as u32 / 32, columns as u32 / 32, 1], arguments, unchanged);
    let report = report.unwrap_or_else(|fault| panic!("{fault}"));
    let (a, b) = (a.all(), b.all());
    let element = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        (0..depth).map(|i| f64::from(a[row * depth + i]) * f64::from(b[i * columns + column])).sum()
    };
    close(c.all(), (0..rows * columns).map(element), 1e-3);
    assert_eq!(report.total().tensor_operations, 0);
}

#[test]
fn matrices_are_multiplied_in_half_precision() {
    let (side, depth) = (64, 64);
    let mut random = Random(5);
    let mut half = || half::f16::from_f64(random.between(-1.0, 1.0));
    let mut a: Vec<u16> = (0..side * depth).map(|_| half().to_bits()).collect();
    let mut b: Vec<u16> = (0..side * depth).map(|_| half().to_bits()).collect();
    let mut c = vec![0_u16; side * side];
    let arguments = [&mut a, &mut b, &mut c].map(|numbers| memory(numbers));
    let arguments: Vec<_> = arguments.into_iter().chain([value(side as u32), value(depth as u32)]).collect();
    let report = run("matmul_f16_sm_90.ptx", [1, 1, 1], arguments, unchanged);
    let report = report.unwrap_or_else(|fault| panic!("{fault}"));
    for (at, result) in c.iter().enumerate() {
        let number = |bits: u16| half::f16::from_bits(bits).to_f64();
        let (row, column) = (at / side, at % side);
        let terms = (0..depth).map(|i| number(a[row * depth + i]) * number(b[i * side + column]));
        let (sum, scale) = terms.fold((0.0, 0.0), |(sum, scale), term| (sum + term, scale + f64::abs(term)));
        assert!(
            (number(*result) - sum).abs() < scale * 2_f64.powi(-9),
            "{at}: {} is not {sum}",
            number(*result)
        );
    }
    assert_eq!(report.total().tensor_operations, 2 * (side * side * depth) as u64);
}

#[test]
fn numbers_are_counted() {
    let n = 1000;
    let mut x: Vec<i32> = (0..n).map(|i| i * i % 16).collect();
    let mut out = vec![0_i32; 16];
    let arguments = vec![memory(&mut x), memory(&mut out), value(n)];
    run("histogram_sm_80.ptx", [4, 1, 1], arguments, unchanged).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<_> = (0..16).map(|bin| x.iter().filter(|x| **x == bin).count() as i32).collect();
    assert_eq!(out, expected);
}

#[test]
fn bugs_planted_into_the_code_of_a_compiler() {
    // Every barrier of the two reductions is necessary.
    let path = format!("{}/tests/triton/softmax_sm_80.ptx", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let barriers: Vec<_> = text.match_indices("bar.sync \t0;").collect();
    assert_eq!(barriers.len(), 3);
    for (place, barrier) in barriers {
        let without = format!("{}{}", &text[..place], &text[place + barrier.len()..]);
        let found = fault(softmax("softmax_sm_80.ptx", 1024, |_| without.clone()));
        assert!(matches!(found, FaultKind::Race { .. }), "{found}");
    }
    // With `<=`, the last block accesses 4 bytes after the memory.
    let wider = fault(softmax("softmax_sm_80.ptx", 781, |text| text.replace("setp.lt.s32", "setp.le.s32")));
    assert!(matches!(wider, FaultKind::OutOfBounds { .. }), "{wider}");
}
