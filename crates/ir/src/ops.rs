//! The first op table: one row for each op. A row defines the [`Op`] variant with its typed
//! attributes, the method of [`OpVisitor`], and the plain data in [`OPS`].
//!
//! To add an op, write a row here, its type rule in `rules.rs`, and its implementation in each
//! backend. A backend does not compile without this implementation. The row makes no method of
//! [`Builder`](crate::Builder). Write this method by hand if the op needs one.

use tilewright_layout::StatedLayout;

use crate::attributes::{
    AtomicKind, CacheModifier, EvictionPolicy, Failure, GridDependency, HintKind, InputPrecision, IntList,
    Literal, MachineQuantity, MemoryScope, MemorySemantics, Rounding,
};
use crate::device::DeviceFn;
use crate::elementwise::ElementwiseFn;
use crate::function::{Block, FuncId, Function, Inst};
use crate::rule_input::RuleInput;
use crate::rules;
use crate::scaled::ScaledFormat;
use crate::types::{Dtype, Element, Shape, Type};
use crate::{Attribute, RuleError, define_ops};

/// The number of regions of an op that may have any number of them.
pub const ANY_REGIONS: usize = usize::MAX;

/// The effect of an op, apart from its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// None: passes may remove, repeat, merge and move the op.
    Pure,
    /// It reads memory.
    Read,
    /// It writes memory, or has another observable effect.
    Write,
    /// It runs its regions, and has their effects.
    Control,
    /// It ends a block.
    Terminator,
}

/// The family of an op, for code that does not distinguish ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpFamily {
    /// A scalar without operands.
    Scalar,
    /// A tile whose elements each thread can compute by itself from scalars.
    Source,
    /// Each element of a result depends only on the operands' elements at the same index.
    Pointwise,
    /// The value of the operand, with further promises about it, or in another layout.
    Identity,
    /// Moves elements to indices that the op fixes, and computes no elements.
    Shape,
    /// Selects elements of the first operand, at run-time indices, or at indices that no layout of
    /// registers can express. The other operands have the shape of the result. At each index, they
    /// decide which element the result gets.
    Movement,
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    /// Accesses memory concurrently with other programs, each element atomically. The first operand
    /// is the pointer.
    Atomic,
    /// A dot.
    Dot,
    /// A reduction, whose region uses only elements of the tiles, or a histogram.
    Reduction,
    /// A scan or a step of a sort. Each element of a result depends only on elements that have the
    /// same coordinates along all axes but one. Results have the shape of the operands. A region,
    /// if any, combines elements as the region of a reduction does.
    Scan,
    /// A promise of the program. The op emits no code.
    Promise,
    /// Synchronizes threads, or waits for asynchronous work.
    Barrier,
    /// Memory that a kernel allocates, and accesses to it.
    Memory,
    /// An observable effect that changes no memory, such as a run-time check, a printed text, or a
    /// signal to other grids. All operands have the same shape; there may be no operand.
    Check,
    /// Runs another function.
    Call,
    /// Runs its last region repeatedly; see [`Function::carried`].
    Loop,
    /// Runs one of its regions; see [`Function::carried`].
    Branch,
    /// Runs each of its regions on some of the warps.
    Partitions,
    /// Ends a block.
    Terminator,
}

/// The reason why an op may make its program wait for other programs of the grid.
///
/// Threads of one program, and the blocks of its cluster, start together. So a wait for them does
/// not count. A wait for earlier grids does not count either, because they end independently of
/// this grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Waiting {
    /// The op ends independently of other programs, and observes nothing of them.
    Never,
    /// It reads memory that other programs may have written. Unless the op is volatile, passes may
    /// assume that this memory does not change.
    Reads,
    /// It observes concurrent effects of other programs: a loop around it may wait for them.
    Observes,
    /// It runs its regions until a condition changes; another program may change the condition.
    Repeats,
    /// It may wait for other programs by itself.
    Always,
}

