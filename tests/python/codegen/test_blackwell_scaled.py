"""`tl.dot_scaled` for Blackwell on the simulator: the instruction with scales where it applies, against binary64."""

from __future__ import annotations

import pytest
import torch
from conftest import DEVICE
from support.assembler import find_assembler, spilled_bytes

import tilewright as triton
import tilewright.language as tl

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16}


@pytest.fixture(autouse=True)
def blackwell(device):
    """Runs a test on the simulator of a Blackwell GPU."""
    if device != "cpu":
        pytest.skip("these kernels have run on the simulator only")
    triton.runtime.set_device("sim:sm_100")
    yield
    triton.runtime.set_device(DEVICE)


def operand(rows, k, format, seed):
    """An operand [rows, K] as a kernel takes it, and its values."""
    generator = torch.Generator().manual_seed(seed)
    if format == "e2m1":
        codes = torch.randint(0, 16, (rows, k), generator=generator)
        return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8), E2M1[codes].double()
    values = (torch.randint(-8, 9, (rows, k), generator=generator) / 8).to(DTYPES[format])
    return values, values.double()


def scale_factors(rows, k, group, seed):
    """Scales [rows, K / group] as a kernel takes them, and the factor of each element."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, k // group)
    if group == 32:
        exponents = torch.randint(-4, 5, shape, generator=generator)
        stored, values = (exponents + 127).to(torch.uint8), torch.exp2(exponents.double())
    else:
        stored = (torch.randint(1, 17, shape, generator=generator) / 4).to(torch.float8_e4m3fn)
        values = stored.double()
    return stored, values.repeat_interleave(group, dim=1)


@triton.jit
def matmul(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, GROUP: tl.constexpr, ROW_MAJOR: tl.constexpr, HAS_SCALES: tl.constexpr,
):  # fmt: skip
    """C + A @ B. A is [M, K]. B is stored as [N, K], or row-major."""
    a_k: tl.constexpr = K // 2 if A == "e2m1" else K
    b_k: tl.constexpr = K // 2 if B == "e2m1" else K
    i, j = tl.arange(0, M), tl.arange(0, N)
    acc = tl.load(c_ptr + i[:, None] * N + j[None, :])
    for step in range(k // K):
        ka, kb = step * a_k + tl.arange(0, a_k), step * b_k + tl.arange(0, b_k)
        groups = step * (K // GROUP) + tl.arange(0, K // GROUP)
        a = tl.load(a_ptr + i[:, None] * (k // K * a_k) + ka[None, :])
        if ROW_MAJOR:
            b = tl.load(b_ptr + kb[:, None] * N + j[None, :])
        else:
            b = tl.load(b_ptr + j[None, :] * (k // K * b_k) + kb[:, None])
        if HAS_SCALES:
            a_scale = tl.load(a_scale_ptr + i[:, None] * (k // GROUP) + groups[None, :])
            b_scale = tl.load(b_scale_ptr + j[:, None] * (k // GROUP) + groups[None, :])
            acc = tl.dot_scaled(a, a_scale, A, b, b_scale, B, acc)
        else:
            acc = tl.dot_scaled(a, None, A, b, None, B, acc)
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc)


def check(
    tmp_path,
    formats,
    *,
    shape=(128, 64, 256),
    block_k=128,
    group=32,
    row_major=False,
    has_scales=True,
    **options,
):
    """Multiplies, compares with binary64, and assembles the code. Returns its PTX."""
    m, n, k = shape
    (a, a_values), (b, b_values) = operand(m, k, formats[0], 0), operand(n, k, formats[1], 1)
    (a_scale, a_factors), (b_scale, b_factors) = (
        scale_factors(rows, k, group, rows + group) for rows in (m, n)
    )
    if row_major:
        b = b.view(torch.uint8).T.contiguous().view(b.dtype)
    initial = torch.randint(-9, 10, (m, n), generator=torch.Generator().manual_seed(4)).float()
    c = initial.clone()
    handle = matmul[(1,)](
        a, a_scale, b, b_scale, c, k, m, n, block_k, *formats, group, row_major, has_scales, **options
    )
    if has_scales:
        a_values, b_values = a_values * a_factors, b_values * b_factors
    torch.testing.assert_close(c.double(), initial.double() + a_values @ b_values.T, rtol=1e-5, atol=1e-3)
    assembler = find_assembler()
    if assembler is not None:
        assert spilled_bytes(assembler, handle.asm["ptx"], tmp_path) == 0
    return handle.asm["ptx"]


@pytest.mark.parametrize(
    ("formats", "group", "expected"),
    [
        (("e4m3", "e4m3"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e5m2", "e4m3"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e4m3", "e2m1"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e2m1", "e5m2"), 32, ".kind::mxf8f6f4.block_scale.scale_vec::1X"),
        (("e2m1", "e2m1"), 32, ".kind::mxf4.block_scale.scale_vec::2X"),
        (("e2m1", "e2m1"), 16, ".kind::mxf4nvf4.block_scale.scale_vec::4X"),
    ],
    ids=["mxfp8", "e5m2", "mixed", "mixed_left", "mxfp4", "nvfp4"],
)
@pytest.mark.parametrize("row_major", [False, True], ids=["columns", "rows"])
def test_the_instruction_applies_the_scales(tmp_path, formats, group, expected, row_major):
    ptx = check(tmp_path, formats, group=group, row_major=row_major)
    assert expected in ptx
    assert "kind::f16" not in ptx


@pytest.mark.parametrize(
    ("shape", "block_k", "warps", "stages"),
    [
        ((128, 32, 128), 32, 4, 1),
        ((128, 128, 512), 64, 4, 4),
        ((256, 64, 256), 64, 8, 2),
        ((128, 256, 256), 128, 8, 2),
    ],
)
def test_shapes(tmp_path, shape, block_k, warps, stages):
    ptx = check(tmp_path, ("e4m3", "e4m3"), shape=shape, block_k=block_k, num_warps=warps, num_stages=stages)
    assert "block_scale" in ptx


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (64, 64, 128)},
        {"shape": (128, 16, 128)},
        {"formats": ("bf16", "e4m3")},
        {"has_scales": False},
        {"num_warps": 2, "shape": (128, 32, 64), "block_k": 64},
    ],
    ids=["rows", "columns", "bf16", "scales", "warps"],
)
def test_threads_apply_the_scales_of_other_dots(tmp_path, changes):
    formats = changes.get("formats", ("e4m3", "e4m3"))
    assert "block_scale" not in check(
        tmp_path, formats, **{name: of for name, of in changes.items() if name != "formats"}
    )


@triton.jit
def two_dots(a_ptr, s_ptr, c_ptr, count, M: tl.constexpr, K: tl.constexpr):
    """Two accumulators; the second dot of an iteration has the scales of the first in the other order."""
    i, j, g = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 32)
    first = tl.zeros((M, M), tl.float32)
    second = tl.zeros((M, M), tl.float32)
    for step in range(count):
        a = tl.load(a_ptr + step * M * K + i[:, None] * K + j[None, :])
        s = tl.load(s_ptr + step * M * (K // 32) + i[:, None] * (K // 32) + g[None, :])
        flat = tl.full((M, K // 32), 128, tl.uint8)
        first = tl.dot_scaled(a, s, "e4m3", a.T, flat, "e4m3", first)
        second = tl.dot_scaled(a, flat, "e4m3", a.T, s, "e4m3", second)
    tl.store(c_ptr + i[:, None] * M + i[None, :], first)
    tl.store(c_ptr + M * M + i[:, None] * M + i[None, :], second)


def test_dots_in_flight_have_scales_of_their_own(tmp_path):
    count, m, k = 3, 128, 64
    a, values = operand(count * m, k, "e4m3", 7)
    s, factors = scale_factors(count * m, k, 32, 8)
    c = torch.zeros(2, m, m)
    handle = two_dots[(1,)](a, s, c, count, m, k)
    scaled = (values * factors).view(count, m, k)
    product = (scaled @ (2 * values).view(count, m, k).mT).sum(0)
    torch.testing.assert_close(c.double(), torch.stack([product, product.T]), rtol=1e-5, atol=1e-3)
    assert handle.asm["ptx"].count("block_scale") >= 4


@triton.jit
def many_dots(a_ptr, s_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr):
    i, j, g = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 32)
    a = tl.load(a_ptr + i[:, None] * K + j[None, :])
    for step in tl.static_range(COUNT):
        s = tl.load(s_ptr + step * M * (K // 32) + i[:, None] * (K // 32) + g[None, :])
        c = tl.dot_scaled(a, s, "e4m3", a.T, s, "e4m3")
        tl.store(c_ptr + step * M * M + i[:, None] * M + i[None, :], c)


def test_dots_beyond_tensor_memory(tmp_path):
    """Each accumulator has 128 columns, so the fourth one does not fit beside the scales."""
    m, k, count = 128, 32, 5
    a, values = operand(m, k, "e4m3", 9)
    s, factors = scale_factors(count * m, k, 32, 10)
    c = torch.zeros(count, m, m)
    handle = many_dots[(1,)](a, s, c, m, k, count)
    scaled = values * factors.view(count, m, k)
    expected = scaled @ scaled.mT
    torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-3)
    assert handle.asm["ptx"].count("block_scale") == 3


def test_a_scale_of_255_is_nan(tmp_path):
    a, _ = operand(128, 32, "e4m3", 11)
    s = torch.full((128, 1), 127, dtype=torch.uint8)
    s[5] = 255
    c = torch.zeros(1, 128, 128)
    many_dots[(1,)](a, s, c, 128, 32, 1)
    is_nan = torch.zeros(128, 128, dtype=torch.bool)
    is_nan[5, :] = is_nan[:, 5] = True
    assert torch.equal(c[0].isnan(), is_nan)


def test_other_gpus_have_no_such_instruction():
    triton.runtime.set_device("sim:sm_90")
    a, values = operand(128, 32, "e4m3", 12)
    s, factors = scale_factors(128, 32, 32, 13)
    c = torch.zeros(1, 128, 128)
    handle = many_dots[(1,)](a, s, c, 128, 32, 1)
    torch.testing.assert_close(c[0].double(), (values * factors) @ (values * factors).T, rtol=1e-5, atol=1e-3)
    assert "wgmma" in handle.asm["ptx"]
