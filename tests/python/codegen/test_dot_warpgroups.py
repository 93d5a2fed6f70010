"""Matrix products in a loop by tiles that warpgroups compute: every type, both orders of each operand, odd extents,
warps that share rows and columns, products whose result is an operand of the next one, sums of few inexact terms."""

import numpy as np
import pytest
import torch
from helpers import module

import tilewright.language as tl

TILED = """@triton.jit
def kernel(
    a_ptr, b_ptr, out_ptr, m, n, k, a_rows, a_columns, b_rows, b_columns,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SUM: tl.constexpr, IMPRECISE: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    a_ptrs = a_ptr + (rows % m)[:, None] * a_rows + depth[None, :] * a_columns
    b_ptrs = b_ptr + depth[:, None] * b_rows + (columns % n)[None, :] * b_columns
    acc = tl.zeros((M, N), SUM)
    for i in range(0, tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < k - i * K, other=0)
        b = tl.load(b_ptrs, mask=depth[:, None] < k - i * K, other=0)
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=IMPRECISE, out_dtype=SUM)
        a_ptrs += K * a_columns
        b_ptrs += K * b_rows
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc, mask=mask)
"""

CHAIN = """@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, out_ptr, length, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + columns[None, :])
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        keys = start + tl.arange(0, N)
        k = tl.load(k_ptr + keys[:, None] * D + columns[None, :])
        scores = tl.dot(q, tl.trans(k))
        scores = tl.where(rows[:, None] >= keys[None, :], scores * 0.5, 0.0)
        v = tl.load(v_ptr + keys[:, None] * D + columns[None, :])
        acc = tl.dot(scores.to(v.dtype), v, acc)
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], acc)
"""

TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float8e4nv": torch.float8_e4m3fn,
    "float8e5": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
# Tiles, and the warps that share them: along the rows, along the columns, along both, too few for a warpgroup.
TILES = [
    (64, 64, 32, 4),
    (128, 32, 64, 8),
    (64, 128, 32, 8),
    (128, 64, 128, 4),
    (64, 16, 64, 4),
    (128, 128, 32, 16),
    (64, 64, 32, 2),
]


def numbers(rng, dtype, rows, columns, transposed):
    """Integers so small that each product and each sum of products is exact."""
    low = 0 if dtype == "uint8" else -3
    values = rng.integers(low, 4, (columns, rows) if transposed else (rows, columns))
    tensor = torch.from_numpy(values).to(TYPES[dtype])
    return (values.T, tensor.t()) if transposed else (values, tensor)


def multiply(rng, dtype, tile, order, device, imprecise=None):
    m, n, k, warps = tile
    rows, columns, depth = m + 7, n + 16, 2 * k + 16
    a, left = numbers(rng, dtype, rows, depth, order[0] == "t")
    b, right = numbers(rng, dtype, depth, columns, order[1] == "t")
    out_dtype = torch.int32 if dtype in ("int8", "uint8") else torch.float32
    out = torch.empty(rows, columns, dtype=out_dtype).to(device)
    left, right = left.to(device), right.to(device)
    tiled = module(TILED)
    grid = (-(-rows // m), -(-columns // n))
    sums = tiled.tl.int32 if out_dtype == torch.int32 else tiled.tl.float32
    tiled.kernel[grid](
        left,
        right,
        out,
        rows,
        columns,
        depth,
        *left.stride(),
        *right.stride(),
        M=m,
        N=n,
        K=k,
        SUM=sums,
        IMPRECISE=imprecise,
        num_warps=warps,
    )
    np.testing.assert_array_equal(out.cpu().numpy(), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", TYPES)
def test_tiles_of_warpgroups(dtype, order, device):
    rng = np.random.default_rng(sum(map(ord, dtype + order)))
    for place in rng.choice(len(TILES), 2, replace=False):
        multiply(rng, dtype, TILES[place], order, device)


@pytest.mark.parametrize("imprecise", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["float8e4nv", "float8e5"])
def test_sums_of_few_inexact_terms(dtype, imprecise, device):
    rng = np.random.default_rng(imprecise)
    multiply(rng, dtype, (64, 32, 128, 4), "nt", device, imprecise)
    multiply(rng, dtype, (128, 32, 128, 4), "nt", device, imprecise)


@pytest.mark.parametrize("tile", [(64, 32, 64, 4), (128, 64, 32, 8), (64, 64, 64, 8)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_product_is_an_operand_of_the_next(dtype, tile, device):
    m, n, d, warps = tile
    rng = np.random.default_rng(m + n + d)
    length = 2 * n
    (q, k, v), tensors = zip(
        *(numbers(rng, dtype, rows, d, False) for rows in (m, length, length)), strict=True
    )
    # Whole numbers up to 8: a product of two has no more than the bits of bf16 where few are not zero.
    sparse = rng.random((m, d)) < 0.03
    q = q * sparse
    tensors = [torch.from_numpy(q).to(TYPES[dtype]), *tensors[1:]]
    out = torch.empty(m, d).to(device)
    tensors = [tensor.to(device) for tensor in tensors]
    module(CHAIN).kernel[(1,)](*tensors, out, length, M=m, N=n, D=d, num_warps=warps)
    scores = np.where(np.arange(m)[:, None] >= np.arange(length)[None, :], (q @ k.T) * 0.5, 0)
    np.testing.assert_array_equal(out.cpu().numpy(), scores @ v)


def test_the_error_of_fp8_follows_the_number_of_inexact_terms(device):
    """Tensor cores of sm_90 keep some 13 bits of fractions while they add up products of fp8, whatever type acc has.

    Each instruction of 32 terms adds an error of 2^-13 of the sum at most; between the parts, sums are of fp32. The
    simulator adds up exactly: there, the instructions show that the parts are added by ordinary additions.
    """
    depth = 4096
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand((64, depth), generator=generator).to(torch.float8_e4m3fn) for _ in range(2))
    exact = a.double() @ b.double().T
    kernel = module(TILED).kernel
    additions = {}
    for imprecise in (0, 32, 64, 128, None):
        out = torch.zeros((64, 64), device=device)
        handle = kernel[(1, 1)](
            a.to(device),
            b.to(device),
            out,
            64,
            64,
            depth,
            depth,
            1,
            1,
            depth,
            64,
            64,
            128,
            tl.float32,
            imprecise,
        )
        error = ((out.double().cpu() - exact) / exact).abs().max()
        if imprecise is not None:
            assert error <= max(imprecise // 32, 1) * 2.0**-12, imprecise
        if "ptx" in handle.asm and "wgmma.mma_async" in handle.asm["ptx"]:
            additions[imprecise] = handle.asm["ptx"].count("add.rn.f32") + handle.asm["ptx"].count("add.f32")
    if additions:
        assert additions[0] == additions[32] > additions[64] > additions[128] > additions[None] == 0
