"""Programs that ask what is known at compile time give the same interpreted and compiled, or are refused alike."""

from __future__ import annotations

import itertools
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

    @triton.jit
    def double(self):
        return self.size * 2


@triton.aggregate
class Fields:
    size: tl.constexpr
    count: tl.tensor

    @triton.jit
    def own(self):
        return self.size


@triton.aggregate
class Known:
    size: tl.constexpr
    count: tl.tensor

    @triton.jit
    def __init__(self, size: tl.constexpr, count):
        self.size = size
        self.count = count


@triton.aggregate
class Anything:
    x: tl.constexpr | tl.tensor

    def __init__(self, x):
        self.x = x


@triton.aggregate
class Outer:
    inner: Holder


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
def same(x):
    return x


@triton.jit
def same_of_same(x):
    return same(same(x))


@triton.jit
def both(a, b):
    return a, b


@triton.jit
def known(x: tl.constexpr):
    return x


@triton.jit
def by_name(x):
    y = x
    return y


@triton.jit
def by_known_name(x):
    y: tl.constexpr = x
    return y


@triton.jit
def first_of(*xs):
    return xs[0]


@triton.jit
def keyword(*, x=4):
    return x


@triton.jit
def on_two_ways(x, n):
    if n > 2:
        return x
    return x


@triton.jit
def after_a_branch(x, n):
    y = 1
    if n > 2:
        y = 2
    return x


@triton.jit
def equal(n):
    if n > 2:
        return 4
    else:
        return 4


@triton.jit
def unequal(n):
    if n > 2:
        return 4
    return 8


@triton.jit
def before_others(x, b: tl.constexpr):
    if b == 4:
        return x
    return 8


@triton.jit
def after_others(x, b: tl.constexpr):
    if b == 8:
        return 8
    return x


@triton.jit
def nested(x, n, b: tl.constexpr):
    if b == 4:
        if n > 2:
            return x
        else:
            return 16
    else:
        return 8
