"""Block pointers: loads and stores with every choice of checks, moves in loops, branches, helpers and tuples; matrix
products and attention written with them."""

import itertools

import numpy as np
import pytest
import torch
from helpers import DTYPES, FLOATS, assert_same, convert, empty, moderate_values, sample, to_device, to_host
from helpers_errors import facts, failing

import tilewright as triton
import tilewright.language as tl


@triton.jit
def copy_2d(
    x,
    out,
    M,
    N,
    xm,
    xn,
    om,
    on,
    row,
    column,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PADDING: tl.constexpr,
    ORDER: tl.constexpr,
):
    source = tl.make_block_ptr(x, (M, N), (xm, xn), (row, column), (BM, BN), ORDER)
    target = tl.make_block_ptr(out, (BM, BN), (om, on), (0, 0), (BM, BN), (1, 0))
    tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option=PADDING))


def window(x, row, column, shape, fill):
    """The block of a matrix that begins at a place, which may be outside of it."""
    block = np.full(shape, fill, x.dtype)
    for i, j in itertools.product(*map(range, shape)):
        if 0 <= row + i < x.shape[0] and 0 <= column + j < x.shape[1]:
            block[i, j] = x[row + i, column + j]
    return block


@pytest.mark.parametrize("dtype", [*DTYPES, "float8e5", "float8e4nv"])
def test_blocks_of_every_type_at_every_edge(dtype, device):
    m, n = 13, 21
    fp8 = dtype.startswith("float8")
    if fp8:
        from helpers import TORCH

        words = np.arange(m * n, dtype=np.int64) * 7 % 120
        tensor = torch.from_numpy(words.astype(np.uint8)).reshape(m, n).to(device).view(TORCH[dtype])
        values = tensor.to(torch.float32).cpu().numpy()
    else:
        values = np.resize(sample(dtype, m * n), (m, n))
        tensor = to_device(values, dtype, device)
    for row, column in [(0, 0), (8, 16), (-3, 2), (2, -5), (-15, -31), (12, 20), (13, 0), (0, 40), (-16, 3)]:
        if fp8:
            out = torch.ones((16, 32), dtype=torch.uint8, device=device).view(tensor.dtype)
        else:
            out = empty((16, 32), dtype, device)
        copy_2d[(1,)](tensor, out, m, n, n, 1, 32, 1, row, column, 16, 32, "zero", (1, 0))
        found = out.to(torch.float32).cpu().numpy() if fp8 else to_host(out)
        assert_same(found, window(values, row, column, (16, 32), 0), row, column)


@pytest.mark.parametrize("dtype", FLOATS)
def test_padding_with_nan(dtype, device):
    values = moderate_values(dtype, (6, 9), 3)
    out = empty((8, 16), dtype, device)
    copy_2d[(1,)](to_device(values, dtype, device), out, 6, 9, 9, 1, 16, 1, -1, 2, 8, 16, "nan", (1, 0))
    assert_same(to_host(out), window(values, -1, 2, (8, 16), np.nan))


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_strides_of_every_kind_and_both_orders(order, device):
    m, n = 11, 14
    values = moderate_values("float32", (m, n), 4)
    flat = np.zeros(3 * m * n + 7, np.float32)
    cases = [(n, 1, 0), (1, m, 0), (3 * n, 3, 0), (n, -1, n - 1), (-n, 1, (m - 1) * n), (-1, -m, m * n - 1)]
    for row_stride, column_stride, first in cases:
        memory = flat.copy()
        for i, j in itertools.product(range(m), range(n)):
            memory[first + i * row_stride + j * column_stride] = values[i, j]
        x = torch.from_numpy(memory).to(device)
        out = empty((16, 16), "float32", device)
        strides = (row_stride, column_stride, 16, 1)
        copy_2d[(1,)](x[first:], out, m, n, *strides, 2, -1, 16, 16, "", order)
        assert_same(to_host(out), window(values, 2, -1, (16, 16), 0), row_stride, column_stride)


