//! Prints the speed of each kernel on this machine: GFLOP/s for dots, ns per element for the other
//! kernels.
//!
//! Run it with `cargo run --release -p tilewright-cpu --example kernel_speed [filter]`.

use std::hint::black_box;
use std::time::Instant;

use tilewright_cpu::kernels::Operand;
use tilewright_cpu::kernels::bitonic::sort;
use tilewright_cpu::kernels::buffer::Buffer;
use tilewright_cpu::kernels::dot::{Extents, Matrix, Scratch, dot};
use tilewright_cpu::kernels::elementwise::apply;
use tilewright_cpu::kernels::instructions::Level;
use tilewright_cpu::kernels::reduce::{Axis, Combine, reduce};
use tilewright_cpu::kernels::scan::scan;
use tilewright_cpu::kernels::{cast::cast, elementwise};
use tilewright_cpu::memory::{Axis as CopyAxis, Region, gather, load_block, rearrange};
use tilewright_ir::{Dtype, ElementwiseFn as F, Rounding};

const TILE: usize = 1024;

/// Returns the best time of a call in ns, over several samples of about 2 ms.
fn time(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut calls = 0_u32;
    while start.elapsed().as_micros() < 2000 {
        call();
        calls += 1;
    }
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best * 1e9
}

fn report(name: &str, elements: usize, ns: f64) {
    println!("{name:<44} {:>9.4} ns/element {ns:>10.1} ns/call", ns / elements as f64);
}

fn tile(dtype: Dtype, elements: usize) -> Buffer {
    let numbers: Vec<f32> = (0..elements).map(|i| 0.5 + (i * 7919 % 1000) as f32 * 0.0075).collect();
    let mut out = Buffer::new(elements * dtype.bytes());
    if dtype.is_float() {
        cast(Dtype::F32, dtype, Rounding::NearestEven, out.bytes_mut(), bytemuck::cast_slice(&numbers));
    } else {
        let numbers: Vec<i32> = (0..elements).map(|i| 1 + (i * 7919 % 16) as i32).collect();
        cast(Dtype::I32, dtype, Rounding::NearestEven, out.bytes_mut(), bytemuck::cast_slice(&numbers));
    }
    out
}

fn elementwise(filter: &str) {
    use Dtype::{BF16, F16, F32, F64, I8, I32, I64};
    let mut table: Vec<(F, Vec<Dtype>)> = vec![
        (F::Add, vec![F32, F64, F16, BF16, I8, I32, I64]),
        (F::Mul, vec![F32, F16, I32, I64]),
        (F::Lt, vec![F32, I32, I64]),
        (F::Max, vec![F32, F64, I32]),
        (F::Shl, vec![I32]),
        (F::IntDiv, vec![I8, I32, I64]),
        (F::IntRem, vec![I32]),
        (F::Div, vec![F32, F64]),
        (F::FloatRem, vec![F32]),
        (F::Fma, vec![F32, F64, F16]),
        (F::Select, vec![F32, F64]),
    ];
    let functions =
        [F::Exp, F::Exp2, F::Log, F::Log2, F::Sin, F::Cos, F::Sqrt, F::Rsqrt, F::Floor, F::Erf, F::Tanh];
    table.extend(functions.map(|function| (function, vec![F32, F64])));
    table.push((F::Exp, vec![F16]));
    for (function, dtypes) in table {
        for dtype in dtypes {
            let name = format!("{} {dtype}", function.name());
            if !name.contains(filter) {
                continue;
            }
            let (x, y) = (tile(dtype, TILE), tile(dtype, TILE));
            let mut out = Buffer::new(TILE * dtype.bytes());
            let condition: Vec<u8> = (0..TILE).map(|i| u8::from(i % 3 == 0)).collect();
            let arity = function.info().operands.len();
            let mut run = |name: &str, n: usize, operands: &[Operand<'_>], out_bytes: usize| {
                let operands = &operands[..arity];
                let ns = time(|| {
                    apply(function, dtype, &mut out.bytes_mut()[..n * out_bytes], operands);
                });
                report(name, n, ns);
            };
            let (tile_x, tile_y) = (Operand::Tile(x.bytes()), Operand::Tile(y.bytes()));
            let compares = matches!(function, F::Lt);
            let out_bytes = if compares { 1 } else { dtype.bytes() };
            if function == F::Select {
                run(&name, TILE, &[Operand::Tile(&condition), tile_x, tile_y], out_bytes);
                continue;
            }
            run(&name, TILE, &[tile_x, tile_y, tile_y], out_bytes);
            let scalar =
                |tile: &Buffer| Operand::Scalar(bytemuck::pod_read_unaligned::<u64>(&tile.bytes()[..8]));
            if matches!(function, F::Add | F::IntDiv | F::Lt) {
                run(&format!("{name}, scalar"), TILE, &[tile_x, scalar(&y)], out_bytes);
            }
            if matches!(function, F::Add | F::Exp) {
                if function == F::Add && dtype == F32 {
                    run(&format!("{name}, in place"), TILE, &[Operand::Out, tile_y], out_bytes);
                }
                let small = |tile: &'_ Buffer| tile.bytes()[..dtype.bytes()].to_vec();
                let (x, y) = (small(&x), small(&y));
                run(&format!("{name}, 1 element"), 1, &[Operand::Tile(&x), Operand::Tile(&y)], out_bytes);
            }
        }
    }
}

