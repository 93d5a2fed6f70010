//! Prints a function as text, for messages and tests.
//!
//! An instruction is one line: result, operation, type and operands. Only the addresses of called
//! functions depend on the process. Ill-formed functions can be printed too.
//!
//! ```text
//! function of 16 lanes
//! block0(v0: int):
//!     v3 = int 64
//!     v1 = load f32 [v0 + 64]
//!     v2 = add f32 v1, v1
//!     store f32 [v0 + v3 * 4], v2
//!     return v3
//! ```

use std::fmt::{Display, Formatter, Result};

use crate::ir::{
    Address, Binary, Block, Compare, Conversion, Function, Inst, IntBinary, IntCompare, Lane, MaskBinary, Op,
    Target, Terminator, Type, Unary, Value,
};

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for Block {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "block{}", self.0)
    }
}

impl Display for Lane {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Lane::I8 => "i8",
            Lane::I16 => "i16",
            Lane::I32 => "i32",
            Lane::I64 => "i64",
            Lane::F32 => "f32",
            Lane::F64 => "f64",
        })
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Type::Int => f.write_str("int"),
            Type::Vector(lane) => write!(f, "vector {lane}"),
            Type::Mask => f.write_str("mask"),
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "function of {} lanes", self.lanes)?;
        for (index, block) in self.blocks.iter().enumerate() {
            write!(f, "block{index}(")?;
            for (index, &parameter) in block.parameters.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                write!(f, "{comma}{parameter}: ")?;
                match self.type_of(parameter) {
                    Some(ty) => write!(f, "{ty}")?,
                    None => f.write_str("?")?,
                }
            }
            f.write_str("):\n")?;
            for inst in &block.insts {
                writeln!(f, "    {}", InstText { function: self, inst })?;
            }
            match &block.terminator {
                Some(terminator) => writeln!(f, "    {terminator}")?,
                None => writeln!(f, "    unfinished")?,
            }
        }
        Ok(())
    }
}

impl Display for Terminator {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Terminator::Jump(target) => write!(f, "jump {target}"),
            Terminator::Branch(condition, target, other) => {
                write!(f, "branch {condition}, {target}, {other}")
            }
            Terminator::Return(value) => write!(f, "return {value}"),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}({})", self.block, List(&self.arguments))
    }
}

struct List<'a>(&'a [Value]);

impl Display for List<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, value) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{value}")?;
        }
        Ok(())
    }
}

impl Function {
    /// Returns the type of a value, if the value exists.
    pub(crate) fn type_of(&self, value: Value) -> Option<Type> {
        self.types.get(value.0 as usize).copied()
    }
}

pub(crate) struct InstText<'a> {
    pub function: &'a Function,
    pub inst: &'a Inst,
}

