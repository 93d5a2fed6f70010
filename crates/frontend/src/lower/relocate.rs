//! Moves diagnostics about an operation of interpret mode to the user's source.
//!
//! The text of the operation and the user's text are parsed, and corresponding nodes are paired.
//! The first argument of `a0(a1, a2)`, for example, corresponds to that of `tl.load(p + i, mask)`.

use std::ops::Range;
use std::sync::Arc;

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;
use tilewright_base::{FileId, Label, SourceFile, Span};

use super::operation::returned;
use crate::Failure;
use crate::parse::{bytes, parse};

/// A range of the user's source.
#[derive(Clone, Debug)]
pub struct Site {
    /// The source file.
    pub file: Arc<SourceFile>,
    /// The range of bytes in the text of the file.
    pub range: Range<u32>,
}

/// Moves the diagnostics about an operation to its position. `sites` has the position of the
/// operation, and then the positions of the calls that lead to the operation. If `sites` is empty,
/// the labels in the operation are removed.
pub fn relocate(failure: &mut Failure, sites: &[Site]) {
    // An error outside of an operation, such as in the head of a loop, has no operation text.
    let operation = failure.sources.files().next();
    let pairs = match (&operation, sites.first()) {
        (Some((_, source)), Some(site)) => pairs(&source.text, site),
        _ => Vec::new(),
    };
    let operation = operation.map(|(file, _)| file);
    let mut sources = failure.sources.clone();
    let places: Vec<Span> = sites
        .iter()
        .map(|site| Span::new(sources.add(Arc::clone(&site.file)), site.range.start, site.range.end))
        .collect();
    for diagnostic in &mut failure.diagnostics {
        let primary = diagnostic.primary.take();
        diagnostic.primary = match primary {
            Some(label) => moved(&label, operation, &pairs, &places)
                .or_else(|| places.first().map(|&span| Label { span, text: label.text })),
            None => places.first().map(|&span| Label { span, text: String::new() }),
        };
        let secondary = std::mem::take(&mut diagnostic.secondary);
        diagnostic.secondary =
            secondary.iter().filter_map(|label| moved(label, operation, &pairs, &places)).collect();
        let callers = places.iter().skip(1);
        diagnostic.secondary.extend(callers.map(|&span| Label { span, text: "called from here".into() }));
    }
    failure.sources = sources;
}

/// Moves a label to the user's source, if it has a counterpart there.
fn moved(label: &Label, operation: Option<FileId>, pairs: &[Pair], places: &[Span]) -> Option<Label> {
    let Span { file, start, end } = label.span;
    if Some(file) != operation {
        return Some(label.clone());
    }
    let (_, there) = pairs.iter().find(|(here, _)| *here == (start..end))?;
    let span = Span { start: there.start, end: there.end, ..*places.first()? };
    Some(Label { span, text: label.text.clone() })
}

/// A range of the operation's text, and the corresponding range of the user's text.
type Pair = (Range<u32>, Range<u32>);

fn pairs(operation: &str, site: &Site) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let text = site.file.text.get(site.range.start as usize..site.range.end as usize).unwrap_or("");
    let Ok(tree) = parse(operation) else { return pairs };
    let [Stmt::FunctionDef(definition)] = &tree.body[..] else { return pairs };
    let Some(expression) = returned(definition) else { return pairs };
    let mut matched =
        Matched { operation, text: text.to_owned(), offset: site.range.start, pairs: &mut pairs };
    // In brackets, an expression may contain line breaks.
    let bracketed = format!("({text}\n)");
    if let Ok(user) = parse(&bracketed)
        && let [Stmt::Expr(statement)] = &user.body[..]
    {
        matched.text = bracketed;
        matched.offset = site.range.start.wrapping_sub(1);
        matched.expression(expression, &statement.value);
    } else if let Ok(user) = parse(text)
        && let ([Stmt::AugAssign(statement)], Expr::BinOp(binary)) = (&user.body[..], expression)
    {
        matched.same(expression, statement);
        matched.between(
            (&*binary.left, &*binary.right),
            (&*statement.target, &*statement.value),
            binary.op.as_str(),
        );
    }
    pairs
}

