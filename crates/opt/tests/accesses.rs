//! Tests the parameters of accesses, through loops, branches and unknown pointers.

use tilewright_opt::analysis::{Access, accesses};

fn of(text: &str) -> Vec<(Vec<usize>, bool, bool)> {
    let module = tilewright_ir::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    accesses(&module)
        .into_iter()
        .map(|Access { parameters, reads, writes, .. }| (parameters, reads, writes))
        .collect()
}

#[test]
fn loads_and_stores_say_where_from() {
    let found = of("kernel func0 @k(%x: *fp32, %y: *fp32, %n: int32) {
  %0 = ptr_add %x, %n : *fp32
  %1 = load %0 {cache = \"\", eviction = \"\", volatile = false} : fp32
  store %y, %1 {cache = \"\", eviction = \"\"}
  return_values
}
");
    assert_eq!(found, [(vec![0], true, false), (vec![1], false, true)]);
}

#[test]
fn a_loop_may_exchange_pointers() {
    let found = of("kernel func0 @k(%x: *fp32, %y: *fp32, %n: int32) {
  %0 = constant {value = 1:int32} : int32
  %1 = constant {value = 2.0:fp32} : fp32
  %2, %3 = for_loop %0, %n, %0, %x, %y {options = \"stages=0 unroll=0\"} (%i: int32, %a: *fp32, %b: *fp32) {
    store %a, %1 {cache = \"\", eviction = \"\"}
    yield_values %b, %a
  } : *fp32, *fp32
  return_values
}
");
    assert_eq!(found, [(vec![0, 1], false, true)]);
}

#[test]
fn a_pointer_of_a_number_may_be_any() {
    let found = of("kernel func0 @k(%x: *fp32, %y: *fp32, %n: int64) {
  %0 = cast %n {element = *fp32, rounding = \"rtne\"} : *fp32
  %1 = load %0 {cache = \"\", eviction = \"\", volatile = false} : fp32
  return_values
}
");
    assert_eq!(found, [(vec![0, 1], true, false)]);
}

#[test]
fn assembly_with_effects_may_access_what_it_is_passed() {
    let of_operand = |op: &str, operand: &str| {
        let register = if operand == "%n" { "r" } else { "l" };
        of(&format!(
            "kernel func0 @k(%x: *fp32, %y: *fp32, %address: int64, %n: int32) {{
  %0 = {op} {operand} {{text = \"mov.u32 $0, 0;\", constraints = \"=r,{register}\", dtypes = (int32), pack = 1}} : int32
  return_values
}}
"
        ))
    };
    assert_eq!(of_operand("volatile_asm", "%y"), [(vec![1], true, true)]);
    assert_eq!(of_operand("volatile_asm", "%address"), [(vec![0, 1], true, true)]);
    assert_eq!(of_operand("volatile_asm", "%n"), []);
    assert_eq!(of_operand("inline_asm", "%y"), []);
}
