"""Kernels that memory limits, or should: scans, sorting, counting, transposing, atomic sums."""

import triton
import triton.language as tl


@triton.jit
def cumsum(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + row + i, tl.cumsum(tl.load(x_ptr + row + i, mask=i < n, other=0.0), 0), mask=i < n)


@triton.jit
def sort(x_ptr, o_ptr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = row[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(o_ptr + place, tl.sort(tl.load(x_ptr + place)))


@triton.jit
def topk(x_ptr, o_ptr, COLUMNS: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    best = tl.topk(tl.load(x_ptr + row * COLUMNS + tl.arange(0, COLUMNS)[None, :]), K)
    tl.store(o_ptr + row * K + tl.arange(0, K)[None, :], best)


@triton.jit
def histogram(x_ptr, o_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o_ptr + tl.arange(0, BINS), tl.histogram(tl.load(x_ptr + i), BINS))


@triton.jit
def atomic_histogram(x_ptr, o_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o_ptr + tl.load(x_ptr + i), 1)


@triton.jit
def column_sums(x_ptr, o_ptr, rows, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        total += tl.load(x_ptr + row[:, None] * n + column[None, :]).to(tl.float32)
    tl.store(o_ptr + column, tl.sum(total, 0))


@triton.jit
def transpose(x_ptr, o_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + row[:, None] * n + column[None, :])
    tl.store(o_ptr + column[:, None] * rows + row[None, :], tl.trans(tile))


@triton.jit
def cross_entropy(x_ptr, target_ptr, o_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, 0)
    total = tl.sum(tl.exp(x - largest), 0)
    wanted = tl.load(x_ptr + row * n + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(o_ptr + row, tl.log(total) + largest - wanted)


@triton.jit
def gather(x_ptr, index_ptr, o_ptr, COLUMNS: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(o_ptr + place, tl.gather(tl.load(x_ptr + place), tl.load(index_ptr + place), 0))


@triton.jit
def layer_norm_backward(g_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + i).to(tl.float32)
    g = tl.load(g_ptr + row * N + i).to(tl.float32)
    wg = tl.load(w_ptr + i).to(tl.float32) * g
    rstd = tl.load(rstd_ptr + row)
    normal = (x - tl.load(mean_ptr + row)) * rstd
    along, mean = tl.sum(normal * wg, 0) / N, tl.sum(wg, 0) / N
    tl.store(dx_ptr + row * N + i, (wg - (normal * along + mean)) * rstd)
    tl.atomic_add(dw_ptr + i, g * normal)
    tl.atomic_add(db_ptr + i, g)
