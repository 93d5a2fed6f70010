//! Tests the machine code of operations on vectors.

use tilewright_native::ir::{Binary, Compare, Conversion, Lane, Unary};

use crate::harness::{LANES, Random, check, f32_of, low, map, pairs, samples, signed, targets};

fn binary_reference(function: Binary, lane: Lane, x: u64, y: u64) -> u64 {
    use Binary as F;
    let bits = match lane {
        Lane::F32 => {
            let (a, b) = (f32_of(x), f32_of(y));
            let float = match function {
                F::Add => a + b,
                F::Sub => a - b,
                F::Mul => a * b,
                F::Div => a / b,
                F::Lesser => {
                    if a < b {
                        a
                    } else {
                        b
                    }
                }
                F::Greater => {
                    if a > b {
                        a
                    } else {
                        b
                    }
                }
                _ => f32::NAN,
            };
            u64::from(float.to_bits())
        }
        Lane::F64 => {
            let (a, b) = (f64::from_bits(x), f64::from_bits(y));
            let float = match function {
                F::Add => a + b,
                F::Sub => a - b,
                F::Mul => a * b,
                F::Div => a / b,
                F::Lesser => {
                    if a < b {
                        a
                    } else {
                        b
                    }
                }
                F::Greater => {
                    if a > b {
                        a
                    } else {
                        b
                    }
                }
                _ => f64::NAN,
            };
            float.to_bits()
        }
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => {
            let width = 8 * lane.bytes() as u64;
            let (a, b) = (signed(lane, x), signed(lane, y));
            match function {
                F::Add => x.wrapping_add(y),
                F::Sub => x.wrapping_sub(y),
                F::Mul => x.wrapping_mul(y),
                F::Lesser => a.min(b) as u64,
                F::Greater => a.max(b) as u64,
                F::LesserUnsigned => x.min(y),
                F::GreaterUnsigned => x.max(y),
                F::Shl => {
                    if y >= width {
                        0
                    } else {
                        x << y
                    }
                }
                F::Shr => {
                    if y >= width {
                        0
                    } else {
                        x >> y
                    }
                }
                F::Sar => (a >> y.min(width - 1)) as u64,
                F::MulHighSigned => ((i128::from(a) * i128::from(b)) >> width) as u64,
                F::MulHighUnsigned => ((u128::from(x) * u128::from(y)) >> width) as u64,
                _ => 0,
            }
        }
    };
    low(
        lane,
        match function {
            F::And => x & y,
            F::Or => x | y,
            F::Xor => x ^ y,
            F::AndNot => !x & y,
            _ => bits,
        },
    )
}

const FLOAT_FUNCTIONS: [Binary; 10] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Lesser,
    Binary::Greater,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::AndNot,
];
const INTEGER_FUNCTIONS: [Binary; 16] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Lesser,
    Binary::Greater,
    Binary::LesserUnsigned,
    Binary::GreaterUnsigned,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::AndNot,
    Binary::Shl,
    Binary::Shr,
    Binary::Sar,
    Binary::MulHighSigned,
    Binary::MulHighUnsigned,
];

fn functions(lane: Lane) -> &'static [Binary] {
    if lane.is_float() { &FLOAT_FUNCTIONS } else { &INTEGER_FUNCTIONS }
}

#[test]
fn binary_functions() {
    for target in targets() {
        for lane in LANES {
            let inputs = pairs(lane);
            for &function in functions(lane) {
                let results = map(target, &inputs, lane, |b, x| b.binary(function, x[0], x[1]));
                let expected: Vec<u64> = inputs[0]
                    .1
                    .iter()
                    .zip(&inputs[1].1)
                    .map(|(&x, &y)| binary_reference(function, lane, x, y))
                    .collect();
                check(&format!("{function:?} of {lane:?}"), target, lane, &inputs, &results, &expected);
            }
        }
    }
}

#[test]
fn scale() {
    let numbers = [1.0_f32, -1.5, 0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, 1.000_000_1, 0.75, f32::INFINITY];
    let (x, y): (Vec<u64>, Vec<u64>) = numbers
        .iter()
        .flat_map(|&x| (-250..=250).map(move |n| (u64::from(x.to_bits()), u64::from((n as f32).to_bits()))))
        .unzip();
    let product = |x: u64, y: u64| (f64::from(f32_of(x)) * f64::from(f32_of(y)).exp2()) as f32;
    let expected: Vec<u64> = x.iter().zip(&y).map(|(&x, &y)| product(x, y).to_bits().into()).collect();
    let inputs = [(Lane::F32, x), (Lane::F32, y)];
    for target in targets() {
        let results = map(target, &inputs, Lane::F32, |b, x| b.binary(Binary::Scale, x[0], x[1]));
        check("scale", target, Lane::F32, &inputs, &results, &expected);
    }
}

