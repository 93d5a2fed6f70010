//! The table of instructions. A row has modifiers in opcode order, and operands in text order. From
//! each row, a macro generates:
//!
//! - a struct with a field for each modifier and operand;
//! - a variant of [`Instruction`];
//! - a method of [`InstructionVisitor`];
//! - a printer and a parser.
//!
//! # To add an instruction
//!
//! Add a row:
//!
//! ```text
//! /// Describes its effect, and whatever is not obvious.
//! Fma fma "fma" [rounding: Rounding, ftz = ".ftz", ty: ScalarType]
//!     (d: RegisterId, a: Source, b: Source, c: Source);
//! ```
//!
//! - The row begins with the struct's name, the visitor's method, and the opcode's fixed beginning.
//! - The brackets contain the modifiers. `field = ".text"` is a `bool`: the text is present.
//!   `field: Kind` is a modifier of a kind of `modifier.rs`; `field: Option<Kind>` is optional.
//! - The parentheses contain the operands, by kind (`operand.rs`). For example, an instruction
//!   writes a [`RegisterId`] and reads a [`Source`]. `Option<…>` is an optional operand.
//!
//! Several rows may have one mnemonic; the parser takes the first that fits. A new kind of modifier
//! is an enum in `modifier.rs`. A new kind of operand implements `OperandForm` in
//! `operand_form.rs`. The Rust compiler then reports a missing variant in `passes/effects.rs`. The
//! tests report a missing signature in `check/forms.rs` and a missing example in `tests/corpus`.

use super::modifier::{
    AtomicOperation, BarrierReduction, BitOperation, BooleanOperation, BoundMode, Clamp, Comparison,
    Completion, CopyCache, CtaGroup, DivisionPrecision, FloatTest, GridDependency, Half, L1Eviction,
    L2Eviction, L2Prefetch, LdmatrixShape, LoadCache, LoadSemantics, MatchMode, MatrixCount, MatrixFormat,
    MatrixLayout, MatrixOperand, MatrixShape, MembarLevel, MixedType, Modifier, MultiplyMode, Opcode,
    PermuteMode, PolicyPriority, PrefetchLevel, ProxyKind, RegisterCountChange, Rounding, Scope, Semantics,
    ShiftDirection, ShuffleMode, StoreCache, StoreSemantics, SyncRestrict, TensorDimension, TensorMode,
    TensormapField, VectorWidth, VoteMode, WarpReduction,
};
use super::module::RegisterId;
use super::operand::{
    Access, Accumulators, Address, BranchTableId, BranchTarget, CachePolicy, CallOperands, Coordinates,
    Destination, DestinationPair, Destinations, Predicate, Source, Sources, TensorAddress,
};
use super::operand_form::{InstructionForm, Operand, OperandForm};
use super::parse::operands::{Mismatch, OperandParser};
use super::print::OperandPrinter;
use super::tensor_memory::{
    ClusterDimension, CollectorUse, Condition, DestinationVector, LaneMulticast, LeftOperand,
    RepetitionCount, ScaleVectorSize, ScaledDotKind, SourceVector, TensorDotKind, TensorMemoryCopyShape,
    TensorMemoryShape,
};
use super::types::{ScalarType, StateSpace};

macro_rules! modifier_type {
    ([$flag:literal] []) => {
        bool
    };
    ([] [$ty:ty]) => {
        $ty
    };
}

macro_rules! print_modifier {
    ($out:ident, $value:expr, [$flag:literal] []) => {
        if $value {
            $out.push_str($flag);
        }
    };
    ($out:ident, $value:expr, [] [$ty:ty]) => {
        Modifier::print(&$value, $out)
    };
}

macro_rules! parse_modifier {
    ($opcode:ident, [$flag:literal] []) => {
        $opcode.take($flag)
    };
    ($opcode:ident, [] [$ty:ty]) => {
        <$ty as Modifier>::parse($opcode).ok_or_else(|| $opcode.mismatch())?
    };
}

