//! Compares each formula in vector code with the formula on single elements.

use super::*;
use crate::compile::nests::harness::{Compiled, is_same, on_targets, operands};
use crate::run::kernels::lanes::select;

trait Element: LaneType {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! element {
    ($($ty:ident: $of:expr, $bits:expr;)*) => {$(
        impl Element for $ty {
            fn of(bits: u64) -> Self {
                $of(bits)
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
        }
    )*};
}
element! {
    f32: |bits| f32::from_bits(bits as u32), |x: f32| u64::from(x.to_bits());
    f64: f64::from_bits, f64::to_bits;
    u32: |bits| bits as u32, u64::from;
    u64: |bits| bits, |x| x;
}

fn narrow_bits(bits: u32) -> Vec<[u64; 3]> {
    (0..1 << bits).map(|bits| [bits, 0, 0]).collect()
}

macro_rules! check {
    (
        $from:ident => $to:ident, $operands:expr;
        $($name:literal |$x:ident, $y:ident, $z:ident| $formula:expr;)*
    ) => {{
        let all = $operands;
        let lanes = (<$from as LaneType>::LANE, <$to as LaneType>::LANE);
        $({
            let formula = |elements: &[u64; 3]| {
                let [$x, $y, $z] = elements.map(<$from as Element>::of);
                let _ = ($y, $z);
                let result: $to = $formula;
                result.bits()
            };
            let emit = |builder: &RefCell<Builder>, operands: [Value; 3]| {
                let [$x, $y, $z] = operands.map(|value| Vector::<$from>::new(builder, value));
                let _ = ($y, $z);
                let result: Vector<'_, $to> = $formula;
                result.value
            };
            let expected: Vec<u64> = all.iter().map(formula).collect();
            on_targets(|target| {
                let is_same = |x, y| is_same(lanes.1, x, y);
                Compiled::new($name, target, lanes, emit).check(&all, &expected, is_same);
            });
        })*
    }};
}

#[test]
fn functions_of_binary32() {
    check! { f32 => f32, operands(Lane::F32);
        "min" |x, y, _z| math::min(x, y);
        "max" |x, y, _z| math::max(x, y);
        "min_nan" |x, y, _z| math::min_nan(x, y);
        "max_nan" |x, y, _z| math::max_nan(x, y);
        "rsqrt" |x, _y, _z| math::rsqrt(x);
        "exp" |x, _y, _z| math32::exp(x);
        "exp2" |x, _y, _z| math32::exp2(x);
        "log" |x, _y, _z| math32::log(x);
        "log2" |x, _y, _z| math32::log2(x);
        "sin" |x, _y, _z| math32::sin_shifted(x, 0);
        "cos" |x, _y, _z| math32::sin_shifted(x, 1);
        "is_large_angle" |x, y, z| select(math32::is_large_angle(x), y, z);
        "erf" |x, _y, _z| math32::erf(x);
        "tanh" |x, _y, _z| math32::tanh(x);
    }
}

#[test]
fn functions_of_binary64() {
    check! { f64 => f64, operands(Lane::F64);
        "min" |x, y, _z| math::min(x, y);
        "max" |x, y, _z| math::max(x, y);
        "min_nan" |x, y, _z| math::min_nan(x, y);
        "max_nan" |x, y, _z| math::max_nan(x, y);
        "rsqrt" |x, _y, _z| math::rsqrt(x);
        "exp" |x, _y, _z| math64::exp(x);
        "exp2" |x, _y, _z| math64::exp2(x);
        "log" |x, _y, _z| math64::log(x);
        "log2" |x, _y, _z| math64::log2(x);
        "sin" |x, _y, _z| math64::sin_shifted(x, 0);
        "cos" |x, _y, _z| math64::sin_shifted(x, 1);
        "is_large_angle" |x, y, z| select(math64::is_large_angle(x), y, z);
        "tanh" |x, _y, _z| math64::tanh(x);
    }
}

#[test]
fn conversions_to_narrow_floats() {
    check! { f32 => u32, operands(Lane::F32);
        "fp32 to bf16" |x, _y, _z| formats::bf16_narrow(x, false);
        "fp32 to fp16" |x, _y, _z| formats::F16.narrow(x, false);
        "fp32 to fp8e5" |x, _y, _z| formats::E5M2.narrow(x, false);
        "fp32 to fp8e4nv" |x, _y, _z| formats::E4M3.narrow(x, false);
        "fp32 to fp8e4b15" |x, _y, _z| formats::E4M3B15.narrow(x, false);
        "fp32 to fp8e4b8" |x, _y, _z| formats::E4M3B8.narrow(x, false);
        "fp32 to fp8e5b16" |x, _y, _z| formats::E5M2B16.narrow(x, false);
        "fp32 to bf16, towards zero" |x, _y, _z| formats::bf16_narrow(x, true);
        "fp32 to fp16, towards zero" |x, _y, _z| formats::F16.narrow(x, true);
        "fp32 to fp8e5, towards zero" |x, _y, _z| formats::E5M2.narrow(x, true);
        "fp32 to fp8e4nv, towards zero" |x, _y, _z| formats::E4M3.narrow(x, true);
        "fp32 to fp8e4b15, towards zero" |x, _y, _z| formats::E4M3B15.narrow(x, true);
        "fp32 to fp8e4b8, towards zero" |x, _y, _z| formats::E4M3B8.narrow(x, true);
        "fp32 to fp8e5b16, towards zero" |x, _y, _z| formats::E5M2B16.narrow(x, true);
    }
}

#[test]
fn conversions_from_narrow_floats() {
    check! { u32 => f32, narrow_bits(16);
        "bf16 to fp32" |x, _y, _z| formats::bf16_widen(x);
        "fp16 to fp32" |x, _y, _z| formats::F16.widen(x);
    }
    check! { u32 => f32, narrow_bits(8);
        "fp8e5 to fp32" |x, _y, _z| formats::E5M2.widen(x);
        "fp8e4nv to fp32" |x, _y, _z| formats::E4M3.widen(x);
        "fp8e4b15 to fp32" |x, _y, _z| formats::E4M3B15.widen(x);
        "fp8e4b8 to fp32" |x, _y, _z| formats::E4M3B8.widen(x);
        "fp8e5b16 to fp32" |x, _y, _z| formats::E5M2B16.widen(x);
    }
}

#[test]
fn conversions_of_wide_numbers() {
    check! { f64 => f32, operands(Lane::F64);
        "fp64 to fp32, to odd" |x, _y, _z| formats::double_to_single_odd(x);
        "fp64 to fp32, towards zero" |x, _y, _z| formats::double_to_single_zero(x);
    }
    check! { u64 => f64, operands(Lane::I64);
        "int64 to fp64, to odd" |x, _y, _z| formats::signed_to_double_odd(x);
        "int64 to fp64, towards zero" |x, _y, _z| formats::signed_to_double_zero(x);
        "uint64 to fp64, to odd" |x, _y, _z| formats::unsigned_to_double_odd(x);
        "uint64 to fp64, towards zero" |x, _y, _z| formats::unsigned_to_double_zero(x);
    }
    check! { f64 => u64, operands(Lane::F64);
        "fp64 to int8" |x, _y, _z| formats::saturate(x, -128.0, 127.0);
        "fp64 to int32" |x, _y, _z| formats::saturate(x, i32::MIN.into(), i32::MAX.into());
        "fp64 to uint32" |x, _y, _z| formats::saturate(x, 0.0, u32::MAX.into());
    }
}

#[test]
fn quotients() {
    let integers = |range: u64| {
        let mut random = tilewright_fuzz::random::Random(8);
        let mut integer = move || (random.bits() % (2 * range)) as i64 - range as i64;
        let pairs: Vec<[i64; 2]> = (0..20_000).map(|_| [integer(), integer().max(1)]).collect();
        pairs
    };
    let singles = integers(1 << 15).into_iter().map(|[x, y]| [(x as f32).bits(), (y as f32).bits(), 0]);
    check! { f32 => u32, singles.collect::<Vec<_>>();
        "quotient_of_singles" |x, y, _z| formats::quotient_of_singles(x, y);
    }
    let doubles = integers(1 << 31).into_iter().map(|[x, y]| [(x as f64).bits(), (y as f64).bits(), 0]);
    check! { f64 => u64, doubles.collect::<Vec<_>>();
        "quotient_of_doubles" |x, y, _z| formats::quotient_of_doubles(x, y);
    }
}

/// The operands have at most 11 bits of precision.
#[test]
fn multiply_add_to_odd() {
    let truncate = |bits: u64| formats::F16.widen::<f32>(formats::F16.narrow(f32::of(bits), true)).bits();
    let halves: Vec<[u64; 3]> = operands(Lane::F32).iter().map(|all| all.map(truncate)).collect();
    check! { f32 => f32, halves;
        "fma_odd" |x, y, z| narrow::fma_odd(x, y, z);
    }
}
