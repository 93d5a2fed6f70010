"""Reductions: the library's own and `tl.reduce` with a function of the user, along every axis, of every type."""

import numpy as np
import pytest
import torch
from helpers import (
    CARRIER,
    DTYPES,
    FLOATS,
    INTEGERS,
    assert_same,
    assert_within,
    bits,
    convert,
    empty,
    is_float,
    is_unsigned,
    moderate_values,
    module,
    sample,
    to_device,
    to_host,
)

import tilewright as triton
import tilewright.language as tl

REDUCE = """@triton.jit
def kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    result = {expression}
    tl.static_assert(result.dtype == out_ptr.dtype.element_ty)
    tl.static_assert(len(result.shape) == {rank})
    {store}
"""
STORES = {
    0: "tl.store(out_ptr, result)",
    1: "tl.store(out_ptr + tl.arange(0, result.shape[0]), result)",
    2: "tl.store(out_ptr + tl.arange(0, result.shape[0])[:, None] * result.shape[1] "
    "+ tl.arange(0, result.shape[1])[None, :], result)",
}


def reduced(expression, x, dtype, out, shape, device="cpu"):
    """`expression` of a matrix x, as an array of this shape and element type."""
    text = REDUCE.format(expression=expression, rank=len(shape), store=STORES[len(shape)])
    result = empty(shape, out, device)
    module(text).kernel[(1,)](to_device(x, dtype, device), result, M=x.shape[0], N=x.shape[1])
    return to_host(result)


def accumulator(dtype, *, is_sum):
    """The element type in which the library reduces: narrow integers in 32 bits; extrema of narrow floats in fp32."""
    if is_float(dtype):
        return dtype if is_sum or bits(dtype) >= 32 else "float32"
    if bits(dtype) >= 32:
        return dtype
    return "uint32" if is_sum and is_unsigned(dtype) else "int32"


AXES = [(None, False), (0, False), (1, False), (-1, False), (-2, True), (0, True), (1, True), (None, True)]


def shape_after(shape, axis, keep):
    if axis is None:
        return (1, 1) if keep else ()
    axis %= 2
    return tuple(1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis)


@pytest.mark.parametrize(("axis", "keep"), AXES)
@pytest.mark.parametrize("dtype", ["int1", *INTEGERS])
def test_sums_of_integers_wrap_in_their_accumulator(dtype, axis, keep, device):
    x = sample(dtype, 32 * 64)[: 32 * 64].reshape(32, 64)
    out = accumulator(dtype, is_sum=True)
    expected = convert(x, out).sum(axis=axis, keepdims=keep, dtype=out)
    shape = shape_after(x.shape, axis, keep)
    found = reduced(f"tl.sum(x, axis={axis}, keep_dims={keep})", x, dtype, out, shape, device)
    assert_same(found, np.asarray(expected).reshape(shape))


