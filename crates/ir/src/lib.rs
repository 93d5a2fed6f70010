//! The tile IR: SSA on tiles with structured control flow. Two tables define the ops ([`OPS`]) and
//! the elementwise functions ([`ElementwiseFn`]). The verifier, the printer and the parser read
//! these tables.
//!
//! A [`Module`] has [`Function`]s. A function has dense tables of values, instructions and blocks,
//! keyed by typed indices. Control flow is structured: an instruction may have regions. A region is
//! a block with parameters that ends in `yield_values`. [`print()`] writes every module as text,
//! and [`parse()`] reads that text back. Tile IR is independent of the target.

pub mod analysis;
mod attributes;
mod builder;
mod constants;
mod cursor;
mod device;
mod dialect;
mod elementwise;
mod function;
mod inline_asm;
mod ops;
mod parents;
mod parse;
mod pass;
mod pixel_window;
mod print;
mod rule_input;
mod rules;
mod scaled;
mod table;
mod types;
mod unroll;
mod uses;
mod verify;
mod waiting;

pub use attributes::{
    AtomicKind, Attribute, CacheModifier, EvictionPolicy, Failure, GridDependency, HintKind, InputPrecision,
    IntList, Literal, MachineQuantity, MemoryScope, MemorySemantics, Rounding,
};
pub use builder::{Builder, IrBuilder, Results};
pub use constants::{constant_bool, constant_float, constant_int, constant_of};
pub use cursor::{Cursor, Position};
pub use device::{DeviceFn, SharedTiles};
pub use dialect::{Dialect, Operation, Tile};
pub use elementwise::{
    Accuracy, ArithmeticFn, BitwiseFn, ComparisonFn, DivisionFn, Domain, ElementwiseFamily, ElementwiseFn,
    ElementwiseInfo, FloatFn, MathFn, SelectionFn, Signature, WideProductFn,
};
pub use function::{
    Block, BlockData, Carried, Definition, FuncId, Function, Inst, InstData, Location, LocationData, Module,
    Parameter, Stage, Value, ValueData,
};
pub use inline_asm::{AsmError, AsmInput, AsmPacking, AsmPiece, AsmRegister, AsmTemplate};
pub use ops::{
    ANY_REGIONS, AsyncPhase, AttributeText, DtypeList, Effect, LoopOptions, MemoryAccess, OPS, Op, OpFamily,
    OpInfo, OpVisitor, Regions, ShapeOp, TypeList, Waiting, visit, visit_op,
};
pub use parents::Parents;
pub use parse::{ParseError, parse, parse_dialect};
pub use pass::{Pass, run_passes};
pub use pixel_window::PixelWindow;
pub use print::print;
pub use rule_input::{RegionTypes, RuleError, RuleErrorKind, RuleInput};
pub use rules::{MAX_RANK, MAX_TILE_ELEMENTS};
pub use scaled::{ScaledFormat, ScaledFormats, ScaledKind};
pub use tilewright_layout::{Bases, Sizes, StatedBuffer, StatedLayout};
pub use types::{Dtype, DtypeKind, Element, Shape, Type};
pub use unroll::{Unrolling, unroll_fully, unroll_loop};
pub use uses::{Use, UseCounts, Uses};
pub use verify::{VerifyError, verify};
pub use waiting::{Wait, loop_may_wait, may_wait};
