"""Tiles whose extents are no powers of two: everything that a tile of 64 can do, one of 48 can; against numpy."""

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_same, empty, moderate_values, module, to_device, to_host

import tilewright as triton
import tilewright.language as tl

KERNEL = """@triton.jit
def first(a, b):
    return a

@triton.jit
def last(a, b):
    return b

@triton.jit
def later(a, i, b, j):
    return a + b, j

@triton.jit
def smaller(a, i, b, j):
    take = (a < b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)

@triton.jit
def product(a, b):
    return a * b

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    row = tl.load(x_ptr + j)
    result = {expression}
    tl.static_assert(result.dtype == out_ptr.dtype.element_ty)
    tl.store(out_ptr + tl.arange(0, result.numel), tl.reshape(result, [result.numel]))
"""


def check(expression, expected, dtype="int32", m=6, n=20, device="cpu", **options):
    """Checks `expression` of x and y [m, n] and row [n] against `expected(x, y, row)`. Nothing else is written."""
    x, y = moderate_values(dtype, (m, n)), moderate_values(dtype, (m, n), 1)
    wanted = np.ascontiguousarray(expected(x, y, x[0]))
    out = empty((wanted.size + 64,), str(wanted.dtype).replace("bool", "int1"), device)
    before = to_host(out).copy()
    tensors = [to_device(x, dtype, device), to_device(y, dtype, device)]
    module(KERNEL.format(expression=expression)).kernel[(1,)](*tensors, out, M=m, N=n, **options)
    after = to_host(out)
    assert_same(after[: wanted.size], wanted.ravel(), expression)
    assert_same(after[wanted.size :], before[wanted.size :], expression)


