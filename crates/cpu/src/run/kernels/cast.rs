//! Converts tiles between all element types.
//!
//! | from | to | result |
//! |---|---|---|
//! | integer | integer | sign- or zero-extended by the source type, or the low bits |
//! | any | `int1` | 1 where the value is not zero (NaN is not zero) |
//! | `int1` | any | 0 or 1 |
//! | float | integer | truncated towards zero; NaN becomes 0; a value out of range becomes the nearest bound |
//! | integer | float | rounded once, in the requested mode |
//! | float | wider float | exact |
//! | float | narrower float | rounded once; overflow becomes an infinity (towards zero: the largest finite number) |
//! | float | fp8 | rounded once; overflow and infinities become the largest finite number, as with PTX's `satfinite` |
//!
//! NaN stays NaN: quiet, with an unspecified payload. `fp8e4b15` has no NaN; there, NaN becomes the
//! largest finite number with the sign of the NaN. In formats without negative zero, -0 becomes 0.
//!
//! Every conversion has the result of a single rounding. If a conversion rounds first to binary32
//! and then to a narrower format, the first rounding is to odd.

use tilewright_ir::{Dtype, Rounding};

use super::formats::{
    self, E4M3, E4M3B8, E4M3B15, E5M2, E5M2B16, F16, Format, double_to_single_odd, double_to_single_zero,
};
use super::simd::each;
use super::{typed, typed_mut};

/// The number of elements of the stack buffer through which a conversion passes.
const CHUNK: usize = 256;

/// Converts a tile: `out[i] = x[i]` as the type `to`. The buffers do not overlap.
///
/// Panics if the tiles have different numbers of elements or are not aligned.
pub fn cast(from: Dtype, to: Dtype, rounding: Rounding, out: &mut [u8], x: &[u8]) {
    let towards_zero = rounding == Rounding::TowardsZero;
    assert!(x.len() / from.bytes() == out.len() / to.bytes(), "a cast keeps the number of elements");
    if from == to || (from.is_int() && to.is_int() && !to.is_bool() && from.bytes() == to.bytes()) {
        out.copy_from_slice(x);
    } else if to == Dtype::F32 && is_narrow(from) {
        widen(from, typed_mut(out), x);
    } else if is_narrow(from) {
        let mut wide = [0.0_f32; CHUNK];
        for (out, x) in out.chunks_mut(CHUNK * to.bytes()).zip(x.chunks(CHUNK * from.bytes())) {
            let wide = &mut wide[..x.len() / from.bytes()];
            widen(from, wide, x);
            cast(Dtype::F32, to, rounding, out, bytemuck::cast_slice(wide));
        }
    } else if from == Dtype::F32 && is_narrow(to) {
        narrow(to, out, typed(x), towards_zero);
    } else if is_narrow(to) {
        let mut wide = [0.0_f32; CHUNK];
        for (out, x) in out.chunks_mut(CHUNK * to.bytes()).zip(x.chunks(CHUNK * from.bytes())) {
            let wide = &mut wide[..x.len() / from.bytes()];
            to_f32_odd(from, wide, x);
            narrow(to, out, wide, towards_zero);
        }
    } else if towards_zero && to.is_float() {
        to_float_towards_zero(from, to, out, x);
    } else {
        direct(from, to, out, x);
    }
}

fn is_narrow(dtype: Dtype) -> bool {
    dtype.is_float() && dtype.bytes() <= 2
}

pub(crate) fn format(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F16 => F16,
        Dtype::F8E5 => E5M2,
        Dtype::F8E4NV => E4M3,
        Dtype::F8E4B15 => E4M3B15,
        Dtype::F8E4B8 => E4M3B8,
        Dtype::F8E5B16 => E5M2B16,
        other => panic!("{other} is not a narrow float"),
    }
}

/// Converts a tile of 16- or 8-bit floats to binary32, exactly.
pub fn widen(from: Dtype, out: &mut [f32], x: &[u8]) {
    macro_rules! fp8 {
        ($format:ident) => {
            each(out, x, |x: u8| $format.widen::<f32>(x.into()))
        };
    }
    match from {
        Dtype::BF16 => each(out, typed(x), |x: u16| formats::bf16_widen::<f32>(x.into())),
        Dtype::F16 => each(out, typed(x), |x: u16| F16.widen::<f32>(x.into())),
        Dtype::F8E5 => fp8!(E5M2),
        Dtype::F8E4NV => fp8!(E4M3),
        Dtype::F8E4B15 => fp8!(E4M3B15),
        Dtype::F8E4B8 => fp8!(E4M3B8),
        Dtype::F8E5B16 => fp8!(E5M2B16),
        other => panic!("{other} is not a narrow float"),
    }
}

