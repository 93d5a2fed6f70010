//! Tests that mutated programs and hostile texts do not make the frontend panic.

mod common;

use tilewright_base::Color;
use tilewright_frontend::{Argument, Constant, HostValue, Options, Request, SourceHost, lower};
use tilewright_fuzz::random::Random;
use tilewright_ir::Dtype;

fn tokens(text: &str) -> Vec<String> {
    let kind = |c: char| i32::from(!c.is_alphanumeric() && c != '_');
    let mut tokens: Vec<String> = Vec::new();
    let mut last = 2;
    for c in text.chars() {
        match tokens.last_mut() {
            Some(token) if last == 0 && kind(c) == 0 => token.push(c),
            _ => tokens.push(c.to_string()),
        }
        last = kind(c);
    }
    tokens
}

/// Lowers every kernel of a text and renders the diagnostics. Returns the number of kernels without
/// errors.
fn lower_all(text: &str, pointee: Dtype) -> usize {
    let render = |failure: &tilewright_frontend::Failure| {
        assert!(!failure.diagnostics.is_empty(), "a failure says why:\n{text}");
        for diagnostic in &failure.diagnostics {
            // The test harness shows this text if the test fails.
            println!("{}", diagnostic.render(&failure.sources, Color::Never));
        }
    };
    let mut host = match SourceHost::new("k.py", text) {
        Ok(host) => host,
        Err(failure) => {
            render(&failure);
            return 0;
        }
    };
    let kernels: Vec<String> = host.kernels().into_iter().map(String::from).collect();
    let mut lowered = 0;
    for name in kernels {
        let Some(kernel) = host.function(&name) else { continue };
        let argument = |(name, is_constexpr): (&str, bool)| {
            if is_constexpr {
                Argument::Constexpr(HostValue::Constant(Constant::Int(16)))
            } else if name.contains("ptr") {
                Argument::Pointer { pointee, divisibility: 16, is_const: false }
            } else {
                Argument::Scalar { dtype: Dtype::I32, divisibility: 1 }
            }
        };
        let arguments = host.parameters(kernel).into_iter().map(argument).collect();
        let options = Options { debug: true, ..Options::default() };
        match lower(&Request { kernel, arguments, options }, &mut host) {
            Ok(module) => {
                if let Err(error) = tilewright_ir::verify(&module) {
                    panic!("{error}\n{text}\n{}", tilewright_ir::print(&module, false));
                }
                lowered += 1;
            }
            Err(failure) => render(&failure),
        }
    }
    lowered
}

/// Returns programs of the project, and programs of users if they are available.
fn programs() -> Vec<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("tests/programs/constructs.py"), root.join("../../benches/kernels.py")];
    if let Some(folder) = common::user_programs("mutated_programs_do_not_panic, its users' programs") {
        let known = [
            "000_fused_softmax",
            "001_broadcast_2d",
            "001_type_promotion",
            "003_grouped_matmul",
            "003_swizzle",
        ];
        paths.extend(known.map(|name| folder.join(name).with_extension("py")));
    }
    paths.iter().map(|path| std::fs::read_to_string(path).expect("it is text")).collect()
}

fn mutate(parts: &[String], random: &mut Random) -> String {
    let mut parts = parts.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(parts.len());
        let other = parts[random.below(parts.len())].clone();
        match random.below(6) {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, other),
            2 => parts[at] = other,
            3 => {
                let next = random.below(parts.len());
                parts.swap(at, next);
            }
            4 => parts[at] = random.pick(&["0", "None", "1.5", "x", "-1", "''", "[]", "()"]).into(),
            _ => {
                let pieces = ["if", "for", "return", "(", ":", "lambda", "\n", "é", "\0", "**"];
                parts[at] = random.pick(&pieces).into();
            }
        }
    }
    parts.concat()
}

