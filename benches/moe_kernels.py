"""Mixtures of experts as serving engines launch them: rows of x gathered by token, weights of an expert for each tile.

Tokens are sorted by expert and padded, so that a tile of rows has one expert. `tokens` has for each row the number of
a pair of token and choice, and at least `PAIRS` where the row is padding.
"""

import triton
import triton.language as tl


@triton.jit
def tile_of(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The row and column of a tile: `GROUP` rows of tiles at a time, column after column."""
    first = pid // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    within = pid % (GROUP * tiles_n)
    return first + within % height, within // height


@triton.jit
def experts(
    x_ptr, w_ptr, out_ptr, x_scale_ptr, w_scale_ptr, tokens_ptr, experts_ptr, padded_ptr, N, K, PAIRS,
    stride_xm, stride_we, stride_wn, stride_om, stride_xs, stride_wse, stride_wsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, TOP_K: tl.constexpr,
    SCALES: tl.constexpr, SCALE_BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The scales are those of the tensor, of tokens and channels, or of blocks of `SCALE_BLOCK` along K and N."""
    pid_m, pid_n = tile_of(
        tl.program_id(0), tl.cdiv(tl.load(padded_ptr), BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    if pid_m * BLOCK_M >= tl.load(padded_ptr):
        return
    pairs = tl.load(tokens_ptr + pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))
    real = pairs < PAIRS
    expert = tl.load(experts_ptr + pid_m).to(tl.int64)
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)) % N
    depth = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + (pairs[:, None] // TOP_K * stride_xm + depth[None, :])
    w_ptrs = w_ptr + expert * stride_we + (depth[:, None] + columns[None, :] * stride_wn)
    if SCALES == "channel":
        w_scale = tl.load(w_scale_ptr + expert * stride_wse + columns)[None, :]
        x_scale = tl.load(x_scale_ptr + pairs // TOP_K * stride_xs, mask=real, other=0.0)[:, None]
    elif SCALES == "tensor":
        w_scale = tl.load(w_scale_ptr + expert)
        x_scale = tl.load(x_scale_ptr)
    elif SCALES == "block":
        x_scale_ptrs = x_scale_ptr + pairs // TOP_K * stride_xs
        w_scale_ptrs = w_scale_ptr + expert * stride_wse + columns // SCALE_BLOCK * stride_wsn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in range(tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=real[:, None] & (depth[None, :] < K - k * BLOCK_K), other=0.0)
        w = tl.load(w_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        if SCALES == "block":
            block = k * BLOCK_K // SCALE_BLOCK
            x_scale = tl.load(x_scale_ptrs + block, mask=real, other=0.0)
            w_scale = tl.load(w_scale_ptrs + block)
            acc += tl.dot(x, w) * x_scale[:, None] * w_scale[None, :]
        else:
            acc = tl.dot(x, w, acc, out_dtype=ACC)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    if SCALES == "channel" or SCALES == "tensor":
        acc = acc.to(tl.float32) * x_scale * w_scale
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out_ptrs = out_ptr + pairs[:, None] * stride_om + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=real[:, None] & (columns[None, :] < N))


@triton.jit
def mxfp4_experts(
    x_ptr, w_ptr, out_ptr, w_scale_ptr, tokens_ptr, experts_ptr, padded_ptr, N, K, PAIRS,
    stride_xm, stride_we, stride_wn, stride_om, stride_wse, stride_wsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, TOP_K: tl.constexpr,
):  # fmt: skip
    """Weights of 4 bits, two in a byte along K; a row of the scales has those of 32 columns, 32 after another."""
    pid_m, pid_n = tile_of(
        tl.program_id(0), tl.cdiv(tl.load(padded_ptr), BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    if pid_m * BLOCK_M >= tl.load(padded_ptr):
        return
    pairs = tl.load(tokens_ptr + pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))
    real = pairs < PAIRS
    expert = tl.load(experts_ptr + pid_m).to(tl.int64)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    packed = tl.arange(0, BLOCK_K // 2)
    scale_columns = tl.arange(0, BLOCK_K)
    scale_rows = pid_n * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
    x_ptrs = x_ptr + (pairs[:, None] // TOP_K * stride_xm + depth[None, :])
    w_ptrs = w_ptr + expert * stride_we + (packed[:, None] + columns[None, :] * stride_wn)
    scale_ptrs = w_scale_ptr + expert * stride_wse + scale_rows[:, None] * stride_wsn + scale_columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=real[:, None], other=0.0)
        w = tl.load(w_ptrs)
        scales = tl.load(scale_ptrs).reshape(BLOCK_N // 32, BLOCK_K // 32, 32)
        scales = scales.permute(0, 2, 1).reshape(BLOCK_N, BLOCK_K // 32)
        acc = tl.dot_scaled(x, None, "bf16", w, scales, "e2m1", acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K // 2
        scale_ptrs += BLOCK_K
    out_ptrs = out_ptr + pairs[:, None] * stride_om + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=real[:, None])
