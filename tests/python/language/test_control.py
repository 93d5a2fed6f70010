"""The control flow of kernels and what is computed while they are compiled: calls, loops, branches, constexpr."""

import numpy as np
import pytest
import torch
from helpers import empty, module, to_host

import tilewright as triton
import tilewright.language as tl

SCALE: tl.constexpr = tl.constexpr(3)
OFFSETS = tl.constexpr((1, 10, 100))


def run(kernel, *arguments, size=16, dtype=torch.int32, device="cpu", **constants):
    """Launches one program with a tensor of zeros as its last argument, which it returns as a list."""
    out = torch.zeros(size, dtype=dtype, device=device)
    kernel[(1,)](*arguments, out, **constants)
    return out.tolist()


# --- Calls ---


@triton.jit
def affine(x, scale=2, offset: tl.constexpr = 5):
    """The docstring of a helper is no code."""
    return x * scale + offset


@triton.jit
def quotient_and_remainder(x, y):
    return x // y, x % y


@triton.jit
def store_all(out_ptr, values, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), values)


@triton.jit
def nested(x, y):
    q, r = quotient_and_remainder(affine(x), affine(y, scale=1, offset=0))
    return q, (r, affine(r, offset=0))


@triton.jit
def calls_kernel(x, y, out_ptr):
    tl.store(out_ptr, affine(x))
    tl.store(out_ptr + 1, affine(x, 3))
    tl.store(out_ptr + 2, affine(x, offset=7))
    tl.store(out_ptr + 3, affine(offset=1, scale=y, x=x))
    q, r = quotient_and_remainder(x, y)
    tl.store(out_ptr + 4, q)
    tl.store(out_ptr + 5, r)
    q, (r, s) = nested(x, y)
    tl.store(out_ptr + 6, q)
    tl.store(out_ptr + 7, r)
    tl.store(out_ptr + 8, s)
    both = quotient_and_remainder(x, 4)
    tl.store(out_ptr + 9, both[0] + both[1])
    arguments = (x, y)
    q, r = quotient_and_remainder(*arguments)
    tl.store(out_ptr + 10, q * 100 + r)
    tl.store(out_ptr + 11, affine(affine(affine(1))))
    store_all(out_ptr + 12, affine(tl.arange(0, 4)), 4)


def test_calls_with_defaults_keywords_and_tuples(device):
    x, y = 17, 5
    q, r = (x * 2 + 5) // y, (x * 2 + 5) % y
    expected = [39, 56, 41, 86, 3, 2, q, r, 2 * r, 5, 302, 43, 5, 7, 9, 11]
    assert run(calls_kernel, x, y, device=device) == expected


@triton.jit
def early(x, LIMIT: tl.constexpr):
    if LIMIT is None:
        return x
    if LIMIT > 10:
        return x + LIMIT
    return x - LIMIT


@triton.jit
def dynamic_early(x):
    if x > 10:
        return x * 2
    if x > 5:
        return x * 3
    return x


@triton.jit
def early_return_kernel(x, out_ptr):
    tl.store(out_ptr, early(x, None))
    tl.store(out_ptr + 1, early(x, 11))
    tl.store(out_ptr + 2, early(x, 3))
    tl.store(out_ptr + 3, dynamic_early(x))
    if x == 7:
        return
    tl.store(out_ptr + 4, 1)


@pytest.mark.parametrize("x", [2, 7, 12])
def test_early_returns(x, device):
    dynamic = x * 2 if x > 10 else x * 3 if x > 5 else x
    expected = [x, x + 11, x - 3, dynamic, 0 if x == 7 else 1]
    assert run(early_return_kernel, x, size=5, device=device) == expected


# --- Branches ---


