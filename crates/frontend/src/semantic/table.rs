//! The table of the builtins of `triton.language`. A row has a signature, the documentation, the
//! namespaces of the name, and the rule. The rule is a function in the module of its family, such
//! as `memory`.
//!
//! `dispatch` calls the rules. `names` joins the rows with the library functions of `stdlib/*.py`.

use tilewright_ir::Op as IrOp;

/// A module or class that contains the name of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Namespace {
    /// `tl.name`.
    Root,
    /// `tl.math.name`.
    Math,
    /// `tl.extra.libdevice.name`.
    Libdevice,
    /// `x.name` on a tensor `x`.
    Method,
    /// `x.name` on a tensor `x`; there is no `tl.name`.
    OnlyMethod,
    /// `dtype.name` on a type.
    TypeMethod,
    /// `desc.name` on a tensor descriptor.
    DescriptorMethod,
    /// `tl.extra.cuda.name`.
    Cuda,
    /// `tl.target_info.name`.
    TargetInfo,
    /// `gl.name`, a function of Gluon that `tl` lacks.
    Gluon,
    /// `async_copy.name` of Gluon.
    GluonAsyncCopy,
    /// `mbarrier.name` of Gluon.
    GluonMbarrier,
    /// `tma.name` of Gluon.
    GluonTma,
    /// `gluon.language.nvidia.hopper.name`.
    GluonHopper,
    /// `triton.experimental.gluon.language.nvidia.hopper.cluster`.
    GluonCluster,
    /// `gluon.language.nvidia.blackwell.name`.
    GluonBlackwell,
    /// `gluon.language.nvidia.blackwell.clc.name`.
    GluonClc,
    /// `response.name` on a response of `clc.load_result`.
    LaunchMethod,
    /// `smem.name` on shared memory of Gluon.
    SharedMethod,
    /// `tmem.name` on tensor memory of Gluon.
    TensorMemoryMethod,
}

