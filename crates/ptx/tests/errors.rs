//! Tests the messages of the parser's errors, with line and column.

use tilewright_ptx::isa::parse;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Returns the error of a module whose fourth line is `item`.
fn error_of_item(item: &str) -> String {
    parse(&format!("{HEAD}{item}\n")).expect_err(item).to_string()
}

/// Returns the error of a kernel with `line` as line 7.
fn error_of(line: &str) -> String {
    let text =
        format!("{HEAD}.entry k(.param .u64 p) {{\n.reg .pred %p<3>;\n.reg .b32 %r<9>;\n{line}\nret;\n}}\n");
    parse(&text).expect_err(line).to_string()
}

#[test]
fn an_instruction_that_does_not_fit_is_named() {
    let cases = [
        ("frob.u32 %r1, %r2;", "line 7, column 1: the instruction `frob.u32` is not supported"),
        (
            "@%p1 multimem.red.relaxed.sys.global.add.f32 [%r1], %r2;",
            "line 7, column 6: the instruction `multimem.red.relaxed.sys.global.add.f32` is not supported",
        ),
        (
            "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %r2, %r3, %r4, %p1;",
            "line 7, column 1: `tcgen05.mma.ws.cta_group::1.kind::f16`: the modifier `.ws` is not supported here",
        ),
        (
            "wmma.load.a.sync %r1;",
            "line 7, column 1: `wmma.load.a.sync`: the modifier `.a` is not supported here",
        ),
        (
            "tex.2d.v4.f32.f32 {%r1}, [%r2];",
            "line 7, column 1: the instruction `tex.2d.v4.f32.f32` is not supported",
        ),
        (
            "add.rn.wild.f32 %r1, %r2, %r3;",
            "line 7, column 1: `add.rn.wild.f32`: the modifier `.wild` is not supported here",
        ),
        ("add %r1, %r2, %r3;", "line 7, column 1: `add` lacks a modifier at its end"),
        (
            "add.u32.u32 %r1, %r2, %r3;",
            "line 7, column 1: `add.u32.u32`: the modifier `.u32` is not supported here",
        ),
        ("add.u32 %r1, %r2;", "line 7, column 9: too few or too many operands"),
        ("add.u32 %r1, %r2, %r3, %r4;", "line 7, column 22: too few or too many operands"),
        ("add.u32 %r1, %r2, %r3", "line 8, column 1: expected `;`"),
        ("add.u32 %r1, %r2, %r9;", "line 7, column 19: `%r9` is not declared"),
        ("add.u32 %r1, %r2, 0x;", "line 7, column 19: `0x` is not a number, or does not fit"),
        ("add.u32 5, %r2, %r3;", "line 7, column 9: expected a register"),
        ("add.u32 p, %r2, %r3;", "line 7, column 9: expected a register"),
        ("ld.global.u32 %r1, %r2;", "line 7, column 20: expected `[`"),
        ("ld.global.u32 %r1, [%r2+1.5];", "line 7, column 25: `1.5` is not a number, or does not fit"),
        ("mov.u32 %r1, %envreg2;", "line 7, column 14: the special register `%envreg2` is not supported"),
        ("bra NOWHERE;", "line 7, column 5: `NOWHERE` is not declared"),
        ("bra %r1;", "line 7, column 5: expected a label"),
        ("@%q bra X;", "line 7, column 2: `%q` is not declared"),
        ("call f, (%r1);", "line 7, column 6: `f` is not declared"),
        ("call %r1, (%r2);", "line 7, column 6: expected a function, or a register with a prototype"),
        ("brx.idx %r1, %r2;", "line 7, column 14: expected a list of branch targets"),
    ];
    for (line, message) in cases {
        assert_eq!(error_of(line), message, "{line}");
    }
}

#[test]
fn a_declaration_that_does_not_fit_is_named() {
    let cases = [
        (".reg .b32 %r<4>;", "line 7, column 15: `%r` is declared twice"),
        (".reg .v2 .f32 v;", "line 7, column 6: a register of a vector type is not supported"),
        (".reg .b33 x;", "line 7, column 6: expected a type"),
        ("L: L: ret;", "line 7, column 4: `L` is declared twice"),
        (".tex .u64 t;", "line 7, column 1: `.tex` is not supported"),
        (".shared .b8 s[4294967296][];", "line 7, column 27: nested too deeply"),
    ];
    for (line, message) in cases {
        assert_eq!(error_of(line), message, "{line}");
    }
    let cases = [
        (".global .texref t;", "line 4, column 9: `.texref` is not supported"),
        (".func f(.reg .b32 %r);", "line 4, column 9: a parameter in a register is not supported"),
        (".global .u32 x = y;", "line 4, column 18: `y` is not declared"),
        (".global .u32 x = 1 / 0;", "line 4, column 20: expected a divisor other than 0"),
        (".global .u32 x[2][2] = {{{1}}};", "line 4, column 26: expected a number"),
        (".global .u32 x[2][2] = {1, 2};", "line 4, column 25: expected `{`"),
        (".global .u32 x = {1};", "line 4, column 18: expected a number"),
        (
            ".global .u32 x[1][2] = {{1, 2, 3}};",
            "line 4, column 33: an initializer of this size is not supported",
        ),
        (
            ".global .b8 x[1][99999999999] = {{1}};",
            "line 4, column 36: an initializer of this size is not supported",
        ),
        (".entry k() .wild { }", "line 4, column 12: `.wild` is not supported"),
        (".entry k() { ret; } .entry k() { ret; }", "line 4, column 39: `k` is declared twice"),
        (".entry k() { ret;", "line 5, column 1: expected an instruction"),
        ("/* x", "line 4, column 1: a comment without an end"),
        (".file 1 \"x", "line 4, column 9: a string without an end"),
        (".section .debug_str { .b8 1", "line 4, column 21: a section without an end"),
        ("é", "line 4, column 1: a character that PTX does not use"),
        ("// é", "line 4, column 4: a character that PTX does not use"),
        (".file 1 \"é\"", "line 4, column 10: a character that PTX does not use"),
    ];
    for (item, message) in cases {
        assert_eq!(error_of_item(item), message, "{item}");
    }
    assert_eq!(parse("").unwrap_err().to_string(), "line 1, column 1: expected .version");
    assert_eq!(
        parse(".version 8").unwrap_err().to_string(),
        "line 1, column 10: expected a version, like `8.4`"
    );
    let deep = format!("{HEAD}.entry k() {{ {}", "{".repeat(100_000));
    assert_eq!(parse(&deep).unwrap_err().to_string(), "line 4, column 77: nested too deeply");
    let deep = format!("{HEAD}.global .u32 x = {}1;", "(".repeat(100_000));
    assert_eq!(parse(&deep).unwrap_err().to_string(), "line 4, column 50: nested too deeply");
}

#[test]
fn an_alignment_is_a_power_of_two() {
    for (item, column) in [(".global .align 0 .b8 a[4];", 16), (".global .align 48 .b8 a[4];", 16)] {
        let found = error_of_item(item);
        assert!(found.starts_with(&format!("line 4, column {column}: ")), "{found}");
        assert!(found.contains("expected a power of two"), "{found}");
    }
}
