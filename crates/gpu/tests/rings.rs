//! Compares lowered rings with expected texts.
//!
//! The verifier accepts each result.

use expect_test::{ExpectFile, expect_file};
use tilewright_gpu::{PASSES, least_shared_bytes};
use tilewright_gpu_ir::Gpu;
use tilewright_ir::{parse_dialect, print, verify};

/// The head of the kernels.
///
/// L0 is the layout of a `wgmma` accumulator, and L1 that of operand A in registers. L2 and L3 are
/// the layouts of A and B in shared memory.
const HEAD: &str = "\
gpu sm_90a, 4 warps, 0 bytes of shared memory
L0 = [64,8] register (0,1) (8,0) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
L1 = [64,16] register (0,1) (8,0) (0,8) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
L2 = [64,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0)
L3 = [16,8] offset (0,1) (0,2) (0,4) (1,0) (2,0) (4,0) (8,0)
kernel func0 @k(%p: *fp16, %n: int32, %b: int1, %t: *int8) {
%from = constant {value = 0:int32} : int32
%by = constant {value = 1:int32} : int32
%zero = constant {value = 0.0:fp32} : fp32
%acc = splat %zero {shape = [64, 8]} : fp32[64, 8]@L0
%ptr = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
%x = load %ptr {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1
";

/// Returns the text of a kernel, with the abbreviations of the body expanded.
fn text(body: &str) -> String {
    let body = body
        .replace("%ptr!", "%ptr {cache = \"\", axis = 1, width = 2}")
        .replace("WGMMA!", "{instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false}")
        .replace("LOOP!", "{options = \"stages=0 unroll=0\"}")
        .replace("READ!", "{matrix = false} : fp16[64, 16]@L1")
        .replace("EMPTY", "empty<fp16[64, 16]@L2>")
        .replace("FULL", "full<fp16[64, 16]@L2>")
        .replace("PENDING", "pending<fp32[64, 8]@L0>")
        .replace("ACC", "fp32[64, 8]@L0")
        .replace("SMALL", "buffer<1, fp16[16, 8]@L3>");
    let head = match body.matches("yield_values\n} () {").count() {
        _ if !body.contains("warp_specialize") => HEAD.into(),
        3 => head_of_partitions(16),
        _ => head_of_partitions(8),
    };
    format!("{head}{body}\nreturn_values\n}}\n")
}

/// Returns the head of a kernel with `warps` warps, at least four in a partition.
///
/// Layouts outside of the partitions cover all warps.
fn head_of_partitions(warps: usize) -> String {
    let copies = " (0,0)".repeat((warps / 4).ilog2() as usize);
    let (layouts, code) = HEAD.split_once("kernel").expect("the text has a kernel");
    let layouts = layouts.replacen(" 4 warps", &format!(" {warps} warps"), 1);
    let spread = |line: &str| {
        line.split_once(" = ").map_or_else(String::new, |(_, layout)| format!("{layout}{copies}"))
    };
    let [accumulator, a] = [1, 2].map(|line| HEAD.lines().nth(line).map_or_else(String::new, spread));
    let layouts = format!("{layouts}L4 = {accumulator}\nL5 = {a}\n");
    layouts + "kernel" + &code.replace("@L0", "@L4").replace("@L1", "@L5")
}

/// Returns the text after the pass `last`, or a diagnostic's message.
fn after(body: &str, last: &str) -> String {
    let mut module = parse_dialect::<Gpu>(&text(body)).expect("the text is well-formed");
    let promised = least_shared_bytes(&module);
    for pass in PASSES.iter().skip_while(|pass| pass.name != "rings") {
        if let Err(diagnostic) = pass.run(&mut module) {
            return diagnostic.message.clone();
        }
        // `rings` needs no more shared memory for `mbarrier`s than was counted.
        assert!(pass.name != "rings" || least_shared_bytes(&module) <= promised, "{promised} bytes: {body}");
        if pass.name == last {
            break;
        }
    }
    let text = print(&module, false);
    verify(&module).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let again = parse_dialect::<Gpu>(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&again, false), text);
    let layout = if text.contains("warp_specialize") { "@L5" } else { "@L1" };
    let end = format!("width = 2}} : fp16[64, 16]{layout}\n");
    let body = text.split_once(&end).map_or("", |(_, body)| body);
    body.replace("{options = \"stages=0 unroll=0\"}", "LOOP")
        .replace(" {cache = \"\", axis = 1, width = 2}", "")
        .replace(" {instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false}", "")
}

/// Returns the expected text of a test.
fn file(name: &str) -> ExpectFile {
    expect_file![format!("rings/{name}.gpu")]
}

#[track_caller]
fn check(body: &str, name: &str) {
    file(name).assert_eq(&after(body, "rings"));
    after(body, "barriers");
}

#[test]
fn stored_by_all_warps() {
    check(
        "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
for_loop %from, %n, %by LOOP! (%i: int32) {
%e = acquire %r : EMPTY
local_store %e, %x
publish %e
%f = take %r : FULL
%v = local_load %f READ!
release %f
yield_values
}
dealloc %r",
        "stored_by_all_warps",
    );
}

#[test]
fn copied_by_all_warps_two_ahead() {
    check(
        "
%r = alloc {offset = ?} : ring<3, fp16[64, 16]@L2>
%s = alloc {offset = ?} : ring<3, fp16[64, 16]@L2>
%m = alloc {offset = ?} : SMALL
%e = acquire %r : EMPTY
copy_async %e, %ptr!
publish %e
%g = acquire %s : EMPTY
copy_async %g, %ptr!
publish %g
%e1 = acquire %r : EMPTY
copy_async %e1, %ptr!
publish %e1
%g1 = acquire %s : EMPTY
copy_async %g1, %ptr!
publish %g1
%a = for_loop %from, %n, %by, %acc LOOP! (%i: int32, %c: ACC) {
%e2 = acquire %r : EMPTY
copy_async %e2, %ptr!
publish %e2
%g2 = acquire %s : EMPTY
copy_async %g2, %ptr!
publish %g2
%f = take %r : FULL
%h = take %s : FULL
%v = local_load %h READ!
%q = wgmma %f, %m, %c WGMMA! : PENDING
%c1 = wgmma_wait %q {pending = ?} : ACC
release %f
release %h
yield_values %c1
} : ACC
dealloc %r
dealloc %s",
        "copied_by_all_warps_two_ahead",
    );
}

#[test]
fn tensor_copies_by_all_warps() {
    check(
        "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%e = acquire %r : EMPTY
tensor_fill %e, %t, %from, %from
publish %e
for_loop %by, %n, %by LOOP! (%i: int32) {
if_else %b () {
%e1 = acquire %r : EMPTY
tensor_fill %e1, %t, %from, %i
publish %e1
yield_values
} () {
yield_values
}
%f = take %r : FULL
%v = local_load %f READ!
release %f
yield_values
}",
        "tensor_copies_by_all_warps",
    );
}

#[test]
fn a_dot_completes_an_iteration_later() {
    check(
        "
%r = alloc {offset = ?} : ring<3, fp16[64, 16]@L2>
%m = alloc {offset = ?} : SMALL
%e = acquire %r : EMPTY
tensor_fill %e, %t, %from, %from
publish %e
%f = take %r : FULL
%q = wgmma %f, %m, %acc WGMMA! : PENDING
%q1, %f1 = for_loop %from, %n, %by, %q, %f LOOP! (%i: int32, %u: PENDING, %g: FULL) {
%e1 = acquire %r : EMPTY
tensor_fill %e1, %t, %from, %i
publish %e1
%h = take %r : FULL
%w = wgmma %h, %m, %acc WGMMA! : PENDING
%c = wgmma_wait %u {pending = ?} : ACC
release %g
yield_values %w, %h
} : PENDING, FULL
%c1 = wgmma_wait %q1 {pending = ?} : ACC
release %f1",
        "a_dot_completes_an_iteration_later",
    );
}

/// The next tile's copies begin before the consumer has read this tile's last slots.
#[test]
fn nested_loops_continue_slots_and_phases() {
    check(
        "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
warp_specialize {warps = [4, 4], registers = [24, 240]} () {
for_loop %from, %n, %by LOOP! (%j: int32) {
for_loop %from, %n, %by LOOP! (%i: int32) {
%e = acquire %r : EMPTY
tensor_fill %e, %t, %j, %i
publish %e
yield_values
}
yield_values
}
yield_values
} () {
while_loop () {
yield_values %b
} () {
for_loop %from, %n, %by LOOP! (%i: int32) {
%f = take %r : FULL
%v = local_load %f READ!
release %f
yield_values
}
yield_values
}
yield_values
}",
        "nested_loops_continue_slots_and_phases",
    );
}

#[test]
fn rings_of_one_slot_carry_only_a_phase() {
    check(
        "
%r = alloc {offset = ?} : ring<1, fp16[64, 16]@L2>
for_loop %from, %n, %by LOOP! (%i: int32) {
%e = acquire %r : EMPTY
tensor_fill %e, %t, %from, %i
publish %e
%f = take %r : FULL
%v = local_load %f READ!
release %f
yield_values
}
dealloc %r",
        "rings_of_one_slot_carry_only_a_phase",
    );
}

/// Two rings use the same memory in turn.
///
/// Their barriers are initialized before the loops, and their phases continue.
#[test]
fn tensor_copies_to_memory_of_an_iteration() {
    let ring = |number: usize| {
        format!(
            "%r{number} = alloc {{offset = ?}} : ring<1, fp16[64, 16]@L2>
%e{number} = acquire %r{number} : EMPTY
tensor_fill %e{number}, %t, %from, %i
publish %e{number}
%f{number} = take %r{number} : FULL
%v{number} = local_load %f{number} READ!
release %f{number}
dealloc %r{number}\n"
        )
    };
    let body = format!(
        "for_loop %from, %n, %by LOOP! (%j: int32) {{
for_loop %from, %n, %by LOOP! (%i: int32) {{
{}if_else %b () {{
{}yield_values
}} () {{
yield_values
}}
yield_values
}}
yield_values
}}",
        ring(1),
        ring(2)
    );
    check(&body, "tensor_copies_to_memory_of_an_iteration");
    // If threads store to the memory, they fence before a copy writes it.
    let store = "%s = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
