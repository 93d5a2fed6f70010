//! Parses the operands of one instruction.

use smallvec::SmallVec;

use super::function::FunctionParser;
use super::lexer::{Token, TokenKind};
use super::scope::Entity;
use super::{ParseErrorKind, expression, number};
use crate::isa::module::RegisterId;
use crate::isa::operand::{
    Address, AddressBase, BranchTableId, BranchTarget, CallOperands, Callee, Immediate, Source, Symbol,
};
use crate::isa::operand_form::OperandForm;
use crate::isa::special::SpecialRegister;

/// The reason why a row of the table does not match. The row that parsed the most determines the
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mismatch {
    /// A modifier, with the number of unread bytes of the opcode.
    Modifier(usize),
    /// An operand, with the index of the token and the error.
    Operand(usize, ParseErrorKindAt),
}

/// The error of an operand. [`Self::at`] adds the text of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParseErrorKindAt {
    Expected(&'static str),
    /// The name is not declared, or is that of an unsupported special register.
    Undeclared,
    Number,
    Count,
}

impl ParseErrorKindAt {
    pub(crate) fn at(self, token: &str) -> ParseErrorKind {
        match self {
            Self::Expected(what) => ParseErrorKind::Expected(what),
            Self::Undeclared if is_special(token) => {
                ParseErrorKind::Unsupported(format!("the special register `{token}`"))
            }
            Self::Undeclared => ParseErrorKind::Undeclared(token.to_owned()),
            Self::Number => ParseErrorKind::Number(token.to_owned()),
            Self::Count => ParseErrorKind::OperandCount,
        }
    }
}

/// Returns whether the name is a special register that [`SpecialRegister`] lacks. These are
/// vectors, and registers of the driver and the performance counters.
fn is_special(name: &str) -> bool {
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    is_numbered("%envreg") || is_numbered("%pm") || matches!(name, "%tid" | "%ntid" | "%ctaid" | "%nctaid")
}

/// Reads the operands of one instruction, up to the semicolon.
pub(crate) struct OperandParser<'p, 'a> {
    pub(crate) function: &'p mut FunctionParser<'a>,
    /// True if the opcode announces a cache policy.
    hinted: bool,
    is_first: bool,
    /// The number of optional operands that are present and not parsed yet.
    extra: usize,
}

impl<'p, 'a> OperandParser<'p, 'a> {
    pub(crate) fn new(function: &'p mut FunctionParser<'a>, opcode: &str) -> Self {
        Self { function, hinted: opcode.contains(".L2::cache_hint"), is_first: true, extra: 0 }
    }

    fn mismatch(&self, kind: ParseErrorKindAt) -> Mismatch {
        Mismatch::Operand(self.function.cursor.position, kind)
    }

    /// Counts the operands up to the semicolon. Operands after the first `required` ones are
    /// optional. Fails if there are fewer than `required`.
    pub(crate) fn begin(&mut self, required: usize) -> Result<(), Mismatch> {
        let mut depth = 0_usize;
        let mut count = usize::from(!self.at(";"));
        for token in &self.function.cursor.tokens[self.function.cursor.position..] {
            match (token.kind, token.text) {
                (TokenKind::End, _) | (TokenKind::Punctuation, ";") => break,
                (TokenKind::Punctuation, "(" | "[" | "{") => depth += 1,
                (TokenKind::Punctuation, ")" | "]" | "}") => depth = depth.saturating_sub(1),
                (TokenKind::Punctuation, ",") if depth == 0 => count += 1,
                _ => {}
            }
        }
        self.is_first = true;
        self.extra = count.saturating_sub(required);
        if count < required { Err(self.mismatch(ParseErrorKindAt::Count)) } else { Ok(()) }
    }

    /// Parses an operand of the row, or finds that an optional one is absent.
    pub(crate) fn operand<T: OperandForm>(&mut self) -> Result<T, Mismatch> {
        let position = self.function.cursor.position;
        if !self.is_first {
            if self.at(",") {
                self.function.cursor.position += 1;
            } else if T::REQUIRED {
                return Err(self.mismatch(ParseErrorKindAt::Expected("`,`")));
            }
        }
        if let Some(absent) = T::absent() {
            if self.extra == 0 || !T::begins(self) {
                self.function.cursor.position = position;
                return Ok(absent);
            }
            self.extra -= 1;
        }
        self.is_first = false;
        T::parse(self)
    }

