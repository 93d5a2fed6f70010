//! Tests that the errors of transcendental functions are within their bounds.

use std::num::NonZero;

use tilewright_cpu::kernels::Operand;
use tilewright_cpu::kernels::elementwise::apply;
use tilewright_ir::{Accuracy, Dtype, ElementwiseFn, MathFn as F};

use crate::oracle::{Random, RandomElements, pack, specials, unpack};

/// The bounds that `math32` and `math64` state for a function.
struct Stated {
    function: F,
    /// The function in binary64, with an error far below an ulp of binary32.
    exact: fn(f64) -> f64,
    /// The bounds in ulp. Most binary64 bounds are 1 above those of `math64`, because the reference
    /// may be off by 1.
    binary32: f64,
    binary64: f64,
}

const fn stated(function: F, exact: fn(f64) -> f64, binary32: f64, binary64: f64) -> Stated {
    Stated { function, exact, binary32, binary64 }
}

const STATED: [Stated; 10] = [
    stated(F::Exp, f64::exp, 1.0, 2.0),
    stated(F::AccurateExp, f64::exp, 1.0, 2.0),
    stated(F::Exp2, f64::exp2, 1.0, 2.0),
    stated(F::Log, f64::ln, 1.0, 2.0),
    stated(F::Log2, f64::log2, 1.5, 2.0),
    stated(F::Sin, f64::sin, 1.6, 2.0),
    stated(F::Cos, f64::cos, 1.6, 2.0),
    stated(F::Rsqrt, |x| 1.0 / x.sqrt(), 1.5, 2.0),
    stated(F::Erf, libm::erf, 1.0, 1.0),
    stated(F::Tanh, f64::tanh, 2.0, 3.0),
];

fn find(function: F) -> Option<&'static Stated> {
    STATED.iter().find(|stated| stated.function == function)
}

/// Returns the value in binary64: from the reference in [`STATED`], or from the binary64 kernel,
/// which the conformance test checks.
fn exact(function: F, x: f64) -> f64 {
    if let Some(stated) = find(function) {
        return (stated.exact)(x);
    }
    let mut out = pack(Dtype::F64, &[x.to_bits()]);
    apply(function.into(), Dtype::F64, out.bytes_mut(), &[Operand::Out]);
    f64::from_bits(unpack(Dtype::F64, out.bytes())[0])
}

/// Returns the bound of binary32 in ulp: from [`STATED`], or from the elementwise table.
fn bound_32(function: F) -> f64 {
    match (find(function), ElementwiseFn::from(function).info().accuracy) {
        (Some(stated), _) => stated.binary32,
        (None, Accuracy::Exact) => 0.5,
        // Results are finite and not 0 up to |x| = 104.
        (None, Accuracy::GrowingUlp(least, slope)) => f64::from(least + 104.0 * slope),
        (None, Accuracy::Ulp(ulps) | Accuracy::FlushedUlp(ulps)) => ulps.into(),
    }
}