struct Matched<'a> {
    operation: &'a str,
    /// The user's text, from `offset` in the file on.
    text: String,
    offset: u32,
    pairs: &'a mut Vec<Pair>,
}

impl Matched<'_> {
    fn user(&self, range: Range<u32>) -> Range<u32> {
        range.start.wrapping_add(self.offset)..range.end.wrapping_add(self.offset)
    }

    fn same(&mut self, operation: &impl Ranged, user: &impl Ranged) {
        let pair = (bytes(operation.range()), self.user(bytes(user.range())));
        self.pairs.push(pair);
    }

    fn between(&mut self, operation: (&Expr, &Expr), user: (&Expr, &Expr), symbol: &str) {
        self.same(operation.0, user.0);
        self.same(operation.1, user.1);
        let find = |text: &str, start: u32, end: u32| {
            let at = text.get(start as usize..end as usize)?.find(symbol)? as u32 + start;
            Some(at..at + symbol.len() as u32)
        };
        let ends = |(left, right): (&Expr, &Expr)| (bytes(left.range()).end, bytes(right.range()).start);
        let ((start, end), (user_start, user_end)) = (ends(operation), ends(user));
        let here = find(self.operation, start, end);
        let there = find(&self.text, user_start, user_end);
        if let (Some(here), Some(there)) = (here, there) {
            let there = self.user(there);
            self.pairs.push((here, there));
        }
    }

    fn expression(&mut self, operation: &Expr, user: &Expr) {
        self.same(operation, user);
        match (operation, user) {
            (Expr::Call(operation), Expr::Call(user)) => {
                self.same(&*operation.func, &*user.func);
                if let (Expr::Attribute(method), Expr::Attribute(name)) = (&*operation.func, &*user.func) {
                    self.same(&*method.value, &*name.value);
                    self.same(&method.attr, &name.attr);
                }
                let is_plain = |expression: &&Expr| !expression.is_starred_expr();
                let passed = user.arguments.args.iter().take_while(is_plain);
                for (operation, user) in operation.arguments.args.iter().zip(passed) {
                    self.same(operation, user);
                }
                for keyword in &operation.arguments.keywords {
                    let name = keyword.arg.as_ref().map(ruff_python_ast::Identifier::as_str);
                    let is_it = |other: &&ruff_python_ast::Keyword| {
                        other.arg.as_ref().map(ruff_python_ast::Identifier::as_str) == name
                    };
                    if let Some(user) = user.arguments.keywords.iter().find(is_it) {
                        self.same(&keyword.value, &user.value);
                        if let (Some(operation), Some(user)) = (&keyword.arg, &user.arg) {
                            self.same(operation, user);
                        }
                    }
                }
            }
            (Expr::BinOp(operation), Expr::BinOp(user)) => {
                let symbol = operation.op.as_str();
                self.between((&operation.left, &operation.right), (&user.left, &user.right), symbol);
            }
            (Expr::Compare(operation), Expr::Compare(user)) => {
                if let ([right], [user_right], [symbol]) =
                    (&operation.comparators[..], &user.comparators[..], &operation.ops[..])
                {
                    let (left, user_left) = (&*operation.left, &*user.left);
                    self.between((left, right), (user_left, user_right), symbol.as_str());
                }
            }
            (Expr::BoolOp(operation), Expr::BoolOp(user)) if operation.values.len() == user.values.len() => {
                for (operation, user) in operation.values.iter().zip(&user.values) {
                    self.same(operation, user);
                }
            }
            (Expr::UnaryOp(operation), Expr::UnaryOp(user)) => self.same(&*operation.operand, &*user.operand),
            (Expr::Attribute(operation), Expr::Attribute(user)) => {
                self.same(&*operation.value, &*user.value);
                self.same(&operation.attr, &user.attr);
            }
            (Expr::Subscript(operation), Expr::Subscript(user)) => {
                self.same(&*operation.value, &*user.value);
                self.same(&*operation.slice, &*user.slice);
                if let (Expr::Tuple(operation), Expr::Tuple(user)) = (&*operation.slice, &*user.slice) {
                    for (operation, user) in operation.elts.iter().zip(&user.elts) {
                        self.same(operation, user);
                    }
                }
            }
            _ => {}
        }
    }
}