fn casts(filter: &str) {
    use Dtype::{BF16, F8E4NV, F8E5, F16, F32, F64, I1, I8, I32, I64};
    let pairs = [
        (F16, F32),
        (F32, F16),
        (BF16, F32),
        (F32, BF16),
        (F8E5, F32),
        (F32, F8E5),
        (F8E4NV, F32),
        (F32, F8E4NV),
        (F8E4NV, F16),
        (F64, F16),
        (F32, F64),
        (F64, F32),
        (I32, F32),
        (I64, F32),
        (F32, I32),
        (F32, I64),
        (F32, I8),
        (I32, I64),
        (I64, I32),
        (I8, I32),
        (I32, I1),
        (F16, BF16),
    ];
    for (from, to) in pairs {
        let name = format!("cast {from} {to}");
        if name.contains(filter) {
            let x = tile(from, TILE);
            let mut out = Buffer::new(TILE * to.bytes());
            report(&name, TILE, time(|| cast(from, to, Rounding::NearestEven, out.bytes_mut(), x.bytes())));
        }
    }
}

fn reductions(filter: &str) {
    let shapes =
        [(1, 1024, 1), (1, 4096, 1), (64, 64, 1), (16, 16, 16), (1, 64, 64), (1, 16, 256), (32, 32, 1)];
    for (combine, dtype) in [
        (Combine::Sum, Dtype::F32),
        (Combine::Max, Dtype::F32),
        (Combine::Sum, Dtype::F16),
        (Combine::Max, Dtype::BF16),
        (Combine::Sum, Dtype::I32),
        (Combine::Max, Dtype::I64),
    ] {
        for (outer, n, inner) in shapes {
            let name = format!("reduce {combine:?} {dtype} ({outer}, {n}, {inner})");
            if name.contains(filter) {
                let elements = outer * n * inner;
                let x = tile(dtype, elements);
                let mut out = Buffer::new(outer * inner * dtype.bytes());
                let axis = Axis { outer, n, inner };
                report(&name, elements, time(|| reduce(combine, dtype, axis, out.bytes_mut(), x.bytes())));
            }
        }
    }
}

fn scans_and_sorts(filter: &str) {
    let shapes = [(1, 1024, 1), (1, 64, 1), (32, 32, 1), (1, 64, 16), (1, 16, 64)];
    for (combine, dtype) in [
        (Combine::Sum, Dtype::F32),
        (Combine::Sum, Dtype::F64),
        (Combine::Sum, Dtype::I32),
        (Combine::Product, Dtype::F32),
        (Combine::Max, Dtype::F32),
        (Combine::Max, Dtype::I64),
    ] {
        for (outer, n, inner) in shapes {
            let name = format!("scan {combine:?} {dtype} ({outer}, {n}, {inner})");
            if name.contains(filter) {
                let elements = outer * n * inner;
                let x = tile(dtype, elements);
                let mut out = Buffer::new(elements * dtype.bytes());
                let axis = (Axis { outer, n, inner }, false);
                let ns = time(|| {
                    out.bytes_mut().copy_from_slice(x.bytes());
                    scan(combine, dtype, axis, out.bytes_mut());
                });
                report(&name, elements, ns);
            }
        }
    }
    for dtype in [Dtype::I32, Dtype::U32, Dtype::I64] {
        for (outer, n, inner) in [(1, 256, 1), (1, 1024, 1), (32, 8, 1), (1, 8, 1), (1, 64, 16), (1, 64, 3)] {
            let name = format!("sort {dtype} ({outer}, {n}, {inner})");
            if name.contains(filter) {
                let elements = outer * n * inner;
                let x = tile(dtype, elements);
                let mut out = Buffer::new(elements * dtype.bytes());
                let ns = time(|| {
                    out.bytes_mut().copy_from_slice(x.bytes());
                    sort(dtype, Axis { outer, n, inner }, n.ilog2(), false, out.bytes_mut());
                });
                report(&name, elements, ns);
            }
        }
    }
}

