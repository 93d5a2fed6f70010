//! Tests the rules of the verifier that involve several instructions. Each rule accepts a program,
//! and refuses wrong variants with one sentence.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::parse_dialect;
mod explicit;
mod mbarriers;
mod names;
mod pairs;
mod rings;
mod schedules;
mod tensor_memory;

/// L0 is an accumulator of `wgmma`, L1 its A. L2 and L3 are A and B in memory.
const HEAD: &str = "\
gpu sm_90a, 4 warps, 0 bytes of shared memory
L0 = [64,8] register (0,1) (8,0) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
L1 = [64,16] register (0,1) (8,0) (0,8) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (16,0) (32,0)
L2 = [64,16] offset (0,1) (0,2) (0,4) (0,8) (1,0) (2,0) (4,0) (8,0) (16,0) (32,0)
L3 = [16,8] offset (0,1) (0,2) (0,4) (1,0) (2,0) (4,0) (8,0)
kernel func0 @k(%p: *fp16, %n: int32, %b: int1, %t: *int8) {
%c0 = constant {value = 0:int32} : int32
%c1 = constant {value = 1:int32} : int32
%c2 = constant {value = 2:int32} : int32
%c3 = constant {value = 3:int32} : int32
%zero = constant {value = 0.0:fp32} : fp32
%acc = splat %zero {shape = [64, 8]} : fp32[64, 8]@L0
%ptr = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
";

/// Expands the abbreviations of a body, and adds the text around it.
fn text(body: &str) -> String {
    let body = body
        .replace("COPY", "copy_async")
        .replace("%ptr!", "%ptr {cache = \"\", axis = 1, width = 2}")
        .replace("LOAD!", "load %ptr {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1")
        .replace("WGMMA!", "{instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0, transposed_a = false, transposed_b = false} : pending<fp32[64, 8]@L0>")
        .replace("LOOP!", "{options = \"stages=0 unroll=0\"}")
        .replace("FINISHED", "fp32[64, 8]@L0")
        .replace("READ!", "{matrix = false} : fp16[64, 16]@L1")
        .replace("ONE", "buffer<1, fp16[64, 16]@L2>")
        .replace("TWO", "buffer<2, fp16[64, 16]@L2>")
        .replace("THREE", "buffer<3, fp16[64, 16]@L2>")
        .replace("RING", "ring<2, fp16[64, 16]@L2>")
        .replace("EMPTY", "empty<fp16[64, 16]@L2>")
        .replace("FULL", "full<fp16[64, 16]@L2>")
        .replace("PENDING", "pending<fp32[64, 8]@L0>")
        .replace("SMALL", "buffer<1, fp16[16, 8]@L3>");
    // If buffers have offsets, the body also has its barriers.
    let is_placed = body.contains("offset = 0");
    let head = if is_placed { HEAD.replacen(" memory\n", " memory, synchronized\n", 1) } else { HEAD.into() };
    format!("{head}{body}\nreturn_values\n}}\n")
}

#[track_caller]
fn accepted(body: &str) {
    let parsed = parse_dialect::<Gpu>(&text(body)).map_err(|error| error.message);
    assert_eq!(parsed.map(drop), Ok(()));
}

#[track_caller]
fn refused(body: &str, expected: &str) {
    let error = parse_dialect::<Gpu>(&text(body)).expect_err("it is wrong");
    assert_eq!(error.message, format!("in function k: {expected}"));
}

/// Checks that the body with `to` for the first `from` is refused with `expected`.
#[track_caller]
fn refused_with(body: &str, from: &str, to: &str, expected: &str) {
    assert!(body.contains(from), "{from}");
    refused(&body.replacen(from, to, 1), expected);
}

const FILLED: &str = "
%r = alloc {offset = ?} : RING
%e = acquire %r : EMPTY
COPY %e, %ptr!
publish %e
%f = take %r : FULL
%v = local_load %f READ!
release %f";

#[test]
fn tokens_are_consumed_once() {
    accepted(FILLED);
    let check = |from, to, expected| refused_with(FILLED, from, to, expected);
    check("release %f", "release %f\nrelease %f", "release uses %f, which was consumed before");
    check("release %f", "", "%f is not consumed on every path: release it on each");
    check("publish %e", "publish %e\nCOPY %e, %ptr!", "copy_async uses %e, which was consumed before");
    check(
        "release %f",
        "if_else %b () {\nrelease %f\nyield_values\n} () {\nyield_values\n}",
        "%f is consumed in only one branch of if_else",
    );
    check(
        "release %f",
        "for_loop %c0, %n, %c1 LOOP! (%i: int32) {\nrelease %f\nyield_values\n}",
        "for_loop consumes %f of an outer block: carry it through",
    );
    check(
        "release %f",
        "warp_specialize {warps = [4], registers = [0]} () {\nrelease %f\nyield_values\n}",
        "release uses %f, which was consumed before",
    );
    accepted(&FILLED.replace(
        "release %f",
        "if_else %b () {\nrelease %f\nyield_values\n} () {\nrelease %f\nyield_values\n}",
    ));
}

const CARRIED: &str = "
%r = alloc {offset = ?} : RING
%e0 = acquire %r : EMPTY
%e1 = for_loop %c0, %n, %c1, %e0 LOOP! (%i: int32, %e: EMPTY) {
COPY %e, %ptr!
publish %e
%f = take %r : FULL
release %f
%e2 = acquire %r : EMPTY
yield_values %e2
} : EMPTY
publish %e1
%g = take %r : FULL
release %g";

#[test]
fn tokens_may_be_carried() {
    accepted(CARRIED);
    refused_with(CARRIED, "publish %e1", "", "%e1 is not consumed on every path: publish it on each");
    refused_with(CARRIED, "publish %e\n", "", "%e is not consumed on every path: publish it on each");
}

#[test]
fn only_their_ops_take_tokens() {
    let product = "
%m = alloc {offset = ?} : ONE
%s = alloc {offset = ?} : SMALL
%q = wgmma %m, %s, %acc WGMMA!
%d = wgmma_wait %q {pending = 0} : FINISHED";
    accepted(product);
    refused_with(
        product,
        "%d = wgmma_wait %q {pending = 0} : FINISHED",
        "",
        "%q is not consumed on every path: wait for it on each",
    );
    refused_with(
        FILLED,
        "publish %e",
        "%s = alloc {offset = ?} : SMALL\n%x = mma_sync %e, %s, %acc {instruction = m16n8k16, warps = [4, 1], \
         precision = \"ieee\", max_imprecise_acc = 0, matrix_a = false, matrix_b = false} : FINISHED\npublish %e",
        "a dot cannot read empty<fp16[64, 16]@L2>",
    );
    refused_with(
        FILLED,
        "publish %e",
        "%y = splat %c0 {shape = [64, 16]} : int32[64, 16]@L1\ntensor_store %e, %t, %c0\npublish %e",
        "tensor_store does not take %e, which is empty<fp16[64, 16]@L2>",
    );
}

const LIFETIME: &str = "
%m = alloc {offset = ?} : TWO
%s = slot %m, %c0 : ONE
%x = LOAD!
local_store %s, %x
%y = local_load %s READ!
dealloc %m";

#[test]
fn lifetimes_end_once() {
    accepted(LIFETIME);
    let check = |from, to, expected| refused_with(LIFETIME, from, to, expected);
    check("dealloc %m", "dealloc %m\ndealloc %m", "%m is deallocated twice");
    check(
        "dealloc %m",
        "dealloc %m\n%z = local_load %s READ!",
        "local_load uses %s after the dealloc of its memory",
    );
    check("dealloc %m", "dealloc %s", "dealloc takes the result of an alloc, but %s is a slot");
    check(
        "dealloc %m",
        "if_else %b () {\ndealloc %m\nyield_values\n} () {\nyield_values\n}",
        "%m is deallocated in another block than that of its alloc",
    );
    check(
        "dealloc %m",
        "%o = for_loop %c0, %n, %c1, %m LOOP! (%i: int32, %l: TWO) {\nyield_values %l\n} : TWO",
        "%l is memory that is carried or yielded: carry the index of a slot",
    );
}

/// Two copies to one buffer, with the offset and the barrier that passes add.
const COPIED: &str = "
%m = alloc {offset = 0} : ONE
COPY %m, %ptr!
commit_group
COPY %m, %ptr!
wait_group {pending = 0}
barrier
%v = local_load %m READ!";

#[test]
fn copies_are_waited_for() {
    let body = &COPIED.replacen("commit_group\nCOPY %m, %ptr!", "commit_group", 1);
    accepted(body);
    let under_way = "local_load uses %m while it is being copied to: ";
    let check = |from, to, expected: &str| refused_with(body, from, to, expected);
    let both = format!("{under_way}add commit_group and wait_group");
    check("commit_group\n", "", &both);
    let wait = format!("{under_way}add a wait_group that leaves at most 0 pending");
    check("wait_group {pending = 0}\n", "", &wait);
    check("pending = 0", "pending = 1", &wait);
    let barrier = "local_load reads %m, which other threads wrote: add a barrier after the writes and \
     after the wait for copies";
    check("barrier\n", "", barrier);
    check("wait_group {pending = 0}\nbarrier", "barrier\nwait_group {pending = 0}", barrier);
    accepted(&body.replace("barrier\n", "").replace("offset = 0", "offset = ?"));
    accepted(&body.replace("barrier\n", "named_barrier {barrier = 1, threads = 128}\n"));
    refused(
        COPIED,
        "copy_async uses %m while it is being copied to: add a wait_group that leaves at most 0 pending",
    );
    check(
        "%v = local_load %m READ!",
        "COPY %m, %ptr!\ndealloc %m",
        "dealloc frees %m while it is being copied to: wait for the copies first",
    );
    // The wait is in only one of two branches.
    check(
        "wait_group {pending = 0}",
        "if_else %b () {\nwait_group {pending = 0}\nyield_values\n} () {\nyield_values\n}",
        &wait,
    );
    accepted(&body.replace("wait_group {pending = 0}", "commit_group\nwait_group {pending = 1}"));
}

/// Three slots with two copies in flight; the index of the loop selects the slots.
const PIPELINED: &str = "
%m = alloc {offset = 0} : THREE
%s0 = slot %m, %c0 : ONE
COPY %s0, %ptr!
commit_group
%s1 = slot %m, %c1 : ONE
COPY %s1, %ptr!
commit_group
for_loop %c0, %n, %c1 LOOP! (%i: int32) {
wait_group {pending = 1}
barrier
%at = int_rem %i, %c3 : int32
%s = slot %m, %at : ONE
%v = local_load %s READ!
%next = add %i, %c2 : int32
%to = int_rem %next, %c3 : int32
%d = slot %m, %to : ONE
COPY %d, %ptr!
commit_group
yield_values
}
wait_group {pending = 0}
dealloc %m";

/// [`PIPELINED`] with slots that two wrapping counters select. The loop carries its index as
/// another value (`%last`).
const COUNTED: &str = "
%m = alloc {offset = 0} : THREE
%s0 = slot %m, %c0 : ONE
COPY %s0, %ptr!
commit_group
%s1 = slot %m, %c1 : ONE
COPY %s1, %ptr!
commit_group
%l, %x, %y = for_loop %c0, %n, %c1, %c3, %c0, %c2 LOOP! (%i: int32, %last: int32, %at: int32, %to: int32) {
wait_group {pending = 1}
barrier
%s = slot %m, %at : ONE
%v = local_load %s READ!
%d = slot %m, %to : ONE
COPY %d, %ptr!
commit_group
%at1 = add %at, %c1 : int32
%end1 = eq %at1, %c3 : int1
%at2 = select %end1, %c0, %at1 : int32
%to1 = add %to, %c1 : int32
%more = lt %to1, %c3 : int1
%to2 = select %more, %to1, %c0 : int32
yield_values %i, %at2, %to2
} : int32, int32, int32
wait_group {pending = 0}
dealloc %m";

#[test]
fn pipelined_copies_are_followed() {
    for body in [PIPELINED, COUNTED] {
        accepted(body);
        let wait = |groups: u32| {
            format!(
                "local_load uses %s while it is being copied to: add a wait_group that leaves at most \
                 {groups} pending"
            )
        };
        refused_with(body, "wait_group {pending = 1}", "wait_group {pending = 2}", &wait(1));
        refused_with(body, "wait_group {pending = 1}\n", "", &wait(1));
        // Both copies before the loop are in one group, which the first wait leaves in flight.
        refused_with(body, "commit_group\n%s1", "%s1", &wait(0));
        let last = body.rfind("commit_group").expect("the body commits groups");
        refused(&[&body[..last], &body[last + "commit_group".len()..]].concat(), &wait(0));
        refused_with(
            body,
            "wait_group {pending = 0}\n",
            "",
            "dealloc frees %m while it is being copied to: wait for the copies first",
        );
    }
    // With a step of two, the counter can pass the end, so its slot is unknown.
    accepted(
        &COUNTED.replace("%to1 = add %to, %c1", "%to1 = add %to, %c2").replace("pending = 1", "pending = 0"),
    );
    // With two slots, a wait that leaves two groups misses the iteration's slot.
    refused(
        &PIPELINED
            .replace("THREE", "TWO")
            .replace("int_rem %i, %c3", "int_rem %i, %c2")
            .replace("int_rem %next, %c3", "int_rem %next, %c2")
            .replace("wait_group {pending = 1}", "wait_group {pending = 2}"),
        "local_load uses %s while it is being copied to: add a wait_group that leaves at most 1 pending",
    );
}

const DOT: &str = "
%m = alloc {offset = 0} : ONE
%s = alloc {offset = 2048} : SMALL
%x = LOAD!
local_store %m, %x
fence_proxy
barrier
%q = wgmma %m, %s, %acc WGMMA!
%q1 = wgmma %x, %s, %q WGMMA!
%d = wgmma_wait %q1 {pending = 0} : FINISHED
barrier
local_store %m, %x
dealloc %m";

#[test]
fn dots_keep_their_operands() {
    accepted(DOT);
    let check = |from, to, expected: &str| refused_with(DOT, from, to, expected);
    check(
        "%d = wgmma_wait",
        "local_store %m, %x\n%d = wgmma_wait",
        "local_store writes %m, which the dot %q1 may still read: wait for the dot first",
    );
    check(
        "%d = wgmma_wait %q1 {pending = 0} : FINISHED\nbarrier\nlocal_store %m, %x\ndealloc %m",
        "dealloc %m\n%d = wgmma_wait %q1 {pending = 0} : FINISHED",
        "dealloc frees %m, which the dot %q1 may still read: wait for the dot first",
    );
    check(
        "pending = 0",
        "pending = 1",
        "wgmma_wait leaves 1 dots in flight, and %q1 may be one of them: 0 were issued after it",
    );
    accepted(&DOT.replace("pending = 0", "pending = ?"));
}

/// The last dot of an iteration finishes in the next iteration.
const LAGGING: &str = "
%m = alloc {offset = ?} : THREE
%s = alloc {offset = ?} : SMALL
%x = LOAD!
%first = slot %m, %c0 : ONE
local_store %first, %x
fence_proxy
%q0 = wgmma %first, %s, %acc WGMMA!
%q, %z = for_loop %c0, %n, %c1, %q0, %c0 LOOP! (%i: int32, %u: PENDING, %at: int32) {
%next = add %at, %c1 : int32
%end = eq %next, %c3 : int1
%at1 = select %end, %c0, %next : int32
%d = slot %m, %at1 : ONE
local_store %d, %x
fence_proxy
%u1 = wgmma %d, %s, %u WGMMA!
%w = wgmma_wait %u1 {pending = 0} : FINISHED
%u2 = wgmma %d, %s, %w WGMMA!
yield_values %u2, %at1
} : PENDING, int32
%w1 = wgmma_wait %q {pending = 0} : FINISHED";

#[test]
fn dots_are_carried() {
    accepted(LAGGING);
    let settled = LAGGING.replace(
        "%w = wgmma_wait %u1 {pending = 0} : FINISHED\n%u2 = wgmma %d, %s, %w WGMMA!",
        "%u2 = wgmma_wait_earlier %u1 {pending = 1} : PENDING\n%e = slot %m, %at : ONE\nlocal_store %e, %x\nfence_proxy",
    );
    let written = "local_store writes %e, which the dot %u2 may still read: wait for the dot first";
    accepted(&settled);
    refused_with(&settled, "pending = 1", "pending = 2", written);
    refused_with(
        LAGGING,
        "%d = slot %m, %at1 : ONE",
        "%d = slot %m, %at : ONE",
        "local_store writes %d, which the dot %u may still read: wait for the dot first",
    );
    refused_with(
        FILLED,
        "release %f",
        "%s = alloc {offset = ?} : SMALL\n%q = wgmma %f, %s, %acc WGMMA!\nrelease %f\n%w = wgmma_wait %q {pending = 0} : FINISHED",
        "release frees %f, which the dot %q may still read: wait for the dot first",
    );
}

#[test]
fn the_asynchronous_proxy_reads_after_a_fence() {
    let wgmma = "wgmma reads %m by the asynchronous proxy, but ordinary accesses wrote it: add ";
    let check = |from, to, what: &str| {
        refused_with(DOT, from, to, &format!("{wgmma}{what}"));
    };
    check("fence_proxy\n", "", "fence_proxy");
    check("barrier\n%q =", "%q =", "a barrier after fence_proxy");
    // After the barrier, each thread fences all writes for its reads.
    accepted(&DOT.replace("fence_proxy\nbarrier", "barrier\nfence_proxy"));
    accepted(&DOT.replace("fence_proxy\nbarrier", "barrier\nfence_proxy %m"));
    check("local_store %m, %x\nfence_proxy", "fence_proxy\nlocal_store %m, %x", "fence_proxy");
    let stored = "
%m = alloc {offset = ?} : ONE
COPY %m, %ptr!
commit_group
wait_group {pending = 0}
fence_proxy
tensor_store %m, %t, %c0, %c0
tensor_store_wait {pending = 0, complete = false}
dealloc %m";
    accepted(stored);
    let fence = "tensor_store reads %m by the asynchronous proxy, but ordinary accesses wrote it: add \
     fence_proxy";
    refused_with(stored, "fence_proxy\n", "", fence);
    // A fence before the copy has arrived has no effect.
    refused_with(
        stored,
        "wait_group {pending = 0}\nfence_proxy",
        "fence_proxy\nwait_group {pending = 0}",
        fence,
    );
    refused_with(stored, "tensor_store_wait {pending = 0, complete = false}\n", "", NOT_AWAITED);
    let reduced = stored.replace("store %m, %t, %c0, %c0", "reduce %m, %t, %c0, %c0 {kind = \"add\"}");
    accepted(&reduced);
    refused_with(&reduced, "fence_proxy\n", "", &fence.replacen("store", "reduce", 1));
    refused_with(&reduced, "tensor_store_wait {pending = 0, complete = false}\n", "", NOT_AWAITED);
    refused_with(&reduced, "\"add\"", "\"max\"", "tensor_reduce cannot combine fp16 by Max");
}

const NOT_AWAITED: &str = "dealloc uses %m while a tensor_store reads it: add a tensor_store_wait that \
 leaves at most 0 pending";

const TENSOR: &str = "
%m = alloc {offset = ?} : ONE
%w = alloc {offset = ?} : mbarrier<1>
mbarrier_init %w {arrivals = 1}
fence_proxy
%z = for_loop %c0, %n, %c1, %c0 LOOP! (%i: int32, %phase: int32) {
mbarrier_expect %w, %c0 {bytes = 2048}
tensor_load %m, %t, %w, %c0, %c0, %i
mbarrier_wait %w, %c0, %phase
%v = local_load %m READ!
barrier
%flipped = xor %phase, %c1 : int32
yield_values %flipped
} : int32
dealloc %m";

#[test]
fn tensor_copies_are_waited_for_and_wait() {
    accepted(TENSOR);
    refused_with(
        TENSOR,
        "mbarrier_wait %w, %c0, %phase\n%v = local_load %m READ!",
        "%v = local_load %m READ!\nmbarrier_wait %w, %c0, %phase",
        "local_load uses %m while it is being copied to: add an mbarrier_wait for its barrier",
    );
    refused_with(
        TENSOR,
        "barrier\n%flipped",
        "%flipped",
        "tensor_load overwrites %m, which other threads may still read: add a barrier or an mbarrier_wait",
    );
    // A dot reads its operands until it has finished.
    let product = "
%m = alloc {offset = ?} : ONE
%s = alloc {offset = ?} : SMALL
%w = alloc {offset = ?} : mbarrier<1>
mbarrier_init %w {arrivals = 1}
fence_proxy
%q = wgmma %m, %s, %acc WGMMA!
%d = wgmma_wait %q {pending = 0} : FINISHED
barrier
mbarrier_expect %w, %c0 {bytes = 2048}
tensor_load %m, %t, %w, %c0, %c0, %c0
mbarrier_wait %w, %c0, %c0";
    accepted(product);
    refused_with(
        product,
        "%d = wgmma_wait %q {pending = 0} : FINISHED\nbarrier",
        "barrier\n%d = wgmma_wait %q {pending = 0} : FINISHED",
        "tensor_load overwrites %m, which other threads may still read: add a barrier or an mbarrier_wait",
    );
    let two = TENSOR.replace("mbarrier<1>", "mbarrier<2>");
    refused_with(
        &two,
        "mbarrier_wait %w, %c0, %phase",
        "mbarrier_wait %w, %c1, %phase",
        "local_load uses %m while it is being copied to: add an mbarrier_wait for its barrier",
    );
}

#[test]
fn barriers_have_phases() {
    let check = |from, to, expected: &str| refused_with(TENSOR, from, to, expected);
    let wrong = |parity: u32, text: &str| {
        format!(
            "mbarrier_wait waits for a phase of parity {parity} of {text}, which may be the current \
             phase, with 0 of 1 \
             arrivals: nothing completes it"
        )
    };
    check("%w, %c0, %phase", "%w, %c0, %c0", &wrong(0, "%w"));
    check("%w, %c0, %phase", "%w, %c0, %c1", &wrong(1, "%w"));
    // The parity is carried and does not change.
    check("yield_values %flipped", "yield_values %phase", &wrong(0, "%w"));
    check("mbarrier_init %w {arrivals = 1}\n", "", "mbarrier_expect uses %w before mbarrier_init");
    check(
        "%w = alloc {offset = ?}",
        "%w = alloc {offset = 0}",
        "mbarrier_expect uses %w without a barrier after mbarrier_init",
    );
    check(
        "fence_proxy\n",
        "",
        "tensor_load arrives at %w by the asynchronous proxy: add a fence_proxy after mbarrier_init, \
         before the barrier",
    );
    check(
        "mbarrier_expect %w, %c0 {bytes = 2048}\n",
        "",
        "mbarrier_wait waits for %w, but nothing arrives there",
    );
    check(
        "mbarrier_expect %w, %c0 {bytes = 2048}\n",
        "mbarrier_expect %w, %c0 {bytes = 2048}\nmbarrier_expect %w, %c0 {bytes = 2048}\n",
        "mbarrier_expect arrives at %w after all 1 arrivals of the phase: wait for the phase first",
    );
    check(
        "mbarrier_expect %w, %c0 {bytes = 2048}\n",
        "mbarrier_arrive %w, %c0\n",
        "mbarrier_arrive makes 4 arrivals in a phase of %w, mbarrier_init allows 1",
    );
    let straight = "
%w = alloc {offset = ?} : mbarrier<2>
mbarrier_init %w {arrivals = 5}
mbarrier_arrive %w, %c1
mbarrier_expect %w, %c1 {bytes = 0}
mbarrier_wait %w, %c1, %c0
mbarrier_arrive %w, %c1
mbarrier_expect %w, %c1 {bytes = 0}
mbarrier_wait %w, %c1, %c1";
    accepted(straight);
    refused_with(straight, "%w, %c1, %c0", "%w, %c1, %c1", &wrong(1, "%w").replace("of 1", "of 5"));
    refused_with(straight, "%w, %c1, %c0", "%w, %c0, %c0", &wrong(0, "%w").replace("of 1", "of 5"));
    refused_with(
        straight,
        "mbarrier_expect %w, %c1 {bytes = 0}\n",
        "",
        &wrong(0, "%w").replace("0 of 1", "4 of 5"),
    );
    refused_with(
        straight,
        "mbarrier_expect",
        "mbarrier_arrive %w, %c1\nmbarrier_expect",
        "mbarrier_arrive makes 8 arrivals in a phase of %w, mbarrier_init allows 5",
    );
}

#[test]
fn stores_and_loads_follow_barriers() {
    let body = "
%m = alloc {offset = 0} : ONE
%x = LOAD!
local_store %m, %x
barrier
%v = local_load %m READ!
barrier
local_store %m, %x
fence_proxy";
    accepted(body);
    refused_with(
        body,
        "barrier\n%v",
        "%v",
        "local_load reads %m, which other threads wrote: add a barrier after the writes and after the \
         wait for copies",
    );
    refused_with(
        body,
        "barrier\nlocal_store",
        "local_store",
        "local_store overwrites %m, which other threads may still read: add a barrier",
    );
    accepted(&body.replace("barrier\n", "").replace("offset = 0", "offset = ?"));
}

#[test]
fn tensor_stores_are_waited_for() {
    let stored = "
%m = alloc {offset = 0} : ONE
%x = LOAD!
local_store %m, %x
fence_proxy
barrier
tensor_store %m, %t, %c0, %c0
tensor_store_wait {pending = 0, complete = false}
barrier
local_store %m, %x
dealloc %m";
    accepted(stored);
    refused_with(
        stored,
        "pending = 0",
        "pending = 1",
        "local_store uses %m while a tensor_store reads it: add a tensor_store_wait that leaves at most 0 \
         pending",
    );
    refused_with(
        stored,
        "tensor_store_wait {pending = 0, complete = false}\nbarrier",
        "barrier\ntensor_store_wait {pending = 0, complete = false}",
        "local_store uses %m after only one thread has waited for its tensor_store: add a barrier",
    );
    let ring = FILLED.replace(
        "release %f",
        "tensor_store %f, %t, %c0\ntensor_store_wait {pending = 0, complete = false}\nrelease %f",
    );
    accepted(&ring);
    refused(
        &ring.replace("tensor_store_wait {pending = 0, complete = false}\n", ""),
        "release uses %f while a tensor_store reads it: add a tensor_store_wait that leaves at most 0 \
         pending",
    );
}

/// A producer partition of one warp, and a consumer partition of three warps.
const PARTITIONS: &str = "
%m = alloc {offset = ?} : TWO
%full = alloc {offset = ?} : mbarrier<2>
%empty = alloc {offset = ?} : mbarrier<2>
mbarrier_init %full {arrivals = 1}
mbarrier_init %empty {arrivals = 3}
fence_proxy
warp_specialize {warps = [1, 3], registers = [24, 240]} () {
%y, %z = for_loop %c0, %n, %c1, %c0, %c1 LOOP! (%i: int32, %at: int32, %free: int32) {
mbarrier_wait %empty, %at, %free
mbarrier_expect %full, %at {bytes = 2048}
%s = slot %m, %at : ONE
tensor_load %s, %t, %full, %at, %c0, %i
%at1 = xor %at, %c1 : int32
%free1 = xor %free, %at : int32
yield_values %at1, %free1
} : int32, int32
named_barrier {barrier = 1, threads = 128}
yield_values
} () {
%y, %z = for_loop %c0, %n, %c1, %c0, %c0 LOOP! (%i: int32, %at: int32, %phase: int32) {
mbarrier_wait %full, %at, %phase
%s = slot %m, %at : ONE
mbarrier_arrive %empty, %at
%at1 = xor %at, %c1 : int32
%phase1 = xor %phase, %at : int32
yield_values %at1, %phase1
} : int32, int32
named_barrier {barrier = 1, threads = 128}
yield_values
}";

#[test]
fn partitions_are_independent() {
    accepted(PARTITIONS);
    let check = |from, to, expected: &str| refused_with(PARTITIONS, from, to, expected);
    check(
        "mbarrier_arrive %empty",
        "barrier\nmbarrier_arrive %empty",
        "a barrier of the block is in partition 1: use a named_barrier",
    );
    check(
        "threads = 128",
        "threads = 64",
        "named_barrier 1 is for 64 threads, and the partitions that reach it have 128",
    );
    check(
        "named_barrier {barrier = 1, threads = 128}\n",
        "",
        "named_barrier 1 is for 128 threads, and the partitions that reach it have 96",
    );
    check(
        "mbarrier_arrive %empty",
        "COPY %s, %ptr!\nmbarrier_arrive %empty",
        "copy_async in partition 1 uses the outer tile %ptr, which other warps hold too: pass it through \
         shared memory",
    );
    check(
        "mbarrier_wait %full, %at, %phase",
        "mbarrier_wait %full, %at, %c0",
        "mbarrier_wait waits for parity 0 of %full twice in sequence: the parity changes with each phase",
    );
    check(
        "mbarrier_wait %empty, %at, %free\n",
        "",
        "tensor_load uses %s while it is being copied to: add an mbarrier_wait for its barrier",
    );
    check(
        "arrivals = 3",
        "arrivals = 2",
        "mbarrier_arrive makes 3 arrivals in a phase of %empty, mbarrier_init allows 2",
    );
    let many = |numbers: &str| vec![numbers; 15].join(", ");
    let regions = vec!["() {\nyield_values\n}"; 15].join(" ");
    refused(
        &format!("warp_specialize {{warps = [{}], registers = [{}]}} {regions}", many("1"), many("0")),
        "15 partitions, but a block has barriers for 14",
    );
    refused(
        "named_barrier {barrier = 1, threads = 64}",
        "named_barrier 1 outside of partitions is for 64 of 128 threads",
    );
}

/// Copies of a partition are done after `warp_specialize` if another partition waited for them.
#[test]
fn copies_between_partitions_end_after_them() {
    let ended = format!("{PARTITIONS}\ndealloc %m");
    accepted(&ended);
    accepted(&format!("{PARTITIONS}\n%x = LOAD!\n%s = slot %m, %c0 : ONE\nlocal_store %s, %x\ndealloc %m"));
    refused_with(
        &ended,
        "mbarrier_wait %full, %at, %phase\n",
        "",
        "dealloc frees %m while it is being copied to: wait for the copies first",
    );
}

/// The `fence_proxy` is between `mbarrier_init` and the barrier. After the barrier, a thread would
/// fence only its own accesses.
#[test]
fn barriers_are_fenced_before_the_barrier_of_the_block() {
    let body = "
%m = alloc {offset = 0} : ONE
%w = alloc {offset = 4096} : mbarrier<1>
mbarrier_init %w {arrivals = 1}
fence_proxy
barrier
mbarrier_expect %w, %c0 {bytes = 2048}
tensor_load %m, %t, %w, %c0, %c0, %c0
mbarrier_wait %w, %c0, %c0";
    accepted(body);
    refused_with(
        body,
        "fence_proxy\nbarrier",
        "barrier\nfence_proxy",
        "tensor_load arrives at %w by the asynchronous proxy: add a fence_proxy after mbarrier_init, \
         before the barrier",
    );
}

#[test]
fn a_barrier_is_made_ready_once() {
    let body = "%m = alloc {offset = ?} : mbarrier<1>\nmbarrier_init %m {arrivals = 4}\n";
    accepted(body);
    refused(
        &format!("{body}mbarrier_init %m {{arrivals = 4}}"),
        "mbarrier_init initializes %m twice, which PTX does not define",
    );
}

#[test]
fn memory_has_as_many_slots_as_there_may_be() {
    for (ty, is_known) in [
        ("mbarrier<2>", true),
        ("mbarrier<0>", false),
        ("mbarrier<4294967295>", false),
        ("buffer<2, fp16[64, 16]@L2>", true),
        ("buffer<0, fp16[64, 16]@L2>", false),
        ("buffer<4294967295, fp16[64, 16]@L2>", false),
    ] {
        let found = parse_dialect::<Gpu>(&text(&format!("%m = alloc {{offset = ?}} : {ty}")));
        assert_eq!(found.is_ok(), is_known, "{ty}: {:?}", found.err());
    }
}
