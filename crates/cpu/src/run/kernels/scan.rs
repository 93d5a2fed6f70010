//! Scan of a tile along one axis with a known combine function, one element after another.

use tilewright_ir::Dtype;

use super::reduce::{Axis, Combine, integers};
use super::{Element, math, typed, typed_mut};

macro_rules! floats {
    ($combine:expr, $axis:ident, $out:ident, $x:ident, $ty:ty) => {{
        let (out, x) = (typed_mut::<$ty>($out), typed($x));
        match $combine {
            Combine::Sum => run($axis, out, x, |x, y| x + y),
            Combine::Product => run($axis, out, x, |x, y| x * y),
            Combine::Min => run($axis, out, x, math::min),
            Combine::Max => run($axis, out, x, math::max),
            Combine::MinNan => run($axis, out, x, math::min_nan),
            Combine::MaxNan => run($axis, out, x, math::max_nan),
            Combine::And | Combine::Or | Combine::Xor => panic!("floats are not combined bitwise"),
        }
    }};
}

/// Scans a tile: `out[o, k, i] = x[o, 0, i] ∘ … ∘ x[o, k, i]`; with `reverse`, from the last
/// element on.
///
/// Panics if a tile has the wrong length or alignment, or if [`Combine::can_scan`] is false.
pub fn scan(combine: Combine, dtype: Dtype, (axis, reverse): (Axis, bool), out: &mut [u8], x: &[u8]) {
    assert!(combine.can_scan(dtype), "scans of this combine function and type have a loop");
    let axis = (axis, reverse);
    match (dtype, dtype.bytes()) {
        (Dtype::F32, _) => floats!(combine, axis, out, x, f32),
        (Dtype::F64, _) => floats!(combine, axis, out, x, f64),
        (_, 1) => integers!(combine, axis, out, x, dtype, u8, i8),
        (_, 2) => integers!(combine, axis, out, x, dtype, u16, i16),
        (_, 4) => integers!(combine, axis, out, x, dtype, u32, i32),
        _ => integers!(combine, axis, out, x, dtype, u64, i64),
    }
}

/// Scans with an inlined combine function.
fn run<T: Element>((axis, reverse): (Axis, bool), out: &mut [T], x: &[T], f: impl Fn(T, T) -> T + Copy) {
    let Axis { n, inner, .. } = axis;
    let block = (n * inner).max(1);
    for (out, x) in out.chunks_exact_mut(block).zip(x.chunks_exact(block)) {
        let row = |k: usize| if reverse { n - 1 - k } else { k };
        if inner == 1 {
            // The last result stays in a register: the next one would wait for it to be stored.
            let mut sum = x[row(0)];
            out[row(0)] = sum;
            for k in 1..n {
                sum = f(sum, x[row(k)]);
                out[row(k)] = sum;
            }
            continue;
        }
        let first = row(0) * inner;
        out[first..first + inner].copy_from_slice(&x[first..first + inner]);
        for k in 1..n {
            let (before, now) = (row(k - 1) * inner, row(k) * inner);
            for i in 0..inner {
                out[now + i] = f(out[before + i], x[now + i]);
            }
        }
    }
}
