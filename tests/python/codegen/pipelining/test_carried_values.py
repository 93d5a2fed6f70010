"""Other loop-carried values than accumulators of dots, infinite operands, and loops in conditions of others."""

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

M, N, D = 64, 64, 64


def normal(*shape):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[0])) * 0.3).half()


@triton.jit
def attend(
    q_ptr, k_ptr, v_ptr, sum_ptr, carried_ptr, count,
    CARRIED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, M)
    columns = tl.arange(0, D)
    at = rows[:, None] * D + columns[None, :]
    q = tl.load(q_ptr + at)
    acc = tl.zeros((M, D), tl.float32)
    last = acc + 7
    older = acc + 9
    place = -5
    for start in range(0, count * N, N):
        keys = (start + tl.arange(0, N))[:, None] * D + columns[None, :]
        k = tl.load(k_ptr + keys)
        v = tl.load(v_ptr + keys)
        weights = tl.exp2(tl.dot(q, tl.trans(k)))
        if CARRIED == "the sum before":
            last = acc
        elif CARRIED == "both sums before":
            older = last
            last = acc
        elif CARRIED == "what was made of the sum before":
            older = last
            last = acc * 0.5
        elif CARRIED == "what was made of the weights before":
            older = last
            last = weights
        acc = tl.dot(weights.to(v.dtype), v, acc)
        if CARRIED == "the sum":
            older = last
            last = acc
        if CARRIED == "the counter":
            place = start
    tl.store(sum_ptr + at, acc)
    tl.store(carried_ptr + at, last + older * 3 + place)


KINDS = [
    "the sum before", "both sums before", "what was made of the sum before", "what was made of the weights before",
    "the sum", "the counter",
]  # fmt: skip


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("carried", KINDS)
def test_what_an_iteration_leaves_to_the_next_but_one(device, carried, count, warps):
    m = 16 * warps
    q, k, v = normal(m, D), normal(5 * N, D), normal(5 * N, D)
    acc, last, older, place = torch.zeros(m, D), torch.full((m, D), 7.0), torch.full((m, D), 9.0), -5
    for start in range(0, count * N, N):
        before = acc
        weights = torch.exp2(q.float() @ k[start : start + N].float().T)
        acc = acc + weights.half().float() @ v[start : start + N].float()
        new = {
            "the sum before": before, "both sums before": before, "what was made of the sum before": before * 0.5,
            "what was made of the weights before": weights, "the sum": acc,
        }.get(carried)  # fmt: skip
        if new is not None:
            older = older if carried == "the sum before" else last
            last = new
        else:
            place = start
    out, rest = torch.empty(m, D, device=device), torch.empty(m, D, device=device)
    operands = [tensor.to(device) for tensor in (q, k, v)]
    attend[(1,)](*operands, out, rest, count, carried, m, N, D, num_warps=warps, num_stages=3)
    torch.testing.assert_close(out.cpu(), acc, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(rest.cpu(), last + older * 3 + place, rtol=1e-2, atol=5e-2)


@triton.jit
def with_one_operand(
    x_ptr, y_ptr, out_ptr, count, IS_FIRST: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):
    """The sum of products of one tile and those of many."""
    columns = tl.arange(0, D)
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * D + columns[None, :])
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, count * N, N):
        y = tl.load(y_ptr + (start + tl.arange(0, N))[:, None] * D + columns[None, :])
        if IS_FIRST:
            acc = tl.dot(x, tl.trans(y), acc)
        else:
            acc = tl.dot(y, tl.trans(x), acc)
    tl.store(out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], acc)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_an_infinite_operand_and_iterations_that_do_not_come(device, count, is_first):
    x, y = normal(M, D), normal(5 * N, D).abs() + 0.5
    x[3, 5] = float("inf")
    out = torch.empty(M, N, device=device)
    with_one_operand[(1,)](
        x.to(device), y.to(device), out, count, is_first, M, N, D, num_warps=4, num_stages=3
    )
    expected = torch.zeros(M, N)
    for start in range(0, count * N, N):
        part = y[start : start + N].float()
        expected += x.float() @ part.T if is_first else part @ x.float().T
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-2, atol=2e-2)


@triton.jit
def scaled_sums(x_ptr, out_ptr, count, LESS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    highest = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    for number in range(count):
        x = tl.load(x_ptr + number * M * N + rows[:, None] * N + tl.arange(0, N)[None, :])
        higher = tl.maximum(highest, tl.max(x, 1))
        p = tl.exp2(x - higher[:, None])
        if LESS == "the maximum":
            less = higher
        elif LESS == "a number where that is infinite":
            less = tl.where(higher == float("-inf"), 0.0, higher)
        elif LESS == "a number where that is low":
            less = tl.where(higher > -100.0, higher, -100.0)
        else:
            less = tl.where(higher < 1000.0, -1e6, higher)
        total = total * tl.exp2(highest - less) + tl.sum(p, 1)
        highest = higher
    tl.store(out_ptr + rows, total)


@pytest.mark.parametrize(
    "less", ["the maximum", "a number where that is infinite", "a number where that is low", "a low number"]
)
def test_lanes_that_have_found_nothing(device, less):
    """Their sum is 0, whatever it is multiplied by."""
    x = torch.randn(3, M, N, generator=torch.Generator().manual_seed(2))
    x[:, :, 5:] = float("-inf")
    x[:2, 7] = float("-inf")
    out = torch.empty(M, device=device)
    scaled_sums[(1,)](x.to(device), out, 3, less, M, N, num_warps=4)
    highest, total = torch.full((M,), float("-inf")), torch.zeros(M)
    for part in x:
        higher = torch.maximum(highest, part.max(1).values)
        p = torch.exp2(part - higher[:, None])
        subtracted = {
            "the maximum": higher,
            "a number where that is infinite": torch.where(higher == float("-inf"), 0.0, higher),
            "a number where that is low": torch.where(higher > -100.0, higher, -100.0),
            "a low number": torch.where(higher < 1000.0, -1e6, higher),
        }[less]
        total = total * torch.exp2(highest - subtracted) + p.sum(1)
        highest = higher
    torch.testing.assert_close(out.cpu(), total, rtol=1e-4, atol=1e-4, equal_nan=True)


@triton.jit
def product_of(a_ptr, b_ptr, count, N: tl.constexpr, D: tl.constexpr):
    rows = tl.arange(0, N)
    columns = tl.arange(0, D)
    acc = tl.zeros((N, D), tl.float32)
    for start in range(0, count * N, N):
        a = tl.load(a_ptr + (start + rows)[:, None] * D + columns[None, :])
        b = tl.load(b_ptr + (start + rows)[:, None] * D + columns[None, :])
        acc = tl.dot(tl.trans(a), b, acc)
    return tl.sum(tl.sum(acc, 1), 0)


@triton.jit
def asked_of_products(a_ptr, b_ptr, out_ptr, count, N: tl.constexpr, D: tl.constexpr):
    found = 0
    while product_of(a_ptr, b_ptr, count, N, D) * found < 10000.0 and found < 5:
        found += 1
    tl.store(out_ptr, found)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loop_in_the_condition_of_another(device, count):
    """It is none that copies ahead."""
    a, b = torch.ones(3 * N, D, dtype=torch.float16), torch.full((3 * N, D), 1 / 64, dtype=torch.float16)
    out = torch.zeros(1, dtype=torch.int32, device=device)
    asked_of_products[(1,)](a.to(device), b.to(device), out, count, N, D, num_warps=4, num_stages=3)
    # A count of 1 gives 64 * 64.
    assert out.item() == (min(5, -(-10000 // (count * D * D))) if count else 5)