impl Display for InstText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Inst { op, operands, result, origin: _ } = self.inst;
        if let Some(result) = result {
            write!(f, "{result} = ")?;
        }
        let all = List(operands);
        match *op {
            Op::IntConstant(value) => write!(f, "int {value}"),
            Op::IntBinary(function) => write!(f, "{} int {all}", int_binary_name(function)),
            Op::IntCompare(function) => write!(f, "{} int {all}", int_compare_name(function)),
            Op::IntSelect => write!(f, "select int {all}"),
            Op::IntExtend { bits, signed: true } => write!(f, "sign_extend int {all} from {bits}"),
            Op::IntExtend { bits, signed: false } => write!(f, "zero_extend int {all} from {bits}"),
            Op::IntLoad { bytes, address } => write!(f, "load int{} {}", bits(bytes), self.address(address)),
            Op::IntStore { bytes, address } => {
                write!(f, "store int{} {}", bits(bytes), self.address(address))?;
                self.rest(f, address, false)
            }
            Op::Constant(lane, bits) => constant(f, lane, bits),
            Op::Splat(lane) => write!(f, "splat {lane} {all}"),
            Op::First => write!(f, "first {} {all}", self.lane(0)),
            Op::Iota(lane) => write!(f, "iota {lane}"),
            Op::Unary(function) => write!(f, "{} {} {all}", unary_name(function), self.lane(0)),
            Op::Binary(function) => write!(f, "{} {} {all}", binary_name(function), self.lane(0)),
            Op::MultiplyAdd => write!(f, "multiply_add {} {all}", self.lane(0)),
            Op::Compare(function) => write!(f, "{} {} {all}", compare_name(function), self.lane(0)),
            Op::Select => write!(f, "select {} {all}", self.lane(1)),
            Op::Convert(conversion, lane) => {
                write!(f, "{} {} {all} to {lane}", conversion_name(conversion), self.lane(0))
            }
            Op::Rotate(count) => write!(f, "rotate {} {all} by {count}", self.lane(0)),
            Op::Load { lane, address, masked } => {
                write!(f, "load {lane} {}", self.address(address))?;
                self.rest(f, address, masked)
            }
            Op::Store { address, masked, streaming } => {
                let name = if streaming { "store_streaming" } else { "store" };
                write!(f, "{name} {} {}", self.lane(address_operands(address)), self.address(address))?;
                self.rest(f, address, masked)
            }
            Op::Prefetch { address } => write!(f, "prefetch {}", self.address(address)),
            Op::LoadSplat { lane, address } => write!(f, "load_splat {lane} {}", self.address(address)),
            Op::Gather(lane) => {
                let [base, offsets, mask] = [0, 1, 2].map(|index| self.operand(index));
                write!(f, "gather {lane} [{base} + {offsets}] if {mask}")
            }
            Op::Scatter => {
                let [base, offsets, value, mask] = [0, 1, 2, 3].map(|index| self.operand(index));
                write!(f, "scatter {} [{base} + {offsets}], {value} if {mask}", self.lane(2))
            }
            Op::MaskConstant(value) => write!(f, "mask {value}"),
            Op::MaskBinary(function) => write!(f, "{} mask {all}", mask_binary_name(function)),
            Op::MaskNot => write!(f, "not mask {all}"),
            Op::MaskSelect => write!(f, "select mask {all}"),
            Op::FirstLanes => write!(f, "first_lanes {all}"),
            Op::MaskOfBits => write!(f, "mask_of_bits {all}"),
            Op::MaskBits => write!(f, "mask_bits {all}"),
            Op::Call { function } => write!(f, "call {function:#x}({all})"),
        }
    }
}

impl InstText<'_> {
    fn operand(&self, index: usize) -> Text {
        Text(self.inst.operands.get(index).map_or("?".into(), ToString::to_string))
    }

    fn lane(&self, index: usize) -> Text {
        let ty = self.inst.operands.get(index).and_then(|&value| self.function.type_of(value));
        match ty {
            Some(Type::Vector(lane)) => Text(lane.to_string()),
            Some(other) => Text(other.to_string()),
            None => Text("?".into()),
        }
    }

    /// Returns the text of an address from the first operands.
    fn address(&self, address: Address) -> Text {
        let base = self.operand(0);
        let index = match (address.indexed, address.scale) {
            (false, _) => String::new(),
            (true, 1) => format!(" + {}", self.operand(1)),
            (true, scale) => format!(" + {} * {scale}", self.operand(1)),
        };
        let offset = match address.offset {
            0 => String::new(),
            offset if offset < 0 => format!(" - {}", offset.unsigned_abs()),
            offset => format!(" + {offset}"),
        };
        Text(format!("[{base}{index}{offset}]"))
    }

    /// Prints the operands after those of an address. With `masked`, the last one is a mask.
    fn rest(&self, f: &mut Formatter<'_>, address: Address, masked: bool) -> Result {
        let operands = self.inst.operands.get(address_operands(address)..).unwrap_or_default();
        for (index, operand) in operands.iter().enumerate() {
            let before = if masked && index + 1 == operands.len() { " if " } else { ", " };
            write!(f, "{before}{operand}")?;
        }
        Ok(())
    }
}

