//! Compares integer arithmetic and bit manipulation with exact integers.

mod common;

use common::{evaluate, rows};

/// Decodes an integer of `width` bits.
fn value(bits: u64, width: u32, signed: bool) -> i128 {
    let value = i128::from(bits) & ((1 << width) - 1);
    if signed && value >> (width - 1) & 1 == 1 { value - (1 << width) } else { value }
}

fn wrap(value: i128, width: u32) -> u64 {
    (value & ((1 << width) - 1)) as u64
}

/// Calls `f` with the name, the width and the signedness of every integer type.
fn each_type(f: impl Fn(&str, u32, bool)) {
    for (ty, bits, signed) in [
        ("u16", 16, false),
        ("s16", 16, true),
        ("u32", 32, false),
        ("s32", 32, true),
        ("u64", 64, false),
        ("s64", 64, true),
    ] {
        f(ty, bits, signed);
    }
}

/// Checks an instruction of two or three operands of one type.
fn check(opcode: &str, operands: usize, reference: impl Fn(i128, i128, i128, u32, bool) -> i128) {
    each_type(|ty, bits, signed| {
        let list = ["%a", "%b", "%c"][..operands].join(", ");
        let rows = rows(u64::from(bits), bits);
        let results = evaluate(&format!("{opcode}.{ty} %d, {list};"), ty, &[ty; 3], &rows);
        for ([a, b, c], result) in rows.into_iter().zip(results) {
            let [x, y, z] = [a, b, c].map(|x| value(x, bits, signed));
            let expected = wrap(reference(x, y, z, bits, signed), bits);
            assert_eq!(result, expected, "{opcode}.{ty} of {a:#x}, {b:#x}, {c:#x}");
        }
    });
}

#[test]
fn sums_and_products_wrap() {
    check("add", 2, |a, b, _, _, _| a + b);
    check("sub", 2, |a, b, _, _, _| a - b);
    check("mul.lo", 2, |a, b, _, _, _| a.wrapping_mul(b));
    check("mul.hi", 2, |a, b, _, bits, _| match (a.checked_mul(b), bits) {
        (Some(product), _) => product >> bits,
        // Only products of unsigned 64-bit numbers exceed a signed 128-bit number.
        (None, _) => ((a as u128 * b as u128) >> bits) as i128,
    });
    check("mad.lo", 3, |a, b, c, _, _| a.wrapping_mul(b).wrapping_add(c));
    check("sad", 3, |a, b, c, _, _| (a - b).abs() + c);
}

#[test]
fn quotients_truncate() {
    check("max", 2, |a, b, _, _, _| a.max(b));
    check("min", 2, |a, b, _, _, _| a.min(b));
    // The ISA leaves division by zero open.
    each_type(|ty, bits, signed| {
        let rows: Vec<_> = rows(7, bits).into_iter().filter(|row| row[1] != 0).collect();
        let quotients = evaluate(&format!("div.{ty} %d, %a, %b;"), ty, &[ty; 3], &rows);
        let remainders = evaluate(&format!("rem.{ty} %d, %a, %b;"), ty, &[ty; 3], &rows);
        for (index, [a, b, _]) in rows.into_iter().enumerate() {
            let [x, y] = [a, b].map(|x| value(x, bits, signed));
            assert_eq!(quotients[index], wrap(x / y, bits), "{a:#x} / {b:#x}, {ty}");
            assert_eq!(remainders[index], wrap(x % y, bits), "{a:#x} % {b:#x}, {ty}");
        }
    });
}

#[test]
fn wide_products_keep_all_bits() {
    for (ty, to, bits, signed) in [
        ("u16", "u32", 16, false),
        ("s16", "s32", 16, true),
        ("u32", "u64", 32, false),
        ("s32", "s64", 32, true),
    ] {
        let rows = rows(3, bits);
        let products = evaluate(&format!("mul.wide.{ty} %d, %a, %b;"), to, &[ty, ty], &rows);
        let sums = evaluate(&format!("mad.wide.{ty} %d, %a, %b, %c;"), to, &[ty, ty, to], &rows);
        for (index, [a, b, c]) in rows.into_iter().enumerate() {
            let product = value(a, bits, signed) * value(b, bits, signed);
            assert_eq!(products[index], wrap(product, 2 * bits), "{a:#x} * {b:#x}, {ty}");
            assert_eq!(sums[index], wrap(product + i128::from(c), 2 * bits), "{ty}");
        }
    }
}

