//! Tests the PTX of the benchmarks' kernels and of other kernels. Compares the text with `golden/`,
//! counts instructions, and assembles it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use tilewright_testkit::{Ptxas, check_snapshot};

use crate::common::{checked_kernel, compile, kernel, lower, lower_in_stages};

/// A kernel of `benches/kernels.py`.
struct Golden {
    /// The name of the file in `golden/`, without target and extension.
    file: &'static str,
    kernel: &'static str,
    signature: &'static str,
    warps: u32,
    /// The largest allowed number of registers on `sm_90a`.
    registers: u32,
    /// The largest allowed numbers of shuffles and of barriers in the text.
    exchanges: [usize; 2],
}

const GOLDEN: &[Golden] = &[
    Golden {
        file: "add",
        kernel: "add_kernel",
        signature: "*fp32:16, *fp32:16, *fp32:16, int32:16, 1024",
        warps: 4,
        registers: 26,
        exchanges: [0, 0],
    },
    Golden {
        file: "softmax",
        kernel: "softmax_kernel",
        signature: "*fp32:16, *fp32:16, int32, int32, 1024",
        warps: 4,
        registers: 32,
        exchanges: [16, 5],
    },
    Golden {
        file: "layer_norm",
        kernel: "layer_norm_kernel",
        signature: "*fp32:16, *fp32:16, *fp32:16, *fp32:16, int32, int32, fp32, 1024",
        warps: 4,
        registers: 60,
        exchanges: [16, 3],
    },
    Golden {
        file: "matmul_fp16",
        kernel: "matmul_kernel",
        signature: "*fp16:16, *fp16:16, *fp32:16, int32:16, int32:16, int32:16, int32:16, 1, int32:16, 1, int32:16, 1, \
                    64, 64, 32",
        warps: 4,
        registers: 255,
        exchanges: [0, 4],
    },
    Golden {
        file: "matmul_fp32",
        kernel: "matmul_kernel",
        signature: "*fp32:16, *fp32:16, *fp32:16, int32:16, int32:16, int32:16, int32:16, 1, int32:16, 1, int32:16, 1, \
                    32, 32, 16",
        warps: 4,
        registers: 255,
        exchanges: [0, 4],
    },
];

fn text(golden: &Golden, target: &str) -> String {
    let path = tilewright_testkit::project_root().join("benches/kernels.py");
    let source = std::fs::read_to_string(path).expect("the benchmarks' kernels are there");
    let module = compile("benches/kernels.py", &source, golden.kernel, golden.signature);
    lower(&module, target, golden.warps).0
}

#[test]
fn the_text_of_the_benchmarks_kernels() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lower/golden");
    for golden in GOLDEN {
        check_snapshot(&folder.join(format!("{}.sm_80.ptx", golden.file)), &text(golden, "sm_80"));
    }
}

#[test]
fn the_text_does_not_depend_on_the_run() {
    assert_eq!(text(&GOLDEN[3], "sm_90a"), text(&GOLDEN[3], "sm_90a"));
}

/// The targets of the assembler: at least one of each generation.
const TARGETS: [&str; 8] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_100a", "sm_120"];

#[test]
fn ptxas_accepts_the_kernels_and_spills_nothing() {
    let Some(ptxas) = Ptxas::find_or_skip("ptxas_accepts_the_kernels_and_spills_nothing") else { return };
    for golden in GOLDEN {
        for target in TARGETS {
            let text = text(golden, target);
            let assembled = ptxas.assemble(&text, target).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let usage = assembled.usage(golden.kernel).expect("the kernel is in the report");
            assert_eq!((usage.spill_stores, usage.spill_loads), (0, 0), "{} for {target}", golden.file);
            assert_eq!(assembled.losses, [""; 0], "{} for {target}", golden.file);
            if target == "sm_90a" {
                assert!(usage.registers <= golden.registers, "{}: {usage:?}", golden.file);
            }
        }
    }
}

