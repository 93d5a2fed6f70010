//! Decodes comparisons and selections.

use std::cmp::Ordering;

use tilewright_ptx::isa::{self, Comparison, FloatTest, ScalarType};

use super::arithmetic::Operands;
use super::lift::{map1, map2, map3, map3_pair};
use super::logic::{boolean, select};
use super::{Class, Decoded, Decoder};
use crate::fault::FaultKind;
use crate::numeric::float::{Kind, Mode};
use crate::numeric::integer::Int;
use crate::numeric::low;

impl Decoder<'_> {
    pub(super) fn decode_setp(&mut self, i: &isa::Setp) -> Decoded {
        self.class = Class::Compare;
        let (p, _) = self.destination(i.d.first);
        let (a, b) = (self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let (c, negated) = match i.c {
            Some(c) => self.predicate(c),
            None => (self.constant(1), 0),
        };
        let (combine, comparison) = (i.combine, i.comparison);
        let operands = compared(i.ty)?;
        if let Operands::Floats(kind) = operands {
            let half = comparator(Operands::Float(kind), comparison, i.ftz);
            let Some(q) = i.d.second else {
                return Err(FaultKind::Illegal("`setp` of pairs needs two results, but has one".into()));
            };
            let (q, bits) = (self.destination(q).0, kind.bits());
            return Ok(map3_pair([p, q], [a, b, c], move |a, b, c| {
                let low = half(low(a, bits), low(b, bits));
                [low, half(a >> bits, b >> bits)].map(|holds| boolean(combine, u64::from(holds), c ^ negated))
            }));
        }
        let holds = comparator(operands, comparison, i.ftz);
        let Some(q) = i.d.second else {
            if combine.is_none() {
                return Ok(simple(operands, comparison, i.ftz, p, [a, b]));
            }
            return Ok(map3(p, [a, b, c], move |a, b, c| {
                boolean(combine, u64::from(holds(a, b)), c ^ negated)
            }));
        };
        let q = self.destination(q).0;
        Ok(map3_pair([p, q], [a, b, c], move |a, b, c| {
            let holds = u64::from(holds(a, b));
            [holds, 1 - holds].map(|holds| boolean(combine, holds, c ^ negated))
        }))
    }

    pub(super) fn decode_set(&mut self, i: &isa::Set) -> Decoded {
        self.class = Class::Compare;
        let d = self.register(i.d);
        let (a, b) = (self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let (c, negated) = match i.c {
            Some(c) => self.predicate(c),
            None => (self.constant(1), 0),
        };
        let combine = i.combine;
        let yes = match i.to {
            ScalarType::F32 => u64::from(1.0_f32.to_bits()),
            ScalarType::F16 => 0x3c00,
            ScalarType::Bf16 => 0x3f80,
            ScalarType::F16x2 => 0x3c00_3c00,
            ScalarType::Bf16x2 => 0x3f80_3f80,
            // tidy: wildcard because the other types are integers, for which true is all ones.
            other => low(u64::MAX, other.bits()),
        };
        match compared(i.ty)? {
            Operands::Floats(kind) => {
                let holds = comparator(Operands::Float(kind), i.comparison, i.ftz);
                let bits = kind.bits();
                Ok(map3(d, [a, b, c], move |a, b, c| {
                    let half = |a, b, yes| {
                        if boolean(combine, u64::from(holds(a, b)), c ^ negated) == 1 { yes } else { 0 }
                    };
                    let below = half(low(a, bits), low(b, bits), low(yes, bits));
                    below | half(a >> bits, b >> bits, yes >> bits) << bits
                }))
            }
            operands @ (Operands::Float(_) | Operands::Int(_) | Operands::Ints(_)) => {
                let holds = comparator(operands, i.comparison, i.ftz);
                Ok(map3(d, [a, b, c], move |a, b, c| {
                    if boolean(combine, u64::from(holds(a, b)), c ^ negated) == 1 { yes } else { 0 }
                }))
            }
        }
    }

    pub(super) fn select(&mut self, i: &isa::Selp) -> Decoded {
        self.class = Class::Compare;
        let d = self.register(i.d);
        let (a, b) = (self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let (c, negated) = self.predicate(i.c);
        Ok(select(d, [a, b, c], negated))
    }

    pub(super) fn decode_slct(&mut self, i: &isa::Slct) -> Decoded {
        self.class = Class::Compare;
        let (d, ftz) = (self.register(i.d), i.ftz);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.selector_ty)?];
        Ok(if i.selector_ty == ScalarType::F32 {
            let mode = Mode { flush: ftz, ..Mode::plain(Kind::F32) };
            // -0 compares equal to 0; NaN selects b.
            map3(d, abc, move |a, b, c| if mode.compare(c, 0).is_some_and(Ordering::is_ge) { a } else { b })
        } else {
            map3(d, abc, |a, b, c| if c >> 31 & 1 == 0 { a } else { b })
        })
    }

    pub(super) fn decode_testp(&mut self, i: &isa::Testp) -> Decoded {
        self.class = Class::Compare;
        let Operands::Float(kind) = Operands::of(i.ty)? else {
            return Err(FaultKind::Illegal(format!("`testp` does not exist for the type {}", i.ty)));
        };
        let (d, a, test) = (self.register(i.d), self.source(i.a, i.ty)?, i.test);
        let format = kind.format();
        let exponents = (1_u64 << format.exponent_bits) - 1;
        Ok(map1(d, a, move |a| {
            let (exponent, fraction) = (a >> format.fraction_bits & exponents, low(a, format.fraction_bits));
            u64::from(match test {
                FloatTest::Finite => exponent != exponents,
                FloatTest::Infinite => exponent == exponents && fraction == 0,
                FloatTest::NotANumber => exponent == exponents && fraction != 0,
                FloatTest::Number => exponent != exponents || fraction == 0,
                // Zero counts as normal.
                FloatTest::Normal => exponent != exponents && (exponent != 0 || fraction == 0),
                FloatTest::Subnormal => exponent == 0 && fraction != 0,
            })
        }))
    }

    pub(super) fn decode_copysign(&mut self, i: &isa::Copysign) -> Decoded {
        self.class = Class::Compare;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?]);
        let sign = 1_u64 << (i.ty.bits() - 1);
        Ok(map2(d, ab, move |a, b| a & sign | b & !sign))
    }
}

