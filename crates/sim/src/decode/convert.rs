//! Decodes conversions between types.

use tilewright_ptx::isa::{self, Rounding as R, ScalarType};

use super::arithmetic::{Operands, rounding};
use super::lift::{map1, map2, map3};
use super::{Class, Decoded, Decoder};
use crate::fault::FaultKind;
use crate::numeric::convert::{self, Conversion};
use crate::numeric::integer::Int;
use crate::numeric::{Format, low};

#[derive(Clone, Copy)]
enum Side {
    Int(Int),
    Float(Format),
    /// Two packed numbers of this width.
    Pair(Format, u32),
}

fn side(ty: ScalarType) -> Decoded<Side> {
    use ScalarType as T;
    Ok(match ty {
        T::F16x2 => Side::Pair(Format::F16, 16),
        T::Bf16x2 => Side::Pair(Format::BF16, 16),
        T::E4m3x2 => Side::Pair(Format::E4M3, 8),
        T::E5m2x2 => Side::Pair(Format::E5M2, 8),
        T::E2m3x2 => Side::Pair(Format::E2M3, 8),
        T::E3m2x2 => Side::Pair(Format::E3M2, 8),
        T::E2m1x2 => Side::Pair(Format::E2M1, 4),
        T::Tf32 => Side::Float(Format::TF32),
        T::Ue8m0x2 => return Err(FaultKind::Unsupported("conversions of ue8m0".into())),
        // tidy: wildcard because the rest are the types of arithmetic.
        _ => match Operands::of(ty)? {
            Operands::Float(kind) => Side::Float(kind.format()),
            Operands::Int(int) => Side::Int(int),
            Operands::Floats(_) | Operands::Ints(_) => {
                return Err(FaultKind::Unsupported(format!("conversions of {ty}")));
            }
        },
    })
}

impl Decoder<'_> {
    pub(super) fn decode_cvt(&mut self, i: &isa::Cvt) -> Decoded {
        self.class = Class::Convert;
        if i.c.is_some() {
            return Err(FaultKind::Unsupported("stochastic rounding, `.rs`".into()));
        }
        let (d, width, a) = (self.register(i.d), self.width(i.d), self.source(i.a, i.from)?);
        let round = rounding(i.rounding)?;
        let flush = i.ftz;
        let conversion = |from, to| Conversion {
            rounding: round,
            integral: matches!(i.rounding, Some(R::Rni | R::Rzi | R::Rmi | R::Rpi)),
            flush,
            saturate: i.saturate,
            finite: i.clamp.is_some_and(isa::Clamp::satfinite),
            relu: i.clamp.is_some_and(isa::Clamp::relu),
            ..Conversion::plain(from, to)
        };
        let saturate = i.saturate;
        Ok(match (side(i.from)?, side(i.to)?) {
            (Side::Int(from), Side::Int(to)) => map1(d, a, move |a| {
                extended(convert::between_integers(from, low(a, from.bits), to, saturate), to, width)
            }),
            (Side::Int(from), Side::Float(to)) => {
                let one = Conversion { saturate, ..Conversion::plain(to, to) };
                map1(d, a, move |a| {
                    let result = convert::from_integer(from, low(a, from.bits), to, round);
                    if saturate { one.apply(result) } else { result }
                })
            }
            (Side::Float(from), Side::Int(to)) => {
                map1(d, a, move |a| extended(convert::to_integer(from, a, to, round, flush), to, width))
            }
            (Side::Float(from), Side::Float(to)) => {
                let conversion = conversion(from, to);
                if from == Format::F16 && to == Format::F32 && !saturate {
                    return Ok(map1(d, a, |a| {
                        let value = half::f16::from_bits(a as u16);
                        if value.is_nan() { Format::F32.nan() } else { u64::from(value.to_f32().to_bits()) }
                    }));
                }
                map1(d, a, move |a| conversion.apply(a))
            }
            (Side::Float(from), Side::Pair(to, bits)) => {
                let Some(b) = i.b else {
                    let text = "a conversion to a pair needs two operands, but has one";
                    return Err(FaultKind::Illegal(text.into()));
                };
                let (b, conversion) = (self.source(b, i.from)?, conversion(from, to));
                map2(d, [a, b], move |a, b| conversion.apply(b) | conversion.apply(a) << bits)
            }
            (Side::Pair(from, from_bits), Side::Pair(to, to_bits)) => {
                let conversion = conversion(from, to);
                map1(d, a, move |a| {
                    let upper = conversion.apply(low(a >> from_bits, from_bits));
                    conversion.apply(low(a, from_bits)) | upper << to_bits
                })
            }
            (Side::Int(_), Side::Pair(..)) | (Side::Pair(..), Side::Int(_) | Side::Float(_)) => {
                let text = format!("a conversion from {} to {} does not exist", i.from, i.to);
                return Err(FaultKind::Illegal(text));
            }
        })
    }

    pub(super) fn decode_cvt_pack(&mut self, i: &isa::CvtPack) -> Decoded {
        self.class = Class::Convert;
        let (Operands::Int(from), to) =
            (Operands::of(i.from)?, Int { bits: i.to.bits(), signed: i.to.is_signed() })
        else {
            return Err(FaultKind::Illegal(format!("`cvt.pack` does not exist for the type {}", i.from)));
        };
        let (d, a, b) = (self.register(i.d), self.source(i.a, i.from)?, self.source(i.b, i.from)?);
        let c = match i.c {
            Some(c) => self.source(c, ScalarType::B32)?,
            None => self.constant(0),
        };
        Ok(map3(d, [a, b, c], move |a, b, c| {
            let [upper, lower] = [a, b].map(|x| convert::between_integers(from, x, to, true));
            low(c << (2 * to.bits) | upper << to.bits | lower, 32)
        }))
    }
}

/// Extends an integer to the width of a wider register, as its type requires.
fn extended(value: u64, int: Int, width: u32) -> u64 {
    if width <= int.bits { value } else { low(int.value(value) as u64, width) }
}
