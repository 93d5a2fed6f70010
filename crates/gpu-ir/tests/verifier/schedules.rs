//! The verifier refuses schedules in which an op precedes its dependences.

use super::{accepted, refused_with};

/// A loop whose copy is one stage before the `take` of the copied slot.
const SCHEDULED: &str = "
%r = alloc {offset = ?} : RING
%sum = for_loop %c0, %n, %c1, %c0 LOOP! (%i: int32, %s: int32) {
%e = acquire %r [0, 1] : EMPTY
COPY %e, %ptr {cache = \"\", axis = 1, width = 2} [0, 1]
publish %e [0, 1]
%f = take %r [1, 0] : FULL
%v = local_load %f {matrix = false} [1, 0] : fp16[64, 16]@L1
release %f [1, 0]
%t = add %s, %c1 [1, 2] : int32
yield_values %t
} : int32
dealloc %r";

#[test]
fn schedules_run_nothing_before_what_it_uses() {
    accepted(SCHEDULED);
    let check = |from, to, expected| refused_with(SCHEDULED, from, to, expected);
    check(
        "%v = local_load %f {matrix = false} [1, 0]",
        "%v = local_load %f {matrix = false} [0, 3]",
        "local_load of stage 0 runs before take of stage 1, which it uses",
    );
    check(
        "take %r [1, 0]",
        "take %r [1, 3]",
        "local_load of stage 1 runs before take of stage 1, which it uses",
    );
    check("publish %e [0, 1]", "publish %e", "publish has no stage, and other ops of its loop have one");
    check(
        "%r = alloc {offset = ?} : RING",
        "%r = alloc {offset = ?} [0, 0] : RING",
        "an op that has a stage is not directly in the body of a for_loop",
    );
    // The previous stage may use a computed carried value.
    accepted(&SCHEDULED.replace("release %f [1, 0]", "%w = add %s, %c1 [0, 3] : int32\nrelease %f [1, 0]"));
    check(
        "release %f [1, 0]",
        "%w = add %s, %c1 [0, 0] : int32\nrelease %f [1, 0]",
        "add of stage 0 runs before add of stage 1, which it uses",
    );
}
