"""The part of `triton.language` that is written in the kernel language itself.

Every function whose name does not begin with `_` is a name of the language.
"""

import triton
import triton.language as tl


@tl.core._tensor_member_fn
@triton.jit
def cdiv(x, div):
    """x / div, rounded up, for integers that are not negative."""
    return (x + div - 1) // div


@tl.core._tensor_member_fn
@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + tl.exp(-x))


@tl.core._tensor_member_fn
@triton.jit
def softmax(x, dim: tl.constexpr = None, keep_dims: tl.constexpr = None, ieee_rounding: tl.constexpr = False):
    """exp(x) along an axis (the first one for None), scaled so that it sums to 1. The largest element is subtracted
    first, so that nothing overflows."""
    axis: tl.constexpr = 0 if dim is None else dim
    shifted = x - max(x, axis, keep_dims=True)
    numerator = tl.exp(shifted)
    denominator = sum(numerator, axis, keep_dims=True)
    return tl.fdiv(numerator, denominator, ieee_rounding)


@tl.core._tensor_member_fn
@triton.jit
def ravel(x, can_reorder=False):
    """The elements as a tile of one axis."""
    return tl.reshape(x, [x.numel], can_reorder=can_reorder)


@triton.jit
def squeeze(x, dim: tl.constexpr):
    """The tile without an axis of extent 1."""
    axis: tl.constexpr = dim + len(x.shape) if dim < 0 else dim
    tl.static_assert(x.shape[axis] == 1, "squeeze takes an axis of extent 1")
    return tl.reshape(x, x.shape[:axis] + x.shape[axis + 1:])


@triton.jit
def unsqueeze(x, dim: tl.constexpr):
    """The tile with a new axis of extent 1."""
    return tl.expand_dims(x, dim)


@triton.jit
def interleave(a, b):
    """The elements of both, which broadcast to one shape, alternating along the last axis: a[0], b[0], a[1], …"""
    pairs = tl.join(a, b)
    if len(pairs.shape) == 1:
        return pairs
    return tl.reshape(pairs, pairs.shape[:-2] + [2 * pairs.shape[-2]])


@triton.jit
def swizzle2d(i, j, size_i, size_j, size_g):
    """The grid position at which the program at (i, j) of a size_i by size_j grid works, so that programs
    that run at the same time share their inputs: the grid is traversed in groups of size_g rows, column by
    column within a group. The last group may have fewer rows."""
    position = i * size_j + j
    group_size = size_g * size_j
    first_row = position // group_size * size_g
    rows = tl.minimum(size_i - first_row, size_g)
    within = position % group_size
    return first_row + within % rows, within // rows


@triton.jit
def expect_zero(x, mask):
    """Returns x, which the program expects to be zero where the mask is true, such as values that underflow.
    With `debug=True`, another value stops the launch."""
    tl.device_assert(x == 0, "expected zero", mask)
    return x


@triton.jit
def zeros(shape: tl.constexpr, dtype: tl.constexpr):
    """A tile of zeros."""
    return tl.full(shape, 0, dtype)


@triton.jit
def zeros_like(input):
    """A tile of zeros of the shape and type of another."""
    return tl.full(input.shape, 0, input.dtype)


@triton.jit
def _sum_combine(a, b):
    return a + b


@triton.constexpr_function
def _sum_dtype(input, asked):
    if asked is not None:
        return asked
    if input.is_int() and input.primitive_bitwidth < 32:
        return tl.int32 if input.is_int_signed() else tl.uint32
    return input


@triton.constexpr_function
def _accumulator(dtype):
    # Narrow floats are added in fp32 and rounded once.
    return tl.float32 if dtype.is_floating() and dtype.primitive_bitwidth < 32 else dtype


