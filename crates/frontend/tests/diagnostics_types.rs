//! Tests errors about types and shapes that do not fit. `UPDATE_EXPECT=1 cargo test` rewrites the
//! expected texts.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::{HEADER, check, module};
use expect_test::expect;
use tilewright_frontend::Options;

#[test]
fn incompatible_shapes() {
    check(
        r#"
@triton.jit
def k(x_ptr):
    a = tl.arange(0, 128)
    b = tl.arange(0, 64)
    tl.store(x_ptr + a, (a + b) * 2.0)
"#,
        "*fp32",
        expect![[r#"
            error[TW0004]: the operands of `+` have incompatible shapes [128] and [64]
             --> k.py:9:28
              |
            9 |     tl.store(x_ptr + a, (a + b) * 2.0)
              |                          - ^ - this has shape [64]
              |                          |
              |                          this has shape [128]
              |
              = note: found extents 128 and 64 along axis 0
              = note: expected equal extents, or 1, along every axis, counted from the last one
              = help: for every pair of their elements, a tile of shape [128, 64], write `x[:, None]` and `y[None, :]`
        "#]],
    );
}

#[test]
fn arange_backwards() {
    check(
        r#"
@triton.jit
def k(x_ptr):
    tl.store(x_ptr + tl.arange(100, 0), 0.0)
"#,
        "*fp32",
        expect![[r#"
            error[TW0006]: `arange` must end after it starts, and 0 is not after 100
             --> k.py:7:22
              |
            7 |     tl.store(x_ptr + tl.arange(100, 0), 0.0)
              |                      ^^^^^^^^^ ---  - this is 0
              |                                |
              |                                this is 100
              |
              = note: found a range of -100 elements, expected at least 1
        "#]],
    );
}

#[test]
fn mask_of_the_wrong_shape() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    rows = tl.arange(0, 16)
    cols = tl.arange(0, 32)
    tile = tl.load(x_ptr + rows[:, None] * 32 + cols[None, :], mask=rows < n)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0007]: the mask has shape [16] and the pointers have shape [16, 32]
             --> k.py:9:12
              |
            9 |     tile = tl.load(x_ptr + rows[:, None] * 32 + cols[None, :], mask=rows < n)
              |            ^^^^^^^ ------------------------------------------       -------- this has shape [16]
              |                    |
              |                    this has shape [16, 32]
              |
              = note: found [16], expected [16, 32] or what broadcasts to it
              = help: for a mask of rows write `mask[:, None]`
        "#]],
    );
}

#[test]
fn type_changes_in_a_loop() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    acc = tl.zeros([64], dtype=tl.float32)
    count = 0
    for i in range(n):
        acc = (acc + i).to(tl.float16)
        count = count + 0.5
    tl.store(x_ptr + tl.arange(0, 64), acc + count)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0011]: 'acc' changes its type from one iteration to the next
              --> k.py:10:9
               |
             7 |     acc = tl.zeros([64], dtype=tl.float32)
               |     --- fp32[64] here
            ...
            10 |         acc = (acc + i).to(tl.float16)
               |         ^^^ fp16[64] here
               |
               = note: found fp16[64] at the end of the loop's body, expected fp32[64]
               = help: give 'acc' its final type before the loop, or convert one of them, for example with `.to(tl.float32)`

            error[TW0011]: 'count' changes its type from one iteration to the next
              --> k.py:11:9
               |
             8 |     count = 0
               |     ----- int32 here
            ...
            11 |         count = count + 0.5
               |         ^^^^^ fp32 here
               |
               = note: found fp32 at the end of the loop's body, expected int32
               = help: give 'count' its final type before the loop, as in `count = 0.0`
        "#]],
    );
}