local_store %s, %x
%w = local_load %s READ!
dealloc %s\n";
    let body = body.replacen("if_else", &format!("{store}if_else"), 1);
    check(&body, "tensor_copies_to_memory_that_threads_stored_to");
}

#[test]
fn stores_that_dots_read_are_fenced() {
    check(
        "
%r = alloc {offset = ?} : ring<1, fp16[64, 16]@L2>
%m = alloc {offset = ?} : SMALL
%a = for_loop %from, %n, %by, %acc LOOP! (%i: int32, %c: ACC) {
%e = acquire %r : EMPTY
local_store %e, %x
publish %e
%f = take %r : FULL
%q = wgmma %f, %m, %c WGMMA! : PENDING
%c1 = wgmma_wait %q {pending = ?} : ACC
release %f
yield_values %c1
} : ACC
dealloc %r",
        "stores_that_dots_read_are_fenced",
    );
}

/// One barrier per iteration is enough, because copies write another slot.
#[test]
fn slots_that_differ_need_no_barrier() {
    let body = "
%r = alloc {offset = ?} : ring<3, fp16[64, 16]@L2>
%e = acquire %r : EMPTY
copy_async %e, %ptr!
publish %e
%e1 = acquire %r : EMPTY
copy_async %e1, %ptr!
publish %e1
for_loop %from, %n, %by LOOP! (%i: int32) {
%f = take %r : FULL
%e2 = acquire %r : EMPTY
copy_async %e2, %ptr!
publish %e2
%v = local_load %f READ!
release %f
yield_values
}";
    file("slots_that_differ_need_no_barrier").assert_eq(&after(body, "barriers"));
    // The analysis does not compare slot indices of a `while_loop`.
    let unknown = body
        .replace("for_loop %from, %n, %by LOOP! (%i: int32) {", "while_loop () {\nyield_values %b\n} () {");
    file("slots_that_may_be_equal_need_barriers").assert_eq(&after(&unknown, "barriers"));
}

