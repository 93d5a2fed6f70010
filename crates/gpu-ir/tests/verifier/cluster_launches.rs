//! Tests of requests for clusters that have not begun.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::{parse_dialect, print};

/// L0 is the memory of a response, L1 memory that is too small.
const HEAD: &str = "\
gpu sm_100a, 4 warps, 64 bytes of shared memory, explicit
L0 = [2] offset (1)
L1 = [1]
kernel func0 @k(%yes: int1, %pointer: *int32) {
  %0 = constant {value = 0:int32} : int32
  %1 = constant {value = 1:int32} : int32
  %r = alloc {offset = 0} : buffer<1, int64[2]@L0>
  %small = alloc {offset = 24} : buffer<1, int64[1]@L1>
  %bar = alloc {offset = 16} : mbarrier<1>
  mbarrier_init %bar, %0 {arrivals = 1}
  fence_proxy
  barrier
";

const BODY: &str = "\
  clc_try_cancel %r, %bar, %0 {multicast = false}
  mbarrier_expect %bar, %0 {bytes = 16}
  mbarrier_wait %bar, %0, %0
  %a, %b, %c, %d = clc_load_result %r {blocks = 1} : int1, int32, int32, int32
  fence_proxy
  barrier
  clc_try_cancel %r, %bar, %0 {multicast = false}
  mbarrier_expect %bar, %0 {bytes = 16}
  mbarrier_wait %bar, %0, %1
";

fn check(text: &str) -> Result<String, String> {
    let module = parse_dialect::<Gpu>(text).map_err(|error| error.message)?;
    let printed = print(&module, false);
    let again = parse_dialect::<Gpu>(&printed).map_err(|error| error.message)?;
    assert_eq!(print(&again, false), printed);
    Ok(printed)
}

fn text(body: &str) -> String {
    format!("{HEAD}{body}  return_values\n}}\n")
}

/// Replaces the first `from` of the body by `to`, and returns the message of the verifier.
#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(BODY.contains(from), "{from}");
    let error = check(&text(&BODY.replacen(from, to, 1))).expect_err("it is wrong");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_response_is_read_after_the_wait() {
    check(&text(BODY)).unwrap();
    refused(
        "  mbarrier_wait %bar, %0, %0\n",
        "",
        "clc_load_result uses %r while it is being copied to: add an mbarrier_wait for its barrier",
    );
    let load = "  %a, %b, %c, %d = clc_load_result %r {blocks = 1} : int1, int32, int32, int32\n";
    refused("  mbarrier_expect", &format!("{load}  mbarrier_expect"), "while it is being copied to");
}

#[test]
fn a_response_is_overwritten_after_all_threads_have_read_it() {
    refused(
        "  fence_proxy\n  barrier\n",
        "",
        "clc_try_cancel overwrites %r, which other threads may still read: add a barrier",
    );
    let request = "  clc_try_cancel %r, %bar, %0 {multicast = false}\n";
    refused(request, &request.repeat(2), "clc_try_cancel uses %r while it is being copied to");
}

#[test]
fn the_phase_expects_the_bytes_of_the_response() {
    refused("bytes = 16", "bytes = 8", "%bar that expects 8 bytes, but clc_try_cancel signals 16");
    refused("bytes = 16", "bytes = 32", "%bar that expects 32 bytes, but clc_try_cancel signals 16");
    let expects = "  mbarrier_expect %bar, %0 {bytes = 16}\n";
    let arrives = "  mbarrier_arrive_times %bar, %0 {arrivals = 1}\n";
    refused(expects, arrives, "that expects 0 bytes, but clc_try_cancel signals 16");
    let none = check(&text(&BODY.replace(expects, arrives))).unwrap_err();
    assert!(none.contains("clc_try_cancel signals 16 bytes at %bar, whose phases expect none"), "{none}");
    // Paths that expect different numbers of bytes are not counted.
    let both = "  if %yes () {\n    mbarrier_expect %bar, %0 {bytes = 8}\n    yield_values\n  } () {\n    mbarrier_expect %bar, %0 \
                {bytes = 16}\n    yield_values\n  }\n";
    check(&text(&BODY.replacen(expects, both, 1))).unwrap();
}

#[test]
fn a_response_has_16_bytes_and_a_barrier() {
    refused("clc_try_cancel %r", "clc_try_cancel %small", "clc_try_cancel needs a buffer of 16 bytes");
    refused("clc_load_result %r", "clc_load_result %small", "clc_load_result needs a buffer of 16 bytes");
    refused("%r, %bar, %0 {m", "%r, %r, %0 {m", "");
    refused("int1, int32, int32, int32", "int1, int32, int32, int64", "the results of clc_load_result");
    refused("multicast = false", "multicast = true", "clc_try_cancel in a kernel without clusters");
    refused("blocks = 1", "blocks = 0", "divides an index by 0");
    let misplaced =
        text(BODY).replace("{offset = 0} : buffer<1, int64[2]", "{offset = 8} : buffer<1, int64[2]");
    let error = check(&misplaced).unwrap_err();
    assert!(error.contains("clc_try_cancel needs %r at a multiple of 16 bytes"), "{error}");
}

#[test]
fn a_barrier_is_initialized_for_the_asynchronous_proxy() {
    let unfenced = text(BODY).replacen("  fence_proxy\n  barrier\n", "  barrier\n", 1);
    let error = check(&unfenced).unwrap_err();
    assert!(error.contains("clc_try_cancel arrives at %bar by the asynchronous proxy"), "{error}");
}
