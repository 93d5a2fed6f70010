"""Products of microscaled matrices against binary64: every pair of formats, packing, scales, accumulators."""

import itertools

import numpy as np
import pytest
import torch
from helpers import module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FORMATS = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")
TORCH = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def matrix(format, shape, axis, rng):
    """The values in binary64, and the tensor that holds them; of e2m1, packed along the axis."""
    if format == "e2m1":
        codes = rng.integers(0, 16, shape, np.uint8)
        even, odd = (np.take(codes, np.arange(first, shape[axis], 2), axis) for first in (0, 1))
        return E2M1[codes], torch.from_numpy(even | odd << 4)
    values = torch.from_numpy(rng.standard_normal(shape) * 4).to(TORCH[format])
    return values.double().numpy(), values


def scales(rows, groups, rng, low=110, high=140):
    """Exponents as bytes, and the factors of the elements."""
    bytes_ = rng.integers(low, high, (rows, groups), np.uint8)
    return bytes_, np.exp2(bytes_.astype(np.float64) - 127)


KERNEL = """@triton.jit
def kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, acc_ptr, out_ptr, AM: tl.constexpr, AK: tl.constexpr, BK: tl.constexpr,
    BN: tl.constexpr, M: tl.constexpr, N: tl.constexpr, G: tl.constexpr,
):
    a = tl.load(a_ptr + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    b = tl.load(b_ptr + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
    g = tl.arange(0, G)[None, :]
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)
    a_scale, b_scale = {scales}
    c = {expression}
    tl.store(out_ptr + i * N + j[None, :], c)
"""
A_SCALE, B_SCALE = "tl.load(a_scale_ptr + i * G + g)", "tl.load(b_scale_ptr + j[:, None] * G + g)"


def product(a, a_scale, b, b_scale, acc, device, *, scales, expression, m, n, k, group=32):
    out = torch.empty(m, n, dtype=torch.float32, device=device)
    tensors = [
        tensor.to(device) for tensor in (a, torch.from_numpy(a_scale), b, torch.from_numpy(b_scale), acc)
    ]
    kernel = module(KERNEL.format(scales=scales, expression=expression)).kernel
    kernel[(1,)](
        *tensors, out, AM=a.shape[0], AK=a.shape[1], BK=b.shape[0], BN=b.shape[1], M=m, N=n, G=k // group
    )  # fmt: skip
    return to_host(out).astype(np.float64)


def assert_product(found, a, b, k):
    """Products are exact: what is left is the error of sums in fp32, relative to the sum of the magnitudes."""
    bound = (np.abs(a) @ np.abs(b)) * 2.0**-24 * (k + 8)
    error = np.abs(found - a @ b)
    assert (error <= bound).all(), float((error / bound).max())