/// Kernels of `products.py` with their signatures, for `sm_90a`. The numbers are warps, the largest
/// allowed registers, and tensor core instructions. The last is the instructions of a loop with
/// dots in three stages.
const PRODUCTS: &[(&str, &str, u32, u32, usize, usize)] = &[
    (
        "matmul",
        "*bf16:16, *bf16:16, *bf16:16, int32:16, int32:16, int32:16, int32:16, 1, int32:16, 1, 128, 256, 64",
        8,
        228,
        4,
        100,
    ),
    (
        "matmul",
        "*fp16:16, *fp16:16, *fp16:16, int32:16, int32:16, int32:16, int32:16, 1, 1, int32:16, 64, 128, 64",
        4,
        160,
        4,
        79,
    ),
    (
        "matmul",
        "*fp32:16, *fp32:16, *fp32:16, int32:16, int32:16, int32:16, int32:16, 1, 1, int32:16, 128, 128, 32",
        8,
        160,
        4,
        67,
    ),
    (
        "matmul",
        "*fp8e4nv:16, *fp8e4nv:16, *fp16:16, int32:16, int32:16, int32:16, int32:16, 1, 1, int32:16, 128, 256, 128",
        8,
        232,
        4,
        80,
    ),
    (
        "attention",
        "*fp16:16, *fp16:16, *fp16:16, *fp16:16, fp32, int32:16, int32:16, int32:16, 128, 64, 128",
        8,
        200,
        12,
        358,
    ),
    (
        "attention",
        "*fp16:16, *fp16:16, *fp16:16, *fp16:16, fp32, int32:16, int32:16, int32:16, 64, 64, 64",
        4,
        200,
        8,
        318,
    ),
];

#[test]
fn products_of_warpgroups_run_beside_the_threads() {
    let path = tilewright_testkit::project_root().join("crates/ptx/tests/lower/products.py");
    let source = std::fs::read_to_string(path).expect("the kernels are there");
    let ptxas = Ptxas::find_or_skip("products_of_warpgroups_run_beside_the_threads");
    for (name, signature, warps, registers, products, _) in PRODUCTS {
        let (text, _) = lower(&compile("products.py", &source, name, signature), "sm_90a", *warps);
        assert_eq!(text.matches("wgmma.mma_async").count(), *products, "{name} {signature}");
        let Some(ptxas) = &ptxas else { continue };
        let assembled = ptxas.assemble(&text, "sm_90a").unwrap_or_else(|error| panic!("{error}\n{text}"));
        let usage = assembled.usage(name).expect("the kernel is in the report");
        assert_eq!((usage.spill_stores, usage.spill_loads), (0, 0), "{name} {signature}");
        assert_eq!(assembled.losses, [""; 0], "{name} {signature}");
        assert!(usage.registers <= *registers, "{name} {signature}: {usage:?}");
    }
}

/// In relocatable code (`-c`), the 64-bit `div` is a call, which would serialize dots.
#[test]
fn dots_are_asynchronous_beside_divisions_of_64_bits() {
    let path = tilewright_testkit::project_root().join("crates/ptx/tests/lower/products.py");
    let source = std::fs::read_to_string(path).expect("the kernels are there");
    let signature = "*fp16:16, *fp16:16, *fp16:16, int32, int32:16, int32:16, int32:16, int32:16, 64, 64, 64";
    let (text, _) = lower(&compile("products.py", &source, "wrapped_rows", signature), "sm_90a", 4);
    assert_eq!(text.matches("wgmma.mma_async").count(), 4);
    let Some(ptxas) = Ptxas::find_or_skip("dots_are_asynchronous_beside_divisions_of_64_bits") else {
        return;
    };
    let assembled = ptxas.assemble_with(&text, "sm_90a", &["-c"]);
    assert_eq!(assembled.unwrap_or_else(|error| panic!("{error}\n{text}")).losses, [""; 0]);
}

/// Returns the number of instructions of the longest loop with dots.
fn instructions_in_the_loop(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_instruction = |line: &&&str| line.ends_with(';') && !line.starts_with(['.', '/']);
    let labels = lines.iter().enumerate().filter(|(_, line)| line.ends_with(':'));
    let loops = labels.filter_map(|(start, label)| {
        let jump = |line: &&str| line.contains("bra") && line.ends_with(&label.replace(':', ";"));
        let end = lines.iter().rposition(jump).filter(|end| *end > start)?;
        let inside = &lines[start..=end];
        let has_product = inside.iter().any(|line| line.starts_with("wgmma.mma_async"));
        has_product.then(|| inside.iter().filter(is_instruction).count())
    });
    loops.max().unwrap_or(0)
}

