//! Compares all rows of the elementwise table, and all casts, with the CPU. Exact functions must
//! have equal results. Others may differ by about twice the row's error
//! (`the_table_is_what_the_cpu_says`), because both sides have the error.

use std::fmt::Write;

use tilewright_ir::{Accuracy, Dtype, Element, ElementwiseFn, Module, Signature};
use tilewright_testkit::Ptxas;

use crate::common::{Random, RandomTensor, Value, decode, element, kernel, lower, run_cpu, run_sim, zeros};

const COUNT: usize = 512;

/// Returns ordinary numbers, small integers, range ends and random bits. With `are_shifts`, most
/// are shift counts.
fn inputs(random: &mut Random, dtype: Dtype, are_shifts: bool) -> Value {
    let mask = u64::MAX >> (64 - dtype.bits());
    let Value::Tensor(mut bytes) = zeros(dtype, COUNT) else { panic!("zeros are a tensor") };
    for place in bytes.chunks_mut(dtype.bytes()) {
        let any = random.bits();
        let ends = [0, 1, mask, mask >> 1, (mask >> 1) + 1, mask ^ 1];
        let bits = match random.bits() % 8 {
            0..6 if are_shifts => any % u64::from(dtype.bits() + 3),
            0..3 if dtype.is_float() && dtype.bits() >= 16 => {
                let Value::Tensor(number) = random.tensor(dtype, 1) else { panic!("it is a tensor") };
                element(&number, dtype, 0)
            }
            4 => ends[any as usize % ends.len()],
            5 => any % 8,
            _ => any,
        };
        let bits = if dtype.is_bool() { bits & 1 } else { bits };
        place.copy_from_slice(&bits.to_le_bytes()[..dtype.bytes()]);
    }
    Value::Tensor(bytes)
}

