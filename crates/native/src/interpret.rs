//! Interprets vector SSA, one lane after another.
//!
//! The interpreter defines every operation in plain Rust, independently of the code generator. Its
//! results differ from those of machine code only in payloads and signs of NaN, and where
//! [`crate::ir`] calls a result unspecified. It also checks the preconditions of [`crate::ir`] on
//! operand values.

mod memory;

use std::fmt::{Display, Formatter};

use half::f16;

use crate::ir::{
    Address, Binary, Compare, Conversion, Function, Inst, IntBinary, IntCompare, Lane, MaskBinary, Op,
    Target, Terminator, Type, Unary, Value,
};
use crate::print::{InstText, address_operands};
use memory::Memory;

const MAX_LANES: usize = 16;

/// The reason why the interpreter did not reach the end of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InterpretError {
    /// The function executed more instructions and terminators than the limit.
    Limit(u64),
    /// An instruction violated a precondition on the values of its operands.
    Precondition {
        /// The text of the instruction.
        inst: String,
        /// The violated precondition.
        message: String,
    },
}

impl Display for InterpretError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit(limit) => {
                write!(f, "the function executes more than {limit} instructions and terminators")
            }
            Self::Precondition { inst, message } => write!(f, "`{inst}`: {message}"),
        }
    }
}

impl std::error::Error for InterpretError {}

/// Executes a function and returns its result.
///
/// The function must pass [`crate::verify`]: the interpreter panics at an ill-formed instruction.
/// `limit` bounds the number of executed instructions and terminators. An error does not undo
/// earlier stores of the function.
///
/// # Safety
///
/// Each address that the function accesses must be valid for the access: mapped, exposed, free of
/// data races, and writable for a store. Each function that it calls must be sound to call.
#[expect(unsafe_code, reason = "the function accesses memory by address")]
pub unsafe fn interpret(function: &Function, argument: u64, limit: u64) -> Result<u64, InterpretError> {
    // SAFETY: the caller guarantees that the accesses and the calls of the function are valid.
    let memory = unsafe { Memory::new() };
    let mut frame = Frame {
        function,
        memory,
        contents: vec![Content::Undefined; function.types.len()],
        remaining: limit,
        limit,
    };
    frame.run(argument)
}

#[derive(Clone, Copy)]
enum Content {
    /// The value is not defined yet.
    Undefined,
    Int(u64),
    /// The bits of each lane, extended with zeros. The entries after the last lane are 0.
    Vector([u64; MAX_LANES]),
    /// Bit i is lane i.
    Mask(u32),
}

struct Frame<'a> {
    function: &'a Function,
    memory: Memory,
    contents: Vec<Content>,
    /// The number of instructions and terminators that may still be executed.
    remaining: u64,
    limit: u64,
}

