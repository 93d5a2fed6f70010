//! Shrinks a function that shows a failure.

use std::collections::HashMap;

use tilewright_native::ir::{
    Binary, BlockData, Compare, Conversion, Function, Inst, Lane, Op, Target, Terminator, Type, Value,
};

use crate::generate::conversion_range;

/// Returns a small function for which `fails` is still true. `fails` is false for functions that
/// leave the arena, do not end, or are ill-formed.
pub fn shrink(function: &Function, fails: &mut dyn FnMut(&Function) -> bool) -> Function {
    let mut best = function.clone();
    loop {
        let mut changed = false;
        for pass in [
            end_early,
            simplify_branches,
            drop_instructions,
            replace_parameters,
            replace_results,
            merge_blocks,
        ] {
            changed |= pass(&mut best, &mut |function| is_defined(function) && fails(function));
        }
        if !changed {
            return best;
        }
    }
}

type Fails<'a> = &'a mut dyn FnMut(&Function) -> bool;

/// Adopts a change if `fails` is true for the changed function.
fn try_change(best: &mut Function, fails: Fails, change: impl FnOnce(&mut Function)) -> bool {
    let mut changed = best.clone();
    change(&mut changed);
    remove_unused(&mut changed);
    let is_adopted = changed.to_string() != best.to_string() && fails(&changed);
    if is_adopted {
        *best = changed;
    }
    is_adopted
}

/// Replaces terminators by a return of the argument.
fn end_early(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for index in 0..best.blocks.len() {
        let argument = best.blocks[0].parameters[0];
        let end = Terminator::Return(argument);
        if best.blocks[index].terminator.as_ref() != Some(&end) {
            any |= try_change(best, fails, |function| function.blocks[index].terminator = Some(end));
        }
    }
    any
}

fn simplify_branches(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for index in 0..best.blocks.len() {
        let Some(Terminator::Branch(_, first, second)) = best.blocks[index].terminator.clone() else {
            continue;
        };
        for target in [first, second] {
            let jump = Terminator::Jump(target);
            if try_change(best, fails, |function| function.blocks[index].terminator = Some(jump)) {
                any = true;
                break;
            }
        }
    }
    any
}

/// Removes instructions or replaces them by constants, many at once, then one by one.
fn drop_instructions(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for block in 0..best.blocks.len() {
        let mut size = best.blocks[block].insts.len();
        while size > 0 {
            let mut end = best.blocks[block].insts.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                any |= try_change(best, fails, |function| {
                    for index in (start..end).rev() {
                        replace_by_constant(function, block, index);
                    }
                });
                end = start.min(best.blocks[block].insts.len());
            }
            size /= 2;
        }
    }
    any
}

/// Replaces an instruction by a constant, or removes it.
fn replace_by_constant(function: &mut Function, block: usize, index: usize) {
    let inst = &function.blocks[block].insts[index];
    match inst.result {
        None => {
            function.blocks[block].insts.remove(index);
        }
        Some(_) if inst.operands.is_empty() && !matches!(inst.op, Op::Call { .. }) => {}
        Some(value) => function.blocks[block].insts[index] = constant(function, value, 0),
    }
}

fn constant(function: &Function, value: Value, choice: usize) -> Inst {
    let op = match function.ty(value) {
        Type::Int => Op::IntConstant([0, 8][choice % 2]),
        Type::Mask => Op::MaskConstant(choice.is_multiple_of(2)),
        Type::Vector(lane) => {
            let ones = u64::MAX >> (64 - 8 * lane.bytes());
            let one = match lane {
                Lane::F32 => 1f32.to_bits().into(),
                Lane::F64 => 1f64.to_bits(),
                Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => ones,
            };
            Op::Constant(lane, [0, one][choice % 2])
        }
    };
    Inst { op, operands: [].into_iter().collect(), result: Some(value), origin: 0 }
}

fn replace_parameters(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for block in 1..best.blocks.len() {
        for index in (0..best.blocks[block].parameters.len()).rev() {
            let mut sources: Vec<Value> = Vec::new();
            for data in &best.blocks {
                for target in targets(data).into_iter().filter(|target| is_target(target, block)) {
                    sources.extend(target.arguments.get(index));
                }
            }
            let is_adopted = try_change(best, fails, |function| {
                let value = remove_parameter(function, block, index);
                let inst = constant(function, value, 0);
                function.blocks[block].insts.insert(0, inst);
            });
            any |= is_adopted;
            for source in sources {
                if is_adopted || index >= best.blocks[block].parameters.len() {
                    break;
                }
                any |= try_change(best, fails, |function| {
                    let value = remove_parameter(function, block, index);
                    replace_uses(function, value, source);
                });
            }
        }
    }
    any
}

