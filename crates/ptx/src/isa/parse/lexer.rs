//! Splits text into tokens. A word may contain dots and `::`, so an opcode with modifiers is one
//! word.

use super::{ParseError, ParseErrorKind};

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// An identifier, an opcode, a directive.
    Word,
    /// A number.
    Number,
    /// The text between quotes.
    String,
    /// Any other character, by itself.
    Punctuation,
    /// The text of a section of debug information, with its braces.
    Raw,
    /// The end of the text.
    End,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    /// The line, from 1.
    pub(crate) line: u32,
    /// The column in bytes, from 1.
    pub(crate) column: u32,
}

struct Lexer<'a> {
    text: &'a str,
    position: usize,
    line: u32,
    line_start: usize,
}

/// Returns the tokens of a text; the last is [`TokenKind::End`].
pub(crate) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { text, position: 0, line: 1, line_start: 0 };
    // Assemblers reject characters outside of ASCII, even in comments.
    if let Some(position) = text.find(|character: char| !character.is_ascii()) {
        lexer.skip_over(position);
        return Err(lexer.error(ParseErrorKind::Character));
    }
    let mut tokens = Vec::with_capacity(text.len() / 4);
    loop {
        let token = lexer.next()?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
        if token.text == ".section" && token.kind == TokenKind::Word {
            tokens.push(lexer.section_name()?);
            tokens.push(lexer.raw_block()?);
        }
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn is_word(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit()
}

impl<'a> Lexer<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.position + ahead).copied().unwrap_or(0)
    }

    fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.position + 1;
    }

    fn error(&self, kind: ParseErrorKind) -> ParseError {
        ParseError { line: self.line, column: (self.position - self.line_start) as u32 + 1, kind }
    }

    fn skip_space(&mut self) -> Result<(), ParseError> {
        while self.position < self.text.len() {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.newline();
                    self.position += 1;
                }
                (byte, _) if byte.is_ascii_whitespace() || byte == 0 => self.position += 1,
                (b'/', b'/') => {
                    let rest = &self.text[self.position..];
                    self.position += rest.find('\n').unwrap_or(rest.len());
                }
                // Skips a line of a preprocessor.
                (b'#', _) if self.text[self.line_start..self.position].trim().is_empty() => {
                    let rest = &self.text[self.position..];
                    self.position += rest.find('\n').unwrap_or(rest.len());
                }
                (b'/', b'*') => {
                    let start = self.error(ParseErrorKind::Unterminated("comment"));
                    let length = self.text[self.position + 2..].find("*/").ok_or(start)?;
                    self.skip_over(length + 4);
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Skips bytes, counting lines.
    fn skip_over(&mut self, length: usize) {
        let end = self.position + length;
        while self.position < end {
            if self.byte(0) == b'\n' {
                self.newline();
            }
            self.position += 1;
        }
    }

    fn take(&mut self, kind: TokenKind, length: usize) -> Token<'a> {
        let text = &self.text[self.position..self.position + length];
        let column = (self.position - self.line_start) as u32 + 1;
        let token = Token { kind, text, line: self.line, column };
        self.skip_over(length);
        token
    }

    fn next(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_space()?;
        if self.position >= self.text.len() {
            return Ok(self.take(TokenKind::End, 0));
        }
        let first = self.byte(0);
        let is_fraction = first == b'.' && self.byte(1).is_ascii_digit();
        if is_word_start(first) && !is_fraction {
            let mut length = 1;
            loop {
                // `.reg.b16` are two directives.
                if first == b'.' && self.byte(length) == b'.' {
                    return Ok(self.take(TokenKind::Word, length));
                }
                if is_word(self.byte(length)) {
                    length += 1;
                } else if self.byte(length) == b':'
                    && self.byte(length + 1) == b':'
                    && is_word(self.byte(length + 2))
                {
                    length += 2;
                } else {
                    return Ok(self.take(TokenKind::Word, length));
                }
            }
        }
        if first.is_ascii_digit() || is_fraction {
            return Ok(self.number());
        }
        if first == b'"' {
            let rest = &self.text[self.position + 1..];
            let length = rest.find('"').ok_or_else(|| self.error(ParseErrorKind::Unterminated("string")))?;
            let mut token = self.take(TokenKind::String, length + 2);
            token.text = &token.text[1..=length];
            return Ok(token);
        }
        Ok(self.take(TokenKind::Punctuation, 1))
    }

    fn number(&mut self) -> Token<'a> {
        let prefix = [self.byte(0), self.byte(1).to_ascii_lowercase()];
        let is_bits = matches!(&prefix, b"0x" | b"0f" | b"0d");
        let mut length = 1;
        loop {
            let byte = self.byte(length);
            let is_exponent_sign = matches!(byte, b'+' | b'-')
                && !is_bits
                && matches!(self.byte(length - 1), b'e' | b'E')
                && self.byte(length + 1).is_ascii_digit();
            if byte.is_ascii_alphanumeric() || byte == b'.' || is_exponent_sign {
                length += 1;
            } else {
                return self.take(TokenKind::Number, length);
            }
        }
    }

    /// Reads the name of a section, which ends at `{` or at a space.
    fn section_name(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_space()?;
        let rest = &self.text[self.position..];
        let length = rest.find(|character: char| character == '{' || character.is_whitespace());
        Ok(self.take(TokenKind::Word, length.unwrap_or(rest.len())))
    }

    /// Reads from `{` to its `}`.
    fn raw_block(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_space()?;
        if self.byte(0) != b'{' {
            return Err(self.error(ParseErrorKind::Expected("`{`")));
        }
        let mut depth = 0_u32;
        let mut length = 0;
        loop {
            match self.byte(length) {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                0 if self.position + length >= self.text.len() => {
                    return Err(self.error(ParseErrorKind::Unterminated("section")));
                }
                _ => {}
            }
            length += 1;
            if depth == 0 {
                return Ok(self.take(TokenKind::Raw, length));
            }
        }
    }
}