#[test]
fn shifts_too_far_leave_zero_or_the_sign() {
    each_type(|ty, bits, signed| {
        let rows: Vec<_> = rows(11, bits)
            .into_iter()
            .map(|[a, b, c]| [a, if c % 2 == 0 { b % 80 } else { b & 0xffff_ffff }, c])
            .collect();
        let left = evaluate(&format!("shl.b{bits} %d, %a, %b;"), ty, &[ty, "u32"], &rows);
        let right = evaluate(&format!("shr.{ty} %d, %a, %b;"), ty, &[ty, "u32"], &rows);
        for (index, [a, by, _]) in rows.into_iter().enumerate() {
            let far = by >= u64::from(bits);
            let expected = if far { 0 } else { wrap(i128::from(a) << by, bits) };
            assert_eq!(left[index], expected, "{a:#x} << {by}, {ty}");
            assert_eq!(
                right[index],
                wrap(value(a, bits, signed) >> by.min(100), bits),
                "{a:#x} >> {by}, {ty}"
            );
        }
    });
}

#[test]
fn carries_chain() {
    let rows = rows(5, 64);
    // The sum and difference of the 128-bit numbers (high a, low b) and (high c, low a).
    let high = evaluate("add.cc.u64 %at, %b, %a;\n    addc.u64 %d, %a, %c;", "u64", &["u64"; 3], &rows);
    let borrow = evaluate("sub.cc.u64 %at, %b, %a;\n    subc.u64 %d, %a, %c;", "u64", &["u64"; 3], &rows);
    for (index, [a, b, c]) in rows.iter().copied().enumerate() {
        let wide = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        let sum = wide(b, a).wrapping_add(wide(a, c));
        assert_eq!(high[index], (sum >> 64) as u64, "{a:#x} {b:#x} {c:#x}");
        let difference = wide(b, a).wrapping_sub(wide(a, c));
        assert_eq!(borrow[index], (difference >> 64) as u64, "{a:#x} {b:#x} {c:#x}");
    }
    // The carry of a subtraction is that of `a + ~b + 1`, which an addition may use.
    let after_sub = evaluate("sub.cc.u32 %x, %a, %b;\n    addc.u32 %d, %c, 0;", "u32", &["u32"; 3], &rows);
    let after_add = evaluate("add.cc.u32 %x, %a, %b;\n    subc.u32 %d, %c, 0;", "u32", &["u32"; 3], &rows);
    for (index, [a, b, c]) in rows.iter().map(|row| row.map(|x| x as u32)).enumerate() {
        assert_eq!(after_sub[index], u64::from(c.wrapping_add(u32::from(a >= b))), "{a:#x} {b:#x} {c:#x}");
        let is_carry = a.checked_add(b).is_none();
        assert_eq!(after_add[index], u64::from(c.wrapping_sub(u32::from(!is_carry))), "{a:#x} {b:#x} {c:#x}");
    }
    // The halves of `a * b + c`. The low half passes its carry on.
    let product = "
    mul.lo.u32 %x, %a, %b;
    mad.lo.cc.u32 %y, %a, %b, %c;
    madc.hi.u32 %d, %a, %b, 0;";
    let small: Vec<_> = rows.iter().map(|row| row.map(|x| x & 0xffff_ffff)).collect();
    let results = evaluate(product, "u32", &["u32"; 3], &small);
    for ([a, b, c], result) in small.into_iter().zip(results) {
        assert_eq!(
            result,
            (u128::from(a) * u128::from(b) + u128::from(c)) as u64 >> 32,
            "{a:#x} * {b:#x} + {c:#x}"
        );
    }
}

#[test]
fn saturated_sums_stop_at_the_bounds() {
    let rows = rows(9, 32);
    let sums = evaluate("add.sat.s32 %d, %a, %b;", "s32", &["s32"; 3], &rows);
    for ([a, b, _], sum) in rows.into_iter().zip(sums) {
        assert_eq!(sum as u32 as i32, (a as i32).saturating_add(b as i32));
    }
}