/// Passes all rows to a macro.
macro_rules! builtins {
    ($reader:ident) => { $reader! {
        // The program's position in the grid.

        /// Returns the position of this program along an axis (0, 1 or 2) of the grid, as int32.
        ProgramId "program_id(axis)" [Root] => program::grid, false;
        /// Returns the number of programs along an axis (0, 1 or 2) of the grid, as int32.
        NumPrograms "num_programs(axis)" [Root] => program::grid, true;

        // Memory.

        /// Reads memory through a pointer or a tile of pointers. If the mask is false, nothing is
        /// read and the result is `other`, or 0 without one; the mask and `other` broadcast to the
        /// pointers' shape.
        Load "load(pointer, mask=None, other=None, boundary_check=(), padding_option='', cache_modifier='', \
              eviction_policy='', volatile=False)" [Root] => memory::load;
        /// Writes a value through a pointer or a tile of pointers, where the mask is true. The
        /// value is converted to the type of the memory, and it and the mask broadcast to the
        /// pointers' shape.
        Store "store(pointer, value, mask=None, boundary_check=(), cache_modifier='', eviction_policy='')"
            [Root Method] => memory::store;
        /// Returns a pointer to a block of a tensor in memory. `shape` and `strides` are the
        /// tensor's; the block begins at `offsets`. `load` and `store` take it, and check the axes
        /// in `boundary_check`. `order` is a hint.
        MakeBlockPtr "make_block_ptr(base, shape, strides, offsets, block_shape, order)"
            [Root Method] => descriptor::make_block_ptr;
        /// Returns the block pointer moved by `offsets` elements along each axis.
        Advance "advance(base, offsets)" [Root Method] => descriptor::advance;
        /// Returns a descriptor of a tensor in memory, through which blocks of this shape are
        /// loaded and stored. Every access is checked: outside of the tensor a load returns
        /// `padding_option` ("zero" or "nan"), and a store writes nothing. The last stride is 1.
        MakeTensorDescriptor "make_tensor_descriptor(base, shape, strides, block_shape, padding_option='zero')"
            [Root] => descriptor::make_tensor_descriptor;
        /// The older name of `make_tensor_descriptor`.
        OldMakeTensorDescriptor "_experimental_make_tensor_descriptor(base, shape, strides, block_shape)"
            [Root] => descriptor::make_tensor_descriptor;
        /// Loads the block that begins at these offsets.
        DescriptorLoad "load(self, offsets)" [DescriptorMethod] => descriptor::load;
        /// Stores the block that begins at these offsets.
        DescriptorStore "store(self, offsets, value)" [DescriptorMethod] => descriptor::store, 1, 2;
        /// Loads rows of a matrix: row `i` of the result is row `x_offsets[i]` of the matrix, from
        /// column `y_offset` on.
        DescriptorGather "gather(self, x_offsets, y_offset)" [DescriptorMethod] => descriptor::gather;
        /// Stores rows of a matrix: row `i` of the value to row `x_offsets[i]` of the matrix, from
        /// column `y_offset` on.
        DescriptorScatter "scatter(self, value, x_offsets, y_offset)" [DescriptorMethod] => descriptor::scatter;
        /// Adds a block to memory atomically (each element by itself).
        DescriptorAtomicAdd "atomic_add(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::Add;
        /// Stores the bitwise and of a block and memory atomically (each element by itself).
        DescriptorAtomicAnd "atomic_and(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::And;
        /// Stores the maximum of a block and memory atomically (each element by itself).
        DescriptorAtomicMax "atomic_max(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::Max;
        /// Stores the minimum of a block and memory atomically (each element by itself).
        DescriptorAtomicMin "atomic_min(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::Min;
        /// Stores the bitwise or of a block and memory atomically (each element by itself).
        DescriptorAtomicOr "atomic_or(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::Or;
        /// Stores the bitwise exclusive or of a block and memory atomically (each element by
        /// itself).
        DescriptorAtomicXor "atomic_xor(self, offsets, value)" [DescriptorMethod]
            => atomics::reduce_into_block, AtomicKind::Xor;
        /// The same as `desc.load(offsets)`.
        LoadTensorDescriptor "load_tensor_descriptor(desc, offsets)" [Root] => descriptor::load;
        /// The same as `desc.store(offsets, value)`.
        StoreTensorDescriptor "store_tensor_descriptor(desc, offsets, value)" [Root] => descriptor::store, 1, 2;
        /// The older name of `desc.load(offsets)`; `shape` and `dtype` are those of the descriptor.
        OldDescriptorLoad "_experimental_descriptor_load(desc, offsets, shape, dtype)" [Root] => descriptor::load;
        /// The older name of `desc.store(offsets, value)`.
        OldDescriptorStore "_experimental_descriptor_store(desc, value, offsets)" [Root] => descriptor::store, 2, 1;

        // Memory that several programs change. `sem` is "acq_rel" (the default), "acquire",
        // "release" or "relaxed"; `scope` is "gpu" (the default), "cta" or "sys".

        /// Adds the value to memory through a pointer or a tile of pointers, where the mask is
        /// true, atomically for each element. Returns the old value of the memory, or 0 where the
        /// mask is false. Floats are added in any order.
        AtomicAdd "atomic_add(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Add;
        /// Like `atomic_add`, but computes the bitwise and of integers.
        AtomicAnd "atomic_and(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::And;
        /// Like `atomic_add`, but computes the bitwise or of integers.
        AtomicOr "atomic_or(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Or;
        /// Like `atomic_add`, but computes the bitwise exclusive or of integers.
        AtomicXor "atomic_xor(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Xor;
        /// Like `atomic_add`, but computes the maximum. -0.0 is less than 0.0; a NaN is beyond the
        /// infinity of its sign.
        AtomicMax "atomic_max(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Max;
        /// Like `atomic_max`, but computes the minimum.
        AtomicMin "atomic_min(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Min;
        /// Like `atomic_add`, but stores the value itself.
        AtomicXchg "atomic_xchg(pointer, val, mask=None, sem=None, scope=None)" [Root Method]
            => atomics::read_modify_write, AtomicKind::Exchange;
        /// Writes `val` where memory has the bits of `cmp`, atomically for each element. Returns
        /// the old value of the memory, signed or unsigned as `val` is.
        AtomicCas "atomic_cas(pointer, cmp, val, sem=None, scope=None)" [Root Method] => atomics::compare_and_swap;
        /// Reads memory that other programs write, atomically for each element; 0 where the mask is
        /// false. `sem` is "acquire" (the default) or "relaxed".
        AtomicLoad "atomic_load(pointer, mask=None, sem=None, scope=None)" [Root Method] => atomics::load;
        /// Writes memory that other programs read, atomically for each element. `sem` is "release"
        /// (the default) or "relaxed".
        AtomicStore "atomic_store(pointer, val, mask=None, sem=None, scope=None)" [Root Method] => atomics::store;
        /// Waits until the integer at a scalar pointer is the expected one, and returns True; or
        /// until `timeout_ns` nanoseconds have passed, and returns False. `sem` is "acquire" (the
        /// default) or "relaxed".
        AtomicPoll "atomic_poll(pointer, expected_value, sem=None, scope=None, timeout_ns=None)" [Root Method]
            => atomics::poll;

        // Making tiles, and changing their shape.

        /// Returns the int32 tile start, start + 1, …, end - 1, of any length.
        Arange "arange(start, end)" [Root] => shape::arange;
        /// Returns a tile whose elements all have this value. An integer that the type does not
        /// hold wraps.
        Full "full(shape, value, dtype)" [Root] => shape::full;
        /// Adds axes of extent 1 to a tile, at these axes (an integer or a tuple) of the result.
        ExpandDims "expand_dims(input, axis)" [Root Method] => shape::expand_dims;
        /// Returns both operands, broadcast to their common shape.
        Broadcast "broadcast(input, other)" [Root] => shape::broadcast;
        /// Repeats the tile along its axes of extent 1 so that it has the shape.
        BroadcastTo "broadcast_to(input, *shape)" [Root Method] => shape::broadcast_to_shape;
        /// Returns the elements, in row-major order, with another shape; one extent may be -1.
        Reshape "reshape(input, *shape, can_reorder=False)" [Root Method] => shape::reshape;
        /// The same as `reshape`.
        View "view(input, *shape)" [Root Method] => shape::reshape;
        /// Reorders the axes of a tile; without an order, the last two are swapped.
        Trans "trans(input, *dims)" [Root Method] => shape::trans;
        /// Reorders the axes of a tile.
        Permute "permute(input, *dims)" [Root Method] => shape::permute;
        /// Returns the only element, as a scalar.
        Item "item(self)" [OnlyMethod] => shape::item;

        // Joining tiles, and taking parts of them.

        /// Joins two tiles, which broadcast to one shape, along a new last axis of extent 2. They
        /// are converted to their common type; two integers of one width to the type of the first.
        Join "join(a, b)" [Root] => movement::join;
        /// Returns the halves along the last axis, which has extent 2: the inverse of `join`.
        Split "split(a)" [Root Method] => movement::split;
        /// Concatenates two tiles along an axis, in the type of `join`. The order is kept, also
        /// with `can_reorder`.
        Cat "cat(input, other, can_reorder=False, dim=0)" [Root] => movement::cat;
        /// Returns, along the axis, the elements at the indices; along the others, those at the
        /// same position. An index is from 0 to the extent of the axis less 1. Any other is an
        /// error on the CPU and in the simulator, and on a GPU with `debug=True`; without, a GPU
        /// reads an arbitrary element.
        Gather "gather(src, index, axis)" [Root Method] => movement::gather;

        // Conversions.

        /// Converts to another type. Integers wrap; a float becomes an integer by truncation
        /// towards zero; int1 is the comparison with zero. `bitcast=True` keeps the bits instead.
        /// `fp_downcast_rounding` is "rtne" or "rtz".
        Cast "cast(input, dtype, fp_downcast_rounding=None, bitcast=False)" [Root Method] => math::convert;
        /// Converts to another type; the same as `cast`.
        To "to(self, dtype, fp_downcast_rounding=None, bitcast=False)" [OnlyMethod] => math::convert;
        /// Converts a compile-time number to a scalar.
        ToTensor "to_tensor(x)" [Root] => math::to_tensor;

        // Functions of each element.

        /// Returns x + y, as the operator does. With `debug=True` the result of integers must be a
        /// number of their type, unless `sanitize_overflow=False`.
        Add "add(x, y, sanitize_overflow: constexpr=True)" [Root] => math::operator, BinaryOperator::Add;
        /// Returns x - y, as the operator does. With `debug=True` the result of integers must be a
        /// number of their type, unless `sanitize_overflow=False`.
        Sub "sub(x, y, sanitize_overflow: constexpr=True)" [Root] => math::operator, BinaryOperator::Sub;
        /// Returns x * y, as the operator does. With `debug=True` the result of integers must be a
        /// number of their type, unless `sanitize_overflow=False`.
        Mul "mul(x, y, sanitize_overflow: constexpr=True)" [Root] => math::operator, BinaryOperator::Mul;
        /// Returns x where the condition is true, else y. The three broadcast; x and y are
        /// converted to their common type.
        Where "where(condition, x, y)" [Root] => math::where_;
        /// Returns the maximum. If one is NaN, returns the other; with `PropagateNan.ALL`, NaN.
        Maximum "maximum(x, y, propagate_nan: constexpr=tl.PropagateNan.NONE)" [Root] => math::extremum, true;
        /// Returns the minimum. If one is NaN, returns the other; with `PropagateNan.ALL`, NaN.
        Minimum "minimum(x, y, propagate_nan: constexpr=tl.PropagateNan.NONE)" [Root] => math::extremum, false;
        /// Limits x to at least `min` and at most `max`. Undefined where min > max.
        Clamp "clamp(x, min, max, propagate_nan: constexpr=tl.PropagateNan.NONE)" [Root] => math::clamp;
        /// Absolute value. The smallest signed integer stays itself.
        Abs "abs(x)" [Root Math Libdevice Method] => math::abs;
        /// e to the power of x, fast: for fp32 the error grows with |x|, as that of the product of x and log2(e).
        Exp "exp(x)" [Root Math Method] => math::float, F::Exp;
        /// e to the power of x; 2 ulp.
        AccurateExp "exp(x)" [Libdevice] => math::float, F::AccurateExp;
        /// 2 to the power of x.
        Exp2 "exp2(x)" [Root Math Libdevice Method] => math::float, F::Exp2;
        /// Natural logarithm.
        Log "log(x)" [Root Math Libdevice Method] => math::float, F::Log;
        /// Binary logarithm.
        Log2 "log2(x)" [Root Math Libdevice Method] => math::float, F::Log2;
        /// Sine of radians.
        Sin "sin(x)" [Root Math Libdevice Method] => math::float, F::Sin;
        /// Cosine of radians.
        Cos "cos(x)" [Root Math Libdevice Method] => math::float, F::Cos;
        /// Square root, fast.
        Sqrt "sqrt(x)" [Root Math Method] => math::float, F::Sqrt;
        /// Square root, rounded to nearest.
        ExactSqrt "sqrt(x)" [Libdevice] => math::float, F::SqrtRn;
        /// Square root, rounded to nearest.
        SqrtRn "sqrt_rn(x)" [Root Math Libdevice Method] => math::float, F::SqrtRn;
        /// 1 / sqrt(x).
        Rsqrt "rsqrt(x)" [Root Math Libdevice Method] => math::float, F::Rsqrt;
        /// The largest integer not above x.
        Floor "floor(x)" [Root Math Libdevice Method] => math::float, F::Floor;
        /// The smallest integer not below x.
        Ceil "ceil(x)" [Root Math Libdevice Method] => math::float, F::Ceil;
        /// Error function.
        Erf "erf(x)" [Root Math Libdevice Method] => math::float, F::Erf;
        /// Hyperbolic tangent.
        Tanh "tanh(x)" [Math Libdevice] => math::float, F::Tanh;
        /// x * y + z, rounded once.
        Fma "fma(x, y, z)" [Root Math Libdevice] => math::fma;
        /// x / y, with at least one float, in fp32 for narrower floats; fast, or with
        /// `ieee_rounding=True` rounded to nearest.
        Fdiv "fdiv(x, y, ieee_rounding=False, approx=False)" [Root Math] => math::fdiv;
        /// x / y, rounded to nearest.
        DivRn "div_rn(x, y)" [Root Math Libdevice] => math::div_rn;
        /// The upper half of the product of 32- or 64-bit integers, taken as unsigned.
        Umulhi "umulhi(x, y)" [Root Math] => math::unsigned_mul_high;
        /// The upper half of the product of 32- or 64-bit integers.
        Mulhi "mulhi(x, y)" [Libdevice] => math::mul_high;
        /// Runs PTX on each element, or on `pack` of them at once, narrow ones packed into 32-bit
        /// registers. `asm` names its operands `$0`, `$1`, …, outputs before inputs; `constraints`
        /// has the kind of each, in LLVM's notation: `"=r,r,r"`. The arguments broadcast; a tuple
        /// of types returns a tuple. Assembly that is not `is_pure` runs even if its results are
        /// unused.
        InlineAsm "inline_asm_elementwise(asm, constraints, args, dtype, is_pure, pack)" [Root]
            => inline_asm::inline_asm;
        /// Calls a function of libdevice for each element, by its symbol: `arg_type_symbol_dict`
        /// has a symbol and the type of its result for the types of the arguments,
        /// `{(tl.core.dtype("fp32"),): ("__nv_sqrtf", tl.core.dtype("fp32"))}`. The library's name
        /// and path are ignored: no other library is linked.
        ExternElementwise "extern_elementwise(lib_name, lib_path, args, arg_type_symbol_dict, is_pure)" [Root]
            => external::extern_elementwise;
        /// Returns whether both are true.
        LogicalAnd "logical_and(self, other)" [OnlyMethod] => math::logical, BooleanOperator::And;
        /// Returns whether at least one is true.
        LogicalOr "logical_or(self, other)" [OnlyMethod] => math::logical, BooleanOperator::Or;

        // Combining elements.

        /// Combines the elements along an axis (all of them for None) with an associative `@jit`
        /// function. For a tuple of tiles the function takes an element of each, then again an
        /// element of each, and returns one of each.
        Reduce "reduce(input, axis, combine_fn, keep_dims=False)" [Root Method] => reduce::reduce;
        /// Combines each element with all before it along an axis, earlier elements on the left,
        /// with an associative `@jit` function as for `reduce`. With `reverse`, the last element is
        /// the earliest.
        AssociativeScan "associative_scan(input, axis, combine_fn, reverse=False)" [Root Method]
            => scan::associative_scan;
        /// Counts the elements of a tile of integers that are 0, 1, … num_bins - 1, as an int32
        /// tile. Only elements for which the mask is true count.
        Histogram "histogram(input, num_bins, mask=None)" [Root Method] => scan::histogram;
        /// Exchanges the elements whose coordinates along an axis differ by a mask (xor).
        Butterfly "_butterfly(x, axis, mask)" [Root] => scan::butterfly;
        /// Does one merge of the bitonic network along an axis: of blocks of 2^stage elements to
        /// blocks of twice as many.
        Bitonic "_bitonic(x, axis, stage, descending)" [Root] => scan::bitonic;
        /// Returns acc + input @ other, of matrices or stacks of matrices. The operands have one
        /// type; the accumulator is fp32 (int32 for 8-bit integers, fp64 for fp64). `out_dtype` has
        /// an effect only for fp16 and fp8, whose accumulator may be fp16.
        Dot "dot(input, other, acc=None, input_precision=None, allow_tf32=None, max_num_imprecise_acc=None, \
             out_dtype=None)" [Root] => reduce::dot;

        /// Applies a `@jit` function of scalars to each element of tensors that broadcast, or to
        /// the elements at one position of several tensors. Its branches and loops may depend on
        /// the element; it may load, and has no other effects. With a `pack` of p, one call takes p
        /// elements of the first tensor, then p of the second, and returns p of each result. The
        /// elements of one call are unspecified.
        MapElementwise "map_elementwise(scalar_fn, *args, pack=1)" [Root] => map::map_elementwise;

        // Hints of the program.

        /// States that the values are multiples of these numbers, one for each axis.
        MultipleOf "multiple_of(input, values)" [Root] => program::hint, HintKind::MultipleOf;
        /// States that runs of these lengths, one for each axis, are contiguous.
        MaxContiguous "max_contiguous(input, values)" [Root] => program::hint, HintKind::MaxContiguous;
        /// States that runs of these lengths, one for each axis, are constant.
        MaxConstancy "max_constancy(input, values)" [Root] => program::hint, HintKind::MaxConstancy;
        /// States that the condition is true.
        Assume "assume(cond)" [Root] => program::assume;
        /// Waits until all threads of the program have reached this point.
        DebugBarrier "debug_barrier()" [Root] => program::barrier;
        /// Stops the launch if the condition is false and the mask is true, if compiled with
        /// `debug=True`.
        DeviceAssert "device_assert(cond, msg='', mask=None)" [Root] => program::device_assert;
        /// Prints from the running kernel, to standard output: a line for each element of each
        /// operand, with the program and the index in the tile; without operands only the text.
        /// `hex=True` prints the bits of numbers.
        DevicePrint "device_print(prefix, *args, hex=False)" [Root] => program::device_print;
        /// Stops the compilation if the condition does not hold.
        StaticAssert "static_assert(cond, msg='')" [Root] => program::static_assert;
        /// Prints at compile time.
        StaticPrint "static_print(*values, sep=' ', end='\\n', file=None, flush=False)" [Root]
            => program::static_print;

        // The machine that runs the program.

        /// Returns the nanoseconds of a clock that all programs share, as int64.
        GlobalTimer "globaltimer()" [Cuda] => machine::quantity, MachineQuantity::GlobalTimer;
        /// Returns the index of the multiprocessor that runs the program (on the CPU, of the
        /// thread), as int32.
        SmId "smid()" [Cuda] => machine::quantity, MachineQuantity::Multiprocessor;
        /// Returns the threads of a program, which are known at compile time: 32 for each warp of
        /// `num_warps()`.
        NumThreads "num_threads()" [Cuda] => machine::warps, 32;
        /// Returns the warps of a program that the launch requests (`num_warps=`), which are known
        /// at compile time. As in Triton, warps that a compiler adds do not count, such as those of
        /// other blocks of a cluster (`num_ctas=`) or for copies.
        NumWarps "num_warps()" [Cuda] => machine::warps, 1;
        /// Waits for the grids before this one, if it was launched with `launch_pdl=True`: their
        /// writes are visible only after it.
        GdcWait "gdc_wait()" [Cuda] => machine::dependency, GridDependency::Wait;
        /// Allows the grids after this one to begin, if they were launched with `launch_pdl=True`.
        GdcLaunchDependents "gdc_launch_dependents()" [Cuda] => machine::dependency, GridDependency::LaunchDependents;
        /// Returns the target of the kernel: a tuple of `backend` ("cuda", "cpu"), `arch` (90,
        /// "x86_64") and `warp_size`.
        CurrentTarget "current_target()" [TargetInfo] => machine::current_target;
        /// Returns whether the kernel is compiled for an NVIDIA GPU.
        IsCuda "is_cuda()" [TargetInfo] => machine::is_cuda;
        /// Returns whether the kernel is compiled for an NVIDIA GPU of at least this compute
        /// capability.
        CudaCapabilityGeq "cuda_capability_geq(major, minor=0)" [TargetInfo] => machine::capability_geq;
        /// Returns False: the kernel is not compiled for an AMD GPU.
        IsHip "is_hip()" [TargetInfo] => machine::never;
        /// Returns False: the kernel is not compiled for an AMD GPU of this family.
        IsHipCdna3 "is_hip_cdna3()" [TargetInfo] => machine::never;
        /// Returns False: the kernel is not compiled for an AMD GPU of this family.
        IsHipCdna4 "is_hip_cdna4()" [TargetInfo] => machine::never;
        /// Returns False: the kernel is not compiled for an AMD GPU of this kind.
        IsHipGfx1250 "is_hip_gfx1250()" [TargetInfo] => machine::never;

        // Gluon: layouts, shared memory and asynchronous copies that the program states.

        /// The int32 tile start, start + 1, …, end - 1 in a layout.
        GluonArange "arange(start, end, layout=None)" [Gluon] => gluon::arange;
        /// A tile in a layout with this value as every element.
        GluonFull "full(shape, value, dtype, layout=None)" [Gluon] => gluon::full;
        /// A tile in a layout with 0 as every element.
        GluonZeros "zeros(shape, dtype, layout=None)" [Gluon] => gluon::zeros;
        /// A tile with this value as every element; shape, element type and layout are those of
        /// the input where they are not given.
        GluonFullLike "full_like(input, value, shape=None, dtype=None, layout=None)" [Gluon] => gluon::full_like;
        /// A tile with 0 as every element, like `full_like`.
        GluonZerosLike "zeros_like(input, shape=None, dtype=None, layout=None)" [Gluon] => gluon::zeros_like;
        /// Returns the tile in another layout.
        GluonConvertLayout "convert_layout(value, layout, assert_trivial=False)" [Gluon] => gluon::convert_layout;
        /// Returns the tile, whose layout the compiler would choose, in a layout.
        GluonSetAutoLayout "set_auto_layout(value, layout)" [Gluon] => gluon::convert_layout;
        /// Reads memory as `tl.load` does.
        GluonLoad "load(pointer, mask=None, other=None, cache_modifier='', eviction_policy='', volatile=False)"
            [Gluon] => gluon::load;
        /// Writes memory as `tl.store` does.
        GluonStore "store(pointer, value, mask=None, cache_modifier='', eviction_policy='')" [Gluon] => gluon::store;
        /// Waits until all threads of the block have reached this point; with `cluster`, all
        /// threads of the blocks that run the program.
        GluonBarrier "barrier(cluster=False)" [Gluon] => gluon::barrier;
        /// Returns the warps of a program.
        GluonNumWarps "num_warps()" [Gluon] => machine::warps, 1;
        /// Runs functions at the same time in partitions of the warps, and returns the result of the
        /// first one. The list has a pair of a function and its arguments for each partition. The
        /// first function, the default partition, runs in the warps of the kernel, each further
        /// one, a worker, in warps of its own: `worker_num_warps` has their numbers, and
        /// `worker_num_regs` the registers of each of their threads. The older parameters
        /// `default_args`, `default_partition`, `worker_args` and `worker_partitions`, in this order
        /// before `worker_num_warps`, give all workers the same arguments.
        GluonWarpSpecialize "warp_specialize(functions_and_args=None, worker_num_warps=None, worker_num_regs=None, \
            *older, default_args=None, default_partition=None, worker_args=None, worker_partitions=None)"
            [Gluon] => workers::warp_specialize;
        /// Returns acc + a @ b by multiplications and additions of single elements. The accumulator has
        /// a `BlockedLayout`, and the operands have the `DotOperandLayout`s of this layout.
        GluonDotFma "dot_fma(a, b, acc)" [Gluon] => dots::dot_fma;
        /// Returns the additional wavefronts, for each wavefront, of an access to shared memory with
        /// tiles of this type.
        GluonBankConflicts "bank_conflicts(distr_ty, shared_ty)" [Gluon] => gluon::bank_conflicts;
        /// The type of tiles with a layout.
        GluonDistributedType "distributed_type(element_ty, shape, layout)" [Gluon] => gluon::distributed_type;
        /// The type of shared memory.
        GluonSharedType "shared_memory_descriptor_type(element_ty, shape, layout, alloc_shape=None)" [Gluon]
            => gluon::shared_type;
        /// Returns the blocks that run a program together.
        GluonNumCtas "num_ctas()" [Gluon] => gluon::num_ctas;
        /// Allocates shared memory for a tile of this shape, or for several tiles if the shape has
        /// one more axis than the layout. With a value, stores it.
        GluonAllocate "allocate_shared_memory(element_ty, shape, layout, value=None)" [Gluon] => gluon::allocate;
        /// Loads the tile in a layout of registers.
        SharedLoad "load(self, layout)" [SharedMethod] => shared_access::load_shared;
        /// Stores a tile of the same shape.
        SharedStore "store(self, value)" [SharedMethod] => shared_access::store_shared;
        /// Returns one of the tiles.
        SharedIndex "index(self, index)" [SharedMethod] => shared_access::index;
        /// Keeps the memory allocated up to this point.
        SharedKeepAlive "_keep_alive(self)" [SharedMethod] => gluon::keep_alive;
        /// Starts copies from global memory to shared memory by `cp.async`, where the mask is true.
        AsyncLoad "async_load(smem, pointer, mask=None, cache_modifier='', eviction_policy='', volatile=False)"
            [GluonAsyncCopy] => shared_access::copy_async;
        /// The older name of `async_load`.
        AsyncCopyGlobalToShared "async_copy_global_to_shared(smem, pointer, mask=None, cache_modifier='', \
            eviction_policy='', volatile=False)" [GluonAsyncCopy] => shared_access::copy_async;
        /// Makes a group of the copies that the thread has started since its last group.
        CommitGroup "commit_group()" [GluonAsyncCopy] => gluon::commit_group;
        /// Waits until at most this number of the latest groups are in flight.
        WaitGroup "wait_group(num_outstanding=0)" [GluonAsyncCopy] => gluon::wait_group;

        /// Arrives at an `mbarrier`, once for each thread, when the copies of the thread are done. With
        /// `increment_count`, the number of arrivals of a phase does not include these.
        MbarrierArriveCopies "mbarrier_arrive(mbarrier, increment_count=True)" [GluonAsyncCopy]
            => barriers::arrive_copies;
        /// Allocates an `mbarrier`, or `batch` of them.
        AllocateMbarrier "allocate_mbarrier(batch=None, two_ctas=False)" [GluonMbarrier] => barriers::allocate;
        /// Initializes an `mbarrier` for phases of `count` arrivals.
        MbarrierInit "init(mbarrier, count)" [GluonMbarrier] => barriers::init;
        /// Ends the use of an `mbarrier`.
        MbarrierInvalidate "invalidate(mbarrier)" [GluonMbarrier] => barriers::invalidate;
        /// Arrives at an `mbarrier`, and adds bytes to those for which the phase waits.
        MbarrierExpect "expect(mbarrier, bytes_per_cta=None, pred=True, from_cta=None)" [GluonMbarrier]
            => barriers::expect;
        /// Waits for the end of the phase with this parity; `deps` keeps shared memory allocated
        /// until then.
        MbarrierWait "wait(mbarrier, phase, pred=True, deps=())" [GluonMbarrier] => barriers::wait;
        /// Arrives `count` times at an `mbarrier`.
        MbarrierArrive "arrive(mbarrier, count=1, pred=True, from_cta=None)" [GluonMbarrier] => barriers::arrive;

        /// Starts a copy of the block of a tensor at these coordinates to shared memory; its bytes
        /// arrive at an `mbarrier`.
        TmaLoad "async_load(tensor_desc, coord, barrier, result, pred=True, multicast=False, cache_policy=None)"
            [GluonTma] => tensor_copies::async_load;
        /// Starts a copy of pixels of a tensor to shared memory (im2col): from the pixel at these
        /// coordinates on, in the bounding box of the descriptor, each moved by the offsets. Its
        /// bytes arrive at an `mbarrier`.
        TmaLoadIm2col "async_load_im2col(tensor_desc, coord, offsets, barrier, result, pred=True, multicast=False, \
            cache_policy=None)" [GluonTma] => tensor_copies::async_load_im2col;
        /// The older name of `async_load_im2col`.
        TmaCopyGlobalToSharedIm2col "async_copy_global_to_shared_im2col(tensor_desc, coord, offsets, barrier, \
            result, pred=True, multicast=False, cache_policy=None)" [GluonTma]
            => tensor_copies::async_load_im2col;
        /// The older name of `async_load`.
        TmaCopyGlobalToShared "async_copy_global_to_shared(tensor_desc, coord, barrier, result, pred=True, \
            multicast=False, cache_policy=None)" [GluonTma] => tensor_copies::async_load;
        /// Makes a descriptor of a tensor. The last stride is 1, and the others are multiples of 16
        /// bytes. Blocks of shared memory for it have the layout.
        TmaMakeTensorDescriptor "make_tensor_descriptor(base, shape, strides, block_shape, layout, \
            padding_option='zero')" [GluonTma] => tensor_copies::make_tensor_descriptor;
        /// Starts a copy of shared memory to the block of a tensor at these coordinates.
        TmaStore "async_store(tensor_desc, coord, src, cache_policy=None)" [GluonTma]
            => tensor_copies::async_store;
        /// The older name of `async_store`.
        TmaCopySharedToGlobal "async_copy_shared_to_global(tensor_desc, coord, src, cache_policy=None)" [GluonTma]
            => tensor_copies::async_store;
        /// Waits until at most this number of copies to tensors still read shared memory.
        TmaStoreWait "store_wait(pendings, read_only=True)" [GluonTma] => tensor_copies::store_wait;
        /// Orders earlier accesses of threads to shared memory before later ones of tensor copies
        /// and `wgmma`.
        FenceAsyncShared "fence_async_shared(cluster=False)" [GluonHopper] => tensor_copies::fence;
        /// Waits until all threads of the cluster have reached this point: accesses before it, also
        /// to the shared memory of other blocks, happen before those after it.
        ClusterBarrier "barrier(relaxed=False)" [GluonCluster] => clusters::barrier;
        /// Arrives at the barrier of the cluster, without waiting.
        ClusterArrive "arrive(relaxed=False)" [GluonCluster] => clusters::arrive;
        /// Waits until all threads of the cluster have arrived at its barrier.
        ClusterWait "wait()" [GluonCluster] => clusters::wait;
        /// Returns acc + a @ b by `mma.sync`.
        MmaV2 "mma_v2(a, b, acc, input_precision=None)" [GluonHopper] => dots::mma;
        /// Returns a tile as the accumulator of `warpgroup_mma`.
        WarpgroupMmaInit "warpgroup_mma_init(value)" [GluonHopper] => dots::wgmma_init;
        /// Returns acc + a @ b by `wgmma`; with `is_async`, only starts it.
        WarpgroupMma "warpgroup_mma(a, b, acc, use_acc=True, precision=None, max_num_imprecise_acc=None, \
            is_async=False)" [GluonHopper] => dots::wgmma;
        /// Waits until at most this number of `warpgroup_mma` are in flight, and returns their
        /// accumulators.
        WarpgroupMmaWait "warpgroup_mma_wait(num_outstanding=0, deps=None)" [GluonHopper] => dots::wgmma_wait;
        /// Returns the memory with its axes in another order.
        SharedPermute "permute(self, order)" [SharedMethod] => views::permute;
        /// Returns the elements from `start` to `start + length` along an axis. They are contiguous in
        /// shared memory.
        SharedSlice "slice(self, start, length, dim=0)" [SharedMethod] => views::slice;
        /// Returns the memory with another shape and the same order of elements.
        SharedReshape "reshape(self, shape)" [SharedMethod] => views::reshape;
        /// Returns the bytes of the memory as elements of another type, shape or layout.
        SharedReinterpret "reinterpret(self, dtype=None, shape=None, layout=None)" [SharedMethod]
            => views::reinterpret;
        /// The older name of `reinterpret`.
        SharedOlderReinterpret "_reinterpret(self, dtype=None, shape=None, layout=None)" [SharedMethod]
            => views::reinterpret;

        /// Allocates tensor memory for a tile of this shape, or for several tiles if the shape has
        /// three axes.
        AllocateTensorMemory "allocate_tensor_memory(element_ty, shape, layout, value=None)" [GluonBlackwell]
            => tensor_memory::allocate;
        /// The type of tensor memory.
        TensorMemoryType "tensor_memory_descriptor_type(element_ty, shape, layout, alloc_shape=None)"
            [GluonBlackwell] => tensor_memory::memory_type;
        /// Starts acc + a @ b, or a @ b if `use_acc` is false, by one thread. The accumulator is in
        /// tensor memory, A in shared or tensor memory, B in shared memory. When the dot is complete,
        /// it arrives at each of `mbarriers`; without them, the threads wait for it.
        Tcgen05Mma "tcgen05_mma(a, b, acc, *, use_acc=True, pred=True, multicast=False, mbarriers=None, \
            mbarrier_preds=None)" [GluonBlackwell] => tensor_memory::mma;
        /// Starts acc + a @ b as `tcgen05_mma` does, of elements that scales multiply: one for each 32
        /// or 16 elements along K.
        Tcgen05MmaScaled "tcgen05_mma_scaled(a, b, acc, a_scale, b_scale, a_type, b_type, *, use_acc=True, pred=True, \
            multicast=False, mbarriers=None, mbarrier_preds=None)" [GluonBlackwell] => tensor_memory::mma_scaled;
        /// Starts a copy of a tile from shared memory to tensor memory, by one thread. Later dots see its
        /// result; a commit arrives when it is complete.
        Tcgen05Copy "tcgen05_copy(src, dst)" [GluonBlackwell] => tensor_memory::copy;
        /// Arrives at an `mbarrier` when the dots and the copies that have started are complete.
        Tcgen05Commit "tcgen05_commit(barrier, pred=True, descs=())" [GluonBlackwell] => tensor_memory::commit;
        /// Returns the number of arrivals of a commit at an `mbarrier`.
        Tcgen05MmaBarrierCount "tcgen05_mma_barrier_count(smems, multicast, two_ctas)" [GluonBlackwell]
            => tensor_memory::barrier_count;
        /// Loads the tile from tensor memory, in this layout, or in that of `get_reg_layout`.
        TensorMemoryLoad "load(self, layout=None)" [TensorMemoryMethod] => tensor_memory::load;
        /// Stores a tile to tensor memory.
        TensorMemoryStore "store(self, value, pred=True)" [TensorMemoryMethod] => tensor_memory::store;
        /// Returns one of the tiles of tensor memory for several tiles.
        TensorMemoryIndex "index(self, index)" [TensorMemoryMethod] => tensor_memory::index;
        /// Returns the columns from `start` to `start + length`.
        TensorMemorySlice "slice(self, start, length)" [TensorMemoryMethod] => tensor_memory::slice;
        /// Returns the layout of registers with which an instruction moves the tile.
        TensorMemoryRegLayout "get_reg_layout(self, num_warps=None, instr_variant='32x32b')"
            [TensorMemoryMethod] => tensor_memory::get_reg_layout;
        /// Returns the columns of the memory as elements of another type, shape or layout.
        TensorMemoryReinterpret "_reinterpret(self, dtype, shape, layout)" [TensorMemoryMethod]
            => tensor_memory::reinterpret;
        /// Starts a request for a program of the grid that has not begun, by one thread. If there is
        /// one, it does not begin: the requesting program has to do its work. The response is written
        /// to shared memory, and its 16 bytes arrive at an `mbarrier`.
        ClcTryCancel "try_cancel(result, barrier, multicast=False)" [GluonClc] => cluster_launches::try_cancel;
        /// Loads the response of a request, after a wait for its `mbarrier`.
        ClcLoadResult "load_result(src)" [GluonClc] => cluster_launches::load_result;
        /// Returns whether the request got a program.
        ClcIsCanceled "is_canceled(self)" [LaunchMethod] => cluster_launches::is_canceled;
        /// Returns the index of that program along an axis, as `gl.program_id` would there.
        ClcProgramId "program_id(self, dim)" [LaunchMethod] => cluster_launches::program_id;

        // Loops and compile-time values.

        /// The range of a `for` loop, with options for its compilation.
        Range "range(arg1, arg2=None, step=None, num_stages=None, loop_unroll_factor=None, \
               disallow_acc_multi_buffer=False, flatten=False, warp_specialize=False, disable_licm=False)"
            [Root] => program::range, false;
        /// The range of a `for` loop that is unrolled at compile time.
        StaticRange "static_range(arg1, arg2=None, step=None)" [Root] => program::range, true;
        /// Marks the condition of a `while`.
        Condition "condition(arg1, disable_licm=False)" [Root] => program::identity;
        /// A value known at compile time.
        Constexpr "constexpr(value)" [Root] => program::constexpr;
        /// Returns its argument.
        UnwrapIfConstexpr "_unwrap_if_constexpr(o)" [Root] => program::identity;
        /// Returns a copy of an instance of a `triton.aggregate` with other values of these fields.
        AggregateReplace "aggregate_replace(obj, **fields)" [Root] => program::identity;
        /// A tuple; `type` may name its fields.
        Tuple "tuple(args, type=None)" [Root] => program::tuple;
        /// The value of the index `start:stop:step`.
        Slice "slice(start, stop, step)" [Root] => program::slice;
        /// The type of tuples of values of these types, with the names of their fields.
        TupleType "tuple_type(types, fields=None)" [Root] => program::tuple_type;
        /// The type of one compile-time value.
        ConstexprType "constexpr_type(value)" [Root] => program::constexpr_type;
        /// The type of tensor descriptors with such blocks, extents and strides.
        TensorDescriptorType "tensor_descriptor_type(block_type, shape_type=None, strides_type=None)" [Root]
            => program::tensor_descriptor_type;
        /// The type of pointers to a type.
        PointerType "pointer_type(element_ty, address_space='global', const=False)" [Root] => program::pointer_type;
        /// The type of tiles.
        BlockType "block_type(element_ty, shape)" [Root] => program::block_type;
        /// Returns the integer type of a width.
        GetIntDtype "get_int_dtype(bitwidth, signed)" [Root] => program::int_dtype;
        /// Returns the smallest power of two that is not below a compile-time integer.
        NextPowerOf2 "next_power_of_2(n)" [Root] => program::next_power_of_two;
        /// Returns the binary logarithm of a compile-time integer, rounded down.
        LogTwo "_log2(i)" [Root] => program::log_two;
        /// Returns the type with this name, which is the `str` of the type; with a `*` in front,
        /// the type of pointers to it.
        StrToTy "str_to_ty(name, c=None)" [Root] => program::named_type;
        /// Returns whether a type has this name.
        IsDtype "is_dtype(type_str)" [TypeMethod] => program::is_dtype;
        /// Returns the type with another element type.
        WithElementTy "with_element_ty(self, element_ty)" [TypeMethod] => program::with_element;
    } };
}

