//! Collects remarks: the decisions of passes, with their reasons, for `tilewright explain`.
//!
//! A pass calls [`remark`] with a closure that makes the remark. Unless the thread collects
//! remarks, this only costs a read of a thread-local. So neither passes nor the IR contain remarks.

use std::cell::RefCell;

use crate::Span;

/// The outcome of a pass for the subject of a remark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemarkKind {
    /// The pass did its job.
    Done,
    /// The pass could have done its job, but did not; the reason states the obstacle.
    Missed,
    /// The pass chose one of several options, or states a fact.
    Note,
}

impl RemarkKind {
    /// Returns `done`, `missed` or `note`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Missed => "missed",
            Self::Note => "note",
        }
    }
}

/// A decision of a pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The name of the pass.
    pub pass: &'static str,
    /// The outcome.
    pub kind: RemarkKind,
    /// The position of the subject in the source; `None` if the remark is about the whole kernel.
    pub span: Option<Span>,
    /// The subject, such as `load of fp16[128, 64]`.
    pub subject: String,
    /// The decision, such as `16 bytes an access`.
    pub decision: String,
    /// The reason; may be empty.
    pub reason: String,
}

thread_local! {
    static COLLECTED: RefCell<Option<Vec<Remark>>> = const { RefCell::new(None) };
}

/// Calls `text` and stores its remark, if this thread collects remarks.
pub fn remark(text: impl FnOnce() -> Remark) {
    if is_collecting() {
        let made = text();
        COLLECTED.with_borrow_mut(|list| list.as_mut().map(|list| list.push(made)));
    }
}

/// Returns whether this thread collects remarks.
pub fn is_collecting() -> bool {
    COLLECTED.with_borrow(Option::is_some)
}

/// Calls a function, and returns the remarks that this thread made during the call. If the function
/// calls `collect_remarks` itself, only that inner call returns the remarks made during it.
pub fn collect_remarks<T>(call: impl FnOnce() -> T) -> (T, Vec<Remark>) {
    // Dropping this value restores the remarks of the caller, even after a panic.
    struct Outer(Option<Vec<Remark>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            COLLECTED.set(self.0.take());
        }
    }
    let outer = Outer(COLLECTED.replace(Some(Vec::new())));
    let result = call();
    let collected = COLLECTED.take().unwrap_or_default();
    drop(outer);
    (result, collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(decision: &str) {
        let made = || Remark {
            pass: "test",
            kind: RemarkKind::Note,
            span: None,
            subject: String::new(),
            decision: decision.into(),
            reason: String::new(),
        };
        remark(made);
    }

    #[test]
    fn remarks_go_to_who_collects_them() {
        remark(|| unreachable!("not collected"));
        let ((), outer) = collect_remarks(|| {
            say("a");
            let ((), inner) = collect_remarks(|| say("b"));
            assert_eq!(inner.len(), 1);
            say("c");
        });
        let decisions: Vec<_> = outer.iter().map(|remark| remark.decision.as_str()).collect();
        assert_eq!(decisions, ["a", "c"]);
        assert!(!is_collecting());
    }
}
