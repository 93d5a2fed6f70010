"""The sanitizer: launches on the CPU and in the simulator are checked while they run.

``tilewright run --sanitize script.py``, the variable ``TILEWRIGHT_SANITIZE``, ``enable()`` or the fixture
``tilewright_sanitize`` of pytest switch it on. Each finding is a ``Report`` with file and line, and does not stop the
kernel. docs/sanitizers.md describes each check.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings

from tilewright import _native
from tilewright.errors import LaunchValueError, SanitizerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = [
    "CHECKS",
    "Bounds",
    "Report",
    "SanitizerError",
    "check_bounds",
    "checks",
    "clear",
    "disable",
    "enable",
    "reports",
    "sanitize",
]

CHECKS = ("bounds", "race", "init", "alignment", "overflow", "nan")
"""Every check. Accesses out of bounds end a launch with an ``OutOfBoundsError`` also without ``bounds``."""

_VARIABLE = "TILEWRIGHT_SANITIZE"


class Report:
    """One finding: ``str(report)`` is the whole diagnostic, with the source and carets.

    The same finding of other lanes, programs and launches is counted, and has no report of its own.
    """

    check: str
    """The check: one of ``CHECKS``."""

    code: str
    """The code of the diagnostic, such as ``TW0221``; ``tilewright explain TW0221`` tells more."""

    kernel: str
    message: str
    """The first line of the diagnostic."""

    file: str | None
    line: int | None
    column: int | None

    program: tuple[int, int, int]
    """The first program of the grid with the finding."""

    lane: tuple[int, ...]
    """The element of the tile on the CPU; warp and lane in the simulator; empty for a scalar."""

    argument: str | None
    index: int | None
    """The accessed tensor, by the name of the parameter, and the index of the element, counted from its pointer."""

    other_file: str | None
    other_line: int | None
    other_program: tuple[int, int, int] | None
    """The first access of a race."""

    count: int
    """The number of occurrences."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.check, self.code = found["check"], found["code"]
        self.kernel, self.message = found["kernel"], found["message"]
        self._text: str = found["text"]
        self.file, self.line, self.column = found["place"] or (None, None, None)
        self.program, self.lane = found["program"], found["lane"]
        self.argument, self.index = found["element"] or (None, None)
        place, self.other_program = found["other"] or (None, None)
        self.other_file, self.other_line, _ = place or (None, None, None)
        self.count = found["count"]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<{self.code} {self.kernel}: {self.message}, line {self.line}>"


def checks() -> tuple[str, ...]:
    """The checks that are on."""
    return tuple(name for name in _native.sanitizer_checks().split(",") if name)


def parse_checks(names: str, variable: str | None = None) -> str:
    """The checks of a list, in their order; an unknown name is TW0108, which names the variable with the list."""
    try:
        return _native.sanitizer_parse(names)
    except ValueError:
        pass
    import difflib

    word = next(word for word in map(str.strip, names.split(",")) if word not in CHECKS)
    near = difflib.get_close_matches(word, CHECKS, 1)
    error = LaunchValueError(
        f"error[TW0108]: {variable + ': ' if variable else ''}no check is called '{word}'\n"
        f"  = note: the checks are {', '.join(CHECKS)}\n"
        f"  = help: {f'did you mean {near[0]!r}?' if near else 'separate checks by commas; 1 is every check'}"
    )
    error.code = "TW0108"
    raise error


def enable(*names: str) -> None:
    """Checks launches from now on, also in child processes: by these checks, or by all."""
    chosen = parse_checks(",".join(names)) if names else ",".join(CHECKS)
    os.environ[_VARIABLE] = chosen
    _native.reload_knobs()
    if "init" in chosen.split(","):
        from tilewright import _sanitizer_torch

        _sanitizer_torch.watch()
    if _native.device().startswith("cuda"):
        warnings.warn(
            "the sanitizer checks launches on the CPU and in the simulator, not on a GPU: choose a device with "
            "`tilewright run --device cpu`, TILEWRIGHT_DEVICE or `--device sim:sm_90`",
            stacklevel=2,
        )


def disable() -> None:
    """Ends the checks of launches."""
    os.environ.pop(_VARIABLE, None)
    _native.reload_knobs()
    torch_watch = sys.modules.get("tilewright._sanitizer_torch")
    if torch_watch is not None:
        torch_watch.unwatch()


def reports() -> list[Report]:
    """The findings since the last ``clear()``."""
    return [Report(found) for found in _native.sanitizer_reports(False)[0]]


def clear() -> None:
    """Forgets the findings."""
    _native.sanitizer_reports(True)


class Found:
    """The findings of a ``with sanitize()`` block."""

    def __init__(self) -> None:
        self._reports: list[Report] | None = None
        self.dropped = 0

    @property
    def reports(self) -> list[Report]:
        """The findings of the block; within the block, those until now."""
        return reports() if self._reports is None else self._reports

    def take(self) -> list[Report]:
        """Removes and returns the findings until now, which are then expected and no failure."""
        found = reports()
        clear()
        return found

    def end(self) -> None:
        """Takes the findings at the end of the block."""
        found, self.dropped = _native.sanitizer_reports(True)
        self._reports = [Report(one) for one in found]


@contextlib.contextmanager
def sanitize(*names: str, raises: bool = True) -> Iterator[Found]:
    """Checks the launches of a ``with`` block, by these checks or by all.

    Its findings are raised at the end as one ``SanitizerError``; with ``raises=False`` they are only kept, as
    ``reports`` of the block's object.
    """
    before = checks()
    set_aside()
    enable(*names)
    found = Found()
    try:
        yield found
    finally:
        found.end()
        if before:
            enable(*before)
        else:
            disable()
    if raises and found.reports:
        raise SanitizerError(found.reports, found.dropped)