#[test]
fn shape_changes_in_a_loop() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    acc = 0.0
    best = None
    while n > 0:
        acc += tl.load(x_ptr + tl.arange(0, 64))
        best = n
        n -= 1
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0011]: 'acc' changes its type from one iteration to the next
              --> k.py:10:9
               |
             7 |     acc = 0.0
               |     --- fp32 here
            ...
            10 |         acc += tl.load(x_ptr + tl.arange(0, 64))
               |         ^^^ fp32[64] here
               |
               = note: found fp32[64] at the end of the loop's body, expected fp32
               = help: give 'acc' its final type before the loop, as in `acc = tl.zeros((64,), tl.float32)`

            error[TW0011]: 'best' changes its type from one iteration to the next
              --> k.py:11:9
               |
             8 |     best = None
               |     ---- None here
            ...
            11 |         best = n
               |         ^^^^ int32 here
               |
               = note: found int32 at the end of the loop's body, expected None
               = help: give 'best' a value of its final type before the loop
        "#]],
    );
}

#[test]
fn return_types_differ() {
    check(
        r#"
@triton.jit
def pick(x, n):
    if n > 0:
        return x
    return x.to(tl.float16)

@triton.jit
def sometimes(x, n):
    if n > 0:
        return x
    n += 1

@triton.jit
def k(x_ptr, n):
    x = tl.load(x_ptr)
    tl.store(x_ptr, pick(x, n) + sometimes(x, n))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0012]: the function returns values of different types
              --> k.py:9:12
               |
             8 |         return x
               |                - fp32 here
             9 |     return x.to(tl.float16)
               |            ^^^^^^^^^^^^^^^^ fp16 here
            ...
            20 |     tl.store(x_ptr, pick(x, n) + sometimes(x, n))
               |                     ---------- called from here
               |
               = note: found fp16, expected fp32
               = help: convert one of them, for example with `.to(tl.float32)`

            error[TW0012]: the function returns a value on some paths only
              --> k.py:15:5
               |
            14 |         return x
               |                - fp32 here
            15 |     n += 1
               |     ^^^^^^ after this it ends without a value
            ...
            20 |     tl.store(x_ptr, pick(x, n) + sometimes(x, n))
               |                                  --------------- called from here
               |
               = help: return a value of this type at the end, too
        "#]],
    );
}

#[test]
fn branches_differ() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    if n > 3:
        x = 1
    else:
        x = tl.arange(0, 4)
    y = 1 if n > 3 else 2.0
    tl.store(x_ptr, x)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0018]: 'x' has different types after the branches
              --> k.py:10:9
               |
             8 |         x = 1
               |         - int32 here
             9 |     else:
            10 |         x = tl.arange(0, 4)
               |         ^ int32[4] here
               |
               = note: found int32[4], expected int32
               = help: give both the same shape, for example with tl.full or tl.broadcast_to

            error[TW0018]: the conditional expression has different types after the branches
              --> k.py:11:25
               |
            11 |     y = 1 if n > 3 else 2.0
               |         - int32 here    ^^^ fp32 here
               |
               = note: found fp32, expected int32
               = help: convert one of them, for example with `.to(tl.int32)`
        "#]],
    );
}

