"""Random memory accesses: index arithmetic over tiles of one to three axes, masks, loads and stores, against numpy.

Tiles of indices and masks are kept symbolic by the CPU backend as long as possible; here each way of combining them is
compared with what the same text means in numpy.
"""

import numpy as np
import pytest
from helpers import assert_same, empty, moderate_values, module, to_device, to_host
from helpers_oracle import COMPARISONS, c_quotient, c_remainder

SHAPES = [(64,), (1,), (8, 16), (16, 4), (1, 32), (32, 1), (4, 4, 8), (2, 8, 1)]
SIZE = 700


class Generator:
    """Index expressions: pairs of text and int32 values that broadcast to the tile."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.shape = self.choose(SHAPES)
        rank = len(self.shape)
        self.axes = []
        for axis, extent in enumerate(self.shape):
            index = ", ".join(":" if k == axis else "None" for k in range(rank))
            start = int(self.choose([0, 0, 0, 3, 100]))
            text = f"tl.arange({start}, {start + extent})" + (f"[{index}]" if rank > 1 else "")
            values = np.arange(start, start + extent, dtype=np.int32)
            self.axes.append((text, values.reshape([extent if k == axis else 1 for k in range(rank)])))
        self.scalars = {"n": int(self.choose([0, 1, 5, 37, -3])), "m": int(self.rng.integers(1, 50))}

    def choose(self, options):
        return options[self.rng.integers(len(options))]

    def scalar(self):
        kind = self.rng.random()
        if kind < 0.5:
            value = int(self.choose([0, 1, 2, 3, 4, 7, 16, 64, -1, -5, 2**30, 2**31 - 1, -(2**31)]))
            return f"({value})", np.int32(value)
        name = self.choose(list(self.scalars))
        return name, np.int32(self.scalars[name])

    def tile(self, depth):
        """An expression with the rank of the tile."""
        if depth == 0 or self.rng.random() < 0.15:
            return self.choose(self.axes)
        kind = self.choose(
            ["add", "add", "sub", "scale", "scale", "offset", "div", "mod", "bits", "where", "minmax", "cast"]
        )
        text, values = self.tile(depth - 1)
        if kind in ("add", "sub"):
            other, more = self.tile(depth - 1)
            symbol = "+" if kind == "add" else "-"
            return f"({text} {symbol} {other})", values + more if kind == "add" else values - more
        if kind in ("scale", "offset"):
            other, scalar = self.scalar()
            forms = (
                [f"({text} * {other})", f"({other} * {text})"] if kind == "scale" else [f"({text} + {other})"]
            )
            return self.choose(forms), values * scalar if kind == "scale" else values + scalar
        if kind in ("div", "mod"):
            divisor = int(self.choose([1, 2, 3, 4, 8, 10, 16]))
            function = c_quotient if kind == "div" else c_remainder
            result = function(np.broadcast_to(values, values.shape), np.int32(divisor)).astype(np.int32)
            return f"({text} {'//' if kind == 'div' else '%'} {divisor})", result
        if kind == "bits":
            mask = int(self.choose([1, 3, 7, 12, 255]))
            symbol = self.choose(["&", "|", "^"])
            result = {"&": values & mask, "|": values | mask, "^": values ^ mask}[symbol]
            return f"({text} {symbol} {mask})", result.astype(np.int32)
        if kind == "where":
            condition, flags = self.mask(1)
            other, more = self.tile(depth - 1)
            return f"tl.where({condition}, {text}, {other})", np.where(flags, values, more).astype(np.int32)
        if kind == "minmax":
            other, scalar = self.scalar()
            name = self.choose(["minimum", "maximum"])
            return f"tl.{name}({text}, {other})", getattr(np, name)(values, scalar)
        return f"{text}.to(tl.int64).to(tl.int32)", values

    def mask(self, depth):
        if depth == 0 or self.rng.random() < 0.4:
            text, values = self.tile(self.rng.integers(0, 2))
            other, scalar = (
                self.scalar()
                if self.rng.random() < 0.5
                else (self.choose([(f"({v})", np.int32(v)) for v in (2, 9, 30, 101)]))
            )
            symbol, compare = self.choose(list(COMPARISONS.items()))
            if self.rng.random() < 0.8:
                return f"({text} {symbol} {other})", compare(values, scalar)
            return f"({other} {symbol} {text})", compare(scalar, values)
        text, flags = self.mask(depth - 1)
        if self.rng.random() < 0.15:
            return f"(~{text})", ~flags
        other, more = self.mask(depth - 1)
        return (
            (f"({text} & {other})", flags & more)
            if self.rng.random() < 0.75
            else (f"({text} | {other})", flags | more)
        )

    def whole(self, values):
        return np.broadcast_to(values, self.shape)

    def place(self):
        """A permutation of the tile's elements, as addresses of a buffer of twice the size."""
        total = int(np.prod(self.shape))
        order = list(self.rng.permutation(len(self.shape)))
        strides, stride = {}, int(self.choose([1, 1, 2]))
        first = 0
        for axis in order:
            strides[axis] = stride
            stride *= self.shape[axis]
        terms, values = [], np.zeros((1,) * len(self.shape), np.int32)
        for axis, (text, index) in enumerate(self.axes):
            step = strides[axis] * int(self.choose([1, 1, -1]))
            offset = index - index.min()
            if step < 0:
                first += -step * (self.shape[axis] - 1)
            terms.append(f"({text} - {index.min()}) * {step}")
            values = values + offset * step
        return f"({' + '.join(terms)} + {first})", self.whole(values + first), 2 * total