/// Returns a kernel that applies an op to tiles of these types.
fn module(op: &str, attributes: &str, operands: &[Dtype], result: Dtype) -> Module {
    let mut text = String::from("kernel func0 @k(");
    for (index, dtype) in operands.iter().enumerate() {
        let _ = write!(text, "%p{index}: *{dtype} {{divisibility = 16}}, ");
    }
    let _ = writeln!(text, "%q: *{result} {{divisibility = 16}}) {{");
    let _ = writeln!(text, "  %r = arange {{start = 0, end = {COUNT}}} : int32[{COUNT}]");
    for (index, dtype) in operands.iter().enumerate() {
        let _ = writeln!(text, "  %s{index} = splat %p{index} {{shape = [{COUNT}]}} : *{dtype}[{COUNT}]");
        let _ = writeln!(text, "  %a{index} = ptr_add %s{index}, %r : *{dtype}[{COUNT}]");
        let modifiers = "{cache = \"\", eviction = \"\", volatile = false}";
        let _ = writeln!(text, "  %x{index} = load %a{index} {modifiers} : {dtype}[{COUNT}]");
    }
    let names: Vec<String> = (0..operands.len()).map(|index| format!("%x{index}")).collect();
    let _ = writeln!(text, "  %z = {op} {} {attributes}: {result}[{COUNT}]", names.join(", "));
    let _ = writeln!(text, "  %s = splat %q {{shape = [{COUNT}]}} : *{result}[{COUNT}]");
    let _ = writeln!(text, "  %a = ptr_add %s, %r : *{result}[{COUNT}]");
    let _ = writeln!(text, "  store %a, %z {{cache = \"\", eviction = \"\"}}\n  return_values\n}}");
    tilewright_ir::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns whether bits are NaN, or its replacement in the format without NaN.
fn is_nan(dtype: Dtype, bits: u64) -> bool {
    match dtype {
        Dtype::F8E5 => bits & 0x7f > 0x7c,
        Dtype::F8E4NV | Dtype::F8E4B15 => bits & 0x7f == 0x7f,
        Dtype::F8E4B8 | Dtype::F8E5B16 => bits == 0x80,
        _ => decode(dtype, bits).is_nan(),
    }
}

/// Returns the steps between two numbers, from each number to the next.
fn distance(dtype: Dtype, a: u64, b: u64) -> f64 {
    let sign = 1 << (dtype.bits() - 1);
    let place = |bits: u64| if bits & sign == 0 { i128::from(bits) } else { -i128::from(bits & !sign) };
    (place(a) - place(b)).abs() as f64
}

fn check(
    what: &str,
    module: &Module,
    target: &str,
    values: &[Value],
    dtype: Dtype,
    allowed: impl Into<Allowed>,
) {
    check_on(what, module, (target, 4), values, dtype, allowed);
}

/// The allowed difference from the CPU's result.
#[derive(Clone, Copy)]
struct Allowed {
    ulps: f64,
    /// True if 0 may replace a subnormal number.
    flushes: bool,
}

impl From<f64> for Allowed {
    fn from(ulps: f64) -> Self {
        Self { ulps, flushes: false }
    }
}

impl Allowed {
    fn contains(self, dtype: Dtype, a: u64, b: u64) -> bool {
        // fp32 and bf16 have one exponent range.
        let exponent = match dtype {
            Dtype::F32 => 0xff << 23,
            Dtype::BF16 => 0xff << 7,
            _ => u64::MAX,
        };
        let is_flushed = self.flushes && b == 0 && a & exponent == 0;
        is_flushed || (self.ulps > 0.0 && distance(dtype, a, b) <= self.ulps)
    }
}

/// Does what `check` does, with this number of warps.
fn check_on(
    what: &str,
    module: &Module,
    (target, warps): (&str, u32),
    values: &[Value],
    dtype: Dtype,
    allowed: impl Into<Allowed>,
) {
    let allowed = allowed.into();
    let (mut expected, mut found) = (values.to_vec(), values.to_vec());
    run_cpu(module, [1, 1, 1], &mut expected);
    run_sim(module, target, warps, [1, 1, 1], &mut found).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let (Some(Value::Tensor(expected)), Some(Value::Tensor(found))) = (expected.last(), found.last()) else {
        panic!("the last argument is the result");
    };
    for index in 0..COUNT {
        let [a, b] = [expected, found].map(|bytes| element(bytes, dtype, index));
        let is_same = a == b
            || (dtype.is_float() && is_nan(dtype, a) && is_nan(dtype, b))
            || allowed.contains(dtype, a, b);
        assert!(is_same, "{what} on {target}, element {index}: {b:#x}, on the CPU {a:#x}");
    }
}

/// Returns a kernel for each function on several types, and for casts between types.
pub fn modules() -> Vec<(String, Module)> {
    let mut modules = Vec::new();
    for &function in ElementwiseFn::ALL {
        let info = function.info();
        for dtype in
            [Dtype::I8, Dtype::U32, Dtype::I64, Dtype::I1, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64]
        {
            if info.domain.contains(Element::Value(dtype)) {
                let mut operands = vec![dtype; info.operands.len()];
                if info.signature == Signature::Select {
                    operands[0] = Dtype::I1;
                }
                let result = if info.signature == Signature::Compare { Dtype::I1 } else { dtype };
                modules.push((format!("{} of {dtype}", info.name), module(info.name, "", &operands, result)));
            }
        }
    }
    for &dtype in Dtype::ALL {
        let pairs = [(dtype, Dtype::F32), (Dtype::F32, dtype), (dtype, Dtype::I64), (Dtype::F64, dtype)];
        for (from, to) in pairs.into_iter().filter(|(from, to)| from != to) {
            let attributes = format!("{{element = {to}, rounding = \"rtz\"}} ");
            modules.push((format!("{from} to {to}"), module("cast", &attributes, &[from], to)));
        }
    }
    modules
}

#[test]
fn the_table_is_what_the_cpu_says() {
    let mut random = Random(1);
    for &function in ElementwiseFn::ALL {
        let info = function.info();
        for &dtype in Dtype::ALL {
            if !info.domain.contains(Element::Value(dtype)) {
                continue;
            }
            let is_condition = |index: usize| info.signature == Signature::Select && index == 0;
            let operands: Vec<Dtype> = (0..info.operands.len())
                .map(|index| if is_condition(index) { Dtype::I1 } else { dtype })
                .collect();
            let result = if info.signature == Signature::Compare { Dtype::I1 } else { dtype };
            let is_shift = matches!(function, ElementwiseFn::Shl | ElementwiseFn::Shr);
            let mut values: Vec<Value> = operands
                .iter()
                .enumerate()
                .map(|(index, &dtype)| inputs(&mut random, dtype, is_shift && index == 1))
                .collect();
            values.push(zeros(result, COUNT));
            let ulps = match info.accuracy {
                Accuracy::Exact => 0.0,
                Accuracy::Ulp(_) | Accuracy::GrowingUlp(..) | Accuracy::FlushedUlp(_)
                    if dtype.bits() < 32 =>
                {
                    1.0
                }
                // Above 104, the result is 0 or not finite.
                Accuracy::GrowingUlp(least, slope) if dtype == Dtype::F32 => f64::from(least + 104.0 * slope),
                Accuracy::Ulp(ulps) | Accuracy::GrowingUlp(ulps, _) | Accuracy::FlushedUlp(ulps) => {
                    2.0 * f64::from(ulps)
                }
            };
            let flushes = matches!(info.accuracy, Accuracy::FlushedUlp(_));
            let allowed = Allowed { ulps, flushes };
            let module = module(info.name, "", &operands, result);
            for target in ["sm_75", "sm_90a"] {
                check(&format!("{} of {dtype}", info.name), &module, target, &values, result, allowed);
            }
        }
    }
}

#[test]
fn casts_are_what_the_cpu_says() {
    let mut random = Random(2);
    for &from in Dtype::ALL {
        for &to in Dtype::ALL.iter().filter(|to| **to != from) {
            for rounding in ["rtne", "rtz"] {
                let attributes = format!("{{element = {to}, rounding = \"{rounding}\"}} ");
                let module = module("cast", &attributes, &[from], to);
                let values = [inputs(&mut random, from, false), zeros(to, COUNT)];
                for target in ["sm_75", "sm_90a"] {
                    check(&format!("{from} to {to}, {rounding}"), &module, target, &values, to, 0.0);
                }
            }
        }
    }
}

/// Returns numbers at the ends of ranges, around 1, and special numbers, of both signs.
fn edges(dtype: Dtype) -> Vec<u64> {
    let (infinity, one) = if dtype == Dtype::F16 { (0x7c00_u64, 0x3c00) } else { (0x7f80, 0x3f80) };
    let smallest_normal = infinity & infinity.wrapping_neg();
    let positive = [
        0,
        1,
        2,
        smallest_normal - 1,
        smallest_normal,
        smallest_normal + 1,
        one / 2,
        one - 1,
        one,
        one + 1,
        infinity - 1,
        infinity,
        infinity + 1,
        0x7fff,
    ];
    positive.into_iter().flat_map(|bits| [bits, bits | 0x8000]).collect()
}

fn tensor(dtype: Dtype, numbers: impl IntoIterator<Item = u64>) -> Value {
    Value::Tensor(numbers.into_iter().flat_map(|bits| bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect())
}

/// 16-bit floats at the ends of their ranges, on targets with different instructions.
#[test]
fn halves_at_the_edges_are_what_the_cpu_says() {
    use ElementwiseFn::{Add, Fma, Max, MaxNan, Min, MinNan, Mul, Sub};
    let mut random = Random(3);
    for dtype in [Dtype::F16, Dtype::BF16] {
        let edges = edges(dtype);
        for function in [Add, Sub, Mul, Fma, Min, Max, MinNan, MaxNan] {
            let operands = vec![dtype; function.info().operands.len()];
            let module = module(function.name(), "", &operands, dtype);
            for first in (0..edges.len().pow(2)).step_by(COUNT) {
                let places = first..first + COUNT;
                let x = places.clone().map(|place| edges[place % edges.len()]);
                let y = places.map(|place| edges[place / edges.len() % edges.len()]);
                let mut values = vec![tensor(dtype, x), tensor(dtype, y)];
                if function == Fma {
                    values
                        .push(tensor(dtype, (0..COUNT).map(|_| edges[random.bits() as usize % edges.len()])));
                }
                values.push(zeros(dtype, COUNT));
                for target in ["sm_75", "sm_80", "sm_90a"] {
                    check(&format!("{} of {dtype}", function.name()), &module, target, &values, dtype, 0.0);
                }
            }
        }
    }
}

/// Returns a kernel that casts, rounding to nearest even.
fn cast_to_nearest(from: Dtype, to: Dtype) -> Module {
    module("cast", &format!("{{element = {to}, rounding = \"rtne\"}} "), &[from], to)
}

/// Returns numbers of the format `from`. They are the 8-bit numbers, and each middle with its
/// neighbors. The ends of fp32's range follow. `single` converts 8 bits to fp32.
fn around_fp8(from: Dtype, single: impl Fn(u64) -> f32) -> Vec<u64> {
    // The number of low bits of fp32 that the format lacks.
    let unused = match from {
        Dtype::F16 => 13,
        Dtype::BF16 => 16,
        _ => 0,
    };
    let between = (0..0x7f_u64).flat_map(|code| {
        let [low, high] = [single(code), single(code + 1)];
        // The largest number's successor would be this.
        let high = if high.is_finite() { high } else { 2.0 * low - single(code - 1) };
        let middle = f32::midpoint(low, high).to_bits();
        [middle - (1 << unused), middle, middle + (1 << unused), low.to_bits()]
    });
    let numbers = between.chain([0x7f80_0000, 0x7fc0_0000, 0x7f7f_0000, 1]);
    let signed = numbers.flat_map(|bits| [bits, bits | 0x8000_0000]);
    let narrow = |bits: u32| match from {
        Dtype::F16 => half::f16::from_f32(f32::from_bits(bits)).to_bits().into(),
        Dtype::BF16 => u64::from(bits >> 16),
        _ => u64::from(bits),
    };
    signed.map(narrow).collect()
}

/// Every 8-bit number, and numbers in between. A thread has one, two or four elements, which need
/// different instructions.
#[test]
fn fp8_is_converted_as_the_cpu_says() {
    const TARGETS: [(&str, u32); 5] =
        [("sm_80", 4), ("sm_89", 4), ("sm_90a", 4), ("sm_90a", 8), ("sm_90a", 16)];
    for fp8 in [Dtype::F8E4NV, Dtype::F8E5] {
        let codes = tensor(fp8, (0..COUNT as u64).map(|code| code & 0xff));
        for to in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64, Dtype::I32] {
            let module = cast_to_nearest(fp8, to);
            for target in TARGETS {
                let values = [codes.clone(), zeros(to, COUNT)];
                check_on(&format!("every {fp8} to {to}"), &module, target, &values, to, 0.0);
            }
        }
        let mut singles = [codes.clone(), zeros(Dtype::F32, COUNT)];
        run_cpu(&cast_to_nearest(fp8, Dtype::F32), [1, 1, 1], &mut singles);
        let [_, Value::Tensor(singles)] = &singles else { panic!("the second argument is the result") };
        let single = |code: u64| f32::from_bits(element(singles, Dtype::F32, code as usize) as u32);
        for from in [Dtype::F16, Dtype::BF16, Dtype::F32] {
            let module = cast_to_nearest(from, fp8);
            for part in around_fp8(from, single).chunks(COUNT) {
                let part = part.iter().copied().chain(std::iter::repeat(0)).take(COUNT);
                let values = [tensor(from, part), zeros(fp8, COUNT)];
                for target in TARGETS {
                    check_on(&format!("{from} around {fp8}"), &module, target, &values, fp8, 0.0);
                }
            }
        }
    }
}

/// Elements that are not bytes of one loaded word.
#[test]
fn chosen_fp8_is_converted_as_the_cpu_says() {
    let text = "
@triton.jit
def k(x, y, z):
    i = tl.arange(0, 512)
    chosen = tl.where(i % 3 == 0, tl.load(x + i), tl.load(y + i))
    tl.store(z + i, chosen.to(z.dtype.element_ty))
";
    let mut random = Random(4);
    for (from, to) in [(Dtype::F8E4NV, Dtype::F16), (Dtype::F8E5, Dtype::F32), (Dtype::F8E5, Dtype::F8E4NV)] {
        let module = kernel(text, &format!("*{from}:16, *{from}:16, *{to}:16"));
        let [x, y] = [0; 2].map(|_| inputs(&mut random, from, false));
        let values = [x, y, zeros(to, COUNT)];
        for warps in [4, 8, 16] {
            let what = format!("one of two {from} to {to}");
            check_on(&what, &module, ("sm_90a", warps), &values, to, 0.0);
        }
    }
}

#[test]
fn ptxas_accepts_conversions_of_fp8() {
    let Some(ptxas) = Ptxas::find_or_skip("ptxas_accepts_conversions_of_fp8") else { return };
    for fp8 in [Dtype::F8E4NV, Dtype::F8E5] {
        for other in [Dtype::F16, Dtype::BF16, Dtype::F32] {
            for module in [cast_to_nearest(fp8, other), cast_to_nearest(other, fp8)] {
                for target in ["sm_89", "sm_90a"] {
                    let (text, _) = lower(&module, target, 4);
                    ptxas.assemble(&text, target).unwrap_or_else(|error| panic!("{error}\n{text}"));
                }
            }
        }
    }
}
