"""Checks of integers that debug mode makes: what overflows stops the launch, what does not is as before."""

import numpy as np
import pytest
import torch
from conftest import ON_GPU
from helpers import assert_same, empty, module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

KERNEL = """@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, {expression})
"""
NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
OPERATIONS = {"add": ("x + y", np.add), "sub": ("x - y", np.subtract), "mul": ("x * y", np.multiply)}


def launch(expression, dtype, x, y, device, **options):
    out = empty((len(x),), dtype, device)
    kernel = module(KERNEL.format(expression=expression)).kernel
    kernel[(1,)](to_device(x, dtype, device), to_device(y, dtype, device), out, N=len(x), **options)
    return to_host(out)


def pairs(name, dtype):
    """Eight pairs that do not overflow, and one that overflows by the smallest amount."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    good = {
        "add": [
            (high - 1, 1),
            (high, 0),
            (low, 0),
            (1, 2),
            (low, high),
            (0, high),
            (high // 2, high // 2),
            (0, 0),
        ],
        "sub": [(high, 1), (high, high), (low, 0), (3, 2), (high, 0), (low + 1, 1), (5, 5), (0, 0)],
        "mul": [(high, 1), (high // 2, 2), (low, 1), (3, 5), (0, high), (1, low), (high // 3, 3), (0, 0)],
    }
    bad = {"add": (high, 1), "sub": (low, 1), "mul": (high // 2 + 1, 2)}
    return good[name], bad[name]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.skipif(ON_GPU, reason="a failed assertion is the end of a process's work on a GPU")
def test_sums_differences_and_products(name, dtype, device):
    expression, function = OPERATIONS[name]
    good, bad = pairs(name, dtype)
    x, y = (np.array([pair[side] for pair in good], np.int64).astype(dtype) for side in (0, 1))
    with np.errstate(over="ignore"):
        assert_same(launch(expression, dtype, x, y, device, debug=True), function(x, y).astype(dtype))
        x[5], y[5] = bad
        wrapped = function(x, y).astype(dtype)
    message = f"{dtype} overflow detected for operation {name}"
    with pytest.raises(AssertionError, match=message):
        launch(expression, dtype, x, y, device, debug=True)
    assert_same(launch(expression, dtype, x, y, device), wrapped)
    assert_same(launch(expression, dtype, x, y, device, debug=True, sanitize_overflow=False), wrapped)
    unchecked = f"tl.{name}(x, y, sanitize_overflow=False)"
    assert_same(launch(unchecked, dtype, x, y, device, debug=True), wrapped)
    with pytest.raises(AssertionError, match=message):
        launch(f"tl.{name}(x, y)", dtype, x, y, device, debug=True)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_divisors_are_not_checked_where_overflow_is_not(dtype, device):
    """As torch.compile asks for it: its kernels divide in lanes that a mask discards, which hold 0."""
    x, y = np.arange(1, 9).astype(dtype), np.array([3, 1, 0, 5, 2, 0, 7, 1]).astype(dtype)
    found = launch(
        "tl.where(y == 0, 77, x // y + x % y)", dtype, x, y, device, debug=True, sanitize_overflow=False
    )
    divisor = np.where(y == 0, 1, y)
    assert_same(found, np.where(y == 0, 77, x // divisor + x % divisor).astype(dtype))


def test_random_numbers_and_wide_integers_wrap(device):
    x = np.full(64, np.iinfo(np.int64).max)
    with np.errstate(over="ignore"):
        assert_same(launch("x * y", "int64", x, x, device, debug=True), x * x)
    expression = "(tl.rand(7, i) * 1e6).to(tl.int32)"
    zeros = np.zeros(64, np.int32)
    assert_same(
        launch(expression, "int32", zeros, zeros, device, debug=True),
        launch(expression, "int32", zeros, zeros, device),
    )


def test_functions_of_the_library_wrap_as_they_mean_to(device):
    x = np.arange(64, dtype=np.int32) - 7
    for expression in ("tl.extra.libdevice.popc(x)", "tl.sum(x * 0 + 2147483647, 0) + y * 0"):
        assert_same(
            launch(expression, "int32", x, x, device, debug=True), launch(expression, "int32", x, x, device)
        )


def test_sums_of_a_tile(device):
    x = np.arange(64, dtype=np.int32)
    found = launch("x * 0 + tl.sum(x, 0) + tl.max(y, 0)", "int32", x, x, device, debug=True)
    assert_same(found, np.full(64, x.sum() + 63, np.int32))


@triton.jit
def zero_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.expect_zero(x, i >= 8))


@pytest.mark.skipif(ON_GPU, reason="a failed assertion is the end of a process's work on a GPU")
def test_zeros_that_are_expected(device):
    x = torch.arange(16, dtype=torch.float32, device=device)
    x[8:] = 0
    out = torch.empty_like(x)
    zero_kernel[(1,)](x, out, N=16, debug=True)
    assert torch.equal(out, x)
    x[9] = 1
    zero_kernel[(1,)](x, out, N=16)
    assert torch.equal(out, x)
    with pytest.raises(AssertionError, match="expected zero"):
        zero_kernel[(1,)](x, out, N=16, debug=True)


@triton.jit
def custom_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    narrow = tl.extra.cuda.convert_custom_float8_sm80(x, tl.float8e4b15)
    tl.store(out_ptr + i, tl.extra.cuda.convert_custom_float8_sm70(narrow, tl.float16))


def test_conversions_of_float8e4b15_by_their_names(device):
    x = torch.tensor([0, 0.5, 1, -1.75, 1.875, 0.3, -0.0, 2.0**-15], dtype=torch.float16, device=device)
    out = torch.empty_like(x)
    custom_kernel[(1,)](x, out, N=8)
    assert out.tolist() == [0, 0.5, 1, -1.75, 1.875, 0.3125, 0, 2.0**-15]
