//! Finds catch-all arms in a `match` on the enums of the op tables.
//!
//! Without such arms, rustc shows the author of a new op every `match` that must handle it. A
//! comment above the arm or on its line excuses it: `// tidy: wildcard because ...`.
//!
//! The check recognizes the enums by name, also under `use tilewright_ir::ElementwiseFn as F`, and
//! the variants that a file imports. An arm such as `Family::Math(_)` is a catch-all if another arm
//! is `Family::Math(MathFn::Exp)`.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{ExprMatch, ItemImpl, Pat, Path, Type, UseTree};

use crate::tree::{File, Finding, Tree};

/// The enums that the op tables define. An enum whose name ends in `Fn`, such as `MathFn`, also
/// counts.
const OP_ENUMS: &[&str] = &["Op", "OpFamily", "ElementwiseFamily", "ShapeOp"];

const EXCUSE: &str = "// tidy: wildcard because ";

/// Checks every `match` whose patterns name variants of an op enum. The `match` must list all
/// variants.
pub fn on_op_enums(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    // Another check, or the compiler, reports a file that does not parse.
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut names = Names::default();
    names.visit_file(&syntax);
    let mut visitor = Visitor { file, lines: file.text.lines().collect(), names, findings: Vec::new() };
    visitor.visit_file(&syntax);
    visitor.findings
}

/// The names of the op enums and their variants in a file.
#[derive(Default)]
struct Names {
    /// The names under which the file imports op enums.
    aliases: BTreeSet<String>,
    /// The imported variants of op enums.
    variants: BTreeSet<String>,
    /// True inside the `impl` of an op enum, where `Self::Dot` is a variant.
    self_is_op: bool,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, false);
    }
}

impl Names {
    /// Records the names that an import defines. `of_op` is true below an op enum, as in `use
    /// Op::{Dot, Load}`.
    fn import(&mut self, tree: &UseTree, of_op: bool) {
        match tree {
            UseTree::Path(path) => self.import(&path.tree, is_op_enum(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, of_op)),
            UseTree::Rename(rename) if is_op_enum(&rename.ident) => {
                self.aliases.insert(rename.rename.to_string());
            }
            UseTree::Rename(rename) if of_op => {
                self.variants.insert(rename.rename.to_string());
            }
            UseTree::Name(name) if of_op => {
                self.variants.insert(name.ident.to_string());
            }
            UseTree::Rename(_) | UseTree::Name(_) | UseTree::Glob(_) => {}
        }
    }

    fn is_enum(&self, ident: &syn::Ident) -> bool {
        is_op_enum(ident) || self.aliases.contains(&ident.to_string())
    }

    fn is_variant(&self, path: &Path) -> bool {
        let mut from_end = path.segments.iter().rev().map(|segment| &segment.ident);
        match (from_end.next(), from_end.next()) {
            (Some(_), Some(parent)) => {
                self.is_enum(parent) || (self.self_is_op && path.segments.len() == 2 && parent == "Self")
            }
            (Some(name), None) => self.variants.contains(&name.to_string()),
            _ => false,
        }
    }

    /// Returns whether the pattern names a variant of an op enum at its top level. References,
    /// parentheses, `|` and tuples do not count as levels.
    fn in_pattern(&self, pattern: &Pat) -> bool {
        match pattern {
            Pat::Path(pattern) => self.is_variant(&pattern.path),
            Pat::Struct(pattern) => self.is_variant(&pattern.path),
            Pat::TupleStruct(pattern) => self.is_variant(&pattern.path),
            Pat::Reference(pattern) => self.in_pattern(&pattern.pat),
            Pat::Paren(pattern) => self.in_pattern(&pattern.pat),
            Pat::Ident(pattern) => match &pattern.subpat {
                Some((_, pattern)) => self.in_pattern(pattern),
                None => self.variants.contains(&pattern.ident.to_string()),
            },
            Pat::Or(pattern) => pattern.cases.iter().any(|case| self.in_pattern(case)),
            Pat::Tuple(pattern) => pattern.elems.iter().any(|element| self.in_pattern(element)),
            _ => false,
        }
    }

