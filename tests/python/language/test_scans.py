"""Scans, and reductions that must keep the order: by functions that are associative and nothing else."""

import numpy as np
import pytest
from helpers import (
    INTEGERS,
    assert_same,
    bits,
    convert,
    empty,
    is_float,
    is_unsigned,
    module,
    sample,
    to_device,
    to_host,
)

KERNEL = """
{functions}

@triton.jit
def kernel({pointers}, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    {loads}
    results = {expression}
    {stores}
"""

# Associative, and none commutes: composition of affine functions, products of 2x2 matrices modulo a prime, the first
# number that is not 0, and strings of hexadecimal digits (their length and their last eight).
AFFINE = """@triton.jit
def combine(a, b, c, d):
    return a * c, b * c + d"""
MATRIX = """@triton.jit
def combine(a, b, c, d, e, f, g, h):
    p: tl.constexpr = 251
    return (a * e + b * g) % p, (a * f + b * h) % p, (c * e + d * g) % p, (c * f + d * h) % p"""
FIRST = """@triton.jit
def combine(a, b):
    return tl.where(a != 0, a, b)"""
PACKED = """@triton.jit
def combine(a, n, b, m):
    return tl.where(m > 7, b, (a << (4 * m).to(tl.uint32)) | b), n + m"""


def affine(x, y):
    with np.errstate(over="ignore"):
        return x[0] * y[0], x[1] * y[0] + y[1]


def matrix(x, y):
    (a, b, c, d), (e, f, g, h) = x, y
    return (a * e + b * g) % 251, (a * f + b * h) % 251, (c * e + d * g) % 251, (c * f + d * h) % 251


def first(x, y):
    return (np.where(x[0] != 0, x[0], y[0]),)


def packed(x, y):
    shift = (4 * np.minimum(y[1], 7)).astype(np.uint32)
    return np.where(y[1] > 7, y[0], (x[0] << shift) | y[0]), x[1] + y[1]


def operands(name, shape, rng):
    if name == "affine":
        return [rng.integers(-(2**31), 2**31, shape).astype(np.int32) for _ in range(2)]
    if name == "matrix":
        return [rng.integers(0, 251, shape).astype(np.int32) for _ in range(4)]
    if name == "first":
        return [(rng.integers(1, 100, shape) * (rng.random(shape) < 0.02)).astype(np.float32)]
    return [rng.integers(0, 16, shape).astype(np.uint32), np.ones(shape, np.int32)]


FUNCTIONS = {
    "affine": (AFFINE, affine),
    "matrix": (MATRIX, matrix),
    "first": (FIRST, first),
    "packed": (PACKED, packed),
}


def scanned(function, tiles, axis, reverse):
    """The result of a scan, computed one slice after the other."""
    tiles = [np.moveaxis(tile, axis, 0) for tile in tiles]
    order = range(len(tiles[0]))[::-1] if reverse else range(len(tiles[0]))
    out = [tile.copy() for tile in tiles]
    before = None
    for k in order:
        now = tuple(tile[k] for tile in tiles)
        before = now if before is None else function(before, now)
        for tile, value in zip(out, before, strict=True):
            tile[k] = value
    return [np.moveaxis(tile, 0, axis) for tile in out]


def run(functions, expression, inputs, outputs, device, num_warps=4, rank=2):
    """The results of `expression` of the tiles x0, x1, …"""
    names = [f"x{k}" for k in range(len(inputs))]
    results = [f"y{k}" for k in range(len(outputs))]
    where = "at" if rank == 2 else "tl.arange(0, results[0].shape[0])"
    text = KERNEL.format(
        functions=functions,
        pointers=", ".join(f"{name}_ptr" for name in names + results),
        loads="\n    ".join(f"{name} = tl.load({name}_ptr + at)" for name in names),
        expression=expression,
        stores="\n    ".join(
            f"tl.store({name}_ptr + {where}, results[{k}])" for k, name in enumerate(results)
        ),
    )
    arguments = [to_device(array, dtype, device) for array, dtype in [*inputs, *outputs]]
    shape = inputs[0][0].shape
    module(text).kernel[(1,)](*arguments, M=shape[0], N=shape[1], num_warps=num_warps)
    return [to_host(argument) for argument in arguments[len(inputs) :]]


