"""The measurements of launches, which ``tilewright profile`` and the sessions of ``triton.profiler`` share.

The native module returns each measurement once. While the command measures the whole program, this module therefore
keeps what sessions take, and sessions do not stop the measuring.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from typing import Any

from tilewright import _native

_Profile = dict[str, Any]
_Kernel = dict[str, Any]


class Measurements:
    """The measurements of this process, and those of them that the command keeps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: _Profile | None = None
        self._gpu: str | None = None

    @property
    def has_command(self) -> bool:
        """Returns whether ``tilewright profile`` measures the whole program."""
        return self._kept is not None

    def begin_command(self, gpu: str | None) -> None:
        """Measures the whole program. ``gpu`` is the GPU for which simulated launches are estimated."""
        with self._lock:
            self._kept, self._gpu = _empty(), gpu
        _start()

    def end_command(self) -> _Profile:
        """Stops measuring; returns the measurements of the whole program."""
        _native.stop_profile()
        self.take()
        with self._lock:
            kept, self._kept = self._kept, None
        return _empty() if kept is None else kept

    def set_measured(self, is_measured: bool) -> None:
        """Starts or stops measuring for the sessions."""
        if is_measured:
            _start()
        elif not self.has_command:
            _native.stop_profile()

    def take(self) -> _Profile:
        """Returns the measurements since the last call."""
        with self._lock:
            text = _native.take_profile(self._gpu)
            if self._kept is not None:
                # The caller and the kept measurements share no object: both are changed.
                add_profile(self._kept, json.loads(text))
        taken: _Profile = json.loads(text)
        return taken


def _empty() -> _Profile:
    return {"kernels": [], "launches": [], "notes": []}


def _start() -> None:
    from tilewright._profile import cupti_folders

    _native.start_profile(cupti_folders())


def add_profile(whole: _Profile, part: _Profile) -> None:
    """Adds a later part of a program's measurements. Two kernels of one part remain two kernels."""
    numbers: list[int] = []
    for kernel in part["kernels"]:
        number = _number_of(kernel, whole["kernels"], set(numbers))
        if number is None:
            number = len(whole["kernels"])
            whole["kernels"].append(kernel)
        else:
            _add_kernel(whole["kernels"][number], kernel)
        numbers.append(number)
    whole["launches"] += [{**launch, "kernel": numbers[launch["kernel"]]} for launch in part["launches"]]
    whole["notes"] += [note for note in part["notes"] if note not in whole["notes"]]


def _number_of(kernel: _Kernel, known: list[_Kernel], used: set[int]) -> int | None:
    """Returns the number of the known kernel with the properties of this one, preferably with equal steps."""
    numbers = [
        number
        for number, one in enumerate(known)
        if number not in used and _properties(one) == _properties(kernel) and _share_lines(one, kernel)
    ]
    equal = (number for number in numbers if _steps(known[number]) == _steps(kernel))
    return next(equal, next(iter(numbers), None))


def _properties(kernel: _Kernel) -> list[Any]:
    names = ("name", "form", "device", "target", "threads", "shared", "registers", "spills")
    return [kernel.get(name) for name in names]


def _steps(kernel: _Kernel) -> list[Any]:
    return [_step(step) for step in kernel["steps"]]


def _step(step: dict[str, Any]) -> Any:
    return step["name"], step["lines"], step["machineCode"]


def _lines(kernel: _Kernel) -> set[tuple[str, int]]:
    lines = {(file, line) for step in kernel["steps"] for file, line in step["lines"]}
    return lines | {_line(line) for line in kernel.get("sim", {}).get("lines", ()) if line["line"]}


def _line(line: dict[str, Any]) -> Any:
    return line["file"], line["line"]


def _share_lines(one: _Kernel, other: _Kernel) -> bool:
    """Returns whether two kernels may have the same source: their steps have a common line, or one has no lines."""
    first, second = _lines(one), _lines(other)
    return not first or not second or not first.isdisjoint(second)


def _add_kernel(whole: _Kernel, part: _Kernel) -> None:
    whole["launches"] += part["launches"]
    _add_rows(whole["steps"], part["steps"], _step)
    if (sim := part.get("sim")) is None:
        return
    if "sim" in whole:
        _add_simulated(whole["sim"], sim)
    else:
        whole["sim"] = sim


def _add_rows(rows: list[dict[str, Any]], later: list[dict[str, Any]], key: Callable[[Any], Any]) -> None:
    """Adds the numbers of rows with equal keys; appends the other rows."""
    for row in later:
        known = next((one for one in rows if key(one) == key(row)), None)
        if known is None:
            rows.append(row)
        else:
            _add_numbers(known, {name: value for name, value in row.items() if name not in _CONSTANT})


_CONSTANT = ("name", "lines", "machineCode", "file", "line", "bound")
"""The entries of steps and of lines that are not added."""


def _add_numbers(sums: dict[str, Any], later: dict[str, Any]) -> None:
    for name, value in later.items():
        sums[name] = sums.get(name, 0) + value


def _add_simulated(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Adds the counters and the estimate of later launches on the simulator."""
    _add_rows(whole["lines"], part["lines"], _line)
    _add_numbers(whole["total"], part["total"])
    for name in ("blocks", "barriers"):
        whole[name] += part[name]
    for name, counts in part["classes"].items():
        before = whole["classes"].get(name, [0] * len(counts))
        whole["classes"][name] = [one + other for one, other in zip(before, counts, strict=True)]
    sums, later = whole["estimate"], part["estimate"]
    _add_numbers(sums["busy"], later["busy"])
    for name in ("ns", "operations", "memoryBytes"):
        sums[name] += later[name]
    longest = max(sums["busy"], key=sums["busy"].__getitem__)
    if not math.isclose(sums["busy"][sums["bound"]], sums["busy"][longest]):
        sums["bound"] = longest
    sums["multiprocessors"] = max(sums["multiprocessors"], later["multiprocessors"])
    sums["intensity"] = sums["operations"] / sums["memoryBytes"] if sums["memoryBytes"] else 0.0
    # The intensity of the sum is at most that of one part, so the larger roof is the peak or above the memory's.
    sums["roof"] = min(max(sums["roof"], later["roof"]), sums["intensity"] * sums["bandwidth"])


MEASUREMENTS = Measurements()
