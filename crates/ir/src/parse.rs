//! The parser of the text form that [`print`](crate::print()) writes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::entity::{PrimaryMap, packed_option::PackedOption};
use tilewright_base::{FileId, SourceFile, SourceMap, Span};

use crate::dialect::{Dialect, Operation, Tile};
use crate::function::{
    Block, BlockData, FuncId, Function, Location, LocationData, Module, Parameter, Stage, Value,
};
use crate::ops::Regions;
use crate::scaled::{ScaledFormat, ScaledFormats};
use crate::types::{Dtype, Element, Shape, Type};
use crate::{Attribute, verify};

/// An error in the text of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

type Result<T> = std::result::Result<T, String>;

/// The maximum nesting of regions.
const MAX_DEPTH: usize = 128;

/// Parses a module of tile IR and verifies it.
pub fn parse(text: &str) -> std::result::Result<Module, ParseError> {
    parse_dialect::<Tile>(text)
}

/// Parses a module of a dialect and verifies it.
pub fn parse_dialect<D: Dialect>(text: &str) -> std::result::Result<Module<D>, ParseError> {
    let mut parser = Parser::<D> { text, at: 0, sources: SourceMap::default(), dialect: PhantomData };
    let at = |byte: usize, message: String| {
        let (line, column) = SourceFile::new("", text).line_column(byte as u32);
        ParseError { line, column, message }
    };
    let module = parser.module();
    let module = module.map_err(|message| at(parser.at, message))?;
    verify(&module).map_err(|error| at(text.len(), error.to_string()))?;
    Ok(module)
}

impl Type {
    /// Parses `fp32`, `*fp16`, `int32[16, 32]` or `fp32[64]<BlockedLayout([1], [32], [4], [0])>`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((tile, layout)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
            let tile = Self::parse(tile).filter(|tile| !tile.is_scalar() && tile.layout.is_none())?;
            return Some(tile.with_layout(Some(Arc::new(layout.parse().ok()?))));
        }
        let (element, shape) = match text.find('[') {
            Some(open) => (&text[..open], Shape::parse(&text[open..])?),
            None => (text, Shape::scalar()),
        };
        Some(Self::new(Element::parse(element)?, shape))
    }
}

struct Parser<'a, D> {
    text: &'a str,
    at: usize,
    sources: SourceMap,
    dialect: PhantomData<D>,
}

struct Scope<D: Dialect> {
    function: Function<D>,
    values: FxHashMap<String, Value>,
}

