//! What rings become, by who fills and who reads them: text in, text out, which the verifier accepts.

use expect_test::{Expect, expect};
use tilewright_gpu::PASSES;
use tilewright_gpu::language::Gpu;
use tilewright_ir::{parse_dialect, print, verify};

/// L0 is an accumulator of `wgmma`, L1 its A in registers, L2 and L3 are A and B in memory.
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

/// A body with its abbreviations spelled out.
fn text(body: &str) -> String {
    let body = body
        .replace("%ptr!", "%ptr {cache = \"\", axis = 1, width = 2}")
        .replace("WGMMA!", "{instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0}")
        .replace("LOOP!", "{options = \"stages=0 unroll=0\"}")
        .replace("READ!", "{matrix = false} : fp16[64, 16]@L1")
        .replace("EMPTY", "empty<fp16[64, 16]@L2>")
        .replace("FULL", "full<fp16[64, 16]@L2>")
        .replace("PENDING", "pending<fp32[64, 8]@L0>")
        .replace("ACC", "fp32[64, 8]@L0")
        .replace("SMALL", "buffer<1, fp16[16, 8]@L3>");
    format!("{HEAD}{body}\nreturn_values\n}}\n")
}

/// The text behind the head after a pass, or its refusal.
fn after(body: &str, last: &str) -> String {
    let mut module = parse_dialect::<Gpu>(&text(body)).expect("it is well-formed");
    for pass in PASSES.iter().skip_while(|pass| pass.name != "rings") {
        if let Err(diagnostic) = (pass.run)(&mut module) {
            return diagnostic.message.clone();
        }
        if pass.name == last {
            break;
        }
    }
    let text = print(&module, false);
    verify(&module).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let again = parse_dialect::<Gpu>(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&again, false), text);
    let body = text.split_once("width = 2} : fp16[64, 16]@L1\n").map_or("", |(_, body)| body);
    body.replace("{options = \"stages=0 unroll=0\"}", "LOOP")
        .replace(" {cache = \"\", axis = 1, width = 2}", "")
        .replace(" {instruction = m64n8k16, warps = [4, 1], max_imprecise_acc = 0}", "")
}

