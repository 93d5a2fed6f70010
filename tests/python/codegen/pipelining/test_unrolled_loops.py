"""Loops that ask to be unrolled (`loop_unroll_factor`): what they compute, and that GPUs do it."""

from __future__ import annotations

import os

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

IS_GPU = (os.environ.get("TILEWRIGHT_DEVICE") or "cpu").startswith(("sim", "cuda"))


@triton.jit
def decaying(x_ptr, out_ptr, first, end, STEP: tl.constexpr, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    last = first - 1
    for k in tl.range(first, end, STEP, loop_unroll_factor=FACTOR):
        total = total * 0.5 + tl.load(x_ptr + k * BLOCK + i)
        last = k
    tl.store(out_ptr + i, total + last)


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("first", "end", "step"), [(0, 0, 1), (5, 2, 1), (0, 1, 1), (0, 12, 1), (1, 12, 2), (3, 20, 3)]
)
def test_the_order_of_iterations_stays(device, first, end, step, factor):
    x = torch.rand(20, 32).to(device)
    out = torch.empty(32).to(device)
    handle = decaying[(1,)](x, out, first, end, step, factor, 32)
    expected, last = torch.zeros(32).to(device), first - 1
    for k in range(first, end, step):
        expected, last = expected * 0.5 + x[k], k
    torch.testing.assert_close(out, expected + last)
    if IS_GPU:
        # Those of a whole iteration, and one of what is left.
        loads = handle.asm["ptx"].count("ld.global")
        assert loads == (factor + 1 if factor > 1 else 1)


@triton.jit
def nested(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in tl.range(n, loop_unroll_factor=2):
        for k in tl.range(j, loop_unroll_factor=2):
            if k % 3 != 1:
                total += tl.load(x_ptr + k * BLOCK + i) * (j + 1)
    tl.store(out_ptr + i, total)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_loops_in_loops_with_branches(device, n):
    x = torch.rand(8, 32).to(device)
    out = torch.empty(32).to(device)
    nested[(1,)](x, out, n, 32)
    expected = torch.zeros(32).to(device)
    for j in range(n):
        for k in range(j):
            if k % 3 != 1:
                expected += x[k] * (j + 1)
    torch.testing.assert_close(out, expected)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, k_size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for k in tl.range(0, k_size, K, loop_unroll_factor=2):
        a = tl.load(a_ptr + rows[:, None] * k_size + (k + depth)[None, :])
        b = tl.load(b_ptr + (k + depth)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@pytest.mark.parametrize("k_size", [64, 160])
def test_products(device, k_size):
    a = torch.randn(64, k_size, dtype=torch.float16).to(device)
    b = torch.randn(k_size, 64, dtype=torch.float16).to(device)
    c = torch.empty(64, 64).to(device)
    product[(1,)](a, b, c, k_size, 64, 64, 32)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-2)
