//! Parses PTX text as compilers write it, and returns a [`Module`]. The parser never panics; each
//! error has a line and a column.

pub(crate) mod alias;
mod cursor;
mod expression;
mod function;
mod lexer;
mod number;
pub(crate) mod operands;
mod scope;
mod variable;

use std::fmt;

use rustc_hash::FxHashMap;

use self::cursor::Cursor;
use self::function::FunctionParser;
use self::lexer::TokenKind;
use super::module::{File, Function, FunctionKind, Linkage, Module, Section};
use super::operand::Symbol;
use super::types::StateSpace;

/// The first error in a text that the parser cannot read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
    /// The error.
    pub kind: ParseErrorKind,
}

/// The kind of an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseErrorKind {
    /// A character that PTX does not use.
    Character,
    /// A comment, string or section without an end.
    Unterminated(&'static str),
    /// Another token is expected here.
    Expected(&'static str),
    /// A number that is malformed or does not fit.
    Number(String),
    /// A name that is not declared.
    Undeclared(String),
    /// A name declared twice in one scope, or a function defined twice. A module's variables and
    /// functions may be declared repeatedly.
    Redeclared(String),
    /// An instruction that the parser does not know.
    UnknownInstruction(String),
    /// A modifier that the instruction does not have at this position, or a missing modifier.
    Modifier {
        /// The instruction.
        opcode: String,
        /// The modifier, without the dot; empty if a modifier is missing.
        modifier: String,
    },
    /// A spelling of an instruction that is newer than the `.version` of the module.
    Version {
        /// The instruction.
        opcode: String,
        /// The first version that has the spelling.
        needed: (u32, u32),
    },
    /// Too few or too many operands.
    OperandCount,
    /// A part of the language that is not supported.
    Unsupported(String),
    /// Scopes or expressions that are nested too deeply. Also an array with too many extents, or
    /// with `[]` after the first.
    Nesting,
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: {}", self.line, self.column, self.kind)
    }
}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character => formatter.write_str("a character that PTX does not use"),
            Self::Unterminated(what) => write!(formatter, "a {what} without an end"),
            Self::Expected(what) => write!(formatter, "expected {what}"),
            Self::Number(text) => write!(formatter, "`{text}` is not a number, or does not fit"),
            Self::Undeclared(name) => write!(formatter, "`{name}` is not declared"),
            Self::Redeclared(name) => write!(formatter, "`{name}` is declared twice"),
            Self::UnknownInstruction(name) => write!(formatter, "the instruction `{name}` is not supported"),
            Self::Modifier { opcode, modifier } if modifier.is_empty() => {
                write!(formatter, "`{opcode}` lacks a modifier at its end")
            }
            Self::Modifier { opcode, modifier } => {
                write!(formatter, "`{opcode}`: the modifier `.{modifier}` is not supported here")
            }
            Self::Version { opcode, needed: (major, minor) } => {
                write!(formatter, "`{opcode}` needs `.version` {major}.{minor} or newer")
            }
            Self::OperandCount => formatter.write_str("too few or too many operands"),
            Self::Unsupported(what) => write!(formatter, "{what} is not supported"),
            Self::Nesting => formatter.write_str("nested too deeply"),
        }
    }
}

impl std::error::Error for ParseError {}

/// Parses a module. Comments are dropped, debug sections are verbatim, everything else is typed.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let tokens = lexer::tokenize(text)?;
    let cursor = Cursor { tokens: tokens.into(), position: 0 };
    let mut parser = ModuleParser { cursor, module: Module::new((0, 0), ""), symbols: FxHashMap::default() };
    parser.header()?;
    while parser.cursor.kind() != TokenKind::End {
        parser.item()?;
    }
    Ok(parser.module)
}

