//! Parses Python with ruff's parser, and finds functions in the syntax tree.
//!
//! Nesting that would exhaust the stack is reported before the parser runs.

use std::ops::Range;

use ruff_python_ast::token::{Token, TokenKind};
use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, ModModule, Stmt, StmtFunctionDef};
use ruff_python_parser::{Mode, ParseOptions, lexer, parse_unchecked};
use ruff_text_size::{Ranged, TextRange};
use tilewright_base::{Code, Diagnostic, FileId, Span};

/// The largest source file, in bytes.
const MAX_TEXT: usize = 1 << 26;

/// The maximum nesting in one logical line. A chain of binary operators is as deep as it is long.
const MAX_EXPRESSION_DEPTH: u32 = 2_000;

/// The maximum nesting of blocks, as in CPython.
const MAX_INDENTATION: u32 = 100;

/// A syntax error.
pub(crate) struct ParseFailure {
    code: Code,
    range: Range<u32>,
    message: String,
    /// A bracket on an earlier line that is still open at the error.
    open: Option<Range<u32>>,
}

impl ParseFailure {
    /// Converts the error to a diagnostic. `file` is the parsed file.
    pub fn diagnostic(self, file: FileId) -> Diagnostic {
        let span = |range: Range<u32>| Span::new(file, range.start, range.end);
        let diagnostic = Diagnostic::at(self.code, span(self.range), self.message);
        match self.open {
            Some(open) => diagnostic.secondary(span(open), "this bracket is still open"),
            None => diagnostic,
        }
    }
}

pub(crate) fn bytes(range: TextRange) -> Range<u32> {
    u32::from(range.start())..u32::from(range.end())
}

/// The syntax tree of a text.
pub(crate) struct Tree(ModModule);

impl std::ops::Deref for Tree {
    type Target = ModModule;

    fn deref(&self) -> &ModModule {
        &self.0
    }
}

/// Dropping recurses, so it needs a stack that suffices for the depth.
impl Drop for Tree {
    fn drop(&mut self) {
        with_stack(|| drop(std::mem::take(&mut self.0.body)));
    }
}

/// Runs a function on a stack that suffices for [`MAX_EXPRESSION_DEPTH`].
pub(crate) fn with_stack<T>(walk: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(1 << 20, 8 << 20, walk)
}

pub(crate) fn parse(text: &str) -> Result<Tree, ParseFailure> {
    with_stack(|| parse_here(text))
}

fn parse_here(text: &str) -> Result<Tree, ParseFailure> {
    if text.len() > MAX_TEXT {
        let message = format!("a source file has at most {MAX_TEXT} bytes, found {}", text.len());
        return Err(ParseFailure { code: Code::TooLarge, range: 0..0, message, open: None });
    }
    check_nesting(text)?;
    let parsed = parse_unchecked(text, ParseOptions::from(Mode::Module));
    if let Some(error) = parsed.errors().first() {
        let message = sentence(&error.error.to_string());
        let mut range = bytes(error.location);
        // An error at the end of a line includes the newline, which the label must not.
        let covered = text.get(range.start as usize..range.end as usize).unwrap_or("");
        if let Some(newline) = covered.find(['\n', '\r']) {
            range.end = range.start + newline as u32;
        }
        let open = open_bracket(text, parsed.tokens(), range.start);
        return Err(ParseFailure { code: Code::SyntaxError, range, message, open });
    }
    match parsed.try_into_module() {
        Some(module) => Ok(Tree(module.into_syntax())),
        None => Err(ParseFailure {
            code: Code::SyntaxError,
            range: 0..0,
            message: "not a module".into(),
            open: None,
        }),
    }
}

/// Returns the innermost bracket that is open at a byte, if the bracket is on an earlier line.
fn open_bracket(text: &str, tokens: &[Token], byte: u32) -> Option<Range<u32>> {
    let mut open = Vec::new();
    for token in tokens.iter().take_while(|token| u32::from(token.range().start()) < byte) {
        match token.kind() {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => open.push(bytes(token.range())),
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => drop(open.pop()),
            _ => {}
        }
    }
    let bracket = open.pop()?;
    text.get(bracket.end as usize..byte as usize)?.contains('\n').then_some(bracket)
}