fn compared(ty: ScalarType) -> Decoded<Operands> {
    match ty {
        ScalarType::Pred => Ok(Operands::Int(Int { bits: 1, signed: false })),
        // tidy: wildcard because all other types are those of arithmetic.
        _ => Operands::of(ty),
    }
}

/// Decodes frequent integer comparisons to specialized loops, and others to the function of
/// [`comparator`].
fn simple(
    operands: Operands,
    comparison: Comparison,
    ftz: bool,
    p: crate::registers::Slot,
    ab: [crate::registers::Slot; 2],
) -> super::Action {
    match (operands, comparison) {
        (Operands::Int(_), Comparison::Eq) => map2(p, ab, |a, b| u64::from(a == b)),
        (Operands::Int(_), Comparison::Ne) => map2(p, ab, |a, b| u64::from(a != b)),
        (Operands::Int(Int { bits: 32, signed: true }), Comparison::Lt) => {
            map2(p, ab, |a, b| u64::from((a as i32) < b as i32))
        }
        (Operands::Int(Int { bits: 32, signed: true }), Comparison::Gt) => {
            map2(p, ab, |a, b| u64::from(a as i32 > b as i32))
        }
        // tidy: wildcard because the general code handles all other comparisons.
        _ => {
            let holds = comparator(operands, comparison, ftz);
            map2(p, ab, move |a, b| u64::from(holds(a, b)))
        }
    }
}

fn comparator(
    operands: Operands,
    comparison: Comparison,
    ftz: bool,
) -> impl Fn(u64, u64) -> bool + Copy + Send + Sync + 'static {
    use Comparison as C;
    let order = move |a: u64, b: u64| match operands {
        Operands::Float(kind) | Operands::Floats(kind) => {
            Mode { flush: ftz, ..Mode::plain(kind) }.compare(a, b)
        }
        Operands::Int(int) | Operands::Ints(int) => {
            let int = match comparison {
                C::Lo | C::Ls | C::Hi | C::Hs => Int { signed: false, ..int },
                // tidy: wildcard because all other comparisons have the signedness of the type.
                _ => int,
            };
            Some(int.value(a).cmp(&int.value(b)))
        }
    };
    move |a, b| match (comparison, order(a, b)) {
        (C::Eq | C::Equ, Some(order)) => order.is_eq(),
        (C::Ne | C::Neu, Some(order)) => order.is_ne(),
        (C::Lt | C::Lo | C::Ltu, Some(order)) => order.is_lt(),
        (C::Le | C::Ls | C::Leu, Some(order)) => order.is_le(),
        (C::Gt | C::Hi | C::Gtu, Some(order)) => order.is_gt(),
        (C::Ge | C::Hs | C::Geu, Some(order)) => order.is_ge(),
        (C::Num, order) => order.is_some(),
        (C::Nan, order) => order.is_none(),
        (C::Equ | C::Neu | C::Ltu | C::Leu | C::Gtu | C::Geu, None) => true,
        (C::Eq | C::Ne | C::Lt | C::Lo | C::Le | C::Ls | C::Gt | C::Hi | C::Ge | C::Hs, None) => false,
    }
}
