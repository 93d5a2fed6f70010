"""Dots of warpgroups (`wgmma`): a tiled matmul, attention, and a matmul whose rows wrap around."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_rows,
    a_columns,
    b_rows,
    b_columns,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """c = a @ b; c is row-major without gaps between rows."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    a_ptrs = a_ptr + (rows % m)[:, None] * a_rows + depth[None, :] * a_columns
    b_ptrs = b_ptr + depth[:, None] * b_rows + (columns % n)[None, :] * b_columns
    acc = tl.zeros((M, N), tl.float32)
    for i in range(tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < k - i * K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < k - i * K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += K * a_columns
        b_ptrs += K * b_rows
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    head_stride,
    row_stride,
    length,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
):
    """softmax(q @ k^T * scale) @ v with powers of 2, a block of rows at a time."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    keys = tl.arange(0, N)
    columns = tl.arange(0, D)
    base = tl.program_id(1) * head_stride
    q = tl.load(q_ptr + base + rows[:, None] * row_stride + columns[None, :])
    k_ptrs = k_ptr + base + keys[None, :] * row_stride + columns[:, None]
    v_ptrs = v_ptr + base + keys[:, None] * row_stride + columns[None, :]
    highest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for _ in range(0, length, N):
        scores = tl.dot(q, tl.load(k_ptrs)) * scale
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.math.exp2(scores - new_highest[:, None])
        correction = tl.math.exp2(highest - new_highest)
        total = total * correction + tl.sum(weights, 1)
        v = tl.load(v_ptrs)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])
        highest = new_highest
        k_ptrs += N * row_stride
        v_ptrs += N * row_stride
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + base + rows[:, None] * row_stride + columns[None, :], out)


@triton.jit
def wrapped_rows(
    a_ptr, b_ptr, c_ptr, M, K, stride_am, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A block of A times a block of B. Row indices have 64 bits and wrap around at M, which may be any number."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)) % M
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * stride_am + (k + depth)[None, :])
        b = tl.load(b_ptr + columns[None, :] * stride_bn + (k + depth)[:, None])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], acc.to(tl.float16))