/// The analysis identifies a slot across iterations.
#[test]
fn stores_one_iteration_ahead_wait_once() {
    let body = "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%e = acquire %r : EMPTY
local_store %e, %x
publish %e
for_loop %from, %n, %by LOOP! (%i: int32) {
%f = take %r : FULL
%v = local_load %f READ!
release %f
%e1 = acquire %r : EMPTY
local_store %e1, %x
publish %e1
yield_values
}";
    file("stores_one_iteration_ahead_wait_once").assert_eq(&after(body, "barriers"));
    let plain = "
%m = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
%two = constant {value = 2:int32} : int32
%z = for_loop %from, %n, %by, %from LOOP! (%i: int32, %at: int32) {
%s = slot %m, %at : buffer<1, fp16[64, 16]@L2>
%v = local_load %s READ!
%next = add %at, %by : int32
%to = int_rem %next, %two : int32
%d = slot %m, %to : buffer<1, fp16[64, 16]@L2>
local_store %d, %x
yield_values %to
} : int32";
    assert_eq!(after(plain, "barriers").matches("barrier").count(), 1);
}

/// With `%n` of 2, `%j` is 4, so `%k` is 0. The store writes slot 0. The load reads slot
/// `(%n + 1) % 3`, which is also 0.
#[test]
fn an_index_that_may_wrap_is_unknown() {
    let body = "
%m = alloc {offset = ?} : buffer<3, fp16[64, 16]@L2>
%two = constant {value = 2:int32} : int32
%three = constant {value = 3:int32} : int32
%j = add %n, %two : int32
%more = lt %j, %three : int1
%k = select %more, %j, %from : int32
%s = slot %m, %k : buffer<1, fp16[64, 16]@L2>
local_store %s, %x
%l = add %n, %by : int32
%rest = int_rem %l, %three : int32
%d = slot %m, %rest : buffer<1, fp16[64, 16]@L2>
%v = local_load %d READ!";
    assert!(after(body, "barriers").contains("  barrier\n  %v = local_load"));
    let step = body
        .replace("add %n, %two", "add %n, %by")
        .replace("add %n, %by : int32\n%rest", "add %n, %two : int32\n%rest");
    assert!(!after(&step, "barriers").contains("barrier"));
}

