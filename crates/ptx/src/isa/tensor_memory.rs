//! The modifiers and operands of tensor memory instructions (`tcgen05`). Those of cluster
//! cancellation are here, too.

use smallvec::SmallVec;

use super::modifier::modifiers;
use super::module::RegisterId;
use super::operand::{Access, Address, Immediate, Predicate, Source};
use super::operand_form::{Operand, OperandForm};
use super::parse::operands::{Mismatch, OperandParser, ParseErrorKindAt};
use super::print::OperandPrinter;

modifiers! {
    /// The lanes and bits of tensor memory that one repetition moves.
    pub enum TensorMemoryShape {
        /// 32 lanes, one column.
        L32x32b = ".32x32b",
        /// 16 lanes, two columns.
        L16x64b = ".16x64b",
        /// 16 lanes, four columns.
        L16x128b = ".16x128b",
        /// 16 lanes, eight columns.
        L16x256b = ".16x256b",
        /// 16 lanes, one column at each of two addresses.
        L16x32bx2 = ".16x32bx2",
    }
    /// The number of repetitions of a shape along the columns.
    pub enum RepetitionCount {
        /// One.
        X1 = ".x1",
        /// Two.
        X2 = ".x2",
        /// Four.
        X4 = ".x4",
        /// Eight.
        X8 = ".x8",
        /// 16.
        X16 = ".x16",
        /// 32.
        X32 = ".x32",
        /// 64.
        X64 = ".x64",
        /// 128.
        X128 = ".x128",
    }
    /// The element types of a dot of tensor memory without scale factors.
    pub enum TensorDotKind {
        /// Binary16 and bfloat16.
        F16 = ".kind::f16",
        /// TensorFloat-32.
        Tf32 = ".kind::tf32",
        /// Floating-point numbers of 4, 6 and 8 bits.
        F8f6f4 = ".kind::f8f6f4",
        /// Integers of 8 bits.
        I8 = ".kind::i8",
    }
    /// The element types of a dot of tensor memory with scale factors.
    pub enum ScaledDotKind {
        /// Floating-point numbers of 4, 6 and 8 bits, a scale factor for 32 elements.
        Mxf8f6f4 = ".kind::mxf8f6f4",
        /// E2m1, a scale factor for 32 elements.
        Mxf4 = ".kind::mxf4",
        /// E2m1, a scale factor for 16 or 32 elements.
        Mxf4nvf4 = ".kind::mxf4nvf4",
    }
    /// The number of scale factors of a row, or of elements per scale factor.
    pub enum ScaleVectorSize {
        /// One scale factor a row.
        X1 = ".scale_vec::1X",
        /// Two scale factors a row.
        X2 = ".scale_vec::2X",
        /// Four scale factors a row.
        X4 = ".scale_vec::4X",
        /// 16 elements a scale factor.
        Block16 = ".block16",
        /// 32 elements a scale factor.
        Block32 = ".block32",
    }
    /// The use of the buffer that keeps the left operand for later dots. Results do not depend on
    /// it.
    pub enum CollectorUse {
        /// The dot fills the buffer.
        Fill = ".collector::a::fill",
        /// The dot reads the buffer.
        Use = ".collector::a::use",
        /// The dot is the last to read the buffer.
        LastUse = ".collector::a::lastuse",
        /// The buffer is unused: the default.
        Discard = ".collector::a::discard",
    }
    /// The lanes and bits that a copy from shared to tensor memory moves.
    pub enum TensorMemoryCopyShape {
        /// 128 lanes, eight columns.
        L128x256b = ".128x256b",
        /// Four lanes, eight columns.
        L4x256b = ".4x256b",
        /// 128 lanes, four columns.
        L128x128b = ".128x128b",
        /// 64 lanes, four columns.
        L64x128b = ".64x128b",
        /// 32 lanes, four columns.
        L32x128b = ".32x128b",
    }
    /// The quarters of the lanes to which a copy writes the same data.
    pub enum LaneMulticast {
        /// The first half to quarters 0 and 2, the second to quarters 1 and 3.
        Halves02And13 = ".warpx2::02_13",
        /// The first half to quarters 0 and 1, the second to quarters 2 and 3.
        Halves01And23 = ".warpx2::01_23",
        /// All data to each quarter.
        Quarters = ".warpx4",
    }
    /// The dimension of a block index that the response to a cancellation contains.
    pub enum ClusterDimension {
        /// The first.
        X = ".get_first_ctaid::x",
        /// The second.
        Y = ".get_first_ctaid::y",
        /// The third.
        Z = ".get_first_ctaid::z",
    }
}