impl Frame<'_> {
    fn run(&mut self, argument: u64) -> Result<u64, InterpretError> {
        let function = self.function;
        let mut block = &function.blocks[0];
        self.set(block.parameters[0], Content::Int(argument));
        loop {
            for inst in &block.insts {
                self.count()?;
                let result = self.execute(inst).map_err(|message| InterpretError::Precondition {
                    inst: InstText { function, inst }.to_string(),
                    message: message.into(),
                })?;
                if let (Some(value), Some(content)) = (inst.result, result) {
                    self.set(value, content);
                }
            }
            self.count()?;
            let target = match block.terminator.as_ref().expect("the block has a terminator") {
                Terminator::Jump(target) => target,
                Terminator::Branch(condition, target, other) => {
                    if self.int(*condition) != 0 {
                        target
                    } else {
                        other
                    }
                }
                Terminator::Return(value) => return Ok(self.int(*value)),
            };
            self.pass_arguments(target);
            block = function.block(target.block);
        }
    }

    /// Counts an executed instruction or terminator.
    fn count(&mut self) -> Result<(), InterpretError> {
        self.remaining = self.remaining.checked_sub(1).ok_or(InterpretError::Limit(self.limit))?;
        Ok(())
    }

    /// Assigns the parameters of a block. Reads all arguments first, because they may be parameters
    /// of the same block.
    fn pass_arguments(&mut self, target: &Target) {
        let contents: Vec<Content> = target.arguments.iter().map(|&value| self.get(value)).collect();
        for (&parameter, content) in self.function.block(target.block).parameters.iter().zip(contents) {
            self.set(parameter, content);
        }
    }

    fn get(&self, value: Value) -> Content {
        self.contents[value.0 as usize]
    }

    fn set(&mut self, value: Value, content: Content) {
        self.contents[value.0 as usize] = content;
    }

    fn int(&self, value: Value) -> u64 {
        match self.get(value) {
            Content::Int(bits) => bits,
            Content::Undefined | Content::Vector(_) | Content::Mask(_) => panic!("{value} is not an integer"),
        }
    }

    fn vector(&self, value: Value) -> [u64; MAX_LANES] {
        match self.get(value) {
            Content::Vector(lanes) => lanes,
            Content::Undefined | Content::Int(_) | Content::Mask(_) => panic!("{value} is not a vector"),
        }
    }

    fn mask(&self, value: Value) -> u32 {
        match self.get(value) {
            Content::Mask(bits) => bits,
            Content::Undefined | Content::Int(_) | Content::Vector(_) => panic!("{value} is not a mask"),
        }
    }

    fn lane(&self, value: Value) -> Lane {
        match self.function.ty(value) {
            Type::Vector(lane) => lane,
            other => panic!("{value} is of type {other}"),
        }
    }

    fn all_lanes(&self) -> u32 {
        (1 << self.function.lanes) - 1
    }

    /// Returns a vector whose lane i is `compute(i)`.
    fn each_lane(&self, mut compute: impl FnMut(usize) -> u64) -> Content {
        let lanes = self.function.lanes;
        Content::Vector(std::array::from_fn(|index| if index < lanes { compute(index) } else { 0 }))
    }

    /// Returns the address of an access from the first operands.
    fn address(&self, inst: &Inst, address: Address) -> u64 {
        let base = self.int(inst.operands[0]).wrapping_add(i64::from(address.offset) as u64);
        if address.indexed {
            base.wrapping_add(self.int(inst.operands[1]).wrapping_mul(u64::from(address.scale)))
        } else {
            base
        }
    }

    /// Executes an instruction. The error is the violated precondition.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn execute(&self, inst: &Inst) -> Result<Option<Content>, &'static str> {
        let operands = &inst.operands;
        let integer = |index: usize| self.int(operands[index]);
        let vector = |index: usize| self.vector(operands[index]);
        let mask = |index: usize| self.mask(operands[index]);
        let lane = |index: usize| self.lane(operands[index]);
        let is_on = |mask: u32, index: usize| mask >> index & 1 != 0;
        let content = match inst.op {
            Op::IntConstant(value) => Content::Int(value as u64),
            Op::IntBinary(function) => Content::Int(int_binary(function, integer(0), integer(1))?),
            Op::IntCompare(function) => {
                Content::Int(u64::from(int_compare(function, integer(0), integer(1))))
            }
            Op::IntSelect => Content::Int(if integer(0) != 0 { integer(1) } else { integer(2) }),
            Op::IntExtend { bits, signed } => {
                let unused = 64 - u32::from(bits);
                let shifted = integer(0) << unused;
                Content::Int(if signed { (shifted as i64 >> unused) as u64 } else { shifted >> unused })
            }
            Op::IntLoad { bytes, address } => {
                Content::Int(self.memory.load(self.address(inst, address), bytes.into()))
            }
            Op::IntStore { bytes, address } => {
                let value = integer(address_operands(address));
                self.memory.store(self.address(inst, address), bytes.into(), value);
                return Ok(None);
            }
            Op::Constant(_, bits) => self.each_lane(|_| bits),
            Op::Splat(lane) => {
                let bits = low_bits(lane, integer(0));
                self.each_lane(|_| bits)
            }
            Op::First => Content::Int(vector(0)[0]),
            Op::Iota(_) => self.each_lane(|index| index as u64),
            Op::Unary(function) => {
                let (lane, x) = (lane(0), vector(0));
                self.each_lane(|index| unary(function, lane, x[index]))
            }
            Op::Binary(function) => {
                let (lane, x, y) = (lane(0), vector(0), vector(1));
                self.each_lane(|index| binary(function, lane, x[index], y[index]))
            }
            Op::MultiplyAdd => {
                let (lane, x, y, z) = (lane(0), vector(0), vector(1), vector(2));
                self.each_lane(|index| multiply_add(lane, x[index], y[index], z[index]))
            }
            Op::Compare(function) => {
                let (lane, x, y) = (lane(0), vector(0), vector(1));
                let holds = |index: usize| u32::from(compare(function, lane, x[index], y[index]));
                Content::Mask((0..self.function.lanes).map(|index| holds(index) << index).sum())
            }
            Op::Select => {
                let (mask, x, y) = (mask(0), vector(1), vector(2));
                self.each_lane(|index| if is_on(mask, index) { x[index] } else { y[index] })
            }
            Op::Convert(conversion, to) => {
                let (from, x) = (lane(0), vector(0));
                self.each_lane(|index| convert(conversion, from, to, x[index]))
            }
            Op::Rotate(count) => {
                let x = vector(0);
                self.each_lane(|index| x[(index + usize::from(count)) % self.function.lanes])
            }
            Op::Load { lane, address, masked } => {
                let start = self.address(inst, address);
                let mask = if masked { mask(address_operands(address)) } else { self.all_lanes() };
                self.each_lane(|index| {
                    let at = start.wrapping_add((index * lane.bytes()) as u64);
                    if is_on(mask, index) { self.memory.load(at, lane.bytes()) } else { 0 }
                })
            }
            Op::Store { address, masked, streaming } => {
                let start = self.address(inst, address);
                let first = address_operands(address);
                let (bytes, value) = (lane(first).bytes(), vector(first));
                let mask = if masked { mask(first + 1) } else { self.all_lanes() };
                if streaming && !start.is_multiple_of((bytes * self.function.lanes) as u64) {
                    return Err("the address of the streaming store is not a multiple of its bytes");
                }
                for (index, &bits) in value.iter().enumerate().filter(|&(index, _)| is_on(mask, index)) {
                    self.memory.store(start.wrapping_add((index * bytes) as u64), bytes, bits);
                }
                return Ok(None);
            }
            Op::Prefetch { .. } => return Ok(None),
            Op::LoadSplat { lane, address } => {
                let bits = self.memory.load(self.address(inst, address), lane.bytes());
                self.each_lane(|_| bits)
            }
            Op::Gather(lane) => {
                let (base, offsets, mask) = (integer(0), vector(1), mask(2));
                self.each_lane(|index| {
                    let at = base.wrapping_add(offsets[index]);
                    if is_on(mask, index) { self.memory.load(at, lane.bytes()) } else { 0 }
                })
            }
            Op::Scatter => {
                let (base, offsets, value, mask) = (integer(0), vector(1), vector(2), mask(3));
                let bytes = lane(2).bytes();
                for (index, &bits) in value.iter().enumerate().filter(|&(index, _)| is_on(mask, index)) {
                    self.memory.store(base.wrapping_add(offsets[index]), bytes, bits);
                }
                return Ok(None);
            }
            Op::MaskConstant(value) => Content::Mask(if value { self.all_lanes() } else { 0 }),
            Op::MaskBinary(function) => {
                let (x, y) = (mask(0), mask(1));
                Content::Mask(match function {
                    MaskBinary::And => x & y,
                    MaskBinary::Or => x | y,
                    MaskBinary::Xor => x ^ y,
                    MaskBinary::AndNot => !x & y,
                })
            }
            Op::MaskNot => Content::Mask(!mask(0) & self.all_lanes()),
            Op::MaskSelect => {
                let (condition, x, y) = (mask(0), mask(1), mask(2));
                Content::Mask(condition & x | !condition & y)
            }
            Op::FirstLanes => {
                let count = (integer(0) as i64).clamp(0, self.function.lanes as i64);
                Content::Mask((1 << count) - 1)
            }
            Op::MaskOfBits => Content::Mask(integer(0) as u32 & self.all_lanes()),
            Op::MaskBits => Content::Int(u64::from(mask(0))),
            Op::Call { function } => {
                let arguments: Vec<u64> = operands.iter().map(|&value| self.int(value)).collect();
                Content::Int(self.memory.call(function, &arguments))
            }
        };
        Ok(Some(content))
    }
}