EXPRESSIONS = [
    ("x + y", lambda x, y, row: x + y),
    ("x * row + i[:, None]", lambda x, y, row: x * row + np.arange(len(x), dtype=x.dtype)[:, None]),
    ("tl.where(x > y, x, row)", lambda x, y, row: np.where(x > y, x, row)),
    ("tl.zeros([M, N], tl.int32) + 7", lambda x, y, row: np.full_like(x, 7)),
    ("x // tl.where(y == 0, 1, y)", lambda x, y, row: (np.trunc(x / np.where(y == 0, 1, y))).astype(x.dtype)),
    ("tl.sum(x, 1)", lambda x, y, row: x.sum(1, dtype=x.dtype)),
    ("tl.sum(x, 0)", lambda x, y, row: x.sum(0, dtype=x.dtype)),
    ("tl.sum(x) + row", lambda x, y, row: (x.sum(dtype=x.dtype) + row)),
    ("tl.max(x, 1)", lambda x, y, row: x.max(1)),
    ("tl.min(x, 0, keep_dims=True) + x", lambda x, y, row: x.min(0, keepdims=True) + x),
    ("tl.max(x) - tl.min(x) + row", lambda x, y, row: x.max() - x.min() + row),
    ("tl.argmax(x, 1)", lambda x, y, row: x.argmax(1).astype(np.int32)),
    ("tl.argmin(x, 0)", lambda x, y, row: x.argmin(0).astype(np.int32)),
    ("tl.xor_sum(x, 1)", lambda x, y, row: np.bitwise_xor.reduce(x, 1)),
    ("tl.reduce(x, 1, first)", lambda x, y, row: x[:, 0]),
    ("tl.reduce(x, 0, last)", lambda x, y, row: x[-1]),
    ("tl.reduce(x, None, last) + row", lambda x, y, row: x[-1, -1] + row),
    ("tl.cumsum(x, 1)", lambda x, y, row: x.cumsum(1, dtype=x.dtype)),
    ("tl.cumsum(x, 0, reverse=True)", lambda x, y, row: x[::-1].cumsum(0, dtype=x.dtype)[::-1]),
    ("tl.associative_scan((x, y), 1, later, reverse=True)[0]",
     lambda x, y, row: x[:, ::-1].cumsum(1, dtype=x.dtype)[:, ::-1]),
    ("tl.reduce(x % 3 + 1, 0, product)", lambda x, y, row: np.prod(np.fmod(x, 3) + 1, 0, dtype=x.dtype)),
    ("tl.reduce((x, y), 1, smaller)[1]", lambda x, y, row: np.array(
        [min(zip(a.tolist(), b.tolist(), strict=True))[1] for a, b in zip(x, y, strict=True)], x.dtype)),
    ("tl.trans(x)", lambda x, y, row: x.T),
    ("tl.reshape(x, (N, M))", lambda x, y, row: x.reshape(x.shape[::-1])),
    ("tl.reshape(x, (M * N // 4, 4))", lambda x, y, row: x.reshape(-1, 4)),
    ("tl.reshape(x, (M // 2, 2, N)) + row", lambda x, y, row: x.reshape(-1, 2, x.shape[1]) + row),
    ("tl.reshape(x, (2, M // 2, N // 4, 4)).sum(1)",
     lambda x, y, row: x.reshape(2, len(x) // 2, -1, 4).sum(1, dtype=x.dtype)),
    ("tl.ravel(tl.trans(x))", lambda x, y, row: x.T.ravel()),
    ("tl.join(x, y)", lambda x, y, row: np.stack([x, y], -1)),
    ("tl.split(x.reshape(M, N // 2, 2))[1]", lambda x, y, row: x[:, 1::2]),
    ("tl.interleave(x, row)", lambda x, y, row: np.stack(np.broadcast_arrays(x, row), -1).reshape(len(x), -1)),
    ("tl.cat(x, y)", lambda x, y, row: np.concatenate([x, y])),
    ("tl.cat(x, y[:, :3], dim=1)", lambda x, y, row: np.concatenate([x, y[:, :3]], 1)),
    ("x[1:4, ::-1]", lambda x, y, row: x[1:4, ::-1]),
    ("x[1, 3:17]", lambda x, y, row: x[1, 3:17]),
    ("x[::2, 1]", lambda x, y, row: x[::2, 1]),
    ("tl.gather(x, (y % N + N) % N, 1)", lambda x, y, row: np.take_along_axis(x, y % x.shape[1], 1)),
    ("tl.gather(x, (y % M + M) % M, 0)", lambda x, y, row: np.take_along_axis(x, y % len(x), 0)),
    ("tl.expand_dims(row, 0) + tl.broadcast_to(i[:, None], (M, N))",
     lambda x, y, row: row[None] + np.arange(len(x), dtype=x.dtype)[:, None]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_any_size(expression, expected, device):
    check(expression, expected, device=device)
    check(expression, expected, m=10, n=12, device=device, num_warps=1)
    check(expression, expected, m=2, n=100, device=device, num_warps=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_of_every_type(dtype, device):
    @triton.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, N))
        tl.store(out_ptr, tl.max(x, 0))
        tl.store(out_ptr + 1, tl.min(x, 0))

    for sign in (1, -1):
        x = moderate_values(dtype, (23,))
        if dtype not in ("bool", "int1") and not dtype.startswith("uint"):
            # Neither extreme is 0, which masked loads give.
            x = (sign * (np.trunc(np.abs(x)) + 1)).astype(x.dtype)
        out = empty((2,), dtype, device)
        kernel[(1,)](to_device(x, dtype, device), out, N=23)
        assert_same(to_host(out), np.array([x.max(), x.min()], x.dtype), dtype)


@pytest.mark.parametrize("count", [5, 7, 100])
@pytest.mark.parametrize("end", [2**31 - 1, 2**31 - 100])
def test_a_range_ends_next_to_the_largest_int32(count, end, device):
    """The range with its padding exceeds int32."""

    @triton.jit
    def kernel(out_ptr, START: tl.constexpr, END: tl.constexpr):
        numbers = tl.arange(START, END)
        tl.store(out_ptr + (numbers - START), numbers)

    out = empty((count,), "int32", device)
    kernel[(1,)](out, START=end - count, END=end)
    assert_same(to_host(out), np.arange(end - count, end, dtype=np.int32), "int32")


def test_nan_and_infinity_at_the_end(device):
    @triton.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, N))
        tl.store(out_ptr, tl.max(x, 0))
        tl.store(out_ptr + 1, tl.min(x, 0))
        tl.store(out_ptr + 2, tl.sum(x, 0))

    for last in (np.nan, np.inf, -np.inf, -0.0):
        x = np.full(5, last, np.float32)
        out = torch.zeros(3, device=device)
        kernel[(1,)](torch.tensor(x, device=device), out, N=5)
        assert_same(to_host(out), x[:3], str(last))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize(("m", "n", "k"), [(48, 80, 24), (20, 16, 5), (33, 7, 50)])
def test_dot(dtype, m, n, k, device):
    @triton.jit
    def kernel(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
        a = tl.load(a_ptr + i[:, None] * K + k[None, :]) + 1
        b = tl.load(b_ptr + k[:, None] * N + j[None, :])
        tl.store(out_ptr + i[:, None] * N + j[None, :], tl.dot(a, b))

    a, b = (np.trunc(moderate_values(dtype, shape, shape[0])) for shape in ((m, k), (k, n)))
    a, b = a.astype(dtype), b.astype(dtype)
    wide = np.int32 if dtype == "int8" else np.float32
    out = empty((m, n), np.dtype(wide).name, device)
    kernel[(1,)](to_device(a, dtype, device), to_device(b, dtype, device), out, M=m, N=n, K=k)
    assert_same(to_host(out), (a + 1).astype(wide) @ b.astype(wide), "dot")


def test_loops_and_branches_carry_tiles_of_any_size(device):
    @triton.jit
    def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
        i = tl.arange(0, N)
        pointers, total = x_ptr + i, tl.zeros([N], tl.int32)
        for step in range(0, n, N):
            x = tl.load(pointers, mask=step + i < n, other=-1)
            if step % 2 == 0:
                total += x
            else:
                total -= tl.where(x > tl.max(x, 0) // 2, x, 0)
            pointers += N
        tl.store(out_ptr + i, total)

    x = np.random.default_rng(7).integers(0, 100, 400).astype(np.int32)
    n, size = 395, 39
    out = torch.zeros(size, dtype=torch.int32, device=device)
    kernel[(1,)](torch.tensor(x, device=device), out, n, N=size)
    wanted = np.zeros(size, np.int32)
    for step in range(0, n, size):
        part = np.full(size, -1, np.int32)
        part[: min(size, n - step)] = x[step : min(step + size, n)]
        wanted += part if step % 2 == 0 else -np.where(part > int(part.max() / 2), part, 0)
    assert_same(to_host(out), wanted, "loop")


def test_softmax_of_an_odd_row(device):
    @triton.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        i = tl.arange(0, N)
        row = tl.program_id(0) * N
        tl.store(out_ptr + row + i, tl.softmax(tl.load(x_ptr + row + i)))

    x = torch.randn(3, 77, generator=torch.Generator().manual_seed(0)).to(device)
    out = torch.zeros_like(x)
    kernel[(3,)](x, out, N=77)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_checks_leave_the_padding_out(device):
    @triton.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        i = tl.arange(0, N)
        x = tl.load(x_ptr + i)
        tl.device_assert(x > 0, "not positive")
        tl.store(out_ptr + i, 100 // x)

    x = torch.arange(1, 51, dtype=torch.int32, device=device)
    out = torch.zeros_like(x)
    kernel[(1,)](x, out, N=50, debug=True)
    assert_same(to_host(out), 100 // np.arange(1, 51, dtype=np.int32), "quotients")


def test_atomics_leave_the_padding_out(device):
    @triton.jit
    def kernel(x_ptr, sums_ptr, old_ptr, N: tl.constexpr):
        i = tl.arange(0, N)
        old = tl.atomic_add(sums_ptr + i % 7, tl.load(x_ptr + i))
        tl.atomic_max(old_ptr + i, tl.where(old < 0, 0, 1), mask=i > 2)

    x = torch.arange(1, 24, dtype=torch.int32, device=device)
    sums = torch.zeros(16, dtype=torch.int32, device=device)
    old = torch.zeros(32, dtype=torch.int32, device=device)
    kernel[(1,)](x, sums, old, N=23)
    wanted = np.zeros(16, np.int32)
    np.add.at(wanted, np.arange(23) % 7, np.arange(1, 24))
    assert_same(to_host(sums), wanted, "sums")
    assert_same(to_host(old), ((np.arange(32) > 2) & (np.arange(32) < 23)).astype(np.int32), "marks")


@pytest.mark.parametrize("masked", [False, True])
def test_histogram_leaves_the_padding_out(masked, device):
    kernel = module(
        "@triton.jit\ndef k(x_ptr, o_ptr, N: tl.constexpr, BINS: tl.constexpr, MASKED: tl.constexpr):\n"
        "    i = tl.arange(0, N)\n    x = tl.load(x_ptr + i)\n"
        "    counts = tl.histogram(x, BINS, i % 2 == 0) if MASKED else tl.histogram(x, BINS)\n"
        "    tl.store(o_ptr + tl.arange(0, BINS), counts)\n"
    ).k
    x = np.random.default_rng(1).integers(0, 8, 100).astype(np.int32)
    out = torch.zeros(6, dtype=torch.int32, device=device)
    kernel[(1,)](torch.from_numpy(x).to(device), out, 100, 6, masked)
    counted = x[::2] if masked else x
    np.testing.assert_array_equal(out.cpu().numpy(), np.bincount(counted, minlength=8)[:6])