class Bounds:
    """The result of ``check_bounds`` for one access."""

    verdict: str
    """``proved``: in bounds for every size; ``refuted``: out of bounds for some; ``undecided``."""

    access: str
    """The access, such as ``load from `x_ptr```."""

    file: str | None
    line: int | None
    column: int | None

    text: str
    """The whole diagnostic of a counterexample, or why it is not decided."""

    def __init__(self, place: tuple[str, int, int] | None, access: str, verdict: str, text: str) -> None:
        self.verdict, self.access, self.text = verdict, access, text
        self.file, self.line, self.column = place or (None, None, None)

    def __repr__(self) -> str:
        return f"<{self.access}, line {self.line}: {self.verdict}>"


def check_bounds(
    kernel: Any,
    *args: Any,
    extents: dict[str, str],
    grid: str | tuple[str, ...] = (),
    assume: str | tuple[str, ...] = (),
    **options: Any,
) -> list[Bounds]:
    """Says of each access of a kernel whether it is in bounds for every grid and every size; nothing runs.

    The arguments are those of a launch, or of a ``warmup``: their types count, not their sizes. ``extents`` says how
    many elements follow each pointer, ``grid`` what the grid is and ``assume`` which conditions hold, as expressions of
    the integer parameters: ``check_bounds(add, x, y, out, n, BLOCK=128, extents={"x": "n", "y": "n", "out": "n"})``.
    Integers that are 1, or multiples of 16, are known to be so, as in a launch.
    """
    compiled = kernel.warmup(*args, grid=(1,), **options)
    texts = [[one] if isinstance(one, str) else list(one) for one in (grid, assume)]
    return [Bounds(*row) for row in compiled._check_bounds(list(extents.items()), *texts)]


def _raise(found: list[dict[str, Any]], dropped: int) -> None:
    """Raises what a launch with the option ``sanitize`` was found to do; the native module calls it."""
    raise SanitizerError([Report(one) for one in found], dropped)


_earlier: list[tuple[list[dict[str, Any]], int]] = []
"""Findings that were set aside: those before ``with`` blocks, and those of tests."""


def all_reports() -> tuple[list[Report], int]:
    """The findings since the last ``clear()`` and those set aside, and the number of those that were dropped."""
    everything = [*_earlier, _native.sanitizer_reports(False)]
    return [Report(one) for found, _ in everything for one in found], sum(more for _, more in everything)


def set_aside() -> tuple[list[Report], int]:
    """Removes the findings until now and returns them, and the number of those that were dropped.

    The summary at the end of a program still counts them.
    """
    found, dropped = _native.sanitizer_reports(True)
    if found:
        _earlier.append((found, dropped))
    return [Report(one) for one in found], dropped


def print_findings(is_printing: bool) -> None:
    """Sets whether findings are printed when they occur."""
    _native.sanitizer_print(is_printing)


def begin(names: str) -> None:
    """Sanitizes a whole program: findings are printed when they come, and counted at its end."""
    global _is_begun
    _is_begun = True
    enable(*[name for name in parse_checks(names).split(",") if name])
    _native.sanitizer_print(True)
    atexit.register(_summarize, os.getpid())


_is_begun = False
_is_empty_summary_left_out = False


def leave_out_empty_summary() -> None:
    """Prints no "no findings" at the end of the program: it has ended with an error, or launches were not checked."""
    global _is_empty_summary_left_out
    _is_empty_summary_left_out = True


def is_begun() -> bool:
    """Returns whether the sanitizer checks the whole program."""
    return _is_begun


def _summarize(owner: int) -> None:
    if owner != os.getpid():
        return
    found, dropped = all_reports()
    kinds = {check: sum(report.check == check for report in found) for check in CHECKS}
    counted = ", ".join(f"{count} of {check}" for check, count in kinds.items() if count)
    number = len(found) + dropped
    # The interpreter keeps the exception that has ended a program.
    if not number and (_is_empty_summary_left_out or hasattr(sys, "last_value")):
        return
    findings = "1 finding" if number == 1 else f"{number or 'no'} findings"
    rest = "; `import triton` imports another package, whose launches are not checked"
    rest = rest if has_other_triton() else ""
    print(f"tilewright sanitizer: {findings}{': ' + counted if counted else ''}{rest}", file=sys.stderr)


def has_other_triton() -> bool:
    """Returns whether a module of the program has imported a ``triton`` that is not tilewright, as torch may have."""
    triton = sys.modules.get("triton")
    own = sys.modules["tilewright"].__file__
    return triton is not None and getattr(triton, "__file__", None) != own


def _begin_by_environment() -> None:
    """Begins to sanitize the program if the environment says so; called when a program imports tilewright."""
    names = os.environ.get(_VARIABLE, "")
    try:
        chosen = parse_checks(names, _VARIABLE)
    except LaunchValueError as error:
        # A command of tilewright prints the message of this error itself; `python -m` imports the package before.
        is_command = sys.argv[0] == "-m" and "tilewright" in sys.orig_argv[1:4]
        if is_command or os.path.splitext(os.path.basename(sys.argv[0]))[0] == "tilewright":
            print(error, file=sys.stderr)
            raise SystemExit(2) from None
        if (pytest := sys.modules.get("pytest")) is not None:
            # For this exception, pytest prints only the message. The plugin cannot raise it: its package fails first.
            raise pytest.UsageError(str(error)) from None
        raise error.with_traceback(None) from None
    if chosen:
        begin(names)