/// Returns the largest error of binary32 in ulp, and its argument. NaN, infinity and 0 must be
/// exact. For infinity and 0, the neighboring number is accepted.
fn worst_32(function: F, x: &[u32]) -> (f64, f32) {
    let words: Vec<u64> = x.iter().map(|&x| x.into()).collect();
    let mut out = pack(Dtype::F32, &words);
    apply(function.into(), Dtype::F32, out.bytes_mut(), &[Operand::Out]);
    let mut worst = (0.0, 0.0);
    for (&x, out) in x.iter().zip(unpack(Dtype::F32, out.bytes())) {
        let (x, out) = (f32::from_bits(x), f32::from_bits(out as u32));
        let expect = exact(function, x.into());
        let rounded = expect as f32;
        if rounded.is_nan() || rounded.is_infinite() || rounded == 0.0 {
            let next_to_infinite = rounded.is_infinite() && out.abs() == f32::MAX;
            let next_to_zero = rounded == 0.0 && out.abs() == f32::from_bits(1);
            let same = out.to_bits() == rounded.to_bits() || (out.is_nan() && rounded.is_nan());
            assert!(
                same || next_to_infinite || next_to_zero,
                "{function:?} of {x:e}: {out:e}, expected {rounded:e}"
            );
            continue;
        }
        // The ulp of the result's binade. Subnormal numbers have the ulp of the smallest normal
        // number.
        let exponent = (rounded.to_bits() >> 23 & 0xff).max(1);
        let inverse_ulp = f64::from_bits(u64::from(127 + 23 + 1023 - exponent) << 52);
        let error = (f64::from(out) - expect).abs() * inverse_ulp;
        if error > worst.0 || error.is_nan() {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn binary32_is_within_its_bounds() {
    let mut sample: Vec<u32> = specials(Dtype::F32).into_iter().map(|x| x as u32).collect();
    sample.extend((0..u32::MAX).step_by(9973));
    // The neighborhood of 1, where logarithms are small, and the range of finite exponentials.
    sample.extend((0x3f80_0000 - 20_000)..(0x3f80_0000 + 20_000));
    sample.extend((0..40_000).map(|i| (i as f32 * 0.005 - 100.0).to_bits()));
    for &function in F::ALL {
        let (error, x) = worst_32(function, &sample);
        assert!(error <= bound_32(function), "{function:?} of {x:e} is wrong by {error} ulp");
    }
}

/// Tests all arguments, on all cores.
#[test]
#[ignore = "takes over an hour of one core; run it after a change of math32"]
fn binary32_is_within_its_bounds_everywhere() {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    for &function in F::ALL {
        let of_core = |core: u32| {
            let mut worst = (0.0, 0.0);
            for high in (core..1 << 12).step_by(cores as usize) {
                let sample: Vec<u32> = (0..1 << 20).map(|low| high << 20 | low).collect();
                let found = worst_32(function, &sample);
                if found.0 > worst.0 {
                    worst = found;
                }
            }
            worst
        };
        let found: Vec<(f64, f32)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || of_core(core))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no error is a special value")).collect()
        });
        let (error, x) = found.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there is a core");
        println!("{function:?}: {error} ulp at {x:e}");
        assert!(error <= bound_32(function), "{function:?} of {x:e} is wrong by {error} ulp");
    }
}

#[test]
fn binary64_is_within_its_bounds() {
    let mut random = Random(20);
    let mut sample = specials(Dtype::F64);
    sample.extend(random.tile(Dtype::F64, 100_000));
    sample.extend((0..100_000).map(|i| (f64::from(i) * 0.0149 - 745.0).to_bits()));
    sample.extend((0..20_000).map(|i| (1.0 + f64::from(i - 10_000) * 1e-6).to_bits()));
    sample.extend((0..20_000).map(|_| ((random.bits() % 1_000_000_007) as f64 * 1.7e-3).to_bits()));
    // The neighborhood of multiples of pi/2, where sine and cosine lose digits.
    sample.extend((0..600_000).step_by(7).map(|i| (f64::from(i) * std::f64::consts::FRAC_PI_2).to_bits()));
    for Stated { function, exact, binary64: bound, .. } in STATED {
        let mut out = pack(Dtype::F64, &sample);
        apply(function.into(), Dtype::F64, out.bytes_mut(), &[Operand::Out]);
        for (&x, out) in sample.iter().zip(unpack(Dtype::F64, out.bytes())) {
            let (x, out) = (f64::from_bits(x), f64::from_bits(out));
            let expect = exact(x);
            let distance = out.to_bits().abs_diff(expect.to_bits());
            let same = distance as f64 <= bound || (out.is_nan() && expect.is_nan());
            assert!(same, "{function:?} of {x:e}: {out:e}, expected {expect:e}, {distance} ulp");
        }
    }
}

#[test]
fn narrow_floats_are_rounded_once() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let all: Vec<u64> = (0..1 << 16).collect();
        for &function in F::ALL {
            let mut out = pack(dtype, &all);
            apply(function.into(), dtype, out.bytes_mut(), &[Operand::Out]);
            let value = |bits| match crate::oracle::decode(dtype, bits) {
                crate::oracle::Number::Float(x) => x,
                crate::oracle::Number::Int(_) => unreachable!("a float type"),
            };
            for (&x, out) in all.iter().zip(unpack(dtype, out.bytes())) {
                let expect =
                    crate::oracle::encode(dtype, crate::oracle::Number::Float(exact(function, value(x))));
                // The error of binary32 may move a result across a rounding boundary.
                let close = out.abs_diff(expect) <= 1 || (value(out).is_nan() && value(expect).is_nan());
                assert!(close, "{function:?} {dtype} of {:e}: {out:#x}, expected {expect:#x}", value(x));
            }
        }
    }
}
