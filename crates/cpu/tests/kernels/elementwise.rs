//! Tests the exact functions of the elementwise table on all types and kinds of operands.

use std::cmp::Ordering;

use tilewright_cpu::kernels::Operand;
use tilewright_cpu::kernels::elementwise::{apply, fill, ramp};
use tilewright_ir::{
    ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Dtype, Element, ElementwiseFamily as Family,
    ElementwiseFn as F, FloatFn, WideProductFn,
};

use crate::oracle::{Number, Random, RandomElements, decode, encode, pack, same, specials, unpack};

/// Returns the smaller number. -0 is below +0.
fn smaller(x: f64, y: f64) -> f64 {
    if x < y || (x == y && x.is_sign_negative()) { x } else { y }
}

fn float_arithmetic(function: ArithmeticFn, x: f64, y: f64, dtype: Dtype) -> f64 {
    let single = |f: fn(f32, f32) -> f32| f64::from(f(x as f32, y as f32));
    match (function, dtype) {
        // Computes fp32 in fp32, so that the expected result is rounded only once.
        (ArithmeticFn::Add, Dtype::F32) => single(|x, y| x + y),
        (ArithmeticFn::Sub, Dtype::F32) => single(|x, y| x - y),
        (ArithmeticFn::Add, _) => x + y,
        (ArithmeticFn::Sub, _) => x - y,
        (ArithmeticFn::Mul, _) => x * y,
        (ArithmeticFn::Min | ArithmeticFn::Max, _) if x.is_nan() => y,
        (ArithmeticFn::Min | ArithmeticFn::Max, _) if y.is_nan() => x,
        (ArithmeticFn::Min, _) => smaller(x, y),
        (ArithmeticFn::Max, _) => -smaller(-x, -y),
        (ArithmeticFn::Neg, _) => -x,
        (ArithmeticFn::Abs, _) => x.abs(),
    }
}

fn float(function: FloatFn, x: f64, y: f64, dtype: Dtype) -> f64 {
    match (function, dtype) {
        // Computes fp32 in fp32, so that the expected result is rounded only once.
        (FloatFn::Div | FloatFn::DivRn, Dtype::F32) => f64::from(x as f32 / y as f32),
        (FloatFn::Div | FloatFn::DivRn, _) => x / y,
        (FloatFn::FloatRem, _) => x % y,
        (FloatFn::MinNan | FloatFn::MaxNan, _) if x.is_nan() || y.is_nan() => f64::NAN,
        (FloatFn::MinNan, _) => smaller(x, y),
        (FloatFn::MaxNan, _) => -smaller(-x, -y),
        (FloatFn::Floor, _) => x.floor(),
        (FloatFn::Ceil, _) => x.ceil(),
        (FloatFn::Sqrt | FloatFn::SqrtRn, Dtype::F32) => (x as f32).sqrt().into(),
        (FloatFn::Sqrt | FloatFn::SqrtRn, _) => x.sqrt(),
        (FloatFn::Fma, _) => panic!("fma has tests of its own"),
    }
}

fn int_arithmetic(function: ArithmeticFn, x: i128, y: i128) -> i128 {
    match function {
        ArithmeticFn::Add => x + y,
        ArithmeticFn::Sub => x - y,
        ArithmeticFn::Mul => x.wrapping_mul(y),
        ArithmeticFn::Neg => -x,
        ArithmeticFn::Abs => x.abs(),
        ArithmeticFn::Min => x.min(y),
        ArithmeticFn::Max => x.max(y),
    }
}

fn division(function: DivisionFn, x: i128, y: i128) -> i128 {
    match function {
        // In -1, all bits are set.
        DivisionFn::IntDiv | DivisionFn::IntRem if y == 0 => -1,
        DivisionFn::IntDiv => x / y,
        DivisionFn::IntRem => x % y,
    }
}

fn bitwise(function: BitwiseFn, x: i128, y: i128, bits: u32) -> i128 {
    // The shift count is the unsigned number with the bits of `y`.
    let count = (y & ((1_i128 << bits) - 1)).min(127) as u32;
    match function {
        BitwiseFn::And => x & y,
        BitwiseFn::Or => x | y,
        BitwiseFn::Xor => x ^ y,
        BitwiseFn::Not => !x,
        BitwiseFn::Shl if count >= bits => 0,
        BitwiseFn::Shl => x << count,
        BitwiseFn::Shr => x >> count,
    }
}

