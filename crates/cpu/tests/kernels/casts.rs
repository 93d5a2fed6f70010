//! Compares casts between all element types with the oracle.

use tilewright_cpu::kernels::cast::cast;
use tilewright_ir::{Dtype, Rounding};

use crate::oracle::{Random, RandomElements, decode, pack, round, same, specials, unpack};

fn check(from: Dtype, to: Dtype, rounding: Rounding, x: &[u64]) {
    let mut out = pack(to, &vec![0; x.len()]);
    cast(from, to, rounding, out.bytes_mut(), pack(from, x).bytes());
    for (&x, out) in x.iter().zip(unpack(to, out.bytes())) {
        let rounded = round(to, decode(from, x), rounding == Rounding::TowardsZero);
        let expect = if from == to { x } else { rounded };
        assert!(
            same(to, out, expect),
            "{from} {x:#x} ({:?}) to {to}, {rounding:?}: {out:#x} ({:?}), expected {expect:#x} ({:?})",
            decode(from, x),
            decode(to, out),
            decode(to, expect)
        );
    }
}

#[test]
fn all_pairs() {
    let mut random = Random(1);
    for &from in Dtype::ALL {
        let mut x = specials(from);
        if from == Dtype::I1 {
            x = vec![0, 1];
        }
        x.extend(random.tile(from, 2000).iter().map(|&x| if from == Dtype::I1 { x & 1 } else { x }));
        for &to in Dtype::ALL {
            for rounding in [Rounding::NearestEven, Rounding::TowardsZero] {
                check(from, to, rounding, &x);
            }
        }
    }
}

#[test]
fn lengths() {
    for elements in [0, 1, 2, 31, 32, 33, 255, 256, 257, 1000] {
        let x = Random(2).tile(Dtype::F64, elements);
        check(Dtype::F64, Dtype::F16, Rounding::NearestEven, &x);
        check(Dtype::F64, Dtype::I32, Rounding::NearestEven, &x);
        let x = Random(3).tile(Dtype::F8E5, elements);
        check(Dtype::F8E5, Dtype::I16, Rounding::NearestEven, &x);
    }
}

#[test]
fn every_narrow_float_widens() {
    for dtype in
        [Dtype::F16, Dtype::BF16, Dtype::F8E5, Dtype::F8E4NV, Dtype::F8E4B15, Dtype::F8E4B8, Dtype::F8E5B16]
    {
        let all: Vec<u64> = (0..1 << dtype.bits()).collect();
        check(dtype, Dtype::F32, Rounding::NearestEven, &all);
        check(dtype, Dtype::F64, Rounding::NearestEven, &all);
        check(dtype, Dtype::BF16, Rounding::NearestEven, &all);
        check(dtype, Dtype::F8E4NV, Rounding::TowardsZero, &all);
    }
}

/// Tests numbers around every value of a format and every midpoint between two values.
#[test]
fn rounding_boundaries() {
    for dtype in
        [Dtype::F16, Dtype::BF16, Dtype::F8E5, Dtype::F8E4NV, Dtype::F8E4B15, Dtype::F8E4B8, Dtype::F8E5B16]
    {
        let mut x = Vec::new();
        let mut wide = Vec::new();
        for bits in 0..(1_u64 << (dtype.bits() - 1)) - 1 {
            let value = |bits| match decode(dtype, bits) {
                crate::oracle::Number::Float(value) => value,
                crate::oracle::Number::Int(_) => unreachable!("a float type"),
            };
            let middle = f64::midpoint(value(bits), value(bits + 1));
            for center in [value(bits), middle] {
                for step in [-1_i64, 0, 1] {
                    let single = (center as f32).to_bits().wrapping_add_signed(step as i32);
                    x.extend([u64::from(single), u64::from(single ^ 0x8000_0000)]);
                    wide.push(center.to_bits().wrapping_add_signed(step));
                }
            }
        }
        for rounding in [Rounding::NearestEven, Rounding::TowardsZero] {
            check(Dtype::F32, dtype, rounding, &x);
            check(Dtype::F64, dtype, rounding, &wide);
        }
    }
}
