"""Sorting, the best k, reversing and counting, against numpy."""

import numpy as np
import pytest
from helpers import (
    DTYPES,
    INTEGERS,
    assert_same,
    convert,
    is_float,
    module,
    sample,
    to_device,
    to_host,
)

import tilewright as triton

KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    y = {expression}
    tl.static_assert(y.dtype == y_ptr.dtype.element_ty)
    tl.store(y_ptr + tl.arange(0, y.shape[0])[:, None] * y.shape[1] + tl.arange(0, y.shape[1])[None, :], y)
"""


def run(expression, x, dtype, shape, device, num_warps=4, out=None):
    y = to_device(convert(np.zeros(shape, np.float32), out or dtype), out or dtype, device)
    text = KERNEL.format(expression=expression)
    module(text).kernel[(1,)](to_device(x, dtype, device), y, M=x.shape[0], N=x.shape[1], num_warps=num_warps)
    return to_host(y)


def distinct(shape, seed=0):
    """Whole numbers, half of them there twice."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    return (rng.permutation(count) // 2 - count // 4).reshape(shape).astype(np.int32)


SHAPES = [(1, 512), (8, 64), (64, 8), (2, 256), (256, 2), (1, 2), (2, 1), (32, 32)]
CASES = [(shape, 2 ** (n % 4)) for n, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_in_every_shape(axis, device):
    for number, (shape, num_warps) in enumerate(CASES):
        x = distinct(shape)
        descending = number % 2
        found = run(f"tl.sort(x, {axis}, {descending})", x, "int32", shape, device, num_warps)
        expected = np.sort(x, axis)
        expected = np.flip(expected, axis) if descending else expected
        np.testing.assert_array_equal(found, expected, err_msg=f"{shape} {num_warps}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_every_type(dtype, device):
    x = sample(dtype, 4 * 64)[: 4 * 64].reshape(4, 64)
    for descending in (False, True):
        found = run(f"x.sort(descending={descending})", x, dtype, x.shape, device)
        if is_float(dtype):
            # NaN, which numpy puts last as well, without its sign; zeros by their sign.
            wide = np.asarray(x, np.float64) if dtype != "bfloat16" else to_wide(x)
            keys = np.where(np.isnan(wide), np.inf, wide)
            order = np.lexsort((~np.signbit(wide), np.isnan(wide), keys), axis=1)
            expected = np.take_along_axis(wide, order, 1)
            got = np.asarray(found, np.float64) if dtype != "bfloat16" else to_wide(found)
            expected = np.flip(expected, 1) if descending else expected
            np.testing.assert_array_equal(got, expected)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))
        else:
            expected = np.sort(x, 1)
            assert_same(found, np.flip(expected, 1) if descending else expected)


def to_wide(values):
    """bfloat16, which numpy lacks, is carried as its bits or as fp32."""
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return values.astype(np.float64)
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("descending", [True, False])
def test_the_best_k(descending, device):
    cases = [
        ((1, 512), 8, 1, 4),
        ((8, 64), 64, 1, 2),
        ((4, 64), 1, -1, 1),
        ((64, 4), 4, 0, 4),
        ((2, 256), 32, 1, 8),
    ]
    for shape, k, axis, num_warps in cases:
        x = distinct(shape, 2)
        ordered = np.sort(x, axis)
        ordered = np.flip(ordered, axis) if descending else ordered
        expected = ordered.take(range(k), axis)
        expression = f"tl.topk(x, {k}, {axis}, {descending})"
        found = run(expression, x, "int32", expected.shape, device, num_warps)
        np.testing.assert_array_equal(found, expected, err_msg=f"{shape} {k} {axis}")
    x = sample("float16", 64)[:64].reshape(1, 64)
    x = np.where(np.isnan(x), np.float16(0), x)
    found = run(f"x.topk(4, descending={descending})", x, "float16", (1, 4), device, out="float32")
    ordered = np.sort(x, 1)
    np.testing.assert_array_equal(found, (np.flip(ordered, 1) if descending else ordered)[:, :4])


def test_merges(device):
    x = np.sort(distinct((2, 128)), 1)
    x[:, 64:] = x[:, :63:-1]
    found = run("tl.bitonic_merge(x)", x, "int32", x.shape, device)
    np.testing.assert_array_equal(found, np.sort(x, 1))
    found = run("x.bitonic_merge(1, True)", x, "int32", x.shape, device)
    np.testing.assert_array_equal(found, np.flip(np.sort(x, 1), 1))


@pytest.mark.parametrize("dtype", ["int1", "int8", "float16", "int64"])
def test_flips(dtype, device):
    for shape, num_warps in CASES:
        x = sample(dtype, shape[0] * shape[1])[: shape[0] * shape[1]].reshape(shape)
        for axis, text in [(1, ""), (0, ", 0")]:
            assert_same(run(f"tl.flip(x{text})", x, dtype, shape, device, num_warps), np.flip(x, axis), shape)


