//! Provides what all other crates use:

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
