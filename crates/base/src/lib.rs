//! The foundation of all other crates:
//!
//! - source files and spans;
//! - diagnostics with their codes, and remarks of passes;
//! - typed indices;
//! - atomic file writes;
//! - the output of running kernels;
//! - regions of memory that a launch may access.
//!
//! Nothing here depends on the language or the IR. A [`Diagnostic`] is data;
//! [`Diagnostic::render`] formats it for a terminal.

mod codes;
mod diagnostic;
mod files;
pub mod memory;
pub mod output;
mod remarks;
mod source;

pub use codes::{Code, Kind};
pub use diagnostic::{Color, Diagnostic, Label};
pub use files::write_file;
pub use remarks::{Remark, RemarkKind, collect_remarks, is_collecting, remark};
pub use source::{FileId, LIBRARY, SourceFile, SourceMap, Span};

/// Typed indices and the dense tables keyed by them (from Cranelift).
pub use cranelift_entity as entity;