HISTOGRAM = """
@triton.jit
def kernel(x_ptr, mask_ptr, y_ptr, z_ptr, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    mask = tl.load(mask_ptr + at) != 0
    tl.store(y_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))
    total = tl.zeros([BINS], tl.int32)
    for _ in range(2):
        total += x.histogram(BINS, mask)
    tl.store(z_ptr + tl.arange(0, BINS), total)
"""


@pytest.mark.parametrize("dtype", INTEGERS)
def test_counts(dtype, device):
    rng = np.random.default_rng(4)
    for length, bins, num_warps in [(512, 16, 4), (32, 128, 8), (1024, 64, 1), (64, 1, 2)]:
        low = 0 if dtype.startswith("u") else -20
        x = rng.integers(low, 100, length).astype(dtype)
        mask = rng.integers(0, 2, length).astype(np.int8)
        y, z = (to_device(np.zeros(bins, np.int32), "int32", device) for _ in range(2))
        module(HISTOGRAM).kernel[(1,)](
            to_device(x, dtype, device),
            to_device(mask, "int8", device),
            y,
            z,
            N=length,
            BINS=bins,
            num_warps=num_warps,
        )
        wide = x.astype(np.int64)
        inside = (wide >= 0) & (wide < bins)
        np.testing.assert_array_equal(to_host(y), np.bincount(wide[inside], minlength=bins))
        counted = inside & (mask != 0)
        np.testing.assert_array_equal(to_host(z), 2 * np.bincount(wide[counted], minlength=bins))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("tl.sort(tl.load(x_ptr))", "expected a tile, found a scalar"),
        ("tl.sort(x, 2)", "dim is not an axis of the tile"),
        ("tl.flip(x_ptr + tl.arange(0, 8))", "expected a tile of numbers, found pointers"),
        ("tl.topk(x, 0)", "k must be from 1 to the extent"),
        ("tl.topk(x, 16)", "k must be from 1 to the extent"),
        ("tl.histogram(x.to(tl.float32), 4)", "counts a tile of integers"),
        ("tl.histogram(x, 0)", "`num_bins` of `histogram` cannot be 0"),
        ("tl.histogram(x, 4, x)", "the mask of `histogram` must be int1"),
        ("tl.cumsum(x, 2)", "axis 2 of `cumsum` does not exist"),
    ],
)
def test_mistakes_are_explained(expression, message):
    x = np.zeros((8, 8), np.int32)
    with pytest.raises(triton.CompilationError, match=message):
        run(expression, x, "int32", x.shape, "cpu")


COMPARE_AND_SWAP = """
@triton.jit
def _swapped(x, order, flip, DISTANCE: tl.constexpr, BLOCK: tl.constexpr):
    # A step of a network as programs write it: both elements as sums, and one of them kept by exclusive or.
    shape: tl.constexpr = [x.numel // (2 * DISTANCE), 2, DISTANCE]
    bits = tl.core.get_int_dtype(bitwidth=x.dtype.primitive_bitwidth, signed=True)
    y = tl.reshape(x.to(bits, bitcast=True), shape)
    upper = tl.arange(0, 2)[None, :, None]
    first = tl.reshape(tl.broadcast_to(tl.sum(y * (1 - upper).to(bits), 1)[:, None, :].to(bits), shape), x.shape)
    second = tl.reshape(tl.broadcast_to(tl.sum(upper.to(bits) * y, 1)[:, None, :].to(bits), shape), x.shape)
    a, b = first.to(x.dtype, bitcast=True), second.to(x.dtype, bitcast=True)
    o = tl.reshape(order, shape)
    c = tl.reshape(tl.broadcast_to(tl.sum(o * (1 - upper).to(o.dtype), 1)[:, None, :], shape), x.shape)
    d = tl.reshape(tl.broadcast_to(tl.sum(o * upper.to(o.dtype), 1)[:, None, :], shape), x.shape)
    swap = (((a > b) | ((a == b) & (c > d))) ^ flip).to(tl.int1)
    own = x.to(bits, bitcast=True)
    kept = own ^ tl.where(swap, first ^ second, tl.zeros_like(own))
    return kept.to(x.dtype, bitcast=True), order ^ tl.where(swap, c ^ d, tl.zeros_like(order))

@triton.jit
def kernel(x_ptr, y_ptr, order_ptr, M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    order = tl.broadcast_to(tl.arange(0, N)[None, :], x.shape).to({order})
    for stage in tl.static_range(1, STAGES + 1):
        flip = 0
        if stage < STAGES:
            halves: tl.constexpr = [M * N // 2 ** (stage + 1), 2, 2**stage]
            flip = tl.reshape(tl.broadcast_to(tl.arange(0, 2)[None, :, None], halves), x.shape)
        for step in tl.static_range(stage):
            x, order = _swapped(x, order, flip, 2 ** (stage - 1 - step), N)
    tl.store(y_ptr + at, x)
    tl.store(order_ptr + at, order.to(tl.int32))
"""


