//! Compares text with a snapshot file.

use std::path::Path;

/// Returns whether snapshots are updated instead of compared.
pub fn is_blessing() -> bool {
    std::env::var_os("TILEWRIGHT_BLESS").is_some_and(|value| value == "1")
}

/// Panics unless the content of the file is `found`. If [`is_blessing`] returns true, writes
/// `found` to the file instead.
#[track_caller]
pub fn check_snapshot(path: &Path, found: &str) {
    if is_blessing() {
        std::fs::write(path, found)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(expected == found, "{}", difference(&path.display().to_string(), &expected, found));
}

/// Returns the message for a text that differs from the snapshot.
pub(crate) fn difference(place: &str, expected: &str, found: &str) -> String {
    let mut lines = vec![format!("{place} differs; TILEWRIGHT_BLESS=1 accepts the new output")];
    let (mut old, mut new) = (expected.lines(), found.lines());
    loop {
        match (old.next(), new.next()) {
            (None, None) => return lines.join("\n"),
            (Some(a), Some(b)) if a == b => lines.push(format!("  {a}")),
            (a, b) => {
                lines.extend(a.map(|line| format!("- {line}")));
                lines.extend(b.map(|line| format!("+ {line}")));
            }
        }
    }
}
