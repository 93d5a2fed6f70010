//! Exports the names of the language as plain data, for stubs and documentation.

use super::library::LIBRARY;
use super::names::{LanguageItem, NAMES, methods};

/// The kind of a name of the language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A function.
    Function,
    /// A compile-time value.
    Constant,
    /// A class.
    Class,
    /// A prefix of other names.
    Module,
}

/// A name of the language as plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LanguageEntry {
    /// The dotted path of the name, after `triton.language.`.
    pub path: &'static str,
    /// The kind of the name.
    pub kind: EntryKind,
    /// The name and the parameters of a function; empty for other kinds.
    pub signature: String,
    /// The documentation of a function, or the value of a constant; empty for other kinds.
    pub doc: String,
    /// True if tensors have the function as a method.
    pub is_method: bool,
}

/// Returns every name of the language.
pub fn language_entries() -> impl Iterator<Item = LanguageEntry> {
    NAMES.iter().map(|(path, item)| {
        let is_method = methods().any(|(_, method)| method == path);
        let (kind, signature, doc) = match item {
            LanguageItem::Builtin(spec) => {
                let lines: Vec<&str> = spec.docs.iter().map(|line| line.trim()).collect();
                (EntryKind::Function, spec.signature.to_string(), lines.join("\n"))
            }
            LanguageItem::Library(function) => {
                let scanned = LIBRARY.iter().find(|scanned| scanned.function == *function);
                let doc = scanned.map(|scanned| scanned.doc.clone()).unwrap_or_default();
                let signature = scanned.map(|scanned| scanned.signature.to_string()).unwrap_or_default();
                (EntryKind::Function, signature, doc)
            }
            LanguageItem::Constant(constant) => (EntryKind::Constant, String::new(), constant.to_string()),
            LanguageItem::Special(_) => (EntryKind::Class, String::new(), String::new()),
            LanguageItem::Module => (EntryKind::Module, String::new(), String::new()),
        };
        LanguageEntry { path, kind, signature, doc, is_method }
    })
}
