//! Finds code that an assembler rejects: unknown signatures and wrong operand types. Also finds
//! features that the module's `.target` or `.version` lacks. The parser accepts more code, because
//! it reads each modifier by itself. [`check`] compares each instruction with the table of
//! [`forms`].

mod forms;
mod operand_types;
mod pattern;
mod target;
mod tensor_memory;

use std::fmt;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use self::operand_types::{is_integer, takes, takes_constant, twice};
use self::pattern::{Bound, Count, Expected, Form, Kind, Need, NeedKind, Second, TABLE, vector};
use self::target::Head;
use self::tensor_memory::agree_on_group;
use super::instruction::Instruction;
use super::modifier::TensorDimension;
use super::module::{Function, Module, RegisterId, Statement, StatementKind};
use super::operand::{
    Address, AddressBase, Destination, DestinationPair, Immediate, Predicate, Source, Symbol, TensorAddress,
};
use super::operand_form::Operand;
use super::types::{ScalarType, StateSpace};

/// An illegal instruction, or an invalid header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse {
    /// The line of the text, from 1; 0 without a text and for the header.
    pub line: u32,
    /// The illegal part of the instruction. An opcode has the spelling of the instruction table.
    /// Empty for the header.
    pub place: String,
    /// The reason.
    pub message: String,
}

impl fmt::Display for Misuse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(formatter, "line {}: ", self.line)?;
        }
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Misuse {}

impl Misuse {
    /// Returns the message. Appends the line of `text`, with a mark under the illegal part.
    pub fn render(&self, text: &str) -> String {
        let line = (self.line as usize).checked_sub(1).and_then(|index| text.lines().nth(index));
        let Some(line) = line else { return self.to_string() };
        let shown = line.trim_end().replace('\t', " ");
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '%' | '$');
        let stands_alone = |at: &usize| {
            let rest = shown[at + self.place.len()..].chars().next();
            !rest.is_some_and(is_part) || !self.place.ends_with(is_part)
        };
        let at = shown.match_indices(&self.place).map(|(at, _)| at).find(stands_alone);
        let Some(at) = at.filter(|_| !self.place.is_empty()) else { return format!("{self}\n  {shown}") };
        let (indent, mark) =
            (" ".repeat(shown[..at].chars().count()), "^".repeat(self.place.chars().count()));
        format!("{self}\n  {shown}\n  {indent}{mark}")
    }
}

/// An error of an instruction: the illegal part of the text, and the message.
type Finding = (String, String);

/// The rows that match an opcode, with its types and columns.
type Rows = Vec<(&'static Form, Bound)>;

/// Returns an error for the header or the first instruction that an assembler rejects.
pub fn check(module: &Module) -> Result<(), Misuse> {
    let head = Head::new(&module.target, module.version).map_err(|message| Misuse {
        line: 0,
        place: String::new(),
        message,
    })?;
    let mut checker = Checker { module, head, forms: FxHashMap::default() };
    for function in module.functions.values() {
        let mut group = None;
        for statement in function.body.iter().flatten() {
            checker.statement(function, statement)?;
            agree_on_group(statement, &mut group)?;
        }
    }
    Ok(())
}

struct Checker<'a> {
    module: &'a Module,
    /// The header; `None` for an unknown target.
    head: Option<Head>,
    /// The rows that match each opcode seen so far, or the error of the opcode.
    forms: FxHashMap<String, Result<Rows, Finding>>,
}

