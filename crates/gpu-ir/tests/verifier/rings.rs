//! The verifier refuses ops that wait forever for a slot.

use super::{accepted, refused_with};

/// A ring of two slots; each iteration copies for the next iteration.
const AHEAD: &str = "
%r = alloc {offset = ?} : RING
%e = acquire %r : EMPTY
COPY %e, %ptr!
publish %e
for_loop %c0, %n, %c1 LOOP! (%i: int32) {
%e1 = acquire %r : EMPTY
COPY %e1, %ptr!
publish %e1
%f = take %r : FULL
%v = local_load %f READ!
release %f
yield_values
}
%g = take %r : FULL
release %g";

#[test]
fn rings_have_slots_enough() {
    accepted(AHEAD);
    refused_with(
        AHEAD,
        "%e1 = acquire",
        "%e2 = acquire %r : EMPTY\nCOPY %e2, %ptr!\npublish %e2\n%e1 = acquire",
        "acquire waits forever: all 2 slots of %r are in use, release one first",
    );
    // Every iteration holds one more slot.
    refused_with(
        AHEAD,
        "%f = take %r : FULL\n%v = local_load %f READ!\nrelease %f\n",
        "",
        "acquire waits forever: all 2 slots of %r are in use, release one first",
    );
    refused_with(
        AHEAD,
        "%e1 = acquire %r : EMPTY\nCOPY %e1, %ptr!\npublish %e1\n",
        "",
        "take waits forever: no slot of %r is full, and no other partition publishes one",
    );
    accepted(&AHEAD.replace(
        "%e1 = acquire %r : EMPTY\nCOPY %e1, %ptr!\npublish %e1\n",
        "if_else %b () {\n%e1 = acquire %r : EMPTY\nCOPY %e1, %ptr!\npublish %e1\nyield_values\n} () {\nyield_values\n}\n",
    ));
}