@pytest.mark.parametrize(("axis", "keep"), AXES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_floats(dtype, axis, keep, device):
    x = moderate_values(dtype, (32, 64))
    wide = x.astype(np.longdouble)
    truth, scale = wide.sum(axis=axis, keepdims=keep), np.abs(wide).sum(axis=axis, keepdims=keep)
    shape = shape_after(x.shape, axis, keep)
    found = reduced(f"tl.sum(x, axis={axis}, keep_dims={keep})", x, dtype, dtype, shape, device)
    # In a tree or in order: each addition is off by half a unit of a partial sum, which `scale` bounds.
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    depth = x.size if axis is None else x.shape[axis]
    tolerance = np.asarray(scale).reshape(shape) * 2.0**-digits * np.sqrt(depth)
    assert (np.abs(found.astype(np.longdouble) - np.asarray(truth).reshape(shape)) <= tolerance).all()


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int32", "bfloat16"])
@pytest.mark.parametrize("out", ["float32", "int64", "float64"])
def test_sum_in_another_type(dtype, out, device):
    x = moderate_values(dtype, (16, 128))
    if is_float(dtype) and not is_float(out):
        x = np.trunc(x)
    expected = x.astype(np.float64).sum(axis=1)
    found = reduced(f"tl.sum(x, axis=1, dtype=tl.{out})", x, dtype, out, (16,), device)
    if is_float(out):
        assert_within(found, expected, out, 16)
    else:
        assert_same(found, expected.astype(out))


@pytest.mark.parametrize(("axis", "keep"), AXES)
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extrema(name, dtype, axis, keep, device):
    x = moderate_values(dtype, (32, 64)) if is_float(dtype) else sample(dtype, 2048)[:2048].reshape(32, 64)
    out = accumulator(dtype, is_sum=False)
    if dtype == "uint32" or dtype == "uint64":
        assert out == dtype
    expected = getattr(np, name)(convert(x, out), axis=axis, keepdims=keep)
    shape = shape_after(x.shape, axis, keep)
    found = reduced(f"tl.{name}(x, axis={axis}, keep_dims={keep})", x, dtype, out, shape, device)
    assert_same(found, np.asarray(expected).reshape(shape))


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_extrema_skip_nan_unless_there_is_nothing_else(name, dtype, device):
    x = moderate_values(dtype, (8, 16))
    x[0, 3] = x[1, 0] = x[2, 15] = np.nan
    x[3, 1:] = np.nan
    x[4, :] = np.nan
    x[5, 4] = np.inf
    x[6, 4] = -np.inf
    x[7, ::2] = 0.0
    x[7, 1::2] = -0.0
    out = accumulator(dtype, is_sum=False)
    expected = getattr(np, f"f{name}").reduce(convert(x, out), axis=1)
    expected[7] = 0.0 if name == "max" else -0.0
    found = reduced(f"tl.{name}(x, axis=1)", x, dtype, out, (8,), device)
    assert_same(found, expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "int1"])
def test_places_of_extrema_take_the_first_of_equals(name, dtype, axis, device):
    rng = np.random.default_rng(3)
    x = convert(rng.integers(0, 12, (32, 64)), dtype)
    expected = getattr(np, name)(x, axis=axis).astype(np.int32)
    shape = shape_after(x.shape, axis, keep=False)
    assert_same(reduced(f"tl.{name}(x, axis={axis})", x, dtype, "int32", shape, device), expected)
    shape = shape_after(x.shape, axis, keep=True)
    found = reduced(f"tl.{name}(x, {axis}, keep_dims=True)", x, dtype, "int32", shape, device)
    assert_same(found, expected.reshape(shape))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extrema_without_tie_breaking_are_the_last(name, device):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 5, (16, 128)).astype(np.float32)
    found = reduced(f"tl.{name}(x, axis=1, tie_break_left=False)", x, "float32", "int32", (16,), device)
    assert_same(found, (127 - getattr(np, name)(np.flip(x, 1), axis=1)).astype(np.int32))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extrema_skip_nan(name, device):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 5, (16, 128)).astype(np.float32)
    x[rng.random(x.shape) < 0.5] = np.nan
    x[3, 1:], x[3, 0], x[4, :-1], x[4, -1] = np.nan, 1, np.nan, 2
    expected = getattr(np, f"nan{name}")(x, axis=1).astype(np.int32)
    assert_same(reduced(f"tl.{name}(x, axis=1)", x, "float32", "int32", (16,), device), expected)
    x[5] = np.nan
    expected[5] = 0
    assert_same(reduced(f"tl.{name}(x, axis=1)", x, "float32", "int32", (16,), device), expected)


@triton.jit
def max_with_indices_kernel(
    x_ptr, value_ptr, index_ptr, M: tl.constexpr, N: tl.constexpr, LARGEST: tl.constexpr
):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if LARGEST:
        value, index = tl.max(x, axis=1, return_indices=True)
    else:
        value, index = tl.min(x, axis=1, return_indices=True, keep_dims=False)
    tl.static_assert(value.dtype == x.dtype)
    tl.store(value_ptr + tl.arange(0, M), value)
    tl.store(index_ptr + tl.arange(0, M), index)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "float16"])
