"""The output of an autotuner: progress, the lines of ``TRITON_PRINT_AUTOTUNING``, a table, skipped configurations."""

from __future__ import annotations

import sys
import time
from typing import Any

_QUIET = 0.5
"""Seconds before a tuning shows its progress."""


class Progress:
    """A line on a terminal that disappears when the tuning ends; nothing if stderr is not a terminal."""

    def __init__(self, tuner: Any, count: int) -> None:
        from tilewright import knobs

        self.name = tuner.__name__
        self.count = count
        self.number = 0
        self.prints = bool(knobs.autotuning.print)
        self.fastest = ""
        self.began = time.perf_counter()
        self.width = 0
        self.is_on_terminal = not self.prints and bool(getattr(sys.stderr, "isatty", bool)())

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()

    def step(self, config: Any) -> None:
        """Notes the next configuration."""
        self.number += 1
        if self.prints:
            print(f"Autotuning kernel {self.name} with config {config}")
        self.say(f"{self.number}/{self.count}")

    def best(self, config: Any, milliseconds: float) -> None:
        """Notes the fastest configuration so far."""
        self.fastest = f", {milliseconds:.3g} ms with {config}"
        self.say(f"{self.number}/{self.count}")

    def say(self, what: str) -> None:
        """Shows the line."""
        if not self.is_on_terminal or time.perf_counter() - self.began < _QUIET:
            return
        import shutil

        line = f"tilewright: autotuning {self.name}: {what}{self.fastest}"
        line = line[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write("\r" + line.ljust(self.width))
        sys.stderr.flush()
        self.width = len(line)


def report_failures(tuner: Any, outcome: Any) -> None:
    """Warns of the configurations that were skipped; an error if none is left.

    If all fail alike, the error is about the kernel or the launch, and is raised unchanged.
    """
    import warnings

    from tilewright.errors import AutotunerError, LaunchWarning, hide_own_frames

    failures: dict[Any, Exception] = outcome.failures
    if not failures:
        return
    from tilewright.runtime._config_errors import named_config

    failures = {config: named_config(error, config) for config, error in failures.items()}
    listed = "".join(f"\n  {config}: {_first_line(error)}" for config, error in failures.items())
    first = next(iter(failures.values()))
    if len(failures) == len(outcome.timings):
        hide_own_frames(first)
        if len({(type(error), getattr(error, "code", None)) for error in failures.values()}) == 1:
            raise first
        raise AutotunerError(f"no configuration of '{tuner.__name__}' runs:{listed}") from first
    text = f"autotuning '{tuner.__name__}' skips {len(failures)} of {len(outcome.timings)} configurations:{listed}"
    warnings.warn(text, LaunchWarning, stacklevel=program_stacklevel())


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    if not text:
        return type(error).__name__
    more = ""
    if getattr(error, "code", None) == "TW0102" and (about := error.diagnostics[0]).file is not None:  # type: ignore[attr-defined]
        more = f", {about.file}:{about.line}{f'; {about.hint}' if about.hint else ''}"
    return f"{type(error).__name__}: {text[0]}{more}"


def program_stacklevel() -> int:
    """Returns the stack level of a warning at the first frame outside of this package."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
        level += 1
    return level


def report_choice(tuner: Any, key: Any, best: Any, is_new: bool) -> None:
    """Prints the lines of ``TRITON_PRINT_AUTOTUNING=1`` and the table if requested; calls the listener."""
    from tilewright import knobs

    if knobs.autotuning.print and is_new:
        print(
            f"Triton autotuning for function {tuner.__name__},\nwith key as {key},\n"
            f"finished after {tuner.bench_time:.2f}s,\nbest config selected: {best};"
        )
    if knobs.autotuning.print_table:
        print(table(tuner))
    if knobs.autotuning.listener is not None:
        knobs.autotuning.listener(
            fn=tuner,
            key=key,
            best_config=best,
            configs_timings=tuner.configs_timings,
            bench_time=tuner.bench_time,
        )


def report_entry(tuner: Any, key: Any, config: Any, entry: str) -> None:
    """Prints the lines of ``TRITON_PRINT_AUTOTUNING=1`` for an entry; calls the listener."""
    from tilewright import knobs

    if knobs.autotuning.print:
        print(
            f"Triton autotuning for function {tuner.__name__},\nwith key as {key},\n"
            f"measured nothing: {entry},\nbest config selected: {config};"
        )
    if knobs.autotuning.listener is not None:
        knobs.autotuning.listener(fn=tuner, key=key, best_config=config, configs_timings={}, bench_time=0.0)


def table(tuner: Any) -> str:
    """The timings of the latest tuning, fastest first."""
    rows = [("ms", "20 %", "80 %", "configuration")]
    for config, timing in sorted(tuner.configs_timings.items(), key=lambda item: item[1][0]):
        numbers = [f"{value:.4f}" if value < float("inf") else "-" for value in timing]
        rows.append((numbers[0], numbers[1], numbers[2], str(config)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.rjust, row[:3], widths), row[3]]) for row in rows]
    return "\n".join([f"Timings of {tuner.__name__}:", *lines])
