//! Remarks of the passes of the GPU path ([`tilewright_base::remark`]). A remark has a decision
//! about an instruction, and the reason.

use tilewright_base::{Remark, RemarkKind, remark};
use tilewright_ir::{Dialect, Function, Inst, Operation, Type};

pub struct RemarkReason {
    pub kind: RemarkKind,
    pub decision: String,
    pub reason: String,
}

impl RemarkReason {
    pub fn done(decision: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind: RemarkKind::Done, decision: decision.into(), reason: reason.into() }
    }

    pub fn missed(decision: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind: RemarkKind::Missed, decision: decision.into(), reason: reason.into() }
    }

    pub fn note(decision: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind: RemarkKind::Note, decision: decision.into(), reason: reason.into() }
    }
}

/// Reports a decision about an instruction, at its line in the kernel. For an inlined function,
/// this is the line of the outermost call.
pub fn about<D: Dialect>(
    pass: &'static str,
    function: &Function<D>,
    inst: Inst,
    subject: impl FnOnce() -> String,
    because: impl FnOnce() -> RemarkReason,
) {
    remark(|| {
        let RemarkReason { kind, decision, reason } = because();
        let span = function.call_chain(inst).into_iter().last();
        Remark { pass, kind, span, subject: subject(), decision, reason }
    });
}

/// Returns the subject of a remark, such as `%x = load of fp16[128, 64]`.
pub fn subject<D: Dialect>(function: &Function<D>, inst: Inst, tile: Option<&Type>) -> String {
    let data = &function.insts[inst];
    let name = data.results.first().and_then(|result| function.values[*result].name.as_deref());
    let name = name.map(|name| format!("%{name} = ")).unwrap_or_default();
    let of = tile.map(|tile| format!(" of {tile}")).unwrap_or_default();
    format!("{name}{}{of}", data.op.name())
}