fn wide_product(function: WideProductFn, x: i128, y: i128, dtype: Dtype) -> i128 {
    match function {
        WideProductFn::MulHigh if dtype == Dtype::U64 => ((x as u128 * y as u128) >> 64) as i128,
        WideProductFn::MulHigh => (x * y) >> dtype.bits(),
    }
}

fn comparison(function: ComparisonFn, order: Option<Ordering>) -> bool {
    match function {
        ComparisonFn::Eq => order.is_some_and(Ordering::is_eq),
        ComparisonFn::Ne => order.is_none_or(Ordering::is_ne),
        ComparisonFn::Lt => order.is_some_and(Ordering::is_lt),
        ComparisonFn::Le => order.is_some_and(Ordering::is_le),
        ComparisonFn::Gt => order.is_some_and(Ordering::is_gt),
        ComparisonFn::Ge => order.is_some_and(Ordering::is_ge),
    }
}

fn expect(function: F, dtype: Dtype, x: u64, y: u64) -> u64 {
    let result = match (function.family(), decode(dtype, x), decode(dtype, y)) {
        (Family::Comparison(f), Number::Float(x), Number::Float(y)) => {
            return comparison(f, x.partial_cmp(&y)).into();
        }
        (Family::Comparison(f), Number::Int(x), Number::Int(y)) => {
            return comparison(f, Some(x.cmp(&y))).into();
        }
        (Family::Arithmetic(f), Number::Float(x), Number::Float(y)) => {
            Number::Float(float_arithmetic(f, x, y, dtype))
        }
        (Family::Float(f), Number::Float(x), Number::Float(y)) => Number::Float(float(f, x, y, dtype)),
        (Family::Arithmetic(f), Number::Int(x), Number::Int(y)) => Number::Int(int_arithmetic(f, x, y)),
        (Family::Division(f), Number::Int(x), Number::Int(y)) => Number::Int(division(f, x, y)),
        (Family::Bitwise(f), Number::Int(x), Number::Int(y)) => Number::Int(bitwise(f, x, y, dtype.bits())),
        (Family::WideProduct(f), Number::Int(x), Number::Int(y)) => Number::Int(wide_product(f, x, y, dtype)),
        // tidy: wildcard because the table has no other exact family with one or two operands of
        // these types.
        _ => panic!("{function:?} of {dtype} has tests of its own"),
    };
    match result {
        Number::Int(value) if dtype == Dtype::I1 => encode(dtype, Number::Int(value & 1)),
        value => encode(dtype, value),
    }
}

/// Returns the functions that [`expect`] implements: the exact ones but selections and fma.
fn exact_functions(dtype: Dtype) -> impl Iterator<Item = F> {
    F::ALL.iter().copied().filter(move |function| {
        let info = function.info();
        let has_own_tests = matches!(function.family(), Family::Math(_)) || info.operands.len() > 2;
        info.domain.contains(Element::Value(dtype)) && !has_own_tests
    })
}

/// Checks tiles, scalars and the result buffer as operands.
fn check(function: F, dtype: Dtype, elements: usize, random: &mut Random) {
    let bit = |x: u64| if dtype == Dtype::I1 { x & 1 } else { x };
    let x: Vec<u64> = random.tile(dtype, elements).into_iter().map(bit).collect();
    let y: Vec<u64> = random.tile(dtype, elements).into_iter().map(bit).collect();
    let unary = function.info().operands.len() == 1;
    let result = function.info().signature;
    let compares = result == tilewright_ir::Signature::Compare;
    let out_dtype = if compares { Dtype::I1 } else { dtype };
    let (tile_x, tile_y) = (pack(dtype, &x), pack(dtype, &y));
    let operand = |form: char, tile: &'_ [u64], packed: &'static [u8]| match form {
        't' => Operand::Tile(packed),
        's' => Operand::Scalar(tile.first().copied().unwrap_or(1) | garbage(dtype)),
        _ => Operand::Out,
    };
    let forms = if compares { "tt ts st ss" } else { "tt ts st ss ot os to so oo" };
    for form in forms.split(' ') {
        let forms: Vec<char> = form.chars().collect();
        // The tiles are leaked, because `operand` takes `'static` slices.
        let leak = |buffer: &tilewright_cpu::kernels::buffer::Buffer| -> &'static [u8] {
            let copy: &'static mut tilewright_cpu::kernels::buffer::Buffer =
                Box::leak(Box::new(buffer.clone()));
            copy.bytes()
        };
        let operands = [operand(forms[0], &x, leak(&tile_x)), operand(forms[1], &y, leak(&tile_y))];
        let before = if forms[0] == 'o' { &x } else { &y };
        let mut out = if compares { pack(Dtype::I1, &vec![7; elements]) } else { pack(dtype, before) };
        apply(function, dtype, out.bytes_mut(), if unary { &operands[..1] } else { &operands });
        for (index, out) in unpack(out_dtype, out.bytes()).into_iter().enumerate() {
            let pick = |form: char, tile: &[u64]| match form {
                't' => tile[index],
                's' => tile[0],
                _ => before[index],
            };
            let (x, y) = (pick(forms[0], &x), pick(forms[1], &y));
            let expect = expect(function, dtype, x, y);
            assert!(
                same(out_dtype, out, expect),
                "{function:?} {dtype} {form} element {index} of {elements}: {x:#x} {y:#x} ({:?} {:?}) gives {out:#x}, expected {expect:#x}",
                decode(dtype, x),
                decode(dtype, y),
            );
        }
    }
}