impl TensorMemoryShape {
    /// Returns the number of registers of a thread for each repetition.
    pub fn registers(self) -> usize {
        match self {
            Self::L32x32b | Self::L16x64b | Self::L16x32bx2 => 1,
            Self::L16x128b => 2,
            Self::L16x256b => 4,
        }
    }
}

impl RepetitionCount {
    /// Returns the number.
    pub fn count(self) -> usize {
        match self {
            Self::X1 => 1,
            Self::X2 => 2,
            Self::X4 => 4,
            Self::X8 => 8,
            Self::X16 => 16,
            Self::X32 => 32,
            Self::X64 => 64,
            Self::X128 => 128,
        }
    }
}

/// Registers written together, always in braces: the result of `tcgen05.ld`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DestinationVector(pub Vec<RegisterId>);

/// Operands that are read together, always in braces. Examples: the data of `tcgen05.st`, and the
/// lane mask of `tcgen05.mma`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceVector(pub SmallVec<[Source; 4]>);

/// The left operand of `tcgen05.mma`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LeftOperand {
    /// The descriptor of a matrix in shared memory.
    Descriptor(Source),
    /// The address of a matrix in tensor memory.
    TensorMemory(Address),
}

/// A condition: a predicate, or a constant that is true unless it is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// A predicate, perhaps negated.
    Predicate(Predicate),
    /// A constant.
    Constant(i64),
}

impl OperandForm for DestinationVector {
    fn view(&self) -> Operand<'_> {
        Operand::Accumulators(&self.0)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.braced(&self.0);
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        Ok(Self(parser.braced()?.into_vec()))
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        for register in &self.0 {
            each(*register, Access::Write);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        for register in &mut self.0 {
            each(register, Access::Write);
        }
    }
}

impl OperandForm for SourceVector {
    fn view(&self) -> Operand<'_> {
        Operand::Reads(&self.0)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.braced(&self.0);
    }

    fn begins(parser: &OperandParser<'_, '_>) -> bool {
        parser.at("{")
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        Ok(Self(parser.braced()?))
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        for source in &self.0 {
            source.visit(each);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        for source in &mut self.0 {
            source.map_registers(each);
        }
    }
}

impl OperandForm for LeftOperand {
    fn view(&self) -> Operand<'_> {
        match self {
            Self::Descriptor(source) => source.view(),
            Self::TensorMemory(address) => address.view(),
        }
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        match self {
            Self::Descriptor(source) => source.print(printer),
            Self::TensorMemory(address) => address.print(printer),
        }
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        if parser.at("[") {
            Address::parse(parser).map(Self::TensorMemory)
        } else {
            Source::parse(parser).map(Self::Descriptor)
        }
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        match self {
            Self::Descriptor(source) => source.visit(each),
            Self::TensorMemory(address) => address.visit(each),
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        match self {
            Self::Descriptor(source) => source.map_registers(each),
            Self::TensorMemory(address) => address.map_registers(each),
        }
    }

    fn map_addresses(&mut self, each: &mut dyn FnMut(&mut Address)) {
        if let Self::TensorMemory(address) = self {
            each(address);
        }
    }
}

impl OperandForm for Condition {
    fn view(&self) -> Operand<'_> {
        match *self {
            Self::Predicate(predicate) => Operand::Predicate(predicate),
            Self::Constant(value) => Operand::Read(Source::from(value)),
        }
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        match self {
            Self::Predicate(predicate) => predicate.print(printer),
            Self::Constant(value) => printer.immediate(Immediate::Integer(*value)),
        }
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        if parser.at("!") {
            return Predicate::parse(parser).map(Self::Predicate);
        }
        let position = parser.function.cursor.position;
        match parser.source()? {
            Source::Register(register) => Ok(Self::Predicate(Predicate { register, negated: false })),
            Source::Immediate(Immediate::Integer(value)) => Ok(Self::Constant(value)),
            Source::Immediate(_) | Source::Special(_) | Source::Symbol(..) => {
                Err(Mismatch::Operand(position, ParseErrorKindAt::Expected("a predicate")))
            }
        }
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        if let Self::Predicate(predicate) = self {
            predicate.visit(each);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        if let Self::Predicate(predicate) = self {
            predicate.map_registers(each);
        }
    }
}
