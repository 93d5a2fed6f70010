"""Traces of kernels that call Python: they run in interpret mode, and each operation is recorded as it is done."""

from __future__ import annotations

import time
from typing import Any

from tilewright import _native
from tilewright.runtime import _interpreted
from tilewright.runtime.interpreter import hook, interpret
from tilewright.runtime.jit import JITFunction, shown_name
from tilewright.viz import _session
from tilewright.viz._config import config
from tilewright.viz._tensors import Described

_REDUCTIONS = frozenset(("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum", "reduce_or"))
_SCANS = frozenset(("cumsum", "cumprod", "associative_scan", "sort", "flip", "topk"))
_LEFT_OUT = frozenset(
    ("arange", "zeros", "full", "expand_dims", "broadcast_to", "reshape", "view", "[]", "num_programs")
)
"""Operations that are not shown, since they compute no numbers from others."""


def record(
    kernel: JITFunction[..., Any],
    grid: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    number: int,
    tensors: list[Described],
    constants: list[tuple[str, str]],
) -> Any:
    """Runs a kernel in interpret mode, and records it as the launch with this number."""
    twin = interpret(kernel)
    recording = _Recording(kernel, _interpreted.body(twin).__code__, tensors)
    began = time.perf_counter_ns()
    failure = ""
    try:
        with hook(recording):
            return twin.run(*args, grid=grid, **kwargs)
    except BaseException as error:
        failure = str(error) or type(error).__name__
        raise
    finally:
        recording.content.write(
            _session.recorder(),
            number=number,
            kernel=kernel.__name__,
            grid=recording.grid or (0, 0, 0),
            programs=config.programs,
            value_bytes=config.value_bytes,
            all_bytes=config.max_bytes,
            files=[(shown_name(kernel.file_name), kernel._src or "", kernel._first_line)],
            parameters=[(tensor.name, f"*{tensor.dtype}", tensor.address) for tensor in tensors],
            tensors=[tensor.parts() for tensor in tensors],
            constants=constants,
            nanoseconds=time.perf_counter_ns() - began,
            failure=failure,
        )


class _Recording:
    """The recorder that is called after each operation."""

    def __init__(self, kernel: JITFunction[..., Any], code: Any, tensors: list[Described]) -> None:
        self.content = _native.InterpretedTrace()
        self.grid: tuple[int, int, int] | None = None
        self._code = code
        self._file = shown_name(kernel.file_name)
        first = kernel._first_line
        self._lines = range(first, first + len((kernel._src or "").splitlines()))
        self._indentation = kernel._removed_columns
        self._tensors = tensors
        self._ops: dict[Any, int] = {}
        self._ended = time.perf_counter_ns()

    def __call__(
        self,
        name: str,
        keywords: list[str],
        operands: tuple[Any, ...],
        result: Any,
        program: tuple[int, int, int],
    ) -> None:
        took = time.perf_counter_ns() - self._ended
        if self.grid is None and (found := _native.interpreted_program()) is not None:
            x, y, z = found[1]
            self.grid = (x, y, z)
        name = name.rpartition(".")[2]
        described = _describe(name, keywords, operands, result)
        if described is not None and self.grid is not None:
            kind, values = described
            place = self._places()
            facts = [(role, value.dtype, value.size, value.shape) for role, value in values]
            key = (name, place, tuple((role, dtype, tuple(shape)) for role, dtype, _, shape in facts))
            op = self._ops.get(key)
            if op is None:
                op = self._ops[key] = self.content.add_op(name, kind, list(place), facts)
            x, y, z = program
            at = (z * self.grid[1] + y) * self.grid[0] + x
            recorded = [
                (self._parameter(value) if role == "pointer" else None, value.data) for role, value in values
            ]
            self.content.add_event(at, op, recorded, took)
        self._ended = time.perf_counter_ns()

    def _places(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """The positions of the operation in the source of the kernel."""
        places = []
        for file, _, first_line, columns, start, end in _interpreted.sites(self._code):
            line = first_line + start[0]
            if file == self._file and line in self._lines:
                # Text of the file is indented as it is there.
                shift = 1 + columns - self._indentation
                places.append((0, line, start[1] + shift, first_line + end[0], end[1] + shift))
        return tuple(places)

    def _parameter(self, value: _Value) -> int | None:
        """The tensor that the first pointer is in."""
        first = int.from_bytes((value.data or b"")[:8], "little")
        for index, tensor in enumerate(self._tensors):
            length = 1 + sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.strides, strict=True))
            if tensor.address <= first < tensor.address + length * tensor.size:
                return index
        return None


