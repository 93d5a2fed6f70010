//! Tests the limits of a compilation, which must end and use bounded memory.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use std::fmt::Write;

use common::{check, lowered};
use expect_test::expect;

#[test]
fn nested_loops_over_nothing() {
    check(
        "
@triton.jit
def k():
    for i in tl.static_range(60000):
        for j in tl.static_range(60000):
            pass
",
        "",
        expect![[r#"
            error[TW0022]: compiling this kernel takes too long
             --> k.py:9:13
              |
            9 |             pass
              |             ^^^^
              |
              = note: 4194304 statements and expressions were evaluated before this one
              = help: let compile-time loops run less often, or use range, which makes a loop at run time
        "#]],
    );
    check(
        "
@triton.constexpr_function
def forever(n):
    while n > 0:
        for i in range(1000):
            n = n + 1
    return n

@triton.jit
def k():
    tl.static_assert(forever(1) > 0)
",
        "",
        expect![[r#"
            error[TW0022]: compiling this kernel takes too long
              --> k.py:9:17
               |
             9 |             n = n + 1
               |                 ^^^^^
            ...
            14 |     tl.static_assert(forever(1) > 0)
               |                      ---------- called from here
               |
               = note: 4194304 statements and expressions were evaluated before this one
               = help: let compile-time loops run less often, or use range, which makes a loop at run time
        "#]],
    );
}

#[test]
fn compile_time_values_have_a_largest_size() {
    for statement in [
        "t: tl.constexpr = [i for i in range(60000)] * 60000",
        "t: tl.constexpr = ([[1] * 60000] * 2) * 30000",
        "t: tl.constexpr = [[i] * 1000 for i in range(60000)]",
        "t: tl.constexpr = 'x' * 100000000",
        "t: tl.constexpr = ['x' * 60000 + str(i) for i in range(60000)]",
        "t: tl.constexpr = 7 ** 7 ** 7 ** 7",
        "t: tl.constexpr = 1 << (1 << 100)",
        "t: tl.constexpr = [*range_(), *range_(), *range_()]",
        "t: tl.constexpr = ([n] * 60000 + [n] * 60000) + [n] * 60000",
        "t: tl.constexpr = list(zip([1] * 60000, [2] * 60000))",
    ] {
        let text = format!(
            "
@triton.constexpr_function
def range_():
    return [i for i in range(60000)]

@triton.jit
def k(n):
    {statement}
"
        );
        let found = lowered(&text, "int32");
        assert!(found.contains("error[TW0020]") || found.contains("error[TW0008]"), "{statement}\n{found}");
    }
    // Repeated doubling is an error when the value becomes too large.
    let doubling = "    t: tl.constexpr = t + t\n".repeat(60);
    let found = lowered(&format!("\n@triton.jit\ndef k():\n    t: tl.constexpr = (1,)\n{doubling}"), "");
    assert!(found.contains("error[TW0020]: a compile-time value has at most 65536 items or 2097152 letters, and this one has more"), "{found}");
}

#[test]
fn calls_that_double_the_code() {
    let mut text = "\n@triton.jit\ndef h0(x):\n    return x + 1\n".to_owned();
    for i in 1..40 {
        let _ = write!(text, "\n@triton.jit\ndef h{i}(x):\n    return h{0}(x) * h{0}(x + {i})\n", i - 1);
    }
    text += "\n@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, h39(tl.load(x_ptr)))\n";
    let found = lowered(&text, "*int32");
    let first = found.lines().next().unwrap_or_default();
    assert_eq!(first, "error[TW0022]: the kernel has more than 262144 operations", "{found}");
    assert!(found.contains("calls are inlined, and 'h"), "{found}");
}

#[test]
fn nesting_through_calls() {
    let nest = |depth: usize, inner: &str| {
        let mut text = String::new();
        for level in 0..depth {
            let _ = writeln!(text, "{}if x > {level}:", " ".repeat(4 + level));
        }
        text + &format!("{}{inner}\n", " ".repeat(4 + depth))
    };
    let mut text = String::new();
    for i in 0..8 {
        let inner = if i == 0 { "y += 1".to_owned() } else { format!("y += f{}(x)", i - 1) };
        let _ = write!(text, "\n@triton.jit\ndef f{i}(x):\n    y = x\n{}    return y\n", nest(60, &inner));
    }
    // The kernel calls each function before its caller, so that lowering itself never nests deeply.
    text += "\n@triton.jit\ndef k(x_ptr):\n    x = tl.load(x_ptr)\n";
    for i in 0..8 {
        let _ = writeln!(text, "    tl.store(x_ptr, f{i}(x))");
    }
    let found = lowered(&text, "*int32");
    let first = found.lines().next().unwrap_or_default();
    assert_eq!(
        first, "error[TW0022]: the call of 'f3' nests loops and branches more than 256 deep",
        "{found}"
    );
}

#[test]
fn many_specializations_are_found_quickly() {
    let text = "
@triton.jit
def h(x, N: tl.constexpr):
    return x

@triton.jit
def k(x_ptr):
    x = tl.load(x_ptr)
    for i in tl.static_range(8000):
        x = h(x, i)
    for i in tl.static_range(8000):
        x = h(x, i)
    tl.store(x_ptr, x)
";
    let module = lowered(text, "*int32");
    assert_eq!(module.matches("@h(").count(), 8000);
}
