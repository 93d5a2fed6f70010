//! Compares the vector code of functions and conversions with the executor's kernels.

use tilewright_ir::Element;

use super::*;
use crate::compile::nests::harness::{Compiled, on_targets, operands};
use crate::run::kernels::{Operand, cast, elementwise};

/// Returns the lane type of elements in memory.
fn memory_lane(dtype: Dtype) -> Lane {
    match elements(dtype) {
        Elements::Lanes(lane) => lane,
        Elements::Mask => Lane::I8,
    }
}

fn mask_of(vectors: Vectors<'_>, x: Value) -> Value {
    let lane = vectors.0.borrow().lane(x).integer();
    let bits = vectors.convert(Conversion::Bitcast, lane, x);
    let low = vectors.binary(Binary::And, bits, vectors.constant(lane, 1));
    vectors.compare(Compare::Ne, low, vectors.constant(lane, 0))
}

/// Converts lanes of memory to the representation of a type.
fn load(vectors: Vectors<'_>, dtype: Dtype, x: Value) -> Value {
    if dtype.is_bool() { mask_of(vectors, x) } else { x }
}

/// Converts the representation of a type to lanes of memory.
fn store(vectors: Vectors<'_>, dtype: Dtype, x: Value) -> Value {
    if dtype.is_bool() { vectors.cast(Dtype::I1, Dtype::I8, x) } else { x }
}

/// Returns the low bits of a type. Booleans have one bit.
fn low_bits(dtype: Dtype, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - dtype.bits()))
}

/// Returns whether two elements have equal bits or are both NaN.
fn is_same(dtype: Dtype, x: u64, y: u64) -> bool {
    let is_nan = |bits: u64| match dtype {
        Dtype::F64 => f64::from_bits(bits).is_nan(),
        Dtype::F32 => f32::from_bits(bits as u32).is_nan(),
        // tidy: wildcard because the other types are narrow floats and integers
        _ => {
            let mut wide = [0.0];
            if is_narrow(dtype) {
                cast::widen(dtype, &mut wide, &bytemuck::bytes_of(&bits)[..dtype.bytes()]);
            }
            wide[0].is_nan()
        }
    };
    x == y || (is_nan(x) && is_nan(y))
}

fn expected(function: ElementwiseFn, dtype: Dtype, result: Dtype, elements: [u64; 3]) -> u64 {
    let operands = elements.map(Operand::Scalar);
    let mut out = [0_u64];
    let bytes = &mut bytemuck::cast_slice_mut(&mut out)[..result.bytes()];
    elementwise::apply(function, dtype, bytes, &operands[..function.info().operands.len()]);
    out[0]
}

/// Returns about 1500 of the [`operands`] of a type.
fn sample(dtype: Dtype) -> Vec<[u64; 3]> {
    let all = operands(memory_lane(dtype));
    let step = all.len().div_ceil(1500);
    all.into_iter().step_by(step).map(|all| all.map(|bits| low_bits(dtype, bits))).collect()
}

#[test]
fn functions_of_vectors() {
    let mut count = 0;
    for &dtype in Dtype::ALL {
        let sample = sample(dtype);
        for &function in ElementwiseFn::ALL {
            if !function.info().domain.contains(Element::Value(dtype)) || !can_apply(function, dtype) {
                continue;
            }
            count += 1;
            let is_selection = matches!(function.family(), Family::Selection(_));
            let result = if matches!(function.family(), Family::Comparison(_)) { Dtype::I1 } else { dtype };
            let arity = function.info().operands.len();
            let emit = |builder: &RefCell<Builder>, operands: [Value; 3]| {
                let vectors = Vectors(builder);
                let mut loaded = operands.map(|x| load(vectors, dtype, x));
                if is_selection {
                    loaded[0] = mask_of(vectors, operands[0]);
                }
                store(vectors, result, vectors.apply(function, dtype, &loaded[..arity]))
            };
            let compute = |&[x, y, z]: &[u64; 3]| {
                let x = if is_selection { x & 1 } else { x };
                expected(function, dtype, result, [x, y, z])
            };
            let expected: Vec<u64> = sample.iter().map(compute).collect();
            on_targets(|target| {
                let name = format!("{} of {dtype} for {target:?}", function.name());
                let lanes = (memory_lane(dtype), memory_lane(result));
                Compiled::new(&name, target, lanes, emit)
                    .check(&sample, &expected, |x, y| is_same(result, x, y));
            });
        }
    }
    assert!(count > 200, "{count} functions");
}

#[test]
fn conversions_of_vectors() {
    let mut count = 0;
    for &from in Dtype::ALL {
        let sample = sample(from);
        for &to in Dtype::ALL {
            for rounding in [Rounding::NearestEven, Rounding::TowardsZero] {
                if !can_cast(from, to, rounding) {
                    continue;
                }
                count += 1;
                let emit = |builder: &RefCell<Builder>, [x, ..]: [Value; 3]| {
                    let vectors = Vectors(builder);
                    store(vectors, to, vectors.cast(from, to, load(vectors, from, x)))
                };
                let compute = |&[x, ..]: &[u64; 3]| {
                    let (x, mut out) = ([x], [0_u64]);
                    let x = &bytemuck::cast_slice(&x)[..from.bytes()];
                    cast::cast(from, to, rounding, &mut bytemuck::cast_slice_mut(&mut out)[..to.bytes()], x);
                    out[0]
                };
                let expected: Vec<u64> = sample.iter().map(compute).collect();
                on_targets(|target| {
                    let name = format!("{from} to {to}, {rounding:?}, for {target:?}");
                    Compiled::new(&name, target, (memory_lane(from), memory_lane(to)), emit).check(
                        &sample,
                        &expected,
                        |x, y| is_same(to, x, y),
                    );
                });
            }
        }
    }
    assert!(count > 250, "{count} conversions");
}
