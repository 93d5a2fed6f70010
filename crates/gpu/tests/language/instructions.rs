//! Tests messages about single instructions: texts with one mistake.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::parse_dialect;

/// The head of the texts: two warps and one layout of each kind.
const HEADER: &str = "gpu sm_90a, 2 warps, 0 bytes of shared memory
L0 = [64] lane (1) (2) (4) (8) (16) warp (32)
L1 = [64] lane (32) (2) (4) (8) (16) warp (1)
L2 = [64] offset (1) (2) (4) (8) (16) (32)
L3 = [64] lane (1) (2) (4) (8) (16) warp (0)
L4 = [64] lane (1) (2) (4) (8) (16)
L5 = [64] register (0) lane (1) (2) (4) (8) (16) warp (32)
L6 = [128] register (1) lane (2) (4) (8) (16) (32) warp (64)
L7 = [64,1] lane (1,0) (2,0) (4,0) (8,0) (16,0) warp (32,0)
L8 = [128] offset (1) (2) (4) (8) (16) (32) (64)
L9 = [32,16] register (0,1) (8,0) (0,8) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0)
L10 = [16,8] register (1,0) (8,0) lane (2,0) (4,0) (0,1) (0,2) (0,4) warp (0,0)
L11 = [32,8] register (0,1) (8,0) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0)
L12 = [2] lane (0) (0) (0) (0) (0) warp (1)
L13 = [32,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0)
L14 = [16,8] offset (0,1) (0,2) (0,4) (1,0) (2,0) (4,0) (8,0)
L15 = [64] lane (1) (2) (4) (8) (16) warp (32) offset (0)
L16 = [64] register (1) (2) (4) (8) (16) (32)
";

const START: &str =
    "kernel func0 @k(%x: fp32, %h: fp16, %p: *fp32, %n: int32, %w: int64, %b: int1, %d: *int8) {
  %t = splat %x {shape = [64]} : fp32[64]@L0
  %u = splat %x {shape = [64]} : fp32[64]@L1
  %v = splat %x {shape = [128]} : fp32[128]@L6
  %q = splat %p {shape = [64]} : *fp32[64]@L0
  %q.1 = splat %p {shape = [128]} : *fp32[128]@L6
  %a = splat %h {shape = [32, 16]} : fp16[32, 16]@L9
  %f = splat %h {shape = [16, 8]} : fp16[16, 8]@L10
  %c = splat %x {shape = [32, 8]} : fp32[32, 8]@L11
  %m = alloc {offset = ?} : buffer<1, fp32[64]@L2>
  %m.3 = alloc {offset = ?} : buffer<3, fp32[64]@L2>
  %ma = alloc {offset = ?} : buffer<1, fp16[32, 16]@L13>
  %mb = alloc {offset = ?} : buffer<2, fp16[16, 8]@L14>
  %bars = alloc {offset = ?} : mbarrier<2>
";

const ADD: &str = "(%i: fp32, %j: fp32) {\n%k = add %i, %j : fp32\nyield_values %k\n}";
const LOAD: &str = r#"cache = "", eviction = "", volatile = false"#;
const STORE: &str = r#"cache = "", eviction = """#;
const LOOP: &str = r#"{options = "stages=0 unroll=0"}"#;
const DOT: &str = r#"precision = "ieee", max_imprecise_acc = 0"#;
const VECTORS: &str = "matrix_a = false, matrix_b = false";

/// Returns a program with `body`, with the constants expanded.
fn text(body: &str) -> String {
    let parts =
        [("ADD", ADD), ("LOAD", LOAD), ("STORE", STORE), ("LOOP", LOOP), ("DOT", DOT), ("VECTORS", VECTORS)];
    let body = parts.iter().fold(body.to_owned(), |body, (name, part)| body.replace(name, part));
    format!("{HEADER}{START}{body}\nreturn_values\n}}")
}

/// Checks that each text is rejected with its message.
fn check_rejected(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        let text = text(body);
        match parse_dialect::<Gpu>(&text) {
            Ok(_) => panic!("this is accepted, and should be refused since {expected}:\n{body}"),
            Err(error) => assert!(error.message.contains(expected), "{body}\n{error}"),
        }
    }
}

