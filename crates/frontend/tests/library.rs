//! Tests library functions that kernels call: the types of their results, and their IR.

mod common;

use common::{HEADER, module};
use tilewright_frontend::Options;

/// Returns the type and shape of an expression of `x`, a tile of type `dtype` and shape `shape`. If
/// the expression does not compile, returns the diagnostics.
fn type_of(expression: &str, dtype: &str, shape: &str) -> String {
    // The parameter `p` only supplies the element type. The failing `static_assert` prints the
    // result's type and shape as its message.
    let text = format!(
        "{HEADER}from triton.language.extra import libdevice\n\n@triton.jit\ndef helper(x):\n    return {expression}\n\n\
         @triton.jit\ndef k(p):\n    x = tl.full({shape}, 0, tl.float32).to(p.dtype.element_ty)\n    y = helper(x)\n\
         \x20   tl.static_assert(False, f\"{{y.dtype}} {{y.shape}}\")\n"
    );
    let found = module(&text, "k", &format!("*{dtype}"), Options::default()).expect_err("it asserts False");
    let first = found.lines().next().unwrap_or_default().to_string();
    first.split_once("]: ").map_or(first.clone(), |(code, message)| {
        if code.contains("TW0017") { message.to_string() } else { found }
    })
}

fn check(expression: &str, dtype: &str, shape: &str, expected: &str) {
    assert_eq!(type_of(expression, dtype, shape), expected, "{expression} of {dtype} {shape}");
}

#[test]
fn reductions_choose_their_types() {
    let cases = [
        ("int1", "uint32", "int32"),
        ("int8", "int32", "int32"),
        ("uint8", "uint32", "int32"),
        ("int32", "int32", "int32"),
        ("uint32", "uint32", "uint32"),
        ("int64", "int64", "int64"),
        ("fp16", "fp16", "fp32"),
        ("bf16", "bf16", "fp32"),
        ("fp8e5", "fp8e5", "fp32"),
        ("fp32", "fp32", "fp32"),
        ("fp64", "fp64", "fp64"),
    ];
    for (dtype, sum, extremum) in cases {
        check("tl.sum(x, 1)", dtype, "[4, 8]", &format!("{sum} (4,)"));
        check("tl.sum(x)", dtype, "[4, 8]", &format!("{sum} ()"));
        check("x.sum(axis=0, keep_dims=True)", dtype, "[4, 8]", &format!("{sum} (1, 8)"));
        check("tl.max(x, 1)", dtype, "[4, 8]", &format!("{extremum} (4,)"));
        check("tl.min(x, axis=-1, keep_dims=True)", dtype, "[4, 8]", &format!("{extremum} (4, 1)"));
        check("x.max(0)", dtype, "[8]", &format!("{extremum} ()"));
    }
    check("tl.sum(x, 0, dtype=tl.float32)", "fp16", "[8]", "fp32 ()");
    check("tl.max(x, 0, return_indices=True)[0]", "fp16", "[8]", "fp16 ()");
    check("tl.max(x, 0, return_indices=True)[1]", "fp16", "[8]", "int32 ()");
    check(
        "tl.min(x, 1, return_indices=True, return_indices_tie_break_left=False)[0]",
        "bf16",
        "[8, 4]",
        "bf16 (8,)",
    );
    check("tl.max(x, return_indices=True, keep_dims=True)[1]", "fp32", "[8, 4]", "int32 (1, 1)");
    check("tl.argmax(x, 0)", "fp32", "[8, 4]", "int32 (4,)");
    check("tl.argmin(x, -1, keep_dims=True)", "fp32", "[2, 8, 4]", "int32 (2, 8, 1)");
    check("tl.xor_sum(x, 0)", "int16", "[8]", "int16 ()");
    check("tl.reduce_or(x, 0)", "int1", "[8, 2]", "int1 (2,)");
    check("tl.sum(x)", "fp32", "[]", "fp32 ()");
}