#[test]
fn store_of_another_type() {
    check(
        r#"
@triton.jit
def k(x_ptr, y_ptr):
    offsets = tl.arange(0, 16)
    tl.store(x_ptr + offsets, y_ptr + offsets)
    tl.store(offsets, 1.0)
"#,
        "*fp32, *int32",
        expect![[r#"
            error[TW0013]: a pointer cannot be stored as fp32
             --> k.py:8:5
              |
            8 |     tl.store(x_ptr + offsets, y_ptr + offsets)
              |     ^^^^^^^^ ---------------  --------------- this is *int32[16]
              |              |
              |              this is *fp32[16]
              |
              = note: found *int32, expected a number
              = help: store what it points to: `tl.load(…)` first

            error[TW0005]: `store` takes a pointer or a tile of pointers
             --> k.py:9:14
              |
            9 |     tl.store(offsets, 1.0)
              |              ^^^^^^^ this is int32[16]
              |
              = note: found int32[16], expected a pointer such as *fp32
              = help: add the offsets to a pointer argument: `tl.store(x_ptr + offsets, …)`
        "#]],
    );
}

#[test]
fn float_as_an_index() {
    check(
        r#"
@triton.jit
def k(x_ptr, x):
    offsets = tl.arange(0, 16) * 1.5
    tl.store(x_ptr + offsets, 0.0)
    tl.store(x_ptr + x, 0.0)
"#,
        "*fp32, fp32",
        expect![[r#"
            error[TW0014]: a pointer is moved by integers, not by fp32
             --> k.py:8:22
              |
            8 |     tl.store(x_ptr + offsets, 0.0)
              |                      ^^^^^^^ this is fp32[16]
              |
              = note: found fp32, expected an integer type
              = help: convert the offset: `offset.to(tl.int32)`; offsets count elements, not bytes

            error[TW0014]: a pointer is moved by integers, not by fp32
             --> k.py:9:22
              |
            9 |     tl.store(x_ptr + x, 0.0)
              |                      ^ this is fp32
              |
              = note: found fp32, expected an integer type
              = help: convert the offset: `offset.to(tl.int32)`; offsets count elements, not bytes
        "#]],
    );
}

#[test]
fn unknown_attributes() {
    check(
        r#"
import math

@triton.jit
def k(x_ptr, n):
    tl.laod(x_ptr)
    tl.math.epx(1.0)
    n.foo()
    tl.arange(0, 4).shpae
    math.foo
    tl.float23
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0015]: tl has no attribute 'laod'
             --> k.py:9:8
              |
            9 |     tl.laod(x_ptr)
              |        ^^^^
              |
              = help: did you mean 'tl.load'?

            error[TW0015]: tl.math has no attribute 'epx'
              --> k.py:10:13
               |
            10 |     tl.math.epx(1.0)
               |             ^^^
               |
               = help: did you mean 'tl.math.exp'?

            error[TW0015]: a tensor of type int32 has no attribute `foo`
              --> k.py:11:7
               |
            11 |     n.foo()
               |       ^^^

            error[TW0015]: a tensor of type int32[4] has no attribute `shpae`
              --> k.py:12:21
               |
            12 |     tl.arange(0, 4).shpae
               |                     ^^^^^
               |
               = help: did you mean `shape`?

            error[TW0015]: 'math' has no attribute 'foo'
              --> k.py:13:10
               |
            13 |     math.foo
               |          ^^^

            error[TW0015]: tl has no attribute 'float23'
              --> k.py:14:8
               |
            14 |     tl.float23
               |        ^^^^^^^
               |
               = help: did you mean 'tl.float32'?
        "#]],
    );
}

#[test]
fn what_older_versions_had() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    tl.float8
    tl.math.max(n, 1)
    tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16), trans_b=True)
    start = n,
    x_ptr + start
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0015]: tl has no attribute 'float8'
             --> k.py:7:8
              |
            7 |     tl.float8
              |        ^^^^^^
              |
              = help: write `tl.float8e4nv` or `tl.float8e5`, or one of AMD's formats

            error[TW0015]: tl.math has no attribute 'max'
             --> k.py:8:13
              |
            8 |     tl.math.max(n, 1)
              |             ^^^
              |
              = help: write `tl.maximum(x, y)` of two values, `tl.max(x, axis)` of a tile

            error[TW0009]: dot has no parameter 'trans_b'
             --> k.py:9:76
              |
            9 |     tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16), trans_b=True)
              |                                                                            ^^^^^^^
              |
              = help: transpose the operand: `tl.dot(a, tl.trans(b))`

            error[TW0005]: a number or tensor is expected, found a tuple
              --> k.py:11:13
               |
            11 |     x_ptr + start
               |             ^^^^^ this is a tuple
               |
               = help: take its item, `[0]`; a comma after a value, `x = y,`, makes a tuple of it
        "#]],
    );
}

