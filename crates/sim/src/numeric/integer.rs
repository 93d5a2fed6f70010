//! Implements integer arithmetic on the low bits of a `u64`, whose other bits are zero.

use super::{low, signed};

/// An integer type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int {
    /// The width in bits. Predicates and fields have other widths than PTX types.
    pub bits: u32,
    pub signed: bool,
}

impl Int {
    #[inline]
    pub fn value(self, bits: u64) -> i128 {
        if self.signed { i128::from(signed(bits, self.bits)) } else { i128::from(low(bits, self.bits)) }
    }

    pub fn least(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    pub fn greatest(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// Returns the low bits of a value.
    #[inline]
    pub fn wrap(self, value: i128) -> u64 {
        low(value as u64, self.bits)
    }

    /// Clamps a value and returns its bits.
    #[inline]
    pub fn clamp(self, value: i128) -> u64 {
        self.wrap(value.clamp(self.least(), self.greatest()))
    }

    /// Divides, towards zero. A quotient by zero has all bits set, as in the code of `ptxas`. The
    /// minimum divided by -1 wraps.
    #[inline]
    pub fn divide(self, a: u64, b: u64) -> u64 {
        match self.value(b) {
            0 => low(u64::MAX, self.bits),
            divisor => self.wrap(self.value(a) / divisor),
        }
    }

    /// Returns the remainder, with the sign of the dividend. For a divisor of zero, it has all bits
    /// set.
    #[inline]
    pub fn remainder(self, a: u64, b: u64) -> u64 {
        match self.value(b) {
            0 => low(u64::MAX, self.bits),
            divisor => self.wrap(self.value(a) % divisor),
        }
    }

    #[inline]
    pub fn multiply_high(self, a: u64, b: u64) -> u64 {
        if self.bits == 64 && !self.signed {
            return ((u128::from(a) * u128::from(b)) >> 64) as u64;
        }
        self.wrap((self.value(a) * self.value(b)) >> self.bits)
    }

    /// Returns the product in twice the width, for at most 32 bits.
    #[inline]
    pub fn multiply_wide(self, a: u64, b: u64) -> u64 {
        low(self.value(a).wrapping_mul(self.value(b)) as u64, 2 * self.bits)
    }

    /// Multiplies the low 24 bits. Returns the low 32 bits of the product or, with `high`, those
    /// from bit 16 on.
    #[inline]
    pub fn multiply_24(self, a: u64, b: u64, high: bool) -> u64 {
        let narrow = Self { bits: 24, signed: self.signed };
        let product = narrow.value(a) * narrow.value(b);
        low((if high { product >> 16 } else { product }) as u64, 32)
    }

    /// Shifts to the right. Beyond the width, only sign bits or zeros remain.
    #[inline]
    pub fn shift_right(self, a: u64, by: u64) -> u64 {
        self.wrap(self.value(a) >> by.min(u64::from(self.bits)))
    }

    /// `|a - b| + c`.
    #[inline]
    pub fn absolute_difference(self, a: u64, b: u64, c: u64) -> u64 {
        self.wrap((self.value(a) - self.value(b)).abs() + self.value(c))
    }
}

/// Shifts to the left. Beyond the width, the result is zero.
#[inline]
pub fn shift_left(bits: u32, a: u64, by: u64) -> u64 {
    if by >= u64::from(bits) { 0 } else { low(a << by, bits) }
}

/// `bfe`: extracts `len` bits at `start`. The upper bit of the field or, beyond the operand, of the
/// operand extends a signed field.
pub fn extract(ty: Int, a: u64, start: u64, len: u64) -> u64 {
    let (start, len) = ((start & 0xff) as u32, (len & 0xff) as u32);
    if len == 0 {
        return 0;
    }
    let top = (start + len - 1).min(ty.bits - 1);
    let sign = ty.signed && a >> top & 1 == 1;
    let field = if start >= ty.bits { 0 } else { low(a >> start, len.min(ty.bits - start)) };
    let filled = len.min(ty.bits.saturating_sub(start));
    let fill = if sign && filled < 64 { u64::MAX << filled } else { 0 };
    low(field | fill, ty.bits)
}

/// `bfi`: replaces `len` bits of `b` at `start` by the low bits of `a`.
pub fn insert(bits: u32, a: u64, b: u64, start: u64, len: u64) -> u64 {
    let (start, len) = ((start & 0xff) as u32, (len & 0xff) as u32);
    if start >= bits {
        return b;
    }
    let field = low(u64::MAX, len) << start;
    low((b & !field) | ((a << start) & field), bits)
}

/// `bfind`: returns the index of the highest set bit or, for a signed type, of the highest bit that
/// differs from the sign. Returns all ones if there is none. With `shift`, returns the left shift
/// to the highest position.
pub fn find_leading(ty: Int, a: u64, shift: bool) -> u64 {
    let magnitude = if ty.signed && signed(a, ty.bits) < 0 { low(!a, ty.bits) } else { a };
    match magnitude.checked_ilog2() {
        None => 0xffff_ffff,
        Some(bit) => u64::from(if shift { ty.bits - 1 - bit } else { bit }),
    }
}

/// `fns`: returns the index of the `offset`-th set bit from `base` on, downwards if `offset` is
/// negative. For 0, returns `base` if that bit is set. Returns all ones if there is none.
pub fn find_nth(mask: u32, base: u32, offset: i32) -> u64 {
    let is_set = |&bit: &i64| mask >> bit & 1 == 1;
    let base = i64::from(base.min(32));
    let found = match offset {
        0 => Some(base).filter(|bit| *bit < 32).filter(is_set),
        1.. => (base..32).filter(is_set).nth(offset as usize - 1),
        ..0 => (0..=base.min(31)).rev().filter(is_set).nth(offset.unsigned_abs() as usize - 1),
    };
    found.map_or(0xffff_ffff, |bit| bit as u64)
}

/// `prmt` without a mode: each nibble selects a byte of `b:a`, or copies of its sign if the highest
/// bit of the nibble is set.
pub fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = low(a, 32) | b << 32;
    (0..4).fold(0, |result, place| {
        let nibble = selector >> (4 * place) & 0xf;
        let byte = bytes >> (8 * (nibble & 7)) & 0xff;
        let byte = if nibble & 8 == 0 { byte } else { 0xff * (byte >> 7) };
        result | byte << (8 * place)
    })
}

/// `lop3`: looks up each bit of the result in the table.
#[inline]
pub fn logic3(a: u64, b: u64, c: u64, table: u8) -> u64 {
    let mut result = 0;
    for row in 0..8_u8 {
        if table >> row & 1 == 1 {
            let pick = |value: u64, bit: u8| if row >> bit & 1 == 1 { value } else { !value };
            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    low(result, 32)
}

/// `shf`: shifts `b:a`. Returns the upper word of a left shift, or the lower word of a right shift.
pub fn funnel(a: u64, b: u64, by: u64, left: bool, wrap: bool) -> u64 {
    let by = if wrap { by & 31 } else { by.min(32) };
    let pair = low(a, 32) | b << 32;
    if left { low((u128::from(pair) << by >> 32) as u64, 32) } else { low(pair >> by, 32) }
}

/// `dp4a`: adds the dot product of four bytes of `a` and `b` to `c`.
pub fn dot4(a: u64, a_signed: bool, b: u64, b_signed: bool, c: u64) -> u64 {
    let byte = |value: u64, signed, place: u32| Int { bits: 8, signed }.value(value >> (8 * place) & 0xff);
    let sum = (0..4).fold(0, |sum, place| sum + byte(a, a_signed, place) * byte(b, b_signed, place));
    low((c as i128 + sum) as u64, 32)
}

/// `dp2a`: adds the dot product of two halves of `a` and the lower or upper two bytes of `b` to
/// `c`.
pub fn dot2(a: u64, a_signed: bool, b: u64, b_signed: bool, c: u64, high: bool) -> u64 {
    let half = |place: u32| Int { bits: 16, signed: a_signed }.value(a >> (16 * place) & 0xffff);
    let byte = |place: u32| {
        Int { bits: 8, signed: b_signed }.value(b >> (8 * (place + if high { 2 } else { 0 })) & 0xff)
    };
    let sum = (0..2).fold(0, |sum, place| sum + half(place) * byte(place));
    low((c as i128 + sum) as u64, 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S32: Int = Int { bits: 32, signed: true };
    const U32: Int = Int { bits: 32, signed: false };

    #[test]
    fn fields() {
        assert_eq!(extract(U32, 0x1234_5678, 8, 8), 0x56);
        assert_eq!(extract(S32, 0x0000_0080, 0, 8), 0xffff_ff80);
        assert_eq!(extract(S32, 0x8000_0000, 28, 8), 0xffff_fff8);
        assert_eq!(extract(S32, 0x8000_0000, 40, 8), 0xffff_ffff);
        assert_eq!(extract(U32, 0xffff_ffff, 0, 0), 0);
        assert_eq!(extract(Int { bits: 64, signed: true }, 1 << 63, 63, 1), u64::MAX);
        assert_eq!(insert(32, 0xab, 0x1111_1111, 8, 8), 0x1111_ab11);
        assert_eq!(insert(32, 0xab, 0x1111_1111, 32, 8), 0x1111_1111);
        assert_eq!(insert(32, 0xff, 0, 28, 8), 0xf000_0000);
    }

    #[test]
    fn permutations_and_shifts() {
        assert_eq!(permute(0x3322_1100, 0x7766_5544, 0x7531), 0x7755_3311);
        assert_eq!(permute(0x0000_8000, 0, 0x0009), 0x0000_00ff);
        assert_eq!(funnel(0x1111_2222, 0x3333_4444, 16, true, false), 0x4444_1111);
        assert_eq!(funnel(0x1111_2222, 0x3333_4444, 16, false, false), 0x4444_1111);
        assert_eq!(funnel(0x1111_2222, 0x3333_4444, 40, true, false), 0x1111_2222);
        assert_eq!(funnel(0x1111_2222, 0x3333_4444, 32, true, true), 0x3333_4444);
        assert_eq!(funnel(0x1111_2222, 0x3333_4444, 32, false, false), 0x3333_4444);
    }

    #[test]
    fn logic_tables_as_the_isa_computes_them() {
        let (a, b, c) = (0xdead_beef, 0x1234_5678, 0x0f0f_f0f0);
        assert_eq!(logic3(a, b, c, 0xf0 & 0xcc & 0xaa), a & b & c);
        assert_eq!(logic3(a, b, c, 0xf0 | 0xcc | 0xaa), a | b | c);
        assert_eq!(logic3(a, b, c, 0xf0 & 0xcc & !0xaa), a & b & !c);
        assert_eq!(logic3(a, b, c, (0xf0 & 0xcc | 0xaa) ^ 0xff), low(!(a & b | c), 32));
    }

    #[test]
    fn products_and_quotients() {
        let minus = |x: u64| low(x.wrapping_neg(), 32);
        assert_eq!(S32.divide(minus(7), 2), minus(3));
        assert_eq!(S32.remainder(minus(7), 2), minus(1));
        assert_eq!(S32.divide(1 << 31, minus(1)), 1 << 31);
        assert_eq!(S32.multiply_high(minus(2), 3), 0xffff_ffff);
        assert_eq!(U32.multiply_wide(0xffff_ffff, 0xffff_ffff), 0xffff_fffe_0000_0001);
        assert_eq!(Int { bits: 64, signed: false }.multiply_high(u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(S32.shift_right(1 << 31, 200), 0xffff_ffff);
        assert_eq!(dot4(0x0102_03ff, true, 0x0101_0101, false, 10), 15);
        assert_eq!(dot2(0x0002_ffff, true, 0x0403_0201, false, 0, true), 5);
    }

    #[test]
    fn bits_that_are_searched() {
        assert_eq!(find_leading(U32, 0x0001_0000, false), 16);
        assert_eq!(find_leading(U32, 0, false), 0xffff_ffff);
        assert_eq!(find_leading(S32, 0xffff_fff0, false), 3);
        assert_eq!(find_leading(U32, 0x0001_0000, true), 15);
        assert_eq!(find_nth(0b1011_0000, 0, 2), 5);
        assert_eq!(find_nth(0b1011_0000, 7, -2), 5);
        assert_eq!(find_nth(0b1011_0000, 4, 0), 4);
        assert_eq!(find_nth(0b1011_0000, 0, 9), 0xffff_ffff);
    }
}
