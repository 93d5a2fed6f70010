"""Many small cases in one kernel, on one buffer of bytes: what the conformance walk over the op table runs by.

A case is a function of the kernel language about one op: tiles that it loads, lines, tiles that it stores, and what
must be in memory afterwards, byte for byte. The kernel calls all of them, and the IR says whether each has its op.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import torch
from fp8_formats import FP8, fp8_patterns, fp8_values
from helpers import module, round_to

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("int1", *INTEGERS, *FP8, *FLOATS)
# The names that the IR gives them.
IR_NAMES = {name: name.replace("bfloat", "bf").replace("float", "fp") for name in DTYPES}
WIDTH = {
    name: 1 if name in FP8 or name == "int1" else int("".join(filter(str.isdigit, name))) // 8
    for name in DTYPES
}


def is_float(dtype: str) -> bool:
    return "float" in dtype


# --- Numbers and their bytes ---


def encode(values, dtype: str) -> np.ndarray:
    """The bits of numbers, rounded to nearest even, as unsigned integers of the width of the type."""
    values = np.asarray(values)
    if dtype == "int1":
        return (values != 0).astype(np.uint8)
    if dtype in FP8:
        return fp8_patterns(values.astype(np.float64), dtype)
    if dtype == "bfloat16":
        words = round_to(values.astype(np.float64), dtype).view(np.uint32).reshape(values.shape)
        return (words >> 16).astype(np.uint16)
    with np.errstate(all="ignore"):
        return values.astype(dtype).copy().view(f"uint{8 * WIDTH[dtype]}")


def decode(words: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that bits stand for: integers as they are, narrow floats in binary64."""
    if dtype == "int1":
        return words != 0
    if dtype in FP8:
        return fp8_values(dtype)[words]
    if dtype == "bfloat16":
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    found = words.view(dtype)
    return found.astype(np.float64) if dtype == "float16" else found


def any_bits(dtype: str, shape, seed: int = 0) -> np.ndarray:
    """Every pattern of bits that there is may be among them, NaN and infinities too."""
    rng = np.random.default_rng([seed, *dtype.encode()])
    if dtype == "int1":
        return rng.integers(0, 2, shape, np.uint8)
    return rng.integers(0, 2 ** (8 * WIDTH[dtype]), shape, np.uint64).astype(f"uint{8 * WIDTH[dtype]}")


def small_numbers(dtype: str, shape, seed: int = 0, low: int = -7, high: int = 7) -> np.ndarray:
    """The bits of whole numbers that every type holds, but that fp8e4b15 ends below 2: there they are eighths."""
    rng = np.random.default_rng([seed, *dtype.encode()])
    unsigned = dtype.startswith("uint") or dtype == "int1"
    numbers = rng.integers(0 if unsigned else low, high, shape, endpoint=True)
    return encode(numbers / 8 if dtype == "float8e4b15" else numbers, dtype)


# --- Cases ---


@dataclasses.dataclass
class Case:
    """A function of a kernel, and what it must leave in memory.

    `inputs`, `outputs` and `memory` map a name to (bits, dtype): `x` of `inputs` is a tile, loaded from `x_ptr`; `y` of
    `outputs` is what the lines must make; `memory` only has a pointer, the bits before and those after.
    """

    op: str
    about: str
    lines: str
    inputs: dict = dataclasses.field(default_factory=dict)
    outputs: dict = dataclasses.field(default_factory=dict)
    memory: dict = dataclasses.field(default_factory=dict)
    # How far the numbers of an output may be off, as an array of its shape; without one, none.
    within: dict = dataclasses.field(default_factory=dict)
    # Functions that the lines call.
    functions: str = ""


def offsets(shape: tuple[int, ...]) -> str:
    """The places of a tile's elements in row-major order."""
    text = ""
    for axis, extent in enumerate(shape):
        index = ", ".join(":" if other == axis else "None" for other in range(len(shape)))
        stride = int(np.prod(shape[axis + 1 :]))
        text += f" + tl.arange(0, {extent})[{index}] * {stride}"
    return text


class Buffer:
    """The memory of a kernel, and where the arrays of its cases are in it."""

    def __init__(self) -> None:
        self.before, self.after, self.places = bytearray(), bytearray(), []

    def place(self, before: np.ndarray, after: np.ndarray | None = None) -> int:
        start = len(self.before)
        for memory, words in ((self.before, before), (self.after, before if after is None else after)):
            memory.extend(words.tobytes())
            memory.extend(b"\x5a" * (16 + -len(memory) % 16))
        return start