#[test]
fn the_texts_without_mistakes_are_accepted() {
    let right = [
        "",
        "%r = add %t, %t : fp32[64]@L0",
        "%r = convert_layout %t : fp32[64]@L1",
        "%r = load %q {LOAD, axis = 0, width = 1} : fp32[64]@L0",
        "%r = load %q.1 {LOAD, axis = 0, width = 2} : fp32[128]@L6",
        "store %q, %t {STORE, axis = 0, width = 1}",
        "%r = reduce %t {axis = 0, scope = block, redux = false} ADD : fp32",
        "%r = reduce %t {axis = 0, scope = warp, redux = false} ADD : fp32[2]@L12",
        "%r = mma_sync %a, %f, %c {instruction = m16n8k16, warps = [2, 1], DOT, VECTORS} : fp32[32, 8]@L11",
        "%r = mma_sync %ma, %f, %c {instruction = m16n8k16, warps = [2, 1], DOT, VECTORS} : fp32[32, 8]@L11",
        "%r = mma_sync %ma, %f, %c {instruction = m16n8k16, warps = [2, 1], DOT, matrix_a = true, matrix_b = false} \
         : fp32[32, 8]@L11",
        "local_store %m, %t\n%r = local_load %m {matrix = false} : fp32[64]@L1\ndealloc %m",
        "%s = slot %m.3, %n : buffer<1, fp32[64]@L2>\nlocal_store %s, %t",
        "copy_async %m, %q {cache = \"\", axis = 0, width = 1}\ncommit_group\nwait_group {pending = 0}",
        "named_barrier {barrier = 1, threads = 64}",
        "warp_specialize {warps = [1, 1], registers = [0, 0]} () {\nyield_values\n} () {\nyield_values\n}",
        "mbarrier_init %bars {arrivals = 1}",
        "%r = expand_dims %t {axis = 1} : fp32[64, 1]@L7",
    ];
    for body in right {
        let text = text(body);
        parse_dialect::<Gpu>(&text).unwrap_or_else(|error| panic!("{error}\n{body}"));
    }
}

#[test]
fn layouts_that_do_not_fit_a_type() {
    check_rejected(&[
        ("%r = splat %x {shape = [64]} : fp32[64]@L99", "L99 is not a layout of the module"),
        ("%r = splat %x {shape = [32]} : fp32[32]@L0", "L0 is not a layout for fp32[32]"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L7", "L7 is not a layout for fp32[64]"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L3", "the layout lacks some elements"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L4", "the layout lacks some elements"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L2", "L2 is not for 2 warps"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L5", "a thread holds an element twice"),
        ("%r = splat %x {shape = [64]} : fp32[64]@L15", "L15 is not for 2 warps"),
        ("%r = alloc {offset = ?} : buffer<1, fp32[64]@L0>", "L0 is not a layout of memory"),
        ("%r = alloc {offset = ?} : buffer<1, fp32[64]@L16>", "L16 is not a layout of memory"),
        ("%r = alloc {offset = ?} : ring<2, fp32[64]@L8>", "L8 is not a layout for fp32[64]"),
    ]);
}

#[test]
fn layouts_of_operands_that_do_not_fit_each_other() {
    check_rejected(&[
        ("%r = add %t, %u : fp32[64]@L0", "the operands of add have different layouts"),
        ("%r = add %t, %t : fp32[64]@L1", "the operands of add have different layouts"),
        (
            "%r = cast %t {element = int32, rounding = \"rtne\"} : int32[64]@L1",
            "the operands of cast have different layouts",
        ),
        (
            "%o = splat %n {shape = [64]} : int32[64]@L1\n%r = ptr_add %q, %o : *fp32[64]@L0",
            "ptr_add have different",
        ),
        ("store %q, %u {STORE, axis = 0, width = 1}", "the operands of store have different layouts"),
        (
            "%r = load %q {LOAD, axis = 0, width = 1} : fp32[64]@L1",
            "the operands of load have different layouts",
        ),
        ("%r = expand_dims %u {axis = 1} : fp32[64, 1]@L7", "expand_dims cannot make"),
        ("%r = reshape %u {shape = [64, 1]} : fp32[64, 1]@L7", "reshape cannot make"),
        (
            "%r, %s = reduce %t, %u {axis = 0, scope = block, redux = false} (%i: fp32, %j: fp32, %k: fp32, %l: fp32) {
               yield_values %i, %j
             } : fp32, fp32",
            "the operands of reduce have different layouts",
        ),
        (
            "%e = splat %x {shape = [64, 1]} : fp32[64, 1]@L7\n%r = reduce %e {axis = 1, scope = block, redux = false} ADD : fp32[64]@L1",
            "the result of the reduction must have the layout",
        ),
        (
            "%e = splat %x {shape = [64, 1]} : fp32[64, 1]@L7\n%r = reduce %e {axis = 1, scope = warp, redux = false} ADD : fp32[64]@L0",
            "each warp holds whole lines along the axis, so there are no partial results",
        ),
        ("%r = reduce %t {axis = 0, scope = warp, redux = false} ADD : fp32", "reduce has results"),
        ("%r = reduce %t {axis = 0, scope = warp, redux = true} ADD : fp32[2]@L12", "redux.sync cannot compute this reduction"),
    ]);
}