@triton.jit
def store_checked(out, M, N, row, column, CHECK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_block_ptr(out, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    value = (tl.arange(0, BM)[:, None] * 100 + tl.arange(0, BN)[None, :]).to(tl.float32)
    tl.store(target, value, boundary_check=CHECK)


def test_a_store_touches_the_tensor_alone(device):
    m, n = 9, 12
    value = (np.arange(8)[:, None] * 100 + np.arange(8)[None, :]).astype(np.float32)
    for row, column in [(0, 0), (4, 8), (-3, -2), (6, -7), (-7, 11), (9, 0), (-8, 0), (3, 12)]:
        out = torch.full((m + 40, n), -1.0, device=device)
        inner = out[20 : 20 + m]
        store_checked[(1,)](inner, m, n, row, column, (0, 1), 8, 8)
        expected = np.full((m, n), -1.0, np.float32)
        for i, j in itertools.product(range(8), range(8)):
            if 0 <= row + i < m and 0 <= column + j < n:
                expected[row + i, column + j] = value[i, j]
        found = to_host(out)
        assert_same(found[20 : 20 + m], expected, row, column)
        assert (found[:20] == -1).all()
        assert (found[20 + m :] == -1).all()


def test_only_the_named_axes_are_checked(device):
    """An unchecked column beyond the end is the next row's, as the strides say."""
    out = torch.full((16, 12), -1.0, device=device)
    store_checked[(1,)](out, 9, 12, 4, 8, (0,), 8, 8)
    flat = np.full(16 * 12, -1.0, np.float32)
    for i, j in itertools.product(range(5), range(8)):
        flat[(4 + i) * 12 + 8 + j] = i * 100 + j
    assert_same(to_host(out).reshape(-1), flat)
    out = torch.full((16, 12), -1.0, device=device)
    store_checked[(1,)](out, 9, 12, 4, 8, (-1,), 8, 8)
    found = to_host(out)
    assert (found[4:12, 8:] >= 0).all()
    assert (found[:, :8] == -1).all()


@triton.jit
def axes_1_and_3(x, y, out, boxes, n, A, B, C):
    line = tl.make_block_ptr(x, (n,), (2,), (3,), (16,), (0,))
    line = tl.advance(line, (-1,))
    tl.store(tl.make_block_ptr(out, (16,), (1,), (0,), (16,), (0,)), tl.load(line, boundary_check=(0,)))
    box = tl.make_block_ptr(y, (A, B, C), (B * C, C, 1), (1, 0, 2), (4, 2, 8), (2, 1, 0))
    box = box.advance((0, 1, -3))
    tile = tl.load(box, boundary_check=(2, 0, 1))
    tl.store(tl.make_block_ptr(boxes, (4, 2, 8), (16, 8, 1), (0, 0, 0), (4, 2, 8), (2, 1, 0)), tile)


def test_one_and_three_axes(device):
    x, y = moderate_values("float32", 40, 1), moderate_values("float16", (3, 2, 7), 2)
    out, boxes = empty((16,), "float32", device), empty((4, 2, 8), "float16", device)
    axes_1_and_3[(1,)](
        to_device(x, "float32", device), to_device(y, "float16", device), out, boxes, 10, 3, 2, 7
    )
    expected = np.zeros(16, np.float32)
    expected[:8] = x[4:20:2]
    assert_same(to_host(out), expected)
    expected = np.zeros((4, 2, 8), np.float16)
    expected[:2, :1, 1:8] = y[1:3, 1:2, 0:7]
    assert_same(to_host(boxes), expected)


@triton.jit
def moved(pointer, by: tl.constexpr):
    return tl.advance(pointer, (0, by)), pointer


@triton.jit
def early(pointer, other, flag):
    if flag > 0:
        return pointer
    return other


@triton.jit
def carried(x, out, M, N, flag, steps, BLOCK: tl.constexpr):
    first = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    # A constant stride in one branch, and one of run time in the other.
    if flag > 0:
        p = tl.make_block_ptr(x, (M, N), (N, 1), (BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    else:
        p = tl.make_block_ptr(x, (N, M), (1, N), (0, BLOCK), (BLOCK, BLOCK), (0, 1))
    both = (first, p)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(steps):
        pair = (tl.load(both[0], boundary_check=(0, 1)), tl.load(both[1], boundary_check=(0, 1)))
        total += pair[0] * 2 + pair[1]
        next_first, _old = moved(both[0], BLOCK)
        both = (next_first, tl.advance(both[1], (0, 4)))
    i = 0
    while i < steps:
        first = tl.advance(first, [1, 0])
        i += 1
    total += tl.load(early(first, p, flag), boundary_check=[0, 1])
    tl.store(tl.make_block_ptr(out, (BLOCK, BLOCK), (BLOCK, 1), (0, 0), (BLOCK, BLOCK), (1, 0)), total)


@pytest.mark.parametrize("flag", [0, 5])
def test_block_pointers_go_through_loops_branches_helpers_and_tuples(flag, device):
    m, n, block = 12, 18, 8
    x = np.round(moderate_values("float32", (m, n), 6) * 8)
    out = empty((block, block), "float32", device)
    carried[(1,)](to_device(x, "float32", device), out, m, n, flag, 3, BLOCK=block)
    y, start = (x, (block, 0)) if flag else (x.T, (0, block))
    expected = np.zeros((block, block), np.float32)
    for step in range(3):
        expected += window(x, 0, step * block, (block, block), 0) * 2
        expected += window(y, start[0], start[1] + 4 * step, (block, block), 0)
    last = window(x, 3, 0, (block, block), 0) if flag else window(y, *start, (block, block), 0)
    assert_same(to_host(out), expected + last)


@triton.jit
def far_kernel(x, out, row, stride, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(x, (row + 2, 16), (stride, 1), (row, 0), (4, 16), (1, 0))
    p = tl.advance(p, (-row, 0))
    tl.store(
        tl.make_block_ptr(out, (4, 16), (16, 1), (0, 0), (4, 16), (1, 0)), tl.load(p, boundary_check=(0, 1))
    )


def test_offsets_are_computed_in_64_bits(device):
    """The rows are 2**40 elements apart; only the first is within memory."""
    x = moderate_values("float32", 16, 8)
    out = empty((4, 16), "float32", device)
    far_kernel[(1,)](to_device(x, "float32", device), out, -1, 2**40, BLOCK=16)
    assert_same(to_host(out), window(x[None], 0, 0, (4, 16), 0))


@triton.jit
def types(x, flags, out, N: tl.constexpr):
    p = tl.make_block_ptr(x, (N,), (1,), (0,), (16,), (0,))
    q = tl.make_block_ptr(flags, (N,), (1,), (0,), (16,), (0,))
    tl.static_assert(p.dtype.element_ty == tl.float16)
    tl.static_assert(p.type.element_ty == tl.float16)
    tl.static_assert(p.dtype.is_ptr())
    tl.static_assert(q.dtype.element_ty == tl.int1)
    value = tl.load(
        p, boundary_check=(0,), cache_modifier=".cg", eviction_policy="evict_first", volatile=True
    )
    flag = tl.load(q, boundary_check=(0,))
    tl.static_assert(flag.dtype == tl.int1)
    o = tl.make_block_ptr(out, (N,), (1,), (0,), (16,), (0,))
    o.store(tl.where(flag, value, 3), boundary_check=(0,), cache_modifier=".wb", eviction_policy="evict_last")
    tl.store(q, value, boundary_check=(0,))


def test_types_hints_and_booleans(device):
    rng = np.random.default_rng(2)
    x, flags = moderate_values("float16", 13, 5), rng.integers(0, 2, 13).astype(bool)
    x[::3] = 0
    tensor, out = to_device(flags, "int1", device), empty((13,), "float32", device)
    types[(1,)](to_device(x, "float16", device), tensor, out, 13)
    assert_same(to_host(out), np.where(flags, x, 3).astype(np.float32))
    assert_same(to_host(tensor), x != 0)


@triton.jit
def fill(out, value, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(out, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(p, value, boundary_check=(0,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_fills_a_block(dtype, device):
    out = empty((32,), dtype, device)
    before = to_host(out)
    fill[(1,)](out, 3.0, 20, BLOCK=32)
    assert_same(to_host(out)[:20], convert(np.full(20, 3.0), dtype))
    assert_same(to_host(out)[20:], before[20:])


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_block_ptr(a_ptr, (M, K), (am, ak), (row, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (bk, bn), (0, column), (BK, BN), (0, 1))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)), acc)
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    tl.store(c, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize("shape", [(64, 64, 64), (40, 72, 50), (17, 5, 33)])
def test_matrix_product(shape, device):
    m, n, k = shape
    torch.manual_seed(1)
    a = torch.randn((m, k), dtype=torch.float16)
    b = torch.randn((n, k), dtype=torch.float16).T
    c = torch.empty((m, n), dtype=torch.float16, device=device)
    matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
        a.to(device), b.T.contiguous().to(device).T, c, m, n, k, k, 1, 1, k, BM=32, BN=32, BK=16
    )
    torch.testing.assert_close(c.cpu().double(), a.double() @ b.double(), rtol=1e-2, atol=1e-2)


@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    T,
    scale,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    start = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * T * D
    q = tl.load(
        tl.make_block_ptr(q_ptr + base, (T, D), (D, 1), (start, 0), (BM, D), (1, 0)), boundary_check=(0,)
    )
    k_block = tl.make_block_ptr(k_ptr + base, (D, T), (1, D), (0, 0), (D, BN), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + base, (T, D), (D, 1), (0, 0), (BN, D), (1, 0))
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    rows = start + tl.arange(0, BM)
    end = tl.minimum(start + BM, T) if CAUSAL else T
    for first in range(0, end, BN):
        columns = first + tl.arange(0, BN)
        score = tl.dot(q, tl.load(k_block, boundary_check=(1,))) * scale
        keep = columns[None, :] < T
        if CAUSAL:
            keep = keep & (rows[:, None] >= columns[None, :])
        score = tl.where(keep, score, float("-inf"))
        new = tl.maximum(most, tl.max(score, 1))
        p = tl.exp(score - new[:, None])
        factor = tl.exp(most - new)
        total = total * factor + tl.sum(p, 1)
        acc = acc * factor[:, None]
        acc = tl.dot(p.to(v_ptr.dtype.element_ty), tl.load(v_block, boundary_check=(0,)), acc)
        most = new
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    o = tl.make_block_ptr(o_ptr + base, (T, D), (D, 1), (start, 0), (BM, D), (1, 0))
    tl.store(o, (acc / total[:, None]).to(o.dtype.element_ty), boundary_check=(0,))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, device):
    heads, t, d = 2, 45, 16
    torch.manual_seed(0)
    q, k, v = (torch.randn((heads, t, d), dtype=torch.float16) for _ in range(3))
    o = torch.empty_like(q).to(device)
    tensors = [x.to(device) for x in (q, k, v)]
    attention[(triton.cdiv(t, 16), heads)](*tensors, o, t, d**-0.5, CAUSAL=causal, D=d, BM=16, BN=16)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=causal
    )
    torch.testing.assert_close(o.cpu().double(), expected, rtol=1e-2, atol=1e-2)


HEADER = """@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (n, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    i = tl.arange(0, BLOCK)
"""

# Name: (code, facts that must be told, the line).
MISTAKES = {
    "mask of a block pointer": (
        "TW0007",
        ["`mask` and `other` arguments cannot be specified for loading block pointers"],
        "y = tl.load(p, mask=«i < 3»)",
    ),
    "check of a tile of pointers": (
        "TW0016",
        ["`padding_option` or `boundary_check` argument is not supported for loading a tensor of pointers"],
        "y = tl.load(x_ptr + i, boundary_check=«(0,)»)",
    ),
    "padding of a scalar": (
        "TW0016",
        ["`padding_option` or `boundary_check` argument is not supported"],
        'y = tl.load(x_ptr, padding_option=«"zero"»)',
    ),
    "check of a store": ("TW0016", ["boundary_check"], "tl.store(x_ptr + i, 1.0, boundary_check=«(0,)»)"),
    "axis that is not there": ("TW0016", ["axis 2", "2 axes"], "y = tl.load(p, boundary_check=«(0, 2)»)"),
    "axis twice": ("TW0016", ["axis 1 is twice"], "y = tl.load(p, boundary_check=«(1, 1)»)"),
    "unknown padding": ("TW0016", ["zeros"], 'y = tl.load(p, boundary_check=(0,), padding_option=«"zeros"»)'),
    "NaN of integers": (
        "TW0016",
        ["Padding option `nan` is not supported for integer block", "int32"],
        "q = tl.make_block_ptr(x_ptr.to(tl.pointer_type(tl.int32)), (n,), (1,), (0,), (16,), (0,))\n"
        '    y = tl.load(q, boundary_check=(0,), padding_option=«"nan"»)',
    ),
    "order that is none": (
        "TW0016",
        ["Expected a permutation of (0, 1, ..., len(order)-1) in order"],
        "q = tl.make_block_ptr(x_ptr, (n, n), (n, 1), (0, 0), (16, 16), «(1, 1)»)",
    ),
    "another number of strides": (
        "TW0016",
        ["`strides`", "1 item", "2"],
        "q = «tl.make_block_ptr»(x_ptr, (n, n), (n,), (0, 0), (16, 16), (1, 0))",
    ),
    "block without elements": (
        "TW0016",
        ["0"],
        "q = tl.make_block_ptr(x_ptr, (n, n), (n, 1), (0, 0), «(16, 0)», (1, 0))",
    ),
    "offset that is no integer": (
        "TW0005",
        ["offsets", "int32[16]"],
        "q = tl.make_block_ptr(x_ptr, (n,), (1,), «(i,)», (16,), (0,))",
    ),
    "base that is no pointer": (
        "TW0005",
        ["*fp32[16]"],
        "q = tl.make_block_ptr(«x_ptr + i», (n,), (1,), (0,), (16,), (0,))",
    ),
    "move by too few": ("TW0016", ["2 axes", "1 offset"], "p = «tl.advance»(p, (BLOCK,))"),
    "move of a pointer": ("TW0005", ["*fp32"], "p = tl.advance(«x_ptr», (BLOCK,))"),
    "attribute that is not there": ("TW0015", ["advanced"], "p.«advanced»((0, 1))"),
    "sum with a number": ("TW0005", ["a block pointer"], "y = «p» + 1"),
    "value of another shape": (
        "TW0013",
        ["[16, 16]", "[16, 32]"],
        "«tl.store»(p, tl.zeros((16, 32), tl.float32))",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    code, expected, line = MISTAKES[name]
    found = failing(f"{HEADER}    {line}\n", torch.zeros(256), 16, BLOCK=16)
    assert found[0].code == code, found[0]
    for fact in expected:
        assert fact in facts(found[0]), facts(found[0])
