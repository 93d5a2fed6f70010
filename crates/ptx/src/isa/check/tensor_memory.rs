//! Rules of tensor memory instructions that the table does not express.

use super::operand_types::{is_integer, takes};
use super::pattern::has_word;
use super::{Finding, Misuse, Operands};
use crate::isa::instruction::Instruction;
use crate::isa::modifier::CtaGroup;
use crate::isa::module::{Statement, StatementKind};
use crate::isa::operand::{Address, AddressBase, Immediate, Source};
use crate::isa::types::ScalarType;

/// Checks that all tensor memory instructions of a function have one `.cta_group`. `group` is that
/// of the earlier instructions.
pub(super) fn agree_on_group(statement: &Statement, group: &mut Option<&'static str>) -> Result<(), Misuse> {
    let StatementKind::Instruction { instruction, .. } = &statement.kind else { return Ok(()) };
    let Some(found) = group_of_tensor_memory(instruction) else { return Ok(()) };
    let first = *group.get_or_insert(found);
    if first == found {
        return Ok(());
    }
    let message = format!("`{found}` and `{first}` in one function: all `tcgen05` need the same");
    Err(Misuse { line: statement.line, place: found.to_owned(), message })
}

/// Returns the `.cta_group` of an instruction on tensor memory.
fn group_of_tensor_memory(instruction: &Instruction) -> Option<&'static str> {
    if !instruction.mnemonic().starts_with("tcgen05.") {
        return None;
    }
    let opcode = instruction.opcode();
    CtaGroup::ALL.iter().map(|group| group.text()).find(|text| has_word(&opcode, text))
}

impl Operands<'_> {
    /// Returns whether the addresses of the instruction are in tensor memory.
    pub(super) fn is_in_tensor_memory(&self) -> bool {
        self.begins(&["tcgen05."]) && !self.begins(&["tcgen05.alloc.", "tcgen05.commit."])
    }

    /// Checks an address of tensor memory: a 32-bit register, untyped for a dot.
    pub(super) fn tensor_memory_address(&self, address: Address) -> Result<(), Finding> {
        let expected = "an address of tensor memory: a register of 32 bits, untyped for a dot";
        match address.base {
            AddressBase::Register(id) => {
                let register = &self.function.registers[id];
                let is_typed = self.begins(&["tcgen05.mma."]) && register.ty != ScalarType::B32;
                if takes(ScalarType::U32, register.ty, false) && !is_typed {
                    return Ok(());
                }
                Err(self.wrong(&register.name, &format!("a register of {}", register.ty), expected))
            }
            AddressBase::Symbol(symbol) => Err(self.wrong(self.symbol(symbol).0, "a variable", expected)),
            AddressBase::Absolute => Err(self.wrong(&address.offset.to_string(), "a constant", expected)),
        }
    }

    /// Checks a vector for tensor memory. A vector of one element is a register. Constants and
    /// typed registers are all integers or all floating-point numbers.
    pub(super) fn elements_agree(&self, all: &[Source]) -> Result<(), Finding> {
        let kind = |source: &Source| match source {
            Source::Immediate(Immediate::Integer(_)) => Some(false),
            Source::Immediate(Immediate::F32(_) | Immediate::F64(_)) => Some(true),
            Source::Register(register) => {
                let ty = self.function.registers[*register].ty;
                (ty.is_float() || is_integer(ty)).then(|| ty.is_float())
            }
            Source::Special(_) | Source::Symbol(..) => None,
        };
        let mut kinds = all.iter().filter_map(kind);
        let first = kinds.next();
        let has_register = all.iter().any(|source| matches!(source, Source::Register(_)));
        if has_register && kinds.all(|kind| Some(kind) == first) {
            return Ok(());
        }
        let message = format!("`{}`: the elements of a vector need one type, and a register", self.opcode);
        Err((self.opcode.to_owned(), message))
    }
}
