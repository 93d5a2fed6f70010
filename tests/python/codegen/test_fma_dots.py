"""Dots that threads compute by FMAs (fp32 without tensor cores), beside torch in binary64."""

from __future__ import annotations

import pytest
from conftest import DEVICE

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")

SHARED_BYTES, RESERVED_BYTES = 228 << 10, 1 << 10
"""The shared memory of a multiprocessor of an H100, and what each block takes beside its own."""


@pytest.fixture(autouse=True)
def hopper(device):
    """Runs a test on the simulator of an H100."""
    if device != "cpu":
        pytest.skip("the sizes of shared memory are those of an H100")
    triton.runtime.set_device("sim:sm_90")
    yield
    triton.runtime.set_device(DEVICE)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        a_mask = (rows[:, None] < M) & (first + depth[None, :] < K)
        a = tl.load(a_ptr + rows[:, None] * K + first + depth[None, :], mask=a_mask, other=0.0)
        b_mask = (first + depth[:, None] < K) & (columns[None, :] < N)
        b = tl.load(b_ptr + (first + depth)[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=mask)


def multiply(shape, block, num_warps, num_stages):
    """Multiplies random matrices, and checks the result; gives the kernel."""
    (m, n, k), generator = shape, torch.Generator().manual_seed(0)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    c = torch.full((m, n), float("nan"))
    grid = (-(-m // block[0]), -(-n // block[1]))
    kernel = matmul[grid](a, b, c, m, n, k, *block, num_warps=num_warps, num_stages=num_stages)
    # Each addition may have an error of one unit in the last place of the sum of magnitudes.
    bound = (a.double().abs() @ b.double().abs()) * (k + 2) * 2.0**-23
    assert ((c.double() - a.double() @ b.double()).abs() <= bound).all()
    return kernel


@pytest.mark.parametrize(
    ("block", "num_warps"),
    [
        ((16, 16, 16), 4),
        ((32, 32, 32), 4),
        ((32, 64, 32), 2),
        ((64, 16, 32), 1),
        ((16, 128, 16), 8),
        ((64, 64, 16), 4),
    ],
)
@pytest.mark.parametrize("shape", [(64, 128, 64), (33, 100, 50)])
def test_results(block, num_warps, shape):
    multiply(shape, block, num_warps, 3)


@pytest.mark.parametrize(
    ("block", "num_warps", "num_stages", "slots", "warps"),
    [
        # Four slots leave one block, and three leave two. Of 64x256x32, even three leave one.
        ((128, 128, 32), 4, 4, 3, 8),
        ((64, 256, 32), 4, 4, 2, 8),
        ((32, 64, 32), 2, 5, 4, 8),
        # Eight warps are enough.
        ((64, 64, 64), 4, 3, 3, 8),
        ((128, 64, 32), 4, 4, 4, 8),
        # Not even two slots leave more than one block.
        ((128, 256, 64), 4, 3, 2, 4),
    ],
)
def test_slots_leave_several_warps_for_each_scheduler(block, num_warps, num_stages, slots, warps):
    m, n, k = block
    kernel = multiply((m, n, 3 * k), block, num_warps, num_stages)
    slot = (m * k + k * n) * 4
    shared = kernel.metadata.shared
    assert slots * slot <= shared < slots * slot + min(slot, 1024)
    assert SHARED_BYTES // (shared + RESERVED_BYTES) * num_warps == warps