/// Returns a text with a lower-case first letter.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// Computes an upper bound of the depth of a bracket's syntax tree from its tokens, by the
/// precedence of Python's operators. A chain of `or`, `and` or comparisons adds one level, and each
/// other operator adds one.
#[derive(Clone, Copy, Default)]
struct Nesting {
    /// The depth of the bracket itself.
    base: u32,
    /// The depth of the current operand; 0 before it begins.
    operand: u32,
    /// The number of arithmetic operators in the current chain, and the depth of its deepest
    /// earlier operand.
    chain: u32,
    chain_operand: u32,
    /// The prefix operators and powers in the chain, for which the parser recurses.
    prefixes: u32,
    /// The depths of the deepest earlier operands of the current comparison, `and` and `or`, or 0.
    compared: u32,
    anded: u32,
    ored: u32,
    /// The number of `not`s before the comparison.
    nots: u32,
    /// The clauses, such as `if` and `lambda`, around the current element, and the depth of its
    /// deepest earlier part.
    clauses: u32,
    clause: u32,
    /// The depth of the deepest element before a comma.
    sibling: u32,
}

impl Nesting {
    fn inside(base: u32) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns the depth of a chain, from its deepest earlier operand and its last one.
    fn joined(before: u32, last: u32) -> u32 {
        if before == 0 { last } else { before.max(last) + 1 }
    }

    fn arithmetic(&self) -> u32 {
        self.chain + self.chain_operand.max(self.operand)
    }

    fn comparison(&self) -> u32 {
        self.nots + Self::joined(self.compared, self.arithmetic())
    }

    fn conjunction(&self) -> u32 {
        Self::joined(self.anded, self.comparison())
    }

    fn disjunction(&self) -> u32 {
        Self::joined(self.ored, self.conjunction())
    }

    /// Returns the depth of the content so far.
    fn depth(&self) -> u32 {
        self.sibling.max(self.clauses + self.clause.max(self.disjunction()))
    }

    /// Returns the depth at which the next operand begins.
    fn now(&self) -> u32 {
        let joins = [self.compared, self.anded, self.ored].iter().filter(|before| **before > 0).count();
        self.base + self.clauses + self.nots + self.prefixes + joins as u32
    }

    /// Processes a token that is not a bracket; `before` is the kind of the previous token.
    fn take(&mut self, kind: TokenKind, before: TokenKind) {
        let next_operand = Self { operand: 0, chain: 0, chain_operand: 0, prefixes: 0, ..*self };
        let next_comparison = Self { nots: 0, compared: 0, ..next_operand };
        *self = match kind {
            TokenKind::Comma => Self { sibling: self.depth(), ..Self::inside(self.base) },
            TokenKind::Or => Self { ored: self.ored.max(self.conjunction()), anded: 0, ..next_comparison },
            TokenKind::And => Self { anded: self.anded.max(self.comparison()), ..next_comparison },
            // This `not` belongs to `not in` or `is not`.
            TokenKind::Not if self.operand > 0 || before == TokenKind::Is => *self,
            TokenKind::Not => Self { nots: self.nots + 1, ..*self },
            TokenKind::EqEqual
            | TokenKind::NotEqual
            | TokenKind::Less
            | TokenKind::LessEqual
            | TokenKind::Greater
            | TokenKind::GreaterEqual
            | TokenKind::In
            | TokenKind::Is => Self { compared: self.compared.max(self.arithmetic()), ..next_operand },
            TokenKind::Name | TokenKind::Int | TokenKind::Float | TokenKind::String => {
                Self { operand: self.operand.max(1), ..*self }
            }
            TokenKind::Dot => Self { operand: self.operand + 1, ..*self },
            _ if is_arithmetic(kind) => Self {
                chain: self.chain + 1,
                prefixes: self.prefixes + u32::from(self.operand == 0 || kind == TokenKind::DoubleStar),
                chain_operand: self.chain_operand.max(self.operand),
                operand: 0,
                ..*self
            },
            TokenKind::Comment | TokenKind::NonLogicalNewline => *self,
            // The conditional expression is counted at its `if`.
            TokenKind::Else => {
                Self { clause: self.clause.max(self.disjunction()), ored: 0, anded: 0, ..next_comparison }
            }
            _ => Self {
                clauses: self.clauses + 1,
                clause: self.clause.max(self.disjunction()),
                ored: 0,
                anded: 0,
                ..next_comparison
            },
        };
    }
}

