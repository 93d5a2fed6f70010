//! Defines the types of parameters and results for Python's type checkers and editors. The stubs
//! are generated from these rows and from the signatures of `table` and `library`.
//!
//! The types are in the notation of the stubs. `_Value` is any operand, and `_Integer` an integer
//! at run time. `_Int`, `_Flag`, `_Text` and `_Dtype` are compile-time values; `_Ints` and
//! `_Offsets` are sequences. `_tuple` is Python's class, and the aliases of [`modes`] are `Literal`
//! types. A parameter whose default is `None` also accepts `None`.

use super::{atomics, descriptor, math, memory, reduce};

/// The type and the meaning of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParameterType {
    /// The name of the parameter. The row applies to every function with a parameter of this name.
    /// A row such as `dot.other` applies to the parameter of one function, and has precedence.
    pub name: &'static str,
    /// The type of the parameter, in the notation of the stubs.
    pub ty: &'static str,
    /// The meaning of the parameter.
    pub doc: &'static str,
}

/// An overload of a function: the types of a parameter and of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overload {
    /// The parameter that the result depends on, and its type. Several parameters are written
    /// `x, div`. `None` if the result does not depend on a parameter.
    pub parameter: Option<(&'static str, &'static str)>,
    /// The type of the result.
    pub result: &'static str,
}

/// A `Literal` type: an alias for the values that a parameter may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mode {
    /// The name of the alias in the stubs.
    pub alias: &'static str,
    /// The values.
    pub values: Vec<&'static str>,
}

/// Returns the modes: the aliases of the stubs, with the values that the rules accept.
pub fn modes() -> Vec<Mode> {
    fn mode<T>(alias: &'static str, choices: &[(&'static str, T)]) -> Mode {
        Mode { alias, values: choices.iter().map(|(name, _)| *name).collect() }
    }
    vec![
        mode("_LoadCache", memory::LOAD_CACHE),
        mode("_StoreCache", memory::STORE_CACHE),
        mode("_Eviction", memory::EVICTION),
        mode("_Padding", descriptor::PADDING),
        mode("_Semantics", atomics::SEMANTICS),
        mode("_LoadSemantics", atomics::LOAD_SEMANTICS),
        mode("_StoreSemantics", atomics::STORE_SEMANTICS),
        mode("_Scope", atomics::SCOPES),
        mode("_Precision", reduce::PRECISION),
        mode("_Rounding", math::ROUNDING),
        mode("_Format", FORMATS),
    ]
}

/// The formats of `dot_scaled`, which `stdlib/scaled.py` checks.
const FORMATS: &[(&str, ())] = &[("e2m1", ()), ("e4m3", ()), ("e5m2", ()), ("bf16", ()), ("fp16", ())];

macro_rules! parameters {
    ($($name:literal $ty:literal $doc:literal;)*) => {
        /// The types of the parameters, by their names.
        pub const PARAMETERS: &[ParameterType] =
            &[$(ParameterType { name: $name, ty: $ty, doc: $doc },)*];
    };
}