@triton.jit
def branches_kernel(x, y, out_ptr, FLAG: tl.constexpr):
    if x < 0:
        a = -1
    elif x == 0:
        a = 0
    elif x < 10 and y < 10:
        a = 1
    else:
        a = 2
    tl.store(out_ptr, a)
    b = x if x > y else y
    tl.store(out_ptr + 1, b)
    if FLAG:
        c = x + y
    else:
        c = undefined_name_in_a_branch_that_is_not_taken(x)  # noqa: F821
    tl.store(out_ptr + 2, c)
    if 0 < x < 10 <= y:
        tl.store(out_ptr + 3, 1)
    if not x == 3:
        tl.store(out_ptr + 4, 1)
    if x > 0 or y > 0:
        if x > 0:
            d = x
        else:
            d = y
            d += 1000
    else:
        d = 0
    tl.store(out_ptr + 5, d)
    e = 1.5 if FLAG else tl.arange(0, 4)
    tl.store(out_ptr + 6, (e * 2).to(tl.int32))
    if x:
        tl.store(out_ptr + 7, 1)


@pytest.mark.parametrize("x", [-4, 0, 3, 30])
@pytest.mark.parametrize("y", [-1, 5, 10])
def test_branches(x, y, device):
    a = -1 if x < 0 else 0 if x == 0 else 1 if x < 10 and y < 10 else 2
    d = (x if x > 0 else y + 1000) if x > 0 or y > 0 else 0
    expected = [a, max(x, y), x + y, int(0 < x < 10 <= y), int(x != 3), d, 3, int(x != 0)]
    assert run(branches_kernel, x, y, size=8, device=device, FLAG=True) == expected


