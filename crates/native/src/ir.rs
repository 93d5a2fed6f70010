//! Defines vector SSA, the input of the machine-code generator.
//!
//! A function has blocks with parameters and terminators. A value is an integer of 64 bits, a
//! vector or a mask. All vectors and masks of a function have [`Function::lanes`] lanes, whatever
//! their width. A vector of 64-bit lanes thus needs two registers if one of 32-bit lanes needs one.
//!
//! Addresses are integers. Accesses check nothing: the user of [`Builder`](crate::Builder) emits
//! the checks.

use smallvec::SmallVec;

/// A value of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value(pub(crate) u32);

/// A block of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Block(pub(crate) u32);

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// An integer of 64 bits.
    Int,
    /// A vector.
    Vector(Lane),
    /// One boolean for each lane.
    Mask,
}

/// The type of a vector's lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// 8 bits.
    I8,
    /// 16 bits.
    I16,
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

/// A function of two integers. Results wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntBinary {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The low 64 bits of the product.
    Mul,
    /// The bitwise conjunction.
    And,
    /// The bitwise disjunction.
    Or,
    /// The bitwise exclusive disjunction.
    Xor,
    /// A shift to the left, by a count below 64.
    Shl,
    /// A shift to the right that inserts zeros, by a count below 64.
    Shr,
    /// A shift to the right that inserts the sign, by a count below 64.
    Sar,
    /// The minimum of signed integers.
    Min,
    /// The maximum of signed integers.
    Max,
    /// The quotient of signed integers, towards zero. The divisor is not 0, and the quotient does
    /// not overflow.
    DivSigned,
    /// The quotient of unsigned integers. The divisor is not 0.
    DivUnsigned,
    /// The remainder of signed integers, with the sign of the dividend. The divisor is not 0, and
    /// the quotient does not overflow.
    RemSigned,
    /// The remainder of unsigned integers. The divisor is not 0.
    RemUnsigned,
}

/// A comparison of integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntCompare {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less than, signed.
    LtSigned,
    /// At most, signed.
    LeSigned,
    /// Less than, unsigned.
    LtUnsigned,
    /// At most, unsigned.
    LeUnsigned,
}

/// A function of one vector. The result has the type of the operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    /// The square root of floats, correctly rounded.
    Sqrt,
    /// The largest integral float that is not above the operand.
    Floor,
    /// The smallest integral float that is not below the operand.
    Ceil,
}

/// A function of two vectors of the same type, which is also the type of the result. Results of
/// integers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    /// The sum of integers or floats.
    Add,
    /// The difference of integers or floats.
    Sub,
    /// The product of integers (its low bits) or floats.
    Mul,
    /// The quotient of floats.
    Div,
    /// `x * 2^y` of binary32, rounded once. `y` is an integral number from -254 to 254, and the
    /// magnitude of `x` is 0 or from 2^-32 to 2^32. The result is NaN if `x` is NaN, and
    /// unspecified for any other operands.
    Scale,
    /// `if x < y { x } else { y }`, for signed integers or floats.
    Lesser,
    /// `if x > y { x } else { y }`, for signed integers or floats.
    Greater,
    /// The lesser of unsigned integers.
    LesserUnsigned,
    /// The greater of unsigned integers.
    GreaterUnsigned,
    /// The bitwise conjunction of lanes of any type.
    And,
    /// The bitwise disjunction of lanes of any type.
    Or,
    /// The bitwise exclusive disjunction of lanes of any type.
    Xor,
    /// `!x & y`, of lanes of any type.
    AndNot,
    /// A shift of integers to the left. The count is unsigned. If the count is at least the width,
    /// the result is 0.
    Shl,
    /// A shift of integers to the right that inserts zeros. The count is unsigned. If the count is
    /// at least the width, the result is 0.
    Shr,
    /// A shift of integers to the right that inserts the sign. The count is unsigned. If the count
    /// is at least the width, all bits of the result are the sign.
    Sar,
    /// The high half of the product of signed integers.
    MulHighSigned,
    /// The high half of the product of unsigned integers.
    MulHighUnsigned,
}

/// A comparison of two vectors. Comparisons of floats are false for NaN, except [`Self::Ne`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compare {
    /// Equal integers or floats.
    Eq,
    /// Not equal, of integers or floats. The result is true if an operand is NaN.
    Ne,
    /// Less than, of signed integers or floats.
    Lt,
    /// At most, of signed integers or floats.
    Le,
    /// Less than, of unsigned integers.
    LtUnsigned,
    /// At most, of unsigned integers.
    LeUnsigned,
}

