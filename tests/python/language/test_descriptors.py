"""Tensor descriptors, made in the kernel and on the host: loads, stores, gathers and scatters at every edge, their
attributes, their way through loops, helpers and tuples, and what is refused."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import (
    DTYPES,
    FLOATS,
    TORCH,
    assert_same,
    bits,
    empty,
    moderate_values,
    sample,
    to_device,
    to_host,
)
from helpers_errors import facts, failing

import tilewright as triton
import tilewright.language as tl
from tilewright.errors import NotAvailableError
from tilewright.tools.ragged_tma import load_ragged, store_ragged
from tilewright.tools.tensor_descriptor import TensorDescriptor

PLACES = [(0, 0), (8, 16), (-3, 2), (2, -5), (-15, -31), (12, 30), (13, 0), (0, 40), (-16, 3)]


@triton.jit
def copy_made(x, out, M, N, stride, row, column, BM: tl.constexpr, BN: tl.constexpr, PADDING: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [stride, 1], [BM, BN], padding_option=PADDING)
    target = tl.make_tensor_descriptor(out, (BM, BN), (BN, 1), (BM, BN))
    target.store([0, 0], source.load([row, column]))


@triton.jit
def copy_given(source, target, row, column):
    target.store((0, 0), source.load((row, column)))


def window(x, row, column, shape, fill):
    """The block of a matrix that begins at a place, which may be outside of it."""
    block = np.full(shape, fill, x.dtype)
    for i, j in itertools.product(*map(range, shape)):
        if 0 <= row + i < x.shape[0] and 0 <= column + j < x.shape[1]:
            block[i, j] = x[row + i, column + j]
    return block


@pytest.mark.parametrize("where", ["kernel", "host"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_loads_of_every_type_at_every_edge(dtype, where, device):
    m, n, stride = 13, 21, 32
    values = np.resize(sample(dtype, m * stride), (m, stride))
    tensor = to_device(values, dtype, device)
    for row, column in PLACES:
        out = empty((16, 32), dtype, device)
        if where == "kernel":
            copy_made[(1,)](tensor, out, m, n, stride, row, column, BM=16, BN=32, PADDING="zero")
        else:
            source = TensorDescriptor(tensor, [m, n], [stride, 1], [16, 32])
            copy_given[(1,)](source, TensorDescriptor.from_tensor(out, [16, 32]), row, column)
        assert_same(to_host(out), window(values[:, :n], row, column, (16, 32), 0), row, column)


@pytest.mark.parametrize("where", ["kernel", "host"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_padding_with_nan(dtype, where, device):
    values = moderate_values(dtype, (6, 16), 3)
    tensor, out = to_device(values, dtype, device), empty((8, 16), dtype, device)
    if where == "kernel":
        copy_made[(1,)](tensor, out, 6, 9, 16, -1, 2, BM=8, BN=16, PADDING="nan")
    else:
        source = TensorDescriptor(tensor, [6, 9], [16, 1], [8, 16], padding="nan")
        copy_given[(1,)](source, TensorDescriptor.from_tensor(out, [8, 16]), -1, 2)
    assert_same(to_host(out), window(values[:, :9], -1, 2, (8, 16), np.nan))


@pytest.mark.parametrize("dtype", ["float8e5", "float8e4nv", "float8e4b8", "float8e5b16"])
def test_fp8(dtype, device):
    words = torch.arange(16 * 16, dtype=torch.int32).to(torch.uint8).reshape(16, 16).to(device)
    out = torch.ones((8, 16), dtype=torch.uint8, device=device)
    source = TensorDescriptor(words.view(TORCH[dtype]), [16, 12], [16, 1], [8, 16])
    copy_given[(1,)](source, TensorDescriptor.from_tensor(out.view(TORCH[dtype]), [8, 16]), 11, 2)
    assert_same(to_host(out), window(to_host(words)[:, :12], 11, 2, (8, 16), 0))


@triton.jit
def store_made(out, M, N, row, column, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    target.store([row, column], (tl.arange(0, BM)[:, None] * 100 + tl.arange(0, BN)[None, :]).to(tl.float32))


def test_a_store_touches_the_tensor_alone(device):
    m, n = 9, 12
    value = (np.arange(8)[:, None] * 100 + np.arange(8)[None, :]).astype(np.float32)
    for row, column in [(0, 0), (4, 8), (-3, -2), (6, -7), (-7, 11), (9, 0), (-8, 0), (3, 12)]:
        out = torch.full((m + 40, n), -1.0, device=device)
        store_made[(1,)](out[20 : 20 + m], m, n, row, column, 8, 8)
        expected = np.full((m + 40, n), -1.0, np.float32)
        for i, j in itertools.product(range(8), range(8)):
            if 0 <= row + i < m and 0 <= column + j < n:
                expected[20 + row + i, column + j] = value[i, j]
        assert_same(to_host(out), expected, row, column)


@triton.jit
def all_ranks(x1, x3, x5, out, n, m):
    a = tl.make_tensor_descriptor(x1, [n], [1], [8]).load([2])
    d3 = tl.make_tensor_descriptor(x3, [2, m, n], [m * 8, 8, 1], [2, 2, 8])
    d5 = tl.make_tensor_descriptor(x5, [1, 2, 1, m, n], [m * 16, m * 8, m * 8, 8, 1], [1, 1, 1, 2, 8])
    c = tl.sum(d3.load([1, 1, 1]), 0)
    e = d5.load([0, 1, 0, 1, -2]).reshape(2, 8)
    tl.make_tensor_descriptor(out, [2, 8], [8, 1], [2, 8]).store([0, 0], a[None, :] + c + e)


def test_one_three_and_five_axes(device):
    m, n = 3, 7
    x1 = np.round(moderate_values("float32", 8, 1) * 4)
    x3, x5 = (np.round(moderate_values("float32", shape, 2) * 4) for shape in [(2, m, 8), (1, 2, 1, m, 8)])
    out = empty((2, 8), "float32", device)
    all_ranks[(1,)](*(to_device(x, "float32", device) for x in (x1, x3, x5)), out, n, m)
    expected = np.tile(window(x1[None, :n], 0, 2, (1, 8), 0), (2, 1))
    expected += window(x3[1, :, :n], 1, 1, (2, 8), 0) + window(x5[0, 1, 0, :, :n], 1, -2, (2, 8), 0)
    assert_same(to_host(out), expected)


@triton.jit
def gather_scatter(source, target, rows_ptr, column, ROWS: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, ROWS))
    target.scatter(source.gather(rows, column), rows + 1, column - 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_and_scatter_of_rows(dtype, device):
    m, n, stride, width = 11, 13, 16, max(8, 128 // max(bits(dtype), 8))
    values = np.resize(sample(dtype, m * stride), (m, stride))
    rows = np.array([3, -1, 10, 0, 11, 7, 100000, -(2**31)], np.int32)
    for column in (0, 5, -3, 12):
        out = to_device(np.zeros((m, stride)), dtype, device)
        source = TensorDescriptor(to_device(values, dtype, device), [m, n], [stride, 1], [1, width])
        target = TensorDescriptor(out, [m, n], [stride, 1], [1, width])
        gather_scatter[(1,)](source, target, torch.from_numpy(rows).to(device), column, len(rows))
        expected = to_host(to_device(np.zeros((m, stride)), dtype))
        for row in rows.tolist():
            line = window(values[:, :n], row, column, (1, width), 0)[0]
            for j in range(width):
                if 0 <= row + 1 < m and 0 <= column - 1 + j < n:
                    expected[row + 1, column - 1 + j] = line[j]
        assert_same(to_host(out), expected, column)


@triton.jit
def attributes(desc: tl.tensor_descriptor, made_of, out, n):
    made = tl.make_tensor_descriptor(made_of, [n, 8], [8, 1], [2, 8])
    tl.static_assert(desc.dtype == tl.float16)
    tl.static_assert(desc.block_type == tl.block_type(tl.float16, [4, 8]))
    tl.static_assert(desc.block_shape[0] == 4 and desc.block_shape[1] == 8)
    tl.static_assert(len(desc.shape) == 2 and len(desc.strides) == 2)
    tl.static_assert(isinstance(desc, tl.tensor_descriptor))
    tl.static_assert(not isinstance(out, tl.tensor_descriptor))
    tl.static_assert(made.dtype == tl.int32)
    rows: tl.tensor = desc.shape[0] + 0
    tl.static_assert(rows.dtype == tl.int32)
    tl.store(out + 0, rows)
    tl.store(out + 1, desc.shape[1])
    tl.store(out + 2, desc.strides[0])
    tl.store(out + 3, made.shape[0])
    tl.store(out + 4, made.strides[0] * 10 + made.strides[1])


def test_attributes(device):
    x, out = torch.zeros((5, 24), dtype=torch.float16, device=device), empty((5,), "int64", device)
    desc = TensorDescriptor(x, [5, 17], [24, 1], [4, 8])
    attributes[(1,)](desc, torch.zeros((3, 8), dtype=torch.int32, device=device), out, 3)
    assert to_host(out).tolist() == [5, 17, 24, 3, 81]


class Pair(NamedTuple):
    first: object
    rest: object


@triton.jit
def block_of(desc, row, column):
    return desc.load([row, column]), desc


@triton.jit
def either(flag, left, right):
    if flag > 0:
        return left
    else:
        return right


@triton.jit
def passed_on(pair, out_ptr, flag, steps):
    chosen = either(flag, pair.first, pair.rest[0])
    out = tl.make_tensor_descriptor(out_ptr, [4, 8], [8, 1], [4, 8])
    total = tl.zeros((4, 8), tl.float32)
    for i in range(steps):
        block, chosen = block_of(chosen, i * pair.rest[1], i)
        total += block
    out.store([0, 0], total)


@pytest.mark.parametrize("flag", [0, 1])
def test_descriptors_go_through_tuples_loops_branches_and_helpers(flag, device):
    a, b = (np.round(moderate_values("float32", shape, 7) * 8) for shape in [(9, 12), (6, 20)])
    out = empty((4, 8), "float32", device)
    first, second = (TensorDescriptor.from_tensor(to_device(x, "float32", device), [4, 8]) for x in (a, b))
    passed_on[(1,)](Pair(first, (second, 2)), out, flag, 3)
    x = a if flag else b
    expected = sum(window(x, 2 * i, i, (4, 8), 0) for i in range(3))
    assert_same(to_host(out), expected)


@triton.jit
def made_again(d, shape, strides):
    return tl.make_tensor_descriptor(d.base, shape, strides, d.block_shape)


@triton.jit
def made_of_attributes(d):
    return made_again(d, d.shape, d.strides)


@triton.jit
def descriptors_of_descriptors(d, out, n, FORM: tl.constexpr):
    if FORM == "strides":
        e = made_again(d, d.shape, d.strides)
    elif FORM == "all but the last":
        e = made_again(d, d.shape, d.strides[:-1] + (1,))  # noqa: RUF005
    elif FORM == "of the kernel's own":
        e = made_of_attributes(tl.make_tensor_descriptor(d.base, [8, 16], [16, 1], [8, 16]))
    elif FORM == "a name":
        e = d
        e = made_of_attributes(e)
    elif FORM == "a branch":
        if n > 3:
            e = d
        else:
            e = made_of_attributes(d)
        e = made_of_attributes(e)
    elif FORM == "a loop":
        e = d
        for _ in range(n):
            e = made_of_attributes(e)
        tl.static_assert(e.strides[-1] == 1)
        e = made_of_attributes(e)
    elif FORM == "a tuple":
        pair = (d, n)
        e = made_of_attributes(pair[0])
    else:
        e = load_and_store(d)
    out.store([0, 0], e.load([0, 0]))


@triton.jit
def load_and_store(d):
    block = load_ragged(d, 0, 8, [0, 0])
    store_ragged(d, 0, 8, [0, 0], block)
    return d


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize(
    "form",
    [
        "strides",
        "all but the last",
        "of the kernel's own",
        "a name",
        "a branch",
        "a loop",
        "a tuple",
        "ragged",
    ],
)
def test_the_last_stride_stays_known(form, interpret, device):
    kernel = triton.JITFunction(descriptors_of_descriptors.fn, interpret=interpret)
    x = to_device(moderate_values("float32", (8, 16), 3), "float32", device)
    out = empty((8, 16), "float32", device)
    for n in (2, 5):
        source, target = (TensorDescriptor.from_tensor(tensor, [8, 16]) for tensor in (x, out))
        kernel[(1,)](source, target, n, FORM=form)
        assert_same(to_host(out), to_host(x))


@triton.jit
def older_names(x, y, n):
    source = tl._experimental_make_tensor_descriptor(x, shape=[n, 8], strides=[8, 1], block_shape=[4, 8])
    target = tl._experimental_make_tensor_descriptor(y, shape=[n, 8], strides=[8, 1], block_shape=[4, 8])
    block = tl._experimental_descriptor_load(source, [1, 0], [4, 8], tl.float32)
    tl._experimental_descriptor_store(target, block + 1, [0, 0])
    tl.store_tensor_descriptor(target, [4, 0], tl.load_tensor_descriptor(source, [0, 0]))


def test_older_names(device):
    x = moderate_values("float32", (7, 8), 1)
    y = empty((7, 8), "float32", device)
    older_names[(1,)](to_device(x, "float32", device), y, 7)
    assert_same(to_host(y), np.concatenate([x[1:5] + np.float32(1), x[:3]]))


@triton.jit
def matmul(a, b, c, M, N, K):
    BM: tl.constexpr = a.block_shape[0]
    BK: tl.constexpr = a.block_shape[1]
    BN: tl.constexpr = b.block_shape[1]
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c.store([row, column], acc.to(c.dtype))


@pytest.mark.parametrize("shape", [(64, 64, 64), (40, 72, 56)])
def test_matrix_product(shape, device):
    m, n, k = shape
    torch.manual_seed(1)
    a, b = torch.randn((m, k), dtype=torch.float16), torch.randn((k, n), dtype=torch.float16)
    c = torch.empty((m, n), dtype=torch.float16, device=device)
    descriptors = [
        TensorDescriptor.from_tensor(a.to(device), [32, 16]),
        TensorDescriptor.from_tensor(b.to(device), [16, 32]),
        TensorDescriptor.from_tensor(c, [32, 32]),
    ]
    matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](*descriptors, m, n, k)
    torch.testing.assert_close(c.cpu().double(), a.double() @ b.double(), rtol=1e-2, atol=1e-2)


@triton.jit
def attention(q, k, v, o, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    start, head = tl.program_id(0) * BM, tl.program_id(1)
    query = q.load([head, start, 0]).reshape(BM, D)
    most, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for first in range(0, T, BN):
        score = tl.dot(query, tl.trans(k.load([head, first, 0]).reshape(BN, D))) * scale
        score = tl.where(first + tl.arange(0, BN)[None, :] < T, score, float("-inf"))
        new = tl.maximum(most, tl.max(score, 1))
        p = tl.exp(score - new[:, None])
        factor = tl.exp(most - new)
        total = total * factor + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v.load([head, first, 0]).reshape(BN, D), acc * factor[:, None])
        most = new
    o.store([head, start, 0], (acc / total[:, None]).to(o.dtype).reshape(1, BM, D))


def test_attention(device):
    heads, t, d = 2, 45, 16
    torch.manual_seed(0)
    q, k, v = (torch.randn((heads, t, d), dtype=torch.float16) for _ in range(3))
    o = torch.empty_like(q).to(device)
    given = [TensorDescriptor.from_tensor(x.to(device), [1, 16, d]) for x in (q, k, v, o)]
    given[3].base = o
    attention[(triton.cdiv(t, 16), heads)](*given, t, d**-0.5, BM=16, BN=16, D=d)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    torch.testing.assert_close(o.cpu().double(), expected, rtol=1e-2, atol=1e-2)


def test_the_block_and_the_padding_belong_to_the_code():
    """Launches with the same tensors and other blocks are other code; with other tensors of the same form, the same."""

    @triton.jit
    def kernel(desc, out):
        tl.store(out, tl.sum(tl.sum(desc.load([0, 0]), 1)))

    x, out = torch.ones((4, 8)), torch.zeros(1)
    found = []
    for block, padding in [
        ([4, 8], "zero"),
        ([8, 8], "zero"),
        ([8, 8], "nan"),
        ([4, 16], "zero"),
        ([4, 8], "zero"),
    ]:
        kernel[(1,)](TensorDescriptor.from_tensor(x.clone(), block, padding), out)
        found.append(out.item())
    assert found[:2] == [32.0, 32.0]
    assert np.isnan(found[2])
    assert found[3:] == [32.0, 32.0]


def test_numpy_arrays_and_the_text_of_a_signature():
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    out = np.zeros((4, 8), np.float32)
    copy_given[(1,)](TensorDescriptor.from_tensor(x, [4, 8]), TensorDescriptor.from_tensor(out, [4, 8]), 1, 0)
    assert_same(out, window(x, 1, 0, (4, 8), 0))
    signature = {
        "source": "tensordesc<fp16[16, 64]>",
        "target": "tensordesc<fp16[16,64]>",
        "row": "i32",
        "column": "i32",
    }
    compiled = triton.compile(triton.compiler.ASTSource(copy_given, signature))
    assert "store" in compiled.asm["ir"]
    x, out = torch.randn((16, 64)).half(), torch.zeros((16, 64)).half()
    compiled[(1, 1, 1)](
        TensorDescriptor.from_tensor(x, [16, 64]), TensorDescriptor.from_tensor(out, [16, 64]), 0, 0
    )
    assert torch.equal(x, out)
    with pytest.raises(
        TypeError, match=r"blocks of shape \[8, 64\].*expected a tensor descriptor with blocks of"
    ):
        compiled[(1, 1, 1)](
            TensorDescriptor.from_tensor(x, [8, 64]), TensorDescriptor.from_tensor(out, [16, 64]), 0, 0
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [], "strides": [], "block_shape": []}, "rank must not be zero"),
        ({"shape": [1] * 6, "strides": [8] * 5 + [1], "block_shape": [1] * 5 + [8]}, "more than 5"),
        ({"strides": [8]}, "rank mismatch"),
        ({"block_shape": [4, 8, 1]}, "rank mismatch"),
        ({"strides": [8, 2]}, "Last dimension must be contiguous"),
        ({"strides": [7, 1]}, "strides must be 16-byte aligned"),
        ({"base": torch.zeros(40)[1:]}, "base must be 16-byte aligned"),
        ({"block_shape": [3, 8]}, "must be a power of 2"),
        ({"padding": "one"}, "zero"),
        (
            {"base": torch.zeros((4, 8), dtype=torch.int32), "padding": "nan"},
            "only supported for floating point",
        ),
    ],
)
def test_descriptors_that_are_refused(change, words):
    parts = {"base": torch.zeros((4, 8)), "shape": [4, 8], "strides": [8, 1], "block_shape": [4, 8], **change}
    with pytest.raises(AssertionError, match=words):
        TensorDescriptor(**parts)
    with pytest.raises(ValueError, match=words):
        TensorDescriptor(**parts)


def test_a_descriptor_that_was_changed_is_checked_again():
    x = torch.zeros((4, 8))
    target = TensorDescriptor.from_tensor(torch.zeros((4, 8)), [4, 8])
    for name, value in [("strides", [7, 1]), ("base", torch.zeros(33)[1:]), ("shape", [4]), ("base", 5)]:
        source = TensorDescriptor.from_tensor(x, [4, 8])
        setattr(source, name, value)
        with pytest.raises(triton.errors.LaunchTypeError, match="whose parts do not fit each other"):
            copy_given[(1,)](source, target, 0, 0)
    narrow = TensorDescriptor.from_tensor(x, [1, 1])
    with pytest.raises(triton.errors.LaunchTypeError, match=r"blocks of shape \[1, 1\].*less than 16 bytes"):
        copy_given[(1,)](narrow, target, 0, 0)
    narrow.block_shape = [4, 8]
    copy_given[(1,)](narrow, target, 0, 0)
    source = TensorDescriptor.from_tensor(x, [4, 8])
    source.block_shape = [4, 6]
    with pytest.raises(triton.errors.LaunchTypeError, match=r"blocks of shape \[4, 6\]"):
        copy_given[(1,)](source, target, 0, 0)
    with pytest.raises(NotAvailableError, match="round_f32_to_tf32"):
        TensorDescriptor.from_tensor(x, [4, 8], round_f32_to_tf32=True)


HEADER = """@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [BLOCK, BLOCK])
    i = tl.arange(0, BLOCK)
