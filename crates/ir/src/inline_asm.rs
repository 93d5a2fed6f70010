//! Parses inline assembly: text, constraints, and the packing of elements in registers.
//!
//! Text and constraints have LLVM's syntax: `$0` is the first operand, outputs precede inputs, and
//! `$$` is a dollar sign. Elements of 8 and 16 bits are packed, the first in the lowest bits: as
//! many as fit into 32 bits, but at most `pack`. Other elements, such as `int1`, have one register
//! each.

use std::fmt;

use crate::types::{Dtype, Element};

/// Text and constraints of inline assembly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsmTemplate {
    /// The registers that the assembly writes.
    pub outputs: Vec<AsmRegister>,
    /// The registers that the assembly reads, or the outputs to which they are tied.
    pub inputs: Vec<AsmInput>,
    /// The text, split at the operands.
    pub pieces: Vec<AsmPiece>,
}

/// A part of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsmPiece {
    /// Text that is emitted unchanged.
    Text(String),
    /// An operand by its index: outputs, then inputs.
    Operand(usize),
}

/// The kind of register of a constraint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsmRegister {
    /// `b`: a predicate.
    Predicate,
    /// `h` and `c`: 16 bits.
    Bits16,
    /// `r` and `f`: 32 bits.
    Bits32,
    /// `l` and `d`: 64 bits.
    Bits64,
}

/// A register that is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsmInput {
    /// A separate register.
    Own(AsmRegister),
    /// The register of an output, by index.
    Tied(usize),
}

/// The packing of `pack` elements of a type in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsmPacking {
    /// The number of elements in a register.
    pub elements: usize,
    /// The number of registers that hold `pack` elements.
    pub registers: usize,
    /// The number of bits of a register that the elements use.
    pub bits: u32,
}

/// An error in inline assembly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsmError {
    /// The text is malformed.
    Text(String),
    /// The constraints are malformed, or do not match the types.
    Constraints(String),
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(message) | Self::Constraints(message) => f.write_str(message),
        }
    }
}

type Result<T> = std::result::Result<T, AsmError>;

impl AsmRegister {
    /// Returns the number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Predicate => 1,
            Self::Bits16 => 16,
            Self::Bits32 => 32,
            Self::Bits64 => 64,
        }
    }

    fn parse(letter: &str) -> Option<Self> {
        Some(match letter {
            "b" => Self::Predicate,
            "h" | "c" => Self::Bits16,
            "r" | "f" => Self::Bits32,
            "l" | "d" => Self::Bits64,
            _ => return None,
        })
    }

    /// Returns whether elements of `bits` bits in total fit the register. A predicate has 1 bit, a
    /// register of 16 or 32 bits has 2 to 16 or 32, and one of 64 bits has 64.
    fn takes(self, bits: u32) -> bool {
        match self {
            Self::Predicate | Self::Bits64 => bits == self.bits(),
            Self::Bits16 => (2..=16).contains(&bits),
            Self::Bits32 => (2..=32).contains(&bits),
        }
    }
}

impl AsmPacking {
    /// Returns the packing of `pack` elements.
    pub fn of(element: Element, pack: u32) -> Self {
        let bits = element.value().map_or(64, Dtype::bits);
        let most = if bits == 1 { 1 } else { (32 / bits).max(1) };
        let elements = most.min(pack.max(1));
        Self {
            elements: elements as usize,
            registers: pack.max(1).div_ceil(elements) as usize,
            bits: bits * elements,
        }
    }
}

impl AsmTemplate {
    /// Parses text and constraints.
    pub fn parse(text: &str, constraints: &str) -> Result<Self> {
        let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
        for constraint in constraints.split(',').map(str::trim).filter(|constraint| !constraint.is_empty()) {
            if constraint.starts_with('~') {
                continue;
            }
            let unknown = || {
                AsmError::Constraints(format!(
                    "the constraint `{constraint}` must be one of `r`, `l`, `f`, `d`, `h`, `c` and `b`, \
                     `=` or `=&` and one of them, the index of an output, or `~` and a clobber"
                ))
            };
            if let Some(output) = constraint.strip_prefix('=') {
                if !inputs.is_empty() {
                    let message = format!("the output `{constraint}` comes after an input");
                    return Err(AsmError::Constraints(message));
                }
                let letter = output.trim_start_matches('&');
                outputs.push(AsmRegister::parse(letter).ok_or_else(unknown)?);
            } else if let Ok(number) = constraint.parse::<usize>() {
                if number >= outputs.len() {
                    let message =
                        format!("the constraint `{constraint}` names an output that does not exist");
                    return Err(AsmError::Constraints(message));
                }
                inputs.push(AsmInput::Tied(number));
            } else {
                inputs.push(AsmInput::Own(AsmRegister::parse(constraint).ok_or_else(unknown)?));
            }
        }
        let pieces = pieces(text, outputs.len() + inputs.len())?;
        Ok(Self { outputs, inputs, pieces })
    }