@tl.core._tensor_member_fn
@triton.jit
def sum(input, axis: tl.constexpr = None, keep_dims: tl.constexpr = False, dtype: tl.constexpr = None):
    """The sum along an axis, or of all elements. Booleans and integers of less than 32 bits are added as int32 or uint32,
    which the result has as well; fp16, bf16 and fp8 are added in fp32, and rounded once. `dtype` is another result type."""
    result: tl.constexpr = _sum_dtype(input.dtype, dtype)
    wide: tl.constexpr = _accumulator(result)
    return tl.reduce(input.to(result).to(wide), axis, _sum_combine, keep_dims=keep_dims).to(result)


@triton.jit
def _xor_combine(a, b):
    return a ^ b


@tl.core._tensor_member_fn
@triton.jit
def xor_sum(input, axis: tl.constexpr = None, keep_dims: tl.constexpr = False):
    """The bitwise exclusive or of integers along an axis, or of all elements."""
    tl.static_assert(input.dtype.is_int(), "xor_sum takes integers")
    return tl.reduce(input, axis, _xor_combine, keep_dims=keep_dims)


@triton.jit
def _or_combine(x, y):
    return x | y


@tl.core._tensor_member_fn
@triton.jit
def reduce_or(input, axis: tl.constexpr = None, keep_dims: tl.constexpr = False):
    """The bitwise or of integers along an axis, or of all elements."""
    tl.static_assert(input.dtype.is_int(), "reduce_or takes integers")
    return tl.reduce(input, axis, _or_combine, keep_dims=keep_dims)


@triton.constexpr_function
def _extremum_dtype(dtype):
    if dtype.primitive_bitwidth < 32:
        return tl.float32 if dtype.is_floating() else tl.int32
    return dtype


@triton.constexpr_function
def _wrap(axis, rank):
    return axis + rank if axis < 0 else axis


@triton.jit
def _positions(input, axis: tl.constexpr):
    # Returns the position of each element along the axis; for None, among all elements in row-major order.
    if axis is None:
        return tl.reshape(tl.arange(0, input.numel), input.shape)
    else:
        place: tl.constexpr = _wrap(axis, len(input.shape))
        index = tl.arange(0, input.shape[place])
        for _ in tl.static_range(place):
            index = tl.expand_dims(index, 0)
        for _ in tl.static_range(len(input.shape) - 1 - place):
            index = tl.expand_dims(index, -1)
        return tl.broadcast_to(index, input.shape)