#[track_caller]
fn check(body: &str, expected: &Expect) {
    expected.assert_eq(&after(body, "rings"));
    // With places and barriers it is right too.
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
        &expect![[r"
              %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
              %3, %4 = for_loop %from, %n, %by, %0, %0 LOOP (%i: int32, %5: int32, %6: int32) {
                %7 = slot %r, %5 : buffer<1, fp16[64, 16]@L2>
                %8 = add %5, %1 : int32
                %9 = eq %8, %2 : int1
                %10 = select %9, %0, %8 : int32
                local_store %7, %x
                %11 = slot %r, %6 : buffer<1, fp16[64, 16]@L2>
                %12 = add %6, %1 : int32
                %13 = eq %12, %2 : int1
                %14 = select %13, %0, %12 : int32
                %v = local_load %11 {matrix = false} : fp16[64, 16]@L1
                yield_values %10, %14
              } : int32, int32
              dealloc %r
              return_values
            }
        "]],
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
%c1 = finish %q {pending = ?} : ACC
release %f
release %h
yield_values %c1
} : ACC
dealloc %r
dealloc %s",
        &expect![[r"
              %r = alloc {offset = ?} : buffer<3, fp16[64, 16]@L2>
              %s = alloc {offset = ?} : buffer<3, fp16[64, 16]@L2>
              %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
              %3 = slot %r, %0 : buffer<1, fp16[64, 16]@L2>
              %4 = add %0, %1 : int32
              %5 = eq %4, %2 : int1
              %6 = select %5, %0, %4 : int32
              copy_async %3, %ptr
              commit_group
              %7 = slot %s, %0 : buffer<1, fp16[64, 16]@L2>
              %8 = add %0, %1 : int32
              %9 = eq %8, %2 : int1
              %10 = select %9, %0, %8 : int32
              copy_async %7, %ptr
              commit_group
              %11 = slot %r, %6 : buffer<1, fp16[64, 16]@L2>
              %12 = add %6, %1 : int32
              %13 = eq %12, %2 : int1
              %14 = select %13, %0, %12 : int32
              copy_async %11, %ptr
              commit_group
              %15 = slot %s, %10 : buffer<1, fp16[64, 16]@L2>
              %16 = add %10, %1 : int32
              %17 = eq %16, %2 : int1
              %18 = select %17, %0, %16 : int32
              copy_async %15, %ptr
              commit_group
              %a, %19, %20, %21, %22 = for_loop %from, %n, %by, %acc, %14, %0, %18, %0 LOOP (%i: int32, %c: fp32[64, 8]@L0, %23: int32, %24: int32, %25: int32, %26: int32) {
                %27 = slot %r, %23 : buffer<1, fp16[64, 16]@L2>
                %28 = add %23, %1 : int32
                %29 = eq %28, %2 : int1
                %30 = select %29, %0, %28 : int32
                copy_async %27, %ptr
                commit_group
                %31 = slot %s, %25 : buffer<1, fp16[64, 16]@L2>
                %32 = add %25, %1 : int32
                %33 = eq %32, %2 : int1
                %34 = select %33, %0, %32 : int32
                copy_async %31, %ptr
                commit_group
                wait_group {pending = 5}
                fence_proxy
                %35 = slot %r, %24 : buffer<1, fp16[64, 16]@L2>
                %36 = add %24, %1 : int32
                %37 = eq %36, %2 : int1
                %38 = select %37, %0, %36 : int32
                wait_group {pending = 4}
                %39 = slot %s, %26 : buffer<1, fp16[64, 16]@L2>
                %40 = add %26, %1 : int32
                %41 = eq %40, %2 : int1
                %42 = select %41, %0, %40 : int32
                %v = local_load %39 {matrix = false} : fp16[64, 16]@L1
                %q = wgmma %35, %m, %c : pending<fp32[64, 8]@L0>
                %c1 = finish %q {pending = 0} : fp32[64, 8]@L0
                yield_values %c1, %30, %38, %34, %42
              } : fp32[64, 8]@L0, int32, int32, int32, int32
              wait_group {pending = 0}
              dealloc %r
              wait_group {pending = 0}
              dealloc %s
              return_values
            }
        "]],
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
        &expect![[r"
              %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
              %3 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %3 {arrivals = 1}
              fence_proxy
              %4 = slot %r, %0 : buffer<1, fp16[64, 16]@L2>
              %5 = add %0, %1 : int32
              %6 = eq %5, %2 : int1
              %7 = select %6, %0, %5 : int32
              mbarrier_expect %3, %0 {bytes = 2048}
              tensor_load %4, %t, %3, %0, %from, %from
              %8, %9, %10 = for_loop %by, %n, %by, %7, %0, %0 LOOP (%i: int32, %11: int32, %12: int32, %13: int32) {
                %14 = if_else %b () {
                  barrier
                  %15 = slot %r, %11 : buffer<1, fp16[64, 16]@L2>
                  %16 = add %11, %1 : int32
                  %17 = eq %16, %2 : int1
                  %18 = select %17, %0, %16 : int32
                  mbarrier_expect %3, %11 {bytes = 2048}
                  tensor_load %15, %t, %3, %11, %from, %i
                  yield_values %18
                } () {
                  yield_values %11
                } : int32
                mbarrier_wait %3, %12, %13
                %19 = slot %r, %12 : buffer<1, fp16[64, 16]@L2>
                %20 = xor %13, %1 : int32
                %21 = add %12, %1 : int32
                %22 = eq %21, %2 : int1
                %23 = select %22, %0, %21 : int32
                %24 = select %22, %20, %13 : int32
                %v = local_load %19 {matrix = false} : fp16[64, 16]@L1
                yield_values %14, %23, %24
              } : int32, int32, int32
              return_values
            }
        "]],
    );
}

#[test]
fn a_product_is_finished_an_iteration_later() {
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
%c = finish %u {pending = ?} : ACC
release %g
yield_values %w, %h
} : PENDING, FULL
%c1 = finish %q1 {pending = ?} : ACC
release %f1",
        &expect![[r"
              %r = alloc {offset = ?} : buffer<3, fp16[64, 16]@L2>
              %3 = alloc {offset = ?} : mbarrier<3>
              mbarrier_init %3 {arrivals = 1}
              fence_proxy
              %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
              %4 = slot %r, %0 : buffer<1, fp16[64, 16]@L2>
              %5 = add %0, %1 : int32
              %6 = eq %5, %2 : int1
              %7 = select %6, %0, %5 : int32
              mbarrier_expect %3, %0 {bytes = 2048}
              tensor_load %4, %t, %3, %0, %from, %from
              mbarrier_wait %3, %0, %0
              %8 = slot %r, %0 : buffer<1, fp16[64, 16]@L2>
              %9 = xor %0, %1 : int32
              %10 = add %0, %1 : int32
              %11 = eq %10, %2 : int1
              %12 = select %11, %0, %10 : int32
              %13 = select %11, %9, %0 : int32
              %q = wgmma %8, %m, %acc : pending<fp32[64, 8]@L0>
              %q1, %f1, %14, %15, %16 = for_loop %from, %n, %by, %q, %0, %7, %12, %13 LOOP (%i: int32, %u: pending<fp32[64, 8]@L0>, %g: int32, %17: int32, %18: int32, %19: int32) {
                barrier
                %20 = slot %r, %17 : buffer<1, fp16[64, 16]@L2>
                %21 = add %17, %1 : int32
                %22 = eq %21, %2 : int1
                %23 = select %22, %0, %21 : int32
                mbarrier_expect %3, %17 {bytes = 2048}
                tensor_load %20, %t, %3, %17, %from, %i
                mbarrier_wait %3, %18, %19
                %24 = slot %r, %18 : buffer<1, fp16[64, 16]@L2>
                %25 = xor %19, %1 : int32
                %26 = add %18, %1 : int32
                %27 = eq %26, %2 : int1
                %28 = select %27, %0, %26 : int32
                %29 = select %27, %25, %19 : int32
                %w = wgmma %24, %m, %acc : pending<fp32[64, 8]@L0>
                %c = finish %u {pending = 1} : fp32[64, 8]@L0
                yield_values %w, %18, %23, %28, %29
              } : pending<fp32[64, 8]@L0>, int32, int32, int32, int32
              %c1 = finish %q1 {pending = 0} : fp32[64, 8]@L0
              return_values
            }
        "]],
    );
}

