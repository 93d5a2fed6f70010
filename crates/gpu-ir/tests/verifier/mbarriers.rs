//! Tests the lifetimes of `mbarrier`s, and their phases after branches.

use super::{accepted, refused_with};

#[test]
fn mbarriers_end_and_begin_again() {
    let again = "
%w = alloc {offset = ?} : mbarrier<2>
mbarrier_init %w, %c0 {arrivals = 1}
mbarrier_arrive_times %w, %c0 {arrivals = 1}
mbarrier_wait %w, %c0, %c0
mbarrier_invalidate %w, %c0
mbarrier_init %w, %c0 {arrivals = 2}
mbarrier_arrive_times %w, %c0 {arrivals = 2}
mbarrier_wait %w, %c0, %c0";
    accepted(again);
    refused_with(
        again,
        "mbarrier_invalidate %w, %c0\n",
        "",
        "mbarrier_init initializes %w twice: add an mbarrier_invalidate before it",
    );
    refused_with(
        again,
        "mbarrier_init %w, %c0 {arrivals = 2}\n",
        "",
        "mbarrier_arrive_times uses %w after mbarrier_invalidate",
    );
    refused_with(
        again,
        "mbarrier_init %w, %c0 {arrivals = 2}\n",
        "mbarrier_invalidate %w, %c0\n",
        "mbarrier_invalidate ends %w twice",
    );
    // The other slot's phases continue.
    accepted(&again.replace("init %w, %c0 {arrivals = 2}", "init %w, %c1 {arrivals = 2}").replace(
        "mbarrier_arrive_times %w, %c0 {arrivals = 2}\nmbarrier_wait %w, %c0, %c0",
        "mbarrier_arrive_times %w, %c1 {arrivals = 2}\nmbarrier_wait %w, %c1, %c0",
    ));
    // A branch on an equal condition continues with its region's phases.
    let branch = "
%w = alloc {offset = ?} : mbarrier<1>
mbarrier_init %w {arrivals = 1}
%one = eq %n, %c2 : int1
%other = eq %n, %c2 : int1
if_else %one () {
mbarrier_arrive_times %w, %c0 {arrivals = 1}
yield_values
} () {
yield_values
}
if_else %other () {
mbarrier_wait %w, %c0, %c0
yield_values
} () {
yield_values
}";
    accepted(branch);
    let wrong = "mbarrier_wait waits for a phase of parity 0 of %w, which may be the current phase, with 0 of 1 \
                 arrivals: nothing completes it";
    refused_with(branch, "%other = eq %n, %c2", "%other = eq %n, %c3", wrong);
    refused_with(
        branch,
        "yield_values\n} () {\nyield_values\n}",
        "yield_values\n} () {\nmbarrier_wait %w, %c0, %c0\nyield_values\n}",
        wrong,
    );
    refused_with(
        branch,
        "if_else %other () {\nmbarrier_wait %w, %c0, %c0\nyield_values\n} () {\nyield_values\n}",
        "mbarrier_wait %w, %c0, %c0",
        wrong,
    );
}
