//! Decodes bit manipulation: logic, shifts, bit fields, counts, byte permutations.

use tilewright_ptx::isa::{
    self, BooleanOperation, BoundMode, PermuteMode, ScalarType, ShiftDirection, Source,
};

use super::lift::{map1, map2, map3, map4, map4_pair};
use super::{Action, Class, Decoded, Decoder};
use crate::fault::FaultKind;
use crate::numeric::integer::{self, Int};
use crate::numeric::low;
use crate::registers::Slot;

impl Decoder<'_> {
    pub(super) fn bitwise(
        &mut self,
        ty: ScalarType,
        d: isa::RegisterId,
        (a, b): (Source, Source),
        f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
    ) -> Decoded {
        self.class = Class::Integer;
        let (d, ab) = (self.register(d), [self.source(a, ty)?, self.source(b, ty)?]);
        Ok(map2(d, ab, f))
    }

    /// Decodes a bit function of one operand. The result has 32 bits or the width of the operand.
    pub(super) fn bits(
        &mut self,
        ty: ScalarType,
        d: isa::RegisterId,
        a: Source,
        f: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Decoded {
        self.class = Class::Integer;
        let (d, a) = (self.register(d), self.source(a, ty)?);
        Ok(map1(d, a, f))
    }

    pub(super) fn decode_not(&mut self, i: &isa::Not) -> Decoded {
        let bits = i.ty.bits();
        self.bits(i.ty, i.d, i.a, move |a| low(!a, bits))
    }

    pub(super) fn decode_lop3(&mut self, i: &isa::Lop3) -> Decoded {
        self.class = Class::Integer;
        let Source::Immediate(isa::Immediate::Integer(table)) = i.table else {
            return Err(FaultKind::Illegal("the table of `lop3` is not a constant".into()));
        };
        let table = table as u8;
        let (d, _) = self.destination(i.d.first);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.ty)?];
        let (Some(second), Some(q)) = (i.d.second, i.q) else {
            // The most frequent truth tables have specialized formulas.
            let [a, b, c] = abc;
            return Ok(match table {
                0x80 => map3(d, abc, |a, b, c| a & b & c),
                0xfe => map3(d, abc, |a, b, c| a | b | c),
                0x96 => map3(d, abc, |a, b, c| a ^ b ^ c),
                0xc0 => map2(d, [a, b], |a, b| a & b),
                0xf8 => map3(d, abc, |a, b, c| a | b & c),
                0xea => map3(d, [a, b, c], |a, b, c| a & b | c),
                _ => map3(d, abc, move |a, b, c| integer::logic3(a, b, c, table)),
            });
        };
        let (p, (q, negated)) = (self.destination(second).0, self.predicate(q));
        let (combine, [a, b, c]) = (i.combine, abc);
        Ok(map4_pair([d, p], [a, b, c, q], move |[a, b, c, q]| {
            let result = integer::logic3(a, b, c, table);
            [result, boolean(combine, u64::from(result != 0), q ^ negated)]
        }))
    }

    pub(super) fn decode_shf(&mut self, i: &isa::Shf) -> Decoded {
        self.class = Class::Integer;
        let (left, wrap) = (i.direction == ShiftDirection::Left, i.mode == BoundMode::Wrap);
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, ScalarType::U32)?];
        Ok(map3(d, abc, move |a, b, by| integer::funnel(a, b, by, left, wrap)))
    }

    pub(super) fn decode_shl(&mut self, i: &isa::Shl) -> Decoded {
        self.class = Class::Integer;
        let bits = i.ty.bits();
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, ScalarType::U32)?]);
        Ok(map2(d, ab, move |a, by| integer::shift_left(bits, a, by)))
    }

    pub(super) fn decode_shr(&mut self, i: &isa::Shr) -> Decoded {
        let int = self.integer_type(i.ty)?;
        let (d, ab) = (self.register(i.d), [self.source(i.a, i.ty)?, self.source(i.b, ScalarType::U32)?]);
        Ok(map2(d, ab, move |a, by| int.shift_right(a, by)))
    }

    pub(super) fn decode_prmt(&mut self, i: &isa::Prmt) -> Decoded {
        self.class = Class::Integer;
        let d = self.register(i.d);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, i.ty)?, self.source(i.c, i.ty)?];
        let Some(mode) = i.mode else { return Ok(map3(d, abc, integer::permute)) };
        Ok(map3(d, abc, move |a, b, c| integer::permute(a, b, selector(mode, c & 3))))
    }

    pub(super) fn decode_bfe(&mut self, i: &isa::Bfe) -> Decoded {
        let int = self.integer_type(i.ty)?;
        let (d, u32) = (self.register(i.d), ScalarType::U32);
        let abc = [self.source(i.a, i.ty)?, self.source(i.b, u32)?, self.source(i.c, u32)?];
        Ok(map3(d, abc, move |a, start, len| integer::extract(int, a, start, len)))
    }

    pub(super) fn decode_bfi(&mut self, i: &isa::Bfi) -> Decoded {
        self.class = Class::Integer;
        let (d, bits, u32) = (self.register(i.d), i.ty.bits(), ScalarType::U32);
        let (a, b) = (self.source(i.a, i.ty)?, self.source(i.b, i.ty)?);
        let sources = [a, b, self.source(i.position, u32)?, self.source(i.length, u32)?];
        Ok(map4(d, sources, move |[a, b, start, len]| integer::insert(bits, a, b, start, len)))
    }

    pub(super) fn decode_fns(&mut self, i: &isa::Fns) -> Decoded {
        self.class = Class::Integer;
        let (d, u32) = (self.register(i.d), ScalarType::U32);
        let abc = [self.source(i.mask, u32)?, self.source(i.base, u32)?, self.source(i.offset, u32)?];
        Ok(map3(d, abc, |mask, base, offset| integer::find_nth(mask as u32, base as u32, offset as i32)))
    }

    /// `bmsk`: sets `b` bits from bit `a` on.
    pub(super) fn decode_bmsk(&mut self, i: &isa::Bmsk) -> Decoded {
        let wrap = i.mode == BoundMode::Wrap;
        self.bitwise(i.ty, i.d, (i.a, i.b), move |a, b| {
            let [start, len] = [a, b].map(|x| if wrap { x & 31 } else { x.min(32) });
            low(low(u64::MAX, len as u32) << start, 32)
        })
    }

    /// `szext`: extends the low `b` bits of `a`.
    pub(super) fn decode_szext(&mut self, i: &isa::Szext) -> Decoded {
        let signed = i.ty.is_signed();
        let wrap = i.mode == BoundMode::Wrap;
        self.bitwise(i.ty, i.d, (i.a, i.b), move |a, b| {
            let bits = if wrap { b & 31 } else { b.min(32) } as u32;
            if bits == 0 { 0 } else { low(Int { bits, signed }.value(low(a, bits)) as u64, 32) }
        })
    }

    pub(super) fn decode_bfind(&mut self, i: &isa::Bfind) -> Decoded {
        let (int, shift) = (self.integer_type(i.ty)?, i.shift_amount);
        self.bits(i.ty, i.d, i.a, move |a| integer::find_leading(int, a, shift))
    }
}

