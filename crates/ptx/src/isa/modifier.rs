//! The modifiers of opcodes, such as `.rn`, `.sat` and `.relaxed`. A kind is an enum, and a variant
//! is a row with its text.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

use super::parse::operands::Mismatch;

/// Declares enums of modifiers, each variant with its text. Implements `text`, `ALL` and
/// [`Modifier`] for each enum.
macro_rules! modifiers {
    ($($(#[doc = $enum_doc:literal])* pub enum $name:ident {
        $($(#[doc = $doc:literal])* $variant:ident = $text:literal,)*
    })*) => { $(
        $(#[doc = $enum_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $name {
            $($(#[doc = $doc])* $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the text, with the leading dot.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.text())
            }
        }

        impl $crate::isa::modifier::Modifier for $name {
            fn print(&self, out: &mut String) {
                out.push_str(self.text());
            }

            fn parse(opcode: &mut $crate::isa::modifier::Opcode<'_>) -> Option<Self> {
                opcode.take_first(Self::ALL, |value| value.text())
            }
        }
    )* };
}
pub(crate) use modifiers;

/// The unread rest of an opcode.
#[derive(Clone, Debug)]
pub(crate) struct Opcode<'a> {
    /// The unread text; empty or beginning with a dot.
    rest: Cow<'a, str>,
    /// True if modifiers may be in any order. NVIDIA's assembler allows this.
    any_order: bool,
}

impl<'a> Opcode<'a> {
    pub(crate) fn new(text: &'a str, any_order: bool) -> Self {
        Self { rest: Cow::Borrowed(text), any_order }
    }

    /// Returns the unread text.
    pub(crate) fn rest(&self) -> &str {
        &self.rest
    }

    /// Returns the offset of a modifier, or of adjacent modifiers with one text.
    fn find(&self, text: &str) -> Option<usize> {
        let stands_at = |&at: &usize| {
            let after = self.rest[at..].strip_prefix(text);
            after.is_some_and(|after| after.is_empty() || after.starts_with('.'))
        };
        if !self.any_order {
            return Some(0).filter(stands_at);
        }
        self.rest.match_indices('.').map(|(at, _)| at).find(stands_at)
    }

    fn remove(&mut self, at: usize, length: usize) {
        self.rest = match &self.rest {
            Cow::Borrowed(rest) if at == 0 => Cow::Borrowed(&rest[length..]),
            rest => Cow::Owned(format!("{}{}", &rest[..at], &rest[at + length..])),
        };
    }

    /// Removes a modifier, or adjacent modifiers with one text. Returns whether it was present.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let found = self.find(text);
        if let Some(at) = found {
            self.remove(at, text.len());
        }
        found.is_some()
    }

    /// Removes the fixed beginning of an opcode. Returns whether it was present.
    pub(crate) fn take_mnemonic(&mut self, mnemonic: &str) -> bool {
        // A modifier may precede later words of a mnemonic. Names with these prefixes have two
        // words that stay together.
        let has_two = ["cp.", "bar.", "barrier.", "mbarrier.", "tcgen05.", "clusterlaunchcontrol."]
            .iter()
            .any(|name| mnemonic.starts_with(name));
        let mut dots = mnemonic.match_indices('.').map(|(at, _)| at);
        let end = dots.next();
        let is_name = |at: usize| has_two && word(&mnemonic[at..]) != ".sync";
        let end = if end.is_some_and(is_name) { dots.next() } else { end };
        let first = end.unwrap_or(mnemonic.len());
        if self.any_order && self.rest.starts_with(&mnemonic[..first]) {
            self.remove(0, first);
            return mnemonic[first..]
                .split_terminator('.')
                .skip(1)
                .all(|word| self.take(&format!(".{word}")));
        }
        self.rest.starts_with(mnemonic) && {
            self.remove(0, mnemonic.len());
            self.rest.is_empty() || self.rest.starts_with('.')
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Mismatch> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.mismatch()) }
    }

    pub(crate) fn mismatch(&self) -> Mismatch {
        Mismatch::Modifier(self.rest.len())
    }

    /// Removes and returns the first of these modifiers. If several are at one offset, takes the
    /// longest.
    pub(crate) fn take_first<T: Copy>(&mut self, all: &[T], text: impl Fn(T) -> &'static str) -> Option<T> {
        let found = all.iter().filter_map(|&value| Some((self.find(text(value))?, text(value).len(), value)));
        let (at, length, value) = found.min_by_key(|&(at, length, _)| (at, Reverse(length)))?;
        self.remove(at, length);
        Some(value)
    }
}

