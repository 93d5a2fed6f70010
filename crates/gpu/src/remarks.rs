//! Remarks of the passes of the GPU path ([`tilewright_base::remark`]): what is decided of an instruction, and why.

use tilewright_base::{Remark, RemarkKind, remark};
use tilewright_ir::{Dialect, Function, Inst, Operation, Type};

/// What was decided, and why.
pub struct Because {
    pub kind: RemarkKind,
    pub decision: String,
    pub reason: String,
}

impl Because {
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

/// A remark about an instruction, at the line of the kernel that leads to it.
pub fn about<D: Dialect>(
    pass: &'static str,
    function: &Function<D>,
    inst: Inst,
    subject: impl FnOnce() -> String,
    because: impl FnOnce() -> Because,
) {
    remark(|| {
        let Because { kind, decision, reason } = because();
        let span = function.call_chain(inst).into_iter().last();
        Remark { pass, kind, span, subject: subject(), decision, reason }
    });
}

/// `load of fp16[128, 64]`; the name of a result comes first.
pub fn subject<D: Dialect>(function: &Function<D>, inst: Inst, tile: Option<&Type>) -> String {
    let data = &function.insts[inst];
    let name = data.results.first().and_then(|result| function.values[*result].name.as_deref());
    let name = name.map(|name| format!("%{name} = ")).unwrap_or_default();
    let of = tile.map(|tile| format!(" of {tile}")).unwrap_or_default();
    format!("{name}{}{of}", data.op.name())
}

#[cfg(test)]
mod tests {
    use crate::target::GpuTarget;
    use tilewright_base::{RemarkKind, collect_remarks};

    const KERNEL: &str = "\
entry fn0 @copy(%x: *fp32 {divisibility = 16}, %n: int32) {
  %0 = range {start = 0, end = 1024} : int32[1024]
  %1 = splat %x {shape = [1024]} : *fp32[1024]
  %2 = ptr_add %1, %0 : *fp32[1024]
  %3 = splat %n {shape = [1024]} : int32[1024]
  %4 = lt %0, %3 : int1[1024]
  %5 = load %2 {cache = \"\", eviction = \"\", volatile = false} : fp32[1024]
  store %2, %5, %4 {cache = \"\", eviction = \"\"}
}
";

    #[test]
    fn the_width_of_accesses_is_explained() {
        let module = tilewright_ir::parse(KERNEL).unwrap();
        let target = GpuTarget::named("sm_90").unwrap();
        let (compiled, remarks) = collect_remarks(|| crate::compile(&module, target, 4, 3));
        compiled.unwrap();
        let of = |subject: &str| remarks.iter().find(|remark| remark.subject.contains(subject)).unwrap();
        let (load, store) = (of("load"), of("store"));
        assert_eq!(load.kind, RemarkKind::Done);
        assert_eq!(load.decision, "16 bytes an access: 4 elements along axis 0");
        assert_eq!(store.kind, RemarkKind::Missed);
        assert_eq!(store.decision, "4 bytes an access: 1 element along axis 0");
        assert_eq!(store.reason, "the mask may change after 1 element");
    }
}
