"""Sorting, in the kernel language: bitonic networks on integer keys that have the order of the elements.

Every function whose name does not begin with `_` is a name of the language.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def _line_axis(dim, rank):
    if dim is None:
        return rank - 1
    return dim + rank if dim < 0 else dim


@triton.constexpr_function
def _is_power_of_two(n):
    return n > 0 and n & (n - 1) == 0


@triton.constexpr_function
def _power_of_two_above(n):
    power = 1
    while power < n:
        power *= 2
    return power


@triton.jit
def _check_line(x, axis: tl.constexpr):
    tl.static_assert(len(x.shape) > 0, "expected a tile, found a scalar")
    tl.static_assert(0 <= axis and axis < len(x.shape), "dim is not an axis of the tile")
    tl.static_assert(not x.dtype.is_ptr(), "expected a tile of numbers, found pointers")


@triton.jit
def _order(bits, width: tl.constexpr):
    # Converts the sign and magnitude of floats to two's complement, which compares like the floats; it is its own inverse.
    return bits ^ ((bits >> (width - 1)) & ((1 << (width - 1)) - 1))


@triton.jit
def _to_keys(x):
    # Returns integers of 32 or 64 bits with the order of the elements. NaN loses its sign, so it is above all numbers.
    if x.dtype.is_floating():
        if x.dtype.primitive_bitwidth == 64:
            wide = x
            bits = x.to(tl.int64, bitcast=True)
        else:
            wide = x.to(tl.float32)
            bits = wide.to(tl.int32, bitcast=True)
        width: tl.constexpr = bits.dtype.primitive_bitwidth
        return _order(tl.where(wide != wide, bits & ((1 << (width - 1)) - 1), bits), width)
    elif x.dtype.primitive_bitwidth < 32:
        return x.to(tl.int32)
    else:
        return x


@triton.jit
def _from_keys(keys, dtype: tl.constexpr):
    if dtype.is_floating():
        bits = _order(keys, keys.dtype.primitive_bitwidth)
        if dtype.primitive_bitwidth == 64:
            return bits.to(tl.float64, bitcast=True)
        else:
            return bits.to(tl.float32, bitcast=True).to(dtype)
    else:
        return keys.to(dtype)


@triton.constexpr_function
def _bound(dtype, highest):
    # Returns the greatest key of the type, or the least key if `highest` is false.
    if dtype.is_int_unsigned():
        return 2**dtype.primitive_bitwidth - 1 if highest else 0
    width = dtype.primitive_bitwidth
    return 2 ** (width - 1) - 1 if highest else -(2 ** (width - 1))


@triton.constexpr_function
def _swapped(axis, rank):
    # Returns the order of the axes in which `axis` and the last one are swapped.
    return [rank - 1 if k == axis else axis if k == rank - 1 else k for k in range(rank)]


@triton.jit
def _padded(keys, highest: tl.constexpr):
    # Pads the last axis to the next power of two, with keys that are last in the order.
    n: tl.constexpr = keys.shape[len(keys.shape) - 1]
    rest: tl.constexpr = _power_of_two_above(n) - n
    more = tl.full(keys.shape[: len(keys.shape) - 1] + (rest,), _bound(keys.dtype, highest), keys.dtype)
    return tl.cat(keys, more, dim=len(keys.shape) - 1)


@tl.core._tensor_member_fn
@triton.jit
def sort(x, dim: tl.constexpr = None, descending: tl.constexpr = 0):
    """The elements along an axis (the last one for None) in ascending, or descending, order. NaN is larger than all
    numbers, and -0.0 comes before 0.0."""
    axis: tl.constexpr = _line_axis(dim, len(x.shape))
    _check_line(x, axis)
    if _is_power_of_two(x.shape[axis]):
        keys = _to_keys(x)
        for stage in tl.static_range(tl._log2(x.shape[axis])):
            keys = tl._bitonic(keys, axis, stage, descending)
        return _from_keys(keys, x.dtype)
    elif axis == len(x.shape) - 1:
        keys = _padded(_to_keys(x), not descending)
        for stage in tl.static_range(tl._log2(keys.shape[axis])):
            keys = tl._bitonic(keys, axis, stage, descending)
        return _from_keys(keys[..., : x.shape[axis]], x.dtype)
    else:
        order: tl.constexpr = _swapped(axis, len(x.shape))
        return tl.permute(sort(tl.permute(x, order), len(x.shape) - 1, descending), order)


@tl.core._tensor_member_fn
@triton.jit
def bitonic_merge(x, dim: tl.constexpr = None, descending: tl.constexpr = 0):
    """Sorts a bitonic sequence along an axis (the last one for None), such as an ascending one followed by a descending one
    of the same length. The result for other sequences is undefined. NaN and zeros are as in `sort`."""
    axis: tl.constexpr = _line_axis(dim, len(x.shape))
    _check_line(x, axis)
    if not _is_power_of_two(x.shape[axis]):
        return sort(x, axis, descending)
    stages: tl.constexpr = tl._log2(x.shape[axis])
    if stages == 0:
        return x
    else:
        return _from_keys(tl._bitonic(_to_keys(x), axis, stages - 1, descending), x.dtype)


@triton.jit
def _larger_key(a, b):
    return tl.maximum(a, b)


@triton.jit
def _smaller_key(a, b):
    return tl.minimum(a, b)


@triton.constexpr_function
def _chosen_dtype(dtype, k, extent):
    # The result has the type of `max` and `min`, unless all elements are sorted.
    if k == extent or dtype.primitive_bitwidth >= 32:
        return dtype
    return tl.float32 if dtype.is_floating() else tl.int32


@triton.jit
def _topk(x, k: tl.constexpr, descending: tl.constexpr):
    # Sorts blocks of `block` elements along the last axis, in alternating directions. For two adjacent blocks, the better
    # elements at each position are the best elements of both blocks. They are a bitonic sequence, which one merge sorts.
    axis: tl.constexpr = len(x.shape) - 1
    block: tl.constexpr = _power_of_two_above(k)
    stages: tl.constexpr = tl._log2(block)
    keys = _to_keys(x)
    if not _is_power_of_two(x.shape[axis]):
        keys = _padded(keys, not descending)
    count: tl.constexpr = keys.shape[axis] // block
    for stage in tl.static_range(stages):
        keys = tl._bitonic(keys, axis, stage, descending)
    for level in tl.static_range(tl._log2(count)):
        blocks: tl.constexpr = count >> (level + 1)
        pairs = tl.reshape(keys, x.shape[:axis] + (blocks, 2, block))
        best = tl.reduce(pairs, axis + 1, _larger_key if descending else _smaller_key)
        keys = tl.reshape(best, x.shape[:axis] + (blocks * block,))
        if stages > 0:
            keys = tl._bitonic(keys, axis, stages - 1, descending)
    if block != k:
        keys = keys[..., :k]
    return _from_keys(keys, _chosen_dtype(x.dtype, k, x.shape[axis]))


@tl.core._tensor_member_fn
@triton.jit
def topk(x, k: tl.constexpr, dim: tl.constexpr = None, descending: tl.constexpr = True):
    """The k largest elements along an axis (the last one for None), the largest first; with `descending=False` the k
    smallest ones, the smallest first. NaN and zeros are as in `sort`. Types of less than 32 bits give fp32 or int32, as
    in `max`, unless k is the extent."""
    axis: tl.constexpr = _line_axis(dim, len(x.shape))
    _check_line(x, axis)
    tl.static_assert(0 < k and k <= x.shape[axis], "k must be from 1 to the extent")
    if axis == len(x.shape) - 1:
        return _topk(x, k, descending)
    else:
        order: tl.constexpr = _swapped(axis, len(x.shape))
        return tl.permute(_topk(tl.permute(x, order), k, descending), order)


@tl.core._tensor_member_fn
@triton.jit
def flip(x, dim: tl.constexpr = None):
    """The elements along an axis (the last one for None) in reverse order."""
    axis: tl.constexpr = _line_axis(dim, len(x.shape))
    _check_line(x, axis)
    if _is_power_of_two(x.shape[axis]):
        return tl._butterfly(x, axis, x.shape[axis] - 1)
    elif axis == len(x.shape) - 1:
        return x[..., ::-1]
    else:
        order: tl.constexpr = _swapped(axis, len(x.shape))
        return tl.permute(tl.permute(x, order)[..., ::-1], order)
