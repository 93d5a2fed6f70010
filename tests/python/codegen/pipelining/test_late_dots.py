"""Products that run beside what the next iteration computes: attention's second one, at any number of iterations."""

import pytest
import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def walk(
    acc, total, highest, q, k_ptr, v_ptr, row_stride, first, end, step, scale,
    N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, D)
    for start in range(first, end, step):
        rows = start + tl.arange(0, N)
        k = tl.load(k_ptr + rows[:, None] * row_stride + columns[None, :])
        v = tl.load(v_ptr + rows[:, None] * row_stride + columns[None, :])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        higher = tl.maximum(highest, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(highest - higher)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(p, 1)
        highest = higher
    return acc, total, highest


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, acc_ptr, total_ptr, highest_ptr, row_stride, first, middle, end, step, scale,
    LOOPS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, M)
    columns = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * row_stride + columns[None, :])
    acc = tl.load(acc_ptr + rows[:, None] * D + columns[None, :])
    total = tl.load(total_ptr + rows)
    highest = tl.load(highest_ptr + rows)
    acc, total, highest = walk(
        acc, total, highest, q, k_ptr, v_ptr, row_stride, first, middle, step, scale, N, D
    )
    if LOOPS == 2:
        acc, total, highest = walk(
            acc, total, highest, q, k_ptr, v_ptr, row_stride, middle, end, step, scale, N, D
        )
    tl.store(acc_ptr + rows[:, None] * D + columns[None, :], acc)
    tl.store(total_ptr + rows, total)
    tl.store(highest_ptr + rows, highest)


CASES = [
    # Warps, stages, tiles, iterations of the two loops, more elements in a row, backwards.
    (4, 2, (64, 32, 32), (0, None), 0, False),
    (4, 2, (64, 32, 32), (1, None), 0, False),
    (4, 2, (64, 32, 64), (2, 0), 0, False),
    (4, 3, (64, 16, 32), (5, None), 0, False),
    (4, 3, (64, 32, 32), (4, 3), 8, False),
    (4, 4, (128, 32, 32), (1, 2), 0, False),
    (8, 2, (128, 64, 64), (0, 1), 0, False),
    (8, 3, (128, 32, 32), (3, 1), 0, False),
    (4, 3, (64, 32, 32), (3, None), 1, False),
    (4, 3, (64, 32, 32), (3, 2), 0, True),
    (4, 5, (64, 32, 32), (2, None), 3, True),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(map(str, (*case[:2], *case[2], *case[3], *case[4:])))
)
def test_attention(device, case, dtype):
    warps, stages, (m, n, d), (count, more), skew, is_backwards = case
    generator = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    rows = max(n * (count + (more or 0)), 1)
    wide = [normal(extent, d + skew).to(dtype) for extent in (m, rows, rows)]
    acc, total, highest = normal(m, d), normal(m).abs() + 1, normal(m)
    q, k, v = (tensor[:, :d].double() for tensor in wide)
    bounds = [0, n * count, n * (count + (more or 0))]
    step = n
    if is_backwards:
        bounds, step = [bounds[2] - n, bounds[2] - n - n * count, -n], -n
    scale = 0.3
    starts = range(bounds[0], bounds[1 if more is None else 2], step)
    used = torch.tensor([start + row for start in starts for row in range(n)], dtype=torch.int64)
    s = (q @ k[used].T) * scale
    best = torch.maximum(highest.double(), s.max(1).values) if len(used) else highest.double()
    p, shrink = torch.exp2(s - best[:, None]), torch.exp2(highest.double() - best)
    expected = [acc.double() * shrink[:, None] + p @ v[used], total.double() * shrink + p.sum(1), best]
    tensors = [tensor.to(device) for tensor in (*wide, acc, total, highest)]
    attention[(1,)](
        *tensors, d + skew, *bounds, step, scale, 1 if more is None else 2, m, n, d,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-3
    for found, wanted in zip(tensors[3:], expected, strict=True):
        torch.testing.assert_close(found.cpu().double(), wanted, atol=tolerance, rtol=tolerance)