/// A conversion of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Conversion {
    /// To a wider integer, with copies of the sign.
    SignExtend,
    /// To a wider integer, with zeros.
    ZeroExtend,
    /// To a narrower integer: the low bits.
    Truncate,
    /// A signed integer of 32 or 64 bits to a float, rounded to nearest even.
    SignedToFloat,
    /// An unsigned integer of 32 or 64 bits to a float, rounded to nearest even.
    UnsignedToFloat,
    /// A float to a signed integer of 32 or 64 bits, towards zero. If the integer type does not
    /// represent the result, the result is unspecified, but always the same for the same float.
    FloatToSigned,
    /// binary32 to binary64, or binary64 to binary32, rounded to nearest even.
    FloatToFloat,
    /// The bits of IEEE binary16 in lanes of 16 bits to binary32. NaN becomes a quiet NaN.
    HalfToFloat,
    /// binary32 to the bits of IEEE binary16, rounded to nearest even. NaN becomes a quiet NaN.
    FloatToHalf,
    /// The same bits as another type of the same width.
    Bitcast,
}

/// A function of two masks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MaskBinary {
    /// `x & y`.
    And,
    /// `x | y`.
    Or,
    /// `x ^ y`.
    Xor,
    /// `!x & y`.
    AndNot,
}

/// The address of an access: `base + index * scale + offset`. The base and the index, if any, are
/// the first operands of the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// True if the address has an index.
    pub indexed: bool,
    /// The factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// The number of bytes to add.
    pub offset: i32,
}

/// The operation of an instruction. The comment of each variant lists the operands and the result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// `() -> Int`.
    IntConstant(i64),
    /// `(Int, Int) -> Int`.
    IntBinary(IntBinary),
    /// `(Int, Int) -> Int`: 1 if the comparison is true, otherwise 0.
    IntCompare(IntCompare),
    /// `(Int condition, Int x, Int y) -> Int`: `x` if the condition is not 0, otherwise `y`.
    IntSelect,
    /// `(Int) -> Int`: the low `bits` (8, 16 or 32), extended by their sign or by zeros.
    IntExtend {
        /// The number of bits.
        bits: u8,
        /// True if copies of the sign are inserted.
        signed: bool,
    },
    /// `(address…) -> Int`: loads `bytes` (1, 2, 4 or 8) and extends them with zeros.
    IntLoad {
        /// The number of bytes.
        bytes: u8,
        /// The address.
        address: Address,
    },
    /// `(address…, Int) -> ()`: stores the low `bytes` (1, 2, 4 or 8).
    IntStore {
        /// The number of bytes.
        bytes: u8,
        /// The address.
        address: Address,
    },
    /// `() -> Vector(lane)`: copies of these bits.
    Constant(Lane, u64),
    /// `(Int) -> Vector(lane)`: copies of the low bits.
    Splat(Lane),
    /// `(Vector) -> Int`: the bits of the first lane, extended with zeros.
    First,
    /// `() -> Vector(lane)` of integers: 0, 1, 2 and so on.
    Iota(Lane),
    /// `(Vector) -> Vector` of the same type.
    Unary(Unary),
    /// `(Vector, Vector) -> Vector` of the same type.
    Binary(Binary),
    /// `(Vector, Vector, Vector) -> Vector` of the same float type: `x * y + z`, rounded once.
    MultiplyAdd,
    /// `(Vector, Vector) -> Mask`, of vectors of the same type.
    Compare(Compare),
    /// `(Mask, Vector x, Vector y) -> Vector`: the lane of `x` where the mask is true, otherwise
    /// the lane of `y`.
    Select,
    /// `(Vector) -> Vector(lane)`.
    Convert(Conversion, Lane),
    /// `(Vector) -> Vector` of the same type. The attribute is `count`: lane i of the result is
    /// lane `(i + count) % lanes` of the operand.
    Rotate(u8),
    /// `(address…, [Mask]) -> Vector(lane)`: loads consecutive lanes. A lane whose mask is false is
    /// 0, and its memory is not accessed.
    Load {
        /// The type of the lanes.
        lane: Lane,
        /// The address of the first lane.
        address: Address,
        /// True if the last operand is a mask.
        masked: bool,
    },
    /// `(address…, Vector, [Mask]) -> ()`: stores consecutive lanes. The memory of a lane whose
    /// mask is false is not accessed.
    Store {
        /// The address of the first lane.
        address: Address,
        /// True if the last operand is a mask.
        masked: bool,
        /// True if the store should bypass the caches. Such a store has no mask, and its address is
        /// a multiple of the number of bytes that it writes.
        streaming: bool,
    },
    /// `(address…) -> ()`: moves the cache line of an address into the caches. The address need not
    /// be valid.
    Prefetch {
        /// The address.
        address: Address,
    },
    /// `(address…) -> Vector(lane)`: copies of one element of memory.
    LoadSplat {
        /// The type of the lanes.
        lane: Lane,
        /// The address of the element.
        address: Address,
    },
    /// `(Int base, Vector(I64) offsets, Mask) -> Vector(lane)`: loads each lane whose mask is true
    /// from `base + offset`. Offsets are in bytes. Other lanes are 0. The lane type has 32 or 64
    /// bits.
    Gather(Lane),
    /// `(Int base, Vector(I64) offsets, Vector, Mask) -> ()`: stores each lane whose mask is true
    /// to `base + offset`, in ascending order of lanes. Offsets are in bytes. The lane type has 32
    /// or 64 bits.
    Scatter,
    /// `() -> Mask`: all lanes have this value.
    MaskConstant(bool),
    /// `(Mask, Mask) -> Mask`.
    MaskBinary(MaskBinary),
    /// `(Mask) -> Mask`: the complement.
    MaskNot,
    /// `(Mask condition, Mask x, Mask y) -> Mask`: the lane of `x` where the condition is true,
    /// otherwise the lane of `y`.
    MaskSelect,
    /// `(Int count) -> Mask`: true in the first `count` lanes. The count is signed. A negative
    /// count counts as 0. A count above the number of lanes counts as the number of lanes.
    FirstLanes,
    /// `(Int) -> Mask`: lane i is bit i.
    MaskOfBits,
    /// `(Mask) -> Int`: bit i is lane i; other bits are 0.
    MaskBits,
    /// `(Int argument…) -> Int`: calls `extern "C" fn(u64, …) -> u64` with at most four arguments.
    Call {
        /// The address of the function.
        function: usize,
    },
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The operation.
    pub op: Op,
    /// The operands, in the order that [`Op`] lists.
    pub operands: SmallVec<[Value; 4]>,
    /// The result, if any.
    pub result: Option<Value>,
    /// A number that the caller chooses for the source position: see
    /// [`Builder::set_origin`](crate::Builder::set_origin). The number has no effect on the machine
    /// code.
    pub origin: u32,
}