"""

# Name: (code, facts that must be told, the line).
MISTAKES = {
    "last stride of run time": (
        "TW0016",
        ["Tensor descriptor last dim must be 1", "run time only"],
        "e = tl.make_tensor_descriptor(x_ptr, [n, n], «[1, n]», [16, 16])",
    ),
    "last stride of 2": (
        "TW0016",
        ["Tensor descriptor last dim must be 1 but got 2"],
        "e = tl.make_tensor_descriptor(x_ptr, [n], «[2]», [16])",
    ),
    "narrow block": (
        "TW0016",
        ["at least 16 bytes in the last dimension, but got 2 * 4 = 8 bytes"],
        "e = tl.make_tensor_descriptor(x_ptr, [n], [1], «[2]»)",
    ),
    "too many axes": (
        "TW0016",
        ["1 <= ndim <= 5"],
        "e = tl.make_tensor_descriptor(x_ptr, «[n, n, n, n, n, n]», [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 16])",
    ),
    "another number of strides": (
        "TW0016",
        ["`strides`", "1 item"],
        "e = «tl.make_tensor_descriptor»(x_ptr, [n, n], [1], [16, 16])",
    ),
    "NaN of integers": (
        "TW0016",
        ["Padding option `nan` is not supported for integer block"],
        'e = tl.make_tensor_descriptor(x_ptr.to(tl.pointer_type(tl.int32)), [n], [1], [16], padding_option=«"nan"»)',
    ),
    "base that is no pointer": ("TW0005", ["int32"], "e = tl.make_tensor_descriptor(«n», [n], [1], [16])"),
    "too few offsets": ("TW0016", ["expected 2 offsets, but got 1"], "x = «d.load»([0])"),
    "tl.load of a descriptor": ("TW0005", ["a tensor descriptor"], "x = tl.load(«d»)"),
    "method that is not there": ("TW0015", ["lod"], "x = d.«lod»([0, 0])"),
    "gather of blocks": ("TW0016", ["[1, N]", "[16, 16]"], "x = «d.gather(i, 0)»"),
    "value of another shape": (
        "TW0013",
        ["[8, 16]", "[16, 16]"],
        "«d.store»([0, 0], tl.zeros((8, 16), tl.float32))",
    ),
    "another block": (
        "TW0016",
        ["[16, 16]", "[16, 8]"],
        "x = «tl._experimental_descriptor_load»(d, [0, 0], [16, 8], tl.float32)",
    ),
    "another type": (
        "TW0016",
        ["fp32", "fp16"],
        "x = «tl._experimental_descriptor_load»(d, [0, 0], [16, 16], tl.float16)",
    ),
    "sum with a number": ("TW0005", ["a tensor descriptor"], "y = «d» + 1"),
    "bitwise reduction of floats": (
        "TW0005",
        ["fp32"],
        "«d.atomic_and([0, 0], tl.zeros((16, 16), tl.float32))»",
    ),
    "reduction of bytes": (
        "TW0005",
        ["int8"],
        "e = tl.make_tensor_descriptor(x_ptr.to(tl.pointer_type(tl.int8)), [n], [1], [16])\n"
        "    «e.atomic_add([0], 1)»",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    code, expected, line = MISTAKES[name]
    found = failing(f"{HEADER}    {line}\n", torch.zeros(256), 16, BLOCK=16)
    assert found[0].code == code, found[0]
    for fact in expected:
        assert fact in facts(found[0]), facts(found[0])


OPERATIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@triton.jit
def atomic_kernel(target, source, row, column, KIND: tl.constexpr):
    value = source.load([0, 0])
    if KIND == "add":
        target.atomic_add([row, column], value)
    elif KIND == "min":
        target.atomic_min([row, column], value)
    elif KIND == "max":
        target.atomic_max([row, column], value)
    elif KIND == "and":
        target.atomic_and([row, column], value)
    elif KIND == "or":
        target.atomic_or([row, column], value)
    else:
        target.atomic_xor([row, column], value)


@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32"])
def test_atomic_operations_on_blocks(dtype, kind, device):
    if dtype in FLOATS and kind in ("and", "or", "xor"):
        pytest.skip("bits of integers; refused below")
    m, n = 9, 12
    rng = np.random.default_rng(4)
    low = 0 if dtype.startswith("u") else -50
    start, value = (rng.integers(low, 50, shape).astype(np.int64) for shape in [(m, 16), (8, 16)])
    for row, column in [(0, 0), (4, 3), (-3, -2), (9, 0)]:
        memory = to_device(start, dtype, device)
        source = TensorDescriptor.from_tensor(to_device(value, dtype, device), [8, 16])
        atomic_kernel[(2,)](TensorDescriptor(memory, [m, n], [16, 1], [8, 16]), source, row, column, kind)
        expected = start.copy()
        for i, j in itertools.product(range(8), range(16)):
            if 0 <= row + i < m and 0 <= column + j < n:
                for _ in range(2):
                    place = row + i, column + j
                    expected[place] = OPERATIONS[kind](expected[place], value[i, j])
        assert_same(to_host(memory).astype(np.int64), expected, row, column)


@triton.aggregate
class Operands:
    """Two descriptors, as kernels that are generated hold them."""

    a: tl.tensor_descriptor
    b: tl.tensor_descriptor
    K: tl.constexpr

    @triton.constexpr_function
    def __init__(self, a, b, K):
        self.a = a
        self.b = b
        self.K = tl.constexpr(K)

    @triton.jit
    def block(self, k):
        return self.a.load([0, k]) * self.K + self.b.load([k, 0])


@triton.jit
def with_class(a, b, out, steps):
    operands = Operands(a, b, 3)
    total = tl.zeros((8, 8), tl.float32)
    for k in range(steps):
        total += operands.block(k)
    tl.make_tensor_descriptor(out, [8, 8], [8, 1], [8, 8]).store([0, 0], total)


def test_descriptors_in_classes(device):
    a, b = (np.round(moderate_values("float32", (9, 12), seed) * 8) for seed in (1, 2))
    out = empty((8, 8), "float32", device)
    given = [TensorDescriptor.from_tensor(to_device(x, "float32", device), [8, 8]) for x in (a, b)]
    with_class[(1,)](*given, out, 3)
    expected = sum(window(a, 0, k, (8, 8), 0) * 3 + window(b, k, 0, (8, 8), 0) for k in range(3))
    assert_same(to_host(out), expected)
