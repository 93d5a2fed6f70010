"""`input_precision` "tf32x3", "bf16x3" and "bf16x6": products of fp32 on tensor cores, by parts of their operands."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import empty, module, to_device, to_host

from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource, compile

SOURCE = """@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DEPTH: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, DEPTH)
    acc = tl.zeros([M, N], tl.float32)
    for start in range(0, K, DEPTH):
        a = tl.load(a_ptr + i[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + j[None, :])
        acc = tl.dot(a, b, acc, input_precision="{precision}")
    tl.store(out_ptr + i[:, None] * N + j[None, :], acc)
"""

# How far a product may be off, in units of the sum of the absolute values of what is added: what the parts leave out,
# and the roundings of the sum.
BOUND = {"ieee": 2.0**-21, "tf32x3": 2.0**-20, "bf16x6": 2.0**-20, "bf16x3": 2.0**-15}
SPLIT = ["tf32x3", "bf16x3", "bf16x6"]


def product(precision, a, b, device, depth):
    (m, k), n = a.shape, b.shape[1]
    out = empty((m, n), "float32", device)
    operands = [to_device(value, "float32", device) for value in (a, b)]
    kernel = module(SOURCE.format(precision=precision)).kernel
    kernel[(1,)](*operands, out, M=m, N=n, K=k, DEPTH=depth)
    return to_host(out)


@pytest.mark.parametrize("precision", [*BOUND])
@pytest.mark.parametrize(
    ("shape", "depth"), [((16, 16, 32), 16), ((64, 32, 64), 32), ((20, 24, 48), 24)], ids=str
)
def test_a_split_product_is_nearly_as_exact_as_fp32(precision, shape, depth, device):
    m, n, k = shape
    rng = np.random.default_rng(7)
    # Magnitudes from 2^-12 to 2^12, so that small products meet large sums.
    a, b = (
        (rng.standard_normal(size) * 2.0 ** rng.integers(-12, 13, size)).astype(np.float32)
        for size in ((m, k), (k, n))
    )
    found = product(precision, a, b, device, depth).astype(np.float64)
    wide, size = a.astype(np.float64) @ b, np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    error = np.abs(found - wide) / size
    assert error.max() < BOUND[precision], error.max()


@pytest.mark.parametrize("precision", SPLIT)
def test_what_no_number_is_stays(precision, device):
    """Infinities, NaN, the largest numbers and zeros give what fp32 gives, though a part of an infinity is none."""
    a, b = np.full((64, 32), 1.25, np.float32), np.full((32, 16), 1 + 2.0**-20, np.float32)
    b[:, 3] = 1 - 2.0**-20
    a[0, 3], a[1, 2], a[2, 5], a[3, 7] = np.inf, -np.inf, np.nan, np.finfo(np.float32).max
    a[4, 1], a[4, 2] = np.inf, -np.inf
    a[5], a[6] = 0.0, -0.0
    a[7, 9] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    b[7, 5] = -np.inf
    b[3, 6] = 0.0
    found = product(precision, a, b, device, 32)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = np.array([[np.sum(row.astype(np.float64) * column) for column in b.T] for row in a])
        expected = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    np.testing.assert_allclose(found, expected, rtol=2e-4 if precision == "bf16x3" else 2e-6, atol=0)


@pytest.mark.parametrize("capability", [75, 80, 90])
@pytest.mark.parametrize("precision", SPLIT)
def test_tensor_cores_multiply_the_parts(precision, capability):
    kernel = module(SOURCE.format(precision=precision)).kernel
    types = dict.fromkeys(("a_ptr", "b_ptr", "out_ptr"), "*fp32")
    sizes = {"M": 64, "N": 32, "K": 64, "DEPTH": 32}
    source = ASTSource(kernel, {**types, **dict.fromkeys(sizes, "constexpr")}, sizes)
    text = compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    dtype = "tf32" if precision == "tf32x3" else "bf16"
    pattern = {75: "unused", 80: rf"mma\.sync\.\S*{dtype}", 90: rf"wgmma\.mma_async\.\S*{dtype}"}[capability]
    found = len(re.findall(pattern, text))
    if capability == 75:
        assert "mma" not in text
    else:
        assert found > 0
        assert found % (6 if precision == "bf16x6" else 3) == 0
