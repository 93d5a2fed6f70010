//! Operands: registers, immediates, symbols, addresses, and their combinations.

use cranelift_entity::entity_impl;
use smallvec::SmallVec;

use super::module::{FunctionId, GlobalId, LabelId, RegisterId, VariableId};
use super::special::SpecialRegister;

/// A constant. The instruction determines its type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Immediate {
    /// An integer; unsigned values from 2⁶³ on are negative numbers with the same bits.
    Integer(i64),
    /// The bits of a binary32 number, `0f3F800000`.
    F32(u32),
    /// The bits of a binary64 number, `0d3FF0000000000000`.
    ///
    /// A literal such as `1.5` is one; instructions of other types convert it.
    F64(u64),
}

/// The referent of a name that is not a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symbol {
    /// A variable of the module.
    Global(GlobalId),
    /// A variable or a parameter of the function.
    Variable(VariableId),
    /// A function.
    Function(FunctionId),
}

/// An operand that an instruction reads, of the width of one register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A register.
    Register(RegisterId),
    /// A constant.
    Immediate(Immediate),
    /// A special register.
    Special(SpecialRegister),
    /// The address of a symbol, in the symbol's state space, plus bytes.
    Symbol(Symbol, i64),
}

/// A predicate that is read, perhaps negated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Predicate {
    /// The predicate register.
    pub register: RegisterId,
    /// True if the predicate is negated.
    pub negated: bool,
}

/// A register that is written, or `_`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// A register.
    Register(RegisterId),
    /// `_`: the result is dropped.
    Sink,
}

/// Two results, `d|p`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DestinationPair {
    /// The first result.
    pub first: Destination,
    /// The second result, if present.
    pub second: Option<Destination>,
}

/// Registers that are written together, `{%r0, %r1}`. A single one has no braces, except in matrix
/// fragments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Destinations(pub SmallVec<[Destination; 4]>);

/// Operands that are read together, `{%r0, %r1}`. A single one has no braces, except in matrix
/// fragments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sources(pub SmallVec<[Source; 1]>);

/// Registers that are read and written, always in braces: the accumulator of `wgmma`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Accumulators(pub Vec<RegisterId>);

/// Operands that are read together, always in braces: offsets and coordinates of tensors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinates(pub SmallVec<[Source; 1]>);

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressBase {
    /// A register.
    Register(RegisterId),
    /// A symbol.
    Symbol(Symbol),
    /// No base: the offset is the address.
    Absolute,
}

/// A memory operand, `[base + offset]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The base.
    pub base: AddressBase,
    /// Bytes after the base.
    pub offset: i64,
}

/// A position in a tensor, `[map, {c0, c1}]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorAddress {
    /// The address of the tensor map.
    pub map: Address,
    /// The coordinates, the contiguous dimension first.
    pub coordinates: Coordinates,
}

/// The policy of the L2 cache that `.L2::cache_hint` announces: a 64-bit register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CachePolicy(pub Source);

/// The target of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BranchTarget(pub LabelId);

/// Identifies a [`BranchTable`], the labels of an indexed branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchTableId(u32);
entity_impl!(BranchTableId, "table");

/// A list of labels, `name: .branchtargets l0, l1;`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchTable {
    /// Its name in the text.
    pub name: Box<str>,
    /// The labels.
    pub targets: Vec<LabelId>,
}

/// Identifies a [`Prototype`], the signature of an indirect call's functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrototypeId(u32);
entity_impl!(PrototypeId, "prototype");

/// A signature, `name: .callprototype (returns) _ (parameters);`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// Its name in the text.
    pub name: Box<str>,
    /// The results.
    pub returns: Vec<super::Variable>,
    /// The parameters.
    pub parameters: Vec<super::Variable>,
    /// True if the functions never return.
    pub noreturn: bool,
}

/// The target of a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// A function of the module.
    Direct(FunctionId),
    /// The function whose address is in the register, with its signature.
    Indirect(RegisterId, PrototypeId),
}

/// The operands of a call, `(result), function, (argument, …)`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallOperands {
    /// The results: `.param` variables or registers.
    pub returns: Vec<Source>,
    /// The called function.
    pub callee: Callee,
    /// The arguments: `.param` variables, registers or constants.
    pub arguments: Vec<Source>,
}

/// The access of an instruction to a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// The instruction reads the register.
    Read,
    /// The instruction writes the register.
    Write,
    /// The instruction reads and writes the register.
    ReadWrite,
}

impl From<RegisterId> for Source {
    fn from(register: RegisterId) -> Self {
        Self::Register(register)
    }
}

impl From<SpecialRegister> for Source {
    fn from(register: SpecialRegister) -> Self {
        Self::Special(register)
    }
}

impl From<i64> for Source {
    fn from(value: i64) -> Self {
        Self::Immediate(Immediate::Integer(value))
    }
}

impl From<RegisterId> for Destinations {
    fn from(register: RegisterId) -> Self {
        Self(smallvec::smallvec![Destination::Register(register)])
    }
}

impl<S: Into<Source>> From<S> for Sources {
    fn from(source: S) -> Self {
        Self(smallvec::smallvec![source.into()])
    }
}

impl FromIterator<RegisterId> for Destinations {
    fn from_iter<I: IntoIterator<Item = RegisterId>>(registers: I) -> Self {
        Self(registers.into_iter().map(Destination::Register).collect())
    }
}

impl<S: Into<Source>> FromIterator<S> for Sources {
    fn from_iter<I: IntoIterator<Item = S>>(sources: I) -> Self {
        Self(sources.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<Source>> FromIterator<S> for Coordinates {
    fn from_iter<I: IntoIterator<Item = S>>(sources: I) -> Self {
        Self(sources.into_iter().map(Into::into).collect())
    }
}

impl From<RegisterId> for Address {
    fn from(register: RegisterId) -> Self {
        Self { base: AddressBase::Register(register), offset: 0 }
    }
}
