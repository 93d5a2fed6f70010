//! Tests the transcendental functions of fp64. Sine, cosine and error function are compared with
//! correctly rounded results. All functions are compared with the CPU.

use tilewright_ir::{Accuracy, Dtype, ElementwiseFn, MathFn, Module};
use tilewright_testkit::Ptxas;

use crate::common::{Random, Value, element, kernel, lower, run_cpu, run_sim, zeros};

const F64: Dtype = Dtype::F64;
/// The functions of the table of exact results, in the order of its columns.
const COLUMNS: [MathFn; 3] = [MathFn::Sin, MathFn::Cos, MathFn::Erf];
const TARGETS: [&str; 3] = ["sm_75", "sm_80", "sm_90a"];
/// Each line has the bits of a number and of the functions' results.
const TABLE: &str = include_str!("math64.txt");

/// Returns a kernel that stores each function of a tile in turn.
fn module(functions: &[MathFn], count: usize) -> Module {
    let name = |&function: &MathFn| match function {
        MathFn::AccurateExp => "extra.libdevice.exp".to_owned(),
        // tidy: wildcard because the others are called by their names
        _ => format!("math.{}", ElementwiseFn::from(function).name()),
    };
    let stores = functions.iter().map(name).enumerate();
    let stores = stores.map(|(place, name)| format!("    tl.store(out + {place} * N + i, tl.{name}(a))\n"));
    let head = "
@triton.jit
def k(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
";
    let text = head.to_owned() + &stores.collect::<String>();
    kernel(&text, &format!("*fp64:16, *fp64:16, {count}"))
}

/// Returns the allowed difference from the CPU, in ulp. It is 2 for the table's functions, and
/// otherwise twice the row's error.
fn allowance(function: MathFn) -> u64 {
    match ElementwiseFn::from(function).info().accuracy {
        _ if COLUMNS.contains(&function) => 2,
        Accuracy::Exact => 0,
        Accuracy::Ulp(ulps) | Accuracy::FlushedUlp(ulps) | Accuracy::GrowingUlp(ulps, _) => {
            (2.0 * ulps) as u64
        }
    }
}

fn bits(tensor: &Value) -> Vec<u64> {
    let Value::Tensor(bytes) = tensor else { panic!("it is a tensor") };
    (0..bytes.len() / 8).map(|index| element(bytes, F64, index)).collect()
}

fn tensor(bits: &[u64]) -> Value {
    Value::Tensor(bits.iter().flat_map(|bits| bits.to_le_bytes()).collect())
}

/// Fails if the simulator's result is too far from the expected one. `most` is the allowed distance
/// in ulp. `expected` has the order of the kernel's results.
fn check(functions: &[MathFn], x: &[u64], expected: &[u64], most: impl Fn(MathFn) -> u64) {
    let module = module(functions, x.len());
    for target in TARGETS {
        let mut values = [tensor(x), zeros(F64, functions.len() * x.len())];
        run_sim(&module, target, 4, [1, 1, 1], &mut values).unwrap_or_else(|fault| panic!("{fault}"));
        for (index, (found, &expected)) in bits(&values[1]).into_iter().zip(expected).enumerate() {
            let [argument, a, b] = [x[index % x.len()], found, expected].map(f64::from_bits);
            // A wrong sign of a zero is a large difference.
            let function = functions[index / x.len()];
            let is_near = (a.is_nan() && b.is_nan()) || found.abs_diff(expected) <= most(function);
            assert!(is_near, "{function:?}({argument:e}) on {target} is {a:e}, not {b:e}");
        }
    }
}

#[test]
fn hard_arguments_are_what_exact_arithmetic_says() {
    let rows: Vec<Vec<u64>> = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').map(|word| u64::from_str_radix(word, 16).expect("hex")).collect())
        .collect();
    let column = |place: usize| rows.iter().map(move |row| row[place]);
    let x: Vec<u64> = column(0).collect();
    let expected: Vec<u64> = (1..=COLUMNS.len()).flat_map(column).collect();
    // The result is within 1.5 ulp, and the table within 0.5.
    check(&COLUMNS, &x, &expected, |_| 1);
}

#[test]
fn infinities_and_nan() {
    let (infinity, nan, one) = (f64::INFINITY, f64::NAN, 1.0);
    let expected = [[nan; 4], [nan; 4], [one, -one, nan, nan]].concat();
    let [x, expected] = [vec![infinity, -infinity, nan, -nan], expected]
        .map(|list| list.into_iter().map(f64::to_bits).collect::<Vec<_>>());
    check(&COLUMNS, &x, &expected, |_| 0);
}

#[test]
fn any_arguments_are_what_the_cpu_says() {
    let mut random = Random(64);
    let x: Vec<u64> = (0..2048)
        .map(|index| {
            // Numbers of any magnitude, for all argument reductions.
            let exponent =
                [random.bits() % 2048, 1000 + random.bits() % 100, 1021 + random.bits() % 5][index % 3];
            random.bits() & !(0x7ff << 52) | exponent << 52
        })
        .collect();
    let mut values = [tensor(&x), zeros(F64, MathFn::ALL.len() * x.len())];
    run_cpu(&module(MathFn::ALL, x.len()), [1, 1, 1], &mut values);
    check(MathFn::ALL, &x, &bits(&values[1]), allowance);
}

#[test]
fn the_functions_spill_no_registers() {
    let Some(ptxas) = Ptxas::find_or_skip("the_functions_spill_no_registers") else { return };
    for target in TARGETS {
        let (text, _) = lower(&module(&COLUMNS, 1024), target, 4);
        let assembled = ptxas.assemble(&text, target).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let usage = assembled.usage("k").expect("the kernel is in the report");
        assert_eq!((usage.spill_stores, usage.spill_loads, usage.stack), (0, 0, 0), "{target}: {usage:?}");
    }
}