/// Combines the result of a comparison with a predicate.
pub(super) fn boolean(operation: Option<BooleanOperation>, a: u64, b: u64) -> u64 {
    match operation {
        None => a,
        Some(BooleanOperation::And) => a & b,
        Some(BooleanOperation::Or) => a | b,
        Some(BooleanOperation::Xor) => a ^ b,
    }
}

/// Returns the `prmt` selector of a mode for the two low bits of the third operand.
fn selector(mode: PermuteMode, c: u64) -> u64 {
    let table: [u64; 4] = match mode {
        PermuteMode::F4e => [0x3210, 0x4321, 0x5432, 0x6543],
        PermuteMode::B4e => [0x5670, 0x6701, 0x7012, 0x0123],
        PermuteMode::Rc8 => [0x0000, 0x1111, 0x2222, 0x3333],
        PermuteMode::Ecl => [0x3210, 0x3211, 0x3222, 0x3333],
        PermuteMode::Ecr => [0x0000, 0x1110, 0x2210, 0x3210],
        PermuteMode::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232],
    };
    table[c as usize]
}

/// Selects `b` where the predicate equals `negated`, else `a`.
pub(super) fn select(d: Slot, [a, b, c]: [Slot; 3], negated: u64) -> Action {
    map3(d, [a, b, c], move |a, b, c| if c == negated { b } else { a })
}
