//! Finds the uses of values, and the dead instructions: no effect and no uses of the result.

use crate::ir::{Block, Function, Inst, Op, Target, Terminator, Value};

/// The index of a terminator in its block, greater than that of any instruction.
pub const TERMINATOR: u32 = u32::MAX;

/// The position of an instruction: its block and its index in the block.
pub type Position = (Block, u32);

#[derive(Clone, Copy, Debug)]
pub struct ValueUses {
    /// The number of uses by live instructions, terminators and jumps.
    pub count: u32,
    /// The definition. A parameter has index 0 of its block.
    pub definition: Position,
    /// The last use if [`Self::is_local`], otherwise unspecified.
    pub last: Position,
    /// True if all uses are in the block of the definition.
    pub is_local: bool,
}

#[derive(Debug)]
pub struct Uses {
    values: Vec<ValueUses>,
}

/// The definition of a value.
#[derive(Clone, Copy)]
enum Definition {
    Absent,
    Inst(Position),
    Parameter(Block, u32),
}

/// Returns whether an instruction is live even if its result has no use.
fn has_effect(inst: &Inst) -> bool {
    inst.result.is_none() || matches!(inst.op, Op::Call { .. })
}

pub fn jumps(terminator: &Terminator) -> impl Iterator<Item = &Target> {
    let (first, second) = match terminator {
        Terminator::Jump(target) => (Some(target), None),
        Terminator::Branch(_, target, other) => (Some(target), Some(other)),
        Terminator::Return(_) => (None, None),
    };
    first.into_iter().chain(second)
}

/// Returns the value that a terminator reads, other than the arguments of its jumps.
fn condition(terminator: &Terminator) -> Option<Value> {
    match terminator {
        Terminator::Jump(_) => None,
        Terminator::Branch(value, ..) | Terminator::Return(value) => Some(*value),
    }
}

impl Uses {
    /// Finds the uses in the reachable blocks of a function.
    pub fn new(function: &Function, reachable: &[Block]) -> Self {
        let live = live_values(function, reachable);
        let unused = ValueUses { count: 0, definition: (Block(0), 0), last: (Block(0), 0), is_local: true };
        let mut uses = Self { values: vec![unused; function.types.len()] };
        for &block in reachable {
            let data = function.block(block);
            for &parameter in &data.parameters {
                uses.values[parameter.0 as usize].definition = (block, 0);
            }
            for (index, inst) in data.insts.iter().enumerate() {
                if let Some(result) = inst.result {
                    uses.values[result.0 as usize].definition = (block, index as u32);
                }
            }
        }
        for &block in reachable {
            let data = function.block(block);
            for (index, inst) in data.insts.iter().enumerate() {
                if has_effect(inst) || inst.result.is_some_and(|result| live[result.0 as usize]) {
                    for &operand in &inst.operands {
                        uses.add(operand, (block, index as u32));
                    }
                }
            }
            let Some(terminator) = &data.terminator else { continue };
            if let Some(value) = condition(terminator) {
                uses.add(value, (block, TERMINATOR));
            }
            for jump in jumps(terminator) {
                let parameters = &function.block(jump.block).parameters;
                for (parameter, &argument) in parameters.iter().zip(&jump.arguments) {
                    if live[parameter.0 as usize] {
                        uses.add(argument, (block, TERMINATOR));
                    }
                }
            }
        }
        uses
    }

    fn add(&mut self, value: Value, position: Position) {
        let uses = &mut self.values[value.0 as usize];
        uses.count += 1;
        uses.last = position;
        uses.is_local &= uses.definition.0 == position.0;
    }

    pub fn of(&self, value: Value) -> ValueUses {
        self.values[value.0 as usize]
    }

    pub fn is_used(&self, value: Value) -> bool {
        self.of(value).count > 0
    }

    pub fn is_live(&self, inst: &Inst) -> bool {
        has_effect(inst) || inst.result.is_some_and(|result| self.is_used(result))
    }

    /// Returns whether the last use of a value is at a position.
    pub fn is_last(&self, value: Value, position: Position) -> bool {
        let uses = self.of(value);
        uses.is_local && uses.last == position
    }
}

/// Returns whether an effect, a branch or a result depends on each value.
fn live_values(function: &Function, reachable: &[Block]) -> Vec<bool> {
    let mut definitions = vec![Definition::Absent; function.types.len()];
    let mut predecessors: Vec<Vec<&Target>> = vec![Vec::new(); function.blocks.len()];
    let mut pending = Vec::new();
    for &block in reachable {
        let data = function.block(block);
        for (index, parameter) in data.parameters.iter().enumerate() {
            definitions[parameter.0 as usize] = Definition::Parameter(block, index as u32);
        }
        for (index, inst) in data.insts.iter().enumerate() {
            if let Some(result) = inst.result {
                definitions[result.0 as usize] = Definition::Inst((block, index as u32));
            }
            if has_effect(inst) {
                pending.extend(inst.operands.iter().copied());
            }
        }
        if let Some(terminator) = &data.terminator {
            pending.extend(condition(terminator));
            for jump in jumps(terminator) {
                predecessors[jump.block.0 as usize].push(jump);
            }
        }
    }
    let mut live = vec![false; function.types.len()];
    while let Some(value) = pending.pop() {
        if std::mem::replace(&mut live[value.0 as usize], true) {
            continue;
        }
        match definitions[value.0 as usize] {
            Definition::Absent => {}
            Definition::Inst((block, index)) => {
                pending.extend(function.block(block).insts[index as usize].operands.iter().copied());
            }
            Definition::Parameter(block, index) => {
                let jumps = &predecessors[block.0 as usize];
                pending.extend(jumps.iter().map(|jump| jump.arguments[index as usize]));
            }
        }
    }
    live
}
