"""Writes the results of commands to standard output; a reader such as ``head`` may close it."""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def print_result(text: str) -> None:
    """Prints a result and flushes it. A closed standard output is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def run_command(command: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Runs a command; returns its exit code, and 0 if it ends because standard output is closed."""
    code = 0
    try:
        code = command(arguments)
        # Without this flush, the interpreter would flush at its end, report the error, and exit with 120.
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    return code


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Discards what native code prints to standard output."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # The process has no standard output.
        yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _discard_output() -> None:
    """Discards the text that standard output still buffers, and later text."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
