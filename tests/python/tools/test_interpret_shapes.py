"""Shapes, numbers in them and compile-time numbers: an interpreted kernel means what the compiled one means."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilewright
from tilewright.runtime.interpreter import interpret

PRELUDE = """
from typing import NamedTuple

SIZES = tl.constexpr((4, 2))


class Sizes(NamedTuple):
    rows: int
    columns: int


@triton.aggregate
class Holder:
    size: tl.constexpr
    count: tl.tensor

    @triton.constexpr_function
    def __init__(self, size, count):
        self.size = tl.constexpr(size)
        self.count = count


@triton.constexpr_function
def twice(n):
    return n * 2


@triton.constexpr_function
def pair_of(n):
    return (n, n // 2)


@triton.jit
def half(n):
    return n // 2


@triton.jit
def both(N: tl.constexpr):
    return N, N // 2


@triton.jit
def same(x):
    return x


@triton.jit
def shape_of(x):
    return x.shape
"""

KERNEL = """
@triton.jit
def kernel(o, x, n, one, B: tl.constexpr, SHAPE: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    w = tl.load(x + tl.arange(0, B)[:, None] * 2 + tl.arange(0, 2)[None, :])
    row = o + tl.arange(0, 4)
    rows = o + tl.arange(0, 4)[:, None] * 2 + tl.arange(0, 2)[None, :]
"""

X = np.arange(1, 9, dtype=np.float32)
"""The content of `x`; `n` is 6, `one` is 1, `B` is 4, `SHAPE` is (4, 2)."""

DESCRIPTOR = "d = tl.make_tensor_descriptor(x, [n - 4, 4], [4, 1], [2, 4])\n"
BLOCK = "p = tl.make_block_ptr(x, (8, 1), (1, 1), (0, 0), (B, 1), (1, 0))\n"
CONST = "c = x.to(tl.pointer_type(tl.float32, const=True))\n"

HOLDS = [
    "v.shape == [B]",
    "[B] == v.shape",
    "not (v.shape != [4])",
    "v.shape == (B,)",
    "v.shape != [8]",
    "w.shape == [B, 2]",
    "w.shape == SHAPE",
    "w.T.shape == [2, B]",
    "w.shape[1:] == [2]",
    "v.shape + (3,) == [B, 3]",
    "v.shape in ([B], [2])",
    "tl.full([], 1, tl.int32).shape == []",
    "tl.sum(v).shape == []",
    "n.shape == []",
    "one.shape == []",
    "v.type.shape == [B]",
    "shape_of(v) == [B]",
    "((B,), 2) == [[4], 2]",
    "[1] == (1,)",
    "(n, 4) == [n, 4]",
    "(n, 4) != (n, 5)",
    "(4, n) != (5, one)",
    "(n, 4) != (n,)",
    "((n, 4), 2) == [[n, 4], 2]",
    "(x, None, v) == (x, None, v)",
    "Sizes(n, 4) == (n, 4)",
    "Sizes(n, 4) != (n, None)",
    "v.shape == [B] and B == 4",
    "isinstance(one, tl.constexpr)",
    "not isinstance(one, tl.tensor)",
    "isinstance(n, tl.tensor)",
    "(one & 3).dtype == tl.int32",
    "(one == 1).dtype == tl.int1",
    "B.dtype == tl.int32",
]

HOLDS_AFTER = [
    (DESCRIPTOR, "d.shape[0] == 2"),
    (DESCRIPTOR, "d.strides[1] == 1"),
    (DESCRIPTOR, "d.block_shape == [2, 4]"),
    (DESCRIPTOR, "d.block_type.shape == [2, 4]"),
    (CONST, "c.dtype.const"),
    (CONST, "(c + 1).dtype.const"),
    (CONST, "(c + tl.arange(0, 4)).dtype.const"),
    (CONST, "tl.where(n > 1, c, c).dtype.const"),
    (CONST, "same(c).dtype.const"),
    (CONST, "c.dtype != x.dtype"),
    (CONST, "not c.to(tl.pointer_type(tl.float32)).dtype.const"),
    (CONST + "for i in range(2):\n    c += 1\n", "c.dtype.const"),
    ("s = v.shape\n", "s == [B]"),
    ("s: tl.constexpr = v.shape\n", "s == [B]"),
]

FOURS = [
    "k = 4",
    "k = B",
    "k = v.shape[0]",
    "k, j = SHAPE",
    "k, j = SIZES",
    "k, j = w.shape",
    "k = j = 4",
    "j, k = 4, 2\nk, j = j, k",
    "k = 2\nif B == 4:\n    k = 4",
    "k = 4 if B == 4 else 8",
    "s = (4, n)\nk = s[0]",
    "s = ((4, 2), n)\nk, j = s[0]",
    "s = Sizes(B, 2)\nk = s.rows",
    "h = Holder(B, n)\nk = h.size",
    "k = twice(2)",
    "k = 2\nk = twice(k)",
    "k, j = pair_of(4)",
    "k = half(8)",
    "k, j = both(4)",
    "k = same(4)",
    "k = tl.cdiv(8, 2)",
    "k = max(4, 2)",
    "d = tl.make_tensor_descriptor(x, [2, 4], [4, 1], [2, 4])\nj, k = d.block_shape",
]

STORES = [
    ("tl.store(row, tl.zeros((half(8),), tl.float32))", np.zeros(4)),
    ("tl.store(row, tl.zeros(shape_of(v), tl.float32))", np.zeros(4)),
    ("s = (4, 2)\ntl.store(rows, tl.zeros(s, tl.float32))", np.zeros(8)),
    ("h = Holder(4, n)\ntl.store(row, tl.arange(0, h.size))", np.arange(4)),
    ("a, b = SHAPE\ntl.store(rows, tl.full((a, b), 3, tl.float32))", np.full(8, 3)),
    *(
        (f"a, b = SHAPE\nu = tl.arange(0, 8)\ntl.store(rows, {call})", np.arange(8))
        for call in ("tl.reshape(u, (a, b))", "u.reshape([a, b])", "u.reshape(a, b)", "tl.view(u, (a, b))")
    ),
    *(
        (f"a, b = SHAPE\nu = tl.arange(0, 4)[:, None]\ntl.store(rows, {call})", np.repeat(np.arange(4), 2))
        for call in ("tl.broadcast_to(u, (a, b))", "u.broadcast_to([a, b])", "u.broadcast_to(a, b)")
    ),
    *(
        (
            f"p, q = 1, 0\nu = tl.reshape(tl.arange(0, 8), (2, 4))\ntl.store(rows, {call})",
            np.arange(8).reshape(2, 4).T.ravel(),
        )
        for call in ("tl.permute(u, (p, q))", "u.permute([p, q])", "tl.trans(u, (p, q))", "u.trans(p, q)")
    ),
    *(
        (
            f"p = 1\nu = tl.arange(0, 4)\ntl.store(rows, {call} + tl.zeros((4, 2), tl.int32))",
            np.repeat(np.arange(4), 2),
        )
        for call in ("tl.expand_dims(u, p)", "tl.expand_dims(u, (p,))", "u.expand_dims([p])")
    ),
    (
        "a, b = SHAPE\nl, r = tl.split(tl.reshape(tl.arange(0, 8), (a, b)))\ntl.store(row, r * l)",
        np.arange(0, 8, 2) * np.arange(1, 8, 2),
    ),
    ("a, b = SHAPE\nz = tl.zeros((a,), tl.float32)\ntl.store(rows, tl.join(z, z + 2))", np.tile([0, 2], 4)),
    (
        "a, b = SHAPE\np = tl.make_block_ptr(x, (4, 2), (2, 1), (0, 0), (a, b), (1, 0))\n"
        "tl.store(rows, tl.load(p))",
        X,
    ),
    (
        "u, z = 1, 0\np = tl.make_block_ptr(x, (4, 2), (2, 1), (z, z), (4, 2), (u, z))\n"
        "tl.store(rows, tl.load(p, boundary_check=(z, u)))",
        X,
    ),
    (
        "a, b = 2, 4\nd = tl.make_tensor_descriptor(x, [2, 4], [4, 1], [a, b])\n"
        "tl.store(o + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :], d.load([0, 0]))",
        X,
    ),
    *(
        (f"{BLOCK}k = 4\np = {call}\ntl.store(row[:, None], tl.load(p))", X[4:])
        for call in (
            "p.advance((B, 0))",
            "p.advance((k, 0))",
            "p.advance((n - 2, 0))",
            "tl.advance(p, [k, 0])",
        )
    ),
    ("assert v.shape == [B]\ntl.static_assert(w.shape == [B, 2])\ntl.store(o, 1)", [1]),
    (DESCRIPTOR + "assert d.shape[0] == n - 4\ntl.static_assert(d.strides[1] == 1)\ntl.store(o, 1)", [1]),
    ("tl.store(o, one or tl.load(x + 100))", [1]),
    *(
        (f"tl.store(o, tl.reduce({x}, 0, tl.standard.{name}))", [number])
        for name, x, number in (
            *(("_sum_combine", "v", 10), ("_prod_combine", "v", 24)),
            *(("_elementwise_max", "v", 4), ("_elementwise_min", "v", 1)),
            *(("_xor_combine", "v.to(tl.int32)", 1 ^ 2 ^ 3 ^ 4), ("_or_combine", "v.to(tl.int32)", 7)),
        )
    ),
    *(
        (f"tl.store(o, tl.reduce((v.to(tl.int32) // 2, tl.arange(0, 4)), 0, tl.standard.{name})[1])", [place])
        for name, place in (
            ("_argmax_combine_tie_break_left", 3),
            ("_argmin_combine_tie_break_left", 0),
        )
    ),
    ("tl.store(o, tl.standard._sum_combine(n, 2))", [8]),
    ("tl.store(o, tl.standard._argmax_combine(n, 1, 6, 3, False)[1])", [3]),
    ("tl.store(o, tl.standard._argmin_combine(n, 1, 6, 3, True)[1])", [1]),
]

NUMBERS = [
    ("(one & 3).to(tl.float32)", 1),
    ("(one + 1).to(tl.int64)", 2),
    ("(-one + 3).to(tl.float32)", 2),
    ("(one * 2.5).to(tl.float32)", 2.5),
    ("(one << 2).to(tl.float32)", 4),
    ("(one == 1).to(tl.float32)", 1),
    ("(not one).to(tl.int32)", 0),
    ("(~one).to(tl.float32)", -2),
    ("(one % 2).to(tl.float32)", 1),
    ("(1 + one).to(tl.float32)", 2),
    ("(B + one).to(tl.float32)", 5),
    ("abs(one).to(tl.float32)", 1),
    ("max(one, 2).to(tl.float32)", 2),
    ("(5).to(tl.float32)", 5),
    ("B.to(tl.float32)", 4),
    ("(B == 4).to(tl.float32)", 1),
    ("twice(B).to(tl.float32)", 8),
    ("SHAPE[0].to(tl.float32)", 4),
    ("len(SHAPE).to(tl.float32)", 2),
    ("tl.cdiv(one, 2).to(tl.float32)", 1),
    ("(n & 3).to(tl.float32)", 2),
]

REFUSED = ["tl.store(c, 1.0)", "tl.store(c + tl.arange(0, 4), 1.0)", "tl.atomic_add(c, 1.0)"]
"""Stores to memory that a cast has said to be only read."""


def rows():
    """Each kernel's statements, and what is at the beginning of `o` afterwards."""
    for setup, condition in [("", condition) for condition in HOLDS] + HOLDS_AFTER:
        yield f"{setup}tl.store(o, 1 if {condition} else 2)", [1]
    for four in FOURS:
        for shape in ("(k,)", "[k]"):
            yield f"{four}\ntl.store(row, tl.zeros({shape}, tl.float32))", np.zeros(4)
        yield f"{four}\ntl.store(row, tl.arange(0, k))", np.arange(4)
    yield from STORES
    for expression, number in NUMBERS:
        yield f"tl.store(o, {expression})", [number]


def launched(kernel):
    o = np.full(8, -1, np.float32)
    kernel[(1,)](o, X.copy(), 6, 1, 4, (4, 2))
    return o


@pytest.fixture
def both_kernels(module):
    def make(texts):
        kernels = [
            KERNEL.replace("kernel", f"kernel_{number}") + textwrap.indent(text, "    ")
            for number, text in enumerate(texts)
        ]
        k = module(PRELUDE + "\n".join(kernels))
        for number, text in enumerate(texts):
            kernel = getattr(k, f"kernel_{number}")
            yield text, {"compiled": kernel, "interpreted": interpret(kernel)}

    return make


def test_shapes_and_numbers(both_kernels):
    table = list(rows())
    wrong = []
    kernels = both_kernels([text for text, _ in table])
    for (text, kinds), (_, expected) in zip(kernels, table, strict=True):
        wanted = np.full(8, -1, np.float32)
        wanted[: len(expected)] = expected
        for kind, kernel in kinds.items():
            try:
                found = launched(kernel).tolist()
            except (tilewright.TritonError, AssertionError, AttributeError, TypeError) as error:
                found = f"{type(error).__name__}: {error}"
            if found != wanted.tolist():
                wrong.append(f"{kind}:\n{text}\ngives {found} for {wanted.tolist()}")
    assert not wrong, f"{len(wrong)} of {len(table)} kernels:\n" + "\n\n".join(wrong)


def test_a_cast_to_a_const_pointer_forbids_stores(both_kernels):
    for text, kinds in both_kernels([CONST + statement for statement in REFUSED]):
        for kind, kernel in kinds.items():
            with pytest.raises(tilewright.CompilationError, match="Cannot store to a constant pointer"):
                launched(kernel)
            assert kind in ("compiled", "interpreted"), text
