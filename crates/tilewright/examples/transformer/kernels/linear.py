"""Computes the matrix products of a layer, with their epilogues."""

import triton
import triton.language as tl


@triton.jit
def product(
    x_ptr, weight_ptr, row, column, rows, columns, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Returns the block of `x @ weight` that begins at a row and a column."""
    m = row + tl.arange(0, M)
    n = column + tl.arange(0, N)
    accumulator = tl.zeros((M, N), tl.float32)
    for start in range(0, depth, K):
        k = start + tl.arange(0, K)
        x_mask = (m[:, None] < rows) & (k[None, :] < depth)
        x = tl.load(x_ptr + m[:, None] * depth + k[None, :], mask=x_mask, other=0.0)
        weight_mask = (k[:, None] < depth) & (n[None, :] < columns)
        weight = tl.load(weight_ptr + k[:, None] * columns + n[None, :], mask=weight_mask, other=0.0)
        accumulator = tl.dot(x, weight, accumulator)
    return accumulator


@triton.jit
def linear(
    x_ptr,
    weight_ptr,
    residual_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Computes `x @ weight`, plus the residual if there is one."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    out = product(x_ptr, weight_ptr, row, column, rows, columns, depth, M, N, K)
    m = row + tl.arange(0, M)[:, None]
    n = column + tl.arange(0, N)[None, :]
    mask = (m < rows) & (n < columns)
    if residual_ptr is not None:
        out += tl.load(residual_ptr + m * columns + n, mask=mask, other=0.0)
    tl.store(out_ptr + m * columns + n, out, mask=mask)


@triton.jit
def gated_linear(
    x_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Computes `silu(x @ gate) * (x @ up)`."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    gate = product(x_ptr, gate_ptr, row, column, rows, columns, depth, M, N, K)
    up = product(x_ptr, up_ptr, row, column, rows, columns, depth, M, N, K)
    m = row + tl.arange(0, M)[:, None]
    n = column + tl.arange(0, N)[None, :]
    tl.store(out_ptr + m * columns + n, gate * tl.sigmoid(gate) * up, mask=(m < rows) & (n < columns))
