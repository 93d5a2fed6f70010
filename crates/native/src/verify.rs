//! Checks a function against the rules in the comments of [`crate::ir`].
//!
//! The interpreter and the code generator assume a verified function.

use std::fmt::{Display, Formatter};

use crate::dominators::Dominators;
use crate::ir::{
    Address, Binary, Block, Compare, Conversion, Function, Inst, Lane, Op, Target, Terminator, Type, Value,
};
use crate::print::{InstText, address_operands};

/// A rule that a function violates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    message: String,
}

impl Display for VerifyError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VerifyError {}

/// Checks that a function is well formed. The error names the first violation.
///
/// Does not check the preconditions of instructions on the values of their operands. An example is
/// that a divisor is not 0.
pub fn verify(function: &Function) -> Result<(), VerifyError> {
    let verifier = Verifier { function, definitions: vec![None; function.types.len()] };
    verifier.verify().map_err(|message| VerifyError { message })
}

/// A block and an index in it. Parameters have index 0, then come the instructions and the
/// terminator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    block: usize,
    index: usize,
}

struct Verifier<'a> {
    function: &'a Function,
    definitions: Vec<Option<Position>>,
}

impl Verifier<'_> {
    fn verify(mut self) -> Result<(), String> {
        let function = self.function;
        if !function.lanes.is_power_of_two() || !(4..=16).contains(&function.lanes) {
            return Err(format!(
                "the function has {} lanes, but the number of lanes must be 4, 8 or 16",
                function.lanes
            ));
        }
        let Some(entry) = function.blocks.first() else {
            return Err("the function has no block, but must have an entry".into());
        };
        let types: Vec<_> = entry.parameters.iter().map(|&value| function.type_of(value)).collect();
        if types != [Some(Type::Int)] {
            return Err(format!(
                "block0 has {} parameters, but the entry must have one, of type int",
                types.len()
            ));
        }
        self.collect_definitions()?;
        for (block, data) in function.blocks.iter().enumerate() {
            for inst in &data.insts {
                self.check_inst(inst).map_err(|message| {
                    format!("block{block}: `{}`: {message}", InstText { function, inst })
                })?;
            }
            let Some(terminator) = &data.terminator else {
                return Err(format!("block{block} has no terminator"));
            };
            self.check_terminator(terminator)
                .map_err(|message| format!("block{block}: `{terminator}`: {message}"))?;
        }
        self.check_dominance()
    }

    fn collect_definitions(&mut self) -> Result<(), String> {
        for (block, data) in self.function.blocks.iter().enumerate() {
            let parameters = data.parameters.iter().map(|&value| (0, value));
            let results =
                data.insts.iter().enumerate().filter_map(|(index, inst)| Some((index + 1, inst.result?)));
            for (index, value) in parameters.chain(results) {
                let Some(definition) = self.definitions.get_mut(value.0 as usize) else {
                    return Err(format!("block{block} defines {value}, which has no type"));
                };
                if let Some(first) = definition {
                    return Err(format!(
                        "block{block} defines {value}, which block{} also defines",
                        first.block
                    ));
                }
                *definition = Some(Position { block, index });
            }
        }
        Ok(())
    }

    /// Returns the type of a defined value.
    fn ty(&self, value: Value) -> Result<Type, String> {
        let is_defined = self.definitions.get(value.0 as usize).is_some_and(Option::is_some);
        match self.function.type_of(value) {
            Some(ty) if is_defined => Ok(ty),
            Some(_) | None => Err(format!("no instruction or block defines {value}")),
        }
    }

    fn check_terminator(&self, terminator: &Terminator) -> Result<(), String> {
        match terminator {
            Terminator::Jump(target) => self.check_target(target),
            Terminator::Branch(condition, target, other) => {
                self.check_type(*condition, Type::Int)?;
                self.check_target(target)?;
                self.check_target(other)
            }
            Terminator::Return(value) => self.check_type(*value, Type::Int),
        }
    }

    fn check_target(&self, target: &Target) -> Result<(), String> {
        let Some(data) = self.function.blocks.get(target.block.0 as usize) else {
            return Err(format!("the function has no {}", target.block));
        };
        if target.block == Block(0) {
            return Err("no terminator continues with the entry, block0".into());
        }
        if target.arguments.len() != data.parameters.len() {
            return Err(format!(
                "{} receives {} arguments but has {} parameters",
                target.block,
                target.arguments.len(),
                data.parameters.len()
            ));
        }
        for (&argument, &parameter) in target.arguments.iter().zip(&data.parameters) {
            self.check_type(argument, self.ty(parameter)?)?;
        }
        Ok(())
    }

    fn check_type(&self, value: Value, expected: Type) -> Result<(), String> {
        let ty = self.ty(value)?;
        if ty == expected {
            Ok(())
        } else {
            Err(format!("{value} is of type {ty}, but must be of type {expected}"))
        }
    }

    fn check_operands(&self, inst: &Inst, expected: &[Type]) -> Result<(), String> {
        if inst.operands.len() != expected.len() {
            return Err(format!(
                "the instruction has {} operands, but must have {}",
                inst.operands.len(),
                expected.len()
            ));
        }
        inst.operands.iter().zip(expected).try_for_each(|(&value, &ty)| self.check_type(value, ty))
    }

    /// Returns the lane type of an operand, which must be a vector.
    fn lane(&self, inst: &Inst, index: usize) -> Result<Lane, String> {
        let Some(&value) = inst.operands.get(index) else {
            return Err(format!("the instruction has only {} operands", inst.operands.len()));
        };
        match self.ty(value)? {
            Type::Vector(lane) => Ok(lane),
            other => Err(format!("{value} is of type {other}, but must be a vector")),
        }
    }

    /// Checks an instruction, and the type of its result.
    fn check_inst(&self, inst: &Inst) -> Result<(), String> {
        let expected = self.check_op(inst)?;
        match (inst.result, expected) {
            (None, None) => Ok(()),
            (Some(result), Some(ty)) => self.check_type(result, ty),
            (Some(result), None) => Err(format!("the operation has no result, but defines {result}")),
            (None, Some(ty)) => Err(format!("the operation has a result of type {ty}, but defines no value")),
        }
    }

    /// Checks operands and attributes. Returns the type of the result.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn check_op(&self, inst: &Inst) -> Result<Option<Type>, String> {
        use Type::{Int, Mask, Vector};
        let (operands, result): (Vec<Type>, Option<Type>) = match inst.op {
            Op::IntConstant(_) => (vec![], Some(Int)),
            Op::IntBinary(_) | Op::IntCompare(_) => (vec![Int; 2], Some(Int)),
            Op::IntSelect => (vec![Int; 3], Some(Int)),
            Op::IntExtend { bits, .. } => {
                require(matches!(bits, 8 | 16 | 32), || {
                    format!("{bits} bits are extended, but must be 8, 16 or 32")
                })?;
                (vec![Int], Some(Int))
            }
            Op::IntLoad { bytes, address } => {
                check_int_bytes(bytes)?;
                (address_types(address)?, Some(Int))
            }
            Op::IntStore { bytes, address } => {
                check_int_bytes(bytes)?;
                (with(address_types(address)?, &[Int]), None)
            }
            Op::Constant(lane, bits) => {
                let fits = lane.bytes() == 8 || bits >> (8 * lane.bytes()) == 0;
                require(fits, || format!("{bits:#x} is wider than a lane of {lane}"))?;
                (vec![], Some(Vector(lane)))
            }
            Op::Splat(lane) => (vec![Int], Some(Vector(lane))),
            Op::First => (vec![Vector(self.lane(inst, 0)?)], Some(Int)),
            Op::Iota(lane) => {
                require_integer(lane)?;
                (vec![], Some(Vector(lane)))
            }
            Op::Unary(_) => {
                let lane = require_float(self.lane(inst, 0)?)?;
                (vec![Vector(lane)], Some(Vector(lane)))
            }
            Op::Binary(function) => {
                let lane = self.lane(inst, 0)?;
                check_binary(function, lane)?;
                (vec![Vector(lane); 2], Some(Vector(lane)))
            }
            Op::MultiplyAdd => {
                let lane = require_float(self.lane(inst, 0)?)?;
                (vec![Vector(lane); 3], Some(Vector(lane)))
            }
            Op::Compare(function) => {
                let lane = self.lane(inst, 0)?;
                match function {
                    Compare::Eq | Compare::Ne | Compare::Lt | Compare::Le => {}
                    Compare::LtUnsigned | Compare::LeUnsigned => require_integer(lane)?,
                }
                (vec![Vector(lane); 2], Some(Mask))
            }
            Op::Select => {
                let vector = Vector(self.lane(inst, 1)?);
                (vec![Mask, vector, vector], Some(vector))
            }
            Op::Convert(conversion, to) => {
                let from = self.lane(inst, 0)?;
                require(is_conversion(conversion, from, to), || {
                    format!("the conversion does not convert {from} to {to}")
                })?;
                (vec![Vector(from)], Some(Vector(to)))
            }
            Op::Rotate(count) => {
                let lanes = self.function.lanes;
                require(usize::from(count) < lanes, || {
                    format!("the count is {count}, but must be below the {lanes} lanes")
                })?;
                let vector = Vector(self.lane(inst, 0)?);
                (vec![vector], Some(vector))
            }
            Op::Load { lane, address, masked } => {
                let mask: &[Type] = if masked { &[Mask] } else { &[] };
                (with(address_types(address)?, mask), Some(Vector(lane)))
            }
            Op::Store { address, masked, streaming } => {
                require(!(masked && streaming), || "a streaming store has no mask".into())?;
                let mask: &[Type] = if masked { &[Mask] } else { &[] };
                let vector = Vector(self.lane(inst, address_operands(address))?);
                (with(with(address_types(address)?, &[vector]), mask), None)
            }
            Op::Prefetch { address } => (address_types(address)?, None),
            Op::LoadSplat { lane, address } => (address_types(address)?, Some(Vector(lane))),
            Op::Gather(lane) => {
                require_wide(lane)?;
                (vec![Int, Vector(Lane::I64), Mask], Some(Vector(lane)))
            }
            Op::Scatter => {
                let lane = self.lane(inst, 2)?;
                require_wide(lane)?;
                (vec![Int, Vector(Lane::I64), Vector(lane), Mask], None)
            }
            Op::MaskConstant(_) => (vec![], Some(Mask)),
            Op::MaskBinary(_) => (vec![Mask; 2], Some(Mask)),
            Op::MaskNot => (vec![Mask], Some(Mask)),
            Op::MaskSelect => (vec![Mask; 3], Some(Mask)),
            Op::FirstLanes | Op::MaskOfBits => (vec![Int], Some(Mask)),
            Op::MaskBits => (vec![Mask], Some(Int)),
            Op::Call { function } => {
                let count = inst.operands.len();
                require(count <= 4, || format!("the call has {count} arguments, but must have at most 4"))?;
                require(function != 0, || "the address of the function is 0".into())?;
                (vec![Int; count], Some(Int))
            }
        };
        self.check_operands(inst, &operands)?;
        Ok(result)
    }

    /// Checks that the definition of each value dominates its uses in reachable blocks.
    fn check_dominance(&self) -> Result<(), String> {
        let dominators = Dominators::new(self.function);
        let check = |value: Value, at: Position| {
            let definition = self.definitions[value.0 as usize].ok_or("the value has a definition")?;
            if definition.block == at.block {
                return require(definition.index < at.index, || {
                    format!("block{} uses {value} before it defines it", at.block)
                });
            }
            require(dominators.dominates(definition.block, at.block), || {
                let Position { block, .. } = at;
                format!("block{block} uses {value}, but block{} defines it", definition.block)
                    + ", which does not dominate the use"
            })
        };
        for (block, data) in self.function.blocks.iter().enumerate() {
            if !dominators.is_reachable(block) {
                continue;
            }
            for (index, inst) in data.insts.iter().enumerate() {
                for &value in &inst.operands {
                    check(value, Position { block, index: index + 1 })?;
                }
            }
            let end = Position { block, index: data.insts.len() + 1 };
            match data.terminator.as_ref() {
                None => {}
                Some(Terminator::Return(value)) => check(*value, end)?,
                Some(Terminator::Jump(target)) => {
                    target.arguments.iter().try_for_each(|&value| check(value, end))?;
                }
                Some(Terminator::Branch(condition, target, other)) => {
                    check(*condition, end)?;
                    let mut arguments = target.arguments.iter().chain(&other.arguments);
                    arguments.try_for_each(|&value| check(value, end))?;
                }
            }
        }
        Ok(())
    }
}

fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn require_integer(lane: Lane) -> Result<(), String> {
    require(!lane.is_float(), || format!("the lanes are {lane}, but must be integers"))
}

fn require_float(lane: Lane) -> Result<Lane, String> {
    require(lane.is_float(), || format!("the lanes are {lane}, but must be floats"))?;
    Ok(lane)
}

fn require_wide(lane: Lane) -> Result<(), String> {
    require(lane.bytes() >= 4, || format!("the lanes are {lane}, but must have 32 or 64 bits"))
}

fn check_int_bytes(bytes: u8) -> Result<(), String> {
    require(matches!(bytes, 1 | 2 | 4 | 8), || {
        format!("the access has {bytes} bytes, but must have 1, 2, 4 or 8")
    })
}

/// Checks an address. Returns the types of its operands.
fn address_types(address: Address) -> Result<Vec<Type>, String> {
    let scale = address.scale;
    require(matches!(scale, 1 | 2 | 4 | 8), || format!("the scale is {scale}, but must be 1, 2, 4 or 8"))?;
    require(address.indexed || scale == 1, || format!("the scale is {scale}, but there is no index"))?;
    Ok(vec![Type::Int; address_operands(address)])
}

fn with(mut types: Vec<Type>, more: &[Type]) -> Vec<Type> {
    types.extend(more);
    types
}