#[test]
fn loops_and_branches_that_carry_another_layout() {
    check_rejected(&[
        (
            "%r = for_loop %n, %n, %n, %u LOOP (%i: int32, %y: fp32[64]@L0) {\nyield_values %y\n} : fp32[64]@L0",
            "the carried values of for_loop are",
        ),
        (
            "%r = for_loop %n, %n, %n, %t LOOP (%i: int32, %y: fp32[64]@L1) {\nyield_values %t\n} : fp32[64]@L0",
            "the carried values of for_loop are",
        ),
        (
            "%r = for_loop %n, %n, %n, %t LOOP (%i: int32, %y: fp32[64]@L0) {\nyield_values %u\n} : fp32[64]@L0",
            "the carried values of for_loop are",
        ),
        (
            "%r = for_loop %n, %n, %n, %t LOOP (%i: int64, %y: fp32[64]@L0) {\nyield_values %y\n} : fp32[64]@L0",
            "the bounds and the index of a loop must have one type",
        ),
        (
            "for_loop %x, %x, %x LOOP (%i: fp32) {\nyield_values\n}",
            "a bound of a loop must be a scalar integer, found fp32",
        ),
        ("for_loop %n, %n, %n LOOP () {\nyield_values\n}", "the body of a loop must take its index"),
        ("for_loop %n, %n LOOP (%i: int32) {\nyield_values\n}", "for_loop takes 3 operands and 1 regions"),
        (
            "%r = while_loop %t (%y: fp32[64]@L0) {\nyield_values %b\n} (%y: fp32[64]@L0) {\nyield_values %u\n} : fp32[64]@L0",
            "the carried values of while_loop are",
        ),
        (
            "while_loop () {\nyield_values %n\n} () {\nyield_values\n}",
            "the condition of while_loop must be a scalar int1",
        ),
        (
            "%r = if_else %b () {\nyield_values %t\n} () {\nyield_values %u\n} : fp32[64]@L0",
            "the carried values of if_else are",
        ),
        (
            "if_else %n () {\nyield_values\n} () {\nyield_values\n}",
            "the condition of if_else must be a scalar int1",
        ),
        ("if_else %b () {\nyield_values\n}", "if_else takes 1 operands and 2 regions"),
    ]);
}

#[test]
fn accesses_that_are_too_wide() {
    check_rejected(&[
        ("%r = load %q {LOAD, axis = 0, width = 2} : fp32[64]@L0", "load cannot move 2 elements"),
        ("%r = load %q.1 {LOAD, axis = 0, width = 4} : fp32[128]@L6", "load cannot move 4 elements"),
        ("%r = load %q.1 {LOAD, axis = 1, width = 1} : fp32[128]@L6", "load cannot move 1 elements"),
        ("%r = load %q.1 {LOAD, axis = 0, width = 0} : fp32[128]@L6", "load cannot move 0 elements"),
        ("%r = load %p {LOAD, axis = 0, width = 2} : fp32", "load cannot move 2 elements"),
        ("store %q.1, %v {STORE, axis = 0, width = 4}", "store cannot move 4 elements"),
    ]);
}