/// The memory that an op accesses through its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryAccess {
    /// None, except the memory that its regions and callees access.
    None,
    /// It reads global memory at its first operand.
    ReadsGlobal,
    /// It writes global memory at its first operand, perhaps after it has read it.
    WritesGlobal,
    /// It reads its first operand, in shared memory.
    ReadsShared,
    /// It writes its first operand, in shared memory.
    WritesShared,
    /// It reads those of its operands that are in shared memory.
    ReadsOperands,
    /// It writes its first operand and arrives at the barriers in a later operand. Both operands are
    /// in shared memory.
    FillsShared,
}

impl MemoryAccess {
    /// Returns whether the op writes its first operand, in shared memory.
    pub fn writes_shared(self) -> bool {
        matches!(self, Self::WritesShared | Self::FillsShared)
    }
}

/// The relation of an op to asynchronous work. Work that an op starts is in flight until another op
/// waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncPhase {
    /// Its accesses are complete when it ends.
    None,
    /// It starts a copy to shared memory that the thread itself makes (`cp.async`).
    StartsCopy,
    /// It starts a copy to shared memory that the asynchronous proxy makes, or a request whose
    /// response the proxy writes there.
    StartsTensorLoad,
    /// It starts a copy from shared memory that the asynchronous proxy makes.
    StartsTensorStore,
    /// It starts a dot, which reads shared memory by the asynchronous proxy.
    StartsDot,
    /// It starts a dot or a copy that reads shared memory by the asynchronous proxy. A
    /// `tcgen05_commit` signals the completion at an `mbarrier`.
    StartsTensorDot,
    /// It waits for `cp.async` copies that its thread has started.
    AwaitsCopies,
    /// It waits for asynchronous-proxy copies from shared memory that its thread has started.
    AwaitsTensorStores,
    /// It waits for dots.
    AwaitsDots,
}

impl AsyncPhase {
    /// Returns whether the op starts a copy to shared memory.
    pub fn starts_fill(self) -> bool {
        matches!(self, Self::StartsCopy | Self::StartsTensorLoad)
    }

    /// Returns whether the op starts reads of shared memory by the asynchronous proxy.
    pub fn starts_proxy_read(self) -> bool {
        matches!(self, Self::StartsTensorStore | Self::StartsDot | Self::StartsTensorDot)
    }

    /// Returns the phase that starts the work for which an op of this phase waits.
    pub fn awaited(self) -> Option<Self> {
        match self {
            Self::AwaitsCopies => Some(Self::StartsCopy),
            Self::AwaitsTensorStores => Some(Self::StartsTensorStore),
            Self::AwaitsDots => Some(Self::StartsDot),
            Self::None
            | Self::StartsCopy
            | Self::StartsTensorLoad
            | Self::StartsTensorStore
            | Self::StartsDot
            | Self::StartsTensorDot => None,
        }
    }
}

/// A row of the op table, as plain data.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The mnemonic of the text form.
    pub name: &'static str,
    /// The exact semantics; each item is one line.
    pub docs: &'static [&'static str],
    /// The names of the required operands.
    pub operands: &'static [&'static str],
    /// The names of the optional operands. An instruction may omit the last ones.
    pub optional: &'static [&'static str],
    /// The name of the operands that may follow the others, in any number.
    pub variadic: Option<&'static str>,
    /// The attributes: name and type.
    pub attributes: &'static [(&'static str, &'static str)],
    /// The number of regions.
    pub regions: usize,
    /// The effect, apart from the results.
    pub effect: Effect,
    /// The family.
    pub family: OpFamily,
    /// The relation to waiting for other programs.
    pub waiting: Waiting,
    /// The memory that the op accesses through its operands.
    pub memory: MemoryAccess,
    /// The relation to asynchronous work.
    pub phase: AsyncPhase,
}

impl OpInfo {
    /// Checks that the op may have `count` operands.
    ///
    /// # Errors
    /// Returns a sentence with the permitted numbers of operands and `count`.
    pub fn check_operand_count(&self, count: usize) -> Result<(), String> {
        let least = self.operands.len();
        let most = least + self.optional.len();
        let takes = match self.variadic {
            Some(_) if count >= least => return Ok(()),
            None if (least..=most).contains(&count) => return Ok(()),
            Some(_) => format!("at least {least}"),
            None if most > least => format!("{least} to {most}"),
            None => least.to_string(),
        };
        Err(format!("{} takes {takes} operands, found {count}", self.name))
    }
}