/// A jump to a block, with the values of its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The block.
    pub block: Block,
    /// The values of the block's parameters.
    pub arguments: Vec<Value>,
}

/// The end of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Terminator {
    /// Continues with another block.
    Jump(Target),
    /// Continues with the first block if the integer is not 0, otherwise with the second block.
    Branch(Value, Target, Target),
    /// Ends the function with this integer.
    Return(Value),
}

/// The content of a block.
#[derive(Clone, Default, Debug)]
pub struct BlockData {
    /// The parameters.
    pub parameters: Vec<Value>,
    /// The instructions.
    pub insts: Vec<Inst>,
    /// The terminator. It is `None` while the block is under construction.
    pub terminator: Option<Terminator>,
}

/// A function. Its first block is its entry. The only parameter of the entry is an integer, and no
/// terminator continues with the entry.
#[derive(Clone, Debug)]
pub struct Function {
    /// The number of lanes of every vector and mask: a power of two from 4 to 16.
    pub lanes: usize,
    /// The type of each value.
    pub types: Vec<Type>,
    /// The blocks.
    pub blocks: Vec<BlockData>,
}

impl Lane {
    /// Returns the width in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Lane::I8 => 1,
            Lane::I16 => 2,
            Lane::I32 | Lane::F32 => 4,
            Lane::I64 | Lane::F64 => 8,
        }
    }

    /// Returns whether the lanes are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Lane::F32 | Lane::F64)
    }

    /// Returns the integer type of the same width.
    #[must_use]
    pub fn integer(self) -> Lane {
        match self {
            Lane::F32 => Lane::I32,
            Lane::F64 => Lane::I64,
            Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => self,
        }
    }
}

impl Function {
    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// Returns the content of a block.
    pub fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block.0 as usize]
    }
}
