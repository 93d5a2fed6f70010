//! Tests constants: expressions, offsets with several terms, decimal fractions. Also tests that
//! preprocessor lines are skipped.

use tilewright_ptx::isa::*;

/// Returns the instructions of a kernel with this body.
fn instructions(body: &str) -> Vec<Instruction> {
    let text = format!(
        ".version 8.0\n#line 1 \"kernel.cu\"\n.target sm_80\n.address_size 64\n.global .b32 table[9];\n
.entry k(.param .u64 p)\n{{\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %d<9>;\n{body}\n}}\n"
    );
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let body = module.functions.values().next().expect("it has a function").body.clone();
    let of = |statement: Statement| match statement.kind {
        StatementKind::Instruction { instruction, .. } => Some(instruction),
        _ => None,
    };
    body.expect("it has a body").into_iter().filter_map(of).collect()
}

/// Returns the constant that `mov` reads.
fn constant(text: &str) -> Immediate {
    let found = instructions(&format!("mov.b32 %r1, {text};"));
    let [Instruction::Mov(Mov { a, .. })] = &found[..] else { panic!("{found:?}") };
    let [Source::Immediate(value)] = a.0[..] else { panic!("{a:?}") };
    value
}

#[test]
fn expressions_have_the_precedence_of_c() {
    // The values are those of a C compiler.
    let cases = [
        ("1 << 4 | 3", 19),
        ("4*(2+1)", 12),
        ("-(5)", -5),
        ("~0xff & 0xfff", 0xf00),
        ("!0", 1),
        ("7 - 2 - 1", 4),
        ("1 > 0 ? 4 : 5", 4),
        ("0 ? 1 : 0 ? 2 : 3", 3),
        ("2 + 3 == 5 && 1 != 1 || 4 >= 4", 1),
        ("1 << 2 < 5", 1),
        ("3 & 2 == 2", 1),
        ("10 % 4 ^ 1", 3),
        ("(.s32) -1 >> 1", -1),
        ("017 + 0b11 + 0x10", 34),
    ];
    for (text, value) in cases {
        assert_eq!(constant(text), Immediate::Integer(value), "{text}");
    }
}

#[test]
fn fractions_may_lack_digits_on_one_side() {
    for (text, value) in [("-.5", -0.5), ("3.", 3.0), (".25e2", 25.0), ("+1.5", 1.5)] {
        let found = instructions(&format!("mov.f32 %f1, {text};"));
        let [Instruction::Mov(Mov { a, .. })] = &found[..] else { panic!("{found:?}") };
        assert_eq!(a.0[..], [Source::Immediate(Immediate::F64(f64::to_bits(value)))], "{text}");
    }
}

#[test]
fn offsets_are_expressions() {
    for (text, value) in [
        ("%d1+-4+8", 4),
        ("%d1+(4*2)", 8),
        ("%d1+4*2", 8),
        ("%d1-4", -4),
        ("%d1-4+16", 12),
        ("table+4*3", 12),
    ] {
        let found = instructions(&format!("ld.global.b32 %r1, [{text}];"));
        let [Instruction::Ld(Ld { address, .. })] = &found[..] else { panic!("{found:?}") };
        assert_eq!(address.offset, value, "{text}");
    }
}

#[test]
fn lines_of_a_preprocessor_are_skipped_and_counted() {
    let error = parse(".version 8.0\n  # 5 \"x.cu\"\n.target sm_80\n.wild\n").expect_err("a wild directive");
    assert_eq!(error.line, 4);
}

#[test]
fn a_wrong_expression_is_an_error_at_its_place() {
    for (constant, message) in [
        ("1 / 0", "expected a divisor other than 0"),
        ("(1", "expected `)`"),
        ("1.5 + 1", "expected integers on both sides"),
        ("1 + %r2", "expected a number"),
        ("1 ? 2", "expected `:`"),
        ("1 + 0x", "`0x` is not a number, or does not fit"),
    ] {
        let text =
            format!(".version 8.0 .target sm_80 .entry k() {{ .reg .b32 %r<9>; mov.b32 %r1, {constant}; }}");
        let error = parse(&text).expect_err(constant);
        assert_eq!(error.kind.to_string(), message, "{constant}");
    }
}