@triton.jit
def _with_positions(input, axis: tl.constexpr, combine: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce((input, _positions(input, axis)), axis, combine, keep_dims=keep_dims)


@triton.jit
def _extremum(input, axis: tl.constexpr, return_indices: tl.constexpr, tie_break_left: tl.constexpr,
              keep_dims: tl.constexpr, combine: tl.constexpr, first: tl.constexpr, last: tl.constexpr):
    # `combine` takes two elements. `first` and `last` also take positions, and prefer the first or last of equal elements.
    if return_indices:
        return _with_positions(input, axis, first if tie_break_left else last, keep_dims)
    else:
        return tl.reduce(input.to(_extremum_dtype(input.dtype)), axis, combine, keep_dims=keep_dims)


@triton.jit
def _choose(best, a, i, b, j, first: tl.constexpr):
    # Returns the better element: of two equal ones or two NaN, the first or the last; of NaN and a number, the number.
    # `best` is the better of the two elements; it is NaN only if both are NaN.
    before = i < j if first else i > j
    is_left, is_not_right = a == best, b != best
    left = (is_left & (is_not_right | before)) | (is_not_right & before)
    return tl.where(left, a, b), tl.where(left, i, j)


@triton.jit
def _elementwise_max(a, b):
    return tl.maximum(a, b)


@triton.jit
def _argmax_combine(value1, index1, value2, index2, tie_break_left: tl.constexpr):
    return _choose(tl.maximum(value1, value2), value1, index1, value2, index2, tie_break_left)


@triton.jit
def _argmax_combine_tie_break_left(value1, index1, value2, index2):
    return _choose(tl.maximum(value1, value2), value1, index1, value2, index2, True)


@triton.jit
def _argmax_combine_tie_break_fast(value1, index1, value2, index2):
    return _choose(tl.maximum(value1, value2), value1, index1, value2, index2, False)


@tl.core._tensor_member_fn
@triton.jit
def max(input, axis: tl.constexpr = None, return_indices: tl.constexpr = False,
        return_indices_tie_break_left: tl.constexpr = True, keep_dims: tl.constexpr = False):
    """The largest element along an axis, or of all. With `return_indices`, also its position: of equal elements the first,
    or the last with `return_indices_tie_break_left=False`. NaN is ignored. Types of less than 32 bits give fp32 or int32;
    with positions, the type is that of the input."""
    return _extremum(input, axis, return_indices, return_indices_tie_break_left, keep_dims, _elementwise_max,
                     _argmax_combine_tie_break_left, _argmax_combine_tie_break_fast)


@tl.core._tensor_member_fn
@triton.jit
def argmax(input, axis: tl.constexpr, tie_break_left: tl.constexpr = True, keep_dims: tl.constexpr = False):
    """The position of the largest element along an axis, int32."""
    _, position = max(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left,
                      keep_dims=keep_dims)
    return position


@triton.jit
def _elementwise_min(a, b):
    return tl.minimum(a, b)


@triton.jit
def _argmin_combine(value1, index1, value2, index2, tie_break_left: tl.constexpr):
    return _choose(tl.minimum(value1, value2), value1, index1, value2, index2, tie_break_left)


@triton.jit
def _argmin_combine_tie_break_left(value1, index1, value2, index2):
    return _choose(tl.minimum(value1, value2), value1, index1, value2, index2, True)


@triton.jit
def _argmin_combine_tie_break_fast(value1, index1, value2, index2):
    return _choose(tl.minimum(value1, value2), value1, index1, value2, index2, False)


@tl.core._tensor_member_fn
@triton.jit
def min(input, axis: tl.constexpr = None, return_indices: tl.constexpr = False,
        return_indices_tie_break_left: tl.constexpr = True, keep_dims: tl.constexpr = False):
    """The smallest element along an axis, or of all; otherwise as `max`."""
    return _extremum(input, axis, return_indices, return_indices_tie_break_left, keep_dims, _elementwise_min,
                     _argmin_combine_tie_break_left, _argmin_combine_tie_break_fast)


@tl.core._tensor_member_fn
@triton.jit
def argmin(input, axis: tl.constexpr, tie_break_left: tl.constexpr = True, keep_dims: tl.constexpr = False):
    """The position of the smallest element along an axis, int32."""
    _, position = min(input, axis, return_indices=True, return_indices_tie_break_left=tie_break_left,
                      keep_dims=keep_dims)
    return position


@triton.jit
def _scan(input, axis: tl.constexpr, reverse: tl.constexpr, dtype: tl.constexpr, combine: tl.constexpr):
    result: tl.constexpr = _sum_dtype(input.dtype, dtype)
    wide: tl.constexpr = _accumulator(result)
    return tl.associative_scan(input.to(result).to(wide), axis, combine, reverse).to(result)


@tl.core._tensor_member_fn
@triton.jit
def cumsum(input, axis: tl.constexpr = 0, reverse: tl.constexpr = False, dtype: tl.constexpr = None):
    """The sum of each element and all before it along an axis; with `reverse`, of all after it. Types are those of
    `sum`."""
    return _scan(input, axis, reverse, dtype, _sum_combine)


@triton.jit
def _prod_combine(a, b):
    return a * b


@tl.core._tensor_member_fn
@triton.jit
def cumprod(input, axis: tl.constexpr = 0, reverse: tl.constexpr = False, dtype: tl.constexpr = None):
    """The product of each element and all before it along an axis; with `reverse`, of all after it. Types are those of
    `cumsum`."""
    return _scan(input, axis, reverse, dtype, _prod_combine)