fn int_binary(function: IntBinary, x: u64, y: u64) -> Result<u64, &'static str> {
    let (a, b) = (x as i64, y as i64);
    let count = || if y < 64 { Ok(y as u32) } else { Err("the count of the shift is not below 64") };
    let divisor = "the divisor is 0, or the quotient overflows";
    Ok(match function {
        IntBinary::Add => x.wrapping_add(y),
        IntBinary::Sub => x.wrapping_sub(y),
        IntBinary::Mul => x.wrapping_mul(y),
        IntBinary::And => x & y,
        IntBinary::Or => x | y,
        IntBinary::Xor => x ^ y,
        IntBinary::Shl => x << count()?,
        IntBinary::Shr => x >> count()?,
        IntBinary::Sar => (a >> count()?) as u64,
        IntBinary::Min => a.min(b) as u64,
        IntBinary::Max => a.max(b) as u64,
        IntBinary::DivSigned => a.checked_div(b).ok_or(divisor)? as u64,
        IntBinary::DivUnsigned => x.checked_div(y).ok_or(divisor)?,
        IntBinary::RemSigned => a.checked_rem(b).ok_or(divisor)? as u64,
        IntBinary::RemUnsigned => x.checked_rem(y).ok_or(divisor)?,
    })
}

fn int_compare(function: IntCompare, x: u64, y: u64) -> bool {
    let (a, b) = (x as i64, y as i64);
    match function {
        IntCompare::Eq => x == y,
        IntCompare::Ne => x != y,
        IntCompare::LtSigned => a < b,
        IntCompare::LeSigned => a <= b,
        IntCompare::LtUnsigned => x < y,
        IntCompare::LeUnsigned => x <= y,
    }
}