#[test]
fn loops_with_products_are_short() {
    let path = tilewright_testkit::project_root().join("crates/ptx/tests/lower/products.py");
    let source = std::fs::read_to_string(path).expect("the kernels are there");
    let lengths = PRODUCTS.iter().map(|(name, signature, warps, ..)| {
        let module = compile("products.py", &source, name, signature);
        instructions_in_the_loop(&lower_in_stages(&module, "sm_90a", *warps, 3).0)
    });
    let expected: Vec<usize> = PRODUCTS.iter().map(|row| row.5).collect();
    assert_eq!(lengths.collect::<Vec<_>>(), expected);
}

/// In attention, a dot is in flight during the softmax of the next iteration. One wait leaves it in
/// flight, and its wait follows the softmax. The assembler keeps this order without spills.
#[test]
fn a_product_is_under_way_beside_the_softmax() {
    let path = tilewright_testkit::project_root().join("crates/ptx/tests/lower/products.py");
    let source = std::fs::read_to_string(path).expect("the kernels are there");
    let ptxas = Ptxas::find_or_skip("a_product_is_under_way_beside_the_softmax");
    for (name, signature, warps, registers, ..) in PRODUCTS.iter().filter(|row| row.0 == "attention") {
        let module = compile("products.py", &source, name, signature);
        let (text, _) = lower_in_stages(&module, "sm_90a", *warps, 2);
        let waits =
            [0, 1].map(|count| text.matches(&format!("wgmma.wait_group.sync.aligned {count};")).count());
        // Three waits leave no dot in flight: for the first scores, the loop's dot, and the last
        // accumulator. One wait leaves one.
        assert_eq!(waits, [3, 1], "{name} {signature}");
        assert_eq!(text.matches("pmevent").count(), 1, "{name} {signature}");
        let Some(ptxas) = &ptxas else { continue };
        let assembled = ptxas.assemble(&text, "sm_90a").unwrap_or_else(|error| panic!("{error}\n{text}"));
        let usage = assembled.usage(name).expect("the kernel is in the report");
        assert_eq!((usage.spill_stores, usage.spill_loads), (0, 0), "{name} {signature}");
        assert_eq!(assembled.losses, [""; 0], "{name} {signature}");
        assert!(usage.registers <= *registers + 8, "{name} {signature}: {usage:?}");
    }
}

#[test]
fn reductions_take_few_shuffles_and_barriers() {
    for golden in GOLDEN {
        let text = text(golden, "sm_90a");
        let found = ["shfl.sync", "bar.sync"].map(|word| text.matches(word).count());
        let is_few = found.iter().zip(golden.exchanges).all(|(found, most)| *found <= most);
        assert!(is_few, "{}: {found:?} shuffles and barriers", golden.file);
    }
}

#[test]
fn vector_add_is_four_wide_loads_and_two_wide_stores() {
    let text = text(&GOLDEN[0], "sm_90a");
    assert_eq!(text.matches("ld.global.v4.b32").count(), 4);
    assert_eq!(text.matches("st.global.v4.b32").count(), 2);
}

/// Returns the PTX of a kernel that sums in a loop. `bounds` are the arguments of `range`, and
/// `addend` is added in each iteration.
fn sum_loop(bounds: &str, addend: &str) -> String {
    let text = format!(
        "
@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range({bounds}):
        loaded = tl.load(x + start + i, eviction_policy='evict_first')
        total += {addend}
    tl.store(y + i[:, None] * BLOCK + i[None, :], total, eviction_policy='evict_last')
"
    );
    lower(&kernel(&text, "*fp16:16, *fp32:16, int32, 16"), "sm_90a", 4).0
}

