//! Tests the machine code of operations on integers and masks.

use tilewright_native::{
    Builder,
    ir::{IntBinary, IntCompare, MaskBinary, Type, Value},
};

use crate::harness::{Random, integers, targets};

fn int_reference(function: IntBinary, x: i64, y: i64) -> Option<i64> {
    use IntBinary as F;
    Some(match function {
        F::Add => x.wrapping_add(y),
        F::Sub => x.wrapping_sub(y),
        F::Mul => x.wrapping_mul(y),
        F::And => x & y,
        F::Or => x | y,
        F::Xor => x ^ y,
        F::Shl | F::Shr | F::Sar if !(0..64).contains(&y) => return None,
        F::Shl => x << y,
        F::Shr => ((x as u64) >> y) as i64,
        F::Sar => x >> y,
        F::Min => x.min(y),
        F::Max => x.max(y),
        F::DivSigned => x.checked_div(y)?,
        F::DivUnsigned => (x as u64).checked_div(y as u64)? as i64,
        F::RemSigned => x.checked_rem(y)?,
        F::RemUnsigned => (x as u64).checked_rem(y as u64)? as i64,
    })
}

const INTEGERS: [i64; 16] = [
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    8,
    63,
    i64::MAX,
    i64::MIN,
    0x7fff_ffff,
    0x8000_0000,
    -0x8000_0000,
    1 << 40,
    -12345,
];

#[test]
fn functions_of_integers() {
    use IntBinary as F;
    let target = targets().pop().expect("the processor has an instruction set");
    for function in [
        F::Add,
        F::Sub,
        F::Mul,
        F::And,
        F::Or,
        F::Xor,
        F::Shl,
        F::Shr,
        F::Sar,
        F::Min,
        F::Max,
        F::DivSigned,
        F::DivUnsigned,
        F::RemSigned,
        F::RemUnsigned,
    ] {
        for x in INTEGERS {
            for y in INTEGERS {
                let Some(expected) = int_reference(function, x, y) else { continue };
                let what = format!("{function:?} of {x} and {y}");
                let result = integers(target, &[x, y], |b, v| b.int_binary(function, v[0], v[1]));
                assert_eq!(result, expected, "{what}");
                let result = integers(target, &[x], |b, v| {
                    let y = b.int(y);
                    b.int_binary(function, v[0], y)
                });
                assert_eq!(result, expected, "{what}, a constant");
                let result = integers(target, &[y], |b, v| {
                    let x = b.int(x);
                    let result = b.int_binary(function, x, v[0]);
                    // The operand has a later use, so its register must not be overwritten.
                    let zero = b.int_binary(F::Xor, v[0], v[0]);
                    b.int_binary(F::Add, result, zero)
                });
                assert_eq!(result, expected, "{what}, the first is a constant");
            }
        }
    }
}

#[test]
fn comparisons_of_integers() {
    use IntCompare as F;
    let target = targets().pop().expect("the processor has an instruction set");
    for function in [F::Eq, F::Ne, F::LtSigned, F::LeSigned, F::LtUnsigned, F::LeUnsigned] {
        for x in INTEGERS {
            for y in INTEGERS {
                let holds = match function {
                    F::Eq => x == y,
                    F::Ne => x != y,
                    F::LtSigned => x < y,
                    F::LeSigned => x <= y,
                    F::LtUnsigned => (x as u64) < y as u64,
                    F::LeUnsigned => x as u64 <= y as u64,
                };
                let what = format!("{function:?} of {x} and {y}");
                for constant in 0..3 {
                    let compare = |b: &mut Builder, v: &[Value]| {
                        let a = if constant == 1 { b.int(x) } else { v[0] };
                        let c = if constant == 2 { b.int(y) } else { v[1] };
                        b.int_compare(function, a, c)
                    };
                    assert_eq!(integers(target, &[x, y], compare), i64::from(holds), "{what}");
                    let selected = integers(target, &[x, y], |b, v| {
                        let condition = compare(b, v);
                        let (on, off) = (b.int(17), b.int(-4));
                        b.int_select(condition, on, off)
                    });
                    assert_eq!(selected, if holds { 17 } else { -4 }, "{what}");
                    let branched = integers(target, &[x, y], |b, v| {
                        let condition = compare(b, v);
                        let (first, second, after) = (b.block(), b.block(), b.block());
                        let result = b.parameter(after, Type::Int);
                        b.branch(condition, (first, &[]), (second, &[]));
                        b.switch_to(first);
                        b.jump(after, &[v[0]]);
                        b.switch_to(second);
                        b.jump(after, &[v[1]]);
                        b.switch_to(after);
                        result
                    });
                    assert_eq!(branched, if holds { x } else { y }, "{what}");
                }
            }
        }
    }
}