#[test]
fn binary_functions_of_constants() {
    for target in targets() {
        for lane in LANES {
            let samples = samples(lane, &mut Random(3));
            for &function in functions(lane) {
                for &constant in samples.iter().take(24) {
                    let inputs = [(lane, samples.clone())];
                    for is_left in [false, true] {
                        let results = map(target, &inputs, lane, |b, x| {
                            let constant = b.constant(lane, constant);
                            let (left, right) = if is_left { (constant, x[0]) } else { (x[0], constant) };
                            b.binary(function, left, right)
                        });
                        let expected: Vec<u64> = samples
                            .iter()
                            .map(|&x| {
                                let (left, right) = if is_left { (constant, x) } else { (x, constant) };
                                binary_reference(function, lane, left, right)
                            })
                            .collect();
                        let what = format!("{function:?} of {lane:?} with {constant:x} {is_left}");
                        check(&what, target, lane, &inputs, &results, &expected);
                    }
                }
            }
        }
    }
}

#[test]
fn unary_functions() {
    for target in targets() {
        for lane in [Lane::F32, Lane::F64] {
            let inputs = [(lane, samples(lane, &mut Random(5)))];
            for function in [Unary::Sqrt, Unary::Floor, Unary::Ceil] {
                let results = map(target, &inputs, lane, |b, x| b.unary(function, x[0]));
                let expected: Vec<u64> = inputs[0]
                    .1
                    .iter()
                    .map(|&x| match lane {
                        Lane::F32 => {
                            let x = f32_of(x);
                            u64::from(
                                match function {
                                    Unary::Sqrt => x.sqrt(),
                                    Unary::Floor => x.floor(),
                                    Unary::Ceil => x.ceil(),
                                }
                                .to_bits(),
                            )
                        }
                        _ => {
                            let x = f64::from_bits(x);
                            match function {
                                Unary::Sqrt => x.sqrt(),
                                Unary::Floor => x.floor(),
                                Unary::Ceil => x.ceil(),
                            }
                            .to_bits()
                        }
                    })
                    .collect();
                check(&format!("{function:?} of {lane:?}"), target, lane, &inputs, &results, &expected);
            }
        }
    }
}

#[test]
fn multiply_add() {
    for target in targets() {
        for lane in [Lane::F32, Lane::F64] {
            let [x, y] = pairs(lane);
            let z: Vec<u64> =
                x.1.iter().rev().enumerate().map(|(index, &bits)| bits ^ (index as u64 % 5)).collect();
            let inputs = [x, y, (lane, z)];
            // Each combination of constant operands and operands with later uses.
            for variant in 0..32 {
                let constant = if lane == Lane::F32 { u64::from(1.1f32.to_bits()) } else { 1.1f64.to_bits() };
                let choose = |which: u32| variant >> which & 1 == 1;
                let results = map(target, &inputs, lane, |b, v| {
                    let constant = b.constant(lane, constant);
                    let x = if choose(0) { constant } else { v[0] };
                    let y = if choose(1) { constant } else { v[1] };
                    let z = if choose(2) { constant } else { v[2] };
                    let mut result = b.multiply_add(x, y, z);
                    if choose(3) {
                        result = b.binary(Binary::Xor, result, v[0]);
                        result = b.binary(Binary::Xor, result, v[1]);
                    }
                    if choose(4) {
                        result = b.binary(Binary::Xor, result, v[2]);
                    }
                    result
                });
                let expected: Vec<u64> = (0..results.len())
                    .map(|index| {
                        let [a, b, c] = [0, 1, 2].map(|at| inputs[at].1[index]);
                        let x = if choose(0) { constant } else { a };
                        let y = if choose(1) { constant } else { b };
                        let z = if choose(2) { constant } else { c };
                        let mut result = if lane == Lane::F32 {
                            u64::from(f32_of(x).mul_add(f32_of(y), f32_of(z)).to_bits())
                        } else {
                            f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z)).to_bits()
                        };
                        let is_nan = if lane == Lane::F32 {
                            f32_of(result).is_nan()
                        } else {
                            f64::from_bits(result).is_nan()
                        };
                        if is_nan && (choose(3) || choose(4)) {
                            // Any payload of a NaN is correct.
                            return results[index];
                        }
                        if choose(3) {
                            result ^= a ^ b;
                        }
                        if choose(4) {
                            result ^= c;
                        }
                        result
                    })
                    .collect();
                check(
                    &format!("MultiplyAdd of {lane:?}, variant {variant}"),
                    target,
                    lane,
                    &inputs,
                    &results,
                    &expected,
                );
            }
        }
    }
}

