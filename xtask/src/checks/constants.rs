//! Checks the numeric constants of the compiler.
//!
//! A threshold must be an entry of the tuning table of its target, with its evidence. Every other
//! constant must have a row in `xtask/constants.txt` that states why it is not a threshold.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, Type};

use crate::tree::{File, Finding, Tree};

/// The path of the table of constants that are not thresholds, relative to the root.
const TABLE: &str = "xtask/constants.txt";
/// The paths of the tuning tables of GPUs and of CPUs.
const TABLES: [&str; 2] = ["crates/gpu-ir/src/tuning.rs", "crates/cpu/src/tuning.rs"];
/// The folders whose code decides how a kernel is compiled.
const FOLDERS: [&str; 9] = [
    "crates/compiler/src/",
    "crates/cpu/src/",
    "crates/gpu-ir/src/",
    "crates/gpu/src/",
    "crates/layout/src/",
    "crates/opt/src/",
    "crates/ptx/src/lower/",
    "crates/ptx/src/passes/",
    "crates/runtime/src/",
];
/// The allowed reasons in a row.
const REASONS: [&str; 3] = ["hardware", "format", "bound"];
const NUMBERS: [&str; 14] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];
const RULE: &str = "constant";
/// The words that identify a measurement: a processor, or the assembler that counts registers.
const PROCESSORS: [&str; 5] = ["H100", "H200", "Xeon", "EPYC", "ptxas"];

/// Checks that each numeric constant with a literal value has a row. Also checks that the constant
/// of each row exists.
pub fn listed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (number, line) in tree.files.iter().filter(|file| file.path == TABLE).flat_map(File::lines) {
        if line.starts_with('#') {
            continue;
        }
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [path, name, reason] if REASONS.contains(&reason) => {
                rows.insert((path.to_owned(), name.to_owned()), number);
            }
            _ => {
                let message = format!("a row is a path, a name and one of {}", REASONS.join(", "));
                findings.push(Finding::new(TABLE, number, RULE, message));
            }
        }
    }
    let is_checked = |file: &&File| {
        !TABLES.contains(&&*file.path) && FOLDERS.iter().any(|folder| file.path.starts_with(folder))
    };
    for file in tree.rust().filter(is_checked) {
        for (line, name) in constants(file) {
            if rows.remove(&(file.path.clone(), name.clone())).is_none() {
                let message = format!(
                    "`{name}` has no row in {TABLE}: a threshold belongs in {}, a number of the hardware, of a \
                     format or the bound of an analysis gets a row",
                    TABLES.join(" or ")
                );
                findings.push(Finding::new(&file.path, line, RULE, message));
            }
        }
    }
    let stale = rows.into_iter().map(|((path, name), line)| {
        Finding::new(TABLE, line, RULE, format!("{path} has no constant `{name}`: remove the row"))
    });
    findings.extend(stale);
    findings
}

/// Checks that each entry of a tuning table states its evidence. Evidence is a processor and a
/// date, `Derived:`, or `Not measured`.
pub fn evidence(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| TABLES.contains(&&*file.path)) {
        let Ok(syntax) = syn::parse_file(&file.text) else { continue };
        for item in &syntax.items {
            let entries: Vec<(&syn::Ident, &[Attribute])> = match item {
                Item::Struct(table) => {
                    let fields = table.fields.iter();
                    fields.filter_map(|field| Some((field.ident.as_ref()?, &*field.attrs))).collect()
                }
                Item::Const(entry) if is_number(&entry.ty) => vec![(&entry.ident, &entry.attrs)],
                _ => continue,
            };
            for (name, _) in entries.into_iter().filter(|(_, attributes)| !has_evidence(&text(attributes))) {
                let message = format!(
                    "`{name}` has no evidence: name the kernel, the processor ({}) and the date (2026-11-23) of \
                     a measurement, or write `Derived:` and the fact, or `Not measured`",
                    PROCESSORS.join(", ")
                );
                findings.push(Finding::new(&file.path, name.span().start().line, "evidence", message));
            }
        }
    }
    findings
}

