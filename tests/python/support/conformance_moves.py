"""Rows of the conformance walk: what makes tiles, moves elements and accesses memory, on every element type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from helpers_conformance import (
    DTYPES,
    INTEGERS,
    WIDTH,
    Case,
    any_bits,
    encode,
    is_float,
    small_numbers,
)

# Shapes of powers of two, and of any extents.
SHAPES = [(4, 16), (5, 7)]


def numbers_of(dtype: str) -> list:
    """Compile-time numbers that the type holds: the ends of its range and what lies beside zero."""
    if dtype == "int1":
        return [True, False]
    if is_float(dtype):
        special = (
            [float("inf"), float("nan")] if dtype in ("float16", "bfloat16", "float32", "float64") else []
        )
        return [0.0, -0.0, 0.5, -1.5, 0.15625, *special]
    info = np.iinfo(dtype)
    return [0, 1, int(info.max), int(info.min), int(info.max) // 3]


def written(value) -> str:
    return f'float("{value}")' if isinstance(value, float) and not np.isfinite(value) else repr(value)


def constant() -> Iterator[Case]:
    for dtype in DTYPES:
        values = numbers_of(dtype)
        lines = [f"y{n} = tl.full((), {written(value)}, tl.{dtype})" for n, value in enumerate(values)]
        outputs = {f"y{n}": (encode(np.array(value), dtype), dtype) for n, value in enumerate(values)}
        yield Case("constant", dtype, "\n".join(lines), outputs=outputs)


def splat() -> Iterator[Case]:
    for dtype in DTYPES:
        x = any_bits(dtype, ())
        for shape in [*SHAPES, (1,), (2, 1, 3)]:
            lines = f"y = tl.broadcast_to(x, {shape})"
            yield Case("splat", dtype, lines, {"x": (x, dtype)}, {"y": (np.broadcast_to(x, shape), dtype)})


def arange() -> Iterator[Case]:
    for start, end in [(0, 16), (0, 1), (3, 10), (-5, 8), (2**31 - 9, 2**31 - 1), (-(2**31), -(2**31) + 4)]:
        expected = np.arange(start, end, dtype=np.int64).astype(np.int32).view(np.uint32)
        yield Case("arange", "int32", f"y = tl.arange({start}, {end})", outputs={"y": (expected, "int32")})


def of_tiles(op: str, forms) -> Iterator[Case]:
    """An op that only moves elements: for each shape, the lines and what they make in numpy, on every type."""
    for number, dtype in enumerate(DTYPES):
        for shape in SHAPES:
            x = any_bits(dtype, shape, number)
            for line, truth in forms:
                line = line.format(M=shape[0], N=shape[1])
                outputs = {"y": (np.asarray(truth(x)), dtype)}
                yield Case(op, f"{dtype} {shape}", f"y = {line}", {"x": (x, dtype)}, outputs)


def expand_dims() -> Iterator[Case]:
    return of_tiles("expand_dims", [
        ("x[None, :, None, :]", lambda x: x[None, :, None, :]),
        ("tl.expand_dims(x, -1)", lambda x: x[..., None]),
    ])  # fmt: skip


def broadcast() -> Iterator[Case]:
    return of_tiles("broadcast", [
        ("tl.broadcast_to(x[None, :, :], (3, {M}, {N}))", lambda x: np.broadcast_to(x, (3, *x.shape))),
        ("tl.broadcast_to(x[:, None, :], ({M}, 2, {N}))", lambda x: np.repeat(x[:, None], 2, 1)),
    ])  # fmt: skip


def slices() -> Iterator[Case]:
    return of_tiles("slice", [
        ("x[1]", lambda x: x[1]),
        ("x[:, 1:{N}:2]", lambda x: x[:, 1::2]),
        ("x[::-1, ::3]", lambda x: x[::-1, ::3]),
        ("x[-2:, :-1]", lambda x: x[-2:, :-1]),
        ("x[2, 3]", lambda x: x[2, 3]),
    ])  # fmt: skip


def reshape() -> Iterator[Case]:
    return of_tiles("reshape", [
        ("tl.reshape(x, ({N}, {M}))", lambda x: x.reshape(x.shape[::-1])),
        ("x.reshape(1, -1, 1)", lambda x: x.reshape(1, -1, 1)),
        ("tl.join(x, x).reshape(2 * {M}, {N})", lambda x: np.stack([x, x], -1).reshape(-1, x.shape[1])),
    ])  # fmt: skip


def transpose() -> Iterator[Case]:
    return of_tiles("transpose", [
        ("tl.trans(x)", lambda x: x.T),
        ("tl.permute(x[None], (2, 0, 1))", lambda x: x[None].transpose(2, 0, 1)),
        ("tl.permute(tl.join(x, x), (2, 1, 0))", lambda x: np.stack([x, x], -1).transpose(2, 1, 0)),
    ])  # fmt: skip


def gather() -> Iterator[Case]:
    for dtype in DTYPES:
        for shape in SHAPES:
            rng = np.random.default_rng([*shape])
            x = any_bits(dtype, shape)
            for axis in (0, 1):
                index = rng.integers(0, shape[axis], shape, np.int32)
                expected = np.take_along_axis(x, index, axis)
                inputs = {"x": (x, dtype), "i": (index.view(np.uint32), "int32")}
                yield Case(
                    "gather",
                    f"{dtype} {shape}",
                    f"y = tl.gather(x, i, {axis})",
                    inputs,
                    {"y": (expected, dtype)},
                )


def butterfly() -> Iterator[Case]:
    for dtype in DTYPES:
        x = any_bits(dtype, (4, 16))
        for axis in (0, 1):
            outputs = {"y": (np.asarray(np.flip(x, axis)), dtype)}
            yield Case("butterfly", dtype, f"y = tl.flip(x, {axis})", {"x": (x, dtype)}, outputs)


def flips() -> Iterator[Case]:
    """Axes that no coordinate bit reverses: slices."""
    for dtype in DTYPES:
        for shape, axis in [((5, 7), 0), ((3, 6), 1), ((4, 2, 3), 0)]:
            x = any_bits(dtype, shape)
            op = "slice" if shape[axis] & (shape[axis] - 1) else "butterfly"
            outputs = {"y": (np.flip(x, axis), dtype)}
            yield Case(op, f"flip {dtype} {shape}", f"y = tl.flip(x, {axis})", {"x": (x, dtype)}, outputs)


def bitcast() -> Iterator[Case]:
    for source in DTYPES:
        same = [name for name in DTYPES if WIDTH[name] == WIDTH[source] and "int1" not in (name, source)]
        for out in [name for name in same if name != source]:
            x = any_bits(source, (16,))
            lines = f"y = x.to(tl.{out}, bitcast=True)"
            yield Case("bitcast", f"{source} to {out}", lines, {"x": (x, source)}, {"y": (x, out)})


def ptr_add() -> Iterator[Case]:
    for dtype in DTYPES:
        x = any_bits(dtype, (64,))
        for offset in [
            name for name in INTEGERS if dtype in ("int8", "float32", "float64") or name == "int32"
        ]:
            places = np.random.default_rng(1).permutation(32)
            inputs = {"i": (encode(places, offset), offset)}
            lines = "p = (x_ptr + 40) + i\ny = tl.load(p - 32)\nz = tl.load(x_ptr + i.to(tl.int64) * 2)"
            outputs = {"y": (x[places + 8], dtype), "z": (x[2 * places], dtype)}
            memory = {"x": (x, x, dtype)}
            yield Case("ptr_add", f"{dtype} by {offset}", lines, inputs, outputs, memory)


def load() -> Iterator[Case]:
    for dtype in DTYPES:
        for count in (16, 13):
            x, other = any_bits(dtype, (count,)), any_bits(dtype, (count,), 9)
            mask = np.random.default_rng(count).integers(0, 2, count).astype(np.uint8)
            lines = (
                f"i = tl.arange(0, {count})\n"
                "a = tl.load(x_ptr + i, mask=mask)\n"
                "b = tl.load(x_ptr + i, mask=mask, other=other)\n"
                f"c = tl.load(x_ptr + {count} - 1 - i, cache_modifier='.cg', eviction_policy='evict_last')\n"
                "d = tl.load(x_ptr + 3, volatile=True)"
            )
            inputs = {"mask": (mask, "int1"), "other": (other, dtype)}
            zero = np.zeros_like(x)
            outputs = {
                "a": np.where(mask, x, zero),
                "b": np.where(mask, x, other),
                "c": x[::-1].copy(),
                "d": x[3],
            }
            outputs = {name: (np.asarray(words), dtype) for name, words in outputs.items()}
            yield Case("load", f"{dtype} [{count}]", lines, inputs, outputs, {"x": (x, x, dtype)})


def store() -> Iterator[Case]:
    for dtype in DTYPES:
        for count in (16, 13):
            x, before = any_bits(dtype, (count,)), any_bits(dtype, (2 * count + 1,), 5)
            mask = np.random.default_rng(count).integers(0, 2, count).astype(np.uint8)
            after = before.copy()
            after[:count] = np.where(mask, x, before[:count])
            after[count : 2 * count] = x[::-1]
            after[-1] = x[2]
            lines = (
                f"i = tl.arange(0, {count})\n"
                "tl.store(m_ptr + i, x, mask=mask, cache_modifier='.wb', eviction_policy='evict_first')\n"
                f"tl.store(m_ptr + {2 * count} - 1 - i, x)\n"
                f"tl.store(m_ptr + {2 * count}, x[2])"
            )
            inputs = {"mask": (mask, "int1"), "x": (x, dtype)}
            yield Case("store", f"{dtype} [{count}]", lines, inputs, memory={"m": (before, after, dtype)})


def hint() -> Iterator[Case]:
    for dtype in INTEGERS:
        x = encode(np.arange(16) // 4 * 4, dtype)
        lines = "y = tl.multiple_of(tl.max_constancy(tl.max_contiguous(x, 1), 4), 4)"
        yield Case("hint", dtype, lines, {"x": (x, dtype)}, {"y": (x, dtype)})


def loops() -> Iterator[Case]:
    """Values of each type are carried by loops, chosen by branches and handed to functions, tiles and scalars."""
    for dtype in DTYPES:
        for shape in [(), (4, 4), (3, 5)]:
            x, y = any_bits(dtype, shape), any_bits(dtype, shape, 1)
            inputs, swapped = {"x": (x, dtype), "y": (y, dtype)}, {"x": (y, dtype), "y": (x, dtype)}
            lines = "for _ in range(tl.num_programs(0) * 3):\n    x, y = y, x"
            yield Case("for_loop", f"{dtype} {shape}", lines, inputs, swapped)
            lines = "n = tl.program_id(0)\nwhile n < 5:\n    x, y = y, x\n    n += 1"
            yield Case("while_loop", f"{dtype} {shape}", lines, inputs, swapped)
            lines = (
                "n = tl.num_programs(1)\nif n == 1:\n    x, y = y, x\nelse:\n    y = x\n"
                "if n > 1:\n    x = y\nz = x if n == 0 else y"
            )
            outputs = {**swapped, "z": (x, dtype)}
            yield Case("if_else", f"{dtype} {shape}", lines, inputs, outputs)
            yield Case("yield_values", f"{dtype} {shape}", lines, inputs, outputs)
            function = "@triton.jit\ndef exchanged(x, y):\n    return y, x\n"
            for op in ("call", "return_values"):
                yield Case(
                    op, f"{dtype} {shape}", "x, y = exchanged(x, y)", inputs, swapped, functions=function
                )


def counters() -> Iterator[Case]:
    """Counts in each type that bounds may have, up and down."""
    for dtype in INTEGERS:
        a, b = encode(np.array(3), dtype), encode(np.array(40), dtype)
        inputs = {"a": (a, dtype), "b": (b, dtype)}
        up, down = sum(range(3, 40, 7)), sum(range(40, 3, -6))
        lines = (
            "up = tl.full((), 0, tl.int64)\nfor i in range(a, b, 7):\n    up += i.to(tl.int64)\n"
            "down = tl.full((), 0, tl.int64)\nfor i in tl.range(b.to(tl.int32), a.to(tl.int32), -6, num_stages=3):\n"
            "    down += i"
        )
        outputs = {
            "up": (encode(np.array(up), "int64"), "int64"),
            "down": (encode(np.array(down), "int64"), "int64"),
        }
        yield Case("for_loop", f"bounds of {dtype}", lines, inputs, outputs)


def promises() -> Iterator[Case]:
    x = small_numbers("int32", (16,), low=0)
    lines = "tl.assume(tl.num_programs(0) > 0)\ntl.assume(tl.max(x, 0) < 100)\ny = x + 1"
    outputs = {"y": (x + np.uint32(1), "int32")}
    yield Case("assume", "int32", lines, {"x": (x, "int32")}, outputs)


def exchanges_through_memory() -> Iterator[Case]:
    """A value that one thread writes, others read after a barrier."""
    for dtype in DTYPES:
        x, before = any_bits(dtype, (64,)), any_bits(dtype, (64,), 3)
        lines = (
            "i = tl.arange(0, 64)\ntl.store(m_ptr + i, x)\ntl.debug_barrier()\n"
            "y = tl.load(m_ptr + (i * 37 + 11) % 64)"
        )
        outputs = {"y": (x[(np.arange(64) * 37 + 11) % 64], dtype)}
        yield Case("barrier", dtype, lines, {"x": (x, dtype)}, outputs, {"m": (before, x, dtype)})


ROWS = [
    constant, splat, arange, expand_dims, broadcast, slices, reshape, transpose, gather, butterfly, flips, bitcast,
    ptr_add, load, store, hint, loops, counters, promises, exchanges_through_memory,
]  # fmt: skip
