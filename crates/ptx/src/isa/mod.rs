//! PTX as typed data: a [`Module`] of variables and [`Function`]s, whose bodies are lists of [`Statement`]s, most of them an
//! [`Instruction`]. [`print()`] writes every module; [`parse`] reads what compilers write.
//!
//! # The table
//!
//! An instruction is one row in `instruction.rs`: mnemonic, modifiers, operands. The row generates
//! a struct with named fields ([`Add`], [`Ld`], [`Wgmma`] …), its variant of [`Instruction`], its
//! method of [`InstructionVisitor`], the printer, the parser, and the walk over its registers. The
//! header of that file lists the steps to add an instruction. `tests/corpus` has an example of
//! every row and of every modifier, which NVIDIA's assembler accepts.
//!
//! # Names
//!
//! Registers, labels, variables and functions are typed indices. The parser creates a register at
//! its first use: `.reg .b32 %r<1000>;` creates none. Nested scopes are flattened; a name that an
//! inner scope redeclares gets a numeric suffix. All names are unique within a function, so that a
//! name in a message is unambiguous.
//!
//! # Information that parsing loses
//!
//! Comments; the order of declarations (the printer first declares functions that others reference,
//! then variables, then definitions; a function's variables precede its instructions); the spelling
//! of constants; the order of modifiers, which the assembler ignores; unused registers. Debug
//! information in `.section` is kept verbatim. An unsupported feature is a [`ParseError`] that
//! names it, with line and column: among others `tcgen05`, sparse dots, textures and surfaces, the
//! video instructions, vector registers, parameters in registers.

mod check;
mod instruction;
mod modifier;
mod module;
mod operand;
mod operand_form;
mod parse;
mod print;
mod special;
mod types;

pub use check::{Misuse, check};
pub use instruction::*;
pub use modifier::{
    AtomicOperation, BarrierReduction, BitOperation, BooleanOperation, BoundMode, Clamp, Comparison,
    Completion, CopyCache, CtaGroup, DivisionPrecision, FloatTest, GridDependency, Half, L1Eviction,
    L2Eviction, L2Prefetch, LdmatrixShape, LoadCache, LoadSemantics, MatchMode, MatrixCount, MatrixFormat,
    MatrixLayout, MatrixOperand, MatrixShape, MembarLevel, MixedType, MultiplyMode, PermuteMode,
    PolicyPriority, PrefetchLevel, ProxyKind, RegisterCountChange, Rounding, Scope, Semantics,
    ShiftDirection, ShuffleMode, StoreCache, StoreSemantics, SyncRestrict, TensorDimension, TensorMode,
    TensormapField, VectorWidth, VoteMode, WarpReduction,
};
pub use module::*;
pub use operand::*;
pub use parse::{ParseError, ParseErrorKind, parse};
pub use print::print;
pub use special::SpecialRegister;
pub use types::{ScalarType, StateSpace};
