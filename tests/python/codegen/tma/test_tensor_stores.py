"""Stores that the tensor memory accelerator does: results against torch, guard elements around them untouched."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from helpers import module

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

HAS_TMA = (os.environ.get("TILEWRIGHT_DEVICE") or "").endswith("sm_90")


def stores(handle):
    """How many instructions copy boxes to global memory."""
    return handle.asm["ptx"].count("cp.async.bulk.tensor.2d.global.shared::cta") if HAS_TMA else None


@triton.jit
def pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PERSISTENT: tl.constexpr, COLUMNS: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    last = tiles if PERSISTENT else tl.program_id(0) + 1
    for tile in tl.range(tl.program_id(0), last, tl.num_programs(0), flatten=True):
        offs_m = tile // tiles_n * BM + tl.arange(0, BM)
        offs_n = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            offs_k = k + tl.arange(0, BK)
            a_mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
            b_mask = (offs_k < K)[:, None] & (offs_n < N)[None, :]
            a = tl.load(a_ptr + offs_m[:, None] * sam + offs_k[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + offs_k[:, None] * sbk + offs_n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        if SCALE:
            acc = acc * 2 + 1
        inside = (offs_m < M)[:, None] & (offs_n < N)[None, :]
        if COLUMNS:
            c_ptrs = c_ptr + offs_m[:, None] + offs_n[None, :] * scm
        else:
            c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :]
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def product(a, b, c, sizes, blocks, *, persistent=False, columns=False, scale=False, **options):
    (M, N, K), (BM, BN, BK) = sizes, blocks
    tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    stride = c.stride(1) if columns else c.stride(0)
    handle = pointers[(2 if persistent else tiles,)](
        a, b, c, M, N, K, a.stride(0), b.stride(0), stride, BM, BN, BK, persistent, columns, scale, **options
    )
    expected = a.double() @ b.double()
    return handle, expected * 2 + 1 if scale else expected


CASES = [
    # size, blocks, warps, stages, out, persistent, columns, scale, whether tensor copies store
    ((96, 80, 64), (64, 64, 32), 4, 3, torch.float16, False, False, False, True),
    ((96, 80, 64), (64, 64, 32), 4, 3, torch.bfloat16, True, False, True, True),
    ((64, 208, 48), (64, 128, 32), 4, 2, torch.float16, True, False, False, True),
    ((112, 48, 32), (128, 32, 32), 8, 2, torch.float16, False, True, False, True),
    ((80, 64, 64), (64, 32, 32), 4, 2, torch.float32, False, False, False, True),
    ((80, 160, 64), (64, 64, 32), 4, 2, torch.float32, True, False, False, True),
    # The rows of the result are no multiple of 16 bytes.
    ((64, 67, 64), (64, 64, 32), 4, 2, torch.float16, False, False, False, False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)).replace("torch.", ""))
def test_products(device, case):
    sizes, blocks, warps, stages, dtype, persistent, columns, scale, by_copies = case
    M, N, K = sizes
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(M, K, generator=generator).half().to(device)
    b = torch.randn(K, (N + 7) // 8 * 8, generator=generator).half().to(device)
    # Elements after the rows and columns of the result stay as they are.
    more = 16 if by_copies else 1
    shape = (N, M + more) if columns else (M, N + more - (0 if by_copies else 1))
    whole = torch.full((shape[0] + 3, shape[1]), 7.0, dtype=dtype, device=device)
    c = whole[:N, :M].T if columns else whole[:M, :N]
    handle, expected = product(
        a, b[:, :N], c, sizes, blocks, persistent=persistent, columns=columns, scale=scale,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-3
    torch.testing.assert_close(c.double(), expected, rtol=tolerance, atol=tolerance * 40)
    outside = whole.clone()
    (outside[:N, :M] if columns else outside[:M, :N]).fill_(7)
    assert bool((outside == 7).all())
    if HAS_TMA:
        assert (stores(handle) > 0) == by_copies, handle.asm["gpu"]


@triton.jit
def descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0), flatten=True):
        om, on = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([om, k]), b.load([on, k]).T, acc)
        if PARTS == 2:
            halves = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
            first, second = tl.split(halves)
            c.store([om, on], first.to(tl.float16))
            c.store([om, on + BN // 2], second.to(tl.float16))
        else:
            c.store([om, on], acc.to(tl.float16))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("size", [(128, 128, 64), (72, 200, 40)])
def test_descriptors(device, size, parts):
    M, N, K = size
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(extent, K, generator=generator).half().to(device) for extent in (M, N))
    c = torch.full((M, N), 7.0, dtype=torch.float16, device=device)
    BM, BN, BK = 64, 64, 32
    descs = [
        TensorDescriptor.from_tensor(x, list(block))
        for x, block in ((a, (BM, BK)), (b, (BN, BK)), (c, (BM, BN // parts)))
    ]
    descriptors[(3,)](*descs, M, N, K, BM, BN, BK, parts, num_warps=4, num_stages=3)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=8e-2)


@triton.jit
def in_order(a_ptr, b_ptr, c_ptr, n, BM: tl.constexpr, BK: tl.constexpr, READ: tl.constexpr):
    rows, depth = tl.arange(0, BM), tl.arange(0, BK)
    places = rows[:, None] * BM + rows[None, :]
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for k in range(n):
        a = tl.load(a_ptr + k * BM * BK + rows[:, None] * BK + depth[None, :])
        b = tl.load(b_ptr + k * BM * BK + depth[:, None] * BM + rows[None, :])
        acc = tl.dot(a, b, acc)
        # The same elements in each iteration: the last one counts.
        tl.store(c_ptr + places, acc.to(tl.float16))
        if READ:
            acc += tl.load(c_ptr + rows[None, :] * BM + rows[:, None])


@pytest.mark.parametrize("read", [False, True])
def test_stores_to_the_same_place_come_in_order(device, read):
    n, M, K = 4, 64, 32
    generator = torch.Generator().manual_seed(5)
    a = torch.randint(-1, 2, (n, M, K), generator=generator).half().to(device)
    b = torch.randint(-1, 2, (n, K, M), generator=generator).half().to(device)
    c = torch.full((M, M), 7.0, dtype=torch.float16, device=device)
    in_order[(1,)](a, b, c, n, M, K, read, num_warps=4, num_stages=2)
    acc = torch.zeros(M, M, dtype=torch.float64)
    for k in range(n):
        acc += a[k].double().cpu() @ b[k].double().cpu()
        stored = acc.clone()
        if read:
            acc += stored.T
    assert torch.equal(c.double().cpu(), stored)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("columns", [64, 67, 84, 97])
def test_rows_that_end_within_16_bytes(device, columns, dtype):
    # Copies write chunks of 16 bytes: they must not write after the last column of a padded row.
    M, K = 72, 32
    generator = torch.Generator().manual_seed(8)
    a = torch.randint(-3, 4, (M, K), generator=generator).half().to(device)
    b = torch.randint(-3, 4, (K, 112), generator=generator).half().to(device)
    expected = a.double() @ b[:, :columns].double()
    whole = torch.full((M + 3, 128), 7.0, dtype=dtype, device=device)
    product(a, b[:, :columns], whole[:M, :columns], (M, columns, K), (64, 64, 32), num_warps=4, num_stages=2)
    assert torch.equal(whole[:M, :columns].double(), expected)
    assert bool((whole[:, columns:] == 7).all())
    if dtype == torch.float32:
        return
    whole.fill_(7)
    transposed = b.T.contiguous()[:columns]
    descs = [
        TensorDescriptor.from_tensor(x, block)
        for x, block in ((a, [64, 32]), (transposed, [64, 32]), (whole[:M, :columns], [64, 64]))
    ]
    descriptors[(2,)](*descs, M, columns, K, 64, 64, 32, 1, num_warps=4, num_stages=2)
    assert torch.equal(whole[:M, :columns].double(), expected)
    assert bool((whole[:, columns:] == 7).all())


MASKED = """
@triton.jit
def holds(i, j, f, M, N):
    return {mask}


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, flags_ptr, M, N, depth, B: tl.constexpr, BK: tl.constexpr):
    places = tl.arange(0, B)
    flags = tl.load(flags_ptr + places)[:, None]
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, depth, BK):
        inner = k + tl.arange(0, BK)
        a_mask = holds(places[:, None], inner[None, :], flags, M, N)
        b_mask = holds(inner[:, None], places[None, :], tl.load(flags_ptr + inner)[:, None], M, N)
        a = tl.load(a_ptr + places[:, None] * 128 + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * 128 + places[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    c_mask = holds(places[:, None], places[None, :], flags, M, N)
    tl.store(c_ptr + places[:, None] * 128 + places[None, :], acc.to(tl.float16), mask=c_mask)
"""
# Of the rows i and columns j of a tile, a number f that is loaded for each row, and two integers. The first lines are
# boxes, which tensor copies may move; the others are not.
MASKS = [
    *["(i < M) & (j < N)", "(M > i) & (N > j)", "(i <= M) & (N >= j)", "(i >= M) & (j > 5)", "(j < N)"],
    *[
        "(i + 3 < M) & (j - 3 < N)",
        "(7 - i < M)",
        "(0 <= i) & (i < M) & (j >= 0) & (j < N)",
        "(i < M) & (i < N)",
    ],
    *[
        "~((i < M) & (j < N))",
        "~(i < M)",
        "~(~(i < M))",
        "~((i >= M) | (j >= N))",
        "~(f > 0)",
        "(i < M) & ~(f > 0)",
    ],
    *[
        "(i < M) | (j < N)",
        "(i < M) ^ (j < N)",
        "((i < M) | (j < N)) & ~((i < M) & (j < N))",
        "(i < M) ^ True",
    ],
    *[
        "(i == M) | (j != N)",
        "i != M",
        "(i * 2 < M)",
        "(i + j < M)",
        "i <= j",
        "(i % 3 == 1) & (j < N)",
        "(i & 4) == 0",
    ],
    *[
        "tl.where(i < M, j < N, f > 0)",
        "tl.where(f > 0, i < M, False)",
        "f > 0",
        "(f > 0) & (j < N)",
        "f == j",
    ],
    *["(i < M) & True", "(i < M) | True", "(i < M) & False", "((i + j) * 0) == 0", "((i + j) * 0) != 0"],
    *[
        f"{bound} {sign} i"
        for bound in ["tl.minimum(tl.maximum(M, 0), 64)"]
        for sign in ("<", "<=", ">", ">=")
    ],
    *["~(i <= tl.minimum(tl.maximum(M, 0), 64))", "(M < N) & (i < M)", "(i < M) & (f < N)"],
]


@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_every_form(device, mask):
    kernel = module(MASKED.format(mask=mask)).kernel
    generator = torch.Generator().manual_seed(9)
    a, b = (torch.randint(-2, 3, (128, 128), generator=generator).double() for _ in range(2))
    flags = torch.randint(-1, 4, (64,), generator=generator).int()
    rows = torch.arange(64)

    def holds(M, N):
        names = {"i": rows[:, None], "j": rows[None, :], "f": flags[:, None], "M": M, "N": N}
        found = eval(mask, names | {"tl": SimpleNamespace(where=torch.where, minimum=min, maximum=max)})
        return found.broadcast_to(64, 64)

    for M, N in ((40, 48), (37, 0), (-3, 70), (1, 16)):
        c = torch.full((64, 128), 7.0, dtype=torch.float16, device=device)
        left, right = a[:64].half().to(device), b[:64].half().to(device)
        kernel[(1,)](left, right, c, flags.to(device), M, N, 64, 64, 32)
        inside = holds(M, N)
        expected = torch.full((64, 128), 7.0, dtype=torch.float64)
        product = (a[:64, :64] * inside) @ (b[:64, :64] * inside)
        expected[:, :64] = torch.where(inside, product, 7.0)
        assert torch.equal(c.double().cpu(), expected), (M, N)


@triton.jit
def sum_and_maximum(sum_a, most_a, sum_b, most_b):
    return sum_a + sum_b, tl.maximum(most_a, most_b)


@triton.jit
def several(a_ptr, b_ptr, c_ptr, parts_ptr):
    rows, columns, small, narrow = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, 4), tl.arange(0, 16)
    a = tl.load(a_ptr + rows[:, None] * 32 + columns[None, :])
    b = tl.load(b_ptr + columns[:, None] * 32 + columns[None, :])
    acc = tl.dot(a, b)
    flipped = tl.flip(acc, 0)
    sums, most = tl.associative_scan((flipped, flipped), 0, sum_and_maximum)
    tl.store(c_ptr + rows[:, None] * 32 + columns[None, :], sums + most)
    places = small[:, None] * 16 + narrow[None, :]
    part = tl.sum(tl.sum(tl.reshape(acc, (4, 4, 2, 16)), 2), 1)
    tl.store(parts_ptr + places, part)
    tl.store(parts_ptr + 64 + places, part * 2)


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_boxes_of_few_rows_lie_where_their_swizzle_begins(device, warps):
    generator = torch.Generator().manual_seed(10)
    a, b = (torch.randint(-3, 4, shape, generator=generator).float() for shape in ((16, 32), (32, 32)))
    c, parts = (torch.full(shape, 7.0, device=device) for shape in ((16, 32), (2, 4, 16)))
    several[(1,)](a.to(device), b.to(device), c, parts, num_warps=warps, num_stages=4)
    product = a @ b
    flipped = product.flip(0)
    assert torch.equal(c.cpu(), flipped.cumsum(0) + flipped.cummax(0).values)
    part = product.reshape(4, 4, 2, 16).sum(2).sum(1)
    assert torch.equal(parts.cpu(), torch.stack([part, part * 2]))
