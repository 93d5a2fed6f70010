//! Prints and parses the text of each kind of operand, and visits its registers.

use super::instruction::Instruction;
use super::modifier::Opcode;
use super::module::RegisterId;
use super::operand::{
    Access, Accumulators, Address, AddressBase, BranchTableId, BranchTarget, CachePolicy, CallOperands,
    Callee, Coordinates, Destination, DestinationPair, Destinations, Predicate, Source, Sources,
    TensorAddress,
};
use super::parse::operands::{Mismatch, OperandParser};
use super::print::OperandPrinter;

/// A view of an operand for the check of signatures.
pub(crate) enum Operand<'a> {
    /// An operand without a type: a label, a call.
    Untyped,
    /// An absent optional operand.
    Absent,
    Write(RegisterId),
    WriteOrDrop(Destination),
    Pair(DestinationPair),
    Read(Source),
    Writes(&'a [Destination]),
    Reads(&'a [Source]),
    Accumulators(&'a [RegisterId]),
    Predicate(Predicate),
    Address(Address),
    Tensor(&'a TensorAddress),
    /// Offsets that follow the coordinates of a tensor.
    Offsets(&'a Coordinates),
    Policy(Source),
}

/// The methods that a macro generates from each row of the instruction table.
pub(crate) trait InstructionForm {
    fn print_opcode(&self, out: &mut String);
    fn print_operands(&self, printer: &mut OperandPrinter<'_>);
    fn parse(opcode: &mut Opcode<'_>, parser: &mut OperandParser<'_, '_>) -> Result<Instruction, Mismatch>
    where
        Self: Sized;
    fn visit_registers(&self, each: &mut dyn FnMut(RegisterId, Access));
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access));
    fn map_addresses(&mut self, each: &mut dyn FnMut(&mut Address));
    fn visit_operands(&self, each: &mut dyn FnMut(Operand<'_>));
}

/// A kind of operand.
pub(crate) trait OperandForm: Sized {
    /// True if the operand is required.
    const REQUIRED: bool = true;

    /// Returns the value of an absent operand; `None` if the operand is required.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns whether the operand is present.
    fn is_present(&self) -> bool {
        true
    }

    fn print(&self, printer: &mut OperandPrinter<'_>);

    /// Returns whether the next token can begin this optional operand.
    fn begins(_parser: &OperandParser<'_, '_>) -> bool {
        true
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch>;

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access));

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access));

    /// True if the table of signatures has a type for the operand.
    const TYPED: bool = true;

    /// Returns the view by which the type of the operand is checked.
    fn view(&self) -> Operand<'_>;

    /// Calls `each` with the operand if it is an address of memory.
    fn map_addresses(&mut self, _each: &mut dyn FnMut(&mut Address)) {}
}

impl<T: OperandForm> OperandForm for Option<T> {
    const REQUIRED: bool = false;
    const TYPED: bool = T::TYPED;

    fn view(&self) -> Operand<'_> {
        match self {
            Some(operand) => operand.view(),
            None if T::TYPED => Operand::Absent,
            None => Operand::Untyped,
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn is_present(&self) -> bool {
        self.is_some()
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        if let Some(operand) = self {
            operand.print(printer);
        }
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        T::parse(parser).map(Some)
    }

    fn begins(parser: &OperandParser<'_, '_>) -> bool {
        T::begins(parser)
    }

    #[inline]
    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        if let Some(operand) = self {
            operand.visit(each);
        }
    }

    #[inline]
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        if let Some(operand) = self {
            operand.map_registers(each);
        }
    }

    fn map_addresses(&mut self, each: &mut dyn FnMut(&mut Address)) {
        if let Some(operand) = self {
            operand.map_addresses(each);
        }
    }
}

impl OperandForm for RegisterId {
    fn view(&self) -> Operand<'_> {
        Operand::Write(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.register(*self);
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        parser.register()
    }

    #[inline]
    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        each(*self, Access::Write);
    }

    #[inline]
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        each(self, Access::Write);
    }
}

impl OperandForm for Source {
    fn view(&self) -> Operand<'_> {
        Operand::Read(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        match *self {
            Self::Register(register) => printer.register(register),
            Self::Immediate(immediate) => printer.immediate(immediate),
            Self::Special(special) => printer.text(special.name()),
            Self::Symbol(symbol, offset) => {
                printer.symbol(symbol);
                printer.offset(offset);
            }
        }
    }

    fn begins(parser: &OperandParser<'_, '_>) -> bool {
        !parser.at("[") && !parser.at("{") && parser.has_spare()
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        parser.source()
    }

    #[inline]
    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        if let Self::Register(register) = self {
            each(*register, Access::Read);
        }
    }

    #[inline]
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        if let Self::Register(register) = self {
            each(register, Access::Read);
        }
    }
}

impl OperandForm for Predicate {
    fn view(&self) -> Operand<'_> {
        Operand::Predicate(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        if self.negated {
            printer.text("!");
        }
        printer.register(self.register);
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        let negated = parser.take("!");
        Ok(Self { negated, register: parser.register()? })
    }

    #[inline]
    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        each(self.register, Access::Read);
    }

    #[inline]
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        each(&mut self.register, Access::Read);
    }
}

impl OperandForm for Destination {
    fn view(&self) -> Operand<'_> {
        Operand::WriteOrDrop(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        match *self {
            Self::Register(register) => printer.register(register),
            Self::Sink => printer.text("_"),
        }
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        if parser.take("_") { Ok(Self::Sink) } else { parser.register().map(Self::Register) }
    }

    #[inline]
    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        if let Self::Register(register) = self {
            each(*register, Access::Write);
        }
    }

    #[inline]
    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        if let Self::Register(register) = self {
            each(register, Access::Write);
        }
    }
}

