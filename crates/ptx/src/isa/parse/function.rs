//! Parses a function: its header, its declarations, its statements.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::cursor::Cursor;
use super::lexer::TokenKind;
use super::operands::{Mismatch, OperandParser};
use super::scope::{Entity, Names};
use super::{ParseError, ParseErrorKind, Symbols, alias, pragma, variable};
use crate::isa::instruction::{Instruction, RowParser};
use crate::isa::modifier::Opcode;
use crate::isa::module::{Function, Inlined, Location, Statement, StatementKind, Variable, VariableId};
use crate::isa::operand::{BranchTable, Predicate, Prototype};
use crate::isa::types::StateSpace;

/// The deepest nesting of scopes.
const MAX_DEPTH: usize = 64;

/// The rows of the table by the first word of the mnemonic.
static ROWS: LazyLock<FxHashMap<&str, Vec<(&str, RowParser)>>> = LazyLock::new(|| {
    let mut rows: FxHashMap<&str, Vec<(&str, RowParser)>> = FxHashMap::default();
    for &(mnemonic, parser) in Instruction::ROWS {
        let first = mnemonic.split('.').next().unwrap_or(mnemonic);
        rows.entry(first).or_default().push((mnemonic, parser));
    }
    rows
});

/// The parser of one function.
pub(crate) struct FunctionParser<'a> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) function: Function,
    pub(crate) names: Names<'a>,
    pub(crate) symbols: Symbols<'a>,
    /// The version of the module.
    version: (u32, u32),
}

impl<'a> FunctionParser<'a> {
    pub(crate) fn new(
        cursor: Cursor<'a>,
        function: Function,
        symbols: Symbols<'a>,
        version: (u32, u32),
    ) -> Self {
        let reserved = symbols.keys().map(|&name| name.to_owned()).collect();
        Self { cursor, function, names: Names::new(reserved), symbols, version }
    }