struct Text(String);

impl Display for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn address_operands(address: Address) -> usize {
    1 + usize::from(address.indexed)
}

fn bits(bytes: u8) -> u32 {
    8 * u32::from(bytes)
}

/// Prints a constant vector: the bits of a lane and, for a float, its value.
fn constant(f: &mut Formatter<'_>, lane: Lane, bits: u64) -> Result {
    let digits = 2 + 2 * lane.bytes();
    write!(f, "constant {lane} {bits:#0digits$x}")?;
    match lane {
        Lane::F32 => write!(f, " ({:?})", f32::from_bits(bits as u32)),
        Lane::F64 => write!(f, " ({:?})", f64::from_bits(bits)),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => Ok(()),
    }
}

fn int_binary_name(function: IntBinary) -> &'static str {
    match function {
        IntBinary::Add => "add",
        IntBinary::Sub => "sub",
        IntBinary::Mul => "mul",
        IntBinary::And => "and",
        IntBinary::Or => "or",
        IntBinary::Xor => "xor",
        IntBinary::Shl => "shl",
        IntBinary::Shr => "shr",
        IntBinary::Sar => "sar",
        IntBinary::Min => "min",
        IntBinary::Max => "max",
        IntBinary::DivSigned => "div_signed",
        IntBinary::DivUnsigned => "div_unsigned",
        IntBinary::RemSigned => "rem_signed",
        IntBinary::RemUnsigned => "rem_unsigned",
    }
}

fn int_compare_name(function: IntCompare) -> &'static str {
    match function {
        IntCompare::Eq => "eq",
        IntCompare::Ne => "ne",
        IntCompare::LtSigned => "lt_signed",
        IntCompare::LeSigned => "le_signed",
        IntCompare::LtUnsigned => "lt_unsigned",
        IntCompare::LeUnsigned => "le_unsigned",
    }
}

fn unary_name(function: Unary) -> &'static str {
    match function {
        Unary::Sqrt => "sqrt",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
    }
}

fn binary_name(function: Binary) -> &'static str {
    match function {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Scale => "scale",
        Binary::Lesser => "lesser",
        Binary::Greater => "greater",
        Binary::LesserUnsigned => "lesser_unsigned",
        Binary::GreaterUnsigned => "greater_unsigned",
        Binary::And => "and",
        Binary::Or => "or",
        Binary::Xor => "xor",
        Binary::AndNot => "and_not",
        Binary::Shl => "shl",
        Binary::Shr => "shr",
        Binary::Sar => "sar",
        Binary::MulHighSigned => "mul_high_signed",
        Binary::MulHighUnsigned => "mul_high_unsigned",
    }
}

fn compare_name(function: Compare) -> &'static str {
    match function {
        Compare::Eq => "eq",
        Compare::Ne => "ne",
        Compare::Lt => "lt",
        Compare::Le => "le",
        Compare::LtUnsigned => "lt_unsigned",
        Compare::LeUnsigned => "le_unsigned",
    }
}

fn conversion_name(conversion: Conversion) -> &'static str {
    match conversion {
        Conversion::SignExtend => "sign_extend",
        Conversion::ZeroExtend => "zero_extend",
        Conversion::Truncate => "truncate",
        Conversion::SignedToFloat => "signed_to_float",
        Conversion::UnsignedToFloat => "unsigned_to_float",
        Conversion::FloatToSigned => "float_to_signed",
        Conversion::FloatToFloat => "float_to_float",
        Conversion::HalfToFloat => "half_to_float",
        Conversion::FloatToHalf => "float_to_half",
        Conversion::Bitcast => "bitcast",
    }
}

fn mask_binary_name(function: MaskBinary) -> &'static str {
    match function {
        MaskBinary::And => "and",
        MaskBinary::Or => "or",
        MaskBinary::Xor => "xor",
        MaskBinary::AndNot => "and_not",
    }
}