fn is_target(target: &Target, block: usize) -> bool {
    format!("{}", target.block) == format!("block{block}")
}

fn targets(data: &BlockData) -> Vec<&Target> {
    match &data.terminator {
        Some(Terminator::Jump(target)) => vec![target],
        Some(Terminator::Branch(_, target, other)) => vec![target, other],
        Some(Terminator::Return(_)) | None => vec![],
    }
}

fn remove_parameter(function: &mut Function, block: usize, index: usize) -> Value {
    for data in &mut function.blocks {
        let targets = match &mut data.terminator {
            Some(Terminator::Jump(target)) => vec![target],
            Some(Terminator::Branch(_, target, other)) => vec![target, other],
            Some(Terminator::Return(_)) | None => vec![],
        };
        for target in targets {
            if is_target(target, block) {
                target.arguments.remove(index);
            }
        }
    }
    function.blocks[block].parameters.remove(index)
}

fn replace_uses(function: &mut Function, old: Value, new: Value) {
    let replace = |value: &mut Value| {
        if *value == old {
            *value = new;
        }
    };
    for data in &mut function.blocks {
        data.insts.iter_mut().flat_map(|inst| &mut inst.operands).for_each(replace);
        match &mut data.terminator {
            Some(Terminator::Jump(target)) => target.arguments.iter_mut().for_each(replace),
            Some(Terminator::Branch(condition, target, other)) => {
                replace(condition);
                target.arguments.iter_mut().chain(&mut other.arguments).for_each(replace);
            }
            Some(Terminator::Return(value)) => replace(value),
            None => {}
        }
    }
}

/// Replaces results by an operand of the same type, or by a constant.
fn replace_results(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for block in 0..best.blocks.len() {
        let mut index = best.blocks[block].insts.len();
        while index > 0 {
            index = (index - 1).min(best.blocks[block].insts.len().saturating_sub(1));
            let Some(inst) = best.blocks[block].insts.get(index).cloned() else { break };
            let Some(value) = inst.result else { continue };
            let mut adopted = false;
            let ty = best.ty(value);
            let same: Vec<Value> =
                inst.operands.iter().copied().filter(|&operand| best.ty(operand) == ty).collect();
            for operand in same {
                adopted =
                    adopted || try_change(best, fails, |function| replace_uses(function, value, operand));
            }
            if !inst.operands.is_empty() && !adopted {
                adopted = try_change(best, fails, |function| {
                    function.blocks[block].insts[index] = constant(function, value, 1);
                });
            }
            any |= adopted;
        }
    }
    any
}

/// Appends blocks to their only predecessor.
fn merge_blocks(best: &mut Function, fails: Fails) -> bool {
    let mut any = false;
    for block in 0..best.blocks.len() {
        let Some(Terminator::Jump(target)) = best.blocks[block].terminator.clone() else { continue };
        let next = (0..best.blocks.len()).find(|&index| is_target(&target, index)).unwrap_or(block);
        let edges = best.blocks.iter().flat_map(targets).filter(|edge| edge.block == target.block).count();
        if edges == 1 && next != block {
            any |= try_change(best, fails, |function| {
                let data = std::mem::take(&mut function.blocks[next]);
                function.blocks[block].insts.extend(data.insts);
                function.blocks[block].terminator = data.terminator;
                for (parameter, argument) in data.parameters.into_iter().zip(target.arguments) {
                    replace_uses(function, parameter, argument);
                }
            });
        }
    }
    any
}

fn reachable_blocks(function: &Function) -> Vec<bool> {
    let mut reachable = vec![false; function.blocks.len()];
    let mut pending = vec![0];
    while let Some(block) = pending.pop() {
        if !std::mem::replace(&mut reachable[block], true) {
            let next = targets(&function.blocks[block]);
            pending.extend(
                (0..reachable.len()).filter(|&index| next.iter().any(|target| is_target(target, index))),
            );
        }
    }
    reachable
}

