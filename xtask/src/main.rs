//! Checks of the project's own invariants.
fn main() {}
