"""The kernels that the benchmarks run, written for Triton and nothing else: any implementation can run them."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """Add two vectors."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


@triton.jit
def softmax_kernel(output_ptr, input_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row a program."""
    row_start = tl.program_id(0) * row_stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    row = tl.load(input_ptr + row_start + cols, mask=mask, other=-float("inf"))
    numerator = tl.exp(row - tl.max(row, axis=0))
    tl.store(output_ptr + row_start + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, output_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    """Layer norm of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    weight = tl.load(weight_ptr + cols, mask=mask)
    bias = tl.load(bias_ptr + cols, mask=mask)
    y = centred * (1.0 / tl.sqrt(variance + eps)) * weight + bias
    tl.store(output_ptr + row * stride + cols, y, mask=mask)


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A @ B, one tile of C a program."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_ptrs = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (depth[None, :] < k - start), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < k - start) & (cols[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    output_ptr,
    head_stride,
    row_stride,
    n_rows,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    SPECIALIZE: tl.constexpr = False,
):
    """Attention of one block of queries of one head a program, with the running softmax of FlashAttention."""
    base = tl.program_id(1) * head_stride
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + rows[:, None] * row_stride + columns[None, :])
    q = (q * scale).to(q.dtype)
    highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    for start in tl.range(0, n_rows, BLOCK_N, warp_specialize=SPECIALIZE):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + keys[:, None] * row_stride + columns[None, :])
        v = tl.load(v_ptr + base + keys[:, None] * row_stride + columns[None, :])
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_highest[:, None])
        correction = tl.exp(highest - new_highest)
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        highest = new_highest
    output = acc / total[:, None]
    tl.store(output_ptr + base + rows[:, None] * row_stride + columns[None, :], output)


@triton.jit
def empty_5_kernel(a0, a1, a2, a3, a4):
    """Nothing, with 5 arguments: what a launch costs."""


@triton.jit
def empty_20_kernel(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19):
    """Nothing, with 20 arguments."""
