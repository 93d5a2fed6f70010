//! Reads tokens in order, and returns errors with line and column.

use super::lexer::{Token, TokenKind};
use super::operands::quoted;
use super::{ParseError, ParseErrorKind, number};
use crate::isa::operand::Immediate;

/// A position in the tokens.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) tokens: std::rc::Rc<[Token<'a>]>,
    pub(crate) position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn token(&self) -> Token<'a> {
        self.at_position(self.position)
    }

    /// Returns the token at a position. Past the end, returns the last token, the end of the text.
    pub(crate) fn at_position(&self, position: usize) -> Token<'a> {
        self.tokens[position.min(self.tokens.len() - 1)]
    }

    pub(crate) fn kind(&self) -> TokenKind {
        self.token().kind
    }

    pub(crate) fn text(&self) -> &'a str {
        self.token().text
    }

    pub(crate) fn at(&self, text: &str) -> bool {
        let token = self.token();
        token.text == text && matches!(token.kind, TokenKind::Word | TokenKind::Punctuation)
    }

    pub(crate) fn take(&mut self, text: &str) -> bool {
        let found = self.at(text);
        self.position += usize::from(found);
        found
    }

    pub(crate) fn take_kind(&mut self, kind: TokenKind) -> Option<&'a str> {
        let token = self.token();
        if token.kind != kind {
            return None;
        }
        self.position += 1;
        Some(token.text)
    }

    pub(crate) fn error_at(&self, position: usize, kind: ParseErrorKind) -> ParseError {
        let token = self.at_position(position);
        ParseError { line: token.line, column: token.column, kind }
    }

    /// Returns an error about the next token.
    pub(crate) fn error(&self, kind: ParseErrorKind) -> ParseError {
        self.error_at(self.position, kind)
    }

    /// Returns an error about the previous token.
    pub(crate) fn error_before(&self, kind: ParseErrorKind) -> ParseError {
        self.error_at(self.position - 1, kind)
    }

    pub(crate) fn expect(&mut self, text: &'static str) -> Result<(), ParseError> {
        if self.take(text) { Ok(()) } else { Err(self.error(ParseErrorKind::Expected(quoted(text)))) }
    }

    pub(crate) fn word(&mut self, what: &'static str) -> Result<&'a str, ParseError> {
        self.take_kind(TokenKind::Word).ok_or_else(|| self.error(ParseErrorKind::Expected(what)))
    }

    pub(crate) fn string(&mut self) -> Result<&'a str, ParseError> {
        self.take_kind(TokenKind::String).ok_or_else(|| self.error(ParseErrorKind::Expected("a string")))
    }

    /// Parses a number without a sign.
    pub(crate) fn number(&mut self) -> Result<Immediate, ParseError> {
        let text = self
            .take_kind(TokenKind::Number)
            .ok_or_else(|| self.error(ParseErrorKind::Expected("a number")))?;
        number::parse(text).ok_or_else(|| self.error_before(ParseErrorKind::Number(text.to_owned())))
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, ParseError> {
        match self.number()? {
            Immediate::Integer(value) => Ok(value as u64),
            Immediate::F32(_) | Immediate::F64(_) => {
                Err(self.error_before(ParseErrorKind::Expected("an integer")))
            }
        }
    }

    pub(crate) fn unsigned_32(&mut self) -> Result<u32, ParseError> {
        let value = self.unsigned()?;
        let too_large = |_| ParseErrorKind::Number(value.to_string());
        u32::try_from(value).map_err(too_large).map_err(|kind| self.error_before(kind))
    }
}
