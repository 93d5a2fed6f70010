//! Tests the IR of early returns, of the result of a kernel, and of tuples. `UPDATE_EXPECT=1 cargo
//! test` rewrites the expected IR. `tests/kernels/control_flow.md` tests the results.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::{check, lowered};
use expect_test::expect;

#[test]
fn the_rest_stands_once_after_an_if_that_several_ways_lead_out_of() {
    check(
        "
@triton.jit
def k(x_ptr, n):
    p = x_ptr
    if n > 1:
        if n == 5:
            return
        p += n
    tl.store(p, n)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = constant {value = 1:int32} : int32
              %1 = gt %n, %0 : int1
              %p, %2 = if_else %1 () {
                %3 = constant {value = 5:int32} : int32
                %4 = eq %n, %3 : int1
                %5 = if_else %4 () {
                  %6 = constant {value = 1:int1} : int1
                  yield_values %6
                } () {
                  %7 = constant {value = 0:int1} : int1
                  yield_values %7
                } : int1
                %p.1, %8 = if_else %5 () {
                  %9 = constant {value = 1:int1} : int1
                  yield_values %x_ptr, %9
                } () {
                  %p.2 = ptr_add %x_ptr, %n : *int32
                  %10 = constant {value = 0:int1} : int1
                  yield_values %p.2, %10
                } : *int32, int1
                yield_values %p.1, %8
              } () {
                %11 = constant {value = 0:int1} : int1
                yield_values %x_ptr, %11
              } : *int32, int1
              if_else %2 () {
                yield_values
              } () {
                store %p, %n {cache = "", eviction = ""}
                yield_values
              }
              return_values
            }
        "#]],
    );
}

#[test]
fn the_code_grows_with_the_source_and_no_faster() {
    let count = |returns: usize| {
        let body = "    if n > 1:\n        if n == 5:\n            return\n    n += 1\n".repeat(returns);
        let text = format!("\n@triton.jit\ndef k(x_ptr, n):\n{body}    tl.store(x_ptr, n)\n");
        let ir = lowered(&text, "*int32, int32");
        assert!(ir.starts_with("kernel"), "{ir}");
        ir.lines().count()
    };
    assert_eq!(count(48) - count(24), 2 * (count(24) - count(12)));
}

#[test]
fn returned_values_meet() {
    check(
        "
@triton.jit
def h(x, n):
    if n > 0:
        if n > 10:
            return x, 1
        y = x * 2
    else:
        y = x
    return y, 2

@triton.jit
def k(x_ptr, n):
    value, which = h(tl.load(x_ptr), n)
    tl.store(x_ptr, value + which)
",
        "*fp32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32, %n: int32) {
              %0 = load %x_ptr {cache = "", eviction = "", volatile = false} : fp32
              %value, %which = call %0, %n {callee = func1, results = (fp32; int32)} : fp32, int32
              %1 = cast %which {element = fp32, rounding = "rtne"} : fp32
              %2 = add %value, %1 : fp32
              store %x_ptr, %2 {cache = "", eviction = ""}
              return_values
            }
            func1 @h(%x: fp32, %n: int32) {
              %0 = constant {value = 0:int32} : int32
              %1 = gt %n, %0 : int1
              %y, %2, %3 = if_else %1 () {
                %4 = constant {value = 10:int32} : int32
                %5 = gt %n, %4 : int1
                %6, %7 = if_else %5 () {
                  %8 = constant {value = 1:int1} : int1
                  yield_values %8, %x
                } () {
                  %9 = constant {value = 0:int1} : int1
                  %10 = constant {value = 0.0:fp32} : fp32
                  yield_values %9, %10
                } : int1, fp32
                %y.1, %11, %12 = if_else %6 () {
                  %13 = constant {value = 0.0:fp32} : fp32
                  %14 = constant {value = 1:int1} : int1
                  yield_values %13, %14, %7
                } () {
                  %15 = constant {value = 2.0:fp32} : fp32
                  %y.2 = mul %x, %15 : fp32
                  %16 = constant {value = 0:int1} : int1
                  %17 = constant {value = 0.0:fp32} : fp32
                  yield_values %y.2, %16, %17
                } : fp32, int1, fp32
                yield_values %y.1, %11, %12
              } () {
                %18 = constant {value = 0:int1} : int1
                %19 = constant {value = 0.0:fp32} : fp32
                yield_values %x, %18, %19
              } : fp32, int1, fp32
              %20, %21 = if_else %2 () {
                %22 = constant {value = 1:int32} : int32
                yield_values %3, %22
              } () {
                %23 = constant {value = 2:int32} : int32
                yield_values %y, %23
              } : fp32, int32
              return_values %20, %21
            }
        "#]],
    );
}

