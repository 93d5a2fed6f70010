//! The notation of the table of instruction signatures (`forms.rs`). This file parses the rows and
//! compares them with opcodes.
//!
//! A row is `opcode : operands @ need`, for instance
//!
//! ```text
//! mad .wide .(u16|u32) : 2T T T 2T @ 75 6.3
//! ```
//!
//! The opcode is a fixed beginning and a list of words:
//! - `.word` is required;
//! - `[.a|.b]` is an optional choice, `<.a|.b>` a required one;
//! - `.(a|b)` is a choice of types, `T` for the first choice, `U` for the second;
//! - `.(=)` is the previous type again;
//! - `.m64n*k16` is a shape, and `*` its number of columns;
//! - `$name` in a choice is a set of [`super::forms::SETS`].
//!
//! Operands are in text order, without addresses and labels. An operand begins with its kind:
//!
//! - the name of a type;
//! - `T` or `U`, a chosen type; `2T`, the type with twice the bits of `T`;
//! - `imm`, a constant; `any`, an integer of 32 or 64 bits;
//! - `_`, a dropped result; `-`, no operand.
//!
//! Its properties follow, in this order:
//! - `+`: registers may be wider than the type;
//! - `#`: several registers may hold the parts of the value;
//! - `*2`: a list of two; `*v`: the length of the vector; `*n/4`: a quarter of the columns;
//! - `*t`: the registers of a load or store of tensor memory;
//! - `*l`: the words of a mask of the lanes of a `.cta_group`;
//! - `(…)`: the allowed constants;
//! - `!`: special registers may be read;
//! - `?`: the operand is optional;
//! - `=`: the result cannot be dropped;
//! - `|p`: a predicate follows as a second result; `|p?`: it may follow.
//!
//! The need is the minimum capability and the minimum version of the language. Specific targets end
//! with `a` or `f`, targets of one architecture with `a`. The targets are:
//!
//! - `90`: all targets from `sm_90` on;
//! - `90a`: the specific targets of capability 90;
//! - `90a+`: all specific targets from capability 90 on;
//! - `10xa`: the specific targets of capability 100 to 119;
//! - `10xo`: the targets of one architecture of capability 100 to 119;
//! - `10xi`: the targets of `10xo` that have dots of integers of 8 bits;
//! - `100f`: the specific targets of the family of `sm_100`;
//! - `100fa`: the targets of one architecture of the family of `sm_100`.

use super::forms::{FORMS, SETS};
use crate::isa::modifier::CtaGroup;
use crate::isa::tensor_memory::{RepetitionCount, TensorMemoryShape};
use crate::isa::types::ScalarType;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// The rows by the first word of their opcodes.
pub(super) static TABLE: LazyLock<FxHashMap<&'static str, Vec<Form>>> = LazyLock::new(|| {
    let mut table: FxHashMap<&str, Vec<Form>> = FxHashMap::default();
    for row in FORMS.iter().flat_map(|rows| rows.iter()) {
        let form = Form::read(row).expect("a test reads each row");
        table.entry(row.split(['.', ' ']).next().unwrap_or_default()).or_default().push(form);
    }
    table
});

/// A row of the table: the syntax of an instruction, and its requirements.
pub(super) struct Form {
    opcode: Vec<Element>,
    pub operands: Vec<Expected>,
    pub need: Need,
}

/// A part of an opcode.
enum Element {
    Word(&'static str),
    Optional(Vec<&'static str>),
    OneOf(Vec<&'static str>),
    Type(Vec<ScalarType>),
    SameType,
    /// The text before and after the number of columns.
    Columns(&'static str, &'static str),
}

/// The requirements of an operand.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a mark of a row")]
pub(super) struct Expected {
    pub kind: Kind,
    pub count: Count,
    /// True if registers may be wider than the type.
    pub wider: bool,
    pub special: bool,
    pub optional: bool,
    pub droppable: bool,
    pub second: Second,
    pub values: Option<Values>,
}

/// The rule for a predicate as a second result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Second {
    Absent,
    Optional,
    Required,
}

/// The kind of an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Fixed(ScalarType),
    /// The opcode's type with this index.
    Bound(usize),
    /// The type with twice the bits of the opcode's type with this index.
    Twice(usize),
    Immediate,
    Any,
    Dropped,
    Absent,
}

/// The number of registers of an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    One,
    /// One register, or several that are the parts of the value.
    Parts,
    List(usize),
    Vector,
    /// The number of columns of the shape, divided by this number.
    Columns(usize),
    /// The number of registers of a load or store of tensor memory.
    TensorMemory,
    /// The number of words of a mask of lanes.
    LaneMask,
}

/// The allowed constants.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Values {
    OneOf(Vec<i64>),
    /// The multiples of the third number from the first to the second, inclusive.
    Range(i64, i64, i64),
}

/// The requirements of an instruction on `.target` and `.version`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    pub capability: u32,
    pub kind: NeedKind,
    pub version: (u32, u32),
}