@pytest.mark.parametrize("pair", list(itertools.product(FORMATS, FORMATS)), ids="-".join)
def test_every_pair_of_formats(pair, device):
    m, n, k = 32, 16, 64
    rng = np.random.default_rng(FORMATS.index(pair[0]) * 8 + FORMATS.index(pair[1]))
    a, left = matrix(pair[0], (m, k), 1, rng)
    b, right = matrix(pair[1], (k, n), 0, rng)
    a_scale, a_factor = scales(m, k // 32, rng)
    b_scale, b_factor = scales(n, k // 32, rng)
    found = product(
        left, a_scale, right, b_scale, torch.zeros(m, n), device, m=m, n=n, k=k, scales=f"{A_SCALE}, {B_SCALE}",
        expression=f"tl.dot_scaled(a, a_scale, {pair[0]!r}, b, b_scale, {pair[1]!r})",
    )  # fmt: skip
    assert_product(found, a * np.repeat(a_factor, 32, 1), b * np.repeat(b_factor, 32, 1).T, k)


@pytest.mark.parametrize("has", ["left", "right", "none"])
def test_scales_may_be_left_out(has, device):
    m, n, k = 16, 32, 32
    rng = np.random.default_rng(5)
    a, left = matrix("e4m3", (m, k), 1, rng)
    b, right = matrix("e2m1", (k, n), 0, rng)
    a_scale, a_factor = scales(m, 1, rng)
    b_scale, b_factor = scales(n, 1, rng)
    found = product(
        left, a_scale, right, b_scale, torch.zeros(m, n), device, m=m, n=n, k=k,
        scales=f"{A_SCALE if has == 'left' else None}, {B_SCALE if has == 'right' else None}",
        expression="tl.dot_scaled(a, a_scale, 'e4m3', b, b_scale, 'e2m1')",
    )  # fmt: skip
    a = a * a_factor if has == "left" else a
    b = b * b_factor.T if has == "right" else b
    assert_product(found, a, b, k)


@pytest.mark.parametrize("packs", [(True, False), (False, True), (False, False)], ids=str)
def test_packing_along_m_and_n(packs, device):
    m, n, k = 32, 32, 64
    rng = np.random.default_rng(6)
    a, left = matrix("e2m1", (m, k), 1 if packs[0] else 0, rng)
    b, right = matrix("e2m1", (k, n), 0 if packs[1] else 1, rng)
    a_scale, a_factor = scales(m, 2, rng)
    b_scale, b_factor = scales(n, 2, rng)
    found = product(
        left, a_scale, right, b_scale, torch.zeros(m, n), device, m=m, n=n, k=k, scales=f"{A_SCALE}, {B_SCALE}",
        expression="tl.dot_scaled(a, a_scale, 'e2m1', b, b_scale, 'e2m1', "
        f"lhs_k_pack={packs[0]}, rhs_k_pack={packs[1]})",
    )  # fmt: skip
    assert_product(found, a * np.repeat(a_factor, 32, 1), b * np.repeat(b_factor, 32, 1).T, k)


def test_accumulators_and_result_types(device):
    m, n, k = 16, 16, 32
    rng = np.random.default_rng(7)
    a, left = matrix("e5m2", (m, k), 1, rng)
    b, right = matrix("bf16", (k, n), 0, rng)
    a_scale, a_factor = scales(m, 1, rng, 125, 130)
    acc = torch.from_numpy(rng.standard_normal((m, n)).astype(np.float32))
    common = {"device": device, "m": m, "n": n, "k": k, "scales": f"{A_SCALE}, None"}
    load = "tl.load(acc_ptr + i * N + j[None, :])"
    arguments = "a, a_scale, 'e5m2', b, b_scale, 'bf16'"
    expected = (a * a_factor) @ b + acc.double().numpy()
    found = product(
        left, a_scale, right, a_scale, acc, expression=f"tl.dot_scaled({arguments}, {load})", **common
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
    half = f"tl.dot_scaled({arguments}, acc={load}, out_dtype=tl.bfloat16)"
    found = product(left, a_scale, right, a_scale, acc, expression=half, **common)
    np.testing.assert_allclose(found, expected, rtol=2.0**-8, atol=1e-2)


def test_extreme_scales_and_nan(device):
    """The smallest scale is 2**-127, the largest 2**127, and 255 makes NaN of a group, thus of a row."""
    m, n, k = 16, 16, 32
    a, b = torch.ones(m, k, dtype=torch.float8_e4m3fn), torch.ones(k, n, dtype=torch.float8_e5m2)
    a_scale = np.full((m, 1), 127, np.uint8)
    a_scale[:4, 0] = 0, 254, 255, 1
    b_scale = np.full((n, 1), 127, np.uint8)
    b_scale[:2, 0] = 254, 0
    found = product(
        a, a_scale, b, b_scale, torch.zeros(m, n), device, m=m, n=n, k=k, scales=f"{A_SCALE}, {B_SCALE}",
        expression="tl.dot_scaled(a, a_scale, 'e4m3', b, b_scale, 'e5m2')",
    )  # fmt: skip
    left, right = np.exp2(a_scale.astype(np.float64) - 127), np.exp2(b_scale.astype(np.float64) - 127)
    left[2] = np.nan
    with np.errstate(over="ignore"):
        expected = (k * left * right.T).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(found, expected)


def test_scales_of_fp8_for_groups_of_16(device):
    m, n, k = 16, 16, 32
    rng = np.random.default_rng(8)
    a, left = matrix("e2m1", (m, k), 1, rng)
    b, right = matrix("e2m1", (k, n), 0, rng)
    factors = [torch.from_numpy(rng.uniform(0.5, 4, (16, 2))).to(torch.float8_e4m3fn) for _ in range(2)]
    bytes_ = [factor.view(torch.uint8).numpy() for factor in factors]
    cast = ".to(tl.float8e4nv, bitcast=True)"
    found = product(
        left, bytes_[0], right, bytes_[1], torch.zeros(m, n), device, m=m, n=n, k=k, group=16,
        scales=f"{A_SCALE}{cast}, {B_SCALE}{cast}",
        expression="tl.dot_scaled(a, a_scale, 'e2m1', b, b_scale, 'e2m1')",
    )  # fmt: skip
    wide = [np.repeat(factor.double().numpy(), 16, 1) for factor in factors]
    assert_product(found, a * wide[0], b * wide[1].T, k)


def test_bits_in_place_of_types(device):
    m, n, k = 16, 16, 32
    rng = np.random.default_rng(9)
    a, left = matrix("e4m3", (m, k), 1, rng)
    b, right = matrix("bf16", (k, n), 0, rng)
    found = product(
        left.view(torch.uint8), np.zeros((m, 1), np.uint8), to_device(right.view(torch.int16).numpy(), "int16", device),
        np.zeros((n, 1), np.uint8), torch.zeros(m, n), device, m=m, n=n, k=k, scales="None, None",
        expression="tl.dot_scaled(a, a_scale, 'e4m3', b, b_scale, 'bf16')",
    )  # fmt: skip
    assert_product(found, a, b, k)


@triton.jit
def batched_kernel(
    a_ptr, s_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    batch = tl.arange(0, B)[:, None, None]
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    half, g = tl.arange(0, K // 2), tl.arange(0, K // 32)
    a = tl.load(a_ptr + batch * M * (K // 2) + i[None, :, None] * (K // 2) + half[None, None, :])
    s = tl.load(s_ptr + batch * M * (K // 32) + i[None, :, None] * (K // 32) + g[None, None, :])
    b = tl.load(b_ptr + batch * K * N + k[None, :, None] * N + j[None, None, :])
    c = tl.dot_scaled(a, s, "e2m1", b, None, "bf16")
    tl.store(out_ptr + batch * M * N + i[None, :, None] * N + j[None, None, :], c)


def test_stacks(device):
    count, m, n, k = 2, 16, 16, 64
    rng = np.random.default_rng(10)
    a, left = matrix("e2m1", (count, m, k), 2, rng)
    b, right = matrix("bf16", (count, k, n), 1, rng)
    scale, factor = scales(count * m, 2, rng)
    out = torch.empty(count, m, n, device=device)
    batched_kernel[(1,)](
        left.to(device), torch.from_numpy(scale).to(device), right.to(device), out, B=count, M=m, N=n, K=k
    )
    found = to_host(out).astype(np.float64)
    for index in range(count):
        wide = np.repeat(factor.reshape(count, m, 2)[index], 32, 1)
        assert_product(found[index], a[index] * wide, b[index], k)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("tl.dot_scaled(a, a_scale, 'e3m2', b, b_scale, 'e4m3')", "takes the formats e2m1, e4m3"),
        ("tl.dot_scaled(a, a_scale, 'e2m1', b, b_scale, 'e4m3')", "e2m1 as uint8"),
        ("tl.dot_scaled(a, a_scale, 'bf16', b, b_scale, 'e4m3')", "has the type of its format"),
        ("tl.dot_scaled(a, a_scale.to(tl.int32), 'e4m3', b, b_scale, 'e4m3')", "takes scales of 8 bits"),
    ],
)
def test_mistakes(expression, message, device):
    ones = torch.ones(32, 32, dtype=torch.float8_e4m3fn)
    scale = np.full((32, 1), 127, np.uint8)
    with pytest.raises(triton.CompilationError, match=message):
        product(
            ones, scale, ones, scale, torch.zeros(32, 32), device, m=32, n=32, k=32, scales=f"{A_SCALE}, {B_SCALE}",
            expression=expression,
        )  # fmt: skip
