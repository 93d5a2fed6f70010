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
//! The header of `instruction.rs` lists the steps to add an instruction. `tests/corpus` has an
//! example of every row and of every modifier, which NVIDIA's assembler accepts.
//!
//! # Names
//!
//! An instruction refers to registers, labels, variables and functions by typed index. The parser
//! creates a register where an instruction first uses it: the declaration `.reg .b32 %r<1000>;`
//! creates none. The parser flattens nested scopes: a name that an inner scope redeclares gets a
//! numeric suffix. All names are unique within a function, so that a name in a message is
//! unambiguous.
//!
//! # Information that parsing loses
//!
//! The parser drops comments, unused registers, the spelling of constants, and the order of
//! modifiers (the assembler ignores this order). A module does not record the order of declarations
//! either. The printer first declares the functions that have no body or that the module refers to.
//! The variables follow, then the definitions of functions. The variables of a function precede its
//! instructions. Sections of debug information (`.section`) are kept verbatim.
//!
//! If the text uses a feature that is not supported, [`parse`] returns a [`ParseError`]. The error
//! names the feature, with line and column. Examples are sparse dots, `tcgen05.mma.ws`, textures
//! and surfaces, the video instructions, vector registers, and parameters in registers.

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
