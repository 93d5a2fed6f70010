//! Compares locks, and explains why a launch is not in a lock.

use std::collections::BTreeMap;

use crate::entry::{Entry, Request};
use crate::file::LockFile;

/// A change from one lock to another.
///
/// The first text of each variant names an entry or a tuned choice. The name of an entry contains
/// its kernel, arguments, options and target. The name of a choice contains its kernel, target and
/// tuning key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the second lock contains the entry or the choice.
    Added(String),
    /// Only the first lock contains the entry or the choice.
    Removed(String),
    /// Both locks contain the entry, but with different code, sources or launch metadata. Or both
    /// contain the choice, but with different values. The list describes the differences.
    Changed(String, Vec<String>),
}

/// Returns the changes from one lock to another. The changes of entries precede those of choices.
pub fn changes(before: &LockFile, after: &LockFile) -> Vec<Change> {
    let mut found = Vec::new();
    let old: BTreeMap<&Request, &Entry> =
        before.entries.iter().map(|entry| (&entry.launches, entry)).collect();
    let new: BTreeMap<&Request, &Entry> =
        after.entries.iter().map(|entry| (&entry.launches, entry)).collect();
    for (request, entry) in &old {
        match new.get(request) {
            None => found.push(Change::Removed(request.to_string())),
            Some(other) if other != entry => {
                found.push(Change::Changed(request.to_string(), entry.differences(other)));
            }
            Some(_) => {}
        }
    }
    let added = new.keys().filter(|request| !old.contains_key(*request));
    found.extend(added.map(|request| Change::Added(request.to_string())));
    let name = |choice: &crate::Choice| {
        format!("{} for {}, tuned for {}", choice.kernel, choice.target, choice.key.join(", "))
    };
    for choice in &before.choices {
        match after.choices.iter().find(|other| other.has_same_key(choice)) {
            None => found.push(Change::Removed(name(choice))),
            Some(other) if other.config != choice.config => {
                let texts = different_values(&choice.config, &other.config);
                found.push(Change::Changed(name(choice), texts));
            }
            Some(_) => {}
        }
    }
    let is_new = |choice: &&crate::Choice| !before.choices.iter().any(|other| other.has_same_key(choice));
    found.extend(after.choices.iter().filter(is_new).map(|choice| Change::Added(name(choice))));
    found
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.kernel)?;
        for (index, (name, value)) in self.arguments.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(")")?;
        for (name, value) in &self.options {
            write!(f, " {name}={value}")?;
        }
        write!(f, " for {}", self.target)
    }
}

impl Request {
    /// Returns the differences between this launch and a launch in the lock. Each text describes
    /// one difference to the user.
    pub fn differences(&self, locked: &Self) -> Vec<String> {
        if self.target != locked.target {
            // The options of different targets are different.
            return vec![format!("target: {} here, {} in the lock", self.target, locked.target)];
        }
        let mut found = Vec::new();
        let here_and_lock = |name: &str, here: Option<&String>, lock: Option<&String>| {
            let text = |value: Option<&String>| value.map_or("unset".to_owned(), Clone::clone);
            format!("{name}: {} here, {} in the lock", text(here), text(lock))
        };
        for (ours, theirs) in [(&self.arguments, &locked.arguments), (&self.options, &locked.options)] {
            for name in names(ours, theirs) {
                let (here, lock) = (ours.get(name), theirs.get(name));
                if here != lock {
                    found.push(here_and_lock(name, here, lock));
                }
            }
        }
        if found.is_empty() && self.ir != locked.ir {
            found
                .push("the kernel, a function that it calls or a value that it reads has changed".to_owned());
        }
        found
    }
}

impl Entry {
    /// Describes the differences between two entries for the same launches.
    fn differences(&self, other: &Self) -> Vec<String> {
        let artifacts = |entry: &Self| -> BTreeMap<String, String> {
            let of_code = entry.code.artifacts();
            of_code.map(|(kind, hash)| (kind.to_owned(), hash.get(..12).unwrap_or(hash).to_owned())).collect()
        };
        let mut found = different_values(&artifacts(self), &artifacts(other));
        if self.sources != other.sources {
            found.push("source text".to_owned());
        }
        if self.launch != other.launch {
            found.push("launch metadata".to_owned());
        }
        found
    }
}

fn different_values(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let text = |value: Option<&String>| value.map_or("none".to_owned(), Clone::clone);
    let differing = names(before, after).into_iter().filter(|name| before.get(*name) != after.get(*name));
    differing.map(|name| format!("{name}: {} -> {}", text(before.get(name)), text(after.get(name)))).collect()
}

fn names<'a>(first: &'a BTreeMap<String, String>, second: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let more = second.keys().filter(|name| !first.contains_key(*name));
    first.keys().chain(more).map(String::as_str).collect()
}
