//! Computes the functions that the hardware approximates, such as `ex2` and `div.full`.
//!
//! They are computed in binary64 and rounded once. The results are within the error bounds of the
//! PTX ISA, but may differ from those of the hardware.

use super::exact::{Number, Rounding};
use super::float::{Kind, Mode};

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    Exp2,
    Log2,
    Sine,
    Cosine,
    Tanh,
    Reciprocal,
    ReciprocalRoot,
    Root,
}

#[inline]
pub fn apply(function: Function, mode: Mode, a: u64) -> u64 {
    let x = mode.kind.to_f64(mode.operand(a));
    let y = match function {
        Function::Exp2 => x.exp2(),
        Function::Log2 => x.log2(),
        Function::Sine => x.sin(),
        Function::Cosine => x.cos(),
        Function::Tanh => x.tanh(),
        Function::Reciprocal => 1.0 / x,
        Function::ReciprocalRoot => 1.0 / x.sqrt(),
        Function::Root => x.sqrt(),
    };
    from_f64(mode, y)
}

/// Divides within 2 ulp. Without `full_range`, a finite divisor above 2^126 in magnitude returns 0,
/// or NaN if the dividend is infinite or NaN.
#[inline]
pub fn divide(mode: Mode, a: u64, b: u64, full_range: bool) -> u64 {
    let (x, y) = (mode.kind.to_f64(mode.operand(a)), mode.kind.to_f64(mode.operand(b)));
    let limit = 2_f64.powi(126);
    if !full_range && y.abs() > limit && y.is_finite() {
        let nothing = if x.is_infinite() || x.is_nan() { f64::NAN } else { 0.0_f64.copysign(x * y) };
        return from_f64(mode, nothing);
    }
    from_f64(mode, x / y)
}

/// `.approx.ftz.f64`: returns a reciprocal, or reciprocal square root, with 32 zero low bits.
pub fn coarse(function: Function, a: u64) -> u64 {
    let mode = Mode { flush: true, ..Mode::plain(Kind::F64) };
    apply(function, mode, a) & 0xffff_ffff_0000_0000
}

fn from_f64(mode: Mode, y: f64) -> u64 {
    match mode.kind {
        Kind::F32 => mode.result(u64::from((y as f32).to_bits())),
        Kind::F64 => mode.result(y.to_bits()),
        Kind::F16 | Kind::Bf16 => {
            let number = Number::of(Kind::F64.format(), y.to_bits());
            mode.result(number.round(mode.kind.format(), Rounding::NearestEven, false))
        }
    }
}