impl<'a, D: Dialect> Parser<'a, D> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(format!("expected `{token}`")) }
    }

    fn word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number(&mut self) -> Result<u32> {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        rest[..end].parse().map_err(|_| "expected a number".into())
    }

    fn module(&mut self) -> Result<Module<D>> {
        let header = self.header()?;
        let mut functions = PrimaryMap::new();
        let mut entry = None;
        loop {
            let is_entry = self.eat("kernel");
            if !self.eat("func") {
                break;
            }
            let id = FuncId::from_u32(self.number()?);
            if id != functions.next_key() {
                return Err(format!("functions are numbered in order; expected {}", functions.next_key()));
            }
            let function = self.function()?;
            functions.push(function);
            if is_entry && entry.replace(id).is_some() {
                return Err("a module has one kernel".into());
            }
        }
        while self.eat("file") {
            self.number()?;
            self.expect("=")?;
            let name = String::parse(self.balanced("\n").trim_end_matches(|c: char| c != '"'));
            let name = name.ok_or("expected the file's name")?;
            let line = self.text[..self.at].rsplit(' ').next().and_then(|line| line.parse().ok());
            self.sources.add(SourceFile { first_line: line.unwrap_or(1), ..SourceFile::new(name, "") });
        }
        self.skip_space();
        if !self.rest().is_empty() {
            return Err("expected a function".into());
        }
        let entry = entry.ok_or("no function is marked `kernel`")?;
        let locations = functions.values().flat_map(|function: &Function<D>| function.locations.values());
        let files = locations.map(|location| location.span.file.as_u32());
        if let Some(file) = files.into_iter().find(|file| *file as usize >= self.sources.files().count()) {
            return Err(format!(
                "file{file} is not declared; write `file{file} = \"k.py\" line 1` after the functions"
            ));
        }
        Ok(Module { header, functions, entry, sources: Arc::new(std::mem::take(&mut self.sources)) })
    }

    /// Parses the lines before the first function, except comments.
    fn header(&mut self) -> Result<D::Header> {
        let start = self.at;
        let is_function = |line: &str| line.starts_with("kernel ") || line.starts_with("func");
        while !self.rest().is_empty() && !is_function(self.rest()) {
            self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
        }
        let is_comment = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with("//");
        let lines: Vec<&str> = self.text[start..self.at].lines().filter(|line| !is_comment(line)).collect();
        D::parse_header(&lines.join("\n"))
    }

    fn function(&mut self) -> Result<Function<D>> {
        self.expect("@")?;
        let mut scope = Scope { function: Function::new(self.word()), values: FxHashMap::default() };
        let entry = scope.function.entry;
        self.expect("(")?;
        while !self.eat(")") {
            let (name, ty) = self.typed_name()?;
            let mut divisibility = 1;
            if self.eat("{") {
                self.expect("divisibility")?;
                self.expect("=")?;
                divisibility = self.number()?;
                self.expect("}")?;
            }
            // The name of a part of a tuple contains dots, so the whole name is the user's.
            let written = user_name(&name).map(|_| Arc::from(name.as_str()));
            scope
                .function
                .parameters
                .push(Parameter { name: written.clone().unwrap_or_default(), divisibility });
            scope.parameter(entry, name, ty, written);
            self.eat(",");
        }
        scope.function.noinline = self.eat("noinline");
        if self.eat("scaled_dot") {
            self.expect("(")?;
            let a = self.scaled_format()?;
            self.expect(",")?;
            let b = self.scaled_format()?;
            self.expect(")")?;
            scope.function.scaled_dot = Some(ScaledFormats([a, b]));
        }
        self.expect("{")?;
        self.body(&mut scope, entry, 0)?;
        if let Some(terminator) = scope.function.terminator(entry) {
            let results = scope.function.insts[terminator].operands.iter();
            scope.function.results = results.map(|&value| scope.function.ty(value).clone()).collect();
        }
        Ok(scope.function)
    }

    fn scaled_format(&mut self) -> Result<ScaledFormat> {
        let name = self.word();
        ScaledFormat::named(name).ok_or_else(|| format!("`{name}` is not a format of a dot with scales"))
    }

    fn typed_name(&mut self) -> Result<(String, D::Type)> {
        self.expect("%")?;
        let name = self.word().to_owned();
        self.expect(":")?;
        Ok((name, self.ty()?))
    }

    fn ty(&mut self) -> Result<D::Type> {
        self.skip_space();
        let rest = self.rest();
        let mut depth = 0_i32;
        let is_end = |(_, c): &(usize, char)| {
            match c {
                '[' | '<' => depth += 1,
                ']' | '>' => depth -= 1,
                _ => {}
            }
            depth <= 0 && (c.is_whitespace() || ",(){}".contains(*c))
        };
        let end = rest.char_indices().find(is_end).map_or(rest.len(), |(end, _)| end);
        self.at += end;
        D::parse_type(&rest[..end]).ok_or_else(|| format!("`{}` is not a type", &rest[..end]))
    }

    /// Returns the text up to one of `stops` outside of quotes and brackets.
    fn balanced(&mut self, stops: &str) -> &'a str {
        while self.rest().starts_with([' ', '\t']) {
            self.at += 1;
        }
        let rest = self.rest();
        let (mut depth, mut quoted, mut escaped) = (0_i32, false, false);
        let mut end = rest.len();
        for (index, c) in rest.char_indices() {
            if quoted {
                quoted = c != '"' || escaped;
                escaped = c == '\\' && !escaped;
            } else if depth == 0 && stops.contains(c) {
                end = index;
                break;
            } else {
                match c {
                    '"' => (quoted, escaped) = (true, false),
                    '[' | '(' | '{' => depth += 1,
                    ']' | ')' | '}' => depth -= 1,
                    _ => {}
                }
            }
        }
        self.at += end;
        rest[..end].trim_end()
    }

    fn body(&mut self, scope: &mut Scope<D>, block: Block, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err("regions are nested too deeply".into());
        }
        while !self.eat("}") {
            self.inst(scope, block, depth)?;
        }
        Ok(())
    }

    fn inst(&mut self, scope: &mut Scope<D>, block: Block, depth: usize) -> Result<()> {
        let mut names = Vec::new();
        while self.eat("%") {
            names.push(self.word().to_owned());
            self.eat(",");
        }
        if !names.is_empty() {
            self.expect("=")?;
        }
        let start = self.at;
        let mnemonic = self.word();
        if mnemonic.is_empty() {
            return Err("expected an op".into());
        }
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        // The first operand is on the line of its op: a `%` on the next line may begin another
        // instruction.
        let mut more = self.rest().trim_start_matches([' ', '\t']).starts_with('%');
        while more {
            self.expect("%")?;
            let name = self.word();
            let value = scope.values.get(name).ok_or_else(|| format!("%{name} is not defined"))?;
            operands.push(*value);
            more = self.eat(",");
        }
        let attributes = self.attributes()?;
        let op = Self::op(mnemonic, &attributes).inspect_err(|_| self.at = start)?;
        let stage = self.stage()?;
        let mut regions = Regions::new();
        while self.eat("(") {
            regions.push(self.region(scope, depth)?);
        }
        let mut types = Vec::new();
        if self.eat(":") {
            types.push(self.ty()?);
            while self.eat(",") {
                types.push(self.ty()?);
            }
        }
        if types.len() != names.len() {
            return Err(format!("{} results, but {} types", names.len(), types.len()));
        }
        let location = self.location(&mut scope.function)?;
        let inst = scope.function.create_inst(op, operands, regions, types, location);
        scope.function.blocks[block].insts.push(inst);
        if let Some(stage) = stage {
            scope.function.schedule.insert(inst, stage);
        }
        for (index, name) in names.into_iter().enumerate() {
            let value = scope.function.insts[inst].results[index];
            scope.function.values[value].name = user_name(&name);
            scope.values.insert(name, value);
        }
        Ok(())
    }

    fn op(mnemonic: &str, attributes: &[(&str, &str)]) -> Result<D::Op> {
        let find = |name: &str| attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match D::Op::parse(mnemonic, &find) {
            Some(Ok(op)) => Ok(op),
            Some(Err(attribute)) => {
                Err(format!("attribute `{attribute}` of {mnemonic} is missing or malformed"))
            }
            None => Err(format!("unknown op `{mnemonic}`")),
        }
    }

    fn attributes(&mut self) -> Result<Vec<(&'a str, &'a str)>> {
        let mut attributes = Vec::new();
        if self.eat("{") {
            while !self.eat("}") {
                let name = self.word();
                self.expect("=")?;
                attributes.push((name, self.balanced(",}")));
                self.eat(",");
                if self.rest().is_empty() {
                    return Err("expected `}`".into());
                }
            }
        }
        Ok(attributes)
    }

    /// Parses the `[stage, order]` of an op, if it has one: a position in the schedule of a loop.
    fn stage(&mut self) -> Result<Option<Stage>> {
        if !self.eat("[") {
            return Ok(None);
        }
        let stage = self.number()?;
        self.expect(",")?;
        let order = self.number()?;
        self.expect("]")?;
        Ok(Some(Stage { stage, order }))
    }

    fn region(&mut self, scope: &mut Scope<D>, depth: usize) -> Result<Block> {
        let block = scope.function.blocks.push(BlockData::default());
        while !self.eat(")") {
            let (name, ty) = self.typed_name()?;
            let written = user_name(&name);
            scope.parameter(block, name, ty, written);
            self.eat(",");
        }
        self.expect("{")?;
        self.body(scope, block, depth + 1)?;
        Ok(block)
    }

    fn location(&mut self, function: &mut Function<D>) -> Result<PackedOption<Location>> {
        let mut spans = Vec::new();
        while self.eat("@file") {
            let file = FileId::from_u32(self.number()?);
            self.expect(":")?;
            let start = self.number()?;
            self.expect("..")?;
            spans.push(Span::new(file, start, self.number()?));
        }
        let mut caller = None.into();
        for span in spans.into_iter().rev() {
            caller = function.locations.push(LocationData { span, caller }).into();
        }
        Ok(caller)
    }
}