def test_extrema_with_their_places(dtype, largest, device):
    x = convert(np.random.default_rng(9).integers(-20, 20, (16, 64)), dtype)
    value, index = empty((16,), dtype, device), empty((16,), "int32", device)
    max_with_indices_kernel[(1,)](to_device(x, dtype, device), value, index, M=16, N=64, LARGEST=largest)
    pick, place = (np.max, np.argmax) if largest else (np.min, np.argmin)
    assert_same(to_host(value), pick(x, axis=1))
    assert_same(to_host(index), place(x, axis=1).astype(np.int32))


@pytest.mark.parametrize(("axis", "keep"), AXES)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "int8", "uint16"])
def test_exclusive_or(dtype, axis, keep, device):
    x = sample(dtype, 2048)[:2048].reshape(32, 64)
    shape = shape_after(x.shape, axis, keep)
    flat = x.reshape(-1) if axis is None else x
    expected = np.bitwise_xor.reduce(flat, axis=0 if axis is None else axis)
    found = reduced(f"tl.xor_sum(x, axis={axis}, keep_dims={keep})", x, dtype, dtype, shape, device)
    assert_same(found, np.asarray(expected).reshape(shape))


@pytest.mark.parametrize(
    "expression", ["x.sum(1)", "x.sum(axis=1)", "tl.sum(x, 1)", "x.max(1)", "(x + 1).min(1) - 1"]
)
def test_reductions_as_methods(expression, device):
    x = np.random.default_rng(1).integers(-99, 99, (8, 32)).astype(np.int32)
    name = next(name for name in ("sum", "max", "min") if name in expression)
    expected = getattr(np, name)(x, axis=1).astype(np.int32)
    assert_same(reduced(expression, x, "int32", "int32", (8,), device), expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (64, 1), (2, 1024), (256, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_thin_tiles(shape, axis, device):
    x = np.random.default_rng(2).integers(-99, 99, shape).astype(np.int64)
    after = shape_after(shape, axis, keep=False)
    for name in ("sum", "max"):
        found = reduced(f"tl.{name}(x, axis={axis})", x, "int64", "int64", after, device)
        assert_same(found, getattr(np, name)(x, axis=axis))


# --- Functions of the user ---


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def bit_or(a, b):
    return a | b


@triton.jit
def largest_magnitude(a, b):
    return tl.where(tl.abs(a) >= tl.abs(b), a, b)


@triton.jit
def user_reduce_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, COMBINE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr + tl.arange(0, M), tl.reduce(x, 1, COMBINE))
    tl.store(out_ptr + M + tl.arange(0, N)[None, :], tl.reduce(x, 0, COMBINE, keep_dims=True))


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (multiply, lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype)),
        (bit_or, lambda x, axis: np.bitwise_or.reduce(x, axis=axis)),
        (largest_magnitude, lambda x, axis: np.take_along_axis(
            x, np.expand_dims(np.abs(x).argmax(axis), axis), axis).squeeze(axis)),
    ],
    ids=["multiply", "or", "magnitude"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reduce_with_a_function_of_the_user(combine, expected, dtype, device):
    rng = np.random.default_rng(8)
    # Magnitudes occur once each, so that the order of combination does not matter.
    x = (rng.permutation(8 * 32).reshape(8, 32) * 2 + 1).astype(dtype) * rng.choice([-1, 1], (8, 32)).astype(
        dtype
    )
    out = empty((40,), dtype, device)
    user_reduce_kernel[(1,)](to_device(x, dtype, device), out, M=8, N=32, COMBINE=combine)
    with np.errstate(over="ignore"):
        assert_same(to_host(out), np.concatenate([expected(x, 1), expected(x, 0)]))


@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def welford_kernel(x_ptr, mean_ptr, variance_ptr, n, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    mask = (column < n) & (row >= 0)
    x = tl.load(x_ptr + row * n + column, mask=mask, other=0.0)
    weight = mask.to(tl.float32)
    mean, m2, count = tl.reduce((x, tl.zeros_like(x), weight), 1, welford_combine)
    tl.store(mean_ptr + tl.arange(0, M), mean)
    tl.store(variance_ptr + tl.arange(0, M), m2 / count)


@pytest.mark.parametrize("n", [1, 5, 100, 128])
def test_welford(n, device):
    x = np.random.default_rng(n).standard_normal((8, n)).astype(np.float32) + 100
    mean, variance = empty((8,), "float32", device), empty((8,), "float32", device)
    welford_kernel[(1,)](to_device(x, "float32", device), mean, variance, n, M=8, N=128)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(to_host(mean), wide.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(to_host(variance), wide.var(axis=1), rtol=2e-4, atol=1e-6)


@triton.jit
def three_axes_kernel(x_ptr, out_ptr, AXIS: tl.constexpr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    x = tl.load(x_ptr + (i * B + j) * C + k)
    result = tl.sum(x, axis=AXIS)
    rows: tl.constexpr = result.shape[0]
    columns: tl.constexpr = result.shape[1]
    tl.store(out_ptr + tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :], result)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_three_axes(dtype, axis, device):
    x = convert(np.random.default_rng(6).integers(-50, 50, (4, 8, 16)), dtype)
    expected = x.sum(axis=axis, dtype=CARRIER[dtype])
    out = empty(expected.shape, dtype, device)
    three_axes_kernel[(1,)](to_device(x, dtype, device), out, AXIS=axis, A=4, B=8, C=16)
    assert_same(to_host(out), expected)


@triton.jit
def reduce_in_loop_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    largest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
        new = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), axis=0)
        largest = new
    tl.store(out_ptr, largest + tl.log(total))


@pytest.mark.parametrize("n", [1, 100, 1000])
def test_streaming_logsumexp(n, device):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(device) * 10
    out = torch.zeros(1, device=device)
    reduce_in_loop_kernel[(1,)](x, out, n, BLOCK=64)
    torch.testing.assert_close(out[0], torch.logsumexp(x.double(), 0).float(), rtol=1e-6, atol=1e-6)


@triton.jit
def common_divisor(a, b):
    # The loop only ends for positive numbers, and no element that pads a tile may run it.
    while a != b:
        if a > b:
            a -= b
        else:
            b -= a
    return a


@triton.jit
def divisors_kernel(
    x_ptr, all_ptr, row_ptr, column_ptr, scan_ptr, back_ptr, M: tl.constexpr, N: tl.constexpr
):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    x = tl.load(x_ptr + at)
    tl.store(all_ptr, tl.reduce(x, None, common_divisor))
    tl.store(row_ptr + i, tl.reduce(x, 1, common_divisor))
    tl.store(column_ptr + j, tl.reduce(x, 0, common_divisor))
    tl.store(scan_ptr + at, tl.associative_scan(x, 1, common_divisor))
    tl.store(back_ptr + at, tl.associative_scan(x, 0, common_divisor, reverse=True))


@pytest.mark.parametrize("shape", [(4, 8), (3, 5), (4, 5), (5, 4)], ids=str)
def test_a_combination_that_loops_does_not_see_padding(shape, device):
    m, n = shape
    x = np.random.default_rng(m * n).integers(1, 30, shape, dtype=np.int32) * 6
    outs = [empty(one, "int32", device) for one in ((1,), (m,), (n,), shape, shape)]
    divisors_kernel[(1,)](to_device(x, "int32", device), *outs, m, n)
    found = [to_host(out) for out in outs]
    assert_same(found[0], np.gcd.reduce(x.ravel()).reshape(1))
    assert_same(found[1], np.gcd.reduce(x, axis=1))
    assert_same(found[2], np.gcd.reduce(x, axis=0))
    assert_same(found[3], np.gcd.accumulate(x, axis=1))
    assert_same(found[4], np.gcd.accumulate(x[::-1], axis=0)[::-1])