/// Returns bits above the width of a scalar, which the kernel has to ignore.
fn garbage(dtype: Dtype) -> u64 {
    if dtype.bytes() == 8 { 0 } else { 0xa5 << 56 }
}

#[test]
fn exact_functions_of_floats() {
    let mut random = Random(10);
    for &dtype in Dtype::ALL.iter().filter(|dtype| dtype.is_float()) {
        for function in exact_functions(dtype) {
            for elements in [1, 2, 7, 31, 32, 33, 64, 257, 1024] {
                check(function, dtype, elements, &mut random);
            }
        }
    }
}

#[test]
fn functions_of_integers() {
    let mut random = Random(11);
    for &dtype in Dtype::ALL.iter().filter(|dtype| dtype.is_int()) {
        for function in exact_functions(dtype) {
            for elements in [1, 2, 7, 31, 32, 33, 64, 257, 1024] {
                check(function, dtype, elements, &mut random);
            }
        }
    }
}

/// Input: every pair of 8-bit integers.
#[test]
fn small_division_is_exhaustive() {
    for dtype in [Dtype::I8, Dtype::U8] {
        for function in [F::IntDiv, F::IntRem] {
            for y in 0..256 {
                let x: Vec<u64> = (0..256).collect();
                let mut out = pack(dtype, &x);
                apply(function, dtype, out.bytes_mut(), &[Operand::Out, Operand::Scalar(y)]);
                for (&x, out) in x.iter().zip(unpack(dtype, out.bytes())) {
                    assert_eq!(out, expect(function, dtype, x, y), "{function:?} {dtype} {x} {y}");
                }
            }
        }
    }
}

/// Input: all 8-bit integers and special wider integers, divided by 0.
#[test]
fn division_by_zero_has_a_value() {
    for &dtype in Dtype::ALL.iter().filter(|dtype| dtype.is_int()) {
        let ones = u64::MAX >> (64 - dtype.bits());
        let x: Vec<u64> =
            (0..256).map(|i| i & ones).chain(specials(dtype).into_iter().map(|x| x & ones)).collect();
        let zeros = vec![0; x.len()];
        let (packed_x, packed_y) = (pack(dtype, &x), pack(dtype, &zeros));
        let (tile_x, tile_y) = (Operand::Tile(packed_x.bytes()), Operand::Tile(packed_y.bytes()));
        for (operands, before) in [
            ([tile_x, tile_y], &zeros),
            ([tile_x, Operand::Scalar(0)], &zeros),
            ([tile_x, Operand::Out], &zeros),
            ([Operand::Out, tile_y], &x),
        ] {
            let run = |function| {
                let mut out = pack(dtype, before);
                apply(function, dtype, out.bytes_mut(), &operands);
                unpack(dtype, out.bytes())
            };
            assert_eq!(run(F::IntDiv), vec![ones; x.len()], "{dtype}");
            assert_eq!(run(F::IntRem), vec![ones; x.len()], "{dtype}");
        }
    }
}