#[test]
fn memory_that_does_not_fit() {
    check_rejected(&[
        ("local_store %m, %v", "a buffer for fp32[64] does not hold fp32[128]"),
        ("local_store %m, %t, %t", "local_store takes 2 operands, found 3"),
        ("local_store %m", "local_store takes 2 operands, found 1"),
        ("local_store %m.3, %t", "local_store takes a buffer of one slot, found buffer<3, fp32[64]@L2>"),
        ("local_store %t, %t", "local_store takes a buffer of one slot"),
        ("local_store %m, %m", "local_store takes a value in registers"),
        ("%r = local_load %m {matrix = false} : fp32[128]@L6", "local_load has results"),
        ("%r = local_load %m {matrix = false} : fp16[64]@L0", "local_load has results"),
        ("%r = local_load %m {matrix = true} : fp32[64]@L1", "ldmatrix does not load"),
        ("%r = alloc {offset = ?} : fp32[64]@L0", "alloc makes memory, found"),
        ("alloc {offset = ?}", "alloc makes memory, found"),
        ("dealloc %t", "dealloc takes memory, found fp32[64]@L0"),
        ("%r = slot %t, %n : buffer<1, fp32[64]@L2>", "slot takes a buffer or tensor memory, found"),
        ("%r = slot %m.3, %w : buffer<1, fp32[64]@L2>", "an index must be an int32, found int64"),
        ("%r = slot %m.3, %n : buffer<3, fp32[64]@L2>", "the results of slot are"),
        ("%r = add %m, %m : fp32[64]@L0", "add takes values in registers"),
        (
            "copy_async %m, %q.1 {cache = \"\", axis = 0, width = 1}",
            "a buffer for fp32[64] is not filled from",
        ),
        ("copy_async %m, %q, %t {cache = \"\", axis = 0, width = 1}", "is not a mask"),
        ("copy_async %m, %q {cache = \"\", axis = 0, width = 2}", "copy_async cannot move 2 elements"),
        (
            "%g = alloc {offset = ?} : buffer<1, int8[64]@L2>\n%e = splat %d {shape = [64]} : *int8[64]@L0\n\
             copy_async %g, %e {cache = \"\", axis = 0, width = 1}",
            "copy_async moves 4, 8 or 16 bytes, found 1",
        ),
    ]);
}

#[test]
fn dots_whose_fragments_do_not_fit() {
    let mma = "instruction = m16n8k16, warps = [2, 1], DOT, VECTORS";
    let other = |name: &str, from: &str, to: &str| {
        format!("%r = {name} %a, %f, %c {{{}}} : fp32[32, 8]@L11", mma.replace(from, to))
    };
    let cases = [
        (other("mma_sync", "[2, 1]", "[1, 2]"), "is not the A of"),
        (other("mma_sync", "[2, 1]", "[2, 2]"), "a dot of 1 x 2 x 2 warps has an accumulator for 2 warps"),
        (other("mma_sync", "[2, 1]", "[2]"), "the warps must be counts along M and N, or along a batch, M and N"),
        (other("mma_sync", "m16n8k16", "m8n8k16"), "is not the A of"),
        (
            other("mma_sync", "VECTORS", "matrix_a = true, matrix_b = false"),
            "ldmatrix does not load a fragment of",
        ),
        (
            other("mma_sync", "m16n8k16", "m16n8"),
            "attribute `instruction` of mma_sync is missing or malformed",
        ),
        (format!("%r = mma_sync %f, %a, %c {{{mma}}} : fp32[32, 8]@L11"), "dot does not take"),
        (format!("%r = mma_sync %a, %mb, %c {{{mma}}} : fp32[32, 8]@L11"), "a dot cannot read buffer<2"),
        (format!("%r = mma_sync %a, %f, %c {{{mma}}} : fp32[32, 8]@L9"), "L9 is not a layout for fp32[32, 8]"),
        ("%r = fma_dot %a, %f, %c {DOT} : fp32[32, 8]@L11".to_owned(), "is not what the threads of"),
        (
            "%r = wgmma %a, %f, %c {instruction = m16n8k16, warps = [2, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false} \
             : pending<fp32[32, 8]@L11>"
                .to_owned(),
            "wgmma has no Mma",
        ),
        ("%r = wgmma_wait %c {pending = ?} : fp32[32, 8]@L11".to_owned(), "wgmma_wait takes a dot in flight"),
    ];
    for (body, expected) in &cases {
        check_rejected(&[(body, expected)]);
    }
}

