//! Formats the syntax tree as text, for `--emit ast`.

use std::fmt::Write;

use ruff_python_ast::visitor::source_order::{SourceOrderVisitor, TraversalSignal, walk_stmt};
use ruff_python_ast::{AnyNodeRef, Stmt};
use ruff_text_size::Ranged;
use tilewright_base::{SourceFile, SourceMap};

use crate::Failure;
use crate::parse::{self, with_stack};

/// The maximum number of characters of a node's source text.
const MAX_SNIPPET: usize = 60;

/// Formats the syntax tree of a function. Formats the whole file if `function` is `None`, or if the
/// file has no such function. Each node is one indented line with its kind, its position, and at
/// most 60 characters of the first line of its source.
pub fn dump_ast(file: &SourceFile, function: Option<&str>) -> Result<String, Box<Failure>> {
    let module = parse::parse(&file.text).map_err(|failure| {
        let mut sources = SourceMap::default();
        let id = sources.add(file.clone());
        Box::new(Failure { diagnostics: vec![failure.diagnostic(id)], sources })
    })?;
    let mut dump = Dump { file, depth: 0, text: String::new() };
    with_stack(|| match function.and_then(|name| parse::find_function(&module, name, 0)) {
        Some(function) => walk_stmt(&mut dump, &Stmt::FunctionDef(function.clone())),
        None => module.body.iter().for_each(|statement| dump.visit_stmt(statement)),
    });
    Ok(dump.text)
}

struct Dump<'f> {
    file: &'f SourceFile,
    depth: usize,
    text: String,
}

impl<'a> SourceOrderVisitor<'a> for Dump<'_> {
    fn enter_node(&mut self, node: AnyNodeRef<'a>) -> TraversalSignal {
        let range = parse::bytes(node.range());
        let source = self.file.text.get(range.start as usize..range.end as usize).unwrap_or("");
        let line = source.lines().next().unwrap_or("").trim_end();
        let snippet: String = line.chars().take(MAX_SNIPPET).collect();
        let ellipsis = if snippet.len() < source.trim_end().len() { " …" } else { "" };
        let (row, column) = self.file.line_column(range.start);
        let kind = format!("{:?}", node.kind());
        let kind = kind.strip_prefix("Expr").filter(|rest| !rest.is_empty()).unwrap_or(&kind);
        let indent = "  ".repeat(self.depth);
        let _ = writeln!(self.text, "{indent}{kind} {row}:{column} {snippet}{ellipsis}");
        self.depth += 1;
        TraversalSignal::Traverse
    }

    fn leave_node(&mut self, _node: AnyNodeRef<'a>) {
        self.depth -= 1;
    }
}
