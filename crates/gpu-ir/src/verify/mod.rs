//! Rules of the verifier that involve several instructions.
//!
//! They prove five properties:
//! - Every path releases its slots.
//! - Memory is allocated when it is accessed.
//! - Copies have arrived before their data is read.
//! - Nothing overwrites a slot that is still read.
//! - No warp waits forever.
//!
//! The table's last column lists the exceptions. Each rule has a file. Most rules follow a state
//! along the paths ([`dataflow`](crate::analysis::dataflow)), slot by slot
//! ([`slots`](crate::analysis::slots)). In a program that states its waits, they refuse only what
//! is wrong on both paths of a branch. The simulator finds the other errors.
//!
//! | rule | what it proves | what it does not prove |
//! |---|---|---|
//! | [`tokens`] | every path consumes a slot of a ring or a dot in flight exactly once, by an op that accepts its type | |
//! | [`lifetimes`] | no memory is used after its `dealloc`, which is in the block of its `alloc` | |
//! | [`alignment`] | offsets of buffers, and distances of slots, have the alignment that their uses need | |
//! | [`copies`] | a slot is read, written again or freed only after a wait for the copies into it, and after a barrier where the module is synchronized; the asynchronous proxy reads ordinary writes only after a fence | copies of one partition that another one reads: `mbarrier`s order them, and the verifier checks only their parities; slots at unrelated indices count as different |
//! | [`async_dots`] | nothing writes a slot that a dot in flight may read; `wgmma_wait` waits for its dot | as for `copies` |
//! | [`tensor_dots`] | nothing accesses the accumulator of a `tcgen05_mma`, or writes its operands, before a wait for an `mbarrier` of a commit | as for `copies`; which of several `mbarriers` of one allocation is the right one; accesses through another view |
//! | [`pairs`] | the blocks of a pair synchronize between writes to the operands of a dot and the dot, and before the tensor memory is freed | operands that another partition writes; which writes an `mbarrier` of both blocks orders |
//! | [`reads`] | a tensor copy overwrites a slot only after a wait that follows the last read of the slot; in a synchronized module, so does every other write | as for `copies`; reads of another buffer at the same offset |
//! | [`cluster_launches`] | the phase of the `mbarrier` of a `clc_try_cancel` expects the bytes of the response | paths that expect different numbers of bytes; barriers whose bytes another partition expects; more bytes, if tensor copies signal the barrier |
//! | [`mbarriers`] | barriers are initialized before use; a barrier with waits has arrivals; of barriers within one partition: a phase gets no more arrivals than it needs, and no wait is for a phase that cannot complete, if the parity is a constant | parities that are computed; barriers between partitions, except that one op makes no more arrivals than a phase needs, and that no partition waits twice in a row for one constant parity |
//! | [`partitions`] | partitions do not wait for the block, named barriers have the threads of their partitions, tiles stay in their partition | that all partitions of a named barrier reach it equally often |
//! | [`rings`] | in the steady state, no more slots are held than the ring has, and no more are taken than were published | rings between partitions, except the slots that one partition holds; of a branch, the better count of both regions is assumed |
//! | [`schedule`] | all ops of a scheduled loop have a stage, and none runs before an op whose result it uses | |

mod async_dots;
mod cluster_launches;
mod copies;
mod lifetimes;
mod mbarriers;
mod pairs;
mod partitions;
mod reads;
mod rings;
mod schedule;
mod tensor_dots;
mod text;
mod tokens;

use tilewright_ir::{AsyncPhase, Inst, OpFamily, OpInfo};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::SlotAnalysis;
use crate::{Function, GpuOp, Header, Op, alignment};

/// A violation of a rule of this module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// One sentence.
    pub message: String,
    /// The instruction of a dataflow violation; `None` for other checks.
    pub inst: Option<Inst>,
}

/// Checks a function whose instructions are well-formed.
pub fn function(header: &Header, function: &Function) -> Check {
    find_violation(header, function).map_err(|violation| violation.message)
}

/// Checks a function whose instructions are well-formed.
///
/// # Errors
/// The first violation.
pub fn find_violation(header: &Header, function: &Function) -> Result<(), Violation> {
    let mut analysis = SlotAnalysis::new(function, header.synchronized);
    analysis.explicit = header.explicit;
    let found = check(header, function, &analysis);
    found.map_err(|message| Violation { message, inst: analysis.violation.get() })
}

fn check(header: &Header, function: &Function, analysis: &SlotAnalysis<'_>) -> Check {
    if !function.schedule.is_empty() {
        schedule::check(function)?;
    }
    let mut kinds = OpKinds::default();
    function.walk(function.entry, &mut |inst| kinds.note(&function.insts[inst].op));
    if !kinds.memory && !kinds.others {
        return Ok(());
    }
    tokens::check(analysis)?;
    lifetimes::check(analysis)?;
    alignment::check(&header.layouts, analysis)?;
    if kinds.others {
        partitions::check(header, analysis)?;
    }
    copies::check(analysis)?;
    async_dots::check(analysis)?;
    tensor_dots::check(analysis)?;
    pairs::check(analysis)?;
    cluster_launches::check(analysis)?;
    reads::check(analysis)?;
    if kinds.others {
        mbarriers::check(header, analysis)?;
        rings::check(analysis)?;
    }
    Ok(())
}

/// The kinds of ops, which select the rules to check.
#[derive(Default)]
struct OpKinds {
    memory: bool,
    /// True if the function has asynchronous work, barriers or partitions.
    others: bool,
}

impl OpKinds {
    fn note(&mut self, op: &Op) {
        let Op::Gpu(op) = op else { return };
        let OpInfo { family, phase, .. } = op.info();
        self.memory |= matches!(op, GpuOp::Alloc { .. });
        self.others |=
            *phase != AsyncPhase::None || matches!(family, OpFamily::Barrier | OpFamily::Partitions);
    }
}