#[test]
fn selection() {
    let mut random = Random(12);
    for &dtype in Dtype::ALL {
        for elements in [1, 5, 32, 33, 100] {
            let condition: Vec<u64> = (0..elements).map(|_| random.bits() & 1).collect();
            let (x, y) = (random.tile(dtype, elements), random.tile(dtype, elements));
            let packed = (pack(Dtype::I1, &condition), pack(dtype, &x), pack(dtype, &y));
            let (tile_c, tile_x, tile_y) = (
                Operand::Tile(packed.0.bytes()),
                Operand::Tile(packed.1.bytes()),
                Operand::Tile(packed.2.bytes()),
            );
            for (operands, before, pick) in [
                ([tile_c, tile_x, tile_y], &x, None),
                ([tile_c, Operand::Out, tile_y], &x, None),
                ([tile_c, tile_x, Operand::Out], &y, None),
                ([Operand::Scalar(1), tile_x, tile_y], &y, Some(1)),
                ([Operand::Scalar(0), tile_x, Operand::Out], &y, Some(0)),
            ] {
                let mut out = pack(dtype, before);
                apply(F::Select, dtype, out.bytes_mut(), &operands);
                for (index, out) in unpack(dtype, out.bytes()).into_iter().enumerate() {
                    let on = pick.unwrap_or(condition[index]) != 0;
                    assert_eq!(out, if on { x[index] } else { y[index] });
                }
            }
        }
    }
}

/// Compares x * y + z of binary16 with integers, as multiples of 2^-48 in 128 bits.
#[test]
fn fma_of_binary16_is_rounded_once() {
    let mut random = Random(13);
    let scaled = |bits: u64, by: i32| match decode(Dtype::F16, bits) {
        Number::Float(x) => (x * 2f64.powi(by)) as i128,
        Number::Int(_) => unreachable!("a float type"),
    };
    let finite = |random: &mut Random| loop {
        let bits = random.element(Dtype::F16);
        if bits & 0x7c00 != 0x7c00 {
            return bits;
        }
    };
    let n = 40_000;
    let tiles: [Vec<u64>; 3] = std::array::from_fn(|_| (0..n).map(|_| finite(&mut random)).collect());
    let packed = tiles.each_ref().map(|tile| pack(Dtype::F16, tile));
    let mut out = pack(Dtype::F16, &tiles[2]);
    let operands = [Operand::Tile(packed[0].bytes()), Operand::Tile(packed[1].bytes()), Operand::Out];
    apply(F::Fma, Dtype::F16, out.bytes_mut(), &operands);
    for (index, out) in unpack(Dtype::F16, out.bytes()).into_iter().enumerate() {
        let [x, y, z] = tiles.each_ref().map(|tile| tile[index]);
        let exact = scaled(x, 24) * scaled(y, 24) + (scaled(z, 24) << 24);
        if exact == 0 {
            assert_eq!(out & 0x7fff, 0);
            continue;
        }
        // The oracle rounds 53 bits. Rounding to odd first keeps what it needs.
        let excess = (128 - exact.unsigned_abs().leading_zeros()).saturating_sub(53);
        let kept = exact.unsigned_abs() >> excess;
        let odd = kept | u128::from(kept << excess != exact.unsigned_abs());
        let value = odd as f64 * 2f64.powi(excess as i32 - 48) * if exact < 0 { -1.0 } else { 1.0 };
        assert_eq!(out, encode(Dtype::F16, Number::Float(value)), "{x:#x} * {y:#x} + {z:#x}");
    }
}

#[test]
fn fma_of_native_floats() {
    let mut random = Random(14);
    for elements in [1, 33, 100] {
        let tiles: [Vec<u64>; 3] = std::array::from_fn(|_| random.tile(Dtype::F32, elements));
        let packed = tiles.each_ref().map(|tile| pack(Dtype::F32, tile));
        let all = packed.each_ref().map(|buffer| Operand::Tile(buffer.bytes()));
        for place in 0..4 {
            let mut operands = all;
            let mut out = pack(Dtype::F32, &tiles[place % 3]);
            if place < 3 {
                operands[place] = Operand::Out;
            }
            apply(F::Fma, Dtype::F32, out.bytes_mut(), &operands);
            for (index, out) in unpack(Dtype::F32, out.bytes()).into_iter().enumerate() {
                let [x, y, z] = tiles.each_ref().map(|tile| f32::from_bits(tile[index] as u32));
                let expect = x.mul_add(y, z).to_bits();
                assert!(same(Dtype::F32, out, expect.into()), "{x} * {y} + {z}");
            }
        }
    }
}

#[test]
fn fills_and_ramps() {
    for dtype in [Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64] {
        let mut out = pack(dtype, &[9; 300]);
        ramp(dtype.bytes(), out.bytes_mut(), -3, 7);
        let expect: Vec<u64> = (0..300).map(|i| encode(dtype, Number::Int(i * 7 - 3))).collect();
        assert_eq!(unpack(dtype, out.bytes()), expect);
        fill(dtype.bytes(), out.bytes_mut(), u64::MAX - 4);
        assert_eq!(unpack(dtype, out.bytes()), [encode(dtype, Number::Int(-5)); 300]);
    }
}