#[test]
fn returned_types_must_agree_there_too() {
    check(
        "
@triton.jit
def h(x, n):
    if n > 0:
        if n > 10:
            return x
    n += 1
    return n

@triton.jit
def g(x, n):
    if n > 0:
        if n > 10:
            return x
    n += 1

@triton.jit
def k(x_ptr, n):
    h(tl.load(x_ptr), n)
    g(tl.load(x_ptr), n)
",
        "*fp32, int32",
        expect![[r#"
            error[TW0012]: the function returns values of different types
              --> k.py:11:12
               |
             9 |             return x
               |                    - fp32 here
            10 |     n += 1
            11 |     return n
               |            ^ int32 here
            ...
            22 |     h(tl.load(x_ptr), n)
               |     -------------------- called from here
               |
               = note: found int32, expected fp32
               = help: convert one of them, for example with `.to(tl.float32)`

            error[TW0012]: the function returns a value on some paths only
              --> k.py:18:5
               |
            17 |             return x
               |                    - fp32 here
            18 |     n += 1
               |     ^^^^^^ after this it ends without a value
            ...
            23 |     g(tl.load(x_ptr), n)
               |     -------------------- called from here
               |
               = help: return a value of this type at the end, too
        "#]],
    );
}

#[test]
fn an_error_in_such_an_if_causes_no_others() {
    check(
        "
@triton.jit
def h(x, n):
    if n > 0:
        y = unknown
        if n > 10:
            return x
    return n + y

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, h(n, n) + 1)
",
        "*int32, int32",
        expect![[r#"
            error[TW0001]: 'unknown' is not defined
              --> k.py:8:13
               |
             8 |         y = unknown
               |             ^^^^^^^
            ...
            15 |     tl.store(x_ptr, h(n, n) + 1)
               |                     ------- called from here
               |
               = help: assign 'unknown' before, pass it as an argument, or define it in the module as a tl.constexpr
        "#]],
    );
}

#[test]
fn compile_time_conditions_choose_among_returns() {
    check(
        "
@triton.jit
def h(x, A: tl.constexpr, B: tl.constexpr):
    if A + 1 > 1:
        if B + 1 > 1:
            return x
    if A + 2 > 1:
        return x + 1.0
    return None

@triton.jit
def k(x_ptr):
    tl.store(x_ptr, h(tl.load(x_ptr), 0, 0) + h(1, 1, 1) + h(2, 1, 0))
",
        "*fp32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %0 = load %x_ptr {cache = "", eviction = "", volatile = false} : fp32
              %1 = call %0 {callee = func1, results = (fp32)} : fp32
              %2 = call {callee = func2, results = (int32)} : int32
              %3 = cast %2 {element = fp32, rounding = "rtne"} : fp32
              %4 = add %1, %3 : fp32
              %5 = call {callee = func3, results = (fp32)} : fp32
              %6 = add %4, %5 : fp32
              store %x_ptr, %6 {cache = "", eviction = ""}
              return_values
            }
            func1 @h(%x: fp32) {
              %0 = constant {value = 1.0:fp32} : fp32
              %1 = add %x, %0 : fp32
              return_values %1
            }
            func2 @h() {
              %0 = constant {value = 1:int32} : int32
              return_values %0
            }
            func3 @h() {
              %0 = constant {value = 3.0:fp32} : fp32
              return_values %0
            }
        "#]],
    );
}

#[test]
fn a_kernel_returns_nothing() {
    check(
        "
@triton.jit
def k(x_ptr, n):
    if n > 1:
        return None
    return tl.load(x_ptr) + 1
",
        "*fp32, int32",
        expect![[r#"
            error[TW0012]: the function returns values of different types
             --> k.py:9:12
              |
            8 |         return None
              |                ---- None here
            9 |     return tl.load(x_ptr) + 1
              |            ^^^^^^^^^^^^^^^^^^ fp32 here
              |
              = note: found fp32, expected None
              = help: give both a value of one type
        "#]],
    );
    check(
        "
@triton.jit
def k(x_ptr):
    return 1
",
        "*fp32",
        expect![[r#"
            error[TW0012]: a kernel returns nothing
             --> k.py:7:12
              |
            7 |     return 1
              |            ^ the int 1 here
              |
              = help: write the value to memory, with tl.store
        "#]],
    );
}

#[test]
fn the_items_of_an_assigned_tuple_are_numbers_at_run_time() {
    check(
        "
@triton.jit
def k(x_ptr):
    t = (-7, 2)
    tl.store(x_ptr, t[0] // t[1])
    c: tl.constexpr = (-7, 2)
    tl.store(x_ptr, c[0] // c[1])
    shape = (4, 2)
    x = tl.zeros(shape, tl.int32) + t[0]
    axis = (0, 1)
    tl.store(x_ptr + tl.arange(0, 4), tl.sum(x, axis[1]))
    for i in tl.static_range(t[1]):
        tl.store(x_ptr, i)
",
        "*int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32) {
              %0 = constant {value = -7:int32} : int32
              %1 = constant {value = 2:int32} : int32
              %2 = int_div %0, %1 : int32
              store %x_ptr, %2 {cache = "", eviction = ""}
              %3 = constant {value = -4:int32} : int32
              store %x_ptr, %3 {cache = "", eviction = ""}
              %4 = constant {value = 4:int32} : int32
              %5 = constant {value = 2:int32} : int32
              %6 = call {callee = func1, results = (int32[4, 2])} : int32[4, 2]
              %7 = splat %0 {shape = [4, 2]} : int32[4, 2]
              %x = add %6, %7 : int32[4, 2]
              %8 = constant {value = 0:int32} : int32
              %9 = constant {value = 1:int32} : int32
              %10 = arange {start = 0, end = 4} : int32[4]
              %11 = splat %x_ptr {shape = [4]} : *int32[4]
              %12 = ptr_add %11, %10 : *int32[4]
              %13 = call %x {callee = func2, results = (int32[4])} : int32[4]
              store %12, %13 {cache = "", eviction = ""}
              %14 = constant {value = 0:int32} : int32
              store %x_ptr, %14 {cache = "", eviction = ""}
              %15 = constant {value = 1:int32} : int32
              store %x_ptr, %15 {cache = "", eviction = ""}
              return_values
            }
            func1 @zeros() {
              %0 = constant {value = 0:int32} : int32
              %1 = splat %0 {shape = [4, 2]} : int32[4, 2]
              return_values %1
            }
            func2 @sum(%input: int32[4, 2]) {
              %0 = reduce %input {axis = 1} (%1: int32, %2: int32) {
                %3 = call %1, %2 {callee = func3, results = (int32)} : int32
                yield_values %3
              } : int32[4]
              return_values %0
            }
            func3 @_sum_combine(%a: int32, %b: int32) {
              %0 = add %a, %b : int32
              return_values %0
            }
        "#]],
    );
}