impl Checker<'_> {
    fn statement(&mut self, function: &Function, statement: &Statement) -> Result<(), Misuse> {
        let StatementKind::Instruction { guard, instruction } = &statement.kind else { return Ok(()) };
        let found = guard
            .map_or(Ok(()), |guard| predicate(function, guard))
            .and_then(|()| self.instruction(function, instruction));
        found.map_err(|(place, message)| Misuse { line: statement.line, place, message })
    }

    fn instruction(&mut self, function: &Function, instruction: &Instruction) -> Result<(), Finding> {
        let opcode = instruction.opcode();
        if !self.forms.contains_key(&opcode) {
            let forms = forms_of(&opcode).and_then(|forms| self.needs_of_words(&opcode).map(|()| forms));
            self.forms.insert(opcode.clone(), forms);
        }
        let forms = self.forms[&opcode].as_ref().map_err(Clone::clone)?;
        let operands = Operands { module: self.module, function, opcode: &opcode };
        operands.spaces(instruction)?;
        self.special_registers(instruction)?;
        let mut worst: Option<(usize, Finding)> = None;
        for (form, bound) in forms {
            let found = operands.check(instruction, form, bound).and_then(|()| self.width(&opcode, bound));
            let found = found.and_then(|()| match self.lack(form.need) {
                None => Ok(()),
                Some(lack) => Err((usize::MAX, (opcode.clone(), format!("`{opcode}` {lack}")))),
            });
            let Err(found) = found else { return Ok(()) };
            if worst.as_ref().is_none_or(|(progress, _)| found.0 > *progress) {
                worst = Some(found);
            }
        }
        Err(worst.expect("an opcode without a row was found before").1)
    }

    /// Checks an access of more than 16 bytes. The access must have at most 32 bytes, be to global
    /// memory or generic, and exist on the target. With an L2 eviction priority, it must have 32
    /// bytes, in elements of at least 4.
    fn width(&self, opcode: &str, bound: &Bound) -> Result<(), (usize, Finding)> {
        const WIDE: Need = Need { capability: 100, kind: NeedKind::All, version: (8, 8) };
        let is_access = opcode.starts_with("ld.") || opcode.starts_with("st.") || opcode.starts_with("ldu.");
        let has_eviction = is_access && opcode.contains(".L2::evict_");
        let bits = bound.types.first().map_or(0, |ty| ty.bits()) as usize * vector(opcode);
        let element = bound.types.first().map_or(0, |ty| ty.bits());
        if has_eviction && (bits != 256 || element < 32) {
            let message = format!("`{opcode}`: L2 eviction needs `.v8` of 32 bits or `.v4` of 64");
            return Err((usize::MAX, (opcode.to_owned(), message)));
        }
        if !is_access || bits <= 128 {
            return Ok(());
        }
        let spaces = [".shared", ".local", ".const", ".param"];
        let lack = match spaces.iter().find(|space| opcode.contains(*space)) {
            Some(space) => Some(format!("moves {bits} bits, but {space} allows at most 128")),
            None if bits > 256 => Some(format!("moves {bits} bits, expected 256 at most")),
            None => self.lack(WIDE).map(|lack| format!("moves {bits} bits, which {lack}")),
        };
        lack.map_or(Ok(()), |lack| Err((usize::MAX, (opcode.to_owned(), format!("`{opcode}` {lack}")))))
    }

    fn lack(&self, need: Need) -> Option<String> {
        self.head.as_ref().and_then(|head| head.lacks(need))
    }

    /// Checks that the header has the special registers of an instruction.
    fn special_registers(&self, instruction: &Instruction) -> Result<(), Finding> {
        let mut found = Ok(());
        instruction.visit_operands(&mut |operand| {
            let special = match operand {
                Operand::Read(Source::Special(special)) => special,
                Operand::Reads([Source::Special(special)]) => *special,
                // tidy: wildcard because only a single source can be a special register.
                _ => return,
            };
            let name = special.name();
            for (_, need) in forms::SPECIALS.iter().filter(|(first, _)| name.starts_with(first)) {
                let need = Need::read(need).expect("a test reads each row");
                if let Some(lack) = self.lack(need) {
                    found = Err((name.to_owned(), format!("`{name}` {lack}")));
                }
            }
        });
        found
    }

    /// Checks the requirements of `forms::WORDS`.
    fn needs_of_words(&self, opcode: &str) -> Result<(), Finding> {
        for (first, word, need) in forms::WORDS {
            let is_meant = opcode.starts_with(first)
                && opcode.match_indices(word).any(|(at, _)| {
                    let rest = &opcode[at + word.len()..];
                    rest.is_empty() || rest.starts_with('.')
                });
            let need = Need::read(need).expect("a test reads each row");
            if let Some(lack) = self.lack(need).filter(|_| is_meant) {
                return Err(((*word).to_owned(), format!("`{word}` of `{opcode}` {lack}")));
            }
        }
        Ok(())
    }
}