#[test]
fn shapes_and_functions() {
    check("tl.zeros([4, 8], tl.float16)", "fp32", "[8]", "fp16 (4, 8)");
    check("tl.zeros_like(x)", "int8", "[8, 2]", "int8 (8, 2)");
    check("tl.zeros((4, 8), dtype=x.dtype)", "bf16", "[8]", "bf16 (4, 8)");
    check("tl.ravel(x)", "fp32", "[8, 2]", "fp32 (16,)");
    check("x.ravel()", "fp32", "[8, 2]", "fp32 (16,)");
    check("tl.squeeze(x, 1)", "fp32", "[8, 1, 2]", "fp32 (8, 2)");
    check("tl.squeeze(x, -1)", "fp32", "[8, 1]", "fp32 (8,)");
    check("tl.unsqueeze(x, -1)", "fp32", "[8]", "fp32 (8, 1)");
    check("tl.softmax(x)", "fp32", "[8]", "fp32 (8,)");
    check("tl.softmax(x, 1)", "fp32", "[8, 4]", "fp32 (8, 4)");
    check("tl.sigmoid(x)", "fp32", "[8]", "fp32 (8,)");
    check("tl.cdiv(x, 4)", "int64", "[8]", "int64 (8,)");
    check("tl.cdiv(10, 4)", "int64", "[8]", "int32 ()");
    check("tl.swizzle2d(x, x, 8, 8, 2)[0]", "int32", "[8]", "int32 (8,)");
    check("triton.next_power_of_2(100) + x", "int64", "[8]", "int64 (8,)");
}

#[test]
fn random_numbers() {
    check("tl.rand(1, x)", "int32", "[8]", "fp32 (8,)");
    check("tl.randn(1, x)", "int32", "[8]", "fp32 (8,)");
    check("tl.randint(1 << 40, x)", "int64", "[8]", "uint32 (8,)");
    check("tl.rand4x(1, x)[3]", "uint32", "[8]", "fp32 (8,)");
    check("tl.randn4x(1, x)[3]", "uint32", "[8]", "fp32 (8,)");
    check("tl.philox(7, x, x, x, x)[0]", "int64", "[8]", "uint64 (8,)");
}

#[test]
fn every_function_of_libdevice_lowers() {
    let floats = ["fp32", "fp64"];
    let mut seen = 0;
    for entry in tilewright_frontend::semantic::language_entries() {
        use tilewright_frontend::semantic::EntryKind;
        let Some(name) = entry.path.strip_prefix("extra.libdevice.") else { continue };
        if entry.kind != EntryKind::Function {
            continue;
        }
        let arguments = entry.signature.matches(',').count() + 1;
        let call = match name {
            "ldexp" | "scalbn" => format!("libdevice.{name}(x, 3)"),
            "jn" | "yn" => format!("libdevice.{name}(3, x)"),
            _ => format!("libdevice.{name}({})", vec!["x"; arguments].join(", ")),
        };
        for dtype in floats {
            let dtype = match name {
                "int_as_float" => "int32",
                _ if name.starts_with("double2") => "fp64",
                _ if name.starts_with("float2") => "fp32",
                _ if name.starts_with("int2") => "int32",
                _ if name.starts_with("uint2") => "uint32",
                _ if name.starts_with("ll2") => "int64",
                _ if name.starts_with("ull2") => "uint64",
                "uint_as_float" => "uint32",
                "longlong_as_double" => "int64",
                "mulhi" | "brev" | "byte_perm" | "clz" | "ffs" | "hadd" | "hiloint2double" | "mul24"
                | "popc" | "rhadd" | "sad" => "int32",
                "float_as_int" | "float_as_uint" => "fp32",
                "double_as_longlong" | "rcp64h" => "fp64",
                _ => dtype,
            };
            let found = type_of(&call, dtype, "[8]");
            assert!(found.ends_with("(8,)") && found.lines().count() == 1, "{call}: {found}");
            seen += 1;
        }
    }
    assert!(seen > 100);
}
