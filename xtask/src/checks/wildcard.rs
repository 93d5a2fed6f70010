//! No catch-all arm in a `match` on the enums of the op tables: whoever adds an op must meet every place that has to
//! know it. Where a catch-all is right, the comment above the arm, or behind it, says why:
//! `// tidy: wildcard because ...`.

use syn::visit::{self, Visit};
use syn::{ExprMatch, ItemImpl, Pat, Path, Type};

use crate::tree::{File, Finding, Tree};

/// The enums that the op tables make.
const OP_ENUMS: &[&str] = &["Op", "ElementwiseFn"];

const EXCUSE: &str = "// tidy: wildcard because ";

/// Every `match` whose patterns name variants of an op enum lists them all.
pub fn on_op_enums(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    // A file that does not parse is a finding of the check of tokens, or the compiler's.
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut visitor =
        Visitor { file, lines: file.text.lines().collect(), self_is_op: false, findings: Vec::new() };
    visitor.visit_file(&syntax);
    visitor.findings
}

struct Visitor<'a> {
    file: &'a File,
    lines: Vec<&'a str>,
    /// Inside `impl Op`, where `Self::Dot` is a variant.
    self_is_op: bool,
    findings: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let outer = self.self_is_op;
        self.self_is_op = matches!(&*item.self_ty, Type::Path(path) if names_op_enum(&path.path, 1));
        visit::visit_item_impl(self, item);
        self.self_is_op = outer;
    }

    fn visit_expr_match(&mut self, expr: &'ast ExprMatch) {
        if expr.arms.iter().any(|arm| names_variant(&arm.pat, self.self_is_op)) {
            for arm in expr.arms.iter().filter(|arm| arm.guard.is_none()) {
                if let Some(line) = catch_all_line(&arm.pat)
                    && !self.is_excused(line)
                {
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
    /// Whether the line, or the comment that stands directly above it, says why the catch-all is right.
    fn is_excused(&self, line: usize) -> bool {
        let text = |line: usize| self.lines.get(line.wrapping_sub(1)).copied().unwrap_or_default();
        let comment_above = (1..line).rev().map(text).take_while(|text| text.trim_start().starts_with("//"));
        std::iter::once(text(line)).chain(comment_above).any(|text| text.contains(EXCUSE))
    }
}

/// Whether the pattern names a variant of an op enum at its top (behind references, parentheses, `|`, and in tuples).
fn names_variant(pattern: &Pat, self_is_op: bool) -> bool {
    let is_variant = |path: &Path| {
        names_op_enum(path, 2) || (self_is_op && path.segments.len() == 2 && path.segments[0].ident == "Self")
    };
    match pattern {
        Pat::Path(pattern) => is_variant(&pattern.path),
        Pat::Struct(pattern) => is_variant(&pattern.path),
        Pat::TupleStruct(pattern) => is_variant(&pattern.path),
        Pat::Reference(pattern) => names_variant(&pattern.pat, self_is_op),
        Pat::Paren(pattern) => names_variant(&pattern.pat, self_is_op),
        Pat::Ident(pattern) => pattern.subpat.iter().any(|(_, pattern)| names_variant(pattern, self_is_op)),
        Pat::Or(pattern) => pattern.cases.iter().any(|case| names_variant(case, self_is_op)),
        Pat::Tuple(pattern) => pattern.elems.iter().any(|element| names_variant(element, self_is_op)),
        _ => false,
    }
}

/// Whether the segment of the path that is `from_end`-th from its end is an op enum.
fn names_op_enum(path: &Path, from_end: usize) -> bool {
    path.segments
        .iter()
        .rev()
        .nth(from_end - 1)
        .is_some_and(|segment| OP_ENUMS.iter().any(|name| segment.ident == name))
}

/// The line of the pattern if it matches everything: `_`, a bare name, or a tuple of such.
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

/// A lower-case name binds; an upper-case one is a constant or an imported variant.
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