/// Returns the rows of an opcode, or an error at its first unknown word.
fn forms_of(opcode: &str) -> Result<Rows, Finding> {
    let first = opcode.split('.').next().unwrap_or_default();
    let words: Vec<&str> = opcode.match_indices('.').map(|(at, _)| word_at(opcode, at)).collect();
    let (mut found, mut furthest) = (Vec::new(), 0);
    for form in TABLE.get(first).map_or(&[][..], Vec::as_slice) {
        match form.bind(&words) {
            Ok(bound) => found.push((form, bound)),
            Err(progress) => furthest = furthest.max(progress),
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(match words.get(furthest) {
        Some(word) => ((*word).to_owned(), format!("there is no `{opcode}`: `{word}` is not possible there")),
        None => (opcode.to_owned(), format!("`{opcode}` lacks a modifier at its end")),
    })
}

/// Returns the word of an opcode that begins at an offset, with its dot.
fn word_at(opcode: &str, at: usize) -> &str {
    let rest = &opcode[at..];
    rest[1..].find('.').map_or(rest, |end| &rest[..=end])
}

/// Returns a constant as messages show it.
fn text_of(constant: Immediate) -> String {
    match constant {
        Immediate::Integer(value) => value.to_string(),
        Immediate::F32(bits) => format!("0f{bits:08X}"),
        Immediate::F64(bits) => f64::from_bits(bits).to_string(),
    }
}

fn predicate(function: &Function, predicate: Predicate) -> Result<(), Finding> {
    let register = &function.registers[predicate.register];
    if register.ty == ScalarType::Pred {
        return Ok(());
    }
    let name = register.name.to_string();
    Err((name.clone(), format!("`{name}` is a register of {}, expected one of .pred", register.ty)))
}

/// The first words of instructions that may read a variable's address.
const READ_ADDRESSES: [&str; 4] = ["mov.", "cvta.", "mapa.", "getctarank."];

/// Those of [`READ_ADDRESSES`] that name or imply the variable's state space.
const OF_SPACE: &[&str] = &["cvta.", "mapa.", "getctarank."];

/// The operands of an instruction.
struct Operands<'a> {
    module: &'a Module,
    function: &'a Function,
    opcode: &'a str,
}

impl Operands<'_> {
    /// Compares the operands with a row. An error has the number of operands that match, by which
    /// the caller ranks rows.
    fn check(&self, instruction: &Instruction, form: &Form, bound: &Bound) -> Result<(), (usize, Finding)> {
        let mut expected = form.operands.iter();
        let mut result = Ok(());
        let mut number = 0;
        let (mut has_policy, mut has_offsets, mut addresses) = (false, false, 0);
        instruction.visit_operands(&mut |operand| {
            number += 1;
            has_policy |= matches!(operand, Operand::Policy(_));
            if result.is_err() {
                return;
            }
            let found = match operand {
                Operand::Untyped => Ok(()),
                Operand::Address(address) => {
                    addresses += 1;
                    self.address(address, addresses - 1)
                }
                Operand::Tensor(tensor) => {
                    addresses += 1;
                    self.address(tensor.map, addresses - 1).and_then(|()| self.tensor(tensor))
                }
                Operand::Offsets(offsets) => {
                    has_offsets = true;
                    let ty = if offsets.0.len() == 1 { ScalarType::U16 } else { ScalarType::B16 };
                    self.reads(&offsets.0, ty)
                }
                Operand::Policy(policy) => self.read(policy, ScalarType::U64, false),
                _ => match expected.next() {
                    Some(expected) => self.operand(&operand, expected, bound),
                    None => Err((String::new(), format!("`{}` has too many operands", self.opcode))),
                },
            };
            result = found.map_err(|finding| (number, finding));
        });
        if result.is_ok() && expected.next().is_some() {
            let message = format!("`{}` lacks an operand", self.opcode);
            return Err((number, (self.opcode.to_owned(), message)));
        }
        if result.is_ok() && has_policy != self.opcode.contains(".L2::cache_hint") {
            let message = format!("`{}` lacks its cache policy", self.opcode);
            return Err((number, (self.opcode.to_owned(), message)));
        }
        let has = |words: &[&str]| {
            let mut all = self.opcode.match_indices('.').map(|(at, _)| word_at(self.opcode, at));
            all.any(|word| words.contains(&word))
        };
        let is_ordered = has(&[".acquire", ".release", ".relaxed"]);
        let has_scope = has(&[".cta", ".cluster"]);
        if result.is_ok() && self.opcode.starts_with("mbarrier.") && is_ordered != has_scope {
            let lacking = if has_scope { "an order" } else { "a scope: .cta or .cluster" };
            let message = format!("`{}` lacks {lacking}", self.opcode);
            return Err((number, (self.opcode.to_owned(), message)));
        }
        let is_atomic = self.begins(&["atom.", "red."]);
        if result.is_ok() && is_atomic && has_policy && self.opcode.contains(".shared") {
            let message = format!("`{}`: a cache policy is for global memory", self.opcode);
            return Err((number, (self.opcode.to_owned(), message)));
        }
        let wants_offsets = self.opcode.contains(".im2col") && !self.opcode.contains(".im2col_no_offs");
        if result.is_ok() && has_offsets != wants_offsets {
            let message = format!("`{}`: only `.im2col` has offsets, and needs them", self.opcode);
            return Err((number, (self.opcode.to_owned(), message)));
        }
        result
    }

    fn operand(&self, operand: &Operand<'_>, expected: &Expected, bound: &Bound) -> Result<(), Finding> {
        if matches!(operand, Operand::Absent) {
            return if expected.optional || expected.kind == Kind::Absent {
                Ok(())
            } else {
                Err((self.opcode.to_owned(), format!("`{}` lacks an operand", self.opcode)))
            };
        }
        let ty = match expected.kind {
            Kind::Absent => {
                return Err((self.opcode.to_owned(), format!("`{}` has too many operands", self.opcode)));
            }
            Kind::Dropped => return self.dropped(operand),
            Kind::Immediate => return self.constant(operand, expected),
            Kind::Any => return self.any(operand),
            Kind::Fixed(ty) => ty,
            Kind::Bound(index) => bound.types[index],
            Kind::Twice(index) => twice(bound.types[index]),
        };
        let count = |count: usize| self.count(count, expected.count, bound);
        match *operand {
            Operand::Write(register) => self.write(Destination::Register(register), ty, expected.wider),
            Operand::WriteOrDrop(destination) => self.write(destination, ty, expected.wider),
            Operand::Pair(pair) => self.pair(pair, ty, expected),
            Operand::Read(source) => self.value(source, ty, expected),
            Operand::Predicate(found) => predicate(self.function, found),
            Operand::Writes(several) if expected.count == Count::Parts && several.len() > 1 => {
                self.dropped_alone(several)?;
                self.parts(several.len(), ty, |part| {
                    several.iter().try_for_each(|one| self.write(*one, part, false))
                })
            }
            Operand::Reads(several) if expected.count == Count::Parts && several.len() > 1 => {
                self.constants_agree(several)?;
                self.parts(several.len(), ty, |part| {
                    several.iter().try_for_each(|one| match *one {
                        Source::Symbol(symbol, _) => {
                            Err(self.wrong(self.symbol(symbol).0, "an address", format_args!("{part}")))
                        }
                        Source::Register(_) | Source::Immediate(_) | Source::Special(_) => {
                            self.read(*one, part, false)
                        }
                    })
                })
            }
            Operand::Writes(all) => {
                count(all.len())?;
                self.dropped_alone(all)?;
                self.are_alike(all.iter().filter_map(|one| match one {
                    Destination::Register(register) => Some(*register),
                    Destination::Sink => None,
                }))?;
                // The assembler compares only the first register with the type of the operand.
                let first = all.iter().find(|one| **one != Destination::Sink);
                first.map_or(Ok(()), |one| self.write(*one, ty, expected.wider))
            }
            Operand::Reads(all) => {
                count(all.len())?;
                self.are_alike(all.iter().filter_map(|one| match one {
                    Source::Register(register) => Some(*register),
                    Source::Immediate(_) | Source::Special(_) | Source::Symbol(..) => None,
                }))?;
                self.constants_agree(all)?;
                let is_register = |one: &&Source| matches!(one, Source::Register(_));
                let constants = all.iter().filter(|one| !is_register(one));
                constants
                    .chain(all.iter().find(is_register))
                    .try_for_each(|one| self.element(*one, ty, expected))
            }
            Operand::Accumulators(all) => {
                count(all.len())?;
                self.are_alike(all.iter().copied())?;
                all.first().map_or(Ok(()), |one| self.write(Destination::Register(*one), ty, false))
            }
            Operand::Untyped
            | Operand::Absent
            | Operand::Address(_)
            | Operand::Tensor(_)
            | Operand::Offsets(_)
            | Operand::Policy(_) => Ok(()),
        }
    }

    /// Checks a pair of results. The second result is a predicate.
    fn pair(&self, pair: DestinationPair, ty: ScalarType, expected: &Expected) -> Result<(), Finding> {
        let has_sink = |second| pair.first == Destination::Sink && second == Destination::Sink;
        let wrong = match (pair.second, expected.second) {
            (None, Second::Required) => Some("lacks its second result, a predicate"),
            (Some(Destination::Sink), Second::Required) => Some("cannot drop its predicate"),
            (Some(_), Second::Absent) => Some("has no second result"),
            (Some(second), _) if has_sink(second) => Some("cannot drop both results"),
            _ if pair.first == Destination::Sink && !expected.droppable => Some("cannot drop its result"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err((self.opcode.to_owned(), format!("`{}` {wrong}", self.opcode)));
        }
        self.write(pair.first, ty, expected.wider)?;
        pair.second.map_or(Ok(()), |second| self.write(second, ScalarType::Pred, false))
    }

    /// Checks that registers in one list have equal widths and compatible types.
    fn are_alike(&self, mut registers: impl Iterator<Item = RegisterId>) -> Result<(), Finding> {
        let register = |id: RegisterId| &self.function.registers[id];
        let Some(first) = registers.next().map(register) else { return Ok(()) };
        match registers.map(register).find(|other| !takes(first.ty, other.ty, false)) {
            Some(other) => {
                let what = format!("a register of {}", other.ty);
                Err(self.wrong(
                    &other.name,
                    &what,
                    format_args!("one like `{}`, of {}", first.name, first.ty),
                ))
            }
            None => Ok(()),
        }
    }

    /// Checks that an instruction does not drop all results of a list. A list of one may be
    /// dropped, except by a load or `mov`.
    fn dropped_alone(&self, all: &[Destination]) -> Result<(), Finding> {
        let name = self.opcode.split('.').next().unwrap_or_default();
        let is_load = ["ld", "ldu", "mov", "ldmatrix"].contains(&name);
        if (is_load || all.len() > 1) && all.iter().all(|one| *one == Destination::Sink) {
            return Err(("_".to_owned(), format!("`{}`: the only result cannot be dropped", self.opcode)));
        }
        Ok(())
    }

    /// Returns whether a one-register matrix fragment rejects this constant.
    fn is_of_matrices(&self, constant: Immediate) -> bool {
        let is_store = self.opcode.starts_with("stmatrix.") && !matches!(constant, Immediate::F32(_));
        is_store || self.opcode.contains("mma")
    }

    /// Checks an element of a list. A fragment of one integer must be a register.
    fn element(&self, source: Source, ty: ScalarType, expected: &Expected) -> Result<(), Finding> {
        match (source, expected.count) {
            (Source::Immediate(constant), Count::List(count))
                if count == 1 && !ty.is_float() && self.is_of_matrices(constant) =>
            {
                Err(self.wrong(&text_of(constant), "a constant", "a register"))
            }
            _ => self.value(source, ty, expected),
        }
    }

    /// Checks that all constants of a matrix fragment have one type. The parts of a `mov` are all
    /// integers or all floating-point numbers.
    fn constants_agree(&self, all: &[Source]) -> Result<(), Finding> {
        let is_fragment = self.opcode.contains("mma");
        if self.begins(&["tcgen05."]) {
            return self.elements_agree(all);
        }
        if !is_fragment && !self.opcode.starts_with("mov.") {
            return Ok(());
        }
        let kind = |source: &Source| match source {
            Source::Immediate(Immediate::Integer(value)) => Some((0, value.to_string())),
            Source::Immediate(constant @ Immediate::F32(_)) => Some((1, text_of(*constant))),
            Source::Immediate(constant @ Immediate::F64(_)) => {
                Some((if is_fragment { 2 } else { 1 }, text_of(*constant)))
            }
            Source::Register(register) if !is_fragment => {
                let register = &self.function.registers[*register];
                let is_float = register.ty.is_float();
                let has_kind = is_float || is_integer(register.ty);
                has_kind.then(|| (u8::from(is_float), register.name.to_string()))
            }
            Source::Register(_) | Source::Special(_) | Source::Symbol(..) => None,
        };
        let mut kinds = all.iter().filter_map(kind);
        let Some((first, like)) = kinds.next() else { return Ok(()) };
        kinds.find(|(kind, _)| *kind != first).map_or(Ok(()), |(_, other)| {
            Err(self.wrong(&other, "of another type", format_args!("one like `{like}`")))
        })
    }

    /// Calls `check` with the untyped type of one of `count` equal parts.
    fn parts(
        &self,
        count: usize,
        ty: ScalarType,
        check: impl Fn(ScalarType) -> Result<(), Finding>,
    ) -> Result<(), Finding> {
        let part = match ty.bits() as usize / count {
            8 => ScalarType::B8,
            16 => ScalarType::B16,
            32 => ScalarType::B32,
            64 => ScalarType::B64,
            _ => {
                let message = format!("`{}` cannot be in {count} parts", self.opcode);
                return Err((self.opcode.to_owned(), message));
            }
        };
        check(part)
    }

    fn count(&self, found: usize, expected: Count, bound: &Bound) -> Result<(), Finding> {
        let expected = expected.resolve(self.opcode, bound);
        if found == expected {
            return Ok(());
        }
        let message = format!("an operand of `{}` has {found} elements, expected {expected}", self.opcode);
        Err((self.opcode.to_owned(), message))
    }

    fn wrong(&self, place: &str, what: &str, expected: impl fmt::Display) -> Finding {
        (place.to_owned(), format!("`{}`: `{place}` is {what}, expected {expected}", self.opcode))
    }

    fn write(&self, destination: Destination, ty: ScalarType, wider: bool) -> Result<(), Finding> {
        let Destination::Register(register) = destination else { return Ok(()) };
        let register = &self.function.registers[register];
        if takes(ty, register.ty, wider) {
            return Ok(());
        }
        Err(self.wrong(&register.name, &format!("a register of {}", register.ty), format_args!("{ty}")))
    }

    fn reads(&self, sources: &[Source], ty: ScalarType) -> Result<(), Finding> {
        sources.iter().try_for_each(|source| self.read(*source, ty, false))
    }

    /// Checks an operand by its type, its constants and special registers.
    fn value(&self, source: Source, ty: ScalarType, expected: &Expected) -> Result<(), Finding> {
        match (source, &expected.values) {
            (Source::Immediate(Immediate::Integer(value)), Some(values)) if !values.contain(value) => {
                let place = value.to_string();
                Err((place.clone(), format!("`{}`: {place} is not allowed there", self.opcode)))
            }
            (Source::Special(special), _) if expected.special => {
                // Old versions of PTX had 16-bit special registers that now have 32 bits.
                let is_narrow = special.ty() == ScalarType::U32 && ty.bits() == 16;
                if is_narrow || takes(ty, special.ty(), expected.wider) {
                    return Ok(());
                }
                Err(self.wrong(special.name(), &format!("of {}", special.ty()), format_args!("{ty}")))
            }
            _ => self.read(source, ty, expected.wider),
        }
    }

    fn read(&self, source: Source, ty: ScalarType, wider: bool) -> Result<(), Finding> {
        match source {
            Source::Register(register) => self.write(Destination::Register(register), ty, wider),
            Source::Immediate(immediate) if takes_constant(ty, immediate) => Ok(()),
            Source::Immediate(immediate) => {
                let what = match immediate {
                    Immediate::Integer(_) => "a constant integer",
                    Immediate::F32(_) => "a constant of binary32",
                    Immediate::F64(_) => "a constant of binary64",
                };
                Err(self.wrong(&text_of(immediate), what, format_args!("{ty}")))
            }
            Source::Special(special) => {
                Err(self.wrong(special.name(), "a special register, which `mov` reads", format_args!("{ty}")))
            }
            Source::Symbol(symbol, offset) => {
                let is_move = self.begins(&READ_ADDRESSES);
                let is_number = takes_constant(ty, Immediate::Integer(0)) && ty != ScalarType::Pred;
                let (name, space) = self.symbol(symbol);
                if is_move && ty.bits() < 64 && space == Some(StateSpace::Global) {
                    return Err(self.wrong(name, "an address of 64 bits", format_args!("{ty}")));
                }
                if self.opcode.starts_with("cvta.to.") {
                    return Err(self.wrong(name, "a variable", "a register"));
                }
                // A symbol with an offset counts as a constant expression.
                if is_number && (is_move || offset != 0) {
                    return Ok(());
                }
                Err(self.wrong(name, "an address, which `mov` reads", format_args!("{ty}")))
            }
        }
    }

    fn dropped(&self, operand: &Operand<'_>) -> Result<(), Finding> {
        match operand {
            Operand::WriteOrDrop(Destination::Register(register)) => {
                let name = &self.function.registers[*register].name;
                Err(self.wrong(name, "a register", "`_`: there is no result"))
            }
            // tidy: wildcard because only a result can be dropped.
            _ => Ok(()),
        }
    }

    fn constant(&self, operand: &Operand<'_>, expected: &Expected) -> Result<(), Finding> {
        match *operand {
            Operand::Read(Source::Immediate(Immediate::Integer(value))) => match &expected.values {
                Some(values) if !values.contain(value) => {
                    let place = value.to_string();
                    Err((place.clone(), format!("`{}`: {place} is not allowed there", self.opcode)))
                }
                _ => Ok(()),
            },
            Operand::Read(Source::Register(register)) => {
                let name = &self.function.registers[register].name;
                Err(self.wrong(name, "a register", "a constant"))
            }
            // tidy: wildcard because nothing else is an integer.
            _ => Err((self.opcode.to_owned(), format!("`{}` expects a constant integer", self.opcode))),
        }
    }

    /// Checks that an operand is an integer of 32 or 64 bits.
    fn any(&self, operand: &Operand<'_>) -> Result<(), Finding> {
        let Operand::Read(source) = *operand else { return Ok(()) };
        let narrow = self.read(source, ScalarType::U32, false);
        if narrow.is_ok() { narrow } else { self.read(source, ScalarType::U64, false) }
    }

    /// Checks the address with this index in the instruction.
    fn address(&self, address: Address, number: usize) -> Result<(), Finding> {
        if self.is_in_tensor_memory() {
            return self.tensor_memory_address(address);
        }
        let register = match address.base {
            AddressBase::Register(register) => &self.function.registers[register],
            AddressBase::Absolute if !self.opcode.contains(".local") => {
                let message = format!("`{}`: only local memory has constant addresses", self.opcode);
                return Err((address.offset.to_string(), message));
            }
            AddressBase::Absolute | AddressBase::Symbol(_) => return Ok(()),
        };
        let what = format!("a register of {}", register.ty);
        let fits = |ty| takes(ty, register.ty, false);
        if fits(ScalarType::U64) || fits(ScalarType::U32) && self.may_be_narrow(number) {
            return Ok(());
        }
        Err(self.wrong(&register.name, &what, "an address: an integer of 64 bits, of 32 in small spaces"))
    }

    /// Checks the coordinates of a tensor. Each dimension has one coordinate. A gather or scatter
    /// of rows has one column and four rows.
    fn tensor(&self, tensor: &TensorAddress) -> Result<(), Finding> {
        if tensor.map.base == AddressBase::Absolute {
            let message = format!("`{}`: a tensor map has a constant address", self.opcode);
            return Err((tensor.map.offset.to_string(), message));
        }
        let is_list = self.opcode.contains("gather4") || self.opcode.contains("scatter4");
        let ranks = TensorDimension::ALL.iter().find(|rank| self.opcode.contains(rank.text()));
        let expected = if is_list { 5 } else { ranks.map_or(0, |rank| rank.rank()) };
        self.count(tensor.coordinates.0.len(), Count::List(expected), &Bound::default())?;
        // The assembler compares the type of one coordinate, but the width of several.
        let ty = if tensor.coordinates.0.len() == 1 { ScalarType::S32 } else { ScalarType::B32 };
        self.reads(&tensor.coordinates.0, ty)
    }

    /// Returns whether the address with this index may have 32 bits. Addresses must have 64 bits if
    /// the opcode begins with a text of `PLAIN` and none of `OTHERS`.
    fn may_be_narrow(&self, number: usize) -> bool {
        const PLAIN: [&str; 9] =
            ["ld.", "ldu.", "st.", "atom.", "red.", "prefetch", "discard.", "applypriority.", "mbarrier."];
        const OTHERS: [&str; 3] = ["st.async", "red.async", "prefetch.tensormap"];
        let is_large = self.named_spaces().get(number).is_none_or(|space| *space == StateSpace::Global);
        !self.begins(&PLAIN) || self.begins(&OTHERS) || !is_large
    }

    /// Returns the state spaces that the opcode names, in the order of the addresses.
    fn named_spaces(&self) -> SmallVec<[StateSpace; 2]> {
        let named = |word: &str| StateSpace::ALL.iter().copied().find(|space| space.text() == word);
        let words = self.opcode.match_indices('.').map(|(at, _)| word_at(self.opcode, at));
        words.filter_map(named).collect()
    }

    /// Returns the state space that the opcode implies, such as shared memory for a barrier.
    /// Returns `None` for a generic address.
    fn implied_space(&self) -> Option<StateSpace> {
        let is_shared = self.begins(&["mbarrier.", "mapa.", "getctarank."]);
        let is_counted = self.opcode.contains(".mbarrier::complete_tx") && !self.named_spaces().is_empty();
        if is_shared || is_counted {
            return Some(StateSpace::Shared);
        }
        self.begins(&["prefetchu."]).then_some(StateSpace::Global)
    }

    /// Returns whether the opcode begins with one of these texts.
    fn begins(&self, all: &[&str]) -> bool {
        all.iter().any(|start| self.opcode.starts_with(start))
    }

    /// Returns the name and the state space of a symbol.
    fn symbol(&self, symbol: Symbol) -> (&str, Option<StateSpace>) {
        match symbol {
            Symbol::Global(id) => (&self.module.globals[id].name, Some(self.module.globals[id].space)),
            Symbol::Variable(id) => {
                (&self.function.variables[id].name, Some(self.function.variables[id].space))
            }
            Symbol::Function(id) => (&self.module.functions[id].name, None),
        }
    }

    /// Checks that variables are in the state spaces of the opcode.
    fn spaces(&self, instruction: &Instruction) -> Result<(), Finding> {
        let mut symbols = Vec::new();
        let mut addresses = 0;
        instruction.visit_operands(&mut |operand| match operand {
            Operand::Address(address) => {
                if let AddressBase::Symbol(symbol) = address.base {
                    symbols.push((addresses, symbol));
                }
                addresses += 1;
            }
            Operand::Tensor(tensor) => {
                if let AddressBase::Symbol(symbol) = tensor.map.base {
                    symbols.push((addresses, symbol));
                }
                addresses += 1;
            }
            Operand::Read(Source::Symbol(symbol, _)) if self.begins(OF_SPACE) => {
                symbols.push((0, symbol));
            }
            // tidy: wildcard because only addresses and the operands of `cvta`, `mapa` and
            // `getctarank` are in a space of the opcode.
            _ => {}
        });
        if symbols.is_empty() {
            return Ok(());
        }
        let spaces = self.named_spaces();
        for (number, symbol) in symbols {
            let (name, Some(lies)) = self.symbol(symbol) else { continue };
            let message = match spaces.get(number).copied().or_else(|| self.implied_space()) {
                Some(space) if family(space) != family(lies) => format!("not in {space}"),
                None if matches!(family(lies), StateSpace::Const | StateSpace::Param) => {
                    "which has no generic address here".to_owned()
                }
                Some(_) | None => continue,
            };
            return Err((name.to_owned(), format!("`{}`: `{name}` lies in {lies}, {message}", self.opcode)));
        }
        Ok(())
    }
}

/// Returns a state space without its restriction: `.shared` for `.shared::cta`.
fn family(space: StateSpace) -> StateSpace {
    match space {
        StateSpace::SharedCta | StateSpace::SharedCluster => StateSpace::Shared,
        StateSpace::ParamEntry | StateSpace::ParamFunction => StateSpace::Param,
        StateSpace::Global
        | StateSpace::Shared
        | StateSpace::Local
        | StateSpace::Const
        | StateSpace::Param => space,
    }
}
