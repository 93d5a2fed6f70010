//! Tests errors about names, and about unsupported Python constructs. `UPDATE_EXPECT=1 cargo test`
//! rewrites the expected texts.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn undefined_name() {
    check(
        r#"
@triton.jit
def k(x_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n_element)
    tl.store(x_ptr + offsets, x, mask=offsets < n_elements)
"#,
        "*fp32, int32, 128",
        expect![[r#"
            error[TW0001]: 'n_element' is not defined
             --> k.py:8:49
              |
            8 |     x = tl.load(x_ptr + offsets, mask=offsets < n_element)
              |                                                 ^^^^^^^^^
              |
              = help: did you mean 'n_elements'?
        "#]],
    );
}

#[test]
fn name_assigned_in_one_branch() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    if n > 3:
        x = 1.0
    tl.store(x_ptr, x)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0001]: 'x' is not defined on every path that leads here
             --> k.py:9:21
              |
            8 |         x = 1.0
              |         - only assigned in this branch
            9 |     tl.store(x_ptr, x)
              |                     ^
              |
              = help: give 'x' a value before, for example zeros of its final type
        "#]],
    );
}

#[test]
fn names_of_a_loop() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    for i in range(n):
        last = i
    tl.store(x_ptr, last)
    tl.store(x_ptr + i, 0.0)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0001]: 'last' is not defined on every path that leads here
             --> k.py:9:21
              |
            8 |         last = i
              |         ---- only assigned inside this loop, which may run zero times
            9 |     tl.store(x_ptr, last)
              |                     ^^^^
              |
              = help: give 'last' a value before, for example zeros of its final type

            error[TW0001]: 'i' is not defined on every path that leads here
              --> k.py:10:22
               |
             7 |     for i in range(n):
               |         - the variable of this loop, which may run zero times
            ...
            10 |     tl.store(x_ptr + i, 0.0)
               |                      ^
               |
               = help: give 'i' a value before, for example zeros of its final type
        "#]],
    );
}

#[test]
fn syntax_error() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    x = tl.load(x_ptr
    tl.store(x_ptr, x)
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0002]: expected `,`, found name
             --> k.py:8:5
              |
            7 |     x = tl.load(x_ptr
              |                - this bracket is still open
            8 |     tl.store(x_ptr, x)
              |     ^^
        "#]],
    );
}

#[test]
fn unsupported_constructs() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    import math
    global counter
    class A: pass
    def inner(): pass
    f = lambda x: x
    with n: pass
    try:
        x = 1
    except Exception:
        pass
    del n
    yield n
    table = {1: 2}
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0003]: an import in a kernel
             --> k.py:7:5
              |
            7 |     import math
              |     ^^^^^^
              |
              = help: move it out of the kernel, to the top of the module

            error[TW0003]: 'global' in a kernel
             --> k.py:8:5
              |
            8 |     global counter
              |     ^^^^^^
              |
              = help: pass the value as an argument and return the new one

            error[TW0003]: a class in a kernel
             --> k.py:9:11
              |
            9 |     class A: pass
              |           ^
              |
              = help: move it out of the kernel, to the top of the module

            error[TW0003]: a nested function in a kernel
              --> k.py:10:9
               |
            10 |     def inner(): pass
               |         ^^^^^
               |
               = help: move it out of the kernel, to the top of the module

            error[TW0003]: a lambda in a kernel
              --> k.py:11:9
               |
            11 |     f = lambda x: x
               |         ^^^^^^^^^^^
               |
               = help: define the function outside of the kernel, with @triton.jit

            error[TW0003]: 'with' of int32 in a kernel
              --> k.py:12:10
               |
            12 |     with n: pass
               |          ^
               |
               = help: `with` takes an object of a `triton.aggregate` with methods `__enter__` and `__exit__`, such as `pl.scope("name")` of triton.profiler.language

            error[TW0003]: 'try' in a kernel
              --> k.py:13:5
               |
            13 |     try:
               |     ^^^
               |
               = help: a kernel raises no exceptions: test the condition with `if`

            error[TW0003]: 'del' in a kernel
              --> k.py:17:5
               |
            17 |     del n
               |     ^^^
               |
               = help: leave it out: values live as long as they are used

            error[TW0003]: 'yield' in a kernel
              --> k.py:18:5
               |
            18 |     yield n
               |     ^^^^^^^
               |
               = help: return a tuple of values

            error[TW0003]: a dict in a kernel
              --> k.py:19:13
               |
            19 |     table = {1: 2}
               |             ^^^^^^
               |
               = help: use a tuple
        "#]],
    );
}