impl OperandForm for DestinationPair {
    fn view(&self) -> Operand<'_> {
        Operand::Pair(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        self.first.print(printer);
        if let Some(second) = &self.second {
            printer.text("|");
            second.print(printer);
        }
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        let first = Destination::parse(parser)?;
        let second = if parser.take("|") { Some(Destination::parse(parser)?) } else { None };
        Ok(Self { first, second })
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        self.first.visit(each);
        self.second.visit(each);
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        self.first.map_registers(each);
        self.second.map_registers(each);
    }
}

/// Implements a list of operands in braces. A single operand is also parsed without braces. With
/// `$bare`, it is printed without them, except in matrix instructions (`braces_single`).
macro_rules! list_operand {
    ($name:ident, $item:ty, $bare:literal, $typed:literal, |$view:ident| $operand:expr) => {
        impl OperandForm for $name {
            const TYPED: bool = $typed;

            fn view(&self) -> Operand<'_> {
                let $view = self;
                $operand
            }

            fn print(&self, printer: &mut OperandPrinter<'_>) {
                match self.0.as_slice() {
                    [only] if $bare && !printer.braces_single => OperandForm::print(only, printer),
                    items => printer.braced(items),
                }
            }

            fn begins(parser: &OperandParser<'_, '_>) -> bool {
                parser.at("{")
            }

            fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
                if !parser.at("{") {
                    return Ok(Self(std::iter::once(<$item as OperandForm>::parse(parser)?).collect()));
                }
                Ok(Self(parser.braced::<$item>()?.into_iter().collect()))
            }

            fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
                for item in &self.0 {
                    item.visit(each);
                }
            }

            fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
                for item in &mut self.0 {
                    item.map_registers(each);
                }
            }
        }
    };
}

list_operand!(Destinations, Destination, true, true, |list| Operand::Writes(&list.0));
list_operand!(Sources, Source, true, true, |list| Operand::Reads(&list.0));
list_operand!(Coordinates, Source, false, false, |list| Operand::Offsets(list));

impl OperandForm for Accumulators {
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
            each(*register, Access::ReadWrite);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        for register in &mut self.0 {
            each(register, Access::ReadWrite);
        }
    }
}

impl OperandForm for Address {
    const TYPED: bool = false;

    fn view(&self) -> Operand<'_> {
        Operand::Address(*self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.text("[");
        printer.address(*self);
        printer.text("]");
    }

    fn begins(parser: &OperandParser<'_, '_>) -> bool {
        parser.at("[")
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        parser.expect("[")?;
        let address = parser.address()?;
        parser.expect("]")?;
        Ok(address)
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        if let AddressBase::Register(register) = self.base {
            each(register, Access::Read);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        if let AddressBase::Register(register) = &mut self.base {
            each(register, Access::Read);
        }
    }

    fn map_addresses(&mut self, each: &mut dyn FnMut(&mut Address)) {
        each(self);
    }
}

impl OperandForm for TensorAddress {
    const TYPED: bool = false;

    fn view(&self) -> Operand<'_> {
        Operand::Tensor(self)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.text("[");
        printer.address(self.map);
        printer.text(", ");
        self.coordinates.print(printer);
        printer.text("]");
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        parser.expect("[")?;
        let map = parser.address()?;
        parser.expect(",")?;
        let coordinates = Coordinates::parse(parser)?;
        parser.expect("]")?;
        Ok(Self { map, coordinates })
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        self.map.visit(each);
        self.coordinates.visit(each);
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        self.map.map_registers(each);
        self.coordinates.map_registers(each);
    }
}

impl OperandForm for CachePolicy {
    const TYPED: bool = false;

    fn view(&self) -> Operand<'_> {
        Operand::Policy(self.0)
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        self.0.print(printer);
    }

    fn begins(parser: &OperandParser<'_, '_>) -> bool {
        parser.has_policy()
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        Source::parse(parser).map(Self)
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        self.0.visit(each);
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        self.0.map_registers(each);
    }
}

/// Implements an operand that contains no register.
macro_rules! name_operand {
    ($name:ident, $print:ident, $parse:ident) => {
        impl OperandForm for $name {
            const TYPED: bool = false;

            fn view(&self) -> Operand<'_> {
                Operand::Untyped
            }

            fn print(&self, printer: &mut OperandPrinter<'_>) {
                printer.$print(*self);
            }

            fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
                parser.$parse()
            }

            fn visit(&self, _: &mut dyn FnMut(RegisterId, Access)) {}

            fn map_registers(&mut self, _: &mut dyn FnMut(&mut RegisterId, Access)) {}
        }
    };
}

name_operand!(BranchTarget, target, target);
name_operand!(BranchTableId, branch_table, branch_table);

impl OperandForm for CallOperands {
    const TYPED: bool = false;

    fn view(&self) -> Operand<'_> {
        Operand::Untyped
    }

    fn print(&self, printer: &mut OperandPrinter<'_>) {
        printer.call(self);
    }

    fn parse(parser: &mut OperandParser<'_, '_>) -> Result<Self, Mismatch> {
        parser.call()
    }

    fn visit(&self, each: &mut dyn FnMut(RegisterId, Access)) {
        for result in &self.returns {
            if let Source::Register(register) = result {
                each(*register, Access::Write);
            }
        }
        if let Callee::Indirect(register, _) = self.callee {
            each(register, Access::Read);
        }
        for argument in &self.arguments {
            argument.visit(each);
        }
    }

    fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
        for result in &mut self.returns {
            if let Source::Register(register) = result {
                each(register, Access::Write);
            }
        }
        if let Callee::Indirect(register, _) = &mut self.callee {
            each(register, Access::Read);
        }
        for argument in &mut self.arguments {
            argument.map_registers(each);
        }
    }
}