#[test]
fn extensions_and_accesses_of_integers() {
    let target = targets().pop().expect("the processor has an instruction set");
    for x in INTEGERS.into_iter().chain([0x1234_5678_9abc_def0, 0x0f0f_8f8f_8f8f_8f8f]) {
        for bits in [8u8, 16, 32] {
            let unused = 64 - u32::from(bits);
            assert_eq!(integers(target, &[x], |b, v| b.int_extend(bits, true, v[0])), x << unused >> unused);
            let zeros = ((x as u64) << unused >> unused) as i64;
            assert_eq!(integers(target, &[x], |b, v| b.int_extend(bits, false, v[0])), zeros);
            let loaded = integers(target, &[x], |b, _| {
                let argument = b.argument();
                b.int_load(bits / 8, argument, 0)
            });
            assert_eq!(loaded, zeros);
            let stored = integers(target, &[x, -1], |b, v| {
                let argument = b.argument();
                b.int_store(bits / 8, argument, 8, v[0]);
                b.int_load(8, argument, 8)
            });
            assert_eq!(stored as u64, zeros as u64 | u64::MAX << bits);
        }
    }
}

#[test]
fn masks() {
    for target in targets() {
        let all = (1i64 << target.lanes()) - 1;
        let mut random = Random(17);
        for count in [i64::MIN, -1, 0, 1, 5, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1 << 32, i64::MAX] {
            let bits = integers(target, &[count], |b, v| {
                let mask = b.first_lanes(v[0]);
                b.mask_bits(mask)
            });
            let lanes = count.clamp(0, target.lanes() as i64);
            assert_eq!(bits, (1 << lanes) - 1, "FirstLanes({count})");
        }
        for _ in 0..20 {
            let [x, y, z] = [0; 3].map(|_| random.next() as i64);
            let run = |body: &dyn Fn(&mut Builder, [Value; 3]) -> Value| {
                integers(target, &[x, y, z], |b, v| {
                    let masks = [v[0], v[1], v[2]].map(|bits| b.mask_of_bits(bits));
                    let result = body(b, masks);
                    b.mask_bits(result)
                })
            };
            assert_eq!(run(&|_, [x, ..]| x), x & all);
            assert_eq!(run(&|b, [x, ..]| b.mask_not(x)), !x & all);
            assert_eq!(run(&|b, [x, y, z]| b.mask_select(x, y, z)), (x & y | !x & z) & all);
            let functions: [(MaskBinary, fn(i64, i64) -> i64); 4] = [
                (MaskBinary::And, |x, y| x & y),
                (MaskBinary::Or, |x, y| x | y),
                (MaskBinary::Xor, |x, y| x ^ y),
                (MaskBinary::AndNot, |x, y| !x & y),
            ];
            for (function, reference) in functions {
                assert_eq!(run(&|b, [x, y, _]| b.mask_binary(function, x, y)), reference(x, y) & all);
                for constant in [false, true] {
                    let result = run(&|b, [x, ..]| {
                        let constant = b.mask(constant);
                        b.mask_binary(function, x, constant)
                    });
                    assert_eq!(result, reference(x, if constant { -1 } else { 0 }) & all);
                }
            }
        }
    }
}
