//! Tests the diagnostics of kernels that the GPU path rejects.

use std::fmt::Write;

use expect_test::{Expect, expect};
use tilewright_gpu::compile;
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir::print;

use crate::common::generate::{EVERYTHING, program};
use crate::module;

fn check_rejected(text: &str, target: &str, num_warps: u32, expected: &Expect) {
    let target = GpuTarget::named(target).expect("it is known");
    let Err(diagnostic) = compile(&module(text), target, num_warps, 1) else { panic!("it is compiled") };
    let mut lines = vec![format!("{}: {}", diagnostic.code.name(), diagnostic.message)];
    lines.extend(diagnostic.notes.iter().chain(&diagnostic.hint).cloned());
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

/// The depth of nesting, in pairs of a branch and a loop.
const DEPTH: usize = 62;

const EMPTY: &str = "kernel func0 @k() {\n  return_values\n}";

#[test]
fn a_number_of_warps_that_is_not_a_power_of_two() {
    check_rejected(
        EMPTY,
        "sm_80",
        3,
        &expect![[r"
        TW0108: num_warps must be a power of two up to 32, found 3
    "]],
    );
    check_rejected(
        EMPTY,
        "sm_80",
        64,
        &expect![[r"
        TW0108: num_warps must be a power of two up to 32, found 64
    "]],
    );
}

#[test]
fn a_tile_that_is_too_large_with_its_padding() {
    let text = "kernel func0 @k(%p: *int8, %x: int8) {
      %b = splat %p {shape = [600, 1100]} : *int8[600, 1100]
      %v = splat %x {shape = [600, 1100]} : int8[600, 1100]
      store %b, %v {cache = \"\", eviction = \"\"}
      return_values
    }";
    check_rejected(
        text,
        "sm_80",
        4,
        &expect![[r"
        TW0022: `splat` on a tile of type *int8[600, 1100]: on a GPU each axis is padded to the next power of two
        found 2097152 elements with the padding, expected at most 1048576
        make the tile smaller, or its extents powers of two
    "]],
    );
}

#[test]
fn a_function_that_calls_itself() {
    let text = "kernel func0 @k(%x: int32) {
      %0 = call %x {callee = func1, results = (int32)} : int32
      return_values
    }
    func1 @f(%x: int32) {
      %0 = call %x {callee = func1, results = (int32)} : int32
      return_values %0
    }";
    check_rejected(
        text,
        "sm_80",
        4,
        &expect![[r"
        TW0024: a call that cannot be inlined is not supported on a GPU
        remove the recursion, or make the function smaller
    "]],
    );
}

#[test]
fn more_shared_memory_than_the_target_has() {
    let large = include_str!("kernels/matmul.ir").replace("64", "512");
    check_rejected(
        &large,
        "sm_75",
        4,
        &expect![[r"
            TW0114: the kernel needs 262144 bytes of shared memory, and sm_75 has 65536
            in use at one time: 131072 bytes: fp16[128, 512]; 131072 bytes: fp16[512, 128]
            found 262144 bytes, expected at most 65536
            use smaller blocks, or a smaller num_stages
        "]],
    );
}

#[test]
fn random_programs_are_compiled() {
    for seed in 0..200 {
        let module = program(seed, EVERYTHING);
        let target = GpuTarget::named("sm_75").expect("it is known");
        assert!(compile(&module, target, 4, 1).is_ok());
    }
}

/// Compiles the deepest nesting that the parser accepts on a stack of 2 MiB.
#[test]
fn deep_kernels_are_compiled() {
    let mut text = "kernel func0 @k(%p: *fp32, %n: int32) {
      %zero = constant {value = 0:int32} : int32
      %one = constant {value = 1:int32} : int32
      %i = arange {start = 0, end = 64} : int32[64]
      %b = splat %p {shape = [64]} : *fp32[64]
      %a = ptr_add %b, %i : *fp32[64]
      %x = load %a {cache = \"\", eviction = \"\", volatile = false} : fp32[64]\n"
        .to_owned();
    for depth in 0..DEPTH {
        let _ = writeln!(
            text,
            "%c{depth} = lt %n, %one : int1
             if_else %c{depth} () {{
             %h{depth} = for_loop %zero, %n, %one, %x {{options = \"stages=0 unroll=0\"}} (%n{depth}: int32, %y{depth}: fp32[64]) {{"
        );
    }
    text +=
        "%r = reduce %x {axis = 0} (%u: fp32, %v: fp32) {\n%w = add %u, %v : fp32\nyield_values %w\n} : fp32
      store %p, %r {cache = \"\", eviction = \"\"}\n";
    for depth in (0..DEPTH).rev() {
        let _ =
            writeln!(text, "yield_values %y{depth}\n}} : fp32[64]\nyield_values\n}} () {{\nyield_values\n}}");
    }
    text += "return_values\n}";
    let compiling = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let target = GpuTarget::named("sm_80").expect("it is known");
        compile(&module(&text), target, 4, 1).map(|program| print(&program, false).len())
    });
    let length = compiling.expect("a thread starts").join().expect("it does not overflow");
    assert!(length.expect("it is compiled") > 10_000);
}

#[test]
fn a_parameter_that_is_a_tile() {
    check_rejected(
        "kernel func0 @k(%p: *int32[16], %n: int32) {\n  return_values\n}",
        "sm_80",
        4,
        &expect![[r"
        TW0024: the parameter `p` of the kernel is a tile of type *int32[16]
        a launch on a GPU passes scalars and pointers
        pass a pointer, and load the tile
    "]],
    );
}

/// The indices of a ring are analyzed once, not once per path.
#[test]
fn a_pipeline_of_many_stages() {
    let text = "kernel func0 @k(%p: *fp16 {divisibility = 16}, %q: *fp32 {divisibility = 16}, %n: int32) {
      %zero = constant {value = 0:int32} : int32
      %one = constant {value = 1:int32} : int32
      %c = constant {value = 16:int32} : int32
      %i = arange {start = 0, end = 16} : int32[16]
      %rows = expand_dims %i {axis = 1} : int32[16, 1]
      %cols = expand_dims %i {axis = 0} : int32[1, 16]
      %cs = splat %c {shape = [16, 1]} : int32[16, 1]
      %lines = mul %rows, %cs : int32[16, 1]
      %rows.b = broadcast %lines {shape = [16, 16]} : int32[16, 16]
      %cols.b = broadcast %cols {shape = [16, 16]} : int32[16, 16]
      %ps = splat %p {shape = [16, 16]} : *fp16[16, 16]
      %pr = ptr_add %ps, %rows.b : *fp16[16, 16]
      %pc = ptr_add %pr, %cols.b : *fp16[16, 16]
      %x = load %pc {cache = \"\", eviction = \"\", volatile = false} : fp16[16, 16]
      %float = constant {value = 0.0:fp32} : fp32
      %acc = splat %float {shape = [16, 16]} : fp32[16, 16]
      %sum = for_loop %zero, %n, %one, %acc {options = \"stages=64 unroll=0\"} (%k: int32, %acc.1: fp32[16, 16]) {
        %y = load %pc {cache = \"\", eviction = \"\", volatile = false} : fp16[16, 16]
        %acc.2 = dot %x, %y, %acc.1 {precision = \"ieee\", max_imprecise_acc = 0} : fp32[16, 16]
        yield_values %acc.2
      } : fp32[16, 16]
      %qs = splat %q {shape = [16, 16]} : *fp32[16, 16]
      store %qs, %sum {cache = \"\", eviction = \"\"}
      return_values
    }";
    let program = compile(&module(text), GpuTarget::named("sm_80").expect("it is known"), 4, 1);
    let program = program.unwrap_or_else(|diagnostic| panic!("{diagnostic:#?}"));
    assert!(print(&program, false).contains("buffer<64, "), "{}", print(&program, false));
}