fn width(lane: Lane) -> u32 {
    8 * lane.bytes() as u32
}

fn low_bits(lane: Lane, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - width(lane)))
}

/// Extends the bits of a lane by their sign.
fn signed(lane: Lane, bits: u64) -> i64 {
    let unused = 64 - width(lane);
    (bits << unused) as i64 >> unused
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn of_single(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn of_double(value: f64) -> u64 {
    value.to_bits()
}

fn unary(function: Unary, lane: Lane, x: u64) -> u64 {
    match (lane, function) {
        (Lane::F32, Unary::Sqrt) => of_single(single(x).sqrt()),
        (Lane::F32, Unary::Floor) => of_single(single(x).floor()),
        (Lane::F32, Unary::Ceil) => of_single(single(x).ceil()),
        (Lane::F64, Unary::Sqrt) => of_double(double(x).sqrt()),
        (Lane::F64, Unary::Floor) => of_double(double(x).floor()),
        (Lane::F64, Unary::Ceil) => of_double(double(x).ceil()),
        (Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64, _) => panic!("{function:?} has no lanes of {lane}"),
    }
}

fn binary(function: Binary, lane: Lane, x: u64, y: u64) -> u64 {
    match function {
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::AndNot => !x & y,
        // The product is exact in binary64.
        Binary::Scale => of_single((f64::from(single(x)) * f64::from(single(y)).exp2()) as f32),
        Binary::Lesser => choose(compare(Compare::Lt, lane, x, y), x, y),
        Binary::Greater => choose(compare(Compare::Lt, lane, y, x), x, y),
        Binary::LesserUnsigned => choose(compare(Compare::LtUnsigned, lane, x, y), x, y),
        Binary::GreaterUnsigned => choose(compare(Compare::LtUnsigned, lane, y, x), x, y),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Shl
        | Binary::Shr
        | Binary::Sar
        | Binary::MulHighSigned
        | Binary::MulHighUnsigned => match lane {
            Lane::F32 => of_single(float_binary(function, single(x), single(y))),
            Lane::F64 => of_double(float_binary(function, double(x), double(y))),
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => {
                low_bits(lane, integer_binary(function, lane, x, y))
            }
        },
    }
}

fn choose(condition: bool, x: u64, y: u64) -> u64 {
    if condition { x } else { y }
}

fn float_binary<F>(function: Binary, x: F, y: F) -> F
where
    F: std::ops::Add<Output = F>
        + std::ops::Sub<Output = F>
        + std::ops::Mul<Output = F>
        + std::ops::Div<Output = F>,
{
    match function {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        // tidy: wildcard because the verifier rejects the functions of integers
        _ => panic!("{function:?} is not a function of floats"),
    }
}

/// Computes a function of integers. Bits above the width of the lane are unspecified.
fn integer_binary(function: Binary, lane: Lane, x: u64, y: u64) -> u64 {
    let width = width(lane);
    match function {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Shl => choose(y < u64::from(width), x.wrapping_shl(y as u32), 0),
        Binary::Shr => choose(y < u64::from(width), x.wrapping_shr(y as u32), 0),
        Binary::Sar => (signed(lane, x) >> y.min(u64::from(width) - 1)) as u64,
        Binary::MulHighSigned => {
            ((i128::from(signed(lane, x)) * i128::from(signed(lane, y))) >> width) as u64
        }
        Binary::MulHighUnsigned => ((u128::from(x) * u128::from(y)) >> width) as u64,
        // tidy: wildcard because the verifier rejects the functions of floats
        _ => panic!("{function:?} is not an arithmetic function of integers"),
    }
}

fn multiply_add(lane: Lane, x: u64, y: u64, z: u64) -> u64 {
    match lane {
        Lane::F32 => of_single(single(x).mul_add(single(y), single(z))),
        Lane::F64 => of_double(double(x).mul_add(double(y), double(z))),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => panic!("a multiply-add has no lanes of {lane}"),
    }
}

fn compare(function: Compare, lane: Lane, x: u64, y: u64) -> bool {
    match function {
        Compare::LtUnsigned => x < y,
        Compare::LeUnsigned => x <= y,
        Compare::Eq | Compare::Ne | Compare::Lt | Compare::Le => match lane {
            Lane::F32 => compare_ordered(function, &single(x), &single(y)),
            Lane::F64 => compare_ordered(function, &double(x), &double(y)),
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => {
                compare_ordered(function, &signed(lane, x), &signed(lane, y))
            }
        },
    }
}

fn compare_ordered<T: PartialOrd>(function: Compare, x: &T, y: &T) -> bool {
    match function {
        Compare::Eq => x == y,
        Compare::Ne => x != y,
        Compare::Lt | Compare::LtUnsigned => x < y,
        Compare::Le | Compare::LeUnsigned => x <= y,
    }
}

fn convert(conversion: Conversion, from: Lane, to: Lane, x: u64) -> u64 {
    match conversion {
        Conversion::SignExtend => low_bits(to, signed(from, x) as u64),
        Conversion::Truncate => low_bits(to, x),
        Conversion::ZeroExtend | Conversion::Bitcast => x,
        Conversion::SignedToFloat if to == Lane::F32 => of_single(signed(from, x) as f32),
        Conversion::SignedToFloat => of_double(signed(from, x) as f64),
        Conversion::UnsignedToFloat if to == Lane::F32 => of_single(x as f32),
        Conversion::UnsignedToFloat => of_double(x as f64),
        Conversion::FloatToSigned => {
            let value = if from == Lane::F32 { f64::from(single(x)) } else { double(x) };
            let limit = 2f64.powi(width(to) as i32 - 1);
            let is_represented = value.trunc() >= -limit && value.trunc() < limit;
            low_bits(to, if is_represented { value as i64 as u64 } else { 1 << (width(to) - 1) })
        }
        Conversion::FloatToFloat if to == Lane::F32 => of_single(double(x) as f32),
        Conversion::FloatToFloat => of_double(f64::from(single(x))),
        Conversion::HalfToFloat => of_single(f16::from_bits(x as u16).to_f32()),
        Conversion::FloatToHalf => u64::from(f16::from_f32(single(x)).to_bits()),
    }
}
