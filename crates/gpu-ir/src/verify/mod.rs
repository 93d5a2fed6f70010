//! What no single instruction shows: that slots in hand are used up, that memory is there and full when it is read, that
//! nothing overwrites what is still being read, and that nobody waits for ever.
//!
//! The rules are one file each; most follow a state along the paths of a function ([`dataflow`](crate::analysis::dataflow)), slot by slot ([`slots`](crate::analysis::slots)).
//!
//! | rule | what it proves | what it does not |
//! |---|---|---|
//! | [`tokens`] | a slot in hand or a product under way is used up exactly once on every path, by an op that takes it | |
//! | [`lifetimes`] | no memory is used after its `dealloc`, which stands in the block of its `alloc` | |
//! | [`alignment`] | memory is placed, and slots are apart, by the alignment that their uses need | |
//! | [`copies`] | a slot is read, written again or given up only after the copies into it were waited for, and with a barrier where the module is synchronized; the asynchronous proxy reads what others wrote only behind a fence | copies of one role that another one reads: they are ordered by `mbarrier`s, of which only the parities are looked at; slots whose names share nothing count as different ones |
//! | [`products`] | nothing writes a slot that a product under way may read, `finish` waits for its product | the same |
//! | [`reads`] | a slot is overwritten only behind a wait after its last read: by a tensor copy always, by others where the module is synchronized | the same; buffers that share a place |
//! | [`mbarriers`] | barriers are made ready before use, something arrives where something waits, and of barriers that one role uses alone: no more arrivals than fit, no wait for a phase that cannot end as long as its parity is a constant | parities that are computed; barriers between roles beyond the number of a single arrival |
//! | [`roles`] | roles do not wait for the block, named barriers have the threads of their roles, tiles stay in their role | whether all roles of a named barrier come to it as often |
//! | [`rings`] | on the steady state, no more slots are held than there are and no more are taken than were published | rings between roles beyond what one role holds; branches count as if the better one were taken |
//! | [`schedule`] | all ops of a scheduled loop have a stage, and none runs before what it uses | |

mod copies;
mod lifetimes;
mod mbarriers;
mod products;
mod reads;
mod rings;
mod roles;
mod schedule;
mod text;
mod tokens;

use crate::analysis::dataflow::Check;
use crate::analysis::slots::Names;
use crate::{Function, GpuOp, Header, Op, alignment};

/// Checks a function of which every instruction is well-formed.
pub fn function(header: &Header, function: &Function) -> Check {
    if !function.schedule.is_empty() {
        schedule::check(function)?;
    }
    let mut kinds = Kinds::default();
    function.walk(function.entry, &mut |inst| kinds.note(&function.insts[inst].op));
    if !kinds.memory && !kinds.others {
        return Ok(());
    }
    let names = Names::new(function, header.synchronized);
    tokens::check(&names)?;
    lifetimes::check(&names)?;
    alignment::check(&header.layouts, &names)?;
    if kinds.others {
        roles::check(header, &names)?;
    }
    copies::check(&names)?;
    products::check(&names)?;
    reads::check(&names)?;
    if kinds.others {
        mbarriers::check(header, &names)?;
        rings::check(&names)?;
    }
    Ok(())
}

/// Which rules have something to say at all: most kernels have memory alone.
#[derive(Default)]
struct Kinds {
    memory: bool,
    others: bool,
}

impl Kinds {
    fn note(&mut self, op: &Op) {
        match op {
            Op::Gpu(GpuOp::Alloc { .. }) => self.memory = true,
            Op::Gpu(
                GpuOp::CopyAsync { .. }
                | GpuOp::CommitGroup {}
                | GpuOp::WaitGroup { .. }
                | GpuOp::MbarrierInit { .. }
                | GpuOp::MbarrierExpect { .. }
                | GpuOp::MbarrierArrive {}
                | GpuOp::MbarrierArriveCopies {}
                | GpuOp::MbarrierWait {}
                | GpuOp::TensorLoad {}
                | GpuOp::TensorStore {}
                | GpuOp::TensorReduce { .. }
                | GpuOp::TensorStoreWait { .. }
                | GpuOp::Wgmma { .. }
                | GpuOp::Finish { .. }
                | GpuOp::Settle { .. }
                | GpuOp::FenceProxy {}
                | GpuOp::FenceGlobal {}
                | GpuOp::Share {}
                | GpuOp::PairArrive {}
                | GpuOp::PairWait {}
                | GpuOp::NamedBarrier { .. }
                | GpuOp::WarpRoles { .. }
                | GpuOp::Acquire {}
                | GpuOp::TensorFill {}
                | GpuOp::Publish {}
                | GpuOp::Take {}
                | GpuOp::Release {},
            ) => self.others = true,
            Op::Tile(_)
            | Op::Gpu(
                GpuOp::ConvertLayout {}
                | GpuOp::Elementwise { .. }
                | GpuOp::Rescale {}
                | GpuOp::Load { .. }
                | GpuOp::Store { .. }
                | GpuOp::AtomicRmw { .. }
                | GpuOp::AtomicCas { .. }
                | GpuOp::AtomicLoad { .. }
                | GpuOp::AtomicStore { .. }
                | GpuOp::AtomicPoll { .. }
                | GpuOp::Reduce { .. }
                | GpuOp::Scan { .. }
                | GpuOp::ScanCarry { .. }
                | GpuOp::MmaSync { .. }
                | GpuOp::FmaDot { .. }
                | GpuOp::Dealloc {}
                | GpuOp::Slot {}
                | GpuOp::LocalStore {}
                | GpuOp::LocalCount {}
                | GpuOp::LocalLoad { .. }
                | GpuOp::TensorBox {}
                | GpuOp::MakeTensorMap { .. },
            ) => {}
        }
    }
}