#[test]
fn loops_over_what_is_no_range() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    for i in n:
        pass
    for i in range(0, n, 0):
        pass
    for i in range(1.5):
        pass
    while True:
        n += 1
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0005]: a loop runs over a range or a tuple, found int32
             --> k.py:7:14
              |
            7 |     for i in n:
              |              ^
              |
              = help: count with `for i in range(n)`; the elements of a tile are not taken one by one: work on all of them at once

            error[TW0016]: the step of a range must not be zero
             --> k.py:9:26
              |
            9 |     for i in range(0, n, 0):
              |                          ^

            error[TW0005]: the end of a range must be a scalar integer
              --> k.py:11:20
               |
            11 |     for i in range(1.5):
               |                    ^^^ this is fp32
               |
               = note: found fp32, expected int32 or int64
               = help: convert it with `.to(tl.int32)`; a tile is reduced first, as by `tl.max`

            error[TW0003]: a loop without an end in a kernel
              --> k.py:13:11
               |
            13 |     while True:
               |           ^^^^
               |
               = help: kernels have no 'break': put the condition for going on after 'while'
        "#]],
    );
}

#[test]
fn error_inside_helpers() {
    check(
        r#"
@triton.jit
def inner(a, b):
    return a + b

@triton.jit
def outer(a):
    return inner(a, tl.arange(0, 32))

@triton.jit
def k(x_ptr, n):
    tl.store(x_ptr, outer(tl.arange(0, 64)))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0004]: the operands of `+` have incompatible shapes [64] and [32]
              --> k.py:7:14
               |
             7 |     return a + b
               |            - ^ - this has shape [32]
               |            |
               |            this has shape [64]
            ...
            11 |     return inner(a, tl.arange(0, 32))
               |            -------------------------- called from here
            ...
            15 |     tl.store(x_ptr, outer(tl.arange(0, 64)))
               |                     ----------------------- called from here
               |
               = note: found extents 64 and 32 along axis 0
               = note: expected equal extents, or 1, along every axis, counted from the last one
               = help: for every pair of their elements, a tile of shape [64, 32], write `x[:, None]` and `y[None, :]`
        "#]],
    );
}

#[test]
fn error_inside_the_library() {
    check(
        r#"
@triton.jit
def helper(x):
    return tl.softmax(x, dim=3)

@triton.jit
def k(x_ptr, n):
    a = tl.arange(0, 64)
    x = tl.sum(x_ptr + a, axis=0)
    y = helper(tl.load(x_ptr + a))
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0014]: two pointers cannot be added
              --> k.py:12:9
               |
            12 |     x = tl.sum(x_ptr + a, axis=0)
               |         ^^^^^^^^^^^^^^^^^^^^^^^^^ in this call of sum
               |
               = note: in sum of the library, at tilewright/lib/standard.py:101:14: return a + b
               = note: a: this is *fp32
               = note: b: this is *fp32
               = help: add an integer offset, counted in elements, to one pointer

            error[TW0016]: axis 3 of `softmax` does not exist: the tile has 1 axis
              --> k.py:7:12
               |
             7 |     return tl.softmax(x, dim=3)
               |            ^^^^^^^^^^^^^^^^^^^^ in this call of softmax
            ...
            13 |     y = helper(tl.load(x_ptr + a))
               |         -------------------------- called from here
               |
               = note: expected an axis from -1 to 0
               = note: in softmax of the library, at tilewright/lib/standard.py:30:26: shifted = x - max(x, axis, keep_dims=True)
               = note: axis: this is 3
        "#]],
    );
}

#[test]
fn parts_of_pointers_to_constant_memory_are_constant() {
    for line in [
        "a, b = tl.split(x + tl.arange(0, 32).reshape(16, 2))\n    tl.store(b, 1.0)",
        "p = x + tl.arange(0, 32)\n    tl.store(p[::2], 1.0)",
        "p = tl.gather(x + tl.arange(0, 16), 15 - tl.arange(0, 16), 0)\n    tl.store(p, 1.0)",
    ] {
        for (annotation, is_refused) in [(": tl.const", true), ("", false)] {
            let text = format!("{HEADER}@triton.jit\ndef k(x{annotation}):\n    {line}\n");
            let found = module(&text, "k", "*fp32", Options::default()).err().unwrap_or_default();
            assert_eq!(found.contains("error[TW0013]"), is_refused, "{text}\n{found}");
            assert!(is_refused || found.is_empty(), "{text}\n{found}");
        }
    }
}
