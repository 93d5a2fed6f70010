//! Every row of the elementwise table on every element type, and every cast, against the CPU's executor: exact where the row
//! says so, else within twice its error, since either side may have it.

use std::fmt::Write;

use tilewright_ir::{Accuracy, Dtype, Element, ElementwiseFn, Module, Signature};

use crate::common::{Random, Value, decode, element, run_cpu, run_sim, zeros};

const COUNT: usize = 512;

/// Ordinary numbers, small integers, the ends of the range, and any bits.
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

/// A kernel that loads tiles of these types, applies an op, and stores the result.
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

/// Whether bits are NaN; of the format without one, what its place is taken by.
fn is_nan(dtype: Dtype, bits: u64) -> bool {
    match dtype {
        Dtype::F8E5 => bits & 0x7f > 0x7c,
        Dtype::F8E4NV | Dtype::F8E4B15 => bits & 0x7f == 0x7f,
        Dtype::F8E4B8 | Dtype::F8E5B16 => bits == 0x80,
        _ => decode(dtype, bits).is_nan(),
    }
}

/// How many numbers of the type lie between two.
fn distance(dtype: Dtype, a: u64, b: u64) -> f64 {
    let sign = 1 << (dtype.bits() - 1);
    let place = |bits: u64| if bits & sign == 0 { i128::from(bits) } else { -i128::from(bits & !sign) };
    (place(a) - place(b)).abs() as f64
}

fn check(what: &str, module: &Module, target: &str, values: &[Value], dtype: Dtype, ulps: f64) {
    let (mut expected, mut found) = (values.to_vec(), values.to_vec());
    run_cpu(module, [1, 1, 1], &mut expected);
    run_sim(module, target, 4, [1, 1, 1], &mut found).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let (Some(Value::Tensor(expected)), Some(Value::Tensor(found))) = (expected.last(), found.last()) else {
        panic!("the last argument is the result");
    };
    for index in 0..COUNT {
        let [a, b] = [expected, found].map(|bytes| element(bytes, dtype, index));
        let is_same = a == b
            || (dtype.is_float() && is_nan(dtype, a) && is_nan(dtype, b))
            || (ulps > 0.0 && distance(dtype, a, b) <= ulps);
        assert!(is_same, "{what} on {target}, element {index}: {b:#x}, on the CPU {a:#x}");
    }
}

/// A kernel of each function on each type, and of casts to and from each.
pub fn modules() -> Vec<(String, Module)> {
    let mut modules = Vec::new();
    for &function in ElementwiseFn::ALL {
        let info = function.info();
        for dtype in
            [Dtype::I8, Dtype::U32, Dtype::I64, Dtype::I1, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64]
        {
            if info.domain.contains(Element::Value(dtype)) && !is_missing(function, dtype) {
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

/// What the GPU path does not have yet: it says so.
fn is_missing(function: ElementwiseFn, dtype: Dtype) -> bool {
    dtype == Dtype::F64 && matches!(function, ElementwiseFn::Sin | ElementwiseFn::Cos | ElementwiseFn::Erf)
}

#[test]
fn the_table_is_what_the_cpu_says() {
    let mut random = Random(1);
    for &function in ElementwiseFn::ALL {
        let info = function.info();
        for &dtype in Dtype::ALL {
            if !info.domain.contains(Element::Value(dtype)) || is_missing(function, dtype) {
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
                Accuracy::Ulp(_) if dtype.bits() < 32 => 1.0,
                Accuracy::Ulp(ulps) => 2.0 * f64::from(ulps),
            };
            let module = module(info.name, "", &operands, result);
            for target in ["sm_75", "sm_90a"] {
                check(&format!("{} of {dtype}", info.name), &module, target, &values, result, ulps);
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

#[test]
fn what_is_missing_is_named() {
    let module = module("erf", "", &[Dtype::F64], Dtype::F64);
    let plan = tilewright_gpu::plan(&module, tilewright_gpu::Target::ALL[0], 4)
        .expect("the plan knows nothing of it");
    let diagnostic = tilewright_ptx::lower(&plan).expect_err("there is no erf of fp64");
    assert_eq!(diagnostic.message, "`erf` of fp64 is not available on sm_75");
}