fn compare_reference(function: Compare, lane: Lane, x: u64, y: u64) -> bool {
    let ordering = match lane {
        Lane::F32 => f32_of(x).partial_cmp(&f32_of(y)),
        Lane::F64 => f64::from_bits(x).partial_cmp(&f64::from_bits(y)),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => Some(signed(lane, x).cmp(&signed(lane, y))),
    };
    match function {
        Compare::Eq => ordering.is_some_and(std::cmp::Ordering::is_eq),
        Compare::Ne => ordering.is_none_or(std::cmp::Ordering::is_ne),
        Compare::Lt => ordering.is_some_and(std::cmp::Ordering::is_lt),
        Compare::Le => ordering.is_some_and(std::cmp::Ordering::is_le),
        Compare::LtUnsigned => x < y,
        Compare::LeUnsigned => x <= y,
    }
}

#[test]
fn comparisons_and_selections() {
    for target in targets() {
        for lane in LANES {
            let inputs = pairs(lane);
            let floats = [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le];
            let integers = [Compare::LtUnsigned, Compare::LeUnsigned];
            let all = floats.into_iter().chain(integers.into_iter().filter(|_| !lane.is_float()));
            for function in all {
                for to in LANES {
                    let results = map(target, &inputs, to, |b, x| {
                        let mask = b.compare(function, x[0], x[1]);
                        let (on, off) = (b.constant(to, 3), b.constant(to, 0));
                        let other = b.constant(to, 5);
                        let first = b.select(mask, on, off);
                        let second = b.select(mask, off, other);
                        b.binary(Binary::Or, first, second)
                    });
                    let expected: Vec<u64> = inputs[0]
                        .1
                        .iter()
                        .zip(&inputs[1].1)
                        .map(|(&x, &y)| if compare_reference(function, lane, x, y) { 3 } else { 5 })
                        .collect();
                    let what = format!("{function:?} of {lane:?}, select of {to:?}");
                    check(&what, target, to, &inputs, &results, &expected);
                }
            }
            // Selects loaded lanes. One operand may be in memory.
            let results = map(target, &inputs, lane, |b, x| {
                let mask = b.compare(Compare::Lt, x[0], x[1]);
                b.select(mask, x[0], x[1])
            });
            let expected: Vec<u64> = inputs[0]
                .1
                .iter()
                .zip(&inputs[1].1)
                .map(|(&x, &y)| if compare_reference(Compare::Lt, lane, x, y) { x } else { y })
                .collect();
            check(&format!("Select of {lane:?}"), target, lane, &inputs, &results, &expected);
        }
    }
}

#[test]
fn select_uses_a_loaded_operand_once() {
    for target in targets() {
        for lane in LANES {
            let inputs = pairs(lane);
            let results = map(target, &inputs, lane, |b, x| {
                let bits = b.int(0x5a5a);
                let mask = b.mask_of_bits(bits);
                b.select(mask, x[0], x[1])
            });
            let lanes = target.lanes();
            let expected: Vec<u64> = (0..results.len())
                .map(|index| inputs[usize::from(0x5a5a >> (index % lanes) & 1 == 0)].1[index])
                .collect();
            check(&format!("Select of {lane:?}"), target, lane, &inputs, &results, &expected);
        }
    }
}

/// Returns the result of a conversion, if the type represents it.
fn convert_reference(conversion: Conversion, from: Lane, to: Lane, x: u64) -> Option<u64> {
    let f32_bits = |x: f32| u64::from(x.to_bits());
    Some(match conversion {
        Conversion::SignExtend => low(to, signed(from, x) as u64),
        Conversion::ZeroExtend | Conversion::Truncate | Conversion::Bitcast => low(to, x),
        Conversion::SignedToFloat if to == Lane::F32 => f32_bits(signed(from, x) as f32),
        Conversion::SignedToFloat => (signed(from, x) as f64).to_bits(),
        Conversion::UnsignedToFloat if to == Lane::F32 => f32_bits(x as f32),
        Conversion::UnsignedToFloat => (x as f64).to_bits(),
        Conversion::FloatToSigned => {
            let float = if from == Lane::F32 { f64::from(f32_of(x)) } else { f64::from_bits(x) };
            let limit = (1u64 << (8 * to.bytes() - 1)) as f64;
            let float = float.trunc();
            if !(float >= -limit && float < limit) {
                return None;
            }
            low(to, float as i64 as u64)
        }
        Conversion::FloatToFloat if to == Lane::F64 => f64::from(f32_of(x)).to_bits(),
        Conversion::FloatToFloat => f32_bits(f64::from_bits(x) as f32),
        Conversion::HalfToFloat => f32_bits(half::f16::from_bits(x as u16).to_f32()),
        Conversion::FloatToHalf => {
            let half = half::f16::from_f32(f32_of(x));
            if half.is_nan() {
                return None;
            }
            u64::from(half.to_bits())
        }
    })
}