pub(super) use builtins;

macro_rules! table {
    ($($(#[doc = $doc:literal])* $id:ident $signature:literal [$($place:ident)*]
       => $function:path $(, $extra:expr)*;)*) => {
        /// The rule that implements a builtin, by the name of its row.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Builtin {
            $($id,)*
            TypeMethod,
        }

        /// A row of the table.
        pub(super) struct Row {
            pub(super) implementation: Builtin,
            pub(super) signature: &'static str,
            pub(super) docs: &'static [&'static str],
            pub(super) namespaces: &'static [Namespace],
        }

        pub(super) static ROWS: &[Row] = &[$(Row {
            implementation: Builtin::$id,
            signature: $signature,
            docs: &[$($doc,)*],
            namespaces: &[$(Namespace::$place,)*],
        },)*];
    };
}

builtins!(table);

/// Returns a builtin that emits an op, or `None` if syntax or another table emits the op. The match
/// is exhaustive, so a new op does not compile without an entry.
const fn builtin_of(op: &IrOp) -> Option<Builtin> {
    match op {
        IrOp::ProgramId { .. } => Some(Builtin::ProgramId),
        IrOp::NumPrograms { .. } => Some(Builtin::NumPrograms),
        IrOp::Arange { .. } => Some(Builtin::Arange),
        IrOp::Splat { .. } => Some(Builtin::Full),
        IrOp::ExpandDims { .. } => Some(Builtin::ExpandDims),
        IrOp::Broadcast { .. } => Some(Builtin::BroadcastTo),
        IrOp::Reshape { .. } => Some(Builtin::Reshape),
        IrOp::Transpose { .. } => Some(Builtin::Trans),
        IrOp::Cast { .. } | IrOp::Bitcast { .. } => Some(Builtin::Cast),
        IrOp::Load { .. } => Some(Builtin::Load),
        IrOp::Store { .. } => Some(Builtin::Store),
        IrOp::Dot { .. } => Some(Builtin::Dot),
        IrOp::Reduce { .. } => Some(Builtin::Reduce),
        IrOp::Hint { .. } => Some(Builtin::MultipleOf),
        IrOp::Assume {} => Some(Builtin::Assume),
        IrOp::Barrier {} => Some(Builtin::DebugBarrier),
        IrOp::Assert { .. } => Some(Builtin::DeviceAssert),
        IrOp::AtomicRmw { .. } => Some(Builtin::AtomicAdd),
        IrOp::AtomicCas { .. } => Some(Builtin::AtomicCas),
        IrOp::AtomicLoad { .. } => Some(Builtin::AtomicLoad),
        IrOp::AtomicStore { .. } => Some(Builtin::AtomicStore),
        IrOp::AtomicPoll { .. } => Some(Builtin::AtomicPoll),
        IrOp::InlineAsm { .. } | IrOp::VolatileAsm { .. } => Some(Builtin::InlineAsm),
        IrOp::Map { .. } => Some(Builtin::MapElementwise),
        IrOp::Scan { .. } => Some(Builtin::AssociativeScan),
        IrOp::Histogram { .. } => Some(Builtin::Histogram),
        IrOp::Butterfly { .. } => Some(Builtin::Butterfly),
        IrOp::Bitonic { .. } => Some(Builtin::Bitonic),
        IrOp::Slice { .. } => Some(Builtin::Split),
        IrOp::Gather { .. } => Some(Builtin::Gather),
        IrOp::Print { .. } => Some(Builtin::DevicePrint),
        IrOp::Machine { .. } => Some(Builtin::GlobalTimer),
        IrOp::Dependency { .. } => Some(Builtin::GdcWait),
        IrOp::SetLayout { .. } => Some(Builtin::GluonConvertLayout),
        IrOp::Device { .. } => Some(Builtin::GluonAllocate),
        IrOp::StartWorkers { .. } => Some(Builtin::GluonWarpSpecialize),
        IrOp::Elementwise { .. }
        | IrOp::DotScaled { .. }
        | IrOp::Constant { .. }
        | IrOp::PtrAdd {}
        | IrOp::Call { .. }
        | IrOp::For { .. }
        | IrOp::While {}
        | IrOp::If {}
        | IrOp::Yield {}
        | IrOp::Return {} => None,
    }
}

const _: fn(&IrOp) -> Option<Builtin> = builtin_of;
