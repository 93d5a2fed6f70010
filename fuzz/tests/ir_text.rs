//! Tests the parser of IR text. The parser never panics. Accepted text must print and parse to the
//! same text.

use tilewright_fuzz::mutate;
use tilewright_ir::{parse, print};

const SEED: &str = "\
kernel func0 @k(%x_ptr: *fp32 {divisibility = 16}, %n: int32) {
  %0 = constant {value = 0:int32} : int32
  %1 = constant {value = 1:int32} : int32
  %acc = constant {value = 0.5:fp32} : fp32
  %acc.1 = for_loop %0, %n, %1, %acc {options = \"stages=2 unroll=0 flatten\"} (%i: int32, %acc.2: fp32) {
    %p = ptr_add %x_ptr, %i : *fp32
    %v = load %p {cache = \".cg\", eviction = \"\", volatile = false} : fp32 @file0:3..7 @file0:0..2
    %2 = add %acc.2, %v : fp32
    yield_values %2
  } : fp32
  %3 = arange {start = 0, end = 16} : int32[16]
  %4 = expand_dims %3 {axis = 1} : int32[16, 1]
  %5 = broadcast %4 {shape = [16, 32]} : int32[16, 32]
  %6 = transpose %5 {permutation = [1, 0]} : int32[32, 16]
  %7 = reduce %3 {axis = 0} (%a: int32, %b: int32) {
    %8 = max %a, %b : int32
    yield_values %8
  } : int32
  %9 = call %7 {callee = func1, results = (int32)} : int32
  %10 = lt %9, %n : int1
  if_else %10 () {
    store %x_ptr, %acc.1 {cache = \"\", eviction = \"evict_last\"}
    yield_values
  } () {
    yield_values
  }
  return_values
}
func1 @helper(%x: int32) {
  return_values %x
}
file0 = \"k.py\" line 3
";

const DICTIONARY: &[&str] = &[
    "%0",
    "%n",
    "%3",
    "int64",
    "fp8e4nv[4]",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "=",
    "-1",
    "4294967296",
    "0x7fff",
    "while_loop",
    "if_else",
    "reduce",
    "dot",
    "yield_values",
    "axis",
    "func9",
    "@file9:7..3",
    "\"",
    "\\",
    "//",
    "\n",
    "é",
    "[1048576, 1048576]",
    "[0]",
];

#[test]
fn parsing_never_panics_and_inverts_printing() {
    tilewright_fuzz::fuzz!(30000, |bytes: &[u8]| {
        let Ok(module) = parse(&mutate(SEED, DICTIONARY, bytes)) else { return };
        let printed = print(&module, true);
        let again = parse(&printed).expect("printed text parses");
        assert_eq!(print(&again, true), printed);
    });
}