/// The targets that satisfy a minimum capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NeedKind {
    All,
    /// Only the specific targets (`a`, `f`) of this capability.
    This,
    /// The specific targets (`a`, `f`) of this capability or a greater one.
    Specific,
    /// The specific targets (`a`, `f`) of capability 100 to 119.
    DataCenter,
    /// The targets of one architecture (`a`) of capability 100 to 119.
    ArchitectureOfDataCenter,
    /// The targets `sm_100a`, `sm_101a` and `sm_110a`.
    IntegerDots,
    /// The specific targets (`a`, `f`) of the family of `sm_100`.
    Family,
    /// The targets of one architecture (`a`) of the family of `sm_100`.
    ArchitectureOfFamily,
}

/// The types and the columns that an opcode chooses in a row.
#[derive(Default)]
pub(super) struct Bound {
    pub types: Vec<ScalarType>,
    pub columns: usize,
}

impl Need {
    pub(super) const NONE: Self = Self { capability: 0, kind: NeedKind::All, version: (0, 0) };

    /// Parses `90a+ 8.0`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (target, version) = text.trim().split_once(' ')?;
        let (major, minor) = version.trim().split_once('.')?;
        let (digits, kind) = match target {
            "10xa" => ("100", NeedKind::DataCenter),
            "10xo" => ("100", NeedKind::ArchitectureOfDataCenter),
            "10xi" => ("100", NeedKind::IntegerDots),
            "100f" => ("100", NeedKind::Family),
            "100fa" => ("100", NeedKind::ArchitectureOfFamily),
            _ => match (target.strip_suffix("a+"), target.strip_suffix('a')) {
                (Some(digits), _) => (digits, NeedKind::Specific),
                (None, Some(digits)) => (digits, NeedKind::This),
                (None, None) => (target, NeedKind::All),
            },
        };
        Some(Self {
            capability: digits.parse().ok()?,
            kind,
            version: (major.parse().ok()?, minor.parse().ok()?),
        })
    }
}

/// Returns the alternatives of a choice `a|b`, with those of each set `$name` of [`SETS`].
fn parts(text: &'static str) -> Option<Vec<&'static str>> {
    let mut all = Vec::new();
    for part in text.split('|') {
        match part.strip_prefix('$') {
            Some(name) => all.extend(SETS.iter().find(|(set, _)| *set == name)?.1.split('|')),
            None => all.push(part),
        }
    }
    Some(all)
}

fn type_named(name: &str) -> Option<ScalarType> {
    ScalarType::ALL.iter().copied().find(|ty| ty.text().strip_prefix('.') == Some(name))
}

impl Element {
    fn read(word: &'static str) -> Option<Self> {
        let within = |open, close| word.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
        if let Some(inner) = within("[", "]") {
            return parts(inner).map(Self::Optional);
        }
        if let Some(inner) = within("<", ">") {
            return parts(inner).map(Self::OneOf);
        }
        if word == ".(=)" {
            return Some(Self::SameType);
        }
        if let Some(inner) = within(".(", ")") {
            return parts(inner)?.into_iter().map(type_named).collect::<Option<_>>().map(Self::Type);
        }
        if let Some((before, after)) = word.split_once('*') {
            return Some(Self::Columns(before, after));
        }
        word.starts_with('.').then_some(Self::Word(word))
    }
}

impl Expected {
    fn read(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut take = |mark: &str| {
            let found = rest.strip_suffix(mark);
            rest = found.unwrap_or(rest);
            found.is_some()
        };
        let second = match (take("|p?"), take("|p")) {
            (true, _) => Second::Optional,
            (_, true) => Second::Required,
            (false, false) => Second::Absent,
        };
        let droppable = !take("=");
        let optional = take("?");
        let special = take("!");
        let mut values = None;
        if let Some((before, list)) = rest.strip_suffix(')').and_then(|inner| inner.split_once('(')) {
            rest = before;
            values = Some(Values::read(list)?);
        }
        let mut count = Count::One;
        if let Some((before, number)) = rest.split_once('*') {
            rest = before;
            count = match number {
                "v" => Count::Vector,
                "t" => Count::TensorMemory,
                "l" => Count::LaneMask,
                _ => match number.strip_prefix("n/") {
                    Some(divisor) => Count::Columns(divisor.parse().ok()?),
                    None => Count::List(number.parse().ok()?),
                },
            };
        } else if let Some(before) = rest.strip_suffix('#') {
            (rest, count) = (before, Count::Parts);
        }
        let wider = rest.ends_with('+');
        let kind = match rest.trim_end_matches('+') {
            "-" => Kind::Absent,
            "_" => Kind::Dropped,
            "imm" => Kind::Immediate,
            "any" => Kind::Any,
            "T" => Kind::Bound(0),
            "U" => Kind::Bound(1),
            "2T" => Kind::Twice(0),
            name => Kind::Fixed(type_named(name)?),
        };
        Some(Self { kind, count, wider, special, optional, droppable, second, values })
    }
}

impl Count {
    /// Returns the number of registers of an operand of an instruction with this opcode.
    pub(super) fn resolve(self, opcode: &str, bound: &Bound) -> usize {
        match self {
            Self::One | Self::Parts => 1,
            Self::List(count) => count,
            Self::Vector => vector(opcode),
            Self::Columns(divisor) => bound.columns / divisor,
            Self::TensorMemory => {
                let shape = TensorMemoryShape::ALL.iter().find(|shape| has_word(opcode, shape.text()));
                let count = RepetitionCount::ALL.iter().find(|count| has_word(opcode, count.text()));
                shape.map_or(0, |shape| shape.registers()) * count.map_or(0, |count| count.count())
            }
            Self::LaneMask => 4 << usize::from(has_word(opcode, CtaGroup::Two.text())),
        }
    }
}

/// Returns the number of elements that an opcode moves at once.
pub(super) fn vector(opcode: &str) -> usize {
    [(".v2", 2), (".v4", 4), (".v8", 8)]
        .into_iter()
        .find(|(word, _)| opcode.contains(word))
        .map_or(1, |(_, n)| n)
}

/// Returns whether an opcode has a word, given with its dot.
pub(super) fn has_word(opcode: &str, word: &str) -> bool {
    opcode.match_indices(word).any(|(at, _)| {
        let rest = &opcode[at + word.len()..];
        rest.is_empty() || rest.starts_with('.')
    })
}

impl Values {
    fn read(text: &str) -> Option<Self> {
        let Some((from, to)) = text.split_once("..") else {
            return text.split('|').map(|value| value.parse().ok()).collect::<Option<_>>().map(Self::OneOf);
        };
        let (to, step) = to.split_once('/').unwrap_or((to, "1"));
        Some(Self::Range(from.parse().ok()?, to.parse().ok()?, step.parse().ok()?))
    }

    pub(super) fn contain(&self, value: i64) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Range(from, to, step) => (*from..=*to).contains(&value) && value % step == 0,
        }
    }
}

