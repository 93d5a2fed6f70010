//! Tests the texts of layouts, transfers and plans.

use tilewright_layout::{Input, Layout, Mma, blocked, coalesced, convert};

use crate::random::TRIP_COST;

#[test]
fn a_line_and_a_line_for_each_input() {
    let layout = blocked(&[8, 8], &[1, 2], &[8, 4], &[2, 1], &[1, 0]);
    assert_eq!(layout.to_string(), "[8,8] register (0,1) lane (0,2) (0,4) (1,0) (2,0) (4,0) warp (0,0)");
    let lines = "[8,8]\n  register: 1 -> (0,1)\n  lane: 1 -> (0,2), 2 -> (0,4), 4 -> (1,0), 8 -> (2,0), 16 -> (4,0)\n  warp: 1 -> (0,0)";
    assert_eq!(format!("{layout:#}"), lines);
    assert_eq!(Layout::unit(2).to_string(), "[1,1]");
    assert_eq!(Layout::unit(0).to_string(), "[]");
}

#[test]
fn transfers_name_both_spaces() {
    let layout = blocked(&[8], &[2], &[4], &[1], &[0]);
    let memory = Layout::strided(&[8], &[0]);
    assert_eq!(
        layout.offsets_in(&memory).to_string(),
        "{register,lane} -> {offset} register (1) lane (2) (4)"
    );
}

#[test]
fn plans_are_described() {
    let rows = blocked(&[64, 64], &[1, 8], &[4, 8], &[4, 1], &[1, 0]);
    let columns = blocked(&[64, 64], &[8, 1], &[8, 4], &[1, 4], &[0, 1]);
    let doubled = rows.product(&Layout::replicated(2, Input::Register, 2));
    let text = |to| convert(&rows, to, 16, TRIP_COST).unwrap().to_string();
    assert_eq!(text(&rows), "nothing");
    assert_eq!(text(&doubled), "registers renamed");
    assert_eq!(text(&columns), "through 8192 bytes: 4 stores of 8, 32 loads of 1 elements");
    let (pairs, singles) = (coalesced(&[64], &[0], 2, 32, 1), coalesced(&[64], &[0], 1, 32, 1));
    let plan = convert(&pairs, &singles, 32, TRIP_COST).unwrap();
    assert_eq!(plan.to_string(), "2 rounds of shuffles, 2 selects");
}

#[test]
fn tables_show_the_holder_of_each_element() {
    let layout = blocked(&[2, 4], &[1, 2], &[2, 1], &[1, 2], &[1, 0]);
    assert_eq!(
        layout.table(),
        "w0 l0 r0  w0 l0 r1  w1 l0 r0  w1 l0 r1\nw0 l1 r0  w0 l1 r1  w1 l1 r0  w1 l1 r1\n"
    );
    let copies = Layout::replicated(1, Input::Lane, 2).product(&Layout::identity(1, 0, Input::Register, 2));
    assert_eq!(copies.table(), "l0 r0|l1 r0  l0 r1|l1 r1\n");
    assert_eq!(Layout::strided(&[2, 2, 2], &[2, 1, 0]).table(), "@0  @1\n@2  @3\n\n@4  @5\n@6  @7\n");
    assert_eq!(Mma::new(8, 8, 4, 64).a().table().lines().next(), Some("l0   l1   l2   l3"));
}