#[test]
fn logic_of_three() {
    let rows = rows(13, 32);
    for table in [0x80_u8, 0xfe, 0x96, 0xc0, 0xf8, 0xea, 0x01, 0x6a, 0xd2] {
        let results = evaluate(&format!("lop3.b32 %d, %a, %b, %c, {table};"), "b32", &["b32"; 3], &rows);
        for ([a, b, c], result) in rows.iter().copied().zip(results) {
            // In the table, a selects the upper half, and c the odd entries.
            let bit = |i: u64| u64::from(table) >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1;
            assert_eq!(result, (0..32).fold(0, |word, i| word | bit(i) << i), "{table:#x}");
        }
    }
}

#[test]
fn fields_and_counts() {
    let rows: Vec<_> = rows(17, 32).into_iter().map(|[a, b, c]| [a, b % 40, c % 40]).collect();
    let unsigned = evaluate("bfe.u32 %d, %a, %b, %c;", "u32", &["u32"; 3], &rows);
    let ones = evaluate("popc.b32 %d, %a;", "u32", &["b32"], &rows);
    let zeros = evaluate("clz.b32 %d, %a;", "u32", &["b32"], &rows);
    let reversed = evaluate("brev.b32 %d, %a;", "b32", &["b32"], &rows);
    let found = evaluate("bfind.s32 %d, %a;", "u32", &["s32"], &rows);
    for (index, [a, start, len]) in rows.into_iter().enumerate() {
        let field = if start >= 32 { 0 } else { (a >> start) & ((1 << len) - 1) };
        assert_eq!(unsigned[index], field, "{a:#x} from {start}, {len} bits");
        let a = a as u32;
        assert_eq!(ones[index], u64::from(a.count_ones()));
        assert_eq!(zeros[index], u64::from(a.leading_zeros()));
        assert_eq!(reversed[index], u64::from(a.reverse_bits()));
        let magnitude = if (a as i32) < 0 { !a } else { a };
        assert_eq!(found[index], u64::from(31_u32.wrapping_sub(magnitude.leading_zeros())));
    }
}

#[test]
fn bytes_are_permuted_by_each_mode() {
    let [a, b] = [0x3322_1100_u64, 0x7766_5544];
    // The table of the ISA, by mode and the two low bits of the selector.
    for (mode, results) in [
        ("f4e", [0x3322_1100_u64, 0x4433_2211, 0x5544_3322, 0x6655_4433]),
        ("b4e", [0x5566_7700, 0x6677_0011, 0x7700_1122, 0x0011_2233]),
        ("rc8", [0x0000_0000, 0x1111_1111, 0x2222_2222, 0x3333_3333]),
        ("ecl", [0x3322_1100, 0x3322_1111, 0x3322_2222, 0x3333_3333]),
        ("ecr", [0x0000_0000, 0x1111_1100, 0x2222_1100, 0x3322_1100]),
        ("rc16", [0x1100_1100, 0x3322_3322, 0x1100_1100, 0x3322_3322]),
    ] {
        let rows: Vec<_> = (0..4).map(|c| [a, b, c]).collect();
        assert_eq!(
            evaluate(&format!("prmt.b32.{mode} %d, %a, %b, %c;"), "b32", &["b32"; 3], &rows),
            results,
            "{mode}"
        );
    }
    assert_eq!(evaluate("prmt.b32 %d, %a, %b, 0x7610;", "b32", &["b32"; 2], &[[a, b, 0]]), [0x7766_1100]);
}

#[test]
fn dot_products_of_bytes() {
    let rows = rows(23, 32);
    let mixed = evaluate("dp4a.s32.u32 %d, %a, %b, %c;", "s32", &["s32", "u32", "s32"], &rows);
    for ([a, b, c], result) in rows.into_iter().zip(mixed) {
        let sum =
            (0..4).map(|i| i64::from((a >> (8 * i)) as i8) * i64::from((b >> (8 * i)) as u8)).sum::<i64>();
        assert_eq!(result as u32, (c as i64).wrapping_add(sum) as u32);
    }
}