/// Returns whether a token is an operator that binds closer than comparisons.
fn is_arithmetic(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Plus
            | TokenKind::Minus
            | TokenKind::Star
            | TokenKind::Slash
            | TokenKind::DoubleSlash
            | TokenKind::Percent
            | TokenKind::At
            | TokenKind::DoubleStar
            | TokenKind::Vbar
            | TokenKind::Amper
            | TokenKind::CircumFlex
            | TokenKind::LeftShift
            | TokenKind::RightShift
            | TokenKind::Tilde
    )
}

/// Reports nesting that is too deep, before the parser recurses into it.
fn check_nesting(text: &str) -> Result<(), ParseFailure> {
    let mut lexer = lexer::lex(text, Mode::Module);
    let mut outer: Vec<Nesting> = Vec::new();
    let mut here = Nesting::default();
    let mut indentation = 0_u32;
    let mut line = 0;
    let mut before = TokenKind::Newline;
    loop {
        let kind = lexer.next_token();
        if matches!(kind, TokenKind::Newline | TokenKind::NonLogicalNewline) {
            line += 1;
        }
        match kind {
            TokenKind::EndOfFile => return Ok(()),
            TokenKind::Indent => indentation += 1,
            TokenKind::Dedent => indentation = indentation.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi if outer.is_empty() => here = Nesting::default(),
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                outer.push(here);
                here = Nesting::inside(here.now() + 1);
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                if let Some(around) = outer.pop() {
                    here = Nesting { operand: around.operand.max(here.depth()) + 1, ..around };
                }
            }
            other => here.take(other, before),
        }
        before = kind;
        let deepest = here.now().max(here.base + here.depth());
        if deepest > MAX_EXPRESSION_DEPTH || indentation > MAX_INDENTATION {
            let message = if indentation > MAX_INDENTATION {
                format!("blocks nest at most {MAX_INDENTATION} deep")
            } else {
                format!("expressions nest at most {MAX_EXPRESSION_DEPTH} deep")
            };
            return Err(ParseFailure {
                code: Code::TooLarge,
                range: line_start(text, line),
                message,
                open: None,
            });
        }
    }
}

/// Returns the range of the first 60 bytes of a line. `line` counts from 0.
fn line_start(text: &str, line: usize) -> Range<u32> {
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let length = text[start..].bytes().take(60).take_while(|&byte| byte != b'\n').count();
    start as u32..(start + length) as u32
}

/// Returns the first function with this name whose name begins at or after `offset`.
pub(crate) fn find_function<'a>(
    module: &'a ModModule,
    name: &str,
    offset: u32,
) -> Option<&'a StmtFunctionDef> {
    let mut best: Option<&StmtFunctionDef> = None;
    visit_functions(&module.body, &mut |function| {
        let start = u32::from(function.name.start());
        let is_nearer = best.is_none_or(|best| start < u32::from(best.name.start()));
        if function.name.as_str() == name && start >= offset && is_nearer {
            best = Some(function);
        }
    });
    best
}

/// Returns the first lambda of a module, which a user may have tried to compile.
pub(crate) fn find_lambda(module: &ModModule) -> Option<&Expr> {
    let mut finder = Lambda(None);
    with_stack(|| finder.visit_body(&module.body));
    finder.0
}

struct Lambda<'a>(Option<&'a Expr>);