parameters! {
    // Operands.
    "x" "_Value" "A tile or a scalar.";
    "y" "_Value" "The second operand, which broadcasts with the first.";
    "z" "_Value" "The third operand, which broadcasts with the others.";
    "arg0" "_Value" "A tile or a scalar.";
    "arg1" "_Value" "The second operand, which broadcasts with the first.";
    "arg2" "_Value" "The third operand, which broadcasts with the others.";
    "arg3" "_Value" "The fourth operand, which broadcasts with the others.";
    "a" "_Value" "The first operand.";
    "b" "_Value" "The second operand, which broadcasts with the first.";
    "split.a" "tensor" "A tile whose last axis has extent 2.";
    "arg" "tensor" "The tile to convert.";
    "input" "tensor" "A tile.";
    "cast.input" "_Value" "The tile or scalar to convert.";
    "broadcast.input" "_Value" "The first operand.";
    "broadcast_to.input" "_Value" "A tile, or a scalar that is repeated.";
    "reduce.input" "tensor | Sequence[tensor]" "A tile, or a tuple of tiles of one shape.";
    "associative_scan.input" "tensor | Sequence[tensor]" "A tile, or a tuple of tiles of one shape.";
    "dot.input" "tensor" "The left operand: a matrix [M, K], or a stack of matrices.";
    "other" "_Value" "The second operand, which broadcasts with the first.";
    "load.other" "_Value" "The value of the result where the mask is false.";
    "dot.other" "tensor" "The right operand: a matrix [K, N], or a stack of matrices.";
    "cat.other" "tensor" "The tile that comes after the first.";
    "src" "tensor" "The tile whose elements are taken.";
    "index" "tensor" "For each element of the result, its index along the axis, an integer.";
    "condition" "_Value" "True where the result is `x`.";
    "min" "_Value" "The lower bound.";
    "max" "_Value" "The upper bound.";
    "div" "_Value" "The divisor.";
    "propagate_nan" "PropagateNan | constexpr" "`PropagateNan.ALL` if the result is NaN where an operand is.";
    "sanitize_overflow" "_Flag" "True if `debug=True` checks the result of integers.";
    "ieee_rounding" "_Flag" "True if the quotient is rounded to nearest.";
    "approx" "_Flag" "True if the fast division is wanted; it is the default.";
    "value" "_Value" "The value.";
    "store.value" "_Value" "The value to write; it broadcasts to the pointers' shape.";

    // Memory.
    "pointer" "tensor" "A pointer, or a tile of pointers.";
    "load.pointer" "tensor" "A pointer, a tile of pointers, or a block pointer.";
    "store.pointer" "tensor" "A pointer, a tile of pointers, or a block pointer.";
    "atomic_poll.pointer" "tensor" "A pointer to an integer.";
    "base" "tensor" "A pointer to the first element of a tensor in memory.";
    "advance.base" "tensor" "A block pointer.";
    "desc" "tensor_descriptor" "A tensor descriptor.";
    "mask" "tensor | constexpr | bool" "True for each element that is accessed; it broadcasts to the pointers' shape.";
    "histogram.mask" "tensor | constexpr | bool" "True for each element that is counted.";
    "expect_zero.mask" "tensor | constexpr | bool" "True where zeros are expected.";
    "device_assert.mask" "tensor | constexpr | bool" "True where the condition is checked.";
    "_butterfly.mask" "_Int" "The exclusive or of the coordinates of partners.";
    "boundary_check" "_Ints" "The axes along which a block may exceed its tensor.";
    "padding_option" "_Padding | constexpr" "The value outside of the tensor.";
    "cache_modifier" "_StoreCache | constexpr" "How caches treat the access, as the modifier of `st` in PTX.";
    "load.cache_modifier" "_LoadCache | constexpr" "How caches treat the access, as the modifier of `ld` in PTX.";
    "eviction_policy" "_Eviction | constexpr" "The priority of the accessed lines in the L2 cache.";
    "volatile" "_Flag" "True if the load is volatile.";
    "val" "_Value" "The operand of the atomic operation; it broadcasts to the pointers' shape.";
    "cmp" "_Value" "The value that memory is compared with.";
    "expected_value" "_Integer" "The integer to wait for.";
    "sem" "_Semantics | constexpr" "The memory order, \"acq_rel\" by default.";
    "atomic_load.sem" "_LoadSemantics | constexpr" "The memory order, \"acquire\" by default.";
    "atomic_store.sem" "_StoreSemantics | constexpr" "The memory order, \"release\" by default.";
    "atomic_poll.sem" "_LoadSemantics | constexpr" "The memory order, \"acquire\" by default.";
    "scope" "_Scope | constexpr" "The threads that the order holds for, \"gpu\" by default.";
    "timeout_ns" "_Int" "The longest time to wait, in nanoseconds.";
    "strides" "_Offsets" "The tensor's strides, in elements.";
    "offsets" "_Offsets" "One offset for each axis, in elements.";
    "rand4x.offsets" "_Integer" "A tile of counters: equal ones give equal numbers.";
    "block_shape" "_Ints" "The shape of the blocks.";
    "order" "_Ints" "The axes, the fastest one first; a hint.";
    "x_offsets" "tensor" "The rows, a tile of int32.";
    "y_offset" "_Integer" "The first column.";

    // Shapes.
    "shape" "_Ints" "The shape of the result.";
    "broadcast_to.shape" "_Int | _Ints" "The shape of the result: one tuple, or one argument for each axis.";
    "reshape.shape" "_Int | _Ints" "The shape of the result: one tuple, or one argument for each axis.";
    "view.shape" "_Int | _Ints" "The shape of the result: one tuple, or one argument for each axis.";
    "make_block_ptr.shape" "_Offsets" "The tensor's shape.";
    "make_tensor_descriptor.shape" "_Offsets" "The tensor's shape.";
    "_experimental_make_tensor_descriptor.shape" "_Offsets" "The tensor's shape.";
    "_experimental_descriptor_load.shape" "_Ints" "The shape of the descriptor's blocks.";
    "start" "_Int" "The first integer.";
    "end" "_Int" "The integer after the last one.";
    "axis" "_Int" "An axis.";
    "program_id.axis" "Literal[0, 1, 2] | constexpr | int" "An axis of the grid: 0, 1 or 2.";
    "num_programs.axis" "Literal[0, 1, 2] | constexpr | int" "An axis of the grid: 0, 1 or 2.";
    "expand_dims.axis" "_Int | _Ints" "The axes of the result that are new.";
    "dim" "_Int" "An axis.";
    "dims" "_Int | _Ints" "The axes in their new order: one tuple, or one argument for each axis.";
    "can_reorder" "_Flag" "Has no effect: the elements keep their order.";
    "keep_dims" "_Flag" "True if the axis stays, with extent 1.";

    // Types and conversions.
    "dtype" "_Dtype" "The type of the elements of the result.";
    "inline_asm_elementwise.dtype" "_Dtype | Sequence[_Dtype]" "The type of the result, or a tuple of types.";
    "dst_ty" "_Dtype" "The type of the result.";
    "out_dtype" "_Dtype" "The type of the result.";
    "fp_downcast_rounding" "_Rounding | constexpr" "How a float becomes a narrower one, \"rtne\" by default.";
    "bitcast" "_Flag" "True if the bits stay instead of the value.";
    "bitwidth" "_Int" "The number of bits.";
    "signed" "_Flag" "True if the type has a sign.";

    // Combining elements.
    "combine_fn" "Callable[..., object]" "An associative `@jit` function of two elements.";
    "reverse" "_Flag" "True if the order begins at the last element.";
    "return_indices" "_Flag" "True if the index of the element is a result as well.";
    "return_indices_tie_break_left" "_Flag" "True if the first of equal elements is found, else the last.";
    "tie_break_left" "_Flag" "True if the first of equal elements is found, else the last.";
    "descending" "_Flag | int" "True if the largest element comes first.";
    "k" "_Int" "The number of elements.";
    "num_bins" "_Int" "The number of bins.";
    "stage" "_Int" "The stage of the network.";
    "acc" "tensor" "The accumulator, which the result starts from.";
    "input_precision" "_Precision | constexpr" "How fp32 operands are multiplied, \"tf32\" by default.";
    "allow_tf32" "_Flag" "The older form of `input_precision`: \"tf32\" if true, else \"ieee\".";
    "max_num_imprecise_acc" "_Int" "How many fp8 products are added before the accumulator is rounded to fp32.";
    "lhs" "tensor" "The left operand, in its format.";
    "rhs" "tensor" "The right operand, in its format.";
    "lhs_scale" "tensor | None" "The scales of the left operand.";
    "rhs_scale" "tensor | None" "The scales of the right operand.";
    "lhs_format" "_Format | constexpr" "The format of the left operand.";
    "rhs_format" "_Format | constexpr" "The format of the right operand.";
    "fast_math" "_Flag" "True if a scale of 255 need not be NaN.";
    "lhs_k_pack" "_Flag" "True if e2m1 numbers are packed along K, else along M.";
    "rhs_k_pack" "_Flag" "True if e2m1 numbers are packed along K, else along N.";
    "scalar_fn" "Callable[..., object]" "A `@jit` function of scalars.";
    "args" "_Value" "The operands, which broadcast.";
    "device_print.args" "_Value" "The operands to print.";
    "inline_asm_elementwise.args" "Sequence[_Value]" "The operands, which broadcast.";
    "extern_elementwise.args" "Sequence[_Value]" "The operands, which broadcast.";
    "pack" "_Int" "The number of elements that one call takes.";
    "asm" "_Text" "The PTX.";
    "constraints" "_Text" "The kinds of the operands, as LLVM writes them.";
    "is_pure" "_Flag" "True if the code has no effect but its result.";
    "lib_name" "_Text" "The name of the library.";
    "lib_path" "_Text" "The path of the library.";
    "arg_type_symbol_dict" "Mapping[_tuple[_Dtype, ...], _tuple[str, _Dtype]]"
        "The symbol and the type of its result, by the types of the arguments.";

    // Random numbers.
    "seed" "_Integer" "The seed.";
    "offset" "_Integer" "A tile of counters: equal ones give equal numbers.";
    "n_rounds" "_Int" "The rounds of Philox.";
    "c0" "_Integer" "The first counter.";
    "c1" "_Integer" "The second counter.";
    "c2" "_Integer" "The third counter.";
    "c3" "_Integer" "The fourth counter.";
    "k0" "_Integer" "The first key.";
    "k1" "_Integer" "The second key.";
    "philox_impl.c0" "tensor" "The first counter, uint32 or uint64.";
    "u1" "_Value" "Numbers in [0, 1).";
    "u2" "_Value" "Numbers in [0, 1).";
    "i" "_Integer" "The row.";
    "j" "_Integer" "The column.";
    "size_i" "_Integer" "The number of rows.";
    "size_j" "_Integer" "The number of columns.";
    "size_g" "_Integer" "The number of rows of a group.";
    "_log2.i" "_Int" "A positive integer.";
    "n" "_Int" "An integer.";

    // Statements of the program about itself.
    "values" "_Int | _Ints" "One number for each axis.";
    "static_print.values" "object" "The values to print.";
    "cond" "_Value" "The condition.";
    "static_assert.cond" "object" "The condition.";
    "msg" "_Text" "The message.";
    "prefix" "_Text" "The text before the values.";
    "hex" "_Flag" "True if the bits are printed in hexadecimal.";
    "sep" "_Text" "The text between the values.";
    "static_print.end" "_Text" "The text after the last value.";
    "file" "object" "Has no effect.";
    "flush" "_Flag" "Has no effect.";
    "obj" "_T" "The instance.";
    "fields" "object" "The new values, by the names of the fields.";

    // Gluon.
    "layout" "DistributedLayout | constexpr" "The layout of the result.";
    "element_ty" "_Dtype" "The type of the elements.";
    "allocate_shared_memory.shape" "_Ints" "The shape of a tile, or the number of tiles and it.";
    "allocate_shared_memory.layout" "SharedLayout | constexpr" "The layout of a tile.";
    "allocate_shared_memory.value" "tensor" "The tile to store.";
    "allocate_tensor_memory.shape" "_Ints" "The shape of a tile, or the number of tiles and it.";
    "allocate_tensor_memory.layout" "TensorMemoryLayout | TensorMemoryScalesLayout | constexpr" "The layout of a tile.";
    "allocate_tensor_memory.value" "tensor" "The tile to store.";
    "tensor_memory_descriptor_type.shape" "_Ints" "The shape of the memory.";
    "tensor_memory_descriptor_type.layout" "TensorMemoryLayout | TensorMemoryScalesLayout | constexpr" "The layout of a tile.";
    "_reinterpret.layout" "SharedLayout | TensorMemoryLayout | constexpr" "The layout of the view.";
    "_reinterpret.shape" "_Ints" "The shape of the view.";
    "tcgen05_mma.a" "shared_memory_descriptor | tensor_memory_descriptor" "The left operand [M, K].";
    "tcgen05_mma.b" "shared_memory_descriptor" "The right operand [K, N].";
    "tcgen05_mma.acc" "tensor_memory_descriptor" "The accumulator [M, N].";
    "tcgen05_mma.use_acc" "_Value" "False if the result starts from zeros.";
    "mbarriers" "Sequence[shared_memory_descriptor]" "The mbarriers at which the dot arrives when it is complete.";
    "mbarrier_preds" "Sequence[_Value]" "For each mbarrier, false if nothing arrives there.";
    "tcgen05_mma_scaled.a" "shared_memory_descriptor | tensor_memory_descriptor" "The left operand [M, K].";
    "tcgen05_mma_scaled.b" "shared_memory_descriptor" "The right operand [K, N].";
    "tcgen05_mma_scaled.acc" "tensor_memory_descriptor" "The accumulator [M, N].";
    "a_scale" "tensor_memory_descriptor" "The scales of the left operand, [M, K / 32] or [M, K / 16].";
    "b_scale" "tensor_memory_descriptor" "The scales of the right operand, [N, K / 32] or [N, K / 16].";
    "a_type" "_Text" "The format of the left operand: e4m3, e5m2 or e2m1.";
    "b_type" "_Text" "The format of the right operand.";
    "tcgen05_mma_scaled.use_acc" "_Value" "False if the result starts from zeros.";
    "tcgen05_copy.src" "shared_memory_descriptor" "The tile to copy.";
    "tcgen05_copy.dst" "tensor_memory_descriptor" "The tensor memory, of the same shape and element type.";
    "tcgen05_commit.barrier" "shared_memory_descriptor" "The mbarrier at which the dots arrive.";
    "descs" "Sequence[shared_memory_descriptor]" "The operands of the dots, for a cluster.";
    "smems" "Sequence[shared_memory_descriptor]" "The operands of the dots.";
    "tcgen05_mma_barrier_count.two_ctas" "_Flag" "True if two blocks of a cluster compute a tile together.";
    "num_warps" "_Int" "The number of warps that access the memory; those that run the code by default.";
    "instr_variant" "_Text" "The part that a warp moves at once: 32x32b, 16x64b, 16x128b or 16x256b.";
    "try_cancel.result" "shared_memory_descriptor" "The memory of the response: two int64.";
    "try_cancel.barrier" "shared_memory_descriptor" "The mbarrier at which the 16 bytes arrive.";
    "try_cancel.multicast" "_Flag" "Has no effect: each block of a cluster gets the response.";
    "load_result.src" "shared_memory_descriptor" "The memory of the response.";
    "program_id.dim" "_Int" "The axis: 0, 1 or 2.";
    "convert_layout.value" "tensor" "The tile.";
    "set_auto_layout.value" "tensor" "The tile.";
    "assert_trivial" "_Flag" "True if the conversion must not move elements between threads.";
    "index.index" "_Integer" "The index of a tile.";
    "permute.order" "_Ints" "The axes in their new order.";
    "smem" "shared_memory_descriptor" "Shared memory for one tile.";
    "mbarrier" "shared_memory_descriptor" "An mbarrier.";
    "increment_count" "_Flag" "True if the arrival adds to the number of arrivals of its phase.";
    "num_outstanding" "_Int" "How many of the latest may still be in flight.";
    "cluster" "_Flag" "True for the threads of all blocks of the cluster.";
    "relaxed" "_Flag" "True if the barrier orders no accesses to memory; it always does.";
    "batch" "_Int" "The number of mbarriers of an array.";
    "two_ctas" "_Flag" "True if two blocks of a cluster share the mbarrier of the first one.";
    "count" "_Int" "The number of arrivals.";
    "pred" "_Value" "False if the call has no effect.";
    "from_cta" "_Int"
        "The bits of the rank that an arrival keeps: 0 is from block 0 to each block, None from each block to itself.";
    "bytes_per_cta" "_Int" "The number of bytes for which the phase waits.";
    "phase" "_Integer" "The parity of the phase: 0 for the first one.";
    "deps" "Sequence[shared_memory_descriptor]" "Shared memory that stays allocated until then.";
    "warpgroup_mma_wait.deps" "Sequence[tensor]" "The accumulators.";
    "tensor_desc" "tensor_descriptor" "A tensor descriptor.";
    "coord" "_Offsets" "One coordinate for each axis of the tensor, in elements.";
    "barrier" "shared_memory_descriptor" "The mbarrier at which the bytes arrive.";
    "result" "shared_memory_descriptor" "The memory that the block is copied to.";
    "async_store.src" "shared_memory_descriptor" "The memory that is copied.";
    "async_copy_shared_to_global.src" "shared_memory_descriptor" "The memory that is copied.";
    "offsets" "_Offsets" "The offset of the pixels along each axis between the images and the channels.";
    "multicast" "_Flag" "True if one copy is for all blocks of a cluster that hold the same part.";
    "cache_policy" "object" "Has no effect.";
    "pendings" "_Int" "How many of the latest copies may still read shared memory.";
    "read_only" "_Flag" "True if only the reads of shared memory are awaited.";
    "mma_v2.a" "tensor" "The left operand [M, K], in its `DotOperandLayout`.";
    "mma_v2.b" "tensor" "The right operand [K, N], in its `DotOperandLayout`.";
    "warpgroup_mma.a" "shared_memory_descriptor | tensor" "The left operand [M, K].";
    "warpgroup_mma.b" "shared_memory_descriptor" "The right operand [K, N].";
    "use_acc" "_Flag" "False if the result starts from zeros.";
    "precision" "_Precision | constexpr" "How fp32 operands are multiplied: \"tf32\".";
    "is_async" "_Flag" "True if the dot is only started.";
    "slice.start" "_Int" "The first element along the axis.";
    "length" "_Int" "The number of elements along the axis.";
    "reinterpret.shape" "_Ints" "The shape of the view.";
    "reinterpret.layout" "SharedLayout | constexpr" "The layout of the view.";
    "make_tensor_descriptor.layout" "SharedLayout | constexpr" "The layout of a block.";
    "distr_ty" "distributed_type" "The type of a tile.";
    "shared_ty" "shared_memory_descriptor_type" "The type of shared memory.";
    "distributed_type.shape" "_Ints" "The shape of a tile.";
    "distributed_type.layout" "DistributedLayout | constexpr" "The layout of a tile.";
    "shared_memory_descriptor_type.shape" "_Ints" "The shape of the memory.";
    "shared_memory_descriptor_type.layout" "SharedLayout | constexpr" "The layout of a tile.";
    "alloc_shape" "_Ints" "The shape of the allocation.";
    "dot_fma.a" "tensor" "The left operand [M, K], in its `DotOperandLayout`.";
    "dot_fma.b" "tensor" "The right operand [K, N], in its `DotOperandLayout`.";
    "functions_and_args" "Sequence[_tuple[Callable[..., object], Sequence[object]]]"
        "The function of each partition with its arguments; the first is the default partition.";
    "worker_num_warps" "_Ints" "The number of warps of each worker.";
    "worker_num_regs" "_Ints" "The registers of a thread of each worker.";
    "older" "object" "The arguments of the older form.";
    "default_args" "Sequence[object]" "The arguments of the default partition, in the older form.";
    "default_partition" "Callable[..., object]" "The default partition, in the older form.";
    "worker_args" "Sequence[object]" "The arguments of all workers, in the older form.";
    "worker_partitions" "Sequence[Callable[..., object]]" "The workers, in the older form.";
}

