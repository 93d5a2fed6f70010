//! Replacement of values, for passes that walk a function forwards once.

use tilewright_base::entity::{SecondaryMap, packed_option::PackedOption};
use tilewright_ir::{Function, Inst, Op, Value};

/// Which values stand for others from now on.
///
/// Control flow is structured, so every use of a value comes after its definition in a forward walk: a pass that calls
/// [`Aliases::resolve_operands`] on each instruction it meets has replaced all uses when it is done.
#[derive(Default)]
pub struct Aliases {
    map: SecondaryMap<Value, PackedOption<Value>>,
}

impl Aliases {
    /// The value that stands for this one.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(next) = self.map[value].expand() {
            value = next;
        }
        value
    }

    /// Lets `new` stand for `old`, and gives it the name of `old` if it has none.
    pub fn replace(&mut self, function: &mut Function, old: Value, new: Value) {
        let new = self.resolve(new);
        if old == new {
            return;
        }
        // A constant is shared by unrelated things: a name on it would mislead.
        if function.values[new].name.is_none()
            && !matches!(function.defining_op(new), Some(Op::Constant { .. }))
        {
            function.values[new].name = function.values[old].name.clone();
        }
        self.map[old] = new.into();
    }

    /// Replaces the operands of an instruction.
    pub fn resolve_operands(&self, function: &mut Function, inst: Inst) {
        for operand in &mut function.insts[inst].operands {
            *operand = self.resolve(*operand);
        }
    }
}
