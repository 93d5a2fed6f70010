//! Tests errors about calls, and about values that must be known at compile time.
//! `UPDATE_EXPECT=1 cargo test` rewrites the expected texts.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn block_size_not_annotated() {
    check(
        r#"
@triton.jit
def k(x_ptr, n, BLOCK_SIZE):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(x_ptr + offsets, 0.0, mask=offsets < n)
"#,
        "*fp32, int32, int32",
        expect![[r#"
            error[TW0008]: `end` of `arange` must be known at compile time
             --> k.py:7:60
              |
            6 | def k(x_ptr, n, BLOCK_SIZE):
              |                 ---------- this parameter is a run-time value
            7 |     offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
              |                                                            ^^^^^^^^^^ this is int32, known only at run time
              |
              = note: expected a compile-time value, such as a number or a `tl.constexpr` parameter
              = help: annotate it: `BLOCK_SIZE: tl.constexpr`
        "#]],
    );
}

#[test]
fn run_time_argument_for_a_constexpr_parameter() {
    check(
        r#"
@triton.jit
def fill(x_ptr, size: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, size), 0.0)

@triton.jit
def k(x_ptr, n):
    half = n // 2
    fill(x_ptr, half)
    fill(x_ptr, size=n)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0008]: `end` of `arange` must be known at compile time
              --> k.py:7:35
               |
             6 | def fill(x_ptr, size: tl.constexpr):
               |                 ---- this parameter gets a run-time value
             7 |     tl.store(x_ptr + tl.arange(0, size), 0.0)
               |                                   ^^^^ this is int32, known only at run time
            ...
            12 |     fill(x_ptr, half)
               |     ----------------- called from here
               |
               = note: expected a compile-time value, such as a number or a `tl.constexpr` parameter
               = help: pass a compile-time value as 'size'
        "#]],
    );
}

#[test]
fn a_run_time_value_in_an_f_string() {
    check(
        r#"
@triton.jit
def k(x_ptr):
    x = tl.load(x_ptr)
    print(f"x = {x}")
"#,
        "*fp32",
        expect![[r#"
            error[TW0008]: a value in an f-string must be known when the kernel is compiled
             --> k.py:8:18
              |
            7 |     x = tl.load(x_ptr)
              |     - x is a run-time value
            8 |     print(f"x = {x}")
              |                  ^ this is fp32, known at run time only
              |
              = help: to print a run-time value, call `tl.device_print("x", x)`, or set `TRITON_INTERPRET=1`, with which Python's `print` runs
        "#]],
    );
}

#[test]
fn arguments_that_do_not_fit() {
    check(
        r#"
@triton.jit
def helper(a, b, scale=1):
    return a + b * scale

@triton.jit
def k(x_ptr, n):
    helper(n)
    helper(n, 1, 2, 3)
    helper(n, 1, scael=2)
    helper(n, 1, a=2)
    helper(n, **n)
    tl.load(x_ptr, msk=n)
    tl.store(x_ptr)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0009]: missing argument 'b' of helper
              --> k.py:11:5
               |
             6 | def helper(a, b, scale=1):
               |     ------ defined here
            ...
            11 |     helper(n)
               |     ^^^^^^^^^

            error[TW0009]: helper takes at most 3 positional arguments, found 4
              --> k.py:12:21
               |
             6 | def helper(a, b, scale=1):
               |     ------ defined here
            ...
            12 |     helper(n, 1, 2, 3)
               |                     ^

            error[TW0009]: helper has no parameter 'scael'
              --> k.py:13:18
               |
             6 | def helper(a, b, scale=1):
               |     ------ defined here
            ...
            13 |     helper(n, 1, scael=2)
               |                  ^^^^^
               |
               = help: did you mean 'scale'?

            error[TW0009]: helper got two values for 'a'
              --> k.py:14:18
               |
             6 | def helper(a, b, scale=1):
               |     ------ defined here
            ...
            14 |     helper(n, 1, a=2)
               |                  ^

            error[TW0003]: '**' in a call in a kernel
              --> k.py:15:15
               |
            15 |     helper(n, **n)
               |               ^^^
               |
               = help: name the arguments

            error[TW0009]: load has no parameter 'msk'
              --> k.py:16:20
               |
            16 |     tl.load(x_ptr, msk=n)
               |                    ^^^
               |
               = help: did you mean 'mask'?

            error[TW0009]: missing argument 'value' of store
              --> k.py:17:5
               |
            17 |     tl.store(x_ptr)
               |     ^^^^^^^^^^^^^^^
               |
               = help: its parameters are pointer, value, mask, boundary_check, cache_modifier, eviction_policy
        "#]],
    );
}

#[test]
fn plain_python_function() {
    check(
        r#"
def cdiv(a, b):
    return (a + b - 1) // b

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, cdiv(n, 4))
    sorted((1, 2))
    n(1)
    triton.testing(n)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0010]: function 'cdiv' is plain Python, which a kernel cannot call
              --> k.py:10:21
               |
            10 |     tl.store(x_ptr, cdiv(n, 4))
               |                     ^^^^
               |
               = help: decorate it with @triton.jit; or, if it computes a compile-time value from compile-time values, with @triton.constexpr_function

            error[TW0010]: Python's 'sorted' cannot be called in a kernel
              --> k.py:11:5
               |
            11 |     sorted((1, 2))
               |     ^^^^^^
               |
               = help: a tile is sorted by `tl.sort(x)`

            error[TW0010]: int32 cannot be called
              --> k.py:12:5
               |
            12 |     n(1)
               |     ^

            error[TW0010]: 'triton.testing' cannot be called
              --> k.py:13:5
               |
            13 |     triton.testing(n)
               |     ^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn recursion() {
    check(
        r#"
@triton.jit
def even(n):
    return odd(n - 1)

@triton.jit
def odd(n):
    return even(n - 1)

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, even(n))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0021]: 'even' calls itself
              --> k.py:11:12
               |
             7 |     return odd(n - 1)
               |            ---------- called from here
            ...
            11 |     return even(n - 1)
               |            ^^^^^^^^^^^
            ...
            15 |     tl.store(x_ptr, even(n))
               |                     ------- called from here
               |
               = note: calls are compiled into the kernel, and nothing that is known at compile time ends this recursion
               = help: write it as a loop
        "#]],
    );
}