/// Each thread fences its writes; a barrier orders them before other threads' reads.
#[test]
fn barriers_follow_fences() {
    let body = "
%m = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
%s = alloc {offset = ?} : SMALL
local_store %m, %x
barrier
fence_proxy
%q = wgmma %m, %s, %acc WGMMA! : PENDING
%c = wgmma_wait %q {pending = ?} : ACC";
    file("barriers_follow_fences").assert_eq(&after(body, "barriers"));
}

/// A later fence does not affect writes that a fence and a barrier made visible.
#[test]
fn fences_cover_writes_once() {
    let body = "
%m = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
%s = alloc {offset = ?} : SMALL
local_store %m, %x
fence_proxy
%q = wgmma %m, %s, %acc WGMMA! : PENDING
%c = wgmma_wait %q {pending = ?} : ACC
fence_proxy
%r = wgmma %m, %s, %c WGMMA! : PENDING
%d = wgmma_wait %r {pending = ?} : ACC";
    file("fences_cover_writes_once").assert_eq(&after(body, "barriers"));
}

/// A barrier follows each wait for copies and each `wgmma_wait`.
#[test]
fn barriers_follow_waits() {
    let body = "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%e = acquire %r : EMPTY
copy_async %e, %ptr!
publish %e
%m = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
%s = alloc {offset = ?} : SMALL
local_store %m, %x
fence_proxy
%q = wgmma %m, %s, %acc WGMMA! : PENDING
barrier
%f = take %r : FULL
%v = local_load %f READ!
release %f
%c = wgmma_wait %q {pending = ?} : ACC
local_store %m, %x";
    file("barriers_follow_waits").assert_eq(&after(body, "barriers"));
}