/// The verifier rejects meaningless numbers.
#[test]
fn dots_with_meaningless_numbers() {
    for instruction in ["m16n8k16", "m0n0k0", "m7n8k16", "m16n9k16", "m4294967295n8k16", "m64n8k64"] {
        for warps in ["[3, 1]", "[0, 0]", "[-1, -2]", "[4294967298, 1]", "[1, 4294967298]", "[2, 1]", "[]"] {
            let body = format!(
                "%r = mma_sync %a, %f, %c {{instruction = {instruction}, warps = {warps}, DOT, VECTORS}} : fp32[32, 8]@L11"
            );
            let is_right = instruction == "m16n8k16" && warps == "[2, 1]";
            assert_eq!(parse_dialect::<Gpu>(&text(&body)).is_ok(), is_right, "{body}");
        }
    }
}

#[test]
fn threads_that_do_not_add_up() {
    let partitions = |warps: &str, registers: &str| {
        format!(
            "warp_specialize {{warps = {warps}, registers = {registers}}} () {{\nyield_values\n}} () {{\nyield_values\n}}"
        )
    };
    let cases = [
        (partitions("[1, 2]", "[0, 0]"), "the partitions take 3 warps of 2"),
        (partitions("[1]", "[0, 0]"), "2 partitions, but 1 counts of warps and 2 of registers"),
        (partitions("[1, 1]", "[0]"), "2 partitions, but 2 counts of warps and 1 of registers"),
        (
            partitions("[1, 1]", "[2048, 24]"),
            "a thread must take 24 to 256 registers in steps of 8, not 2048",
        ),
    ];
    for (body, expected) in &cases {
        check_rejected(&[(body, expected)]);
    }
    let body = partitions("[8, 8]", "[240, 240]");
    let text = format!(
        "gpu sm_90a, 16 warps, 0 bytes of shared memory\nkernel func0 @k() {{\n{body}\nreturn_values\n}}\n"
    );
    let error = parse_dialect::<Gpu>(&text).expect_err("a multiprocessor has fewer registers");
    assert!(error.message.contains("the partitions take 122880 registers at the start"), "{}", error.message);
    check_rejected(&[
        ("named_barrier {barrier = 0, threads = 64}", "found 0 and 64"),
        ("named_barrier {barrier = 16, threads = 64}", "found 16 and 64"),
        ("named_barrier {barrier = 1, threads = 96}", "found 1 and 96"),
        ("named_barrier {barrier = 1, threads = 33}", "found 1 and 33"),
    ]);
}

#[test]
fn barriers_rings_and_copies_of_tensors_that_are_none() {
    check_rejected(&[
        ("mbarrier_init %m {arrivals = 1}", "mbarrier_init takes barriers, found"),
        ("mbarrier_arrive %bars, %w", "an index must be an int32, found int64"),
        ("mbarrier_wait %bars, %n, %b", "an index must be an int32, found int1"),
        ("tensor_load %m, %n, %bars, %n, %n", "a descriptor must be a pointer, found int32"),
        ("tensor_load %m, %d, %m, %n, %n", "tensor_load takes barriers, found"),
        ("tensor_load %m, %d, %bars, %n, %w", "an index must be an int32, found int64"),
        ("tensor_store %m.3, %d, %n", "tensor_store takes a buffer of one slot"),
        ("%r = acquire %m : empty<fp32[64]@L2>", "acquire takes a ring, found buffer"),
        ("%r = take %m : full<fp32[64]@L2>", "take takes a ring, found buffer"),
        ("publish %m", "publish takes an empty slot"),
        ("release %m", "release takes a full slot"),
        (
            "%g = alloc {offset = ?} : ring<2, fp32[64]@L2>\n%s = acquire %g : full<fp32[64]@L2>",
            "the results of acquire are",
        ),
        (
            "%g = alloc {offset = ?} : ring<2, fp32[64]@L2>\n%s = take %g : full<fp32[64]@L2>\nlocal_store %s, %t",
            "local_store writes a full slot",
        ),
        (
            "%g = alloc {offset = ?} : ring<2, fp32[64]@L2>\n%s = acquire %g : empty<fp32[64]@L2>\n\
             %r = local_load %s {matrix = false} : fp32[64]@L0",
            "local_load reads an empty slot",
        ),
    ]);
}

