//! Compares floating-point arithmetic with the host and with binary64.

mod common;

use common::{Random, evaluate, kernel, launch, memory};

/// Returns rows of f32 numbers of many magnitudes, with zeros, subnormals, infinities and NaN.
fn singles(seed: u64) -> Vec<[u64; 3]> {
    let edges =
        [0.0_f32, -0.0, 1.0, -1.0, 1e-40, -3e-42, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut random = Random(seed);
    let mut pick = move || match random.bits() % 4 {
        0 => random.pick(&edges),
        1 => f32::from_bits(random.bits() as u32),
        _ => random.between(-4.0, 4.0) as f32,
    };
    (0..512).map(|_| [pick(), pick(), pick()].map(|x| u64::from(x.to_bits()))).collect()
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Compares bits; all NaN are the canonical NaN of the ISA.
fn check(instruction: &str, seed: u64, reference: impl Fn([f32; 3]) -> f32) {
    let rows = singles(seed);
    let results = evaluate(instruction, "f32", &["f32"; 3], &rows);
    for (row, result) in rows.into_iter().zip(results) {
        // `black_box` hides the value from the optimizer, which assumes the sign of a square root.
        let expected = std::hint::black_box(reference(row.map(single)));
        let expected = if expected.is_nan() { 0x7fff_ffff } else { expected.to_bits() };
        assert_eq!(result as u32, expected, "{instruction} of {:?}: {:e}", row.map(single), single(result));
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

#[test]
fn single_precision_is_ieee() {
    check("add.rn.f32 %d, %a, %b;", 1, |[a, b, _]| a + b);
    check("sub.f32 %d, %a, %b;", 2, |[a, b, _]| a - b);
    check("mul.rn.f32 %d, %a, %b;", 3, |[a, b, _]| a * b);
    check("fma.rn.f32 %d, %a, %b, %c;", 4, |[a, b, c]| a.mul_add(b, c));
    check("div.rn.f32 %d, %a, %b;", 5, |[a, b, _]| a / b);
    check("sqrt.rn.f32 %d, %a;", 6, |[a, _, _]| a.sqrt());
    check("rcp.rn.f32 %d, %a;", 7, |[a, _, _]| 1.0 / a);
}

#[test]
fn subnormals_are_flushed_where_asked() {
    check("add.ftz.f32 %d, %a, %b;", 8, |[a, b, _]| flush(flush(a) + flush(b)));
    check("mul.rn.ftz.f32 %d, %a, %b;", 9, |[a, b, _]| flush(flush(a) * flush(b)));
}

#[test]
fn results_are_saturated_where_asked() {
    let clamp = |x: f32| if x.is_nan() || x <= 0.0 { 0.0 } else { x.min(1.0) };
    check("add.sat.f32 %d, %a, %b;", 10, |[a, b, _]| clamp(a + b));
    check("fma.rn.sat.f32 %d, %a, %b, %c;", 11, |[a, b, c]| clamp(a.mul_add(b, c)));
}

/// Rounds to f32, up or down. The sums of this test are exact in binary64.
fn directed(exact: f64, up: bool) -> f32 {
    let near = exact as f32;
    match (f64::from(near).partial_cmp(&exact).expect("no NaN here"), up) {
        (std::cmp::Ordering::Less, true) => near.next_up(),
        (std::cmp::Ordering::Greater, false) => near.next_down(),
        _ => near,
    }
}

#[test]
fn directed_roundings() {
    let mut random = Random(12);
    let rows: Vec<[u64; 3]> = (0..256)
        .map(|_| [0; 3].map(|_: u8| u64::from((random.between(-2.0, 2.0) as f32).to_bits())))
        .collect();
    for (modifier, up_if_negative, up_if_positive) in
        [("rm", false, false), ("rp", true, true), ("rz", true, false)]
    {
        for (opcode, exact) in [("add", (|a, b| a + b) as fn(f64, f64) -> f64), ("mul", |a, b| a * b)] {
            let results =
                evaluate(&format!("{opcode}.{modifier}.f32 %d, %a, %b;"), "f32", &["f32"; 2], &rows);
            for ([a, b, _], result) in rows.iter().zip(results) {
                let exact = exact(f64::from(single(*a)), f64::from(single(*b)));
                let expected = directed(exact, if exact < 0.0 { up_if_negative } else { up_if_positive });
                assert_eq!(single(result), expected, "{opcode}.{modifier}");
            }
        }
    }
}

#[test]
fn extrema_as_the_isa_says() {
    let order = |x: f32| (x, !x.is_sign_negative());
    let larger = move |a: f32, b: f32| {
        if a.is_nan() {
            b
        } else if b.is_nan() || order(a) > order(b) {
            a
        } else {
            b
        }
    };
    check("max.f32 %d, %a, %b;", 13, |[a, b, _]| larger(a, b));
    check("min.f32 %d, %a, %b;", 14, |[a, b, _]| -larger(-a, -b));
    check(
        "max.NaN.f32 %d, %a, %b;",
        15,
        |[a, b, _]| if a.is_nan() || b.is_nan() { f32::NAN } else { larger(a, b) },
    );
    check("min.xorsign.abs.f32 %d, %a, %b;", 16, |[a, b, _]| {
        let least = -larger(-a.abs(), -b.abs());
        if least.is_nan() {
            // The test below compares the sign of a NaN from `xorsign`.
            return f32::from_bits(0x7fff_ffff);
        }
        if a.is_sign_negative() == b.is_sign_negative() { least } else { -least }
    });
}

#[test]
fn double_precision_is_ieee() {
    let mut random = Random(17);
    let rows: Vec<[u64; 3]> =
        (0..256).map(|_| [0; 3].map(|_: u8| random.between(-9.0, 9.0).to_bits())).collect();
    let reference = |[a, b, c]: [f64; 3]| [a + b, a * b, a.mul_add(b, c), a / b];
    for (index, instruction) in [
        "add.f64 %d, %a, %b;",
        "mul.rn.f64 %d, %a, %b;",
        "fma.rn.f64 %d, %a, %b, %c;",
        "div.rn.f64 %d, %a, %b;",
    ]
    .into_iter()
    .enumerate()
    {
        let results = evaluate(instruction, "f64", &["f64"; 3], &rows);
        for (row, result) in rows.iter().zip(results) {
            assert_eq!(f64::from_bits(result), reference(row.map(f64::from_bits))[index], "{instruction}");
        }
    }
}

#[test]
fn halves_and_pairs_of_them() {
    use half::{bf16, f16};
    let mut random = Random(18);
    let rows: Vec<[u64; 3]> = (0..512).map(|_| [0; 3].map(|_: u8| random.bits() & 0xffff_ffff)).collect();
    let sums = evaluate("add.f16x2 %d, %a, %b;", "b32", &["b32"; 3], &rows);
    let fused = evaluate("fma.rn.bf16x2 %d, %a, %b, %c;", "b32", &["b32"; 3], &rows);
    for (index, row) in rows.iter().enumerate() {
        for half in 0..2 {
            let [a, b, c] = row.map(|x| (x >> (16 * half)) as u16);
            // These sums and fused multiply-adds are exact in binary64.
            let exact = f16::from_bits(a).to_f64() + f16::from_bits(b).to_f64();
            let result = f16::from_bits((sums[index] >> (16 * half)) as u16);
            assert!(result == f16::from_f64(exact) || result.is_nan() && exact.is_nan(), "{a:#x} + {b:#x}");
            let [a, b, c] = [a, b, c].map(|x| bf16::from_bits(x).to_f64());
            let magnitudes = [a * b, c].map(|x| if x == 0.0 { 0.0 } else { x.abs().log2() });
            if (magnitudes[0] - magnitudes[1]).abs() < 30.0 {
                let result = bf16::from_bits((fused[index] >> (16 * half)) as u16);
                let expected = bf16::from_f64(a.mul_add(b, c));
                assert!(result == expected || result.is_nan() && expected.is_nan(), "{a:e} * {b:e} + {c:e}");
            }
        }
    }
}

type Function = fn(f64) -> f64;

#[test]
fn approximations_lie_within_the_errors_of_the_isa() {
    let mut random = Random(19);
    let rows: Vec<[u64; 3]> = (0..512)
        .map(|_| {
            [random.between(0.01, 30.0), random.between(-3.0, 3.0), 0.0]
                .map(|x| u64::from((x as f32).to_bits()))
        })
        .collect();
    // The function, its operand and reference, and the errors that the ISA allows.
    let table: [(&str, usize, Function, f64, f64); 8] = [
        ("ex2.approx.f32 %d, %b;", 1, f64::exp2, 2_f64.powi(-22), 0.0),
        ("lg2.approx.f32 %d, %a;", 0, f64::log2, 0.0, 2_f64.powi(-22)),
        ("sin.approx.f32 %d, %b;", 1, f64::sin, 0.0, 2_f64.powf(-20.5)),
        ("cos.approx.f32 %d, %b;", 1, f64::cos, 0.0, 2_f64.powf(-20.5)),
        ("rsqrt.approx.f32 %d, %a;", 0, |x| 1.0 / x.sqrt(), 2_f64.powf(-22.9), 0.0),
        ("rcp.approx.ftz.f32 %d, %a;", 0, |x| 1.0 / x, 2_f64.powi(-23), 0.0),
        ("sqrt.approx.f32 %d, %a;", 0, f64::sqrt, 2_f64.powi(-23), 0.0),
        ("tanh.approx.f32 %d, %b;", 1, f64::tanh, 2_f64.powi(-11), 0.0),
    ];
    for (instruction, operand, reference, relative, absolute) in table {
        let results = evaluate(instruction, "f32", &["f32"; 2], &rows);
        for (row, result) in rows.iter().zip(results) {
            let exact = reference(f64::from(single(row[operand])));
            // Rounding to f32 adds half of the last place.
            let allowed = relative * exact.abs() + absolute + exact.abs() * 2_f64.powi(-24);
            let error = (f64::from(single(result)) - exact).abs();
            assert!(error <= allowed, "{instruction} of {}: {error:e} > {allowed:e}", single(row[operand]));
        }
    }
}

#[test]
fn comparisons_know_nan() {
    let rows = singles(20);
    for (comparison, reference) in [
        ("lt", (|a, b| a < b) as fn(f32, f32) -> bool),
        ("ne", |a, b| a != b && !a.is_nan() && !b.is_nan()),
        ("neu", |a, b| a != b),
        ("geu", |a, b| a >= b || a.is_nan() || b.is_nan()),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
        ("nan", |a, b| a.is_nan() || b.is_nan()),
    ] {
        let results = evaluate(&format!("setp.{comparison}.f32 %d, %a, %b;"), "pred", &["f32"; 2], &rows);
        for ([a, b, _], result) in rows.iter().zip(results) {
            let (a, b) = (single(*a), single(*b));
            assert_eq!(result & 1 == 1, reference(a, b), "{a:e} {comparison} {b:e}");
        }
    }
}

#[test]
fn predicates_are_combined() {
    let instruction = "setp.lt.s32 %q, %a, 0;\n    setp.gt.xor.s32 %p|%d, %b, %c, !%q;";
    let rows = common::rows(21, 32);
    let results = evaluate(instruction, "pred", &["s32"; 3], &rows);
    for ([a, b, c], result) in rows.into_iter().zip(results) {
        let [a, b, c] = [a, b, c].map(|x| x as i32);
        assert_eq!(result & 1 == 1, (b <= c) ^ (a >= 0));
    }
}

#[test]
fn conversions() {
    let rows = singles(22);
    for (instruction, reference) in [
        ("cvt.rzi.s32.f32 %d, %a;", (|x| x as i32 as u32) as fn(f32) -> u32),
        ("cvt.rni.u32.f32 %d, %a;", |x| x.round_ties_even() as u32),
        ("cvt.rmi.s32.f32 %d, %a;", |x| x.floor() as i32 as u32),
        ("cvt.rpi.f32.f32 %d, %a;", |x| x.ceil().to_bits()),
        ("cvt.rn.f32.s32 %d, %a;", |x| (x.to_bits() as i32 as f32).to_bits()),
        ("cvt.rn.f32.u32 %d, %a;", |x| (x.to_bits() as f32).to_bits()),
        ("cvt.s32.s8 %d, %a;", |x| i32::from(x.to_bits() as i8) as u32),
        ("cvt.u32.u8 %d, %a;", |x| u32::from(x.to_bits() as u8)),
        ("cvt.sat.s8.s32 %d, %a;", |x| i32::from((x.to_bits() as i32).clamp(-128, 127) as i8) as u32),
        ("cvt.rn.f16x2.f32 %d, %a, %b;", |_| 0),
    ] {
        let results = evaluate(instruction, "b32", &["b32"; 2], &rows);
        for (row, result) in rows.iter().zip(results) {
            let (a, b) = (single(row[0]), single(row[1]));
            if a.is_nan() && instruction.contains(".f32.f32") {
                continue;
            }
            if instruction.contains("f16x2") {
                let [low, high] = [result as u16, (result >> 16) as u16].map(half::f16::from_bits);
                let same = |x: half::f16, y: f32| x == half::f16::from_f32(y) || x.is_nan() && y.is_nan();
                assert!(same(high, a) && same(low, b), "{a:e} and {b:e}");
                continue;
            }
            assert_eq!(result as u32, reference(a), "{instruction} of {a:e}");
        }
    }
}

#[test]
fn fp8_conversions_saturate() {
    // The largest e4m3 number, a larger one, the smallest subnormal, two ties, and NaN. The first
    // operand is the upper byte.
    let pairs = [
        (448.0_f32, 0x7e_u64),
        (1000.0, 0x7e),
        (-0.001_953_125, 0x81),
        (1.0625, 0x38),
        (1.1875, 0x3a),
        (f32::NAN, 0x7f),
    ];
    for (value, bits) in pairs {
        let row = [u64::from(value.to_bits()), 0, 0];
        assert_eq!(
            evaluate("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", &["f32"; 2], &[row])[0],
            bits << 8,
            "{value}"
        );
    }
    let back = evaluate("cvt.rn.f16x2.e5m2x2 %d, %a;", "b32", &["b16"], &[[0x7b3c, 0, 0]])[0];
    assert_eq!([back >> 16, back & 0xffff].map(|x| half::f16::from_bits(x as u16).to_f32()), [57344.0, 1.0]);
}

#[test]
fn classes_of_numbers() {
    // Zeros, subnormal and normal numbers, infinities and NaN. Zero counts as normal.
    let numbers =
        [0_u64, 0x8000_0000, 1, 0x807f_ffff, 0x0080_0000, 0xff7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000];
    let rows: Vec<_> = numbers.iter().map(|number| [*number, 0, 0]).collect();
    let tests = [
        ("finite", [1, 1, 1, 1, 1, 1, 0, 0, 0]),
        ("infinite", [0, 0, 0, 0, 0, 0, 1, 1, 0]),
        ("number", [1, 1, 1, 1, 1, 1, 1, 1, 0]),
        ("notanumber", [0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("normal", [1, 1, 0, 0, 1, 1, 0, 0, 0]),
        ("subnormal", [0, 0, 1, 1, 0, 0, 0, 0, 0]),
    ];
    for (test, expected) in tests {
        assert_eq!(
            evaluate(&format!("testp.{test}.f32 %d, %a;"), "pred", &["f32"], &rows),
            expected,
            "{test}"
        );
    }
}

/// Expected: NaN becomes 0, except from f64 and to 64 bits (ISA 9.0; an H200 confirms it).
#[test]
fn nan_becomes_an_integer() {
    let rows = [[0x7fc0_0000, 0, 0]];
    assert_eq!(evaluate("cvt.rzi.s32.f32 %d, %a;", "s32", &["f32"], &rows), [0]);
    assert_eq!(evaluate("cvt.rni.u64.f32 %d, %a;", "u64", &["f32"], &rows), [1 << 63]);
    assert_eq!(evaluate("cvt.rni.s64.f16 %d, %a;", "s64", &["f16"], &[[0x7e00, 0, 0]]), [1 << 63]);
    let rows = [[f64::NAN.to_bits(), 0, 0]];
    assert_eq!(evaluate("cvt.rzi.u32.f64 %d, %a;", "u32", &["f64"], &rows), [1 << 31]);
    assert_eq!(evaluate("cvt.rzi.s64.f64 %d, %a;", "s64", &["f64"], &rows), [1 << 63]);
}

/// Expected: atomic additions flush subnormals in global, but not in shared memory.
#[test]
fn atomic_sums_of_subnormal_numbers() {
    let body = "
    .shared .b32 here;
    .reg .b64 %p;
    .reg .f32 %a;
    ld.param.u64 %p, [p];
    ld.global.f32 %a, [%p];
    st.shared.f32 [here], %a;
    atom.shared.add.f32 %a, [here], %a;
    ld.shared.f32 %a, [here];
    st.global.f32 [%p+4], %a;
    ld.global.f32 %a, [%p];
    red.global.add.f32 [%p], %a;
    ret;";
    let mut memory_of = [5_u32, 0];
    launch(&kernel(&["p"], body), 1, 1, vec![memory(&mut memory_of)]).unwrap();
    assert_eq!(memory_of, [0, 10]);
}

/// Input: results that overwrite the registers of operands.
#[test]
fn atomic_vectors_read_their_operands_first() {
    let body = "
    .reg .b64 %p;
    .reg .f32 %a, %b;
    ld.param.u64 %p, [p];
    mov.f32 %a, 1.0;
    mov.f32 %b, 2.0;
    atom.global.add.v2.f32 {%b, %a}, [%p], {%a, %b};
    st.global.v2.f32 [%p+8], {%a, %b};
    ret;";
    let mut floats = [10.0_f32, 20.0, 0.0, 0.0];
    let mut bytes = [0_u64; 2];
    bytemuck::cast_slice_mut::<u64, f32>(&mut bytes).copy_from_slice(&floats);
    launch(&kernel(&["p"], body), 1, 1, vec![memory(&mut bytes)]).unwrap();
    floats.copy_from_slice(bytemuck::cast_slice(&bytes));
    assert_eq!(floats, [11.0, 22.0, 20.0, 10.0]);
}

#[test]
fn constants_are_of_the_type_of_the_instruction() {
    let one = [[0; 3]];
    assert_eq!(evaluate("mov.f32 %d, 1.5;", "f32", &[], &one), [u64::from(1.5_f32.to_bits())]);
    assert_eq!(evaluate("mov.f64 %d, -0.1;", "f64", &[], &one), [(-0.1_f64).to_bits()]);
    assert_eq!(evaluate("mov.b32 %d, 0f3f800000;", "b32", &[], &one), [0x3f80_0000]);
    assert_eq!(evaluate("mov.f32 %d, 0f3f800000;", "f32", &[], &one), [0x3f80_0000]);
}

#[test]
fn mixed_sums_are_rounded_once() {
    use half::{bf16, f16};
    type Narrow = fn(f32) -> f32;
    let types: [(&str, Narrow); 2] =
        [("f16", |x| f16::from_f32(x).to_f32()), ("bf16", |x| bf16::from_f32(x).to_f32())];
    for (ty, narrow) in types {
        let head = format!(".reg .b16 %g, %h; cvt.rn.{ty}.f32 %g, %a; cvt.rn.{ty}.f32 %h, %b;");
        check(&format!("{head} add.f32.{ty} %d, %g, %c;"), 40, |[a, _, c]| narrow(a) + c);
        check(&format!("{head} sub.rn.f32.{ty} %d, %g, %c;"), 41, |[a, _, c]| narrow(a) - c);
        check(&format!("{head} fma.rn.f32.{ty} %d, %g, %h, %c;"), 42, |[a, b, c]| {
            narrow(a).mul_add(narrow(b), c)
        });
        check(&format!("{head} add.rn.sat.f32.{ty} %d, %g, %c;"), 43, |[a, _, c]| {
            let sum = narrow(a) + c;
            if sum.is_nan() { 0.0 } else { sum.clamp(0.0, 1.0) + 0.0 }
        });
    }
}
