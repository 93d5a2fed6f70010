//! Replaces values in passes that walk a function forwards once.

use tilewright_base::entity::{SecondaryMap, packed_option::PackedOption};
use tilewright_ir::{Function, Inst, Op, Value};

/// The replacements of values.
///
/// Control flow is structured, so a forward walk visits every use after its definition. Calling
/// [`Aliases::resolve_operands`] on each instruction replaces all uses.
#[derive(Default)]
pub struct Aliases {
    map: SecondaryMap<Value, PackedOption<Value>>,
}

impl Aliases {
    /// Returns the replacement of a value, or the value itself.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(next) = self.map[value].expand() {
            value = next;
        }
        value
    }

    /// Records that `new` replaces `old`. `new` gets the name of `old`, unless it has a name or is
    /// a constant.
    pub fn replace(&mut self, function: &mut Function, old: Value, new: Value) {
        let new = self.resolve(new);
        if old == new {
            return;
        }
        // A constant may replace several unrelated values, so it gets no name.
        if function.values[new].name.is_none()
            && !matches!(function.defining_op(new), Some(Op::Constant { .. }))
        {
            function.values[new].name = function.values[old].name.clone();
        }
        self.map[old] = new.into();
    }

    /// Substitutes the replacements for the operands of an instruction.
    pub fn resolve_operands(&self, function: &mut Function, inst: Inst) {
        for operand in &mut function.insts[inst].operands {
            *operand = self.resolve(*operand);
        }
    }
}