/// Rounds a tile of binary32 to 16- or 8-bit floats.
pub fn narrow(to: Dtype, out: &mut [u8], x: &[f32], towards_zero: bool) {
    macro_rules! format {
        ($format:ident, $ty:ty) => {
            each(typed_mut(out), x, |x: f32| $format.narrow(x, false) as $ty)
        };
    }
    if towards_zero {
        // Rounding towards zero is rare, so one loop serves all 8-bit formats.
        match to {
            Dtype::BF16 => each(typed_mut(out), x, |x: f32| formats::bf16_narrow(x, true) as u16),
            Dtype::F16 => each(typed_mut(out), x, |x: f32| F16.narrow(x, true) as u16),
            _ => {
                let format = format(to);
                each(out, x, |x: f32| format.narrow(x, true) as u8);
            }
        }
        return;
    }
    match to {
        Dtype::BF16 => each(typed_mut(out), x, |x: f32| formats::bf16_narrow(x, false) as u16),
        Dtype::F16 => format!(F16, u16),
        Dtype::F8E5 => format!(E5M2, u8),
        Dtype::F8E4NV => format!(E4M3, u8),
        Dtype::F8E4B15 => format!(E4M3B15, u8),
        Dtype::F8E4B8 => format!(E4M3B8, u8),
        Dtype::F8E5B16 => format!(E5M2B16, u8),
        other => panic!("{other} is not a narrow float"),
    }
}

/// Converts integers and binary64 to binary32, rounded to odd.
fn to_f32_odd(from: Dtype, out: &mut [f32], x: &[u8]) {
    match from {
        Dtype::F64 => each(out, typed(x), double_to_single_odd::<f64>),
        Dtype::I32 => each(out, typed(x), |x: i32| double_to_single_odd(f64::from(x))),
        Dtype::U32 => each(out, typed(x), |x: u32| double_to_single_odd(f64::from(x))),
        Dtype::I64 => {
            each(out, typed(x), |x: i64| double_to_single_odd(formats::signed_to_double_odd(x as u64)));
        }
        Dtype::U64 => each(out, typed(x), |x: u64| double_to_single_odd(formats::unsigned_to_double_odd(x))),
        small => direct(small, Dtype::F32, bytemuck::cast_slice_mut(out), x),
    }
}

/// Converts to binary32 or binary64, towards zero. These conversions are rare, so not all loops are
/// vectorized.
fn to_float_towards_zero(from: Dtype, to: Dtype, out: &mut [u8], x: &[u8]) {
    match (from, to) {
        (Dtype::F64, _) => each(typed_mut(out), typed(x), double_to_single_zero::<f64>),
        (Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64, Dtype::F32) => {
            let mut wide = [0.0_f64; CHUNK];
            for (out, x) in typed_mut(out).chunks_mut(CHUNK).zip(x.chunks(CHUNK * from.bytes())) {
                let wide = &mut wide[..out.len()];
                match from {
                    Dtype::I64 => each(wide, typed(x), |x: i64| formats::signed_to_double_odd(x as u64)),
                    Dtype::U64 => each(wide, typed(x), formats::unsigned_to_double_odd::<u64>),
                    exact => direct(exact, Dtype::F64, bytemuck::cast_slice_mut(wide), x),
                }
                each(out, wide, double_to_single_zero::<f64>);
            }
        }
        (Dtype::I64, Dtype::F64) => {
            each(typed_mut(out), typed(x), |x: i64| formats::signed_to_double_zero(x as u64));
        }
        (Dtype::U64, Dtype::F64) => each(typed_mut(out), typed(x), formats::unsigned_to_double_zero::<u64>),
        _ => direct(from, to, out, x),
    }
}

/// A loop between two native types with `as`, which has the results of the table of this module.
macro_rules! loop_as {
    ($out:ident, $x:ident, $from:ty, $to:ty) => {
        each(typed_mut($out), typed($x), |x: $from| x as $to)
    };
}

/// A vectorized loop from a float to an integer of at most 32 bits, with the results of `as`.
macro_rules! loop_saturate {
    ($out:ident, $x:ident, $from:ty, $to:ty) => {
        each(typed_mut($out), typed($x), |x: $from| {
            formats::saturate(f64::from(x), <$to>::MIN as f64, <$to>::MAX as f64) as $to
        })
    };
}