    /// Adds the path of each variant that contains another variant: `Family::Math` for
    /// `Family::Math(MathFn::Exp)`.
    fn nests(&self, pattern: &Pat, found: &mut BTreeSet<String>) {
        each_nested(pattern, &mut |path, inner| {
            if self.is_variant(path) && self.in_pattern(inner) {
                found.insert(text_of(path));
            }
        });
    }
}

/// Calls `each` for each variant with one field at the top level of a pattern. The arguments are
/// the path and the content of the variant.
fn each_nested<'a>(pattern: &'a Pat, each: &mut dyn FnMut(&'a Path, &'a Pat)) {
    match pattern {
        Pat::TupleStruct(pattern) if pattern.elems.len() == 1 => each(&pattern.path, &pattern.elems[0]),
        Pat::Reference(pattern) => each_nested(&pattern.pat, each),
        Pat::Paren(pattern) => each_nested(&pattern.pat, each),
        Pat::Or(pattern) => pattern.cases.iter().for_each(|case| each_nested(case, each)),
        Pat::Tuple(pattern) => pattern.elems.iter().for_each(|element| each_nested(element, each)),
        _ => {}
    }
}

fn text_of(path: &Path) -> String {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
}

fn is_op_enum(ident: &syn::Ident) -> bool {
    let name = ident.to_string();
    OP_ENUMS.contains(&name.as_str()) || name.strip_suffix("Fn").is_some_and(|family| !family.is_empty())
}

struct Visitor<'a> {
    file: &'a File,
    lines: Vec<&'a str>,
    names: Names,
    findings: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let outer = self.names.self_is_op;
        self.names.self_is_op = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().is_some_and(|name| self.names.is_enum(&name.ident)),
            _ => false,
        };
        visit::visit_item_impl(self, item);
        self.names.self_is_op = outer;
    }

    fn visit_expr_match(&mut self, expr: &'ast ExprMatch) {
        if expr.arms.iter().any(|arm| self.names.in_pattern(&arm.pat)) {
            let mut nests = BTreeSet::new();
            for arm in &expr.arms {
                self.names.nests(&arm.pat, &mut nests);
            }
            for arm in expr.arms.iter().filter(|arm| arm.guard.is_none()) {
                let mut lines: Vec<usize> = catch_all_line(&arm.pat).into_iter().collect();
                each_nested(&arm.pat, &mut |path, inner| {
                    lines.extend(catch_all_line(inner).filter(|_| nests.contains(&text_of(path))));
                });
                if let Some(line) = lines.into_iter().find(|line| !self.is_excused(*line)) {
                    let message =
                        format!("list the ops instead of a catch-all, or excuse it with `{EXCUSE}...`");
                    self.findings.push(Finding::new(&self.file.path, line, "wildcard", message));
                }
            }
        }
        visit::visit_expr_match(self, expr);
    }
}

impl Visitor<'_> {
    /// Returns whether a comment excuses the catch-all. The comment is on the line itself or
    /// directly above it.
    fn is_excused(&self, line: usize) -> bool {
        let text = |line: usize| self.lines.get(line.wrapping_sub(1)).copied().unwrap_or_default();
        let comment_above = (1..line).rev().map(text).take_while(|text| text.trim_start().starts_with("//"));
        std::iter::once(text(line)).chain(comment_above).any(|text| text.contains(EXCUSE))
    }
}

/// Returns the line of a pattern that matches everything. Such a pattern is `_`, a variable, or a
/// tuple of such patterns. Returns `None` for another pattern.
fn catch_all_line(pattern: &Pat) -> Option<usize> {
    match pattern {
        Pat::Wild(pattern) => Some(pattern.underscore_token.span.start().line),
        Pat::Ident(pattern) if pattern.subpat.is_none() && is_variable(&pattern.ident) => {
            Some(pattern.ident.span().start().line)
        }
        Pat::Paren(pattern) => catch_all_line(&pattern.pat),
        Pat::Or(pattern) => pattern.cases.iter().find_map(catch_all_line),
        Pat::Tuple(pattern) => {
            let lines: Option<Vec<usize>> = pattern.elems.iter().map(catch_all_line).collect();
            lines?.into_iter().next()
        }
        _ => None,
    }
}