impl<'a> Visitor<'a> for Lambda<'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Lambda(_) if self.0.is_none() => self.0 = Some(expression),
            other => visitor::walk_expr(self, other),
        }
    }
}

/// Visits every function of a module, including those in classes, functions and other blocks.
pub(crate) fn visit_functions<'a>(body: &'a [Stmt], each: &mut impl FnMut(&'a StmtFunctionDef)) {
    let mut blocks: Vec<&[Stmt]> = vec![body];
    while let Some(block) = blocks.pop() {
        for statement in block {
            if let Stmt::FunctionDef(function) = statement {
                each(function);
            }
            blocks.extend(blocks_of(statement));
        }
    }
}

pub(crate) fn blocks_of(statement: &Stmt) -> Vec<&[Stmt]> {
    match statement {
        Stmt::FunctionDef(function) => vec![&function.body],
        Stmt::ClassDef(class) => vec![&class.body],
        Stmt::If(branch) => {
            let mut blocks: Vec<&[Stmt]> = vec![&branch.body];
            blocks.extend(branch.elif_else_clauses.iter().map(|clause| &clause.body[..]));
            blocks
        }
        Stmt::For(each) => vec![&each.body, &each.orelse],
        Stmt::While(each) => vec![&each.body, &each.orelse],
        Stmt::With(with) => vec![&with.body],
        Stmt::Try(attempt) => {
            let mut blocks: Vec<&[Stmt]> = vec![&attempt.body, &attempt.orelse, &attempt.finalbody];
            let handlers = attempt.handlers.iter().filter_map(|handler| handler.as_except_handler());
            blocks.extend(handlers.map(|handler| &handler.body[..]));
            blocks
        }
        Stmt::Match(choice) => choice.cases.iter().map(|case| &case.body[..]).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<Code> {
        parse(text).err().map(|failure| failure.code)
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_an_overflow() {
        for text in [
            "(".repeat(100_000),
            format!("x = {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
            format!("x = {}1", "-".repeat(100_000)),
            format!("x = {}1", "not ".repeat(100_000)),
            format!("x = 1{}", " + 1".repeat(100_000)),
            format!("x = a{}", ".b".repeat(100_000)),
            format!("x = a{}", "()".repeat(100_000)),
            format!("x = {}1", "1 if y else ".repeat(100_000)),
            format!("x = {}1", "lambda: ".repeat(100_000)),
            (0..2_000).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "if x:\n"),
        ] {
            assert_eq!(code(&text), Some(Code::TooLarge), "{}", &text[..20]);
        }
    }

    #[test]
    fn long_flat_texts_are_fine() {
        assert_eq!(code(&format!("x = [{}]", "1 + 2, ".repeat(100_000))), None);
        assert_eq!(code(&"x = f(a + b)[c]\n".repeat(10_000)), None);
        for (first, more) in [
            ("a == 0", " or a == 0"),
            ("a != 0", " and a != 0"),
            ("not a == 0", " or not a == 0"),
            ("a", " < a"),
            ("a", " is not a"),
            ("a + b < c", " and d or a + b < c"),
            ("(a < b)", " or (a < b) and (a[0] + 1 < f(b, c).d)"),
        ] {
            assert_eq!(code(&format!("x = {first}{}\n", more.repeat(10_000))), None, "{more}");
        }
        for more in [" + (a == 1)", " | (a == 1)", " - a"] {
            assert_eq!(code(&format!("x = a{}\n", more.repeat(1_500))), None, "{more}");
        }
    }

    #[test]
    fn functions_are_found_at_or_after_an_offset() {
        let text = "@jit\ndef f(): pass\nif 1:\n  @jit\n  def f(): pass\n";
        let module = parse(text).ok().expect("the text is Python");
        let found =
            |offset| find_function(&module, "f", offset).map(|function| function.name.start().to_u32());
        assert_eq!((found(0), found(10), found(30), found(50)), (Some(9), Some(38), Some(38), None));
    }
}
