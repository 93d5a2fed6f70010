//! Slots and barriers keep their identity after a loop.

use super::{accepted, refused};

/// A tensor copy in flight during two loops; the inner one stores to other slots.
const AROUND: &str = "
%m = alloc {offset = ?} : ONE
%w = alloc {offset = ?} : mbarrier<1>
mbarrier_init %w {arrivals = 1}
fence_proxy
mbarrier_expect %w, %c0 {bytes = 2048}
tensor_load %m, %t, %w, %c0, %c0, %c0
%r = alloc {offset = ?} : THREE
%o = for_loop %c0, %n, %c1, %c0 LOOP! (%i: int32, %at: int32) {
%p1 = for_loop %c0, %n, %c1, %at LOOP! (%j: int32, %to: int32) {
%s = slot %r, %to : ONE
%x = LOAD!
local_store %s, %x
%to1 = add %to, %c1 : int32
%end = eq %to1, %c3 : int1
%to2 = select %end, %c0, %to1 : int32
yield_values %to2
} : int32
yield_values %p1
} : int32
AFTER%v = local_load %m READ!
dealloc %r
dealloc %m";

#[test]
fn the_only_slot_is_called_the_same_everywhere() {
    // The barrier has the index 0. A counter from 0, which goes out of scope, must not become its
    // name.
    accepted(&AROUND.replace("AFTER", "mbarrier_wait %w, %c0, %c0\n"));
    refused(
        &AROUND.replace("AFTER", ""),
        "local_load uses %m while it is being copied to: add an mbarrier_wait for its barrier",
    );
}
