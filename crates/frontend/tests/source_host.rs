//! Tests the host that reads the source of a module.

mod common;

use tilewright_frontend::{Constant, FunctionRef, Host, HostValue, SourceHost};

fn host(text: &str) -> SourceHost {
    SourceHost::new("m.py", text).unwrap_or_else(|failure| panic!("{:?}", failure.diagnostics))
}

fn name(text: &str, name: &str) -> Option<HostValue> {
    host(text).name(FunctionRef(0), name)
}

#[test]
fn constants_of_the_module() {
    let plain = |text: &str, expected: Constant| {
        assert_eq!(
            name(&format!("import math\nA = 3\nx = {text}\n"), "x"),
            Some(HostValue::PlainGlobal(expected)),
            "{text}"
        );
    };
    plain("2 * A + 1", Constant::Int(7));
    plain("-A // 2", Constant::Int(-2));
    plain("1 / 4", Constant::Float(0.25));
    plain("float('inf')", Constant::Float(f64::INFINITY));
    plain("math.log2(A + 5)", Constant::Float(3.0));
    plain("math.floor(2.5)", Constant::Int(2));
    plain("max(A, 7)", Constant::Int(7));
    plain(
        "('a', A, None, True)",
        Constant::Tuple(
            vec![Constant::Str("a".into()), Constant::Int(3), Constant::None, Constant::Bool(true)].into(),
        ),
    );
    let constexpr = |text: &str| name(&format!("import triton.language as tl\n{text}\n"), "x");
    let three = Some(HostValue::Constant(Constant::Int(3)));
    assert_eq!(constexpr("x = tl.constexpr(3)"), three);
    assert_eq!(constexpr("x: tl.constexpr = tl.constexpr(3)"), three);
    // An annotation does not change a plain number.
    let plain_three = Some(HostValue::PlainGlobal(Constant::Int(3)));
    assert_eq!(constexpr("x: tl.constexpr = 3"), plain_three);
    assert_eq!(constexpr("x: 'tl.constexpr' = 1 + 2"), plain_three);
    assert_eq!(constexpr("y = 3\nx, z = y, 4"), None.or(Some(HostValue::PlainGlobal(Constant::Int(3)))));
    assert!(matches!(constexpr("x = open('f').read()"), Some(HostValue::Object(_))));
}

#[test]
fn imports_of_triton_and_tilewright() {
    let language = |path: &str| Some(HostValue::Language(path.into()));
    assert_eq!(name("import triton.language as tl", "tl"), language(""));
    assert_eq!(name("import tilewright.language as tl", "tl"), language(""));
    assert_eq!(name("from triton import language as tl", "tl"), language(""));
    assert_eq!(name("from triton.language import load as ld, math", "ld"), language("load"));
    assert_eq!(name("from triton.language import load as ld, math", "math"), language("math"));
    assert_eq!(name("from triton.language.extra import libdevice", "libdevice"), language("extra.libdevice"));
    assert_eq!(
        name("try:\n    from triton.language.math import rsqrt\nexcept ImportError:\n    pass", "rsqrt"),
        language("math.rsqrt")
    );
    let mut host = host("import triton, torch.nn as nn\n");
    let Some(HostValue::Object(triton)) = host.name(FunctionRef(0), "triton") else { panic!("a module") };
    assert_eq!(host.attribute(triton, "language"), language(""));
    assert_eq!(host.describe(triton), "'triton'");
}

#[test]
fn scopes_of_the_profiler_emit_no_code() {
    let check = |import: &str, body: &str| {
        let text = format!("{}{import}\n\n@triton.jit\ndef k(p):\n{body}", common::HEADER);
        let module = common::module(&text, "k", "*int32", tilewright_frontend::Options::default());
        let text = tilewright_ir::print(&module.expect(import), false);
        let (kernel, functions) = text.split_once("\n}\n").expect("the kernel comes first");
        let is_call = |line: &&str| line.contains("call {");
        assert_eq!(kernel.lines().filter(|line| !is_call(line)).count(), 4, "{text}");
        for function in functions.split_terminator("}\n") {
            assert!(function.ends_with("{\n  return_values\n"), "{text}");
        }
    };
    let with = "    with pl.scope('a'):\n        tl.store(p, 1)\n";
    let calls = "    pl.enter_scope('a')\n    event = pl.allocate_event('b')\n    pl.start_event(event)\n    \
                 tl.store(p, 1)\n    pl.end_event(event)\n    pl.exit_scope('a')\n";
    for import in [
        "import triton.profiler.language as pl",
        "from triton.profiler import language as pl",
        "import tilewright.profiler.language as pl",
    ] {
        check(import, with);
        check(import, calls);
    }
    check("import triton.profiler as proton", &with.replace("pl.", "proton.language."));
    check("from triton.profiler.language import scope", &with.replace("pl.", ""));
}