fn copies(filter: &str) {
    let (rows, columns) = (64, 64);
    let mut user = tile(Dtype::F32, 1 << 16);
    let region = Region::of(user.bytes_mut());
    let mut out = Buffer::new(rows * columns * 4);
    let shapes = [
        ("load contiguous", 4, 256),
        ("load rows", 4, 1024),
        ("load transposed", 512, 4),
        ("load strided", 8, 1024),
        ("load broadcast rows", 4, 0),
        ("load broadcast columns", 0, 4),
    ];
    for (name, stride, row_stride) in shapes {
        if name.contains(filter) {
            let axes = [
                CopyAxis { count: rows, stride: row_stride, tile: columns },
                CopyAxis { count: columns, stride, tile: 1 },
            ];
            let ns =
                time(|| load_block(&region, 4, region.address(), &axes, out.bytes_mut()).expect("inside"));
            report(name, rows * columns, ns);
        }
    }
    if "gather".contains(filter) {
        let addresses: Vec<i64> =
            (0..TILE).map(|i| region.address() as i64 + (i * 7919 % 16384 * 4) as i64).collect();
        let ns = time(|| {
            gather(&[region], 4, &addresses, None, &mut out.bytes_mut()[..TILE * 4]).expect("inside");
        });
        report("gather", TILE, ns);
    }
    let x = tile(Dtype::F32, rows * columns);
    if "transpose tile".contains(filter) {
        let axes = [
            CopyAxis { count: columns, stride: 4, tile: rows },
            CopyAxis { count: rows, stride: 256, tile: 1 },
        ];
        report("transpose tile", rows * columns, time(|| rearrange(4, &axes, out.bytes_mut(), x.bytes(), 0)));
    }
    if "fill".contains(filter) {
        report("fill", rows * columns, time(|| elementwise::fill(4, out.bytes_mut(), black_box(7))));
    }
    if "ramp".contains(filter) {
        report("ramp", rows * columns, time(|| elementwise::ramp(4, out.bytes_mut(), black_box(7), 3)));
    }
}

fn products(filter: &str) {
    use Dtype::{BF16, F8E4NV, F16, F32, F64, I8, I32};
    let cases = [(F32, F32), (F32, F16), (F32, F8E4NV), (F64, F64), (F32, BF16), (I32, I8)];
    let shapes = [(32, 32, 32), (64, 64, 64), (128, 128, 32), (128, 256, 64), (16, 16, 64), (64, 64, 256)];
    for (acc, dtype) in cases {
        let is_narrow = matches!(dtype, BF16 | I8);
        let levels = Level::ALL.into_iter().filter(|level| match level {
            Level::Wide => true,
            _ => is_narrow && level.is_available(dtype == BF16),
        });
        levels.for_each(|level| products_of(filter, acc, dtype, &shapes, level));
    }
}

fn products_of(filter: &str, acc: Dtype, dtype: Dtype, shapes: &[(usize, usize, usize)], level: Level) {
    let mut scratch = Scratch::at_most(level);
    {
        for &(m, n, k) in shapes {
            for transposed in [false, true] {
                let name = format!(
                    "dot {acc} {dtype} {m}x{n}x{k}{} {level:?}",
                    if transposed { ", b transposed" } else { "" }
                );
                if !name.contains(filter) {
                    continue;
                }
                let (a, b) = (tile(dtype, m * k), tile(dtype, k * n));
                let mut c = Buffer::new(m * n * acc.bytes());
                let left = Matrix::new(dtype, a.bytes(), k);
                let right = Matrix::new(dtype, b.bytes(), if transposed { k } else { n });
                let right = if transposed { right.transposed() } else { right };
                let extents = Extents { m, n, k };
                let ns = time(|| dot(acc, c.bytes_mut(), left, right, extents, &mut scratch));
                println!("{name:<44} {:>9.1} GFLOP/s {ns:>12.1} ns/call", (2 * m * n * k) as f64 / ns);
            }
        }
    }
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    elementwise(&filter);
    casts(&filter);
    reductions(&filter);
    scans_and_sorts(&filter);
    copies(&filter);
    products(&filter);
}
