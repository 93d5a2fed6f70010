"""Helpers of the language's tests: element types, sample data, rounding, comparison, kernels from text.

An array of the oracle is a numpy array whose values are exactly those of the element type: fp16, fp32 and fp64 as they
are, bf16 as float32, fp8 as float32, int1 as bool. `to_device` and `to_host` convert to and from what kernels take.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

INTS = ("int8", "int16", "int32", "int64")
UINTS = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = INTS + UINTS
DTYPES = ("int1", *INTEGERS, *FLOATS)

TORCH = {name: getattr(torch, name) for name in INTEGERS + FLOATS} | {
    "int1": torch.bool,
    "float8e5": torch.float8_e5m2,
    "float8e4nv": torch.float8_e4m3fn,
    "float8e4b8": torch.float8_e4m3fnuz,
    "float8e5b16": torch.float8_e5m2fnuz,
}
# The type of the oracle's arrays.
CARRIER = {name: np.dtype(name) for name in (*INTEGERS, "float16", "float32", "float64")} | {
    "int1": np.dtype(bool),
    "bfloat16": np.dtype(np.float32),
}
# Bits of the significand with the hidden one, smallest exponent of a normal number, largest exponent.
FLOAT_FORMAT = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("uint") or dtype == "int1"


def bits(dtype: str) -> int:
    return {"int1": 1, "bfloat16": 16}.get(dtype) or int("".join(c for c in dtype if c.isdigit()))


# --- Promotion: the rules of the language, as its documentation and its reference state them ---


def promote(a: str, b: str, *, division: bool = False) -> str | None:
    """The element type in which two tensors are computed; None where the language refuses the pair."""
    pair = {a, b}
    if "float64" in pair:
        return "float64"
    if division and (is_float(a) or is_float(b)):
        return "float32"
    for wide in ("float32", "float16"):
        if wide in pair:
            return wide
    if "bfloat16" in pair:
        return "bfloat16" if a == b else "float32"
    if is_unsigned(a) == is_unsigned(b):
        return a if bits(a) > bits(b) else b
    if division:
        return None
    unsigned, signed = (a, b) if is_unsigned(a) else (b, a)
    return unsigned if bits(unsigned) >= bits(signed) else signed


def scalar_dtype(value: bool | int | float) -> str:
    """The element type that a Python scalar has on its own."""
    if isinstance(value, bool):
        return "int1"
    if isinstance(value, int):
        limits = (("int32", -(2**31), 2**31), ("uint32", 0, 2**32), ("int64", -(2**63), 2**63))
        return next((name for name, low, high in limits if low <= value < high), "uint64")
    is_single = (
        value == 0 or not np.isfinite(value) or 2.0**-126 <= abs(value) <= float(np.finfo(np.float32).max)
    )
    return "float32" if is_single else "float64"


def promote_scalar(tensor: str, value: bool | int | float, *, division: bool = False) -> str:
    """The element type in which a tensor and a Python scalar are computed: the scalar counts only by a higher kind."""
    kinds = [lambda d: d == "int1", lambda d: not is_float(d), is_float]
    kind = [
        next(rank for rank, test in enumerate(kinds) if test(dtype))
        for dtype in (tensor, scalar_dtype(value))
    ]
    other = tensor if kind[1] <= kind[0] else scalar_dtype(value)
    return promote(tensor, other, division=division)


# --- Rounding ---


def round_to(values, dtype: str) -> np.ndarray:
    """Binary64 or wider values rounded once, to nearest even, as an array of the oracle."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return _round_to_bfloat16(np.asarray(values, np.float64))
        return np.asarray(values).astype(CARRIER[dtype])


def _round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    # First to binary32 by "round to odd", which keeps what the second rounding needs to know.
    with np.errstate(all="ignore"):
        near = values.astype(np.float32)
        down = np.where(
            np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float32(0)), near
        )
    word = np.ascontiguousarray(down).view(np.uint32)
    word = np.where((down != values) & ~np.isnan(values), word | 1, word)
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


