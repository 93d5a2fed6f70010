"""Writes the results of commands to standard output; a reader such as ``head`` may close it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


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


def _discard_output() -> None:
    """Discards the text that standard output still buffers, and later text."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