/// Without a hole in what is loaded, the copies of the next tile begin before the last ones are read.
#[test]
fn nested_loops_carry_on() {
    check(
        "
%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>
warp_roles {warps = [1, 3], registers = [24, 240]} () {
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
        &expect![[r"
              %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
              %3 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %3 {arrivals = 1}
              %4 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %4 {arrivals = 3}
              fence_proxy
              barrier
              warp_roles {warps = [1, 3], registers = [24, 240]} () {
                %5, %6 = for_loop %from, %n, %by, %0, %1 LOOP (%j: int32, %7: int32, %8: int32) {
                  %9, %10 = for_loop %from, %n, %by, %7, %8 LOOP (%i: int32, %11: int32, %12: int32) {
                    mbarrier_wait %4, %11, %12
                    %13 = slot %r, %11 : buffer<1, fp16[64, 16]@L2>
                    %14 = xor %12, %1 : int32
                    %15 = add %11, %1 : int32
                    %16 = eq %15, %2 : int1
                    %17 = select %16, %0, %15 : int32
                    %18 = select %16, %14, %12 : int32
                    mbarrier_expect %3, %11 {bytes = 2048}
                    tensor_load %13, %t, %3, %11, %j, %i
                    yield_values %17, %18
                  } : int32, int32
                  yield_values %9, %10
                } : int32, int32
                yield_values
              } () {
                %19, %20 = while_loop %0, %0 (%21: int32, %22: int32) {
                  yield_values %b
                } (%23: int32, %24: int32) {
                  %25, %26 = for_loop %from, %n, %by, %23, %24 LOOP (%i.1: int32, %27: int32, %28: int32) {
                    mbarrier_wait %3, %27, %28
                    %29 = slot %r, %27 : buffer<1, fp16[64, 16]@L2>
                    %30 = xor %28, %1 : int32
                    %31 = add %27, %1 : int32
                    %32 = eq %31, %2 : int1
                    %33 = select %32, %0, %31 : int32
                    %34 = select %32, %30, %28 : int32
                    %v = local_load %29 {matrix = false} : fp16[64, 16]@L1
                    mbarrier_arrive %4, %27
                    yield_values %33, %34
                  } : int32, int32
                  yield_values %25, %26
                } : int32, int32
                yield_values
              }
              return_values
            }
        "]],
    );
}

#[test]
fn rings_of_one_slot_have_a_phase_alone() {
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
        &expect![[r"
              %r = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
              %2 = alloc {offset = ?} : mbarrier<1>
              mbarrier_init %2 {arrivals = 1}
              fence_proxy
              %3 = for_loop %from, %n, %by, %0 LOOP (%i: int32, %4: int32) {
                barrier
                mbarrier_expect %2, %0 {bytes = 2048}
                tensor_load %r, %t, %2, %0, %from, %i
                mbarrier_wait %2, %0, %4
                %5 = xor %4, %1 : int32
                %v = local_load %r {matrix = false} : fp16[64, 16]@L1
                yield_values %5
              } : int32
              dealloc %r
              return_values
            }
        "]],
    );
}

#[test]
fn what_is_stored_for_products_is_fenced() {
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
%c1 = finish %q {pending = ?} : ACC
release %f
yield_values %c1
} : ACC
dealloc %r",
        &expect![[r"
              %r = alloc {offset = ?} : buffer<1, fp16[64, 16]@L2>
              %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
              %a = for_loop %from, %n, %by, %acc LOOP (%i: int32, %c: fp32[64, 8]@L0) {
                local_store %r, %x
                fence_proxy
                %q = wgmma %r, %m, %c : pending<fp32[64, 8]@L0>
                %c1 = finish %q {pending = 0} : fp32[64, 8]@L0
                yield_values %c1
              } : fp32[64, 8]@L0
              dealloc %r
              return_values
            }
        "]],
    );
}

/// A producer of one warp; three that read.
fn roles(fill: &str, read: &str) -> String {
    format!(
        "
%r = alloc {{offset = ?}} : ring<2, fp16[64, 16]@L2>
%m = alloc {{offset = ?}} : SMALL
warp_roles {{warps = [1, 3], registers = [24, 240]}} () {{
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
fn tensor_copies_of_a_role() {
    check(
        &roles("tensor_fill %e, %t, %from, %i", LOAD),
        &expect![[r"
          %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
          %3 = alloc {offset = ?} : mbarrier<2>
          mbarrier_init %3 {arrivals = 1}
          %4 = alloc {offset = ?} : mbarrier<2>
          mbarrier_init %4 {arrivals = 3}
          fence_proxy
          %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
          barrier
          warp_roles {warps = [1, 3], registers = [24, 240]} () {
            %mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
            %5, %6 = for_loop %from, %n, %by, %0, %1 LOOP (%i: int32, %7: int32, %8: int32) {
              mbarrier_wait %4, %7, %8
              %9 = slot %r, %7 : buffer<1, fp16[64, 16]@L2>
              %10 = xor %8, %1 : int32
              %11 = add %7, %1 : int32
              %12 = eq %11, %2 : int1
              %13 = select %12, %0, %11 : int32
              %14 = select %12, %10, %8 : int32
              mbarrier_expect %3, %7 {bytes = 2048}
              tensor_load %9, %t, %3, %7, %from, %i
              yield_values %13, %14
            } : int32, int32
            yield_values
          } () {
            %15, %16 = for_loop %from, %n, %by, %0, %0 LOOP (%i.1: int32, %17: int32, %18: int32) {
              mbarrier_wait %3, %17, %18
              %19 = slot %r, %17 : buffer<1, fp16[64, 16]@L2>
              %20 = xor %18, %1 : int32
              %21 = add %17, %1 : int32
              %22 = eq %21, %2 : int1
              %23 = select %22, %0, %21 : int32
              %24 = select %22, %20, %18 : int32
              %v = local_load %19 {matrix = false} : fp16[64, 16]@L1
              mbarrier_arrive %4, %17
              yield_values %23, %24
            } : int32, int32
            yield_values
          }
          return_values
        }
    "]],
    );
}

#[test]
fn copies_of_a_role() {
    check(
        &roles("copy_async %e, %mine {cache = \"\", axis = 1, width = 2}", LOAD),
        &expect![[r"
              %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
              %3 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %3 {arrivals = 32}
              %4 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %4 {arrivals = 3}
              fence_proxy
              %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
              barrier
              warp_roles {warps = [1, 3], registers = [24, 240]} () {
                %mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
                %5, %6 = for_loop %from, %n, %by, %0, %1 LOOP (%i: int32, %7: int32, %8: int32) {
                  mbarrier_wait %4, %7, %8
                  %9 = slot %r, %7 : buffer<1, fp16[64, 16]@L2>
                  %10 = xor %8, %1 : int32
                  %11 = add %7, %1 : int32
                  %12 = eq %11, %2 : int1
                  %13 = select %12, %0, %11 : int32
                  %14 = select %12, %10, %8 : int32
                  copy_async %9, %mine
                  mbarrier_arrive_copies %3, %7
                  yield_values %13, %14
                } : int32, int32
                yield_values
              } () {
                %15, %16 = for_loop %from, %n, %by, %0, %0 LOOP (%i.1: int32, %17: int32, %18: int32) {
                  mbarrier_wait %3, %17, %18
                  %19 = slot %r, %17 : buffer<1, fp16[64, 16]@L2>
                  %20 = xor %18, %1 : int32
                  %21 = add %17, %1 : int32
                  %22 = eq %21, %2 : int1
                  %23 = select %22, %0, %21 : int32
                  %24 = select %22, %20, %18 : int32
                  %v = local_load %19 {matrix = false} : fp16[64, 16]@L1
                  mbarrier_arrive %4, %17
                  yield_values %23, %24
                } : int32, int32
                yield_values
              }
              return_values
            }
        "]],
    );
}

#[test]
fn copies_of_a_role_for_the_asynchronous_proxy() {
    let read = "tensor_store %f, %t, %from, %i\ntensor_store_wait {pending = 0}";
    check(
        &roles("copy_async %e, %mine {cache = \"\", axis = 1, width = 2}", read),
        &expect![[r"
              %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
              %3 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %3 {arrivals = 1}
              %4 = alloc {offset = ?} : mbarrier<2>
              mbarrier_init %4 {arrivals = 3}
              fence_proxy
              %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
              barrier
              warp_roles {warps = [1, 3], registers = [24, 240]} () {
                %mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
                %5, %6 = for_loop %from, %n, %by, %0, %1 LOOP (%i: int32, %7: int32, %8: int32) {
                  mbarrier_wait %4, %7, %8
                  %9 = slot %r, %7 : buffer<1, fp16[64, 16]@L2>
                  %10 = xor %8, %1 : int32
                  %11 = add %7, %1 : int32
                  %12 = eq %11, %2 : int1
                  %13 = select %12, %0, %11 : int32
                  %14 = select %12, %10, %8 : int32
                  copy_async %9, %mine
                  commit_group
                  wait_group {pending = 0}
                  fence_proxy
                  mbarrier_arrive %3, %7
                  yield_values %13, %14
                } : int32, int32
                yield_values
              } () {
                %15, %16 = for_loop %from, %n, %by, %0, %0 LOOP (%i.1: int32, %17: int32, %18: int32) {
                  mbarrier_wait %3, %17, %18
                  %19 = slot %r, %17 : buffer<1, fp16[64, 16]@L2>
                  %20 = xor %18, %1 : int32
                  %21 = add %17, %1 : int32
                  %22 = eq %21, %2 : int1
                  %23 = select %22, %0, %21 : int32
                  %24 = select %22, %20, %18 : int32
                  tensor_store %19, %t, %from, %i.1
                  tensor_store_wait {pending = 0}
                  mbarrier_arrive %4, %17
                  yield_values %23, %24
                } : int32, int32
                yield_values
              }
              return_values
            }
        "]],
    );
}

#[test]
fn stores_of_a_role() {
    let fill = "%y = load %mine {cache = \"\", eviction = \"\", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1\n\
                local_store %e, %y";
    check(
        &roles(fill, LOAD),
        &expect![[r#"
          %r = alloc {offset = ?} : buffer<2, fp16[64, 16]@L2>
          %3 = alloc {offset = ?} : mbarrier<2>
          mbarrier_init %3 {arrivals = 1}
          %4 = alloc {offset = ?} : mbarrier<2>
          mbarrier_init %4 {arrivals = 3}
          fence_proxy
          %m = alloc {offset = ?} : buffer<1, fp16[16, 8]@L3>
          barrier
          warp_roles {warps = [1, 3], registers = [24, 240]} () {
            %mine = splat %p {shape = [64, 16]} : *fp16[64, 16]@L1
            %5, %6 = for_loop %from, %n, %by, %0, %1 LOOP (%i: int32, %7: int32, %8: int32) {
              mbarrier_wait %4, %7, %8
              %9 = slot %r, %7 : buffer<1, fp16[64, 16]@L2>
              %10 = xor %8, %1 : int32
              %11 = add %7, %1 : int32
              %12 = eq %11, %2 : int1
              %13 = select %12, %0, %11 : int32
              %14 = select %12, %10, %8 : int32
              %y = load %mine {cache = "", eviction = "", volatile = false, axis = 1, width = 2} : fp16[64, 16]@L1
              local_store %9, %y
              mbarrier_arrive %3, %7
              yield_values %13, %14
            } : int32, int32
            yield_values
          } () {
            %15, %16 = for_loop %from, %n, %by, %0, %0 LOOP (%i.1: int32, %17: int32, %18: int32) {
              mbarrier_wait %3, %17, %18
              %19 = slot %r, %17 : buffer<1, fp16[64, 16]@L2>
              %20 = xor %18, %1 : int32
              %21 = add %17, %1 : int32
              %22 = eq %21, %2 : int1
              %23 = select %22, %0, %21 : int32
              %24 = select %22, %20, %18 : int32
              %v = local_load %19 {matrix = false} : fp16[64, 16]@L1
              mbarrier_arrive %4, %17
              yield_values %23, %24
            } : int32, int32
            yield_values
          }
          return_values
        }
    "#]],
    );
}

#[test]
fn what_no_row_is_for_is_refused() {
    let refused = |body: &str, expected: &str| {
        assert_eq!(after(body, "rings"), format!("the ring %r cannot be carried out: {expected}"));
    };
    let ring = "%r = alloc {offset = ?} : ring<2, fp16[64, 16]@L2>\n";
    refused(
        &format!("{ring}%e = acquire %r : EMPTY\nlocal_store %e, %x\ncopy_async %e, %ptr!\npublish %e"),
        "its slots are filled by stores and by copies, or by copies of two kinds",
    );
    refused(
        &format!(
            "{ring}%e = acquire %r : EMPTY\ntensor_fill %e, %t, %from\ntensor_fill %e, %t, %by\npublish %e"
        ),
        "each publish needs one tensor_fill of its slot in the same block",
    );
    let both = roles("tensor_fill %e, %t, %from, %i", LOAD);
    refused(
        &both.replace(
            "warp_roles",
            "%e9 = acquire %r : EMPTY\ntensor_fill %e9, %t, %from\npublish %e9\nwarp_roles",
        ),
        "its slots are filled by several roles, or by all warps and a role",
    );
    let looped = both.replace("warp_roles", "for_loop %from, %n, %by LOOP! (%j: int32) {\nwarp_roles");
    refused(
        &looped.replace("\ndealloc %r", "\nyield_values\n}\ndealloc %r"),
        "its roles do not stand in the block of its alloc: its phases would begin again",
    );
    let inside = format!(
        "if_else %b () {{\n{ring}%e = acquire %r : EMPTY\ntensor_fill %e, %t, %from\npublish %e\nyield_values\n}} () {{\n\
         yield_values\n}}"
    );
    refused(&inside, "it needs an mbarrier, and its alloc stands in a region: those are made once");
}
