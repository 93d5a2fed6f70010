//! Every name of the language as plain data: for stubs and documentation.

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

/// A name of the language, as plain data: for stubs and documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LanguageEntry {
    /// The dotted path.
    pub path: &'static str,
    /// Its kind.
    pub kind: EntryKind,
    /// For a function, its name and parameters.
    pub signature: String,
    /// Its documentation.
    pub doc: String,
    /// True if tensors have it as a method.
    pub is_method: bool,
}

/// Every name of the language.
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