def function_of(case: Case, name: str, buffer: Buffer) -> tuple[str, list]:
    """The text of the function of a case; and of each output its name, place, expected bits, type and tolerance."""
    head, tail, checks = [], [], []

    def pointer(label: str, start: int, dtype: str) -> str:
        return f"    {label}_ptr = (memory + {start}).to(tl.pointer_type(tl.{dtype}))"

    for label, (words, dtype) in case.inputs.items():
        head.append(pointer(label, buffer.place(words), dtype))
        head.append(f"    {label} = tl.load({label}_ptr{offsets(words.shape)})")
    for label, (before, after, dtype) in case.memory.items():
        start = buffer.place(before, after)
        head.append(pointer(label, start, dtype))
        checks.append((label, start, after, dtype, None))
    for label, (words, dtype) in case.outputs.items():
        start = buffer.place(np.full_like(words, 1 if dtype == "int1" else 0x5A), words)
        tail.append(pointer(f"{label}_out", start, dtype))
        shape = "".join(f"{extent}, " for extent in words.shape)
        tail.append(f"    tl.static_assert({label}.dtype == tl.{dtype}, {label}.dtype)")
        if words.shape:
            tail.append(f"    tl.static_assert(tuple({label}.shape) == ({shape}), {label}.shape)")
        tail.append(f"    tl.store({label}_out_ptr{offsets(words.shape)}, {label})")
        checks.append((label, start, words, dtype, case.within.get(label)))
    lines = [f"    {line}" for line in case.lines.strip("\n").splitlines()]
    text = [case.functions, "@triton.jit", f"def {name}(memory):", *head, *lines, *tail, "    return", ""]
    return "\n".join(text), checks


def differences(found: np.ndarray, expected: np.ndarray, dtype: str, within) -> np.ndarray:
    """Which elements are wrong: NaN is NaN whatever its bits are, all else is exact but for what is allowed."""
    wrong = found != expected
    if is_float(dtype):
        x, y = decode(found, dtype), decode(expected, dtype)
        wrong = wrong & ~(np.isnan(x) & np.isnan(y))
        if within is not None:
            with np.errstate(all="ignore"):
                wrong = wrong & ~(np.abs(x.astype(np.float64) - y.astype(np.float64)) <= within)
    return wrong


def run_cases(cases: list[Case], device: str, **options) -> set[str]:
    """Runs the cases in one kernel, checks what they leave, and gives the ops that the frontend made of each."""
    buffer = Buffer()
    parts = [function_of(case, f"case_{number}", buffer) for number, case in enumerate(cases)]
    calls = [f"    case_{number}(memory)" for number in range(len(cases))]
    text = "\n".join(dict.fromkeys(part for part, _ in parts))
    text += "\n".join(["", "@triton.jit", "def kernel(memory):", *calls, ""])
    memory = torch.frombuffer(bytearray(buffer.before), dtype=torch.uint8).clone().to(device)
    handle = module(text).kernel[(1,)](memory, **options)
    left = memory.cpu().numpy()
    wrong = []
    for case, (source, checks) in zip(cases, parts, strict=True):
        for label, start, words, dtype, within in checks:
            found = left[start : start + words.nbytes].view(words.dtype).reshape(words.shape)
            bad = differences(found, words, dtype, within)
            if bad.any():
                first = tuple(np.argwhere(np.atleast_1d(bad))[0])
                pair = [np.atleast_1d(decode(bits, dtype))[first] for bits in (found, words)]
                wrong.append(
                    f"{case.op}, {case.about}: {bad.sum()} of {bad.size} elements of {label} are wrong, the first at "
                    f"{tuple(map(int, first))}: {pair[0]!r}, expected {pair[1]!r}\n{source}"
                )
    assert not wrong, "\n".join(wrong[:5])
    expected = np.frombuffer(bytes(buffer.after), np.uint8)
    assert len(left) == len(expected)
    check_ops(cases, handle.asm["ir"])
    return {case.op for case in cases}


def check_ops(cases: list[Case], ir: str) -> None:
    """Each case has its op in its function, or in one that it calls."""
    parts = re.split(r"^(?:kernel )?(func\d+) @([^(]+)\(", ir, flags=re.M)
    names, bodies = (
        dict(zip(parts[2::3], parts[1::3], strict=True)),
        dict(zip(parts[1::3], parts[3::3], strict=True)),
    )
    for number, case in enumerate(cases):
        reached, waiting = set[str](), [names[f"case_{number}"]]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += re.findall(r"callee = (func\d+)", bodies[name])
        pattern = rf"(?:^|= ){case.op}\b"
        assert any(
            re.search(pattern, line.strip()) for name in reached for line in bodies[name].splitlines()
        ), f"{case.op}, {case.about}: the function does not have it\n" + "\n".join(
            bodies[name] for name in reached
        )
