"""Rows of the conformance walk: what computes. Reductions, scans, sorting, counting, atomics, products, assembly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from fp8_formats import FP8
from helpers_conformance import (
    DTYPES,
    FLOATS,
    INTEGERS,
    WIDTH,
    Case,
    any_bits,
    decode,
    encode,
    is_float,
    small_numbers,
)

NUMBERS = (*INTEGERS, *FLOATS)

COMBINE = {
    # The one that does not commute tells whether the order is kept.
    "first": ("return a", lambda a, b: a, DTYPES),
    "last": ("return b", lambda a, b: b, DTYPES),
    "sum": ("return a + b", lambda a, b: a + b, NUMBERS),
    "product": ("return a * b", lambda a, b: a * b, INTEGERS),
    "largest": ("return tl.maximum(a, b)", np.maximum, NUMBERS),
    "least": ("return tl.where(b < a, b, a)", np.minimum, NUMBERS),
    "xor": ("return a ^ b", lambda a, b: a ^ b, ("int1", *INTEGERS)),
}


def folded(words: np.ndarray, dtype: str, axis: int, combine, reverse: bool = False) -> np.ndarray:
    """The bits of each element combined with all before it, one after the other, in the arithmetic of the type."""
    lines = np.moveaxis(words, axis, 0)
    lines = lines[::-1] if reverse else lines
    numbers = decode(lines, dtype)
    keeps = dtype in FP8 or dtype in ("bfloat16", "float16")
    result = [numbers[0]]
    with np.errstate(all="ignore"):
        for line in numbers[1:]:
            result.append(np.asarray(combine(result[-1], line)).astype(numbers.dtype))
    found = encode(np.stack(result), dtype) if not keeps or dtype not in FP8 else np.stack(result)
    if dtype in FP8:
        # Patterns, not numbers: a NaN is any of them.
        found = np.stack([encode(each, dtype) for each in result])
    found = found[::-1] if reverse else found
    return np.moveaxis(found, 0, axis)


def reduce() -> Iterator[Case]:
    for name, (body, truth, dtypes) in COMBINE.items():
        function = f"@triton.jit\ndef {name}(a, b):\n    {body}\n"
        for number, dtype in enumerate(dtypes):
            for shape in [(8, 16), (5, 7)]:
                axis = (number + len(name) + shape[0]) % 2
                x = small_numbers(dtype, shape, number)
                y = folded(x, dtype, axis, truth).take(-1, axis)
                case = Case("reduce", f"{name} of {dtype} {shape}", f"y = tl.reduce(x, {axis}, {name})")
                case.inputs, case.outputs, case.functions = {"x": (x, dtype)}, {"y": (y, dtype)}, function
                yield case


def scan() -> Iterator[Case]:
    for name, (body, truth, dtypes) in COMBINE.items():
        function = f"@triton.jit\ndef {name}(a, b):\n    {body}\n"
        for number, dtype in enumerate(dtypes):
            for shape, reverse in [((8, 16), number % 2 == 0), ((5, 7), number % 2 == 1)]:
                axis = (number + len(name) + shape[0]) % 2
                x = small_numbers(dtype, shape, number)
                y = folded(x, dtype, axis, truth, reverse)
                lines = f"y = tl.associative_scan(x, {axis}, {name}, reverse={reverse})"
                inputs, outputs = {"x": (x, dtype)}, {"y": (y, dtype)}
                yield Case("scan", f"{name} of {dtype} {shape}", lines, inputs, outputs, functions=function)


FOLD = """@triton.jit
def fold(x):
    while x > 9:
        if x % 2 == 0:
            x = x // 2
        else:
            x = x - 9
    return x
