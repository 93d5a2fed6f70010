//! Requests for clusters that have not begun: a phase with `clc_try_cancel`s expects the bytes of
//! their responses.
//!
//! The rule counts requests and expected bytes between two waits for an `mbarrier`. It does so for
//! an allocation of one `mbarrier` whose users are in one partition. For other `mbarrier`s, it only
//! checks that something expects bytes. [`copies`] and [`reads`] check the buffers of responses.
//!
//! [`copies`]: super::copies
//! [`reads`]: super::reads

use std::collections::BTreeMap;

use tilewright_ir::{Inst, Value};

use crate::analysis::dataflow::{Check, JoinPoint, Transfer, walk};
use crate::analysis::slots::{Edge, SlotAnalysis};
use crate::target::CLC_RESPONSE_BYTES;
use crate::{GpuOp, Op};

/// The requests and the expected bytes of an `mbarrier` since the last wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct PhaseBytes {
    requested: u32,
    expected: u32,
}

/// The users of an allocation of `mbarrier`s.
#[derive(Default)]
struct BarrierUsers {
    request: Option<Inst>,
    partitions: Vec<Option<(Inst, usize)>>,
    /// True if an op expects bytes.
    expects: bool,
    /// True if tensor copies signal bytes, too.
    has_copies: bool,
    /// True if other blocks of the cluster expect bytes.
    is_remote: bool,
}

/// Checks the requests for clusters of a function.
pub fn check(analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let mut users: BTreeMap<Value, BarrierUsers> = BTreeMap::new();
    function.walk(function.entry, &mut |inst| {
        let Op::Gpu(op) = &function.insts[inst].op else { return };
        let Some(slot) = analysis.barrier(inst) else { return };
        let own = users.entry(slot.root).or_default();
        own.partitions.push(analysis.partition(inst));
        match op {
            GpuOp::ClcTryCancel { .. } => {
                own.request.get_or_insert(inst);
            }
            GpuOp::MbarrierExpect { bytes } => own.expects |= *bytes > 0,
            GpuOp::MbarrierArriveAt { bytes, .. } => {
                own.expects |= *bytes > 0;
                own.is_remote = true;
            }
            op => own.has_copies |= op.info().phase.starts_fill(),
        }
    });
    users.retain(|_, users| users.request.is_some());
    if let Some((root, BarrierUsers { request: Some(inst), .. })) =
        users.iter().find(|(_, users)| !users.expects)
    {
        analysis.blame(*inst);
        return Err(format!(
            "clc_try_cancel signals {CLC_RESPONSE_BYTES} bytes at {}, whose phases expect none: add an \
             mbarrier_expect of {CLC_RESPONSE_BYTES} bytes",
            analysis.text(*root)
        ));
    }
    users.retain(|root, users| {
        let is_in_one = users.partitions.windows(2).all(|pair| pair[0] == pair[1]);
        is_in_one && !users.is_remote && analysis.slots(*root) == 1
    });
    if users.is_empty() {
        return Ok(());
    }
    walk(analysis, &mut Launches { analysis, users }, BTreeMap::new())
}

struct Launches<'a> {
    analysis: &'a SlotAnalysis<'a>,
    users: BTreeMap<Value, BarrierUsers>,
}

impl Transfer for Launches<'_> {
    /// The counts of each `mbarrier`; `None` where paths with different counts join.
    type State = BTreeMap<Value, Option<PhaseBytes>>;

    fn step(&mut self, inst: Inst, state: &mut Self::State) -> Check {
        let data = &self.analysis.function.insts[inst];
        let Op::Gpu(op) = &data.op else { return Ok(()) };
        let Some(root) = self.analysis.barrier(inst).map(|slot| slot.root) else { return Ok(()) };
        let Some(users) = self.users.get(&root) else { return Ok(()) };
        let Some(phase) = state.entry(root).or_insert(Some(PhaseBytes::default())) else {
            if matches!(op, GpuOp::MbarrierWait {}) {
                state.remove(&root);
            }
            return Ok(());
        };
        match op {
            GpuOp::ClcTryCancel { .. } => {
                phase.requested = phase.requested.saturating_add(CLC_RESPONSE_BYTES);
            }
            GpuOp::MbarrierExpect { bytes } => phase.expected = phase.expected.saturating_add(*bytes),
            GpuOp::MbarrierWait {} => {
                let PhaseBytes { requested, expected } = *phase;
                let fits = expected == requested || users.has_copies && expected > requested;
                if requested > 0 && !fits {
                    return Err(format!(
                        "mbarrier_wait waits for a phase of {} that expects {expected} bytes, but clc_try_cancel \
                         signals {requested}: the mbarrier_expect has to expect {CLC_RESPONSE_BYTES} bytes for each \
                         request",
                        self.analysis.text(root)
                    ));
                }
                state.remove(&root);
            }
            // tidy: wildcard because other ops neither request nor expect bytes
            _ => {}
        }
        Ok(())
    }

    fn join(&self, state: &mut Self::State, other: &Self::State, _point: JoinPoint) {
        let roots: Vec<Value> = state.keys().chain(other.keys()).copied().collect();
        for root in roots {
            let of = |state: &Self::State| state.get(&root).copied().unwrap_or(Some(PhaseBytes::default()));
            let (one, other) = (of(state), of(other));
            state.insert(root, if one == other { one } else { None });
        }
    }

    /// Renames nothing: allocations have one name everywhere.
    fn rename(&self, _state: &mut Self::State, _edge: &Edge) {}
}