macro_rules! results {
    ($($($name:literal)* => $([$parameter:literal $ty:literal])? $result:literal
       $(, [$parameters:literal $types:literal] $results:literal)*;)*) => {
        /// The results that are not one tensor, by the paths of the functions.
        pub const RESULTS: &[(&[&str], &[Overload])] = &[$((
            &[$($name,)*],
            &[
                Overload { parameter: results!(@ $($parameter $ty)?), result: $result },
                $(Overload { parameter: Some(($parameters, $types)), result: $results },)*
            ],
        ),)*];
    };
    (@) => { None };
    (@ $parameter:literal $ty:literal) => { Some(($parameter, $ty)) };
}

results! {
    "store" "atomic_store" "assume" "debug_barrier" "device_assert" "device_print" "static_assert" "static_print"
    "store_tensor_descriptor" "_experimental_descriptor_store" "extra.cuda.gdc_wait"
    "extra.cuda.gdc_launch_dependents"
    "tensor_descriptor.store" "tensor_descriptor.scatter" "tensor_descriptor.atomic_add"
    "tensor_descriptor.atomic_and" "tensor_descriptor.atomic_max" "tensor_descriptor.atomic_min"
    "tensor_descriptor.atomic_or" "tensor_descriptor.atomic_xor" => "None";
    "make_tensor_descriptor" "_experimental_make_tensor_descriptor" => "tensor_descriptor";
    "swizzle2d" "broadcast" "split" "pair_uniform_to_normal" => "_tuple[tensor, tensor]";
    "philox" "philox_impl" "randint4x" "rand4x" "randn4x" => "_tuple[tensor, tensor, tensor, tensor]";
    "max" "min" =>
        ["return_indices" "Literal[False]"] "tensor",
        ["return_indices" "Literal[True]"] "_tuple[tensor, tensor]",
        ["return_indices" "_Flag"] "tensor | _tuple[tensor, tensor]";
    "reduce" "associative_scan" =>
        ["input" "tensor"] "tensor",
        ["input" "Sequence[tensor]"] "_tuple[tensor, ...]";
    "inline_asm_elementwise" =>
        ["dtype" "_Dtype"] "tensor",
        ["dtype" "Sequence[_Dtype]"] "_tuple[tensor, ...]";
    "map_elementwise" =>
        ["scalar_fn" "Callable[..., _tuple[object, ...]]"] "_tuple[tensor, ...]",
        ["scalar_fn" "Callable[..., object]"] "tensor";
    "cdiv" => ["x" "tensor"] "tensor", ["div" "tensor"] "tensor", ["x, div" "_Int"] "constexpr";
    "next_power_of_2" "_log2" "extra.cuda.num_threads" "extra.cuda.num_warps" "extra.hip.num_threads"
    "extra.hip.num_warps" => "constexpr";
    "get_int_dtype" => "dtype";
    "gluon.store" "gluon.barrier" "gluon.shared_memory_descriptor.store"
    "gluon.shared_memory_descriptor._keep_alive" "gluon.async_copy.async_load"
    "gluon.async_copy.async_copy_global_to_shared" "gluon.async_copy.commit_group"
    "gluon.async_copy.wait_group" "gluon.async_copy.mbarrier_arrive" "gluon.mbarrier.init"
    "gluon.mbarrier.invalidate" "gluon.mbarrier.expect" "gluon.mbarrier.wait" "gluon.mbarrier.arrive"
    "gluon.tma.async_load" "gluon.tma.async_copy_global_to_shared" "gluon.tma.async_store"
    "gluon.tma.async_copy_shared_to_global" "gluon.tma.store_wait" "gluon.hopper.fence_async_shared"
    "gluon.tma.async_load_im2col" "gluon.tma.async_copy_global_to_shared_im2col"
    "gluon.cluster.barrier" "gluon.cluster.arrive" "gluon.cluster.wait"
    "gluon.blackwell.tcgen05_mma" "gluon.blackwell.tcgen05_commit"
    "gluon.blackwell.tcgen05_copy" "gluon.blackwell.tcgen05_mma_scaled"
    "gluon.tensor_memory_descriptor.store" "gluon.clc.try_cancel"
        => "None";
    "gluon.allocate_shared_memory" "gluon.mbarrier.allocate_mbarrier"
    "gluon.shared_memory_descriptor.index" "gluon.shared_memory_descriptor.permute"
    "gluon.shared_memory_descriptor.slice" "gluon.shared_memory_descriptor.reshape"
    "gluon.shared_memory_descriptor.reinterpret" "gluon.shared_memory_descriptor._reinterpret"
        => "shared_memory_descriptor";
    "gluon.blackwell.allocate_tensor_memory" "gluon.tensor_memory_descriptor.index"
    "gluon.tensor_memory_descriptor.slice" "gluon.tensor_memory_descriptor._reinterpret"
        => "tensor_memory_descriptor";
    "gluon.blackwell.tensor_memory_descriptor_type" => "tensor_memory_descriptor_type";
    "gluon.tensor_memory_descriptor.get_reg_layout" => "DistributedLayout";
    "gluon.blackwell.tcgen05_mma_barrier_count" => "constexpr";
    "gluon.clc.load_result" => "clc_result";
    "gluon.tma.make_tensor_descriptor" => "tensor_descriptor";
    "gluon.distributed_type" => "distributed_type";
    "gluon.shared_memory_descriptor_type" => "shared_memory_descriptor_type";
    "gluon.warp_specialize" => "object";
    "gluon.num_warps" "gluon.num_ctas" "gluon.bank_conflicts" => "constexpr";
    "gluon.hopper.warpgroup_mma_wait" => "tensor | _tuple[tensor, ...]";
    "aggregate_replace" => "_T";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::entries::{EntryKind, language_entries};
    use super::*;

    fn names(signature: &str) -> Vec<&str> {
        let inner = signature.split_once('(').map_or("", |(_, rest)| rest);
        let parts = super::super::signature::split_top_level(inner.trim_end_matches(')'));
        let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty() && *part != "*");
        parts
            .map(|part| part.trim_start_matches('*').split([':', '=']).next().unwrap_or_default().trim())
            .collect()
    }

    /// Returns the functions to which the rows of `PARAMETERS` and `RESULTS` apply. The stubs of
    /// classes and types are written by hand.
    fn functions() -> Vec<(&'static str, String)> {
        const CLASSES: &[&str] = &[
            "range",
            "static_range",
            "condition",
            "constexpr",
            "_unwrap_if_constexpr",
            "tuple",
            "slice",
            "tuple_type",
            "constexpr_type",
            "tensor_descriptor_type",
            "pointer_type",
            "block_type",
            "str_to_ty",
        ];
        let found = language_entries().filter(|entry| match entry.kind {
            EntryKind::Function => {
                !CLASSES.contains(&entry.path)
                    && !entry.path.starts_with("dtype.")
                    && !entry.path.starts_with("target_info.")
            }
            EntryKind::Constant | EntryKind::Class | EntryKind::Module => false,
        });
        found.map(|entry| (entry.path, entry.signature)).collect()
    }

    #[test]
    fn every_parameter_has_a_type_and_every_row_is_used() {
        let mut used = BTreeSet::new();
        let mut missing = Vec::new();
        for (path, signature) in functions() {
            let function = path.rsplit('.').next().unwrap_or(path);
            for name in names(&signature).into_iter().filter(|name| *name != "self") {
                let own = format!("{function}.{name}");
                match PARAMETERS.iter().find(|row| row.name == own || row.name == name) {
                    Some(_) => {
                        let rows = PARAMETERS.iter().filter(|row| row.name == own);
                        let row = rows.chain(PARAMETERS.iter().filter(|row| row.name == name)).next();
                        used.extend(row.map(|row| row.name));
                    }
                    None => missing.push(own),
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new());
        let unused: Vec<_> =
            PARAMETERS.iter().map(|row| row.name).filter(|name| !used.contains(name)).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }

    #[test]
    fn every_result_names_functions() {
        let functions = functions();
        for name in RESULTS.iter().flat_map(|(names, _)| names.iter()) {
            assert!(functions.iter().any(|(path, _)| path == name), "{name}");
        }
        for (names, overloads) in RESULTS {
            for (parameter, _) in overloads.iter().filter_map(|overload| overload.parameter) {
                for name in *names {
                    let own = functions.iter().find(|(path, _)| path == name);
                    assert!(
                        own.is_some_and(|(_, signature)| signature.contains(parameter)),
                        "{name}.{parameter}"
                    );
                }
            }
        }
    }

    #[test]
    fn modes_are_those_of_the_rules() {
        let modes = modes();
        let eviction = modes.iter().find(|mode| mode.alias == "_Eviction").expect("it is a mode");
        assert_eq!(eviction.values, ["", "evict_last", "evict_first", "evict_normal"]);
        for row in PARAMETERS {
            for part in row.ty.split(" | ").filter(|part| part.starts_with('_')) {
                let known =
                    ["_Value", "_Integer", "_Int", "_Ints", "_Offsets", "_Flag", "_Text", "_Dtype", "_T"];
                assert!(known.contains(&part) || modes.iter().any(|mode| mode.alias == part), "{part}");
            }
        }
    }

    #[test]
    fn formats_are_those_that_the_library_checks() {
        let checks: Vec<String> = FORMATS.iter().map(|(name, ())| format!("format == \"{name}\"")).collect();
        assert!(include_str!("../stdlib/scaled.py").contains(&format!("        {},\n", checks.join(" or "))));
    }
}
