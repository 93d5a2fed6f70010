//! Tests the syntax trees that `--emit ast` prints.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use expect_test::expect;
use tilewright_base::{Color, SourceFile};
use tilewright_frontend::dump_ast;

#[test]
fn the_tree_of_a_function() {
    let text = "x = 1\n@triton.jit\ndef k(p, B: tl.constexpr = 4):\n    for i in range(0, 4):\n        tl.store(p + i, -1.5, mask=i < B)\n    return p if B else None\n";
    let tree = dump_ast(&SourceFile::new("k.py", text), Some("k")).expect("the text is Python");
    expect![[r#"
        StmtFunctionDef 2:1 @triton.jit …
          Decorator 2:1 @triton.jit
            Attribute 2:2 triton.jit
              Name 2:2 triton
              Identifier 2:9 jit
          Identifier 3:5 k
          Parameters 3:6 (p, B: tl.constexpr = 4)
            ParameterWithDefault 3:7 p
              Parameter 3:7 p
                Identifier 3:7 p
            ParameterWithDefault 3:10 B: tl.constexpr = 4
              Parameter 3:10 B: tl.constexpr
                Identifier 3:10 B
                Attribute 3:13 tl.constexpr
                  Name 3:13 tl
                  Identifier 3:16 constexpr
              NumberLiteral 3:28 4
          StmtFor 4:5 for i in range(0, 4): …
            Name 4:9 i
            Call 4:14 range(0, 4)
              Name 4:14 range
              Arguments 4:19 (0, 4)
                NumberLiteral 4:20 0
                NumberLiteral 4:23 4
            StmtExpr 5:9 tl.store(p + i, -1.5, mask=i < B)
              Call 5:9 tl.store(p + i, -1.5, mask=i < B)
                Attribute 5:9 tl.store
                  Name 5:9 tl
                  Identifier 5:12 store
                Arguments 5:17 (p + i, -1.5, mask=i < B)
                  BinOp 5:18 p + i
                    Name 5:18 p
                    Name 5:22 i
                  UnaryOp 5:25 -1.5
                    NumberLiteral 5:26 1.5
                  Keyword 5:31 mask=i < B
                    Identifier 5:31 mask
                    Compare 5:36 i < B
                      Name 5:36 i
                      Name 5:40 B
          StmtReturn 6:5 return p if B else None
            If 6:12 p if B else None
              Name 6:12 p
              Name 6:17 B
              NoneLiteral 6:24 None
    "#]]
    .assert_eq(&tree);
}

#[test]
fn a_text_that_is_not_python() {
    let failure = dump_ast(&SourceFile::new("k.py", "def k(:\n"), None).expect_err("it is not");
    let text = failure.diagnostics[0].render(&failure.sources, Color::Never);
    expect![[r#"
        error[TW0002]: expected a parameter or the end of the parameter list
         --> k.py:1:7
          |
        1 | def k(:
          |       ^"#]]
    .assert_eq(&text);
}