SHAPES = [(1, 128), (8, 64), (64, 8), (2, 512), (1, 2048), (128, 2), (32, 32), (1, 2), (4, 1), (16, 256)]
CASES = [(shape, 2**k) for n, shape in enumerate(SHAPES) for k in (n % 4, (n + 2) % 4)] + [((2, 1024), 16)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_order_is_kept(name, axis, device):
    functions, function = FUNCTIONS[name]
    rng = np.random.default_rng(7)
    for number, (shape, num_warps) in enumerate(CASES):
        tiles = operands(name, shape, rng)
        typed = [(tile, tile.dtype.name) for tile in tiles]
        names = "(" + ", ".join(f"x{k}" for k in range(len(tiles))) + ",)"
        reverse = number % 2 == 1
        scan = f"tl.associative_scan({names}, {axis}, combine, reverse={reverse})"
        found = run(
            functions, scan, typed, [(np.zeros_like(t), t.dtype.name) for t in tiles], device, num_warps
        )
        for result, expected in zip(found, scanned(function, tiles, axis, reverse), strict=True):
            np.testing.assert_array_equal(result, expected, err_msg=f"scan {shape} {num_warps} {reverse}")
        reduce = f"tl.reduce({names}, {axis}, combine)"
        ends = [tile.take(-1, axis) for tile in scanned(function, tiles, axis, False)]
        found = run(
            functions,
            reduce,
            typed,
            [(np.zeros_like(t), t.dtype.name) for t in ends],
            device,
            num_warps,
            rank=1,
        )
        for result, expected in zip(found, ends, strict=True):
            np.testing.assert_array_equal(result, expected, err_msg=f"reduce {shape} {num_warps}")


@pytest.mark.parametrize("num_warps", [1, 8])
def test_reductions_to_scalars_keep_the_order(num_warps, device):
    rng = np.random.default_rng(3)
    for name, (functions, function) in FUNCTIONS.items():
        tiles = operands(name, (16, 64), rng)
        names = "(" + ", ".join(f"x{k}" for k in range(len(tiles))) + ",)"
        flat = [tile.reshape(-1) for tile in tiles]
        ends = [tile[-1:] for tile in scanned(function, flat, 0, False)]
        stores = f"[tl.full([1], value, value.dtype) for value in tl.reduce({names}, None, combine)]"
        typed = [(tile, tile.dtype.name) for tile in tiles]
        found = run(
            functions, stores, typed, [(np.zeros_like(t), t.dtype.name) for t in ends], device, num_warps, 1
        )
        for result, expected in zip(found, ends, strict=True):
            np.testing.assert_array_equal(result, expected, err_msg=name)


def scan_type(dtype):
    """The type that `cumsum` and `cumprod` give."""
    if is_float(dtype):
        return dtype
    if bits(dtype) >= 32:
        return dtype
    return "uint32" if is_unsigned(dtype) else "int32"


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["int1", *INTEGERS])
def test_sums_and_products_of_integers(dtype, name, device):
    x = sample(dtype, 16 * 32)[: 16 * 32].reshape(16, 32)
    out = scan_type(dtype)
    function = np.add if name == "cumsum" else np.multiply
    for axis, reverse in [(0, False), (1, False), (1, True), (-2, True)]:
        wide = convert(x, out)
        ordered = np.flip(wide, axis) if reverse else wide
        expected = function.accumulate(ordered, axis=axis, dtype=wide.dtype)
        expected = np.flip(expected, axis) if reverse else expected
        expression = f"(tl.{name}(x0, {axis}, reverse={reverse}),)"
        [found] = run("", expression, [(x, dtype)], [(np.zeros(x.shape, wide.dtype), out)], device)
        assert_same(found, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sums_of_floats(dtype, device):
    # Small integers, so that the sums are exact where fp32 is wide enough for them.
    x = np.random.default_rng(5).integers(-3, 4, (4, 128)).astype(np.float64)
    out = scan_type(dtype)
    as_type = "float64" if dtype == "float64" else "float32"
    for axis, reverse in [(1, False), (0, True)]:
        ordered = np.flip(x, axis) if reverse else x
        expected = np.cumsum(ordered, axis=axis)
        expected = np.flip(expected, axis) if reverse else expected
        expression = f"(x0.cumsum({axis}, {reverse}).to(tl.{as_type}),)"
        [found] = run(
            "",
            expression,
            [(convert(x.astype(np.float32), dtype), dtype)],
            [(np.zeros(x.shape, as_type), as_type)],
            device,
        )
        np.testing.assert_array_equal(found, expected)
    text = f"(tl.static_assert(tl.cumsum(x0, 0).dtype == tl.{out}), tl.cumsum(x0, 0).to(tl.float32))[1:]"
    run(
        "",
        text,
        [(convert(x.astype(np.float32), dtype), dtype)],
        [(np.zeros(x.shape, np.float32), "float32")],
        device,
    )


def test_the_type_of_the_sums_may_be_chosen(device):
    x = np.full((2, 64), 100, np.int8)
    [found] = run(
        "",
        "(tl.cumsum(x0, 1, dtype=tl.int8),)",
        [(x, "int8")],
        [(np.zeros((2, 64), np.int8), "int8")],
        device,
    )
    assert_same(found, np.cumsum(x, axis=1, dtype=np.int8))
    [found] = run(
        "", "(tl.cumsum(x0, 1, dtype=tl.int64),)", [(x, "int8")], [(np.zeros((2, 64)), "int64")], device
    )
    np.testing.assert_array_equal(found, np.cumsum(x, axis=1, dtype=np.int64))


def test_what_loops_and_scans_share(device):
    """A scan in a loop, of what it carries; with a branch in the function; of tiles that are uniform along an axis."""
    text = """
@triton.jit
def larger(a, b):
    if b > a:
        return b
    else:
        return a

@triton.jit
def either(a, b):
    return a | b

@triton.jit
def kernel(x_ptr, y_ptr, any_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    for _ in range(3):
        x = tl.cumsum(x, 0) % 17
    tl.store(y_ptr + at, tl.associative_scan(x, 0, larger))
    tl.store(any_ptr + at, tl.associative_scan(x > 15, 0, either, reverse=True).to(tl.int32))
    same = tl.broadcast_to(x[:, None], (N, 8))
    tl.store(z_ptr + at[:, None] * 8 + tl.arange(0, 8)[None, :], tl.cumsum(tl.cumsum(same, 1), 0))
"""
    x = np.random.default_rng(1).integers(0, 17, 128).astype(np.int32)
    y, any_, z = (empty(shape, "int32", device) for shape in [(128,), (128,), (128, 8)])
    module(text).kernel[(1,)](to_device(x, "int32", device), y, any_, z, N=128)
    for _ in range(3):
        x = np.cumsum(x, dtype=np.int32) % 17
    assert_same(to_host(y), np.maximum.accumulate(x))
    assert_same(to_host(any_), np.logical_or.accumulate(x[::-1] > 15)[::-1].astype(np.int32))
    assert_same(to_host(z), np.cumsum(x[:, None] * np.arange(1, 9)[None, :], axis=0).astype(np.int32))
