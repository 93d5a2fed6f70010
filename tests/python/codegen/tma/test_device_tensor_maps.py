"""Tensor descriptors that the host does not know: the kernel makes their tensor maps where the GPU copies by these."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright import sanitizer
from tilewright.tools.tensor_descriptor import TensorDescriptor


def integers(generator, *shape, dtype=torch.float16):
    """Numbers whose products and sums are exact."""
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def table(tensors, device):
    """The addresses of tensors, a row each."""
    rows = [[tensor.data_ptr() for tensor in row] for row in tensors]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def check_maps(handle, count):
    """How many maps the kernel makes where the target copies by them; others run the same programs by other means."""
    ptx = handle.asm.get("ptx", "")
    if ".target sm_90a" in ptx:
        assert ptx.count("tensormap.cp_fenceproxy") == count
        assert ("cp.async.bulk.tensor" in ptx) == (count > 0)


@triton.jit
def grouped(
    addresses_ptr, sizes_ptr, GROUPS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, IN: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 6)
        N = tl.load(sizes_ptr + group * 6 + 1)
        K = tl.load(sizes_ptr + group * 6 + 2)
        tiles_n = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * tiles_n
        if tile >= first and tile < first + tiles:
            a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(IN))
            b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(IN))
            c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(tl.float32))
            stride_a = tl.load(sizes_ptr + group * 6 + 3)
            stride_b = tl.load(sizes_ptr + group * 6 + 4)
            stride_c = tl.load(sizes_ptr + group * 6 + 5)
            a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_a, 1], [BM, BK])
            if TRANSPOSED:
                b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_b, 1], [BN, BK])
            else:
                b = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_b, 1], [BK, BN])
            c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_c, 1], [BM, BN])
            while tile >= first and tile < first + tiles:
                row = (tile - first) // tiles_n * BM
                column = (tile - first) % tiles_n * BN
                acc = tl.zeros((BM, BN), dtype=tl.float32)
                for k in range(0, K, BK):
                    if TRANSPOSED:
                        acc = tl.dot(a.load([row, k]), b.load([column, k]).T, acc)
                    else:
                        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
                c.store([row, column], acc)
                tile += tl.num_programs(0)
        first += tiles


def run_grouped(device, shapes, dtype, transposed, blocks, warps, stages):
    generator = torch.Generator().manual_seed(17)
    made, sizes, expected = [], [], []
    for m, n, k in shapes:
        # Rows are longer than the operands: the elements after an operand's row must not be read as a part of it.
        stride_k, stride_n = (k + 47) // 16 * 16, (n + 47) // 16 * 16
        a = integers(generator, max(m, 1), stride_k)
        b = (
            integers(generator, max(n, 1), stride_k)
            if transposed
            else integers(generator, max(k, 1), stride_n)
        )
        c = integers(generator, max(m, 1), stride_n, dtype=torch.float32)
        right = b[:n, :k].double().T if transposed else b[:k, :n].double()
        expected.append(c.double())
        expected[-1][:m, :n] = a[:m, :k].double() @ right
        made.append([a.to(dtype).to(device), b.to(dtype).to(device), c.to(device)])
        sizes.append([m, n, k, stride_k, b.stride(0), stride_n])
    sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
    handle = grouped[(2,)](
        table(made, device), sizes, len(shapes), *blocks, getattr(tl, str(dtype).removeprefix("torch.")),
        transposed, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    for (_, _, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.cpu().double(), right)
    return handle


@pytest.mark.parametrize(
    ("dtype", "transposed", "blocks", "warps", "stages", "maps"),
    [
        (torch.float16, True, (64, 32, 32), 4, 3, 3),
        (torch.float16, False, (64, 64, 64), 4, 2, 3),
        (torch.bfloat16, False, (64, 128, 32), 8, 3, 3),
        (torch.float32, True, (32, 32, 32), 4, 2, 3),
        # Its operands do not go through shared memory.
        (torch.float16, True, (16, 16, 16), 1, 1, 1),
    ],
)
def test_products_of_different_sizes(device, dtype, transposed, blocks, warps, stages, maps):
    shapes = [(70, 40, 72), (64, 64, 32), (1, 33, 65), (17, 130, 8)]
    handle = run_grouped(device, shapes, dtype, transposed, blocks, warps, stages)
    check_maps(handle, maps)


def test_products_of_nothing(device):
    # A tensor of no rows is none that a map describes; so is one of no columns, which is 0.
    shapes = [(40, 32, 16), (0, 32, 16), (24, 24, 0), (24, 0, 16), (33, 17, 24)]
    handle = run_grouped(device, shapes, torch.float16, True, (32, 32, 32), 4, 3)
    check_maps(handle, 3)


@triton.jit
def of_one_list(
    addresses_ptr, out_ptr, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    which = tl.program_id(0)
    a_ptr = tl.load(addresses_ptr + which * 2).to(tl.pointer_type(tl.float16))
    b_ptr = tl.load(addresses_ptr + which * 2 + 1).to(tl.pointer_type(tl.float16))
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride, 1], [BN, BK])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([0, k]), b.load([0, k]).T, acc)
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tl.store(out_ptr + which * BM * BN + rows * BN + columns, acc)


def test_each_program_makes_its_maps(device):
    # More programs than there are places of a multiprocessor, each with other matrices.
    programs, m, n, k, stride = 9, 30, 27, 50, 64
    generator = torch.Generator().manual_seed(5)
    made = [(integers(generator, m, stride), integers(generator, n, stride)) for _ in range(programs)]
    made = [[a.to(device), b.to(device)] for a, b in made]
    out = torch.zeros(programs, 32, 32, device=device)
    handle = of_one_list[(programs,)](table(made, device), out, m, n, k, stride, 32, 32, 16, num_warps=4)
    for (a, b), found in zip(made, out.cpu(), strict=True):
        expected = a[:, :k].double().cpu() @ b[:, :k].double().cpu().T
        assert torch.equal(found[:m, :n].double(), expected)
        assert not found[m:].any()
        assert not found[:, n:].any()
    check_maps(handle, 2)


@triton.jit
def chained(addresses_ptr, sizes_ptr, STEPS, B: tl.constexpr):
    for step in range(STEPS):
        a_ptr = tl.load(addresses_ptr + step * 3).to(tl.pointer_type(tl.float16))
        b_ptr = tl.load(addresses_ptr + step * 3 + 1).to(tl.pointer_type(tl.float16))
        c_ptr = tl.load(addresses_ptr + step * 3 + 2).to(tl.pointer_type(tl.float16))
        n = tl.load(sizes_ptr + step)
        a = tl.make_tensor_descriptor(a_ptr, [n, n], [n, 1], [B, B])
        b = tl.make_tensor_descriptor(b_ptr, [n, n], [n, 1], [B, B])
        c = tl.make_tensor_descriptor(c_ptr, [n, n], [n, 1], [B, B])
        for row in range(0, n, B):
            for column in range(0, n, B):
                acc = tl.zeros((B, B), dtype=tl.float32)
                for k in range(0, n, B):
                    acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
                c.store([row, column], (acc.to(tl.int32) % 4).to(tl.float16))


def test_copies_see_what_was_stored(device):
    # Each product is multiplied with in the next step, which reads it by another map.
    generator = torch.Generator().manual_seed(3)
    n = 64
    factor = integers(generator, n, n).to(device)
    results = [integers(generator, n, n).to(device)]
    results += [torch.zeros(n, n, dtype=torch.float16, device=device) for _ in range(3)]
    expected = [results[0].cpu().double()]
    steps = [[results[step], factor, results[step + 1]] for step in range(3)]
    for _ in steps:
        product = (expected[-1] @ factor.cpu().double()).to(torch.int64)
        expected.append(torch.fmod(product, 4).double())
    sizes = torch.full((3,), n, dtype=torch.int32, device=device)
    handle = chained[(1,)](table(steps, device), sizes, 3, 32, num_warps=4, num_stages=3)
    for found, right in zip(results, expected, strict=True):
        assert torch.equal(found.cpu().double(), right)
    check_maps(handle, 3)


@triton.jit
def squared(
    x_ptr, y_ptr, out_ptr, steps, count, IS_IN_PLACE: tl.constexpr, BY: tl.constexpr, N: tl.constexpr
):
    """Products of what the products before gave."""
    index = tl.arange(0, N)
    at = index[:, None] * N + index[None, :]
    to_ptr = x_ptr if IS_IN_PLACE else out_ptr
    for _ in range(steps):
        acc = tl.zeros((N, N), tl.float32)
        for k in range(count):
            acc = tl.dot(tl.load(x_ptr + k * N * N + at), tl.load(y_ptr + k * N * N + at), acc)
        found = (acc.to(tl.int32) % 4).to(tl.float16)
        if BY == "stores":
            tl.store(to_ptr + at, found)
        elif BY == "lines":
            tl.store(to_ptr + index, tl.max(found, 0))
        else:
            tl.atomic_add(to_ptr + index, tl.max(found, 0), sem="relaxed")


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("by", ["stores", "lines", "atomics"])
@pytest.mark.parametrize("is_in_place", [False, True])
def test_copies_by_maps_of_the_launch_see_what_was_stored(device, is_in_place, by, warps):
    generator = torch.Generator().manual_seed(warps)
    n = 16 * warps
    x, y = integers(generator, 3, n, n), integers(generator, 3, n, n)
    out = torch.zeros(3, n, n, dtype=torch.float16)
    tensors = [tensor.to(device) for tensor in (x, y, out)]
    handle = squared[(1,)](*tensors, 3, 3, is_in_place, by, n, num_warps=warps, num_stages=3)
    to = x if is_in_place else out
    for _ in range(3):
        product = torch.fmod((x.double() @ y.double()).sum(0), 4).half()
        if by == "stores":
            to[0] = product
        elif by == "lines":
            to[0, 0] = product.max(0).values
        else:
            to[0, 0] += product.max(0).values
    for found, right in zip(tensors, (x, y, out), strict=True):
        assert torch.equal(found.cpu(), right)
    ptx = handle.asm.get("ptx", "")
    if ".target sm_90a" in ptx:
        assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ptx
        assert ("fence.proxy.async.global" in ptx) == is_in_place
        if is_in_place:
            # The asynchronous proxy sees the stores of threads after a fence and a barrier.
            *_, last = re.finditer(r"\b(st|red|atom)\.[\w.]*global", ptx)
            assert "bar.sync" in ptx[ptx.index("fence.proxy.async.global", last.end()) :]


@triton.jit
def ragged(
    addresses_ptr, sizes_ptr, GROUPS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 5)
        N = tl.load(sizes_ptr + group * 5 + 1)
        K = tl.load(sizes_ptr + group * 5 + 2)
        stride_k = tl.load(sizes_ptr + group * 5 + 3)
        stride_n = tl.load(sizes_ptr + group * 5 + 4)
        a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(IN))
        b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(IN))
        c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(OUT))
        a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_k, 1], [BM, BK])
        b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_k, 1], [BN, BK])
        c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_n, 1], [BM, BN])
        tiles_n = tl.cdiv(N, BN)
        for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
            row, column = tile // tiles_n * BM, tile % tiles_n * BN
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in range(0, K, BK):
                acc = tl.dot(a.load([row, k]), b.load([column, k]).T, acc)
            c.store([row, column], acc.to(OUT))


def run_ragged(device, shapes, dtype, out, blocks=(64, 64, 32), warps=4, stages=3):
    """Rows are longer than the products; elements after these stay as they were."""
    generator = torch.Generator().manual_seed(29)
    made, sizes, expected = [], [], []
    for m, n, k in shapes:
        stride_k, stride_n = (k + 31) // 16 * 16, (n + 31) // 16 * 16
        a, b = (torch.randint(-1, 2, (rows, stride_k), generator=generator).float() for rows in (m, n))
        c = torch.full((m + 2, stride_n), 7.0)
        right = c.clone()
        right[:m, :n] = a[:, :k] @ b[:, :k].T
        expected.append(right.to(out).float())
        made.append([a.to(dtype).to(device), b.to(dtype).to(device), c.to(out).to(device)])
        sizes.append([m, n, k, stride_k, stride_n])
    sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
    names = {torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2: tl.float8e5}
    types = [names.get(of) or getattr(tl, str(of).removeprefix("torch.")) for of in (dtype, out)]
    handle = ragged[(3,)](
        table(made, device), sizes, len(shapes), *blocks, *types, num_warps=warps, num_stages=stages
    )
    for (_, _, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.cpu().float(), right)
    return handle


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float8_e4m3fn, torch.float16),
        (torch.float8_e5m2, torch.float8_e5m2),
    ],
)
def test_rows_that_end_within_a_chunk(device, dtype, out):
    # Numbers of columns off a chunk of 16 bytes and on one, one after the other: some stores are the threads' own.
    shapes = [(70, 65, 33), (64, 64, 32), (33, 131, 72), (65, 144, 17), (5, 7, 9)]
    handle = run_ragged(device, shapes, dtype, out)
    check_maps(handle, 3)
    if ".target sm_90a" in handle.asm.get("ptx", ""):
        assert "cp.async.bulk.tensor.2d.global" in handle.asm["ptx"]


def test_many_blocks_and_warps(device):
    shapes = [(130, 260, 100), (129, 256, 64), (300, 130, 250)]
    for blocks, warps, stages in [((128, 128, 64), 8, 3), ((64, 128, 64), 4, 4), ((128, 64, 64), 4, 2)]:
        handle = run_ragged(device, shapes, torch.float16, torch.float16, blocks, warps, stages)
        check_maps(handle, 3)


@triton.jit
def batches(addresses_ptr, sizes_ptr, LISTS, B: tl.constexpr):
    for which in range(LISTS):
        D = tl.load(sizes_ptr + which * 4)
        M = tl.load(sizes_ptr + which * 4 + 1)
        N = tl.load(sizes_ptr + which * 4 + 2)
        stride = tl.load(sizes_ptr + which * 4 + 3)
        a_ptr = tl.load(addresses_ptr + which * 2).to(tl.pointer_type(tl.float16))
        c_ptr = tl.load(addresses_ptr + which * 2 + 1).to(tl.pointer_type(tl.float16))
        a = tl.make_tensor_descriptor(a_ptr, [D, M, N], [M * stride, stride, 1], [1, B, B])
        c = tl.make_tensor_descriptor(c_ptr, [D, M, M], [M * stride, stride, 1], [1, B, B])
        for batch in range(D):
            for row in range(0, M, B):
                for column in range(0, M, B):
                    acc = tl.zeros((B, B), dtype=tl.float32)
                    for k in range(0, N, B):
                        left = a.load([batch, row, k]).reshape(B, B)
                        right = a.load([batch, column, k]).reshape(B, B)
                        acc = tl.dot(left, right.T, acc)
                    c.store([batch, row, column], acc.to(tl.float16).reshape(1, B, B))


def test_three_axes(device):
    generator = torch.Generator().manual_seed(31)
    made, sizes, expected = [], [], []
    for d, m, n in [(2, 40, 50), (3, 33, 70), (1, 7, 5)]:
        stride = 80
        a = integers(generator, d, m, stride)
        c = torch.full((d, m, stride), 7.0, dtype=torch.float16)
        right = c.double()
        right[:, :, :m] = a[:, :, :n].double() @ a[:, :, :n].double().transpose(1, 2)
        expected.append(right)
        made.append([a.to(device), c.to(device)])
        sizes.append([d, m, n, stride])
    sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
    batches[(1,)](table(made, device), sizes, len(sizes), 32, num_warps=4, num_stages=3)
    for (_, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.cpu().double(), right)


@triton.jit
def squared_in_place(addresses_ptr, n, ROUNDS, B: tl.constexpr):
    x_ptr = tl.load(addresses_ptr).to(tl.pointer_type(tl.float16))
    y_ptr = tl.load(addresses_ptr + 1).to(tl.pointer_type(tl.float16))
    x = tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [B, B])
    y = tl.make_tensor_descriptor(y_ptr, [n, n], [n, 1], [B, B])
    for _ in range(ROUNDS):
        acc = tl.zeros((B, B), dtype=tl.float32)
        for k in range(0, n, B):
            acc = tl.dot(x.load([0, k]), x.load([k, 0]), acc)
        y.store([0, 0], (acc.to(tl.int32) % 4).to(tl.float16))


@pytest.mark.parametrize("is_one", [False, True])
def test_what_is_loaded_may_be_what_was_stored(device, is_one):
    # Both pointers may be one: then each round reads what the one before has stored.
    generator = torch.Generator().manual_seed(37)
    x = integers(generator, 64, 64)
    y = x if is_one else torch.zeros_like(x)
    expected = [x.double(), y.double()]
    if is_one:
        expected[1] = expected[0]
    for _ in range(5):
        product = (expected[0][:32] @ expected[0][:, :32]).to(torch.int64)
        expected[1][:32, :32] = torch.fmod(product, 4).double()
    x = x.to(device)
    y = x if is_one else y.to(device)
    # Copies arrive at any time in a launch that is watched.
    with contextlib.nullcontext() if device == "cuda" else sanitizer.sanitize("race"):
        squared_in_place[(1,)](table([[x, y]], device), 64, 5, 32, num_warps=4, num_stages=3)
    assert torch.equal(x.cpu().double(), expected[0])
    assert torch.equal(y.cpu().double(), expected[1])


@triton.jit
def shifted(addresses_ptr, starts_ptr, n, STEPS, B: tl.constexpr):
    a_ptr = tl.load(addresses_ptr).to(tl.pointer_type(tl.float16))
    c_ptr = tl.load(addresses_ptr + 1).to(tl.pointer_type(tl.float16))
    a = tl.make_tensor_descriptor(a_ptr, [n, n], [n, 1], [B, B])
    c = tl.make_tensor_descriptor(c_ptr, [n, n], [n, 1], [B, B])
    for step in range(STEPS):
        start = tl.load(starts_ptr + step)
        acc = tl.zeros((B, B), dtype=tl.float32)
        for k in range(0, n, B):
            acc = tl.dot(a.load([0, k]), a.load([0, k]).T, acc)
        c.store([start, start], acc.to(tl.float16))


def test_boxes_that_begin_before_the_tensor(device):
    # Each overwrites a part of the one before, in order.
    generator = torch.Generator().manual_seed(41)
    n, block = 64, 32
    a = integers(generator, n, n)
    starts = [0, -5, 3, -31, 40, -8, 8]
    expected = torch.zeros(n, n, dtype=torch.float64)
    product = a[:block].double() @ a[:block].double().T
    for start in starts:
        first, last = max(start, 0), min(start + block, n)
        inside = slice(first - start, last - start)
        expected[first:last, first:last] = product[inside, inside]
    a, c = a.to(device), torch.zeros(n, n, dtype=torch.float16).to(device)
    starts = torch.tensor(starts, dtype=torch.int32, device=device)
    shifted[(1,)](table([[a, c]], device), starts, n, len(starts), block, num_warps=4, num_stages=2)
    assert torch.equal(c.cpu().double(), expected)


@triton.jit
def added_up(addresses_ptr, sizes_ptr, GROUPS, PARTS: tl.constexpr, B: tl.constexpr, OUT: tl.constexpr):
    for group in range(GROUPS):
        M = tl.load(sizes_ptr + group * 4)
        N = tl.load(sizes_ptr + group * 4 + 1)
        K = tl.load(sizes_ptr + group * 4 + 2)
        stride = tl.load(sizes_ptr + group * 4 + 3)
        a_ptr = tl.load(addresses_ptr + group * 3).to(tl.pointer_type(tl.float16))
        b_ptr = tl.load(addresses_ptr + group * 3 + 1).to(tl.pointer_type(tl.float16))
        c_ptr = tl.load(addresses_ptr + group * 3 + 2).to(tl.pointer_type(OUT))
        a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride, 1], [B, B])
        b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride, 1], [B, B])
        c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride, 1], [B, B])
        tiles_n = tl.cdiv(N, B)
        for work in range(tl.program_id(0), tl.cdiv(M, B) * tiles_n * PARTS, tl.num_programs(0)):
            tile = work // PARTS
            acc = tl.zeros((B, B), dtype=tl.float32)
            for k in range(work % PARTS * B, K, PARTS * B):
                acc = tl.dot(a.load([tile // tiles_n * B, k]), b.load([tile % tiles_n * B, k]).T, acc)
            c.atomic_add([tile // tiles_n * B, tile % tiles_n * B], acc.to(OUT))


@pytest.mark.parametrize("out", [torch.float32, torch.float16, torch.int32])
def test_sums_of_products(device, out):
    generator = torch.Generator().manual_seed(43)
    made, sizes, expected = [], [], []
    for m, n, k in [(40, 32, 130), (33, 37, 70), (64, 72, 96), (5, 3, 200)]:
        stride = 208
        a, b = integers(generator, m, stride), integers(generator, n, stride)
        c = torch.full((m, stride), 7, dtype=out)
        right = c.double()
        right[:, :n] += a[:, :k].double() @ b[:, :k].double().T
        expected.append(right)
        made.append([a.to(device), b.to(device), c.to(device)])
        sizes.append([m, n, k, stride])
    sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
    name = getattr(tl, str(out).removeprefix("torch."))
    handle = added_up[(3,)](table(made, device), sizes, len(sizes), 3, 32, name, num_warps=4, num_stages=3)
    for (_, _, c), right in zip(made, expected, strict=True):
        assert torch.equal(c.cpu().double(), right)
    if ".target sm_90a" in handle.asm.get("ptx", ""):
        assert "cp.reduce.async.bulk.tensor.2d.global" in handle.asm["ptx"]


@triton.jit
def stored_twice(a_desc, b_desc, turned_ptr, out_desc, sizes_ptr, K: tl.constexpr, B: tl.constexpr):
    """By a map that the kernel makes, where it expresses the store, and by one of the launch."""
    rows = tl.load(sizes_ptr)
    turned = tl.make_tensor_descriptor(turned_ptr, [B, rows], [tl.load(sizes_ptr + 1), 1], [B, B])
    for tile in range(tl.program_id(0), tl.cdiv(rows, B), tl.num_programs(0)):
        acc = tl.zeros((B, B), tl.float32)
        for k in range(0, K, B):
            acc = tl.dot(a_desc.load([tile * B, k]), b_desc.load([k, 0]), acc)
        turned.store([0, tile * B], acc.T)
        out_desc.store([tile * B, 0], acc)


@pytest.mark.parametrize("rows", [185, 188])
def test_stores_by_maps_of_both_kinds(device, rows):
    """Rows of 185 numbers do not end with a chunk of 16 bytes, so that threads store those."""
    generator = torch.Generator().manual_seed(rows)
    k, b = 192, 64
    x, y = integers(generator, rows, k), integers(generator, k, b)
    turned, out = torch.full((b, 192), 7.0, device=device), torch.zeros(rows, b, device=device)
    sizes = torch.tensor([rows, 192], dtype=torch.int32, device=device)
    matrices = (x.to(device), y.to(device), out)
    x_desc, y_desc, out_desc = (TensorDescriptor.from_tensor(matrix, [b, b]) for matrix in matrices)
    handle = stored_twice[(1,)](x_desc, y_desc, turned, out_desc, sizes, k, b, num_warps=4, num_stages=3)
    product = x.float() @ y.float()
    assert torch.equal(out.cpu(), product)
    assert torch.equal(turned.cpu()[:, :rows], product.T)
    assert turned.cpu()[:, rows:].eq(7).all()
    check_maps(handle, 1)