/// Returns the text of the reachable blocks.
pub fn text(function: &Function) -> String {
    let reachable = reachable_blocks(function);
    let mut text = String::new();
    let mut is_shown = true;
    for line in function.to_string().lines() {
        if let Some(block) = (0..reachable.len()).find(|block| line.starts_with(&format!("block{block}("))) {
            is_shown = reachable[block];
        }
        if is_shown {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Removes unused instructions, and the content of unreachable blocks.
fn remove_unused(function: &mut Function) {
    let reachable = reachable_blocks(function);
    let argument = function.blocks[0].parameters[0];
    for (data, _) in function.blocks.iter_mut().zip(&reachable).filter(|(_, is_reachable)| !**is_reachable) {
        data.insts.clear();
        data.terminator = Some(Terminator::Return(argument));
    }
    loop {
        let mut uses: HashMap<Value, usize> = HashMap::new();
        for data in &function.blocks {
            let operands = data.insts.iter().flat_map(|inst| &inst.operands);
            let arguments = targets(data).into_iter().flat_map(|target| &target.arguments);
            for &value in operands.chain(arguments) {
                *uses.entry(value).or_default() += 1;
            }
            if let Some(Terminator::Branch(value, ..) | Terminator::Return(value)) = data.terminator {
                *uses.entry(value).or_default() += 1;
            }
        }
        let mut changed = false;
        for data in &mut function.blocks {
            let before = data.insts.len();
            data.insts.retain(|inst| match inst.result {
                Some(value) => uses.contains_key(&value) || matches!(inst.op, Op::Call { .. }),
                None => true,
            });
            changed |= data.insts.len() != before;
        }
        if !changed {
            return;
        }
    }
}

/// Returns whether all guards of the generator remain, so that no payload of a NaN and no
/// conversion out of range matters.
fn is_defined(function: &Function) -> bool {
    let definitions: HashMap<Value, &Inst> = function
        .blocks
        .iter()
        .flat_map(|data| &data.insts)
        .filter_map(|inst| Some((inst.result?, inst)))
        .collect();
    let guards = Guards { function, definitions };
    function.blocks.iter().flat_map(|data| &data.insts).all(|inst| guards.hold(inst))
}

struct Guards<'a> {
    function: &'a Function,
    definitions: HashMap<Value, &'a Inst>,
}

impl Guards<'_> {
    fn hold(&self, inst: &Inst) -> bool {
        match inst.op {
            Op::First
            | Op::Binary(Binary::And | Binary::Or | Binary::Xor | Binary::AndNot)
            | Op::Convert(Conversion::Bitcast | Conversion::FloatToHalf, _) => {
                inst.operands.iter().all(|&value| !self.is_float(value) || self.has_no_nan(value))
            }
            Op::Convert(Conversion::FloatToSigned, to) => self.is_clamped(inst.operands[0], to),
            // tidy: wildcard because no other operation needs a guard
            _ => true,
        }
    }

    fn is_float(&self, value: Value) -> bool {
        matches!(self.function.ty(value), Type::Vector(lane) if lane.is_float())
    }

    fn is_constant(&self, value: Value) -> bool {
        self.definitions.get(&value).is_some_and(|inst| matches!(inst.op, Op::Constant(..)))
    }

    /// Returns whether a value has no NaN, except that of a constant.
    fn has_no_nan(&self, value: Value) -> bool {
        let Some(inst) = self.definitions.get(&value) else { return false };
        match inst.op {
            Op::Constant(..) => true,
            Op::Select => {
                let [mask, x, y] = [0, 1, 2].map(|index| inst.operands[index]);
                let is_test = self.definitions.get(&mask).is_some_and(|test| {
                    test.op == Op::Compare(Compare::Eq) && test.operands.iter().all(|&operand| operand == x)
                });
                self.is_constant(y) && (is_test || self.is_constant(x))
            }
            // tidy: wildcard because the generator guards only by selections
            _ => false,
        }
    }

    fn is_clamped(&self, value: Value, to: Lane) -> bool {
        let Type::Vector(from) = self.function.ty(value) else { return false };
        let [low, high] = conversion_range(from, to);
        let is = |value: Value, bits: u64| {
            self.definitions.get(&value).is_some_and(|inst| inst.op == Op::Constant(from, bits))
        };
        let Some(lesser) = self.definitions.get(&value) else { return false };
        if matches!(lesser.op, Op::Constant(_, bits) if bits == 0 || bits == low || bits == high) {
            return true;
        }
        if lesser.op != Op::Binary(Binary::Lesser) || !is(lesser.operands[1], high) {
            return false;
        }
        let Some(greater) = self.definitions.get(&lesser.operands[0]) else { return false };
        greater.op == Op::Binary(Binary::Greater) && is(greater.operands[1], low)
    }
}