#[test]
fn ops_that_only_tile_ir_has() {
    check_rejected(&[
        ("%r = dot %a, %f, %c {DOT} : fp32[32, 8]@L11", "dot exists only in tile IR"),
        ("%r = hint %n {kind = \"multiple_of\", values = [4]} : int32", "hint exists only in tile IR"),
        ("assume %b", "assume exists only in tile IR"),
        ("call {callee = func0, results = ()}", "call exists only in tile IR"),
        // The dialect has other ops for these.
        ("%r = load %q {LOAD} : fp32[64]@L0", "attribute `axis` of load is missing or malformed"),
        ("store %q, %t {STORE, axis = 0}", "attribute `width` of store is missing or malformed"),
        ("%r = reduce %t {axis = 0} ADD : fp32", "attribute `scope` of reduce is missing or malformed"),
    ]);
}

/// The verifier rejects unexpected and missing results.
#[test]
fn unexpected_and_missing_results() {
    check_rejected(&[
        ("%r = dealloc %m : fp32", "the results of dealloc are"),
        ("%r = local_store %m, %t : fp32", "the results of local_store are"),
        ("%r = barrier : fp32", "barrier"),
        ("%r = commit_group : fp32", "the results of commit_group are"),
        ("%r = mbarrier_init %bars {arrivals = 1} : fp32", "the results of mbarrier_init are"),
        ("%r, %s = alloc {offset = ?} : mbarrier<1>, mbarrier<1>", "alloc makes memory, found"),
        ("add %t, %t", "add has results"),
        ("convert_layout %t", "convert_layout has results"),
        ("reduce %t {axis = 0, scope = block, redux = false} ADD", "reduce has results"),
        ("reduce %t {axis = 0, scope = block, redux = false}", "reduce has 1 regions, found 0"),
    ]);
}

#[test]
fn text_that_is_not_a_module() {
    let function = "kernel func0 @k(%x: fp32) {\n  %t = splat %x {shape = [32]} : TYPE\n  return_values\n}";
    let layouts = "gpu sm_80, 1 warps, 0 bytes of shared memory\nL0 = [32] lane (1) (2) (4) (8) (16)\n";
    let header = "expected `gpu sm_90a, 4 warps, 0 bytes of shared memory`";
    let swapped = layouts.replace("L0", "L1");
    let twice = format!("{layouts}L1 = [32] lane (1) (2) (4) (8) (16)\n");
    let again = format!("{layouts}L0 = [32] lane (2) (1) (4) (8) (16)\n");
    let gap = format!("{layouts}L2 = [32] lane (2) (1) (4) (8) (16)\n");
    let numbered = "layouts are numbered in order, and none is listed twice";
    let first = |from: &str, to: &str| layouts.replace(from, to);
    let cases = [
        (layouts.to_owned(), "fp32[32]@L0", None),
        (first("shared memory", "shared memory, no contraction"), "fp32[32]@L0", None),
        (layouts.to_owned(), "fp32[32]@L9", Some("L9 is not a layout of the module")),
        (layouts.to_owned(), "fp32[32]@L", Some("`fp32[32]@L` is not a type")),
        (layouts.to_owned(), "fp32[32]@X0", Some("`fp32[32]@X0` is not a type")),
        (layouts.to_owned(), "fp32[32]", Some("`fp32[32]` is not a type")),
        (layouts.to_owned(), "fp32@L0", Some("`fp32@L0` is not a type")),
        (layouts.to_owned(), "float[32]@L0", Some("`float[32]@L0` is not a type")),
        (layouts.to_owned(), "heap<1, fp32[32]@L0>", Some("`heap<1, fp32[32]@L0>` is not a type")),
        (layouts.to_owned(), "buffer<fp32[32]@L0>", Some("`buffer<fp32[32]@L0>` is not a type")),
        (layouts.to_owned(), "buffer<1, fp32[32]>", Some("`buffer<1, fp32[32]>` is not a type")),
        (swapped, "fp32[32]@L0", Some(numbered)),
        (twice, "fp32[32]@L0", Some(numbered)),
        (again, "fp32[32]@L0", Some(numbered)),
        (gap, "fp32[32]@L0", Some(numbered)),
        (first("(16)", "(16"), "fp32[32]@L0", Some("L0: ")),
        (first("(16)", "(32)"), "fp32[32]@L0", Some("L0: ")),
        (first("L0 = ", "L0: "), "fp32[32]@L0", Some("expected `L0 = [..]`, or a function")),
        (String::new(), "fp32", Some(header)),
        (first("gpu ", ""), "fp32[32]@L0", Some(header)),
        (first("1 warps", "warps"), "fp32[32]@L0", Some(header)),
        (first(", 0 bytes of shared memory", ""), "fp32[32]@L0", Some(header)),
        (first("shared memory", "shared memory, fast"), "fp32[32]@L0", Some(header)),
        (first("1 warps", "3 warps"), "fp32[32]@L0", Some("L0 is not for 3 warps")),
        (first("1 warps", "64 warps"), "fp32[32]@L0", Some("1 to 32 warps, found 64")),
        (first("sm_80", "sm_70"), "fp32[32]@L0", Some("unknown target `sm_70`")),
    ];
    for (header, ty, expected) in &cases {
        let text = format!("{header}{}", function.replace("TYPE", ty));
        match (parse_dialect::<Gpu>(&text), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => assert!(error.message.contains(expected), "{text}\n{error}"),
            (Ok(_), Some(expected)) => panic!("this is read, and should not be, since {expected}:\n{text}"),
            (Err(error), None) => panic!("{error}\n{text}"),
        }
    }
}

