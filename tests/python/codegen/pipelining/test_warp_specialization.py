"""Loops that ask for warps of their own for copies (`warp_specialize=True`): results against torch, and who runs it.

One thread starts tensor copies, of one warp or, where registers are given away, of four; what threads copy for
themselves takes as many warps as compute.
"""

from __future__ import annotations

import os
import re

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

HAS_ROLES = (os.environ.get("TILEWRIGHT_DEVICE") or "").endswith("sm_90")


def check_warps(handle, warps, is_specialized, copying=None):
    """How many threads a block has, and whether registers are given away."""
    copying = copying or (4 if warps == 8 else 1)
    if HAS_ROLES and is_specialized is not None:
        ptx = handle.asm["ptx"]
        threads = int(re.search(r"\.reqntid (\d+)", ptx).group(1))
        assert threads == 32 * (warps + copying * is_specialized)
        assert ("setmaxnreg" in ptx) == (is_specialized and warps == 8)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, OUTER: tl.constexpr, INNER: tl.constexpr, BIAS: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True, warp_specialize=OUTER
    ):
        first = tile // (GROUP * tiles_n) * GROUP
        rows = min(tiles_m - first, GROUP)
        pid_m = first + tile % (GROUP * tiles_n) % rows
        pid_n = tile % (GROUP * tiles_n) // rows
        offs_m = pid_m * BM + tl.arange(0, BM)
        offs_n = pid_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        # Tiles on the diagonal are left out.
        if not SKIP or pid_m != pid_n:
            for k in tl.range(0, K, BK, warp_specialize=INNER):
                offs_k = k + tl.arange(0, BK)
                a_mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
                b_mask = (offs_k < K)[:, None] & (offs_n < N)[None, :]
                a = tl.load(a_ptr + offs_m[:, None] * sam + offs_k[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + offs_k[:, None] * sbk + offs_n[None, :], mask=b_mask, other=0.0)
                acc = tl.dot(a, b, acc)
        if BIAS:
            acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
            acc = acc - tl.max(acc, 1)[:, None]
        c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :]
        tl.store(c_ptrs, acc.to(tl.float16), mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


CASES = [
    # size, blocks, warps, stages, programs, outer, inner, bias, skip, whether copies have warps
    ((128, 128, 128), (64, 64, 32), 4, 3, 1, True, False, False, False, True),
    ((96, 144, 80), (64, 64, 32), 4, 2, 2, True, False, False, False, True),
    ((96, 144, 80), (64, 64, 32), 4, 4, 9, False, True, False, False, True),
    ((200, 128, 96), (128, 64, 32), 8, 3, 2, True, False, False, False, True),
    ((128, 128, 64), (64, 128, 32), 4, 3, 1, True, False, True, False, True),
    ((160, 128, 64), (128, 64, 32), 8, 2, 1, True, True, True, False, True),
    ((128, 192, 64), (64, 64, 32), 4, 3, 2, True, False, False, True, True),
    # Nothing to add up.
    ((64, 64, 0), (64, 64, 32), 4, 3, 1, True, False, True, False, True),
    # No whole warpgroups, which exchange no registers.
    ((64, 64, 64), (64, 64, 32), 2, 3, 1, True, False, False, False, True),
    ((96, 80, 64), (64, 64, 32), 1, 3, 2, True, False, True, False, True),
    # One stage.
    ((64, 64, 64), (64, 64, 32), 4, 1, 1, True, False, False, False, False),
    # Rows that no tensor copy takes, which the launch finds out.
    ((64, 64, 67), (64, 64, 32), 4, 3, 1, True, False, False, False, None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_products(device, case):
    sizes, blocks, warps, stages, programs, outer, inner, bias, skip, is_specialized = case
    M, N, K = sizes
    generator = torch.Generator().manual_seed(6)
    a = torch.randn(M, K, generator=generator).half().to(device)
    b = torch.randn(K, N, generator=generator).half().to(device)
    added = torch.randn(N, generator=generator).to(device)
    c = torch.full((M, N), 7.0, dtype=torch.float16, device=device)
    handle = matmul[(programs,)](
        a, b, c, added, M, N, K, K, N, N, *blocks, 2, outer, inner, bias, skip,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    expected = a.double() @ b.double()
    BM, BN, _ = blocks
    if skip:
        for number in range(min(triton.cdiv(M, BM), triton.cdiv(N, BN))):
            expected[number * BM : (number + 1) * BM, number * BN : (number + 1) * BN] = 0
    if bias:
        expected = expected + added.double()
        parts = [
            part - torch.clamp_min(part.amax(1, keepdim=True), low) for part, low in tiles_of(expected, N, BN)
        ]
        expected = torch.cat(parts, 1)
    torch.testing.assert_close(c.double(), expected, rtol=4e-3, atol=8e-2)
    check_warps(handle, warps, is_specialized)


def tiles_of(expected, N, BN):
    """The tiles along a row; columns beyond the last count as 0 in its maximum."""
    for start in range(0, N, BN):
        yield expected[:, start : start + BN], 0.0 if start + BN > N else float("-inf")


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * M
    rows, depth = first + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + depth[None, :], mask=(rows < n)[:, None], other=0.0)
    acc = tl.zeros((M, D), dtype=tl.float32)
    highest = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    last = min(first + M, n) if CAUSAL else n
    for start in tl.range(0, last, N, warp_specialize=True):
        columns = start + tl.arange(0, N)
        k = tl.load(k_ptr + columns[:, None] * D + depth[None, :], mask=(columns < n)[:, None], other=0.0)
        s = tl.dot(q, k.T) * scale
        inside = (columns < n)[None, :]
        if CAUSAL:
            inside = inside & (columns[None, :] <= rows[:, None])
        s = tl.where(inside, s, float("-inf"))
        best = tl.maximum(highest, tl.max(s, 1))
        p = tl.exp2(s - best[:, None])
        shrink = tl.exp2(highest - best)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + columns[:, None] * D + depth[None, :], mask=(columns < n)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.float16), v, acc * shrink[:, None])
        highest = best
    acc = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + depth[None, :], acc.to(tl.float16), mask=(rows < n)[:, None])