#[test]
fn conversions() {
    use Conversion as C;
    let integers = [Lane::I8, Lane::I16, Lane::I32, Lane::I64];
    let mut cases = Vec::new();
    for from in integers {
        for to in integers {
            if from.bytes() < to.bytes() {
                cases.extend([(C::SignExtend, from, to), (C::ZeroExtend, from, to), (C::Truncate, to, from)]);
            }
        }
    }
    for int in [Lane::I32, Lane::I64] {
        for float in [Lane::F32, Lane::F64] {
            cases.extend([(C::SignedToFloat, int, float), (C::UnsignedToFloat, int, float)]);
            cases.push((C::FloatToSigned, float, int));
        }
    }
    cases.extend([
        (C::FloatToFloat, Lane::F32, Lane::F64),
        (C::FloatToFloat, Lane::F64, Lane::F32),
        (C::HalfToFloat, Lane::I16, Lane::F32),
        (C::FloatToHalf, Lane::F32, Lane::I16),
        (C::Bitcast, Lane::F32, Lane::I32),
        (C::Bitcast, Lane::I64, Lane::F64),
    ]);
    for target in targets() {
        for &(conversion, from, to) in &cases {
            let mut random = Random(11);
            let mut values = samples(from, &mut random);
            for _ in 0..1000 {
                let bits = random.next();
                values.push(low(
                    from,
                    if bits.is_multiple_of(8) { bits } else { bits >> (random.next() % 64) },
                ));
            }
            if from == Lane::I16 {
                values.extend(0..65536);
            }
            let inputs = [(from, values)];
            // The operand is first in memory, then in a register.
            for is_register in [false, true] {
                let results = map(target, &inputs, to, |b, x| {
                    let mut x = x[0];
                    if is_register {
                        let (one, two) = (b.constant(from, 1), b.constant(from, 3));
                        let flipped = b.binary(Binary::Xor, x, one);
                        let flipped = b.binary(Binary::Xor, flipped, two);
                        let two = b.constant(from, 2);
                        x = b.binary(Binary::Xor, flipped, two);
                    }
                    b.convert(conversion, to, x)
                });
                let expected: Vec<u64> = inputs[0]
                    .1
                    .iter()
                    .zip(&results)
                    .map(|(&x, &result)| convert_reference(conversion, from, to, x).unwrap_or(result))
                    .collect();
                let what = format!("{conversion:?} from {from:?} to {to:?}");
                check(&what, target, to, &inputs, &results, &expected);
            }
        }
    }
}

#[test]
fn rotations() {
    for target in targets() {
        let lanes = target.lanes();
        for lane in LANES {
            let inputs = [(lane, (1..=lanes as u64).collect::<Vec<u64>>())];
            for count in 0..lanes {
                let results = map(target, &inputs, lane, |b, x| b.rotate(count as u8, x[0]));
                let expected: Vec<u64> =
                    (0..lanes).map(|index| inputs[0].1[(index + count) % lanes]).collect();
                check(&format!("Rotate({count}) of {lane:?}"), target, lane, &inputs, &results, &expected);
            }
        }
    }
}

#[test]
fn constants_splats_and_first_lanes() {
    for target in targets() {
        for lane in LANES {
            let inputs = [(lane, samples(lane, &mut Random(13)))];
            let lanes = target.lanes();
            let results = map(target, &inputs, lane, |b, x| {
                let first = b.first(x[0]);
                let all = b.splat(lane, first);
                if lane.is_float() {
                    return all;
                }
                let iota = b.iota(lane);
                b.binary(Binary::Add, all, iota)
            });
            let expected: Vec<u64> = (0..results.len())
                .map(|index| {
                    let first = inputs[0].1[index / lanes * lanes];
                    if lane.is_float() {
                        first
                    } else {
                        low(lane, first.wrapping_add((index % lanes) as u64))
                    }
                })
                .collect();
            check(&format!("First of {lane:?}"), target, lane, &inputs, &results, &expected);
            for bits in [0, low(lane, u64::MAX), 5] {
                let inputs = [(lane, vec![0; lanes])];
                let results = map(target, &inputs, lane, |b, _| b.constant(lane, bits));
                check(&format!("Constant of {lane:?}"), target, lane, &inputs, &results, &vec![bits; lanes]);
            }
            if !lane.is_float() {
                let inputs = [(lane, vec![0; lanes])];
                let results = map(target, &inputs, lane, |b, _| b.iota(lane));
                let expected: Vec<u64> = (0..lanes as u64).collect();
                check(&format!("Iota of {lane:?}"), target, lane, &inputs, &results, &expected);
            }
        }
    }
}