/// Returns a kernel with a producer and a consumer partition of four warps each.
fn partitions(fill: &str, read: &str) -> String {
    format!(
        "
%r = alloc {{offset = ?}} : ring<2, fp16[64, 16]@L2>
%m = alloc {{offset = ?}} : SMALL
warp_specialize {{warps = [4, 4], registers = [24, 240]}} () {{
%mine = splat %p {{shape = [64, 16]}} : *fp16[64, 16]@L1
for_loop %from, %n, %by LOOP! (%i: int32) {{
%e = acquire %r : EMPTY
{fill}
publish %e
yield_values
}}
yield_values
}} () {{
for_loop %from, %n, %by LOOP! (%i: int32) {{
%f = take %r : FULL
{read}
release %f
yield_values
}}
yield_values
}}
dealloc %r"
    )
}

const LOAD: &str = "%v = local_load %f READ!";

#[test]
fn tensor_copies_of_a_partition() {
    check(&partitions("tensor_fill %e, %t, %from, %i", LOAD), "tensor_copies_of_a_partition");
}

#[test]
fn copies_of_a_partition() {
    check(
        &partitions("copy_async %e, %mine {cache = \"\", axis = 1, width = 2}", LOAD),
        "copies_of_a_partition",
    );
}

#[test]
fn copies_of_a_partition_for_the_asynchronous_proxy() {
    let read = "tensor_store %f, %t, %from, %i\ntensor_store_wait {pending = 0, complete = false}";
    check(
        &partitions("copy_async %e, %mine {cache = \"\", axis = 1, width = 2}", read),
        "copies_of_a_partition_for_the_asynchronous_proxy",
    );
}

/// Returns the text after the pass that lowers rings.
fn lowered(body: &str) -> String {
    let mut module = parse_dialect::<Gpu>(&text(body)).expect("the text is well-formed");
    let rings = PASSES.iter().find(|pass| pass.name == "rings").expect("the pass is there");
    rings.run(&mut module).expect("it lowers the rings");
    print(&module, false)
}

/// The verifier rejects a partition's copies without fence, arrival or count.
#[test]
fn copies_of_a_partition_need_fence_and_arrival() {
    let read = "tensor_store %f, %t, %from, %i\ntensor_store_wait {pending = 0, complete = false}";
    let text = lowered(&partitions("copy_async %e, %mine {cache = \"\", axis = 1, width = 2}", read));
    let rejected = |from: &str, to: &str| {
        let (before, after) = text.split_once(from).expect("the text contains it");
        let error = parse_dialect::<Gpu>(&format!("{before}{to}{after}")).expect_err("the text is wrong");
        error.message
    };
    assert_eq!(
        rejected("      fence_proxy\n", ""),
        "in function k: tensor_store reads %19 by the asynchronous proxy, but ordinary accesses wrote it: \
         add fence_proxy"
    );
    assert_eq!(
        rejected("      mbarrier_arrive_copies %3, %7\n", ""),
        "in function k: copy_async uses %9 while it is being copied to: add commit_group and wait_group"
    );
    assert_eq!(
        rejected("arrivals = 128", "arrivals = 96"),
        "in function k: mbarrier_arrive_copies makes 128 arrivals in a phase of %3, mbarrier_init allows 96"
    );
}

/// A thread arrives once for its copies to both rings.
#[test]
fn copies_of_a_partition_for_several_rings() {
    let fill = "copy_async %e, %mine {cache = \"\", axis = 1, width = 2}";
    let body = partitions(fill, "%g = take %s : FULL\n%v = local_load %f READ!\n%w = local_load %g READ!");
    let body =
        body.replacen("%m = alloc", "%s = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>\n%m = alloc", 1);
    let second = format!("publish %e\n%h = acquire %s : EMPTY\n{}\npublish %h", fill.replace("%e", "%h"));
    let body = body.replacen("publish %e", &second, 1).replacen("release %f", "release %f\nrelease %g", 1);
    check(&format!("{body}\ndealloc %s"), "copies_of_a_partition_for_several_rings");
}