/// Looks up attribute text by name while an op is parsed.
pub type AttributeText<'a> = dyn Fn(&str) -> Option<&'a str> + 'a;

macro_rules! tile_ops {
    ($callback:ident! $($prefix:tt)*) => { $callback! { $($prefix)*
    /// A scalar constant.
    Constant constant () [] {value: Literal} regions 0 Pure Scalar Never None None;
    /// The position of this program in the grid along an axis (0, 1 or 2), int32.
    ProgramId program_id () [] {axis: u8} regions 0 Pure Scalar Never None None;
    /// The extent of the grid along an axis (0, 1 or 2), int32.
    NumPrograms num_programs () [] {axis: u8} regions 0 Pure Scalar Never None None;
    /// The int32 tile start, start + 1, …, end - 1.
    Arange arange () [] {start: i64, end: i64} regions 0 Pure Source Never None None;
    /// A tile with this scalar as every element.
    Splat splat (scalar) [] {shape: Shape} regions 0 Pure Source Never None None;
    /// The tile with a new axis of extent 1.
    ExpandDims expand_dims (tile) [] {axis: u32} regions 0 Pure Shape Never None None;
    /// The tile repeated along its axes of extent 1 until it has the shape `shape`.
    Broadcast broadcast (tile) [] {shape: Shape} regions 0 Pure Shape Never None None;
    /// Along each axis, selects the elements at start, start + step, …. The extent of `shape` is
    /// the number of selected elements. A step may be negative.
    Slice slice (tile) [] {starts: IntList, steps: IntList, shape: Shape} regions 0 Pure Shape Never None None;
    /// The elements in row-major order under another shape with the same number of elements.
    Reshape reshape (tile) [] {shape: Shape} regions 0 Pure Shape Never None None;
    /// Axis i of the result is the axis `permutation[i]` of the tile.
    Transpose transpose (tile) [] {permutation: IntList} regions 0 Pure Shape Never None None;
    /// A function of the table in `elementwise.rs`, applied to each element.
    Elementwise elementwise () [] *operands {function: ElementwiseFn} regions 0 Pure Pointwise Never None None;
    /// Conversion to another element type. Integers wrap or extend. A cast from float to integer
    /// truncates towards zero and saturates; NaN yields 0. A cast to int1 compares with zero.
    /// `rounding` applies to casts from integer to float, and to casts to narrower floats; fp8
    /// saturates to the largest finite value. Casts between integers and pointers keep the bits.
    Cast cast (value) [] {element: Element, rounding: Rounding} regions 0 Pure Pointwise Never None None;
    /// The same bits read as another element type of the same width.
    Bitcast bitcast (value) [] {element: Element} regions 0 Pure Pointwise Never None None;
    /// PTX that runs for every `pack` elements of the arguments, at equal indices. The grouping of
    /// elements is unspecified. Text and constraints are those of LLVM's inline assembly. The PTX
    /// need not run if its results are unused.
    InlineAsm inline_asm () [] *arguments {text: String, constraints: String, dtypes: DtypeList, pack: u32}
        regions 0 Pure Pointwise Observes None None;
    /// PTX as for `inline_asm`, with effects in addition to its results. The PTX runs exactly where
    /// and as often as the program states.
    VolatileAsm volatile_asm () [] *arguments {text: String, constraints: String, dtypes: DtypeList, pack: u32}
        regions 0 Write Pointwise Always None None;
    /// Applies the region, a function of scalars, to every `pack` elements of the tiles. The
    /// grouping of elements is unspecified. The region has parameters for `pack` elements of the
    /// first tile, then of the second, and so on. It yields `pack` elements of each result. If a
    /// group has too few elements, copies of another element fill it.
    Map map () [] *tiles {pack: u32} regions 1 Control Pointwise Never None None;
    /// A pointer moved by an integer number of elements of its pointee; computed in 64 bits.
    PtrAdd ptr_add (pointer, offset) [] {} regions 0 Pure Pointwise Never None None;
    /// Reads memory where the mask holds, or everywhere without a mask. Elsewhere, the result is
    /// `other`, or zero without `other`.
    Load load (pointer) [mask, other] {cache: CacheModifier, eviction: EvictionPolicy, volatile: bool} regions 0 Read Load Reads ReadsGlobal None;
    /// Writes memory where the mask holds. If two elements of a tile have the same address, it is
    /// unspecified which of them remains.
    Store store (pointer, value) [mask] {cache: CacheModifier, eviction: EvictionPolicy} regions 0 Write Store Never WritesGlobal None;
    /// Replaces the elements in memory for which the mask holds, or all elements without a mask.
    /// The new element is the function `kind` of the old element and the element of `value`. The op
    /// replaces the elements one after the other, in any order. The result is the old element, or
    /// zero where the mask does not hold.
    AtomicRmw atomic_rmw (pointer, value) [mask] {kind: AtomicKind, sem: MemorySemantics, scope: MemoryScope}
        regions 0 Write Atomic Observes WritesGlobal None;
    /// Compares the elements in memory for which the mask holds, or all elements without a mask,
    /// with those of `expected`. If an element in memory has the same bits, the element of `value`
    /// replaces it. The result is the old element, or zero where the mask does not hold.
    AtomicCas atomic_cas (pointer, expected, value) [mask] {sem: MemorySemantics, scope: MemoryScope}
        regions 0 Write Atomic Observes WritesGlobal None;
    /// Reads memory where the mask holds, each element atomically. Elsewhere, the result is zero.
    /// The op is not merged with another load.
    AtomicLoad atomic_load (pointer) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Observes ReadsGlobal None;
    /// Writes memory where the mask holds, each element atomically.
    AtomicStore atomic_store (pointer, value) [mask] {sem: MemorySemantics, scope: MemoryScope} regions 0 Write Atomic Never WritesGlobal None;
    /// Reads a scalar in memory repeatedly, until it has the bits of `expected`. The result is then
    /// true. If `timeout` nanoseconds (int64) pass first, the result is false. The op reads at
    /// least once.
    AtomicPoll atomic_poll (pointer, expected) [timeout] {sem: MemorySemantics, scope: MemoryScope}
        regions 0 Write Atomic Always ReadsGlobal None;
    /// acc + a @ b over the last two axes. Multiplications and additions are in the type of acc, in
    /// any order. The conversion of fp16 and bf16 operands to fp32 is exact.
    Dot dot (a, b, acc) [] {precision: InputPrecision, max_imprecise_acc: u32} regions 0 Pure Dot Never None None;
    /// acc + a @ b, where each group of elements along K has a scale. The elements of A and B have
    /// the formats `a_format` and `b_format`. A byte has two elements of e2m1, which are neighbors
    /// along K. The scales have the shapes `[M, groups]` for A and `[N, groups]` for B.
    /// Multiplications are exact, additions are in fp32.
    ///
    /// Only the GPU back end makes the op, from calls of functions with
    /// [`scaled_dot`](crate::Function::scaled_dot).
    DotScaled dot_scaled (a, b, acc, a_scale, b_scale) [] {a_format: ScaledFormat, b_format: ScaledFormat}
        regions 0 Pure Dot Never None None;
    /// Combines the tiles along an axis by an associative region. The region has parameters for the
    /// left element of each tile, then for the right element of each tile. It yields one element
    /// for each tile. The order of combination is fixed for a shape.
    Reduce reduce () [] *tiles {axis: u32} regions 1 Pure Reduction Never None None;
    /// Combines each element with all elements before it along an axis. The associative region is
    /// like that of `reduce`, with earlier elements on the left. With `reverse`, the last element
    /// counts as the earliest. The order of combination is fixed for a shape.
    Scan scan () [] *tiles {axis: u32, reverse: bool} regions 1 Pure Scan Never None None;
    /// For each value 0, 1, … bins - 1, counts the elements of an integer tile that have this
    /// value, where the mask holds. The counts are int32. Other elements are not counted.
    Histogram histogram (tile) [mask] {bins: u32} regions 0 Pure Reduction Never None None;
    /// The element at coordinate `i` along the axis is the element of the tile at `i ^ mask`. The
    /// extent of the axis is a power of two. A mask with all bits of the coordinate reverses the
    /// axis.
    Butterfly butterfly (tile) [] {axis: u32, mask: u32} regions 0 Pure Scan Never None None;
    /// A part of a bitonic merge of integers along an axis whose extent is a power of two. Each bit
    /// from `high` down to `low` is a step on all pairs of elements whose coordinates differ in
    /// only this bit. If bit `block` of the coordinates is 0, the smaller element of a pair moves
    /// to the lower coordinate. Otherwise, the larger element moves there. `descending` reverses
    /// this order. Bit `block` is always 0 if the extent has fewer bits.
    Bitonic bitonic (tile) [] {axis: u32, high: u32, low: u32, block: u32, descending: bool} regions 0 Pure Scan Never None None;
    /// Selects elements of the tile. The int32 index is the coordinate of the element along an
    /// axis. The other coordinates are those of the element in the result. The CPU executor stops
    /// at an index that is out of bounds. GPU code reads an arbitrary element instead.
    Gather gather (tile, index) [] {axis: u32} regions 0 Pure Movement Never None None;
    /// The value itself, about which the program makes a promise.
    Hint hint (value) [] {kind: HintKind, values: IntList} regions 0 Pure Identity Never None None;
    /// The tile in a layout that the program states.
    SetLayout set_layout (tile) [] {layout: StatedLayout} regions 0 Pure Identity Never None None;
    /// A function of a GPU that a Gluon program calls (see `DeviceFn`).
    Device device () [] *operands {function: DeviceFn} regions 0 Write Memory Never None None;
    /// Starts workers (Gluon): runs each region in separate warps, while the warps of the program
    /// continue. `warps` lists the numbers of warps of the regions. `registers` lists the register
    /// counts of a thread in the regions, and is empty if no region changes them. The only values
    /// from before the op that a region uses are scalars. The `device` function `join_workers`
    /// waits for the workers.
    StartWorkers start_workers () [] {warps: IntList, registers: IntList} regions ANY_REGIONS Control Partitions Never None None;
    /// The program promises that the condition holds.
    Assume assume (condition) [] {} regions 0 Write Promise Never None None;
    /// Waits until all threads of the program have reached the op.
    Barrier barrier () [] {} regions 0 Write Barrier Never None None;
    /// Stops the launch with the failure if the condition is false where the mask is true.
    Assert assert (condition) [mask] {failure: Failure} regions 0 Write Check Never None None;
    /// Prints a line for each element: the program, the index in the tile, the prefix and the
    /// number. The number is an integer of 32 or 64 bits, or fp64. Without a value, prints only the
    /// prefix. Integers have `digits` hexadecimal digits, or are decimal if `digits` is 0. With
    /// extents, elements outside of them are omitted.
    Print print () [value] {prefix: String, digits: u32, extents: IntList} regions 0 Write Check Never None None;
    /// A property of the executing machine at the time of execution.
    Machine machine () [] {quantity: MachineQuantity} regions 0 Write Scalar Never None None;
    /// Synchronizes with the grids before and after this grid. Has no effect if grids do not
    /// overlap.
    Dependency dependency () [] {action: GridDependency} regions 0 Write Check Never None None;
    /// Calls another function of the module.
    Call call () [] *arguments {callee: FuncId, results: TypeList} regions 0 Control Call Never None None;
    /// Counts a scalar integer from lower to upper (exclusive) by step, downwards if step is
    /// negative. The parameters of the region are the integer and the carried values. The region
    /// yields the next carried values; the results are the last carried values. A step of zero is
    /// an error.
    For for_loop (lower, upper, step) [] *carried {options: LoopOptions} regions 1 Control Loop Never None None;
    /// Runs the second region as long as the first region yields true for the carried values. The
    /// parameters of the second region are the carried values, and it yields the next carried
    /// values. The results are the last carried values.
    While while_loop () [] *carried {} regions 2 Control Loop Repeats None None;
    /// Runs the first region if the scalar condition holds, else the second region. The results are
    /// the values that this region yields.
    If if_else (condition) [] {} regions 2 Control Branch Never None None;
    /// Ends a region, and yields the values.
    Yield yield_values () [] *values {} regions 0 Terminator Terminator Never None None;
    /// Ends a function, and returns the values.
    Return return_values () [] *values {} regions 0 Terminator Terminator Never None None;
    } };
}