macro_rules! instructions {
    ($($(#[doc = $doc:literal])*
       $name:ident $method:ident $mnemonic:literal
       [$($modifier:ident $(= $flag:literal)? $(: $kind:ty)?),*]
       ($($operand:ident: $role:ty),*);)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, PartialEq, Eq, Hash, Debug)]
            pub struct $name {
                $(#[doc = concat!("The modifier `", stringify!($modifier), "`.")]
                pub $modifier: modifier_type!([$($flag)?] [$($kind)?]),)*
                $(#[doc = concat!("The operand `", stringify!($operand), "`.")]
                pub $operand: $role,)*
            }

            impl From<$name> for Instruction {
                fn from(instruction: $name) -> Self {
                    Self::$name(instruction)
                }
            }

            impl InstructionForm for $name {
                fn print_opcode(&self, out: &mut String) {
                    out.push_str($mnemonic);
                    $(print_modifier!(out, self.$modifier, [$($flag)?] [$($kind)?]);)*
                }

                fn print_operands(&self, printer: &mut OperandPrinter<'_>) {
                    $(printer.operand(&self.$operand);)*
                    let _ = printer;
                }

                fn parse(opcode: &mut Opcode<'_>, parser: &mut OperandParser<'_, '_>) -> Result<Instruction, Mismatch> {
                    $(let $modifier = parse_modifier!(opcode, [$($flag)?] [$($kind)?]);)*
                    opcode.end()?;
                    parser.begin(0 $(+ usize::from(<$role as OperandForm>::REQUIRED))*)?;
                    $(let $operand = parser.operand::<$role>()?;)*
                    parser.end()?;
                    Ok(Instruction::$name(Self { $($modifier,)* $($operand,)* }))
                }

                fn visit_registers(&self, each: &mut dyn FnMut(RegisterId, Access)) {
                    $(self.$operand.visit(each);)*
                    let _ = each;
                }

                fn map_registers(&mut self, each: &mut dyn FnMut(&mut RegisterId, Access)) {
                    $(self.$operand.map_registers(each);)*
                    let _ = each;
                }

                fn map_addresses(&mut self, each: &mut dyn FnMut(&mut Address)) {
                    $(self.$operand.map_addresses(each);)*
                    let _ = each;
                }

                fn visit_operands(&self, each: &mut dyn FnMut(Operand<'_>)) {
                    $(each(self.$operand.view());)*
                    let _ = each;
                }
            }
        )*

        /// An instruction.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Instruction {
            $($(#[doc = $doc])* $name($name),)*
        }

        /// One method for each instruction, so that a consumer is complete if it compiles.
        pub trait InstructionVisitor {
            /// The result of each method.
            type Output;
            $($(#[doc = $doc])*
            fn $method(&mut self, instruction: &$name) -> Self::Output;)*
        }

        impl Instruction {
            /// The rows: the struct's name and the opcode's fixed beginning.
            pub const TABLE: &[(&'static str, &'static str)] = &[$((stringify!($name), $mnemonic),)*];

            /// Returns the name of the instruction's struct.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }

            /// Returns the fixed beginning of the instruction's opcode.
            pub fn mnemonic(&self) -> &'static str {
                match self { $(Self::$name(_) => $mnemonic,)* }
            }

            /// Calls the visitor's method for this instruction.
            pub fn accept<V: InstructionVisitor + ?Sized>(&self, visitor: &mut V) -> V::Output {
                match self { $(Self::$name(instruction) => visitor.$method(instruction),)* }
            }

            pub(crate) fn form(&self) -> &dyn InstructionForm {
                match self { $(Self::$name(instruction) => instruction,)* }
            }

            fn form_mut(&mut self) -> &mut dyn InstructionForm {
                match self { $(Self::$name(instruction) => instruction,)* }
            }

            /// The parser of each row, with the mnemonic.
            pub(crate) const ROWS: &[(&'static str, RowParser)] =
                &[$(($mnemonic, <$name as InstructionForm>::parse),)*];
        }
    };
}

/// Parses the rest of a row after the mnemonic.
pub(crate) type RowParser = fn(&mut Opcode<'_>, &mut OperandParser<'_, '_>) -> Result<Instruction, Mismatch>;

impl Instruction {
    /// Calls `each` with each register, in text order, without the guard. A register that occurs
    /// twice is passed twice.
    pub fn visit_registers(&self, mut each: impl FnMut(RegisterId, Access)) {
        self.form().visit_registers(&mut each);
    }

    /// Calls `each` with each register, which `each` may replace.
    pub fn map_registers(&mut self, mut each: impl FnMut(&mut RegisterId, Access)) {
        self.form_mut().map_registers(&mut each);
    }

    /// Calls `each` with each [`Address`] operand, but not with a [`TensorAddress`]. `each` may
    /// replace the address.
    pub fn map_addresses(&mut self, mut each: impl FnMut(&mut Address)) {
        self.form_mut().map_addresses(&mut each);
    }

    /// Calls `each` with a view of each operand of the row.
    pub(crate) fn visit_operands(&self, each: &mut dyn FnMut(Operand<'_>)) {
        self.form().visit_operands(each);
    }

    /// Returns the opcode of the instruction, with the modifiers.
    pub fn opcode(&self) -> String {
        let mut opcode = String::new();
        self.form().print_opcode(&mut opcode);
        opcode
    }
}

instructions! {
    // Integer and floating-point arithmetic.

    /// d = a + b.
    Add add "add" [carry_out = ".cc", rounding: Option<Rounding>, ftz = ".ftz", saturate = ".sat", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source);
    /// d = a + b + carry.
    Addc addc "addc" [carry_out = ".cc", ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = a - b.
    Sub sub "sub" [carry_out = ".cc", rounding: Option<Rounding>, ftz = ".ftz", saturate = ".sat", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source);
    /// d = a - b - borrow.
    Subc subc "subc" [carry_out = ".cc", ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = a * b. For integers, the mode selects a part. With `.wide`, d is twice as wide as `ty`.
    Mul mul "mul" [mode: Option<MultiplyMode>, rounding: Option<Rounding>, ftz = ".ftz", saturate = ".sat", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source);
    /// d = a * b + c. For integers, the mode selects a part of the product. With `.wide`, c and d
    /// are twice as wide as `ty`.
    Mad mad "mad" [mode: Option<MultiplyMode>, carry_out = ".cc", rounding: Option<Rounding>, ftz = ".ftz", saturate = ".sat", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = a * b + c + carry.
    Madc madc "madc" [mode: MultiplyMode, carry_out = ".cc", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = 32 bits of the product of a's and b's low 24 bits.
    Mul24 mul24 "mul24" [mode: MultiplyMode, ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = 32 bits of the product of the low 24 bits, plus c.
    Mad24 mad24 "mad24" [mode: MultiplyMode, saturate = ".sat", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = |a - b| + c.
    Sad sad "sad" [ty: ScalarType] (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = a / b.
    Div div "div" [precision: Option<DivisionPrecision>, rounding: Option<Rounding>, ftz = ".ftz", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source);
    /// d = the remainder of a / b, with the sign of a.
    Rem rem "rem" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = |a|.
    Abs abs "abs" [ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = -a.
    Neg neg "neg" [ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the smallest of a, b and c. If one operand is NaN, d is the other operand; with `.NaN`,
    /// d is NaN.
    Min min "min" [ftz = ".ftz", nan = ".NaN", xorsign_abs = ".xorsign.abs", relu = ".relu", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Option<Source>);
    /// d = the largest of a, b and c. If one operand is NaN, d is the other operand; with `.NaN`, d
    /// is NaN.
    Max max "max" [ftz = ".ftz", nan = ".NaN", xorsign_abs = ".xorsign.abs", relu = ".relu", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Option<Source>);
    /// d = a * b + c, rounded once.
    Fma fma "fma" [rounding: Rounding, ftz = ".ftz", saturate = ".sat", out_of_bounds = ".oob", relu = ".relu", ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = a + c in f32, with a of a narrower type, rounded once.
    AddMixed add_mixed "add" [rounding: Option<Rounding>, saturate = ".sat", ty: MixedType]
        (d: RegisterId, a: Source, c: Source);
    /// d = a - c in f32, with a of a narrower type, rounded once.
    SubMixed sub_mixed "sub" [rounding: Option<Rounding>, saturate = ".sat", ty: MixedType]
        (d: RegisterId, a: Source, c: Source);
    /// d = a * b + c in f32, with narrower a and b, rounded once.
    FmaMixed fma_mixed "fma" [rounding: Rounding, saturate = ".sat", ty: MixedType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = the number of ones in a.
    Popc popc "popc" [ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the number of leading zeros in a.
    Clz clz "clz" [ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the position of a's highest bit that differs from the sign. An unsigned a has the sign
    /// 0. Without such a bit, d is 0xffffffff. With `.shiftamt`, d = the left shift that moves this
    /// bit to the highest position.
    Bfind bfind "bfind" [shift_amount = ".shiftamt", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the position of the `offset`-th one in `mask`, counted from bit `base`.
    Fns fns "fns" [ty: ScalarType] (d: RegisterId, mask: Source, base: Source, offset: Source);
    /// d = the bits of a reversed.
    Brev brev "brev" [ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the c bits of a from bit b on, extended.
    Bfe bfe "bfe" [ty: ScalarType] (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = b, with `length` bits from `position` on replaced by a's low bits.
    Bfi bfi "bfi" [ty: ScalarType] (d: RegisterId, a: Source, b: Source, position: Source, length: Source);
    /// d = a mask of b ones from bit a on.
    Bmsk bmsk "bmsk" [mode: BoundMode, ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = the low b bits of a, extended.
    Szext szext "szext" [mode: BoundMode, ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = c plus the scalar product of the four bytes of a and b.
    Dp4a dp4a "dp4a" [a_ty: ScalarType, b_ty: ScalarType] (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = c plus the scalar product of a's halves and two bytes of b.
    Dp2a dp2a "dp2a" [half: Half, a_ty: ScalarType, b_ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);

    // Functions and classes of floating-point numbers.

    /// d = the square root of a.
    Sqrt sqrt "sqrt" [approx = ".approx", rounding: Option<Rounding>, ftz = ".ftz", ty: ScalarType]
        (d: RegisterId, a: Source);
    /// d = the reciprocal of the square root of a, approximately.
    Rsqrt rsqrt "rsqrt" [approx = ".approx", ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = 1 / a.
    Rcp rcp "rcp" [approx = ".approx", rounding: Option<Rounding>, ftz = ".ftz", ty: ScalarType]
        (d: RegisterId, a: Source);
    /// d = the sine of a, approximately.
    Sin sin "sin" [approx = ".approx", ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the cosine of a, approximately.
    Cos cos "cos" [approx = ".approx", ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the logarithm to base 2 of a, approximately.
    Lg2 lg2 "lg2" [approx = ".approx", ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = 2 to the power of a, approximately.
    Ex2 ex2 "ex2" [approx = ".approx", ftz = ".ftz", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the hyperbolic tangent of a, approximately.
    Tanh tanh "tanh" [approx = ".approx", ty: ScalarType] (d: RegisterId, a: Source);
    /// d = true if a is in the class `test`.
    Testp testp "testp" [test: FloatTest, ty: ScalarType] (d: RegisterId, a: Source);
    /// d = b with the sign of a.
    Copysign copysign "copysign" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);

    // Comparison and selection.

    /// d = all ones or 1.0 if the comparison holds, else 0.
    Set set "set" [comparison: Comparison, combine: Option<BooleanOperation>, ftz = ".ftz", to: ScalarType, ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Option<Predicate>);
    /// d = true if the comparison holds, combined with c. The second result is the negated
    /// comparison, combined with c. On pairs of elements, the two results are those of the two
    /// elements.
    Setp setp "setp" [comparison: Comparison, combine: Option<BooleanOperation>, ftz = ".ftz", ty: ScalarType]
        (d: DestinationPair, a: Source, b: Source, c: Option<Predicate>);
    /// d = a if c holds, else b.
    Selp selp "selp" [ty: ScalarType] (d: RegisterId, a: Source, b: Source, c: Predicate);
    /// d = a if c is not negative, else b.
    Slct slct "slct" [ftz = ".ftz", ty: ScalarType, selector_ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);

    // Bits.

    /// d = a & b.
    And and "and" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = a | b.
    Or or "or" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = a ^ b.
    Xor xor "xor" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = ~a.
    Not not "not" [ty: ScalarType] (d: RegisterId, a: Source);
    /// d = 1 if a is 0, else 0.
    Cnot cnot "cnot" [ty: ScalarType] (d: RegisterId, a: Source);
    /// d = the function of a, b and c that the 8-bit table defines. The second result is true if
    /// the first is not 0, combined with q.
    Lop3 lop3 "lop3" [combine: Option<BooleanOperation>, ty: ScalarType]
        (d: DestinationPair, a: Source, b: Source, c: Source, table: Source, q: Option<Predicate>);
    /// d = 32 bits of `b:a` (a is the low word), shifted by c.
    Shf shf "shf" [direction: ShiftDirection, mode: BoundMode, ty: ScalarType]
        (d: RegisterId, a: Source, b: Source, c: Source);
    /// d = a shifted to the left; amounts from the width on give 0.
    Shl shl "shl" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = a shifted to the right. An amount from the width on gives the sign or 0.
    Shr shr "shr" [ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = four of the eight bytes of a and b, which c selects.
    Prmt prmt "prmt" [ty: ScalarType, mode: Option<PermuteMode>] (d: RegisterId, a: Source, b: Source, c: Source);

    // Moves and conversions.

    /// d = a. Several registers on one side are the parts of one value, the lowest first.
    Mov mov "mov" [ty: ScalarType] (d: Destinations, a: Sources);
    /// d = a converted; of two operands, the first becomes the upper element. With `.rs`, the last
    /// operand is random bits.
    Cvt cvt "cvt" [rounding: Option<Rounding>, ftz = ".ftz", saturate = ".sat", clamp: Option<Clamp>, to: ScalarType, from: ScalarType]
        (d: RegisterId, a: Source, b: Option<Source>, c: Option<Source>);
    /// d = a and b converted with saturation and packed, with c above them.
    CvtPack cvt_pack "cvt.pack.sat" [to: ScalarType, from: ScalarType, c_ty: Option<ScalarType>]
        (d: RegisterId, a: Source, b: Source, c: Option<Source>);
    /// d = the generic address of an address in a space; with `.to`, the reverse.
    Cvta cvta "cvta" [to = ".to", space: StateSpace, ty: ScalarType] (d: RegisterId, a: Source);
    /// d = true if the generic address a is in the space.
    Isspacep isspacep "isspacep" [space: StateSpace] (d: RegisterId, a: Source);
    /// d = the address in block b's shared memory that corresponds to a.
    Mapa mapa "mapa" [space: Option<StateSpace>, ty: ScalarType] (d: RegisterId, a: Source, b: Source);
    /// d = the rank of the block whose shared memory a points to.
    Getctarank getctarank "getctarank" [space: Option<StateSpace>, ty: ScalarType] (d: RegisterId, a: Source);

    // Memory.

    /// Loads.
    Ld ld "ld" [semantics: Option<LoadSemantics>, scope: Option<Scope>, space: Option<StateSpace>,
        cache: Option<LoadCache>, non_coherent = ".nc", l1_eviction: Option<L1Eviction>, l2_eviction: Option<L2Eviction>,
        cache_hint = ".L2::cache_hint", prefetch: Option<L2Prefetch>, vector: Option<VectorWidth>, ty: ScalarType]
        (d: Destinations, address: Address, policy: Option<CachePolicy>);
    /// Loads a value that is the same for all lanes.
    Ldu ldu "ldu" [space: Option<StateSpace>, vector: Option<VectorWidth>, ty: ScalarType]
        (d: Destinations, address: Address);
    /// Stores.
    St st "st" [semantics: Option<StoreSemantics>, scope: Option<Scope>, space: Option<StateSpace>,
        cache: Option<StoreCache>, l1_eviction: Option<L1Eviction>, l2_eviction: Option<L2Eviction>,
        cache_hint = ".L2::cache_hint", vector: Option<VectorWidth>, ty: ScalarType]
        (address: Address, b: Sources, policy: Option<CachePolicy>);
    /// Stores to the shared memory of another block. A barrier of that block counts the bytes.
    StAsync st_async "st.async" [semantics: Option<StoreSemantics>, scope: Option<Scope>, space: Option<StateSpace>,
        completion: Completion, vector: Option<VectorWidth>, ty: ScalarType]
        (address: Address, b: Sources, mbarrier: Address);
    /// Loads a line into a cache.
    Prefetch prefetch "prefetch" [space: Option<StateSpace>, level: PrefetchLevel] (address: Address);
    /// Loads a line into the uniform cache.
    Prefetchu prefetchu "prefetchu" [level: PrefetchLevel] (address: Address);
    /// Drops lines of L2 without writing them back.
    Discard discard "discard" [space: Option<StateSpace>, level: PrefetchLevel] (address: Address, size: Source);
    /// Gives lines of L2 a priority.
    Applypriority applypriority "applypriority" [space: Option<StateSpace>, priority: L2Eviction]
        (address: Address, size: Source);
    /// d = a cache policy with one priority for a fraction of accesses, and another.
    CreatepolicyFractional createpolicy_fractional "createpolicy.fractional"
        [primary: PolicyPriority, secondary: Option<PolicyPriority>, ty: ScalarType]
        (d: RegisterId, fraction: Option<Source>);
    /// d = a cache policy for a range of addresses.
    CreatepolicyRange createpolicy_range "createpolicy.range"
        [space: Option<StateSpace>, primary: PolicyPriority, secondary: Option<PolicyPriority>, ty: ScalarType]
        (d: RegisterId, address: Address, primary_size: Source, total_size: Source);
    /// d = the cache policy of an access property of CUDA.
    CreatepolicyCvt createpolicy_cvt "createpolicy.cvt.L2" [ty: ScalarType] (d: RegisterId, property: Source);
    /// d = the value before the operation.
    Atom atom "atom" [semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>,
        operation: AtomicOperation, no_ftz = ".noftz", cache_hint = ".L2::cache_hint", vector: Option<VectorWidth>, ty: ScalarType]
        (d: Destinations, address: Address, b: Sources, c: Option<Source>, policy: Option<CachePolicy>);
    /// An atomic operation without a result.
    Red red "red" [semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>,
        operation: AtomicOperation, no_ftz = ".noftz", cache_hint = ".L2::cache_hint", vector: Option<VectorWidth>, ty: ScalarType]
        (address: Address, b: Sources, policy: Option<CachePolicy>);
    /// An atomic operation on the shared memory of another block. A barrier of that block counts
    /// the bytes.
    RedAsync red_async "red.async" [semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>,
        completion: Completion, operation: AtomicOperation, ty: ScalarType]
        (address: Address, b: Source, mbarrier: Address);

    // Asynchronous copies.

    /// Copies from global to shared memory. Writes zeros in place of the bytes from `source_size`
    /// on. If `source_size` is a predicate that holds, writes zeros in place of all bytes.
    CpAsync cp_async "cp.async" [cache: CopyCache, destination_space: StateSpace, source_space: StateSpace,
        cache_hint = ".L2::cache_hint", prefetch: Option<L2Prefetch>]
        (destination: Address, source: Address, size: Source, source_size: Option<Source>, policy: Option<CachePolicy>);
    /// Makes a group of the copies since the last group.
    CpAsyncCommitGroup cp_async_commit_group "cp.async.commit_group" [] ();
    /// Waits until at most n groups are in flight.
    CpAsyncWaitGroup cp_async_wait_group "cp.async.wait_group" [] (n: Source);
    /// Waits for all copies.
    CpAsyncWaitAll cp_async_wait_all "cp.async.wait_all" [] ();
    /// Arrives at the barrier when this thread's copies are done.
    CpAsyncMbarrierArrive cp_async_mbarrier_arrive "cp.async.mbarrier.arrive"
        [no_increment = ".noinc", space: Option<StateSpace>, ty: ScalarType] (mbarrier: Address);
    /// Copies a block of bytes.
    CpAsyncBulk cp_async_bulk "cp.async.bulk" [destination_space: StateSpace, source_space: StateSpace,
        completion: Completion, multicast = ".multicast::cluster", cache_hint = ".L2::cache_hint", byte_mask = ".cp_mask"]
        (destination: Address, source: Address, size: Source, mbarrier: Option<Address>, mask: Option<Source>,
         policy: Option<CachePolicy>);
    /// Loads a block of bytes into L2.
    CpAsyncBulkPrefetch cp_async_bulk_prefetch "cp.async.bulk.prefetch.L2"
        [source_space: StateSpace, cache_hint = ".L2::cache_hint"]
        (source: Address, size: Source, policy: Option<CachePolicy>);
    /// Copies a box of a tensor into shared memory.
    CpAsyncBulkTensorLoad cp_async_bulk_tensor_load "cp.async.bulk.tensor" [dimension: TensorDimension,
        destination_space: StateSpace, source_space: StateSpace, mode: Option<TensorMode>, completion: Completion,
        multicast = ".multicast::cluster", cta_group: Option<CtaGroup>, cache_hint = ".L2::cache_hint"]
        (destination: Address, source: TensorAddress, mbarrier: Address, offsets: Option<Coordinates>,
         cta_mask: Option<Source>, policy: Option<CachePolicy>);
    /// Copies a box of a tensor from shared memory.
    CpAsyncBulkTensorStore cp_async_bulk_tensor_store "cp.async.bulk.tensor" [dimension: TensorDimension,
        destination_space: StateSpace, source_space: StateSpace, mode: Option<TensorMode>, completion: Completion,
        cache_hint = ".L2::cache_hint"]
        (destination: TensorAddress, source: Address, policy: Option<CachePolicy>);
    /// Loads a box of a tensor into L2.
    CpAsyncBulkPrefetchTensor cp_async_bulk_prefetch_tensor "cp.async.bulk.prefetch.tensor" [dimension: TensorDimension,
        level: PrefetchLevel, source_space: StateSpace, mode: Option<TensorMode>, cache_hint = ".L2::cache_hint"]
        (source: TensorAddress, offsets: Option<Coordinates>, policy: Option<CachePolicy>);
    /// Combines a block of bytes with the destination.
    CpReduceAsyncBulk cp_reduce_async_bulk "cp.reduce.async.bulk" [destination_space: StateSpace,
        source_space: StateSpace, completion: Completion, cache_hint = ".L2::cache_hint", operation: AtomicOperation,
        no_ftz = ".noftz", ty: ScalarType]
        (destination: Address, source: Address, size: Source, mbarrier: Option<Address>, policy: Option<CachePolicy>);
    /// Combines a box of a tensor with the destination.
    CpReduceAsyncBulkTensor cp_reduce_async_bulk_tensor "cp.reduce.async.bulk.tensor" [dimension: TensorDimension,
        destination_space: StateSpace, source_space: StateSpace, operation: AtomicOperation, mode: Option<TensorMode>,
        completion: Completion, cache_hint = ".L2::cache_hint"]
        (destination: TensorAddress, source: Address, policy: Option<CachePolicy>);
    /// Makes a group of the bulk copies since the last group.
    CpAsyncBulkCommitGroup cp_async_bulk_commit_group "cp.async.bulk.commit_group" [] ();
    /// Waits until at most n groups are in flight. With `.read`, waits until all but n groups have
    /// read their sources.
    CpAsyncBulkWaitGroup cp_async_bulk_wait_group "cp.async.bulk.wait_group" [read = ".read"] (n: Source);
    /// Replaces a field of a tensor map. For a field with one value for each dimension, `value` is
    /// the dimension and `dimension_value` the new value.
    TensormapReplace tensormap_replace "tensormap.replace.tile"
        [field: TensormapField, space: Option<StateSpace>, map_ty: ScalarType, ty: ScalarType]
        (address: Address, value: Source, dimension_value: Option<Source>);
    /// Copies a tensor map from shared to global memory and publishes it.
    TensormapCpFenceproxy tensormap_cp_fenceproxy "tensormap.cp_fenceproxy"
        [destination_space: StateSpace, source_space: StateSpace, tensormap_generic = ".tensormap::generic",
         semantics: Semantics, scope: Scope, sync_aligned = ".sync.aligned"]
        (destination: Address, source: Address, size: Source);

    // Barriers in shared memory.

    /// Initializes a barrier for this number of arrivals.
    MbarrierInit mbarrier_init "mbarrier.init" [space: Option<StateSpace>, ty: ScalarType]
        (address: Address, count: Source);
    /// Ends the life of a barrier.
    MbarrierInval mbarrier_inval "mbarrier.inval" [space: Option<StateSpace>, ty: ScalarType] (address: Address);
    /// Adds bytes that the phase waits for.
    MbarrierExpectTx mbarrier_expect_tx "mbarrier.expect_tx"
        [semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (address: Address, bytes: Source);
    /// Completes bytes of the phase.
    MbarrierCompleteTx mbarrier_complete_tx "mbarrier.complete_tx"
        [semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (address: Address, bytes: Source);
    /// Arrives; d = the previous state of the barrier. With `.expect_tx`, the count is the number
    /// of bytes to wait for.
    MbarrierArrive mbarrier_arrive "mbarrier.arrive" [expect_tx = ".expect_tx", no_complete = ".noComplete",
        semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (d: Destination, address: Address, count: Option<Source>);
    /// Arrives, and lowers the arrivals that later phases expect.
    MbarrierArriveDrop mbarrier_arrive_drop "mbarrier.arrive_drop" [expect_tx = ".expect_tx", no_complete = ".noComplete",
        semantics: Option<Semantics>, scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (d: Destination, address: Address, count: Option<Source>);
    /// d = true if the phase of the state, or of the parity, is complete.
    MbarrierTestWait mbarrier_test_wait "mbarrier.test_wait" [parity = ".parity", semantics: Option<Semantics>,
        scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (d: RegisterId, address: Address, state: Source);
    /// d = true if the phase of the state, or of the parity, is complete. The thread may wait for
    /// the phase, up to `suspend_time` nanoseconds.
    MbarrierTryWait mbarrier_try_wait "mbarrier.try_wait" [parity = ".parity", semantics: Option<Semantics>,
        scope: Option<Scope>, space: Option<StateSpace>, ty: ScalarType]
        (d: RegisterId, address: Address, state: Source, suspend_time: Option<Source>);
    /// d = the pending arrivals of a state.
    MbarrierPendingCount mbarrier_pending_count "mbarrier.pending_count" [ty: ScalarType] (d: RegisterId, state: Source);

    // Fences and barriers.

    /// The fence of older PTX.
    Membar membar "membar" [level: MembarLevel] ();
    /// The fence of older PTX between proxies.
    MembarProxy membar_proxy "membar.proxy" [kind: ProxyKind] ();
    /// Orders this thread's accesses; `.acq_rel` is the default.
    Fence fence "fence" [semantics: Option<Semantics>, restrict: Option<SyncRestrict>, scope: Scope] ();
    /// Orders accesses through two proxies.
    FenceProxy fence_proxy "fence.proxy" [kind: ProxyKind] ();
    /// Orders the asynchronous and the generic proxy in one direction.
    FenceProxyAsyncGeneric fence_proxy_async_generic "fence.proxy.async::generic"
        [semantics: Semantics, restrict: SyncRestrict, scope: Scope] ();
    /// Orders writes of a tensor map and its use.
    FenceProxyTensormap fence_proxy_tensormap "fence.proxy.tensormap::generic" [semantics: Semantics, scope: Scope]
        (address: Option<Address>, size: Option<Source>);
    /// Makes the initialization of barriers visible to the cluster.
    FenceMbarrierInit fence_mbarrier_init "fence.mbarrier_init.release.cluster" [] ();
    /// Waits for the threads of the block, or for a number of them. `bar.sync` is the aligned form.
    BarrierSync barrier_sync "barrier.sync" [aligned = ".aligned"] (barrier: Source, threads: Option<Source>);
    /// Arrives without waiting. `bar.arrive` is the aligned form.
    BarrierArrive barrier_arrive "barrier.arrive" [aligned = ".aligned"] (barrier: Source, threads: Source);
    /// Waits; d = the reduction of the predicates of all threads. `bar.red` is the aligned form.
    BarrierReduce barrier_reduce "barrier.red" [operation: BarrierReduction, aligned = ".aligned", ty: ScalarType]
        (d: RegisterId, barrier: Source, threads: Option<Source>, c: Predicate);
    /// Waits for the lanes of the mask.
    BarWarpSync bar_warp_sync "bar.warp.sync" [] (mask: Source);
    /// Arrives at the barrier of the cluster.
    BarrierClusterArrive barrier_cluster_arrive "barrier.cluster.arrive" [semantics: Option<Semantics>, aligned = ".aligned"]
        ();
    /// Waits at the barrier of the cluster.
    BarrierClusterWait barrier_cluster_wait "barrier.cluster.wait" [semantics: Option<Semantics>, aligned = ".aligned"] ();
    /// Lets dependent grids begin, or waits for those that this one depends on.
    Griddepcontrol griddepcontrol "griddepcontrol" [action: GridDependency] ();

    // Between the lanes of a warp.

    /// d = another lane's value; the second result: this lane is in range.
    Shfl shfl "shfl.sync" [mode: ShuffleMode, ty: ScalarType]
        (d: DestinationPair, a: Source, b: Source, c: Source, mask: Source);
    /// d = the vote of the lanes of the mask.
    Vote vote "vote.sync" [mode: VoteMode, ty: ScalarType] (d: RegisterId, a: Predicate, mask: Source);
    /// d = the mask of the lanes with the same value. The second result is true if all lanes have
    /// this value.
    Match match_sync "match" [mode: MatchMode, ty: ScalarType] (d: DestinationPair, a: Source, mask: Source);
    /// d = the mask of the lanes that are active.
    Activemask activemask "activemask" [ty: ScalarType] (d: RegisterId);
    /// d = the values of the lanes of the mask combined.
    Redux redux "redux.sync" [operation: WarpReduction, abs = ".abs", nan = ".NaN", ty: ScalarType]
        (d: RegisterId, a: Source, mask: Source);
    /// d = an elected lane of the mask; the second result: this lane is elected.
    Elect elect "elect.sync" [] (d: DestinationPair, mask: Source);

    // Matrices.

    /// Loads matrices from shared memory; a lane has the address of a row.
    Ldmatrix ldmatrix "ldmatrix.sync.aligned" [shape: LdmatrixShape, count: MatrixCount, transpose = ".trans",
        space: Option<StateSpace>, format: Option<MatrixFormat>, ty: Option<ScalarType>]
        (d: Destinations, address: Address);
    /// Stores matrices to shared memory; a lane has the address of a row.
    Stmatrix stmatrix "stmatrix.sync.aligned" [shape: LdmatrixShape, count: MatrixCount, transpose = ".trans",
        space: Option<StateSpace>, ty: ScalarType]
        (address: Address, a: Sources);
    /// d = a transposed.
    Movmatrix movmatrix "movmatrix.sync.aligned" [shape: LdmatrixShape, transpose = ".trans", ty: ScalarType]
        (d: RegisterId, a: Source);
    /// d = a * b + c on matrices over the lanes of a warp. `.kind::f8f6f4` allows elements narrower
    /// than a byte, and different types of a and b.
    Mma mma "mma.sync.aligned" [shape: MatrixShape, a_layout: MatrixLayout, b_layout: MatrixLayout, saturate = ".satfinite",
        mixed = ".kind::f8f6f4", d_ty: ScalarType, a_ty: ScalarType, b_ty: ScalarType, c_ty: ScalarType, operation: Option<BitOperation>]
        (d: Destinations, a: Sources, b: Sources, c: Sources);
    /// Loads the fragment of a matrix; stride is in elements.
    WmmaLoad wmma_load "wmma.load" [operand: MatrixOperand, layout: MatrixLayout, shape: MatrixShape,
        space: Option<StateSpace>, ty: ScalarType]
        (d: Destinations, address: Address, stride: Option<Source>);
    /// Stores the fragment of a result.
    WmmaStore wmma_store "wmma.store.d.sync.aligned" [layout: MatrixLayout, shape: MatrixShape, space: Option<StateSpace>,
        ty: ScalarType]
        (address: Address, a: Sources, stride: Option<Source>);
    /// d = a * b + c on fragments, a and b in f16.
    WmmaHalf wmma_half "wmma.mma.sync.aligned" [a_layout: MatrixLayout, b_layout: MatrixLayout, shape: MatrixShape,
        d_ty: ScalarType, c_ty: ScalarType]
        (d: Destinations, a: Sources, b: Sources, c: Sources);
    /// d = a * b + c on fragments of other types.
    Wmma wmma "wmma.mma.sync.aligned" [operation: Option<BitOperation>, a_layout: MatrixLayout, b_layout: MatrixLayout,
        shape: MatrixShape, rounding: Option<Rounding>, d_ty: ScalarType, a_ty: ScalarType, b_ty: ScalarType,
        c_ty: ScalarType, saturate = ".satfinite"]
        (d: Destinations, a: Sources, b: Sources, c: Sources);
    /// d = a * b + d on matrices, for the four warps of a warpgroup. If the predicate `scale_d` is
    /// false, d = a * b. `scale_a` and `scale_b` are signs; `transpose_a` and `transpose_b` are 1
    /// for a transposed operand. These four are immediates, present if the types allow them.
    Wgmma wgmma "wgmma.mma_async.sync.aligned"
        [shape: MatrixShape, d_ty: ScalarType, a_ty: ScalarType, b_ty: ScalarType, operation: Option<BitOperation>, saturate = ".satfinite"]
        (d: Accumulators, a: Sources, b: Source, scale_d: Source, scale_a: Option<Source>, scale_b: Option<Source>,
         transpose_a: Option<Source>, transpose_b: Option<Source>);
    /// Orders accesses to the registers of `wgmma`.
    WgmmaFence wgmma_fence "wgmma.fence.sync.aligned" [] ();
    /// Makes a group of the dots since the last group.
    WgmmaCommitGroup wgmma_commit_group "wgmma.commit_group.sync.aligned" [] ();
    /// Waits until at most n groups are in flight.
    WgmmaWaitGroup wgmma_wait_group "wgmma.wait_group.sync.aligned" [] (n: Source);
    /// Requests or releases registers, for the four warps of a warpgroup.
    Setmaxnreg setmaxnreg "setmaxnreg" [change: RegisterCountChange, ty: ScalarType] (count: Source);

    // Tensor memory.

    /// Allocates columns of tensor memory, and writes their address to shared memory. Waits until
    /// enough columns are free.
    Tcgen05Alloc tcgen05_alloc "tcgen05.alloc" [group: CtaGroup, sync_aligned = ".sync.aligned", space: Option<StateSpace>,
        ty: ScalarType]
        (destination: Address, columns: Source);
    /// Frees columns of tensor memory.
    Tcgen05Dealloc tcgen05_dealloc "tcgen05.dealloc" [group: CtaGroup, sync_aligned = ".sync.aligned", ty: ScalarType]
        (address: Source, columns: Source);
    /// Ends the right of the block to allocate tensor memory.
    Tcgen05RelinquishAllocPermit tcgen05_relinquish_alloc_permit "tcgen05.relinquish_alloc_permit"
        [group: CtaGroup, sync_aligned = ".sync.aligned"] ();
    /// Loads from tensor memory, asynchronously. `split` is the distance of the second address of
    /// `.16x32bx2`. With `pack`, a register gets the low halves of two columns.
    Tcgen05Ld tcgen05_ld "tcgen05.ld.sync.aligned"
        [shape: TensorMemoryShape, count: RepetitionCount, pack = ".pack::16b", ty: ScalarType]
        (d: DestinationVector, address: Address, split: Option<Source>);
    /// Stores to tensor memory, asynchronously. With `unpack`, the halves of a register go to two
    /// columns.
    Tcgen05St tcgen05_st "tcgen05.st.sync.aligned"
        [shape: TensorMemoryShape, count: RepetitionCount, unpack = ".unpack::16b", ty: ScalarType]
        (address: Address, split: Option<Source>, a: SourceVector);
    /// Waits for the loads of the thread from tensor memory.
    Tcgen05WaitLd tcgen05_wait_ld "tcgen05.wait::ld.sync.aligned" [] ();
    /// Waits for the stores of the thread to tensor memory.
    Tcgen05WaitSt tcgen05_wait_st "tcgen05.wait::st.sync.aligned" [] ();
    /// d = a * b + d, asynchronously, on a matrix d in tensor memory. If the condition `accumulate`
    /// is false, d = a * b. `layout` describes types and shapes of the matrices. With `scale_d`, d
    /// is first divided by that power of two. `disabled_lanes` is a mask of the lanes of d that
    /// stay unchanged.
    Tcgen05Mma tcgen05_mma "tcgen05.mma" [group: CtaGroup, kind: TensorDotKind, shift_a = ".ashift",
        collector: Option<CollectorUse>]
        (d: Address, a: LeftOperand, b: Source, layout: Source, disabled_lanes: Option<SourceVector>,
         accumulate: Condition, scale_d: Option<Source>);
    /// d = a * b + d, with scale factors for blocks of a and b.
    Tcgen05MmaScaled tcgen05_mma_scaled "tcgen05.mma" [group: CtaGroup, kind: ScaledDotKind, block_scale = ".block_scale",
        vector_size: Option<ScaleVectorSize>, collector: Option<CollectorUse>]
        (d: Address, a: LeftOperand, b: Source, layout: Source, scales_a: Address, scales_b: Address,
         accumulate: Condition);
    /// Makes a barrier track the completion of the asynchronous `tcgen05` instructions of the
    /// thread. The barrier gets one arrival after these instructions. `mask` selects the blocks of
    /// a multicast.
    Tcgen05Commit tcgen05_commit "tcgen05.commit" [group: CtaGroup, arrive_one = ".mbarrier::arrive::one",
        space: Option<StateSpace>, multicast = ".multicast::cluster", ty: ScalarType]
        (mbarrier: Address, mask: Option<Source>);
    /// Copies a matrix from shared to tensor memory, asynchronously.
    Tcgen05Cp tcgen05_cp "tcgen05.cp" [group: CtaGroup, shape: TensorMemoryCopyShape, multicast: Option<LaneMulticast>,
        format: Option<MatrixFormat>]
        (destination: Address, source: Source);
    /// Shifts rows of tensor memory down by one lane, asynchronously.
    Tcgen05Shift tcgen05_shift "tcgen05.shift" [group: CtaGroup, down = ".down"] (address: Address);
    /// Orders earlier asynchronous `tcgen05` instructions before a later synchronization.
    Tcgen05FenceBefore tcgen05_fence_before "tcgen05.fence::before_thread_sync" [] ();
    /// Orders later asynchronous `tcgen05` instructions after an earlier synchronization.
    Tcgen05FenceAfter tcgen05_fence_after "tcgen05.fence::after_thread_sync" [] ();

    // Clusters that have not begun.

    /// Requests the cancellation of a cluster's launch; the response goes to shared memory.
    ClusterTryCancel cluster_try_cancel "clusterlaunchcontrol.try_cancel.async" [space: Option<StateSpace>,
        completion: Completion, multicast = ".multicast::cluster::all", ty: ScalarType]
        (response: Address, mbarrier: Address);
    /// d = true if the response says that a cluster was canceled.
    ClusterIsCanceled cluster_is_canceled "clusterlaunchcontrol.query_cancel.is_canceled" [ty: ScalarType,
        response_ty: ScalarType]
        (d: RegisterId, response: Source);
    /// d = the index of the first block of the canceled cluster.
    ClusterFirstBlock cluster_first_block "clusterlaunchcontrol.query_cancel.get_first_ctaid" [vector: VectorWidth,
        ty: ScalarType, response_ty: ScalarType]
        (d: Destinations, response: Source);
    /// d = one dimension of the index of the first block of the canceled cluster.
    ClusterFirstBlockDimension cluster_first_block_dimension "clusterlaunchcontrol.query_cancel"
        [dimension: ClusterDimension, ty: ScalarType, response_ty: ScalarType]
        (d: RegisterId, response: Source);

    // Control.

    /// Jumps.
    Bra bra "bra" [uniform = ".uni"] (target: BranchTarget);
    /// Jumps to a label of a list.
    BrxIdx brx_idx "brx.idx" [uniform = ".uni"] (index: Source, targets: BranchTableId);
    /// Calls a function.
    Call call "call" [uniform = ".uni"] (call: CallOperands);
    /// Returns.
    Ret ret "ret" [uniform = ".uni"] ();
    /// Ends the thread.
    Exit exit "exit" [] ();
    /// Aborts the kernel.
    Trap trap "trap" [] ();
    /// Stops for a debugger.
    Brkpt brkpt "brkpt" [] ();
    /// Suspends the thread for about this number of nanoseconds.
    Nanosleep nanosleep "nanosleep" [ty: ScalarType] (time: Source);
    /// Triggers a performance event.
    Pmevent pmevent "pmevent" [mask = ".mask"] (event: Source);
}
