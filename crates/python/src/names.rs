//! The names of the language, for the Python namespace `tilewright.language`.

use pyo3::prelude::*;
use tilewright_frontend::semantic::{EntryKind, language_entries};

/// The functions of the language: for each its path below `triton.language`, its parameters as they are written, what it
/// does, and whether tensors have it as a method.
#[pyfunction]
pub(crate) fn language_names() -> Vec<(&'static str, String, String, bool)> {
    let functions = language_entries().filter(|entry| match entry.kind {
        EntryKind::Function | EntryKind::NotYet => true,
        EntryKind::Constant | EntryKind::Class | EntryKind::Module => false,
    });
    functions
        .map(|entry| {
            let parameters =
                entry.signature.find('(').map_or("(*args, **kwargs)", |at| &entry.signature[at..]);
            let doc = match entry.kind {
                EntryKind::NotYet => format!("Not available yet: {}.", entry.doc),
                _ => entry.doc,
            };
            (entry.path, parameters.to_owned(), doc, entry.is_method)
        })
        .collect()
}