def build(seed):
    """A kernel's text, its scalars, and a function from the inputs to what it must store."""
    g = Generator(seed)
    index, index_values = g.tile(3)
    mask, flags = g.mask(2)
    stored, stored_flags = g.mask(1)
    place, place_values, room = g.place()
    other = int(g.choose([0, -7]))
    inside = g.rng.random() < 0.5
    if inside:
        # Wrapped into the buffer, so that the mask may be anything.
        index = f"((({index}) % {SIZE}) + {SIZE}) % {SIZE}"
        index_values = c_remainder(c_remainder(index_values, np.int32(SIZE)) + np.int32(SIZE), np.int32(SIZE))
    lines = [f"index = {index}", f"mask = {mask}"]
    index_values, flags = g.whole(index_values), g.whole(flags)
    if not inside:
        lines.append(f"mask = mask & (index >= 0) & (index < {SIZE})")
        flags = flags & (index_values >= 0) & (index_values < SIZE)
    pointer = g.choose(
        ["x_ptr + index", "index + x_ptr", "x_ptr + 1 + (index - 1)", "(x_ptr + n) + (index - n)"]
    )
    lines.append(f"x = tl.load({pointer}, mask=mask, other={other})")
    lines.append(f"tl.store(out_ptr + {place}, x + 1, mask={stored})")
    if g.rng.random() < 0.5:
        lines.append(
            f"tl.store(sum_ptr, tl.sum(tl.broadcast_to(tl.where(mask, x + index, {other}), {g.shape})))"
        )
    body = "\n".join(f"    {line}" for line in lines)
    text = f"@triton.jit\ndef kernel(x_ptr, out_ptr, sum_ptr, n, m):\n{body}\n"

    def expected(x, out, total):
        loaded = np.where(flags, x[np.where(flags, index_values, 0)], other).astype(x.dtype)
        lanes = g.whole(stored_flags)
        out = out.copy()
        out[place_values[lanes]] = (loaded + np.asarray(1, x.dtype))[lanes]
        if "sum_ptr," in text.split(":\n", 1)[1]:
            total = np.where(flags, loaded + index_values, other).astype(np.int32).sum(dtype=np.int32)
        return out, np.int32(total)

    return text, g.scalars, room, expected


@pytest.mark.parametrize("seed", range(200))
def test_random_accesses(seed, device):
    with np.errstate(over="ignore"):
        text, scalars, room, expected = build(seed)
    x = moderate_values("int32", SIZE, seed)
    out, total = empty((room,), "int32", device), empty((1,), "int32", device)
    with np.errstate(over="ignore"):
        wanted, wanted_total = expected(x, to_host(out), to_host(total)[0])
    module(text).kernel[(1,)](to_device(x, "int32", device), out, total, scalars["n"], scalars["m"])
    assert_same(to_host(out), wanted, (), text)
    assert to_host(total)[0] == wanted_total, text
