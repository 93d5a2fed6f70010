"""Products of few rows by weights that are computed there: types of 8 bits, two numbers of 4 bits a byte with zero
points and scales of groups, both orders of the weights, masks along every axis, and sums that do not begin at zero."""

import numpy as np
import pytest
import torch
from helpers import module

WEIGHTS = """@triton.jit
def kernel(
    x_ptr, w_ptr, scales_ptr, out_ptr, m, n, k, w_rows, w_columns,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, START: tl.constexpr, EVEN: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    x_ptrs = x_ptr + rows[:, None] * k + depth[None, :]
    w_ptrs = w_ptr + depth[:, None] * w_rows + columns[None, :] * w_columns
    acc = tl.full((M, N), START, tl.float32)
    for i in range(0, tl.cdiv(k, K)):
        x = tl.load(x_ptrs, mask=(rows[:, None] < m) & (depth[None, :] < k - i * K), other=0)
        if EVEN:
            w = tl.load(w_ptrs)
        else:
            w = tl.load(w_ptrs, mask=(depth[:, None] < k - i * K) & (columns[None, :] < n), other=0)
        acc = tl.dot(x, w.to(x.dtype), acc)
        x_ptrs += K
        w_ptrs += K * w_rows
    scales = tl.load(scales_ptr + columns, mask=columns < n, other=0)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc * scales[None, :], mask=mask)
"""

NIBBLES = """@triton.jit
def kernel(
    x_ptr, w_ptr, scales_ptr, zeros_ptr, out_ptr, m, n, k,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ZEROS: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    x_ptrs = x_ptr + rows[:, None] * k + tl.arange(0, K)[None, :]
    w_ptrs = w_ptr + tl.arange(0, K // 2)[:, None] * n + columns[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for i in range(0, tl.cdiv(k, K)):
        x = tl.load(x_ptrs, mask=rows[:, None] < m, other=0)
        packed = tl.load(w_ptrs)
        group = i * K // GROUP
        scales = tl.load(scales_ptr + group * n + columns)
        low, high = (packed & 15).to(x.dtype), (packed >> 4).to(x.dtype)
        if ZEROS:
            zeros = tl.load(zeros_ptr + group * n + columns)[None, :]
            low, high = low - zeros, high - zeros
        else:
            low, high = low - 8, high - 8
        w = tl.join(low, high).permute(0, 2, 1).reshape(K, N) * scales[None, :]
        acc = tl.dot(x, w, acc)
        x_ptrs += K
        w_ptrs += K // 2 * n
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc, mask=rows[:, None] < m)
"""

TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8e4nv": torch.float8_e4m3fn,
    "float8e5": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
# Tiles, warps and stages: fewer columns than a warp has lanes, fewer parts of K than warps, several tiles of rows.
TILES = [
    (16, 64, 128, 4, 4),
    (16, 64, 64, 2, 3),
    (16, 32, 256, 4, 2),
    (16, 128, 128, 4, 3),
    (16, 128, 64, 8, 3),
    (32, 64, 128, 4, 3),
    (16, 16, 128, 4, 3),
    (16, 64, 128, 1, 2),
    (64, 64, 64, 4, 3),
]


def whole(rng, low, high, shape, dtype):
    """Integers so small that each product and each sum of products is exact."""
    values = rng.integers(low, high, shape)
    return values, torch.from_numpy(values).to(TYPES[dtype])


