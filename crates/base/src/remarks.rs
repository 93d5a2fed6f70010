//! Remarks: what a pass has decided, and why, for people who ask (`tilewright explain`).
//!
//! A pass says what it decides where it decides it: [`remark`] takes a function that makes the text, which is called only while
//! somebody collects. So remarks cost a compilation that nobody asks about one look at a thread-local, and no pass passes
//! anything on. They are no part of the program: what is decided is in its text.

use std::cell::RefCell;

use crate::Span;

/// Whether a pass did what it is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemarkKind {
    /// It did.
    Done,
    /// It could have and did not; the reason says what is in the way.
    Missed,
    /// A choice among several ways, or something to know.
    Note,
}

impl RemarkKind {
    /// `done`, `missed`, `note`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Missed => "missed",
            Self::Note => "note",
        }
    }
}

/// What a pass has decided about something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The pass.
    pub pass: &'static str,
    /// True if it did what it is there for.
    pub kind: RemarkKind,
    /// The source of what it is about.
    pub span: Option<Span>,
    /// What it is about: `load of fp16[128, 64]`.
    pub subject: String,
    /// What was decided: `16 bytes an access`.
    pub decision: String,
    /// Why.
    pub reason: String,
}

thread_local! {
    static COLLECTED: RefCell<Option<Vec<Remark>>> = const { RefCell::new(None) };
}

/// Makes a remark, if somebody collects them.
pub fn remark(text: impl FnOnce() -> Remark) {
    if is_collecting() {
        let made = text();
        COLLECTED.with_borrow_mut(|list| list.as_mut().map(|list| list.push(made)));
    }
}

/// Returns whether somebody collects remarks on this thread.
pub fn is_collecting() -> bool {
    COLLECTED.with_borrow(Option::is_some)
}

/// Calls a function, and gives the remarks that were made meanwhile on this thread.
pub fn collect_remarks<T>(call: impl FnOnce() -> T) -> (T, Vec<Remark>) {
    // Ends the collection also where the function panics.
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
        remark(|| unreachable!("nobody collects"));
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
