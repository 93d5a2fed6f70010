//! Tests the IR of kernels. `UPDATE_EXPECT=1 cargo test` rewrites the expected IR.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn vector_add() {
    check(
        r"
@triton.jit
def k(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    '''Adds.'''
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(z_ptr + offsets, x + y, mask=mask)
",
        "*fp32:16, *fp32:16, *fp32:16, int32, 128",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32 {divisibility = 16}, %y_ptr: *fp32 {divisibility = 16}, %z_ptr: *fp32 {divisibility = 16}, %n: int32) {
              %pid = program_id {axis = 0} : int32
              %0 = constant {value = 128:int32} : int32
              %1 = mul %pid, %0 : int32
              %2 = arange {start = 0, end = 128} : int32[128]
              %3 = splat %1 {shape = [128]} : int32[128]
              %offsets = add %3, %2 : int32[128]
              %4 = splat %n {shape = [128]} : int32[128]
              %mask = lt %offsets, %4 : int1[128]
              %5 = splat %x_ptr {shape = [128]} : *fp32[128]
              %6 = ptr_add %5, %offsets : *fp32[128]
              %x = load %6, %mask {cache = "", eviction = "", volatile = false} : fp32[128]
              %7 = splat %y_ptr {shape = [128]} : *fp32[128]
              %8 = ptr_add %7, %offsets : *fp32[128]
              %y = load %8, %mask {cache = "", eviction = "", volatile = false} : fp32[128]
              %9 = splat %z_ptr {shape = [128]} : *fp32[128]
              %10 = ptr_add %9, %offsets : *fp32[128]
              %11 = add %x, %y : fp32[128]
              store %10, %11, %mask {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn helpers_return_tuples_and_early() {
    check(
        r"
@triton.jit
def pick(a, b, swap):
    if swap > 0:
        return b, a
    else:
        return a, b

@triton.jit
def k(x_ptr, n):
    low, high = pick(n, 2 * n, swap=n)
    (p, q), r = pick(1, 2, n), 3
    tl.store(x_ptr, low + high + p + q + r)
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = constant {value = 2:int32} : int32
              %1 = mul %0, %n : int32
              %low, %high = call %n, %1, %n {callee = func1, results = (int32; int32)} : int32, int32
              %p, %q = call %n {callee = func2, results = (int32; int32)} : int32, int32
              %r = constant {value = 3:int32} : int32
              %2 = add %low, %high : int32
              %3 = add %2, %p : int32
              %4 = add %3, %q : int32
              %5 = add %4, %r : int32
              store %x_ptr, %5 {cache = "", eviction = ""}
              return_values
            }
            func1 @pick(%a: int32, %b: int32, %swap: int32) {
              %0 = constant {value = 0:int32} : int32
              %1 = gt %swap, %0 : int1
              %2, %3 = if_else %1 () {
                yield_values %b, %a
              } () {
                yield_values %a, %b
              } : int32, int32
              return_values %2, %3
            }
            func2 @pick(%swap: int32) {
              %0 = constant {value = 0:int32} : int32
              %1 = gt %swap, %0 : int1
              %2, %3 = if_else %1 () {
                %4 = constant {value = 2:int32} : int32
                %5 = constant {value = 1:int32} : int32
                yield_values %4, %5
              } () {
                %6 = constant {value = 1:int32} : int32
                %7 = constant {value = 2:int32} : int32
                yield_values %6, %7
              } : int32, int32
              return_values %2, %3
            }
        "#]],
    );
}

#[test]
fn helpers_are_specialized_once_for_equal_arguments() {
    check(
        r"
@triton.jit
def offsets(size, start=0, *, scale: tl.constexpr = 1):
    return (start + tl.arange(0, size)) * scale

@triton.jit
def k(x_ptr, B: tl.constexpr):
    a = offsets(B)
    b = offsets(B)
    c = offsets(B, scale=2)
    d = offsets(16, start=tl.program_id(0))
    tl.store(x_ptr + a + b + c + d, 1.0)
",
        "*fp32, 16",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %a = call {callee = func1, results = (int32[16])} : int32[16]
              %b = call {callee = func1, results = (int32[16])} : int32[16]
              %c = call {callee = func2, results = (int32[16])} : int32[16]
              %0 = program_id {axis = 0} : int32
              %d = call %0 {callee = func3, results = (int32[16])} : int32[16]
              %1 = splat %x_ptr {shape = [16]} : *fp32[16]
              %2 = ptr_add %1, %a : *fp32[16]
              %3 = ptr_add %2, %b : *fp32[16]
              %4 = ptr_add %3, %c : *fp32[16]
              %5 = ptr_add %4, %d : *fp32[16]
              %6 = constant {value = 1.0:fp32} : fp32
              %7 = splat %6 {shape = [16]} : fp32[16]
              store %5, %7 {cache = "", eviction = ""}
              return_values
            }
            func1 @offsets() {
              %0 = arange {start = 0, end = 16} : int32[16]
              %1 = constant {value = 0:int32} : int32
              %2 = splat %1 {shape = [16]} : int32[16]
              %3 = add %2, %0 : int32[16]
              %4 = constant {value = 1:int32} : int32
              %5 = splat %4 {shape = [16]} : int32[16]
              %6 = mul %3, %5 : int32[16]
              return_values %6
            }
            func2 @offsets() {
              %0 = arange {start = 0, end = 16} : int32[16]
              %1 = constant {value = 0:int32} : int32
              %2 = splat %1 {shape = [16]} : int32[16]
              %3 = add %2, %0 : int32[16]
              %4 = constant {value = 2:int32} : int32
              %5 = splat %4 {shape = [16]} : int32[16]
              %6 = mul %3, %5 : int32[16]
              return_values %6
            }
            func3 @offsets(%start: int32) {
              %0 = arange {start = 0, end = 16} : int32[16]
              %1 = splat %start {shape = [16]} : int32[16]
              %2 = add %1, %0 : int32[16]
              %3 = constant {value = 1:int32} : int32
              %4 = splat %3 {shape = [16]} : int32[16]
              %5 = mul %2, %4 : int32[16]
              return_values %5
            }
        "#]],
    );
}

#[test]
fn assigned_numbers_become_scalars_as_in_triton() {
    check(
        r"
@triton.jit
def k(x_ptr, B: tl.constexpr):
    half = -7
    kept: tl.constexpr = -7
    tl.store(x_ptr, half // 2)
    tl.store(x_ptr + 1, kept // 2)
    size = B * 2
    tl.store(x_ptr + tl.arange(0, size), 0)
",
        "*int32, 16",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32) {
              %half = constant {value = -7:int32} : int32
              %0 = constant {value = 2:int32} : int32
              %1 = int_div %half, %0 : int32
              store %x_ptr, %1 {cache = "", eviction = ""}
              %2 = constant {value = 1:int32} : int32
              %3 = ptr_add %x_ptr, %2 : *int32
              %4 = constant {value = -4:int32} : int32
              store %3, %4 {cache = "", eviction = ""}
              %size = constant {value = 32:int32} : int32
              %5 = arange {start = 0, end = 32} : int32[32]
              %6 = splat %x_ptr {shape = [32]} : *int32[32]
              %7 = ptr_add %6, %5 : *int32[32]
              %8 = constant {value = 0:int32} : int32
              %9 = splat %8 {shape = [32]} : int32[32]
              store %7, %9 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn compile_time_python() {
    check(
        r"
import math
SCALE = tl.constexpr(math.log2(8) * 0.5)
SHAPE = tl.constexpr((4, 8))
WIDTH = tl.constexpr(SHAPE_HELPER := 2)

@triton.constexpr_function
def widest(values, limit=100):
    best = 0
    for value in values:
        if value > best and value < limit:
            best = value
    return best

@triton.jit
def k(x_ptr, NAME: tl.constexpr):
    sizes: tl.constexpr = [s * 2 for s in SHAPE if s > 4] + [2]
    tl.static_assert(len(sizes) == 2 and sizes[-1] == 2)
    tl.static_assert(min(sizes) == 2 and max(3, 4) == 4 and abs(-2) == 2 and sum(sizes) == 18)
    tl.static_assert(f'{NAME}_{sizes[0]:03d}' == 'a_016', f'{NAME=}')
    tl.static_assert(-7 // 2 == -4 and -7 % 3 == 2 and 2 ** 10 == 1024 and 7 / 2 == 3.5)
    tl.static_assert(isinstance(NAME, str) and isinstance(x_ptr, tl.tensor) and not isinstance(1.5, int))
    tl.static_assert('a' in ('a', 'b') and float('inf') > 1 and int(3.7) == 3)
    tl.static_assert(triton.cdiv(7, 2) == 4 and triton.next_power_of_2(100) == 128)
    tl.static_assert(widest((3, 9, 200)) == 9)
    for index, size in enumerate(sizes):
        tl.store(x_ptr + index, size * SCALE)
",
        "*fp32, a",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %0 = constant {value = 0:int32} : int32
              %1 = ptr_add %x_ptr, %0 : *fp32
              %2 = constant {value = 24.0:fp32} : fp32
              store %1, %2 {cache = "", eviction = ""}
              %3 = constant {value = 1:int32} : int32
              %4 = ptr_add %x_ptr, %3 : *fp32
              %5 = constant {value = 3.0:fp32} : fp32
              store %4, %5 {cache = "", eviction = ""}
              return_values
            }
        "#]],
    );
}

#[test]
fn methods_subscripts_and_tuples() {
    check(
        r"
@triton.jit
def k(x_ptr, B: tl.constexpr):
    rows = tl.arange(0, B)[:, None]
    cols = tl.arange(0, B)[None, :]
    tile = tl.load(x_ptr + rows * B + cols)
    pair = (tile, tile.T)
    total = pair[0].to(tl.float16) + pair[-1]
    args = (total, 1)
    result = total.sum(*args[1:])
    tl.store(x_ptr + tl.arange(0, B), result.to(x_ptr.dtype.element_ty))
",
        "*fp32, 16",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %0 = arange {start = 0, end = 16} : int32[16]
              %rows = expand_dims %0 {axis = 1} : int32[16, 1]
              %1 = arange {start = 0, end = 16} : int32[16]
              %cols = expand_dims %1 {axis = 0} : int32[1, 16]
              %2 = constant {value = 16:int32} : int32
              %3 = splat %2 {shape = [16, 1]} : int32[16, 1]
              %4 = mul %rows, %3 : int32[16, 1]
              %5 = splat %x_ptr {shape = [16, 1]} : *fp32[16, 1]
              %6 = ptr_add %5, %4 : *fp32[16, 1]
              %7 = broadcast %6 {shape = [16, 16]} : *fp32[16, 16]
              %8 = broadcast %cols {shape = [16, 16]} : int32[16, 16]
              %9 = ptr_add %7, %8 : *fp32[16, 16]
              %tile = load %9 {cache = "", eviction = "", volatile = false} : fp32[16, 16]
              %10 = transpose %tile {permutation = [1, 0]} : fp32[16, 16]
              %11 = cast %tile {element = fp16, rounding = "rtne"} : fp16[16, 16]
              %12 = cast %11 {element = fp32, rounding = "rtne"} : fp32[16, 16]
              %total = add %12, %10 : fp32[16, 16]
              %13 = constant {value = 1:int32} : int32
              %result = call %total {callee = func1, results = (fp32[16])} : fp32[16]
              %14 = arange {start = 0, end = 16} : int32[16]
              %15 = splat %x_ptr {shape = [16]} : *fp32[16]
              %16 = ptr_add %15, %14 : *fp32[16]
              store %16, %result {cache = "", eviction = ""}
              return_values
            }
            func1 @sum(%input: fp32[16, 16]) {
              %0 = reduce %input {axis = 1} (%1: fp32, %2: fp32) {
                %3 = call %1, %2 {callee = func2, results = (fp32)} : fp32
                yield_values %3
              } : fp32[16]
              return_values %0
            }
            func2 @_sum_combine(%a: fp32, %b: fp32) {
              %0 = add %a, %b : fp32
              return_values %0
            }
        "#]],
    );
}

#[test]
fn starred_arguments_walrus_and_variadic_parameters() {
    check(
        r"
@triton.jit
def total(first, *rest, scale=2):
    result = first * scale
    for value in rest:
        result += value
    return result

@triton.jit
def k(x_ptr, n):
    values = (n, n + 1)
    if (m := n * 3) > 4:
        tl.store(x_ptr, total(*values, m, 5, scale=m))
    tl.store(x_ptr, total(m))
",
        "*int32, int32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *int32, %n: int32) {
              %0 = constant {value = 1:int32} : int32
              %1 = add %n, %0 : int32
              %2 = constant {value = 3:int32} : int32
              %m = mul %n, %2 : int32
              %3 = constant {value = 4:int32} : int32
              %4 = gt %m, %3 : int1
              if_else %4 () {
                %5 = call %n, %1, %m, %m {callee = func1, results = (int32)} : int32
                store %x_ptr, %5 {cache = "", eviction = ""}
                yield_values
              } () {
                yield_values
              }
              %6 = call %m {callee = func2, results = (int32)} : int32
              store %x_ptr, %6 {cache = "", eviction = ""}
              return_values
            }
            func1 @total(%first: int32, %rest.0: int32, %rest.1: int32, %scale: int32) {
              %result = mul %first, %scale : int32
              %result.1 = add %result, %rest.0 : int32
              %result.2 = add %result.1, %rest.1 : int32
              %0 = constant {value = 5:int32} : int32
              %result.3 = add %result.2, %0 : int32
              return_values %result.3
            }
            func2 @total(%first: int32) {
              %0 = constant {value = 2:int32} : int32
              %result = mul %first, %0 : int32
              return_values %result
            }
        "#]],
    );
}

#[test]
fn functions_are_values() {
    check(
        r"
@triton.jit
def twice(f: tl.constexpr, x):
    return f(f(x))

@triton.jit
def square(x):
    return x * x

@triton.jit
def multiply(a, b):
    return a * b

@triton.jit
def k(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(x_ptr, tl.reduce(twice(square, x), 0, multiply) + twice(tl.exp, 0.5))
",
        "*fp32",
        expect![[r#"
            kernel func0 @k(%x_ptr: *fp32) {
              %0 = arange {start = 0, end = 4} : int32[4]
              %1 = splat %x_ptr {shape = [4]} : *fp32[4]
              %2 = ptr_add %1, %0 : *fp32[4]
              %x = load %2 {cache = "", eviction = "", volatile = false} : fp32[4]
              %3 = call %x {callee = func1, results = (fp32[4])} : fp32[4]
              %4 = reduce %3 {axis = 0} (%5: fp32, %6: fp32) {
                %7 = call %5, %6 {callee = func3, results = (fp32)} : fp32
                yield_values %7
              } : fp32
              %8 = call {callee = func4, results = (fp32)} : fp32
              %9 = add %4, %8 : fp32
              store %x_ptr, %9 {cache = "", eviction = ""}
              return_values
            }
            func1 @twice(%x: fp32[4]) {
              %0 = call %x {callee = func2, results = (fp32[4])} : fp32[4]
              %1 = call %0 {callee = func2, results = (fp32[4])} : fp32[4]
              return_values %1
            }
            func2 @square(%x: fp32[4]) {
              %0 = mul %x, %x : fp32[4]
              return_values %0
            }
            func3 @multiply(%a: fp32, %b: fp32) {
              %0 = mul %a, %b : fp32
              return_values %0
            }
            func4 @twice() {
              %0 = constant {value = 0.5:fp32} : fp32
              %1 = exp %0 : fp32
              %2 = exp %1 : fp32
              return_values %2
            }
        "#]],
    );
}

#[test]
fn spans_point_at_expressions() {
    let text = "import triton\n\n@triton.jit\ndef k(n):\n    m = n * (n + 1)\n    while m > 3: m -= 1\n";
    let module = common::module(text, "k", "int32", tilewright_frontend::Options::default()).expect("valid");
    expect![[r#"
        kernel func0 @k(%n: int32) {
          %0 = constant {value = 1:int32} : int32 @file0:50..55
          %1 = add %n, %0 : int32 @file0:50..55
          %m = mul %n, %1 : int32 @file0:45..56
          %m.1 = while_loop %m (%m.2: int32) {
            %2 = constant {value = 3:int32} : int32 @file0:67..72
            %3 = gt %m.2, %2 : int1 @file0:67..72
            yield_values %3 @file0:67..72
          } (%m.3: int32) {
            %4 = constant {value = 1:int32} : int32 @file0:74..80
            %m.4 = sub %m.3, %4 : int32 @file0:74..80
            yield_values %m.4 @file0:74..80
          } : int32 @file0:61..80
          return_values @file0:61..80
        }
        file0 = "k.py" line 1
    "#]]
    .assert_eq(&tilewright_ir::print(&module, true));
}