macro_rules! define_result_types {
    ($($(#[doc = $doc:literal])*
       $variant:ident $method:ident ($($operand:ident),*) [$($optional:ident),*] $(*$variadic:ident)?
       {$($attribute:ident: $attribute_ty:ty),*} regions $regions:tt $effect:ident $family:ident $waiting:ident
       $memory:ident $phase:ident;)*) => {
        impl Op {
            /// Returns the types of the results of the op.
            pub fn result_types(&self, input: &RuleInput<'_>) -> Result<Vec<Type>, RuleError> {
                rules::check_arity(self.info(), input)?;
                rules::check_layouts(self, input.operands)?;
                let mut results = match self {
                    $(Op::$variant { $($attribute),* } => rules::$method(input, $($attribute),*)?,)*
                };
                rules::complete_layouts(self, input.operands, &mut results)?;
                Ok(results)
            }
        }
    };
}

/// Defines `ShapeOp` from the rows of the family `Shape`.
macro_rules! define_shape_ops {
    ([$($(#[doc = $doc:literal])* $variant:ident {$($attribute:ident: $attribute_ty:ty),*})*]) => {
        /// An op of the family `Shape`, which maps indices of elements. Code can match on the
        /// family exhaustively.
        #[derive(Clone, Copy, Debug)]
        pub enum ShapeOp<'a> {
            $($(#[doc = $doc])* $variant {
                $(#[doc = concat!("The attribute `", stringify!($attribute), "`.")]
                $attribute: &'a $attribute_ty,)*
            },)*
        }

        impl Op {
            /// Returns the op as a `ShapeOp`, if it belongs to the family `Shape`.
            pub fn as_shape(&self) -> Option<ShapeOp<'_>> {
                match self {
                    $(Op::$variant { $($attribute),* } => Some(ShapeOp::$variant { $($attribute),* }),)*
                    // tidy: wildcard because the arms above are all rows of the family
                    _ => None,
                }
            }
        }
    };
    ([$($found:tt)*] $(#[doc = $doc:literal])* $variant:ident $method:ident ($($operands:tt)*) [$($optional:tt)*]
     $(*$variadic:ident)? {$($attributes:tt)*} regions $regions:tt $effect:ident Shape $waiting:ident
     $memory:ident $phase:ident; $($rest:tt)*) => {
        define_shape_ops!([$($found)* $(#[doc = $doc])* $variant {$($attributes)*}] $($rest)*);
    };
    ([$($found:tt)*] $(#[doc = $doc:literal])* $variant:ident $method:ident ($($operands:tt)*) [$($optional:tt)*]
     $(*$variadic:ident)? {$($attributes:tt)*} regions $regions:tt $effect:ident $family:ident $waiting:ident
       $memory:ident $phase:ident; $($rest:tt)*) => {
        define_shape_ops!([$($found)*] $($rest)*);
    };
}

tile_ops!(define_ops! Op OPS OpVisitor visit_op;);
tile_ops!(define_result_types!);
tile_ops!(define_shape_ops![]);

/// The result types of a call.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TypeList(pub Vec<Type>);

impl Attribute for TypeList {
    fn print(&self, out: &mut String) {
        out.push('(');
        for (index, ty) in self.0.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "; " });
            out.push_str(&ty.to_string());
        }
        out.push(')');
    }
    fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('(')?.strip_suffix(')')?;
        let parts = inner.split(';').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Type::parse).collect::<Option<_>>().map(Self)
    }
}

/// The element types of the results of inline assembly.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DtypeList(pub Vec<Dtype>);

impl Attribute for DtypeList {
    fn print(&self, out: &mut String) {
        let names: Vec<&str> = self.0.iter().map(|dtype| dtype.name()).collect();
        out.push('(');
        out.push_str(&names.join("; "));
        out.push(')');
    }
    fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('(')?.strip_suffix(')')?;
        let parts = inner.split(';').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Dtype::parse).collect::<Option<_>>().map(Self)
    }
}

/// Options of the compilation of a loop, which do not change the results.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of the language")]
pub struct LoopOptions {
    /// The number of iterations in flight; 0 if the launch decides.
    pub num_stages: u32,
    /// The number of copies of the body in one unrolled iteration; 0 if the compiler decides.
    pub unroll_factor: u32,
    /// True if the program requests to fuse the loop with its directly nested loop.
    pub flatten: bool,
    /// True if the program requests warp specialization: different warps run different parts of the
    /// body.
    pub warp_specialize: bool,
    /// True if the accumulator of a dot must have only one buffer.
    pub disallow_acc_multi_buffer: bool,
    /// True if invariant code must stay in the loop.
    pub disable_licm: bool,
}

impl LoopOptions {
    /// The maximum number of iterations in flight that a loop or a launch may request. Each of them
    /// takes a slot of shared memory and a step of the prologue.
    pub const MAX_STAGES: u32 = 64;
}

impl Attribute for LoopOptions {
    fn print(&self, out: &mut String) {
        let flags = [
            ("flatten", self.flatten),
            ("warp_specialize", self.warp_specialize),
            ("disallow_acc_multi_buffer", self.disallow_acc_multi_buffer),
            ("disable_licm", self.disable_licm),
        ];
        let mut words = vec![format!("stages={}", self.num_stages), format!("unroll={}", self.unroll_factor)];
        words.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| String::from(*name)));
        words.join(" ").print(out);
    }
    fn parse(text: &str) -> Option<Self> {
        let mut options = Self::default();
        for word in String::parse(text)?.split_whitespace() {
            match word.split_once('=') {
                Some(("stages", count)) => {
                    options.num_stages = count.parse().ok().filter(|count| *count <= Self::MAX_STAGES)?;
                }
                Some(("unroll", count)) => options.unroll_factor = count.parse().ok()?,
                Some(_) => return None,
                None => match word {
                    "flatten" => options.flatten = true,
                    "warp_specialize" => options.warp_specialize = true,
                    "disallow_acc_multi_buffer" => options.disallow_acc_multi_buffer = true,
                    "disable_licm" => options.disable_licm = true,
                    _ => return None,
                },
            }
        }
        Some(options)
    }
}