/// Returns whether a name in a pattern is a variable. Others begin with an upper-case letter.
fn is_variable(ident: &syn::Ident) -> bool {
    ident.to_string().starts_with(|first: char| first.is_lowercase() || first == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::found;

    fn check(body: &str, expect: &[&str]) {
        let text = format!("fn f() {{\n{body}\n}}\n");
        assert_eq!(found(on_op_enums, &[("a.rs", &text)]), expect);
    }

    #[test]
    fn catch_alls_are_found() {
        check("match op {\nOp::Dot { .. } => 1,\n_ => 0,\n}", &["a.rs:4: wildcard"]);
        check("match op {\nir::Op::Dot(x) => 1,\nother => 0,\n}", &["a.rs:4: wildcard"]);
        check("match (a, b) {\n(Op::Dot, 1) => 1,\n(_, _) => 0,\n}", &["a.rs:4: wildcard"]);
        check(
            "match f {\n&ElementwiseFn::Exp | &ElementwiseFn::Log => 1,\n_ => 0,\n}",
            &["a.rs:4: wildcard"],
        );
        check("match x {\n1 => match op {\nOp::Dot => 1,\n_ => 0,\n},\n_ => 2,\n}", &["a.rs:5: wildcard"]);
    }

    #[test]
    fn other_names_of_the_enums_are_known() {
        let arms = "match f {\nF::Exp | F::Log => 1,\n_ => 0,\n}\n}\n";
        for import in [
            "use ElementwiseFn as F;",
            "use tilewright_ir::{Dtype, MathFn as F};",
            "use ir::{a::{ElementwiseFn as F}};",
        ] {
            assert_eq!(
                found(on_op_enums, &[("a.rs", &format!("{import}\nfn f() {{\n{arms}"))]),
                ["a.rs:5: wildcard"]
            );
            assert_eq!(
                found(on_op_enums, &[("a.rs", &format!("fn f() {{\n{import}\n{arms}"))]),
                ["a.rs:5: wildcard"]
            );
        }
        let other = format!("use Function as F;\nfn f() {{\n{arms}");
        assert_eq!(found(on_op_enums, &[("a.rs", &other)]), [""; 0]);
        check("use MathFn::{Exp, Log as L};\nmatch f {\nExp => 1,\n_ => 0,\n}", &["a.rs:5: wildcard"]);
        check("use MathFn::{Exp, Log as L};\nmatch f {\nL => 1,\n_ => 0,\n}", &["a.rs:5: wildcard"]);
    }

    #[test]
    fn the_rest_of_a_family_is_a_catch_all() {
        let whole = "ElementwiseFamily::Math(_) => 1,\nElementwiseFamily::Float(_) => 0,";
        check(&format!("match f {{\n{whole}\n}}"), &[]);
        let named = "ElementwiseFamily::Math(MathFn::Exp) => 2,";
        check(&format!("match f {{\n{named}\n{whole}\n}}"), &["a.rs:4: wildcard"]);
        check(&format!("match f {{\n{named}\n// tidy: wildcard because it is rare.\n{whole}\n}}"), &[]);
    }

    #[test]
    fn a_variant_of_self_counts_in_the_enum() {
        let text = "impl Op {\nfn f(&self) {\nmatch self {\nSelf::Dot => 1,\n_ => 0,\n}\n}\n}\n";
        assert_eq!(found(on_op_enums, &[("a.rs", text)]), ["a.rs:5: wildcard"]);
        assert_eq!(found(on_op_enums, &[("a.rs", &text.replace("impl Op", "impl Color"))]), [""; 0]);
    }

    #[test]
    fn full_lists_other_enums_and_guards_are_fine() {
        check("match op { Op::Dot => 1, Op::Load { .. } => 0 }", &[]);
        check("match color { Color::Red => 1, _ => 0 }", &[]);
        check("match op { Op::Dot => 1, _ if x => 2, Op::Load => 0 }", &[]);
    }

    #[test]
    fn an_excuse_needs_a_reason() {
        check(
            "match op {\nOp::Dot => 1,\n// tidy: wildcard because only dots have\n// an accumulator.\n_ => 0,\n}",
            &[],
        );
        check("match op {\nOp::Dot => 1,\n_ => 0, // tidy: wildcard because only dots matter\n}", &[]);
        check("match op {\nOp::Dot => 1,\n// tidy: wildcard\n_ => 0,\n}", &["a.rs:5: wildcard"]);
    }
}