#[test]
fn the_assembler_can_count_the_iterations_of_loops() {
    let sum = "loaded[:, None].to(tl.float32)";
    let countdown = "setp.ne.u32";
    let index = "setp.lt.s32";
    let distance = "setp.hi.u32";
    for (bounds, expected) in [
        ("0, 160, 16", index),
        ("0, n", index),
        ("n, 2147483632, 16", index),
        ("n, 2147483633, 16", countdown),
        ("0, n, 16", countdown),
        ("0, n, -16", countdown),
        ("0, n, n", distance),
    ] {
        let text = sum_loop(bounds, sum);
        let (_, end) = text.split_once("$loop_0:").expect("there is a loop");
        for form in [countdown, index, distance] {
            assert_eq!(end.contains(form), form == expected, "range({bounds}): {form}\n{text}");
        }
    }
    // Loops with dots have no countdown.
    let text = sum_loop("0, n, 16", "tl.dot(loaded[:, None] + i[None, :], loaded[:, None] - i[None, :])");
    assert!(text.contains(distance), "{text}");
}

#[test]
fn a_policy_of_the_second_cache_is_made_once() {
    let text = sum_loop("0, n, 16", "loaded[:, None].to(tl.float32)");
    let (before, inside) = text.split_once("$loop_0:").expect("there is a loop");
    assert!(before.contains("createpolicy.fractional.L2::evict_first.b64"), "{text}");
    assert_eq!(text.matches("createpolicy").count(), 2, "{text}");
    assert!(inside.contains("ld.global.L1::evict_first.L2::cache_hint"), "{text}");
    assert!(inside.contains("st.global.L1::evict_last.L2::cache_hint"), "{text}");
}

#[test]
fn ptxas_accepts_modifiers_and_assertions() {
    let Some(ptxas) = Ptxas::find_or_skip("ptxas_accepts_modifiers_and_assertions") else { return };
    let text = "
@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, cache_modifier='.cg')
    b = tl.load(x + BLOCK + i, eviction_policy='evict_last')
    c = tl.load(x + 2 * BLOCK + i, eviction_policy='evict_first', cache_modifier='.ca')
    d = tl.load(x + 3 * BLOCK + i, volatile=True)
    tl.device_assert(a // n >= 0, 'negative')
    tl.store(y + i, a + b, cache_modifier='.cs')
    tl.store(y + BLOCK + i, tl.sin(c.to(tl.float32)).to(tl.int32), eviction_policy='evict_first')
    tl.store(y + 2 * BLOCK + i, (c % d).to(tl.int32), cache_modifier='.wt')
";
    let signature = "*int32:16, *int32:16, int32, 512";
    for module in [kernel(text, signature), checked_kernel(text, signature)] {
        for target in TARGETS {
            let (text, _) = lower(&module, target, 4);
            ptxas.assemble(&text, target).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }
}

/// Appends `k`, renamed, to the kernels with the same header. The assembler checks all in one run,
/// because its start is slow.
fn append(batches: &mut BTreeMap<String, String>, text: &str, number: usize, name: &str) {
    let (header, kernel) = text.split_at(text.find(".visible .entry k(").expect("the kernel is named k"));
    let kernel = kernel.replacen("entry k(", &format!("entry k{number}("), 1);
    let kernel = kernel.replace("k_param_", &format!("k{number}_param_"));
    let _ = writeln!(batches.entry(header.to_owned()).or_default(), "// {name}\n{kernel}");
}

#[test]
fn ptxas_accepts_every_function_and_cast() {
    let Some(ptxas) = Ptxas::find_or_skip("ptxas_accepts_every_function_and_cast") else { return };
    let modules = crate::elementwise::modules();
    for target in TARGETS {
        let mut batches = BTreeMap::new();
        for (number, (name, module)) in modules.iter().enumerate() {
            append(&mut batches, &lower(module, target, 4).0, number, name);
        }
        let mut count = 0;
        for (header, kernels) in batches {
            let text = format!("{header}{kernels}");
            let assembled = ptxas.assemble_with(&text, target, &["-O0"]);
            count += assembled.unwrap_or_else(|error| panic!("{error}\n{text}")).code().len();
        }
        assert_eq!(count, modules.len(), "the assembler has not seen each kernel for {target}");
    }
}
