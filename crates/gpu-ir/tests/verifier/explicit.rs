//! Tests of programs that state their waits.

use tilewright_gpu_ir::Gpu;
use tilewright_ir::parse_dialect;

use super::{COPIED, text};

/// An explicit program is refused only for what both paths do. Conditions of a copy and its wait
/// may depend on each other.
#[test]
fn conditional_waits_of_explicit_programs() {
    let check = |body: &str| {
        let text = text(body).replacen(" memory, synchronized\n", " memory, synchronized, explicit\n", 1);
        parse_dialect::<Gpu>(&text).map(|_| ()).map_err(|error| error.message)
    };
    let body = &COPIED.replacen("commit_group\nCOPY %m, %ptr!", "commit_group", 1);
    let in_branch = |op: &str| format!("if_else %b () {{\n{op}\nyield_values\n}} () {{\nyield_values\n}}");
    let wait = "wait_group {pending = 0}";
    assert_eq!(check(body), Ok(()));
    assert_eq!(check(&body.replace(wait, &in_branch(wait))), Ok(()));
    assert!(check(&body.replace(wait, "")).is_err());
    // The previous iteration makes a second copy to the slot.
    let in_loop = |ops: &str| format!("for_loop %c0, %n, %c1 LOOP! (%i: int32) {{\n{ops}\nyield_values\n}}");
    let copies = |copy: &str| body.replacen("COPY %m, %ptr!\ncommit_group", &in_loop(copy), 1);
    assert!(check(&copies("COPY %m, %ptr!\ncommit_group")).is_err());
    assert_eq!(check(&copies(&in_branch("COPY %m, %ptr!\ncommit_group"))), Ok(()));
}
