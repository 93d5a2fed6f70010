"""Kernels of serving engines, for `gpu/products.py`: any implementation can run them."""

import triton
import triton.language as tl

# --- Low-rank adapters ---


@triton.jit
def lora_rows(slot, tile, order_ptr, starts_ptr, count, BLOCK_M: tl.constexpr):
    """The tokens of a tile of one adapter; lanes after the last token repeat the first ones."""
    first = tile * BLOCK_M
    lanes = tl.arange(0, BLOCK_M)
    left = min(count - first, BLOCK_M)
    start = tl.load(starts_ptr + slot) + first
    return tl.load(order_ptr + start + lanes % left), lanes < left


@triton.jit
def lora_shrink(
    x_ptr, a_ptr, y_ptr, order_ptr, starts_ptr, counts_ptr, adapters_ptr, N, K, scale,
    stride_xm, stride_al, stride_an, stride_ym, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """y[token] += scale * x[token] @ A[adapter].T, for a part of K and a tile of one adapter."""
    pid = tl.program_id(0)
    slot = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    split = pid % SPLIT_K
    tile_m = pid // SPLIT_K // tiles_n
    tile_n = pid // SPLIT_K % tiles_n
    adapter = tl.load(adapters_ptr + slot)
    if adapter == -1:
        return
    count = tl.load(counts_ptr + slot)
    if tile_m * BLOCK_M >= count:
        return
    tokens, real = lora_rows(slot, tile_m, order_ptr, starts_ptr, count, BLOCK_M)
    ranks = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    wrapped = tl.max_contiguous(tl.multiple_of(ranks % N, BLOCK_N), BLOCK_N)
    depth = split * BLOCK_K + tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + tokens[:, None] * stride_xm + depth[None, :]
    a_ptrs = a_ptr + adapter * stride_al + wrapped[None, :] * stride_an + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        if EVEN_K:
            x = tl.load(x_ptrs)
            a = tl.load(a_ptrs)
        else:
            left = K - k * BLOCK_K * SPLIT_K
            x = tl.load(x_ptrs, mask=depth[None, :] < left, other=0.0)
            a = tl.load(a_ptrs, mask=depth[:, None] < left, other=0.0)
        acc += tl.dot(x, a)
        x_ptrs += BLOCK_K * SPLIT_K
        a_ptrs += BLOCK_K * SPLIT_K
    acc *= scale
    y_ptrs = y_ptr + tokens[:, None] * stride_ym + ranks[None, :]
    mask = real[:, None] & (ranks[None, :] < N)
    if SPLIT_K == 1:
        tl.store(y_ptrs, acc, mask=mask)
    else:
        tl.atomic_add(y_ptrs, acc, mask=mask, sem="relaxed")


@triton.jit
def lora_expand(
    y_ptr, b_ptr, out_ptr, order_ptr, starts_ptr, counts_ptr, adapters_ptr, N, K,
    stride_ym, stride_bl, stride_bn, stride_om, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[token] += y[token] @ B[adapter].T for a tile of one adapter; y is fp32, as shrink adds it up."""
    pid = tl.program_id(0)
    slot = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = pid // tiles_n, pid % tiles_n
    adapter = tl.load(adapters_ptr + slot)
    if adapter == -1:
        return
    count = tl.load(counts_ptr + slot)
    if tile_m * BLOCK_M >= count:
        return
    tokens, real = lora_rows(slot, tile_m, order_ptr, starts_ptr, count, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    wrapped = tl.max_contiguous(tl.multiple_of(columns % N, BLOCK_N), BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    y_ptrs = y_ptr + tokens[:, None] * stride_ym + depth[None, :]
    b_ptrs = b_ptr + adapter * stride_bl + wrapped[None, :] * stride_bn + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            y = tl.load(y_ptrs)
            b = tl.load(b_ptrs)
        else:
            y = tl.load(y_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
            b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        acc += tl.dot(y.to(b.dtype), b)
        y_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    out_ptrs = out_ptr + tokens[:, None] * stride_om + columns[None, :]
    mask = real[:, None] & (columns[None, :] < N)
    result = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, result + tl.load(out_ptrs, mask=mask, other=0.0), mask=mask)
