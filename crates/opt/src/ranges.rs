//! Replaces integers that have one value in every run by constants.
//!
//! An example is the mask `index + arange < bound` in a loop whose bounds differ by a multiple of
//! its step.

use smallvec::smallvec;
use tilewright_base::entity::EntitySet;
use tilewright_ir::{Block, Effect, Function, Inst, Literal, Op, OpFamily, Regions, Type, Value};

use crate::analysis;

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut Function) -> bool {
    let infos = analysis::analyze(function);
    let assumed = assumed_values(function);
    let mut known: EntitySet<Inst> = EntitySet::new();
    function.walk(function.entry, &mut |inst| {
        let op = &function.insts[inst].op;
        let is_pure = op.family() == OpFamily::Pointwise && op.info().effect == Effect::Pure;
        let result = function.result(inst).filter(|&result| is_pure && !assumed.contains(result));
        if result.is_some_and(|result| infos[result].constant.is_some()) {
            known.insert(inst);
        }
    });
    if known.is_empty() {
        return false;
    }
    let constant = |value: Value| infos[value].constant;
    replace(function, function.entry, &known, &constant);
    true
}

/// Returns the operands of `assume`s, and the values from which they are computed. They stay,
/// because an `assume` of a constant promises nothing.
fn assumed_values(function: &Function) -> EntitySet<Value> {
    let mut assumed = EntitySet::new();
    let mut open: Vec<Value> = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if function.insts[inst].op.family() == OpFamily::Promise {
            open.extend(&function.insts[inst].operands);
        }
    });
    while let Some(value) = open.pop() {
        if assumed.insert(value)
            && let Some(inst) = function.defining_inst(value)
            && function.insts[inst].op.family() == OpFamily::Pointwise
        {
            open.extend(&function.insts[inst].operands);
        }
    }
    assumed
}

/// Replaces each instruction in `known` by its constant, splat to the shape of its result.
fn replace(
    function: &mut Function,
    block: Block,
    known: &EntitySet<Inst>,
    constant: &impl Fn(Value) -> Option<i128>,
) {
    let insts = std::mem::take(&mut function.blocks[block].insts);
    let mut out = Vec::with_capacity(insts.len());
    for inst in insts {
        for region in function.insts[inst].regions.clone() {
            replace(function, region, known, constant);
        }
        let result = function.result(inst).filter(|_| known.contains(inst));
        let number = result.and_then(constant);
        if let (Some(result), Some(number)) = (result, number) {
            let ty = function.ty(result).clone();
            let dtype = ty.dtype().expect("only integers are known");
            let value = Literal::int(dtype, number);
            let location = function.insts[inst].location;
            let (op, operands) = if ty.is_scalar() {
                (Op::Constant { value }, smallvec![])
            } else {
                let scalar = [Type::scalar(dtype)];
                let made = function.create_inst(
                    Op::Constant { value },
                    smallvec![],
                    Regions::new(),
                    scalar,
                    location,
                );
                out.push(made);
                (Op::Splat { shape: ty.shape.clone() }, function.insts[made].results[..].into())
            };
            function.insts[inst].op = op;
            function.insts[inst].operands = operands;
        }
        out.push(inst);
    }
    function.blocks[block].insts = out;
}
