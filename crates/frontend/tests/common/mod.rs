//! Lowers a kernel, and returns the IR or the diagnostics as text.
#![allow(dead_code, reason = "each test file uses some of these")]

use std::io::Write;

use expect_test::Expect;
use tilewright_base::Color;
use tilewright_frontend::{Argument, Constant, HostValue, Options, Request, SourceHost, Tuple, lower};
use tilewright_ir::{Dtype, Module, Type};

/// The first lines of the tests' modules.
pub const HEADER: &str = "import triton\nimport triton.language as tl\n\n";

/// Parses an argument: `*fp32`, the name of a scalar type such as `int32`, a number, `True`,
/// `None`, or `"text"`. `:16` after a pointer or scalar states that the argument is a multiple of
/// 16. A tuple is `(*fp32; int32)`, with fields `(x=*fp32; n=int32)`.
pub fn argument(text: &str) -> Argument {
    if let Some(items) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        let items: Vec<&str> = items.split(';').map(str::trim).filter(|item| !item.is_empty()).collect();
        let fields = items.iter().map(|item| item.split_once('=').map(|(field, _)| field.into())).collect();
        let items = items.iter().map(|item| argument(item.split_once('=').map_or(item, |(_, value)| value)));
        return Argument::Tuple(Tuple::new(items.collect(), fields));
    }
    let (name, divisibility) = text.split_once(':').unwrap_or((text, "1"));
    let divisibility = divisibility.parse().expect("a divisibility is a number");
    if let Some(pointee) = name.strip_prefix('*').and_then(Dtype::parse) {
        return Argument::Pointer { pointee, divisibility, is_const: false };
    }
    if let Some(dtype) = Dtype::parse(name) {
        return Argument::Scalar { dtype, divisibility };
    }
    let constant = match name {
        "True" => Constant::Bool(true),
        "False" => Constant::Bool(false),
        "None" => Constant::None,
        "tl.float32" => Constant::Type(Type::scalar(Dtype::F32)),
        "tl.float16" => Constant::Type(Type::scalar(Dtype::F16)),
        _ => match (name.parse(), name.parse()) {
            (Ok(int), _) => Constant::Int(int),
            (_, Ok(float)) => Constant::Float(float),
            _ => Constant::Str(name.into()),
        },
    };
    Argument::Constexpr(HostValue::Constant(constant))
}

/// Lowers the kernel `name`. The arguments are written as [`argument`] parses them, with commas
/// between them.
pub fn module(text: &str, name: &str, arguments: &str, options: Options) -> Result<Module, String> {
    let rendered = |failure: Box<tilewright_frontend::Failure>| {
        let mut texts: Vec<String> = Vec::new();
        for diagnostic in &failure.diagnostics {
            texts.push(diagnostic.render(&failure.sources, Color::Never));
        }
        texts.join("\n\n") + "\n"
    };
    let mut host = SourceHost::new("k.py", text).map_err(rendered)?;
    let kernel = host.function(name).unwrap_or_else(|| panic!("there is no kernel {name}"));
    let arguments =
        arguments.split(',').map(str::trim).filter(|text| !text.is_empty()).map(argument).collect();
    let module = lower(&Request { kernel, arguments, options }, &mut host).map_err(rendered)?;
    if let Err(error) = tilewright_ir::verify(&module) {
        panic!("{error}\n{}", tilewright_ir::print(&module, false));
    }
    Ok(module)
}

/// Returns the IR of the kernel `k`, or its diagnostics. [`HEADER`] is inserted before the text.
pub fn lowered(text: &str, arguments: &str) -> String {
    let text = format!("{HEADER}{text}");
    match module(&text, "k", arguments, Options::default()) {
        Ok(module) => tilewright_ir::print(&module, false),
        Err(findings) => findings,
    }
}

/// Returns the folder of users' programs beside the project. If the folder is absent, prints that
/// `test` is skipped.
#[allow(dead_code, reason = "not every test file that shares this module uses it")]
pub fn user_programs(test: &str) -> Option<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seed-programs");
    let found = folder.is_dir().then_some(folder);
    if found.is_none() {
        let reason = "the folder of users' programs is not beside this checkout";
        // The harness shows `eprintln!` only if the test fails.
        writeln!(std::io::stderr(), "\nSKIPPED {test}: {reason}").expect("stderr takes it");
    }
    found
}

/// Compares the IR or the diagnostics of a text with the expected text.
/// `UPDATE_EXPECT=1 cargo test` rewrites the expected text.
#[expect(clippy::needless_pass_by_value, reason = "expectations are written at the call")]
pub fn check(text: &str, arguments: &str, expected: Expect) {
    expected.assert_eq(&lowered(text, arguments));
}