#[test]
fn mutated_programs_do_not_panic() {
    let rounds: usize =
        std::env::var("TILEWRIGHT_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut random = Random(7);
    let mut lowered = 0;
    for program in programs() {
        let parts = tokens(&program);
        let whole = lower_all(&program, Dtype::F32) + lower_all(&program, Dtype::I32);
        assert!(whole > 0, "the program itself lowers");
        for round in 0..rounds {
            let pointee = if round % 4 == 0 { Dtype::I32 } else { Dtype::F32 };
            lowered += lower_all(&mutate(&parts, &mut random), pointee);
        }
    }
    assert!(lowered > 0);
}

#[test]
fn deep_and_large_programs_end_in_a_finding() {
    let kernel = |body: &str| format!("{}@triton.jit\ndef k(x_ptr, n):\n{body}\n", common::HEADER);
    let line = |line: &str| kernel(&format!("    {line}"));
    for text in [
        line(&format!("x = {}n{}", "(".repeat(100_000), ")".repeat(100_000))),
        line(&format!("x = {}n{}", "(".repeat(2_100), ")".repeat(2_100))),
        line(&format!("x = {}n{}", "abs(".repeat(300), ")".repeat(300))),
        line(&format!("x = {}n", "-".repeat(500))),
        line(&format!("x = {}n", "not ".repeat(900))),
        line("for i in tl.static_range(1 << 40):\n        x = i"),
        line(
            "for i in tl.static_range(60000):\n        for j in tl.static_range(60000):\n            tl.store(x_ptr, j)",
        ),
        line("x = 2 ** 100000000"),
        line("x: tl.constexpr = 'a' * 10000000000"),
        line("x = tl.zeros([1 << 20, 1 << 20], tl.float32)"),
        line("x = 1 << 127 << 127"),
        line("x = [i for i in range(10 ** 12)]"),
        line("x = f'{n:>999999999}'"),
        kernel(&(0..150).fold(String::new(), |text, depth| text + &" ".repeat(depth + 4) + "if n > 1:\n")),
        kernel(&"    if n > 1: return\n".repeat(300)),
        kernel("    k(x_ptr, n)"),
    ] {
        assert_eq!(lower_all(&text, Dtype::F32), 0, "{}", &text[..200.min(text.len())]);
    }
}

#[test]
fn nesting_needs_little_stack() {
    let nested = format!("x = {}n{}", "abs(".repeat(60), ")".repeat(60));
    let text =
        format!("{}@triton.jit\ndef k(x_ptr, n):\n    {nested}\n    tl.store(x_ptr, x)\n", common::HEADER);
    let blocks = (0..90).fold(String::new(), |text, depth| text + &" ".repeat(depth + 4) + "if n > 1:\n");
    let deep = format!("{}@triton.jit\ndef k(x_ptr, n):\n{blocks}{}n = 1\n", common::HEADER, " ".repeat(100));
    let too_deep = format!("{}{}", text.replace("abs(", &"abs(".repeat(12)), ")".repeat(720));
    let broken = format!("{text}\nx = {}", "abs(".repeat(900));
    let parentheses = text.replace(&nested, &format!("x = {}n{}", "(".repeat(1_900), ")".repeat(1_900)));
    let sum = text.replace(&nested, &format!("x = n{}", " + n".repeat(1_900)));
    let texts = [text, deep, parentheses, sum, too_deep, broken];
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let lowered = thread.spawn(move || texts.map(|text| lower_all(&text, Dtype::F32)));
    let lowered = lowered.expect("a thread starts").join().expect("it does not overflow");
    assert_eq!(lowered, [1, 1, 1, 1, 0, 0]);
}

#[test]
fn long_flat_programs_lower() {
    let kernel = |body: &str| format!("{}@triton.jit\ndef k(x_ptr, n):\n{body}\n", common::HEADER);
    assert_eq!(lower_all(&kernel(&"    x = n + 1\n".repeat(5_000)), Dtype::F32), 1);
    assert_eq!(lower_all(&kernel(&format!("    x = n{}", " + n".repeat(500))), Dtype::F32), 1);
    assert_eq!(lower_all(&kernel(&"    if n > 1: return\n".repeat(30)), Dtype::F32), 1);
    let nested_return = "    if n > 1:\n        if n > 2:\n            return\n    n += 1\n";
    assert_eq!(lower_all(&kernel(&nested_return.repeat(40)), Dtype::F32), 1);
}