/// Rings are in separate groups if a loop over another ring is between their ops.
///
/// Otherwise, the first `take` could wait for a partition in that loop.
#[test]
fn a_loop_between_slots_separates_groups() {
    let fill = |ring: &str, slot: &str| {
        format!("{slot} = acquire {ring} : EMPTY\ntensor_fill {slot}, %t, %from, %from\npublish {slot}\n")
    };
    let read = |ring: &str, slot: &str| {
        let value = slot.replace('%', "%v");
        format!("{slot} = take {ring} : FULL\n{value} = local_load {slot} READ!\nrelease {slot}\n")
    };
    let around = |partition: &str, first: String, second: String| {
        let (inside, end) = partition.rsplit_once("yield_values").expect("a partition ends with a yield");
        let (head, looped) = inside.split_once("for_loop").expect("the partition has a loop");
        format!("{head}{first}for_loop{looped}{second}yield_values{end}")
    };
    let body = partitions("tensor_fill %e, %t, %from, %i", LOAD);
    let (producer, consumer) = body.split_once("\n} () {").expect("there are two partitions");
    let producer = around(producer, fill("%q", "%x1"), fill("%s", "%x2"));
    let consumer = around(consumer, read("%q", "%y1"), read("%s", "%y2"));
    let one = "alloc {offset = ?} : ring<1, fp16[64, 16]@L2>";
    let body = format!("{producer}\n}} () {{{consumer}");
    let body = body.replacen("%m = alloc", &format!("%q = {one}\n%s = {one}\n%m = alloc"), 1);
    let text = lowered(&format!("{body}\ndealloc %q\ndealloc %s"));
    assert_eq!(text.matches(" mbarrier<").count(), 6, "{text}");
}

#[test]
fn stores_of_a_partition() {
    let fill = "%y = load %mine {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1\n\
                local_store %e, %y";
    check(&partitions(fill, LOAD), "stores_of_a_partition");
}

#[test]
fn several_partitions_read_every_slot() {
    let body = partitions("tensor_fill %e, %t, %from, %i", LOAD);
    let (before, reader) = body.rsplit_once("} () {").expect("there are two partitions");
    let reader = reader.trim_end_matches("\ndealloc %r").trim_end_matches('}');
    let body = format!("{before}}} () {{{reader}}} () {{{reader}}} () {{{reader}}}");
    let body = body.replace("[4, 4]", "[4, 4, 4, 4]");
    let body = body.replace("[24, 240]", "[24, 152, 152, 152]");
    check(&body, "several_partitions_read_every_slot");
}

/// One partition fills two rings in turn, and another partition reads them.
///
/// The second of the two releases arrives for both rings.
#[test]
fn slots_of_a_group_are_released_in_any_order() {
    let body = "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%s = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%m = alloc {offset = ?} : SMALL
warp_specialize {warps = [4, 4], registers = [24, 240]} () {
for_loop %from, %n, %by LOOP! (%i: int32) {
%e = acquire %r : EMPTY
tensor_fill %e, %t, %from, %i
publish %e
%g = acquire %s : EMPTY
tensor_fill %g, %t, %from, %i
publish %g
yield_values
}
yield_values
} () {
for_loop %from, %n, %by LOOP! (%i: int32) {
%f = take %r : FULL
%h = take %s : FULL
%w = local_load %h READ!
release %h
%v = local_load %f READ!
release %f
yield_values
}
yield_values
}
dealloc %r
dealloc %s";
    check(body, "slots_of_a_group_are_released_in_any_order");
}

/// Threads may have written the second ring's memory after the barriers' initialization.
#[test]
fn a_later_ring_of_a_group_is_fenced() {
    let body = "
%r = alloc {offset = ?} : ring<1, fp16[64, 16]@L2>
%m = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
%e = acquire %r : EMPTY
tensor_fill %e, %t, %from, %from
publish %e
local_store %m, %x
barrier
%s = alloc {offset = ?} : ring<1, fp16[64, 16]@L2>
%g = acquire %s : EMPTY
tensor_fill %g, %t, %from, %from
publish %g
%f = take %r : FULL
%h = take %s : FULL
%v = local_load %f READ!
%w = local_load %h READ!
release %f
release %h
dealloc %r
dealloc %s";
    check(body, "a_later_ring_of_a_group_is_fenced");
}