def convert(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers of any element type as another: integers wrap, floats round once."""
    if dtype == "int1":
        return values != 0
    if not is_float(dtype):
        return values.astype(CARRIER[dtype])
    if values.dtype.kind in "iu" and dtype in ("float16", "bfloat16"):
        # Digits that binary64 cannot hold become one sticky bit, so that the second rounding is the only one.
        rest = (values & np.asarray(0xFFF, values.dtype)) != 0 if values.dtype.itemsize == 8 else np.False_
        large = np.abs(values.astype(np.float64)) >= 2.0**53
        cut = (values >> np.asarray(12, values.dtype)) | rest.astype(values.dtype)
        values = np.where(large, cut.astype(np.float64) * 4096, values.astype(np.float64))
    return round_to(values, dtype)


# --- Data ---


def special_values(dtype: str) -> np.ndarray:
    """Zeros, ones, the ends of the range and what lies beside them."""
    if dtype == "int1":
        return np.array([False, True])
    if not is_float(dtype):
        info = np.iinfo(dtype)
        width = bits(dtype)
        found = [0, 1, 2, 3, 7, width - 1, width, width + 1, info.max, info.max - 1, info.min, info.min + 1]
        found += [] if is_unsigned(dtype) else [-1, -2, -7]
        return np.array([value for value in found if info.min <= value <= info.max], dtype)
    digits, low, high = FLOAT_FORMAT[dtype]
    largest = (2 - 2.0 ** (1 - digits)) * 2.0**high
    positive = [0.0, 1.0, 1 + 2.0 ** (1 - digits), 0.5, 2.0, 3.0, 7.5, 1 / 3, np.pi, 88.0, 100.5, largest]
    positive += [2.0**low, 2.0 ** (low + 1 - digits), 2.0**low - 2.0 ** (low + 1 - digits), np.inf]
    both = np.array([sign * value for value in positive for sign in (1, -1)] + [np.nan])
    return round_to(both, dtype)


def random_values(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Numbers over the whole range of a type: floats have random bits, so all magnitudes occur, NaN and inf too."""
    rng = np.random.default_rng([seed, *dtype.encode()])
    if dtype == "int1":
        return rng.integers(0, 2, count).astype(bool)
    words = rng.integers(0, 2**64, count, dtype=np.uint64)
    if dtype == "bfloat16":
        return (words.astype(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if is_float(dtype):
        return words.astype(f"uint{bits(dtype)}").view(dtype)
    values = words.astype(dtype)
    # Half of them small, where carries and quotients are interesting.
    return np.where(rng.integers(0, 2, count, dtype=bool), values, values % np.asarray(23, dtype))


def moderate_values(dtype: str, shape, seed: int = 0) -> np.ndarray:
    """Numbers of moderate size: normal deviates, or integers from -9 (0 where unsigned) to 9."""
    rng = np.random.default_rng([seed, *dtype.encode()])
    if dtype == "int1":
        return rng.integers(0, 2, shape).astype(bool)
    if is_float(dtype):
        return round_to(rng.standard_normal(shape), dtype)
    return rng.integers(0 if is_unsigned(dtype) else -9, 10, shape).astype(dtype)


def sample(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Special values, then random ones."""
    special = special_values(dtype)
    return np.concatenate([special, random_values(dtype, count, seed)])


def pairs(a: str, b: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of special values, then random pairs."""
    left, right = special_values(a), special_values(b)
    x, y = np.repeat(left, len(right)), np.tile(right, len(left))
    return (
        np.concatenate([x, random_values(a, count, seed)]),
        np.concatenate([y, random_values(b, count, seed + 1)]),
    )


# --- Across the boundary ---


def to_device(values: np.ndarray, dtype: str, device: str = "cpu") -> torch.Tensor:
    """A tensor of this element type with these numbers."""
    return torch.from_numpy(np.array(values)).to(TORCH[dtype]).to(device)


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor as an array of the oracle."""
    if tensor.dtype == torch.bfloat16 or str(tensor.dtype).startswith("torch.float8"):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def empty(shape, dtype: str, device: str = "cpu") -> torch.Tensor:
    """A tensor full of a pattern that no test expects."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = torch.full((count * max(TORCH[dtype].itemsize, 1),), 0x5A, dtype=torch.uint8, device=device)
    if dtype == "int1":
        return raw.ne(0).reshape(shape)
    return raw.view(TORCH[dtype]).reshape(shape)


# --- Comparison ---


def assert_same(actual, expected, *context) -> None:
    """Equal values; NaN equals NaN, and the signs of zeros count."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    same = actual == expected
    if actual.dtype.kind == "f":
        both_nan = np.isnan(actual) & np.isnan(expected)
        same = (same & (np.signbit(actual) == np.signbit(expected))) | both_nan
    _report(~same, actual, expected, context)


def assert_within(actual, truth, dtype: str, ulps: float | np.ndarray, *context) -> None:
    """At most `ulps` units in the last place of `dtype` from the truth, which is of higher precision."""
    actual, truth = np.asarray(actual), np.asarray(truth)
    assert actual.shape == truth.shape, (actual.shape, truth.shape)
    digits, low, high = FLOAT_FORMAT[dtype]
    wide = np.longdouble
    with np.errstate(all="ignore"):
        exact = truth.astype(wide)
        exponent = np.frexp(np.where(np.isfinite(exact) & (exact != 0), exact, 1))[1] - 1
        unit = np.ldexp(wide(1), np.clip(exponent, low, high) + 1 - digits)
        largest = (2 - wide(2) ** (1 - digits)) * wide(2) ** high
        # An infinity counts as the number after the largest.
        found = np.clip(actual.astype(wide), -(wide(2) ** (high + 1)), wide(2) ** (high + 1))
        exact = np.clip(exact, -(wide(2) ** (high + 1)), wide(2) ** (high + 1))
        bad = np.abs(found - exact) > (ulps + 0.5 * (np.abs(exact) > largest)) * unit
    bad = np.where(np.isnan(truth), ~np.isnan(actual), bad | np.isnan(actual))
    _report(bad, actual, truth, (*context, f"within {np.max(ulps)} ulp of {dtype}"))


def _report(bad: np.ndarray, actual: np.ndarray, expected: np.ndarray, context: tuple) -> None:
    if not bad.any():
        return
    lines = [f"{bad.sum()} of {bad.size} elements differ {context[1:] if context else ''}"]
    inputs = context[0] if context and isinstance(context[0], (tuple, list)) else ()
    for where in itertools.islice(zip(*np.nonzero(np.atleast_1d(bad)), strict=True), 5):
        given = [repr(np.broadcast_to(value, bad.shape or (1,))[where]) for value in inputs]
        found, wanted = np.atleast_1d(actual)[where], np.atleast_1d(expected)[where]
        lines.append(f"  at {tuple(map(int, where))}: {', '.join(given)} -> {found!r}, expected {wanted!r}")
    raise AssertionError("\n".join(lines))


# --- Kernels from text ---

PRELUDE = "import tilewright as triton\nimport tilewright.language as tl\n\n\n"

ELEMENTWISE = """@triton.jit
def kernel({parameters}, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
{loads}
    result = {expression}
    tl.static_assert(result.dtype == out.dtype.element_ty)
    tl.store(out + i, result, mask=mask)
"""


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    _folder.keep = folder  # Removed when the process ends.
    return Path(folder.name)


@functools.cache
def module(text: str):
    """The module with this text (after the imports of the language), from a file, so that it has a source."""
    name = "kernel_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _folder() / f"{name}.py"
    path.write_text(PRELUDE + text)
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def elementwise(
    expression: str, inputs: dict, out: str, *, device: str = "cpu", block: int = 512
) -> np.ndarray:
    """`expression` over tensors of one size; `inputs` maps a name to (values, dtype). The result must have type `out`.

    Elements beyond the end are loaded as 0.
    """
    values = [value for value, _ in inputs.values()]
    count = len(values[0])
    text = ELEMENTWISE.format(
        parameters=", ".join(f"{name}_ptr" for name in inputs),
        loads="\n".join(f"    {name} = tl.load({name}_ptr + i, mask=mask)" for name in inputs),
        expression=expression,
    )
    tensors = [to_device(value, dtype, device) for value, dtype in inputs.values()]
    result = empty((count,), out, device)
    module(text).kernel[(-(-count // block),)](*tensors, result, count, BLOCK=block)
    return to_host(result)


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Checks a trace against what Perfetto and chrome://tracing take; gives its complete events (``"ph": "X"``).

    See "Trace Event Format": names are texts, times are microseconds and not negative, tracks are integers, and
    the events of one track lie one in the other or beside each other.
    """
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    complete = []
    for event in trace["traceEvents"]:
        assert type(event["name"]) is str
        assert type(event["pid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert type(event["args"]["name"]) is str
            continue
        assert event["ph"] == "X"
        assert type(event["tid"]) is int
        assert type(event["args"]) is dict
        assert all(type(event[key]) in (int, float) and event[key] >= 0 for key in ("ts", "dur"))
        complete.append(event)
    for track in {(event["pid"], event["tid"]) for event in complete}:
        open_: list[float] = []
        own = [event for event in complete if (event["pid"], event["tid"]) == track]
        for event in sorted(own, key=lambda event: (event["ts"], -event["dur"])):
            while open_ and open_[-1] <= event["ts"] + 1e-3:
                open_.pop()
            assert not open_ or event["ts"] + event["dur"] <= open_[-1] + 1e-3, event
            open_.append(event["ts"] + event["dur"])
    return complete