#[test]
fn dots_in_flight() {
    let text = |body: &str| {
        format!(
            "gpu sm_90a, 4 warps, 0 bytes of shared memory
L0 = [64,16] register (0,1) (8,0) (0,8) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
L1 = [16,8] register (1,0) (8,0) lane (2,0) (4,0) (0,1) (0,2) (0,4) warp (0,0) (0,0)
L2 = [16,8] offset (0,1) (0,2) (0,4) (1,0) (2,0) (4,0) (8,0)
L3 = [64,8] register (0,1) (8,0) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
kernel func0 @k(%x: fp32, %h: fp16) {{
  %a = splat %h {{shape = [64, 16]}} : fp16[64, 16]@L0
  %b = splat %h {{shape = [16, 8]}} : fp16[16, 8]@L1
  %m = alloc {{offset = ?}} : buffer<1, fp16[16, 8]@L2>
  %c = splat %x {{shape = [64, 8]}} : fp32[64, 8]@L3
  {body}
  return_values
}}"
        )
    };
    let wgmma = "{instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false}";
    let right = format!(
        "%d = wgmma %a, %m, %c {wgmma} : pending<fp32[64, 8]@L3>\n%r = wgmma_wait %d {{pending = 0}} : fp32[64, 8]@L3"
    );
    parse_dialect::<Gpu>(&text(&right)).unwrap_or_else(|error| panic!("{error}"));
    // Before conversions are lowered, operands may be in registers or shared memory.
    let anywhere = text(&right.replace("%m", "%b"));
    parse_dialect::<Gpu>(&anywhere).unwrap_or_else(|error| panic!("{error}"));
    let synchronized = anywhere.replacen("shared memory\n", "shared memory, synchronized\n", 1);
    let error = parse_dialect::<Gpu>(&synchronized).expect_err("B is in registers");
    assert!(error.message.contains("wgmma must read B from shared memory"), "{error}");
    let refused = [
        (right.replace("[4, 1]", "[2, 2]"), "wgmma has no Mma"),
        (right.replace("m64n8k16", "m64n8k32"), "wgmma has no Mma"),
        (right.replace("pending<fp32[64, 8]@L3>", "fp32[64, 8]@L3"), "the results of wgmma are"),
        (right.replace("wgmma_wait %d", "wgmma_wait %c"), "wgmma_wait takes a dot in flight"),
        (
            right.replace("wgmma_wait %d", "wgmma_wait %d, %a"),
            "wgmma_wait must wait for a tile of 32-bit elements",
        ),
        (
            right.replace(
                "%r = wgmma_wait %d {pending = 0} : fp32[64, 8]@L3",
                "%r = add %d, %d : fp32[64, 8]@L3",
            ),
            "add takes",
        ),
    ];
    for (body, expected) in refused {
        match parse_dialect::<Gpu>(&text(&body)) {
            Ok(_) => panic!("this is accepted, and should be refused since {expected}:\n{body}"),
            Err(error) => assert!(error.message.contains(expected), "{body}\n{error}"),
        }
    }
}
