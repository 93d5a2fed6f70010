//! Finds the functions of the library, which is written in the kernel language (`stdlib/*.py`).
//!
//! A function in one of these files is a name of the language unless its name begins with `_`. A
//! parameter with a new name needs a row in [`PARAMETERS`](super::PARAMETERS).

use std::sync::LazyLock;

/// A function of a library file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LibraryFunction {
    /// The name of the file, such as `standard.py`.
    pub file: &'static str,
    /// The text of the whole file.
    pub text: &'static str,
    /// The name of the function.
    pub function: &'static str,
}

impl LibraryFunction {
    /// Returns whether the function computes a dot with scales, which some targets have as an
    /// instruction. Its first parameters are A, the scales of A, B, the scales of B, and the formats of
    /// A and B. The next two say whether A and B are packed along K.
    pub(crate) fn is_scaled_dot(&self) -> bool {
        (self.file, self.function) == ("scaled.py", "_scaled_dot")
    }
}

/// A file, with the prefix of the paths of its functions.
struct LibraryFile {
    name: &'static str,
    text: &'static str,
    prefix: &'static str,
}

static FILES: [LibraryFile; 10] = [
    LibraryFile { name: "standard.py", text: include_str!("../stdlib/standard.py"), prefix: "" },
    LibraryFile { name: "scaled.py", text: include_str!("../stdlib/scaled.py"), prefix: "" },
    LibraryFile { name: "cuda.py", text: include_str!("../stdlib/cuda.py"), prefix: "extra.cuda." },
    LibraryFile { name: "hip.py", text: include_str!("../stdlib/hip.py"), prefix: "extra.hip." },
    LibraryFile { name: "sorting.py", text: include_str!("../stdlib/sorting.py"), prefix: "" },
    LibraryFile { name: "random.py", text: include_str!("../stdlib/random.py"), prefix: "" },
    LibraryFile {
        name: "libdevice.py",
        text: include_str!("../stdlib/libdevice.py"),
        prefix: "extra.libdevice.",
    },
    LibraryFile { name: "bits.py", text: include_str!("../stdlib/bits.py"), prefix: "extra.libdevice." },
    LibraryFile {
        name: "rounding.py",
        text: include_str!("../stdlib/rounding.py"),
        prefix: "extra.libdevice.",
    },
    LibraryFile {
        name: "special.py",
        text: include_str!("../stdlib/special.py"),
        prefix: "extra.libdevice.",
    },
];

/// The properties of a function that are known without parsing its file.
#[derive(Clone, Debug)]
pub(super) struct Scanned {
    pub function: LibraryFunction,
    /// The path of the function in the language.
    pub path: String,
    /// The name and the parameters, as in the file.
    pub signature: &'static str,
    /// The docstring.
    pub doc: String,
    /// True if tensors have the function as a method.
    pub is_method: bool,
}

/// Every public function of the library.
pub(super) static LIBRARY: LazyLock<Vec<Scanned>> = LazyLock::new(|| FILES.iter().flat_map(scan).collect());

/// Returns a reference to a library file: a [`LibraryFunction`] without a name. Callers set the
/// name of the function that they need.
pub fn library_file(file: &str) -> Option<LibraryFunction> {
    FILES.iter().find(|known| known.name == file).map(|known| LibraryFunction {
        file: known.name,
        text: known.text,
        function: "",
    })
}

/// The combine functions in `standard.py`, which programs pass as `triton.language.standard` names.
/// They are no names of the language.
const COMBINING: [&str; 12] = [
    "_sum_combine",
    "_prod_combine",
    "_xor_combine",
    "_or_combine",
    "_elementwise_max",
    "_elementwise_min",
    "_argmax_combine",
    "_argmax_combine_tie_break_left",
    "_argmax_combine_tie_break_fast",
    "_argmin_combine",
    "_argmin_combine_tie_break_left",
    "_argmin_combine_tie_break_fast",
];

/// Returns a combine function of reductions by its name in the module `standard`.
pub(super) fn combining(name: &str) -> Option<LibraryFunction> {
    let function = COMBINING.iter().find(|known| **known == name)?;
    library_file("standard.py").map(|file| LibraryFunction { function, ..file })
}

