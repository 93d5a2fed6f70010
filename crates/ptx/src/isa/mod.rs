//! PTX as typed data. A [`Module`] has variables and [`Function`]s. The body of a function is a
//! list of [`Statement`]s, and most statements are an [`Instruction`]. [`print()`] writes a module
//! as text; [`parse`] reads the PTX that compilers write.
//!
//! # The table
//!
//! An instruction is one row in `instruction.rs`: mnemonic, modifiers, operands. From each row, a
//! macro generates code:
//!
//! - a struct with named fields ([`Add`], [`Ld`], [`Wgmma`] …);
//! - a variant of [`Instruction`];
//! - a method of [`InstructionVisitor`];
//! - a printer, a parser, and a visitor of the registers.
//!
//! The header of `instruction.rs` tells how to add an instruction. `tests/corpus` has every row and
//! every modifier in code that NVIDIA's assembler accepts.
//!
//! # Names
//!
//! An instruction refers to registers, labels, variables and functions by typed index. The parser
//! creates a register at its first use: `.reg .b32 %r<1000>;` creates none. Nested scopes are
//! flattened: a redeclared name gets a numeric suffix. Names are unique in a function.
//!
//! # Information that parsing loses
//!
//! The parser drops comments, unused registers, spelling of constants, and order of modifiers.
//! Declarations get a fixed order. First are functions without a body, and those that the module
//! refers to. Variables follow, then definitions of functions. The variables of a function precede
//! its instructions. Sections of debug information (`.section`) are kept verbatim.
//!
//! For a feature that is not supported, [`parse`] returns a [`ParseError`] with line and column.
//! Examples: sparse dots, `tcgen05.mma.ws`, textures, surfaces, video instructions, vector
//! registers, and parameters in registers.

mod check;
mod instruction;
mod modifier;
mod module;
mod operand;
mod operand_form;
mod parse;
mod print;
mod special;
mod tensor_memory;
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
pub use tensor_memory::{
    ClusterDimension, CollectorUse, Condition, DestinationVector, LaneMulticast, LeftOperand,
    RepetitionCount, ScaleVectorSize, ScaledDotKind, SourceVector, TensorDotKind, TensorMemoryCopyShape,
    TensorMemoryShape,
};
pub use types::{ScalarType, StateSpace};