/// Returns the word that a text begins with, with its dot.
fn word(text: &str) -> &str {
    text[1..].find('.').map_or(text, |end| &text[..=end])
}

/// A part of an opcode.
pub(crate) trait Modifier: Sized {
    fn print(&self, out: &mut String);
    fn parse(opcode: &mut Opcode<'_>) -> Option<Self>;
}

impl<T: Modifier> Modifier for Option<T> {
    fn print(&self, out: &mut String) {
        if let Some(modifier) = self {
            modifier.print(out);
        }
    }

    fn parse(opcode: &mut Opcode<'_>) -> Option<Self> {
        Some(T::parse(opcode))
    }
}

/// The shape of a matrix instruction, `.m16n8k16`; `k` is 0 where the instruction has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MatrixShape {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// The reduced dimension.
    pub k: u32,
}

impl fmt::Display for MatrixShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k } = self;
        write!(formatter, ".m{m}n{n}")?;
        if *k == 0 { Ok(()) } else { write!(formatter, "k{k}") }
    }
}

impl Modifier for MatrixShape {
    fn print(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }

    fn parse(opcode: &mut Opcode<'_>) -> Option<Self> {
        let of_word = |word: &str| {
            let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
            let (n, k) = rest.split_once('k').unwrap_or((rest, "0"));
            Some(Self { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
        };
        let shape = opcode.rest().split('.').find_map(of_word)?;
        opcode.take(&shape.to_string()).then_some(shape)
    }
}

modifiers! {
    /// The rounding of a result.
    pub enum Rounding {
        /// To nearest, ties to even.
        Rn = ".rn",
        /// Towards zero.
        Rz = ".rz",
        /// Towards negative infinity.
        Rm = ".rm",
        /// Towards positive infinity.
        Rp = ".rp",
        /// To nearest, ties away from zero.
        Rna = ".rna",
        /// Stochastically, by random bits.
        Rs = ".rs",
        /// To an integer, nearest, ties to even.
        Rni = ".rni",
        /// To an integer, towards zero.
        Rzi = ".rzi",
        /// To an integer, towards negative infinity.
        Rmi = ".rmi",
        /// To an integer, towards positive infinity.
        Rpi = ".rpi",
    }
    /// The part of an integer product that is kept.
    pub enum MultiplyMode {
        /// The low half.
        Lo = ".lo",
        /// The high half.
        Hi = ".hi",
        /// The whole product.
        Wide = ".wide",
    }
    /// The precision of a division that is not correctly rounded.
    pub enum DivisionPrecision {
        /// Within 2 ulp, for divisors up to 2¹²⁶.
        Approx = ".approx",
        /// Within 2 ulp, for all divisors.
        Full = ".full",
    }
    /// The treatment of a shift amount, position or length that is out of range.
    pub enum BoundMode {
        /// Values are clamped to the bound.
        Clamp = ".clamp",
        /// Bits above the range are dropped.
        Wrap = ".wrap",
    }
    /// The type of a result, and the narrower one of some operands.
    pub enum MixedType {
        /// A binary32 result, binary16 operands.
        F16 = ".f32.f16",
        /// A binary32 result, bfloat16 operands.
        Bf16 = ".f32.bf16",
    }
    /// The half of an operand that is used.
    pub enum Half {
        /// The low half.
        Lo = ".lo",
        /// The high half.
        Hi = ".hi",
    }
    /// A test of a floating-point number.
    pub enum FloatTest {
        /// Neither infinite nor NaN.
        Finite = ".finite",
        /// Infinite.
        Infinite = ".infinite",
        /// Not NaN.
        Number = ".number",
        /// NaN.
        NotANumber = ".notanumber",
        /// Neither subnormal, infinite nor NaN. Zero counts as normal.
        Normal = ".normal",
        /// Subnormal.
        Subnormal = ".subnormal",
    }
    /// A comparison. A comparison with NaN is false, unless the variant says otherwise.
    pub enum Comparison {
        /// Equal.
        Eq = ".eq",
        /// Not equal.
        Ne = ".ne",
        /// Less.
        Lt = ".lt",
        /// Less or equal.
        Le = ".le",
        /// Greater.
        Gt = ".gt",
        /// Greater or equal.
        Ge = ".ge",
        /// Less, unsigned.
        Lo = ".lo",
        /// Less or equal, unsigned.
        Ls = ".ls",
        /// Greater, unsigned.
        Hi = ".hi",
        /// Greater or equal, unsigned.
        Hs = ".hs",
        /// Equal, or an operand is NaN.
        Equ = ".equ",
        /// Not equal, or an operand is NaN.
        Neu = ".neu",
        /// Less, or an operand is NaN.
        Ltu = ".ltu",
        /// Less or equal, or an operand is NaN.
        Leu = ".leu",
        /// Greater, or an operand is NaN.
        Gtu = ".gtu",
        /// Greater or equal, or an operand is NaN.
        Geu = ".geu",
        /// Neither operand is NaN.
        Num = ".num",
        /// An operand is NaN.
        Nan = ".nan",
    }
    /// The combination of a comparison with a predicate.
    pub enum BooleanOperation {
        /// Conjunction.
        And = ".and",
        /// Disjunction.
        Or = ".or",
        /// Exclusive disjunction.
        Xor = ".xor",
    }
    /// A direction of a funnel shift.
    pub enum ShiftDirection {
        /// To the left: the high word of the result.
        Left = ".l",
        /// To the right: the low word of the result.
        Right = ".r",
    }
    /// The interpretation of the selector of `prmt`.
    pub enum PermuteMode {
        /// Four bytes forward from the selected one.
        F4e = ".f4e",
        /// Four bytes in descending order.
        B4e = ".b4e",
        /// The selected byte in each byte of the result.
        Rc8 = ".rc8",
        /// Clamp to the left.
        Ecl = ".ecl",
        /// Clamp to the right.
        Ecr = ".ecr",
        /// The selected half in each half of the result.
        Rc16 = ".rc16",
    }
    /// The treatment of negative results, and of results out of range, by a conversion.
    pub enum Clamp {
        /// Negative results become zero.
        Relu = ".relu",
        /// Results that are too large become the largest finite number.
        Satfinite = ".satfinite",
        /// `.relu` and `.satfinite`.
        ReluSatfinite = ".relu.satfinite",
        /// `.relu` and `.satfinite`, for conversions to fp8 and narrower formats.
        SatfiniteRelu = ".satfinite.relu",
    }
    /// The memory order of a load.
    pub enum LoadSemantics {
        /// Unordered: the default.
        Weak = ".weak",
        /// As a relaxed operation of system scope.
        Volatile = ".volatile",
        /// Atomic, without an order of other accesses.
        Relaxed = ".relaxed",
        /// Atomic, and ordered before all later accesses of the thread.
        Acquire = ".acquire",
        /// Memory-mapped input and output.
        MmioRelaxed = ".mmio.relaxed",
    }
    /// The memory order of a store.
    pub enum StoreSemantics {
        /// Unordered: the default.
        Weak = ".weak",
        /// As a relaxed operation of system scope.
        Volatile = ".volatile",
        /// Atomic, without an order of other accesses.
        Relaxed = ".relaxed",
        /// Atomic, and ordered after all earlier accesses of the thread.
        Release = ".release",
        /// Memory-mapped input and output.
        MmioRelaxed = ".mmio.relaxed",
    }
    /// The memory order of an operation.
    pub enum Semantics {
        /// Without an order of other accesses.
        Relaxed = ".relaxed",
        /// Ordered before all later accesses of the thread.
        Acquire = ".acquire",
        /// Ordered after all earlier accesses of the thread.
        Release = ".release",
        /// Acquire and release.
        AcquireRelease = ".acq_rel",
        /// Acquire and release, in one order that all threads observe.
        SequentiallyConsistent = ".sc",
    }
    /// The threads for which an order holds.
    pub enum Scope {
        /// The thread block.
        Cta = ".cta",
        /// The cluster.
        Cluster = ".cluster",
        /// The device.
        Gpu = ".gpu",
        /// The system.
        Sys = ".sys",
    }
    /// The caching of the line that a load reads.
    pub enum LoadCache {
        /// At all levels.
        All = ".ca",
        /// In L2 and below.
        Global = ".cg",
        /// At all levels, likely to be read once.
        Streaming = ".cs",
        /// At all levels, not read again, as for spilled registers.
        LastUse = ".lu",
        /// Nowhere: each load fetches the line again.
        Volatile = ".cv",
    }
    /// The caching of the line that a store writes.
    pub enum StoreCache {
        /// At all coherent levels.
        WriteBack = ".wb",
        /// In L2 and below.
        Global = ".cg",
        /// At all levels, likely to be accessed once.
        Streaming = ".cs",
        /// Through L2 to the memory of the system.
        WriteThrough = ".wt",
    }
    /// The caches that an asynchronous copy goes through.
    pub enum CopyCache {
        /// All levels.
        All = ".ca",
        /// Only L2.
        Global = ".cg",
    }
    /// The eviction priority of a line in L1.
    pub enum L1Eviction {
        /// The default.
        Normal = ".L1::evict_normal",
        /// The priority of the line stays unchanged.
        Unchanged = ".L1::evict_unchanged",
        /// Evicted first.
        First = ".L1::evict_first",
        /// Evicted last.
        Last = ".L1::evict_last",
        /// The line is not cached in L1.
        NoAllocate = ".L1::no_allocate",
    }
    /// The eviction priority of a line in L2.
    pub enum L2Eviction {
        /// The default.
        Normal = ".L2::evict_normal",
        /// Evicted first.
        First = ".L2::evict_first",
        /// Evicted last.
        Last = ".L2::evict_last",
    }
    /// The eviction priorities in L2 that a cache policy combines.
    pub enum PolicyPriority {
        /// Evicted last.
        Last = ".L2::evict_last",
        /// The default.
        Normal = ".L2::evict_normal",
        /// Evicted first.
        First = ".L2::evict_first",
        /// The priority of the line stays unchanged.
        Unchanged = ".L2::evict_unchanged",
    }
    /// The bytes around an access that are fetched into L2.
    pub enum L2Prefetch {
        /// 64 bytes.
        Bytes64 = ".L2::64B",
        /// 128 bytes.
        Bytes128 = ".L2::128B",
        /// 256 bytes.
        Bytes256 = ".L2::256B",
    }
    /// The number of elements that an access moves.
    pub enum VectorWidth {
        /// Two.
        V2 = ".v2",
        /// Four.
        V4 = ".v4",
        /// Eight.
        V8 = ".v8",
    }
    /// The target of a prefetch.
    pub enum PrefetchLevel {
        /// L1.
        L1 = ".L1",
        /// L2.
        L2 = ".L2",
        /// L2, evicted last.
        L2EvictLast = ".L2::evict_last",
        /// L2, with normal priority.
        L2EvictNormal = ".L2::evict_normal",
        /// The cache of tensor maps.
        Tensormap = ".tensormap",
    }
    /// The function of an atomic operation.
    pub enum AtomicOperation {
        /// Bitwise and.
        And = ".and",
        /// Bitwise or.
        Or = ".or",
        /// Bitwise exclusive or.
        Xor = ".xor",
        /// Stores the third operand if the old value equals the second.
        CompareAndSwap = ".cas",
        /// Stores the operand.
        Exchange = ".exch",
        /// Sum.
        Add = ".add",
        /// Increment; an old value of at least the operand becomes 0.
        Increment = ".inc",
        /// Decrement; an old value of 0, or above the operand, becomes the operand.
        Decrement = ".dec",
        /// Minimum.
        Min = ".min",
        /// Maximum.
        Max = ".max",
    }
    /// The function of a reduction over the lanes of a warp.
    pub enum WarpReduction {
        /// Sum.
        Add = ".add",
        /// Minimum.
        Min = ".min",
        /// Maximum.
        Max = ".max",
        /// Bitwise and.
        And = ".and",
        /// Bitwise or.
        Or = ".or",
        /// Bitwise exclusive or.
        Xor = ".xor",
    }
    /// The function of a reduction over the threads of a barrier.
    pub enum BarrierReduction {
        /// The number of predicates that hold.
        Popc = ".popc",
        /// True if all predicates hold.
        And = ".and",
        /// True if any predicate holds.
        Or = ".or",
    }
    /// The source lane of a shuffle.
    pub enum ShuffleMode {
        /// The lane at a distance before this one.
        Up = ".up",
        /// The lane at a distance after this one.
        Down = ".down",
        /// The lane whose id differs in given bits.
        Butterfly = ".bfly",
        /// A given lane.
        Index = ".idx",
    }
    /// The result of a vote.
    pub enum VoteMode {
        /// True if all predicates hold.
        All = ".all",
        /// True if any predicate holds.
        Any = ".any",
        /// True if all predicates are equal.
        Uniform = ".uni",
        /// The mask of the lanes whose predicate holds.
        Ballot = ".ballot",
    }
    /// The lanes that `match` finds.
    pub enum MatchMode {
        /// The lanes with the value of this lane.
        Any = ".any.sync",
        /// All lanes of the mask if they have the same value, else no lane.
        All = ".all.sync",
    }
    /// The action of `griddepcontrol`.
    pub enum GridDependency {
        /// Lets the grids that depend on this one begin.
        LaunchDependents = ".launch_dependents",
        /// Waits for the grids that this one depends on.
        Wait = ".wait",
    }
    /// The level of the older fence.
    pub enum MembarLevel {
        /// The thread block.
        Cta = ".cta",
        /// The device.
        Gl = ".gl",
        /// The system.
        Sys = ".sys",
    }
    /// The proxies that a fence orders.
    pub enum ProxyKind {
        /// Aliased virtual addresses.
        Alias = ".alias",
        /// The asynchronous and the generic proxy, in all spaces.
        Async = ".async",
        /// The asynchronous and the generic proxy, in global memory.
        AsyncGlobal = ".async.global",
        /// The asynchronous and the generic proxy, in the block's shared memory.
        AsyncSharedCta = ".async.shared::cta",
        /// The asynchronous and the generic proxy, in the cluster's shared memory.
        AsyncSharedCluster = ".async.shared::cluster",
    }
    /// The shared memory that a fence is restricted to.
    pub enum SyncRestrict {
        /// The shared memory of the thread block.
        SharedCta = ".sync_restrict::shared::cta",
        /// The shared memory of the cluster.
        SharedCluster = ".sync_restrict::shared::cluster",
    }
    /// The completion mechanism of an asynchronous copy.
    pub enum Completion {
        /// An `mbarrier` in shared memory counts the copied bytes.
        Mbarrier = ".mbarrier::complete_tx::bytes",
        /// The bulk group of the copy completes.
        BulkGroup = ".bulk_group",
    }
    /// The rank of a tensor.
    pub enum TensorDimension {
        /// One.
        D1 = ".1d",
        /// Two.
        D2 = ".2d",
        /// Three.
        D3 = ".3d",
        /// Four.
        D4 = ".4d",
        /// Five.
        D5 = ".5d",
    }
    /// The mode in which coordinates select a box of a tensor.
    pub enum TensorMode {
        /// A tile.
        Tile = ".tile",
        /// A tile gathered from four rows.
        TileGather4 = ".tile::gather4",
        /// A tile scattered to four rows.
        TileScatter4 = ".tile::scatter4",
        /// The columns of a convolution.
        Im2col = ".im2col",
        /// The columns of a convolution along the width.
        Im2colW = ".im2col::w",
        /// The columns of a convolution along the width, 128 pixels.
        Im2colW128 = ".im2col::w::128",
        /// Columns written without offsets.
        Im2colNoOffsets = ".im2col_no_offs",
    }
    /// The thread blocks that take part in an instruction. For a tensor copy: the blocks whose
    /// shared memory may contain the barrier.
    pub enum CtaGroup {
        /// Only this block. For a copy: the block to which it writes.
        One = ".cta_group::1",
        /// This block and the other block of its pair.
        Two = ".cta_group::2",
    }
    /// The field of a tensor map.
    pub enum TensormapField {
        /// The address of the tensor.
        GlobalAddress = ".global_address",
        /// The number of dimensions less one.
        Rank = ".rank",
        /// The extent of the box along a dimension.
        BoxDim = ".box_dim",
        /// The extent of the tensor along a dimension.
        GlobalDim = ".global_dim",
        /// The stride of a dimension.
        GlobalStride = ".global_stride",
        /// The step along a dimension.
        ElementStride = ".element_stride",
        /// The element type.
        Elemtype = ".elemtype",
        /// The interleaving.
        InterleaveLayout = ".interleave_layout",
        /// The swizzle.
        SwizzleMode = ".swizzle_mode",
        /// The granularity of the swizzle.
        SwizzleAtomicity = ".swizzle_atomicity",
        /// The value that is read outside of the tensor.
        FillMode = ".fill_mode",
    }
    /// The shape of the matrices that `ldmatrix` and `stmatrix` move.
    pub enum LdmatrixShape {
        /// 8 rows of 8 elements of 16 bits.
        M8n8 = ".m8n8",
        /// 16 rows of 8 elements of 8 bits.
        M16n8 = ".m16n8",
        /// 8 rows of 16 elements narrower than a byte.
        M8n16 = ".m8n16",
        /// 16 rows of 16 elements of 8 bits or fewer.
        M16n16 = ".m16n16",
    }
    /// The number of matrices that are moved.
    pub enum MatrixCount {
        /// One.
        X1 = ".x1",
        /// Two.
        X2 = ".x2",
        /// Four.
        X4 = ".x4",
    }
    /// The memory format of sub-byte elements, and their unpacked width.
    pub enum MatrixFormat {
        /// Elements of 6 bits with padding, unpacked to 8 bits.
        B8x16B6x16P32 = ".b8x16.b6x16_p32",
        /// Elements of 4 bits with padding, unpacked to 8 bits.
        B8x16B4x16P64 = ".b8x16.b4x16_p64",
        /// 8 bits.
        B8 = ".b8",
    }
    /// The operand of a dot whose fragment `wmma.load` loads.
    pub enum MatrixOperand {
        /// The left factor.
        A = ".a.sync.aligned",
        /// The right factor.
        B = ".b.sync.aligned",
        /// The accumulator.
        C = ".c.sync.aligned",
    }
    /// The index of a matrix that runs fastest.
    pub enum MatrixLayout {
        /// The column index.
        Row = ".row",
        /// The row index.
        Column = ".col",
    }
    /// The function of two rows of bits in a dot of single bits. The dot adds its result to the
    /// accumulator.
    pub enum BitOperation {
        /// Exclusive or, counted.
        XorPopc = ".xor.popc",
        /// And, counted.
        AndPopc = ".and.popc",
    }
    /// The direction in which `setmaxnreg` changes the number of registers.
    pub enum RegisterCountChange {
        /// More.
        Increase = ".inc.sync.aligned",
        /// Fewer.
        Decrease = ".dec.sync.aligned",
    }
}

impl Clamp {
    /// Returns whether negative results become zero.
    pub fn relu(self) -> bool {
        self != Self::Satfinite
    }

    /// Returns whether results that are too large become the largest finite number.
    pub fn satfinite(self) -> bool {
        self != Self::Relu
    }
}

impl VectorWidth {
    /// Returns the number of elements.
    pub fn count(self) -> usize {
        match self {
            Self::V2 => 2,
            Self::V4 => 4,
            Self::V8 => 8,
        }
    }
}

impl TensorDimension {
    /// Returns the number of dimensions.
    pub fn rank(self) -> usize {
        self as usize + 1
    }
}

impl MatrixCount {
    /// Returns the number of matrices.
    pub fn count(self) -> usize {
        1 << self as usize
    }
}