    /// Parses the semicolon.
    pub(crate) fn end(&mut self) -> Result<(), Mismatch> {
        if self.at(",") {
            return Err(self.mismatch(ParseErrorKindAt::Count));
        }
        self.expect(";")
    }

    /// Returns whether the instruction has a cache policy, as its opcode announces.
    pub(crate) fn has_policy(&self) -> bool {
        self.hinted
    }

    /// Returns whether there is an optional operand other than the cache policy.
    pub(crate) fn has_spare(&self) -> bool {
        self.extra > usize::from(self.hinted)
    }

    pub(crate) fn at(&self, text: &str) -> bool {
        self.function.cursor.at(text)
    }

    pub(crate) fn take(&mut self, text: &str) -> bool {
        self.function.cursor.take(text)
    }

    pub(crate) fn expect(&mut self, text: &'static str) -> Result<(), Mismatch> {
        if self.take(text) { Ok(()) } else { Err(self.mismatch(ParseErrorKindAt::Expected(quoted(text)))) }
    }

    fn word(&mut self, what: &'static str) -> Result<&'a str, Mismatch> {
        match self.function.cursor.take_kind(TokenKind::Word) {
            Some(word) => Ok(word),
            None => Err(self.mismatch(ParseErrorKindAt::Expected(what))),
        }
    }

    /// Returns an error about the previous token.
    fn before<T>(&self, kind: ParseErrorKindAt) -> Result<T, Mismatch> {
        Err(Mismatch::Operand(self.function.cursor.position - 1, kind))
    }

    fn entity(&mut self, what: &'static str) -> Result<Option<Entity>, Mismatch> {
        let word = self.word(what)?;
        Ok(self.function.names.find(&mut self.function.function, word))
    }

    pub(crate) fn register(&mut self) -> Result<RegisterId, Mismatch> {
        match self.entity("a register")? {
            Some(Entity::Register(register)) => Ok(register),
            Some(_) => self.before(ParseErrorKindAt::Expected("a register")),
            None => self.before(ParseErrorKindAt::Undeclared),
        }
    }

    pub(crate) fn source(&mut self) -> Result<Source, Mismatch> {
        if self.function.cursor.kind() != TokenKind::Word {
            return self.immediate().map(Source::Immediate);
        }
        let word = self.word("an operand")?;
        if let Some(special) = SpecialRegister::from_name(word) {
            return Ok(Source::Special(special));
        }
        if word == "WARP_SZ" {
            return Ok(Source::from(32));
        }
        let symbol = match self.function.names.find(&mut self.function.function, word) {
            Some(Entity::Register(register)) => return Ok(Source::Register(register)),
            Some(Entity::Variable(variable)) => Symbol::Variable(variable),
            Some(_) => {
                return self.before(ParseErrorKindAt::Expected("a register, a constant or a variable"));
            }
            None => match self.function.symbols.get(word) {
                Some(&symbol) => symbol,
                None => return self.before(ParseErrorKindAt::Undeclared),
            },
        };
        Ok(Source::Symbol(symbol, self.offset()?))
    }

    /// Parses a number, or an expression of numbers.
    fn immediate(&mut self) -> Result<Immediate, Mismatch> {
        let start = self.function.cursor.position;
        let is_number = self.function.cursor.kind() == TokenKind::Number;
        if !is_number && !["-", "+", "~", "!", "("].into_iter().any(|begin| self.at(begin)) {
            return Err(self.mismatch(ParseErrorKindAt::Expected("an operand")));
        }
        let after = self.function.cursor.at_position(start + 1).text;
        if is_number && matches!(after, "," | ";" | "]" | "}" | ")") {
            self.function.cursor.position += 1;
            let value = number::parse(self.function.cursor.at_position(start).text);
            return value.ok_or(Mismatch::Operand(start, ParseErrorKindAt::Number));
        }
        expression::constant(&mut self.function.cursor).map_err(|error| {
            let is_here = |token: &Token<'_>| (token.line, token.column) == (error.line, error.column);
            let position = self.function.cursor.tokens[start..].iter().position(is_here).unwrap_or(0);
            let kind = match error.kind {
                ParseErrorKind::Expected(what) => ParseErrorKindAt::Expected(what),
                // tidy: wildcard because other errors of an expression concern a number.
                _ => ParseErrorKindAt::Number,
            };
            Mismatch::Operand(start + position, kind)
        })
    }

    /// Parses `+ 8`, `- 8`, `+ -8`, `+ 4 * 2`, or nothing.
    fn offset(&mut self) -> Result<i64, Mismatch> {
        if !self.at("+") && !self.at("-") {
            return Ok(0);
        }
        self.take("+");
        match self.immediate()? {
            Immediate::Integer(value) => Ok(value),
            Immediate::F32(_) | Immediate::F64(_) => self.before(ParseErrorKindAt::Number),
        }
    }

    /// Parses the text between the brackets of an address.
    pub(crate) fn address(&mut self) -> Result<Address, Mismatch> {
        let (base, start) = match self.source()? {
            Source::Register(register) => (AddressBase::Register(register), 0),
            Source::Symbol(symbol, offset) => (AddressBase::Symbol(symbol), offset),
            Source::Immediate(Immediate::Integer(offset)) => (AddressBase::Absolute, offset),
            Source::Immediate(_) | Source::Special(_) => {
                return self.before(ParseErrorKindAt::Expected("an address"));
            }
        };
        Ok(Address { base, offset: start.wrapping_add(self.offset()?) })
    }

    pub(crate) fn braced<T: OperandForm>(&mut self) -> Result<SmallVec<[T; 4]>, Mismatch> {
        self.expect("{")?;
        let mut items = SmallVec::new();
        loop {
            items.push(T::parse(self)?);
            if !self.take(",") {
                self.expect("}")?;
                return Ok(items);
            }
        }
    }

    pub(crate) fn target(&mut self) -> Result<BranchTarget, Mismatch> {
        match self.entity("a label")? {
            Some(Entity::Label(label)) => Ok(BranchTarget(label)),
            Some(_) => self.before(ParseErrorKindAt::Expected("a label")),
            None => self.before(ParseErrorKindAt::Undeclared),
        }
    }

    pub(crate) fn branch_table(&mut self) -> Result<BranchTableId, Mismatch> {
        match self.entity("a list of branch targets")? {
            Some(Entity::BranchTable(table)) => Ok(table),
            Some(_) => self.before(ParseErrorKindAt::Expected("a list of branch targets")),
            None => self.before(ParseErrorKindAt::Undeclared),
        }
    }

    /// Parses `(result), function, (argument, …), prototype`: all but the function are optional.
    pub(crate) fn call(&mut self) -> Result<CallOperands, Mismatch> {
        let mut returns = Vec::new();
        if self.at("(") {
            returns = self.arguments()?;
            self.expect(",")?;
        }
        let callee = self.source()?;
        let callee_position = self.function.cursor.position - 1;
        let mut arguments = Vec::new();
        let mut prototype = None;
        while self.take(",") {
            if self.at("(") && prototype.is_none() {
                arguments = self.arguments()?;
            } else if let Some(Entity::Prototype(found)) = self.entity("a prototype")? {
                prototype = Some(found);
            } else {
                return self.before(ParseErrorKindAt::Expected("a prototype"));
            }
        }
        let callee = match (callee, prototype) {
            (Source::Symbol(Symbol::Function(function), 0), _) => Callee::Direct(function),
            (Source::Register(register), Some(prototype)) => Callee::Indirect(register, prototype),
            _ => {
                let kind = ParseErrorKindAt::Expected("a function, or a register with a prototype");
                return Err(Mismatch::Operand(callee_position, kind));
            }
        };
        Ok(CallOperands { returns, callee, arguments })
    }

    fn arguments(&mut self) -> Result<Vec<Source>, Mismatch> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.source()?);
        }
        Ok(arguments)
    }
}

/// Returns a punctuation mark as messages show it.
pub(crate) fn quoted(text: &'static str) -> &'static str {
    match text {
        "[" => "`[`",
        "]" => "`]`",
        "{" => "`{`",
        "}" => "`}`",
        "(" => "`(`",
        ")" => "`)`",
        "," => "`,`",
        ";" => "`;`",
        ":" => "`:`",
        "=" => "`=`",
        "<" => "`<`",
        ">" => "`>`",
        _ => text,
    }
}