@triton.jit
def tensors_through_branches_kernel(x_ptr, n, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    pointer = out_ptr + i
    if n > 0:
        x = x * 2
        y = x + 1
        pointer = pointer + 0
    else:
        y = x - 1
        pointer = out_ptr + (N - 1 - i)
    tl.store(pointer, x + y)


@pytest.mark.parametrize("n", [1, 0])
def test_tensors_and_pointers_through_branches(n, device):
    x = torch.arange(16, dtype=torch.int32, device=device)
    expected = (4 * x + 1).tolist() if n else (2 * x - 1).flip(0).tolist()
    assert run(tensors_through_branches_kernel, x, n, device=device, N=16) == expected


# --- Loops ---


@triton.jit
def loops_kernel(n, out_ptr, UP: tl.constexpr):
    total = 0
    for i in range(n):
        total += i
    tl.store(out_ptr, total)
    total = 0
    for i in range(n, 0, -2):
        total = total * 3 + i
    tl.store(out_ptr + 1, total)
    total = 0
    for i in tl.range(2, n, 3, num_stages=2):
        if i % 2 == 0:
            total += i
        else:
            total -= 1
    tl.store(out_ptr + 2, total)
    total = 0
    for i in tl.static_range(UP):
        total += i * n
    tl.store(out_ptr + 3, total)
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    tl.store(out_ptr + 4, a)
    steps = 0
    x = n + 20
    while x > 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
    tl.store(out_ptr + 5, steps)
    count = 0
    for i in range(n):
        for j in range(i):
            if (i + j) % 3 == 0:
                count += 1
    tl.store(out_ptr + 6, count)
    last = -1
    for i in range(n, n):
        last = i
    tl.store(out_ptr + 7, last)


@pytest.mark.parametrize("n", [0, 1, 7, 12])
def test_loops(n, device):
    down = 0
    for i in range(n, 0, -2):
        down = down * 3 + i
    stepped = sum(i if i % 2 == 0 else -1 for i in range(2, n, 3))
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    x, steps = n + 20, 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    count = sum((i + j) % 3 == 0 for i in range(n) for j in range(i))
    expected = [n * (n - 1) // 2, down, stepped, 6 * n, a, steps, count, -1]
    assert run(loops_kernel, n, size=8, device=device, UP=4) == expected


@triton.jit
def carried_kernel(x_ptr, n, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    pointer = x_ptr + i
    state = (tl.zeros((N,), tl.int32), 1)
    acc = tl.zeros((N,), tl.float32)
    for _ in range(n):
        x = tl.load(pointer)
        total, factor = state
        state = (total + x * factor, factor * 2)
        acc += x.to(tl.float32) / 2
        pointer += N
    total, factor = state
    tl.store(out_ptr + i, total + factor + (acc * 0).to(tl.int32))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loops_carry_tensors_pointers_and_tuples(n, device):
    x = torch.arange(48, dtype=torch.int32, device=device).reshape(3, 16)
    expected = sum((x[k] * 2**k for k in range(n)), torch.zeros(16, dtype=torch.int32, device=device)) + 2**n
    assert run(carried_kernel, x, n, device=device, N=16) == expected.tolist()


@triton.jit
def static_range_kernel(out_ptr, N: tl.constexpr):
    for i in tl.static_range(N):
        if i % 2 == 0:
            tl.store(out_ptr + i, OFFSETS[i % 3])
        else:
            x = tl.arange(0, 2 ** (i % 3 + 1))
            tl.store(out_ptr + i, tl.sum(x))
    for i in tl.static_range(10, 4, -3):
        tl.store(out_ptr + i, i * SCALE)


def test_static_range_unrolls(device):
    expected = [0] * 16
    for i in range(7):
        expected[i] = (1, 10, 100)[i % 3] if i % 2 == 0 else sum(range(2 ** (i % 3 + 1)))
    for i in range(10, 4, -3):
        expected[i] = i * 3
    assert run(static_range_kernel, device=device, N=7) == expected


@triton.jit
def loop_bounds_kernel(lower, upper, step, out_ptr):
    total = upper * 0
    for i in range(lower, upper, step):
        total += i
    tl.store(out_ptr, total)


@pytest.mark.parametrize(
    "bounds", [(0, 10, 3), (5, 5, 1), (10, 0, 1), (-7, 7, 2), (2**33, 2**33 + 10, 4)], ids=str
)
def test_bounds_known_at_run_time(bounds, device):
    found = run(loop_bounds_kernel, *bounds, size=1, dtype=torch.int64, device=device)
    assert found == [sum(range(*bounds))]


@triton.jit
def loop_edges_kernel(lower, upper, out_ptr, LOWER: tl.constexpr, UPPER: tl.constexpr, STEP: tl.constexpr):
    # Bounds known when it runs, both or one, or when it is compiled: how many iterations, and the last index.
    trips, last = 0, tl.zeros([], tl.int64)
    for i in range(lower, upper, STEP):
        trips += 1
        last = i.to(tl.int64)
    tl.store(out_ptr, trips)
    tl.store(out_ptr + 1, last)
    trips, last = 0, tl.zeros([], tl.int64)
    for i in range(LOWER, upper, STEP):
        trips += 1
        last = i.to(tl.int64)
    tl.store(out_ptr + 2, trips)
    tl.store(out_ptr + 3, last)
    trips, last = 0, tl.zeros([], tl.int64)
    for i in range(lower, UPPER, STEP):
        trips += 1
        last = i.to(tl.int64)
    tl.store(out_ptr + 4, trips)
    tl.store(out_ptr + 5, last)
    trips, last = 0, tl.zeros([], tl.int64)
    for i in tl.range(LOWER, UPPER, STEP):
        trips += 1
        last = i.to(tl.int64)
    tl.store(out_ptr + 6, trips)
    tl.store(out_ptr + 7, last)


INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    "bounds",
    [
        # The first index past the end fits, or is a number too large by one or by much.
        (INT_MAX - 21, INT_MAX, 7),
        (INT_MAX - 21, INT_MAX - 6, 7),
        (INT_MAX - 20, INT_MAX - 5, 7),
        (INT_MAX - 40, INT_MAX, 16),
        (INT_MIN + 21, INT_MIN, -7),
        (INT_MIN + 40, INT_MIN, -16),
        # More between them than a signed number holds.
        (INT_MIN, INT_MAX, 2**30 + 1),
        (INT_MIN, INT_MAX, INT_MAX),
        (INT_MAX, INT_MIN, -(2**30)),
        (INT_MAX, INT_MIN, INT_MIN),
        # None at all, the other way around.
        (INT_MAX, INT_MIN, 2**30),
        (INT_MIN, INT_MAX, -3),
        (5, 5, 4),
        (0, 1, 4),
        (0, 4, 4),
        (0, 5, 4),
        (LONG_MAX - 21, LONG_MAX, 7),
        (LONG_MIN + 40, LONG_MIN, -16),
        (LONG_MIN, LONG_MAX, 2**62 + 1),
        (2**32 - 5, 2**32 + 5, 4),
    ],
    ids=str,
)
def test_bounds_at_the_edges(bounds, device):
    lower, upper, step = bounds
    indices = range(*bounds)
    expected = [len(indices), indices[-1] if indices else 0] * 4
    found = run(
        loop_edges_kernel,
        lower,
        upper,
        size=8,
        dtype=torch.int64,
        device=device,
        LOWER=lower,
        UPPER=upper,
        STEP=step,
    )
    assert found == expected


# --- Compile-time values ---


@triton.jit
def constexpr_kernel(out_ptr, A: tl.constexpr, B: tl.constexpr, F: tl.constexpr):
    tl.store(out_ptr, A // B)
    tl.store(out_ptr + 1, A % B)
    tl.store(out_ptr + 2, A**2)
    tl.store(out_ptr + 3, -A if A < 0 else A)
    tl.store(out_ptr + 4, (A & 12) | (B << 4) ^ 3)
    tl.store(out_ptr + 5, A >> 1)
    tl.store(out_ptr + 6, ~B)
    half: tl.constexpr = B / 2
    tl.store(out_ptr + 7, int(half * 4))
    tl.store(out_ptr + 8, min(A, B) * 1000 + max(A, B, 3))
    names: tl.constexpr = ("a", "b")
    tl.static_assert(names[1] == "b" and len(names) == 2)
    tl.static_assert(A < B or B <= A)
    tl.static_assert(F is None or isinstance(F, float))
    if F is not None:
        tl.store(out_ptr + 9, int(F * 2))
    big: tl.constexpr = 2**40 // 2**38
    tl.store(out_ptr + 10, big)
    tl.store(out_ptr + 11, abs(A))
    tl.store(out_ptr + 12, triton.cdiv(B, 2) + triton.next_power_of_2(B) + tl.cdiv(B, 3))
    block: tl.constexpr = 4 if B > 2 else 2
    tl.store(out_ptr + 13, tl.sum(tl.arange(0, block)))
    tl.store(out_ptr + 14, 1 if not A else 2)
    tl.store(out_ptr + 15, A == -7 and B == 3)


@pytest.mark.parametrize("f", [None, 2.5])
def test_compile_time_arithmetic_is_that_of_python(f, device):
    a, b = -7, 3
    expected = [a // b, a % b, a**2, 7, (a & 12) | (b << 4) ^ 3, a >> 1, ~b, int(b / 2 * 4), a * 1000 + 3]
    expected += [int(f * 2) if f else 0, 4, 7, 2 + 4 + 1, 6, 2, 1]
    assert run(constexpr_kernel, device=device, A=a, B=b, F=f) == expected


@triton.jit
def global_names_kernel(out_ptr):
    tl.store(out_ptr, SCALE * 2)
    tl.store(out_ptr + 1, OFFSETS[0] + OFFSETS[2])
    tl.store(out_ptr + 2, scaled(4))


@triton.jit
def scaled(x):
    return x * SCALE


def test_globals_that_are_constexpr(device):
    assert run(global_names_kernel, size=3, device=device) == [6, 101, 12]


def test_closures(device):
    factor = tl.constexpr(11)

    @triton.jit
    def inner(x):
        return x * factor

    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, inner(3))

    assert run(kernel, size=1, device=device) == [33]


@triton.jit
def apply_twice(x, FUNCTION: tl.constexpr):
    return FUNCTION(FUNCTION(x))


@triton.jit
def function_argument_kernel(x, out_ptr, FUNCTION: tl.constexpr):
    tl.store(out_ptr, apply_twice(x, FUNCTION))


def test_a_function_as_an_argument(device):
    assert run(function_argument_kernel, 4, size=1, device=device, FUNCTION=affine) == [(4 * 2 + 5) * 2 + 5]


@triton.jit
def statements_kernel(x, out_ptr):
    """A docstring."""
    "a string as a statement"
    pass  # noqa: PIE790
    a = b = x + 1
    a += 1
    b *= a
    (c, d) = a, b
    c, d = d, c
    tl.static_assert(True, "never")
    assert True
    tl.store(out_ptr, a), tl.store(out_ptr + 1, b)
    tl.store(out_ptr + 2, c - d)
    x = x
    y: tl.int32 = x
    tl.store(out_ptr + 3, y)
    z = (
        x
        + 1  # a comment inside
        - 2
    )
    tl.store(
        out_ptr + 4,
        z,
    )
    e = a
    f = b
    tl.store(out_ptr + 5, e + f)
    g = [a, b, c]
    tl.store(out_ptr + 6, g[0] + g[-1])
    tl.store(out_ptr + 7, x.to(tl.int64).to(tl.int32))


def test_statements(device):
    x = 6
    a, b = x + 2, (x + 1) * (x + 2)
    assert run(statements_kernel, x, size=8, device=device)[:6] == [a, b, b - a, x, x - 1, a + b]


@triton.jit
def scalars_kernel(i, f, flag, out_ptr):
    tl.store(out_ptr, i)
    tl.store(out_ptr + 1, f)
    tl.store(out_ptr + 2, f * i)
    if flag:
        tl.store(out_ptr + 3, 1)
    tl.store(out_ptr + 4, flag + 1)


@pytest.mark.parametrize(
    ("i", "f", "flag"),
    [
        (3, 2.5, True),
        (3, 2.5, False),
        (np.int32(3), np.float32(2.5), np.bool_(True)),
        (np.int64(3), np.float64(2.5), 0),
    ],
    ids=["python", "python-false", "numpy", "numpy-wide"],
)
def test_scalar_arguments(i, f, flag, device):
    found = run(scalars_kernel, i, f, flag, size=5, dtype=torch.float32, device=device)
    assert found == [3, 2.5, 7.5, float(flag), 1.0 + bool(flag)]


INTEGER_CODES = """@triton.jit
def kernel(n, out_ptr):
    if n.dtype == tl.int32:
        tl.store(out_ptr, 32)
    elif n.dtype == tl.int64:
        tl.store(out_ptr, 64)
    elif n.dtype == tl.uint64:
        tl.store(out_ptr, 65)
    tl.store(out_ptr + 1, n)
"""


@pytest.mark.parametrize(
    ("value", "code"),
    [(5, 32), (-(2**31), 32), (2**31 - 1, 32), (2**31, 64), (-(2**63), 64), (2**63 - 1, 64), (2**63, 65)],
)
def test_width_of_integer_arguments(value, code, device):
    found = run(module(INTEGER_CODES).kernel, value, size=2, dtype=torch.int64, device=device)
    assert found == [code, value if value < 2**63 else value - 2**64]


@triton.jit
def one_is_a_constant_kernel(stride, n, out_ptr):
    for i in range(n):
        tl.store(out_ptr + i * stride, i + stride)


@pytest.mark.parametrize(("stride", "n"), [(1, 1), (1, 16), (16, 1), (2, 8), (3, 5)])
def test_specialization_of_1_and_16_changes_nothing(stride, n, device):
    expected = [0] * 16
    for i in range(n):
        expected[i * stride] = i + stride
    assert run(one_is_a_constant_kernel, stride, n, device=device) == expected


@triton.jit
def none_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    if x_ptr is not None:
        tl.store(out_ptr + i, tl.load(x_ptr + i))
    else:
        tl.store(out_ptr + i, -1)


def test_none_as_an_argument(device):
    x = torch.arange(8, dtype=torch.int32, device=device)
    assert run(none_kernel, x, size=8, device=device, N=8) == list(range(8))
    assert run(none_kernel, None, size=8, device=device, N=8) == [-1] * 8


@triton.jit
def assertions_kernel(x, out_ptr):
    tl.device_assert(x > 0, "x must be positive")
    assert x < 100, "x must be small"
    tl.store(out_ptr, x)


def test_assertions_that_hold_change_nothing(device):
    assert run(assertions_kernel, 5, size=1, device=device) == [5]


# --- swizzle2d ---


def swizzled(i, j, rows, columns, group):
    """By its definition: column by column within each band of `group` rows."""
    order = []
    for start in range(0, rows, group):
        band = range(start, min(start + group, rows))
        order += [(row, column) for column in range(columns) for row in band]
    return order[i * columns + j]


@triton.jit
def swizzle_kernel(out_ptr, rows, columns, GROUP: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    new_i, new_j = tl.swizzle2d(i, j, rows, columns, GROUP)
    tl.store(out_ptr + (i * columns + j) * 2, new_i)
    tl.store(out_ptr + (i * columns + j) * 2 + 1, new_j)


@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", [(1, 1), (5, 4), (4, 4), (7, 3), (3, 8)], ids=str)
def test_swizzle2d(shape, group, device):
    rows, columns = shape
    out = torch.full((rows, columns, 2), -1, dtype=torch.int32, device=device)
    swizzle_kernel[shape](out, rows, columns, GROUP=group)
    expected = [[list(swizzled(i, j, rows, columns, group)) for j in range(columns)] for i in range(rows)]
    assert out.tolist() == expected


@triton.jit
def tile_swizzle_kernel(out_ptr, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    new_i, new_j = tl.swizzle2d(i, j, M, N, GROUP)
    tl.store(out_ptr + new_i * N + new_j, i * N + j)


def test_swizzle2d_of_tiles_as_in_its_documentation(device):
    out = torch.zeros(4, 4, dtype=torch.int32, device=device)
    tile_swizzle_kernel[(1,)](out, M=4, N=4, GROUP=2)
    assert out.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]


# --- Compile-time values that are returned stay so ---


@triton.jit
def half(n):
    return n // 2


@triton.jit
def four_or_eight(n):
    if n > 3:
        return 4
    else:
        return 8


@triton.jit
def always_known(n, x):
    if x > 1:
        return n
    return n


@triton.jit
def known_pair(n):
    return n + 1, (n, "both")


@triton.jit
def known_or_not(n, x):
    if x > 1:
        return n
    return x + 10


@triton.jit
def known_results_kernel(x, out_ptr, N: tl.constexpr):
    for i in tl.static_range(tl.cdiv(N, 3)):
        tl.store(out_ptr + i, i + 1)
    tile = tl.zeros((half(N), four_or_eight(N)), tl.int32)
    tl.store(out_ptr + 4, tile.shape[0] * 10 + tile.shape[1])
    M: tl.constexpr = always_known(N, x)
    tl.static_assert(M == N)
    tl.static_assert(known_pair(N)[1][1] == "both")
    tl.store(out_ptr + 5, tl.sum(tl.arange(0, known_pair(N)[1][0])))
    tl.store(out_ptr + 6, known_or_not(N, x))
    # A number that is known takes the type of the other operand.
    y = tl.full((4,), 3, tl.int8) + half(N)
    tl.static_assert(y.dtype == tl.int8)
    tl.store(out_ptr + 7, tl.sum(y))


def test_results_that_are_known(device):
    expected = [1, 2, 3, 0, 44, 28, 8, 28]
    assert run(known_results_kernel, 5, device=device, N=8, size=8) == expected
    assert run(known_results_kernel, 0, device=device, N=8, size=8) == [*expected[:6], 10, 28]


@triton.jit
def annotated_kernel(n, out_ptr, N: tl.constexpr):
    M: tl.constexpr = N * 2
    tl.store(out_ptr + tl.arange(0, M), M)
    # The annotation demands nothing: this is a run-time value.
    K: tl.constexpr = N * n
    for i in range(0, K, 3):
        tl.store(out_ptr + i, K + i)


def test_a_constexpr_variable_may_hold_a_run_time_value(device):
    # 10 numbers from 0 on, every third: 0, 3, 6, 9.
    expected = [10, 4, 4, 13, 0, 0, 16, 0, 0, 19]
    assert run(annotated_kernel, 5, device=device, N=2, size=10) == expected


def chain(tests, last):
    """A kernel that sets `r` in one branch for each test."""
    lines = ["@triton.jit", "def kernel(v, out_ptr, C: tl.constexpr):"]
    for number, test in enumerate(tests):
        lines += [f"    {'elif' if number else 'if'} {test}:", f"        r = {3 * number}"]
    return module("\n".join([*lines, "    else:", f"        r = {last}", "    tl.store(out_ptr, r)"])).kernel


def test_a_chain_of_any_length_that_is_decided_at_compile_time(device):
    kernel = chain([f"C == {number}" for number in range(700)], "v")
    assert [run(kernel, 5, device=device, C=chosen, size=1) for chosen in (0, 650, 900)] == [[0], [1950], [5]]


def test_a_long_chain_that_is_decided_at_run_time(device):
    kernel = chain([f"v == {number}" for number in range(150)], -1)
    assert [run(kernel, v, device=device, C=0, size=1) for v in (2, 149, 150)] == [[6], [447], [-1]]


def test_a_chain_that_nests_too_deep_is_one_finding():
    kernel = chain([f"v == {number}" for number in range(900)], -1)
    with pytest.raises(triton.CompilationError) as raised:
        run(kernel, 2, C=0)
    (found,) = raised.value.diagnostics
    assert found.code == "TW0022"
    assert found.hint


LONG = {
    "or": ("n == {}", " or ", lambda n, c: any(n == i for i in range(c))),
    "and": ("n != {}", " and ", lambda n, c: all(n != i for i in range(c))),
    "a known or": ("C == {}", " or ", lambda n, c: True),
    "+": ("n", " + ", lambda n, c: n * c),
    "|": ("(n == {})", " | ", lambda n, c: any(n == i for i in range(c))),
    "<=": ("n", " <= ", lambda n, c: True),
    "if": ("", "", None),
}


@pytest.mark.parametrize("count", [90, 1000])
@pytest.mark.parametrize("name", LONG)
def test_long_chains_of_operators(name, count, device):
    operand, between, value = LONG[name]
    if value is None:
        text = "".join(f"{i} if C == {i} else " for i in range(count)) + "-1"
        cases = [(0, 3, 3), (0, count - 1, count - 1), (0, count, -1)]
    else:
        text = between.join(operand.format(i) for i in range(count))
        cases = [(n, count - 1, int(value(n, count))) for n in (count - 1, count + 5)]
    lines = ["@triton.jit", "def kernel(n, out_ptr, C: tl.constexpr):", f"    tl.store(out_ptr, {text})"]
    kernel = module("\n".join(lines)).kernel
    for n, chosen, expected in cases:
        assert run(kernel, n, device=device, C=chosen, size=1) == [expected]


@triton.jit
def constexpr_of_values_kernel(out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.constexpr(at + n)
    for i in range(n):
        x = tl.where(x >= i * 2, x + tl.constexpr(n), x)
    tl.store(out_ptr + at, x * tl.constexpr(3))


def test_constexpr_of_a_run_time_value_is_the_value(device):
    out = torch.empty(8, dtype=torch.int32, device=device)
    constexpr_of_values_kernel[(1,)](out, 5, N=8)
    x = np.arange(8) + 5
    for i in range(5):
        x = np.where(x >= 2 * i, x + 5, x)
    assert out.tolist() == (3 * x).tolist()


@triton.jit
def größe(é):
    tl.store(é, 7)


@triton.jit
def _(x_ptr):
    tl.store(x_ptr, 8)


def test_names_that_ptx_does_not_have(device):
    x = empty((1,), "int32", device)
    for kernel, expected in ((größe, 7), (_, 8)):
        kernel[(1,)](x)
        assert to_host(x)[0] == expected