@pytest.mark.parametrize(
    ("dtype", "order"), [("float32", "tl.int16"), ("int8", "tl.int32"), ("int64", "tl.int64")]
)
def test_networks_that_programs_write(dtype, order, device):
    text = module(COMPARE_AND_SWAP.format(order=order))
    for shape, num_warps in (((2, 64), 1), ((1, 128), 4), ((8, 16), 2)):
        x = distinct(shape, 1)
        x = (x % 20 - 10 if dtype == "int8" else x).astype(dtype)
        y, places = (
            to_device(np.zeros_like(x), dtype, device),
            to_device(np.zeros(shape, np.int32), "int32", device),
        )
        text.kernel[(1,)](
            to_device(x, dtype, device),
            y,
            places,
            *shape,
            STAGES=shape[1].bit_length() - 1,
            num_warps=num_warps,
        )
        np.testing.assert_array_equal(to_host(y), np.sort(x, 1), err_msg=f"{shape}")
        np.testing.assert_array_equal(to_host(places), np.argsort(x, 1, kind="stable"), err_msg=f"{shape}")


PARTNERS = """
@triton.jit
def _swapped(x, order, flip, AXIS: tl.constexpr, RANK: tl.constexpr):
    # A step of a network in a shape of twos: a partner is the exclusive or of an element and that of both.
    bits = tl.core.get_int_dtype(bitwidth=x.dtype.primitive_bitwidth, signed=True)
    own = x.to(bits, bitcast=True)
    partner = (own ^ tl.xor_sum(own, AXIS, keep_dims=True)).to(x.dtype, bitcast=True)
    its_order = order ^ tl.xor_sum(order, AXIS, keep_dims=True)
    upper = tl.reshape(tl.arange(0, 2), [1] * AXIS + [2] + [1] * (RANK - 1 - AXIS))
    swap = ((x > partner) | ((x == partner) & (order > its_order))) != (flip ^ upper)
    return tl.where(swap, partner, x), tl.where(swap, its_order, order)

@triton.jit
def kernel(x_ptr, y_ptr, order_ptr, RANK: tl.constexpr, DESCENDING: tl.constexpr):
    shape: tl.constexpr = [2] * RANK
    at = tl.arange(0, 2**RANK)
    x = tl.reshape(tl.load(x_ptr + at), shape)
    order = tl.reshape(at.to({order}), shape)
    for stage in tl.static_range(1, RANK + 1):
        flip = DESCENDING
        if stage < RANK:
            flip = tl.reshape(tl.arange(0, 2), [1] * (RANK - 1 - stage) + [2] + [1] * stage)
        for step in tl.static_range(stage):
            x, order = _swapped(x, order, flip, RANK - stage + step, RANK)
    tl.store(y_ptr + at, tl.reshape(x, [2**RANK]))
    tl.store(order_ptr + at, tl.reshape(order, [2**RANK]).to(tl.int32))
"""


@pytest.mark.parametrize(
    ("dtype", "order"), [("float32", "tl.int16"), ("int8", "tl.int32"), ("int64", "tl.int64")]
)
def test_networks_of_partners_by_exclusive_or(dtype, order, device):
    text = module(PARTNERS.format(order=order))
    for rank, num_warps, descending in ((7, 1, 0), (7, 4, 1), (3, 1, 1)):
        x = np.random.default_rng(rank).permutation(2**rank)
        x = (x % 20 - 10 if dtype == "int8" else x).astype(dtype)
        y = to_device(np.zeros_like(x), dtype, device)
        places = to_device(np.zeros(x.shape, np.int32), "int32", device)
        text.kernel[(1,)](
            to_device(x, dtype, device), y, places, RANK=rank, DESCENDING=descending, num_warps=num_warps
        )
        expected = np.argsort(x, kind="stable")[:: -1 if descending else 1]
        np.testing.assert_array_equal(to_host(y), x[expected])
        np.testing.assert_array_equal(to_host(places), expected)


def test_sums_that_look_like_half_of_a_pair(device):
    text = """
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, FACTORS: tl.constexpr):
    at = tl.arange(0, 2)[:, None] * 8 + tl.arange(0, 8)[None, :]
    x = tl.load(x_ptr + at)
    weights = tl.arange(0, 2)[:, None] * FACTORS[1] + FACTORS[0]
    both = tl.sum(x * weights, 0)
    tl.store(y_ptr + at, tl.broadcast_to(both[None, :], x.shape))
    tl.store(z_ptr + tl.arange(0, 8), both)
"""
    x = np.random.default_rng(2).integers(-(2**31), 2**31, (2, 8)).astype(np.int32)
    for first, step in ((1, -1), (0, 1), (1, 0), (2, -2), (0, 2), (-1, 1), (1, 1)):
        y, z = to_device(np.zeros_like(x), "int32", device), to_device(np.zeros(8, np.int32), "int32", device)
        module(text).kernel[(1,)](to_device(x, "int32", device), y, z, FACTORS=(first, step))
        expected = x[0] * np.int32(first) + x[1] * np.int32(first + step)
        np.testing.assert_array_equal(to_host(y), np.tile(expected, (2, 1)), err_msg=f"{first} {step}")
        np.testing.assert_array_equal(to_host(z), expected, err_msg=f"{first} {step}")