    /// Returns the register of an input.
    pub fn input(&self, number: usize) -> AsmRegister {
        match self.inputs[number] {
            AsmInput::Own(register) => register,
            AsmInput::Tied(output) => self.outputs[output],
        }
    }

    /// Checks that the registers of the constraints hold `pack` elements of each result and of each
    /// argument.
    pub fn check(&self, results: &[Dtype], arguments: &[Element], pack: u32) -> Result<()> {
        let results: Vec<Element> = results.iter().copied().map(Element::Value).collect();
        let inputs: Vec<AsmRegister> = (0..self.inputs.len()).map(|number| self.input(number)).collect();
        fits(&self.outputs, &results, pack, "output")?;
        fits(&inputs, arguments, pack, "input")
    }
}

fn fits(registers: &[AsmRegister], elements: &[Element], pack: u32, what: &str) -> Result<()> {
    let needed: usize = elements.iter().map(|element| AsmPacking::of(*element, pack).registers).sum();
    if needed != registers.len() {
        let types: Vec<String> = elements.iter().map(ToString::to_string).collect();
        let message = format!(
            "the constraints have {} {what}{}, but `pack={pack}` elements of each of ({}) need {needed} \
             register{}",
            registers.len(),
            if registers.len() == 1 { "" } else { "s" },
            types.join(", "),
            if needed == 1 { "" } else { "s" },
        );
        return Err(AsmError::Constraints(message));
    }
    let mut rest = registers.iter();
    for element in elements {
        let packing = AsmPacking::of(*element, pack);
        for register in rest.by_ref().take(packing.registers) {
            if !register.takes(packing.bits) {
                let message = format!(
                    "an {what} of {} bits cannot hold {} of type {element}, {} bits in total",
                    register.bits(),
                    if packing.elements == 1 {
                        "one element".into()
                    } else {
                        format!("{} elements", packing.elements)
                    },
                    packing.bits,
                );
                return Err(AsmError::Constraints(message));
            }
        }
    }
    Ok(())
}

/// Splits the text at `$0`, `${0}` or `${0:modifier}`.
fn pieces(text: &str, operands: usize) -> Result<Vec<AsmPiece>> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            plain.push('$');
            rest = after;
            continue;
        }
        let (name, after) = if let Some(inner) = rest.strip_prefix('{') {
            let end = inner.find('}').ok_or_else(|| AsmError::Text("`${` has no closing `}`".into()))?;
            (inner[..end].split(':').next().unwrap_or_default(), &inner[end + 1..])
        } else {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.split_at(end)
        };
        let number: usize = name.parse().map_err(|_| {
            AsmError::Text("a `$` without the number of an operand; a dollar sign is written `$$`".into())
        })?;
        if number >= operands {
            let message = format!("`${number}` does not exist: the constraints have {operands} operands");
            return Err(AsmError::Text(message));
        }
        if !plain.is_empty() {
            pieces.push(AsmPiece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(AsmPiece::Operand(number));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(AsmPiece::Text(plain));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_found_and_dollars_stay() {
        let template = AsmTemplate::parse("add.u32 $0, ${1}, $2; // $$5", "=r,r,r").expect("it is right");
        let text = |text: &str| AsmPiece::Text(text.into());
        assert_eq!(
            template.pieces,
            [
                text("add.u32 "),
                AsmPiece::Operand(0),
                text(", "),
                AsmPiece::Operand(1),
                text(", "),
                AsmPiece::Operand(2),
                text("; // $5"),
            ]
        );
        assert_eq!(template.check(&[Dtype::I32], &[Element::Value(Dtype::F32); 2], 1), Ok(()));
        assert!(template.check(&[Dtype::I64], &[Element::Value(Dtype::F32); 2], 1).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, constraints) in [
            ("mov.u32 $0, $2;", "=r,r"),
            ("mov.u32 $x, 1;", "=r"),
            ("mov.u32 ${0, 1;", "=r"),
            ("mov.u32 $0, $1;", "=r,z"),
            ("mov.u32 $0, $1;", "r,=r"),
            ("mov.u32 $0, $1;", "=r,1"),
        ] {
            assert!(AsmTemplate::parse(text, constraints).is_err(), "{text} {constraints}");
        }
    }

    #[test]
    fn narrow_elements_share_registers() {
        let packing = |dtype, pack| AsmPacking::of(Element::Value(dtype), pack);
        assert_eq!(packing(Dtype::I8, 4), AsmPacking { elements: 4, registers: 1, bits: 32 });
        assert_eq!(packing(Dtype::I8, 1), AsmPacking { elements: 1, registers: 1, bits: 8 });
        assert_eq!(packing(Dtype::F16, 4), AsmPacking { elements: 2, registers: 2, bits: 32 });
        assert_eq!(packing(Dtype::F64, 2), AsmPacking { elements: 1, registers: 2, bits: 64 });
    }
}