/// Returns the signatures of the combine functions: each name, and its parameters in parentheses.
pub fn combining_signatures() -> Vec<(&'static str, &'static str)> {
    let Some(file) = library_file("standard.py") else { return Vec::new() };
    let signature = |name: &&'static str| {
        let (_, after) = file.text.split_once(&format!("\ndef {name}("))?;
        let end = after.find("):\n")?;
        let start = file.text.len() - after.len();
        Some((*name, &file.text[start - 1..=start + end]))
    };
    COMBINING.iter().filter_map(signature).collect()
}
/// Finds the public functions of a file by its text, so that a file is parsed only when it is
/// called. A test compares them with the parser.
fn scan(file: &'static LibraryFile) -> Vec<Scanned> {
    let starts = file.text.match_indices("\ndef ").map(|(at, mark)| at + mark.len());
    starts.filter_map(|start| describe(file, start)).collect()
}

/// Describes the function whose name begins at an offset.
fn describe(file: &'static LibraryFile, start: usize) -> Option<Scanned> {
    let text = &file.text[start..];
    let (name, _) = text.split_once('(')?;
    if name.starts_with('_') {
        return None;
    }
    let (signature, body) = text.split_once("):\n")?;
    let doc = body.trim_start().strip_prefix("\"\"\"").and_then(|doc| doc.split_once("\"\"\""));
    let decorators = file.text[..start].lines().rev().skip(1).take_while(|line| line.starts_with('@'));
    Some(Scanned {
        function: LibraryFunction { file: file.name, text: file.text, function: name },
        path: format!("{}{name}", file.prefix),
        signature: &text[..=signature.len()],
        doc: doc.map_or_else(String::new, |(doc, _)| doc.to_string()),
        is_method: decorators.into_iter().any(|line| line.contains("._tensor_member_fn")),
    })
}

#[cfg(test)]
mod tests {
    use ruff_python_ast::{Expr, Stmt};
    use ruff_text_size::Ranged;

    use super::*;

    /// Parses the functions of a file: name, signature, doc, and whether the function is a method.
    fn parsed(file: &LibraryFile) -> Vec<(String, String, String, bool)> {
        let parsed = ruff_python_parser::parse_module(file.text).expect("the file parses");
        let functions = parsed.syntax().body.iter().filter_map(|statement| match statement {
            Stmt::FunctionDef(function) if !function.name.starts_with('_') => Some(function),
            _ => None,
        });
        functions
            .map(|function| {
                let start = function.name.range().start().to_usize();
                let end = function.parameters.range().end().to_usize();
                let is_method = function.decorator_list.iter().any(|decorator| match &decorator.expression {
                    Expr::Attribute(attribute) => attribute.attr.as_str() == "_tensor_member_fn",
                    _ => false,
                });
                let doc = match function.body.first() {
                    Some(Stmt::Expr(first)) => match first.value.as_ref() {
                        Expr::StringLiteral(text) => text.value.to_str().to_string(),
                        _ => String::new(),
                    },
                    _ => String::new(),
                };
                (function.name.to_string(), file.text[start..end].to_string(), doc, is_method)
            })
            .collect()
    }

    #[test]
    fn every_file_parses_and_every_function_has_a_doc() {
        for file in &FILES {
            let scanned = scan(file).into_iter().map(|scanned| {
                let name = scanned.function.function.to_string();
                (name, scanned.signature.to_string(), scanned.doc, scanned.is_method)
            });
            assert_eq!(scanned.collect::<Vec<_>>(), parsed(file), "{}", file.name);
            assert!(file.text.starts_with("\"\"\""), "{}", file.name);
            for scanned in scan(file) {
                assert!(!scanned.doc.is_empty(), "{}", scanned.path);
            }
        }
        assert_eq!(combining_signatures().len(), COMBINING.len());
        assert_eq!(combining_signatures()[0], ("_sum_combine", "(a, b)"));
        let sum = LIBRARY.iter().find(|scanned| scanned.path == "sum").expect("sum is in the library");
        assert!(sum.is_method);
        assert_eq!(
            sum.signature,
            "sum(input, axis: tl.constexpr = None, keep_dims: tl.constexpr = False, dtype: tl.constexpr = None)"
        );
    }
}