    /// Parses results, name, parameters and directives; returns the name.
    pub(crate) fn head(&mut self) -> Result<&'a str, ParseError> {
        if self.cursor.at("(") {
            self.function.returns = self.parameters()?;
        }
        let name = self.cursor.word("the name of a function")?;
        name.clone_into(&mut self.function.name);
        if self.cursor.at("(") {
            self.function.parameters = self.parameters()?;
        }
        self.directives()?;
        Ok(name)
    }

    fn parameters(&mut self) -> Result<Vec<VariableId>, ParseError> {
        let mut parameters = Vec::new();
        for (name, variable) in self.parameter_list()? {
            let declared = self.names.declare_variable(&mut self.function, name, variable);
            let redeclared = || self.cursor.error_before(ParseErrorKind::Redeclared(name.to_owned()));
            parameters.push(declared.ok_or_else(redeclared)?);
        }
        Ok(parameters)
    }

    fn parameter_list(&mut self) -> Result<Vec<(&'a str, Variable)>, ParseError> {
        self.cursor.expect("(")?;
        let mut parameters = Vec::new();
        while !self.cursor.take(")") {
            if !parameters.is_empty() {
                self.cursor.expect(",")?;
            }
            if self.cursor.at(".reg") {
                let what = "a parameter in a register".to_owned();
                return Err(self.cursor.error(ParseErrorKind::Unsupported(what)));
            }
            self.cursor.expect(".param")?;
            parameters.push(variable::parameter(&mut self.cursor)?);
        }
        Ok(parameters)
    }

    fn extents(&mut self) -> Result<Vec<u32>, ParseError> {
        let mut extents = vec![self.cursor.unsigned_32()?];
        while self.cursor.take(",") {
            extents.push(self.cursor.unsigned_32()?);
        }
        Ok(extents)
    }

    fn directives(&mut self) -> Result<(), ParseError> {
        while !self.cursor.at("{") && !self.cursor.at(";") {
            let word = self.cursor.word("`{`, `;` or a directive")?;
            match word {
                ".maxntid" => self.function.directives.max_threads = Some(self.extents()?),
                ".reqntid" => self.function.directives.required_threads = Some(self.extents()?),
                ".minnctapersm" => self.function.directives.min_blocks = Some(self.cursor.unsigned_32()?),
                ".maxnctapersm" => self.function.directives.max_blocks = Some(self.cursor.unsigned_32()?),
                ".maxnreg" => self.function.directives.max_registers = Some(self.cursor.unsigned_32()?),
                ".reqnctapercluster" => self.function.directives.required_cluster = Some(self.extents()?),
                ".maxclusterrank" => {
                    self.function.directives.max_cluster_rank = Some(self.cursor.unsigned_32()?);
                }
                ".explicitcluster" => self.function.directives.explicit_cluster = true,
                ".blocksareclusters" => self.function.directives.blocks_are_clusters = true,
                ".noreturn" => self.function.directives.noreturn = true,
                ".abi_preserve" => self.function.directives.abi_preserve = Some(self.cursor.unsigned_32()?),
                ".abi_preserve_control" => {
                    self.function.directives.abi_preserve_control = Some(self.cursor.unsigned_32()?);
                }
                ".pragma" => {
                    let mut strings = pragma(&mut self.cursor)?;
                    self.function.directives.pragmas.append(&mut strings);
                }
                _ => {
                    return Err(self.cursor.error_before(ParseErrorKind::Unsupported(format!("`{word}`"))));
                }
            }
        }
        Ok(())
    }

    /// Parses the body, or the semicolon of a declaration.
    pub(crate) fn body(&mut self) -> Result<(), ParseError> {
        if self.cursor.take(";") {
            return Ok(());
        }
        self.cursor.expect("{")?;
        self.function.body = Some(Vec::new());
        self.labels()?;
        loop {
            let token = self.cursor.token();
            match (token.kind, token.text) {
                (TokenKind::Punctuation, "{") => {
                    self.cursor.position += 1;
                    if self.names.depth() == MAX_DEPTH {
                        return Err(self.cursor.error_before(ParseErrorKind::Nesting));
                    }
                    self.names.open();
                    self.labels()?;
                }
                (TokenKind::Punctuation, "}") => {
                    self.cursor.position += 1;
                    if !self.names.close() {
                        return Ok(());
                    }
                }
                (TokenKind::Punctuation, ";") => self.cursor.position += 1,
                (TokenKind::Word, word) if word.starts_with('.') => self.directive()?,
                (TokenKind::Word, word) if self.cursor.at_position(self.cursor.position + 1).text == ":" => {
                    self.label(word)?;
                }
                _ => self.instruction()?,
            }
        }
    }

    /// Declares the labels of the scope, because jumps may precede them.
    fn labels(&mut self) -> Result<(), ParseError> {
        let mut depth = 0_usize;
        let mut position = self.cursor.position;
        loop {
            let token = self.cursor.at_position(position);
            match (token.kind, token.text) {
                (TokenKind::End, _) => return Ok(()),
                (TokenKind::Punctuation, "{") => depth += 1,
                (TokenKind::Punctuation, "}") if depth == 0 => return Ok(()),
                (TokenKind::Punctuation, "}") => depth -= 1,
                (TokenKind::Word, name) if depth == 0 => {
                    let next = self.cursor.at_position(position + 1).text;
                    let after = self.cursor.at_position(position + 2).text;
                    let is_label = next == ":" && !matches!(after, ".branchtargets" | ".callprototype");
                    if is_label && !self.names.declare_label(&mut self.function, name) {
                        let kind = ParseErrorKind::Redeclared(name.to_owned());
                        return Err(self.cursor.error_at(position, kind));
                    }
                }
                _ => {}
            }
            position += 1;
        }
    }

    fn push(&mut self, kind: StatementKind, line: u32) {
        let body = self.function.body.as_mut().expect("statements are read after the body was begun");
        body.push(Statement { kind, line });
    }

    fn label(&mut self, name: &'a str) -> Result<(), ParseError> {
        let line = self.cursor.token().line;
        self.cursor.position += 2;
        if self.cursor.take(".branchtargets") {
            return self.branch_targets(name);
        }
        if self.cursor.take(".callprototype") {
            return self.prototype(name);
        }
        match self.names.find(&mut self.function, name) {
            Some(Entity::Label(label)) => {
                self.push(StatementKind::Label(label), line);
                Ok(())
            }
            _ => Err(self.cursor.error_before(ParseErrorKind::Redeclared(name.to_owned()))),
        }
    }

    fn branch_targets(&mut self, name: &'a str) -> Result<(), ParseError> {
        let mut targets = Vec::new();
        loop {
            let label = self.cursor.word("a label")?;
            let Some(Entity::Label(label)) = self.names.find(&mut self.function, label) else {
                return Err(self.cursor.error_before(ParseErrorKind::Undeclared(label.to_owned())));
            };
            targets.push(label);
            if !self.cursor.take(",") {
                break;
            }
        }
        self.cursor.expect(";")?;
        let tables = &mut self.function.branch_tables;
        let make = |name| Entity::BranchTable(tables.push(BranchTable { name, targets }));
        let is_new = self.names.declare_other(name, make);
        self.declared(name, is_new)
    }

    fn prototype(&mut self, name: &'a str) -> Result<(), ParseError> {
        let list = |this: &mut Self| -> Result<Vec<Variable>, ParseError> {
            Ok(this.parameter_list()?.into_iter().map(|(_, variable)| variable).collect())
        };
        let returns = if self.cursor.at("(") { list(self)? } else { Vec::new() };
        self.cursor.expect("_")?;
        let parameters = if self.cursor.at("(") { list(self)? } else { Vec::new() };
        let noreturn = self.cursor.take(".noreturn");
        self.cursor.expect(";")?;
        let prototypes = &mut self.function.prototypes;
        let make =
            |name| Entity::Prototype(prototypes.push(Prototype { name, returns, parameters, noreturn }));
        let is_new = self.names.declare_other(name, make);
        self.declared(name, is_new)
    }

    fn declared(&self, name: &str, is_new: bool) -> Result<(), ParseError> {
        if is_new {
            Ok(())
        } else {
            Err(self.cursor.error_before(ParseErrorKind::Redeclared(name.to_owned())))
        }
    }

    fn directive(&mut self) -> Result<(), ParseError> {
        let line = self.cursor.token().line;
        let word = self.cursor.word("a directive")?;
        let space = match word {
            ".reg" => return self.registers(),
            ".loc" => {
                let location = self.location()?;
                self.push(StatementKind::Location(location), line);
                return Ok(());
            }
            ".pragma" => {
                for text in pragma(&mut self.cursor)? {
                    self.push(StatementKind::Pragma(text), line);
                }
                return Ok(());
            }
            ".local" => StateSpace::Local,
            ".shared" => StateSpace::Shared,
            ".param" => StateSpace::Param,
            ".global" => StateSpace::Global,
            ".const" => StateSpace::Const,
            _ => return Err(self.cursor.error_before(ParseErrorKind::Unsupported(format!("`{word}`")))),
        };
        for (name, variable) in variable::declarations(&mut self.cursor, space, &self.symbols)? {
            let is_new = self.names.declare_variable(&mut self.function, name, variable).is_some();
            self.declared(name, is_new)?;
        }
        Ok(())
    }

    fn registers(&mut self) -> Result<(), ParseError> {
        if matches!(self.cursor.text(), ".v2" | ".v4") {
            let what = "a register of a vector type".to_owned();
            return Err(self.cursor.error(ParseErrorKind::Unsupported(what)));
        }
        let ty = variable::scalar_type(&mut self.cursor)?;
        loop {
            let name = self.cursor.word("the name of a register")?;
            let is_new = if self.cursor.take("<") {
                let count = self.cursor.unsigned_32()?;
                self.cursor.expect(">")?;
                self.names.declare_range(name, count, ty)
            } else {
                self.names.declare_register(name, ty)
            };
            self.declared(name, is_new)?;
            if !self.cursor.take(",") {
                return self.cursor.expect(";");
            }
        }
    }

    fn location(&mut self) -> Result<Location, ParseError> {
        let file = self.cursor.unsigned_32()?;
        let line = self.cursor.unsigned_32()?;
        let column = self.cursor.unsigned_32()?;
        let mut location = Location { file, line, column, inlined: None };
        if self.cursor.take(",") {
            self.cursor.expect("function_name")?;
            let function_name = self.cursor.word("a label")?.to_owned();
            let offset = if self.cursor.take("+") { self.cursor.unsigned()? } else { 0 };
            self.cursor.expect(",")?;
            self.cursor.expect("inlined_at")?;
            let file = self.cursor.unsigned_32()?;
            let line = self.cursor.unsigned_32()?;
            let column = self.cursor.unsigned_32()?;
            location.inlined = Some(Box::new(Inlined { function_name, offset, file, line, column }));
        }
        Ok(location)
    }

    fn instruction(&mut self) -> Result<(), ParseError> {
        let line = self.cursor.token().line;
        let guard = if self.cursor.take("@") { Some(self.guard()?) } else { None };
        let opcode_position = self.cursor.position;
        let word = self.cursor.word("an instruction")?;
        let instruction = self.row(word, opcode_position)?;
        self.push(StatementKind::Instruction { guard, instruction }, line);
        Ok(())
    }

    fn guard(&mut self) -> Result<Predicate, ParseError> {
        let negated = self.cursor.take("!");
        let name = self.cursor.word("a predicate")?;
        match self.names.find(&mut self.function, name) {
            Some(Entity::Register(register)) => Ok(Predicate { register, negated }),
            Some(_) => Err(self.cursor.error_before(ParseErrorKind::Expected("a predicate"))),
            None => Err(self.cursor.error_before(ParseErrorKind::Undeclared(name.to_owned()))),
        }
    }

    /// Parses an instruction by the first row of the table that matches. If none matches, returns
    /// the error of the row that parsed the most.
    fn row(&mut self, word: &str, opcode_position: usize) -> Result<Instruction, ParseError> {
        let opcode = alias::canonical(word);
        if let Some(needed) = alias::needed_version(word).filter(|needed| self.version < *needed) {
            let kind = ParseErrorKind::Version { opcode: word.to_owned(), needed };
            return Err(self.cursor.error_at(opcode_position, kind));
        }
        let first = opcode.split('.').next().unwrap_or_default();
        let mut best: Option<((u8, usize), Mismatch, String)> = None;
        let start = self.cursor.position;
        // First try all rows with modifiers in the manual's order. In any order, a wrong row may
        // match.
        let rows = ROWS.get(first).map_or(&[][..], Vec::as_slice);
        for (any_order, (mnemonic, parse)) in
            [false, true].into_iter().flat_map(|any_order| rows.iter().map(move |row| (any_order, row)))
        {
            let mut rest = Opcode::new(&opcode, any_order);
            if !rest.take_mnemonic(mnemonic) {
                continue;
            }
            self.cursor.position = start;
            let mismatch = match parse(&mut rest, &mut OperandParser::new(self, &opcode)) {
                Ok(instruction) => return Ok(instruction),
                Err(mismatch) => mismatch,
            };
            let progress = match mismatch {
                Mismatch::Modifier(left) => (0, usize::MAX - left),
                Mismatch::Operand(position, _) => (1, position),
            };
            let is_best = best.as_ref().is_none_or(|&(other, ..)| progress > other);
            if is_best {
                let rest = rest.rest().get(1..).unwrap_or_default();
                let modifier = rest.split('.').next().unwrap_or_default().to_owned();
                best = Some((progress, mismatch, modifier));
            }
        }
        let kind = match best {
            None => ParseErrorKind::UnknownInstruction(word.to_owned()),
            Some((_, Mismatch::Modifier(_), modifier)) => {
                ParseErrorKind::Modifier { opcode: word.to_owned(), modifier }
            }
            Some((_, Mismatch::Operand(position, kind), _)) => {
                let kind = kind.at(self.cursor.at_position(position).text);
                return Err(self.cursor.error_at(position, kind));
            }
        };
        Err(self.cursor.error_at(opcode_position, kind))
    }
}
