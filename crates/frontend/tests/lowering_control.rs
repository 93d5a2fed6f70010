//! Tests the IR of control flow. `UPDATE_EXPECT=1 cargo test` rewrites the expected IR.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn loop_carries_what_the_body_assigns() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    total = 0.0
    steps = 0
    unchanged = 1
    for i in range(0, n, 2):
        value = tl.load(x_ptr + i)
        total += value * unchanged
        steps += 1
    tl.store(x_ptr, total / steps)
",
        "*fp32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32, %n: int32) {
              %total = constant {value = 0.0:fp32} : fp32
              %steps = constant {value = 0:int32} : int32
              %unchanged = constant {value = 1:int32} : int32
              %0 = constant {value = 0:int32} : int32
              %1 = constant {value = 2:int32} : int32
              %total.1, %steps.1 = for_loop %0, %n, %1, %total, %steps {options = "stages=0 unroll=0"} (%i: int32, %total.2: fp32, %steps.2: int32) {
                %2 = ptr_add %x_ptr, %i : *fp32
                %value = load %2 {cache = "", eviction = "", volatile = false} : fp32
                %3 = cast %unchanged {element = fp32, rounding = "rtne"} : fp32
                %4 = mul %value, %3 : fp32
                %total.3 = add %total.2, %4 : fp32
                %5 = constant {value = 1:int32} : int32
                %steps.3 = add %steps.2, %5 : int32
                yield_values %total.3, %steps.3
              } : fp32, int32
              %6 = cast %steps.1 {element = fp32, rounding = "rtne"} : fp32
              %7 = div %total.1, %6 : fp32
              store %x_ptr, %7 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn loop_bounds_promote_and_may_go_down() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    for i in range(n, 0, -1):
        tl.store(x_ptr + i, i)
",
        "*int64, int64",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int64, %n: int64) {
              %0 = constant {value = 0:int32} : int32
              %1 = constant {value = -1:int32} : int32
              %2 = constant {value = 0:int64} : int64
              %3 = constant {value = -1:int64} : int64
              for_loop %n, %2, %3 {options = "stages=0 unroll=0"} (%i: int64) {
                %4 = ptr_add %x_ptr, %i : *int64
                store %4, %i {cache = "", eviction = ""}
                yield_values
              }
              return_values
            }
        "#]],
    );
}

