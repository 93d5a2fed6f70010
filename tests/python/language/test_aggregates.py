"""Users' classes in kernels (``triton.aggregate``), and Python objects that are known at compile time."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import pytest
import torch
from helpers import module

import tilewright as triton
import tilewright.language as tl
from tilewright.language.core import _aggregate as aggregate


def run(kernel, *arguments, size=16, dtype=torch.int32, device="cpu", **constants):
    """Launches one program with a tensor of zeros as its last argument, which it returns as a list."""
    out = torch.zeros(size, dtype=dtype, device=device)
    kernel[(1,)](*arguments, out, **constants)
    return out.tolist()


@aggregate
class Pair:
    """Two tensors and a compile-time number."""

    first: tl.tensor
    second: tl.tensor
    scale: tl.constexpr

    @triton.constexpr_function
    def __init__(self, first, second, scale=2):
        self.first = first
        self.second = second
        self.scale = tl.constexpr(scale)

    @triton.jit
    def sum(self):
        return self.first + self.second * self.scale

    @triton.jit
    def swapped(self):
        return Pair(self.second, self.first, self.scale)

    @triton.jit
    def add(self, amount, times: tl.constexpr = 1):
        return Pair(self.first + amount * times, self.second, self.scale)

    @triton.jit
    def __add__(self, other):
        return Pair(self.first + other.first, self.second + other.second, self.scale)

    @triton.jit
    def __radd__(self, number):
        return self.add(number)

    @triton.jit
    def __getitem__(self, index: tl.constexpr):
        return self.first if index == 0 else self.second

    @triton.jit
    def __lt__(self, other):
        return self.sum() < other.sum()

    @property
    @triton.jit
    def doubled(self):
        return self.sum() * 2

    @triton.constexpr_function
    def width(self, more=0):
        return self.scale * 8 + more

    @staticmethod
    @triton.jit
    def of(value):
        return Pair(value, value + 1)


@triton.jit
def first_of(pair):
    return pair.first


@triton.jit
def through(pairs, extra: tl.constexpr):
    a, b = pairs
    return (a + b, extra), a.sum()


@triton.jit
def uses_pairs(n, out_ptr):
    pair = Pair(n, 3)
    tl.store(out_ptr + 0, pair.sum())
    tl.store(out_ptr + 1, pair.swapped().sum())
    tl.store(out_ptr + 2, (pair + pair.add(10, times=3)).first)
    tl.store(out_ptr + 3, (5 + pair).first)
    tl.store(out_ptr + 4, pair[1])
    tl.store(out_ptr + 5, pair.doubled)
    tl.store(out_ptr + 6, pair.width())
    tl.store(out_ptr + 7, tl.sum(tl.arange(0, pair.width()) + pair.width(more=1)))
    tl.store(out_ptr + 8, Pair.of(n).second)
    tl.store(out_ptr + 9, first_of(pair))
    (c, extra), total = through((pair, Pair(n, n, scale=1)), 7)
    tl.store(out_ptr + 10, c.second + extra)
    tl.store(out_ptr + 11, total)
    tl.store(out_ptr + 12, isinstance(pair, Pair) and not isinstance(pair, Other))
    changed = tl.aggregate_replace(pair, second=n * 100, scale=3)
    tl.store(out_ptr + 13, changed.sum())
    tl.store(out_ptr + 14, pair < changed)
    tl.store(out_ptr + 15, getattr(pair, "sec" + "ond") + hasattr(pair, "third"))


def test_fields_methods_and_operators(device):
    n = 4
    assert run(uses_pairs, n, device=device) == [
        n + 6, 3 + 2 * n, n + n + 30, n + 5, 3, 2 * (n + 6), 16, sum(range(16)) + 16 * 17, n + 1, n, 3 + n + 7,
        n + 6, 1, n + 100 * n * 3, 1, 3,
    ]  # fmt: skip


@aggregate
class Other:
    """Another class."""

    value: tl.tensor

    def __init__(self, value):
        self.value = value


@aggregate
class Accumulator:
    """A state that a loop carries: a tile, a count, and an aggregate."""

    tile: tl.tensor
    count: tl.tensor
    nested: Other
    BLOCK: tl.constexpr

    @triton.jit
    def __init__(self, start, BLOCK: tl.constexpr):
        tile = tl.zeros((BLOCK,), tl.float32) + start
        self.tile = tile
        self.count = 0
        self.nested = Other(tl.sum(tile, 0))
        self.BLOCK = BLOCK

    @triton.jit
    def step(self, x):
        return tl.aggregate_replace(self, tile=self.tile + x, count=self.count + 1)

    @triton.jit
    def masked(self, limit):
        if limit > 2:
            result = self.step(1.0)
        else:
            result = self
        return result


@triton.jit
def carries(x_ptr, n, out_ptr, BLOCK: tl.constexpr):
    state = Accumulator(1.0, BLOCK)
    others = (state, n)
    for i in range(n):
        x = tl.load(x_ptr + i * BLOCK + tl.arange(0, BLOCK))
        state = state.step(x)
        if i % 2 == 0:
            state = state.masked(i)
    while state.count < 20:
        state = state.step(0.5)
    tl.store(out_ptr + tl.arange(0, BLOCK), state.tile)
    tl.store(out_ptr + BLOCK, state.count)
    tl.store(out_ptr + BLOCK + 1, state.nested.value)
    tl.store(out_ptr + BLOCK + 2, others[0].count)


def test_loops_and_branches_carry_objects(device):
    block, n = 8, 5
    x = torch.randn(n, block, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(block + 3)
    x, out = x.to(device), out.to(device)
    carries[(1,)](x, n, out, BLOCK=block)
    steps = n + 1
    expected = x.cpu().sum(0) + 1 + 1 + 0.5 * (20 - steps)
    torch.testing.assert_close(out[:block].cpu(), expected)
    assert out[block:].tolist() == [20.0, float(block), 0.0]


@aggregate
class Base:
    """A class to derive from."""

    a: tl.tensor
    kind: tl.constexpr

    @triton.jit
    def __init__(self, a, kind: tl.constexpr):
        self.a = a
        if kind == "double":
            self.a = a * 2
        self.kind = kind

    @triton.jit
    def value(self):
        return self.a

    @triton.jit
    def twice(self):
        return self.value() * 2


@aggregate
class Derived(Base):
    """Has a field more, and another ``value``."""

    b: tl.tensor

    @triton.jit
    def __init__(self, a, b):
        super().__init__(a, "double")
        self.b = b

    @triton.jit
    def value(self):
        return super().value() + self.b


@aggregate
class Plain:
    """Has no ``__init__``: the fields are its parameters."""

    x: tl.tensor
    n: tl.constexpr


@aggregate
class Shape:
    """Has defaults, and annotations that are texts."""

    x: "tl.tensor"  # noqa: UP037
    n: "tl.constexpr"  # noqa: UP037
    m: tl.constexpr = 7


@aggregate
class Middle(Shape):
    """Adds a field without a default after one with one."""

    y: tl.tensor


@aggregate
class Last(Middle):
    """Inherits over two levels; another default for a field of a base, and a method."""

    m: tl.constexpr = 8
    z: tl.constexpr = 9

    @triton.jit
    def total(self):
        return self.x * self.n + self.y * self.m + self.z


@aggregate
class FromInit(Base):
    """Does not inherit the ``__init__`` of its base: its fields are its parameters."""

    c: tl.constexpr = 3


@aggregate
class Outer:
    """Holds another one."""

    inner: Shape
    k: tl.tensor


@triton.jit
def has_no_init(v, out_ptr):
    a, b = Shape(v, 3), Shape(x=v + 1, n=4, m=5)
    tl.store(out_ptr, a.x * a.n + a.m)
    tl.store(out_ptr + 1, b.x * b.n + b.m)
    tl.store(out_ptr + 2, Last(v, 2, 3, v + 1).total())
    tl.store(out_ptr + 3, Last(v, 2, y=v, z=100).total())
    outer = Outer(Shape(v, 1), k=v * 2)
    other = tl.aggregate_replace(outer, inner=Shape(v * 3, 1, m=0))
    tl.store(out_ptr + 4, outer.inner.x + outer.k * outer.inner.m)
    tl.store(out_ptr + 5, other.inner.x + other.k * other.inner.m)
    for i in range(4):
        a = tl.aggregate_replace(a, x=a.x + i)
    tl.store(out_ptr + 6, a.x * a.n)
    tl.store(out_ptr + 7, FromInit(v, "single").a + FromInit(v, "single", c=4).c)


@pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])
def test_classes_without_a_constructor_take_their_fields(interpret, device):
    kernel = triton.JITFunction(has_no_init.fn, interpret=interpret)
    v = 10
    expected = [37, 49, 2 * v + 3 * (v + 1) + 9, 2 * v + 8 * v + 100, v + 14 * v, 3 * v, 48, v + 4]
    assert run(kernel, v, size=8, device=device) == expected


def test_instances_on_the_host_do_not_change():
    shape = Shape(1, 2, m=3)
    assert (shape.x, shape.n, shape.m, Shape(1, 2).m) == (1, 2, 3, 7)
    assert tl.aggregate_replace(shape, n=5).n == 5
    assert shape.n == 2
    made = Pair(1, 2)
    for change, says in (
        (lambda: setattr(shape, "n", 4), "cannot assign to field 'n' on immutable aggregate Shape"),
        (lambda: setattr(made, "first", 4), "cannot assign to field 'first' on immutable aggregate Pair"),
        (lambda: setattr(tl.aggregate_replace(shape, n=5), "n", 4), "cannot assign to field 'n'"),
        (lambda: setattr(shape, "other", 4), "Shape has no attribute 'other'"),
    ):
        with pytest.raises(AttributeError, match=says):
            change()
    for make, says in (
        (lambda: Shape(1), "missing required argument: 'n'"),
        (lambda: Shape(1, 2, 3, 4), "takes 4 positional arguments but 5 were given"),
        (lambda: Shape(1, 2, x=3), "got multiple values for argument 'x'"),
        (lambda: Shape(1, 2, q=3), "got an unexpected keyword argument 'q'"),
        (lambda: tl.aggregate_replace(shape, q=3), "Shape has no field 'q'"),
        (lambda: tl.aggregate_replace(3, q=3), "expects an aggregate instance"),
    ):
        with pytest.raises(TypeError, match=says):
            make()


@triton.jit
def inherits(n, out_ptr):
    derived = Derived(n, 100)
    tl.store(out_ptr, derived.twice())
    tl.store(out_ptr + 1, Base(n, "single").twice())
    tl.store(out_ptr + 2, isinstance(derived, Base))
    plain = Plain(n, n=8)
    tl.store(out_ptr + 3, tl.sum(tl.arange(0, plain.n) + plain.x))
    if plain.n == 8 and derived.kind == "double":
        tl.store(out_ptr + 4, 7)


def test_inheritance(device):
    assert run(inherits, 3, size=5, device=device) == [212, 6, 1, 28 + 24, 7]


@triton.jit
def takes_pair(pair, out_ptr):
    tl.store(out_ptr, pair.sum())
    tl.store(out_ptr + 1, tl.sum(tl.arange(0, pair.width())))


def test_objects_are_arguments_and_globals(device):
    assert run(takes_pair, Pair(5, 7, 1), size=2, device=device) == [12, 28]
    assert run(takes_pair, Pair(6, 7, 2), size=2, device=device) == [20, 120]
    assert run(takes_pair, (Pair(1, 1)), size=2, device=device) == [3, 120]


# --- Python objects that are known at compile time ---


class Color(enum.Enum):
    """Two colors."""

    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    """How to compute."""

    block: int
    color: Color
    table: tuple[int, ...] = (1, 2, 3)

    def area(self, more=0):
        """A plain Python method."""
        return self.block * self.block + more

    def __add__(self, other):
        return Config(self.block + other.block, self.color)


TABLE = {"a": 10, "b": 20}
CONSTANT_TABLE = tl.constexpr(TABLE)


@triton.constexpr_function
def chosen(config, key):
    """Any Python."""
    return {Color.RED: f"{key}!", Color.BLUE: key}[config.color], sorted(TABLE.values())


@triton.jit
def uses_config(config: tl.constexpr, out_ptr):
    table: tl.constexpr = CONSTANT_TABLE
    tl.store(out_ptr, config.area() + config.area(more=1))
    tl.store(out_ptr + 1, tl.sum(tl.arange(0, config.block)))
    if config.color is Color.RED:
        tl.store(out_ptr + 2, 1)
    tl.store(out_ptr + 3, config.color == Color.BLUE)
    tl.store(out_ptr + 4, table["a"] + len(table))
    tl.store(out_ptr + 5, "b" in table)
    tl.store(out_ptr + 6, (config + config).block)
    text, values = chosen(config, "k")
    tl.store(out_ptr + 7, len(text) * 100 + values[1])
    total = 0
    for key in table:
        total += table[key]
    tl.store(out_ptr + 8, total)
    tl.store(out_ptr + 9, isinstance(config, Config))
    tl.store(out_ptr + 10, table.get("c", 5))
    tl.store(out_ptr + 11, config.table[1] if config.table else 0)


def test_compile_time_objects(device):
    config = Config(8, Color.RED)
    expected = [129, 28, 1, 0, 12, 1, 16, 220, 30, 1, 5, 2]
    assert run(uses_config, config, size=12, device=device) == expected


# --- Mistakes ---

MISTAKES = {
    "unset": (
        "    x: tl.tensor\n    y: tl.tensor\n    def __init__(self, x):\n        self.x = x\n",
        "    c = C(n)\n",
        "'C.__init__' does not set y",
    ),
    "undeclared": (
        "    x: tl.tensor\n    def __init__(self, x):\n        self.y = x\n",
        "    c = C(n)\n",
        "'C' has no field 'y'",
    ),
    "run time": (
        "    x: tl.constexpr\n    def __init__(self, x):\n        self.x = x\n",
        "    c = C(n)\n",
        "the field 'x' of 'C' takes a compile-time value",
    ),
    "assigned": (
        "    x: tl.tensor\n    def __init__(self, x):\n        self.x = x\n",
        "    c = C(n)\n    c.x = 3\n",
        "aggregate_replace",
    ),
    "unknown": (
        "    x: tl.tensor\n    def __init__(self, x):\n        self.x = x\n",
        "    c = C(n)\n    tl.store(o, c.z)\n",
        "has no attribute 'z'",
    ),
    "without a constructor": (
        "    x: tl.tensor\n    y: tl.constexpr = 3\n",
        "    c = C(n)\n    d = C(n, 1, 2)\n",
        "C takes at most 2 positional arguments, found 3",
    ),
    "a field without a value": (
        "    x: tl.tensor\n    y: tl.constexpr = 3\n",
        "    c = C(y=4)\n",
        "missing argument 'x' of C",
    ),
    "a changed instance": (
        "    x: tl.tensor\n",
        "    c = C(n)\n    c.x = n + 1\n",
        "aggregate_replace",
    ),
    "replace": (
        "    x: tl.tensor\n    def __init__(self, x):\n        self.x = x\n",
        "    c = tl.aggregate_replace(C(n), z=3)\n",
        "'C' has no field 'z'",
    ),
    "unpacked": (
        "    x: tl.tensor\n    def __init__(self, x):\n        self.x = x\n",
        "    a, b = C(n)\n",
        "cannot be unpacked",
    ),
}


@triton.jit
def reads_plain_dict(out_ptr):
    tl.store(out_ptr, TABLE["a"])


def test_a_dict_that_may_change_is_no_constant():
    with pytest.raises(triton.CompilationError, match="'TABLE' is not a constexpr"):
        run(reads_plain_dict)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    body, use, phrase = MISTAKES[name]
    text = f"@triton.aggregate\nclass C:\n{body}\n@triton.jit\ndef k(n, o):\n{use}"
    kernel = module(text).k
    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](3, np.zeros(4, np.int32))
    assert phrase in str(caught.value)


@aggregate
class Bracket:
    """Writes a number where a block begins, and another where it ends."""

    place: tl.tensor
    number: tl.constexpr

    @triton.constexpr_function
    def __init__(self, place, number):
        self.place = place
        self.number = tl.constexpr(number)

    @triton.jit
    def __enter__(self):
        # Digits, in the order in which they come.
        tl.store(self.place, tl.load(self.place) * 10 + self.number)
        return self.number + 1

    @triton.jit
    def __exit__(self, kind, value, traceback):
        tl.store(self.place, tl.load(self.place) * 10 + self.number)


@triton.jit
def uses_with(n, out_ptr):
    with Bracket(out_ptr, 1), Bracket(out_ptr, 2) as three:
        x = n + three
        for i in range(n):
            with Bracket(out_ptr, 7):
                x += i
        if n > 100:
            with Bracket(out_ptr, 9):
                x = 0
    tl.store(out_ptr + 1, x)


def test_with_calls_what_enters_and_leaves(device):
    # Blocks end in the order opposite to that in which they begin.
    assert run(uses_with, 2, size=2, device=device) == [12777721, 2 + 3 + 1]
