//! Inserts cluster barriers that a program does not state.
//!
//! A cluster barrier follows each sequence of initializations, because blocks arrive at `mbarrier`s
//! of other blocks. Another one precedes the end, because other blocks may access a block's shared
//! memory, and the dots of a pair its tensor memory, until then.

use tilewright_ir::{Block, Cursor, DeviceFn, Function, Inst, Op, OpFamily};

/// Inserts the barriers, if blocks access each other's shared memory.
pub(super) fn insert(function: &mut Function) {
    let (mut signals, mut reads) = (false, false);
    function.walk(function.entry, &mut |inst| {
        if let Op::Device { function } = &function.insts[inst].op {
            signals |= matches!(
                function,
                DeviceFn::RemoteArrive { .. }
                    | DeviceFn::MulticastLoad { .. }
                    | DeviceFn::ClcTryCancel { .. }
                    | DeviceFn::WindowLoad { multicast: true, .. }
            );
            signals |= matches!(function, DeviceFn::Allocate { tiles } if tiles.layout.is_of_pair());
            reads |= matches!(function, DeviceFn::GatherBlocks { .. });
        }
    });
    let entry = function.entry;
    if signals {
        after_initializations(function, entry);
    }
    if signals || reads {
        let end = function.terminator(entry).expect("the entry has an end");
        barrier_before(function, entry, end);
    }
}

/// Inserts a barrier after each sequence of initializations. Workers do not participate in cluster
/// barriers.
fn after_initializations(function: &mut Function, block: Block) {
    let mut is_pending = false;
    for inst in function.blocks[block].insts.clone() {
        let data = &function.insts[inst];
        if let Op::Device { function: DeviceFn::MbarrierInit { .. } } = data.op {
            is_pending = true;
        } else if is_pending && !is_passive(function, inst) {
            barrier_before(function, block, inst);
            is_pending = false;
        }
        if !matches!(function.insts[inst].op, Op::StartWorkers { .. }) {
            for region in function.insts[inst].regions.clone() {
                after_initializations(function, region);
            }
        }
    }
}

/// Returns whether an instruction neither accesses memory nor waits.
fn is_passive(function: &Function, inst: Inst) -> bool {
    let op = &function.insts[inst].op;
    match op {
        Op::Device { function } => {
            matches!(function, DeviceFn::Allocate { .. } | DeviceFn::View { .. } | DeviceFn::KeepAlive {})
        }
        // tidy: wildcard because other ops are passive if they are pure
        _ => op.is_pure() && op.family() != OpFamily::Terminator,
    }
}

fn barrier_before(function: &mut Function, block: Block, inst: Inst) {
    let mut cursor = Cursor::before(function, block, inst);
    for function in [DeviceFn::ClusterArrive {}, DeviceFn::ClusterWait {}] {
        cursor.emit(Op::Device { function }, &[], []);
    }
}
