"""Grids: one to three axes, no programs at all, very many programs, tensors without elements."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, empty

import tilewright as triton
import tilewright.language as tl


@triton.jit
def ids_kernel(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(axis=2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(axis=2)
    place = out_ptr + ((z * ny + y) * nx + x) * 6
    tl.static_assert(x.dtype == tl.int32)
    tl.static_assert(nx.dtype == tl.int32)
    tl.store(place, x)
    tl.store(place + 1, y)
    tl.store(place + 2, z)
    tl.store(place + 3, nx)
    tl.store(place + 4, ny)
    tl.store(place + 5, nz)


@pytest.mark.parametrize("grid", [(1,), (7,), (3, 5), (1, 4), (2, 3, 4), (1, 1, 9), (5, 1, 1)], ids=str)
def test_each_program_runs_once_and_knows_its_place(grid, device):
    nx, ny, nz = (*grid, 1, 1)[:3]
    out = torch.full((nz, ny, nx, 6), -1, dtype=torch.int32, device=device)
    ids_kernel[grid](out)
    z, y, x = np.meshgrid(range(nz), range(ny), range(nx), indexing="ij")
    full = [np.full_like(x, value) for value in (nx, ny, nz)]
    assert np.array_equal(out.cpu().numpy(), np.stack([x, y, z, *full], axis=-1))


@pytest.mark.parametrize(
    "grid",
    [[6], [2, 3], 6, lambda meta: (6,), lambda meta: [meta["BLOCK"] // 4]],
    ids=["list of 1", "list of 2", "int", "function to a tuple", "function to a list"],
)
def test_forms_of_a_grid(grid, device):
    out = torch.zeros(6, 24, dtype=torch.int32, device=device)
    mark_kernel[grid](out, BLOCK=24)
    assert (out[:, 0] == 1).all()


@triton.jit
def mark_kernel(out_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out_ptr + program * BLOCK, 1)


@triton.jit
def increment_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


def test_a_hundred_thousand_tiny_programs(device):
    x = torch.arange(100_000, dtype=torch.int32, device=device)
    increment_kernel[(100_000,)](x, 100_000, BLOCK=1)
    assert torch.equal(x, torch.arange(1, 100_001, dtype=torch.int32, device=device))


def test_many_programs_over_three_axes(device):
    out = torch.full((40, 50, 51, 6), -1, dtype=torch.int32, device=device)
    ids_kernel[(51, 50, 40)](out)
    assert (out >= 0).all()
    assert out[39, 49, 50].tolist() == [50, 49, 39, 51, 50, 40]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_without_elements(dtype, device):
    nothing = empty((0,), dtype, device)
    increment_kernel[(1,)](nothing, 0, BLOCK=16)
    increment_kernel[(3,)](nothing.reshape(0, 5), 0, BLOCK=16)
    assert nothing.numel() == 0


def test_numpy_arrays_without_elements():
    nothing = np.zeros((4, 0), np.float32)
    increment_kernel[(2,)](nothing, 0, BLOCK=16)


@triton.jit
def neighbors_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x_ptr + i - 1, mask=(i > 0) & (i < n), other=0.0)
    right = tl.load(x_ptr + i + 1, mask=i < n - 1, other=0.0)
    tl.store(out_ptr + i, left + right, mask=i < n)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 10_001])
def test_lanes_that_a_mask_excludes_may_point_anywhere(n, device):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(device)
    out = torch.empty_like(x)
    neighbors_kernel[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    padded = torch.nn.functional.pad(x, (1, 1))
    assert torch.equal(out, padded[:-2] + padded[2:])


@triton.jit
def grid_stride_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))


@pytest.mark.parametrize("programs", [1, 3, 8])
def test_grid_stride_loops(programs, device):
    x = torch.arange(10_007, dtype=torch.int64, device=device)
    out = torch.zeros(programs, dtype=torch.int64, device=device)
    grid_stride_kernel[(programs,)](x, out, x.numel(), BLOCK=128)
    assert out.sum().item() == 10_007 * 10_006 // 2