/// Decodes a path whose bytes outside of ASCII are in octal: `\303\266`.
fn unescaped_path(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = digits.and_then(|digits| str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &others[3..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The variable or function that each name of a module refers to.
pub(crate) type Symbols<'a> = FxHashMap<&'a str, Symbol>;

struct ModuleParser<'a> {
    cursor: Cursor<'a>,
    module: Module,
    symbols: Symbols<'a>,
}

impl ModuleParser<'_> {
    fn header(&mut self) -> Result<(), ParseError> {
        self.cursor.expect(".version")?;
        let version = self.cursor.take_kind(TokenKind::Number).unwrap_or_default();
        let parts = version
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        self.module.version = parts
            .ok_or_else(|| self.cursor.error_before(ParseErrorKind::Expected("a version, like `8.4`")))?;
        self.cursor.expect(".target")?;
        self.module.target = self.cursor.word("a target, like `sm_90a`")?.to_owned();
        while self.cursor.take(",") {
            self.module.target_options.push(self.cursor.word("an option of the target")?.to_owned());
        }
        if self.cursor.take(".address_size") {
            self.module.address_size = self.cursor.unsigned_32()?;
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(), ParseError> {
        let linkage = self.linkage();
        let word = self.cursor.word("a directive")?;
        match word {
            ".global" => self.variables(linkage, StateSpace::Global),
            ".const" => self.variables(linkage, StateSpace::Const),
            ".shared" => self.variables(linkage, StateSpace::Shared),
            ".entry" => self.function(linkage, FunctionKind::Entry),
            ".func" => self.function(linkage, FunctionKind::Function),
            ".file" => self.file(),
            ".section" => self.section(),
            ".pragma" => {
                let mut strings = pragma(&mut self.cursor)?;
                self.module.pragmas.append(&mut strings);
                Ok(())
            }
            ".alias" => self.alias(),
            _ => Err(self.cursor.error_before(ParseErrorKind::Unsupported(format!("`{word}`")))),
        }
    }

    fn linkage(&mut self) -> Linkage {
        let words = [
            (".visible", Linkage::Visible),
            (".extern", Linkage::Extern),
            (".weak", Linkage::Weak),
            (".common", Linkage::Common),
        ];
        let found = words.into_iter().find(|(word, _)| self.cursor.take(word));
        found.map_or(Linkage::Internal, |(_, linkage)| linkage)
    }

    fn variables(&mut self, linkage: Linkage, space: StateSpace) -> Result<(), ParseError> {
        for (name, mut variable) in variable::declarations(&mut self.cursor, space, &self.symbols)? {
            variable.linkage = linkage;
            // A variable may be declared `.extern` and then defined. A second definition is not
            // rejected.
            match self.symbols.get(name) {
                Some(&Symbol::Global(id)) => {
                    if linkage != Linkage::Extern {
                        self.module.globals[id] = variable;
                    }
                }
                Some(_) => return Err(self.cursor.error_before(ParseErrorKind::Redeclared(name.to_owned()))),
                None => {
                    let id = self.module.globals.push(variable);
                    self.symbols.insert(name, Symbol::Global(id));
                }
            }
        }
        Ok(())
    }

    fn function(&mut self, linkage: Linkage, kind: FunctionKind) -> Result<(), ParseError> {
        let function = Function { body: None, ..Function::new("", kind, linkage) };
        let cursor = self.cursor.clone();
        let mut parser =
            FunctionParser::new(cursor, function, std::mem::take(&mut self.symbols), self.module.version);
        let name = parser.head()?;
        let id = match parser.symbols.get(name) {
            Some(&Symbol::Function(id)) => id,
            Some(_) => return Err(parser.cursor.error(ParseErrorKind::Redeclared(name.to_owned()))),
            None => {
                let declared = Function::new(name, kind, linkage);
                let id = self.module.functions.push(Function { body: None, ..declared });
                parser.symbols.insert(name, Symbol::Function(id));
                id
            }
        };
        parser.body()?;
        self.cursor.position = parser.cursor.position;
        self.symbols = parser.symbols;
        let is_defined = self.module.functions[id].body.is_some();
        if is_defined && parser.function.body.is_some() {
            return Err(self.cursor.error_before(ParseErrorKind::Redeclared(name.to_owned())));
        }
        if !is_defined {
            self.module.functions[id] = parser.function;
        }
        Ok(())
    }

    fn file(&mut self) -> Result<(), ParseError> {
        let number = self.cursor.unsigned_32()?;
        let path = unescaped_path(self.cursor.string()?);
        let stamp = if self.cursor.take(",") {
            let time = self.cursor.unsigned()?;
            self.cursor.expect(",")?;
            Some((time, self.cursor.unsigned()?))
        } else {
            None
        };
        self.module.files.push(File { number, path, stamp });
        Ok(())
    }

    fn section(&mut self) -> Result<(), ParseError> {
        let name = self.cursor.word("the name of a section")?.to_owned();
        let text = self
            .cursor
            .take_kind(TokenKind::Raw)
            .ok_or_else(|| self.cursor.error(ParseErrorKind::Expected("the text of a section")))?;
        self.module.sections.push(Section { name, text: text.to_owned() });
        Ok(())
    }

    fn alias(&mut self) -> Result<(), ParseError> {
        let name = self.cursor.word("a name")?;
        self.cursor.expect(",")?;
        let target = self.cursor.word("the name of a function")?;
        let Some(&Symbol::Function(id)) = self.symbols.get(target) else {
            return Err(self.cursor.error_before(ParseErrorKind::Undeclared(target.to_owned())));
        };
        self.cursor.expect(";")?;
        self.module.aliases.push((name.to_owned(), id));
        // Calls of a declared alias stay calls of the declaration.
        self.symbols.entry(name).or_insert(Symbol::Function(id));
        Ok(())
    }
}

/// Parses the strings of `.pragma "…", "…";`. The cursor is after the word `.pragma`.
pub(crate) fn pragma(cursor: &mut Cursor<'_>) -> Result<Vec<String>, ParseError> {
    let mut strings = vec![cursor.string()?.to_owned()];
    while cursor.take(",") {
        strings.push(cursor.string()?.to_owned());
    }
    cursor.expect(";")?;
    Ok(strings)
}