"""
SWAP = "@triton.jit\ndef swap(a0, a1, b0, b1):\n    return b0, b1, a0, a1\n"


def elements() -> Iterator[Case]:
    """Functions of elements: with branches and loops, and on several at once."""
    for dtype in INTEGERS:
        for shape in ((64,), (3, 7)):
            x = any_bits(dtype, shape) & any_bits(dtype, shape).dtype.type(0x3F)
            expected = decode(x, dtype).astype(np.int64)
            while (expected > 9).any():
                less = np.where(expected % 2 == 0, expected // 2, expected - 9)
                expected = np.where(expected > 9, less, expected)
            inputs, outputs = {"x": (x, dtype)}, {"y": (encode(expected, dtype), dtype)}
            yield Case("map", f"a loop on {dtype} {shape}", "y = tl.map_elementwise(fold, x)", inputs, outputs,
                       functions=FOLD)  # fmt: skip
    for dtype in DTYPES:
        a, b = any_bits(dtype, (3, 5)), any_bits(dtype, (3, 5))[::-1].copy()
        inputs, outputs = {"a": (a, dtype), "b": (b, dtype)}, {"p": (b, dtype), "q": (a, dtype)}
        lines = "p, q = tl.map_elementwise(swap, a, b, pack=2)"
        yield Case("map", f"pairs of {dtype}", lines, inputs, outputs, functions=SWAP)


COMPOSE = "@triton.jit\ndef compose(a, b, c, d):\n    return a * c, b * c + d\n"


def tuples() -> Iterator[Case]:
    """Affine functions composed, a pair at a time: associative, and what comes first matters."""
    for number, dtype in enumerate([*INTEGERS, "float32", "float64"]):
        for shape, axis in [((64,), 0), ((4, 8), 1), ((7, 3), 0)]:
            if is_float(dtype):
                a = encode(np.random.default_rng(number).choice([1, -1], shape), dtype)
                b = small_numbers(dtype, shape)
            else:
                a, b = any_bits(dtype, shape, 1), any_bits(dtype, shape, 2)
            x, y = (np.moveaxis(decode(words, dtype), axis, 0) for words in (a, b))
            sums = [(x[0], y[0])]
            with np.errstate(all="ignore"):
                for p, q in zip(x[1:], y[1:], strict=True):
                    sums.append((sums[-1][0] * p, sums[-1][1] * p + q))
            p, q = (np.moveaxis(encode(np.stack(part), dtype), 0, axis) for part in zip(*sums, strict=True))
            inputs = {"a": (a, dtype), "b": (b, dtype)}
            lines = f"p, q = tl.associative_scan((a, b), {axis}, compose)"
            outputs = {"p": (p, dtype), "q": (q, dtype)}
            yield Case("scan", f"pairs of {dtype} {shape}", lines, inputs, outputs, functions=COMPOSE)
            outputs = {"p": (p.take(-1, axis), dtype), "q": (q.take(-1, axis), dtype)}
            lines = f"p, q = tl.reduce((a, b), {axis}, compose)"
            yield Case("reduce", f"pairs of {dtype} {shape}", lines, inputs, outputs, functions=COMPOSE)


def histogram() -> Iterator[Case]:
    for dtype in INTEGERS:
        for count, bins in [(64, 8), (50, 5), (16, 16)]:
            x = small_numbers(dtype, (count,), bins, -3, 20)
            mask = np.random.default_rng(bins).integers(0, 2, count).astype(np.uint8)
            numbers = decode(x, dtype).astype(np.int64)
            counts = [[((numbers == n) & kept).sum() for n in range(bins)] for kept in (True, mask != 0)]
            lines = f"y = tl.histogram(x, {bins})\nz = tl.histogram(x, {bins}, mask=mask)"
            y, z = (encode(np.array(each), "int32") for each in counts)
            inputs = {"x": (x, dtype), "mask": (mask, "int1")}
            yield Case("histogram", f"{dtype} {count}", lines, inputs, {"y": (y, "int32"), "z": (z, "int32")})


def bitonic() -> Iterator[Case]:
    """Lines of any extent, in order; the best of them, any number."""
    shapes = [((4, 32), 1, 4), ((3, 11), 1, 5), ((13, 4), 0, 13), ((6, 16), 1, 1), ((1, 24), 1, 16)]
    for number, dtype in enumerate([name for name in DTYPES if name not in FP8]):
        for shape, axis, k in shapes:
            x = small_numbers(dtype, shape, number)
            up = np.sort(decode(x, dtype), axis)
            down = np.flip(up, axis)
            lines = (
                f"a = tl.sort(x, {axis})\nb = tl.sort(x, {axis}, descending=True)\n"
                f"c = tl.topk(x, {k}, {axis})\nd = tl.topk(x, {k}, {axis}, descending=False)"
            )
            wanted = {"a": up, "b": down, "c": down.take(range(k), axis), "d": up.take(range(k), axis)}
            outputs = {name: (encode(numbers, dtype), dtype) for name, numbers in wanted.items()}
            if k < shape[axis] and (dtype == "int1" or dtype.endswith(("int8", "int16", "float16"))):
                # The best are found as `max` finds them, whose type they have.
                best = "float32" if "float" in dtype else "int32"
                outputs |= {name: (encode(wanted[name].astype(best), best), best) for name in "cd"}
            yield Case("bitonic", f"{dtype} {shape}", lines, {"x": (x, dtype)}, outputs)


# --- Atomic operations ---

ATOMIC = ("int16", "uint16", "int32", "uint32", "int64", "uint64", *FLOATS)
KINDS = {
    "add": (lambda x, y: x + y, ATOMIC),
    "max": (np.maximum, ATOMIC),
    "min": (np.minimum, ATOMIC),
    "xchg": (lambda x, y: y, ATOMIC),
    "and": (np.bitwise_and, ATOMIC[:6]),
    "or": (np.bitwise_or, ATOMIC[:6]),
    "xor": (np.bitwise_xor, ATOMIC[:6]),
}
SEMANTICS = [f"sem={sem!r}, scope={scope!r}" for sem in ("acq_rel", "acquire", "release", "relaxed")
             for scope in ("gpu", "cta", "sys")]  # fmt: skip


def combined(truth, x, y, dtype):
    with np.errstate(all="ignore"):
        return encode(np.asarray(truth(decode(x, dtype), decode(y, dtype))), dtype)


def atomic_rmw() -> Iterator[Case]:
    number = 0
    for kind, (truth, dtypes) in KINDS.items():
        for dtype in dtypes:
            for count in (32, 11):
                number += 1
                how = SEMANTICS[number % len(SEMANTICS)]
                x, v = small_numbers(dtype, (count,), number), small_numbers(dtype, (count,), number + 1)
                mask = np.random.default_rng(number).integers(0, 2, count).astype(np.uint8)
                place = np.random.default_rng(number).permutation(count)
                new = combined(truth, x[place], v, dtype)
                after = x.copy()
                after[place] = np.where(mask, new, x[place])
                old = np.where(mask, x[place], np.zeros_like(x))
                inputs = {"v": (v, dtype), "mask": (mask, "int1"), "i": (encode(place, "int32"), "int32")}
                lines = f"y = tl.atomic_{kind}(m_ptr + i, v, mask=mask, {how})"
                case = Case("atomic_rmw", f"{kind} of {dtype} [{count}], {how}", lines, inputs)
                case.outputs, case.memory = {"y": (old, dtype)}, {"m": (x, after, dtype)}
                yield case
            yield from of_scalars(kind, truth, dtype, how)


def of_scalars(kind, truth, dtype, how) -> Iterator[Case]:
    """One address that many elements meet at, and a scalar, whose result every thread has."""
    x, v = small_numbers(dtype, (2,), 1), small_numbers(dtype, (24,), 2)
    after = x.copy()
    after[0] = combined(truth, x[:1], v[3:4], dtype)[0]
    for n in range(1 if kind == "xchg" else len(v)):
        after[1] = combined(truth, after[1:], v[n : n + 1], dtype)[0]
    mask = ", mask=tl.arange(0, 24) == 0" if kind == "xchg" else ""
    lines = (
        f"s = tl.atomic_{kind}(m_ptr, tl.load(v_ptr + 3), {how})\n"
        f"tl.atomic_{kind}(m_ptr + 1 + tl.zeros((24,), tl.int32), v{mask}, {how})\n"
        f"z = tl.atomic_{kind}(m_ptr, tl.load(v_ptr + 3), mask=s != s, {how})\n"
        "y = tl.broadcast_to(s, (8, 8))"
    )
    zero = np.zeros((), x.dtype)
    outputs = {"y": (np.broadcast_to(x[0], (8, 8)), dtype), "z": (zero, dtype)}
    yield Case(
        "atomic_rmw",
        f"{kind} of {dtype}, scalar",
        lines,
        {"v": (v, dtype)},
        outputs,
        {"m": (x, after, dtype)},
    )


def atomic_cas() -> Iterator[Case]:
    for number, dtype in enumerate(ATOMIC):
        how = SEMANTICS[number]
        for count in (32, 11):
            x, v = any_bits(dtype, (count + 1,)), any_bits(dtype, (count,), 4)
            compared = np.where(np.arange(count) % 3 == 0, x[:count] ^ np.asarray(1, x.dtype), x[:count])
            after = np.append(np.where(np.arange(count) % 3 == 0, x[:count], v), v[0])
            inputs = {"c": (compared, dtype), "v": (v, dtype)}
            lines = (
                f"y = tl.atomic_cas(m_ptr + tl.arange(0, {count}), c, v, {how})\n"
                f"s = tl.load(m_ptr + {count})\n"
                f"z = tl.atomic_cas(m_ptr + {count}, s, tl.load(v_ptr), {how})"
            )
            outputs = {"y": (x[:count], dtype), "z": (x[count], dtype)}
            yield Case("atomic_cas", dtype, lines, inputs, outputs, {"m": (x, after, dtype)})


def atomic_accesses() -> Iterator[Case]:
    for dtype in DTYPES:
        for count in (32, 11):
            x, v = any_bits(dtype, (count,)), any_bits(dtype, (count,), 4)
            mask = np.random.default_rng(count).integers(0, 2, count).astype(np.uint8)
            inputs = {"v": (v, dtype), "mask": (mask, "int1")}
            lines = (
                f"i = tl.arange(0, {count})\ny = tl.atomic_load(m_ptr + i, mask=mask)\n"
                "z = tl.atomic_load(m_ptr + 2, sem='relaxed', scope='cta')"
            )
            zero = np.zeros_like(x)
            outputs = {"y": (np.where(mask, x, zero), dtype), "z": (x[2], dtype)}
            yield Case("atomic_load", f"{dtype} [{count}]", lines, inputs, outputs, {"m": (x, x, dtype)})
            after = np.where(mask, v, x)
            lines = f"tl.atomic_store(m_ptr + tl.arange(0, {count}), v, mask=mask, scope='sys')"
            yield Case("atomic_store", f"{dtype} [{count}]", lines, inputs, memory={"m": (x, after, dtype)})
        if dtype in ATOMIC[2:6]:
            x = small_numbers(dtype, (2,), 3, 1, 7)
            x[1] += 1
            lines = (
                "y = tl.atomic_poll(m_ptr, tl.load(m_ptr))\n"
                "z = tl.atomic_poll(m_ptr + 1, tl.load(m_ptr + 1) + 1, timeout_ns=2000, sem='relaxed')"
            )
            outputs = {"y": (np.array(1, np.uint8), "int1"), "z": (np.array(0, np.uint8), "int1")}
            yield Case("atomic_poll", dtype, lines, outputs=outputs, memory={"m": (x, x, dtype)})


# --- Products ---

TAKEN = {
    **dict.fromkeys(itertools.product(("int8", "uint8"), repeat=2), ("int32",)),
    **dict.fromkeys(itertools.product(FP8, repeat=2), ("float32", "float16")),
    ("float16", "float16"): ("float32", "float16"),
    ("bfloat16", "bfloat16"): ("float32",),
    ("float32", "float32"): ("float32",),
    ("float64", "float64"): ("float64",),
}
SIZES = [(16, 16, 32), (4, 8, 2), (3, 5, 7)]


def dot() -> Iterator[Case]:
    """Whole numbers (of fp8e4b15, eighths) so small that every product and sum is exact, in every precision."""
    number = 0
    for (left, right), outs in TAKEN.items():
        for out, (m, n, k) in itertools.product(outs, SIZES):
            number += 1
            batch = (2,) if number % 3 == 0 else ()
            a, b = (
                small_numbers(left, (*batch, m, k), number),
                small_numbers(right, (*batch, k, n), number + 1),
            )
            c = small_numbers(out, (*batch, m, n), number + 2)
            x, y, z = (
                decode(words, dtype).astype(np.float64) for words, dtype in ((a, left), (b, right), (c, out))
            )
            precision = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")[number % 5]
            more = f", input_precision={precision!r}" if "float32" == left else ""
            more += f", max_num_imprecise_acc={k}" if left in FP8 and number % 2 else ""
            lines = f"y = tl.dot(a, b, c, out_dtype=tl.{out}{more})"
            inputs = {"a": (a, left), "b": (b, right), "c": (c, out)}
            case = Case("dot", f"{left} by {right} in {out}, {batch} {m} {n} {k}{more}", lines, inputs)
            case.outputs = {"y": (encode(x @ y + z, out), out)}
            yield case


def precisions() -> Iterator[Case]:
    """The error of each precision of fp32, against binary64."""
    rng = np.random.default_rng(5)
    a, b = (encode(rng.standard_normal(shape), "float32") for shape in ((32, 64), (64, 16)))
    x, y = (decode(words, "float32").astype(np.float64) for words in (a, b))
    scale = np.abs(x) @ np.abs(y)
    for precision, digits in {"tf32": 10, "tf32x3": 20, "ieee": 21, "bf16x3": 14, "bf16x6": 20}.items():
        case = Case("dot", precision, f"y = tl.dot(a, b, input_precision={precision!r})")
        case.inputs = {"a": (a, "float32"), "b": (b, "float32")}
        case.outputs = {"y": (encode(x @ y, "float32"), "float32")}
        case.within = {"y": scale * 2.0**-digits}
        yield case


# --- Assembly ---


def assembly() -> Iterator[Case]:
    for dtype in DTYPES:
        x = any_bits(dtype, (32,))
        for text, constraints, pack, truth in forms_of(dtype, x):
            for op, is_pure in (("inline_asm", True), ("volatile_asm", False)):
                lines = (
                    f"y = tl.inline_asm_elementwise({text!r}, {constraints!r}, [x], dtype=tl.{dtype}, "
                    f"is_pure={is_pure}, pack={pack})"
                )
                yield Case(
                    op, f"{dtype}, {constraints}, {pack}", lines, {"x": (x, dtype)}, {"y": (truth, dtype)}
                )


def forms_of(dtype: str, x: np.ndarray):
    """Each bit changed, in every register that holds elements of the type."""
    if dtype == "int1":
        return [("not.pred $0, $1;", "=b,b", 1, 1 - x)]
    forms = {
        1: [("not.b32 $0, $1;", "=r,r", 4, ~x)],
        2: [("not.b16 $0, $1;", "=h,h", 1, ~x), ("not.b32 $0, $1;", "=r,r", 2, ~x)],
        4: [("not.b32 $0, $1;", "=r,r", 1, ~x)],
        8: [("not.b64 $0, $1;", "=l,l", 1, ~x)],
    }[WIDTH[dtype]]
    if dtype in ("float32", "float64"):
        letter, size = ("f", 32) if dtype == "float32" else ("d", 64)
        sign = np.asarray(1 << (size - 1), x.dtype)
        forms.append((f"neg.f{size} $0, $1;", f"={letter},{letter}", 1, x ^ sign))
    return forms


def checks() -> Iterator[Case]:
    for number, dtype in enumerate(DTYPES):
        x = any_bits(dtype, (16,), number)
        lines = "tl.device_assert(tl.arange(0, 16) < 16, 'never')\ntl.device_assert(tl.num_programs(0) == 1)\ny = x"
        yield Case("assert", dtype, lines, {"x": (x, dtype)}, {"y": (x, dtype)})


ROWS = [
    reduce, scan, elements, tuples, histogram, bitonic, atomic_rmw, atomic_cas, atomic_accesses, dot, precisions,
    assembly, checks,
]  # fmt: skip