impl<D: Dialect> Scope<D> {
    fn parameter(&mut self, block: Block, name: String, ty: D::Type, written: Option<Arc<str>>) {
        let value = self.function.add_parameter(block, ty, written);
        self.values.insert(name, value);
    }
}

/// Returns the user's name, without the suffix that makes it unique; `None` for a bare number.
fn user_name(name: &str) -> Option<Arc<str>> {
    let base = name.split('.').next().unwrap_or(name);
    (!base.is_empty() && !base.starts_with(|c: char| c.is_ascii_digit())).then(|| Arc::from(base))
}

impl Dtype {
    /// Returns the names of all element types, for messages.
    pub fn names() -> String {
        Dtype::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print;

    const LOOP: &str = "\
kernel func0 @k(%x_ptr: *fp32 {divisibility = 16}, %n: int32) {
  %0 = constant {value = 0:int32} : int32
  %1 = constant {value = 1:int32} : int32
  %acc = constant {value = 0.5:fp32} : fp32
  %acc.1 = for_loop %0, %n, %1, %acc {options = \"stages=2 unroll=0 flatten\"} (%i: int32, %acc.2: fp32) {
    %p = ptr_add %x_ptr, %i : *fp32
    %v = load %p {cache = \".cg\", eviction = \"\", volatile = false} : fp32 @file0:3..7 @file0:0..2
    %2 = add %acc.2, %v : fp32
    yield_values %2
  } : fp32
  %3 = arange {start = 0, end = 16} : int32[16]
  %4 = reduce %3 {axis = 0} (%a: int32, %b: int32) {
    %5 = max %a, %b : int32
    yield_values %5
  } : int32
  %6 = call %4 {callee = func1, results = (int32)} : int32
  %7 = lt %6, %n : int1
  assume %7
  barrier
  %8 = not %7 : int1
  if_else %7 () {
    store %x_ptr, %acc.1 {cache = \"\", eviction = \"evict_last\"}
    yield_values
  } () {
    yield_values
  }
  return_values
}
func1 @helper(%x: int32) {
  return_values %x
}
file0 = \"k.py\" line 3
";

    #[test]
    fn text_round_trips() {
        let module = parse(LOOP).expect("it is well-formed");
        assert_eq!(print(&module, true), LOOP);
        assert_eq!(module.kernel().parameters[0].divisibility, 16);
    }

    #[test]
    fn a_location_is_in_a_file_that_is_declared() {
        let error = parse(&LOOP.replace("@file0:0..2", "@file1:0..2")).expect_err("there is one file");
        assert!(error.message.starts_with("file1 is not declared"), "{error}");
    }

    #[test]
    fn parts_of_tuples_and_calls_that_stay_round_trip() {
        let text = "\
kernel func0 @k(%xs.0: *int32, %xs.1: int32, %args.x_ptr: *int32) {
  %xs = call %xs.1 {callee = func1, results = (int32)} : int32
  %xs.2 = add %xs, %xs : int32
  store %args.x_ptr, %xs.2 {cache = \"\", eviction = \"\"}
  return_values
}
func1 @helper(%x: int32) noinline scaled_dot(e4m3, e2m1) {
  return_values %x
}
";
        let module = parse(text).expect("it is well-formed");
        assert_eq!(print(&module, true), text);
        let names: Vec<&str> = module.kernel().parameters.iter().map(|parameter| &*parameter.name).collect();
        assert_eq!(names, ["xs.0", "xs.1", "args.x_ptr"]);
        assert!(module.functions.values().last().is_some_and(|function| function.noinline));
    }

    #[test]
    fn mistakes_are_located() {
        let check = |from: &str, to: &str, expected: &str| {
            assert!(LOOP.contains(from));
            let error = parse(&LOOP.replacen(from, to, 1)).expect_err("it is malformed");
            assert_eq!(error.to_string(), expected);
        };
        check("%p = ptr_add %x_ptr, %i", "%p = ptr_add %x, %i", "6:20: %x is not defined");
        check("= 0.5:fp32", "= 0.5", "4:9: attribute `value` of constant is missing or malformed");
        check("arange", "arrange", "11:7: unknown op `arrange`");
        check("  return_values\n", "", "32:1: in function k: block0 must end in its only terminator");
    }

    #[test]
    fn the_verifier_checks_types_and_scope() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse(&LOOP.replacen(from, to, 1)).expect_err("it is wrong");
            assert_eq!(error.message, expected);
        };
        check(
            "%7 = lt %6, %n : int1",
            "%7 = lt %6, %n : int32",
            "in function k: lt has results [int32], but its type rule gives [int1]",
        );
        check(
            "= max %a, %b",
            "= max %a, %3",
            "in function k: the operands of max must have one type, found int32 and int32[16]",
        );
        check(
            "store %x_ptr, %acc.1",
            "store %x_ptr, %2",
            "in function k: store uses v9 where it is not defined",
        );
        check(
            "results = (int32)} : int32",
            "results = (int64)} : int64",
            "in function k: a call has results [int64], but helper returns [int32]",
        );
    }
}
