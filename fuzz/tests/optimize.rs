//! Tests the passes. They must run without a panic on every module that the parser and the verifier
//! accept. Their output must verify, and must print and parse to the same text.

use tilewright_fuzz::mutate;
use tilewright_ir::{parse, print, verify};
use tilewright_opt::{Level, Options, analysis, optimize};

const SEEDS: [&str; 3] = [MEMORY, CONTROL, CALLS];

const MEMORY: &str = "\
kernel func0 @k(%x_ptr: *fp32 {divisibility = 16}, %n: int32) {
  %pid = program_id {axis = 0} : int32
  %0 = constant {value = 16:int32} : int32
  %1 = mul %pid, %0 : int32
  %2 = arange {start = 0, end = 16} : int32[16]
  %3 = splat %1 {shape = [16]} : int32[16]
  %offsets = add %3, %2 : int32[16]
  %4 = splat %n {shape = [16]} : int32[16]
  %mask = lt %offsets, %4 : int1[16]
  %5 = splat %x_ptr {shape = [16]} : *fp32[16]
  %6 = ptr_add %5, %offsets : *fp32[16]
  %7 = constant {value = 0.0:fp32} : fp32
  %8 = splat %7 {shape = [16]} : fp32[16]
  %x = load %6, %mask, %8 {cache = \"\", eviction = \"\", volatile = false} : fp32[16]
  %9 = cast %x {element = fp16, rounding = \"rtne\"} : fp16[16]
  %10 = cast %9 {element = fp32, rounding = \"rtne\"} : fp32[16]
  %11 = mul %10, %8 : fp32[16]
  %12 = expand_dims %11 {axis = 1} : fp32[16, 1]
  %13 = broadcast %12 {shape = [16, 16]} : fp32[16, 16]
  %14 = transpose %13 {permutation = [1, 0]} : fp32[16, 16]
  %15 = add %13, %14 : fp32[16, 16]
  %16 = reduce %15 {axis = 1} (%a: fp32, %b: fp32) {
    %17 = add %a, %b : fp32
    yield_values %17
  } : fp32[16]
  store %6, %16, %mask {cache = \"\", eviction = \"\"}
  return_values
}
";

const CONTROL: &str = "\
kernel func0 @k(%x_ptr: *int32, %n: int32) {
  %0 = constant {value = 0:int32} : int32
  %1 = constant {value = 1:int32} : int32
  %t = constant {value = 1:int1} : int1
  %acc, %same = for_loop %0, %n, %1, %0, %n {options = \"stages=2 unroll=0\"} (%i: int32, %acc.1: int32, %same.1: int32) {
    %2 = mul %same.1, %1 : int32
    %3 = add %acc.1, %2 : int32
    %4 = lt %3, %i : int1
    %5, %6 = if_else %4 () {
      yield_values %3, %0
    } () {
      %7 = sub %3, %i : int32
      yield_values %7, %0
    } : int32, int32
    %8 = add %5, %6 : int32
    yield_values %8, %same.1
  } : int32, int32
  %9 = while_loop %acc (%w: int32) {
    %10 = gt %w, %1 : int1
    yield_values %10
  } (%v: int32) {
    %11 = shr %v, %1 : int32
    yield_values %11
  } : int32
  if_else %t () {
    store %x_ptr, %9 {cache = \"\", eviction = \"\"}
    yield_values
  } () {
    yield_values
  }
  %12 = int_div %9, %n : int32
  %13 = int_rem %9, %1 : int32
  %14 = xor %12, %13 : int32
  %15 = select %t, %14, %0 : int32
  store %x_ptr, %15 {cache = \"\", eviction = \"\"}
  return_values
}
";

const CALLS: &str = "\
kernel func0 @k(%x_ptr: *int32, %n: int32) {
  %0, %p = call %n, %x_ptr {callee = func1, results = (int32; *int32)} : int32, *int32
  %1 = call %n {callee = func2, results = (int32)} : int32
  %2 = add %1, %1 : int32
  store %x_ptr, %2 {cache = \"\", eviction = \"\"}
  return_values
}
func1 @pair(%x: int32, %p: *int32) {
  %0 = call %x {callee = func2, results = (int32)} : int32
  %1 = call %0 {callee = func2, results = (int32)} : int32
  return_values %1, %p
}
func2 @square(%x: int32) {
  %0 = mul %x, %x : int32
  %1 = constant {value = 3:int32} : int32
  %2 = min %0, %1 : int32
  return_values %2
}
";

const DICTIONARY: &[&str] = &[
    "%0",
    "%1",
    "%2",
    "%n",
    "%x",
    "%t",
    "int32",
    "int1",
    "int64",
    "fp32",
    "fp16",
    "uint8",
    "bf16",
    "[16]",
    "[16, 16]",
    "0",
    "1",
    "-1",
    "2147483647",
    "-2147483648",
    "0.0",
    "-0.0",
    "nan",
    "inf",
    "add",
    "sub",
    "mul",
    "int_div",
    "int_rem",
    "div",
    "float_rem",
    "fma",
    "mul_high",
    "not",
    "select",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "min",
    "max",
    "lt",
    "le",
    "eq",
    "ne",
    "abs",
    "neg",
    "sqrt",
    "exp",
    "func0",
    "func1",
    "func2",
    "func3",
    "axis",
    "yield_values",
    "if_else",
    "for_loop",
    "while_loop",
    "axis = 0",
    "value",
];

#[test]
fn passes_accept_valid_ir() {
    tilewright_fuzz::fuzz!(20000, |bytes: &[u8]| {
        let Some((&seed, bytes)) = bytes.split_first() else { return };
        let text = mutate(SEEDS[usize::from(seed) % SEEDS.len()], DICTIONARY, bytes);
        let Ok(module) = parse(&text) else { return };
        if verify(&module).is_err() {
            return;
        }
        for level in [Level::Inline, Level::Full] {
            let mut optimized = module.clone();
            optimize(&mut optimized, &Options { level, ..Options::default() }, &mut |_, _| {});
            if let Err(error) = verify(&optimized) {
                panic!("{error}\n{text}\nbecame\n{}", print(&optimized, false));
            }
            drop(analysis::analyze(optimized.kernel()));
            let printed = print(&optimized, true);
            let again = parse(&printed).expect("printed text parses");
            assert_eq!(print(&again, true), printed);
        }
    });
}

#[test]
fn seeds_are_accepted() {
    for seed in SEEDS {
        let module = parse(seed).unwrap_or_else(|error| panic!("{error:?}\n{seed}"));
        verify(&module).unwrap_or_else(|error| panic!("{error}\n{seed}"));
    }
}
