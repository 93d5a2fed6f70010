//! Describes the syntax of a kernel's source: its signature, and its syntax tree as text.
//!
//! Without the feature `python-syntax`, the functions of this module return nothing.

use tilewright_frontend::FunctionSource;

/// The signature of a function in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionSyntax {
    /// The name of the function.
    pub name: String,
    /// The byte range of the name in the source.
    pub name_range: (u32, u32),
    /// The byte offset of the first decorator or, without decorators, of the `def`.
    pub offset: u32,
    /// The text of each decorator, without the `@`.
    pub decorators: Vec<String>,
    /// The parameters, in order. They do not include `**kwargs`.
    pub parameters: Vec<ParameterSyntax>,
}

/// A parameter in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterSyntax {
    /// The name of the parameter.
    pub name: String,
    /// The byte range of the whole parameter, including its annotation and default.
    pub range: (u32, u32),
    /// The source text of the annotation. If the annotation is a string literal, this is the
    /// content of the string.
    pub annotation: Option<String>,
    /// The source text of the default value.
    pub default: Option<String>,
    /// True if the parameter is `*args`.
    pub is_variadic: bool,
}

/// Returns the signature of the function that `source` describes. This is the first function with
/// the name `source.name` whose name begins at or after `source.offset`.
///
/// Returns `None` if there is no such function, or if the text is not valid Python.
#[cfg(feature = "python-syntax")]
pub fn function_syntax(source: &FunctionSource) -> Option<FunctionSyntax> {
    crate::ast::find_function(source)
}

/// Returns `None`, because this build has no parser.
#[cfg(not(feature = "python-syntax"))]
pub fn function_syntax(_: &FunctionSource) -> Option<FunctionSyntax> {
    None
}

/// Returns the syntax tree of a function as text. Each node has one line with its kind, position
/// and source. The text is empty if the source is unknown or has a syntax error.
pub fn syntax_tree(source: Option<&FunctionSource>) -> String {
    #[cfg(feature = "python-syntax")]
    let tree = |source: &FunctionSource| tilewright_frontend::dump_ast(&source.file, Some(&source.name)).ok();
    #[cfg(not(feature = "python-syntax"))]
    let tree = |_: &FunctionSource| None;
    source.and_then(tree).unwrap_or_default()
}
