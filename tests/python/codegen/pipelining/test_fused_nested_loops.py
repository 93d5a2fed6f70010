"""Loops over tiles with `flatten=True`: the copies of the next tile begin while this one ends. Against torch, and what
keeps a loop from it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from conftest import PATIENCE, ROOT

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

HAS_TMA = (os.environ.get("TILEWRIGHT_DEVICE") or "").endswith("sm_90")


def is_flattened(handle):
    """Returns whether slots are filled after the inner loops: the first tile is copied before the outer loop."""
    text = handle.asm["gpu"]
    first = text.index('unroll=0 flatten"')
    return "tensor_load" in text[:first]


@triton.jit
def descriptors(
    a, b, c, tiles, K, tiles_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr,
    SPECIALIZE: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT, warp_specialize=SPECIALIZE
    ):
        om, on = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([om, k]), b.load([on, k]).T, acc)
            if PLAIN:
                # The product is waited for in each iteration.
                acc = acc * 1.0
        c.store([om, on], acc.to(c.dtype))


def operands(M, N, K, dtype, device, seed=3):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(rows, max(K, 32), generator=generator).to(dtype) for rows in (M, N))
    # Elements beyond the operands must not be in the result.
    a[:, K:] = b[:, K:] = float("inf")
    whole = [x.to(device)[:, :K] if K else x.to(device) for x in (a, b)]
    return whole, a[:, :K].double() @ b[:, :K].double().T


def run_descriptors(device, sizes, blocks, warps, stages, programs, dtype=torch.float16, **more):
    (M, N, K), (BM, BN, BK) = sizes, blocks
    flat, specialize, plain = (more.get(name, False) for name in ("flat", "specialize", "plain"))
    (a, b), expected = operands(M, N, K, dtype, device)
    tiles_m, tiles_n = triton.cdiv(M, BM), triton.cdiv(N, BN)
    # Elements outside of all tiles stay as they are.
    c = torch.full((tiles_m * BM, N), 7.0, dtype=dtype, device=device)
    handle = descriptors[(programs,)](
        TensorDescriptor.from_tensor(a, [BM, BK]), TensorDescriptor.from_tensor(b, [BN, BK]),
        TensorDescriptor.from_tensor(c[:M], [BM, BN]), tiles_m * tiles_n, K, tiles_n, BM, BN, BK, flat,
        specialize, plain, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    assert bool((c[M:] == 7).all())
    tolerance = 2e-2 if dtype == torch.bfloat16 else 3e-3
    torch.testing.assert_close(c[:M].cpu().double(), expected, rtol=tolerance, atol=tolerance * 20)
    return handle


CASES = [
    # size, blocks, warps, stages, programs, dtype
    ((128, 192, 128), (64, 64, 32), 4, 3, 1, torch.float16),
    ((128, 192, 128), (64, 64, 32), 4, 2, 2, torch.bfloat16),
    ((128, 192, 128), (64, 64, 32), 4, 4, 4, torch.float16),
    ((128, 192, 160), (64, 64, 32), 4, 5, 1, torch.bfloat16),
    # Fewer iterations than stages; one; none.
    ((192, 128, 64), (64, 64, 32), 4, 5, 2, torch.float16),
    ((192, 128, 32), (64, 64, 32), 4, 3, 2, torch.float16),
    ((192, 128, 0), (64, 64, 32), 4, 3, 1, torch.float16),
    # As many programs as tiles, and more.
    ((128, 128, 96), (64, 64, 32), 4, 3, 4, torch.float16),
    ((128, 128, 96), (64, 64, 32), 4, 3, 7, torch.float16),
    # Sizes that are no multiple of the blocks.
    ((136, 200, 72), (64, 64, 32), 4, 3, 2, torch.float16),
    ((72, 152, 40), (64, 64, 32), 4, 2, 1, torch.bfloat16),
    # Two warpgroups.
    ((256, 192, 128), (128, 64, 32), 8, 3, 1, torch.float16),
    ((256, 192, 128), (128, 64, 32), 8, 2, 2, torch.bfloat16),
    ((256, 192, 64), (128, 64, 32), 8, 4, 5, torch.float16),
    ((200, 200, 104), (128, 64, 32), 8, 5, 3, torch.float16),
    ((256, 192, 0), (128, 64, 32), 8, 3, 2, torch.float16),
    # Products of single warps.
    ((96, 96, 128), (32, 32, 32), 4, 3, 2, torch.float16),
    ((96, 96, 32), (32, 32, 32), 4, 4, 1, torch.float16),
    ((96, 96, 0), (32, 32, 32), 4, 3, 2, torch.bfloat16),
]


def case_id(case):
    return "-".join(map(str, case)).replace("torch.", "")


@pytest.mark.parametrize("plain", [False, True], ids=["sum", "plain"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_descriptors(device, case, plain):
    handle = run_descriptors(device, *case, flat=True, plain=plain)
    if HAS_TMA:
        assert is_flattened(handle), handle.asm["gpu"]


@pytest.mark.parametrize("plain", [False, True], ids=["sum", "plain"])
@pytest.mark.parametrize("case", CASES[:1] + CASES[11:12], ids=case_id)
def test_who_does_not_ask(device, case, plain):
    handle = run_descriptors(device, *case, flat=False, plain=plain)
    assert "flatten" not in (handle.asm["gpu"] if HAS_TMA else "")


@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[8], CASES[11], CASES[14]], ids=case_id)
def test_warps_of_their_own_copy(device, case):
    run_descriptors(device, *case, flat=True, specialize=True)


@triton.jit
def pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * tiles_n) * GROUP
        rows = min(tiles_m - first, GROUP)
        offs_m = (first + tile % (GROUP * tiles_n) % rows) * BM + tl.arange(0, BM)
        offs_n = tile % (GROUP * tiles_n) // rows * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            offs_k = k + tl.arange(0, BK)
            a_mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
            b_mask = (offs_k < K)[:, None] & (offs_n < N)[None, :]
            a = tl.load(a_ptr + offs_m[:, None] * sam + offs_k[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + offs_k[:, None] * sbk + offs_n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        if BIAS:
            # Between warps, and so through shared memory.
            acc = acc - tl.max(acc, 1)[:, None] - tl.max(acc, 0)[None, :]
        c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :]
        tl.store(c_ptrs, acc.to(tl.float16), mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


@pytest.mark.parametrize(("warps", "stages"), [(4, 3), (8, 4)])
@pytest.mark.parametrize("sizes", [(136, 144, 104), (128, 256, 32)], ids=str)
@pytest.mark.parametrize(("programs", "bias"), [(1, False), (3, True)])
def test_pointers(device, sizes, programs, warps, stages, bias):
    M, N, K = sizes
    BM, BN, BK = 16 * warps, 64, 32
    generator = torch.Generator().manual_seed(5)
    a, b = torch.randn(M, K, generator=generator).half(), torch.randn(K, N, generator=generator).half()
    c = torch.full((M, N), 7.0, dtype=torch.float16, device=device)
    expected = a.double() @ b.double()
    if bias:
        # The maxima are those of tiles.
        for i in range(0, M, BM):
            for j in range(0, N, BN):
                tile = torch.zeros(BM, BN, dtype=torch.float64)
                part = expected[i : i + BM, j : j + BN]
                tile[: part.shape[0], : part.shape[1]] = part
                part -= (tile.max(1, True).values + tile.max(0, True).values)[
                    : part.shape[0], : part.shape[1]
                ]
    a, b = a.to(device), b.to(device)
    handle = pointers[(programs,)](
        a, b, c, M, N, K, K, N, N, BM, BN, BK, 2, bias, num_warps=warps, num_stages=stages
    )
    torch.testing.assert_close(c.cpu().double(), expected, rtol=5e-3, atol=6e-2)
    if HAS_TMA:
        assert is_flattened(handle), handle.asm["gpu"]


@triton.jit
def triangle(
    a,
    b,
    c,
    tiles,
    last,
    STEP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """A lower triangular matrix by a dense one, tiles in any order and direction."""
    for tile in tl.range(tl.program_id(0) * STEP + tiles, last, tl.num_programs(0) * STEP, flatten=True):
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        row = tile % 5
        for k in range(row // 3 * BK, row * BM, BK):
            acc = tl.dot(a.load([row * BM, k]), b.load([0, k]).T, acc)
            if PLAIN:
                acc = acc * 1.0
        c.store([tile * BM, 0], acc)


@pytest.mark.parametrize("plain", [False, True], ids=["sum", "plain"])
@pytest.mark.parametrize(("first", "last", "step"), [(0, 7, 1), (6, -1, -1), (3, 3, 1), (0, 7, 3)])
@pytest.mark.parametrize(("warps", "stages", "programs"), [(4, 3, 1), (8, 4, 2)])
def test_loops_of_other_lengths_in_each_tile(device, first, last, step, warps, stages, programs, plain):
    BM, BN, BK = 16 * warps, 32, 32
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(5 * BM, 4 * BM, generator=generator).half()
    b = torch.randn(BN, 4 * BM, generator=generator).half()
    c = torch.full((7 * BM, BN), 7.0, device=device)
    expected = torch.full((7 * BM, BN), 7.0, dtype=torch.float64)
    for tile in range(first, last, step):
        row = tile % 5
        ks = slice(row // 3 * BK, row * BM)
        own = a[row * BM : (row + 1) * BM, ks].double() @ b[:, ks].double().T
        expected[tile * BM : (tile + 1) * BM] = own
    handle = triangle[(programs,)](
        TensorDescriptor.from_tensor(a.to(device), [BM, BK]), TensorDescriptor.from_tensor(b.to(device), [BN, BK]),
        TensorDescriptor.from_tensor(c, [BM, BN]), first, last, step, BM, BN, BK, plain,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    torch.testing.assert_close(c.cpu().double(), expected, rtol=3e-3, atol=6e-2)
    if HAS_TMA:
        assert is_flattened(handle), handle.asm["gpu"]


@triton.jit
def at_the_ends(
    a, b, c, first, last, STEP: tl.constexpr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    for tile in tl.range(first, last, STEP, flatten=True):
        row = (tile & 3) * BM
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([row, k]), b.load([0, k]).T, acc)
        c.store([row, 0], acc)


@pytest.mark.parametrize("way", [1, -1])
def test_counters_at_the_ends_of_int32(device, way):
    BM, BN, BK, K, step = 64, 32, 32, 96, 3
    end = 2**31 - 1 if way > 0 else -(2**31)
    counters = [end - way * (2 + step), end - way * 2]
    (a, b), expected = operands(4 * BM, BN, K, torch.float16, device)
    c = torch.zeros(4 * BM, BN, device=device)
    blocks = [[BM, BK], [BN, BK], [BM, BN]]
    tensors = [TensorDescriptor.from_tensor(x, block) for x, block in zip((a, b, c), blocks, strict=True)]
    at_the_ends[(1,)](*tensors, counters[0], end, way * step, K, BM, BN, BK, num_stages=3)
    rows = {counter & 3 for counter in counters}
    for row in range(4):
        part = slice(row * BM, (row + 1) * BM)
        wanted = expected[part] if row in rows else torch.zeros_like(expected[part])
        torch.testing.assert_close(c[part].cpu().double(), wanted, rtol=3e-3, atol=6e-2)


@triton.jit
def powers(x_ptr, steps, BM: tl.constexpr, BK: tl.constexpr):
    """Each tile is of what the tile before it has stored."""
    rows, depth = tl.arange(0, BM), tl.arange(0, BK)
    for tile in tl.range(0, steps, flatten=True):
        base = x_ptr + tile * BM * BM
        acc = tl.zeros((BM, BM), dtype=tl.float32)
        for k in range(0, BM, BK):
            a = tl.load(base + rows[:, None] * BM + (k + depth)[None, :])
            b = tl.load(base + (k + depth)[:, None] * BM + rows[None, :])
            acc = tl.dot(a, b, acc)
        tl.store(base + BM * BM + rows[:, None] * BM + rows[None, :], (acc * 0.125).to(tl.float16))


def test_a_tile_of_the_tile_before_it(device):
    BM, steps = 64, 3
    x = torch.zeros(steps + 1, BM, BM, dtype=torch.float16)
    x[0] = torch.randn(BM, BM, generator=torch.Generator().manual_seed(2)) * 0.5
    expected = x.clone()
    for step in range(steps):
        expected[step + 1] = (expected[step].float() @ expected[step].float() * 0.125).half()
    found = x.to(device)
    powers[(1,)](found, steps, BM, 32, num_warps=4, num_stages=3)
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-2, atol=2e-2)


@triton.jit
def in_batches(
    a, b, c, batches, tiles, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MIDDLE: tl.constexpr,
    OUTER: tl.constexpr,
):  # fmt: skip
    for batch in tl.range(tl.program_id(0), batches, tl.num_programs(0), flatten=OUTER):
        for tile in tl.range(0, tiles, flatten=MIDDLE):
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in range(0, K, BK):
                acc = tl.dot(a.load([tile * BM, k]), b.load([batch * BN, k]).T, acc)
            c.store([tile * BM, batch * BN], acc)


@pytest.mark.parametrize(("middle", "outer"), [(True, False), (False, True), (True, True)])
def test_three_loops(device, middle, outer):
    BM, BN, BK, K = 64, 32, 32, 96
    (a, b), expected = operands(2 * BM, 3 * BN, K, torch.float16, device)
    c = torch.zeros(2 * BM, 3 * BN, device=device)
    blocks = [[BM, BK], [BN, BK], [BM, BN]]
    tensors = [TensorDescriptor.from_tensor(x, block) for x, block in zip((a, b, c), blocks, strict=True)]
    in_batches[(2,)](*tensors, 3, 2, K, BM, BN, BK, middle, outer, num_warps=4, num_stages=3)
    torch.testing.assert_close(c.cpu().double(), expected, rtol=3e-3, atol=6e-2)


@triton.jit
def sums(x_ptr, out_ptr, rows, n, BLOCK: tl.constexpr):
    """No product, a loop in a branch, and a loop that is flattened with nothing."""
    columns = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), flatten=True, num_stages=2):
        total = tl.zeros((BLOCK,), tl.float32)
        if row % 2 == 0:
            for first in tl.range(0, n, BLOCK, num_stages=3, flatten=True):
                total += tl.load(x_ptr + row * n + first + columns, mask=first + columns < n, other=0.0)
        else:
            for first in tl.range(0, n, BLOCK, flatten=True):
                total -= tl.load(x_ptr + row * n + first + columns, mask=first + columns < n, other=0.0)
        tl.store(out_ptr + row, tl.sum(total, 0))


def test_other_loops(device):
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(4))
    out = torch.zeros(5, device=device)
    sums[(2,)](x.to(device), out, 5, 300, 64, num_warps=2)
    sign = torch.tensor([1.0, -1, 1, -1, 1])
    torch.testing.assert_close(out.cpu(), x.sum(1) * sign, rtol=1e-4, atol=1e-3)


@triton.jit
def refused(
    a, b, c, where_ptr, tiles, K, tiles_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr
):  # fmt: skip
    at = 0
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        om, on = tile // tiles_n * BM, tile % tiles_n * BN
        if HOW == "loaded":
            om = tl.load(where_ptr + tile)
        if HOW == "carried":
            om = at
        if HOW == "barrier":
            tl.debug_barrier()
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([om, k]), b.load([on, k]).T, acc)
        if HOW == "twice":
            for k in range(0, K, BK):
                acc = tl.dot(a.load([om, k]), b.load([on, k]).T, acc)
        if HOW == "same":
            a.store([om, on], acc.to(a.dtype))
        else:
            c.store([om, on], acc.to(c.dtype))
        at = (at + BM) % (3 * BM)


def decisions(how, *options):
    """The decisions about loops."""
    blocks = "tensordesc<fp16[64, 32]>,tensordesc<fp16[64, 32]>,tensordesc<fp16[64, 64]>"
    if how == "same":
        blocks = "tensordesc<fp16[64, 64]>,tensordesc<fp16[64, 64]>,tensordesc<fp16[64, 64]>"
    depth = 64 if how == "same" else 32
    made = subprocess.run(
        [
            sys.executable, "-m", "tilewright", "explain", f"{__file__}::refused", "-s",
            f"{blocks},*i32:16,i32,i32,i32,64,64,{depth},'{how}'", "--target", "sm_90", "--tensor-maps", "--why",
            *options,
        ],
        capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return made.stdout


OF_SCALARS = (
    "the first copies of the inner loop depend on more than scalars and the counter of the outer loop"
)
"""The reason for a loop whose first copies need other values."""


@pytest.mark.parametrize(
    ("how", "options", "expected"),
    [
        ("", [], "its last iterations copy for the next tile"),
        ("loaded", [], OF_SCALARS),
        ("carried", [], OF_SCALARS),
        ("same", [], "a store or atomic in it may write what its next iteration loads"),
        ("barrier", [], "it orders accesses to memory"),
        ("twice", [], "several loops in it are pipelined"),
        ("", ["--option", "num_stages=1"], "no loop of its body, outside of branches, is pipelined"),
    ],
)
def test_what_is_said(how, options, expected):
    said = decisions(how, *options)
    assert expected in said, said
    assert ("not flattened" in said) == ("next tile" not in expected), said


@pytest.mark.parametrize("how", ["loaded", "carried", "barrier", "twice"])
def test_what_is_not_flattened(device, how):
    BM, BN, BK, K, tiles_n = 64, 64, 32, 96, 1
    (a, b), expected = operands(3 * BM, BN, K, torch.float16, device)
    c = torch.zeros(3 * BM, BN, dtype=torch.float16, device=device)
    where = torch.arange(0, 3 * BM, BM, dtype=torch.int32, device=device)
    blocks = [[BM, BK], [BN, BK], [BM, BN]]
    tensors = [TensorDescriptor.from_tensor(x, block) for x, block in zip((a, b, c), blocks, strict=True)]
    handle = refused[(1,)](*tensors, where, 3, K, tiles_n, BM, BN, BK, how, num_warps=4, num_stages=3)
    expected = expected * (2 if how == "twice" else 1)
    torch.testing.assert_close(c.cpu().double(), expected, rtol=3e-3, atol=6e-2)
    if HAS_TMA:
        assert not is_flattened(handle), handle.asm["gpu"]
