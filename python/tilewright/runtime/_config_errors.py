"""The error about a name in a ``triton.Config`` that the kernel does not have: it names the configuration."""

from __future__ import annotations

import functools
import linecache
import re
from typing import Any, TypeVar

from tilewright import _native
from tilewright.errors import Diagnostic, LaunchKeyError
from tilewright.runtime.jit import shown_name


def has_unknown_names(configs: list[Any], arg_names: list[str]) -> bool:
    """Returns whether a configuration has a name that is neither a parameter nor a launch option."""
    names = {name for config in configs for name in config.kwargs} - set(arg_names)
    return bool(names) and not names <= _option_names()


@functools.lru_cache(1)
def _option_names() -> frozenset[str]:
    return frozenset(name for name, _ in _native.compile_options())


_E = TypeVar("_E", bound=Exception)


def named_config(error: _E, config: Any) -> _E | LaunchKeyError:
    """Returns TW0102 with the entry of the configuration in place of the kernel's; any other error unchanged."""
    if not isinstance(error, LaunchKeyError) or error.code != "TW0102" or len(error.diagnostics) != 1:
        return error
    about = error.diagnostics[0]
    found = re.search("'([^']+)' is neither a parameter of (kernel '[^']+')", about.message)
    if found is None or found[1] not in config.kwargs:
        return error
    name, kernel = found.groups()
    message = f"'{name}' of a triton.Config is neither a parameter of {kernel} nor a launch option"
    position = _position(config, name)
    lines = [f"error[TW0102]: {message}"]
    if position is None:
        lines += [" |", f" = note: the configuration is {config}"]
        margin = ""
    else:
        file, line, column, end = position
        margin = " " * len(str(line))
        lines += _excerpt(shown_name(file), line, column, end, linecache.getline(file, line).rstrip())
    notes = [*about.notes]
    if about.file is not None:
        notes.append(f"{kernel} is defined at {about.file}:{about.line}")
    hints = [] if about.hint is None else [f"help: {about.hint}"]
    lines += [f"{margin} = {text}" for text in [*(f"note: {note}" for note in notes), *hints]]
    text = "\n".join(lines)
    made = LaunchKeyError(text)
    made.code = error.code
    made.diagnostics = (
        Diagnostic(
            text,
            code=error.code,
            message=lines[0],
            **dict(zip(("file", "line", "column", "end_column"), position or (None,) * 4, strict=True)),
            label="in this configuration" if position else "",
            labels=(),
            notes=tuple(notes),
            hint=about.hint,
        ),
    )
    return made


def _excerpt(file: str, line: int, column: int, end: int, text: str) -> list[str]:
    margin = " " * len(str(line))
    carets = f"{' ' * (column - 1)}{'^' * (end - column)} in this configuration"
    return [
        f"{margin}--> {file}:{line}:{column}",
        f"{margin} |",
        f"{line} | {text}",
        f"{margin} | {carets}",
        f"{margin} |",
    ]


def _position(config: Any, name: str) -> tuple[str, int, int, int] | None:
    """The file, line and columns, from 1, of an entry of a configuration; of its call if the entry is not found."""
    if (made_at := getattr(config, "_made_at", None)) is None:
        return None
    code, instruction, line = made_at
    first, last, column, end = line, line, None, None
    if hasattr(code, "co_positions"):
        import itertools

        position = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
        if None not in position:
            first, last, column, end = position
    file = code.co_filename
    entry = re.compile(rf"(['\"]){re.escape(name)}\1|\b{re.escape(name)}\b(?=\s*=[^=])")
    for number in range(first, last + 1):
        text = linecache.getline(file, number)
        start = _characters(text, column) if number == first and column is not None else 0
        if (found := entry.search(text, start)) is not None:
            return file, number, found.start() + 1, found.end() + 1
    text = linecache.getline(file, first)
    if not text.strip():
        return None
    start = len(text) - len(text.lstrip()) if column is None else _characters(text, column)
    stop = _characters(text, end) if last == first and end is not None else len(text.rstrip())
    return file, first, start + 1, stop + 1


def _characters(text: str, offset: int) -> int:
    """The number of characters of the first bytes of a line: Python states columns in bytes of UTF-8."""
    return len(text.encode()[:offset].decode(errors="ignore"))
