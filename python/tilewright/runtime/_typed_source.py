"""Finds the source of functions that are in no file: from ``exec``, ``python -c``, or an interactive console.

Python does not keep such a text. This module searches the texts that still exist for one that compiles to exactly the
function.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType
    from typing import Any

_MAX_LINES = 500
"""The maximum number of lines of a history that are searched."""


def source_lines(function: Callable[..., Any]) -> tuple[list[str], int] | None:
    """The lines of a function, decorators included, and the number of the first; nothing if they are not found."""
    import inspect

    code = function.__code__
    for text in _candidates():
        if _defines(text, code):
            lines = text.splitlines(keepends=True)
            first = code.co_firstlineno
            return inspect.getblock(lines[first - 1 :]), first
    return None


def _candidates() -> Iterator[str]:
    """Texts that may hold the function, the likeliest first."""
    import sys

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        for names in (frame.f_locals, frame.f_globals):
            yield from (value for value in list(names.values()) if type(value) is str and "def " in value)
        frame = frame.f_back
    arguments = sys.orig_argv
    if "-c" in arguments[:-1]:
        yield arguments[arguments.index("-c") + 1]
    yield from _typed()


def _typed() -> Iterator[str]:
    """The latest lines typed at the prompt, from the shortest text on."""
    import sys

    readline = sys.modules.get("readline")
    if readline is None:
        return
    length: int = readline.get_current_history_length()
    lines: list[str] = []
    for number in range(length, max(0, length - _MAX_LINES), -1):
        lines.insert(0, f"{readline.get_history_item(number) or ''}\n")
        yield "".join(lines)


def _defines(text: str, code: CodeType) -> bool:
    """Returns whether a text compiles to a module that defines this function."""
    if code.co_name not in text:
        return False
    import __future__

    # `exec` and the console compile a text with the future flags of the code that calls them.
    flags = code.co_flags & __future__.annotations.compiler_flag
    try:
        module = compile(text, code.co_filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    found = [module]
    while found:
        current = found.pop()
        if current == code:
            return True
        found += [constant for constant in current.co_consts if type(constant) is type(code)]
    return False