fn check_binary(function: Binary, lane: Lane) -> Result<(), String> {
    match function {
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Lesser
        | Binary::Greater
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::AndNot => Ok(()),
        Binary::Div => require_float(lane).map(|_| ()),
        Binary::Scale if lane == Lane::F32 => Ok(()),
        Binary::Scale => Err(format!("scale must be of f32, not of {lane}")),
        Binary::LesserUnsigned
        | Binary::GreaterUnsigned
        | Binary::Shl
        | Binary::Shr
        | Binary::Sar
        | Binary::MulHighSigned
        | Binary::MulHighUnsigned => require_integer(lane),
    }
}

fn is_conversion(conversion: Conversion, from: Lane, to: Lane) -> bool {
    let is_int = |lane: Lane| !lane.is_float();
    let is_wide_int = |lane: Lane| matches!(lane, Lane::I32 | Lane::I64);
    match conversion {
        Conversion::SignExtend | Conversion::ZeroExtend => {
            is_int(from) && is_int(to) && from.bytes() < to.bytes()
        }
        Conversion::Truncate => is_int(from) && is_int(to) && from.bytes() > to.bytes(),
        Conversion::SignedToFloat | Conversion::UnsignedToFloat => is_wide_int(from) && to.is_float(),
        Conversion::FloatToSigned => from.is_float() && is_wide_int(to),
        Conversion::FloatToFloat => from.is_float() && to.is_float() && from != to,
        Conversion::HalfToFloat => from == Lane::I16 && to == Lane::F32,
        Conversion::FloatToHalf => from == Lane::F32 && to == Lane::I16,
        Conversion::Bitcast => from.bytes() == to.bytes(),
    }
}
