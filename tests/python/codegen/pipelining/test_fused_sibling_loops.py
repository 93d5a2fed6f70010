"""Loops in a row that copy boxes of the same tensors: the second reads what the first has copied for it."""

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def walk(acc, total, highest, q, k_desc, v_desc, offset, first, end, N: tl.constexpr, STEP: tl.constexpr):
    for start in range(first, end, STEP):
        k = k_desc.load([offset + start, 0])
        scores = tl.dot(q, k.T)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.math.exp2(scores - higher[:, None])
        decay = tl.math.exp2(highest - higher)
        acc = acc * decay[:, None]
        v = v_desc.load([offset + start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * decay + tl.sum(p, 1)
        highest = higher
    return acc, total, highest


@triton.jit
def attention(
    q_desc, k_desc, v_desc, acc_ptr, total_ptr, bounds_ptr, STEP: tl.constexpr, AFTER: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    first = tl.load(bounds_ptr)
    end = tl.load(bounds_ptr + 1)
    offset = tl.load(bounds_ptr + 2)
    begin = tl.load(bounds_ptr + 3)
    last = begin + AFTER if AFTER >= 0 else tl.load(bounds_ptr + 4)
    q = q_desc.load([0, 0])
    acc = tl.zeros((M, D), tl.float32)
    total = tl.zeros((M,), tl.float32)
    highest = tl.zeros((M,), tl.float32) - float("inf")
    acc, total, highest = walk(acc, total, highest, q, k_desc, v_desc, 0, first, end, N, STEP)
    acc, total, highest = walk(acc, total, highest, q, k_desc, v_desc, offset, begin, last, N, STEP)
    rows = tl.arange(0, M)
    tl.store(acc_ptr + rows[:, None] * D + tl.arange(0, D)[None, :], acc)
    tl.store(total_ptr + rows, total)


CASES = [
    # Warps, stages, tiles, iterations of the two loops, where the second begins, its extent known.
    (4, 2, (64, 32, 32), (0, 1), 0, False),
    (4, 3, (64, 32, 32), (0, 3), 0, True),
    (4, 3, (64, 32, 64), (1, 1), 0, False),
    (4, 4, (64, 32, 32), (1, 1), 0, True),
    (4, 4, (64, 16, 32), (2, 1), 0, False),
    (8, 3, (128, 64, 32), (3, 2), 0, True),
    (8, 3, (128, 32, 64), (0, 2), 0, False),
    (8, 2, (128, 64, 64), (2, 1), 0, True),
    (8, 4, (128, 32, 32), (5, 4), 0, False),
    (8, 3, (128, 32, 32), (4, 0), 0, False),
    (4, 3, (64, 32, 32), (2, 0), 0, False),
    # Elsewhere than where the first loop ends, which its last iteration passes.
    (4, 3, (64, 32, 32), (2, 2), 96, False),
    (8, 3, (128, 32, 32), (3, 3), 32, True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("first", [0, 8])
def test_attention(device, case, first):
    warps, stages, (m, n, d), counts, offset, is_known = case
    generator = torch.Generator().manual_seed(7)
    end = first + n * counts[0] - (3 if counts[0] else 0)
    begin = end + offset
    length = n * counts[1]
    rows = begin + offset + length + 4 * n
    q, k, v = (torch.randn(x, d, generator=generator).half() for x in (m, rows, rows))
    used = [start + row for start in range(first, end, n) for row in range(n)]
    used += [offset + start + row for start in range(begin, begin + length, n) for row in range(n)]
    is_used = torch.zeros(rows, dtype=torch.bool)
    is_used[used] = True
    k[~is_used] = v[~is_used] = float("inf")
    s = q.double() @ k[used].double().T
    p = torch.exp2(s - s.max(1, keepdim=True).values)
    expected = [p @ v[used].double(), p.sum(1)]
    q, k, v = (x.to(device) for x in (q, k, v))
    tensors = [torch.full((m, d), float("nan")).to(device), torch.full((m,), float("nan")).to(device)]
    bounds = torch.tensor([first, end, offset, begin, begin + length], dtype=torch.int32).to(device)
    descriptors = [TensorDescriptor.from_tensor(x, [rows, d]) for x, rows in ((q, m), (k, n), (v, n))]
    attention[(1,)](
        *descriptors, *tensors, bounds, n, length if is_known else -1, m, n, d,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    for found, wanted in zip(tensors, expected, strict=True):
        torch.testing.assert_close(found.cpu().double(), wanted, atol=4e-3, rtol=4e-3)


@triton.jit
def walk_of_two(one, two, highest, q, k_desc, v_desc, w_desc, first, end, N: tl.constexpr):
    for start in range(first, end, N):
        scores = tl.dot(q, k_desc.load([start, 0]).T)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.math.exp2(scores - higher[:, None])
        decay = tl.math.exp2(highest - higher)[:, None]
        one = tl.dot(p.to(tl.float16), v_desc.load([start, 0]), one * decay)
        two = tl.dot(p.to(tl.float16), w_desc.load([start, 0]), two * decay)
        highest = higher
    return one, two, highest


@triton.jit
def attention_to_two(
    q_desc, k_desc, v_desc, w_desc, one_ptr, two_ptr, first, middle, end,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    q = q_desc.load([0, 0])
    one, two = tl.zeros((M, D), tl.float32), tl.zeros((M, D), tl.float32)
    highest = tl.zeros((M,), tl.float32) - float("inf")
    one, two, highest = walk_of_two(one, two, highest, q, k_desc, v_desc, w_desc, first, middle, N)
    one, two, highest = walk_of_two(one, two, highest, q, k_desc, v_desc, w_desc, middle, end, N)
    at = tl.arange(0, M)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(one_ptr + at, one)
    tl.store(two_ptr + at, two)


@pytest.mark.parametrize("counts", [(0, 1), (0, 4), (1, 2), (4, 1), (3, 0), (5, 6)])
@pytest.mark.parametrize(("warps", "stages"), [(4, 2), (4, 3), (8, 3)])
def test_two_late_dots(device, counts, warps, stages):
    """The last late dots of the first loop, which has no iteration in some cases, run beside the
    first dot of the second loop."""
    m, n, d = 16 * warps, 32, 32
    generator = torch.Generator().manual_seed(5)
    middle, rows = n * counts[0], n * sum(counts)
    q, k, v, w = (torch.randn(x, d, generator=generator).half() for x in (m, rows, rows, rows))
    s = q.double() @ k.double().T
    p = torch.exp2(s - s.max(1, keepdim=True).values)
    found = [torch.full((m, d), float("nan")).to(device) for _ in range(2)]
    tiles = ((q, m), (k, n), (v, n), (w, n))
    descriptors = [TensorDescriptor.from_tensor(x.to(device), [rows, d]) for x, rows in tiles]
    attention_to_two[(1,)](*descriptors, *found, 0, middle, rows, m, n, d, num_warps=warps, num_stages=stages)
    for own, values in zip(found, (v, w), strict=True):
        torch.testing.assert_close(own.cpu().double(), p @ values.double(), atol=4e-3, rtol=4e-3)


@triton.jit
def furthest(best, q, k_desc, offset, first, end, N: tl.constexpr):
    for start in range(first, end, N):
        scores = tl.dot(q, k_desc.load([offset + start, 0]).T)
        best = tl.maximum(best, tl.max(scores, 1))
    return best


@triton.jit
def matches(q_desc, k_desc, best_ptr, bounds_ptr, M: tl.constexpr, N: tl.constexpr):
    first, middle = tl.load(bounds_ptr), tl.load(bounds_ptr + 1)
    offset = tl.load(bounds_ptr + 2)
    begin, end = tl.load(bounds_ptr + 3), tl.load(bounds_ptr + 4)
    q = q_desc.load([0, 0])
    best = tl.zeros((M,), tl.float32) - float("inf")
    best = furthest(best, q, k_desc, 0, first, middle, N)
    best = furthest(best * 0.5, q, k_desc, offset, begin, end, N)
    tl.store(best_ptr + tl.arange(0, M), best)


@pytest.mark.parametrize("counts", [(0, 1), (0, 5), (1, 2), (4, 1), (3, 0), (5, 6)])
@pytest.mark.parametrize(("warps", "stages"), [(4, 2), (4, 4), (8, 3)])
def test_one_product(device, counts, warps, stages):
    m, n, d, offset = 32 * warps // 2, 32, 32, 64
    generator = torch.Generator().manual_seed(3)
    end = n * counts[0]
    length = n * counts[1]
    rows = end + offset + length
    q, k = (torch.randn(x, d, generator=generator).half() for x in (m, max(rows, n)))
    s = q.double() @ k.double().T
    lowest = torch.full((m, 1), -float("inf")).double()
    best = torch.cat([s[:, :end], lowest], 1).max(1).values * 0.5
    expected = torch.maximum(best, torch.cat([s[:, end + offset : rows], lowest], 1).max(1).values)
    found = torch.full((m,), float("nan")).to(device)
    bounds = torch.tensor([0, end, offset, end, end + length], dtype=torch.int32).to(device)
    descriptors = [TensorDescriptor.from_tensor(x.to(device), [rows, d]) for x, rows in ((q, m), (k, n))]
    matches[(1,)](*descriptors, found, bounds, m, n, num_warps=warps, num_stages=stages)
    torch.testing.assert_close(found.cpu().double(), expected, atol=2e-3, rtol=2e-3)


@triton.jit
def all_matches(q_desc, k_desc, best_ptr, bounds_ptr, count, M: tl.constexpr, N: tl.constexpr):
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        offset = tl.load(bounds_ptr + 5 * tile + 2)
        first, middle = tl.load(bounds_ptr + 5 * tile), tl.load(bounds_ptr + 5 * tile + 1)
        begin, end = tl.load(bounds_ptr + 5 * tile + 3), tl.load(bounds_ptr + 5 * tile + 4)
        q = q_desc.load([tile * M, 0])
        best = tl.zeros((M,), tl.float32) - float("inf")
        best = furthest(best, q, k_desc, 0, first, middle, N)
        best = furthest(best * 0.5, q, k_desc, offset, begin, end, N)
        tl.store(best_ptr + tile * M + tl.arange(0, M), best)


@pytest.mark.parametrize(("warps", "stages"), [(4, 3), (8, 4)])
def test_in_a_loop(device, warps, stages):
    m, n, d, rows = 32 * warps // 2, 32, 32, 320
    bounds = [(0, 0, 32, 0, 64), (32, 96, 0, 160, 160), (0, 160, 64, 32, 256), (0, 32, 0, 96, 128)]
    generator = torch.Generator().manual_seed(9)
    q, k = (torch.randn(x, d, generator=generator).half() for x in (m * len(bounds), rows))
    s = q.double() @ k.double().T
    lowest = torch.full((m, 1), -float("inf")).double()
    expected = []
    for tile, (first, middle, offset, begin, end) in enumerate(bounds):
        own = s[tile * m : (tile + 1) * m]
        best = torch.cat([own[:, first:middle], lowest], 1).max(1).values * 0.5
        others = torch.cat([own[:, offset + begin : offset + end], lowest], 1).max(1).values
        expected.append(torch.maximum(best, others))
    found = torch.full((m * len(bounds),), float("nan")).to(device)
    descriptors = [TensorDescriptor.from_tensor(x.to(device), [r, d]) for x, r in ((q, m), (k, n))]
    table = torch.tensor(bounds, dtype=torch.int32).to(device)
    all_matches[(3,)](*descriptors, found, table, len(bounds), m, n, num_warps=warps, num_stages=stages)
    torch.testing.assert_close(found.cpu().double(), torch.cat(expected), atol=2e-3, rtol=2e-3)