@pytest.mark.parametrize("even", [True, False], ids=["even", "masked"])
@pytest.mark.parametrize("order", ["n", "t"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float8e4nv", "float8e5"])
def test_weights_of_bytes(dtype, order, even, device):
    rng = np.random.default_rng(sum(map(ord, dtype + order)) + even)
    for place in rng.choice(len(TILES), 3, replace=False):
        m, n, k, warps, stages = TILES[place]
        rows = int(rng.choice([1, m - 3, m + 5]))
        columns, depth = (2 * n, 3 * k) if even else (n + 48, 2 * k + 24)
        x_type = str(rng.choice(["float16", "bfloat16"]))
        start = int(rng.choice([0, 0, 3]))
        x, left = whole(rng, -3, 4, (rows, depth), x_type)
        limits = {"int8": (-128, 128), "uint8": (0, 256)}.get(dtype, (-4, 5))
        w, right = whole(rng, *limits, (depth, columns), dtype)
        right = right.to(device) if order == "n" else right.T.contiguous().to(device).T
        scales = rng.integers(1, 4, columns)
        out = torch.empty(rows, columns).to(device)
        grid = (-(-rows // m), -(-columns // n))
        module(WEIGHTS).kernel[grid](
            *(left.to(device), right, torch.from_numpy(scales).float().to(device), out),
            *(rows, columns, depth, *right.stride()),
            M=m,
            N=n,
            K=k,
            START=start,
            EVEN=even,
            num_warps=warps,
            num_stages=stages,
        )
        np.testing.assert_array_equal(out.cpu().numpy(), (x @ w + start) * scales)


@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "eight"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_nibbles(dtype, zeros, device):
    rng = np.random.default_rng(sum(map(ord, dtype)) + zeros)
    for place in rng.choice(len(TILES), 3, replace=False):
        m, n, k, warps, stages = TILES[place]
        rows, columns, depth, group = m - 3, 2 * n, 3 * k, k
        x, left = whole(rng, -3, 4, (rows, depth), dtype)
        packed = rng.integers(0, 256, (depth // 2, columns))
        groups = -(-depth // group)
        scale, scales = whole(rng, 1, 4, (groups, columns), dtype)
        zero, points = whole(rng, 0, 16, (groups, columns), dtype)
        w = np.stack((packed & 15, packed >> 4), 1).reshape(depth, columns)
        taken = np.arange(depth) // group
        w = (w - (zero[taken] if zeros else 8)) * scale[taken]
        out = torch.empty(rows, columns).to(device)
        bytes_ = torch.from_numpy(packed).to(torch.uint8).to(device)
        module(NIBBLES).kernel[(-(-rows // m), -(-columns // n))](
            *(left.to(device), bytes_, scales.to(device), points.to(device), out, rows, columns, depth),
            GROUP=group,
            M=m,
            N=n,
            K=k,
            ZEROS=zeros,
            num_warps=warps,
            num_stages=stages,
        )
        np.testing.assert_array_equal(out.cpu().numpy(), x @ w)


@pytest.mark.parametrize("kind", ["bytes", "nibbles"])
def test_warps_that_copy(kind, device):
    # If a thread computes few weights in an iteration, other warps copy for it. There are more iterations than slots.
    rng = np.random.default_rng(7)
    for n, has_copying_warps in ((64, True), (128, False)):
        m, k, iterations = 16, 128, 7
        rows, columns, depth = 13, 2 * n, iterations * k
        x, left = whole(rng, -3, 4, (rows, depth), "bfloat16")
        out = torch.empty(rows, columns).to(device)
        sizes = {"M": m, "N": n, "K": k, "num_warps": 4, "num_stages": 3}
        if kind == "bytes":
            w, right = whole(rng, -128, 128, (depth, columns), "int8")
            ones = torch.ones(columns).to(device)
            numbers = (rows, columns, depth, *right.stride())
            handle = module(WEIGHTS).kernel[(1, 2)](
                left.to(device), right.to(device), ones, out, *numbers, START=0, EVEN=True, **sizes
            )
        else:
            packed = rng.integers(0, 256, (depth // 2, columns))
            w = np.stack((packed & 15, packed >> 4), 1).reshape(depth, columns)
            scale, scales = whole(rng, 1, 4, (iterations, columns), "bfloat16")
            w = (w - 8) * scale.repeat(k, 0)
            tensors = (left, torch.from_numpy(packed).to(torch.uint8), scales, scales)
            handle = module(NIBBLES).kernel[(1, 2)](
                *(tensor.to(device) for tensor in tensors),
                *(out, rows, columns, depth),
                GROUP=k,
                ZEROS=False,
                **sizes,
            )
        np.testing.assert_array_equal(out.cpu().numpy(), x @ w)
        if "sm_90a" in handle.asm.get("ptx", ""):
            assert ("warp_specialize" in handle.asm["gpu"]) == has_copying_warps