impl Form {
    /// Parses a row.
    pub(super) fn read(row: &'static str) -> Option<Self> {
        let (syntax, need) = match row.split_once(" @ ") {
            Some((syntax, need)) => (syntax, Need::read(need)?),
            None => (row, Need::NONE),
        };
        let (opcode, operands) = syntax.split_once(" :")?;
        let mut words = opcode.split(' ');
        let mnemonic = words.next()?;
        let fixed = mnemonic.match_indices('.').map(|(at, _)| at);
        let ends: Vec<usize> = fixed.chain([mnemonic.len()]).collect();
        let fixed = ends.windows(2).map(|pair| Some(Element::Word(&mnemonic[pair[0]..pair[1]])));
        let opcode = fixed.chain(words.map(Element::read)).collect::<Option<Vec<_>>>()?;
        let operands = operands.split_whitespace().map(Expected::read).collect::<Option<Vec<_>>>()?;
        let types = opcode.iter().filter(|element| matches!(element, Element::Type(_))).count();
        let is_bound = |expected: &Expected| match expected.kind {
            Kind::Bound(index) | Kind::Twice(index) => index < types,
            Kind::Fixed(_) | Kind::Immediate | Kind::Any | Kind::Dropped | Kind::Absent => true,
        };
        operands.iter().all(is_bound).then_some(Self { opcode, operands, need })
    }

    /// Compares the words of an opcode after the first one with the row. Returns the chosen types
    /// and columns; the error is the number of matching words.
    pub(super) fn bind(&self, words: &[&str]) -> Result<Bound, usize> {
        let mut bound = Bound::default();
        let mut at = 0;
        for element in &self.opcode {
            let word = words.get(at).copied().unwrap_or_default();
            let fits = match element {
                Element::Word(expected) => word == *expected,
                Element::OneOf(all) => all.contains(&word),
                Element::Optional(all) => {
                    at += usize::from(all.contains(&word));
                    continue;
                }
                Element::Type(all) => {
                    let ty = all.iter().copied().find(|ty| ty.text() == word);
                    bound.types.extend(ty);
                    ty.is_some()
                }
                Element::SameType => bound.types.last().is_some_and(|ty| ty.text() == word),
                Element::Columns(before, after) => {
                    let number = word.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                    bound.columns = number.and_then(|number| number.parse().ok()).unwrap_or(0);
                    bound.columns != 0 && bound.columns.is_multiple_of(8) && bound.columns <= 256
                }
            };
            if !fits {
                return Err(at);
            }
            at += 1;
        }
        if at == words.len() { Ok(bound) } else { Err(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::check::forms::WORDS;
    use crate::isa::instruction::Instruction;

    #[test]
    fn every_row_can_be_read_and_every_instruction_has_one() {
        for row in FORMS.iter().flat_map(|rows| rows.iter()) {
            assert!(Form::read(row).is_some(), "{row}");
        }
        for (_, word, need) in WORDS {
            assert!(Need::read(need).is_some(), "{word}");
        }
        for (name, mnemonic) in Instruction::TABLE {
            let first = mnemonic.split('.').next().expect("a split has a first part");
            assert!(TABLE.contains_key(first), "{name}: write its syntax into forms.rs");
        }
    }
}
