"""Blocks in pairs, which share what both would copy: products of matrices whose rows begin inside of a sector."""

import itertools

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64


@triton.jit
def tile_of(M, N, ORDER: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Which tile a program has: by groups of three rows, by rows, by columns, or by two axes of the grid."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if ORDER == "groups":
        in_group = 3 * tiles_n
        first = pid // in_group * 3
        rows = min(tiles_m - first, 3)
        return first + pid % in_group % rows, pid % in_group // rows
    elif ORDER == "rows":
        return pid // tiles_n, pid % tiles_n
    elif ORDER == "columns":
        return pid % tiles_m, pid // tiles_m
    else:
        return pid, tl.program_id(1)


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_b, stride_cm, ORDER: tl.constexpr, TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C = A @ B, or A @ B.T."""
    pid_m, pid_n = tile_of(M, N, ORDER, BLOCK_M, BLOCK_N)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + depth[None, :]
    if TRANSPOSED:
        b_ptrs = b_ptr + (columns % N)[None, :] * stride_b + depth[:, None]
    else:
        b_ptrs = b_ptr + depth[:, None] * stride_b + (columns % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K if TRANSPOSED else BLOCK_K * stride_b
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def check(device, m, n, k, order, transposed, stages=3):
    """Runs a product whose strides are odd multiples of 8 elements; gives the kernel."""

    def matrix(rows, columns):
        stride = columns + 8 if columns % 16 == 0 else columns
        return torch.randn(rows, stride, dtype=torch.float16).to(device)[:, :columns]

    a, b = matrix(m, k), matrix(n, k) if transposed else matrix(k, n)
    c = torch.full((m, n), float("nan"), dtype=torch.float16, device=device)
    tiles = (-(-m // BLOCK_M), -(-n // BLOCK_N))
    grid = tiles if order == "axes" else (tiles[0] * tiles[1],)
    kernel = product[grid](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), order, transposed, BLOCK_M, BLOCK_N, BLOCK_K,
        num_warps=8, num_stages=stages,
    )  # fmt: skip
    assert a.stride(0) % 16 == 8
    assert b.stride(0) % 16 == 8
    expected = a.float() @ (b.float().T if transposed else b.float())
    torch.testing.assert_close(c.float(), expected, rtol=1e-2, atol=5e-2)
    return kernel


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", ["groups", "rows", "columns", "axes"])
def test_every_order_of_programs(order, transposed, device):
    # Pairs have the same columns, the same rows, or neither; the last program of a group may be without a partner.
    kernel = check(device, 504, 520, 200, order, transposed)
    code = kernel.asm.get("ptx", "")
    if ".target sm_90a" in code:
        assert ".multicast::cluster" in code


@pytest.mark.parametrize(("k", "stages"), list(itertools.product([8, 64, 72, 520], [2, 4])))
def test_loops_shorter_and_longer_than_the_ring(k, stages, device):
    check(device, 256, 264, k, "columns", False, stages)


def test_an_odd_number_of_programs(device):
    # Many programs, the last paired with a block that has no program; few programs, which run without pairs.
    check(device, 33 * 128 - 8, 248, 72, "columns", True)
    check(device, 3 * 128 - 8, 248, 72, "columns", True)


def test_rows_of_whole_sectors_are_not_shared(device):
    """The code does not say that they are whole, the launch does."""
    a = torch.randn(256, 136, dtype=torch.float16, device=device)[:, :128]
    b = torch.randn(128, 272, dtype=torch.float16, device=device)[:, :256]
    c = torch.empty(256, 256, dtype=torch.float16, device=device)
    strides = (a.stride(0), b.stride(0), c.stride(0))
    product[(2,)](a, b, c, 256, 256, 128, *strides, "columns", False, 128, 256, 64, num_warps=8)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=5e-2)
    whole = a.contiguous()
    strides = (whole.stride(0), b.stride(0), c.stride(0))
    product[(2,)](whole, b, c, 256, 256, 128, *strides, "columns", False, 128, 256, 64, num_warps=8)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=5e-2)
