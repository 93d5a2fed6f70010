"""Records of scopes inside of kernels. A record has the number of the scope, the program, and the time.
``triton.profiler.language`` writes the records to memory whose address is part of the kernel's code; a session reads
them after each launch.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from tilewright import _native

CAPACITY = 1 << 18
"""The maximum number of records of a launch; further ones are lost, and counted."""

WORDS = 3
"""Words of a record: twice the number of the scope, plus 1 where it ends; the program; the time."""

NAMES: list[str] = []
"""The scopes by their numbers."""


def number_of(name: str) -> int:
    """The number of a scope."""
    if name not in NAMES:
        NAMES.append(name)
    return NAMES.index(name)


class Interval(NamedTuple):
    """A program's time in a scope, named with those around it; ``inner`` is the part in nested scopes."""

    path: tuple[str, ...]
    program: int
    start: int
    end: int
    inner: int


class _Open:
    """A scope that has not ended yet, and the time of the scopes in it."""

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.start = start
        self.inner = 0


class Records:
    """The records of a launch's scopes. ``scale`` is cycles for each unit of time."""

    def __init__(
        self, words: list[int], lost: int, scale: float, programs: frozenset[int] | None = None
    ) -> None:
        self.lost = lost
        self.scale = scale
        self.intervals: list[Interval] = []
        self.not_ended: set[str] = set()
        self.not_begun: set[str] = set()
        stacks: dict[int, list[_Open]] = {}
        # The records of one program are in the order in which the program wrote them.
        for at in range(0, len(words) - WORDS + 1, WORDS):
            what, program, time = words[at : at + WORDS]
            if programs is None or program in programs:
                self._add(stacks.setdefault(program, []), NAMES[what >> 1], what % 2 == 1, program, time)
        if not lost:
            self.not_ended = {one.name for stack in stacks.values() for one in stack}

    def _add(self, stack: list[_Open], name: str, is_end: bool, program: int, time: int) -> None:
        if not is_end:
            stack.append(_Open(name, time))
            return
        # Scopes may overlap: an end belongs to the last open scope with its name.
        at = next((at for at in reversed(range(len(stack))) if stack[at].name == name), None)
        if at is None:
            self.not_begun.add(name)
            return
        path = tuple(one.name for one in stack[: at + 1])
        ended = stack.pop(at)
        self.intervals.append(Interval(path, program, ended.start, time, ended.inner))
        if at:
            stack[at - 1].inner += time - ended.start

    def summary(self) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
        """Yields each scope with its metrics, without nested scopes: count, time, and the time of a program."""
        sums: dict[tuple[str, ...], list[float]] = {}
        programs: dict[tuple[str, ...], set[int]] = {}
        for one in self.intervals:
            sums.setdefault(one.path, []).append((one.end - one.start - one.inner) * self.scale)
            programs.setdefault(one.path, set()).add(one.program)
        for path, cycles in sums.items():
            each = sum(cycles) / len(programs[path])
            yield path, {"scopes": len(cycles), "cycles": sum(cycles), "normalized_cycles": each}

    def complaints(self) -> list[str]:
        """The warnings about these records, a line each."""
        lines = []
        if self.lost:
            lines.append(
                f"warning: {self.lost} records of scopes in kernels did not fit, of {CAPACITY} a launch"
            )
        for name in sorted(self.not_ended):
            others = difflib.get_close_matches(name, self.not_begun, 1)
            hint = f"; scope '{others[0]}' was ended and not begun" if others else ""
            lines.append(f"warning: scope '{name}' in a kernel was begun and not ended{hint}")
        lines += [
            f"warning: scope '{name}' in a kernel was ended and not begun" for name in sorted(self.not_begun)
        ]
        return lines


class Memory:
    """The memory that kernels write records to: main memory for the CPU and the simulator, else memory of the GPU."""

    def __init__(self) -> None:
        words = 1 + CAPACITY * WORDS
        self.tensor: Any = None
        if _native.device().startswith("cuda"):
            try:
                import torch
            except ImportError as error:
                raise RuntimeError("scopes in kernels on a GPU need torch, for memory to write to") from error
            self.tensor = torch.zeros(words, dtype=torch.int64, device=_native.device())
            self.address: int = self.tensor.data_ptr()
        else:
            self.address = _native.record_memory(words)

    def take(self, programs: frozenset[int] | None = None) -> Records:
        """Returns the records since the last call; the launches have ended."""
        if self.tensor is None:
            count, words = _native.take_records(WORDS)
            return Records(words, max(count - CAPACITY, 0), 1.0, programs)
        count = int(self.tensor[0])
        words = self.tensor[1 : 1 + WORDS * min(count, CAPACITY)].tolist()
        self.tensor[0] = 0
        # Nanoseconds; the clock of multiprocessors is in kHz.
        scale = _native.device_properties()["sm_clock_rate"] / 1e6
        return Records(words, max(count - CAPACITY, 0), scale, programs)


def complain(records: Records) -> None:
    """Prints warnings about records on stderr."""
    for line in records.complaints():
        print(line, file=sys.stderr)