#[test]
fn decorated_functions() {
    let host = host(
        "import triton\nfrom triton import jit, autotune\nimport tilewright as tw\n\
         @triton.jit\ndef a(x, B: 'tl.constexpr'): pass\n\
         @jit\ndef b(): pass\n\
         @autotune(configs=[], key=[])\n@triton.heuristics({})\n@triton.jit(noinline=True)\ndef c(): pass\n\
         @tw.jit\ndef d(): pass\n\
         @other.jit\ndef e(): pass\n\
         def f(): pass\n\
         if True:\n    @jit\n    def g(): pass\n\
         @jit\ndef a(y): pass\n\
         def h(z): pass\nh = triton.jit(h)\nh = triton.heuristics({})(h)\n\
         def i(z): pass\nj = jit(noinline=True)(i)\n",
    );
    assert_eq!(host.kernels(), ["a", "b", "c", "d", "g", "a", "h", "i"]);
    assert!(host.function("h").is_some() && host.function("j").is_some() && host.function("i").is_none());
    assert_eq!(host.function("f"), None);
    let a = host.function("a").expect("it is there");
    assert_eq!(host.parameters(a), [("y", false)]);
}

#[test]
fn a_later_definition_wins_and_defaults_are_values_of_the_module() {
    let text = "N = 2\n@triton.jit\ndef k(p, n): pass\n\n@triton.jit\ndef h(p, n=N * 2, m=(1, 2)):\n    tl.store(p, n + m[1])\n\n@triton.jit\ndef k(p):\n    h(p)\n";
    let module = common::module(
        &format!("{}{text}", common::HEADER),
        "k",
        "*int32",
        tilewright_frontend::Options::default(),
    );
    let text = tilewright_ir::print(&module.expect("it is valid"), false);
    assert!(text.contains("constant {value = 6:int32}"), "{text}");
}

#[test]
fn names_with_several_possible_values_are_opaque() {
    let opaque = |text: &str| {
        let value = name(text, "N");
        assert!(matches!(value, Some(HostValue::Object(_))), "{text}: {value:?}");
    };
    let plain = |text: &str, expected: i128| {
        assert_eq!(name(text, "N"), Some(HostValue::PlainGlobal(Constant::Int(expected))), "{text}");
    };
    plain("N = 1\nN += 4\n", 5);
    plain("N = 3\nN *= N\nN -= 1\n", 8);
    opaque("N = 1\nN += unknown()\n");
    assert_eq!(
        name("import triton.language as tl\nN = tl.constexpr(1)\nN += 4\n", "N"),
        Some(HostValue::Constant(Constant::Int(5)))
    );
    // Conditions.
    plain("A = 2\nif A > 1 and not False:\n    N = 1\nelse:\n    N = 2\n", 1);
    plain("A = 2\nif A == 1:\n    N = 1\nelif A == 2:\n    N = 2\n", 2);
    plain("if here():\n    N = 1\nelse:\n    N = 1\n", 1);
    plain("N = 1\nif __name__ == '__main__':\n    N = 2\n", 1);
    plain("N = 1 if 2 < 3 else 2\n", 1);
    opaque("if here():\n    N = 1\nelse:\n    N = 2\n");
    opaque("N = 1\nif here():\n    N = 2\n");
    opaque("if here():\n    N = 1\n");
    opaque("N = 1\nif (N := here()):\n    pass\n");
    opaque("match here():\n    case 1:\n        N = 1\n    case _:\n        N = 2\n");
    // Loops and exceptions.
    opaque("N = 1\nfor i in range(3):\n    N += 1\n");
    opaque("for N in range(3):\n    pass\n");
    opaque("N = 1\nwhile N < 100:\n    N *= 2\n");
    opaque("try:\n    import torch\n    N = 1\nexcept ImportError:\n    N = 2\n");
    plain("try:\n    import torch\n    N = 1\nexcept ImportError:\n    raise\n", 1);
    plain("try:\n    import triton\nexcept ImportError:\n    N = 1\nelse:\n    N = 2\n", 2);
    opaque("with open('f') as N:\n    pass\n");
    plain("with here():\n    N = 1\n", 1);
    opaque("N = 1\ndef f():\n    global N\n    N = 2\n");
    opaque("N = 1\nN, M = here()\n");
    // `del`, and annotations without a value.
    assert_eq!(name("N = 1\ndel N\n", "N"), None);
    plain("N = 1\nN: int\n", 1);
    // Functions and modules are not made opaque.
    let host = host("import triton\nif here():\n    @triton.jit\n    def f(): pass\n");
    assert!(host.function("f").is_some());
}

#[test]
fn defaults_are_evaluated_where_the_function_is_defined() {
    let mut host = host("import triton\nN = 1\n@triton.jit\ndef f(x=N): pass\nN = 2\n");
    let f = host.function("f").expect("it is there");
    assert_eq!(host.default(f, "x"), Some(HostValue::PlainGlobal(Constant::Int(1))));
}