/// Two partitions exchange tiles in both directions.
#[test]
fn rings_in_both_directions() {
    let body = "
%r = alloc {offset = ?} : ring<1, fp16[64, 16]@L2>
%s = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
warp_specialize {warps = [4, 4], registers = [0, 0]} () {
%mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
%y = load %mine {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1
%e = acquire %r : EMPTY
local_store %e, %y
publish %e
%f = take %s : FULL
%v = local_load %f READ!
release %f
yield_values
} () {
%f = take %r : FULL
%v = local_load %f READ!
release %f
%e = acquire %s : EMPTY
local_store %e, %v
publish %e
yield_values
}";
    check(body, "rings_in_both_directions");
}

/// A branch yields the acquired slot.
#[test]
fn slots_come_from_branches() {
    check(
        "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
%e = if_else %b () {
%e1 = acquire %r : EMPTY
copy_async %e1, %ptr!
yield_values %e1
} () {
%e2 = acquire %r : EMPTY
yield_values %e2
} : EMPTY
publish %e
%f = take %r : FULL
%v = local_load %f READ!
release %f
%e3 = acquire %r : EMPTY
copy_async %e3, %ptr!
publish %e3
dealloc %r",
        "slots_come_from_branches",
    );
}

#[test]
fn uses_outside_the_table_are_rejected() {
    let rejected = |body: &str, expected: &str| {
        assert_eq!(after(body, "rings"), format!("cannot lower the ring %r: {expected}"));
    };
    let ring = "%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>\n";
    rejected(
        &format!("{ring}%e = acquire %r : EMPTY\nlocal_store %e, %x\ncopy_async %e, %ptr!\npublish %e"),
        "stores and copies fill its slots, or copies of two kinds",
    );
    rejected(
        &format!(
            "{ring}%e = acquire %r : EMPTY\ntensor_fill %e, %t, %from\ntensor_fill %e, %t, %by\npublish %e"
        ),
        "exactly one tensor_fill must fill the slot of each publish, in the same block",
    );
    let both = partitions("tensor_fill %e, %t, %from, %i", LOAD);
    rejected(
        &both.replace(
            "warp_specialize",
            "%e9 = acquire %r : EMPTY\ntensor_fill %e9, %t, %from\npublish %e9\nwarp_specialize",
        ),
        "several partitions fill its slots, or all warps and a partition",
    );
    let looped =
        both.replace("warp_specialize", "for_loop %from, %n, %by LOOP! (%j: int32) {\nwarp_specialize");
    rejected(
        &looped.replace("\ndealloc %r", "\nyield_values\n}\ndealloc %r"),
        "its warp_specialize is not in the block of its alloc, so its phases would start again",
    );
    let inside = format!(
        "if_else %b () {{\n{ring}%e = acquire %r : EMPTY\ntensor_fill %e, %t, %from\npublish %e\nyield_values\n}} () {{\n\
         yield_values\n}}"
    );
    let is_left =
        "it needs an mbarrier, but the region of its alloc does not take all slots and deallocate it";
    rejected(&inside, is_left);
    rejected(&inside.replacen("publish %e", "publish %e\ndealloc %r", 1), is_left);
}

/// A reduction across the warps of a partition would need a block barrier.
#[test]
fn reductions_across_warps_of_a_partition_are_rejected() {
    let body = "
warp_specialize {warps = [4, 4], registers = [0, 0]} () {
%mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
%y = load %mine {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1
%rows = reduce %y {axis = 0, scope = block, redux = false} (%i: fp16, %j: fp16) {
%k = add %i, %j : fp16
yield_values %k
} : fp16[16]@L6
yield_values
} () {
yield_values
}";
    let row = "L6 = [16] register (1) (8) lane (2) (4) (0) (0) (0) warp (0) (0)\nkernel";
    let text = text(body).replacen("kernel", row, 1);
    let mut module = parse_dialect::<Gpu>(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let error = PASSES[0].run(&mut module).expect_err("a partition has no block barrier");
    assert_eq!(error.message, "`reduce` between the warps of a partition is not supported");
}
