//! Describes the syntax of a kernel's source: its signature, which messages about launches show, and
//! its syntax tree as text. Without the feature `python-syntax`, no source has a known syntax.

use tilewright_frontend::FunctionSource;

/// The signature of a function in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionSyntax {
    /// The name.
    pub name: String,
    /// The range of bytes of the name in the source.
    pub name_range: (u32, u32),
    /// The offset in bytes of the first decorator, or of the `def` if there is none.
    pub offset: u32,
    /// The text of each decorator, without the `@`.
    pub decorators: Vec<String>,
    /// The parameters, in order, without `**kwargs`.
    pub parameters: Vec<ParameterSyntax>,
}

/// A parameter in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterSyntax {
    /// The name.
    pub name: String,
    /// The range of bytes of the whole parameter, with annotation and default.
    pub range: (u32, u32),
    /// The source text of the annotation; if it is a string literal, the content of the string.
    pub annotation: Option<String>,
    /// The source text of the default.
    pub default: Option<String>,
    /// True if it is `*args`.
    pub is_variadic: bool,
}

/// Returns the signature of the function that `source` describes: the first function with the name
/// `source.name` whose name begins at or after `source.offset`. Returns `None` if there is none, or
/// if the text is not valid Python.
#[cfg(feature = "python-syntax")]
pub fn function_syntax(source: &FunctionSource) -> Option<FunctionSyntax> {
    crate::ast::find_function(source)
}

/// Returns `None`: this build has no parser.
#[cfg(not(feature = "python-syntax"))]
pub fn function_syntax(_: &FunctionSource) -> Option<FunctionSyntax> {
    None
}

/// Returns the syntax tree of a function as text, with one line for each node: its kind, position
/// and source. The text is empty if the source is unknown or has a syntax error.
pub fn syntax_tree(source: Option<&FunctionSource>) -> String {
    #[cfg(feature = "python-syntax")]
    let tree = |source: &FunctionSource| tilewright_frontend::dump_ast(&source.file, Some(&source.name)).ok();
    #[cfg(not(feature = "python-syntax"))]
    let tree = |_: &FunctionSource| None;
    source.and_then(tree).unwrap_or_default()
}
