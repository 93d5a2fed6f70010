//! Where the threads of a block wait for each other: before an access to memory that another one may still be under way to, in
//! another warp, where one of the two is a store.

use cranelift_entity::SecondaryMap;
use tilewright_ir::Inst;

use crate::events::{events, global_event, walk};
use crate::memory::GlobalAccesses;
use crate::plan::Plan;

/// Decides before which instructions the threads wait.
pub fn waits(plan: &Plan) -> SecondaryMap<Inst, bool> {
    let function = plan.module.kernel();
    let range = |buffer: Inst| {
        let exchange = plan.exchanges[buffer].as_ref().expect("a buffer belongs to an exchange");
        exchange.offset()..exchange.offset() + exchange.shared_bytes()
    };
    let overlap = |a: Inst, b: Inst| {
        let (a, b) = (range(a), range(b));
        a.start < b.end && b.start < a.end
    };
    let global = GlobalAccesses::new(plan);
    let is_global = |inst: Inst| plan.exchanges[inst].is_none();
    let mut waits = SecondaryMap::new();
    walk(function, &mut |inst, open| {
        let mut events = events(function, &plan.exchanges, inst);
        events.extend(global_event(function, inst));
        waits[inst] = open.needs_wait(&events, |a, b| match (is_global(a), is_global(b)) {
            (true, true) => global.meet(a, b, open.stale.contains(&b)),
            (false, false) => overlap(a, b),
            (true, false) | (false, true) => false,
        });
        if waits[inst] {
            open.close();
        }
        open.carry_out(&events);
    });
    waits
}