#[test]
fn unsupported_control_flow_and_targets() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    for i in range(n):
        if i > 3:
            break
        continue
    for i in range(n):
        return i
    while n > 3:
        n -= 1
    else:
        pass
    x_ptr[0] = 1
    n.x = 1
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0003]: 'break' in a kernel
             --> k.py:9:13
              |
            9 |             break
              |             ^^^^^
              |
              = help: a loop runs to its end: put the condition for going on into `while`, as in `while (i < n) & (found == 0):`; or leave out what must not happen any more, with `if` for scalars and `tl.where` or a mask for tiles

            error[TW0003]: 'continue' in a kernel
              --> k.py:10:9
               |
            10 |         continue
               |         ^^^^^^^^
               |
               = help: put the rest of the body under an `if` with the opposite condition; for tiles, mask it or choose with `tl.where`

            error[TW0003]: 'return' inside a loop in a kernel
              --> k.py:12:9
               |
            12 |         return i
               |         ^^^^^^
               |
               = help: assign the result to a name and return it after the loop; mask what must not happen any more

            error[TW0003]: 'else' after a loop in a kernel
              --> k.py:16:9
               |
            16 |         pass
               |         ^
               |
               = help: put the statements after the loop

            error[TW0003]: an assignment to an element in a kernel
              --> k.py:17:5
               |
            17 |     x_ptr[0] = 1
               |     ^^^^^^^^
               |
               = help: a tile does not change, and a pointer is not indexed: write to memory with `tl.store(ptr + i, value)`, or choose with tl.where

            error[TW0003]: an assignment to an attribute in a kernel
              --> k.py:18:5
               |
            18 |     n.x = 1
               |     ^^^
               |
               = help: use a name of its own; the copy of an object with other fields is `tl.aggregate_replace(x, field=value)`
        "#]],
    );
}

#[test]
fn globals_that_are_no_constexpr() {
    check(
        r#"
SCALE = 2.5
NAMES = ('a', 'b')

@triton.jit
def k(x_ptr):
    tl.store(x_ptr, SCALE)
    tl.static_assert('a' in NAMES)
"#,
        "*fp32",
        expect![[r#"
            error[TW0023]: the global variable 'SCALE' is not a constexpr
              --> k.py:10:21
               |
            10 |     tl.store(x_ptr, SCALE)
               |                     ^^^^^
               |
               = note: its value is 2.5 now; a kernel is compiled once and would not see it change
               = help: write `SCALE = tl.constexpr(2.5)` where it is defined (an annotation does not make it one), or pass it as an argument

            error[TW0023]: the global variable 'NAMES' is not a constexpr
              --> k.py:11:29
               |
            11 |     tl.static_assert('a' in NAMES)
               |                             ^^^^^
               |
               = note: its value is ('a', 'b') now; a kernel is compiled once and would not see it change
               = help: write `NAMES = tl.constexpr(('a', 'b'))` where it is defined (an annotation does not make it one), or pass it as an argument
        "#]],
    );
}

#[test]
fn a_statement_with_an_error_does_not_cause_others() {
    check(
        r#"
@triton.jit
def k(x_ptr, n):
    a = undefined_one
    b = a + 1
    for i in range(n):
        b += a
    if b > 3:
        c = b
    tl.store(x_ptr + c, b)
    d = undefined_two
"#,
        "*fp32, int32",
        expect![[r#"
            error[TW0001]: 'undefined_one' is not defined
             --> k.py:7:9
              |
            7 |     a = undefined_one
              |         ^^^^^^^^^^^^^
              |
              = help: assign 'undefined_one' before, pass it as an argument, or define it in the module as a tl.constexpr

            error[TW0001]: 'undefined_two' is not defined
              --> k.py:14:9
               |
            14 |     d = undefined_two
               |         ^^^^^^^^^^^^^
               |
               = help: assign 'undefined_two' before, pass it as an argument, or define it in the module as a tl.constexpr
        "#]],
    );
}