#[test]
fn recursion_with_compile_time_arguments() {
    check(
        r#"
@triton.jit
def down(x, N: tl.constexpr):
    if N == 0:
        return x
    return down(x, N - 1) + 1

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, down(n, 300))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0021]: calls nest more than 64 deep, up to this one of 'down'
              --> k.py:9:12
               |
             9 |     return down(x, N - 1) + 1
               |            ^^^^^^^^^^^^^^
               |            |
               |            called from here, 63 times
            ...
            13 |     tl.store(x_ptr, down(n, 300))
               |                     ------------ called from here
               |
               = help: write the recursion as a loop, or see that its compile-time arguments end it sooner
        "#]],
    );
}

#[test]
fn static_assertions() {
    check(
        r#"
@triton.jit
def k(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 8 == 0, 'BLOCK must be a multiple of 8')
    assert BLOCK == 16, f'found {BLOCK}'
"#,
        "*fp32, 12",
        expect![[r#"
            error[TW0017]: BLOCK must be a multiple of 8
             --> k.py:7:22
              |
            7 |     tl.static_assert(BLOCK % 8 == 0, 'BLOCK must be a multiple of 8')
              |                      ^^^^^^^^^^^^^^ this is false
        "#]],
    );
}

#[test]
fn compile_time_errors() {
    check(
        r#"
@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr):
    a = BLOCK // (BLOCK - 12)
    b = BLOCK + 'x'
    c = (1, 2)[2]
    d = f'{n}'
    e = 1 << 200
    f: tl.constexpr = n + 1
    tl.arange(0, f)
    g = [i for i in range(n)]
    p, q = 1, 2, 3
    r = 'a' in n
"#,
        "*fp32, int32, 12",
        expect![[r#"
            error[TW0020]: division by zero
             --> k.py:7:9
              |
            7 |     a = BLOCK // (BLOCK - 12)
              |         ^^^^^^^^^^^^^^^^^^^^^

            error[TW0020]: unsupported operand types for +: 'int' and 'str'
             --> k.py:8:9
              |
            8 |     b = BLOCK + 'x'
              |         ^^^^^^^^^^^

            error[TW0020]: index 2 is out of range for 2 items
             --> k.py:9:9
              |
            9 |     c = (1, 2)[2]
              |         ^^^^^^^^^

            error[TW0008]: a value in an f-string must be known when the kernel is compiled
              --> k.py:10:12
               |
             6 | def k(x_ptr, n, BLOCK: tl.constexpr):
               |              - this parameter is a run-time value
            ...
            10 |     d = f'{n}'
               |            ^ this is int32, known at run time only
               |
               = help: annotate it: `n: tl.constexpr`

            error[TW0020]: the result needs more than 128 bits
              --> k.py:11:9
               |
            11 |     e = 1 << 200
               |         ^^^^^^^^

            error[TW0008]: `end` of `arange` must be known at compile time
              --> k.py:13:18
               |
            12 |     f: tl.constexpr = n + 1
               |     - f is a run-time value
            13 |     tl.arange(0, f)
               |                  ^ this is int32, known only at run time
               |
               = note: expected a compile-time value, such as a number or a `tl.constexpr` parameter
               = help: if it is a parameter of the kernel, annotate it in the signature, as in `BLOCK: tl.constexpr`

            error[TW0008]: the end of an unrolled range must be known when the kernel is compiled
              --> k.py:14:21
               |
             6 | def k(x_ptr, n, BLOCK: tl.constexpr):
               |              - this parameter is a run-time value
            ...
            14 |     g = [i for i in range(n)]
               |                     ^^^^^^^^ this is int32, known at run time only
               |
               = help: annotate it: `n: tl.constexpr`

            error[TW0005]: 3 values cannot be unpacked into 2 names
              --> k.py:15:12
               |
            15 |     p, q = 1, 2, 3
               |            ^^^^^^^ this is a tuple of 3

            error[TW0020]: 'in' compares compile-time values only
              --> k.py:16:9
               |
            16 |     r = 'a' in n
               |         ^^^^^^^^
               |
               = help: compare with each: `(x == 1) | (x == 2)`
        "#]],
    );
}

#[test]
fn too_much_to_unroll() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    for i in tl.static_range(1000000):
        tl.store(x_ptr + i, 0.0)
    for i in tl.static_range(n):
        tl.store(x_ptr + i, 0.0)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0022]: a loop of 1000000 iterations is too long to unroll
             --> k.py:7:14
              |
            7 |     for i in tl.static_range(1000000):
              |              ^^^^^^^^^^^^^^^^^^^^^^^^
              |
              = note: expected at most 65536 iterations
              = help: use range or tl.range, which make a loop at run time

            error[TW0008]: `arg1` of `static_range` must be known at compile time
             --> k.py:9:30
              |
            6 | def k(x_ptr, n):
              |              - this parameter is a run-time value
            ...
            9 |     for i in tl.static_range(n):
              |                              ^ this is int32, known only at run time
              |
              = note: expected a compile-time value, such as a number or a `tl.constexpr` parameter
              = help: annotate it: `n: tl.constexpr`
        "#]],
    );
}

#[test]
fn keywords_of_min_with_a_run_time_argument() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, min(n, 3, key=7))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0009]: min takes no keyword 'key' in a kernel
             --> k.py:7:21
              |
            7 |     tl.store(x_ptr, min(n, 3, key=7))
              |                     ^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn attributes_of_a_tensor_are_not_those_of_a_number() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    first = n.stride(0)
    second = x_ptr.stride(0)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0015]: a tensor of type int32 has no attribute `stride`
             --> k.py:7:15
              |
            7 |     first = n.stride(0)
              |               ^^^^^^

            error[TW0015]: a pointer of type *fp32 has no attribute `stride`
             --> k.py:8:20
              |
            8 |     second = x_ptr.stride(0)
              |                    ^^^^^^
              |
              = note: a kernel gets the address of a tensor's first element, and nothing else of the tensor
              = help: pass what is needed of it as an argument of the launch, such as `x.stride(0)` or `x.numel()`
        "#]],
    );
}