/// Calls the visitor's method for an instruction, which must have the operands that its row lists.
pub fn visit<V: OpVisitor + ?Sized>(function: &Function, inst: Inst, visitor: &mut V) -> V::Output {
    let data = &function.insts[inst];
    visit_op(&data.op, inst, &data.operands, visitor)
}

impl Op {
    /// Returns whether the op ends a block.
    pub fn is_terminator(&self) -> bool {
        self.info().effect == Effect::Terminator
    }

    /// Returns the mnemonic; for an elementwise op, the mnemonic of its function.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Elementwise { function } => function.name(),
            // tidy: wildcard because every other op has the mnemonic of its row
            other => other.info().name,
        }
    }

    /// Returns whether the regions of the op are functions of single elements. Such regions use no
    /// values of enclosing blocks.
    pub fn has_element_regions(&self) -> bool {
        matches!(self.family(), OpFamily::Reduction | OpFamily::Scan) || matches!(self, Op::Map { .. })
    }

    /// Returns whether the op may be removed if its results are unused, and merged with an equal
    /// op.
    pub fn is_pure(&self) -> bool {
        self.info().effect == Effect::Pure
    }

    /// Returns whether the op may be executed speculatively. This excludes ops with regions, which
    /// may have effects. It also excludes `gather`, because the CPU executor stops at an index that
    /// is out of bounds.
    pub fn is_speculatable(&self) -> bool {
        self.is_pure() && self.info().regions == 0 && !matches!(self, Op::Gather { .. })
    }

    /// Returns whether the program declares that other threads change the memory that the op reads.
    pub fn is_volatile(&self) -> bool {
        match self {
            Op::Load { volatile, cache, .. } => *volatile || *cache == CacheModifier::Volatile,
            // tidy: wildcard because only plain loads may be volatile
            _ => false,
        }
    }

    /// Returns the family of the op.
    pub fn family(&self) -> OpFamily {
        self.info().family
    }
}

/// The regions of an instruction, for rules and visitors.
pub type Regions = smallvec::SmallVec<[Block; 2]>;
