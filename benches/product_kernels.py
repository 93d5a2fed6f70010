"""Products of matrices as programs write them, for `gpu/products.py`: any implementation can run them."""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """The tile of a program: groups of rows of tiles, columns outside and rows inside."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first_m = pid // in_group * GROUP
    rows = min(tiles_m - first_m, GROUP)
    return first_m + pid % in_group % rows, pid % in_group // rows


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ACC: tl.constexpr = tl.float32, SPECIALIZE: tl.constexpr = False,
):  # fmt: skip
    """C = A @ B as the public tutorials have it: rows and columns wrap around, and only K is masked."""
    pid_m, pid_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in tl.range(tl.cdiv(K, BLOCK_K), warp_specialize=SPECIALIZE):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=ACC)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = acc.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def matmul_descriptors(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SPECIALIZE: tl.constexpr = False,
):  # fmt: skip
    """C = A @ B.T by as many programs as there are multiprocessors, and descriptors that the host makes."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=SPECIALIZE
    ):
        pid_m, pid_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([pid_m * BLOCK_M, k * BLOCK_K])
            b = b_desc.load([pid_n * BLOCK_N, k * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(c_desc.dtype))


@triton.jit
def int8_weights(
    x_ptr, w_ptr, scales_ptr, y_ptr, M, N, K, stride_xm, stride_wk, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = (x @ w) * scales: weights of 8 bits, which become numbers beside the product."""
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + depth[None, :]
    w_ptrs = w_ptr + depth[:, None] * stride_wk + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=rows[:, None] < M, other=0.0)
        w = tl.load(w_ptrs)
        acc = tl.dot(x, w.to(x.dtype), acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * stride_wk
    scales = tl.load(scales_ptr + columns)
    y_ptrs = y_ptr + rows[:, None] * stride_ym + columns[None, :]
    tl.store(y_ptrs, (acc * scales[None, :]).to(y_ptr.dtype.element_ty), mask=rows[:, None] < M)


@triton.jit
def int4_weights(
    x_ptr, w_ptr, scales_ptr, y_ptr, M, N, K, stride_xm, stride_wk, stride_sk, stride_ym,
    GROUP_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = x @ ((w - 8) * scales): two weights a byte, neighbors along K, and a scale for GROUP_K of them."""
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + tl.arange(0, BLOCK_K)[None, :]
    w_ptrs = w_ptr + tl.arange(0, BLOCK_K // 2)[:, None] * stride_wk + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=rows[:, None] < M, other=0.0)
        packed = tl.load(w_ptrs)
        scales = tl.load(scales_ptr + k * BLOCK_K // GROUP_K * stride_sk + columns)
        low, high = (packed & 15).to(x.dtype) - 8, (packed >> 4).to(x.dtype) - 8
        w = tl.join(low, high).permute(0, 2, 1).reshape(BLOCK_K, BLOCK_N) * scales[None, :]
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K // 2 * stride_wk
    y_ptrs = y_ptr + rows[:, None] * stride_ym + columns[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=rows[:, None] < M)


@triton.jit
def split_k(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """C += A @ B, each program with a part of K; the operands are contiguous."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = K - k * BLOCK_K * SPLIT_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * SPLIT_K
        b_ptrs += BLOCK_K * SPLIT_K * N
    c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
    tl.atomic_add(c_ptrs, acc, mask=(rows[:, None] < M) & (columns[None, :] < N), sem="relaxed")


@triton.jit
def chained(
    a_ptr, b_ptr, c_ptr, out_ptr, N, stride_a, stride_b, stride_c, stride_out,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """out = (A @ B.T) @ C, a block of rows a program, A and C of WIDTH columns."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    width = tl.arange(0, WIDTH)
    a = tl.load(a_ptr + rows[:, None] * stride_a + width[None, :])
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        b = tl.load(b_ptr + keys[:, None] * stride_b + width[None, :])
        c = tl.load(c_ptr + keys[:, None] * stride_c + width[None, :])
        p = tl.dot(a, tl.trans(b))
        acc = tl.dot(p.to(c.dtype), c, acc)
    tl.store(out_ptr + rows[:, None] * stride_out + width[None, :], acc.to(out_ptr.dtype.element_ty))


@triton.jit
def mixture_of_experts(
    x_ptr, w_ptr, out_ptr, tokens_ptr, experts_ptr, N, K, tokens,
    stride_xm, stride_we, stride_wn, stride_om,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, TOP_K: tl.constexpr,
):  # fmt: skip
    """Each block of tokens, sorted by expert and padded, times the weights of its expert: rows of x are gathered."""
    tiles_m = tl.num_programs(0) // tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = grouped_tile(tl.program_id(0), tiles_m * BLOCK_M, N, BLOCK_M, BLOCK_N, GROUP)
    token = tl.load(tokens_ptr + pid_m * BLOCK_M + tl.arange(0, BLOCK_M))
    expert = tl.load(experts_ptr + pid_m).to(tl.int64)
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    real = token < tokens
    x_ptrs = x_ptr + (token[:, None] // TOP_K * stride_xm + depth[None, :])
    w_ptrs = w_ptr + expert * stride_we + (depth[:, None] + columns[None, :] * stride_wn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=real[:, None] & (depth[None, :] < K - k * BLOCK_K), other=0.0)
        w = tl.load(w_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out_ptrs = out_ptr + token[:, None] * stride_om + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=real[:, None] & (columns[None, :] < N))


@triton.jit
def grouped(
    addresses_ptr, sizes_ptr, strides_ptr, GROUPS,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Products of different sizes by a fixed number of programs; each takes tiles of one product after the other."""
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 3)
        N = tl.load(sizes_ptr + group * 3 + 1)
        K = tl.load(sizes_ptr + group * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while tile >= first and tile < first + tiles:
            stride_a = tl.load(strides_ptr + group * 3)
            stride_b = tl.load(strides_ptr + group * 3 + 1)
            stride_c = tl.load(strides_ptr + group * 3 + 2)
            a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(tl.float16))
            rows = (tile - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (tile - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + rows[:, None] * stride_a + depth[None, :]
            b_ptrs = b_ptr + depth[:, None] * stride_b + columns[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(tl.cdiv(K, BLOCK_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                a = tl.load(a_ptrs)
                b = tl.load(b_ptrs)
                acc = tl.dot(a, b, acc)
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * stride_b
            c_ptrs = c_ptr + rows[:, None] * stride_c + columns[None, :]
            tl.store(c_ptrs, acc.to(tl.float16))
            tile += tl.num_programs(0)
        first += tiles