"""

KERNEL = """
@triton.jit
def kernel(o, x, n, one, B: tl.constexpr, SHAPE: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    w = tl.load(x + tl.arange(0, B)[:, None] * 2 + tl.arange(0, 2)[None, :])
    row = o + tl.arange(0, 4)
    rows = o + tl.arange(0, 4)[:, None] * 2 + tl.arange(0, 2)[None, :]
"""
"""`x` holds 1 to 8, `n` is 6, `one` is 1, `B` is 4, `SHAPE` is (4, 2)."""

ARGUMENTS = ("4", "B", "n - 2", "v.shape[0]")
SHAPED = "tl.store(row, tl.zeros((k,), tl.float32))"
DONE = "tl.store(o, 1)"

DESCRIPTOR = "d = tl.make_tensor_descriptor(x, [2, 4], [4, 1], [2, 4])\n"
OF_RUN_TIME = "d = tl.make_tensor_descriptor(x, [n - 4, 4], [4, 1], [2, 4])\n"
BLOCK = "p = tl.make_block_ptr(x, (8, 1), (1, 1), (0, 0), (B, 1), (1, 0))\n"


def asserted(condition, setup=""):
    return f"{setup}tl.static_assert({condition})\n{DONE}"


def told(condition, setup=""):
    return f"{setup}tl.store(o, 1 if {condition} else 2)"


def shaped(setups):
    return [f"{setup}\n{SHAPED}" for setup in setups]


def of_arguments(setups):
    return shaped(setup.format(a=a) for a, setup in itertools.product(ARGUMENTS, setups))


CALLS = [
    *("k = same({a})", "k = {a}\nk = same(k)", "k = same(same({a}))", "k = same_of_same({a})"),
    *("k, j = both({a}, n)", "k = {a}\nk, j = both(k, n)", "k = known({a})", "k = {a}\nk = known(k)"),
    *("k = {a}\nk = known((k, 2))[0]", "k = by_name({a})", "k = {a}\nk = by_name(k)"),
    *("k = by_known_name({a})", "k = first_of({a}, 2)", "k = {a}\nk = first_of(k, 2)"),
    *("k = keyword()", "k = keyword(x={a})", "k = {a}\nk = keyword(x=k)", "k = twice({a}) // 2"),
    *("k = {a}\nk = pair_of(k)[0]", "k = half({a}) * 2", "k: tl.constexpr = same({a})"),
    *("k = on_two_ways({a}, n)", "k = after_a_branch({a}, n)", "k = equal(n)", "k = unequal(n)"),
    *("k = before_others({a}, B)", "k = after_others({a}, B)", "k = nested({a}, n, B)"),
]
"""A number through a call, and a return on several ways."""

TUPLES = [
    *("s = ({a}, 2)\ns = same(s)\nk, j = s", "s = same(({a}, 2))\nk, j = s", "k = same(({a}, 2))[0]"),
    *("s = (({a}, 2), n)\nk = same(s)[0][0]", "s = (({a}, 2), n)\nk = s[0][0]", "s = ({a}, n)\nk = s[0]"),
    *("s = Sizes({a}, 2)\nk = same(s).rows", "k = same(Sizes({a}, 2)).rows", "s = Sizes({a}, n)\nk = s.rows"),
    *("k = same([{a}, 2])[0]", "s = [{a}, 2]\nk = same(s)[0]", "s = [{a}, n]\nk = s[0]", "k = (2, {a})[1]"),
    *("s = (2, {a})\nk = s[1:][0]", "s = (2,) + ({a},)\nk = s[1]", "s = tl.tuple(({a}, n))\nk = s[0]"),
]

NAMES = [
    *("(k := {a})", "k = (j := {a})", "k: tl.constexpr = {a}", "k: 'tl.constexpr' = {a}", "k: int = {a}"),
    *("j = {a}\nk: tl.constexpr = j", "j = {a}\nk: tl.constexpr = same(j)", "k = tl.constexpr({a})"),
    *("j = {a}\nk = tl.constexpr(j)", "k: tl.constexpr = {a} if n > 2 else 8", "k = {a} if B == 4 else 8"),
    *("k = {a} if n > 2 else {a}", "k = {a} if n > 2 else 8", "k = n and {a}", "k = {a} or 8"),
    *("k = {a}\nk = max(k, 2)", "k = {a}\nk = k + 0", "k = {a}\nk += 0", "k = {a}\nk = -(-k)"),
    *("k = {a}\nk = abs(k)", "k = {a}\nk = int(k)", "k = tl.cdiv({a}, 1)", "k = tl.where(True, {a}, 8)"),
]

OBJECTS = [
    *(
        "h = Holder({a}, n)\nk = same(h).size",
        "k = {a}\nh = Holder(k, n)\nk = h.size",
        "k = Holder(2, {a}).count",
    ),
    *("h = Holder({a}, n)\nk = h.double() // 2", "h = Holder({a}, n)\nk = h.size.value"),
    *("h = Fields({a}, n)\nk = h.size", "k = {a}\nh = Fields(k, n)\nk = h.size", "k = Fields(2, {a}).count"),
    *("k = {a}\nh = Fields(2, k)\nk = same(h).count", "h = Fields({a}, n)\nk = h.own()"),
    *("h = Known({a}, n)\nk = h.size", "k = {a}\nh = Known(k, n)\nk = h.size", "k = Known(2, {a}).count"),
    *("k = Anything({a}).x", "k = {a}\nk = Anything(k).x", "k = Anything(({a}, n)).x[0]"),
    *("k = Outer(Holder({a}, n)).inner.size", "h = Outer(Holder({a}, n))\nk = same(h).inner.size"),
    "h = tl.aggregate_replace(Holder(2, n), size={a})\nk = h.size",
    "h = tl.aggregate_replace(Holder({a}, n), count=3)\nk = h.size",
    *("h = Fields(({a}, n), n)\nk = 4", "h = Fields(4, ({a}, n))\nk = 4", "h = Fields(4, v)\nk = h.size"),
]

FLOWS = [
    *(
        f"{setup}\n{flow}\n    k = {value}"
        for setup in ("k = 4", "k = B", "k, j = SHAPE")
        for flow in (
            "for i in range(n):",
            "for i in range(2):",
            "for i in tl.static_range(2):",
            "while n < 4:",
        )
        for value in ("k", "4")
    ),
    *(
        f"k = 4\n{test}\n    k = {value}"
        for test in (
            "if n > 2:",
            "if B == 4:",
            "if n > 200:",
            "if n > 2 and B == 4:",
            "if n > 2:\n  if B == 8:",
        )
        for value in ("k", "4", "8", "4 + 0")
    ),
    *(
        f"k = 4\nfor i in range(n):\n  {test}\n    k = 8"
        for test in (
            *(
                "if B == 8:",
                "if B == 4:",
                "if x is None:",
                "if x is not None:",
                "if SIZES is None:",
                "if n > 9:",
            ),
            *("if not B == 4:", "if B != 4 or x is None:", "if B == 8 and n > 2:", "if one == 2:"),
            *("if x is None and n > 2:", "if B == 8 or n > 200:", "if B == 4 or n > 200:"),
            *(
                "if B == 4 and x is not None:\n    pass\n  else:",
                "if B == 8:\n    pass\n  elif B == 4:\n    pass\n  else:",
            ),
        )
    ),
    "k = 4\nfor i in range(n):\n    k, j = k, 3",
    "k = 4\nfor i in range(n):\n    if i > 2:\n        k = 4",
    "k = 4\nfor i in tl.range(n):\n    k = k",
    "k: tl.constexpr = 4\nfor i in range(n):\n    k: tl.constexpr = 4",
    "s = (4, n)\nfor i in range(n):\n    s = (s[0], i)\nk = s[0]",
    "s = (4, n)\nif n > 2:\n    s = s\nk = s[0]",
    "s = Sizes(4, n)\nif n > 2:\n    s = Sizes(4, n + 1)\nk = s.rows",
    "h = Holder(4, n)\nfor i in range(2):\n    h = Holder(4, h.count + 1)\nk = h.size",
    *(
        f"if {test}:\n    {then}\nelse:\n    {other}\n{after}"
        for test in ("n > 2", "B == 4")
        for then, other, after in (
            *(("k = 4", "k = 4", ""), ("k = 4", "k = 8", ""), ("k, j = 4, 2", "k = 4", "")),
            ("k: tl.constexpr = 4", "k: tl.constexpr = 4", ""),
            ("k: tl.constexpr = 4", "k: tl.constexpr = 8", ""),
            *(("j = B", "j = 3", "k = B"), ("i = 4", "i = B", "k = i")),
        )
    ),
    "i = 4\nif n > 2:\n    j = i\nelse:\n    j = i\nk = j",
    "if n > 200:\n    return\nk = 4",
    "k = 2\nif n > 200:\n    return\nelse:\n    k = 4",
    "k = 4\nif n > 200:\n    k = 8\n    return",
    "k = 4\nif n > 200:\n    if n > 300:\n        return\n    k = 8",
    *(
        f"{before}\nfor k in {each}:\n    pass"
        for before, each in (
            *(
                ("", "range(5)"),
                ("", "tl.range(5)"),
                ("", "range(B + 1)"),
                ("", "range(8, 2, -4)"),
                ("", "(2, 4)"),
            ),
            *(("k = 4", "range(5)"), ("k = 2.0", "range(5)"), ("k = n", "range(5)"), ("k = 4", "range(0)")),
            *(("", "tl.static_range(5)"), ("", "tl.static_range(n)"), ("j = 5", "tl.static_range(j)")),
            *(("", "tl.static_range(one, 5)"), ("", "tl.static_range(0, n)")),
        )
    ),
    "k = 4\nfor i in range(n):\n    tl.store(row, tl.zeros((k,), tl.float32))\n    k = k",
    "k = 8\nfor i in range(n):\n    k = 4\n    tl.store(row, tl.zeros((k,), tl.float32))\nk = 4",
    "for i in range(n):\n    k: tl.constexpr = 4\n    tl.store(row, tl.arange(0, k))\nk = 4",
    "for i in tl.static_range(3):\n    k: tl.constexpr = i + 2",
]
"""Names that branches and loops give values."""

ASSERTIONS = [
    *map(
        asserted,
        (
            *(
                "n == 6",
                "one == 1",
                "n > 0",
                "v",
                "v.shape[0] == 4",
                "tl.load(x) == 1",
                "tl.program_id(0) == 0",
            ),
            *(
                "x",
                "n",
                "True and n == 6",
                "B == 4 and n == 6",
                "not (n == 5)",
                "tl.sum(v) == 10",
                "n is not None",
            ),
            *("isinstance(n, tl.tensor)", "half(8) == 4", "twice(2) == 4", "same(n) == 6", "equal(n) == 4"),
            *("same(B) == 4", "tl.full((), 2, tl.int32) == 2", "len((n, 2)) == 2", "n.shape == []"),
        ),
    ),
    *(
        asserted(condition, setup)
        for setup, condition in (
            *((setup, "k == 2") for setup in ("k = 2\n", "k: tl.constexpr = 2\n", "k = n - 4\n")),
            *(("k: tl.constexpr = n\n", "k == 6"), ("k: tl.constexpr = same(B)\n", "k == 4")),
            *(("s = (4, n)\n", condition) for condition in ("s[0] == 4", "s[1] == 6", "len(s) == 2")),
            *(("s = Sizes(B, n)\n", condition) for condition in ("s.rows == 4", "s.columns == 6")),
            *(("h = Holder(B, n)\n", condition) for condition in ("h.size == 4", "h.count == 6")),
        )
    ),
]

DESCRIPTORS = [
    *(
        asserted(condition, setup)
        for setup in (DESCRIPTOR, OF_RUN_TIME)
        for condition in (
            *(
                "d.shape[0] == 2",
                "d.shape[0] == 3",
                "d.strides[0] == 4",
                "d.strides[1] == 1",
                "len(d.shape) == 2",
            ),
            *("d.block_shape[0] == 2", "d.block_shape == [2, 4]", "d.block_type.shape == [2, 4]"),
            *("same(d).strides[1] == 1", "same(d).shape[0] == 2", "d.dtype == tl.float32"),
        )
    ),
    *(
        told(condition, DESCRIPTOR)
        for condition in ("d.shape[0] == 2", "d.shape == [2, 4]", "d.shape == d.shape", "d.strides == [4, 1]")
    ),
    *(told(condition, DESCRIPTOR) for condition in ("d.shape[1:] == [4]", "d.block_shape == (2, 4)")),
    *shaped(
        f"{setup}k = {k}"
        for setup in (
            DESCRIPTOR,
            OF_RUN_TIME,
            "a = 4\nd = tl.make_tensor_descriptor(x, [2, a], [a, 1], [2, a])\n",
        )
        for k in (
            "d.shape[1]",
            "d.block_shape[1]",
            "same(d).block_shape[1]",
            "same(d).shape[1]",
            "d.strides[0]",
        )
    ),
    *shaped(
        f"{setup}\nd = tl.make_tensor_descriptor(x, [2, 4], [4, a], [2, 4])\nk = 4"
        for setup in (
            "a = 1",
            "a = same(1)",
            "a = 1\na = same(a)",
            "a = 1\nfor i in range(2):\n    a = 1",
            "a = one",
        )
    ),
    *shaped(
        f"{DESCRIPTOR}{flow}\n    {setup}k = d.block_shape[1]"
        for flow in ("if n > 2:", "for i in range(2):")
        for setup in (DESCRIPTOR, "d = d\n")
    ),
    *(asserted(condition, BLOCK) for condition in ("p.shape[0] == 8", "p.dtype == x.dtype")),
    *shaped(f"{setup}k = 4" for setup in (f"{BLOCK}p = same(p)\n", "s = x.shape\n")),
    *shaped(
        f"k = {k}"
        for k in ("v.numel", "w.shape[-2]", "same(w).shape[0]", "same(w.shape)[0]", "v.type.shape[0]")
    ),
]
"""Properties of a block pointer, a descriptor, a pointer and a tile."""

SCALARS = (
    "n",
    "one",
    "B",
    "2.7",
    "n + 0.5",
    "tl.load(x)",
    "v",
    "x",
    "tl.sum(v)",
    "n == 6",
    "True",
    "half(8)",
)

NUMBERS = [
    program.format(call=f"{function}({scalar})")
    for function in ("int", "float", "bool")
    for scalar in SCALARS
    for program in (
        *("k = {call}\ntl.store(o, k)", "tl.store(o, {call} // 2)", "tl.store(o, 1 if {call} else 2)"),
        *(
            "tl.store(row, tl.zeros(({call} + 3,), tl.float32))",
            "tl.static_assert({call} >= 1)\ntl.store(o, 1)",
        ),
        *("for i in range({call}):\n    tl.store(o + i, i)", "tl.store(o, {call}.to(tl.float32))"),
    )
]
"""Python's numbers of scalars at run time, which a compiled kernel has not."""

COMBINED = [
    *(f"tl.store(o, tl.reduce({x}, 0, tl.standard.{name}))" for name, x in (
        *((name, "v") for name in ("_sum_combine", "_prod_combine", "_elementwise_max", "_elementwise_min")),
        *((name, "v.to(tl.int32)") for name in ("_xor_combine", "_or_combine", "_sum_combine")),
    )),
    *(
        f"tl.store(o, tl.reduce((v % 3, tl.arange(0, 4)), 0, tl.standard._arg{which}_combine_tie_break_{how})[1])"
        for which in ("max", "min")
        for how in ("left", "fast")
    ),
    "tl.store(row, tl.associative_scan(v, 0, tl.standard._sum_combine))",
    "tl.store(o, tl.standard._sum_combine(n, 2))",
    "tl.store(o, tl.standard._sum_combine(a=n, b=2))",
    "tl.store(o, tl.standard._or_combine(x=n, y=1))",
    "tl.store(o, tl.standard._argmax_combine(n, 1, 2, 3, True)[1])",
    "tl.store(row, tl.standard._elementwise_max(v, 2))",
    "f = tl.standard._sum_combine\ntl.store(o, f(n, 2))",
    asserted("tl.standard._sum_combine(2, 3) == 5"),
    "k = tl.standard._sum_combine(2, 2)\n" + SHAPED,
]  # fmt: skip
"""The functions that the library's reductions combine with."""

EQUALITIES = [
    *map(
        told,
        (
            *("(n, 4) == [6, 4]", "(n, 4) == (n, 4)", "(n, 4) != (n, 4)", "(n, n) == [n, n]", "[6, 4] == (n, 4)"),
            *("(n, 4) == (n, 5)", "(4, n) == (5, n)", "(4, n) != (5, one)", "(n, 4) == (n,)", "(n, 4) < (n, 5)"),
            *("(n, 4) == None", "(n, 4) == 4", "4 == (n, 4)", "n in (6, 4)", "6 in (n, 4)", "n not in (n, 4)"),
            *("(n, (4, 2)) == [n, [4, 2]]", "((n, 4), 2) == ((n, 4), 2)", "(n, (4, 2)) == (n, (4, 3))"),
            *("v.shape == (n,)", "SHAPE == (n, 2)", "(one, 4) == [1, 4]", "(one, n) == [1, n]", "B in (n, 4)"),
            *("(v.shape, n) == ([4], n)", "Sizes(n, 4) == (n, 4)", "Sizes(B, 2) == [4, 2]", "(v, 4) == (v, 4)"),
            *("not (n, 4)", "(n, 4) and True", "(x, 4) == (x, 4)", "(None, n) == (None, n)", "(n, None) == (n, 4)"),
            *("(n, 4)[0] == 6", "(n, 'a') == (n, 'b')", "() == ()", "(n + 1, 4) == (n + 1, 4)", "4 in (4, 2)"),
        ),
    ),
    *(
        told(condition, f"s = {s}\n")
        for s in ("(n, 4)", "[n, 4]", "Sizes(n, 4)", "(4, 2)", "[4, 2]", "Sizes(4, 2)")
        for condition in ("s == [4, 2]", "s == (6, 4)", "s == s", "s != (n, 4)", "4 in s", "6 not in s")
    ),
]  # fmt: skip
"""Tuples with parts at run time, compared."""

PROGRAMS = {
    "calls": of_arguments(CALLS),
    "tuples": of_arguments(TUPLES),
    "names": of_arguments(NAMES),
    "objects": of_arguments(OBJECTS),
    "flows": shaped(FLOWS),
    "assertions": ASSERTIONS,
    "descriptors": DESCRIPTORS,
    "numbers": NUMBERS,
    "combined": COMBINED,
    "equalities": EQUALITIES,
}


def outcome(kernel):
    """The content of `o` afterwards, or the code of the mistake."""
    o = np.full(8, -1, np.float32)
    try:
        kernel[(1,)](o, np.arange(1, 9, dtype=np.float32), 6, 1, 4, (4, 2))
    except tilewright.TritonError as error:
        return error.diagnostics[0].code
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return o.tolist()


@pytest.mark.parametrize("name", PROGRAMS)
def test_interpreted_and_compiled_agree(module, name):
    programs = PROGRAMS[name]
    kernels = [
        KERNEL.replace("kernel", f"kernel_{number}") + textwrap.indent(program, "    ")
        for number, program in enumerate(programs)
    ]
    k = module(PRELUDE + "\n".join(kernels))
    wrong, accepted = [], 0
    for number, program in enumerate(programs):
        kernel = getattr(k, f"kernel_{number}")
        compiled, interpreted = outcome(kernel), outcome(interpret(kernel))
        accepted += isinstance(compiled, list)
        if compiled != interpreted:
            wrong.append(f"{program}\ncompiled: {compiled}, interpreted: {interpreted}")
    assert not wrong, f"{len(wrong)} of {len(programs)} programs:\n" + "\n\n".join(wrong)
    assert len(programs) // 8 < accepted, "nothing is compared where all programs are refused"