class _Value:
    """The elements of a value."""

    def __init__(self, dtype: str, size: int, shape: list[int], data: bytes | None) -> None:
        self.dtype = dtype
        self.size = size
        self.shape = shape
        self.data = data

    def spread(self, shape: list[int]) -> _Value:
        """The value in a shape that it broadcasts to."""
        if self.shape == shape or self.data is None:
            return self
        import numpy

        elements = numpy.frombuffer(self.data, dtype=f"V{self.size}").reshape(self.shape)
        return _Value(self.dtype, self.size, shape, numpy.broadcast_to(elements, shape).tobytes())


def _value(operand: Any) -> _Value | None:
    """A tensor of the language, or nothing of anything else."""
    if not isinstance(operand, _native.tensor):
        return None
    data, name, shape = operand._elements()
    dtype = operand.dtype
    if name == "pointer":
        name = f"*{getattr(dtype.scalar, 'element_ty', dtype).name}"
    extents = [int(extent) for extent in shape]
    count = 1
    for extent in extents:
        count *= extent
    return _Value(name, max(1, len(data) // max(1, count)), extents, bytes(data))


def _describe(
    name: str, keywords: list[str], operands: tuple[Any, ...], result: Any
) -> tuple[str, list[tuple[str, _Value]]] | None:
    """The kind of an operation, and its values: pointer and mask first."""
    found = _value(result)
    if name in _LEFT_OUT or (found is not None and found.dtype.startswith("*")):
        return None
    if operands and callable(operands[0]) and not isinstance(operands[0], _native.tensor):
        # The function that is called.
        operands = operands[1:]
    positional = len(operands) - len(keywords)
    named = dict(zip(keywords, operands[positional:], strict=True))
    given = operands[:positional]
    if (name in ("load", "store") or name.startswith("atomic_")) and given:
        return _access(name, given, named, found)
    results = [("result", found)] if found is not None else []
    if name == "dot":
        sides = [_value(operand) for operand in operands[:2]]
        left, right = sides
        if left is None or right is None or found is None:
            return None
        acc = _value(named.get("acc", given[2] if len(given) > 2 else None))
        shown = acc or _Value(found.dtype, found.size, found.shape, bytes(len(found.data or b"")))
        return "dot", [("a", left), ("b", right), ("acc", shown), *results]
    kind = "reduce" if name in _REDUCTIONS else "scan" if name in _SCANS else "value"
    parts = [_value(operand) for operand in operands] if kind != "value" else []
    values = [("operand", part) for part in parts if part is not None] + results
    return (kind, values) if values else None


def _access(
    name: str, given: tuple[Any, ...], named: dict[str, Any], result: _Value | None
) -> tuple[str, list[tuple[str, _Value]]] | None:
    """An access to memory."""

    def argument(place: int, key: str) -> _Value | None:
        return _value(given[place] if len(given) > place else named.get(key))

    pointer = _value(given[0])
    if pointer is None or not pointer.dtype.startswith("*"):
        return None
    is_load = name == "load"
    mask = argument(1 if is_load else 2, "mask") if name != "atomic_cas" else None
    others = [] if is_load else [argument(1, "value" if name == "store" else "val")]
    shape = pointer.shape
    for part in (mask, *others, result):
        if part is not None and len(part.shape) >= len(shape) and part.shape != shape:
            shape = part.shape
    values = [("pointer", pointer.spread(shape))]
    if mask is not None:
        values.append(("mask", mask.spread(shape)))
    values += [("operand", part.spread(shape)) for part in others if part is not None]
    values += [("result", result)] if result is not None and name != "store" else []
    return ("load" if is_load else "store" if name == "store" else "atomic"), values