#[test]
fn while_loop() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    i = n
    while (i > 1) and (tl.load(x_ptr + i) != 0):
        i = i // 2
    tl.store(x_ptr, i)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %i = while_loop %n (%i.1: int32) {
                %0 = constant {value = 1:int32} : int32
                %1 = gt %i.1, %0 : int1
                %2 = ptr_add %x_ptr, %i.1 : *int32
                %3 = load %2 {cache = "", eviction = "", volatile = false} : int32
                %4 = constant {value = 0:int32} : int32
                %5 = ne %3, %4 : int1
                %6 = and %1, %5 : int1
                yield_values %6
              } (%i.2: int32) {
                %7 = constant {value = 2:int32} : int32
                %i.3 = int_div %i.2, %7 : int32
                yield_values %i.3
              } : int32
              store %x_ptr, %i {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn static_range_is_unrolled_with_compile_time_values() {
    check(
        r"
@triton.jit
def k(x_ptr, N: tl.constexpr):
    for i in tl.static_range(N):
        if i % 2 == 0:
            tl.store(x_ptr + i, tl.arange(0, 1 << (i + 1)).shape[0])
",
        "*int32, 3",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32) {
              %0 = constant {value = 0:int32} : int32
              %1 = ptr_add %x_ptr, %0 : *int32
              %2 = arange {start = 0, end = 2} : int32[2]
              %3 = constant {value = 2:int32} : int32
              store %1, %3 {cache = "", eviction = ""}
              %4 = constant {value = 2:int32} : int32
              %5 = ptr_add %x_ptr, %4 : *int32
              %6 = arange {start = 0, end = 8} : int32[8]
              %7 = constant {value = 8:int32} : int32
              store %5, %7 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn a_promise_in_a_statement_holds_for_the_name() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    pointers = x_ptr + tl.arange(0, 8)
    for i in range(n):
        tl.multiple_of(pointers, [16])
        tl.max_contiguous(n, 1)
        tl.store(pointers, i + n)
        pointers += 8
    tl.store(pointers, n)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = arange {start = 0, end = 8} : int32[8]
              %1 = splat %x_ptr {shape = [8]} : *int32[8]
              %pointers = ptr_add %1, %0 : *int32[8]
              %2 = constant {value = 0:int32} : int32
              %3 = constant {value = 1:int32} : int32
              %pointers.1 = for_loop %2, %n, %3, %pointers {options = "stages=0 unroll=0"} (%i: int32, %pointers.2: *int32[8]) {
                %pointers.3 = hint %pointers.2 {kind = "multiple_of", values = [16]} : *int32[8]
                %n.1 = hint %n {kind = "max_contiguous", values = [1]} : int32
                %4 = add %i, %n.1 : int32
                %5 = splat %4 {shape = [8]} : int32[8]
                store %pointers.3, %5 {cache = "", eviction = ""}
                %6 = constant {value = 8:int32} : int32
                %7 = splat %6 {shape = [8]} : int32[8]
                %pointers.4 = ptr_add %pointers.3, %7 : *int32[8]
                yield_values %pointers.4
              } : *int32[8]
              %8 = splat %n {shape = [8]} : int32[8]
              store %pointers.1, %8 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn loops_carry_tuples_and_their_own_variable() {
    check(
        r"
@triton.jit
def k(x_ptr, n, BIAS, FLAG: tl.constexpr):
    pair = (n, 1.0)
    bias = BIAS
    for i in range(n):
        i = tl.multiple_of(i, 4)
        pair = (pair[0] + i, pair[1] * 2.0)
        if FLAG:
            bias = pair
        for j in tl.range(i, num_stages=3, flatten=True):
            pair = (pair[0] - j, pair[1])
    if bias is None:
        tl.store(x_ptr, pair[0] * pair[1])
",
        "*fp32, int32, None, False",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32, %n: int32) {
              %0 = constant {value = 1.0:fp32} : fp32
              %1 = constant {value = 0:int32} : int32
              %2 = constant {value = 1:int32} : int32
              %3, %4 = for_loop %1, %n, %2, %n, %0 {options = "stages=0 unroll=0"} (%i: int32, %5: int32, %6: fp32) {
                %i.1 = hint %i {kind = "multiple_of", values = [4]} : int32
                %7 = add %5, %i.1 : int32
                %8 = constant {value = 2.0:fp32} : fp32
                %9 = mul %6, %8 : fp32
                %10 = constant {value = 0:int32} : int32
                %11 = constant {value = 1:int32} : int32
                %12, %13 = for_loop %10, %i.1, %11, %7, %9 {options = "stages=3 unroll=0 flatten"} (%j: int32, %14: int32, %15: fp32) {
                  %16 = sub %14, %j : int32
                  yield_values %16, %15
                } : int32, fp32
                yield_values %12, %13
              } : int32, fp32
              %17 = cast %3 {element = fp32, rounding = "rtne"} : fp32
              %18 = mul %17, %4 : fp32
              store %x_ptr, %18 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn branches_merge_names() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    x = 1
    both, same = 0, 5
    if n > 3:
        x = 2
        both = n
    elif n > 2:
        both = 7
    else:
        pass
    tl.store(x_ptr, x + both + same)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %x = constant {value = 1:int32} : int32
              %both = constant {value = 0:int32} : int32
              %same = constant {value = 5:int32} : int32
              %0 = constant {value = 3:int32} : int32
              %1 = gt %n, %0 : int1
              %x.1, %both.1 = if_else %1 () {
                %x.2 = constant {value = 2:int32} : int32
                yield_values %x.2, %n
              } () {
                %2 = constant {value = 2:int32} : int32
                %3 = gt %n, %2 : int1
                %both.2 = if_else %3 () {
                  %both.3 = constant {value = 7:int32} : int32
                  yield_values %both.3
                } () {
                  yield_values %both
                } : int32
                yield_values %x, %both.2
              } : int32, int32
              %4 = add %x.1, %both.1 : int32
              %5 = add %4, %same : int32
              store %x_ptr, %5 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn compile_time_conditions_choose() {
    check(
        r"
@triton.jit
def k(x_ptr, BIAS, MODE: tl.constexpr):
    if BIAS is not None:
        tl.store(x_ptr, BIAS + 1)
    elif MODE == 'zero' and not BIAS:
        tl.store(x_ptr, 0)
    else:
        tl.store(x_ptr, undefined)
",
        "*int32, None, zero",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32) {
              %0 = constant {value = 0:int32} : int32
              store %x_ptr, %0 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn early_return_takes_the_rest_into_the_other_branch() {
    check(
        r"
@triton.jit
def k(x_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    value = tl.load(x_ptr + pid)
    if value == 0:
        tl.store(x_ptr + pid, 1)
        return
    tl.store(x_ptr + pid, 2)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %pid = program_id {axis = 0} : int32
              %0 = ge %pid, %n : int1
              if_else %0 () {
                yield_values
              } () {
                %1 = ptr_add %x_ptr, %pid : *int32
                %value = load %1 {cache = "", eviction = "", volatile = false} : int32
                %2 = constant {value = 0:int32} : int32
                %3 = eq %value, %2 : int1
                if_else %3 () {
                  %4 = ptr_add %x_ptr, %pid : *int32
                  %5 = constant {value = 1:int32} : int32
                  store %4, %5 {cache = "", eviction = ""}
                  yield_values
                } () {
                  %6 = ptr_add %x_ptr, %pid : *int32
                  %7 = constant {value = 2:int32} : int32
                  store %6, %7 {cache = "", eviction = ""}
                  yield_values
                }
                yield_values
              }
              return_values
            }
        "#]],
    );
}

#[test]
fn early_returns_under_compile_time_conditions() {
    check(
        r"
@triton.jit
def clip(x, LOW: tl.constexpr, HIGH: tl.constexpr = None):
    if HIGH is None:
        if x < LOW:
            return LOW
        return x
    elif x > HIGH:
        return HIGH
    x += 1
    return x

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, clip(n, 3) + clip(n, 3, 7))
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = call %n {callee = func1, results = (int32)} : int32
              %1 = call %n {callee = func2, results = (int32)} : int32
              %2 = add %0, %1 : int32
              store %x_ptr, %2 {cache = "", eviction = ""}
              return_values
            }
            func1 @clip(%x: int32) {
              %0 = constant {value = 3:int32} : int32
              %1 = lt %x, %0 : int1
              %2 = if_else %1 () {
                %3 = constant {value = 3:int32} : int32
                yield_values %3
              } () {
                yield_values %x
              } : int32
              return_values %2
            }
            func2 @clip(%x: int32) {
              %0 = constant {value = 7:int32} : int32
              %1 = gt %x, %0 : int1
              %2 = if_else %1 () {
                %3 = constant {value = 7:int32} : int32
                yield_values %3
              } () {
                %4 = constant {value = 1:int32} : int32
                %x.1 = add %x, %4 : int32
                yield_values %x.1
              } : int32
              return_values %2
            }
        "#]],
    );
}

#[test]
fn chained_comparisons_booleans_and_ternaries() {
    check(
        r"
@triton.jit
def k(x_ptr, n, F: tl.constexpr):
    inside = 0 <= n < 10 != 5
    a = n if inside else -n
    b = 1 if F else undefined
    c = F and inside
    d = not inside or (n == 3)
    tl.store(x_ptr, a + b + c + d)
",
        "*int32, int32, True",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = constant {value = 0:int32} : int32
              %1 = le %0, %n : int1
              %2 = constant {value = 10:int32} : int32
              %3 = lt %n, %2 : int1
              %inside = and %1, %3 : int1
              %a = if_else %inside () {
                yield_values %n
              } () {
                %4 = neg %n : int32
                yield_values %4
              } : int32
              %b = constant {value = 1:int32} : int32
              %5 = not %inside : int1
              %6 = constant {value = 3:int32} : int32
              %7 = eq %n, %6 : int1
              %d = or %5, %7 : int1
              %8 = add %a, %b : int32
              %9 = cast %inside {element = int32, rounding = "rtne"} : int32
              %10 = add %8, %9 : int32
              %11 = cast %d {element = int32, rounding = "rtne"} : int32
              %12 = add %10, %11 : int32
              store %x_ptr, %12 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn asserts_are_checked_with_debug_only() {
    let text = format!(
        "{}@triton.jit\ndef k(n):\n    assert n > 0, 'n must be positive'\n    tl.device_assert(n < 5)\n",
        common::HEADER
    );
    let print = |debug| {
        let options = tilewright_frontend::Options { debug, ..tilewright_frontend::Options::default() };
        common::module(&text, "k", "int32", options).map(|module| tilewright_ir::print(&module, false))
    };
    expect![[r#"
        kernel func0 @k(%n: int32) {
          %0 = constant {value = 0:int32} : int32
          %1 = gt %n, %0 : int1
          %2 = constant {value = 5:int32} : int32
          %3 = lt %n, %2 : int1
          return_values
        }
        kernel func0 @k(%n: int32) {
          %0 = constant {value = 0:int32} : int32
          %1 = gt %n, %0 : int1
          assert %1 {failure = "n must be positive"}
          %2 = constant {value = 5:int32} : int32
          %3 = lt %n, %2 : int1
          assert %3 {failure = ""}
          return_values
        }
    "#]]
    .assert_eq(&format!("{}{}", print(false).expect("valid"), print(true).expect("valid")));
}

#[test]
fn divisors_are_checked_with_debug_only() {
    let text = format!("{}@triton.jit\ndef k(n, d):\n    n // d\n    n % 4\n    n / d\n", common::HEADER);
    let print = |debug| {
        let options = tilewright_frontend::Options { debug, ..tilewright_frontend::Options::default() };
        common::module(&text, "k", "int32,int32", options).map(|module| tilewright_ir::print(&module, false))
    };
    expect![[r#"
        kernel func0 @k(%n: int32, %d: int32) {
          %0 = int_div %n, %d : int32
          %1 = constant {value = 4:int32} : int32
          %2 = int_rem %n, %1 : int32
          %3 = cast %n {element = fp32, rounding = "rtne"} : fp32
          %4 = cast %d {element = fp32, rounding = "rtne"} : fp32
          %5 = div %3, %4 : fp32
          return_values
        }
        kernel func0 @k(%n: int32, %d: int32) {
          %0 = cast %d {element = int1, rounding = "rtne"} : int1
          assert %0 {failure = division_by_zero}
          %1 = int_div %n, %d : int32
          %2 = constant {value = 4:int32} : int32
          %3 = cast %2 {element = int1, rounding = "rtne"} : int1
          assert %3 {failure = division_by_zero}
          %4 = int_rem %n, %2 : int32
          %5 = cast %n {element = fp32, rounding = "rtne"} : fp32
          %6 = cast %d {element = fp32, rounding = "rtne"} : fp32
          %7 = div %5, %6 : fp32
          return_values
        }
    "#]]
    .assert_eq(&format!("{}{}", print(false).expect("valid"), print(true).expect("valid")));
}