macro_rules! loop_bool {
    ($out:ident, $x:ident, $from:ty) => {
        each($out, typed($x), |x: $from| u8::from(x != <$from>::default()))
    };
}

/// Converts between integers, binary32 and binary64, rounding to nearest even.
fn direct(from: Dtype, to: Dtype, out: &mut [u8], x: &[u8]) {
    match (from, to) {
        (_, Dtype::I1) => to_bool(from, out, x),
        (Dtype::F32, Dtype::F64) => loop_as!(out, x, f32, f64),
        (Dtype::F64, Dtype::F32) => loop_as!(out, x, f64, f32),
        (Dtype::F32, _) => from_f32(to, out, x),
        (Dtype::F64, _) => from_f64(to, out, x),
        (_, Dtype::F32) => to_f32(from, out, x),
        (_, Dtype::F64) => to_f64(from, out, x),
        _ => between_integers(from, to, out, x),
    }
}

fn to_bool(from: Dtype, out: &mut [u8], x: &[u8]) {
    match (from, from.bytes()) {
        (Dtype::F32, _) => loop_bool!(out, x, f32),
        (Dtype::F64, _) => loop_bool!(out, x, f64),
        (_, 1) => loop_bool!(out, x, u8),
        (_, 2) => loop_bool!(out, x, u16),
        (_, 4) => loop_bool!(out, x, u32),
        _ => loop_bool!(out, x, u64),
    }
}

/// Defines a function that converts between one native type and each integer type.
macro_rules! per_integer {
    (from $name:ident, $float:ty) => {
        fn $name(to: Dtype, out: &mut [u8], x: &[u8]) {
            match to {
                Dtype::I8 => loop_saturate!(out, x, $float, i8),
                Dtype::I16 => loop_saturate!(out, x, $float, i16),
                Dtype::I32 => loop_saturate!(out, x, $float, i32),
                Dtype::I64 => loop_as!(out, x, $float, i64),
                Dtype::U8 => loop_saturate!(out, x, $float, u8),
                Dtype::U16 => loop_saturate!(out, x, $float, u16),
                Dtype::U32 => loop_saturate!(out, x, $float, u32),
                Dtype::U64 => loop_as!(out, x, $float, u64),
                other => panic!("{other} is not an integer type"),
            }
        }
    };
    (to $name:ident, $float:ty) => {
        fn $name(from: Dtype, out: &mut [u8], x: &[u8]) {
            match from {
                Dtype::I8 => loop_as!(out, x, i8, $float),
                Dtype::I16 => loop_as!(out, x, i16, $float),
                Dtype::I32 => loop_as!(out, x, i32, $float),
                Dtype::I64 => loop_as!(out, x, i64, $float),
                Dtype::I1 | Dtype::U8 => loop_as!(out, x, u8, $float),
                Dtype::U16 => loop_as!(out, x, u16, $float),
                Dtype::U32 => loop_as!(out, x, u32, $float),
                Dtype::U64 => loop_as!(out, x, u64, $float),
                other => panic!("{other} is not an integer type"),
            }
        }
    };
}
per_integer!(from from_f32, f32);
per_integer!(from from_f64, f64);
per_integer!(to to_f32, f32);
per_integer!(to to_f64, f64);

fn between_integers(from: Dtype, to: Dtype, out: &mut [u8], x: &[u8]) {
    match (from.bytes(), from.is_signed(), to.bytes()) {
        (1, true, 2) => loop_as!(out, x, i8, i16),
        (1, true, 4) => loop_as!(out, x, i8, i32),
        (1, true, _) => loop_as!(out, x, i8, i64),
        (2, true, 4) => loop_as!(out, x, i16, i32),
        (2, true, 8) => loop_as!(out, x, i16, i64),
        (4, true, 8) => loop_as!(out, x, i32, i64),
        (1, false, 2) => loop_as!(out, x, u8, u16),
        (1, false, 4) => loop_as!(out, x, u8, u32),
        (1, false, _) => loop_as!(out, x, u8, u64),
        (2, false, 4) => loop_as!(out, x, u16, u32),
        (2, false, 8) => loop_as!(out, x, u16, u64),
        (4, false, 8) => loop_as!(out, x, u32, u64),
        (2, _, _) => loop_as!(out, x, u16, u8),
        (4, _, 1) => loop_as!(out, x, u32, u8),
        (4, _, _) => loop_as!(out, x, u32, u16),
        (_, _, 1) => loop_as!(out, x, u64, u8),
        (_, _, 2) => loop_as!(out, x, u64, u16),
        (_, _, _) => loop_as!(out, x, u64, u32),
    }
}