/// Returns the text of a doc comment as a single line.
fn text(attributes: &[Attribute]) -> String {
    let docs = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    docs.collect()
}

fn has_evidence(text: &str) -> bool {
    let is_date = |word: &str| {
        let mut parts = word.trim_matches(|c: char| !c.is_ascii_digit()).split('-');
        let mut has_digits = |count| {
            parts.next().is_some_and(|part| part.len() == count && part.bytes().all(|b| b.is_ascii_digit()))
        };
        has_digits(4) && has_digits(2) && has_digits(2)
    };
    let is_measured =
        PROCESSORS.iter().any(|name| text.contains(name)) && text.split_whitespace().any(is_date);
    is_measured || text.contains("Not measured") || text.contains("Derived:")
}

/// Returns the names and lines of a file's numeric constants whose values are literals. Skips
/// modules with the name `tests`.
fn constants(file: &File) -> Vec<(usize, String)> {
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut visitor = Visitor { found: Vec::new() };
    visitor.visit_file(&syntax);
    visitor.found
}

struct Visitor {
    found: Vec<(usize, String)>,
}

impl Visitor {
    fn constant(&mut self, name: &syn::Ident, ty: &Type, value: &Expr) {
        if is_number(ty) && is_literal(value) {
            self.found.push((name.span().start().line, name.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::Path(ty) if ty.path.get_ident().is_some_and(|name| NUMBERS.iter().any(|known| name == known)))
}

/// Returns whether a value consists only of literals, operators and parentheses.
fn is_literal(value: &Expr) -> bool {
    match value {
        Expr::Lit(_) => true,
        Expr::Unary(value) => is_literal(&value.expr),
        Expr::Paren(value) => is_literal(&value.expr),
        Expr::Binary(value) => is_literal(&value.left) && is_literal(&value.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    const PATH: &str = "crates/gpu/src/passes/cluster_multicast.rs";
    const CODE: &str = "const MANY: u32 = 1 << 10;\nconst NAMES: [&str; 2] = [];\n\
                        mod tests {\n    const SEED: u64 = 3;\n}\nimpl A {\n    const B: f32 = -1.5;\n}\n";

    #[test]
    fn a_constant_needs_a_row() {
        let at = |line| format!("{PATH}:{line}: constant");
        assert_eq!(found(listed, &[(PATH, CODE)]), [at(1), at(7)]);
        let rows = format!("# Rows.\n{PATH} MANY bound\n{PATH} B format\n");
        assert_eq!(found(listed, &[(PATH, CODE), (TABLE, &rows)]), [""; 0]);
        assert_eq!(found(listed, &[(TABLES[0], CODE), ("crates/sim/src/a.rs", CODE)]), [""; 0]);
    }

    #[test]
    fn an_entry_of_a_tuning_table_needs_evidence() {
        let code = "/// A.\npub struct Tuning {\n    /// B (H200, 2026-11-23).\n    pub b: u32,\n    /// C.\n\
                    \x20   /// Not measured: a guess.\n    pub c: u32,\n    /// D (H200).\n    pub d: u32,\n    /// E.\n\
                    \x20   ///\n    /// Derived: F.\n    pub e: bool,\n}\n/// G, 2026-11-23.\nconst G: usize = 3;\n";
        let at = |line| format!("{}:{line}: evidence", TABLES[1]);
        assert_eq!(found(evidence, &[(TABLES[1], code), (PATH, code)]), [at(9), at(16)]);
    }

    #[test]
    fn a_row_needs_a_constant_and_a_reason() {
        let rows = format!("{PATH} MANY taste\n{PATH} B format\n{PATH} GONE bound\n");
        let expected =
            [format!("{TABLE}:1: constant"), format!("{PATH}:1: constant"), format!("{TABLE}:3: constant")];
        assert_eq!(found(listed, &[(PATH, CODE), (TABLE, &rows)]), expected);
    }
}