@pytest.mark.parametrize(
    "case",
    [(4, 64, 32, 32, 3, 100, False), (4, 64, 64, 64, 2, 160, True), (8, 128, 32, 64, 3, 150, True)],
    ids=str,
)
def test_attention(device, case):
    warps, M, N, D, stages, n, causal = case
    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(n, D, generator=generator).half().to(device) for _ in range(3))
    o = torch.full((n, D), 7.0, dtype=torch.float16, device=device)
    handle = attention[(triton.cdiv(n, M),)](
        q, k, v, o, n, 0.25, M, N, D, causal, num_warps=warps, num_stages=stages
    )
    s = (q.double() @ k.double().T) * 0.25 * 0.6931471805599453
    if causal:
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=device).triu(1), float("-inf"))
    torch.testing.assert_close(o.double(), torch.softmax(s, 1) @ v.double(), rtol=4e-3, atol=4e-3)
    check_warps(handle, warps, True)


@triton.jit
def paged(table_ptr, a_ptr, b_ptr, c_ptr, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, depth, columns = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for i in tl.range(0, n, warp_specialize=True):
        page = tl.load(table_ptr + i)
        a = tl.load(a_ptr + i * M * K + rows[:, None] * K + depth[None, :])
        b = tl.load(b_ptr + page * K * N + depth[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


def test_where_to_copy_from_is_loaded(device):
    n, M, N, K = 5, 64, 64, 32
    generator = torch.Generator().manual_seed(8)
    a = torch.randn(n, M, K, generator=generator).half().to(device)
    b = torch.randn(n, K, N, generator=generator).half().to(device)
    table = torch.randperm(n, generator=generator).int().to(device)
    c = torch.zeros(M, N, device=device)
    handle = paged[(1,)](table, a, b, c, n, M, N, K, num_warps=4, num_stages=3)
    expected = (a.double() @ b.double()[table.long()]).sum(0)
    torch.testing.assert_close(c.double(), expected, rtol=2e-3, atol=2e-2)
    check_warps(handle, 4, True, copying=4)


@triton.jit
def gathered(
    a_ptr, numbers_ptr, addresses_ptr, sizes_ptr, c_ptr, groups, K, scm, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Rows of A by their numbers, times matrices by their addresses: tiles of one after the other, as the sizes say."""
    tile, first = tl.program_id(0), 0
    if groups == 0:
        return
    for group in range(groups):
        M, N = tl.load(sizes_ptr + group * 2), tl.multiple_of(tl.load(sizes_ptr + group * 2 + 1), 16)
        tiles_n = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * tiles_n
        while tile >= first and tile < first + tiles:
            b_ptr = tl.multiple_of(tl.load(addresses_ptr + group).to(tl.pointer_type(tl.float16)), 16)
            rows = (tile - first) // tiles_n * BM + tl.arange(0, BM)
            columns = (tile - first) % tiles_n * BN + tl.arange(0, BN)
            number = tl.load(numbers_ptr + rows, mask=rows < M, other=0)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in tl.range(0, K, BK, warp_specialize=True, num_stages=STAGES):
                depth = k + tl.arange(0, BK)
                a_mask = (rows < M)[:, None] & (depth < K)[None, :]
                b_mask = (depth < K)[:, None] & (columns < N)[None, :]
                a = tl.load(a_ptr + number[:, None] * K + depth[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + depth[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
                acc = tl.dot(a, b, acc)
            c_ptrs = c_ptr + (group * BM * 2 + rows)[:, None] * scm + columns[None, :]
            tl.store(c_ptrs, acc.to(tl.float16), mask=(rows < M)[:, None] & (columns < N)[None, :])
            tile += tl.num_programs(0)
        first += tiles


GATHERED = [
    # sizes of the products, K, blocks, warps, stages, programs
    ([(64, 64)], 64, (64, 64, 32), 4, 3, 1),
    ([(100, 80), (64, 144)], 112, (64, 64, 32), 4, 2, 1),
    ([(100, 80), (8, 16), (128, 64)], 48, (64, 64, 32), 4, 4, 3),
    ([(200, 80), (128, 128)], 80, (128, 64, 32), 8, 3, 1),
    ([(130, 64), (256, 128)], 160, (128, 128, 32), 8, 4, 2),
    # Sums that leave a thread too few registers, with twice as many warps.
    ([(130, 64), (256, 128)], 64, (128, 256, 32), 8, 2, 2),
    # Nothing to add up, and no product.
    ([(64, 64)], 0, (64, 64, 32), 4, 3, 1),
    ([], 64, (64, 64, 32), 4, 3, 1),
]


@pytest.mark.parametrize("case", GATHERED, ids=str)
def test_threads_copy(device, case):
    sizes, K, blocks, warps, stages, programs = case
    generator = torch.Generator().manual_seed(9)
    numbers = torch.randint(0, 50, (256,), generator=generator, dtype=torch.int32).to(device)
    a = torch.randn(50, max(K, 1), generator=generator).half().to(device)
    bs = [torch.randn(max(K, 1), n, generator=generator).half().to(device) for _, n in sizes]
    addresses = torch.tensor([b.data_ptr() for b in bs], dtype=torch.int64, device=device)
    height = blocks[0] * 2
    c = torch.full((max(len(sizes), 1) * height, 144), 7.0, dtype=torch.float16, device=device)
    table = torch.tensor(sizes, dtype=torch.int32, device=device)
    handle = gathered[(programs,)](
        a,
        numbers,
        addresses,
        table,
        c,
        len(sizes),
        K,
        144,
        *blocks,
        stages,
        num_warps=warps,
        num_stages=stages,
    )
    expected = torch.full(c.shape, 7.0, dtype=torch.float64, device=device)
    for place, ((m, n), b) in enumerate(zip(sizes, bs, strict=True)):
        part = a[numbers[:m].long(), :K].double() @ b[:K].double()
        expected[place * height : place * height + m, :n] = part
    torch.testing.assert_close(c.double(), expected, rtol=4e-3, atol=8e-2)
    # Of one product the kernel makes a tensor map to store by.
    check_warps(handle, warps, None if len(sizes) == 1 else blocks[1] < 256, copying=warps)


@triton.jit
def powers(x_ptr, places_ptr, n, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """Each matrix is the product of those before it: what is stored is loaded in the next turn."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    for turn in range(1, n):
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for k in tl.range(0, BLOCK, 32, warp_specialize=True):
            depth = k + tl.arange(0, 32)
            a_place, b_place = tl.load(places_ptr + turn - 1), tl.load(places_ptr + turn)
            a = tl.load(x_ptr + a_place * BLOCK * BLOCK + rows[:, None] * BLOCK + depth[None, :])
            b = tl.load(x_ptr + b_place * BLOCK * BLOCK + depth[:, None] * BLOCK + columns[None, :])
            acc = tl.dot(a, b, acc)
        to = tl.load(places_ptr + turn + 1)
        tl.store(x_ptr + to * BLOCK * BLOCK + rows[:, None] * BLOCK + columns[None, :], acc.to(tl.float16))


@pytest.mark.parametrize("warps", [4, 8])
def test_what_is_stored_is_copied_later(device, warps):
    block, count = 128, 4
    generator = torch.Generator().manual_seed(10)
    x = (torch.randn(count, block, block, generator=generator) / 12).half().to(device)
    places = torch.tensor([2, 0, 3, 1, 0], dtype=torch.int32, device=device)
    expected = x.clone().double()
    for turn in range(1, 4):
        one, other, to = places[turn - 1 : turn + 2].tolist()
        expected[to] = (expected[one] @ expected[other]).half().double()
    handle = powers[(1,)](x, places, 4, block, count, num_warps=warps, num_stages=3)
    torch.testing.assert_close(x.double(), expected, rtol=1e-2, atol=1e-2)
    check_warps(handle, warps, True, copying=warps)


@triton.jit
def counted(pages_ptr, a_ptr, b_ptr, c_ptr, n, SIZE: tl.constexpr, COUNTS: tl.constexpr):
    """The product of a sum of pages of A, by a table that each turn counts in, and of B."""
    rows, columns = tl.arange(0, SIZE), tl.arange(0, SIZE)
    acc = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for turn in range(n):
        for k in tl.range(0, SIZE, 32, warp_specialize=True):
            depth = k + tl.arange(0, 32)
            page = tl.load(pages_ptr + turn)
            a = tl.load(a_ptr + page * SIZE * SIZE + rows[:, None] * SIZE + depth[None, :])
            b = tl.load(b_ptr + depth[:, None] * SIZE + columns[None, :])
            acc = tl.dot(a, b, acc)
        tl.atomic_add((pages_ptr if COUNTS else c_ptr) + turn, 0, sem="relaxed")
    tl.store(c_ptr + SIZE + rows[:, None] * SIZE + columns[None, :], acc)


@pytest.mark.parametrize("counts", [True, False])
def test_what_others_may_change(device, counts):
    size, n = 64, 3
    generator = torch.Generator().manual_seed(11)
    a = torch.randn(n, size, size, generator=generator).half().to(device)
    b = torch.randn(size, size, generator=generator).half().to(device)
    pages = torch.tensor([1, 0, 2], dtype=torch.int32, device=device)
    c = torch.zeros(size * size + size, device=device)
    handle = counted[(1,)](pages, a, b, c, n, size, counts, num_warps=4, num_stages=3)
    found = c[size:].reshape(size, size).double()
    torch.testing.assert_close(found, (a.double() @ b.double()).sum(0), rtol=2e-3, atol=2e-2)
    check_warps(handle, 4, not counts, copying=4)


@triton.jit
def rows_times(x_ptr, rows_ptr, w_ptr, out_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Gathered rows of x times w. No loop asks for anything."""
    rows = tl.load(rows_ptr + tl.program_id(0) * BM + tl.arange(0, BM))
    columns, depth = tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(x_ptr + rows[:, None] * K + (k * BK + depth)[None, :])
        b = tl.load(w_ptr + (k * BK + depth)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    to = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(out_ptr + to[:, None] * N + columns[None, :], acc)


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_loops_that_do_not_ask_keep_their_copies(device, stages):
    """The warps that compute the products also copy the gathered rows, for any number of stages."""
    generator = torch.Generator().manual_seed(12)
    x = torch.randn(40, 256, generator=generator).half().to(device)
    w = torch.randn(256, 128, generator=generator).half().to(device)
    rows = torch.randint(0, 40, (128,), generator=generator, dtype=torch.int32).to(device)
    out = torch.empty(128, 128, device=device)
    handle = rows_times[(1,)](x, rows, w, out, 128, 256, 128, 128, 64, num_warps=4, num_stages=stages)
    torch.testing.assert_close(out.double(), x[rows.long()].double() @ w.double(), rtol=2e-3, atol=5e-2)
    check_warps(handle, 4, False, copying=4)
