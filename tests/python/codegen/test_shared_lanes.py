"""Lanes that share what others hold copies of, tiles that `ldmatrix` loads, loops of few iterations: beside torch."""

from __future__ import annotations

import pytest
import torch

import tilewright as tw
import tilewright.language as tl


@tw.jit
def turned_pairs(x, cos, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    half = tl.arange(0, COLUMNS // 2)
    places = rows[:, None] * COLUMNS + columns[None, :]
    factor = tl.load(cos + rows[:, None] * (COLUMNS // 2) + half[None, :]).to(tl.float32)
    first, second = tl.split(tl.reshape(tl.load(x + places).to(tl.float32), [ROWS, COLUMNS // 2, 2]))
    turned = tl.join(first * factor - second, first + second * factor)
    tl.store(out + places, tl.reshape(turned, [ROWS, COLUMNS]))


@tw.jit
def column_sums(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, APART: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + rows[:, None] * COLUMNS + columns[None, :]).to(tl.float32)
    tl.store(out + columns * APART, tl.sum(tile, 0))


@tw.jit
def few_iterations(a, b, out, M: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, BLOCK)
    total = tl.zeros([M, M], tl.float32)
    for k in range(tl.cdiv(K, BLOCK)):
        left = tl.load(a + rows[:, None] * K + (k * BLOCK + inner)[None, :])
        right = tl.load(b + (k * BLOCK + inner)[:, None] * M + rows[None, :])
        total += tl.dot(left, (right * 2).to(right.dtype))
    tl.store(out + rows[:, None] * M + rows[None, :], total.to(out.dtype.element_ty))


@tw.jit
def sums_beside_a_tile(x, line, out, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    places = i[:, None] * SIZE + i[None, :]
    tile = tl.load(x + places)
    for k in range(n):
        tile += (tl.load(line + k * SIZE + i) + tl.sum(tile, 0))[None, :]
    tl.store(out + places, tile)


def test_pairs_are_turned_where_they_are_loaded(device: str) -> None:
    x, cos = (
        torch.randn(16, 128, device=device).to(torch.bfloat16),
        torch.randn(16, 64, device=device).to(torch.bfloat16),
    )
    out = torch.empty(16, 128, device=device)
    turned_pairs[(1,)](x, cos, out, 16, 128)
    first, second, factor = x[:, ::2].float(), x[:, 1::2].float(), cos.float()
    expected = torch.stack([first * factor - second, first + second * factor], -1).reshape(16, 128)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("shape", [(64, 32), (64, 64), (16, 128)])
def test_sums_are_stored_by_lanes_with_copies(device: str, shape: tuple[int, int], num_warps: int) -> None:
    x = torch.randn(shape, device=device).to(torch.bfloat16)
    out = torch.full((shape[1] * 4,), -1.0, device=device)
    column_sums[(1,)](x, out, *shape, 4, num_warps=num_warps)
    torch.testing.assert_close(out[::4], x.float().sum(0), rtol=1e-4, atol=1e-4)
    assert (out.reshape(-1, 4)[:, 1:] == -1).all()


@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("k", [32, 50, 64, 96, 128])
def test_loops_of_few_iterations(device: str, k: int, num_stages: int) -> None:
    a = torch.zeros(64, 160, dtype=torch.float16, device=device)[:, : -(-k // 32) * 32].contiguous()
    a[:, :k] = torch.randn(64, k, device=device)
    b = torch.randn(a.shape[1], 64, device=device).to(torch.float16)
    out = torch.empty(64, 64, dtype=torch.float16, device=device)
    few_iterations[(1,)](a, b, out, 64, a.shape[1], 32, num_stages=num_stages)
    torch.testing.assert_close(out.float(), a.float() @ (b.float() * 2), rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("size", [16, 32])
def test_lanes_share_what_is_broadcast(device: str, size: int) -> None:
    x, line = torch.randn(size, size, device=device), torch.randn(2, size, device=device)
    out = torch.empty(size, size, device=device)
    sums_beside_a_tile[(1,)](x, line, out, 2, size)
    expected = x.clone()
    for k in range(2):
        expected += (line[k] + expected.sum(0))[None, :]
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-2)
